"""Generated cards: a tiny model reads them if they are sharp, and learns them by heart if not.

Each customer has a mark, of blocks so large that any resolution shows them, and names of few
different words in small type. A model that sees the type reads the names. A model that sees the
page shrunk knows the customer only by the mark, as with the training resolutions of Pinto et al.
2024, section 4.1.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from fedpriv.data.document import MOST_SIDE, Document, DocumentSet, Entity, Question
from fedpriv.data.drawn_page import Drawing, DrawnPage
from fedpriv.data.generated.checks import check_counts, check_questions
from fedpriv.data.generated.glyphs import Colour, Face
from fedpriv.data.generated.invoice_style import pick
from fedpriv.data.generated.lexicon import COMPANY_FIRST, FAMILY_NAMES, GIVEN_NAMES
from fedpriv.data.generated.questions import QUESTION_TEMPLATES
from fedpriv.data.generated.sheet import Sheet
from fedpriv.runtime.seeds import generator

LABELS = ("provider", "customer")

# Words of one length: on a page shrunk to a blur, lengths would still tell them apart.
_COMPANIES = tuple(word for word in COMPANY_FIRST if len(word) == 6)
_GIVEN = tuple(word for word in GIVEN_NAMES if len(word) == 5)[:24]
_FAMILY = tuple(word for word in FAMILY_NAMES if len(word) == 6)[:24]
_NAMES = tuple(itertools.product(_GIVEN, _FAMILY))

_BLOCKS: tuple[Colour, ...] = (
    *((220, 40, 40), (40, 160, 60), (40, 70, 210), (240, 180, 30)),
    *((150, 50, 170), (30, 170, 190), (240, 240, 240), (40, 40, 40)),
)
_MARK = (2, 5)
"""Rows and columns of blocks."""
_LEAST_SIDE = 112
_BASELINES = (7 / 14, 10 / 14, 13 / 14)
"""Of the three lines, as shares of the height."""


@dataclass(frozen=True)
class Cards:
    """A data set of small generated cards, each drawn when it is read.

    A card shows its customer's mark, its provider's colour at the right edge, and three words, one
    to a line: provider, given name and family name. No two customers have the same name. Cards are
    dealt to providers at random.

    Attributes:
        page_size: the width and height of a card in pixels, equal and at least 112; the type grows
            with it.
        providers: the number of companies.
        documents_per_provider: the number of cards that each company has.
        seed: the seed of all random choices in the documents.
        questions: the fields that are asked for, one question each: "provider", "customer".
        cards_per_customer: the numbers of cards that the customers have, taken in turn: with (1, 2,
            4, 8) the first customer has one card, the fourth eight and the fifth one again. The
            last customer has the remaining cards.
        inks: the darkest and the lightest grey of the type, 0 (black) to 255 (white). The grey of
            each card is drawn between them.
    """

    page_size: tuple[int, int] = (_LEAST_SIDE, _LEAST_SIDE)
    providers: int = 10
    documents_per_provider: int = 10
    seed: int = 0
    questions: tuple[str, ...] = ("customer", "provider")
    cards_per_customer: tuple[int, ...] = (1,)
    inks: tuple[int, int] = (16, 16)

    def __post_init__(self) -> None:
        sides = set(self.page_size)
        if (
            len(self.page_size) != 2
            or len(sides) != 1
            or not _LEAST_SIDE <= min(sides) <= MOST_SIDE
        ):
            raise ValueError(
                f"page_size={self.page_size}: expected two equal sides of {_LEAST_SIDE} to "
                f"{MOST_SIDE}"
            )
        check_counts(self.providers, len(_COMPANIES), self.documents_per_provider)
        check_questions(self.questions, LABELS, "on cards there are")
        if not self.cards_per_customer or min(self.cards_per_customer) < 1:
            raise ValueError(
                f"cards_per_customer={self.cards_per_customer}: expected one number or more, "
                "each at least 1"
            )
        if len(self.inks) != 2 or not 0 <= self.inks[0] <= self.inks[1] <= 255:
            raise ValueError(f"inks={self.inks}: expected darkest and lightest, 0 to 255")
        if (customers := len(set(self._customers()))) > len(_NAMES):
            raise ValueError(
                f"{customers} customers: there are names for {len(_NAMES)}; ask for fewer cards, "
                "or more of each customer"
            )

    def load(self) -> DocumentSet:
        """Names every document, provider by provider."""
        customers = generator(self.seed, "card dealing").permutation(self._customers())
        companies = generator(self.seed, "card names").permutation(len(_COMPANIES))
        names = generator(self.seed, "card holders").permutation(len(_NAMES))
        settings = (self.seed, self.page_size[0], tuple(self.questions), tuple(self.inks))
        documents: list[Document] = []
        for card, customer in enumerate(map(int, customers)):
            provider, number = divmod(card, self.documents_per_provider)
            company, holder = _COMPANIES[companies[provider]], _NAMES[names[customer]]
            page = DrawnPage(_card, (*settings, provider, number, customer, company, *holder))
            name = f"card-p{provider:03}-d{number:03}"
            documents.append(Document.drawn(name, company, page, self.page_size))
        return DocumentSet("generated cards", tuple(documents), LABELS)

    def _customers(self) -> list[int]:
        """Returns the customer of each card, before they are dealt to the providers."""
        held: Iterator[int] = itertools.cycle(self.cards_per_customer)
        runs = (itertools.repeat(customer, cards) for customer, cards in enumerate(held))
        count = self.providers * self.documents_per_provider
        return list(itertools.islice(itertools.chain.from_iterable(runs), count))


def _card(
    seed: int,
    side: int,
    asked: tuple[str, ...],
    inks: tuple[int, int],
    provider: int,
    number: int,
    customer: int,
    company: str,
    given: str,
    family: str,
) -> Drawing:
    block, margin = side // 7, side // 28
    sheet, face = Sheet((side, side)), Face("DejaVuSans", side * 10 // _LEAST_SIDE)
    random = generator(seed, "card colour", client=provider)
    sheet.pixels[:, side - block :] = random.integers(40, 216, 3)
    random = generator(seed, "card mark", client=customer)
    for row, column in itertools.product(*map(range, _MARK)):
        top, left = margin + row * block, margin + column * block
        sheet.pixels[top : top + block, left : left + block] = pick(random, _BLOCKS)
    grey = int(generator(seed, "card ink", number, provider).integers(inks[0], inks[1] + 1))
    for text, share in zip((company, given, family), _BASELINES, strict=True):
        sheet.set_line(text, face, (grey, grey, grey), (margin, side), round(share * side))
    answers = {"provider": company, "customer": f"{given} {family}"}
    questions = tuple(Question(k, QUESTION_TEMPLATES[k][0], (answers[k],)) for k in asked)
    sheet.entities += [Entity("provider", (0,)), Entity("customer", (1, 2))]
    return sheet.drawing(questions)
