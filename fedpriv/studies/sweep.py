"""Sweeps: one YAML file is one table, whose rows are runs and attacks on them.

`rows` and `grid` say what differs between the rows, in settings of the run (`run`) and of the
attack (`attack`), by dotted path; `~KEY` takes back what was set for all. `${let.NAME}` is a value
that the command line may change as `NAME=`. `fedpriv.studies.sweep_jobs` runs them.
"""

from __future__ import annotations

import ast
import dataclasses
import itertools
import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fedpriv.config import catalogue, composing, experiment, yaml_file
from fedpriv.config.overrides import check, combinations, key_of, split, values_of, write
from fedpriv.config.overrides import read as read_value
from fedpriv.runtime.refusals import Mistakes, near
from fedpriv.studies import claims as claiming
from fedpriv.studies.claims import Claim
from fedpriv.studies.sweep_page import Column

SECTIONS = {
    "like": str, "title": str, "experiment": str, "runs": str, "seeds": list, "let": dict,
    "run": dict, "attack": dict, "of": str, "choices": dict, "rows": dict, "grid": dict,
    "without": list, "columns": dict, "legend": str, "x": str, "claims": list, "paper": str,
    "published": dict,
}  # fmt: skip
"""What a file may hold, with its types: `like` names a file beside it, whose sections it extends;
`of` is a path in the attack's numbers below which the columns stand, which `legend` explains; of
`choices`, `let` picks. An `attack` without the setting `attack` is none. `published` has the
numbers of a `paper`, by row and column; below a key such as `model=donut` stand those for that
value of `let`, or for that experiment."""

TYPES: dict[type, str] = {str: "text", list: "list", dict: "mapping"}

PART = {key: SECTIONS[key] for key in ("let", "run", "attack", "of")}
"""Sections that rows, choices and axes have too; the inner ones come last."""

OPEN = ("seeds", "experiment", "runs", "workers")
"""Sections that the command line replaces as a whole; `workers` is not in files."""

ELSEWHERE = ("runs", "workers")
"""Of these, the ones that change no number of a table, and are not part of its command."""

MANY = "fedpriv run -m"

GIVEN = "given"
"""Beside the sections of a file: settings that the command line has given."""

CLAIM = tuple(field.name for field in dataclasses.fields(Claim))


