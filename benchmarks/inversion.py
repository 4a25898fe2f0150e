"""What gradient inversion costs: an iteration, and victims side by side.

    python benchmarks/inversion.py --json inversion.json          # a few minutes

step: an iteration of `fedpriv.attacks.inversion.invert` against the double backward that one writes
by hand: `create_graph=True`, the distance, its derivative by the page, Adam. The distance is the
sum of squares, or GI-DQA's mean squares and cosines of every tensor.
paper: an iteration of GI-DQA as the paper has it, with Eq. 5 over all layers, the four priors, Adam
and the best page kept, against the double backward alone: loss, gradient with `create_graph=True`,
and its product with a fixed vector differentiated by the page. No distance, no prior, no optimiser.
together: victims in one vectorised run against the same one by one. There is something to gain
where operations are small; with hundreds of tokens and features, a thread is busy with one victim.
peer: Inverting Gradients of one page by `invert` against `breaching` by the method's authors, from
the same start, for the same iterations: seconds an iteration, and the PSNR of both. Left out, and
said, where breaching cannot be imported.

One thread, CPU time; ratios are formed within a repeat, in which the sides take turns at being
first.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import importlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import torch
from models import Row, compared, cpu_seconds, report
from torch import Tensor, nn

from fedpriv.attacks.inversion import Inversion, Objective, invert
from fedpriv.attacks.inversion.gradients import gradient_of
from fedpriv.attacks.inversion.objective import choose
from fedpriv.attacks.inversion.presets import gi_dqa, gi_dqa_tuned, inverting_gradients
from fedpriv.attacks.inversion.prior import SpatialVariation
from fedpriv.attacks.inversion.start import start
from fedpriv.attacks.victim import Victim
from fedpriv.data.document import Document
from fedpriv.data.examples import Batch
from fedpriv.data.generated.invoices import Invoices
from fedpriv.data.generated.slips import Slips
from fedpriv.metrics.images import psnr
from fedpriv.models.donut import donut
from fedpriv.models.layoutlmv3 import layoutlmv3
from fedpriv.models.readers.reader import normalised
from fedpriv.models.vt5 import vt5
from fedpriv.runtime.memory import keep_large_blocks

MODELS: dict[str, Callable[[], Any]] = {
    "LayoutLMv3 64 px": lambda: layoutlmv3(
        task="answers", image_size=64, hidden_size=192, layers=1, initializer_range=0.07
    ),
    "LayoutLMv3 32 px, 48 tokens": lambda: layoutlmv3(task="answers", max_length=48),
    "Donut 64 px": functools.partial(donut, attention="eager"),
}
FOR_PAPER: dict[str, Callable[[], Any]] = {
    **MODELS,
    "LayoutLMv3 small, 112 px": lambda: layoutlmv3(task="answers", size="small"),
    "Donut small, 112 px": functools.partial(donut, size="small", attention="eager"),
    "VT5 64 px": lambda: vt5(train_visual=True, attention="eager"),
}
"""The models of the part paper."""
SMALL = ("LayoutLMv3 32 px, 48 tokens", "Donut 64 px")
"""The models of which victims side by side must be cheaper."""

MOST_STEP, MOST_EQ_5, MOST_PAPER, MOST_TOGETHER, MOST_PEER = 1.1, 1.0, 1.1, 1 / 1.5, 1.0
"""The most that ours may take, as a share of what it is compared with."""

STEPS, STEPS_OF_PAPER = 10, 20
"""Iterations of one measurement."""

PROVIDERS, SIDE = 10, 32
"""Whose pages a classifier tells apart, and the pixels that it sees of a side."""

VARIATION = 0.02
"""Weight of the total variation for colours of -1…1. Its authors' 0.2 is meant for photographs: on
pages with sharp type it costs either side 10 dB and more."""

MIDDLE = (0.5, 0.5, 0.5)
"""Mean and deviation of colours of 0…1, as `normalised` takes them."""


def pages(count: int) -> Sequence[Document]:
    """Returns so many pages, each of another provider."""
    return Invoices(providers=count, documents_per_provider=1).load().documents


def victims(model: nn.Module, count: int, device: str = "cpu") -> list[Victim]:
    """Returns victims of one model, a question about a page each; the middle is private.

    Args:
        model: on the device.
        count: of victims.
        device: where all of their tensors are.
    """
    examples = model.encode(pages(count))
    first = {row: place for place, row in reversed(list(enumerate(examples.column("document"))))}
    found = []
    for place in sorted(first.values()):
        batch = examples.batch(np.array([place]), device)
        gradient = gradient_of(model, batch)
        template = batch.pop("pixels").float()
        private = torch.zeros_like(template[:, :1], dtype=torch.bool)
        quarter = private.shape[-1] // 4
        private[..., quarter:-quarter, quarter:-quarter] = True
        template = torch.where(private, 255.0, template)
        found.append(Victim(model, gradient, batch, template, private))
    return found


def squares(mine: Tensor, theirs: Tensor) -> Tensor:
    """Returns DLG's distance of two tensors, as one writes it."""
    return ((mine - theirs) ** 2).sum()


