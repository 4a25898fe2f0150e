"""Reads the text out of one message, whatever the model."""

from __future__ import annotations

from collections.abc import Sequence

from fedpriv.attacks.text import donut, layoutlmv3, vt5, words
from fedpriv.attacks.victim import Victim
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
    model = victim.model
    if isinstance(model, LayoutLMv3Answerer | LayoutLMv3Tagger):
        return layoutlmv3.recover(model, victim)
    if isinstance(model, Donut):
        return donut.recover(model, victim)
    if isinstance(model, VT5):
        return vt5.recover(model, victim, phrases)
    if isinstance(model, RobertaTagger | Pix2Struct | ImageText):
        return words.recover(model.network, victim)
    # The table of a masked-word model also scores every word, and all of its rows have a gradient.
    if isinstance(model, OnEncoder) and not isinstance(model, MaskedWords):
        return words.recover(model.encoder.network, victim)
    raise NotApplicable(f"no closed form reads text from the gradient of a {type(model).__name__}")
