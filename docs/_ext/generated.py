"""Writes the parts of pages that the code itself tells, into `docs/_generated`, before a build.

Its imports bring in torch, so that the processes which Sphinx forks have it already.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from layers import drawing
from omegaconf import OmegaConf

from fedpriv.config import attack, catalogue
from fedpriv.config.composing import BY_CLIENT
from fedpriv.config.construct import TARGET, import_target, join
from fedpriv.config.experiment import Experiment
from fedpriv.config.reference import Setting, argument_meanings, settings
from fedpriv.federation.dataset import DocumentData
from fedpriv.studies import sweep
from fedpriv.studies.claims import verdicts
from fedpriv.studies.papers import PAPERS, in_order, of_the_paper, tables
from fedpriv.studies.reproduce import of_result
from fedpriv.studies.reproduced import Reproduced
from fedpriv.studies.sweep_page import Recorded, as_svg, markdown
from fedpriv.threat.results import Figure, Number, Result, Table
from fedpriv.threat.runner import ThreatModel
from fedpriv.threat.scoring.registry import SCORERS
from fedpriv.threat.settings import AttackSettings, composed
from fedpriv.threat.surfaces.base import OBSERVERS, SURFACES, observer

ATTACK = "attack"
ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "papers" / "results"
"""The `results.json` of sweeps, of which the papers' pages are made."""


BENCHMARKS = ROOT / "benchmarks" / "results"
"""What `make benchmark` and `make gpu` have measured."""

sys.path.append(str(BENCHMARKS.parent))
import gpu  # noqa: E402
import verdict  # noqa: E402


def prose(text: str) -> str:
    """Returns a text in which Markdown sees nothing but code in backticks."""
    parts = re.split(r"(`[^`]*`)", text)
    escaped = (re.sub(r"([*_<>\[\]$#{}])", r"\\\1", part) for part in parts[::2])
    code = (*(part for part in parts[1::2]), "")
    return "".join(a + b for a, b in zip(escaped, code, strict=True))


