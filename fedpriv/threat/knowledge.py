"""What an adversary may be taken to know: written when a run ends, granted one by one.

`knowledge/` in a run folder holds, for each message that was observed, what a server could know of
the batch behind it: the template of each page, and the text under several assumptions. An attack
gets of it what `Assumed` grants, and the report prints that.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedpriv.runtime.run_folder import RunFolder
from fedpriv.runtime.tensors import read_tensors, save_tensors
from fedpriv.runtime.vectors import as_tensor
from fedpriv.threat.access import Known, MessageKey
from fedpriv.threat.keep.batch_rows import check_read

KNOWLEDGE = "knowledge"

Texts = Mapping[str, Mapping[str, NDArray[Any]]]
"""Columns by name, by assumption."""

Text = Literal["none", "given", "question", "answer", "random"]

TEXTS: Mapping[str, str] = {
    "none": "no text is given: what is used was read out of the gradient",
    "given": "the text of the page, the question and the answer are given (the paper's white box)",
    "question": "the text of the page and the question are given, the answer is a random word",
    "answer": "the text of the page and the answer are given, the question is random words",
    "random": "the text of the page is given, question and answer are random words",
}


@dataclass(frozen=True)
class Assumed:
    """What the adversary is taken to know beside what it saw.

    Args:
        template: whether the adversary knows the template of each page, which is the page with its
            private fields blank, and where these fields are (GI-DQA, §3.2). If False, the attack
            starts from a white page.
        text: what the adversary knows of the text: "none", so that the attack reads it out of the
            gradient; "given", the text of the page, the question and the answer; "question" or
            "answer", the text of the page and one of the two; "random", the text of the page alone.
            Unknown questions and answers are replaced by random words. These are rows of GI-DQA,
            Table 3.
    """

    template: bool = True
    text: Text = "none"

    def __post_init__(self) -> None:
        if self.text not in TEXTS:
            raise ValueError(f"text={self.text!r}: expected one of {', '.join(TEXTS)}")

    def in_words(self, *, templates: bool = True) -> tuple[str, ...]:
        """Returns the assumptions as a report says them.

        Args:
            templates: whether the run has any, which models that make no pixels of pages have not.
        """
        known = "the template of each page is known, and where its private fields are"
        if not self.template:
            known = "no template is known"
        elif not templates:
            known = "the run has no templates: its model reads no pages, or not as pixels"
        return (
            "the size of each batch is public",
            known,
            TEXTS[self.text],
        )


def save_known(folder: RunFolder, key: MessageKey, known: Known, texts: Texts) -> None:
    """Writes what could be known of one message.

    Args:
        folder: of the run.
        key: the message.
        known: of it `text` is not used.
        texts: the model's columns under each assumption of `TEXTS` but "none".
    """
    tensors = {f"{name}/{c}": as_tensor(a) for name, text in texts.items() for c, a in text.items()}
    if known.template is not None and known.private is not None:
        tensors["template"] = as_tensor(known.template)
        tensors["private"] = as_tensor(known.private)
    save_tensors(folder, _file(key), tensors, {"size": known.size})


def load_known(folder: RunFolder, key: MessageKey, assumed: Assumed) -> Known | None:
    """Reads what the assumptions grant of one message; none of one that holds no example.

    Raises:
        BatchesUnread: if the run was ended before this was written.
        Damaged: if the file cannot be read.
    """
    check_read(folder, key[0])
    name = f"{_file(key)}.safetensors"
    if not folder.has(name):
        return None
    tensors, notes = read_tensors(folder, _file(key))
    arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
    text = {
        name.removeprefix(f"{assumed.text}/"): array
        for name, array in arrays.items()
        if name.startswith(f"{assumed.text}/")
    }
    granted = assumed.template and "template" in arrays
    with folder.making_sense_of(name):
        return Known(
            operator.index(notes["size"]),
            arrays["template"] if granted else None,
            arrays["private"].astype(np.bool_) if granted else None,
            text or None,
        )


def _file(key: MessageKey) -> str:
    round, client = key
    return f"{KNOWLEDGE}/round-{round:06d}/client-{client:04d}"
