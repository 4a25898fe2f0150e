"""The federation: the round loop over a strategy, a grid of clients, and a run folder."""

from __future__ import annotations

import contextlib
import copy
import functools
import gc
import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, is_dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from flwr.app import ConfigRecord, Message
from numpy.typing import NDArray
from torch import nn

from fedpriv.data import promises
from fedpriv.data.digests import data_digest, document_digest
from fedpriv.data.document import providers
from fedpriv.data.examples import Examples, provider_number
from fedpriv.federation import same_data
from fedpriv.federation.client import Client, WorkerSpec, build_app
from fedpriv.federation.cohort_batch import cohort_batch
from fedpriv.federation.dataset import FederatedDataset
from fedpriv.federation.faults import striking
from fedpriv.federation.flower.adapter import adapted
from fedpriv.federation.flower.checks import (
    StrategyFailed,
    blaming,
    check_followed,
    check_model,
    never_called,
)
from fedpriv.federation.grids.base import RoundGrid
from fedpriv.federation.grids.inline import InlineGrid
from fedpriv.federation.grids.processes import ProcessGrid
from fedpriv.federation.keep import Prepared, Watcher
from fedpriv.federation.messages import UPDATE, node_ids, to_array_record, to_vectors
from fedpriv.federation.overlap import published_problems, traces
from fedpriv.federation.parts import Parts
from fedpriv.federation.round_statistics import OtherAnswers, RoundStatistics, TooFewClients
from fedpriv.federation.secagg.masking import Masked
from fedpriv.federation.secagg.messages import MASKED
from fedpriv.federation.settings import Settings
from fedpriv.federation.strategy import ATTEMPT, KEY, MODEL, SEED, Strategy
from fedpriv.federation.units import example_meaning, largest_groups, named_providers, unit_problems
from fedpriv.privacy import individual
from fedpriv.privacy.fingerprint import fingerprint
from fedpriv.privacy.individual import Spent
from fedpriv.privacy.ledger import Attempt, Ledger, LedgerMissing
from fedpriv.privacy.message_key import message_key
from fedpriv.privacy.salt import Entropy, new_salt, salted
from fedpriv.privacy.statement import statement
from fedpriv.runtime.cache import json_digest
from fedpriv.runtime.client_memory import forget, state_of
from fedpriv.runtime.memory import is_large, keep_large_blocks
from fedpriv.runtime.progress import Progress, for_this_terminal
from fedpriv.runtime.refusals import Unfit
from fedpriv.runtime.run_folder import (
    BOOKED,
    CLIENTS,
    DATA,
    FAILURES,
    FINAL,
    LEDGER,
    METRICS,
    PARTITION,
    SALT,
    UNITS,
    Checkpoint,
    RunFolder,
)
from fedpriv.runtime.seeds import torch_seed
from fedpriv.runtime.tensors import digest
from fedpriv.runtime.torch_state import (
    gpus_of,
    isolated_randomness,
    reproducible_torch,
    seeded_model,
    unusable_device,
)
from fedpriv.runtime.trackers import base as trackers
from fedpriv.runtime.vectors import ParameterLayout, as_tensor, on_host
from fedpriv.runtime.versions import versions
from fedpriv.runtime.workers.fork_server import fork_server
from fedpriv.training.adapters import FineTuned, FineTuning, Full
from fedpriv.training.computing import Computing
from fedpriv.training.pretraining import Pretraining


