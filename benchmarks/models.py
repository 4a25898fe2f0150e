"""What fedpriv's models cost: a training step, encoding pages, and encoding them again.

    python benchmarks/models.py --json models.json                # tiny models: a few minutes
    python benchmarks/models.py --only steps --sizes base
    python benchmarks/models.py --only steps --sizes base --device cuda --autocast bf16

steps: `train_epoch` against a hand-written loop over the bare module of transformers, from the same
weights, on the same batches, already collated, with the module's own loss and the same AdamW.
encoding: `model.encode` of pages in image files against Pillow decoding the files alone.
cache: the second `encode_cached`, or `DocumentData.bind`, against the first.

One thread, as a client has. CPU time, on a GPU wall-clock time; ratios are formed within a repeat,
in which the two sides run one after the other.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import functools
import gc
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode
from transformers.models.layoutlmv3.modeling_layoutlmv3 import LayoutLMv3Encoder

from fedpriv.data.document import Document, DocumentSet
from fedpriv.data.generated.invoices import Invoices
from fedpriv.data.partition import ByProvider
from fedpriv.data.readers.sroie import Sroie
from fedpriv.federation.dataset import DocumentData
from fedpriv.models.donut import donut
from fedpriv.models.encoding_cache import encode_cached
from fedpriv.models.layoutlmv3 import layoutlmv3
from fedpriv.models.readers.reader import normalised
from fedpriv.models.roberta import roberta
from fedpriv.models.vt5 import VT5, vt5
from fedpriv.runtime.memory import keep_large_blocks
from fedpriv.training.loops import Optimizer, train_epoch

MODELS: dict[str, Callable[..., Any]] = {
    "LayoutLMv3 tags": layoutlmv3,
    "LayoutLMv3 answers": functools.partial(layoutlmv3, task="answers"),
    "RoBERTa": roberta,
    "VT5": vt5,
    "Donut": donut,
}
MOST_STEP, MOST_AGAIN = 1.05, 0.1
"""The most that ours may take, as a share of what it is compared with."""

SCAN = (1000, 1400)
"""Width and height of a page in an image file."""

LR = 1e-4
Job = Callable[[], Any]
Clock = Callable[..., float]
Pair = tuple[float, float]
"""Seconds of ours and of what it is compared with, in one repeat."""


@dataclass(frozen=True)
class Row:
    """A line of the table; the seconds are of a step, a page or a whole data set."""

    part: str
    name: str
    pairs: list[Pair]
    limit: float | None = None
    more: dict[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        ours, against = (1e3 * median(side) for side in zip(*self.pairs, strict=True))
        ratios = [mine / other for mine, other in self.pairs]
        ratio = f"{median(ratios):6.3f} ({min(ratios):.3f}–{max(ratios):.3f})"
        most = self.limit
        limit = "" if most is None else f"≤ {most:g}" + " MISSED" * (median(ratios) > most)
        more = ", ".join(f"{name} {value:.4g}" for name, value in self.more.items())
        line = f"{self.part:9}{self.name:36}{ours:10.2f} {against:10.2f} {ratio:23}{limit:14}{more}"
        return line.rstrip()


class BareVT5(nn.Module):
    """VT5 as one would write it by hand around T5 and BEiT, with the parts of a model of ours."""

    def __init__(self, model: VT5) -> None:
        super().__init__()
        spatial, visual = model.spatial_embedding, model.visual_embedding
        self.t5, self.beit = model.language_backbone, visual.image_model
        self.x, self.y = spatial.x_position_embeddings, spatial.y_position_embeddings
        self.norm, self.dropout = spatial.LayerNorm, spatial.dropout
        self.from_box = spatial.spatial_emb_matcher.layers[0]
        self.from_page = visual.visual_emb_matcher.layers[0]

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, bbox: Tensor, pixel_values: Tensor,
        labels: Tensor,
    ) -> Any:  # fmt: skip
        """Returns T5's output for the words, their places and the page."""
        x0, y0, x1, y1 = bbox.unbind(-1)
        box = self.norm(self.x(x0) + self.y(y0) + self.x(x1) + self.y(y1))
        text = self.t5.shared(input_ids) + self.from_box(self.dropout(box))
        page = self.from_page(self.beit(pixel_values=pixel_values).last_hidden_state)
        mask = torch.cat([attention_mask, attention_mask.new_ones(page.shape[:2])], 1)
        inputs = torch.cat([text, page], 1)
        return self.t5(inputs_embeds=inputs, attention_mask=mask, labels=labels, use_cache=False)


