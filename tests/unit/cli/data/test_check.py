"""`fedpriv data check`: what it counts, what it draws, what it says of mistakes."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest
from bank import write_bank
from folder_pages import OURS, branches, picture, save
from form_folders import (
    wild_receipt,
    write,
    write_cord,
    write_docile,
    write_funsd,
    write_sroie,
    write_wildreceipt,
    write_xfund,
    xfund_form,
)
from PIL import Image

from fedpriv.cli import main
from fedpriv.cli.data import prospects
from fedpriv.cli.data.contact_sheet import CELL, draw, evenly
from fedpriv.cli.data.recognise import recognise
from fedpriv.cli.data.survey import as_table, survey
from fedpriv.config import attack as config_attack
from fedpriv.config import catalogue
from fedpriv.data.document import DataError, Document, DocumentSet, Entity, Question, Word
from fedpriv.data.readers.annotation import blank_page
from fedpriv.threat.runner import ThreatModel


@pytest.fixture
def check(monkeypatch, tmp_path, capsys):
    """Runs the command in an empty folder; returns its status, its output and its errors."""
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)

    def run(*arguments):
        status = main.main(["data", "check", *map(str, arguments)])
        return status, *capsys.readouterr()

    return run


@pytest.fixture
def receipts(tmp_path):
    """Three receipts of two companies, and one without an image."""
    root = tmp_path / "receipts"
    for stem in ("X1", "X2"):
        write_sroie(root, stem)
    keys = {"company": "ZED", "total": "9.00"}
    write_sroie(root, "X3", keys=keys, split="test")
    write_sroie(root, "X4")
    (root / "train" / "img" / "X4.jpg").unlink()
    return root


NOT_HELD_OUT = " (nothing held out: unseen=0.25 of 2 providers is none: take at least 0.5)"
WORKS_OF_THREE_RECEIPTS = [
    "good for (numbers are those with data.test.by=document data.test.fraction=0.2 "
    "data.test.unseen=0.25)",
    "models that tag words (layoutlmv3, layoutlm, bros, bert, roberta):",
    "3 pages with a field",
    "models that answer (vt5, donut, pix2struct, layoutlmv3 with model.task=answers):",
    "3 pages with a question",
    "strategies without noise (fedavg, fedsgd, centralised):",
    f"at most 2 clients, one supplier each at least{NOT_HELD_OUT}",
    "privacy of examples (feam_dp, fedavg_dp, centralised_dp, centralised_dp_sgd):",
    "3 pages trained on, privacy.examples=3 of a model that tags; privacy.examples=10 of one that "
    "answers",
    "privacy of suppliers (fl_provider_dp, fl_provider_dp_adam, fl_provider_dp_one_step, "
    "provider_bandmf, centralised_provider_dp):",
    "2 suppliers trained on, the smallest of 1 page: privacy.providers is the fewest that any "
    "client has",
    "privacy of clients (dp_fedavg):",
    "at most 2 clients, one supplier each at least",
    "Which suppliers were trained on? (server_membership, pmia, provider_lira, provider_rmia):",
    f"not enough: 0 suppliers and 0 others{NOT_HELD_OUT}: cannot tell: it takes 16 of each; "
    "0.3 to 0.5 minutes each, with a tiny model",
    "What stands on the pages of a client? (april, closed_form, dlg, gi_dqa, gi_dqa_tuned, idlg, "
    "inverting_gradients, random, tag, template_only, text):",
    f"2 clients{NOT_HELD_OUT}: only what is recovered to the last word or pixel: less takes 6; "
    "0.2 to 10 minutes each, with a tiny model",
    "Which value stood in a field that was removed? (field_candidates, field_search):",
    f"not enough: 3 documents and 0 others{NOT_HELD_OUT}: cannot tell: it takes 66 of each; "
    "0.6 minutes each, with a tiny model",
    "What stood in a field that was removed? (cdmi):",
    f"not enough: 3 documents and 0 others{NOT_HELD_OUT}: cannot tell: it takes 66 of each; "
    "5 minutes each, with a tiny model",
    "Which answers are given after their removal from the page? (memorisation, extraction):",
    f"not enough: 0 suppliers and 0 others{NOT_HELD_OUT}: cannot tell: it takes 223 of each; "
    "0.5 to 3 minutes each, with a tiny model",
    "How exposed are planted secrets? (audit, exposure):",
    "these bring their own suppliers (data.canaries)",
]


# ----------------------------------------------------------------------------------- the command


def test_the_table_of_a_folder(check, receipts):
    status, out, err = check(receipts)
    assert (status, err) == (0, "")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert lines == [
        "data SROIE",
        f"read by Sroie(root='{receipts}', boxes='auto', splits=('train', 'test'), "
        "rescans='keep', on_error='skip')",
        "documents 3",
        "splits train 2, test 1",
        "pages 100 × 200 pixels, median 100 × 200",
        "suppliers 2",
        "1 with 2 or more (2 documents in all)",
        "0 with 5 or more (0 documents in all)",
        "0 with 10 or more (0 documents in all)",
        "largest: ABCD 2, ZED 1",
        "words 9, in a document 3, median 3",
        "entities 5",
        "total 3",
        "company 2",
        "date 0",
        "address 0",
        "questions 10",
        "company 3",
        "date 2",
        "address 2",
        "total 3",
        "problems 1 skipped",
        f"{receipts}/train/img/X4.jpg: missing: X4 has no image",
        "a run refuses these; data.source.on_error=skip leaves them out",
        "0 documents without words",
        "0 documents without entities",
        "0 words whose box ends at the page's edge (perhaps clipped)",
        "5 questions whose answer is not on the page, by its letters and digits (date 2, "
        "address 2, company 1)",
        "remarks pages that are there twice:",
        "X1 = X2 = X3",
        *WORKS_OF_THREE_RECEIPTS,
        "The pages may carry names, addresses and other personal data: keep the sheet and this "
        "output as you keep the data.",
        "data-receipts/contact-sheet.png",
    ]


def test_json_holds_the_same_and_nothing_else(check, receipts, tmp_path):
    _, out, _ = check(receipts, "--json", "--out", tmp_path / "sheets")
    facts = json.loads(out)
    assert (facts["documents"], facts["splits"]) == (3, {"train": 2, "test": 1})
    assert facts["pages"] == {"width": [100, 100, 100], "height": [200, 200, 200]}
    assert facts["providers"]["count"] == 2
    assert facts["providers"]["of_at_least"]["2"] == {"providers": 1, "documents": 2}
    assert facts["entities"] == {"total": 3, "company": 2, "date": 0, "address": 0}
    assert facts["problems"]["skipped"] == 1
    assert facts["problems"]["answers_not_on_the_page"] == {"company": 1, "date": 2, "address": 2}
    assert "personal data" in facts["note"]
    assert facts["contact_sheet"] == str(tmp_path / "sheets" / "contact-sheet.png")
    sheet = tmp_path / "sheets" / "contact-sheet.png"
    assert [path.stat().st_mode & 0o777 for path in (sheet.parent, sheet)] == [0o700, 0o600]


def test_no_pages_no_sheet(check, receipts, tmp_path):
    _, out, _ = check(receipts, "--pages", "0")
    assert "contact-sheet" not in out
    assert list((tmp_path / "work").iterdir()) == []
    status, _, err = check(receipts, "--pages", "-1")
    assert status == 2
    assert "--pages -1: expected 0 to 100" in err


def test_a_page_that_cannot_be_decoded_is_counted_and_named(check, receipts):
    path = receipts / "train" / "img" / "X1.jpg"
    path.write_bytes(path.read_bytes()[:-150])
    status, out, _ = check(receipts, "--pages", "0")
    assert status == 0
    assert "2 skipped" in out  # X4 has no image
    assert (
        f"{path}: not an image that Pillow can read as PNG or JPEG: image file is truncated" in out
    )


SOURCE = "_target_: fedpriv.data.readers.sroie.Sroie\nroot: {root}\non_error: raise\n"


def indented(text):
    return "".join(f"  {line}\n" for line in text.splitlines())


@pytest.mark.parametrize(
    "text",
    [
        SOURCE,
        "_target_: fedpriv.federation.dataset.DocumentData\nsource:\n" + indented(SOURCE),
        "seed: 0\ndata:\n  source:\n" + indented(indented(SOURCE)),
    ],
)
def test_a_yaml_file_names_the_source_and_broken_files_are_skipped(check, receipts, tmp_path, text):
    write(tmp_path / "mine.yaml", text.format(root=receipts))
    status, out, err = check(tmp_path / "mine.yaml", "--pages", "1")
    assert (status, err) == (0, "")
    assert "documents  3\n" in out
    assert "1 skipped" in out
    assert out.endswith("data-mine/contact-sheet.png\n")


def test_a_choice_of_data_by_name(check, monkeypatch, receipts, tmp_path):
    monkeypatch.delenv("FEDPRIV_DATA", raising=False)
    status, _, err = check("sroie")
    assert status == 2
    assert err.startswith("sroie: 1 mistake")
    assert "data.source.root" in err
    assert "FEDPRIV_DATA" in err
    (tmp_path / "open").mkdir()
    receipts.rename(tmp_path / "open" / "sroie")
    monkeypatch.setenv("FEDPRIV_DATA", str(tmp_path))
    status, out, _ = check("sroie", "--pages", "1")
    assert status == 0
    assert out.endswith("data-sroie/contact-sheet.png\n")


def test_generated_invoices_are_of_no_people(check, tmp_path):
    source = "_target_: fedpriv.data.generated.invoices.Invoices\nproviders: 2\n"
    write(tmp_path / "few.yaml", f"{source}documents_per_provider: 3\n")
    status, out, _ = check(tmp_path / "few.yaml", "--pages", "2")
    assert status == 0
    assert "documents  6" in out
    assert "0 questions whose answer is not on the page" in out
    assert "personal data" not in out


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("sroi", "no folder, no data of that name; did you mean 'sroie'?"),
        ("gone.yaml", "no such file"),
        (
            ".",
            "list.yaml: no known layout. Looked for SROIE: train/ or test/",
        ),
        ("bare", "bare holds nothing: no known layout. Looked for SROIE: train/ or test/"),
        (
            "bad.yaml",
            "data.source.rot: fedpriv.data.readers.sroie.Sroie takes no 'rot'; did you mean",
        ),
        ("list.yaml", "list.yaml: holds no mapping `name: value`"),
        ("broken.yaml", "broken.yaml: 1 mistake"),
        ("empty.yaml", "there is no folder"),
    ],
)
def test_mistakes_are_said_with_status_2(check, given, says, tmp_path):
    work = tmp_path / "work"
    write(work / "bad.yaml", "_target_: fedpriv.data.readers.sroie.Sroie\nrot: x\n")
    write(work / "list.yaml", "- 1\n")
    write(work / "broken.yaml", "a: [\n")
    write(work / "empty.yaml", "_target_: fedpriv.data.readers.sroie.Sroie\nroot: gone\n")
    (work / "bare").mkdir()
    status, out, err = check(given)
    assert (status, out) == (2, "")
    assert says in err


def test_registering_the_command_imports_nothing_heavy():
    code = (
        "import sys, fedpriv.cli.data.check as i; "
        "print([m for m in ('torch', 'PIL', 'matplotlib', 'hydra', 'numpy') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_a_folder_that_lies_here_goes_before_a_choice_of_its_name(check, tmp_path):
    own = tmp_path / "work" / "invoices"
    save(picture(), own / "acme" / "1.png")
    write(own / "acme" / "1.json", OURS)
    status, out, _ = check("invoices", "--pages", "0")
    assert status == 0
    assert (
        "taken      the folder invoices that lies here; `fedpriv data check data=invoices`" in out
    )
    assert "documents  1\n" in out
    assert "from side files 1" in out
    _, out, _ = check("./invoices", "--pages", "0", "data.source.provider=file")
    assert "largest" not in out
    assert "nothing: each file is a provider by itself" in out
    _, out, _ = check("invoices", "--json", "--pages", "0")
    assert json.loads(out)["taken"].startswith("the folder invoices")


def test_the_choice_can_be_named_where_a_folder_has_its_name(check, tmp_path):
    (tmp_path / "work" / "slips").mkdir()
    status, out, _ = check(
        "data=slips",
        "--pages",
        "0",
        "data.source.providers=2",
        "data.source.documents_per_provider=2",
    )
    assert status == 0
    assert "read by    Slips(" in out
    assert "documents  4\n" in out


def test_settings_belong_to_a_folder_or_a_choice(check, receipts):
    status, _, err = check(receipts, "data.source.dpi=72")
    assert status == 2
    assert "the folder is read by Sroie" in err


def test_what_a_folder_is_enough_for(check, tmp_path):
    for company in range(10):
        for number in range(5):
            save(
                picture((f"{company} {number}",)),
                tmp_path / "few" / f"firm {company}" / f"{number}.png",
            )
    _, out, _ = check(tmp_path / "few", "--json", "--pages", "0", "data.source.words=none")
    works = {one["what"].partition(" (")[0]: one for one in json.loads(out)["works"]}
    assert not works["models that tag words"]["works"]
    assert works["models that answer"]["numbers"] == "50 pages with a question"
    assert not works["Which value stood in a field that was removed?"]["works"]
    # A quarter of ten providers is held out, so eight are trained on.
    assert "at most 8 clients" in works["strategies without noise"]["numbers"]
    membership = works["Which suppliers were trained on?"]
    assert membership["numbers"].endswith(
        "and 2 others: cannot tell: it takes 16 of each; 0.3 to 0.5 minutes each, with a tiny model"
    )


def test_every_strategy_and_attack_is_named():
    names = {
        name
        for one in prospects.prospects(DocumentSet("one", (page("a", "p"),), ()))
        for name in re.search(r"\((.*)\)", one.what)[1].split(", ")
    }
    groups = catalogue.groups()
    assert names >= {*groups["strategy"], *groups["attack"]}


def next_of(check, *arguments):
    status, out, err = check(*arguments, "--json", "--pages", "0")
    assert status == 0, err
    return json.loads(out)["next"]


def test_the_lines_to_type_next_have_the_settings_of_the_check(check, tmp_path):
    branches(tmp_path / "work" / "scans")
    own = "data.source.provider=company"
    lines = [
        f"fedpriv run kie_layoutlmv3 data=folder data.source.root=./scans {own}",
        # An assessment holds out half of the 13 companies, and half of the receipts of the others.
        f"fedpriv assess assessed_folder data.source.root=./scans {own} data.partition.clients=5",
    ]
    assert next_of(check, "./scans", own) == lines
    _, out, _ = check("./scans", "--pages", "1", own)
    assert out.endswith("\n".join(["Next:", *lines, "data-scans/contact-sheet.png\n"]))
    assert "clients" not in out.partition("good for")[0]
    assert next_of(check, "./scans", own, "data.partition.clients=2") == [
        f"{line.partition(' data.partition')[0]} data.partition.clients=2" for line in lines
    ]
    # Of a choice, with what it was given; a run refuses what the check has skipped.
    (tmp_path / "work" / "scans" / "north" / "empty.png").write_bytes(b"")
    named = next_of(check, "data=folder", "data.source.root=scans", own)
    assert named == [
        f"fedpriv run kie_layoutlmv3 data=folder data.source.root=scans {own} "
        "data.source.on_error=skip",
        f"fedpriv assess assessed_folder data.source.root=scans {own} "
        "data.source.on_error=skip data.partition.clients=5",
    ]
    assert next_of(check, *named[0].split()[3:]) == named  # none is there twice
    assert next_of(check, "slips", "data.source.providers=4") == [
        "fedpriv run kie_layoutlmv3 data=slips data.source.providers=4 data.partition.clients=3"
    ]


def test_no_line_is_printed_that_would_be_refused(check, receipts, tmp_path):
    assert next_of(check, receipts) == []  # its layout was recognised, with settings of its own
    assert next_of(check, "slips", "data.source.providers=2") == []  # a quarter of 2 is nobody
    save(picture(), tmp_path / "one" / "acme" / "1.png")
    assert next_of(check, tmp_path / "one", "data.source.words=none") == [
        f"fedpriv run docvqa_vt5 data=folder data.source.root={tmp_path}/one "
        "data.source.words=none data.partition.clients=1"
    ]


def test_the_clients_are_the_branches_and_providers_at_several_are_named(check, tmp_path):
    branches(tmp_path / "scans")
    _, out, _ = check(tmp_path / "scans", "--pages", "0", "data.source.client=folder")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    start = lines.index("clients 6, each with the documents that name it")
    assert lines[start + 1 : start + 3] == [
        "1 supplier at several of them, which mechanisms that protect suppliers refuse "
        "(fl_provider_dp):",
        "Firm A: Zürich West, east (old)",
    ]
    # It is not praised further down as what the data are good for.
    refused = next(line for line in lines if "strategy=dp_fedavg" in line)
    assert refused.startswith("not enough: 1 supplier at several clients, which is refused")


@pytest.mark.parametrize(("providers", "enough"), [(20, False), (70, True)])
def test_membership_needs_as_many_providers_as_its_verdict(providers, enough):
    documents = [page(f"d{p} {n}", f"p{p}", questions=(ASKED,)) for p in range(providers)
                 for n in range(10)]  # fmt: skip
    works = prospects.prospects(DocumentSet("mine", tuple(documents), ()))
    (membership,) = (one for one in works if one.what.startswith("Which suppliers"))
    assert membership.works is enough
    # As reports say it of too few: fedpriv.threat.scoring.providers.
    assert ("less takes 16 of each" in membership.numbers) is not enough


def test_attacks_are_listed_under_what_they_claim():
    for claim, names in prospects.ATTACKS.items():
        for name in names:
            attack = config_attack.parse([f"attack={name}"]).attack
            claims = ThreatModel.of(attack).claims
            assert claim in claims or name == "extraction"


# ------------------------------------------------------------------------------------ the layouts


@pytest.mark.parametrize(
    ("write_folder", "reader"),
    [
        (write_sroie, "Sroie(root={root!r}, boxes='auto'"),
        (write_funsd, "Funsd(root={root!r}, splits"),
        (write_cord, "Cord(root={root!r}, images='required'"),
        (lambda root: write_cord(root, image=None), "Cord(root={root!r}, images='blank'"),
        (
            lambda root: write_xfund(root, [xfund_form()], language="de"),
            "Xfund(root={root!r}, language='de'",
        ),
        (lambda root: write_wildreceipt(root, [wild_receipt()]), "Wildreceipt(root={root!r}, "),
        (write_docile, "Docile(root={root!r}, pages='render', dpi=72, splits=('train',)"),
        (
            lambda root: write_docile(root, split="dev", pages=0),
            "Docile(root={root!r}, pages='blank', dpi=72, splits=('dev',)",
        ),
        (
            lambda root: write(root / "val" / "val_v1.0.json", {"data": []}),
            "DocVqa(root={root!r}, splits=('val',)",
        ),
        (lambda root: write(root / "imdb" / "imdb_train.parquet", b""), "PflDocvqa(root={root!r}"),
        (lambda root: save(picture(), root / "a" / "1.png"), "Folder(root={root!r}"),
        (lambda root: write(root / "labels.csv", "file"), "Folder(root={root!r}"),
    ],
)
def test_layouts_are_told_apart(tmp_path, write_folder, reader):
    write_folder(tmp_path)
    found = repr(recognise(tmp_path))
    assert found.startswith(reader.format(root=str(tmp_path)))
    assert "on_error='skip'" in found


# ------------------------------------------------------------------------------------- the counts


def page(name, provider, words=(), entities=(), questions=(), size=(100, 200)):
    words = tuple(Word(text, box, n) for n, (text, box) in enumerate(words))
    return Document(name, provider, blank_page(size), size, words, tuple(entities), questions)


ASKED = Question("provider", "Who?", ("p",))
MIDDLE = (10.0, 10.0, 20.0, 20.0)


def test_the_counts_of_hand_made_documents():
    words = [("RM", MIDDLE), ("1,000.50", MIDDLE), ("left", (0.0, 10.0, 9.0, 20.0))]
    words += [("foot", (5.0, 190.0, 9.0, 200.0))]
    asked = (
        Question("total", "?", ("RM1000.50",)),
        Question("total", "?", ("7", "rm 1,000.50")),
        Question("date", "?", ("2018",)),
        Question("sign", "?", ("-",)),
    )
    documents = [page("d0", "p0", words, [Entity("total", (0, 1))], asked)]
    documents += [page(f"d{n}", "p0") for n in range(1, 5)]
    documents += [page("d5", "p1", size=(300, 50)), page("d6", "p1"), page("d7", "p2")]
    skipped = tuple(DataError(f"f{n}", "why") for n in range(7))
    facts = survey(DocumentSet("mine", tuple(documents), ("date", "total"), skipped))
    assert facts["pages"] == {"width": [100, 100, 300], "height": [50, 200, 200]}
    assert facts["providers"] == {
        "count": 3,
        "of_at_least": {
            "2": {"providers": 2, "documents": 7},
            "5": {"providers": 1, "documents": 5},
            "10": {"providers": 0, "documents": 0},
        },
        "largest": [["p0", 5], ["p1", 2], ["p2", 1]],
    }
    assert facts["words"] == {"count": 4, "per_document": [0, 0, 4]}
    assert facts["entities"] == {"total": 1, "date": 0}
    assert facts["questions"] == {"total": 2, "date": 1, "sign": 1}
    assert facts["problems"] == {
        "skipped": 7,
        "reasons": [f"f{n}: why" for n in range(7)],
        "documents_without_words": 7,
        "documents_without_entities": 7,
        "words_at_the_edge": 2,
        "answers_not_on_the_page": {"date": 1, "sign": 1},
    }
    assert "and" not in as_table(facts).partition("7 skipped")[2].partition("7 documents")[0]


def test_many_skipped_files_are_all_in_json_and_fifty_in_the_table():
    skipped = tuple(DataError(f"f{n}", "why") for n in range(60))
    facts = survey(DocumentSet("mine", (page("a", "p"),), (), skipped))
    assert len(facts["problems"]["reasons"]) == 60
    table = as_table(facts)
    assert ("f49: why" in table, "f50: why" in table) == (True, False)
    assert "and 10 more; --json lists all" in table
    assert "a run refuses these" not in table  # the source may skip on purpose


def test_nothing_at_all_can_be_counted():
    facts = survey(DocumentSet("none", (), (), ()))
    assert facts["documents"] == 0
    assert "suppliers  0\n" in as_table(facts)


def test_without_labels_no_entities_are_missed():
    found = survey(DocumentSet("mine", (page("a", "p"),), ()))
    assert found["problems"]["documents_without_entities"] == 0


# -------------------------------------------------------------------------------------- the sheet


def test_pages_are_chosen_evenly():
    assert evenly(5, 12) == [0, 1, 2, 3, 4]
    assert evenly(100, 4) == [0, 33, 66, 99]
    assert evenly(7, 1) == [0]


def test_the_sheet_shows_the_boxes_where_they_are():
    words = [("a", (20.0, 100.0, 80.0, 120.0)), ("b", (20.0, 40.0, 80.0, 60.0))]
    document = page("d", "p", words, [Entity("total", (0,))])
    sheet = draw([document], ("date", "total"), 12)
    pixels = np.asarray(sheet)
    scale = min(CELL[0] / 100, CELL[1] / 200)
    blue = (pixels == (31, 119, 180)).all(axis=2)  # tab10's first colour: "date" is not shown
    page_rows, page_columns = np.nonzero(blue[: CELL[1]])
    margin = 14
    box = [page_columns.min(), page_rows.min(), page_columns.max(), page_rows.max()]
    expected = [margin + scale * side for side in (20, 100, 80, 120)]
    assert box == pytest.approx(expected, abs=2)
    grey = (pixels == (176, 176, 176)).all(axis=2)
    assert grey[margin + round(40 * scale)].sum() > 50 * scale


def test_twelve_pages_make_three_rows_of_four():
    documents = [page(f"d{n}", "p") for n in range(30)]
    image = draw(documents, (), 12)
    assert image.width == pytest.approx(4 * CELL[0], rel=0.1)
    assert image.height == pytest.approx(3 * CELL[1], rel=0.15)
    assert isinstance(image, Image.Image)


def test_many_labels_have_colours_of_their_own_and_a_legend_in_rows():
    labels = tuple(f"label_number_{n}" for n in range(55))
    entities = [Entity(label, (n,)) for n, label in enumerate(labels)]
    document = page("d" * 300, "p", [("w", MIDDLE)] * 55, entities)
    few = draw([document], labels[:1], 1)
    legend = np.asarray(few)[CELL[1] + 40 :].reshape(-1, 3)
    colours = {tuple(map(int, pixel)) for pixel in np.unique(legend, axis=0)}
    assert len([c for c in colours if max(c) - min(c) > 50]) == 55


def test_a_small_federation_is_told_what_its_size_forbids(check, tmp_path):
    """A bank with 40 receipts of 13 suppliers in six branches."""
    root = write_bank(tmp_path / "scans")
    settings = ("data.source.client=folder", "data.source.provider=company")
    words = "data.source.words=none"
    _, out, _ = check(root, "--json", "--pages", "0", *settings, words)
    facts = json.loads(out)
    assert (facts["documents"], facts["clients"]["count"]) == (40, 6)
    works = {one["what"].partition(" (")[0]: one for one in facts["works"]}
    told = works["Which suppliers were trained on?"]["numbers"]
    assert told.endswith(
        "cannot tell: it takes 16 of each; 0.3 to 0.5 minutes each, with a tiny model"
    )
    assert works["strategies without noise"]["numbers"].startswith("6 clients, as the data name")
    assert any(line.startswith("fedpriv assess assessed_folder") for line in facts["next"])
