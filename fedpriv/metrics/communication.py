"""What a federation sends, in bytes, computed from the model before anything runs.

`metrics.jsonl` holds what was really sent; these are the numbers to expect, also for models that
are too large for this machine (build them on torch's meta device).
"""

from __future__ import annotations

from torch import nn

from fedpriv.runtime.vectors import ParameterLayout

DIRECTIONS = 2
"""Down to the client and up to the server."""


def model_bytes(model: nn.Module, *, tied_copies: bool = False) -> int:
    """Returns the bytes of a model's tensors that travel, one way, to or from one client.

    Args:
        model: on any device, "meta" included.
        tied_copies: count every trainable tensor once for each of its names in the state dict, in
            its own precision, as the public baseline of PFL-DocVQA does: it sends T5's tied
            embedding four times. False counts what fedpriv sends: each tensor once.

    Raises:
        ValueError: if nothing of the model is trainable.
    """
    if not tied_copies:
        return ParameterLayout(model).bytes
    named = model.state_dict(keep_vars=True).values()
    total: int = sum(t.numel() * t.element_size() for t in named if t.requires_grad)
    if not total:
        raise ValueError(f"{type(model).__name__} has no trainable parameter to send")
    return total


def communication(model: nn.Module, rounds: int, clients: int, *, tied_copies: bool = False) -> int:
    """Returns the bytes of a whole training, both ways.

    The 44.66 "GB" of PFL-DocVQA, Table 6, are GiB: VT5, 10 rounds, 2 clients in each, tied copies
    counted.

    Args:
        model: as in `model_bytes`.
        rounds: of the training.
        clients: that take part in each round.
        tied_copies: as in `model_bytes`.

    Raises:
        ValueError: if a number is negative, or nothing of the model is trainable.
    """
    for name, value in {"rounds": rounds, "clients": clients}.items():
        if value < 0:
            raise ValueError(f"{name}={value}: expected 0 or more")
    return model_bytes(model, tied_copies=tied_copies) * rounds * clients * DIRECTIONS
