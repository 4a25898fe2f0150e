"""Sums of clipped gradients of examples, without any example's gradient: one forward pass.

"Book-keeping" (Bu et al. 2023): of every layer with trained parameters, the input A and the output
are kept, and one backward pass gives the outputs' gradients G, but no weight's. From A and G follow
each example's norm, and with the factors c the sum Σ_b c_b g_b, a product for each layer. A plain
training step takes three products a layer, this way four, where vmap makes every gradient.

All uses of a parameter are taken together, in whatever modules (tied) and however often:

- lines (Linear, Conv2d): ‖Σ_t g_t a_tᵀ‖² by (A Aᵀ) ∘ (G Gᵀ) over pairs of positions, or by the
  gradient itself, one example and layer at a time, whichever is smaller;
- rows (Embedding): positions of one row are added first;
- lines and rows of one parameter: 2 Σ_{s,t} g_t[id_s] ⟨e_s, a_t⟩ in addition;
- small (norms, biases, tables of biases, position tables): the gradient of each example.

**A norm is never too small.** Where positions cancel, float32 may lose a whole norm: products are
taken together with the most that their rounding can have lost, γ_n = n u / (1 - n u) for sums of n
terms (Higham 2002, §3.1). By the graph, each parameter is used exactly as often as was seen. And
with weights 2^b on the losses, each output's gradient must change by 2^b in the b-th part of it and
by nothing else, or the layer does not keep the examples apart: that costs a backward pass, once for
a model of ours, which tests compare with the loop, and for each batch of any other, of which each
loss is computed alone as well. Where something does not hold there is no rule, and another way
is taken.
"""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedpriv.training.computing import Computing

MARGIN = 2.0**-20
"""What factors are smaller by: they, and gradients times them, are rounded to float32."""

Each = Callable[[Tensor], tuple[str, Any]]
"""Turns the gradient of an output into a use: its kind, and what that kind needs."""

Pairs = Sequence[tuple[Tensor, Tensor]]

_SEPARATE: WeakSet[nn.Module] = WeakSet()
"""Models of ours that have been seen to keep their examples apart."""

NEAR, LIKE, LIKE_IN_BF16 = 1e-4, 1e-4, 0.02
"""How far, relatively, a gradient and a loss may be from those expected: kernels may round
otherwise for batches of another size."""

LEARNED = (nn.Linear, nn.Conv2d, nn.Embedding, nn.LayerNorm)
RMS_NORMS = ("T5LayerNorm", "Pix2StructLayerNorm")
SCALES_WORDS, COUNTS_POSITIONS = "MBartScaledWordEmbedding", "MBartLearnedPositionalEmbedding"
WINDOWS = ("DonutSwinSelfAttention", "SwinSelfAttention")
"""Attention with a table of biases for pairs of positions in a window."""


class NoRule(Exception):
    """A model, or what it does with a batch, has no rule here."""


def without_rule(model: nn.Module) -> list[str]:
    """Returns the names of the trained parameters that no rule covers."""
    found = []
    biases = {id(owner.relative_attention_bias) for owner in _sharing_biases(model)}
    for prefix, module in model.named_modules():
        for name, p in module.named_parameters(recurse=False):
            known = _is_known(module) or id(module) in biases or p.shape[:1] == (1,)
            if p.requires_grad and not (known or _is_window_table(module, name)):
                found.append(f"{prefix}.{name}" if prefix else name)
    return found


def is_ours(model: nn.Module) -> bool:
    """Whether tests compare this class of models with the loop."""
    return type(model).__module__.startswith("fedpriv.models.")


