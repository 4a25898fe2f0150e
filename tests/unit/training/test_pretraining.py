"""Pretraining on public documents: the same bits from one seed, kept once, taken over by name."""

import dataclasses
import json
import pickle
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from pages import page
from safetensors import safe_open
from torch import nn

from fedpriv.cli import clean
from fedpriv.clients.fedavg import LocalTraining
from fedpriv.data.document import DataError, DocumentSet, Entity, Question
from fedpriv.data.examples import Examples
from fedpriv.data.generated.invoices import Invoices
from fedpriv.data.partition import ByProvider
from fedpriv.federation.dataset import DocumentData
from fedpriv.federation.loop import Federation, Unworkable
from fedpriv.models.layoutlmv3 import layoutlmv3
from fedpriv.runtime import run_files
from fedpriv.runtime.torch_state import seeded_model
from fedpriv.runtime.workers.jobs import Pool
from fedpriv.runtime.workers.ray_session import RaySettings
from fedpriv.strategies.fedavg import FedAvg
from fedpriv.training.adapters import LoRA
from fedpriv.training.computing import Computing
from fedpriv.training.loops import Optimizer
from fedpriv.training.pretraining import (
    Pretrained,
    Pretraining,
    fingerprint,
    transfer,
    without_fields,
)

OPTIMIZER = Optimizer("sgd", lr=0.1)


@dataclass(frozen=True)
class Pages:
    """Documents whose one word is a number; the label is whether it is above a half."""

    count: int = 12
    seed: int = 0
    labels: tuple[str, ...] = ("a", "b")

    def load(self):
        numbers = np.random.default_rng(self.seed).random(self.count)
        documents = tuple(
            page(f"{x:.6f}", name=f"d{i}", provider=f"P{i % 4}") for i, x in enumerate(numbers)
        )
        return DocumentSet("pages", documents, self.labels)


class Tagger(nn.Module):
    """A body, a head with a row for each tag, a buffer, and a table that it freezes itself."""

    def __init__(self, labels, width=4, dropout=0.0):
        super().__init__()
        self.tags = ["O", *labels]
        self.body = nn.Linear(1, width)
        self.query = nn.Linear(width, width)
        self.norm = nn.BatchNorm1d(width)
        self.drop = nn.Dropout(dropout)
        self.classifier = nn.Linear(width, len(self.tags))
        self.table = nn.Parameter(torch.randn(3), requires_grad=False)

    def blocks(self):
        return [self.query]

    def head(self):
        return [self.classifier]

    def visual(self):
        return []

    def encode(self, documents):
        x = np.array([[float(d.words[0].text)] for d in documents], np.float32)
        y = (x[:, 0] > 0.5).astype(np.int64)
        return Examples.of({"x": x, "y": y, "document": np.arange(len(documents))})

    def loss(self, batch):
        hidden = self.drop(self.norm(self.query(torch.tanh(self.body(batch["x"])))))
        return nn.functional.cross_entropy(self.classifier(hidden), batch["y"])

    def evaluate(self, examples):
        return {"loss": self.loss(examples.batch(np.arange(len(examples)))).item()}

    def answer(self, documents):
        return [() for _ in documents]

    def tag(self, document):
        return ["O"] * len(document.words)


def pretraining(folder, **changes):
    settings = {"epochs": 3, "batch_size": 4, "optimizer": OPTIMIZER, "cache": folder}
    return Pretraining(changes.pop("data", Pages()), **{**settings, **changes})


def tensors(path):
    with safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def other_labels():
    return Tagger(["a", "b"])


# The weights


def test_the_same_settings_give_the_same_bits_wherever_they_are_trained(tmp_path):
    torch.manual_seed(98)
    one = pretraining(tmp_path / "one").weights(with_dropout)
    torch.manual_seed(99)
    before = torch.get_rng_state()
    two = pretraining(tmp_path / "two").weights(with_dropout)
    assert torch.equal(torch.get_rng_state(), before)
    assert one.name == two.name
    assert one.read_bytes() == two.read_bytes()


