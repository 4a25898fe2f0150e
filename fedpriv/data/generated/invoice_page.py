"""How a generated invoice is set on the page: bands, slots and blocks.

A page is a stack of bands, a band is one to three slots side by side, a slot is a stack of blocks
(logo, provider, table and so on). The place of a block depends on the style and the page size, not
on its text, so that a page with its values left out keeps its layout.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from fedpriv.data.generated.glyphs import Colour, Face, text_width
from fedpriv.data.generated.invoice_style import GREY, INK, WHITE, Style, logo_pixels
from fedpriv.data.generated.sheet import Align, Sheet, offset

LABELS: tuple[str, ...] = (
    *("provider", "address", "email", "phone", "tax_number", "registration_id", "customer"),
    *("invoice_number", "date", "total"),
)
"""The entities of a generated invoice; each is the value without its caption."""

ROWS = 6
"""Item rows that every table has room for."""

SMALLEST_PAGE = (360, 504)
"""Width and height in pixels below which the text cannot be read."""

# The page size that the lengths of a style are for.
_DESIGN_SIZE = (400, 560)

_COLUMN_WIDTHS: Mapping[str, int] = {"quantity": 46, "price": 66, "amount": 72}


@dataclass(frozen=True)
class Printed:
    """The values of one invoice as they are printed.

    Attributes:
        fields: for each field, its lines.
        rows: for each item, the text in each column of the table.
    """

    fields: Mapping[str, tuple[str, ...]]
    rows: tuple[Mapping[str, str], ...]


def draw_page(style: Style, size: tuple[int, int], printed: Printed | None) -> Sheet:
    """Draws an invoice; without `printed`, only its captions, rules and colours.

    Args:
        style: the provider's look.
        size: width and height in pixels.
        printed: the values; None leaves out every value and the logo.
    """
    sheet = _Invoice(style, size, printed)
    _edge(sheet)
    bands: list[list[list[str]]] = []
    for line in style.arrangement.split("/"):
        stacks = [slot.strip().split("+") for slot in line.split("|")]
        stacks = [[] if blocks == ["."] else blocks for blocks in stacks]
        bands.append(stacks[::-1] if style.mirrored else stacks)
    tops = _band_tops(sheet, bands)
    for place, (band, top) in enumerate(zip(bands, tops, strict=True)):
        # The table draws its own lines above and below.
        if style.rules and place and ["table"] not in band + bands[place - 1]:
            sheet.rule(top - sheet.scaled(5), _tint(GREY, 0.5))
        for slot, blocks in zip(_slots(sheet, band), band, strict=True):
            block_top = top
            for block in blocks:
                height = _height(sheet, block, slot.alone)
                if style.panel and block in ("customer", "meta"):
                    sheet.paper, pad = _tint(style.accent, 0.08), sheet.scaled(3)
                    left, right = slot.left - pad, slot.right + pad
                    sheet.fill(left, block_top - pad, right, block_top + height + pad, sheet.paper)
                _DRAW[block](sheet, slot, block_top)
                sheet.paper = WHITE
                block_top += height + sheet.stack_gap
    return sheet


# --- Layout ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Slot:
    """A column of a band: its horizontal extent, how it is set, and whether it fills the band."""

    left: int
    right: int
    align: Align
    alone: bool


def _slots(sheet: _Invoice, band: list[list[str]]) -> list[_Slot]:
    """Shares the page's width among the slots; a logo takes no more than it needs."""
    style, gutter = sheet.style, sheet.scaled(16)
    left, right = sheet.left, sheet.right
    if len(band) == 1:
        loose = style.centred and band[0][0] in ("logo", "provider", "title", "notes")
        return [_Slot(left, right, "center" if loose else "left", alone=True)]
    logos = [blocks == ["logo"] for blocks in band]
    room = right - left - gutter * (len(band) - 1) - sum(logos) * sheet.logo_side
    share = room // (len(band) - sum(logos))
    slots = []
    for place, logo in enumerate(logos):
        end = left + (sheet.logo_side if logo else share)
        last = place == len(band) - 1
        align: Align = "right" if last and (style.flush_right or logo) else "left"
        slots.append(_Slot(left, right if last else end, align, alone=False))
        left = end + gutter
    return slots


