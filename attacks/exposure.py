"""How exposed planted secrets are in a trained model (Carlini et al. 2019, §4).

A canary is a provider with a secret that was drawn from a known space, such as an account number
of six digits (`fedpriv.data.generated.identities`). The model is asked for it, and its loss on the
secret is compared with its losses on others of that space, on the same page and question. Of a
canary that was not trained on, the secret is one of them like any other.

In Carlini et al. all canaries were trained on, and the others are the baseline. Here a coin decided
for each, so that those left out are a second one: they show what the page itself gives away.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedpriv.data.document import Document
from fedpriv.data.generated.identities import others_alike
from fedpriv.data.redaction.answers import without_answer
from fedpriv.data.redaction.painting import CannotRemove
from fedpriv.threat.access import GreyBox, PlantedCanaries
from fedpriv.threat.attack import AttackContext, NotApplicable
from fedpriv.threat.checks import check_least
from fedpriv.threat.claims import MEMBER, NON_MEMBER, CanaryGuesses, CanaryRank, MembershipScores
from fedpriv.threat.scoring.exposure import exposure


@dataclass(frozen=True)
class ExposureAccess:
    """The losses of the final model, and the canaries' documents."""

    model: GreyBox
    canaries: PlantedCanaries


@dataclass(frozen=True)
class Exposure:
    """Ranks the secret of every canary among others of its space, by the model's loss.

    The others have the secret's shape: its digits are drawn anew, all else stays. Carlini et al.
    rank by the sum of -log p over the tokens; here it is the mean, which a grey box tells. Both are
    right, as the secret was drawn like the others, and the same where all have as many tokens.

    The guesses are a by-product: the more exposed half of the canaries is said to be members. How
    many are guessed is then fixed beforehand, as the bound on ε from one run needs it, but for
    ties; `fedpriv.attacks.one_run_audit.Audit` with these scores guesses fewer, which shows more.

    Args:
        references: the number of other secrets that each planted secret is compared with. Its
            exposure is log2(references + 1) bits at most. If there are fewer other
            secrets, all of them are taken. Each costs one forward pass for every canary.
        key: the key of the question whose answer is secret.
        removed: whether the answer is taken off the page before the model is asked. A model that
            reads the answer on the page is sure of it without any memory.
    """

    references: int = 1000
    key: str = "account"
    removed: bool = True

    def __post_init__(self) -> None:
        check_least(self, 1, "references")

    def run(
        self, access: ExposureAccess, context: AttackContext
    ) -> tuple[CanaryGuesses | CanaryRank, ...]:
        """Returns guesses of the coins, then every canary's rank among the others.

        Raises:
            NotApplicable: if there is no secret, or they cannot be compared.
        """
        ranks: list[CanaryRank] = []
        skipped: Counter[str] = Counter()
        # In the order of their names, which no coin can have touched.
        for provider, pages in sorted(access.canaries.documents.items()):
            context.log(
                f"{provider}: {len(ranks) + 1} of {len(access.canaries.documents)} canaries"
            )
            try:
                page = self._asked(pages)
            except CannotRemove as error:
                skipped[error.why] += 1
                continue
            told = self._losses(access.model, page, context.rng)
            ranks.append(CanaryRank(provider, len(pages), *told))
        if not ranks:
            why = "; ".join(skipped) or "no canaries were planted: set data.canaries"
            raise NotApplicable(f"there is no secret to rank: {why}")
        if len(sizes := {len(one.references) for one in ranks}) > 1:
            raise NotApplicable(
                f"the secrets have {min(sizes)} to {max(sizes)} others to be compared with: set "
                f"references={min(sizes)}, so that all have as many"
            )
        losses = np.array([np.append(one.references, one.loss) for one in ranks])
        if not np.isfinite(losses).all():
            raise NotApplicable(
                "losses are not finite: has the training diverged? Then lower its learning rate"
            )
        if not np.ptp(losses, axis=1).any():
            raise NotApplicable(
                "the model's loss is the same for every secret: one that points at words of the "
                "page cannot say what is not on it; take model=donut or model=vt5"
            )
        where = "without the answer" if self.removed else "that says the answer"
        context.remarks.notes.append(
            f"each secret was asked for on the canary's first page, {where}"
        )
        context.remarks.left_out.update(skipped)
        bits = np.array([exposure(one.loss, one.references) for one in ranks])
        guesses = np.where(bits > np.median(bits), MEMBER, NON_MEMBER).astype(np.int8)
        names = tuple(one.provider for one in ranks)
        return CanaryGuesses(MembershipScores(names, bits, guesses, "exposure")), *ranks

    def _asked(self, pages: tuple[Document, ...]) -> Document:
        """Returns the first page with the one question, as the model is to see it.

        Raises:
            CannotRemove: if the answer cannot be taken off, or not all of it.
            NotApplicable: if it has no such question.
        """
        page = pages[0]
        for question in page.questions:
            if question.key == self.key:
                whole = dataclasses.replace(page, questions=(question,))
                if not self.removed:
                    return whole
                found = without_answer(whole, question)
                if found.residual:
                    why = "other words of the page still spell it"
                    raise CannotRemove(whole, question.answers, why)
                return found.page
        keys = ", ".join(dict.fromkeys(question.key for question in page.questions))
        raise NotApplicable(
            f"{page.provider} is not asked for {self.key!r}: set key to one of {keys}"
        )

    def _losses(
        self, model: GreyBox, page: Document, rng: np.random.Generator
    ) -> tuple[float, NDArray[np.float64]]:
        """Returns the losses on the secret and on the others, (references,).

        Raises:
            NotApplicable: if the secret is no number.
        """
        (question,) = page.questions
        digits = sum(sign.isdigit() for sign in question.answers[0])
        if not digits:
            raise NotApplicable(
                f"{question.answers[0]!r} has no digits that could be others: what is secret must "
                "be a number, as of fedpriv.data.generated.identities.Identities"
            )
        count = min(self.references, int(10**digits) - 1)
        others = others_alike(question.answers[0], count, rng)
        said = [dataclasses.replace(question, answers=(text,)) for text in others]
        asked = dataclasses.replace(page, questions=(question, *said))
        ((loss, *of_others),) = model.losses([asked])
        return loss, np.array(of_others, np.float64)
