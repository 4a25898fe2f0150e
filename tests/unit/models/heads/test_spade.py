"""Pointers between tokens; entities and links that are found by them."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from model_checks import check_every_parameter_learns, check_every_way_gives_what_the_loop_gives
from pages import page
from transformers import BrosConfig, LayoutLMConfig, LayoutLMModel
from transformers.models.bros.modeling_bros import BrosRelationExtractor

from fedpriv.data.document import Entity
from fedpriv.models.encoders.encoder import Encoder
from fedpriv.models.field_model import FieldModel
from fedpriv.models.heads.linking import SpadeLinker
from fedpriv.models.heads.pointer import Pointer, found_scores
from fedpriv.models.heads.spade import SpadeExtractor, chains
from fedpriv.models.readers.reader import Reader, words_of_tokens
from fedpriv.models.readers.subwords import Subwords

LABELS = ("date", "total")
NO = -100


def model_of(head, max_length=10, labels=LABELS, seed=0):
    torch.manual_seed(seed)
    config = LayoutLMConfig(
        vocab_size=Subwords.shipped().size,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=32,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.1,
        attn_implementation="eager",
    )
    reader = Reader(Subwords.shipped(), max_length, None)
    return head(Encoder(LayoutLMModel(config)), reader, labels)


def form(*entities, links=(), text="12 3456 to 9"):
    """Four words of five tokens: the second word has two."""
    return dataclasses.replace(page(text, entities=entities), links=links)


DATE, TOTAL = Entity("date", (1, 2)), Entity("total", (3,))


def batch_of(model, *documents):
    examples = model.encode(documents)
    return examples.batch(np.arange(len(examples)))


def test_the_words_of_these_tests_have_the_tokens_that_they_say():
    pieces = Subwords.shipped().pieces(["12", "3456", "to", "9"])
    assert [len(tokens) for tokens in pieces] == [1, 2, 1, 1]


# ---------------------------------------------------------------------------------- the pointer


def test_scores_are_products_of_queries_and_keys():
    pointer = Pointer(4)
    with torch.no_grad():
        pointer.query.weight.copy_(torch.eye(4))
        pointer.key.weight.copy_(2 * torch.eye(4))
        pointer.none.copy_(torch.tensor([0.0, 0, 0, 6]))
    vectors = torch.tensor([[[1.0, 2, 0, 0], [3, 1, 0, 1], [0, 0, 5, 1]]])
    scores = pointer(vectors, torch.tensor([[True, True, True]]))[0]
    least = torch.finfo(torch.float32).min
    # (1, 2) · 2 (3, 1) / √4 = 5, and so on.
    assert scores.tolist() == [[least, 5, 0, 0], [5, least, 1, 3], [0, 1, least, 3]]


@settings(max_examples=30)
@given(candidates=arrays.arrays(bool, (2, 6)), seed=st.integers(0, 99))
def test_it_never_points_to_what_is_no_candidate_nor_at_itself(candidates, seed):
    torch.manual_seed(seed)
    scores = Pointer(8, 1.0)(torch.randn(2, 6, 8), torch.from_numpy(candidates))
    chance = scores.detach().softmax(-1)
    assert chance.sum(-1).numpy() == pytest.approx(1, abs=1e-5)
    closed = ~np.broadcast_to(candidates[:, None], (2, 6, 6)) | np.eye(6, dtype=bool)
    assert (chance[..., :6].numpy()[closed] == 0).all()
    assert (chance[..., 6] > 0).all()


def test_scores_are_those_of_bros_but_for_the_division():
    torch.manual_seed(0)
    own, other = Pointer(16, 0.5), BrosRelationExtractor(BrosConfig(hidden_size=16)).eval()
    with torch.no_grad():
        other.query.load_state_dict(own.query.state_dict())
        other.key.load_state_dict(own.key.state_dict())
        # BROS has a vector for "none" that becomes a key like the tokens'; ours is the key.
        own.none.copy_(own.key(other.dummy_node[0]))
    vectors, mask = torch.randn(3, 5, 16), torch.ones(3, 5, dtype=torch.bool)
    # (L, batch, H) in BROS; a token's score for itself is masked outside its extractor.
    expected = other(*2 * [vectors.transpose(0, 1)])[0] / 4
    found = own(vectors, mask)
    open_ = found > torch.finfo(found.dtype).min
    assert int(open_.sum()) == 3 * (5 * 5)
    torch.testing.assert_close(found[open_], expected[open_])


def test_scores_of_counts():
    assert found_scores(3, 4, 6) == {"precision": 0.75, "recall": 0.5, "f1": 0.6}
    assert found_scores(0, 0, 0) == {"precision": 0.0, "recall": 0.0, "f1": 0.0}


# --------------------------------------------------------------------------------- its examples


def test_tokens_within_words_belong_to_their_words():
    word = np.array([[-1, 0, 1, -1, 2, -1, -1], [-1, -1, 3, -1, -1, -1, -1]])
    mask = np.array([[1, 1, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, 1, 1]])
    assert words_of_tokens(word, mask).tolist() == [
        [-1, 0, 1, 1, 2, -1, -1],
        [-1, -1, 3, 3, 3, 3, -1],
    ]


def test_each_token_of_an_entity_has_its_predecessor():
    model = model_of(SpadeExtractor)
    examples = model.encode([form(DATE, TOTAL), form(Entity("total", (0, 2)))])
    # [CLS] 12 34 56 to 9 [SEP]
    assert examples.column("initial").tolist() == [
        [NO, 0, 1, 0, 0, 2, NO, NO, NO, NO],
        [NO, 2, 0, 0, 0, 0, NO, NO, NO, NO],
    ]
    assert examples.column("previous").tolist() == [
        [NO, 10, 10, 2, 3, 10, NO, NO, NO, NO],
        [NO, 10, 10, 10, 1, 10, NO, NO, NO, NO],
    ]


def test_what_a_window_holds_of_an_entity_is_one_there():
    examples = model_of(SpadeExtractor, max_length=5).encode([form(DATE, TOTAL)])
    assert examples.column("initial").tolist() == [[NO, 0, 1, 0, NO], [NO, 1, 2, NO, NO]]
    assert examples.column("previous").tolist() == [[NO, 5, 5, 2, NO], [NO, 5, 5, NO, NO]]


def test_the_end_of_a_cut_word_takes_no_part():
    examples = model_of(SpadeExtractor, max_length=4).encode([form(DATE, TOTAL)])
    # 12 34 | 56 to | 9
    assert examples.column("initial").tolist() == [
        [NO, 0, 1, NO],
        [NO, NO, 1, NO],
        [NO, 2, NO, NO],
    ]
    assert examples.column("previous").tolist() == [
        [NO, 4, 4, NO],
        [NO, NO, 4, NO],
        [NO, 4, NO, NO],
    ]


def test_of_entities_that_share_a_word_the_last_has_it():
    document = form(Entity("date", (0, 1, 2)), Entity("total", (1,)))
    assert document.tags() == ["B-date", "B-total", "I-date", "O"]
    examples = model_of(SpadeExtractor).encode([document])
    assert examples.column("initial")[0, 1:6].tolist() == [1, 2, 0, 0, 0]
    assert examples.column("previous")[0, 1:6].tolist() == [10, 10, 2, 1, 10]


def test_linked_entities_point_at_those_that_link_to_them():
    document = form(
        Entity("date", (0,)), DATE, TOTAL, links=((2, 1), (0, 1), (1, 2), (1, 2), (2, 2))
    )
    examples = model_of(SpadeLinker).encode([document])
    assert examples.column("source").tolist() == [[NO, 10, 5, NO, NO, 2, NO, NO, NO, NO]]
    assert examples.column("links").tolist() == [4]


def test_a_link_from_another_window_is_to_none_and_counted():
    document = form(Entity("date", (0,)), DATE, TOTAL, links=((0, 1), (0, 2)))
    examples = model_of(SpadeLinker, max_length=5).encode([document])
    assert examples.column("source").tolist() == [[NO, 5, 1, NO, NO], [NO, NO, 5, NO, NO]]
    assert examples.column("links").tolist() == [1, 1]


def test_documents_without_links_are_refused():
    model = model_of(SpadeLinker)
    says = "none of the 2 documents has links .* FUNSD and XFUND .* take task=tags, spade or mlm"
    with pytest.raises(ValueError, match=says):
        model.encode([form(DATE, TOTAL), form()])
    assert len(model.encode([form(DATE), form(DATE, TOTAL, links=((1, 0),))])) == 2
    assert (model.encode([page("")]).column("source") == NO).all()


# ----------------------------------------------------------------------------------- its losses


@pytest.fixture(params=[SpadeExtractor, SpadeLinker])
def head(request):
    return request.param


PAGES = [
    form(DATE, TOTAL, links=((0, 1),), text="12 3456 to 9"),
    form(TOTAL, Entity("date", (0, 2)), links=((1, 0),), text="9 to pay 7"),
    form(Entity("total", (0,)), Entity("date", (1,)), text="5 7"),
    page(""),
]


def test_it_is_a_field_model(head):
    assert isinstance(model_of(head), FieldModel)


def test_losses_do_not_depend_on_the_others_of_the_batch(head):
    model = model_of(head).double().eval()
    together = model.losses(batch_of(model, *PAGES))
    examples = model.encode(PAGES)
    alone = [model.losses(examples.batch(np.array([row]))) for row in range(len(PAGES))]
    torch.testing.assert_close(together, torch.cat(alone))
    assert together.shape == (4,)
    assert (together[:3] > 0).all()
    assert together[3] == 0, "a page without words"


def test_windows_cut_behind_their_last_token_have_the_same_losses(head):
    model = model_of(head).double().eval()
    batch = batch_of(model, *PAGES)
    attended = int(batch["attention_mask"].sum(1).max())
    assert attended < 10
    cut = {name: c[:, :attended] if c.ndim > 1 else c for name, c in batch.items()}
    torch.testing.assert_close(model.losses(cut), model.losses(batch))


def test_the_loss_is_the_mean_of_the_examples_that_have_tokens(head):
    model = model_of(head).double().eval()
    batch = batch_of(model, *PAGES)
    losses = model.losses(batch)
    assert model.loss(batch).item() == pytest.approx(losses[:3].mean().item())
    with torch.no_grad():
        found = model.evaluate(model.encode(PAGES))
    assert found["loss"] == pytest.approx(losses[:3].mean().item())
    nothing = {name: column[3:] for name, column in batch.items()}
    assert model.loss(nothing).item() == 0


def test_a_head_that_knows_nothing_has_the_loss_of_guessing(head):
    model = model_of(head).eval()
    for part in model.head():
        for parameter in part.parameters():
            torch.nn.init.zeros_(parameter)
    losses = model.losses(batch_of(model, PAGES[0])).tolist()
    # 5 tokens, of which one is never its own predecessor; 2 entities; each beside "none".
    expected = math.log(3) + math.log(5) if head is SpadeExtractor else math.log(2)
    assert losses == pytest.approx([expected])


def test_every_parameter_learns(head):
    check_every_parameter_learns(model_of(head), PAGES)


def test_examples_have_gradients_of_their_own_by_vmap_too(head):
    check_every_way_gives_what_the_loop_gives(model_of(head), PAGES[:2], ghost=False)


# --------------------------------------------------------------------------------- what it finds


def window(initial, previous, certainty=None, word=None):
    """`chains` with equal certainty of all, and each token a word."""
    length = len(initial)
    return chains(
        np.array(initial),
        np.array(previous),
        np.full(length, 0.5) if certainty is None else np.array(certainty),
        np.arange(length) if word is None else np.array(word),
    )


def test_an_entity_is_a_labelled_token_and_who_points_at_it():
    assert window([0, 2, 0, 0, 1, 0], [6, 6, 1, 6, 6, 2]) == {(2, (1, 2, 5)), (1, (4,))}
    assert window([0, 0], [2, 0]) == set()


def test_of_two_that_point_at_the_same_the_surest_follows():
    initial, previous = [1, 0, 0, 0], [4, 0, 0, 1]
    assert window(initial, previous, [1, 0.9, 0.8, 0.5]) == {(1, (0, 1, 3))}
    assert window(initial, previous, [1, 0.7, 0.8, 0.5]) == {(1, (0, 2))}


def test_tokens_in_a_circle_are_in_no_entity():
    assert window([0, 0, 0, 1, 0], [2, 0, 1, 5, 3]) == {(1, (3, 4))}


def test_a_labelled_token_follows_nobody():
    assert window([1, 2, 0], [3, 0, 1]) == {(1, (0,)), (2, (1, 2))}
    assert window([1, 1], [1, 0]) == {(1, (0,)), (1, (1,))}


def test_tokens_that_take_no_part_are_in_no_entity():
    assert window([NO, 1, NO, NO], [NO, 4, 1, NO], word=[-1, 0, -1, -1]) == {(1, (0,))}


def test_a_word_belongs_to_the_entity_of_its_first_token():
    tokens = {"initial": [1, 0, 2, 0], "previous": [4, 0, 4, 2], "word": [0, -1, -1, 1]}
    assert window(**tokens) == {(1, (0,)), (2, (1,))}
    assert window([0, 1], [2, 2], word=[0, -1]) == set()


@settings(max_examples=100)
@given(
    initial=st.lists(st.integers(0, 2), min_size=7, max_size=7),
    previous=st.lists(st.integers(0, 7), min_size=7, max_size=7),
    certainty=st.lists(st.floats(0, 1), min_size=7, max_size=7),
)
def test_whatever_is_pointed_at_a_word_is_in_one_entity_at_most(initial, previous, certainty):
    found = window(initial, previous, certainty)
    words = [word for _, words in found for word in words]
    assert len(words) == len(set(words))
    assert len(found) == sum(label > 0 for label in initial)


def scores_of(best, classes):
    """Logits, of which the one named is the largest."""
    return 9 * torch.nn.functional.one_hot(torch.tensor(best).clamp(min=0), classes).float()


def test_entities_are_right_in_label_and_words(monkeypatch):
    """Found are 3, a date too short, a total and a date too many; true are 2; right is 1."""
    model = model_of(SpadeExtractor)
    labels = scores_of([[0, 1, 1, 0, 0, 2, 2, 0, 0, 0]], 3)
    before = scores_of([[10, 10, 10, 2, 10, 10, 10, 1, 1, 1]], 11)
    monkeypatch.setattr(SpadeExtractor, "forward", lambda *_: (labels, before))
    metrics = model.evaluate(model.encode([form(DATE, TOTAL)]))
    assert metrics["precision"] == pytest.approx(1 / 3)
    assert metrics["recall"] == 0.5
    # The label of "12" and the predecessor of "to" are wrong.
    assert metrics["accuracy"] == pytest.approx(3 / 5)


def test_links_are_those_of_the_document(monkeypatch):
    """Found are 2 of which 1 is right; true are 3, of which one leads to another's entity."""
    model = model_of(SpadeLinker)
    document = form(Entity("date", (0,)), DATE, TOTAL, links=((0, 1), (2, 1), (1, 2)))
    pointed = scores_of([[1, 10, 1, 1, 1, 1, 1, 1, 1, 1]], 11)
    monkeypatch.setattr(SpadeLinker, "forward", lambda *_: pointed)
    metrics = model.evaluate(model.encode([document]))
    assert (metrics["precision"], metrics["recall"]) == (0.5, pytest.approx(1 / 3))
    assert metrics["accuracy"] == pytest.approx(2 / 3)


def test_two_documents_are_learnt_by_heart(head):
    texts = ("12 3456 to 9 due pay", "9 to pay 7 and due")
    documents = [
        form(DATE, TOTAL, links=((0, 1),), text=texts[0]),
        form(TOTAL, Entity("date", (0, 2, 5)), links=((1, 0),), text=texts[1]),
    ]
    model = model_of(head, max_length=12)
    examples = model.encode(documents)
    with torch.no_grad():
        before = model.eval().evaluate(examples)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    batch = examples.batch(np.arange(len(examples)))
    for _ in range(30):
        optimizer.zero_grad()
        model.train().loss(batch).backward()
        optimizer.step()
    with torch.no_grad():
        after = model.eval().evaluate(examples)
    assert before["f1"] < 1
    assert after["f1"] == after["accuracy"] == after["precision"] == after["recall"] == 1
    assert after["loss"] < 0.1 * before["loss"]
