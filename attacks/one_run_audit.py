"""Guesses on planted providers, for a lower bound on ε out of one training run.

Steinke, Nasr and Jagielski 2023, Algorithm 1. Some providers, the canaries, were each put into the
training set or left out by a coin. An attack scores them; the highest scores are guessed to be in,
the lowest out, and from the others one abstains. What the guesses show of ε is computed by
`fedpriv.threat.scoring.audit`, which may look at the coins; nothing here may.

The bound holds for any score, only that it is lower for a worse one. How many guesses are made is a
setting: choosing it after a look at the result would spoil the confidence, as would keeping the
best of several audits.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from fedpriv.attacks.server_membership import upper_group
from fedpriv.threat.access import (
    GreyBox,
    HeldOutDocuments,
    PlantedCanaries,
    PublicModel,
    Transcript,
)
from fedpriv.threat.attack import Attack, AttackContext, NotApplicable, Outline
from fedpriv.threat.checks import check_share
from fedpriv.threat.claims import (
    MEMBER,
    NO_GUESS,
    NON_MEMBER,
    CanaryGuesses,
    CanaryRank,
    MembershipScores,
)
from fedpriv.threat.runner import ThreatModel


@dataclass(frozen=True)
class Audit:
    """Guesses the coins of the canaries by another attack's scores.

    Args:
        scores: the attack whose scores rank the canaries. Its own guesses are not used.
        guesses: the share of the canaries for which a guess is made. Half of the guesses, on the
            highest scores, say "in"; the other half, on the lowest, say "out". At 1, even perfect
            scores get some wrong, because the coins seldom put exactly half of the canaries in.
    """

    scores: Attack[Any, Any]
    guesses: float = 0.75

    def __post_init__(self) -> None:
        check_share(self, "guesses", all=True)

    @property
    def access_type(self) -> type:
        """The access of the attack that gives the scores, with canaries for its documents."""
        wants = ThreatModel.of(self.scores).wants
        fields: list[tuple[str, Any]] = []
        for name, (kind, optional) in wants.items():
            taken: Any = PlantedCanaries if kind is HeldOutDocuments else kind
            fields.append((name, taken | None if optional else taken))
        if not any(PlantedCanaries in (kind, *get_args(kind)) for _, kind in fields):
            raise TypeError(
                f"{type(self.scores).__name__} takes no HeldOutDocuments: an audit needs an attack "
                "that scores suppliers"
            )
        return dataclasses.make_dataclass("AuditAccess", fields, frozen=True)

    @property
    def view(self) -> str:
        """The view of the ledger that speaks of what the scores are made from.

        What the attack says by a `view` of its own; or else "server_plain" if it takes what the
        server saw, and "global" if it does not.
        """
        kinds = {kind for kind, _ in ThreatModel.of(self.scores).wants.values()}
        cautious = "server_plain" if Transcript in kinds else "global"
        return str(getattr(self.scores, "view", cautious))

    def suits(self, outline: Outline) -> None:
        """Asks the attack that gives the scores."""
        if suits := getattr(self.scores, "suits", None):
            try:
                suits(outline)
            except NotApplicable as reason:
                reason.take = reason.take.replace("attack.", "attack.scores.", 1)
                raise

    def run(self, access: Any, context: AttackContext) -> tuple[CanaryGuesses | CanaryRank, ...]:
        """Returns the attack's scores of the canaries, with guesses by rank, and its other claims.

        Args:
            access: of `access_type`.
            context: the attack's too.

        Raises:
            ValueError: if the attack hands back several classifiers, or leaves out canaries.
        """
        canaries = next(part for part in vars(access).values() if isinstance(part, PlantedCanaries))
        wrapped = ThreatModel.of(self.scores).access
        claimed = self.scores.run(wrapped(**vars(access)), context)
        claims = claimed if isinstance(claimed, tuple) else (claimed,)
        scored = [c for c in claims if isinstance(c, MembershipScores)]
        scored += [c.scores for c in claims if isinstance(c, CanaryGuesses)]
        if len(scored) != 1:
            raise ValueError(
                f"an audit takes the scores of one classifier, not of {len(scored)}: choosing the "
                "best of several would void the confidence of the bound"
            )
        scores = self._by_rank(_of_canaries(scored[0], canaries), context.rng)
        context.remarks.notes.append(
            f"{np.count_nonzero(scores.guesses)} of {len(canaries.documents)} canaries were "
            "guessed, a number fixed beforehand; ties are broken by chance"
        )
        ranks = [claim for claim in claims if isinstance(claim, CanaryRank)]
        return CanaryGuesses(scores, self.view), *ranks

    def _by_rank(self, scored: MembershipScores, rng: np.random.Generator) -> MembershipScores:
        count = len(scored.providers)
        made = max(round(self.guesses * count), 1)
        # Shuffled first: the order of the providers may depend on the coins, and must not tell.
        mixed = rng.permutation(count)
        ascending = mixed[np.argsort(scored.scores[mixed], kind="stable")]
        guesses = np.full(count, NO_GUESS, np.int8)
        guesses[ascending[: made // 2]] = NON_MEMBER
        guesses[ascending[count - (made - made // 2) :]] = MEMBER
        return dataclasses.replace(scored, guesses=guesses)


@dataclass(frozen=True)
class LossAccess:
    """The losses of the final and of the public model."""

    model: GreyBox
    public: PublicModel
    held_out: HeldOutDocuments


@dataclass(frozen=True)
class LossScore:
    """Scores a provider by how far training has brought down the loss on its documents.

    From outside: all that it asks are the losses of the final and of the public model.
    """

    def run(self, access: LossAccess, context: AttackContext) -> MembershipScores:
        """Returns the scores of all providers.

        Raises:
            NotApplicable: if the public model tells no losses, or a loss is not finite.
        """
        if access.public.confidence is None:
            raise NotApplicable("the losses of the public model are needed")
        after = mean_losses(access.model, access.held_out)
        before = mean_losses(access.public.confidence, access.held_out)
        drops = before - after
        guesses = np.where(upper_group(drops), MEMBER, NON_MEMBER).astype(np.int8)
        return MembershipScores(tuple(access.held_out.documents), drops, guesses, "loss_score")


def mean_losses(box: GreyBox, held_out: HeldOutDocuments) -> NDArray[np.float64]:
    """Returns the mean loss over each provider's questions, (providers,).

    Raises:
        NotApplicable: if one is not finite.
    """
    means = [
        np.mean([reply.loss for said in box.replies(pages) for reply in said])
        for pages in held_out.documents.values()
    ]
    losses = np.array(means, np.float64)
    if not np.isfinite(losses).all():
        raise NotApplicable("losses are not finite: the training has diverged")
    return losses


def _of_canaries(scored: MembershipScores, canaries: PlantedCanaries) -> MembershipScores:
    """Returns what an attack says of the canaries.

    Raises:
        ValueError: if it leaves some of them out, or scores one by what is not a number.
    """
    kept = [place for place, name in enumerate(scored.providers) if name in canaries.documents]
    if missing := len(canaries.documents) - len(kept):
        raise ValueError(
            f"{scored.classifier} says nothing of {missing} of the {len(canaries.documents)} "
            "canaries: an audit needs scores of all, from an attack that is told of no members"
        )
    scores = scored.scores[kept]
    if np.isnan(scores).any():
        raise ValueError(f"{scored.classifier} scores a canary by what is not a number")
    return dataclasses.replace(
        scored,
        providers=tuple(scored.providers[place] for place in kept),
        scores=scores,
        guesses=scored.guesses[kept],
        clients=None if scored.clients is None else scored.clients[kept],
    )
