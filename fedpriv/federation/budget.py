"""Noise to ε, ε to noise, rounds or rates, in all four views: what `fedpriv budget` answers.

>>> plan = Plan(
...     noise_multiplier=0.771484375, client_rate=0.2, record_rate=1, rounds=10, delta=1e-5
... )
>>> round(budget(plan)["views"]["server_masked"]["pld"], 1)
14.5
"""

from __future__ import annotations

import math
from dataclasses import asdict, fields, replace
from typing import Any

from fedpriv.federation.plan import BudgetMistakes, Plan, PlannedRun
from fedpriv.federation.secagg.protocol import KEY_BYTES
from fedpriv.federation.secagg.ring import MODULUS, coordinate_bound
from fedpriv.federation.secagg.shamir import SHARE_BYTES
from fedpriv.privacy import banded
from fedpriv.privacy.accounting import accountants, ceiling
from fedpriv.privacy.accounting.event import Event, History
from fedpriv.privacy.discrete import BITS, Steps
from fedpriv.privacy.mechanism import MOST_ROUNDS
from fedpriv.privacy.noise import share_std
from fedpriv.privacy.signal import Signal, turnless
from fedpriv.privacy.views import with_shares_known

Answer = dict[str, Any]

POINTS = 12
"""Rounds at which ε by round is given."""

ROWS = 16
"""Up to this many shares, every number of colluders has a row. Above, only powers of two, the
number that was asked for and the largest do."""

COARSE = 4
"""Steps of the ring in a share's standard deviation; below, rounding is no longer small to it."""

BOX_BYTES = 2 * SHARE_BYTES + 16
"""Two shares and the tag of their encryption."""


def budget(plan: Plan, *, by_round: bool = False) -> Answer:
    """Returns ε of a planned run by every accountant in every view.

    Args:
        plan: the run; what it leaves out is found for its `epsilon`.
        by_round: also give ε after up to 12 rounds on the way, in "by_round".

    Returns:
        The plan by name, with what was found or follows from the rest, and

        - "views" per view: ε by accountant (∞ without noise, None where there is none), "reasons"
          by accountant, whether it is a "guarantee", the "ceiling" of any attack on one unit (None
          where there is none), and a "note";
        - "by_colluders", where they can be told and `masked` or `colluders` are given;
        - "signal", where parameters and units are given: units of a round, the ratio of signal to
          noise "per_round" and "over_run", and "lines" that say it;
        - "traffic", where `masked` and parameters are given, and "warnings";
        - "without_bands", of a plan with bands: the "noise_multiplier" that the run has without
          them at the same ε of the global models, and "noise_left", the noise in the model as a
          share of that run's;
        - "whole_numbers", of a discrete plan: how many times the "noise" is as large for its
          rounding, and how many "steps" of the ring a client's share of it is wide.

    Raises:
        BudgetMistakes: (a ValueError) inputs out of range or at odds with each other, all of them.
        NotAvailable: (a ValueError) the accountant cannot find what was left out; says why.
        ValueError: nothing that could be found would hold ε.
    """
    if wrong := plan.mistakes():
        raise BudgetMistakes(wrong)
    run = plan.completed()

    def history(sigma: float) -> History:
        return _history(replace(run, noise_multiplier=sigma), str(plan.view))

    if plan.epsilon is not None and plan.view is not None:
        if plan.noise_multiplier is None:
            asked = (plan.epsilon, run.delta, run.accountant)  # noise for it, to a hundredth of ε
            run = replace(run, noise_multiplier=accountants.noise_multiplier(history, *asked))
        elif plan.rounds is None and plan.epochs is None:
            run = _with_rounds(run, plan.epsilon, plan.view)
        else:
            run = _with_rate(run, plan.epsilon, plan.view)
    answer = {**asdict(run), "views": _views(run), "warnings": _warnings(run)}
    if run.cohorts() and run.steps is None and (run.masked or run.colluders):
        answer["by_colluders"] = _by_colluders(run)
    if signal := _signal(run):
        ratios = {"per_round": signal.per_round, "over_run": signal.over_run}
        answer["signal"] = {"units": signal.units, **ratios, "lines": signal.lines()}
    if run.masked and run.parameters is not None:
        width = BITS // 8 if run.discrete else 4
        answer["traffic"] = _traffic(width * run.parameters, run.expected_cohort)
    if run.discrete:
        steps = whole_steps(run)
        share = steps.share(run.noise_multiplier, run.clients or 1)
        answer["whole_numbers"] = {"noise": steps.inflation, "steps": share}
    if run.bands > 1 and run.rounds and run.record_rate and run.noise_multiplier:
        answer["without_bands"] = _without_bands(run)
    if by_round:
        answer["by_round"] = epsilon_by_round(answer)
    return answer


