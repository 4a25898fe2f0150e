"""Task-specific pretraining on public documents before the first round (PrIeD-KIE, TSP).

The pretraining documents are public: training on them is not private, spends no budget, and the
guarantee of a run does not cover them. It helps where their labels overlap with the private ones.

The weights are cached under a hash of everything that determines them. The same settings give the
same bits, whether they are trained again or read from the cache.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import inspect
import json
import math
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from fedpriv.data import promises
from fedpriv.data.digests import documents_digest
from fedpriv.data.document import Document, DocumentSet, DocumentSource
from fedpriv.models.base import DocumentModel
from fedpriv.models.encoding_cache import code_digest
from fedpriv.privacy.message_key import structure
from fedpriv.runtime.cache import cache_folder, json_digest, write_entry
from fedpriv.runtime.outside import OutputSetting
from fedpriv.runtime.seeds import generator, torch_seed
from fedpriv.runtime.tensors import digest
from fedpriv.runtime.torch_state import isolated_randomness, reproducible_torch, seeded_model
from fedpriv.runtime.versions import versions_of
from fedpriv.training.computing import Backward, Computing
from fedpriv.training.loops import Optimizer, train_epoch

Builder = Callable[..., nn.Module]

FORMAT = 1
_META = "fedpriv"


@dataclass(frozen=True)
class Pretraining:
    """Ordinary training on public documents; prints the loss and evaluates nothing.

    Args:
        data: the source of the public documents. The user vouches that they are public: no
            guarantee covers their owners. If some of them are also among the private documents,
            fedpriv notices, and no ε of the run is then called a guarantee.
        epochs: the number of passes over the public documents.
        batch_size: the number of examples in one optimiser step.
        optimizer: the optimiser of pretraining.
        seed: the seed of the first weights and of the order of the examples. It is not the seed of
            the run, so that a sweep over seeds pretrains only once.
        cache: the folder for the pretrained weights. None takes the default folder
            (`fedpriv.models.encoding_cache`). Workers read the weights there, so on a cluster it
            must be a folder that all machines share.
        task: another task to pretrain the model for, such as "mlm"; the weights that both tasks
            share are kept. None takes the task of the run.
        settings: settings of the model that have another value in pretraining, such as a higher
            `image_size`.
        without: names of fields that nobody has labelled in the public documents, such as "total".
            Their words are then ordinary words, and there are no questions on them.
    """

    data: DocumentSource
    epochs: int = 5
    batch_size: int = 32
    optimizer: Optimizer = Optimizer()  # noqa: RUF009 - frozen
    seed: int = 0
    cache: OutputSetting | None = None
    task: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    without: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}: expected at least 1")

    def start(
        self,
        build_model: Builder,
        build: Callable[[], nn.Module],
        *,
        public: DocumentSet | None = None,
        threads: int = 1,
        device: str = "cpu",
        computing: Computing | None = None,
    ) -> Pretrained:
        """Pretrains, or reads the cached weights, and lets the model of `build` start from them.

        Args:
            build_model: builds the model to pretrain, given `labels=`.
            build: builds the model of the federation.
            public: the documents, if they have been read before; None reads them.
            threads: number of torch's threads; another number gives other bits.
            device: where to train.
            computing: how gradients are computed; None for the defaults.
        """
        path = self.weights(
            build_model, public=public, threads=threads, device=device, computing=computing
        )
        started = Pretrained(build, path)
        # Which weights are drawn does not matter here, only which of them are replaced.
        _, anew = started.model_and_anew()
        told = f"; drawn anew: {', '.join(anew)}" if anew else ""
        meta = _metadata(path)
        _say(f"{meta['documents']} documents, final loss {float(meta['loss']):.4f}{told}")
        return started

    def weights(
        self,
        build_model: Builder,
        *,
        public: DocumentSet | None = None,
        threads: int = 1,
        device: str = "cpu",
        computing: Computing | None = None,
    ) -> Path:
        """Returns the file of the weights, trained first if needed; arguments as for `start`.

        Raises:
            ValueError: if the documents cannot be used, they have no such field as one of
                `without`, or training diverges.
        """
        public, computing = public or promises.load(self.data), computing or Computing()
        public = without_fields(public, self.without)
        if not public.documents:
            raise ValueError("pretraining.data: there is no document to train on")
        build_model = self._changed(build_model)
        model = seeded_model(functools.partial(build_model, labels=public.labels), self.seed)
        if not isinstance(model, DocumentModel):
            raise ValueError(f"pretraining: {type(model).__name__} cannot read documents")
        key = json_digest(
            {
                "format": FORMAT,
                "builder": _described(build_model),
                "model": fingerprint(model),
                "code": code_digest(type(model)),
                "documents": documents_digest(public.documents),
                "labels": public.labels,
                "epochs": self.epochs,
                "batch_size": self.batch_size,
                "optimizer": dataclasses.asdict(self.optimizer),
                "seed": self.seed,
                "threads": threads,
                "device": device,
                "versions": versions_of("fedpriv", "torch", "transformers", "numpy", "pillow"),
                **({"computing": changed} if (changed := computing.changed()) else {}),
            }
        )
        folder = Path(self.cache) if self.cache is not None else cache_folder() / "pretraining"
        path = (folder / f"{key}.safetensors").resolve()
        with contextlib.suppress(OSError, SafetensorError, ValueError, TypeError, KeyError):
            _metadata(path)  # fails if the file is not there, or damaged
            return path
        with reproducible_torch(
            threads,
            device,
            deterministic=computing.deterministic,
            tf32=computing.precision == "tf32",
        ):
            loss = self._train(model, public, torch.device(device), computing)
        state = {n: t.detach().cpu().contiguous().clone() for n, t in model.state_dict().items()}
        # One entry, because safetensors writes several in an order that changes by the run.
        meta = {"tags": _tags(model), "documents": len(public.documents), "loss": loss}
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_entry(path.parent, path.name, save(state, {_META: json.dumps(meta)}))
        return path

    def _changed(self, build_model: Builder) -> Builder:
        """Returns the builder of the model to pretrain.

        Raises:
            ValueError: if the model has no such task or setting.
        """
        changes = {k: tuple(v) if isinstance(v, list) else v for k, v in self.settings.items()}
        changes |= {"task": self.task} if self.task is not None else {}
        if not changes:
            return build_model
        try:
            inspect.signature(build_model).bind(labels=(), **changes)
        except TypeError as error:
            what = ", ".join(f"{name}={value!r}" for name, value in changes.items())
            raise ValueError(
                f"pretraining: the model does not take {what} ({error}); leave it out"
            ) from error
        return functools.partial(build_model, **changes)

    def _train(
        self, model: nn.Module, public: DocumentSet, device: torch.device, computing: Computing
    ) -> float:
        """Trains the model in place; returns the mean loss of the last epoch."""
        examples = model.encode(public.documents)  # type: ignore[operator]
        model.to(device).train()
        computing.prepare(model)
        optimizer, loss = self.optimizer.build(model), math.nan
        backward = Backward(computing)
        with isolated_randomness(torch_seed(self.seed, "pretraining")):
            for epoch in range(1, self.epochs + 1):
                order = generator(self.seed, "pretraining", epoch)
                batches = examples.batches(self.batch_size, shuffle=order, device=device)
                loss = train_epoch(model, batches, optimizer, backward)
                _say(f"epoch {epoch}/{self.epochs}  loss {loss:.4f}")
                if not math.isfinite(loss):
                    raise ValueError(
                        f"pretraining: the loss is {loss} in epoch {epoch}; take a smaller "
                        f"pretraining.optimizer.lr than {self.optimizer.lr}"
                    )
        return loss


@dataclass(frozen=True)
class Pretrained:
    """Builds a model and lets it start from pretrained weights; picklable if `build` is.

    Tensors of another shape, such as the head for other labels, keep their drawn values. In a
    tagger's head the rows of tags that both models have are copied, if both heads have the same
    layers (transformers gives LayoutLMv3 another layer from ten outputs on).

    Args:
        build: builds the model.
        path: of the weights, a safetensors file, frozen weights and buffers included.
    """

    build: Callable[[], nn.Module]
    path: Path

    def __call__(self) -> nn.Module:
        """Returns a fresh model."""
        return self.model_and_anew()[0]

    def model_and_anew(self) -> tuple[nn.Module, list[str]]:
        """Returns a fresh model and the names of its tensors that are not all replaced.

        Raises:
            ValueError: if the file cannot be read.
        """
        model = self.build()
        try:
            with safe_open(self.path, framework="pt") as file:
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            tags = _metadata(self.path)["tags"]
        except (OSError, SafetensorError) as error:
            raise ValueError(
                f"{self.path}: the pretrained weights cannot be read ({error}); on a cluster, "
                "pretraining.cache must be a folder that all machines share"
            ) from error
        return model, transfer(model, tensors, tags)


def without_fields(public: DocumentSet, fields: Collection[str]) -> DocumentSet:
    """Returns the documents as if nobody had labelled some fields, or asked for them.

    The pages and their words stay as they are.

    Args:
        public: the documents.
        fields: entity labels, and keys of questions.

    Raises:
        ValueError: if the documents have no such field; lists those that they have.
    """
    if not fields:
        return public
    keys = {question.key for document in public.documents for question in document.questions}
    known = sorted(keys.union(public.labels))
    if unknown := sorted(set(fields).difference(known)):
        raise ValueError(
            f"pretraining.without: there is no field {', '.join(map(repr, unknown))}; the public "
            f"documents have {', '.join(known) or 'none'}"
        )
    return dataclasses.replace(
        public,
        documents=tuple(_without_fields(document, fields) for document in public.documents),
        labels=tuple(label for label in public.labels if label not in fields),
    )


def _without_fields(document: Document, fields: Collection[str]) -> Document:
    kept = [n for n, entity in enumerate(document.entities) if entity.label not in fields]
    places = {old: new for new, old in enumerate(kept)}
    return dataclasses.replace(
        document,
        entities=tuple(document.entities[n] for n in kept),
        questions=tuple(q for q in document.questions if q.key not in fields),
        links=tuple((places[a], places[b]) for a, b in document.links if {a, b} <= places.keys()),
    )


def transfer(model: nn.Module, tensors: Mapping[str, Tensor], tags: Sequence[str]) -> list[str]:
    """Copies tensors into the model by name if the shapes agree, and the rows of a head by tag.

    Args:
        model: may offer `tags`, the names of its head's outputs in order.
        tensors: by the names of a state dict.
        tags: of the model that the tensors come from; empty if it had none.

    Returns:
        The names of the model's tensors that are not, or only partly, overwritten.
    """
    own_tags = _tags(model)
    by_tag = _tag_tensors(model, own_tags) if own_tags != list(tags) else set()
    anew = []
    for name, own in model.state_dict().items():
        other = tensors.get(name)
        if other is None:
            anew.append(name)
        elif name in by_tag:
            if other.shape[:1] == (len(tags),) and other.shape[1:] == own.shape[1:]:
                for row, tag in enumerate(own_tags):
                    if tag in tags:
                        own[row].copy_(other[tags.index(tag)])
            anew.append(name)
        elif own.shape == other.shape:
            own.copy_(other)
        else:
            anew.append(name)
    return anew


def fingerprint(model: nn.Module) -> str:
    """Returns a hash of a model's modules, their settings, what is trained, and all numbers."""
    numbers = digest({name: tensor.detach().cpu() for name, tensor in model.state_dict().items()})
    text = json.dumps([structure(model), numbers], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _tag_tensors(model: nn.Module, tags: list[str]) -> set[str]:
    """Returns the names of the tensors with a row per tag: those of the head's last such layer."""
    head = getattr(model, "head", None)
    layers = [
        layer
        for part in (head() if head else [model])
        for layer in part.modules()
        if isinstance(layer, nn.Linear) and layer.out_features == len(tags)
    ]
    found = {id(parameter) for layer in layers[-1:] for parameter in layer.parameters()}
    return {name for name, parameter in model.named_parameters() if id(parameter) in found}


def _tags(model: nn.Module) -> list[str]:
    return [str(tag) for tag in getattr(model, "tags", ())]


def _described(build: Any) -> Any:
    """Returns a builder's name and arguments. Weights of an unnamed builder are not found again."""
    if isinstance(build, functools.partial):
        arguments = {name: repr(value) for name, value in build.keywords.items()}
        return [_described(build.func), [repr(value) for value in build.args], arguments]
    name = getattr(build, "__qualname__", None)
    return f"{build.__module__}.{name}" if name else repr(build)


def _metadata(path: Path) -> dict[str, Any]:
    with safe_open(path, framework="pt") as file:
        meta: dict[str, Any] = json.loads(file.metadata()[_META])
    return meta


def _say(line: str) -> None:
    print(f"pretraining: {line}", file=sys.stderr, flush=True)
