"""Which tensors travel, as what, and that none of them changes on the way."""

import math
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from toy import Net, norm_net

from fedpriv.federation.messages import is_finite
from fedpriv.runtime.vectors import ParameterLayout, as_tensor


class Pair(nn.Module):
    """Six numbers whose values tell where they are from: 1 2 3 | 4 5 | 6."""

    def __init__(self, dtype=torch.float32):
        super().__init__()
        self.first = nn.Parameter(torch.tensor([1, 2, 3], dtype=dtype))
        self.second = nn.Parameter(torch.tensor([[4], [5]], dtype=dtype))
        self.third = nn.Parameter(torch.tensor(6, dtype=dtype))


class Tied(nn.Module):
    """A decoder that shares the encoder's weight."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(2, 2, bias=False)
        self.decoder = nn.Linear(2, 2)
        self.decoder.weight = self.encoder.weight
        with torch.no_grad():
            self.encoder.weight.copy_(torch.tensor([[1, 2], [3, 4]]))
            self.decoder.bias.copy_(torch.tensor([5, 6]))


class Buffered(nn.Module):
    """A parameter, a persistent buffer of each kind, and one that is not saved."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([1.0, 2.0]))
        self.register_buffer("mean", torch.tensor([3.0]))
        self.register_buffer("count", torch.tensor(4))
        self.register_buffer("seen", torch.tensor([True, False]))
        self.register_buffer("cache", torch.tensor([99.0]), persistent=False)


