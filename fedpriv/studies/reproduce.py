"""The papers' tables, each from one command: a sweep, and what its paper says beside it.

`experiments/papers/<paper>/<table>.yaml` is a sweep with the paper's numbers (`published`) and what
the paper claims of them (`claims`). The tables of a paper share their runs, as long as the code is
the same.
"""

from __future__ import annotations

import dataclasses
import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from fedpriv.config.overrides import key_of, values_of
from fedpriv.runtime import versions
from fedpriv.runtime.progress import Progress
from fedpriv.runtime.refusals import Mistakes
from fedpriv.runtime.run_folder import REPORT, RESULTS, RunFolder
from fedpriv.studies import papers, sweep, sweep_jobs
from fedpriv.studies.claims import Measured, verdicts
from fedpriv.studies.papers import PAPERS, of_the_paper
from fedpriv.studies.reproduced import Reproduced
from fedpriv.studies.sweep import Sweep
from fedpriv.studies.sweep_page import TRAINED, Recorded, interval, rows_of

TABLE, PAPER = "table.json", "paper.json"

DATA = "FEDPRIV_DATA"
"""Names the folder of data sets, in the environment."""

SEEDS = 3
"""Of a table, where nobody says how many."""


def read(paper: str, table: str, overrides: Sequence[str] = ()) -> Sweep:
    """Reads a table of a paper.

    Args:
        paper: one of `PAPERS`.
        table: as `tables` names it; underscores make no difference.
        overrides: of the sweep, and `seeds=N` for N seeds, counted from the file's own on.

    Raises:
        Mistakes: with everything that is wrong.
    """
    name, file = table.replace("_", "").lower(), papers.sweep_of(paper, table)
    shown = [one for one in overrides if key_of(one) not in sweep.ELSEWHERE]
    command = shlex.join(["fedpriv", "reproduce", paper, name, *shown])
    try:
        found = sweep.read(file, _with_seeds(paper, file, overrides))
    except Mistakes as error:
        raise Mistakes(f"{paper} {name}", error.problems) from None
    return dataclasses.replace(found, command=command)


def _with_seeds(paper: str, file: str, overrides: Sequence[str]) -> list[str]:
    """Returns the overrides with a list of seeds, where they say how many, or nothing of them.

    They are counted from the file's own on: before it may lie those that settings were chosen with.
    """
    others = [one for one in overrides if key_of(one) != "seeds"]
    given = values_of("seeds", overrides)
    first = sweep.seeds(file)
    count = given[0] if given else str(max(SEEDS, len(first)))
    if count.startswith("[") or len(given) > 1:
        return list(overrides)
    if not (count.isdecimal() and int(count)):
        told = "expected how many, 1 or more, or a list of them such as [31,32]"
        raise Mistakes(paper, [f"seeds={count}: {told}"])
    seeds = (*first, *range(max(first) + 1, max(first) + 1 + int(count)))[: int(count)]
    return [*others, f"seeds=[{','.join(map(str, seeds))}]"]


def settings(paper: str, table: str, overrides: Sequence[str] = ()) -> Iterator[str]:
    """Yields what the command line may change of a table, as `sweep.settings` does.

    Raises:
        Mistakes: if there is no such table, or the overrides do not fit it.
    """
    file = papers.sweep_of(paper, table)
    return sweep.settings(file, _with_seeds(paper, file, overrides))


def read_all(
    paper: str,
    overrides: Sequence[str],
    tell: Callable[[str], None],
    results: Path | None = None,
) -> dict[str, Sweep]:
    """Reads the tables of a paper, without studies of ours, by the names that `tables` gives them.

    Args:
        paper: one of `PAPERS`.
        overrides: of all of them, see `read`.
        tell: shows a line for each table that needs data sets, and is left out as there are none.
        results: as `run` takes it.

    Raises:
        Mistakes: with everything that is wrong in the first table with mistakes.
    """
    found = {}
    for name in filter(of_the_paper, papers.tables(paper)):
        try:
            found[name] = read(paper, name, overrides)
            sweep_jobs.checked(found[name], _kept(found[name], results), _shared(found[name]))
        except Mistakes as error:
            if not all(DATA in problem for problem in error.problems):
                raise
            found.pop(name, None)
            why = error.problems[0] if DATA in os.environ else f"{DATA} is not set"
            tell(f"{name}: left out, because {why}")
    if not found:
        told = f"all of its tables need data sets with these settings: set {DATA} to their folder"
        raise Mistakes(paper, [told])
    return found


