"""The honest-but-curious server: which messages it keeps, and what the simulation notes of them.

The server follows the protocol and looks at what it receives (GI-DQA, §3.2). Clients may collude
with it: they tell it the updates behind their masks. For each message that it keeps, the simulation
notes which examples are behind it, and when the run ends writes two files that no server would
have: what could be known of the batch (`fedpriv.threat.surfaces.batches`), and the truth
(`fedpriv.threat.truth`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from flwr.app import Message
from numpy.typing import NDArray
from torch import Tensor, nn

from fedpriv.data.examples import Examples
from fedpriv.federation.client import Client, Draw
from fedpriv.federation.dataset import FederatedDataset
from fedpriv.federation.grids.base import RoundGrid
from fedpriv.federation.grids.curious import CuriousGrid
from fedpriv.federation.keep import Prepared
from fedpriv.federation.messages import (
    CLIENT,
    METRICS,
    PARAMETERS,
    UPDATE,
    Instruction,
    RunningSum,
    add_sum,
    instruction_of,
    to_vectors,
)
from fedpriv.federation.secagg.messages import MASKED, SECAGG, words_of
from fedpriv.federation.secagg.site import own_update
from fedpriv.models.question_answering import DOCUMENT
from fedpriv.runtime.run_folder import PARTITION
from fedpriv.runtime.seeds import entropy, generator
from fedpriv.runtime.torch_state import seeded_model
from fedpriv.runtime.vectors import Vectors, over_
from fedpriv.threat.surfaces.batches import (
    BatchRows,
    PrivatePages,
    forget_rows,
    load_rows,
    note_rows,
    save_known,
    unread_rounds,
)
from fedpriv.threat.surfaces.transcript import Recorder
from fedpriv.threat.truth import save_controls, save_truth

CONTROLS = 39
"""Held-out documents that an attack's claims are held against, so that even one claim can be seen
to fit its own document better than others (`fedpriv.threat.scoring.pages`)."""


@dataclass(frozen=True)
class KeepTranscript:
    """What the server keeps of what it sees.

    Args:
        rounds: the rounds whose messages are kept; None for all.
        clients: the clients whose messages are kept; None for all. The aggregate is kept in any
            case.
        colluders: the clients that work with the server. Each of them tells it the update that it
            masked, noise included, so that its update is kept and not the masked words. Their
            messages are kept even if `clients` leaves them out. Without masking the server can
            read every update anyway. Only an attack that asks for a `ColludingTranscript` gets what
            they told; for any other, colluders behind masks have sent nothing.
        private: keys of the entities that an adversary may not know, such as "total": templates
            are blank there. None for all entities.
        truth: whether the truth behind each message is kept, without which no attack on messages
            can be scored.
        batches: whether the batches behind the messages are read at all, for the truth and for
            what could be known of them. Attacks on providers need neither, and reading takes time.
    """

    rounds: tuple[int, ...] | None = None
    clients: tuple[int, ...] | None = None
    colluders: tuple[int, ...] = ()
    private: tuple[str, ...] | None = None
    truth: bool = True
    batches: bool = True

    def __post_init__(self) -> None:
        for name, least in (("rounds", 1), ("clients", 0), ("colluders", 0)):
            wrong = [n for n in getattr(self, name) or () if n < least]
            if wrong:
                raise ValueError(f"{name}={getattr(self, name)}: expected numbers from {least} on")

    def problems(self, bound: FederatedDataset, seed: int) -> list[str]:
        """Returns which of the clients, and of the colluders, do not exist."""
        found, clients = [], len(bound.rows)
        for name in ("clients", "colluders"):
            if absent := [client for client in getattr(self, name) or () if client >= clients]:
                found.append(
                    f"keep.transcript.{name}={absent}: there are clients 0 to {clients - 1}"
                )
        return found

    def before(self, run: Prepared) -> Observation:
        """Returns what watches the run.

        Raises:
            ValueError: if the run was killed and the data are not those that it was on before.
        """
        # Row numbers that an earlier process has noted would lead to other documents.
        dealt = json.loads(json.dumps(run.bound.partition))
        if (left := unread_rounds(run.folder)) and run.folder.read_json(PARTITION) != dealt:
            raise ValueError(
                f"{run.folder.path} was ended before the batches of rounds {left} were read, and "
                f"the data are not those of {PARTITION} any more: put them back, or start a new run"
            )
        return Observation(self, run)

    def after(self, run: Prepared) -> None:
        """Writes what could be known of the batches behind the messages, and the truth."""
        rounds = unread_rounds(run.folder)
        if not rounds:
            return
        many = f"{len(rounds)} round{'s' * (len(rounds) != 1)}"
        run.tell(f"reading the batches behind the messages of {many}")
        bound, seed = run.bound, run.spec.seed
        model = seeded_model(bound.build_model, seed) if bound.documents else None
        pages = PrivatePages(bound.train, bound.documents, model, self.private)
        if self.truth and bound.test is not None:
            others = PrivatePages(bound.test, bound.held_out, model, self.private)
            controls = [others.truth(row) for row in _one_of_each(bound.test, seed)]
            # Rows without documents are named by their number, as those that are trained on are.
            named = [
                replace(one, documents=tuple(f"held-out {name}" for name in one.documents))
                for one in controls
            ]
            save_controls(run.folder, named)
        began = time.monotonic()
        for done, round in enumerate(rounds):
            if done:
                left = (time.monotonic() - began) / done * (len(rounds) - done)
                run.tell(f"batches of {done} of {many} read; about {left:.0f} s left")
            for client, batch in load_rows(run.folder, round).items():
                if not len(batch.rows):  # a batch drawn by coins may be empty
                    continue
                draw = np.random.Generator(np.random.Philox(key=batch.entropy))
                known, texts, truth = pages.read(batch.rows, draw)
                save_known(run.folder, (round, client), known, texts)
                if self.truth:  # the template is known, and lies there
                    save_truth(run.folder, (round, client), replace(truth, template=None))
            forget_rows(run.folder, round)

    def wants(self, round: int, client: int | None = None) -> bool:
        """Whether a round, or one client's message in it, is kept."""
        right_round = self.rounds is None or round in self.rounds
        everybody = client is None or self.clients is None
        return right_round and (everybody or client in (*(self.clients or ()), *self.colluders))


