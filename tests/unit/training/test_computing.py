"""Lower precision, batches in parts and activation checkpointing, against whole float32 batches."""

import copy
import dataclasses
import functools
import shutil
from typing import ClassVar

import numpy as np
import pytest
import torch
from fake_device import DEVICE, FakeDevice
from torch import nn
from toy import Net, federation, norm_net, weights
from toy_private import Double, Small, answers, instruction, numbers, rows_of

from fedpriv.clients.feam_dp import ExampleGradients
from fedpriv.clients.fedavg import LocalTraining
from fedpriv.clients.fedavg_dp import DPLocalTraining
from fedpriv.clients.fedsgd import BatchGradient
from fedpriv.clients.fl_provider_dp import ProviderUpdates
from fedpriv.config import experiment
from fedpriv.data.examples import Examples
from fedpriv.data.generated.invoices import Invoices
from fedpriv.data.partition import ByProvider
from fedpriv.federation.dataset import DocumentData
from fedpriv.federation.loop import Unworkable
from fedpriv.models.encoders.backbones import bros, layoutlm
from fedpriv.models.layoutlmv3 import layoutlmv3
from fedpriv.models.roberta import roberta
from fedpriv.models.vt5 import vt5
from fedpriv.privacy.mechanism import example_gaussian, provider_gaussian
from fedpriv.privacy.message_key import message_key
from fedpriv.runtime.torch_state import reproducible_torch
from fedpriv.strategies.feam_dp import FeAmDP
from fedpriv.strategies.fedavg_dp import FedAvgDP
from fedpriv.strategies.fedsgd import FedSGD
from fedpriv.strategies.fl_provider_dp import FLProviderDP
from fedpriv.training.computing import FIRST_SCALE, Backward, Computing
from fedpriv.training.loops import Optimizer, train_epoch
from fedpriv.training.per_example import PerExample, VmapError

MODELS = {
    "mean over tokens": layoutlmv3,
    "mean over examples": functools.partial(layoutlmv3, task="answers"),
    "mean over masked tokens": functools.partial(layoutlm, task="mlm"),
    "T5": vt5,
}


@pytest.fixture(scope="module")
def documents():
    return Invoices(providers=4, documents_per_provider=2, seed=1).load()


def toy_batch(size=10, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(size, 4)).astype(np.float32)
    return Examples.of({"x": x, "y": (x[:, 0] > 0).astype(np.int64)})


def gradient(model, batch, computing=None):
    """Returns the loss and the gradient as one vector."""
    model.zero_grad()
    loss = Backward(computing)(model, batch)
    grads = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
    return loss, torch.cat(grads)


def relative(a, b):
    return float((a - b).norm() / b.norm())


def built(kind, documents, seed=0):
    torch.manual_seed(seed)
    model = MODELS[kind](labels=documents.labels)
    examples = model.encode(documents.documents)
    return model.eval(), examples


@pytest.mark.parametrize("kind", MODELS)
def test_parts_of_a_batch_give_its_gradient_in_float64(kind, documents):
    model, examples = built(kind, documents)
    batch = examples.batch(np.arange(4))
    whole = gradient(model.double(), batch)
    rounding = 1e-7 if kind == "T5" else 1e-12  # T5 normalises in float32, whatever its own type
    for size in (1, 3, 100):
        parts = gradient(model, batch, Computing(microbatch=size))
        assert relative(parts[0], whole[0]) < rounding
        assert relative(parts[1], whole[1]) < rounding
    # The examples have different numbers of tokens: a plain mean of the parts is another gradient.
    if kind == "mean over tokens":
        of_parts = [gradient(model, examples.batch(np.arange(*at)))[1] for at in ((0, 1), (1, 4))]
        assert relative(sum(of_parts) / 2, whole[1]) > 1e-3


