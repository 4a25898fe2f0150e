"""Who is looking, by what they may use."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True)
class Onlooker:
    """Somebody who attacks.

    Attributes:
        name: among the adversaries of an assessment.
        who: in a sentence.
        title: as a heading.
    """

    name: str
    who: str
    title: str


COLLUDING = Onlooker(
    "colluding", "the server, told by colluding clients,", "The server, with clients that collude"
)
SERVER = Onlooker("server", "the server", "The server, honest but curious")
RECEIVER = Onlooker(
    "model", "whoever holds the model", "Whoever receives global models, with their weights"
)
HOLDER = Onlooker(
    "model", "whoever holds the model", "Whoever has the final model, with its weights"
)
ASKER = Onlooker(
    "model",
    "whoever can query the model",
    "Whoever can ask the final model, and sees confidence and loss",
)
READER = Onlooker(
    "answers",
    "whoever can query the model",
    "Whoever can ask the final model, and sees answers alone",
)
ONLOOKERS = (COLLUDING, SERVER, RECEIVER, HOLDER, ASKER, READER)
"""Who has more comes first."""


class Surface:
    """Something that an adversary may use. A run grants it, or says why not.

    A subclass says of itself, as in ``class Replies(Surface, onlooker=READER)``:

    Attributes:
        onlooker: who has it; None where anybody may.
        keeper: what a run must keep for it, as in `keep=transcript`; "" for nothing.
        auditor: who alone has it, as a heading: not an adversary, but somebody who measures.
    """

    onlooker: ClassVar[Onlooker | None] = None
    keeper: ClassVar[str] = ""
    auditor: ClassVar[str] = ""

    def __init_subclass__(cls, **said: Any) -> None:
        super().__init_subclass__()
        for name, value in said.items():
            if not hasattr(cls, name):  # a misspelt one would be passed over
                raise TypeError(f"{cls.__name__}: a surface says nothing of {name!r}")
            setattr(cls, name, value)
        SURFACES[cls.__name__] = cls


SURFACES: dict[str, type[Surface]] = {}
"""By name, as a result knows them; `fedpriv.threat.access` has ours."""


def onlooker(kinds: Iterable[type]) -> Onlooker | None:
    """Returns who has all of these; None where nothing of it says."""
    has = {getattr(kind, "onlooker", None) for kind in kinds}
    return next((one for one in ONLOOKERS if one in has), None)
