"""Clues taken off the 269 receipts of the pack."""

import os
from collections import Counter

import numpy as np
import pytest

from fedpriv.data.redaction.clues import without_clues
from fedpriv.data.redaction.painting import CannotRemove

DATA = os.environ.get("FEDPRIV_DATA")
pytestmark = pytest.mark.skipif(
    not DATA, reason="FEDPRIV_DATA is not set: the folder that holds open/sroie"
)


def spelt(text):
    return "".join(sign for sign in text.lower() if sign.isalnum())


@pytest.mark.slow
@pytest.mark.parametrize("key", ["company", "address"])
def test_the_clues_are_taken_off_nearly_all_receipts(sroie, key, record_property):
    counts = Counter()
    for receipt in sroie.documents:
        question = next((q for q in receipt.questions if q.key == key), None)
        if question is None:
            counts["not asked"] += 1
            continue
        try:
            found = without_clues(receipt, question, question.answers)
        except CannotRemove:
            counts["cannot"] += 1
            continue
        counts["cleared"] += 1
        counts["residual"] += found.residual
        counts["words"] += len(receipt.words)
        counts["left"] += len(found.page.words)
        answer = spelt(question.answers[0])
        assert answer not in spelt("".join(word.text for word in found.page.words))
        assert (np.asarray(found.page.image()).shape) == np.asarray(receipt.image()).shape
    for name, count in counts.items():
        record_property(name, count)
    print(key, dict(counts))
    assert counts["cleared"] > 250
    assert counts["cannot"] < 10
    assert counts["residual"] < 0.2 * counts["cleared"]
    # A page is not emptied.
    assert counts["left"] > 0.7 * counts["words"]
