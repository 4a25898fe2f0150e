"""PrIeD-KIE: what its guidelines say of DP fine-tuning and of FedAvg, on a tiny LayoutLMv3.

    python experiments/kie_shapes.py [baseline batch clip layers clients providers]
        [--data invoices sroie funsd] [--seeds 3] [--json FILE]

Each shape is an ordering that the paper reports (`providers`: PFL-DocVQA's gap between the
providers that were trained on and others). It is run over several seeds, and what is printed is
computed from the
numbers: whether the means are in that order; whether every seed is (a seed has the same held-out
documents and first weights in all settings); and whether so beyond the spread, that is, whether the
worst seed of the better setting beats the best seed of the worse one.

The models of `batch`, `clip`, `layers` and `clients` start from public documents (TSP, as in the
paper, whose models are pretrained too): generated invoices of other companies; for SROIE such
invoices with the labels that the two share, and the receipts of a third of the companies, which
are then nobody's private data. `baseline` and `providers` start from scratch, on all of the data.

σ is what so little data can bear. ε stands beside it, for whoever sees the models, at δ = 1/|D|.

SROIE and FUNSD are read below FEDPRIV_DATA.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

from dp_utility import SHARED, Receipts
from majority_baseline import OF_EACH_WORD, baselines

from fedpriv.clients.feam_dp import ExampleGradients
from fedpriv.clients.fedavg import LocalTraining
from fedpriv.data.document import Document, DocumentSet
from fedpriv.data.generated.invoices import Invoices
from fedpriv.data.partition import HoldOut, Iid
from fedpriv.data.readers.funsd import Funsd
from fedpriv.data.readers.sroie import Sroie
from fedpriv.federation.dataset import DocumentData
from fedpriv.federation.loop import Federation, Result
from fedpriv.federation.settings import Settings
from fedpriv.models.layoutlmv3 import layoutlmv3
from fedpriv.privacy.mechanism import example_gaussian
from fedpriv.privacy.sampling import FixedSize
from fedpriv.strategies.feam_dp import FeAmDP
from fedpriv.strategies.fedavg import FedAvg
from fedpriv.training.adapters import FineTuning, Full, LoRA, TopLayers
from fedpriv.training.loops import Optimizer
from fedpriv.training.pretraining import Pretraining

MEASURES = {"f1": 1, "loss": -1}
"""What is compared, and whether more (1) or less (-1) of it is better."""

LR = 4e-3
DP_LR = 8e-3
SIGMA = 1.0
EPOCHS = 9
"""E of the DP runs, of E/q steps each."""
TRUNK = TopLayers(2)
"""All but the embeddings: most of a tiny model's parameters, and so of the noise."""
DEPTH = 6
"""Layers of the model of `layers`: half of the paper's, so that top 4 and 2 stand for its 8 and 4.

Twelve so narrow ones do not learn within the steps that a CPU has time for.
"""


@dataclass(frozen=True)
class Row:
    """One setting of one shape under one seed; what was not measured is None."""

    data: str
    shape: str
    setting: str
    seed: int
    f1: float
    loss: float | None = None
    noise_multiplier: float | None = None
    epsilon: float | None = None


@dataclass(frozen=True)
class Task:
    """What is learnt, private documents and public ones.

    Attributes:
        name: as on the command line.
        examples: about how many private training examples there are, |D|; a constant.
        epochs: of non-private training from scratch.
        test: keeps documents back.
    """

    name: str
    examples: int
    epochs: int
    test: HoldOut


TASKS = {
    "invoices": Task("invoices", examples=230, epochs=8, test=HoldOut("document", 0.2)),
    "sroie": Task("sroie", examples=390, epochs=10, test=HoldOut("split")),
    "funsd": Task("funsd", examples=150, epochs=10, test=HoldOut("split")),
}


