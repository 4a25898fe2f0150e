"""Generated slips: invoices so small that a model reads them pixel by pixel, and a person too.

Models shrink a page to their input. An invoice of 400 x 560 can no longer be read there, so what
an attack recovers of it could not be read either. A slip has the model's own size, and few lines
in type of 10 pixels and more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedpriv.data.document import MOST_DOCUMENTS, Document, DocumentSet, Entity, Question, Word
from fedpriv.data.generated.glyphs import Colour, Face, Patch, Pixels, set_string, text_width
from fedpriv.data.generated.invoice_style import WHITE, pick
from fedpriv.data.generated.invoices import NAME_SPACE, Bill, Provider, draw_bill, draw_provider
from fedpriv.data.generated.questions import QUESTION_TEMPLATES
from fedpriv.runtime.seeds import generator

_RULE = "rule"
_GOODS = ("goods 0", "goods 1", "goods 2")

# Digits are in a face without serifs: those of the other one are misread, by eye and by program.
_PLAIN = "DejaVuSans"
_FACES = ("DejaVuSans", "DejaVuSerif")
_IN_OWN_FACE = ("provider", "address", "customer", "note")
_INKS: tuple[Colour, ...] = ((16, 16, 16), (48, 48, 48), (20, 30, 70), (60, 20, 20))
_DATES = ("{day:02}/{month:02}/{year}", "{day:02}.{month:02}.{year}", "{year}-{month:02}-{day:02}")
_NOTES = ("Thank you.", "Please pay soon.", "Keep this slip.", "No returns.")
_CAPTIONS: Mapping[str, tuple[str, ...]] = {
    "invoice_number": ("No.", "Ref.", "Inv."),
    "date": ("Date", "Day", "On"),
    "total": ("Total", "Sum", "Due"),
}


@dataclass(frozen=True)
class _Arrangement:
    """What a slip of some size has room for.

    Attributes:
        size: width and height in pixels from which on it is used.
        type_size: of the type, in pixels.
        wording: full; short: companies by two words; or brief: companies and customers by one word,
            and no captions.
        head: the rows at the top, the same for all providers.
        body: the rows whose order a provider chooses.
        foot: the rows at the bottom, the same for all providers.
    """

    size: tuple[int, int]
    type_size: int
    wording: Literal["full", "short", "brief"]
    head: tuple[str, ...]
    body: tuple[str, ...]
    foot: tuple[str, ...]

    @property
    def labels(self) -> tuple[str, ...]:
        """The entities, in an order that does not depend on the provider."""
        rows = (*self.head, *self.body, *self.foot)
        return tuple(row for row in rows if row in QUESTION_TEMPLATES)


_ARRANGEMENTS = (
    _Arrangement(
        (224, 224),
        12,
        "full",
        ("provider", "address", _RULE),
        ("customer", "invoice_number", "date"),
        (_RULE, *_GOODS, _RULE, "total", "note"),
    ),
    _Arrangement(
        (112, 112),
        10,
        "short",
        ("provider", _RULE),
        ("customer", "invoice_number", "date"),
        (_RULE, "total", "note"),
    ),
    _Arrangement((64, 64), 10, "brief", ("provider", _RULE), ("customer", "date"), ("total",)),
)
"""From the largest to the smallest."""


@dataclass(frozen=True)
class Slips:
    """A data set of small generated invoices; a page of 112 x 112 takes 38 kB of memory.

    Providers, customers, numbers, dates and amounts are those of
    `fedpriv.data.generated.invoices.Invoices` of the same seed, written shorter. Each provider has
    wording, typeface, colour and order of lines of its own, and where a line stands does not depend
    on what is written. Captions and values are segments of their own. What is there depends on the
    page's size:

    - from 64 x 64: provider and customer, each by one word, date and total, without captions;
    - from 112 x 112: provider, customer, invoice_number, date and total, with captions;
    - from 224 x 224: the address as well, and what was bought, which is no entity.

    Attributes:
        page_size: width and height in pixels; that of the model's input, for type to stay sharp.
        providers: how many companies.
        documents_per_provider: how many slips each has.
        seed: of everything random.
        questions: the keys that are asked for, one question each.
    """

    page_size: tuple[int, int] = (112, 112)
    providers: int = 24
    documents_per_provider: int = 12
    seed: int = 0
    questions: tuple[str, ...] = ("provider", "date", "total")

    def __post_init__(self) -> None:
        if not 1 <= self.providers <= NAME_SPACE:
            raise ValueError(f"Expected providers={self.providers} in 1..{NAME_SPACE}.")
        most = MOST_DOCUMENTS // self.providers
        if not 1 <= self.documents_per_provider <= most:
            raise ValueError(
                f"Expected documents_per_provider={self.documents_per_provider} in 1..{most}."
            )
        labels = _arrangement(self.page_size).labels
        unknown = sorted(set(self.questions) - set(labels))
        if unknown:
            raise ValueError(
                f"questions names {unknown}: on slips of {tuple(self.page_size)} pixels there are "
                f"{', '.join(labels)}"
            )

    def load(self) -> DocumentSet:
        """Draws every document, provider by provider."""
        documents: list[Document] = []
        for provider in range(self.providers):
            company = draw_provider(self.seed, provider)
            look = _draw_look(self.seed, provider, _arrangement(self.page_size))
            for number in range(self.documents_per_provider):
                bill = draw_bill(self.seed, company.habits, provider, number)
                sheet = _Sheet(self.page_size, look)
                sheet.draw(_printed(company, bill, look))
                name = f"slip-p{provider:03}-d{number:03}"
                questions = self._asked(sheet, provider, number)
                documents.append(sheet.document(name, company.name, questions))
        return DocumentSet("generated slips", tuple(documents), _arrangement(self.page_size).labels)

    def _asked(self, sheet: _Sheet, provider: int, number: int) -> tuple[Question, ...]:
        random = generator(self.seed, "slip questions", round=number, client=provider)
        # All are drawn, so that which are asked changes none of the others.
        drawn = {key: pick(random, phrasings) for key, phrasings in QUESTION_TEMPLATES.items()}
        return tuple(
            Question(key, text, (sheet.text(key),))
            for key, text in drawn.items()
            if key in self.questions
        )


@dataclass(frozen=True)
class _Look:
    """How a provider's slips look."""

    arrangement: _Arrangement
    rows: tuple[str, ...]
    face: str
    ink: Colour
    date_format: str
    captions: Mapping[str, str]
    note: str
    flush_right: bool


