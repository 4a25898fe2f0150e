"""Where the closed form ends: page and text of one LayoutLMv3 gradient, as the gradient gets worse.

    python experiments/closed_form_limits.py [noise stage dropout local half batch width]
        [--size small|base] [--seeds 3] [--out runs]

A slip of the model's own size is read by a model with random weights, and its gradient is spoilt:

- `noise`: Gaussian noise on every coordinate, absolute and relative to the gradient's rms;
- `stage`: the model was trained by so many steps of AdamW on other slips first;
- `dropout`: it trains with dropout at 0.1;
- `local`: what is sent is the weights' change, in float32, after several steps on the slip;
- `half`: it is sent in half precision, fp16 with the largest loss scale that fits, or bf16;
- `batch`: it is the mean over several slips;
- `width`: the network has fewer dimensions than the page has patches (small models only).

Each is then solved twice: `plain`, for the whole page, with nothing known; and with the `template`,
and the noise's deviation where there is noise. Beside it, what `fedpriv.attacks.text` reads. PSNR
is in decibels, "exact" says that every pixel of the page is right as uint8, "read" is the share of
the private fields that Tesseract reads right (none without the program), and "-" where the attack
does not apply. The figures show means over the seeds, with the least and the most.

Writes metrics.json, noise.png and limits.png into <out>/closed_form_limits/<time>.
"""

from __future__ import annotations

import argparse
import copy
import functools
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedpriv.attacks.closed_form import layoutlmv3_of, patches, solve
from fedpriv.attacks.inversion.gradients import gradient_of
from fedpriv.attacks.text.recover import recover_text
from fedpriv.attacks.victim import Victim, as_gradient, victim_of
from fedpriv.data.examples import Batch
from fedpriv.data.generated.slips import Slips
from fedpriv.data.partition import HoldOut, Iid
from fedpriv.federation.dataset import DocumentData
from fedpriv.metrics.ocr import OCR, Tesseract
from fedpriv.models.layoutlmv3 import layoutlmv3
from fedpriv.report.wording import aligned
from fedpriv.runtime.run_folder import RunFolder
from fedpriv.runtime.torch_state import isolated_randomness, reproducible_torch, seeded_model
from fedpriv.threat.access import Known
from fedpriv.threat.attack import NotApplicable
from fedpriv.threat.claims import RecoveredBatch
from fedpriv.threat.scoring.pages import score
from fedpriv.threat.surfaces.batches import PrivatePages
from fedpriv.threat.truth import Truth
from fedpriv.training.loops import Optimizer

DEVIATIONS = tuple(10.0**k for k in range(-9, -1))
BATCHES = (1, 2, 3, 4)
SLIPS = 12
"""Each of another company; up to four are attacked, the model is trained on others."""

Gradient = Mapping[str, Tensor]
Row = dict[str, Any]
"""Part, setting, seed and x (a number for the figures), and what was measured."""


@dataclass(frozen=True)
class Size:
    """A size of model.

    Attributes:
        build: the model, of `dropout`.
        side: of its pages, in pixels.
        steps: after which the stage is measured.
        lr: of AdamW, on other slips and in local training; of SGD a hundred times as much.
        widths: of narrower and wider models of the same page.
    """

    build: Callable[..., nn.Module]
    side: int
    steps: tuple[int, ...]
    lr: float
    widths: tuple[int, ...] = ()


SIZES = {
    "small": Size(
        functools.partial(layoutlmv3, task="answers", size="small"),
        112,
        (0, 1, 10, 30, 100, 200),
        1e-3,
        (96, 144, 192, 208, 256),
    ),
    # Of the 512 tokens that it may read, a slip fills no more than 128.
    "base": Size(
        functools.partial(layoutlmv3, task="answers", size="base", max_length=128),
        224,
        (0, 1, 10, 30),
        1e-4,
    ),
}


