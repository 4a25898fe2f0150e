"""A run folder of somebody else runs no code: only parts that hold settings are constructed."""

import inspect
import re
from pathlib import Path

import pytest
import yaml

from fedpriv.cli.main import main
from fedpriv.config import catalogue, composing
from fedpriv.config.construct import import_target
from fedpriv.config.experiment import load
from fedpriv.config.trust import Untrusted, check_before_resume, reaching, untrusted
from fedpriv.runtime import run_log
from fedpriv.runtime.run_folder import LAYOUT, RunFolder
from fedpriv.threat.surfaces.retrain import PLAN

EXPERIMENTS = Path(__file__).parents[3] / "experiments"
OF_ATTACKS = ("attack", "publisher")  # given on the command line, and in no run folder


def shipped():
    files = [f for f in EXPERIMENTS.rglob("*.yaml") if f.parent.name not in OF_ATTACKS]
    text = "\n".join(f.read_text() for f in files if f.stem not in catalogue.SHARED - {"base"})
    text = re.sub(r"_target_: *\$\{by_client:(.+),(.+)\}", r"_target_: \1\n_target_: \2", text)
    return sorted(set(re.findall(r"_target_: *([\w.]+)", text)))


def test_all_that_experiments_of_ours_name_is_admitted():
    names = shipped()
    assert len(names) > 40
    assert [name for name in names if untrusted({"x": {"_target_": name}})] == []


@pytest.mark.parametrize(
    "name", ["torch.nn.Linear", "torch.nn.CrossEntropyLoss", "torch.optim.SGD"]
)
def test_constructors_of_torch_are_admitted(name):
    assert untrusted({"x": {"_target_": name}}) == []


@pytest.mark.parametrize(
    "name",
    [
        "os.system",
        "builtins.eval",
        "subprocess.Popen",
        "functools.partial",
        "toy.Net",
        # Through a module of ours that imports it, or as an attribute.
        "fedpriv.cli.main.os.system",
        "fedpriv.cli.main.sys.exit",
        "fedpriv.cli.run.Path",
        "fedpriv.config.construct.functools.partial",
        "fedpriv.models.saving.load_file",
        "fedpriv.strategies.fedavg.FedAvg.__init__",
        # Ours, but they do more than to hold settings.
        "fedpriv.cli.main.main",
        "fedpriv.cli.main.commands",
        "fedpriv.config.construct.construct",
        "fedpriv.config.construct.import_target",
        "fedpriv.config.experiment.build",
        "fedpriv.studies.trials.carry_out",
        "fedpriv.cli.data.convert.convert",
        "fedpriv.models.saving.save",
        "fedpriv.federation.loop.Federation",
        "fedpriv.federation.grids.ray.RayGrid",
        "fedpriv.attacks.extraction.attack.expose",
        # Of torch, but no constructor.
        "torch.load",
        "torch.hub.load",
        "torch.jit.load",
        "torch.nn.functional.relu",
        "torch.nn.modules.module.torch.load",
        "torch.utils.cpp_extension.load",
        "torch.utils.data.DataLoader",
        # No names at all.
        "fedpriv",
        "",
        ".",
        3,
        None,
        ["os.system"],
    ],
)
@pytest.mark.parametrize("deep", [False, True])
def test_any_other_name_needs_trust_wherever_it_stands(name, deep):
    node = {"_target_": name, "command": "true"}
    config = {"data": {"sources": [{"inner": node}]}} if deep else {"strategy": node}
    (problem,) = untrusted(config)
    place = "data.sources[0].inner" if deep else "strategy"
    assert problem.startswith(f"{place}._target_: {name!r} is not among the parts")


def test_a_cluster_out_of_a_folder_needs_trust():
    assert untrusted({"ray": {"address": None}}) == []
    (problem,) = untrusted({"ray": {"address": "10.0.0.1:6379"}})
    assert problem.startswith("ray.address: '10.0.0.1:6379' is a service or a program")
    assert untrusted({"ray": {"address": "10.0.0.1:6379"}}, typed=["ray.address=auto"]) == []


