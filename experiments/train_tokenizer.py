"""Makes fedpriv/models/tokenizer.json again: a byte-level BPE over generated invoices.

Only generated text goes in, so the vocabulary that everybody gets says nothing about anybody.
"""

from pathlib import Path

from fedpriv.data.synthetic import Invoices
from fedpriv.models.subwords import SHIPPED, train_tokenizer

VOCABULARY = 1024


def main(path: Path = SHIPPED) -> None:
    """Trains and writes the tokenizer."""
    documents = Invoices(providers=300, documents_per_provider=4, seed=1).load().documents
    texts = (f" {word.text}" for document in documents for word in document.words)
    train_tokenizer(texts, VOCABULARY).save(str(path))


if __name__ == "__main__":
    main()
