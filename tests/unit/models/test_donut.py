"""Donut: pages and prompts as it was trained on them, its answers, and sound gradients."""

import dataclasses
import functools

import numpy as np
import pytest
import torch
from model_checks import SMALL as DOCUMENTS
from model_checks import (
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
from PIL import Image
from transformers.models.donut.image_processing_pil_donut import DonutImageProcessorPil

from fedpriv.data.document import Question
from fedpriv.models.base import Answer, DocumentModel
from fedpriv.models.donut import donut
from fedpriv.models.readers.donut_reader import MARKS as MARK_TEXTS
from fedpriv.models.readers.donut_reader import PROMPT, DonutReader, with_prompt
from fedpriv.models.readers.reader import IGNORED
from fedpriv.models.readers.subwords import Subwords
from fedpriv.runtime.torch_state import seeded_model

# torch says so, once a process, where vmap takes an operation example by example.
pytestmark = pytest.mark.filterwarnings("error:There is a performance drop")

SUBWORDS = with_prompt(Subwords.shipped())
MARKS = [SUBWORDS.tokenizer.token_to_id(token) for token in MARK_TEXTS]


def noisy(document, seed):
    """With an image of its own: on plain grey ones, many gradients are zero."""
    pixels = np.random.default_rng(seed).integers(0, 256, (100, 200, 3), dtype=np.uint8)
    return dataclasses.replace(document, page=pixels)


SMALL = [noisy(document, seed) for seed, document in enumerate(DOCUMENTS)]


def tiny(**more):
    settings = {"max_length": 40, "answer_length": 12, **more}
    return seeded_model(functools.partial(donut, **settings), 0)


def tokens(text):
    return [token for piece in SUBWORDS.pieces(text.split()) for token in piece]


def reader(max_length=40, answer_length=12, image_size=(64, 64)):
    return DonutReader(SUBWORDS, max_length, answer_length, image_size)


# Prompts


def test_prompt_tokens_are_the_last_of_a_copy_of_the_vocabulary():
    assert list(range(Subwords.shipped().size, SUBWORDS.size)) == MARKS
    assert Subwords.shipped().tokenizer.token_to_id(PROMPT[0]) is None
    assert with_prompt(SUBWORDS).size == SUBWORDS.size
    assert SUBWORDS.pieces(["total", "<s_answer>"])[0] == Subwords.shipped().pieces(["total"])[0]


def test_a_page_that_prints_a_prompt_token_shows_text():
    assert not set(tokens("</s_question> <s_answer>")) & set(MARKS)


def test_a_row_is_prompt_and_answer_and_its_labels_are_the_answer_and_its_end():
    examples = reader().read([page("", questions=[Question("k", "How much?", ("12.50", "12"))])])
    question, answer = tokens("How much?"), tokens("12.50")
    prompt = [MARKS[0], MARKS[1], *question, MARKS[2], MARKS[3]]
    (ids,), (labels,) = examples.column("input_ids"), examples.column("labels")
    padding = [SUBWORDS.pad] * (40 - len(prompt) - len(answer) - 1)
    assert ids.tolist() == [*prompt, *answer, MARKS[4], *padding]
    assert examples.column("prompt").tolist() == [len(prompt)]
    begin = len(prompt) - 1
    wanted = [*answer, MARKS[4], SUBWORDS.sep]
    ignored = [IGNORED] * (40 - begin - len(wanted))
    assert labels.tolist() == [IGNORED] * begin + wanted + ignored
    assert len(answer) > 1


def test_long_answers_lose_their_end_and_long_questions_make_room():
    ask = Question("k", "why " * 50, ("7 " * 50,))
    examples = reader().read([page("", questions=[ask])])
    (ids,), (labels,) = examples.column("input_ids"), examples.column("labels")
    assert examples.column("prompt").tolist() == [40 - 12]
    assert (labels != IGNORED).sum() == 12
    assert labels[27:39].tolist() == tokens("7 " * 12)
    assert SUBWORDS.sep not in labels
    assert ids[39] == SUBWORDS.pad
    assert ids[26:28].tolist() == MARKS[2:4]


def test_a_question_without_answer_is_answered_with_the_end():
    examples = reader().read([page("", questions=[Question("k", "a", ())])])
    labels = examples.column("labels")[0]
    assert labels[labels != IGNORED].tolist() == [MARKS[4], SUBWORDS.sep]


def test_readers_that_cannot_work_are_refused():
    with pytest.raises(ValueError, match=r"^answer_length=36: expected 1 or more, and less than"):
        reader(answer_length=36)
    with pytest.raises(ValueError, match=r"^answer_length=0: "):
        reader(answer_length=0)
    with pytest.raises(ValueError, match=r"^the tokenizer does not know all of \('<s_docvqa>'"):
        DonutReader(Subwords.shipped())
    with pytest.raises(ValueError, match="none of the 1 documents has a question"):
        reader().read([page("a")])


# Pages


@pytest.mark.parametrize("field", [(64, 64), (64, 96), (96, 64), (160, 64)])
def test_pages_are_what_the_processor_of_transformers_makes(field):
    model, asked = tiny(image_size=field), page("", questions=[Question("k", "a", ("b",))])
    processor = DonutImageProcessorPil(
        size={"height": field[0], "width": field[1]}, image_mean=[0.5] * 3, image_std=[0.5] * 3
    )
    for size in ((200, 100), (100, 200), (77, 81), (50, 50), (400, 560), (9, 300)):
        pixels = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
        examples = model.encode([dataclasses.replace(asked, page=pixels, size=size)])
        expected = processor(Image.fromarray(pixels), return_tensors="np")["pixel_values"]
        seen = model.given(examples.batch(np.array([0])))["pixel_values"]
        assert examples.shared["pixels"][0].dtype == np.uint8
        np.testing.assert_allclose(seen.numpy(), expected, atol=1e-6, err_msg=str(size))


def test_the_page_stands_in_the_middle_of_black():
    document = page("", questions=[Question("k", "a", ("b",))], size=(50, 100))
    (pixels,) = reader().read([document]).shared["pixels"][0]
    assert set(np.unique(pixels)) == {0, 99}
    assert (pixels[:, :, 16:48] == 99).all()
    assert not pixels[:, :, :16].any()
    assert not pixels[:, :, 48:].any()


def test_pages_with_several_questions_are_stored_once():
    examples = reader().read(SMALL)
    assert len(examples) == 4
    assert examples.shared["pixels"][0].shape == (3, 3, 64, 64)
    assert examples.column("document").tolist() == [0, 0, 1, 2]


@pytest.mark.parametrize("size", [(60, 64), (64, 48), (70, 70)])
def test_images_that_the_windows_do_not_fit_are_refused(size):
    with pytest.raises(ValueError, match=r"image_size=.*: expected multiples of 16, 64 or more"):
        donut(image_size=size)


# The model


def test_it_is_a_document_model_of_about_700_000_parameters():
    model = donut(("date",))
    assert isinstance(model, DocumentModel)
    assert 600_000 < sum(p.numel() for p in model.parameters()) < 700_000
    assert [len(model.blocks()), len(model.head()), len(model.visual())] == [4 + 2, 1, 1]
    assert model.blocks()[-1] is model.network.decoder.model.decoder.layers[-1]


def test_scores_of_the_answer_look_at_the_page_and_at_the_question_and_not_ahead():
    model = tiny().eval()
    examples = model.encode(SMALL)
    batch = examples.batch(np.array([0]))
    end = int((batch["labels"] != IGNORED).nonzero()[-1, 1])
    with torch.no_grad():
        before = model(batch)
        ids = batch["input_ids"].clone()
        ids[0, end + 1 :] = 7
        assert torch.equal(before[:, : end + 1], model({**batch, "input_ids": ids})[:, : end + 1])
        ids[0, 2] = 7
        assert not torch.equal(before[:, end], model({**batch, "input_ids": ids})[:, end])
        pixels = 255 - batch["pixels"]
        assert not torch.equal(before[:, end], model({**batch, "pixels": pixels})[:, end])


def test_losses_are_those_of_the_answers_tokens():
    model = tiny()
    batch = model.encode(SMALL).batch(np.arange(4))
    scores = model(batch).detach().double().log_softmax(-1)
    for row, loss in enumerate(model.losses(batch).tolist()):
        places = np.flatnonzero(batch["labels"][row] != IGNORED)
        terms = [-scores[row, place, batch["labels"][row, place]].item() for place in places]
        assert loss == pytest.approx(np.mean(terms), rel=1e-5)


def greedy(model, example):
    """One token after the other, without `generate` and without its cache."""
    length = int(example["prompt"][0])
    ids, sure = example["input_ids"][:, :length], 1.0
    for _ in range(model.reader.answer_length):
        chances = model({**example, "input_ids": ids})[0, -1].softmax(-1)
        best = int(chances.argmax())
        ids = torch.cat([ids, torch.tensor([[best]])], 1)
        if best == SUBWORDS.sep:
            break
        sure *= 1.0 if best in (SUBWORDS.pad, MARKS[4]) else chances.max().item()
    written = [t for t in ids[0, length:].tolist() if t != SUBWORDS.sep]
    return SUBWORDS.text(written), sure


@pytest.fixture(scope="module")
def learnt():
    """Some of its answers end, and they are of different lengths."""
    model = tiny()
    learn(model, SMALL, 25, 4e-3)
    return model


def test_answers_are_greedy_and_their_confidence_is_the_product(learnt):
    model, examples = learnt, learnt.encode(SMALL)
    with torch.no_grad():
        answers = model.answers(examples)
        for row, answer in enumerate(answers):
            text, sure = greedy(model, examples.batch(np.array([row])))
            assert answer.text == text
            assert answer.confidence == pytest.approx(sure, rel=1e-4)
    assert len({answer.text for answer in answers}) > 1


def test_answers_do_not_depend_on_the_neighbours(learnt):
    """The questions have different lengths, and MBart counts places from the first token."""
    assert len(set(learnt.encode(SMALL).column("prompt").tolist())) > 1
    for model in (tiny(), learnt):
        check_alone_or_together_the_answers_are_the_same(model, SMALL)


def test_generation_settings_of_a_checkpoint_do_not_count():
    model = tiny().eval()
    with torch.no_grad():
        before = model.answer(SMALL)
        model.network.decoder.generation_config.forced_eos_token_id = SUBWORDS.sep
        model.network.decoder.generation_config.max_length = 3
        assert model.answer(SMALL) == before
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


@pytest.mark.parametrize("rates", [{"dropout": 0.2}, {"drop_path": 0.5}])
def test_dropout_is_each_examples_own(rates):
    check_dropout_is_the_seeds_and_each_examples_own(tiny(**rates), SMALL)


def test_gradients_have_gradients():
    check_gradients_of_gradients(tiny(attention="eager"), documents=SMALL)


def test_dropout_is_of_the_decoder_and_paths_are_of_the_encoder():
    config = donut(dropout=0.3, drop_path=0.2).network.config
    assert (config.decoder.dropout, config.encoder.drop_path_rate) == (0.3, 0.2)
    assert config.encoder.hidden_dropout_prob == 0
    assert config.decoder._attn_implementation == "sdpa"
    with torch.device("meta"):
        published = donut(size="base").network.config
    # Published MBart multiplies its embeddings by the root of its width; no weight shows it.
    assert published.decoder.scale_embedding is config.decoder.scale_embedding is True
    assert (published.decoder.dropout, published.encoder.drop_path_rate) == (0.1, 0.1)


@pytest.mark.slow
def test_it_learns_whose_page_it_is():
    documents = invoices()
    model = seeded_model(donut, 0)
    first, last = learn(model, documents, 60, 2e-3)
    assert first > 5
    assert last < 0.2
    with torch.no_grad():
        scores = model.evaluate(model.encode(documents))
        assert scores["accuracy"] == scores["accuracy/provider"] == 1
        answers = [answer for (answer,) in model.answer(documents)]
    assert [a.text for a in answers] == [d.questions[0].answers[0].lower() for d in documents]
    assert all(answer.confidence > 0.3 for answer in answers)


def test_sizes_are_chosen_by_name():
    assert donut(image_size=(64, 96)).reader.image_size == (64, 96)
    assert donut(size="small").reader.image_size == (112, 112)
    with pytest.raises(ValueError, match=r"^task='tags': expected 'answers'$"):
        donut(task="tags")
    with torch.device("meta"):
        assert donut(size="base").reader.image_size == (1280, 960)
    with pytest.raises(ValueError, match=r"^size='proto': expected 'tiny' or 'small' or 'base'$"):
        donut(size="proto")
