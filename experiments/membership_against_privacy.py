"""Who was trained on, under differential privacy; and ε claimed against ε shown by an audit.

    python experiments/membership_against_privacy.py [audit attacks]
        [--seeds N] [--canaries 64] [--out runs]

- `audit`: FedAvg, FeAm-DP and FL-PROVIDER-DP, each with and without masking, train a small VT5 on
  generated invoices among which canaries are planted, each in or out by a coin of its own. One run
  gives one lower bound on ε for each adversary (Steinke, Nasr and Jagielski 2023): a server that
  sees each update, one that sees the series of global models (under masking it sees no more), and
  whoever may ask the final model. Beside it stands what the ledger claims of a provider in that
  adversary's view. A canary is one page with one question, so that provider and example are one;
  in the row "FeAm-DP, many" it is many: what protects an example does not protect a company.
- `attacks`: a smaller experiment `pmia` under FedAvg, FL-PROVIDER-DP (ε = 8, 4, 1) and FeAm-DP, and
  what `fedpriv attack` makes of each.

A bound is a lower one: it says what was shown, not what could be. With m canaries no audit can show
more than the ε that all guesses right would (the grey line), about 3 for 64 of them. With 95 %
confidence, one audit in twenty may by chance be above a true ε.

Writes metrics.json and figures into <out>/membership_against_privacy/<time>.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
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
from fedpriv.config import experiment
from fedpriv.config.attack import run_attack
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
from fedpriv.strategies.feam_dp import FeAmDP
from fedpriv.strategies.fedavg import FedAvg
from fedpriv.strategies.fl_provider_dp import FLProviderDP
from fedpriv.threat.attack import Attack
from fedpriv.threat.keep.held_out import KeepHeldOut
from fedpriv.threat.keep.transcript import KeepTranscript
from fedpriv.threat.results import Result
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


def audit(options: argparse.Namespace, seed: int) -> Iterator[Row]:
    """Yields one row for each method, with and without masking, and each adversary."""
    for method in methods(options.canaries):
        for masking in (None, Masking(bound=8.0)):
            with tempfile.TemporaryDirectory() as runs:
                run_dir = federated(method, masking, options.canaries, Path(runs), seed)
                for adversary, scores in ADVERSARIES.items():
                    result = run_attack(
                        run_dir, Audit(scores()), model=shipped, seed=seed, resamples=200
                    )
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
    metrics = result.numbers
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


# ------------------------------------------------------------------------------------- attacks


def attacks(options: argparse.Namespace, seed: int) -> Iterator[Row]:
    """Yields one row for each strategy and classifier, on the experiment `pmia`."""
    settings = {
        "FedAvg": ["strategy=fedavg"],
        **{
            f"FL-PROVIDER-DP, ε = {e:g}": [
                "strategy=fl_provider_dp",
                f"privacy.epsilon={e}",
                "client.steps=4",
                "strategy.mechanism.client_rate=1.0",
                "strategy.mechanism.client_sampling=fixed",
            ]
            for e in EPSILONS
        },
        "FeAm-DP, ε = 8": ["strategy=feam_dp", "privacy.epsilon=8.0"],
    }
    for name, overrides in settings.items():
        with tempfile.TemporaryDirectory() as runs:
            own = [*overrides, *SMALLER, f"seed={seed}", f"runs={runs}"]
            config = experiment.load("pmia", own)
            run_dir = experiment.build(config).assemble(config).run(config["rounds"]).run_dir
            scores = json.loads((run_dir / "metrics.jsonl").read_text().splitlines()[-1])
            told = {n: scores[f"anls_{n}"] for n in ("seen", "unseen")}
            for judge, more in JUDGES.items():
                found = run_attack(run_dir, judge, [*more, f"seed={seed}"]).numbers
                for classifier, numbers in found.get("classifiers", {}).items():
                    row = {key: numbers[key] for key in SHOWN}
                    yield {"method": name, "classifier": classifier, "anls": told, **row}


SMALLER = (
    *("data.source.providers=60", "data.source.questions=[provider]", "rounds=6"),
    *("federation.workers=0", "federation.evaluate_every=6", "privacy.examples=120"),
    "privacy.providers=4",
)
"""What makes the experiment fit into minutes for every strategy."""

JUDGES: Mapping[str, Sequence[str]] = {
    "pmia": ("min_questions=[0]",),
    "provider_lira": (),
    "server_membership": ("rounds=[1,2,3]",),
}
"""The attacks of the part `attacks`, each with its settings."""

SHOWN = ("n", "prior", "accuracy", "balanced_accuracy", "auc", "interval", "p_value")


# ------------------------------------------------------------------------------- what is written

PARTS: Mapping[str, Callable[[argparse.Namespace, int], Iterator[Row]]] = {
    "audit": audit,
    "attacks": attacks,
}

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


def lines(part: str, rows: Sequence[Row]) -> Iterator[str]:
    """Yields the rows as text."""
    for row in rows:
        yield _line(row) if part == "attacks" else _audited(row)


def _line(row: Row) -> str:
    (low, high), (least, most) = row["interval"]["balanced_accuracy"], row["interval"]["auc"]
    return (
        f"{row['method']:24} {row['classifier']:16} n {row['n']:g}  "
        f"accuracy {row['accuracy']:.3f}  "
        f"balanced {row['balanced_accuracy']:.3f} [{low:.2f}, {high:.2f}]  "
        f"AUC {row['auc']:.3f} [{least:.2f}, {most:.2f}]  p {row['p_value']:.2g}  "
        f"ANLS seen {row['anls']['seen']:.2f} unseen {row['anls']['unseen']:.2f}"
    )


def _audited(row: Row) -> str:
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
    """Runs the parts that are asked for, writes what they gave as it comes."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("parts", nargs="*", choices=PARTS, metavar="PART")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--canaries", type=int, default=64)
    parser.add_argument("--out", type=Path, default=Path("runs"))
    options = parser.parse_args()
    place = options.out / "membership_against_privacy" / time.strftime("%Y-%m-%d_%H-%M-%S")
    place.mkdir(parents=True)
    found: dict[str, list[Row]] = {part: [] for part in options.parts or PARTS}
    for part, rows in found.items():
        for seed in range(options.seeds):
            for row in PARTS[part](options, seed):
                rows.append({"seed": seed, **row})
                print(*lines(part, [row]), flush=True)
                (place / "metrics.json").write_text(json.dumps(found, indent=1))
    if found.get("audit"):
        audit_figure(found["audit"]).savefig(place / "audit.png", dpi=150)
    print(place)


if __name__ == "__main__":
    main()
