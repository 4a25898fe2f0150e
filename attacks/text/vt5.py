"""Question, answer and words of VT5 from one gradient.

T5 has no table of places, so nothing says at once which token stands where. But

- outside of the span of the scores, the words' table shows every word of page, question and answer
  (`fedpriv.attacks.text.tied`);
- the input of the decoder's first cross-attention depends on the answer's beginning alone, not on
  the page, and lies in the span of that layer's gradient: so the answers of a batch are read token
  by token (`fedpriv.attacks.text.sequences`);
- all of the question stands at one box, (0, 0, 1000, 1000), where hardly a word of a page reaches:
  row 1000 of the table of x holds the sum of the gradients of the question's tokens. That tells
  among phrases that are known to be asked; of a phrase that is not, it gives no order.

DAGER feeds the true encoder's states to a decoder; here none are needed.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import cast

import numpy as np
import torch
from torch import Tensor

from fedpriv.attacks.text.sequences import NEAR, read_sequences, tells
from fedpriv.attacks.text.span import Array, distances, noise_level, row_space
from fedpriv.attacks.text.sums import Ids, pairs_of
from fedpriv.attacks.text.tied import Words
from fedpriv.attacks.victim import Victim
from fedpriv.data.document import Document, Question
from fedpriv.models.readers.vt5_reader import PROMPT_BOX
from fedpriv.models.vt5 import VT5
from fedpriv.threat.claims import SEVERAL, RecoveredText

LANGUAGE = "language_backbone."
SELF_VALUES = f"{LANGUAGE}decoder.block.0.layer.0.SelfAttention.v.weight"
CROSS_QUERIES = f"{LANGUAGE}decoder.block.0.layer.1.EncDecAttention.q.weight"
WORDS = f"{LANGUAGE}shared.weight"
ACROSS = "spatial_embedding.x_position_embeddings.weight"

NEEDED = "VT5's embeddings and its decoder's first block"
"""What must be trained."""

LARGEST_COORDINATE = 1000


def recover(model: VT5, victim: Victim, phrases: Sequence[str] = ()) -> RecoveredText:
    """Reads the words of a batch and its answers; of one example its question among phrases.

    Args:
        model: a VT5.
        victim: of B examples.
        phrases: questions that may have been asked.

    Raises:
        NotApplicable: if the gradients of words or decoder are not in the message.
    """
    size, reader = len(victim.template), model.reader
    across, table = victim.seen(ACROSS, NEEDED), victim.seen(WORDS, NEEDED)
    noise = noise_level(across[LARGEST_COORDINATE + 1 :])
    words = Words.of(table, size * reader.answer_length)
    most = size * (reader.max_length + reader.answer_length)
    bag = np.flatnonzero(words.used(noise, most))
    # A decoder begins with padding, which no input of the encoder is.
    bag = bag[bag != reader.subwords.pad]
    everywhere = pairs_of(bag[:0], bag[:0], bag)
    answers = [reader.subwords.text(ids.tolist()) for ids in _answers(model, victim)]
    text = SEVERAL.join(answers) if answers else None
    if size > 1:
        return RecoveredText(everywhere, answer=text)
    asked = _asked(model, words, bag, across[LARGEST_COORDINATE], phrases)
    if asked is None:
        return RecoveredText(everywhere, answer=text)
    question, ids = asked
    tokens = pairs_of(np.arange(len(ids)), ids, bag[~np.isin(bag, ids)])
    boxes = np.full((len(tokens), 4), -1)
    boxes[: len(ids)] = PROMPT_BOX
    return RecoveredText(tokens, boxes, question, text)


@torch.no_grad()
def _answers(model: VT5, victim: Victim) -> list[Ids]:
    """Returns the tokens of each example's answer in order, without the end token.

    That of a single example is read greedily. Of several, in any order, there are those that the
    spans tell.
    """
    size, longest = len(victim.template), model.reader.answer_length
    first, second = (
        row_space(victim.seen(name, NEEDED), size * longest)[0]
        for name in (SELF_VALUES, CROSS_QUERIES)
    )
    backbone = model.language_backbone
    normalise = backbone.decoder.block[0].layer[0].layer_norm
    vocabulary = normalise(backbone.shared.weight).double().cpu().numpy()
    away = distances(vocabulary, first)
    # No more words can be in a span than it has dimensions.
    candidates = np.argsort(away)[: len(first)]
    start = int(backbone.config.decoder_start_token_id)
    # Twice the start is to attention what once is.
    candidates = candidates[candidates != start]
    if size > 1:
        if not (tells(first) and tells(second)):
            return []
        candidates = candidates[away[candidates] < NEAR]
        inputs = functools.partial(_cross_inputs, model)
        return [ids[1:] for ids in read_sequences(inputs, start, candidates, second, size, longest)]
    written = [start]
    for _ in range(len(second) - 1):
        longer = np.array([[*written, candidate] for candidate in candidates])
        read = _cross_inputs(model, torch.from_numpy(longer))
        written.append(int(candidates[distances(read, second).argmin()]))
    return [np.array(written[1:], dtype=np.int64)]


def _cross_inputs(model: VT5, ids: Tensor) -> Array:
    """Returns what the first cross-attention reads at the last place of each row, (rows, width)."""
    decoder = model.language_backbone.decoder
    inputs: list[Tensor] = []
    queries = decoder.block[0].layer[1].EncDecAttention.q
    hook = queries.register_forward_pre_hook(lambda _, given: inputs.append(given[0][:, -1]))
    page = torch.zeros(len(ids), 1, decoder.config.d_model, device=model.device)
    try:
        decoder(input_ids=ids.to(model.device), encoder_hidden_states=page, use_cache=False)
    finally:
        hook.remove()
    return np.asarray(inputs[0].double().cpu().numpy())


def _asked(
    model: VT5, words: Words, bag: Ids, row: Array, phrases: Sequence[str]
) -> tuple[str, Ids] | None:
    """Returns the phrase whose words add up best to the gradient at the prompt's box, and they."""
    best, least = None, np.inf
    total, freedom = _prompt_gradient(model, row)
    total, freedom = words.outside @ total, words.outside @ freedom
    for phrase, ids in zip(phrases, _prompts(model, phrases), strict=True):
        if not np.isin(ids, bag).all():
            continue
        columns = np.concatenate([words.table[np.unique(ids)].T, freedom], axis=1)
        shares = np.linalg.lstsq(columns, total, rcond=None)[0]
        left = len(total) - columns.shape[1]
        misfit = ((columns @ shares - total) ** 2).sum() / max(left, 1)
        if misfit < least:
            best, least = (phrase, ids), misfit
    return best


