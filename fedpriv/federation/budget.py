"""Noise to ε, ε to noise, rounds or rates, in all four views: what `fedpriv budget` answers.

>>> answer = budget(
...     noise_multiplier=0.771484375, client_rate=0.2, record_rate=1, rounds=10, delta=1e-5
... )
>>> round(answer["views"]["server_masked"]["pld"], 1)
14.5
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from fedpriv.federation.secagg.protocol import KEY_BYTES
from fedpriv.federation.secagg.ring import MODULUS, coordinate_bound
from fedpriv.federation.secagg.shamir import SHARE_BYTES
from fedpriv.privacy import views
from fedpriv.privacy.accounting import accountants
from fedpriv.privacy.accounting.event import (
    ClientThenRecord,
    Event,
    NotAvailable,
    count_problem,
    delta_problem,
    noise_problem,
    rate_problem,
)
from fedpriv.privacy.colluders import by_colluders
from fedpriv.privacy.noise import share_std, shares
from fedpriv.privacy.signal import Signal

Answer = dict[str, Any]

POINTS = 12
"""Rounds at which ε by round is told."""

MOST_ROUNDS = 10**7
"""Beyond, a run could go on for ever."""

COARSE = 4
"""Steps of the ring in a share's standard deviation; below, rounding is no longer small to it."""

BOX_BYTES = 2 * SHARE_BYTES + 16
"""Two shares and the tag of their encryption."""


class BudgetMistakes(ValueError):
    """Everything that is wrong with a question, at once."""

    def __init__(self, mistakes: list[str]) -> None:
        self.mistakes = mistakes
        plural = "mistake" if len(mistakes) == 1 else "mistakes"
        super().__init__(f"budget: {len(mistakes)} {plural}\n  " + "\n  ".join(mistakes))


def budget(
    *,
    delta: float,
    client_rate: float | None = None,
    record_rate: float | None = None,
    rounds: int | None = None,
    noise_multiplier: float | None = None,
    epsilon: float | None = None,
    view: str | None = None,
    cohort: int | None = None,
    accountant: str = "pld",
    group_size: int = 1,
    examples: int | None = None,
    batch_size: float | None = None,
    epochs: float | None = None,
    clients: int | None = None,
    sampling: str | None = None,
    threshold: float | None = None,
    dropouts: float | None = None,
    colluders: int | None = None,
    masked: bool = False,
    steps: int | None = None,
    units_per_client: float | None = None,
    parameters: int | None = None,
    clip_norm: float = 1.0,
    by_round: bool = False,
) -> Answer:
    """Returns ε of a run by every accountant in every view.

    Of noise, rounds and record rate, one may be left out if `epsilon` is given: it is found, the
    noise as small, the rounds as many and the rate as large as that ε allows.

    Args:
        delta: in (0, 1).
        client_rate: probability that a client is drawn for a round, in [0, 1].
        record_rate: probability that a record of a drawn client enters, in [0, 1].
        rounds: releases of a noisy sum, >= 0.
        noise_multiplier: standard deviation of the noise on the sum ÷ clip norm.
        epsilon: at most this in `view`, and at least .01 less where noise or rate are found.
        view: the view that `epsilon` is for, one of `VIEWS`.
        cohort: clients in a round, where every round has the same number of them.
        accountant: that finds what was left out, and that ε by round is told by.
        group_size: records of the protected unit.
        examples: of all clients together. With `batch_size`, those expected in a round, they give
            the record rate; with `epochs` also the rounds.
        batch_size: see `examples`.
        epochs: times that each example is expected to be drawn in a run.
        clients: of the federation. These or `cohort` give `server_plain` and colluders.
        sampling: of the clients: "poisson", unless `cohort` is given; or "fixed".
        threshold: share of the cohort whose noise must suffice; 1 unless `dropouts` are given.
        dropouts: of a cohort that may stay away, as a share below 1 or a number; gives the
            threshold.
        colluders: clients that tell the masked server their noise.
        masked: also tell what secure aggregation costs, and ε by colluders.
        steps: noisy steps of a client in a round, where each protects itself (FedAvg-DP).
        units_per_client: that a client holds: examples, providers, or 1 where it is the unit.
        parameters: that are trained and sent.
        clip_norm: of one unit's contribution.
        by_round: also tell ε after up to 12 rounds on the way, in "by_round".

    Returns:
        The inputs, with what was found or follows from others, and

        - "views" per view: ε by accountant (∞ without noise, None where there is none), "reasons"
          by accountant, whether it is a "guarantee", and a "note";
        - "by_colluders", where they can be told and `masked` or `colluders` are given;
        - "signal", where parameters and units are given: units of a round, the ratio of signal to
          noise "per_round" and "over_run", and "lines" that say it;
        - "traffic", where `masked` and parameters are given, and "warnings".

    Raises:
        BudgetMistakes: (a ValueError) inputs out of range or at odds with each other, all told.
        NotAvailable: (a ValueError) the accountant cannot find what was left out; says why.
        ValueError: nothing that could be found would hold ε.
    """
    question = {name: value for name, value in locals().items() if name != "by_round"}
    wrong = mistakes(question)
    if wrong:
        raise BudgetMistakes(wrong)
    question = _completed(question)
    for name, search in (
        ("noise_multiplier", _noise_for),
        ("rounds", _rounds_for),
        ("record_rate", _rate_for),
    ):
        if question[name] is None:
            question[name] = search(question)
    answer = {**question, "views": _views(question), "warnings": _warnings(question)}
    cohorts = _cohorts(question)
    if cohorts and steps is None and (masked or colluders):
        answer["by_colluders"] = by_colluders(
            _whole(question),
            cohorts,
            question["rounds"],
            delta,
            accountant if accountant in accountants.ACCOUNTANTS else "pld",
            also=question["colluders"],
        )
    signal = _signal(question)
    if signal:
        ratios = {"per_round": signal.per_round, "over_run": signal.over_run}
        answer["signal"] = {"units": signal.units, **ratios, "lines": signal.lines()}
    if masked and parameters is not None:
        answer["traffic"] = _traffic(question)
    if by_round:
        answer["by_round"] = epsilon_by_round(answer)
    return answer


