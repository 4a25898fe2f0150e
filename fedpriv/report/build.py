"""Run folder -> ``report.html``: one page that needs no network, no script and no other file.

A run leaves its folder in whatever state it was killed in, so every file but ``config.yaml`` may
be absent or broken: the page says what is missing, and shows the rest.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from importlib import resources
from pathlib import Path
from typing import Any, TypeGuard

import yaml
from jinja2 import Environment, StrictUndefined
from PIL import Image

from fedpriv.report import figures
from fedpriv.report.figures import Box, Chart, Curve, TaggedWord

Row = Mapping[str, Any]
"""One decoded line of a JSON file of the run."""

NOT_CURVES = frozenset({"round", "attempts", "accepted"})
NOT_SCORES = re.compile(
    r"(?:^|\W|_)(?:bytes|clip|clipped|count|delta|epsilon|examples|gradient|lr|norm|rate|scale|"
    r"seconds|sigma|std|steps?|temperature|time)(?:$|\W|_)"
)
"""Words of a metric's name that say it is no score, though its values may lie in [0, 1]."""

FIRST_METRICS = ("f1", "anls", "accuracy", "loss", "precision", "recall", "train_loss")
COST_SHADES = (0, 2, 4, 3, 5)
"""Without the colour that marks failed clients and refused rounds."""

MOST_FAILURES, MOST_REPORTED, MOST_TABLE_ROWS, MOST_TILES, MOST_PROBLEMS = 200, 8, 300, 6, 20


@dataclass(frozen=True)
class Partition:
    """Who holds what: client -> provider -> number of documents, and the held-out providers."""

    method: str
    clients: Mapping[str, Mapping[str, int]]
    test: Mapping[str, int]


@dataclass(frozen=True)
class Prediction:
    """One held-out page with its tags; `image` is a data URI, "" where there is no picture."""

    document: str
    words: tuple[TaggedWord, ...]
    image: str
    size: tuple[int, int]


@dataclass(frozen=True)
class Run:
    """What a run folder holds.

    Attributes:
        folder: the folder.
        config: the settings, empty where the file is no YAML mapping.
        config_text: the settings as text, without the versions.
        rounds: the lines of ``metrics.jsonl`` by round; a resumed run's later line counts.
        partition: None where there is none.
        failures: the lines of ``failures.jsonl``.
        prediction: None where there is none.
        problems: what could not be read, in words for the reader.
    """

    folder: Path
    config: Mapping[str, Any]
    config_text: str
    rounds: Mapping[int, Row]
    partition: Partition | None
    failures: Sequence[Row]
    prediction: Prediction | None
    problems: Sequence[str]


def write_report(run_dir: Path) -> Path:
    """Writes ``report.html`` into a run folder, in one step, and returns its path.

    Raises:
        ValueError: the folder holds no ``config.yaml``.
    """
    run = read_run(Path(run_dir))
    path = run.folder / "report.html"
    # JSON may carry lone surrogates, which UTF-8 has no bytes for.
    page = render(run).encode("utf-8", "replace")
    draft = path.with_name(f".report.{os.getpid()}.html")
    try:
        draft.write_bytes(page)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    return path


def render(run: Run) -> str:
    """Returns the page of a run as HTML."""
    template = resources.files("fedpriv.report").joinpath("page.html.j2").read_text("utf-8")
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(template).render(
        head=headline(run),
        curves=curve_charts(run.rounds),
        clients=client_chart(run.rounds),
        partition=partition_view(run.partition),
        prediction=prediction_view(run.prediction),
        failures=failures_view(run),
        cost=cost_view(run.rounds),
        settings=settings_view(run),
        problems=run.problems,
    )


# ---------------------------------------------------------------------------------- reading


def read_run(folder: Path) -> Run:
    """Returns what a run folder holds; what cannot be read is named in `Run.problems`."""
    if not (folder / "config.yaml").is_file():
        raise ValueError(f"{folder} is not a run folder: it holds no config.yaml")
    problems: list[str] = []
    config, text = _read_config(folder / "config.yaml", problems)
    rounds = {}
    for row in _read_lines(folder / "metrics.jsonl", problems):
        if _is_round(row.get("round")):
            rounds[row["round"]] = row
        else:
            problems.append("metrics.jsonl: a line without a round number was skipped")
    return Run(
        folder=folder,
        config=config,
        config_text=text,
        rounds=dict(sorted(rounds.items())),
        partition=_read_partition(folder / "partition.json", problems),
        failures=_read_lines(folder / "failures.jsonl", problems),
        prediction=_read_prediction(folder / "prediction.json", problems),
        problems=tuple(dict.fromkeys(problems))[:MOST_PROBLEMS],
    )