def _arrangement(size: tuple[int, int]) -> _Arrangement:
    """Returns the largest arrangement that a page of `size` (width, height) has room for."""
    for one in _ARRANGEMENTS:
        if len(size) == 2 and size[0] >= one.size[0] and size[1] >= one.size[1]:
            return one
    raise ValueError(
        f"Expected page_size={size} to be (width, height), at least {_ARRANGEMENTS[-1].size}: on "
        "smaller slips the text cannot be read."
    )


def _draw_look(seed: int, provider: int, arrangement: _Arrangement) -> _Look:
    random = generator(seed, "slip look", client=provider)
    body = [arrangement.body[place] for place in random.permutation(len(arrangement.body))]
    return _Look(
        arrangement=arrangement,
        rows=(*arrangement.head, *body, *arrangement.foot),
        face=pick(random, _FACES),
        ink=pick(random, _INKS),
        date_format=pick(random, _DATES),
        captions={key: pick(random, wordings) for key, wordings in _CAPTIONS.items()},
        note=pick(random, _NOTES),
        flush_right=bool(random.integers(2)),
    )


def _printed(company: Provider, bill: Bill, look: _Look) -> dict[str, str]:
    """Writes what stands in each row but the rules."""
    decimal = company.habits.currency[2]
    words = {"brief": 1, "short": 2, "full": 3}[look.arrangement.wording]
    goods = [f"{item.quantity} x {item.description}" for item in bill.items]
    return {
        "provider": " ".join(company.name.split()[:words]),
        "address": company.address[0].rstrip(","),
        "customer": bill.customer.split()[-1] if words == 1 else bill.customer,
        "invoice_number": bill.number,
        "date": look.date_format.format(
            day=bill.issued.day, month=bill.issued.month, year=bill.issued.year
        ),
        "total": f"{bill.total // 100}{decimal}{bill.total % 100:02}",
        "note": look.note,
        **dict(zip(_GOODS, goods, strict=False)),
    }


