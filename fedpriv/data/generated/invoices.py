"""Generated invoices in the manner of PFL-DocVQA (Tito et al. 2024).

There are many providers, each with its own layout, logo, type, wording and fixed identity, and
many invoices of each. Everything is a function of the seed and of a provider's and a document's
number, so asking for more of either changes none of the others.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import date, timedelta

import numpy as np

from fedpriv.data.document import MOST_SIDE, Document, DocumentSet, Question
from fedpriv.data.drawn_page import Drawing, DrawnPage
from fedpriv.data.generated import lexicon
from fedpriv.data.generated.checks import check_counts, check_page_size, check_questions
from fedpriv.data.generated.invoice_page import (
    LABELS,
    ROWS,
    SMALLEST_PAGE,
    Printed,
    draw_page,
)
from fedpriv.data.generated.invoice_style import Style, draw_style, pick
from fedpriv.data.generated.questions import QUESTION_TEMPLATES
from fedpriv.runtime.seeds import entropy, generator

NAME_SPACE = len(lexicon.COMPANY_FIRST) * len(lexicon.COMPANY_SECOND) * len(lexicon.COMPANY_FORM)
"""How many different company names there are."""

_FIRST_DAY = date(2012, 1, 1)
_DAYS = 4748  # thirteen years


@dataclass(frozen=True)
class Habits:
    """How a provider writes its invoices, apart from their look.

    Attributes:
        date_format: one of `lexicon.DATES`.
        currency: how an amount is printed, thousands separator, decimal mark.
        number_format: one of `lexicon.INVOICE_NUMBERS`.
        first_serial: the serial number of its invoices before document 0.
        trade: the goods that it sells.
        tax_percent: the tax rate.
        term: days from the invoice's date to the due date.
        number_first: whether addresses are written "12 High Road", not "High Road 12".
        postcode: pattern of the postcodes in its country.
    """

    date_format: str
    currency: tuple[str, str, str]
    number_format: str
    first_serial: int
    trade: tuple[str, ...]
    tax_percent: int
    term: int
    number_first: bool
    postcode: str


@dataclass(frozen=True)
class Provider:
    """A company that issues invoices; each value is the printed text, the address in two lines."""

    name: str
    address: tuple[str, str]
    email: str
    phone: str
    tax_number: str
    registration_id: str
    habits: Habits
    style: Style


@dataclass(frozen=True)
class Item:
    """A line of an invoice; the price is per unit, in cents."""

    description: str
    quantity: int
    price: int

    @property
    def amount(self) -> int:
        """Price of the whole quantity, in cents."""
        return self.quantity * self.price


@dataclass(frozen=True)
class Bill:
    """The content of one invoice, before it is printed; amounts in cents."""

    customer: str
    customer_address: tuple[str, str]
    number: str
    issued: date
    due: date
    items: tuple[Item, ...]
    tax_percent: int

    @property
    def subtotal(self) -> int:
        """Sum of the items' amounts."""
        return sum(item.amount for item in self.items)

    @property
    def tax(self) -> int:
        """Tax on the subtotal, rounded half up."""
        return (self.subtotal * self.tax_percent + 50) // 100

    @property
    def total(self) -> int:
        """Subtotal and tax."""
        return self.subtotal + self.tax


