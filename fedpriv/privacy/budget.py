"""Noise to ε and ε to noise, in all four views: what `fedpriv budget` answers.

>>> answer = budget(
...     noise_multiplier=0.771484375, client_rate=0.2, record_rate=1, rounds=10, delta=1e-5
... )
>>> round(answer["views"]["server_masked"]["pld"], 1)
14.5
"""

from __future__ import annotations

import math
from typing import Any

from fedpriv.privacy import accounting, views
from fedpriv.privacy.event import (
    Event,
    NotAvailable,
    count_problem,
    delta_problem,
    noise_problem,
    rate_problem,
)

Answer = dict[str, Any]

POINTS = 12
"""Rounds at which ε by round is told."""


class BudgetMistakes(ValueError):
    """Everything that is wrong with a question, at once."""

    def __init__(self, mistakes: list[str]) -> None:
        self.mistakes = mistakes
        plural = "mistake" if len(mistakes) == 1 else "mistakes"
        super().__init__(f"budget: {len(mistakes)} {plural}\n  " + "\n  ".join(mistakes))


def budget(
    *,
    client_rate: float,
    record_rate: float,
    rounds: int,
    delta: float,
    noise_multiplier: float | None = None,
    epsilon: float | None = None,
    view: str | None = None,
    cohort: int | None = None,
    accountant: str = "pld",
    group_size: int = 1,
    by_round: bool = False,
) -> Answer:
    """Returns ε of a run by every accountant in every view.

    Args:
        client_rate: probability that a client is drawn for a round, in [0, 1].
        record_rate: probability that a record of a drawn client enters, in [0, 1].
        rounds: releases of a noisy sum, >= 0.
        delta: in (0, 1).
        noise_multiplier: standard deviation of the noise on the sum ÷ clip norm.
        epsilon: instead of it: find the noise whose ε in `view` is at most this, within .01.
        view: the view that `epsilon` is for, one of `VIEWS`.
        cohort: clients that share the noise; without it there is no `server_plain`.
        accountant: that calibrates, and that ε by round is told by.
        group_size: records of the protected unit.
        by_round: also tell ε after up to 12 rounds on the way, in "by_round".

    Returns:
        The inputs, and in "views" per view: ε by accountant (∞ without noise, None where there
        is none), "reasons" by accountant, whether it is a "guarantee", and a "note".

    Raises:
        BudgetMistakes: (a ValueError) inputs out of range or at odds with each other, all told.
        NotAvailable: (a ValueError) the accountant cannot calibrate here; says why.
    """
    question = _checked(
        noise_multiplier=noise_multiplier,
        client_rate=client_rate,
        record_rate=record_rate,
        rounds=rounds,
        delta=delta,
        cohort=cohort,
        group_size=group_size,
        epsilon=epsilon,
        view=view,
        accountant=accountant,
    )
    if noise_multiplier is None:
        question["noise_multiplier"] = _noise_for(question)
    answer = {**question, "views": _views(question)}
    if by_round:
        answer["by_round"] = epsilon_by_round(answer)
    return answer


def calibrate(
    epsilon: float,
    delta: float,
    *,
    rounds: int,
    view: str,
    client_rate: float,
    record_rate: float,
    cohort: int | None = None,
    accountant: str = "pld",
    group_size: int = 1,
) -> float:
    """Returns the noise multiplier whose ε in `view` is in [epsilon - .01, epsilon].

    The arguments are those of `budget`, and so are the errors.
    """
    question = _checked(
        noise_multiplier=None,
        client_rate=client_rate,
        record_rate=record_rate,
        rounds=rounds,
        delta=delta,
        cohort=cohort,
        group_size=group_size,
        epsilon=epsilon,
        view=view,
        accountant=accountant,
    )
    return _noise_for(question)


def _checked(**question: Any) -> Answer:
    """Returns the question, if nothing is wrong with it.

    Raises:
        BudgetMistakes: with everything that is.
    """
    wrong = mistakes(question)
    if wrong:
        raise BudgetMistakes(wrong)
    return question


