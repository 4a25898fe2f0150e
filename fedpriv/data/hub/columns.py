"""Which column of a data set holds what: given, or guessed by its name and its type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from fedpriv.data.reading import shown
from fedpriv.runtime.refusals import near

NAMES: Mapping[str, tuple[str, ...]] = {
    "id": ("id", "ids", "guid", "doc_id", "document_id", "image_id", "file_name", "filename"),
    "image": ("image", "page", "page_image", "img", "picture", "image_path", "file_path"),
    "words": ("words", "tokens", "ocr_words", "ocr_tokens", "texts"),
    "boxes": ("bboxes", "boxes", "bbox", "bounding_boxes", "ocr_boxes", "normalized_bboxes"),
    "tags": ("ner_tags", "tags", "labels", "token_labels", "word_labels", "ner_labels"),
    "question": ("question", "query"),
    "answers": ("answers", "answer"),
    "annotation": ("ground_truth",),
}
"""Role → names of columns that usually have it, the most usual first."""

HOLDS = {
    "id": "texts or whole numbers",
    "image": "images, or the paths of images in the data set's folder",
    "words": "lists of texts",
    "boxes": "lists of boxes, each with four numbers, or eight",
    "tags": "lists of tags, as texts or as a ClassLabel",
    "question": "texts, or texts by language",
    "answers": "texts or lists of texts",
    "annotation": "texts of JSON, as CORD and Donut have them",
}
"""Role → what its column must hold, for errors."""


@dataclass(frozen=True)
class Columns:
    """The column for each role. None has it guessed; "" says that there is none.

    Attributes:
        id: the column that identifies a row; without one, its number does.
        image: the column with the page: an Image, or a path in the data set's folder.
        words: the column with the words of the page, in reading order.
        boxes: the column with the boxes of the words.
        tags: the column with BIO or BIOES tags of the words, or plain labels.
        question: the column with a question on the page. Rows with the same image become one page.
        answers: the column with the answers to the question.
        annotation: the column with JSON as in CORD's `ground_truth`: words, boxes and labels.
    """

    id: str | None = None
    image: str | None = None
    words: str | None = None
    boxes: str | None = None
    tags: str | None = None
    question: str | None = None
    answers: str | None = None
    annotation: str | None = None


@dataclass(frozen=True)
class Found:
    """The column for each role, "" where there is none; see `Columns`."""

    id: str = ""
    image: str = ""
    words: str = ""
    boxes: str = ""
    tags: str = ""
    question: str = ""
    answers: str = ""
    annotation: str = ""


def find(given: Columns, features: Mapping[str, Any]) -> Found:
    """Returns the column of each role.

    Args:
        given: by the user.
        features: of the data set: name → feature of the `datasets` library.

    Raises:
        ValueError: if a given column is missing or cannot hold what it should, or if columns that
            belong together are not both there.
    """
    found: dict[str, str] = {}
    for role in (field.name for field in fields(Columns)):
        name = getattr(given, role)
        where = f"data.source.columns.{role}={name!r}"
        if name and name not in features:
            there = f"there are {', '.join(features)}{near(name, features)}"
            raise ValueError(f"{where}: no such column: {there}")
        if name and not fits(role, features[name]):
            raise ValueError(f"{where} holds {shown(features[name])}: expected {HOLDS[role]}")
        found[role] = _guess(role, features) if name is None else name
    # What a user has named goes before what was guessed, and words before a second set of them.
    if found["annotation"] and found["words"]:
        found["words" if given.words is None and given.annotation else "annotation"] = ""
    if not found["words"]:
        found |= {"boxes": "", "tags": ""}
    if not found["question"]:
        found["answers"] = ""
    columns = Found(**found)
    if columns.words and not columns.boxes:
        raise ValueError(
            f"{columns.words} holds words, but no column their boxes; there are "
            f"{', '.join(features)}. Name it (data.source.columns.boxes=…), or have pages read by "
            "Tesseract (data.source.columns.words='')"
        )
    return columns


def _guess(role: str, features: Mapping[str, Any]) -> str:
    lower = {name.lower(): name for name in reversed(list(features))}
    names = [lower[name] for name in NAMES[role] if name in lower]
    if role == "image":  # the only column of images is the page, whatever it is called
        images = [name for name, feature in features.items() if _kind(feature) == "Image"]
        names = images if len(images) == 1 else names
    return next((name for name in names if fits(role, features[name])), "")


def fits(role: str, feature: Any) -> bool:
    """Says whether a feature of the `datasets` library can hold what the role asks for."""
    kind, inner = _kind(feature), _inner(feature)
    text = kind == "text"
    if role == "id":
        return text or kind == "whole"
    if role == "image":
        return text or kind == "Image"
    if role == "words":
        return kind == "list" and _kind(inner) == "text"
    if role == "boxes":
        pairs = kind == "list" and _kind(inner) == "list"
        return pairs and _kind(_inner(inner)) in ("whole", "number")
    if role == "tags":
        return kind == "list" and _kind(inner) in ("text", "ClassLabel")
    if role == "question":
        by_language = isinstance(feature, dict) and bool(feature)
        return text or (by_language and all(_kind(one) == "text" for one in feature.values()))
    if role == "answers":
        return text or (kind == "list" and _kind(inner) == "text")
    return text


def _kind(feature: Any) -> str:
    """Returns "text", "whole", "number" or "list" for these, the class's name for others."""
    name = type(feature).__name__
    if name == "Value":
        kind = str(feature.dtype)
        if kind in ("string", "large_string", "string_view"):
            return "text"
        return "whole" if "int" in kind else "number" if "float" in kind else kind
    lists = ("List", "LargeList", "Sequence", "list", "Array2D")
    return "list" if name in lists else name


def _inner(feature: Any) -> Any:
    """Returns the feature of a list's items; None if it is no list."""
    if isinstance(feature, list):
        return feature[0] if feature else None
    if type(feature).__name__ == "Array2D":
        from datasets import List, Value

        return List(Value(feature.dtype))
    return getattr(feature, "feature", None)


def tag_names(feature: Any) -> tuple[str, ...]:
    """Returns the names of a list of tags, by their numbers; nothing if tags are texts."""
    return tuple(getattr(_inner(feature), "names", None) or ())
