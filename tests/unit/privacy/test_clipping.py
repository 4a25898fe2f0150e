"""Clipping: numbers worked out by hand, long vectors, and what is refused."""

import math

import numpy as np
import pytest
import torch
from host_vectors import clip_array as clip
from torch.utils._python_dispatch import TorchDispatchMode

from fedpriv.privacy.clipping import (
    check_clip_norm,
    clip_factor,
    sum_of_squares,
)


def test_three_and_four():
    result = clip(np.array([3.0, 4.0]), 1.0)
    np.testing.assert_allclose(result.clipped, [0.6, 0.8], rtol=1e-11)
    assert result.norm == 5.0
    assert result.finite


def test_a_norm_of_exactly_c_is_inside():
    x = np.array([3.0, -4.0], np.float32)
    assert clip(x, 5.0).clipped is x


@pytest.mark.parametrize("shape", [(), (2, 2), (0, 3)])
def test_arrays_of_every_shape(shape):
    x = np.full(shape, 3.0)
    result = clip(x, math.sqrt(2.25 * x.size) or 1.0)
    assert result.norm == pytest.approx(math.sqrt(9 * x.size))
    assert result.clipped.shape == shape
    np.testing.assert_allclose(result.clipped, x / 2, rtol=1e-11)


def test_zero_and_nothing_stay_what_they_are():
    for x in (np.zeros(5, np.float32), np.zeros(0)):
        result = clip(x, 0.1)
        assert result.clipped is x
        assert (result.norm, result.finite) == (0.0, True)


def test_vectors_out_of_shared_memory_and_out_of_order():
    x = np.array([[3.0, 0.0], [4.0, 0.0]])[:, 0]  # strided
    x.flags.writeable = False
    np.testing.assert_allclose(clip(x, 1.0).clipped, [0.6, 0.8], rtol=1e-11)
    np.testing.assert_array_equal(x, [3.0, 4.0])


def test_a_long_vector_is_measured_exactly_where_float32_is_not():
    x = np.full(3_000_001, 0.1, np.float32)
    true = math.sqrt(3_000_001) * float(np.float32(0.1))
    result = clip(x, 1.0)
    assert result.norm == pytest.approx(true, rel=1e-13)
    left = math.fsum((result.clipped.astype(np.float64) ** 2).tolist())
    assert 1 - 1e-6 < math.sqrt(left) <= 1.0
    # The reason for float64: torch's own norm of this vector is off by much more than that.
    assert torch.linalg.vector_norm(torch.from_numpy(x)).item() != pytest.approx(true, rel=1e-13)


class Made(TorchDispatchMode):
    """Keeps the most bytes of a tensor that an operation has made, by its type."""

    def __init__(self):
        super().__init__()
        self.most = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **kwargs or {})
        for one in torch.utils._pytree.tree_leaves(result):
            if isinstance(one, torch.Tensor):
                self.most[one.dtype] = max(self.most.get(one.dtype, 0), one.nbytes)
        return result


def test_no_copy_in_float64_is_made():
    x = np.ones(4_000_000, np.float32)
    with Made() as made:
        clip(x, 1.0)
    assert made.most[torch.float32] == x.nbytes
    assert made.most[torch.float64] < 0.1 * x.nbytes  # a block


@pytest.mark.parametrize("magnitude", [1e-200, 1e200, 1e-320])
def test_float64_beyond_the_range_of_its_squares(magnitude):
    x = np.array([3.0, 4.0]) * magnitude
    result = clip(x, magnitude)
    assert result.finite
    assert result.norm == pytest.approx(5 * magnitude, rel=1e-3)
    np.testing.assert_allclose(result.clipped / magnitude, [0.6, 0.8], rtol=1e-3)
    assert math.hypot(*result.clipped) <= magnitude


def test_a_norm_beyond_float64_counts_as_not_finite():
    result = clip(np.full(100, 1e308), 1.0)
    assert (result.norm, result.finite) == (math.inf, False)
    assert not result.clipped.any()


def test_half_precision_keeps_the_bound():
    x = np.linspace(-3, 3, 1000).astype(np.float16)
    result = clip(x, 1.0)
    assert result.clipped.dtype == np.float16
    assert 0.95 < math.sqrt(np.sum(result.clipped.astype(np.float64) ** 2)) <= 1.0


def test_where_results_are_subnormal_the_bound_still_holds():
    x = np.ones(1000, np.float32)
    for clip_norm in (1e-43, 2.66e-44, 1e-45):  # the second is rounded up by two thirds
        clipped = clip(x, clip_norm).clipped.astype(np.float64)
        assert math.sqrt(np.sum(clipped * clipped)) <= clip_norm


@pytest.mark.parametrize("clip_norm", [0.0, -1.0, math.nan, math.inf])
def test_a_clip_norm_must_be_positive_and_finite(clip_norm):
    with pytest.raises(ValueError, match=f"clip_norm={clip_norm}: expected a positive, finite"):
        clip(np.ones(2), clip_norm)
    with pytest.raises(ValueError, match="clip_norm"):
        check_clip_norm(clip_norm)


def test_integers_are_refused():
    with pytest.raises(TypeError, match=r"the vector is of torch\.int64: only floats"):
        clip(np.ones(2, np.int64), 1.0)


def test_the_factor():
    assert clip_factor(0.5, 1.0, torch.float32) == 1
    assert clip_factor(1.0, 1.0, torch.float32) == 1
    assert clip_factor(4.0, 1.0, torch.float32) == pytest.approx(0.25, rel=1e-6)
    assert clip_factor(4.0, 1.0, torch.float32) < 0.25
    assert clip_factor(4.0, 1.0, torch.float64) == pytest.approx(0.25, rel=1e-11)
    assert clip_factor(math.nan, 1.0, torch.float32) == 0
    assert clip_factor(math.inf, 1.0, torch.float32) == 0
    assert clip_factor(3e38, 1e-3, torch.float32) == 0  # not a number of few digits


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_sums_of_squares_of_all_floats(dtype):
    many = torch.full((300, 300), 0.5, dtype=dtype)  # more than a block
    total = sum_of_squares([many, torch.tensor(2.0, dtype=dtype), torch.zeros(0, dtype=dtype)])
    assert total.dtype == torch.float64
    assert total.item() == 22_504
    assert sum_of_squares([]).item() == 0
