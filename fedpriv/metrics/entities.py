"""Entity-level precision, recall and F1 by seqeval: span and label must both match."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from seqeval.metrics import classification_report


def entity_scores(
    true: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]
) -> dict[str, float]:
    """Returns micro-averaged scores over all documents, and F1 per entity type.

    Args:
        true: one list of BIO tags per document.
        predicted: the same shape.

    Returns:
        ``precision``, ``recall``, ``f1``, each in [0, 1], 0 where undefined, and ``f1/<type>``
        for every type that occurs in `true`. seqeval's default reading of BIO tags, that of
        conlleval: an I- without its B- opens an entity.

    Raises:
        ValueError: if the two differ in shape.
    """
    if [len(tags) for tags in true] != [len(tags) for tags in predicted]:
        raise ValueError("true and predicted tags differ in number")
    if not any(true):  # seqeval refuses to score nothing
        return {"precision": 0.0, "recall": 0.0, "f1": 0.0}
    report: dict[str, dict[str, Any]] = classification_report(
        [list(tags) for tags in true],
        [list(tags) for tags in predicted],
        output_dict=True,
        zero_division=0,
    )
    micro = report["micro avg"]
    scores = {
        "precision": float(micro["precision"]),
        "recall": float(micro["recall"]),
        "f1": float(micro["f1-score"]),
    }
    averages = {"micro avg", "macro avg", "weighted avg"}
    types = sorted(name for name in report if name not in averages and report[name]["support"])
    return scores | {f"f1/{name}": float(report[name]["f1-score"]) for name in types}
