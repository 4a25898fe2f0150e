"""Lists of values that a scrubbed field may hold: what an adversary tries who cannot guess freely.

A list holds values of the field's key with as many tokens as the field has: from the adversary's
own documents, from another data set, or written out by key, such as all days of some years.
"""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

import numpy as np

from fedpriv.data import promises
from fedpriv.data.document import Document, DocumentSource
from fedpriv.data.generated import lexicon
from fedpriv.runtime.outside import PathSetting
from fedpriv.threat.checks import check_choices, check_least, check_positive

Tokens = tuple[int, ...]


class Values(Protocol):
    """Writes out values of one key."""

    def texts(self, rng: np.random.Generator) -> Sequence[str]:
        """Returns values as a document would print them; `rng` is the only source of randomness."""


@dataclass(frozen=True)
class Dates(Values):
    """All days of some years.

    Args:
        first: the first year.
        last: the last year, included.
        formats: how a day is printed: patterns for `str.format` with the names `day`, `month`,
            `year`, and `long` and `short` for the name of the month.
    """

    first: int
    last: int
    formats: tuple[str, ...] = lexicon.DATES

    def __post_init__(self) -> None:
        if not 1 <= self.first <= self.last <= datetime.MAXYEAR or not self.formats:
            raise ValueError(
                f"first={self.first}, last={self.last}, formats={list(self.formats)}: expected "
                f"years from 1 to {datetime.MAXYEAR}, the second not before the first, and a format"
            )

    def texts(self, rng: np.random.Generator) -> Sequence[str]:
        """Returns every day in every format."""
        first = datetime.date(self.first, 1, 1)
        count = (datetime.date(self.last, 12, 31) - first).days + 1
        days = [first + datetime.timedelta(number) for number in range(count)]
        return [
            pattern.format(
                day=day.day,
                month=day.month,
                year=day.year,
                short=lexicon.MONTHS[day.month - 1][:3],
                long=lexicon.MONTHS[day.month - 1],
            )
            for day in days
            for pattern in self.formats
        ]


@dataclass(frozen=True)
class Amounts(Values):
    """Amounts of money, drawn so that every order of magnitude is as frequent.

    Args:
        least: the smallest amount.
        most: the largest amount.
        count: the number of amounts that are drawn.
        formats: how an amount is printed: patterns for `str.format` of one number, such as
            "$ {:,.2f}".
    """

    least: float = 1.0
    most: float = 100_000.0
    count: int = 1000
    formats: tuple[str, ...] = ("{:.2f}", "{:,.2f}", "$ {:,.2f}")

    def __post_init__(self) -> None:
        check_positive(self, "least", "most")
        check_least(self, 1, "count")
        if self.least > self.most or not self.formats:
            raise ValueError(
                f"least={self.least}, most={self.most}, formats={list(self.formats)}: expected the "
                "second not below the first, and a format"
            )

    def texts(self, rng: np.random.Generator) -> Sequence[str]:
        """Returns each amount in every format."""
        drawn = np.exp(rng.uniform(np.log(self.least), np.log(self.most), self.count))
        return [pattern.format(amount) for amount in drawn.tolist() for pattern in self.formats]


@dataclass(frozen=True)
class Lines(Values):
    """A list of one's own: the lines of a text file in UTF-8.

    Args:
        path: the path of the text file.
    """

    path: PathSetting

    def texts(self, rng: np.random.Generator) -> Sequence[str]:
        """Returns the lines that are not empty.

        Raises:
            ValueError: if there is none, or no such file.
        """
        try:
            lines = Path(self.path).read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"{self.path}: {error}; expected a text file in UTF-8") from error
        if not (found := [line.strip() for line in lines if line.strip()]):
            raise ValueError(f"{self.path} is empty: expected a value in every line")
        return found


@dataclass(frozen=True)
class Candidates:
    """Where candidates for scrubbed fields come from, and the game that is played with them.

    Args:
        game: whether each list is sure to hold the true value. "given" puts it into every list, at
            a random place, and the attack has to choose it. With "open" a list holds it only if the
            adversary's own sources have it.
        public: whether the field values in the public documents are candidates.
        documents: another data set whose field values are candidates too. None adds no data set.
        values: a source of further candidates for each key of a field: `Dates`, `Amounts` or
            `Lines` of `fedpriv.threat.candidates`.
        least: the smallest number of candidates in a list, without the true value that
            game="given" adds. Fields with fewer are left out, because it says little to be the
            first of few.
        most: the largest number of candidates in a list, without the true value that game="given"
            adds. Longer lists are cut at random; None keeps them whole.
    """

    game: Literal["given", "open"] = "given"
    public: bool = True
    documents: DocumentSource | None = None
    values: Mapping[str, Values] = field(default_factory=dict)
    least: int = 10
    most: int | None = 50

    def __post_init__(self) -> None:
        check_choices(self)
        check_least(self, 1, "least", "most")
        if self.most is not None and self.most < self.least:
            raise ValueError(
                f"most={self.most}, least={self.least}: expected the first not below the second"
            )

    def texts(
        self, public: Sequence[Document], rng: np.random.Generator
    ) -> Mapping[str, Sequence[str]]:
        """Returns the adversary's values by key, each once.

        Args:
            public: the adversary's documents.
            rng: of the values that are drawn.

        Raises:
            ValueError: if a source gives none.
        """
        found: dict[str, dict[str, None]] = defaultdict(dict)
        others = promises.load(self.documents).documents if self.documents else ()
        for document in (*(public if self.public else ()), *others):
            for entity in document.entities:
                words = (document.words[word].text for word in entity.words)
                found[entity.label][" ".join(words)] = None
        for key, values in self.values.items():
            found[key] |= dict.fromkeys(values.texts(rng))
        return {key: tuple(texts) for key, texts in found.items()}

    def of(
        self, pool: Sequence[Tokens], truth: Tokens, rng: np.random.Generator
    ) -> Sequence[Tokens] | None:
        """Returns the list of a field; None where there are too few others.

        Args:
            pool: the adversary's values of the field's key and number of tokens, no two alike.
            truth: what stands in the field, which the game of "given" puts among the others.
            rng: chooses the others and the order.
        """
        others = [one for one in pool if self.game == "open" or one != truth]
        if len(others) < self.least:
            return None
        drawn = [others[place] for place in rng.permutation(len(others))[: self.most]]
        if self.game == "given":
            drawn.insert(int(rng.integers(len(drawn) + 1)), truth)
        return drawn

    def in_words(self) -> str:
        """Returns the assumption as a report says it."""
        if self.game == "given":
            return "of each field the adversary holds a list of values, one of which stood there"
        return "of each field the adversary holds a list of values that it made without the field"
