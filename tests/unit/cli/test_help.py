"""Help, versions and mistakes on the command line, all told without importing what runs."""

import os
import shlex
import subprocess
import sys

import click
import pytest

import fedpriv
from fedpriv.cli.main import commands, main

HEAVY = ("torch", "numpy", "hydra", "omegaconf", "flwr", "transformers", "ray", "matplotlib", "PIL")

QUICK = f"""
import sys
from fedpriv.cli.main import main
status = main(sys.argv[1:])
heavy = [name for name in {HEAVY} if name in sys.modules]
sys.exit(f"imported: {{heavy}}" if heavy else status)
"""


def every_command(command, path=()):
    """Yields each command below `command`, and itself, with the words that lead to it."""
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from every_command(inner, (*path, name))


COMMANDS = list(every_command(commands))


@pytest.mark.parametrize("path", [path for path, _ in COMMANDS], ids=" ".join)
def test_every_command_explains_itself_with_examples(path, capsys):
    assert main([*path, "--help"]) == 0
    told = capsys.readouterr()
    assert told.err == ""
    assert told.out.startswith(f"Usage: {' '.join(['fedpriv', *path])} ")
    assert "\nExamples:\n  fedpriv " in told.out
    assert main([*path, "-h"]) == 0
    assert capsys.readouterr() == told


EXAMPLES = [
    words
    for _, command in COMMANDS
    for line in command.epilog.replace("\\\n", " ").splitlines()
    if (words := shlex.split(line, comments=True)) and words[0] == "fedpriv"
]


@pytest.mark.parametrize("words", EXAMPLES, ids=" ".join)
def test_every_example_is_a_command_with_its_options(words):
    if "COMMAND" not in words:
        context = commands.make_context("fedpriv", words[1:])
        while isinstance(context.command, click.Group):
            name, command, rest = context.command.resolve_command(
                context, [*context._protected_args, *context.args]
            )
            context = command.make_context(name, rest, parent=context)


def test_commands_stand_under_headings(capsys):
    main(["--help"])
    out = capsys.readouterr().out
    headings = [line[:-1] for line in out.splitlines() if line.endswith(":") and line[0] != " "]
    expected = ["Options", "Experiments", "Finished runs", "Privacy budget"]
    assert headings == [
        *expected,
        "Data, models and disk space",
        "This machine, and a project of yours",
        "Examples",
    ]


@pytest.mark.parametrize(
    "arguments", [["--help"], ["run", "--help"], ["budget", "--help"], ["--version"], ["list"]]
)
def test_help_and_list_import_nothing_heavy(arguments):
    command = [sys.executable, "-c", QUICK, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "Usage: fedpriv"),
        (["rum"], "No such command 'rum'"),
        (["run"], "Missing argument 'NAME_OR_FILE'"),
        (["run", "quickstart", "--multi"], "No such option '--multi'"),
        (["data"], "Usage: fedpriv data"),
        (["list", "strategies"], "no config group 'strategies': expected one of attack, "),
    ],
)
def test_a_command_that_cannot_be_understood_ends_with_status_2(arguments, says, capsys):
    assert main(arguments) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert says in told.err


def test_flags_may_stand_anywhere(capsys):
    for order in (["-m", "nowhere", "seed=0,1"], ["nowhere", "seed=0,1", "--multirun"]):
        assert main(["run", *order]) == 2
        assert "nowhere: 1 mistake, nothing was started" in capsys.readouterr().err


def test_the_version_is_told(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"fedpriv {fedpriv.__version__}\n"


def test_the_package_is_a_command_too():
    command = [sys.executable, "-m", "fedpriv", "list", "strategy"]
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ), check=True)
    assert "  fedavg               " in done.stdout


@pytest.mark.parametrize("name", ["closed_form", "pmia", "cdmi"])
def test_the_settings_of_an_attack_are_those_that_it_takes(name, tmp_path, capsys):
    """Each that is told is taken, and each other one is refused."""
    from fedpriv.config import attack
    from fedpriv.runtime.refusals import Mistakes

    assert main(["attack", str(tmp_path), f"attack={name}", "--settings"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("attack ")
    told = {line.split()[0].partition(".")[0] for line in lines}
    other = {"rounds": "[1]", "known": "0.3", "every": "2", "epsilon": "0.5", "controls": "3"}
    for setting, value in other.items():
        order = [f"attack={name}", f"{setting}={value}"]
        if setting in told:
            attack.parse(order)
        else:
            with pytest.raises(Mistakes, match="nothing that this attack uses depends on it"):
                attack.parse(order)
    assert 0 < len(told & {*other}) < len(other)


def test_a_function_among_the_settings_is_told_by_its_path(tmp_path, capsys):
    assert main(["attack", str(tmp_path), "attack=extraction", "--settings"]) == 0
    out = capsys.readouterr().out
    assert "pii_class" in out
    assert "<function" not in out
    assert " at 0x" not in out
