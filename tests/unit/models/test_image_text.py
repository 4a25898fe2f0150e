"""Image-text models of three families, tiny and random: loaded by path, trained, and answering."""

import dataclasses
import shutil

import numpy as np
import pytest
import torch
from image_text_families import FAMILIES, words
from model_checks import SMALL as DOCUMENTS
from model_checks import (
    batch_of,
    check_alone_or_together_the_answers_are_the_same,
    invoices,
    learn,
)
from pages import page
from transformers import (
    AutoProcessor,
)

from fedpriv.data.document import Question
from fedpriv.models.base import DocumentModel
from fedpriv.models.image_text import image_text
from fedpriv.models.pix2struct import pix2struct
from fedpriv.models.readers.reader import IGNORED
from fedpriv.training.per_example import PerExample

EVERY = pytest.mark.parametrize("family", FAMILIES)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    made = {}
    for family, build in FAMILIES.items():
        made[family] = tmp_path_factory.mktemp(family)
        torch.manual_seed(0)
        build(made[family])
    return made


def noisy(document, seed):
    pixels = np.random.default_rng(seed).integers(0, 256, (100, 200, 3), dtype=np.uint8)
    return dataclasses.replace(document, page=pixels)


SMALL = [noisy(document, seed) for seed, document in enumerate(DOCUMENTS)]


def tiny(folder, **more):
    return image_text(pretrained=folder, **{"answer_length": 12, "longest_side": 32, **more})


# Rows


@EVERY
def test_a_row_is_prompt_and_answer_and_its_labels_are_the_answer_and_its_end(family, folders):
    model = tiny(folders[family])
    assert isinstance(model, DocumentModel)
    examples = model.encode(SMALL)
    tokenizer = model.reader.processor.tokenizer
    for row, answer in enumerate(["vega ltd", "12.50", "orion", "99"]):
        ids, labels = examples.column("input_ids")[row], examples.column("labels")[row]
        begin, end = examples.column("prompt")[row], np.flatnonzero(labels != IGNORED)[-1]
        mask = examples.column("token.attention_mask")[row]
        assert tokenizer.decode(labels[begin - 1 : end]).strip() == answer
        assert labels[end] == tokenizer.eos_token_id
        assert labels[begin - 1 : end].tolist() == ids[begin : end + 1].tolist()
        assert mask.tolist() == [1] * (end + 1) + [0] * (len(ids) - end - 1)
        assert set(labels[: begin - 1]) == {IGNORED}
        assert (ids[:begin] == tokenizer.convert_tokens_to_ids("<image>")).sum() in (4, 16)
        assert "how much?" in tokenizer.decode(ids[:begin]) or row in (0, 2)
    assert examples.shared["seen.pixel_values"][0].shape[0] == 3
    assert examples.column("document").tolist() == [0, 0, 1, 2]


def test_the_chat_template_is_used_where_there_is_one(folders):
    model = tiny(folders["llava"], prompt="Read. {question}")
    ids = model.encode(SMALL).column("input_ids")[1]
    text = model.reader.processor.tokenizer.decode(ids)
    assert "read. how much? assistant: 12.50" in text
    plain = tiny(folders["paligemma"], prompt="answer en {question}")
    text = plain.reader.processor.tokenizer.decode(plain.encode(SMALL).column("input_ids")[1])
    assert "<s>answer en how much?" in text


def test_the_tokens_of_paligemmas_answer_are_no_prompt(folders):
    examples = tiny(folders["paligemma"]).encode(SMALL)
    for types, begin in zip(
        examples.column("token.token_type_ids"), examples.column("prompt"), strict=True
    ):
        assert not types[:begin].any()
        assert types[begin:].all()


def test_a_longer_page_is_shrunk_and_squares_are_white(folders):
    model = tiny(folders["llava"], longest_side=50)
    document = page("", questions=[Question("k", "a", ("b",))])
    assert model.reader._page(document.image()).size == (50, 25)
    square = tiny(folders["llava"], longest_side=50, square=True).reader._page(document.image())
    pixels = np.asarray(square)
    assert pixels.shape == (50, 50, 3)
    assert (pixels[:25] == 99).all()
    assert (pixels[25:] == 255).all()
    assert tiny(folders["llava"], longest_side=400).reader._page(document.image()).size == (
        200,
        100,
    )


