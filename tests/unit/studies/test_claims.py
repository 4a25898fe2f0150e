"""Claims about a table: what they compare, and the test that judges them."""

from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedpriv.studies.claims import (
    Claim,
    Measured,
    Ordering,
    Term,
    comparisons,
    unexplained,
    verdicts,
    whose,
)


def measured(name, values, interval=None, **others):
    """Returns a row, one seed for each value."""
    return [
        Measured(name, seed, "runs/1", "", False, {"psnr": value, **others},
                 {"psnr": interval} if interval else {})
        for seed, value in enumerate(values)
    ]  # fmt: skip


def judged(says, *rows):
    (one,) = verdicts([Claim("in words", says)], [m for row in rows for m in row])
    return one


def test_an_ordering_is_split_into_comparisons():
    found = comparisons("psnr | read: a, b > c @ other + 1 | 20 > d")
    assert list(found) == [
        "psnr: a, b > c @ other + 1",
        "psnr: a, b > 20",
        "psnr: c @ other + 1 > d",
        "psnr: 20 > d",
        "read: a, b > c @ other + 1",
        "read: a, b > 20",
        "read: c @ other + 1 > d",
        "read: 20 > d",
    ]
    assert found["psnr: a, b > c @ other + 1"] == Ordering(
        Term("a, b", "psnr"), Term("c", "other", 1.0)
    )
    assert found["read: 20 > d"].above == Term(None, "read", 20.0)
    assert Term.parse("noise 1e-07 - 1.5e-1", "psnr") == Term("noise 1e-07", "psnr", -0.15)
    assert Term.parse("+ TV-C", "psnr") == Term("+ TV-C", "psnr")


def test_less_is_more_the_other_way_round():
    assert comparisons("loss: a < b")["loss: a < b"] == Ordering(
        Term("b", "loss"), Term("a", "loss"), "<"
    )
    found = judged("psnr: a < b", measured("a", [3.0, 3.1]), measured("b", [5.0, 5.2]))
    assert found["holds"] is True
    assert found["comparisons"][0]["verdict"].startswith("holds: 3.050 against 5.100, a differ")


@pytest.mark.parametrize("says", ["a > b", "psnr: a", "psnr: a >= b", ""])
def test_what_is_no_ordering_is_refused(says):
    with pytest.raises(ValueError, match="expected `column: row > other row`"):
        comparisons(says)


# Student 1908: hours of sleep that ten patients gained by either of two drugs.
DEXTRO = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
LAEVO = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]


def test_students_own_example():
    """t = 4.0621 with nine degrees of freedom, p = .002833, and 1.58 [0.70, 2.46] hours."""
    (one,) = comparisons("psnr: laevo > dextro").values()
    found = one.judged([*measured("laevo", LAEVO), *measured("dextro", DEXTRO)])
    assert found.p_value == pytest.approx(0.002833, abs=1e-6)
    assert found.interval == pytest.approx((0.7001, 2.4599), abs=1e-4)
    claim = judged("psnr: laevo > dextro", measured("laevo", LAEVO), measured("dextro", DEXTRO))
    assert (claim["text"], claim["holds"], claim["needs"]) == ("in words", True, None)
    assert claim["comparisons"][0]["verdict"] == (
        "holds: 2.330 against 0.750, a difference of 1.580 [0.700, 2.460] over 10 seeds"
    )
    other = judged("psnr: dextro > laevo", measured("laevo", LAEVO), measured("dextro", DEXTRO))
    assert other["holds"] is False


@pytest.mark.parametrize(("size", "seeds"), [(1.0, 10), (0.5, 34), (0.2, 199)])
def test_how_many_seeds_would_tell(size, seeds):
    """Paired t-test, two-sided at 5 %, power .8: Cohen 1988, and G*Power, have 10, 34 and 199."""
    apart = [size + (0.5**0.5), size - (0.5**0.5)]  # their standard deviation is 1
    found = judged("psnr: a > 0", measured("a", apart))
    assert (found["holds"], found["needs"]) == (None, seeds)
    assert found["comparisons"][0]["verdict"].endswith(f"over 2 seeds; {seeds} would tell")