class Unworkable(Unfit):
    """The parts do not fit together; `problems` lists every reason, found before any training."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))


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


@dataclass(kw_only=True, eq=False, repr=False)
class Federation(Parts):
    """A federation, ready to run: its parts (`Parts` describes them), and how to run them.

    Args:
        settings: workers, deadlines, checkpoints.
        computing: how clients, and pretraining, compute gradients.
        entropy: what noise and masks are drawn from beside the seed: "run", a salt that is kept in
            the run folder; "os", one that is kept nowhere; "seed", nothing else
            (`fedpriv.federation.settings.Privacy`).
        config: what config.yaml shall say of this run, such as the experiment file it came from.

    Raises:
        Unworkable: if the parts do not fit together.

    Example::

        from fedpriv.clients.fedavg import LocalTraining
        from fedpriv.federation.dataset import DocumentData
        from fedpriv.data.partition import ByProvider
        from fedpriv.data.generated.invoices import Invoices
        from fedpriv.federation.loop import Federation
        from fedpriv.models.layoutlmv3 import layoutlmv3
        from fedpriv.training.loops import Optimizer
        from fedpriv.strategies.fedavg import FedAvg

        federation = Federation(
            model=layoutlmv3,
            data=DocumentData(Invoices(), ByProvider(clients=8)),
            strategy=FedAvg(),
            client=LocalTraining(optimizer=Optimizer(lr=4e-3)),
        )
        result = federation.run(rounds=5)
        print(result.metrics[-1]["f1"], result.run_dir)
    """

    settings: Settings = Settings()  # noqa: RUF009 - frozen
    computing: Computing = Computing()  # noqa: RUF009 - frozen
    entropy: Entropy = "run"
    config: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        settings = self.settings
        if self.entropy not in get_args(Entropy):
            given = f"entropy={self.entropy!r}"
            raise ValueError(f"{given}: expected one of {', '.join(get_args(Entropy))}")
        inner = adapted(self.strategy, self.client, masked=self.masking is not None)
        if settings.workers and not self.ray.wanted:
            fork_server()  # imports what workers need while this process reads the data
        # What runs: the strategy, in an adapter if it is Flower's, and behind masks.
        self.algorithm = self.masking.around(inner) if self.masking else inner
        if self.algorithm.action != self.client.action:
            raise Unworkable(
                [
                    f"strategy {type(self.strategy).__name__} sends "
                    f"'train.{self.algorithm.action}', but "
                    f"client {type(self.client).__name__} answers 'train.{self.client.action}': "
                    "take the two halves of one algorithm"
                ]
            )
        # A second run starts from here, not from where the first one ended.
        self.first_state = {name: array.copy() for name, array in self.algorithm.state().items()}
        if cannot := unusable_device(settings.device):
            raise Unworkable([f"federation.device={settings.device!r}: {cannot}"])
        try:
            start = self.data.bind(self.model, self.seed)
            tuned = _tuned(start, self.finetuning, self.seed)
            self._model: nn.Module | None = tuned.first
            self.bound = replace(tuned, first=None)
        except ValueError:
            raise  # it says what is wrong with which setting or file
        except OSError as error:
            if error.errno is not None:
                raise  # the operating system's, with the name of a file
            raise Unworkable([f"model: {' '.join(str(error).split())}"]) from error
        except Exception as error:
            raise Unworkable([f"data or model: {_in_a_line(error)}"]) from error
        if problems := self._problems(inner):
            raise Unworkable(problems)
        for line in never_called(self.strategy):
            print(line, file=sys.stderr, flush=True)
        together, problems = cohort_batch(
            self.client, self.bound, self.seed, settings, self.computing
        )
        if problems:
            raise Unworkable(problems)
        self.published: list[str] = []
        if self.pretraining:
            self._model, self.bound = None, self._pretrained(self.pretraining, start)
        self.data_digest, self.parameters = "", 0
        private = self.algorithm.mechanism is not None
        self.spec = WorkerSpec(
            build_model=self.bound.build_model,
            client=self.client,
            train=self.bound.train,
            rows=self.bound.rows,
            seed=self.seed,
            threads=settings.threads,
            device=settings.device,
            key=self._key(inner, together) if private or self.masking else "",
            salt=self.new_salt(),
            private=private,
            computing=self.computing,
            cohort_batch=together,
        )

    def first_model(self) -> nn.Module:
        """Returns the model as round 1 starts from it, the one that there is, or a new one."""
        model, self._model = self._model, None
        return seeded_model(self.bound.build_model, self.seed) if model is None else model

    def new_salt(self) -> str:
        """Returns a salt for one run, empty if there is to be none."""
        return "" if self.entropy == "seed" else new_salt()

    def _key(self, inner: Strategy, together: int) -> str:
        """Measures what a ledger tells of model and data; returns the key of noise and masks."""
        first = self._model = self.first_model()
        self.parameters = ParameterLayout(first).read()["float"].numel()
        if isinstance(self.algorithm, Masked):
            self.algorithm.settle(self.clients, self.parameters)
            if coarse := self.algorithm.coarse(self.clients, self.parameters):
                raise Unworkable(coarse)
        encoded = data_digest(self.bound.train, self.bound.rows)
        pages = sorted(document_digest(page, here=False) for page in self.bound.documents)
        self.data_digest = json_digest(pages) if pages else encoded
        if not len(self.bound.train):  # the clients' documents lie elsewhere
            self.data_digest = ""
        ways, device = {}, torch.device(self.settings.device)
        clipping = getattr(self.client, "per_example", None)
        if clipping and device.type != "cpu":  # on a CPU the ways are those of keys from before
            ways = {"clipping": clipping.choice(first, device, self.computing)[0]}
        return message_key(
            (inner, self.client, self.masking),
            first,
            encoded,
            threads=self.settings.threads,
            device=self.settings.device,
            computing={
                **self.computing.changed(),
                **ways,
                **({"cohort_batch": together} if together > 1 else {}),
            },
        )

    def _problems(self, inner: Strategy) -> list[str]:
        """Returns why the parts do not fit together, each with the setting that it is about."""
        problems = self.masking.problems(inner) if self.masking else []
        problems += [f"strategy.{problem}" for problem in self.algorithm.problems(self.clients)]
        least = self.settings.min_clients
        if least > self.clients:
            problems.append(
                f"federation.min_clients={least}: expected at most {self.clients}, the number of "
                "clients"
            )
        problems += _training_problems(
            self.client, self.bound, self.seed, self.settings, self.computing, self._model
        )
        problems += trackers.problems(self.settings.trackers)
        problems += [p for k in self.keepers for p in k.problems(self.bound, self.seed)]
        problems += unit_problems(self.algorithm.mechanism, self.bound)
        if self.faults:
            masked = self.masking is not None
            found = self.faults.problems(self.clients, self.settings, masked=masked)
            problems += [f"faults.{problem}" for problem in found]
        return problems

    def _pretrained(self, pretraining: Pretraining, start: FederatedDataset) -> FederatedDataset:
        """Trains the model on public documents; returns the data bound to it."""
        public = promises.load(pretraining.data)
        if self.algorithm.mechanism:
            self.published = published_problems(self.bound.documents, public.documents)
        for problem in self.published:
            print(f"no ε covers: {problem}", file=sys.stderr, flush=True)
        build = pretraining.start(
            self.model,
            start.build_model,
            public=public,
            threads=self.settings.threads,
            device=self.settings.device,
            computing=self.computing,
        )
        pretrained = replace(start, build_model=build, first=None)
        return _tuned(pretrained, self.finetuning, self.seed)

    @property
    def clients(self) -> int:
        """How many clients there are."""
        return len(self.bound.rows)

    def grid(self, memory: Path | None = None, salt: str | None = None) -> RoundGrid:
        """Starts the grid that the settings name; whoever calls this closes it.

        Args:
            memory: the folder with what clients remember of their earlier rounds.
            salt: of the run; None draws a new one, if there is to be one.
        """
        salt = self.new_salt() if salt is None else salt
        factory = functools.partial(build_app, replace(self.spec, memory=memory, salt=salt))
        if self.settings.workers == 0:
            return InlineGrid(factory(), self.clients, self.settings.chunk_size)
        if not self.ray.wanted:
            return ProcessGrid(
                factory,
                self.clients,
                self.settings.chunk_size,
                workers=self.settings.workers,
                client_timeout=self.settings.client_timeout,
                gpus=gpus_of(self.settings.device),
            )
        from fedpriv.federation.grids.ray import RayGrid  # Ray is imported where it is used only

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
        other_data: bool = False,
        grid: RoundGrid | None = None,
        progress: Progress | bool = False,
    ) -> Result:
        """Runs the federation to its `rounds`-th round.

        Args:
            rounds: in all, those of an interrupted run included; 0 only evaluates the model that
                round 1 would start from.
            run_dir: the run's folder; None makes a new one under `runs`.
            resume: go on from the newest checkpoint in `run_dir`.
            other_data: go on even if the data are not those that the run was begun with.
            grid: where the clients run; None starts what the settings name and ends it afterwards.
            progress: what the person in front of the run sees. True shows what the command line
                shows: a live display in a terminal or a notebook, lines elsewhere.

        Raises:
            TooFewClients: if so many rounds in a row got too few answers as `max_refused` allows.
                The run can be resumed, and goes on with the next round's cohort.
            ValueError: if `run_dir` holds another run already, or one of another seed or model, or
                its ledger is not the one that the checkpoint was written with.
            OtherData: (a ValueError) if a run is resumed on other data, labels included.
            InUse: if another process writes in `run_dir`.
        """
        if rounds < 0:
            raise ValueError(f"rounds={rounds}: expected 0 or more")
        keep_large_blocks()
        config = {**(self.config or {}), "name": self.name, "seed": self.seed, "rounds": rounds}
        if resume and run_dir is None:
            raise ValueError("resume=True needs the run_dir of the run to resume")
        if grid is not None and self.entropy != "seed" and self.keepers and self.spec.key:
            raise ValueError(
                f"privacy.entropy={self.entropy}: the clients of a grid from elsewhere draw salts "
                "of their own, and what is kept for attacks (keep) could not say what their "
                "messages were computed from; take privacy.entropy=seed, or keep=[]"
            )
        there = Path(self.runs).is_dir()
        if run_dir is None:
            folder = RunFolder.create(self.runs, self.name)
        else:
            folder = RunFolder.existing(run_dir) if resume else RunFolder.made(Path(run_dir))
        if resume and not other_data:
            same_data.check(folder, self.bound)
        own, salt = grid is None, self.new_salt()
        kept = own and self.entropy == "run"  # clients on a grid from elsewhere have other salts
        known = folder.salt() if resume and kept else ""
        copied = resume and kept and not known and folder.has(SALT)
        salt = known or salt
        try:
            grid = grid or self.grid(folder.path / CLIENTS, salt)
        except BaseException:
            if run_dir is None:  # if Ray does not start, no folder is left behind
                with contextlib.suppress(OSError):  # there are other runs beside it
                    folder.path.rmdir()
                    folder.path.parent.rmdir()
                    if not there:
                        Path(self.runs).rmdir()
            raise
        try:
            try:
                with (
                    folder.writing("resume" if resume else "run", config),
                    reproducible_torch(self.settings.threads, self.settings.device),
                ):
                    if not resume:
                        self._begin(folder, config)
                    elif other_data:
                        same_data.take(folder, self.bound, len(folder.records(METRICS)))
                    if kept and folder.salt() != salt:
                        folder.keep_salt(salt)
                    if isinstance(progress, bool):
                        progress = for_this_terminal() if progress else Progress()
                    if copied:
                        progress.note(
                            f"{folder.path} is a copy, or was moved here from another disk: it "
                            "goes on with a new salt, so that its noise and masks are its own"
                        )
                    return _Run(self, folder, grid, salt, rounds, progress).run()
            except (KeyboardInterrupt, SystemExit, OSError) as error:
                if isinstance(error, OSError) and error.errno and error.filename is None:
                    error.filename = str(folder.path)  # a full disk says of no file that it is full
                error.add_note(f"go on with: fedpriv resume {folder.path}")
                raise
        finally:
            if own:
                grid.close()

    def ledger(self) -> Ledger:
        """Returns the ledger of a run of which nothing has been given away yet."""
        return Ledger(
            mechanism=self.algorithm.mechanism,
            masked=isinstance(self.algorithm, Masked),
            uncovered=(*self.algorithm.uncovered(), *self.published),
            groups=largest_groups(self.algorithm.mechanism, self.bound),
            example=example_meaning(self.bound),
            data=self.data_digest,
            providers=named_providers(self.bound),
            entropy=self.entropy,
        )

    def stated(self, ledger: Ledger, spent: Mapping[str, Spent]) -> dict[str, Any]:
        """Returns what ledger.json says of a run that is over: its ledger and ε.

        Args:
            ledger: of the run.
            spent: what single units have given, by name.
        """
        return statement(ledger, spent)

    def _begin(self, folder: RunFolder, config: Mapping[str, Any]) -> None:
        if folder.has(METRICS) or folder.latest():
            raise ValueError(f"{folder.path} holds a run already: resume it, or name another")
        if self.bound.partition is not None:
            folder.write_json(PARTITION, self.bound.partition)
        folder.write_json(DATA, same_data.digests(self.bound))
        if (ledger := self.ledger()).counts:
            folder.write_json(LEDGER, ledger.to_json())
        if ledger.mechanism:
            folder.write_json(UNITS, traces(self.bound, self.data_digest))
        # Last: with it the folder is a run's, and a ledger that is not there has been lost.
        made = {"started": datetime.now().isoformat(" ", "seconds"), "versions": versions()}
        folder.write_config({**config, **made})


class _Run:
    """One run of a federation: the global model, and where in the rounds we are."""

    def __init__(
        self,
        federation: Federation,
        folder: RunFolder,
        grid: RoundGrid,
        salt: str,
        rounds: int,
        progress: Progress,
    ) -> None:
        grid.deadline = federation.settings.round_deadline
        grid.prepare = striking(federation.faults, federation.seed, grid)
        self.federation, self.folder, self.grid = federation, folder, grid
        self.spec = replace(federation.spec, salt=salt)
        self.rounds, self.progress = rounds, progress
        self.settings, self.strategy = federation.settings, federation.algorithm
        self.device = torch.device(self.settings.device)
        # What was compiled may depend on the sizes that a process has met.
        self.exact = self.device.type == "cpu" and not federation.spec.computing.compile
        self.model = federation.first_model().to(self.device)
        self.layout = ParameterLayout(self.model, buffers=self.strategy.buffers)
        self.strategy.prepare(self.layout)
        self.arrays = to_array_record(self.layout.read())
        self.refused, self.reason, self.complete = 0, "", True
        self.ledger = self._ledger()
        self.watchers: list[Watcher] = []
        self.booking = False
        self.files = ThreadPoolExecutor(1, "checkpoint")
        self.writing: Future[None] | None = None
        self.copies: dict[str, torch.Tensor] = {}

    def run(self) -> Result:
        """Runs the rounds; whatever ends them, the last checkpoint is written to its end."""
        with self.files:
            try:
                return self._run()
            except BaseException as error:
                try:
                    self._written()
                except Exception as failed:
                    if failed is not error:
                        error.add_note(f"and the last checkpoint was not written: {failed}")
                raise

    def _run(self) -> Result:
        for keeper in self.federation.keepers:
            if watcher := keeper.before(self.prepared):
                self.watchers.append(watcher)
                self.grid = watcher.around(self.grid)
        start = self._restore()
        clients = self.federation.clients
        with (
            self.progress.following(self.folder.path, start, self.rounds, clients),
            trackers.following(
                self.settings.trackers, self._tracked(start), self.progress.note
            ) as track,
        ):
            # A run of no rounds is one evaluation.
            alone = self.rounds == 0 and not self.folder.records(METRICS)
            for round in [0] if alone else range(start + 1, self.rounds + 1):
                record = self._round(round)
                self._finish_round(round, record)
                self.progress.round(record)
                track(record)
                if self._gives_up():
                    self._written()
                    self._after()  # nobody need resume it, and what was kept can be attacked
                    last = f"{n} rounds in a row" if (n := self.refused) > 1 else "the last round"
                    raise TooFewClients(
                        f"{last} did not count. Round {round}: {self.reason}. See {FAILURES} in "
                        f"{self.folder.path}; resumed, the run goes on with the next round and its "
                        "cohort"
                    )
        self._written()
        self.layout.write(to_vectors(self.arrays))
        if self.federation.bound.showcase:
            self.federation.bound.showcase(self.model, self.folder)
        mechanism = self.strategy.mechanism
        alone = mechanism is not None and mechanism.unit == "client"
        known = providers(self.federation.bound.documents)
        names = None if alone else {provider_number(name): name for name in known}
        spent = individual.of_clients(self.folder.path / CLIENTS, names) if self.complete else {}
        self._write_ledger(self.federation.stated(self.ledger, spent))
        self._after()
        # Nothing comes after the final weights: with them a run is complete.
        self.folder.save_state(FINAL, self.model.state_dict())
        metrics, failures = self.folder.records(METRICS), self.folder.records(FAILURES)
        return Result(self.folder.path, metrics, self.model, failures)

    @functools.cached_property
    def prepared(self) -> Prepared:
        """What keepers get to see of the run."""
        return Prepared(
            self.folder,
            self.federation.bound,
            self.spec,
            self.strategy,
            self.model,
            self.layout,
            public_settings(self.federation),
            self.progress.note,
        )

    def _tracked(self, done: int) -> trackers.Tracked:
        federation = self.federation
        return trackers.Tracked(
            self.folder.path, Path(federation.runs), federation.name, done, self.folder.config()
        )

    def _after(self) -> None:
        for keeper in self.federation.keepers:
            keeper.after(self.prepared)

    def _ledger(self) -> Ledger:
        """Returns the ledger so far: it forgets nothing, whatever is run again.

        Raises:
            LedgerMissing: (a ValueError) if a private run's ledger is not there, or not whole.
        """
        now, place = self.federation.ledger(), self.folder.path / LEDGER
        if not now.counts:
            return now
        if not place.is_file():
            raise LedgerMissing(
                f"{place} is not there: what this run has given away is not known, and it cannot "
                "go on. Put the file back, or start a new run"
            )
        try:
            before = self.folder.read_ledger()
        except ValueError as error:
            raise LedgerMissing(f"{place} is no JSON ({error}): put a whole copy back") from error
        known = Ledger.from_json(before, str(place))
        if known.data != now.data and now.mechanism and now.mechanism.remembers:
            raise ValueError(
                f"{self.folder.path}: the data are not those that it was run on before, and what "
                "its clients remember is of those: start a new run"
            )
        if known.data != now.data:
            self.progress.note(
                f"{self.folder.path}: the data are not those that it was run on before; from here "
                "on it is a run on both"
            )
            self._also_on(traces(self.federation.bound, now.data))
        return known.continued(now, str(self.folder.path))

    def _keep_booked(self, now: Attempt) -> None:
        """Appends an attempt's entry; what was booked before this process goes into one file."""
        if self.booking:
            (entry,) = (r for r in self.ledger.releases if r.attempt.key == now.key)
            self.folder.append(BOOKED, [entry.to_json()], sync=True)
        else:
            self._write_ledger(self.ledger.to_json())
        self.booking = True

    def _write_ledger(self, ledger: dict[str, Any]) -> None:
        """Writes a whole ledger in place of the one that there was and of what was appended."""
        self.folder.write_json(LEDGER, ledger)
        self.folder.remove(BOOKED)

    def _also_on(self, more: Mapping[str, Any]) -> None:
        """Adds traces of further data to those in the folder, where they can be compared."""
        units = self.folder.read_json(UNITS) or {}
        if units.get("secret") == more["secret"]:
            kinds = more.keys() - {"secret"}
            both = {kind: sorted({*units.get(kind, ()), *more[kind]}) for kind in kinds}
            self.folder.write_json(UNITS, {**units, **both})
        else:
            self.folder.remove(UNITS)

    def _restore(self) -> int:
        """Takes up the newest checkpoint; returns its round, 0 for a run from the start.

        Raises:
            ValueError: if the checkpoint is of another seed, or was written with another ledger.
        """
        checkpoint = self.folder.latest()
        if checkpoint is None:
            own = self.federation.seed
            if (seed := self.folder.config().get("seed", own)) != own:
                raise ValueError(f"{self.folder.path} was run with seed={seed}, not seed={own}")
            self.strategy.load_state(self.federation.first_state)
            checkpoint = Checkpoint(0, {}, meta=self._meta())
        else:
            self._check_meta(checkpoint)
            vectors = self.layout.vectors(checkpoint.model)
            self.arrays = to_array_record({k: v.to(self.device) for k, v in vectors.items()})
            self.strategy.load_state({k: v.numpy() for k, v in checkpoint.strategy.items()})
        self.folder.forget_after(checkpoint.round)
        now = {"rounds": self.rounds, "versions": versions()}
        before = self.folder.config()
        self.folder.write_config({**before, **(self.federation.config or {}), **now})
        return checkpoint.round

    def _forgotten(self, round: int) -> None:
        """Goes on where clients do not remember what they did at the checkpoint of a round.

        Raises:
            ValueError: if each provider has a limit, which nobody can keep then.
        """
        mechanism = self.strategy.mechanism
        if mechanism and mechanism.individual_epsilon:
            raise ValueError(
                f"{self.folder.path / CLIENTS} is not what it was after round {round}: what each "
                "provider has spent is not known, and individual_epsilon cannot be kept. Put the "
                "folder back, or start a new run"
            )
        self.exact, self.complete = self.exact and not self._remembers, False
        self.progress.note(
            "what the clients remember is not what it was at the checkpoint: no provider's own ε "
            "can be told, and rounds that depend on it are booked once more"
        )

    @property
    def _remembers(self) -> bool:
        """Whether messages depend on what clients remember of earlier rounds."""
        mechanism = self.strategy.mechanism
        return mechanism is not None and mechanism.remembers

    def _memory(self, round: int) -> str:
        """Returns a digest of what the clients have given, and later rounds depend on."""
        return state_of(self.folder.path / CLIENTS, self._oldest(round), round)

    def _oldest(self, round: int) -> int:
        """Returns the first round that rounds after this one still tell of."""
        mechanism = self.strategy.mechanism
        return round + 2 - (mechanism.bands if mechanism else 1)

    def _meta(self, round: int = 0) -> dict[str, Any]:
        """Returns what must agree for a resume to make sense, from a round on."""
        seed = {"seed": self.federation.seed}
        if not self.ledger.counts:
            return seed
        made = {**seed, "booked": len(self.ledger.releases), "ledger": self.ledger.digest()}
        return {**made, "memory": self._memory(round)}

    def _check_meta(self, checkpoint: Checkpoint) -> None:
        meta = dict(checkpoint.meta)
        memory = meta.pop("memory", "")
        booked, known = meta.pop("booked", 0), meta.pop("ledger", self.ledger.digest(0))
        if meta != {"seed": self.federation.seed}:
            raise ValueError(
                f"{self.folder.path} was run with {meta}, not {{'seed': {self.federation.seed}}}"
            )
        if self.ledger.counts and memory != self._memory(checkpoint.round):
            self._forgotten(checkpoint.round)
        if self.ledger.digest(booked) != known or booked > len(self.ledger.releases):
            raise LedgerMissing(
                f"{self.folder.path / LEDGER} has {len(self.ledger.releases)} attempts, and the "
                f"checkpoint of round {checkpoint.round} was written with another ledger, of "
                f"{booked}: it is cut, changed or of another run. Put this run's own ledger back, "
                "or start a new run"
            )

    def _round(self, round: int) -> dict[str, Any]:
        """Trains, and evaluates the model. Before round 1 nobody is asked, nothing is released."""
        began = time.monotonic()
        attempts, statistics, metrics = (
            self._attempts(round) if round else (0, RoundStatistics(0, ()), {})
        )
        trained = time.monotonic()
        metrics |= self._evaluate(round)
        return {
            "round": round,
            **metrics,
            "accepted": not self.refused,
            "attempts": attempts,
            "clients": statistics.counts(),
            **statistics.traffic(),
            "seconds": {"train": trained - began, "evaluate": time.monotonic() - trained},
        }

    def _attempts(self, round: int) -> tuple[int, RoundStatistics, dict[str, Any]]:
        """Draws the round's cohort, lets it train, and moves the model if enough have answered."""
        model, vectors = "", to_vectors(self.arrays)
        if self.ledger.counts and self.exact:
            model = digest({name: on_host(vector) for name, vector in vectors.items()})
        elif self.ledger.counts:
            model = json_digest([[n, fingerprint(v)] for n, v in sorted(vectors.items())])
        if model and self.spec.salt:  # two runs have no message in common, whatever their clients
            model = json_digest([model, salted(self.spec.key, self.spec.salt, "public")])[:32]
        known_by = [self.spec.masks, model, self.federation.seed]
        sent = json_digest(known_by)[:32] if model else ""
        if self._remembers:  # messages depend on who has answered what before
            made = [r.attempt for r in self.ledger.releases if r.attempt.round < round]
            known = [(a.round, a.attempt, a.sent, sorted(a.survivors)) for a in made]
            sent = json_digest([sent, known])[:32]
        nodes, attempt = node_ids(self.grid), 0
        while True:
            attempt = self.ledger.attempt_from(round, sent, attempt, exact=self.exact)
            if attempt:
                self.progress.note(
                    f"round {round} was begun before, and what its clients send, or who of them "
                    f"answers, is not the same now: attempt {attempt + 1} draws new noise, and "
                    "both are booked"
                )
            now = Attempt(round, attempt, len(nodes), (), (), released=False, sent=sent)
            before = self.ledger.before(now)
            must_answer = set(before.survivors) if before and before.finished else None
            statistics = RoundStatistics(self.settings.min_clients, nodes, must_answer)
            try:
                metrics = self._train(now, model, statistics)
                self.refused = 0
            except OtherAnswers:
                attempt += 1
                continue
            except TooFewClients as error:
                metrics, self.reason = {}, str(error)
                self.refused += 1
            return attempt + 1, statistics, metrics

    def _train(self, now: Attempt, model: str, statistics: RoundStatistics) -> dict[str, Any]:
        """Makes one attempt at a round; books it before anything is sent, and what became of it."""
        told = {SEED: self.federation.seed, ATTEMPT: now.attempt}
        # The server's own key: with the clients' it could draw their noise again.
        key = salted(self.spec.key, self.spec.salt or "", "server")
        config = ConfigRecord({**told, **({KEY: key, MODEL: model} if model else {})})

        cohort = self.strategy.cohort(now.round, config, self.federation.clients)
        before = self.ledger.before(now)
        known = before.heard if before else set()

        def book(*, finished: bool, released: bool) -> None:
            heard = set(statistics.survivors if finished else cohort)
            made = replace(
                now,
                cohort=tuple(sorted(cohort)),
                survivors=tuple(sorted(heard)),
                perhaps=tuple(sorted(known - heard)),
                released=released or (before is not None and before.released),
                finished=finished,
            )
            release = self.strategy.booked(made)
            if release is None:
                return
            if statistics.before is None or (finished and statistics.before == heard):
                self.ledger.book(release)
            else:  # it had come to its end before, and stays what it was then
                self.ledger.also_heard(now, known | heard)
            self._keep_booked(now)

        start = to_vectors(self.arrays).values()
        versions = [vector._version for vector in start]
        try:
            book(finished=False, released=False)
            given = self.federation.strategy
            with blaming(given, now.round):
                asked = self.strategy.configure_train(now.round, self.arrays, config, self.grid)
                if asked is None:
                    why = "configure_train returned None: expected messages, or an empty list"
                    raise StrategyFailed(given, now.round, why)
                messages = list(statistics.sending(asked))
            check_followed(given, now.round, messages, self.spec.client)
            # Once all have answered the strategy looks at the sum, and whatever ends the run then
            # is too late to keep it from being known.
            shown: Iterable[Message] = statistics.receiving(
                self.grid.send_and_receive(messages),
                self.progress.client_answered,
                functools.partial(book, finished=True, released=True)
                if self.ledger.counts
                else None,
            )
            for watcher in self.watchers:
                shown = watcher.summing(now.round, now.attempt, shown)
            shown = self._on_device(shown)
            with blaming(given, now.round):
                answer = self.strategy.aggregate_train(now.round, shown)
            if not isinstance(answer, tuple) or len(answer) != 2:
                why = f"aggregate_train returned {answer!r:.60}: expected arrays and metrics"
                raise StrategyFailed(given, now.round, why)
            arrays, metrics = answer
            if [vector._version for vector in start] != versions:
                why = "the model that it was given was changed in place: expected a new one"
                raise StrategyFailed(given, now.round, why)
            if arrays is not None:
                check_model(given, now.round, arrays, self.arrays)
        except TooFewClients:
            book(finished=True, released=False)
            raise
        finally:
            failures = self.grid.take_failures()
            self.folder.append(FAILURES, [f.to_json() for f in failures if f.reason])
        if isinstance(self.strategy, Masked) and self.strategy.revealed:
            for watcher in self.watchers:
                watcher.aggregated(now.round, now.attempt, self.strategy.revealed)
        self.arrays = self.arrays if arrays is None else arrays
        found = {name.replace("-", "_"): value for name, value in (metrics or {}).items()}
        if cut := sum(f.cut for f in failures) / max(len(statistics.survivors), 1):
            found["cut_off"] = cut
            if not any("cut_off" in record for record in self.folder.records(METRICS)):
                self.progress.note(
                    f"round {now.round}: masking.bound cuts off {cut:.2%} of the coordinates of "
                    "the updates, and their sum is another than without masking: take a larger one"
                )
        return found

    def _on_device(self, replies: Iterable[Message]) -> Iterator[Message]:
        """Yields replies whose vectors are where the model is; workers' come over the host."""
        for reply in replies:
            if not reply.has_error() and UPDATE in reply.content:
                vectors = to_vectors(reply.content.array_records[UPDATE])
                if MASKED not in vectors:  # their sum is unmasked on the host
                    there = {name: vector.to(self.device) for name, vector in vectors.items()}
                    reply.content[UPDATE] = to_array_record(there)
            yield reply
            del reply  # or it would be there while the next clients train

    def _evaluate(self, round: int) -> dict[str, float]:
        """Returns the metrics on the held-out examples, where there are any and it is time."""
        test = self.federation.bound.test
        due = round % self.settings.evaluate_every == 0 or round == self.rounds
        if test is None or not due:
            return {}
        self.layout.write(to_vectors(self.arrays))
        self.model.eval()
        scores = self._scores(test)
        for group, positions in self.federation.bound.test_groups.items():
            for name, value in self._scores(test.take(positions)).items():
                measure, slash, kind = name.partition("/")
                scores[f"{measure}_{group}{slash}{kind}"] = value
        return scores

    def _scores(self, examples: Examples) -> dict[str, float]:
        with torch.no_grad():
            scores: dict[str, float] = self.model.evaluate(examples)  # type: ignore[operator]
        return dict(scores)

    def _finish_round(self, round: int, record: dict[str, Any]) -> None:
        self.folder.append(METRICS, [record])
        if self.writing is not None and self.writing.done():
            self._written()  # an error is told after this round, whenever the next checkpoint is
        last = round == self.rounds or self._gives_up()
        if round % self.settings.checkpoint_every == 0 or last:
            self._written()
            state = {k: self._copy(f"state {k}", v) for k, v in self.strategy.state().items()}
            vectors = {k: self._copy(k, v) for k, v in to_vectors(self.arrays).items()}
            checkpoint = Checkpoint(round, self.layout.named(vectors), state, self._meta(round))
            self.writing = self.files.submit(self._write, checkpoint)

    def _copy(self, name: str, vector: torch.Tensor | NDArray[Any]) -> torch.Tensor:
        """Copies a vector into memory that is kept for the next checkpoint: new memory is slow."""
        tensor, kept = as_tensor(vector), self.copies.get(name)
        if kept is None or (kept.shape, kept.dtype) != (tensor.shape, tensor.dtype):
            pinned = tensor.device.type == "cuda"
            kept = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=pinned)
            self.copies[name] = kept
        return kept.copy_(tensor)

    def _write(self, checkpoint: Checkpoint) -> None:
        """Writes a checkpoint, on the thread for files: the next round trains meanwhile."""
        self.folder.save(checkpoint, keep=self.settings.keep_checkpoints)
        # Only now nobody needs it: killed before, the run goes on from the checkpoint before.
        forget(self.folder.path / CLIENTS, self._oldest(checkpoint.round))

    def _written(self) -> None:
        """Waits for the checkpoint that is being written, and raises its error if it failed."""
        if self.writing is not None:
            writing, self.writing = self.writing, None
            writing.result()

    def _gives_up(self) -> bool:
        """Whether too many rounds in a row have got too few answers."""
        return 0 < self.settings.max_refused <= self.refused


