"""What an attack leaves in a run folder: numbers, curves and recovered text as JSON, and pictures.

`findings/<attack>/`: `metrics.json`, `curve.json`, `text.json`, and for every recovered page
`<message>-<page>-reconstruction.png` beside the template and, where the user allows it, the
original and the difference.
"""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fedpriv.runtime.run_folder import RunFolder
from fedpriv.threat.access import MessageKey
from fedpriv.threat.attack import Findings, Recovered
from fedpriv.threat.claims import RecoveredText
from fedpriv.threat.scoring.pages import matched
from fedpriv.threat.truth import Truth

FINDINGS = "findings"

PANELS = ("original", "template", "reconstruction", "difference")


def write_findings(
    folder: RunFolder,
    name: str,
    metrics: Mapping[str, Any],
    findings: Findings,
    templates: Mapping[MessageKey, NDArray[np.uint8] | None],
    truths: Mapping[MessageKey, Truth],
    *,
    originals: bool,
) -> None:
    """Writes everything an attack has found, in place of what an earlier one of that name left.

    Args:
        folder: of the run.
        name: of the attack.
        metrics: for metrics.json.
        findings: of the attack.
        templates: what the adversary knew of the pages, by message.
        truths: by message; shown only if `originals`.
        originals: whether pictures of the original pages may be written.
    """
    place = cleared(folder, name)
    for recovered in findings.recovered:
        truth = truths.get(recovered.message) if originals else None
        if truth is not None and truth.pixels is not None and recovered.pages is not None:
            ordered = matched(recovered.pages, truth.pixels).astype(np.float32)
            recovered = dataclasses.replace(recovered, pages=ordered)
        panels = _panels(recovered, templates.get(recovered.message), truth)
        for page, shown in enumerate(panels):
            for panel, pixels in shown.items():
                file = f"{place}/{message_name(recovered.message)}-page-{page}-{panel}.png"
                folder.write(file, png(np.moveaxis(pixels, 0, -1)))
    curves = {message_name(r.message): list(r.curve) for r in findings.recovered if r.curve}
    texts = {message_name(r.message): _text(r.text) for r in findings.recovered if r.text}
    if curves:
        folder.write_json(f"{place}/curve.json", curves)
    if texts:
        folder.write_json(f"{place}/text.json", texts)
    folder.write_json(f"{place}/metrics.json", metrics)


def cleared(folder: RunFolder, name: str) -> str:
    """Returns the place of an attack's findings in the run folder, empty now."""
    place = f"{FINDINGS}/{name}"
    folder.remove(place)
    return place


def settings_of(attack_run: Any) -> dict[str, Any]:
    """Returns the settings of an attack, a dataclass, for the log of the run folder."""
    names = [field.name for field in dataclasses.fields(attack_run)]
    return {name: repr(getattr(attack_run, name)) for name in names}


def png(pixels: NDArray[np.uint8]) -> bytes:
    """Returns a picture, (H, W, 3), as the bytes of a file."""
    data = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(data, "PNG")
    return data.getvalue()


def message_name(key: MessageKey) -> str:
    """Returns what files and reports call a message."""
    round, client = key
    return f"round-{round}-" + ("aggregate" if client is None else f"client-{client}")


def _panels(
    recovered: Recovered, template: NDArray[np.uint8] | None, truth: Truth | None
) -> list[dict[str, NDArray[np.uint8]]]:
    if recovered.pages is None:
        return []
    shown: list[dict[str, NDArray[np.uint8]]] = []
    for place, page in enumerate(recovered.pages):
        panels = {"reconstruction": _bytes(page)}
        if template is not None:
            panels["template"] = template[place]
        if (
            truth is not None
            and truth.pixels is not None
            and len(recovered.pages) == len(truth.pixels)
        ):
            panels["original"] = truth.pixels[place]
            panels["difference"] = _bytes(255 - np.abs(page - truth.pixels[place]))
        shown.append(panels)
    return shown


def _bytes(page: NDArray[Any]) -> NDArray[np.uint8]:
    clean: NDArray[np.uint8] = np.clip(np.rint(page), 0, 255).astype(np.uint8)
    return clean


def _text(text: RecoveredText) -> dict[str, Any]:
    return {
        "tokens": text.tokens.tolist(),
        "boxes": text.boxes.tolist() if text.boxes is not None else None,
        "question": text.question,
        "answer": text.answer,
    }
