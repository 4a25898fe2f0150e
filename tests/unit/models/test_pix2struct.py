"""Pix2Struct: the question above the page, the patches of the library, and sound gradients."""

import dataclasses
import functools
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib import get_data_path
from model_checks import SMALL as DOCUMENTS
from model_checks import (
    batch_of,
    check_alone_or_together_the_answers_are_the_same,
    check_dropout_is_the_seeds_and_each_examples_own,
    check_every_parameter_learns,
    check_every_way_gives_what_the_loop_gives,
    check_gradients_of_gradients,
    check_the_batch_is_the_mean_of_its_examples,
    invoices,
    learn,
)
from pages import page
from PIL import Image, ImageFont
from transformers import Pix2StructConfig, Pix2StructForConditionalGeneration
from transformers.models.pix2struct.image_processing_pil_pix2struct import (
    Pix2StructImageProcessorPil,
)

from fedpriv.data.document import Question
from fedpriv.data.generated.glyphs import font_file
from fedpriv.models.base import Answer, DocumentModel
from fedpriv.models.pix2struct import (
    pix2struct,
)
from fedpriv.models.readers.pix2struct_reader import Pix2StructReader, grid
from fedpriv.models.readers.reader import IGNORED
from fedpriv.models.readers.subwords import Subwords
from fedpriv.runtime.torch_state import seeded_model

# torch says so, once a process, where vmap takes an operation example by example.
pytestmark = pytest.mark.filterwarnings("error:There is a performance drop")

FONT = font_file("DejaVuSans")
SUBWORDS = Subwords.shipped()


def noisy(document, seed):
    """With an image of its own: on plain grey ones, many gradients are zero."""
    pixels = np.random.default_rng(seed).integers(0, 256, (100, 200, 3), dtype=np.uint8)
    return dataclasses.replace(document, page=pixels)


SMALL = [noisy(document, seed) for seed, document in enumerate(DOCUMENTS)]


def tiny(**more):
    settings = {"max_patches": 24, "answer_length": 12, **more}
    return seeded_model(functools.partial(pix2struct, **settings), 0)


def reader(**more):
    return Pix2StructReader(SUBWORDS, **{"max_patches": 24, "patch_size": 8, **more})


def asking(pixels, text="How much is it?"):
    size = (pixels.shape[1], pixels.shape[0])
    return dataclasses.replace(
        page("", questions=[Question("k", text, ("b",))]), page=pixels, size=size
    )


# Pages


def photograph():
    """A real one, in colours, that comes with matplotlib."""
    path = Path(get_data_path()) / "sample_data" / "grace_hopper.jpg"
    return np.asarray(Image.open(path).convert("RGB"))


def invoice():
    return np.asarray(invoices(providers=1, per_provider=1)[0].image())


def receipt():
    folder = os.environ.get("FEDPRIV_DATA")
    if not folder:
        pytest.skip("FEDPRIV_DATA is not set: the folder that holds open/sroie")
    paths = sorted((Path(folder) / "open" / "sroie").rglob("*.jpg"))
    assert paths
    return np.asarray(Image.open(paths[0]).convert("RGB"))


def noise():
    return np.random.default_rng(0).integers(0, 256, (300, 90, 3), dtype=np.uint8)


LONG = "Which of the companies that are named on this page asks for the money, and to whom " * 2


