"""A redacted report has no page, no name, no text of a document and no path of its run."""

import dataclasses
import json
import re

import pytest
from PIL import Image
from private_places import SOMEBODY, places_that_show

from fedpriv.report.build import REDACTED, REPORT, render, write_report
from fedpriv.report.folder import read_run
from fedpriv.report.redaction import NAME, PATH, cleaner, public_name, redact
from fedpriv.studies.comparison import differences
from fedpriv.threat.results import LEAK, Figure, Number, Result, Table

PROVIDERS = ("Vega Builders ApS", "Yarrow Fuels AB", "Ørsted & Søn", "7-Zwölf GmbH", "4711")
DOCUMENTS = ("invoice-p000-d000", "scan_0815.pdf", "Mahnung Müller")
WORDS = ("Samuel", "Schmidt", "GB342222559", "€3,682.41", "2024-38230")
PATHS = ("/home/somebody/invoices", "/mnt/bank/scans/april.pdf", r"C:\Bank\scans")

CONFIG = f"""\
name: pilot of Yarrow
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
    row |= {f"f1/{column}": 0.5 for column in COLUMNS} | {"score_of_Geheim": 0.5}
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
        "events": [],
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
        primary="pages_recovered",
        numbers={"pages_recovered": Number(0.6, None, 1, "message", 0.0), PROVIDERS[2]: AUC},
        public=True,
        clause="restore 60% of the pages in a client's update, and read 75% of their private "
        f"fields, such as {PROVIDERS[0]}",
    )
    (place / "result.json").write_text(json.dumps(dataclasses.asdict(result)))
    return path


def rewrite(folder, file, **changed):
    """Changes values of a JSON file of the run."""
    place = folder / file
    place.write_text(json.dumps(json.loads(place.read_text()) | changed))


RESULT = "findings/closed_form/result.json"


AUC = Number(0.83, (0.72, 0.92), 51, "provider", 0.5, 0.7, 0.003)
COLUMNS = ("Projekt Adlerhorst", "iban")
"""Of the user's own table."""
PRIVATE = (
    "score of Geheim",
    *COLUMNS,
    *PROVIDERS,
    *DOCUMENTS,
    *WORDS,
    *PATHS,
    "branch Ulm",
    "pilot of",
    "data:image",
)


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
        f"federated run <b>{NAME}</b>",
        "0.500",
        "24.1 dB",
        "2.13.0",
        "0.125",
        "restore 60% of the pages in a client's update, and read 75% of their private fields",
        "supplier 1",
        "client 1",
        "3 documents of 3 suppliers",
        "FileNotFoundError; the reason is left out",
        "1 table left out, because its cells may hold names or texts of documents",
        "1 group of pictures left out",
        "0.72 to 0.92",
    ):
        assert kept in redacted, kept


def test_each_report_says_what_it_is(folder):
    full = write_report(folder).read_text("utf-8")
    top = re.sub(r"<[^>]+>|\s+", " ", full.partition("<nav")[0])
    assert "This report holds pages and texts of documents, names of suppliers and paths" in top
    assert "fedpriv report RUN_DIR --redacted" in re.sub(r"\s+", " ", top)
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
        ("AUC 0.83 on 51 suppliers", "AUC 0.83 on 51 suppliers"),
        ("of Vega Builders ApS, as said", f"of {NAME}, as said"),
        ("vega builders aps", NAME),
        ("Vega Builders ApSX", "Vega Builders ApSX"),
        ("3 of 4711 fields", f"3 of {NAME} fields"),
        ("in ./runs/a and ~/b", f"in {PATH} and {PATH}"),
        ("file:///home/somebody/x.pdf, s3://bank/x", f"{PATH} {PATH}"),
        (r"on \\bank\scans", f"on {PATH}"),
        ("No such file: '/mnt/our bank/april scan.pdf'", f"No such file: {PATH}"),
        ("C:/Bank/scans", PATH),
        ("recon_vega_builders_aps_0", f"recon_{NAME}_0"),
        ("Vega-Builders  ApS", NAME),
        ("data/open/sroie", PATH),
        ("google-t5/t5-base, 1/2, and/or", "google-t5/t5-base, 1/2, and/or"),
    ],
)
def test_names_and_paths_are_taken_out_of_a_text(folder, text, clean):
    assert cleaner(read_run(folder))(text) == clean


