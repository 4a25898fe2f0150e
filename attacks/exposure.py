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
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedpriv.data.document import Document, Question
from fedpriv.data.generated.identities import others_alike
from fedpriv.data.redaction.answers import without_answer
from fedpriv.data.redaction.painting import CannotRemove
from fedpriv.threat.attack import Capability, NotApplicable, Workbench
from fedpriv.threat.membership_game import (
    MEMBER,
    NON_MEMBER,
    Access,
    Judgement,
    Secret,
    Suspects,
    Verdict,
)
from fedpriv.threat.queries import BlackBox, GreyBox
from fedpriv.threat.scoring.exposure import exposure


@dataclass(frozen=True)
class Exposure:
    """Ranks the secret of every canary among others of its space, by the model's loss.

    The others have the secret's shape: its digits are drawn anew, all else stays. Carlini et al.
    rank by the sum of -log p over the tokens; here it is the mean, which a grey box tells. Both are
    right, as the secret was drawn like the others, and the same where all have as many tokens.

    The verdict is a by-product: the more exposed half of the canaries is said to be members. How
    many are guessed is then fixed beforehand, as the bound on ε from one run needs it, but for
    ties; `fedpriv.attacks.one_run_audit.Audit` with these scores guesses fewer, which shows more.

    Args:
        references: how many others each secret is compared with; exposure is log2(references + 1)
            bits at most. All that there are, where the space has no more. Each costs a forward pass
            for every canary.
        key: of the question whose answer is secret.
        removed: whether the answer is taken off the page before the model is asked. On a page that
            says it, a model that reads is sure of it without any memory.
    """

    judges_canaries: ClassVar[bool] = True
    requires: ClassVar[frozenset[Capability]] = frozenset(
        {Capability.ANSWERS, Capability.CONFIDENCE}
    )

    references: int = 1000
    key: str = "account"
    removed: bool = True

    def __post_init__(self) -> None:
        if self.references < 1:
            raise ValueError(f"references={self.references}: expected 1 or more")

    def judge(self, access: Access, suspects: Suspects, bench: Workbench) -> Judgement:
        """Returns the losses on every canary's secret and on the others, and one verdict."""
        secrets: list[Secret] = []
        skipped: Counter[str] = Counter()
        # In the order of their names, which no coin can have touched.
        for provider in sorted(suspects.canaries):
            bench.tell(f"{provider}: {len(secrets) + 1} of {len(suspects.canaries)} canaries")
            pages = suspects.documents[provider]
            try:
                page = self._asked(pages)
            except CannotRemove as error:
                skipped[error.why] += 1
                continue
            secrets.append(
                Secret(provider, len(pages), *self._losses(access.final, page, bench.rng))
            )
        _check(secrets, skipped)
        return Judgement(
            (_verdict(secrets),), secrets=tuple(secrets), skipped=skipped, notes=(self._note(),)
        )

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
                return _taken_off(whole, question) if self.removed else whole
        keys = ", ".join(dict.fromkeys(question.key for question in page.questions))
        raise NotApplicable(
            f"{page.provider} is not asked for {self.key!r}: set key to one of {keys}"
        )

    def _losses(
        self, box: BlackBox, page: Document, rng: np.random.Generator
    ) -> tuple[float, NDArray[np.float64]]:
        """Returns the losses on the secret and on the others, (references,)."""
        if not isinstance(box, GreyBox):
            raise NotApplicable("the model's losses are needed")
        (question,) = page.questions
        others = others_alike(question.answers[0], self._count(question), rng)
        said = [dataclasses.replace(question, answers=(text,)) for text in others]
        asked = dataclasses.replace(page, questions=(question, *said))
        ((loss, *of_others),) = box.losses([asked])
        return loss, np.array(of_others, np.float64)

    def _count(self, question: Question) -> int:
        digits = sum(sign.isdigit() for sign in question.answers[0])
        if not digits:
            raise NotApplicable(
                f"{question.answers[0]!r} has no digits that could be others: what is secret must "
                "be a number, as of fedpriv.data.generated.identities.Identities"
            )
        return min(self.references, int(10**digits) - 1)

    def _note(self) -> str:
        where = "without the answer" if self.removed else "that says the answer"
        return f"each secret was asked for on the canary's first page, {where}"


def _taken_off(page: Document, question: Question) -> Document:
    found = without_answer(page, question)
    if found.residual:
        raise CannotRemove(page, question.answers, "other words of the page still spell it")
    return found.page


def _check(secrets: list[Secret], skipped: Counter[str]) -> None:
    """Checks that there is something to rank by.

    Raises:
        NotApplicable: if there is no secret, or they cannot be compared.
    """
    if not secrets:
        why = "; ".join(skipped) or "no canaries were planted: set data.canaries"
        raise NotApplicable(f"there is no secret to rank: {why}")
    if len(sizes := {len(secret.references) for secret in secrets}) > 1:
        raise NotApplicable(
            f"the secrets have {min(sizes)} to {max(sizes)} others to be compared with: take as "
            f"many for all, references={min(sizes)}"
        )
    losses = [np.append(secret.references, secret.loss) for secret in secrets]
    if not all(np.isfinite(one).all() for one in losses):
        raise NotApplicable("losses are not finite: the training has diverged")
    if not any(np.ptp(one) for one in losses):
        raise NotApplicable(
            "the model's loss is the same for every secret: one that points at words of the page "
            "cannot say what is not on it; take model=donut or model=vt5"
        )


def _verdict(secrets: list[Secret]) -> Verdict:
    bits = np.array([exposure(secret.loss, secret.references) for secret in secrets])
    guesses = np.where(bits > np.median(bits), MEMBER, NON_MEMBER).astype(np.int8)
    return Verdict("exposure", tuple(secret.provider for secret in secrets), bits, guesses)
