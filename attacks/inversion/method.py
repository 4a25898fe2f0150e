"""What a method of gradient inversion is made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from fedpriv.attacks.inversion.objective import Objective
from fedpriv.attacks.inversion.pixels import Pixels, Region
from fedpriv.attacks.inversion.prior import Prior
from fedpriv.attacks.inversion.schedule import Constant, Schedule
from fedpriv.attacks.inversion.start import Start
from fedpriv.threat.checks import check_choices, check_least, check_positive

Step = Literal["adam", "signed_adam", "lbfgs"]


@dataclass(frozen=True)
class Inversion:
    """A method of inversion. See `fedpriv.attacks.inversion.presets` for the published ones.

    Attributes:
        objective: distance between gradients.
        evaluations: how many times the distance may be computed for a victim and a restart, those
            within a step of L-BFGS counted; 0 returns the start. Each takes one gradient of the
            model, or T where T local steps are simulated: a reconstruction tells how many it took.
        priors: penalties on the pages divided by 255, each with its weight.
        prior_schedule: φ, a factor on the priors' weights in the course of the inversion.
        start: what the free pixels start from, see `fedpriv.attacks.inversion.start`.
        region: which pixels are free: the "private" ones or the whole "page".
        pixels: what is sought for each pixel: "grey", one number; "rgb", three; "ink", one shade
            between white and the colour in which the template is printed.
        optimizer: "adam", "signed_adam" (the signs of the gradient; Geiping et al. 2020), "lbfgs".
        lr: the learning rate, for pixels of 0…255.
        betas: the two betas of Adam.
        lr_schedule: a factor on the learning rate in the course of the inversion.
        clamp: whether pixels are held in 0…255 after every step; at the end they always are.
        labels: "known", or "soft": sought beside the page as scores (DLG), where the model scores
            one label an example; elsewhere they are taken as known, and a note says so.
        restarts: the number of inversions from starts of their own, of which the one with the least
            distance is kept.
        keep: which pixels are kept: the "best", with the least distance, or the "last".
        patience: the number of evaluations without a smaller distance after which the inversion
            ends. None never ends it early.
        seconds: the wall-clock seconds after which the inversion ends. None sets no limit; with
            one, no run can be repeated to the bit.
        together: the largest number of victims in one vectorised run.
    """

    objective: Objective
    evaluations: int
    priors: tuple[tuple[float, Prior], ...] = ()
    prior_schedule: Schedule = field(default_factory=Constant)
    start: Start = "noise"
    region: Region = "private"
    pixels: Pixels = "rgb"
    optimizer: Step = "adam"
    lr: float = 25.0
    betas: tuple[float, float] = (0.9, 0.999)
    lr_schedule: Schedule = field(default_factory=Constant)
    clamp: bool = True
    labels: Literal["known", "soft"] = "known"
    restarts: int = 1
    keep: Literal["best", "last"] = "best"
    patience: int | None = None
    seconds: float | None = None
    together: int = 16

    def __post_init__(self) -> None:
        check_choices(self)
        check_least(self, 0, "evaluations")
        check_least(self, 1, "restarts", "together")
        check_positive(self, "lr", "patience", "seconds")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas={self.betas}: expected two numbers in [0, 1)")
