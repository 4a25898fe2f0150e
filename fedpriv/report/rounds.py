"""What the lines of ``metrics.jsonl`` tell: curves sorted by what they measure, client counts."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from fedpriv.report.folder import Row

Curve = Mapping[int, float]
"""Round (0 is the starting model) -> value; not a finite number where the run recorded none."""

NOT_CURVES = frozenset({"round", "attempts", "accepted", "bytes_down", "bytes_up", "cut_off"})
"""Bytes have a chart of their own, and what masking cuts off has a sentence."""
NOT_SCORES = re.compile(
    r"(?:^|\W|_)(?:bytes|clip|clipped|count|delta|epsilon|examples|gradient|lr|norm|rate|scale|"
    r"seconds|sigma|std|steps?|temperature|time)(?:$|\W|_)"
)
"""Words of a metric's name that say it is no score, though its values may lie in [0, 1]."""


@dataclass(frozen=True)
class MetricGroups:
    """The curves of a run by the chart they share; `by_type` is measure -> type -> curve."""

    losses: dict[str, Curve] = field(default_factory=dict)
    scores: dict[str, Curve] = field(default_factory=dict)
    by_type: dict[str, dict[str, Curve]] = field(default_factory=dict)
    others: dict[str, Curve] = field(default_factory=dict)


def metric_groups(rounds: Mapping[int, Row]) -> MetricGroups:
    """Returns the curves, sorted into losses, scores in [0, 1], measures by type, and others."""
    groups = MetricGroups()
    for name, curve in all_curves(rounds).items():
        measure, slash, kind = name.partition("/")
        if slash and measure and kind:
            groups.by_type.setdefault(measure, {})[kind] = curve
        elif "loss" in name.lower():
            groups.losses[name] = curve
        elif in_unit_interval([curve]) and not NOT_SCORES.search(name.lower()):
            groups.scores[name] = curve
        else:
            groups.others[name] = curve
    return groups


def all_curves(rounds: Mapping[int, Row]) -> dict[str, Curve]:
    """Returns every numeric scalar of the run by round; null counts as absent."""
    curves: dict[str, dict[int, float]] = {}
    for at, row in rounds.items():
        for name, value in row.items():
            if name not in NOT_CURVES and type(value) in (int, float):
                try:
                    number = float(value)
                except OverflowError:  # JSON has integers of any size
                    number = math.inf
                curves.setdefault(name, {})[at] = number
    return dict(curves)


def in_unit_interval(curves: Iterable[Curve]) -> bool:
    """Says whether every finite value lies in [0, 1]."""
    return all(
        0 <= value <= 1 or not math.isfinite(value) for curve in curves for value in curve.values()
    )


def metric_label(name: str) -> str:
    """Returns a metric's name for a reader.

    >>> metric_label("train_loss"), metric_label("f1"), metric_label("loss")
    ('train loss', 'F1', 'held-out loss')
    >>> metric_label("f1_unseen")
    'F1 (unseen providers)'
    """
    for group in ("seen", "unseen"):
        if name.endswith(f"_{group}") and name != f"_{group}":
            return f"{metric_label(name.removesuffix(f'_{group}'))} ({group} suppliers)"
    known = {"loss": "held-out loss", "f1": "F1", "anls": "ANLS", "auc": "AUC"}
    return known.get(name) or name.replace("_", " ").strip() or "unnamed"


def client_count(row: Row, kind: str) -> int:
    """Returns how many clients of a round were "sampled", "answered", "failed" or "missing"."""
    clients = row.get("clients")
    value = clients.get(kind) if isinstance(clients, dict) else None
    return value if isinstance(value, int) and 0 < value < 10**9 else 0


def refused_rounds(rounds: Mapping[int, Row]) -> list[int]:
    """Returns the rounds that the strategy did not accept."""
    return [at for at, row in rounds.items() if row.get("accepted") is False]
