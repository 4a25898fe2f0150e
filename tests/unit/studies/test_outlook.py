"""What attacks could tell of so many units: held against experiments of that size."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedpriv.studies.assessing.outlook import outlook
from fedpriv.threat.scoring.power import Power
from fedpriv.threat.scoring.verdicts import number
from fedpriv.threat.statistics import LEVEL, Estimate, area, exchanged, share

AREA = Power("Who was trained on?", "suppliers", 0.3, area=True)
SHARE = Power("What stood there?", "documents", 0.1)
PAGES = Power("What stands on the page?", "clients", 0.25, matched=True)


def shown(sample, experiments=200):
    """How often an experiment shows a leak."""
    rng = np.random.default_rng(0)
    return np.mean([sample(rng) <= LEVEL for _ in range(experiments)])


@pytest.mark.parametrize(("members", "others"), [(20, 20), (40, 15)])
def test_an_auc_of_the_least_size_is_shown_in_four_of_five_experiments(members, others):
    least = outlook(AREA, {"suppliers": (members, others)}).least
    apart = np.sqrt(2) * stats.norm.ppf(least)
    inside = np.arange(members + others) < members

    def sample(rng):
        scores = rng.normal(apart * inside, 1.0)
        found = area([inside], [scores], [np.arange(len(scores))])
        return number(found, "supplier", Estimate.known(0.5)).p_value

    assert 0.7 < shown(sample) < 0.95


def test_a_share_of_the_least_size_is_shown_in_most_experiments():
    least = outlook(SHARE, {"documents": (60, 60)}).least
    inside, units = np.arange(120) < 60, np.arange(120)

    def sample(rng):
        right = (rng.random(120) < least * inside).astype(float)
        found = share(right[inside]), share(right[~inside])
        return number(found[0], "document", found[1], exchanged(right, inside, units)).p_value

    assert 0.55 < shown(sample) < 0.98  # about that: the p-value comes of exchanged units


@given(st.sampled_from([AREA, SHARE, PAGES]), st.integers(1, 60), st.integers(1, 60))
def test_twice_as_many_units_tell_more(power, inside, outside):
    few = outlook(power, {power.units: (inside, outside)}).least
    more = outlook(power, {power.units: (2 * inside, 2 * outside)}).least
    assert few is None or (more is not None and more <= few + 1e-9)


@pytest.mark.parametrize("power", [AREA, SHARE])
def test_so_many_of_each_as_are_needed_are_enough(power):
    needed = outlook(power, {power.units: (1, 1)}).needed
    assert outlook(power, {power.units: (needed, needed)}).enough
    assert not outlook(power, {power.units: (needed - 1, needed - 1)}).enough


def test_of_messages_one_that_is_recovered_exactly_is_enough():
    alone = outlook(PAGES, {"clients": (1, 0)})
    assert (alone.least, alone.hopeless) == (None, False)
    assert alone.says.startswith("only what is recovered to the last word or pixel")
    assert outlook(AREA, {"suppliers": (3, 3)}).hopeless
    assert outlook(PAGES, {"clients": (0, 0)}).hopeless


def test_many_looks_ask_for_more_and_seeds_with_their_own_data_bring_it():
    units = {"suppliers": (40, 40)}
    alone, many = (outlook(AREA, units, looks=looks).least for looks in (1, 30))
    assert max(alone, outlook(AREA, units, looks=30, seeds=4).least) < many