def redacted(folder):
    return text_of(render(read_run(folder), redacted=True))


def test_words_that_a_poor_model_takes_for_fields_do_not_tear_holes_into_sentences(folder):
    path = folder / "prediction.json"
    page = json.loads(path.read_text())
    tags = [("on", "O"), ("Kowalska", "O"), ("number", "B-customer")]
    for text, true in tags:
        page["words"].append(
            page["words"][0] | {"text": text, "true": true, "predicted": "B-total"}
        )
    path.write_text(json.dumps(page))
    clean = cleaner(read_run(folder))
    assert clean("each on its own") == "each on its own"
    assert clean("to Kowalska") == f"to {NAME}"
    assert clean("invoice number") == f"invoice {NAME}"  # a field of the page it is


def test_what_others_wrote_into_a_result_is_left_out(folder):
    """Texts of an attack that is not fedpriv's own may quote words that no other file knows."""
    secret, number = "IBAN DE89 3704", {"value": 0.9, "interval": None, "n": 3, "control": 0.5}
    table = {"headings": ["who", secret], "rows": [[secret, "0.9 dB"]], "public": True}
    foreign = {
        "headline": f"read {secret}",
        "clause": f"read {secret}",
        "notes": [secret],
        "assumptions": [secret],
        "left_out": {secret: 2},
        "not_applicable": {secret: secret},
        "status": secret,
        "kind": secret,
        "verdict": secret,
        "numbers": {secret: number | {"unit": secret}},
        "primary": secret,
        "figures": [{"kind": "bars", "title": secret, "data": {"bars": {secret: {secret: 0.5}}}}],
        "tables": [table | {"headings": ["who", "PSNR"]}],
        "details": {"exact_match": secret},
        "threat_model": {},
    }
    rewrite(folder, RESULT, **foreign, public=False)
    (folder / "findings" / "closed_form").rename(folder / "findings" / "on our Yarrow data")
    assert secret in text_of(render(read_run(folder)))
    page = redacted(folder)
    assert secret not in page
    assert "Yarrow" not in page
    for kept in ("its main number is 0.9, against 0.5", "attack 1", "0.9 dB", "1 figure left out"):
        assert kept in page, kept
    rewrite(folder, RESULT.replace("closed_form", "on our Yarrow data"), verdict="leak")
    assert f"can read {secret}" in text_of(render(read_run(folder)))
    assert secret not in redacted(folder)


def test_a_result_that_cannot_be_read_quotes_nothing(folder):
    rewrite(folder, RESULT, numbers={WORDS[2]: {"value": WORDS[3]}})
    assert WORDS[2] in text_of(render(read_run(folder)))
    assert WORDS[2] not in redacted(folder)


def test_without_a_partition_no_type_can_be_told_from_a_name(folder):
    (folder / "partition.json").write_text("[]")
    rewrite(folder, "metrics.jsonl", **{f"f1/{PROVIDERS[0]}": 0.125})
    page = redacted(folder)
    assert PROVIDERS[0] not in page
    assert "0.500" in page


def test_what_single_providers_have_spent_is_left_out(folder):
    """It is as private as their data: whoever spent more was drawn more often, or stands out."""
    told = {"means": "by its own", "epsilon": {"0": 3.125, "1": 1.5}}
    view = {"pld": 8.0, "guarantee": True, "individual": told}
    private = {"mechanism": {"clip_norm": 1}, "unit": "provider", "delta": 1e-5}
    spent = {name: {"releases": 1} for name in told["epsilon"]}
    rewrite(folder, "ledger.json", **private, views={"global": view}, spent=spent)
    full, page = text_of(render(read_run(folder))), redacted(folder)
    assert "Each supplier's own ε" in full
    assert "3.13" in full
    assert "own ε" not in page
    assert "3.13" not in page
    assert "8.00" in page


def test_a_file_that_leads_elsewhere_is_not_read(folder, tmp_path):
    elsewhere = tmp_path / "elsewhere.json"
    (folder / "metrics.jsonl").rename(elsewhere)
    (folder / "metrics.jsonl").symlink_to(elsewhere)
    full = text_of(render(read_run(folder)))
    assert "metrics.jsonl is a symbolic link, which is not followed" in full
    assert "0.125" not in full  # which stands there
    assert "1 problem with the run's files, which the full report tells" in redacted(folder)


