"""Settings as the text of a config.yaml, which somebody else may have written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Ten times as fast where libyaml is there, as in all wheels."""

DEEPEST = 100
"""Settings in one another."""


def settings_from(text: str) -> dict[str, Any]:
    """Returns the settings that a config.yaml holds.

    Raises:
        ValueError: if it is no YAML mapping.
    """
    depth = 0
    try:
        for event in yaml.parse(text, LOADER):
            # A few lines of aliases could stand for gigabytes, and none is ever written.
            if isinstance(event, yaml.AliasEvent):
                raise yaml.YAMLError("aliases are not read")
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > DEEPEST:
                raise yaml.YAMLError("is nested too deeply")
        loaded = yaml.load(text, LOADER)  # noqa: S506 - a SafeLoader
    except yaml.YAMLError as error:
        raise ValueError(f"is not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(loaded, dict) or not all(isinstance(key, str) for key in loaded):
        raise ValueError("expected settings, one `name: value` a line")
    return loaded


def settings_text(
    config: Mapping[str, Any], indent: int | None = None, width: int | None = None
) -> str:
    """Returns settings as the text of a config.yaml."""
    return yaml.dump(
        dict(config), Dumper=_Plain, sort_keys=False, allow_unicode=True, indent=indent, width=width
    )


class _Plain(yaml.SafeDumper):
    """Writes what occurs twice twice."""

    def ignore_aliases(self, data: Any) -> bool:
        return True