def test_they_are_those_of_plain_training_by_hand(tmp_path):
    found = tensors(pretraining(tmp_path, epochs=1, batch_size=12).weights(Tagger))
    model = seeded_model(other_labels, 0)
    start = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.loss(model.encode(Pages().load().documents).batch(np.arange(12))).backward()
    for name, parameter in model.named_parameters():
        if name == "table":
            assert torch.equal(found[name], start[name])
            continue
        torch.testing.assert_close(found[name], start[name] - 0.1 * parameter.grad)
        assert not torch.equal(found[name], start[name]) or name == "query.bias"
    assert found["norm.num_batches_tracked"] == 1
    assert found.keys() == start.keys()


def test_they_are_computed_as_the_run_is_told_to(tmp_path):
    """In parts: the same up to rounding. In bf16: about the same. Each has a name of its own."""

    def build(labels):
        model = Tagger(labels)
        model.norm = nn.Identity()  # BatchNorm looks at a whole batch
        return model

    def trained(computing):
        return pretraining(tmp_path, batch_size=5).weights(build, computing=computing)

    paths = [trained(how) for how in (None, Computing(microbatch=2), Computing("bf16"))]
    assert trained(Computing()) == paths[0]
    assert len(set(paths)) == 3
    plain, parts, low = (torch.cat([t.flatten() for t in tensors(path).values()]) for path in paths)
    assert (parts - plain).norm() < 1e-6 * plain.norm()
    assert 0 < (low - plain).norm() < 0.01 * plain.norm()


def test_they_are_trained_once_and_then_read(tmp_path, capsys):
    first = pretraining(tmp_path).weights(Tagger)
    assert capsys.readouterr().err.count("pretraining: epoch ") == 3
    changed = first.stat().st_mtime_ns
    assert pretraining(tmp_path).weights(Tagger) == first
    assert "epoch" not in capsys.readouterr().err
    assert first.stat().st_mtime_ns == changed


def test_training_lowers_the_loss_and_tells_it(tmp_path, capsys):
    path = pretraining(tmp_path, epochs=30).weights(Tagger)
    losses = [float(line.split()[-1]) for line in capsys.readouterr().err.splitlines()]
    assert len(losses) == 30
    assert losses[-1] < 0.8 * losses[0]
    with safe_open(path, framework="pt") as file:
        meta = json.loads(file.metadata()["fedpriv"])
    assert meta["loss"] == pytest.approx(losses[-1], abs=1e-4)
    assert meta["documents"] == 12
    assert meta["tags"] == ["O", "a", "b"]


def wide(labels):
    return Tagger(labels, width=5)


def with_dropout(labels):
    return Tagger(labels, dropout=0.5)


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 1},
        {"epochs": 2},
        {"batch_size": 5},
        {"optimizer": Optimizer("sgd", lr=0.2)},
        {"optimizer": Optimizer("adamw", lr=0.1)},
        {"data": Pages(seed=1)},
        {"data": Pages(count=11)},
        {"data": Pages(labels=("a", "c"))},
        {"without": ("a",)},
    ],
    ids=str,
)
def test_whatever_determines_them_is_in_their_name(changes, tmp_path):
    names = {pretraining(tmp_path).weights(Tagger).name}
    names.add(pretraining(tmp_path, **changes).weights(Tagger).name)
    assert len(names) == 2


def test_the_model_its_dropout_and_the_threads_are_in_their_name(tmp_path):
    one = pretraining(tmp_path)
    names = [one.weights(build).name for build in (Tagger, wide, with_dropout)]
    names.append(one.weights(Tagger, threads=2).name)
    assert len(set(names)) == 4


def test_the_seed_counts_where_it_draws_no_weights(tmp_path):
    def fixed(labels):
        return seeded_model(lambda: Tagger(labels), 5)

    one, two = (pretraining(tmp_path, seed=seed, epochs=1).weights(fixed) for seed in (0, 1))
    assert one != two
    assert one.read_bytes() != two.read_bytes()  # another order


