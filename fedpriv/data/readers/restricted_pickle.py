"""Unpickles NumPy's object arrays without running the functions that a pickle names.

A pickle is a program: it may name any function and call it. Here it can name no function of Python
or NumPy. The few names that an array of plain records needs stand for objects of this module, which
hold what they are given and check it on access. NumPy's own objects are not used, since a forged
dtype makes `ndarray.__setstate__` take bytes for addresses.

A pickle may still take all memory or time: call this in a process that has limits
(`fedpriv.data.readers.pfl_arrow`).
"""

from __future__ import annotations

import math
import pickle
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from fedpriv.data.document import DataError
from fedpriv.data.reading import shown

Refused = pickle.UnpicklingError


def load_objects(path: Path, guard: AbstractContextManager[Any] | None = None) -> Sequence[Any]:
    """Returns the items of a one-dimensional ``.npy`` array of objects.

    Items are plain values (None, bool, int, float, str, bytes, list, tuple, dict, set, nested as
    in the file) and `Array`. Values may hold themselves: walk them by a schema, not by recursion.

    Args:
        path: of the file.
        guard: entered while the pickle is read.

    Raises:
        DataError: if the file is not such an array, or its pickle names anything else.
    """
    try:
        with path.open("rb") as file:
            length = _length(file)
            with guard or nullcontext():
                found = _Restricted(file).load()
        if not isinstance(found, Array):
            raise ValueError(f"the file holds {shown(found)}; expected an array")
        items = found.items()
        if found.shape != (length,):
            raise ValueError(f"its header announces {length} objects, but it holds {len(items)}")
    except MemoryError as error:
        raise DataError(path, "takes more memory than its size explains; not read") from error
    except Exception as error:  # a broken pickle raises nearly anything
        expected = isinstance(error, pickle.UnpicklingError | ValueError)
        why = str(error) if expected else repr(error)
        raise DataError(path, f"not a safe array of records: {why}") from error
    return items


class Array:
    """An array as a pickle describes it; nothing is checked before `items` or `numbers`."""

    __slots__ = ("_state",)

    def __init__(self) -> None:
        self._state: Any = None

    def __setstate__(self, state: Any) -> None:
        """Keeps the state, as ``ndarray.__setstate__`` would be given it."""
        self._state = state

    def items(self) -> list[Any]:
        """Returns the items of an array of objects, flat.

        Raises:
            ValueError: if this is not an array of objects, or does not match its shape.
        """
        shape, dtype, _, data = self._parts()
        if dtype.code != "O" or not isinstance(data, list) or math.prod(shape) != len(data):
            raise ValueError("expected an array of objects, with as many items as its shape says")
        return data

    def numbers(self) -> NDArray[Any]:
        """Returns the array, of its shape, if it is of numbers.

        Raises:
            ValueError: if this is not an array of numbers, or does not match its shape.
        """
        shape, dtype, fortran, data = self._parts()
        if dtype.code == "O":
            items = self.items()
            if not all(type(item) in (int, float) for item in items):
                raise ValueError("expected an array of numbers, found one of objects")
            return np.array(items, dtype=np.float64).reshape(shape)
        kind = dtype.numpy()
        if kind.kind not in "fiub" or not isinstance(data, bytes):
            raise ValueError(f"expected an array of numbers, found one of {kind}")
        if math.prod(shape) * kind.itemsize != len(data):
            raise ValueError(f"an array of shape {shape} has {len(data)} bytes of {kind}")
        return np.frombuffer(data, kind).reshape(shape, order="F" if fortran else "C")

    @property
    def of_objects(self) -> bool:
        """Whether this is an array of objects, with `items`."""
        return self._parts()[1].code == "O"

    @property
    def shape(self) -> tuple[int, ...]:
        """The array's shape."""
        return self._parts()[0]

    def _parts(self) -> tuple[tuple[int, ...], _Dtype, bool, Any]:
        if not isinstance(self._state, tuple) or len(self._state) != 5:
            raise ValueError("an array without the parts of one")
        _, shape, dtype, fortran, data = self._state
        whole = isinstance(shape, tuple) and all(type(side) is int and side >= 0 for side in shape)
        if not whole or len(shape) > 8 or not isinstance(dtype, _Dtype):
            raise ValueError(f"an array of shape {shown(shape)} and dtype {shown(dtype)}")
        return shape, dtype, bool(fortran), data


