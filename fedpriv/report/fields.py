"""What was reconstructed of scrubbed fields: tables for terminal and report, and CDMI's figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedpriv.report import figures
from fedpriv.report.figures import Chart
from fedpriv.report.folder import Found
from fedpriv.report.rounds import Curve
from fedpriv.report.wording import aligned, counted

SHARES = ("0.01", "0.05", "1.0")
"""At which AccAt is shown, as in CDMI's Table 5."""

MOST_PRINTED = 10
"""Perfect reconstructions that the terminal shows; the report shows all that are recorded."""

LONGEST_TEXT = 60
"""Characters of a reconstruction in a terminal."""

Row = Sequence[str]

_UNKNOWN = (LookupError, TypeError, ValueError, AttributeError, OverflowError)
"""What numbers that are not of our shape lead to."""


@dataclass(frozen=True)
class Table:
    """Rows of texts under headings, and what a reader must know of them."""

    headings: Row
    rows: Sequence[Row]
    note: str = ""


@dataclass(frozen=True)
class Reconstructed:
    """One attack on scrubbed fields as the report shows it."""

    name: str
    summary: str
    tables: Sequence[Table] = ()
    charts: Sequence[Chart] = ()
    perfect: Table | None = None
    left_out: Sequence[str] = ()
    assumptions: Sequence[str] = ()
    notes: Sequence[str] = ()


def is_of_fields(metrics: Mapping[str, Any]) -> bool:
    """Says whether an attack's metrics are those of an attack on scrubbed fields."""
    return "ipf" in metrics


def fields_view(found: Sequence[Found]) -> list[Reconstructed]:
    """Returns each attack on fields for the report; says so where its numbers are not ours."""
    shown: list[Reconstructed] = []
    for one in found:
        try:
            if is_of_fields(one.metrics):
                shown.append(_reconstructed(one))
        except _UNKNOWN as error:
            shown.append(Reconstructed(one.name, _not_ours(error)))
    return shown


def lines(metrics: Mapping[str, Any]) -> Iterator[str]:
    """Yields the tables of an attack on fields as text, for a terminal."""
    try:
        yield from list(_lines(metrics))
    except _UNKNOWN as error:
        yield _not_ours(error)


def _lines(metrics: Mapping[str, Any]) -> Iterator[str]:
    yield summary(metrics)
    for table in (sorted_table(metrics), first_table(metrics)):
        yield from aligned([table.headings, *table.rows])
    perfect = perfect_table(metrics)
    printed = [tuple(map(_plain, row)) for row in perfect.rows[:MOST_PRINTED]]
    yield from aligned([perfect.headings, *printed])
    if len(perfect.rows) > MOST_PRINTED:
        yield f"and {len(perfect.rows) - MOST_PRINTED} more perfect reconstructions in metrics.json"
    rounds = series_table(metrics)
    yield from aligned([rounds.headings, *rounds.rows])


def summary(metrics: Mapping[str, Any]) -> str:
    """Returns what was attacked, in a sentence without its full stop."""
    target = f" of {metrics['target']}" if metrics.get("target") else ""
    return (
        f"{counted(metrics['fields'], 'field')} in {counted(metrics['documents'], 'document')}"
        f"{target}, {counted(metrics['attempts'], 'attempt')} at each; IpF with ε = "
        f"{metrics['ipf_epsilon']:g}; in brackets {metrics['level']:.0%} intervals, by bootstrap "
        "over documents"
    )


def sorted_table(metrics: Mapping[str, Any]) -> Table:
    """Returns attack, baseline and their gap, and a row for each membership metric (Table 5)."""
    chosen, at = metrics["membership"], metrics["acc_at"]
    attack, baseline = (
        [metrics["ham_aac"][side], metrics["acc_auc"][side], *(at[p][side] for p in SHARES)]
        for side in ("attack", "baseline")
    )
    others = {
        name: [row["ham_aac"], row["acc_auc"], *(row["acc_at"][p] for p in SHARES)]
        for name, row in metrics["by_membership"].items()
        if name != chosen
    }
    gaps = (_interval(metrics[f"{name}_gain_interval"], "+") for name in ("ham_aac", "acc_auc"))
    rows = [
        (f"attack, sorted by {chosen}", _ipf(metrics), *map(_digits, attack)),
        ("baseline", "1", *map(_digits, baseline)),
        ("attack - baseline", "", *gaps, *[""] * len(SHARES)),
        *((f"attack, sorted by {name}", "", *map(_digits, row)) for name, row in others.items()),
    ]
    return Table(
        ("", "IpF", "HamAAC", "AccAUC", *(f"AccAt {float(p):.0%}" for p in SHARES)),
        rows,
        "IpF is of the first attempt at each field: 1 is what public knowledge alone gives. For "
        "the rest, the attempt that the attack is surest of stands for each field. AccAt p: the "
        "share of perfect reconstructions among the share p of the fields that it is surest of.",
    )


def first_table(metrics: Mapping[str, Any]) -> Table:
    """Returns the four measures of the first attempts, of attack and baseline (CDMI, §5.2)."""
    names = ("PR", "HD", "LD", "JWD")
    rows = [
        (side, *(_digits(metrics[name.lower()][side]) for name in names))
        for side in ("attack", "baseline")
    ]
    note = (
        "PR: the share of perfect reconstructions. Distances, the smaller the better: HD, wrong "
        "tokens; LD, Levenshtein; JWD, Jaro-Winkler, both from 0 to 1."
    )
    return Table(("first attempts", *names), rows, note)


def key_table(metrics: Mapping[str, Any]) -> Table:
    """Returns a row for each label of fields."""
    rows = [
        (
            str(key),
            str(row["fields"]),
            *map(_digits, (row["ipf"], row["pr"]["attack"], row["pr"]["baseline"])),
        )
        for key, row in _groups(metrics).items()
    ]
    return Table(("first attempts by key", "fields", "IpF", "PR", "PR of the baseline"), rows)


