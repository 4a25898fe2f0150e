"""Chooses which parameters are trained, and therefore sent: all, the top layers, or adapters.

PrIeD-KIE compares full fine-tuning with the top 8 layers (50 % of LayoutLMv3's parameters), the top
4 (20 %) and LoRA (1 %). Frozen parameters are neither sent nor clipped, and get no noise.

Parameters that a model itself froze stay frozen: tables that never get a gradient would only add
noise.
"""

from __future__ import annotations

import copy
import re
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from torch import nn

ATTENTION = ("query", "value", "q", "v", "q_proj", "v_proj")
"""Names of the query and value projections of attention in transformers' models."""

LORA_ON = (nn.Linear, nn.Embedding, nn.Conv1d, nn.Conv2d, nn.Conv3d)
"""The kinds of module that LoRA can adapt."""

Builder = Callable[..., nn.Module]


@runtime_checkable
class FineTunable(Protocol):
    """A model that can name its parts."""

    def blocks(self) -> Sequence[nn.Module]:
        """Returns the Transformer layers, from the input to the output."""

    def head(self) -> Sequence[nn.Module]:
        """Returns the modules that turn the last layer's output into an answer."""

    def visual(self) -> Sequence[nn.Module]:
        """Returns the modules that see the page's pixels; empty where there are none."""


class FineTuning(Protocol):
    """Chooses which parameters of a model are trained: a frozen dataclass with one method."""

    def apply(self, model: nn.Module) -> None:
        """Freezes all other parameters, and adds adapters, in place.

        Raises:
            ValueError: if the model lacks the parts to be trained; lists the parts that it has.
        """


@dataclass(frozen=True)
class Full:
    """Trains every parameter that the model itself leaves trainable.

    Args:
        visual: whether the visual encoder is trained too; false freezes it (as VT5 does, PFL-DocVQA
            App. B).
    """

    visual: bool = True

    def apply(self, model: nn.Module) -> None:
        """Freezes the visual encoder if so set."""
        if self.visual:
            return
        seen = _parts(model).visual()
        if not seen:
            raise ValueError(
                f"visual=false: {type(model).__name__} has no visual encoder to freeze; "
                "set visual=true"
            )
        for module in seen:
            module.requires_grad_(False)
        _something_left(model)


@dataclass(frozen=True)
class TopLayers:
    """Trains the last layers and the head; embeddings, visual encoder and lower layers are frozen.

    A head whose weight is tied to the embedding, as in T5, trains the embedding with it: they are
    one tensor.

    Args:
        layers: the number of layers, counted from the last, that are trained beside the head; 0
            trains the head alone.
    """

    layers: int

    def __post_init__(self) -> None:
        if self.layers < 0:
            raise ValueError(f"layers={self.layers}: expected 0 or more")

    def apply(self, model: nn.Module) -> None:
        """Freezes all but the last k layers and the head."""
        parts = _parts(model)
        blocks = list(parts.blocks())
        if self.layers > len(blocks):
            raise ValueError(
                f"layers={self.layers}: {type(model).__name__} has {len(blocks)}; take at most "
                f"{len(blocks)}, or Full to train the embeddings too"
            )
        trained = [*blocks[len(blocks) - self.layers :], *parts.head()]
        kept = {id(parameter) for module in trained for parameter in module.parameters()}
        for parameter in model.parameters():
            if id(parameter) not in kept:
                parameter.requires_grad_(False)
        _something_left(model)


