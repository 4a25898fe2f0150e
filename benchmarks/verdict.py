"""What a run of simulation.py comes to: one table of goals, and whether they are reached.

It judges only where the machine was left alone: other processes' share of the cores is measured
while the contenders run (`meter.Laps`). Two processes that share cores share caches and memory
bandwidth too, so a ratio of CPU times is no better than one of wall-clock times then.

Standard library only: the documentation is built with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from statistics import fmean, median
from typing import Any

MOST_OTHERS, MOST_ONCE = 0.1, 0.25
"""Cores that other processes may keep busy, over all runs of a job and in one of them."""

REACHED, MISSED, BUSY, NOTHING = "reached", "missed", "busy: no verdict", "not measured"

Run = dict[str, Any]
Measure = Callable[[Run], float]


@dataclass(frozen=True)
class Goal:
    """A figure of one contender that is to stay below a limit.

    Attributes:
        name: of the figure.
        who: the contender.
        what: the figure of a run.
        most: the limit.
        against: the contender whose figure divides it, of the same repeat; "" for none.
        peers: contenders whose figures are shown beside it.
    """

    name: str
    who: str
    what: Measure
    most: float
    against: str = ""
    peers: tuple[str, ...] = ()


def _worker_mb(run: Run) -> float:
    """Returns the PSS of one of two workers, in MB."""
    return float(run["memory"].get("workers_pss", 0.0)) * 2**20 / 1e6 / 2


def _cpu(run: Run) -> float:
    return float(run["cpu"])


def _wall(run: Run) -> float:
    return float(run["wall"])


def _first(run: Run) -> float:
    return float(run["first_round"])


def _goals(worker_mb: float) -> tuple[Goal, ...]:
    return (
        Goal("one process: CPU, to the bare loop (a2)", "b", _cpu, 1.0, "a2", ("e",)),
        Goal("2 workers: CPU, to the bare loop on 2 processes (a3)", "c", _cpu, 1.12, "a3", ("d",)),
        Goal(
            "2 workers: wall, to the bare loop on 2 processes (a3)", "c", _wall, 1.1, "a3", ("d",)
        ),
        Goal("2 workers: seconds to the end of the first round", "c", _first, 12.0, "", ("d",)),
        Goal("2 workers: memory of one (PSS), MB", "c", _worker_mb, worker_mb, "", ("d",)),
    )


GOALS = {"mlp": _goals(350.0), "layoutlmv3": _goals(500.0)}
"""By job."""


@dataclass(frozen=True)
class Line:
    """A line of the table.

    Attributes:
        job: that was run.
        name: of the figure.
        goal: the most that it may be.
        reached: the median over the repeats; None where it was not measured.
        spread: the least and the most.
        peers: the same figure of others, by their names.
        others: cores that other processes kept busy: over all runs of the job, and in the worst.
        verdict: one of the four words.
    """

    job: str
    name: str
    goal: float
    reached: float | None
    spread: tuple[float, float] | None
    peers: dict[str, float]
    others: tuple[float, float]
    verdict: str


def judge(result: dict[str, Any]) -> list[Line]:
    """Returns the lines of a result of simulation.py, for the jobs that it has."""
    return [line for job in result["settings"]["jobs"] for line in _lines(result, job)]


def _lines(result: dict[str, Any], job: str) -> Iterator[Line]:
    runs = [run for run in result["runs"] if run["job"] == job and "error" not in run]
    cores = [run["others"] for run in runs]
    others = (fmean(cores), max(cores)) if cores else (0.0, 0.0)
    busy = others[0] > MOST_OTHERS or others[1] > MOST_ONCE
    for goal in GOALS.get(job, ()):
        figures = _figures(goal, goal.who, runs)
        names = result["names"]
        seen = {names[peer]: _figures(goal, peer, runs) for peer in goal.peers}
        middle = median(figures) if figures else None
        verdict = NOTHING if middle is None else MISSED if middle > goal.most else REACHED
        yield Line(
            job=job,
            name=goal.name,
            goal=goal.most,
            reached=middle,
            spread=(min(figures), max(figures)) if figures else None,
            peers={name: median(values) for name, values in seen.items() if values},
            others=others,
            verdict=BUSY if busy and middle is not None else verdict,
        )


def _figures(goal: Goal, who: str, runs: list[Run]) -> list[float]:
    """Returns a contender's figure of each repeat, divided by what it is compared with."""
    base = {run["repeat"]: goal.what(run) for run in runs if run["contender"] == goal.against}
    mine = [(run["repeat"], goal.what(run)) for run in runs if run["contender"] == who]
    if goal.against:
        return [value / base[repeat] for repeat, value in mine if repeat in base]
    return [value for _, value in mine]


def record(result: dict[str, Any], lines: list[Line]) -> dict[str, Any]:
    """Returns what is kept of a result: the lines, and where they come from."""
    kept = ("machine", "versions", "made", "settings")
    return {name: result[name] for name in kept} | {"lines": [asdict(line) for line in lines]}


def is_busy(lines: list[Line]) -> bool:
    """Returns whether no verdict was given because the machine was busy."""
    return any(line.verdict == BUSY for line in lines)


def markdown(recorded: dict[str, Any]) -> str:
    """Returns what `record` has kept, as a table in Markdown and a sentence on its origin."""
    head = ["job", "figure", "goal", "reached", "least–most", "peers", "others' cores", "verdict"]
    rows = [head, ["---"] * len(head)]
    for line in recorded["lines"]:
        spread = "–".join(f"{end:.3g}" for end in line["spread"] or ())
        peers = ", ".join(f"{name} {value:.3g}" for name, value in line["peers"].items())
        reached = "" if line["reached"] is None else f"{line['reached']:.3g}"
        mean, most = line["others"]
        load = f"{mean:.2f} (most {most:.2f})"
        cells = [
            line["job"],
            line["name"],
            f"≤\N{NO-BREAK SPACE}{line['goal']:g}",
            reached,
            spread,
            peers,
            load,
        ]
        rows.append([*cells, line["verdict"]])
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    machine, made, settings = recorded["machine"], recorded["made"], recorded["settings"]
    versions = ", ".join(f"{name} {version}" for name, version in recorded["versions"].items())
    repeats = f"{settings['repeats']} repeat{'s' * (settings['repeats'] != 1)}"
    return (
        f"{table}\n\nMedian of {repeats}. Measured by `{made['command']}` on "
        f"{made['date']}, at {made['commit']}, on {machine['cores']} cores ({machine['cpu']}) with "
        f"{machine['memory_gib']} GiB; {versions}.\n"
    )
