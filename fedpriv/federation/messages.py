"""The messages between server and clients: tensors as Flower records, names of records, sums.

The server sends the global vectors and an `Instruction`. A client sends an update and the metrics
that the instruction asks for, and nothing else. If a strategy needs only the sum of the updates
(`Instruction.summed`), the grid answers with sums of chunks instead of single updates.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeVar

import torch
from flwr.app import (
    ArrayRecord,
    ConfigRecord,
    Message,
    MetricRecord,
    MetricRecordValues,
    RecordDict,
)
from flwr.serverapp import Grid
from numpy.typing import NDArray

from fedpriv.federation.grids._flwr import VectorArray, readdressed
from fedpriv.runtime.vectors import Vector, Vectors, as_tensor, pieces

PARAMETERS = "parameters"
INSTRUCTION = "instruction"
UPDATE = "update"
METRICS = "metrics"
FAULT = "fault"
"""The record's name, in a message to a client that is to fail."""

CLIENT = "client"
NUM_EXAMPLES = "num-examples"

T = TypeVar("T")


def node_ids(grid: Grid) -> Sequence[int]:
    """Returns the node ids in the order of the clients' numbers.

    Our own grids number them in a row. Such a range stays one: in every round, a list of a million
    clients would take longer than a cohort of a hundred.
    """
    nodes = grid.get_node_ids()
    return nodes if isinstance(nodes, range) else list(nodes)


@dataclass(frozen=True)
class Instruction:
    """The server's request to a client in one message.

    Attributes:
        round: from 1.
        attempt: from 0. Above 0 the round is repeated after an interruption, with other noise.
        summed: the strategy needs the sum of the updates only.
        weight: the metric that weights an update in the sum; empty for equal weights.
        buffers: the model's buffers travel with the parameters, both ways.
        metrics: names of the numbers that the client may send with the update.
        settings: of this strategy, for its client half.
        model: digest of the parameters that are sent; empty where the strategy is not private.
    """

    round: int
    attempt: int = 0
    summed: bool = True
    weight: str = ""
    buffers: bool = False
    metrics: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    model: str = ""

    def purpose(self, what: str, key: str) -> str:
        """Returns the purpose of random numbers for the answer to this instruction.

        Args:
            what: their use, such as "privacy noise".
            key: of a private run, see `fedpriv.privacy.message_key`; empty in other runs.
        """
        now = f"{what}, attempt {self.attempt}"
        return f"{now}, message {key} {self.model}" if key else now

    def to_record(self) -> ConfigRecord:
        """Returns the instruction as a Flower record."""
        fixed = {name: getattr(self, name) for name in _FIXED}
        extra = {f"{_OWN}{key}": value for key, value in self.settings.items()}
        return ConfigRecord({**fixed, "metrics": list(self.metrics), **extra})

    @classmethod
    def from_record(cls, record: ConfigRecord) -> Instruction:
        """Reads the instruction that `to_record` wrote."""
        values: dict[str, Any] = dict(record)
        settings = {k.removeprefix(_OWN): v for k, v in values.items() if k.startswith(_OWN)}
        fixed = {name: values[name] for name in _FIXED}
        return cls(**fixed, metrics=tuple(values["metrics"]), settings=settings)


_FIXED = ("round", "attempt", "summed", "weight", "buffers", "model")
_OWN = "own-"


def to_array_record(vectors: Mapping[str, Vector | NDArray[Any]]) -> ArrayRecord:
    """Returns a record over the same memory, with the same dtypes, shapes and bits."""
    record = ArrayRecord()
    for name, vector in vectors.items():
        record[name] = VectorArray(vector)  # ArrayRecord(dict) would serialise each into bytes
    return record


def to_vectors(record: ArrayRecord) -> Vectors:
    """Returns the arrays of a record, without a copy where `to_array_record` made it."""
    return {
        name: array.tensor() if isinstance(array, VectorArray) else as_tensor(array.numpy())
        for name, array in record.items()
    }


def instruct(parameters: ArrayRecord, instruction: Instruction) -> RecordDict:
    """Returns the content of a message to a client."""
    return RecordDict({PARAMETERS: parameters, INSTRUCTION: instruction.to_record()})


def instruction_of(message: Message) -> Instruction | None:
    """Returns the instruction in a message, or None if it carries none (stock Flower)."""
    record = message.content.get(INSTRUCTION)
    return Instruction.from_record(record) if isinstance(record, ConfigRecord) else None


def round_of(message: Message) -> int:
    """Returns the round of a message, 0 where it names none (a stock Flower strategy)."""
    instruction = instruction_of(message)
    return instruction.round if instruction else 0


def answer(
    update: Vectors, metrics: Mapping[str, float | int], instruction: Instruction
) -> RecordDict:
    """Returns the content of a client's reply: the update and the requested metrics only.

    Raises:
        ValueError: if the client has not computed a metric that the strategy asks for.
    """
    missing = [name for name in instruction.metrics if name not in metrics]
    if missing:
        raise ValueError(f"the strategy asks for {missing}, the client computed {sorted(metrics)}")
    asked: dict[str, MetricRecordValues] = {name: metrics[name] for name in instruction.metrics}
    return RecordDict({UPDATE: to_array_record(update), METRICS: MetricRecord(asked)})


