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

TREES = 100
GRID = {"min_samples_leaf": [1, 8]}
"""Of the search that the paper mentions and does not give."""

TREES_IN_SEARCH = 10
"""With a hundred known providers, which of them are held out matters more than so few trees."""

FOLDS = 3

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Opinion:
    """On n providers.

    Attributes:
        scores: (n,), the higher, the rather a member.
        members: (n,), who is said to be one.
    """

    scores: Floats
    members: Bools


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
    span = np.ptp(rows, axis=0)
    scaled = (rows - rows.min(0)) / np.where(span > 0, span, 1)
    if not scaled.any():
        return Opinion(np.zeros(len(rows)), np.zeros(len(rows), bool))
    # The paper leaves these open; they are those of the authors' later code (DocMIA).
    means = KMeans(2, init="random", n_init=10, max_iter=300, random_state=seed).fit(scaled)
    centres = [tuple(scaled[means.labels_ == cluster].mean(0)) for cluster in (0, 1)]
    members = centres.index(max(centres))
    distances = means.transform(scaled)
    scores = distances[:, 1 - members] - distances[:, members]
    return Opinion(scores.astype(np.float64), means.labels_ == members)


def forest(known: Floats, members: Bools, rows: Floats, seed: int) -> Opinion:
    """Learns from the known providers, by a random forest; the score is its probability.

    The smallest leaf is chosen by cross-validated accuracy among the known. With fewer than two of
    either kind there is nothing to validate on, and scikit-learn's default is taken (`folds`).
    Features are not scaled: trees do not see it.

    Args:
        known: (k, features).
        members: (k,), the truth about them, of both kinds.
        rows: (n, features) of the providers to be judged.
        seed: of the trees and the folds.
    """
    settings = {}
    if folds(members) > 1:
        parts = StratifiedKFold(folds(members), shuffle=True, random_state=seed)
        small = RandomForestClassifier(TREES_IN_SEARCH, random_state=seed)
        search = GridSearchCV(small, GRID, cv=parts, refit=False, scoring="accuracy")
        settings = search.fit(known, members).best_params_
    model = RandomForestClassifier(TREES, random_state=seed, **settings).fit(known, members)
    scores = model.predict_proba(rows)[:, 1]
    return Opinion(scores.astype(np.float64), scores > 0.5)


def folds(members: Bools) -> int:
    """Returns in how many parts the known providers are split for validation; below 2, not."""
    return min(FOLDS, int(members.sum()), int((~members).sum()))


def above_zero(scores: Floats) -> Opinion:
    """Calls members whose feature, (n,), is above 0: CLS1, for NLS_mem."""
    return Opinion(scores, scores > 0)


def ensemble(opinions: Sequence[Opinion]) -> Opinion:
    """Lets the majority decide; the score is the number of votes.

    Equal votes are ranked by the first opinion's score: its rank, divided so that it stays below
    1, is added.
    """
    votes = np.sum([opinion.members for opinion in opinions], axis=0)
    ranks = rankdata(opinions[0].scores) / (len(votes) + 1)
    return Opinion(votes + ranks, votes > len(opinions) / 2)
