"""Commands of Click whose help has headings and examples, and whose errors have no traceback."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from fedpriv.cli.endings import advice, explanation


class Command(click.Command):
    """A command whose function returns the exit status.

    The epilog holds examples, one a line, which are printed without wrapping. An error that the
    user can act on becomes a message on standard error and an exit status.
    """

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the options, each section under its heading."""
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

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Reads the words of the command; of `--rounds 3` it says how settings are typed."""
        words = [*args, "VALUE"]
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            names = [word.partition("=")[0] for word in words]
            takes = "overrides" in [one.name for one in self.params]
            if takes and error.option_name in names and not error.possibilities:
                at = names.index(error.option_name)
                setting = words[at] if "=" in words[at] else "=".join(words[at : at + 2])
                told = f"{error.message} Settings have no dashes: type {setting.lstrip('-')}."
                raise click.NoSuchOption(error.option_name, told, ctx=ctx) from error
            raise

    def invoke(self, ctx: click.Context) -> int:
        """Runs the command and returns its exit status."""
        words = ctx.params.get("overrides", ())
        try:
            if words:
                from fedpriv.config.overrides import check  # imports Hydra

                check(words, ctx.command_path, typed=bool(ctx.obj))
            status: int = super().invoke(ctx)
        except Exception as error:
            several: tuple[Path, ...] = ctx.params.get("run_dirs", ())
            run_dir = ctx.params.get("run_dir") or (several[0] if len(several) == 1 else None)
            explained = explanation(error, run_dir)
            if explained is None:
                raise
            status, message = explained
            print(f"{message}{advice(error)}", file=sys.stderr)
        return status


class Option(click.Option):
    """An option that the help shows in a named section.

    Attributes:
        section: the heading of that section.
    """

    def __init__(self, *arguments: Any, section: str, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.section = section


class Group(click.Group):
    """A group of commands, which the help shows in named sections.

    Attributes:
        sections: the commands under each heading, in the order of the help.
    """

    def __init__(self, *, sections: Mapping[str, Sequence[click.Command]], **settings: Any) -> None:
        every = [command for commands in sections.values() for command in commands]
        super().__init__(commands=every, **settings)
        self.sections = sections

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the commands, each section under its heading."""
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


run_dir = click.argument(
    "run_dir",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="RUN_DIR",
    help="The folder of a run.",
)
trust = click.option(
    "--trust",
    is_flag=True,
    help="Use the folder even if it was changed by hand, or names code that is not part of "
    "fedpriv. That code will be run.",
)
redacted = click.option(
    "--redacted",
    is_flag=True,
    help="Leave out pages, names, texts of documents and paths, so that the page may be passed on. "
    "Of one run or sweep it is report-redacted.html in its folder.",
)
show_settings = click.option(
    "--settings",
    "show_settings",
    is_flag=True,
    help="Show every setting with its value here and its meaning, and start nothing.",
)
