"""What a server received, frozen: saved as safetensors and JSON, loaded without the run.

`transcript/` in a run folder holds `transcript.json` (what is public of the run) and a folder for
each round that was observed, with the parameters sent, one file per message kept, and the
aggregate. A loaded transcript is in memory and knows no path: an attack can follow it nowhere.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from fedpriv.runtime.run_files import Damaged
from fedpriv.runtime.run_folder import RunFolder
from fedpriv.runtime.tensors import read_tensors, save_tensors
from fedpriv.threat.attack import NotGranted
from fedpriv.threat.settings import AttackSettings
from fedpriv.threat.surfaces.base import (
    COLLUDING,
    PUBLIC,
    SERVER,
    TRANSCRIPT,
    AttackedRun,
    InWords,
    Surface,
)

FROZEN = f"{TRANSCRIPT}/frozen"

Kind = Literal["gradient", "delta", "masked"]
"""A gradient; the change of a model after local training; ring elements that are useless alone."""


class NoTranscript(ValueError):
    """The run folder does not hold the part of the transcript that is asked for."""


@dataclass(frozen=True, kw_only=True)
class TranscriptSettings(AttackSettings):
    """Which messages are attacked.

    Args:
        rounds: the numbers of the rounds whose messages are attacked. None attacks every round of
            which the run kept messages.
        clients: the numbers of the clients whose messages are attacked. None attacks every client
            of which the run kept messages.
    """

    rounds: tuple[int, ...] | None = None
    clients: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("rounds", "clients"):
            if getattr(self, name) == ():
                raise ValueError(f"{name}=[]: name at least one; null takes all that were kept")


def public(folder: RunFolder) -> dict[str, Any]:
    """Returns what is public of a run whose messages were kept.

    Raises:
        NotGranted: if none were.
    """
    settings: dict[str, Any] | None = folder.read_json(PUBLIC)
    if settings is None:
        raise NotGranted(
            "the run kept nothing of what its server saw",
            "keep=transcript when the federation is run (it has no effect on the training)",
            again=["keep=transcript"],
        )
    return settings


def view(run: AttackedRun) -> ColludingTranscript:
    """Returns what the server saw, and what colluding clients told it."""
    chosen = run.settings.of(TranscriptSettings)
    return load(run.folder, rounds=chosen.rounds, clients=chosen.clients)


@dataclass(frozen=True)
class Upload:
    """One client's message.

    Attributes:
        client: its number.
        kind: what the tensors are. Of a masked message they are what decoding it as if it were not
            masked gives.
        tensors: by parameter name, in the model's shapes.
        metrics: the numbers sent beside them.
    """

    client: int
    kind: Kind
    tensors: Mapping[str, Tensor]
    metrics: Mapping[str, float | int] = field(default_factory=dict)


@dataclass(frozen=True)
class Round:
    """One attempt at a round, as the server saw it.

    Attributes:
        round: from 1.
        attempt: from 0.
        answered: the clients in the aggregate.
        parameters: the global parameters that were sent, by name.
        uploads: the messages that were kept, by ascending client.
        aggregate: the mean of the updates (weighted as the strategy weights them); none where the
            attempt failed.
        kind: of the aggregate.
    """

    round: int
    attempt: int
    answered: tuple[int, ...]
    parameters: Mapping[str, Tensor]
    uploads: tuple[Upload, ...]
    aggregate: Mapping[str, Tensor] | None
    kind: Kind


@dataclass(frozen=True)
class Transcript(Surface, observer=SERVER, keeper="transcript", takes=TranscriptSettings):
    """What the server saw of a run, as far as it was kept.

    Attributes:
        rounds: in their order.
        settings: the public settings of the run: strategy, client half, masking, clients; and which
            of these collude with the server.
        frozen: what of the model's state does not travel, by name; public.
    """

    rounds: tuple[Round, ...]
    settings: Mapping[str, Any]
    frozen: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def masked(self) -> bool:
        """Whether updates were masked; what colluders have told the server is not."""
        kinds = {upload.kind for seen in self.rounds for upload in seen.uploads}
        return bool(self.settings.get("masked")) or "masked" in kinds

    @property
    def colluders(self) -> frozenset[int]:
        """The clients that work with the server: of updates that are masked, it reads theirs."""
        return frozenset(self.settings.get("colluders", ()))

    def alone(self) -> Transcript:
        """Returns what the server saw by itself, without what colluding clients told it.

        Without masks nobody has anything to tell, and a colluder's update is one like any other.
        """
        told = self.colluders if self.masked else frozenset[int]()
        rounds = tuple(
            replace(seen, uploads=tuple(u for u in seen.uploads if u.client not in told))
            for seen in self.rounds
        )
        settings = {key: value for key, value in self.settings.items() if key != "colluders"}
        return Transcript(rounds, settings, self.frozen)

    @classmethod
    def granted(cls, run: AttackedRun) -> tuple[Transcript, InWords]:
        """The messages and models of the rounds that were kept."""
        return run.once(view).alone(), ()

    @classmethod
    def check(cls, run: AttackedRun) -> None:
        """Whether messages were kept."""
        public(run.folder)


@dataclass(frozen=True)
class ColludingTranscript(Transcript, observer=COLLUDING):
    """What the server saw, and the updates that colluding clients told it."""

    @classmethod
    def granted(cls, run: AttackedRun) -> tuple[ColludingTranscript, InWords]:
        """The same, and the updates that colluding clients masked."""
        seen = run.once(view)
        if not (seen.masked and seen.colluders):
            return seen, ()
        named = ", ".join(map(str, sorted(seen.colluders)))
        words = f"these clients collude with the server, which knows their updates: {named}"
        return seen, (words,)


class Recorder:
    """Writes a transcript as it is seen, one file per message, so that memory does not grow.

    Args:
        folder: of the run.
    """

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder

    def public(self, settings: Mapping[str, Any], frozen: Mapping[str, Tensor]) -> None:
        """Writes what is public of the run, and what of the model's state does not travel."""
        self.folder.write_json(PUBLIC, dict(settings))
        save_tensors(self.folder, FROZEN, frozen, {})

    def save(
        self, round: int, attempt: int, name: str, tensors: Mapping[str, Tensor], **notes: Any
    ) -> None:
        """Writes the tensors of one message, or of the server's own; `name` is the file's."""
        save_tensors(self.folder, f"{_place(round, attempt)}/{name}", tensors, notes)


