"""Reads the text out of one message, whatever the model."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from torch import nn

from fedpriv.attacks.text import donut, layoutlmv3, vt5
from fedpriv.attacks.text.span import noise_level, used_rows
from fedpriv.attacks.text.sums import pairs_of
from fedpriv.attacks.victim import Victim
from fedpriv.models.auto import OnAuto
from fedpriv.models.donut import Donut
from fedpriv.models.encoders.encoder_model import OnEncoder
from fedpriv.models.heads.masked_lm import MaskedWords
from fedpriv.models.image_text import ImageText
from fedpriv.models.layoutlmv3 import LayoutLMv3Tagger
from fedpriv.models.layoutlmv3_answers import LayoutLMv3Answerer
from fedpriv.models.pix2struct import Pix2Struct
from fedpriv.models.roberta import RobertaTagger
from fedpriv.models.vt5 import VT5
from fedpriv.threat.attack import NotApplicable
from fedpriv.threat.claims import RecoveredText


def recover_text(victim: Victim, phrases: Sequence[str] = ()) -> RecoveredText:
    """Reads the text of a batch out of its gradient, without any optimisation.

    Args:
        victim: of B examples, the number of its templates; nothing of `batch` is used.
        phrases: questions that may have been asked; VT5 alone keeps the order of its words to
            itself, so that without them its question stays unknown.

    Raises:
        NotApplicable: if the model has no such weakness, or the gradients that show it are missing.
    """
    return reader_of(victim.model)(victim, phrases)


def reader_of(model: nn.Module) -> Callable[[Victim, Sequence[str]], RecoveredText]:
    """Returns what reads text out of the gradients of a model; see `recover_text`.

    Raises:
        NotApplicable: if the model has no such weakness.
    """
    if isinstance(model, LayoutLMv3Answerer | LayoutLMv3Tagger):
        return lambda victim, phrases: layoutlmv3.recover(model, victim)
    if isinstance(model, Donut):
        return lambda victim, phrases: donut.recover(model, victim)
    if isinstance(model, VT5):
        return functools.partial(vt5.recover, model)
    if isinstance(model, RobertaTagger | Pix2Struct | ImageText | OnAuto):
        return _reader_of_words(model.network)
    # The table of a masked-word model also scores every word, and all of its rows have a gradient.
    if isinstance(model, OnEncoder) and not isinstance(model, MaskedWords):
        return _reader_of_words(model.encoder.network)
    raise NotApplicable(f"no closed form reads text from the gradient of a {type(model).__name__}")


def _reader_of_words(network: Any) -> Callable[[Victim, Sequence[str]], RecoveredText]:
    """Returns what reads which tokens a batch has; of a Pix2Struct those of its answers.

    For models whose input words have a table of their own: its gradient is zero but in the rows of
    the tokens that were read. How often and where they stood it does not say.

    Args:
        network: of transformers, in the victim's model.

    Raises:
        NotApplicable: if the table also scores the words to be written, so that each of its rows
            has a gradient.
    """
    words, scores = network.get_input_embeddings().weight, network.get_output_embeddings()
    if scores is not None and scores.weight is words:
        raise NotApplicable(
            f"the word embeddings of this {type(network).__name__} are also its output layer, so "
            "all have a gradient, and none tells which words were read"
        )

    def read(victim: Victim, phrases: Sequence[str]) -> RecoveredText:
        name = next(name for name, p in victim.model.named_parameters() if p is words)
        table = victim.seen(name, "the embeddings")
        tokens = np.flatnonzero(used_rows(table, noise_level(table)))
        return RecoveredText(pairs_of(tokens[:0], tokens[:0], tokens))

    return read
