"""What an assessment compares, adversaries, defences and attacks, and the plan that is made of it.

`matrix.yaml` among the experiments names the former. Beside names, a defence or an attack is given
by its dotted path or by overrides, and a name may have overrides behind it.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from fedpriv.config import attack
from fedpriv.config.construct import import_target
from fedpriv.config.overrides import key_of
from fedpriv.studies.assessing import names
from fedpriv.studies.assessing.assessed import START, Made
from fedpriv.studies.assessing.outlook import Outlook
from fedpriv.studies.trials import Trial, finding
from fedpriv.threat.runner import ThreatModel

Named = TypeVar("Named", "Defence", "Asked")

ALARM_LEVEL = 0.9999
"""Confidence of the bounds that are held against the ledger: many trainings are measured."""


@dataclass(frozen=True)
class Defence:
    """A defence that is compared.

    Attributes:
        name: of its row.
        told: what it is, in words.
        run: overrides of the experiment.
        attack: overrides of the attacks that read these settings.
        answers: whether it is for models that answer questions.
        refused: why the experiment cannot be combined with it; "" if it can.
        warning: that its noise will drown the model; "" if it may live.
    """

    name: str
    told: str
    run: tuple[str, ...]
    attack: tuple[str, ...] = ()
    answers: bool = False
    refused: str = ""
    warning: str = ""


@dataclass(frozen=True)
class Asked:
    """An attack that is made on every training.

    Attributes:
        name: of its column.
        adversary: who makes it: "server" is one that sees sums where these are masked, and
            "colluding" is the server where they are not.
        overrides: as `fedpriv attack` takes them.
        told: what it is after, in words.
        own: more overrides, from whoever asked for it; they come last.
        masked: more overrides, where sums are masked.
        minutes: that it takes on one training of a tiny model, about.
        smaller: more overrides for which it takes less time, and finds less.
        smaller_minutes: that it takes then.
        measure: name of the number that is its success; "" for the one its verdict rests on.
        withheld: why no training of the experiment grants what it needs; "" if one may.
        outlook: what it could tell of the experiment's documents; None if that is not known.
    """

    name: str
    adversary: str
    overrides: tuple[str, ...]
    told: str = ""
    own: tuple[str, ...] = ()
    masked: tuple[str, ...] = ()
    minutes: float = 0.5
    smaller: tuple[str, ...] = ()
    smaller_minutes: float = 0.5
    measure: str = ""
    withheld: str = ""
    outlook: Outlook | None = None

    def order(self, defence: Defence, seed: int, *, masked: bool) -> tuple[str, ...]:
        """Returns its overrides against a defence, under the seed of the training."""
        masks = self.masked if masked else ()
        # A bound on ε that is held against the ledger raises an alarm.
        sure = (f"confidence={ALARM_LEVEL}",) if "confidence" in self._reads else ()
        return (*self.overrides, *masks, *self.reads(defence), *sure, f"seed={seed}", *self.own)

    def reads(self, defence: Defence) -> list[str]:
        """Returns the overrides of a defence that the attack reads."""
        return [one for one in defence.attack if key_of(one) in self._reads]

    @functools.cached_property
    def _reads(self) -> set[str]:
        ordered = attack.parse((*self.overrides, *self.own), self.name)
        return ThreatModel.of(ordered.attack).reads()

    def made_smaller(self) -> Asked:
        """Returns the same, with less time and less to find."""
        return dataclasses.replace(
            self,
            overrides=(*self.overrides, *self.smaller),
            told=f"{self.told} (with {' '.join(self.smaller)}, for lack of time)",
            minutes=self.smaller_minutes,
            smaller=(),
        )


@dataclass(frozen=True)
class Training:
    """One training, with everything resolved.

    Attributes:
        defence: that it is under; `START` for a model that trainings begin from.
        seed: of its data, its draws and its attacks.
        run: the name of its folder, the same for the same settings.
        overrides: of the experiment, which `fedpriv run` takes.
        start: the folder of the model that it begins from; "" of such a model itself.
        private: whether its mechanism is measured.
        masked: whether sums are masked.
        orders: overrides of each attack on it, by the attack's name.
        findings: the names of the attacks' results, likewise.
        config: its settings; a plan that was read from a folder has none.
    """

    defence: str
    seed: int
    run: str
    overrides: tuple[str, ...]
    start: str = ""
    private: bool = False
    masked: bool = False
    orders: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    findings: Mapping[str, str] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Observer:
    """An adversary: who it is, and the ledger's view that holds against it."""

    who: str
    view: str