@pytest.mark.parametrize(
    ("a", "b", "holds", "words"),
    [
        ([9.0], [8.0], None, "cannot tell: 9.000 against 8.000, of one seed; it takes two or more"),
        ([5.0] * 6, [9.0] * 6, False, "DOES NOT HOLD: 5.000 against 9.000"),
        ([9.0] * 6, [5.0] * 6, True, "holds: 9.000 against 5.000"),
        ([9.0] * 5, [5.0] * 5, None, "cannot tell: 9.000 against 5.000"),
        ([0.0] * 9, [0.0] * 9, None, "cannot tell: 0.000 against 0.000"),
        ([float("nan")], [1.0], None, "not measured"),
        ([float("inf"), 9.0], [1.0, 1.0], None, "cannot tell: 9.000 against 1.000, but of 2 seeds"),
        ([5.0], [None], None, "not measured"),
        ([], [1.0], None, "not measured"),
    ],
)
def test_few_seeds(a, b, holds, words):
    found = judged("psnr: a > b", measured("a", a), measured("b", b))
    assert found["holds"] is holds
    assert found["comparisons"][0]["verdict"].startswith(words)


def test_one_seed_is_judged_by_the_intervals_that_its_numbers_come_with():
    """9 ± 1 against 5 ± 1 (95 %): 4 ± √2."""
    close, far = measured("a", [6.0], (5.0, 7.0)), measured("a", [9.0], (8.0, 10.0))
    other = measured("b", [5.0], (4.0, 6.0))
    assert judged("psnr: a > b", close, other)["holds"] is None
    found = judged("psnr: a > b", far, other)
    assert found["holds"] is True
    assert "[2.586, 5.414] over 1 seed" in found["comparisons"][0]["verdict"]
    assert judged("psnr: a > b", far, measured("b", [5.0]))["holds"] is None


def test_only_seeds_that_both_were_run_with_are_compared():
    a, b = measured("a", [9.5, 9.0, 1.0]), measured("b", [5.0, 5.4])
    assert "over 2 seeds" in judged("psnr: a > b", a, b)["comparisons"][0]["verdict"]


def test_a_seed_without_a_number_leaves_it_open():
    """A training that diverged may not drop out of the comparison."""
    a, b = measured("a", [None, 9.0, 9.5, 9.2]), measured("b", [5.0, 5.0, 5.4, 5.1])
    found = judged("psnr: a > b", a, b)
    assert (found["holds"], found["needs"]) == (None, None)
    assert found["comparisons"][0]["verdict"] == (
        "cannot tell: 9.233 against 5.167, but of 4 seeds 1 lacks a number"
    )


def test_differences_that_are_the_same_but_for_rounding_are_held_against_coins():
    """.4 - .3 and .3 - .2 differ by 2e-16, and two seeds are no proof."""
    found = judged("psnr: a > b", measured("a", [0.3, 0.4]), measured("b", [0.2, 0.3]))
    assert (found["holds"], found["needs"]) == (None, 6)
    pages = [22.355, 20.885, 15.15]
    found = judged("psnr: a + 1 > b > a - 1", measured("a", pages), measured("b", pages))
    assert [one["holds"] for one in found["comparisons"]] == [None, None]


def test_one_seed_is_judged_by_the_side_of_its_interval_that_faces_the_other():
    """Zou & Donner 2008: of 3 [1.2, 8] and 1, the difference is 2 [0.2, 7]."""
    found = judged("psnr: a > 1", measured("a", [3.0], (1.2, 8.0)))
    assert found["holds"] is True
    assert "[0.200, 7.000] over 1 seed" in found["comparisons"][0]["verdict"]


def test_a_claim_of_several_comparisons_needs_the_seeds_that_show_all():
    """Each of five is shown with .8^(1/5), so that all are in four of five cases."""
    values = [1 + 0.5**0.5, 1 - 0.5**0.5]  # mean 1, standard deviation 1
    needs = judged("psnr: a | b | c | d | e > 0", *(measured(name, values) for name in "abcde"))[
        "needs"
    ]

    def all_shown(seeds):
        draws = np.random.default_rng(0).normal(1.0, 1.0, (4000, 5, seeds))
        return (stats.ttest_1samp(draws, 0.0, axis=2).pvalue < 0.05).all(1).mean()

    assert judged("psnr: a > 0", measured("a", values))["needs"] == 10
    assert all_shown(10) < 0.4
    assert all_shown(needs - 2) < 0.8 < all_shown(needs + 1)


def test_one_comparison_the_other_way_round_decides_a_claim():
    """It needs no more seeds than that comparison, at 5 % of one of two (Holm)."""
    a, b = measured("a", [0.0] * 6), measured("b", [1.0] * 6)
    found = judged("psnr: a | b > 0.5", a, b)
    assert (found["holds"], found["needs"]) == (None, 7)
    seven = judged("psnr: a | b > 0.5", measured("a", [0.0] * 7), measured("b", [1.0] * 7))
    assert seven["holds"] is False


