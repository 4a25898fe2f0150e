"""The client's side of a federation: the interface of a client half, and the worker that runs it.

A worker holds one model and the data. It serves any client of the federation, one after the other,
and resets its state between two of them: parameters, frozen weights, buffers, gradients and every
global random number generator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any, Protocol, cast, runtime_checkable
from weakref import ReferenceType, ref

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message
from flwr.clientapp import ClientApp
from torch import Tensor, nn

from fedpriv.data.examples import Examples
from fedpriv.federation.messages import (
    FAULT,
    PARAMETERS,
    Instruction,
    answer,
    chunks,
    instruction_of,
    is_finite,
    to_vectors,
)
from fedpriv.federation.secagg.messages import SECAGG
from fedpriv.federation.secagg.site import QUERIES, answer_query, masked
from fedpriv.privacy.salt import new_salt, salted
from fedpriv.runtime.client_memory import ClientMemory, InState, OnDisk
from fedpriv.runtime.memory import is_large, release_free_blocks
from fedpriv.runtime.seeds import generator, torch_seed
from fedpriv.runtime.torch_state import isolated_randomness, reproducible_torch, seeded_model
from fedpriv.runtime.vectors import ParameterLayout, Vectors, as_tensor
from fedpriv.training.computing import Computing
from fedpriv.training.per_example import failure_of_vmap

GLOBALS = "client globals"
"""The purpose of the seed of all global generators while a client trains."""

NOTES, CUT = "notes", "cut"
SALT = "salt"
"""The record, in a client's lasting state, with the salt that it has drawn."""

REMEMBERS = "remembers"
"""Of a context whose state outlives the message."""
PARTITION_ID = "partition-id"
NUM_PARTITIONS = "num-partitions"

Draw = Callable[[str], np.random.Generator]
"""Gives a generator for each use of randomness, as `ClientContext.generator` does."""


@dataclass(frozen=True)
class ClientUpdate:
    """The result of a client half. The worker sends only the parts that the strategy asked for.

    Attributes:
        update: vectors of the same names and lengths as the parameters.
        metrics: by name, with every metric of `Instruction.metrics`.
    """

    update: Vectors
    metrics: Mapping[str, float | int]


@dataclass(frozen=True)
class ClientContext:
    """One client at work: everything that a client half may use.

    Attributes:
        client: its number, from 0.
        model: holds the global parameters, in training mode, on `device`.
        examples: the client's own.
        instruction: the server's.
        layout: reads and writes the tensors that travel.
        parameters: the global vectors, read-only.
        device: where the model is.
        seed: of the run.
        key: of a private run. It keeps two messages from sharing their random numbers.
        secret: of the run, for what hides a message; see `generator`.
        restart: resets weights, buffers and training mode of the model, but not its modules, which
            a client that restarts must not replace.
        notes: remarks for the person who runs the simulation. The server does not get them.
        computing: the precision of gradients, and in how many parts a batch is computed.
        memory: of its earlier rounds, which nobody else sees; None where it does not last.
    """

    client: int
    model: nn.Module
    examples: Examples
    instruction: Instruction
    layout: ParameterLayout
    parameters: Vectors
    device: torch.device
    seed: int
    restart: Callable[[], None]
    key: str = ""
    secret: str = ""
    notes: list[str] = field(default_factory=list)
    computing: Computing = Computing()  # noqa: RUF009 - frozen
    memory: ClientMemory | None = None

    def torch_seed(self, purpose: str) -> int:
        """Returns a seed for torch's own generators, new in each round and attempt.

        torch uses 32 of its 64 bits. An adversary who tries them all learns the dropout of a
        private run, which its clipped gradients depend on.
        """
        now = self.instruction.purpose(purpose, self.key)
        return torch_seed(self.seed, now, self.instruction.round, self.client)

    def generator(self, purpose: str, *, hides: bool = False) -> np.random.Generator:
        """Returns a generator for one use of randomness, new in each round and attempt.

        Args:
            purpose: of the numbers.
            hides: whether they hide a message, as noise does. Then no other run draws them, even if
                this one is not private and shares all others with every run of its seed.
        """
        now = self.instruction.purpose(purpose, self.key or (self.secret if hides else ""))
        return generator(self.seed, now, self.instruction.round, self.client)