class Ghost:
    """Clipped sums of one model.

    Args:
        model: whose parameters are trained.
        losses: returns the loss of each example of a batch, (B,).
        loss: returns the loss of a batch of one, which its gradient is to be of.
        computing: the precision in which they do so; None for float32.

    Raises:
        NoRule: if a trained parameter has no rule.
    """

    def __init__(
        self,
        model: nn.Module,
        losses: Callable[[dict[str, Tensor]], Tensor],
        loss: Callable[[dict[str, Tensor]], Tensor],
        computing: Computing | None = None,
    ) -> None:
        if missing := without_rule(model):
            raise NoRule(f"no rule for {', '.join(missing[:3])}")
        self._model, self._losses, self._loss = model, losses, loss
        self._computing, self._ours = computing or Computing(), is_ours(model)
        first: dict[int, str] = {}
        self._names: dict[tuple[int, str], str] = {}  # tied parameters have one name
        for prefix, module in model.named_modules():
            for key, p in module.named_parameters(recurse=False):
                own = f"{prefix}.{key}" if prefix else key
                self._names[id(module), key] = first.setdefault(id(p), own)
        self.parameters = {n: p for n, p in model.named_parameters() if p.requires_grad}

    def clipped_sum(
        self, batch: dict[str, Tensor], clip_norm: float
    ) -> tuple[dict[str, Tensor], Tensor]:
        """Returns Σ_b c_b g_b by name, and bounds on the examples' norms from above, float64.

        An example whose norm is not finite counts as zero.

        Args:
            batch: of B examples.
            clip_norm: C.

        Raises:
            NoRule: if the model uses a parameter otherwise than a rule expects.
        """
        try:
            return self._clipped_sum(batch, clip_norm)
        except (torch.OutOfMemoryError, MemoryError, NoRule):
            raise
        except Exception as error:  # such as of a parameter that is no table for each example
            why = str(error).strip().partition("\n")[0]
            raise NoRule(f"{type(error).__name__}: {why}") from error

    def _clipped_sum(
        self, batch: dict[str, Tensor], clip_norm: float
    ) -> tuple[dict[str, Tensor], Tensor]:
        again = functools.partial(self._computing.autocast, batch)
        tape = _Tape(self._names, len(next(iter(batch.values()))), again)
        with torch.enable_grad(), tape.watching(self._model):
            losses = self._losses(batch)
        if losses.shape != (tape.size,):
            raise NoRule(f"losses of shape {tuple(losses.shape)}")
        if not losses.requires_grad:
            zeros = torch.zeros(tape.size, dtype=torch.float64, device=losses.device)
            return {n: torch.zeros_like(p) for n, p in self.parameters.items()}, zeros
        self._check_uses(tape, losses)
        known = tape.size == 1 or (self._ours and self._model in _SEPARATE)
        gradients = torch.autograd.grad(
            losses.sum(), tape.outputs, allow_unused=True, retain_graph=not known
        )
        if not known:
            self._check_apart(tape, losses, gradients)
        if not self._ours:
            self._check_values(batch, tape.size)
        with torch.no_grad(), _whole_precision(losses.device):
            uses = tape.uses_by(gradients)
            squares = torch.zeros(tape.size, dtype=torch.float64, device=losses.device)
            for kinds in uses.values():
                squares += _squares(**kinds)
            norms = squares.clamp_(min=0).sqrt()
            most = clip_norm * (1 - MARGIN)
            factor = torch.where(norms <= most, 1.0, most / norms)
            factor = torch.where(norms.isfinite(), factor, 0.0)
            sums = {n: _weighted(p, factor, **uses[n]) for n, p in self.parameters.items()}
        return sums, norms

    def _check_uses(self, tape: _Tape, losses: Tensor) -> None:
        """Checks that nothing but the uses seen leads to a parameter."""
        used, nodes = _uses_in_graph(losses, self.parameters)
        seen = tape.uses_among(nodes)
        for name in self.parameters:
            if used[name] != seen[name]:
                counts = f"{used[name]} times, of which {seen[name]} have a rule"
                raise NoRule(f"{name} is used {counts}")

    def _check_apart(self, tape: _Tape, losses: Tensor, plain: tuple[Tensor | None, ...]) -> None:
        """Checks that weights on the losses change the gradients of their own examples alone."""
        weights = 2.0 ** torch.arange(tape.size, device=losses.device, dtype=losses.dtype)
        total = (weights * losses).sum()
        weighted = torch.autograd.grad(total, tape.outputs, allow_unused=True)
        apart = []
        for one, other in zip(plain, weighted, strict=True):
            if one is not None and other is not None:
                rows = one.reshape(tape.size, -1).double() * weights.double()[:, None]
                off = (other.reshape(tape.size, -1).double() - rows).nan_to_num(0, 0, 0).abs()
                most = rows.nan_to_num(0, 0, 0).abs().amax(1, keepdim=True)
                apart.append((off <= NEAR * most).all())
        if apart and not bool(torch.stack(apart).all()):
            raise NoRule("the examples do not lie one after the other in every layer")
        if self._ours:
            _SEPARATE.add(self._model)

    @torch.no_grad()
    def _check_values(self, batch: dict[str, Tensor], size: int) -> None:
        """Checks, without dropout, that the loss of each example is its own."""
        modes = [(module, module.training) for module in self._model.modules()]
        self._model.eval()
        try:
            together = self._losses(batch)
            rows = ({name: t[b : b + 1] for name, t in batch.items()} for b in range(size))
            alone = torch.stack([self._loss(row).reshape(()) for row in rows])
            like = LIKE_IN_BF16 if self._computing.casts else LIKE
            near = torch.isclose(together, alone, like, 1e-6, equal_nan=True)
            if not bool(near.all()):
                raise NoRule("the loss of an example is another one beside others")
        finally:
            for module, mode in modes:
                module.training = mode


