"""All uses of Flower's internals, each with a contract test in test_flwr_contract.py.

Flower is released monthly and keeps only its public names stable. No other file of fedpriv may
import from ``flwr.supercore`` or ``flwr.simulation``, or use a private attribute.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import flwr.supercore.telemetry as telemetry
import numpy as np
from flwr.app import Message, RecordDict
from flwr.app.message.array import Array
from flwr.supercore.run import Run as Run  # re-exported
from flwr.supercore.task_identity import TaskIdentity
from numpy.typing import NDArray
from torch import Tensor

from fedpriv.runtime.vectors import as_tensor, on_host

# If Flower was imported before fedpriv, its telemetry is on.
telemetry.FLWR_TELEMETRY_ENABLED = "0"

SERVER_NODE_ID = 1
NUMPY_STYPE = "numpy.ndarray"


class VectorArray(Array):
    """A Flower `Array` over an ndarray that is serialised only on demand.

    Flower's own `Array` serialises at construction (`np.save`), which costs two copies of the
    model for each client. In one process this one costs none, and Ray moves it through shared
    memory. Flower's engines, which read `data`, get the same bytes as from `Array(ndarray)`.
    """

    # Flower finds the class of a serialised object by this name.
    __qualname__ = "Array"

    def __init__(self, vector: Tensor | NDArray[Any]) -> None:
        vector = vector if isinstance(vector, Tensor) else as_tensor(vector)
        self.__dict__["vector"] = vector  # on any device
        self.dtype = str(vector.dtype).removeprefix("torch.")
        self.shape = tuple(vector.shape)
        self.stype = NUMPY_STYPE

    @property
    def data(self) -> bytes:  # type: ignore[override]
        """The bytes of the array in NumPy's own format."""
        buffer = io.BytesIO()
        np.save(buffer, self.numpy(), allow_pickle=False)
        return buffer.getvalue()

    def numpy(self) -> NDArray[Any]:
        """Returns a read-only view of the array, which others may hold, too."""
        return on_host(self.__dict__["vector"])

    def tensor(self) -> Tensor:
        """Returns the tensor itself, where it lies; others may hold it, too."""
        vector: Tensor = self.__dict__["vector"]
        return vector

    def __reduce__(self) -> tuple[Any, ...]:
        return _vector_array, (self.numpy(),)


def _vector_array(vector: NDArray[Any]) -> VectorArray:
    return VectorArray(vector)


class CopiedArray(VectorArray):
    """A `VectorArray` whose `numpy()` is a copy that may be changed, as of Flower's own `Array`."""

    __qualname__ = "Array"

    def numpy(self) -> NDArray[Any]:
        """Returns a copy of the array."""
        return super().numpy().copy()


def enter_run(run_id: int) -> Run:
    """Makes this process the server of a run, without which `Message(...)` refuses to be built."""
    TaskIdentity.task_id = 1
    TaskIdentity.run_id = run_id
    TaskIdentity.node_id = SERVER_NODE_ID
    return Run.create_empty(run_id)


@contextmanager
def as_server() -> Iterator[None]:
    """Lets messages be built before there is a grid, and leaves no trace."""
    names = ("_task_id", "_run_id", "_node_id")
    before = {name: getattr(TaskIdentity, name) for name in names}
    enter_run(run_id=1)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(TaskIdentity, name, value)


def set_message_id(message: Message, message_id: str) -> None:
    """Gives a message the id that Flower's SuperLink would have given it."""
    message.metadata.__dict__["_message_id"] = message_id


def readdressed(content: RecordDict, message: Message) -> Message:
    """Returns a message with another content and the metadata of `message`."""
    return Message(content, metadata=message.metadata)  # type: ignore[call-overload, no-any-return]


def timeless(reply: Message, message: Message) -> Message:
    """Gives a reply the times of the message that it answers.

    Flower notes to the microsecond when a reply was made and how long it may live. Together they
    tell how long the client was at work, which depends on its data.
    """
    sent = message.metadata
    reply.metadata.__dict__.update(_created_at=sent.created_at, _ttl=sent.ttl)
    return reply


def run_simulation(**settings: Any) -> None:
    """Runs apps on Flower's simulation engine, in this process; a way that Flower deprecates."""
    from flwr import simulation  # which imports Ray

    simulation.run_simulation(**settings)
