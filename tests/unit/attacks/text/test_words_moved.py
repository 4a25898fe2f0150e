"""Whose words are these? Sums of changing cohorts, compared."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedpriv.attacks.text.attack import TextRecovery
from fedpriv.attacks.text.words_moved import moved, of_each, table_of_words, telling_table
from fedpriv.models.donut import donut
from fedpriv.models.layoutlmv3 import layoutlmv3
from fedpriv.models.vt5 import vt5

WORDS = 30


@st.composite
def federations(draw):
    """Which words each client has, and who took part in each round."""
    clients = draw(st.integers(2, 6))
    has = draw(st.lists(st.sets(st.integers(0, WORDS - 1)), min_size=clients, max_size=clients))
    cohort = st.sets(st.integers(0, clients - 1), min_size=1)
    return has, draw(st.lists(cohort, min_size=1, max_size=8))


@given(federations())
def test_every_word_that_is_named_is_the_clients(federation):
    """And it is no other's; all are named that one client has, and every other is cleared of."""
    has, cohorts = federation
    rows = np.array([[word in own for word in range(WORDS)] for own in has])
    sums = [rows[sorted(cohort)].any(0) for cohort in cohorts]
    found = of_each(sums, [tuple(sorted(cohort)) for cohort in cohorts])
    assert set(found) == set().union(*cohorts)
    both = list(zip(sums, cohorts, strict=True))
    for client, named in found.items():
        assert not (named & ~rows[client]).any()
        assert not (named & rows[sorted(set(found) - {client})].any(0)).any()
        for word in np.flatnonzero(rows[client]):
            cleared = [
                any(other in cohort and not total[word] for total, cohort in both)
                for other in set(found) - {client}
            ]
            assert named[word] == all(cleared)


def test_three_clients_of_whom_two_are_in_each_sum():
    rows = np.eye(4, dtype=bool)[:3]
    rows[:, 3] = True  # a word that everybody has is nobody's own
    cohorts = [(0, 1), (1, 2), (0, 2)]
    found = of_each([rows[list(pair)].any(0) for pair in cohorts], cohorts)
    assert [np.flatnonzero(found[client]).tolist() for client in range(3)] == [[0], [1], [2]]


def test_the_same_cohort_again_tells_nothing():
    rows = np.eye(3, dtype=bool)
    found = of_each([rows.any(0)] * 3, [(0, 1, 2)] * 3)
    assert not np.any(list(found.values()))


def test_a_table_that_scores_words_tells_nothing_of_those_that_were_read():
    model = vt5(width=16, layers=1)
    (name,) = table_of_words(model)
    assert name == "language_backbone.shared.weight"
    assert telling_table(model) is None
    model.get_parameter(name).requires_grad_(False)
    assert table_of_words(model) != [name]
    tagger = layoutlmv3(size="tiny", labels=("date",))
    assert telling_table(tagger) == "network.layoutlmv3.embeddings.word_embeddings.weight"
    assert telling_table(donut()) is None
    assert table_of_words(torch.nn.Linear(2, 2)) == []


def test_rows_of_noise_are_not_moved():
    rng = torch.Generator().manual_seed(0)
    table = 0.1 * torch.randn(2000, 16, generator=rng)
    assert moved({"table": table}, "table").sum() <= 1
    table[[5, 7]] += 1
    assert np.flatnonzero(moved({"table": table}, "table")).tolist() == [5, 7]
    table[:] = 0
    table[3, 0] = 1e-12
    assert np.flatnonzero(moved({"table": table}, "table")).tolist() == [3]


def test_more_than_half_of_the_rows_may_be_moved():
    """In a small vocabulary most words are used: that is no noise, if a row was left at zero."""
    rng = torch.Generator().manual_seed(0)
    table = torch.randn(100, 16, generator=rng) * torch.rand(100, 1, generator=rng)
    table[:20] = 0
    assert np.flatnonzero(moved({"table": table}, "table")).tolist() == list(range(20, 100))


@pytest.mark.parametrize("target", ["sum", "messages"])
def test_targets_are_checked(target):
    with pytest.raises(ValueError, match="target"):
        TextRecovery(target=target)
