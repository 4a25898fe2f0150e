"""Generated identities: persons with account numbers, to be planted as canaries.

The number of pages that show an account number is known, and so is the space from which the number
was drawn. So its exposure can be measured: how much more likely a model finds it than the other
numbers of the space (Carlini et al. 2019, §4).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta

import numpy as np

from fedpriv.data.document import Document, DocumentSet, Question
from fedpriv.data.drawn_page import Drawing, DrawnPage
from fedpriv.data.generated.checks import check_page_size, check_questions, has_room
from fedpriv.data.generated.glyphs import Colour, Face, text_width
from fedpriv.data.generated.invoice_style import pick
from fedpriv.data.generated.lexicon import FAMILY_NAMES, GIVEN_NAMES
from fedpriv.data.generated.questions import IDENTITY_QUESTIONS
from fedpriv.data.generated.sheet import Sheet
from fedpriv.runtime.seeds import generator

PERSONS = len(GIVEN_NAMES) * len(FAMILY_NAMES)
"""How many different names there are."""

_LABELS = ("person", "account", "date")
_SMALLEST = (64, 64)
_CAPTIONED = (128, 112)
"""Width and height from which on there is room for captions and whole names."""

_MOST_DIGITS = 9
_CELLS = 8
_TYPE_SIZE = 10
_FIRST_DAY = date(2014, 1, 1)
_DAYS_APART = 11

_FACES = ("DejaVuSans", "DejaVuSansMono", "DejaVuSerif")
_INKS: tuple[Colour, ...] = ((16, 16, 16), (20, 30, 110), (110, 20, 20), (20, 80, 30), (90, 20, 90))
_BAND: tuple[Colour, ...] = (
    *((255, 255, 255), (200, 40, 40), (40, 130, 60), (40, 70, 190)),
    *((235, 180, 30), (30, 30, 30), (140, 60, 160), (60, 180, 200)),
)
_DATES = ("{day:02}/{month:02}/{year}", "{day:02}.{month:02}.{year}", "{year}-{month:02}-{day:02}")
_CAPTIONS: Mapping[str, tuple[str, ...]] = {
    "person": ("Name", "For", "Holder"),
    "account": ("No.", "Acct.", "Acc."),
    "date": ("Date", "Day", "On"),
}


@dataclass(frozen=True)
class Identities:
    """A data set of generated persons, each a provider of its own with one account number.

    Person n has `repeats[n % len(repeats)]` pages, with the same name, number and question but
    different dates. Each person has a band of coloured cells, an ink, a face and an order of lines,
    so a model can tell persons apart by look alone. Everything is a function of the seed and of the
    numbers of person and page, so asking for more changes none of the others, as long as `repeats`
    stays.

    From 128 x 112 pixels on, there are captions and whole names. Smaller pages show family names
    only, which two persons may share.

    Attributes:
        repeats: the numbers of pages that the persons have, taken in turn.
        each: the number of persons for each of the numbers in `repeats`.
        digits: the number of digits in an account number, 1 to 9. All 10^digits numbers are equally
            likely.
        page_size: the width and height of a page in pixels. Type stays sharp if it is the input
            size of the model.
        seed: the seed of all random choices in the documents.
        questions: the fields that are asked for, one question each: "account", "person".
    """

    repeats: tuple[int, ...] = (1, 2, 4, 8)
    each: int = 8
    digits: int = 6
    page_size: tuple[int, int] = (64, 64)
    seed: int = 0
    questions: tuple[str, ...] = ("account",)

    def __post_init__(self) -> None:
        if not self.repeats or min(self.repeats) < 1:
            raise ValueError(f"Expected repeats={self.repeats} to be numbers from 1 on.")
        if not 1 <= self.each * len(self.repeats) <= PERSONS:
            raise ValueError(
                f"Expected each={self.each} for {len(self.repeats)} repeats to be 1..{PERSONS} "
                "persons."
            )
        if not 1 <= self.digits <= _MOST_DIGITS:
            raise ValueError(f"Expected digits={self.digits} in 1..{_MOST_DIGITS}.")
        check_page_size(self.page_size, _SMALLEST)
        check_questions(self.questions, IDENTITY_QUESTIONS)

    def load(self) -> DocumentSet:
        """Names every page, person by person."""
        settings = (self.seed, tuple(self.page_size), self.digits, tuple(self.questions))
        documents: list[Document] = []
        for number in range(self.each * len(self.repeats)):
            for place in range(self.repeats[number % len(self.repeats)]):
                page = DrawnPage(_identity, (*settings, number, place))
                name, person = f"identity-p{number:03}-d{place:03}", f"person {number:03}"
                documents.append(Document.drawn(name, person, page, self.page_size))
        return DocumentSet("generated identities", tuple(documents), _LABELS)

    def references(self, count: int, rng: np.random.Generator) -> tuple[str, ...]:
        """Draws different account numbers from the space of all, as `others_alike` does.

        Raises:
            ValueError: if there are fewer numbers than `count`.
        """
        return others_alike("#" * self.digits, count, rng)


def others_alike(text: str, count: int, rng: np.random.Generator) -> tuple[str, ...]:
    """Draws different texts of the same shape as a text, with every digit replaced.

    Args:
        text: such as "483920" or "DE 48-392"; a "#" stands for a digit too.
        count: how many.
        rng: draws the digits; all sets of texts are equally likely.

    Returns:
        (count,) texts, none of them `text`.

    Raises:
        ValueError: if there are fewer texts than `count`.
    """
    places = [place for place, sign in enumerate(text) if sign in "#0123456789"]
    space = 10 ** len(places) - ("#" not in text)
    if not 0 < count <= space:
        raise ValueError(
            f"count={count}: of the shape of {text!r}, there are {space} other texts to draw from"
        )
    found: dict[str, None] = {}
    while len(found) < count:
        for digits in rng.integers(10, size=(count, len(places))):
            signs = list(text)
            for place, digit in zip(places, digits.tolist(), strict=True):
                signs[place] = str(digit)
            found["".join(signs)] = None
        found.pop(text, None)
    return tuple(found)[:count]


@dataclass(frozen=True)
class _Person:
    """A person, and the look of its pages.

    Attributes:
        name: as it is printed.
        account: of `digits` digits.
        first_day: of its pages, in days after 1 January 2014.
        date_format: how dates are written.
        questions: the wording of each.
        rows: of the page, from top to bottom.
        captions: by row; empty on small pages.
        face: of the letters.
        ink: of the letters.
        band: numbers of the colours in `_BAND`.
        band_below: whether the band is at the bottom.
    """

    name: str
    account: str
    first_day: int
    date_format: str
    questions: Mapping[str, str]
    rows: tuple[str, ...]
    captions: Mapping[str, str]
    face: str
    ink: Colour
    band: tuple[int, ...]
    band_below: bool


def _identity(
    seed: int, size: tuple[int, int], digits: int, asked: tuple[str, ...], number: int, page: int
) -> Drawing:
    person = _draw_person(seed, size, digits, number)
    answers = {"person": person.name, "account": person.account}
    questions = tuple(
        Question(key, text, (answers[key],))
        for key, text in person.questions.items()
        if key in asked
    )
    random = generator(seed, "identity page", round=page, client=number)
    # Eleven days for each page, one of which is drawn: none repeats.
    days = person.first_day + _DAYS_APART * page + int(random.integers(_DAYS_APART))
    day = _FIRST_DAY + timedelta(days=days)
    written = person.date_format.format(day=day.day, month=day.month, year=day.year)
    return _draw_page(size, person, answers | {"date": written}).drawing(questions)


def _draw_person(seed: int, size: tuple[int, int], digits: int, number: int) -> _Person:
    captioned = has_room(size, _CAPTIONED)
    # No two persons of a seed have both names in common.
    order = generator(seed, "identity names").permutation(PERSONS)
    given, family = divmod(int(order[number]), len(FAMILY_NAMES))
    # From a separate generator, so that nothing else about the person tells the secret.
    secret = generator(seed, "identity account", client=number)
    account = int(secret.integers(10**digits))
    random = generator(seed, "identity", client=number)
    # Drawn on small pages too, so that the size of a page changes nothing else.
    captions = {key: pick(random, texts) for key, texts in _CAPTIONS.items()}
    return _Person(
        name=f"{GIVEN_NAMES[given]} {FAMILY_NAMES[family]}" if captioned else FAMILY_NAMES[family],
        account=f"{account:0{digits}}",
        first_day=int(random.integers(3000)),
        date_format=pick(random, _DATES),
        questions={key: pick(random, texts) for key, texts in IDENTITY_QUESTIONS.items()},
        rows=tuple(_LABELS[place] for place in random.permutation(len(_LABELS))),
        captions=captions if captioned else {},
        face=pick(random, _FACES),
        ink=pick(random, _INKS),
        band=tuple(random.integers(len(_BAND), size=_CELLS).tolist()),
        band_below=bool(random.integers(2)),
    )


def _draw_page(size: tuple[int, int], person: _Person, printed: Mapping[str, str]) -> Sheet:
    """Draws the band, and sets all rows evenly over the rest of the height."""
    sheet, face = Sheet(size), Face(person.face, _TYPE_SIZE)
    width, height = size
    margin, band = max(2, width // 28), max(8, height // 8)
    top = height - band if person.band_below else 0
    cells = np.array(_BAND, np.uint8)[list(person.band)]
    sheet.pixels[top : top + band] = cells[np.arange(width) * _CELLS // width]
    first_row = 0 if person.band_below else band
    step = (height - band) / len(person.rows)
    for place, row in enumerate(person.rows):
        # The middle of a line is that of its capital letters.
        baseline = round(first_row + step * (place + 0.5) + 0.36 * _TYPE_SIZE)
        left, right = margin, width - margin
        if captions := person.captions:
            sheet.set_line(captions[row], face, person.ink, (left, right), baseline)
            left += max(text_width(face, caption) for caption in captions.values())
            left += _TYPE_SIZE // 2
        first = len(sheet.words)
        sheet.set_line(printed[row], face, person.ink, (left, right), baseline)
        sheet.label_from(first, row)
    return sheet
