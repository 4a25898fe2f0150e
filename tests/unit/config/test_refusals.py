"""What cannot work is refused before anything starts: one line each, and no run folder."""

from dataclasses import dataclass

import pytest
import torch
from toy import Net, federation

from fedpriv.config import catalogue, experiment, yaml_file
from fedpriv.federation.loop import Unworkable
from fedpriv.runtime.refusals import Mistakes
from fedpriv.training.loops import Optimizer

pytestmark = pytest.mark.usefixtures("in_own_folder")


def problems(*overrides, name="quickstart"):
    with pytest.raises(Mistakes) as caught:
        experiment.build(experiment.load(name, overrides), name)
    return caught.value.problems


PRIVATE = "strategy=fl_provider_dp"
NO_NUMBER = "expected a finite number of at most 64 bits"


@pytest.mark.parametrize(
    ("overrides", "place", "why"),
    [
        ([f"federation.chunk_size={10**23}"], "federation.chunk_size", NO_NUMBER),
        ([f"data.source.documents_per_provider={10**23}"], "data.source.docu", NO_NUMBER),
        ([f"rounds={10**23}"], "rounds", NO_NUMBER),
        (["client.optimizer.lr=inf"], "client.optimizer.lr", NO_NUMBER),
        (["client.optimizer.lr=1e308"], "client.optimizer", "lr=1e+308: expected a number in (0"),
        (["model.dropout=nan"], "model.dropout", NO_NUMBER),
        (["model.dropout=1.5"], "model", "dropout=1.5: expected 0 to 1"),
        (["model.max_length=-1"], "model", "max_length=-1: expected 3 to 100000"),
        (["model.image_size=0"], "model", "image_size=0: expected 8 to 10000"),
        (["model._partial_=false"], "model", "set model._partial_=true"),
        (["federation.threads=100000"], "federation", "threads=100000: expected at most"),
        (["federation.workers=100000"], "federation", "workers=100000: expected at most 1024"),
        (["rounds=1000001"], "", "rounds=1000001: expected 0 to 1000000"),
        ([PRIVATE, "rounds=100000000"], "strategy.mechanism", "expected at most 1000000 in all"),
        (
            [PRIVATE, "strategy.mechanism.noise_multiplier=1e300"],
            "strategy.mechanism",
            "noise_multiplier=1e+300: expected 0 to 1e+07",
        ),
        (
            [PRIVATE, "masking=off", "masking.mechanism=discrete"],
            "masking.mechanism=discrete",
            "needs masking=on",
        ),
        ([PRIVATE, "masking=on", "masking.bound=1e300"], "masking", "expected a number in [2^-64"),
        (["data.source.documents_per_provider=100000"], "data.source", "in 1..4166"),
        (["data.source.page_size=[100000, 100000]"], "data.source", "at most 10000 a side"),
        (["data.source.questions={x: 1}"], "data.source.questions", "{'x': 1}"),
        (["data.source={_target_: os.kill}"], "data.source", "kill"),
    ],
)
def test_sizes_beyond_reason_are_named_with_their_place(overrides, place, why):
    found = problems(*overrides)
    assert any(line.startswith(place) and why in line for line in found), found
    assert all("\n" not in line for line in found)


@dataclass
class Unready:
    def __init__(self, **_):
        raise ZeroDivisionError("no providers")


def test_whatever_a_target_raises_is_a_mistake():
    (line,) = problems("data.partition={_target_: test_refusals.Unready}")
    assert line == "data.partition: ZeroDivisionError: no providers"


@pytest.mark.parametrize("device", ["gpu", "cuda:99", "meta", ""])
def test_a_device_that_is_not_there_is_refused(device, tmp_path):
    with pytest.raises(Unworkable, match=f"federation.device='{device}': .*this machine has cpu"):
        federation(device=device)
    assert list(tmp_path.iterdir()) == []


class Endless(Net):
    def loss(self, batch):
        return super().loss(batch) / 0.0


class Narrow(Net):
    def loss(self, batch):
        return super().loss({**batch, "x": batch["x"][:, :3]})


def narrow():
    raise RuntimeError("a width of 7\nand more")


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (Endless, "model: its loss on its first examples is inf"),
        (Narrow, "model: cannot learn from its first examples: RuntimeError: mat1 and mat2"),
        (narrow, "model: cannot learn .*: RuntimeError: a width of 7$"),
    ],
)
def test_a_model_that_cannot_learn_is_refused_before_there_is_a_folder(model, why, tmp_path):
    with pytest.raises(Unworkable, match=why):
        federation(model=model)
    assert list(tmp_path.iterdir()) == []