class Client(Protocol):
    """A client half: a frozen dataclass of settings, an action and one method.

    A half that follows `training.precision`, `training.microbatch` or `training.compile`, by
    `fedpriv.training.computing.Backward`, names them in a class variable `computes`. With a half
    that does not, a run with these settings is refused. A half that can train several clients in
    one pass has a second method, `TrainsMany.train_many`.

    Example:
        A client that reports how far its mean is from a one-parameter model::

            @dataclass(frozen=True)
            class MeanClient:
                action: ClassVar[str] = "mean"

                def train(self, context):
                    mean = context.examples.column("x").mean()
                    start = context.parameters["float"]
                    return ClientUpdate({"float": mean - start}, {"num-examples": 1})
    """

    @property
    def action(self) -> str:
        """The action that this half answers, the same as the strategy's."""

    def train(self, context: ClientContext) -> ClientUpdate:
        """Computes one update; may leave the model in any state."""


@runtime_checkable
class TrainsMany(Protocol):
    """A client half that can train several clients in one pass (`federation.cohort_batch`)."""

    def train_many(self, contexts: Sequence[ClientContext]) -> list[ClientUpdate]:
        """Returns what `train` returns for each client, up to rounding.

        Args:
            contexts: of clients with the same instruction and parameters; they share the model.
        """


Job = tuple[int, Message]
"""A client and a message to it."""

Trained = tuple[ClientUpdate, list[str]]
"""An update, and the notes on it."""


@dataclass(frozen=True)
class WorkerSpec:
    """Everything that a `ClientWorker` is built from, in any process.

    Attributes:
        build_model: returns the model. Weights that it draws come from the run's seed.
        client: the client half.
        train: every training example of the federation.
        rows: for each client, its positions in `train`.
        seed: of the run.
        threads: torch threads for one client. Their number changes bits.
        device: where clients train.
        key: of a private or a masked run, see `fedpriv.privacy.message_key`.
        salt: of the run, which goes into all noise and masks; "" for none. With None, each client
            draws its own and keeps it in its context, as in a deployment, where no one else may
            know it. The server never does.
        private: whether all of the clients' randomness depends on the key, or that of masks only.
        computing: how clients compute gradients.
        cohort_batch: the most clients that train in one pass.
        memory: the folder with what each client remembers of its earlier rounds; None leaves that
            to the context of the message, whose state Flower keeps (`REMEMBERS`).
    """

    build_model: Callable[[], nn.Module]
    client: Client
    train: Examples
    rows: tuple[np.ndarray, ...]
    seed: int
    threads: int = 1
    device: str = "cpu"
    key: str = ""
    salt: str | None = ""
    private: bool = False
    computing: Computing = Computing()  # noqa: RUF009 - frozen
    cohort_batch: int = 1
    memory: Path | None = None

    @property
    def masks(self) -> str:
        """The key of a client's masks."""
        return salted(self.key, self.salt or "")

    @property
    def noise(self) -> str:
        """The key of all randomness of a client; empty where the run is not private."""
        return self.masks if self.private else ""

    def at(self, context: Context) -> WorkerSpec:
        """Returns the spec with the salt of the client that a context is of."""
        if self.salt is not None:
            return self
        if SALT not in context.state:
            context.state[SALT] = ConfigRecord({SALT: new_salt()})
        return replace(self, salt=str(context.state.config_records[SALT][SALT]))