def _is_round(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**9


def _read_config(path: Path, problems: list[str]) -> tuple[Mapping[str, Any], str]:
    text = path.read_text("utf-8", "replace")
    try:
        config = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        problems.append(f"config.yaml is not valid YAML, and is shown as it is: {_brief(error)}")
        return {}, text
    if not isinstance(config, dict):
        problems.append("config.yaml holds no mapping, and is shown as it is")
        return {}, text
    shown = {key: value for key, value in config.items() if key != "versions"}
    return config, yaml.safe_dump(shown, sort_keys=False, allow_unicode=True, indent=2, width=100)


def _brief(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]


def _read_lines(path: Path, problems: list[str]) -> list[Row]:
    """Returns the objects of a JSON-lines file; a killed run's broken last line is left out."""
    if not path.is_file():
        return []
    lines = [line for line in path.read_text("utf-8", "replace").split("\n") if line.strip()]
    rows: list[Row] = []
    for at, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if isinstance(row, dict):
            rows.append(row)
        elif at < len(lines):
            problems.append(f"{path.name}: line {at} is no JSON object, and was skipped")
    return rows


def _read_json(path: Path, problems: list[str]) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    try:
        content = json.loads(path.read_text("utf-8", "replace"))
    except (ValueError, RecursionError) as error:
        problems.append(f"{path.name} is not valid JSON: {_brief(error)}")
        return None
    if isinstance(content, dict):
        return content
    problems.append(f"{path.name} holds no JSON object")
    return None


def _read_partition(path: Path, problems: list[str]) -> Partition | None:
    content = _read_json(path, problems)
    if content is None:
        return None
    try:
        clients = {
            str(client): _counts(providers) for client, providers in content["clients"].items()
        }
        return Partition(
            str(content.get("method") or ""), clients, _counts(content.get("test") or {})
        )
    except (AttributeError, KeyError, TypeError) as error:
        problems.append(f"partition.json is not client -> provider -> documents: {error!r:.200}")
        return None


def _counts(providers: Mapping[str, Sequence[str]]) -> dict[str, int]:
    return {str(provider): len(documents) for provider, documents in providers.items()}


def _read_prediction(path: Path, problems: list[str]) -> Prediction | None:
    content = _read_json(path, problems)
    if content is None:
        return None
    try:
        words = tuple(_read_word(word) for word in content["words"])
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        problems.append(
            f"prediction.json holds no list of words with boxes and tags: {error!r:.200}"
        )
        return None
    image, size = _read_picture(path.with_suffix(".png"), problems)
    return Prediction(str(content.get("document", "")), words, image, size)


def _read_word(word: Mapping[str, Any]) -> TaggedWord:
    x0, y0, x1, y1 = (float(side) for side in word["box"])
    if not all(map(math.isfinite, (x0, y0, x1, y1))):
        raise ValueError(f"box {word['box']}: expected four finite numbers")
    box: Box = (min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1))
    return TaggedWord(str(word["text"]), box, str(word["true"]), str(word["predicted"]))


def _read_picture(path: Path, problems: list[str]) -> tuple[str, tuple[int, int]]:
    if not path.is_file():
        return "", (0, 0)
    try:
        with Image.open(path) as image:
            return figures.image_uri(image), image.size
    # A broken PNG makes Pillow raise many kinds, SyntaxError and zlib.error among them.
    except Exception as error:
        problems.append(f"{path.name} cannot be shown: {_brief(error)}")
        return "", (0, 0)


# --------------------------------------------------------------------------------- headline


def show_value(value: float) -> str:
    """Returns a metric's value for a reader, three digits."""
    if not math.isfinite(value):
        return "not a number" if math.isnan(value) else f"{value}".replace("inf", "∞")
    return f"{value:.3f}" if value == 0 or 0.001 <= abs(value) < 1000 else f"{value:.3g}"


def show_rounds(rounds: Iterable[int]) -> str:
    """Returns "round 3" or "rounds 3, 5, 9", at most eight of them.

    >>> show_rounds([3, 5])
    'rounds 3, 5'
    """
    listed = sorted(set(rounds))
    named = ", ".join(map(str, listed[:MOST_REPORTED]))
    more = len(listed) - MOST_REPORTED
    return f"round{'s'[: len(listed) != 1]} {named}{f' and {more} more' if more > 0 else ''}"