def mistakes(question: Answer) -> list[str]:
    """Returns everything that is wrong with a question to `budget`."""
    found = [
        rate_problem("client_rate", question["client_rate"]),
        rate_problem("record_rate", question["record_rate"]),
        count_problem("rounds", question["rounds"], least=0),
        delta_problem("delta", question["delta"]),
        count_problem("group_size", question["group_size"], least=1),
        None if question["cohort"] is None else count_problem("cohort", question["cohort"], 1),
        *_target_problems(question),
    ]
    return [problem for problem in found if problem]


def _target_problems(question: Answer) -> list[str | None]:
    noise, epsilon, view = (question[key] for key in ("noise_multiplier", "epsilon", "view"))
    known = (*accounting.ACCOUNTANTS, accounting.OPACUS)
    name = question["accountant"]
    found = [None if name in known else f"accountant={name!r}: one of {', '.join(known)}"]
    if view is not None and view not in views.VIEWS:
        found.append(f"view={view!r}: expected one of {', '.join(views.VIEWS)}")
    if (noise is None) == (epsilon is None):
        found.append("noise_multiplier or epsilon: one of the two must be given, and only one")
    if noise is not None:
        found.append(noise_problem("noise_multiplier", noise))
    if epsilon is not None:
        found.append(_epsilon_problem(epsilon))
        if view is None:
            found.append(f"view: epsilon is for one of {', '.join(views.VIEWS)}; say which")
        if view == "server_plain" and question["cohort"] is None:
            found.append("cohort: view=server_plain needs how many clients share the noise")
    return found


def _epsilon_problem(epsilon: object) -> str | None:
    ok = noise_problem("epsilon", epsilon) is None and epsilon != 0
    return None if ok else f"epsilon={epsilon!r}: expected a finite number > 0"


def _noise_for(question: Answer) -> float:
    def history(sigma: float) -> accounting.History:
        event = _seen(question, sigma)[question["view"]].event
        return [(event, question["rounds"])] if event else []

    return accounting.noise_multiplier(
        history, question["epsilon"], question["delta"], question["accountant"]
    )


def _seen(question: Answer, sigma: float) -> dict[str, views.View]:
    return views.view_events(
        question["client_rate"],
        question["record_rate"],
        sigma,
        question["cohort"],
        question["group_size"],
    )


def _views(question: Answer) -> dict[str, Answer]:
    seen = _seen(question, question["noise_multiplier"])
    told: dict[Event, dict[str, accounting.Estimate]] = {}
    answer = {}
    for name, view in seen.items():
        if view.event is None:
            estimates = dict.fromkeys(
                accounting.ACCOUNTANTS, accounting.Estimate(None, view.reason)
            )
        else:
            if view.event not in told:
                history = [(view.event, question["rounds"])]
                told[view.event] = accounting.estimates(history, question["delta"])
            estimates = told[view.event]
        answer[name] = {
            **{accountant: found.epsilon for accountant, found in estimates.items()},
            "reasons": {a: found.reason for a, found in estimates.items() if found.reason},
            "guarantee": view.guarantee,
            "note": view.note,
        }
    return answer


def epsilon_by_round(answer: Answer, points: int = POINTS) -> list[Answer]:
    """Returns ε of each view after some of the rounds, the last one included.

    Args:
        answer: what `budget` returned; ε is by its accountant.
        points: at how many rounds, at most.
    """
    last = answer["rounds"]
    rounds = sorted({math.ceil(last * k / points) for k in range(1, points + 1)})
    seen = _seen(answer, answer["noise_multiplier"])
    return [
        {"round": n, **{name: _after(view, n, answer) for name, view in seen.items()}}
        for n in rounds
    ]


def _after(view: views.View, rounds: int, answer: Answer) -> float | None:
    if view.event is None:
        return None
    try:
        history = [(view.event, rounds)]
        return accounting.epsilon(history, answer["delta"], answer["accountant"])
    except NotAvailable:
        return None
