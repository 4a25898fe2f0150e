"""FL-PROVIDER-DP's client half: PFL-DocVQA (Tito et al. 2024), Algorithm 1 lines 10–19.

For each provider P drawn from the client's own, train T_gd AdamW steps from w_{t-1} on P's
documents and clip the change to norm C; send u_k = (1/M) (Σ_P Δ̂_P + N(0, σ²C²I/|K|)).

The listing draws a fixed number |M| of providers; here each is drawn by a coin of its own, in both
variants, which is what the accountants assume.

Under a mechanism whose unit is the client, all its documents count as one provider's. Under one
with bands, a provider has its turn in one round of several, and a message tells of several rounds:
see `fedpriv.clients.banded` and the strategy `provider_bandmf`.

Each client remembers how long its providers' changes were, from which a provider's own ε follows,
and may be limited (`fedpriv.privacy.individual`).

Every provider starts from the same model, buffers included, and from random numbers of its own, so
that one provider's change does not depend on which others were drawn: that is what the sensitivity
C assumes.

With T_gd = 1 the steps of many providers can be computed together by vmap, which saves most of what
one step costs beside its gradient. Models with dropout take the providers one by one, because
their random numbers would come from one generator for all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fedpriv.clients.banded import in_turn, memory_of, owed, with_owed
from fedpriv.clients.share import with_share
from fedpriv.data.examples import PROVIDER, Examples
from fedpriv.federation.audit.axes import contributions
from fedpriv.federation.client import ClientContext, ClientUpdate, Draw
from fedpriv.federation.messages import Instruction
from fedpriv.federation.private_strategy import TOLD
from fedpriv.federation.secagg.discrete import steps_of
from fedpriv.privacy import individual
from fedpriv.privacy.clipping import clip
from fedpriv.privacy.mechanism import Mechanism
from fedpriv.runtime.tensors import digest
from fedpriv.runtime.torch_state import isolated_randomness
from fedpriv.runtime.vectors import Vector
from fedpriv.training.computing import Backward, Computing
from fedpriv.training.loops import Optimizer, train_steps
from fedpriv.training.per_example import (
    Way,
    batch_gradients,
    failure_of_vmap,
    unused_parameters,
    vmap_or_loop,
)

Members = Mapping[int, NDArray[np.int64]]
"""The positions of each drawn provider's examples."""

Norms = dict[int, float]
"""The norm of each drawn provider's clipped change, or the most that it may be."""

LEAST = 1e-6
"""The share of C below which what is left to a provider is nothing."""