def collated(batch: dict[str, Tensor], name: str) -> dict[str, Any]:
    """Returns a batch as the bare module takes it."""
    given: dict[str, Any] = {"input_ids": batch["input_ids"].long()}
    if name == "Donut":
        given = {"decoder_input_ids": given["input_ids"], "use_cache": False}
    else:
        given["attention_mask"] = batch["attention_mask"].long()
    if name not in ("Donut", "RoBERTa"):
        given["bbox"] = batch["bbox"].long()
    if "pixels" in batch:
        given["pixel_values"] = normalised(batch["pixels"], torch.float32)
    if "start" in batch:
        return given | {"start_positions": batch["start"], "end_positions": batch["end"]}
    return given | {"labels": batch["labels"]}


def bare_epoch(network: nn.Module, batches: list[dict[str, Any]], optimizer: Any) -> float:
    """The loop that one writes by hand."""
    losses = []
    for batch in batches:
        optimizer.zero_grad(set_to_none=True)
        loss = network(**batch).loss
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses).mean().item()


def steps(options: argparse.Namespace) -> Iterator[Row]:
    """A training step against the bare module's; of the base models one is there at a time."""
    for size, name in options.chosen:
        yield step(size, name, options)
        gc.collect()


def step(size: str, name: str, options: argparse.Namespace) -> Row:
    """Returns the row of one model."""
    batch = options.batch or (8 if size == "tiny" else 1)
    count = 16 if size == "tiny" else 8 if options.device == "cuda" else 1
    ours, theirs, tidy = sides(size, name, count, batch, options)
    more = {"loss": ours(), "bare": theirs()}
    tidy()
    repeats = options.repeats or (15 if size == "tiny" else 5)
    pairs = compared((ours, theirs), repeats, seconds_on(options.device), count, tidy)
    if options.autocast or options.device == "cuda":
        more |= speed(ours, count * batch, options)
    return Row("steps", f"{name} {size}, batch {batch}", pairs, MOST_STEP, more)


def sides(
    size: str, name: str, count: int, batch: int, options: argparse.Namespace
) -> tuple[Job, Job, Job]:
    """Returns so many steps of ours and of the bare loop, and what drops both sides' gradients."""
    device, rows = options.device, count * batch
    torch.manual_seed(0)
    loaded = invoices(rows)
    model = MODELS[name](loaded.labels, size=size).to(device).train()
    examples = model.encode(loaded.documents[:rows]).take(np.arange(rows))
    twin = copy.deepcopy(model)
    bare = BareVT5(twin) if isinstance(twin, VT5) else twin.network
    for module in bare.modules():
        if isinstance(module, LayoutLMv3Encoder):
            module.__class__ = LayoutLMv3Encoder  # ours looks biases up otherwise, for vmap
    given = [collated(b, name) for b in examples.batches(batch, device=device)]
    optimizer = Optimizer(lr=LR).build(model)
    learning = [p for p in bare.parameters() if p.requires_grad]
    by_hand = torch.optim.AdamW(learning, lr=LR, weight_decay=0.0)
    if options.autocast:
        cast = torch.autocast(device, torch.bfloat16)
        model.loss, bare.forward = cast(model.loss), cast(bare.forward)

    def ours() -> float:
        torch.manual_seed(0)  # the same dropout on both sides
        return train_epoch(model, examples.batches(batch, device=device), optimizer)

    def theirs() -> float:
        torch.manual_seed(0)
        return bare_epoch(bare, given, by_hand)

    def tidy() -> None:
        model.zero_grad(set_to_none=True)
        twin.zero_grad(set_to_none=True)

    return ours, theirs, tidy


