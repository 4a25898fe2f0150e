"""Lower bounds on ε from the scores of canaries, each in the training or not by a fair coin.

A score is the logarithm of how much more probable what was seen of a canary is if it took part than
if it did not. Three bounds are made of the scores; each assumes less than the one before, and shows
less:

- `sigma_fit` (Nasr et al. 2023, "Tight Auditing of Differentially Private Machine Learning", with
  f-DP by the ledger's own privacy loss distribution): canaries are told apart at score 0, and every
  noise whose trade-off curve lies above the error rates is rejected. It assumes that the mechanism
  is the ledger's but for the size of its noise, and that canaries do not disturb each other.
- `counted`: (ε, δ)-DP allows TPR ≤ e^ε FPR + δ. It assumes only that what is seen of one canary
  does not depend on the others.
- `fedpriv.privacy.one_run.epsilon_lower`: it assumes fair coins, and nothing else.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from fedpriv.privacy.accounting import pld
from fedpriv.privacy.accounting.event import Event, History, each_part
from fedpriv.privacy.one_run import CONFIDENCE

Scores = NDArray[np.floating]

FINEST = 1e-4
"""The noise is found to this share of it."""

SCALES = (1 / 16, 16.0)
"""Noise as a multiple of the ledger's that is looked at. Above, the bound is 0."""

SIMULATED = 400_000
"""Canaries of the ideal mechanism, to choose a threshold and to hold error rates against."""

FAR, ROUNDING = 5.0, 1e-3
"""Standard deviations, and a share beyond them, by which canaries are told apart too seldom."""


def log_likelihood_ratio(
    seen: NDArray[np.floating], noise_multiplier: float, record_rate: float
) -> Scores:
    """Returns the scores of canaries in one release: log(1 - q + q·exp(y/σ² - 1/(2σ²))).

    Args:
        seen: y, the released sums on the canaries' axes in units of the clip norm.
        noise_multiplier: σ.
        record_rate: q, with which a canary takes part, given that its client does.
    """
    drawn = (np.asarray(seen, np.float64) - 0.5) / noise_multiplier**2
    if record_rate == 1:
        return drawn
    return np.logaddexp(math.log1p(-record_rate), math.log(record_rate) + drawn)


def sigma_fit(
    scores: Scores, inside: NDArray[np.bool_], history: History, delta: float, confidence: float
) -> float:
    """Returns the ε of the largest noise that is not rejected; 0 if none is rejected.

    Args:
        scores: (m,).
        inside: (m,), whether each canary was in the training.
        history: what the ledger says that was seen of a client, whose participation is known.
        delta: δ.
        confidence: with which the mechanism is not (ε, δ)-DP for a smaller ε, if its noise is of
            the ledger's form.
    """

    def rejected(scale: float) -> bool:
        return rejects(scores, inside, _scaled(history, scale), confidence)

    low, high = SCALES
    if not rejected(high):
        return 0.0
    if rejected(low):
        high = low
    while high / low > 1 + FINEST:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if rejected(middle) else (middle, high)
    return pld.epsilon(_scaled(history, high), delta)


def rejects(scores: Scores, inside: NDArray[np.bool_], history: History, confidence: float) -> bool:
    """Says whether canaries are told apart better than a mechanism allows.

    Error rates at score 0 are bounded by Clopper and Pearson, at half of the risk each.

    Args:
        scores: (m,).
        inside: (m,), whether each canary was in the training.
        history: what is seen under the mechanism.
        confidence: 1 less the probability with which the true mechanism is rejected, at most.
    """
    hits, members, alarms, others = _counts(scores > 0, inside)
    risk = (1 - confidence) / 2
    false_positives = float(_at_most(alarms, others, risk))
    false_negatives = float(_at_most(members - hits, members, risk))
    return bool(false_negatives < pld.trade_off(history, false_positives))


def too_little(scores: Scores, inside: NDArray[np.bool_], history: History) -> bool:
    """Says whether far fewer canaries are told apart than the mechanism lets through.

    Then the bounds are low for another reason than the noise, and say nothing: the canaries did not
    arrive, or were drowned by what nobody has booked.

    Args:
        scores: (m,); a score that is no number tells nothing.
        inside: (m,), whether each canary was in the training.
        history: what is seen under the mechanism.
    """
    hits, members, alarms, others = _counts(scores > 0, inside)
    true_positives, false_positives = _ideal_rates(tuple(history))

    def too_often(errors: int, of: int, rate: float) -> bool:
        deviation = math.sqrt(rate * (1 - rate) * (1 / max(1, of) + 1 / SIMULATED))
        return errors - of * rate > of * (ROUNDING + FAR * deviation)

    return too_often(members - hits, members, 1 - true_positives) or too_often(
        alarms, others, false_positives
    )


