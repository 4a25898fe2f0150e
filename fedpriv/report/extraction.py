"""What training answers a model gave away: tables and pictures in the shape of Pinto et al.'s."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedpriv.report import extraction_charts as drawn
from fedpriv.report.figures import Chart
from fedpriv.report.folder import Found
from fedpriv.report.summary import Tile
from fedpriv.report.wording import aligned, counted
from fedpriv.threat.scoring.exposure import expected_exposure

FEW = 0.05
"""|M| under a defence ÷ |M| without, up to which almost nothing is left."""

COUNTS = ("E", "G", "M", "pii", "unique_pii")
HEADINGS = ("|E|", "|G|", "|M|", "PII in M", "unique PII")

STRATEGIES = {"fedavg": "FedAvg", "feam_dp": "FeAm-DP", "fl_provider_dp": "FL-PROVIDER-DP"}
"""As papers write them."""

Metrics = Mapping[str, Any]
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
class Part:
    """One of a study's questions: sentences, tables and pictures; `wide` ones fill the page."""

    heading: str
    said: Sequence[str] = ()
    tables: Sequence[Table] = ()
    charts: Sequence[Chart] = ()
    wide: Sequence[Chart] = ()


@dataclass(frozen=True)
class Extracted:
    """One study of extraction as the report shows it."""

    name: str
    summary: str
    parts: Sequence[Part] = ()
    assumptions: Sequence[str] = ()
    notes: Sequence[str] = ()


def is_of_extraction(metrics: Metrics) -> bool:
    """Says whether metrics are those of an extraction study, or of an audit by exposure."""
    return {"E", "G", "M"} <= metrics.keys() or isinstance(metrics.get("exposure"), Mapping)


def extraction_view(found: Sequence[Found]) -> list[Extracted]:
    """Returns each study for the report; says so where its numbers are not ours."""
    shown: list[Extracted] = []
    for one in found:
        try:
            if is_of_extraction(one.metrics):
                shown.append(_extracted(one))
        except _UNKNOWN as error:
            shown.append(Extracted(one.name, _not_ours(error)))
    return shown


def lines(metrics: Metrics) -> list[str]:
    """Returns the tables of a study as text, for a terminal."""
    try:
        return list(_lines(metrics))
    except _UNKNOWN as error:
        return [_not_ours(error)]


def _lines(metrics: Metrics) -> Iterator[str]:
    yield summary(metrics)
    for part in _parts(metrics):
        for table in part.tables:
            yield from aligned([table.headings, *table.rows])
        yield from part.said


def _extracted(found: Found) -> Extracted:
    metrics, scores = found.metrics, found.scores
    pictures = {
        "sizes": drawn.size_charts(metrics),
        "resolutions": drawn.resolution_charts(metrics.get("resolutions") or {}),
        "exposure": drawn.exposure_charts(_audits(metrics)),
    }
    wide = {
        "scores": drawn.score_charts(metrics, scores),
        "contexts": drawn.context_charts(metrics),
    }
    parts = [
        Part(part.heading, part.said, part.tables, pictures.get(key, ()), wide.get(key, ()))
        for key, part in _keyed_parts(metrics).items()
    ]
    return Extracted(
        found.name,
        summary(metrics),
        parts,
        [str(line) for line in metrics.get("assumptions") or ()],
        [str(line) for line in metrics.get("notes") or ()],
    )


def study_tiles(found: Sequence[Found]) -> list[Tile]:
    """Returns the sizes of the sets for the top of a study's page."""
    for one in found:
        if {"E", "G", "M"} <= one.metrics.keys():
            values = zip(HEADINGS, (one.metrics.get(name) for name in COUNTS), strict=True)
            return [Tile(name, f"{value}", "") for name, value in values if type(value) is int]
    return []


def _parts(metrics: Metrics) -> list[Part]:
    return list(_keyed_parts(metrics).values())


def _keyed_parts(metrics: Metrics) -> dict[str, Part]:
    """Returns the parts that the study has numbers for."""
    parts = {
        "sizes": (sizes_part, "E"),
        "resolutions": (resolutions_part, "resolutions"),
        "scores": (scores_part, "memorization"),
        "contexts": (contexts_part, "contexts"),
        "defences": (defences_part, "defences"),
        "side": (side_channel_part, "side_channel"),
        "controls": (controls_part, "controls"),
        "exposure": (exposure_part, "exposure"),
    }
    return {
        key: make(metrics)
        for key, (make, section) in parts.items()
        if metrics.get(section) not in (None, {})
    }


