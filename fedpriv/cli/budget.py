"""`fedpriv budget` on the command line."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

OPTIONS: tuple[tuple[str, str, Callable[[str], Any], str], ...] = (
    ("noise_multiplier", "S", float, "standard deviation of the noise on the sum / clip norm"),
    ("epsilon", "E", float, "instead: find the noise for this epsilon in --view; with the noise, "
     "and without --rounds or --record-rate: find how many rounds, or which rate"),
    ("view", "V", str, "paper, global, server_masked or server_plain"),
    ("client_rate", "QC", float, "probability that a client is drawn for a round"),
    ("record_rate", "QM", float, "probability that a record of a drawn client enters"),
    ("rounds", "T", int, "releases of a noisy sum"),
    ("delta", "D", float, "such as 1e-5"),
    ("examples", "N", int, "of all clients; with --batch-size they give the record rate"),
    ("batch_size", "B", float, "examples expected in a round, of all clients together"),
    ("epochs", "E", float, "times that each example is drawn, on average; give the rounds"),
    ("clients", "N", int, "of the federation; they tell how many share the noise"),
    ("sampling", "HOW", str, "of clients: poisson (default), or fixed, the same number every time"),
    ("cohort", "K", int, "instead of --clients: clients in every round (fixed sampling)"),
    ("threshold", "F", float, "share of the cohort whose noise must suffice (default 1)"),
    ("dropouts", "F", float, "share or number of a cohort that may stay away: gives the threshold"),
    ("colluders", "K", int, "clients that tell the masked server their noise"),
    ("steps", "T", int, "noisy steps of a client in a round that protects itself (FedAvg-DP)"),
    ("units_per_client", "M", float, "examples, or providers, that a client holds"),
    ("parameters", "D", int, "that are trained and sent: signal against noise, traffic"),
    ("clip_norm", "C", float, "of one unit's contribution (default 1)"),
    ("accountant", "A", str, "that finds: pld (default), rdp, prv, gdp, prv_opacus"),
    ("group_size", "N", int, "records of the protected unit, a document of 3 windows: 3"),
)  # fmt: skip
DEFAULTS = {"accountant": "pld", "group_size": 1, "clip_norm": 1.0}


def register(commands: Any) -> None:
    """Adds `budget` to the subcommands of a parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "budget",
        help="noise multiplier to epsilon and back, against four onlookers",
        description="Epsilon of a run by four accountants in four views. In JSON, null is no "
        'value (its reason stands beside it) and the string "inf" is no privacy. Given folders of '
        "runs instead: epsilon of all of them together, where they used the same data.",
    )
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUN", help="folders of runs")
    for name, letter, _, text in OPTIONS:
        # Read as text: argparse would stop at the first number that is none.
        parser.add_argument(f"--{name.replace('_', '-')}", metavar=letter, help=text)
    parser.add_argument("--masked", action="store_true", help="secure aggregation: what it costs")
    parser.add_argument("--by-round", action="store_true", help="also epsilon on the way")
    parser.add_argument("--plot", metavar="FILE", type=Path, help="draw epsilon by round")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Prints the answer; returns 0, or 2 after telling every mistake on standard error."""
    from fedpriv.cli import budget_page
    from fedpriv.federation.budget import BudgetMistakes, budget

    try:
        if options.runs:
            return _together(options)
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


def _together(options: argparse.Namespace) -> int:
    """Prints ε of several runs on the same data."""
    from fedpriv.cli import budget_page
    from fedpriv.federation.budget import BudgetMistakes
    from fedpriv.privacy.joint import joint_budget

    given = [name for name, *_ in OPTIONS if getattr(options, name) is not None]
    if given or options.masked or options.by_round or options.plot:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in given) or "options"
        raise BudgetMistakes([f"{names}: runs have their own; with RUN only --json may be given"])
    answer = joint_budget(options.runs)
    print(budget_page.as_json(answer) if options.json else budget_page.as_joint_table(answer))
    return 0


def _plot_problem(path: Path) -> str | None:
    if not path.absolute().parent.is_dir():
        return f"plot={path}: there is no folder {path.parent}"
    if path.suffix not in (".png", ".pdf", ".svg"):
        return f"plot={path}: expected a name that ends in .png, .pdf or .svg"
    return None


def _question(options: argparse.Namespace) -> dict[str, Any]:
    from fedpriv.federation.budget import BudgetMistakes, mistakes

    question: dict[str, Any] = {name: DEFAULTS.get(name) for name, *_ in OPTIONS}
    question["masked"] = options.masked
    wrong = {}
    for name, _, kind, _ in OPTIONS:
        given = getattr(options, name)
        try:
            question[name] = question[name] if given is None else kind(given)
        except ValueError:
            wanted = "a whole number" if kind is int else "a number"
            wrong[name] = f"{name}={given!r}: expected {wanted}"
    if question["delta"] is None and "delta" not in wrong:
        wrong["delta"] = "delta: must be given"
    # What could not be read is missing in the question, but that is not what is wrong with it.
    found = [m for m in mistakes(question) if not wrong.keys() & set(re.split("[=:]| or ", m)[:2])]
    if wrong:
        raise BudgetMistakes([*wrong.values(), *found])
    return question
