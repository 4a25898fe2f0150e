"""What of a model is trained: the right tensors, on the private engine too, and back to plain."""

import pickle
import re

import numpy as np
import pytest
import torch
from host_vectors import read
from safetensors.torch import load_file
from torch import nn
from toy import data
from transformers import ViTConfig, ViTModel

from fedpriv.clients.feam_dp import ExampleGradients
from fedpriv.clients.fedavg import LocalTraining
from fedpriv.clients.fl_provider_dp import ProviderUpdates
from fedpriv.data.examples import PROVIDER, Examples
from fedpriv.federation.dataset import ArrayData
from fedpriv.federation.loop import Federation, Unworkable
from fedpriv.privacy.mechanism import example_gaussian, provider_gaussian
from fedpriv.runtime.run_folder import FINAL
from fedpriv.runtime.torch_state import seeded_model
from fedpriv.strategies.feam_dp import FeAmDP
from fedpriv.strategies.fedavg import FedAvg
from fedpriv.strategies.fl_provider_dp import FLProviderDP
from fedpriv.training.adapters import FineTuned, Full, LoRA, TopLayers, merged
from fedpriv.training.loops import Optimizer
from fedpriv.training.per_example import PerExample


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.value, self.dense = (nn.Linear(4, 4) for _ in range(3))

    def forward(self, x):
        return x + self.dense(torch.tanh(self.query(x)) * self.value(x))


class Layered(nn.Module):
    """Three blocks between an embedding and a head, an eye, and a table that it freezes itself."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Linear(4, 4)
        self.eye = nn.Linear(4, 4)
        self.layers = nn.ModuleList(Block() for _ in range(3))
        self.classifier = nn.Linear(4, 2)
        # Ends like a block's: adapters must not reach it.
        self.other = nn.ModuleDict({"layers": nn.ModuleList([Block()])})
        self.layers[2].table = nn.Parameter(torch.ones(3), requires_grad=False)

    def blocks(self):
        return list(self.layers)

    def head(self):
        return [self.classifier]

    def visual(self):
        return [self.eye]

    def scores(self, x):
        x = self.embedding(x) + self.eye(x) + self.other["layers"][0](x)
        for block in self.layers:
            x = block(x)
        return self.classifier(x)

    def loss(self, batch):
        x = batch["x"].to(self.classifier.weight.dtype)
        return nn.functional.cross_entropy(self.scores(x), batch["y"])

    def evaluate(self, examples):
        return {"loss": self.loss(examples.batch(np.arange(len(examples)))).item()}


class Headless(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)


def trained(finetuning, model=Layered):
    model = seeded_model(FineTuned(model, finetuning), 0)
    return {name for name, p in model.named_parameters() if p.requires_grad}


def of(*prefixes):
    names = [name for name, _ in Layered().named_parameters()]
    return {n for n in names if n.startswith(prefixes) and not n.endswith("table")}


ALL = of("")


def test_full_trains_all_but_what_the_model_froze():
    assert trained(Full()) == ALL
    assert "layers.2.table" not in ALL


def test_a_frozen_visual_encoder_is_all_that_is_frozen():
    assert trained(Full(visual=False)) == ALL - of("eye")


@pytest.mark.parametrize(
    ("layers", "prefixes"),
    [
        (0, ()),
        (1, ("layers.2",)),
        (2, ("layers.1", "layers.2")),
        (3, ("layers.",)),
    ],
)
def test_the_top_layers_and_the_head_are_trained(layers, prefixes):
    assert trained(TopLayers(layers)) == of("classifier", *prefixes)


def test_lora_trains_its_adapters_and_the_head():
    adapters = {
        f"layers.{block}.{name}.lora_{half}.default.weight"
        for block in range(3)
        for name in ("query", "value")
        for half in "AB"
    }
    assert trained(LoRA(rank=2)) == adapters | of("classifier")


def test_lora_takes_the_targets_it_is_given():
    assert trained(LoRA(rank=1, targets=("layers.1.dense", "query"))) == {
        f"layers.{name}.lora_{half}.default.weight"
        for name in ("0.query", "1.query", "2.query", "1.dense")
        for half in "AB"
    } | of("classifier")


@pytest.mark.parametrize("finetuning", [TopLayers(3), LoRA(), Full()])
def test_nothing_that_the_model_froze_is_thawed(finetuning):
    def frozen_head():
        model = Layered()
        model.classifier.weight.requires_grad_(False)
        return model

    names = trained(finetuning, frozen_head)
    assert "classifier.weight" not in names
    assert "classifier.bias" in names
    assert "layers.2.table" not in names


def test_lora_starts_as_the_model_it_adapts_and_scales_by_alpha_over_rank():
    x = torch.randn(5, 4)
    model, plain = seeded_model(FineTuned(Layered, LoRA(2, 6.0)), 0), seeded_model(Layered, 0)
    assert torch.equal(model.scores(x), plain.scores(x))
    query = model.layers[0].query
    a, b = query.lora_A["default"].weight, query.lora_B["default"].weight
    assert a.shape == (2, 4)
    with torch.no_grad():
        b.normal_()
        change = query(x) - plain.layers[0].query(x)
    torch.testing.assert_close(change, 3.0 * x @ a.T @ b.T)


def test_the_same_seed_draws_the_same_adapters():
    one, two, other = (seeded_model(FineTuned(Layered, LoRA()), seed) for seed in (0, 0, 1))
    name = "layers.0.query.lora_A.default.weight"
    assert torch.equal(one.get_parameter(name), two.get_parameter(name))
    assert not torch.equal(one.get_parameter(name), other.get_parameter(name))


def stir(model):
    """Moves what is trainable away from where LoRA starts."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    return model


