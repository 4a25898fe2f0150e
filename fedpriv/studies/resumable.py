"""What is done is found again by its settings, so that repeating a command goes on with it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedpriv.runtime import run_lock
from fedpriv.runtime.run_folder import RunFolder


def digest(settings: Any) -> str:
    """Returns a short name, the same for the same settings."""
    text = json.dumps(settings, sort_keys=True, default=repr)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def newest(place: Path, fits: Callable[[RunFolder], bool]) -> RunFolder | None:
    """Returns the newest folder below a place that fits and that nobody writes."""
    for path in sorted(place.glob("*/"), reverse=True):
        folder = RunFolder(path)
        if fits(folder) and not run_lock.holder(path):
            return folder
    return None
