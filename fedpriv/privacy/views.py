"""Four views of one run: its privacy against four adversaries.

- `paper`: no adversary, but the rate of PrIeD-KIE and PFL-DocVQA, as if each record were drawn on
  its own.
- `global`: receives the global models, may know which clients took part, and is no client.
- `server_masked`: the server. It knows the cohort, and sees the masked updates, so only their sum.
- `server_plain`: the server without masking. It sees each update with that client's share of noise.

The records of a client are drawn together, so a large sum tells that the client was there: the
product of the two rates amplifies less than the paper says (Bun, Drechsler, Gaboardi, McMillan
and Sarathy 2020).

The noise of a round is split into t = ⌈threshold · |K|⌉ shares, one for each client that must
answer. Without masking the server sees single messages, with one share in each. A masked server
with c colluding clients subtracts their shares from the sum. This leaves t - c shares, and always
the share of the protected unit's own client. A client that sees the global models knows its own
share, so it counts as one colluder. (As many colluders as it takes to unmask, t or
`masking.threshold` of the cohort, whichever is more, see every message: `server_plain`.) Under
Poisson sampling |K| and t vary. Such a release is a `OneOf` over the sizes of the cohort, which do
not depend on the data.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from typing import Literal, TypeAlias

import numpy as np
from scipy.special import gammaln, xlog1py, xlogy

from fedpriv.privacy.accounting.event import (
    ClientThenRecord,
    Event,
    OneOf,
    count_problem,
    rate_problem,
)
from fedpriv.privacy.noise import shares

VIEWS = ("paper", "global", "server_masked", "server_plain")
Sampling = Literal["poisson", "fixed"]

SENTENCES = {
    "paper": "as the papers account: each record drawn on its own, with client rate x record rate",
    "global": "whoever sees the global models and may know which clients took part, but is no "
    "client: a client knows its own noise, like one colluder",
    "server_masked": "the server, which knows who took part and sees only the masked sum",
    "server_plain": "the server without masking: it sees each update with 1/cohort of the noise",
}
OWN_NOISE = (
    "whoever sees a client's messages: each carries all of the noise, for all observers alike"
)
NOT_A_GUARANTEE = "not a guarantee: the records of a client are drawn together"
NO_COHORT = (
    "no cohort given: how many clients share the noise decides what one of them hides. Give the "
    "clients of the federation, or the cohort where every round has the same number of clients"
)
RARE = 1e-40
"""Less probable sizes of a cohort are left out: they are below the precision of δ."""
EXACT, GRID = 64, 24
"""Above `EXACT` sizes of a cohort, the remaining variance of the noise is rounded down to `GRID`
values per octave, by less than 3 %."""


@dataclass(frozen=True)
class View:
    """One release, as one observer sees it.

    Args:
        event: the release that the observer sees; None where it is not known.
        guarantee: whether ε of the event holds against the observer.
        note: the observer, in a sentence.
        reason: why there is no event.
    """

    event: Event | None
    guarantee: bool
    note: str
    reason: str = ""


def view_events(
    client_rate: float,
    record_rate: float,
    noise_multiplier: float,
    cohort: int | None = None,
    group_size: int = 1,
    *,
    clients: int | None = None,
    sampling: Sampling = "poisson",
    threshold: float = 1.0,
    colluders: int = 0,
) -> dict[str, View]:
    """Returns one release of a noisy sum in each of `VIEWS`.

    Args:
        client_rate: probability that a client is drawn for the round, in [0, 1].
        record_rate: probability that a record of a drawn client enters, in [0, 1].
        noise_multiplier: standard deviation of the noise on the sum ÷ clip norm, >= 0.
        cohort: clients in the round, where all rounds have the same number.
        group_size: records of the protected unit.
        clients: of the federation, instead of `cohort`. With `sampling` they give its sizes.
            Without both, `server_plain` and colluders have no event.
        sampling: of the clients; "poisson", or "fixed" for client_rate · clients of them.
        threshold: share of the cohort whose noise must suffice.
        colluders: clients that tell the masked server their noise.

    Raises:
        ValueError: an input is out of its range, or two are at odds.
    """
    event = ClientThenRecord(client_rate, record_rate, noise_multiplier, group_size)
    paper = ClientThenRecord(1.0, client_rate * record_rate, noise_multiplier, group_size)
    sound = event == paper
    claim = SENTENCES["paper"] if sound else f"{SENTENCES['paper']}; {NOT_A_GUARANTEE}"
    cohorts: Sequence[Cohort] | None = None
    if clients is not None and cohort is not None:
        raise ValueError(f"cohort={cohort} and clients={clients}: one of the two is enough")
    if clients is not None:
        cohorts = cohorts_of(sampling, client_rate, clients, threshold)
    elif cohort is not None:
        problem = count_problem("cohort", cohort, least=1)
        if problem:
            raise ValueError(problem)
        cohorts = [(1.0, client_rate, shares(threshold, cohort))]
    masked = View(event, True, SENTENCES["server_masked"])
    plain = View(None, False, SENTENCES["server_plain"], NO_COHORT)
    if cohorts is not None:
        everyone = max(t for *_, t in cohorts)
        plain = View(with_shares_known(event, cohorts, everyone), True, plain.note)
    if colluders:
        who = "1 client tells it its" if colluders == 1 else f"{colluders} clients tell it their"
        note = f"{masked.note}; {who} noise"
        known = with_shares_known(event, cohorts, colluders) if cohorts is not None else None
        masked = View(known, known is not None, note, "" if known else NO_COHORT)
    return {
        "paper": View(paper, sound, claim),
        "global": View(event, True, SENTENCES["global"]),
        "server_masked": masked,
        "server_plain": plain,
    }


Cohort: TypeAlias = tuple[float, float, int]
"""Probability of a size; probability to be in a cohort of that size; shares of its noise."""


def cohorts_of(
    sampling: Sampling, client_rate: float, clients: int, threshold: float = 1.0
) -> list[Cohort]:
    """Returns the sizes that a cohort may have, without the empty one.

    Raises:
        ValueError: an input is out of its range, or `client_rate` · `clients` is not whole under
            fixed-size sampling.
    """
    problems = [
        rate_problem("client_rate", client_rate),
        count_problem("clients", clients, least=1),
        None if 0 < threshold <= 1 else f"threshold={threshold!r}: expected a value in (0, 1]",
        None if sampling in ("poisson", "fixed") else f"sampling={sampling!r}: poisson or fixed",
    ]
    if any(problems):
        raise ValueError("; ".join(problem for problem in problems if problem))
    if sampling == "fixed":
        size = client_rate * clients
        if round(size) < 1 or abs(size - round(size)) > 1e-6:
            raise ValueError(
                f"client_rate={client_rate:g} of clients={clients} is {size:g}, and "
                "sampling='fixed' needs a whole number of clients: take a multiple of "
                f"1/{clients}, or sampling='poisson'"
            )
        return [(1.0, client_rate, shares(threshold, round(size)))]
    sizes = np.arange(1, clients + 1)
    log_choose = gammaln(clients + 1) - gammaln(sizes + 1) - gammaln(clients - sizes + 1)
    chances = np.exp(
        log_choose + xlogy(sizes, client_rate) + xlog1py(clients - sizes, -client_rate)
    )
    probability: dict[int, float] = {}
    drawn: dict[int, float] = {}  # together with the protected client being in it
    for size, chance in zip(sizes.tolist(), chances.tolist(), strict=True):
        if chance > RARE:
            t = shares(threshold, size)
            probability[t] = probability.get(t, 0.0) + chance
            drawn[t] = drawn.get(t, 0.0) + chance * size / clients
    return [(min(1.0, p), drawn[t] / p, t) for t, p in probability.items()]


def with_shares_known(event: ClientThenRecord, cohorts: Sequence[Cohort], colluders: int) -> Event:
    """Returns the release of a sum whose reader knows the noise of `colluders` of its clients.

    σ·√((t - c) / t) remains of σ, with c at most t - 1, because the protected unit's own client
    does not collude. With c = t - 1 for every size, it is the release of a single message.

    In a large federation the remaining noise is rounded down to a grid. Rounding the number of
    shares would not be safe: with more shares there is less noise in one of them, and more noise in
    all but c.

    Args:
        event: of the whole noise.
        cohorts: from `cohorts_of`.
        colluders: c, assumed to be in every cohort.
    """
    problem = count_problem("colluders", colluders, least=0)
    if problem:
        raise ValueError(problem)
    if colluders == 0:
        return event
    chances: dict[float, float] = {}
    drawn: dict[float, float] = {}  # together with the protected client being in the cohort
    for probability, rate, t in cohorts:
        left = (t - min(colluders, t - 1)) / t
        if len(cohorts) > EXACT:
            left = 2.0 ** (math.floor(GRID * math.log2(left)) / GRID)
        chances[left] = chances.get(left, 0.0) + probability
        drawn[left] = drawn.get(left, 0.0) + probability * rate
    parts = []
    for left, chance in chances.items():
        noise = event.noise_multiplier / math.sqrt(1 / left)
        part = ClientThenRecord(
            min(1.0, drawn[left] / chance), event.record_rate, noise, event.group_size
        )
        parts.append((min(1.0, chance), part))
    return parts[0][1] if len(parts) == 1 and parts[0][0] == 1 else OneOf(tuple(parts))


def face(unit: str) -> str:
    """Returns the word for a unit that readers see: papers and code call a supplier a provider."""
    return unit.replace("provider", "supplier")


def rounded_up(epsilon: object, decimals: int = 2) -> str:
    """Returns ε for a person to read, never smaller than it is; of a large one, two digits.

    Args:
        epsilon: a number, "inf" or None.
        decimals: of a number below 1 000.
    """
    if isinstance(epsilon, str) or epsilon == math.inf:
        return "∞"
    if not isinstance(epsilon, int | float):
        return "–"
    if epsilon < 1000:
        whole = Decimal(str(epsilon)).quantize(Decimal(1).scaleb(-decimals), ROUND_CEILING)
        return str(whole)
    unit = 10.0 ** (math.floor(math.log10(epsilon)) - 1)
    return f"{math.ceil(epsilon / unit) * unit:.2g}"