class World:
    """Slips, what is known and true of them, and a model with random weights.

    Args:
        build: the model.
        side: of the pages.
        seed: of slips and weights.
        ocr: reads the recovered fields.
    """

    def __init__(
        self, build: Callable[..., nn.Module], side: int, seed: int, ocr: OCR | None
    ) -> None:
        source = Slips((side, side), SLIPS, 1, seed, questions=("total",))
        self.bound = DocumentData(source, Iid(1), HoldOut(fraction=0)).bind(build, seed)
        self.seed, self.ocr = seed, ocr
        pages = PrivatePages(self.bound.train, self.bound.documents, self.model(), None)
        self._read = pages.read

    def model(self) -> nn.Module:
        """Returns the model, in evaluation mode."""
        return seeded_model(self.bound.build_model, self.seed).eval()

    def batch(self, first: int, count: int) -> Batch:
        """Returns that many slips from `first` on."""
        return self.bound.train.batch(np.arange(first, first + count))

    def truth(self, count: int) -> tuple[Known, Truth]:
        """Returns what is known of the first slips, and the truth."""
        known, _, truth = self._read(np.arange(count), np.random.default_rng(self.seed))
        return known, truth

    def row(
        self,
        part: str,
        setting: str,
        x: float,
        attacked: tuple[nn.Module, Gradient],
        *,
        count: int = 1,
        noise: float = 0.0,
    ) -> Row:
        """Attacks one gradient.

        Args:
            part: of the study.
            setting: in words.
            x: the same as a number.
            attacked: the model that was sent, and what came back.
            count: slips behind it.
            noise: standard deviation that the adversary knows of.
        """
        known, truth = self.truth(count)
        victim = victim_of(*attacked, known)
        row: Row = {"part": part, "setting": setting, "seed": self.seed, "x": x}
        row["patches"], row["unknown"] = _patches(victim)
        row |= self._page("plain", truth, known, lambda: solve(victim, template=False))
        if count == 1:  # of several slips, each has a template of its own
            row |= self._page("template", truth, known, lambda: solve(victim, noise=noise))
        return {**row, **_text(truth, victim)}

    def _page(
        self, name: str, truth: Truth, known: Known, solved: Callable[[], Tensor]
    ) -> dict[str, float | None]:
        try:
            page = solved().numpy()
        except NotApplicable:
            return {}
        pages = np.repeat(page, known.size, axis=0)
        scores = score(RecoveredBatch((1, 0), pages), truth, known.template, self.ocr)
        exact = truth.pixels is not None and bool((np.rint(pages) == truth.pixels).all())
        return {
            f"{name}_page": scores["psnr_page"],
            f"{name}_private": scores["psnr_roi"],
            f"{name}_exact": float(exact),
            f"{name}_read": scores["exact_match"],
            "blank_private": scores["template_psnr_roi"],
        }


def _patches(victim: Victim) -> tuple[int, int]:
    """Returns how many patches a page has, and how many of them hold private pixels."""
    side = layoutlmv3_of(victim.model).config.patch_size
    private = patches(victim.private[:1].double(), side).amax(1) > 0
    return len(private), int(private.sum())


def _text(truth: Truth, victim: Victim) -> dict[str, float | None]:
    """Returns what is read out of the same gradient."""
    try:
        text = recover_text(victim)
    except NotApplicable:
        return {}
    scores = score(RecoveredBatch((1, 0), text=text), truth, None, None)
    precision = scores["token_set_precision"]
    return {
        "tokens": scores["token_set_recall"],
        "wrong": None if precision is None else 1 - precision,
        "positions": scores["exact_position"],
        "question": scores["question_exact"],
        "answer": scores["answer_exact"],
    }


def rms(gradient: Gradient) -> float:
    """Returns the root of the mean square of all coordinates."""
    squares = sum(t.double().square().sum().item() for t in gradient.values())
    return float(np.sqrt(squares / sum(t.numel() for t in gradient.values())))


# ----------------------------------------------------------------------------------- the parts


