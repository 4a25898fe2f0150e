"""Clipping by book-keeping: never above the clip norm, equal to the loop, and refused in time."""

import math

import numpy as np
import pytest
import torch
from fake_device import DEVICE, FakeDevice
from hypothesis import given
from hypothesis import strategies as st
from test_per_example import pages
from torch import nn

from fedpriv.data.examples import Examples
from fedpriv.models.layoutlmv3 import layoutlmv3
from fedpriv.training import ghost
from fedpriv.training.adapters import LoRA
from fedpriv.training.computing import Computing
from fedpriv.training.ghost import Ghost, NoRule, without_rule
from fedpriv.training.per_example import PerExample, vmap_or_loop

WORDS, WIDTH = 7, 6


class Reader(nn.Module):
    """A table that is the output layer too, a norm, and a layer that is used twice."""

    def __init__(self, length=5, tied=True, dtype=torch.float32):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH, padding_idx=0)
        self.places = nn.Parameter(torch.randn(1, length, WIDTH))
        self.mix = nn.Linear(WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS, bias=not tied)
        if tied:
            self.head.weight = self.words.weight
        self.to(dtype)

    def scores(self, ids):
        x = self.words(ids) + self.places
        return self.head(self.norm(self.mix(self.mix(x).tanh())))

    def losses(self, batch):
        scores, wanted = self.scores(batch["x"]), batch["y"]
        each = nn.functional.cross_entropy(scores.mT, wanted, reduction="none")
        return (each * batch["sign"].to(each)).sum(1)

    def loss(self, batch):
        return self.losses(batch).mean()


def texts(count=6, length=5, seed=0, cancelling=False):
    """Texts, in which each word may come twice; `cancelling`, the second half undoes the first."""
    rng = np.random.default_rng(seed)
    ids, wanted = rng.integers(0, WORDS, (2, count, length))
    sign = np.ones((count, length), np.float32)
    if cancelling:
        half = length // 2
        ids[:, half : 2 * half], wanted[:, half : 2 * half] = ids[:, :half], wanted[:, :half]
        sign[:, half:] = -1 + 1e-6 * rng.standard_normal(sign[:, half:].shape)
    return Examples.of({"x": ids, "y": wanted, "sign": sign})


def exact(model, examples):
    """Each example's gradient in float64, (B, d), by a backward pass of its own."""
    wide = Reader(len(examples.column("x")[0]), model.head.bias is None, torch.float64)
    wide.load_state_dict({k: v.double() for k, v in model.state_dict().items()})
    rows = []
    for batch in examples.batches(1):
        grads = torch.autograd.grad(wide.loss(batch), list(wide.parameters()), allow_unused=True)
        pairs = zip(grads, wide.parameters(), strict=True)
        rows.append(torch.cat([(g if g is not None else 0 * p).reshape(-1) for g, p in pairs]))
    return torch.stack(rows)


@given(
    st.integers(0, 2**16),
    st.booleans(),
    st.booleans(),
    st.sampled_from([4, 40]),
    st.sampled_from([1e-3, 0.3, 10.0]),
)
def test_no_example_is_left_above_the_clip_norm(seed, tied, cancelling, length, clip_norm):
    """‖c_i g_i‖ ≤ C in float64, where positions cancel, words repeat and tables are tied."""
    torch.manual_seed(seed)
    model, examples = Reader(length, tied), texts(4, length, seed, cancelling)
    true = exact(model, examples).norm(dim=1).numpy()
    found = PerExample("ghost").clipped_sum(model, examples, clip_norm)
    # What the model itself rounds in float32 is the loop's too; the rest is never too small.
    loop = PerExample("loop").clipped_sum(model, examples, clip_norm).norms
    assert (found.norms >= np.minimum(true, loop) * (1 - 1e-6)).all()
    factor = np.minimum(1, clip_norm * (1 - ghost.MARGIN) / found.norms)
    assert (factor * true <= clip_norm * (1 + np.abs(loop / true - 1))).all()


@pytest.mark.parametrize("length", [4, 40])
@pytest.mark.parametrize("tied", [True, False])
def test_the_sum_is_the_loops(tied, length):
    torch.manual_seed(1)
    model, examples = Reader(length, tied), texts(6, length)
    found, expected = (
        PerExample(way, 4).clipped_sum(model, examples, 0.3) for way in ("ghost", "loop")
    )
    np.testing.assert_allclose(found.norms, expected.norms, rtol=1e-3)
    assert (found.norms > expected.norms * (1 - 1e-6)).all()
    torch.testing.assert_close(found.total, expected.total, rtol=2e-3, atol=1e-6)


