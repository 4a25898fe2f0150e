"""The command line of fedpriv.

Standard output carries the results, with the run folder on its last line; everything else goes to
standard error. The exit status is 0 if all is done, 1 if the run failed, 2 if it was refused before
it started, 130 if it was interrupted, 143 if it was terminated, and 141 if it is done but nobody
read the results to their end.

The modules of this package import torch and other heavy libraries inside the functions that need
them, so that help, completion and `fedpriv list` answer at once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import click
from click.shell_completion import shell_complete

import fedpriv
from fedpriv.cli import (
    assess,
    attack,
    audit,
    budget,
    clean,
    compare,
    doctor,
    listing,
    new,
    report,
    reproduce,
    run,
    sweep,
    verify,
)
from fedpriv.cli.command import Group
from fedpriv.cli.data import command as data
from fedpriv.cli.endings import (
    UNREAD,
    advice,
    interruption_status,
    raise_on_sigterm,
    tolerate_broken_pipes,
)
from fedpriv.cli.model import command as model
from fedpriv.runtime.terminal import visible_output

COMPLETE = "_FEDPRIV_COMPLETE"
"""The environment variable by which a shell asks for completions."""

SECTIONS = {
    "Experiments": [
        listing.command,
        run.run,
        run.resume,
        sweep.command,
        reproduce.command,
        assess.command,
    ],
    "Finished runs": [attack.command, report.command, compare.command, verify.command],
    "Privacy budget": [budget.command, audit.command],
    "Data, models and disk space": [data.command, model.command, clean.command],
    "This machine, and a project of yours": [doctor.command, new.command],
}


@click.group(
    cls=Group,
    sections=SECTIONS,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="""
        fedpriv list
        fedpriv run quickstart
        fedpriv run quickstart strategy=fl_provider_dp masking=on privacy.epsilon=4
        fedpriv resume runs/quickstart/2026-11-20_21-00-00
        fedpriv attack RUN_DIR attack=closed_form
        fedpriv sweep papers/gi_dqa/table_1
        fedpriv assess quickstart --plan
        eval "$(_FEDPRIV_COMPLETE=bash_source fedpriv)"   # Tab completes
    """,
)
@click.version_option(fedpriv.__version__, message="%(prog)s %(version)s")
def commands() -> None:
    """Simulate federated training of document models, attack it, and account for its privacy.

    COMMAND --help explains a command.
    """


@contextmanager
def owner_only() -> Iterator[None]:
    """Nobody else can read what a command writes, by whatever library, workers and processes."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit status."""
    # An experiment may name modules of the user. Appended, they shadow nothing.
    sys.path.append(os.getcwd())
    if instruction := os.environ.get(COMPLETE):
        return shell_complete(commands, {}, "fedpriv", COMPLETE, instruction)
    given = list(sys.argv[1:] if arguments is None else arguments)
    with owner_only(), tolerate_broken_pipes() as out, visible_output(), raise_on_sigterm():
        try:
            # Click's own `main` would handle interruptions and broken pipes in its own way.
            with commands.make_context("fedpriv", given, obj=arguments is None) as context:
                status: int = commands.invoke(context)
        except click.exceptions.Exit as end:  # after --help and --version
            status = end.exit_code
        except click.ClickException as error:
            error.show()
            status = error.exit_code
        except (KeyboardInterrupt, SystemExit) as end:
            interrupted = interruption_status(end)
            if interrupted is None:
                raise
            status = interrupted
            print(f"interrupted{advice(end)}", file=sys.stderr)
        out.flush()
    return UNREAD if out.lost and not status else status


if __name__ == "__main__":
    sys.exit(main())
