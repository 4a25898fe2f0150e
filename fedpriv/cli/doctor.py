"""`fedpriv doctor`: what this machine has, and what that allows.

Only torch is imported, because nothing else knows which GPU can be used.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import click
from packaging.requirements import Requirement

import fedpriv
from fedpriv.cli.command import Command
from fedpriv.runtime import versions
from fedpriv.runtime.cache import cache_path

PATIENCE = 10.0
"""Seconds for a program to tell its version."""

GIGABYTE = 1e9
TESTED = ((3, 11), (3, 13))
LEAST_DISK = 2 * GIGABYTE
"""Free bytes below which a run of a model in published size may fill the disk."""


@dataclasses.dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        what: its name.
        status: "ok"; "absent", if fedpriv runs without it; or "broken", if it does not.
        there: what is there.
        means: what that allows, or what to do.
    """

    what: str
    status: Literal["ok", "absent", "broken"]
    there: str
    means: str


@click.command(
    "doctor",
    cls=Command,
    epilog="""
        fedpriv doctor
        fedpriv doctor --json
    """,
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON list of findings.")
def command(as_json: bool) -> int:
    """Say what this machine has, what that allows, and what to install for more.

    The exit status is 0, or 1 if something is broken that every run needs.
    """
    findings = list(examine())
    if as_json:
        print(json.dumps([dataclasses.asdict(finding) for finding in findings], indent=2))
    else:
        widest = max(len(finding.what) for finding in findings)
        for f in findings:
            print(f"{f.status:<6}  {f.what:<{widest}}  {f.there}")
            if f.means:
                print(f"{'':<{8 + widest}}  {f.means}")
    return int(any(finding.status == "broken" for finding in findings))


def python() -> Finding:
    """Looks at the interpreter."""
    tested = sys.version_info[:2] in TESTED
    means = "" if tested else "fedpriv is tested on Python 3.11 and 3.13"
    there = f"Python {platform.python_version()} at {sys.executable}"
    return Finding("python", "ok", there, means)


def packages() -> Finding:
    """Compares the installed packages with those that fedpriv asks for."""
    missing, other = [], []
    for requirement in requirements():
        try:
            version = importlib.metadata.version(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            missing.append(str(requirement))
            continue
        if not requirement.specifier.contains(version, prereleases=True):
            other.append(f"{requirement.name} {version}, expected {requirement.specifier}")
    there = f"fedpriv {fedpriv.__version__}"
    if missing or other:
        wrong = "; ".join([*(f"no {name}" for name in missing), *other])
        return Finding("packages", "broken", f"{there}: {wrong}", "pip install --upgrade fedpriv")
    return Finding("packages", "ok", f"{there} and all that it needs", "")


def requirements() -> list[Requirement]:
    """Returns what fedpriv needs here, from its installation or the folder it lies in."""
    try:
        named = importlib.metadata.requires("fedpriv") or []
    except importlib.metadata.PackageNotFoundError:
        project = Path(fedpriv.__file__).resolve().parents[1] / "pyproject.toml"
        if not project.is_file():
            raise
        named = tomllib.loads(project.read_text("utf-8"))["project"]["dependencies"]
    wanted = [Requirement(name) for name in named]
    return [one for one in wanted if one.marker is None or one.marker.evaluate({"extra": ""})]


def accelerator() -> Finding:
    """Asks torch for a GPU."""
    import torch

    there = f"torch {torch.__version__}"
    if torch.cuda.is_available():
        names = ", ".join(
            f"{torch.cuda.get_device_name(i)} with "
            f"{torch.cuda.get_device_properties(i).total_memory / GIGABYTE:.0f} GB"
            for i in range(torch.cuda.device_count())
        )
        torch.ones(1, device="cuda").item()  # a driver that is too old fails here
        use = "attacks take it; trainings with federation.device=cuda"
        return Finding("accelerator", "ok", f"{there}, {names}", use)
    if torch.backends.mps.is_available():
        return Finding(
            "accelerator", "ok", f"{there}, Apple GPU", "set federation.device=mps (untested)"
        )
    return Finding(
        "accelerator",
        "absent",
        f"{there}, no GPU that it can use",
        "everything runs on the CPU; models in published sizes take hours there",
    )


def processor() -> Finding:
    """Counts the cores that this process may use, and the memory."""
    cores = versions.cores()
    there = f"{cores} core{'s' * (cores != 1)}"
    if "SC_PHYS_PAGES" in getattr(os, "sysconf_names", ()):
        there += f", {os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / GIGABYTE:.0f} GB"
    means = f"set federation.workers up to {cores}; each holds a model of its own"
    return Finding("processor", "ok", there, means)


def ray() -> Finding:
    """Looks for Ray, without starting it."""
    return _package("ray", "runs on several machines: ray.address=HOST:PORT")


def flower() -> Finding:
    """Looks for Flower."""
    return _package("flwr", "strategy=flwr.serverapp.strategy.FedAdam, and Flower's own engines")


def _package(name: str, means: str) -> Finding:
    what = {"flwr": "flower"}.get(name, name)
    if importlib.util.find_spec(name) is None:
        return Finding(what, "broken", f"no module {name}", f"pip install {name}")
    return Finding(what, "ok", f"{name} {importlib.metadata.version(name)}", means)


def datasets() -> Finding:
    """Looks for the library that `data=hf` reads with."""
    return _extra("datasets", ("datasets",), "data=hf reads data sets of the datasets library")


def trackers() -> Finding:
    """Looks for MLflow and Weights & Biases."""
    modules = ("mlflow", "wandb")
    return _extra("trackers", modules, "federation.trackers=[mlflow,wandb] sends metrics there")


def _extra(extra: str, modules: tuple[str, ...], means: str) -> Finding:
    """Looks for the modules of an extra of fedpriv, without which all else runs."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        there = f"no module {' and no '.join(missing)}"
        return Finding(extra, "absent", there, f"pip install 'fedpriv[{extra}]': {means}")
    return Finding(extra, "ok", ", ".join(modules), means)


def tesseract() -> Finding:
    """Asks Tesseract for its version and its languages."""
    if shutil.which("tesseract") is None:
        return Finding(
            "tesseract",
            "absent",
            "no program tesseract",
            "apt-get install tesseract-ocr: attacks on pages are scored by reading them, and scans "
            "without words are read. Without it, set ocr=null for attacks",
        )
    try:
        first = _output("tesseract", "--version").splitlines()[0]
        languages = _output("tesseract", "--list-langs").splitlines()[1:]
    except (OSError, subprocess.SubprocessError) as error:
        return Finding("tesseract", "absent", f"it does not run: {error}", "install it anew")
    there = f"{first}, languages {', '.join(languages)}"
    return Finding("tesseract", "ok", there, "recovered pages and scans can be read")


def _output(*words: str) -> str:
    done = subprocess.run(  # noqa: S603 - a program on the user's path, with fixed words
        words, capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    return done.stdout or done.stderr  # where old versions tell theirs


def fonts() -> Finding:
    """Looks for the font that generated pages and reports are set in."""
    spec = importlib.util.find_spec("matplotlib")
    root = Path(spec.origin).parent if spec and spec.origin else Path()
    font = root / "mpl-data" / "fonts" / "ttf" / "DejaVuSans.ttf"
    if not font.is_file():
        return Finding("fonts", "broken", f"{font} is not there", "pip install -I matplotlib")
    return Finding("fonts", "ok", "DejaVu Sans, of matplotlib", "")


def cache() -> Finding:
    """Tries to write to the cache, or to the next folder above it that is there."""
    place = cache_path()
    above = next(folder for folder in (place, *place.absolute().parents) if folder.is_dir())
    free = shutil.disk_usage(above).free
    there = f"{place}, {free / GIGABYTE:.0f} GB free"
    try:
        with tempfile.TemporaryFile(dir=above):
            pass
    except OSError as error:
        return Finding(
            "cache",
            "broken",
            f"{there}: {error.strerror}",
            "export FEDPRIV_CACHE=DIR with a folder that you may write to",
        )
    if free < LEAST_DISK:
        return Finding("cache", "ok", there, "little space: see `fedpriv clean --help`")
    return Finding("cache", "ok", there, "encoded documents and pretrained models are kept there")


def data() -> Finding:
    """Looks for the folder of public data sets."""
    named = os.environ.get("FEDPRIV_DATA")
    if not named:
        return Finding(
            "data sets",
            "absent",
            "FEDPRIV_DATA is not set",
            "generated documents need none; for data=sroie and the like, export FEDPRIV_DATA=DIR",
        )
    if not Path(named).is_dir():
        return Finding(
            "data sets", "absent", f"FEDPRIV_DATA={named}: no such folder", "set it to another"
        )
    inside = sorted(path.name for path in Path(named).iterdir() if path.is_dir())
    return Finding("data sets", "ok", f"{named}: {', '.join(inside) or 'empty'}", "")


CHECKS = (
    python,
    packages,
    accelerator,
    processor,
    ray,
    flower,
    datasets,
    trackers,
    tesseract,
    fonts,
    cache,
    data,
)


def examine() -> Iterator[Finding]:
    """Yields what was found, one thing after the other; no check ends the others."""
    for check in CHECKS:
        try:
            yield check()
        except Exception as error:  # such as a torch whose libraries are not there
            yield Finding(check.__name__, "broken", f"{type(error).__name__}: {error}", "")
