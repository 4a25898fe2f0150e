"""One held-out page with what the model makes of it against the truth, for the report."""

from __future__ import annotations

import io
from typing import Any

import torch
from torch import nn

from fedpriv.data.document import Document
from fedpriv.models.base import DocumentModel, Tagger
from fedpriv.runtime.run_folder import RunFolder


def write_showcase(document: Document, model: nn.Module, folder: RunFolder) -> None:
    """Writes `prediction.json` and `prediction.png`: the page, its words, their tags or answers."""
    model.eval()
    with torch.no_grad():
        if isinstance(model, Tagger):
            tags = zip(document.tags(), model.tag(document), strict=True)
            words = [{"true": true, "predicted": predicted} for true, predicted in tags]
            shown = {"words": _words(document, words)}
        else:
            shown = _answers(document, model)
    folder.write_json("prediction.json", {"document": document.id, **shown})
    png = io.BytesIO()
    document.image().save(png, "PNG")
    folder.write("prediction.png", png.getvalue())


def _answers(document: Document, model: nn.Module) -> dict[str, Any]:
    if not isinstance(model, DocumentModel) or not document.questions:
        return {"words": _words(document, None)}
    (given,) = model.answer([document])
    answers = [
        {
            "key": question.key,
            "question": question.text,
            "accepted": list(question.answers),
            "answer": answer.text,
            "confidence": answer.confidence,
        }
        for question, answer in zip(document.questions, given, strict=True)
    ]
    return {"words": _words(document, None), "answers": answers}


def _words(document: Document, more: list[dict[str, str]] | None) -> list[dict[str, Any]]:
    more = more or [{}] * len(document.words)
    return [
        {"text": word.text, "box": list(word.box), **extra}
        for word, extra in zip(document.words, more, strict=True)
    ]