@dataclass(frozen=True)
class Source:
    """A task's documents: all of them, or, where some are public, those or the others."""

    task: str
    part: str = "all"

    def load(self) -> DocumentSet:
        """Reads or makes the documents, once."""
        loaded = _documents(self.task, self.part)
        return _renamed(loaded) if self.part == "public" else loaded


@functools.cache
def _documents(task: str, part: str) -> DocumentSet:
    if task == "sroie" and part != "all":
        receipts = Receipts(public=part == "public").load()
        return receipts if part == "private" else _with_invoices(receipts)
    if part == "public":
        return Invoices(providers=100, documents_per_provider=3, seed=4711).load()
    if task == "invoices":
        # Few private ones, for many epochs: large batches leave few steps in each.
        each = 12 if part == "all" else 6
        return Invoices(providers=24, documents_per_provider=each, seed=0).load()
    root = Path(os.environ["FEDPRIV_DATA"])
    sroie, funsd = Sroie(root / "open" / "sroie"), Funsd(root / "restricted" / "funsd")
    return (sroie if task == "sroie" else funsd).load()


def _renamed(loaded: DocumentSet) -> DocumentSet:
    """Returns documents with other labels, of which a model takes over no part of the head."""
    names = {label: f"public {label}" for label in loaded.labels}
    documents = [_relabelled(document, names) for document in loaded.documents]
    return replace(loaded, documents=tuple(documents), labels=tuple(names.values()))


def _with_invoices(receipts: DocumentSet) -> DocumentSet:
    invoices = _documents("invoices", "public").documents
    relabelled = [_relabelled(invoice, SHARED) for invoice in invoices]
    return replace(receipts, documents=(*relabelled, *receipts.documents))


def _relabelled(document: Document, names: Mapping[str, str]) -> Document:
    """Returns a document with labels of other names; entities of labels without are left out."""
    entities = [
        replace(entity, label=names[entity.label])
        for entity in document.entities
        if entity.label in names
    ]
    return replace(document, entities=tuple(entities))


@dataclass(frozen=True)
class Arm:
    """A setting to run; the defaults train in full, without privacy, on pooled data, on TSP.

    Attributes:
        epochs: passes over the data.
        rate: q of DP-Adam, in E/q steps; None trains without privacy.
        clip_norm: of one example's gradient.
        noise_multiplier: σ.
        clients: K of FedAvg; half of them take part in a round, with one epoch, for K above 2.
        finetuning: what is trained.
        layers: of the model.
        unseen: share of the providers that are not trained on.
        scratch: starts from random weights, on the whole data set.
    """

    epochs: int = EPOCHS
    rate: float | None = None
    clip_norm: float = 0.1
    noise_multiplier: float = SIGMA
    clients: int = 1
    finetuning: FineTuning = Full()  # noqa: RUF009 - frozen
    layers: int = 2
    unseen: float = 0.0
    scratch: bool = False

    def run(self, task: Task, seed: int, runs: Path) -> Result:
        """Trains and evaluates."""
        data = DocumentData(
            Source(task.name, "all" if self.scratch else "private"),
            Iid(self.clients),
            replace(task.test, unseen=self.unseen),
        )
        halves, rounds = self._private(task) if self.rate else self._fedavg()
        federation = Federation(
            model=functools.partial(layoutlmv3, layers=self.layers),
            data=data,
            finetuning=self.finetuning,
            pretraining=None if self.scratch else _public(task, self.layers),
            seed=seed,
            name=task.name,
            runs=runs,
            settings=Settings(evaluate_every=rounds, checkpoint_every=rounds),
            **halves,
        )
        return federation.run(rounds)

    def _private(self, task: Task) -> tuple[dict[str, Any], int]:
        """Returns DP-Adam, one noisy step a round."""
        mechanism = example_gaussian(
            clip_norm=self.clip_norm,
            examples=task.examples,
            record_rate=float(self.rate or 1.0),
            noise_multiplier=self.noise_multiplier,
            delta=1 / task.examples,
        )
        strategy = FeAmDP(mechanism, lr=_lr(DP_LR, self.layers))
        halves = {"strategy": strategy, "client": ExampleGradients()}
        return halves, round(self.epochs / mechanism.record_rate)

    def _fedavg(self) -> tuple[dict[str, Any], int]:
        """Returns FedAvg as in PrIeD-KIE, App. B: T = E/C rounds of one epoch."""
        share = 0.5 if self.clients > 2 else 1.0
        pooled = self.clients == 1
        optimizer = Optimizer("adam", lr=_lr(LR, self.layers))
        client = LocalTraining(self.epochs if pooled else 1, optimizer=optimizer)
        halves = {"strategy": FedAvg(FixedSize(fraction=share)), "client": client}
        return halves, 1 if pooled else round(self.epochs / share)