@dataclass(frozen=True)
class Assessment:
    """What is going to be trained and attacked, as plan.json keeps it but for the settings.

    Attributes:
        experiment: that is assessed.
        overrides: of it, for all defences.
        defences: in the order of the rows.
        attacks: in the order of the columns.
        seeds: of the trainings.
        adversaries: by name.
        trainings: of the defences that the experiment can be combined with.
        command: that makes it.
        hours: into which it is to fit; None for as long as it takes.
        own: hashes of the code that it runs, "fedpriv" and files of the user's own by dotted path,
            and of the "documents".
        made: where it comes from; None before there is a folder.
    """

    experiment: str
    overrides: tuple[str, ...]
    defences: tuple[Defence, ...]
    attacks: tuple[Asked, ...]
    seeds: tuple[int, ...]
    adversaries: Mapping[str, Observer]
    trainings: tuple[Training, ...]
    command: str
    hours: float | None = None
    own: Mapping[str, str] = field(default_factory=dict)
    made: Made | None = None

    @property
    def place(self) -> Path:
        """The folder that assessments of this experiment go to."""
        config = self.trainings[0].config
        return Path(config["runs"]) / "assess" / str(config["name"])

    def as_json(self) -> dict[str, Any]:
        """Returns what plan.json keeps."""
        plan = dataclasses.asdict(self)
        del plan["made"]
        for training in plan["trainings"]:
            del training["config"]
        return plan

    def ordered(self, attacks: Sequence[Asked]) -> Assessment:
        """Returns the same plan with these attacks on each training of a defence."""
        made, trainings = [one for one in attacks if not one.withheld], list[Training]()
        defences = {one.name: one for one in self.defences}
        for one in self.trainings:
            orders = {}
            if of := defences.get(one.defence):
                orders = {a.name: a.order(of, one.seed, masked=one.masked) for a in made}
            findings = {name: finding(name, order) for name, order in orders.items()}
            trainings.append(dataclasses.replace(one, orders=orders, findings=findings))
        return dataclasses.replace(self, attacks=tuple(attacks), trainings=tuple(trainings))

    def trials(self) -> list[Trial]:
        """Returns its trainings with the attacks on them; several may be one training."""
        made = []
        for one in self.trainings:
            title = f"{one.defence}, seed {one.seed}"
            orders = {one.findings[name]: order for name, order in one.orders.items()}
            called = {place: f"{title}: {name}" for name, place in one.findings.items()}
            audit = ALARM_LEVEL if one.private else None
            made.append(Trial(one.config, title, orders, called, audit=audit, report=True))
        return made


@dataclass(frozen=True)
class Matrix:
    """What `matrix.yaml` says.

    Attributes:
        adversaries: who they are, and the ledger's view that holds against them, by name.
        defences: by name.
        attacks: by name.
        usual: defences, attacks and seeds where nobody says which.
        keepers: settings of what a training keeps for attacks, by keeper.
    """

    adversaries: Mapping[str, Observer]
    defences: Mapping[str, Mapping[str, Any]]
    attacks: Mapping[str, Mapping[str, Any]]
    usual: Mapping[str, Any]
    keepers: Mapping[str, Sequence[str]]

    @classmethod
    def of(cls, source: str) -> Matrix:
        """Reads the file, of the working directory's experiments if it has one.

        Under `ready`, an experiment may have entries in place of those for all.

        Raises:
            Mistakes: if the file cannot be read.
        """
        matrix = names.matrix(source)
        who = {name: Observer(**one) for name, one in matrix.pop("adversaries").items()}
        return cls(who, **matrix)

    def defence(self, text: str) -> Defence:
        """Returns a defence by its name, dotted path or overrides; `names.misnamed` checks them.

        A name may have overrides behind it.
        """
        first, *rest = names.words(text)
        if first in self.defences:
            entry = self.defences[first]
            like = self.defences[entry["like"]]["run"] if "like" in entry else ()
            told = f"{first} with {' '.join(rest)}" if rest else entry["told"]
            against = tuple(entry.get("attack", ()))
            changed = set(map(key_of, rest))
            run = tuple(w for w in (*like, *entry["run"]) if key_of(w) not in changed)
            run = (*run, *rest)
            return Defence(
                " ".join((first, *rest)), told, run, against, entry.get("answers", False)
            )
        if all("=" in word for word in (first, *rest)):
            return Defence(text, text, (first, *rest))
        run = (f"strategy={first}", "masking=off")
        return Defence(first.rpartition(".")[2], f"{first}, a strategy of your own", run)

    def attack(self, text: str) -> Asked:
        """Returns an attack by its name or dotted path, perhaps with overrides behind it."""
        first, *rest = names.words(text)
        if first in self.attacks:
            entry = dict(self.attacks[first])
        else:
            entry = {"adversary": "", "attack": [f"attack={first}"], "told": _first_line(first)}
        smaller = entry.pop("smaller", {})
        return Asked(
            " ".join((first.rpartition(".")[2], *rest)),
            entry.pop("adversary"),
            tuple(entry.pop("attack")),
            own=tuple(rest),
            masked=tuple(entry.pop("masked", ())),
            smaller=tuple(smaller.get("attack", ())),
            smaller_minutes=smaller.get("minutes", Asked.smaller_minutes),
            **entry,
        )


def chosen(
    given: Sequence[Any],
    known: Mapping[str, Any],
    what: str,
    named: Callable[[str], Named],
    problems: list[str],
) -> list[Named]:
    """Returns what is named, in its order; what is wrong is appended to `problems`.

    Args:
        given: names, as they were given.
        known: those of the matrix, for messages.
        what: "defences" or "attacks".
        named: `Matrix.defence` or `Matrix.attack`.
        problems: one line each.
    """
    if wrong := list(names.misnamed(given, known, what)):
        problems += wrong
        return []
    found: list[Named] = []
    for one in map(named, map(names.as_text, given)):
        if one.name == START or one.name in [other.name for other in found]:
            problems.append(f"{what}: the name {one.name} is taken")
        else:
            found.append(one)
    return found


def _first_line(path: str) -> str:
    """Returns the first line of what a class says of itself; "" if it cannot be imported."""
    try:
        told = inspect.getdoc(import_target(path)) if "." in path else None
    except ImportError:  # which is told with the attack's other mistakes
        return ""
    return told.splitlines()[0].rstrip(".") if told else ""
