"""How far a page's gradient is from the one that was sent."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from fedpriv.threat.checks import check_choices

Layers = Literal["all", "pre_fusion", "post_fusion"]

FLAT = ("key.bias", "k_proj.bias", "qa_outputs.out_proj.bias")
"""Ends of the names of parameters that change no loss: a bias of all keys, or of all scores that a
softmax compares. Their gradient is zero, and what arithmetic makes of it is noise."""

FAINT = 1e-7
"""A tensor whose gradient is, in L2, a smaller share of the whole counts as zero."""

POSITIONS = re.compile(r"\.(pos_embed|position_embeddings)$")
"""Tables of a page's places; those of a text's end in `.weight`."""


class NothingToMatch(ValueError):
    """Of the tensors that an objective compares, none was sent with a gradient other than zero."""


@dataclass(frozen=True)
class Objective:
    """A weighted sum of distances between gradients g and those that were sent, g*.

    Attributes:
        mse: weight of Σ_l mean (g_l - g*_l)², l the parameter tensors (GI-DQA, Eq. 5).
        squares: of Σ_l |g_l - g*_l|² (DLG).
        relative: of Σ_l |g_l - g*_l|² / |g*_l|².
        cosine: of Σ_l 1 - cos(g_l, g*_l) (GI-DQA, Eq. 5).
        global_cosine: of 1 - cos(g, g*) over all tensors as one vector (Geiping et al. 2020).
        absolute: of Σ_l |g_l - g*_l| in L1 (TAG).
        positions: of 1 - cos for the table of the page's places alone (APRIL); nothing where there
            is no such table.
        signs: of Σ_l mean max(0, -s g_l / rms(g_l)), with s = g*_l / max |g*_l|: for updates of
            Adam, which tell the signs of a gradient and little else. It is zero where all signs
            agree, whatever the sizes (the one-sided l1 of one-bit compressed sensing; Jacques et
            al. 2013).
        layers: "pre_fusion", what a page goes through before it meets the text: embeddings and
            vision encoder; "post_fusion", all else; or "all".
        partial: whether gradients may be missing; those that are there are matched then.
        any_scale: g is first brought to the scale at which it is nearest to g*, each tensor by its
            share of its norm: for gradients that were clipped, which nobody knows how much.
    """

    mse: float = 0.0
    squares: float = 0.0
    relative: float = 0.0
    cosine: float = 0.0
    global_cosine: float = 0.0
    absolute: float = 0.0
    positions: float = 0.0
    signs: float = 0.0
    layers: Layers = "all"
    partial: bool = False
    any_scale: bool = False

    def __post_init__(self) -> None:
        check_choices(self)
        if not any(self._weights()) or not all(weight >= 0 for weight in self._weights()):
            raise ValueError(f"{self}: expected weights of 0 or more, one of them positive")

    def distance(self, gradients: Mapping[str, Tensor], sent: Mapping[str, Tensor]) -> Tensor:
        """Returns the distance, a scalar; both by the names that `choose` returned."""
        mine, theirs = [gradients[name] for name in sent], list(sent.values())
        given = torch.stack([_dot(tensor, tensor) for tensor in theirs])
        if self.any_scale:
            along, own = _Products.apply(*mine, *theirs)  # type: ignore[no-untyped-call]
            # The a for which Σ_l |a g_l - g*_l|² / |g*_l|² is least.
            scale = (along / given).sum() / ((own / given).sum() + torch.finfo(own.dtype).tiny)
            mine = [scale * tensor for tensor in mine]
        total = given.new_zeros(())
        if self.mse or self.squares or self.relative:
            sizes = given.new_tensor([tensor.numel() for tensor in theirs])
            weights = self.squares + self.mse / sizes
            if self.relative:
                weights = weights + self.relative / given
            apart = _Distances.apply(*mine, *theirs)  # type: ignore[no-untyped-call]
            total = total + (weights * apart).sum()
        if self.cosine or self.global_cosine or self.positions:
            along, own = _Products.apply(*mine, *theirs)  # type: ignore[no-untyped-call]
            total = total + self.cosine * _apart(along, own, given).sum()
            total = total + self.global_cosine * _apart(along.sum(), own.sum(), given.sum())
            tables = set(self.placed(sent) if self.positions else ())
            for place, name in enumerate(sent):
                if name in tables:
                    table = _apart(along[place], own[place], given[place])
                    total = total + self.positions * table
        if self.absolute or self.signs:
            for pair in zip(mine, theirs, strict=True):
                total = total + self._by_entry(*pair)
        return total

    @staticmethod
    def placed(names: Iterable[str]) -> list[str]:
        """Returns which of the parameters are tables of a page's places."""
        return [name for name in names if POSITIONS.search(name)]

    def _by_entry(self, mine: Tensor, theirs: Tensor) -> Tensor:
        found = mine.new_zeros(())
        if self.absolute:
            found = found + self.absolute * (mine - theirs).abs().sum()
        if self.signs:
            sure = theirs / theirs.abs().max()
            rms = (mine.square().mean() + torch.finfo(mine.dtype).tiny).sqrt()
            found = found + self.signs * (-sure * mine / rms).relu().mean()
        return found

    def _weights(self) -> tuple[float, ...]:
        return (
            self.mse, self.squares, self.relative, self.cosine, self.global_cosine, self.absolute,
            self.positions, self.signs,
        )  # fmt: skip


@dataclass(frozen=True)
class Matched:
    """Which tensors an objective compares.

    Attributes:
        names: of the parameters, in the model's order.
        left_out: name → why, of those that are of the wanted layers.
    """

    names: tuple[str, ...]
    left_out: Mapping[str, str]