@dataclass(frozen=True)
class Invoices:
    """A data set of generated invoices, each drawn when it is read.

    Attributes:
        providers: the number of companies.
        documents_per_provider: the number of invoices that each company has.
        page_size: the width and height of a page in pixels.
        seed: the seed of all random choices in the documents.
        questions: the fields that are asked for, one question each; by default all fields of an
            invoice.
    """

    providers: int = 24
    documents_per_provider: int = 20
    page_size: tuple[int, int] = (400, 560)
    seed: int = 0
    questions: tuple[str, ...] = tuple(QUESTION_TEMPLATES)

    def __post_init__(self) -> None:
        check_counts(self.providers, NAME_SPACE, self.documents_per_provider)
        check_page_size(self.page_size, SMALLEST_PAGE)
        if max(self.page_size) > MOST_SIDE:
            raise ValueError(f"page_size={self.page_size}: expected at most {MOST_SIDE} a side")
        check_questions(self.questions, QUESTION_TEMPLATES)

    def load(self) -> DocumentSet:
        """Names every document, provider by provider."""
        documents: list[Document] = []
        for provider in range(self.providers):
            name = company_name(self.seed, provider)
            documents.extend(
                self._document(name, provider, number)
                for number in range(self.documents_per_provider)
            )
        return DocumentSet("generated invoices", tuple(documents), LABELS)

    def document(self, provider: int, number: int) -> Document:
        """Returns one document; `load` returns the same."""
        self._check(provider)
        if not 0 <= number < self.documents_per_provider:
            raise ValueError(f"Expected number={number} in 0..{self.documents_per_provider - 1}.")
        return self._document(company_name(self.seed, provider), provider, number)

    def template(self, provider: int) -> Document:
        """Returns a provider's page with every private value left out.

        Title, captions, small print, rules, colours and type stay in their places. The values of
        provider, customer and invoice (names, addresses, numbers, dates, items, amounts, currency)
        are left out, and so is the logo, which identifies the provider as its name does. The
        company's name remains in `Document.provider`, which is a key of the data set and not a
        part of the page.
        """
        self._check(provider)
        page = DrawnPage(_template, (self.seed, tuple(self.page_size), provider))
        name, company = f"invoice-p{provider:03}-template", company_name(self.seed, provider)
        return Document.drawn(name, company, page, self.page_size)

    def _check(self, provider: int) -> None:
        if not 0 <= provider < self.providers:
            raise ValueError(f"Expected provider={provider} in 0..{self.providers - 1}.")

    def _document(self, company: str, provider: int, number: int) -> Document:
        settings = (self.seed, tuple(self.page_size), tuple(self.questions))
        page = DrawnPage(_invoice, (*settings, provider, number))
        name = f"invoice-p{provider:03}-d{number:03}"
        return Document.drawn(name, company, page, self.page_size)


def _invoice(
    seed: int, size: tuple[int, int], asked: tuple[str, ...], provider: int, number: int
) -> Drawing:
    company = draw_provider(seed, provider)
    printed = _printed(company, draw_bill(seed, company.habits, provider, number))
    random = generator(seed, "invoice questions", round=number, client=provider)
    answers = {key: " ".join(lines) for key, lines in printed.fields.items()}
    questions = draw_questions(random, asked, answers)
    return draw_page(company.style, size, printed).drawing(questions)


def _template(seed: int, size: tuple[int, int], provider: int) -> Drawing:
    return draw_page(draw_provider(seed, provider).style, size, None).drawing()


def draw_questions(
    random: np.random.Generator, keys: Collection[str], answers: Mapping[str, str]
) -> tuple[Question, ...]:
    """Draws the wording of the questions on some keys, each with its answer."""
    # All are drawn, so that which are asked changes none of the others.
    drawn = {key: pick(random, wordings) for key, wordings in QUESTION_TEMPLATES.items()}
    return tuple(Question(key, text, (answers[key],)) for key, text in drawn.items() if key in keys)


def company_name(seed: int, index: int) -> str:
    """Returns the name of company number `index`, without drawing anything else of it."""
    name, _ = _name_and_email(_shuffled(index, NAME_SPACE, seed))
    return name


@functools.lru_cache(maxsize=64)  # a provider's pages are mostly drawn one after the other
def draw_provider(seed: int, index: int) -> Provider:
    """Draws company number `index`; no two companies of one seed share name or e-mail address."""
    name, email = _name_and_email(_shuffled(index, NAME_SPACE, seed))
    random = generator(seed, "invoice provider", client=index)
    habits = Habits(
        date_format=pick(random, lexicon.DATES),
        currency=pick(random, lexicon.CURRENCIES),
        number_format=pick(random, lexicon.INVOICE_NUMBERS),
        first_serial=int(random.integers(100, 60_000)),
        trade=pick(random, lexicon.TRADES),
        tax_percent=pick(random, (5, 7, 10, 19, 20, 21, 25)),
        term=pick(random, (7, 14, 21, 30, 45, 60)),
        number_first=bool(random.integers(2)),
        postcode=pick(random, lexicon.POSTCODES),
    )
    return Provider(
        name=name,
        address=_address(random, habits),
        email=email,
        phone=_filled(random, pick(random, lexicon.PHONES)),
        tax_number=_filled(random, pick(random, lexicon.TAX_NUMBERS)),
        registration_id=_filled(random, pick(random, lexicon.REGISTRATION_IDS)),
        habits=habits,
        style=draw_style(generator(seed, "invoice style", client=index)),
    )