def summary(metrics: Metrics) -> str:
    """Returns what was studied, in one sentence."""
    canaries = metrics.get("canaries") or {}
    target = metrics.get("target")
    told = [
        str(metrics.get("model") or ""),
        {"final": "attacked after its last round", "loss": "attacked where its loss is lowest"}.get(
            str(target), f"attacked: {target}" if target else ""
        ),
        f"{canaries['kept']:,} canaries" if "kept" in canaries else "",
        f"{canaries['planted']:,} of them planted" if canaries.get("planted") else "",
        counted(metrics["splits"], "split") if metrics.get("splits") else "",
    ]
    return (", ".join(filter(None, told)) or "Exposure of planted secrets") + "."


def sizes_part(metrics: Metrics) -> Part:
    """Returns |E|, |G|, |M| of all canaries and by repeat count (Pinto et al., Figs. 3 and 4)."""
    canaries = metrics.get("canaries") or {}
    rows = [
        ("all", _count(canaries.get("kept")), *_counts(metrics)),
        *(
            (f"trained on {_times(count)}", _count(row["canaries"]), *_counts(row))
            for count, row in (metrics.get("by_repeats") or {}).items()
        ),
    ]
    said = []
    classes = metrics.get("pii_classes") or {}
    if classes:
        said.append(f"Personal information in M: {_listed(classes)}.")
    dropped = canaries.get("dropped") or {}
    if dropped:
        said.append(f"Of {canaries.get('drawn', '?')} drawn were left out: {_listed(dropped)}.")
    note = (
        "E: answers said by the model though the page no longer has them; G: by a model that was "
        "trained without the canaries; M = E ∖ G. Unique: no other training sample has the answer."
    )
    return Part(
        "Extracted answers", said, [Table(("extracted", "canaries", *HEADINGS), rows, note)]
    )


def resolutions_part(metrics: Metrics) -> Part:
    """Returns the same by training resolution, with ANLS."""
    rows = [
        (str(name), *_counts(row), _digits(row.get("anls")))
        for name, row in metrics["resolutions"].items()
    ]
    return Part("By training resolution", (), [Table(("pixels", *HEADINGS, "ANLS"), rows)])


def scores_part(metrics: Metrics) -> Part:
    """Returns M_E of all, of M, of G and by repeat count, what chance gives, and S_E."""
    scores = metrics["memorization"]
    null = scores.get("null")
    rows = [
        ("M_E, all", _interval(scores), _count(scores.get("count"))),
        *(
            (
                f"M_E in {name}",
                _interval(scores[f"of_{name}"]),
                _count(scores[f"of_{name}"]["count"]),
            )
            for name in ("M", "G")
            if scores.get(f"of_{name}")
        ),
        *(
            (f"M_E, trained on {_times(count)}", _interval(row), _count(row.get("count")))
            for count, row in (scores.get("by_repeats") or {}).items()
        ),
        *([("chance: models without it, halved at random", _interval(null), "")] if null else []),
        *(
            [("S_E, all", _interval(metrics["simplicity"]), "")]
            if metrics.get("simplicity")
            else []
        ),
    ]
    note = (
        "In brackets 95 % intervals; that of the models which never saw the canary is where their "
        "mean lies by chance."
    )
    table = Table(("scores", "mean", "canaries"), rows, note)
    return Part("Memorization and simplicity", _rank_said(scores), [table])


def _rank_said(scores: Metrics) -> list[str]:
    said = []
    ranks = scores.get("rank_test") or {}
    if ranks.get("p") is not None:
        said.append(
            f"M_E of a sample of M is above that of one of G in {ranks['auc']:.0%} of the pairs, "
            f"p = {ranks['p']:.2g} ({ranks['M']} against {ranks['G']})."
        )
    elif ranks:
        said.append(
            f"Whether M_E is higher in M than in G cannot be tested: {ranks['M']} samples against "
            f"{ranks['G']}."
        )
    if scores.get("p") is not None:
        said.append(
            "Had other canaries been drawn into each split, the mean M_E would be as high with "
            f"p = {scores['p']:.2g}."
        )
    return said


