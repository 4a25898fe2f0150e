"""Reads the text out of one message, whatever the model."""

from __future__ import annotations

from attacks.text import donut, layoutlmv3
from attacks.victim import Victim
from fedpriv.adversary import NotApplicable, RecoveredText
from fedpriv.models.donut import Donut
from fedpriv.models.layoutlmv3 import LayoutLMv3Tagger
from fedpriv.models.layoutlmv3_answers import LayoutLMv3Answerer


def recover_text(victim: Victim) -> RecoveredText:
    """Reads the text of a batch out of its gradient, without any optimisation.

    Args:
        victim: of B examples, the number of its templates; nothing of `batch` is used.

    Raises:
        NotApplicable: if the model has no such weakness, or the gradients that show it are missing.
    """
    model = victim.model
    if isinstance(model, LayoutLMv3Answerer | LayoutLMv3Tagger):
        return layoutlmv3.recover(model, victim)
    if isinstance(model, Donut):
        return donut.recover(model, victim)
    raise NotApplicable(f"no closed form reads text from the gradient of a {type(model).__name__}")
