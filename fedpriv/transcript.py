"""What a server received, frozen: saved as safetensors and JSON, loaded without the run.

`transcript/` in a run folder holds `transcript.json` (what is public of the run) and a folder for
each round that was observed, with the parameters sent, one file per message kept, and the
aggregate. A loaded transcript is in memory and knows no path: an attack can follow it nowhere.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from fedpriv.checkpoint import RunFolder

TRANSCRIPT = "transcript"
PUBLIC = f"{TRANSCRIPT}/transcript.json"
FROZEN = f"{TRANSCRIPT}/frozen"

Kind = Literal["gradient", "delta", "masked"]
"""A gradient; the change of a model after local training; ring elements that are useless alone."""

_META = "fedpriv"


class NoTranscript(ValueError):
    """The run folder holds no transcript, or not the part of it that is asked for."""


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
class Transcript:
    """What the server saw of a run, as far as it was kept.

    Attributes:
        rounds: in their order.
        settings: the public settings of the run: strategy, client half, masking, clients.
        frozen: what of the model's state does not travel, by name; public.
    """

    rounds: tuple[Round, ...]
    settings: Mapping[str, Any]
    frozen: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def masked(self) -> bool:
        """Whether updates were masked."""
        return any(u.kind == "masked" for r in self.rounds for u in r.uploads)


class Recorder:
    """Writes a transcript as it is seen, one file per message, so that memory does not grow.

    Args:
        folder: of the run.
    """

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder

    def public(self, settings: Mapping[str, Any], frozen: Mapping[str, Tensor]) -> None:
        """Writes what is public of the run, and what of the model's state does not travel."""
        (self.folder.path / TRANSCRIPT).mkdir(exist_ok=True)
        self.folder.write_json(PUBLIC, dict(settings))
        save_tensors(self.folder, FROZEN, frozen, {})

    def save(
        self, round: int, attempt: int, name: str, tensors: Mapping[str, Tensor], **notes: Any
    ) -> None:
        """Writes the tensors of one message, or of the server's own; `name` is the file's."""
        place = f"{TRANSCRIPT}/{_round_name(round, attempt)}"
        save_tensors(self.folder, f"{place}/{name}", tensors, notes)


def save_tensors(
    folder: RunFolder, name: str, tensors: Mapping[str, Tensor], notes: Mapping[str, Any]
) -> None:
    """Writes tensors and notes as one safetensors file, their order kept in the notes."""
    meta = {_META: json.dumps({**notes, "order": list(tensors)})}
    plain = {key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()}
    (folder.path / name).parent.mkdir(parents=True, exist_ok=True)
    folder.write(f"{name}.safetensors", save(plain, meta))


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Reads what `save_tensors` wrote: the tensors in their order, and the notes.

    Raises:
        ValueError: if the file is not whole, or not one of ours.
    """
    try:
        with safe_open(path, framework="pt") as file:
            notes: dict[str, Any] = json.loads((file.metadata() or {})[_META])
            return {key: file.get_tensor(key) for key in notes.pop("order")}, notes
    except (SafetensorError, KeyError, json.JSONDecodeError, OSError) as error:
        raise ValueError(f"{path}: cannot be read as tensors of a transcript: {error}") from error


def load(
    folder: RunFolder,
    *,
    rounds: Collection[int] | None = None,
    clients: Collection[int] | None = None,
) -> Transcript:
    """Reads a run's transcript into memory.

    Of a round that was repeated, the last attempt: what was noted of the batches is of that one.
    The files of earlier attempts lie beside it.

    Args:
        folder: of the run.
        rounds: which; none for all that were kept.
        clients: whose messages; none for all that were kept.

    Raises:
        NoTranscript: if there is none, or not of these rounds and clients.
    """
    settings = folder.read_json(PUBLIC)
    if settings is None:
        raise NoTranscript(
            f"{folder.path} has no transcript: run the federation with observer=curious"
        )
    latest = {
        _numbers(p)[0]: p for p in sorted((folder.path / TRANSCRIPT).glob("round-*"), key=_numbers)
    }
    places = list(latest.values())
    kept = [_read_round(place, clients) for place in places if _wanted(place, rounds)]
    found = {seen.round for seen in kept}
    if missing := sorted(set(rounds or ()) - found):
        every = ", ".join(place.name.removeprefix("round-").lstrip("0") for place in places)
        raise NoTranscript(f"rounds {missing} were not observed; there is {every or 'none'}")
    _require_clients([place for place in places if _wanted(place, rounds)], clients, folder)
    frozen, _ = read_tensors(folder.path / f"{FROZEN}.safetensors")
    return Transcript(tuple(kept), settings, frozen)


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
    with torch.no_grad():
        for name, tensor in {**frozen, **parameters}.items():
            state[name].copy_(tensor)
    return model.eval()


def _require_clients(
    places: Iterable[Path], clients: Collection[int] | None, folder: RunFolder
) -> None:
    seen = {_client(path) for place in places for path in place.glob("client-*.safetensors")}
    if missing := sorted(set(clients or ()) - seen):
        raise NoTranscript(
            f"{folder.path}: no message of clients {missing} was kept; there are {sorted(seen)}"
        )


def _wanted(place: Path, rounds: Collection[int] | None) -> bool:
    return rounds is None or _numbers(place)[0] in rounds


def _round_name(round: int, attempt: int) -> str:
    return f"round-{round:06d}" + (f"-attempt-{attempt}" if attempt else "")


def _numbers(place: Path) -> tuple[int, int]:
    round, _, attempt = place.name.removeprefix("round-").partition("-attempt-")
    return int(round), int(attempt or 0)


def _read_round(place: Path, clients: Collection[int] | None) -> Round:
    round, attempt = _numbers(place)
    parameters, notes = read_tensors(place / "parameters.safetensors")
    aggregate = place / "aggregate.safetensors"
    mean, about = read_tensors(aggregate) if aggregate.is_file() else (None, {})
    files = sorted(place.glob("client-*.safetensors"))
    uploads = tuple(
        _read_upload(path, parameters)
        for path in files
        if clients is None or _client(path) in clients
    )
    answered = tuple(about.get("answered", ()))
    return Round(round, attempt, answered, parameters, uploads, mean, notes["kind"])


def _client(path: Path) -> int:
    return int(path.stem.removeprefix("client-"))


def _read_upload(path: Path, parameters: Mapping[str, Tensor]) -> Upload:
    tensors, notes = read_tensors(path)
    if notes["kind"] == "masked":
        (words,) = tensors.values()
        tensors = _decoded(words, notes["step"], parameters)
    return Upload(notes["client"], notes["kind"], tensors, notes["metrics"])


def _decoded(words: Tensor, step: float, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Returns ring elements, as int32, read as if no mask were on them."""
    shaped: dict[str, Tensor] = {}
    pieces = torch.split(words, [tensor.numel() for tensor in parameters.values()])
    for (name, like), piece in zip(parameters.items(), pieces, strict=True):
        shaped[name] = (piece.to(torch.float64) * step).to(like.dtype).view(like.shape)
    return shaped
