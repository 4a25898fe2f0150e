"""What CDMI costs: candidates through the attack against the bare model, and a whole attack.

    python benchmarks/cdmi.py --json cdmi.json                     # a few minutes
    python benchmarks/cdmi.py --only speed --size base --device cuda --models layoutlm

speed: candidates that the attack's decoding puts to the target in a second, PUB-MLM, sampling and
all bookkeeping included, against `target.losses` on as many rows of the same windows, already made,
in batches of the same size. On generated invoices, text only and with the page.
sroie: the whole attack, one-shot and multi-shot, PUB-MLM trained, on fields of real receipts and a
tiny target, against the ten minutes of two cores that it may take. Needs FEDPRIV_DATA.

One thread, unless told otherwise; CPU time, on a GPU wall-clock time.
"""

from __future__ import annotations

import argparse
import functools
import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from models import Row, compared, report, seconds_on

from fedpriv.attacks.cdmi.attack import CDMI, CDMIAccess
from fedpriv.attacks.cdmi.decoding import Decoder
from fedpriv.attacks.cdmi.decoding import Path as Attempted
from fedpriv.attacks.cdmi.generator import Training
from fedpriv.attacks.cdmi.windows import Windows, looked_at
from fedpriv.data.document import Document
from fedpriv.data.examples import Batch, Examples
from fedpriv.data.generated.invoices import Invoices
from fedpriv.data.readers.sroie import Sroie
from fedpriv.models.encoders.backbones import bros, layoutlm
from fedpriv.runtime.memory import keep_large_blocks
from fedpriv.runtime.torch_state import seeded_model
from fedpriv.threat.access import (
    Architecture,
    ModelSeries,
    PublicDocuments,
    ScrubbedField,
    ScrubbedFields,
    WhiteBox,
)
from fedpriv.threat.attack import AttackContext
from fedpriv.training.loops import Optimizer, train_epoch

LEAST_SPEED = 0.85
"""Candidates a second, as a share of the bare model's."""

MOST_SECONDS = 1200.0
"""Of CPU time: ten minutes of two cores."""

MODELS = {"layoutlm": layoutlm, "bros": bros}
SROIE_KEYS = ("date", "company", "address", "total")


def speed(options: argparse.Namespace) -> Iterator[Row]:
    """Candidates through the attack against the bare model."""
    made = Invoices(providers=options.fields, documents_per_provider=1, seed=1).load()
    clock = seconds_on(options.device)
    for name in options.models:
        for image in (False, True):
            build = functools.partial(
                MODELS[name], made.labels, size=options.size, image=image, dropout=0.0
            )
            target, helper = (
                seeded_model(functools.partial(build, task=task), 0).to(options.device).eval()
                for task in ("tags", "mlm")
            )
            scrubbed = scrubbed_fields(target, made.documents, (3, 8), options.fields)
            job = Job(target, helper, scrubbed, options)
            with torch.inference_mode():
                count = job.attack()  # warms up, and says how many candidates there are
                sides = (job.attack, functools.partial(job.bare, count))
                pairs = compared(sides, options.repeats, clock, count)
            speeds = [bare / mine for mine, bare in pairs]
            more = {
                "candidates/s": 1 / median(mine for mine, _ in pairs),
                "speed": median(speeds),
                "least": min(speeds),
                "most": max(speeds),
            }
            what = f"{name} {options.size}, {'page and text' if image else 'text'}, {count}"
            yield Row("speed", what, pairs, 1 / LEAST_SPEED, more)


class Job:
    """A chunk of fields: through the attack, and as bare rows."""

    def __init__(
        self, target: Any, helper: Any, scrubbed: ScrubbedFields, options: argparse.Namespace
    ) -> None:
        self._target, self._helper, self._device = target, helper, options.device
        self._settings = CDMI(candidates=options.candidates, batch_size=options.batch)
        self._fields = scrubbed.fields
        self._batch = scrubbed.examples.batch(
            np.array([one.number for one in scrubbed.fields]), options.device
        )
        self._rows = self._bare_rows()

    def attack(self) -> int:
        """Decodes all fields, attack and baseline; returns the candidates that it took."""
        sampling = self._settings
        subwords = self._target.reader.subwords
        decoder = Decoder(
            self._windows(self._helper), self._windows(self._target), sampling, False,
            (subwords.mask, subwords.pad),
        )  # fmt: skip
        paths = [
            [
                Attempted(place, np.random.default_rng([place, attempt]).random(len(one.places)))
                for place, one in enumerate(self._fields)
                for attempt in range(sampling.attempts)
            ]
            for _ in range(2)
        ]
        return decoder.decode(*paths).evaluated.total()

    def bare(self, count: int) -> None:
        """Takes the losses of as many rows."""
        for start in range(0, count, self._settings.batch_size):
            rows = min(self._settings.batch_size, count - start)
            self._target.losses({name: column[:rows] for name, column in self._rows.items()})

    def _windows(self, model: Any) -> Windows:
        places = [one.places for one in self._fields]
        return Windows(model, looked_at(model, self._batch), places, self._settings.batch_size)

    def _bare_rows(self) -> Batch:
        """Returns one batch: rows of all fields by turns, the page looked at, as long as theirs."""
        with torch.inference_mode():
            cut = looked_at(self._target, self._batch)
        turns = torch.arange(self._settings.batch_size, device=self._device) % len(self._fields)
        return {name: column[turns] for name, column in cut.items()}


