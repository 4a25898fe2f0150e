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
        return GradientDistance(self, sent)(gradients)[0]

    @staticmethod
    def placed(names: Iterable[str]) -> list[str]:
        """Returns which of the parameters are tables of a page's places."""
        return [name for name in names if POSITIONS.search(name)]

    def _weights(self) -> tuple[float, ...]:
        return (
            self.mse, self.squares, self.relative, self.cosine, self.global_cosine, self.absolute,
            self.positions, self.signs,
        )  # fmt: skip


_Tensors = Sequence[Tensor]


class GradientDistance:
    """Measures how far gradients are from those that were sent, and the slopes of that distance.

    The slopes are written down, by <g_l, g*_l>, |g_l|² and |g_l - g*_l|² of each tensor: autograd
    would go over all gradients several times a term, which took a fifth of an iteration.

    Args:
        objective: the distance.
        sent: g*, by the names that `choose` returned.
    """

    def __init__(self, objective: Objective, sent: Mapping[str, Tensor]) -> None:
        self._objective, self._names, self._sent = objective, list(sent), list(sent.values())
        self._given = _dots(self._sent, self._sent)
        sizes = torch.tensor([tensor.numel() for tensor in self._sent]).to(self._given)
        weights = objective.squares + objective.mse / sizes
        if objective.relative:
            weights = weights + objective.relative / self._given
        self._weights = weights
        tables = set(objective.placed(sent) if objective.positions else ())
        on_tables = torch.tensor([name in tables for name in sent]).to(self._given)
        self._cosines = objective.cosine + objective.positions * on_tables
        self._apart = bool(objective.mse or objective.squares or objective.relative)
        self._along = bool(objective.cosine or objective.global_cosine or objective.positions)

    def __call__(self, gradients: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Returns the distance, a scalar, and its derivative by each of the gradients.

        Args:
            gradients: g, at least those of the names that were sent.
        """
        mine = [gradients[name] for name in self._names]
        with torch.no_grad():
            far, slopes = self._scaled(mine) if self._objective.any_scale else self._of(mine)
        return far, dict(zip(self._names, slopes, strict=True))

    def _scaled(self, mine: _Tensors) -> tuple[Tensor, _Tensors]:
        """Brings g to a g with the a for which Σ_l |a g_l - g*_l|² / |g*_l|² is least."""
        top = (_dots(mine, self._sent) / self._given).sum()
        own = (_dots(mine, mine) / self._given).sum()
        bottom = own + torch.finfo(own.dtype).tiny
        scale = top / bottom
        far, slopes = self._of([scale * tensor for tensor in mine])
        # The slopes by g are a times those by a g, and a itself depends on g.
        by_sent = _dots(slopes, mine).sum() / bottom / self._given
        by_mine = (-2 * scale * by_sent).unbind()
        of_each = zip(slopes, self._sent, mine, by_sent.unbind(), by_mine, strict=True)
        return far, [
            torch.addcmul(torch.addcmul(scale * t, s, a), g, b) for t, s, g, a, b in of_each
        ]

    def _of(self, mine: _Tensors) -> tuple[Tensor, _Tensors]:
        objective, far = self._objective, self._given.new_zeros(())
        slopes: _Tensors = ()
        if self._apart:
            slopes = [g - s for g, s in zip(mine, self._sent, strict=True)]
            far = far + (self._weights * _dots(slopes, slopes)).sum()
        if self._along:
            more, by_sent, by_mine = self._turned(mine)
            far = far + more
            if self._apart:  # g* is g less what lies between, so that little cancels near the end
                by_apart, by_mine = 2 * self._weights - by_sent, by_mine + by_sent
                of_each = zip(slopes, mine, by_apart.unbind(), by_mine.unbind(), strict=True)
                slopes = [torch.addcmul(d.mul_(w), g, b) for d, g, w, b in of_each]
            else:
                of_each = zip(self._sent, mine, by_sent.unbind(), by_mine.unbind(), strict=True)
                slopes = [torch.addcmul(s * a, g, b) for s, g, a, b in of_each]
        elif self._apart:
            slopes = [d.mul_(w) for d, w in zip(slopes, (2 * self._weights).unbind(), strict=True)]
        if objective.absolute or objective.signs:
            by_entry = [self._by_entry(*pair) for pair in zip(mine, self._sent, strict=True)]
            far = far + sum(more for more, _ in by_entry)
            found = [slope for _, slope in by_entry]
            slopes = [a + b for a, b in zip(slopes, found, strict=True)] if slopes else found
        return far, slopes

    def _turned(self, mine: _Tensors) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the sum of all 1 - cos, and what g*_l and g_l count in its slopes, each (L,)."""
        along, own = _dots(mine, self._sent), _dots(mine, mine)
        terms = _one_minus_cosine(along, own, self._given)
        far, by_along, by_own = (self._cosines * term for term in terms)
        far = far.sum()
        if weight := self._objective.global_cosine:
            sums = (values.sum() for values in (along, own, self._given))
            more, of_along, of_own = _one_minus_cosine(*sums)
            far = far + weight * more
            by_along, by_own = by_along + weight * of_along, by_own + weight * of_own
        return far, by_along, by_own

    def _by_entry(self, mine: Tensor, sent: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the terms that are no function of norms and products, and their slope."""
        objective = self._objective
        far, slope = mine.new_zeros(()), torch.zeros_like(mine)
        if objective.absolute:
            apart = mine - sent
            far = far + objective.absolute * apart.abs().sum()
            slope = slope + objective.absolute * apart.sign()
        if objective.signs:
            sure = sent / sent.abs().max()
            square = mine.square().mean() + torch.finfo(mine.dtype).tiny
            rms = square.sqrt()
            wrong = (-sure * mine / rms).relu()
            far = far + objective.signs * wrong.mean()
            by_entry = torch.where(wrong > 0, -sure / rms, 0.0) - wrong.mean() * mine / square
            slope = slope + objective.signs / mine.numel() * by_entry
        return far, slope


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


def _one_minus_cosine(along: Tensor, own: Tensor, given: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Returns 1 - cos of g and g* by <g, g*>, |g|² and |g*|², and what g* and g count in its slope.

    The slope by g is g* times the second and g times the third.
    """
    # Under the root: a gradient of zero has a finite slope.
    tiny = torch.finfo(own.dtype).tiny
    lengths = (own + tiny).sqrt() * (given + tiny).sqrt()
    cosine = along / lengths
    return 1 - cosine, -1 / lengths, cosine / (own + tiny)


def _dots(left: _Tensors, right: _Tensors) -> Tensor:
    """Returns the inner products of L pairs, (L,)."""
    # Not of flattened tensors: where autograd's gradients are transposed, they would be copied.
    return torch.stack([(one * other).sum() for one, other in zip(left, right, strict=True)])