def test_the_model_counts_where_its_builder_is_called_the_same(tmp_path):
    rates = [0.0]

    def build(labels):
        return Tagger(labels, dropout=rates[-1])

    one = pretraining(tmp_path).weights(build)
    rates.append(0.5)
    assert pretraining(tmp_path).weights(build) != one


def test_a_fingerprint_is_that_of_numbers_and_settings():
    same = fingerprint(seeded_model(other_labels, 0))
    assert fingerprint(seeded_model(other_labels, 0)) == same
    frozen = seeded_model(other_labels, 0)
    frozen.body.requires_grad_(False)
    dropping = seeded_model(other_labels, 0)
    dropping.drop.p = 0.1
    moved = seeded_model(other_labels, 0)
    with torch.no_grad():
        moved.table[0] += 1
    prints = {fingerprint(model) for model in (frozen, dropping, moved)}
    assert len(prints | {same}) == 4


@pytest.mark.parametrize("content", [b"", b"half a file", None])
def test_a_damaged_file_is_made_again(content, tmp_path):
    path = pretraining(tmp_path).weights(Tagger)
    whole = path.read_bytes()
    path.write_bytes(whole[:-9] if content is None else content)
    assert pretraining(tmp_path).weights(Tagger) == path
    assert path.read_bytes() == whole


@pytest.mark.slow
def test_two_processes_at_once_leave_one_whole_file(tmp_path):
    both = dict.fromkeys(["one", "other"], tmp_path)
    paths = [*Pool(2, RaySettings(), print).map(weights_in, both).values()]
    assert paths[0] == paths[1]
    assert [path.name for path in tmp_path.iterdir()] == [paths[0].name]
    elsewhere = pretraining(tmp_path / "here").weights(Tagger)
    assert elsewhere.read_bytes() == paths[0].read_bytes()


def weights_in(folder):
    return pretraining(folder).weights(Tagger)


def test_a_failure_leaves_nothing_behind(tmp_path):
    with pytest.raises(ValueError, match=r"the loss is (nan|inf) in epoch \d+; take a smaller"):
        pretraining(tmp_path, optimizer=Optimizer("sgd", lr=1e4)).weights(Tagger)
    assert not list(tmp_path.iterdir())


def test_what_a_killed_process_leaves_is_cleaned_away(tmp_path, monkeypatch):
    left = []

    def killed(folder, name, data):
        left.extend(path.name for path in tmp_path.iterdir())
        raise KeyboardInterrupt

    monkeypatch.setattr(run_files, "write", killed)
    with pytest.raises(KeyboardInterrupt):
        weights_in(tmp_path)
    assert len(left) == 1
    assert clean.ENTRY.search(left[0])


@dataclass(frozen=True)
class Broken:
    def load(self):
        raise DataError("receipt.txt", "is no receipt")


