"""Several runs side by side: utility, ε for each observer, and the verdict of each attack.

Runs that differ in nothing but their seed are one row, with the interval over the seeds. Scores are
set side by side only where the held-out documents are the same for each seed that two rows share.
Rows without a common seed must hold documents out of the same source in the same way: then the
documents differ by chance alone.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd

from fedpriv.federation.same_data import held_out_digest
from fedpriv.privacy.views import rounded_up
from fedpriv.report.answer import among_all
from fedpriv.report.answer import answer as attacks_answer
from fedpriv.report.figures import OFF_SCALE, Chart
from fedpriv.report.figures.canvas import style, svg
from fedpriv.report.folder import Run, read_run
from fedpriv.report.privacy import Promise, privacy_view, promised
from fedpriv.report.redaction import cleaner, public_name, redact
from fedpriv.report.render import hero, page, said
from fedpriv.report.rounds import metric_groups, metric_label
from fedpriv.report.summary import leading_metrics, run_date, run_name, run_state
from fedpriv.report.wording import plain
from fedpriv.runtime import run_files
from fedpriv.runtime.run_folder import AUDIT, RunFolder
from fedpriv.studies.estimate import Over, over, over_attacks, within
from fedpriv.studies.table import MOST_PANELS, Line, figure
from fedpriv.threat.results import DONE, LEAK, NONE_SHOWN, Result, Table

COMPARISON = "comparison.html"

MOST_METRICS, MOST_SETTINGS = 3, 40
"""Metrics of the table, and settings that are listed."""

SPAN = 0.1
"""The least span of an axis, so that no difference of a thousandth fills it."""

MOST_NAMED = 3
"""Rows that the title names for each thing that it says."""

STRATEGY, MASKS = "strategy._target_", "masking._target_"

STRATEGIES = {"FLProviderDP": "FL-PROVIDER-DP", "FeAmDP": "FeAm-DP", "FedAvgDP": "FedAvg-DP"}
"""Names of strategies that are not spelt as their classes are."""

IMPORTANCE = (("strategy", "privacy", "masking"), ("data",), ("model",), ("training", "client"))
"""Sections whose settings tell runs apart, the best first; what is kept for attacks comes last."""

HOLDS_OUT = ("data.source.", "data.test.")
"""Settings on which the held-out documents depend, beside seeds."""

NOT_COMPARED = ("versions", "started", "runs", "name", "composed")
"""Settings that differ without making a difference."""


@dataclass(frozen=True)
class OneRun:
    """One run among several.

    Attributes:
        number: its number, from 1.
        run: what its folder holds.
        metrics: last value by name.
        promises: by view; empty where nothing is promised.
        results: of its attacks, by name.
    """

    number: int
    run: Run
    metrics: Mapping[str, float]
    promises: Mapping[str, Promise]
    results: Mapping[str, Result]

    @classmethod
    def of(cls, number: int, run: Run) -> OneRun:
        """Returns a run with what is compared of it."""
        groups = metric_groups(run.rounds)
        promises = promised(privacy_view(run.ledger))
        return cls(
            number,
            run,
            {n: curve[max(curve)] for n, curve in {**groups.scores, **groups.losses}.items()},
            {row.view: row for row in promises["rows"]} if promises else {},
            {one.name: one.result for one in run.findings},
        )

    @property
    def worst(self) -> float:
        """The largest ε of those who are looking; infinite without a guarantee."""
        views = [_size(promise) for view, promise in self.promises.items() if view != "paper"]
        return max(views, default=math.inf)


@dataclass(frozen=True)
class Seeds:
    """Runs that differ in nothing but their seed; often it is a single one.

    Attributes:
        runs: one or more.
        name: what tells the runs from the others.
        held_out: a letter, the same for rows whose scores are of the same held-out documents; ""
            where they are of all rows.
    """

    runs: tuple[OneRun, ...]
    name: str
    held_out: str = ""

    @property
    def numbers(self) -> str:
        """The numbers of the runs, such as "1, 2, 5"."""
        return ", ".join(str(run.number) for run in self.runs)

    @property
    def label(self) -> str:
        """The numbers, and what tells the runs from the others."""
        several = f", {len(self.runs)} seeds" if len(self.runs) > 1 else ""
        return f"{self.numbers}. {self.name}{several}"

    @property
    def worst(self) -> float:
        """The largest ε of those who are looking, in any of the runs."""
        return max(run.worst for run in self.runs)

    def metric(self, name: str) -> Over | None:
        """Returns a metric over the seeds."""
        values = [run.metrics[name] for run in self.runs if name in run.metrics]
        return over(values, name) if values else None

    def promise(self, view: str) -> Promise | None:
        """Returns what is promised in all runs: the largest ε, and none if one run has none."""
        promises = [run.promises.get(view) for run in self.runs]
        every = [one for one in promises if one is not None]
        return max(every, key=_size) if len(every) == len(promises) else None

    def attacked(self, attack: str) -> Over | None:
        """Returns the number that a verdict rests on, over the seeds."""
        numbers = [
            number
            for run in self.runs
            if attack in run.results
            and (number := run.results[attack].numbers.get(run.results[attack].primary))
        ]
        if not numbers:
            return None
        # Seeds that share their data may all err alike.
        of_data = {repr(run.run.config.get("data")) for run in self.runs}
        if found := over_attacks(numbers, shared=len(of_data) < len(self.runs)):
            return found
        plain = over([number.value for number in numbers])
        if len(numbers) == 1 and numbers[0].interval:
            plain = within(numbers[0].value, *numbers[0].interval)
        controls = [number.control for number in numbers if number.control is not None]
        return replace(plain, control=fmean(controls) if controls else None)


@dataclass(frozen=True)
class Comparison:
    """Several runs side by side.

    Attributes:
        table: a row for each setting, by its label. A metric has its mean over the seeds under its
            name and the ends of the interval under `NAME.low` and `NAME.high`, and so has each
            attack the number that its verdict rests on. `epsilon` is the largest of all observers.
            Scores of rows with different letters under `held_out` are of different documents.
        html: the page.
        figure: the figure as SVG; "" where there is nothing to draw.
        answer: which rows leak, by what, and what that costs in score, in one sentence.
        lines: each row in words, with utility and ε.
    """

    table: pd.DataFrame
    html: str
    figure: str
    answer: str
    lines: tuple[str, ...]

    def write(self, path: Path | str) -> Path:
        """Writes the page, which only its owner can read if it is new, and returns its path."""
        with run_files.output(Path(path)) as file:
            file.write(self.html.encode("utf-8", "replace"))
        return Path(path)

    def _repr_html_(self) -> str:
        """Returns what a notebook shows: the table and the figure."""
        shown: str = self.table.to_html(float_format="{:.3g}".format, na_rep="—")
        return shown + self.figure


def compare(
    runs: Iterable[RunFolder | Path | str],
    path: Path | str | None = None,
    *,
    redacted: bool = False,
) -> Comparison:
    """Compares runs: one table, one figure with intervals over seeds, and one page.

    Args:
        runs: two or more, or their folders. Those that differ in nothing but their seed are one
            row: the mean and its 95 % interval.
        path: where to write the page; None does not write it.
        redacted: leave out paths, and texts among the settings, so that the page may be passed on.

    Raises:
        NotARunFolder: if one is no run.
        ValueError: if there is one run only.

    Example::

        import fedpriv

        runs = [fedpriv.run("quickstart", seed=seed) for seed in range(3)]
        runs += [fedpriv.run("quickstart", strategy="fl_provider_dp", seed=s) for s in range(3)]
        fedpriv.compare(runs, "comparison.html").table
    """
    folders = [RunFolder.existing(run.path if isinstance(run, RunFolder) else run) for run in runs]
    folders = list({folder.path.resolve(): folder for folder in folders}.values())
    if len(folders) < 2:
        found = f"{len(folders)} run folder{'s' * (len(folders) != 1)}"
        raise ValueError(f"got {found}: expected two or more to compare")
    read = [read_run(folder.path) for folder in folders]
    rows, names = _rows(read, redacted=redacted)
    drawn, (_, *headings) = chart(rows, names), (told := table(rows, names)).headings
    comparison = Comparison(
        data_frame(rows),
        _page(read, rows, names, redacted=redacted),
        str(drawn.svg) if drawn else "",
        answer(rows, names),
        tuple(
            f"{label}: {', '.join(f'{h} {c}' for h, c in zip(headings, cells, strict=True))}"
            for label, *cells in told.rows
        ),
    )
    if path is not None:
        comparison.write(path)
    return comparison


def _rows(runs: Sequence[Run], *, redacted: bool) -> tuple[list[Seeds], list[str]]:
    """Returns the runs by what they differ in, and the names of the metrics to tell."""
    settings = differences(runs, redacted=redacted)
    alike: dict[str, list[int]] = {}
    for place, run in enumerate(runs):
        own = {name: value for name, value in _flat(run.config) if not _is_seed(name)}
        alike.setdefault(repr(sorted(own.items())), []).append(place)
    if any(len(places) > 1 for places in alike.values()):
        settings = {name: told for name, told in settings.items() if not _is_seed(name)}
    letters = _held_out([[runs[place] for place in places] for places in alike.values()])
    if redacted:
        runs = [redact(run) for run in runs]
    compared = [OneRun.of(number, run) for number, run in enumerate(runs, 1)]
    names = leading_metrics({name for one in compared for name in one.metrics})[:MOST_METRICS]
    groups = [tuple(compared[place] for place in places) for places in alike.values()]
    rows = zip(groups, _names(groups, settings), letters, strict=True)
    return [Seeds(*row) for row in rows], names


def _held_out(rows: Sequence[Sequence[Run]]) -> list[str]:
    """Returns a letter for each row, the same where scores can be compared; "" where all can."""
    groups, letters = list[tuple[Mapping[str, str], str]](), list[str]()
    for row in map(_measured_on, rows):
        place = next((at for at, one in enumerate(groups) if _same_test(one, row)), len(groups))
        if place == len(groups):
            groups.append(row)
        letters.append(chr(ord("A") + place))
    return letters if len(groups) > 1 else [""] * len(letters)


def _measured_on(runs: Sequence[Run]) -> tuple[dict[str, str], str]:
    """Returns digests of the held-out documents by seed, and how they were drawn."""
    digests, drawn = dict[str, str](), ""
    for run in runs:
        data = [(n, v) for n, v in _flat(run.config) if n == "seed" or n.startswith("data.")]
        seeds = repr([one for one in data if _is_seed(one[0])])
        drawn = repr([(n, v) for n, v in data if not _is_seed(n) and n.startswith(HOLDS_OUT)])
        if found := held_out_digest(run.folder):
            digests[seeds] = found
    return digests, drawn


def _same_test(one: tuple[Mapping[str, str], str], other: tuple[Mapping[str, str], str]) -> bool:
    if shared := one[0].keys() & other[0].keys():
        return all(one[0][seed] == other[0][seed] for seed in shared)
    return one[1] == other[1]


def _names(groups: Sequence[Sequence[OneRun]], settings: Mapping[str, Sequence[str]]) -> list[str]:
    """Returns what tells the runs of each group from all others, the most important first."""
    first = [group[0] for group in groups]
    worst = [max(run.worst for run in group) for group in groups]

    def column(name: str, before: str = "") -> list[str]:
        values = settings.get(name, ())
        told = [values[one.number - 1] if values else "—" for one in first]
        return ["" if value == "—" else before + value for value in told]

    approaches = zip(
        [STRATEGIES.get(name, name) for name in column(STRATEGY)],
        ["masked" if masks else "" for masks in column(MASKS)],
        [f"ε {rounded_up(e)}" if math.isfinite(e) and len({*worst}) > 1 else "" for e in worst],
        strict=True,
    )
    columns = [
        [run_name(one.run) for one in first],
        [", ".join(filter(None, words)) for words in approaches],
    ]
    for name in sorted(settings.keys() - {STRATEGY, MASKS}, key=_importance):
        columns.append(column(name, f"{name.removesuffix('._target_')}="))
    told: list[tuple[str, ...]] = [()] * len(groups)
    for values in columns:
        alike: dict[tuple[str, ...], set[str]] = {}
        for have, value in zip(told, values, strict=True):
            alike.setdefault(have, set()).add(value)
        told = [
            (*have, value) if value and len(alike[have]) > 1 else have
            for have, value in zip(told, values, strict=True)
        ]
    return [
        plain(", ".join(words) or run_name(one.run)) for words, one in zip(told, first, strict=True)
    ]


def _importance(name: str) -> tuple[int, bool, int, int]:
    section = name.partition(".")[0]
    ranks = [place for place, names in enumerate(IMPORTANCE) if section in names]
    later = len(IMPORTANCE) + _is_seed(name) + 2 * (section == "keep")
    # Which classes differ tells best what a run is, then what has a short name.
    rank = ranks[0] if ranks and not _is_seed(name) else later
    return rank, not name.endswith("._target_"), name.count("."), len(name)


def _is_seed(name: str) -> bool:
    """Says whether a setting is the seed, of the run or of a part that takes its own from it."""
    return name.rpartition(".")[2] == "seed"


def render(runs: Sequence[Run], *, redacted: bool = False) -> str:
    """Returns the page as HTML."""
    return _page(runs, *_rows(runs, redacted=redacted), redacted=redacted)


def _page(
    runs: Sequence[Run], rows: Sequence[Seeds], names: Sequence[str], *, redacted: bool
) -> str:
    settings = differences(runs, redacted=redacted)
    compared = sorted((run for row in rows for run in row.runs), key=lambda run: run.number)
    label = {run.number: row.name for row in rows for run in row.runs}
    every = [finding for one in compared for finding in one.run.findings]
    headings = tuple(f"{one.number}" for one in compared)
    differing = tuple((name, *values) for name, values in list(settings.items())[:MOST_SETTINGS])
    return page(
        "comparison.html.j2",
        redacted=redacted,
        answer=answer(rows, names),
        found=[(one.number, attacks_answer(one.run.findings)) for one in compared if one.results],
        stolen=picture if (picture := hero(every)) and picture["panels"] else None,
        table=table(rows, names),
        seeds=[len(row.runs) for row in rows if len(row.runs) > 1],
        verdicts=verdicts(rows),
        held_out=any(row.held_out for row in rows),
        chart=chart(rows, names),
        states=[
            (
                one.number,
                label[one.number],
                run_date(one.run.folder, one.run.config),
                run_state(one.run),
            )
            for one in compared
        ],
        settings=Table(("setting", *(f"run {name}" for name in headings)), differing),
        more=max(len(settings) - MOST_SETTINGS, 0),
    )


def differences(runs: Sequence[Run], *, redacted: bool = False) -> dict[str, list[str]]:
    """Returns the settings that are not the same in all runs: name → value in each, as text.

    Args:
        runs: to be compared.
        redacted: leave out all but numbers and the names of fedpriv's own classes.
    """
    flat = [dict(_flat(run.config)) for run in runs]
    cleaners: list[Callable[[str], str]] = [cleaner(run) for run in runs] if redacted else []
    found = {}
    for name in dict.fromkeys(key for config in flat for key in config):
        values = [config.get(name, "—") for config in flat]
        if len({repr(value) for value in values}) == 1:
            continue
        if redacted and not all(
            _is_public(name, value, clean) for value, clean in zip(values, cleaners, strict=True)
        ):
            continue
        found[name] = [_short(value) for value in values]
    return found


def _is_public(name: str, value: Any, clean: Callable[[str], str]) -> bool:
    """Says whether a setting is a number, or the name of one of fedpriv's own classes."""
    if public_name(name, "", clean) != name:
        return False  # the key is a name, as where a setting maps providers to numbers
    if isinstance(value, str):
        return value == "—" or (name.endswith("_target_") and value.startswith("fedpriv."))
    return value is None or isinstance(value, bool | int | float)


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yields dotted names and values of nested settings."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if name or (str(key) not in NOT_COMPARED and not str(key).startswith("_")):
                yield from _flat(inner, f"{name}.{key}" if name else str(key))
    else:
        yield name, value


