"""Membership inference as tables: what `fedpriv attack` prints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

COLUMNS = ("n", "prior", "accuracy", "balanced", "AUC", "TPR at 1 %", "p")


def classifier_lines(classifiers: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yields a table: by classifier and s its scores, with 95 % intervals, as 004's Table 4."""
    if not classifiers:
        return
    width = max(map(len, classifiers))
    yield (
        f"{'':{width}}   s     n  prior  accuracy      balanced           AUC                "
        "TPR@1%      p"
    )
    for name, numbers in classifiers.items():
        for s, row in {"0": numbers, **numbers["subsets"]}.items():
            yield f"{name:{width}}  {s:>2}  {_row(row)}"


def _row(row: Mapping[str, Any]) -> str:
    std = f"±{row['accuracy_std']:.3f}" if row["trials"] > 1 else ""
    client = f"  client named {row['clients_right']:.0%}" if "clients_right" in row else ""
    return (
        f"{row['n']:>4g}  {row['prior']:.3f}  {row['accuracy']:.3f}{std:6}  "
        f"{_between(row, 'balanced_accuracy')}  {_between(row, 'auc')}  "
        f"{row['tpr_at_fpr']['0.01']:.3f}  {row['p_value']:.3g}{client}"
    )


def _between(row: Mapping[str, Any], name: str) -> str:
    low, high = row["interval"][name]
    return f"{row[name]:.3f} [{low:.2f}, {high:.2f}]"
