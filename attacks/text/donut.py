"""Prompt, question and answer of Donut, exactly, from one gradient.

Its decoder reads prompt and answer as one sequence, in which word and place are added: so the rows
of the places' gradient are the gradients of the tokens one by one (`fedpriv.attacks.text.sums`).
The page's pixels have no part in it. The sequences of a batch are read from the decoder's first
layer (`fedpriv.attacks.text.sequences`).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import cast

import numpy as np
import torch
from torch import Tensor

from fedpriv.attacks.text.sequences import read_sequences, tells
from fedpriv.attacks.text.span import Array, noise_level, row_space, used_rows
from fedpriv.attacks.text.sums import UNKNOWN, Ids, pairs_of, read_one, read_several
from fedpriv.attacks.text.tied import Words
from fedpriv.attacks.victim import Victim
from fedpriv.models.donut import Donut
from fedpriv.models.readers.donut_reader import ANSWER, ANSWER_END, QUESTION_END, START
from fedpriv.models.readers.reader import IGNORED
from fedpriv.threat.claims import SEVERAL, RecoveredText

DECODER = "network.decoder.model.decoder."
CROSS_QUERIES = f"{DECODER}layers.0.encoder_attn.q_proj.weight"

OFFSET = 2
"""Rows of MBart's table of places that are never looked up, in front of the others."""


def recover(model: Donut, victim: Victim) -> RecoveredText:
    """Reads the decoder's input of a batch.

    Of one example everything comes back, while its tokens and labels are fewer than the decoder is
    wide; of several too, while the tokens of all are. Beyond that, the tokens and places of some.

    Raises:
        NotApplicable: if the embeddings' gradients are not in the message.
    """
    config, size = model.network.decoder.config, len(victim.template)
    words, places = (
        victim.seen(f"{DECODER}{kind}.weight", "the decoder's embeddings")
        for kind in ("embed_tokens", "embed_positions")
    )
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
        sequences = _sequences(model, victim, tokens, most)
        ended = [ids for ids in sequences if ids[-1] == model.reader.answer_end]
        # All examples to their end, or all tokens: one that is none may be among these.
        if len(ended) == size or (sequences and np.isin(tokens, np.concatenate(sequences)).all()):
            return _read_several(model, sequences, tokens)
        several = read_several(rows - OFFSET, tokens, parts, words[tokens], size, noise)
        return RecoveredText(several)
    ids, missed = read_one(parts, words[tokens], tokens, noise)
    return _read(model, ids, rows - OFFSET, missed)


class _Read(Exception):
    """Ends a pass through the decoder: nothing behind what was read is needed."""


@torch.no_grad()
def _sequences(model: Donut, victim: Victim, tokens: Ids, most: int) -> list[Ids]:
    """Returns prompt and answer of each example, in any order; none if the span is everything."""
    if CROSS_QUERIES not in victim.gradient:
        return []
    basis, _ = row_space(victim.seen(CROSS_QUERIES, "the decoder's first layer"), most)
    if not tells(basis):
        return []
    decoder = model.network.decoder.model.decoder
    start = cast(int, model.reader.subwords.tokenizer.token_to_id(START))

    def inputs(ids: Tensor) -> Array:
        page = torch.zeros(len(ids), 1, decoder.config.d_model, device=model.device)
        given: list[Tensor] = []

        def read(_: object, queries: tuple[Tensor]) -> None:
            given.append(queries[0][:, -1])
            raise _Read

        hook = decoder.layers[0].encoder_attn.q_proj.register_forward_pre_hook(read)
        try:
            with contextlib.suppress(_Read):
                decoder(ids.to(model.device), encoder_hidden_states=page, use_cache=False)
        finally:
            hook.remove()
        return np.asarray(given[0].double().cpu().numpy())

    size, longest = len(victim.template), model.reader.max_length
    return read_sequences(inputs, start, tokens, basis, size, longest, model.reader.answer_end)


def _read_several(model: Donut, sequences: Sequence[Ids], tokens: Ids) -> RecoveredText:
    """Returns the tokens of several examples at their places, and their questions and answers."""
    read = [_read(model, ids, np.arange(len(ids)), tokens[:0]) for ids in sequences]
    pairs = np.unique(np.concatenate([one.tokens for one in read]), axis=0)
    missed = np.setdiff1d(tokens, pairs[:, 1])
    return RecoveredText(
        np.concatenate([pairs, pairs_of(missed[:0], missed[:0], missed)]),
        question=SEVERAL.join(one.question or "" for one in read),
        answer=SEVERAL.join(one.answer or "" for one in read),
    )


def _read(model: Donut, ids: Ids, places: Ids, missed: Ids) -> RecoveredText:
    """Cuts the decoder's input at its marks; missed are the tokens whose places are not known."""
    known = ids != UNKNOWN
    pairs = pairs_of(places[known], ids[known], missed)
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
    columns = None
    if known.all() and ended:
        length = model.reader.max_length
        input_ids = np.full((1, length), subwords.pad, dtype=np.int64)
        input_ids[0, : len(ids)] = ids
        labels = np.full((1, length), IGNORED, dtype=np.int64)
        labels[0, prompt - 1 : len(ids)] = [*ids[prompt:], subwords.sep]
        columns = {"input_ids": input_ids, "labels": labels, "prompt": np.array([prompt])}
    return RecoveredText(
        pairs,
        question=subwords.text(asked.tolist()),
        answer=subwords.text(said[:-1].tolist() if ended else said.tolist()),
        columns=columns,
    )
