"""Small runs and attacks through the command line whose results a redesign may not change.

`python tests/golden/frozen.py` computes them anew: the numbers, in `frozen.json`, and the texts of
pages and studies, below `texts/`. With names, such as `numbers` or `sweep paper`, it does so with
these only. Do that only where a result is meant to change, in a commit that says why.
"""

import contextlib
import hashlib
import io
import json
import math
import os
import platform
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file

GOLDEN = Path(__file__).with_suffix(".json")
FROZEN = json.loads(GOLDEN.read_text())
UNTIMED = ("second", "time", "cost")

TAGGED = (
    "quickstart",
    "rounds=2",
    "data.source.providers=6",
    "data.source.documents_per_provider=3",
    "data.partition.clients=3",
    "privacy.examples=12",
    "privacy.providers=2",
    "federation.workers=0",
    "federation.report=false",
)
ALONE = ("centralised", "centralised_dp", "centralised_dp_sgd", "centralised_provider_dp")
TOGETHER = (
    "dp_fedavg",
    "feam_dp",
    "fedavg",
    "fedavg_dp",
    "fedsgd",
    "fl_provider_dp",
    "fl_provider_dp_adam",
    "fl_provider_dp_one_step",
    "provider_bandmf",
)
PAGES = (
    "gi_dqa",
    "data.source.providers=2",
    "data.source.documents_per_provider=2",
    "data.source.page_size=[64,64]",
    "data.partition.clients=2",
    "data.test.unseen=0",
    "federation.report=false",
)
ALL_HERE = ("rounds=2", "federation.workers=0", "federation.report=false")
BOUND = "masking.bound=1.0"
MASKED = {
    "fedavg": (BOUND, "strategy.weighted=false", "strategy.buffers=false"),
    "fedavg_dp": (BOUND,),
    "fedsgd": (BOUND,),
}
STUDY = str(Path(__file__).parents[1] / "system" / "extraction.yaml")
EXPERIMENTS = Path(__file__).parents[2] / "experiments"

RUNS: dict[str, tuple[str, ...]] = {
    **{s: (*TAGGED, f"strategy={s}") for s in ALONE},
    **{s: (*TAGGED, f"strategy={s}") for s in TOGETHER},
    **{
        f"{s}, masked": (*TAGGED, f"strategy={s}", "masking=on", *MASKED.get(s, ()))
        for s in TOGETHER
    },
    "pages of layoutlmv3": (*PAGES, "model.image_size=64"),
    "pages of layoutlmv3, masked": (
        *PAGES,
        "model.image_size=64",
        "masking=on",
        "masking.bound=100",
    ),
    "pages of donut": (*PAGES, "model=donut", "model.size=tiny", "~model.task"),
    "owners": (
        "pmia",
        "data.source.providers=12",
        "data.source.documents_per_provider=4",
        "data.partition.clients=2",
        "model.max_length=96",
        *ALL_HERE,
    ),
    "canaries": ("pmia_audit", "data.canaries.providers=16", "model.max_length=96", *ALL_HERE),
    "persons": (
        "exposure",
        "rounds=2",
        "data.canaries.each=2",
        "privacy.examples=60",
        "federation.report=false",
    ),
    "fields": (
        "cdmi",
        "rounds=2",
        "training.epochs=2",
        "data.source.providers=12",
        "federation.report=false",
    ),
    "tagged fields": (
        "cdmi",
        "model.task=tags",
        "rounds=1",
        "training.epochs=2",
        "data.source.providers=6",
        "federation.report=false",
    ),
    "extraction": (STUDY,),
}

SOUGHT = ("gi_dqa", "gi_dqa_tuned", "dlg", "idlg", "tag", "april", "inverting_gradients")
LIKE_GI_DQA = [f"pages of layoutlmv3: {name}" for name in (*SOUGHT[1:], "random", "template_only")]
FEW = ("attack.method.evaluations=3", "ocr=null")
ATTACKS: dict[str, tuple[str, ...]] = {
    **{f"pages of layoutlmv3: {name}": (f"attack={name}", *FEW) for name in SOUGHT},
    "pages of layoutlmv3: random": ("attack=random", "ocr=null"),
    "pages of layoutlmv3: template_only": ("attack=template_only", "ocr=null"),
    "pages of layoutlmv3: closed_form": ("attack=closed_form", "ocr=null"),
    "pages of layoutlmv3: text": ("attack=text", "ocr=null"),
    "pages of layoutlmv3, masked: closed_form": (
        "attack=closed_form",
        "attack.target=masked",
        "ocr=null",
    ),
    "pages of donut: gi_dqa": ("attack=gi_dqa", *FEW),
    "pages of donut: text": ("attack=text", "ocr=null"),
    "canaries: audit": ("attack=audit",),
    "owners: pmia": ("attack=pmia",),
    "owners: server_membership": ("attack=server_membership",),
    "owners: memorisation": ("attack=memorisation", "attack.most_absent=2"),
    "owners: provider_lira": ("attack=provider_lira", "attack.references=4", "attack.steps=3"),
    "owners: provider_rmia": ("attack=provider_rmia", "attack.steps=3"),
    "persons: exposure": ("attack=exposure", "attack.references=50"),
    "fields: cdmi": (
        "attack=cdmi",
        "attack.attempts=2",
        "attack.generator.epochs=2",
        "attack.candidates=16",
    ),
    "fields: field_candidates": (
        "attack=field_candidates",
        "candidates.least=1",
    ),
    "tagged fields: field_search": (
        "attack=field_search",
        "attack.search.space=tokens",
        "attack.search.start=8",
        "attack.search.width=8",
        "attack.search.sweeps=2",
        "attack.reference={epochs: 2}",
        "candidates.game=open",
        "candidates.least=1",
        "candidates.most=null",
        "most_fields=16",
    ),
}


