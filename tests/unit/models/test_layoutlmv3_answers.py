"""LayoutLMv3 for answers: its input against transformers' processor, spans, windows, learning."""

import functools
import itertools

import numpy as np
import pytest
import torch
from model_checks import (
    SMALL,
    batch_of,
    check_alone_or_together_the_answers_are_the_same,
    check_dropout_is_the_seeds_and_each_examples_own,
    check_every_parameter_learns,
    check_every_way_gives_what_the_loop_gives,
    check_gradients_of_gradients,
    check_the_batch_is_the_mean_of_its_examples,
    learn,
)
from pages import page
from PIL import Image
from transformers import LayoutLMv3Processor, LayoutLMv3Tokenizer
from transformers.models.layoutlmv3.image_processing_pil_layoutlmv3 import (
    LayoutLMv3ImageProcessorPil,
)

from fedpriv.data.document import Question
from fedpriv.models.base import Answer, DocumentModel
from fedpriv.models.layoutlmv3 import layoutlmv3
from fedpriv.models.layoutlmv3_answers import LONGEST, LayoutLMv3Answerer
from fedpriv.models.readers.question_reader import QuestionReader, gold_span
from fedpriv.models.readers.subwords import Subwords
from fedpriv.runtime.torch_state import seeded_model

SHIPPED = Subwords.shipped()


def tiny(seed=0, **more):
    settings = {"max_length": 40, "image_size": 16, "hidden_size": 16, "layers": 1, **more}
    return seeded_model(functools.partial(layoutlmv3, task="answers", **settings), seed)


def asked(text, question="how much?", *answers, **more):
    return page(text, questions=[Question("key", question, answers)], **more)


def row_of(document, max_length=40, **more):
    reader = QuestionReader(SHIPPED, max_length, 16, **more)
    return reader.read([document])


# The input


def byte_level_tokenizer():
    """LayoutLMv3's own kind of tokenizer: bytes, and some merges of them."""
    base = LayoutLMv3Tokenizer()
    letters = sorted(set(SHIPPED.tokenizer.get_vocab()) - {"<s>", "<pad>", "</s>", "<unk>"})
    letters = [letter for letter in letters if len(letter) == 1]
    merges = [("Ġ", "t"), ("o", "t"), ("Ġt", "ot"), ("a", "l"), ("Ġtot", "al"), ("1", "2")]
    words = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *letters, *map("".join, merges)]
    vocabulary = {word: number for number, word in enumerate(words)}
    return type(base)(vocab=vocabulary, merges=merges)


def test_a_window_is_what_the_processor_of_transformers_makes():
    tokenizer = byte_level_tokenizer()
    processor = LayoutLMv3Processor(LayoutLMv3ImageProcessorPil(apply_ocr=False), tokenizer)
    document = asked("total 12.50 eur to vega", "what is the total ?", "12.50")
    ids = tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.pad_token_id
    reader = QuestionReader(Subwords(tokenizer.backend_tokenizer, *ids), 64, None)
    row = reader.read([document])
    boxes = [[50 * k, 100, 50 * k + 45, 300] for k in range(5)]
    expected = processor(
        Image.new("RGB", (20, 20)),
        "what is the total ?",
        [word.text for word in document.words],
        boxes=boxes,
        max_length=64,
        padding="max_length",
        return_tensors="np",
    )
    assert (expected["input_ids"] != tokenizer.unk_token_id).all()
    for name in ("input_ids", "attention_mask", "bbox"):
        np.testing.assert_array_equal(row.column(name), expected[name])


def test_places_of_the_answer_are_those_of_its_first_and_last_token():
    row = row_of(asked("pay 2024-05-01 now 12.50 please", "when?", "2024-05-01 NOW"))
    ids, word = row.column("input_ids")[0], row.column("word")[0]
    start, end = row.column("start")[0], row.column("end")[0]
    assert SHIPPED.text(ids[start : end + 1]) == "2024-05-01 now"
    pieces = SHIPPED.pieces(["pay", "2024-05-01", "now", "12.50", "please"])
    assert word[start : end + 1].tolist() == [1] * len(pieces[1]) + [2] * len(pieces[2])
    assert word[start - 1] == 0
    assert word[end + 1] == 3
    assert (word >= 0).sum() == sum(map(len, pieces))


