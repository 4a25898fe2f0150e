"""Run folder -> ``report.html``: one page that needs no network, no script and no other file.

`fedpriv.report.folder` reads what the run left, in whatever state that is; each function here
prepares a section of the page, which says what is missing and shows the rest.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedpriv.report import figures
from fedpriv.report.answer import answer, promise
from fedpriv.report.figures.answers import AnswerRow
from fedpriv.report.figures.entities import EntityRow
from fedpriv.report.folder import Partition, Prediction, Row, Run, read_run
from fedpriv.report.privacy import planned, privacy_view, promised
from fedpriv.report.redaction import redact
from fedpriv.report.render import comparisons, hero, page, result_html, said
from fedpriv.report.rounds import (
    Curve,
    MetricGroups,
    client_count,
    in_unit_interval,
    metric_groups,
    metric_label,
    refused_rounds,
)
from fedpriv.report.summary import (
    FIRST_METRICS,
    facts,
    run_date,
    run_name,
    run_state,
    tiles,
    warnings,
)
from fedpriv.report.trainings import trainings_view
from fedpriv.report.wording import (
    BYTE_UNITS,
    TIME_UNITS,
    counted,
    show_bytes,
    show_rounds,
    show_seconds,
    show_value,
    unit_of,
)
from fedpriv.runtime import run_lock, run_log
from fedpriv.runtime.run_folder import REPORT
from fedpriv.threat.results import Table

REDACTED = "report-redacted.html"

COST_SHADES = (0, 2, 4, 3, 5)
"""Without the colour that marks failed clients and refused rounds."""

SEE = {
    "loss": "Lower is better. A held-out loss that rises while the training loss falls means that "
    "the model begins to learn its documents by heart.",
    "scores": "Higher is better; 1 is perfect.",
    "unseen": "The wider the gap between seen and unseen suppliers, the more the model knows its "
    "suppliers by heart, and the more a membership attack has to work with.",
    "clients": "How many clients answered, failed or did not answer in each round.",
    "other": "Its value in each round that measured it.",
    "seconds": "What a round spends its time on.",
    "bytes": "What clients receive (down) and send (up).",
}
"""What there is to see in a chart."""

MOST_FAILURES, MOST_TABLE_ROWS, MOST_HEADLINES = 200, 300, 8


def write_report(run_dir: Path, problems: Sequence[str] = (), *, redacted: bool = False) -> Path:
    """Writes ``report.html`` into a run folder, in one step, and returns its path.

    Args:
        run_dir: the folder.
        problems: what is known to be wrong with it, beside what cannot be read.
        redacted: write ``report-redacted.html`` beside it, which has no page, no name or text of a
            document and no path, so that it may be passed on.

    Raises:
        ValueError: the folder holds no ``config.yaml``.
    """
    run = read_run(Path(run_dir))
    run = dataclasses.replace(run, problems=[*problems, *run.problems])
    name = REDACTED if redacted else REPORT
    # JSON may carry lone surrogates, which UTF-8 has no bytes for.
    html = render(run, redacted=redacted).encode("utf-8", "replace")
    with run_lock.writing(run.folder, "report", "report", wait=True):
        run_log.write(run.folder, name, html)
        if run_log.has_log(run.folder):
            # Of the last line of a log nobody knows whether what it says was done.
            run_log.end(run.folder, "report")
    return run.folder / name


def render(run: Run, *, redacted: bool = False) -> str:
    """Returns the page of a run as HTML; `redacted` as `write_report` has it."""
    if redacted:
        run = redact(run)
    privacy = privacy_view(run.ledger)
    return page(
        "page.html.j2",
        redacted=redacted,
        head=headline(run, privacy),
        hero=hero(run.findings),
        trainings=trainings_view(run.trainings[:MOST_TABLE_ROWS]),
        curves=curve_charts(run.rounds),
        clients=client_view(run.rounds),
        masks=masks(run),
        partition=partition_view(run.partition),
        privacy=privacy,
        prediction=prediction_view(run.prediction),
        findings=run.findings,
        comparisons=comparisons(run.findings),
        result_html=result_html,
        failures=failures_view(run),
        cost=cost_view(run.rounds),
        settings=settings_view(run),
        problems=run.problems,
    )


def headline(run: Run, privacy: Mapping[str, Any] | None) -> dict[str, Any]:
    """Returns the top of the page: the answer, name, date, state, ε, attacks, metrics, warnings."""
    state, complete = run_state(run)
    unsure = "" if complete else " (the folder of a run still going looks the same)"
    epsilons, plan = promised(privacy), planned(run.planned)
    return {
        "answer": answer(run.findings),
        "promise": promise(epsilons, plan) if privacy or plan else "No ε is recorded.",
        "planned": plan,
        "holds": _private_parts(run),
        "name": run_name(run),
        "date": run_date(run.folder, run.config),
        "state": state + unsure,
        "complete": complete,
        "tiles": tiles(run.rounds),
        "epsilons": epsilons,
        "attacks": [
            (one.name, said(one.result), one.result) for one in run.findings[:MOST_HEADLINES]
        ],
        "facts": facts(run),
        "warnings": warnings(run),
    }


def _private_parts(run: Run) -> str:
    """Returns which parts of a page must not be passed on with it, in words; "" for none."""
    pages = run.prediction is not None or any(one.pictures for one in run.findings)
    parts = {
        "pages and texts of documents": pages,
        "names of suppliers": run.partition is not None,
        "paths of this computer": bool(run.config_text),
    }
    *first, last = [part for part, there in parts.items() if there] or [""]
    return f"{', '.join(first)} and {last}" if first else last


def curve_charts(rounds: Mapping[int, Row]) -> dict[str, Any]:
    """Returns the charts of all metrics: large ones, small ones by measure, and tables.

    Metrics of which no chart would have two points stand in the tables.
    """
    groups = metric_groups(rounds)
    overall = {**groups.scores, **groups.losses, **groups.others}
    shown = [panel for panel in _panels(groups) if panel[1]]
    large, last = [], []
    for title, curves, unit, see in shown:
        if max(map(len, curves.values())) > 1:
            large.append(figures.line_chart(title, curves, unit, see=see))
        else:
            last += [(label, curve) for label, curve in curves.items()]
    small, by_type = [], {}
    for measure, curves in sorted(groups.by_type.items(), key=lambda item: item[0] != "f1"):
        if max(map(len, curves.values())) < 2:
            by_type[metric_label(measure)] = curves
            continue
        behind = overall.get(measure, {})
        rounds_shown = [at for curve in curves.values() for at in curve]
        span = min(rounds_shown), max(rounds_shown)
        unit = in_unit_interval([*curves.values(), behind])
        charts = [
            (figures.small_chart(kind, curve, behind, span, unit), show_value(curve[max(curve)]))
            for kind, curve in sorted(curves.items())
        ]
        small.append((metric_label(measure), measure in overall, charts))
    return {
        "large": large,
        "small": small,
        "last": _last_values(last, by_type),
        "rounds": len(rounds),
    }


def _panels(groups: MetricGroups) -> Iterator[tuple[str, dict[str, Curve], bool, str]]:
    """Yields title, curves, whether they lie in [0, 1], and what to see, of each large chart."""
    yield "Loss", _labelled(groups.losses), False, SEE["loss"]
    ends = ("_seen", "_unseen")
    whole = {n: curve for n, curve in groups.scores.items() if not n.endswith(ends)}
    yield "Scores", _labelled(whole), True, SEE["scores"]
    measures = {n.rpartition("_")[0] for n in groups.scores if n.endswith(ends)}
    first = [measure for measure in FIRST_METRICS if measure in measures]
    for measure in [*first, *sorted(measures - {*first})]:
        names = [n for n in (measure, *(f"{measure}{end}" for end in ends)) if n in groups.scores]
        curves = _labelled({name: groups.scores[name] for name in names})
        label = metric_label(measure)
        title = f"{label[:1].upper()}{label[1:]}, seen and unseen suppliers"
        yield title, curves, True, SEE["unseen"]
    for label, curve in _labelled(groups.others).items():
        yield label, {label: curve}, False, SEE["other"]


def _last_values(
    curves: Sequence[tuple[str, Curve]], by_type: Mapping[str, Mapping[str, Curve]]
) -> list[Table]:
    """Returns metrics of a single round as tables: of everything, and by type."""
    tables = []
    values = {label: curve for label, curve in curves if curve}
    if values:
        rows = tuple(
            (label, f"{at}", show_value(value))
            for label, curve in values.items()
            for at, value in curve.items()
        )
        tables.append(Table(("metric", "round", "value"), rows, "Metrics of a single round"))
    if by_type:
        types = dict.fromkeys(kind for curves in by_type.values() for kind in curves)
        cells = tuple(
            (kind, *(_only(curves.get(kind, {})) for curves in by_type.values())) for kind in types
        )
        tables.append(Table(("type", *by_type), cells, "By type, of a single round"))
    return tables


def _only(curve: Curve) -> str:
    return next(map(show_value, curve.values()), "—")


def _labelled(curves: Mapping[str, Curve]) -> dict[str, Curve]:
    """Returns the curves by label; a name whose label is taken keeps its own."""
    labelled: dict[str, Curve] = {}
    for name in sorted(curves):
        label = metric_label(name)
        labelled[name if label in labelled else label] = curves[name]
    return labelled


def masks(run: Run) -> list[str]:
    """Returns in sentences what masks change for the model, and what they have cut off."""
    said = []
    masking, strategy = (run.config.get(name) for name in ("masking", "strategy"))
    if isinstance(masking, Mapping):
        if isinstance(strategy, Mapping) and strategy.get("weighted") is False:
            said.append("Behind masks all clients weigh the same, and buffers are not averaged.")
        if isinstance(bound := masking.get("bound"), int | float):
            said.append(f"A coordinate of an update is cut off at ±{bound:g} (masking.bound).")
    rounds = run.rounds.items()
    if cut := {at: row["cut_off"] for at, row in rounds if type(row.get("cut_off")) is float}:
        said.append(
            f"masking.bound has cut off up to {max(cut.values()):.2%} of the coordinates of the "
            f"updates ({show_rounds(cut)}): their sum is another than it would be without masking."
        )
    return said


def client_view(rounds: Mapping[int, Row]) -> dict[str, Any]:
    """Returns the bars of answered, failed and missing clients, or a sentence that says as much."""
    # Round 0 is an evaluation: nobody is asked.
    counted_rounds = {
        at: row for at, row in rounds.items() if at and isinstance(row.get("clients"), dict)
    }
    if not counted_rounds:
        return {"chart": None, "said": "No client counts are recorded."}
    layers = {
        kind: {at: float(client_count(row, kind)) for at, row in counted_rounds.items()}
        for kind in ("answered", "failed", "missing")
    }
    refused = [at for at in refused_rounds(rounds) if at in counted_rounds]
    quiet = not any([*layers["failed"].values(), *layers["missing"].values(), *refused])
    cohorts = sorted({int(number) for number in layers["answered"].values()})
    if quiet and (len(cohorts) == 1 or len(counted_rounds) == 1):
        each = show_rounds(counted_rounds) if len(counted_rounds) == 1 else "every round"
        asked = counted(cohorts[0], "client")
        verb = "was" if cohorts == [1] else "were"
        return {"chart": None, "said": f"In {each}, {asked} {verb} asked and answered."}
    see = SEE["clients"]
    chart = figures.stacked_chart("Clients by round", layers, (0, 1, 5), refused, see)
    return {"chart": chart, "said": ""}


def partition_view(partition: Partition | None) -> dict[str, Any] | None:
    """Returns the partition's bars, table and a sentence on the held-out providers."""
    if partition is None or not partition.clients:
        return None
    bars = figures.partition_bars(partition.clients)
    trained = {name for held in partition.clients.values() for name in held}
    both = len(trained & partition.test.keys())
    documents, providers = sum(partition.test.values()), len(partition.test)
    test = (
        f"Held out: {counted(documents, 'document')} of {counted(providers, 'supplier')}, "
        f"{both or 'none'} of which also {'has' if both == 1 else 'have'} training documents."
        if providers
        else "No held-out documents are recorded."
    )
    table = [
        (client, partition.clients[client])
        for client in sorted(partition.clients, key=figures.client_order)[:MOST_TABLE_ROWS]
    ]
    return {"method": partition.method, "bars": bars, "test": test, "table": table}