def test_only_examples_that_point_weigh_in_a_linker(documents):
    model = bros(labels=documents.labels, task="links").double()
    losses = torch.tensor([3.0, 5.0, 0.0], dtype=torch.float64)
    points = torch.tensor([[0, 1], [1, -100], [-100, -100]])
    model.losses = lambda batch: losses[batch["row"]]
    batch = {"row": torch.arange(3), model.column: points}
    total, count = model.summed_loss(batch)
    assert (total.item(), count.item(), model.loss(batch).item()) == (8.0, 2, 4.0)


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw"])
def test_an_epoch_in_parts_takes_the_same_steps_in_float64(name):
    models = []
    for computing in (Computing(), Computing(microbatch=3)):
        torch.manual_seed(0)
        model = Net().double().eval()
        columns = {"x": toy_batch(23).columns["x"].astype(np.float64)}
        examples = Examples.of({**columns, "y": toy_batch(23).columns["y"]})
        optimizer = Optimizer(name, lr=0.01).build(model)
        batches = examples.batches(8, shuffle=np.random.default_rng(0))
        loss = train_epoch(model, batches, optimizer, Backward(computing))
        models.append((loss, torch.cat([p.detach().flatten() for p in model.parameters()])))
    assert models[1][0] == pytest.approx(models[0][0], rel=1e-12)
    assert relative(models[1][1], models[0][1]) < 1e-9  # Adam divides by small numbers


# Relative distances from float32 that the guide states.
LOSS = {"bf16": 0.01, "fp16": 0.001}
GRADIENT = {"bf16": 0.03, "fp16": 0.01}


@pytest.mark.parametrize(
    ("kind", "precision"),
    [
        ("mean over tokens", "bf16"),
        pytest.param("mean over tokens", "fp16", marks=pytest.mark.slow),  # slow on a CPU
        ("T5", "bf16"),
        ("T5", "fp16"),
    ],
)
def test_lower_precision_comes_close_to_float32(kind, precision, documents):
    model, examples = built(kind, documents)
    batch = examples.batch(np.arange(4))
    plain = gradient(model, batch)
    for size in (None, 3):
        low = gradient(model, batch, Computing(precision, size))
        assert 0 < relative(low[1], plain[1]) < GRADIENT[precision]
        assert relative(low[0], plain[0]) < LOSS[precision]
        assert low[1].dtype == torch.float32


class Scaled(nn.Module):
    """A loss whose gradient is `slope`, in a product that autocast takes to half precision."""

    def __init__(self, slope):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1, 1))
        self.slope = slope

    def loss(self, batch):
        return (nn.functional.linear(batch["x"], self.weight).float() * self.slope).mean()


def test_fp16_keeps_gradients_that_it_cannot_hold_itself():
    tiny, batch = 2.0**-26, {"x": torch.ones(4, 1)}  # half of fp16's smallest number
    backward, model = Backward(Computing("fp16")), Scaled(tiny)
    backward(model, batch)
    assert model.weight.grad.item() == tiny
    assert backward.scale == FIRST_SCALE


def test_fp16_halves_its_scale_until_the_gradient_fits_and_keeps_it():
    batch = {"x": torch.ones(1, 1)}
    backward, model = Backward(Computing("fp16")), Scaled(64.0)
    backward(model, batch)
    assert model.weight.grad.item() == 64.0
    assert backward.scale == 512  # 64 · 1024 is more than 65504
    model.weight.grad = None
    backward(model, batch)
    assert backward.scale == 512


def test_fp16_gives_up_where_the_loss_itself_is_infinite():
    backward, model = Backward(Computing("fp16")), Scaled(float("inf"))
    assert backward(model, {"x": torch.ones(1, 1)}).isinf()
    assert backward.scale == 1
    assert not model.weight.grad.isfinite().any()


