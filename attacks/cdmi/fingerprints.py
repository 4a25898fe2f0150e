"""Fingerprints of what an attack depends on: they name the files that a later run takes up."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from torch import nn
from transformers import PreTrainedConfig

from fedpriv.data.examples import Examples
from fedpriv.models.encoding_cache import code_digest
from fedpriv.runtime.versions import code, versions_of


def fingerprint(parts: Mapping[str, Any]) -> str:
    """Returns a fingerprint of plain values, and of the code and the libraries that compute."""
    versions = versions_of("numpy", "torch", "transformers")
    whole = {**parts, "code": code(), "versions": versions}
    text = json.dumps(whole, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def of_model(model: Any) -> str:
    """Returns a fingerprint of a model's code, settings and weights.

    Dropout and the scale of boxes are in no weight, and change what is computed all the same.
    """
    digest = hashlib.sha256(code_digest(type(model)).encode())
    for module in cast(nn.Module, model).modules():
        if isinstance(config := getattr(module, "config", None), PreTrainedConfig):
            digest.update(config.to_json_string(use_diff=False).encode())
    for name, tensor in sorted(cast(nn.Module, model).state_dict().items()):
        digest.update(name.encode())
        _add(digest, tensor.cpu().numpy())
    return digest.hexdigest()


def of_rows(examples: Examples, rows: Iterable[int]) -> str:
    """Returns a fingerprint of rows, with the pages that they point to."""
    digest = hashlib.sha256()
    for row in rows:
        for name, column in sorted(examples.batch(np.array([row])).items()):
            digest.update(name.encode())
            _add(digest, column.numpy())
    return digest.hexdigest()


def _add(digest: Any, array: NDArray[Any]) -> None:
    digest.update(f"{array.dtype}{array.shape}".encode())
    digest.update(np.ascontiguousarray(array).data)