def test_the_trial_draws_nothing_from_the_global_generators():
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    federation()
    assert torch.equal(torch.rand(2), expected)


def test_a_learning_rate_that_is_odd_but_possible_is_taken():
    assert Optimizer(lr=1e4).lr == 1e4
    with pytest.raises(ValueError, match=r"lr=0: expected a number in \(0, 10000\]"):
        Optimizer(lr=0)


@pytest.mark.parametrize("key", ["data.source.root", "runs", "model.pretrained"])
def test_a_name_that_is_not_utf8_says_what_to_rename(key):
    with pytest.raises(Mistakes, match=r"scans.udcff.* is not UTF-8: rename that file or folder"):
        experiment.load("kie_layoutlmv3", ["data=folder", f"{key}=scans\udcff"])
    config = experiment.load("kie_layoutlmv3", ["data=folder", "data.source.root=scans"])
    config["data"]["source"]["root"] = "scans\udcff"  # as the name of a folder around it has it
    with pytest.raises(Mistakes, match=r"data.source.root: got 'scans.udcff', which is not UTF-8"):
        experiment.build(config, "mine")


# Files

LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 10)
)

FILES = {
    # Newer libyaml has a limit of its own.
    "nested": (b"a: " + b"[" * 3000 + b"]" * 3000, "nested too deeply|maximum nesting depth"),
    "laughs": (LAUGHS.encode(), "its aliases expand to more than 100,000 values"),
    "itself": (b"a: &a [*a]\n", "mine.yaml"),
    "latin1": ("name: Müller\n".encode("latin-1"), "is not UTF-8 .* at byte 7"),
    "number": (b"7\n", "holds no mapping"),
    "list": (b"- a\n", "holds no mapping"),
    "key": (b"defaults: [base]\n1: 2\n", "line 2: '1' is no name of a setting"),
    "broken": (b"a: [1\n", "is not valid YAML: while parsing"),
    "large": (b"a: " + b"x" * (5 << 20), "has more than 4,194,304 bytes"),
    "nul": (b"a: \x00\n", "is not valid YAML"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_cannot_be_read_is_named_in_one_line(name, tmp_path):
    content, why = FILES[name]
    (tmp_path / "mine.yaml").write_bytes(content)
    with pytest.raises(Mistakes, match=f"mine.yaml.*{why}" if name != "itself" else why) as caught:
        experiment.load("mine.yaml")
    (line,) = caught.value.problems
    assert str(tmp_path / "mine.yaml") in line
    assert "\n" not in line
    assert len(line) < 400


def test_defaults_that_include_themselves_are_named(tmp_path):
    (tmp_path / "mine.yaml").write_text("defaults: [mine]\nname: x\n")
    with pytest.raises(Mistakes, match=r"mine\.yaml"):
        experiment.load("mine.yaml")


def test_defaults_without_self_are_refused_in_our_words(tmp_path):
    (tmp_path / "mine.yaml").write_text("defaults: [quickstart]\nrounds: 2\n")
    with pytest.raises(Mistakes) as caught:
        experiment.load("mine.yaml")
    (line,) = caught.value.problems
    assert line.startswith("defaults: the list of mine has no _self_; add `- _self_` as its last")
    (tmp_path / "mine.yaml").write_text("defaults: [quickstart, _self_]\nrounds: 2\n")
    assert experiment.load("mine.yaml")["rounds"] == 2


def test_the_files_that_come_with_fedpriv_pass():
    files = [path for folder in catalogue.folders() for path in folder.rglob("*.yaml")]
    assert len(files) > 50
    for path in files:
        yaml_file.check(path)


def test_a_run_that_is_refused_leaves_nothing(tmp_path):
    from fedpriv.cli.main import main

    assert main(["run", "quickstart", "federation.device=gpu", "data.cache=off"]) == 2
    assert list(tmp_path.iterdir()) == []


def test_a_pretrained_model_that_is_not_there_is_refused(tmp_path, capsys):
    from fedpriv.cli.main import main

    assert main(["run", "quickstart", "model.pretrained=/nosuch", "data.cache=off"]) == 2
    (line,) = capsys.readouterr().err.splitlines()[1:]
    assert line.startswith("  model: pretrained='/nosuch': there is no such folder; expected one")
    assert list(tmp_path.iterdir()) == []