def mistakes(question: Answer) -> list[str]:
    """Returns everything that is wrong with a question to `budget`."""
    found = [
        delta_problem("delta", question["delta"]),
        count_problem("group_size", question["group_size"], least=1),
        *(
            rate_problem(name, question[name])
            for name in ("client_rate", "record_rate", "threshold")
            if question[name] is not None
        ),
        *(
            count_problem(name, question[name], least)
            for name, least in (
                ("rounds", 0),
                ("cohort", 1),
                ("clients", 1),
                ("colluders", 0),
                ("steps", 1),
                ("parameters", 1),
                ("examples", 1),
            )
            if question[name] is not None
        ),
        *(
            _positive_problem(name, question[name])
            for name in ("epsilon", "batch_size", "epochs", "units_per_client", "clip_norm")
            if question[name] is not None
        ),
    ]
    if not any(found):  # these calculate with the numbers
        found += _cohort_problems(question)
    found += _target_problems(question)
    return [problem for problem in found if problem]


def _cohort_problems(question: Answer) -> list[str | None]:
    """What is wrong with how clients are drawn, or with how records are."""
    cohort, clients, rate = (question[name] for name in ("cohort", "clients", "client_rate"))
    found: list[str | None] = []
    if question["sampling"] not in (None, "poisson", "fixed"):
        found.append(f"sampling={question['sampling']!r}: expected poisson or fixed")
    if rate is None and not (cohort and clients):
        found.append("client_rate: must be given; 1 where all clients take part in every round")
    if cohort is not None and question["sampling"] == "poisson" and rate != 1:
        found.append(
            f"cohort={cohort}: under poisson sampling its size varies; give clients instead"
        )
    if cohort and clients and cohort > clients:
        found.append(f"cohort={cohort}: there are {clients} clients")
    if cohort and clients and rate and abs(rate * clients - cohort) > 1e-6 * cohort:
        found.append(
            f"cohort={cohort}: client_rate={rate:g} of {clients} clients is another number"
        )
    if question["dropouts"] is not None:
        found += _dropout_problems(question)
    sizes = ("examples", "batch_size", "epochs")
    given = [name for name in sizes if question[name] is not None]
    if "batch_size" in given and "examples" not in given:
        found.append("examples: batch_size is out of how many examples?")
    if "epochs" in given and given != list(sizes):
        found.append("epochs: needs examples and batch_size, to be counted in rounds")
    if question["batch_size"] is not None and question["record_rate"] is not None:
        found.append("record_rate: examples and batch_size give it; leave one of the two out")
    if question["epochs"] is not None and question["rounds"] is not None:
        found.append("rounds: epochs give them; leave one of the two out")
    return found