@pytest.mark.parametrize(
    ("text", "answers", "span"),
    [
        ("Vega Ltd owes Vega Ltd", ["vega LTD"], (0, 1)),
        ("to Vega  Ltd", ["Vega\n Ltd "], (1, 2)),
        ("total: 12.50.", ["12.50"], (1, 1)),
        ("12.50. then 12.50", ["12.50"], (2, 2)),  # the exact one before the tolerant one
        ("pay Vega , Ltd. now", ["Vega Ltd"], (1, 3)),
        ("a b c", ["x", "b c"], (1, 2)),
        ("a b c", ["c", "a"], (2, 2)),  # the first answer that stands there
        ("a b c", ["a c"], None),
        ("a b", ["a b c"], None),
        ("a . b", ["."], (1, 1)),
        ("a b", ["!"], None),
        ("a b", [""], None),
        ("a b", [], None),
        ("12.50", ["1250"], None),
    ],
)
def test_the_gold_answer_is_the_first_run_of_words_that_reads_like_it(text, answers, span):
    assert gold_span(asked(text), answers) == span


def test_an_answer_that_is_nowhere_is_the_first_token():
    row = row_of(asked("a b", "how much?", "99"))
    assert (row.column("start")[0], row.column("end")[0]) == (0, 0)


def test_a_long_page_is_windows_with_the_question_in_front_and_the_answer_in_one_of_them():
    text = " ".join(f"w{k}" for k in range(40)) + " 77 end"
    rows = row_of(asked(text, "how much?", "77"), max_length=24)
    question = [t for p in SHIPPED.pieces(["how", "much?"]) for t in p]
    assert len(rows) > 3
    front = [SHIPPED.cls, *question, SHIPPED.sep, SHIPPED.sep]
    assert (rows.column("input_ids")[:, : len(front)] == front).all()
    assert (rows.column("question") == 0).all()
    words = rows.column("word")
    every = [t for t in words.flatten().tolist() if t >= 0]
    assert sorted(set(every)) == list(range(42))
    (holder,) = np.flatnonzero(rows.column("start"))
    start, end = rows.column("start")[holder], rows.column("end")[holder]
    assert SHIPPED.text(rows.column("input_ids")[holder, start : end + 1]) == "77"


@pytest.mark.parametrize("cut", range(1, 7))
def test_an_answer_cut_by_the_end_of_a_window_is_in_none(cut):
    """Also where the cut goes through its last word."""
    tokens = [len(p) for p in SHIPPED.pieces(["2024-05-01", "123456"])]
    assert sum(tokens) > 7
    before = "a " * (20 - 4 - 1 - cut)  # a question of one token
    document = asked(f"{before} 2024-05-01 123456", "a", "2024-05-01 123456")
    rows = row_of(document, max_length=20)
    assert (rows.column("word") >= 0).sum(1)[0] == 15
    assert not rows.column("start").any()
    assert not rows.column("end").any()


def test_a_long_question_leaves_half_of_the_window_to_the_page():
    rows = row_of(asked("a b", "why " * 100, "b"), max_length=24)
    assert (rows.column("attention_mask").sum(1) <= 24).all()
    ids, start = rows.column("input_ids")[0], rows.column("start")[0]
    assert ids[start] == SHIPPED.pieces(["b"])[0][0]
    with pytest.raises(ValueError, match=r"^max_length=7: expected 8 or more"):
        QuestionReader(SHIPPED, 7, None)


def test_a_blank_page_is_a_window_without_words():
    row = row_of(asked("", "how much?", "1"))
    assert len(row) == 1
    assert (row.column("word") == -1).all()
    assert row.column("attention_mask").sum() == 4 + sum(map(len, SHIPPED.pieces(["how", "much?"])))


