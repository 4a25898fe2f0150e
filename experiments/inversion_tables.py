"""GI-DQA: its tables 1 to 8 on a small Donut or LayoutLMv3, each ordering checked.

    python experiments/inversion_tables.py [1 2 3 4 5 6 7 8] [--model layoutlmv3 donut]
        [--data slips sroie] [--victims 3] [--evaluations 500] [--seed 0]

One federation shares gradients of one page a client; every method of a table gets the same
gradients, the same templates and text, and the same number of gradient evaluations, where its label
does not say another. What the papers leave open of GI-DQA and APRIL (betas of Adam, steps as much
longer as they are fewer) is filled alike for both, after trials on slips of seed 0; take other
seeds. The paper's fifth row of Table 3, a client that trains on random questions, is left out.

Pages are generated slips of 64 x 64 pixels, or real receipts (SROIE, below FEDPRIV_DATA), a window
of 112 x 112 around the date. What a table claims is printed as it came out, held or not.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedpriv.attacks.closed_form import ClosedForm
from fedpriv.attacks.inversion import presets
from fedpriv.attacks.inversion.attack import GradientInversion
from fedpriv.attacks.inversion.method import Inversion
from fedpriv.attacks.inversion.prior import (
    ChannelVariation,
    GaussianSmooth,
    LaplacianText,
    Prior,
    SpatialVariation,
)
from fedpriv.attacks.inversion.publisher import SafeTemplate
from fedpriv.attacks.inversion.schedule import Constant, Late
from fedpriv.clients.fedsgd import BatchGradient
from fedpriv.data.cropped import Cropped
from fedpriv.data.document import DocumentSet, DocumentSource
from fedpriv.data.generated.slips import Slips
from fedpriv.data.partition import HoldOut, Iid
from fedpriv.data.readers.sroie import Sroie
from fedpriv.federation.dataset import DocumentData
from fedpriv.federation.loop import Federation
from fedpriv.metrics.ocr import Tesseract
from fedpriv.models.donut import donut
from fedpriv.models.layoutlmv3 import layoutlmv3
from fedpriv.runtime.run_folder import RunFolder
from fedpriv.strategies.fedsgd import FedSGD
from fedpriv.threat.attack import Attack
from fedpriv.threat.keep.transcript import KeepTranscript
from fedpriv.threat.knowledge import Assumed, Text
from fedpriv.threat.results import NOT_APPLICABLE, NOT_GRANTED
from fedpriv.threat.runner import run_attack_on
from fedpriv.threat.settings import AttackSettings

PUBLISHED_STEPS = 5000

SHOWN = ("psnr_roi", "psnr_page", "fft_distance", "mse_uint8_wrapped", "exact_match", "fuzz_ratio")

Row = tuple[str, Mapping[str, Any]]
Claim = tuple[str, bool]


@dataclass(frozen=True)
class First:
    """The first documents of a source."""

    source: DocumentSource
    count: int

    def load(self) -> DocumentSet:
        """Reads them."""
        loaded = self.source.load()
        return replace(loaded, documents=loaded.documents[: self.count])


@dataclass(frozen=True)
class Study:
    """A model, its data, and what everybody may spend.

    Args:
        model: "layoutlmv3" or "donut".
        data: "slips" or "sroie".
        victims: clients, of one message each.
        evaluations: of each method and victim.
        seed: of model, data and starts.
        folder: for the run folders.
    """

    model: str
    data: str
    victims: int
    evaluations: int
    seed: int
    folder: Path

    @property
    def side(self) -> int:
        """Of a page, in pixels."""
        return 64 if self.data == "slips" else 112

    def build(self, labels: Sequence[str] = ()) -> Any:
        """Returns the model."""
        if self.model == "donut":
            return donut(labels, size="small", image_size=(self.side, self.side), attention="eager")
        return layoutlmv3(labels, task="answers", size="small", image_size=self.side)

    def source(self, documents: int) -> DocumentSource:
        """Returns that many documents."""
        if self.data == "slips":
            return Slips(
                page_size=(self.side, self.side), providers=documents,
                documents_per_provider=1, seed=self.seed, questions=("total",),
            )  # fmt: skip
        return First(_receipts(self.side), documents)

    def run(
        self,
        *,
        clients: int | None = None,
        private: tuple[str, ...] | None = None,
        **client: Any,
    ) -> Path:
        """Runs the federation; returns its folder."""
        clients = clients or self.victims
        data = DocumentData(
            self.source(clients * client.get("batch_size", 1)), Iid(clients), HoldOut(fraction=0)
        )
        federation = Federation(
            model=self.build,
            data=data,
            strategy=FedSGD(),
            client=BatchGradient(**client),
            seed=self.seed,
            keep=[KeepTranscript(private=private)],
            runs=self.folder,
            name=f"{self.model}-{self.data}",
        )
        return federation.run(1).run_dir

    def attack(self, run_dir: Path, name: str, attack: Attack | Inversion, **more: Any) -> Row:
        """Attacks a run; returns the row."""
        if isinstance(attack, Inversion):
            attack = GradientInversion(attack)
        settings = {"assume": Assumed(text="given"), "ocr": Tesseract(), **more}
        label = name.replace("/", "_").replace(" ", "_")
        began = time.monotonic()
        chosen = AttackSettings(seed=self.seed, **settings)
        result = run_attack_on(run_dir, attack, self.build, name=label, settings=chosen)
        metrics = {**result.numbers, "status": result.status, "headline": result.headline}
        print(f"  {name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        return name, metrics

    def gi_dqa(self, evaluations: int | None = None, **settings: Any) -> Inversion:
        """Returns GI-DQA under the budget."""
        return presets.gi_dqa(evaluations or self.evaluations, **settings)


@functools.cache
def _receipts(side: int) -> DocumentSource:
    @dataclass(frozen=True)
    class Kept:
        loaded: DocumentSet

        def load(self) -> DocumentSet:
            return self.loaded

    receipts = Cropped(
        Sroie(Path(os.environ["FEDPRIV_DATA"]) / "open" / "sroie"),
        size=side,
        key="date",
        word_height=16,
    )
    return Kept(receipts.load())


def table_1(study: Study) -> tuple[list[Row], list[Claim]]:
    """Methods, under one budget."""
    run, steps = study.run(), study.evaluations
    alike = {"lr": min(2.0 * PUBLISHED_STEPS / steps, 50.0), "betas": (0.9, 0.9)}
    methods: dict[str, Attack | Inversion] = {
        "template only": presets.template_only(),
        "random": presets.random(),
        "DLG": presets.dlg(steps),
        "iDLG": presets.idlg(steps),
        "Inverting Gradients": presets.inverting_gradients(steps),
        "APRIL": presets.april(steps, **alike),
        "TAG": presets.tag(steps),
        "GI-DQA": study.gi_dqa(),
        "GI-DQA tuned": presets.gi_dqa_tuned(steps),
        "GI-DQA tuned, a tenth": presets.gi_dqa_tuned(max(1, steps // 10)),
    }
    if study.model == "layoutlmv3":
        methods["closed form"] = ClosedForm()
    rows = [study.attack(run, name, method) for name, method in methods.items()]
    of = dict(rows)
    baselines = [n for n in methods if not n.startswith(("GI-DQA", "closed"))]
    claims = [
        beats("GI-DQA", baseline, of, key)
        for key in ("psnr_roi", "exact_match")
        for baseline in baselines
    ]
    claims += [beats("GI-DQA tuned, a tenth", "GI-DQA", of), beats("GI-DQA tuned", "GI-DQA", of)]
    if "closed form" in of:
        claims += [beats("closed form", name, of) for name in methods if name != "closed form"]
    return rows, claims


def table_2(study: Study) -> tuple[list[Row], list[Claim]]:
    """Priors, one more in each row."""
    run = study.run()
    parts = _priors(study)
    kinds = list(parts)
    rows = [
        study.attack(
            run,
            "L_grad" if not count else f"+ {kinds[count - 1]}",
            study.gi_dqa(priors=tuple(parts[kind] for kind in kinds[:count])),
        )
        for count in range(len(kinds) + 1)
    ]
    of = dict(rows)
    return rows, [
        beats("+ TV-C", "L_grad", of),
        beats("+ TV-S", "+ TV-C", of),
        beats("+ gau", "L_grad", of),
    ]


def table_3(study: Study) -> tuple[list[Row], list[Claim]]:
    """What is known of question and answer."""
    run = study.run()
    rows = [study.attack(run, text, study.gi_dqa(), assume=Assumed(text=text)) for text in _texts()]
    recovered = study.attack(run, "read out of the gradient", study.gi_dqa(), assume=Assumed())
    of = dict([*rows, recovered])
    claims = [beats("given", text, of) for text in ("random", "question", "answer")]
    claims.append(
        ("read out of the gradient does as well as given",
         abs(_get(of, "read out of the gradient") - _get(of, "given")) < 1)
    )  # fmt: skip
    return [*rows, recovered], claims


def table_4(study: Study) -> tuple[list[Row], list[Claim]]:
    """Batches of one client: all pages sought together by GI-DQA, and tuned with twice as much."""
    rows: list[Row] = []
    for size in (1, 2, 4, 6):
        run = study.run(clients=1, batch_size=size)
        rows.append(study.attack(run, f"GI-DQA, batch {size}", study.gi_dqa()))
        tuned = presets.gi_dqa_tuned(2 * study.evaluations)
        rows.append(study.attack(run, f"tuned, batch {size}", tuned))
    of = dict(rows)
    claims = [beats(f"GI-DQA, batch {a}", f"GI-DQA, batch {b}", of) for a, b in ((1, 2), (2, 4))]
    claims.append(("tuned, batch 4: 20 dB or more", _get(of, "tuned, batch 4") >= 20))
    return rows, claims


def table_5(study: Study) -> tuple[list[Row], list[Claim]]:
    """Schedules of the priors."""
    run = study.run()
    schedules = {"none": Constant(0.01), "GradViT": Late(0.5, 0.01), "ours": None}
    rows = [
        study.attack(run, name, study.gi_dqa(**({"prior_schedule": schedule} if schedule else {})))
        for name, schedule in schedules.items()
    ]
    of = dict(rows)
    return rows, [beats("ours", "none", of), beats("ours", "GradViT", of)]


def table_6(study: Study) -> tuple[list[Row], list[Claim]]:
    """Priors, one at a time."""
    run = study.run()
    parts = _priors(study)
    rows = [study.attack(run, "L_grad", study.gi_dqa(priors=()))]
    rows += [study.attack(run, kind, study.gi_dqa(priors=(part,))) for kind, part in parts.items()]
    rows.append(study.attack(run, "all", study.gi_dqa(priors=tuple(parts.values()))))
    of = dict(rows)
    claims = [beats(kind, "L_grad", of) for kind in parts]
    return rows, [*claims, *(beats("all", kind, of) for kind in ("L_grad", *parts))]


def table_7(study: Study) -> tuple[list[Row], list[Claim]]:
    """Safe Template; one private field, and all attacks start from the template."""
    run = study.run(private=("date",))
    attacks: dict[str, Attack | Inversion] = {
        "GI-DQA": study.gi_dqa(start="template"),
        "tuned": presets.gi_dqa_tuned(study.evaluations),
    }
    if study.model == "layoutlmv3":
        attacks["closed form"] = ClosedForm()
        attacks["closed form, no template"] = ClosedForm(template=False)
    defences: dict[str, SafeTemplate | None] = {
        "no defence": None,
        "random 12": SafeTemplate(12, "random"),
        "random 32": SafeTemplate(32, "random"),
        "PGD 8": SafeTemplate(8),
        "PGD 12": SafeTemplate(12),
        "PGD 16": SafeTemplate(16),
    }
    rows = [
        study.attack(run, f"{attack}, {name}", method, publisher=publisher)
        for (attack, method), (name, publisher) in itertools.product(
            attacks.items(), defences.items()
        )
    ]
    of = dict(rows)
    order = (("no defence", "random 12"), ("random 12", "random 32"), ("no defence", "PGD 8"),
             ("random 12", "PGD 12"), ("PGD 8", "PGD 16"))  # fmt: skip
    claims = [
        beats(f"{attack}, {a}", f"{attack}, {b}", of)
        for attack in ("GI-DQA", "tuned")
        for a, b in order
    ]
    if "closed form" in attacks:
        claims += [
            (f"{name}: above 60 dB under PGD 16", _get(of, f"{name}, PGD 16") > 60)
            for name in ("closed form", "closed form, no template")
        ]
    return rows, claims


def table_8(study: Study) -> tuple[list[Row], list[Claim]]:
    """Noise on the gradient."""
    rows: list[Row] = []
    levels = (0.0, 1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
    for noise in levels:
        run = study.run(gradient_noise=noise)
        if noise <= 1e-5:
            rows.append(study.attack(run, f"GI-DQA, noise {noise:g}", study.gi_dqa()))
        tuned = presets.gi_dqa_tuned(study.evaluations)
        rows.append(study.attack(run, f"tuned, noise {noise:g}", tuned))
        if study.model == "layoutlmv3":
            form = ClosedForm(noise=noise)
            rows.append(study.attack(run, f"closed form, noise {noise:g}", form))
    of = dict(rows)
    clean, template = _get(of, "GI-DQA, noise 0"), _get(of, "GI-DQA, noise 0", "template_psnr_roi")
    claims = [
        (
            f"GI-DQA: noise {noise:g} costs more than 1 dB",
            _get(of, f"GI-DQA, noise {noise:g}") < clean - 1,
        )
        for noise in levels[1:4]
    ]
    dead = _get(of, "GI-DQA, noise 1e-07") < template
    claims.append(("GI-DQA at 1e-7 is below the template (the paper: dead)", dead))
    claims += [beats("tuned, noise 0", f"tuned, noise {noise:g}", of) for noise in levels[4:]]
    return rows, claims


TABLES: Mapping[str, Callable[[Study], tuple[list[Row], list[Claim]]]] = {
    "1": table_1, "2": table_2, "3": table_3, "4": table_4,
    "5": table_5, "6": table_6, "7": table_7, "8": table_8,
}  # fmt: skip


def _priors(study: Study) -> dict[str, tuple[float, Prior]]:
    """Returns the paper's priors with their weights, in the order of Table 2."""
    return {
        "TV-C": (0.1, ChannelVariation("sum")),
        "TV-S": (0.1, SpatialVariation("sum")),
        "txt": (0.1, LaplacianText()),
        "gau": (0.01, GaussianSmooth()),
    }


