"""Signal against noise: how much of a round's sum can be learned content at all.

The signal is largest if all clipped contributions point the same way. It is then their number times
the clip norm C. The noise has standard deviation σC in each of d coordinates, so its norm is about
σC√d. Over T rounds a steady signal grows with T, and noise only with √T.

A small ratio need not be fatal: most of the noise lies in directions that do not matter to the
task, and in a large pretrained model few directions do. PrIeD-KIE on FUNSD (389
examples, q = 1/7, σ = 1.5, d = 125 million, T = 350) has .0033 a round and .062 over the run, and
learns; PFL-DocVQA (2 of 10 clients, M = 400, σ = .77, d = 226 million, T = 10) .069 and .22.
FL-PROVIDER-DP on a tiny VT5 (2 of 6 clients, M = 3, σ = 1.38, d = 402 688, T = 10) has .0068 and
.021, and one round takes its ANLS from .695 to 0. On a tiny LayoutLMv3 from random weights (3 of 6
clients, M = 3, d = 99 637, T = 3) it has .030 and .052, and the F1 is 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedpriv.privacy import banded
from fedpriv.privacy.mechanism import Mechanism

DROWNED = 0.06
"""Signal over noise of a whole run below which a model is lost: between the cases above."""


@dataclass(frozen=True)
class Signal:
    """The largest signal and the expected noise in the sum of one release.

    Args:
        units: clipped contributions in the sum, expected.
        clip_norm: C, of each of them.
        noise_multiplier: σ of the noise in that sum if all clients answer.
        parameters: d, coordinates of the sum.
        releases: T, such sums in a run.
    """

    units: float
    clip_norm: float
    noise_multiplier: float
    parameters: int
    releases: int

    @property
    def per_round(self) -> float:
        """Signal over noise in one release; ∞ without noise."""
        noise = self.noise_multiplier * math.sqrt(self.parameters)
        return self.units / noise if noise else math.inf

    @property
    def over_run(self) -> float:
        """Signal over noise after all releases, of a signal that stays the same."""
        return self.per_round * math.sqrt(self.releases)

    @property
    def drowned(self) -> bool:
        """Whether the noise will drown the model."""
        return self.over_run < DROWNED

    def lines(self) -> list[str]:
        """Returns both and their ratios in words, with a warning where the model will drown."""
        if not self.noise_multiplier:
            return []
        signal = self.units * self.clip_norm
        noise = self.noise_multiplier * self.clip_norm * math.sqrt(self.parameters)
        lines = [
            f"signal against noise: a round sums about {self.units:.3g} units of norm up to "
            f"{self.clip_norm:g}, {signal:.3g} in all; its noise has norm {noise:.3g} over "
            f"{self.parameters:,} parameters",
            f"signal / noise: at most {self.per_round:.2g} in a round, {self.over_run:.2g} over "
            f"the {self.releases} of the run, where the signal adds up and the noise averages out",
        ]
        if self.drowned:
            lines.append(
                f"WARNING: the noise will drown the model: over the run it is "
                f"{1 / self.over_run:.0f} times as large as the signal; take more units or clients "
                "in a round, fewer trained parameters (finetuning=lora), more rounds, or a larger "
                "epsilon"
            )
        return lines


def signal_lines(
    mechanism: Mechanism,
    parameters: int,
    clients: int,
    rounds: int,
    threshold: float = 1.0,
    steps: int | None = None,
) -> list[str]:
    """Returns signal against noise of a run in words; an empty list without noise.

    Args:
        mechanism: of the run.
        parameters: that are trained and sent.
        clients: of the federation.
        rounds: of the run.
        threshold: of the strategy. Answers beyond it add surplus noise.
        steps: where every client adds noise to steps of its own (FedAvg-DP), how many in a round.
    """
    cohort = mechanism.client_rate * clients
    units = mechanism.normaliser * (1.0 if mechanism.unit == "example" else cohort)
    noise, releases = mechanism.noise_multiplier / math.sqrt(threshold), rounds
    if mechanism.bands > 1:
        noise *= banded.cancelled(mechanism.bands, rounds)
    if steps is not None:  # each client's own sums, of which the server takes the mean
        units, releases = units / cohort, round(rounds * steps * cohort)
    lines = Signal(units, mechanism.clip_norm, noise, parameters, releases).lines()
    if rounds < mechanism.bands:
        lines.append(f"WARNING: {turnless(mechanism.bands, rounds)}")
    if (limit := mechanism.individual_epsilon) and mechanism.noise_multiplier:
        # It imports torch, which `fedpriv budget` does without.
        from fedpriv.privacy.individual import most_given

        most = math.sqrt(most_given(limit, mechanism.noise_multiplier, mechanism.delta))
        lines.append(
            f"individual_epsilon={limit:g}: a {mechanism.unit} may give {most:.2g} clip norms in "
            f"one round, or {most:.2g} / √k in each of k, and then gives no more"
        )
    return lines


def turnless(bands: int, rounds: int) -> str:
    """Says what becomes of units in a run with fewer rounds than bands."""
    return (
        f"with {bands} bands, each unit has its turn in one round of {bands}, so about "
        f"{bands - rounds} of {bands} units have none in {rounds} rounds: take fewer bands"
    )
