"""Documents are told apart by what they hold, on every Python."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from fedpriv.data.document import Document

WHITE = np.full((4, 4), 255, np.uint8)
MADE = Document("d", "ACME", WHITE, (4, 4), ())
READ = replace(MADE, page=Path("d.png"))


def test_pages_in_memory_are_compared_by_their_pixels():
    assert replace(MADE) == MADE
    assert replace(MADE, page=WHITE.copy()) == MADE
    assert replace(MADE, page=WHITE - 1) != MADE
    assert replace(MADE, page=WHITE[:3]) != MADE


def test_pages_in_files_are_compared_by_their_paths():
    assert replace(READ, page=Path("d.png")) == READ
    assert replace(READ, page=Path("e.png")) != READ
    assert MADE != READ


def test_every_other_field_counts():
    assert replace(MADE, provider="Bolt") != MADE
    assert replace(MADE, split="test") != MADE
    assert MADE != "d"
