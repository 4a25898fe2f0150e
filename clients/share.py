"""A client's share of the noise on a round's sum."""

from __future__ import annotations

from fedpriv.federation.client import ClientContext
from fedpriv.federation.private_strategy import SHARES
from fedpriv.federation.secagg.discrete import discrete_share
from fedpriv.privacy.mechanism import Mechanism
from fedpriv.privacy.noise import add_gaussian, share_std
from fedpriv.runtime.vectors import Vector, as_tensor, on_host, over_


def with_share(
    context: ClientContext,
    total: Vector,
    mechanism: Mechanism,
    divisor: float,
    purpose: str = "privacy noise",
) -> Vector:
    """Returns a client's sum under its share of the noise, divided as the mechanism says.

    A discrete mechanism hands back whole numbers, which are divided once they are added up.

    Args:
        context: of the client.
        total: Σ of its clipped contributions; changed in place.
        mechanism: of the run.
        divisor: a public constant.
        purpose: of the random numbers.
    """
    shares = int(context.instruction.settings[SHARES])
    rng = context.generator(purpose)
    if mechanism.scale:
        round = context.instruction.round
        numbers = discrete_share(on_host(total), mechanism, shares, context.seed, round, rng)
        return as_tensor(numbers).to(context.parameters["float"].dtype)
    add_gaussian(total, share_std(mechanism.noise_std, shares), rng)
    return over_(total, divisor)
