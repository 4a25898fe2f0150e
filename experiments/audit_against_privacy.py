"""ε claimed against ε shown by an audit, under FedAvg, FeAm-DP and FL-PROVIDER-DP.

    python experiments/audit_against_privacy.py [--seeds N] [--canaries 64] [--out runs]

Each of them, with and without masking, trains a small VT5 on generated invoices among which
canaries are planted, each in or out by a coin of its own. One run gives one lower bound on ε for
each adversary (Steinke, Nasr and Jagielski 2023): a server that sees each update, one that sees the
series of global models (under masking it sees no more), and whoever may ask the final model. Beside
it stands what the ledger claims of a provider in that adversary's view. A canary is one page with
one question, so that provider and example are one; in the row "FeAm-DP, many" it is many: what
protects an example does not protect a company.

A bound is a lower one: it says what was shown, not what could be. With m canaries no audit can show
more than the ε that all guesses right would (the grey line), about 3 for 64 of them. With 95 %
confidence, one audit in twenty may by chance be above a true ε.

Writes metrics.json and figures into <out>/audit_against_privacy/<time>.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from fedpriv.attacks.one_run_audit import Audit, LossScore
from fedpriv.attacks.server_membership import ServerMembership
from fedpriv.clients.feam_dp import ExampleGradients
from fedpriv.clients.fedavg import LocalTraining
from fedpriv.clients.fl_provider_dp import ProviderUpdates
from fedpriv.data.generated.invoices import Invoices
from fedpriv.data.partition import ByProvider, HoldOut
from fedpriv.federation.client import Client
from fedpriv.federation.dataset import DocumentData
from fedpriv.federation.loop import Federation
from fedpriv.federation.secagg.masking import Masking
from fedpriv.federation.settings import Settings
from fedpriv.federation.strategy import Strategy
from fedpriv.models.vt5 import VT5, vt5
from fedpriv.privacy.mechanism import Budget, example_gaussian, provider_gaussian
from fedpriv.runtime.run_folder import RunFolder
from fedpriv.strategies.feam_dp import FeAmDP
from fedpriv.strategies.fedavg import FedAvg
from fedpriv.strategies.fl_provider_dp import FLProviderDP
from fedpriv.studies.running import run_attack
from fedpriv.threat.attack import Attack
from fedpriv.threat.results import Result
from fedpriv.threat.surfaces.held_out import KeepHeldOut
from fedpriv.threat.surfaces.server import KeepTranscript
from fedpriv.training.loops import Optimizer

CLIENTS, ROUNDS, OTHERS = 4, 6, 8
"""Of an audited federation: clients, rounds, and providers that are no canaries."""

EPSILONS = (8.0, 4.0, 1.0)
DELTA = 1e-5
RATE = 0.5
"""With which FL-PROVIDER-DP draws each provider, FeAm-DP each example."""

MANY = 12
"""Pages of a canary in the row "many"."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Method:
    """One way to train.

    Attributes:
        name: of it.
        epsilon: that is asked for, against whoever sees the global models; None for no privacy.
        strategy: makes the server's half.
        client: makes the client's half.
        pages: of one canary.
    """

    name: str
    epsilon: float | None
    strategy: Callable[[], Strategy]
    client: Client
    pages: int = 1


def methods(canaries: int) -> list[Method]:
    """Returns what is compared."""
    units = canaries / 2 + OTHERS
    local = LocalTraining(epochs=2, batch_size=8, optimizer=Optimizer(lr=1e-3))
    found = [Method("FedAvg", None, lambda: FedAvg(weighted=False, buffers=False), local)]
    for epsilon in EPSILONS:
        found.append(
            Method(
                "FL-PROVIDER-DP",
                epsilon,
                lambda e=epsilon: FLProviderDP(  # type: ignore[misc]
                    provider_gaussian(
                        clip_norm=0.5,
                        providers=RATE * units / CLIENTS,
                        provider_rate=RATE,
                        client_rate=1.0,
                        client_sampling="fixed",
                        delta=DELTA,
                        budget=Budget(e, rounds=ROUNDS),
                    )
                ),
                ProviderUpdates(steps=4, batch_size=8, optimizer=Optimizer(lr=1e-3)),
            )
        )
    for epsilon, pages in ((8.0, 1), (1.0, 1), (8.0, MANY)):
        found.append(
            Method(
                "FeAm-DP" if pages == 1 else "FeAm-DP, many",
                epsilon,
                lambda e=epsilon, n=units * pages: FeAmDP(  # type: ignore[misc]
                    example_gaussian(
                        clip_norm=0.1,
                        examples=n,
                        record_rate=RATE,
                        client_rate=1.0,
                        client_sampling="fixed",
                        delta=DELTA,
                        budget=Budget(e, rounds=ROUNDS),
                    ),
                    lr=1e-3,
                ),
                ExampleGradients(),
                pages,
            )
        )
    return found


ADVERSARIES: Mapping[str, Callable[[], Attack[Any, Any]]] = {
    "sees each update": lambda: ServerMembership("update"),
    "sees the global models": lambda: ServerMembership("series", statistic="cosine"),
    "asks the final model": LossScore,
}


def shipped(labels: Sequence[str] = ()) -> VT5:
    """Returns the model that all start from."""
    return vt5(pretrained="shipped", max_length=160)


