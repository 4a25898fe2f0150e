"""The versions that a result depends on."""

from __future__ import annotations

import functools
import importlib.metadata
import platform

PACKAGES = ("fedpriv", "torch", "transformers", "peft", "flwr", "ray", "numpy")


# It takes milliseconds for each package, and every command of a run asks again.
_version = functools.cache(importlib.metadata.version)


def versions_of(*packages: str) -> dict[str, str]:
    """Returns the versions of installed packages."""
    return {name: _version(name) for name in packages}


def versions() -> dict[str, str]:
    """Returns the versions of Python and of the packages that compute."""
    return {"python": platform.python_version(), **versions_of(*PACKAGES)}
