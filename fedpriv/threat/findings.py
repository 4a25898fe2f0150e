"""What the attacks that have a driver of their own share in writing their findings."""

from __future__ import annotations

import dataclasses
from typing import Any

from fedpriv.runtime.run_folder import RunFolder
from fedpriv.threat.results import FINDINGS


def cleared(folder: RunFolder, name: str) -> str:
    """Returns the place of an attack's findings in the run folder, empty now."""
    place = f"{FINDINGS}/{name}"
    folder.remove(place)
    return place


def settings_of(attack_run: Any) -> dict[str, Any]:
    """Returns the settings of an attack, a dataclass, for the log of the run folder."""
    names = [field.name for field in dataclasses.fields(attack_run)]
    return {name: repr(getattr(attack_run, name)) for name in names}