def table(headings: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Returns a table in Markdown."""
    lines = [headings, tuple("---" for _ in headings), *rows]
    cells = ([" ".join(cell.split()).replace("|", r"\|") for cell in line] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in cells) + "\n"


def listed(rows: Iterable[Setting]) -> str:
    """Returns settings with value and meaning, as a list, which fits a phone."""
    lines = []
    for row in rows:
        value = f" = `{row.short_default}`" if row.default else ""
        lines.append(f"- `{row.name}`{value}" + (f": {prose(row.meaning)}" if row.meaning else ""))
    return "\n".join(lines) + "\n"


def top_level() -> str:
    """Returns the settings of an experiment that are not of a config group's choice."""
    every = list(settings(Experiment))
    sections = ("federation", "ray", "privacy", "training")
    text = listed(row for row in every if "." not in row.name)
    for section in sections:
        rows = [row for row in every if row.name.startswith(f"{section}.")]
        text += f"\n## `{section}`\n\n{listed(rows)}"
    return text


def choice(group: str, path: Path) -> Iterator[Setting]:
    """Yields the settings that a choice of a config group has, with the values that it gives.

    Their meanings may come from another choice of the group, which this one starts from.
    """
    text = usual(path)
    content, whole = yaml.safe_load(text) or {}, merged(path)
    rows = (*settings(Experiment), *settings(DocumentData, "data"))
    known = {row.name: row.meaning for row in rows}
    for other in set(content.pop("defaults", ())) - {"_self_"}:
        start = choice(group, path.with_name(f"{other}.yaml"))
        known |= {row.name: row.meaning for row in start}
    for key, value in content.items():  # its sections may have their targets from where it starts
        if isinstance(value, Mapping) and TARGET in value:
            content[key] = whole[key]
    package = re.search(r"^# @package (\S+)", text, re.MULTILINE)
    place = package[1] if package else group
    yield from within("" if place == "_global_" else place, content, known)


def usual(path: Path) -> str:
    """Returns a choice as it is where nothing names the clients, which would imply a partition."""
    return re.sub(rf"\$\{{{BY_CLIENT}:([^,}}]+),[^}}]+\}}", r"\1", path.read_text("utf-8"))


def merged(path: Path) -> dict[str, Any]:
    """Returns what a choice holds, with what it starts from."""
    content = yaml.safe_load(usual(path)) or {}
    starts = [other for other in content.pop("defaults", ()) if other != "_self_"]
    parts = [merged(path.with_name(f"{other}.yaml")) for other in starts]
    return OmegaConf.to_container(OmegaConf.merge(*parts, content))


def within(place: str, content: Mapping[str, Any], known: Mapping[str, str]) -> Iterator[Setting]:
    """Yields the settings of a section: those of its target, or else the values in it.

    `known` has the meaning of each setting by name, for sections without a target.
    """
    if TARGET in content:
        yield Setting(join(place, TARGET), content[TARGET], "")
        yield from settings(import_target(content[TARGET]), place, content)
        return
    for key, value in content.items():
        name = join(place, key)
        if isinstance(value, Mapping) and value:
            yield from within(name, value, known)
        else:
            text = yaml.safe_dump(value, default_flow_style=True, width=1000).split("\n")[0]
            yield Setting(name, text, known.get(name, ""))


def groups() -> str:
    """Returns every choice of every config group of experiments."""
    text = ""
    for group, choices in catalogue.groups().items():
        if group == ATTACK:
            continue
        text += f"## `{group}=`\n\n"
        for name, path in choices.items():
            rows = list(choice(group, path))
            text += f"### `{group}={name}`\n\n{prose(catalogue.headline(path))}.\n\n"
            text += listed(rows) + "\n" if rows else ""
    return text


def all_settings() -> type[AttackSettings]:
    """Returns what some attack takes, as one class."""
    scorers = [scored.settings for scored in SCORERS.values()]
    return composed([*(surface.takes for surface in SURFACES.values()), *scorers], AttackSettings)


def attack_settings() -> str:
    """Returns what `fedpriv attack` takes, and the settings of each attack."""
    text = listed(row for row in settings(all_settings()))
    for name, path in catalogue.groups()[ATTACK].items():
        text += f"\n## `attack={name}`\n\n{prose(catalogue.headline(path))}.\n\n"
        text += listed(choice(ATTACK, path))
    return text


def threat_models() -> str:
    """Returns the attacks by adversary: what each must be granted, what it uses, and claims."""
    of: dict[str, list[tuple[str, ...]]] = {one.title: [] for one in OBSERVERS}
    for name, path in catalogue.groups()[ATTACK].items():
        target: Any = import_target(yaml.safe_load(path.read_text("utf-8"))[TARGET])
        if hasattr(target, "access_type"):  # of the attack that it wraps
            target = attack.parse([f"attack={name}"]).attack
        model = ThreatModel.of(target)
        wants = list(model.wants.values())
        needs = [kind for kind, optional in wants if not optional]
        audits = [kind.auditor for kind in needs if getattr(kind, "auditor", "")]
        looking = observer(needs)
        who = audits[0] if audits else looking.title if looking else "Anybody"
        of.setdefault(who, []).append(
            (
                f"`{name}`",
                prose(catalogue.headline(path)),
                ", ".join(f"`{kind.__name__}`" for kind in needs),
                ", ".join(f"`{kind.__name__}`" for kind, optional in wants if optional),
                ", ".join(f"`{claim.__name__}`" for claim in model.claims),
            )
        )
    headings = ("attack", "what it does", "must have", "uses if granted", "hands back")
    return "\n".join(f"## {who}\n\n{table(headings, rows)}" for who, rows in of.items() if rows)


def result_schema() -> str:
    """Returns the fields of `result.json`."""
    text = ""
    for kind in (Result, Number, Table, Figure):
        meanings = argument_meanings(kind)
        rows = (
            (f"`{field.name}`", f"`{field.type}`", prose(meanings.get(field.name, "")))
            for field in dataclasses.fields(kind)
        )
        text += f"### `{kind.__name__}`\n\n{table(('field', 'type', 'meaning'), rows)}\n"
    return text


def recorded(path: Path) -> Recorded:
    """Returns what a sweep measured, and all that its file says of it today: claims, the paper.

    What a claim compares is what it was when it was first judged: a test says so.
    """
    found = Recorded.of(json.loads(path.read_text("utf-8")))
    os.environ.setdefault("FEDPRIV_DATA", "/data")  # nothing is read from there
    file = sweep.read(*of_result(str(path.relative_to(RESULTS))))
    labels = {column.path: column for column in file.columns}
    return dataclasses.replace(
        found,
        title=file.title,
        columns=[labels.get(column.path, column) for column in found.columns],
        claims=list(verdicts(file.claims, found.rows)),
        paper=file.paper,
        published=file.published,
        legend=file.legend,
    )


def measured(path: Path) -> str:
    """Returns what a sweep measured: the table, where it comes from, and the claims."""
    return markdown(dataclasses.replace(recorded(path), legend=""))


def tables_and_studies(paper: str) -> list[Recorded]:
    """Returns the tables of a paper whose results are checked in, and then the studies of ours."""
    return [
        one for ours in (False, True) for one in reproduced(paper, studies=ours).tables.values()
    ]


def legend(paper: str) -> str:
    """Returns what the columns of a paper's tables are; some tables may have words of their own."""
    found = dict.fromkeys(one.legend for one in tables_and_studies(paper) if one.legend)
    return "\n\n".join(found) + "\n"


def curves(path: Path) -> str:
    """Returns the first column of a sweep as curves over its axis, or as a line for each row."""
    found = recorded(path)
    return as_svg(dataclasses.replace(found, columns=found.columns[:1]))


@functools.cache
def reproduced(paper: str, *, studies: bool = False) -> Reproduced:
    """Returns the tables of a paper whose results are checked in, or the studies of ours.

    What was chosen other than the table's own stands behind its name: table1 data=sroie.
    """
    about, found = PAPERS[paper], {}
    for path in (RESULTS / about.folder).glob("*.json"):
        table, varied = of_result(str(path.relative_to(RESULTS)))
        name = " ".join((Path(table).name.replace("_", ""), *varied))
        if of_the_paper(name) is not studies:
            found[name] = recorded(path)
    return Reproduced(about.told, {name: found[name] for name in sorted(found, key=in_order)})


def claims(paper: str) -> str:
    """Returns the claims of a paper and of our studies, with outcomes and what tables took."""
    told, ours = reproduced(paper).markdown(), reproduced(paper, studies=True)
    run = {name.partition(" ")[0] for name in reproduced(paper).tables}
    left = filter(of_the_paper, set(tables(paper)) - run)
    if missing := sorted(left, key=in_order):
        told += f"\nNot run yet: {', '.join(f'`{name}`' for name in missing)}.\n"
    return f"{told}\nStudies of ours:\n\n{ours.markdown()}" if ours.tables else told


def all_tables(paper: str) -> str:
    """Returns each table of a paper, and each study, with its claims, under its own heading.

    What explains the columns of all of them stands before the first.
    """
    text = legend(paper)
    for one in tables_and_studies(paper):
        table = markdown(dataclasses.replace(one, legend=""))
        text += f"\n\n### {prose(one.title)}\n\n{table}"
    return text


def claims_chart(paper: str) -> str:
    """Returns a bar for each table of a paper: how many of its claims hold."""
    chart = reproduced(paper).chart()
    return chart.svg if chart else ""


def answers() -> str:
    """Returns a row for each paper: how many of its claims hold."""
    lines = ["| | claims |", "|---|---|"]
    for name, about in PAPERS.items():
        lines.append(f"| [{prose(about.told)}]({about.folder}.md) | {reproduced(name).answer()} |")
    return "\n".join(lines) + "\n"


def benchmarks() -> str:
    """Returns what the benchmarks whose results are checked in have measured."""
    results = {path.stem: json.loads(path.read_text("utf-8")) for path in BENCHMARKS.glob("*.json")}
    simulation = results.pop("simulation", None)
    text = "## Simulation\n\n"
    text += verdict.markdown(simulation) if simulation else f"{NO_RESULT} `make benchmark`.\n"
    text += "" if results else f"\n## On a GPU\n\n{NO_RESULT} `make gpu`.\n"
    for name in sorted(results):
        device = results[name]["device"]["name"]
        text += f"\n## On one {prose(device)}\n\n{gpu.markdown(results[name])}"
    return text


NO_RESULT = "No result is checked in yet. This one makes it:"
PARTS = {
    "benchmarks.md": benchmarks,
    "experiment.md": top_level,
    "groups.md": groups,
    "attack_settings.md": attack_settings,
    "threat_models.md": threat_models,
    "result.md": result_schema,
    "results/answers.md": answers,
}


def write(folder: Path) -> None:
    """Writes the parts, if any source is newer than they are.

    A part that has not changed stays as it is, or Sphinx would build its page again.
    """
    sources = [path for kind in ("*.py", "*.yaml") for path in ROOT.glob(f"*/**/{kind}")]
    sources += [*RESULTS.rglob("*.json"), *BENCHMARKS.glob("*.json")]
    newest = max(path.stat().st_mtime for path in sources if ".venv" not in str(path))
    done = folder / ".done"
    if done.exists() and done.stat().st_mtime > newest:
        return
    parts: dict[str, Callable[[], str]] = {}
    for path in RESULTS.rglob("*.json"):
        place = path.relative_to(RESULTS).with_suffix("")
        parts[f"results/{place}.md"] = functools.partial(measured, path)
        parts[f"results/{place}.svg"] = functools.partial(curves, path)
    for name, about in PAPERS.items():
        parts[f"results/{about.folder}/claims.md"] = functools.partial(claims, name)
        parts[f"results/{about.folder}/legend.md"] = functools.partial(legend, name)
        parts[f"results/{about.folder}/tables.md"] = functools.partial(all_tables, name)
        parts[f"results/{about.folder}/claims.svg"] = functools.partial(claims_chart, name)
    for name, make in {**PARTS, "layers.svg": drawing, **parts}.items():
        text = make()
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if not (folder / name).exists() or (folder / name).read_text("utf-8") != text:
            (folder / name).write_text(text, "utf-8")
    done.touch()


def setup(app: Any) -> dict[str, bool]:
    """Writes the parts before Sphinx looks for pages, and shows the examples of commands."""
    app.connect("builder-inited", lambda app: write(Path(app.srcdir) / "_generated"))
    app.setup_extension("sphinx_click")
    app.connect("sphinx-click-process-epilog", show_examples)
    for part in ("description", "options", "arguments"):
        app.connect(f"sphinx-click-process-{part}", show_options)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def show_examples(app: Any, context: Any, lines: list[str]) -> None:
    """Shows the epilog of a command as what it is: commands, one a line."""
    if any(lines):
        block = [".. rubric:: Examples", "", ".. code-block:: sh", ""]
        lines[:] = [*block, *(f"   {line.strip()}" for line in lines), ""]


def show_options(app: Any, context: Any, lines: list[str]) -> None:
    """Shows names of options in a text as code; else their dashes would be joined."""
    for number, line in enumerate(lines):
        if not line.lstrip().startswith(".."):
            lines[number] = re.sub(r"(?<![\w`-])(--[a-z][a-z-]*)", r"``\1``", line)
