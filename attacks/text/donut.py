"""Prompt, question and answer of Donut, exactly, from one gradient.

Its decoder reads prompt and answer as one sequence, in which word and place are added: so the rows
of the places' gradient are the gradients of the tokens one by one (`fedpriv.attacks.text.sums`).
The page's pixels have no part in it.
"""

from __future__ import annotations

import math

import numpy as np

from fedpriv.attacks.text.span import noise_level, used_rows
from fedpriv.attacks.text.sums import UNKNOWN, Ids, pairs_of, read_one, read_several
from fedpriv.attacks.text.tied import Words
from fedpriv.attacks.victim import Victim
from fedpriv.models.donut import Donut
from fedpriv.models.readers.donut_reader import ANSWER, ANSWER_END, QUESTION_END
from fedpriv.models.readers.reader import IGNORED
from fedpriv.threat.claims import RecoveredText

DECODER = "network.decoder.model.decoder."

OFFSET = 2
"""Rows of MBart's table of places that are never looked up, in front of the others."""


def recover(model: Donut, victim: Victim) -> RecoveredText:
    """Reads the decoder's input of a batch.

    Of one example everything comes back, while its tokens and labels are fewer than the decoder is
    wide; of several the tokens, and places of some.

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
        several = read_several(rows - OFFSET, tokens, parts, words[tokens], size, noise)
        return RecoveredText(several)
    ids, missed = read_one(parts, words[tokens], tokens, noise)
    return _read(model, ids, rows - OFFSET, missed)


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
