"""What was reconstructed of scrubbed fields: a sentence, tables, and CDMI's figures.

All is made of the numbers of `fedpriv.threat.scoring.reconstructions`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fedpriv.threat.results import Figure, Number, Table
from fedpriv.threat.scoring.summaries import NOTHING, digits
from fedpriv.threat.scoring.verdicts import in_words

SHARES = ("0.01", "0.05", "1.0")
"""At which AccAt is shown, as in CDMI's Table 5."""

MOST_PRINTED = 10
"""Perfect reconstructions that the terminal shows; the report shows all that are recorded."""

SIDES = ("attack", "baseline")

Numbers = Mapping[str, Any]


def headline(numbers: Numbers, gain: Number | None) -> str:
    """Returns how the first attempts compare with those at fields held out, in a sentence.

    Args:
        numbers: of the fields that were trained on.
        gain: the number of that name, of which the verdict is. None where all fields are public.
    """
    held_out = numbers["held_out"]
    control = f", {_ipf(held_out)} of fields held out" if held_out else ""
    factor = (
        f"IpF {_ipf(numbers)} of {numbers['fields']:,} fields with the model of "
        f"{numbers['target']}{control} (attempts: {numbers['attempts']}; ε = "
        f"{numbers['ipf_epsilon']:g}, {numbers['level']:.0%} interval)"
    )
    if gain is None:
        why = "every text is in another document too, so memory cannot be told from that"
        return f"{factor}; {why}"
    said = (
        f"share of right tokens {gain.value:+.3f} against the baseline, in fields whose text no "
        "other document has,"
    )
    if gain.control is None:
        why = "no such field of a document held out was attacked, so there is no control"
        return f"{factor}; {said} but {why} (data.test.fraction, controls)"
    return f"{in_words(gain, said)}; {factor}"


def notes(numbers: Numbers) -> Iterator[str]:
    """Yields what a reader of the improvement factor and of several attempts must know."""
    if numbers["mute"]:
        yield numbers["mute"]
    (mine, theirs), ipf = (numbers["pr"][side] for side in SIDES), numbers["ipf"]
    term, others = numbers["ipf_terms"]["pr"], numbers["ipf_by_epsilon"]
    if mine and not theirs:
        yield (
            f"the baseline is perfect nowhere, so that ε decides {term:.2f} of the IpF of {ipf:.2f}"
            f"; it would be {', '.join(f'{v:.2f} at ε = {e}' for e, v in others.items())}"
        )
    distinct, attempts = numbers["distinct_attempts"], numbers["attempts"]
    if attempts > 1:
        hardly = ", so that several attempts are hardly more than one" * (distinct < attempts / 2)
        yield f"the {attempts} attempts at a field are {distinct:.2f} different ones{hardly}"


def tables(numbers: Numbers) -> Iterator[Table]:
    """Yields the tables of terminal and report."""
    yield whose_table(numbers)
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
            **_curves(series, "ipf_held_out", "IpF, held out"),
            **{
                f"interval, {end} end": {
                    row["round"]: row["ipf_interval"][place]
                    for row in series
                    if row["ipf_interval"]
                }
                for place, end in enumerate(("lower", "upper"))
            },
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


def whose_table(numbers: Numbers) -> Table:
    """Returns the first attempts at fields trained on beside those at fields held out."""
    alone = numbers["not_public"] or {}
    rows = {
        "trained on": numbers,
        "held out": numbers["held_out"],
        "trained on, in no other document": alone,
        "held out, in no other document": alone.get("held_out"),
    }
    return Table(
        ("first attempts at fields", "fields", "documents", "IpF", "wrong", "PR"),
        tuple(
            (
                name,
                f"{row['fields']:,}",
                f"{row['documents']:,}",
                _ipf(row),
                _digits(row["ham"]),
                _digits(row["pr"]),
            )
            for name, row in rows.items()
            if row
        ),
        note="IpF: 1 is what public knowledge alone gives, and what fields held out get is no "
        "memory. Wrong: share of a field's tokens. PR: share of perfect ones. In parentheses: the "
        "baseline. Intervals leave out one document at a time.",
        public=True,
    )


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
        "of. Intervals of differences are by bootstrap over documents.",
        public=True,
    )


def first_table(numbers: Numbers) -> Table:
    """Returns the four measures of the first attempts, of attack and baseline (CDMI, §5.2)."""
    names = ("pr", "hd", "ld", "jwd")
    return Table(
        ("first attempts", *map(str.upper, names)),
        tuple((side, *(_digits(numbers[name][side]) for name in names)) for side in SIDES),
        note="PR: the share of perfect reconstructions. Distances, the smaller the better: HD, "
        "wrong tokens; LD, Levenshtein; JWD, Jaro-Winkler, both from 0 to 1.",
        public=True,
    )


def key_table(numbers: Numbers) -> Table:
    """Returns a row for each label, and one for what the public documents do not hold."""
    alone = numbers["not_public"]
    groups = {**numbers["by_key"], **({"in no other document": alone} if alone else {})}
    rows = tuple(
        (
            key,
            str(row["fields"]),
            _ipf(row),
            _ipf(row["held_out"]) if row["held_out"] else NOTHING,
            *(_digits(row["pr"][side]) for side in SIDES),
        )
        for key, row in groups.items()
    )
    headings = ("first attempts by key", "fields", "IpF", "held out", "PR", "of the baseline")
    return Table(headings, rows, printed=0, public=True)


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
        ("round", "IpF", "held out", "AccAUC", "HamAAC", "PR", "loss", "score"),
        tuple(
            (
                str(row["round"]),
                _ipf(row),
                _digits(row.get("ipf_held_out")),
                *(_digits(row.get(name)) for name in names),
            )
            for row in series
        ),
        note="In parentheses: the baseline.",
        public=True,
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
    between = numbers["ipf_interval"]
    return f"{numbers['ipf']:.3f}{f' {_interval(between)}' if between else ''}"


def _interval(interval: Sequence[float], sign: str = "") -> str:
    low, high = interval
    return f"[{low:{sign}.3f}, {high:{sign}.3f}]"


def _digits(value: float | Mapping[str, float] | None) -> str:
    if isinstance(value, Mapping):
        return f"{value['attack']:.3f} ({value['baseline']:.3f})"
    return digits(value, ".3f")