def speed(job: Job, images: int, options: argparse.Namespace) -> dict[str, float]:
    """Returns images a second, and the share that this is of a matmul's operations a second."""
    with FlopCounterMode(display=False) as counter:
        job()
    clock = functools.partial(seconds_on(options.device), wall=True)
    seconds = median(clock(job) for _ in range(3))
    side, times = (8192, 20) if options.device == "cuda" else (1024, 4)
    dtype = torch.bfloat16 if options.autocast else torch.float32
    factor = torch.randn(side, side, device=options.device, dtype=dtype)
    product = min(clock(lambda: [factor @ factor for _ in range(times)]) for _ in range(5))
    most = 2 * side**3 * times / product
    return {"images/s": images / seconds, "of matmul": counter.get_total_flops() / seconds / most}


def encoding(options: argparse.Namespace) -> Iterator[Row]:
    """Encoding pages in files against decoding the files alone, by the page."""
    with tempfile.TemporaryDirectory() as folder:
        for kind, loaded in pages(options, Path(folder), ("png", "jpg")).items():
            decode = functools.partial(decoded, loaded.documents)
            for size, name in options.chosen:
                encode = functools.partial(weightless(name, size, loaded).encode, loaded.documents)
                encode(), decode()
                each = len(loaded.documents)
                pairs = compared((encode, decode), options.repeats or 3, cpu_seconds, each)
                more = {"pages/s": 1 / median(mine for mine, _ in pairs)}
                yield Row("encoding", f"{name} {size}, {kind}", pairs, more=more)


def decoded(documents: Sequence[Document]) -> None:
    """Decodes the pages and keeps nothing."""
    for document in documents:
        with Image.open(document.page) as image:
            image.convert("RGB")


def cache(options: argparse.Namespace) -> Iterator[Row]:
    """The second time against the first: what every later run saves, and each run of a sweep."""
    with tempfile.TemporaryDirectory() as folder:
        kinds = pages(options, Path(folder), ("png",)) | {"memory": invoices(options.documents)}
        for size, name in options.chosen:
            for kind, loaded in kinds.items():
                for way, job in cached(name, size, loaded).items():
                    pairs = [twice(job) for _ in range(options.repeats or 3)]
                    # Without image files there is nothing to decode, and less to save.
                    limit = None if kind == "memory" or name == "RoBERTa" else MOST_AGAIN
                    yield Row("cache", f"{name} {size}, {kind}, {way}", pairs, limit)


def cached(name: str, size: str, loaded: DocumentSet) -> dict[str, Callable[[Path], object]]:
    """Returns what goes through a cache, given its folder; binding builds the model too."""
    model = weightless(name, size, loaded)
    model.encode(loaded.documents[:1])
    source = SimpleNamespace(load=lambda: loaded)
    build = functools.partial(MODELS[name], size=size)

    def bind(folder: Path) -> object:
        return DocumentData(source, ByProvider(clients=4), cache=folder).bind(build, seed=0)

    found = {"encode": lambda folder: encode_cached(model, loaded.documents, folder)}
    return found | {"bind": bind} if size == "tiny" else found


def twice(job: Callable[[Path], object]) -> Pair:
    """Returns the seconds of the second time and of the first, in a new cache."""
    with tempfile.TemporaryDirectory() as folder:
        first, second = (cpu_seconds(lambda: job(Path(folder))) for _ in range(2))
    return second, first