def state(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def assert_state(model, expected):
    assert all(torch.equal(tensor, expected[name]) for name, tensor in state(model).items())


def assert_vectors(got, **expected):
    assert {name: vector.tolist() for name, vector in got.items()} == expected


def test_parameters_are_one_flat_float32_vector_in_their_models_order():
    read = ParameterLayout(Pair()).read()
    assert_vectors(read, float=[1, 2, 3, 4, 5, 6])
    assert read["float"].dtype == torch.float32
    assert read["float"].is_contiguous()


def test_writing_puts_every_number_in_its_place():
    model = Pair()
    ParameterLayout(model).write(
        {"float": torch.tensor([10, 20, 30, 40, 50, 60], dtype=torch.float32)}
    )
    assert model.first.tolist() == [10, 20, 30]
    assert model.second.tolist() == [[40], [50]]
    assert model.third.item() == 60
    assert all(p.requires_grad and p.grad is None for p in model.parameters())


def test_tied_weights_travel_once_and_arrive_twice():
    model = Tied()
    layout = ParameterLayout(model)
    assert_vectors(layout.read(), float=[1, 2, 3, 4, 5, 6])
    layout.write({"float": torch.tensor([7, 8, 9, 10, 11, 12], dtype=torch.float32)})
    assert model.encoder.weight.tolist() == model.decoder.weight.tolist() == [[7, 8], [9, 10]]
    assert model.decoder.weight is model.encoder.weight


def test_frozen_parameters_do_not_travel():
    model = Pair()
    model.second.requires_grad_(False)
    layout = ParameterLayout(model, buffers=True)
    assert_vectors(layout.read(), float=[1, 2, 3, 6])
    layout.write({"float": torch.zeros(4)})
    assert model.second.tolist() == [[4], [5]]


def test_buffers_stay_at_home_unless_they_are_asked_for():
    model = norm_net()
    parameters = sum(p.numel() for p in model.parameters())
    before = state(model)
    layout = ParameterLayout(model)
    assert list(layout.read()) == ["float"]
    assert layout.read()["float"].numel() == parameters == 74
    layout.write({"float": torch.zeros(74)})
    for name in ("running_mean", "running_var", "num_batches_tracked"):
        assert torch.equal(model.state_dict()[f"layers.1.{name}"], before[f"layers.1.{name}"])


def test_batch_norms_buffers_travel_with_the_counter_as_an_integer():
    model = norm_net()
    norm = model.layers[1]
    with torch.no_grad():
        norm.running_mean.fill_(0.25)
        norm.running_var.fill_(4)
        norm.num_batches_tracked.fill_(7)
    read = ParameterLayout(model, buffers=True).read()
    assert read["integer"].tolist() == [7]
    assert read["integer"].dtype == torch.int64
    assert read["float"].numel() == 74 + 16
    assert read["float"][74:].tolist() == [0.25] * 8 + [4] * 8


@pytest.mark.parametrize("count", [2**24 + 1, 2**53 + 1, 2**63 - 1, -(2**63)])
def test_integers_are_exact_beyond_what_a_float_can_hold(count):
    sender, receiver = norm_net(), norm_net()
    sender.layers[1].num_batches_tracked.fill_(count)
    vectors = ParameterLayout(sender, buffers=True).read()
    assert vectors["integer"].tolist() == [count]
    ParameterLayout(receiver, buffers=True).write(vectors)
    assert receiver.layers[1].num_batches_tracked.item() == count
    assert receiver.layers[1].num_batches_tracked.shape == ()


def test_buffers_that_are_not_saved_stay():
    model = Buffered()
    layout = ParameterLayout(model, buffers=True)
    assert_vectors(layout.read(), float=[1, 2, 3], integer=[4, 1, 0])
    layout.write(
        {"float": torch.tensor([5, 6, 7], dtype=torch.float32), "integer": torch.tensor([8, 0, 1])}
    )
    assert model.cache.tolist() == [99]
    assert model.mean.tolist() == [7]
    assert model.count.item() == 8
    assert model.seen.tolist() == [False, True]


def test_one_float64_tensor_makes_the_vector_float64():
    model = Pair()
    model.first = nn.Parameter(torch.tensor([1 / 3, 2**-60, 1e300], dtype=torch.float64))
    read = ParameterLayout(model).read()
    assert read["float"].dtype == torch.float64
    assert read["float"].tolist() == [1 / 3, 2**-60, 1e300, 4, 5, 6]
    twin = Pair()
    twin.first = nn.Parameter(torch.zeros(3, dtype=torch.float64))
    ParameterLayout(twin).write(read)
    assert twin.first.tolist() == [1 / 3, 2**-60, 1e300]
    assert twin.second.dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_travels_as_float32_and_returns_the_same(dtype):
    model = Pair(dtype)
    odd = torch.tensor([1 + 2**-7, -0.0, 3.140625], dtype=dtype)
    with torch.no_grad():
        model.first.copy_(odd)
    read = ParameterLayout(model).read()
    assert read["float"].dtype == torch.float32
    assert read["float"][:3].tolist() == [1.0078125, 0, 3.140625]
    twin = Pair(dtype)
    ParameterLayout(twin).write(read)
    assert twin.first.dtype == dtype
    assert torch.equal(twin.first.view(torch.int16), odd.view(torch.int16))


@pytest.mark.parametrize("build", [Pair, Tied, Buffered, Net, norm_net])
@pytest.mark.parametrize("buffers", [False, True])
def test_writing_what_was_read_changes_no_bit(build, buffers):
    model = build()
    before = state(model)
    layout = ParameterLayout(model, buffers=buffers)
    layout.write(layout.read())
    for name, tensor in model.state_dict().items():
        assert tensor.dtype == before[name].dtype
        assert tensor.numpy().tobytes() == before[name].numpy().tobytes()


@pytest.mark.parametrize("build", [Pair, Tied, Buffered, norm_net])
def test_named_and_vectors_are_each_others_inverse(build):
    layout = ParameterLayout(build(), buffers=True)
    read = layout.read()
    again = layout.vectors(layout.named(read))
    assert list(again) == list(read)
    for kind, vector in read.items():
        assert again[kind].dtype == vector.dtype
        assert torch.equal(again[kind], vector)


def test_named_cuts_the_vectors_into_the_models_shapes():
    vectors = {
        "float": torch.tensor([1, 2, 3], dtype=torch.float32),
        "integer": torch.tensor([4, 1, 0]),
    }
    named = ParameterLayout(Buffered(), buffers=True).named(vectors)
    assert {name: tensor.tolist() for name, tensor in named.items()} == {
        "weight": [1, 2],
        "mean": [3],
        "count": 4,
        "seen": [1, 0],
    }


def test_names_may_come_in_any_order():
    layout = ParameterLayout(Pair())
    named = layout.named(layout.read())
    shuffled = {name: named[name] for name in ("third", "first", "second")}
    assert_vectors(layout.vectors(shuffled), float=[1, 2, 3, 4, 5, 6])


def test_a_read_is_a_copy_and_a_write_keeps_no_reference():
    for build in (Pair, lambda: nn.Linear(2, 1, bias=False)):
        model = build()
        layout = ParameterLayout(model)
        before = state(model)
        read = layout.read()
        read["float"][:] = -1
        assert_state(model, before)
        layout.write(read)
        written = state(model)
        read["float"][:] = -2
        assert_state(model, written)


def test_the_change_is_now_minus_then_for_floats_and_integers():
    model = Buffered()
    layout = ParameterLayout(model, buffers=True)
    start = layout.read()
    with torch.no_grad():
        model.weight.copy_(torch.tensor([1.5, 1.0]))
        model.count.fill_(10)
    assert_vectors(layout.change_since(start), float=[0.5, -1, 0], integer=[6, 0, 0])
    assert_vectors(start, float=[1, 2, 3], integer=[4, 1, 0])


@pytest.mark.parametrize("build", [Pair, Tied, Buffered, norm_net])
def test_the_change_is_of_every_number_in_its_place(build):
    model = build()
    layout = ParameterLayout(model, buffers=True)
    start = {k: torch.arange(len(v), dtype=v.dtype) for k, v in layout.read().items()}
    now, change = layout.read(), layout.change_since(start)
    assert list(change) == list(now)
    for kind, vector in change.items():
        assert vector.dtype == now[kind].dtype
        assert vector.tolist() == (now[kind] - torch.arange(len(vector))).tolist()


def test_the_change_of_a_half_precision_model_is_not_rounded_to_its_precision():
    model = Pair(torch.bfloat16)
    start = {"float": torch.tensor([1, 2, 3, 4, 5, 6 + 2**-10], dtype=torch.float32)}
    assert_vectors(ParameterLayout(model).change_since(start), float=[0, 0, 0, 0, 0, -(2**-10)])


@pytest.mark.parametrize("odd", [None, math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", [0, 1, 70_000])
def test_one_odd_number_anywhere_is_found(place, odd):
    vector = torch.linspace(-1, 1, 70_001)
    if odd is not None:
        vector[place] = odd
    assert is_finite(vector) is (odd is None)
    assert is_finite(vector[:0])


def test_read_only_arrays_are_taken_without_a_warning():
    vector = np.arange(6, dtype=np.float32)
    vector.setflags(write=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ParameterLayout(Pair()).write({"float": vector})
        assert as_tensor(vector).tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        (
            {
                "float": torch.zeros(2, dtype=torch.float64),
                "integer": torch.zeros(3, dtype=torch.float64),
            },
            "holds 3 float values, the message 2",
        ),
        (
            {
                "float": torch.zeros(4, dtype=torch.float64),
                "integer": torch.zeros(3, dtype=torch.float64),
            },
            "holds 3 float values, the message 4",
        ),
        ({"integer": torch.zeros(3, dtype=torch.float64)}, "holds 3 float values, the message 0"),
        ({"float": torch.zeros(3, dtype=torch.float64)}, "holds 3 integer values, the message 0"),
        (
            {
                "float": torch.zeros(3, dtype=torch.float64),
                "integer": torch.zeros(9, dtype=torch.float64),
            },
            "holds 3 integer values, the message 9",
        ),
    ],
)
def test_a_vector_of_another_length_is_refused(vectors, message):
    with pytest.raises(ValueError, match=f"^the model {message}$"):
        ParameterLayout(Buffered(), buffers=True).write(vectors)


def test_integers_are_refused_where_none_are_expected():
    with pytest.raises(ValueError, match=r"^the model holds 0 integer values, the message 1$"):
        ParameterLayout(Pair()).write(
            {
                "float": torch.zeros(6, dtype=torch.float64),
                "integer": torch.zeros(1, dtype=torch.int64),
            }
        )


def test_tensors_of_another_model_are_named():
    layout = ParameterLayout(Pair())
    named = layout.named(layout.read())
    with pytest.raises(ValueError, match=r"they differ in \['fourth', 'third'\]"):
        layout.vectors({("fourth" if k == "third" else k): v for k, v in named.items()})
    with pytest.raises(ValueError, match=r"they differ in \['third'\]"):
        layout.vectors({k: v for k, v in named.items() if k != "third"})


def test_a_model_without_anything_trainable_is_refused():
    model = nn.Linear(2, 1).requires_grad_(False)
    with pytest.raises(ValueError, match=r"^Linear has no trainable parameter to exchange$"):
        ParameterLayout(model, buffers=True)


def test_complex_tensors_cannot_travel():
    model = Pair()
    model.phase = nn.Parameter(torch.zeros(2, dtype=torch.complex64))
    with pytest.raises(ValueError, match=r"^phase: a tensor of torch\.complex64 cannot travel$"):
        ParameterLayout(model)