def choose(model: nn.Module, gradient: Mapping[str, Tensor], objective: Objective) -> Matched:
    """Returns which tensors of a gradient are to be matched.

    Raises:
        NothingToMatch: if none is left: all are frozen, or zero.
        ValueError: if a gradient is missing, not finite, of no parameter or of another shape.
    """
    parameters = dict(model.named_parameters())
    for name, tensor in gradient.items():
        if name not in parameters:
            raise ValueError(f"{name}: the model has no parameter of this name")
        if tensor.shape != parameters[name].shape:
            raise ValueError(
                f"{name}: a gradient of shape {tuple(tensor.shape)} for a parameter of shape "
                f"{tuple(parameters[name].shape)}"
            )
        if not torch.isfinite(tensor).all():
            raise ValueError(f"{name}: the gradient holds NaN or infinity, there is no match")
    wanted = names_of(model, objective.layers)
    missing = [n for n in wanted if n not in gradient and parameters[n].requires_grad]
    if missing and not objective.partial:
        raise ValueError(
            f"there is no gradient of {missing[0]} ({len(missing)} missing in all); to match what "
            "is there, set partial=True"
        )
    left_out = dict.fromkeys(missing, "not seen")
    norms = {n: gradient[n].double().norm().item() for n in wanted if n in gradient}
    whole = sum(norm**2 for norm in norms.values()) ** 0.5
    for name, norm in norms.items():
        if name.endswith(FLAT):
            left_out[name] = "no loss depends on it"
        elif norm <= FAINT * whole:
            left_out[name] = f"its norm, {norm:.1g}, is nothing beside {whole:.1g}"
    names = tuple(name for name in norms if name not in left_out)
    if not names:
        why = "all of them are frozen (finetuning), so their gradients are not sent"
        if left_out:
            name, reason = next(iter(left_out.items()))
            others = f", and so on for {len(left_out) - 1} others" if len(left_out) > 1 else ""
            why = f"{name}: {reason}{others}"
        raise NothingToMatch(f"no gradient is left to match of layers={objective.layers!r}: {why}")
    return Matched(names, left_out)


def names_of(model: Any, layers: Layers) -> list[str]:
    """Returns the names of parameters before or after page and text meet.

    Raises:
        ValueError: if the model does not say where that is.
    """
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    if layers == "all":
        return list(names.values())
    try:
        visual, fused = model.visual(), [*model.blocks(), *model.head()]
    except AttributeError as error:
        raise ValueError(
            f"layers={layers!r}: a {type(model).__name__} does not say which layers read the page "
            "(it has no visual(), blocks() and head()); take layers='all'"
        ) from error
    seeing = _names(visual, names)
    later = _names(fused, names) | {n for n in names.values() if ".decoder." in f".{n}"}
    before = {name for name in names.values() if name in seeing or name not in later}
    return [name for name in names.values() if (name in before) == (layers == "pre_fusion")]


def _names(modules: Iterable[nn.Module], names: Mapping[int, str]) -> set[str]:
    return {names[id(p)] for module in modules for p in module.parameters() if id(p) in names}


class _Distances(torch.autograd.Function):
    """|g_l - g*_l|² of L pairs, as (L,); takes all g, then all g*.

    With its derivative by g written down, and so in few passes over the gradients: autograd's own
    passes over them several times a term, which took a fifth of an iteration (`_Products` too).
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(*pairs: Tensor) -> Tensor:
        apart = [mine - theirs for mine, theirs in _halves(pairs)]
        return torch.stack([_dot(tensor, tensor) for tensor in apart])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, slopes: Tensor) -> tuple[Tensor | None, ...]:
        halves = _halves(ctx.saved_tensors)
        steep = zip(halves, (2 * slopes).unbind(), strict=True)
        return (
            *((mine - theirs) * slope for (mine, theirs), slope in steep),
            *[None] * len(halves),
        )


class _Products(torch.autograd.Function):
    """<g_l, g*_l> and |g_l|² of L pairs, as (2, L); takes all g, then all g*."""

    generate_vmap_rule = True

    @staticmethod
    def forward(*pairs: Tensor) -> Tensor:
        along = [_dot(mine, theirs) for mine, theirs in _halves(pairs)]
        own = [_dot(mine, mine) for mine, _ in _halves(pairs)]
        return torch.stack([torch.stack(along), torch.stack(own)])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, slopes: Tensor) -> tuple[Tensor | None, ...]:
        halves, (along, own) = _halves(ctx.saved_tensors), slopes
        by_pair = zip(halves, along.unbind(), (2 * own).unbind(), strict=True)
        found = (torch.addcmul(theirs * a, mine, b) for (mine, theirs), a, b in by_pair)
        return (*found, *[None] * len(halves))


def _halves(tensors: Sequence[Tensor]) -> list[tuple[Tensor, Tensor]]:
    middle = len(tensors) // 2
    return list(zip(tensors[:middle], tensors[middle:], strict=True))


def _apart(along: Tensor, own: Tensor, given: Tensor) -> Tensor:
    """Returns 1 - cos of vectors by <g, g*>, |g|² and |g*|²."""
    # Under the root, whose derivative at zero is infinite.
    tiny = torch.finfo(own.dtype).tiny
    return 1 - along / ((own + tiny).sqrt() * (given + tiny).sqrt())


def _dot(mine: Tensor, theirs: Tensor) -> Tensor:
    # Not of flattened tensors: autograd's gradients are often transposed, and would be copied.
    return (mine * theirs).sum()
