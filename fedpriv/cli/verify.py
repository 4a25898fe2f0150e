"""`fedpriv verify RUN_DIR`: is everything in a run folder as fedpriv wrote it?"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from fedpriv.cli.command import Command, run_dir


@click.command("verify", cls=Command, epilog="fedpriv verify runs/quickstart/2026-11-20_21-00-00")
@run_dir
def command(run_dir: Path) -> int:
    """Print who did what with a run folder, and what was changed in it since.

    The exit status is 0 if nothing was changed, else 1.
    """
    from fedpriv.report.wording import counted
    from fedpriv.runtime import run_files, run_lock
    from fedpriv.runtime.verify import CONFIG, RETRAINED, check

    if not (run_dir / CONFIG).is_file():
        print(f"{run_dir} is not a run folder: it has no {CONFIG}", file=sys.stderr)
        return 2
    if who := run_lock.holder(run_dir):
        print(f"{who} is writing: this may be out of date already", file=sys.stderr)
    changed = False
    folders = [run_dir]  # and below them the variants that an attack trained
    while folders:
        root = folders.pop(0)
        found = check(root)
        problems = found.problems()
        for line in (*found.history, *found.notes, *problems):
            print(line)
        verdict = counted(len(problems), "change") if problems else "untouched"
        print(f"{root}: {verdict}; {counted(found.files, 'file')} unchanged; log {found.head}")
        changed = changed or bool(problems)
        trainings = (root / RETRAINED / name for name in run_files.names(root, RETRAINED))
        folders[:0] = [path for path in trainings if (path / CONFIG).is_file()]
    return 1 if changed else 0
