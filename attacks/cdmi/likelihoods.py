"""From scores and losses to a token: Algorithm 2 of CDMI, lines 6 to 10, and its steps 3 to 6.

    ĝ = softmax(g / T_g)                              public likelihood, of PUB-MLM's logits g
    l̂ = softmax((2 - l / median(l)) / T_l)            target likelihood, of the target's losses l
        or softmax((mean(l) - l) / std(l) / T_l) [ours]
    p = ĝ^(1-w) · l̂^w / Z,  or  (1-w) ĝ + w l̂          their mean
    v ~ the nucleus of p

Tables are float64 of shape (rows, candidates); likelihoods are kept as logarithms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from fedpriv.threat.checks import check_choices, check_least, check_positive, check_share

Table = NDArray[np.float64]
Mean = Literal["geometric", "arithmetic"]
Likelihood = Literal["paper", "scaled"]

LEAST_MEDIAN = float(np.finfo(np.float32).eps)
"""A float32 cross-entropy below this is rounding. The median of a saturated model's losses is 0, by
which eq. 5 would divide."""


@dataclass(frozen=True)
class Sampling:
    """How a token is chosen.

    Args:
        candidates: N_c, the number of tokens that PUB-MLM, the adversary's own language model,
            proposes for each place (CDMI, App. A: 128; 512 is 2 % better).
        public_temperature: T_g, the temperature of PUB-MLM's likelihoods, for all tokens of a field
            after the first `decay_steps` (CDMI, App. A: 0.2 to 0.4).
        first_temperature: the temperature T_g for the first token of a field, from which it falls
            by equal steps. CDMI gives neither the start nor the kind of decay [ours].
        decay_steps: the number of tokens in which T_g falls from `first_temperature` to
            `public_temperature` (CDMI, App. A: 3). At 0, the first token already has the latter.
        likelihood: how the target's losses become likelihoods: "paper" is CDMI's eq. 5, made for
            losses most of which are near 0; it tells nothing where all losses are nearly alike.
            "scaled" divides by the losses' own spread, so that the least loss always has a say,
            however small the differences are and however little they mean [ours].
        target_temperature: T_l, the temperature of the target's likelihoods (CDMI, App. A: 0.2 to
            0.4, without decay; §4.2 mentions a decaying one, without numbers).
        mean: how the target's and PUB-MLM's likelihoods are averaged: "geometric" (CDMI, App. A) or
            "arithmetic".
        weight: w, the weight of the target's likelihood; PUB-MLM's has 1 - w (CDMI, App. A: 0.2 to
            0.6; it does not say of which of the two [ours]). At 0, the target is not asked.
        nucleus: the total likelihood of the likeliest tokens, among which one is drawn (CDMI,
            App. A: 0.10).
    """

    candidates: int = 128
    public_temperature: float = 0.3
    first_temperature: float = 1.0
    decay_steps: int = 3
    likelihood: Likelihood = "paper"
    target_temperature: float = 0.3
    mean: Mean = "geometric"
    weight: float = 0.4
    nucleus: float = 0.10

    def __post_init__(self) -> None:
        check_choices(self)
        check_least(self, 1, "candidates")
        check_least(self, 0, "decay_steps")
        check_positive(self, "public_temperature", "first_temperature", "target_temperature")
        check_share(self, "weight", none=True, all=True)
        check_share(self, "nucleus", all=True)

    def temperature(self, step: int) -> float:
        """Returns T_g of a field's token, counted from 0."""
        share = min(step / self.decay_steps, 1.0) if self.decay_steps else 1.0
        return self.first_temperature + share * (self.public_temperature - self.first_temperature)

    def public_likelihoods(self, scores: Table, step: int) -> Table:
        """Returns log ĝ (line 6)."""
        return log_likelihoods(scores, self.temperature(step))

    def target_likelihoods(self, losses: Table) -> Table:
        """Returns log l̂ of losses of 0 or more (lines 7 and 8)."""
        formula = scaled_likelihoods if self.likelihood == "scaled" else paper_likelihoods
        return formula(losses, self.target_temperature)

    def blend(self, public: Table, target: Table) -> Table:
        """Returns log p of log ĝ and log l̂ (line 9)."""
        if self.weight == 0:
            return public
        if self.mean == "geometric":
            return log_likelihoods((1 - self.weight) * public + self.weight * target)
        with np.errstate(divide="ignore"):  # of no weight: log 0 adds nothing
            shares = np.log([1 - self.weight, self.weight])
        blended: Table = np.logaddexp(shares[0] + public, shares[1] + target)
        return blended

    def unmoved(self, public: Table) -> Table:
        """Returns log p of log ĝ and of a target to which all candidates are alike."""
        return self.blend(public, self.target_likelihoods(np.zeros_like(public)))