def _public(task: Task, layers: int) -> Pretraining:
    """Returns TSP; a deep model takes fewer steps, for the time, and shorter ones, to learn."""
    epochs = 15 if layers < DEPTH else 8
    optimizer = Optimizer(lr=_lr(LR, layers))
    return Pretraining(
        Source(task.name, "public"), epochs=epochs, batch_size=8, optimizer=optimizer
    )


def _lr(lr: float, layers: int) -> float:
    return lr if layers < DEPTH else lr / 2


Scores = Mapping[str, Mapping[str, float | None]]
"""Setting → the columns of a row that were measured."""


@dataclass(frozen=True)
class Shape:
    """An ordering and how to measure it.

    Attributes:
        claim: in words.
        arms: what is run, by setting.
        orders: settings from the best to the worst, as the paper has them.
        scores: computes a result's rows, by setting; where they are not one for each arm.
    """

    claim: str
    arms: Mapping[str, Arm]
    orders: tuple[tuple[str, ...], ...]
    scores: Callable[[Task, Result, int], Scores] | None = None

    def rows(self, name: str, task: Task, seed: int, runs: Path) -> Iterator[Row]:
        """Runs every arm under one seed."""
        for setting, arm in self.arms.items():
            result = arm.run(task, seed, runs)
            found = self.scores(task, result, seed) if self.scores else {setting: _last(result)}
            private = _privacy(result) if arm.rate else {}
            for row, measured in found.items():
                yield Row(task.name, name, row, seed, **measured, **private)  # type: ignore[arg-type]


def _last(result: Result, suffix: str = "") -> dict[str, float | None]:
    return {measure: result.metrics[-1].get(measure + suffix) for measure in MEASURES}


def _privacy(result: Result) -> dict[str, float]:
    """Returns σ and ε from the ledger, for whoever sees every model."""
    ledger = json.loads((result.run_dir / "ledger.json").read_text())
    return {
        "noise_multiplier": ledger["mechanism"]["noise_multiplier"],
        "epsilon": ledger["views"]["global"]["pld"],
    }


def _against_majority(task: Task, result: Result, seed: int) -> Scores:
    documents = _documents(task.name, "all").documents
    train, held = task.test.split(documents, seed)
    guessed = baselines(documents, train, held)[OF_EACH_WORD]["f1"]
    return {"LayoutLMv3": _last(result), OF_EACH_WORD: {"f1": guessed}}


def _by_group(task: Task, result: Result, seed: int) -> Scores:
    return {group: _last(result, f"_{group}") for group in ("seen", "unseen")}


def baseline(task: Task) -> Shape:
    """Learning, without privacy, beats what needs none."""
    arms = {"LayoutLMv3": Arm(epochs=task.epochs, scratch=True)}
    order = ("LayoutLMv3", OF_EACH_WORD)
    return Shape("above the majority baseline", arms, (order,), _against_majority)


def batch(task: Task) -> Shape:
    """Larger batches at equal σ and equal epochs."""
    arms = {f"q = 1/{n}": Arm(rate=1 / n, finetuning=TRUNK) for n in (3, 5, 10, 20)}
    return Shape("larger batch better at equal σ", arms, (tuple(arms),))


