"""Random numbers that depend on (seed, purpose, round, client) and on nothing else.

The order of draws, the process and the number of workers do not matter: every use of randomness
derives its own generator, so no two uses share a stream.
"""

import hashlib

import numpy as np


def entropy(seed: int, purpose: str, round: int = 0, client: int = 0) -> int:
    """Returns 128 bits that are a function of the four arguments, on every machine.

    Args:
        seed: the run's seed.
        purpose: of the numbers, such as ``"client sampling"``. Two purposes never share a stream.
        round: from 1; 0 outside of rounds.
        client: the client's number, from 0.
    """
    key = f"{seed}\x1f{purpose}\x1f{round}\x1f{client}".encode()
    return int.from_bytes(hashlib.blake2b(key, digest_size=16).digest(), "little")


def generator(seed: int, purpose: str, round: int = 0, client: int = 0) -> np.random.Generator:
    """Returns a NumPy generator (Philox, keyed by `entropy`) for one use of randomness."""
    return np.random.Generator(np.random.Philox(key=entropy(seed, purpose, round, client)))


def torch_seed(seed: int, purpose: str, round: int = 0, client: int = 0) -> int:
    """Returns a seed for torch's own generators (dropout, weight initialisation).

    torch's CPU generator keeps only 32 bits of it, so two streams of a long run may coincide. That
    is good enough for dropout, but not for privacy noise, which is drawn from `generator`.
    """
    return entropy(seed, purpose, round, client) & 0x7FFF_FFFF_FFFF_FFFF
