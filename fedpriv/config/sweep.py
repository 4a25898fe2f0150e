"""Sweeps: one YAML file is one table, whose rows are runs and attacks on them.

`rows` and `grid` say what differs between the rows, in settings of the run (`run`) and of the
attack (`attack`), by dotted path; `~KEY` takes back what was set for all. `${let.NAME}` is a value
that the command line may change as `NAME=`. Every mistake in any row is told before anything
starts. Rows with the same settings and the same seed share a run, and what is done is found again
by those settings: repeating the command goes on with a sweep that was interrupted.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import itertools
import json
import os
import re
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fedpriv.config import attack, catalogue, experiment, running, yaml_file
from fedpriv.config.attack import Order
from fedpriv.config.construct import near
from fedpriv.config.experiment import Mistakes
from fedpriv.config.resumable import digest, newest
from fedpriv.config.retraining import MOST_WAIT
from fedpriv.report import claims as claiming
from fedpriv.report import sweep as report
from fedpriv.report.claims import Claim, Measured
from fedpriv.report.sweep import RESULTS, Column, Recorded
from fedpriv.report.wording import show_seconds
from fedpriv.runtime import run_lock, versions
from fedpriv.runtime.memory import release_free_blocks, watched_memory
from fedpriv.runtime.progress import Progress
from fedpriv.runtime.run_folder import (
    CONFIG,
    FINAL,
    FINDINGS,
    LEDGER,
    METRICS,
    RESULT,
    RunFolder,
)
from fedpriv.runtime.workers.jobs import JobsFailed, Pool
from fedpriv.runtime.workers.ray_session import RaySettings
from fedpriv.threat.results import Result, read_result

PLAN, RUNS, COST = "plan.json", "runs", "cost.json"

SECTIONS = {
    "like": str, "title": str, "experiment": str, "runs": str, "seeds": list, "let": dict,
    "run": dict, "attack": dict, "of": str, "choices": dict, "rows": dict, "grid": dict,
    "without": list, "columns": dict, "x": str, "claims": list, "paper": str, "published": dict,
}  # fmt: skip
"""What a file may hold, with its types: `like` names a file beside it, whose sections it extends;
`of` is a path in the attack's numbers below which the columns stand; of `choices`, `let` picks. An
`attack` without the setting `attack` is none. `published` has the numbers of a `paper`, by row and
column; below a key such as `model=donut` stand those for that value of `let`, or for that
experiment."""

TYPES: dict[type, str] = {str: "text", list: "list", dict: "mapping"}

PART = {key: SECTIONS[key] for key in ("let", "run", "attack", "of")}
"""Sections that rows, choices and axes have too; the inner ones come last."""

WORTH_TELLING = 60.0
"""Seconds that a sweep has left from which on it says so."""

OPEN = ("seeds", "experiment", "runs", "workers")
"""Sections that the command line replaces as a whole; `workers` is not in files."""

ELSEWHERE = ("runs=", "workers=")
"""Of these, the ones that change no number of a table, and are not part of its command."""

GIVEN = "given"
"""Beside the sections of a file: settings that the command line has given."""

CLAIM = tuple(field.name for field in dataclasses.fields(Claim))


def calculate(formula: str) -> float:
    """Returns the value of a formula of numbers, ``+ - * / // **``, ``min`` and ``max``.

    >>> calculate("max(1, 25 // 10)")
    2
    """
    tree = ast.parse(formula, mode="eval")
    allowed = (ast.Expression, ast.Constant, ast.BinOp, ast.UnaryOp, ast.Call, ast.Name)
    for node in ast.walk(tree):
        if not isinstance(node, (*allowed, ast.operator, ast.unaryop, ast.expr_context)):
            raise ValueError(
                f"{formula!r}: {type(node).__name__} is not allowed; a formula has numbers, "
                "+ - * / // **, min and max"
            )
    names = {"__builtins__": {}, "min": min, "max": max}
    return eval(compile(tree, formula, "eval"), names)  # type: ignore[no-any-return] # noqa: S307


OmegaConf.register_new_resolver("calc", calculate, replace=True)


@dataclass(frozen=True)
class Row:
    """One row, before it is run.

    Attributes:
        name: in the table.
        run: overrides of the experiment.
        attack: overrides of the attack; None runs none.
        of: path in the attack's numbers below which the columns stand.
        x: place on the axis of the figure, if any.
        curve: name of its curve there.
    """

    name: str
    run: tuple[str, ...]
    attack: tuple[str, ...] | None = None
    of: str = ""
    x: float | None = None
    curve: str = ""


@dataclass(frozen=True)
class Sweep:
    """A table, read from its file.

    Attributes:
        name: of the sweep and of its folder below `runs`/sweeps.
        title: of table and figure.
        experiment: that is run.
        runs: the folder for run folders.
        seeds: of runs and attacks.
        rows: of the table.
        columns: of the table.
        claims: what is said of it beforehand; see `fedpriv.report.claims`.
        axis: name of the figure's horizontal axis; "" for a figure of rows.
        command: that runs it, wherever the run folders go.
        paper: whose table it is, and which; "" for none.
        published: the paper's numbers, by row and column.
        varied: choices and an experiment other than the file's own, such as data=sroie; the title
            has them too.
        workers: trainings or attacks at a time, each in its own process; 0 does one after the other
            in this one, and shows the progress of each.
    """

    name: str
    title: str
    experiment: str
    runs: str
    seeds: tuple[int, ...]
    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    claims: tuple[Claim, ...] = ()
    axis: str = ""
    command: str = ""
    paper: str = ""
    published: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    varied: tuple[str, ...] = ()
    workers: int = 0


@dataclass(frozen=True)
class Job:
    """A row under a seed, with everything resolved.

    Attributes:
        row: of the table.
        seed: of run and attack.
        config: of the run.
        order: of the attack, named by its settings; None runs none.
        run: name of the run's folder, the same for the same settings.
    """

    row: Row
    seed: int
    config: dict[str, Any] = field(repr=False)
    order: Order | None
    run: str


def read(name: str, overrides: Sequence[str] = ()) -> Sweep:
    """Reads a sweep.

    Args:
        name: as `fedpriv list` has it, or the path of a YAML file.
        overrides: `NAME=value` of a value in `let` or of a choice; `AXIS=[…]` or `rows=[…]` for
            other values or some labels of an axis; `seeds=[0,1]`, `experiment=`, `runs=`,
            `workers=`; `run.KEY=` and `attack.KEY=`, which rows may change.

    Raises:
        Mistakes: with everything that is wrong in the file.
    """
    path, problems = _file(name), []
    try:
        file = _load(path)
        problems += _wrong(file, SECTIONS)
        problems += [f"{key}: is missing" for key in ("experiment", "columns") if not file.get(key)]
        own = {**file.get("let", {}), "experiment": file.get("experiment")}
        file = file if problems else _override(file, overrides)
    except (OmegaConfBaseException, ValueError, OSError) as error:
        raise Mistakes(name, [" ".join(str(error).split())]) from error
    if problems:
        raise Mistakes(name, problems)
    given = [one for one in overrides if not one.startswith(ELSEWHERE)]
    now = {**file["let"], "experiment": file["experiment"]}
    chosen = ("experiment", *file.get("choices", {}))
    varied = tuple(f"{key}={now[key]}" for key in chosen if now.get(key) != own.get(key))
    title = file.get("title") or catalogue.headline(path) or name
    seeds = file.get("seeds", [0])
    whole = isinstance(seeds, list) and all(type(seed) is int for seed in seeds)
    if not whole or not 0 < len({*seeds}) == len(seeds):
        raise Mistakes(name, [f"seeds={seeds}: expected a list of different whole numbers"])
    workers = file.get("workers", 0)
    if type(workers) is not int or workers < 0:
        raise Mistakes(name, [f"workers={workers}: expected how many, or 0 for this process alone"])
    columns = tuple(
        experiment.constructed(
            Column, {"path": key, **({"label": of} if isinstance(of, str) else of)}, name
        )
        for key, of in file["columns"].items()
    )
    sweep = Sweep(
        name=path.stem if str(path) == name else name.removeprefix("papers/"),
        title=f"{title} ({', '.join(varied)})" if varied else title,
        experiment=file["experiment"],
        runs=file.get("runs", "runs"),
        seeds=tuple(seeds),
        rows=tuple(_rows(file, name)),
        columns=columns,
        claims=tuple(_claims(file.get("claims", ()), problems)),
        axis=file.get("x", ""),
        command=shlex.join(["fedpriv", "sweep", name, *given]),
        paper=file.get("paper", ""),
        published=_published(file),
        varied=varied,
        workers=workers,
    )
    problems += dict.fromkeys(_misfits(file, sweep, overrides))
    if problems:
        raise Mistakes(name, problems)
    return sweep


def said(name: str) -> tuple[list[Claim], str]:
    """Returns the claims of a sweep and whose table it is, in the words that its file has today.

    Raises:
        Mistakes: if there is no such sweep.
    """
    file = _load(_file(name))
    return list(_claims(file.get("claims", ()), [])), file.get("paper", "")


def plan(sweep: Sweep) -> list[Job]:
    """Resolves every row under every seed, and builds what it names, without reading data.

    Raises:
        Mistakes: with everything that is wrong, by row.
    """
    load = functools.cache(lambda seed, run: _checked(sweep.experiment, (*run, f"seed={seed}")))
    parse, compose = functools.cache(attack.parse), functools.cache(attack.compose)
    jobs, problems = [], dict[str, str]()
    for seed, row in itertools.product(sweep.seeds, sweep.rows):
        try:
            config, order = load(seed, row.run), None
            if row.attack is not None:
                seeded = any(text.startswith("seed=") for text in row.attack)
                settings = (*row.attack, *(() if seeded else (f"seed={seed}",)))
                order = parse(settings)
                every = digest(compose(settings))  # with the values of the files
                order = dataclasses.replace(order, name=f"{order.name}-{every}")
        except Mistakes as error:
            # Rows share settings, and so mistakes: each is told once, with the first row.
            for problem in error.problems:
                problems.setdefault(problem, row.name)
            continue
        kept = {k: v for k, v in config.items() if k not in ("runs", experiment.COMPOSED)}
        jobs.append(Job(row, seed, config, order, digest(kept)))
    if problems:
        raise Mistakes(sweep.name, [f"{row}: {problem}" for problem, row in problems.items()])
    return jobs


def run(
    sweep: Sweep,
    progress: Callable[[], Progress] = Progress,
    tell: Callable[[str], None] = print,
    shared: Path | None = None,
) -> tuple[RunFolder, list[Measured]]:
    """Runs what is not done yet; returns the sweep's folder and what its rows measured.

    Args:
        sweep: to be run.
        progress: makes what shows the progress of a run.
        tell: shows one line.
        shared: a folder of runs that other sweeps share; None keeps them in the sweep's.

    Raises:
        Mistakes: with everything that is wrong, before anything starts; so are claims that were
            changed after their first result without a note.
        JobsFailed: if a training or an attack failed on a worker, after all others have ended.
    """
    jobs = plan(sweep)
    rows = [[job.row.name, job.seed, job.run, job.order and job.order.name] for job in jobs]
    settings = {"sweep": sweep.name, "rows": rows, "shared": str(shared or "")}
    folder = _begun(sweep, settings, finished=shared is not None)
    if folder is None:
        parent = Path(sweep.runs) / "sweeps" / Path(sweep.name).parent
        folder = RunFolder.create(parent, Path(sweep.name).name)
        folder.write_json(PLAN, settings)
    earlier = _results(folder)
    if problems := [*claiming.unexplained(sweep.claims, earlier.get("claims", ()))]:
        why = "say why in its note, and what it said before in its was"
        raise Mistakes(sweep.name, [f"claims: {one}; {why}" for one in problems])
    before = {(one["row"], one["seed"]): one for one in earlier.get("rows", ())}
    now = {"commit": versions.commit(), "date": versions.today()}
    runs = shared or folder.path / RUNS
    measured: list[Measured] = []
    took: list[float] = []  # by the rows that were not there yet
    with run_lock.writing(folder.path, "sweep"):
        tell(f"{folder.path}: rows × seeds: {len(jobs)}, runs: {len({j.run for j in jobs})}")
        try:
            if sweep.workers:
                _on_workers(jobs, runs, sweep.workers, tell)
            for number, job in enumerate(jobs, 1):
                left = sum(took) / len(took) * (len(jobs) - number + 1) if took else 0.0
                about = f", about {show_seconds(left)} left" if left > WORTH_TELLING else ""
                tell(f"[{number}/{len(jobs)}] {job.row.name}, seed {job.seed}{about}")
                begun = time.monotonic()
                place = runs / job.run
                _train(job, place, progress)
                _attack(job, place, tell)
                one = _measure(sweep, job, folder.path, place)
                known = before.get((one.row, one.seed))
                same = known and known["run"] == one.run  # what was measured before stays so
                took += [] if same else [time.monotonic() - begun]
                made = known if known and same else now
                measured.append(dataclasses.replace(one, commit=made["commit"], date=made["date"]))
                cost = _cost(jobs[:number], runs)
                _write(sweep, folder, measured, cost, finished=number == len(jobs))
        except (KeyboardInterrupt, SystemExit, JobsFailed) as end:
            end.add_note("repeat the command to go on")
            raise
    return folder, measured


def settings(name: str) -> Iterator[str]:
    """Yields what the command line may change of a sweep, a line each, with what it is.

    Raises:
        Mistakes: if there is no such sweep.
    """
    path = _file(name)
    file, files = _load(path), [path]
    while like := re.search(r"^like: (\S+)", files[-1].read_text("utf-8"), re.MULTILINE):
        files.append(path.parent / f"{like[1]}.yaml")
    said: dict[str, str] = {}
    for one in reversed(files):
        let = re.search(r"^let:\n((?: .*\n)+)", one.read_text("utf-8"), re.MULTILINE)
        said |= re.findall(r"^  (\w+): [^#\n]*# (.+)$", let[1] if let else "", re.MULTILINE)
    for key, value in file.get("let", {}).items():
        options = " | ".join(file.get("choices", {}).get(key, ()))
        told = "; ".join(filter(None, (options, said.get(key, ""))))
        yield _text(key, value) + (f"  # {told}" if told else "")
    for axis, values in _axes(file).items():
        yield f"{axis}=[{', '.join(map(json.dumps if axis == 'rows' else str, values))}]"
    yield _text("seeds", file.get("seeds", [0]))
    yield f"experiment={file.get('experiment')}"
    yield "workers=0  # trainings or attacks at a time, each in its own process"
    yield "run.KEY=…  # of that experiment: `fedpriv run EXPERIMENT --settings`"
    yield "attack.KEY=…  # of its attacks: `fedpriv attack RUN_DIR attack=NAME --settings`"


def _file(name: str) -> Path:
    path = Path(name) if name.endswith((".yaml", ".yml")) else catalogue.sweeps().get(name)
    if path is None or not path.is_file():
        raise Mistakes(name, [f"no such sweep{near(name, catalogue.sweeps())}; see `fedpriv list`"])
    return path


def _load(path: Path) -> dict[str, Any]:
    """Reads a file, its sections over those of the file that it is `like`."""
    yaml_file.check(path)
    file: Any = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
    if "like" not in file:
        return dict(file)
    base = _load(path.parent / f"{file.pop('like')}.yaml")
    merged = {
        key: {**base[key], **value} if isinstance(value, dict) and key in base else value
        for key, value in file.items()
        if key not in ("rows", "grid", "columns", "published")
    }
    return {**base, **file, **merged}


def _override(file: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """Changes values of a file as the command line says.

    What it says of `let`, `run` and `attack` stands under `GIVEN` too: choices do not change it,
    and rows may.
    """
    values, axes = dict(file.get("let", {})), _axes(file)
    given: dict[str, dict[str, Any]] = {}
    for text in overrides:
        key, equals, _ = text.partition("=")
        section, _, inner = key.partition(".")
        # OmegaConf reads the value as YAML, a list or a mapping too.
        value = OmegaConf.to_container(OmegaConf.from_dotlist([f"x={text[len(key) + 1 :]}"]))["x"]  # type: ignore[index,call-overload]
        if equals and key in values:
            values[key] = given.setdefault("let", {})[key] = value
        elif equals and key in axes:
            axes[key] = _narrow(key, axes[key], value)
        elif equals and key in OPEN:
            file[key] = value
        elif equals and inner and section in ("run", "attack"):
            given.setdefault(section, {})[inner] = value
        else:
            there = [*values, *axes, *OPEN, "run.KEY", "attack.KEY"]
            raise ValueError(f"{text}: expected one of {'=, '.join(there)}={near(key, there)}")
    rows = axes.pop("rows")
    return {**file, "let": values, "rows": rows, "grid": axes, GIVEN: given}


def _wrong(section: Any, types: Mapping[str, type], place: str = "") -> list[str]:
    """Returns what is wrong with the entries of a section, by their names and types."""
    if not isinstance(section, Mapping):
        return [f"{place}: got {section!r:.80}, expected a mapping of {', '.join(types)}"]
    dot = f"{place}: " if place else ""
    unknown = [f"{dot}there is no {key!r}{near(key, types)}" for key in section if key not in types]
    return unknown + [
        f"{dot}{key}={value!r:.80}: expected a {TYPES[types[key]]}"
        for key, value in section.items()
        if key in types and not isinstance(value, types[key])
    ]


def _axes(file: Mapping[str, Any]) -> dict[str, Any]:
    return {"rows": file.get("rows", {"": {}}), **file.get("grid", {})}


def _narrow(name: str, axis: Any, chosen: Any) -> Any:
    """Returns an axis with other values, or with some of its labels."""
    if not isinstance(chosen, list) or not chosen:
        example = json.dumps([*axis][:1], ensure_ascii=False)
        told = f"expected a list of one or more, such as {name}={example}"
        raise ValueError(f"{name}={chosen}: {told}")
    if not isinstance(axis, Mapping):
        return chosen
    if unknown := [label for label in chosen if label not in axis]:
        told = f"{name}={unknown[0]}: expected some of {', '.join(map(repr, axis))}"
        raise ValueError(f"{told}{near(str(unknown[0]), axis)}")
    return {label: axis[label] for label in chosen}


def _rows(file: Mapping[str, Any], source: str) -> Iterator[Row]:
    """Yields the rows: the product of `rows` and of the axes of `grid`, without `without`."""
    problems = []
    shared = [file]
    for choice, options in file.get("choices", {}).items():
        picked = file["let"].get(choice)
        if picked not in options:
            raise Mistakes(source, [f"{choice}={picked}: expected one of {', '.join(options)}"])
        shared.append(options[picked])
    shared.append(file.get(GIVEN, {}))
    axes: list[list[tuple[str, dict[str, Any]]]] = []
    for name, axis in _axes(file).items():
        if isinstance(axis, Mapping):
            axes.append([(str(label), part) for label, part in axis.items()])
        else:  # values of a name
            told = [f"{value:g}" if isinstance(value, float) else str(value) for value in axis]
            axes.append(
                [(f"{name} {t}", {"let": {name: v}}) for t, v in zip(told, axis, strict=True)]
            )
    x, unused = file.get("x", ""), set(file.get(GIVEN, {}).get("let", {}))
    for combination in itertools.product(*axes):
        name = ", ".join(label for label, _ in combination if label)
        if any(fnmatchcase(name, pattern) for pattern in file.get("without", ())):
            continue
        parts = [*shared, *(part for _, part in combination)]
        if wrong := [p for part in parts[1:] for p in _wrong(part, PART, name)]:
            problems += wrong
            continue
        unused -= unused.difference(*(part.get("let", {}) for part in parts[len(shared) :]))
        merged: dict[str, Any] = {"let": {}, "run": {}, "attack": {}, "of": ""}
        for part in parts:
            merged["of"] = part.get("of", merged["of"])
            for key in ("let", "run", "attack"):
                for setting, value in part.get(key, {}).items():
                    if setting.startswith("~"):
                        merged[key].pop(setting[1:], None)
                    else:
                        merged[key][setting] = value
        try:
            found: Any = OmegaConf.to_container(OmegaConf.create(merged), resolve=True)
        except OmegaConfBaseException as error:
            hint = experiment.MISSING if "Environment variable" in str(error) else ""
            problems.append(f"{name}: {str(error).splitlines()[0]}{hint}")
            continue
        run, attacked = ([_text(*item) for item in found[key].items()] for key in ("run", "attack"))
        yield Row(
            name=name or source,
            run=tuple(run),
            attack=tuple(attacked) if "attack" in found["attack"] else None,
            of=found["of"],
            x=found["let"].get(x),
            curve=", ".join(label for label, _ in combination if not label.startswith(f"{x} ")),
        )
    problems += [
        f"{name}: has no effect, since every row has a value of its own" for name in sorted(unused)
    ]
    if problems:
        raise Mistakes(source, list(dict.fromkeys(problems)))


def _claims(listed: Sequence[Any], problems: list[str]) -> Iterator[Claim]:
    """Yields the claims of a file: orderings, or mappings of `text`, `says`, `was` and `note`."""
    for one in listed:
        if isinstance(one, str):
            yield Claim(one, one)
        elif isinstance(one, Mapping) and {"text", "says"} <= one.keys() <= {*CLAIM}:
            yield Claim(**{key: str(value) for key, value in one.items()})
        else:
            problems.append(f"claims: {one!r:.80}: expected an ordering, or text and says")


def _misfits(file: Mapping[str, Any], sweep: Sweep, overrides: Sequence[str]) -> Iterator[str]:
    """Yields what claims and the paper's numbers name that the table does not have.

    Rows that the command line has left out are no mistake: they are not measured.
    """
    rows, columns = [row.name for row in sweep.rows], [column.path for column in sweep.columns]
    for claim in sweep.claims:
        try:
            compared = claiming.comparisons(claim.says).values()
        except ValueError as error:
            yield f"claims: {error}"
            continue
        terms = (term.row for one in compared for term in (one.above, one.below))
        named = dict.fromkeys(row for row in terms if row is not None and row not in rows)
        yield from (
            f"claims: there is no row {row!r}{near(row, rows)}" for row in named if not overrides
        )
    narrowed = any(one.partition("=")[0] in _axes(file) for one in overrides)
    # Each block of numbers, whichever is chosen.
    blocks = file.get("published", {}).items()
    known = tuple(f"{name}=" for name in (*file.get("let", {}), "experiment"))
    chosen = [key.startswith(known) and isinstance(block, dict) for key, block in blocks]
    found = itertools.chain.from_iterable(
        block.items() if one else [(key, block)]
        for (key, block), one in zip(blocks, chosen, strict=True)
    )
    for row, numbers in found:
        if row not in rows and not narrowed:
            yield f"published: there is no row {row!r}{near(row, rows)}"
        for path, value in (numbers if isinstance(numbers, dict) else {"": None}).items():
            if type(value) not in (int, float):
                yield f"published: {row}: {path}={value!r}: expected a number"
            elif path not in columns:
                yield f"published: there is no column {path!r}{near(path, columns)}"


def _published(file: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Returns the paper's numbers by row, those for the experiment and the values of `let`."""
    chosen = {**file.get("let", {}), "experiment": file.get("experiment")}
    found: dict[str, Any] = {}
    for key, rows in file.get("published", {}).items():
        name, equals, value = key.partition("=")
        if not (equals and name in chosen):
            found[key] = rows
        elif str(chosen[name]) == value and isinstance(rows, dict):
            found |= rows
    return found


