"""Small parts for tests of what is private: models, providers, clients, a watched grid."""

import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
from host_vectors import read, to_vectors
from torch import nn
from toy import OutOfLuck, befall, data

from fedpriv.clients.fl_provider_dp import ProviderUpdates
from fedpriv.data.examples import PROVIDER, Examples
from fedpriv.federation.client import ClientContext, ClientUpdate, WorkerSpec, build_app
from fedpriv.federation.dataset import ArrayData
from fedpriv.federation.grids.base import ClientGrid
from fedpriv.federation.grids.inline import InlineGrid
from fedpriv.federation.loop import Federation
from fedpriv.federation.messages import (
    METRICS,
    UPDATE,
    Instruction,
    instruct,
    instruction_of,
    to_array_record,
)
from fedpriv.federation.settings import Settings
from fedpriv.runtime.run_folder import RunFolder
from fedpriv.runtime.torch_state import seeded_model
from fedpriv.runtime.vectors import ParameterLayout
from fedpriv.training.loops import Optimizer

SEED = 5


class Small(nn.Module):
    """Three classes from four numbers, without dropout: every bit of a gradient is the data's."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))

    def loss(self, batch):
        return nn.functional.cross_entropy(self.layers(batch["x"]), batch["y"])


class Double(Small):
    """The same in double precision: the model's own rounding does not hide the ring's."""

    def __init__(self) -> None:
        super().__init__()
        self.double()

    def loss(self, batch):
        return super().loss({**batch, "x": batch["x"].double()})


class Wide(nn.Module):
    """A hundred thousand weights, enough to tell a noise from one √2 times as large."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(100_000))

    def loss(self, batch):
        return (self.weight[:4] * batch["x"]).sum()


class Nodes(ClientGrid):
    """A grid that knows its clients and serves none of them."""

    def _deliver(self, messages, timeout):
        raise NotImplementedError


def numbers(count, seed=0, providers=None, scale=1.0):
    """Made-up columns; `providers` says whose each example is."""
    rng = np.random.default_rng(seed)
    columns = {
        "x": (scale * rng.normal(size=(count, 4))).astype(np.float32),
        "y": rng.integers(0, 3, count),
    }
    if providers is not None:
        columns[PROVIDER] = np.asarray(providers)
    return columns


def rows_of(*sizes):
    """Returns consecutive rows for clients of these sizes."""
    ends = np.cumsum(sizes)
    return tuple(np.arange(end - size, end) for size, end in zip(sizes, ends, strict=True))


def data_of(*sizes, seed=0, scale=1.0):
    """Clients of these sizes, each client a provider."""
    owners = np.repeat(np.arange(len(sizes)), sizes)
    return ArrayData(numbers(sum(sizes), seed, owners, scale), rows_of(*sizes))


def provider_data(clients, providers, documents=4, seed=0, scale=1.0):
    """So many clients of so many providers each, who issued so many documents each."""
    owners = np.repeat(np.arange(clients * providers), documents)
    sizes = [providers * documents] * clients
    return ArrayData(numbers(sum(sizes), seed, owners, scale), rows_of(*sizes))


