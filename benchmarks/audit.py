"""How much of the ledger's ε `fedpriv audit` shows, how often it errs, and what it catches.

    python benchmarks/audit.py [--runs 64] [--level 200] [--power 40] [--json FILE]

For each private strategy, ε and masking: the ledger's ε for each observer, the three lower bounds
and the time (T = 6 rounds, q = 1/2, 4 clients, δ = 1e-5, 524 288 canaries a run). Then how often an
honest mechanism is rejected at 95 % (16 384 canaries a run), and how often one is that lacks 5 % of
its noise, by the number of canaries. Nothing is trained, and one core is used.
"""

from __future__ import annotations

import argparse
import functools
import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedpriv.clients.feam_dp import ExampleGradients
from fedpriv.clients.fedavg_dp import DPLocalTraining
from fedpriv.clients.fl_provider_dp import ProviderUpdates
from fedpriv.data.examples import PROVIDER
from fedpriv.federation.audit.axes import AXIS, Axes
from fedpriv.federation.audit.mechanism import audit_mechanism, canaries_seen
from fedpriv.federation.dataset import ArrayData
from fedpriv.federation.loop import Federation
from fedpriv.federation.secagg.masking import Masking
from fedpriv.federation.settings import Settings
from fedpriv.privacy.lower_bounds import rejects
from fedpriv.privacy.mechanism import (
    Budget,
    client_gaussian,
    example_gaussian,
    provider_gaussian,
)
from fedpriv.strategies.feam_dp import FeAmDP
from fedpriv.strategies.fedavg_dp import FedAvgDP
from fedpriv.strategies.fl_provider_dp import FLProviderDP

CLIENTS, ROUNDS, AXES = 4, 6, 1 << 19


def strategies(epsilon: float) -> dict[str, tuple[Any, Any]]:
    """Returns both halves of each private algorithm, with the noise for ε against `global`."""
    budget = Budget(epsilon, ROUNDS)
    half = {"clip_norm": 0.5, "budget": budget}
    steps = {"clip_norm": 0.5, "budget": Budget(epsilon, 2, steps=3)}
    examples = {"examples": 100, "record_rate": 0.5}
    return {
        "FL-PROVIDER-DP": (
            FLProviderDP(provider_gaussian(providers=60, provider_rate=0.5, **half)),
            ProviderUpdates(),
        ),
        "FeAm-DP": (FeAmDP(example_gaussian(**half, **examples)), ExampleGradients()),
        "DP-FedAvg": (FLProviderDP(client_gaussian(**half)), ProviderUpdates()),
        "FedAvg-DP": (FedAvgDP(example_gaussian(**steps, **examples), steps=3), DPLocalTraining()),
    }


def federation(halves: tuple[Any, Any], masking: Masking | None, seed: int = 0) -> Federation:
    """Returns a federation of four clients; an audit replaces its model and its data."""
    strategy, client = halves
    axes = np.arange(CLIENTS)
    return Federation(
        model=functools.partial(Axes, CLIENTS),
        data=ArrayData({AXIS: axes, PROVIDER: axes}, tuple(np.split(axes, CLIENTS))),
        strategy=strategy,
        client=client,
        seed=seed,
        masking=masking,
        settings=Settings(trackers=(), report=False),
    )


def lacking(strategy: Any, share: float) -> Any:
    """Has a strategy tell its clients so much of the noise that its ledger books."""
    real, name = strategy.settings, "mechanism-noise_multiplier"

    def settings(cohort: int, clients: int) -> dict[str, Any]:
        told = real(cohort, clients)
        return {**told, name: share * told[name]}

    strategy.settings = settings
    return strategy


def table(runs: int) -> list[dict[str, Any]]:
    """Returns a row for each algorithm, ε, masking and view."""
    rows = []
    for epsilon in (1.0, 4.0, 8.0):
        for name, halves in strategies(epsilon).items():
            for masked in (False, True):
                if masked and name == "FedAvg-DP":  # its masks change nothing that is booked
                    continue
                rounds = 2 if name == "FedAvg-DP" else ROUNDS
                audit = audit_mechanism(
                    federation(halves, Masking() if masked else None),
                    rounds, axes=AXES, runs=runs,
                )  # fmt: skip
                for view, found in audit.views.items():
                    row = {"strategy": name, "asked": epsilon, "masked": masked, "view": view}
                    rows.append({**row, **asdict(found), "seconds": audit.seconds})
                    print(line(rows[-1]), flush=True)
    return rows


def line(row: dict[str, Any]) -> str:
    """Returns a row of the Markdown table."""
    bounds = " | ".join(
        f"{row[bound]:.3f} ({row[bound] / row['ledger']:.0%})"
        for bound in ("sigma_fit", "count", "one_run")
    )
    where = f"{row['view']}{' (masked)' * row['masked']}"
    told = f"| {row['strategy']} {row['asked']:g} | {where} | {row['ledger']:.3f} | {bounds} "
    return f"{told}| {row['seconds']:.0f} |"


def rejected(times: int, axes: int, epsilon: float, share: float) -> list[dict[str, Any]]:
    """Returns how often the ledger's mechanism is rejected, per algorithm and view."""
    rows = []
    for name in ("FL-PROVIDER-DP", "FeAm-DP"):
        for masked in (False, True):
            counts: dict[str, int] = {}
            for seed in range(times):
                strategy, client = strategies(epsilon)[name]
                made = federation(
                    (lacking(strategy, share), client), Masking() if masked else None, seed
                )
                for view, (history, _), scores, inside in canaries_seen(made, ROUNDS, axes)[1]:
                    told = rejects(scores, inside, history, 0.95)
                    counts[view] = counts.get(view, 0) + told
            for view, count in counts.items():
                row = {"strategy": name, "asked": epsilon, "view": view, "masked": masked}
                rows.append({**row, "share": share, "canaries": axes, "of": times, "n": count})
                print(f"{rows[-1]}", flush=True)
    return rows


def main() -> None:
    """Prints everything, and writes it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=64, help="runs pooled in the table; 0 for none")
    parser.add_argument("--level", type=int, default=200, help="honest runs of each kind")
    parser.add_argument("--power", type=int, default=40, help="runs that lack 5 %% of the noise")
    parser.add_argument("--json", type=Path, help="where everything is written")
    options = parser.parse_args()
    torch.set_num_threads(1)
    began = time.time()
    found: dict[str, Any] = {"table": table(options.runs) if options.runs else []}
    found["level"] = rejected(options.level, 1 << 14, 4.0, 1.0) if options.level else []
    found["power"] = [
        row
        for epsilon, axes in ((1.0, 1 << 19), (1.0, 1 << 20), (4.0, 1 << 18), (8.0, 1 << 18))
        for row in (rejected(options.power, axes, epsilon, 0.95) if options.power else [])
    ]
    found["seconds"] = time.time() - began
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
