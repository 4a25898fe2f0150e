"""A model that has learnt next to nothing is called so."""

import math

import pytest

from fedpriv.metrics.learnt import little_learnt


@pytest.mark.parametrize(
    ("records", "said"),
    [
        ([], ""),
        ([{"loss": 2.0}, {"round": 2}], ""),
        ([{"f1": 0.05}, {"f1": 0.4}, {"train_loss": 1.0}], ""),
        ([{"f1": 0.5}, {"f1": 0.059}, {"loss": 1.0}], "(F1 0.059)"),
        ([{"anls": 0.0004, "f1_seen": 0.9}], "(ANLS 0.0004)"),
        ([{"accuracy": 0.02, "anls": 0.4}], ""),  # no answer is right to the letter, many nearly
        ([{"accuracy": math.nan}], ""),
    ],
)
def test_the_last_main_score_decides(records, said):
    found = little_learnt(records)
    assert found == (f"The model has learnt next to nothing {said}." if said else "")