def contexts_part(metrics: Metrics) -> Part:
    """Returns what less than the redacted page extracts (Pinto et al., Fig. 6)."""
    rows = [
        (_name(name), _count(row.get("asked")), *_counts(row))
        for name, row in metrics["contexts"].items()
    ]
    return Part("Contexts", (), [Table(("context", "asked", *HEADINGS), rows)])


def defences_part(metrics: Metrics) -> Part:
    """Returns the tables of the defences (Pinto et al., Tables 1 and 2) and the check of EB."""
    tables = [change_table(metrics), defence_table(metrics)]
    if (metrics["defences"].get("EB") or {}).get("contexts"):
        tables.append(blocked_table(metrics))
    return Part("Defences", blocking_said(metrics["defences"]), tables)


def change_table(metrics: Metrics) -> Table:
    """Returns the change in ANLS, in points of 100, and |M|, in one row (Pinto et al., Table 1)."""
    defences = dict(metrics["defences"])
    without = defences.pop("none", {})
    cells = [
        f"{_points(row.get('anls_change'))} / {_count(row.get('M'))}" for row in defences.values()
    ]
    headings = ("ΔANLS / |M|", "ANLS / |M| without", *map(str, defences))
    first = f"{_points(without.get('anls'), '')} / {_count(without.get('M'))}"
    return Table(headings, [(str(metrics.get("model") or "model"), first, *cells)])


def defence_table(metrics: Metrics) -> Table:
    """Returns a row for each defence."""
    rows = [
        (
            str(name),
            *_counts(row),
            _digits(row.get("anls")),
            _points(row.get("anls_change")),
            f"ε = {row['epsilon']:.3g}, δ = {row['delta']:.2g}" if row.get("epsilon") else "",
        )
        for name, row in metrics["defences"].items()
    ]
    note = (
        "PR, AR: a random number before or after the question; ITP: the question paraphrased; EB: "
        "training samples whose page lacks the answer; DP: differentially private training. Change "
        "of ANLS in points of 100."
    )
    return Table(("defence", *HEADINGS, "ANLS", "change", "privacy"), rows, note)


def blocked_table(metrics: Metrics) -> Table:
    """Returns |M| and PII by context, without and with EB (Pinto et al., Table 2)."""
    plain = metrics.get("contexts") or {}
    rows = [
        (_name(name), *(_pair(side) for side in (plain.get(name) or {}, row)))
        for name, row in metrics["defences"]["EB"]["contexts"].items()
    ]
    note = "|M| / PII in M. EB is trained on the pages without their answer only, no other context."
    return Table(("context", "without defence", "EB"), rows, note)


def blocking_said(defences: Metrics) -> list[str]:
    """Says whether EB brings |M| to about 0 without losing ANLS."""
    blocked, plain = defences.get("EB") or {}, defences.get("none") or {}
    left, before, change = blocked.get("M"), plain.get("M"), blocked.get("anls_change")
    if left is None or not before:
        return []
    kept = "" if change is None else f", ANLS changes by {_points(change)} points"
    if left > FEW * before:
        verdict = "Extraction blocking does not stop the extraction"
    elif change is not None and change < 0:
        verdict = "Extraction blocking stops the extraction, at a cost"
    else:
        verdict = "Extraction blocking stops the extraction"
    return [f"{verdict}: |M| goes from {before} to {left}{kept}."]


def side_channel_part(metrics: Metrics) -> Part:
    """Returns how well membership is told from whether the model says that there is no answer."""
    rows = [
        (
            str(name),
            f"{_digits(row['auc'])} [{_digits(row.get('low'))}, {_digits(row.get('high'))}]",
            *(_digits(row.get("tpr", {}).get(rate)) for rate in _rates(metrics)),
        )
        for name, row in metrics["side_channel"].items()
    ]
    headings = ("training", "AUC", *(f"TPR at {float(rate):.1%}" for rate in _rates(metrics)))
    note = (
        "Whether a canary was trained on, told by one model's loss. Rows with a refusal: of ANSWER "
        "NOT PRESENT on its page without the answer; the others: of the answer on its page. AUC "
        "0.5: not at all."
    )
    return Part("Side channel of extraction blocking", (), [Table(headings, rows, note)])