class ClientWorker:
    """A worker's resident model and data, serving one client at a time.

    With `cohort_batch` above 1, the first client of a cohort has the others trained with it, whose
    updates wait until they are served.
    """

    def __init__(self, spec: WorkerSpec) -> None:
        self.spec = spec
        self.device = torch.device(spec.device)
        self._cohorts: dict[str, list[Job]] = {}
        self._trained: dict[str, ClientUpdate | Exception] = {}
        # What was sent last; this worker's copy of it; and how often torch has written into that.
        self._sent: list[ReferenceType[Tensor]] = []
        self._parameters, self._versions, self._round = Vectors(), list[int](), 0
        self._touched = False
        self._build()

    def _build(self) -> None:
        spec = self.spec
        self.model = seeded_model(spec.build_model, spec.seed).to(self.device).train()
        spec.computing.prepare(self.model)
        self._trainable = [p for p in self.model.parameters() if p.requires_grad]
        # Frozen parameters and all buffers: a broadcast of the parameters does not overwrite them.
        kept = [p for p in self.model.parameters() if not p.requires_grad]
        self._kept = [(t, t.detach().clone()) for t in (*kept, *self.model.buffers())]
        self._layouts = {flag: ParameterLayout(self.model, buffers=flag) for flag in (False, True)}
        self._large = is_large(self.model)
        self._settings = [(module, _settings(module)) for module in self.model.modules()]
        self._built = _structure(self.model)

    def expect(self, jobs: Sequence[Job]) -> None:
        """Takes note of the jobs of a chunk, which are served next, and cuts them into cohorts.

        Messages with a fault, and queries, are left out. The clients of a cohort have the same
        instruction and parameters.
        """
        self._cohorts, self._trained = {}, {}
        action = f"train.{self.spec.client.action}"
        train = [
            job
            for job in jobs
            if job[1].metadata.message_type == action
            and PARAMETERS in job[1].content
            and FAULT not in job[1].content
        ]

        def alike(job: Job) -> tuple[Instruction | None, int]:
            return instruction_of(job[1]), id(job[1].content[PARAMETERS])

        for _, group in groupby(train, key=alike):
            for cohort in chunks(group, self.spec.cohort_batch):
                for _, message in cohort:
                    if len(cohort) > 1:
                        self._cohorts[message.metadata.message_id] = cohort

    def _train(
        self, job: Job, instruction: Instruction, parameters: Vectors, own: Mapping[str, Any]
    ) -> Trained:
        """Returns a client's update and the notes on it; has its cohort trained if need be."""
        client, message = job
        key, failure = message.metadata.message_id, ""
        if key in self._cohorts:
            cohort = self._cohorts[key]
            for _, other in cohort:
                del self._cohorts[other.metadata.message_id]
            failure = self._train_cohort(cohort, instruction, parameters)
        done = self._trained.pop(key, None)
        if isinstance(done, Exception):
            raise done
        if done is not None:
            return done, []
        visit = replace(self.visit(client, instruction, parameters), **own)
        with isolated_randomness(visit.torch_seed(GLOBALS)):
            computed = self.spec.client.train(visit)
        if failure:
            visit.notes.append(f"its cohort was trained one by one: {failure}")
        return computed, visit.notes

    def _train_cohort(
        self, cohort: list[Job], instruction: Instruction, parameters: Vectors
    ) -> str:
        """Trains a cohort; if that fails, returns why, and each of it will be trained alone.

        If memory is short, all of it fail: how much there is must not decide about bits.
        """
        half = cast(TrainsMany, self.spec.client)  # `cohort_batch` is 1 otherwise
        first = self.visit(cohort[0][0], instruction, parameters)
        rows = self.spec.rows
        visits = [
            replace(first, client=c, examples=self.spec.train.take(rows[c]), notes=[])
            for c, _ in cohort
        ]
        updates: list[ClientUpdate] = []
        keys = [message.metadata.message_id for _, message in cohort]
        try:
            with isolated_randomness(first.torch_seed(GLOBALS)):
                failure = failure_of_vmap(
                    lambda: updates.extend(half.train_many(visits)), self.device, required=False
                )
        except Exception as error:
            self._trained = dict.fromkeys(keys, error)
            return ""
        if not failure:
            self._trained = dict(zip(keys, updates, strict=True))
        return failure

    def serve(self, message: Message, context: Context) -> Message:
        """Answers a training message for the client that the context names."""
        instruction = instruction_of(message)
        if instruction is None:
            raise ValueError("the message carries no fedpriv instruction")
        client = int(context.node_config[PARTITION_ID])
        sent = message.content.array_records[PARAMETERS]
        parameters = self._received(sent, instruction.round)
        folder = self.spec.memory
        memory: ClientMemory | None = OnDisk(folder / str(client)) if folder else None
        if folder is None and context.node_config.get(REMEMBERS):
            memory = InState(context.state)
        # Around everything: a thread pool that was woken for a single copy spins long afterwards.
        spec = self.spec.at(context)
        own = {"memory": memory, "key": spec.noise, "secret": spec.masks}
        how = spec.computing
        with reproducible_torch(
            spec.threads,
            spec.device,
            deterministic=how.deterministic,
            tf32=how.precision == "tf32",
        ):
            computed, notes = self._train((client, message), instruction, parameters, own)
            # A half of one's own may return arrays. Masks are the host's.
            update = {
                name: as_tensor(v) if isinstance(v, np.ndarray) else v
                for name, v in computed.update.items()
            }
            computed = replace(computed, update=update)
            _check(computed, parameters, instruction)
        self._touched = self._written_into(sent)
        if self._touched:
            raise ValueError("the client half has changed the parameters that it was sent")
        if self._large:
            self._forget_gradients()
            release_free_blocks()
        cut = 0.0
        if SECAGG in message.content:
            update, cut = masked(update, message, client, spec.seed, spec.masks)
        else:  # alone, it may outlive this visit, and be a view of the model
            update = {n: v.to(self.device, copy=not instruction.summed) for n, v in update.items()}
        if notes or cut:
            context.state[NOTES] = ConfigRecord({NOTES: notes, CUT: cut})
        content = answer(update, computed.metrics, instruction)
        return Message(content, reply_to=message)

    def _received(self, record: ArrayRecord, round: int) -> Vectors:
        """Returns this worker's copy of what was sent, on its device, for all clients of a round.

        They are not to write into it. If one has, or has failed, the next gets a new copy.
        """
        sent, mine = to_vectors(record), self._parameters
        same = [round, *map(id, sent.values())] == [self._round, *(id(v()) for v in self._sent)]
        if not same or self._touched:
            alike = {n: v for n, v in mine.items() if n in sent and v.shape == sent[n].shape}
            self._parameters = {  # into the same memory: new memory is slow
                name: alike[name].copy_(v) if name in alike else v.to(self.device, copy=True)
                for name, v in sent.items()
            }
            self._round, self._sent = round, [ref(vector) for vector in sent.values()]
            self._versions = [v._version for v in self._parameters.values()]
        self._touched = True  # until the visit has ended and was found to have left it as it was
        return dict(self._parameters)

    def _written_into(self, record: ArrayRecord) -> bool:
        """Returns whether the copy is not what was sent any more.

        torch does not count what is written through `.data` or into NumPy's view. Our halves do
        neither; what another one has left is compared.
        """
        mine = self._parameters
        if [v._version for v in mine.values()] != self._versions:
            return True
        if type(self.spec.client).__module__.startswith("fedpriv."):
            return False
        return any(not torch.equal(mine[n], v.to(mine[n])) for n, v in to_vectors(record).items())

    def visit(self, client: int, instruction: Instruction, parameters: Vectors) -> ClientContext:
        """Returns the context of a client half, with the model that the server has sent.

        Args:
            client: its number.
            instruction: the server's.
            parameters: the global vectors.
        """
        self.model.train()
        if _structure(self.model) != self._built:  # the previous client has altered its modules
            self._build()
        for module, settings in self._settings:  # Donut's layers change theirs in a forward pass
            vars(module).update(settings)
        layout = self._layouts[instruction.buffers]

        def restart() -> None:
            self._wipe()
            layout.write(parameters)

        restart()
        return ClientContext(
            client=client,
            model=self.model,
            examples=self.spec.train.take(self.spec.rows[client]),
            instruction=instruction,
            layout=layout,
            parameters=parameters,
            device=self.device,
            seed=self.spec.seed,
            key=self.spec.noise,
            secret=self.spec.masks,
            restart=restart,
            computing=self.spec.computing,
        )

    @torch.no_grad()
    def _wipe(self) -> None:
        """Restores everything that the previous client may have changed, but the parameters."""
        self.model.train()
        for tensor, pristine in self._kept:
            tensor.requires_grad_(False)
            tensor.grad = None
            tensor.copy_(pristine)
        for parameter in self._trainable:
            parameter.requires_grad_(True)
        self._forget_gradients()

    def _forget_gradients(self) -> None:
        for parameter in self._trainable:
            parameter.grad = None


