"""The figures of an extraction: Pinto et al.'s Figs. 3 to 6, and exposure by repeat count."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedpriv.report import figures
from fedpriv.report.figures import Chart, ExposureLine
from fedpriv.threat.scoring.exposure import expected_exposure
from fedpriv.threat.scoring.extraction import histogram, memorised

CONTEXTS = {
    "baseline": "baseline",
    "no_text": "no text",
    "paraphrase": "paraphrase",
    "shuffle": "shuffled",
    "image_only": "image only",
    "constant_white": "white",
    "constant_black": "black",
    "constant_mean": "mean grey",
    "rotate_5": "rotated 5°",
    "rotate_10": "rotated 10°",
    "translate_20": "moved 20 px",
    "translate_100": "moved 100 px",
    "translate_200": "moved 200 px",
    "brightness_2": "brightness ×2",
    "brightness_1.3": "brightness ×1.3",
    "brightness_0.8": "brightness ×0.8",
    "brightness_0.5": "brightness ×0.5",
}
"""Names as they stand in a picture. Others are not drawn: a picture holds no text of a run."""

SETS = {"|E|": "E", "|G|": "G", "|M|": "M"}
PERSONAL = {"|M|": "M", "PII in M": "pii", "unique PII": "unique_pii"}

Metrics = Mapping[str, Any]


def size_charts(metrics: Metrics) -> list[Chart]:
    """Returns |E|, |G| and |M|, with PII (Pinto et al., Figs. 3 and 4) and repeat counts."""
    if "E" not in metrics:
        return []
    sizes = {**SETS, "PII in M": "pii", "unique PII": "unique_pii"}
    groups = {label: metrics[key] for label, key in sizes.items() if metrics.get(key) is not None}
    charts = [figures.count_chart("Canaries in each set", {"canaries": groups})]
    repeats = {f"{int(count)}×": row for count, row in (metrics.get("by_repeats") or {}).items()}
    if repeats:
        title = "By how often the answer was trained on"
        charts.append(figures.count_chart(title, _series(SETS, repeats)))
    return charts


def resolution_charts(resolutions: Mapping[str, Metrics]) -> list[Chart]:
    """Returns the sets by training resolution, and the personal information in M."""
    rows = {name: row for name, row in resolutions.items() if re.fullmatch(r"[0-9x×]{1,12}", name)}
    if not rows:
        return []
    charts = [figures.count_chart("By training resolution, pixels", _series(SETS, rows))]
    if all(row.get("pii") is not None for row in rows.values()):
        title = "Personal information by training resolution, pixels"
        # |M| keeps the colour that it has beside |E| and |G|.
        charts.append(figures.count_chart(title, _series(PERSONAL, rows), first_shade=2))
    return charts


def score_charts(metrics: Metrics, scores: Metrics) -> list[Chart]:
    """2-D histograms of M_E and S_E: of all canaries, M and G (Pinto et al., Fig. 5)."""
    if not scores.get("memorization") or not metrics.get("splits"):
        return []
    pairs = [np.array(scores[name], float) for name in ("memorization", "simplicity")]
    in_g = np.array(scores["in_G"], bool)
    panels = {
        "all canaries": np.ones(len(in_g), bool),
        "M = E ∖ G": memorised(scores["in_E"], in_g),
        "G": in_g,
    }
    counts = {
        label: histogram(pairs[0][here], pairs[1][here], int(metrics["splits"]))
        for label, here in panels.items()
    }
    return [figures.score_chart("Canaries by memorization and simplicity", counts)]


def context_charts(metrics: Metrics) -> list[Chart]:
    """Returns |M| by context, with its personal information darker (Pinto et al., Fig. 6)."""
    asked = metrics.get("contexts") or {}
    known = [name for name in CONTEXTS if name in asked]
    if not known:
        return []
    rows = {"without defence": asked}
    blocked = ((metrics.get("defences") or {}).get("EB") or {}).get("contexts") or {}
    if all(name in blocked for name in known):
        rows["EB"] = blocked
    bars, darker = (
        {
            side: {CONTEXTS[name]: int(row[name].get(key) or 0) for name in known}
            for side, row in rows.items()
        }
        for key in ("M", "pii")
    )
    title = "|M| by what the model is asked with; in full colour: personal information"
    return [figures.count_chart(title, bars, darker, wide=True)]


def exposure_charts(audits: Mapping[str, Metrics]) -> list[Chart]:
    """Returns exposure by repeat count, a line for each strategy and side."""
    lines = {
        name: {
            side: _exposure_line(audit[side])
            for side in ("in", "out")
            if any(row.get("mean") is not None for row in (audit.get(side) or {}).values())
        }
        for name, audit in audits.items()
    }
    if not any(lines.values()):
        return []
    bound = max(float(audit["bound"]) for audit in audits.values())
    baseline = max(expected_exposure(audit["references"]) for audit in audits.values())
    title = "Exposure of planted secrets, bits"
    return [figures.exposure_chart(title, lines, bound, baseline)]


def _exposure_line(rows: Mapping[str, Metrics]) -> ExposureLine:
    held = {int(count): row for count, row in rows.items() if row.get("mean") is not None}
    return ExposureLine(
        *(
            {count: float(row[end]) for count, row in held.items()}
            for end in ("mean", "low", "high")
        )
    )


def _series(names: Mapping[str, str], groups: Mapping[str, Metrics]) -> dict[str, dict[str, int]]:
    """Returns label → group → count."""
    return {
        label: {group: int(row[key]) for group, row in groups.items()}
        for label, key in names.items()
    }
