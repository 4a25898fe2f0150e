"""The state of an inversion on disk: tensors and JSON, no pickle."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from fedpriv.runtime.run_folder import RunFolder

_NOTES, _TENSOR = "notes", "/tensor"


def write(path: Path, state: Mapping[str, Any]) -> None:
    """Writes a state, whole or not at all.

    Args:
        path: of the file.
        state: dicts with names or integers as keys, lists, tensors, numbers, texts, None.
    """
    tensors: dict[str, Tensor] = {}

    def put_aside(tensor: Tensor) -> dict[str, str]:
        name = str(len(tensors))
        # A copy: safetensors takes no two names for one memory.
        tensors[name] = tensor.detach().cpu().clone().contiguous()
        return {_TENSOR: name}

    notes = json.dumps(state, default=put_aside)
    RunFolder.made(path.parent).write(path.name, save(tensors, {_NOTES: notes}))


def read(path: Path) -> Any:
    """Returns the state that was written.

    Raises:
        ValueError: if the file is not whole, or none of ours.
    """
    try:
        with safe_open(path, framework="pt") as file:

            def whole(found: dict[str, Any]) -> Any:
                if _TENSOR in found:
                    # Cloned into torch's own memory: where a tensor begins may decide how a sum is
                    # rounded.
                    return file.get_tensor(found[_TENSOR]).clone()
                # JSON has no integers as keys.
                return {int(k) if k.isdecimal() else k: value for k, value in found.items()}

            return json.loads((file.metadata() or {})[_NOTES], object_hook=whole)
    except (SafetensorError, KeyError, json.JSONDecodeError, OSError) as error:
        raise ValueError(
            f"{path}: cannot be read as the state of an inversion ({error}); delete it to start "
            "again"
        ) from error
