"""Names that look like two spellings of one: "ACME Ltd" and "Acme Ltd."."""

from __future__ import annotations

from collections.abc import Mapping

from rapidfuzz import fuzz, process

from fedpriv.data.readers.annotation import plain_name

LIKE = 90.0
"""Least likeness of two names, rapidfuzz's ratio of their letters and digits."""

MOST_COMPARED = 20_000
"""Names that are all compared with one another; of more, only those beside each other in order."""

_BLOCK = 1000
_BESIDE = 20


def like_spellings(sizes: Mapping[str, int]) -> list[tuple[str, str]]:
    """Returns pairs of names that may be of the same provider, the more frequent name first.

    Names that differ in digits alone are not alike: they are numbered on purpose.

    Args:
        sizes: documents of each name.
    """
    spelled: dict[str, str] = {name: plain_name(name) for name in sizes}
    names = sorted(sizes, key=lambda name: (spelled[name], name))
    texts = [spelled[name] for name in names]
    if len(names) > MOST_COMPARED:
        near = (
            (one, other)
            for one in range(len(names))
            for other in range(one + 1, min(one + _BESIDE, len(names)))
            if fuzz.ratio(texts[one], texts[other]) >= LIKE
        )
    else:
        near = (
            (start + int(row), int(column))
            for start in range(0, len(names), _BLOCK)
            for row, column in zip(
                *process.cdist(
                    texts[start : start + _BLOCK], texts, scorer=fuzz.ratio, score_cutoff=LIKE
                ).nonzero(),
                strict=True,
            )
        )
    pairs = {
        (min(one, other), max(one, other))
        for one, other in near
        if one != other and texts[one] and _digits(texts[one]) == _digits(texts[other])
    }
    named = [(names[one], names[other]) for one, other in sorted(pairs)]
    return [pair if sizes[pair[0]] >= sizes[pair[1]] else pair[::-1] for pair in named]


def _digits(text: str) -> str:
    return "".join(sign for sign in text if sign.isdigit())