def _text(key: str, value: Any) -> str:
    """Returns an override as the command line has it, in Hydra's grammar."""

    def write(value: Any) -> str:
        if isinstance(value, Mapping):
            return f"{{{', '.join(f'{name}: {write(inner)}' for name, inner in value.items())}}}"
        if isinstance(value, list):
            return f"[{', '.join(map(write, value))}]"
        if isinstance(value, str) and re.fullmatch(r"[\w./-]+", value):
            return value
        return json.dumps(value, ensure_ascii=False)

    return f"{key}={write(value)}"


def _checked(name: str, overrides: Sequence[str]) -> dict[str, Any]:
    config = running.composed(name, overrides)
    experiment.build(config, name, overrides)
    return config


def _begun(sweep: Sweep, settings: Mapping[str, Any], *, finished: bool) -> RunFolder | None:
    """Returns the newest folder of the same plan that nobody writes.

    Args:
        sweep: whose folder is sought.
        settings: the plan.
        finished: whether it may be finished. One whose runs are shared may: they are runs of this
            very code, so that it would measure the same again.
    """
    as_written = json.loads(json.dumps(settings))

    def fits(folder: RunFolder) -> bool:
        done = not finished and _results(folder).get("finished")
        return folder.read_json(PLAN) == as_written and not done

    return newest(Path(sweep.runs) / "sweeps" / sweep.name, fits)