class _Sheet:
    """A slip in the making: pixels, words, and which words belong to which entity."""

    def __init__(self, size: tuple[int, int], look: _Look) -> None:
        self.look = look
        self.captioned = look.arrangement.wording != "brief"
        self.width, self.height = size
        self.left, self.right = self.width // 28, self.width - self.width // 28
        self.pixels: Pixels = np.full((self.height, self.width, 3), 255, np.uint8)
        self.words: list[Word] = []
        self.entities: list[Entity] = []
        self.segments = 0

    def draw(self, printed: Mapping[str, str]) -> None:
        """Sets all rows, evenly spread over the height; a rule takes a third of a line."""
        weights = [1 / 3 if row == _RULE else 1.0 for row in self.look.rows]
        ends = np.cumsum([0.0, *weights]) / sum(weights) * (self.height - 2) + 1
        for row, middle in zip(self.look.rows, (ends[:-1] + ends[1:]) / 2, strict=True):
            if row == _RULE:
                self.pixels[int(middle), self.left : self.right] = self.look.ink
            elif row in printed:
                self._row(row, printed[row], middle)

    def text(self, label: str) -> str:
        """Returns what is written for an entity."""
        (entity,) = (entity for entity in self.entities if entity.label == label)
        return " ".join(self.words[word].text for word in entity.words)

    def document(self, name: str, provider: str, questions: tuple[Question, ...]) -> Document:
        """Returns what has been drawn."""
        size = (self.width, self.height)
        words, entities = tuple(self.words), tuple(self.entities)
        return Document(name, provider, self.pixels, size, words, entities, questions)

    def _row(self, row: str, text: str, middle: float) -> None:
        size, full = self.look.arrangement.type_size, self.look.arrangement.wording == "full"
        face = Face(self.look.face if row in _IN_OWN_FACE else _PLAIN, size)
        # The middle of a line is that of its capital letters.
        baseline = round(middle + 0.36 * size)
        left = self.left
        if row in _CAPTIONS and self.captioned:
            self._write(self.look.captions[row], (left, self.right), baseline, face)
            left += max(text_width(face, caption) for caption in self.look.captions.values())
            left += round(0.6 * size)
        if row == "provider" and full:
            face = Face(f"{face.name}-Bold", size)
        first = len(self.words)
        flush = self.look.flush_right and row == "total"
        self._write(text, (left, self.right), baseline, face, flush)
        if row in QUESTION_TEMPLATES:
            self.entities.append(Entity(row, tuple(range(first, len(self.words)))))

    def _write(
        self, text: str, span: tuple[int, int], baseline: int, face: Face, flush: bool = False
    ) -> None:
        """Sets one line, between the ends of `span`; flush right if asked for."""
        setting = set_string(face, text, self.look.ink, WHITE, span[1] - span[0])
        pen = span[1] - setting.width if flush else span[0]
        for word, patch in setting.words:
            self._place(word, patch, pen, baseline)
            pen += patch.advance + setting.blank
        self.segments += 1

    def _place(self, word: str, patch: Patch, pen: int, baseline: int) -> None:
        height, width, _ = patch.pixels.shape
        left, top = pen + patch.left, baseline + patch.top
        right, bottom = left + width, top + height
        self.pixels[top:bottom, left:right] = patch.pixels
        box = (float(left), float(top), float(right), float(bottom))
        self.words.append(Word(word, box, self.segments))
