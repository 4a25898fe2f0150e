"""Reading text out of gradients as an attack on a transcript."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedpriv.attacks.text.recover import reader_of, recover_text
from fedpriv.attacks.text.sums import pairs_of
from fedpriv.attacks.text.words_moved import moved, of_each, table_of
from fedpriv.attacks.victim import Message, MessageAccess, Target, check_seen, each, messages
from fedpriv.data.generated.questions import QUESTION_TEMPLATES
from fedpriv.models.vt5 import VT5
from fedpriv.threat.attack import AttackContext, NotApplicable, Outline
from fedpriv.threat.checks import check_choices
from fedpriv.threat.claims import RecoveredBatch, RecoveredText

USUAL = tuple(phrase for phrases in QUESTION_TEMPLATES.values() for phrase in phrases)


@dataclass(frozen=True)
class TextRecovery:
    """Reads tokens, their places and boxes, question and answer out of each message.

    Args:
        target: the kind of message that is attacked: "update", the update of one client;
            "aggregate", the sum of a round's updates, taken as one batch with the pages of all
            clients; "masked", the update of one client under its mask; or "sums", the words that
            one client alone has, by comparing the sums of rounds in which different clients took
            part, which works behind masks (`fedpriv.attacks.text.words_moved`).
        phrases: questions that are often asked. The question to a VT5 is chosen among them, because
            its gradient hides the order of the words; other models give the question away. None
            takes the questions on the generated invoices.
    """

    target: Target | Literal["sums"] = "update"
    phrases: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        check_choices(self)

    def suits(self, outline: Outline) -> None:
        """Asks whether the model has a weakness of text, and whether such messages can be seen."""
        if self.target == "sums":
            table_of(outline.model)
            return
        reader_of(outline.model)
        check_seen(self.target, outline)

    def run(self, access: MessageAccess, context: AttackContext) -> tuple[RecoveredBatch, ...]:
        """Reads the text of every message, or of every client."""
        if self.target == "sums":
            return self._by_sums(access, context)
        phrases = USUAL if self.phrases is None else self.phrases

        def recover(message: Message) -> RecoveredBatch:
            began = time.process_time()
            text = recover_text(message.victim, phrases)
            seconds = time.process_time() - began
            if isinstance(message.victim.model, VT5):
                note = f"VT5's question was chosen among {len(phrases)} phrases"
                context.remarks.notes.append(note)
            return RecoveredBatch(message.key, text=text, seconds=seconds)

        return each(messages(access, self.target), recover, context)

    def _by_sums(self, access: MessageAccess, context: AttackContext) -> tuple[RecoveredBatch, ...]:
        """Returns words that each client alone has, as of the last message that it sent.

        Raises:
            NotApplicable: if the model's words cannot be told, or all sums are of the same clients.
        """
        began, table = time.process_time(), table_of(access.architecture.build())
        seen = [(round, round.aggregate) for round in access.view.rounds if round.aggregate]
        if len({round.answered for round, _ in seen}) < 2:
            raise NotApplicable(
                f"{len(seen)} sums of the same clients were observed, and there is nothing to "
                "compare: attack more rounds (rounds=null), of a run in which only some clients "
                "take part in each (strategy.client_fraction)"
            )
        words = of_each([moved(mean, table) for _, mean in seen], [r.answered for r, _ in seen])
        last = {client: round.round for round, _ in seen for client in round.answered}
        context.remarks.notes.append(
            f"{len(seen)} sums were compared; what is found is certain if each client trains on "
            "all of its documents in every round, without weight decay or noise"
        )
        seconds, nowhere = (time.process_time() - began) / len(words), np.zeros(0, np.int64)
        return tuple(
            RecoveredBatch(
                (last[client], client),
                text=RecoveredText(pairs_of(nowhere, nowhere, np.flatnonzero(own)), alone=True),
                seconds=seconds,
            )
            for client, own in words.items()
        )
