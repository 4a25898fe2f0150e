"""Numbers that CDMI prints, which only some conventions give: Table 4, Table 5, Fig. 6 and §6."""

import math

import numpy as np
import pytest

from fedpriv.threat.scoring.fields import Shots, surest

FUNSD, SROIE = 777, 791
"""Fields that the paper attacks, of its Table 4, last column."""


def attack(fields, right):
    """Returns what is kept of so many fields, of which those at these ranks are right."""
    perfect = np.zeros(fields)
    perfect[[rank - 1 for rank in right]] = 1
    return Shots(-np.arange(fields, dtype=np.float64), perfect, 1 - perfect)


@pytest.mark.parametrize(
    ("fields", "p", "top", "floor"),
    [(FUNSD, 0.01, 8, 7), (FUNSD, 0.05, 39, 38), (SROIE, 0.01, 8, 7), (SROIE, 0.05, 40, 39)],
)
def test_the_top_p_is_rounded_up(fields, p, top, floor):
    assert surest(p, fields) == top
    assert math.floor(p * fields) == floor


@pytest.mark.parametrize(
    ("fields", "p", "right", "printed"),
    [
        pytest.param(FUNSD, 0.01, 1, "0.125", id="1/8 of FUNSD"),
        pytest.param(FUNSD, 0.01, 2, "0.250", id="2/8 of FUNSD"),
        pytest.param(FUNSD, 0.05, 1, "0.026", id="1/39"),
        pytest.param(FUNSD, 0.05, 2, "0.051", id="2/39"),
        pytest.param(FUNSD, 0.05, 3, "0.077", id="3/39"),
        pytest.param(FUNSD, 0.05, 4, "0.103", id="4/39"),
        pytest.param(FUNSD, 0.05, 5, "0.128", id="5/39"),
        pytest.param(FUNSD, 0.05, 6, "0.154", id="6/39"),
        pytest.param(SROIE, 0.01, 1, "0.125", id="1/8 of SROIE"),
        pytest.param(SROIE, 0.05, 1, "0.025", id="1/40"),
        pytest.param(SROIE, 0.05, 2, "0.050", id="2/40"),
        pytest.param(SROIE, 0.05, 3, "0.075", id="3/40"),
        pytest.param(SROIE, 0.05, 6, "0.150", id="6/40, Fig. 6"),
        pytest.param(SROIE, 0.05, 9, "0.225", id="9/40, §6"),
        pytest.param(FUNSD, 1.0, 32, "0.041", id="32/777"),
        pytest.param(FUNSD, 1.0, 6, "0.008", id="6/777, the baseline's .77 % in §6"),
        pytest.param(SROIE, 1.0, 25, "0.032", id="25/791"),
    ],
)
def test_accuracy_at_p_comes_out_as_printed(fields, p, right, printed):
    top = surest(p, fields)
    kept = attack(fields, range(top - right + 1, top + 1))  # the last ones that count
    assert f"{kept.acc_at(p):.3f}" == printed


@pytest.mark.parametrize(
    ("fields", "p", "printed"),
    [
        (FUNSD, 0.01, {"0.125", "0.250"}),
        # Not .026, which 1/38 gives as well as 1/39.
        (FUNSD, 0.05, {"0.051", "0.077", "0.103", "0.128", "0.154"}),
        (SROIE, 0.01, {"0.125"}),
        (SROIE, 0.05, {"0.025", "0.050", "0.075", "0.150", "0.225"}),
    ],
)
def test_rounding_down_gives_none_of_the_printed_shares(fields, p, printed):
    for top, given in ((surest(p, fields), True), (math.floor(p * fields), False)):
        possible = {f"{right / top:.3f}" for right in range(1, top + 1)}
        assert possible & printed == (printed if given else set())


def test_one_right_more_changes_the_top_by_one_step():
    assert attack(FUNSD, [1]).acc_at(0.01) == pytest.approx(1 / 8)
    assert attack(FUNSD, [8]).acc_at(0.01) == pytest.approx(1 / 8)
    assert attack(FUNSD, [9]).acc_at(0.01) == 0
    assert attack(SROIE, [40]).acc_at(0.05) == pytest.approx(1 / 40)
    assert attack(SROIE, [41]).acc_at(0.05) == 0