def test_names_that_fedpriv_uses_itself_break_nothing(folder):
    taken = ("clients", "seconds", "global", "views", "rounds", "name", "loss")
    rewrite(folder, "partition.json", test={name: ["d"] for name in taken})
    view = {"pld": 2.0, "guarantee": True}
    private = {"mechanism": {"clip_norm": 1}, "unit": "provider", "delta": 1e-5}
    rewrite(folder, "ledger.json", **private, views={"global": view})
    counts = {"sampled": 2, "answered": 2, "failed": 0, "missing": 0}
    rewrite(folder, "metrics.jsonl", clients=counts, seconds={"train": 1.0})
    page = redacted(folder)
    for kept in ("complete: 1 of 1 round", "2.00", "2 clients were asked and answered", "1.0 s"):
        assert kept in page, kept


def test_the_type_of_an_error_is_told_only_if_python_knows_it(folder):
    rewrite(folder, "failures.jsonl", reason="YarrowFuelsError: x")
    page = redacted(folder)
    assert "YarrowFuels" not in page
    assert "the reason is left out" in page


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("quickstart", True),
        ("closed_form", True),
        ("optimizer adamw, steps 20, lr 0.001", True),
        ("exposure fedavg", True),
        ("all-without", True),
        ("pilot_of_yarrow", False),
        ("Ørsted", False),
    ],
)
def test_a_name_stays_if_our_own_experiments_have_its_words(name, kept):
    assert public_name(name) == (name if kept else NAME)


def test_a_name_of_known_words_that_names_a_provider_is_left_out(folder):
    rewrite(folder, "partition.json", test={"Total Page": ["d"]})
    assert public_name("total_page", "row 1", cleaner(read_run(folder))) == "row 1"


def test_a_redacted_comparison_shows_numbers_and_our_classes_only(folder):
    def run(**data):
        return dataclasses.replace(read_run(folder), config={"data": data})

    one = run(
        leave_out=[PROVIDERS[0]], clients={PROVIDERS[1]: 3}, size=1, _target_="fedpriv.data.A"
    )
    two = run(
        leave_out=[PROVIDERS[1]], clients={PROVIDERS[1]: 4}, size=2, _target_="fedpriv.data.B"
    )
    assert len(differences([one, two])) == 4
    assert differences([one, two], redacted=True) == {
        "data.size": ["1", "2"],
        "data._target_": ["A", "B"],
    }
    two = run(size=2, _target_="yarrow_fuels.Reader")
    assert list(differences([one, two], redacted=True)) == ["data.size"]


@pytest.mark.parametrize("public", [True, False])
def test_no_place_of_a_run_shows_what_somebody_wrote(folder, public):
    """A name of a provider in any place, or any text in what others than fedpriv have written."""
    view = {"pld": 8.0, "guarantee": True, "note": "n", "doubts": ["d"], "reasons": {"0": "why"}}
    private = {"mechanism": {"clip_norm": 1, "asked_epsilon": 8.0, "asked_view": "global"}}
    told = {"unit": "provider", "delta": 1e-5, "meaning": "m", "uncovered": ["u"]}
    rewrite(folder, "ledger.json", views={"global": view}, **private, **told)
    plan = {"noise_multiplier": 1, "rounds": 2, "delta": 1e-5, "strategy": "fl_provider_dp"}
    views = {"global": {"pld": 3.0}, "server_plain": {"pld": 4.0}}
    (folder / "budget.json").write_text(json.dumps({**plan, "views": views, "unit": "provider"}))
    (folder / "retrained" / "branch Ulm").mkdir(parents=True)
    run = read_run(folder)
    (finding,) = run.findings
    result = dataclasses.replace(finding.result, public=public)
    run = dataclasses.replace(run, findings=[dataclasses.replace(finding, result=result)])

    def kept(changed):
        return repr(dataclasses.replace(redact(changed), folder=""))

    shown = places_that_show(run, kept, PROVIDERS[1] if public else SOMEBODY)
    # The page reads known keys of a ledger and of a plan, and fedpriv writes a ledger's sentences.
    ours = re.compile(r"(ledger|planned)\b.* \." if public else r"ledger\b|planned\b.* \.")
    assert [place for place in shown if not ours.match(place)] == []
