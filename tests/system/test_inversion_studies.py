"""The studies of inversions, at sizes that take seconds: they run, draw, and say what is so."""

import functools
import importlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from fedpriv.clients.fedsgd import BatchGradient
from fedpriv.models.layoutlmv3 import layoutlmv3
from fedpriv.runtime.run_folder import RunFolder
from fedpriv.runtime.tensors import read_tensors
from fedpriv.strategies.fedsgd import FedSGD

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
TINY = functools.partial(layoutlmv3, task="answers", image_size=64, hidden_size=96, layers=1)


@pytest.fixture
def limits(monkeypatch):
    """The study of the closed form, with a tiny model and few points."""
    monkeypatch.syspath_prepend(EXPERIMENTS)  # as `python experiments/closed_form_limits.py` does
    study = importlib.import_module("closed_form_limits")
    size = study.Size(TINY, 64, steps=(0, 2), lr=1e-3, widths=(32, 96))
    monkeypatch.setitem(study.SIZES, "small", size)
    monkeypatch.setattr(study, "DEVIATIONS", (1e-8, 1.0))
    monkeypatch.setattr(study, "BATCHES", (1, 2))
    monkeypatch.setattr(study, "tesseract", lambda: None)
    return study


@pytest.fixture
def privacy(limits, monkeypatch):
    """The study of federations, with two clients and a tiny model."""
    study = importlib.import_module("inversion_against_privacy")
    monkeypatch.setattr(study, "MODEL", TINY)
    monkeypatch.setattr(study, "CLIENTS", 2)
    monkeypatch.setattr(study, "COHORTS", (1, 2))
    monkeypatch.setattr(study, "MASKED_EVALUATIONS", 2)
    monkeypatch.setattr(study, "MULTIPLIERS", (1e-8, 1.0))
    monkeypatch.setattr(study, "EPSILONS", (8.0,))
    monkeypatch.setattr(study, "NOISES", (1e-8,))
    monkeypatch.setattr(study, "tesseract", lambda: None)
    return study


def ran(study, monkeypatch, tmp_path, *arguments):
    """Runs a study as from the command line; returns its folder and what it wrote down."""
    monkeypatch.setattr(sys, "argv", ["study", *arguments, "--seeds=1", f"--out={tmp_path}"])
    study.main()
    (folder,) = tmp_path.glob("*/*")
    return folder, json.loads((folder / "metrics.json").read_text())


@pytest.mark.slow
def test_where_the_closed_form_ends(limits, monkeypatch, tmp_path, capsys):
    folder, measured = ran(limits, monkeypatch, tmp_path)
    rows = {(row["part"], row["setting"]): row for row in measured["rows"]}
    assert {part for part, _ in rows} == set(limits.PARTS)
    little, much = rows["noise", "1e-08"], rows["noise", "1e+00"]
    assert little["template_private"] > much["template_private"] + 20
    assert little["tokens"] == 1 > much["tokens"]
    assert much["relative"] == pytest.approx(1e8 * little["relative"])
    for kept in (("stage", "2"), ("dropout", "dropout 0.1"), ("half", "fp32"), ("batch", "B = 1")):
        assert rows[kept]["template_exact"] == 1
        assert rows[kept]["plain_private"] > 50
    assert rows["local", "SGD x5"]["plain_private"] > rows["local", "AdamW x5"]["plain_private"] + 9
    assert rows["half", "fp32"]["plain_private"] > rows["half", "bf16"]["plain_private"] + 20
    assert rows["batch", "B = 2"]["plain_private"] < 20
    assert rows["batch", "B = 2"]["tokens"] == 1
    assert "plain_private" not in rows["width", "32"]
    assert rows["width", "96"]["plain_exact"] == 1
    assert all((folder / name).stat().st_size > 5000 for name in ("noise.png", "limits.png"))
    assert "batch, small, 1 seeds" in capsys.readouterr().out


def scores(measured, part, setting, attack, column):
    return [
        row[column]
        for row in measured[part]["rows"]
        if (row["setting"], row["attack"]) == (setting, attack)
    ]


