"""Region-of-Interest align against its definition; the look of a token as a model adds it."""

import importlib.util
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from transformers import BeitConfig, BeitModel

from fedpriv.data.examples import Examples
from fedpriv.models.encoders.roi import SAMPLES, beit_visual, roi_align, small_visual
from fedpriv.training.per_example import PerExample

SIDES = st.floats(0, 1, width=32)


def boxes_of(*boxes):
    return torch.tensor([boxes], dtype=torch.float64)


def drawn(*shape, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


def bilinear(plane, y, x):
    """The value at a point; cell (i, j) has its centre at (i, j), and the edge goes on."""
    y, x = min(max(y, 0), plane.shape[0] - 1), min(max(x, 0), plane.shape[1] - 1)
    i, j = math.floor(y), math.floor(x)
    i2, j2 = min(i + 1, plane.shape[0] - 1), min(j + 1, plane.shape[1] - 1)
    top = plane[i, j] * (j + 1 - x) + plane[i, j2] * (x - j)
    below = plane[i2, j] * (j + 1 - x) + plane[i2, j2] * (x - j)
    return top * (i + 1 - y) + below * (y - i)


def by_hand(plane, box, samples=SAMPLES):
    """The definition, point by point."""
    height, width = plane.shape
    left, right = box[0] * width - 0.5, box[2] * width - 0.5
    top, bottom = box[1] * height - 0.5, box[3] * height - 0.5
    shares = [(place + 0.5) / samples for place in range(samples)]
    points = [
        bilinear(plane, top + (bottom - top) * down, left + (right - left) * across)
        for down in shares
        for across in shares
    ]
    return sum(points) / len(points)


@settings(max_examples=60)
@given(
    ends=st.tuples(SIDES, SIDES, SIDES, SIDES),
    size=st.tuples(st.integers(1, 5), st.integers(1, 5)),
)
def test_it_is_the_mean_of_points_between_which_the_map_is_interpolated(ends, size):
    (x0, x1), (y0, y1) = sorted(ends[:2]), sorted(ends[2:])
    features = drawn(1, 2, *size)
    found = roi_align(features, boxes_of((x0, y0, x1, y1)))
    assert found.shape == (1, 1, 2)
    for channel in range(2):
        expected = by_hand(features[0, channel].numpy(), (x0, y0, x1, y1))
        assert found[0, 0, channel].item() == pytest.approx(expected, abs=1e-9)


def test_it_agrees_with_torchs_own_sampling_of_points():
    """All samples of a box without size are its point; `grid_sample` takes points in -1…1."""
    features = drawn(2, 3, 5, 7)
    points = torch.from_numpy(np.random.default_rng(1).random((2, 4, 2)))
    expected = nn.functional.grid_sample(
        features, points[:, None] * 2 - 1, padding_mode="border", align_corners=False
    )
    found = roi_align(features, torch.cat([points, points], -1))
    torch.testing.assert_close(found, expected[:, :, 0].transpose(1, 2))


def test_a_constant_map_gives_its_constant():
    boxes = boxes_of((0, 0, 1, 1), (0.2, 0.1, 0.3, 0.9), (0, 0, 0, 0), (1, 1, 1, 1))
    found = roi_align(torch.full((1, 2, 4, 6), 3.5, dtype=torch.float64), boxes)
    assert found.shape == (1, 4, 2)
    assert found.numpy() == pytest.approx(3.5)


def test_a_ramp_gives_its_value_at_the_middle_of_the_box():
    ramp = torch.arange(8, dtype=torch.float64).expand(1, 1, 8, 8)
    boxes = boxes_of((0.25, 0, 0.5, 1), (0.125, 0.3, 0.25, 0.3))
    # Fraction f stands at cell 8 f - 1/2.
    assert roi_align(ramp, boxes).flatten().tolist() == pytest.approx([2.5, 1])


def test_what_moves_by_a_cell_looks_the_same_a_cell_on():
    features = drawn(1, 3, 8, 8)
    moved = torch.roll(features, shifts=(2, 1), dims=(2, 3))
    x0, y0, x1, y1 = 0.2, 0.3, 0.5, 0.6
    here = roi_align(features, boxes_of((x0, y0, x1, y1)))
    there = roi_align(moved, boxes_of((x0 + 1 / 8, y0 + 2 / 8, x1 + 1 / 8, y1 + 2 / 8)))
    torch.testing.assert_close(here, there)


def test_a_box_without_size_gives_a_number_and_a_gradient():
    features = drawn(1, 1, 3, 3).requires_grad_()
    found = roi_align(features, boxes_of((0, 0, 0, 0), (0.5, 0.5, 0.5, 0.5)))
    assert found.flatten().tolist() == [features[0, 0, 0, 0].item(), features[0, 0, 1, 1].item()]
    found.sum().backward()
    assert features.grad.isfinite().all()


def test_it_can_be_differentiated_twice():
    features, boxes = drawn(1, 2, 3, 3).requires_grad_(), boxes_of((0.1, 0.2, 0.7, 0.9))
    assert torch.autograd.gradgradcheck(lambda f: roi_align(f, boxes).square(), features)


@pytest.mark.skipif(not importlib.util.find_spec("torchvision"), reason="no torchvision here")
def test_it_is_torchvisions():
    from torchvision.ops import roi_align as other

    features, side = drawn(1, 3, 6, 6), 6
    boxes = boxes_of((0.1, 0.2, 0.7, 0.9), (0, 0, 1, 1), (0.3, 0.3, 0.31, 0.31))
    expected = other(features, [boxes[0] * side], 1, 1.0, SAMPLES, aligned=True)[..., 0, 0]
    torch.testing.assert_close(roi_align(features, boxes)[0], expected)


# ------------------------------------------------------------------------------ as a model's part


def beit_folder(folder):
    config = BeitConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        image_size=32,
        patch_size=8,
        use_absolute_position_embeddings=True,
        use_relative_position_bias=False,
    )
    torch.manual_seed(0)
    BeitModel(config, add_pooling_layer=False).save_pretrained(folder)
    return folder


