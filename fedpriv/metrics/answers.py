"""How well answers match: ANLS (Biten et al. 2019, Eq. 1) and accuracy.

Both compare lower-cased text without outer white space, as the code of PFL-DocVQA does, and take
the best of the accepted answers.
"""

from __future__ import annotations

from collections.abc import Sequence

from rapidfuzz.distance import Levenshtein

THRESHOLD = 0.5
"""τ of ANLS: an answer less similar than this counts as 0."""


def anls(answer: str, accepted: Sequence[str], threshold: float = THRESHOLD) -> float:
    """Returns 1 - NL(answer, a), in [0, 1], for the nearest accepted a; 0 below the threshold.

    NL is the Levenshtein distance over the longer text's length. Two empty texts are equal. A
    similarity of exactly the threshold counts, as in the code of DocVQA's authors.

    Raises:
        ValueError: if no answer is accepted, or the threshold is not in [0, 1].

    >>> anls("Vega Bilders", ["vega builders"])
    0.923...
    """
    if not 0 <= threshold <= 1:
        raise ValueError(f"threshold={threshold}: expected a value in [0, 1]")
    given = _plain(answer)
    best = max(Levenshtein.normalized_similarity(given, right) for right in _accepted(accepted))
    return best if best >= threshold else 0.0


def is_exact(answer: str, accepted: Sequence[str]) -> bool:
    """Says whether the answer is one of the accepted ones; the mean of this is the accuracy.

    Raises:
        ValueError: if no answer is accepted.
    """
    return _plain(answer) in _accepted(accepted)


def _accepted(accepted: Sequence[str]) -> list[str]:
    if not accepted:
        raise ValueError("a question without an accepted answer cannot be scored")
    return [_plain(text) for text in accepted]


def _plain(text: str) -> str:
    return text.strip().lower()
