"""`fedpriv budget` on the command line."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fedpriv.cli.command import Command, Option

if TYPE_CHECKING:
    from fedpriv.federation.plan import Plan

SECTIONS: dict[str, tuple[tuple[str, str, Callable[[str], Any], str], ...]] = {
    "What to find": (
        ("noise_multiplier", "S", float, "Standard deviation of the noise on the sum, divided by "
         "the clip norm."),
        ("epsilon", "E", float, "Find the noise that reaches this epsilon in --view. With "
         "--noise-multiplier, and without --rounds or --record-rate, find those instead."),
        ("view", "V", str, "The observer that --epsilon is for: paper, global, server_masked or "
         "server_plain."),
        ("delta", "D", float, "The delta of (epsilon, delta), such as 1e-5."),
        ("accountant", "A", str, "The accountant that searches: pld (default), rdp, prv, gdp or "
         "prv_opacus."),
        ("group_size", "N", int, "Records in the protected unit, such as 3 for a document of 3 "
         "windows."),
    ),
    "Sampling": (
        ("client_rate", "QC", float, "Probability that a client is drawn for a round."),
        ("record_rate", "QM", float, "Probability that a record of a drawn client enters."),
        ("rounds", "T", int, "Rounds, each of which releases a noisy sum."),
        ("examples", "N", int, "Training examples of all clients; with --batch-size, they give the "
         "record rate."),
        ("batch_size", "B", float, "Examples expected in a round, from all clients together."),
        ("epochs", "E", float, "How often each example is drawn on average; gives the rounds."),
        ("clients", "N", int, "Clients of the federation, which share the noise."),
        ("sampling", "HOW", str, "How clients are drawn: poisson (default), or fixed, the same "
         "number in every round."),
        ("cohort", "K", int, "Clients in every round, under fixed sampling; replaces --clients."),
        ("steps", "T", int, "Noisy steps of a client in a round, if each client protects itself "
         "(FedAvg-DP)."),
        ("bands", "B", int, "Rounds that a contribution reaches (provider_bandmf); a record has "
         "its turn in one round of B, with B times the record rate."),
    ),
    "Secure aggregation": (
        ("threshold", "F", float, "Share of the cohort whose noise must suffice (default 1)."),
        ("dropouts", "F", float, "Share or number of a cohort that may drop out; this gives the "
         "threshold."),
        ("colluders", "K", int, "Clients that reveal their noise to the masked server."),
    ),
    "Signal and traffic": (
        ("units_per_client", "M", float, "Examples or suppliers that a client holds."),
        ("parameters", "D", int, "Parameters that are trained and sent."),
        ("clip_norm", "C", float, "Clip norm of the contribution of one unit (default 1)."),
    ),
}  # fmt: skip
"""Name, metavar, type and help of each number that may be given, by section of the help."""

OPTIONS = [row for rows in SECTIONS.values() for row in rows]


@click.command(
    "budget",
    cls=Command,
    # Numbers are read as text, because Click would stop at the first that is wrong.
    params=[
        Option([f"--{name.replace('_', '-')}"], metavar=letter, help=text, section=section)
        for section, rows in SECTIONS.items()
        for name, letter, _, text in rows
    ],
    epilog="""
        fedpriv budget --noise-multiplier 1 --client-rate 0.5 --record-rate 1 \\
            --rounds 10 --delta 1e-5
        fedpriv budget --epsilon 8 --view server_masked --client-rate 0.5 \\
            --record-rate 1 --rounds 10 --delta 1e-5
        fedpriv budget runs/first runs/second
    """,
)
@click.argument("runs", nargs=-1, type=Path, metavar="[RUN_DIR]...", help="Folders of runs.")
@click.option(
    "--masked",
    is_flag=True,
    cls=Option,
    section="Secure aggregation",
    help="Use secure aggregation, and say what it costs.",
)
@click.option(
    "--discrete",
    is_flag=True,
    cls=Option,
    section="Secure aggregation",
    help="With --masked: noise of whole numbers in 16 bits (masking.mechanism=discrete).",
)
@click.option("--by-round", is_flag=True, help="Also print epsilon after earlier rounds.")
@click.option(
    "--plot", type=Path, metavar="FILE", help="Draw epsilon by round, as .png, .pdf or .svg."
)
@click.option("--json", "in_json", is_flag=True, help="Print JSON.")
def command(
    runs: tuple[Path, ...],
    masked: bool,
    discrete: bool,
    by_round: bool,
    plot: Path | None,
    in_json: bool,
    **numbers: str | None,
) -> int:
    """Convert noise to epsilon and back, for four observers.

    Without RUN_DIR, prints epsilon of a planned run by four accountants for four observers. With
    folders of runs, prints the joint epsilon of those that used the same data. In JSON, null means
    that there is no value (the reason stands beside it), and the string "inf" means no privacy.
    """
    from fedpriv.cli import budget_page
    from fedpriv.federation.budget import budget
    from fedpriv.federation.plan import BudgetMistakes

    try:
        if runs:
            from fedpriv.privacy.joint import joint_budget

            given = [name for name, value in numbers.items() if value is not None]
            if given or masked or discrete or by_round or plot:
                names = ", ".join(f"--{name.replace('_', '-')}" for name in given) or "options"
                raise BudgetMistakes(
                    [f"{names}: already fixed by the runs; with RUN_DIR only --json may be given"]
                )
            answer = joint_budget(runs)
            print((budget_page.as_json if in_json else budget_page.as_joint_table)(answer))
            return 0
        if plot and not plot.absolute().parent.is_dir():
            raise BudgetMistakes([f"plot={plot}: there is no folder {plot.parent}"])
        if plot and plot.suffix not in (".png", ".pdf", ".svg"):
            raise BudgetMistakes([f"plot={plot}: expected a name that ends in .png, .pdf or .svg"])
        answer = budget(_plan(numbers, masked=masked, discrete=discrete), by_round=by_round)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    print((budget_page.as_json if in_json else budget_page.as_table)(answer))
    if plot:
        budget_page.plot(answer, plot)
        print(f"plot: {plot}", file=sys.stderr)
    return 0


def _plan(numbers: dict[str, str | None], **flags: bool) -> Plan:
    """Reads the plan from text, and takes the flags as they are.

    Raises:
        BudgetMistakes: if any text is not a number; lists everything that is wrong.
    """
    from fedpriv.federation.plan import BudgetMistakes, Plan

    known: dict[str, Any] = {"delta": None, **flags}
    wrong = {}
    for name, _, kind, _ in OPTIONS:
        text = numbers[name]
        try:
            if text is not None:
                known[name] = kind(text)
        except ValueError:
            wanted = "a whole number" if kind is int else "a number"
            wrong[name] = f"{name}={text!r}: expected {wanted}"
    if known["delta"] is None and "delta" not in wrong:
        wrong["delta"] = "delta: must be given"
    plan = Plan(**known)
    if wrong:
        # A number that could not be read is not reported once more as missing.
        found = plan.mistakes()
        found = [m for m in found if not wrong.keys() & set(re.split("[=:]| or ", m)[:2])]
        raise BudgetMistakes([*wrong.values(), *found])
    return plan