def _results(folder: RunFolder) -> dict[str, Any]:
    """Returns what a sweep has measured so far."""
    return folder.read_json(RESULTS) or {}


def _on_workers(jobs: Sequence[Job], runs: Path, workers: int, tell: Callable[[str], None]) -> None:
    """Trains what is not trained yet, then makes the attacks, each in a process of its own.

    Raises:
        JobsFailed: if some of it failed, after all else has been done.
    """
    trainings = {
        f"run {job.run}, seed {job.seed}": (_train, job, runs / job.run, "")
        for job in jobs
        if not (runs / job.run / FINAL).is_file()
    }
    # Rows may show several numbers of one attack, which is made once.
    found = {(job.run, job.order.name): job for job in jobs if job.order}
    attacks = {
        f"{job.row.name}, seed {job.seed}": (_attack, job, runs / run, name)
        for (run, name), job in found.items()
        if not (runs / run / FINDINGS / name / RESULT).is_file()
    }
    pool = Pool(workers, RaySettings(), tell)
    pool.map(_on_a_worker, trainings)
    pool.map(_on_a_worker, attacks)


def _on_a_worker(part: tuple[Callable[[Job, Path], None], Job, Path, str]) -> None:
    """Does a part of a job, which has that lock."""
    do, job, place, lock = part
    run_lock.await_end(place, MOST_WAIT, lock)  # the worker of a driver that was killed
    do(job, place)