class Observation:
    """One run under observation.

    Args:
        observer: what to keep.
        run: the model's frozen parts and the settings are public.
    """

    def __init__(self, observer: KeepTranscript, run: Prepared) -> None:
        self.observer, self.run, self.recorder = observer, run, Recorder(run.folder)
        colluders = sorted(set(observer.colluders))
        public = {**run.settings, "labels": list(run.bound.labels), "colluders": colluders}
        self.recorder.public(public, frozen(run.model))
        self._asked: dict[int, Message] = {}
        self._last: tuple[int, int] | None = None
        self._weight = ""

    def around(self, grid: RoundGrid) -> RoundGrid:
        """Returns the grid with the observer on it."""
        self._number = {node: client for client, node in enumerate(grid.get_node_ids())}
        return CuriousGrid(grid, self._sent, self._received)

    def summing(self, round: int, attempt: int, replies: Iterable[Message]) -> Iterator[Message]:
        """Passes on what the strategy sums up, adding it up too, and writes the mean."""
        if not self.observer.wants(round):
            yield from replies
            return
        total = RunningSum()
        for reply in replies:
            self._add(total, reply)
            yield reply
        if MASKED not in total.vectors and total.clients:
            self.aggregated(round, attempt, total)

    def _add(self, total: RunningSum, reply: Message) -> None:
        """Adds a chunk's sum, or the update of one client where the strategy gets them singly."""
        if reply.has_error() or CLIENT in reply.content.metric_records[METRICS]:
            add_sum(total, reply)
            return
        metrics = dict(reply.content.metric_records[METRICS])
        weight: Any = metrics[self._weight] if self._weight else 1
        total.add(to_vectors(reply.content.array_records[UPDATE]), weight)
        client = self._number[reply.metadata.src_node_id]
        total.note([client], {name: [value] for name, value in metrics.items()})  # type: ignore[list-item]

    def aggregated(self, round: int, attempt: int, total: RunningSum) -> None:
        """Writes the mean of the updates, where the round is kept."""
        if not self.observer.wants(round):
            return
        weights = total.metrics[self._weight] if self._weight else [1] * len(total.clients)
        if sum(weights):
            mean: Vectors = {
                name: over_(v.clone() if v.is_floating_point() else v.double(), sum(weights)).to(v)
                for name, v in total.vectors.items()
            }
            self._save(round, attempt, "aggregate", mean, answered=sorted(total.clients))

    def _sent(self, message: Message) -> bool:
        """Looks at a training message on its way out; says whether its answer is wanted."""
        instruction = instruction_of(message)
        if instruction is None or not self.observer.wants(instruction.round):
            return False
        self._weight = instruction.weight
        now = instruction.round, instruction.attempt
        if now != self._last:
            self._last = now
            self._save(*now, "parameters", to_vectors(message.content.array_records[PARAMETERS]))
        client = self._number[message.metadata.dst_node_id]
        self._asked[client] = message
        return self.observer.wants(instruction.round, client)

    def _received(self, client: int, reply: Message) -> None:
        message = self._asked[client]
        instruction = instruction_of(message)
        if instruction is None:  # `_sent` has seen one
            return
        now = instruction.round, instruction.attempt
        vectors = to_vectors(reply.content.array_records[UPDATE])
        notes: dict[str, Any] = {
            "client": client,
            "metrics": dict(reply.content.metric_records[METRICS]),
        }
        if MASKED in vectors and client in self.observer.colluders:
            spec, own = self.run.spec, words_of(vectors[MASKED])
            vectors = own_update(own, message, client, spec.seed, spec.masks)
        if MASKED in vectors:
            words = vectors[MASKED].cpu().clone()
            step = message.content.config_records[SECAGG]["step"]
            notes |= {"kind": "masked", "step": step}
            self.recorder.save(*now, f"client-{client:04d}", {MASKED: words}, **notes)
        else:
            self._save(*now, f"client-{client:04d}", vectors, **notes)
        if self.observer.batches:
            self._note(client, instruction)

    def _save(self, round: int, attempt: int, name: str, vectors: Vectors, **notes: Any) -> None:
        tensors: dict[str, Tensor] = self.run.layout.named({k: v.cpu() for k, v in vectors.items()})
        self.recorder.save(round, attempt, name, tensors, kind=self.run.strategy.sends, **notes)

    def _note(self, client: int, instruction: Instruction) -> None:
        """Notes which examples a message was computed from."""
        run, spec, round = self.run, self.run.spec, instruction.round

        def draw(purpose: str) -> np.random.Generator:
            return generator(spec.seed, instruction.purpose(purpose, spec.noise), round, client)

        own = run.bound.rows[client]
        rows = own[drawn(spec.client, run.bound.train.take(own), instruction, draw)]
        unknown = instruction.purpose("random question", spec.noise)
        batch = BatchRows(rows, entropy(spec.seed, unknown, round, client))
        note_rows(run.folder, (round, client), batch)


