"""Reads JSON that may be broken, and shows its values in error messages."""

from __future__ import annotations

import json
import reprlib
from pathlib import Path
from typing import Any

from fedpriv.data.document import DataError, check_file


def read_json(path: Path) -> Any:
    """Returns the content of a JSON file.

    Raises:
        DataError: if the file is missing, not a regular file, not text, not JSON (with the line),
            nested too deeply, or holds a number too long for Python to read.
    """
    check_file(path)
    try:
        text = path.read_bytes()
    except OSError as error:
        raise DataError(path, f"cannot be read: {error}") from error
    return parse_json(path, text)


def parse_json(path: Path, text: str | bytes, line: int | None = None) -> Any:
    """Returns the content of JSON text.

    Args:
        path: the file that it stands in, for errors.
        text: bytes are UTF-8.
        line: of the file, if the text is one of its lines.

    Raises:
        DataError: as `read_json`.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise DataError(path, f"not JSON: {error.msg}", line or error.lineno) from error
    except RecursionError as error:
        raise DataError(path, "not read: its values are nested too deeply", line) from error
    except ValueError as error:  # not text, or a number too long
        raise DataError(path, f"cannot be read: {error}", line) from error


LONGEST = 400
"""Characters of a value in an error message."""


def shown(value: object) -> str:
    """Returns the ``repr`` of a value for an error message, shortened if long, wide or deep."""
    try:
        text = _SHORT.repr(value)
    except ValueError:  # a whole number of more digits than Python prints
        return f"a {type(value).__name__} too long to show"
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 80
_SHORT.maxlevel = 3  # six levels of six values each are 46,656
