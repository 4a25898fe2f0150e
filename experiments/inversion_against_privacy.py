"""What masking, aggregation and differential privacy leave of an inversion, on real federations.

    python experiments/inversion_against_privacy.py [masking aggregate dp]
        [--seeds N] [--evaluations 120] [--out runs]

Eight clients hold one slip each; a small LayoutLMv3 answers questions on it; the server looks at
what it receives in one round, and attacks it.

- `masking`: FedSGD under secure aggregation. An attack on single updates does not apply. Run on a
  masked message all the same, it must score as on a message of random ring elements: the PSNRs on
  the private fields of the two, victim by victim, with two-sided p-values (permutation of the
  pairs; Kolmogorov and Smirnov, who know of no pairs). A small p that stays small with more seeds
  would be a leak; of twenty sound runs, one has p < 0.05.
- `aggregate`: the sum over |K| = 1, 2, 4, 8 clients, which masking gives away: as one page in
  closed form, which can only be a mixture, and as |K| pages sought together, their text given.
- `dp`: FeAm-DP and FL-PROVIDER-DP, where the server sees every update, by noise. Each client's own
  share of the noise is all that hides its slip: ε is of the ledger's view `server_plain`, for one
  slip and one provider, which are the same here. The page is solved in closed form, with template
  and noise known; the text is read out. Beside them noise alone, without clipping, for which there
  is no ε.

How to read the figure of `dp`: wherever anything is recovered, ε is huge, millions for the text and
tens of billions before a first field of a page can be read. Such an ε promises nothing: that these
attacks fail below it says something of the attacks only, and is no reason to choose it. Where ε is
small enough to mean something, 8 or 1, nothing comes back, and a better attack could hardly change
that. A few tenths of a decibel above the blank template are no finding: a solve of pure noise has
them too.

Writes metrics.json and a figure for each part into <out>/inversion_against_privacy/<time>. The run
folders of the federations are deleted once they are attacked.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
from closed_form_limits import aligned, band, cell, tesseract
from scipy.stats import ks_2samp

from fedpriv.attacks.closed_form import ClosedForm
from fedpriv.attacks.inversion.attack import GradientInversion
from fedpriv.attacks.inversion.presets import gi_dqa_tuned, random
from fedpriv.attacks.text.attack import TextRecovery
from fedpriv.clients.feam_dp import ExampleGradients
from fedpriv.clients.fedsgd import BatchGradient
from fedpriv.clients.fl_provider_dp import ProviderUpdates
from fedpriv.data.generated.slips import Slips
from fedpriv.data.partition import ByProvider, HoldOut
from fedpriv.federation.client import Client
from fedpriv.federation.dataset import DocumentData
from fedpriv.federation.loop import Federation
from fedpriv.federation.secagg.masking import Masking
from fedpriv.federation.strategy import Strategy
from fedpriv.metrics.ocr import OCR
from fedpriv.models.layoutlmv3 import layoutlmv3
from fedpriv.privacy.mechanism import Budget, example_gaussian, provider_gaussian
from fedpriv.runtime.run_folder import RunFolder
from fedpriv.runtime.tensors import read_tensors, save_tensors
from fedpriv.strategies.feam_dp import FeAmDP
from fedpriv.strategies.fedsgd import FedSGD
from fedpriv.strategies.fl_provider_dp import FLProviderDP
from fedpriv.threat.attack import Attack
from fedpriv.threat.keep.transcript import KeepTranscript
from fedpriv.threat.knowledge import Assumed, Text
from fedpriv.threat.runner import run_attack_on
from fedpriv.threat.settings import AttackSettings
from fedpriv.threat.transcript import load
from fedpriv.training.loops import Optimizer

MODEL = functools.partial(layoutlmv3, task="answers", size="small")
CLIENTS = 8
COHORTS = (1, 2, 4, 8)
MASKING = Masking(bound=4.0)
"""No coordinate of these gradients is beyond it; a larger bound makes a coarser ring."""

MULTIPLIERS = tuple(10.0**k for k in range(-8, 0))
EPSILONS = (8.0, 1.0)
"""For which the noise is found."""
NOISES = tuple(10.0**k for k in range(-9, -1))
MASKED_EVALUATIONS = 20
"""Of gradient matching on a masked message, to which more give nothing."""

SWAPS = 9999
"""Drawn for the permutation test."""

CLIP_NORM = 1.0
LR = 1.0
"""Of the one step of SGD on a provider: its change is then its gradient, but for the sign."""

Row = dict[str, Any]
"""Part, setting, attack, seed and client, and the scores of the message."""


@dataclass(frozen=True)
class Options:
    """What was asked for on the command line.

    Attributes:
        evaluations: gradients that gradient matching may compute for an aggregate.
        ocr: reads the private fields.
    """

    evaluations: int
    ocr: OCR | None


def federated(
    strategy: Strategy,
    client: Client,
    runs: Path,
    *,
    seed: int,
    clients: int,
    masking: Masking | None = None,
) -> Path:
    """Runs one round under observation; returns the run folder."""
    source = Slips(providers=clients, documents_per_provider=1, seed=seed, questions=("total",))
    federation = Federation(
        model=MODEL,
        data=DocumentData(source, ByProvider(clients), HoldOut(fraction=0)),
        strategy=strategy,
        client=client,
        seed=seed,
        masking=masking,
        keep=[KeepTranscript()],
        runs=runs,
    )
    return federation.run(1).run_dir


def attacked(
    run_dir: Path, attack: Attack, *, text: Text = "none", ocr: OCR | None = None
) -> list[Row]:
    """Attacks a run; returns the scores of every message, or why the attack does not apply."""
    settings = AttackSettings(assume=Assumed(text=text), ocr=ocr)
    result = run_attack_on(run_dir, attack, MODEL, name="study", settings=settings)
    if result.refused:
        return [{"client": None, "refused": result.headline}]
    return list(result.numbers["by_message"])


# ------------------------------------------------------------------------------------- masking


def masking(options: Options, seed: int) -> Iterator[Row]:
    """Single updates, masked or not; masked messages, random ones, and pages of noise."""
    tuned = functools.partial(GradientInversion, gi_dqa_tuned(MASKED_EVALUATIONS))
    with tempfile.TemporaryDirectory() as runs:
        one = functools.partial(federated, FedSGD(), BatchGradient(), Path(runs))
        plain, masked = (one(seed=seed, clients=CLIENTS, masking=m) for m in (None, MASKING))
        blind = with_random_words(masked, np.random.default_rng(seed))
        arms: list[tuple[str, str, Path, Attack]] = [
            ("not masked", "closed form", plain, ClosedForm()),
            ("masked, as an update", "closed form", masked, ClosedForm()),
            ("masked, as an update", "gradient matching", masked, tuned()),
            ("masked", "closed form", masked, ClosedForm("masked")),
            ("random words", "closed form", blind, ClosedForm("masked")),
            ("masked", "gradient matching", masked, tuned("masked")),
            ("random words", "gradient matching", blind, tuned("masked")),
            ("masked", "text", masked, TextRecovery("masked")),
            ("random words", "text", blind, TextRecovery("masked")),
            ("masked", "pixels of noise", masked, GradientInversion(random(), "masked")),
            ("aggregate", "closed form", masked, _mixture()),
        ]
        for setting, name, run_dir, attack in arms:
            for scores in attacked(run_dir, attack, text="given"):
                yield {"setting": setting, "attack": name, **scores}


def with_random_words(run_dir: Path, rng: np.random.Generator) -> Path:
    """Returns a copy of a masked run, each client's ring elements replaced by uniform ones."""
    folder = RunFolder(run_dir.with_name(f"{run_dir.name}-random"))
    shutil.copytree(run_dir, folder.path)
    ring = np.iinfo(np.int32)
    for path in folder.path.glob("transcript/round-*/client-*.safetensors"):
        name = str(path.relative_to(folder.path).with_suffix(""))
        tensors, notes = read_tensors(folder, name)
        words = {
            name: torch.from_numpy(rng.integers(ring.min, ring.max, len(t), np.int32, True))
            for name, t in tensors.items()
        }
        save_tensors(folder, name, words, notes)
    return folder.path


