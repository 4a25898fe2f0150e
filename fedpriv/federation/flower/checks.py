"""What a strategy of one's own may ask for that nobody does: named before training, or at once."""

from __future__ import annotations

import inspect
import math
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, Message
from flwr.serverapp import strategy as stock
from flwr.serverapp.strategy import Strategy as FlowerStrategy

from fedpriv.federation.client import Client
from fedpriv.federation.messages import instruction_of, is_finite, to_vectors
from fedpriv.federation.strategy import Strategy
from fedpriv.runtime.refusals import Explained

OURS = Path(__file__).parents[2]

_EVALUATES = "clients evaluate nothing, and fedpriv evaluates the model on held-out documents"
NEVER_CALLED = {
    "start": "fedpriv has its own loop of rounds; move what it does into configure_train or "
    "aggregate_train",
    "configure_evaluate": _EVALUATES,
    "aggregate_evaluate": _EVALUATES,
    "summary": "the settings are in config.yaml",
}
"""Methods of Flower's strategies that the round loop does not call, and what there is instead."""

NEVER_USED = ("fraction_evaluate", "min_evaluate_nodes", "evaluate_metrics_aggr_fn")
"""Settings of Flower's strategies that only those methods read."""


class StrategyFailed(Explained, RuntimeError):
    """A strategy has raised an error, or asked for what nobody does."""

    def __init__(self, strategy: FlowerStrategy, round: int, why: str) -> None:
        super().__init__(f"strategy {type(strategy).__name__}, round {round}: {why}")


def never_called(strategy: FlowerStrategy) -> list[str]:
    """Returns what a strategy brings along and the round loop does not use, one line each."""
    name, usual = type(strategy).__name__, vars(stock.FedAvg())
    own = [
        method
        for method in NEVER_CALLED
        if method in vars(strategy) or not _known(getattr(type(strategy), method))
    ]
    lines = [f"strategy {name}: {one}() is not called: {NEVER_CALLED[one]}" for one in own]
    given = vars(strategy)
    changed = [
        one
        for one in NEVER_USED
        if one in given and given[one] is not usual[one] and given[one] != usual[one]
    ]
    # 0 says that clients shall not evaluate, as they do not.
    unused = [one for one in changed if given[one]]
    return [*lines, *(f"strategy {name}: {one} has no effect: {_EVALUATES}" for one in unused)]


def _known(function: Any) -> bool:
    return str(getattr(function, "__module__", "")).split(".")[0] in ("flwr", "fedpriv")


def check_followed(
    strategy: FlowerStrategy, round: int, messages: Iterable[Message], client: Client
) -> None:
    """Checks that the client half follows every setting that it is sent.

    It names them in a class variable `follows`; in a mapping, each is a number. A half that does
    not, and that was written for a strategy of fedpriv's kind, is believed to follow all.

    Raises:
        StrategyFailed: if it does not follow one, or one is no number where that is needed.
    """
    follows = getattr(client, "follows", None if isinstance(strategy, Strategy) else ())
    if follows is None:
        return
    for instruction in filter(None, map(instruction_of, messages)):
        for name, value in sorted(instruction.settings.items()):
            if name not in follows:
                raise StrategyFailed(strategy, round, unfollowed(name, client))
            number = isinstance(value, int | float) and math.isfinite(value)
            if not number and (isinstance(follows, Mapping) or isinstance(value, float)):
                why = (
                    f"it sends {name}={value!r:.60}: client {type(client).__name__} takes a number"
                )
                raise StrategyFailed(strategy, round, why)


def unfollowed(setting: str, client: Client) -> str:
    """Returns what is wrong with a setting that a client half does not follow."""
    known = ", ".join(getattr(client, "follows", ())) or "none"
    return (
        f"it sends the setting {setting!r}, which client {type(client).__name__} does not follow "
        f"(it follows {known}); set it in the client half, or write a half with `follows`"
    )


def check_model(strategy: FlowerStrategy, round: int, made: ArrayRecord, now: ArrayRecord) -> None:
    """Checks that a strategy's new model has the vectors of the one before, and is finite.

    Raises:
        StrategyFailed: if it has others, other shapes, or numbers that are not finite.
    """
    found, wanted = ({n: tuple(a.shape) for n, a in arrays.items()} for arrays in (made, now))
    if found != wanted:
        why = f"the model that it returned has vectors of the shapes {found}: expected {wanted}"
        raise StrategyFailed(strategy, round, why)
    if _known(type(strategy)):  # whose sums of what clients send are finite, as each of that is
        return
    vectors = to_vectors(made).values()
    if not all(is_finite(one) for one in vectors if one.is_floating_point()):
        raise StrategyFailed(strategy, round, "the model that it returned has NaN or infinity")


@contextmanager
def blaming(strategy: FlowerStrategy, round: int) -> Iterator[None]:
    """Turns an error that a strategy of somebody else raises into one line, with its place.

    Errors of the loop, which a strategy passes on while it takes the replies, stay as they are.

    Raises:
        StrategyFailed: in place of the strategy's own error.
    """
    try:
        yield
    except Exception as error:
        place = None if _known(type(strategy)) else _place_in(strategy, error)
        if place is None:
            raise
        raise failed(strategy, round, error) from error


def failed(strategy: FlowerStrategy, round: int, error: Exception) -> StrategyFailed:
    """Returns a strategy's own error as one line, with its place."""
    place, why = _place_in(strategy, error), str(error).partition("\n")[0]
    said = f"{type(error).__name__}: {why}" if why else type(error).__name__
    return StrategyFailed(strategy, round, f"{said} ({place})" if place else said)


def _place_in(strategy: FlowerStrategy, error: Exception) -> str | None:
    """Returns where a strategy's file raised an error; None if ours did, further in."""
    try:
        own = inspect.getfile(type(strategy))
    except (OSError, TypeError):  # of a notebook
        own = ""
    frames = traceback.extract_tb(error.__traceback__)
    within = [f for f in frames if f.filename == own or Path(f.filename).is_relative_to(OURS)]
    last = within[-1] if within else None
    return f"{last.filename}, line {last.lineno}" if last and last.filename == own else None