def _height(sheet: _Invoice, block: str, alone: bool) -> int:
    pitch, stacked = sheet.pitch, sheet.style.rows == "stacked"
    lines: Mapping[str, float] = {
        "title": 1.8,
        "provider": 3.5,
        "contact": 1 if alone else 2,
        "legal": 1 if alone else 2,
        "customer": 4,
        "meta": 2 if alone else 6 if stacked else 3,
        "totals": 3.6,
        "notes": 2,
    }
    if block == "logo":
        return sheet.logo_side
    if block == "table":
        return sheet.head_height + ROWS * sheet.row_height
    return round(lines[block] * pitch)


def _band_tops(sheet: _Invoice, bands: list[list[list[str]]]) -> list[int]:
    """Spreads the bands over the page's height; remaining space stays at the foot."""
    heights = []
    for band in bands:
        stacks = (
            sum(_height(sheet, block, len(band) == 1) + sheet.stack_gap for block in slot)
            for slot in band
        )
        heights.append(max(stacks) - sheet.stack_gap)
    slack = sheet.height - 2 * sheet.margin - sum(heights)
    gap = min(slack // (len(bands) - 1), sheet.scaled(26))
    tops, top = [], sheet.margin
    for band, height in zip(bands, heights, strict=True):
        tops.append(top)
        top += height + (min(gap, sheet.scaled(12)) if ["table"] in band else gap)
    if not any("totals" in slot for slot in bands[-1]):
        tops[-1] = sheet.height - sheet.margin - heights[-1]
    return tops


# --- The sheet that words are set on --------------------------------------------------------------


class _Invoice(Sheet):
    """An invoice in the making: a sheet with a style and values to print."""

    def __init__(self, style: Style, size: tuple[int, int], printed: Printed | None) -> None:
        super().__init__(size)
        self.style, self.printed = style, printed
        self.scale = min(size[0] / _DESIGN_SIZE[0], size[1] / _DESIGN_SIZE[1])
        self.type_size = self.scaled(style.size)
        self.pitch = self.type_size + self.scaled(4)
        self.row_height, self.head_height = self.pitch + self.scaled(2), self.pitch + self.scaled(5)
        self.logo_side, self.stack_gap = self.scaled(44), self.scaled(5)
        self.margin = self.scaled(style.margin)
        self.left, self.right = self.margin, self.width - self.margin
        self.half_width = self.scaled(180)
        self.paper = WHITE

    def scaled(self, length: float) -> int:
        """Turns a length at 400 x 560 into pixels of this page."""
        return round(length * self.scale)

    def face(self, role: int = 0, factor: float = 1.0) -> Face:
        """Returns a face of the style: 0 body, 1 caption, 2 strong."""
        return Face(self.style.faces[role], round(self.type_size * factor))

    def fill(self, left: int, top: int, right: int, bottom: int, colour: Colour) -> None:
        """Paints a rectangle, right and bottom not included."""
        self.pixels[top:bottom, left:right] = colour

    def rule(self, top: int, colour: Colour) -> None:
        """Paints a thin line across the text's width."""
        self.fill(self.left, top, self.right, top + 1, colour)

    def write(
        self,
        text: str,
        span: tuple[int, int],
        top: int,
        face: Face,
        ink: Colour = INK,
        align: Align = "left",
    ) -> int:
        """Sets one string below `top`, on the paper of the block; see `set_line`."""
        # From the face asked for, so that smaller type stands on the same line.
        baseline = top + round(0.93 * face.size)
        return self.set_line(text, face, ink, span, baseline, paper=self.paper, align=align)

    def value(
        self,
        field: str,
        span: tuple[int, int],
        top: int,
        face: Face,
        ink: Colour = INK,
        align: Align = "left",
    ) -> None:
        """Sets the lines of a field's value, one below the other, unless values are left out."""
        if self.printed is None:
            return
        first = len(self.words)
        for place, line in enumerate(self.printed.fields[field]):
            self.write(line, span, top + place * self.pitch, face, ink, align)
        if field in LABELS:
            self.label_from(first, field)

    def caption(self, field: str, span: tuple[int, int], top: int, align: Align = "left") -> int:
        """Sets a field's caption and returns where it ends."""
        return self.write(
            self.caption_text(field), span, top, self.face(1), self.style.caption_ink, align
        )

    def caption_text(self, field: str) -> str:
        """Returns the provider's wording for a field."""
        return self.style.captions[field] + self.style.colon


# --- Blocks ---------------------------------------------------------------------------------------


def _title(sheet: _Invoice, slot: _Slot, top: int) -> None:
    face = sheet.face(2, 1.7)
    sheet.write(
        sheet.style.title, (slot.left, slot.right), top, face, sheet.style.accent, slot.align
    )


def _logo(sheet: _Invoice, slot: _Slot, top: int) -> None:
    if sheet.printed is None:
        return
    side = sheet.logo_side
    left = slot.left + offset(slot.align, slot.right - slot.left - side)
    sheet.pixels[top : top + side, left : left + side] = logo_pixels(sheet.style.logo, side)


def _provider(sheet: _Invoice, slot: _Slot, top: int) -> None:
    span = (slot.left, slot.right)
    sheet.value("provider", span, top, sheet.face(2, 1.35), sheet.style.accent, slot.align)
    below = top + round(1.5 * sheet.pitch)
    sheet.value("address", span, below, sheet.face(), align=slot.align)


def _pair(fields: tuple[str, str], sheet: _Invoice, slot: _Slot, top: int) -> None:
    """Sets two captioned fields side by side where there is room, one below the other elsewhere."""
    if not slot.alone:
        _listed(sheet, slot, top, fields)
        return
    middle = slot.left + round(0.44 * (slot.right - slot.left))
    spans = ((slot.left, middle - sheet.stack_gap), (middle, slot.right))
    for field, (left, right) in zip(fields, spans, strict=True):
        end = sheet.caption(field, (left, right), top)
        sheet.value(field, (end + sheet.stack_gap, right), top, sheet.face())


def _listed(sheet: _Invoice, slot: _Slot, top: int, fields: Sequence[str]) -> None:
    """Sets captioned fields one below the other.

    Flush right, the values end at the right edge and the captions begin at a fixed place: the place
    of a caption must not tell how long its value is.
    """
    left, right = slot.left, slot.right
    if slot.align == "right":
        left = max(left, right - sheet.half_width)
    tab = max(text_width(sheet.face(1), sheet.caption_text(field)) for field in fields)
    for place, field in enumerate(fields):
        y = top + place * sheet.pitch
        end = sheet.caption(field, (left, right), y)
        if sheet.style.rows == "tabbed":
            end = left + tab
        align: Align = "right" if slot.align == "right" else "left"
        sheet.value(field, (end + sheet.stack_gap, right), y, sheet.face(), align=align)


def _customer(sheet: _Invoice, slot: _Slot, top: int) -> None:
    span = (slot.left, slot.right)
    sheet.caption("customer", span, top, slot.align)
    sheet.value("customer", span, top + sheet.pitch, sheet.face(2), align=slot.align)
    below = top + 2 * sheet.pitch
    sheet.value("customer_address", span, below, sheet.face(), align=slot.align)


def _meta(sheet: _Invoice, slot: _Slot, top: int) -> None:
    fields = ("invoice_number", "date", "due_date")
    if not slot.alone and sheet.style.rows != "stacked":
        _listed(sheet, slot, top, fields)
        return
    third = (slot.right - slot.left) // 3
    for place, field in enumerate(fields):
        y, span = top + 2 * place * sheet.pitch, (slot.left, slot.right)
        if slot.alone:
            left = slot.left + place * third
            y, span = top, (left, left + third - sheet.scaled(8))
        sheet.caption(field, span, y, slot.align)
        sheet.value(field, span, y + sheet.pitch, sheet.face(), align=slot.align)


def _table(sheet: _Invoice, slot: _Slot, top: int) -> None:
    # Name, extent and alignment of each column; the description takes the remaining width.
    inset, left = sheet.scaled(4), slot.left
    fixed = {name: sheet.scaled(width) for name, width in _COLUMN_WIDTHS.items()}
    rest = slot.right - slot.left - sum(fixed.values())
    columns: list[tuple[str, tuple[int, int], Align]] = []
    for name in sheet.style.columns:
        right = left + fixed.get(name, rest)
        span = (left + inset, right - inset)
        columns.append((name, span, "left" if name == "description" else "right"))
        left = right
    _table_head(sheet, slot, top, columns)
    top += sheet.head_height
    for row in range(ROWS):
        bottom = top + sheet.row_height
        if sheet.style.body == "striped" and row % 2:
            sheet.paper = _tint(GREY, 0.08)
            sheet.fill(slot.left, top, slot.right, bottom, sheet.paper)
        if sheet.printed is not None and row < len(sheet.printed.rows):
            for name, span, align in columns:
                text = sheet.printed.rows[row][name]
                sheet.write(text, span, top + sheet.scaled(2), sheet.face(), align=align)
        if sheet.style.body == "ruled":
            sheet.rule(bottom - 1, _tint(GREY, 0.4))
        sheet.paper = WHITE
        top = bottom


def _table_head(
    sheet: _Invoice, slot: _Slot, top: int, columns: list[tuple[str, tuple[int, int], Align]]
) -> None:
    style, bottom = sheet.style, top + sheet.head_height
    ink = style.accent
    if style.head == "filled":
        sheet.paper, ink = style.accent, WHITE
    elif style.head == "tinted":
        sheet.paper = _tint(style.accent, 0.15)
    sheet.fill(slot.left, top, slot.right, bottom, sheet.paper)
    for name, span, align in columns:
        # Strong faces are wide: a size smaller, the captions fit their columns.
        face = sheet.face(2, 0.9)
        sheet.write(style.captions[name], span, top + sheet.scaled(3), face, ink, align)
    if style.head in ("ruled", "boxed"):
        sheet.rule(bottom - 1, style.accent)
    if style.head == "boxed":
        sheet.rule(top, style.accent)
        sheet.rule(bottom + ROWS * sheet.row_height, style.accent)
    sheet.paper = WHITE


def _totals(sheet: _Invoice, slot: _Slot, top: int) -> None:
    """Sets subtotal, tax and total, the captions left and the amounts flush right."""
    left, right = slot.left, slot.right
    if right == sheet.right:
        left = max(left, right - sheet.half_width)
    else:
        right = min(right, left + sheet.half_width)
    for place, field in enumerate(("subtotal", "tax")):
        y = top + place * sheet.pitch
        end = sheet.caption(field, (left, right), y)
        if field == "tax":
            sheet.value("tax_rate", (end + sheet.stack_gap, right), y, sheet.face())
        sheet.value(field, (end + sheet.scaled(30), right), y, sheet.face(), align="right")
    y = top + 2 * sheet.pitch + sheet.scaled(3)
    sheet.fill(left, y, right, y + 1, sheet.style.accent)
    face, ink = sheet.face(2, 1.3), sheet.style.accent
    y += sheet.scaled(3)
    end = sheet.write(sheet.caption_text("total"), (left, right), y, face, ink)
    sheet.value("total", (end + sheet.stack_gap, right), y, face, ink, "right")


def _notes(sheet: _Invoice, slot: _Slot, top: int) -> None:
    for place, note in enumerate(sheet.style.notes):
        y = top + place * sheet.pitch
        sheet.write(note, (slot.left, slot.right), y, sheet.face(1), GREY, slot.align)


_DRAW: Mapping[str, Callable[[_Invoice, _Slot, int], None]] = {
    "logo": _logo,
    "title": _title,
    "provider": _provider,
    "contact": partial(_pair, ("phone", "email")),
    "legal": partial(_pair, ("tax_number", "registration_id")),
    "customer": _customer,
    "meta": _meta,
    "table": _table,
    "totals": _totals,
    "notes": _notes,
}


# --- Ornaments ------------------------------------------------------------------------------------


def _tint(colour: Colour, strength: float) -> Colour:
    """Mixes a colour with white."""
    red, green, blue = (round(255 - strength * (255 - part)) for part in colour)
    return (red, green, blue)


def _edge(sheet: _Invoice) -> None:
    width, height, edge = sheet.width, sheet.height, sheet.style.edge
    accent, bar, inset = sheet.style.accent, sheet.scaled(7), sheet.scaled(10)
    if edge == "top":
        sheet.fill(0, 0, width, bar, accent)
    elif edge == "bottom":
        sheet.fill(0, height - bar, width, height, accent)
    elif edge == "left":
        sheet.fill(0, 0, bar, height, accent)
    elif edge == "frame":
        for x in (inset, width - inset - 1):
            sheet.fill(x, inset, x + 1, height - inset, accent)
        for y in (inset, height - inset - 1):
            sheet.fill(inset, y, width - inset, y + 1, accent)
