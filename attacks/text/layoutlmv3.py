"""Tokens, places, boxes, question and answer of LayoutLMv3, exactly, from one gradient.

Its input is a sum: word, place, type and box each add a row of their own table. So each table's
gradient shows which rows were used, and of a single example the places' rows are the gradients of
the tokens one by one (`fedpriv.attacks.text.sums`). Nothing else is known: no template, no
question.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedpriv.attacks.text.boxes import Coordinates, boxes
from fedpriv.attacks.text.span import Array, noise_level, used_rows
from fedpriv.attacks.text.sums import UNKNOWN, Ids, pairs_of, read_one, read_several
from fedpriv.attacks.victim import Victim
from fedpriv.models.layoutlmv3 import LayoutLMv3Tagger
from fedpriv.models.layoutlmv3_answers import LONGEST, LayoutLMv3Answerer
from fedpriv.models.readers.subwords import Subwords
from fedpriv.threat.attack import NotApplicable
from fedpriv.threat.claims import RecoveredText

EMBEDDINGS = "network.layoutlmv3.embeddings."


@dataclass(frozen=True)
class Tables:
    """Gradients of the embeddings of words, of places, and of coordinates, float64."""

    words: Array
    places: Array
    coordinates: Coordinates
    noise: float

    @classmethod
    def of(cls, victim: Victim) -> Tables:
        """Reads them.

        Raises:
            NotApplicable: if the gradients of words or places are missing.
        """
        words, places, *coordinates = (
            victim.seen(f"{EMBEDDINGS}{kind}_embeddings.weight", "LayoutLMv3's embeddings")
            for kind in ("word", "position", *(f"{axis}_position" for axis in "xyhw"))
        )
        return cls(words, places, Coordinates(*coordinates), noise_level(words))


def recover(model: LayoutLMv3Answerer | LayoutLMv3Tagger, victim: Victim) -> RecoveredText:
    """Reads the text of a batch.

    Of one example everything comes back, while its tokens are fewer than the network is wide or
    their sums can be told apart; of B examples the set of tokens, and places of some.

    Raises:
        NotApplicable: if the embeddings' gradients are not in the message.
    """
    tables = Tables.of(victim)
    tokens = np.flatnonzero(used_rows(tables.words, tables.noise))
    places = np.flatnonzero(used_rows(tables.places, tables.noise))
    subwords = model.reader.subwords
    # Places count from the id of the padding + 1, and leave none out.
    first, sums = subwords.pad + 1, tables.words[tokens]
    if (size := len(victim.template)) > 1:
        parts = tables.places[places]
        several = read_several(places - first, tokens, parts, sums, size, tables.noise)
        return RecoveredText(several)
    parts = tables.places[first : max(places, default=first - 1) + 1]
    ids, missed = read_one(parts, sums, tokens, tables.noise)
    found = _boxes(ids, parts, tables, subwords, isinstance(model, LayoutLMv3Answerer))
    known = np.flatnonzero(ids != UNKNOWN)
    pairs = pairs_of(known, ids[known], missed)
    of_pairs = np.concatenate([found[known], np.full((len(missed), 4), -1)])
    if not isinstance(model, LayoutLMv3Answerer) or not len(ids) or UNKNOWN in ids:
        return RecoveredText(pairs, of_pairs)
    return _with_answer(model, victim, ids, found, pairs, of_pairs)


def _page(ids: Ids, subwords: Subwords, asks: bool) -> NDArray[np.bool_]:
    """Returns which places are the page's: behind the question, or between the special tokens."""
    page: NDArray[np.bool_] = np.asarray(ids != subwords.sep)
    ends = np.flatnonzero(~page)
    page[: ends[1] + 1 if asks and len(ends) > 1 else 1] = False
    return page


def _boxes(
    ids: Ids, parts: Array, tables: Tables, subwords: Subwords, asks: bool
) -> NDArray[np.int64]:
    """Returns each place's box; 0 for those of question and marks, as the reader has it."""
    page = _page(ids, subwords, asks)
    found = np.zeros((len(ids), 4), dtype=np.int64)
    if not page.any():
        return found
    word = np.cumsum(_begins(subwords, ids, page)[page]) - 1
    sums = np.zeros((word[-1] + 1, parts.shape[1]))
    np.add.at(sums, word, parts[page])
    rest = _without(tables.coordinates, parts[~page].sum(0))
    found[page] = boxes(sums, rest, tables.noise)[word]
    return found


