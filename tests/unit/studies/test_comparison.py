"""Several runs on one page: what differs in utility, in ε and in what attacks found."""

import dataclasses
import json
import re
import shutil

import pytest
import yaml
from PIL import Image

from fedpriv.report.folder import read_run
from fedpriv.runtime.run_folder import AUDIT
from fedpriv.studies.comparison import compare, differences, render
from fedpriv.threat.results import CANNOT_TELL, LEAK, NONE_SHOWN, Figure, Number, Result

AUC = Number(0.83, (0.72, 0.92), 51, "provider", 0.5, 0.7, 0.003)


@pytest.fixture
def runs(tmp_path):
    """Two runs of one experiment: without noise and with it, both attacked."""
    folders = []
    for place, (f1, epsilon, verdict) in enumerate([(0.75, None, LEAK), (0.25, 8.0, NONE_SHOWN)]):
        folder = tmp_path / f"run-{place}"
        attack = folder / "findings" / "pmia"
        attack.mkdir(parents=True)
        config = {
            "name": "bank",
            "rounds": 1,
            "seed": 7,
            "data": {"root": f"/secret/scans-{place}", "steps": place},
            "strategy": {"_target_": f"fedpriv.strategies.{('FedAvg', 'FLProviderDP')[place]}"},
        }
        (folder / "config.yaml").write_text(yaml.safe_dump(config))
        (folder / "layout.json").write_text('{"version": 1}')
        (folder / "metrics.jsonl").write_text(json.dumps({"round": 1, "f1": f1, "loss": 1.0}))
        view = {"pld": epsilon or "inf", "guarantee": epsilon is not None}
        mechanism = {"clip_norm": 1.0} if epsilon else None
        ledger = {"unit": "provider", "mechanism": mechanism, "views": {"global": view}}
        (folder / "ledger.json").write_text(json.dumps(ledger))
        numbers = {"apk": dataclasses.replace(AUC, value=0.83 - 0.3 * place)}
        result = Result("membership", "x", verdict=verdict, primary="apk", numbers=numbers)
        (attack / "result.json").write_text(json.dumps(dataclasses.asdict(result)))
        folders.append(folder)
    return folders


def rows_of(html):
    rows = re.findall(r"<tr>(.*?)</tr>", html, re.DOTALL)
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in rows]
    return [[re.sub(r"<.*?>", "", cell).strip() for cell in row] for row in cells]


def test_the_page_says_what_differs(runs, tmp_path):
    html = compare(runs, tmp_path / "both.html").html
    assert (
        "FedAvg leaks (pmia); FL-PROVIDER-DP, ε 8.00, shows no leak, and F1 falls from 0.75 to "
        "0.25." in html
    )
    first, second = "1. FedAvg", "2. FL-PROVIDER-DP, ε 8.00"
    rows = rows_of(html)
    assert ["run", "F1", "held-out loss", "ε: whoever sees the global models"] in rows
    assert [first, "0.750", "1.000", "∞"] in rows
    assert [second, "0.250", "1.000", "8.00"] in rows
    assert [first, "leak (apk 0.83 against 0.5)"] in rows
    assert [second, "none shown (apk 0.53 against 0.5)"] in rows
    assert ["strategy._target_", "FedAvg", "FLProviderDP"] in rows
    assert "F1: run 1 0.75, run 2 0.25; ε: run 2 8; pmia: run 1 0.83, run 2 0.53." in html
    assert "://" not in html


@pytest.mark.parametrize(
    ("audited", "said"), [(NONE_SHOWN, "may leak or not (pmia: cannot tell)"), (LEAK, "leaks (")]
)
def test_an_audit_of_the_noise_is_no_attack_that_found_nothing(audited, said, runs, tmp_path):
    attack = runs[1] / "findings" / "pmia" / "result.json"
    found = json.loads(attack.read_text()) | {"verdict": CANNOT_TELL}
    attack.write_text(json.dumps(found))
    audit = runs[1] / "findings" / AUDIT / "result.json"
    audit.parent.mkdir()
    audit.write_text(json.dumps(found | {"kind": "mechanism audit", "verdict": audited}))
    html = compare(runs, tmp_path / "both.html").html
    assert f"FL-PROVIDER-DP, ε 8.00, {said}" in html


