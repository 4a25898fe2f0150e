"""What an attack keeps for a later run of itself, under a name for all that it depends on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig

from fedpriv.data.examples import Examples
from fedpriv.models.encoding_cache import code_digest
from fedpriv.runtime.run_files import Damaged
from fedpriv.runtime.run_folder import RunFolder
from fedpriv.runtime.versions import code, versions_of

_TENSOR = "/tensor"


def fingerprint(parts: Mapping[str, Any]) -> str:
    """Returns a name for values, and for the code and the libraries that compute.

    Args:
        parts: what JSON takes, models, examples, tensors and arrays. Anything else stands for
            itself by its `repr`.
    """
    versions = versions_of("numpy", "torch", "transformers")
    whole = {**parts, "code": code(), "versions": versions}
    text = json.dumps(whole, sort_keys=True, default=_plain)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _plain(value: Any) -> Any:
    if isinstance(value, nn.Module):
        # Dropout and the scale of boxes are in no weight, and change what is computed all the same.
        configs = [getattr(module, "config", None) for module in value.modules()]
        settings = [
            one.to_json_string(use_diff=False)
            for one in configs
            if isinstance(one, PreTrainedConfig)
        ]
        return [code_digest(type(value)), settings, dict(value.state_dict())]
    if isinstance(value, Examples):  # each with the page that it points to
        return [dict(value.batch(np.array([row]))) for row in range(len(value))]
    if isinstance(value, Tensor):
        data = value.detach().cpu().flatten().view(torch.uint8).numpy()
    elif isinstance(value, np.ndarray):
        data = np.ascontiguousarray(value)
    else:
        return repr(value)
    return f"{value.dtype}{tuple(value.shape)}{hashlib.sha256(data.data).hexdigest()}"


@dataclass(frozen=True)
class Kept:
    """A state, or lines that are added to, in the scratch folder of an attack.

    Args:
        folder: the scratch folder.
        name: of what is kept, with a fingerprint of what it depends on.
    """

    folder: Path
    name: str

    @classmethod
    def of(cls, folder: Path, purpose: str, **parts: Any) -> Kept:
        """Returns what is kept for a purpose, as far as it depends on the same parts."""
        return cls(folder, f"{purpose}-{fingerprint(parts)}")

    def state(self) -> Any:
        """Returns the state that was written; None where there is none.

        Raises:
            ValueError: if the file is not whole, or none of ours.
        """
        folder, file = RunFolder(self.folder), f"{self.name}.safetensors"
        if not folder.has(file):
            return None
        try:
            tensors, notes = folder.tensors(file)

            def whole(found: dict[str, Any]) -> Any:
                if _TENSOR in found:
                    # Cloned into torch's own memory: where a tensor begins may decide how a sum is
                    # rounded.
                    return tensors[found[_TENSOR]].clone()
                # JSON has no integers as keys.
                return {int(k) if k.isdecimal() else k: value for k, value in found.items()}

            return json.loads(notes["state"], object_hook=whole)
        except (Damaged, KeyError, TypeError, json.JSONDecodeError) as error:
            raise ValueError(
                f"{file} cannot be read as the state of an attack ({error}): delete it to start "
                "again"
            ) from error

    def write(self, state: Any) -> None:
        """Writes a state, whole or not at all.

        Args:
            state: dicts with names or integers as keys, lists, tensors, numbers, texts, None.
        """
        tensors: dict[str, Tensor] = {}

        def put_aside(tensor: Tensor) -> dict[str, str]:
            name = str(len(tensors))
            # A copy: safetensors takes no two names for one memory.
            tensors[name] = tensor.detach().cpu().clone().contiguous()
            return {_TENSOR: name}

        notes = {"state": json.dumps(state, default=put_aside)}
        RunFolder.made(self.folder).save_tensors(f"{self.name}.safetensors", tensors, notes)

    def lines(self) -> list[dict[str, Any]]:
        """Returns what was added; a line that was cut off is taken away."""
        folder, file = RunFolder.made(self.folder), f"{self.name}.jsonl"
        found = folder.read(file) or b""
        whole = found[: found.rfind(b"\n") + 1]
        if whole != found:  # or the next line would be written behind half of one
            folder.write(file, whole)
        return folder.records(file)

    def add(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Adds lines, of what JSON takes."""
        RunFolder.made(self.folder).append(f"{self.name}.jsonl", lines)