@dataclass(frozen=True)
class LoRA:
    """Low-rank adapters in the layers (Hu et al. 2022), by PEFT; the head is trained in full.

    A projection W becomes W + (alpha / rank) · B·A. B starts at zero, so the model computes the
    same as before; A is drawn from the run's seed. `merged` returns a model without adapters.

    Args:
        rank: the rank r of the matrices B and A, whose product an adapter adds to a weight.
        alpha: the scale α: the output of the adapters is multiplied by alpha / rank.
        dropout: the dropout probability on the input of the adapters, in [0, 1).
        targets: the names of the modules in the layers that get adapters, as the last parts of
            their dotted names. None takes the query and value projections of attention.
    """

    rank: int = 8
    alpha: float = 16.0
    dropout: float = 0.0
    targets: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise ValueError(f"rank={self.rank}: expected 1 or more")
        if not 0 < self.alpha < float("inf"):
            raise ValueError(f"alpha={self.alpha}: expected a positive, finite number")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout={self.dropout}: expected a value in [0, 1)")
        if self.targets is not None and not self.targets:
            raise ValueError("targets=[]: name at least one module, or leave it out")

    def apply(self, model: nn.Module) -> None:
        """Freezes the model but for its head, and adds the adapters."""
        from peft import LoraConfig, inject_adapter_in_model  # seconds, for those who use it

        parts = _parts(model)
        chosen = self._chosen(model, parts.blocks())
        weights = [model.get_parameter(f"{name}.weight") for name in chosen]
        own = max(min(weight.flatten(1).shape) for weight in weights)
        if self.rank > (most := max(64, own)):
            raise ValueError(
                f"rank={self.rank}: expected at most {most}; no layer of this model has more than "
                f"rank {own} by itself"
            )
        # Before the adapters are added, because their parameters must stay trainable.
        head = [p for module in parts.head() for p in module.parameters() if p.requires_grad]
        config = LoraConfig(
            r=self.rank,
            lora_alpha=self.alpha,
            lora_dropout=self.dropout,
            # As a pattern: PEFT reads names in a list as endings, and might adapt other modules.
            target_modules="|".join(map(re.escape, chosen)),
        )
        with warnings.catch_warnings():
            # Tied weights are adapted in their layers only, never merged into the other place.
            warnings.filterwarnings("ignore", message=".*tie", category=UserWarning)
            inject_adapter_in_model(config, model)
        for parameter in head:
            parameter.requires_grad_(True)

    def _chosen(self, model: nn.Module, blocks: Iterable[nn.Module]) -> list[str]:
        """Returns the full names of the modules that `targets` names."""
        inside = {id(module) for block in blocks for module in block.modules()}
        names = [
            name
            for name, module in model.named_modules()
            if id(module) in inside and isinstance(module, LORA_ON)
        ]
        wanted = self.targets or ATTENTION
        chosen = [name for name in names if _ends(name, wanted)]
        lost = [t for t in self.targets or () if not any(_ends(name, [t]) for name in names)]
        if lost or not chosen:
            there = sorted({name.rpartition(".")[2] for name in names})
            raise ValueError(
                f"targets={list(lost or wanted)}: the layers of {type(model).__name__} have no "
                f"such module; they have {', '.join(there) or 'none that can be adapted'}"
            )
        return chosen


@dataclass(frozen=True)
class FineTuned:
    """Builds a model and chooses what is trained; picklable if `build` is.

    Args:
        build: builds the model.
        finetuning: chooses the trained parameters.
    """

    build: Builder
    finetuning: FineTuning

    def __call__(self, *args: Any, **kwargs: Any) -> nn.Module:
        """Returns a fresh model."""
        model = self.build(*args, **kwargs)
        self.finetuning.apply(model)
        return model


def merged(model: nn.Module) -> nn.Module:
    """Returns a copy with each LoRA adapter added to the weight that it adapts.

    It has the modules and names of the model before `LoRA.apply`, so that transformers'
    `save_pretrained` writes a plain checkpoint. A model without adapters is copied unchanged.
    """
    from peft.tuners.lora import LoraLayer

    plain = copy.deepcopy(model)
    for name, module in list(plain.named_modules()):
        if isinstance(module, LoraLayer):
            module.merge()
            parent, _, child = name.rpartition(".")
            setattr(plain.get_submodule(parent), child, module.get_base_layer())
    if hasattr(plain, "peft_config"):
        del plain.peft_config
    return plain


def _parts(model: nn.Module) -> FineTunable:
    if isinstance(model, FineTunable):
        return model
    lacks = [name for name in ("blocks", "head", "visual") if not hasattr(model, name)]
    raise ValueError(
        f"{type(model).__name__} does not say what its parts are: it has no {', '.join(lacks)}; "
        "give it these methods (fedpriv.training.adapters.FineTunable), or train it in full"
    )


def _something_left(model: nn.Module) -> None:
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ValueError(f"nothing of {type(model).__name__} would be trained")


def _ends(name: str, suffixes: Iterable[str]) -> bool:
    return any(name == suffix or name.endswith(f".{suffix}") for suffix in suffixes)