def test_resolution_decides_what_is_seen(folders):
    (coarse, fine) = (
        tiny(folders["llava"], longest_side=side).encode(SMALL).shared["seen.pixel_values"][0]
        for side in (8, 32)
    )
    assert coarse.std() < fine.std()


def test_pages_of_different_shapes_are_refused_unless_they_are_square(folders):
    """Cut into tiles, as Idefics3 is used: a wide page has three tiles, a square one five."""
    model = tiny(folders["idefics3"])
    model.reader.processor.image_processor.do_image_splitting = True
    model.reader.processor.image_processor.size = {"longest_edge": 64}
    ask = [Question("k", "a", ("b",))]
    wide, round_one = (page("", questions=ask, size=size) for size in ((200, 100), (100, 100)))
    assert model.encode([wide, wide]).shared["seen.pixel_values"][0].shape == (2, 1, 3, 3, 32, 32)
    with pytest.raises(ValueError, match=r"makes pixel_.* of different pages.*: set square=true"):
        model.encode([wide, round_one])
    examples = dataclasses.replace(model.reader, square=True).read([wide, round_one])
    assert examples.shared["seen.pixel_values"][0].shape == (2, 1, 5, 3, 32, 32)
    assert model.losses(examples.batch(np.arange(2))).isfinite().all()


# Training and answers


@EVERY
def test_the_loss_looks_at_page_question_and_answer(family, folders):
    model = tiny(folders[family]).eval()
    batch = batch_of(model, SMALL)
    with torch.no_grad():
        before = model.losses(batch)
        dark = {**batch, "seen.pixel_values": -batch["seen.pixel_values"]}
        assert (model.losses(dark) != before).all()
        ids = batch["input_ids"].clone()
        places = batch["prompt"] - 2
        ids[torch.arange(4), places] = 77
        assert (model.losses({**batch, "input_ids": ids}) != before).all()
        scores = model(batch).double().log_softmax(-1)
    for row, loss in enumerate(before.tolist()):
        wanted = np.flatnonzero(batch["labels"][row] != IGNORED)
        terms = [-scores[row, place, batch["labels"][row, place]].item() for place in wanted]
        assert loss == pytest.approx(np.mean(terms), rel=1e-5)


@EVERY
def test_padding_and_what_follows_do_not_count(family, folders):
    model = tiny(folders[family]).eval()
    longer = dataclasses.replace(model.reader, max_length=100)
    with torch.no_grad():
        before = model.losses(batch_of(model, SMALL))
        after = model.losses(longer.read(SMALL).batch(np.arange(4)))
    torch.testing.assert_close(before, after, rtol=1e-5, atol=1e-5)


def greedy(model, example):
    """One token after the other, each time from the beginning."""
    length, sure = int(example["prompt"][0]), 1.0
    sep = model.reader.subwords.sep
    ids = example["input_ids"].clone()
    for place in range(length, length + model.reader.answer_length):
        cut = {**example, "input_ids": ids, "token.attention_mask": _first(ids, place)}
        chances = model(cut)[0, place - 1].softmax(-1)
        ids[0, place] = chances.argmax()
        if ids[0, place] == sep:
            break
        sure *= chances.max().item()
    written = ids[0, length : place + 1].tolist()
    return model.reader.subwords.text([t for t in written if t != sep]), sure


def _first(ids, count):
    return (torch.arange(ids.shape[1]) < count).long()[None]


@pytest.mark.slow
@EVERY
def test_it_learns_by_heart_and_answers_greedily(family, folders):
    documents = invoices(("provider", "total"), per_provider=1)[:2]
    model = tiny(folders[family])
    first, last = learn(model, documents, 36, 1e-2)
    assert first > 3
    assert last < 0.3
    with torch.no_grad():
        examples = model.encode(documents)
        answers = model.answers(examples)
        assert model.evaluate(examples)["accuracy"] == 1
        for row, answer in enumerate(answers):
            text, sure = greedy(model, examples.batch(np.array([row])))
            assert answer.text == text
            assert answer.confidence == pytest.approx(sure, rel=1e-3)
    check_alone_or_together_the_answers_are_the_same(model, documents)