def _dropout_problems(question: Answer) -> list[str | None]:
    dropouts, known = question["dropouts"], question["cohort"] is not None
    known |= question["sampling"] == "fixed" and question["clients"] is not None
    if not (noise_problem("dropouts", dropouts) is None and (dropouts < 1 or dropouts % 1 == 0)):
        return [f"dropouts={dropouts!r}: expected a share below 1, or a whole number of clients"]
    if question["threshold"] is not None:
        return ["threshold: dropouts give it; leave one of the two out"]
    if dropouts >= 1 and not known:
        return [f"dropouts={dropouts:g}: of cohorts of which size? Give a share, such as .2"]
    return []


def _target_problems(question: Answer) -> list[str | None]:
    epsilon, view = question["epsilon"], question["view"]
    known = (*accountants.ACCOUNTANTS, accountants.OPACUS)
    name = question["accountant"]
    found = [None if name in known else f"accountant={name!r}: one of {', '.join(known)}"]
    if view is not None and view not in views.VIEWS:
        found.append(f"view={view!r}: expected one of {', '.join(views.VIEWS)}")
    if question["noise_multiplier"] is not None:
        found.append(noise_problem("noise_multiplier", question["noise_multiplier"]))
    drawn = question["record_rate"] is None and question["batch_size"] is None
    ended = question["rounds"] is None and question["epochs"] is None
    missing = [
        name
        for name, absent in (
            ("noise_multiplier", question["noise_multiplier"] is None),
            ("rounds", ended),
            ("record_rate", drawn),
        )
        if absent
    ]
    if epsilon is None and missing == ["noise_multiplier"]:
        found.append("noise_multiplier or epsilon: one of the two must be given")
    elif epsilon is None or len(missing) > 1:
        # Of several that are missing, epsilon stands in for the noise.
        least = missing if epsilon is None else [m for m in missing if m != "noise_multiplier"]
        found += [f"{name}: must be given" for name in least]
    elif not missing:
        found.append(
            "noise_multiplier or epsilon: only one of the two; or leave out rounds or record_rate, "
            "to find how many or how large it may be"
        )
    if epsilon is not None:
        if view is None:
            found.append(f"view: epsilon is for one of {', '.join(views.VIEWS)}; say which")
        unknown = question["cohort"] is None and question["clients"] is None
        if unknown and question["steps"] is None:
            if view == "server_plain":
                found.append("clients: view=server_plain needs how many clients share the noise")
            if view == "server_masked" and question["colluders"]:
                found.append("clients: colluders are some of how many clients?")
    others, colluders = question["clients"] or question["cohort"], question["colluders"]
    if isinstance(colluders, int) and isinstance(others, int) and 0 < others <= colluders:
        found.append(
            f"colluders={colluders}: expected {others - 1} at most, all but the client of the "
            "protected unit"
        )
    return found


def _positive_problem(name: str, value: object) -> str | None:
    ok = noise_problem(name, value) is None and value != 0
    return None if ok else f"{name}={value!r}: expected a finite number > 0"


def _completed(question: Answer) -> Answer:
    """Returns the question with everything in it that follows from the rest."""
    question = dict(question)
    cohort, clients, examples = (question[name] for name in ("cohort", "clients", "examples"))
    if question["client_rate"] is None:
        question["client_rate"] = cohort / clients
    rate = question["client_rate"]
    if question["sampling"] is None:
        question["sampling"] = "poisson" if cohort is None else "fixed"
    if cohort is None and clients is not None and question["sampling"] == "fixed":
        try:
            views.cohorts_of("fixed", rate, clients)
        except ValueError as error:
            raise BudgetMistakes([str(error)]) from error
        cohort = round(rate * clients)
    if question["batch_size"] is not None:
        question["record_rate"] = question["batch_size"] / (examples * rate) if rate else math.inf
        if question["record_rate"] > 1:
            raise BudgetMistakes(
                [f"batch_size={question['batch_size']:g}: a round draws from {examples * rate:g}"]
            )
        if question["epochs"] is not None:
            question["rounds"] = math.ceil(
                question["epochs"] * examples / question["batch_size"] - 1e-9
            )
    if question["threshold"] is None:
        away = question["dropouts"] or 0
        # A number of clients is refused where cohorts have no fixed size.
        threshold = 1 - (away / cohort if cohort and away >= 1 else away)
        if threshold <= 0:
            raise BudgetMistakes([f"dropouts={away:g}: nobody is left of a cohort of {cohort}"])
        question["threshold"] = threshold
    if question["units_per_client"] is None and examples is not None and clients is not None:
        question["units_per_client"] = examples / clients
    question["colluders"] = question["colluders"] or 0
    return question


