"""What an attack could show on so many units, before anything is trained.

Each kind of claim says once what it asks and what it counts (`Power`). Where nothing leaks, so many
units give a number with some interval, and that interval tells how large a leak must be to be shown
in four of five experiments.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedpriv.threat.results import Number
from fedpriv.threat.scoring.verdicts import number
from fedpriv.threat.statistics import LEVEL, Estimate, area_by_chance, share

Units = Literal["suppliers", "clients", "documents", "secrets"]
"""What is counted."""


@dataclass(frozen=True)
class Power:
    """What a kind of claim asks of how many units.

    Attributes:
        question: that an attack with such claims answers.
        units: what is counted.
        worth: the least leak that is worth telling, above what there is without one.
        area: whether the number is an AUC; else it is a share.
        matched: whether each claim is held against the truths of others, and not against units of
            which nothing can leak. One that fits its own to the last token or pixel is a leak by
            itself, however few there are.
    """

    question: str
    units: Units
    worth: float
    area: bool = False
    matched: bool = False

    def unleaked(self, inside: int, outside: int) -> Number | None:
        """Returns the number as it comes out where nothing leaks; None without units to compare.

        Args:
            inside: units that may leak, such as suppliers that are trained on.
            outside: units that cannot.
        """
        fewest = 2 if self.area else 1  # of one, nobody knows how much it varies
        if inside < fewest or (outside < fewest and not self.matched):
            return None
        if self._least_p(inside, outside) > LEVEL:
            return None
        if self.area:
            chance = Estimate.known(0.5)
            found = number(area_by_chance(inside, outside), self.units, chance)
        elif self.matched:
            found = number(share(np.zeros(inside)), self.units, Estimate.known(0.0))
        else:
            found = number(share(np.zeros(inside)), self.units, share(np.zeros(outside)))
        return dataclasses.replace(found, n=inside + outside * (not self.matched))

    def _least_p(self, inside: int, outside: int) -> float:
        """Returns the least p-value of an exact test of so many units."""
        if self.matched:  # of 50 there are more deals than a float can count
            return 1 / math.perm(min(inside + outside, 50), min(inside, 50))
        return 2 / math.comb(inside + outside, inside)