def audit(canaries: int, seed: int) -> Iterator[Row]:
    """Yields one row for each method, with and without masking, and each adversary."""
    for method in methods(canaries):
        for masking in (None, Masking(bound=8.0)):
            with tempfile.TemporaryDirectory() as runs:
                run_dir = federated(method, masking, canaries, Path(runs), seed)
                for adversary, scores in ADVERSARIES.items():
                    result = run_attack(run_dir, Audit(scores()), model=shipped, seed=seed)
                    yield {
                        "method": method.name,
                        "epsilon_asked": method.epsilon,
                        "masked": masking is not None,
                        "adversary": adversary,
                        **_shown(result),
                    }


def federated(
    method: Method, masking: Masking | None, canaries: int, runs: Path, seed: int
) -> Path:
    """Trains with canaries under observation; returns the run folder."""
    asked = ("provider",)
    planted = Invoices(canaries, method.pages, seed=1000 + seed, questions=asked)
    federation = Federation(
        model=shipped,
        data=DocumentData(
            Invoices(OTHERS, method.pages, seed=seed, questions=asked),
            ByProvider(CLIENTS),
            HoldOut(fraction=0),
            canaries=planted,
        ),
        strategy=method.strategy(),
        client=method.client,
        seed=seed,
        masking=masking,
        keep=[KeepTranscript(batches=False), KeepHeldOut()],
        settings=Settings(checkpoint_every=ROUNDS, evaluate_every=ROUNDS),
        runs=runs,
    )
    return federation.run(ROUNDS).run_dir


def _shown(result: Result) -> Row:
    if result.refused:
        return {"refused": result.headline}
    metrics = result.details
    (numbers,) = metrics["classifiers"].values()
    keys = (
        *("epsilon_lower", "epsilon_ceiling", "canaries", "guesses", "right", "view", "violated"),
        *("unit", "delta"),
    )
    return {
        **{key: metrics[key] for key in keys},
        "epsilon_claimed": metrics["epsilon_claimed"][metrics["view"]],
        "epsilon_claimed_provider": metrics["epsilon_claimed_provider"][metrics["view"]],
        "auc": numbers["auc"],
    }


# ------------------------------------------------------------------------------- what is written

MARKS = {"sees each update": "o", "sees the global models": "s", "asks the final model": "^"}
COLOURS = {"FedAvg": "C3", "FL-PROVIDER-DP": "C0", "FeAm-DP": "C2", "FeAm-DP, many": "C1"}


def audit_figure(rows: Sequence[Row]) -> Figure:
    """Returns ε shown over ε claimed of a provider; without a claim, at the right edge."""
    figure = Figure(figsize=(7.0, 5.0), layout="constrained")
    axes = figure.add_subplot()
    shown = [row for row in rows if "refused" not in row]
    claims = [c for row in shown if isinstance(c := row["epsilon_claimed_provider"], float | int)]
    edge = 3 * max([*claims, 10.0])
    for row in shown:
        claimed = row["epsilon_claimed_provider"]
        x = claimed if isinstance(claimed, float | int) else edge
        # Side by side, or they would hide each other.
        beside = 3 * list(COLOURS).index(row["method"]) + list(MARKS).index(row["adversary"])
        axes.plot(
            x * 1.02 ** (beside + row["masked"] / 2 - len(COLOURS)),
            row["epsilon_lower"],
            MARKS[row["adversary"]],
            color=COLOURS[row["method"]],
            markerfacecolor="none" if row["masked"] else COLOURS[row["method"]],
        )
    line = np.geomspace(min([*claims, 0.5]) / 2, edge)
    axes.plot(line, line, color="black", linewidth=1)
    axes.axhline(shown[0]["epsilon_ceiling"], color="grey", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_ylim(-0.1, shown[0]["epsilon_ceiling"] * 1.3)
    axes.set_xlabel("ε claimed of a provider, in the adversary's view (right edge: nothing)")
    axes.set_ylabel("ε shown, 95 % confidence")
    for name, colour in COLOURS.items():
        axes.plot([], [], "o", color=colour, label=name)
    for name, mark in MARKS.items():
        axes.plot([], [], mark, color="black", label=name)
    axes.plot([], [], "o", color="black", markerfacecolor="none", label="masked")
    axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


def line(row: Row) -> str:
    """Returns a row as it is printed."""
    asked = "none" if row["epsilon_asked"] is None else f"{row['epsilon_asked']:g}"
    who = f"{row['method']:15} ε {asked:4} {'masked' if row['masked'] else 'plain ':6} "
    if "refused" in row:
        return f"{who} {row['adversary']:24} not applicable"
    claimed = row["epsilon_claimed_provider"]
    said = f"{claimed:.3g}" if isinstance(claimed, float | int) else str(claimed)
    return (
        f"{who} {row['adversary']:24} ε ≥ {row['epsilon_lower']:.2f} (at most "
        f"{row['epsilon_ceiling']:.2f}), claimed {said} [{row['view']}]; "
        f"{row['right']}/{row['guesses']} right, AUC {row['auc']:.2f}"
        + (" VIOLATED" if row["violated"] else "")
    )


def main() -> None:
    """Runs all methods, and writes what they gave as it comes."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--canaries", type=int, default=64)
    parser.add_argument("--out", type=Path, default=Path("runs"))
    options = parser.parse_args()
    folder = RunFolder.create(options.out, "audit_against_privacy")
    rows: list[Row] = []
    for seed in range(options.seeds):
        for row in audit(options.canaries, seed):
            rows.append({"seed": seed, **row})
            print(line(row), flush=True)
            folder.write_json("metrics.json", {"audit": rows})
    audit_figure(rows).savefig(folder.path / "audit.png", dpi=150)
    print(folder.path)


if __name__ == "__main__":
    main()
