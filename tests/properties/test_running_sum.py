"""Sums of updates: exact where they can be, of one rounding an operation where they cannot.

The expectations are plain NumPy and fractions; the order of additions is that of the docstrings:
consecutive clients of a cohort into chunks, the clients of a chunk one after the other, then the
chunks one after the other.
"""

from fractions import Fraction

import numpy as np
import pytest
import torch
from flwr.app import Error, Message, MetricRecord, RecordDict
from host_vectors import as_tensor, on_host, to_vectors
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fedpriv.federation.grids._flwr import enter_run
from fedpriv.federation.grids.base import ClientGrid
from fedpriv.federation.messages import (
    CLIENT,
    METRICS,
    NUM_EXAMPLES,
    UPDATE,
    Chunk,
    Instruction,
    RunningSum,
    chunks,
    instruct,
    sum_of,
    to_array_record,
)
from fedpriv.federation.secagg.messages import signed_of, words_of

reasonable = st.floats(-1e3, 1e3, width=32)
weights = st.integers(1, 500)
LENGTH = 5


@st.composite
def updates(draw, elements=reasonable, dtype=np.float32, least=1):
    count = draw(st.integers(least, 10))
    rows = arrays.arrays(dtype, LENGTH, elements=elements)
    return [draw(rows) for _ in range(count)]


def added(vectors, factors):
    total = RunningSum()
    for vector, factor in zip(vectors, factors, strict=True):
        total.add({"float": as_tensor(vector)}, factor)
    return on_host(total.vectors["float"])


@given(st.data(), updates())
def test_a_sum_is_one_rounded_product_and_one_rounded_addition_a_client(data, vectors):
    factors = data.draw(st.lists(weights, min_size=len(vectors), max_size=len(vectors)))
    total = added(vectors, factors)
    assert total.dtype == np.float32
    for place in range(LENGTH):
        expected = np.float32(factors[0]) * vectors[0][place]
        for vector, factor in zip(vectors[1:], factors[1:], strict=True):
            expected = np.float32(expected + np.float32(np.float32(factor) * vector[place]))
        assert total[place].tobytes() == np.float32(expected).tobytes()


@given(st.data(), updates())
def test_a_weighted_sum_is_the_exact_one_within_float32_rounding(data, vectors):
    factors = data.draw(st.lists(weights, min_size=len(vectors), max_size=len(vectors)))
    total = added(vectors, factors)
    for place in range(LENGTH):
        products = [
            Fraction(float(vector[place])) * factor
            for vector, factor in zip(vectors, factors, strict=True)
        ]
        # Each of n products and n - 1 additions is off by at most 2^-24 of what it yields.
        slack = Fraction(len(products) + 1, 2**24) * sum(map(abs, products)) + Fraction(1, 2**140)
        assert abs(Fraction(float(total[place])) - sum(products)) <= slack


@given(updates())
def test_the_same_order_gives_the_same_bits(vectors):
    factors = range(1, len(vectors) + 1)
    assert added(vectors, factors).tobytes() == added(vectors, factors).tobytes()


def test_another_order_gives_other_bits():
    vectors = [np.array([x], np.float32) for x in (1e8, 1.0, -1e8)]
    assert added(vectors, [1, 1, 1]).tolist() == [0]
    assert added([vectors[0], vectors[2], vectors[1]], [1, 1, 1]).tolist() == [1]


@given(updates(least=2))
def test_adding_changes_no_update(vectors):
    before = [vector.copy() for vector in vectors]
    total = RunningSum()
    for vector in vectors:
        total.add({"float": as_tensor(vector)}, 3)
    total.vectors["float"].zero_()
    assert all(one.tobytes() == other.tobytes() for one, other in zip(vectors, before, strict=True))


def test_the_sum_does_not_follow_an_update_that_changes_later():
    total, vector = RunningSum(), torch.ones(2)
    total.add({"float": vector})
    vector[:] = 7
    total.add({"float": vector}, 2)
    vector[:] = 100
    assert on_host(total.vectors["float"]).tolist() == [15, 15]


def test_a_float64_sum_stays_float64():
    total = added([np.array([2**-60]), np.array([1.0])], [3, 1])
    assert total.dtype == np.float64
    assert added([np.array([2**-60])], [3]).tolist() == [3 * 2**-60]


big = st.integers(-(2**52), 2**52)


@given(st.data(), updates(elements=big, dtype=np.int64))
def test_integers_add_exactly(data, vectors):
    factors = data.draw(st.lists(weights, min_size=len(vectors), max_size=len(vectors)))
    total = added(vectors, factors)
    assert total.dtype == np.int64
    assert total.tolist() == [
        sum(int(vector[place]) * factor for vector, factor in zip(vectors, factors, strict=True))
        for place in range(LENGTH)
    ]


@given(updates(elements=st.integers(0, 2**32 - 1), dtype=np.uint32))
def test_ring_elements_wrap_around_at_their_width(vectors):
    total = RunningSum()
    for vector in vectors:
        total.add({"float": signed_of(vector)})
    total = words_of(total.vectors["float"])
    assert total.dtype == np.uint32
    assert total.tolist() == [
        sum(int(vector[place]) for vector in vectors) % 2**32 for place in range(LENGTH)
    ]


def test_integers_are_not_weighted_by_a_float():
    with pytest.raises(ValueError, match=r"cannot be weighted by 2\.5$"):
        RunningSum().add({"integer": torch.tensor([1])}, 2.5)


def test_several_vectors_are_summed_side_by_side():
    total = RunningSum()
    total.add({"float": torch.ones(2), "integer": torch.tensor([5])}, 2)
    total.add({"float": torch.full((2,), 0.5), "integer": torch.tensor([-1])}, 4)
    assert on_host(total.vectors["float"]).tolist() == [4, 4]
    assert on_host(total.vectors["integer"]).tolist() == [6]


