"""How well an attack told members from non-members: where its scores meet the truth.

By classifier, and within it by s, the number of questions below which providers were left out:
`fedpriv.threat.scoring.membership` says what each number is. `clients_right` is the share of the
members for which the client that holds them was named.

`verdicts.json` holds every provider's score and guess beside its membership.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedpriv.federation.membership_table import TrainingMembership
from fedpriv.threat.access import HeldOutDocuments
from fedpriv.threat.claims import MembershipScores
from fedpriv.threat.results import Figure, Result, Table
from fedpriv.threat.scoring.membership import Judged, membership_metrics, roc
from fedpriv.threat.scoring.registry import Scoring, scorer
from fedpriv.threat.scoring.summaries import digits

TITLE = "Who was trained on"
HEADINGS = (
    *("classifier", "s", "n", "prior", "accuracy", "balanced", "p (balanced)", "AUC", "TPR at 1 %"),
    "clients right",
)
NOTE = (
    "s: providers with so many questions, or fewer, are left out; n: those that were judged. "
    "Prior: what a constant guess gets. In brackets: 95 % intervals, by bootstrap over providers. "
    "p: of the balanced accuracy, by permutation; of several draws of the known ones twice their "
    "median, which is cautious and need not agree with the interval. With fewer than 100 "
    "non-members, the TPR is that at no false alarm."
)

MOST_CURVES = 6
"""Classifiers whose ROC is drawn; their order is the attack's."""

LEVEL = 0.05
"""Of a p-value, above which the headline says that nothing was shown."""

Parts = Mapping[str, TrainingMembership]


@scorer(MembershipScores, reads=("resamples",))
def score_membership(claims: Sequence[MembershipScores], scoring: Scoring) -> Result:
    """Returns the numbers, table and ROC of all classifiers."""
    scored = classifiers(claims, scoring)
    return Result(
        "membership",
        best_of(scored["classifiers"]),
        {**scored, **asked_about(scoring)},
        (classifier_table(scored["classifiers"]),),
        roc_figures(claims, scoring.truth.parts()),
    )


def classifiers(claims: Sequence[MembershipScores], scoring: Scoring) -> dict[str, Any]:
    """Returns the numbers of each classifier, and puts all scores into `verdicts.json`."""
    parts = scoring.truth.parts()
    by_name: dict[str, list[MembershipScores]] = defaultdict(list)
    for claim in claims:
        if unknown := [provider for provider in claim.providers if provider not in parts]:
            raise ValueError(
                f"{claim.classifier} scores providers that the run does not know: "
                f"{', '.join(unknown[:5])}; take the names of HeldOutDocuments.documents"
            )
        by_name[claim.classifier].append(claim)
    scoring.files["verdicts.json"] = [
        {
            "classifier": claim.classifier,
            "min_questions": claim.split.min_questions if claim.split else 0,
            "repeat": claim.split.repeat if claim.split else 0,
            "providers": list(claim.providers),
            "member": [parts[provider].member for provider in claim.providers],
            "scores": claim.scores.tolist(),
            "guesses": claim.guesses.tolist(),
            "clients": claim.clients.tolist() if claim.clients is not None else None,
        }
        for claim in claims
    ]
    return {
        "classifiers": {
            name: _by_questions(own, parts, scoring.rng, scoring.settings.resamples)
            for name, own in by_name.items()
        }
    }


def asked_about(scoring: Scoring) -> dict[str, int]:
    """Returns how many providers there were, and how many questions about their documents."""
    surfaces = (s for s in scoring.granted.values() if isinstance(s, HeldOutDocuments))
    documents = next(surfaces, HeldOutDocuments({})).documents
    return {
        "providers": len(documents),
        "questions": sum(len(page.questions) for own in documents.values() for page in own),
    }


def judged(claim: MembershipScores, parts: Parts) -> Judged:
    """Returns the scores of one classifier beside the truth."""
    members = np.array([parts[provider].member for provider in claim.providers])
    return Judged(claim.providers, members, claim.scores, claim.guesses)