def mean_squares_and_cosine(mine: Tensor, theirs: Tensor) -> Tensor:
    """Returns GI-DQA's distance of two tensors, Eq. 5, as one writes it."""
    cosine = (mine * theirs).sum() / ((mine**2).sum().sqrt() * (theirs**2).sum().sqrt())
    return ((mine - theirs) ** 2).mean() + 1 - cosine


DISTANCES = {
    "squares": (Objective(squares=1, partial=True), squares, MOST_STEP),
    "Eq. 5": (Objective(mse=1, cosine=1, partial=True), mean_squares_and_cosine, MOST_EQ_5),
}
"""Of the part step: ours, by hand, and the most that ours may take as a share of it."""


def by_hand(
    victim: Victim, names: Sequence[str], steps: int, distance: Callable[[Tensor, Tensor], Tensor]
) -> Tensor:
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
        far = sum(distance(mine, theirs) for mine, theirs in zip(found, sent, strict=True))
        (pixels.grad,) = torch.autograd.grad(far, pixels)
        optimizer.step()
    return pixels.detach()


def step(options: argparse.Namespace) -> Iterator[Row]:
    """An iteration against the bare double backward of the same model."""
    for name, build in MODELS.items():
        torch.manual_seed(0)
        (victim,) = victims(build().eval(), 1)
        names = [n for n, g in victim.gradient.items() if g.any()]
        given = {n: victim.gradient[n] for n in names}
        one = dataclasses.replace(victim, gradient=given)
        for label, (objective, distance, most) in DISTANCES.items():
            ours = run([one], gi_dqa_tuned(STEPS, objective=objective, pixels="rgb"))
            theirs = functools.partial(by_hand, one, names, STEPS, distance)
            ours(), theirs()
            pairs = compared((ours, theirs), options.repeats, cpu_seconds, STEPS)
            yield Row("step", f"{name}, {len(names)} tensors, {label}", pairs, most)


def paper(options: argparse.Namespace) -> Iterator[Row]:
    """An iteration of GI-DQA with everything that the paper asks for, against the bare one."""
    for name, build in FOR_PAPER.items():
        torch.manual_seed(0)
        (victim,) = victims(build().eval(), 1)
        method = dataclasses.replace(gi_dqa(), evaluations=STEPS_OF_PAPER)
        names = choose(victim.model, victim.gradient, method.objective).names
        ours = run([victim], method)
        theirs = functools.partial(double_backward, victim, names, STEPS_OF_PAPER)
        ours(), theirs()
        pairs = compared((ours, theirs), options.repeats, cpu_seconds, STEPS_OF_PAPER)
        yield Row("paper", f"{name}, {len(names)} tensors", pairs, MOST_PAPER)


def double_backward(victim: Victim, names: Sequence[str], steps: int) -> None:
    """Differentiates the gradient's product with what was sent by the page, so many times."""
    parameters = dict(victim.model.named_parameters())
    wanted = [parameters[name] for name in names]
    sent = [victim.gradient[name] for name in names]
    page = victim.template.clone().requires_grad_()
    for _ in range(steps):
        loss = victim.model.loss({**victim.batch, "pixels": page})
        found = torch.autograd.grad(loss, wanted, create_graph=True)
        torch.autograd.grad(found, page, sent)


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


class Classifier(nn.Module):
    """Tells from a piece of a page whose it is.

    Args:
        scores: takes colours in -1…1.
    """

    def __init__(self, scores: nn.Module) -> None:
        super().__init__()
        self.scores = scores

    def loss(self, batch: Batch) -> Tensor:
        """Returns the cross-entropy of `pixels`, (B, 3, 32, 32) in 0…255, with `label`, (B,)."""
        scores = self.scores(normalised(batch["pixels"], torch.float32))
        return nn.functional.cross_entropy(scores, batch["label"])