def p_values(rows: Sequence[Row], attack: str) -> tuple[float, float]:
    """Returns how likely masked messages and random words differ so much by chance.

    Two-sided, of PSNR on the private fields: by swapping within the pairs of one victim, and by
    the Kolmogorov–Smirnov test.
    """
    masked, blind = (
        [row["psnr_roi"] for row in _of(rows, setting, attack)]
        for setting in ("masked", "random words")
    )
    difference = np.array(masked) - np.array(blind)
    swaps = np.random.default_rng(0).choice([-1, 1], size=(SWAPS, len(difference)))
    # A hair below, for sums that are equal but for rounding.
    as_far = np.abs(swaps @ difference) >= abs(difference.sum()) * (1 - 1e-9)
    return float((1 + as_far.sum()) / (1 + SWAPS)), float(ks_2samp(masked, blind).pvalue)


# ----------------------------------------------------------------------------------- aggregates


def aggregate(options: Options, seed: int) -> Iterator[Row]:
    """The sum over so many clients; that of one is not masked, for it is the client's own."""
    for clients in COHORTS:
        tuned = gi_dqa_tuned(options.evaluations)
        with tempfile.TemporaryDirectory() as runs:
            run_dir = federated(
                FedSGD(), BatchGradient(), Path(runs), seed=seed, clients=clients, masking=MASKING
            )
            arms: dict[str, Attack] = {
                "closed form, one page": _mixture(),
                "gradient matching, all pages": GradientInversion(tuned, "aggregate"),
                "text": TextRecovery("aggregate"),
            }
            for name, attack in arms.items():
                for scores in attacked(run_dir, attack, text="given", ocr=options.ocr):
                    yield {"setting": f"|K| = {clients}", "attack": name, "x": clients, **scores}


