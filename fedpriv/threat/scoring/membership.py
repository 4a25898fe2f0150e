"""How well an attack tells who was in the training set, and how sure that is.

All numbers are of providers, not of pages or questions: a provider is what was in the training set
or not. An attack that is told some members is run in several trials, each with its own providers to
judge; the metrics are means over the trials.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from fedpriv.threat.claims import MEMBER, NO_GUESS, NON_MEMBER
from fedpriv.threat.statistics import CONFIDENCE, Estimate, area, difference, p_value, share

FALSE_POSITIVE_RATES = (0.01, 0.001)
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Judged:
    """What a classifier said of n providers in one trial, and the truth.

    Attributes:
        providers: n, all different.
        members: (n,), bool: the truth, with at least one member and one non-member.
        scores: (n,), float64, finite; the higher, the more likely a member.
        guesses: (n,), int8: `MEMBER`, `NON_MEMBER` or `NO_GUESS`.
    """

    providers: tuple[str, ...]
    members: Bools
    scores: Floats
    guesses: NDArray[np.int8]

    def __post_init__(self) -> None:
        n = len(self.providers)
        shapes = [np.shape(a) for a in (self.members, self.scores, self.guesses)]
        if shapes != [(n,)] * 3:
            raise ValueError(
                f"members, scores and guesses have the shapes {shapes}: expected {(n,)}, one value "
                "for each supplier"
            )
        if len(set(self.providers)) < n:
            raise ValueError("a supplier is judged twice in one trial: expected each once")
        members = int(np.sum(self.members))
        if not 0 < members < n:
            missing = "non-members" if members else "members"
            raise ValueError(
                f"there are no {missing} among the {n} suppliers to be judged: nothing can be told "
                "apart; hold out some suppliers, or judge more of them"
            )
        if not np.isfinite(self.scores).all():
            wrong = self.scores[~np.isfinite(self.scores)][0]
            raise ValueError(f"a score is {wrong}: expected finite ones; a constant says nothing")
        if not np.isin(self.guesses, (MEMBER, NO_GUESS, NON_MEMBER)).all():
            raise ValueError(
                f"guesses holds {sorted(set(self.guesses.tolist()))}: expected {MEMBER}, "
                f"{NON_MEMBER} or {NO_GUESS}"
            )

    @property
    def said(self) -> Floats:
        """The guesses as shares: 1 for a member, 0 for none, 1/2 for no guess."""
        return (self.guesses.astype(np.float64) + 1) / 2

    @property
    def right(self) -> Floats:
        """For each provider, 1 where the guess is right, 0 where wrong, 1/2 where none."""
        return np.where(self.members, self.said, 1 - self.said)


@dataclass(frozen=True)
class TrialScores:
    """What one classifier's trials show.

    Attributes:
        auc: of the scores.
        balanced: accuracy of the guesses, mean of that on members and on others.
        numbers: by name, as of `membership_metrics`.
    """

    auc: Estimate
    balanced: Estimate
    numbers: Mapping[str, Any]


def membership_metrics(trials: Sequence[Judged]) -> TrialScores:
    """Returns the metrics of one classifier.

    * `trials`, `n`, `members`: how many, and the mean of providers judged, and of members.
    * `prior`: the share of the larger class, which a constant guess gets right.
    * `accuracy`, `balanced_accuracy`: a provider without a guess counts as half right.
    * `accuracy_std`: standard deviation over the trials (n - 1); 0 for one.
    * `auc`: 1/2 for constant scores.
    * `tpr_at_fpr`: by false-positive rate; see `found_at`.
    * `interval`: of `balanced_accuracy` and `auc`, over providers and over trials, by
      `fedpriv.threat.statistics.area`; of `tpr`, at the first of the rates, see `tpr_limits`.
    * `p_value`, `p_value_auc`: of balanced accuracy and AUC, against 1/2; of the same procedure.

    Args:
        trials: one or more.

    Raises:
        ValueError: if there is no trial, or a provider is a member in one and not in another.
    """
    if not trials:
        raise ValueError("there is no trial: expected one or more")
    truth: dict[str, bool] = {}
    for trial in trials:
        for provider, member in zip(trial.providers, trial.members.tolist(), strict=True):
            if truth.setdefault(provider, member) != member:
                raise ValueError(f"{provider!r} is a member in one trial and not in another")
    sides, units = [t.members for t in trials], [t.providers for t in trials]
    of_scores = area(sides, [t.scores for t in trials], units)
    of_guesses = area(sides, [t.said for t in trials], units, ranked=False)
    rates = {
        rate: np.concatenate([found_at(rate, t.members, t.scores) for t in trials])
        for rate in FALSE_POSITIVE_RATES
    }
    members = np.array([trial.members.sum() for trial in trials])
    sizes = np.array([len(trial.members) for trial in trials])
    accuracies = [np.mean(trial.right) for trial in trials]
    chance = Estimate.known(0.5)
    return TrialScores(
        of_scores,
        of_guesses,
        {
            "n": float(sizes.mean()),
            "members": float(members.mean()),
            "trials": len(trials),
            "prior": float((np.maximum(members, sizes - members) / sizes).mean()),
            "accuracy": float(np.mean(accuracies)),
            "accuracy_std": float(np.std(accuracies, ddof=1)) if len(trials) > 1 else 0.0,
            "balanced_accuracy": of_guesses.value,
            "auc": of_scores.value,
            "tpr_at_fpr": {str(rate): float(hits.mean()) for rate, hits in rates.items()},
            "interval": {
                "balanced_accuracy": list(of_guesses.limits(CONFIDENCE)),
                "auc": list(of_scores.limits(CONFIDENCE)),
                "tpr": np.mean([tpr_limits(t.members, t.scores) for t in trials], 0).tolist(),
            },
            "p_value": p_value(difference(of_guesses, chance)),
            "p_value_auc": p_value(difference(of_scores, chance)),
        },
    )


def found_at(rate: float, members: Bools, scores: Floats) -> Bools:
    """Returns which members are above a threshold with at most `rate` false positives.

    A member whose score equals that of the first non-member too many is not found: the tie counts
    against the attack. With fewer than 1/rate non-members, no false positive is allowed at all.
    """
    others = np.sort(scores[~members])[::-1]
    # The small number is for products such as 0.29 * 100, which fall short of an integer.
    allowed = int(rate * len(others) + 1e-9)
    found: Bools = scores[members] > others[allowed]
    return found


def tpr_limits(
    members: Bools,
    scores: Floats,
    rate: float = FALSE_POSITIVE_RATES[0],
    confidence: float = CONFIDENCE,
) -> tuple[float, float]:
    """Returns between what the TPR lies at the threshold that `rate` of all non-members pass.

    Which threshold that is, is in doubt too: it lies between two of the non-members' scores, or
    above all of them where they are few, and then nothing is known from below. Each of the four
    things that may go wrong has a quarter of the risk.
    """
    others, risk = np.sort(scores[~members])[::-1], (1 - confidence) / 4
    # How many of so many pass the threshold, at least and at most.
    fewest = int(binom.ppf(risk, len(others), rate))
    most = int(binom.ppf(1 - risk, len(others), rate))
    highest = others[fewest - 1] if fewest else np.inf
    lowest = others[most] if most < len(others) else -np.inf
    level = 1 - 2 * risk
    low, _ = share(scores[members] > highest).limits(level)
    _, high = share(scores[members] >= lowest).limits(level)
    return low, high


def roc(members: Bools, scores: Floats) -> tuple[Floats, Floats]:
    """Returns false- and true-positive rate by falling threshold, from (0, 0) to (1, 1)."""
    order = np.argsort(-scores, kind="stable")
    last_of_ties = np.append(np.flatnonzero(np.diff(scores[order])), len(scores) - 1)
    found = np.cumsum(members[order])[last_of_ties]
    false = 1 + last_of_ties - found
    return np.append(0, false) / false[-1], np.append(0, found) / found[-1]
