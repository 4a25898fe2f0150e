"""Answers that a decoder writes: their loss, greedy decoding, and the model's confidence."""

from __future__ import annotations

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Mapping, Sequence
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
from fedpriv.models.readers.reader import IGNORED, filled
from fedpriv.models.readers.subwords import Subwords


class AnswerReader(Protocol):
    """Turns questions about documents into arrays; `labels` are the first accepted answer."""

    @property
    def subwords(self) -> Subwords:
        """The tokenizer of the answers."""

    @property
    def answer_length(self) -> int:
        """A, tokens of an answer at most, the end token included."""

    def read(self, documents: Sequence[Document]) -> Examples:
        """Returns one row per question."""

    def settings(self) -> dict[str, Any]:
        """Returns all settings, as JSON can hold them."""


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


class EncoderDecoderAnswerer(GenerativeAnswerer):
    """A model whose encoder reads the page with its question, and whose decoder answers.

    Attributes:
        network: of transformers, with both.
    """

    network: Any

    @property
    def writer(self) -> Any:
        """The network of transformers."""
        return self.network

    @abstractmethod
    def page(self, batch: Batch) -> dict[str, Tensor]:
        """Returns the encoder's arguments: `attention_mask`, and what it is the mask of."""

    def forward(self, batch: Batch) -> Tensor:
        """Returns the scores of the answer's tokens, of shape (batch, A, vocabulary)."""
        return self._scores(batch, self.page(batch))

    def answer_batch(self, batch: Batch) -> list[Answer]:
        """Returns the greedy answer of each row."""
        return self._written(self.page(batch))

    def reply_batch(self, batch: Batch) -> tuple[list[Answer], Tensor]:
        """Returns answers and losses of one reading of the page."""
        page: dict[str, Any] = self.page(batch)
        seen = self.writer.encoder(**page)
        page = {"attention_mask": page["attention_mask"], "encoder_outputs": seen}
        return self._written(page), token_losses(self._scores(batch, page), batch["labels"])

    def _scores(self, batch: Batch, page: Mapping[str, Any]) -> Tensor:
        # The decoder reads the answer one place to the right.
        start = self.writer.config.decoder_start_token_id
        before = nn.functional.pad(batch["labels"][:, :-1], (1, 0), value=start)
        before = before.masked_fill(before == IGNORED, self.reader.subwords.pad)
        logits: Tensor = self.writer(decoder_input_ids=before, use_cache=False, **page).logits
        return logits

    def _written(self, page: Mapping[str, Any]) -> list[Answer]:
        settings = self.writer.generation_config
        generated = self.writer.generate(**page, generation_config=settings)
        return read_answers(generated, self.reader.subwords, begin=1)


class PromptedAnswerer(GenerativeAnswerer):
    """A model whose decoder reads the prompt as the beginning of its own text, and goes on.

    Attributes:
        network: of transformers.
    """

    network: Any

    @abstractmethod
    def given(self, batch: Batch, length: int | None = None) -> dict[str, Tensor]:
        """Returns the network's arguments, with the tokens cut to the first `length`."""

    def unsaid(self) -> tuple[int, ...]:
        """Returns tokens that the model writes and that are not part of the answer's text."""
        return ()

    def forward(self, batch: Batch) -> Tensor:
        """Returns the scores of the token to follow at each place, (batch, L, vocabulary)."""
        # The padding stands at the end, where a causal decoder does not look back from.
        logits: Tensor = self.network(**self.given(batch), use_cache=False).logits
        return logits

    def answer_batch(self, batch: Batch) -> list[Answer]:
        """Returns the greedy answer of each row.

        Rows are answered together if their prompts, of the lengths in the column `prompt`, have
        one length. So nothing stands between a prompt and its answer, whatever a network makes of
        padding: MBart counts it as text.
        """
        groups: dict[int, list[int]] = defaultdict(list)
        for row, length in enumerate(batch["prompt"].tolist()):
            groups[length].append(row)
        answers: dict[int, Answer] = {}
        for length, rows in groups.items():
            group = {name: column[rows] for name, column in batch.items()}
            settings = self.network.generation_config
            generated = self.network.generate(
                **self.given(group, length), generation_config=settings
            )
            read = read_answers(generated, self.reader.subwords, length, self.unsaid())
            answers.update(zip(rows, read, strict=True))
        return [answers[row] for row in sorted(answers)]


def greedy(reader: AnswerReader, **more: Any) -> GenerationConfig:
    """Returns settings for `generate` of transformers: likeliest tokens, and their scores.

    They replace those of a checkpoint, which `generate` would mix in.

    Args:
        reader: its tokenizer's end token ends an answer.
        **more: other settings of `GenerationConfig`.
    """
    return GenerationConfig(
        max_new_tokens=reader.answer_length,
        pad_token_id=reader.subwords.pad,
        eos_token_id=reader.subwords.sep,
        do_sample=False,
        num_beams=1,
        return_dict_in_generate=True,
        output_scores=True,
        **more,
    )


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
    begin = len(prompt)
    return {
        "input_ids": filled([*prompt, *wanted[: count - 1]], length, pad),
        "labels": filled(wanted[:count], length, IGNORED, begin - 1),
        "prompt": np.array(begin),
        **question.columns(),
    }


def target(ids: Sequence[int], length: int, end: int) -> NDArray[np.int64]:
    """Returns token ids and the end token, cut to `length` and filled up with `IGNORED`.

    If the text is too long, the end token is cut off too, so that the model learns no false ending.
    """
    return filled([*ids, end][:length], length, IGNORED)


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