def test_where_positions_cancel_the_norm_is_not_lost():
    """A formula in float32 without what rounding may have lost says 0 here, or far too little."""
    torch.manual_seed(0)
    a, g = torch.randn(3, 200, 64) * 1e3, torch.randn(3, 200, 96)
    a[:, 100:], g[:, 100:] = a[:, :100], -g[:, :100] * (1 + 1e-7)
    true = (g.double().mT @ a.double()).pow(2).sum((1, 2))
    plain = ((a @ a.mT) * (g @ g.mT)).double().sum((1, 2)).clamp(min=0)
    assert (plain < 0.5 * true).any() or (plain > 2 * true).any()  # it knows nothing
    for length in (200, 2):  # by pairs of positions; by the gradient itself
        some = ghost._line_squares(a[:, :length], g[:, :length])
        assert (
            some >= (g.double()[:, :length].mT @ a.double()[:, :length]).pow(2).sum((1, 2))
        ).all()


class Otherwise(Reader):
    """Uses a weight outside of its layer."""

    def scores(self, ids):
        return super().scores(ids) + self.words(ids) @ self.mix.weight.sum()[None, None].expand(
            6, 7
        )


class Turned(Reader):
    """Has the positions first in one layer."""

    def scores(self, ids):
        x = (self.words(ids) + self.places).transpose(0, 1)
        return self.head(self.norm(self.mix(x)).transpose(0, 1))


class Mixing(Reader):
    """Looks at the mean of the examples."""

    def scores(self, ids):
        x = self.words(ids) + self.places
        return self.head(self.norm(self.mix(x - x.mean(0))))


class Conv(Reader):
    """A convolution whose weight has a leading one, which is no table for each example."""

    def __init__(self, length=5):
        super().__init__(length)
        self.conv = nn.Conv1d(WIDTH, 1, 3, padding=1)

    def scores(self, ids):
        x = self.words(ids) + self.places
        return self.head(x * self.conv(x.mT).mT)


class Flat(Reader):
    """Joins the examples, and cuts them again."""

    def scores(self, ids):
        x = self.words(ids) + self.places
        return self.head(self.mix(x.flatten(0, 1)[None])[0].view(x.shape))


class First(Reader):
    """Takes the first row of what stands for all examples."""

    def scores(self, ids):
        return self.head(self.mix(self.words(ids) + self.places[0]))


class Sorted(Reader):
    """Has the examples in another order in one layer, the first in its place."""

    def scores(self, ids):
        order = torch.tensor([0, *range(len(ids) - 1, 0, -1)])
        return self.head(self.mix((self.words(ids) + self.places)[order])[order])


class Louder(Reader):
    """A layer whose output somebody multiplies."""

    def __init__(self, length=5):
        super().__init__(length)
        self.mix.register_forward_hook(lambda module, given, out: 10 * out)


class Replaced(Reader):
    """A layer that computes something else than its class."""

    def __init__(self, length=5):
        super().__init__(length)
        self.mix.forward = lambda x: nn.functional.linear(x, 10 * self.mix.weight, self.mix.bias)


class Loud(nn.Conv2d):
    def _conv_forward(self, x, weight, bias):
        return super()._conv_forward(x, 10 * weight, bias)


class Subclass(Reader):
    """A convolution that multiplies its weight."""

    def __init__(self, length=5):
        super().__init__(length)
        self.conv = Loud(1, 2, 3, padding=1)

    def scores(self, ids):
        return (
            super().scores(ids) * self.conv(self.words(ids)[:, None]).mean((1, 2, 3))[:, None, None]
        )


class Detached(Reader):
    """Looks at the other examples in a way that no gradient shows."""

    def scores(self, ids):
        x = self.mix(self.words(ids) + self.places)
        return self.head(x / x.detach().abs().amax())


class OtherLosses(Reader):
    """Has losses that are not those of its examples."""

    def losses(self, batch):
        return super().losses(batch) / batch["sign"].abs().sum()

    def loss(self, batch):
        return Reader.losses(self, batch).mean()


class InPlace(Reader):
    """Writes over what a layer has put out."""

    def scores(self, ids):
        x = self.mix(self.words(ids) + self.places)
        return self.head(self.norm(x.mul_(2)))


class Unknown(Reader):
    """Has a parameter of its own."""

    def __init__(self, length=5):
        super().__init__(length)
        self.gain = nn.Parameter(torch.ones(WIDTH))


