"""The one loop behind every inversion by optimisation.

    pixels = argmin  D(∇ loss(pixels), g*)  +  φ Σ weight · prior(page)

over the pixels that are not known (Ben Hemo et al. 2025, Eq. 4). Victims of one model and of equal
shapes are inverted side by side in one vectorised run; a victim alone is not vectorised. The two
ways agree up to rounding, so what is inverted together decides over the last bits.
"""

from __future__ import annotations

import functools
import math
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedpriv.attacks.inversion.gradients import (
    Gradients,
    scores,
    twice_differentiable,
    uses_fused_attention,
)
from fedpriv.attacks.inversion.method import Inversion
from fedpriv.attacks.inversion.objective import GradientDistance, Matched, Objective, choose
from fedpriv.attacks.inversion.pixels import Canvas, channels
from fedpriv.attacks.inversion.start import start
from fedpriv.attacks.victim import Reconstruction, Victim
from fedpriv.threat.kept import Kept

Tell = Callable[[str], None]

POINTS = 50
"""Of a curve, at most."""

SECONDS_BETWEEN_LINES = 5.0
"""Of progress."""

LINE = 20
"""Evaluations of one step of L-BFGS at most, torch's own number."""

SCALE = 127.5
"""Pixels of 0…255 for one unit of the models' -1…1, in which L-BFGS gets its slopes, as in DLG.
Soft labels are kept multiplied by it, to be served by the same rate."""


def invert(
    victims: Sequence[Victim],
    method: Inversion,
    rng: np.random.Generator,
    *,
    tell: Tell | None = None,
    checkpoint: Path | None = None,
    every: int = 100,
) -> list[Reconstruction]:
    """Returns what the method makes of each victim, in order.

    All pages of a victim's batch are sought together.

    Args:
        victims: of any models; those that share model and shapes go together.
        method: the same for all.
        rng: draws the starts, for each victim and restart from a generator of its own.
        tell: shows a line to the person who waits.
        checkpoint: a folder for states. What lies there of the same victims, method and starts is
            gone on with, to the same bits, or not computed again.
        every: evaluations between two states at least.

    Raises:
        ValueError: if a gradient does not belong to its model or is not finite, or template,
            private pixels and batch do not fit the model; before anything is computed.
    """
    say = tell or (lambda line: None)
    matched = [check(victim, method, place) for place, victim in enumerate(victims)]
    _announce(victims, matched, method.objective, say)
    runs = [
        _Attempt(place, victim, names, own)
        for place, (victim, names) in enumerate(zip(victims, matched, strict=True))
        for own in rng.spawn(method.restarts)
    ]
    found: dict[int, list[_Result]] = defaultdict(list)
    for group in _groups(runs, method):
        done = _Run(group, method, say).finish(checkpoint, every)
        for attempt, result in zip(group, done, strict=True):
            found[attempt.place].append(result)
    return [_best(found[place]) for place in range(len(victims))]


@dataclass(frozen=True)
class _Attempt:
    """One start of one victim."""

    place: int
    victim: Victim
    matched: Matched
    rng: np.random.Generator


_Result = tuple[float, Reconstruction]


def _best(tries: Sequence[_Result]) -> Reconstruction:
    """Returns the one with the least distance, with what all of them took."""
    _, best = min(tries, key=lambda one: one[0])
    evaluations = sum(one.evaluations for _, one in tries)
    return replace(best, evaluations=evaluations, seconds=sum(one.seconds for _, one in tries))


def _groups(runs: Sequence[_Attempt], method: Inversion) -> list[list[_Attempt]]:
    """Returns the attempts that go together."""
    alike: dict[object, list[_Attempt]] = defaultdict(list)
    for one in runs:
        victim = one.victim
        columns = tuple((n, c.shape, c.dtype) for n, c in sorted(victim.batch.items()))
        shape = victim.template.shape
        alike[id(victim.model), shape, columns, one.matched.names, victim.steps].append(one)
    groups: list[list[_Attempt]] = []
    for some in alike.values():
        # A step of L-BFGS mixes all numbers that it is given: victims would not be independent.
        # Simulated steps take T times the memory of one gradient.
        single = method.optimizer == "lbfgs" or some[0].victim.steps is not None
        most = 1 if single else method.together
        groups.extend(some[k : k + most] for k in range(0, len(some), most))
    return groups


