"""The set of tokens of a model whose input words have a table of their own.

The gradient of such a table is zero but in the rows of the tokens that were read. How often and
where they stood it does not say.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedpriv.attacks.text.span import noise_level, used_rows
from fedpriv.attacks.text.sums import UNKNOWN
from fedpriv.attacks.victim import Victim
from fedpriv.threat.attack import NotApplicable
from fedpriv.threat.claims import RecoveredText


def recover(network: Any, victim: Victim) -> RecoveredText:
    """Reads which tokens a batch has; of a Pix2Struct those of its answers.

    Args:
        network: of transformers, in the victim's model.
        victim: of any number of examples.

    Raises:
        NotApplicable: if the table also scores the words to be written, so that each of its rows
            has a gradient, or if its gradient is not in the message.
    """
    words, scores = network.get_input_embeddings().weight, network.get_output_embeddings()
    if scores is not None and scores.weight is words:
        raise NotApplicable(f"the words of a {type(network).__name__} are tied to their scores")
    name = next(name for name, table in victim.model.named_parameters() if table is words)
    if name not in victim.gradient:
        raise NotApplicable(f"the gradient of {name} is not in the message")
    table = victim.gradient[name].double().numpy()
    tokens = np.flatnonzero(used_rows(table, noise_level(table)))
    return RecoveredText(np.stack([np.full(len(tokens), UNKNOWN), tokens], 1))
