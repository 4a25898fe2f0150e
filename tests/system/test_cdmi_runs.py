"""CDMI from the command line: what has been learnt by heart comes back, and nothing else."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from fedpriv.cli.main import main
from fedpriv.models.encoders.backbones import layoutlm

SMALL = [
    *("data.source.providers=4", "data.source.documents_per_provider=6"),
    "model.max_length=128",
]
QUICK = [
    *("attack.generator.epochs=10", "attack.attempts=2", "attack.candidates=32"),
    "resamples=300",
]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDPRIV_CACHE", str(tmp_path / "cache"))


def run(tmp_path, capsys, *overrides) -> str:
    assert main(["run", "cdmi", *SMALL, f"runs={tmp_path}", *overrides]) == 0
    return capsys.readouterr().out.splitlines()[-1]


def attacked(folder, capsys, *overrides) -> dict:
    assert main(["attack", folder, "attack=cdmi", *QUICK, *overrides]) == 0
    capsys.readouterr()
    name = next((o.removeprefix("name=") for o in overrides if o.startswith("name=")), "cdmi")
    result = json.loads((Path(folder) / f"findings/{name}/result.json").read_text())
    return {**result, **result["details"]}


@pytest.mark.slow
def test_what_was_learnt_by_heart_is_reconstructed(tmp_path, capsys):
    folder = run(tmp_path, capsys, "rounds=2", "training.epochs=25")
    found = attacked(folder, capsys, "most_fields=24")
    assert found["kind"] == "fields"
    assert found["ipf_interval"][0] > 1.2
    # Sorted at random, both would be equal.
    assert found["ham_aac"]["attack"] > 1 - found["ham_at"]["1.0"]["attack"]
    assert found["not_public"]["ipf"] > 1
    report = (Path(folder) / "report.html").read_text("utf-8")
    assert "AccAt(p), perfect reconstructions" in report
    assert "attack, sorted by gap" in report
    before = attacked(folder, capsys, "most_fields=24", "target=start", "name=start")
    assert before["ipf"] < found["ipf_interval"][0]


@pytest.mark.slow
@pytest.mark.parametrize(("model", "task"), [("layoutlm", "tags"), ("bros", "spade")])
def test_who_has_learnt_nothing_tells_nothing(tmp_path, capsys, model, task):
    """The control: IpF is 1 within its interval."""
    folder = run(tmp_path, capsys, f"model={model}", f"model.task={task}", "rounds=0")
    few = ["most_fields=12", "attack.attempts=1"]
    found = attacked(folder, capsys, *few, "target=start")
    low, high = found["ipf_interval"]
    assert low - 0.02 <= 1 <= high + 0.02
    assert found["target"] == "before the training"


@pytest.mark.slow
def test_a_model_trained_elsewhere_has_a_clean_baseline(tmp_path, capsys):
    keys = ["customer", "date", "phone", "provider", "tax_number", "total"]
    elsewhere = tmp_path / "elsewhere"
    layoutlm(keys, task="tags", max_length=128).save_pretrained(elsewhere)
    given = ["model.task=tags", f"model.pretrained={elsewhere}", "rounds=0"]
    folder = run(tmp_path, capsys, *given)
    few = ["most_fields=2", "attack.candidates=8", "attack.generator.epochs=1"]
    assert main(["attack", folder, "attack=cdmi", *few]) == 3
    assert "attack.generator.start=random" in capsys.readouterr().out
    found = attacked(folder, capsys, *few, "attack.generator.start=random")
    assert found["target"] == "the end of the run"
    assert "PUB-MLM starts from random weights" in found["notes"]


@pytest.mark.slow
def test_the_model_of_a_federation_under_masks_is_attacked(tmp_path, capsys):
    many = ["strategy=feam_dp", "masking=on", "data.partition.clients=3", "rounds=2"]
    folder = run(tmp_path, capsys, *many)
    found = attacked(folder, capsys, "most_fields=6", "target=series", "attack.generator.epochs=1")
    assert found["status"] == "done"
    assert [one["round"] for one in found["series"]] == [1, 2]


@pytest.mark.slow
def test_real_forms_are_scrubbed_and_attacked(tmp_path, capsys, monkeypatch):
    """Real documents (FUNSD), whose fields are counted, whatever becomes of them."""
    if "FEDPRIV_DATA" not in os.environ:
        pytest.skip("needs FEDPRIV_DATA")
    small = ["data.source.splits=[test]", "model.max_length=256"]
    overrides = ["rounds=1", "training.epochs=25", f"runs={tmp_path}"]
    assert main(["run", "cdmi_funsd", *small, *overrides]) == 0
    folder = capsys.readouterr().out.splitlines()[-1]
    found = attacked(folder, capsys, "most_fields=40")
    assert found["ipf_interval"][0] > 1
    left_out = found["left_out"]
    assert left_out["fewer than 3 tokens"] > 0
    assert left_out["more than 15 tokens"] > 0
    rows = json.loads((Path(folder) / "findings/cdmi/fields.json").read_text("utf-8"))
    assert sum(row["trained"] for row in rows) == found["fields"] == 40
    assert len(rows) == 40 + found["held_out"]["fields"]
    assert np.isfinite([row["confidence"] for row in rows if row["confidence"] is not None]).all()
