"""What is left of a round's sum for the clients that do not collude with the server.

Of n clients in a masked sum, c tell the server the updates u that they masked. It takes them out:

    mean update of the others = (n · aggregate − Σ u) / (n − c)

A masked sum weights all clients alike, so that this is exact but for the rounding of floats.
Without masks the others' updates can be read, and their mean is taken, all weighted alike too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from fedpriv.threat.access import Transcript
from fedpriv.threat.attack import NotApplicable
from fedpriv.threat.surfaces.transcript import Round

Named = Mapping[str, Tensor]


def mean_of_others(view: Transcript, seen: Round) -> Named | None:
    """Returns the mean update of a round's clients that do not collude; without colluders, of all.

    None if the round has no sum, or all clients in it collude.

    Raises:
        NotApplicable: if updates that it takes are not in the transcript.
    """
    told = [client for client in seen.answered if client in view.colluders]
    others = [client for client in seen.answered if client not in view.colluders]
    if not seen.aggregate or not others:
        return None
    if not view.colluders:
        return seen.aggregate
    if view.masked:
        return _without(seen.aggregate, len(seen.answered), _updates(seen, told))
    return _mean(_updates(seen, others))


def nobody_left(view: Transcript) -> str:
    """Returns why no round has a mean of others, and what would help."""
    if any(seen.aggregate for seen in view.rounds):
        return (
            "all clients in the sums collude, and nobody is left to attack: name fewer in "
            "keep.transcript.colluders when the federation is run"
        )
    return (
        "no round that was observed has a sum: attack other rounds (rounds=null), of a run that "
        "kept them (keep.transcript.rounds=null)"
    )


def _updates(seen: Round, clients: Sequence[int]) -> list[Named]:
    """Returns the updates of these clients, as far as they can be read.

    Raises:
        NotApplicable: if one of them cannot.
    """
    read = {u.client: u.tensors for u in seen.uploads if u.kind != "masked"}
    if missing := [client for client in clients if client not in read]:
        raise NotApplicable(
            f"the updates of clients {missing} in round {seen.round} are needed: attack the "
            "messages of all clients (clients=null), of a run that kept them "
            "(keep.transcript.clients=null)"
        )
    return [read[client] for client in clients]


def _mean(updates: Sequence[Named]) -> Named:
    return {
        name: torch.stack([update[name] for update in updates]).double().mean(0).to(tensor.dtype)
        for name, tensor in updates[0].items()
    }


def _without(mean: Named, clients: int, told: Sequence[Named]) -> Named:
    """Returns the mean over so many clients without those that told their updates."""
    rest: dict[str, Tensor] = {}
    for name, tensor in mean.items():
        total = clients * tensor.double()
        for update in told:
            total -= update[name]
        rest[name] = (total / (clients - len(told))).to(tensor.dtype)
    return rest
