"""Pages of every kind have no fault that axe-core calls serious or critical.

It needs Chromium and the file axe.min.js: `npm install --no-save axe-core` in the repository, or
AXE_CORE with its path. Without them the test is skipped; users of fedpriv need neither.
"""

import dataclasses
import html
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from PIL import Image
from toy import federation

from fedpriv.report.build import write_report
from fedpriv.studies import sweep_page as sweep
from fedpriv.studies.claims import Claim, Measured
from fedpriv.studies.comparison import compare
from fedpriv.studies.reproduced import Reproduced
from fedpriv.studies.sweep_page import Column
from fedpriv.threat.results import CANNOT_TELL, LEAK, Figure, Number, Result, Table

AXE = Path(
    os.environ.get("AXE_CORE", Path(__file__).parents[2] / "node_modules/axe-core/axe.min.js")
)
BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not BROWSER, reason="there is no Chromium"),
    pytest.mark.skipif(not AXE.is_file(), reason=f"no {AXE}: npm install --no-save axe-core"),
]

RUN = """
axe.run({resultTypes: ["violations"]}).then(found => {
  const told = document.createElement("pre");
  told.id = "axe";
  told.textContent = JSON.stringify(found.violations.map(one => [one.impact, one.id,
    one.nodes.slice(0, 3).map(node => node.html.slice(0, 200))]));
  document.body.append(told);
});
"""


def faults(page, folder, theme="light", width=1280):
    """Returns impact, rule and places of what axe-core finds in a page, with all details open."""
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page)
    text = text.replace("<details>", "<details open>")
    if theme == "dark":
        text = text.replace("(prefers-color-scheme: dark)", "all")
    scripts = f"<script>{AXE.read_text('utf-8')}</script><script>{RUN}</script>"
    place = folder / "page.html"
    place.write_text(text.replace("</body>", f"{scripts}</body>"), "utf-8")
    options = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")
    window = (f"--user-data-dir={folder}/browser", f"--window-size={width},900")
    shown = subprocess.run(
        [BROWSER, *options, *window, "--virtual-time-budget=60000", "--dump-dom", place.as_uri()],
        capture_output=True,
        text=True,
        timeout=180,
        check=True,
    ).stdout
    (found,) = re.findall(r'<pre id="axe">(.*?)</pre>', shown, re.DOTALL)
    return json.loads(html.unescape(found))


NUMBER = Number(0.83, (0.72, 0.92), 51, "provider", 0.5, 0.7, 0.003)
RESULTS = {
    "closed_form": Result(
        "pages",
        "recovered from one message: the private fields at 24 dB",
        {"psnr_roi": 24.0, "template_psnr_roi": 9.0},
        (Table(("messages", "PSNR"), (("1", "24 dB"),), "Recovered"),),
        (
            Figure(
                "pictures",
                "page 0",
                {"panels": [["template", "a.png"], ["reconstruction", "b.png"]]},
            ),
            Figure("lines", "Distance", {"curves": {"a": {"1": 2.0, "50": 0.5}}}),
        ),
        threat_model={"Transcript": True},
        verdict=LEAK,
    ),
    "pmia": Result(
        "membership",
        "apk has AUC 0.830",
        {"auc": 0.83},
        (
            Table(
                ("classifier", "s", "AUC"), tuple(("apk", f"{n}", "0.83") for n in range(30)), "Who"
            ),
        ),
        (
            Figure("roc", "ROC", {"curves": {"apk": [[0, 0.25, 1], [0, 0.5, 1]]}}),
            Figure("bars", "Bars", {"bars": {"attack": {"PR": 0.5}, "baseline": {"PR": 0.1}}}),
            Figure("counts", "Counts", {"bars": {"E": {"1×": 3}, "M": {"1×": 2}}, "wide": True}),
            Figure("scores", "Scores", {"panels": {"all": [[0, 1, 0], [2, 0, 0], [0, 0, 5]]}}),
        ),
        verdict=CANNOT_TELL,
        primary="apk",
        numbers={"apk": NUMBER, **{f"apk, s={n}": NUMBER for n in range(20)}},
        settings={"seed": "0"},
    ),
}


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The pages of an attacked run, of it redacted, of a comparison and of a sweep."""
    parent = tmp_path_factory.mktemp("runs")
    run = parent / "run"
    federation({"1/0": "raise"}, clients=2).run(2, run_dir=run)
    for name, result in RESULTS.items():
        place = run / "findings" / name
        place.mkdir(parents=True)
        (place / "result.json").write_text(json.dumps(dataclasses.asdict(result)))
        for file in ("a.png", "b.png"):
            Image.new("RGB", (64, 64), "white").save(place / file)
    words = [{"text": "ACME", "box": [5, 5, 60, 20], "true": "B-company", "predicted": "O"}]
    (run / "prediction.json").write_text(json.dumps({"document": "x", "words": words}))
    Image.new("RGB", (120, 60), "white").save(run / "prediction.png")
    view = {"rdp": 9.0, "prv": None, "gdp": None, "guarantee": True, "note": "the server"}
    view |= {"reasons": {"gdp": "no client stage"}, "doubts": []}
    ledger = {
        "unit": "provider",
        "meaning": "adding or removing one provider",
        "delta": 1e-5,
        "mechanism": {"clip_norm": 1.0},
        "not_covered": ["when a client answers"],
        "views": {"global": view | {"pld": 8.0}, "server_plain": view | {"pld": "inf"}},
        "colluders": [{"colluders": 0, "epsilon": 8.0}, {"colluders": 1, "epsilon": "inf"}],
        "by_round": [{"round": 1, "global": 2.0}, {"round": 2, "global": 4.0}],
    }
    (run / "ledger.json").write_text(json.dumps(ledger))
    measured = [
        Measured(row, seed, "runs/1", "", False, {"psnr": 9.0 + seed}, {})
        for row in ("with noise", "without")
        for seed in (0, 1)
    ]
    columns = [Column("psnr", "PSNR")]
    made = {"command": "fedpriv sweep x", "machine": "y"}
    said = "psnr: without > with noise"
    claims = list(sweep.verdicts([Claim(said, said)], measured))
    table = sweep.Recorded("A sweep", columns, "", measured, claims, made)
    return {
        "run": write_report(run).read_text("utf-8"),
        "redacted": write_report(run, redacted=True).read_text("utf-8"),
        "comparison": compare([run, run], parent / "both.html").html,
        "sweep": sweep.html(table),
        "paper": Reproduced("Nobody 2026", {"table1": table}).html(),
    }


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("kind", ["run", "redacted", "comparison", "sweep", "paper"])
def test_nothing_serious_is_found(pages, kind, theme, tmp_path):
    found = faults(pages[kind], tmp_path, theme)
    assert not [fault for fault in found if fault[0] in ("serious", "critical")]


@pytest.mark.parametrize("kind", ["run", "comparison", "sweep", "paper"])
def test_nothing_serious_is_found_in_a_narrow_window(pages, kind, tmp_path):
    found = faults(pages[kind], tmp_path, width=500)
    assert not [fault for fault in found if fault[0] in ("serious", "critical")]


def test_a_fault_would_be_found(pages, tmp_path):
    faint = '<p style="color: #eee">can hardly be seen</p>'
    page = pages["sweep"].replace("</main>", f'<img src="data:,">{faint}</main>')
    rules = {rule for _, rule, _ in faults(page, tmp_path)}
    assert {"image-alt", "color-contrast"} <= rules