@lru_cache(maxsize=64)
def _ideal_rates(history: tuple[tuple[Event, int], ...]) -> tuple[float, float]:
    """Returns the shares of scores above 0 of canaries that are in, and of others."""
    rng = np.random.default_rng(1)
    told = [np.mean(_ideal_scores(history, rng, inside) > 0) for inside in (True, False)]
    return float(told[0]), float(told[1])


def _ideal_scores(
    history: tuple[tuple[Event, int], ...], rng: np.random.Generator, inside: bool
) -> Scores:
    """Returns scores that the mechanism itself gives canaries which are all in, or all out."""
    scores = np.zeros(SIMULATED)
    for event, times in history:
        ((_, event),) = event.parts
        for _ in range(times):
            drawn = inside & (rng.random(SIMULATED) < event.record_rate)
            seen = drawn + event.noise_multiplier * rng.standard_normal(SIMULATED)
            scores += log_likelihood_ratio(seen, event.noise_multiplier, event.record_rate)
    return scores


def counted(
    scores: Scores,
    inside: NDArray[np.bool_],
    threshold: float,
    delta: float,
    confidence: float,
) -> float:
    """Returns log((TPR - δ) / FPR) at a threshold, with rates by Clopper and Pearson.

    Args:
        scores: (m,).
        inside: (m,), whether each canary was in the training.
        threshold: chosen without a look at the scores, as `threshold_for` does.
        delta: δ.
        confidence: of the bound.
    """
    counts = _counts(scores > threshold, inside)
    return float(_counted(*counts, delta, 1 - confidence))


@lru_cache(maxsize=64)
def threshold_for(
    history: tuple[tuple[Event, int], ...],
    canaries: int,
    delta: float,
    confidence: float = CONFIDENCE,
) -> float:
    """Returns the threshold at which `counted` is expected to show most of the ideal mechanism.

    Only canaries that took part are simulated: where the score is L, e^-L is how much less
    probable it is without the canary, so their mean tells the rate of false alarms far out, too.

    Args:
        history: what the ledger says that was seen of a client, whose participation is known.
        canaries: that are scored, half of them in.
        delta: δ.
        confidence: of the bound.
    """
    scores = np.sort(_ideal_scores(history, np.random.default_rng(0), True))
    without = np.cumsum(np.exp(-scores[::-1]))[::-1] / SIMULATED
    places = SIMULATED - np.unique(np.geomspace(20, SIMULATED / 2, 200).astype(int))
    half = canaries / 2
    hits, alarms = half * (SIMULATED - places) / SIMULATED, half * without[places]
    shown = _counted(hits, half, alarms, half, delta, 1 - confidence)
    return float(scores[places[np.argmax(shown)]])


def _counts(told: NDArray[np.bool_], inside: NDArray[np.bool_]) -> tuple[int, int, int, int]:
    """Returns the hits among all members, and the false alarms among all others."""
    members, hits = int(np.sum(inside)), int(np.sum(told & inside))
    return hits, members, int(np.sum(told)) - hits, len(inside) - members


def _counted(
    hits: NDArray[np.float64] | float,
    members: float,
    alarms: NDArray[np.float64] | float,
    others: float,
    delta: float,
    risk: float,
) -> NDArray[np.float64]:
    least = np.asarray(_at_least(hits, members, risk / 2)) - delta
    most = np.asarray(_at_most(alarms, others, risk / 2))
    with np.errstate(divide="ignore"):
        return np.maximum(0.0, np.log(np.maximum(least, 0.0) / most))


def _at_least(count: NDArray[np.float64] | float, of: float, risk: float) -> NDArray[np.float64]:
    """Returns the lower end of Clopper and Pearson's interval of a share."""
    count = np.asarray(count, np.float64)
    bound = betaincinv(np.maximum(count, 1e-9), of - count + 1, risk)
    return np.where(count > 0, bound, 0.0)


def _at_most(count: NDArray[np.float64] | float, of: float, risk: float) -> NDArray[np.float64]:
    """Returns the upper end."""
    count = np.asarray(count, np.float64)
    bound = betaincinv(count + 1, np.maximum(of - count, 1e-9), 1 - risk)
    return np.where(count < of, bound, 1.0)


def _scaled(history: History, scale: float) -> tuple[tuple[Event, int], ...]:
    return tuple(
        (each_part(event, lambda e: replace(e, noise_multiplier=scale * e.noise_multiplier)), times)
        for event, times in history
    )
