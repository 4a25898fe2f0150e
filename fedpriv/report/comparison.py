"""Several runs side by side: utility, ε for each onlooker, and the verdict of each attack."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure as Canvas
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator

from fedpriv.report.answer import answer as attacks_answer
from fedpriv.report.figures import OFF_SCALE, Chart
from fedpriv.report.figures.canvas import colour, legible, style, svg
from fedpriv.report.folder import Run, read_run
from fedpriv.report.privacy import Promise, privacy_view, promised
from fedpriv.report.redaction import cleaner, public_name, redact
from fedpriv.report.render import hero, page, said
from fedpriv.report.rounds import metric_groups, metric_label
from fedpriv.report.summary import leading_metrics, run_date, run_name, run_state
from fedpriv.report.wording import counted, plain, show_value
from fedpriv.threat.results import LEAK, Result, Table

COMPARISON = "comparison.html"

MOST_METRICS, MOST_PANELS, MOST_SETTINGS = 3, 4, 40
"""Metrics of the table, panels of the figure, and settings that are listed."""

MOST_IN_NAME = 3
"""Settings that tell runs of one name apart."""

NOT_COMPARED = ("versions", "started", "runs", "name", "composed")
"""Settings that differ without making a difference."""


@dataclass(frozen=True)
class Compared:
    """One run among several.

    Attributes:
        number: its number, from 1.
        label: its name, with what tells it from runs of the same name.
        run: what its folder holds.
        metrics: last value by name.
        promises: by view; empty where nothing is promised.
        results: of its attacks, by name.
    """

    number: int
    label: str
    run: Run
    metrics: Mapping[str, float]
    promises: Mapping[str, Promise]
    results: Mapping[str, Result]


@dataclass(frozen=True)
class Dot:
    """A number of one run in the figure: its interval and its control, where it has them."""

    value: float
    interval: tuple[float, float] | None = None
    control: float | None = None


def write_comparison(run_dirs: Sequence[Path], path: Path, *, redacted: bool = False) -> Path:
    """Writes one page about several runs, and returns its path.

    Args:
        run_dirs: folders of runs, two or more.
        path: of the page.
        redacted: leave out paths, and texts among the settings, so that it may be passed on.

    Raises:
        ValueError: a folder holds no ``config.yaml``, or there is one folder only.
    """
    if len(run_dirs) < 2:
        raise ValueError(f"got {len(run_dirs)} run folder: expected two or more to compare")
    runs = [read_run(Path(folder)) for folder in run_dirs]
    html = render(runs, redacted=redacted)
    path.write_bytes(html.encode("utf-8", "replace"))
    return path


def render(runs: Sequence[Run], *, redacted: bool = False) -> str:
    """Returns the page as HTML."""
    settings = differences(runs, redacted=redacted)
    if redacted:
        runs = [redact(run) for run in runs]
    compared = [_compared(number, run, settings) for number, run in enumerate(runs, 1)]
    every = [finding for one in compared for finding in one.run.findings]
    names = leading_metrics({name for one in compared for name in one.metrics})[:MOST_METRICS]
    headings = tuple(f"{one.number}" for one in compared)
    rows = tuple((name, *values) for name, values in list(settings.items())[:MOST_SETTINGS])
    return page(
        "comparison.html.j2",
        redacted=redacted,
        answer=answer(compared, names),
        found=[(one.number, attacks_answer(one.run.findings)) for one in compared if one.results],
        stolen=picture if (picture := hero(every)) and picture["panels"] else None,
        table=table(compared, names),
        verdicts=verdicts(compared),
        chart=chart(compared, names),
        states=[
            (one.number, one.label, run_date(one.run.folder, one.run.config), run_state(one.run))
            for one in compared
        ],
        settings=Table(("setting", *(f"run {name}" for name in headings)), rows),
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


def _compared(number: int, run: Run, settings: Mapping[str, Sequence[str]]) -> Compared:
    telling = list(settings)
    # Which classes differ tells best what a run is, then what has a short name.
    telling.sort(key=lambda name: (not name.endswith("._target_"), name.count("."), len(name)))
    told = [
        f"{name.removesuffix('._target_')}={settings[name][number - 1]}"
        for name in [name for name in telling if settings[name][number - 1] != "—"][:MOST_IN_NAME]
    ]
    groups = metric_groups(run.rounds)
    curves = {**groups.scores, **groups.losses}
    promises = promised(privacy_view(run.ledger))
    return Compared(
        number,
        f"{run_name(run)} ({', '.join(told)})" if told else run_name(run),
        run,
        {name: curve[max(curve)] for name, curve in curves.items()},
        {row.view: row for row in promises["rows"]} if promises else {},
        {one.name: one.result for one in run.findings},
    )


def answer(compared: Sequence[Compared], names: Sequence[str]) -> str:
    """Returns how far the runs differ in leaks, ε and utility, in one sentence."""
    attacked = [one for one in compared if any(not r.refused for r in one.results.values())]
    leaky = [one for one in attacked if any(r.verdict == LEAK for r in one.results.values())]
    verb = "leaks" if len(leaky) == 1 else "leak"
    told = ["none was attacked"]
    if attacked:
        told = [f"{len(leaky) or 'none'} of the {len(attacked)} that were attacked {verb}"]
    bounded = [worst for one in compared if math.isfinite(worst := _worst(one))]
    most = f", at most {max(bounded):.3g}" if bounded else ""
    told.append(
        f"{len(bounded) or 'none'} {'have' if len(bounded) > 1 else 'has'} an ε against every "
        f"onlooker{most}"
    )
    for name in names[:1]:
        values = [one.metrics[name] for one in compared if name in one.metrics]
        low, high = show_value(min(values)), show_value(max(values))
        span = f"is {low}" if low == high else f"lies between {low} and {high}"
        told.append(f"{metric_label(name)} {span}")
    *first, last = told
    return f"{counted(len(compared), 'run')}: {', '.join(first)}, and {last}."


def _worst(one: Compared) -> float:
    """Returns the largest ε of those who are looking; infinite without a guarantee."""
    views = [promise for view, promise in one.promises.items() if view != "paper"]
    return max((p.size if p.guaranteed else math.inf for p in views), default=math.inf)


def table(compared: Sequence[Compared], names: Sequence[str]) -> Table:
    """Returns a row for each run: its utility and ε for each onlooker."""
    views = {p.view: p.name for one in compared for p in one.promises.values()}
    rows = []
    for one in compared:
        scores = (show_value(one.metrics[name]) if name in one.metrics else "—" for name in names)
        epsilons = (
            "∞"
            if (promise := one.promises.get(view)) is None
            else f"{promise.epsilon}{'' if promise.guaranteed else ' (not a guarantee)'}"
            for view in views
        )
        rows.append((f"{one.number}. {one.label}", *scores, *epsilons))
    headings = ("run", *map(metric_label, names), *(f"ε: {name}" for name in views.values()))
    return Table(headings, tuple(rows))


def verdicts(compared: Sequence[Compared]) -> Table:
    """Returns a row for each run: the verdict of each attack, with the number it rests on."""
    names = list(dict.fromkeys(name for one in compared for name in one.results))
    rows = tuple(
        (f"{one.number}. {one.label}", *(_verdict(one.results.get(name)) for name in names))
        for one in compared
    )
    return Table(("run", *names), rows if names else ())


def _verdict(result: Result | None) -> str:
    if result is None:
        return "not attacked"
    number = result.numbers.get(result.primary)
    beside = ""
    if number is not None:
        control = "" if number.control is None else f" against {number.control:.3g}"
        beside = f" ({result.primary} {number.value:.3g}{control})"
    return f"{said(result)}{beside}"


def chart(compared: Sequence[Compared], names: Sequence[str]) -> Chart | None:
    """Returns a panel for the first metric, for ε and for each attack, with a line for each run."""
    panels: dict[str, dict[int, Dot]] = {}
    for name in names[:1]:
        panels[metric_label(name)] = {
            one.number: Dot(one.metrics[name]) for one in compared if name in one.metrics
        }
    panels["ε"] = {one.number: Dot(size) for one in compared if math.isfinite(size := _worst(one))}
    for attack in dict.fromkeys(name for one in compared for name in one.results):
        found = {
            one.number: one.results[attack].numbers[one.results[attack].primary]
            for one in compared
            if attack in one.results and one.results[attack].primary in one.results[attack].numbers
        }
        panels[attack] = {n: Dot(x.value, x.interval, x.control) for n, x in found.items()}
    shown = {
        title: drawn
        for title, dots in panels.items()
        if (drawn := {n: dot for n, dot in dots.items() if abs(dot.value) < OFF_SCALE})
    }
    shown = dict(list(shown.items())[:MOST_PANELS])
    if not shown:
        return None
    told = [
        f"{title}: {', '.join(f'run {n} {dot.value:.3g}' for n, dot in dots.items())}"
        for title, dots in shown.items()
    ]
    with style():
        layout = ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.02)
        figure = Canvas(figsize=(860 / 72, (70 + 26 * len(compared)) / 72), layout=layout)
        places = figure.subplots(1, len(shown), sharey=True, squeeze=False)[0]
        for axes, (title, dots) in zip(places, shown.items(), strict=True):
            _draw_panel(axes, legible(title), dots)
        places[0].set_yticks(range(1, len(compared) + 1))
        places[0].set_ylim(len(compared) + 0.6, 0.4)
        places[0].set_ylabel("run")
        drawing = svg(figure, f"{'; '.join(told)}.")
    return Chart(
        "The runs side by side",
        drawing,
        note="A run without a dot has no such number, or an ε that is not finite",
        see="Each line is a run, by its number in the table. A bar is the 95 % interval, a cross "
        "the control: what is found where nothing can leak. A good run has a high score, a small "
        "ε, and attacks that come no further than the cross.",
    )


def _draw_panel(axes: Any, title: str, dots: Mapping[int, Dot]) -> None:
    for number, dot in dots.items():
        if dot.interval:
            axes.plot(dot.interval, [number] * 2, color=colour("c5"), linewidth=3)
        if dot.control is not None:
            axes.plot(dot.control, number, "x", color=colour("c1"), markersize=6)
        axes.plot(dot.value, number, "o", color=colour("c0"), markersize=5.5)
    axes.set_title(title, fontsize=10.5, color=colour("ink"))
    axes.grid(axis="x", color=colour("line"))
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.margins(x=0.12)
