"""Reading text out of gradients as an attack on a transcript."""

from __future__ import annotations

import time
from dataclasses import dataclass

from fedpriv.attacks.text.recover import recover_text
from fedpriv.attacks.victim import Message, Target, each, messages, notes_on, target_of
from fedpriv.data.generated.questions import QUESTION_TEMPLATES
from fedpriv.models.vt5 import VT5
from fedpriv.threat.attack import Capability, Findings, Knowledge, Recovered, Workbench
from fedpriv.threat.transcript import Transcript

USUAL = tuple(phrase for phrases in QUESTION_TEMPLATES.values() for phrase in phrases)


@dataclass(frozen=True)
class TextRecovery:
    """Reads tokens, their places and boxes, question and answer out of each message.

    Args:
        target: "update", "aggregate" (a batch of the pages of all clients) or "masked".
        phrases: questions that are usually asked, among which that of a VT5 is chosen; none for
            those of the generated invoices. Other models give away the question itself.
    """

    target: Target = "update"
    phrases: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        target_of(self.target)

    @property
    def requires(self) -> frozenset[Capability]:
        """The target."""
        return target_of(self.target)

    def run(self, view: Transcript, knowledge: Knowledge, bench: Workbench) -> Findings:
        """Reads the text of every message."""
        return each(messages(view, knowledge, self.target), self._recover)

    def _recover(self, message: Message) -> Recovered:
        phrases = USUAL if self.phrases is None else self.phrases
        began = time.process_time()
        text = recover_text(message.victim, phrases)
        seconds = time.process_time() - began
        notes = notes_on(message)
        if isinstance(message.victim.model, VT5):
            notes += (f"VT5's question was chosen among {len(phrases)} phrases",)
        return Recovered(message.key, text=text, seconds=seconds, notes=notes)
