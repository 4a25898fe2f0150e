"""How a provider's features become a verdict (Tito et al. 2023, §5.2.3).

No classifier sees the truth about a provider that it judges, and nothing is chosen by how well it
does on them: k-means works on the features of those to be judged alone, the forest and its grid on
the known ones alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata
from sklearn.cluster import KMeans
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import GridSearchCV, StratifiedKFold

from fedpriv.threat.claims import MEMBER, NON_MEMBER
from fedpriv.threat.statistics import LEVEL

TREES = 100

LEAVES = (16, 8)
"""The smallest leaf of the grid is 1, or the known ones divided by these.

The paper mentions a search and does not give it. A tree on k known providers can only split if a
leaf may be well below k/2, and in the search it sees two thirds of them, about 0.63 of these
different ones.
"""

TREES_IN_SEARCH = 10
"""With a hundred known providers, which of them are held out matters more than so few trees."""

FOLDS = 3

LUMPS = 999
"""Draws of one cluster in `are_two`."""

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Opinion:
    """On n providers.

    Attributes:
        scores: (n,), the higher, the more likely a member.
        guesses: (n,), int8: `MEMBER`, `NON_MEMBER` or `NO_GUESS`.
    """

    scores: Floats
    guesses: NDArray[np.int8]

    @classmethod
    def of(cls, scores: Floats, members: Bools) -> Opinion:
        """Takes a verdict on everybody."""
        guesses = np.where(members, MEMBER, NON_MEMBER).astype(np.int8)
        return cls(scores.astype(np.float64), guesses)


def two_means(rows: Floats, seed: int) -> Opinion:
    """Parts providers into two clusters; the one with the higher first feature are the members.

    The features are brought to 0…1 first, by their least and largest value. If both clusters have
    the same mean of the first feature, the next decides. The score is the distance to the others'
    centre minus that to the members'. Providers that are all alike are non-members, all with score
    0.

    Args:
        rows: (n, features) of the providers to be judged; in the first, members have more.
        seed: of the starting points.
    """
    scaled = _scaled(rows)
    if not scaled.any():
        return Opinion.of(np.zeros(len(rows)), np.zeros(len(rows), bool))
    # The paper leaves these open; they are those of the authors' later code (DocMIA).
    means = KMeans(2, init="random", n_init=10, max_iter=300, random_state=seed).fit(scaled)
    centres = [tuple(scaled[means.labels_ == cluster].mean(0)) for cluster in (0, 1)]
    members = centres.index(max(centres))
    distances = means.transform(scaled)
    return Opinion.of(distances[:, 1 - members] - distances[:, members], means.labels_ == members)


def are_two(rows: Floats, rng: np.random.Generator) -> bool:
    """Says whether two clusters describe providers better than one does.

    Along their first principal component, the share of the variance that is left within the two
    best clusters is compared with that of values drawn from one uniform distribution: the reference
    of the gap statistic (Tibshirani et al. 2001), with a p-value by simulation, at most 0.05.
    Divided at its centre, no symmetric distribution with one mode leaves less than the uniform one,
    1/4; of a Gaussian, 0.36 are left, of an exponential one, 0.35. So a single lump seldom passes,
    and two of the same size pass once some four of their deviations lie between them.

    Args:
        rows: (n, features); each feature is brought to 0…1.
        rng: draws the uniform values.
    """
    scaled = _scaled(rows)
    centred = scaled - scaled.mean(0)
    if not centred.any():
        return False
    _, _, components = np.linalg.svd(centred, full_matrices=False)
    lumps = rng.random((LUMPS, len(rows)))
    as_low = _left_within(lumps) <= _left_within(centred @ components[:1].T.ravel())
    return bool((1 + as_low.sum()) / (1 + LUMPS) <= LEVEL)


def _left_within(values: Floats) -> Floats:
    """Returns the share of the variance within the best two clusters, (…,) of values (…, n)."""
    count = values.shape[-1]
    ordered = np.sort(values - values.mean(-1, keepdims=True))
    below = np.cumsum(ordered, -1)[..., :-1]
    size = np.arange(1, count)
    # The sum of all is 0, so that of those above is the negative of that of those below.
    between = (below**2 * count / (size * (count - size))).max(-1)
    left: Floats = 1 - between / (ordered**2).sum(-1)
    return left


def _scaled(rows: Floats) -> Floats:
    span = np.ptp(rows, axis=0)
    scaled: Floats = (rows - rows.min(0)) / np.where(span > 0, span, 1)
    return scaled


def forest(known: Floats, members: Bools, rows: Floats, seed: int) -> Opinion:
    """Learns from the known providers, by a random forest; the score is its probability.

    The smallest leaf is chosen by cross-validated accuracy among the known (`LEAVES`). With fewer
    than two of either kind there is nothing to validate on, and with fewer than sixteen known
    nothing to choose: leaves may then be as small as one. Features are not scaled: trees do not see
    it.

    Args:
        known: (k, features).
        members: (k,), the truth about them, of both kinds.
        rows: (n, features) of the providers to be judged.
        seed: of the trees and the folds.
    """
    leaves = sorted({1, *(len(known) // share for share in LEAVES)} - {0})
    settings = {"min_samples_leaf": 1}
    if folds(members) > 1 and len(leaves) > 1:
        parts = StratifiedKFold(folds(members), shuffle=True, random_state=seed)
        small = RandomForestClassifier(TREES_IN_SEARCH, random_state=seed)
        grid = {"min_samples_leaf": leaves}
        search = GridSearchCV(small, grid, cv=parts, refit=False, scoring="accuracy")
        settings = search.fit(known, members).best_params_
    model = RandomForestClassifier(TREES, random_state=seed, **settings).fit(known, members)
    scores = model.predict_proba(rows)[:, 1]
    return Opinion.of(scores, scores > 0.5)


def folds(members: Bools) -> int:
    """Returns in how many parts the known providers are split for validation; below 2, not."""
    return min(FOLDS, int(members.sum()), int((~members).sum()))


def above_zero(scores: Floats) -> Opinion:
    """Calls members whose feature, (n,), is above 0: CLS1, for NLS_mem."""
    return Opinion.of(scores, scores > 0)


def ensemble(opinions: Sequence[Opinion]) -> Opinion:
    """Lets the majority of those who guess decide; of equal votes, the first opinion.

    The score is the votes for a member less those against, and to rank equal ones, the rank of the
    first opinion's score, divided so that it stays below 1.
    """
    first = opinions[0]
    votes = np.stack([opinion.guesses for opinion in opinions]).sum(0)
    ranks = rankdata(first.scores) / (len(votes) + 1)
    guesses = np.where(votes != 0, np.sign(votes), first.guesses).astype(np.int8)
    return Opinion(votes + ranks, guesses)