def draw_bill(seed: int, habits: Habits, provider: int, number: int) -> Bill:
    """Draws the content of invoice `number` of a provider."""
    random = generator(seed, "invoice document", round=number, client=provider)
    issued = _FIRST_DAY + timedelta(days=int(random.integers(_DAYS)))
    # Nine serial numbers per document, one of which is drawn: none repeats.
    serial = habits.first_serial + 9 * number + int(random.integers(9))
    customer = f"{pick(random, lexicon.GIVEN_NAMES)} {pick(random, lexicon.FAMILY_NAMES)}"
    count = int(random.integers(2, ROWS + 1))
    goods = random.choice(len(habits.trade), size=count, replace=False)
    quantities, prices = random.integers(1, 13, size=count), random.integers(200, 48_000, count)
    return Bill(
        customer=customer,
        customer_address=_address(random, habits),
        number=habits.number_format.format(year=issued.year, serial=serial),
        issued=issued,
        due=issued + timedelta(days=habits.term),
        items=tuple(
            Item(habits.trade[good], int(quantity), int(price))
            for good, quantity, price in zip(goods, quantities, prices, strict=True)
        ),
        tax_percent=habits.tax_percent,
    )


def _shuffled(index: int, size: int, seed: int) -> int:
    """Returns where a random permutation of 0..size - 1 takes `index`.

    A Feistel network of four rounds permutes the numbers below an even power of two. Applying it
    until a number falls below `size` permutes the numbers below `size` (Black & Rogaway 2002).
    Unlike drawing names until a new one comes up, this does not depend on how many are drawn.
    """
    half = ((size - 1).bit_length() + 1) // 2
    mask = (1 << half) - 1
    while True:
        left, right = index >> half, index & mask
        for step in range(4):
            left, right = right, left ^ entropy(seed, "invoice name", step, right) & mask
        index = left << half | right
        if index < size:
            return index


def _name_and_email(index: int) -> tuple[str, str]:
    """Turns a number below `NAME_SPACE` into a company's name and an address under .test.

    The top-level domain is reserved for tests (RFC 2606): no address can be anyone's.
    """
    index, form = divmod(index, len(lexicon.COMPANY_FORM))
    first, second = divmod(index, len(lexicon.COMPANY_SECOND))
    words = (lexicon.COMPANY_FIRST[first], lexicon.COMPANY_SECOND[second])
    name = " ".join((*words, lexicon.COMPANY_FORM[form])).strip()
    return name, f"{lexicon.MAILBOXES[form]}@{'-'.join(words).lower()}.test"


def _address(random: np.random.Generator, habits: Habits) -> tuple[str, str]:
    street = f"{pick(random, lexicon.STREETS)} {pick(random, lexicon.STREET_KINDS)}"
    house, postcode = int(random.integers(1, 240)), _filled(random, habits.postcode)
    city = pick(random, lexicon.CITIES)
    if habits.number_first:
        return f"{house} {street},", f"{city} {postcode}"
    return f"{street} {house},", f"{postcode} {city}"


def _filled(random: np.random.Generator, pattern: str) -> str:
    """Fills a pattern: each ``#`` with a digit, each ``@`` with a capital letter."""
    draws = random.integers(0, 26 * 10, size=len(pattern))
    return "".join(
        str(draw % 10) if sign == "#" else chr(ord("A") + draw % 26) if sign == "@" else sign
        for sign, draw in zip(pattern, draws.tolist(), strict=True)
    )


def _printed(company: Provider, bill: Bill) -> Printed:
    """Writes an invoice's values the way its provider does."""
    habits = company.habits

    def money(cents: int) -> str:
        return habits.currency[0].format(_number(cents, habits))

    fields: Mapping[str, tuple[str, ...]] = {
        "provider": (company.name,),
        "address": company.address,
        "email": (company.email,),
        "phone": (company.phone,),
        "tax_number": (company.tax_number,),
        "registration_id": (company.registration_id,),
        "customer": (bill.customer,),
        "customer_address": bill.customer_address,
        "invoice_number": (bill.number,),
        "date": (_written(bill.issued, habits.date_format),),
        "due_date": (_written(bill.due, habits.date_format),),
        "subtotal": (money(bill.subtotal),),
        "tax_rate": (f"{bill.tax_percent}%",),
        "tax": (money(bill.tax),),
        "total": (money(bill.total),),
    }
    rows = tuple(
        {
            "description": item.description,
            "quantity": str(item.quantity),
            "price": _number(item.price, habits),
            "amount": _number(item.amount, habits),
        }
        for item in bill.items
    )
    return Printed(fields, rows)


def _number(cents: int, habits: Habits) -> str:
    _, thousands, decimal = habits.currency
    whole = f"{cents // 100:,}".replace(",", thousands)
    return f"{whole}{decimal}{cents % 100:02}"


def _written(day: date, pattern: str) -> str:
    # Not strftime: the names of its months depend on the machine's language.
    name = lexicon.MONTHS[day.month - 1]
    return pattern.format(day=day.day, month=day.month, year=day.year, short=name[:3], long=name)
