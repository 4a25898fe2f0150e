"""The versions that a result depends on."""

from __future__ import annotations

import importlib.metadata
import platform

PACKAGES = ("fedpriv", "torch", "transformers", "peft", "flwr", "ray", "numpy")


def versions() -> dict[str, str]:
    """Returns the versions of Python and of the packages that compute."""
    found = {name: importlib.metadata.version(name) for name in PACKAGES}
    return {"python": platform.python_version(), **found}
