"""The house has floors: a room imports from the floors below it, never from above or beside it."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FLOORS = [
    ("runtime",),
    ("data", "privacy", "metrics"),
    ("models",),
    ("training",),
    ("federation",),
    ("threat", "strategies", "clients"),
    ("attacks",),
    ("report",),
    ("config",),
    ("studies",),
    ("cli", "deploy"),
]
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
LARGEST = 21
"""Files in one folder."""


def sources():
    """Yields each of our files by its path inside `fedpriv`; no link is followed."""
    for path in (ROOT / "fedpriv").rglob("*.py"):
        yield path.relative_to(ROOT / "fedpriv"), path
    for room in ("strategies", "clients", "attacks"):
        for path in (ROOT / room).rglob("*.py"):
            yield path.relative_to(ROOT), path


def rooms_used(path):
    """Yields the rooms that a file imports from, wherever in it, for types only or late."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            package, _, rest = name.partition(".")
            if package == "fedpriv" and rest.partition(".")[0] in FLOOR:
                yield rest.partition(".")[0]


FILES = dict(sources())


def looking_up():
    return {
        (str(inside), room)
        for inside, path in FILES.items()
        if (own := inside.parts[0]) in FLOOR
        for room in rooms_used(path)
        if room != own and FLOOR[room] >= FLOOR[own]
    }


def test_every_room_is_seen():
    assert {inside.parts[0] for inside in FILES} == {*FLOOR, "__init__.py", "__main__.py"}
    assert len(FILES) > 250


def test_no_import_looks_up():
    assert looking_up() == set()


def test_no_module_lies_flat_and_no_folder_is_full():
    flat = {inside.name for inside in FILES if len(inside.parts) == 1}
    assert flat <= {"__init__.py", "__main__.py"}
    sizes = {}
    for inside in FILES:
        sizes[inside.parent] = sizes.get(inside.parent, 0) + 1
    assert {str(folder): n for folder, n in sizes.items() if n > LARGEST} == {}


@pytest.mark.parametrize(
    "text",
    [
        "from fedpriv.report.build import write_report",
        "def f():\n    import fedpriv.report",
        "if TYPE_CHECKING:\n    from fedpriv import report",
    ],
)
def test_an_import_is_seen_wherever_it_stands(text, tmp_path):
    path = tmp_path / "module.py"
    path.write_text(text)
    assert set(rooms_used(path)) == {"report"}