def _train(job: Job, place: Path, progress: Callable[[], Progress] = Progress) -> None:
    """Runs the experiment of a row, or goes on with it, unless it is done."""
    if (place / FINAL).is_file():
        return
    parts = experiment.build(job.config)
    with _counted(RunFolder.at(place), COST):
        parts.assemble(job.config).run(
            parts.rounds, run_dir=place, resume=(place / CONFIG).is_file(), progress=progress()
        )


def _attack(job: Job, place: Path, tell: Callable[[str], None] = lambda line: None) -> None:
    """Makes the attack of a row, unless there is none or it is done."""
    folder = RunFolder.existing(place)
    if job.order is not None and not folder.has(f"{FINDINGS}/{job.order.name}/{RESULT}"):
        with _counted(folder, f"{FINDINGS}/{job.order.name}/{COST}"):
            attack.made(folder, job.order, tell, trust=True)


@contextmanager
def _counted(folder: RunFolder, name: str) -> Iterator[None]:
    """Adds the seconds that the block takes to a file of the run, and keeps the most memory."""
    before, begun = folder.read_json(name) or {"seconds": 0.0, "memory": 0}, time.monotonic()
    release_free_blocks()  # of what this process has done before
    with watched_memory() as most:
        try:
            yield
        finally:
            seconds = before["seconds"] + time.monotonic() - begun
            folder.write_json(name, {"seconds": seconds, "memory": max(before["memory"], most())})