@pytest.mark.parametrize(
    ("pixels", "max_patches", "patch_size", "text"),
    [
        (photograph, 24, 8, "How much?"),
        (photograph, 300, 16, LONG),
        (invoice, 2048, 16, "Who?"),
        (receipt, 300, 16, LONG),
        (noise, 24, 8, "How much?"),
        (noise, 2048, 16, "Who?"),
    ],
)
def test_patches_are_what_the_processor_of_transformers_makes(
    pixels, max_patches, patch_size, text, monkeypatch
):
    # Some builds of Pillow can kern, by which words are a pixel narrower; we never do.
    monkeypatch.setattr(ImageFont.core, "HAVE_RAQM", False)
    image = pixels()
    examples = reader(max_patches=max_patches, patch_size=patch_size).read([asking(image, text)])
    model = pix2struct(max_patches=max_patches, patch_size=patch_size)
    page = model.page(examples.batch(np.array([0])))
    seen, there = (page[name][0].numpy() for name in ("flattened_patches", "attention_mask"))
    theirs = Pix2StructImageProcessorPil(
        max_patches=max_patches,
        patch_size={"height": patch_size, "width": patch_size},
    )
    # Not through its `__call__`, which has no way to name a font and asks a hub for Arial.
    both = theirs.render_header(np.moveaxis(image, -1, 0), text, font_path=FONT)
    expected = theirs(Image.fromarray(np.moveaxis(both, 0, -1)), is_vqa=False, return_tensors="np")
    wanted, mask = expected["flattened_patches"][0], expected["attention_mask"][0]
    assert examples.column("patches").dtype == np.uint8
    np.testing.assert_array_equal(there, mask)
    np.testing.assert_array_equal(seen[:, :2], wanted[:, :2])
    # We keep whole grey levels of 255; one of them, of these standardised values, is this much.
    level = 1 / both.std()
    assert np.abs(seen - wanted).max() < 2 * level
    assert np.abs(seen - wanted).mean() < 0.5 * level


def test_more_patches_see_a_page_more_finely_in_its_own_proportions():
    assert [grid((400, 560), most, 16) for most in (6, 128, 512, 2048)] == [
        (2, 2), (13, 9), (26, 19), (53, 38)
    ]  # fmt: skip
    assert grid((4000, 10), 24, 8) == (1, 24)
    examples = reader(max_patches=128).read([asking(invoice())])
    (places,) = examples.column("places")
    count = int((places[:, 0] > 0).sum())
    assert 100 < count <= 128
    assert places[count - 1].tolist() == places.max(0).tolist()
    assert not places[count:].any()
    assert not examples.column("patches")[0, count:].any()


def test_every_question_stands_above_a_page_of_its_own():
    two = [Question("a", "Who?", ("x",)), Question("b", "How much?", ("y",))]
    examples = reader().read([dataclasses.replace(asking(invoice()), questions=tuple(two))])
    first, second = examples.column("patches")
    assert first.shape == (24, 8 * 8 * 3)
    assert (first != second).any()
    again = reader().read([asking(invoice(), "Who?")])
    np.testing.assert_array_equal(again.column("patches")[0], first)


def test_a_font_can_be_named():
    bold = FONT.replace("DejaVuSans", "DejaVuSans-Bold")
    plain, thick = (
        reader(font=font).read([asking(invoice())]).column("patches") for font in (None, bold)
    )
    assert (plain != thick).any()
    with pytest.raises(
        ValueError, match=r"^font='no\.ttf': there is no such file; expected a True"
    ):
        reader(font="no.ttf")


def test_labels_are_the_first_answer_and_its_end():
    asks = [Question("k", "How much?", ("12.50", "12")), Question("k", "Who?", ())]
    examples = reader(answer_length=12).read([page("", questions=asks)])
    first, second = examples.column("labels").tolist()
    end = first.index(SUBWORDS.sep)
    assert first[:end] == SUBWORDS.pieces(["12.50"])[0]
    assert SUBWORDS.text(first[:end]) == "12.50"
    assert set(first[end + 1 :]) == {IGNORED}
    assert second == [SUBWORDS.sep] + [IGNORED] * 11


def test_readers_that_cannot_work_are_refused():
    for name in ("max_patches", "patch_size", "answer_length"):
        with pytest.raises(ValueError, match=rf"^{name}=0: expected 1 or more$"):
            reader(**{name: 0})
    with pytest.raises(ValueError, match="none of the 1 documents has a question"):
        reader().read([page("a")])


# The model


def test_it_is_a_document_model_of_about_400_000_parameters():
    model = pix2struct(("date",))
    assert isinstance(model, DocumentModel)
    assert 400_000 < sum(p.numel() for p in model.parameters()) < 500_000
    assert [len(model.blocks()), len(model.head()), len(model.visual())] == [2 + 2, 2, 1]
    assert model.blocks()[-1] is model.network.decoder.layer[-1]


