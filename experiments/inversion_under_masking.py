"""What secure aggregation leaves of an inversion: masked messages against random ones.

    python experiments/inversion_under_masking.py [--seeds 4] [--out runs]

Eight clients hold one slip each; a small LayoutLMv3 answers questions on it; the server looks at
what it receives in one round of FedSGD, and attacks it. An attack on single updates does not apply.
Run on a masked message all the same, it must score as on a message of random ring elements: the
PSNRs on the private fields of the two, victim by victim, with two-sided p-values (permutation of
the pairs; Kolmogorov and Smirnov, who know of no pairs). A small p that stays small with more seeds
would be a leak; of twenty sound runs, one has p < 0.05. A few tenths of a decibel above the blank
template are no finding: a solve of pure noise has them too.

What the sums give away is the sweep papers/gi_dqa/aggregate, what noise leaves is
papers/gi_dqa/privacy.

Writes metrics.json and masking.png into <out>/inversion_under_masking/<time>. The run folders of
the federations are deleted once they are attacked.
"""

from __future__ import annotations

import argparse
import functools
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
from closed_form_limits import cell
from matplotlib.figure import Figure
from scipy.stats import ks_2samp

from fedpriv.attacks.closed_form import ClosedForm
from fedpriv.attacks.inversion.attack import GradientInversion
from fedpriv.attacks.inversion.presets import gi_dqa_tuned, random
from fedpriv.attacks.text.attack import TextRecovery
from fedpriv.clients.fedsgd import BatchGradient
from fedpriv.data.generated.slips import Slips
from fedpriv.data.partition import ByProvider, HoldOut
from fedpriv.federation.dataset import DocumentData
from fedpriv.federation.loop import Federation
from fedpriv.federation.secagg.masking import Masking
from fedpriv.models.layoutlmv3 import layoutlmv3
from fedpriv.report.wording import aligned
from fedpriv.runtime.run_folder import RunFolder
from fedpriv.runtime.tensors import read_tensors, save_tensors
from fedpriv.strategies.fedsgd import FedSGD
from fedpriv.threat.attack import Attack
from fedpriv.threat.runner import run_attack_on
from fedpriv.threat.surfaces.batches import Assumed
from fedpriv.threat.surfaces.server import KeepTranscript

MODEL = functools.partial(layoutlmv3, task="answers", size="small")
CLIENTS = 8
MASKING = Masking(bound=4.0)
"""No coordinate of these gradients is beyond it; a larger bound makes a coarser ring."""

EVALUATIONS = 20
"""Of gradient matching on a masked message, to which more give nothing."""

SWAPS = 9999
"""Drawn for the permutation test."""

COLUMNS = {
    "template_psnr_roi": "blank",
    "psnr_roi": "private",
    "psnr_page": "page",
    "token_set_recall": "tokens",
    "exact_position": "places",
    "private_text": "private text",
}

Row = dict[str, Any]
"""Setting, attack, seed and client, and the scores of the message."""


def federated(runs: Path, seed: int, masking: Masking | None) -> Path:
    """Runs one round under observation; returns the run folder."""
    source = Slips(providers=CLIENTS, documents_per_provider=1, seed=seed, questions=("total",))
    federation = Federation(
        model=MODEL,
        data=DocumentData(source, ByProvider(CLIENTS), HoldOut(fraction=0)),
        strategy=FedSGD(),
        client=BatchGradient(),
        seed=seed,
        masking=masking,
        keep=[KeepTranscript()],
        runs=runs,
    )
    return federation.run(1).run_dir


