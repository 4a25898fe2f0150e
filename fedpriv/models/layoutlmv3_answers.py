"""Answers that are spans of the page: a network predicts where one begins and where it ends."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from fedpriv.data.document import Document
from fedpriv.data.examples import Batch, Examples
from fedpriv.models.base import Answer
from fedpriv.models.layoutlmv3_network import OnLayoutLMv3
from fedpriv.models.question_answering import QuestionAnswerer
from fedpriv.models.readers.question_reader import QuestionReader
from fedpriv.models.saving import save

LONGEST = 30
"""Tokens of an answer at most."""


class SpanAnswerer(QuestionAnswerer):
    """Answers questions with what stands on the page.

    Attributes:
        name: of the model, in the settings of its reading.

    Args:
        network: with two outputs, begin and end.
        reader: makes the arrays.
    """

    name: ClassVar[str]

    def __init__(self, network: PreTrainedModel, reader: QuestionReader) -> None:
        super().__init__()
        self.network: Any = network
        self.reader = reader

    @abstractmethod
    def inputs(self, batch: Batch) -> dict[str, Tensor]:
        """Returns the network's arguments for a batch."""

    def encode(self, documents: Sequence[Document]) -> Examples:
        """Returns one row per window of each question; see `QuestionReader.read`."""
        return self.reader.read(documents)

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Returns the scores of the places as begin and as end, each of shape (batch, L).

        Only places where an answer can be count, and that of `<s>`, which stands for none.
        """
        output = self.network(**self.inputs(batch))
        length = batch["input_ids"].shape[1]
        places = torch.arange(length, device=batch["word"].device)
        impossible = (batch["word"] < 0) & (places != 0)
        begin, end = (
            # transformers scores the patches of the image too.
            scores[:, :length].masked_fill(impossible, torch.finfo(scores.dtype).min)
            for scores in (output.start_logits, output.end_logits)
        )
        return begin, end

    def losses(self, batch: Batch) -> Tensor:
        """Returns the mean of both cross-entropies of each example, (batch,)."""
        begin, end = self(batch)
        return self._losses(begin, end, batch)

    def answer_batch(self, batch: Batch) -> list[Answer]:
        """Returns an answer for each row.

        The confidence is the product of the probabilities of its begin and its end. Where that of
        `<s>` is as high as any span's, there is no answer in this window, and the text is empty.
        """
        begin, end = self(batch)
        return self._answers(begin, end, batch)

    def reply_batch(self, batch: Batch) -> tuple[list[Answer], Tensor]:
        """Returns answers and losses of one reading of the page."""
        begin, end = self(batch)
        return self._answers(begin, end, batch), self._losses(begin, end, batch)

    def _losses(self, begin: Tensor, end: Tensor, batch: Batch) -> Tensor:
        cross_entropy = nn.functional.cross_entropy
        return 0.5 * (
            cross_entropy(begin, batch["start"], reduction="none")
            + cross_entropy(end, batch["end"], reduction="none")
        )

    def _answers(self, begins: Tensor, ends: Tensor, batch: Batch) -> list[Answer]:
        begin, end = begins.softmax(-1), ends.softmax(-1)
        page = batch["word"] >= 0
        length = page.shape[1]
        places = torch.arange(length, device=page.device)
        tokens = places[None, :] - places[:, None] + 1
        allowed = (tokens >= 1) & (tokens <= LONGEST) & page[:, :, None] & page[:, None, :]
        spans = (begin[:, :, None] * end[:, None, :]).masked_fill(~allowed, 0.0)
        best, place = spans.flatten(1).max(1)
        none = begin[:, 0] * end[:, 0]
        answers = []
        columns = (batch["input_ids"], place, best, none)
        for ids, at, sure, empty in zip(*(c.tolist() for c in columns), strict=True):
            if sure > empty:
                text = self.reader.subwords.text(ids[at // length : at % length + 1])
                answers.append(Answer(text, sure))
            else:
                answers.append(Answer("", empty))
        return answers

    def head(self) -> list[nn.Module]:
        """Returns the modules after the last layer."""
        return [self.network.qa_outputs]

    def reading(self) -> dict[str, Any]:
        """Returns all settings that decide how documents become arrays."""
        return {"model": self.name, **self.reader.settings()}

    def save_pretrained(self, folder: str | Path) -> None:
        """Writes a folder that the model's function reads, with `task="answers"`."""
        save(folder, self.network, self.reader.subwords, self.reading())


class LayoutLMv3Answerer(OnLayoutLMv3, SpanAnswerer):
    """LayoutLMv3 for questions."""

    name = "layoutlmv3_answers"