@pytest.mark.parametrize(
    ("data", "build", "message"),
    [
        (Pages(count=0), Tagger, r"^pretraining\.data: there is no document to train on$"),
        (Broken(), Tagger, r"^receipt\.txt: is no receipt$"),
        (Pages(), lambda labels: nn.Linear(1, 1), r"^pretraining: Linear cannot read documents$"),
    ],
)
def test_what_cannot_be_pretrained_is_refused(data, build, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        pretraining(tmp_path, data=data).weights(build)


# Fields that nobody has labelled


def test_documents_without_a_field_have_no_entity_link_or_question_of_it():
    entities = tuple(Entity(label, (n,)) for n, label in enumerate("abca"))
    questions = (Question("b", "b?", ("x",)), Question("asked only", "?", ("w",)))
    whole = dataclasses.replace(
        page("w x y z", entities=entities, questions=questions), links=((0, 1), (2, 3), (3, 0))
    )
    found = without_fields(DocumentSet("pages", (whole,), tuple("abc")), ["b", "asked only"])
    assert found.labels == ("a", "c")
    (left,) = found.documents
    assert left.entities == (entities[0], entities[2], entities[3])
    assert left.links == ((1, 2), (2, 0))
    assert left.questions == ()
    assert left.tags() == ["B-a", "O", "B-c", "B-a"]
    same = {"entities": entities, "links": whole.links, "questions": questions}
    assert dataclasses.replace(left, **same) == whole


def test_generated_documents_can_be_without_a_field():
    public = Invoices(providers=2, documents_per_provider=1).load()
    found = without_fields(public, ["total", "email"])
    assert set(public.labels) - set(found.labels) == {"total", "email"}
    for before, after in zip(public.documents, found.documents, strict=True):
        kept = [entity for entity in before.entities if entity.label not in ("total", "email")]
        assert list(after.entities) == kept != list(before.entities)
        assert len(after.questions) == len(before.questions) - 2
        assert (after.words, after.page) == (before.words, before.page)


def test_without_no_field_the_documents_stay_as_they_are():
    public = Pages().load()
    assert without_fields(public, ()) is public


def test_the_model_learns_nothing_of_a_field_that_is_left_out(tmp_path):
    path = pretraining(tmp_path, without=["a"]).weights(Tagger)
    with safe_open(path, framework="pt") as file:
        assert json.loads(file.metadata()["fedpriv"])["tags"] == ["O", "b"]


def test_an_unknown_field_is_refused_with_those_that_there_are(tmp_path):
    message = r"^pretraining\.without: there is no field 'x', 'y'; the public documents have a, b$"
    with pytest.raises(ValueError, match=message):
        pretraining(tmp_path, without=("y", "a", "x")).weights(Tagger)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["epochs", "batch_size"])
def test_settings_are_checked(name):
    with pytest.raises(ValueError, match=f"^{name}=0: expected at least 1$"):
        Pretraining(Pages(), **{name: 0})


# Taking them over


def test_all_but_the_head_of_other_tags_is_taken_over(tmp_path):
    path = pretraining(tmp_path).weights(Tagger)
    source = tensors(path)
    model, anew = Pretrained(lambda: Tagger(["b", "new", "x"]), path).model_and_anew()
    assert anew == ["classifier.weight", "classifier.bias"]
    for name, tensor in model.state_dict().items():
        if name not in anew:
            assert torch.equal(tensor, source[name]), name
    assert not model.table.requires_grad


def test_rows_of_tags_that_both_know_are_taken_over_by_name():
    old, new = Tagger(["a", "b", "c"]), Tagger(["c", "new", "a"])
    before = {name: tensor.clone() for name, tensor in new.state_dict().items()}
    anew = transfer(new, old.state_dict(), old.tags)
    for name in ("classifier.weight", "classifier.bias"):
        now, was, source = new.state_dict()[name], before[name], old.state_dict()[name]
        # New: O, c, new, a. Old: O, a, b, c.
        assert torch.equal(now[[0, 1, 3]], source[[0, 3, 1]])
        assert torch.equal(now[2], was[2])
    assert anew == ["classifier.weight", "classifier.bias"]
    assert torch.equal(new.body.weight, old.body.weight)


def test_the_same_tags_are_taken_over_whole():
    old, new = Tagger(["a"]), Tagger(["a"])
    assert transfer(new, old.state_dict(), old.tags) == []
    assert torch.equal(new.classifier.weight, old.classifier.weight)


def test_other_shapes_and_unknown_names_stay_as_drawn():
    old, new = Tagger(["a"], width=3), Tagger(["a"], width=4)
    before = new.body.weight.clone()
    state = {k: v for k, v in old.state_dict().items() if k != "table"}
    assert {"table", "body.weight", "classifier.weight"} <= set(transfer(new, state, old.tags))
    assert torch.equal(new.body.weight, before)
    assert torch.equal(new.classifier.bias, old.classifier.bias)


