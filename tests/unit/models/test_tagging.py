"""Word taggers: entities out of tags, and the entity that answers a question."""

import dataclasses

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from model_checks import LABELS
from pages import page
from seqeval.metrics.sequence_labeling import get_entities
from torch import nn

from fedpriv.data.document import Entity, Question
from fedpriv.models.base import Answer, DocumentModel, Tagger
from fedpriv.models.readers.reader import Reader
from fedpriv.models.readers.subwords import Subwords
from fedpriv.models.tagging import Found, WordTagger, found, tags_of

TAGS = tags_of(LABELS)


class Scripted(WordTagger):
    """Gives each word of the only document the tag, and its probability, that it was told."""

    def __init__(self, said, max_length=64):
        super().__init__(Reader(Subwords.shipped(), max_length, None), LABELS)
        self.said = said
        self.place = nn.Parameter(torch.zeros(()))

    def forward(self, batch):
        scores = torch.zeros(*batch["word"].shape, len(TAGS))
        for row, column in torch.nonzero(batch["word"] >= 0).tolist():
            tag, sure = self.said[batch["word"][row, column]]
            chances = torch.full((len(TAGS),), (1 - sure) / (len(TAGS) - 1))
            chances[TAGS.index(tag)] = sure
            scores[row, column] = chances.log()
        return scores


def asked(text, *keys):
    return page(text, questions=[Question(key, f"what is {key}?", ()) for key in keys])


def test_it_is_a_model_that_answers_and_one_that_tags():
    assert isinstance(Scripted([]), DocumentModel)
    assert isinstance(Scripted([]), Tagger)


def test_the_surest_entity_of_the_type_answers_with_the_product_of_its_words():
    said = [
        ("B-total", 0.6), ("O", 0.9), ("B-total", 0.9), ("I-total", 0.8), ("B-provider", 0.5),
    ]  # fmt: skip
    ((total, provider, again),) = Scripted(said).answer(
        [asked("one and Two Three Four", "total", "provider", "total")]
    )
    assert total == again
    assert total.text == "Two Three"
    assert total.confidence == pytest.approx(0.72, rel=1e-5)
    assert provider.text == "Four"
    assert provider.confidence == pytest.approx(0.5, rel=1e-5)


def test_a_long_entity_of_sure_words_may_be_less_sure_than_a_short_one():
    said = [("B-total", 0.8), ("I-total", 0.8), ("O", 0.9), ("B-total", 0.7)]
    ((answer,),) = Scripted(said).answer([asked("a b c d", "total")])
    assert answer.text == "d"


def test_what_is_not_found_is_no_text_and_no_confidence():
    said = [("B-total", 0.9), ("O", 0.9)]
    ((provider, date),) = Scripted(said).answer([asked("a b", "provider", "date")])
    assert provider == date == Answer("", 0.0)


def test_documents_without_questions_or_words_are_answered_too():
    plain = page("a b")
    blank = dataclasses.replace(asked("a", "total"), words=())
    tagger = Scripted([("B-total", 0.9), ("O", 0.9)])
    assert tagger.answer([]) == []
    assert tagger.answer([plain]) == [()]
    none, given_, empty = tagger.answer([plain, asked("a b", "total"), blank])
    assert none == ()
    assert given_[0].text == "a"
    assert empty == (Answer("", 0.0),)


def test_without_questions_nothing_is_encoded(monkeypatch):
    tagger = Scripted([])
    monkeypatch.setattr(tagger, "encode", lambda documents: pytest.fail("encoded"))
    assert tagger.answer([page("a"), page("b")]) == [(), ()]


def test_an_entity_may_reach_into_the_next_window():
    said = [("O", 0.9)] * 4 + [("B-total", 0.9)] + [("I-total", 0.9)] * 3 + [("O", 0.9)] * 4
    tagger = Scripted(said, max_length=8)
    text = "a b c d e f g h i j k l"
    assert len(tagger.encode([asked(text, "total")])) > 1
    ((answer,),) = tagger.answer([asked(text, "total")])
    assert answer.text == "e f g h"
    assert answer.confidence == pytest.approx(0.9**4, rel=1e-5)
    assert tagger.tag(asked(text, "total")) == [tag for tag, _ in said]


@given(st.lists(st.sampled_from([*TAGS, "B-x", "I-x"]), max_size=12))
def test_entities_are_those_that_the_scores_count(tags):
    entities = found(tags, [0.5] * len(tags))
    assert [(e.label, e.words[0], e.words[-1]) for e in entities] == get_entities(tags)
    for entity in entities:
        assert entity.words == tuple(range(entity.words[0], entity.words[-1] + 1))
        assert entity.confidence == 0.5 ** len(entity.words)


def test_an_inside_tag_after_another_type_opens_an_entity():
    assert found(["B-a", "I-b", "I-b", "I-a"], [1.0, 0.5, 0.5, 0.25]) == [
        Found("a", (0,), 1.0),
        Found("b", (1, 2), 0.25),
        Found("a", (3,), 0.25),
    ]


def test_reading_settings_say_all_that_decides_over_the_arrays():
    tagger = Scripted([])
    assert tagger.reading() == {
        "labels": list(LABELS),
        "max_length": 64,
        "image_size": None,
        "box_step": 1,
        "boxes": "segment",
        "vocabulary": Subwords.shipped().digest,
    }


def test_a_reader_without_image_gives_no_pixels():
    examples = Scripted([]).encode([page("a b", entities=[Entity("total", (1,))])])
    assert not examples.shared
    assert Reader(Subwords.shipped(), 64, 16).read([page("a")], TAGS).shared["pixels"][0].shape == (
        1, 3, 16, 16,
    )  # fmt: skip


def test_a_window_without_room_for_a_word_is_refused():
    with pytest.raises(ValueError, match=r"^max_length=2: expected 3 or more"):
        Reader(Subwords.shipped(), 2, None)
