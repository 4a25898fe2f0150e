"""Named tensors: a digest of them, and files of them beside notes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedpriv.runtime.run_folder import RunFolder


def digest(tensors: Mapping[str, Any]) -> str:
    """Returns 128 bits of a hash of named tensors or arrays, as hexadecimal digits."""
    hashed = hashlib.blake2b(digest_size=16)
    for name in sorted(tensors):
        tensor = tensors[name]
        if isinstance(tensor, torch.Tensor):
            hashed.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            array = tensor.contiguous().reshape(-1).view(torch.uint8).numpy()
            hashed.update(array.data)
        else:
            hashed.update(f"{name} {tensor.dtype} {tensor.shape}".encode())
            hashed.update(np.ascontiguousarray(tensor).data)
    return hashed.hexdigest()


def save_tensors(
    folder: RunFolder, name: str, tensors: Mapping[str, Tensor], notes: Mapping[str, Any]
) -> None:
    """Writes tensors and notes as one safetensors file, their order kept in the notes."""
    plain = {key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()}
    folder.save_tensors(f"{name}.safetensors", plain, {**notes, "order": list(tensors)})


def read_tensors(folder: RunFolder, name: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Reads what `save_tensors` wrote: the tensors in their order, and the notes.

    Raises:
        Damaged: if the file is not there, not whole, or not one of ours.
    """
    tensors, notes = folder.tensors(f"{name}.safetensors")
    with folder.making_sense_of(f"{name}.safetensors"):
        return {key: tensors[key] for key in notes.pop("order")}, notes
