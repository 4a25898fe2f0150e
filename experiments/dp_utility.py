"""PrIeD-KIE Fig. 1: the utility of FeAm-DP and of FedAvg-DP as the clients grow in number.

    python experiments/dp_utility.py invoices [--epsilon 8] [--view paper] [--seeds 3] [--out …]
    FEDPRIV_DATA=… python experiments/dp_utility.py sroie

Both start from the same trunk, trained beforehand on public data (for invoices, those of other
companies; for SROIE, such invoices with the labels that the two share, then the receipts of a third
of the companies, which no client holds), with a new head. The embedding tables stay frozen. The
training examples are dealt out evenly to K clients, of which C take part in a round (1 for K = 2,
else a half, as in the paper). Both take E/q noisy steps: FeAm-DP in E/q rounds of one step, at the
rate q/C within a client; FedAvg-DP in E/C rounds of 1/q steps at the rate q. What differs is the
batch behind one noisy step: q·|D| or q·|D|/K.

By default both have the same σ, found as the paper does, for ε at δ = 1/|D| and rate q. That is a
claim, and not equal privacy: FeAm-DP's noise is whole in the sum only, and clients are drawn
together with their records; FedAvg-DP's busiest client takes more than E/q steps. At 16 clients,
C = 1/2 and ε = 8 by this rule, a server that sees each update has ε 78.7 against FeAm-DP and 10.2
against FedAvg-DP. With ``--view global`` (the masked server's too) or ``--view server_plain``, ε
holds against whoever has that view, whatever is drawn: FedAvg-DP's σ is then for a client that
takes part in every round. results.json has ε of every view, by each run's ledger.

Writes results.json, which a second call takes up where it was, and figure.png, into the out folder.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from fedpriv.clients.feam_dp import ExampleGradients
from fedpriv.clients.fedavg_dp import DPLocalTraining
from fedpriv.data.document import Document, DocumentSet, DocumentSource
from fedpriv.data.generated.invoices import Invoices
from fedpriv.data.partition import HoldOut, Iid
from fedpriv.data.readers.sroie import Sroie
from fedpriv.federation.dataset import DocumentData
from fedpriv.federation.loop import Federation
from fedpriv.federation.settings import Settings
from fedpriv.models.layoutlmv3 import LayoutLMv3Tagger, layoutlmv3
from fedpriv.privacy.accounting import accountants
from fedpriv.privacy.accounting.event import ClientThenRecord, History
from fedpriv.privacy.mechanism import example_gaussian
from fedpriv.privacy.views import VIEWS, view_events
from fedpriv.runtime.torch_state import seeded_model
from fedpriv.strategies.feam_dp import FeAmDP
from fedpriv.strategies.fedavg_dp import FedAvgDP
from fedpriv.training.loops import Optimizer, train_epoch

CLIENTS = (2, 4, 8, 16)
METHODS = ("feam_dp", "fedavg_dp")
MEASURES = ("f1", "loss")
CLIP_NORM = 0.1


def main() -> None:
    """Runs what results.json does not hold yet, then draws the figure."""
    options = _options()
    view = "" if options.view == "paper" else f"-{options.view}"
    out = options.out / f"{options.data}-eps{options.epsilon:g}{view}"
    out.mkdir(parents=True, exist_ok=True)
    trunk = _pretrained(options.out / f"public-{options.data}.safetensors", options.data)
    path = out / "results.json"
    rows: list[dict[str, Any]] = json.loads(path.read_text()) if path.is_file() else []
    done = {(row["method"], row["clients"], row["seed"]) for row in rows}
    for seed, clients, method in itertools.product(range(options.seeds), CLIENTS, METHODS):
        if (method, clients, seed) in done:
            continue
        row = _run(method, clients, seed, options, trunk, out)
        print(json.dumps(row), flush=True)
        rows.append(row)
        path.write_text(json.dumps(rows, indent=1))
    whom = f"in the view {options.view}" if view else "by the paper's rule"
    _draw(rows, out / "figure.png", f"{options.data}, ε = {options.epsilon:g} {whom}")
    print(_table(rows))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", choices=("invoices", "sroie"))
    parser.add_argument("--epsilon", type=float, default=8.0)
    parser.add_argument("--view", choices=VIEWS, default="paper", help="whom ε holds against")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=10, help="E")
    parser.add_argument("--rate", type=float, default=0.25, help="q")
    parser.add_argument("--lr", type=float, default=8e-3)
    parser.add_argument("--out", type=Path, default=Path("runs/dp_utility"))
    return parser.parse_args()


def _run(
    method: str, clients: int, seed: int, options: argparse.Namespace, trunk: Path, out: Path
) -> dict[str, Any]:
    share = 1.0 if clients == 2 else 0.5
    source, test = _source(options.data)
    data = DocumentData(source, Iid(clients=clients), test)
    model = functools.partial(with_trunk, trunk=trunk)
    size = len(data.bind(model, seed).train)
    rates = {"client_rate": share, "record_rate": options.rate}
    if method == "feam_dp":
        rates["record_rate"] = options.rate / share
        rounds = round(options.epochs / options.rate)
    else:
        rounds = round(options.epochs / share)

    def history(sigma: float) -> History:
        if options.view == "paper":
            steps = round(options.epochs / options.rate)
            return [(ClientThenRecord(1.0, options.rate, sigma), steps)]
        if method == "fedavg_dp":
            return [(ClientThenRecord(1.0, options.rate, sigma), rounds * round(1 / options.rate))]
        seen = view_events(**rates, noise_multiplier=sigma, clients=clients, sampling="fixed")
        event = seen[options.view].event
        return [(event, rounds)] if event else []

    noise = accountants.noise_multiplier(history, options.epsilon, 1 / size)
    mechanism = example_gaussian(
        clip_norm=CLIP_NORM, examples=size, noise_multiplier=noise, delta=1 / size, **rates
    )
    feam = FeAmDP(mechanism, lr=options.lr)
    fedavg = FedAvgDP(mechanism, steps=round(1 / options.rate))
    local = DPLocalTraining(optimizer=Optimizer("adam", lr=options.lr))
    federation = Federation(
        model=model,
        data=data,
        strategy=feam if method == "feam_dp" else fedavg,
        client=ExampleGradients() if method == "feam_dp" else local,
        seed=seed,
        runs=out / "runs",
        name=f"{method}-{clients}-{seed}",
        settings=Settings(evaluate_every=rounds, checkpoint_every=rounds),
    )
    result = federation.run(rounds)
    last = result.metrics[-1]
    views = json.loads((result.run_dir / "ledger.json").read_text("utf-8"))["views"]
    return {
        "method": method,
        "clients": clients,
        "seed": seed,
        "examples": size,
        "noise_multiplier": noise,
        "rounds": rounds,
        "f1": last["f1"],
        "loss": last["loss"],
        "epsilon": {name: view["pld"] for name, view in views.items()},
    }


def _source(name: str) -> tuple[DocumentSource, HoldOut]:
    if name == "invoices":
        return Invoices(providers=24, documents_per_provider=12, seed=0), HoldOut("document", 0.2)
    return Receipts(public=False), HoldOut("split")


@dataclass(frozen=True)
class Receipts:
    """SROIE's receipts: the training ones of every third company (public), or all the others."""

    public: bool

    def load(self) -> DocumentSet:
        """Reads the folder below FEDPRIV_DATA."""
        loaded = Sroie(Path(os.environ["FEDPRIV_DATA"]) / "open" / "sroie").load()
        train = [d for d in loaded.documents if d.split == "train"]
        public = set(sorted({d.provider for d in train})[::3])
        documents = [
            d
            for d in loaded.documents
            if (d.split == "train" and d.provider in public) == self.public
        ]
        return replace(loaded, documents=tuple(documents))