# What is looked for


def _history(question: Answer, **found: Any) -> accountants.History:
    question = {**question, **found}
    event = _seen(question)[question["view"]].event
    return [(event, _releases(question))] if event else []


def _noise_for(question: Answer) -> float:
    return accountants.noise_multiplier(
        lambda sigma: _history(question, noise_multiplier=sigma),
        question["epsilon"],
        question["delta"],
        question["accountant"],
    )


def _rounds_for(question: Answer) -> int:
    """Returns the most rounds that hold ε: doubled until they do not, then halved in between."""
    fits = _fitting(question, "rounds")
    low, high = 0, 1
    while fits(high):
        if high > MOST_ROUNDS:
            raise ValueError(
                f"rounds: more than {MOST_ROUNDS} hold epsilon={question['epsilon']:g}"
            )
        low, high = high, 2 * high
    if low == 0:
        raise ValueError(f"rounds: one alone exceeds epsilon={question['epsilon']:g}: more noise?")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _rate_for(question: Answer) -> float:
    """Returns the largest record rate that holds ε, to four digits."""
    fits = _fitting(question, "record_rate")
    if fits(1.0):
        return 1.0
    low, high = 0.0, 1.0
    while high - low > 1e-4 * high:
        if high < 1e-9:
            raise ValueError(
                f"record_rate: none holds epsilon={question['epsilon']:g}: more noise?"
            )
        middle = (low + high) / 2 if low else high / 4
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _fitting(question: Answer, name: str) -> Callable[[float], bool]:
    def fits(value: float) -> bool:
        spent = accountants.epsilon(
            _history(question, **{name: value}), question["delta"], question["accountant"]
        )
        return bool(spent <= question["epsilon"])

    return fits


# What is told


def _whole(question: Answer) -> ClientThenRecord:
    """One round under the whole noise."""
    return ClientThenRecord(
        question["client_rate"],
        question["record_rate"],
        question["noise_multiplier"],
        question["group_size"],
    )


def _cohorts(question: Answer) -> list[views.Cohort]:
    if question["cohort"] is not None:
        t = shares(question["threshold"], question["cohort"])
        return [(1.0, question["client_rate"], t)]
    if question["clients"] is not None:
        return views.cohorts_of(
            question["sampling"],
            question["client_rate"],
            question["clients"],
            question["threshold"],
        )
    return []


def _releases(question: Answer) -> int:
    rounds: int = question["rounds"]
    return rounds * (question["steps"] or 1)


def _seen(question: Answer) -> dict[str, views.View]:
    if question["steps"] is not None:
        # Every client's message carries all of its noise: there is one view, and no client stage.
        own = ClientThenRecord(
            1.0, question["record_rate"], question["noise_multiplier"], question["group_size"]
        )
        return dict.fromkeys(views.VIEWS, views.View(own, True, views.OWN_NOISE))
    alone = question["cohort"] is not None
    return views.view_events(
        question["client_rate"],
        question["record_rate"],
        question["noise_multiplier"],
        question["cohort"],
        question["group_size"],
        clients=None if alone else question["clients"],
        sampling=question["sampling"],
        threshold=question["threshold"],
        colluders=question["colluders"],
    )


def _views(question: Answer) -> dict[str, Answer]:
    told: dict[Event, dict[str, accountants.Estimate]] = {}
    answer = {}
    for name, view in _seen(question).items():
        if view.event is None:
            estimates = dict.fromkeys(
                accountants.ACCOUNTANTS, accountants.Estimate(None, view.reason)
            )
        else:
            if view.event not in told:
                history = [(view.event, _releases(question))]
                told[view.event] = accountants.estimates(history, question["delta"])
            estimates = told[view.event]
        answer[name] = {
            **{accountant: found.epsilon for accountant, found in estimates.items()},
            "reasons": {a: found.reason for a, found in estimates.items() if found.reason},
            "guarantee": view.guarantee,
            "note": view.note,
        }
    return answer