def noise(world: World, size: Size) -> Iterator[Row]:
    """Gaussian noise on every coordinate; the same draw at every deviation."""
    model = world.model()
    clean = gradient_of(model, world.batch(0, 1))
    rng = torch.Generator().manual_seed(world.seed)
    draw = {name: torch.randn(tensor.shape, generator=rng) for name, tensor in clean.items()}
    for deviation in DEVIATIONS:
        noisy = {name: tensor + deviation * draw[name] for name, tensor in clean.items()}
        row = world.row("noise", f"{deviation:.0e}", deviation, (model, noisy), noise=deviation)
        yield {**row, "relative": deviation / rms(clean)}


def stage(world: World, size: Size) -> Iterator[Row]:
    """After so many steps of AdamW on other slips, four at a time."""
    model = world.model()
    optimizer = Optimizer("adamw", lr=size.lr).build(model)
    for step in range(max(size.steps) + 1):
        if step in size.steps:
            gradient = gradient_of(model, world.batch(0, 1))
            yield world.row("stage", str(step), step, (model, gradient))
        others = world.batch(4 + step % 2 * 4, 4)
        _step(model, others, optimizer)


def dropout(world: World, size: Size) -> Iterator[Row]:
    """Dropout as in training, another draw for each seed."""
    for share in (0.0, 0.1):
        model = seeded_model(functools.partial(size.build, dropout=share), world.seed)
        with isolated_randomness(world.seed):
            gradient = gradient_of(model.train(), world.batch(0, 1))
        yield world.row("dropout", f"dropout {share}", share, (model.eval(), gradient))


def local(world: World, size: Size) -> Iterator[Row]:
    """The weights' change after training on the slip, as FedAvg sends it."""
    sgd = Optimizer("sgd", lr=100 * size.lr)
    momentum = Optimizer("sgd", lr=100 * size.lr, momentum=0.9)
    arms = {
        "SGD x1": (sgd, 1),
        "SGD x5": (sgd, 5),
        "momentum x5": (momentum, 5),
        "AdamW x5": (Optimizer("adamw", lr=size.lr), 5),
    }
    model = world.model()
    for x, (name, (optimizer, steps)) in enumerate(arms.items()):
        trained = copy.deepcopy(model)
        own = optimizer.build(trained)
        for _ in range(steps):
            _step(trained, world.batch(0, 1), own)
        before, after = dict(model.named_parameters()), dict(trained.named_parameters())
        change = {n: (after[n] - p).detach() for n, p in before.items() if p.requires_grad}
        sent = {"client": {"optimizer": {"name": optimizer.name, "lr": optimizer.lr}}}
        yield world.row("local", name, x, (model, as_gradient(change, "delta", "delta", sent)))


def half(world: World, size: Size) -> Iterator[Row]:
    """The gradient rounded to 16 bits."""
    model = world.model()
    exact = gradient_of(model, world.batch(0, 1))
    yield world.row("half", "fp32", 0, (model, exact))
    # A dynamic loss scale settles at the largest power of two that does not overflow.
    most = max(tensor.abs().max().item() for tensor in exact.values())
    scale = 2.0 ** np.floor(np.log2(torch.finfo(torch.float16).max / most))
    fp16 = {name: (tensor * scale).half().float() / scale for name, tensor in exact.items()}
    yield world.row("half", "fp16", 1, (model, fp16))
    bf16 = {name: tensor.bfloat16().float() for name, tensor in exact.items()}
    yield world.row("half", "bf16", 2, (model, bf16))


def batch(world: World, size: Size) -> Iterator[Row]:
    """The mean gradient of several slips: one page, a mixture, is all that the solve gives."""
    model = world.model()
    for count in BATCHES:
        gradient = gradient_of(model, world.batch(0, count))
        yield world.row("batch", f"B = {count}", count, (model, gradient), count=count)


def width(world: World, size: Size) -> Iterator[Row]:
    """Fewer dimensions than patches: the solve refuses, unless the template tells most of them."""
    for hidden in size.widths:
        build = functools.partial(
            layoutlmv3,
            task="answers",
            max_length=128,
            image_size=size.side,
            hidden_size=hidden,
            initializer_range=0.07,
        )
        narrow = World(build, size.side, world.seed, world.ocr)
        model = narrow.model()
        gradient = gradient_of(model, narrow.batch(0, 1))
        yield narrow.row("width", str(hidden), hidden, (model, gradient))