def _cost(jobs: Sequence[Job], runs: Path) -> dict[str, Any]:
    """Returns the seconds that all trainings and attacks of a table took, and the most memory."""
    places = [(job.run, COST) for job in jobs]
    places += [(job.run, f"{FINDINGS}/{job.order.name}/{COST}") for job in jobs if job.order]
    found = [RunFolder.existing(runs / run).read_json(of) for run, of in dict.fromkeys(places)]
    known = [one for one in found if one]  # what an earlier version has made, has none
    return {
        "seconds": sum(one["seconds"] for one in known),
        "memory": max((one["memory"] for one in known), default=0),
    }


def _measure(sweep: Sweep, job: Job, home: Path, place: Path) -> Measured:
    """Takes the numbers of the columns out of a run and its attack."""
    folder = RunFolder.existing(place)
    found = folder.read_json(f"{FINDINGS}/{job.order.name}/{RESULT}") if job.order else None
    result: Result | None = read_result(found) if found else None
    last = (folder.records(METRICS) or [{}])[-1]
    numbers = {
        **(_at(result.details, job.row.of) or {} if result else last),
        "run": last,
        "ledger": folder.read_json(LEDGER),
    }
    compared = [c for claim in sweep.claims for c in claiming.comparisons(claim.says).values()]
    paths = [term.column for one in compared for term in (one.above, one.below)]
    paths = list(dict.fromkeys([*(column.path for column in sweep.columns), *paths]))
    intervals = {c.path: _at(numbers, c.interval) for c in sweep.columns if c.interval}
    return Measured(
        row=job.row.name,
        seed=job.seed,
        run=os.path.relpath(place, home),
        headline=result.headline if result else "",
        refused=result is not None and result.refused,
        values={path: _value(numbers, path) for path in paths},
        intervals={key: tuple(pair) for key, pair in intervals.items() if pair},
        x=job.row.x,
        curve=job.row.curve,
    )