def prediction_view(prediction: Prediction | None) -> dict[str, Any] | None:
    """Returns the page picture's rectangles and the table of entities or answers."""
    if prediction is None:
        return None
    rows: Sequence[AnswerRow | EntityRow]
    if prediction.answers is None:
        rows, row_of = figures.entity_rows(prediction.words)
        marks = figures.page_marks(prediction.words, row_of)
        known = ("correct", "wrong", "missed", "spurious")
    else:
        rows = answers = figures.answer_rows(prediction.answers)
        marks = figures.answer_marks(prediction.words, answers)
        known = ("correct", "close", "wrong", "missed")
    counts = {status: sum(row.status == status for row in rows) for status in known}
    return {"page": prediction, "rows": rows, "marks": marks, "counts": counts}


def failures_view(run: Run) -> dict[str, Any]:
    """Returns the failures to list, how many there are, and the rounds that were repeated."""
    repeated = [
        at
        for at, row in run.rounds.items()
        if isinstance(attempts := row.get("attempts"), int) and attempts > 1
    ]
    unlisted = sum(
        client_count(row, kind) for row in run.rounds.values() for kind in ("failed", "missing")
    )
    rows = [
        {key: _text(row.get(key)) for key in ("round", "client", "kind", "reason", "traceback")}
        for row in run.failures[:MOST_FAILURES]
    ]
    return {
        "rows": rows,
        "total": len(run.failures),
        "unlisted": counted(unlisted, "failed or missing client") if unlisted else "",
        "repeated": show_rounds(repeated) if repeated else "",
    }


