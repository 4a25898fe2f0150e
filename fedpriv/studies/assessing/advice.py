"""What to do after an assessment, by rules: a condition on its table, a sentence, and a page.

Each rule stands by itself and is about this table alone. Rules that apply are said in their order,
the most urgent first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fedpriv.privacy.views import face
from fedpriv.studies.assessing.assessed import Assessed
from fedpriv.studies.assessing.effects import LEAKS, LEAKS_LESS, STOPS

MESSAGES = ("server", "server_masked", "colluding")
"""Adversaries who see messages; others have the model, or ask it."""


@dataclass(frozen=True)
class Advice:
    """One thing to do.

    Attributes:
        say: what, in a sentence or two.
        page: of the documentation, that explains it.
    """

    say: str
    page: str


def advice(found: Assessed) -> list[Advice]:
    """Returns what to do, the most urgent first."""
    return [Advice(say, page) for rule, page in RULES for say in rule(found)]


def _alarm(found: Assessed) -> Iterator[str]:
    if found.alarms:
        yield "Explain the alarm before anything else: the ledger's ε may not hold."


def _defend(found: Assessed) -> Iterator[str]:
    for leak in found.leaks:
        if stops := found.against(leak.attack, STOPS):
            best = max(stops, key=lambda row: row.utility.mean if row.utility else 0.0)
            yield (
                f"Train with {best.title}: of the defences that stop {leak.attack} it keeps the "
                "best model."
            )


def _do_not_send(found: Assessed) -> Iterator[str]:
    for leak in found.leaks:
        if leak.adversary == "server" and not found.against(leak.attack, STOPS):
            yield (
                "Do not send updates in clear: no defence that was tried is shown to stop "
                f"{leak.attack} and to leave a useful model."
            )


def _masks(found: Assessed) -> Iterator[str]:
    masked = {cell.verdict for _, cell in found.cells if cell.adversary == "server_masked"}
    if masked & {LEAKS, LEAKS_LESS}:
        yield (
            "Masks hide whose words or pages the server reads, not the words: put noise into the "
            "sums as well, or more clients into each round."
        )


def _model(found: Assessed) -> Iterator[str]:
    leaks = [cell for cell in found.leaks if cell.adversary not in MESSAGES]
    if any(not found.against(leak.attack, STOPS) for leak in leaks):
        yield (
            "Treat the trained model like the documents: whoever has it, or may ask it, learns of "
            "them."
        )


def _more_suppliers(found: Assessed) -> Iterator[str]:
    dead = [row for row in found.rows if row.dead and row.unit]
    if dead and not (found.undefended and found.undefended.dead):
        yield (
            f"Pool more {face(dead[0].unit)}s before you train privately, or train for more rounds:"
            f" {dead[0].title} left nothing of the model, and some hundreds of "
            f"{face(dead[0].unit)}s have been enough. The same with "
            "strategy.mechanism.noise_multiplier=0 tells whether noise is the reason."
        )


def _train(found: Assessed) -> Iterator[str]:
    if found.undefended and found.undefended.dead:
        yield (
            "Train for longer, or begin from a pretrained model (model.pretrained=): of one that "
            "has learnt nothing, nothing can be said about attacks on the model."
        )


def _measure(found: Assessed) -> Iterator[str]:
    for name, one in found.outlooks.items():
        if one.hopeless:
            yield (
                f"To measure {name}, bring {one.needed:,} {one.units} of each kind, trained on and "
                "not. Until then rely on ε and its ceilings, not on an attack that cannot tell."
            )
            return


def _silence(found: Assessed) -> Iterator[str]:
    told = any(cell.verdict in (LEAKS, LEAKS_LESS, STOPS) for _, cell in found.cells)
    if found.cells and not told:
        yield (
            "Do not take this for safety: no attack was shown to succeed, but others may, or these "
            "with more documents."
        )


RULES: tuple[tuple[Callable[[Assessed], Iterator[str]], str], ...] = (
    (_alarm, "guides/auditing"),
    (_do_not_send, "explanations/threat_models"),
    (_defend, "guides/strategies"),
    (_masks, "explanations/masking"),
    (_model, "guides/attacks"),
    (_more_suppliers, "explanations/private_models"),
    (_train, "guides/models"),
    (_measure, "guides/assessing"),
    (_silence, "explanations/verdicts"),
)
"""Each rule yields what it has to say; the page explains it."""