def _groups(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields by key, and those that the adversary cannot know from public documents."""
    alone = metrics.get("not_public")
    return {**metrics["by_key"], **({"in no public document": alone} if alone else {})}


def perfect_table(metrics: Mapping[str, Any]) -> Table:
    """Returns the perfect reconstructions, surest first (CDMI, Table 3)."""
    rows = [
        (
            *(
                str(one[name])
                for name in ("text", "key", "length", "occurrences", "public", "rank")
            ),
            "yes" if one["baseline"] else "no",
        )
        for one in metrics["perfect"]
    ]
    headings = ("perfect", "key", "tokens", "trained on", "public", "rank", "baseline too")
    note = (
        "Trained on, public: documents that hold the text as such a field."
        if rows
        else "None of the chosen attempts is perfect."
    )
    return Table(headings, rows, note)


def series_table(metrics: Mapping[str, Any]) -> Table:
    """Returns a row for each round whose model was attacked (CDMI, Fig. 7)."""
    rows = [
        (
            str(row["round"]),
            _ipf(row),
            *(_digits(row.get(name)) for name in ("acc_auc", "ham_aac", "pr", "loss", "score")),
        )
        for row in metrics.get("series") or ()
    ]
    headings = ("round", "IpF", "AccAUC", "HamAAC", "PR", "loss", "score")
    return Table(headings, rows, "In parentheses: the baseline." if rows else "")


def _reconstructed(found: Found) -> Reconstructed:
    metrics = found.metrics
    return Reconstructed(
        found.name,
        summary(metrics),
        [make(metrics) for make in (sorted_table, first_table, key_table, series_table)],
        [*_over_p(found.over_p), _bars(metrics), *_over_rounds(metrics.get("series") or ())],
        perfect_table(metrics),
        [f"{number} {why}" for why, number in (metrics.get("left_out") or {}).items() if number],
        [str(line) for line in metrics.get("assumptions") or ()],
        [str(line) for line in metrics.get("notes") or ()],
    )


def _over_p(curves: Mapping[str, Any]) -> list[Chart]:
    """Returns HamAt and AccAt over p, against the baseline (CDMI, Fig. 6)."""
    titles = {"ham_at": "HamAt(p), wrong tokens", "acc_at": "AccAt(p), perfect reconstructions"}
    return [
        figures.share_chart(
            title, {side: (curves["p"], curves[name][side]) for side in ("attack", "baseline")}
        )
        for name, title in titles.items()
        if name in curves
    ]


def _bars(metrics: Mapping[str, Any]) -> Chart:
    """Returns the measures of the sorted reconstructions side by side (CDMI, Fig. 6)."""
    at = metrics["acc_at"]
    values = (metrics["ham_aac"], metrics["acc_auc"], *(at[p] for p in SHARES))
    labels = ("HamAAC", "AccAUC", *(f"AccAt\n{float(p):.0%}" for p in SHARES))
    bars = {
        side: {label: float(value[side]) for label, value in zip(labels, values, strict=True)}
        for side in ("attack", "baseline")
    }
    return figures.bar_chart("Sorted reconstructions: the higher, the more was learnt", bars)


def _over_rounds(series: Sequence[Mapping[str, Any]]) -> list[Chart]:
    """Returns the curves over the rounds whose models were attacked (CDMI, Fig. 7)."""
    low, high = ({row["round"]: row["ipf_interval"][end] for row in series} for end in (0, 1))
    panels = {
        "Validation loss": _curves(series, "loss", "Validation loss"),
        "Validation score": _curves(series, "score", "Validation score"),
        "Improvement factor": {
            **_curves(series, "ipf", "IpF"),
            "interval, lower end": low,
            "interval, upper end": high,
        },
        "Perfect first attempts": _curves(series, "pr", "PR"),
        "Sorted reconstructions": {
            **_curves(series, "acc_auc", "AccAUC"),
            **_curves(series, "ham_aac", "HamAAC"),
        },
    }
    return [
        figures.line_chart(title, curves)
        for title, curves in panels.items()
        if any(curves.values())
    ]


def _curves(series: Sequence[Mapping[str, Any]], name: str, label: str) -> dict[str, Curve]:
    """Returns a number by round, and the baseline's beside it where the rows have both."""
    curves: dict[str, dict[int, float]] = {}
    for row in series:
        value = row.get(name)
        sides = value if isinstance(value, Mapping) else {"": value}
        for side, number in sides.items():
            if number is not None:
                curves.setdefault(f"{label} {side}".strip(), {})[row["round"]] = float(number)
    return dict(curves)


def _ipf(metrics: Mapping[str, Any]) -> str:
    return f"{metrics['ipf']:.3f} {_interval(metrics['ipf_interval'])}"


def _interval(interval: Sequence[float], sign: str = "") -> str:
    low, high = interval
    return f"[{low:{sign}.3f}, {high:{sign}.3f}]"


def _digits(value: float | Mapping[str, float] | None) -> str:
    if value is None:
        return "—"
    if isinstance(value, Mapping):
        return f"{value['attack']:.3f} ({value['baseline']:.3f})"
    return f"{value:.3f}"


def _plain(text: str) -> str:
    """Returns a text of a document without what would steer a terminal, and not too long."""
    printable = "".join(letter if letter.isprintable() else " " for letter in text)
    return printable if len(printable) <= LONGEST_TEXT else f"{printable[: LONGEST_TEXT - 1]}…"


def _not_ours(error: Exception) -> str:
    return f"its findings cannot be shown: {error!r:.100}"
