"""The studies of inversions, at sizes that take seconds: they run, draw, and say what is so."""

import functools
import importlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from processes import run, run_dir

from fedpriv.models.layoutlmv3 import layoutlmv3
from fedpriv.privacy.mechanism import Budget
from fedpriv.runtime.run_folder import RunFolder
from fedpriv.runtime.tensors import read_tensors
from fedpriv.studies import sweep

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
def masking(monkeypatch):
    """The study of masked messages, with two clients and a tiny model."""
    monkeypatch.syspath_prepend(EXPERIMENTS)
    study = importlib.import_module("inversion_under_masking")
    monkeypatch.setattr(study, "MODEL", TINY)
    monkeypatch.setattr(study, "CLIENTS", 2)
    monkeypatch.setattr(study, "EVALUATIONS", 2)
    return study


def swept(tmp_path, name, *overrides):
    """Runs a sweep from the command line; returns its folder, its results and what it printed."""
    status, out, err = run("sweep", name, *overrides, "attack.ocr=null", cwd=tmp_path)
    assert status == 0, err
    folder = tmp_path / run_dir(out)
    return folder, json.loads((folder / "results.json").read_text()), out


def numbers(results, column):
    """Returns a column of a sweep by row."""
    return {row["row"]: row["values"][column] for row in results["rows"]}


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


@pytest.mark.slow
def test_masking_hides_single_updates(masking, monkeypatch, tmp_path, capsys):
    folder, measured = ran(masking, monkeypatch, tmp_path)

    def scores(setting, attack, column):
        kind = (setting, attack)
        rows = [row for row in measured["rows"] if (row["setting"], row["attack"]) == kind]
        return [row[column] for row in rows]

    (refused,) = scores("masked, as an update", "closed form", "refused")
    assert "updates are masked" in refused
    bare, masked = (scores(one, "closed form", "psnr_roi") for one in ("not masked", "masked"))
    assert len(bare) == len(masked) == 2
    assert min(bare) > max(masked) + 30
    for name in ("closed form", "gradient matching"):
        assert 0 < measured["p"][name]["permutation"] <= 1
    assert (folder / "masking.png").stat().st_size > 5000
    assert "by Kolmogorov–Smirnov" in capsys.readouterr().out


TINY_RUN = (
    *("run.model.hidden_size=96", "run.model.layers=1", "run.model.image_size=64"),
    "run.data.source.page_size=[64,64]",
)


@pytest.mark.slow
def test_a_sum_mixes_the_pages_of_its_clients(tmp_path):
    small = [*TINY_RUN, "clients=[1,2]", "evaluations=2"]
    folder, results, _ = swept(tmp_path, "papers/gi_dqa/aggregate", *small)
    page = numbers(results, "psnr_roi")
    assert page["closed form, one page, clients 1"] > page["closed form, one page, clients 2"] + 30
    (compared, *_) = results["claims"][0]["comparisons"]
    assert compared["verdict"].endswith("of one seed; it takes two or more")
    assert numbers(results, "token_set_recall")["text, clients 2"] == 1
    assert (folder / "figure.png").stat().st_size > 5000


@pytest.mark.slow
def test_what_is_recovered_under_dp_has_a_huge_epsilon(tmp_path):
    two = ["run.data.source.providers=2", "run.data.partition.clients=2", "seeds=[0]"]
    levels = "noise=[1e-8,1.0,10.625]"
    _, results, _ = swept(tmp_path, "papers/gi_dqa/privacy", *TINY_RUN, *two, levels)
    page, text = numbers(results, "psnr_roi"), numbers(results, "private_text")
    epsilon = {by: numbers(results, f"ledger.views.server_plain.{by}") for by in ("pld", "rdp")}
    for method in ("FeAm-DP", "FL-PROVIDER-DP"):
        assert page[f"{method}, page, noise 1e-08"] > page[f"{method}, page, noise 1"] + 20
        assert text[f"{method}, text, noise 1"] == 0
        assert epsilon["rdp"][f"{method}, text, noise 1e-08"] > 1e12
        assert epsilon["pld"][f"{method}, text, noise 10.625"] < 1
    assert epsilon["rdp"]["noise alone, text, noise 1e-08"] is None