def calculate(formula: str) -> float:
    """Returns the value of a formula of numbers, ``+ - * / // **``, ``min`` and ``max``.

    >>> calculate("max(1, 25 // 10)")
    2
    """
    allowed = (ast.Expression, ast.Constant, ast.BinOp, ast.UnaryOp, ast.Call, ast.Name)
    try:
        tree = ast.parse(formula, mode="eval")
        for node in ast.walk(tree):
            if not isinstance(node, (*allowed, ast.operator, ast.unaryop, ast.expr_context)):
                raise ValueError(f"{type(node).__name__} is not allowed")
        names = {"__builtins__": {}, "min": min, "max": max}
        return eval(compile(tree, formula, "eval"), names)  # type: ignore[no-any-return] # noqa: S307
    except (ArithmeticError, NameError, SyntaxError, TypeError, ValueError) as error:
        told = f"{formula}: {error}; expected numbers, + - * / // **, min and max"
        raise ValueError(told) from error


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
        legend: what the columns are, in sentences; "" where their headings say it.
        claims: what is said of it beforehand; see `fedpriv.studies.claims`.
        axis: name of the figure's horizontal axis; "" for a figure of rows.
        command: that runs it, wherever the run folders go.
        paper: whose table it is, and which; "" for none.
        published: the paper's numbers, by row and column.
        varied: what the command line says other than the file, but for seeds, such as data=sroie;
            the title has it too.
        workers: trainings or attacks at a time, each in its own process; 0 does one after the other
            in this one, and shows the progress of each.
        found: whether the columns are those that runs may have, of which the table takes the ones
            that there are.
    """

    name: str
    title: str
    experiment: str
    runs: str
    seeds: tuple[int, ...]
    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    legend: str = ""
    claims: tuple[Claim, ...] = ()
    axis: str = ""
    command: str = ""
    paper: str = ""
    published: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    varied: tuple[str, ...] = ()
    workers: int = 0
    found: bool = False


METRICS = {
    "f1": "F1",
    "anls": "ANLS",
    "accuracy": "accuracy",
    "loss": "loss",
    "train_loss": "training loss",
    "ledger.views.global.pld": "ε of the models",
    "ledger.views.server_plain.pld": "ε of the server",
    "ledger.views.server_masked.pld": "ε of the masked server",
}
"""The columns of a table of runs that no file describes."""


def of_runs(name: str, overrides: Sequence[str]) -> Sweep:
    """Returns the runs of `fedpriv run -m` as a table: a row for each combination, by seed.

    Args:
        name: of the experiment, as `fedpriv run` takes it.
        overrides: such as `strategy=fedavg,feam_dp` and `seed=0,1`; `workers=2` for two runs at a
            time.

    Raises:
        Mistakes: with everything that is wrong.
    """
    combinations([one for one in overrides if key_of(one) != "workers"], MANY)  # not too many

    def whole(key: str) -> list[int]:
        given = [one for one in overrides if key_of(one) == key]
        every = (each for one in given for each in combinations([one], MANY))
        texts = [text for each in every for text in values_of(key, each)]
        if not all(text.isdecimal() for text in texts) or len({*texts}) < len(texts):
            told = "expected whole numbers, all different, such as seed=0,1,2"
            raise Mistakes(name, [f"{' '.join(given)}: {told}"])
        return [int(text) for text in texts]

    seeds, (workers, *more) = whole("seed"), whole("workers") or [0]
    if more:
        raise Mistakes(name, ["workers=: expected how many runs at a time, one number"])
    rest = [one for one in overrides if key_of(one) not in ("seed", "workers")]
    first, *_ = every = combinations(rest, MANY)
    config = experiment.load(name, first)
    if config.get("attack"):
        raise Mistakes(name, ["attack: an experiment with an attack runs without -m"])
    # Where the runs go is no part of the table.
    same = {one for one in first if key_of(one) in ELSEWHERE}
    if len(every) > 1:
        same |= set(first).intersection(*every)
    told = [one for one in first if one in same and key_of(one) not in ELSEWHERE]
    given = [one for one in overrides if key_of(one) not in ELSEWHERE]
    return Sweep(
        name=config["name"],
        title=" ".join((config["name"], *told)),
        experiment=name,
        runs=config["runs"],
        seeds=tuple(seeds) or (config["seed"],),
        rows=tuple(
            Row(", ".join(one for one in each if one not in same) or name, tuple(each))
            for each in every
        ),
        columns=tuple(Column(path, label) for path, label in METRICS.items()),
        command=shlex.join(["fedpriv", "run", "-m", name, *given]),
        workers=workers,
        found=True,
    )


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
    path, problems = catalogue.sweep(name), []
    check(overrides, name)
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
    given = [one for one in overrides if key_of(one) not in ELSEWHERE]
    now = {**file["let"], "experiment": file["experiment"]}
    same = {"seeds", *(key for key in now if now[key] == own.get(key))}
    varied = tuple(one for one in given if key_of(one) not in same)
    title = file.get("title") or catalogue.headline(path) or name
    seeds = file.get("seeds", [0])
    whole = isinstance(seeds, list) and all(type(seed) is int for seed in seeds)
    if not whole or not 0 < len({*seeds}) == len(seeds):
        raise Mistakes(
            name, [f"seeds={seeds}: expected a list of different whole numbers, such as [1,2]"]
        )
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
        legend=file.get("legend", ""),
        claims=tuple(_claims(file.get("claims", ()), problems)),
        axis=file.get("x", ""),
        command=shlex.join(["fedpriv", "sweep", name, *given]),
        paper=file.get("paper", ""),
        published=_published(file),
        varied=varied,
        workers=workers,
    )
    if not sweep.rows:
        left_out = ", ".join(map(repr, file["without"]))
        problems.append(f"no row is left: `without` of the file leaves out {left_out}")
    problems += [*_idle(file, sweep.rows, name), *dict.fromkeys(_misfits(file, sweep, overrides))]
    if problems:
        raise Mistakes(name, problems)
    return sweep


def seeds(name: str) -> list[int]:
    """Returns the seeds that stand in the file of a sweep.

    Raises:
        Mistakes: if there is no such sweep.
    """
    return list(_load(catalogue.sweep(name)).get("seeds", [0]))


def settings(name: str, overrides: Sequence[str] = ()) -> Iterator[str]:
    """Yields what the command line may change of a sweep, a line each, with what it is.

    Args:
        name: as `read` takes it.
        overrides: what it has changed already.

    Raises:
        Mistakes: if there is no such sweep, or nothing of it that an override would change.
    """
    check(overrides, name)
    files = [catalogue.sweep(name)]
    while like := yaml.safe_load(files[-1].read_text("utf-8")).get("like"):
        files.append(files[-1].parent / f"{like}.yaml")
    said = {key: told for one in reversed(files) for key, told in _remarks(one).items()}
    try:
        file = _override(_load(files[0]), overrides)
    except ValueError as error:
        raise Mistakes(name, [str(error)]) from error
    for key, value in file["let"].items():
        options = " | ".join(file.get("choices", {}).get(key, ()))
        remark = said.get(key, "")
        if remark.startswith("or ") and key in file[GIVEN].get("let", {}):
            remark = ""  # which others there are, beside the file's own
        told = remark if remark.startswith("or ") else "; ".join(filter(None, (options, remark)))
        yield f"{key}={write(value)}" + (f"  # {told}" if told else "")
    for axis, values in _axes(file).items():
        yield f"{axis}={write([*values])}"
    yield f"seeds={write(file.get('seeds', [0]))}"
    yield f"experiment={file.get('experiment')}"
    workers = file.get("workers", 0)
    yield f"workers={workers}  # trainings or attacks at a time, each in its own process"
    for section in ("run", "attack"):
        given = file[GIVEN].get(section, {})
        yield from (f"{section}.{k}={write(v)}" for k, v in given.items())
    yield "run.KEY=…  # of that experiment: `fedpriv run EXPERIMENT --settings`"
    yield "attack.KEY=…  # of its attacks: `fedpriv attack RUN_DIR attack=NAME --settings`"


def _remarks(path: Path) -> dict[str, str]:
    """Returns the comments behind the values of `let` in a file; YAML's parser drops them."""
    text = path.read_text("utf-8")
    root: Any = yaml.compose(text, yaml.SafeLoader)
    lets = [value for key, value in root.value if key.value == "let"]
    ends = {key.value: value.end_mark for let in lets for key, value in let.value}
    lines = text.splitlines()
    behind = {k: re.match(r"\s*# (.+)", lines[e.line][e.column :]) for k, e in ends.items()}
    return {key: found[1] for key, found in behind.items() if found}


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
        key, given_text = split(text)
        section, _, inner = key.partition(".")
        try:
            value = read_value(given_text)
        except ValueError as error:
            quoted = """'rows=["one label", "another, with a comma"]'"""
            raise ValueError(f"{text}: cannot be read; a list is quoted like {quoted}") from error
        if key in values:
            if _is_number(values[key]) and not (_is_number(value) or "${" in str(value)):
                raise ValueError(f"{text}: expected a number, such as {values[key]}")
            values[key] = given.setdefault("let", {})[key] = value
        elif key in axes:
            axes[key] = _narrow(key, axes[key], value)
        elif key in OPEN:
            file[key] = value
        elif inner and section in ("run", "attack"):
            given.setdefault(section, {})[inner] = value
        else:
            there = [*values, *axes, *OPEN, "run.KEY", "attack.KEY"]
            raise ValueError(f"{text}: expected one of {'=, '.join(there)}={near(key, there)}")
    rows = axes.pop("rows")
    return {**file, "let": values, "rows": rows, "grid": axes, GIVEN: given}


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


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
    """Returns the axes, without the labels of which `without` leaves no row."""
    axes = {"rows": file.get("rows", {"": {}}), **file.get("grid", {})}
    labels = [[label for label, _ in _parts(name, axis)] for name, axis in axes.items()]
    kept = [row for row in itertools.product(*labels) if not _left_out(file, row)]
    seen = {pair for row in kept for pair in zip(axes, row, strict=True)}
    for name, axis in axes.items():
        if isinstance(axis, Mapping):
            axes[name] = {label: axis[label] for label in axis if (name, str(label)) in seen}
    return axes