def _mixture() -> ClosedForm:
    return ClosedForm("aggregate", template=False, most_examples=CLIENTS)


# ------------------------------------------------------------------------------------------- DP


@dataclass(frozen=True)
class Noisy:
    """A federation with noise on every message.

    Attributes:
        name: of the method.
        noise: its multiplier, or its deviation where there is no clipping.
        deviation: of it, on each coordinate of what the adversary takes as the gradient.
        relative: the same, relative to the norm of what is under the noise.
        strategy: the server's half.
        client: the client's half.
    """

    name: str
    noise: float
    deviation: float
    relative: float
    strategy: Strategy
    client: Client


def feam(multiplier: float) -> Noisy:
    """Returns FeAm-DP: a client sends (ḡ + its share of the noise) / 8, with ḡ clipped."""
    mechanism = example_gaussian(clip_norm=CLIP_NORM, examples=CLIENTS, noise_multiplier=multiplier)
    share = multiplier / math.sqrt(CLIENTS)
    deviation = share * CLIP_NORM / CLIENTS
    return Noisy("FeAm-DP", multiplier, deviation, share, FeAmDP(mechanism), ExampleGradients())


def provider(multiplier: float) -> Noisy:
    """Returns FL-PROVIDER-DP with one step of SGD, whose change is -η times the gradient."""
    mechanism = provider_gaussian(
        clip_norm=CLIP_NORM, providers=1, noise_multiplier=multiplier, client_sampling="fixed"
    )
    share = multiplier / math.sqrt(CLIENTS)
    deviation = share * CLIP_NORM / LR
    client = ProviderUpdates(optimizer=Optimizer("sgd", lr=LR))
    return Noisy("FL-PROVIDER-DP", multiplier, deviation, share, FLProviderDP(mechanism), client)


def unclipped(deviation: float, norm: float) -> Noisy:
    """Returns FedSGD with noise alone on gradients of that norm."""
    client = BatchGradient(gradient_noise=deviation)
    return Noisy("noise alone", deviation, deviation, deviation / norm, FedSGD(), client)


def dp(options: Options, seed: int) -> Iterator[Row]:
    """Page and text by noise; the noise for an ε holds against the server that sees each update."""
    budgets = [Budget(e, rounds=1, view="server_plain", cohort=CLIENTS) for e in EPSILONS]
    found = [budget.noise_multiplier(1.0, 1.0, 1e-5) for budget in budgets]
    norm = _norm(seed)
    private = [build(noise) for build in (feam, provider) for noise in (*MULTIPLIERS, *found)]
    for made in [*private, *(unclipped(noise, norm) for noise in NOISES)]:
        with tempfile.TemporaryDirectory() as runs:
            run_dir = federated(made.strategy, made.client, Path(runs), seed=seed, clients=CLIENTS)
            arms: dict[str, Attack] = {
                "closed form": ClosedForm(noise=made.deviation),
                "text": TextRecovery(),
            }
            about = {
                "setting": f"{made.name}, {made.noise:.2g}",
                "method": made.name,
                "noise": made.noise,
                "epsilon": epsilon_of(run_dir),
                "relative": made.relative,
            }
            for name, attack in arms.items():
                for scores in attacked(run_dir, attack, ocr=options.ocr):
                    yield {**about, "attack": name, **scores}


