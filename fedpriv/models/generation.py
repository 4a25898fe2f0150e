"""Text that a decoder writes: the loss of a target, greedy answers, and how sure the model is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedpriv.models.base import Answer
from fedpriv.models.readers.reader import IGNORED
from fedpriv.models.readers.subwords import Subwords


def target(ids: Sequence[int], length: int, end: int) -> NDArray[np.int64]:
    """Returns token ids and the end token, cut to `length` and filled up with `IGNORED`.

    Where the text is too long, the end token is cut off too: the model learns no false ending.
    """
    row = np.full(length, IGNORED, dtype=np.int64)
    row[: min(len(ids) + 1, length)] = [*ids, end][:length]
    return row


def token_losses(logits: Tensor, labels: Tensor) -> Tensor:
    """Returns each example's mean cross-entropy over its own labelled tokens, of shape (batch,).

    Args:
        logits: of shape (batch, places, vocabulary).
        labels: of shape (batch, places), `IGNORED` where there is none; an example without any
            has the loss 0.
    """
    losses = nn.functional.cross_entropy(
        logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="none"
    ).view(labels.shape)
    return losses.sum(1) / (labels != IGNORED).sum(1).clamp(min=1)


def read_answers(
    generated: Any, subwords: Subwords, begin: int, unsaid: Sequence[int] = ()
) -> list[Answer]:
    """Returns what `generate` of transformers wrote, with its confidence.

    The confidence is the product of the highest probability at each place that was generated, end
    and padding counted as 1. The paper (PFL-DocVQA) gives no formula; its authors' code multiplies
    over the whole batch's length but for the last place, so that an answer's confidence depends on
    the others in its batch. This one does not.

    Args:
        generated: with `return_dict_in_generate` and `output_scores`.
        subwords: turns token ids into text.
        begin: how many places at the front were given, not generated.
        unsaid: more tokens that count as 1, marks that are no part of the text.
    """
    written = generated.sequences[:, begin:]
    certain = torch.stack([scores.softmax(-1).amax(-1) for scores in generated.scores], 1)
    marks = torch.tensor([subwords.sep, subwords.pad, *unsaid], device=written.device)
    certain = certain.masked_fill(torch.isin(written, marks), 1.0)
    texts = [subwords.text(_until(row, subwords.sep)) for row in written.tolist()]
    return [Answer(*pair) for pair in zip(texts, certain.prod(1).tolist(), strict=True)]


def _until(ids: list[int], end: int) -> list[int]:
    return ids[: ids.index(end)] if end in ids else ids
