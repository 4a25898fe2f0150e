"""One held-out page with what the model makes of it against the truth, for the report."""

from __future__ import annotations

import io
from typing import Any

import torch
from torch import nn

from fedpriv.data.document import Document
from fedpriv.models.base import DocumentModel, Tagger
from fedpriv.runtime.run_folder import PREDICTION, RunFolder


def write_showcase(document: Document, model: nn.Module, folder: RunFolder) -> None:
    """Writes `prediction.json` and `prediction.png`: the page, its words, their tags or answers."""
    words: list[dict[str, Any]]
    words = [{"text": word.text, "box": list(word.box)} for word in document.words]
    shown = {"document": document.id, "words": words}
    model.eval()
    with torch.no_grad():
        if isinstance(model, Tagger):
            tags = zip(document.tags(), model.tag(document), strict=True)
            for word, (true, predicted) in zip(words, tags, strict=True):
                word |= {"true": true, "predicted": predicted}
        elif isinstance(model, DocumentModel) and document.questions:
            (given,) = model.answer([document])
            shown["answers"] = [
                {
                    "key": question.key,
                    "question": question.text,
                    "accepted": list(question.answers),
                    "answer": answer.text,
                    "confidence": answer.confidence,
                }
                for question, answer in zip(document.questions, given, strict=True)
            ]
    folder.write_json(PREDICTION, shown)
    png = io.BytesIO()
    document.image().save(png, "PNG")
    folder.write("prediction.png", png.getvalue())