@pytest.mark.parametrize("method", ["loop", "vmap"])
def test_gradients_of_examples_in_bf16_are_clipped_and_summed_in_float32(method, documents):
    model, examples = built("mean over tokens", documents)
    model.train()
    few, clip_norm = examples.take(np.arange(3)), 0.1
    way = PerExample(method=method)
    plain = way.clipped_sum(model, few, clip_norm)
    low = way.clipped_sum(model, few, clip_norm, "cpu", Computing("bf16"))
    assert low.total.dtype == torch.float32
    assert low.method == method
    distance = np.linalg.norm(low.total - plain.total) / np.linalg.norm(plain.total)
    assert 0 < distance < GRADIENT["bf16"]
    # bf16 has three digits: a sum or a norm in it would be off by 1e-3.
    singles = [
        way.clipped_sum(model, few.take([i]), clip_norm, "cpu", Computing("bf16")).total
        for i in range(3)
    ]
    for single, norm in zip(singles, low.norms, strict=True):
        assert norm > clip_norm
        assert np.linalg.norm(single.double()) == pytest.approx(clip_norm, rel=1e-6)
    np.testing.assert_allclose(low.total, torch.stack(singles).double().sum(0), atol=1e-7)


def test_on_a_cpu_gradients_of_examples_in_bf16_come_from_the_loop(documents):
    model, examples = built("T5", documents)
    model.train()
    few = examples.take(np.arange(2))
    low = PerExample().clipped_sum(model, few, 0.1, "cpu", Computing("bf16"))
    assert (low.method, low.reason) == ("loop", "automatic: bf16 on a CPU")
    with pytest.raises(VmapError, match="use 'loop'"):
        PerExample(method="vmap").clipped_sum(model, few, 0.1, "cpu", Computing("bf16"))


CLIP = 0.05
"""Less than the norm of any gradient, or of any provider's change, of these tests."""
EXAMPLES = example_gaussian(clip_norm=CLIP, examples=20, noise_multiplier=0, record_rate=1.0)
PROVIDERS = provider_gaussian(clip_norm=CLIP, providers=1, noise_multiplier=0)
STEPS = Optimizer("sgd", lr=0.3)
PRIVATE = {
    "FeAm-DP": (FeAmDP(EXAMPLES), ExampleGradients()),
    "FedAvg-DP": (FedAvgDP(EXAMPLES, steps=2), DPLocalTraining(STEPS)),
    "FL-PROVIDER-DP": (
        FLProviderDP(PROVIDERS),
        ProviderUpdates(steps=2, batch_size=8, optimizer=STEPS),
    ),
}


def private_message(name, computing, build=Small):
    strategy, half = PRIVATE[name]
    columns = numbers(20, providers=np.repeat([0, 1], 10))
    asked = instruction(strategy, 1, 1)
    (message,), failures = answers(half, columns, rows_of(20), asked, build, computing=computing)
    assert not failures
    return message


@pytest.mark.parametrize("name", PRIVATE)
def test_private_halves_in_bf16_clip_in_float32_and_come_close(name):
    low, plain = (private_message(name, how) for how in (Computing("bf16"), Computing()))
    assert low.dtype == np.float32
    distance = np.linalg.norm(low - plain) / np.linalg.norm(plain)
    assert 0 < distance < GRADIENT["bf16"]
    if name == "FL-PROVIDER-DP":  # the sum of two providers' clipped changes
        assert np.linalg.norm(low.astype(np.float64)) <= 2 * CLIP * (1 + 1e-6)
        parts = private_message(name, Computing("bf16", 3))
        assert np.linalg.norm(parts - plain) / np.linalg.norm(plain) < GRADIENT["bf16"]


def test_a_providers_steps_in_parts_are_those_of_whole_batches_in_float64():
    whole, parts = (
        private_message("FL-PROVIDER-DP", how, Double)
        for how in (Computing(), Computing(microbatch=3))
    )
    assert whole.dtype == np.float64
    assert np.linalg.norm(parts - whole) < 1e-12 * np.linalg.norm(whole)


