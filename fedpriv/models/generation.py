"""Answers that a decoder writes: their loss, greedy decoding, and the model's confidence."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import GenerationConfig

from fedpriv.data.document import Document
from fedpriv.data.examples import Batch, Examples
from fedpriv.models.base import Answer
from fedpriv.models.question_answering import Asked, QuestionAnswerer
from fedpriv.models.readers.reader import IGNORED
from fedpriv.models.readers.subwords import Subwords

GREEDY: dict[str, Any] = {
    "do_sample": False,
    "num_beams": 1,
    "return_dict_in_generate": True,
    "output_scores": True,
}
"""Arguments of transformers' `generate` for one answer and the scores that `read_answers` needs."""


class AnswerReader(Protocol):
    """Turns questions about documents into arrays; `labels` are the first accepted answer."""

    @property
    def subwords(self) -> Subwords:
        """The tokenizer of the answers."""
        ...

    @property
    def answer_length(self) -> int:
        """A, tokens of an answer at most, the end token included."""
        ...

    def read(self, documents: Sequence[Document]) -> Examples:
        """Returns one row per question."""
        ...

    def settings(self) -> dict[str, Any]:
        """Returns all settings, as JSON can hold them."""
        ...


class GenerativeAnswerer(QuestionAnswerer):
    """A model whose decoder writes the answers.

    A subclass returns the scores of tokens (batch, places, vocabulary) from `forward`, one for each
    place of `labels`.

    Attributes:
        name: of the architecture.
        reader: turns questions into arrays.
    """

    name: ClassVar[str]
    reader: AnswerReader

    def encode(self, documents: Sequence[Document]) -> Examples:
        """Returns one row per question; see the `read` of the model's reader."""
        return self.reader.read(documents)

    def losses(self, batch: Batch) -> Tensor:
        """Returns -log p(answer | page, question), the mean over the answer's tokens, (batch,)."""
        return token_losses(self(batch), batch["labels"])

    def reading(self) -> dict[str, Any]:
        """Returns all settings that decide how documents become arrays."""
        return {"model": self.name, **self.reader.settings()}


def greedy(reader: AnswerReader, **more: Any) -> GenerationConfig:
    """Returns the settings with which transformers' `generate` writes the likeliest tokens.

    Args:
        reader: its tokenizer's end token ends an answer.
        **more: other settings of `GenerationConfig`.
    """
    return GenerationConfig(
        max_new_tokens=reader.answer_length,
        pad_token_id=reader.subwords.pad,
        eos_token_id=reader.subwords.sep,
        **GREEDY,
        **more,
    )


def by_prompt_length(batch: Batch, write: Callable[[Batch, int], Sequence[Answer]]) -> list[Answer]:
    """Returns an answer for each row, written for rows with prompts of one length at a time.

    So nothing stands between a prompt and its answer, whatever a network makes of padding.

    Args:
        batch: with a column `prompt`, (batch,), the number of tokens of each prompt.
        write: answers rows of a batch, given the length of their prompts.
    """
    groups: dict[int, list[int]] = defaultdict(list)
    for row, length in enumerate(batch["prompt"].tolist()):
        groups[length].append(row)
    answers: dict[int, Answer] = {}
    for length, rows in groups.items():
        group = {name: column[rows] for name, column in batch.items()}
        answers.update(zip(rows, write(group, length), strict=True))
    return [answers[row] for row in sorted(answers)]


def shifted_right(labels: Tensor, start: int, pad: int) -> Tensor:
    """Returns labels (batch, A) moved one place to the right, as a decoder reads them.

    Args:
        labels: `IGNORED` where there is none.
        start: the token that the decoder reads first.
        pad: the token that stands for `IGNORED`.
    """
    shifted = nn.functional.pad(labels[:, :-1], (1, 0), value=start)
    return shifted.masked_fill(shifted == IGNORED, pad)


def continued(
    question: Asked, prompt: Sequence[int], wanted: NDArray[np.int64], length: int, pad: int
) -> dict[str, NDArray[Any]]:
    """Returns the row of a question for a decoder that reads the prompt as its own text.

    Args:
        question: gives the columns of `Asked`.
        prompt: token ids.
        wanted: the answer, as `target` returns it.
        length: L, places of the row.
        pad: the token that fills it up.

    Returns:
        input_ids (L,), prompt and answer without its last token; labels (L,), at each place the
        token to follow, only where that is the answer's; prompt (), the number of its tokens.
    """
    count = int((wanted != IGNORED).sum())
    begin, end = len(prompt), len(prompt) + count - 1
    input_ids = np.full(length, pad, dtype=np.int64)
    labels = np.full(length, IGNORED, dtype=np.int64)
    input_ids[:begin] = prompt
    input_ids[begin:end] = wanted[: count - 1]
    labels[begin - 1 : end] = wanted[:count]
    columns = {"input_ids": input_ids, "labels": labels, "prompt": np.array(begin)}
    return columns | question.columns()


def target(ids: Sequence[int], length: int, end: int) -> NDArray[np.int64]:
    """Returns token ids and the end token, cut to `length` and filled up with `IGNORED`.

    If the text is too long, the end token is cut off too, so that the model learns no false ending.
    """
    row = np.full(length, IGNORED, dtype=np.int64)
    row[: min(len(ids) + 1, length)] = [*ids, end][:length]
    return row


def token_losses(logits: Tensor, labels: Tensor) -> Tensor:
    """Returns each example's mean cross-entropy over its labelled tokens, of shape (batch,).

    Args:
        logits: of shape (batch, places, vocabulary).
        labels: of shape (batch, places), `IGNORED` where there is no label. An example without
            labels has the loss 0.
    """
    losses = nn.functional.cross_entropy(
        logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="none"
    ).view(labels.shape)
    return losses.sum(1) / (labels != IGNORED).sum(1).clamp(min=1)


def read_answers(
    generated: Any, subwords: Subwords, begin: int, unsaid: Sequence[int] = ()
) -> list[Answer]:
    """Returns the answers that `generate` of transformers wrote, with their confidence.

    The confidence is the product of the highest probabilities at all generated places; the end
    token and padding count as 1. The paper (PFL-DocVQA) gives no formula. Its authors' code
    multiplies over the whole batch's length without the last place, so that an answer's confidence
    depends on the others in its batch. This one does not.

    Args:
        generated: with `return_dict_in_generate` and `output_scores`.
        subwords: turns token ids into text.
        begin: number of places at the front that were given, not generated.
        unsaid: other tokens that count as 1 because they are not part of the text.
    """
    written = generated.sequences[:, begin:]
    certain = torch.stack([scores.softmax(-1).amax(-1) for scores in generated.scores], 1)
    marks = torch.tensor([subwords.sep, subwords.pad, *unsaid], device=written.device)
    certain = certain.masked_fill(torch.isin(written, marks), 1.0)
    answers = []
    for ids, confidence in zip(written.tolist(), certain.prod(1).tolist(), strict=True):
        end = ids.index(subwords.sep) if subwords.sep in ids else len(ids)
        answers.append(Answer(subwords.text(ids[:end]), confidence))
    return answers