def test_the_two_largest_noises_are_those_for_epsilon_8_and_1():
    """The file names them, because the attacks are told the noise."""
    rows = sweep.read("papers/gi_dqa/privacy").rows
    for epsilon, noise in ((8.0, 1.69921875), (1.0, 10.625)):
        budget = Budget(epsilon, rounds=1, view="server_plain", cohort=8)
        assert budget.noise_multiplier(1.0, 1.0, 1e-5) == noise
        assert noise in {row.x for row in rows}


def test_random_words_replace_every_masked_message(masking, tmp_path):
    plain = masking.federated(tmp_path, 0, masking.MASKING)
    blind = masking.with_random_words(plain, np.random.default_rng(0))
    for client in (0, 1):
        place = f"transcript/round-000001/client-{client:04d}"
        folders = RunFolder(plain), RunFolder(blind)
        (before, notes), (after, kept) = (read_tensors(folder, place) for folder in folders)
        assert notes == kept
        for name, words in before.items():
            assert words.shape == after[name].shape
            assert (words == after[name]).float().mean() < 0.01


@pytest.mark.slow
def test_the_tables_run_and_record_their_claims(tmp_path):
    small = ["victims=1", "evaluations=2"]
    rows = "rows=[GI-DQA, closed form]"
    folder, results, out = swept(tmp_path, "papers/gi_dqa/table_1", *small, rows)
    page = numbers(results, "psnr_roi")
    assert page["closed form"] > 70 > page["GI-DQA"]
    assert "  - psnr_roi: closed form > GI-DQA: cannot tell: " in out  # of one seed
    assert len({row["run"] for row in results["rows"]}) == 1  # all attack the same gradients
    assert "| closed form |" in (folder / "table.md").read_text("utf-8")

    _, results, _ = swept(tmp_path, "papers/gi_dqa/table_5", *small)
    assert list(numbers(results, "psnr_roi")) == ["none", "GradViT", "ours"]
    # Of two evaluations, the better one may be the start, which no prior has touched.
    two = ("victims=1", "evaluations=6", "rows=[L_grad, + gau]", "seeds=[0]")
    _, results, out = swept(tmp_path, "papers/gi_dqa/table_2", *two)
    assert numbers(results, "psnr_roi")["L_grad"] != numbers(results, "psnr_roi")["+ gau"]
    assert "- Not measured: 4 further claims" in out


@pytest.mark.slow
def test_where_the_closed_form_does_not_apply_is_a_row(tmp_path):
    small = ["model=donut", "victims=1", "rows=[closed form]", "seeds=[0]"]
    _, results, out = swept(tmp_path, "papers/gi_dqa/table_1", *small)
    (row,) = results["rows"]
    assert row["refused"] is True
    assert row["headline"].startswith("not applicable: ")
    assert row["headline"][:40] in out


@pytest.mark.slow
def test_the_tables_take_a_saved_model_whose_page_has_a_size_of_its_own(tmp_path):
    # Wide enough to tell the 154 covered patches of a slip of 224 x 224 pixels apart.
    TINY(image_size=224, hidden_size=208).save_pretrained(tmp_path / "saved")
    saved = ["size=base", f"pretrained={tmp_path / 'saved'}", "side=224"]
    few = ["victims=1", "evaluations=2", "seeds=[0]"]
    rows = "rows=[GI-DQA, closed form]"
    _, results, _ = swept(tmp_path, "papers/gi_dqa/table_1", *saved, *few, rows)
    page = numbers(results, "psnr_roi")
    assert page["closed form"] > 50 > page["GI-DQA"]