def convolutions() -> nn.Module:
    """Returns three convolutions with ReLU, and a linear layer."""
    layers: list[nn.Module] = []
    for inputs, stride in ((3, 2), (32, 2), (32, 1)):
        layers += [nn.Conv2d(inputs, 32, 5, stride, padding=2), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(32 * (SIDE // 4) ** 2, PROVIDERS))


def perceptron() -> nn.Module:
    """Returns two linear layers with a sigmoid between."""
    hidden = nn.Linear(3 * SIDE**2, 64)
    return nn.Sequential(nn.Flatten(), hidden, nn.Sigmoid(), nn.Linear(64, PROVIDERS))


CLASSIFIERS = {"CNN, ReLU": convolutions, "MLP, sigmoid": perceptron}


def peer(options: argparse.Namespace) -> Iterator[Row]:
    """Inverting Gradients against breaching; each repeat seeks another page, from another start.

    breaching's total variation takes the page's lower and right neighbours for middle grey, ours
    leaves the edges alone: that is where the difference in PSNR comes from.
    """
    try:
        breaching = importlib.import_module("breaching")
    except ImportError as error:
        print(f"peer: left out, breaching cannot be imported: {error}")
        return
    steps = options.iterations
    settings = settings_of(breaching, steps)
    for name, build in CLASSIFIERS.items():
        torch.manual_seed(0)
        model = Classifier(build()).eval()
        pages = pieces(1 + options.repeats)
        ours = Side(pages, functools.partial(by_invert, model, steps))
        theirs = Side(pages, functools.partial(by_breaching, breaching, model, settings))
        ours()
        theirs()
        pairs = compared((ours, theirs), options.repeats, cpu_seconds, steps)
        ratios = [mine / other for mine, other in zip(ours.found, theirs.found, strict=True)]
        more = {"dB": median(ours.found), "against dB": median(theirs.found)}
        more |= {"ratio": median(ratios), "least": min(ratios), "most": max(ratios)}
        yield Row("peer", f"{name}, {steps} iterations", pairs, MOST_PEER, more)


class Side:
    """A job that attacks one page a time, the next each time, and keeps the PSNR of what it found.

    Args:
        pages: (1, 3, H, W) each, in 0…255.
        attack: given the page, its label and a seed; returns a page.
    """

    def __init__(self, pages: Sequence[Tensor], attack: Callable[..., Tensor]) -> None:
        self._pages, self._attack = pages, attack
        self.found: list[float] = []

    def __call__(self) -> None:
        """Attacks the next page."""
        place = len(self.found)
        page = self._pages[place]
        guess = self._attack(page, torch.tensor([place % PROVIDERS]), place)
        self.found.append(psnr(page[0].numpy(), guess[0].numpy()))


def pieces(count: int) -> list[Tensor]:
    """Returns the middle of so many slips, (1, 3, 32, 32) each; the providers take turns."""
    each = -(-count // PROVIDERS)
    slips = Slips((64, 64), PROVIDERS, each).load().documents
    margin = slice((64 - SIDE) // 2, (64 + SIDE) // 2)
    pages = (np.asarray(slips[n % PROVIDERS * each + n // PROVIDERS].image()) for n in range(count))
    return [torch.tensor(page[margin, margin]).permute(2, 0, 1)[None].float() for page in pages]


def by_invert(model: Classifier, steps: int, page: Tensor, label: Tensor, seed: int) -> Tensor:
    """Returns what `invert` makes of a page's gradient."""
    gradient = gradient_of(model, {"pixels": page, "label": label})
    private = torch.ones_like(page[:, :1], dtype=torch.bool)
    victim = Victim(model, gradient, {"label": label}, torch.full_like(page, 255.0), private)
    variation = ((2 * VARIATION, SpatialVariation()),)  # for colours of 0…1
    method = inverting_gradients(steps, priors=variation)
    (found,) = invert([victim], method, np.random.default_rng(seed))
    return found.pixels


def by_breaching(
    breaching: ModuleType, model: Classifier, settings: Any, page: Tensor, label: Tensor, seed: int
) -> Tensor:
    """Returns what breaching makes of it, by the same method."""
    gradient = gradient_of(model, {"pixels": page, "label": label})
    scale = SimpleNamespace(shape=page.shape[1:], mean=MIDDLE, std=MIDDLE, modality="vision")
    sent = {"parameters": list(model.parameters()), "buffers": [], "metadata": scale}
    known = {"num_data_points": 1, "labels": label, "local_hyperparams": None}
    message = {"gradients": list(gradient.values()), "buffers": None, "metadata": known}
    attacker = breaching.attacks.prepare_attack(model.scores, nn.CrossEntropyLoss(), settings)
    # `invert` gives each victim and restart a generator of its own.
    (own,) = np.random.default_rng(seed).spawn(1)
    first = normalised(start("normal", page, 3, own), torch.float32)
    found, _ = attacker.reconstruct([sent], [message], {}, initial_data=first)
    colours: Tensor = found["data"]
    return ((colours * 0.5 + 0.5) * 255).clamp(0, 255)


def settings_of(breaching: ModuleType, steps: int) -> Any:
    """Returns breaching's settings of Inverting Gradients but for iterations and variation."""
    changed = {
        "optim.max_iterations": steps,
        "regularization.total_variation.scale": VARIATION,
    }
    with warnings.catch_warnings(action="ignore", category=UserWarning):  # about Hydra's version
        return breaching.get_attack_config(overrides=[f"{k}={v}" for k, v in changed.items()])


def run(several: Sequence[Victim], method: Inversion) -> Callable[[], Any]:
    """Returns the inversion of these victims as a job."""
    return lambda: invert(several, method, np.random.default_rng(0))


PARTS = {"step": step, "paper": paper, "together": together, "peer": peer}


def main() -> None:
    """Runs the parts and prints a line for each model."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--victims", type=int, default=8)
    parser.add_argument("--iterations", type=int, default=300, help="of peer")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_large_blocks()
    report((row for part in options.only for row in PARTS[part](options)), options.json)


if __name__ == "__main__":
    main()
