"""Gradient inversion as an attack on a transcript: read the text first, then seek the pages.

What GI-DQA, §3.3 calls analytic recovery of question and answer comes first, unless the text is
given: black box → question and answer → page.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

from torch import nn

from fedpriv.attacks.closed_form import solve
from fedpriv.attacks.inversion.drift import Reading, read
from fedpriv.attacks.inversion.engine import invert
from fedpriv.attacks.inversion.method import Inversion
from fedpriv.attacks.inversion.objective import NothingToMatch, Objective, choose, names_of
from fedpriv.attacks.text.recover import reader_of, recover_text
from fedpriv.attacks.victim import (
    Message,
    MessageAccess,
    Reconstruction,
    Target,
    check_seen,
    messages,
    note_refused,
    notes_on,
    page_size,
    tensors_of,
)
from fedpriv.threat.access import MessageKey, Transcript
from fedpriv.threat.attack import AttackContext, NotApplicable, Outline, told_once
from fedpriv.threat.checks import check_choices
from fedpriv.threat.claims import RecoveredBatch, RecoveredText
from fedpriv.threat.surfaces.batches import BatchSettings


@dataclass(frozen=True)
class GradientInversion:
    """Seeks the pages whose gradient is the one that was seen.

    Args:
        method: the method of inversion: one of `fedpriv.attacks.inversion.presets`, or an
            `Inversion` put together from its parts.
        target: the kind of message that is attacked: "update", the update of one client;
            "aggregate", the sum of a round's updates, taken as one batch with the pages of all
            clients; or "masked", the update of one client under its mask.
        hybrid: whether to start from the page that the closed form recovers (LayoutLMv3 only, one
            page in a message), in place of the method's own start.
        local_steps: how an update of several local steps (FedAvg) is compared with a gradient:
            "scale" treats T steps as T times one gradient; "midpoint" does so too, but takes that
            gradient halfway between the old model and the new one; "unrolled" simulates every step,
            which costs most; "auto" takes "midpoint" where the model moved nearly straight, and
            "unrolled" elsewhere. It has no effect where clients send gradients.
    """

    method: Inversion
    target: Target = "update"
    hybrid: bool = False
    local_steps: Reading = "auto"

    def __post_init__(self) -> None:
        check_choices(self)

    def suits(self, outline: Outline) -> None:
        """Asks whether the model reads pages, and whether such messages can be seen."""
        _check_reads(outline.model)
        examples = check_seen(self.target, outline)
        given = outline.settings.of(BatchSettings).assume.text != "none"
        if self.method.evaluations and not given:
            reader_of(outline.model)
            if examples > 1:
                raise _no_text(examples)

    def run(self, access: MessageAccess, context: AttackContext) -> tuple[RecoveredBatch, ...]:
        """Inverts every message, those of a round together.

        Messages whose text cannot be read, or whose gradients are all zero, are refused, and the
        means are over the others.
        """
        found = messages(access, self.target)
        model = found[0].victim.model
        _check_reads(model)
        method = self._method(access.view, found[0], context)
        ready: list[tuple[Message, RecoveredText | None]] = []
        refused: list[str] = []
        for message in found:
            try:
                if method.evaluations:
                    choose(model, message.victim.gradient, method.objective)
                ready.append(self._ready(message, method))
            except (NotApplicable, NothingToMatch) as reason:
                refused.append(str(reason))
        if not ready:
            raise NotApplicable("; ".join(told_once(refused, "message")))
        note_refused(context, refused)
        groups: dict[Objective, list[Message]] = {}
        for message, _ in ready:
            groups.setdefault(self._compared(message, method), []).append(message)
        made: dict[MessageKey, Reconstruction] = {}
        for objective, some in groups.items():
            compared = dataclasses.replace(method, objective=objective)
            for message in some:
                context.remarks.notes.extend((*notes_on(message), *_drift_notes(message, compared)))
            pages = invert(
                [message.victim for message in some],
                compared,
                context.rng,
                tell=context.log,
                checkpoint=context.scratch,
            )
            made |= zip((message.key for message in some), pages, strict=True)
        recovered = []
        for message, text in ready:
            one = made[message.key]
            work = (one.evaluations, one.seconds, one.curve)
            recovered.append(RecoveredBatch(message.key, one.pixels.numpy(), text, *work))
        return tuple(recovered)

    def _method(self, view: Transcript, first: Message, context: AttackContext) -> Inversion:
        """Returns the method as this run needs it.

        That clients clip is public, by how much is not. Where the layers that the method matches
        are frozen, as with adapters, all that are trained are matched.
        """
        method, model = self.method, first.victim.model
        layers = method.objective.layers
        trained = {name for name, p in model.named_parameters() if p.requires_grad}
        if method.evaluations and not trained & set(names_of(model, layers)):
            objective = dataclasses.replace(method.objective, layers="all")
            method = dataclasses.replace(method, objective=objective)
            context.remarks.notes.append(
                f"of layers={layers} all are frozen (finetuning): the gradients of all layers that "
                "are trained are matched, which tell less of the page"
            )
        if self.hybrid:
            method = dataclasses.replace(method, start="template")
        client, strategy = (view.settings.get(half, {}) for half in ("client", "strategy"))
        scaled = client.get("clip_norm") is not None or strategy.get("mechanism") is not None
        if first.steps is None:
            scaled = scaled or first.local
        elif first.steps.optimizer.name != "sgd":
            scaled = scaled or self.local_steps == "scale"
        objective = method.objective
        if scaled and not objective.signs:
            objective = dataclasses.replace(objective, any_scale=True)
        return dataclasses.replace(method, objective=objective)

    def _compared(self, message: Message, method: Inversion) -> Objective:
        """Returns the objective for one message: of Adam's updates the signs are compared.

        They are not where its steps are simulated, nor where one asks for their scale.
        """
        steps, objective = message.steps, method.objective
        of_adam = steps is not None and steps.optimizer.name != "sgd"
        if not of_adam or message.victim.steps is not None or self.local_steps == "scale":
            return objective
        return Objective(signs=1, layers=objective.layers, partial=objective.partial)

    def _ready(self, message: Message, method: Inversion) -> tuple[Message, RecoveredText | None]:
        """Returns the message with its text, read out of the gradient unless it was given.

        Its update is read as `local_steps` says.
        """
        victim, text = message.victim, None
        if self.hybrid:
            if message.known.size > 1:
                raise NotApplicable(
                    f"hybrid=true starts from one page, and {message.known.size} are behind this "
                    "message; take attack.hybrid=false"
                )
            page = solve(victim, template=message.known.template is not None)
            victim = dataclasses.replace(victim, template=page)
        if not victim.batch and self.method.evaluations:
            text = recover_text(message.victim)
            if text.columns is None:
                raise _no_text(message.known.size)
            victim = dataclasses.replace(victim, batch=tensors_of(text.columns))
        if message.steps is not None and method.evaluations:
            layers = method.objective.layers
            victim = read(victim, message.steps, self.local_steps, layers)
        return dataclasses.replace(message, victim=victim), text


def _check_reads(model: nn.Module) -> None:
    if page_size(model) == (0, 0):
        raise NotApplicable("the model reads no page: take model=layoutlmv3 or model=donut")


def _no_text(examples: int) -> NotApplicable:
    return NotApplicable(
        f"the text of a batch of {examples} could not be put in order, and without it no page can "
        "be sought; assume.text=given gives it",
        take="assume.text=given",
    )


def _drift_notes(message: Message, method: Inversion) -> Iterator[str]:
    """Yields what a reader must know of how the steps behind an update were taken into account."""
    if not message.local or not method.evaluations:
        return
    if message.steps is None:
        yield "how many local steps the update is the sum of is not known: its scale is left open"
        return
    count, kind = message.steps.count, message.steps.optimizer.name
    if message.victim.steps is not None:
        yield (
            f"{count} local steps of {kind} were simulated on the whole batch. Where a step took a "
            "part of it only, or dropout was on, that is not what happened, and the attack finds "
            "less than it could"
        )
    elif count > 1:
        yield (
            f"{count} local steps of {kind} were read as {count} times one gradient: nothing is "
            "recovered where the gradient turned on the way; local_steps=unrolled simulates them"
        )
    if method.objective.signs:
        yield f"of updates of {kind} the signs were compared: their sizes are no gradient's"
