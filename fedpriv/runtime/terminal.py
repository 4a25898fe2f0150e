"""Safe text for a terminal, where some characters are commands.

The name of a provider or of a file comes from the author of the data. It could otherwise clear the
screen, set the window's title, or overwrite earlier output.
"""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any, TextIO, cast

KEPT = "\n\t\u200c\u200d"
"""Line feeds, tabs, and the joiners that Persian, Hindi and emoji are written with."""

SPELLED_OUT = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Control characters, invisible ones such as those that turn the direction of writing, halves of a
character, and separators of lines and paragraphs: categories of Unicode."""


def visible(text: str) -> str:
    """Returns the text with commands and invisible characters spelled out, as `ascii` does."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        ascii(letter)[1:-1]
        if letter not in KEPT and unicodedata.category(letter) in SPELLED_OUT
        else letter
        for letter in text
    )


@contextmanager
def visible_output() -> Iterator[None]:
    """Makes everything `visible` that the block prints to standard output and error."""
    out, error = cast(TextIO, _Visible(sys.stdout)), cast(TextIO, _Visible(sys.stderr))
    with redirect_stdout(out), redirect_stderr(error):
        yield


def escaping_stderr() -> TextIO:
    """Returns standard error for a display that writes escapes of its own."""
    return sys.stderr.stream if isinstance(sys.stderr, _Visible) else sys.stderr


class _Visible:
    """A stream whose text is `visible`; else the stream itself."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        self.stream.write(visible(text))
        return len(text)

    def writelines(self, lines: Iterator[str]) -> None:
        self.stream.writelines(map(visible, lines))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)