def test_merged_is_the_plain_model_that_computes_the_same():
    x = torch.randn(5, 4).double()
    model = stir(seeded_model(FineTuned(Layered, LoRA(2)), 0).double()).eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    plain = merged(model)
    assert plain.state_dict().keys() == Layered().state_dict().keys()
    assert [type(m) for m in plain.modules()] == [type(m) for m in Layered().modules()]
    torch.testing.assert_close(plain.scores(x), model.scores(x))
    assert not torch.equal(plain.scores(x), seeded_model(Layered, 0).double().scores(x))
    assert all(torch.equal(before[name], t) for name, t in model.state_dict().items())


def test_merged_leaves_a_model_without_adapters_as_it_is():
    model = Layered()
    plain = merged(model)
    assert plain is not model
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), plain.parameters(), strict=1))


class Seeing(nn.Module):
    """A model of transformers inside a module of ours."""

    def __init__(self):
        super().__init__()
        config = ViTConfig(
            hidden_size=8,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=8,
            image_size=8,
            patch_size=4,
        )
        self.network = ViTModel(config, add_pooling_layer=False)
        self.classifier = nn.Linear(8, 2)

    def blocks(self):
        return [m for m in self.network.modules() if type(m).__name__ == "ViTLayer"]

    def head(self):
        return [self.classifier]

    def visual(self):
        return []


def test_what_transformers_saves_of_a_merged_model_it_loads_as_a_plain_one(tmp_path):
    x = torch.randn(2, 3, 8, 8)
    model = stir(seeded_model(FineTuned(Seeing, LoRA(2)), 0)).eval()
    merged(model).network.save_pretrained(tmp_path)
    loaded = ViTModel.from_pretrained(tmp_path, add_pooling_layer=False)
    with torch.no_grad():
        want, got = model.network(x).last_hidden_state, loaded(x).last_hidden_state
        fresh = seeded_model(Seeing, 0).eval().network(x).last_hidden_state
    torch.testing.assert_close(got, want)
    assert not torch.allclose(fresh, want, atol=1e-3)


# Mistakes


@pytest.mark.parametrize(
    ("finetuning", "message"),
    [
        (
            TopLayers(4),
            "layers=4: Layered has 3; take at most 3, or Full to train the embeddings too",
        ),
        (
            LoRA(targets=("query", "qkv")),
            "targets=['qkv']: the layers of Layered have no such module; "
            "they have dense, query, value",
        ),
    ],
)
def test_an_error_says_which_parts_there_are(finetuning, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        finetuning.apply(Layered())


@pytest.mark.parametrize("finetuning", [TopLayers(1), LoRA(), Full(visual=False)])
def test_a_model_that_does_not_know_its_parts_can_only_be_trained_in_full(finetuning):
    with pytest.raises(ValueError, match=r"^Headless does not say .* no blocks, head, visual; "):
        finetuning.apply(Headless())
    Full().apply(Headless())


def test_a_model_without_a_visual_encoder_has_none_to_freeze():
    with pytest.raises(ValueError, match=r"^visual=false: Seeing has no visual encoder"):
        Full(visual=False).apply(Seeing())


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: TopLayers(-1), "layers=-1: expected 0 or more"),
        (lambda: LoRA(rank=0), "rank=0: expected 1 or more"),
        (lambda: LoRA(alpha=0), "alpha=0: expected a positive, finite number"),
        (lambda: LoRA(dropout=1.0), r"dropout=1.0: expected a value in \[0, 1\)"),
        (lambda: LoRA(targets=()), r"targets=\[\]: name at least one module, or leave it out"),
    ],
)
def test_settings_are_checked(build, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        build()


def test_a_federation_names_the_mistake_before_it_starts():
    with pytest.raises(Unworkable) as caught:
        Federation(
            model=Layered,
            data=data(),
            strategy=FedAvg(),
            client=LocalTraining(),
            finetuning=TopLayers(7),
        )
    assert caught.value.problems == [
        "finetuning: layers=7: Layered has 3; take at most 3, or Full to train the embeddings too"
    ]


# At work


def examples(count=9):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(count, 4))
    return Examples.of({"x": x, "y": (x[:, 0] > 0).astype(np.int64)})