def counted(number: int, noun: str) -> str:
    """Returns "1 client" or "1,200 clients"."""
    return f"{number:,} {noun}{'s'[: number != 1]}"


def headline(run: Run) -> dict[str, Any]:
    """Returns the top of the page: name, date, state, final metrics, sizes, warnings."""
    name = run.config.get("name")
    if not isinstance(name, str | int) or not str(name).strip():
        name = run.folder.resolve().name
    state, complete = run_state(run)
    return {
        "name": str(name),
        "date": _date(run.folder),
        "state": state,
        "complete": complete,
        "tiles": _tiles(run.rounds),
        "facts": _facts(run),
        "warnings": _warnings(run),
    }


def run_state(run: Run) -> tuple[str, bool]:
    """Returns how far the run came, in words, and whether that is to its end."""
    federation = run.config.get("federation")
    planned = run.config.get("rounds")
    if not _is_round(planned) and isinstance(federation, dict):
        planned = federation.get("rounds")
    done = max(run.rounds, default=0)
    if not _is_round(planned):
        return f"{counted(done, 'round')} done, number planned not recorded", False
    if done >= planned:
        return f"complete: {done} of {counted(planned, 'round')}", True
    if not done:
        return f"no round done of {planned}", False
    return f"interrupted after round {done} of {planned}", False


def _date(folder: Path) -> str:
    """Returns when the run began: from its folder's name, else from config.yaml's age."""
    found = re.search(
        r"(20\d\d)-?([01]\d)-?([0-3]\d)(?:[T_ -]?([0-2]\d)[-:.h]?([0-5]\d))?",
        folder.resolve().name,
    )
    if found:
        year, month, day, hour, minute = found.groups()
        return f"{year}-{month}-{day}" + (f" {hour}:{minute}" if hour else "")
    written = (folder / "config.yaml").stat().st_mtime
    return f"{datetime.fromtimestamp(written).astimezone():%Y-%m-%d %H:%M}"


@dataclass(frozen=True)
class Tile:
    """A final metric: its name, its last value, and a remark on round or best value."""

    label: str
    value: str
    note: str


def _tiles(rounds: Mapping[int, Row]) -> list[Tile]:
    groups = metric_groups(rounds)
    held = {**groups.scores, **groups.losses}
    order = [name for name in FIRST_METRICS if name in held]
    order += sorted(set(groups.scores) - set(order)) + sorted(set(groups.losses) - set(order))
    last_round = max(rounds, default=0)
    return [
        _tile(name, held[name], last_round, larger=name in groups.scores)
        for name in order[:MOST_TILES]
    ]


def _tile(name: str, curve: Curve, last_round: int, larger: bool) -> Tile:
    last = max(curve)
    sign = 1 if larger else -1
    finite = {at: value for at, value in curve.items() if math.isfinite(value)}
    notes = [] if last == last_round else [f"in round {last}"]
    if finite:
        best = max(finite, key=lambda at: sign * finite[at])
        if finite[best] != curve[last]:
            notes.append(f"best {show_value(finite[best])} in round {best}")
    return Tile(metric_label(name), show_value(curve[last]), ", ".join(notes))


def _facts(run: Run) -> list[tuple[str, str]]:
    """Returns (number, what it counts) for clients, providers and documents."""
    part = run.partition
    if part is None:
        sampled = max((_count(row, "sampled") for row in run.rounds.values()), default=0)
        return [(f"{sampled}", "clients in the largest round")] if sampled else []
    providers = {name for held in part.clients.values() for name in held}
    documents = sum(sum(held.values()) for held in part.clients.values())
    facts = [
        (f"{len(part.clients):,}", "client" + "s"[: len(part.clients) != 1]),
        (f"{len(providers):,}", "provider" + "s"[: len(providers) != 1]),
        (f"{documents:,}", "training document" + "s"[: documents != 1]),
    ]
    held_out = sum(part.test.values())
    return [*facts, (f"{held_out:,}", "held-out document" + "s"[: held_out != 1])]


def _count(row: Row, kind: str) -> int:
    """Returns how many clients of a round were "sampled", "answered", "failed" or "missing"."""
    clients = row.get("clients")
    value = clients.get(kind) if isinstance(clients, dict) else None
    return value if isinstance(value, int) and 0 < value < 10**9 else 0