REACHING = {
    "data.source.root": ["data=folder", "data.source.root=/home/you/invoices"],
    "data.source.path": ["data=hf", "data.source.path=/home/you/receipts"],
    "data.partition.root": ["data=pfl_docvqa", "data.source.root=/x", "data.partition.root=/x"],
    "data.cache": ["data.cache=/home/you/.ssh"],
    "pretraining.cache": ["pretraining=cards", "pretraining.cache=/home/you"],
    "federation.trackers[0]": ["federation.trackers=[wandb]"],
    "model.pretrained": ["model.pretrained=somebody/model"],
    "model.visual": ["model=vt5", "model.pretrained=null", "model.visual=somebody/beit"],
    "model.font": ["model=pix2struct", "model.font=/etc/passwd"],
    "runs": ["runs=/srv/www"],
    "attack.exposure_experiment": ["attack.exposure_experiment=/tmp/mine.yaml"],
}
"""Settings that reach beyond a run folder, and what sets them."""


@pytest.mark.parametrize("place", REACHING)
def test_what_reaches_beyond_a_folder_must_be_typed_again(place, tmp_path, monkeypatch, capsys):
    overrides = REACHING[place]
    config = load("extraction" if place.startswith("attack") else "quickstart", overrides)
    folder = RunFolder.made(tmp_path / "run")
    monkeypatch.setenv("FEDPRIV_CACHE", str(tmp_path / "stranger"))
    with folder.writing("run", {}):
        folder.write_config(config)
    monkeypatch.setenv("FEDPRIV_CACHE", str(tmp_path / "mine"))
    with pytest.raises(Untrusted, match=rf"(?m)^  {re.escape(place)}: .* somebody else's folder"):
        check_before_resume(folder)
    assert main(["resume", str(folder.path)]) == 2
    assert f"  {place}: " in capsys.readouterr().err
    check_before_resume(folder, [*overrides, "model.pretrained=shipped"])
    monkeypatch.setenv("FEDPRIV_CACHE", str(tmp_path / "stranger"))  # to whom it is their own
    check_before_resume(folder)


def test_a_folder_is_somebody_elses_as_soon_as_one_command_was(tmp_path, monkeypatch):
    folder = RunFolder.made(tmp_path / "run")
    for writer in ("stranger", "mine"):
        monkeypatch.setenv("FEDPRIV_CACHE", str(tmp_path / writer))
        with folder.writing("run", {}):
            folder.write_config({"runs": "/srv/www"})
    with pytest.raises(Untrusted, match="runs: '/srv/www' is a path"):
        check_before_resume(folder)


def test_what_is_called_like_a_path_is_marked_in_every_part():
    named = {"path", "root", "folder", "cache", "pretrained", "visual", "font", "file", "program"}
    exempt = {"visual": (bool,)}  # of tunings: whether it is trained
    missing = [
        f"{part}: {name}"
        for part in [*shipped(), "fedpriv.metrics.ocr.TrOCR", "fedpriv.metrics.ocr.Tesseract"]
        for name, parameter in inspect.signature(import_target(part)).parameters.items()
        if name in named and not isinstance(parameter.default, exempt.get(name, ()))
        if f"x.{name}" not in reaching({"x": {"_target_": part, name: "/x"}})
    ]
    assert missing == []


@pytest.mark.parametrize("place", ["data/scans", "./data/scans", "../here/data/scans"])
def test_a_path_is_stored_whole_and_a_name_on_the_hub_as_it_is(place, tmp_path, monkeypatch):
    (tmp_path / "here/data/scans").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    config = load("quickstart", ["data=folder", f"data.source.root={place}"])
    assert config["data"]["source"]["root"] == str(tmp_path / "here/data/scans")
    assert config["runs"] == "runs"
    config = load("quickstart", ["model.pretrained=somebody/model"])
    assert config["model"]["pretrained"] == "somebody/model"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A run folder as somebody may pass it on, its log in order; and the command's witness."""
    monkeypatch.chdir(tmp_path)
    folder = RunFolder.made(tmp_path / "run")
    run_log.begin(folder.path, "run", {})
    evil = {"_target_": "os.system", "command": f"touch {tmp_path}/witness"}
    parts = {"data": evil, "model": evil, "strategy": evil, "client": evil}
    folder.write_config({**parts, "finetuning": evil, "name": "x", "rounds": 1})
    return folder


