"""What was reconstructed of scrubbed fields: a sentence, tables, and CDMI's figures.

All is made of the numbers of `fedpriv.threat.scoring.reconstructions`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fedpriv.threat.results import Figure, Table
from fedpriv.threat.scoring.summaries import digits

SHARES = ("0.01", "0.05", "1.0")
"""At which AccAt is shown, as in CDMI's Table 5."""

MOST_PRINTED = 10
"""Perfect reconstructions that the terminal shows; the report shows all that are recorded."""

SIDES = ("attack", "baseline")

Numbers = Mapping[str, Any]


def headline(numbers: Numbers) -> str:
    """Returns how the first attempts compare with the baseline's, in a sentence."""
    low, high = numbers["ipf_interval"]
    than = "better than" if low > 1 else "worse than" if high < 1 else "not told from"
    mine, theirs = (numbers["pr"][side] for side in SIDES)
    return (
        f"IpF {_ipf(numbers)}, {than} the baseline: with the model of {numbers['target']}, "
        f"{mine:.1%} of the first attempts are perfect, without it {theirs:.1%} "
        f"(fields: {numbers['fields']:,}, documents: {numbers['documents']:,}, attempts: "
        f"{numbers['attempts']}; ε = {numbers['ipf_epsilon']:g}, {numbers['level']:.0%} interval)"
    )


def tables(numbers: Numbers) -> Iterator[Table]:
    """Yields the tables of terminal and report."""
    yield sorted_table(numbers)
    yield first_table(numbers)
    yield key_table(numbers)
    yield perfect_table(numbers)
    if numbers["series"]:
        yield series_table(numbers["series"])


def figures(numbers: Numbers, over_p: Mapping[str, Any]) -> Iterator[Figure]:
    """Yields HamAt, AccAt and the areas (CDMI, Fig. 6), and the curves of a series (Fig. 7).

    Args:
        numbers: of the last model.
        over_p: AccAt and HamAt over p.
    """
    titles = {"ham_at": "HamAt(p), wrong tokens", "acc_at": "AccAt(p), perfect reconstructions"}
    for name, title in titles.items():
        shares = {side: [over_p["p"], over_p[name][side]] for side in SIDES}
        yield Figure("shares", title, {"curves": shares})
    at = numbers["acc_at"]
    values = (numbers["ham_aac"], numbers["acc_auc"], *(at[p] for p in SHARES))
    labels = ("HamAAC", "AccAUC", *(f"AccAt\n{float(p):.0%}" for p in SHARES))
    bars = {
        side: {label: float(value[side]) for label, value in zip(labels, values, strict=True)}
        for side in SIDES
    }
    yield Figure("bars", "Sorted reconstructions: the higher, the more was learnt", {"bars": bars})
    series = numbers["series"]
    panels = {
        "Validation loss": _curves(series, "loss", "Validation loss"),
        "Validation score": _curves(series, "score", "Validation score"),
        "Improvement factor": {
            **_curves(series, "ipf", "IpF"),
            "interval, lower end": {row["round"]: row["ipf_interval"][0] for row in series},
            "interval, upper end": {row["round"]: row["ipf_interval"][1] for row in series},
        },
        "Perfect first attempts": _curves(series, "pr", "PR"),
        "Sorted reconstructions": {
            **_curves(series, "acc_auc", "AccAUC"),
            **_curves(series, "ham_aac", "HamAAC"),
        },
    }
    for title, curves in panels.items():
        if any(curves.values()):
            yield Figure("lines", title, {"curves": curves, "x": "round"})


