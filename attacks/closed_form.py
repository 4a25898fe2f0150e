"""The page of a LayoutLMv3 out of one gradient, by one least-squares solve. Beyond the papers.

A patch x_p (with its bias) enters the network as z_p = W x_p + b + e_p, with e_p its position's
embedding. So with G_p = ∂L/∂z_p

    ∂L/∂e_p = G_p,     ∂L/∂W = Σ_p G_p x_pᵀ,     ∂L/∂b = Σ_p G_p,

and the page X solves Gᵀ X = ∂L/∂W, whatever the rest of the network, its loss, its stage of
training, its dropout and any scaling or clipping of the gradient. Neither the template nor the
question nor the answer is needed. LayerNorm makes every G_p orthogonal to the vector of ones, so
there may be at most hidden size - 1 unknown patches. Of a batch, only Σ_b G_bp is seen: one page.

With a template, only the patches that hold private pixels are unknown, and every value is taken
relative to white (∂L/∂b gives the sum of the G_p): the noise on the others' G_p cancels.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fedpriv.attacks.victim import (
    Message,
    MessageAccess,
    Target,
    Victim,
    check_seen,
    each,
    messages,
)
from fedpriv.threat.attack import AttackContext, NotApplicable, Outline
from fedpriv.threat.checks import check_choices, check_least
from fedpriv.threat.claims import RecoveredBatch

LESS_FIT = 3.0
"""A page that explains the gradient so many times worse than another has a template that is not the
page's. Free patches by the hundred explain noise a little better, less than this."""

WHITE = 1.0
"""A white pixel, as the network sees it (-1…1)."""


@dataclass(frozen=True)
class ClosedForm:
    """Solves for the page.

    Args:
        target: the kind of message that is attacked: "update", the update of one client;
            "aggregate", the sum of a round's updates, taken as one batch with the pages of all
            clients; or "masked", the update of one client under its mask.
        template: whether to use the template of the page where the adversary knows it. If False,
            the whole page is solved for.
        most_examples: the largest batch that is attacked; messages of more examples are refused. A
            batch of 2 or more gives one mixture of its pages, which is good for a demonstration
            only.
        noise: the standard deviation of the noise on each coordinate of the gradient, where it is
            known, as with a published defence. Above 0, the solve is corrected for it.
    """

    target: Target = "update"
    template: bool = True
    most_examples: int = 1
    noise: float = 0.0

    def __post_init__(self) -> None:
        check_choices(self)
        check_least(self, 0, "noise")

    def suits(self, outline: Outline) -> None:
        """Asks whether it is a LayoutLMv3, and whether such messages can be seen, of one page."""
        layoutlmv3_of(outline.model)
        self._check_size(check_seen(self.target, outline))

    def _check_size(self, examples: int) -> None:
        if examples > self.most_examples:
            raise NotApplicable(
                f"{examples} examples are behind the message: the gradient of the positions is "
                "the sum over them, which gives one page only; attack batches with gi_dqa_tuned"
            )

    def run(self, access: MessageAccess, context: AttackContext) -> tuple[RecoveredBatch, ...]:
        """Solves for the page of every message."""

        def recover(message: Message) -> RecoveredBatch:
            self._check_size(message.known.size)
            began = time.process_time()
            page, left_aside = self._page(message)
            seconds = time.process_time() - began
            if left_aside:
                note = "the template does not fit the gradient, and was left aside"
                context.remarks.notes.append(note)
            pages = page.expand(message.known.size, -1, -1, -1).numpy()
            return RecoveredBatch(message.key, pages, seconds=seconds)

        return each(messages(access, self.target), recover, context)

    def _page(self, message: Message) -> tuple[Tensor, bool]:
        """Returns the page, and whether the template was left aside because it does not fit."""
        victim = message.victim
        # Of a batch, one page is sought: it has no template.
        if not self.template or message.known.size > 1:
            return solve(victim, template=False, noise=self.noise), False
        page = solve(victim, noise=self.noise)
        try:
            whole = solve(victim, template=False, noise=self.noise)
        except NotApplicable:
            return page, False
        fits = misfit(victim, page) <= LESS_FIT * misfit(victim, whole)
        return (page, False) if fits else (whole, True)


