"""Text read out of one gradient: what the attacker gets is compared with what the client had."""

import dataclasses
import functools
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from model_checks import invoices
from transformers import LiltConfig, LiltForTokenClassification

from fedpriv.attacks.text.recover import recover_text
from fedpriv.attacks.victim import Victim
from fedpriv.data.generated.questions import QUESTION_TEMPLATES
from fedpriv.models.auto import auto
from fedpriv.models.donut import donut
from fedpriv.models.encoders.backbones import bert
from fedpriv.models.layoutlmv3 import layoutlmv3
from fedpriv.models.readers.reader import IGNORED
from fedpriv.models.readers.subwords import Subwords
from fedpriv.models.roberta import roberta
from fedpriv.models.vt5 import vt5
from fedpriv.runtime.torch_state import seeded_model
from fedpriv.threat.attack import NotApplicable
from fedpriv.threat.claims import SEVERAL

PHRASES = [phrase for phrases in QUESTION_TEMPLATES.values() for phrase in phrases]
KEYS = ("provider", "total", "date", "email")
DOCUMENTS = invoices(KEYS, providers=3, per_provider=2)
LABELS = tuple({e.label: None for document in DOCUMENTS for e in document.entities})
QUESTIONS = [question for document in DOCUMENTS for question in document.questions]
ANSWERS = functools.partial(layoutlmv3, task="answers")
WIDE = functools.partial(ANSWERS, layers=1, hidden_size=768, initializer_range=0.036)


@functools.lru_cache(maxsize=2)
def built(build, seed=0):
    model = seeded_model(build, seed).eval()
    return model, model.encode(DOCUMENTS)


def gradient_of(model, batch):
    named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    values = torch.autograd.grad(model.loss(batch), [p for _, p in named], allow_unused=True)
    return {n: g for (n, _), g in zip(named, values, strict=True) if g is not None}


def attacked(build, rows, seed=0, noise=0.0, without=(), phrases=(), scale=1.0):
    """Returns what was read of the rows' batch, and the batch."""
    model, examples = built(build, seed)
    batch = examples.batch(np.array(rows))
    torch.manual_seed(0)
    gradient = {
        name: scale * value + (noise * torch.randn_like(value) if noise else 0)
        for name, value in gradient_of(model, batch).items()
        if not any(part in name for part in without)
    }
    shape = batch["pixels"].shape if "pixels" in batch else (len(rows), 3, 1, 1)
    blank = torch.full(shape, 255.0)
    victim = Victim(model, gradient, {}, blank, torch.ones_like(blank[:, :1], dtype=torch.bool))
    return SimpleNamespace(
        text=recover_text(victim, phrases), batch=batch, model=model, gradient=gradient
    )


def pairs(batch, pad):
    """Places and tokens of all rows, the padding left out."""
    rows = batch["input_ids"].tolist()
    return {(place, token) for row in rows for place, token in enumerate(row) if token != pad}


def tokens(found):
    return {token for _, token in found}


def shares(attack):
    """Recall and precision of the set of tokens, and recall of places and tokens."""
    true = pairs(attack.batch, attack.model.reader.subwords.pad)
    found = {tuple(pair) for pair in attack.text.tokens.tolist()}
    right = len(tokens(true) & tokens(found))
    recall, precision = right / len(tokens(true)), right / max(len(tokens(found)), 1)
    return recall, precision, len(true & found) / len(true)


def plain(text):
    return "".join(text.lower().split())


def check_the_columns_give_the_same_gradient(attack):
    columns = {k: torch.from_numpy(v) for k, v in attack.text.columns.items()}
    again = gradient_of(attack.model, {**columns, "pixels": attack.batch["pixels"]})
    for name, value in attack.gradient.items():
        torch.testing.assert_close(again[name], value, rtol=1e-4, atol=1e-6)


# LayoutLMv3


@pytest.mark.parametrize("row", [0, 6, 13])
def test_layoutlmv3_of_base_width_gives_everything_away(row):
    attack = attacked(WIDE, [row])
    batch, text = attack.batch, attack.text
    assert shares(attack) == (1, 1, 1)
    np.testing.assert_array_equal(text.boxes, batch["bbox"][0, : len(text.boxes)])
    assert len(text.tokens) == batch["attention_mask"].sum()
    for name in ("input_ids", "attention_mask", "bbox", "start", "end"):
        np.testing.assert_array_equal(text.columns[name], batch[name], err_msg=name)
    np.testing.assert_array_equal(text.columns["word"] >= 0, batch["word"] >= 0)
    check_the_columns_give_the_same_gradient(attack)


