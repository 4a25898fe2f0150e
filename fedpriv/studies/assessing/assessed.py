"""What an assessment shows: utility, ε and cost of each defence, and its effect on each attack."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
from pydantic import TypeAdapter

from fedpriv.privacy.views import face, rounded_up
from fedpriv.report.wording import aligned, as_markdown, plain
from fedpriv.studies.assessing.effects import CANNOT_TELL, LEAKS, LEAKS_LESS, STOPS
from fedpriv.studies.assessing.outlook import Outlook
from fedpriv.studies.estimate import Over, over_attacks
from fedpriv.threat.results import Number

NONE, START = "none", "start"
"""The defence that others are held against, and the model that all trainings begin from."""


@dataclass(frozen=True)
class Cell:
    """What a defence does to an attack.

    Attributes:
        attack: its name.
        adversary: who makes it under this defence.
        measure: name of the number that is its success, such as "server_series".
        verdict: "leaks", "leaks_less", "stops_it" or "cannot_tell".
        why: in words.
        value: mean success; None where it was not measured.
        control: the same where nothing leaks.
        interval: of the value, at 95 %.
        detectable: the least value that would have been shown; None where none would have been.
        p_value: of value against control, corrected for all looks of the page.
        p_less: of the success without the defence against this one, likewise.
        n: units, over the seeds.
        unit: what was counted.
        needed: units with which it could be told; None where it is told, or nobody knows.
        runs: folders of the seeds' runs, below the assessment's.
        findings: the folder of the result in each.
        commands: that make these.
        seeds: in which it gave a number that can be used.
        asked: seeds that were planned.
        failed: seeds in which the attack or its training failed.
        own_leaks: seeds in which the attack's own verdict is a leak.
        certain: seeds in which it needs no test, such as a message that was recovered exactly.
        said: what its leak lets the adversary do, in words that follow "can", by the seed in which
            that is least; "" where its scorer has none.
        ours: whether fedpriv's own attack and scorer say it, whose words quote no document.
        numbers: of these seeds, which the rest is computed from.
        shared: whether the seeds share their data, as those of a folder do, so that each of them
            tells little more than the others.
    """

    attack: str
    adversary: str
    measure: str = ""
    verdict: str = CANNOT_TELL
    why: str = ""
    value: float | None = None
    control: float | None = None
    interval: tuple[float, float] | None = None
    detectable: float | None = None
    p_value: float | None = None
    p_less: float | None = None
    n: int = 0
    unit: str = ""
    needed: int | None = None
    runs: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    asked: int = 0
    failed: int = 0
    own_leaks: int = 0
    certain: int = 0
    said: str = ""
    ours: bool = False
    numbers: Mapping[int, Number] = field(default_factory=dict)
    shared: bool = False

    @property
    def effect(self) -> Over | None:
        """What was measured; None for nothing."""
        return over_attacks([*self.numbers.values()], self.shared)

    @property
    def found_nothing(self) -> bool:
        """Whether it came out no better than its control, of too few units to tell."""
        if self.verdict != CANNOT_TELL or self.value is None or self.failed:
            return False
        return self.value <= (self.control or 0.0)

    @property
    def share(self) -> float:
        """How much of what could leak does, from 0 to 1: what leaks are ordered by."""
        effect = self.effect
        if effect is None or not math.isfinite(effect.most):
            return 0.0
        return effect.gain / max(effect.most - (effect.control or 0.0), 1e-9)


@dataclass(frozen=True)
class DefenceRow:
    """A defence: what it costs, what it promises, and what it does to each attack.

    Attributes:
        defence: its name.
        told: what it is.
        refused: why the experiment cannot be combined with it; "" if it can.
        metric: that utility is measured in.
        utility: over the seeds.
        start: the same of the model that its training begins from.
        dead: whether some seed's model is hardly better than the model that its training began
            from: it has come less than `ALIVE` of the way from there to the model of `none`.
        alive: whether it is known that it is not dead.
        unit: whom ε protects, such as "provider"; "" where nothing is promised.
        epsilon: by adversary, the largest of all seeds; None where nothing is promised.
        ceiling: by adversary, the largest AUC that any attack on one unit can reach, whatever it
            computes; None where there is no such bound.
        measured: by the ledger's view, the lower bound on ε of the audit that comes closest to the
            ledger, and the ledger's ε of a client that took part as often as its canaries' did.
        seconds: mean of all rounds of a training.
        traffic: mean bytes of a training's messages.
        memory: most bytes that a training's process held; None if not known.
        seeds: that were trained to their end.
        failed: seed → why its training failed.
        alarms: in words.
        runs: folders of the seeds' runs, below the assessment's.
        commands: that train them.
        cells: one for each attack.
    """

    defence: str
    told: str
    refused: str = ""
    metric: str = ""
    utility: Over | None = None
    start: Over | None = None
    dead: bool = False
    alive: bool = True
    unit: str = ""
    epsilon: Mapping[str, float | None] = field(default_factory=dict)
    ceiling: Mapping[str, float | None] = field(default_factory=dict)
    measured: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    seconds: float | None = None
    traffic: float | None = None
    memory: float | None = None
    seeds: tuple[int, ...] = ()
    failed: Mapping[int, str] = field(default_factory=dict)
    alarms: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    cells: tuple[Cell, ...] = ()

    @property
    def title(self) -> str:
        """What a reader sees it called."""
        return "undefended" if self.defence == NONE else self.defence

    def cell(self, attack: str) -> Cell | None:
        """Returns what it does to an attack; None where that was not made on it."""
        return next((cell for cell in self.cells if cell.attack == attack), None)

    def says(self, attack: str) -> str:
        """Returns the verdict on an attack as a reader sees it."""
        cell = self.cell(attack)
        return cell.verdict.replace("_", " ") if cell else "—"

    @property
    def state(self) -> str:
        """What there is to be known of the model before anything else; "" of one that is alive."""
        if self.dead:
            return "has learnt nothing" if self.defence == NONE else "dead model"
        return "cannot be judged" if self.utility and not self.alive else ""


@dataclass(frozen=True)
class Made:
    """Where an assessment comes from."""

    commit: str
    date: str
    machine: str


@dataclass(frozen=True)
class Assessed:
    """An assessment, read from its folder.

    Attributes:
        experiment: that was assessed.
        command: that made it.
        made: commit, date and machine.
        seeds: that were asked for.
        adversaries: who they are, by name.
        attacks: what each is after, in words.
        withheld: attack → why no training grants what it needs.
        rows: the defences.
        outlooks: attack → what it could tell, before anything was trained.
    """

    experiment: str
    command: str
    made: Made
    seeds: tuple[int, ...]
    adversaries: Mapping[str, str]
    attacks: Mapping[str, str]
    withheld: Mapping[str, str]
    rows: tuple[DefenceRow, ...]
    outlooks: Mapping[str, Outlook] = field(default_factory=dict)

    @property
    def metric(self) -> str:
        """What utility is measured in."""
        return next((row.metric for row in self.rows if row.metric), "utility")

    @property
    def alarms(self) -> list[str]:
        """Results that contradict the ledger."""
        return [f"{row.defence}: {alarm}" for row in self.rows for alarm in row.alarms]

    @property
    def cells(self) -> list[tuple[DefenceRow, Cell]]:
        """Every cell with its row."""
        return [(row, cell) for row in self.rows for cell in row.cells]

    @property
    def table(self) -> pd.DataFrame:
        """A row for each cell, beside utility and cost of its defence."""
        rows = []
        for row, cell in self.cells:
            low, high = cell.interval or (None, None)
            rows.append(
                {
                    "defence": row.defence, "attack": cell.attack, "adversary": cell.adversary,
                    "verdict": cell.verdict, "value": cell.value, "low": low, "high": high,
                    "control": cell.control, "detectable": cell.detectable, "n": cell.n,
                    "p_value": cell.p_value, "p_less": cell.p_less,
                    "epsilon": row.epsilon.get(cell.adversary), "unit": row.unit,
                    "ceiling": row.ceiling.get(cell.adversary),
                    "metric": row.metric, "utility": row.utility and row.utility.mean,
                    "dead": row.dead, "alive": row.alive, "seconds": row.seconds,
                    "traffic": row.traffic, "memory": row.memory, "seeds": len(row.seeds),
                    "failed": cell.failed,
                }
            )  # fmt: skip
        return pd.DataFrame(rows)

    @property
    def columns(self) -> list[str]:
        """The attacks that were made, by name."""
        return list(dict.fromkeys(cell.attack for _, cell in self.cells))

    @property
    def undefended(self) -> DefenceRow | None:
        """The row that others are held against."""
        return next((row for row in self.rows if row.defence == NONE), None)

    @property
    def leaks(self) -> list[Cell]:
        """What leaks undefended, the most of what could leak first."""
        bare = self.undefended
        shown = [cell for cell in bare.cells if cell.verdict == LEAKS] if bare else []
        return sorted(shown, key=lambda cell: -cell.share)

    def against(self, attack: str, *verdicts: str) -> list[DefenceRow]:
        """Returns the defences with one of these verdicts against an attack."""
        return [
            row
            for row, cell in self.cells
            if row.defence != NONE and cell.attack == attack and cell.verdict in verdicts
        ]

    def answer(self) -> list[str]:
        """Returns what a decision rests on: leaks, what the size forbids to say, dead models.

        What is said of attacks and defences comes from cells that can tell.
        """
        told = [self._leak(cell) for cell in self.leaks]
        if not told:
            told = ["No attack is shown to succeed undefended"]
            told[0] += ", so nothing here says what a defence is worth." if self.cells else "."
        return [told[0], *filter(None, (self._size(),)), *told[1:], *self._rest()]

    def _leak(self, leak: Cell) -> str:
        """Returns what leaks undefended, which defences stop it, and what these cost."""
        who = self.adversaries.get(leak.adversary, "").partition(",")[0] or "an adversary"
        can = f"{who} can {leak.said} ({leak.attack})"
        if not leak.said:
            numbers = f"{leak.value:.3g}, {leak.control:.3g} without a leak"
            finds = self.attacks.get(leak.attack, "")
            can = f"{who} finds {finds[:1].lower()}{finds[1:]} ({leak.attack}: {numbers})"
            if not finds:
                can = f"{leak.attack} succeeds ({numbers})"
        does = []
        for verb, verdict in (("stop", STOPS), ("reduce", LEAKS_LESS)):
            if rows := self.against(leak.attack, verdict):
                by = _and(f"{r.title} ({r.metric} {r.utility.mean:.3f})" for r in rows if r.utility)
                does.append(f"{by} {verb}{'s' * (len(rows) == 1)}")
        bare = self.undefended
        cost = ""
        if does and bare and bare.utility:
            cost = f", where the undefended model has {bare.utility.mean:.3f}"
        if rows := self.against(leak.attack, LEAKS):
            verb = "does" if len(rows) == 1 else "do"
            does.append(f"{_and(r.title for r in rows)} {verb} not{'' if does else ' stop'}")
        silent = [
            row.title
            for row, cell in self.cells
            if cell.attack == leak.attack and cell.found_nothing and not row.dead
        ]
        unsure = ""
        if silent:
            unsure = f" Under {_and(silent)} it finds nothing, in too few units to be sure."
        which = f", which {_and(does)}" if does else ""
        return f"Undefended, {can}{which}{cost}.{unsure}"

    def _size(self) -> str:
        """Returns which attacks were not made, since so few units forbid to say anything."""
        few: dict[tuple[str, int], list[str]] = {}
        for name, one in self.outlooks.items():
            if one.hopeless and name in self.withheld:
                few.setdefault((one.here, one.needed), []).append(name)
        told = [
            f"{_and(names)} ({here}, where it takes {needed:,} of each)"
            for (here, needed), names in few.items()
        ]
        why = "so few documents could not show a leak beside all else that is looked at"
        return f"Not made, since {why}: {_and(told)}." if told else ""

    def _rest(self) -> Iterator[str]:
        """Yields what leaks under a defence alone, which models are dead, and what is open."""
        known = {cell.attack for cell in self.leaks}
        for name in self.columns:
            if name not in known and (rows := self.against(name, LEAKS)):
                yield f"{name} succeeds under {_and(row.title for row in rows)}."
        bare = self.undefended
        if bare and bare.dead and bare.utility and bare.start:
            yield (
                f"The model has learnt nothing: undefended it ends with {bare.metric} "
                f"{bare.utility.mean:.3f}, and began with {bare.start.mean:.3f}. Attacks on it "
                "cannot be judged, nor defences by them: train for longer."
            )
        if dead := [row.title for row in self.rows if row.dead and row.defence != NONE]:
            verb = "leave" if len(dead) > 1 else "leaves"
            yield f"{_and(dead)} {verb} a dead model, which says nothing for the defence."
        if unknown := sum(cell.verdict == CANNOT_TELL for _, cell in self.cells):
            yield f"{unknown} of {len(self.cells)} cells cannot tell."


def _and(names: Any) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else str(last)


def as_json(found: Assessed) -> dict[str, Any]:
    """Returns an assessment as JSON has it; an infinite or missing number is null."""

    def plain(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {str(key): plain(inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [plain(inner) for inner in value]
        return None if isinstance(value, float) and not math.isfinite(value) else value

    content = {**dataclasses.asdict(found), "alarms": found.alarms, "answer": found.answer()}
    for row in content["rows"]:
        for name in ("utility", "start"):
            row[name] = row[name] and {key: row[name][key] for key in ("mean", "low", "high")}
        for cell in row["cells"]:
            # What they are computed to stands beside them.
            del cell["numbers"]
    return plain(content)  # type: ignore[no-any-return]


def from_json(content: Any) -> Assessed:
    """Returns what `as_json` has made JSON of.

    Raises:
        pydantic.ValidationError: if it is not that of an assessment.
    """
    return TypeAdapter(Assessed).validate_python(content)


def markdown(found: Assessed) -> str:
    """Returns an assessment as Markdown: the answer, and the matrix."""
    rows = [["defence", found.metric, "ε", *found.columns]]
    for row in found.rows:
        sizes = {who: size for who, size in row.epsilon.items() if size is not None}
        epsilon = "; ".join(
            f"{who.replace('_', ' ')} {rounded_up(size)}" for who, size in sizes.items()
        )
        state = f", {row.state}" if row.state else ""
        utility = f"{row.utility}{state}" if row.utility else "refused"
        most = [auc for auc in row.ceiling.values() if auc is not None]
        bound = f", any attack's AUC at most {rounded_up(max(most), 3)}" if most else ""
        told = f"{epsilon} for one {face(row.unit)}{bound}" if epsilon else "∞"
        rows.append([row.title if row.defence == NONE else f"`{row.defence}`", utility, told])
        for name in found.columns:
            cell, value = row.cell(name), ""
            if cell and cell.value is not None and cell.interval is not None:
                low, high = cell.interval
                value = f"<br>{cell.value:.3g} [{low:.3g}, {high:.3g}] against {cell.control:.3g}"
            rows[-1].append(f"{cell.verdict.replace('_', ' ')}{value}" if cell else "—")
    made = found.made
    lines = [*found.answer(), "", *as_markdown(rows), ""]
    lines.append(
        f"Under each verdict: the success, its 95 % interval, and what it is without a leak. Seeds "
        f"{', '.join(map(str, found.seeds))}. Measured by `{found.command}` on {made.date}, at "
        f"{made.commit}, {made.machine}."
    )
    return "\n".join(lines) + "\n"


def lines(found: Assessed) -> Iterator[str]:
    """Yields what the terminal shows: alarms, the answer, a line for each row."""
    yield from (f"ALARM: {alarm}" for alarm in found.alarms)
    yield from map(plain, found.answer())
    table = [["", "utility", *found.columns]]
    for row in found.rows:
        state = f" ({row.state})" if row.state else ""
        utility = f"{row.metric} {row.utility}{state}" if row.utility else "—"
        table.append([row.title, utility, *map(row.says, found.columns)])
    yield from aligned([[plain(cell, 60) for cell in cells] for cells in table])
    for row in found.rows:
        if row.refused:
            yield plain(f"{row.defence}: refused: {row.refused}")
        yield from (
            plain(f"{row.defence}, seed {s}: failed: {why}") for s, why in row.failed.items()
        )
    yield from (plain(f"{name}: withheld: {why}") for name, why in found.withheld.items())