class _Tape:
    """What layers have put out in one forward pass, and what their gradients tell.

    Attributes:
        size: B.
        outputs: whose gradients are wanted; the examples come first in each, in blocks.

    Args:
        names: of parameters, by the id of a module and the name in it.
        size: B.
        autocast: gives the context in which the forward pass is made.
    """

    def __init__(
        self, names: dict[tuple[int, str], str], size: int, autocast: Callable[[], Any]
    ) -> None:
        self.size, self._of, self._autocast = size, names, autocast
        self.outputs: list[Tensor] = []
        self._uses: list[tuple[str, int, Each]] = []
        self._versions: list[int] = []
        self._quiet = False

    def uses_by(self, gradients: tuple[Tensor | None, ...]) -> dict[str, dict[str, list[Any]]]:
        """Returns all uses by parameter and kind.

        Raises:
            NoRule: if an output was written over.
        """
        if [out._version for out in self.outputs] != self._versions:
            raise NoRule("the output of a layer is changed in place")
        found: dict[str, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
        for name, place, each in self._uses:
            gradient = gradients[place]
            if gradient is not None:
                kind, use = each(gradient)
                found[name][kind].append(use)
        return found

    def uses_among(self, nodes: set[Any]) -> Counter[str]:
        """Counts the uses of each parameter whose output leads to one of the nodes of a graph."""
        return Counter(n for n, place, _ in self._uses if self.outputs[place].grad_fn in nodes)

    @contextmanager
    def watching(self, model: nn.Module) -> Iterator[None]:
        """Watches a model's layers while the block lasts."""
        undo: list[Callable[[], None]] = []
        shared = {id(owner.relative_attention_bias): owner for owner in _sharing_biases(model)}
        try:
            for module in model.modules():
                own = [k for k, p in module.named_parameters(recurse=False) if p.requires_grad]
                if not own:
                    continue
                if id(module) in shared:
                    undo.append(self._share(shared[id(module)]))
                elif _is_known(module):
                    undo.append(module.register_forward_hook(self._layer, with_kwargs=True).remove)
                else:
                    for key in own:
                        if _is_window_table(module, key):
                            hook = module.register_forward_hook(self._windows, with_kwargs=True)
                            undo.append(hook.remove)
                        else:
                            undo.append(self._spread(module, key))
            yield
        finally:
            for restore in reversed(undo):
                restore()

    def _note(self, output: Tensor, uses: dict[str, Each]) -> None:
        if not output.requires_grad or output.shape[0] % self.size:
            raise NoRule(f"a layer puts out {tuple(output.shape)} for {self.size} examples")
        for name, each in uses.items():
            self._uses.append((name, len(self.outputs), each))
        self.outputs.append(output)
        self._versions.append(output._version)

    def _layer(
        self, module: nn.Module, given: tuple[Any, ...], named: dict[str, Any], out: Tensor
    ) -> Tensor | None:
        """Notes a use of a layer's parameters: a forward hook."""
        if self._quiet:
            return None
        named = {name: value for name, value in named.items() if value is not None}
        if not given or named.keys() - {"position_ids"}:
            raise NoRule(f"{type(module).__name__} is called with {', '.join(named)}")
        x, size, replaced = given[0].detach(), self.size, None
        if out.shape[0] == 1 < size:  # what all examples share, such as a table of positions
            out = replaced = out.expand(size, *out.shape[1:])
            x = x.expand(size, *x.shape[1:])

        def by_example(t: Tensor, *shape: int) -> Tensor:
            return t.reshape(size, -1, *shape)

        uses: dict[str, Each] = {}
        turn: Callable[[Tensor], Tensor] = lambda g: by_example(g, g.shape[-1])  # noqa: E731
        if isinstance(module, nn.Embedding):
            if type(module).__name__ == COUNTS_POSITIONS:
                if any(given[1:]):
                    raise NoRule("positions that are not counted from 0")
                counted = torch.arange(out.shape[1], device=x.device).expand(out.shape[:2])
                x = named.get("position_ids", counted).expand(out.shape[:2]) + module.offset
            scales = type(module).__name__ == SCALES_WORDS
            ids, scale = by_example(x), float(cast(float, module.embed_scale)) if scales else 1.0
            # The row of padding does not learn.
            learns = ids[..., None] != (-1 if module.padding_idx is None else module.padding_idx)
            uses["weight"] = lambda g: ("rows", (ids, turn(g) * learns * scale))
        elif isinstance(module, nn.Linear | nn.Conv2d):
            if isinstance(module, nn.Conv2d):
                where = module.kernel_size, module.dilation, module.padding, module.stride
                cut = functional.unfold(x, *where).transpose(1, 2)  # type: ignore[arg-type]
                turn = lambda g: by_example(g.flatten(2).transpose(1, 2), g.shape[1])  # noqa: E731
                a = by_example(cut, cut.shape[-1])
            else:
                a = by_example(x, x.shape[-1])
            uses["weight"] = lambda g: ("lines", (a, turn(g)))
            uses["bias"] = lambda g: ("small", turn(g).double().sum(1))
        else:
            if isinstance(module, nn.LayerNorm):
                shape = module.normalized_shape
                plain = functional.layer_norm(_wide(x), shape, None, None, module.eps)
            else:
                shape, wide = (x.shape[-1],), _wide(x)
                eps = float(module.variance_epsilon)  # type: ignore[arg-type]
                plain = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
            uses["weight"] = lambda g: ("small", by_example(g.double() * plain, *shape).sum(1))
            uses["bias"] = lambda g: ("small", by_example(g.double(), *shape).sum(1))
        own = {k for k, p in module.named_parameters(recurse=False) if p.requires_grad}
        self._note(out, {self._of[id(module), k]: use for k, use in uses.items() if k in own})
        return replaced

    def _spread(self, module: nn.Module, key: str) -> Callable[[], None]:
        """Puts a copy for each example in the place of a parameter of shape (1, …)."""
        before = dict(module._parameters)
        parameter = module._parameters.pop(key)
        if parameter is None:
            raise NoRule(f"{key} is gone")
        leaf = parameter.expand(self.size, *parameter.shape[1:])
        setattr(module, key, leaf)
        self._note(leaf, {self._of[id(module), key]: lambda g: ("small", g[:, None].double())})

        def restore() -> None:
            delattr(module, key)
            module._parameters.clear()  # in the order that there was
            module._parameters.update(before)

        return restore

    def _share(self, owner: Any) -> Callable[[], None]:
        """Has T5's table of biases looked up for each example; layers share what was looked up."""
        compute, table = owner.compute_bias, owner.relative_attention_bias

        def looked_up(*arguments: Any, **named: Any) -> Tensor:
            values: Tensor = compute(*arguments, **named)

            def each(gradient: Tensor) -> tuple[str, Tensor]:
                (of_each,) = torch.autograd.grad(
                    values,
                    table.weight,
                    gradient[:, None],
                    is_grads_batched=True,
                    retain_graph=True,
                )
                return "small", of_each.double()

            spread = values.expand(self.size, *values.shape[1:])
            self._note(spread, {self._of[id(table), "weight"]: each})
            return spread

        owner.compute_bias = looked_up
        return lambda: delattr(owner, "compute_bias")

    def _windows(
        self, module: nn.Module, given: tuple[Any, ...], named: dict[str, Any], out: Any
    ) -> None:
        """Notes a use of Swin's table: each example's windows are computed again for its part."""
        if self._quiet:
            return
        table = cast(Tensor, module.relative_position_bias_table)
        x, context = given[0].detach(), out[0]

        def each(gradient: Tensor) -> tuple[str, Tensor]:
            found: list[Tensor] = []
            self._quiet = True
            try:
                parts = zip(x.chunk(self.size), gradient.chunk(self.size), strict=True)
                for part, of_part in parts:
                    with torch.enable_grad(), self._autocast():
                        again = module.forward(part, *given[1:], **named)[0]
                    found += torch.autograd.grad(again, [table], of_part)
            finally:
                self._quiet = False
            return "small", torch.stack(found).double()

        self._note(context, {self._of[id(module), "relative_position_bias_table"]: each})


def _is_known(module: nn.Module) -> bool:
    """Whether a module is a layer with a rule, and computes what its class does, and no more."""
    if "forward" in vars(module) or module._forward_hooks or module._forward_pre_hooks:
        return False
    if isinstance(module, nn.Conv2d) and (
        module.groups > 1
        or module.padding_mode != "zeros"
        or isinstance(module.padding, str)
        or type(module)._conv_forward is not nn.Conv2d._conv_forward
    ):
        return False
    if isinstance(module, nn.Embedding) and (module.max_norm or module.scale_grad_by_freq):
        return False
    if any(type(module).forward is kind.forward for kind in LEARNED):
        return True
    named = type(module).__name__ in (*RMS_NORMS, SCALES_WORDS, COUNTS_POSITIONS)
    own = [name for name, _ in module.named_parameters(recurse=False)]
    return named and own == ["weight"] and _is_of_transformers(module)


def _is_of_transformers(module: nn.Module) -> bool:
    return type(module).__module__.startswith("transformers.models.")


def _is_window_table(module: nn.Module, name: str) -> bool:
    """Whether a parameter is a table that can be computed again: without dropout on the way."""
    drops = any(isinstance(m, nn.Dropout) and m.p and m.training for m in module.modules())
    known = type(module).__name__ in WINDOWS and name == "relative_position_bias_table"
    return known and not drops and _is_of_transformers(module)


def _sharing_biases(model: nn.Module) -> list[Any]:
    """Returns the attentions of T5's kind that own a table of biases."""
    return [
        module
        for module in model.modules()
        if hasattr(module, "compute_bias")
        and isinstance(getattr(module, "relative_attention_bias", None), nn.Embedding)
        and _is_of_transformers(module)
    ]


ALIASES = ("TBackward", "ToCopyBackward", "ViewBackward", "TransposeBackward", "PermuteBackward")
"""Nodes of the graph that show a parameter in another shape or type."""


def _uses_in_graph(
    losses: Tensor, parameters: dict[str, nn.Parameter]
) -> tuple[Counter[str], set[Any]]:
    """Counts the nodes of the graph that use each parameter; returns all nodes, too."""
    names = {id(p): n for n, p in parameters.items()}
    counts: Counter[str] = Counter()
    todo: list[Any] = [losses.grad_fn]
    seen = {losses.grad_fn}
    while todo:
        node = todo.pop()
        for after, _ in node.next_functions:
            if after is None:
                continue
            if after not in seen:
                seen.add(after)
                todo.append(after)
            if node.name().startswith(ALIASES):
                continue
            while after.name().startswith(ALIASES):
                after = after.next_functions[0][0]
                if after is None:
                    break
            variable = getattr(after, "variable", None)
            if variable is not None and id(variable) in names:
                counts[names[id(variable)]] += 1
    return counts, seen


@contextmanager
def _whole_precision(device: torch.device) -> Iterator[None]:
    """Switches TF32 and autocast off: the bounds are float32's."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.autocast(device.type, enabled=False):
            yield
    finally:
        torch.set_float32_matmul_precision(before)


def _together(uses: Pairs) -> tuple[Tensor, Tensor]:
    """Joins the uses of one parameter along the positions."""
    of_all, gradients = (torch.cat(parts, 1) for parts in zip(*uses, strict=True))
    return (_wide(of_all) if of_all.is_floating_point() else of_all), _wide(gradients)


def _wide(t: Tensor) -> Tensor:
    return t if t.dtype == torch.float64 else t.float()


def _gamma(terms: int, dtype: torch.dtype) -> float:
    """Returns how far, relatively to the sum of absolute values, a sum of products can be off."""
    lost = terms * torch.finfo(dtype).eps / 2
    return lost / (1 - lost)


def _squares(lines: Pairs = (), rows: Pairs = (), small: Sequence[Tensor] = ()) -> Tensor:
    """Returns the squared norm of each example's gradient of one parameter, (B,), from above."""
    parts = []
    if small:
        parts.append(torch.stack(list(small)).sum(0).flatten(1).pow(2).sum(1))
    line, row = (_together(uses) if uses else None for uses in (lines, rows))
    if line:
        parts.append(_line_squares(*line))
    if row:
        parts.append(_row_squares(*row))
    if line and row:
        parts.append(2 * _tied(*line, *row))
    if small and (lines or rows):
        raise NoRule("a parameter of two kinds")
    return torch.stack(parts).sum(0)


def _line_squares(a: Tensor, g: Tensor) -> Tensor:
    """‖Σ_t g_t a_tᵀ‖² of each example from products in the type of a and g."""
    length, p, d = a.shape[1], a.shape[2], g.shape[2]
    long_a, long_g = a.double().norm(dim=2), g.double().norm(dim=2)
    if 2 * length * length < p * d:
        in_a, in_g = (a @ a.mT).double(), (g @ g.mT).double()
        of_a, of_g = (n[:, :, None] * n[:, None, :] for n in (long_a, long_g))
        off_a, off_g = _gamma(p, a.dtype) * of_a, _gamma(d, g.dtype) * of_g
        lost = off_a * in_g.abs() + in_a.abs() * off_g + off_a * off_g
        found: Tensor = (in_a * in_g).sum((1, 2)).clamp_(min=0) + lost.sum((1, 2))
        return found
    made = torch.stack([(g[i].mT @ a[i]).double().norm() for i in range(len(a))])
    norms: Tensor = made + _gamma(length, a.dtype) * (long_a * long_g).sum(1)
    return norms.pow(2)


def _row_squares(ids: Tensor, g: Tensor) -> Tensor:
    """Squares of the gradient of a table: positions of one row are added up first."""
    size, length = ids.shape
    order = ids.argsort(1)
    sorted_ids = ids.gather(1, order)
    new = torch.ones_like(ids)
    new[:, 1:] = (sorted_ids[:, 1:] != sorted_ids[:, :-1]).to(ids.dtype)
    place = new.cumsum(1) - 1 + torch.arange(size, device=ids.device)[:, None] * length
    sums = g.new_zeros(size * length, g.shape[2], dtype=torch.float64)
    moved = g.gather(1, order[:, :, None].expand_as(g)).double()
    sums.index_add_(0, place.flatten(), moved.flatten(0, 1))
    return sums.view(size, -1).pow(2).sum(1)


def _tied(a: Tensor, g: Tensor, ids: Tensor, e: Tensor) -> Tensor:
    """⟨Σ_t g_t a_tᵀ, Σ_s 1[id_s] e_sᵀ⟩ = Σ_{s,t} g_t[id_s] ⟨a_t, e_s⟩, from above."""
    products = (a @ e.mT).double()
    picked = g.gather(2, ids[:, None, :].expand(-1, g.shape[1], -1)).double()
    lost = a.double().norm(dim=2)[:, :, None] * e.double().norm(dim=2)[:, None, :] * picked.abs()
    found: Tensor = (products * picked).sum((1, 2)) + _gamma(a.shape[2], g.dtype) * lost.sum((1, 2))
    return found


def _weighted(
    parameter: Tensor,
    factor: Tensor,
    lines: Pairs = (),
    rows: Pairs = (),
    small: Sequence[Tensor] = (),
) -> Tensor:
    """Returns Σ_b c_b g_b of one parameter; an example with c = 0 is zero, whatever is in it."""
    wide = torch.promote_types(parameter.dtype, torch.float32)
    total, left_out = torch.zeros_like(parameter, dtype=wide), (factor == 0).view(-1, 1, 1)

    def scaled(gradient: Tensor) -> Tensor:
        c = factor.to(gradient.dtype).view(-1, *(1,) * (gradient.dim() - 1))
        return torch.where(c == 0, 0.0, gradient * c)

    for of_each in small:
        total += scaled(of_each).sum(0).view(total.shape).to(total.dtype)
    for a, g in lines:
        weighted, a = scaled(_wide(g)).flatten(0, 1), torch.where(left_out, 0.0, _wide(a))
        total.view(len(total), -1).addmm_(weighted.mT.to(total), a.flatten(0, 1).to(total))
    for ids, g in rows:
        total.index_add_(0, ids.flatten(), scaled(_wide(g)).flatten(0, 1).to(total))
    return total