def _pretrained(path: Path, data: str) -> Path:
    """Trains on public data; the same for every run."""
    if path.is_file():
        return path
    loaded = Invoices(providers=24, documents_per_provider=20, seed=4711).load()
    labels = tuple(SHARED.values()) if data == "sroie" else loaded.labels
    documents = [_relabelled(d) if data == "sroie" else d for d in loaded.documents]
    model = seeded_model(functools.partial(layoutlmv3, labels), seed=0)
    _train(model, documents, epochs=15)
    if data == "sroie":
        _train(model, Receipts(public=True).load().documents, epochs=30)
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({k: t for k, t in model.state_dict().items() if _HEAD not in k}, path)
    return path


def _train(model: LayoutLMv3Tagger, documents: Sequence[Document], epochs: int) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    examples = model.encode(documents)
    shuffle = np.random.default_rng(0)
    for epoch in range(epochs):
        loss = train_epoch(model, examples.batches(8, shuffle=shuffle), optimizer)
        print(f"public data, epoch {epoch + 1}: loss {loss:.3f}", flush=True)


def _relabelled(document: Document) -> Document:
    """Returns an invoice with SROIE's labels; entities of other labels are left out."""
    entities = [
        replace(entity, label=SHARED[entity.label])
        for entity in document.entities
        if entity.label in SHARED
    ]
    return replace(document, entities=tuple(entities))


