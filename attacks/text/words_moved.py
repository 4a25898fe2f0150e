"""Which rows of the table of words a message moves: those of the words that were read.

A word that no document has leaves its row as it was, in one update and in a sum of them, under
masks too. So sums of changing cohorts can be compared: a word that a sum lacks is of nobody in its
cohort, and one that all clients but one are cleared of, and whose row some sum moved, is that
one's. This is group testing (Dorfman 1943), which needs nothing but who was in which sum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from fedpriv.attacks.text.span import noise_level, used_rows
from fedpriv.threat.attack import NotApplicable

Moved = NDArray[np.bool_]


def table_of_words(model: nn.Module) -> list[str]:
    """Returns the name of the largest table of embeddings that is trained; none without one."""
    tables = {id(m.weight): len(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    found = [(tables.get(id(p), 0), n) for n, p in model.named_parameters() if p.requires_grad]
    rows, name = max(found, key=lambda pair: pair[0])
    return [name] if rows else []


def telling_table(model: nn.Module) -> str | None:
    """Returns the name of that table where its rows tell which words were read.

    None where there is none, or where it scores the words to be written too: then all rows move.
    """
    scores = {id(m.weight) for m in model.modules() if isinstance(m, nn.Linear)}
    named = table_of_words(model)
    return next((n for n in named if id(model.get_parameter(n)) not in scores), None)


def table_of(model: nn.Module) -> str:
    """Returns what `telling_table` finds.

    Raises:
        NotApplicable: if it finds none.
    """
    if (table := telling_table(model)) is None:
        raise NotApplicable(
            f"{type(model).__name__} has no table of words whose rows tell which words were read: "
            "none is trained, or its rows score the words to be written too, so that all of them "
            "move"
        )
    return table


def moved(tensors: Mapping[str, Tensor], table: str) -> Moved:
    """Returns which rows a message moves, (words,), beyond the noise that all rows have."""
    rows = tensors[table].detach().double().cpu().numpy()
    return used_rows(rows, noise_level(rows))


def of_each(sums: Sequence[Moved], cohorts: Sequence[Sequence[int]]) -> dict[int, Moved]:
    """Returns the words that each client has, and no other client can have.

    They are certain if a client moves the rows of all of its words, and no others, in each round:
    as where it trains on all of its documents, without weight decay, and no row is lost to noise or
    to the rounding of masked sums.

    Args:
        sums: of each round, the rows that its sum moved.
        cohorts: likewise, the clients in it.

    Returns:
        Client → mask, (words,).
    """
    both = list(zip(sums, cohorts, strict=True))
    clients = sorted({client for cohort in cohorts for client in cohort})
    can = {c: np.logical_and.reduce([has for has, cohort in both if c in cohort]) for c in clients}
    single = np.sum([can[client] for client in clients], axis=0) == 1
    return {client: single & can[client] for client in clients}
