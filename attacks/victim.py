"""What an inversion works on: one message, the model it was computed with, what is known of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedpriv.data.examples import Batch
from fedpriv.threat.access import Known, MessageKey
from fedpriv.threat.attack import Capability, Findings, Knowledge, NotApplicable, Recovered
from fedpriv.threat.transcript import Kind, Round, Transcript, loaded

Target = Literal["update", "aggregate", "masked"]

REQUIRES = {
    "update": Capability.CLIENT_UPDATE,
    "aggregate": Capability.AGGREGATE,
    "masked": Capability.MASKED_UPDATE,
}
"""What must be granted for each target."""


@dataclass(frozen=True)
class Victim:
    """The gradient of one batch of B examples, and what the adversary holds of that batch.

    Attributes:
        model: holds the parameters that the client was sent, in evaluation mode; several victims
            of one round share it.
        gradient: by parameter name, the gradient of `model.loss(batch)`, as far as it was seen.
        batch: the model's columns but `pixels`, each of shape (B, …), recovered or given.
        template: the pages as far as known, (B, 3, H, W), float32 in 0…255; white where nothing is.
        private: which pixels are not known, (B, 1, H, W), bool.
    """

    model: nn.Module
    gradient: Mapping[str, Tensor]
    batch: Batch
    template: Tensor
    private: Tensor


@dataclass(frozen=True)
class Reconstruction:
    """What an inversion made of one victim.

    Attributes:
        pixels: (B, 3, H, W), float32 in 0…255; the template outside of the private pixels, unless
            the whole page was sought.
        evaluations: gradients of the model that were computed for it.
        seconds: of processor time, its share where several victims were inverted together.
        curve: what was measured on the way, in order: evaluations, objective and what else the
            method knows, without the truth.
    """

    pixels: Tensor
    evaluations: int
    seconds: float
    curve: tuple[Mapping[str, float], ...] = ()


@dataclass(frozen=True)
class Message:
    """One victim with the message that it comes from.

    Attributes:
        key: round and client.
        kind: what the message was.
        victim: to be attacked.
        known: what the adversary was granted.
    """

    key: MessageKey
    kind: Kind
    victim: Victim
    known: Known


def target_of(target: str) -> frozenset[Capability]:
    """Returns what an attack on a target requires.

    Raises:
        ValueError: if there is no such target.
    """
    if target not in REQUIRES:
        raise ValueError(f"target={target!r}: expected one of {', '.join(REQUIRES)}")
    return frozenset({REQUIRES[target]})


def messages(view: Transcript, knowledge: Knowledge, target: Target) -> list[Message]:
    """Returns each message of the target's kind as a victim; all of a round share one model.

    Raises:
        NotApplicable: if of none of them it is known what batch is behind it.
        ValueError: if the transcript is of another model, or a gradient is not finite.
    """
    found = list(_messages(view, knowledge, target))
    if not found:
        raise NotApplicable(
            f"of no {target} is it known how many pages are behind it: of a sum that takes the "
            "messages of all its clients (keep.transcript.clients=null, clients=null)"
        )
    return found


def each(found: Iterable[Message], recover: Callable[[Message], Recovered]) -> Findings:
    """Returns what `recover` makes of each message, and why it refuses others.

    Raises:
        NotApplicable: if it refuses all of them.
    """
    recovered: list[Recovered] = []
    refused: list[str] = []
    for message in found:
        try:
            recovered.append(recover(message))
        except NotApplicable as reason:
            refused.append(str(reason))
    if not recovered:
        raise NotApplicable("; ".join(dict.fromkeys(refused)))
    return Findings(tuple(recovered), refused=tuple(refused))


def _messages(view: Transcript, knowledge: Knowledge, target: Target) -> Iterator[Message]:
    for seen in view.rounds:
        model = loaded(knowledge.build_model(), seen.parameters, view.frozen)
        for key, kind, tensors in _seen(seen, target):
            if key in knowledge.of:
                gradient = as_gradient(tensors, kind, seen.kind, view.settings)
                _check(gradient, model, key)
                known = knowledge.of[key]
                yield Message(key, kind, victim_of(model, gradient, known), known)


def victim_of(model: nn.Module, gradient: Mapping[str, Tensor], known: Known) -> Victim:
    """Returns a victim with what is known; a white page, all of it private, where none is."""
    if known.template is not None and known.private is not None:
        template = torch.from_numpy(np.array(known.template)).float()
        private = torch.from_numpy(np.array(known.private))
    else:
        height, width = page_size(model)
        template = torch.full((known.size, 3, height, width), 255.0)
        private = torch.ones((known.size, 1, height, width), dtype=torch.bool)
    return Victim(model, gradient, tensors_of(known.text or {}), template, private)


def tensors_of(columns: Mapping[str, NDArray[Any]]) -> Batch:
    """Returns columns as tensors."""
    return {name: torch.from_numpy(np.array(array)) for name, array in columns.items()}


def notes_on(message: Message) -> tuple[str, ...]:
    """Returns what a reader of the findings must know of how a message was read."""
    notes = {
        "gradient": (),
        "delta": (
            "the update is a model's change after local training, taken as the sum of the "
            "gradients of its steps: -Δ/η of plain SGD, -Δ of any other optimiser",
        ),
        "masked": ("the update is masked: it was read as if it were not",),
    }
    return notes[message.kind]


def page_size(model: nn.Module) -> tuple[int, int]:
    """Returns height and width of the pages that a model reads; 0 where it reads none."""
    size: Any = getattr(getattr(model, "reader", None), "image_size", None)
    if size is None:
        return 0, 0
    height, width = (size, size) if isinstance(size, int) else size
    return int(height), int(width)


def as_gradient(
    tensors: Mapping[str, Tensor], kind: Kind, sends: Kind, settings: Mapping[str, Any]
) -> Mapping[str, Tensor]:
    """Returns an update read as a gradient.

    A change Δ after local training by plain SGD is taken as -Δ/η, the sum of the gradients of all
    steps; by another optimiser as -Δ, of which direction and scale mean little. The number of steps
    is not taken off. A masked message is taken as what it would be without its mask.
    """
    if "delta" not in (kind, sends if kind == "masked" else kind):
        return tensors
    optimizer = settings.get("client", {}).get("optimizer", {})
    lr = optimizer.get("lr", 1.0) if optimizer.get("name") == "sgd" else 1.0
    return {name: tensor / -lr for name, tensor in tensors.items()}


def _seen(seen: Round, target: Target) -> Iterator[tuple[MessageKey, Kind, Mapping[str, Tensor]]]:
    if target == "aggregate":
        if seen.aggregate is not None:
            yield (seen.round, None), seen.kind, seen.aggregate
        return
    for upload in seen.uploads:
        if (upload.kind == "masked") == (target == "masked"):
            yield (seen.round, upload.client), upload.kind, upload.tensors


def _check(gradient: Mapping[str, Tensor], model: nn.Module, key: MessageKey) -> None:
    """Refuses what no inversion could work on, before the first iteration."""
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        given = gradient.get(name)
        if given is None or given.shape != parameter.shape:
            there = "no such tensor" if given is None else f"one of {tuple(given.shape)}"
            raise ValueError(
                f"message {key}: for {name} of {tuple(parameter.shape)} there is {there}; the "
                "transcript is of another model, or not whole"
            )
        if not bool(given.isfinite().all()):
            raise ValueError(f"message {key}: the gradient of {name} is not finite")
