"""Prompt, question and answer of Donut, exactly, from one gradient.

Its decoder reads prompt and answer as one sequence, in which word and place are added: so the rows
of the places' gradient are the gradients of the tokens one by one (`fedpriv.attacks.text.sums`).
The page's pixels have no part in it.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedpriv.attacks.text.span import Array, noise_level, used_rows
from fedpriv.attacks.text.sums import UNKNOWN, owners, partners
from fedpriv.attacks.text.tied import Words
from fedpriv.attacks.victim import Victim
from fedpriv.models.donut import Donut
from fedpriv.models.readers.donut_reader import ANSWER, ANSWER_END, QUESTION_END
from fedpriv.models.readers.reader import IGNORED
from fedpriv.threat.attack import NotApplicable
from fedpriv.threat.claims import RecoveredText

DECODER = "network.decoder.model.decoder."

OFFSET = 2
"""Rows of MBart's table of places that are never looked up, in front of the others."""

Ids = NDArray[np.int64]


def recover(model: Donut, victim: Victim) -> RecoveredText:
    """Reads the decoder's input of a batch.

    Of one example everything comes back, while its tokens and labels are fewer than the decoder is
    wide; of several the tokens, and places of some.

    Raises:
        NotApplicable: if the embeddings' gradients are not in the message.
    """
    config, size = model.network.decoder.config, len(victim.template)
    words, places = (_table(victim, kind) for kind in ("embed_tokens", "embed_positions"))
    noise = noise_level(places[:OFFSET])
    rows = np.flatnonzero(used_rows(places, noise))
    scale = math.sqrt(config.d_model) if config.scale_embedding else 1.0
    parts = scale * places[rows]
    most = size * model.reader.max_length
    if config.tie_word_embeddings:
        outside = Words.of(words, size * model.reader.answer_length)
        words, parts = outside.table, parts @ outside.outside.T
        tokens = np.flatnonzero(outside.used(noise, most))
    else:
        tokens = np.flatnonzero(used_rows(words, noise))
    if size > 1:
        return _of_several(rows - OFFSET, tokens, parts, words[tokens], size, noise)
    owner = owners(parts, words[tokens], noise)
    ids = np.append(tokens, UNKNOWN)[owner]
    # Where every place has its token, none is left over.
    missed = tokens[:0] if len(ids) and UNKNOWN not in ids else np.setdiff1d(tokens, ids)
    return _read(model, ids, rows - OFFSET, missed)


def _table(victim: Victim, kind: str) -> Array:
    name = f"{DECODER}{kind}.weight"
    seen: Tensor | None = victim.gradient.get(name)
    if seen is None:
        raise NotApplicable(
            f"the message has no gradient of {name}: the table is frozen or was not sent, and with "
            "it go the tokens; this attack needs the decoder's embeddings trained"
        )
    return np.asarray(seen.detach().cpu().double().numpy())


def _of_several(
    places: Ids, tokens: Ids, parts: Array, sums: Array, size: int, noise: float
) -> RecoveredText:
    found = partners(parts, sums, most=size, noise=noise)
    pairs = [(int(places[place]), int(tokens[token])) for place, token in found]
    missed = np.setdiff1d(tokens, [token for _, token in pairs])
    pairs += [(UNKNOWN, int(token)) for token in missed]
    return RecoveredText(np.array(pairs, dtype=np.int64).reshape(-1, 2))


def _read(model: Donut, ids: Ids, places: Ids, missed: Ids) -> RecoveredText:
    """Cuts the decoder's input at its marks; missed are the tokens whose places are not known."""
    known = ids != UNKNOWN
    placed = np.stack([places[known], ids[known]], axis=1)
    pairs = np.concatenate([placed, np.stack([np.full(len(missed), UNKNOWN), missed], axis=1)])
    subwords = model.reader.subwords
    question_end, answer, answer_end = (
        subwords.tokenizer.token_to_id(mark) for mark in (QUESTION_END, ANSWER, ANSWER_END)
    )
    marks = np.flatnonzero((ids[:-1] == question_end) & (ids[1:] == answer))
    if not len(marks):
        return RecoveredText(pairs)
    prompt = int(marks[0]) + 2
    asked, said = (part[part != UNKNOWN] for part in (ids[2 : prompt - 2], ids[prompt:]))
    ended = len(said) > 0 and said[-1] == answer_end
    text = RecoveredText(
        pairs,
        question=subwords.text(asked.tolist()),
        answer=subwords.text(said[:-1].tolist() if ended else said.tolist()),
        columns=_columns(model, ids, prompt) if known.all() and ended else None,
    )
    return text


def _columns(model: Donut, ids: Ids, prompt: int) -> dict[str, Ids]:
    length, subwords = model.reader.max_length, model.reader.subwords
    input_ids = np.full((1, length), subwords.pad, dtype=np.int64)
    input_ids[0, : len(ids)] = ids
    labels = np.full((1, length), IGNORED, dtype=np.int64)
    labels[0, prompt - 1 : len(ids)] = [*ids[prompt:], subwords.sep]
    return {"input_ids": input_ids, "labels": labels, "prompt": np.array([prompt])}