def _prompts(model: VT5, phrases: Sequence[str]) -> list[Ids]:
    """Returns the tokens of each question as the model reads it, in front of the page."""
    if not phrases:
        return []
    questions = tuple(Question("", phrase, ()) for phrase in phrases)
    blank = np.full((1, 1), 255, dtype=np.uint8)
    examples = model.encode([Document("", "", blank, (1, 1), (), (), questions)])
    # The end token behind it stands at another box.
    lengths = examples.column("attention_mask").sum(1) - 1
    rows = zip(examples.column("input_ids"), lengths, strict=True)
    return [row[:length].astype(np.int64) for row, length in rows]


@torch.no_grad()
def _prompt_gradient(model: VT5, row: Array) -> tuple[Array, Array]:
    """Returns the gradient of the prompt's embeddings, summed, from row 1000 of the table of x.

    Between them are a linear layer and a LayerNorm, whose backward pass forgets two directions:
    (width,) one solution, (width, 2) what may be added to it.
    """
    spatial = model.spatial_embedding
    matrix = cast(Tensor, spatial.spatial_emb_matcher.layers[0].weight).double().cpu()
    box = torch.tensor(PROMPT_BOX, device=model.device)
    summed = (
        spatial.x_position_embeddings(box[[0, 2]]) + spatial.y_position_embeddings(box[[1, 3]])
    ).sum(0)

    def embed(at: Tensor) -> Tensor:
        normal = torch.nn.functional.layer_norm(
            at, at.shape, spatial.LayerNorm.weight.double().cpu(), None, spatial.LayerNorm.eps
        )
        return matrix @ normal

    with torch.enable_grad():
        jacobian = torch.func.jacrev(embed)(summed.double().cpu())
    back = jacobian.T.numpy()
    left, values, right = np.linalg.svd(back)
    kept = len(values) - 2
    solution = right[:kept].T @ ((left[:, :kept].T @ row) / values[:kept])
    return solution, right[kept:].T
