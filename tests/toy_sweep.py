"""An attack that sweeps of the toy federation can make: it hands back a number with some luck."""

from dataclasses import dataclass

from fedpriv.threat.access import Architecture
from fedpriv.threat.attack import AttackContext, NotApplicable
from fedpriv.threat.results import Result
from fedpriv.threat.scoring.registry import scorer


@dataclass(frozen=True)
class Number:
    value: float


@dataclass(frozen=True)
class GuessAccess:
    architecture: Architecture


@dataclass(frozen=True)
class Guess:
    value: float = 0.0
    luck: float = 0.0
    parts: tuple = ()
    refuse: bool = False

    def run(self, access: GuessAccess, context: AttackContext) -> Number:
        if self.refuse:
            raise NotApplicable("the toy does not want to")
        if "fail" in self.parts:
            raise RuntimeError("the toy is broken")
        return Number(self.value + self.luck * context.rng.random())


@scorer(Number)
def score(claims, scoring):
    value = claims[0].value
    numbers = {"value": value, "inner": {"0.01": {"twice": 2 * value}}}
    return Result("number", f"the number is {value}", {**numbers, "around": [value - 1, value + 1]})
