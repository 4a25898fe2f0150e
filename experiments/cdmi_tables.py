"""CDMI over backbones, tasks, data and privacy: the shape of CDMI's Table 5 and Figs. 4 to 8.

    python experiments/cdmi_tables.py [table] [privacy] [controls] [shift]
        [--data cdmi|cdmi_sroie|cdmi_funsd] [--rounds N] [--fields N] [--seeds N] [--out runs]

- `table`: LayoutLM, BROS and BERT, unimodal and bimodal, on MLM, EE-BIO and EE-SPADE (and EL, where
  fields are linked), attacked at the end of the training.
- `privacy`: the first two of these tasks without privacy, and under DP-Adam at ε = 8 and 1: IpF
  against ε. Without privacy also with as many steps as the private ones have.
- `controls`: targets that have learnt nothing. Their IpF must be 1 within its interval. An MLM is
  its own PUB-MLM, which here has learnt nothing either.
- `shift`: PUB-MLM trained without restaurants, without 2018, and on other documents (Fig. 8);
  and bimodal targets that see noise in the place of the page.

Every run is one of `fedpriv run`, every attack one of `fedpriv attack`: the commands are printed.
Writes metrics.json and figures into <out>/cdmi_tables/<time>.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from fedpriv.cli.main import main as fedpriv

Row = dict[str, Any]

BACKBONES = ("layoutlm", "bros", "bert")
EPSILONS = (8.0, 1.0)
STEPS = 400
"""Of DP-Adam."""


def table(options: argparse.Namespace, seed: int) -> Iterator[Row]:
    """Yields a row for each backbone, modality and task."""
    tasks = ["mlm", "tags", "spade"] + ["links"] * (options.data == "cdmi_funsd")
    for backbone in BACKBONES:
        for task in tasks:
            for image in ("false", "true") if backbone != "bert" else ("false",):
                model = [f"model={backbone}", f"model.task={task}", f"model.image={image}"]
                yield from attacked(options, seed, model)


def privacy(options: argparse.Namespace, seed: int) -> Iterator[Row]:
    """Yields a row for each ε and task."""
    for task in ("mlm", "tags"):
        model = ["model=layoutlm", f"model.task={task}"]
        yield from attacked(options, seed, model)
        for epsilon in EPSILONS:
            private = [
                "strategy=centralised_dp",
                f"privacy.epsilon={epsilon}",
                "federation.evaluate_every=50",
                "federation.checkpoint_every=50",
            ]
            yield from attacked(options, seed, [*model, *private], rounds=STEPS)


def controls(options: argparse.Namespace, seed: int) -> Iterator[Row]:
    """Yields a row for each target that has learnt nothing."""
    for backbone in BACKBONES[:2]:
        for task in ("mlm", "tags", "spade"):
            model = [f"model={backbone}", f"model.task={task}"]
            untrained = ["attack.generator.epochs=0"] * (task == "mlm")
            yield from attacked(options, seed, model, [["target=start", *untrained]], rounds=1)


def shift(options: argparse.Namespace, seed: int) -> Iterator[Row]:
    """Yields a row for each public data set, and for the page replaced by noise."""
    publics = [
        ["attack.public.shift=same"],
        ["attack.public.shift=without_restaurants"],
        ["attack.public.shift=without_2018"],
    ]
    yield from attacked(options, seed, ["model.task=tags"], publics)
    bimodal = ["model.task=mlm", "model.image=true"]
    yield from attacked(options, seed, bimodal, [["attack.visual=page"], ["attack.visual=noise"]])


PARTS: dict[str, Callable[[argparse.Namespace, int], Iterator[Row]]] = {
    "table": table,
    "privacy": privacy,
    "controls": controls,
    "shift": shift,
}


def attacked(
    options: argparse.Namespace,
    seed: int,
    overrides: Sequence[str],
    attacks: Sequence[Sequence[str]] = ((),),
    *,
    rounds: int | None = None,
) -> Iterator[Row]:
    """Trains once and attacks in each way; yields a row for each.

    Args:
        options: of the command line.
        seed: of the run.
        overrides: of `fedpriv run`.
        attacks: overrides of `fedpriv attack`, for each attack.
        rounds: of the run; none for the options'.
    """
    sized = [f"rounds={rounds or options.rounds}", f"seed={seed}", f"runs={options.out}"]
    run = told(["run", options.data, *overrides, *sized])[-1]
    for more in attacks:
        few = [f"most_fields={options.fields}", "name=cdmi"]
        found = Path(told(["attack", run, "attack=cdmi", *few, *more])[-1])
        result = json.loads((found / "result.json").read_text("utf-8"))
        told_of = {name: result[name] for name in ("status", "headline", "notes", "left_out")}
        row = {"seed": seed, "overrides": [*overrides, *more], "run": run, **told_of}
        row |= result["numbers"]
        print(line(row), flush=True)
        yield row


def told(arguments: Sequence[str]) -> list[str]:
    """Runs `fedpriv` with these arguments; returns the lines that it prints.

    Raises:
        RuntimeError: if it fails.
    """
    print(f"$ {shlex.join(['fedpriv', *arguments])}", flush=True)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        code = fedpriv(list(arguments))
    if code not in (0, 3):  # 3: the attack was refused, which makes a row too
        raise RuntimeError(f"fedpriv {shlex.join(arguments)} ended with {code}")
    return printed.getvalue().splitlines()


def line(row: Row) -> str:
    """Returns a row as it is printed."""
    if row["status"] != "done":
        return f"{' '.join(row['overrides'])}: {row['headline']}"
    low, high = row["ipf_interval"]
    sure = row["acc_at"]
    shares = " ".join(f"{sure[p]['attack']:.3f}/{sure[p]['baseline']:.3f}" for p in sure)
    return (
        f"{' '.join(row['overrides'])}: IpF {row['ipf']:.3f} [{low:.3f}, {high:.3f}]  "
        f"HamAAC {row['ham_aac']['attack']:.3f}/{row['ham_aac']['baseline']:.3f}  "
        f"AccAUC {row['acc_auc']['attack']:.3f}/{row['acc_auc']['baseline']:.3f}  "
        f"AccAt 1, 5, 100 %: {shares}  ({row['fields']} fields)"
    )


def figure(rows: Sequence[Row]) -> Figure:
    """Returns IpF with its interval, a row below the other."""
    rows = [row for row in rows if row["status"] == "done"]
    made = Figure(figsize=(9, 0.6 + 0.32 * len(rows)), layout="constrained")
    axes = made.add_subplot()
    for place, row in enumerate(reversed(rows)):
        low, high = row["ipf_interval"]
        axes.plot([low, high], [place, place], color="0.6", lw=2)
        axes.plot(row["ipf"], place, "o", color="C3")
    axes.margins(y=0.5 / max(len(rows), 1))
    axes.axvline(1, color="0.3", lw=1, ls="--")
    names = [f"{' '.join(row['overrides'])}, seed {row['seed']}" for row in reversed(rows)]
    axes.set_yticks(range(len(rows)), names, fontsize=7)
    axes.set_xlabel("improvement factor over PUB-MLM alone, with its 95 % interval")
    return made


def main() -> None:
    """Runs the parts that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[])
    parser.add_argument("--data", default="cdmi", choices=("cdmi", "cdmi_sroie", "cdmi_funsd"))
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--fields", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("runs"))
    options = parser.parse_args()
    place = options.out / "cdmi_tables" / time.strftime("%Y-%m-%d_%H-%M-%S")
    place.mkdir(parents=True)
    rows: dict[str, list[Row]] = {}
    for part in options.parts or PARTS:
        rows[part] = []
        for seed in range(options.seeds):
            for row in PARTS[part](options, seed):
                rows[part].append(row)
                (place / "metrics.json").write_text(json.dumps(rows, indent=1), "utf-8")
        figure(rows[part]).savefig(place / f"{part}.png", dpi=120)
    print(place)


if __name__ == "__main__":
    main()