def measure(seed: int) -> Iterator[Row]:
    """Attacks single updates, masked or not; masked messages, random ones, and pages of noise.

    Yields:
        The scores of every message, or why an attack does not apply.
    """
    tuned = functools.partial(GradientInversion, gi_dqa_tuned(EVALUATIONS))
    settings = {"assume": Assumed(text="given")}
    with tempfile.TemporaryDirectory() as runs:
        plain, masked = (federated(Path(runs), seed, masking) for masking in (None, MASKING))
        blind = with_random_words(masked, np.random.default_rng(seed))
        mixture = ClosedForm("aggregate", template=False, most_examples=CLIENTS)
        arms: list[tuple[str, str, Path, Attack[Any, Any]]] = [
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
            ("aggregate", "closed form", masked, mixture),
        ]
        for setting, name, run_dir, attack in arms:
            result = run_attack_on(run_dir, attack, MODEL, name="study", settings=settings)
            refused = [{"client": None, "refused": result.headline}]
            for scores in refused if result.refused else result.details["by_message"]:
                yield {"setting": setting, "attack": name, "seed": seed, **scores}


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


def table(rows: Sequence[Row]) -> Iterator[str]:
    """Yields mean, least and most over seeds and victims: decibels, and shares in 0…1."""
    lines = [("setting", "attack", *COLUMNS.values())]
    for setting, attack in dict.fromkeys((row["setting"], row["attack"]) for row in rows):
        found = _of(rows, setting, attack)
        cells = [[row[key] for row in found if row.get(key) is not None] for key in COLUMNS]
        lines.append((setting, attack, *map(cell, cells)))
    yield from aligned(lines)
    for reason in dict.fromkeys(row["refused"] for row in rows if row.get("refused")):
        yield f"not applicable: {reason}"


def _of(rows: Sequence[Row], setting: str, attack: str) -> list[Row]:
    return [row for row in rows if (row["setting"], row["attack"]) == (setting, attack)]


def draw(rows: Sequence[Row]) -> Figure:
    """Draws every victim's PSNR in each setting but that without masks, which is far above."""
    figure = Figure(figsize=(8.0, 4.2), layout="constrained")
    axes = figure.subplots()
    shown = [row for row in rows if row.get("psnr_roi") and row["setting"] != "not masked"]
    kinds = dict.fromkeys((row["setting"], row["attack"]) for row in shown)
    for place, kind in enumerate(kinds):
        found = [row["psnr_roi"] for row in _of(rows, *kind)]
        axes.plot([place] * len(found), found, "o", alpha=0.4)
        axes.plot([place - 0.3, place + 0.3], [mean(found)] * 2, "k-")
    blank = mean(row["template_psnr_roi"] for row in shown)
    axes.axhline(blank, color="grey", linestyle=":", label="the blank template")
    axes.set_xticks(range(len(kinds)), ["\n".join(kind) for kind in kinds], fontsize=7)
    bare = mean(row["psnr_roi"] for row in _of(rows, "not masked", "closed form"))
    axes.set(title=f"without masks: {bare:.0f} dB", ylabel="PSNR on the private fields, dB")
    axes.legend(fontsize=7)
    return figure


def main() -> None:
    """Attacks, tests, prints a table and draws a figure."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--out", type=Path, default=Path("runs"))
    options = parser.parse_args()
    folder = RunFolder.create(options.out, "inversion_under_masking")
    began = time.process_time()
    rows = [row for seed in range(options.seeds) for row in measure(seed)]
    print(f"{options.seeds} seeds, {time.process_time() - began:.0f} s of processor time")
    print(*table(rows), sep="\n")
    tests = {}
    for attack in ("closed form", "gradient matching"):
        pairs, distributions = p_values(rows, attack)
        count = len(_of(rows, "masked", attack))
        print(
            f"masked against random words, {attack}, {count} victims: "
            f"p = {pairs:.2f} by permutation, {distributions:.2f} by Kolmogorov–Smirnov"
        )
        tests[attack] = {"victims": count, "permutation": pairs, "ks": distributions}
    folder.write_json("metrics.json", {"seeds": options.seeds, "rows": rows, "p": tests})
    draw(rows).savefig(folder.path / "masking.png", dpi=150)
    print(folder.path)


if __name__ == "__main__":
    main()
