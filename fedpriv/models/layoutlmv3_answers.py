"""LayoutLMv3 for questions whose answer stands on the page: where does it begin, where end?

The input is that of transformers' processor, `<s> question </s></s> words </s>`, the question's
tokens at box 0; a page too long for one window gives several, each with the question in front.
"""

from __future__ import annotations

import dataclasses
import string
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import LayoutLMv3ForQuestionAnswering

from fedpriv.data.document import Document
from fedpriv.data.examples import Batch, Examples
from fedpriv.models import layoutlmv3_network
from fedpriv.models.base import Answer
from fedpriv.models.question_answering import Asked, QuestionAnswerer, asked, table
from fedpriv.models.readers.reader import scaled_boxes, square_pages
from fedpriv.models.readers.subwords import Subwords, Window, windows
from fedpriv.models.saving import fits_positions, save, settings_of

LONGEST = 30
"""Tokens of an answer at most."""

MARKS = 4
"""Special tokens of a window."""


def layoutlmv3_answers_tiny(
    labels: Sequence[str] = (),
    *,
    max_length: int = 192,
    image: bool = True,
    image_size: int = 32,
    hidden_size: int = 32,
    layers: int = 2,
    dropout: float = 0.0,
    initializer_range: float = 0.1,
) -> LayoutLMv3Answerer:
    """Builds a LayoutLMv3 of 100 000 parameters that answers questions.

    Args: as of `layoutlmv3_tiny`; `labels` are not used, but every document model is built with
        those of the data set.
    """
    subwords = Subwords.shipped()
    config = layoutlmv3_network.tiny_config(
        subwords,
        2,
        max_length=max_length,
        image=image,
        image_size=image_size,
        hidden_size=hidden_size,
        layers=layers,
        dropout=dropout,
        initializer_range=initializer_range,
    )
    network = LayoutLMv3ForQuestionAnswering(config)
    layoutlmv3_network.draw_visual_positions(network)
    side = layoutlmv3_network.image_size(config)
    return LayoutLMv3Answerer(network, QuestionReader(subwords, max_length, side, box_step=40))


def layoutlmv3_answers_small(
    labels: Sequence[str] = (),
    *,
    max_length: int = 128,
    image: bool = True,
    image_size: int = 112,
    dropout: float = 0.0,
) -> LayoutLMv3Answerer:
    """Builds a LayoutLMv3 of 1.3 million parameters that sees every letter of a small page.

    A patch of 8 x 8 pixels in three colours fits into its 208 dimensions, and its gradients tell
    the 196 patches of a page of 112 x 112 apart: what the published size does for 224 x 224.

    Args: as of `layoutlmv3_answers_tiny`.
    """
    return layoutlmv3_answers_tiny(
        labels,
        max_length=max_length,
        image=image,
        image_size=image_size,
        hidden_size=208,
        layers=2,
        dropout=dropout,
        initializer_range=0.07,
    )


def layoutlmv3_answers_base(
    labels: Sequence[str] = (),
    *,
    max_length: int = 512,
    image: bool = True,
    image_size: int = 224,
    dropout: float = 0.1,
) -> LayoutLMv3Answerer:
    """Builds a LayoutLMv3 in its published size that answers questions, with random weights.

    Args: as of `layoutlmv3_base`; `labels` are not used.
    """
    subwords = Subwords.shipped()
    config = layoutlmv3_network.base_config(
        subwords, 2, image=image, image_size=image_size, dropout=dropout
    )
    most = layoutlmv3_network.positions(config)
    length = fits_positions(max_length, None, most, "layoutlmv3_answers_base")
    network = LayoutLMv3ForQuestionAnswering(config)
    layoutlmv3_network.draw_visual_positions(network)
    side = layoutlmv3_network.image_size(config)
    return LayoutLMv3Answerer(network, QuestionReader(subwords, length, side))


def from_pretrained(
    folder: str | Path,
    labels: Sequence[str] = (),
    *,
    max_length: int | None = None,
    image: bool | None = None,
    dropout: float | None = None,
) -> LayoutLMv3Answerer:
    """Loads weights and tokenizer from a folder or a hub id (microsoft/layoutlmv3-base).

    The head is drawn anew where there is none for questions.

    Args: as of `fedpriv.models.layoutlmv3.from_pretrained`; `labels` are not used.

    Raises:
        ValueError: if `max_length` is too long for the model, or it cannot read images.
        OSError: if there is no such folder and no such model on the hub.
    """
    saved = settings_of(folder)
    # A checkpoint may say another number of labels, and the head would have as many outputs.
    network = layoutlmv3_network.load(
        LayoutLMv3ForQuestionAnswering, folder, 2, image=image, dropout=dropout
    )
    most = layoutlmv3_network.positions(network.config)
    length = fits_positions(max_length, saved.get("max_length"), most, folder)
    side = layoutlmv3_network.image_size(network.config)
    subwords = Subwords.from_pretrained(folder)
    reader = QuestionReader(subwords, length, side, saved.get("box_step", 1))
    return LayoutLMv3Answerer(network, reader).train()