# What is looked for


def _with_rounds(run: PlannedRun, epsilon: float, view: str) -> PlannedRun:
    """Returns the run with the most rounds that hold ε: doubled until they do not, then halved."""
    low, high = 0, 1
    while _holds(replace(run, rounds=high), epsilon, view):
        if high == MOST_ROUNDS:
            raise ValueError(
                f"rounds: even the most that a run may have, {MOST_ROUNDS}, stay within "
                f"epsilon={epsilon:g}; lower noise_multiplier, or give rounds and leave epsilon out"
            )
        low, high = high, min(2 * high, MOST_ROUNDS)
    if low == 0:
        raise ValueError(f"rounds: one alone exceeds epsilon={epsilon:g}; raise noise_multiplier")
    while high - low > 1:
        middle = (low + high) // 2
        holds = _holds(replace(run, rounds=middle), epsilon, view)
        low, high = (middle, high) if holds else (low, middle)
    return replace(run, rounds=low)


def _with_rate(run: PlannedRun, epsilon: float, view: str) -> PlannedRun:
    """Returns the run with the largest record rate that holds ε, to four digits."""
    if _holds(replace(run, record_rate=1.0), epsilon, view):
        return replace(run, record_rate=1.0)
    low, high = 0.0, 1.0
    while high - low > 1e-4 * high:
        if high < 1e-9:
            why = f"record_rate: even the smallest exceeds epsilon={epsilon:g}"
            raise ValueError(f"{why}; raise noise_multiplier")
        middle = (low + high) / 2 if low else high / 4
        holds = _holds(replace(run, record_rate=middle), epsilon, view)
        low, high = (middle, high) if holds else (low, middle)
    return replace(run, record_rate=low)


def _holds(run: PlannedRun, epsilon: float, view: str) -> bool:
    spent = accountants.epsilon(_history(run, view), run.delta, run.accountant)
    return spent <= epsilon


def _history(run: PlannedRun, view: str) -> History:
    event = run.views()[view].event
    return [(event, run.releases)] if event else []


# What is told


def _views(run: PlannedRun) -> dict[str, Answer]:
    known: dict[Event | None, tuple[dict[str, accountants.Estimate], Answer | None]] = {}
    answer = {}
    for name, view in run.views().items():
        if view.event is None:
            nothing = accountants.Estimate(None, view.reason)
            known[None] = dict.fromkeys(accountants.ACCOUNTANTS, nothing), None
        elif view.event not in known:
            history = [(view.event, run.releases)]
            estimates = accountants.estimates(history, run.delta)
            known[view.event] = estimates, ceiling.as_json(history)
        estimates, most = known[view.event]
        answer[name] = {
            **{accountant: found.epsilon for accountant, found in estimates.items()},
            "reasons": {a: found.reason for a, found in estimates.items() if found.reason},
            "guarantee": view.guarantee,
            "ceiling": most,
            "note": view.note,
        }
    return answer


def _by_colluders(run: PlannedRun) -> list[Answer]:
    """Returns ε with 0, 1, … colluders, up to all but the client whose unit is protected.

    The first row is `server_masked`, the last `server_plain`. One colluder also stands for a
    curious client that reads the global models: it can subtract its own share. Colluders who could
    rebuild the masks of the others are more than any row has: that takes as many clients as share
    the noise, or `masking.threshold` of the cohort, whichever is more.
    """
    cohorts = run.cohorts()
    accountant = run.accountant if run.accountant in accountants.ACCOUNTANTS else "pld"
    most = max(t for *_, t in cohorts) - 1
    counts = set(range(most + 1))
    if most >= ROWS:
        counts = {0, most, min(run.colluders, most), *(2**k for k in range(most.bit_length()))}
    rows = []
    for count in sorted(counts):
        history = [(with_shares_known(run.event(), cohorts, count), run.releases)]
        epsilon = accountants.epsilon_or_none(history, run.delta, accountant)
        rows.append({"colluders": count, "epsilon": epsilon})
    return rows


def _signal(run: PlannedRun) -> Signal | None:
    """Returns signal against noise, where there are numbers for both."""
    if run.parameters is None:
        return None
    cohort = run.expected_cohort if run.steps is None else 1.0
    if run.units_per_client is not None and cohort is not None:
        units = cohort * run.units_per_client * run.record_rate
    elif run.examples is not None and run.steps is None:
        units = run.client_rate * run.examples * run.record_rate
    else:
        return None
    noise, releases = run.noise_multiplier / math.sqrt(run.threshold), run.releases
    if run.discrete:
        noise *= whole_steps(run).inflation
    if run.bands > 1:
        noise, releases = noise * banded.cancelled(run.bands, run.rounds), run.rounds
    return Signal(units, run.clip_norm, noise, run.parameters, releases)