def _at(values: Any, path: str) -> Any:
    """Returns what stands at a dotted path, of names that may have dots; None for nothing."""
    if not path:
        return values
    names = path.split(".")
    for end in range(1, len(names) + 1):
        name = ".".join(names[:end])
        if isinstance(values, Mapping) and name in values:
            return _at(values[name], ".".join(names[end:]))
    return None


def _value(numbers: Any, column: str) -> float | None:
    """Returns the number at a path, or the difference of two; None if one of them is missing."""
    found = [_at(numbers, path) for path in column.split(" - ")]
    if not all(isinstance(one, bool | int | float) for one in found):
        return None
    return float(found[0] - sum(found[1:]))


def _write(
    sweep: Sweep,
    folder: RunFolder,
    measured: Sequence[Measured],
    cost: Mapping[str, Any],
    *,
    finished: bool,
) -> None:
    recorded = Recorded(
        title=sweep.title,
        columns=sweep.columns,
        axis=sweep.axis,
        rows=measured,
        claims=list(claiming.verdicts(sweep.claims, measured)),
        made={"command": sweep.command, "machine": versions.machine()},
        finished=finished,
        paper=sweep.paper,
        published=sweep.published,
        **cost,
    )
    if finished:
        folder.write("table.md", f"# {sweep.title}\n\n{report.markdown(recorded)}".encode())
        report.draw(recorded, folder.path)
        folder.write(report.REPORT, report.html(recorded).encode())
    folder.write_json(RESULTS, dataclasses.asdict(recorded))