def _short(value: Any) -> str:
    """Returns a setting as text; of a dotted path its last name."""
    if value is None:
        return "null"
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return plain(text.rpartition(".")[2] if text.startswith("fedpriv.") else text, 80)


def answer(rows: Sequence[Seeds], names: Sequence[str]) -> str:
    """Returns which rows leak, by what, and what that costs in score, in one sentence."""
    states: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        states.setdefault(_state(row), []).append(f"{row.name}," if "," in row.name else row.name)
    clauses = []
    for words, labels in sorted(states.items(), key=lambda one: not one[0][0].startswith("leak")):
        more = len(labels) - MOST_NAMED
        named = " and ".join([*labels[:MOST_NAMED], *[f"{more} more"] * (more > 0)])
        clauses.append(f"{named} {words[len(labels) > 1]}")
    told = "; ".join(clauses)
    if names and any(row.held_out for row in rows):
        return f"{told}; the held-out documents differ, so that scores cannot be compared."
    return ", and ".join([told, *(_cost(rows, name) for name in names[:1])]) + "."


def _state(row: Seeds) -> tuple[str, str]:
    """Returns what the attacks showed on a row: as said of it, and of several."""
    verdicts: dict[str, list[str]] = {}
    for run in row.runs:
        ran = [f for f in run.run.findings if not f.result.refused and f.result.status == DONE]
        for one in among_all(ran):
            if one.name == AUDIT and one.result.verdict != LEAK:
                continue  # it measures noise, and says nothing of what attacks find
            verdicts.setdefault(plain(one.name), []).append(one.result.verdict)
    if not verdicts:
        return "was not attacked", "were not attacked"
    leaks = {name: told.count(LEAK) for name, told in verdicts.items() if LEAK in told}
    by = ", ".join(
        name + f" in {n} of {len(verdicts[name])}" * (n < len(verdicts[name]))
        for name, n in leaks.items()
    )
    if leaks:
        return f"leaks ({by})", f"leak ({by})"
    blind = [name for name, told in verdicts.items() if NONE_SHOWN not in told]
    unknown = f" ({', '.join(blind)}: cannot tell)" * bool(blind)
    if len(blind) == len(verdicts):
        return f"may leak or not{unknown}", f"may leak or not{unknown}"
    return f"shows no leak{unknown}", f"show no leak{unknown}"