def read_rightly(build, row):
    """Whether question and answer are; an answer in another window must be found missing."""
    attack = attacked(build, [row])
    asked = QUESTIONS[int(attack.batch["question"])]
    there = int(attack.batch["end"]) > 0
    answer = plain(attack.text.answer) == (plain(asked.answers[0]) if there else "")
    return plain(attack.text.question) == plain(asked.text), answer


@pytest.mark.parametrize("build", [WIDE, donut, vt5])
def test_clipping_and_unknown_learning_rates_hide_nothing(build):
    phrases = [question.text for question in QUESTIONS]
    for row, scale in ((0, 1e-3), (7, 1e3)):
        attack = attacked(build, [row], scale=scale, phrases=phrases)
        asked = QUESTIONS[int(attack.batch["question"])]
        assert plain(attack.text.question) == plain(asked.text)
        if "end" not in attack.batch or int(attack.batch["end"]):
            assert plain(attack.text.answer) == plain(asked.answers[0])


def test_layoutlmv3_question_and_answer_are_read_as_text():
    build = functools.partial(ANSWERS, layers=1, hidden_size=384, initializer_range=0.05)
    assert all(read_rightly(build, row) == (True, True) for row in range(0, 20, 7))


@pytest.mark.slow
def test_layoutlmv3_tiny_answers_are_mostly_found_without_any_box():
    questions, answers = zip(*(read_rightly(ANSWERS, row) for row in range(0, 16, 4)), strict=True)
    assert all(questions)
    assert sum(answers) >= 3


@pytest.mark.parametrize("seed", range(3))
def test_layoutlmv3_narrower_than_its_text_still_gives_tokens_and_places(seed):
    attack = attacked(ANSWERS, [seed], seed)
    assert attack.batch["attention_mask"].sum() > 5 * 32
    assert shares(attack) == (1, 1, 1)


@pytest.mark.parametrize(("width", "least"), [(32, 0.0), (192, 0.05), (384, 1.0)])
def test_layoutlmv3_narrower_than_base_finds_fewer_boxes_but_no_wrong_ones(width, least):
    build = functools.partial(ANSWERS, layers=1, hidden_size=width, initializer_range=width**-0.5)
    attack = attacked(build, [0])
    page = attack.batch["word"][0, : len(attack.text.boxes)].numpy() >= 0
    true = attack.batch["bbox"][0, : len(attack.text.boxes)].numpy()
    found = (attack.text.boxes >= 0).all(1)
    assert found[page].mean() >= least
    np.testing.assert_array_equal(attack.text.boxes[found], true[found])


@pytest.mark.parametrize(
    ("rows", "placed"),
    [([0, 5], 0.6), pytest.param([0, 5, 9, 13], 0.4, marks=pytest.mark.slow)],
)
def test_layoutlmv3_batch_gives_the_set_of_tokens_and_some_places(rows, placed):
    attack = attacked(WIDE, rows)
    recall, precision, places = shares(attack)
    assert (recall, precision) == (1, 1)
    assert places > placed
    assert attack.text.columns is None


@pytest.mark.parametrize("noise", [1e-9, 1e-4])
def test_layoutlmv3_under_noise_keeps_its_tokens(noise):
    build = functools.partial(WIDE, layers=2)
    recall, precision, placed = shares(attacked(build, [0], noise=noise))
    assert recall == 1
    assert precision > 0.97
    assert placed > 0.95


def test_layoutlmv3_under_much_noise_loses_them():
    recall, _, placed = shares(attacked(WIDE, [0], noise=1.0))
    assert recall < 0.2
    assert placed < 0.05


def test_layoutlmv3_tagger_gives_tokens_and_boxes():
    wide = {"layers": 1, "hidden_size": 768, "initializer_range": 0.036}
    attack = attacked(functools.partial(layoutlmv3, LABELS, **wide), [0])
    assert shares(attack) == (1, 1, 1)
    true = attack.batch["bbox"][0, : len(attack.text.boxes)]
    np.testing.assert_array_equal(attack.text.boxes, true)
    assert attack.text.question is None


