"""Makes fedpriv/models/vt5_tiny again: the tiny VT5, taught to read invoices that nobody trains on.

    python experiments/pretrain_vt5_tiny.py        # about a quarter of an hour on one core

All documents are generated, from a seed of their own, so the weights say nothing about anybody.

To answer is to copy words from the page, and a Transformer learns to copy all at once or not at
all. On whole pages of 200 tokens this had not happened after 1600 steps; on pages that show the
fields asked for and nothing else, it happens after 1000. So the pages fill up stage by stage.

Once other words stand on the page, nobody asks for the provider any more. Where on a whole page
its name stands is left for the federation to learn: a model that reads every page without fault
has nothing to memorise, and nothing to leak.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from fedpriv.data.document import Document
from fedpriv.data.examples import Batch, Examples
from fedpriv.data.generated.invoices import Invoices
from fedpriv.models.readers.reader import IGNORED
from fedpriv.models.vt5 import SHIPPED, VT5, vt5
from fedpriv.runtime.seeds import generator
from fedpriv.runtime.torch_state import seeded_model

SEED = 1_000_003
PROVIDERS = 5000
KEYS = (
    "provider", "date", "total", "email", "invoice_number", "phone", "tax_number",
    "registration_id", "customer",
)  # fmt: skip
BATCH, LEARNING_RATE, WARM_UP, HELD = 32, 3e-3, 100, 200


@dataclass(frozen=True)
class Stage:
    """Some steps on pages that show three fields and this share of all other words."""

    others: float
    keys: tuple[str, ...]
    steps: int


STAGES = (Stage(0.0, KEYS, 3000), Stage(0.3, KEYS[1:], 400), Stage(1.0, KEYS[1:], 700))
QUESTIONS = 3


def main(folder: Path) -> None:
    """Trains through all stages and saves the model."""
    torch.set_num_threads(1)
    model = seeded_model(vt5, SEED)
    assert isinstance(model, VT5)  # noqa: S101 - for the type checker
    weights = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=LEARNING_RATE, weight_decay=0.0)
    done, total = 0, sum(stage.steps for stage in STAGES)
    for number, stage in enumerate(STAGES):
        examples = pages(model, stage, number)
        own = examples.column("document") >= HELD
        held, train = (examples.take(np.flatnonzero(rows)) for rows in (~own, own))
        for batch in batches(train, stage.steps, number):
            for group in optimizer.param_groups:
                group["lr"] = LEARNING_RATE * rate(done, total)
            optimizer.zero_grad()
            loss = model.loss(batch)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(weights, 1.0)
            optimizer.step()
            done += 1
            if done % 250 == 0:
                say(done, loss.item(), model, held)
    model.save_pretrained(folder)


def rate(done: int, total: int) -> float:
    """Returns the share of the learning rate: up at the start, down in the last tenth."""
    return min((done + 1) / WARM_UP, 1.0, max(0.02, 10 * (total - done) / total))


def pages(model: VT5, stage: Stage, number: int) -> Examples:
    """Draws one page of every provider and encodes it."""
    source, parts = Invoices(PROVIDERS, 1, seed=SEED), []
    for provider in range(PROVIDERS):
        rng = generator(SEED, "curriculum", number, provider)
        examples = model.encode([thinned(source.document(provider, 0), stage, rng)])
        parts.append((dict(examples.columns), examples.shared["pixels"][0]))
        parts[-1][0]["document"] = np.full(len(examples), provider)
    names = parts[0][0]
    columns = {name: np.concatenate([part[name] for part, _ in parts]) for name in names}
    return Examples.of(columns, {"pixels": (np.concatenate([p for _, p in parts]), "document")})


def thinned(page: Document, stage: Stage, rng: np.random.Generator) -> Document:
    """Returns a page with fewer questions, and without most of the words not asked for."""
    keys = set(rng.choice(stage.keys, QUESTIONS, replace=False).tolist())
    asked = {word for entity in page.entities if entity.label in keys for word in entity.words}
    kept = [i for i in range(len(page.words)) if i in asked or rng.random() < stage.others]
    return dataclasses.replace(
        page,
        words=tuple(page.words[i] for i in kept),
        entities=(),
        questions=tuple(q for q in page.questions if q.key in keys),
    )


def batches(examples: Examples, steps: int, number: int) -> Iterator[Batch]:
    """Yields shuffled batches, cut to the longest text in each."""
    shuffle, given = generator(SEED, "pretraining order", number), 0
    while given < steps:
        for batch in examples.batches(BATCH, shuffle=shuffle):
            longest = int(batch["attention_mask"].sum(1).max())
            for name in ("input_ids", "attention_mask", "bbox"):
                batch[name] = batch[name][:, :longest]
            yield batch
            given += 1
            if given == steps:
                return


def say(done: int, loss: float, model: VT5, held: Examples) -> None:
    """Prints the share of held-out answers whose every token is the likeliest given the others."""
    model.eval()
    right: dict[str, list[bool]] = {key: [] for key in KEYS}
    with torch.no_grad():
        for batch, keys in zip(held.batches(64), _in_64(held.column("key")), strict=True):
            hit = (model(batch).argmax(-1) == batch["labels"]) | (batch["labels"] == IGNORED)
            for key, good in zip(keys, hit.all(1).tolist(), strict=True):
                right[key].append(good)
    model.train()
    shown = " ".join(f"{key} {np.mean(marks):.2f}" for key, marks in right.items() if marks)
    clock = time.process_time()
    print(f"step {done}, {clock:.0f} s: loss {loss:.3f}; {shown}", file=sys.stderr, flush=True)


def _in_64(values: np.ndarray) -> list[list[str]]:
    return [values[start : start + 64].tolist() for start in range(0, len(values), 64)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=SHIPPED)
    main(parser.parse_args().folder)
