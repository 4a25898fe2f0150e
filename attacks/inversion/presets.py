"""Published methods of gradient inversion as settings of the one engine, and this package's own.

Each takes a budget of `evaluations` (its authors' own where none is given) and, by name, any other
setting of `Inversion`. Schedules are shares of the budget, so that a method keeps its shape under
another one. Wherever a paper leaves something open, the filling stands in the docstring.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fedpriv.attacks.inversion.method import Inversion
from fedpriv.attacks.inversion.objective import Objective
from fedpriv.attacks.inversion.prior import (
    ChannelVariation,
    GaussianSmooth,
    LaplacianText,
    Prior,
    Reduction,
    SpatialVariation,
)
from fedpriv.attacks.inversion.schedule import Exponential, Steps

STEPS = 5000
"""Of GI-DQA."""

LEFT = 0.999**STEPS
"""What so many steps of decay by 0.999 leave."""


def gi_dqa(evaluations: int | None = None, *, tv: Reduction = "sum", **settings: Any) -> Inversion:
    """GI-DQA (Ben Hemo et al. 2025, §3.3.1 and §4.1): colour pixels, noise, Adam, Eq. 5 and priors.

    From the paper: mean squared error and 1 - cosine of every parameter tensor; weights 0.1, 0.01
    and 0.1 of the text, Gaussian and variation priors; Adam at 2.0, times 0.999 a step, 5,000
    steps. Left open there, and filled: "random" is uniform noise, in the private region only;
    2.0 is in pixels of 0…255 (on 0…1 the first step would cross the range); φ = 0.01 exp(-λ k)
    with λ = 7.5 / steps, so that the variation, a sum over all pixels, outweighs the gradient at
    first and is nothing beside it at the end; betas of Adam that forget as fast as the slopes
    shrink, as in `gi_dqa_tuned`; the pixels with the least distance are kept. With fewer steps each
    is as much longer, up to 50, so that pixels can come as far. All were chosen on slips of seed 0,
    which no table has; the baselines of GI-DQA's Table 1 have their authors'.

    Args:
        evaluations: the number of gradient evaluations that a reconstruction may use. None takes
            the paper's 5,000.
        tv: how the total-variation priors add up over the pixels: "sum", as the paper prints it, or
            "mean".
        settings: other fields of `Inversion`.
    """
    budget = _or(evaluations, STEPS)
    variation: tuple[Prior, ...] = (SpatialVariation(tv), ChannelVariation(tv))
    chosen: dict[str, Any] = {
        "objective": Objective(mse=1, cosine=1),
        "priors": (
            (0.1, LaplacianText()),
            (0.01, GaussianSmooth()),
            *((0.1, prior) for prior in variation),
        ),
        "prior_schedule": Exponential(7.5, 0.01),
        "start": "noise",
        "pixels": "rgb",
        "optimizer": "adam",
        "betas": (0.9, 0.9),
        "lr": min(2.0 * STEPS / max(budget, 1), 50.0),
        "lr_schedule": Exponential.to(LEFT),
    }
    return Inversion(evaluations=budget, **{**chosen, **settings})


def gi_dqa_tuned(evaluations: int | None = None, **settings: Any) -> Inversion:
    """GI-DQA as it works best here: shades of the template's ink, relative distances, no priors.

    One channel is the channel prior as a hard constraint, in the colour that the template is
    printed in: grey pixels cannot show a blue ink, and stop at 22 dB on such pages. Of the gradient
    only what a page goes through before it meets the text is matched, each tensor by its share of
    its own norm. Adam forgets slopes fast, as they shrink by orders of magnitude on the way: with
    the usual second beta, 0.999, a LayoutLMv3 on pages of 64 x 64 comes to 22 dB where this comes
    to 48.

    A budget N of fewer than 100 leaves no time for many small steps: betas are 1 - 9 / N, between
    0.7 and 0.9, and the rate is 2500 / N, between 25 and 50. (Betas that grow from 0.7 to 0.9 in a
    run came out between the two, with 25 gradients and with 100.) These were chosen on windows of
    SROIE's train split and on slips of seed 11.

    Args:
        evaluations: N, the number of gradient evaluations that a reconstruction may use. None takes
            400.
        settings: other fields of `Inversion`.
    """
    budget = _or(evaluations, 400)
    beta = min(max(1 - 9 / max(budget, 1), 0.7), 0.9)
    chosen: dict[str, Any] = {
        "objective": Objective(relative=1, layers="pre_fusion"),
        "start": "template",
        "pixels": "ink",
        "optimizer": "adam",
        "lr": min(max(2500 / max(budget, 1), 25.0), 50.0),
        "betas": (beta, beta),
        "lr_schedule": Exponential.to(0.1),
    }
    return Inversion(evaluations=budget, **{**chosen, **settings})


def dlg(evaluations: int | None = None, **settings: Any) -> Inversion:
    """Deep Leakage from Gradients (Zhu et al. 2019): L-BFGS on the summed squares, no priors.

    The labels are sought too, as scores, where the model scores one label an example; a model that
    writes answers takes them as known, and DLG is iDLG there, as in GI-DQA's Table 1.

    Args:
        evaluations: the number of gradient evaluations that a reconstruction may use. None takes
            6,000, which are the authors' 300 steps of L-BFGS with 20 evaluations each.
        settings: other fields of `Inversion`.
    """
    return idlg(evaluations, **{"labels": "soft", **settings})


def idlg(evaluations: int | None = None, **settings: Any) -> Inversion:
    """Improved DLG (Zhao et al. 2020): DLG with the labels known.

    Its own rule, that a classifier's label is the row of the last layer with a negative gradient,
    has no meaning for questions and answers: the labels are those of the victim's batch.

    Args:
        evaluations: the number of gradient evaluations that a reconstruction may use. None takes
            6,000, which are the authors' 300 steps of L-BFGS with 20 evaluations each.
        settings: other fields of `Inversion`.
    """
    chosen: dict[str, Any] = {
        "objective": Objective(squares=1),
        "start": "normal",
        "optimizer": "lbfgs",
        "lr": 1.0,
        "clamp": False,
    }
    return Inversion(evaluations=_or(evaluations, 6000), **{**chosen, **settings})


def inverting_gradients(evaluations: int | None = None, **settings: Any) -> Inversion:
    """Inverting Gradients (Geiping et al. 2020): one cosine over all tensors, signed Adam, TV.

    Adam at 0.1 on normalised pixels, a tenth of it after 3/8, 5/8 and 7/8 of the budget; total
    variation with weight 0.2 on normalised pixels, which is 0.4 on 0…1.

    Args:
        evaluations: the number of gradient evaluations that a reconstruction may use. None takes
            24,000, as the authors' later library does.
        settings: other fields of `Inversion`.
    """
    chosen: dict[str, Any] = {
        "objective": Objective(global_cosine=1),
        "priors": ((0.4, SpatialVariation()),),
        "start": "normal",
        "optimizer": "signed_adam",
        "lr": 12.75,
        "lr_schedule": Steps((1 / 2.667, 1 / 1.6, 1 / 1.142)),
    }
    return Inversion(evaluations=_or(evaluations, 24_000), **{**chosen, **settings})


def april(evaluations: int | None = None, **settings: Any) -> Inversion:
    """APRIL (Lu et al. 2021) by optimisation: mean squares, and the direction of the places' table.

    Its closed form needs attention directly on the embeddings, without LayerNorm, as none of our
    models has it. A model without a table of the page's places, such as Donut, leaves the mean
    squares alone. The weight 1 of the cosine, and the steps, are ours.

    Args:
        evaluations: the number of gradient evaluations that a reconstruction may use. None takes
            5,000, as GI-DQA does where it compares methods.
        settings: other fields of `Inversion`.
    """
    chosen: dict[str, Any] = {
        "objective": Objective(mse=1, positions=1),
        "start": "noise",
        "optimizer": "adam",
        "lr": 2.0,
        "lr_schedule": Exponential.to(LEFT),
    }
    return Inversion(evaluations=_or(evaluations, 5000), **{**chosen, **settings})


def tag(evaluations: int | None = None, **settings: Any) -> Inversion:
    """TAG (Deng et al. 2021) for pages: squares and 0.01 times the absolute differences.

    TAG seeks words; here it is its distance that is taken to pages. Adam at 0.1 on normalised
    pixels.

    Args:
        evaluations: the number of gradient evaluations that a reconstruction may use. None takes
            2,500.
        settings: other fields of `Inversion`.
    """
    chosen: dict[str, Any] = {
        "objective": Objective(squares=1, absolute=0.01),
        "start": "normal",
        "optimizer": "adam",
        "lr": 12.75,
    }
    return Inversion(evaluations=_or(evaluations, 2500), **{**chosen, **settings})


def random(evaluations: int | None = None, **settings: Any) -> Inversion:
    """The first row of GI-DQA's Table 1: uniform noise, which no gradient has touched.

    Args:
        evaluations: a number without effect, because this method optimises nothing. It is accepted
            because all other methods take it.
        settings: other fields of `Inversion`.
    """
    return Inversion(**{"objective": Objective(mse=1, partial=True), "evaluations": 0, **settings})


def template_only(evaluations: int | None = None, **settings: Any) -> Inversion:
    """The template as it is: an attack that comes no nearer to the page has leaked nothing.

    Args:
        evaluations: a number without effect, because this method optimises nothing. It is accepted
            because all other methods take it.
        settings: other fields of `Inversion`.
    """
    return random(**{"start": "template", **settings})


PRESETS: Mapping[str, Callable[..., Inversion]] = {
    preset.__name__: preset
    for preset in (
        gi_dqa, gi_dqa_tuned, dlg, idlg, inverting_gradients, april, tag, random, template_only,
    )
}  # fmt: skip
"""By name, for settings files."""


def _or(given: int | None, otherwise: int) -> int:
    return otherwise if given is None else given
