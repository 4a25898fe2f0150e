"""How well an attack told members from non-members: where its scores meet the truth.

By classifier, and within it by s, the number of questions from which providers are judged:
`fedpriv.threat.scoring.membership` says what each number is. `clients_right` is the share of the
members for which the client that holds them was named (`clients_named`).

`verdicts.json` holds every provider's score and guess beside its membership.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedpriv.federation.membership_table import TrainingMembership
from fedpriv.privacy.views import face
from fedpriv.threat.access import HeldOutDocuments
from fedpriv.threat.claims import MembershipScores
from fedpriv.threat.results import CANNOT_TELL, Figure, Number, Result, Table
from fedpriv.threat.scoring.membership import Judged, membership_metrics, roc
from fedpriv.threat.scoring.power import Power
from fedpriv.threat.scoring.registry import Scoring, scorer
from fedpriv.threat.scoring.summaries import NOTHING, digits, percent
from fedpriv.threat.scoring.verdicts import exploratory, in_words, number, verdict
from fedpriv.threat.statistics import FEW, Estimate, needed, ranked_apart, share

TITLE = "Who was trained on"
HEADINGS = (
    *("classifier", "s", "n", "prior", "accuracy", "balanced", "AUC", "p of it", "TPR at 1 %"),
    "clients right",
)
NOTE = (
    "The first row is the one to quote; the p-values of the others are corrected for their number. "
    "s: suppliers with so few questions are left out; n: those that were judged. "
    "Prior: what a constant guess gets. In brackets: 95 % intervals, over suppliers and over draws "
    "of the known ones. With fewer than 100 non-members, the TPR is that at no false alarm."
)

MOST_CURVES = 6
"""Classifiers whose ROC is drawn: the primary one, then in the attack's order."""

MOST_PRINTED = 12
"""Rows that a terminal shows."""

PROVIDER = "provider"

WORTH = 0.8
"""AUC whose absence is worth telling: who would not even have seen it cannot tell."""

Parts = Mapping[str, TrainingMembership]


@scorer(
    MembershipScores,
    power=Power("Which suppliers were trained on?", "suppliers", WORTH - 0.5, area=True),
)
def score_membership(claims: Sequence[MembershipScores], scoring: Scoring) -> Result:
    """Returns the numbers, table and ROC of all classifiers.

    The verdict rests on the AUC of the primary classifier over all providers: that of the claims
    that say so, or else of the first claim.
    """
    scored, numbers = classifiers(claims, scoring)
    primary = next((claim for claim in claims if claim.primary), claims[0]).classifier
    numbers = exploratory({primary: numbers[primary]} | numbers, primary)
    told_apart = any(np.ptp(c.scores) > 0 for c in claims if c.classifier == primary)
    shown = verdict(numbers[primary], WORTH) if told_apart else CANNOT_TELL
    return Result(
        "membership",
        headline(primary, numbers[primary], shown),
        {"classifiers": scored, **asked_about(scoring)},
        (classifier_table({primary: scored[primary]} | scored, numbers),),
        roc_figures(
            sorted(claims, key=lambda claim: claim.classifier != primary), scoring.truth.parts()
        ),
        verdict=shown,
        primary=primary,
        numbers=numbers,
        clause=clause(numbers[primary]),
    )


def clause(auc: Number) -> str:
    """Returns what somebody can do who tells members apart as well as that."""
    told = f"{percent(auc.value)} of pairs are told apart, 50% by guessing"
    return f"tell which {face(auc.unit)}s were trained on ({told})" if auc.value > 0.5 else ""


def headline(classifier: str, auc: Number, shown: str) -> str:
    """Returns how well a classifier tells members from non-members, in one sentence."""
    low, high = auc.interval or (0.0, 1.0)
    remedy = ""
    if shown == CANNOT_TELL and (auc.detectable is None or auc.detectable > WORTH):
        least = needed(WORTH, 0.5, area=True)
        remedy = f"for AUC {WORTH} there must be {least} members and {least} others or more"
    return in_words(auc, f"{classifier} has AUC {auc.value:.3f} [{low:.2f}, {high:.2f}]", remedy)


