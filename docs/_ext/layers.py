"""Draws the rooms of the house and who imports whom, from the imports themselves."""

from __future__ import annotations

import ast
from functools import cache
from html import escape
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "fedpriv"
WIDE, HIGH, GAP, STEP = 126, 34, 18, 74
"""Pixels: width and height of a room, between rooms, and from floor to floor."""


@cache
def imports() -> dict[str, set[str]]:
    """Returns the rooms that each room imports from, anywhere in its files."""
    rooms = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()}
    found: dict[str, set[str]] = {room: set() for room in rooms}
    for room in rooms:
        for path in (PACKAGE / room).resolve().rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.ImportFrom) and node.module:
                    names = [f"{node.module}.{alias.name}" for alias in node.names]
                elif isinstance(node, ast.Import):
                    names = [alias.name for alias in node.names]
                else:
                    continue
                used = {name.split(".")[1] for name in names if name.startswith("fedpriv.")}
                found[room] |= used & rooms - {room}
    return found


@cache
def below(room: str) -> frozenset[str]:
    """Returns all rooms that a room needs, by itself or through others."""
    return frozenset(imports()[room]).union(*(below(other) for other in imports()[room]))


@cache
def floor(room: str) -> int:
    """Returns the floor: one above the highest room that is imported."""
    return 1 + max((floor(other) for other in imports()[room]), default=-1)


def direct() -> list[tuple[str, str]]:
    """Returns the imports that follow from no others: what is drawn."""
    return [
        (room, other)
        for room, others in sorted(imports().items())
        for other in sorted(others)
        if not any(other in below(third) for third in others - {other})
    ]


def drawing() -> str:
    """Returns the drawing as SVG for a page of HTML, in the colours of the page."""
    floors: dict[int, list[str]] = {}
    for room in sorted(imports()):
        floors.setdefault(floor(room), []).append(room)
    top, widest = max(floors), max(map(len, floors.values()))
    width = widest * (WIDE + GAP) + GAP
    places: dict[str, tuple[float, float]] = {}
    for level, rooms in floors.items():
        left = (width - len(rooms) * (WIDE + GAP) + GAP) / 2
        for number, room in enumerate(rooms):
            places[room] = (left + number * (WIDE + GAP), (top - level) * STEP + 4)
    lines = []
    for room, other in direct():
        (x, y), (x2, y2) = places[room], places[other]
        x2, y2 = x2 + WIDE / 2, y2 - 6
        if floor(room) == floor(other) + 1:
            x, y, middle = x + WIDE / 2, y + HIGH, (y + HIGH + y2) / 2
            bend = f"{x:g} {middle:g} {x2:g} {middle:g}"
        else:  # past the rooms between
            x, y = x + WIDE, y + HIGH / 2
            bend = f"{x2:g} {y:g} {x2:g} {y:g}"
        lines.append(f'<path d="M{x:g} {y:g}C{bend} {x2:g} {y2:g}"/>')
    boxes = [
        f'<rect x="{x:g}" y="{y:g}" width="{WIDE}" height="{HIGH}" rx="6"/>'
        f'<text x="{x + WIDE / 2:g}" y="{y + 22:g}">{escape(room)}</text>'
        for room, (x, y) in places.items()
    ]
    described = "; ".join(f"{room} imports {other}" for room, other in direct())
    return (
        f'<svg class="layers" viewBox="0 0 {width} {top * STEP + HIGH + 8}" role="img" '
        f'aria-label="The rooms of fedpriv, floor above floor: {escape(described)}.">'
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="4" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z"/></marker></defs>'
        f'<g class="arrows">{"".join(lines)}</g><g class="rooms">{"".join(boxes)}</g></svg>\n'
    )
