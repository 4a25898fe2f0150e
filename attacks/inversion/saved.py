"""The state of an inversion on disk: tensors and JSON, no pickle."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from fedpriv.runtime.run_folder import RunFolder

_NOTES, _TENSOR, _INTEGERS = "notes", "tensor:", "integers:"


def write(path: Path, state: Mapping[str, Any]) -> None:
    """Writes a state, whole or not at all.

    Args:
        path: of the file.
        state: dicts with texts or integers as keys, lists, tensors, numbers, texts, None.
    """
    tensors: dict[str, Tensor] = {}
    notes = json.dumps(_plain(state, tensors))
    RunFolder.at(path.parent).write(path.name, save(tensors, {_NOTES: notes}))


def read(path: Path) -> Any:
    """Returns the state that was written.

    Raises:
        ValueError: if the file is not whole, or none of ours.
    """
    try:
        with safe_open(path, framework="pt") as file:
            notes = json.loads((file.metadata() or {})[_NOTES])
            # Cloned into torch's own memory: where a tensor begins may decide how a sum is rounded.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
            return _whole(notes, tensors)
    except (SafetensorError, KeyError, json.JSONDecodeError, OSError) as error:
        raise ValueError(
            f"{path}: cannot be read as the state of an inversion ({error}); delete it to start "
            "again"
        ) from error


def _plain(value: Any, tensors: dict[str, Tensor]) -> Any:
    """Returns a value as JSON, its tensors put aside."""
    match value:
        case Tensor():
            name = f"{_TENSOR}{len(tensors)}"
            # A copy: safetensors takes no two names for one memory.
            tensors[name] = value.detach().cpu().clone().contiguous()
            return name
        case Mapping():
            mark = _INTEGERS if any(isinstance(key, int) for key in value) else ""
            return {f"{mark}{key}": _plain(item, tensors) for key, item in value.items()}
        case Sequence() if not isinstance(value, str):
            return [_plain(item, tensors) for item in value]
    return value


def _whole(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    match value:
        case dict():
            return {_key(name): _whole(item, tensors) for name, item in value.items()}
        case list():
            return [_whole(item, tensors) for item in value]
        case str() if value.startswith(_TENSOR):
            return tensors[value]
    return value


def _key(name: str) -> str | int:
    return int(name.removeprefix(_INTEGERS)) if name.startswith(_INTEGERS) else name
