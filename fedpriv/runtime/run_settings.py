"""Settings as the text of a config.yaml, which somebody else may have written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml


def settings_from(text: str) -> dict[str, Any]:
    """Returns the settings that a config.yaml holds.

    Raises:
        ValueError: if it is no YAML mapping.
    """
    try:
        loaded = yaml.load(text, _Untrusting)  # noqa: S506 - a SafeLoader
    except yaml.YAMLError as error:
        raise ValueError(f"is not valid YAML: {' '.join(str(error).split())}") from error
    except RecursionError as error:
        raise ValueError("is nested too deeply") from error
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


class _Untrusting(yaml.SafeLoader):
    """Reads what `_Plain` wrote: a few lines of aliases could stand for gigabytes."""

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not read")
        self.depth += 1
        if self.depth > 100:
            raise yaml.YAMLError("is nested too deeply")
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


class _Plain(yaml.SafeDumper):
    """Writes what occurs twice twice."""

    def ignore_aliases(self, data: Any) -> bool:
        return True
