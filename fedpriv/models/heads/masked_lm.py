"""Masked language modelling on an encoder: MLM of CDMI, §2.1, as in BERT (Devlin et al. 2019).

Some tokens are chosen, most of them are hidden, and the model predicts them. The scores are
products with the embeddings of the tokens, as in LayoutLM and BERT. BROS has no such head in
transformers and gets the same.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers.models.bert.modeling_bert import BertPredictionHeadTransform

from fedpriv.data.document import Document
from fedpriv.data.examples import Batch, Examples
from fedpriv.models.base import sums_over
from fedpriv.models.encoders.encoder import Encoder
from fedpriv.models.encoders.encoder_model import EncoderModel
from fedpriv.models.readers.reader import Reader
from fedpriv.models.saving import draw_linear
from fedpriv.models.tagging import EVALUATION_BATCH, tags_of
from fedpriv.runtime import seeds

MASK_RATE = 0.15
"""The probability with which a token is chosen."""

MASKED, REPLACED = 0.8, 0.1
"""Shares of the chosen tokens that become [MASK], and any other token; the rest stay."""

CHOSEN = "chosen"
"""The column of the tokens that are hidden whenever the model is evaluated."""


class Hidden(NamedTuple):
    """Tokens to be predicted, at most k places of each example.

    Attributes:
        places: (batch, k), positions in the window, each once.
        chosen: (batch, k), bool; False for places that only fill up the row.
        shown: (batch, k), ids that the model reads at these places.
    """

    places: Tensor
    chosen: Tensor
    shown: Tensor


class WordScores(nn.Module):
    """The head: turns vectors into scores of tokens, with the tokens' embeddings as last layer.

    Args:
        encoder: gives the sizes; it is not stored.
    """

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        config = encoder.network.config
        self.transform = BertPredictionHeadTransform(config)
        self.bias = nn.Parameter(torch.zeros(encoder.word_embeddings.num_embeddings))
        draw_linear(self.transform, config.initializer_range)

    def forward(self, vectors: Tensor, embeddings: Tensor) -> Tensor:
        """Returns scores (…, vocabulary) of vectors (…, H), by embeddings (vocabulary, H)."""
        return functional.linear(self.transform(vectors), embeddings, self.bias)


class MaskedWords(EncoderModel):
    """An encoder that predicts masked tokens; a `fedpriv.models.field_model.TokenModel`.

    In training mode tokens are chosen anew in each forward pass, by torch's global generator: each
    with probability `MASK_RATE`; of these, 80 % become [MASK], 10 % any token, 10 % stay. In
    evaluation mode the tokens in the column `chosen` become [MASK], so that epochs can be compared.
    Special tokens, [MASK] among them, are never chosen.

    Raises:
        ValueError: if the tokenizer has no token to mask with.
    """

    task = "mlm"

    def __init__(self, encoder: Encoder, reader: Reader, labels: Sequence[str]) -> None:
        super().__init__(encoder, reader, labels)
        if reader.subwords.mask is None:
            raise ValueError("task='mlm': the tokenizer has no mask token; take one that has")
        self.mask = reader.subwords.mask
        self.scores = WordScores(encoder)

    def loss(self, batch: Batch) -> Tensor:
        """Returns the mean cross-entropy over all chosen tokens; 0 if there are none."""
        total, count = self.summed_loss(batch)
        return total / count.clamp(min=1)

    def summed_loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Returns the cross-entropy summed over all chosen tokens, and their number."""
        wrong, chosen = self._wrong(batch)
        return wrong.sum(), chosen.sum()

    def losses(self, batch: Batch) -> Tensor:
        """Returns each example's mean cross-entropy over its chosen tokens, (batch,)."""
        wrong, chosen = self._wrong(batch)
        return wrong.sum(1) / chosen.sum(1).clamp(min=1)

    def token_scores(self, batch: Batch, places: Tensor) -> Tensor:
        """Returns the logits at one place of each example, (batch, vocabulary).

        Args:
            batch: read as it is; no tokens are masked beside those masked in `input_ids`.
            places: (batch,), int64.
        """
        vectors = self.encoder(batch)
        rows = torch.arange(len(vectors), device=vectors.device)
        return self._scores(vectors[rows, places])

    def encode(self, documents: Sequence[Document]) -> Examples:
        """Returns the documents as windows (`Reader.read`), with `chosen`, (N, L), bool."""
        examples = self.reader.read(documents, tags_of(self.labels))
        ids = examples.column("input_ids")
        possible = self._possible(
            torch.from_numpy(ids), torch.from_numpy(examples.column("attention_mask"))
        )
        chances = []
        for row in ids:
            # Keyed by the window's text, so that other windows read with it change nothing.
            key = zlib.crc32(row.tobytes())
            chances.append(seeds.generator(0, "masked for validation", round=key).random(len(row)))
        return examples.with_column(CHOSEN, (np.stack(chances) < MASK_RATE) & possible.numpy())

    def evaluate(self, examples: Examples) -> dict[str, float]:
        """Returns `loss` per chosen token, and `accuracy`, the share predicted right."""

        def scored(batch: Batch) -> dict[str, Tensor]:
            hidden = self._fixed(batch)
            scores, true = self._guesses(batch, hidden)
            return {
                "loss": _cross_entropy(scores, true, hidden.chosen).sum(),
                "right": ((scores.argmax(-1) == true) & hidden.chosen).sum(),
                "count": hidden.chosen.sum(),
            }

        sums = sums_over(map(scored, examples.batches(EVALUATION_BATCH, device=self.device)))
        count = max(sums["count"], 1)
        return {"loss": sums["loss"] / count, "accuracy": sums["right"] / count}

    def head(self) -> list[nn.Module]:
        """Returns the modules after the last layer, without the embeddings."""
        return [self.scores]

    def reading(self) -> dict[str, Any]:
        """Returns all settings that decide how documents become arrays."""
        return {**super().reading(), "mask_rate": MASK_RATE}

    def _wrong(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Returns the cross-entropy at the places, 0 where not chosen, and which are chosen."""
        hidden = self._drawn(batch) if self.training else self._fixed(batch)
        return _cross_entropy(*self._guesses(batch, hidden), hidden.chosen), hidden.chosen

    def _guesses(self, batch: Batch, hidden: Hidden) -> tuple[Tensor, Tensor]:
        """Returns the scores (batch, k, vocabulary) and the true ids at the places (batch, k)."""
        ids, places = batch["input_ids"], hidden.places
        vectors = self.encoder({**batch, "input_ids": ids.scatter(1, places, hidden.shown)})
        at = places.unsqueeze(-1).expand(-1, -1, vectors.shape[-1])
        return self._scores(vectors.gather(1, at)), ids.gather(1, places)

    def _drawn(self, batch: Batch) -> Hidden:
        ids = batch["input_ids"]
        possible = self._possible(ids, batch["attention_mask"])
        chances = torch.rand(ids.shape, device=ids.device).masked_fill(~possible, 1.0)
        lowest, places = chances.topk(_most(ids.shape[1]), dim=1, largest=False)
        chosen = lowest < MASK_RATE
        return Hidden(places, chosen, self._disguised(ids.gather(1, places), chosen))

    def _disguised(self, true: Tensor, chosen: Tensor) -> Tensor:
        chances = torch.rand(true.shape, device=true.device)
        other = torch.randint(self.reader.subwords.size, true.shape, device=true.device)
        shown = torch.where(chances < MASKED + REPLACED, other, true)
        return torch.where(chosen, shown.masked_fill(chances < MASKED, self.mask), true)

    def _fixed(self, batch: Batch) -> Hidden:
        ids = batch["input_ids"]
        chosen = batch[CHOSEN] & self._possible(ids, batch["attention_mask"])
        most = int(chosen.sum(1).max())
        places = (~chosen).to(torch.uint8).argsort(dim=1, stable=True)[:, :most]
        chosen = chosen.gather(1, places)
        return Hidden(places, chosen, ids.gather(1, places).masked_fill(chosen, self.mask))

    def _possible(self, ids: Tensor, attention_mask: Tensor) -> Tensor:
        subwords = self.reader.subwords
        possible = attention_mask > 0
        for special in (subwords.cls, subwords.sep, subwords.pad, self.mask):
            possible = possible & (ids != special)
        return possible

    def _scores(self, vectors: Tensor) -> Tensor:
        scores: Tensor = self.scores(vectors, self.encoder.word_embeddings.weight)
        return scores


def _most(length: int) -> int:
    """Returns how many tokens of a window are scored; more are hardly ever chosen.

    The number is fixed so that vmap can compute per-example gradients. It is not the window's
    length because most of the work is in the scores of the whole vocabulary.
    """
    return min(length, math.ceil(2 * MASK_RATE * length) + 8)


def _cross_entropy(scores: Tensor, true: Tensor, chosen: Tensor) -> Tensor:
    wrong = functional.cross_entropy(scores.transpose(1, 2), true, reduction="none")
    return wrong.masked_fill(~chosen, 0.0)
