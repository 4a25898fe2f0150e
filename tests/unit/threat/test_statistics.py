"""Intervals, p-values and power: against exact tails, published numbers, and by simulation."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta, binom, binomtest, multinomial, norm

from fedpriv.threat.statistics import (
    Estimate,
    area,
    corrected,
    detectable,
    difference,
    discordance,
    discordant,
    exchanged,
    jackknife,
    matching,
    mean,
    needed,
    p_value,
    ranked_apart,
    share,
)

REPEATS = 400
SLACK = 3 * np.sqrt(0.05 * 0.95 / REPEATS)
"""Three standard deviations of a share of 5 % in so many repeats."""


def coin(heads, count):
    return share([1.0] * heads + [0.0] * (count - heads))


@pytest.mark.parametrize("count", [1, 2, 5, 17, 60])
def test_one_coin_a_unit_has_the_interval_of_clopper_and_pearson(count):
    for heads in range(count + 1):
        exact = binomtest(heads, count).proportion_ci(0.95, "exact")
        assert coin(heads, count).limits(0.95) == pytest.approx((exact.low, exact.high))


@pytest.mark.parametrize("count", [1, 3, 10, 40])
@pytest.mark.parametrize("bias", [0.01, 0.2, 0.5, 0.85])
def test_coins_are_covered_as_often_as_stated(count, bias):
    """No simulation: over all outcomes."""
    heads = np.arange(count + 1)
    inside = [low <= bias <= high for low, high in (coin(k, count).limits(0.95) for k in heads)]
    assert binom.pmf(heads, count, bias) @ inside >= 0.95


@pytest.mark.parametrize("units", [5, 25])
@pytest.mark.parametrize("bias", [0.05, 0.5])
@pytest.mark.parametrize("alike", [0.05, 0.5])
def test_values_of_one_unit_hang_together(units, bias, alike):
    """Beta-binomial units of ten values each, whose correlation is `alike`."""
    rng = np.random.default_rng(0)
    spread = 1 / alike - 1
    missed = 0
    for _ in range(REPEATS):
        biases = rng.beta(bias * spread, (1 - bias) * spread, units)
        values = rng.random((units, 10)) < biases[:, None]
        low, high = share(values.ravel(), np.repeat(np.arange(units), 10)).limits(0.95)
        missed += not low <= bias <= high
    assert missed / REPEATS <= 0.05 + SLACK


@pytest.mark.parametrize("sizes", [[200] + [5] * 20, [40] * 5 + [3] * 55, [50] + [1] * 50])
def test_a_large_unit_does_not_hide_how_much_it_varies(sizes):
    rng = np.random.default_rng(4)
    units, missed = np.repeat(np.arange(len(sizes)), sizes), 0
    for _ in range(REPEATS):
        biases = np.where(rng.random(len(sizes)) < 0.2, 1.0, 0.1)
        values = rng.random(len(units)) < biases[units]
        low, high = share(values, units).limits(0.95)
        missed += not low <= 0.28 <= high
    assert missed / REPEATS <= 0.05 + SLACK


def test_many_values_of_few_units_are_not_many_units():
    values, units = [1.0] * 500 + [0.0] * 500, np.repeat(np.arange(10), 100)
    low, high = share(values, units).limits(0.95)
    exact = binomtest(5, 10).proportion_ci(0.95, "exact")
    assert high - low > 0.8 * (exact.high - exact.low)


def drawn(rng, members, others, value):
    scores = rng.normal(size=members + others)
    scores[:members] += norm.ppf(value) * np.sqrt(2)
    return np.arange(members + others) < members, scores


@pytest.mark.parametrize(
    ("sides", "value"),
    [
        ((1, 2), 0.75),
        ((4, 4), 0.5),
        ((4, 4), 0.97),
        ((5, 40), 0.5),
        ((5, 40), 0.97),
        ((30, 30), 0.75),
    ],
)
def test_the_auc_is_covered_as_often_as_stated(sides, value):
    rng = np.random.default_rng(1)
    missed = 0
    for _ in range(REPEATS):
        members, scores = drawn(rng, *sides, value)
        low, high = area([members], [scores], [np.arange(len(members))]).limits(0.95)
        missed += not low <= value <= high
    assert missed / REPEATS <= 0.05 + SLACK


def test_draws_of_the_known_are_part_of_the_doubt():
    """Each draw's classifier is as good as chance wills; their mean is what is covered."""
    rng = np.random.default_rng(2)
    missed = 0
    for _ in range(REPEATS // 2):
        members, noise = drawn(rng, 25, 25, 0.5)
        scores = [noise + rng.normal(0.0, 1.5) * members for _ in range(5)]
        low, high = area([members] * 5, scores, [np.arange(50)] * 5).limits(0.95)
        missed += not low <= 0.5 <= high
    assert missed / (REPEATS // 2) <= 0.05 + SLACK * np.sqrt(2)


def test_the_mean_of_normal_values_is_covered():
    rng = np.random.default_rng(3)
    missed = 0
    for _ in range(REPEATS):
        values = rng.normal(2, 3, (6, 4)) + rng.normal(0, 2, (6, 1))
        low, high = mean(values.ravel(), np.repeat(np.arange(6), 4)).limits(0.95)
        missed += not low <= 2 <= high
    assert missed / REPEATS <= 0.05 + SLACK


def test_two_equal_shares_are_seldom_told_apart():
    """Over all outcomes of 9 and 14 coins."""
    for bias in (0.1, 0.5, 0.8):
        level = sum(
            binom.pmf(a, 9, bias) * binom.pmf(b, 14, bias)
            for a in range(10)
            for b in range(15)
            if p_value(difference(coin(a, 9), coin(b, 14))) <= 0.05
        )
        assert level <= 0.05


@settings(max_examples=60)
@given(st.integers(1, 30), st.integers(1, 30), st.data())
def test_interval_and_p_value_of_a_difference_agree(one, other, data):
    a, b = data.draw(st.integers(0, one)), data.draw(st.integers(0, other))
    apart = difference(coin(a, one), coin(b, other))
    low, high = apart.limits(0.95)
    p = p_value(apart)
    if abs(p - 0.05) > 1e-6:
        assert (p <= 0.05) == (low > 0 or high < 0)
    turned = difference(coin(b, other), coin(a, one))
    assert p_value(turned) == pytest.approx(p, abs=1e-9)


def test_the_p_value_of_coins_against_a_known_bias_is_twice_the_exact_tail():
    for heads in (8, 9, 10):
        exact = 2 * binom.sf(heads - 1, 10, 0.5)
        found = p_value(difference(coin(heads, 10), Estimate.known(0.5)))
        assert found == pytest.approx(min(1, exact), abs=1e-9)


@pytest.mark.parametrize("count", [8, 20, 100])
def test_what_is_detectable_is_shown_in_four_of_five_experiments(count):
    chance = Estimate.known(0.5)
    least = detectable(coin(count // 2, count), chance)
    heads = np.arange(count + 1)
    shown = [coin(int(k), count).limits(0.95)[0] > 0.5 for k in heads]
    power = binom.pmf(heads, count, least) @ shown
    # Between whole heads the power jumps; it is 0.8 where heads could be divided.
    assert 0.7 < power < 0.97
    assert binom.pmf(heads, count, least - 0.1) @ shown < 0.8


@pytest.mark.parametrize("count", [1, 2, 5])
def test_from_too_few_units_nothing_could_be_shown(count):
    assert 2 * 0.5**count > 0.05
    assert detectable(coin(count, count), Estimate.known(0.5)) is None


def test_a_useful_auc_needs_more_than_three_providers():
    count = needed(0.8, 0.5, area=True)
    rng = np.random.default_rng(5)
    shown = 0
    for _ in range(REPEATS):
        members, scores = drawn(rng, count, count, 0.8)
        shown += area([members], [scores], [np.arange(2 * count)]).limits(0.95)[0] > 0.5
    assert 0.7 < shown / REPEATS < 0.97
    assert needed(0.5, 0.5) is None


@pytest.mark.parametrize("seed", range(8))
def test_fewer_providers_than_needed_never_claim_to_have_shown_as_much(seed):
    few = needed(0.8, 0.5, area=True) - 1
    rng = np.random.default_rng(seed)
    # Draws of halves of the same providers, each with new noise: their mean varies little.
    draws = [drawn(rng, few, few, 0.5) for _ in range(5)]
    judged = area([m for m, _ in draws], [s for _, s in draws], [np.arange(2 * few)] * 5)
    could = detectable(judged, Estimate.known(0.5))
    assert could is None or could > 0.8


@pytest.mark.parametrize("count", [6, 12, 60])
def test_gains_that_are_detectable_are_shown_in_four_of_five_experiments(count):
    """What is told of one experiment is shown, on the average, by another of its size."""
    rng = np.random.default_rng(7)
    told = [detectable(mean(rng.normal(size=count)), Estimate.known(0.0)) for _ in range(REPEATS)]
    again = rng.normal(told, 1, (count, REPEATS)).T
    shown = np.mean([mean(gains).limits(0.95)[0] > 0 for gains in again])
    assert 0.8 - SLACK < shown < 0.98


def test_an_error_that_is_known_has_the_reach_of_the_normal():
    known = Estimate(0.3, 9, lambda confidence: (0.1, 0.5), error=0.1)
    reach = norm.ppf(0.975) + norm.ppf(0.8)
    assert detectable(known, Estimate.known(0.0)) == pytest.approx(0.1 * reach, rel=0.01)


@pytest.mark.parametrize(("units", "others"), [(50, 6), (20, 12)])
def test_few_units_of_the_control_make_less_detectable(units, others):
    rng = np.random.default_rng(10)
    assert detectable(mean(rng.normal(size=units)), mean(rng.normal(size=3))) is None
    shown = []
    for _ in range(REPEATS):
        held = mean(rng.normal(size=others))
        least = detectable(mean(rng.normal(size=units)), held) - held.value
        again = mean(rng.normal(least, 1, units)), mean(rng.normal(size=others))
        shown.append(difference(*again).limits(0.95)[0] > 0)
    assert np.mean(shown) > 0.8 - SLACK


@pytest.mark.parametrize("values", [[3.0] * 12, [1.0, 2.0, 3.0, 4.0, 5.0]])
def test_of_few_or_equal_gains_it_is_not_known_what_they_could_have_shown(values):
    assert detectable(mean(values), Estimate.known(0.0)) is None


@pytest.mark.parametrize("count", [4, 9, 30])
@pytest.mark.parametrize("bias", [0.02, 0.1, 0.3, 0.5])
def test_two_models_that_know_as_much_are_seldom_told_apart(count, bias):
    """Over all outcomes: each unit is only of the one, only of the other, or neither."""
    level = sum(
        multinomial.pmf([a, b, count - a - b], count, [bias, bias, 1 - 2 * bias])
        for a in range(count + 1)
        for b in range(count + 1 - a)
        if p_value(discordance(a, b, count)) <= 0.05
    )
    assert level <= 0.05


@pytest.mark.parametrize(("ours", "theirs"), [(6, 0), (94, 20), (3, 9), (5, 5), (0, 0)])
def test_discordance_is_mcnemars_exact_test(ours, theirs):
    found = discordance(ours, theirs, 116)
    exact = binomtest(ours, ours + theirs).pvalue if ours + theirs else 1.0
    assert p_value(found) == pytest.approx(exact, abs=1e-9)
    low, high = found.limits(0.95)
    assert low <= (ours - theirs) / 116 <= high
    assert low < 0 or ours > theirs
    assert high > low  # also where neither was ever seen


@pytest.mark.parametrize(("theirs", "count"), [(0, 49), (0, 4000), (20, 4654), (3, 60)])
def test_a_discordance_that_is_detectable_is_shown_in_four_of_five_experiments(theirs, count):
    rng = np.random.default_rng(8)
    least = discordant(theirs, count)
    drawn = rng.multinomial(
        count, [least, theirs / count, 1 - least - theirs / count], size=REPEATS
    )
    shown = [p_value(discordance(int(a), int(b), count)) <= 0.05 and a > b for a, b, _ in drawn]
    assert 0.8 - SLACK < np.mean(shown) < 1


def test_of_five_units_no_discordance_could_be_shown():
    assert discordant(0, 5) is None
    assert discordant(0, 6) == pytest.approx(0.9 ** (1 / 6))


def test_exchanging_units_is_the_permutation_test():
    # Three against three, all apart: 2 of the 20 ways; twins on a side are no evidence.
    values = np.repeat([5.0, 6.0, 7.0, 1.0, 2.0, 3.0], 4)
    units = np.repeat(np.arange(6), 4)
    assert exchanged(values, units < 3, units) == pytest.approx(0.1, abs=0.01)
    assert exchanged(np.ones(24), units < 3, units) == 1
    with pytest.raises(ValueError, match="expected units on both sides"):
        exchanged(values, units < 6, units)


def test_exchanged_units_are_seldom_told_apart_however_they_are_distributed():
    rng = np.random.default_rng(9)
    sizes = np.array([40, 20, *[3] * 18])
    units, p_values = np.repeat(np.arange(20), sizes), []
    for _ in range(REPEATS):
        inside = rng.permutation(20) < 9
        values = (rng.pareto(1.2, 20) * (rng.random(20) < 0.4))[units]
        p_values.append(exchanged(values, inside[units], units))
    assert np.mean(np.array(p_values) <= 0.05) <= 0.05 + SLACK
    assert np.mean(np.array(p_values) <= 0.5) > 0.35


@given(st.lists(st.integers(1, 5), min_size=12, max_size=40), st.integers(0, 3))
def test_one_unit_alone_never_tells_two_sides_apart(sizes, hit):
    """Found on untrained models, of which one right guess in 74 was a leak with p = .0005."""
    units = np.repeat(np.arange(len(sizes)), sizes)
    assert exchanged(units == hit, units < len(sizes) // 2, units) > 0.05


def test_rare_values_of_units_whose_sizes_differ_by_side_are_seldom_told_apart():
    rng, p_values = np.random.default_rng(4), []
    inside = np.arange(40) < 20
    for _ in range(REPEATS):
        sizes = np.where(inside, rng.integers(2, 5, 40), rng.integers(1, 3, 40))
        units = np.repeat(np.arange(40), sizes)
        p_values.append(exchanged(rng.random(len(units)) < 0.03, inside[units], units))
    assert np.mean(np.array(p_values) <= 0.05) <= 0.05 + SLACK


def test_a_leak_that_an_interval_of_rare_events_hides_is_shown_by_exchange():
    """15 of 30 members are known on one page of eight each, of 30 others none."""
    units = np.repeat(np.arange(60), 8)
    values = (np.arange(480) % 8 == 0) & (units < 15)
    assert exchanged(values, units < 30, units) < 0.001


def test_holms_correction_by_hand():
    assert corrected([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert corrected([]) == []


@given(st.lists(st.sampled_from([0, 1e-9, 0.004, 0.01, 0.02, 0.05, 0.3, 0.9, 1]), max_size=6))
def test_holm_rejects_what_bonferroni_rejects_in_every_set_of_looks(p_values):
    """A look is shown if none of the sets that it is in could be chance alone (closed testing)."""
    looks = range(len(p_values))
    sets = [s for n in looks for s in itertools.combinations(looks, n + 1)]
    worst = [max(min(1, len(s) * min(p_values[i] for i in s)) for s in sets if look in s)
             for look in looks]  # fmt: skip
    assert corrected(p_values) == pytest.approx(worst)


def test_the_jackknife_of_a_ratio_is_that_of_the_delta_method():
    rng = np.random.default_rng(6)
    above, below = rng.normal(4, 1, 400), rng.normal(2, 0.3, 400)
    found = jackknife(lambda rows: above[rows].mean() / below[rows].mean(), np.arange(400))
    residual = above / below.mean() - above.mean() * below / below.mean() ** 2
    assert found.error == pytest.approx(residual.std(ddof=1) / 20, rel=0.02)
    moved = found.through(np.exp)
    assert moved.limits(0.9) == pytest.approx(tuple(np.exp(found.limits(0.9))))
    assert moved.error == pytest.approx(np.exp(found.value) * found.error, rel=1e-4)


def test_a_single_unit_has_no_interval():
    low, high = mean([3.0, 4.0], ["a", "a"]).limits(0.95)
    assert (low, high) == (-np.inf, np.inf)


@pytest.mark.parametrize("values", [[], [1.2], [float("nan")]])
def test_what_is_no_share_is_refused(values):
    with pytest.raises(ValueError, match=r"a share is the mean of one or more values in \[0, 1\]"):
        share(values)


def test_the_beta_ends_are_those_of_the_binomial_tail():
    low, high = coin(3, 12).limits(0.9)
    assert (low, high) == pytest.approx((beta.ppf(0.05, 3, 10), beta.ppf(0.95, 4, 9)))


# The order of few


def test_the_order_of_few_by_hand():
    """Of 252 ways to choose five of ten, one is as good, and one as bad; of ties none is taken."""
    five = np.repeat([True, False], 5)
    assert ranked_apart(five, np.repeat([1.0, 0.0], 5)) == pytest.approx(2 / 252)
    assert ranked_apart(five, np.array([2.0, 2, 2, 2, 1, 1, 0, 0, 0, 0])) == pytest.approx(4 / 252)
    assert ranked_apart(five, np.repeat([0.0, 1.0], 5)) == pytest.approx(2 / 252)
    assert ranked_apart(five, np.zeros(10)) == 1
    assert ranked_apart(np.repeat([True, False], 4), np.repeat([1.0, 0.0], 4)) < 0.05
    assert ranked_apart(np.repeat([True, False], 3), np.repeat([1.0, 0.0], 3)) > 0.05


@given(
    scores=st.lists(st.integers(0, 4), min_size=4, max_size=9),
    members=st.integers(1, 8),
)
def test_the_order_of_few_raises_a_false_alarm_in_one_of_twenty_cases(scores, members):
    """Over all ways to choose the members, whatever ties there are."""
    count = len(scores)
    chosen = list(itertools.combinations(range(count), min(members, count - 1)))
    alarms = [
        ranked_apart(np.isin(np.arange(count), some), np.array(scores, float)) <= 0.05
        for some in chosen
    ]
    assert np.mean(alarms) <= 0.05


@given(
    members=st.lists(st.integers(0, 5), min_size=1, max_size=8),
    others=st.lists(st.integers(0, 5), min_size=1, max_size=8),
    which=st.integers(0, 7),
    up=st.integers(1, 5),
)
def test_a_higher_score_of_a_member_never_raises_p(members, others, which, up):
    """Above an AUC of 1/2; with ties, and up to a perfect order."""
    sides = np.repeat([True, False], [len(members), len(others)])
    before = np.array([*members, *others], float)
    after = before.copy()
    after[which % len(members)] += up
    if area([sides], [before], [np.arange(len(before))]).value >= 0.5:
        assert ranked_apart(sides, after) <= ranked_apart(sides, before) + 1e-12


# Claims on truths


def test_matching_by_hand():
    """Three claims, each right: one of six deals; with a fourth truth, one of twenty-four."""
    assert matching(np.eye(3)) == pytest.approx(1 / 6)
    assert matching(np.eye(3, 4)) == pytest.approx(1 / 24)
    assert matching(np.eye(1, 20)) == pytest.approx(1 / 20)
    assert matching(np.full((3, 5), 0.4)) == 1
    assert matching(np.eye(12, 40)) == pytest.approx(1e-4)  # of as many deals as are drawn


@pytest.mark.parametrize(("claims", "truths"), [(1, 24), (2, 9), (3, 6), (5, 40)])
@pytest.mark.parametrize("sort", ["coins", "rare", "skewed"])
def test_claims_that_know_nothing_match_in_one_of_twenty_cases(claims, truths, sort):
    """However easy some truths are to hit, and however much some claims hit."""
    rng = np.random.default_rng(len(sort) * claims)
    alarms = 0
    for _ in range(REPEATS):
        easy, bold = rng.random(truths), rng.random((claims, 1))
        fits = rng.random((claims, truths))
        table = {"coins": fits < 0.3, "rare": fits < 0.05 * easy, "skewed": fits * easy * bold}[
            sort
        ]
        # Truths are dealt to the claims at random, whatever they are like.
        alarms += matching(table[:, rng.permutation(truths)]) <= 0.05
    assert alarms / REPEATS <= 0.05 + SLACK
