"""Labels of SROIE: the words of a receipt that spell its company, date, address and total.

The release gives the four values as strings only. Each is searched among the receipt's words.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fedpriv.data.document import Entity, Word
from fedpriv.data.values import amounts, dates, dates_among, numbers

LABELS = ("company", "date", "address", "total")


def label_words(words: Sequence[Word], values: Mapping[str, str]) -> tuple[Entity, ...]:
    """Finds the words that spell the values of `LABELS`; a value that is not found has no entity.

    Texts are compared by letters and digits only, regardless of case. A word belongs to the first
    label that claims it, in the order company, date, total, address.

    - company: the first run of words, within a line or over consecutive lines, that spells the
      value; otherwise the first run that contains it between word boundaries, such as
      "SDN.BHD.(12345-X)" for "SDN BHD".
    - date: the first run that may mean the same day (`fedpriv.data.values`), rather one that is
      written so; without any, a run equal by letters and digits ("25122018").
    - total: the word that may mean the same amount. Of several, the last one that stands in the
      same row of print as a line that says TOTAL (SUBTOTAL does not count); otherwise the one that
      follows such a line most closely; otherwise the last. The value's currency in the word before
      is included.
    - address: the run of consecutive whole lines that occur in the value in this order and cover
      most of it, if they cover more than half of its characters.

    Found on the 269 receipts of our pack: company 262, date 268, total 269, address 261 (249 of
    them to the last character). The rest are values that the receipt's text does not spell.
    """
    taken: set[int] = set()
    found: dict[str, Entity] = {}
    for label, find in _FINDERS.items():
        run = find(words, values.get(label, ""), taken)
        if run is not None:
            taken.update(run)
            found[label] = Entity(label, tuple(run))
    return tuple(found[label] for label in LABELS if label in found)


def _letters(text: str) -> list[str]:
    return [letter for letter in text.casefold() if letter.isalnum()]


def _groups(text: str) -> list[str]:
    return re.findall(r"\d+|[^\W\d_]+", text.casefold())


@dataclass(frozen=True, slots=True)
class _Run:
    """A run of words that holds a value; `whole` if it holds nothing else."""

    words: range
    whole: bool


def _runs(
    words: Sequence[Word], cut: Callable[[str], list[str]], value: str, taken: set[int]
) -> list[_Run]:
    """Returns the runs of free words that contain the value's pieces, in page order."""
    wanted = cut(value)
    pieces = [(piece, place) for place, word in enumerate(words) for piece in cut(word.text)]
    texts, places = [piece for piece, _ in pieces], [-1, *(place for _, place in pieces), -1]
    runs: list[_Run] = []
    for start in range(len(texts) - len(wanted) + 1) if wanted else ():
        end = start + len(wanted)
        if texts[start] == wanted[0] and texts[start:end] == wanted:
            run = range(places[start + 1], places[end] + 1)
            whole = places[start] != run[0] and places[end + 1] != run[-1]
            if taken.isdisjoint(run):
                runs.append(_Run(run, whole))
    return runs


def _find_company(words: Sequence[Word], value: str, taken: set[int]) -> range | None:
    exact = (run.words for run in _runs(words, _letters, value, taken) if run.whole)
    inside = (run.words for run in _runs(words, _groups, value, taken))
    return next(itertools.chain(exact, inside), None)


def _find_date(words: Sequence[Word], value: str, taken: set[int]) -> range | None:
    days = dates(value)
    plain = [run.words for run in _runs(words, _letters, value, taken) if run.whole]
    found = [
        range(start, stop)
        for start, stop, meant in dates_among([word.text for word in words])
        if not meant.isdisjoint(days) and taken.isdisjoint(range(start, stop))
    ]
    # Of 1/12/2017 and 12/1/2017, which may mean the same, the one that is written so.
    found.sort(key=lambda run: _letters("".join(words[n].text for n in run)) != _letters(value))
    return next(iter([*found, *plain]), None)


@dataclass(frozen=True, slots=True)
class _Line:
    """A text line: its words, their letters and digits, top and bottom in pixels."""

    words: range
    text: str
    top: float
    bottom: float


def _lines_of(words: Sequence[Word]) -> list[_Line]:
    lines: list[_Line] = []
    start = 0
    for _, group in itertools.groupby(words, key=lambda word: word.segment):
        line = list(group)
        text = "".join(itertools.chain.from_iterable(_letters(word.text) for word in line))
        run = range(start, start + len(line))
        lines.append(_Line(run, text, line[0].box[1], line[0].box[3]))
        start = run.stop
    return lines


def _find_total(words: Sequence[Word], value: str, taken: set[int]) -> range | None:
    read = amounts if amounts(value) else numbers
    runs = [
        range(place, place + 1)
        for place, word in enumerate(words)
        if place not in taken and not read(word.text).isdisjoint(read(value))
    ]
    if not runs:
        return None
    lines = _lines_of(words)
    line_of = [number for number, line in enumerate(lines) for _ in line.words]
    says = [n for n, line in enumerate(lines) if "total" in line.text.replace("subtotal", "")]

    def rank(run: range) -> tuple[int, int, int]:
        middle = (words[run[0]].box[1] + words[run[0]].box[3]) / 2
        if any(lines[n].top < middle < lines[n].bottom for n in says):
            return 0, 0, -run[0]
        behind = [line_of[run[0]] - n for n in says if n < line_of[run[0]]]
        return (1, min(behind), run[0]) if behind else (2, 0, -run[0])

    best = min(runs, key=rank)
    before = best[0] - 1
    currency = _letters(re.split(r"[-\d]", value)[0])
    if (
        currency
        and before >= 0
        and before not in taken
        and _letters(words[before].text) == currency
    ):
        return range(before, best.stop)
    return best


def _find_address(words: Sequence[Word], value: str, taken: set[int]) -> range | None:
    lines = _lines_of(words)
    wanted = "".join(_letters(value))
    best, best_cover = None, len(wanted) // 2
    for first, line in enumerate(lines):
        place = cover = 0
        for last in range(first, len(lines) if line.text else first):
            text = lines[last].text
            found = wanted.find(text, place)
            if found < 0 or not taken.isdisjoint(lines[last].words):
                break
            place, cover = found + len(text), cover + len(text)
            if cover > best_cover:
                best, best_cover = range(line.words[0], lines[last].words.stop), cover
    return best


_FINDERS: dict[str, Callable[[Sequence[Word], str, set[int]], range | None]] = {
    "company": _find_company,
    "date": _find_date,
    "total": _find_total,
    "address": _find_address,
}
"""In order of priority."""