def _cost(rows: Sequence[Seeds], name: str) -> str:
    """Returns how a metric differs between the rows that have it."""
    found = [(value.mean, row.name) for row in rows if (value := row.metric(name))]
    label, values = metric_label(name), [f"{value:.2f}" for value, _ in found]
    if len({*values}) == 1:
        return f"{label} is {values[0]}"
    if len(found) == 2:
        return f"{label} {'falls' if found[0] > found[1] else 'rises'} from {' to '.join(values)}"
    (low, least), (high, most) = min(found), max(found)
    return f"{label} lies between {low:.2f} ({least}) and {high:.2f} ({most})"


def _size(promise: Promise) -> float:
    return promise.size if promise.guaranteed else math.inf


def table(rows: Sequence[Seeds], names: Sequence[str]) -> Table:
    """Returns the utility of each row and its ε for each observer."""
    views = {p.view: p.name for row in rows for run in row.runs for p in run.promises.values()}
    cells = []
    for row in rows:
        scores = (str(row.metric(name) or "—") for name in names)
        epsilons = (
            "∞"
            if (promise := row.promise(view)) is None
            else f"{promise.epsilon}{'' if promise.guaranteed else ' (not a guarantee)'}"
            for view in views
        )
        cells.append((row.label, *filter(None, [row.held_out]), *scores, *epsilons))
    held_out = ["held-out documents"] if any(row.held_out for row in rows) else []
    headings = ("run", *held_out, *map(metric_label, names), *(f"ε: {v}" for v in views.values()))
    return Table(headings, tuple(cells))