def _rates(metrics: Metrics) -> list[str]:
    found = (rate for row in metrics["side_channel"].values() for rate in row.get("tpr", {}))
    return list(dict.fromkeys(found))


def controls_part(metrics: Metrics) -> Part:
    """Returns what models extract that cannot have memorised anything."""
    controls, said = metrics["controls"], []
    untrained, unseen = controls.get("untrained"), controls.get("unseen")
    if untrained:
        worth = "though it can have memorised none" if untrained["E"] else "as it must"
        said.append(
            f"The untrained model says {untrained['E']} of {untrained['canaries']} answers, "
            f"{worth}."
        )
    if unseen:
        said.append(
            f"Two models that never saw the canaries say {unseen['E']} and {unseen['G']} answers, "
            f"{unseen['both']} of them both; McNemar's p = {unseen['p']:.2g}."
        )
    return Part("Controls", said)


def exposure_part(metrics: Metrics) -> Part:
    """Returns exposure by strategy and repeat count, of secrets in training and out of it."""
    audits = _audits(metrics)
    rows = [
        (f"{name} {_times(count)}".strip(), *_sides(audit, count))
        for name, audit in audits.items()
        for count in dict.fromkeys([*(audit.get("in") or {}), *(audit.get("out") or {})])
    ]
    note = (
        "In bits, with 95 % intervals by bootstrap over secrets. Secrets that were never trained "
        "on have on average what uniform ranks have."
    )
    headings = ("secrets planted", "in training", "out of training", "secrets")
    return Part("Exposure", (), [Table(headings, rows, note), _bounds_table(audits)])


def _sides(audit: Metrics, count: str) -> list[str]:
    inside, outside = ((audit.get(side) or {}).get(count) or {} for side in ("in", "out"))
    return [_interval(inside), _interval(outside), _count(inside.get("count"))]


def _bounds_table(audits: Mapping[str, Metrics]) -> Table:
    """Returns between what exposure lies, and whether unseen secrets have uniform ranks."""
    rows = []
    for name, audit in audits.items():
        test = audit.get("ks") or {}
        references = audit["references"]
        ends = f"{audit['bound']:.2f}", f"{expected_exposure(references):.2f}"
        p_value = test.get("p")
        rows.append(
            (
                name or "all",
                _count(references),
                *ends,
                _digits(test.get("statistic")),
                "—" if p_value is None else f"{p_value:.2g}",
            )
        )
    note = (
        "KS: whether the ranks of secrets out of training are uniform; a small p says that the "
        "secrets and their references differ even where nothing was learnt."
    )
    headings = ("bounds", "references", "most", "uniform ranks", "KS", "p")
    return Table(headings, rows, note)


def _audits(metrics: Metrics) -> dict[str, Metrics]:
    """Returns the exposures by strategy; an audit of a single one has no name for it."""
    found = metrics.get("exposure") or {}
    if "references" in found:
        return {"": found}
    return {STRATEGIES.get(name, name): audit for name, audit in found.items()}


def _counts(row: Metrics) -> list[str]:
    return [_count(row.get(name)) for name in COUNTS]


def _count(number: int | None) -> str:
    return "—" if number is None else f"{number:,}"


def _digits(value: float | None) -> str:
    return "—" if value is None else f"{value:z.3f}"


def _points(value: float | None, sign: str = "+") -> str:
    return "—" if value is None else f"{100 * value:{sign}z.1f}"


def _interval(row: Metrics) -> str:
    if row.get("mean") is None:
        return "—"
    return f"{row['mean']:z.3f} [{row['low']:z.3f}, {row['high']:z.3f}]"


def _pair(row: Metrics) -> str:
    return f"{_count(row.get('M'))} / {_count(row.get('pii'))}"


def _times(count: str) -> str:
    return {"1": "once", "2": "twice"}.get(count, f"{count} times")


def _name(context: str) -> str:
    return drawn.CONTEXTS.get(context, context.replace("_", " "))


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {what}" for what, number in counts.items())


def _not_ours(error: Exception) -> str:
    return f"its findings cannot be shown: {error!r:.100}"
