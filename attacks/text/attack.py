"""Reading text out of gradients as an attack on a transcript."""

from __future__ import annotations

import time
from dataclasses import dataclass

from fedpriv.attacks.text.recover import recover_text
from fedpriv.attacks.victim import Message, MessageAccess, Target, each, messages
from fedpriv.data.generated.questions import QUESTION_TEMPLATES
from fedpriv.models.vt5 import VT5
from fedpriv.threat.attack import AttackContext
from fedpriv.threat.checks import check_choices
from fedpriv.threat.claims import RecoveredBatch

USUAL = tuple(phrase for phrases in QUESTION_TEMPLATES.values() for phrase in phrases)


@dataclass(frozen=True)
class TextRecovery:
    """Reads tokens, their places and boxes, question and answer out of each message.

    Args:
        target: the kind of message that is attacked: "update", the update of one client;
            "aggregate", the sum of a round's updates, taken as one batch with the pages of all
            clients; or "masked", the update of one client under its mask.
        phrases: questions that are often asked. The question to a VT5 is chosen among them, because
            its gradient hides the order of the words; other models give the question away. None
            takes the questions on the generated invoices.
    """

    target: Target = "update"
    phrases: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        check_choices(self)

    def run(self, access: MessageAccess, context: AttackContext) -> tuple[RecoveredBatch, ...]:
        """Reads the text of every message."""
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
