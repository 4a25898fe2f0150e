"""Secure aggregation: the server learns the sum of the clients' vectors and no vector.

`ring` writes real vectors as integers modulo 2³², `masks` hides them, `shamir` shares secrets,
and `protocol` puts the three together; its docstring has the threat model and an example.
"""

from fedpriv.federation.secagg.protocol import (
    Client,
    ProtocolViolation,
    PublicKeys,
    Revealed,
    Session,
    TooFewSurvivors,
    forward,
    unmask,
)
from fedpriv.federation.secagg.ring import Ring, coordinate_bound

__all__ = [
    "Client",
    "ProtocolViolation",
    "PublicKeys",
    "Revealed",
    "Ring",
    "Session",
    "TooFewSurvivors",
    "coordinate_bound",
    "forward",
    "unmask",
]
