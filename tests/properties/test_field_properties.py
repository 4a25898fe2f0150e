"""What CDMI's App. B claims of AccAUC and HamAAC, put right, over generated reconstructions."""

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fedpriv.threat.scoring.fields import Shots, Similarity, improvement_factor

TINY = 1e-9
"""Sums of a few numbers are equal up to this; a difference of one token is far larger."""

k_tokens = 12
distances = st.lists(st.integers(0, k_tokens), min_size=2, max_size=25)
few = st.lists(st.integers(0, 3), min_size=2, max_size=5)
means = st.builds(
    Similarity,
    pr=st.floats(0, 1),
    hd=st.floats(0, 15),
    ham=st.floats(0, 1),
    ld=st.floats(0, 1),
    jwd=st.floats(0, 1),
)


def in_order(wrong, tokens=k_tokens):
    """The reconstructions in this order, the surest first; `wrong`: wrong tokens of each."""
    wrong = np.array(wrong)
    confidence = -np.arange(len(wrong), dtype=np.float64)
    return Shots(confidence, (wrong == 0).astype(np.float64), wrong / tokens)


@given(distances, st.data())
def test_the_better_one_of_two_neighbours_first_never_lowers_and_mostly_raises(wrong, data):
    i = data.draw(st.integers(0, len(wrong) - 2))
    assume(wrong[i] > wrong[i + 1])
    swapped = [*wrong[:i], wrong[i + 1], wrong[i], *wrong[i + 2 :]]
    before, after = in_order(wrong), in_order(swapped)
    assert after.ham_aac > before.ham_aac + TINY
    assert after.acc_auc >= before.acc_auc - TINY
    if wrong[i + 1] == 0:
        assert after.acc_auc > before.acc_auc + TINY
    # Only the i surest change: App. B, item 1, whose proof has the sign of HamAt the other way.
    assert after.ham_curve[i] < before.ham_curve[i]
    np.testing.assert_allclose(np.delete(after.ham_curve, i), np.delete(before.ham_curve, i))


@given(distances, st.data())
def test_any_two_places_may_be_swapped(wrong, data):
    i = data.draw(st.integers(0, len(wrong) - 2))
    j = data.draw(st.integers(i + 1, len(wrong) - 1))
    assume(wrong[i] > wrong[j])
    swapped = list(wrong)
    swapped[i], swapped[j] = wrong[j], wrong[i]
    before, after = in_order(wrong), in_order(swapped)
    assert after.ham_aac > before.ham_aac + TINY
    assert (after.ham_curve[i:j] < before.ham_curve[i:j]).all()
    np.testing.assert_allclose(after.ham_curve[j:], before.ham_curve[j:])


@settings(max_examples=40)
@given(few)
def test_the_sorted_orders_and_no_others_reach_the_maximum(wrong):
    orders = list(itertools.permutations(wrong))
    of_ham = {order: in_order(order, tokens=3).ham_aac for order in orders}
    of_acc = {order: in_order(order, tokens=3).acc_auc for order in orders}
    best = {order for order in orders if of_ham[order] > max(of_ham.values()) - TINY}
    assert best == {tuple(sorted(wrong))}
    best = {order for order in orders if of_acc[order] > max(of_acc.values()) - TINY}
    right_first = {order for order in orders if list(map(bool, order)) == sorted(map(bool, wrong))}
    assert best == right_first


@given(distances, st.data())
def test_a_better_reconstruction_raises_both_areas(wrong, data):
    i = data.draw(st.integers(0, len(wrong) - 1))
    assume(wrong[i] > 0)
    better = [*wrong[:i], data.draw(st.integers(0, wrong[i] - 1)), *wrong[i + 1 :]]
    before, after = in_order(wrong), in_order(better)
    # App. B, item 2, has the inequality between the distances the other way.
    assert after.ham_aac > before.ham_aac + TINY
    assert (after.ham_curve[i:] < before.ham_curve[i:]).all()
    assert after.acc_auc >= before.acc_auc
    if better[i] == 0:
        assert after.acc_auc > before.acc_auc + TINY


@settings(max_examples=40)
@given(few, st.data())
def test_ties_are_the_mean_over_all_orders_of_the_tied(wrong, data):
    m = len(wrong)
    confidence = data.draw(st.lists(st.integers(0, 2), min_size=m, max_size=m))
    possible = [
        in_order([wrong[i] for i in order], tokens=3)
        for order in itertools.permutations(range(m))
        if all(confidence[a] >= confidence[b] for a, b in itertools.pairwise(order))
    ]
    ham = np.array(wrong) / 3
    found = Shots(np.array(confidence, np.float64), (ham == 0).astype(np.float64), ham)
    for name in ("acc_auc", "ham_aac"):
        expected = np.mean([getattr(one, name) for one in possible])
        assert getattr(found, name) == pytest.approx(expected)
    for name in ("acc_at", "ham_at"):
        expected = np.mean([getattr(one, name)(1 / m) for one in possible])
        assert getattr(found, name)(1 / m) == pytest.approx(expected)


@given(distances, st.data())
def test_all_numbers_lie_where_they_must_and_only_the_order_of_confidence_counts(wrong, data):
    m = len(wrong)
    confidence = np.array(
        data.draw(st.lists(st.integers(-9, 9), min_size=m, max_size=m)), np.float64
    )
    ham = np.array(wrong) / k_tokens
    right = (ham == 0).astype(np.float64)
    one, other = Shots(confidence, right, ham), Shots(np.exp(confidence), right, ham)
    for name in ("acc_auc", "ham_aac"):
        assert -TINY <= getattr(one, name) <= 1 + TINY
        assert getattr(one, name) == pytest.approx(getattr(other, name))
    assert one.acc_auc <= one.ham_aac + TINY  # a wrong one has a distance of 1 at most
    rows = np.array(data.draw(st.permutations(range(m))))
    assert one.take(rows).ham_curve == pytest.approx(one.ham_curve)


@given(means, st.floats(0.001, 1))
def test_the_improvement_factor_of_equals_is_exactly_1(mean, epsilon):
    assert improvement_factor(mean, mean, epsilon=epsilon) == 1


@given(means, means, st.sampled_from(["pr", "hd", "ld", "jwd"]), st.floats(0.01, 1))
def test_the_improvement_factor_rises_as_the_attack_improves(attack, baseline, name, step):
    change = step if name == "pr" else -step
    better = dataclasses.replace(attack, **{name: getattr(attack, name) + change})
    assume(0 <= getattr(better, name) <= (15 if name == "hd" else 1))
    assert improvement_factor(better, baseline) > improvement_factor(attack, baseline)
    assert improvement_factor(baseline, better) < improvement_factor(baseline, attack)


token = st.integers(0, 5)


@given(
    st.integers(1, 15).flatmap(lambda k: st.tuples(*[st.lists(token, min_size=k, max_size=k)] * 2))
)
def test_distances_are_symmetric_and_0_for_equals_only(pair):
    true, guess = pair
    one, other = Similarity.of(true, guess), Similarity.of(guess, true)
    assert dataclasses.astuple(one) == pytest.approx(dataclasses.astuple(other))
    assert one.hd == sum(a != b for a, b in zip(true, guess, strict=True))
    for name in ("ham", "ld", "jwd"):
        assert 0 <= getattr(one, name) <= 1
        assert (getattr(one, name) == pytest.approx(0, abs=TINY)) == (true == guess)
    assert one.pr == (true == guess)
    assert one.ld <= one.ham + TINY
