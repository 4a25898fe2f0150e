"""Hand-made pages, for tests to which it matters little where a word stands and what is drawn."""

import numpy as np

from fedpriv.data.document import Document, Word


def page(
    *lines, name="a", provider="Vega", size=(200, 100), step=10, entities=(), questions=(), split=""
):
    """A grey page with lines of words, each in a segment of its own; "_" leaves a place free."""
    words = []
    for row, line in enumerate(lines):
        for place, text in enumerate(line.split()):
            left, top = step * place, 10 + 30 * row
            words.append(Word(text, (left, top, left + step - 1, top + 20), len(words)))
    grey = np.full((size[1], size[0]), 99, np.uint8)
    words = tuple(word for word in words if word.text != "_")
    return Document(
        name, provider, grey, size, words, tuple(entities), tuple(questions), split=split
    )
