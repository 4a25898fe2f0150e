"""Checks of the settings that generated data sets share; each raises `ValueError`."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from fedpriv.data.document import MOST_DOCUMENTS


def check_counts(providers: int, most_providers: int, documents_per_provider: int) -> None:
    """Refuses a data set with no documents, too many of them, or more providers than names."""
    if not 1 <= providers <= most_providers:
        raise ValueError(f"Expected providers={providers} in 1..{most_providers}.")
    most = MOST_DOCUMENTS // providers
    if not 1 <= documents_per_provider <= most:
        raise ValueError(f"Expected documents_per_provider={documents_per_provider} in 1..{most}.")


def has_room(size: tuple[int, int], least: tuple[int, int]) -> bool:
    """Says whether a size is a width and a height, neither below the least."""
    return len(size) == 2 and size[0] >= least[0] and size[1] >= least[1]


def check_page_size(size: tuple[int, int], least: tuple[int, int]) -> None:
    """Refuses pages that are too small to be read."""
    if not has_room(size, least):
        raise ValueError(
            f"Expected page_size={size} to be (width, height), at least {least}: on smaller pages "
            "the text cannot be read."
        )


def check_questions(
    asked: Collection[str], known: Iterable[str], where: str = "there are questions on"
) -> None:
    """Refuses questions on keys that the documents do not have."""
    known = tuple(known)
    if unknown := sorted(set(asked) - set(known)):
        raise ValueError(f"questions names {unknown}: {where} {', '.join(known)}")
