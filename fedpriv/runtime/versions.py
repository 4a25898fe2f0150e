"""The versions that a result depends on."""

from __future__ import annotations

import functools
import importlib.metadata
import platform

PACKAGES = ("fedpriv", "torch", "transformers", "peft", "flwr", "ray", "numpy")


@functools.cache
def version(package: str) -> str:
    """Returns the installed version of a package; finding it takes milliseconds."""
    return importlib.metadata.version(package)


def versions() -> dict[str, str]:
    """Returns the versions of Python and of the packages that compute."""
    found = {name: version(name) for name in PACKAGES}
    return {"python": platform.python_version(), **found}