def test_scores_look_at_page_and_question_and_not_at_what_is_no_patch():
    model = tiny().eval()
    batch = model.encode(SMALL).batch(np.array([0]))
    with torch.no_grad():
        before = model(batch)
        count = int((batch["places"][0, :, 0] > 0).sum())
        assert count < 24
        for place in (0, count - 1):
            patches = batch["patches"].clone()
            patches[0, place] = 255 - patches[0, place]
            assert not torch.equal(before, model({**batch, "patches": patches}))
        patches = batch["patches"].clone()
        patches[0, count:] = 7
        assert torch.equal(before, model({**batch, "patches": patches}))
        asks = [dataclasses.replace(SMALL[0], questions=(Question("k", "Whose?", ("12.50",)),))]
        assert not torch.equal(before, model(model.encode(asks).batch(np.array([0]))))


def test_scores_do_not_look_ahead():
    model = tiny().eval()
    batch = model.encode(SMALL).batch(np.array([0]))
    labels = batch["labels"].clone()
    labels[0, 2] = 7
    with torch.no_grad():
        before, after = model(batch), model({**batch, "labels": labels})
    assert torch.equal(before[:, :3], after[:, :3])
    assert not torch.equal(before[:, 3], after[:, 3])


def test_losses_are_those_of_the_answers_tokens_and_the_reply_shares_the_reading():
    model = tiny().eval()
    batch = batch_of(model, SMALL)
    with torch.no_grad():
        scores = model(batch).double().log_softmax(-1)
        answers, losses = model.reply_batch(batch)
        assert torch.equal(losses, model.losses(batch))
        assert answers == model.answer_batch(batch)
    for row, loss in enumerate(losses.tolist()):
        places = np.flatnonzero(batch["labels"][row] != IGNORED)
        terms = [-scores[row, place, batch["labels"][row, place]].item() for place in places]
        assert loss == pytest.approx(np.mean(terms), rel=1e-5)


def greedy(model, example):
    """One token after the other, without `generate` and without its cache."""
    sure, ids = 1.0, [SUBWORDS.pad]
    page = model.page(example)
    for _ in range(model.reader.answer_length):
        scores = model.network(**page, decoder_input_ids=torch.tensor([ids])).logits
        chances = scores[0, -1].softmax(-1)
        ids.append(int(chances.argmax()))
        if ids[-1] == SUBWORDS.sep:
            break
        sure *= 1.0 if ids[-1] == SUBWORDS.pad else chances.max().item()
    return SUBWORDS.text([t for t in ids if t != SUBWORDS.sep]), sure


def test_answers_are_greedy_and_their_confidence_is_the_product():
    model = tiny()
    learn(model, SMALL, 25, 4e-3)  # so that some answers end, and are of different lengths
    examples = model.encode(SMALL)
    with torch.no_grad():
        answers = model.answers(examples)
        for row, answer in enumerate(answers):
            text, sure = greedy(model, examples.batch(np.array([row])))
            assert answer.text == text
            assert answer.confidence == pytest.approx(sure, rel=1e-4)
    assert len({answer.text for answer in answers}) > 1
    check_alone_or_together_the_answers_are_the_same(model, SMALL)


def test_generation_settings_of_a_checkpoint_do_not_count(tmp_path):
    model = tiny().eval()
    with torch.no_grad():
        before = model.answer(SMALL)
        model.save_pretrained(tmp_path)
        model.network.generation_config.max_length = 3
        model.network.generation_config.save_pretrained(tmp_path)
        assert pix2struct(pretrained=tmp_path).eval().answer(SMALL) == before
    assert isinstance(before[0][0], Answer)


# Gradients


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_every_trainable_parameter_gets_a_gradient(attention):
    check_every_parameter_learns(tiny(attention=attention), SMALL)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_per_example_gradients_by_vmap_are_those_of_the_loop(attention):
    check_every_way_gives_what_the_loop_gives(tiny(attention=attention), SMALL)