@pytest.mark.slow
def test_masking_hides_single_updates_and_a_sum_mixes_them(privacy, monkeypatch, tmp_path, capsys):
    folder, measured = ran(
        privacy, monkeypatch, tmp_path, "masking", "aggregate", "--evaluations=2"
    )
    (refused,) = scores(measured, "masking", "masked, as an update", "closed form", "refused")
    assert "updates are masked" in refused
    bare, masked = (
        scores(measured, "masking", setting, "closed form", "psnr_roi")
        for setting in ("not masked", "masked")
    )
    assert len(bare) == len(masked) == 2
    assert min(bare) > max(masked) + 30
    for name in ("closed form", "gradient matching"):
        assert 0 < measured["masking"]["p"][name]["permutation"] <= 1
    (alone,), (mixed,) = (
        scores(measured, "aggregate", f"|K| = {count}", "closed form, one page", "psnr_roi")
        for count in (1, 2)
    )
    assert alone > mixed + 30
    assert all((folder / f"{part}.png").stat().st_size > 5000 for part in ("masking", "aggregate"))
    assert "by Kolmogorov–Smirnov" in capsys.readouterr().out


@pytest.mark.slow
def test_what_is_recovered_under_dp_has_a_huge_epsilon(privacy, monkeypatch, tmp_path):
    folder, measured = ran(privacy, monkeypatch, tmp_path, "dp")
    for method in ("FeAm-DP", "FL-PROVIDER-DP"):
        little = scores(measured, "dp", f"{method}, 1e-08", "closed form", "psnr_roi")
        much = scores(measured, "dp", f"{method}, 1", "closed form", "psnr_roi")
        assert min(little) > max(much) + 20
        assert scores(measured, "dp", f"{method}, 1", "text", "private_text") == [0, 0]
        (epsilon,) = set(scores(measured, "dp", f"{method}, 1e-08", "text", "epsilon"))
        assert epsilon > 1e12
        # Whom the noise was found against sees one client's share of it.
        own = {r["epsilon"] for r in measured["dp"]["rows"] if r["method"] == method}
        assert min(abs(e - 8) for e in own) < 0.1
    assert set(scores(measured, "dp", "noise alone, 1e-08", "text", "epsilon")) == {None}
    assert (folder / "dp.png").stat().st_size > 5000


def test_random_words_replace_every_masked_message(privacy, tmp_path):
    run_dir = privacy.federated(
        FedSGD(), BatchGradient(), tmp_path, seed=0, clients=2, masking=privacy.MASKING
    )
    blind = privacy.with_random_words(run_dir, np.random.default_rng(0))
    for client in (0, 1):
        place = f"transcript/round-000001/client-{client:04d}"
        folders = RunFolder(run_dir), RunFolder(blind)
        (before, notes), (after, kept) = (read_tensors(folder, place) for folder in folders)
        assert notes == kept
        for name, words in before.items():
            assert words.shape == after[name].shape
            assert (words == after[name]).float().mean() < 0.01


@pytest.mark.slow
def test_the_tables_run_and_record_their_claims(tmp_path, capsys, monkeypatch):
    monkeypatch.syspath_prepend(EXPERIMENTS)
    inversion_tables = importlib.import_module("inversion_tables")

    inversion_tables.main(
        ["1", "5", "--model", "layoutlmv3", "--victims", "1", "--evaluations", "2",
         "--runs", str(tmp_path)]
    )  # fmt: skip
    shown = capsys.readouterr().out
    (record,) = tmp_path.glob("inversion_tables/*/tables.json")
    tables = json.loads(record.read_text("utf-8"))
    assert [table["table"] for table in tables] == ["1", "5"]
    rows = {row["name"]: row for row in tables[0]["rows"]}
    assert rows["closed form"]["psnr_roi"] > 70 > rows["GI-DQA"]["psnr_roi"]
    assert "holds: psnr_roi: closed form" in shown
    assert "DOES NOT HOLD" in shown  # two steps lead nowhere
    with pytest.raises(SystemExit):
        inversion_tables.main(["9"])
    assert "there are 1, 2, 3" in capsys.readouterr().err