@pytest.mark.parametrize(
    ("build", "missing"),
    [
        (ANSWERS, "word_embeddings"),
        (ANSWERS, "embeddings.position_embeddings"),
        (donut, "embed_positions"),
        (vt5, "shared"),
    ],
)
def test_without_the_gradient_of_a_table_there_is_nothing_to_read(build, missing):
    with pytest.raises(NotApplicable, match=missing.split(".")[-1]):
        attacked(build, [0], without=(missing,))


@pytest.mark.parametrize("build", [ANSWERS, donut, vt5])
def test_of_noise_alone_hardly_a_token_is_read(build):
    attack = attacked(build, [0], noise=1e6)
    assert len(attack.text.tokens) < 60
    assert shares(attack)[2] < 0.1


def test_roberta_gives_the_set_of_its_tokens():
    attack = attacked(functools.partial(roberta, LABELS), [0, 1])
    read = attack.batch["input_ids"][attack.batch["attention_mask"] > 0]
    assert set(attack.text.tokens[:, 1].tolist()) == set(read.tolist())
    assert (attack.text.tokens[:, 0] == -1).all()


def test_a_checkpoint_of_another_family_gives_the_set_of_its_tokens(tmp_path):
    subwords = Subwords.shipped()
    LiltForTokenClassification(
        LiltConfig(
            vocab_size=subwords.size,
            hidden_size=24,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=32,
            channel_shrink_ratio=4,
            pad_token_id=subwords.pad,
        )
    ).save_pretrained(tmp_path)
    subwords.save_pretrained(tmp_path)
    attack = attacked(functools.partial(auto, LABELS, pretrained=tmp_path), [0, 1])
    read = attack.batch["input_ids"][attack.batch["attention_mask"] > 0]
    assert set(attack.text.tokens[:, 1].tolist()) == set(read.tolist())


def test_a_model_without_such_a_weakness_is_named():
    with pytest.raises(NotApplicable, match="MaskedWords"):
        attacked(functools.partial(bert, LABELS, size="tiny", pretrained=None, task="mlm"), [0])


# Donut


def untied_donut():
    model = donut()
    decoder = model.network.decoder
    decoder.config.tie_word_embeddings = False
    weight = torch.randn(decoder.lm_head.weight.shape) * 0.1
    decoder.lm_head.weight = torch.nn.Parameter(weight)
    return model


@pytest.mark.parametrize("build", [donut, untied_donut])
@pytest.mark.parametrize("seed", range(3))
def test_donut_gives_question_and_answer(build, seed):
    for row in range(seed, len(QUESTIONS), 8):
        attack = attacked(build, [row], seed)
        assert shares(attack) == (1, 1, 1)
        assert plain(attack.text.question) == plain(QUESTIONS[row].text)
        assert plain(attack.text.answer) == plain(QUESTIONS[row].answers[0])
        for name in ("input_ids", "labels", "prompt"):
            np.testing.assert_array_equal(attack.text.columns[name], attack.batch[name])


def test_donut_columns_give_the_same_gradient():
    check_the_columns_give_the_same_gradient(attacked(donut, [3]))


def read_of(attack):
    """What was read of several examples, and what the client had: questions and answers."""
    asked = [QUESTIONS[int(row)] for row in attack.batch["question"]]
    return {
        (plain(q), plain(a))
        for q, a in zip(
            attack.text.question.split(SEVERAL), attack.text.answer.split(SEVERAL), strict=True
        )
    }, {(plain(q.text), plain(q.answers[0])) for q in asked}


@pytest.mark.parametrize("build", [donut, untied_donut])
@pytest.mark.parametrize("rows", [[0, 5], [0, 5, 10], [1, 1, 2]])
def test_donut_batch_gives_every_question_and_answer(build, rows):
    attack = attacked(build, rows)
    *tokens, places = shares(attack)
    assert tokens == [1, 1]
    # Of these, which token stands where hangs on the processor's rounding (AVX-512: .73).
    if build is donut and rows == [0, 5, 10] and 0.7 < places < 1:
        return
    assert places == 1
    found, true = read_of(attack)
    assert found == true


def test_donut_batch_with_more_tokens_than_dimensions_gives_the_set_and_some_places():
    attack = attacked(donut, list(range(8)))
    recall, precision, places = shares(attack)
    assert (recall, precision) == (1, 1)
    assert 0.2 < places < 1
    assert attack.text.question is None


