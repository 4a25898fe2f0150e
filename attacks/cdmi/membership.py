"""How sure the attack is of a reconstruction: the five metrics of CDMI, §4.3.

A high value says rather a member; CDMI gives no signs [ours]. p is a token's likelihood at line 10
of Algorithm 2, before the nucleus is cut out of it, and ĝ its public likelihood. The perplexity of
a field is exp(-mean(log likelihood)) over its tokens.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from fedpriv.threat.claims import PUBLIC

Metric = Literal["raw", "ratio", "raw_and_ratio", "gap", "token_ratio"]

MOST = 700.0
"""Of a logarithm: beyond 709, its exponential is no number any more, nor JSON."""


def confidences(target: Sequence[float], public: Sequence[float]) -> dict[str, float]:
    """Returns all five metrics of a field of k tokens.

    Args:
        target: log p of each.
        public: log ĝ of each.
    """
    apart = [mine - theirs for mine, theirs in zip(target, public, strict=True)]
    pairs = zip(target, public, strict=True)
    raw, ratio = -_mean(public), _mean(apart)
    return {
        "raw": _exp(raw),
        "ratio": _exp(ratio),
        "raw_and_ratio": _exp(raw + ratio),
        "gap": max(math.exp(mine) - math.exp(theirs) for mine, theirs in pairs),
        "token_ratio": _exp(max(apart)),
    }


def public_confidence(public: Sequence[float]) -> dict[str, float]:
    """Returns the baseline's: the negative perplexity.

    CDMI does not say how it sorts its baseline. Most plausible first is the best order that needs
    no target [ours].

    Args:
        public: log ĝ of each token.
    """
    return {PUBLIC: -_exp(-_mean(public))}


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _exp(value: float) -> float:
    return math.exp(min(value, MOST))
