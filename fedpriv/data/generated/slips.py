"""Generated slips: small invoices that can be read at the size of a model's input.

Models shrink a page to their input. An invoice of 400 x 560 can no longer be read there, so the
reconstruction of an attack could not be read either. A slip has the size of the input, and few
lines in type of 10 pixels and more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedpriv.data.document import Document, DocumentSet
from fedpriv.data.drawn_page import Drawing, DrawnPage
from fedpriv.data.generated.checks import check_counts, check_questions, has_room
from fedpriv.data.generated.glyphs import Colour, Face, text_width
from fedpriv.data.generated.invoice_style import pick
from fedpriv.data.generated.invoices import (
    NAME_SPACE,
    Bill,
    Provider,
    company_name,
    draw_bill,
    draw_provider,
    draw_questions,
)
from fedpriv.data.generated.questions import QUESTION_TEMPLATES
from fedpriv.data.generated.sheet import Align, Sheet
from fedpriv.runtime.seeds import generator

_RULE = "rule"
_GOODS = ("goods 0", "goods 1", "goods 2")

# Digits are set without serifs, since digits with serifs are misread by eye and by program.
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
    """The content that fits on a slip of some size.

    Attributes:
        size: least width and height of its slips, in pixels.
        type_size: of the type, in pixels.
        wording: "full"; "short", with two words of a company's name; or "brief", with one word of a
            company's or customer's name and no captions.
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
    """A data set of small generated invoices, each drawn when it is read.

    Providers, customers, numbers, dates and amounts are those of
    `fedpriv.data.generated.invoices.Invoices` of the same seed, written shorter. Each provider has
    its own wording, typeface, colour and order of lines. The place of a line does not depend on its
    text. Captions and values are separate segments. The content depends on the page's size:

    - from 64 x 64: provider and customer, each by one word, date and total, without captions;
    - from 112 x 112: provider, customer, invoice_number, date and total, with captions;
    - from 224 x 224: also the address, and the goods, which are not an entity.

    Attributes:
        page_size: the width and height of a page in pixels. Type stays sharp if it is the input
            size of the model.
        providers: the number of companies.
        documents_per_provider: the number of slips that each company has.
        seed: the seed of all random choices in the documents.
        questions: the fields that are asked for, one question each, such as "provider", "date" and
            "total".
    """

    page_size: tuple[int, int] = (112, 112)
    providers: int = 24
    documents_per_provider: int = 12
    seed: int = 0
    questions: tuple[str, ...] = ("provider", "date", "total")

    def __post_init__(self) -> None:
        check_counts(self.providers, NAME_SPACE, self.documents_per_provider)
        where = f"on slips of {tuple(self.page_size)} pixels there are"
        check_questions(self.questions, _arrangement(self.page_size).labels, where)

    def load(self) -> DocumentSet:
        """Names every document, provider by provider."""
        settings = (self.seed, tuple(self.page_size), tuple(self.questions))
        documents: list[Document] = []
        for provider in range(self.providers):
            company = company_name(self.seed, provider)
            for number in range(self.documents_per_provider):
                page = DrawnPage(_slip, (*settings, provider, number))
                name = f"slip-p{provider:03}-d{number:03}"
                documents.append(Document.drawn(name, company, page, self.page_size))
        labels = _arrangement(self.page_size).labels
        return DocumentSet("generated slips", tuple(documents), labels)


def _slip(
    seed: int, size: tuple[int, int], asked: tuple[str, ...], provider: int, number: int
) -> Drawing:
    company = draw_provider(seed, provider)
    look = _draw_look(seed, provider, _arrangement(size))
    printed = _printed(company, draw_bill(seed, company.habits, provider, number), look)
    random = generator(seed, "slip questions", round=number, client=provider)
    questions = draw_questions(random, asked, printed)
    return _draw_page(size, look, printed).drawing(questions)


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
    """Returns the largest arrangement that fits on a page of `size` (width, height)."""
    for arrangement in _ARRANGEMENTS:
        if has_room(size, arrangement.size):
            return arrangement
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
    """Returns the text of each row except rules."""
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


def _draw_page(size: tuple[int, int], look: _Look, printed: Mapping[str, str]) -> Sheet:
    """Sets all rows, evenly spread over the height; a rule takes a third of a line."""
    sheet, type_size = Sheet(size), look.arrangement.type_size
    margin = sheet.width // 28
    weights = [1 / 3 if row == _RULE else 1.0 for row in look.rows]
    ends = np.cumsum([0.0, *weights]) / sum(weights) * (sheet.height - 2) + 1
    for row, middle in zip(look.rows, (ends[:-1] + ends[1:]) / 2, strict=True):
        left, right = margin, sheet.width - margin
        if row == _RULE:
            sheet.pixels[int(middle), left:right] = look.ink
        if row not in printed:
            continue
        # The middle of a line is that of its capital letters.
        baseline = round(middle + 0.36 * type_size)
        face = Face(look.face if row in _IN_OWN_FACE else _PLAIN, type_size)
        if row in _CAPTIONS and look.arrangement.wording != "brief":
            sheet.set_line(look.captions[row], face, look.ink, (left, right), baseline)
            left += max(text_width(face, caption) for caption in look.captions.values())
            left += round(0.6 * type_size)
        if row == "provider" and look.arrangement.wording == "full":
            face = Face(f"{face.name}-Bold", type_size)
        first = len(sheet.words)
        align: Align = "right" if look.flush_right and row == "total" else "left"
        sheet.set_line(printed[row], face, look.ink, (left, right), baseline, align=align)
        if row in QUESTION_TEMPLATES:
            sheet.label_from(first, row)
    return sheet