def run(
    table: Sweep,
    progress: Callable[[], Progress],
    tell: Callable[[str], None],
    results: Path | None = None,
) -> tuple[RunFolder, list[Measured]]:
    """Runs what is not done yet of a table, and writes table.json beside its page.

    Args:
        table: to be run.
        progress: makes what shows the progress of a run.
        tell: shows one line.
        results: a folder that gets the table's results.json too; see `result_name`.

    Returns the folder, and what the rows measured.
    """
    kept = _kept(table, results)
    folder, measured = sweep_jobs.run(table, progress, tell, _shared(table), kept)
    folder.write_json(TABLE, as_json(table, measured))
    if results is not None:
        results.mkdir(parents=True, exist_ok=True)  # for everybody: nothing private is in them
        RunFolder(results).write_json(result_name(table), folder.read_json(RESULTS))
    return folder, measured


def _shared(table: Sweep) -> Path:
    """Returns the folder of the runs that the tables of a paper share."""
    place = Path(table.runs) / "sweeps" / Path(table.name).parent
    return place / TRAINED / versions.code()[:12]


def _kept(table: Sweep, results: Path | None) -> dict[str, Any] | None:
    """Returns the result of a table that is kept among others, if there is one."""
    return RunFolder(results).read_json(result_name(table)) if results else None


def result_name(table: Sweep) -> str:
    """Returns PAPER/TABLE.json, and PAPER/TABLE.data=sroie.json where the command line said so."""
    varied = (quote(one, safe="=[],").replace(".", "%2E") for one in table.varied)
    return ".".join((table.name, *varied, "json"))


def of_result(name: str) -> tuple[str, list[str]]:
    """Returns the table of such a name as `fedpriv.studies.sweep.read` takes it, and its words."""
    table, *varied = name.removesuffix(".json").split(".")
    return f"papers/{table}", [unquote(one) for one in varied]


def written(paper: str, folders: Mapping[str, RunFolder], runs: str) -> RunFolder:
    """Writes the page of a paper, and paper.json, from the folders of its tables; returns where.

    Args:
        paper: one of `PAPERS`.
        folders: by the name of the table.
        runs: the folder for run folders.
    """
    found = {name: Recorded.of(folder.read_json(RESULTS)) for name, folder in folders.items()}
    told = Reproduced(PAPERS[paper].told, found)
    place = RunFolder.made(Path(runs) / "sweeps" / PAPERS[paper].folder)
    place.write_json(PAPER, told.as_json())
    place.write(REPORT, told.html().encode())
    return place


def as_json(table: Sweep, measured: Sequence[Measured]) -> dict[str, Any]:
    """Returns a table as JSON has it: our rows beside the paper's, and its claims."""
    rows = []
    for name, seeds in rows_of(measured).items():
        columns: dict[str, Any] = {}
        for column in table.columns:
            ours = interval(column, seeds)
            mean, low, high = (ours.mean, ours.low, ours.high) if ours else (None, None, None)
            theirs = table.published.get(name, {}).get(column.path)
            of_seeds = {one.seed: one.values.get(column.path) for one in seeds}
            around = {"mean": mean, "low": low, "high": high, "paper": theirs}
            columns[column.path] = {**around, "seeds": of_seeds}
        made = {one.seed: (Path(one.run) / one.findings).as_posix() for one in seeds}
        rows.append({"row": name, "seeds": sorted(made), "made": made, "columns": columns})
    return {
        "title": table.title,
        "paper": table.paper,
        "command": table.command,
        "machine": versions.machine(),
        "commits": sorted({one.commit for one in measured}),
        "rows": rows,
        "claims": list(verdicts(table.claims, measured)),
    }
