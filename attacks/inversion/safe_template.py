"""Safe Template: a published template that leads gradient inversion astray (GI-DQA, Algorithm 1).

Clients keep their clean pages; what is changed is the blank template that anyone may know.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from fedpriv.attacks.inversion.engine import check_forward, check_pages
from fedpriv.attacks.inversion.gradients import Gradients, Sent, gradient_of, twice_differentiable
from fedpriv.attacks.inversion.objective import Objective, choose
from fedpriv.attacks.victim import Victim
from fedpriv.data.examples import Batch

Kind = Literal["pgd", "random", "pgd_as_printed"]
KINDS = ("pgd", "random", "pgd_as_printed")


def safe_template(
    model: nn.Module,
    batch: Batch,
    template: Tensor,
    epsilon: float,
    rng: np.random.Generator,
    *,
    kind: Kind = "pgd",
    steps: int = 40,
    step_size: float | None = None,
    objective: Objective | None = None,
) -> Tensor:
    """Returns the template changed by at most ε a pixel, (B, 3, H, W), in 0…255.

    "pgd" climbs the distance between the gradients at the changed and at the clean template, from
    a random start. As printed, Algorithm 1 starts at the clean template, where that distance has
    no slope, and adds the sign of the derivative of L_def = -L_grad, which descends it: that is
    "pgd_as_printed". "random" is uniform noise. The paper leaves open the number of steps and
    their size: 40 and ε / 10 here.

    Args:
        model: the parameters are those of the defender's moment.
        batch: the columns but `pixels`, question and answer of the template, each (B, …).
        template: (B, 3, H, W), in 0…255.
        epsilon: of 255; the paper takes 8, 12 and 16, at random 12 and 32.
        rng: draws the start.
        kind: see above.
        steps: of PGD.
        step_size: of 255; none for ε / 10.
        objective: the distance; none for the paper's mean squares and cosine.

    Raises:
        ValueError: if ε, the steps or their size are not positive, the kind is none of these, or
            template, batch and model do not fit.
    """
    size = epsilon / 10 if step_size is None else step_size
    if kind not in KINDS:
        raise ValueError(f"kind={kind!r}: expected one of {KINDS}")
    if not (0 < epsilon <= 255 and size > 0 and steps > 0):
        raise ValueError(
            f"{epsilon=}, {steps=}, step_size={size}: expected positive numbers, epsilon up to 255"
        )
    private = torch.ones_like(template[:, :1], dtype=torch.bool)
    published = Victim(model, {}, batch, template, private)
    check_pages(published)
    check_forward(published)
    like = next(model.parameters())
    clean = template.to(like)
    if kind == "pgd_as_printed":
        start = torch.zeros_like(clean)
    else:
        start = torch.from_numpy(rng.uniform(-epsilon, epsilon, tuple(clean.shape))).to(like)
    changed = _held(clean + start, clean, epsilon)
    if kind != "random":
        climb = _Climb(model, batch, clean, objective or Objective(mse=1, cosine=1))
        towards = size if kind == "pgd" else -size
        for _ in range(steps):
            changed = _held(changed + towards * climb.slope(changed).sign(), clean, epsilon)
    return changed.to(template)


class _Climb:
    """The distance between the gradients at a page and at the clean one, as a function."""

    def __init__(self, model: nn.Module, batch: Batch, clean: Tensor, objective: Objective) -> None:
        columns = {name: column.to(clean.device) for name, column in batch.items()}
        gradient = gradient_of(model, {**columns, "pixels": clean})
        names = choose(model, gradient, objective).names
        self._objective = objective
        self._clean = Sent(columns, {name: gradient[name] for name in names})
        self._gradients = Gradients(model, names)

    def slope(self, pages: Tensor) -> Tensor:
        with twice_differentiable():
            _, slopes = self._gradients.slopes(pages, [], self._clean, self._objective.distance)
        return slopes[0]


def _held(pages: Tensor, clean: Tensor, epsilon: float) -> Tensor:
    """Returns pages cut to ε around the clean ones, and to 0…255."""
    near = torch.minimum(torch.maximum(pages, clean - epsilon), clean + epsilon)
    return near.clamp(0, 255)
