"""How well an attack tells who was in the training set, and how sure that is.

All numbers are of providers, not of pages or questions: a provider is what was in the training set
or not. An attack that is told some members is run in several trials, each with its own providers to
judge; the metrics are means over the trials.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from fedpriv.threat.claims import MEMBER, NO_GUESS, NON_MEMBER

FALSE_POSITIVE_RATES = (0.01, 0.001)
COVERAGE = 0.95
"""Of the intervals."""

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Judged:
    """What a classifier said of n providers in one trial, and the truth.

    Attributes:
        providers: n, all different.
        members: (n,), bool: the truth, with at least one member and one non-member.
        scores: (n,), float64, finite; the higher, the rather a member.
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
                "for each provider"
            )
        if len(set(self.providers)) < n:
            raise ValueError("a provider is judged twice in one trial: expected each once")
        members = int(np.sum(self.members))
        if not 0 < members < n:
            missing = "non-members" if members else "members"
            raise ValueError(
                f"there are no {missing} among the {n} providers to be judged: nothing can be told "
                "apart; hold out some providers, or judge more of them"
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

    @property
    def balanced(self) -> float:
        """The balanced accuracy."""
        return float((self.right[self.members].mean() + self.right[~self.members].mean()) / 2)


def membership_metrics(
    trials: Sequence[Judged], rng: np.random.Generator, *, resamples: int = 1000
) -> dict[str, Any]:
    """Returns the metrics of one classifier.

    * `n`, `members`: providers judged in a trial, and members among them; means where they differ.
    * `trials`: how many.
    * `prior`: the share of the larger class, which a constant guess gets right.
    * `accuracy`, `balanced_accuracy`: a provider without a guess counts as half right.
    * `accuracy_std`: standard deviation over the trials (n - 1); 0 for one.
    * `auc`: 1/2 for constant scores.
    * `tpr_at_fpr`: by false-positive rate; see `tpr_at`.
    * `interval`: of accuracy, balanced accuracy and AUC, the middle 95 % over bootstrap resamples
      of the providers. Members and non-members are resampled apart, since how many there are of
      either is the experiment's choice and no accident. All trials see the same resample: a
      provider that is judged in five trials is still one provider. The classifier is held fixed;
      one without error has an interval without width.
    * `p_value`: how often the balanced accuracy would be as high if the members were others of the
      same number, drawn at random; one-sided, never 0. Of several trials, twice the median of their
      p-values, at most 1, which keeps its level however they depend on each other (Rüger 1978).
    * `p_value_auc`: likewise of the AUC.

    Args:
        trials: one or more.
        rng: draws resamples and permutations.
        resamples: how many of both.

    Raises:
        ValueError: if there is no trial, or a provider is a member in one and not in another.
    """
    if not trials:
        raise ValueError("there is no trial: expected one or more")
    if resamples < 1:
        raise ValueError(f"resamples={resamples}: expected 1 or more")
    members = [int(trial.members.sum()) for trial in trials]
    sizes = [len(trial.providers) for trial in trials]
    accuracies = [np.mean(trial.right) for trial in trials]
    p_values = np.array([_p_values(trial, rng, resamples) for trial in trials])
    combined = p_values[0] if len(trials) == 1 else np.minimum(1, 2 * np.median(p_values, axis=0))
    return {
        "n": sizes[0] if len(set(sizes)) == 1 else float(np.mean(sizes)),
        "members": members[0] if len(set(members)) == 1 else float(np.mean(members)),
        "trials": len(trials),
        "prior": float(np.mean([max(m, n - m) / n for m, n in zip(members, sizes, strict=True)])),
        "accuracy": float(np.mean(accuracies)),
        "accuracy_std": float(np.std(accuracies, ddof=1)) if len(trials) > 1 else 0.0,
        "balanced_accuracy": float(np.mean([trial.balanced for trial in trials])),
        "auc": float(np.mean([auc(trial.members, trial.scores) for trial in trials])),
        "tpr_at_fpr": {
            str(rate): float(np.mean([tpr_at(rate, t.members, t.scores) for t in trials]))
            for rate in FALSE_POSITIVE_RATES
        },
        "interval": _intervals(trials, rng, resamples),
        "p_value": float(combined[0]),
        "p_value_auc": float(combined[1]),
    }


def auc(members: Bools, scores: Floats) -> float:
    """Returns how often a member's score is above a non-member's; a tie counts half."""
    count = int(members.sum())
    above = rankdata(scores)[members].sum() - count * (count + 1) / 2
    return float(above / (count * (len(members) - count)))


def tpr_at(rate: float, members: Bools, scores: Floats) -> float:
    """Returns the largest share of members above a threshold with at most `rate` false positives.

    A member whose score equals that of the first non-member too many is not found: the tie counts
    against the attack. With fewer than 1/rate non-members, no false positive is allowed at all.
    """
    others = np.sort(scores[~members])[::-1]
    # The small number is for products such as 0.29 * 100, which fall short of an integer.
    allowed = int(rate * len(others) + 1e-9)
    return float(np.mean(scores[members] > others[allowed]))


def roc(members: Bools, scores: Floats) -> tuple[Floats, Floats]:
    """Returns false- and true-positive rate by falling threshold, from (0, 0) to (1, 1)."""
    order = np.argsort(-scores, kind="stable")
    last_of_ties = np.append(np.flatnonzero(np.diff(scores[order])), len(scores) - 1)
    found = np.cumsum(members[order])[last_of_ties]
    false = 1 + last_of_ties - found
    return np.append(0, false) / false[-1], np.append(0, found) / found[-1]


def _p_values(trial: Judged, rng: np.random.Generator, permutations: int) -> Floats:
    """Returns the p-values of balanced accuracy and AUC in one trial.

    Both grow with a sum over the members, of guesses and of ranks; all are multiples of 1/2, so
    that ties are seen exactly.
    """
    values = np.stack([trial.said, rankdata(trial.scores)], axis=1)
    drawn = rng.permuted(np.tile(trial.members, (permutations, 1)), axis=1)
    as_high = (drawn @ values >= values[trial.members].sum(0)).sum(0)
    p_values: Floats = (1 + as_high) / (1 + permutations)
    return p_values


def _intervals(
    trials: Sequence[Judged], rng: np.random.Generator, resamples: int
) -> dict[str, list[float]]:
    truth: dict[str, bool] = {}
    for trial in trials:
        for provider, member in zip(trial.providers, trial.members.tolist(), strict=True):
            if truth.setdefault(provider, member) != member:
                raise ValueError(f"{provider!r} is a member in one trial and not in another")
    # How often each provider is drawn; each class keeps its size.
    weights = np.empty((resamples, len(truth)))
    members = np.array(list(truth.values()))
    for side in (members, ~members):
        count = int(side.sum())
        weights[:, side] = rng.multinomial(count, np.full(count, 1 / count), size=resamples)
    place = {provider: number for number, provider in enumerate(truth)}
    found = np.stack(
        [_weighted(trial, weights[:, [place[p] for p in trial.providers]]) for trial in trials]
    )
    # A small trial may lose all its members in a resample: the others then speak for it.
    with np.errstate(invalid="ignore"):
        means = np.nansum(found, axis=0) / np.isfinite(found).sum(axis=0)
    tail = (1 - COVERAGE) / 2
    low, high = np.nanquantile(means, [tail, 1 - tail], axis=1)
    names = ("accuracy", "balanced_accuracy", "auc")
    return {
        name: [float(least), float(most)]
        for name, least, most in zip(names, low, high, strict=True)
    }


def _weighted(trial: Judged, weights: Floats) -> Floats:
    """Returns accuracy, balanced accuracy and AUC for each row of weights, (3, rows).

    NaN where a class has no weight.
    """
    right, members = trial.right, trial.members
    of_members, of_others = weights * members, weights * ~members
    with np.errstate(invalid="ignore", divide="ignore"):
        found = of_members @ right / of_members.sum(1)
        rejected = of_others @ right / of_others.sum(1)
        return np.stack(
            [
                weights @ right / weights.sum(1),
                (found + rejected) / 2,
                _weighted_auc(of_members, of_others, trial.scores),
            ]
        )


def _weighted_auc(of_members: Floats, of_others: Floats, scores: Floats) -> Floats:
    """Returns the AUC for each row of weights, (rows,)."""
    order = np.argsort(scores, kind="stable")
    first_of_ties = np.append(0, 1 + np.flatnonzero(np.diff(scores[order])))
    up, down = (
        np.add.reduceat(side[:, order], first_of_ties, axis=1) for side in (of_members, of_others)
    )
    below = np.cumsum(down, axis=1) - down / 2
    pairs: Floats = (up * below).sum(1) / (up.sum(1) * down.sum(1))
    return pairs
