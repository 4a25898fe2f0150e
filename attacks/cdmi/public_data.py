"""The documents that PUB-MLM learns from, as like the private ones as the adversary can get them.

CDMI, §6.2 and fig. 8: the same distribution, without restaurants (10 % of SROIE), without 2018
(half of it), another data set.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from fedpriv.data import promises
from fedpriv.data.document import Document, DocumentSource
from fedpriv.threat.checks import check_choices

Shift = Literal["same", "without_restaurants", "without_2018"]

PATTERNS: dict[str, str | None] = {
    "same": None,
    "without_restaurants": (
        r"\b(restaurants?|restoran|kedai makan(an)?|cafe|café|coffee (bean|house|shop)|kopitiam|"
        r"bistro|pizza|bakery|kitchen|food court|dine.?in|catering)\b"
    ),
    "without_2018": (
        r"2018|\b\d{1,2}[-/.]\d{1,2}[-/.]18\b|\b18[-/.]\d{1,2}[-/.]\d{1,2}\b|"
        r"\b\d{1,2}[-/. ]?(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)\w*[-/. ]?18\b"
    ),
}
"""Shift → what no public document may say [ours: CDMI does not say how it told them]."""


@dataclass(frozen=True)
class PublicData:
    """Which documents are public.

    Args:
        shift: which public documents are left out by what they say: "same" leaves out none,
            "without_restaurants" those that name a restaurant or the like, "without_2018" those
            with a date in 2018.
        without: a regular expression; public documents whose text contains a match, in upper or
            lower case, are left out too. The text is the document's words, joined by spaces. None
            leaves out no more.
        other: another data set, used in place of the federation's public documents. None uses
            those.
    """

    shift: Shift = "same"
    without: str | None = None
    other: DocumentSource | None = None

    def __post_init__(self) -> None:
        check_choices(self)
        try:
            re.compile(self.without or "")
        except re.error as error:
            raise ValueError(f"without={self.without!r}: no regular expression: {error}") from error

    def of(self, documents: Sequence[Document]) -> tuple[Document, ...]:
        """Returns the public documents, without entities: PUB-MLM has no use for labels.

        Args:
            documents: of the federation, that were not trained on.

        Raises:
            ValueError: if there are none, or none is left.
        """
        given = documents if self.other is None else promises.load(self.other).documents
        if not given:
            raise ValueError(
                "no documents are public, and the attack trains on such: run the federation with "
                "data.public=0.5"
            )
        patterns = [p for p in (PATTERNS[self.shift], self.without) if p]
        kept = []
        for document in given:
            text = " ".join(word.text for word in document.words)
            if not any(re.search(pattern, text, re.IGNORECASE) for pattern in patterns):
                kept.append(replace(document, entities=(), links=()))
        if not kept:
            raise ValueError(
                f"each of the {len(given)} public documents says what shift={self.shift!r}, "
                f"without={self.without!r} leave out: expected a narrower pattern"
            )
        return tuple(kept)