PARTS: Mapping[str, Callable[[World, Size], Iterator[Row]]] = {
    f.__name__: f for f in (noise, stage, dropout, local, half, batch, width)
}


def _step(model: nn.Module, given: Batch, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    model.loss(given).backward()  # type: ignore[operator]
    optimizer.step()


# ----------------------------------------------------------------------------------- the output

COLUMNS = {
    "plain_page": "page, plain",
    "plain_private": "private, plain",
    "plain_exact": "exact",
    "plain_read": "read",
    "template_private": "private, template",
    "template_exact": "exact",
    "template_read": "read",
    "tokens": "tokens",
    "wrong": "wrong",
    "positions": "places",
    "question": "question",
    "answer": "answer",
}
EXTRA = {
    "noise": {"relative": "/ rms"},
    "width": {"patches": "patches", "unknown": "private"},
}
"""Columns that one part has in front of the others."""


def values(rows: Sequence[Row], part: str, setting: str, column: str) -> list[float]:
    """Returns what was measured in one setting, of every seed that has it."""
    own = [row for row in rows if (row["part"], row["setting"]) == (part, setting)]
    return [row[column] for row in own if row.get(column) is not None]


def settings_of(rows: Sequence[Row], part: str) -> dict[str, float]:
    """Returns the settings of a part in their order, each with its x."""
    return {row["setting"]: row["x"] for row in rows if row["part"] == part}


def table(rows: Sequence[Row], part: str) -> Iterator[str]:
    """Yields mean, least and most over the seeds: decibels, and shares in 0…1."""
    columns = {**EXTRA.get(part, {}), **COLUMNS}
    lines = [
        (setting, *(cell(values(rows, part, setting, column)) for column in columns))
        for setting in settings_of(rows, part)
    ]
    yield from aligned([(part, *columns.values()), *lines])


def cell(there: Sequence[float]) -> str:
    """Returns a mean with its least and most; "-" where nothing was measured."""
    if not there:
        return "-"
    most = max(map(abs, there))
    form = ".1f" if most > 1 else ".2f" if most > 0.01 or not most else ".0e"
    average, least, greatest = (f"{f(there):{form}}" for f in (mean, min, max))
    return average if least == greatest else f"{average} ({least}–{greatest})"


def draw_noise(rows: Sequence[Row], path: Path, title: str) -> None:
    """Draws page and text over the noise."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 4.2), layout="constrained")
    left = figure.subplots()
    right = left.twinx()
    settings = settings_of(rows, "noise")
    curve = functools.partial(_curve, rows, "noise", list(settings.values()))
    curve(left, "plain_private", "page, nothing known", "o-", "C0")
    curve(left, "template_private", "page, template and noise known", "s-", "C1")
    curve(right, "tokens", "set of tokens, recall", "^--", "C2")
    curve(right, "positions", "tokens at their places", "v--", "C3")
    blank = mean(row["blank_private"] for row in rows if row["part"] == "noise")
    left.axhline(blank, color="grey", linestyle=":", label="the blank template")
    left.set_xscale("log")
    left.set(xlabel="standard deviation of the noise on each coordinate of the gradient")
    left.set(ylabel="PSNR on the private fields, dB", title=title)
    right.set(ylabel="share of the tokens", ylim=(-0.03, 1.03))
    level = mean(row["x"] / row["relative"] for row in rows if row["part"] == "noise")
    above = left.secondary_xaxis("top", functions=(lambda s: s / level, lambda s: s * level))
    above.set_xlabel("relative to the gradient's rms")
    lines = [*left.get_lines(), *right.get_lines()]
    left.legend(lines, [str(line.get_label()) for line in lines], loc="lower left", fontsize=8)
    figure.savefig(path, dpi=150)


def draw_limits(rows: Sequence[Row], path: Path, title: str) -> None:
    """Draws the other parts, one beside the other."""
    from matplotlib.figure import Figure

    parts = [part for part in PARTS if part != "noise" and settings_of(rows, part)]
    columns, lines = min(3, len(parts)), -(-len(parts) // 3)
    figure = Figure(figsize=(4.6 * columns, 3.2 * lines), layout="constrained")
    figure.suptitle(title)
    grid = figure.subplots(lines, columns, squeeze=False).flatten()
    for axes, part in zip(grid, parts, strict=False):
        settings = list(settings_of(rows, part))
        curve = functools.partial(_curve, rows, part, range(len(settings)))
        right = axes.twinx()
        curve(axes, "plain_private", "page, nothing known", "o-", "C0")
        curve(axes, "template_private", "page, template known", "s-", "C1")
        curve(right, "tokens", "set of tokens, recall", "^--", "C2")
        axes.set_xticks(range(len(settings)), settings, fontsize=8)
        axes.set(title=part, ylabel="PSNR, private, dB", ylim=(0, 120))
        right.set(ylabel="share of the tokens", ylim=(-0.03, 1.06))
    for axes in grid[len(parts) :]:
        axes.remove()
    drawn = {str(line.get_label()): line for a in figure.axes for line in a.get_lines()}
    figure.legend(drawn.values(), drawn.keys(), loc="outside lower center", ncols=3, fontsize=8)
    figure.savefig(path, dpi=150)


def _curve(
    rows: Sequence[Row],
    part: str,
    places: Sequence[float],
    axes: Any,
    column: str,
    label: str,
    style: str,
    colour: str,
) -> None:
    """Draws the mean of each setting at its place, and a band from the least to the most."""
    found = [values(rows, part, setting, column) for setting in settings_of(rows, part)]
    there = [(x, some) for x, some in zip(places, found, strict=True) if some]
    if there:
        at = [x for x, _ in there]
        axes.plot(at, [mean(some) for _, some in there], style, color=colour, label=label)
        least, most = [min(some) for _, some in there], [max(some) for _, some in there]
        axes.fill_between(at, least, most, color=colour, alpha=0.2)


def tesseract() -> OCR | None:
    """Returns the reader, or none where the program is not installed."""
    try:
        return Tesseract()
    except FileNotFoundError as missing:
        print(f"nothing is read: {missing}", file=sys.stderr)
        return None


# ------------------------------------------------------------------------------------- running


def main() -> None:
    """Runs the parts that were named, and prints a table of each."""
    options = _options()
    size, ocr = SIZES[options.size], tesseract()
    folder = RunFolder.create(options.out, "closed_form_limits")
    rows: list[Row] = []
    with reproducible_torch(1, "cpu"):
        for part in options.parts or PARTS:
            began = time.process_time()
            for seed in range(options.seeds):
                rows += PARTS[part](World(size.build, size.side, seed, ocr), size)
            took = time.process_time() - began
            if not settings_of(rows, part):
                print(f"{part}: not at this size", end="\n\n", flush=True)
                continue
            print(f"{part}, {options.size}, {options.seeds} seeds, {took:.0f} s of processor time")
            print(*table(rows, part), "", sep="\n", flush=True)
            told = {"size": options.size, "seeds": options.seeds, "rows": rows}
            folder.write_json("metrics.json", told)
    title = f"LayoutLMv3 {options.size}, slips of {size.side} x {size.side}"
    if settings_of(rows, "noise"):
        draw_noise(rows, folder.path / "noise.png", title)
    if any(row["part"] != "noise" for row in rows):
        draw_limits(rows, folder.path / "limits.png", title)
    print(folder.path)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("runs"))
    options = parser.parse_args()
    unknown = [name for name in options.parts if name not in PARTS]
    if unknown:
        parser.error(f"unknown part {', '.join(unknown)}: there is {', '.join(PARTS)}")
    return options


if __name__ == "__main__":
    main()