def private_data(clients=8):
    """The toy's numbers; every four of a client's in a row are one provider's."""
    plain = data(clients)
    owners = np.concatenate([10 * k + np.arange(len(r)) // 4 for k, r in enumerate(plain.rows)])
    return ArrayData({**plain.train, PROVIDER: owners}, plain.rows, plain.test)


@dataclass(frozen=True)
class FaultyProviders:
    """FL-PROVIDER-DP's client half, except at `faults`: {"round/attempt/client": kind}."""

    action: ClassVar[str] = ProviderUpdates.action

    # Who fails, and how long it takes, changes no message: the noise must stay what it is.
    faults: Mapping[str, str] = field(default_factory=dict, metadata={"message": False})
    pause: float = field(default=0.0, metadata={"message": False})
    inner: ProviderUpdates = field(
        default_factory=lambda: ProviderUpdates(steps=2, optimizer=Optimizer(lr=0.02))
    )

    def train(self, context: ClientContext) -> ClientUpdate:
        time.sleep(self.pause)
        asked = context.instruction
        befall(self.faults.get(f"{asked.round}/{asked.attempt}/{context.client}"), context)
        return self.inner.train(context)


def federation(
    strategy,
    client,
    data,
    model=Small,
    seed=SEED,
    masking=None,
    one_noise=True,
    entropy="seed",
    keep=(),
    **settings,
):
    """A federation in this process; what is not a part of it is a setting.

    With `one_noise`, its noise is the seed's alone, as fedpriv never draws it: so that two runs can
    be compared bit by bit that differ in a setting, such as masking.
    """
    made = Federation(
        model=model,
        data=data,
        strategy=strategy,
        client=client,
        seed=seed,
        masking=masking,
        entropy=entropy,
        keep=keep,
        settings=Settings(**settings),
    )
    if one_noise:
        made.spec = replace(made.spec, key="")
    return made


def instruction(strategy, cohort, clients, round=1, attempt=0, **changes):
    """What the strategy would ask of each of so many clients, but for `changes`."""
    paper = strategy.variant == "paper"
    asked = {
        "round": round,
        "attempt": attempt,
        "summed": False,
        "weight": strategy.weight if paper else "",
        "metrics": strategy.metrics if paper else (),
        "settings": strategy.settings(cohort, clients),
    }
    return Instruction(**(asked | changes))


def answers(half, columns, rows, asked, build=Small, seed=SEED, **more):
    """Serves every client once; returns their messages' float vectors, and whoever failed."""
    spec = WorkerSpec(build, half, Examples.of(columns), tuple(rows), seed=seed, **more)
    start = ParameterLayout(seeded_model(build, seed)).read()
    grid = InlineGrid(build_app(spec), len(rows))
    content = instruct(to_array_record(start), asked)
    messages = [
        grid.create_message(content, f"train.{half.action}", node, "1")
        for node in grid.get_node_ids()
    ]
    replies = list(grid.send_and_receive(messages))
    failures = grid.take_failures()
    assert not any(reply.has_error() for reply in replies), failures
    return [to_vectors(reply.content[UPDATE])["float"] for reply in replies], failures


def sent_by(strategy, start, clients=4, round=1, seed=SEED, attempt=0):
    """The training messages of one round, to a grid that serves nobody."""
    config = ConfigRecord({"seed": seed, "attempt": attempt})
    return list(strategy.configure_train(round, to_array_record(start), config, Nodes(clients)))


def reply_to(message, update, clients, **metrics):
    """The sum of a chunk of clients, as a grid sends it."""
    named = {name.replace("_", "-"): values for name, values in metrics.items()}
    record = MetricRecord({"client": clients, **named})
    return Message(RecordDict({UPDATE: to_array_record(update), METRICS: record}), reply_to=message)


def moved(strategy, replies, round=1):
    """The new float vector after the replies."""
    arrays, _ = strategy.aggregate_train(round, iter(replies))
    return to_vectors(arrays)["float"]


@dataclass
class Unlucky:
    """An app whose clients raise at a stage: {(round, attempt, client): stage}.

    A stage is "advertise", "share", "train" or "reveal"; "killed" ends the run at the first.
    """

    app: Any
    faults: Mapping[tuple[int, int, int], str] = field(default_factory=dict)
    error: type[BaseException] = OutOfLuck

    def __call__(self, message, context):
        asked = instruction_of(message)
        where = (asked.round, asked.attempt, int(context.node_config["partition-id"]))
        stage = message.metadata.message_type.split(".")
        if self.faults.get(where) == "killed":
            raise KeyboardInterrupt
        if self.faults.get(where) in stage:
            raise self.error("the invoice of ACME Ltd could not be read")
        return self.app(message, context)


class Watched(InlineGrid):
    """A grid that keeps every message as the server sees it, and lets clients fail on demand.

    Attributes:
        sent: the messages to the clients, in order.
        received: what came back to the server.
        replied: what each client answered, before the answers of a chunk were added up.
    """

    def __init__(self, federation, faults=None, chunk_size=None, error=OutOfLuck, memory=None):
        if memory is None:
            self._folder = tempfile.TemporaryDirectory(prefix="watched-")  # removed with the grid
            memory = Path(self._folder.name)
        app = build_app(replace(federation.spec, memory=memory))
        super().__init__(Unlucky(app, faults or {}, error), federation.clients, chunk_size)
        self.sent, self.received, self.replied = [], [], []
        inner = self._app

        def noted(message, context):
            reply = inner(message, context)
            self.replied.append(reply)
            return reply

        self._app = noted

    def _deliver(self, messages, timeout):
        self.sent += messages
        for reply in super()._deliver(messages, timeout):
            self.received.append(reply)
            yield reply


def copied(folder, where):
    """A copy of a run folder that goes on with its salt, as no copy does by itself."""
    shutil.copytree(folder, where)
    RunFolder(Path(where)).keep_salt(RunFolder(Path(folder)).salt())
    return Path(where)


def vector_of(result):
    """All trained weights of a result as one vector of float64."""
    return read(result.model)["float"].astype(np.float64)


def first_model(build=Small, seed=SEED):
    """The weights that a run starts from."""
    return read(seeded_model(build, seed))["float"].astype(np.float64)


def variance_is(noise, expected):
    """Whether a sample variance is within five standard deviations of what is expected."""
    noise = np.asarray(noise, np.float64)
    return bool(abs(np.mean(noise**2) / expected - 1) < 5 * np.sqrt(2 / noise.size))


def mean_is_zero(noise):
    """Whether a sample mean is within five standard deviations of zero."""
    noise = np.asarray(noise, np.float64)
    return bool(abs(noise.mean()) < 5 * noise.std() / np.sqrt(noise.size))


def are_independent(one, other):
    """Whether two samples' correlation is within five standard deviations of zero."""
    return bool(abs(np.corrcoef(one, other)[0, 1]) < 5 / np.sqrt(len(one)))