def _structure(model: nn.Module) -> list[object]:
    """Identifies everything in a model but its values: modules, tensors, settings, hooks."""
    structure: list[object] = []
    for module in model.modules():
        hooks = [list(v) for k, v in vars(module).items() if k.endswith("_hooks") and v]
        structure.append((id(module), list(_settings(module)), hooks))
    tensors = [*model.parameters(), *model.buffers()]
    return [*structure, *((id(t), t.dtype, t.shape, t.device) for t in tensors)]


def _settings(module: nn.Module) -> dict[str, bool | int | float | str | None]:
    """Returns the plain values among a module's attributes."""
    plain = (bool, int, float, str, type(None))
    return {k: v for k, v in vars(module).items() if isinstance(v, plain)}


def _check(computed: ClientUpdate, parameters: Vectors, instruction: Instruction) -> None:
    """Raises an error for an update that would spoil the sum."""
    update = computed.update
    got = {name: (tuple(v.shape), str(v.dtype)) for name, v in update.items()}
    want = {name: (tuple(v.shape), str(v.dtype)) for name, v in parameters.items()}
    if got != want:
        raise ValueError(f"the update has vectors {got}, the parameters {want}")
    for name, vector in update.items():
        if vector.is_floating_point() and not is_finite(vector):
            raise FloatingPointError(f"the {name} update is not finite: training has diverged")
    if instruction.weight in computed.metrics:
        weight, whole = computed.metrics[instruction.weight], "integer" in update
        if isinstance(weight, bool) or not isinstance(weight, int if whole else (int, float)):
            kind = "an integer" if whole else "a number"
            raise TypeError(f"a weight must be {kind}, got {weight!r}")
        if not 0 <= weight < float("inf"):
            raise ValueError(f"a weight must be finite and not negative, got {weight!r}")


class WorkerApp(ClientApp):
    """The app of a worker, which can be told what it will be asked next.

    Args:
        worker: that it serves.
    """

    def __init__(self, worker: ClientWorker) -> None:
        super().__init__()
        self._worker = worker

    def expect(self, jobs: Sequence[Job]) -> None:
        """Passes the jobs of a chunk on to the worker."""
        if self._worker.spec.cohort_batch > 1:
            self._worker.expect(jobs)


def build_app(spec: WorkerSpec) -> WorkerApp:
    """Builds a worker and returns the Flower app that it serves: training and secure aggregation.

    It answers `train.<action>`, the client half's action, and the queries of the masked rounds.
    """
    worker = ClientWorker(spec)
    app = WorkerApp(worker)
    app.train(spec.client.action)(worker.serve)

    def answering(query: str) -> Callable[[Message, Context], Message]:
        def answer(message: Message, context: Context) -> Message:
            client = int(context.node_config[PARTITION_ID])
            return answer_query(query, message, client, spec.seed, spec.at(context).masks)

        return answer

    for query in QUERIES:
        app.query(query)(answering(query))
    return app