def _expected_cohort(question: Answer) -> float | None:
    if question["cohort"] is not None:
        return float(question["cohort"])
    if question["clients"] is not None:
        return float(question["client_rate"] * question["clients"])
    return None


def _signal(question: Answer) -> Signal | None:
    """Signal against noise, where there are numbers for both."""
    drawn, cohort = question["record_rate"], _expected_cohort(question)
    if question["parameters"] is None:
        return None
    if question["steps"] is not None:
        cohort = 1.0
    if question["units_per_client"] is not None and cohort is not None:
        units = cohort * question["units_per_client"] * drawn
    elif question["examples"] is not None and question["steps"] is None:
        units = question["client_rate"] * question["examples"] * drawn
    else:
        return None
    noise = question["noise_multiplier"] / math.sqrt(question["threshold"])
    return Signal(units, question["clip_norm"], noise, question["parameters"], _releases(question))


def _warnings(question: Answer) -> list[str]:
    found = []
    units = question["examples"]
    if units is None and question["clients"] and question["units_per_client"]:
        units = question["clients"] * question["units_per_client"]
    if units is not None and question["delta"] >= 1 / units:
        found.append(
            f"delta={question['delta']:g} is at least 1/{units:g}, one in all units: publishing "
            "some unit drawn at random would be as private. Take delta well below that"
        )
    cohort = _expected_cohort(question)
    if question["masked"] and question["parameters"] is not None:
        if question["units_per_client"] is None or cohort is None:
            found.append(
                "masked: clients and units_per_client would tell whether 32-bit words are fine "
                "enough for the noise"
            )
        else:
            steps = _steps_in_a_share(question, cohort)
            if question["noise_multiplier"] and steps < COARSE:
                found.append(
                    f"masked: a share of the noise is {steps:.2g} steps of the 32-bit ring wide, "
                    f"and should be {COARSE} at least: fewer clients or units, or more noise"
                )
    return found


def _steps_in_a_share(question: Answer, cohort: float) -> float:
    """Returns the standard deviation of the least share of noise in steps of the ring of masks.

    The ring is that of `fedpriv.federation.secagg.masking` for this plan. Its step is the next
    power of two in units of what sums are divided by, hence up to twice what the room for the sum
    demands.
    """
    clients = question["clients"] or round(cohort / question["client_rate"])
    clip, std = question["clip_norm"], question["noise_multiplier"] * question["clip_norm"]
    norm = (4 * question["units_per_client"] * question["record_rate"] + 16) * clip
    bound = coordinate_bound(norm, std, clients, question["parameters"])
    step = 2 * bound / ((MODULUS - 1) // 2 // clients)
    most = max(t for *_, t in _cohorts(question))
    return float(share_std(std, most) / step)


def _traffic(question: Answer) -> Answer:
    """Bytes of a client in a round: its update, and keys and shares of secrets beside it."""
    update = 4 * question["parameters"]
    cohort = _expected_cohort(question)
    if cohort is None:
        return {"update": update}
    peers = max(0, math.ceil(cohort) - 1)
    up = 2 * KEY_BYTES + peers * BOX_BYTES + (peers + 1) * SHARE_BYTES
    down = (peers + 1) * 2 * KEY_BYTES + peers * BOX_BYTES
    return {"update": update, "keys_up": up, "keys_down": down}


def epsilon_by_round(answer: Answer, points: int = POINTS) -> list[Answer]:
    """Returns ε of each view after some of the rounds, the last one included.

    Args:
        answer: what `budget` returned; ε is by its accountant.
        points: at how many rounds, at most.
    """
    last = answer["rounds"]
    rounds = sorted({math.ceil(last * k / points) for k in range(1, points + 1)})
    seen = _seen(answer)
    return [
        {"round": n, **{name: _after(view, n, answer) for name, view in seen.items()}}
        for n in rounds
    ]


def _after(view: views.View, rounds: int, answer: Answer) -> float | None:
    if view.event is None:
        return None
    try:
        history = [(view.event, rounds * (answer["steps"] or 1))]
        return accountants.epsilon(history, answer["delta"], answer["accountant"])
    except NotAvailable:
        return None
