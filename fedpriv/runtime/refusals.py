"""Errors that end a command with a message in place of a traceback, and what a slip had meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


class Refused(ValueError):
    """Nothing was started, for a reason that the user can change; a command ends with status 2."""


class Failed(RuntimeError):
    """Something that was started has failed for a known reason; a command ends with status 1."""


class Explained(Exception):
    """The same, in words that need no name of the error before them."""


class Unfit(Refused):
    """The parts or the data of an experiment do not fit, which is found before any training.

    Attributes:
        problems: one for each mistake.
        hint: what can be done about them; empty if there is nothing to advise.
    """

    problems: list[str]
    hint: str = ""


class Mistakes(Refused):
    """Everything that is wrong with what a command was given, each with its place.

    Args:
        source: of the mistakes, such as the name of an experiment.
        problems: a line each.
    """

    def __init__(self, source: str, problems: Sequence[str]) -> None:
        self.problems = list(problems)
        plural = "mistake" if len(problems) == 1 else "mistakes"
        lines = "\n".join(f"  {problem}" for problem in problems)
        super().__init__(f"{source}: {len(problems)} {plural}, nothing was started\n{lines}")


def near(word: object, known: Iterable[str]) -> str:
    """Returns what could have been meant, as the end of an error message; empty if nothing.

    >>> near("fedag", ["fedavg", "fedsgd"]), near("sever", ["server_membership"]), near("x", [])
    ("; did you mean 'fedavg'?", "; did you mean 'server_membership'?", '')
    """
    text, names = str(word), list(known)
    beginnings = {name[: len(text)]: name for name in reversed(names)}
    close = difflib.get_close_matches(text, names, n=1, cutoff=0.6)
    begun = difflib.get_close_matches(text, beginnings, n=1, cutoff=0.75)
    found = close or [beginnings[one] for one in begun]
    return f"; did you mean {found[0]!r}?" if found else ""
