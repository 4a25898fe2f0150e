"""Makes fedpriv/models/tokenizer.json again: a byte-level BPE over generated invoices.

Only generated text goes in, so the vocabulary that everybody gets says nothing about anybody.
"""

from collections.abc import Iterator
from pathlib import Path

from fedpriv.data.generated import lexicon
from fedpriv.data.generated.invoices import Invoices
from fedpriv.data.generated.questions import QUESTION_TEMPLATES
from fedpriv.models.readers.subwords import SHIPPED, train_tokenizer

VOCABULARY = 1536
REPEATS = 100
"""How often each word of the lexicon counts, beside its use on the pages: names are rare there."""


def main(path: Path = SHIPPED) -> None:
    """Trains and writes the tokenizer."""
    train_tokenizer(texts(), VOCABULARY).save(str(path))


def texts() -> Iterator[str]:
    """Yields pages, the words that they are made of, and questions about them."""
    documents = Invoices(providers=300, documents_per_provider=4, seed=1).load().documents
    yield from (f" {word.text}" for document in documents for word in document.words)
    tables = [value for name, value in vars(lexicon).items() if name.isupper()]
    strings = {text for table in tables for text in _flat(table)}
    words = sorted({word for text in strings for word in text.split() if word.isalpha()})
    yield from (f" {word}" for word in words for _ in range(REPEATS))
    questions = (question for key in QUESTION_TEMPLATES.values() for question in key)
    yield from (f" {question}" for question in questions for _ in range(REPEATS // 20))


def _flat(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, tuple):
        for part in value:
            yield from _flat(part)


if __name__ == "__main__":
    main()
