"""What holds for every distance, prior and schedule of gradient inversion."""

import math
from typing import get_args

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpriv.attacks.inversion.objective import Objective
from fedpriv.attacks.inversion.pixels import Canvas
from fedpriv.attacks.inversion.prior import (
    ChannelVariation,
    GaussianSmooth,
    LaplacianText,
    SpatialVariation,
)
from fedpriv.attacks.inversion.schedule import Exponential, Late, Steps
from fedpriv.attacks.inversion.start import Start, start

KINDS = ("mse", "squares", "relative", "cosine", "global_cosine", "absolute")
PRIORS = (LaplacianText, GaussianSmooth, SpatialVariation, ChannelVariation)

seeds = st.integers(0, 2**32 - 1)


def gradients(seed, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    shapes = {"a": (3, 2), "b": (5,)}
    return {n: scale * torch.randn(s, generator=generator).double() for n, s in shapes.items()}


def pages(seed, channels=3):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(2, channels, 9, 6, generator=generator).double()


@given(seed=seeds, other=seeds, kind=st.sampled_from(KINDS))
def test_distances_are_zero_at_the_gradient_itself_and_positive_elsewhere(seed, other, kind):
    sent = gradients(seed)
    distance = Objective(**{kind: 1.0}).distance
    assert abs(distance(sent, sent).item()) < 1e-12
    if seed != other:
        assert distance(gradients(other), sent).item() > 0


@given(seed=seeds, other=seeds, factor=st.floats(1e-3, 1e3))
def test_what_changes_with_the_scale_of_a_loss(seed, other, factor):
    mine, sent = gradients(seed), gradients(other)
    louder = {name: factor * tensor for name, tensor in mine.items()}
    both = louder, {name: factor * tensor for name, tensor in sent.items()}
    for kind in ("cosine", "global_cosine"):
        distance = Objective(**{kind: 1.0}).distance
        assert math.isclose(distance(louder, sent), distance(mine, sent), abs_tol=1e-9)
    relative = Objective(relative=1.0).distance
    assert math.isclose(relative(*both), relative(mine, sent), rel_tol=1e-9)


@given(seed=seeds, prior=st.sampled_from(PRIORS), grey=st.floats(0, 1))
def test_priors_prefer_flat_pages_and_look_the_same_in_a_mirror(seed, prior, grey):
    page = pages(seed)
    for reduction in ("mean", "sum"):
        penalty = prior(reduction=reduction)
        assert abs(penalty(torch.full_like(page, grey)).item()) < 1e-12
        assert penalty(page).item() > 0
        assert math.isclose(penalty(page.flip(-1)), penalty(page), rel_tol=1e-9)
        assert math.isclose(penalty(page.flip(-2)), penalty(page), rel_tol=1e-9)


@given(seed=seeds, prior=st.sampled_from(PRIORS))
def test_the_sum_of_a_prior_is_that_of_its_pages(seed, prior):
    page = pages(seed)
    penalty = prior(reduction="sum")
    assert math.isclose(penalty(page), penalty(page[:1]) + penalty(page[1:]), rel_tol=1e-9)


@given(done=st.floats(0, 1, exclude_max=True), later=st.floats(0, 1, exclude_max=True))
def test_decays_never_rise_and_late_priors_never_fall(done, later):
    first, second = sorted((done, later))
    for schedule in (Exponential(5.0), Exponential.to(0.1), Steps((0.3, 0.6))):
        assert schedule.at(first) >= schedule.at(second) > 0
    assert Late(0.4).at(first) <= Late(0.4).at(second)


@settings(max_examples=25)
@given(seed=seeds, kind=st.sampled_from(get_args(Start)), channels=st.sampled_from([1, 3]))
def test_starts_are_pages_and_leave_what_is_known_alone(seed, kind, channels):
    template = 255 * pages(seed).float()
    private = pages(seed + 1, 1) > 0.5
    guess = start(kind, template, channels, np.random.default_rng(seed))
    assert guess.shape == (2, channels, 9, 6)
    assert guess.dtype == torch.float32
    assert 0 <= guess.min() <= guess.max() <= 255
    page = Canvas.of(template, private, "private").page(guess)
    known = ~private.expand_as(template)
    assert torch.equal(page[known], template[known])
    whole = Canvas.of(template, private, "page").page(guess)
    assert torch.equal(whole, guess.expand_as(whole))