def load(
    folder: RunFolder,
    *,
    rounds: Collection[int] | None = None,
    clients: Collection[int] | None = None,
) -> ColludingTranscript:
    """Reads a run's transcript into memory.

    Of a round that was repeated, the last attempt: what was noted of the batches is of that one.
    The files of earlier attempts lie beside it.

    Args:
        folder: of the run.
        rounds: which; none for all that were kept.
        clients: whose messages; none for all that were kept.

    Raises:
        NotGranted: if there is none.
        NoTranscript: if there is none of these rounds and clients.
    """
    settings = public(folder)
    attempts = sorted(_numbers(folder, name) for name in folder.names(TRANSCRIPT, "round-*"))
    latest = dict(attempts)
    if missing := sorted(set(rounds or ()) - latest.keys()):
        raise NoTranscript(
            f"{folder.path}: rounds={missing}: expected rounds whose messages were kept, "
            f"{list(latest)}"
        )
    wanted = {r: attempt for r, attempt in latest.items() if rounds is None or r in rounds}
    kept = [_read_round(folder, round, attempt, clients) for round, attempt in wanted.items()]
    seen = {client for r, a in wanted.items() for client in _clients(folder, _place(r, a))}
    if missing := sorted(set(clients or ()) - seen):
        raise NoTranscript(
            f"{folder.path}: clients={missing}: expected clients whose messages were kept, "
            f"{sorted(seen)}"
        )
    frozen, _ = read_tensors(folder, FROZEN)
    return ColludingTranscript(tuple(kept), settings, frozen)


def loaded(
    model: nn.Module,
    parameters: Mapping[str, Tensor],
    frozen: Mapping[str, Tensor],
) -> nn.Module:
    """Returns the model with the parameters that were sent, in evaluation mode.

    Raises:
        ValueError: if they are another model's.
    """
    own = {name: p for name, p in model.named_parameters() if p.requires_grad}
    for name, parameter in own.items():
        given = parameters.get(name)
        if given is None or given.shape != parameter.shape:
            there = "nothing" if given is None else f"a tensor of {tuple(given.shape)}"
            raise ValueError(
                f"the transcript is of another model: for {name} of {tuple(parameter.shape)} it "
                f"has {there}"
            )
    odd = sorted(set(parameters) - set(own) - set(dict(model.named_buffers())))
    if odd:
        raise ValueError(f"the transcript is of another model: this one has no {odd[0]}")
    state = model.state_dict()
    if strange := sorted(set(frozen) - set(state)):
        raise ValueError(f"the transcript is of another model: this one has no {strange[0]}")
    if bent := sorted(name for name in frozen if frozen[name].shape != state[name].shape):
        raise ValueError(f"the transcript is of another model: {bent[0]} has another shape")
    with torch.no_grad():
        for name, tensor in {**frozen, **parameters}.items():
            state[name].copy_(tensor)
    return model.eval()


