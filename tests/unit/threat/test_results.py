"""Results of several kinds of claims, as one."""

import dataclasses

import pytest

from fedpriv.threat.results import CANNOT_TELL, LEAK, NONE_SHOWN, Number, Result, joined


def part(verdict, p, name):
    number = Number(0.6, None, 20, "unit", 0.5, 0.6, p)
    return Result(name, f"{name} says so", verdict=verdict, primary=name, numbers={name: number})


@pytest.mark.parametrize(
    ("first", "other", "verdict"),
    [
        ((LEAK, 0.04), (CANNOT_TELL, 0.6), CANNOT_TELL),  # .08 of two tests
        ((LEAK, 0.02), (CANNOT_TELL, 0.6), LEAK),
        ((LEAK, 0.04), (LEAK, 0.01), LEAK),
        ((LEAK, 0.04), (LEAK, 0.04), CANNOT_TELL),
        ((NONE_SHOWN, 0.5), (CANNOT_TELL, 0.5), CANNOT_TELL),
        ((NONE_SHOWN, 0.5), (NONE_SHOWN, 0.3), NONE_SHOWN),
        # What needs no test, such as an exact recovery.
        ((LEAK, None), (CANNOT_TELL, 0.5), LEAK),
        ((LEAK, 0.6), (CANNOT_TELL, 0.5), LEAK),
    ],
)
def test_a_leak_must_be_one_among_all_tests_of_an_attack(first, other, verdict):
    found = joined([part(*first, "bits"), part(*other, "bound")])
    assert found.verdict == verdict
    assert ("not shown among 2 tests" in found.headline) == (
        LEAK in (first[0], other[0]) and verdict != LEAK
    )


def test_what_is_certain_is_not_taken_back():
    exact = dataclasses.replace(part(LEAK, 0.04, "exact"), certain=True)
    assert joined([exact, part(CANNOT_TELL, 0.9, "bound")]).verdict == LEAK


def test_one_kind_of_claim_stays_as_it_is():
    for p in (0.04, 0.6, None):
        alone = part(LEAK, p, "bits")
        assert joined([alone]) == alone


def test_p_values_are_those_of_all_tests():
    found = joined([part(LEAK, 0.01, "bits"), part(CANNOT_TELL, 0.3, "bound")])
    assert [found.numbers[name].p_value for name in ("bits", "bound")] == [0.02, 0.3]
