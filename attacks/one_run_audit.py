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

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedpriv.attacks.server_membership import upper_group
from fedpriv.threat.attack import Capability, NotApplicable, Workbench
from fedpriv.threat.membership_game import (
    MEMBER,
    NO_GUESS,
    NON_MEMBER,
    Access,
    Judgement,
    ProviderAttack,
    Suspects,
    Verdict,
)
from fedpriv.threat.queries import BlackBox, GreyBox


@dataclass(frozen=True)
class Audit:
    """Guesses the coins of the canaries by another attack's scores.

    Args:
        scores: the attack; its own guesses are not used.
        guesses: share of the canaries that is guessed, half of them in and half out. Of all of
            them, even perfect scores get some wrong: seldom do exactly half of the coins fall so.
    """

    judges_canaries: ClassVar[bool] = True

    scores: ProviderAttack
    guesses: float = 0.75

    def __post_init__(self) -> None:
        if not 0 < self.guesses <= 1:
            raise ValueError(f"guesses={self.guesses}: expected a share in (0, 1]")

    @property
    def requires(self) -> frozenset[Capability]:
        """What the attack requires that gives the scores."""
        return self.scores.requires

    def judge(self, access: Access, suspects: Suspects, bench: Workbench) -> Judgement:
        """Returns the attack's judgement, of the canaries only and with guesses by rank."""
        if not suspects.canaries:
            raise NotApplicable(
                "no canaries were planted, so there are no coins to guess: run the federation with "
                "data.canaries=20, or more"
            )
        found = self.scores.judge(access, suspects, bench)
        verdicts = tuple(
            self._by_rank(_of_canaries(verdict, suspects.canaries), bench.rng)
            for verdict in found.verdicts
        )
        made = [str(np.count_nonzero(verdict.guesses)) for verdict in verdicts]
        note = (
            f"{', '.join(made)} of {len(suspects.canaries)} canaries were guessed, a number fixed "
            "beforehand; ties are broken by chance"
        )
        return replace(found, verdicts=verdicts, notes=(*found.notes, note))

    def _by_rank(self, verdict: Verdict, rng: np.random.Generator) -> Verdict:
        count = len(verdict.providers)
        made = max(round(self.guesses * count), 1)
        # Shuffled first: the order of the providers may depend on the coins, and must not tell.
        mixed = rng.permutation(count)
        ascending = mixed[np.argsort(verdict.scores[mixed], kind="stable")]
        guesses = np.full(count, NO_GUESS, np.int8)
        guesses[ascending[: made // 2]] = NON_MEMBER
        guesses[ascending[count - (made - made // 2) :]] = MEMBER
        return replace(verdict, guesses=guesses)


@dataclass(frozen=True)
class LossScore:
    """Scores a provider by how far training has brought down the loss on its documents.

    From outside: all that it asks are the losses of the final and of the public model.
    """

    requires: ClassVar[frozenset[Capability]] = frozenset(
        {Capability.ANSWERS, Capability.CONFIDENCE, Capability.PUBLIC_MODEL}
    )

    def judge(self, access: Access, suspects: Suspects, bench: Workbench) -> Judgement:
        """Returns one verdict on all providers."""
        after = mean_losses(access.final, suspects)
        before = mean_losses(access.start, suspects)
        drops = before - after
        guesses = np.where(upper_group(drops), MEMBER, NON_MEMBER).astype(np.int8)
        verdict = Verdict("loss_score", tuple(suspects.documents), drops, guesses)
        return Judgement((verdict,))


def mean_losses(box: BlackBox | None, suspects: Suspects) -> NDArray[np.float64]:
    """Returns the mean loss over each provider's questions, (providers,).

    Raises:
        NotApplicable: if the box does not tell its loss, or one is not finite.
    """
    if not isinstance(box, GreyBox):
        raise NotApplicable("the losses of the final and of the public model are needed")
    means = [
        np.mean([reply.loss for said in box.replies(pages) for reply in said])
        for pages in suspects.documents.values()
    ]
    losses = np.array(means, np.float64)
    if not np.isfinite(losses).all():
        raise NotApplicable("losses are not finite: the training has diverged")
    return losses


def _of_canaries(verdict: Verdict, canaries: frozenset[str]) -> Verdict:
    """Returns what a verdict says of the canaries.

    Raises:
        ValueError: if it leaves some of them out, or scores one by what is not a number.
    """
    kept = [place for place, name in enumerate(verdict.providers) if name in canaries]
    if missing := len(canaries) - len(kept):
        raise ValueError(
            f"{verdict.classifier} says nothing of {missing} of the {len(canaries)} canaries: an "
            "audit needs scores of all, from an attack that is told of no members"
        )
    scores = verdict.scores[kept]
    if np.isnan(scores).any():
        raise ValueError(f"{verdict.classifier} scores a canary by what is not a number")
    clients = verdict.clients[kept] if verdict.clients is not None else None
    names = tuple(verdict.providers[place] for place in kept)
    return replace(
        verdict, providers=names, scores=scores, guesses=verdict.guesses[kept], clients=clients
    )