def test_weights_that_are_gone_are_named(tmp_path):
    missing = Pretrained(other_labels, tmp_path / "gone.safetensors")
    with pytest.raises(ValueError, match=r"gone\.safetensors: the pretrained weights cannot be"):
        missing()


def test_a_worker_can_build_it(tmp_path):
    path = pretraining(tmp_path).weights(Tagger)
    start = pickle.loads(pickle.dumps(Pretrained(other_labels, path)))  # noqa: S301 - our own
    assert torch.equal(start().body.weight, tensors(path)["body.weight"])


# In a federation


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def federation(**more):
    return Federation(
        model=Tagger,
        data=DocumentData(Pages(count=24, seed=5, labels=("b", "d", "e")), ByProvider(2)),
        strategy=FedAvg(),
        client=LocalTraining(batch_size=24, optimizer=OPTIMIZER),
        **more,
    )


def test_round_one_starts_from_the_pretrained_weights(tmp_path, capsys):
    first = pretraining(tmp_path / "cache")
    pretrained = federation(pretraining=first).run(0)
    told = capsys.readouterr().err.splitlines()[-1]
    assert told.startswith("pretraining: 12 documents, final loss 0.")
    assert told.endswith("; drawn anew: classifier.weight, classifier.bias")
    source = tensors(first.weights(Tagger))
    state = pretrained.model.state_dict()
    assert torch.equal(state["body.weight"], source["body.weight"])
    assert torch.equal(state["table"], source["table"])
    assert torch.equal(state["classifier.weight"][1], source["classifier.weight"][2])  # b
    cold = federation().run(0)
    assert pretrained.metrics[0]["loss"] != cold.metrics[0]["loss"]


def test_clients_work_on_the_pretrained_frozen_weights_too(tmp_path):
    first, frozen = pretraining(tmp_path / "cache"), []

    @dataclass(frozen=True)
    class Watching(LocalTraining):
        def train(self, visit):
            frozen.append(visit.model.table.clone())
            return super().train(visit)

    toy = federation(pretraining=first)
    toy.spec = dataclasses.replace(toy.spec, client=Watching(batch_size=24, optimizer=OPTIMIZER))
    assert toy.run(1).failures == []
    source = tensors(first.weights(Tagger))["table"]
    assert len(frozen) == 2
    assert all(torch.equal(table, source) for table in frozen)


def test_adapters_come_after_pretraining(tmp_path):
    first = pretraining(tmp_path / "cache")
    lora = LoRA(rank=1, targets=("query",))
    # The block is the projection itself.
    toy = federation(pretraining=first, finetuning=lora)
    result = toy.run(1)
    assert result.failures == []
    state, source = result.model.state_dict(), tensors(first.weights(Tagger))
    assert torch.equal(state["query.base_layer.weight"], source["query.weight"])
    assert torch.equal(state["body.weight"], source["body.weight"])
    assert state["query.lora_B.default.weight"].abs().sum() > 0


def test_nothing_is_trained_for_parts_that_do_not_fit(tmp_path):
    with pytest.raises(Unworkable):
        federation(pretraining=pretraining(tmp_path / "cache"), finetuning=LoRA(targets=("no",)))
    assert not (tmp_path / "cache").exists()


def test_layoutlmv3_starts_from_invoices_of_other_companies(tmp_path):
    first = Pretraining(Invoices(providers=2, documents_per_provider=2, seed=9), epochs=1)
    first = dataclasses.replace(first, cache=tmp_path)
    path = first.weights(layoutlmv3)
    model, anew = Pretrained(lambda: layoutlmv3(["total", "mine"]), path).model_and_anew()
    source = tensors(path)
    assert anew
    assert all(name.startswith("network.classifier") for name in anew)
    name = "network.layoutlmv3.encoder.layer.0.attention.self.query.weight"
    assert torch.equal(model.state_dict()[name], source[name])
