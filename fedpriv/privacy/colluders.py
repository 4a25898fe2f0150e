"""ε against a masked server, by how many clients of a round tell it their share of the noise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedpriv.privacy.accounting import accountants
from fedpriv.privacy.accounting.event import ClientThenRecord
from fedpriv.privacy.views import Cohort, with_shares_known

ROWS = 16
"""Up to this many shares, every number of colluders has a row. Above, only powers of two and the
largest number do."""


def by_colluders(
    event: ClientThenRecord,
    cohorts: Sequence[Cohort],
    rounds: int,
    delta: float,
    accountant: str = "pld",
    also: int = 0,
) -> list[dict[str, Any]]:
    """Returns ε with 0, 1, … colluders, up to all but the client whose unit is protected.

    The first row is `server_masked`, the last `server_plain`. One colluder also stands for a
    curious client that reads the global models: it can subtract its own share. From
    `masking.threshold` of the cohort on, colluders could also rebuild the masks of the others,
    which is the last row.

    Args:
        event: one round under the whole noise.
        cohorts: from `fedpriv.privacy.views.cohorts_of`.
        rounds: that were drawn.
        delta: δ.
        accountant: one of `accountants.ACCOUNTANTS`.
        also: a number of colluders that gets a row in any case.

    Returns:
        Rows {"colluders": c, "epsilon": ε}; ε is None where the accountant has no value.
    """
    most = max(t for *_, t in cohorts) - 1
    counts = set(range(most + 1))
    if most >= ROWS:
        counts = {0, most, min(also, most), *(2**k for k in range(most.bit_length()))}
    rows: list[dict[str, Any]] = []
    for count in sorted(counts):
        history = [(with_shares_known(event, cohorts, count), rounds)]
        epsilon = accountants.epsilon_or_none(history, delta, accountant)
        rows.append({"colluders": count, "epsilon": epsilon})
    return rows