def kept_bytes(model, batch):
    """Returns the gradient, and how many bytes the forward pass kept for the backward pass."""
    seen = {}

    def pack(tensor):
        seen[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    model.zero_grad()
    torch.manual_seed(0)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = model.loss(batch)
    loss.backward()
    grads = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    return grads, sum(size for place, size in seen.items() if place not in own)


@pytest.mark.parametrize("kind", ["mean over tokens", "mean over masked tokens", "T5"])
def test_activation_checkpointing_keeps_less_and_gives_the_same_gradient(kind, documents):
    model = MODELS[kind](labels=documents.labels, dropout=0.1)
    batch = model.train().encode(documents.documents).batch(np.arange(4))
    plain, before = kept_bytes(model, batch)
    Computing(checkpointing=True).prepare(model)
    again, after = kept_bytes(model, batch)
    assert relative(again, plain) < 1e-5  # with the same dropout masks
    assert after < 0.75 * before
    assert PerExample().choice(model)[0] == "loop"


def test_a_model_without_such_layers_is_told_so():
    with pytest.raises(Unworkable, match=r"training.checkpointing=true: Net has no layer"):
        federation(computing=Computing(checkpointing=True))


@pytest.mark.parametrize("computing", [Computing("bf16"), Computing("bf16", 2)])
@pytest.mark.parametrize("half", ["local training", "batch gradient"])
def test_the_same_seed_gives_the_same_bits_and_nearly_those_of_float32(tmp_path, computing, half):
    halves = {
        "local training": {"client": LocalTraining(batch_size=7, optimizer=Optimizer(lr=0.02))},
        "batch gradient": {"strategy": FedSGD(lr=0.5), "client": BatchGradient(batch_size=8)},
    }
    ran = [
        weights(federation(runs=tmp_path, computing=how, **halves[half]).run(2))
        for how in (computing, computing, Computing())
    ]
    assert ran[0] == ran[1]
    again, plain = (np.frombuffer(each, np.float32) for each in ran[1:])
    # Dropout draws other masks in parts.
    off = np.linalg.norm(again - plain) / np.linalg.norm(plain)
    assert 0 < off < (0.1 if computing.microbatch else 0.01)


@pytest.mark.slow
@pytest.mark.parametrize("computing", [Computing("bf16", 3)])
def test_the_number_of_workers_changes_no_bits(tmp_path, computing):
    client = LocalTraining(batch_size=7)
    ran = [
        weights(federation(runs=tmp_path, computing=computing, client=client, workers=n).run(2))
        for n in (0, 2)
    ]
    assert ran[0] == ran[1]


class TokenMean(Net):
    """Divides its loss by a number of its own, and does not say so."""

    def loss(self, batch):
        weight = batch["y"].sum() + 1
        wrong = nn.functional.cross_entropy(self.layers(batch["x"]), batch["y"], reduction="none")
        return (wrong * batch["y"]).sum() / weight


REFUSED = {
    "fp16 on a CPU": (
        {"computing": Computing("fp16")},
        "training.precision='fp16': needs a GPU, and federation.device is 'cpu'; take 'bf16' or "
        "'float32'",
    ),
    "TF32 on a CPU": (
        {"computing": Computing("tf32")},
        "training.precision='tf32': needs a GPU, and federation.device is 'cpu'",
    ),
    "other bits on a CPU": (
        {"computing": Computing(deterministic=False)},
        "training.deterministic=false: federation.device is 'cpu', where it changes nothing; leave "
        "it out",
    ),
    "compiled layers that are computed twice": (
        {"computing": Computing(compile=True, checkpointing=True)},
        "training.compile=true: not with training.checkpointing; leave one out",
    ),
    "nothing to compile": (
        {"computing": Computing(compile=True)},
        "training.compile=true: Net has no layer of transformers",
    ),
    "a half that does not follow": (
        {"computing": Computing(microbatch=2), "client": None},
        "training.microbatch=2: Faulty: it does not follow this setting (its class variable "
        "`computes` would name it)",
    ),
    "BatchNorm": (
        {"computing": Computing(microbatch=2), "model": norm_net},
        "training.microbatch=2: layers.1 is a BatchNorm1d, whose statistics depend on which "
        "examples are computed together; leave microbatch out",
    ),
    "another mean": (
        {"computing": Computing(microbatch=2), "model": TokenMean},
        "and their own losses add up to",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_work_is_refused_before_anything_starts(case):
    settings, words = REFUSED[case]
    with pytest.raises(Unworkable) as error:
        federation(**{"client": LocalTraining(), **settings})
    assert any(words in problem for problem in error.value.problems)


def test_halves_that_clip_examples_name_what_they_have_instead():
    half, model = ExampleGradients(), Net()
    assert Computing("bf16").problems(half, model, "cpu") == []
    (problem,) = Computing(microbatch=4).problems(half, model, "cpu")
    assert problem == (
        "training.microbatch=4: ExampleGradients: it computes the gradient of each example "
        "already; client.per_example.chunk_size sets how many of them at once"
    )
    (problem,) = Computing(compile=True).problems(half, model, "cuda")
    assert problem == (
        "training.compile=True: ExampleGradients: it clips the gradient of each example, which "
        "compiled layers do not make"
    )
    (problem,) = Computing("fp16").problems(half, model, "cuda")
    assert "take 'bf16', which has the range of float32" in problem
    vmap = ExampleGradients(PerExample(method="vmap"))
    (problem,) = Computing(checkpointing=True).problems(vmap, model, "cpu")
    assert "client.per_example.method='vmap' cannot compute activations again" in problem


def test_providers_are_computed_one_by_one_where_several_batches_cannot_be_one():
    half = ProviderUpdates(steps=1)
    for computing in (Computing("fp16"), Computing(microbatch=2), Computing(compile=True)):
        way, why = half.choice(Net(), "cuda", computing)
        assert (way, why) == ("loop", f"automatic: training.{computing.alone}")
        by_vmap = dataclasses.replace(half, method="vmap")
        (problem,) = computing.problems(by_vmap, Net(), "cuda")
        assert f"not with training.{computing.alone}; take 'auto' or 'loop'" in problem
    by_vmap = dataclasses.replace(half, method="vmap")
    (problem,) = Computing(checkpointing=True).problems(by_vmap, Net(), "cuda")
    assert "client.method='vmap' cannot compute activations again" in problem  # and that once
    assert half.choice(Net(), "cuda", Computing("tf32"))[0] == "vmap"


def kernels_now():
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.utils.deterministic.fill_uninitialized_memory,
        torch.get_float32_matmul_precision(),
        torch.backends.cudnn.allow_tf32,
    )


def exactly_now():
    precise = torch.backends.cuda.matmul, torch.backends.mkldnn.matmul
    return kernels_now(), [getattr(one, "fp32_precision", "") for one in precise]


def test_a_gpu_takes_the_kernels_that_are_asked_for_and_a_cpu_is_left_alone():
    before = exactly_now()
    for asked, expected in (
        ({}, (True, False, "highest", False)),
        ({"tf32": True}, (True, False, "high", True)),
        ({"deterministic": False}, (False, False, "highest", False)),
    ):
        with reproducible_torch(1, "cuda:1", **asked):
            assert kernels_now() == expected
            with reproducible_torch(1, "cpu"):
                assert kernels_now() == expected
        assert exactly_now() == before


@dataclasses.dataclass(frozen=True)
class Looking(LocalTraining):
    """Notes the kernels that a client trains with."""

    seen: ClassVar[list] = []

    def train(self, context):
        self.seen.append(kernels_now())
        return super().train(context)


def test_clients_train_with_the_kernels_of_the_settings(tmp_path):
    Looking.seen.clear()
    for computing in (Computing(), Computing("tf32", deterministic=False)):
        with FakeDevice():
            where = {"device": str(DEVICE), "cohort_batch": 1, "runs": tmp_path}
            federation(client=Looking(), computing=computing, **where).run(1)
    exact, fast = (True, False, "highest", False), (False, False, "high", True)
    assert set(Looking.seen) == {exact, fast}


@pytest.fixture
def compiled(monkeypatch):
    """Yields what torch was asked to compile, and compiles nothing."""
    asked = []

    def compile(call, **settings):
        asked.append((type(call.__self__).__name__, settings))
        return call

    monkeypatch.setattr(torch, "compile", compile)
    return asked


def test_each_layer_of_transformers_is_compiled_for_batches_of_any_size(compiled, documents):
    model = layoutlmv3(labels=documents.labels, layers=2)
    Computing(compile=True).prepare(model)
    assert compiled == [("LayoutLMv3Layer", {"dynamic": True})] * 2
    copied = copy.deepcopy(model)
    assert all(module._compiled_call_impl is None for module in copied.modules())


@pytest.mark.slow
def test_no_layer_is_left_uncompiled_whatever_the_batches(documents, monkeypatch):
    """Two kinds of layers, each for one example and for several: more than torch's default."""
    real = nn.Module.compile
    eagerly = {"backend": "eager"}  # the variants are the same, and nothing is generated
    monkeypatch.setattr(nn.Module, "compile", lambda self, **given: real(self, **given, **eagerly))
    torch._dynamo.reset()
    before = torch._dynamo.config.recompile_limit
    try:
        model = vt5(labels=documents.labels, layers=1)
        computing = Computing(compile=True)
        computing.prepare(model)
        examples = model.encode(documents.documents)
        counters = torch._dynamo.utils.counters
        counters.clear()
        for size in (1, 4, 3, 1):
            gradient(model, examples.batch(np.arange(size)), computing)
        with torch.no_grad():
            model.eval().evaluate(examples)
        assert not any("limit" in why for why in counters["unimplemented"])
        assert counters["frames"]["ok"] == counters["frames"]["total"] > 0
    finally:
        torch._dynamo.config.recompile_limit = before
        torch._dynamo.reset()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch compiles with g++")
def test_compiled_layers_learn_what_others_do(tmp_path):
    def run(computing, workers=0):
        made = federation(
            model=functools.partial(roberta, layers=1),
            data=DocumentData(Invoices(providers=4, documents_per_provider=2), ByProvider(2)),
            client=LocalTraining(batch_size=3, optimizer=Optimizer("sgd", lr=0.01)),
            runs=tmp_path,
            computing=computing,
            workers=workers,
        )
        return np.frombuffer(weights(made.run(2)), np.float32)

    plain, compiled = run(Computing()), run(Computing(compile=True))
    off = np.linalg.norm(compiled - plain) / np.linalg.norm(plain)
    assert 0 < off < 1e-5  # Inductor's kernels round otherwise


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"precision": "half"}, "precision='half': expected 'float32', 'tf32', 'bf16' or 'fp16'"),
        ({"microbatch": 0}, "microbatch=0: expected 1 or more, or none"),
    ],
)
def test_values_that_mean_nothing_are_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        Computing(**settings)


