"""Answers taken off the 269 receipts of the pack, and what is kept of them as canaries."""

import io
import os
import shutil
import subprocess
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from fedpriv.attacks.extraction.canaries import Curation
from fedpriv.attacks.extraction.inferable import is_a_sum
from fedpriv.data.redaction.answers import without_answer
from fedpriv.data.redaction.painting import CannotRemove

DATA = os.environ.get("FEDPRIV_DATA")
pytestmark = pytest.mark.skipif(
    not DATA, reason="FEDPRIV_DATA is not set: the folder that holds open/sroie"
)


@pytest.fixture(scope="module")
def receipts(sroie):
    return sroie.documents


def spelt(text):
    return "".join(sign for sign in text.lower() if sign.isalnum())


def removals(receipts, key):
    """Yields each receipt with the removal of this key's answer, None where it is not found."""
    for receipt in receipts:
        for question in receipt.questions:
            if question.key == key:
                try:
                    yield receipt, without_answer(receipt, question)
                except CannotRemove:
                    yield receipt, None


@pytest.mark.parametrize("key", ["company", "date", "address", "total"])
def test_the_answer_is_taken_off_nearly_all_receipts(key, receipts, record_property):
    counts = Counter()
    for receipt, removed in removals(receipts, key):
        counts["asked"] += 1
        if removed is None:
            continue
        counts["removed"] += 1
        counts["residual"] += removed.residual
        counts["words"] += len(receipt.words)
        counts["left"] += len(removed.page.words)
        if not removed.residual:
            answer = spelt(removed.page.questions[0].answers[0])
            left = spelt("".join(word.text for word in removed.page.words))
            assert len(answer) < 4 or answer not in left
    for name, count in counts.items():
        record_property(name, count)
    print(key, dict(counts))
    assert counts["asked"] > 260
    assert counts["removed"] > 0.93 * counts["asked"]
    assert counts["residual"] < 0.05 * counts["removed"]
    # A page is not emptied.
    assert counts["left"] > 0.8 * counts["words"]


def test_rules_drop_most_totals_and_little_else(receipts, record_property):
    chosen = Curation().choose(receipts[::3], np.random.default_rng(0))
    kept = Counter(canary.question.key for canary in chosen.canaries)
    print(chosen.drawn, dict(chosen.dropped), dict(kept))
    for reason, count in (*chosen.dropped.items(), *kept.items()):
        record_property(reason, count)
    assert len(chosen.canaries) + sum(chosen.dropped.values()) == chosen.drawn == 360
    # A receipt says its items, or cash and change.
    assert kept["total"] < 27
    assert min(kept[key] for key in ("company", "date", "address")) > 80


def test_the_total_of_another_receipt_is_seldom_a_sum(receipts):
    """The rule tries much; what it finds should not be chance."""
    found = [removed for _, removed in removals(receipts[::2], "total") if removed]
    others = [
        replace(one, page=replace(one.page, questions=other.page.questions))
        for one, other in zip(found, [*found[17:], *found[:17]], strict=True)
    ]
    assert sum(map(is_a_sum, found)) > 0.8 * len(found)
    assert sum(map(is_a_sum, others)) < 0.12 * len(found)


def test_under_the_boxes_the_picture_is_white_and_nothing_else_changes(receipts):
    for receipt, removed in list(removals(receipts[:4], "date")):
        before, after = (np.asarray(page.image()) for page in (receipt, removed.page))
        inside = np.zeros(before.shape[:2], bool)
        for left, top, right, bottom in removed.boxes:
            inside[int(top) : int(bottom), int(left) : int(right)] = True
        assert (before[inside] < 128).any()
        assert (after[inside] == 255).all()
        np.testing.assert_array_equal(before[~inside], after[~inside])


@pytest.mark.skipif(not shutil.which("tesseract"), reason="tesseract is not installed")
def test_tesseract_reads_the_date_before_but_not_after(receipts):
    """Boxes of SROIE's words are shares of a line's: letters could stick out."""
    counts = Counter()
    for receipt, removed in removals(receipts[:9:3], "date"):
        if removed is None or removed.residual:
            continue
        answer = spelt(removed.page.questions[0].answers[0])
        for name, page in (("before", receipt), ("after", removed.page)):
            counts[name] += answer in read_around(page, removed.boxes[0])
    print(dict(counts))
    assert counts["before"] >= 2
    assert counts["after"] == 0


def read_around(page, box):
    """What Tesseract reads in the strip of the page that the box stands in."""
    picture = page.image()
    strip = picture.crop(
        (0, max(0, int(box[1]) - 30), picture.width, min(picture.height, int(box[3]) + 30))
    )
    buffer = io.BytesIO()
    strip.save(buffer, "PNG")
    said = subprocess.run(
        ["tesseract", "-", "-", "--psm", "6"],
        input=buffer.getvalue(),
        capture_output=True,
        check=True,
        env={**os.environ, "OMP_THREAD_LIMIT": "1"},
    )
    return spelt(said.stdout.decode())
