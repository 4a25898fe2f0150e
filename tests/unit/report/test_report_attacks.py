"""What the report shows of attacks."""

import json

import pytest
from PIL import Image

from fedpriv.report.build import write_report

CLOSED = {
    "status": "done",
    "psnr_roi": 97.63,
    "template_psnr_roi": 7.67,
    "exact_match": 1.0,
    "ocr_ceiling": 0.95,
    "evaluations": 0,
    "seconds": 0.06,
    "assumptions": ["no <b>template</b> is known"],
    "notes": [],
}
REFUSED = {"status": "not_applicable", "reason": "it requires each client's update"}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "config.yaml").write_text("name: attacked\nseed: 0\n")
    for name, metrics in {"closed_form": CLOSED, "gi_dqa": REFUSED}.items():
        place = tmp_path / "findings" / name
        place.mkdir(parents=True)
        (place / "metrics.json").write_text(json.dumps(metrics))
    return tmp_path


def page_of(folder):
    return write_report(folder).read_text("utf-8")


def picture(folder, panel, name="closed_form"):
    path = folder / "findings" / name / f"round-1-client-0-page-0-{panel}.png"
    Image.new("RGB", (8, 8), "white").save(path)


def test_a_run_without_attacks_says_nothing_of_them(tmp_path):
    (tmp_path / "config.yaml").write_text("name: quiet\n")
    assert "Attacks on what the server saw" not in page_of(tmp_path)


def test_all_attacks_stand_in_one_table(folder):
    page = page_of(folder)
    assert "97.6 dB" in page
    assert "The template alone scores 7.7 dB" in page
    assert "95% of the private fields are read exactly" in page
    assert "not applicable: it requires each client&#39;s update" in page
    assert "SSIM" not in page  # no attack has it
    assert "no &lt;b&gt;template&lt;/b&gt; is known" in page


def test_pages_stand_side_by_side_and_a_withheld_original_is_said(folder):
    for panel in ("template", "reconstruction"):
        picture(folder, panel)
    page = page_of(folder)
    assert page.count("data:image/png;base64,") == 2
    assert page.index("<figcaption>template") < page.index("<figcaption>reconstruction")
    assert "the original is withheld" in page
    for panel in ("original", "difference"):
        picture(folder, panel)
    page = page_of(folder)
    assert page.count("data:image/png;base64,") == 4
    assert "the original is withheld" not in page


def test_curves_and_texts_are_shown(folder):
    place = folder / "findings" / "closed_form"
    curve = [{"evaluations": 1, "objective": 2.0}, {"evaluations": 50, "objective": 1e-3}]
    (place / "curve.json").write_text(json.dumps({"round-1-client-0": curve}))
    text = {"tokens": [[0, 1], [1, 5]], "boxes": None, "question": "What <i>?", "answer": "7.50"}
    (place / "text.json").write_text(json.dumps({"round-1-client-0": text}))
    page = page_of(folder)
    assert "Distance between gradients" in page
    assert "gradients computed" in page
    assert "What &lt;i&gt;?" in page
    assert "7.50" in page


def test_findings_that_cannot_be_read_are_named(folder):
    (folder / "findings/closed_form/metrics.json").write_text("{")
    (folder / "findings/gi_dqa/round-1-client-0-page-0-template.png").write_bytes(b"no picture")
    page = page_of(folder)
    assert "metrics.json is not valid JSON" in page
    assert "cannot be shown" in page
