"""What gradient inversion costs: an iteration, and victims side by side.

    python benchmarks/inversion.py --json inversion.json          # a few minutes

step: an iteration of `attacks.inversion.invert` against the double backward that one writes by
hand: `create_graph=True`, the sum of squared distances, its derivative by the page, Adam.
together: victims in one vectorised run against the same one by one. There is something to gain
where operations are small; with hundreds of tokens and features, a thread is busy with one victim.

One thread, CPU time; ratios are formed within a repeat, in which the sides take turns at being
first.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from models import Row, compared, cpu_seconds
from torch import Tensor, nn

from attacks.inversion import Inversion, Objective, invert
from attacks.inversion.gradients import gradient_of
from attacks.inversion.presets import gi_dqa_tuned
from attacks.victim import Victim
from fedpriv.data.synthetic import Invoices
from fedpriv.models.donut import donut_tiny
from fedpriv.models.layoutlmv3_answers import layoutlmv3_answers_tiny

MODELS: dict[str, Callable[[], Any]] = {
    "LayoutLMv3 64 px": lambda: layoutlmv3_answers_tiny(
        image_size=64, hidden_size=192, layers=1, initializer_range=0.07
    ),
    "LayoutLMv3 32 px, 48 tokens": lambda: layoutlmv3_answers_tiny(max_length=48),
    "Donut 64 px": functools.partial(donut_tiny, attention="eager"),
}
SMALL = ("LayoutLMv3 32 px, 48 tokens", "Donut 64 px")
"""The models of which victims side by side must be cheaper."""

MOST_STEP, MOST_TOGETHER = 1.1, 1 / 1.5
"""The most that ours may take, as a share of what it is compared with."""

STEPS = 10
"""Iterations of one measurement."""


def victims(model: nn.Module, count: int) -> list[Victim]:
    """Returns victims of one model, a question about a page each; the middle is private."""
    documents = Invoices(providers=count, documents_per_provider=1).load().documents
    examples = model.encode(documents)
    first = {row: place for place, row in reversed(list(enumerate(examples.column("document"))))}
    found = []
    for place in sorted(first.values()):
        batch = examples.batch(np.array([place]))
        gradient = gradient_of(model, batch)
        template = batch.pop("pixels").float()
        private = torch.zeros_like(template[:, :1], dtype=torch.bool)
        quarter = private.shape[-1] // 4
        private[..., quarter:-quarter, quarter:-quarter] = True
        template = torch.where(private, 255.0, template)
        found.append(Victim(model, gradient, batch, template, private))
    return found


def by_hand(victim: Victim, names: Sequence[str], steps: int) -> Tensor:
    """The loop that one writes by hand."""
    parameters = dict(victim.model.named_parameters())
    wanted = [parameters[name] for name in names]
    sent = [victim.gradient[name] for name in names]
    pixels = victim.template.clone().requires_grad_()
    optimizer = torch.optim.Adam([pixels], lr=25.0)
    for _ in range(steps):
        page = torch.where(victim.private, pixels, victim.template)
        loss = victim.model.loss({**victim.batch, "pixels": page})
        found = torch.autograd.grad(loss, wanted, create_graph=True)
        far = sum(((mine - theirs) ** 2).sum() for mine, theirs in zip(found, sent, strict=True))
        (pixels.grad,) = torch.autograd.grad(far, pixels)
        optimizer.step()
    return pixels.detach()


def step(options: argparse.Namespace) -> Iterator[Row]:
    """An iteration against the bare double backward of the same model."""
    method = gi_dqa_tuned(STEPS, objective=Objective(squares=1, partial=True), pixels="rgb")
    for name, build in MODELS.items():
        torch.manual_seed(0)
        (victim,) = victims(build().eval(), 1)
        names = [n for n, g in victim.gradient.items() if g.any()]
        given = {n: victim.gradient[n] for n in names}
        one = dataclasses.replace(victim, gradient=given)
        ours, theirs = run([one], method), functools.partial(by_hand, one, names, STEPS)
        ours(), theirs()
        pairs = compared((ours, theirs), options.repeats, cpu_seconds, STEPS)
        yield Row("step", f"{name}, {len(names)} tensors", pairs, MOST_STEP)


def together(options: argparse.Namespace) -> Iterator[Row]:
    """Victims side by side against one after the other."""
    for name, build in MODELS.items():
        torch.manual_seed(0)
        several = victims(build().eval(), options.victims)
        method = gi_dqa_tuned(STEPS)
        ours = run(several, dataclasses.replace(method, together=len(several)))
        theirs = run(several, dataclasses.replace(method, together=1))
        ours(), theirs()
        pairs = compared((ours, theirs), options.repeats, cpu_seconds, STEPS * len(several))
        limit = MOST_TOGETHER if name in SMALL else None
        speed = {"times as fast": median(theirs / mine for mine, theirs in pairs)}
        yield Row("together", f"{name}, {len(several)} victims", pairs, limit, speed)


def run(several: Sequence[Victim], method: Inversion) -> Callable[[], Any]:
    """Returns the inversion of these victims as a job."""
    return lambda: invert(several, method, np.random.default_rng(0))


PARTS = {"step": step, "together": together}


def main() -> None:
    """Runs the parts and prints a line for each model."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--victims", type=int, default=8)
    parser.add_argument("--json", type=Path, help="where to write the figures")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"load average {os.getloadavg()[0]:.1f}, torch {torch.__version__}")
    print(f"{'part':9}{'what':36}{'ms':>10} {'against':>10}  ratio (least–most)")
    rows = []
    for row in (row for part in options.only for row in PARTS[part](options)):
        print(row, flush=True)
        rows.append(dataclasses.asdict(row))
    if options.json:
        found = {"torch": torch.__version__, "rows": rows}
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