@dataclass(frozen=True)
class ProviderUpdates:
    """Trains on each provider's documents alone, from the global model.

    Args:
        steps: the number of optimiser steps on the examples of one provider (T_gd), which are
            shuffled anew at each pass.
        batch_size: the number of examples in one optimiser step; 8 in the paper.
        optimizer: the optimiser, which is made anew for each provider; AdamW with a learning rate
            of 2e-4 in the paper.
        method: how a single step of each provider is computed: "loop" takes one provider after the
            other, "vmap" many at once. The changes are the same up to rounding. "auto" takes vmap
            on a GPU and for small models on a CPU, and the loop if there are more steps than one,
            if another setting of the training needs it, or if vmap fails, as it does with
            dropout. With "vmap", a failure is an error.
    """

    action: ClassVar[str] = "provider_updates"
    computes: ClassVar[tuple[str, ...]] = ("precision", "microbatch", "compile")
    follows: ClassVar[tuple[str, ...]] = TOLD

    steps: int = 1
    batch_size: int = 8
    optimizer: Optimizer = Optimizer()  # noqa: RUF009 - frozen
    method: Literal["auto", "vmap", "loop"] = "auto"

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}: expected at least 1")
        if self.method not in ("auto", "vmap", "loop"):
            raise ValueError(f"method={self.method!r}: expected 'auto', 'vmap' or 'loop'")
        if self.method == "vmap" and self.steps > 1:
            raise ValueError(
                f"method='vmap': only one step of each provider can be computed so, and "
                f"steps={self.steps}; take 'auto' or 'loop'"
            )

    def problems(self, model: nn.Module, train: Examples) -> list[str]:
        """Returns a problem if the examples do not name their providers."""
        if PROVIDER in train.columns:
            return []
        return [f"the examples have no column {PROVIDER!r}: whose each example is, as integers"]

    def train(self, context: ClientContext) -> ClientUpdate:
        """Returns u_k."""
        mechanism = Mechanism.from_settings(context.instruction.settings)
        owners = _owners(context.examples, mechanism)
        drawn, purpose = _sample(owners, mechanism, context.generator), "privacy noise"
        earlier, left = dict[int, NDArray[Any]](), Norms()
        if mechanism.bands > 1:
            drawn = in_turn(context, drawn, mechanism.bands)
            earlier = owed(context, mechanism.bands)
        if mechanism.individual_epsilon:
            left = _left(context, drawn, mechanism)
        if mechanism.remembers:
            asked, depends = context.instruction, _digest(earlier, left)
            memory_of(context).same(asked.round, asked.attempt, depends)
            # Two messages that differ may not have the same noise.
            purpose += f", {depends}" if context.key else ""
        # Whole numbers promise more than the rounding of sums in single precision would keep.
        dtype = torch.float64 if mechanism.scale else context.parameters["float"].dtype
        total, given = self._clipped_sum(context, owners, drawn, mechanism.clip_norm, left, dtype)
        _remember(context, mechanism, given)
        if mechanism.bands > 1:
            total = with_owed(context, total, earlier, mechanism.bands)
        total = with_share(context, total, mechanism, mechanism.normaliser, purpose)
        return ClientUpdate({"float": total}, {})

    def drawn(self, examples: Examples, instruction: Instruction, draw: Draw) -> NDArray[np.int64]:
        """Returns the positions of the examples of M; of all, where earlier rounds are sent too."""
        mechanism = Mechanism.from_settings(instruction.settings)
        if mechanism.bands > 1:
            return np.arange(len(examples))
        owners = _owners(examples, mechanism)
        return np.flatnonzero(np.isin(owners, _sample(owners, mechanism, draw)))

    def choice(
        self, model: nn.Module, device: torch.device | str, computing: Computing
    ) -> tuple[Way, str]:
        """Returns how the providers' changes are computed, and the reason.

        With "auto" and one step it is what `vmap_or_loop` says of this model and device.
        """
        if self.method != "auto":
            return self.method, "set"
        if self.steps > 1:
            return "loop", f"automatic: {self.steps} steps"
        if computing.alone:
            return "loop", f"automatic: training.{computing.alone}"
        return vmap_or_loop(model, device, computing)

    def on_axes(self, axes: int) -> ProviderUpdates:
        """Returns this half for an audit (`fedpriv.federation.audit.axes.HasAxes`)."""
        own = {f.name: getattr(self, f.name) for f in fields(ProviderUpdates)}
        return _OnAxes(**own)

    def steepest(self, clip_norm: float, method: Way) -> ProviderUpdates:
        """Returns this half with an optimiser whose steps are as long as the gradient demands."""
        way: Way = "loop" if self.steps > 1 else method
        return replace(self, optimizer=Optimizer(name="sgd", lr=clip_norm), method=way)

    def _clipped_sum(
        self,
        context: ClientContext,
        owners: NDArray[np.int64],
        drawn: NDArray[np.int64],
        clip_norm: float,
        left: Norms,
        dtype: torch.dtype,
    ) -> tuple[Vector, Norms]:
        """Returns Σ_P Δ̂_P and each norm; notes the providers whose change is not finite.

        Args:
            context: of the client.
            owners: the provider of each example.
            drawn: M.
            clip_norm: C.
            left: by provider, the norm that it may still give; C for all others.
            dtype: in which they are added up.
        """
        giving = [provider for provider in drawn.tolist() if left.get(provider, clip_norm) > 0]
        members = {provider: np.flatnonzero(owners == provider) for provider in giving}
        total, notes = torch.zeros_like(context.parameters["float"], dtype=dtype), list[str]()
        given: Norms = {}

        def add(changes: Iterable[tuple[int, Vector]]) -> None:
            total.zero_()
            notes.clear()
            for provider, change in changes:
                most = min(clip_norm, left.get(provider, clip_norm))
                clipped = clip(change, most)
                total.add_(clipped.clipped)
                given[provider] = min(clipped.norm, most) if clipped.finite else 0.0
                if not clipped.finite:
                    notes.append(f"provider {provider}: its change is not finite, counted as 0")

        way, _ = self.choice(context.model, context.device, context.computing)
        if way == "loop" or failure_of_vmap(
            lambda: add(self._changes_by_vmap(context, members)),
            context.device,
            required=self.method == "vmap",
        ):
            add((p, self._change(context, p, context.examples.take(m))) for p, m in members.items())
        context.notes.extend(notes)
        return total, given

    def _changes_by_vmap(
        self, context: ClientContext, members: Members
    ) -> Iterator[tuple[int, Vector]]:
        """Yields each provider with its Δw for T_gd = 1, ordered by the size of its batch."""
        model, examples, device = context.model, context.examples, context.device
        sizes: dict[int, dict[int, NDArray[np.int64]]] = {}
        for provider, rows in members.items():
            order = context.generator(f"shuffling of provider {provider}").permutation(len(rows))
            batch = rows[order[: self.batch_size]]  # the first one of `train_steps`
            sizes.setdefault(len(batch), {})[provider] = batch
        parameters = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}
        unused: set[str] = set()
        if members and self.optimizer.weight_decay:
            some = next(iter(next(iter(sizes.values())).values()))
            unused = unused_parameters(model, examples.batch(some, device))
        for batches in sizes.values():
            providers = iter(batches)
            rows = np.stack(list(batches.values()))
            for gradients in batch_gradients(model, examples, rows, device, context.computing):
                changes = {
                    name: g if name in unused else self.optimizer.first_step(parameters[name], g)
                    for name, g in gradients.items()
                }
                for parts in zip(*changes.values(), strict=True):
                    change = context.layout.vectors(dict(zip(changes, parts, strict=True)))
                    yield next(providers), change["float"]

    def _change(self, context: ClientContext, provider: int, examples: Examples) -> Vector:
        """Returns Δw of one provider: AdamW(P, w_{t-1}, T_gd) - w_{t-1}."""
        context.restart()
        with isolated_randomness(context.torch_seed(f"training on provider {provider}")):
            train_steps(
                context.model,
                examples,
                self.optimizer.build(context.model),
                steps=self.steps,
                batch_size=self.batch_size,
                shuffle=context.generator(f"shuffling of provider {provider}"),
                device=context.device,
                # A new one: what one provider's gradients do to it must not touch another's.
                backward=Backward(context.computing),
            )
        return context.layout.change_since(context.parameters)["float"]