def _place(round: int, attempt: int) -> str:
    return f"{TRANSCRIPT}/round-{round:06d}" + (f"-attempt-{attempt}" if attempt else "")


def _numbers(folder: RunFolder, name: str) -> tuple[int, int]:
    """Returns round and attempt of a folder in the transcript."""
    numbers = re.fullmatch(r"round-(\d{6,9})(?:-attempt-(\d{1,9}))?", name, re.ASCII)
    if numbers is None:
        raise Damaged(f"{folder.path / TRANSCRIPT / name} is no round's: expected round-000001")
    return int(numbers[1]), int(numbers[2] or 0)


def _clients(folder: RunFolder, place: str) -> list[int]:
    """Returns the clients whose messages were kept of a round."""
    names = folder.names(place, "client-*.safetensors")
    numbers = [name.removeprefix("client-").removesuffix(".safetensors") for name in names]
    for number in numbers:
        if not (number.isascii() and number.isdigit()):
            raise Damaged(f"{folder.path / place}/client-{number}.safetensors is no client's")
    return sorted(map(int, numbers))


def _read_round(
    folder: RunFolder, round: int, attempt: int, clients: Collection[int] | None
) -> Round:
    place = _place(round, attempt)
    parameters, notes = read_tensors(folder, f"{place}/parameters")
    there = folder.has(f"{place}/aggregate.safetensors")
    mean, about = read_tensors(folder, f"{place}/aggregate") if there else (None, {})
    uploads = tuple(
        _read_upload(folder, f"{place}/client-{client:04d}", parameters)
        for client in _clients(folder, place)
        if clients is None or client in clients
    )
    with folder.making_sense_of(f"{place}/parameters.safetensors"):
        kind = _kind(notes["kind"])
    with folder.making_sense_of(f"{place}/aggregate.safetensors"):
        answered = tuple(map(operator.index, about.get("answered", ())))
        _check_shapes(mean or {}, parameters)
    return Round(round, attempt, answered, parameters, uploads, mean, kind)


def _read_upload(folder: RunFolder, name: str, parameters: Mapping[str, Tensor]) -> Upload:
    tensors, notes = read_tensors(folder, name)
    with folder.making_sense_of(f"{name}.safetensors"):
        kind = _kind(notes["kind"])
        if kind == "masked":
            (words,) = tensors.values()
            tensors = _decoded(words, notes["step"], parameters)
        _check_shapes(tensors, parameters)
        return Upload(operator.index(notes["client"]), kind, tensors, dict(notes["metrics"]))


def _kind(value: Any) -> Kind:
    if value not in get_args(Kind):
        raise ValueError(f"kind={value!r}: expected one of {', '.join(get_args(Kind))}")
    kind: Kind = value
    return kind


def _check_shapes(tensors: Mapping[str, Tensor], parameters: Mapping[str, Tensor]) -> None:
    """Raises `ValueError` if tensors that go with parameters are not like them."""
    for name, tensor in tensors.items():
        like = parameters.get(name)
        if like is not None and (tensor.shape != like.shape or tensor.dtype != like.dtype):
            raise ValueError(
                f"{name} is {tuple(tensor.shape)} of {tensor.dtype}, and the parameter "
                f"{tuple(like.shape)} of {like.dtype}"
            )


def _decoded(words: Tensor, step: float, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Returns ring elements, as int32, read as if no mask were on them."""
    shaped: dict[str, Tensor] = {}
    pieces = torch.split(words, [tensor.numel() for tensor in parameters.values()])
    for (name, like), piece in zip(parameters.items(), pieces, strict=True):
        shaped[name] = (piece.to(torch.float64) * step).to(like.dtype).view(like.shape)
    return shaped