def is_finite(vector: Vector) -> bool:
    """Returns whether all numbers are finite, in one pass; `isfinite` takes 30 times as long."""
    if not vector.numel():
        return True
    return bool(torch.stack(torch.aminmax(vector.detach())).isfinite().all())  # NaN is passed on


class RunningSum:
    """Σ weight · update, added in the order of the calls, in memory that does not grow.

    Multiplication and addition round twice. A fused multiply-add would give other bits where a
    vector is cut differently, by another thread count or instruction set. Integers, and the ring
    elements of secure aggregation, add exactly and wrap around at their width.
    """

    def __init__(self) -> None:
        self.clients: list[int] = []
        self.metrics: dict[str, list[float | int]] = {}
        self.vectors: Vectors = {}

    def add(self, update: Vectors, weight: float | int = 1) -> None:
        """Adds one update. With weight 1 no product is formed."""
        for name, vector in update.items():
            if not vector.is_floating_point() and not isinstance(weight, int):
                raise ValueError(f"a vector of {vector.dtype} cannot be weighted by {weight!r}")
            if name not in self.vectors:
                self.vectors[name] = vector * weight if weight != 1 else vector.clone()
            elif weight != 1:
                for piece, here in pieces(vector, self.vectors[name]):
                    here.add_(piece * weight)
            else:
                self.vectors[name].add_(vector)

    def note(self, clients: Iterable[int], metrics: Mapping[str, Iterable[float | int]]) -> None:
        """Adds the numbers and the metrics of the clients in the sum."""
        self.clients.extend(clients)
        for name, values in metrics.items():
            self.metrics.setdefault(name, []).extend(values)


class Chunk:
    """Collects the replies of one chunk of clients in the form that the strategy asked for.

    Args:
        sent: any message of the chunk. Its instruction says whether single updates are needed or
            only their sum.
    """

    def __init__(self, sent: Message) -> None:
        instruction = instruction_of(sent)
        self._weight = instruction.weight if instruction else ""
        self._sum = RunningSum() if instruction and instruction.summed else None
        self._first: Message | None = None
        self._single: list[Message] = []

    def add(self, client: int, reply: Message | None) -> None:
        """Adds a reply, if there is one. The calls must follow the order of the cohort."""
        if reply is None:
            return
        if reply.has_error() or self._sum is None:
            self._single.append(reply)
            return
        metrics = dict(reply.content.metric_records[METRICS])
        weight = metrics[self._weight] if self._weight else 1
        if isinstance(weight, list):
            raise ValueError(f"the weight {self._weight!r} must be one number, got {weight}")
        self._sum.add(to_vectors(reply.content.array_records[UPDATE]), weight)
        self._sum.note([client], {name: _as_list(value) for name, value in metrics.items()})
        self._first = self._first or readdressed(RecordDict(), reply)

    def replies(self) -> list[Message]:
        """Returns the sum of all answers, if there are any, then the single replies."""
        if self._sum is None or self._first is None:
            return self._single
        # The sum has the metadata of the first reply in it.
        return [readdressed(sum_record(self._sum), self._first), *self._single]


def sum_record(total: RunningSum) -> RecordDict:
    """Returns a running sum as the content of a reply."""
    metrics: dict[str, Any] = {CLIENT: total.clients, **total.metrics}
    return RecordDict({UPDATE: to_array_record(total.vectors), METRICS: MetricRecord(metrics)})


def sum_of(replies: Iterable[Message]) -> RunningSum:
    """Adds up the chunk sums of a round as they arrive, without failed replies."""
    total = RunningSum()
    for reply in replies:
        add_sum(total, reply)
        del reply  # or it would be there while the next clients train
    return total


def add_sum(total: RunningSum, reply: Message) -> None:
    """Adds a chunk's sum to a running sum. A failed reply adds nothing."""
    if reply.has_error():
        return
    metrics = {name: _as_list(v) for name, v in reply.content.metric_records[METRICS].items()}
    total.add(to_vectors(reply.content.array_records[UPDATE]))
    total.note([int(client) for client in metrics.pop(CLIENT)], metrics)


def answered_by(reply: Message) -> list[int | None]:
    """Returns the clients behind a reply by number; [None] for a single reply without a number."""
    if reply.has_error():
        return []
    metrics = reply.content.metric_records.get(METRICS)
    clients = metrics.get(CLIENT) if metrics is not None else None
    return [int(client) for client in clients] if isinstance(clients, list) else [None]


def chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Cuts the items into runs of `size`; the last may be shorter."""
    iterator = iter(items)
    while chunk := list(islice(iterator, size)):
        yield chunk


def _as_list(value: Any) -> list[float | int]:
    return list(value) if isinstance(value, list) else [value]