def _texts() -> Iterable[Text]:
    return ("random", "answer", "question", "given")


def _get(of: Mapping[str, Mapping[str, Any]], name: str, key: str = "psnr_roi") -> float:
    value = of[name].get(key)
    return math.nan if value is None else float(value)


def beats(
    better: str, worse: str, of: Mapping[str, Mapping[str, Any]], key: str = "psnr_roi"
) -> Claim:
    """Returns a claim and whether it holds."""
    a, b = _get(of, better, key), _get(of, worse, key)
    return f"{key}: {better} {a:.2f} > {worse} {b:.2f}", a > b


def show(title: str, rows: Sequence[Row], claims: Sequence[Claim]) -> None:
    """Prints a table."""
    print(f"\n{title}")
    print(
        f"{'':<28}{'ROI':>8}{'page':>8}{'FFT':>9}{'MSE u8':>8}{'exact':>7}{'fuzz':>6}{'CPU s':>8}"
    )
    for name, metrics in rows:
        if metrics["status"] in (NOT_APPLICABLE, NOT_GRANTED):
            print(f"{name:<28} {metrics['headline'][:76]}")
            continue
        values = [metrics[key] for key in SHOWN]
        texts = [
            "—" if value is None else f"{value:{form}}"
            for value, form in zip(values, (".2f", ".2f", ".4f", ".1f", ".2f", ".2f"), strict=True)
        ]
        widths = (8, 8, 9, 8, 7, 6)
        cells = "".join(f"{t:>{w}}" for t, w in zip(texts, widths, strict=True))
        print(f"{name:<28}{cells}{metrics['seconds']:>8.0f}")
    for claim, holds in claims:
        print(f"  {'holds' if holds else 'DOES NOT HOLD'}: {claim}")
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the tables that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=f"of {', '.join(TABLES)}")
    parser.add_argument("--model", nargs="+", choices=("layoutlmv3", "donut"), default=["donut"])
    parser.add_argument("--data", nargs="+", choices=("slips", "sroie"), default=["slips"])
    parser.add_argument("--victims", type=int, default=3)
    parser.add_argument("--evaluations", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    options = parser.parse_args(arguments)
    tables = options.tables or list(TABLES)
    if unknown := sorted(set(tables) - set(TABLES)):
        parser.error(f"tables {', '.join(unknown)}: there are {', '.join(TABLES)}")
    if "sroie" in options.data and "FEDPRIV_DATA" not in os.environ:
        parser.error("--data sroie needs FEDPRIV_DATA, the folder that holds open/sroie")
    if min(options.evaluations, options.victims) < 1:
        parser.error("--evaluations and --victims must be 1 or more")
    folder = RunFolder.create(options.runs, "inversion_tables")
    record: list[dict[str, Any]] = []
    for model, data, table in itertools.product(options.model, options.data, tables):
        study = Study(
            model, data, options.victims, options.evaluations, options.seed, folder.path / "runs"
        )
        rows, claims = TABLES[table](study)
        show(f"Table {table}: {TABLES[table].__doc__} {model}, {data}", rows, claims)
        record.append({"table": table, "model": model, "data": data,
                       "rows": [{"name": n, **m} for n, m in rows],
                       "claims": [{"claim": c, "holds": h} for c, h in claims]})  # fmt: skip
        folder.write_json("tables.json", record)
    print(folder.path)


if __name__ == "__main__":
    main()
