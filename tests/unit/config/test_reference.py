"""Settings are told as a settings file writes them, in lines of a length that can be read."""

import dataclasses

from fedpriv.config.reference import LONGEST, reference, settings


@dataclasses.dataclass(frozen=True)
class Part:
    """A part of something.

    Args:
        size: the size.
    """

    size: int = 1


def whole(part: Part | None = None, words: tuple[str, ...] = ("one two three",) * 20) -> None:
    """Takes settings.

    Args:
        part: the part. None takes no part; None of the others is True.
        words: the words.
    """


def test_a_long_default_is_cut_at_a_word():
    (row,) = (row for row in settings(whole) if row.name == "words")
    assert len(row.default) > LONGEST >= len(row.short_default)
    kept, ellipsis = row.short_default.rsplit(" ", 1)
    assert ellipsis == "…"
    assert row.default.startswith(f"{kept} ")
    (line,) = (line for line in reference(whole).splitlines() if line.startswith("words"))
    assert line.endswith(f"{row.short_default}  the words.")
    (short,) = settings(Part)
    assert short.short_default == short.default == "1"


def test_a_meaning_names_values_as_a_settings_file_does():
    row = next(settings(whole))
    assert row.default == "null"
    assert row.meaning == "the part. null takes no part; None of the others is true."


def test_a_section_for_an_optional_dataclass_is_told_setting_by_setting():
    rows = list(settings(whole, "attack", {"part": {"size": 3}}))
    assert [(row.name, row.default) for row in rows[:1]] == [("attack.part.size", "3")]
    assert rows[0].meaning == "the size."