def test_a_margin_is_told():
    found = judged("psnr: a + 1 > b", measured("a", [9.0] * 6), measured("b", [5.0] * 6))
    assert found["comparisons"][0]["verdict"].startswith(
        "holds: 10.000 against 5.000, margin included, a difference of 5.000"
    )


def test_a_margin_and_another_column_count():
    a, b = measured("a", [9.0] * 6, read=0.5), measured("b", [8.0] * 6, read=8.6)
    assert judged("psnr: a > b + 2", a, b)["holds"] is False
    assert judged("psnr: a > b - 2", a, b)["holds"] is True
    assert judged("psnr: a - 1 > b @ read", a, b)["holds"] is False
    assert judged("psnr: a > 8.5", a, b)["holds"] is True


def test_a_claim_holds_if_all_of_it_does_and_fails_if_any_of_it_does():
    a, b, c = (measured(name, [v, v + 0.1, v]) for name, v in (("a", 9.0), ("b", 5.0), ("c", 8.0)))
    assert judged("psnr: a > b - 0.01 | 1 | -1", a, b, c)["holds"] is None  # a − b never varies
    b = measured("b", [5.0, 5.0, 5.1])
    assert judged("psnr: a > b | 1", a, b, c)["holds"] is True
    assert judged("psnr: a > b > c", a, b, c)["holds"] is False
    unsure = measured("c", [0.0, 9.0, 4.0])
    found = judged("psnr: a > b > c", a, b, unsure)
    assert (found["holds"], [one["holds"] for one in found["comparisons"]]) == (None, [True, None])
    assert found["needs"] > 3
    # What no seed can decide leaves it open how many would.
    assert judged("psnr: a > b > c | nobody", a, b, unsure)["needs"] is None


def test_the_failures_of_a_claim_are_corrected_for_their_number():
    """Alone .03 is shown; as one of five it is not."""
    apart = [-1.0, -0.5, 0.0, 0.5, 1.0]
    mean = -stats.t.isf(0.015, 4) * stats.tstd(apart) / 5**0.5  # of which p is .03, two-sided
    low = measured("a", [one + mean for one in apart])
    assert judged("psnr: a > 0", low)["holds"] is False
    nearby = " | ".join(str(mean + step / 1000) for step in range(4))  # of which it is about 1
    assert judged(f"psnr: a > 0 | {nearby}", low)["holds"] is None


@given(st.lists(st.floats(-10, 10), min_size=2, max_size=6))
def test_a_claim_and_its_reverse_never_both_hold(values):
    rows = [measured("a", values), measured("b", [0.0] * len(values))]
    one, other = judged("psnr: a > b", *rows), judged("psnr: b > a", *rows)
    assert not (one["holds"] and other["holds"])
    assert (one["holds"] is None) == (other["holds"] is None)


def test_a_claim_is_the_papers_or_ours():
    said = ("a > b (the paper, of Donut)", "a > b (ours; the paper has b)", "a > b")
    assert [whose(text) for text in said] == ["paper", "ours", ""]
    both = "a beats b (the paper), and c (ours)"
    assert whose(both) == "paper"


CLAIM = Claim("a beats b (ours)", "psnr: a > b")


@pytest.mark.parametrize(
    ("before", "now", "told"),
    [
        ([CLAIM], [CLAIM], None),
        ([CLAIM], [], "'psnr: a > b' has a result and is gone"),
        ([CLAIM], [replace(CLAIM, says="psnr: a > 1")], "is gone"),
        ([CLAIM], [Claim("less", "psnr: a > 1", was=CLAIM.says, note="b is not run")], None),
        ([CLAIM], [Claim("less", "psnr: a > 1", was=CLAIM.says)], "is gone"),
        ([], [CLAIM], "'a beats b (ours)' is new or changed since the first result"),
        ([], [replace(CLAIM, note="it was missing")], None),
        ([replace(CLAIM, note="it was missing")], [CLAIM], "had a note, 'it was missing': keep it"),
        ([CLAIM], [replace(CLAIM, text="a beats b (the paper)")], "was 'a beats b (ours)'"),
        ([CLAIM], [replace(CLAIM, text="a is better than b (ours)")], None),
    ],
)
def test_claims_stay_as_they_were_at_the_first_result_or_say_why(before, now, told):
    rows = measured("a", [1.0, 2.0])
    result = {"rows": [asdict(one) for one in rows], "claims": [*verdicts(before, rows)]}
    found = "; ".join(unexplained(now, result))
    assert told in found if told else not found
    assert not [*unexplained(now, {})]  # nothing was measured