def _tuned(bound: FederatedDataset, finetuning: FineTuning | None, seed: int) -> FederatedDataset:
    """Returns the data bound to a model of which only the chosen part is trained.

    Raises:
        Unworkable: if the model has no such part.
    """
    if finetuning is None or finetuning == Full():
        return bound
    build = FineTuned(bound.build_model, finetuning)
    model = seeded_model(bound.build_model, seed)
    try:
        finetuning.apply(model)
    except ValueError as error:
        raise Unworkable([f"finetuning: {error}"]) from error
    return replace(bound, build_model=build, first=None)


def _training_problems(
    client: Client,
    bound: FederatedDataset,
    seed: int,
    settings: Settings,
    computing: Computing,
    first: nn.Module | None,
) -> list[str]:
    """Returns what keeps the client half from training this model on these examples.

    What it can tell by itself; and what comes up when the model reads an example: a size or a
    device that does not work is found here, not in every client of round 1.
    """
    try:
        with reproducible_torch(settings.threads, settings.device):
            model = _copied(first) or seeded_model(bound.build_model, seed)
            model = model.to(settings.device).train()
            look = getattr(client, "problems", None)
            found = [f"client: {p}" for p in look(model, bound.train)] if look else []
            found += computing.problems(client, model, settings.device)
            try:
                computing.prepare(model, compiles=False)
            except ValueError as error:
                found.append(str(error))
            if found or not hasattr(model, "loss") or not len(bound.train):
                return found
            # One, so that it takes no more memory than training does; BatchNorm wants two.
            normed = any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in model.modules())
            count = min(1 + normed, len(bound.train))
            batch = bound.train.batch(np.arange(count), settings.device)
            # Without gradients: they would take the memory of a training beside the run's.
            with isolated_randomness(torch_seed(seed, "trial")), torch.no_grad():
                with computing.autocast(batch):
                    loss: torch.Tensor = model.loss(batch)  # type: ignore[operator]
                found = computing.trial(model, bound.train, settings.device)
        if not bool(loss.isfinite()):
            return [f"model: its loss on its first examples is {loss.item()}"]
        if found:
            return found
        large = is_large(model)
        del model, look, loss, batch
        if large:  # it takes 0.2 s, which a small model would pay in every run
            gc.collect()
    except Exception as error:
        return [f"model: cannot learn from its first examples: {_in_a_line(error)}"]
    return []


