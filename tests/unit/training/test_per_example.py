"""Per-example gradients: both ways against a backward pass by hand, and all that may go wrong."""

import math

import numpy as np
import pytest
import torch
from host_vectors import read
from torch import nn
from transformers import RobertaConfig, RobertaForTokenClassification, masking_utils

from fedpriv.data.examples import Examples
from fedpriv.models.layoutlmv3 import layoutlmv3
from fedpriv.models.readers.reader import IGNORED
from fedpriv.runtime.safe_masks import safe_masks
from fedpriv.runtime.vectors import ParameterLayout
from fedpriv.training import per_example
from fedpriv.training.per_example import (
    PerExample,
    VmapError,
    automatic_chunk,
    batch_gradients,
    each_gradient,
    unused_parameters,
)

# torch says so, once a process, where vmap takes an operation example by example.
pytestmark = pytest.mark.filterwarnings("error:There is a performance drop")

BOTH = pytest.mark.parametrize("method", ["vmap", "loop"])
CLIP_NORM = 0.3
COUNT = 7


class Plain(nn.Module):
    """Three numbers to two classes; the part of most other models here."""

    def __init__(self, *between):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 5), *between, nn.Tanh(), nn.Linear(5, 2))

    def loss(self, batch):
        x = batch["x"].to(self.layers[0].weight.dtype)
        return nn.functional.cross_entropy(self.layers(x), batch["y"])


