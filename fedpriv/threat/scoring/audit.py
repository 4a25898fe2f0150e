"""What one training run shows of its ε: a lower bound, by planted canaries.

The bound is that of `fedpriv.privacy.one_run`, from the guesses that an attack has made of the
canaries' coins. It is held against what the ledger claims.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from scipy.special import betaincinv, logit

from fedpriv.federation.membership_table import TrainingMembership
from fedpriv.privacy.one_run import CONFIDENCE, epsilon_lower, p_value
from fedpriv.privacy.views import VIEWS, rounded_up
from fedpriv.threat.claims import MEMBER, NO_GUESS, CanaryGuesses, MembershipScores
from fedpriv.threat.results import CANNOT_TELL, LEAK, NONE_SHOWN, Number, Result
from fedpriv.threat.scoring.providers import asked_about, classifier_table, classifiers, roc_figures
from fedpriv.threat.scoring.registry import IntervalSettings, Scoring, scorer
from fedpriv.threat.scoring.verdicts import exploratory
from fedpriv.threat.statistics import POWER

WORTH = 1.0
"""ε above what is claimed whose absence is worth telling."""

PROVIDER = "provider"
"""What a canary is, as the ledger calls it."""


@scorer(CanaryGuesses, settings=IntervalSettings)
def score_canaries(claims: Sequence[CanaryGuesses], scoring: Scoring) -> Result:
    """Returns the lower bound on ε, and how well members were told from non-members.

    It leaks if the bound is above what the ledger claims, or above 0 where nothing is claimed. That
    nothing is shown says something only where little more than the claim would have been.

    Raises:
        ValueError: if there are several guesses of the same coins.
    """
    if len(claims) != 1:
        raise ValueError(
            f"an audit hands back one guess of the coins, not {len(claims)}: choosing the best of "
            "several would void the confidence of the bound"
        )
    (claim,) = claims
    scores, parts = claim.scores, scoring.truth.parts()
    level = scoring.settings.of(IntervalSettings).confidence
    audit = audit_metrics(scores, parts, scoring.ledger, level, claim.view)
    found, areas = classifiers([scores], scoring)
    name, claimed = "epsilon_lower", audit["epsilon_claimed_provider"][audit["view"]]
    promised = None if claimed in (None, "inf") else float(claimed)
    lower, against = audit[name], promised or 0.0
    canaries, could = audit["canaries"], audit["epsilon_detectable"]
    p = p_value(canaries, audit["guesses"], audit["right"], against, audit["delta"])
    of_all = Number(lower, None, canaries, "canary", against, could, p)
    if lower > against:
        shown = LEAK
    else:
        enough = promised is not None and could is not None and could <= promised + WORTH
        shown = NONE_SHOWN if enough else CANNOT_TELL
    return Result(
        "audit",
        bound_in_words(audit),
        {"classifiers": found, **audit, **asked_about(scoring)},
        (classifier_table(found, areas),),
        roc_figures([scores], parts),
        verdict=shown,
        primary=name,
        numbers={name: of_all, **exploratory(areas, name)},
    )


def bound_in_words(audit: Mapping[str, Any]) -> str:
    """Returns what `audit_metrics` shows of ε, beside what the ledger claims, in one sentence."""
    claimed = audit["epsilon_claimed_provider"][audit["view"]]
    says = {"inf": "promises nothing", None: "says nothing of a supplier"}
    ledger = says.get(claimed) or f"claims ε ≤ {rounded_up(claimed)} of a supplier"
    if doubts := "; ".join(audit["doubts"]):
        ledger = f"{ledger} (in doubt: {doubts})"
    least = math.floor(audit["epsilon_lower"] * 100) / 100
    return (
        f"ε ≥ {least:.2f} of a supplier with {audit['confidence']:.0%} "
        f"confidence ({audit['right']} of {audit['guesses']} guesses on "
        f"{audit['canaries']} canaries are right; with all of them right it would be "
        f"{audit['epsilon_ceiling']:.3g}; δ = {audit['delta']:g}); in the view "
        f"{audit['view']} the ledger {ledger}{': THE CLAIM IS BROKEN' if audit['violated'] else ''}"
    )


def epsilon_detectable(
    canaries: int, guesses: int, claimed: float, delta: float = 0.0, confidence: float = CONFIDENCE
) -> float | None:
    """Returns the least ε that such an audit would show to be above what is claimed.

    Where the mechanism is as leaky as ε allows, a guess is right with probability
    e^ε / (1 + e^ε); the claim is then rejected in four of five audits (`POWER`).

    Args:
        canaries: m.
        guesses: r.
        claimed: ε.
        delta: δ.
        confidence: of the bound.

    Returns:
        ε; None where not even all guesses right would reject the claim.
    """

    def rejects(right: int) -> bool:
        return p_value(canaries, guesses, right, claimed, delta) <= 1 - confidence

    least, most = 0, guesses
    if not rejects(most):
        return None
    while least < most:
        middle = (least + most) // 2
        least, most = (least, middle) if rejects(middle) else (middle + 1, most)
    return float(logit(betaincinv(least, guesses - least + 1, POWER)))


def audit_metrics(
    guessed: MembershipScores,
    parts: Mapping[str, TrainingMembership],
    ledger: Mapping[str, Any] | None,
    confidence: float = CONFIDENCE,
    view: str | None = None,
) -> dict[str, Any]:
    """Returns what guesses on canaries show of ε, beside what the ledger claims.

    A canary is a provider. What the ledger claims of one is ε itself where the mechanism protects
    providers; where it protects examples, ε of a group as large as the largest provider.

    Args:
        guessed: with guesses on the canaries; on other providers they are not counted.
        parts: of each provider in the training.
        ledger: the content of ledger.json; none where there is no ledger. Without a mechanism δ is
            0: the bound is then one on pure ε.
        confidence: of the bound.
        view: of the ledger, that the bound is held against; by default this run's server's, which
            sees all that any adversary does.

    Returns:
        `epsilon_lower`, `epsilon_ceiling`, `epsilon_detectable`, `p_value` (of ε = 0), `canaries`,
        `guesses`, `right`, `delta`, `confidence`; `unit` and `epsilon_claimed` by view;
        `epsilon_claimed_provider` by
        view, for all of a provider; `view`, and `violated`: whether the bound is above what is
        claimed of a provider in it. Infinity is "inf" as in ledger.json; what nobody claims is
        None. `doubts`: why the ledger itself does not guarantee what it claims in that view.

    Raises:
        ValueError: if there is no canary among the providers, or no such view.
    """
    if view is not None and view not in VIEWS:
        raise ValueError(f"view={view!r}: expected one of {', '.join(VIEWS)}")
    canaries, guesses, right = _counts(guessed, parts)
    ledger = ledger or {}
    delta = float(ledger.get("delta") or 0.0)
    views = {name: (ledger.get("views") or {}).get(name) or {} for name in VIEWS}
    unit, provider = _claimed(ledger, views)
    seen = view or ("server_masked" if ledger.get("masked") else "server_plain")
    claimed = provider[seen]
    lower = epsilon_lower(canaries, guesses, right, delta, confidence)
    against = 0.0 if claimed in (None, "inf") else float(claimed)
    return {
        "epsilon_lower": lower,
        "epsilon_ceiling": epsilon_lower(canaries, guesses, guesses, delta, confidence),
        "epsilon_detectable": epsilon_detectable(canaries, guesses, against, delta, confidence),
        "p_value": p_value(canaries, guesses, right, 0.0, delta),
        "confidence": confidence,
        "canaries": canaries,
        "guesses": guesses,
        "right": right,
        "delta": delta,
        "unit": ledger.get("unit"),
        "epsilon_claimed": unit,
        "epsilon_claimed_provider": provider,
        "view": seen,
        "violated": None if claimed is None else lower > float(claimed),
        "doubts": views[seen].get("doubts", []),
    }


def _counts(
    guessed: MembershipScores, parts: Mapping[str, TrainingMembership]
) -> tuple[int, int, int]:
    """Returns how many canaries there are, how many were guessed, and how many rightly."""
    planted = [
        (int(guess), parts[provider].member)
        for provider, guess in zip(guessed.providers, guessed.guesses, strict=True)
        if provider in parts and parts[provider].canary
    ]
    if not planted:
        raise ValueError(
            f"none of the {len(guessed.providers)} suppliers is a canary: run the federation with "
            "data.canaries=20, or more, so that there are coins to guess"
        )
    made = [(guess == MEMBER, member) for guess, member in planted if guess != NO_GUESS]
    return len(planted), len(made), sum(guess == member for guess, member in made)


def _claimed(
    ledger: Mapping[str, Any], views: Mapping[str, Mapping[str, Any]]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns ε by view, as ledger.json has it: of the mechanism's unit, and of a provider."""
    # By PLD, the tightest accountant; by RDP, a bound too, where PLD has none.
    unit = {n: one.get("rdp") if one.get("pld") is None else one["pld"] for n, one in views.items()}
    if ledger.get("unit") in (PROVIDER, "file", "provider or file", None):  # a canary has its name
        return unit, unit
    group = (ledger.get("larger_units") or {}).get(PROVIDER, {}).get("epsilon", {})
    return unit, {name: group.get(name) for name in VIEWS}