@dataclass(frozen=True)
class QuestionReader:
    """Turns questions about documents into arrays.

    A question takes at most half of a window; what is longer is cut.

    Args:
        subwords: tokenizer.
        max_length: L, tokens of a window.
        image_size: side of the square page image in pixels; none: the model reads no image.
        box_step: coordinates (0…1000) are rounded down to multiples of this.
    """

    subwords: Subwords
    max_length: int
    image_size: int | None
    box_step: int = 1

    def __post_init__(self) -> None:
        if self.max_length < 2 * MARKS:
            raise ValueError(
                f"max_length={self.max_length}: expected {2 * MARKS} or more, for {MARKS} special "
                "tokens, the question and the page"
            )

    def read(self, documents: Sequence[Document]) -> Examples:
        """Returns one row per window of each question.

        Columns (N windows, L = max_length, D documents): input_ids, attention_mask and word (index
        into the document's words, -1 where none) of shape (N, L); bbox (N, L, 4), in 0…1000; start
        and end (N,), the first and last place of the answer, both 0 (that of `<s>`) in a window
        that does not hold it whole; those of `Asked`. Shared, where there is an image: pixels
        (D, 3, image_size, image_size), uint8.

        Raises:
            ValueError: if no document has a question.
        """
        questions = asked(documents)
        asked_about = dict.fromkeys(question.document for question in questions)
        pieces = {place: self._pieces(documents[place]) for place in asked_about}
        boxes = {place: scaled_boxes(documents[place], self.box_step) for place in pieces}
        rows: list[dict[str, NDArray[Any]]] = []
        for question in questions:
            place, prompt = question.document, self._prompt(question)
            span = gold_span(documents[place], question.question.answers)
            for window in windows(pieces[place], self.max_length - MARKS - len(prompt)):
                answer = _places(window, span, pieces[place])
                rows.append(self._row(question, prompt, window, boxes[place], answer))
        return table(rows, square_pages(documents, self.image_size))

    def settings(self) -> dict[str, Any]:
        """Returns everything, the tokenizer by its fingerprint."""
        fields = dataclasses.fields(self)
        settings = {f.name: getattr(self, f.name) for f in fields if f.name != "subwords"}
        return {**settings, "vocabulary": self.subwords.digest}

    def _pieces(self, document: Document) -> list[list[int]]:
        return self.subwords.pieces([word.text for word in document.words])

    def _prompt(self, question: Asked) -> list[int]:
        pieces = self.subwords.pieces(question.question.text.split())
        ids = [token for tokens in pieces for token in tokens]
        return ids[: (self.max_length - MARKS) // 2]

    def _row(
        self,
        question: Asked,
        prompt: list[int],
        window: Window,
        boxes: NDArray[np.int64],
        answer: tuple[int, int] | None,
    ) -> dict[str, NDArray[Any]]:
        sep, begin = self.subwords.sep, len(prompt) + MARKS - 1
        ids = [self.subwords.cls, *prompt, sep, sep, *window.ids, sep]
        start, end = (begin + place for place in answer) if answer else (0, 0)
        row = {
            "input_ids": np.full(self.max_length, self.subwords.pad, dtype=np.int64),
            "attention_mask": np.zeros(self.max_length, dtype=np.int64),
            "bbox": np.zeros((self.max_length, 4), dtype=np.int64),
            "word": np.full(self.max_length, -1, dtype=np.int64),
            "start": np.array(start),
            "end": np.array(end),
        }
        row["input_ids"][: len(ids)] = ids
        row["attention_mask"][: len(ids)] = 1
        if window.ids:
            words = np.array(window.words)
            row["bbox"][begin : len(ids) - 1] = boxes[words]
            row["word"][begin : len(ids) - 1] = words
        return {**row, **question.columns()}


def gold_span(document: Document, answers: Sequence[str]) -> tuple[int, int] | None:
    """Returns the first and last word of the first run that reads as an accepted answer.

    The first answer that stands on the page counts. Upper and lower case and white space make no
    difference; where that finds none, neither do signs of punctuation at a word's ends.
    """
    words = [word.text for word in document.words]
    for plain in (str.lower, _bare):
        page = [(plain(part), place) for place, text in enumerate(words) for part in text.split()]
        page = [(part, place) for part, place in page if part]
        for answer in answers:
            wanted = [part for part in map(plain, answer.split()) if part]
            if wanted and (span := _run([part for part, _ in page], wanted)) is not None:
                return page[span][1], page[span + len(wanted) - 1][1]
    return None


def _bare(text: str) -> str:
    return text.lower().strip(string.punctuation)


def _run(parts: list[str], wanted: list[str]) -> int | None:
    last = len(parts) - len(wanted)
    return next((i for i in range(last + 1) if parts[i : i + len(wanted)] == wanted), None)


def _places(
    window: Window, span: tuple[int, int] | None, pieces: Sequence[Sequence[int]]
) -> tuple[int, int] | None:
    """Returns the first and last token of a span of words; none where it is not all here."""
    if span is None:
        return None
    first, last = span
    starts = [i for i, word in enumerate(window.words) if word == first and window.first[i]]
    ends = [i for i, word in enumerate(window.words) if word == last]
    if not starts or len(ends) < len(pieces[last]):
        return None
    return starts[0], ends[-1]


class LayoutLMv3Answerer(QuestionAnswerer):
    """Answers questions with what stands on the page.

    Args:
        network: with two outputs, begin and end.
        reader: makes the arrays.
    """

    def __init__(self, network: LayoutLMv3ForQuestionAnswering, reader: QuestionReader) -> None:
        super().__init__()
        self.network = network
        self.reader = reader
        layoutlmv3_network.freeze_unused(network)

    def encode(self, documents: Sequence[Document]) -> Examples:
        """Returns one row per window of each question; see `QuestionReader.read`."""
        return self.reader.read(documents)

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Returns the scores of the places as begin and as end, each of shape (batch, L).

        Only places where an answer can be count, and that of `<s>`, which stands for none.
        """
        output = self.network(**layoutlmv3_network.inputs(self.network, batch))
        length = batch["input_ids"].shape[1]
        impossible = ~_possible(batch)
        begin, end = (
            # transformers scores the patches of the image too.
            scores[:, :length].masked_fill(impossible, torch.finfo(scores.dtype).min)
            for scores in (output.start_logits, output.end_logits)
        )
        return begin, end

    def losses(self, batch: Batch) -> Tensor:
        """Returns the mean of both cross-entropies of each example, (batch,)."""
        begin, end = self(batch)
        return _losses(begin, end, batch)

    def reply_batch(self, batch: Batch) -> tuple[list[Answer], Tensor]:
        """Returns answers and losses of one reading of the page."""
        begin, end = self(batch)
        return self._answers(begin, end, batch), _losses(begin, end, batch)

    def answer_batch(self, batch: Batch) -> list[Answer]:
        """Returns an answer for each row.

        The confidence is the product of the probabilities of its begin and its end. Where that of
        `<s>` is as high as any span's, there is no answer in this window, and the text is empty.
        """
        begin, end = self(batch)
        return self._answers(begin, end, batch)

    def _answers(self, begins: Tensor, ends: Tensor, batch: Batch) -> list[Answer]:
        begin, end = begins.softmax(-1), ends.softmax(-1)
        none = begin[:, 0] * end[:, 0]
        spans = (begin[:, :, None] * end[:, None, :]).masked_fill(~_spans(batch), 0.0)
        best, place = spans.flatten(1).max(1)
        length = batch["input_ids"].shape[1]
        return [
            Answer(self.reader.subwords.text(ids[at // length : at % length + 1]), sure)
            if sure > empty
            else Answer("", empty)
            for ids, at, sure, empty in zip(
                batch["input_ids"].tolist(),
                place.tolist(),
                best.tolist(),
                none.tolist(),
                strict=True,
            )
        ]

    def blocks(self) -> list[nn.Module]:
        """Returns the Transformer layers from input to output."""
        return layoutlmv3_network.blocks(self.network)

    def head(self) -> list[nn.Module]:
        """Returns what comes after the last layer."""
        return [self.network.qa_outputs]

    def visual(self) -> list[nn.Module]:
        """Returns the embedding of the page's patches; nothing where no image is read."""
        return layoutlmv3_network.visual(self.network)

    def reading(self) -> dict[str, Any]:
        """Returns all that decides how documents become arrays."""
        return {"model": "layoutlmv3_answers", **self.reader.settings()}

    def save_pretrained(self, folder: str | Path) -> None:
        """Writes the model into a folder; `from_pretrained` reads it back."""
        save(folder, self.network, self.reader.subwords, self.reading())


def _losses(begin: Tensor, end: Tensor, batch: Batch) -> Tensor:
    cross_entropy = nn.functional.cross_entropy
    return 0.5 * (
        cross_entropy(begin, batch["start"], reduction="none")
        + cross_entropy(end, batch["end"], reduction="none")
    )


def _possible(batch: Batch) -> Tensor:
    """Returns where an answer may begin and end, and `<s>`, of shape (batch, L)."""
    places = torch.arange(batch["word"].shape[1], device=batch["word"].device)
    return (batch["word"] >= 0) | (places == 0)


def _spans(batch: Batch) -> Tensor:
    """Returns which pairs of begin and end are spans of at most `LONGEST` tokens, (batch, L, L)."""
    page = batch["word"] >= 0
    places = torch.arange(page.shape[1], device=page.device)
    length = places[None, :] - places[:, None] + 1
    band = (length >= 1) & (length <= LONGEST)
    return band & page[:, :, None] & page[:, None, :]
