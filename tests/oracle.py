"""An attacker who knows all that a row holds, and claims it: the best that any attack can do."""

import numpy as np

from fedpriv.models.readers.donut_reader import MARKS
from fedpriv.models.readers.reader import read_places
from fedpriv.models.readers.vt5_reader import PROMPT_BOX
from fedpriv.threat.claims import RecoveredBatch, RecoveredText


def claimed(model, truth, key=(1, 0)):
    """What the columns and pixels of one example say, read without its fields and texts."""
    columns, subwords = truth.columns, model.reader.subwords
    ids, read = columns["input_ids"][0], read_places(columns)[0]
    places = np.flatnonzero(read)
    boxes = columns["bbox"][0][places] if "bbox" in columns else None
    labels, written = columns.get("labels"), []
    if labels is not None and len(labels[0]) != len(ids):  # a decoder of its own
        written = [int(token) for token in labels[0] if token >= 0][:-1]
    pairs = [*zip(places, ids[places], strict=True), *((-1, token) for token in written)]
    if boxes is not None:
        boxes = np.concatenate([boxes, np.full((len(written), 4), -1)]).astype(np.int64)
    text = RecoveredText(
        np.array(pairs, np.int64).reshape(-1, 2),
        boxes,
        _question(columns, ids.tolist(), places.tolist(), subwords),
        _answer(columns, ids.tolist(), subwords),
    )
    pages = None if truth.pixels is None else truth.pixels.astype(np.float32)
    return RecoveredBatch(key, pages, text)


def _question(columns, ids, places, subwords):
    if "question" not in columns:
        return None
    if "prompt" in columns:  # between Donut's marks
        marks = {subwords.tokenizer.token_to_id(mark) for mark in MARKS}
        asked = ids[: int(columns["prompt"][0])]
        return subwords.text([token for token in asked if token not in marks])
    if "start" in columns:  # up to the mark behind it
        return subwords.text(ids[1 : ids.index(subwords.sep)])
    if "bbox" in columns:  # VT5's prompt stands in one box
        inside = [ids[p] for p in places if tuple(columns["bbox"][0][p]) == PROMPT_BOX]
        said = subwords.text(inside).removeprefix("question: ").removeprefix("question :")
        return said.strip().removesuffix("context:").removesuffix("context :").strip()
    return None


def _answer(columns, ids, subwords):
    if "start" in columns:
        start, end = int(columns["start"][0]), int(columns["end"][0])
        return subwords.text(ids[start : end + 1]) if start else ""
    if "question" in columns:
        return subwords.text([int(token) for token in columns["labels"][0] if token >= 0])
    return None
