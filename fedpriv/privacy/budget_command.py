"""`fedpriv budget` on the command line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

REQUIRED = ("client_rate", "record_rate", "rounds", "delta")

OPTIONS: tuple[tuple[str, str, Callable[[str], Any], str], ...] = (
    ("noise_multiplier", "S", float, "standard deviation of the noise on the sum / clip norm"),
    ("epsilon", "E", float, "instead: find the noise multiplier for this epsilon in --view"),
    ("view", "V", str, "paper, global, server_masked or server_plain"),
    ("client_rate", "QC", float, "probability that a client is drawn for a round"),
    ("record_rate", "QM", float, "probability that a record of a drawn client enters"),
    ("rounds", "T", int, "releases of a noisy sum"),
    ("delta", "D", float, "such as 1e-5"),
    ("cohort", "K", int, "clients that share the noise; server_plain needs it"),
    ("accountant", "A", str, "that calibrates: pld (default), rdp, prv, gdp, prv_opacus"),
    ("group_size", "N", int, "records of the protected unit, a document of 3 windows: 3"),
)


def register(commands: Any) -> None:
    """Adds `budget` to the subcommands of a parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "budget",
        help="noise multiplier to epsilon and back, against four onlookers",
        description="Epsilon of a run by four accountants in four views. In JSON, null is no "
        'value (its reason stands beside it) and the string "inf" is no privacy.',
    )
    for name, letter, _, text in OPTIONS:
        # Read as text: argparse would stop at the first number that is none.
        parser.add_argument(f"--{name.replace('_', '-')}", metavar=letter, help=text)
    parser.add_argument("--by-round", action="store_true", help="also epsilon on the way")
    parser.add_argument("--plot", metavar="FILE", type=Path, help="draw epsilon by round")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Prints the answer; returns 0, or 2 after telling every mistake on standard error."""
    from fedpriv.privacy import budget_page
    from fedpriv.privacy.budget import BudgetMistakes, budget

    try:
        if options.plot and (wrong := _plot_problem(options.plot)):
            raise BudgetMistakes([wrong])
        answer = budget(**_question(options), by_round=options.by_round)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    print(budget_page.as_json(answer) if options.json else budget_page.as_table(answer))
    if options.plot:
        budget_page.plot(answer, options.plot)
        print(f"plot: {options.plot}", file=sys.stderr)
    return 0


def _plot_problem(path: Path) -> str | None:
    if not path.absolute().parent.is_dir():
        return f"plot={path}: there is no folder {path.parent}"
    if path.suffix not in (".png", ".pdf", ".svg"):
        return f"plot={path}: expected a name that ends in .png, .pdf or .svg"
    return None


def _question(options: argparse.Namespace) -> dict[str, Any]:
    from fedpriv.privacy.budget import BudgetMistakes, mistakes

    question: dict[str, Any] = {name: None for name, *_ in OPTIONS}
    question.update(accountant="pld", group_size=1)
    wrong = {}
    for name, _, kind, _ in OPTIONS:
        given = getattr(options, name)
        try:
            question[name] = question[name] if given is None else kind(given)
        except ValueError:
            wanted = "a whole number" if kind is int else "a number"
            wrong[name] = f"{name}={given!r}: expected {wanted}"
            question[name] = given
    wrong |= {n: f"{n}: must be given" for n in REQUIRED if question[n] is None}
    found = [m for m in mistakes(question) if m.split("=")[0] not in wrong]
    if wrong:
        raise BudgetMistakes([*wrong.values(), *found])
    return question