def test_per_example_gradients_of_adapters_agree_whichever_way():
    model = stir(seeded_model(FineTuned(Layered, LoRA(2)), 0).double())
    loop, vmap = (
        PerExample(method).clipped_sum(model, examples(), 0.05) for method in ("loop", "vmap")
    )
    assert loop.total.shape == (3 * 2 * (2 * 4 + 4 * 2) + 10,)
    assert loop.total.dtype == torch.float64
    assert np.linalg.norm(loop.total) > 0.05
    np.testing.assert_allclose(vmap.total, loop.total, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(vmap.norms, loop.norms, rtol=1e-12)


def owned():
    plain = data(4)
    owners = np.concatenate([10 * k + np.arange(len(r)) // 4 for k, r in enumerate(plain.rows)])
    return ArrayData({**plain.train, PROVIDER: owners}, plain.rows, plain.test)


PRIVATE = {
    "FL-PROVIDER-DP": (
        FLProviderDP(
            provider_gaussian(
                noise_multiplier=0.5, clip_norm=0.5, providers=3, client_rate=1.0, delta=1e-5
            )
        ),
        ProviderUpdates(steps=2, optimizer=Optimizer(lr=0.02)),
    ),
    "FeAm-DP": (
        FeAmDP(
            example_gaussian(
                noise_multiplier=0.5,
                clip_norm=0.5,
                examples=50,
                record_rate=0.5,
                client_rate=1.0,
                delta=1e-5,
            )
        ),
        ExampleGradients(),
    ),
}


@pytest.mark.usefixtures("budget_untold")
@pytest.mark.parametrize(
    "name", ["FL-PROVIDER-DP", pytest.param("FeAm-DP", marks=pytest.mark.slow)]
)
def test_private_algorithms_train_adapters_only(name, tmp_path):
    strategy, client = PRIVATE[name]
    federation = Federation(
        model=Layered,
        data=owned(),
        strategy=strategy,
        client=client,
        finetuning=LoRA(rank=2),
        runs=tmp_path,
    )
    result = federation.run(2)
    assert result.failures == []
    start = seeded_model(FineTuned(Layered, LoRA(rank=2)), 0)
    moved = {
        name
        for (name, now), before in zip(
            result.model.named_parameters(), start.parameters(), strict=True
        )
        if not torch.equal(now, before)
    }
    assert moved == {n for n, p in start.named_parameters() if p.requires_grad}
    assert read(start)["float"].size == 106


def test_adapters_are_resumed_bit_by_bit(tmp_path):
    toy = Federation(
        model=Layered,
        data=data(),
        strategy=FedAvg(),
        client=LocalTraining(optimizer=Optimizer(lr=0.02)),
        finetuning=LoRA(rank=2, dropout=0.5),
    )
    straight = toy.run(2, run_dir=tmp_path / "straight")
    toy.run(1, run_dir=tmp_path / "mine")
    resumed = toy.run(2, run_dir=tmp_path / "mine", resume=True)
    for name in ("final", "round-000002"):
        one, two = (
            (run.run_dir / "checkpoints" / f"{name}.safetensors").read_bytes()
            for run in (straight, resumed)
        )
        assert one == two
    # A checkpoint holds what travels; the final file is the whole model.
    assert load_file(tmp_path / "mine" / FINAL).keys() == straight.model.state_dict().keys()
    travelled = load_file(tmp_path / "mine" / "checkpoints" / "round-000002.safetensors")
    assert {name.removeprefix("model/") for name in travelled} == trained(LoRA(rank=2))
    assert straight.metrics[0]["bytes_up"] == 8 * 4 * (6 * 2 * 4 + 6 * 4 * 2 + 10)


def test_clients_are_served_by_one_model_with_adapters():
    """A site that took the adapters for a client's doing would build the model anew each time."""
    built = []

    def build():
        built.append(1)
        return FineTuned(Layered, LoRA(rank=2, dropout=0.5))()

    federation = Federation(
        model=build, data=data(), strategy=FedAvg(), client=LocalTraining(optimizer=Optimizer())
    )
    before = len(built)
    federation.run(2)
    assert len(built) == before + 2  # the server's and the site's


def test_a_worker_can_build_it():
    build = pickle.loads(pickle.dumps(FineTuned(Layered, LoRA(2))))  # noqa: S301 - our own bytes
    assert isinstance(build(), Layered)