def solve(victim: Victim, *, template: bool = True, noise: float = 0.0) -> Tensor:
    """Returns the page, (1, 3, H, W), float32 in 0…255.

    Args:
        victim: of a LayoutLMv3, and one example.
        template: only the patches with private pixels are unknown.
        noise: standard deviation of the noise on each coordinate of the gradient.

    Raises:
        NotApplicable: if the model is none, reads no page, or has too many patches for its width.
    """
    base = layoutlmv3_of(victim.model)
    weight = victim.gradient["network.layoutlmv3.patch_embed.proj.weight"].double()
    bias = victim.gradient["network.layoutlmv3.patch_embed.proj.bias"].double()
    positions = victim.gradient["network.layoutlmv3.pos_embed"].double()[0, 1:]
    side = base.config.patch_size
    known = patches(victim.template[:1].double() / 127.5 - 1, side)
    whole = not template or bool(victim.private.all())
    free = torch.ones(len(positions), dtype=torch.bool)
    if not whole:
        free = patches(victim.private[:1].double().expand(-1, 3, -1, -1), side).amax(1) > 0
    unknown, most = int(free.sum()), base.config.hidden_size - 1
    if unknown > most:
        raise NotApplicable(
            f"{unknown} patches are unknown, and the gradients of a network of width {most + 1} "
            f"tell at most {most} apart: take a template (assume.template=true), fewer private "
            "fields, or larger patches"
        )
    # Relative to white: ∂L/∂W - ∂L/∂b 1ᵀ = Σ_p G_p (x_p - 1)ᵀ.
    right = weight.flatten(1) - WHITE * bias[:, None]
    right -= positions[~free].T @ (known[~free] - WHITE)
    found = known.clone()
    found[free] = _least_squares(positions[free].T, right, noise) + WHITE
    page = unpatched(found, side, victim.template.shape[-2:])
    return ((page + 1) * 127.5).clamp(0, 255).float()


def misfit(victim: Victim, page: Tensor) -> float:
    """Returns |∂L/∂W - Σ_p G_p x_pᵀ| for a page, (1, 3, H, W) in 0…255."""
    base = layoutlmv3_of(victim.model)
    weight = victim.gradient["network.layoutlmv3.patch_embed.proj.weight"].double().flatten(1)
    positions = victim.gradient["network.layoutlmv3.pos_embed"].double()[0, 1:]
    rows = patches(page.double() / 127.5 - 1, base.config.patch_size)
    return float((weight - positions.T @ rows).norm())


def layoutlmv3_of(model: nn.Module) -> Any:
    """Returns the LayoutLMv3 in a model.

    Raises:
        NotApplicable: if there is none, or it reads no page, or its patches or positions are
            frozen.
    """
    base = getattr(getattr(model, "network", None), "layoutlmv3", None)
    if base is None:
        raise NotApplicable(
            f"{type(model).__name__} adds no learned position to its patches, without which there "
            "is no closed form: it is for LayoutLMv3"
        )
    if not base.config.visual_embed:
        raise NotApplicable("this LayoutLMv3 reads no page (model.image=false)")
    if not (base.pos_embed.requires_grad and base.patch_embed.proj.weight.requires_grad):
        raise NotApplicable(
            "the patch embedding or the positions are frozen (finetuning), so their gradients are "
            "not sent"
        )
    return base


def patches(pages: Tensor, side: int) -> Tensor:
    """Returns the patches of one page, (1, C, H, W) → (patches, C·side²)."""
    return nn.functional.unfold(pages, side, stride=side)[0].T


def unpatched(rows: Tensor, side: int, size: torch.Size) -> Tensor:
    """Returns the page of its patches, (patches, C·side²) → (1, C, H, W)."""
    return nn.functional.fold(rows.T[None], (size[0], size[1]), side, stride=side)


def _least_squares(left: Tensor, right: Tensor, noise: float) -> Tensor:
    """Returns X with left · X ≈ right.

    Noise of deviation s on `left`, of n rows, adds n s² to every eigenvalue of leftᵀ left and so
    makes the solution too small. It is taken off again, down to 2 n s², below which all is noise.
    """
    if not noise:
        exact: Tensor = torch.linalg.lstsq(left, right, driver="gelsd").solution
        return exact
    values, vectors = torch.linalg.eigh(left.T @ left)
    added = len(left) * noise**2
    values = (values - added).clamp(min=2 * added)
    solution: Tensor = vectors @ (vectors.T @ (left.T @ right) / values[:, None])
    return solution
