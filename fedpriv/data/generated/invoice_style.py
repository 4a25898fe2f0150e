"""The look of a provider's invoices: arrangement, typefaces, colours, wording, logo.

What it is drawn from stands in `styles.yaml`, with the words in `lexicon.yaml`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeVar

import numpy as np
from PIL import Image

from fedpriv.data.generated.glyphs import Colour, Pixels
from fedpriv.data.generated.lexicon import CAPTIONS, NOTES, TITLES, read_tables

T = TypeVar("T")

WHITE: Colour = (255, 255, 255)
INK: Colour = (24, 24, 24)
GREY: Colour = (96, 96, 96)

_tables = read_tables("styles.yaml")

ARRANGEMENTS: tuple[str, ...] = _tables["ARRANGEMENTS"]
FACES: tuple[tuple[str, str, str, int], ...] = _tables["FACES"]
ACCENTS: tuple[Colour, ...] = _tables["ACCENTS"]
COLUMNS: tuple[tuple[str, ...], ...] = _tables["COLUMNS"]


@dataclass(frozen=True)
class Logo:
    """A geometric mark.

    Attributes:
        kind: mirrored blocks, or rings in one of three norms, or quarter discs.
        pattern: 18 numbers in 0..2: empty, first colour, second colour.
        colours: the two colours.
    """

    kind: Literal["blocks", "disc", "diamond", "square", "quarters"]
    pattern: tuple[int, ...]
    colours: tuple[Colour, Colour]


@dataclass(frozen=True)
class Style:
    """The look of one provider's pages; lengths in pixels at 400 x 560.

    Attributes:
        arrangement: one of `ARRANGEMENTS`.
        mirrored: whether the slots of every band are in reverse order.
        flush_right: whether the rightmost slot of a band is set flush right.
        centred: whether a logo, provider, title or note that is alone in its band is centred.
        faces: file names, without ending, of the body, caption and strong face.
        size: of the body face.
        margin: from the page's edge to the text.
        accent: colour of title, provider and table head.
        caption_ink: colour of captions.
        colon: follows a caption.
        rows: layout of captions and values: "inline", one after the other; "tabbed", in two
            columns; or "stacked", one above the other (invoice number and dates only).
        head: the table's head.
        body: the table's rows.
        edge: an ornament at the page's edge.
        rules: whether thin lines separate the bands.
        panel: whether customer and meta block have a tinted ground.
        title: of the page, such as "Invoice".
        captions: the provider's wording for each field.
        columns: of the table.
        notes: small print.
        logo: the provider's mark.
    """

    arrangement: str
    mirrored: bool
    flush_right: bool
    centred: bool
    faces: tuple[str, str, str]
    size: int
    margin: int
    accent: Colour
    caption_ink: Colour
    colon: str
    rows: Literal["inline", "tabbed", "stacked"]
    head: Literal["filled", "tinted", "ruled", "boxed"]
    body: Literal["plain", "ruled", "striped"]
    edge: Literal["none", "top", "left", "frame", "bottom"]
    rules: bool
    panel: bool
    title: str
    captions: Mapping[str, str]
    columns: tuple[str, ...]
    notes: tuple[str, ...]
    logo: Logo


def draw_style(random: np.random.Generator) -> Style:
    """Draws a provider's look."""

    def chance(probability: float) -> bool:
        return bool(random.random() < probability)

    accent, second = (ACCENTS[i] for i in random.choice(len(ACCENTS), size=2, replace=False))
    body, caption, strong, size = pick(random, FACES)
    return Style(
        arrangement=pick(random, ARRANGEMENTS),
        mirrored=chance(0.35),
        flush_right=chance(0.5),
        centred=chance(0.5),
        faces=(body, caption, strong),
        size=size,
        margin=int(random.integers(22, 31)),
        accent=accent,
        caption_ink=pick(random, (INK, GREY, accent)),
        colon=pick(random, ("", ":")),
        rows=pick(random, ("inline", "tabbed", "stacked")),
        head=pick(random, ("filled", "tinted", "ruled", "boxed")),
        body=pick(random, ("plain", "ruled", "striped")),
        edge=pick(random, ("none", "none", "top", "left", "frame", "bottom")),
        rules=chance(0.3),
        panel=chance(0.3),
        title=pick(random, TITLES),
        captions={key: pick(random, wordings) for key, wordings in CAPTIONS.items()},
        columns=pick(random, COLUMNS),
        notes=tuple(NOTES[i] for i in random.choice(len(NOTES), size=2, replace=False)),
        logo=Logo(
            kind=pick(random, ("blocks", "blocks", "disc", "diamond", "square", "quarters")),
            # The first number, the outermost ring, is never empty: no logo is blank.
            pattern=(1, *(int(n) for n in random.integers(0, 3, size=17))),
            colours=(accent, second),
        ),
    )


def pick(random: np.random.Generator, choices: Sequence[T]) -> T:
    """Returns one of the choices, all equally likely."""
    return choices[int(random.integers(len(choices)))]


@lru_cache(maxsize=64)
def logo_pixels(logo: Logo, side: int) -> Pixels:
    """Returns the mark, side × side × 3, smoothed by drawing it three times as large."""
    fine = 3 * side
    centres = (np.arange(fine) + 0.5) / fine
    y, x = np.meshgrid(centres, centres, indexing="ij")
    u, v = np.abs(2 * x - 1), np.abs(2 * y - 1)
    pattern = np.array(logo.pattern)
    if logo.kind == "blocks":
        index = pattern[(6 * y).astype(int) * 3 + np.minimum((3 * u).astype(int), 2)]
    elif logo.kind == "quarters":
        # 3 × 3 quarter discs, each turned and coloured by the pattern.
        tile = np.minimum((3 * y).astype(int), 2) * 3 + np.minimum((3 * x).astype(int), 2)
        turn = pattern[tile] + pattern[(tile + 1) % 9]
        across = np.where(turn % 2, 3 * x % 1, 1 - 3 * x % 1)
        down = np.where(turn // 2 % 2, 3 * y % 1, 1 - 3 * y % 1)
        index = np.where(np.hypot(across, down) < 1, 1 + pattern[tile + 9] % 2, 0)
    else:
        norm = {"disc": np.hypot(u, v), "diamond": u + v, "square": np.maximum(u, v)}[logo.kind]
        ring = np.minimum((5 * norm).astype(int), 4)
        index = np.where(norm < 1, pattern[4 - ring], 0)
    colours = np.array([WHITE, *logo.colours], np.uint8)[index]
    return np.array(Image.fromarray(colours).reduce(3))