def classifiers(
    claims: Sequence[MembershipScores], scoring: Scoring
) -> tuple[dict[str, Any], dict[str, Number]]:
    """Returns the numbers of each classifier, and its AUCs by name and s.

    The name alone is of the smallest s. All scores go into `verdicts.json`.
    """
    parts = scoring.truth.parts()
    by_name: dict[str, dict[int, list[MembershipScores]]] = defaultdict(lambda: defaultdict(list))
    for claim in claims:
        if unknown := [provider for provider in claim.providers if provider not in parts]:
            raise ValueError(
                f"{claim.classifier} scores suppliers that the run does not know: "
                f"{', '.join(unknown[:5])}; take the names of HeldOutDocuments.documents"
            )
        few = claim.split.min_questions if claim.split else 0
        by_name[claim.classifier][few].append(claim)
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
    scored: dict[str, Any] = {}
    numbers: dict[str, Number] = {}
    chance = Estimate.known(0.5)
    for name, by_s in by_name.items():
        rows = []
        for s in sorted(by_s):
            measured = membership_metrics([judged(claim, parts) for claim in by_s[s]])
            rows.append({"min_questions": s, **measured.numbers})
            row = name if len(rows) == 1 else f"{name}, s={s}"
            numbers[row] = number(measured.auc, PROVIDER, chance, _exact(by_s[s], parts))
            if named := clients_named(by_s[s], parts):
                numbers[f"{row}, the client"] = named
                rows[-1]["clients_right"] = named.value
        scored[name] = {**rows[0], "subsets": {str(row["min_questions"]): row for row in rows[1:]}}
    return scored, numbers


def _exact(claims: Sequence[MembershipScores], parts: Parts) -> float | None:
    """Returns the p-value of one attack's order of few providers; None of many, or of splits."""
    if len(claims) > 1:
        return None
    of = judged(claims[0], parts)
    few = min(of.members.sum(), (~of.members).sum()) < FEW
    return ranked_apart(of.members, of.scores) if few else None


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


def clients_named(claims: Sequence[MembershipScores], parts: Parts) -> Number | None:
    """Returns the share of the members whose client was named; none where none was.

    Its control is what naming the client with the most of them always gets.
    """
    named = [
        (provider, client, parts[provider].client)
        for claim in claims
        if claim.clients is not None
        for provider, client in zip(claim.providers, claim.clients.tolist(), strict=True)
        if parts[provider].member and parts[provider].client is not None
    ]
    if not named:
        return None
    providers, said, true = zip(*named, strict=True)
    largest = Counter(true).most_common(1)[0][1] / len(true)
    return number(share(np.equal(said, true), providers), PROVIDER, Estimate.known(largest))


def classifier_table(
    scored: Mapping[str, Mapping[str, Any]], numbers: Mapping[str, Number]
) -> Table:
    """Returns a row for each classifier and s, as in PFL-DocVQA's Table 4.

    Args:
        scored: the first is the one to quote.
        numbers: AUCs and shares of named clients, with corrected p-values.
    """
    rows = tuple(
        (
            name,
            s,
            f"{row['n']:g}",
            f"{row['prior']:.3f}",
            f"{row['accuracy']:.3f}"
            + (f" ± {row['accuracy_std']:.3f}" if row["trials"] > 1 else ""),
            _between(row, "balanced_accuracy"),
            _between(row, "auc"),
            digits(numbers[label].p_value, ".2g"),
            _between(row, "tpr", row["tpr_at_fpr"]["0.01"]),
            _named(numbers.get(f"{label}, the client")),
        )
        for name, whole in scored.items()
        for s, row in {str(whole["min_questions"]): whole, **whole["subsets"]}.items()
        for label in [name if row is whole else f"{name}, s={s}"]
    )
    return Table(HEADINGS, rows, TITLE, NOTE, printed=MOST_PRINTED, public=True)


def _named(client: Number | None) -> str:
    if client is None:
        return NOTHING
    low, high = client.interval or (0.0, 1.0)
    return f"{client.value:.0%} [{low:.0%}, {high:.0%}]"


def _between(row: Mapping[str, Any], name: str, value: float | None = None) -> str:
    low, high = row["interval"][name]
    return f"{row[name] if value is None else value:.3f} [{low:.2f}, {high:.2f}]"


def roc_figures(claims: Sequence[MembershipScores], parts: Parts) -> tuple[Figure, ...]:
    """Returns the ROC of the first classifiers, each on its first split of the smallest s."""
    curves: dict[str, list[list[float]]] = {}
    for claim in claims:
        if claim.classifier not in curves and len(curves) < MOST_CURVES:
            of_split = judged(claim, parts)
            false, true = roc(of_split.members, of_split.scores)
            curves[claim.classifier] = [false.tolist(), true.tolist()]
    title = "Members found (TPR) by false alarms (FPR)"
    if any(claim.split is not None for claim in claims):
        title += ", with the first draw of the known suppliers"
    return (Figure("roc", title, {"curves": curves}, TITLE),)