def test_a_redacted_comparison_has_no_paths(runs, tmp_path):
    full = compare(runs, tmp_path / "full.html").html
    assert (tmp_path / "full.html").stat().st_mode & 0o777 == 0o600
    html = compare(runs, tmp_path / "both.html", redacted=True).html
    assert "/secret" in full
    assert "secret" not in html
    assert ["data.steps", "0", "1"] in rows_of(html)
    assert ["strategy._target_", "FedAvg", "FLProviderDP"] in rows_of(html)
    assert "This is a redacted comparison" in html


def test_the_same_run_twice_differs_in_nothing(runs):
    run = read_run(runs[0])
    assert differences([run, run]) == {}
    html = render([run, run])
    assert "bank leaks (pmia), and F1 is 0.75." in html
    assert "The settings are the same in all runs." in html


def test_runs_without_anything_are_compared_too(tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.yaml").write_text(f"name: <script>{name}")
    html = render([read_run(tmp_path / name) for name in "ab"])
    assert "&lt;script&gt;a was not attacked." in html
    assert "None of the runs was attacked" in html
    assert "<svg" not in html
    assert "<script>" not in html


def test_runs_that_differ_in_their_seed_are_one_row_with_an_interval(runs, tmp_path):
    folders = [runs[1]]
    for seed, f1 in enumerate([0.1, 0.2, 0.3, 0.4, 0.5]):
        folder = tmp_path / f"seed-{seed}"
        shutil.copytree(runs[0], folder)
        config = yaml.safe_load((folder / "config.yaml").read_text())
        (folder / "config.yaml").write_text(
            yaml.safe_dump({**config, "seed": seed, "model": {"seed": seed}})
        )
        (folder / "metrics.jsonl").write_text(json.dumps({"round": 1, "f1": f1}))
        folders.append(folder)
    five = compare(folders, tmp_path / "five.html")
    assert (tmp_path / "five.html").read_text("utf-8") == five.html
    # t(0.975, 4) = 2.7764, and the deviation is .15811: 2.7764 * .15811 / sqrt(5) = .1963.
    labels = [row[0] for row in rows_of(five.html)]
    many = "2, 3, 4, 5, 6. FedAvg, 5 seeds"
    assert many in labels
    assert [many, "0.300 [0.104, 0.496]", "—", "∞"] in rows_of(five.html)
    assert [many, "leak 5 of 5 (apk 0.83 [0.72, 0.92] against 0.5)"] in rows_of(five.html)
    row = five.table.loc["FedAvg"]
    assert (row.runs, row.epsilon) == (5, float("inf"))
    assert (row.f1, row["f1.low"], row["f1.high"]) == pytest.approx((0.3, 0.1037, 0.4963), abs=1e-4)
    single = five.table.loc[five.table.runs == 1].iloc[0]
    assert (single["pmia.low"], single["pmia.high"], single.epsilon) == (0.72, 0.92, 8.0)
    # t(0.975, 1) = 12.706, of .1 and .2: 12.706 * .05 = .635.
    two = compare(folders[:3])
    assert "2, 3. FedAvg, 2 seeds" in (row[0] for row in rows_of(two.html))
    assert next(r[1] for r in rows_of(two.html) if "2 seeds" in r[0]) == "0.150 [0.000, 0.785]"
    assert "0.15" in two.figure
    assert "<table" in two._repr_html_()


def test_a_row_promises_what_all_its_seeds_promise(runs, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(runs[1], other)
    config = yaml.safe_load((other / "config.yaml").read_text())
    (other / "config.yaml").write_text(yaml.safe_dump({**config, "seed": 8}))
    assert compare([runs[1], other]).table.epsilon.tolist() == [8.0]
    (other / "ledger.json").unlink()
    assert compare([runs[1], other]).table.epsilon.tolist() == [float("inf")]
    assert (
        "1, 2. bank, 2 seeds: F1 0.250, held-out loss 1.000, ε: "
        in compare([runs[1], other]).lines[0]
    )
    assert compare([runs[1], other]).lines[0].endswith(" ∞")


def test_the_epsilon_of_a_row_is_in_its_name(runs, tmp_path):
    other = tmp_path / "less private"
    shutil.copytree(runs[1], other)
    ledger = json.loads((other / "ledger.json").read_text())
    ledger["views"]["global"]["pld"] = 9.5
    (other / "ledger.json").write_text(json.dumps(ledger))
    shutil.rmtree(other / "findings")
    (other / "config.yaml").write_text(yaml.safe_dump({"name": "bank", "rounds": 1}))
    found = compare([*runs, other])
    assert found.answer.startswith(
        "FedAvg leaks (pmia); FL-PROVIDER-DP, ε 8.00, shows no leak; ε 9.50 was not attacked, and "
    )
    assert ["3. ε 9.50", "not attacked"] in rows_of(found.html)


def test_one_run_is_no_comparison(runs, tmp_path):
    with pytest.raises(ValueError, match="got 1 run folder: expected two or more to compare"):
        compare(runs[:1], tmp_path / "x.html")


def test_a_stolen_page_is_on_the_first_screen_and_in_no_redacted_one(runs, tmp_path):
    attack = runs[0] / "findings" / "closed_form"
    attack.mkdir()
    Image.new("RGB", (8, 8), "white").save(attack / "page.png")
    Image.new("RGB", (8, 8), "black").save(attack / "stolen.png")
    panels = [["original", "page.png"], ["reconstruction", "stolen.png"]]
    stolen = Figure("pictures", "round 1 client 0", {"panels": panels})
    numbers = {"pages_recovered": Number(1.0, None, 1, "message", 0.0, None, None)}
    result = Result(
        "pages", "x", {"psnr_roi": 95.0}, figures=(stolen,), verdict=LEAK, numbers=numbers,
        primary="pages_recovered", clause="restore 100% of the pages in a client's update",
    )  # fmt: skip
    (attack / "result.json").write_text(json.dumps(dataclasses.asdict(result)))
    html = compare(runs, tmp_path / "full.html").html
    header, _, rest = html.partition("</header>")
    assert len(re.findall(r'<img[^>]* src="data:image/png', header)) == 2
    assert re.search(r"<li>Run 1: An adversary can restore 100% of the pages in .*</li>", header)
    assert "data:image" not in rest
    redacted = compare(runs, tmp_path / "both.html", redacted=True).html
    assert "data:image" not in redacted


def measured_on(folder, digest, seed=7):
    """Notes on which held-out document a run was measured."""
    content = {"documents": {"a": "1", "b": digest}, "hands": {"a": "0", "b": "held out"}}
    (folder / "data.json").write_text(json.dumps(content))
    config = yaml.safe_load((folder / "config.yaml").read_text())
    (folder / "config.yaml").write_text(yaml.safe_dump({**config, "seed": seed}))


@pytest.mark.parametrize("redacted", [False, True])
def test_scores_on_other_held_out_documents_are_not_compared(runs, redacted):
    for folder, digest in zip(runs, ("x", "y"), strict=True):
        measured_on(folder, digest)
    found = compare(runs, redacted=redacted)
    assert found.answer.endswith(
        "shows no leak; the held-out documents differ, so that scores cannot be compared."
    )
    assert found.table.held_out.tolist() == ["A", "B"]
    assert ["2. FL-PROVIDER-DP, ε 8.00", "B", "0.250", "1.000", "8.00"] in rows_of(found.html)
    assert "their scores must not be compared" in found.html
    measured_on(runs[1], "x")
    assert compare(runs, redacted=redacted).answer.endswith("and F1 falls from 0.75 to 0.25.")


def test_of_other_seeds_the_settings_that_hold_documents_out_decide(runs):
    measured_on(runs[0], "x", seed=1)
    measured_on(runs[1], "y", seed=2)
    assert compare(runs).table.held_out.tolist() == ["A", "A"]
    config = yaml.safe_load((runs[1] / "config.yaml").read_text())
    config["data"]["test"] = {"unseen": 0.4}
    (runs[1] / "config.yaml").write_text(yaml.safe_dump(config))
    assert compare(runs).table.held_out.tolist() == ["A", "B"]


def test_what_tells_runs_apart_is_named_by_importance(runs, tmp_path):
    base = {"name": "bank", "strategy": {"_target_": "fedpriv.strategies.fedavg.FedAvg"}}
    for place, (unseen, keep) in enumerate(
        [(0.0, {}), (0.4, {"held_out": {"duplicates": "drop"}})]
    ):
        config = {**base, "keep": keep, "data": {"test": {"unseen": unseen}}}
        (runs[place] / "config.yaml").write_text(yaml.safe_dump(config))
        (runs[place] / "ledger.json").unlink()
    names = compare(runs).table.index.tolist()
    assert names == ["data.test.unseen=0", "data.test.unseen=0.4"]


def test_what_cannot_tell_is_said_so(runs):
    file = runs[1] / "findings" / "pmia" / "result.json"
    result = json.loads(file.read_text()) | {"verdict": "cannot_tell"}
    file.write_text(json.dumps(result))
    assert "FL-PROVIDER-DP, ε 8.00, may leak or not (pmia: cannot tell)" in compare(runs).answer
