"""Warns of every built page that would load something from the network when it is read."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

LOADED = re.compile(
    r"""<(?:script|link|img|iframe|source|video|audio|embed|object)\b[^>]*?
        \s(?:src|srcset|href|data|poster)\s*=\s*["']?((?:https?:)?//[^\s"'>]+)
      | url\(\s*["']?((?:https?:)?//[^\s"')]+)
      | @import\s+["']((?:https?:)?//[^"']+)""",
    re.VERBOSE | re.IGNORECASE,
)


def loads(text: str) -> list[str]:
    """Returns the addresses from which a page or a style sheet loads scripts, styles or media."""
    return [next(filter(None, groups)) for groups in LOADED.findall(text)]


def check(app: Sphinx, error: Exception | None) -> None:
    """Warns of each address, once the pages are written."""
    # Sphinx counts the warnings of its own loggers, which all lie under this one.
    logger = logging.getLogger(f"sphinx.{__name__}")
    for path in sorted(Path(app.outdir).rglob("*.*")):
        if path.suffix in (".html", ".css"):
            for address in loads(path.read_text("utf-8")):
                logger.warning("%s would load %s", path.name, address)


def setup(app: Sphinx) -> dict[str, bool]:
    """Registers the check with Sphinx."""
    app.connect("build-finished", check)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