def sorted_table(numbers: Numbers) -> Table:
    """Returns attack, baseline and their gap, and a row for each membership metric (Table 5)."""
    chosen, at = numbers["membership"], numbers["acc_at"]
    attack, baseline = (
        [numbers["ham_aac"][side], numbers["acc_auc"][side], *(at[p][side] for p in SHARES)]
        for side in SIDES
    )
    others = {
        name: [row["ham_aac"], row["acc_auc"], *(row["acc_at"][p] for p in SHARES)]
        for name, row in numbers["by_membership"].items()
        if name != chosen
    }
    gaps = (_interval(numbers[f"{name}_gain_interval"], "+") for name in ("ham_aac", "acc_auc"))
    return Table(
        ("", "IpF", "HamAAC", "AccAUC", *(f"AccAt {float(p):.0%}" for p in SHARES)),
        (
            (f"attack, sorted by {chosen}", _ipf(numbers), *map(_digits, attack)),
            ("baseline", "1", *map(_digits, baseline)),
            ("attack - baseline", "", *gaps, *[""] * len(SHARES)),
            *((f"attack, sorted by {n}", "", *map(_digits, row)) for n, row in others.items()),
        ),
        note="IpF is of the first attempt at each field: 1 is what public knowledge alone gives. "
        "For the rest, the attempt that the attack is surest of stands for each field. AccAt p: "
        "the share of perfect reconstructions among the share p of the fields that it is surest "
        "of. Intervals are by bootstrap over documents.",
    )


def first_table(numbers: Numbers) -> Table:
    """Returns the four measures of the first attempts, of attack and baseline (CDMI, §5.2)."""
    names = ("pr", "hd", "ld", "jwd")
    return Table(
        ("first attempts", *map(str.upper, names)),
        tuple((side, *(_digits(numbers[name][side]) for name in names)) for side in SIDES),
        note="PR: the share of perfect reconstructions. Distances, the smaller the better: HD, "
        "wrong tokens; LD, Levenshtein; JWD, Jaro-Winkler, both from 0 to 1.",
    )


def key_table(numbers: Numbers) -> Table:
    """Returns a row for each label, and one for what the public documents do not hold."""
    alone = numbers["not_public"]
    groups = {**numbers["by_key"], **({"in no public document": alone} if alone else {})}
    rows = tuple(
        (key, str(row["fields"]), *map(_digits, (row["ipf"], *(row["pr"][s] for s in SIDES))))
        for key, row in groups.items()
    )
    headings = ("first attempts by key", "fields", "IpF", "PR", "PR of the baseline")
    return Table(headings, rows, printed=0)


def perfect_table(numbers: Numbers) -> Table:
    """Returns the perfect reconstructions, surest first (CDMI, Table 3)."""
    names = ("text", "key", "length", "occurrences", "public", "rank")
    rows = tuple(
        (*(str(one[name]) for name in names), "yes" if one["baseline"] else "no")
        for one in numbers["perfect"]
    )
    return Table(
        ("perfect", "key", "tokens", "trained on", "public", "rank", "baseline too"),
        rows,
        note="Trained on, public: documents that hold the text as such a field."
        if rows
        else "None of the chosen attempts is perfect.",
        printed=MOST_PRINTED,
    )


def series_table(series: Sequence[Numbers]) -> Table:
    """Returns a row for each round whose model was attacked (CDMI, Fig. 7)."""
    names = ("acc_auc", "ham_aac", "pr", "loss", "score")
    return Table(
        ("round", "IpF", "AccAUC", "HamAAC", "PR", "loss", "score"),
        tuple(
            (str(row["round"]), _ipf(row), *(_digits(row.get(name)) for name in names))
            for row in series
        ),
        note="In parentheses: the baseline.",
    )


def _curves(series: Sequence[Numbers], name: str, label: str) -> dict[str, dict[int, float]]:
    """Returns a number by round, and the baseline's beside it where the rows have both."""
    curves: dict[str, dict[int, float]] = {}
    for row in series:
        value = row.get(name)
        sides = value if isinstance(value, Mapping) else {"": value}
        for side, number in sides.items():
            if number is not None:
                curves.setdefault(f"{label} {side}".strip(), {})[row["round"]] = float(number)
    return curves


def _ipf(numbers: Numbers) -> str:
    return f"{numbers['ipf']:.3f} {_interval(numbers['ipf_interval'])}"


def _interval(interval: Sequence[float], sign: str = "") -> str:
    low, high = interval
    return f"[{low:{sign}.3f}, {high:{sign}.3f}]"


def _digits(value: float | Mapping[str, float] | None) -> str:
    if isinstance(value, Mapping):
        return f"{value['attack']:.3f} ({value['baseline']:.3f})"
    return digits(value, ".3f")
