"""Generated pages: kept as what draws them, and drawn when they are read.

A page of 400 x 560 takes 0.67 MB as pixels and its words 30 kB, and most documents of a large
federation are never looked at in a run: their encoding comes from the cache.
"""

from __future__ import annotations

import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedpriv.runtime import seeds
from fedpriv.runtime.cache import files_digest
from fedpriv.runtime.versions import versions_of

if TYPE_CHECKING:
    from fedpriv.data.document import Entity, Question, Word

LAST_DRAWN = 8
"""Pages whose pixels stay in memory: most readers look at one page several times in a row."""

LAST_READ = 4096
"""Pages whose words stay in memory, some 120 MB of invoices: encoding reads every page once."""


@dataclass(frozen=True)
class PageText:
    """What is written on a page; see the attributes of `fedpriv.data.document.Document`."""

    words: tuple[Word, ...]
    entities: tuple[Entity, ...]
    questions: tuple[Question, ...]


class LazyPage(ABC):
    """A page that is read or drawn when somebody looks at it; see `Document.drawn`."""

    __slots__ = ()

    @abstractmethod
    def pixels(self) -> NDArray[np.uint8]:
        """Returns the page (height × width × 3), read-only."""

    @property
    @abstractmethod
    def text(self) -> PageText:
        """What is written on the page."""

    @abstractmethod
    def key(self) -> list[Any]:
        """Returns which page it is, as plain values. How it is read or drawn is told by `code`."""

    def picture_key(self) -> list[Any]:
        """Returns which picture it is, whatever is read or asked there, as plain values."""
        return self.key()

    @abstractmethod
    def code(self) -> str:
        """Returns a hash of all code that makes its pixels and its text."""


@dataclass(frozen=True)
class Drawing:
    """What a drawing function returns.

    Attributes:
        pixels: of the page (height × width × 3).
        text: what is written there.
    """

    pixels: NDArray[np.uint8]
    text: PageText


@dataclass(frozen=True, slots=True)
class DrawnPage(LazyPage):
    """A page as the function that draws it, and its arguments.

    Two of them are equal if they draw by the same function from the same arguments. Pickled, a page
    is just these.

    Attributes:
        draw: a function of a module that returns the same drawing for the same arguments, on every
            machine.
        arguments: plain values that JSON can hold, in hashable types.
    """

    draw: Callable[..., Drawing]
    arguments: tuple[Any, ...]

    def pixels(self) -> NDArray[np.uint8]:
        """Returns the page (height × width × 3), read-only."""
        drawing = _drawn(self.draw, self.arguments)
        _text(self.draw, self.arguments)  # so that whoever reads the words later draws nothing
        return drawing.pixels

    @property
    def text(self) -> PageText:
        """What is written on the page; the last `LAST_READ` stay in memory."""
        return _text(self.draw, self.arguments)

    def key(self) -> list[Any]:
        """Returns which page it is, as plain values. How it is drawn is told by `code`."""
        return [f"{self.draw.__module__}.{self.draw.__qualname__}", self.arguments]

    def code(self) -> str:
        """Returns a hash of all code that draws: two pages with the same key may differ by it."""
        return _code(self.draw)

    def __reduce__(self) -> tuple[type[DrawnPage], tuple[Any, ...]]:
        return DrawnPage, (self.draw, self.arguments)


@functools.lru_cache(maxsize=LAST_DRAWN)
def _drawn(draw: Callable[..., Drawing], arguments: tuple[Any, ...]) -> Drawing:
    drawing = draw(*arguments)
    drawing.pixels.flags.writeable = False  # whoever reads the page next must see the same
    return drawing


@functools.lru_cache(maxsize=LAST_READ)
def _text(draw: Callable[..., Drawing], arguments: tuple[Any, ...]) -> PageText:
    return _drawn(draw, arguments).text


@functools.cache
def _code(draw: Callable[..., Drawing]) -> str:
    generators = Path(__file__).with_name("generated")
    own = sorted(path for path in generators.iterdir() if path.suffix in (".py", ".yaml"))
    # matplotlib brings the typefaces, Pillow what sets them.
    versions = versions_of("numpy", "pillow", "matplotlib")
    return files_digest((*own, Path(seeds.__file__), Path(inspect.getfile(draw))), versions)
