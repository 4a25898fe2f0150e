"""Training questions in other words (Pinto et al., §5.2, and §6 as a defence).

The paper has PaLM 2 paraphrase each question. Here a table holds wordings per key; whoever has a
language model at hand names a paraphraser of their own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import yaml

from fedpriv.attacks.extraction.canary import normalised
from fedpriv.data.document import Question

Paraphraser = Callable[[Question, np.random.Generator], str]
"""Words a question differently. It may raise `CannotParaphrase`; it never returns the same words.

A settings file names one by its dotted path: ``{_target_: mine.Paraphraser}`` for a class, and for
a function ``{_target_: mine.paraphrase, _partial_: true}``.
"""

_TABLE = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text("utf-8"))

PARAPHRASES: Mapping[str, tuple[str, ...]] = {key: tuple(said) for key, said in _TABLE.items()}
"""Wordings per key of generated invoices and slips, of receipts, and of planted identities."""

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
        table: other wordings of a question for each of its keys. The default is the whole of
            `paraphrases.yaml`, which lies in the package `fedpriv.attacks.extraction`.
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
        wordings = self.table.get(question.key, ())
        asked = " ".join(question.text.split()).rstrip("?!. ")
        for pattern, instead in () if wordings else _REWRITES:
            if found := re.fullmatch(pattern, asked, re.IGNORECASE):
                said = [one.format(**found.groupdict(default="")) for one in instead]
                wordings = tuple(text[:1].upper() + text[1:] for text in said)
                break
        others = [w for w in wordings if normalised(w) != normalised(question.text)]
        if not others:
            raise CannotParaphrase(question)
        return others[int(rng.integers(len(others)))]