@pytest.mark.parametrize(
    "command", [["resume", "rounds=3"], ["attack", "attack=closed_form"]], ids=["resume", "attack"]
)
def test_a_folder_that_names_a_command_is_refused_and_runs_nothing(folder, command, capsys):
    assert main([command[0], str(folder.path), *command[1:]]) == 2
    said = capsys.readouterr().err
    assert "model._target_: 'os.system' is not among the parts of fedpriv" in said
    assert "add --trust" in said
    assert "Traceback" not in said
    assert not Path("witness").exists()
    main([command[0], str(folder.path), "--trust", *command[1:]])  # as it says: it is code
    assert Path("witness").exists()


def test_a_changed_folder_is_refused_by_resume_and_attack_until_trusted(folder, capsys):
    path = folder.path / "config.yaml"
    path.write_text(path.read_text().replace("rounds: 1", "rounds: 2"))
    for command in (["resume"], ["attack", "attack=closed_form"]):
        assert main([command[0], str(folder.path), *command[1:]]) == 2
        assert "changed: config.yaml (other bytes of the same number)" in capsys.readouterr().err
    assert not Path("witness").exists()


def honest(path, **settings):
    folder = RunFolder.made(path)
    run_log.begin(folder.path, "run", {})
    folder.write_config({"name": "x", "rounds": 1, **settings})
    return folder


def test_further_trainings_beside_their_plan_are_checked_before_a_resume(tmp_path):
    folder = honest(tmp_path / "run")
    folder.write_json(PLAN, {"all": {"seed": 1}, "split": {"seed": 2}})
    honest(tmp_path / "run" / "retrained" / "all")
    check_before_resume(folder)
    honest(tmp_path / "run" / "retrained" / "split", model={"_target_": "os.system"})
    with pytest.raises(Untrusted, match=r"retrained/split is not used(.|\n)*'os.system'"):
        check_before_resume(folder)


def test_settings_of_a_folder_are_not_resolved_again(monkeypatch):
    monkeypatch.setenv("TOKEN", "secret")
    config = {"name": "${oc.env:TOKEN}", "federation": {"workers": 1, "device": "cpu"}}
    changed = composing.with_values(config, ["federation.workers=2"], "x")
    assert changed["name"] == "${oc.env:TOKEN}"
    assert changed["federation"] == {"workers": 2, "device": "cpu"}


@pytest.mark.parametrize(
    "text",
    [
        "a: [b\n c: }",
        "[1, 2]",
        "3",
        "1: 2",
        "",
        "a: &a [1]\nb: *a",
        "[" * 3000,
        "a: !!python/object/apply:os.system [true]",
        "a: " + "9" * 5000,
        "? [a]\n: 1",
        "a: \0",
    ],
)
def test_settings_that_are_none_are_named_without_a_traceback(tmp_path, text, capsys):
    folder = RunFolder.made(tmp_path / "run")
    folder.write_config({})
    (folder.path / "config.yaml").write_text(text)
    for arguments in (["resume", "--trust"], ["attack", "--trust", "attack=dlg"]):
        assert main([arguments[0], str(folder.path), *arguments[1:]]) == 1
        assert f"{folder.path}/config.yaml: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("layout", "found"), [(None, "it has no layout.json"), (0, "says 0"), (99, "says 99")]
)
def test_folders_of_another_layout_are_refused(tmp_path, layout, found, capsys):
    folder = RunFolder.made(tmp_path / "run")
    folder.write_config({"name": "old"})
    (folder.path / LAYOUT).unlink()
    if layout is not None:
        folder.write_json(LAYOUT, {"version": layout})
    before = sorted(folder.path.rglob("*"))
    for command, *more in (["resume"], ["attack", "attack=dlg", "ocr=null"], ["report"]):
        assert main([command, str(folder.path), *more]) == 2
        error = capsys.readouterr().err
        assert found in error
        assert "use the fedpriv that wrote it" in error
        assert len(error.splitlines()) == 1
    assert sorted(folder.path.rglob("*")) == before


def test_what_occurs_twice_is_written_twice_and_read_again(tmp_path):
    shared = {"lr": [1, 2]}
    folder = RunFolder.made(tmp_path / "run")
    folder.write_config({"a": shared, "b": shared})
    assert yaml.safe_load((folder.path / "config.yaml").read_text()) == {"a": shared, "b": shared}
    assert folder.config() == {"a": shared, "b": shared}


def test_a_run_of_any_checkpoint_can_be_attacked():
    assert untrusted({"model": {"_target_": "fedpriv.models.auto.auto", "_partial_": True}}) == []