def test_the_gradient_of_a_batch_is_the_mean_of_its_examples():
    check_the_batch_is_the_mean_of_its_examples(tiny(), SMALL)


def test_dropout_is_each_examples_own():
    check_dropout_is_the_seeds_and_each_examples_own(tiny(dropout=0.2), SMALL)


def test_gradients_have_gradients():
    check_gradients_of_gradients(tiny(attention="eager"), wanted="patches", documents=SMALL)


@pytest.mark.slow
def test_it_learns_pages_and_questions_by_heart():
    """All ask the same two questions, so that page and question must both be seen."""
    documents = [
        dataclasses.replace(
            document,
            questions=tuple(
                Question(q.key, {"provider": "Who?", "total": "How much?"}[q.key], q.answers)
                for q in document.questions
            ),
        )
        for document in invoices(("provider", "total"), per_provider=1)
    ]
    model = seeded_model(pix2struct, 0)
    first, last = learn(model, documents, 40, 3e-3)
    assert first > 5
    assert last < 0.2
    with torch.no_grad():
        scores = model.evaluate(model.encode(documents))
        answers = [answer for both in model.answer(documents) for answer in both]
    assert scores["accuracy"] == scores["accuracy/provider"] == scores["accuracy/total"] == 1
    assert len(answers) == 8
    assert all(answer.confidence > 0.3 for answer in answers)


# Folders and sizes


def test_what_is_saved_is_read_back_bit_by_bit(tmp_path):
    model = tiny(dropout=0.1)
    model.save_pretrained(tmp_path)
    loaded = pix2struct(size="base", pretrained=str(tmp_path))
    state, own = loaded.state_dict(), model.state_dict()
    assert list(state) == list(own)
    assert all(torch.equal(state[name], own[name]) for name in own)
    assert loaded.reading() == model.reading()
    assert all(module.training for module in loaded.modules())
    mine, theirs = batch_of(model, SMALL), batch_of(loaded, SMALL)
    assert all(torch.equal(column, theirs[name]) for name, column in mine.items())
    with torch.no_grad():
        assert torch.equal(model.eval().losses(mine), loaded.eval().losses(theirs))
        assert model.answer(SMALL) == loaded.answer(SMALL)
    alone = Pix2StructForConditionalGeneration.from_pretrained(tmp_path)
    assert torch.equal(alone.decoder.lm_head.weight, model.network.decoder.lm_head.weight)


def test_resolution_and_dropout_can_be_changed_when_loading(tmp_path):
    tiny().save_pretrained(tmp_path)
    loaded = pix2struct(pretrained=tmp_path, max_patches=12, dropout=0.5)
    assert batch_of(loaded, SMALL)["patches"].shape[1] == 12
    batch = batch_of(loaded, SMALL)
    assert loaded.loss(batch) != loaded.loss(batch)
    with pytest.raises(ValueError, match=r"^max_patches=25: the encoder has places for 24 patches"):
        pix2struct(pretrained=tmp_path, max_patches=25)
    with pytest.raises(OSError, match="there is no such folder"):
        pix2struct(pretrained=tmp_path / "none")


def test_the_base_size_is_the_published_one():
    with torch.device("meta"):
        model = pix2struct(size="base")
        published = Pix2StructForConditionalGeneration(Pix2StructConfig())
    shapes = [{n: p.shape for n, p in m.named_parameters()} for m in (model.network, published)]
    assert shapes[0] == shapes[1]
    assert sum(p.numel() for p in model.parameters()) == 282_285_696
    assert (model.reader.max_patches, model.reader.patch_size) == (2048, 16)
    assert model.network.config.text_config.dropout_rate == 0.1
    assert model.network.config.vision_config.dropout_rate == 0


def test_sizes_are_chosen_by_name():
    assert pix2struct(max_patches=30).reader.max_patches == 30
    with torch.device("meta"):
        assert pix2struct(size="base", max_patches=64).reader.max_patches == 64
    with pytest.raises(ValueError, match=r"^size='large': expected 'tiny' or 'base'$"):
        pix2struct(size="large")
