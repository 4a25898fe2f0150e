"""Published methods of gradient inversion as settings of the one engine, and this package's own.

Each takes a budget of `evaluations` (its authors' own where none is given) and, by name, any other
setting of `Inversion`. Schedules are shares of the budget, so that a method keeps its shape under
another one. Wherever a paper leaves something open, the filling stands in the docstring.
"""

from __future__ import annotations

from typing import Any

from attacks.inversion.method import Inversion
from attacks.inversion.objective import Objective
from attacks.inversion.prior import (
    ChannelVariation,
    GaussianSmooth,
    LaplacianText,
    Prior,
    Reduction,
    SpatialVariation,
)
from attacks.inversion.schedule import Exponential

LEFT = 0.999**5000
"""What 5 000 steps of decay by 0.999 leave."""


def gi_dqa(evaluations: int | None = None, *, tv: Reduction = "mean", **settings: Any) -> Inversion:
    """GI-DQA (Ben Hamida et al., §3.3.1 and §4.1): colour pixels, noise, Adam, Eq. 5 and priors.

    From the paper: mean squared error and 1 - cosine of every parameter tensor; weights 0.1, 0.01
    and 0.1 of the text, Gaussian and variation priors; Adam at 2.0, times 0.999 a step, 5 000
    steps. Left open there, and filled: "random" is uniform noise, in the private region only;
    2.0 is in pixels of 0…255 (on 0…1 the first step would cross the range); φ = exp(-λ k) with
    λ = 0.001, the one decay that the paper states; the pixels with the least distance are kept.

    Args:
        evaluations: 5 000 if none.
        tv: reduction of the variation priors: sums, as printed, outweigh the other terms by the
            number of pixels.
        settings: of `Inversion`.
    """
    variation: tuple[Prior, ...] = (SpatialVariation(tv), ChannelVariation(tv))
    chosen: dict[str, Any] = {
        "objective": Objective(mse=1, cosine=1),
        "priors": (
            (0.1, LaplacianText()),
            (0.01, GaussianSmooth()),
            *((0.1, prior) for prior in variation),
        ),
        "prior_schedule": Exponential.to(LEFT),
        "start": "noise",
        "pixels": "rgb",
        "optimizer": "adam",
        "lr": 2.0,
        "lr_schedule": Exponential.to(LEFT),
    }
    return Inversion(evaluations=_or(evaluations, 5000), **{**chosen, **settings})


def gi_dqa_tuned(evaluations: int | None = None, **settings: Any) -> Inversion:
    """GI-DQA as it works best here: grey pixels from the template, relative distances, no priors.

    One grey channel is the channel prior as a hard constraint; of the gradient only what a page
    goes through before it meets the text is matched, each tensor by its share of its own norm. Adam
    forgets slopes fast, as they shrink by orders of magnitude on the way: with the usual second
    beta, 0.999, a LayoutLMv3 on pages of 64 x 64 comes to 22 dB where this comes to 48.

    Args:
        evaluations: 400 if none.
        settings: of `Inversion`.
    """
    chosen: dict[str, Any] = {
        "objective": Objective(relative=1, layers="pre_fusion"),
        "start": "template",
        "pixels": "grey",
        "optimizer": "adam",
        "lr": 25.0,
        "betas": (0.9, 0.9),
        "lr_schedule": Exponential.to(0.1),
    }
    return Inversion(evaluations=_or(evaluations, 400), **{**chosen, **settings})


def _or(given: int | None, otherwise: int) -> int:
    return otherwise if given is None else given