class _Dtype:
    """A dtype as a pickle describes it: a kind and size such as "f8", and a byte order."""

    __slots__ = ("code", "order")

    def __init__(self, code: object = "", *_: object) -> None:
        if not isinstance(code, str) or not re.fullmatch(r"O8?|[fiubUS]\d{1,6}", code, re.ASCII):
            raise Refused(f"a dtype {shown(code)}")
        self.code, self.order = code[:1] if code[0] == "O" else code, "="

    def __setstate__(self, state: Any) -> None:
        plain = isinstance(state, tuple) and len(state) >= 5
        if not plain or state[1] not in ("<", ">", "=", "|") or state[2:5] != (None,) * 3:
            raise Refused("a dtype with fields or parts")
        self.order = state[1]

    def numpy(self) -> np.dtype[Any]:
        try:
            return np.dtype(self.order + self.code)
        except TypeError:
            raise ValueError(f"there is no dtype {self.order}{self.code}") from None


class _Name:
    """Stands for a name in a pickle: it can be passed on, and called if it names a function.

    An object rather than a function or class, because a pickle can set attributes of those.
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __setstate__(self, _: object) -> NoReturn:
        raise Refused(f"an attempt to change {self.name}")

    def __call__(self, *arguments: Any) -> Any:
        if self.name == "numpy._reconstruct" and arguments[:1] == (_NDARRAY,):
            return Array()
        if self.name == "numpy.dtype":
            return _Dtype(*arguments)
        if self.name == "numpy.scalar":
            return _scalar(*arguments)
        if self.name == "collections.OrderedDict":
            return dict(*arguments)
        # Bytes as pickles of protocol 2 and below spell them: a text and its encoding.
        if self.name == "_codecs.encode":
            text, encoding = arguments
            if not isinstance(text, str) or encoding != "latin1":
                raise Refused("bytes in an encoding other than latin1")
            return text.encode("latin1")
        raise Refused(f"a call of {self.name} with {shown(arguments)}")


def _scalar(dtype: object, data: object) -> Any:
    """Returns NumPy's scalar as Python's."""
    if not isinstance(dtype, _Dtype) or dtype.code == "O" or not isinstance(data, bytes):
        raise Refused("a scalar that is neither a number nor a text")
    kind = dtype.numpy()
    if kind.itemsize != len(data):
        raise Refused(f"a scalar of {len(data)} bytes, which {kind} has not")
    return np.frombuffer(data, kind)[0].item()


_NDARRAY = _Name("numpy.ndarray")

_ADMITTED = {
    ("numpy", "ndarray"): _NDARRAY,
    ("numpy", "dtype"): _Name("numpy.dtype"),
    ("numpy.core.multiarray", "_reconstruct"): _Name("numpy._reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"): _Name("numpy._reconstruct"),
    ("numpy.core.multiarray", "scalar"): _Name("numpy.scalar"),
    ("numpy._core.multiarray", "scalar"): _Name("numpy.scalar"),
    ("collections", "OrderedDict"): _Name("collections.OrderedDict"),
    ("_codecs", "encode"): _Name("_codecs.encode"),
}


class _Restricted(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """Returns the stand-in of an admitted name; imports nothing."""
        found = _ADMITTED.get((module, name))
        if found is None:
            raise Refused(f"it asks for {shown(f'{module}.{name}')}, which no record needs")
        return found

    def persistent_load(self, _: object) -> NoReturn:
        raise Refused("it refers to objects outside the file")


def _length(file: BinaryIO) -> int:
    """Reads the header of a .npy file up to its pickle; returns how many objects it announces."""
    version = npy.read_magic(file)
    if version == (1, 0):
        shape, _, dtype = npy.read_array_header_1_0(file)
    elif version == (2, 0):
        shape, _, dtype = npy.read_array_header_2_0(file)
    else:
        raise ValueError(f"version {version} of the .npy format; expected (1, 0) or (2, 0)")
    if dtype != np.dtype(object) or len(shape) != 1:
        raise ValueError(
            f"an array of shape {shape} and dtype {dtype}; expected one dimension of objects"
        )
    return int(shape[0])