def _text(value: object) -> str:
    return "" if value is None else str(value)


def cost_view(rounds: Mapping[int, Row]) -> list[dict[str, Any]]:
    """Returns chart and table of the seconds by phase and of the bytes by direction."""
    kinds = (
        ("Time", "seconds", "phase", TIME_UNITS, show_seconds),
        ("Data", "bytes", "direction", BYTE_UNITS, show_bytes),
    )
    return [
        {"key": key, "title": title, "column": column, **_cost(title, rounds, key, units, show)}
        for title, key, column, units, show in kinds
    ]


def _cost(
    title: str,
    rounds: Mapping[int, Row],
    key: str,
    units: Sequence[tuple[float, str]],
    show: Callable[[float], str],
) -> dict[str, Any]:
    """Returns stacked bars of what is under `key`, None where nothing is, and the table's rows."""
    layers = _layers(rounds, key)
    if not layers:
        return {"chart": None, "table": []}
    per_round = [sum(curve.get(at, 0) for curve in layers.values()) for at in rounds]
    size, unit = unit_of(max(per_round), units)
    scaled = {
        name: {at: value / size for at, value in curve.items()} for name, curve in layers.items()
    }
    shades = [COST_SHADES[place % len(COST_SHADES)] for place in range(len(layers))]
    totals = {name: sum(curve.values()) for name, curve in layers.items()}
    table = [(name, show(total), show(total / len(layers[name]))) for name, total in totals.items()]
    if len(table) > 1:
        table.append(("all", show(sum(totals.values())), show(sum(per_round) / len(per_round))))
    if len(per_round) < 2:
        return {"chart": None, "table": table}
    chart = figures.stacked_chart(f"{title} by round, {unit}", scaled, shades, see=SEE[key])
    return {"chart": chart, "table": table}


def _layers(rounds: Mapping[int, Row], key: str) -> dict[str, dict[int, float]]:
    """Returns the finite numbers under `key` by name and round."""
    layers: dict[str, dict[int, float]] = {}
    for at, row in rounds.items():
        held = row.get(key)
        if key == "bytes":
            ways = {way: row.get(f"bytes_{way}") for way in ("down", "up")}
            # A round of nothing has none to draw.
            held = ways if any(ways.values()) else {}
        for name, value in held.items() if isinstance(held, dict) else ():
            if type(value) in (int, float) and 0 <= value < figures.OFF_SCALE:
                layers.setdefault(name, {})[at] = float(value)
    return layers


def settings_view(run: Run) -> dict[str, Any]:
    """Returns the settings as text, seed and versions."""
    versions = run.config.get("versions")
    return {
        "text": run.config_text,
        "seed": _text(run.config.get("seed")),
        "versions": [(str(name), _text(version)) for name, version in versions.items()]
        if isinstance(versions, dict)
        else [],
    }
