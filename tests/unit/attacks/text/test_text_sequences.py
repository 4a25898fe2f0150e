"""Sequences read as a tree, of a recurrence whose states are known."""

import numpy as np
import pytest

from fedpriv.attacks.text.sequences import read_sequences, tells

WIDTH, START, END = 24, 0, 9
RNG = np.random.default_rng(0)
WORDS = RNG.standard_normal((10, WIDTH))
TURN = np.linalg.qr(RNG.standard_normal((WIDTH, WIDTH)))[0]


def states(ids):
    """What a sublayer reads at the last place: every token before it counts, and in order."""
    state = np.zeros((len(ids), WIDTH))
    for column in np.asarray(ids).T:
        state = np.tanh(state @ TURN + WORDS[column])
    return state


def span_of(sequences):
    beginnings = [s[: n + 1] for s in sequences for n in range(len(s))]
    rows = np.concatenate([states([beginning]) for beginning in beginnings])
    _, values, directions = np.linalg.svd(rows)
    return directions[: int((values > 1e-9 * values[0]).sum())]


def read(sequences, size=None, longest=8, end=None):
    found = read_sequences(
        states, START, np.arange(1, 10), span_of(sequences), size or len(sequences), longest, end
    )
    return [tuple(ids.tolist()) for ids in found]


def test_all_sequences_come_back_in_order():
    true = [(0, 3, 1, 4), (0, 3, 1, 5, 5), (0, 2), (0, 7, 7, 7, 7, 7)]
    assert sorted(read(true)) == sorted(true)


def test_equal_sequences_are_one():
    assert read([(0, 3, 1), (0, 3, 1)]) == [(0, 3, 1)]


def test_a_beginning_of_another_is_told_by_its_end():
    true = [(0, 3, 1), (0, 3, 1, 4)]
    assert read(true) == [(0, 3, 1, 4)]
    true = [(*sequence, END) for sequence in true]
    assert read(true, end=END) == true


def test_nothing_is_longer_than_it_can_be():
    assert read([(0, 3, 1, 4)], longest=3) == [(0, 3, 1)]


@pytest.mark.parametrize(("rank", "enough"), [(0, True), (20, True), (21, False), (24, False)])
def test_a_span_that_is_almost_everything_tells_nothing(rank, enough):
    assert tells(np.eye(WIDTH)[:rank]) is enough