def _begins(subwords: Subwords, ids: Ids, page: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Returns which tokens of the page open a word: those with a space in front, and the first.

    Words are cut into tokens one by one, each behind a space. A token that is not known counts as
    a word of its own.
    """
    texts = [subwords.tokenizer.id_to_token(int(token)) if token >= 0 else None for token in ids]
    begins = np.array([text is None or text.startswith(("Ġ", "▁")) for text in texts])
    first = np.zeros(len(ids), dtype=bool)
    first[np.flatnonzero(page)[:1]] = True
    return np.asarray(page & (begins | first))


def _without(tables: Coordinates, part: Array) -> Coordinates:
    """Returns the tables less what the tokens at box 0 added, whose gradients sum to `part`."""
    left, top, right, bottom, height, width = tables.cut(part)
    x, y, h, w = (table.copy() for table in (tables.x, tables.y, tables.h, tables.w))
    for table, taken in ((x, left + right), (y, top + bottom), (h, height), (w, width)):
        rounding = np.finfo(np.float32).eps * np.abs(table[0]).max()
        table[0] -= taken
        # What rounding leaves must not look like a row that was used.
        if np.abs(table[0]).max() < 100 * rounding:
            table[0] = 0
    return Coordinates(x, y, h, w)


def _with_answer(
    model: LayoutLMv3Answerer,
    victim: Victim,
    ids: Ids,
    found: NDArray[np.int64],
    pairs: Ids,
    of_pairs: Ids,
) -> RecoveredText:
    subwords = model.reader.subwords
    columns = _columns(model, ids, found)
    start, end = _span(model, victim, columns)
    ends = np.flatnonzero(ids == subwords.sep)
    question = subwords.text(ids[1 : ends[0]].tolist()) if len(ends) else None
    answer = subwords.text(ids[start : end + 1].tolist()) if start else ""
    given = {**columns, "start": np.array([start]), "end": np.array([end])}
    return RecoveredText(pairs, of_pairs, question, answer, given)


def _columns(
    model: LayoutLMv3Answerer, ids: Ids, found: NDArray[np.int64]
) -> dict[str, NDArray[Any]]:
    """Returns the columns that the model reads, but the answer; boxes that are not known at 0."""
    length, subwords = model.reader.max_length, model.reader.subwords
    input_ids = np.full((1, length), subwords.pad, dtype=np.int64)
    input_ids[0, : len(ids)] = ids
    bbox = np.zeros((1, length, 4), dtype=np.int64)
    bbox[0, : len(ids)] = np.maximum(found, 0)
    word = np.full((1, length), UNKNOWN, dtype=np.int64)
    word[0, : len(ids)] = np.where(_page(ids, subwords, True), np.arange(len(ids)), UNKNOWN)
    mask = (np.arange(length) < len(ids)).astype(np.int64)[None]
    return {"input_ids": input_ids, "attention_mask": mask, "bbox": bbox, "word": word}


@torch.no_grad()
def _span(
    model: LayoutLMv3Answerer, victim: Victim, columns: Mapping[str, NDArray[Any]]
) -> tuple[int, int]:
    """Returns the answer's first and last place, the span that explains the head's gradient best.

    The last layer's row for the first place is ½ (Σ_i p_i u_i - u_first), with the probabilities p
    and the layer's inputs u of the attacker's own forward pass on the template; for the last place
    likewise. Best is the span with the greatest cosine over both rows: clipping, or a learning rate
    that is not known, changes their scale.
    """
    name = "network.qa_outputs.out_proj.weight"
    if name not in victim.gradient:
        raise NotApplicable(f"the message has no gradient of {name}, which shows the answer")
    seen = victim.gradient[name].detach().double().cpu()
    device = model.device
    batch = {key: torch.from_numpy(value).to(device) for key, value in columns.items()}
    batch["pixels"] = victim.template.to(device)
    inputs: list[Tensor] = []
    last = model.network.qa_outputs.out_proj
    hook = last.register_forward_pre_hook(lambda _, given: inputs.append(given[0]))
    try:
        scores = model(batch)
    finally:
        hook.remove()
    word = columns["word"][0]
    u = inputs[0][0, : len(word)].double().cpu()
    products, squares = [], []
    for row, score in zip(seen, scores, strict=True):
        mean = score[0].double().softmax(-1).cpu() @ u
        products.append(((mean - u) @ row).numpy())
        squares.append((mean - u).square().sum(1).numpy())
    along = products[0][:, None] + products[1][None, :]
    length = np.sqrt(squares[0][:, None] + squares[1][None, :])
    cosine = along / np.maximum(length, np.finfo(np.float64).tiny)
    # An answer is made of whole words.
    opens = _begins(model.reader.subwords, columns["input_ids"][0], word >= 0)
    closes = (word >= 0) & (np.append(opens[1:], True) | np.append(word[1:] < 0, True))
    allowed = opens[:, None] & closes[None, :]
    tokens = np.arange(len(word))[None, :] - np.arange(len(word))[:, None] + 1
    allowed &= (tokens >= 1) & (tokens <= LONGEST)
    allowed[0, 0] = True
    first, final = np.unravel_index(np.where(allowed, cosine, -np.inf).argmax(), cosine.shape)
    return int(first), int(final)
