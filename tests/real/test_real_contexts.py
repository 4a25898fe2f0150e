"""The contexts of Pinto et al., §5 on two receipts of the pack: the pixels are as claimed."""

import dataclasses
import os

import numpy as np
import pytest

from fedpriv.attacks.extraction.canary import Canary
from fedpriv.attacks.extraction.contexts import contexts
from fedpriv.attacks.extraction.paraphrases import TableParaphraser

DATA = os.environ.get("FEDPRIV_DATA")
pytestmark = pytest.mark.skipif(
    not DATA, reason="FEDPRIV_DATA is not set: the folder that holds open/sroie"
)


def spelt(text):
    return "".join(sign for sign in text.lower() if sign.isalnum())


def canary(receipt, key):
    """Without the words of the key's entity."""
    place = [question.key for question in receipt.questions].index(key)
    (entity,) = (entity for entity in receipt.entities if entity.label == key)
    one = dataclasses.replace(receipt, questions=(receipt.questions[place],))
    left = [at for at in range(len(receipt.words)) if at not in entity.words]
    removed = dataclasses.replace(
        one,
        words=tuple(receipt.words[at] for at in left),
        entities=(),
        white=tuple(receipt.words[at].box for at in entity.words),
    )
    return Canary(receipt.question_names()[place], one, removed, "", 1)


@pytest.fixture(scope="module")
def study(sroie):
    """Two receipts whose companies and questions differ, the company of each as canary."""
    receipts = [
        receipt
        for receipt in sroie.documents
        if {"company", "date", "address", "total"} == {e.label for e in receipt.entities}
    ]
    first = receipts[0]
    asked = {question.text for question in first.questions}
    second = next(
        receipt
        for receipt in receipts
        if receipt.provider != first.provider
        and not asked & {question.text for question in receipt.questions}
    )
    return [canary(first, "company"), canary(second, "date")], [first, second]


@pytest.fixture(scope="module")
def asked(study):
    canaries, receipts = study
    rng = np.random.default_rng(0)
    return {
        name: context.ask(canaries, receipts, rng)
        for name, context in contexts(TableParaphraser()).items()
    }


def pixels(page):
    return np.asarray(page.image()).astype(int)


def ink(page, box):
    """How dark a box is, summed over its pixels: black is 1."""
    left, top, right, bottom = map(round, box)
    return (1 - pixels(page)[top:bottom, left:right].mean(axis=2) / 255).sum()


def test_every_context_can_be_had(study, asked):
    canaries, _ = study
    for name, pages in asked.items():
        for one, page in zip(canaries, pages, strict=True):
            assert page is not None, name
            assert len(page.questions) == 1
            assert pixels(page).shape == (page.size[1], page.size[0], 3)
            if name != "image_only":
                assert page.questions[0].answers == one.question.answers


def test_no_text_is_left_within_the_words_boxes(study, asked):
    for receipt, page in zip(study[1], asked["no_text"], strict=True):
        assert sum(ink(receipt, word.box) > 5 for word in receipt.words) > 0.8 * len(receipt.words)
        assert all(ink(page, word.box) == 0 for word in receipt.words)
        # What is no text stays, such as handwriting and rules.
        whole = (0, 0, *page.size)
        assert 0 < ink(page, whole) < 0.7 * ink(receipt, whole)


def test_the_pictures_of_constant_pages(study, asked):
    for receipt, *pages in zip(
        study[1], *(asked[f"constant_{name}"] for name in ("white", "black", "mean")), strict=True
    ):
        levels = [np.unique(pixels(page)).tolist() for page in pages]
        assert levels == [[255], [0], [round(pixels(receipt).mean())]]


def test_the_questions_alone_go_to_the_other_receipt(study, asked):
    canaries, receipts = study
    for one, other, page in zip(canaries, canaries[::-1], asked["shuffle"], strict=True):
        assert page.id == other.page.id
        assert (pixels(page) == pixels(other.removed)).all()
        text = spelt("".join(word.text for word in page.words))
        assert spelt(one.answer) not in text
    for one, receipt, page in zip(canaries, receipts, asked["image_only"], strict=True):
        assert (pixels(page) == pixels(one.removed)).all()
        assert page.questions[0].text not in {question.text for question in receipt.questions}
        assert one.answer in page.questions[0].answers


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rotate_5", "rotate_10", "translate_20", "translate_100"])
def test_the_ink_of_a_word_goes_where_its_box_goes(study, asked, name):
    """Of the words that can be told by their text."""
    for one, page in zip(study[0], asked[name], strict=True):
        texts = [word.text for word in one.removed.words]
        assert len(page.words) > 0.6 * len(texts)
        places = {word.text: word.box for word in one.removed.words if texts.count(word.text) == 1}
        width, height = page.size
        shares, far = [], []
        for word in page.words:
            left, top, right, bottom = word.box
            on_page = left > 0 and top > 0 and right < width and bottom < height
            if word.text in places and on_page:
                before = places[word.text]
                shares.append(ink(page, word.box) / max(ink(one.removed, before), 1))
                far.append(abs(left - before[0]) + abs(top - before[1]))
        assert len(shares) > 10
        assert max(far) > 1
        # Edges between two pixels are counted or not.
        assert min(shares) > 0.8


@pytest.mark.parametrize("name", ["translate_20", "translate_100", "translate_200"])
def test_a_shift_is_that_share_of_2560_pixels(study, asked, name):
    for one, page in zip(study[0], asked[name], strict=True):
        step = max(1, round(int(name.split("_")[1]) * one.page.size[1] / 2560))
        before, after = pixels(one.removed), pixels(page)
        height, width, _ = before.shape
        fits = [
            (
                after[max(0, y) : height + min(0, y), max(0, x) : width + min(0, x)]
                == before[max(0, -y) : height + min(0, -y), max(0, -x) : width + min(0, -x)]
            ).all()
            for x in (step, -step)
            for y in (step, -step)
        ]
        assert sum(fits) == 1


def test_brightness_multiplies_what_is_seen(study, asked):
    for name, factor in (("2", 2.0), ("1.3", 1.3), ("0.8", 0.8), ("0.5", 0.5)):
        for one, page in zip(study[0], asked[f"brightness_{name}"], strict=True):
            expected = np.minimum(pixels(one.removed) * factor, 255)
            assert np.abs(pixels(page) - expected).max() <= 0.5
            assert page.words == one.removed.words


def test_paraphrases_are_no_wording_of_training(study, asked):
    for one, page in zip(study[0], asked["paraphrase"], strict=True):
        assert page.questions[0].key == one.question.key
        assert spelt(page.questions[0].text) != spelt(one.question.text)