def test_boxes_and_pixels_are_read_as_for_tags():
    row = row_of(asked("a b", "how much?", "b"), box_step=40)
    places = row.column("word")[0]
    assert row.column("bbox")[0][places == 1].tolist() == [[40, 80, 80, 280]]
    assert not row.column("bbox")[0][places < 0].any()
    assert row.batch(np.array([0]))["pixels"].shape == (1, 3, 16, 16)


# Losses and answers


def test_losses_are_cross_entropies_over_the_page_and_the_first_token_alone():
    model = tiny()
    batch = batch_of(model)
    sequence = model.network(
        **{name: batch[name] for name in ("input_ids", "attention_mask", "bbox")},
        pixel_values=(batch["pixels"].float() / 255 - 0.5) / 0.5,
    )
    assert sequence.start_logits.shape[1] == 40 + 5  # the patches are scored too
    expected = []
    for row in range(len(batch["start"])):
        open_places = [0, *np.flatnonzero(batch["word"][row] >= 0).tolist()]
        terms = []
        for logits, label in (
            (sequence.start_logits[row], batch["start"][row]),
            (sequence.end_logits[row], batch["end"][row]),
        ):
            chances = logits[open_places].double().log_softmax(0)
            terms.append(-chances[open_places.index(int(label))].item())
        expected.append(sum(terms) / 2)
    np.testing.assert_allclose(model.losses(batch).detach().numpy(), expected, rtol=1e-5)
    assert model.loss(batch).item() == pytest.approx(np.mean(expected), rel=1e-5)


def brute_force(model, batch, row):
    begin, end = (scores[row].double().softmax(-1).tolist() for scores in model(batch))
    words = batch["word"][row].tolist()
    spans = [
        (begin[i] * end[j], i, j)
        for i, j in itertools.product(range(len(words)), repeat=2)
        if words[i] >= 0 and words[j] >= 0 and i <= j < i + LONGEST
    ]
    sure, i, j = max(spans, default=(0.0, 0, 0))
    if sure <= begin[0] * end[0]:
        return "", begin[0] * end[0]
    return SHIPPED.text(batch["input_ids"][row, i : j + 1].tolist()), sure


@pytest.mark.parametrize("seed", range(4))
def test_answers_are_the_best_of_all_spans(seed):
    model = tiny(seed, max_length=64, initializer_range=0.5).eval()
    long_page = asked(" ".join("abcdefghij" * 8), "what?")
    with torch.no_grad():
        batch = batch_of(model, [*SMALL, long_page, asked("", "what?")])
        answers = model.answer_batch(batch)
        for row, answer in enumerate(answers):
            text, sure = brute_force(model, batch, row)
            assert answer.text == text
            assert answer.confidence == pytest.approx(sure, rel=1e-4)
            assert 0 <= answer.confidence <= 1
    assert any(a.text for a in answers)


class Scripted(LayoutLMv3Answerer):
    """Is sure, as it is told, of one span in each window; of none in the others."""

    def __init__(self, said, max_length):
        super().__init__(tiny().network, QuestionReader(SHIPPED, max_length, None))
        self.said = iter(said)

    def forward(self, batch):
        scores = torch.full((2, *batch["word"].shape), -30.0)
        for row in range(len(batch["word"])):
            start, end, sure = next(self.said)
            if start:
                start, end = (
                    int(batch["start"][row]) + start - 1,
                    int(batch["start"][row]) + end - 1,
                )
            scores[0, row, start] = scores[1, row, end] = np.log(sure)
            scores[0, row, 0 if start else -1] = np.log(1 - sure) - 1
        return scores[0], scores[1]


def test_a_span_longer_than_allowed_is_not_considered():
    document = asked(" ".join(["a"] * 50), "a", "a")
    model = Scripted([(1, LONGEST, 0.9)], 64)
    assert model.answer([document])[0][0].text.split() == ["a"] * LONGEST
    model = Scripted([(1, LONGEST + 1, 0.9)], 64)
    assert model.answer([document])[0][0].confidence < 1e-3


def test_the_window_that_says_something_speaks_for_the_question():
    text = " ".join(["a"] * 30) + " b"
    document = asked(text, "a", "b")
    assert len(row_of(document, max_length=20)) == 3
    sure_of_nothing = (0, 0, 0.999)
    model = Scripted([sure_of_nothing, sure_of_nothing, (1, 1, 0.6)], 20)
    ((answer,),) = model.answer([document])
    assert answer.text == "b"
    assert 0.3 < answer.confidence < 0.999