@pytest.fixture(params=["small", "beit"])
def visual(request, tmp_path):
    torch.manual_seed(0)
    if request.param == "beit":
        return beit_visual(beit_folder(tmp_path), 12).eval()
    return small_visual(12, 32).eval()


def pages(count=3, seed=0):
    random = np.random.default_rng(seed)
    pixels = random.integers(0, 256, (count, 3, 32, 32), dtype=np.uint8)
    corners = np.sort(random.integers(0, 1001, (count, 5, 2, 2)), axis=2).reshape(count, 5, 4)
    corners[:, -1] = 0
    return pixels, corners


def test_each_token_gets_a_vector_of_its_own_page_only(visual):
    pixels, boxes = map(torch.from_numpy, pages())
    found = visual(pixels, boxes)
    assert found.shape == (3, 5, 12)
    assert found.dtype == torch.float32
    assert found.isfinite().all()
    alone = torch.cat([visual(pixels[k : k + 1], boxes[k : k + 1]) for k in range(3)])
    torch.testing.assert_close(found, alone, atol=1e-5, rtol=1e-4)
    other = visual(pixels.flip(0), boxes)
    assert not torch.allclose(other[0], found[0], atol=1e-3)


def test_what_stands_in_the_box_counts_most():
    torch.manual_seed(0)
    visual = small_visual(12, 64).eval()
    box = torch.tensor([[[0, 0, 250, 250], [750, 750, 1000, 1000]]])
    page = torch.full((1, 3, 64, 64), 255, dtype=torch.uint8)
    marked = page.clone()
    marked[..., 4:12, 4:12] = 0
    change = (visual(marked, box) - visual(page, box)).abs().sum(-1)[0]
    assert change[0] > 3 * change[1]


class Regression(nn.Module):
    def __init__(self, visual):
        super().__init__()
        self.visual = visual

    def loss(self, batch):
        return self.visual(batch["pixels"], batch["bbox"]).square().mean()


def test_gradients_of_examples_by_vmap_are_those_of_the_loop(visual):
    pixels, boxes = pages(4)
    examples = Examples.of({"pixels": pixels, "bbox": boxes})
    model = Regression(visual).train()
    ways = [PerExample(way).clipped_sum(model, examples, 1.0) for way in ("loop", "vmap")]
    assert [result.method for result in ways] == ["loop", "vmap"]
    assert ways[1].total == pytest.approx(ways[0].total, abs=1e-5)
    assert np.abs(ways[0].total).max() > 1e-3


def test_all_that_is_trained_gets_a_gradient(visual):
    pixels, boxes = map(torch.from_numpy, pages())
    visual(pixels, boxes).square().sum().backward()
    trained = {n: p for n, p in visual.named_parameters() if p.requires_grad}
    assert [name for name, p in trained.items() if p.grad is None] == []


def test_a_pretrained_network_is_taken_over_with_its_size(tmp_path):
    visual = beit_visual(beit_folder(tmp_path), 12, attention="eager")
    saved = BeitModel.from_pretrained(tmp_path, add_pooling_layer=False)
    own = visual.network.image_model
    for name, weight in saved.state_dict().items():
        assert torch.equal(own.state_dict()[name], weight)
    # Patches in rows: the second is right of the first.
    pixels = torch.rand(1, 3, 32, 32)
    outputs = own.eval()(pixel_values=pixels).last_hidden_state[0, 1:]
    found = visual.network(pixels)[0]
    assert found.shape == (16, 4, 4)
    torch.testing.assert_close(found[:, 0, 1], outputs[1])
    torch.testing.assert_close(found[:, 2, 3], outputs[11])


def test_a_pretrained_network_of_no_folder_is_refused():
    with pytest.raises(OSError, match="nowhere"):
        beit_visual("./nowhere", 12)


@pytest.mark.parametrize("side", [0, 20])
def test_sizes_that_do_not_fit_are_refused(side):
    with pytest.raises(ValueError, match=f"image_size={side}: expected a multiple of 8 pixels"):
        small_visual(12, side)