def verdicts(rows: Sequence[Seeds]) -> Table:
    """Returns the verdict of each attack on each row, with the number that it rests on."""
    names = list(dict.fromkeys(name for row in rows for run in row.runs for name in run.results))
    cells = tuple((row.label, *(_verdict(row, name) for name in names)) for row in rows)
    return Table(("run", *names), cells if names else ())


def _verdict(row: Seeds, attack: str) -> str:
    results = [run.results[attack] for run in row.runs if attack in run.results]
    if not results:
        return "not attacked"
    counts = Counter(said(result) for result in results)
    told = [f"{word} {n} of {len(results)}" for word, n in counts.items()]
    if (found := row.attacked(attack)) is None:
        return "; ".join(told) if len(results) > 1 else said(results[0])
    control = "" if found.control is None else f" against {found.control:.3g}"
    spread = ""
    if len(results) > 1:
        spread = f" [{found.low:.3g}, {found.high:.3g}]"
    words = "; ".join(told) if len(results) > 1 else said(results[0])
    return f"{words} ({results[0].primary} {found.mean:.3g}{spread}{control})"


def data_frame(rows: Sequence[Seeds]) -> pd.DataFrame:
    """Returns all numbers of all rows, as `Comparison.table` has them."""
    records = []
    for row in rows:
        record: dict[str, Any] = {
            "run": row.name,
            "runs": len(row.runs),
            "held_out": row.held_out or "A",
        }
        for name in dict.fromkeys(name for run in row.runs for name in run.metrics):
            if one := row.metric(name):
                record |= {name: one.mean, f"{name}.low": one.low, f"{name}.high": one.high}
        record["epsilon"] = row.worst
        for attack in dict.fromkeys(name for run in row.runs for name in run.results):
            results = [run.results[attack] for run in row.runs if attack in run.results]
            record[f"{attack}.verdict"] = ", ".join(dict.fromkeys(map(said, results)))
            if one := row.attacked(attack):
                low, high = (one.low, one.high) if one.low < one.high else (math.nan, math.nan)
                record |= {attack: one.mean, f"{attack}.low": low, f"{attack}.high": high}
        records.append(record)
    return pd.DataFrame(records).set_index("run")