def _one_of_each(examples: Examples, seed: int) -> list[NDArray[np.int64]]:
    """Returns a row of each held-out document, of `CONTROLS` at most, as they are drawn."""
    draw = generator(seed, "held-out documents beside messages")
    rows = draw.permutation(len(examples))
    if DOCUMENT in examples.columns:
        _, first = np.unique(examples.column(DOCUMENT)[rows], return_index=True)
        rows = rows[np.sort(first)]
    return [rows[place : place + 1] for place in range(min(CONTROLS, len(rows)))]


def frozen(model: nn.Module) -> dict[str, Tensor]:
    """Returns all of a model's state that does not travel, each tied tensor once."""
    travels = {p.data_ptr() for p in model.parameters() if p.requires_grad}
    state = model.state_dict()
    return {name: t.clone() for name, t in state.items() if t.data_ptr() not in travels}


def drawn(
    client: Client, examples: Examples, instruction: Instruction, draw: Draw
) -> NDArray[np.int64]:
    """Returns the positions of a client's examples that its message is computed from.

    All of them, unless the client half draws some and says which in a method `drawn`.
    """
    which = getattr(client, "drawn", None)
    if which is None:
        return np.arange(len(examples))
    rows: NDArray[np.int64] = which(examples, instruction, draw)
    return rows