def _copied(model: nn.Module | None) -> nn.Module | None:
    """Returns a copy of a model, which is quicker than drawing it; None where there is none."""
    try:
        return copy.deepcopy(model)
    except Exception:  # of something in a model of one's own that cannot be copied
        return None


def _in_a_line(error: Exception) -> str:
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def public_settings(federation: Federation) -> dict[str, Any]:
    """Returns what everybody in a federation knows of it, and nothing of its data."""
    halves = {"strategy": federation.strategy, "client": federation.spec.client}
    config = federation.config or {}
    return {
        **{name: config[name] for name in ("model", "finetuning") if name in config},
        **{name: _plain(half) for name, half in halves.items()},
        "masked": federation.masking is not None,
        "clients": federation.clients,
        **({"computing": changed} if (changed := federation.computing.changed()) else {}),
    }


def _plain(half: object) -> dict[str, Any]:
    """Returns a half's settings by name, as JSON can hold them: its fields, or plain attributes."""
    simple = (bool, int, float, str, type(None))
    fields = {k: v for k, v in vars(half).items() if k[0] != "_" and isinstance(v, simple)}
    if is_dataclass(half) and not isinstance(half, type):
        fields = asdict(half)
    known = {"class": f"{type(half).__module__}.{type(half).__qualname__}", **fields}
    plain: dict[str, Any] = json.loads(json.dumps(known, default=repr))
    return plain
