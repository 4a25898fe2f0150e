"""Safe Template: a published template that leads gradient inversion astray (GI-DQA, Algorithm 1).

Clients keep their clean pages; what is changed is the blank template that anyone may know. A
publisher does it to its templates beforehand (GI-DQA, App. A.2).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedpriv.attacks.inversion.engine import check_forward, check_pages
from fedpriv.attacks.inversion.gradients import Gradients, gradient_of, twice_differentiable
from fedpriv.attacks.inversion.objective import GradientDistance, Objective, choose
from fedpriv.attacks.victim import Victim, tensors_of
from fedpriv.data.examples import Batch
from fedpriv.threat.checks import check_choices

Kind = Literal["pgd", "random", "pgd_as_printed"]

OBJECTIVE = Objective(mse=1, cosine=1)
"""The paper's distance between gradients."""


@dataclass(frozen=True)
class SafeTemplate:
    """Changes a template by at most ε a pixel.

    "pgd" climbs the distance between the gradients at the changed and at the clean template, from
    a random start. As printed, Algorithm 1 starts at the clean template, where that distance has
    no slope, and adds the sign of the derivative of L_def = -L_grad, which descends it: that is
    "pgd_as_printed". "random" is uniform noise. The paper leaves open the number of steps and
    their size: 40 and ε / 10 here.

    The paper computes templates once, offline, with a question and an answer of the publisher's.
    Here they are computed for each page and round, with that page's own: at its best.

    Args:
        epsilon: ε, the largest change of a pixel value, out of 255. The paper takes 8, 12 and 16
            for "pgd", 12 and 32 for "random".
        kind: how the template is changed: "pgd" climbs the distance between the gradients at the
            changed and at the clean template; "random" adds uniform noise; "pgd_as_printed" follows
            Algorithm 1 to the letter, which starts where this distance has no slope and descends.
        steps: the number of gradient steps; "random" takes none.
    """

    epsilon: float = 8.0
    kind: Kind = "pgd"
    steps: int = 40

    def __post_init__(self) -> None:
        check_choices(self)
        if not (0 < self.epsilon <= 255 and self.steps > 0):
            raise ValueError(
                f"epsilon={self.epsilon}, steps={self.steps}: expected positive numbers; epsilon "
                "in pixels of 0…255"
            )

    def publish(
        self,
        model: nn.Module,
        columns: Mapping[str, NDArray[Any]],
        template: NDArray[np.uint8],
        rng: np.random.Generator,
    ) -> NDArray[np.uint8]:
        """Returns the templates to publish, rounded to whole numbers as pictures are.

        See `fedpriv.threat.settings.Publisher`.
        """
        clean = torch.from_numpy(np.array(template)).float()
        safe = self.changed(model, tensors_of(columns), clean, rng)
        rounded: NDArray[np.uint8] = safe.round().clamp(0, 255).to(torch.uint8).numpy()
        return rounded

    def changed(
        self, model: nn.Module, batch: Batch, template: Tensor, rng: np.random.Generator
    ) -> Tensor:
        """Returns the changed template, (B, 3, H, W), in 0…255.

        Args:
            model: the parameters are those of the defender's moment.
            batch: the columns but `pixels`, question and answer of the template, each (B, …).
            template: (B, 3, H, W), in 0…255.
            rng: draws the start.

        Raises:
            ValueError: if template, batch and model do not fit.
        """
        private = torch.ones_like(template[:, :1], dtype=torch.bool)
        published = Victim(model, {}, batch, template, private)
        check_pages(published)
        check_forward(published)
        clean = template.to(next(model.parameters()))
        apart = torch.zeros_like(clean)
        if self.kind != "pgd_as_printed":
            drawn = rng.uniform(-self.epsilon, self.epsilon, tuple(clean.shape))
            apart = torch.from_numpy(drawn).to(clean)
        pages = self._held(clean + apart, clean)
        if self.kind == "random":
            return pages.to(template)
        columns = {name: column.to(clean.device) for name, column in batch.items()}
        gradient = gradient_of(model, {**columns, "pixels": clean})
        names = choose(model, gradient, OBJECTIVE).names
        far = GradientDistance(OBJECTIVE, {name: gradient[name] for name in names})
        gradients = Gradients(model, names)
        size = self.epsilon / 10 if self.kind == "pgd" else -self.epsilon / 10
        for _ in range(self.steps):
            with twice_differentiable():
                _, slopes = gradients.slopes(pages, [], columns, far)
            pages = self._held(pages + size * slopes[0].sign(), clean)
        return pages.to(template)

    def _held(self, pages: Tensor, clean: Tensor) -> Tensor:
        """Returns pages cut to ε around the clean ones, and to 0…255."""
        near = torch.minimum(torch.maximum(pages, clean - self.epsilon), clean + self.epsilon)
        return near.clamp(0, 255)
