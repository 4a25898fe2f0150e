"""Entity-level precision, recall and F1 by seqeval: span and label must both match."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence


def entity_scores(
    true: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]
) -> dict[str, float]:
    """Returns micro-averaged scores over all documents, and F1 per entity type.

    seqeval says which entities there are; its report of them would look for them eight times.

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
    # It brings scikit-learn and SciPy, for which those who evaluate nothing would wait a second.
    from seqeval.metrics.sequence_labeling import get_entities

    if [len(tags) for tags in true] != [len(tags) for tags in predicted]:
        raise ValueError("true and predicted tags differ in number")
    there, guessed = (
        set(get_entities([list(tags) for tags in documents])) for documents in (true, predicted)
    )
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])  # right, guessed, there
    for place, entities in enumerate((there & guessed, guessed, there)):
        for kind, _, _ in entities:
            counts[kind][place] += 1
    precision, recall, f1 = _scores(len(there & guessed), len(guessed), len(there))
    scores = {"precision": precision, "recall": recall, "f1": f1}
    return scores | {f"f1/{k}": _scores(*counts[k])[2] for k in sorted(counts) if counts[k][2]}


def _scores(right: int, guessed: int, there: int) -> tuple[float, float, float]:
    """Returns precision, recall and F1."""
    precision = right / guessed if guessed else 0.0
    recall = right / there if there else 0.0
    both = precision + recall
    return precision, recall, 2 * precision * recall / both if both else 0.0
