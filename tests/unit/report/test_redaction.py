"""A redacted report has no page, no name, no text of a document and no path of its run."""

import dataclasses
import json
import re

import pytest
from PIL import Image

from fedpriv.report.build import REDACTED, REPORT, write_report
from fedpriv.report.folder import read_run
from fedpriv.report.redaction import NAME, PATH, cleaner
from fedpriv.threat.results import LEAK, Figure, Number, Result, Table

PROVIDERS = ("Vega Builders ApS", "Yarrow Fuels AB", "Ørsted & Søn", "7-Zwölf GmbH", "4711")
DOCUMENTS = ("invoice-p000-d000", "scan_0815.pdf", "Mahnung Müller")
WORDS = ("Samuel", "Schmidt", "GB342222559", "€3,682.41", "2024-38230")
PATHS = ("/home/somebody/invoices", "/mnt/bank/scans/april.pdf", r"C:\Bank\scans")

CONFIG = f"""\
name: our_bank
rounds: 1
seed: 7
data: {{source: {{root: {PATHS[0]}}}}}
versions: {{torch: 2.13.0}}
"""


@pytest.fixture
def folder(tmp_path):
    """A run whose every file holds names, words and paths."""
    path = tmp_path / "run"
    place = path / "findings" / "closed_form"
    place.mkdir(parents=True)
    (path / "config.yaml").write_text(CONFIG)
    row = {"round": 1, "f1": 0.5, "f1/total": 0.25, f"f1/{PROVIDERS[0]}": 0.125}
    (path / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    failure = {"round": 1, "client": 0, "kind": "failed"}
    why = f"FileNotFoundError: {PATHS[1]} of {PROVIDERS[1]}"
    (path / "failures.jsonl").write_text(
        json.dumps({**failure, "reason": why, "traceback": f'File "{PATHS[0]}/x.py"'}) + "\n"
    )
    clients = {"0": {PROVIDERS[0]: DOCUMENTS[:1]}, "branch Ulm": {PROVIDERS[1]: DOCUMENTS[1:2]}}
    test = dict.fromkeys(PROVIDERS[2:], DOCUMENTS[2:])
    (path / "partition.json").write_text(
        json.dumps({"method": "ByProvider(clients=2)", "clients": clients, "test": test})
    )
    words = [
        {"text": word, "box": [0, 9 * at, 40, 9 * at + 8], "true": "B-total", "predicted": "O"}
        for at, word in enumerate(WORDS)
    ]
    (path / "prediction.json").write_text(json.dumps({"document": DOCUMENTS[0], "words": words}))
    for file in (path / "prediction.png", place / "a.png", place / "b.png"):
        Image.new("RGB", (400, 300), "white").save(file)
    ledger = {
        "mechanism": None,
        "views": {"global": {"pld": "inf", "note": f"trained on {DOCUMENTS[1]} too"}},
    }
    (path / "ledger.json").write_text(json.dumps(ledger))
    everything = ", ".join((*PROVIDERS, *DOCUMENTS, *WORDS, *PATHS))
    result = Result(
        "pages",
        f"recovered {WORDS[2]} of {PROVIDERS[0]}",
        details={"exact_match": 0.75, "guess": WORDS[1]},
        tables=(
            Table(("page", "read"), ((DOCUMENTS[0], WORDS[0]),), "Texts of the attack"),
            Table(("rows of", "PSNR"), ((PROVIDERS[1], "24.1 dB"),), "Numbers", public=True),
        ),
        figures=(
            Figure("pictures", DOCUMENTS[0], {"panels": [["template", "a.png"]]}),
            Figure("bars", "By provider", {"bars": {PROVIDERS[0]: {DOCUMENTS[2]: 0.5}}}),
        ),
        notes=(everything,),
        assumptions=(f"the scans lie in {PATHS[1]}",),
        left_out={f"no text on {DOCUMENTS[2]}": 3},
        not_applicable={PROVIDERS[3]: f"it has only {DOCUMENTS[1]}"},
        threat_model={"Transcript": True},
        settings={"root": PATHS[0]},
        verdict=LEAK,
        primary="gain",
        numbers={"gain": Number(9.0, None, 1, "message", 0.0), PROVIDERS[2]: AUC},
    )
    (place / "result.json").write_text(json.dumps(dataclasses.asdict(result)))
    return path


AUC = Number(0.83, (0.72, 0.92), 51, "provider", 0.5, 0.7, 0.003)
PRIVATE = (*PROVIDERS, *DOCUMENTS, *WORDS, *PATHS, "branch Ulm", "data:image")


def text_of(page):
    """Returns a page with entities resolved, as a reader or a search engine has it."""
    import html

    return html.unescape(page)


def test_what_the_full_report_shows_the_redacted_one_does_not(folder):
    full = text_of(write_report(folder).read_text("utf-8"))
    place = write_report(folder, redacted=True)
    assert place.name == REDACTED != REPORT
    redacted = text_of(place.read_text("utf-8"))
    for private in PRIVATE:
        assert private in full, f"{private} is not in the full report: this proves nothing"
        assert private.lower() not in redacted.lower(), private
    assert "<img" in full
    assert "<image" in full
    assert "<img" not in redacted
    assert "<image" not in redacted
    assert str(folder) not in redacted
    assert "somebody" not in redacted


def test_the_numbers_stay(folder):
    redacted = text_of(write_report(folder, redacted=True).read_text("utf-8"))
    for kept in (
        "our_bank",
        "0.500",
        "24.1 dB",
        "2.13.0",
        "0.125",
        "read 75% of a page's private fields",
        "provider 1",
        "client 1",
        "3 documents of 3 providers",
        "FileNotFoundError; the reason is left out",
        "1 table left out, because its cells may hold names or texts of documents",
        "1 group of pictures left out",
        "0.72 to 0.92",
    ):
        assert kept in redacted, kept


def test_each_report_says_what_it_is(folder):
    full = write_report(folder).read_text("utf-8")
    top = re.sub(r"<[^>]+>|\s+", " ", full.partition("<nav")[0])
    assert "This report holds pages and texts of documents, names of providers and paths" in top
    assert "fedpriv report RUN_DIR --redacted" in top
    redacted = write_report(folder, redacted=True).read_text("utf-8")
    assert "This is a redacted report" in redacted.partition("<nav")[0]
    assert "--redacted" not in redacted


def test_a_run_that_cannot_be_read_is_redacted_too(folder):
    (folder / "prediction.json").write_text(f'{{"words": "{WORDS[0]}"}}')
    (folder / "findings" / "closed_form" / "result.json").write_text(f'["{PROVIDERS[0]}"')
    redacted = text_of(write_report(folder, redacted=True).read_text("utf-8"))
    assert WORDS[0] not in redacted
    assert PROVIDERS[0] not in redacted
    assert "problems with the run's files, which the full report tells" in redacted


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("AUC 0.83 on 51 providers", "AUC 0.83 on 51 providers"),
        ("of Vega Builders ApS, as said", f"of {NAME}, as said"),
        ("vega builders aps", NAME),
        ("Vega Builders ApSX", "Vega Builders ApSX"),
        ("3 of 4711 fields", f"3 of {NAME} fields"),
        ("in ./runs/a and ~/b", f"in {PATH} and {PATH}"),
        ("data/open/sroie", PATH),
        ("google-t5/t5-base, 1/2, and/or", "google-t5/t5-base, 1/2, and/or"),
    ],
)
def test_names_and_paths_are_taken_out_of_a_text(folder, text, clean):
    assert cleaner(read_run(folder))(text) == clean
