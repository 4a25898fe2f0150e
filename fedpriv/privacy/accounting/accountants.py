"""ε of a history of noisy releases, by four accountants; pure functions of events.

    >>> from fedpriv.privacy.accounting.event import ClientThenRecord
    >>> round_ = ClientThenRecord(client_rate=0.2, record_rate=1.0, noise_multiplier=0.771484375)
    >>> round(epsilon([(round_, 10)], delta=1e-5), 2)
    14.46

That is FL-PROVIDER-DP at the noise that Tito et al. 2024, Table 12, calibrate to ε = 8: they
account each provider as drawn on its own with 0.2, but the providers of a client come together.

The accountants are:

- `pld`: the reference, a privacy loss distribution, rounded up by at most max(.002, .001·ε).
- `rdp`: an upper bound, loose by a tenth and more, in milliseconds and for any input.
- `prv`: the upper end of a numerical bracket, .01 to each side (wider from ε = 30 on).
- `gdp`: the central limit. It is an approximation, not a bound, except without sampling.

Nothing released, or nothing drawn (T = 0, q = 0): 0. No noise: ∞. δ at least the probability to
be drawn at all: 0. Anything else that an accountant cannot compute raises `NotAvailable` with
the reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from fedpriv.privacy.accounting import calibration, gdp, opacus_prv, pld, prv, rdp
from fedpriv.privacy.accounting.event import (
    History,
    NotAvailable,
    checked_delta,
    ever_included,
    merged,
)

ACCOUNTANTS = ("pld", "rdp", "prv", "gdp")
OPACUS = "prv_opacus"
"""One more name: Opacus' own PRV bound, which Tito et al. calibrate to. It imports torch."""


@dataclass(frozen=True)
class Estimate:
    """ε by one accountant.

    Args:
        epsilon: ε, ∞ without noise; None where the accountant has no value.
        reason: why there is none, or a remark on the value.
    """

    epsilon: float | None
    reason: str = ""


def epsilon(
    history: History, delta: float, accountant: str = "pld", *, tolerance: float = pld.TOLERANCE
) -> float:
    """Returns ε at δ of everything in the history together.

    Args:
        history: events and how many times each was released.
        delta: in (0, 1).
        accountant: one of `ACCOUNTANTS`, or "prv_opacus".
        tolerance: of `pld`: ε may be too high by this, or by this share of it, never too low.

    Raises:
        ValueError: an input is out of its range.
        NotAvailable: (a ValueError) the accountant has no value here; says why.
    """
    _check_accountant(accountant)
    if not 0 < tolerance < math.inf:
        raise ValueError(f"tolerance={tolerance!r}: expected a number > 0, such as 0.001")
    return _estimate(history, delta, accountant, tolerance)[0]


def epsilon_or_none(history: History, delta: float, accountant: str = "pld") -> float | None:
    """Returns ε as `epsilon` does; None where the accountant has no value."""
    try:
        return epsilon(history, delta, accountant)
    except NotAvailable:
        return None


def estimates(history: History, delta: float) -> dict[str, Estimate]:
    """Returns what each of `ACCOUNTANTS` says of the history at δ."""
    found = {}
    for accountant in ACCOUNTANTS:
        try:
            found[accountant] = Estimate(*_estimate(history, delta, accountant, pld.TOLERANCE))
        except NotAvailable as error:
            found[accountant] = Estimate(None, str(error))
    return found


def noise_multiplier(
    history_of: Callable[[float], History], epsilon: float, delta: float, accountant: str = "pld"
) -> float:
    """Returns a noise multiplier whose ε at δ is at most `epsilon`, and not much less.

    It is at most .01 below the target, or a hundredth of a target below 1.

    The same dyadic search as Opacus' `get_noise_multiplier`, so that with "prv_opacus" the noise
    multipliers of PFL-DocVQA, Table 12 come out exactly, but for one that is a step away.

    Args:
        history_of: the history at a noise multiplier; its ε must fall as that grows.
        epsilon: the ε to be met, > 0.
        delta: in (0, 1).
        accountant: as in `epsilon`.

    Raises:
        ValueError: no noise multiplier up to 1e6 is enough, or any at all is.
        NotAvailable: the accountant has no value where the search led; says why.
    """
    _check_accountant(accountant)

    def at(sigma: float) -> float:
        return _estimate(history_of(sigma), delta, accountant, pld.TOLERANCE)[0]

    return calibration.search(at, epsilon, calibration.TOLERANCE * min(1.0, epsilon))


def _check_accountant(name: str) -> None:
    known = (*ACCOUNTANTS, OPACUS)
    if name not in known:
        raise ValueError(f"accountant={name!r}: expected one of {', '.join(known)}")


def _estimate(
    history: History, delta: float, accountant: str, tolerance: float
) -> tuple[float, str]:
    """Returns ε and a remark on it, which may be empty."""
    delta, spent = checked_delta(delta), merged(history)
    if not spent:
        return 0.0, "nothing is released"
    if any(part.noise_multiplier == 0 for event, _ in spent for _, part in event.parts):
        return math.inf, "without noise nothing is hidden"
    if delta >= ever_included(spent):
        return 0.0, "delta is at least the probability to be drawn at all"
    if accountant == "pld":
        return pld.epsilon(spent, delta, tolerance), ""
    if accountant == "rdp":
        return rdp.epsilon(spent, delta), ""
    if accountant == "gdp":
        return gdp.epsilon(spent, delta), gdp.label(spent)
    if accountant == "prv":
        return prv.epsilon(spent, delta)
    return opacus_prv.epsilon(spent, delta), ""