def sroie(options: argparse.Namespace) -> Iterator[Row]:
    """A whole attack on real receipts, for each task."""
    if not options.folder:
        print("sroie: left out, FEDPRIV_DATA names no folder")
        return
    found = Sroie(options.folder).load()
    private, public = found.documents[::2], found.documents[1::2]
    for name in options.models:
        for task in options.tasks:
            build = functools.partial(MODELS[name], found.labels, max_length=512)
            target = seeded_model(functools.partial(build, task=task), 0)
            trained(target, private, options.epochs)
            final = WhiteBox("the end of the training", options.epochs, target.eval())
            access = CDMIAccess(
                ModelSeries((lambda final=final: final,)),
                scrubbed_fields(target, private, (3, 15), options.real_fields, SROIE_KEYS),
                PublicDocuments(public),
                Architecture(build),
                None,
            )
            attack = CDMI(
                candidates=options.candidates,
                batch_size=options.batch,
                generator=Training(epochs=options.epochs, lr=2e-3),
            )
            with tempfile.TemporaryDirectory() as scratch:
                rng = np.random.default_rng(0)
                context = AttackContext(rng, lambda line: None, Path(scratch))
                began = time.process_time()
                (result,) = attack.run(access, context)
                seconds = time.process_time() - began
            details = result.details
            more = {
                "candidates": details["candidate_evaluations"],
                "asked": details["candidate_evaluations_asked"],
            }
            what = f"{name} {task}, {len(result.fields)} fields"
            yield Row("sroie", what, [(seconds, MOST_SECONDS)], 1.0, more)


def trained(model: Any, documents: Sequence[Document], epochs: int) -> None:
    """Trains a tiny target."""
    examples = model.encode(documents)
    optimizer, rng = Optimizer("adamw", 2e-3).build(model), np.random.default_rng(0)
    model.train()
    torch.manual_seed(0)
    for _ in range(epochs):
        train_epoch(model, examples.batches(8, shuffle=rng), optimizer)


def scrubbed_fields(
    model: Any,
    documents: Sequence[Document],
    lengths: tuple[int, int],
    most: int,
    keys: Sequence[str] = (),
) -> ScrubbedFields:
    """Returns fields by turns of their keys, masked, as the model reads them; pages stay whole.

    That the page is not whitened changes no time. `fedpriv.threat.surfaces.fields` does it for real
    attacks.
    """
    found: list[tuple[Document, str, tuple[int, ...]]] = []
    count: Counter[str] = Counter()
    for document in documents:
        pieces = model.reader.subwords.pieces([word.text for word in document.words])
        ends = np.cumsum([0, *map(len, pieces)]) + 1
        for entity in document.entities:
            places = tuple(p for w in entity.words for p in range(ends[w], ends[w + 1]))
            fits = lengths[0] <= len(places) <= lengths[1]
            wanted = not keys or (entity.label in keys and count[entity.label] < most / len(keys))
            if fits and wanted and places[-1] < model.reader.max_length - 1 and len(found) < most:
                found.append((document, entity.label, places))
                count[entity.label] += 1
    examples = first_windows(model, [document for document, _, _ in found])
    ids = examples.column("input_ids")
    for row, (_, _, places) in enumerate(found):
        ids[row, list(places)] = model.reader.subwords.mask
    columns = {name: examples.column(name) for name in examples.columns} | {"input_ids": ids}
    fields = [ScrubbedField(n, d.id, key, places) for n, (d, key, places) in enumerate(found)]
    rows = Examples.of(columns, examples.shared)
    return ScrubbedFields(tuple(fields), rows, model.reader.subwords.text)


def first_windows(model: Any, documents: Sequence[Document]) -> Examples:
    """Returns the first window of each document."""
    examples = model.encode(documents)
    _, rows = np.unique(examples.column("document"), return_index=True)
    return examples.take(rows)


PARTS = {"speed": speed, "sroie": sroie}


def main() -> None:
    """Runs the parts and prints a line for each figure."""
    data = os.environ.get("FEDPRIV_DATA")
    folder = Path(data) / "open" / "sroie" if data else None
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--models", nargs="+", choices=MODELS, default=["layoutlm"])
    parser.add_argument("--size", choices=["tiny", "base"], default="tiny", help="of speed")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="of speed")
    parser.add_argument("--tasks", nargs="+", default=["tags"], help="of sroie: tags, spade, mlm")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--fields", type=int, default=4, help="of speed")
    parser.add_argument("--real-fields", type=int, default=40, help="of sroie")
    parser.add_argument("--candidates", type=int, default=128)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=20, help="of target and PUB-MLM on receipts")
    parser.add_argument("--folder", type=Path, default=folder, help="of SROIE")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, help="where to write the figures")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    keep_large_blocks()
    report((row for part in options.only for row in PARTS[part](options)), options.json)


if __name__ == "__main__":
    main()
