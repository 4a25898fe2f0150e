"""What an inversion works on: one message, the model it was computed with, what is known of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedpriv.attacks.local_steps import LocalSteps
from fedpriv.data.examples import Batch
from fedpriv.threat.access import Architecture, BatchKnowledge, Known, MessageKey, Transcript
from fedpriv.threat.attack import AttackContext, NotApplicable, NotGranted, Outline, told_once
from fedpriv.threat.claims import RecoveredBatch
from fedpriv.threat.surfaces.transcript import Kind, Round, loaded

Target = Literal["update", "aggregate", "masked"]

TARGETS = {
    "update": "each client's update",
    "aggregate": "the sum of the updates",
    "masked": "each client's update under a mask",
}


@dataclass(frozen=True)
class MessageAccess:
    """What an attack on messages uses: what was seen, and what is known of the batches behind it.

    Attributes:
        view: what the server saw.
        knowledge: of each message's batch.
        architecture: of the model, whose weights are in the transcript.
    """

    view: Transcript
    knowledge: BatchKnowledge
    architecture: Architecture


@dataclass(frozen=True)
class Victim:
    """The gradient of one batch of B examples, and what the adversary holds of that batch.

    Attributes:
        model: holds the parameters that the client was sent, in evaluation mode; several victims
            of one round share it.
        gradient: by parameter name, the gradient of `model.loss(batch)`, as far as it was seen; or
            the sum of `steps`.
        batch: the model's columns but `pixels`, each of shape (B, …), recovered or given.
        template: the pages as far as known, (B, 3, H, W), float32 in 0…255; white where nothing is.
        private: which pixels are not known, (B, 1, H, W), bool.
        steps: the local steps whose updates (θ_t - θ_{t+1}) / η the gradient is the sum of, to be
            simulated from `model` on. None for one gradient.
    """

    model: nn.Module
    gradient: Mapping[str, Tensor]
    batch: Batch
    template: Tensor
    private: Tensor
    steps: LocalSteps | None = None

    def seen(self, name: str, needs: str) -> NDArray[np.float64]:
        """Returns the gradient of a parameter.

        Raises:
            NotApplicable: if it is not in the message, with what the attack needs trained.
        """
        if name not in self.gradient:
            raise NotApplicable(
                f"the message has no gradient of {name}: it is frozen or was not sent, and this "
                f"attack needs {needs} trained"
            )
        return np.asarray(self.gradient[name].detach().cpu().double().numpy())


@dataclass(frozen=True)
class Reconstruction:
    """What an inversion made of one victim.

    Attributes:
        pixels: (B, 3, H, W), float32 in 0…255; the template outside of the private pixels, unless
            the whole page was sought.
        evaluations: gradients of the model that were computed for it; T for T simulated steps.
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
        local: whether it is a model's change after local training.
        steps: of that training; None where the client's settings do not tell them.
    """

    key: MessageKey
    kind: Kind
    victim: Victim
    known: Known
    local: bool = False
    steps: LocalSteps | None = None


def messages(access: MessageAccess, target: Target) -> list[Message]:
    """Returns each message of the target's kind as a victim; all of a round share one model.

    Raises:
        NotGranted: if the transcript holds none, or the batch behind none of them is known.
        ValueError: if the transcript is of another model, or a gradient is not finite.
    """
    view, of = access.view, access.knowledge.of
    seen = [(round, one) for round in view.rounds for one in _seen(round, target)]
    if not seen:
        raise _nothing_seen(target, view.masked)
    if not any(key in of for _, (key, _, _) in seen):
        raise NotGranted(
            f"it is not known how many pages are behind any {target}",
            "the messages of all clients of a round (keep.transcript.clients=null, clients=null)",
        )
    found: list[Message] = []
    models = {
        id(round): loaded(access.architecture.build(), round.parameters, view.frozen)
        for round in view.rounds
    }
    for round, (key, kind, tensors) in seen:
        if key in of:
            gradient = as_gradient(tensors, kind, round.kind, view.settings)
            _check(gradient, models[id(round)], key)
            victim = victim_of(models[id(round)], gradient, of[key])
            local = "delta" in (kind, round.kind)
            # Of a sum, the mean client's.
            examples = of[key].size // (max(1, len(round.answered)) if target == "aggregate" else 1)
            steps = LocalSteps.of(view.settings.get("client", {}), examples) if local else None
            found.append(Message(key, kind, victim, of[key], local, steps))
    return found


def check_seen(target: Target, outline: Outline) -> int:
    """Asks in advance whether a run shows messages of the target's kind, and what is behind them.

    Returns:
        The examples behind the smallest of these messages; 0 if that is not known.

    Raises:
        NotGranted: if it does not.
    """
    if target != "aggregate" and (target == "masked") != outline.masked:
        raise _nothing_seen(target, outline.masked)
    if outline.fewest == 0:
        batches = "keep.transcript.batches=true"
        raise NotGranted("nothing is known of the batches behind the messages", again=[batches])
    return (outline.fewest or 0) * (2 if target == "aggregate" else 1)  # of two clients at least


def _nothing_seen(target: Target, masked: bool) -> NotGranted:
    other = f"attack.target={'aggregate' if masked else 'update'}"
    return NotGranted(
        f"the attack requires {TARGETS[target]}, and "
        + ("updates are masked" if masked else "the transcript holds none"),
        f"{other}, if the attack supports it",
        take=other,
    )


def each(
    found: Iterable[Message], recover: Callable[[Message], RecoveredBatch], context: AttackContext
) -> tuple[RecoveredBatch, ...]:
    """Returns what `recover` makes of each message, and notes why it refuses others.

    Raises:
        NotApplicable: if it refuses all of them.
    """
    recovered: list[RecoveredBatch] = []
    refused: list[str] = []
    for message in found:
        try:
            recovered.append(recover(message))
        except NotApplicable as reason:
            refused.append(str(reason))
        else:
            context.remarks.notes.extend(notes_on(message))
    if not recovered:
        raise NotApplicable("; ".join(told_once(refused, "message")))
    note_refused(context, refused)
    return tuple(recovered)


def note_refused(context: AttackContext, refused: Sequence[str]) -> None:
    """Notes why some messages could not be attacked, a reason once; means are of the others."""
    context.remarks.details["refused"] = len(refused)
    context.remarks.notes.extend(f"refused: {reason}" for reason in told_once(refused, "message"))


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