def test_donut_answer_cut_off_leaves_its_label_open():
    build = functools.partial(donut, answer_length=4)
    row = next(n for n, q in enumerate(QUESTIONS) if q.key == "email")
    attack = attacked(build, [row])
    assert (attack.batch["labels"] != IGNORED).sum() == 4
    assert shares(attack) == (1, 1, 1)
    assert attack.text.columns is None


@pytest.mark.parametrize("noise", [1e-8, 1e-5])
def test_donut_under_noise(noise):
    assert shares(attacked(donut, [3], noise=noise)) == (1, 1, 1)


# VT5


@pytest.mark.parametrize("seed", range(3))
def test_vt5_gives_words_answer_and_which_phrase_was_asked(seed):
    for row in range(seed, len(QUESTIONS), 12):
        attack = attacked(vt5, [row], seed, phrases=PHRASES)
        assert attack.text.question == QUESTIONS[row].text
        assert plain(attack.text.answer) == plain(QUESTIONS[row].answers[0])
        assert shares(attack)[:2] == (1, 1)
        count = int((attack.text.tokens[:, 0] >= 0).sum())
        placed = attack.batch["input_ids"][0, :count]
        assert attack.text.tokens[:count, 1].tolist() == placed.tolist()


def test_vt5_without_phrases_keeps_its_question():
    attack = attacked(vt5, [0])
    assert attack.text.question is None
    assert plain(attack.text.answer) == plain(QUESTIONS[0].answers[0])


def test_vt5_answers_with_repeated_tokens_come_in_order():
    question = dataclasses.replace(QUESTIONS[0], answers=("22 11 22 22 11 0",))
    document = dataclasses.replace(DOCUMENTS[0], questions=(question,))
    model = seeded_model(vt5, 0).eval()
    batch = model.encode([document]).batch(np.array([0]))
    blank = torch.full(batch["pixels"].shape, 255.0)
    victim = Victim(model, gradient_of(model, batch), {}, blank, blank[:, :1] > 0)
    assert plain(recover_text(victim).answer) == "22112222110"


@pytest.mark.parametrize("rows", [[0, 9], [0, 5, 10, 15]])
def test_vt5_batch_gives_the_set_of_words_and_every_answer(rows):
    attack = attacked(vt5, rows)
    assert shares(attack)[:2] == (1, 1)
    found = sorted(map(plain, attack.text.answer.split(SEVERAL)))
    assert found == sorted(plain(QUESTIONS[row].answers[0]) for row in rows)


def test_vt5_batch_with_more_answer_tokens_than_dimensions_keeps_its_answers():
    attack = attacked(functools.partial(vt5, width=32), list(range(8)))
    assert (attack.batch["labels"] != IGNORED).sum() > 40
    assert attack.text.answer is None


@pytest.mark.parametrize("noise", [1e-8, 1e-5])
def test_vt5_under_noise(noise):
    attack = attacked(vt5, [0], noise=noise, phrases=PHRASES)
    assert shares(attack)[:2] == (1, 1)
    assert attack.text.question == QUESTIONS[0].text
    assert plain(attack.text.answer) == plain(QUESTIONS[0].answers[0])


# As published


@pytest.mark.base
def test_layoutlmv3_base_gives_everything_away():
    attack = attacked(functools.partial(layoutlmv3, task="answers", size="base", dropout=0.0), [0])
    assert shares(attack) == (1, 1, 1)
    true = attack.batch["bbox"][0, : len(attack.text.boxes)].numpy()
    assert (attack.text.boxes == true).all(1).mean() > 0.95
    assert plain(attack.text.question) == plain(QUESTIONS[0].text)
    assert plain(attack.text.answer) == plain(QUESTIONS[0].answers[0])


@pytest.mark.base
def test_donut_base_gives_question_and_answer():
    small = functools.partial(donut, size="base", image_size=(320, 320), dropout=0.0, drop_path=0.0)
    attack = attacked(small, [0])
    assert shares(attack) == (1, 1, 1)
    assert plain(attack.text.question) == plain(QUESTIONS[0].text)


@pytest.mark.base
def test_vt5_base_gives_words_answer_and_which_phrase_was_asked():
    attack = attacked(functools.partial(vt5, size="base", dropout=0.0), [0], phrases=PHRASES)
    assert shares(attack)[:2] == (1, 1)
    assert attack.text.question == QUESTIONS[0].text
    assert plain(attack.text.answer) == plain(QUESTIONS[0].answers[0])