@pytest.mark.parametrize(
    ("build", "why"),
    [
        (Otherwise, "mix.weight is used 3 times, of which 2 have a rule"),
        (Turned, "do not lie one after the other|puts out"),
        (Mixing, "do not lie one after the other"),
        (Conv, "do not lie one after the other|RuntimeError"),
        (Flat, "do not lie one after the other"),
        (First, "do not lie one after the other"),
        (Sorted, "do not lie one after the other"),
        (Louder, "no rule for mix.weight"),
        (Replaced, "no rule for mix.weight"),
        (Subclass, "no rule for conv.weight"),
        (Detached, "another one beside others"),
        (OtherLosses, "another one beside others"),
        (InPlace, "changed in place"),
        (Unknown, "no rule for gain"),
    ],
)
def test_what_has_no_rule_is_refused_and_goes_another_way(build, why):
    torch.manual_seed(0)
    model, examples = build(), texts(5)
    with pytest.raises(NoRule, match=why):
        PerExample("ghost").clipped_sum(model, examples, 0.3)
    loop = PerExample("loop").clipped_sum(model, examples, 0.3)
    as_new = build()
    assert [len(m._forward_hooks) for m in model.modules()] == [
        len(m._forward_hooks) for m in as_new.modules()
    ]
    assert [*model.state_dict()] == [*as_new.state_dict()]
    assert loop.nonfinite == 0


def test_on_a_device_auto_takes_it_for_models_of_ours():
    """Others are not compared with the loop by our tests; they may name it."""
    tagger = small_layoutlmv3()
    assert PerExample().choice(tagger, "cpu")[0] == vmap_or_loop(tagger, "cpu")[0] == "vmap"
    assert PerExample().choice(tagger, "cuda")[0] == "ghost"
    assert PerExample().choice(Reader(), "cuda")[0] == vmap_or_loop(tagger, "cuda")[0] == "vmap"
    assert without_rule(Unknown()) == ["gain"]


def test_one_that_is_not_finite_counts_as_zero():
    torch.manual_seed(0)
    model, examples = Reader(), texts(4)
    without = PerExample("ghost").clipped_sum(model, examples.take(np.array([0, 2, 3])), 0.3)
    columns = {name: np.array(examples.column(name)) for name in ("x", "y", "sign")}
    columns["sign"][1] = math.inf
    examples = Examples.of(columns)
    found = PerExample("ghost").clipped_sum(model, examples, 0.3)
    assert found.nonfinite == 1
    torch.testing.assert_close(found.total, without.total)


def test_what_goes_into_a_layer_may_be_infinite():
    """0 · ∞ would be NaN in the sum, though the example counts as zero."""
    model = nn.Sequential(nn.Linear(3, 2))
    model.losses = lambda batch: model(batch["x"]).square().sum(1)
    model.loss = lambda batch: model.losses(batch).mean()
    x = np.ones((4, 3), np.float32)
    x[1, 0] = np.inf
    found = PerExample("ghost").clipped_sum(model, Examples.of({"x": x}), 0.3)
    loop = PerExample("loop").clipped_sum(model, Examples.of({"x": x}), 0.3)
    assert found.nonfinite == loop.nonfinite == 1
    torch.testing.assert_close(found.total, loop.total, rtol=1e-4, atol=1e-6)


def test_an_example_without_a_target_does_not_hide_that_others_are_mixed():
    torch.manual_seed(0)
    columns = {name: np.array(texts().column(name)) for name in ("x", "y", "sign")}
    columns["sign"][0] = 0
    with pytest.raises(NoRule, match="do not lie"):
        PerExample("ghost").clipped_sum(Mixing(), Examples.of(columns), 0.3)


def test_in_bf16_norms_are_those_of_what_bf16_has_computed():
    torch.manual_seed(0)
    model, examples, computing = Reader(40), texts(6, 40), Computing("bf16")
    found, expected = (
        PerExample(way).clipped_sum(model, examples, 0.3, computing=computing)
        for way in ("ghost", "loop")
    )
    np.testing.assert_allclose(found.norms, expected.norms, rtol=0.03)
    torch.testing.assert_close(found.total, expected.total, rtol=0.1, atol=0.01)


def test_with_adapters_only_they_are_watched():
    model = small_layoutlmv3()
    LoRA(rank=2, dropout=0.0).apply(model)
    ghost, loop = (PerExample(way).clipped_sum(model, pages(), 0.3) for way in ("ghost", "loop"))
    assert ghost.total.numel() == sum(p.numel() for p in model.parameters() if p.requires_grad)
    np.testing.assert_allclose(ghost.norms, loop.norms, rtol=1e-4)
    torch.testing.assert_close(ghost.total, loop.total, rtol=1e-3, atol=1e-6)


def small_layoutlmv3():
    torch.manual_seed(0)
    return layoutlmv3(["a"], max_length=12, image_size=16, hidden_size=16, layers=1)


def test_a_chunk_is_waited_for_once():
    model = small_layoutlmv3()
    with FakeDevice() as gpu:
        model.to(DEVICE)
        batch = pages().batch(np.arange(4), DEVICE)
        made = Ghost(model, model.losses, model.loss)
        made.clipped_sum(batch, 0.3)  # checks the model first
        before, waits = gpu.to_host, gpu.waits
        made.clipped_sum(batch, 0.3)
        assert gpu.to_host == before, gpu.table()
        assert gpu.waits - waits <= 2, gpu.table()
