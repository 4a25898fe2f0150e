"""The attacks on a run: one table of all of them, and for each its pictures and curves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedpriv.report import figures
from fedpriv.report.figures import Chart
from fedpriv.report.folder import Found

COLUMNS: Mapping[str, tuple[str, str]] = {
    "psnr_roi": ("PSNR, private fields", "{:.1f} dB"),
    "psnr_page": ("PSNR, page", "{:.1f} dB"),
    "ssim_roi": ("SSIM, private fields", "{:.3f}"),
    "fft_distance": ("FFT distance", "{:.4f}"),
    "exact_match": ("fields read exactly", "{:.0%}"),
    "fuzz_ratio": ("fuzz ratio", "{:.2f}"),
    "token_recall": ("tokens found", "{:.0%}"),
    "exact_position": ("tokens at their place", "{:.0%}"),
    "answer_exact": ("answers exact", "{:.0%}"),
    "evaluations": ("gradients computed", "{:.0f}"),
    "seconds": ("CPU seconds", "{:.1f}"),
}
"""Columns of the table: the metric's key, its heading and how a value is written."""

PANELS = ("original", "template", "reconstruction", "difference")

MOST_PAGES = 4
"""Pages of one attack that are shown."""


@dataclass(frozen=True)
class Attacked:
    """One attack as the report shows it."""

    name: str
    reason: str
    values: Sequence[str]
    pages: Sequence[tuple[str, Sequence[tuple[str, str]]]]
    chart: Chart | None
    texts: Sequence[tuple[str, Mapping[str, Any]]]
    assumptions: Sequence[str]
    notes: Sequence[str]


def attacks_view(found: Sequence[Found]) -> dict[str, Any] | None:
    """Returns the table's heading and each attack's row, pictures and curve; None without any."""
    if not found:
        return None
    columns = [
        key for key in COLUMNS if any(_number(one.metrics.get(key)) is not None for one in found)
    ]
    rows = [_attacked(one, columns) for one in found]
    templates = [_number(one.metrics.get("template_psnr_roi")) for one in found]
    template = next((value for value in templates if value is not None), None)
    ceilings = [_number(one.metrics.get("ocr_ceiling")) for one in found]
    ceiling = next((value for value in ceilings if value is not None), None)
    return {
        "columns": [COLUMNS[key][0] for key in columns],
        "rows": rows,
        "template": None if template is None else f"{template:.1f} dB",
        "ceiling": None if ceiling is None else f"{ceiling:.0%}",
    }


def _attacked(found: Found, columns: Sequence[str]) -> Attacked:
    metrics = found.metrics
    values = [_shown(key, _number(metrics.get(key))) for key in columns]
    pages = [(name, _panels(pictures)) for name, pictures in list(found.pages.items())[:MOST_PAGES]]
    return Attacked(
        found.name,
        str(metrics.get("reason") or "") if metrics.get("status") == "not_applicable" else "",
        values,
        pages,
        _chart(found.curves),
        list(found.texts.items())[:MOST_PAGES],
        [str(line) for line in metrics.get("assumptions") or ()],
        [str(line) for line in metrics.get("notes") or ()],
    )


def _panels(pictures: Mapping[str, str]) -> list[tuple[str, str]]:
    return [(panel, pictures[panel]) for panel in PANELS if panel in pictures]


def _chart(curves: Mapping[str, Sequence[Mapping[str, Any]]]) -> Chart | None:
    """Returns the distance between gradients over the gradients computed, by message."""
    lines = {
        message: {
            int(point["evaluations"]): float(point["objective"])
            for point in curve
            if "evaluations" in point and "objective" in point
        }
        for message, curve in curves.items()
    }
    drawn = {message: line for message, line in lines.items() if line}
    if not drawn:
        return None
    return figures.line_chart("Distance between gradients", drawn, x="gradients computed")


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _shown(key: str, value: float | None) -> str:
    return "—" if value is None else COLUMNS[key][1].format(value)
