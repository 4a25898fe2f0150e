"""A likelihood ratio for each provider, from models trained with and without it.

Carlini et al. 2022, "Membership Inference Attacks From First Principles", with a provider in
the place of an example; beyond Tito et al. 2023. The adversary trains reference models of its own
from the public one, each on documents of half of the providers, and sees how well a model answers
for a provider that it was trained on, and for one that it was not. Which of the two does the final
model look like?

The references are few, so each provider has means of its own and all share one variance (their
variant for few models). And they are not the federation's: it saw other documents of a provider, in
other numbers and other steps. So what the final model answers is first moved, by one number for all
providers, to where the references are: the median provider is taken to be as much in as out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedpriv.attacks.reference_models import (
    Mask,
    OnReferences,
    ReferenceAccess,
    Row,
    Table,
    balanced_halves,
    check_finite,
    mean_of,
    means_where,
    split,
)
from fedpriv.threat.attack import AttackContext, NotApplicable
from fedpriv.threat.claims import MEMBER, NON_MEMBER, MembershipScores

TINY = 1e-6
"""A loss below it is taken to be it: no certainty is infinite."""

LEAST_GAIN = 1e-6
"""Half of what training does to a provider at least, in standard deviations of a signal."""


@dataclass(frozen=True)
class ProviderLiRA(OnReferences):
    """Judges each provider by the ratio of two likelihoods.

    Where one question of three tells, as in the experiment `pmia`, the AUC was 0.95 with the signal
    "logit", and 0.65 with "loss".

    Args:
        references: K, the number of reference models, each trained on half of the providers: an
            even number, 4 or more.
        statistic: what a provider's score says: "online", how much likelier it is that the final
            model was trained on the provider than that it was not; "offline", only how unlikely it
            is that it was not. "offline" tolerates reference models that have memorised more or
            less than the final model.
        signal: the measure of how well a question is answered: "logit", log(p / (1 - p)) with the
            probability p = exp(-loss) of the answer, as in the paper; or "loss", which is worse,
            because a few high losses drown the others.
        calibrate: whether the final model's signals are moved to the level of the reference models'
            signals. If False, a final model that answers everything better than they do makes all
            providers look like members.
    """

    references: int = 8
    statistic: Literal["online", "offline"] = "online"
    signal: Literal["loss", "logit"] = "logit"
    calibrate: bool = True

    def __post_init__(self) -> None:
        if self.references < 4 or self.references % 2:
            raise ValueError(
                f"references={self.references}: expected an even number, 4 or more: every supplier "
                "is in half of them, and a variance needs two"
            )
        super().__post_init__()

    def run(self, access: ReferenceAccess, context: AttackContext) -> MembershipScores:
        """Returns the scores of all providers.

        Raises:
            NotApplicable: if no provider has two documents, or a loss of the final model or of a
                reference is not finite.
        """
        documents = access.held_out.documents
        taught, asked = split(documents, self.train_share, context.rng)
        alone = sum(not pages for pages in taught.values())
        if alone == len(taught):
            raise NotApplicable(
                "no supplier has two documents, one to train on and another to ask about"
            )
        trained_on = balanced_halves(
            self.references, [bool(pages) for pages in taught.values()], context.rng
        )
        told = [
            [reply.loss for said in access.model.replies(pages) for reply in said]
            for pages in asked.values()
        ]
        final = np.array([_signal(np.array(own), self.signal).mean() for own in told])
        check_finite(final, "the final model")
        answers = self.trained(access.public, taught, asked, trained_on, context)
        references = np.array(
            [mean_of(answers.owner, _signal(row, self.signal)) for row in answers.losses]
        )
        for number, signals in enumerate(references, 1):
            check_finite(signals, f"reference {number}")
        scores = likelihood_ratios(
            final,
            references,
            trained_on,
            offline=self.statistic == "offline",
            calibrate=self.calibrate,
        )
        guesses = np.where(scores > 0, MEMBER, NON_MEMBER).astype(np.int8)
        if self.calibrate:
            context.remarks.notes.append("half of the suppliers are taken to be members")
        if alone:
            context.remarks.notes.append(
                f"{alone} suppliers have one document: no reference was trained on it, and what "
                "training would have done to it is taken from the other suppliers"
            )
        return MembershipScores(tuple(documents), scores, guesses, "provider_lira")


def likelihood_ratios(
    final: Row, references: Table, trained_on: Mask, *, offline: bool, calibrate: bool = True
) -> Row:
    """Returns each provider's score, (providers,): above 0, it is rather in than out.

    Args:
        final: signals of the final model, (providers,); higher where it answers better.
        references: of the references, (references, providers).
        trained_on: which provider each was trained on, (references, providers).
        offline: return the standard score under the distribution of those who were out. Otherwise
            the logarithm of the ratio of the likelihoods of in and out.
        calibrate: take every model's signals relative to their median over the providers.
    """
    if calibrate:
        final = final - np.median(final)
        references = references - np.median(references, axis=1, keepdims=True)
    into, out, spread = gaussians(references, trained_on)
    if offline:
        return (final - out) / spread
    # What is left of the two logarithms: a straight line in the final model's signal.
    return (into - out) * (final - (into + out) / 2) / spread**2


def gaussians(references: Table, trained_on: Mask) -> tuple[Row, Row, float]:
    """Returns the means of each provider's signals in and out, and the deviation of all.

    With few references, what training does to one provider is known badly, so it is drawn towards
    what it does to all: the less, the more the providers differ beyond what chance explains. Of a
    provider that no reference was trained on, only the latter is known. In and out share the
    deviation, and in is never below out, though chance may say so: thus a provider never looks less
    trained on for being answered even better. Where training seems to do harm, hardly anything is
    said of the provider, but in the right direction.
    """
    inside, outside = means_where(references, trained_on), means_where(references, ~trained_on)
    known = ~np.isnan(inside)
    fitted = np.where(trained_on, inside, outside)
    groups = len(known) + np.count_nonzero(known)
    spread = np.sqrt(((references - fitted) ** 2).sum() / (references.size - groups)) + TINY
    gain = inside - outside
    chance = 4 * spread**2 / len(references)  # of a difference of two means of K / 2
    beyond = max(float(np.nanvar(gain)) - chance, 0.0)
    shrunk = np.nanmean(gain) + beyond / (beyond + chance) * (gain - np.nanmean(gain))
    centre = np.where(known, (inside + outside) / 2, outside + np.nanmean(gain) / 2)
    half = np.where(known, shrunk, np.nanmean(gain)) / 2
    half = np.maximum(half, LEAST_GAIN * spread)
    return centre + half, centre - half, float(spread)


def _signal(losses: NDArray[np.float64], kind: str) -> NDArray[np.float64]:
    """Returns how well each question is answered: higher is better."""
    if kind == "loss":
        return -losses
    # log(p / (1 - p)) with p = exp(-loss); 1 - p by expm1, so that p near 1 is not rounded to it.
    return -losses - np.log(-np.expm1(-np.maximum(losses, TINY)))