def _warnings(run: Run) -> list[str]:
    warnings = []
    refused = refused_rounds(run.rounds)
    if refused:
        verb = "was" if len(refused) == 1 else "were"
        warnings.append(
            f"{counted(len(refused), 'round')} {verb} refused ({show_rounds(refused)})."
        )
    for kind, words in (("failed", "failed"), ("missing", "did not answer")):
        times = _unanswered(run, kind)
        if times:
            told = counted(sum(times.values()), "time")
            warnings.append(f"Clients {words} {told}, in {show_rounds(times)}.")
    broken = [name for name, curve in _all_curves(run.rounds).items() if not _all_finite(curve)]
    if broken:
        names = ", ".join(metric_label(name) for name in broken[:MOST_REPORTED])
        warnings.append(f"Some rounds have no finite value of: {names}.")
    if run.problems:
        warnings.append("Some of the run's files could not be read; Settings lists them.")
    return warnings


def _unanswered(run: Run, kind: str) -> dict[int, int]:
    """Returns, by round, how many clients were "failed" or "missing".

    `failures.jsonl` knows also the attempts that were repeated, and a round that never ended.
    """
    listed = Counter(
        row["round"]
        for row in run.failures
        if row.get("kind") == kind and _is_round(row.get("round"))
    )
    times = {
        at: max(_count(run.rounds.get(at, {}), kind), listed[at])
        for at in sorted({*run.rounds, *listed})
    }
    return {at: number for at, number in times.items() if number}


def _all_finite(curve: Curve) -> bool:
    return all(map(math.isfinite, curve.values()))


def refused_rounds(rounds: Mapping[int, Row]) -> list[int]:
    """Returns the rounds that the strategy did not accept."""
    return [at for at, row in rounds.items() if row.get("accepted") is False]


# ----------------------------------------------------------------------------------- curves


@dataclass
class MetricGroups:
    """The curves of a run by the chart they share; `by_type` is measure -> type -> curve."""

    losses: dict[str, Curve] = field(default_factory=dict)
    scores: dict[str, Curve] = field(default_factory=dict)
    by_type: dict[str, dict[str, Curve]] = field(default_factory=dict)
    others: dict[str, Curve] = field(default_factory=dict)


def metric_label(name: str) -> str:
    """Returns a metric's name for a reader.

    >>> metric_label("train_loss"), metric_label("f1"), metric_label("loss")
    ('train loss', 'F1', 'held-out loss')
    """
    known = {"loss": "held-out loss", "f1": "F1", "anls": "ANLS", "auc": "AUC"}
    return known.get(name) or name.replace("_", " ").strip() or "unnamed"


def _all_curves(rounds: Mapping[int, Row]) -> dict[str, Curve]:
    """Returns every numeric scalar of the run by round; null counts as absent."""
    curves: dict[str, dict[int, float]] = {}
    for at, row in rounds.items():
        for name, value in row.items():
            if name not in NOT_CURVES and type(value) in (int, float):
                curves.setdefault(name, {})[at] = _as_float(value)
    return dict(curves)


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def metric_groups(rounds: Mapping[int, Row]) -> MetricGroups:
    """Returns the curves, sorted into losses, scores in [0, 1], measures by type, and others."""
    groups = MetricGroups()
    for name, curve in _all_curves(rounds).items():
        measure, slash, kind = name.partition("/")
        if slash and measure and kind:
            groups.by_type.setdefault(measure, {})[kind] = curve
        elif "loss" in name.lower():
            groups.losses[name] = curve
        elif _in_unit_interval([curve]) and not NOT_SCORES.search(name.lower()):
            groups.scores[name] = curve
        else:
            groups.others[name] = curve
    return groups


def _in_unit_interval(curves: Iterable[Curve]) -> bool:
    return all(
        0 <= value <= 1 or not math.isfinite(value) for curve in curves for value in curve.values()
    )


def _labelled(curves: Mapping[str, Curve]) -> dict[str, Curve]:
    labelled: dict[str, Curve] = {}
    for name in sorted(curves):
        label = metric_label(name)
        labelled[name if label in labelled else label] = curves[name]
    return labelled


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
    small = [
        (metric_label(measure), measure in overall, _small_charts(curves, overall.get(measure, {})))
        for measure, curves in sorted(groups.by_type.items(), key=lambda item: item[0] != "f1")
    ]
    return {"large": large, "small": small, "rounds": len(rounds)}


def _small_charts(curves: Mapping[str, Curve], overall: Curve) -> list[tuple[Chart, str]]:
    """Returns a small chart per type with its last value."""
    rounds = [at for curve in curves.values() for at in curve]
    span = min(rounds), max(rounds)
    unit = _in_unit_interval([*curves.values(), overall])
    return [
        (figures.small_chart(kind, curve, overall, span, unit), show_value(curve[max(curve)]))
        for kind, curve in sorted(curves.items())
    ]


