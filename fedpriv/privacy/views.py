"""Four answers to "private against whom?", for one and the same run.

| view | who looks, and at what |
|---|---|
| `paper` | nobody: the rate that 002 and 004 account, as if each record were drawn on its own |
| `global` | who gets the global models and may know which clients took part |
| `server_masked` | the server: knows who took part, sees the masked updates, hence only their sum |
| `server_plain` | the server without masking: sees each update with that client's share of noise |

The records of a client are drawn together, so a large sum tells that the client was there: the
product of the two rates amplifies less than the paper says (Bun, Drechsler, Gaboardi, McMillan
and Sarathy 2020). Without masking the server needs no sum: each of `cohort` clients adds noise
of variance 1 / cohort of the whole.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedpriv.privacy.event import ClientThenRecord, count_problem

VIEWS = ("paper", "global", "server_masked", "server_plain")

SENTENCES = {
    "paper": "as the papers account: each record drawn on its own, with client rate x record rate",
    "global": "whoever sees the global models and may know which clients took part",
    "server_masked": "the server, which knows who took part and sees only the masked sum",
    "server_plain": "the server without masking: it sees each update with 1/cohort of the noise",
}
NOT_A_GUARANTEE = "not a guarantee: the records of a client are drawn together"
NO_COHORT = "no cohort given: how many clients share the noise decides what one of them hides"


@dataclass(frozen=True)
class View:
    """One release, as one onlooker sees it.

    Args:
        event: what is released to that onlooker; None where that is not known.
        guarantee: whether ε of the event holds against the onlooker.
        note: who looks, in a sentence.
        reason: why there is no event.
    """

    event: ClientThenRecord | None
    guarantee: bool
    note: str
    reason: str = ""


def view_events(
    client_rate: float,
    record_rate: float,
    noise_multiplier: float,
    cohort: int | None = None,
    group_size: int = 1,
) -> dict[str, View]:
    """Returns one release of a noisy sum in each of `VIEWS`.

    Args:
        client_rate: probability that a client is drawn for the round, in [0, 1].
        record_rate: probability that a record of a drawn client enters, in [0, 1].
        noise_multiplier: standard deviation of the noise on the sum ÷ clip norm, >= 0.
        cohort: clients that share the noise in the round; None if that is not known.
        group_size: records of the protected unit.

    Raises:
        ValueError: an input is out of its range.
    """
    problem = count_problem("cohort", cohort, least=1) if cohort is not None else None
    if problem:
        raise ValueError(problem)
    event = ClientThenRecord(client_rate, record_rate, noise_multiplier, group_size)
    paper = ClientThenRecord(1.0, client_rate * record_rate, noise_multiplier, group_size)
    sound = event == paper
    claim = SENTENCES["paper"] if sound else f"{SENTENCES['paper']}; {NOT_A_GUARANTEE}"
    return {
        "paper": View(paper, sound, claim),
        "global": View(event, True, SENTENCES["global"]),
        "server_masked": View(event, True, SENTENCES["server_masked"]),
        "server_plain": _server_plain(event, cohort),
    }


def _server_plain(event: ClientThenRecord, cohort: int | None) -> View:
    note = SENTENCES["server_plain"]
    if cohort is None:
        return View(None, False, note, NO_COHORT)
    share = ClientThenRecord(
        event.client_rate,
        event.record_rate,
        event.noise_multiplier / math.sqrt(cohort),
        event.group_size,
    )
    return View(share, True, note)