def _by_questions(
    claims: Sequence[MembershipScores], parts: Parts, rng: np.random.Generator, resamples: int
) -> dict[str, Any]:
    """Returns the numbers of the smallest s, and under `subsets` those of the others by s."""
    by_s: dict[int, list[MembershipScores]] = defaultdict(list)
    for claim in claims:
        by_s[claim.split.min_questions if claim.split else 0].append(claim)
    first, *others = (
        {"min_questions": s}
        | membership_metrics([judged(c, parts) for c in by_s[s]], rng, resamples=resamples)
        | _clients_right(by_s[s], parts)
        for s in sorted(by_s)
    )
    return {**first, "subsets": {str(numbers["min_questions"]): numbers for numbers in others}}


def _clients_right(claims: Sequence[MembershipScores], parts: Parts) -> dict[str, float]:
    right = [
        client == parts[provider].client
        for claim in claims
        if claim.clients is not None
        for provider, client in zip(claim.providers, claim.clients.tolist(), strict=True)
        if parts[provider].member and parts[provider].client is not None
    ]
    return {"clients_right": float(np.mean(right))} if right else {}


def best_of(scored: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns how well the classifier with the highest AUC does, fair to the choice among many.

    >>> numbers = {"n": 8, "auc": 0.9, "interval": {"auc": [0.6, 1.0]}, "p_value_auc": 0.04}
    >>> best_of({"azk": numbers})
    'azk tells members from non-members, with AUC 0.900 [0.60, 1.00] on 8 providers, p 0.04'
    """
    name = max(scored, key=lambda name: scored[name]["auc"])
    numbers = scored[name]
    # Of several classifiers the best one is lucky too: Bonferroni's correction.
    p_value = min(1.0, numbers["p_value_auc"] * len(scored))
    chosen = f", the best of {len(scored)} classifiers," if len(scored) > 1 else ""
    return (
        f"{name}{chosen} {'tells' if p_value <= LEVEL else 'is not shown to tell'} members from "
        f"non-members, with AUC {_between(numbers, 'auc')} on {numbers['n']:g} providers, "
        f"p {p_value:.2g}{' for the best of so many' if len(scored) > 1 else ''}"
    )


def classifier_table(scored: Mapping[str, Mapping[str, Any]]) -> Table:
    """Returns a row for each classifier and s, as in PFL-DocVQA's Table 4."""
    rows = tuple(
        (
            name,
            s,
            f"{numbers['n']:g}",
            f"{numbers['prior']:.3f}",
            f"{numbers['accuracy']:.3f}"
            + (f" ± {numbers['accuracy_std']:.3f}" if numbers["trials"] > 1 else ""),
            _between(numbers, "balanced_accuracy"),
            f"{numbers['p_value']:.2g}",
            _between(numbers, "auc"),
            f"{numbers['tpr_at_fpr']['0.01']:.3f}",
            digits(numbers.get("clients_right"), ".0%"),
        )
        for name, whole in scored.items()
        for s, numbers in {str(whole["min_questions"]): whole, **whole["subsets"]}.items()
    )
    return Table(HEADINGS, rows, TITLE, NOTE)


def _between(numbers: Mapping[str, Any], name: str) -> str:
    low, high = numbers["interval"][name]
    return f"{numbers[name]:.3f} [{low:.2f}, {high:.2f}]"


def roc_figures(claims: Sequence[MembershipScores], parts: Parts) -> tuple[Figure, ...]:
    """Returns the ROC of each classifier's first split of the smallest s."""
    curves: dict[str, list[list[float]]] = {}
    for claim in claims:
        if claim.classifier not in curves and len(curves) < MOST_CURVES:
            of_split = judged(claim, parts)
            false, true = roc(of_split.members, of_split.scores)
            curves[claim.classifier] = [false.tolist(), true.tolist()]
    title = "Members found (TPR) by false alarms (FPR)"
    return (Figure("roc", title, {"curves": curves}, TITLE),)