def chart(rows: Sequence[Seeds], names: Sequence[str]) -> Chart | None:
    """Returns a panel for the first metric, for ε and for each attack, with a line for each row."""
    panels: dict[str, list[Over | None]] = {
        metric_label(name): [row.metric(name) for row in rows] for name in names[:1]
    }
    panels["ε"] = [over([row.worst]) if math.isfinite(row.worst) else None for row in rows]
    for attack in dict.fromkeys(name for row in rows for run in row.runs for name in run.results):
        panels[attack] = [row.attacked(attack) for row in rows]
    shown = []
    for title, dots in panels.items():
        near = [dot if dot and abs(dot.mean) < OFF_SCALE else None for dot in dots]
        if any(near):
            shown.append((title, near))
    if not shown:
        return None
    numbers = [row.numbers + f" {row.held_out}".rstrip() for row in rows]
    told = "; ".join(
        f"{title}: "
        + ", ".join(f"run {n} {dot.mean:.3g}" for n, dot in zip(numbers, dots, strict=True) if dot)
        for title, dots in shown[:MOST_PANELS]
    )
    with style():
        drawing = svg(figure([*map(Line, numbers)], shown, span=SPAN), f"{told}.")
    return Chart(
        "The runs side by side",
        drawing,
        note="A run without a dot has no such number, or an ε that is not finite",
        see="Each line is a row of the table, by its numbers. A bar is the 95 % interval, and a "
        "cross is the control: what is found where nothing can leak. A good run has a high score, "
        "a small ε, and attacks that come no further than the cross.",
    )