@EVERY
def test_examples_have_gradients_of_their_own(family, folders):
    model = tiny(folders[family])
    examples = model.encode(SMALL)
    found = PerExample("auto").clipped_sum(model, examples, 1e9)
    assert found.method == "loop"
    assert found.norms.min() > 0
    model.loss(batch_of(model, SMALL)).backward()
    whole = [
        (torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in model.parameters()
    ]
    # In float32, as some of Gemma is computed whatever the precision of its weights.
    np.testing.assert_allclose(
        torch.cat(whole).numpy(), found.total / len(examples), rtol=1e-3, atol=1e-5
    )
    clipped = PerExample("auto").clipped_sum(model, examples, 0.3)
    assert np.linalg.norm(clipped.total) <= 0.3 * len(examples) + 1e-6


@EVERY
def test_it_knows_its_parts(family, folders):
    model = tiny(folders[family])
    assert len(model.blocks()) == 2
    assert len(model.visual()) == 1
    tied = family == "paligemma"
    assert len(model.head()) == (1 if tied else 2)
    inside = {id(p) for m in model.modules() for p in m.parameters()}
    assert all(id(p) in inside for m in [*model.head(), *model.visual()] for p in m.parameters())


# Folders


@EVERY
def test_what_is_saved_is_read_back(family, folders, tmp_path):
    model = tiny(folders[family], square=True, prompt="Say: {question}").eval()
    model.save_pretrained(tmp_path)
    loaded = image_text(pretrained=str(tmp_path)).eval()
    assert loaded.reading() == model.reading()
    mine, theirs = batch_of(model, SMALL), batch_of(loaded, SMALL)
    assert all(torch.equal(column, theirs[name]) for name, column in mine.items())
    with torch.no_grad():
        assert torch.equal(model.losses(mine), loaded.losses(theirs))
        assert model.answer(SMALL) == loaded.answer(SMALL)


def test_what_cannot_be_loaded_is_refused_with_a_way_out(folders, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"^pretrained=None: expected a local folder or a model's"):
        image_text(pretrained=None)
    with pytest.raises(OSError, match="there is no such folder; expected one that save_pretrained"):
        image_text(pretrained=tmp_path / "none")
    pix2struct(max_patches=8).save_pretrained(tmp_path / "other")
    with pytest.raises(
        ValueError, match=r"'pix2struct': expected an image-text-to-text .* for model=pix2struct$"
    ):
        image_text(pretrained=tmp_path / "other")
    shutil.copytree(folders["llava"], tmp_path / "text")
    (tmp_path / "text" / "processor_config.json").unlink()
    with pytest.raises(
        ValueError, match=r"(?s)its processor cannot be loaded .*; save the model's"
    ):
        image_text(pretrained=tmp_path / "text")
    monkeypatch.setattr(AutoProcessor, "from_pretrained", lambda folder, **_: words())
    with pytest.raises(ValueError, match=r"does not take both images and text; save the model's"):
        image_text(pretrained=folders["llava"])


def test_settings_that_cannot_work_are_refused(folders):
    for name in ("longest_side", "answer_length"):
        with pytest.raises(ValueError, match=rf"^{name}=0: expected 1 or more$"):
            tiny(folders["llava"], **{name: 0})
    with pytest.raises(ValueError, match=r"^prompt='Read\.': expected \{question\} in it$"):
        tiny(folders["llava"], prompt="Read.")
    with pytest.raises(ValueError, match=r"^max_length=20: .*set max_length to \d+ or more, or"):
        tiny(folders["llava"], max_length=20).encode(SMALL)
    with pytest.raises(ValueError, match="none of the 1 documents has a question"):
        tiny(folders["llava"]).encode([page("a")])
