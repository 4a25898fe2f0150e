"""Values of overrides: written in Hydra's grammar, and read of settings of a study."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

_NOT_TEXT = ("null", "true", "false", "nan", "inf")


def write(value: Any) -> str:
    r"""Returns a value in the syntax of overrides.

    >>> write({"epochs": 2, "path": "it's, here"}), write([0.1, None, True])
    ("{epochs:2,path:'it\\'s, here'}", '[0.1,null,true]')
    """
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{write(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return f"[{','.join(map(write, value))}]"
    text = str(value)
    if re.fullmatch(r"[A-Za-z_][\w./-]*", text, re.ASCII) and text.lower() not in _NOT_TEXT:
        return text  # as a person writes it, and as choices of config groups must be written
    # A backslash counts as one only before a quote or at the end.
    quoted = re.sub(r"(\\*)('|$)", lambda one: one[1] * 2 + ("\\'" if one[2] else ""), text)
    return f"'{quoted}'"


def read(text: str) -> Any:
    """Returns the value that stands behind the = of a setting of a study, which YAML reads.

    Raises:
        ValueError: if it cannot be read.
    """
    try:
        return OmegaConf.to_container(OmegaConf.from_dotlist([f"x={text}"]))["x"]  # type: ignore[index,call-overload]
    except (OmegaConfBaseException, yaml.YAMLError) as error:
        raise ValueError(" ".join(str(error).split())) from error