def command(*arguments: str) -> str:
    """Runs a command in this process and returns the last line that it prints."""
    return printed(*arguments).splitlines()[-1]


def printed(*arguments: str) -> str:
    """Runs a command in this process and returns what it prints."""
    from fedpriv.cli.main import main

    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()) as err:
        status = main(list(arguments))
    if status:
        raise RuntimeError(f"fedpriv {' '.join(arguments)}: {status}\n{err.getvalue()}")
    return out.getvalue()


def run(name: str, folder: Path) -> Path:
    """Runs one of RUNS and returns its folder."""
    return Path(command("run", *RUNS[name], "privacy.entropy=seed", f"runs={folder}"))


def weights(run_dir: Path) -> dict[str, float | str]:
    """Returns a digest of the final weights, and their norm for machines that round otherwise."""
    tensors = load_file(run_dir / "checkpoints" / "final.safetensors")
    hashed = hashlib.blake2b(digest_size=16)
    for name in sorted(tensors):
        hashed.update(
            name.encode() + tensors[name].contiguous().view(torch.uint8).numpy().tobytes()
        )
    squares = sum(float(t.double().square().sum()) for t in tensors.values())
    return {"digest": hashed.hexdigest(), "norm": math.sqrt(squares)}


def numbers(values: object, name: str = "") -> dict[str, float]:
    """Returns the finite numbers in a JSON object by their path; not how long anything took."""
    if isinstance(values, dict):
        found = {}
        for key, value in values.items():
            if not any(word in key for word in UNTIMED):
                found |= numbers(value, f"{name}/{key}")
        return found
    if isinstance(values, list):
        return {
            k: v for i, one in enumerate(values) for k, v in numbers(one, f"{name}/{i}").items()
        }
    return {name: values} if isinstance(values, int | float) and math.isfinite(values) else {}


def attack(name: str, run_dir: Path, *more: str) -> dict[str, float]:
    """Runs one of ATTACKS on a run folder, with more settings; returns the numbers it found."""
    command("attack", str(run_dir), *ATTACKS[name], *more)
    return findings(run_dir, ATTACKS[name][0].partition("=")[2])


def findings(run_dir: Path, attack: str) -> dict[str, float]:
    """Returns the numbers that an attack left in a run folder."""
    place = run_dir / "findings" / attack
    if (place / "result.json").is_file():
        result = json.loads((place / "result.json").read_text())
        return numbers({**result["details"], "left_out": result["left_out"]})
    return numbers(json.loads((place / "metrics.json").read_text()))


def compare(found: dict[str, float], expected: dict[str, float], digits: float = 1e-6) -> None:
    """Asserts that an attack found the same numbers, or close ones on another machine."""
    if FROZEN["machine"] == machine():
        # A distance between what is equal is the rounding of a transform or a solver, which two
        # generations of one vendor's processors round otherwise: 3.4671e-13 and 3.4674e-13.
        assert found == pytest.approx(expected, rel=digits, abs=digits / 1000)
    else:  # three steps of an optimiser, or a coin that fell on another side
        assert found == pytest.approx(expected, rel=0.1, abs=0.1)


def machine() -> dict[str, str]:
    """Returns what decides how numbers are rounded."""
    processor = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").is_file() else ""
    vendor = next(
        (x.partition(":")[2].strip() for x in processor.splitlines() if "vendor" in x), ""
    )
    return {
        "processor": f"{platform.machine()} {vendor} {torch.backends.cpu.get_cpu_capability()}",
        "python": ".".join(platform.python_version_tuple()[:2]),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "numpy": np.__version__,
    }


def everything(folder: Path) -> dict[str, object]:
    """Returns all that is frozen."""
    made = {name: run(name, folder) for name in RUNS}
    found = {name: attack(name, made[name.partition(":")[0]]) for name in ATTACKS}
    found["extraction"] = findings(made.pop("extraction"), "extraction")
    return {
        "machine": machine(),
        "weights": {name: weights(run_dir) for name, run_dir in made.items()},
        "attacks": found,
    }


def write(parts: Sequence[str]) -> None:
    """Makes anew what the parts name: "numbers", "texts", or studies; without any, all of it."""
    import frozen_texts

    texts = [part for part in parts if part not in ("numbers", "texts")]
    if not parts or "texts" in parts:
        texts = list(frozen_texts.STUDIES)
    if unknown := [one for one in texts if one not in frozen_texts.STUDIES]:
        known = ", ".join(["numbers", "texts", *frozen_texts.STUDIES])
        raise SystemExit(f"there is no {unknown[0]!r}: expected some of {known}")
    frozen_texts.write(texts)
    if not parts or "numbers" in parts:
        with tempfile.TemporaryDirectory() as place:
            content = json.dumps(everything(Path(place)), indent=1, sort_keys=True)
            GOLDEN.write_text(content + "\n")


if __name__ == "__main__":
    tests = Path(__file__).parents[1]
    sys.path[:0] = [str(tests), str(tests / "system")]
    # Importing it again, as the other module does, must give the same module.
    sys.modules["frozen"] = sys.modules["__main__"]
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as place:
        os.environ["FEDPRIV_CACHE"] = f"{place}/cache"
        write(sys.argv[1:])