def clip(task: Task) -> Shape:
    """Lower clip norms at equal σ."""
    arms = {
        f"clip norm {c:g}": Arm(rate=0.2, clip_norm=c, finetuning=TRUNK)
        for c in (0.1, 0.3, 1.0, 3.0)
    }
    return Shape("lower clip norm better at equal σ", arms, (tuple(arms),))


def layers(task: Task) -> Shape:
    """All of the model, the top of it, or adapters, with and without privacy."""
    tuned: dict[str, FineTuning] = {
        "full": Full(),
        "all layers": TopLayers(DEPTH),  # full, but for the embeddings
        "top 4": TopLayers(4),
        "top 2": TopLayers(2),
        "LoRA": LoRA(),
    }
    plain = {name: Arm(epochs=2, layers=DEPTH, finetuning=t) for name, t in tuned.items()}
    private = {f"DP {name}": replace(arm, epochs=4, rate=0.2) for name, arm in plain.items()}
    orders = (tuple(plain), tuple(private))
    return Shape(
        "full > two thirds of the layers > one third of them > LoRA", {**plain, **private}, orders
    )


def clients(task: Task) -> Shape:
    """FedAvg as the same data is dealt out to more clients."""
    arms = {f"K = {k}": Arm(epochs=8, clients=k) for k in (2, 4, 8, 16)}
    return Shape("FedAvg loses a little with more clients", arms, (tuple(arms),))


def providers(task: Task) -> Shape:
    """Held-out documents of providers that were trained on, and of others."""
    arms = {"all": Arm(epochs=task.epochs, unseen=0.25, scratch=True)}
    return Shape("seen providers better than unseen", arms, (("seen", "unseen"),), _by_group)


SHAPES = {f.__name__: f for f in (baseline, batch, clip, layers, clients, providers)}


# ----------------------------------------------------------------- what the numbers say


@dataclass(frozen=True)
class Verdict:
    """Whether one setting beat another on one measure.

    Attributes:
        means: in the mean over the seeds.
        apart: beyond the spread: its worst seed beat the other's best.
        wins: seeds in which it did, compared with the same seed of the other.
        seeds: of both.
    """

    better: str
    worse: str
    measure: str
    means: bool
    apart: bool
    wins: int
    seeds: int

    def __str__(self) -> str:
        how = "beyond the spread" if self.apart else "within the spread"
        told = f"yes, {how}" if self.means else "NO"
        return (
            f"{self.measure:>4}: {self.better} better than {self.worse}: {told} "
            f"({self.wins} of {self.seeds} seeds)"
        )


def verdict(
    better: str, worse: str, measure: str, values: Mapping[str, Mapping[int, float]]
) -> Verdict:
    """Compares two settings; a tie is no win.

    Args:
        better: the setting that should be.
        worse: the other.
        measure: a key of `MEASURES`.
        values: setting → seed → what was measured.
    """
    sign = MEASURES[measure]
    seeds = sorted(values[better].keys() & values[worse].keys())
    if not seeds:
        raise ValueError(f"{better} and {worse} have no seed in common")
    high, low = ([sign * values[name][seed] for seed in seeds] for name in (better, worse))
    return Verdict(
        better,
        worse,
        measure,
        means=mean(high) > mean(low),
        apart=min(high) > max(low),
        wins=sum(h > o for h, o in zip(high, low, strict=True)),
        seeds=len(seeds),
    )


def verdicts(order: Sequence[str], rows: Iterable[Row]) -> list[Verdict]:
    """Compares each setting with the next one, then the first with the last."""
    pairs = list(itertools.pairwise(order))
    if len(order) > 2:
        pairs.append((order[0], order[-1]))
    rows = list(rows)
    return [
        verdict(*pair, measure, values)
        for measure in MEASURES
        if set(order) <= (values := _values(rows, measure)).keys()
        for pair in pairs
    ]


