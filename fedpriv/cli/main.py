"""The command line of fedpriv.

Standard output carries results, the run folder on its last line; everything else goes to
standard error. Exit status: 0 done, 1 the run failed, 2 the experiment is wrong, 130 interrupted,
143 terminated, 141 done but nobody read the results to their end.

Modules of this package import torch and the like inside the functions that need them, so that help,
completion and `fedpriv list` answer at once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click
from click.shell_completion import shell_complete

import fedpriv
from fedpriv.cli import attack, budget, clean, listing, report, run, verify
from fedpriv.cli.command import Group
from fedpriv.cli.data import command as data
from fedpriv.cli.endings import UNHEARD, advice_with, ending_on_sigterm, status_of, unbroken_output
from fedpriv.runtime.terminal import visible_output

COMPLETE = "_FEDPRIV_COMPLETE"
"""The environment variable by which a shell asks for completions."""

SECTIONS = {
    "Experiments": [listing.command, run.run, run.resume],
    "Finished runs": [attack.command, report.command, verify.command],
    "Privacy budget": [budget.command],
    "Data and disk space": [data.command, clean.command],
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
        fedpriv COMMAND --help
        eval "$(_FEDPRIV_COMPLETE=bash_source fedpriv)"   # Tab completes; also zsh_source
    """,
)
@click.version_option(fedpriv.__version__, message="%(prog)s %(version)s")
def commands() -> None:
    """Simulate federated training of document models, attack it, and account for its privacy."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit status."""
    # So that an experiment can name modules of the user's; appended, so it can shadow nothing.
    sys.path.append(os.getcwd())
    if instruction := os.environ.get(COMPLETE):
        return shell_complete(commands, {}, "fedpriv", COMPLETE, instruction)
    given = list(sys.argv[1:] if arguments is None else arguments)
    with unbroken_output() as out, visible_output(), ending_on_sigterm():
        try:
            # Click's own `main` would turn an interruption and a broken pipe into its own endings.
            with commands.make_context("fedpriv", given) as context:
                status: int = commands.invoke(context)
        except click.exceptions.Exit as end:  # after --help and --version
            status = end.exit_code
        except click.ClickException as error:
            error.show()
            status = error.exit_code
        except (KeyboardInterrupt, SystemExit) as end:
            interrupted = status_of(end)
            if interrupted is None:
                raise
            status = interrupted
            print(f"interrupted{advice_with(end)}", file=sys.stderr)
        out.flush()
    return UNHEARD if out.lost and not status else status


if __name__ == "__main__":
    sys.exit(main())