def client_chart(rounds: Mapping[int, Row]) -> Chart | None:
    """Returns the bars of answered, failed and missing clients; None where none were counted."""
    counted_rounds = {at: row for at, row in rounds.items() if isinstance(row.get("clients"), dict)}
    if not counted_rounds:
        return None
    layers = {
        kind: {at: float(_count(row, kind)) for at, row in counted_rounds.items()}
        for kind in ("answered", "failed", "missing")
    }
    refused = [at for at in refused_rounds(rounds) if at in counted_rounds]
    return figures.stacked_chart("Clients by round", layers, (0, 1, 5), refused)


# ----------------------------------------------------------- partition, page, failures, cost


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
    """Returns the page picture's rectangles and the table of entities."""
    if prediction is None:
        return None
    rows, row_of = figures.entity_rows(prediction.words)
    marks = figures.page_marks(prediction.words, row_of)
    counts = {
        status: sum(row.status == status for row in rows)
        for status in ("correct", "wrong", "missed", "spurious")
    }
    return {"page": prediction, "rows": rows, "marks": marks, "counts": counts}


def failures_view(run: Run) -> dict[str, Any]:
    """Returns the failures to list, how many there are, and the rounds that were repeated."""
    repeated = [at for at, row in run.rounds.items() if _attempts(row) > 1]
    unlisted = sum(
        _count(row, kind) for row in run.rounds.values() for kind in ("failed", "missing")
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


def _attempts(row: Row) -> int:
    value = row.get("attempts")
    return value if isinstance(value, int) else 1


def _text(value: object) -> str:
    return "" if value is None else str(value)


def show_seconds(seconds: float) -> str:
    """Returns a duration for a reader.

    >>> show_seconds(0.042), show_seconds(3.2), show_seconds(75), show_seconds(7_500)
    ('42 ms', '3.2 s', '1 min 15 s', '2 h 5 min')
    """
    if seconds < 0.9995:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60:,} h {minutes % 60} min"


_BYTE_UNITS = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "bytes"))
_TIME_UNITS = ((3600.0, "hours"), (60.0, "minutes"), (1.0, "seconds"))


def show_bytes(number: float) -> str:
    """Returns an amount of data for a reader, in powers of 1000.

    >>> show_bytes(123), show_bytes(4_560_000)
    ('123 bytes', '4.56 MB')
    """
    size, unit = _unit(number, _BYTE_UNITS)
    return f"{number / size:.3g} {unit}" if size > 1 else f"{number:.0f} {unit}"


def _unit(largest: float, units: Sequence[tuple[float, str]]) -> tuple[float, str]:
    return next((unit for unit in units if largest >= unit[0]), units[-1])


def cost_view(rounds: Mapping[int, Row]) -> list[dict[str, Any]]:
    """Returns chart and table of the seconds by phase and of the bytes by direction."""
    kinds = (
        ("Time", "seconds", "phase", _TIME_UNITS, show_seconds),
        ("Data", "bytes", "direction", _BYTE_UNITS, show_bytes),
    )
    views: list[dict[str, Any]] = []
    for title, key, column, units, show in kinds:
        layers = _layers(rounds, key)
        if not layers:
            views.append({"title": title, "chart": None, "key": key})
            continue
        totals = {name: sum(curve.values()) for name, curve in layers.items()}
        per_round = [sum(curve.get(at, 0) for curve in layers.values()) for at in rounds]
        size, unit = _unit(max(per_round), units)
        scaled = {
            name: {at: value / size for at, value in curve.items()}
            for name, curve in layers.items()
        }
        shades = [COST_SHADES[place % len(COST_SHADES)] for place in range(len(layers))]
        table = [
            (name, show(total), show(total / len(layers[name]))) for name, total in totals.items()
        ]
        if len(table) > 1:
            table.append(("all", show(sum(totals.values())), show(sum(per_round) / len(per_round))))
        chart = figures.stacked_chart(f"{title} by round, {unit}", scaled, shades)
        views.append({"title": title, "chart": chart, "column": column, "table": table})
    return views


def _layers(rounds: Mapping[int, Row], key: str) -> dict[str, dict[int, float]]:
    """Returns the finite numbers under `key` by name and round."""
    layers: dict[str, dict[int, float]] = {}
    for at, row in rounds.items():
        held = row.get(key)
        for name, value in held.items() if isinstance(held, dict) else ():
            if type(value) in (int, float) and 0 <= _as_float(value) < figures.OFF_SCALE:
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