def _left_out(file: Mapping[str, Any], labels: Sequence[str]) -> bool:
    name = ", ".join(filter(None, labels))
    return any(fnmatchcase(name, pattern) for pattern in file.get("without", ()))


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
        commas = "; labels with commas need quotes" if any("," in str(one) for one in axis) else ""
        whole = any(label and str(unknown[0]).startswith(f"{label}, ") for label in axis)
        rest = "; what follows in the name of a row is of another axis" if whole else ""
        raise ValueError(f"{told}{commas}{rest}{near(str(unknown[0]), axis)}")
    return {label: axis[label] for label in chosen}


def _rows(file: Mapping[str, Any], source: str) -> Iterator[Row]:
    """Yields the rows: the product of `rows` and of the axes of `grid`, without `without`."""
    problems = []
    shared = [file]
    for choice, options in file.get("choices", {}).items():
        picked = file["let"].get(choice)
        if picked not in options:
            expected = f"expected one of {', '.join(options)}{near(picked, options)}"
            raise Mistakes(source, [f"{choice}={picked}: {expected}"])
        shared.append(options[picked])
    shared.append(file.get(GIVEN, {}))
    axes = [[*_parts(name, axis)] for name, axis in _axes(file).items()]
    x = file.get("x", "")
    for combination in itertools.product(*axes):
        labels = [label for label, _ in combination]
        if _left_out(file, labels):
            continue
        name = ", ".join(filter(None, labels))
        parts = [*shared, *(part for _, part in combination)]
        if wrong := [p for part in parts[1:] for p in _wrong(part, PART, name)]:
            problems += wrong
            continue
        try:
            found = _merged(parts)
        except OmegaConfBaseException as error:
            hint = composing.MISSING if "Environment variable" in str(error) else ""
            why = str(error).splitlines()[0].rpartition(" raised while resolving interpolation: ")
            problems.append(f"{name}: {why[2]}{hint}")
            continue
        run, attacked = (
            [f"{name}={write(value)}" for name, value in found[key].items()]
            for key in ("run", "attack")
        )
        yield Row(
            name=name or source,
            run=tuple(run),
            attack=tuple(attacked) if "attack" in found["attack"] else None,
            of=found["of"],
            x=found["let"].get(x),
            curve=", ".join(label for label, _ in combination if not label.startswith(f"{x} ")),
        )
    if problems:
        raise Mistakes(source, list(dict.fromkeys(problems)))