class _Run:
    """Attempts that go together; every tensor has them in front, V of them."""

    def __init__(self, group: Sequence[_Attempt], method: Inversion, say: Tell) -> None:
        self._method, self._say, self._count = method, say, len(group)
        model = group[0].victim.model
        like = next(model.parameters())
        victims = [one.victim for one in group]
        self._columns = {
            name: torch.stack([victim.batch[name] for victim in victims]).to(like.device)
            for name in victims[0].batch
        }
        self._sent = {
            name: torch.stack([victim.gradient[name] for victim in victims]).to(like)
            for name in group[0].matched.names
        }
        if len(group) == 1:
            sent = {name: tensor[0] for name, tensor in self._sent.items()}
            self._alone = GradientDistance(method.objective, sent)
        private = torch.stack([victim.private for victim in victims]).to(like.device)
        template = torch.stack([victim.template for victim in victims]).to(like)
        self._canvas = Canvas.of(template, private, method.region, method.pixels)
        depth = channels(method.pixels)
        guesses = [start(method.start, o.victim.template, depth, o.rng) for o in group]
        self._pixels = torch.stack(guesses).to(like).requires_grad_()
        soft = method.labels == "soft" and method.evaluations > 0
        self._labels = _soft_labels(group, say) if soft else []
        steps = victims[0].steps
        self._gradients = Gradients(model, group[0].matched.names, bool(self._labels), steps)
        self._cost = 1 if steps is None else steps.count
        self._best = self._pixels.detach().clone()
        self._least = torch.full((len(group),), math.inf, dtype=like.dtype, device=like.device)
        self._evaluations, self._stale = 0, 0
        self._cpu, self._wall = 0.0, 0.0
        self._curves: list[list[dict[str, float]]] = [[] for _ in group]
        sought = [self._pixels, *self._labels]
        self._optimizer: torch.optim.Optimizer
        if method.optimizer == "lbfgs":
            # The tolerances are meant for other scales: slopes by pixels of 0…255 are tiny.
            self._optimizer = torch.optim.LBFGS(
                sought, lr=method.lr, tolerance_grad=0, tolerance_change=0
            )
        else:
            self._optimizer = torch.optim.Adam(sought, lr=method.lr, betas=method.betas)

    def finish(self, folder: Path | None, every: int) -> list[_Result]:
        """Goes on until the budget is spent; returns what each attempt came to."""
        kept = self._kept(folder) if folder else None
        if kept and (state := kept.state()):
            self._load(state)
        written = self._evaluations
        told = time.monotonic()
        while not self._ended():
            cpu, wall = time.process_time(), time.monotonic()
            self._step()
            self._cpu += time.process_time() - cpu
            self._wall += time.monotonic() - wall
            if time.monotonic() - told > SECONDS_BETWEEN_LINES:
                told = time.monotonic()
                left = self._method.evaluations - self._evaluations
                seconds = left * self._wall / max(self._evaluations, 1)
                many = f"{self._count} victim{'s' * (self._count != 1)}"
                self._say(
                    f"{many}: {self._evaluations} of {self._method.evaluations} "
                    f"gradients, distance {self._least.mean().item():.3g}, {seconds:.0f} s left"
                )
            if kept and (self._ended() or self._evaluations - written >= every):
                kept.write(self._state())
                written = self._evaluations
        if not torch.isfinite(self._least).all() and self._method.evaluations:
            self._say("the distance between gradients was not a number: the start is handed back")
        found = self._best if self._method.keep == "best" else self._pixels.detach()
        pages = self._canvas.page(found.clamp(0, 255)).float().cpu()
        seconds = self._cpu / self._count
        return [
            (least, Reconstruction(page, self._cost * self._evaluations, seconds, tuple(curve)))
            for least, page, curve in zip(self._least.tolist(), pages, self._curves, strict=True)
        ]

    def _ended(self) -> bool:
        patience, seconds = self._method.patience, self._method.seconds
        return (
            self._evaluations >= self._method.evaluations
            or (patience is not None and self._stale >= patience)
            or (seconds is not None and self._wall >= seconds)
        )

    def _step(self) -> None:
        settings = self._optimizer.param_groups[0]
        settings["lr"] = self._method.lr * self._method.lr_schedule.at(self._done())
        if self._method.optimizer == "lbfgs":
            left = self._method.evaluations - self._evaluations
            settings["max_iter"] = settings["max_eval"] = min(LINE, left)
        # A tensor, so that nobody waits for the device but L-BFGS, which makes a number of it.
        self._optimizer.step(self._evaluate)  # type: ignore[arg-type]
        if self._method.clamp:
            with torch.no_grad():
                self._pixels.clamp_(0, 255)

    def _evaluate(self) -> Tensor:
        """Measures the pixels as they are, and leaves the derivative where the optimiser looks."""
        pages = self._canvas.page(self._pixels)
        with twice_differentiable():
            distances, (by_page, *by_label) = self._slopes(pages.detach())
        penalties = self._penalties(pages)
        ends, steep = [pages], [by_page]
        if penalties.requires_grad:
            ends, steep = [*ends, penalties], [*steep, torch.ones_like(penalties)]
        by_pixel = torch.autograd.grad(ends, self._pixels, steep)
        sought = [self._pixels, *self._labels]
        slopes = [*by_pixel, *(slope / SCALE for slope in by_label)]
        # To seek pixels / SCALE is to seek pixels with so much steeper slopes.
        steeper = SCALE**2 if self._method.optimizer == "lbfgs" else 1.0
        for tensor, slope in zip(sought, slopes, strict=True):
            # A victim whose distance is not finite stays where it is, for the others' sake.
            slope = torch.nan_to_num(slope if steeper == 1 else slope * steeper, 0.0, 0.0, 0.0)
            tensor.grad = slope.sign() if self._method.optimizer == "signed_adam" else slope
        self._note(distances, penalties.detach())
        return steeper * (distances + penalties.detach()).sum()

    def _slopes(self, pages: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Returns the distances, (V,), and their derivatives by the pages and the labels."""
        labels = [label.detach() / SCALE for label in self._labels]
        if self._count > 1:
            against = functools.partial(GradientDistance, self._method.objective)
            return self._gradients.slopes_together(
                pages, labels, self._columns, self._sent, against
            )
        columns = {name: column[0] for name, column in self._columns.items()}
        first = [label[0] for label in labels]
        distance, slopes = self._gradients.slopes(pages[0], first, columns, self._alone)
        return distance.reshape(1), [slope[None] for slope in slopes]

    def _penalties(self, pages: Tensor) -> Tensor:
        factor, priors = self._method.prior_schedule.at(self._done()), self._method.priors
        if not priors or not factor:
            return pages.new_zeros(self._count)
        weights = pages.new_tensor([factor * weight for weight, _ in priors])
        found = [torch.stack([prior(page) for _, prior in priors]) for page in pages / 255]
        return torch.stack(found) @ weights

    def _note(self, distances: Tensor, penalties: Tensor) -> None:
        better = distances < self._least
        self._least = torch.where(better, distances, self._least)
        chosen = better.view(-1, *[1] * (self._pixels.dim() - 1))
        self._best = torch.where(chosen, self._pixels.detach(), self._best)
        if self._method.patience is not None:  # otherwise nobody waits for the device
            self._stale = 0 if better.any() else self._stale + 1
        if self._evaluations % max(1, -(-self._method.evaluations // POINTS)) == 0:
            values = zip(distances.tolist(), penalties.tolist(), strict=True)
            for curve, (distance, penalty) in zip(self._curves, values, strict=True):
                point = {"evaluations": self._evaluations, "objective": distance}
                curve.append(point | ({"prior": penalty} if self._method.priors else {}))
        self._evaluations += 1

    def _done(self) -> float:
        return self._evaluations / self._method.evaluations

    def _state(self) -> dict[str, Any]:
        return {
            "pixels": self._pixels,
            "labels": self._labels,
            "best": self._best,
            "least": self._least,
            "counts": [self._evaluations, self._stale],
            "seconds": [self._cpu, self._wall],
            "curves": self._curves,
            "optimizer": self._optimizer.state_dict(),
        }

    def _load(self, state: Mapping[str, Any]) -> None:
        with torch.no_grad():
            for mine, theirs in zip(self._labels, state["labels"], strict=True):
                mine.copy_(theirs)
            self._pixels.copy_(state["pixels"])
        self._best, self._least = state["best"].to(self._best), state["least"].to(self._least)
        self._evaluations, self._stale = state["counts"]
        self._cpu, self._wall = state["seconds"]
        self._curves = state["curves"]
        self._optimizer.load_state_dict(state["optimizer"])

    def _kept(self, folder: Path) -> Kept:
        """Returns the state of these victims, this method and these starts on this device."""
        return Kept.of(
            folder,
            "inversion",
            method=self._method,
            steps=self._gradients.steps,
            device=self._pixels.device.type,
            at={name: self._gradients.model.get_parameter(name) for name in self._sent},
            sent=self._sent,
            columns=self._columns,
            canvas=[self._canvas.template, self._canvas.free],
            start=self._pixels,
        )


def check(victim: Victim, method: Inversion, place: int = 0) -> Matched:
    """Returns which tensors are matched, once everything of a victim fits.

    What computes no gradient needs no text.

    Raises:
        ValueError: see `invert`.
    """
    try:
        matched = choose(victim.model, victim.gradient, method.objective)
        check_pages(victim)
        if method.evaluations:
            check_forward(victim)
    except ValueError as error:
        raise ValueError(f"victim {place}: {error}") from error
    return matched


def check_pages(victim: Victim) -> None:
    """Raises ValueError where template, private pixels, batch and model do not fit each other."""
    template, private = victim.template, victim.private
    if template.dim() != 4 or template.shape[1] != 3:
        raise ValueError(f"template: expected (B, 3, H, W), got {tuple(template.shape)}")
    count, _, height, width = template.shape
    if private.shape != (count, 1, height, width) or private.dtype != torch.bool:
        raise ValueError(
            f"private: expected bool, {(count, 1, height, width)}, as the template is "
            f"{tuple(template.shape)}; got {private.dtype}, {tuple(private.shape)}"
        )
    if not torch.isfinite(template).all() or template.min() < 0 or template.max() > 255:
        raise ValueError("template: expected numbers in 0…255")
    if "pixels" in victim.batch:
        raise ValueError("batch: has the column pixels, which is what is sought; leave it out")
    for name, column in victim.batch.items():
        if len(column) != count:
            raise ValueError(f"batch: {name} has {len(column)} rows, and there are {count} pages")


def check_forward(victim: Victim) -> None:
    """Runs the model once: no other way tells what lengths and page sizes it takes."""
    like = next(victim.model.parameters())
    batch = {name: column.to(like.device) for name, column in victim.batch.items()}
    try:
        with torch.no_grad():
            victim.model.loss({**batch, "pixels": victim.template.to(like)})  # type: ignore[operator]
    except (ValueError, RuntimeError, IndexError, KeyError) as error:
        columns = {name: tuple(column.shape) for name, column in batch.items()}
        raise ValueError(
            f"the model takes no pages of {tuple(victim.template.shape)} with the columns "
            f"{columns}: {error}; expected what its encode() makes"
        ) from error


def _announce(
    victims: Sequence[Victim], matched: Sequence[Matched], objective: Objective, say: Tell
) -> None:
    """Tells what is not done as one might think, each thing once."""
    reasons: dict[str, dict[str, None]] = {}
    for one in matched:
        for name, why in one.left_out.items():
            reasons.setdefault(why, {})[name] = None
    told = [f"left out, {why}: {', '.join(names)}" for why, names in reasons.items()]
    if any(uses_fused_attention(victim.model) for victim in victims):
        told.append("attention='sdpa' has no second derivative: its plain form is taken instead")
    if objective.positions and any(not objective.placed(one.names) for one in matched):
        told.append("there is no table of the page's places: its direction is not compared")
    for line in dict.fromkeys(told):
        say(line)


def _soft_labels(group: Sequence[_Attempt], say: Tell) -> list[Tensor]:
    """Returns scores drawn for the labels, each (V, B, classes); none if a model has no such."""
    victim = group[0].victim
    like = next(victim.model.parameters())
    batch = {name: column.to(like.device) for name, column in victim.batch.items()}
    with torch.no_grad():
        found = scores(victim.model, {**batch, "pixels": victim.template.to(like)})
    if any(one.dim() != 2 for one in found):
        say("the model does not score one label an example: the labels are taken as known")
        return []
    return [
        torch.stack([torch.from_numpy(one.rng.normal(0, SCALE, like_this.shape))
                     for one in group]).to(like).requires_grad_()
        for like_this in found
    ]  # fmt: skip
