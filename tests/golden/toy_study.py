"""Parts of a small study: numbers that know their providers, and two attacks that find much or not.

What the attacks find depends on what they may see and on nothing that a processor rounds.
"""

from dataclasses import dataclass

import toy
import toy_private

from fedpriv.threat.access import Architecture, Transcript, WhiteBox
from fedpriv.threat.attack import AttackContext, NotApplicable
from fedpriv.threat.results import LEAK, NONE_SHOWN, Figure, Number, Result, Table
from fedpriv.threat.scoring.registry import scorer


def data(clients: int = 4):
    return toy_private.private_data(clients)


class Model(toy.Net):
    """The toy network; it has no labels, which attacks build models with."""

    def __init__(self, labels: tuple[str, ...] = (), task: str = "tags") -> None:
        super().__init__()


@dataclass(frozen=True)
class Heard:
    """How much of a provider an attack heard."""

    share: float
    providers: int


@dataclass(frozen=True)
class MessagesAccess:
    transcript: Transcript


@dataclass(frozen=True)
class Overhears:
    """Which provider a message is from."""

    def run(self, access: MessagesAccess, context: AttackContext) -> Heard:
        if access.transcript.masked:
            return Heard(0.51, 200)
        strategy = access.transcript.settings["strategy"]["class"].rpartition(".")[2]
        context.remarks.notes.append(f"the server knows that the strategy is {strategy}")
        return Heard(0.92 if strategy == "FedAvg" else 0.7, 200)


@dataclass(frozen=True)
class ModelAccess:
    model: WhiteBox


@dataclass(frozen=True)
class Asks:
    """Which provider a model was trained on."""

    share: float = 0.55
    broken: bool = False

    def run(self, access: ModelAccess, context: AttackContext) -> Heard:
        if self.broken:
            raise RuntimeError("the model gives no answer")
        return Heard(self.share, 40)


@scorer(Heard)
def heard(claims, scoring):
    (found,) = claims
    share, error = found.share, 0.98 / found.providers**0.5
    leaks = share > 0.6
    number = Number(
        share,
        (share - error, min(1.0, share + error)),
        found.providers,
        "provider",
        0.5,
        0.61,
        1e-15 if leaks else 0.4,
        1.0,
    )
    return Result(
        "hearing",
        f"{share:.0%} of the providers were heard",
        {"share": share},
        tables=(
            Table(("side", "heard"), (("trained on", f"{share:.2f}"), ("not", "0.50")), "Heard"),
            Table(("providers",), ((str(found.providers),),), "Asked about", public=True),
        ),
        figures=(Figure("bars", "Heard", {"bars": {"attack": {"trained on": share, "not": 0.5}}}),),
        verdict=LEAK if leaks else NONE_SHOWN,
        primary="share",
        numbers={"share": number},
    )


@dataclass(frozen=True)
class Drawn:
    value: float


@dataclass(frozen=True)
class GuessAccess:
    architecture: Architecture


@dataclass(frozen=True)
class Guesses:
    """Hands back a number, with some luck of its seed's own."""

    value: float = 0.0
    luck: float = 0.0
    refuse: bool = False

    def run(self, access: GuessAccess, context: AttackContext) -> Drawn:
        if self.refuse:
            raise NotApplicable("the toy does not want to")
        return Drawn(self.value + self.luck * context.rng.random())


@scorer(Drawn)
def drawn(claims, scoring):
    value = claims[0].value
    around = [value - 0.125, value + 0.125]
    return Result("number", f"the number is {value:.3f}", {"value": value, "around": around})
