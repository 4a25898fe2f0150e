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
        return json.loads(path.read_bytes())
    except json.JSONDecodeError as error:
        raise DataError(path, f"not JSON: {error.msg}", error.lineno) from error
    except RecursionError as error:
        raise DataError(path, "not read: its values are nested too deeply") from error
    except (OSError, ValueError) as error:  # ValueError: not text, or a number too long
        raise DataError(path, f"cannot be read: {error}") from error


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