# Chunks


def message(instruction):
    enter_run(1)
    content = instruct(to_array_record({"float": np.zeros(LENGTH, np.float32)}), instruction)
    return Message(content, 2, "train.toy")


def answered(sent, update, **metrics):
    named = {name.replace("_", "-"): value for name, value in metrics.items()}
    content = {UPDATE: to_array_record(update), METRICS: MetricRecord(named)}
    return Message(RecordDict(content), reply_to=sent)


def served(cohort, replies, size, instruction):
    """What the server receives if the cohort is served in chunks of `size`."""
    for start in range(0, len(cohort), size):
        chunk = Chunk(message(instruction))
        for place in range(start, min(start + size, len(cohort))):
            chunk.add(cohort[place], replies[place])
        yield from chunk.replies()


WEIGHTED = Instruction(round=1, weight=NUM_EXAMPLES, metrics=(NUM_EXAMPLES,))


@given(st.data(), updates(), st.integers(1, 11))
def test_sums_of_chunks_are_the_documented_additions(data, vectors, size):
    count = len(vectors)
    factors = data.draw(st.lists(weights, min_size=count, max_size=count))
    failing = data.draw(st.sets(st.integers(0, count - 1)))
    cohort = [3 * place + 1 for place in range(count)]
    sent = message(WEIGHTED)
    replies = [
        Message(Error(2, "OutOfLuck"), reply_to=sent)
        if place in failing
        else answered(sent, {"float": vector}, num_examples=factor)
        for place, (vector, factor) in enumerate(zip(vectors, factors, strict=True))
    ]
    total = sum_of(served(cohort, replies, size, WEIGHTED))

    by_hand = None
    for start in range(0, count, size):
        chunk = None
        for place in range(start, min(start + size, count)):
            if place not in failing:
                factor = factors[place]
                term = vectors[place] if factor == 1 else vectors[place] * np.float32(factor)
                chunk = term if chunk is None else chunk + term
        if chunk is not None:
            by_hand = chunk if by_hand is None else by_hand + chunk

    left = [place for place in range(count) if place not in failing]
    assert total.clients == [cohort[place] for place in left]
    assert total.metrics.get(NUM_EXAMPLES, []) == [factors[place] for place in left]
    if by_hand is None:
        assert total.vectors == {}
    else:
        assert on_host(total.vectors["float"]).tobytes() == by_hand.astype(np.float32).tobytes()


def test_where_chunks_are_cut_is_seen_in_the_bits():
    sent = message(Instruction(round=1))
    replies = [
        answered(sent, {"float": np.array([x], np.float32)}, n=1) for x in (1.0, 1e8, -1e8, 1.0)
    ]
    cohort = [0, 1, 2, 3]
    by_size = {
        size: sum_of(served(cohort, replies, size, Instruction(round=1))).vectors["float"].item()
        for size in (1, 2, 3, 4)
    }
    # ((1 + 1e8) - 1e8) + 1;  (1 + 1e8) + (-1e8 + 1);  as the first;  as the first
    assert by_size == {1: 1.0, 2: 0.0, 3: 1.0, 4: 1.0}


def test_a_chunk_answers_once_for_all_and_once_for_each_that_failed():
    sent = message(WEIGHTED)
    chunk = Chunk(sent)
    chunk.add(4, answered(sent, {"float": np.full(2, 1, np.float32)}, num_examples=2, loss=0.5))
    chunk.add(7, Message(Error(2, "OutOfLuck"), reply_to=sent))
    chunk.add(9, answered(sent, {"float": np.full(2, 3, np.float32)}, num_examples=3, loss=0.25))
    total, error = chunk.replies()
    assert error.error.reason == "OutOfLuck"
    assert sorted(total.content) == [METRICS, UPDATE]
    assert dict(total.content[METRICS]) == {
        CLIENT: [4, 9],
        NUM_EXAMPLES: [2, 3],
        "loss": [0.5, 0.25],
    }
    assert to_vectors(total.content[UPDATE])["float"].tolist() == [11, 11]


@pytest.mark.parametrize("instruction", [None, Instruction(round=1, summed=False)])
def test_without_a_wish_for_sums_every_reply_travels_as_it_is(instruction):
    enter_run(1)
    sent = message(instruction) if instruction else Message(RecordDict(), 2, "train")
    chunk = Chunk(sent)
    replies = [answered(sent, {"float": np.ones(1, np.float32)}, n=n) for n in range(3)]
    for client, reply in enumerate(replies):
        chunk.add(client, reply)
    assert all(one is other for one, other in zip(chunk.replies(), replies, strict=True))


@given(st.lists(st.integers(), max_size=40), st.integers(1, 50))
def test_chunks_are_runs_of_the_cohort(cohort, size):
    cut = list(chunks(cohort, size))
    assert [client for chunk in cut for client in chunk] == cohort
    assert all(len(chunk) == size for chunk in cut[:-1])
    assert all(1 <= len(chunk) <= size for chunk in cut)


class NoGrid(ClientGrid):
    """Only the cutting of a grid."""

    def _deliver(self, messages, timeout):
        raise NotImplementedError


@given(st.integers(0, 200), st.one_of(st.none(), st.integers(1, 30)))
def test_every_grid_cuts_a_cohort_into_eighths_unless_told_otherwise(count, size):
    cut = NoGrid(300, size).chunked(list(range(count)))
    assert [client for chunk in cut for client in chunk] == list(range(count))
    expected = size or max(1, -(-count // 8))
    assert [len(chunk) for chunk in cut[:-1]] == [expected] * (len(cut) - 1)
    assert len(cut) == -(-count // expected)
    if size is None:
        assert len(cut) <= 8