SHARED = {"provider": "company", "date": "date", "address": "address", "total": "total"}
"""Labels of the invoices and what SROIE calls them."""

_HEAD = "network.classifier"


def with_trunk(labels: Sequence[str], trunk: Path) -> LayoutLMv3Tagger:
    """Returns a tiny LayoutLMv3 with the public weights, frozen embeddings and a new head."""
    model = layoutlmv3(labels)
    missing, unexpected = model.load_state_dict(load_file(trunk), strict=False)
    if unexpected or any(not name.startswith(_HEAD) for name in missing):
        raise ValueError(f"{trunk} is not of this model: {missing} missing, {unexpected} unknown")
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("embeddings" not in name)
    return model


def _table(rows: list[dict[str, Any]]) -> str:
    lines = ["mean (least–most) over seeds"]
    for what in MEASURES:
        lines.append(f"{what:>5}   K  " + "  ".join(f"{method:<24}" for method in METHODS))
        for clients in CLIENTS:
            cells = [_values(rows, method, clients, what) for method in METHODS]
            shown = [f"{mean(c):.3f} ({min(c):.3f}–{max(c):.3f}), n={len(c)}" for c in cells if c]
            lines.append(f"      {clients:>3}  " + "  ".join(f"{cell:<24}" for cell in shown))
    return "\n".join(lines)


def _values(rows: list[dict[str, Any]], method: str, clients: int, what: str) -> list[float]:
    return [r[what] for r in rows if r["method"] == method and r["clients"] == clients]


def _draw(rows: list[dict[str, Any]], path: Path, title: str) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 3.6), layout="constrained")
    figure.suptitle(title)
    for axes, what in zip(figure.subplots(1, len(MEASURES)), MEASURES, strict=True):
        for method, marker in zip(METHODS, "os", strict=True):
            there = [k for k in CLIENTS if _values(rows, method, k, what)]
            values = [_values(rows, method, k, what) for k in there]
            axes.plot(there, [mean(v) for v in values], f"{marker}-", label=method)
            axes.fill_between(there, [min(v) for v in values], [max(v) for v in values], alpha=0.2)
        axes.set_xscale("log", base=2)
        axes.set_xticks(CLIENTS, [str(k) for k in CLIENTS])
        axes.set(xlabel="clients K", ylabel=f"{what} on held-out documents")
        axes.set_ylim(bottom=0)
        axes.legend()
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