def epsilon_of(run_dir: Path) -> float | None:
    """Returns ε against the server that sees every update; none where nothing bounds it."""
    view = json.loads((run_dir / "ledger.json").read_text())["views"]["server_plain"]
    if view["pld"] == "inf":
        return None
    # PLD ends at an ε of a billion.
    return float(view["rdp"] if view["pld"] is None else view["pld"])


def _norm(seed: int) -> float:
    """Returns the norm of a client's gradient, the mean over the clients."""
    with tempfile.TemporaryDirectory() as runs:
        run_dir = federated(FedSGD(), BatchGradient(), Path(runs), seed=seed, clients=CLIENTS)
        uploads = load(RunFolder.existing(run_dir)).rounds[0].uploads
    return mean(
        math.sqrt(sum(t.double().square().sum().item() for t in upload.tensors.values()))
        for upload in uploads
    )


# ----------------------------------------------------------------------------------- the output

COLUMNS = {
    "epsilon": "ε",
    "template_psnr_roi": "blank",
    "psnr_roi": "private",
    "psnr_page": "page",
    "exact_match": "read",
    "token_set_recall": "tokens",
    "exact_position": "places",
    "private_text": "private text",
}


def table(rows: Sequence[Row]) -> str:
    """Returns mean, least and most over seeds and victims: ε, decibels, and shares in 0…1."""
    kinds = dict.fromkeys((row["setting"], row["attack"]) for row in rows)
    lines = []
    for setting, attack in kinds:
        own = _of(rows, setting, attack)
        if own[0].get("refused"):
            lines.append([setting, attack, "not applicable", *[""] * (len(COLUMNS) - 1)])
            continue
        cells = [[row[column] for row in own if row.get(column) is not None] for column in COLUMNS]
        shown = [f"{cells[0][0]:.3g}" if cells[0] else "-", *map(cell, cells[1:])]
        lines.append([setting, attack, *shown])
    return aligned([["setting", "attack", *COLUMNS.values()], *lines])


def _of(rows: Sequence[Row], setting: str, attack: str) -> list[Row]:
    return [row for row in rows if (row["setting"], row["attack"]) == (setting, attack)]


def draw_masking(rows: Sequence[Row], axes: Any) -> None:
    """Draws every victim's PSNR in each setting but that without masks, which is far above."""
    shown = [row for row in rows if row.get("psnr_roi") and row["setting"] != "not masked"]
    kinds = dict.fromkeys((row["setting"], row["attack"]) for row in shown)
    for place, kind in enumerate(kinds):
        found = [row["psnr_roi"] for row in _of(rows, *kind)]
        axes.plot([place] * len(found), found, "o", alpha=0.4)
        axes.plot([place - 0.3, place + 0.3], [mean(found)] * 2, "k-")
    _draw_blank(rows, axes)
    axes.set_xticks(range(len(kinds)), ["\n".join(kind) for kind in kinds], fontsize=7)
    bare = mean(row["psnr_roi"] for row in _of(rows, "not masked", "closed form"))
    axes.set(title=f"without masks: {bare:.0f} dB", ylabel="PSNR on the private fields, dB")
    axes.legend(fontsize=7)


def draw_aggregate(rows: Sequence[Row], axes: Any) -> None:
    """Draws PSNR and tokens over the number of clients in the sum."""
    right = axes.twinx()
    for axis, attack, column, label, style, colour in (
        (axes, "closed form, one page", "psnr_roi", "closed form, one page", "o-", "C0"),
        (axes, "gradient matching, all pages", "psnr_roi", "all pages together", "s-", "C1"),
        (right, "text", "token_set_recall", "set of tokens, recall", "^--", "C2"),
        (right, "text", "exact_position", "tokens at their places", "v--", "C3"),
    ):
        own = [row for row in rows if row["attack"] == attack]
        _curve(own, axis, "x", column, label, style, colour)
    _draw_blank(rows, axes)
    axes.set_xscale("log", base=2)
    axes.set_xticks(COHORTS, [str(k) for k in COHORTS])
    axes.set(xlabel="clients in the sum, one slip each", ylabel="PSNR on the private fields, dB")
    _finish(axes, right)


