"""What a private training step costs: per-example gradients, clipped and summed, or one backward.

    python benchmarks/per_example.py --sizes tiny base --repeats 5 --json per_example.json

All ways take the same model and the same batch in the same process, one after the other in each
repeat, so that a busy machine slows all of them; CPU time is the figure to trust. The optimiser is
left out of both sides: it is the same. One thread, as a client has.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from transformers import LayoutLMv3Config, LayoutLMv3ForTokenClassification

from fedpriv.data.examples import Examples
from fedpriv.models.layoutlmv3 import LayoutLMv3Tagger, layoutlmv3
from fedpriv.models.readers.reader import IGNORED, Reader
from fedpriv.models.readers.subwords import Subwords
from fedpriv.models.tagging import tags_of
from fedpriv.runtime.memory import keep_large_blocks
from fedpriv.training.ghost import NoRule
from fedpriv.training.per_example import PerExample, VmapError

LABELS = ("company", "date", "address", "total")
TOKENS = 128
CLIP_NORM = 0.1
METHODS = ["ghost", "loop", "vmap"]


@dataclass(frozen=True)
class Size:
    """A model to time, with the batch sizes to time it at."""

    build: Callable[[], LayoutLMv3Tagger]
    batches: tuple[int, ...]
    image_size: int


@dataclass(frozen=True)
class Row:
    """One way at one size: seconds a step, median and extremes, and the ratio of the medians."""

    size: str
    parameters: int
    batch: int
    way: str
    cpu: tuple[float, float, float]
    wall: tuple[float, float, float]
    cpu_ratio: float
    wall_ratio: float


def base() -> LayoutLMv3Tagger:
    """LayoutLMv3-base with drawn weights: 125 M parameters, 197 visual tokens."""
    network = LayoutLMv3ForTokenClassification(LayoutLMv3Config(num_labels=len(tags_of(LABELS))))
    return LayoutLMv3Tagger(network, Reader(Subwords.shipped(), TOKENS, 224), LABELS)


SIZES = {
    "tiny": Size(lambda: layoutlmv3(LABELS, max_length=TOKENS), (8, 32), 32),
    "base": Size(base, (4,), 224),
}


def random_examples(count: int, image_size: int) -> Examples:
    """Windows of random tokens, half of them labelled, a quarter of each window padding."""
    rng = np.random.default_rng(0)
    here = np.arange(TOKENS) < TOKENS * 3 // 4
    labelled = here & (rng.random((count, TOKENS)) < 0.5)
    corner = rng.integers(0, 900, (count, TOKENS, 2))
    columns = {
        "input_ids": np.where(here, rng.integers(5, 400, (count, TOKENS)), 1),
        "attention_mask": np.broadcast_to(here, (count, TOKENS)).astype(np.int64),
        "bbox": np.concatenate([corner, corner + rng.integers(1, 100, corner.shape)], axis=-1),
        "labels": np.where(labelled, rng.integers(0, 9, (count, TOKENS)), IGNORED),
        "document": np.arange(count),
    }
    pixels = rng.integers(0, 256, (count, 3, image_size, image_size), dtype=np.uint8)
    return Examples.of(columns, shared={"pixels": (pixels, "document")})


def steps(
    model: LayoutLMv3Tagger, examples: Examples, methods: list[str]
) -> dict[str, Callable[[], object]]:
    """Returns the ways to take one step, by name, each tried once."""
    rows = np.arange(len(examples))

    def plain() -> None:
        model.zero_grad(set_to_none=True)
        model.loss(examples.batch(rows)).backward()

    ways: dict[str, Callable[[], object]] = {"plain": plain}
    for name in methods:
        engine = PerExample(name)
        ways[name] = lambda engine=engine: engine.clipped_sum(model, examples, CLIP_NORM)
    for name, step in list(ways.items()):
        try:
            step()
        except (NoRule, VmapError) as error:
            print(f"{name} left out: {error}")
            del ways[name]
        model.zero_grad(set_to_none=True)
    return ways


def timed(
    ways: dict[str, Callable[[], object]], repeats: int, tidy: Callable[[], object]
) -> dict[str, np.ndarray]:
    """Returns CPU and wall-clock seconds by way, of shape (repeats, 2); the ways take turns.

    After each step comes `tidy`, untimed: one way's gradients are no burden on the next one's
    memory, since a client takes only one of the ways.
    """
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, step in ways.items():
            cpu, wall = time.process_time(), time.perf_counter()
            step()
            times[name].append((time.process_time() - cpu, time.perf_counter() - wall))
            tidy()
    return {name: np.array(seconds) for name, seconds in times.items()}


def spread(seconds: np.ndarray) -> tuple[float, float, float]:
    """Returns median, least and most."""
    return float(statistics.median(seconds)), float(seconds.min()), float(seconds.max())


def rows_of(size: str, methods: list[str], repeats: int) -> list[Row]:
    """Times one size at all its batch sizes."""
    torch.manual_seed(0)
    model = SIZES[size].build().train()
    count = sum(p.numel() for p in model.parameters() if p.requires_grad)
    automatic = PerExample().choice(model)[0]
    rows = []
    for batch in SIZES[size].batches:
        examples = random_examples(batch, SIZES[size].image_size)
        times = timed(steps(model, examples, methods), repeats, model.zero_grad)
        plain = np.median(times["plain"], axis=0)
        for way, seconds in times.items():
            cpu_ratio, wall_ratio = (np.median(seconds, axis=0) / plain).tolist()
            name = f"{way} (auto)" if way == automatic else way
            cpu, wall = spread(seconds[:, 0]), spread(seconds[:, 1])
            rows.append(Row(size, count, batch, name, cpu, wall, cpu_ratio, wall_ratio))
    return rows


def table(rows: list[Row]) -> str:
    """Returns the rows as text, in milliseconds a step."""
    lines = [
        f"{'size':5} {'B':>3} {'way':12} {'CPU ms [min-max]':>27} {'×':>5}   wall ms [min-max]"
    ]
    for row in rows:
        cpu = "{:9.1f} [{:.1f}-{:.1f}]".format(*(1e3 * s for s in row.cpu))
        wall = "{:9.1f} [{:.1f}-{:.1f}]".format(*(1e3 * s for s in row.wall))
        start = f"{row.size:5} {row.batch:3} {row.way:12} {cpu:>27} {row.cpu_ratio:5.2f}"
        lines.append(f"{start}   {wall:>27} {row.wall_ratio:5.2f}")
    return "\n".join(lines)


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=["tiny"])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path, help="where to write the figures")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    keep_large_blocks()
    rows = [
        row
        for size in arguments.sizes
        for row in rows_of(size, arguments.methods, arguments.repeats)
    ]
    print(table(rows))
    if arguments.json:
        machine = {"cpu": platform.processor(), "torch": torch.__version__}
        figures = {"machine": machine, "seconds a step": [asdict(row) for row in rows]}
        arguments.json.write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
