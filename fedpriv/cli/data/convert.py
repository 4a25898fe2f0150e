"""`fedpriv data convert`: PFL-DocVQA's pickled arrays as Parquet, without running what they hold.

A ``.npy`` file of records is a pickle, and a pickle can run any program when it is read. Here a
process with limits of memory and time reads it by an unpickler that can call nothing, and writes
Parquet, which is data only. `fedpriv.data.readers.pfl_docvqa` reads that, and never the arrays.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from fedpriv.cli.command import Command

GIB = 2**30


@dataclass(frozen=True)
class Converted:
    """One array that became a Parquet file.

    Attributes:
        source: the array.
        target: the Parquet file.
        records: how many it holds.
        skipped: how many entries were left out because they are no records.
        reasons: why the first few were left out.
    """

    source: Path
    target: Path
    records: int
    skipped: int
    reasons: tuple[str, ...]


@click.command(
    "convert",
    cls=Command,
    epilog="""
        fedpriv data convert /path/to/pfl-docvqa
        fedpriv data convert /path/to/pfl-docvqa --out converted --memory 8
        fedpriv run pfl_docvqa_fl data=pfl_docvqa data.source.converted=converted
    """,
)
@click.argument("folder", type=Path, metavar="FOLDER", help="The release, or its imdb/.")
@click.option("--out", type=Path, metavar="FOLDER", help="Write here, not beside each .npy file.")
@click.option(
    "--memory", type=float, metavar="GIB", help="Limit for one file (default: by its size)."
)
def command(folder: Path, out: Path | None, memory: float | None) -> int:
    """Convert PFL-DocVQA's pickled .npy records to Parquet.

    Writes one .parquet file beside each .npy file of records. The pickles are read in a process of
    its own that cannot run what they hold. The exit status is 1 if a file could not be converted.
    """
    from fedpriv.data.document import DataError

    try:
        sources = arrays(folder)
    except DataError as error:
        print(error, file=sys.stderr)
        return 1
    failed = 0
    for source in sources:
        try:
            done = convert(source, out or source.parent, memory)
        except DataError as error:
            failed += 1
            print(f"not converted: {error}", file=sys.stderr)
            continue
        print(f"{source.name}: {done.records} records, {done.skipped} skipped -> {done.target}")
        for reason in done.reasons:
            print(f"{source.name}: skipped {reason}", file=sys.stderr)
    return 1 if failed else 0


def arrays(folder: Path) -> list[Path]:
    """Returns the ``.npy`` files of a release, in ``imdb/`` or the folder itself, by name.

    Raises:
        DataError: if there are none, or one is a link that leads out of the folder.
    """
    from fedpriv.data.document import DataError, found_in
    from fedpriv.data.paths import inside

    base = inside(folder, "imdb") if (folder / "imdb").is_dir() else folder
    names = sorted(path.name for path in base.glob("[!.]*.npy"))
    if not names:
        raise DataError(base, f"no .npy files here: expected PFL-DocVQA's; {found_in(base)}")
    return [inside(base, name) for name in names]


def convert(
    source: Path, out: Path, memory: float | None = None, seconds: int | None = None
) -> Converted:
    """Writes ``out/<stem>.parquet``, whole or not at all.

    Args:
        source: a ``.npy`` array of PFL-DocVQA's records.
        out: the folder to write to; made if need be.
        memory: the most that reading may take, in GiB; by default 1 GiB and 24 times the file's
            size.
        seconds: the most time of the processor; by default 2 minutes and 2 seconds per MB.

    Raises:
        DataError: if the array cannot be read safely within the limits, or the file not written.
    """
    from fedpriv.data.document import DataError, check_file

    if memory is not None and not 0 < memory < 2**20:
        raise ValueError(f"memory={memory}: expected a positive number of GiB")
    check_file(source)
    size = source.stat().st_size
    limit = GIB + 24 * size if memory is None else int(memory * GIB)
    target = out / f"{source.stem}.parquet"
    try:
        out.mkdir(parents=True, exist_ok=True)
        # The reader and `arrays` overlook names with a dot; a killed conversion leaves only such.
        with tempfile.TemporaryDirectory(prefix=f".{source.stem}.", dir=out) as scratch:
            partial = Path(scratch) / target.name
            outcome = _in_a_process(source, partial, limit, seconds or 120 + 2 * size // 10**6)
            os.replace(partial, target)
    except OSError as error:
        raise DataError(target, f"cannot be written: {error}") from error
    return Converted(
        source,
        target,
        records=int(outcome["records"]),
        skipped=int(outcome["skipped"]),
        reasons=tuple(outcome["reasons"]),
    )


def _in_a_process(source: Path, partial: Path, memory: int, seconds: int) -> dict[str, Any]:
    """Runs `fedpriv.data.readers.pfl_arrow`; returns its outcome.

    Raises:
        DataError: with the reason that it gives, or how it died.
    """
    from fedpriv.data.document import DataError

    command = [sys.executable, "-P", "-m", "fedpriv.data.readers.pfl_arrow"]
    command += [os.path.abspath(source), os.path.abspath(partial), str(memory), str(seconds)]
    # Our own code is found first, and no memory is set aside for speed.
    root = str(Path(__file__).resolve().parents[3])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    frugal = {"ARROW_DEFAULT_MEMORY_POOL": "system", "OPENBLAS_NUM_THREADS": "1"}
    environment = {**os.environ, **frugal, "PYTHONPATH": path}
    try:
        done = subprocess.run(  # noqa: S603 - our own module, without a shell
            command, capture_output=True, env=environment, timeout=4 * seconds, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise DataError(source, f"reading it took more than {4 * seconds} seconds") from error
    lines = done.stdout.decode(errors="replace").splitlines()
    outcome: dict[str, Any] = json.loads(lines[-1]) if lines and done.returncode in (0, 1) else {}
    if done.returncode == 0:
        return outcome
    if outcome.get("why"):
        raise DataError(source, outcome["why"])
    number = -done.returncode
    how = signal.Signals(number).name if number in list(signal.Signals) else f"{done.returncode}"
    last = "".join(done.stderr.decode(errors="replace").strip().splitlines()[-1:])[:200]
    raise DataError(
        source,
        f"reading it ended with {how}{': ' if last else ''}{last}; the file is broken, or needs "
        f"more than {memory / GIB:.1f} GiB (--memory)",
    )
