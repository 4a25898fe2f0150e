"""What attacks could tell of so many documents, before anything is trained: power by attack.

A leak that is as large as can be still needs enough units to be shown. Which units count is said by
the claims of an attack (`fedpriv.threat.scoring.power`), how many there are by the documents.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from fedpriv.data.document import Document
from fedpriv.report.wording import show_value
from fedpriv.studies.estimate import over_attacks
from fedpriv.threat.scoring.power import Power
from fedpriv.threat.statistics import MOST_UNITS, fewest

Sides = tuple[int, int]
"""Units that may leak, and units that nothing can leak of."""


def sides_of(
    documents: Sequence[Document],
    train: Collection[int],
    held: Collection[int],
    asked: Collection[int],
    *,
    clients: int,
    secrets: int = 0,
) -> dict[str, Sides]:
    """Returns how many units of each kind there are, by the names of `Power.units`.

    Args:
        documents: all.
        train: positions of those that are trained on.
        held: of those that are held out.
        asked: of those that an adversary holds of suppliers on either side.
        clients: that send messages.
        secrets: that are planted, each trained on or not by a coin.
    """
    trained = {documents[at].provider for at in train}
    suspects = {documents[at].provider for at in asked}
    fields = [sum(bool(documents[at].entities) for at in side) for side in (train, held)]
    return {
        "suppliers": (len(suspects & trained), len(suspects - trained)),
        "clients": (clients, len(held)),
        "documents": (fields[0], fields[1]),
        "secrets": (secrets // 2, secrets - secrets // 2),
    }


@dataclass(frozen=True)
class Outlook:
    """What an attack could tell.

    Attributes:
        question: that it answers.
        units: what is counted, in the plural.
        inside: how many there are that may leak.
        outside: how many there are that cannot.
        needed: how many of each it takes to show a leak that is worth telling.
        least: the least value that would be shown in four of five experiments of this size; None
            where not even the largest would be.
        enough: whether that is no more than what is worth telling.
        alone: whether one unit that was recovered exactly is a leak by itself.
    """

    question: str
    units: str
    inside: int
    outside: int
    needed: int
    least: float | None
    enough: bool
    alone: bool = False

    @property
    def hopeless(self) -> bool:
        """Whether no leak of any size could be shown."""
        return self.least is None and not (self.alone and self.inside)

    @property
    def says(self) -> str:
        """What can be told, in words."""
        takes = f"{self.needed:,}{'' if self.units == 'clients' else ' of each'}"
        if self.hopeless:
            return f"cannot tell: it takes {takes}"
        if self.least is None:
            return f"only what is recovered to the last word or pixel: less takes {takes}"
        least = f"a leak of {show_value(self.least)} or more"
        return f"can tell {least}" if self.enough else f"only {least}: less takes {takes}"

    @property
    def reason(self) -> str:
        """Why an attack is not made that cannot tell."""
        return f"{self.here}: {self.says}"

    @property
    def here(self) -> str:
        """How many units there are, in words."""
        beside = f" and {self.outside:,} others" if self.units != "clients" else ""
        return f"{self.inside:,} {self.units}{beside}"


def outlook(
    power: Power, units: Mapping[str, Sides], *, looks: int | None = None, seeds: int = 1
) -> Outlook:
    """Returns what an attack with such claims could tell.

    Args:
        power: of its claims.
        units: of `sides_of`.
        looks: numbers of an assessment that are judged together; None for one attack by itself.
        seeds: trainings with documents of their own.
    """
    inside, outside = units[power.units]

    def least(inside: int, outside: int) -> float | None:
        found = power.unleaked(inside, outside)
        if found is None:
            return None
        if looks is None:
            return found.detectable
        over = over_attacks([found] * seeds)
        return over.detectable(looks) if over else None

    worth = power.worth + (0.5 if power.area else 0.0)

    def shows(count: int) -> bool:
        could = least(count, outside if power.matched else count)
        return could is not None and could <= worth

    needed = fewest(shows) or MOST_UNITS
    could = least(inside, outside)
    enough = could is not None and could <= worth
    return Outlook(
        power.question, power.units, inside, outside, needed, could, enough, power.matched
    )