class Tied(nn.Module):
    """An embedding that is the output layer too."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10, 4)
        self.head = nn.Linear(4, 10, bias=False)
        self.head.weight = self.embedding.weight

    def loss(self, batch):
        return nn.functional.cross_entropy(self.head(self.embedding(batch["y"]).tanh()), batch["y"])


class Buffers(Plain):
    """0-d and integer buffers that move on at each call, in place or not, and one that is used."""

    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.tensor(1.5))
        self.register_buffer("calls", torch.tensor(0))
        self.register_buffer("renewed", torch.tensor([1, 2]), persistent=False)

    def loss(self, batch):
        self.calls.add_(1)
        self.renewed = self.renewed + 1
        return super().loss(batch) * self.scale * self.calls


class Averaging(Plain):
    """Carries an average of what it has seen into the next loss: vmap cannot write it."""

    def __init__(self):
        super().__init__()
        self.register_buffer("average", torch.zeros(()))

    def loss(self, batch):
        self.average.mul_(0.5).add_(batch["x"].mean())
        return super().loss(batch) * (1 + self.average**2)


class Frozen(Plain):
    def __init__(self):
        super().__init__()
        self.layers[0].weight.requires_grad_(False)


class Unused(Plain):
    """Parameters that the loss does not use: of a layer, and 0-d; and a 0-d one that it does."""

    def __init__(self):
        super().__init__()
        self.first = nn.Parameter(torch.tensor(3.0))
        self.never = nn.Linear(2, 2)
        self.factor = nn.Parameter(torch.tensor(0.7))

    def loss(self, batch):
        return super().loss(batch) * self.factor


class FrozenNorm(Plain):
    def __init__(self):
        super().__init__(nn.BatchNorm1d(5))
        self.layers[1].eval()


class LayoutLMv3(nn.Module):
    """A small one with or without the page image; half of the parameters make no difference."""

    def __init__(self, image=True):
        super().__init__()
        self.tagger = layoutlmv3(["a"], max_length=12, image_size=16, hidden_size=16, layers=1)
        self.image = image

    def loss(self, batch):
        pixels = batch["pixels"].to(next(self.parameters()).dtype) / 255 if self.image else None
        inputs = {name: batch[name] for name in ("input_ids", "attention_mask", "bbox")}
        scores = self.tagger.network(**inputs, pixel_values=pixels).logits[:, :12]
        return token_loss(scores, batch["labels"])


class Roberta(nn.Module):
    """With the other implementation of attention."""

    def __init__(self):
        super().__init__()
        config = RobertaConfig(
            vocab_size=50,
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=16,
            max_position_embeddings=20,
            num_labels=3,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
        config._attn_implementation = "sdpa"
        self.network = RobertaForTokenClassification(config)

    def loss(self, batch):
        ids, mask = batch["input_ids"], batch["attention_mask"]
        return token_loss(self.network(input_ids=ids, attention_mask=mask).logits, batch["labels"])


def token_loss(scores, labels):
    total = nn.functional.cross_entropy(
        scores.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="sum"
    )
    return total / (labels != IGNORED).sum().clamp(min=1)


def numbers(count=COUNT, seed=0):
    rng = np.random.default_rng(seed)
    return Examples.of({"x": rng.normal(size=(count, 3)), "y": rng.integers(0, 2, count)})


def pages(count=COUNT, seed=0):
    """Windows of 2…12 tokens, padded to 12; the last one is full."""
    rng = np.random.default_rng(seed)
    ends = np.append(rng.integers(2, 12, count - 1), 12)
    here = np.arange(12) < ends[:, None]
    corner = rng.integers(0, 500, (count, 12, 2))
    columns = {
        "input_ids": np.where(here, rng.integers(5, 50, (count, 12)), 1),
        "attention_mask": here.astype(np.int64),
        "bbox": np.concatenate([corner, corner + 40], axis=-1),
        "labels": np.where(here, rng.integers(0, 3, (count, 12)), IGNORED),
        "pixels": rng.integers(0, 256, (count, 3, 16, 16), dtype=np.uint8),
    }
    return Examples.of(columns)


MODELS = {
    "mlp": (Plain, numbers),
    "tied": (Tied, numbers),
    "buffers": (Buffers, numbers),
    "frozen": (Frozen, numbers),
    "unused": (Unused, numbers),
    "frozen BatchNorm": (FrozenNorm, numbers),
    "LayoutLMv3": (LayoutLMv3, pages),
    "LayoutLMv3 without image": (lambda: LayoutLMv3(image=False), pages),
    "RoBERTa": (Roberta, pages),
}
ALL = pytest.mark.parametrize("name", MODELS)


def made(name):
    torch.manual_seed(0)
    build, examples = MODELS[name]
    return build().double(), examples()


def by_hand(model, examples, clip_norm=CLIP_NORM):
    """The definition, on a fresh copy of the buffers for each example."""
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    parameters = [p for p in model.parameters() if p.requires_grad]
    total, norms = 0.0, []
    for position in range(len(examples)):
        model.load_state_dict(state)
        model.zero_grad()
        loss = model.loss(examples.batch(np.array([position])))
        loss.backward()
        gradient = np.concatenate(
            [np.zeros(p.numel()) if p.grad is None else p.grad.numpy().ravel() for p in parameters]
        )
        norms.append(np.linalg.norm(gradient))
        total = total + gradient * min(1.0, clip_norm / norms[-1])
    model.load_state_dict(state)
    model.zero_grad()
    return total, np.array(norms)


def close(a, b, tolerance=2e-12):
    return np.linalg.norm(a - b) <= tolerance * np.linalg.norm(b)


@BOTH
@ALL
def test_the_sum_is_that_of_a_backward_pass_for_each_example(name, method):
    model, examples = made(name)
    total, norms = by_hand(model, examples)
    assert norms.max() > CLIP_NORM
    result = PerExample(method, chunk_size=3).clipped_sum(model, examples, CLIP_NORM)
    assert result.method == method
    assert result.total.dtype == torch.float64
    assert np.linalg.norm(total) > 0.1 * CLIP_NORM
    assert close(result.total, total)
    np.testing.assert_allclose(result.norms, norms, rtol=1e-12)
    assert result.nonfinite == 0


@ALL
def test_vmap_and_loop_agree_and_chunks_make_no_difference(name):
    model, examples = made(name)
    loop = PerExample("loop").clipped_sum(model, examples, CLIP_NORM)
    for chunk in (1, 2, 3, COUNT, None):
        vmap = PerExample("vmap", chunk).clipped_sum(model, examples, CLIP_NORM)
        assert close(vmap.total, loop.total, 1e-12)
        np.testing.assert_allclose(vmap.norms, loop.norms, rtol=1e-12)


@BOTH
def test_some_are_inside_and_some_are_clipped(method):
    model, examples = made("mlp")
    norms = by_hand(model, examples)[1]
    clip_norm = float(np.median(norms))
    total = by_hand(model, examples, clip_norm)[0]
    result = PerExample(method).clipped_sum(model, examples, clip_norm)
    assert close(result.total, total)
    everything = PerExample(method).clipped_sum(model, examples, 2 * norms.max())
    assert close(everything.total, by_hand(model, examples, math.inf)[0], 1e-14)
    assert not close(everything.total, total, 0.01)


@BOTH
@ALL
def test_the_model_stays_as_it_was(name, method):
    model, examples = made(name)
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    before = {name: tensor.detach().clone() for name, tensor in tensors.items()}
    first = next(p for p in model.parameters() if p.requires_grad)
    first.grad = torch.full_like(first, 7.0)
    PerExample(method, 2).clipped_sum(model, examples, CLIP_NORM)
    after = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    assert all(after[name] is tensor for name, tensor in tensors.items())
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
    assert torch.equal(first.grad, torch.full_like(first, 7.0))
    assert all(p.grad is None for p in model.parameters() if p is not first)


@BOTH
def test_no_tensor_escapes_and_the_order_is_that_of_the_wire(method):
    model = made("unused")[0]
    one = numbers(1)
    result = PerExample(method).clipped_sum(model, one, 1e6)
    model.loss(one.batch(np.array([0]))).backward()
    gradients = {
        name: torch.zeros_like(p) if p.grad is None else p.grad
        for name, p in model.named_parameters()
    }
    expected = ParameterLayout(model).vectors(gradients)["float"]
    np.testing.assert_allclose(result.total, expected, rtol=1e-12)
    named = ParameterLayout(model).named({"float": result.total})
    assert named["factor"].shape == ()
    assert named["factor"] != 0
    assert named["first"] == 0


@BOTH
def test_frozen_parameters_are_neither_in_the_vector_nor_in_the_norm(method):
    model, examples = made("frozen")
    result = PerExample(method).clipped_sum(model, examples, 1e6)
    assert result.total.shape == read(model)["float"].shape == (5 + 10 + 2,)
    model.layers[0].weight.requires_grad_(True)
    assert (PerExample(method).clipped_sum(model, examples, 1e6).norms > result.norms).all()


@BOTH
def test_an_example_does_not_depend_on_its_neighbours(method):
    """Each window is padded to the length of the table, and stands beside longer ones."""
    model, examples = made("LayoutLMv3")
    together = PerExample(method, COUNT).clipped_sum(model, examples, 1e-3)
    alone = [PerExample(method).clipped_sum(model, examples.take([i]), 1e-3) for i in range(COUNT)]
    np.testing.assert_allclose(together.norms, [a.norms[0] for a in alone], rtol=1e-12)
    assert close(together.total, sum(a.total for a in alone), 1e-12)
    assert len(set(together.norms.round(9))) == COUNT


@BOTH
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_an_example_that_is_not_finite_counts_as_zero_and_is_reported(method, bad):
    model, examples = made("mlp")
    x = examples.column("x")
    x[2, 1] = bad
    spoiled = Examples.of({"x": x, "y": examples.column("y")})
    if math.isinf(bad):  # through tanh it would be an ordinary number
        model.layers[1] = nn.Identity()
    result = PerExample(method, 3).clipped_sum(model, spoiled, CLIP_NORM)
    rest = PerExample(method, 3).clipped_sum(model, examples.take([0, 1, 3, 4, 5, 6]), CLIP_NORM)
    assert result.nonfinite == 1
    assert np.flatnonzero(~np.isfinite(result.norms)).tolist() == [2]
    assert close(result.total, rest.total, 1e-12)


@BOTH
def test_all_not_finite_and_finite_gradients_of_enormous_size(method):
    model, examples = made("mlp")
    with torch.no_grad():
        model.layers[2].weight.fill_(math.nan)
    result = PerExample(method).clipped_sum(model, examples, CLIP_NORM)
    assert result.nonfinite == COUNT
    assert not result.total.any()
    model = made("unused")[0].float()
    with torch.no_grad():
        model.factor.fill_(1e30)
    result = PerExample(method).clipped_sum(model, numbers(1), CLIP_NORM)
    assert result.nonfinite == 0
    assert result.norms[0] > 1e28  # whose square float32 does not hold
    assert np.linalg.norm(result.total.double()) == pytest.approx(CLIP_NORM, rel=1e-5)


@pytest.mark.parametrize("method", ["auto", "vmap", "loop"])
def test_an_empty_batch_is_a_zero_vector(method):
    model, examples = made("mlp")
    result = PerExample(method, 2).clipped_sum(model, examples.take([]), CLIP_NORM)
    np.testing.assert_array_equal(result.total, np.zeros(5 * 3 + 5 + 5 * 2 + 2))
    assert result.norms.shape == (0,)
    assert result.nonfinite == 0


@BOTH
def test_in_float32_no_example_exceeds_the_norm_by_a_single_bit(method):
    model = made("mlp")[0].float()
    examples = numbers(60)
    for position in range(60):
        one = examples.take([position])
        for clip_norm in (1e-3, 0.1):
            total = PerExample(method).clipped_sum(model, one, clip_norm).total
            assert total.dtype == torch.float32
            norm = math.sqrt(math.fsum((total.double() ** 2).tolist()))
            assert clip_norm * (1 - 1e-6) < norm <= clip_norm


@BOTH
def test_half_precision_is_summed_in_float32(method):
    model = made("mlp")[0].float()
    model.layers[2].to(torch.bfloat16)
    model.layers[1] = Cast(torch.bfloat16)
    examples = numbers(40)
    result = PerExample(method, 16).clipped_sum(model, examples, 1e-2)
    assert result.total.dtype == torch.float32
    total = by_hand_half(model, examples, 1e-2)
    # bfloat16 has 8 bits: its gradients differ between the ways, its sum would differ by more.
    assert close(result.total, total, 1e-2 if method == "vmap" else 1e-6)
    one = PerExample(method).clipped_sum(model, examples.take([0]), 1e-2).total
    assert 0.999e-2 < np.linalg.norm(one.double()) <= 1e-2


class Cast(nn.Module):
    def __init__(self, dtype):
        super().__init__()
        self.dtype = dtype

    def forward(self, x):
        return x.tanh().to(self.dtype)


def by_hand_half(model, examples, clip_norm):
    total = 0.0
    for position in range(len(examples)):
        model.zero_grad()
        model.loss(examples.batch(np.array([position]))).backward()
        gradient = np.concatenate([p.grad.double().numpy().ravel() for p in model.parameters()])
        total = total + gradient * min(1.0, clip_norm / np.linalg.norm(gradient))
    model.zero_grad()
    return total


@BOTH
def test_a_loss_that_uses_no_parameter_has_no_gradient(method):
    model, examples = made("mlp")
    model.loss = lambda batch: batch["x"].sum() * 0
    result = PerExample(method).clipped_sum(model, examples, CLIP_NORM)
    assert not result.total.any()
    assert result.norms.tolist() == [0.0] * COUNT


def rows_by_hand(model, examples, names):
    """One backward pass for each example, on a fresh copy of the buffers."""
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    chosen = [dict(model.named_parameters())[name] for name in names]
    rows = []
    for position in range(len(examples)):
        model.load_state_dict(state)
        loss = model.loss(examples.batch(np.array([position])))
        found = torch.autograd.grad(loss, chosen, allow_unused=True)
        pairs = zip(found, chosen, strict=True)
        rows.append(
            torch.cat([(torch.zeros_like(p) if g is None else g).ravel() for g, p in pairs])
        )
    return torch.stack(rows)


@ALL
def test_each_example_has_its_gradient_by_the_named_parameters(name, monkeypatch):
    monkeypatch.setattr(per_example, "LARGEST_CHUNK", 3)
    model, examples = made(name)
    names = [name for name, p in model.named_parameters() if p.requires_grad][::-2]
    rows = list(each_gradient(model, examples, names))
    assert [len(chunk) for chunk in rows] == [3, 3, 1]
    assert not any(chunk.requires_grad for chunk in rows)
    torch.testing.assert_close(
        torch.cat(rows), rows_by_hand(model, examples, names), rtol=1e-10, atol=1e-14
    )


def test_each_gradient_is_told_once_where_vmap_fails_on_the_way(monkeypatch):
    monkeypatch.setattr(per_example, "LARGEST_CHUNK", 3)
    torch.manual_seed(0)
    model, examples = Moody(RuntimeError("no rule")).double(), numbers()
    names = [name for name, _ in model.named_parameters()]
    rows = list(each_gradient(model, examples, names))
    assert [len(chunk) for chunk in rows] == [3, 1, 1, 1, 1]
    torch.testing.assert_close(torch.cat(rows), rows_by_hand(model, examples, names))


# --- gradients of whole batches


@pytest.mark.parametrize("name", [*MODELS, "BatchNorm"])
def test_each_batch_has_the_gradient_that_it_has_alone(name, monkeypatch):
    """Also with a BatchNorm that keeps no statistics: those of a batch are its own."""
    monkeypatch.setattr(per_example, "LARGEST_CHUNK", 6)
    norm = nn.BatchNorm1d(5, track_running_stats=False)
    monkeypatch.setitem(MODELS, "BatchNorm", (lambda: Plain(norm), numbers))
    model, examples = made(name)
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    rows = np.random.default_rng(1).integers(0, COUNT, (5, 3))
    chunks = list(batch_gradients(model, examples, rows))
    assert [len(next(iter(chunk.values()))) for chunk in chunks] == [2, 2, 1]
    assert all(torch.equal(state[n], tensor) for n, tensor in model.state_dict().items())
    trainable = {n: p for n, p in model.named_parameters() if p.requires_grad}
    assert all(chunk.keys() == trainable.keys() for chunk in chunks)
    for position, batch in enumerate(rows):
        model.load_state_dict(state)
        model.zero_grad()
        model.loss(examples.batch(batch)).backward()
        for n, p in trainable.items():
            alone = torch.zeros_like(p) if p.grad is None else p.grad
            row = chunks[position // 2][n][position % 2]
            torch.testing.assert_close(row, alone, rtol=1e-10, atol=1e-14)


def test_batches_whose_loss_draws_random_numbers_are_refused():
    """The masks of one batch would depend on which others there are."""
    model = Plain(nn.Dropout(0.5)).double()
    with pytest.raises(RuntimeError, match="random"):
        next(batch_gradients(model, numbers(), np.array([[0, 1], [2, 3]])))
    model.layers[1].p = 0.0
    assert next(batch_gradients(model, numbers(), np.array([[0, 1], [2, 3]])))


def test_parameters_that_the_loss_does_not_use_are_named():
    batch = numbers().batch(np.arange(2))
    assert unused_parameters(Unused(), batch) == {"first", "never.weight", "never.bias"}
    assert unused_parameters(Frozen(), batch) == set()


# --- randomness, and what vmap cannot take


def test_sparse_gradients_of_an_embedding_are_summed_densely():
    torch.manual_seed(0)
    model, examples = Tied().double(), numbers()
    model.head = nn.Linear(4, 10).double()
    dense = PerExample("loop").clipped_sum(model, examples, CLIP_NORM)
    model.embedding.sparse = True
    sparse = PerExample().clipped_sum(model, examples, CLIP_NORM)
    assert close(sparse.total, dense.total, 1e-12)


@BOTH
def test_dropout_is_drawn_for_each_example_and_is_reproducible(method):
    torch.manual_seed(0)
    model = Plain(nn.Dropout(0.5)).double()
    same = Examples.of({"x": np.ones((20, 3)), "y": np.zeros(20, np.int64)})

    def run(seed):
        torch.manual_seed(seed)
        return PerExample(method, 6).clipped_sum(model, same, CLIP_NORM)

    first, again, other = run(1), run(1), run(2)
    np.testing.assert_array_equal(first.total, again.total)
    np.testing.assert_array_equal(first.norms, again.norms)
    assert not np.array_equal(first.norms, other.norms)
    assert len(set(first.norms.round(12))) > 5  # within a chunk, and from chunk to chunk
    assert len(set(first.norms[:6].round(12))) > 1
    assert not np.array_equal(first.norms[:6], first.norms[6:12])


class Choosy(Plain):
    """Asks for a value of its data, after it has drawn random numbers."""

    def loss(self, batch):
        loss = super().loss({**batch, "x": nn.functional.dropout(batch["x"], 0.5)})
        return loss if batch["x"].sum() > 0 else 2 * loss


class Moody(Plain):
    """Fails under vmap, at its second call."""

    def __init__(self, error):
        super().__init__()
        self.error, self.calls = error, 0

    def loss(self, batch):
        self.calls += 1
        if torch._C._functorch.is_gradtrackingtensor(batch["x"]) and self.calls == 2:
            raise self.error
        return super().loss(batch)


def test_auto_falls_back_to_the_loop_bit_for_bit_and_says_why():
    torch.manual_seed(0)
    model, examples = Choosy().double(), numbers()
    torch.manual_seed(1)
    loop = PerExample("loop").clipped_sum(model, examples, CLIP_NORM)
    torch.manual_seed(1)
    auto = PerExample("auto").clipped_sum(model, examples, CLIP_NORM)
    assert auto.method == "loop"
    assert auto.reason.startswith("vmap failed: RuntimeError: ")
    np.testing.assert_array_equal(auto.total, loop.total)
    np.testing.assert_array_equal(auto.norms, loop.norms)
    with pytest.raises(VmapError, match=r"vmap cannot take this model \(RuntimeError.*'loop'"):
        PerExample("vmap").clipped_sum(model, examples, CLIP_NORM)


def test_what_was_summed_before_the_failure_is_not_summed_twice():
    model, examples = Moody(ValueError("mood")).double(), numbers()
    auto = PerExample("auto", 2).clipped_sum(model, examples, CLIP_NORM)
    assert auto.reason == "vmap failed: ValueError: mood"
    loop = PerExample("loop").clipped_sum(model, examples, CLIP_NORM)
    np.testing.assert_array_equal(auto.total, loop.total)
    assert auto.norms.shape == (COUNT,)


@pytest.mark.parametrize("method", ["auto", "vmap"])
@pytest.mark.parametrize("error", [torch.OutOfMemoryError("full"), MemoryError("full")])
def test_running_out_of_memory_does_not_decide_which_way_is_taken(method, error):
    with pytest.raises(type(error), match="full"):
        PerExample(method, 2).clipped_sum(Moody(error), numbers(), CLIP_NORM)


def test_a_model_that_remembers_its_data_forgets_it_between_examples():
    torch.manual_seed(0)
    model, examples = Averaging().double(), numbers()
    total = by_hand(model, examples)[0]
    result = PerExample("auto").clipped_sum(model, examples, CLIP_NORM)
    assert result.method == "loop"
    assert "vmap failed" in result.reason
    assert close(result.total, total)
    assert model.average == 0


@pytest.mark.parametrize("track", [True, False])
def test_batch_norm_that_mixes_the_examples_is_refused_by_name(track):
    model = Plain(nn.BatchNorm1d(5, track_running_stats=track)).train(track)
    with pytest.raises(ValueError, match=r"layers\.1 is a BatchNorm1d .* privacy cannot hold"):
        PerExample().clipped_sum(model, numbers(), CLIP_NORM)


def test_problems_are_those_of_training_mode():
    (problem,) = PerExample().problems(Plain(nn.BatchNorm1d(5)).eval())
    assert problem.startswith("layers.1 is a BatchNorm1d")
    frozen = FrozenNorm()
    frozen.layers[1].train = lambda mode: frozen.layers[1]  # stays in eval mode
    assert PerExample().problems(frozen) == []


# --- settings


def test_auto_is_a_rule_on_the_size_of_the_model_and_the_kind_of_device(monkeypatch):
    model = Frozen()  # 17 trainable parameters
    assert PerExample().choice(model) == ("vmap", "automatic: 17 parameters, at most 2000000")
    monkeypatch.setattr(per_example, "VMAP_PARAMETERS_ON_CPU", 16)
    assert PerExample().choice(model) == ("loop", "automatic: 17 parameters, more than 16")
    assert PerExample().clipped_sum(model, numbers(), 1.0).method == "loop"
    assert PerExample().choice(model, "cuda") == ("vmap", "automatic: on cuda")
    assert PerExample("vmap").choice(model) == ("vmap", "set")
    assert PerExample("loop").choice(model, "cuda") == ("loop", "set")


def test_an_automatic_chunk_fits_its_bytes(monkeypatch):
    model = Frozen()  # 68 bytes
    assert automatic_chunk(model) == per_example.LARGEST_CHUNK
    monkeypatch.setitem(per_example.CHUNK_BYTES, "cpu", 68 * 5 + 67)
    assert automatic_chunk(model) == 5
    monkeypatch.setitem(per_example.CHUNK_BYTES, "cpu", 10)
    assert automatic_chunk(model) == 1
    assert automatic_chunk(model, "cuda") == per_example.LARGEST_CHUNK


def test_nonsense_is_refused():
    with pytest.raises(ValueError, match="method='hooks': expected"):
        PerExample("hooks")
    with pytest.raises(ValueError, match="chunk_size=0: expected 1 or more"):
        PerExample(chunk_size=0)
    with pytest.raises(ValueError, match="clip_norm=0: expected a positive"):
        PerExample().clipped_sum(Plain(), numbers(), 0)
    with pytest.raises(ValueError, match="Plain has no trainable parameter"):
        PerExample().clipped_sum(Plain().requires_grad_(False), numbers(), 1.0)


# --- the masks of transformers


def test_masks_are_safe_inside_and_restored_outside_even_after_an_error():
    functions = masking_utils.ALL_MASK_ATTENTION_FUNCTIONS
    before = dict(functions._local_mapping)
    originals = functions["eager"], functions["sdpa"]
    everything = {"batch_size": 2, "q_length": 3, "kv_length": 3}
    every = torch.ones(2, 3, dtype=torch.bool)

    def mask(**settings):
        return functions["sdpa"](**everything, attention_mask=every, **settings)

    def fail():
        with safe_masks():
            assert mask(allow_is_bidirectional_skip=True) is not None
            with safe_masks():
                pass
            assert mask(allow_is_bidirectional_skip=True) is not None
            raise KeyError("stop")

    assert mask(allow_is_bidirectional_skip=True) is None
    with pytest.raises(KeyError, match="stop"):
        fail()
    assert functions._local_mapping == before
    assert (functions["eager"], functions["sdpa"]) == originals


def test_the_shipped_layoutlmv3_gives_what_the_loop_gives():
    torch.manual_seed(0)
    model = layoutlmv3(["a"], max_length=12, image_size=16, hidden_size=16, layers=1)
    auto = PerExample("auto").clipped_sum(model, pages(), CLIP_NORM)
    loop = PerExample("loop").clipped_sum(model, pages(), CLIP_NORM)
    assert close(auto.total, loop.total, 1e-5)
    np.testing.assert_allclose(auto.norms, loop.norms, rtol=1e-5)
    assert auto.nonfinite == 0
    assert auto.method == "vmap", auto.reason