def _warnings(run: PlannedRun) -> list[str]:
    found = []
    units: float | None = run.examples
    if units is None and run.clients and run.units_per_client:
        units = run.clients * run.units_per_client
    if units is not None and run.delta >= 1 / units:
        found.append(
            f"delta={run.delta:g} is at least 1/{units:g}, one in all units: publishing some unit "
            "drawn at random would be as private. Take delta well below that"
        )
    if run.rounds < run.bands:
        found.append(turnless(run.bands, run.rounds))
    if run.discrete:
        found += whole_steps(run).problems(run.noise_multiplier, run.clients or 1)
    elif run.masked and run.parameters is not None:
        if run.units_per_client is None or run.expected_cohort is None:
            found.append(
                "masked: clients and units_per_client would tell whether 32-bit words are fine "
                "enough for the noise"
            )
        elif run.noise_multiplier and (steps := steps_in_a_share(run)) < COARSE:
            found.append(
                f"masked: a share of the noise is {steps:.2g} steps of the 32-bit ring wide, and "
                f"should be {COARSE} at least: fewer clients or units, or more noise"
            )
    return found


def steps_in_a_share(run: PlannedRun) -> float:
    """Returns the standard deviation of the smallest share of noise in steps of the ring of masks.

    The ring is that of `fedpriv.federation.secagg.masking` for this plan. Its step is the next
    power of two in units of the divisor of the sums, hence up to twice what the room for the sum
    demands.
    """
    cohort, units, parameters = run.expected_cohort, run.units_per_client, run.parameters
    if cohort is None or units is None or parameters is None:
        raise ValueError("the ring follows from clients, units_per_client and parameters")
    clients = run.clients or round(cohort / run.client_rate)
    std = run.noise_multiplier * run.clip_norm
    reach = float(banded.coefficients(run.bands).sum())
    norm = (4 * units * run.record_rate + 16) * run.clip_norm * reach
    bound = coordinate_bound(norm, std, clients, parameters)
    step = 2 * bound / ((MODULUS - 1) // 2 // clients)
    most = max(t for *_, t in run.cohorts())
    return share_std(std, most) / step


def _without_bands(run: PlannedRun) -> Answer:
    """Returns the noise that a run needs without bands, and how much of it is left with them."""
    spent = accountants.epsilon(_history(run, "global"), run.delta)

    def history(sigma: float) -> History:
        return _history(replace(run, bands=1, noise_multiplier=sigma), "global")

    sigma = accountants.noise_multiplier(history, spent, run.delta)
    left = run.noise_multiplier * banded.cancelled(run.bands, run.rounds) / sigma
    return {"noise_multiplier": sigma, "noise_left": left}


def whole_steps(run: PlannedRun) -> Steps:
    """Returns the ring of a discrete plan, as a run of it has it."""
    if run.clients is None or run.units_per_client is None or run.parameters is None:
        raise ValueError("the ring follows from clients, units_per_client and parameters")
    return Steps.fitting(
        run.clip_norm,
        run.noise_multiplier,
        run.parameters,
        units=run.clients * run.units_per_client * run.record_rate,
        clients=run.clients,
        threshold=run.threshold,
        bands=run.bands,
    )


def _traffic(update: int, cohort: float | None) -> Answer:
    """Returns bytes of a client in a round: its update, then keys and shares of secrets."""
    if cohort is None:
        return {"update": update}
    peers = max(0, math.ceil(cohort) - 1)
    up = 2 * KEY_BYTES + peers * BOX_BYTES + (peers + 1) * SHARE_BYTES
    down = (peers + 1) * 2 * KEY_BYTES + peers * BOX_BYTES
    return {"update": update, "keys_up": up, "keys_down": down}


def epsilon_by_round(answer: Answer, points: int = POINTS) -> list[Answer]:
    """Returns ε of each view after some of the rounds, the last one included.

    Args:
        answer: of `budget`; ε is by its accountant.
        points: at how many rounds, at most.
    """
    run = PlannedRun(**{field.name: answer[field.name] for field in fields(PlannedRun)})
    rows = []
    for n in sorted({math.ceil(run.rounds * k / points) for k in range(1, points + 1)}):
        row: Answer = {"round": n}
        for name, view in run.views().items():
            row[name] = None
            if view.event is not None:
                history = [(view.event, replace(run, rounds=n).releases)]
                row[name] = accountants.epsilon_or_none(history, run.delta, run.accountant)
        rows.append(row)
    return rows
