"""Tables of examples: rows of rows, batches, and arrays that several rows share."""

import threading

import numpy as np
import pytest
import torch

from fedpriv.data.examples import Examples, ahead


def table():
    """Five rows; row k has x = (k, 10k) and label k % 2."""
    number = np.arange(5)
    x = np.stack([number, 10 * number], axis=1).astype(np.float32)
    return Examples.of({"x": x, "y": number % 2})


def test_all_rows_are_there_in_order():
    assert len(table()) == 5
    assert table().column("x").tolist() == [[0, 0], [1, 10], [2, 20], [3, 30], [4, 40]]


def test_rows_may_be_taken_in_any_order_and_more_than_once():
    assert table().take([3, 0, 3]).column("x")[:, 0].tolist() == [3, 0, 3]


def test_taking_from_taken_rows_counts_among_those():
    taken = table().take([4, 2, 0]).take(np.array([1, 2]))
    assert taken.column("x")[:, 0].tolist() == [2, 0]
    assert taken.batch(np.array([1]))["x"].tolist() == [[0, 0]]


def test_nothing_may_be_taken():
    none = table().take([])
    assert len(none) == 0
    assert none.column("x").shape == (0, 2)
    assert list(none.batches(3)) == []


def test_taking_leaves_the_table_as_it_is():
    whole = table()
    whole.take([1])
    assert len(whole) == 5


def test_taken_rows_share_the_columns_and_a_column_is_a_copy():
    whole = table()
    taken = whole.take([0, 1])
    assert all(taken.columns[name] is whole.columns[name] for name in ("x", "y"))
    taken.column("x")[:] = -1
    assert whole.column("x")[1].tolist() == [1, 10]


def test_a_batch_is_of_tensors_of_the_columns_kinds():
    batch = table().batch(np.array([2, 1]))
    assert sorted(batch) == ["x", "y"]
    assert batch["x"].tolist() == [[2, 20], [1, 10]]
    assert batch["y"].tolist() == [0, 1]
    assert (batch["x"].dtype, batch["y"].dtype) == (torch.float32, torch.int64)


def test_a_batch_is_a_copy():
    whole = table()
    whole.batch(np.array([0, 1]))["x"].zero_()
    assert whole.column("x")[1].tolist() == [1, 10]


def test_batches_come_in_order_and_the_last_may_be_smaller():
    batches = [batch["x"][:, 0].tolist() for batch in table().batches(2)]
    assert batches == [[0, 1], [2, 3], [4]]


def test_a_generator_shuffles_and_loses_no_row():
    def order(seed):
        rng = np.random.default_rng(seed)
        batches = table().take([4, 3, 2, 1]).batches(3, shuffle=rng)
        return [number for batch in batches for number in batch["x"][:, 0].tolist()]

    assert {tuple(sorted(order(seed))) for seed in range(20)} == {(1, 2, 3, 4)}
    assert len({tuple(order(seed)) for seed in range(20)}) > 5
    assert order(7) == order(7)


def test_a_shared_array_is_looked_up_through_its_pointing_column():
    pages = np.array([[7, 7], [8, 8]], np.uint8)
    examples = Examples.of(
        {"window": np.arange(3), "document": np.array([0, 1, 1])},
        shared={"pixels": (pages, "document")},
    )
    assert examples.batch(np.array([2, 0]))["pixels"].tolist() == [[8, 8], [7, 7]]
    taken = examples.take([1])
    assert taken.batch(np.array([0]))["pixels"].tolist() == [[8, 8]]
    assert np.shares_memory(taken.shared["pixels"][0], pages)
    assert len(examples) == 3


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"x": np.zeros(3), "y": np.zeros(2)}, r"got {'x': 3, 'y': 2}"),
        ({}, r"got {}"),
    ],
)
def test_columns_must_be_of_one_length(columns, message):
    with pytest.raises(ValueError, match=f"^columns must be of one length, {message}$"):
        Examples.of(columns)


def test_a_thread_works_one_argument_ahead_and_in_order():
    begun, done = [], threading.Event()

    def work(argument):
        begun.append(argument)
        if argument == 1:
            done.set()
        return 10 * argument

    results = ahead(work, iter(range(4)))
    assert next(results) == 0
    assert done.wait(10)  # argument 1 is worked on while result 0 is in use
    assert list(results) == [10, 20, 30]
    assert begun == [0, 1, 2, 3]
    assert list(ahead(work, iter(()))) == []


def test_an_error_ahead_comes_where_its_result_would():
    results = ahead(lambda divisor: 1 / divisor, iter([1, 0, 2]))
    assert next(results) == 1
    with pytest.raises(ZeroDivisionError):
        next(results)
    unfinished = ahead(abs, iter(range(5)))
    next(unfinished)
    unfinished.close()  # as `islice` leaves it; its thread ends
