"""Vectors and instructions keep every bit on their way, in memory and in Flower's wire format."""

import math
import pickle

import flwr.app.message.array
import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, RecordDict
from flwr.app.message.array import Array
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from host_vectors import to_vectors
from hypothesis import example, given
from hypothesis import strategies as st

from fedpriv.federation.grids._flwr import VectorArray
from fedpriv.federation.messages import (
    INSTRUCTION,
    PARAMETERS,
    Instruction,
    instruct,
    to_array_record,
)

DTYPES = ["float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint32", "bool"]

# Bit patterns that arithmetic or a cast would lose: -0.0, quiet and signalling NaNs with payload.
ODD_FLOATS = np.array([0x80000000, 0x7FC00000, 0x7FC12345, 0xFFFFFFFF, 0x7F800001], dtype=np.uint32)


@st.composite
def arrays(draw):
    """Arrays of any bits: of every kind that travels, 0-d and empty ones among them."""
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    shape = draw(st.lists(st.integers(0, 4), max_size=3).map(tuple))
    size = math.prod(shape) * dtype.itemsize
    raw = draw(st.binary(min_size=size, max_size=size))
    if dtype.kind == "b":
        raw = bytes(byte & 1 for byte in raw)
    return np.frombuffer(raw, dtype).reshape(shape).copy()


vectors = st.dictionaries(st.text(min_size=1, max_size=10), arrays(), max_size=3)
odd_floats = example({"float": ODD_FLOATS.view(np.float32)})
counter = example({"integer": np.array(2**53 + 1), "empty": np.zeros((2, 0), np.float16)})


def assert_same_bits(got, expected):
    assert list(got) == list(expected)
    for name, vector in expected.items():
        assert isinstance(got[name], np.ndarray)
        assert got[name].dtype == vector.dtype
        assert got[name].shape == vector.shape
        assert got[name].tobytes() == vector.tobytes()


def record_of_vector_arrays(named):
    record = ArrayRecord()
    for name, vector in named.items():
        record[name] = VectorArray(vector)
    return record


def stock_record(named):
    return ArrayRecord({name: Array(vector) for name, vector in named.items()})


def contents(thing):
    """The bytes that Flower's engine would push, by object id."""
    return {key: part.deflate() for key, part in get_all_nested_objects(thing).items()}


def over_the_wire(thing):
    return inflate_object_from_contents(thing.object_id, contents(thing))


@given(vectors)
@odd_floats
@counter
def test_a_record_gives_back_its_vectors(named):
    assert_same_bits(to_vectors(to_array_record(named)), named)


@given(vectors)
@odd_floats
@counter
def test_a_pickled_record_gives_back_its_vectors(named):
    record = pickle.loads(pickle.dumps(to_array_record(named), protocol=5))  # noqa: S301
    assert_same_bits(to_vectors(record), named)


@pytest.mark.parametrize("make", [to_array_record, record_of_vector_arrays])
@given(named=vectors)
@example(named={"float": ODD_FLOATS.view(np.float32)})
@example(named={"integer": np.array(2**53 + 1), "empty": np.zeros((2, 0), np.float16)})
def test_a_record_gives_back_its_vectors_from_the_wire(make, named):
    arrived = over_the_wire(make(named))
    assert type(arrived) is ArrayRecord
    assert_same_bits(to_vectors(arrived), named)


@pytest.mark.parametrize("make", [to_array_record, record_of_vector_arrays])
@given(named=vectors)
def test_on_the_wire_a_record_is_byte_for_byte_that_of_stock_flower(make, named):
    assert contents(make(named)) == contents(stock_record(named))


@given(arrays())
def test_a_pickled_vector_array_is_one_again(array):
    again = pickle.loads(pickle.dumps(VectorArray(array), protocol=5))  # noqa: S301
    assert type(again) is VectorArray
    assert (again.dtype, again.shape, again.stype) == (
        str(array.dtype),
        array.shape,
        Array(array).stype,
    )
    assert_same_bits({"v": again.numpy()}, {"v": array})


@pytest.mark.parametrize("make", [to_array_record, record_of_vector_arrays])
def test_arrays_longer_than_a_wire_chunk_are_cut_like_flowers(make, monkeypatch):
    monkeypatch.setattr(flwr.app.message.array, "FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE", 256)
    # Zeros give equal chunks, which Flower sends once.
    named = {"zeros": np.zeros(1000, np.float32), "counting": np.arange(1000, dtype=np.float32)}
    assert len(contents(make(named))) > 15
    assert contents(make(named)) == contents(stock_record(named))
    assert_same_bits(to_vectors(over_the_wire(make(named))), named)


@pytest.mark.parametrize("layout", ["transposed", "every other", "reversed", "read-only"])
def test_a_view_travels_like_its_copy(layout):
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    view = {"transposed": array.T, "every other": array[:, ::2], "reversed": array[::-1]}.get(
        layout
    )
    if view is None:
        view = array
        view.setflags(write=False)
    expected = {"v": np.array(view.tolist(), np.float32)}
    assert_same_bits(to_vectors(to_array_record({"v": view})), expected)
    assert_same_bits(to_vectors(over_the_wire(to_array_record({"v": view}))), expected)


def test_a_record_is_over_the_same_memory():
    vector = np.arange(5, dtype=np.float32)
    record = to_array_record({"float": vector})
    assert np.shares_memory(to_vectors(record)["float"], vector)


scalars = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.text(max_size=10),
    st.binary(max_size=10),
)
lists = st.one_of(
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=3),
    st.lists(st.floats(allow_nan=False), min_size=1, max_size=3),
    st.lists(st.booleans(), min_size=1, max_size=3),
    st.lists(st.text(max_size=5), min_size=1, max_size=3),
)
names = st.one_of(st.text(max_size=10), st.sampled_from(["round", "metrics", "own-", "own-x"]))
instructions = st.builds(
    Instruction,
    round=st.integers(0, 10_000),
    attempt=st.integers(0, 10),
    summed=st.booleans(),
    weight=st.text(max_size=10),
    buffers=st.booleans(),
    metrics=st.lists(st.text(max_size=10), max_size=3, unique=True).map(tuple),
    settings=st.dictionaries(names, st.one_of(scalars, lists), max_size=4),
)


def assert_same_instruction(got, expected):
    assert got == expected
    # 1 == True == 1.0: the kinds must agree as well.
    assert type(got.summed) is type(got.buffers) is bool
    assert type(got.metrics) is tuple
    kinds = {key: type(value) for key, value in expected.settings.items()}
    assert {key: type(value) for key, value in got.settings.items()} == kinds


@given(instructions)
def test_a_record_gives_back_its_instruction(instruction):
    record = instruction.to_record()
    assert type(record) is ConfigRecord
    assert_same_instruction(Instruction.from_record(record), instruction)


@given(instructions)
def test_an_instruction_comes_back_from_the_wire(instruction):
    content = instruct(to_array_record({"float": np.ones(2, np.float32)}), instruction)
    arrived = over_the_wire(content)
    assert type(arrived) is RecordDict
    assert sorted(arrived) == [INSTRUCTION, PARAMETERS]
    assert_same_instruction(Instruction.from_record(arrived[INSTRUCTION]), instruction)