def _idle(file: Mapping[str, Any], rows: Sequence[Row], source: str) -> Iterator[str]:
    """Yields the values of the command line that no row depends on: another value changes none."""
    given, choices = file.get(GIVEN, {}), file.get("choices", {})
    for key, value in given.get("let", {}).items():
        if key in choices:
            continue
        another = value + 1 if _is_number(value) else f"{value}, another"
        let = {"let": {**file["let"], key: another}}
        try:
            same = tuple(_rows({**file, **let, GIVEN: {**given, **let}}, source)) == tuple(rows)
        except Mistakes:
            continue
        if same:
            may = f"; it may have one with another {' or '.join(choices)}" if choices else ""
            yield f"{key}={value}: has no effect, since no row depends on it{may}"


def _parts(name: str, axis: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields label and sections of each place of an axis, which may list values of a name."""
    if isinstance(axis, Mapping):
        yield from ((str(label), part) for label, part in axis.items())
        return
    for value in axis:
        told = f"{value:g}" if isinstance(value, float) else str(value)
        yield f"{name} {told}", {"let": {name: value}}


def _merged(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the sections of a row: those of later parts win, and references are resolved."""
    merged: dict[str, Any] = {"let": {}, "run": {}, "attack": {}, "of": ""}
    for part in parts:
        merged["of"] = part.get("of", merged["of"])
        for key in ("let", "run", "attack"):
            for setting, value in part.get(key, {}).items():
                if setting.startswith("~"):
                    merged[key].pop(setting[1:], None)
                else:
                    merged[key][setting] = value
    found: Any = OmegaConf.to_container(OmegaConf.create(merged), resolve=True)
    return dict(found)


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
    narrowed = any(key_of(one) in _axes(file) for one in overrides)
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
            f"claims: there is no row {row!r}{near(row, rows)}" for row in named if not narrowed
        )
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
