"""Reading text out of gradients as an attack on a transcript."""

from __future__ import annotations

import time
from dataclasses import dataclass

from attacks.text.recover import recover_text
from attacks.victim import Message, Target, messages, notes_on, target_of
from fedpriv.adversary import Capability, Findings, Knowledge, Recovered, Workbench
from fedpriv.transcript import Transcript


@dataclass(frozen=True)
class TextRecovery:
    """Reads tokens, their places and boxes, question and answer out of each message.

    Args:
        target: "update", "aggregate" (a batch of the pages of all clients) or "masked".
    """

    target: Target = "update"

    def __post_init__(self) -> None:
        target_of(self.target)

    @property
    def requires(self) -> frozenset[Capability]:
        """The target."""
        return target_of(self.target)

    def run(self, view: Transcript, knowledge: Knowledge, bench: Workbench) -> Findings:
        """Reads the text of every message."""
        return Findings(tuple(map(_recover, messages(view, knowledge, self.target))))


def _recover(message: Message) -> Recovered:
    began = time.process_time()
    text = recover_text(message.victim)
    seconds = time.process_time() - began
    return Recovered(message.key, text=text, seconds=seconds, notes=notes_on(message))