def test_a_question_without_an_answer_in_any_window_is_answered_with_nothing():
    document = asked(" ".join(["a"] * 30), "a", "b")
    model = Scripted([(0, 0, 0.9), (0, 0, 0.99)], 20)
    ((answer,),) = model.answer([document])
    assert answer.text == ""
    assert answer.confidence > 0.9
    assert isinstance(answer, Answer)


def test_answers_do_not_depend_on_the_neighbours():
    check_alone_or_together_the_answers_are_the_same(tiny(initializer_range=0.5))


# Gradients


def test_it_is_a_document_model_of_about_100_000_parameters():
    model = layoutlmv3(("date",), task="answers")
    assert isinstance(model, DocumentModel)
    assert 90_000 < sum(p.numel() for p in model.parameters()) < 110_000
    assert [len(model.blocks()), len(model.head()), len(model.visual())] == [2, 1, 2]


@pytest.mark.parametrize("image", [True, False])
def test_every_trainable_parameter_gets_a_gradient(image):
    check_every_parameter_learns(tiny(image=image))


def test_without_image_nothing_of_it_is_there():
    model = tiny(image=False)
    names = [name for name, _ in model.named_parameters()]
    assert not [n for n in names if "patch_embed" in n or "cls_token" in n or "pos_embed" in n]
    assert not model.encode(SMALL).shared
    assert model.visual() == []
    assert model.loss(batch_of(model)).isfinite()


@pytest.mark.parametrize("image", [True, False])
def test_per_example_gradients_by_vmap_are_those_of_the_loop(image):
    check_every_way_gives_what_the_loop_gives(tiny(image=image))


def test_the_gradient_of_a_batch_is_the_mean_of_its_examples():
    check_the_batch_is_the_mean_of_its_examples(tiny())


def test_dropout_is_each_examples_own():
    check_dropout_is_the_seeds_and_each_examples_own(tiny(dropout=0.2))


def test_gradients_have_gradients():
    check_gradients_of_gradients(tiny())


@pytest.mark.slow
def test_it_learns_to_find_answers():
    rng = np.random.default_rng(0)
    documents = []
    for number, company in enumerate(["Vega Ltd", "Orion", "Acme Co", "Kestrel", "Yarrow Ab"] * 2):
        parts = [f"by {company}", f"total {rng.integers(10, 99)}", f"page {rng.integers(10, 99)}"]
        text = " ".join(rng.permutation(parts))
        answers = {"Who asks?": company, "How much?": parts[1].split()[1], "What tax?": "none"}
        asks = [Question(ask[:3], ask, (answer,)) for ask, answer in answers.items()]
        documents.append(page(text, questions=asks, name=str(number)))
    model = tiny(hidden_size=32)
    first, last = learn(model, documents, 60, 5e-3)
    assert last < 0.2 * first
    with torch.no_grad():
        scores = model.evaluate(model.encode(documents))
        answers = model.answer(documents)
    assert scores["accuracy/Who"] > 0.9
    assert scores["accuracy/How"] > 0.9
    assert scores["loss"] < 0.3 * first
    assert all(given[2] == Answer("", given[2].confidence) for given in answers)
    right = [
        answer.text in {text.lower() for text in question.answers}
        for document, given in zip(documents, answers, strict=True)
        for question, answer in zip(document.questions, given, strict=True)
    ]
    assert sum(right) / len(right) == pytest.approx(scores["accuracy"])


def test_by_name_and_at_the_published_length():
    assert isinstance(layoutlmv3(("a",), task="answers"), LayoutLMv3Answerer)
    with pytest.raises(ValueError, match=r"^task='parse': expected 'tags' or 'answers'$"):
        layoutlmv3(("a",), task="parse")
    with pytest.raises(ValueError, match=r"^max_length=513: .* has positions for 512 tokens$"):
        layoutlmv3(task="answers", size="base", max_length=513)