def holds(found: Sequence[Verdict]) -> str:
    """Returns what all comparisons of one order and one measure amount to, the ends last."""
    if not found:
        return "not measured"
    if all(v.apart for v in found):
        return "holds, beyond the spread"
    if all(v.wins == v.seeds for v in found):
        return "holds in every seed, within the spread"
    if all(v.means for v in found):
        return "holds in the means"
    ends = holds(found[-1:]) if len(found) > 1 else "does not hold"
    return f"does not hold; of its ends it {ends}" if ends.startswith("holds") else "does not hold"


def _values(rows: Iterable[Row], measure: str) -> dict[str, dict[int, float]]:
    """Returns setting → seed → value, of what was measured."""
    values: dict[str, dict[int, float]] = defaultdict(dict)
    for row in rows:
        value = getattr(row, measure)
        if value is not None:
            values[row.setting][row.seed] = value
    return dict(values)


def table(rows: Sequence[Row]) -> str:
    """Returns mean and spread of every setting, in the order in which they were run."""
    measured = {measure: _values(rows, measure) for measure in MEASURES}
    head = f"{'setting':<26} " + "  ".join(f"{measure:<21}" for measure in MEASURES)
    lines = [head + "  σ     ε       seeds"]
    for setting in dict.fromkeys(row.setting for row in rows):
        own = [row for row in rows if row.setting == setting]
        cells = [_cell(measured[measure].get(setting, {})) for measure in MEASURES]
        noise = _highest([row.noise_multiplier for row in own], "4.2f")
        epsilon = _highest([row.epsilon for row in own], "6.2f")
        shown = "  ".join(f"{cell:<21}" for cell in cells)
        lines.append(f"{setting:<26} {shown}  {noise:<4}  {epsilon:<6}  {len(own)}")
    return "\n".join(lines)


def _cell(values: Mapping[int, float]) -> str:
    if not values:
        return "-"
    there = list(values.values())
    return f"{mean(there):.3f} ({min(there):.3f}–{max(there):.3f})"


def _highest(values: Iterable[float | None], form: str) -> str:
    there = [value for value in values if value is not None]
    return f"{max(there):{form}}" if there else "-"


def told(shape: Shape, rows: Sequence[Row]) -> str:
    """Returns the table of one shape on one data set, and what it says."""
    lines = [f"{rows[0].data}, {rows[0].shape}: {shape.claim}", table(rows)]
    for order in shape.orders:
        found = verdicts(order, rows)
        lines += [f"  {v}" for v in found]
        for measure in MEASURES:
            of_it = [v for v in found if v.measure == measure]
            lines.append(f"  {' > '.join(order)}, by {measure}: {holds(of_it)}")
    return "\n".join(lines)


# ------------------------------------------------------------------------------------- running


def main() -> None:
    """Runs the shapes that were named, and prints a table and verdicts of each."""
    options = _options()
    rows: list[Row] = []
    for data, name in itertools.product(options.data, options.shapes or SHAPES):
        task = TASKS[data]
        shape = SHAPES[name](task)
        here = [
            row
            for seed in range(options.seeds)
            for row in _shown(shape.rows(name, task, seed, options.runs))
        ]
        print(told(shape, here), end="\n\n", flush=True)
        rows += here
        if options.json:
            options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))


def _shown(rows: Iterable[Row]) -> Iterator[Row]:
    began = time.process_time()
    for row in rows:
        took = time.process_time() - began
        print(f"{json.dumps(asdict(row))}  {took:.0f} s CPU", file=sys.stderr, flush=True)
        yield row
        began = time.process_time()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("shapes", nargs="*", metavar="SHAPE", help=f"of {', '.join(SHAPES)}")
    parser.add_argument("--data", nargs="+", choices=TASKS, default=["invoices"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="file for one object per row")
    parser.add_argument("--runs", type=Path, default=Path("runs/kie_shapes"))
    options = parser.parse_args()
    unknown = [name for name in options.shapes if name not in SHAPES]
    if unknown:
        parser.error(f"unknown shape {', '.join(unknown)}: there is {', '.join(SHAPES)}")
    return options


if __name__ == "__main__":
    main()