class _OnAxes(ProviderUpdates):
    """The same with C along a provider's own axis for its clipped change."""

    def _clipped_sum(
        self,
        context: ClientContext,
        owners: NDArray[np.int64],
        drawn: NDArray[np.int64],
        clip_norm: float,
        left: Norms,
        dtype: torch.dtype,
    ) -> tuple[Vector, Norms]:
        size = context.parameters["float"].numel()
        there = context.examples.take(np.flatnonzero(np.isin(owners, drawn)))
        total = contributions(there, clip_norm, size, size)
        given = {p: min(clip_norm, norm) for p, norm in left.items()}
        for unit, norm in given.items():  # an audit's canary is its own provider, on its own axis
            total[unit] = norm
        return total, given


def _sample(owners: NDArray[np.int64], mechanism: Mechanism, draw: Draw) -> NDArray[np.int64]:
    """Returns M: each provider of the client with probability `record_rate`."""
    own = np.unique(owners)
    coins = draw("provider sampling").random(own.size) < mechanism.record_rate
    return own[coins]


def _left(context: ClientContext, drawn: NDArray[np.int64], mechanism: Mechanism) -> Norms:
    """Returns the norm that each drawn provider may still give, 0 for one that has spent all."""
    asked = context.instruction
    known = individual.remembered(memory_of(context))
    spent = individual.given_before(known, asked.round, asked.attempt)
    limit = individual.most_given(
        mechanism.individual_epsilon, mechanism.noise_multiplier, mechanism.delta
    )
    more = _rounding(context, mechanism)
    found: Norms = {}
    for provider in drawn.tolist():
        share = math.sqrt(max(0.0, limit - spent.get(provider, 0.0)))
        norm = share * (mechanism.clip_norm + more) - more
        found[provider] = norm if norm > LEAST * mechanism.clip_norm else 0.0
    return found


def _remember(context: ClientContext, mechanism: Mechanism, given: Norms) -> None:
    """Notes what the providers gave, for their own ε, where the client remembers anything."""
    if not given or context.memory is None:
        return
    more, asked = _rounding(context, mechanism), context.instruction
    whole = mechanism.clip_norm + more
    shares = {unit: ((norm + more) / whole) ** 2 for unit, norm in given.items()}
    individual.remember(context.memory, asked.round, asked.attempt, shares)


def _digest(earlier: Mapping[int, NDArray[Any]], left: Norms) -> str:
    """Returns a digest of all that a message depends on beside model, data and settings."""
    rows = np.array([*left.items()], np.float64).reshape(-1, 2)
    return digest({"left": rows, **{f"sum {t}": past for t, past in earlier.items()}})


def _rounding(context: ClientContext, mechanism: Mechanism) -> float:
    """Returns what a discrete mechanism may add to the norm of a change, by rounding it."""
    if not mechanism.scale:
        return 0.0
    return steps_of(mechanism, context.parameters["float"].numel()).rounding


def _owners(examples: Examples, mechanism: Mechanism) -> NDArray[np.int64]:
    """Returns each example's provider; the same one for all where the client is the unit."""
    if mechanism.unit == "client":
        return np.zeros(len(examples), np.int64)
    return examples.column(PROVIDER)