def test_only_other_settings_than_the_defaults_change_the_key_of_a_private_run():
    def key(computing):
        half, model = LocalTraining(), nn.Linear(1, 1, bias=False)
        nn.init.ones_(model.weight)
        return message_key(
            (half,), model, "", threads=1, device="cpu", computing=computing.changed()
        )

    keys = [key(c) for c in (Computing(), Computing("bf16"), Computing(microbatch=2))]
    assert len(set(keys)) == 3
    model = nn.Linear(1, 1, bias=False)
    nn.init.ones_(model.weight)
    assert keys[0] == message_key((LocalTraining(),), model, "", threads=1, device="cpu")


def test_an_experiment_hands_its_settings_to_every_half(tmp_path):
    overrides = ["training.precision=bf16", "training.microbatch=2", "training.checkpointing=true"]
    config = experiment.load("kie_layoutlmv3", [*overrides, f"runs={tmp_path}"])
    assert {k: config["training"][k] for k in ("precision", "microbatch", "checkpointing")} == {
        "precision": "bf16",
        "microbatch": 2,
        "checkpointing": True,
    }
    built = experiment.build(config).assemble(config)
    assert built.spec.computing == Computing("bf16", 2, checkpointing=True)
    assert dataclasses.asdict(Computing()) == {
        "precision": "float32",
        "microbatch": None,
        "checkpointing": False,
        "compile": False,
        "deterministic": True,
    }
