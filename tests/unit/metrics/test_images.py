"""PSNR, SSIM, spectra and MSE: against scikit-image's values, by hand, and by what they mean."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedpriv.metrics.images import LARGEST_PSNR, fft_distance, mse, mse_uint8_wrapped, psnr, ssim

IMAGES = arrays(np.uint8, (3, 12, 14))


def pair(name):
    """Two images of (3, 24, 31), the same ones with which scikit-image 0.26 was asked."""
    random = np.random.default_rng(0)
    a = random.integers(0, 256, (3, 24, 31), dtype=np.uint8)
    near = np.clip(a.astype(int) + random.integers(-40, 41, a.shape), 0, 255).astype(np.uint8)
    far = random.integers(0, 256, a.shape, dtype=np.uint8)
    y, x = np.mgrid[0:24, 0:31]
    smooth = np.stack([(x * 8) % 256, (y * 10) % 256, (x * y) % 256]).astype(np.uint8)
    return {
        "near": (a, near),
        "far": (a, far),
        "shifted": (smooth, np.roll(smooth, 1, 2)),
        "inverse": (smooth, 255 - smooth),
    }[name]


# structural_similarity(…, gaussian_weights=True, sigma=1.5, use_sample_covariance=False,
# data_range=255, channel_axis=0), its full map's mean over a corner, and peak_signal_noise_ratio.
SCIKIT_IMAGE = [
    ("near", 0.9559210378158011, 0.9605003420845695, 21.25033903188347),
    ("far", 0.001748634967398175, -0.031397560563944486, 7.532656948998145),
    ("shifted", 0.9359874707474743, 0.9952784696101994, 16.52947593680865),
    ("inverse", -0.6282404590445257, -0.3820923281008389, 4.665908888741047),
]


@pytest.mark.parametrize(("name", "whole", "corner", "decibels"), SCIKIT_IMAGE)
def test_ssim_and_psnr_are_those_of_scikit_image(name, whole, corner, decibels):
    one, other = pair(name)
    mask = np.zeros((24, 31), dtype=bool)
    mask[:7, 20:] = True
    assert ssim(one, other) == pytest.approx(whole, abs=1e-12)
    assert ssim(one, other, mask) == pytest.approx(corner, abs=1e-12)
    assert psnr(one, other) == pytest.approx(decibels, abs=1e-10)


def test_psnr_by_hand():
    black, white = np.zeros((3, 4, 4)), np.full((3, 4, 4), 255.0)
    assert psnr(black, white) == 0
    assert psnr(black, white / 10) == pytest.approx(20)
    assert psnr(black, np.full((3, 4, 4), 25.5, np.float32)) == pytest.approx(20)
    half = np.zeros((4, 4), dtype=bool)
    half[:, 2:] = True
    white[:, :, 2:] = 25.5
    assert psnr(black, white, half) == pytest.approx(20)
    assert psnr(black, white, ~half) == 0


def test_equal_images_have_the_largest_psnr_and_it_is_finite():
    page = np.full((3, 4, 4), 200, np.uint8)
    assert psnr(page, page) == LARGEST_PSNR == pytest.approx(144.494, abs=1e-3)
    assert psnr(page, page + np.float64(1e-9)) == LARGEST_PSNR
    assert psnr(page, page + np.float64(1e-4)) < LARGEST_PSNR


def test_uint8_is_not_subtracted_as_uint8():
    one, other = np.full((1, 2, 2), 3, np.uint8), np.full((1, 2, 2), 250, np.uint8)
    assert mse(one, other) == mse(other, one) == 247**2
    # 3 - 250 is 9 modulo 256.
    assert mse_uint8_wrapped(one, other) == 81


def test_wrapped_mse_of_noise_is_that_of_the_tables():
    """GI-DQA prints 105.2 for noise; over all 256 values it is exactly 105.5."""
    values = np.arange(256, dtype=np.uint8).reshape(1, 16, 16)
    assert mse_uint8_wrapped(values, np.full((1, 16, 16), 77, np.uint8)) == 105.5
    random = np.random.default_rng(0).integers(0, 256, (2, 3, 100, 100), dtype=np.uint8)
    assert mse_uint8_wrapped(*random) == pytest.approx(105.5, abs=2)
    assert mse(*random) == pytest.approx(255 * 257 / 6, rel=0.02)


def test_wrapped_mse_rounds_and_clips_first():
    one = np.array([[[-3.0, 300.0, 9.6]]])
    assert mse_uint8_wrapped(one, np.array([[[0.0, 255.0, 10.0]]])) == 0


def test_a_shift_that_wraps_around_changes_no_spectrum():
    page = np.random.default_rng(1).integers(0, 256, (3, 16, 20))
    assert fft_distance(page, np.roll(page, (3, 5), (1, 2))) == pytest.approx(0, abs=1e-12)
    assert fft_distance(page, page * 0.5) == pytest.approx(0, abs=1e-12)
    assert fft_distance(page, np.roll(page, 7, 0)) < 1


def test_spectra_by_hand():
    """A dot has a flat spectrum, a plain page has one value: over n pixels the cosine is 1/√n."""
    dot, plain = np.zeros((1, 4, 8)), np.full((1, 4, 8), 9.0)
    dot[0, 2, 3] = 5
    assert fft_distance(dot, plain) == pytest.approx(1 - 1 / math.sqrt(32))
    black = np.zeros((1, 4, 8))
    assert (fft_distance(black, plain), fft_distance(plain, black)) == (1, 1)
    assert fft_distance(black, black) == 0


@given(one=IMAGES, other=IMAGES)
def test_all_are_symmetric_and_bounded(one, other):
    for measure in (psnr, ssim, fft_distance, mse, mse_uint8_wrapped):
        assert measure(one, other) == pytest.approx(measure(other, one), abs=1e-9)
    assert 0 <= psnr(one, other) <= LARGEST_PSNR
    assert -1 - 1e-9 <= ssim(one, other) <= 1 + 1e-9
    assert 0 <= fft_distance(one, other) <= 1
    assert ssim(one, one) == pytest.approx(1)


@given(one=IMAGES, other=IMAGES, seed=st.integers(0, 99))
def test_what_is_outside_of_the_mask_does_not_count(one, other, seed):
    mask = np.zeros((12, 14), dtype=bool)
    mask[3:7, 2:9] = True
    changed = np.where(mask, other, np.random.default_rng(seed).integers(0, 256, other.shape))
    for measure in (psnr, mse, mse_uint8_wrapped):
        assert measure(one, other, mask) == measure(one, changed, mask)


@pytest.mark.parametrize("measure", [psnr, ssim, mse, mse_uint8_wrapped, fft_distance])
def test_images_of_different_shapes_are_refused(measure):
    with pytest.raises(ValueError, match=r"got \(3, 12, 12\) and \(12, 12\)"):
        measure(np.zeros((3, 12, 12)), np.zeros((12, 12)))


@pytest.mark.parametrize("measure", [psnr, ssim, mse, mse_uint8_wrapped])
def test_masks_that_do_not_fit_are_refused(measure):
    page = np.zeros((3, 12, 12))
    with pytest.raises(ValueError, match="the mask is empty"):
        measure(page, page, np.zeros((12, 12), dtype=bool))
    with pytest.raises(ValueError, match=r"a mask of shape \(3, 3\) for an image of shape"):
        measure(page, page, np.ones((3, 3), dtype=bool))


def test_ssim_needs_room_for_its_window():
    page = np.zeros((3, 10, 40))
    with pytest.raises(ValueError, match=r"11 x 11 pixels and more, got \(10, 40\)"):
        ssim(page, page)