def draw_dp(rows: Sequence[Row], axes: Any, x: str, label: str) -> None:
    """Draws page and text of each method over its ε or its relative noise."""
    right = axes.twinx()
    for method, colour, line in (
        ("FeAm-DP", "C0", "-"),
        ("FL-PROVIDER-DP", "C1", "--"),
        ("noise alone", "C2", "-"),
    ):
        own = [row for row in rows if row["method"] == method and row[x] is not None]
        _curve(own, axes, x, "psnr_roi", f"{method}: page", f"o{line}", colour)
        _curve(own, right, x, "token_set_recall", f"{method}: set of tokens", f"^{line}", colour)
    _draw_blank(rows, axes)
    axes.set_xscale("log")
    axes.set(xlabel=label, ylabel="PSNR on the private fields, dB")
    _finish(axes, right)


def draw(part: str, rows: Sequence[Row], path: Path) -> None:
    """Draws one part."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12.0 if part == "dp" else 8.0, 4.2), layout="constrained")
    if part == "masking":
        draw_masking(rows, figure.subplots())
    elif part == "aggregate":
        draw_aggregate(rows, figure.subplots())
    else:
        left, right = figure.subplots(1, 2)
        draw_dp(rows, left, "epsilon", "ε of one slip against the server, δ = 1e-5")
        draw_dp(rows, right, "relative", "noise on each coordinate / norm of the gradient")
    figure.savefig(path, dpi=150)


def _curve(
    rows: Sequence[Row], axes: Any, x: str, column: str, label: str, style: str, colour: str
) -> None:
    found: dict[float, list[float]] = {}
    for row in sorted(rows, key=lambda row: float(row[x])):
        if row.get(column) is not None:
            found.setdefault(row[x], []).append(row[column])
    band(axes, list(found), list(found.values()), label, style, colour)


def _draw_blank(rows: Sequence[Row], axes: Any) -> None:
    blank = [row["template_psnr_roi"] for row in rows if row.get("template_psnr_roi") is not None]
    axes.axhline(mean(blank), color="grey", linestyle=":", label="the blank template")


def _finish(left: Any, right: Any) -> None:
    right.set(ylabel="share of the tokens", ylim=(-0.03, 1.03))
    lines = [*left.get_lines(), *right.get_lines()]
    left.legend(lines, [str(line.get_label()) for line in lines], fontsize=7)


# ------------------------------------------------------------------------------------- running

PARTS: Mapping[str, Callable[[Options, int], Iterator[Row]]] = {
    f.__name__: f for f in (masking, aggregate, dp)
}

SEEDS = {"masking": 4, "aggregate": 1, "dp": 2}
"""What three minutes of processor time are enough for; each has its own slips, weights, noise."""


def main() -> None:
    """Runs the parts that were named, prints a table and draws a figure of each."""
    asked = _asked()
    options = Options(asked.evaluations, tesseract())
    folder = RunFolder.create(asked.out, "inversion_against_privacy")
    measured: dict[str, Any] = {"evaluations": asked.evaluations}
    for part in asked.parts or PARTS:
        seeds = asked.seeds or SEEDS[part]
        began = time.process_time()
        rows = [
            {**row, "seed": seed} for seed in range(seeds) for row in PARTS[part](options, seed)
        ]
        took = time.process_time() - began
        print(f"{part}, {seeds} seeds, {took:.0f} s of processor time")
        print(table(rows), flush=True)
        measured[part] = {"seeds": seeds, "rows": rows}
        if part == "masking":
            measured[part] |= _tested(rows)
        folder.write_json("metrics.json", measured)
        draw(part, rows, folder.path / f"{part}.png")
        print()
    print(folder.path)


def _tested(rows: Sequence[Row]) -> Row:
    """Returns and prints whether masked messages differ from random ones."""
    found = {}
    for attack in ("closed form", "gradient matching"):
        pairs, distributions = p_values(rows, attack)
        count = len(_of(rows, "masked", attack))
        print(
            f"masked against random words, {attack}, {count} victims: "
            f"p = {pairs:.2f} by permutation, {distributions:.2f} by Kolmogorov–Smirnov"
        )
        found[attack] = {"victims": count, "permutation": pairs, "ks": distributions}
    for reason in dict.fromkeys(row["refused"] for row in rows if row.get("refused")):
        print(f"not applicable: {reason}")
    return {"p": found}


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--seeds", type=int, help=f"of each part; {SEEDS} if none")
    parser.add_argument("--evaluations", type=int, default=120)
    parser.add_argument("--out", type=Path, default=Path("runs"))
    asked = parser.parse_args()
    unknown = [name for name in asked.parts if name not in PARTS]
    if unknown:
        parser.error(f"unknown part {', '.join(unknown)}: there is {', '.join(PARTS)}")
    return asked


if __name__ == "__main__":
    main()
