"""What a tokenizer's file makes of a short text, read where it can take neither memory nor time.

A `tokenizer.json` may replace a letter by twenty, seven times over: a word of ten letters is then
longer than any memory.
"""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer

from fedpriv.data.document import DataError

SAMPLE = (
    "".join(map(chr, range(32, 127))),
    "Größe 12,50 € 发票 النص 7.42 total",
)
"""Texts with every letter of ASCII, and some others."""

MOST_TOKENS = 10_000
"""Of one sample. Bytes as tokens are 100."""


def check(path: Path) -> int:
    """Returns the most tokens that a sample becomes; to be called by `fedpriv.data.apart.call`.

    Raises:
        DataError: if the file is no tokenizer, or makes a book of a line.
    """
    try:
        tokenizer = Tokenizer.from_file(str(path))
        most = max(len(tokenizer.encode(text).ids) for text in SAMPLE)
    except Exception as error:  # the library raises Exception itself
        raise DataError(path, f"no tokenizer that can be read: {error}") from error
    if most > MOST_TOKENS:
        raise DataError(path, f"it makes {most:,} tokens of a line of {len(SAMPLE[0])} letters")
    return most
