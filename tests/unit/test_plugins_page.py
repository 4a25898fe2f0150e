"""The plug-ins that docs/guides/plugins.md and the page of CDMI show do what these say."""

import importlib
import json

import numpy as np
import pytest
import torch
from attacked import attacked
from doc_pages import DOCS, read_text, write_file
from toy_fields import federation, follows

import fedpriv as fp
from fedpriv.cli.main import main

PAGES = [
    read_text((DOCS / name).read_text("utf-8"), f"docs/{name}")
    for name in ("guides/plugins.md", "papers/cdmi.md")
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with every file of the pages, from which it can be imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("FEDPRIV_CACHE", str(tmp_path / "cache"))
    for page in PAGES:
        for block in page.blocks:
            if block.file:
                write_file(block, tmp_path)
    return tmp_path


def test_the_attacks_on_pages_run_by_name_and_by_path(folder, capsys):
    small = ["data.source.page_size=[64,64]", "data.source.providers=2", "data.partition.clients=1"]
    nothing = ["data.test.fraction=0", "data.test.unseen=0", "model.image_size=64"]
    assert main(["run", "gi_dqa", *small, *nothing]) == 0
    run = capsys.readouterr().out.splitlines()[-1]
    for named, name, *more in (
        ("blank", "blank", "ocr=null"),
        ("my_attacks.darkness.Guess", "Guess"),
    ):
        assert main(["attack", run, f"attack={named}", *more]) == 0
        result = json.loads((folder / run / "findings" / name / "result.json").read_text("utf-8"))
        assert result["status"] == "done"
        if name == "blank":
            numbers = result["details"]
            assert numbers["psnr_roi"] == pytest.approx(numbers["template_psnr_roi"])
        else:
            assert (result["kind"], result["verdict"]) == ("darkness", "cannot_tell")


def test_the_attack_on_fields_runs(folder):
    run = federation(folder).run(1).run_dir
    found = attacked(run, importlib.import_module("my_attacks.greedy").Greedy(), follows)
    assert (found["status"], found["kind"], found["fields"]) == ("done", "fields", 5)


def test_the_strategy_adds_momentum_and_survives_a_restart(folder):
    strategy = importlib.import_module("momentum").FedAvgM(beta=0.5)
    start, mean = {"w": torch.zeros(3)}, {"w": torch.full((3,), 4.0)}
    first = strategy.moved(start, mean, 2)
    np.testing.assert_array_equal(first["w"], [2, 2, 2])
    again = type(strategy)(beta=0.5)
    again.load_state(strategy.state())
    for one in (strategy, again):
        np.testing.assert_array_equal(one.moved(first, mean, 2)["w"], [5, 5, 5])
    assert isinstance(strategy, fp.FedAvg)
    assert strategy.action == fp.FedAvg.action
