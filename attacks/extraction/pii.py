"""Personal information: of which class an answer is (Pinto et al., Appendix C).

Pinto et al. 2024 count places, persons, times, contacts, NRP (nationality, religion, politics),
URLs and IDs. They had a tagger of named entities; here a field's name says it, and patterns where
there is none. Another tagger stands in wherever a `Tagger` is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from fedpriv.data.values import dates, has_cents

Tagger = Callable[[str, str], str]
"""Returns one of `CLASSES` for a question's key and its answer, or "" for none."""

CLASSES = ("place", "person", "time", "contact", "nrp", "url", "id")

KEYS: Mapping[str, tuple[str, ...]] = {
    "person": ("customer", "person"),
    "place": ("address", "customer_address"),
    "time": ("date", "due_date"),
    "contact": ("email", "phone"),
    "id": ("tax_number", "registration_id", "invoice_number", "account"),
    # An organisation is no person, and an amount alone is nobody's.
    "": ("provider", "company", "subtotal", "tax_rate", "tax", "total"),
}
OF_KEY = {key: kind for kind, keys in KEYS.items() for key in keys}
"""The classes of the keys of generated documents and of SROIE."""

_NRP = re.compile(
    r"(american|arab|argentin|austrian|australian|belgian|brazilian|british|bulgarian|canadian|"
    r"chinese|croatian|czech|danish|dutch|egyptian|english|finnish|french|german|greek|hungarian|"
    r"indian|indonesian|irish|israeli|italian|japanese|korean|malaysian|mexican|nigerian|norwegian|"
    r"pakistani|polish|portuguese|romanian|russian|scottish|spanish|swedish|swiss|thai|turkish|"
    r"ukrainian|vietnamese|welsh|buddhist|catholic|christian|hindu|jewish|muslim|protestant|sikh|"
    r"communist|conservative|democrat|liberal|republican|socialist)s?",
    re.IGNORECASE,
)

_PATTERNS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("contact", re.compile(r"\S+@\S+\.\w{2,}")),
    ("url", re.compile(r"(https?://|www\.)\S+", re.IGNORECASE)),
    ("url", re.compile(r"([\w-]+\.)+(co|com|edu|gov|net|org|test)(\.\w\w)?(/\S*)?", re.IGNORECASE)),
    ("time", re.compile(r"\d{1,2}(:\d\d){1,2}(\s?[ap]\.?m\.?)?", re.IGNORECASE)),
    # A number to be called says so by its plus, its brackets, or blanks and dashes in between.
    ("contact", re.compile(r"(\+\d|\(\d+\))[\d ().-]{5,}|\d{2,5}([ -]\d{2,6}){2,}")),
    ("nrp", _NRP),
)
_NUMBER = re.compile(r"[A-Z0-9 #:/.-]+", re.IGNORECASE)
_LEAST_DIGITS = 6


def pii_class(key: str, text: str) -> str:
    """Returns the class of personal information that an answer is of; "" where it is none.

    The key decides where it is one of `OF_KEY`. Otherwise the text does, if all of it is an e-mail
    address or a telephone number (contact), a web address (url), a date or time of day (time), a
    number of six digits or more with no more letters than digits (id), or one of few words such as
    "Dutch" or "Catholic" (nrp). Names of persons and places are not known without a key: a tagger
    for real data has to be given, and is a function of the same arguments.
    """
    if key in OF_KEY:
        return OF_KEY[key]
    bare = text.strip()
    if dates(bare, whole=True):
        return "time"
    by_pattern = (name for name, pattern in _PATTERNS if pattern.fullmatch(bare))
    return next(by_pattern, "id" if _is_number(bare) else "")


def _is_number(text: str) -> bool:
    """Says whether a text is an identifier, such as an IBAN, not an amount or a sentence."""
    digits = sum(map(str.isdigit, text))
    if not _NUMBER.fullmatch(text) or has_cents(text):
        return False
    return digits >= max(_LEAST_DIGITS, sum(map(str.isalpha, text)))
