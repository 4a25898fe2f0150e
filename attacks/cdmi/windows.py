"""Scrubbed windows as one model reads them, filled in with many beginnings at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedpriv.attacks.cdmi.likelihoods import Table
from fedpriv.data.examples import Batch
from fedpriv.models.field_model import VISUAL, FieldModel, TokenModel
from fedpriv.threat.attack import NotApplicable

Knot = tuple[int, tuple[int, ...]]
"""A field, by its place in the chunk, and the tokens that are filled in so far."""


class Windows:
    """F fields' windows, in front of one model.

    Args:
        model: in evaluation mode.
        batch: F rows, of which the page has been looked at (`looked_at`).
        places: of each field's tokens.
        size: rows that the model is given at once.
    """

    def __init__(
        self, model: FieldModel, batch: Batch, places: Sequence[tuple[int, ...]], size: int
    ) -> None:
        self._model, self._batch, self._places, self._size = model, batch, places, size

    def scores(self, knots: Sequence[Knot]) -> Tensor:
        """Returns the logits of each knot's next token, (knots, tokens of the tokenizer).

        Raises:
            NotApplicable: if they are no numbers.
        """
        model = cast(TokenModel, self._model)
        fields, ids, nexts = self._filled(knots)
        parts = [
            model.token_scores(self._rows(fields[some], ids[some]), nexts[some])
            for some in _slices(len(knots), self._size)
        ]
        tokens = model.reader.subwords.size
        return _finite(torch.cat(parts)[:, :tokens], "scores of tokens")

    def losses(self, knots: Sequence[Knot], candidates: NDArray[np.int64]) -> Table:
        """Returns the loss of each candidate for each knot's next token (Algorithm 2, line 5).

        Args:
            knots: K.
            candidates: (K, C), ids.

        Raises:
            NotApplicable: if they are no numbers.
        """
        fields, ids, nexts = self._filled(knots)
        tokens = torch.from_numpy(candidates).to(ids.device).flatten()
        knot = torch.arange(len(knots), device=ids.device).repeat_interleave(candidates.shape[1])
        parts = []
        for some in _slices(len(tokens), self._size):
            own = knot[some]
            filled = ids[own].scatter_(1, nexts[own, None], tokens[some, None])
            parts.append(self._model.losses(self._rows(fields[own], filled)))
        losses = _finite(torch.cat(parts), "losses").double().cpu().numpy()
        return cast(Table, losses.reshape(candidates.shape))

    def _filled(self, knots: Sequence[Knot]) -> tuple[Tensor, Tensor, Tensor]:
        """Returns each knot's field, its `input_ids` (knots, L), and the place of its next token.

        Advanced indexing copies: the scrubbed rows stay as they are.
        """
        ids = self._batch["input_ids"]
        fields = torch.tensor([field for field, _ in knots], device=ids.device)
        nexts = torch.tensor([self._places[f][len(p)] for f, p in knots], device=ids.device)
        filled = ids[fields]
        known = [
            (row, place, token)
            for row, (field, prefix) in enumerate(knots)
            for place, token in zip(self._places[field], prefix, strict=False)
        ]
        if known:
            rows, places, tokens = torch.tensor(known, device=ids.device).unbind(1)
            filled[rows, places] = tokens
        return fields, filled, nexts

    def _rows(self, fields: Tensor, ids: Tensor) -> Batch:
        rest = {n: column[fields] for n, column in self._batch.items() if n != "input_ids"}
        return {"input_ids": ids, **rest}


def looked_at(
    model: FieldModel, batch: Batch, noise: Callable[[Tensor], Tensor] | None = None
) -> Batch:
    """Returns rows with their page looked at, cut behind the last token that any of them attends.

    Args:
        model: in evaluation mode.
        batch: F rows of L tokens.
        noise: returns what is to stand in the place of visual features (F, L, H); none: they stay.

    Raises:
        NotApplicable: if visual features are to be replaced, and the model reads no page.
    """
    seen = model.seen(batch)
    if noise is not None:
        if VISUAL not in seen:
            raise NotApplicable("visual=noise: the model reads no page; take attack.visual=page")
        seen = {**seen, VISUAL: noise(seen[VISUAL])}
    seen = {name: column for name, column in seen.items() if name != "pixels"}  # of other models
    length = seen["input_ids"].shape[1]
    attended = int(seen["attention_mask"].sum(1).max())
    return {
        name: column[:, :attended] if column.ndim > 1 and column.shape[1] == length else column
        for name, column in seen.items()
    }


def gaussian_like(
    features: Tensor, attention_mask: Tensor, rngs: Sequence[np.random.Generator]
) -> Tensor:
    """Returns Gaussian noise with each row's own mean and deviation (CDMI, §6.2, visual modality).

    CDMI says "Gaussian noise" only; that it has the features' scale is ours.

    Args:
        features: (F, L, H).
        attention_mask: (F, L); mean and deviation are over what is attended.
        rngs: F.
    """
    rows = []
    for own, mask, rng in zip(features, attention_mask, rngs, strict=True):
        told = own[mask.bool()]
        noise = torch.from_numpy(rng.standard_normal(own.shape)).to(own)
        rows.append(told.mean() + told.std() * noise)
    return torch.stack(rows)


def device_of(model: Any) -> torch.device:
    """Returns where a model is."""
    return next(cast(nn.Module, model).parameters()).device


def _slices(count: int, size: int) -> Iterator[slice]:
    return (slice(start, start + size) for start in range(0, count, size))


def _finite(values: Tensor, what: str) -> Tensor:
    if not bool(values.isfinite().all()):
        raise NotApplicable(
            f"the {what} are not finite: has the training diverged? Then lower its learning rate"
        )
    return values