def log_likelihoods(scores: Table, temperature: float = 1.0) -> Table:
    """Returns the logarithm of the softmax of each row."""
    found: Table = log_softmax(scores / temperature, axis=1)
    return found


def paper_likelihoods(losses: Table, temperature: float) -> Table:
    """Returns log l̂ of the losses of each row's candidates by eq. 5.

    Args:
        losses: 0 or more.
        temperature: T_l.
    """
    return log_likelihoods(2 - losses / _medians(losses), temperature)


def scaled_likelihoods(losses: Table, temperature: float) -> Table:
    """Returns log l̂ of the losses in units of their own standard deviation [ours].

    Losses that are all the same make all candidates equally likely.

    Args: as of `paper_likelihoods`.
    """
    apart = losses.mean(axis=1, keepdims=True) - losses
    spread = losses.std(axis=1, keepdims=True)
    return log_likelihoods(
        np.divide(apart, spread, np.zeros_like(apart), where=spread > 0), temperature
    )


def spreads(losses: Table) -> NDArray[np.float64]:
    """Returns the standard deviation of each row's losses over their median, (rows,)."""
    found: NDArray[np.float64] = losses.std(axis=1) / _medians(losses)[:, 0]
    return found


def _medians(losses: Table) -> Table:
    found: Table = np.maximum(np.median(losses, axis=1, keepdims=True), LEAST_MEDIAN)
    return found


def in_nucleus(likelihoods: Table, mass: float) -> Table:
    """Returns each row's likeliest tokens only, scaled to sum 1 (CDMI, §4.2, step 6).

    As few as reach the mass together, at least one; of equal ones those that stand first.

    Args:
        likelihoods: each row sums to 1.
        mass: in (0, 1].
    """
    order, ordered = _descending(likelihoods)
    before = np.cumsum(ordered, axis=1) - ordered
    before[:, 0] = 0.0
    kept = np.zeros_like(likelihoods)
    np.put_along_axis(kept, order, np.where(before < mass, ordered, 0.0), axis=1)
    scaled: Table = kept / kept.sum(axis=1, keepdims=True)
    return scaled


def drawn(likelihoods: Table, uniforms: NDArray[np.float64]) -> NDArray[np.int64]:
    """Returns a column of each row, by the inverse of the distribution function.

    Columns are taken in descending order of their likelihood, so that equal numbers choose alike
    from distributions that are nearly so.

    Args:
        likelihoods: each row sums to 1.
        uniforms: (rows,), in [0, 1).
    """
    order, ordered = _descending(likelihoods)
    below = np.cumsum(ordered, axis=1) <= uniforms[:, None]
    # Rounding may leave the last sum under 1: no column of likelihood 0 is ever taken.
    places = np.minimum(below.sum(axis=1), (ordered > 0).sum(axis=1) - 1)
    return np.take_along_axis(order, places[:, None], axis=1)[:, 0]


def _descending(likelihoods: Table) -> tuple[NDArray[np.int64], Table]:
    order = np.argsort(-likelihoods, axis=1, kind="stable")
    return order, np.take_along_axis(likelihoods, order, axis=1)
