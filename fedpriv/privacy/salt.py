"""The salt of a run: what its noise and masks are drawn from beside the seed.

Without one, two runs of one seed that differ only in who answered would have the same noise and the
same masks, and what the server saw of the two would give single messages away.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import Literal

Entropy = Literal["run", "seed", "os"]
"""Where the salt of a run comes from: the operating system, kept in the run folder or nowhere; or
there is none."""


def new_salt() -> str:
    """Returns 256 bits of the operating system's."""
    return secrets.token_hex(32)


def salted(key: str, salt: str, whose: str = "clients") -> str:
    """Returns the key of one party's randomness in a run.

    Args:
        key: of `message_key`.
        salt: of the run; without one, the parties have the key itself.
        whose: the party, which can draw nobody else's numbers.
    """
    if not salt:
        return key
    return hashlib.blake2b(f"{whose} {key} {salt}".encode(), digest_size=16).hexdigest()
