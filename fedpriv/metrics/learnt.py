"""Whether a model has learnt anything that an attack on it could be about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

SCORES = {"f1": "F1", "anls": "ANLS", "accuracy": "accuracy"}
"""Main scores, from 0 to 1, of models that tag, answer or classify; the first one counts."""

LITTLE = 0.1
"""A score below it is next to nothing: labels of one kind, or answers at random, reach as much."""

SAYS_LITTLE = "What attacks on the model itself find, or do not find, says little of a good one."
LEARN_MORE = f"{SAYS_LITTLE} Train for longer, or begin with trained weights (model.pretrained)."


def little_learnt(records: Iterable[Mapping[str, Any]]) -> str:
    """Returns in a sentence that the model has learnt next to nothing; "" if it has, or none knows.

    Args:
        records: of the rounds, as metrics.jsonl has them, the last one last.
    """
    told = ""
    for record in records:
        known = (name for name in SCORES if isinstance(record.get(name), float))
        if name := next(known, ""):
            score, told = record[name], ""
            if score < LITTLE:
                told = f"The model has learnt next to nothing ({SCORES[name]} {score:.2g})."
    return told
