"""One held-out page with predicted against true entities, for the report."""

from __future__ import annotations

import io

import torch
from torch import nn

from fedpriv.checkpoint import RunFolder
from fedpriv.data.document import Document


def write_showcase(document: Document, model: nn.Module, folder: RunFolder) -> None:
    """Writes `prediction.json` and `prediction.png`: the page, its words, their tags."""
    model.eval()
    with torch.no_grad():
        predicted: list[str] = model.tag(document)  # type: ignore[operator]
    words = [
        {"text": word.text, "box": list(word.box), "true": true, "predicted": guess}
        for word, true, guess in zip(document.words, document.tags(), predicted, strict=True)
    ]
    folder.write_json("prediction.json", {"document": document.id, "words": words})
    png = io.BytesIO()
    document.image().save(png, "PNG")
    folder.write("prediction.png", png.getvalue())
