"""Run folder -> ``report.html``: one page that needs no network, no script and no other file.

`fedpriv.report.folder` reads what the run left, in whatever state that is; each function here
prepares a section of the page, which says what is missing and shows the rest.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedpriv.report import figures
from fedpriv.report.figures import Chart
from fedpriv.report.figures.answers import AnswerRow
from fedpriv.report.figures.entities import EntityRow
from fedpriv.report.folder import Partition, Prediction, Row, Run, read_run
from fedpriv.report.privacy import privacy_view, promised
from fedpriv.report.render import comparisons, result_html, said, templates
from fedpriv.report.rounds import (
    Curve,
    client_count,
    in_unit_interval,
    metric_groups,
    metric_label,
    refused_rounds,
)
from fedpriv.report.summary import facts, run_date, run_name, run_state, tiles, warnings
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

REPORT = "report.html"

COST_SHADES = (0, 2, 4, 3, 5)
"""Without the colour that marks failed clients and refused rounds."""

MOST_FAILURES, MOST_TABLE_ROWS, MOST_HEADLINES = 200, 300, 8


def write_report(run_dir: Path, problems: Sequence[str] = ()) -> Path:
    """Writes ``report.html`` into a run folder, in one step, and returns its path.

    Args:
        run_dir: the folder.
        problems: what is known to be wrong with it, beside what cannot be read.

    Raises:
        ValueError: the folder holds no ``config.yaml``.
    """
    run = read_run(Path(run_dir))
    run = dataclasses.replace(run, problems=[*problems, *run.problems])
    # JSON may carry lone surrogates, which UTF-8 has no bytes for.
    page = render(run).encode("utf-8", "replace")
    with run_lock.writing(run.folder, "report", "report", wait=True):
        run_log.write(run.folder, REPORT, page)
        if run_log.has_log(run.folder):
            # Of the last line of a log nobody knows whether what it says was done.
            run_log.end(run.folder, "report")
    return run.folder / REPORT


def render(run: Run) -> str:
    """Returns the page of a run as HTML."""
    template = templates().get_template("page.html.j2")
    privacy = privacy_view(run.ledger)
    return template.render(
        head=headline(run, privacy),
        trainings=trainings_view(run.trainings[:MOST_TABLE_ROWS]),
        curves=curve_charts(run.rounds),
        clients=client_chart(run.rounds),
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
    """Returns the top of the page: name, date, state, metrics, ε, attacks, sizes, warnings."""
    state, complete = run_state(run)
    unsure = "" if complete else " (the folder of a run still going looks the same)"
    return {
        "name": run_name(run),
        "date": run_date(run.folder, run.config),
        "state": state + unsure,
        "complete": complete,
        "tiles": tiles(run.rounds),
        "epsilons": promised(privacy),
        "attacks": [
            (one.name, said(one.result), one.result) for one in run.findings[:MOST_HEADLINES]
        ],
        "facts": facts(run),
        "warnings": warnings(run),
    }


def curve_charts(rounds: Mapping[int, Row]) -> dict[str, Any]:
    """Returns the charts of all metrics: large ones, and small ones by measure."""
    groups = metric_groups(rounds)
    large: list[Chart] = []
    if groups.losses:
        large.append(figures.line_chart("Loss", _labelled(groups.losses)))
    if groups.scores:
        large.append(figures.line_chart("Scores", _labelled(groups.scores), unit_interval=True))
    large += [
        figures.line_chart(label, {label: curve})
        for label, curve in _labelled(groups.others).items()
    ]
    overall = {**groups.scores, **groups.losses, **groups.others}
    small = []
    for measure, curves in sorted(groups.by_type.items(), key=lambda item: item[0] != "f1"):
        behind = overall.get(measure, {})
        rounds_shown = [at for curve in curves.values() for at in curve]
        span = min(rounds_shown), max(rounds_shown)
        unit = in_unit_interval([*curves.values(), behind])
        charts = [
            (figures.small_chart(kind, curve, behind, span, unit), show_value(curve[max(curve)]))
            for kind, curve in sorted(curves.items())
        ]
        small.append((metric_label(measure), measure in overall, charts))
    return {"large": large, "small": small, "rounds": len(rounds)}


def _labelled(curves: Mapping[str, Curve]) -> dict[str, Curve]:
    """Returns the curves by label; a name whose label is taken keeps its own."""
    labelled: dict[str, Curve] = {}
    for name in sorted(curves):
        label = metric_label(name)
        labelled[name if label in labelled else label] = curves[name]
    return labelled


def client_chart(rounds: Mapping[int, Row]) -> Chart | None:
    """Returns the bars of answered, failed and missing clients; None where none were counted."""
    # Round 0 is an evaluation: nobody is asked.
    counted_rounds = {
        at: row for at, row in rounds.items() if at and isinstance(row.get("clients"), dict)
    }
    if not counted_rounds:
        return None
    layers = {
        kind: {at: float(client_count(row, kind)) for at, row in counted_rounds.items()}
        for kind in ("answered", "failed", "missing")
    }
    refused = [at for at in refused_rounds(rounds) if at in counted_rounds]
    return figures.stacked_chart("Clients by round", layers, (0, 1, 5), refused)


def partition_view(partition: Partition | None) -> dict[str, Any] | None:
    """Returns the partition's bars, table and a sentence on the held-out providers."""
    if partition is None or not partition.clients:
        return None
    bars = figures.partition_bars(partition.clients)
    trained = {name for held in partition.clients.values() for name in held}
    both = len(trained & partition.test.keys())
    documents, providers = sum(partition.test.values()), len(partition.test)
    test = (
        f"Held out: {counted(documents, 'document')} of {counted(providers, 'provider')}, "
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
        {"key": key, "column": column, **_cost(title, rounds, key, units, show)}
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
    chart = figures.stacked_chart(f"{title} by round, {unit}", scaled, shades)
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
