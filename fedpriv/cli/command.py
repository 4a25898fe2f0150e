"""Commands of Click whose help has headings and examples, and whose errors have no traceback."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from fedpriv.cli.endings import advice_with, explanation


class Command(click.Command):
    """A command that returns its exit status.

    Its epilog is a list of examples, printed as they stand. An error that a user can act on becomes
    a message on standard error and an exit status.
    """

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the options, under a heading for each of their sections."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record and not isinstance(parameter, click.Argument):
                heading = getattr(parameter, "section", "Options")
                sections.setdefault(heading, []).append(record)
        _write_sections(formatter, sections)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the examples."""
        _write_examples(formatter, self.epilog)

    def invoke(self, ctx: click.Context) -> int:
        """Carries out the command; returns its exit status."""
        try:
            status: int = super().invoke(ctx)
        except Exception as error:
            explained = explanation(error, ctx.params.get("run_dir"))
            if explained is None:
                raise
            status, message = explained
            print(f"{message}{advice_with(error)}", file=sys.stderr)
        return status


class Option(click.Option):
    """An option under a heading of its own.

    Attributes:
        section: the heading.
    """

    def __init__(self, *arguments: Any, section: str, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.section = section


class Group(click.Group):
    """A command that only has subcommands.

    Attributes:
        sections: the subcommands under each heading of the help, in order.
    """

    def __init__(self, *, sections: Mapping[str, Sequence[click.Command]], **settings: Any) -> None:
        every = [command for commands in sections.values() for command in commands]
        super().__init__(commands=every, **settings)
        self.sections = sections

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the subcommands under their headings."""
        rows = {
            heading: [(command.name or "", command.get_short_help_str(100)) for command in commands]
            for heading, commands in self.sections.items()
        }
        _write_sections(formatter, rows)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the examples."""
        _write_examples(formatter, self.epilog)


def _write_sections(
    formatter: click.HelpFormatter, sections: Mapping[str, Sequence[tuple[str, str]]]
) -> None:
    widest = max(len(name) for rows in sections.values() for name, _ in rows)
    for heading, rows in sections.items():
        with formatter.section(heading):
            formatter.write_dl([(name.ljust(widest), text) for name, text in rows])


def _write_examples(formatter: click.HelpFormatter, examples: str | None) -> None:
    with formatter.section("Examples"):
        for line in inspect.cleandoc(examples or "").splitlines():
            formatter.write(f"{' ' * formatter.current_indent}{line}\n")


def _folders(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> Any:
    return [CompletionItem(incomplete, type="dir")]


run_dir = click.argument(
    "run_dir", type=Path, metavar="RUN_DIR", shell_complete=_folders, help="Folder of a run."
)
trust = click.option(
    "--trust",
    is_flag=True,
    help="Use the folder even if it was changed, or names code that is not fedpriv's, which will "
    "then be run.",
)
