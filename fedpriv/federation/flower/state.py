"""What a strategy of Flower's remembers between rounds, as arrays that a checkpoint can hold.

Flower's strategies keep moments, momentum and the last model in plain attributes. All attributes
that consist of arrays, array records, numbers, texts, lists and dictionaries are saved; others,
such as functions, hold no state or cannot be saved.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord
from numpy.typing import NDArray

ATTRIBUTES = "attributes"
"""The entry with the structure of all attributes, as JSON; the other entries are their arrays."""


def to_arrays(attributes: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Returns copies of the attributes that can be saved, as arrays by name.

    Args:
        attributes: of the strategy, by name.
    """
    arrays: dict[str, NDArray[Any]] = {}
    structure = {n: _encode(v, n, arrays) for n, v in attributes.items() if can_be_saved(v)}
    text = json.dumps(structure).encode()
    return {**arrays, ATTRIBUTES: np.frombuffer(text, np.uint8).copy()}


def to_attributes(arrays: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """Returns copies of the attributes that `to_arrays` saved."""
    structure: dict[str, Any] = json.loads(arrays[ATTRIBUTES].tobytes())
    return {name: _decode(node, arrays) for name, node in structure.items()}


def can_be_saved(value: object) -> bool:
    """Whether a value consists of arrays, numbers, texts, lists and dictionaries."""
    if isinstance(value, dict | ArrayRecord):
        return all(isinstance(k, str) and can_be_saved(v) for k, v in value.items())
    if isinstance(value, list | tuple):
        return all(map(can_be_saved, value))
    if isinstance(value, np.ndarray | np.generic):
        return value.dtype.kind in "fiub"
    return value is None or isinstance(value, bool | int | float | str | Array)


def _encode(value: Any, name: str, arrays: dict[str, NDArray[Any]]) -> Any:
    """Returns the JSON of a value; its arrays go into `arrays` under names that begin with `name`.

    Numbers, texts and None stand for themselves. Everything else is an object of one entry, whose
    key tells its kind.
    """
    if isinstance(value, ArrayRecord):
        entries = {k: v.numpy() for k, v in value.items()}
        return {"record": {k: _encode(v, f"{name}/{k}", arrays) for k, v in entries.items()}}
    if isinstance(value, dict):
        return {"dict": {k: _encode(v, f"{name}/{k}", arrays) for k, v in value.items()}}
    if isinstance(value, list | tuple):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [_encode(v, f"{name}/{i}", arrays) for i, v in enumerate(value)]}
    if isinstance(value, Array | np.ndarray | np.generic):
        plain = value.numpy() if isinstance(value, Array) else value
        arrays[name] = np.array(plain, order="C")
        kind = {Array: "flower", np.ndarray: "array"}.get(type(value), "number")
        return {kind: name}
    return value


def _decode(node: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    if not isinstance(node, dict):
        return node
    ((kind, inner),) = node.items()
    if kind == "record":
        return ArrayRecord({k: Array(_decode(v, arrays)) for k, v in inner.items()})
    if kind == "dict":
        return {k: _decode(v, arrays) for k, v in inner.items()}
    if kind in ("list", "tuple"):
        values = [_decode(v, arrays) for v in inner]
        return values if kind == "list" else tuple(values)
    array = arrays[inner].copy()
    if kind == "number":
        return array[()]
    return Array(array) if kind == "flower" else array
