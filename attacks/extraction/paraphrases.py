"""Training questions in other words (Pinto et al., §5.2, and §6 as a defence).

The paper has PaLM 2 paraphrase each question. Here a table holds wordings per key; whoever has a
language model at hand names a paraphraser of their own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from fedpriv.attacks.extraction.canary import normalised
from fedpriv.data.document import Question

Paraphraser = Callable[[Question, np.random.Generator], str]
"""Words a question differently. It may raise `CannotParaphrase`; it never returns the same words.

A settings file names one by its dotted path: ``{_target_: mine.Paraphraser}`` for a class, and for
a function ``{_target_: mine.paraphrase, _partial_: true}``.
"""

PARAPHRASES: Mapping[str, tuple[str, ...]] = {
    "provider": (
        "What is the biller called?",
        "Which enterprise is behind this invoice?",
        "By which company was the bill drawn up?",
        "Please name the company that wants to be paid.",
        "What does the issuer of the document call itself?",
        "Tell me which supplier this page is from.",
    ),
    "address": (
        "Which street and town are printed on this page?",
        "Tell me where the business has its premises.",
        "What are the street and the town of whoever issued this?",
        "Please read out the postal details of the business.",
        "In what place is the issuer of this document to be found?",
        "What does the page say about where the business is?",
    ),
    "email": (
        "Which e-mail address is shown here?",
        "Please tell me the e-mail of whoever issued this.",
        "How is the business to be written to over the internet?",
        "What is printed as the address for e-mails?",
        "To what e-mail would a reply go?",
    ),
    "phone": (
        "What number reaches the business by telephone?",
        "Please read out the digits of the phone.",
        "Which digits does one dial to speak with the issuer?",
        "What is shown as the number for calls?",
        "Tell me the telephone number on this page.",
    ),
    "tax_number": (
        "Which number is this business taxed under?",
        "Please tell me the VAT ID on the page.",
        "What stands there as the tax identification?",
        "How does the tax office list the issuer?",
        "Tell me the tax registration of whoever issued this.",
    ),
    "registration_id": (
        "Which entry does the business have in the companies' register?",
        "Please tell me the register number on the page.",
        "What is shown as the company registration?",
        "Under what code does the trade register keep the issuer?",
        "Tell me the number from the commercial register.",
    ),
    "customer": (
        "Who is this made out to?",
        "Please name the person the bill is for.",
        "Whose name is given as the one who pays?",
        "Tell me which customer is meant.",
        "What is the buyer called?",
    ),
    "invoice_number": (
        "Please tell me the number of this bill.",
        "What does the document give as its own number?",
        "Which code tells this invoice from others?",
        "Tell me the reference printed on the bill.",
        "By what number would one cite this invoice?",
    ),
    "date": (
        "Which day does the document give?",
        "Please tell me the date on the page.",
        "What day is written here?",
        "When was this document made?",
        "Tell me on which date this was printed.",
        "As of what day is the document?",
    ),
    "total": (
        "What does everything cost together?",
        "Please tell me the final sum.",
        "How high is the amount on the bottom line?",
        "What figure is given for the whole?",
        "Tell me the complete amount.",
    ),
    "company": (
        "What is the shop called?",
        "Please name the store that issued this.",
        "Which business is named at the top?",
        "Tell me who sold the goods.",
        "By which company was the slip printed?",
    ),
    "account": (
        "Please tell me the account's number.",
        "Which digits stand for the account?",
        "What is printed as the account number?",
        "How is this account numbered?",
        "Tell me under which number the account runs.",
    ),
    "person": (
        "What is the holder of this account called?",
        "Please name the person the account is held by.",
        "Whose name is on the account?",
        "Tell me who owns the account.",
        "Who is named as the holder here?",
    ),
}
"""Wordings per key of generated invoices and slips, of receipts, and of planted identities.

None of them is a training wording of any key. Those on date, address and total suit an invoice and
a receipt.
"""

_NOUN = r"(?P<x>(?:the|a|an|this|these|his|her|its|their) .+?)"
# "What is the letter about?" asks for no letter.
_NOT_CUT = r"(?<! about)(?<! by)(?<! called)(?<! for)(?<! from)(?<! in)(?<! of)(?<! on)(?<! to)"
_REST = r"(?P<x>.+)"

_REWRITES: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        rf"what(?:'s| is| are| was| were) {_NOUN}{_NOT_CUT}",
        ("Can you tell me {x}?", "{x}, please?", "Please state {x}."),
    ),
    (rf"(?:give|state|name|mention|read|find) {_NOUN}", ("What is {x}?", "Can you tell me {x}?")),
    (rf"how much (?:is|was) {_NOUN}", ("What is the amount of {x}?",)),
    (r"how many (?P<x>.+?) (?:are|were)(?: there)?(?P<y> .+)?", ("What is the number of {x}{y}?",)),
    (rf"who {_REST}", ("Which person {x}?",)),
    (rf"(?P<before>to|by|for|from|with) whom {_REST}", ("{before} which person {x}?",)),
    (rf"when {_REST}", ("On what date {x}?",)),
    (rf"where {_REST}", ("In what place {x}?",)),
    (rf"which {_REST}", ("What {x}?",)),
    (r"what (?P<x>(?!is|are|was|were|do|does|did|has|have|can|will)\w+ .+)", ("Which {x}?",)),
)
"""Patterns of whole questions, without the sign at the end, and what may be said instead."""


class CannotParaphrase(ValueError):
    """No other words are known for a question."""

    def __init__(self, question: Question) -> None:
        super().__init__(
            f"no paraphrase of {question.text!r} on key={question.key!r} is known: add the key to "
            "the table of TableParaphraser, or name a paraphraser of your own"
        )


@dataclass(frozen=True)
class TableParaphraser:
    """Draws one of the wordings that a table has for the question's key.

    A question on a key that is not in the table, as in DocVQA, whose questions have none, is
    rewritten by its form:

    - "What is the X?": "Can you tell me the X?", "The X, please?", "Please state the X.";
    - "Give the X.": "What is the X?", "Can you tell me the X?";
    - "How much is the X?", "How many X are …?": "What is the amount of …", "the number of …";
    - "Who …?", "To whom …?": "Which person …?", "To which person …?";
    - "When …?": "On what date …?"; "Where …?": "In what place …?"; "Which …?" and "What …?" swap.

    That changes fewer words than PaLM 2 would, so an extraction loses less by it.

    Attributes:
        table: key → wordings.
    """

    table: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: PARAPHRASES)

    def __post_init__(self) -> None:
        for key, wordings in self.table.items():
            if isinstance(wordings, str) or not wordings or not all(w.strip() for w in wordings):
                raise ValueError(f"table[{key!r}]={wordings!r}: expected one or more questions")

    def __call__(self, question: Question, rng: np.random.Generator) -> str:
        """Returns other words for a question.

        Raises:
            CannotParaphrase: if the table and the rewrites know none.
        """
        wordings = self.table.get(question.key) or _rewrites(question.text)
        others = [w for w in wordings if normalised(w) != normalised(question.text)]
        if not others:
            raise CannotParaphrase(question)
        return others[int(rng.integers(len(others)))]


def _rewrites(text: str) -> list[str]:
    """Returns a question in the words of the first pattern that it fits; none where none does."""
    asked = " ".join(text.split()).rstrip("?!. ")
    for pattern, instead in _REWRITES:
        if found := re.fullmatch(pattern, asked, re.IGNORECASE):
            parts = found.groupdict(default="")
            return [_sentence(one.format(**parts)) for one in instead]
    return []


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