def pages(
    options: argparse.Namespace, folder: Path, kinds: tuple[str, ...]
) -> dict[str, DocumentSet]:
    """Returns data sets with their pages in files, by the kind of file."""
    if options.folder is None:
        return {kind: in_files(invoices(options.documents), folder, kind) for kind in kinds}
    loaded = Sroie(options.folder).load()
    some = loaded.documents[: options.documents]
    return {"SROIE": dataclasses.replace(loaded, documents=some)}


def invoices(count: int) -> DocumentSet:
    """Returns generated invoices with their pages in memory, so many or a few more."""
    return Invoices(providers=8, documents_per_provider=-(-count // 8)).load()


def in_files(drawn: DocumentSet, folder: Path, kind: str) -> DocumentSet:
    """Returns the documents with their pages, enlarged to the size of scans, in image files."""
    documents = []
    for document in drawn.documents:
        path = folder / f"{document.id}.{kind}"
        document.image().resize(SCAN, Image.Resampling.BILINEAR).save(path)
        documents.append(dataclasses.replace(document, page=path))
    return dataclasses.replace(drawn, documents=tuple(documents))


def weightless(name: str, size: str, loaded: DocumentSet) -> Any:
    """Returns a model that can encode, without memory for its weights."""
    with torch.device("meta"):
        return MODELS[name](loaded.labels, size=size)


def compared(
    sides: tuple[Job, Job], repeats: int, clock: Clock, each: int, tidy: Job = gc.collect
) -> list[Pair]:
    """Returns the seconds of both, divided by `each`; they take turns at being first."""
    pairs = []
    for repeat in range(repeats):
        took = {}
        for job in sides[:: -1 if repeat % 2 else 1]:
            took[job] = clock(job) / each
            tidy()
        pairs.append((took[sides[0]], took[sides[1]]))
    return pairs


def seconds_on(device: str) -> Clock:
    """Returns the clock of a device: CPU time, or wall-clock time until a GPU is done."""
    wait: Job = torch.cuda.synchronize if device == "cuda" else lambda: None

    def clock(job: Job, wall: bool = device == "cuda") -> float:
        now = time.perf_counter if wall else time.process_time
        wait()
        began = now()
        job()
        wait()
        return now() - began

    return clock


cpu_seconds = seconds_on("cpu")
PARTS = {"steps": steps, "encoding": encoding, "cache": cache}


def report(measured: Iterable[Row], file: Path | None) -> None:
    """Prints the rows as they come; writes them into a file at the end, if one is named."""
    print(f"load average {os.getloadavg()[0]:.1f}, torch {torch.__version__}")
    print(f"{'part':9}{'what':36}{'ms':>10} {'against':>10}  ratio (least–most)")
    rows = []
    for row in measured:
        print(row, flush=True)
        rows.append(dataclasses.asdict(row))
    if file:
        found = {"torch": torch.__version__, "rows": rows}
        file.write_text(json.dumps(found, indent=1) + "\n")


def main() -> None:
    """Runs the parts and prints a line for each model."""
    data = os.environ.get("FEDPRIV_DATA")
    sroie = Path(data) / "open" / "sroie" if data else None
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--sizes", nargs="+", choices=["tiny", "base"], default=["tiny"])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--repeats", type=int, help="of steps 15, base 5; otherwise 3")
    parser.add_argument("--batch", type=int, help="8 for tiny models, 1 for base")
    parser.add_argument("--documents", type=int, default=64, help="to encode")
    parser.add_argument("--folder", type=Path, default=sroie, help="of SROIE, to encode")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--autocast", choices=["bf16"])
    parser.add_argument("--json", type=Path, help="where to write the figures")
    options = parser.parse_args()
    options.chosen = [(size, name) for size in options.sizes for name in options.models]
    torch.set_num_threads(1)
    keep_large_blocks()
    report((row for part in options.only for row in PARTS[part](options)), options.json)


if __name__ == "__main__":
    main()
