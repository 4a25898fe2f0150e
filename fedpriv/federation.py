"""The federation: the round loop over a strategy, a grid of clients, and a run folder."""

from __future__ import annotations

import functools
import importlib.metadata
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message
from flwr.clientapp import ClientApp
from torch import nn

from fedpriv.checkpoint import FAILURES, METRICS, PARTITION, Checkpoint, RunFolder
from fedpriv.client import Client, Recipe, Site, client_app, seeded_model, torch_threads
from fedpriv.data.federated import Data
from fedpriv.grids.base import RoundGrid
from fedpriv.grids.inline import InlineGrid
from fedpriv.grids.ray import RayGrid
from fedpriv.grids.serving import Failure
from fedpriv.messages import answered_by, to_array_record, to_vectors
from fedpriv.parameters import Exchange, as_tensor
from fedpriv.progress import Progress
from fedpriv.report.build import write_report
from fedpriv.strategy import ATTEMPT, SEED, Strategy
from fedpriv.tensorboard import events


class TooFewClients(RuntimeError):
    """Fewer clients answered than the run accepts."""


class Unworkable(ValueError):
    """The parts do not fit together; `problems` lists every reason, found before any training."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))


@dataclass(frozen=True)
class Settings:
    """How the rounds are run, whatever the algorithm.

    Args:
        workers: 0 serves the clients in this process, n ≥ 1 on n Ray workers.
        chunk_size: clients that a worker takes in one call and sums; None for an eighth of the
            cohort. It decides the order of additions, hence the bits; the number of workers does
            not.
        client_timeout: seconds that one client may take before it counts as missing.
        min_clients: fewer answers than this, and the round does not count. An empty Poisson
            cohort is a round like any other unless this is above 1.
        too_few: "repeat" draws a new cohort, up to `max_attempts` in all, then ends the run;
            "refuse" leaves the model as it was and goes on.
        max_attempts: tries of one round under "repeat".
        threads: torch threads for one client.
        device: where clients train and the model is evaluated, such as "cpu" or "cuda".
        evaluate_every: rounds between evaluations; the last round is always evaluated.
        checkpoint_every: rounds between checkpoints; the last round always has one.
        keep_checkpoints: how many of the newest to keep; 0 keeps all.
    """

    workers: int = 0
    chunk_size: int | None = None
    client_timeout: float | None = None
    min_clients: int = 1
    too_few: Literal["repeat", "refuse"] = "repeat"
    max_attempts: int = 3
    threads: int = 1
    device: str = "cpu"
    evaluate_every: int = 1
    checkpoint_every: int = 1
    keep_checkpoints: int = 2

    def __post_init__(self) -> None:
        least = {
            "workers": 0,
            "chunk_size": 1,
            "min_clients": 0,
            "max_attempts": 1,
            "threads": 1,
            "evaluate_every": 1,
            "checkpoint_every": 1,
            "keep_checkpoints": 0,
        }
        for name, minimum in least.items():
            value = getattr(self, name)
            if value is not None and value < minimum:
                raise ValueError(f"{name}={value}: expected at least {minimum}")
        if self.too_few not in ("repeat", "refuse"):
            raise ValueError(f"too_few={self.too_few!r}: expected 'repeat' or 'refuse'")
        if self.client_timeout is not None and not self.client_timeout > 0:
            raise ValueError(f"client_timeout={self.client_timeout}: expected seconds above 0")
        if self.client_timeout is not None and self.workers == 0:
            raise ValueError(
                f"client_timeout={self.client_timeout} needs workers of their own, which can be "
                "replaced: set workers=1 or more, or leave client_timeout out"
            )


@dataclass(frozen=True)
class RaySettings:
    """Where Ray runs, for `Settings.workers` ≥ 1.

    Args:
        address: of an existing cluster, such as "auto" or "10.0.0.1:6379"; None starts Ray here.
        client_resources: of one worker: num_cpus, num_gpus (a share works), or Ray's own names.
    """

    address: str | None = None
    client_resources: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """What a run leaves.

    Attributes:
        run_dir: its folder.
        metrics: one record per round, as in metrics.jsonl.
        model: with the final weights.
        failures: every client that did not answer.
    """

    run_dir: Path
    metrics: list[dict[str, Any]]
    model: nn.Module
    failures: list[dict[str, Any]]


class Federation:
    """A federation, ready to run.

    Args:
        model: builds the model, given what the data knows of it (`labels=…` for documents).
        data: the documents and whose they are.
        strategy: the server's half of the algorithm.
        client: the client's half.
        seed: of everything random.
        name: of the folder under `runs`.
        settings: workers, faults, checkpoints.
        ray: where Ray runs.
        runs: the folder for run folders.
        config: what config.yaml shall say of this run, such as the experiment file it came from.

    Raises:
        Unworkable: if the parts do not fit together.

    Example::

        from clients.local_training import LocalTraining
        from fedpriv.data.federated import DocumentData
        from fedpriv.data.partition import ByProvider
        from fedpriv.data.synthetic import Invoices
        from fedpriv.federation import Federation
        from fedpriv.models.layoutlmv3 import layoutlmv3_tiny
        from fedpriv.training.loops import Optimizer
        from strategies.fedavg import FedAvg

        federation = Federation(
            model=layoutlmv3_tiny,
            data=DocumentData(Invoices(), ByProvider(clients=8)),
            strategy=FedAvg(),
            client=LocalTraining(optimizer=Optimizer(lr=4e-3)),
        )
        result = federation.run(rounds=5)
        print(result.metrics[-1]["f1"], result.run_dir)
    """

    def __init__(
        self,
        *,
        model: Callable[..., nn.Module],
        data: Data,
        strategy: Strategy,
        client: Client,
        seed: int = 0,
        name: str = "federation",
        settings: Settings = Settings(),
        ray: RaySettings = RaySettings(),
        runs: Path | str = "runs",
        config: Mapping[str, Any] | None = None,
    ) -> None:
        if strategy.action != client.action:
            raise Unworkable(
                [
                    f"strategy {type(strategy).__name__} sends 'train.{strategy.action}', but "
                    f"client {type(client).__name__} answers 'train.{client.action}': "
                    "take the two halves of one algorithm"
                ]
            )
        self.strategy, self.settings, self.ray = strategy, settings, ray
        self.seed, self.name, self.runs, self.config = seed, name, Path(runs), config
        self.bound = data.bind(model, seed)
        problems = strategy.problems(len(self.bound.rows))
        if problems:
            raise Unworkable([f"strategy.{problem}" for problem in problems])
        self.recipe = Recipe(
            build_model=self.bound.build_model,
            client=client,
            train=self.bound.train,
            rows=self.bound.rows,
            seed=seed,
            threads=settings.threads,
            device=settings.device,
        )

    @property
    def clients(self) -> int:
        """How many clients there are."""
        return len(self.bound.rows)

    def grid(self) -> RoundGrid:
        """Starts the grid that the settings name; whoever calls this closes it."""
        factory = functools.partial(build_app, self.recipe)
        if self.settings.workers == 0:
            return InlineGrid(factory(), self.clients, self.settings.chunk_size)
        return RayGrid(
            factory,
            self.clients,
            self.settings.chunk_size,
            workers=self.settings.workers,
            client_timeout=self.settings.client_timeout,
            address=self.ray.address,
            client_resources=dict(self.ray.client_resources),
        )

    def run(
        self,
        rounds: int,
        *,
        run_dir: Path | str | None = None,
        resume: bool = False,
        grid: RoundGrid | None = None,
        progress: Progress | None = None,
    ) -> Result:
        """Runs the federation to its `rounds`-th round.

        Args:
            rounds: in all, those of an interrupted run included.
            run_dir: the run's folder; None makes a new one under `runs`.
            resume: go on from the newest checkpoint in `run_dir`.
            grid: where the clients run; None starts what the settings name and ends it afterwards.
            progress: what the person in front of the run sees; None shows nothing.

        Raises:
            TooFewClients: if a round got too few answers, as often as `max_attempts` allows. The
                run can be resumed.
            ValueError: if `run_dir` holds another run already, or one of another seed or model.
        """
        if rounds < 1:
            raise ValueError(f"rounds={rounds}: expected at least 1")
        folder = self._folder(run_dir, rounds, resume=resume)
        own = grid is None
        grid = grid or self.grid()
        try:
            return _Run(self, folder, grid, rounds, progress or Progress()).run()
        finally:
            if own:
                grid.close()

    def _folder(self, run_dir: Path | str | None, rounds: int, *, resume: bool) -> RunFolder:
        if resume:
            if run_dir is None:
                raise ValueError("resume=True needs the run_dir of the run to resume")
            return RunFolder.existing(run_dir)
        if run_dir is None:
            folder = RunFolder.create(self.runs, self.name)
        else:
            folder = RunFolder.at(Path(run_dir))
            if (folder.path / METRICS).exists() or folder.latest():
                raise ValueError(f"{run_dir} holds a run already: resume it, or name another")
        own = {"name": self.name, "seed": self.seed, "rounds": rounds}
        folder.write_config({**own, **(self.config or {}), "versions": versions()})
        if self.bound.partition is not None:
            folder.write_json(PARTITION, self.bound.partition)
        return folder


class _Run:
    """One run of a federation: the global model, and where in the rounds we are."""

    def __init__(
        self,
        federation: Federation,
        folder: RunFolder,
        grid: RoundGrid,
        rounds: int,
        progress: Progress,
    ) -> None:
        self.federation, self.folder, self.grid = federation, folder, grid
        self.rounds, self.progress = rounds, progress
        self.settings, self.strategy = federation.settings, federation.strategy
        device = torch.device(self.settings.device)
        self.model = seeded_model(federation.bound.build_model, federation.seed).to(device)
        self.exchange = Exchange(self.model, buffers=self.strategy.buffers)
        self.arrays = to_array_record(self.exchange.read())
        self.meta = {"seed": federation.seed}

    def run(self) -> Result:
        start = self._restore()
        clients = self.federation.clients
        with (
            events(self.folder.path, start) as board,
            self.progress.following(self.folder.path, start, self.rounds, clients),
        ):
            for round in range(start + 1, self.rounds + 1):
                record = self._round(round)
                self._finish_round(round, record)
                self.progress.round(record)
                board.round(record)
        self.exchange.write(to_vectors(self.arrays))
        self.folder.save_final(self.model.state_dict())
        if self.federation.bound.showcase:
            self.federation.bound.showcase(self.model, self.folder)
        write_report(self.folder.path)
        metrics, failures = self.folder.records(METRICS), self.folder.records(FAILURES)
        return Result(self.folder.path, metrics, self.model, failures)

    def _restore(self) -> int:
        """Takes up the newest checkpoint; returns its round, 0 for a run from the start."""
        checkpoint = self.folder.latest()
        if checkpoint is None:
            self.folder.forget_after(0)
            return 0
        if dict(checkpoint.meta) != self.meta:
            raise ValueError(
                f"{self.folder.path} was run with {dict(checkpoint.meta)}, not {self.meta}"
            )
        self.arrays = to_array_record(self.exchange.vectors(checkpoint.model))
        self.strategy.load_state({k: v.numpy() for k, v in checkpoint.strategy.items()})
        self.folder.forget_after(checkpoint.round)
        return checkpoint.round

    def _round(self, round: int) -> dict[str, Any]:
        began = time.monotonic()
        tries = self.settings.max_attempts if self.settings.too_few == "repeat" else 1
        for attempt in range(tries):
            tally = Tally(self.settings.min_clients)
            try:
                metrics = self._train(round, attempt, tally)
                accepted = True
                break
            except TooFewClients as error:
                metrics, accepted, reason = {}, False, str(error)
            finally:
                failures = self.grid.take_failures()
                self.folder.append(FAILURES, [f.to_json() for f in failures])
                tally.settle(failures)
        if not accepted and self.settings.too_few == "repeat":
            raise TooFewClients(
                f"round {round}: {reason}, {tries} times in a row. See {FAILURES} in "
                f"{self.folder.path}; the run can be resumed from there"
            )
        trained = time.monotonic()
        metrics |= self._evaluate(round)
        return {
            "round": round,
            **metrics,
            "accepted": accepted,
            "attempts": attempt + 1,
            "clients": tally.counts(),
            "bytes": tally.traffic(),
            "seconds": {
                "train": trained - began,
                "evaluate": time.monotonic() - trained,
            },
        }

    def _train(self, round: int, attempt: int, tally: Tally) -> dict[str, Any]:
        config = ConfigRecord({SEED: self.federation.seed, ATTEMPT: attempt})
        messages = self.strategy.configure_train(round, self.arrays, config, self.grid)
        sent = tally.sending(messages)
        replies = self.grid.send_and_receive(sent)
        shown = tally.receiving(replies, self.progress.client_answered)
        arrays, metrics = self.strategy.aggregate_train(round, shown)
        self.arrays = arrays or self.arrays
        return {name.replace("-", "_"): value for name, value in (metrics or {}).items()}

    def _evaluate(self, round: int) -> dict[str, float]:
        """Returns the metrics on the held-out examples, where there are any and it is time."""
        test = self.federation.bound.test
        due = round % self.settings.evaluate_every == 0 or round == self.rounds
        if test is None or not due:
            return {}
        self.exchange.write(to_vectors(self.arrays))
        self.model.eval()
        with torch_threads(self.settings.threads), torch.no_grad():
            scores: dict[str, float] = self.model.evaluate(test)  # type: ignore[operator]
        return scores

    def _finish_round(self, round: int, record: dict[str, Any]) -> None:
        self.folder.append(METRICS, [record])
        if round % self.settings.checkpoint_every == 0 or round == self.rounds:
            state = {k: as_tensor(v) for k, v in self.strategy.state().items()}
            named = self.exchange.named(to_vectors(self.arrays))
            checkpoint = Checkpoint(round, named, state, self.meta)
            self.folder.save(checkpoint, keep=self.settings.keep_checkpoints)


class Tally:
    """Counts who was asked, who answered, who failed and who was never heard of, in one round."""

    def __init__(self, min_clients: int) -> None:
        self.min_clients = min_clients
        self.sampled = self.answered = self.failed = 0
        self.down = self.up = 0

    def sending(self, messages: Iterable[Message]) -> Iterator[Message]:
        """Passes the messages on, counting them."""
        for message in messages:
            self.sampled += 1
            self.down += _bytes(message)
            yield message

    def receiving(
        self, replies: Iterable[Message], tell: Callable[[int, int], None]
    ) -> Iterator[Message]:
        """Passes the replies on and tells how many have come; at their end, raises if too few.

        So a strategy that adds up the replies first and then moves has not moved.
        """
        for reply in replies:
            self.failed += reply.has_error()
            self.answered += answered_by(reply)
            self.up += _bytes(reply) * answered_by(reply)
            tell(self.answered, self.sampled)
            yield reply
        planned_empty = self.sampled == 0 and self.min_clients <= 1
        if self.answered < self.min_clients and not planned_empty:
            raise TooFewClients(
                f"{self.answered} of {self.sampled} clients answered, min_clients is "
                f"{self.min_clients}"
            )

    def settle(self, failures: list[Failure]) -> None:
        """Takes the grid's word for failures that came without an error reply."""
        self.failed = max(self.failed, sum(f.kind == "failed" for f in failures))

    def counts(self) -> dict[str, int]:
        """Returns the counts for metrics.jsonl."""
        missing = self.sampled - self.answered - self.failed
        return {
            "sampled": self.sampled,
            "answered": self.answered,
            "failed": self.failed,
            "missing": missing,
        }

    def traffic(self) -> dict[str, int]:
        """Returns the bytes of tensors sent down to the clients and up to the server.

        As a real network would carry them: one copy per client, sums in the worker or not.
        """
        return {"down": self.down, "up": self.up}


def _bytes(message: Message) -> int:
    if message.has_error():
        return 0
    records: list[ArrayRecord] = list(message.content.array_records.values())
    return sum(array.numpy().nbytes for record in records for array in record.values())


def build_app(recipe: Recipe) -> ClientApp:
    """Builds a worker's site and returns the app that serves it."""
    site = Site(recipe)
    return client_app(lambda: site, recipe.client.action)


def versions() -> dict[str, str]:
    """Returns the versions that a result depends on."""
    packages = ("fedpriv", "torch", "transformers", "flwr", "ray", "numpy")
    found = {name: importlib.metadata.version(name) for name in packages}
    return {"python": platform.python_version(), **found}
