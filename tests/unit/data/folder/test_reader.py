"""A folder of pictures and PDFs becomes documents, read when somebody looks at them."""

import json
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest
from folder_pages import LINES, OURS, pdf, picture, save
from PIL import Image

from fedpriv.cli.main import main
from fedpriv.data.digests import document_digest
from fedpriv.data.document import DataError, DataErrors
from fedpriv.data.folder import page, page_file, tesseract
from fedpriv.data.folder.progress import Count
from fedpriv.data.folder.reader import Folder
from fedpriv.data.spelling import like_spellings

HAS_TESSERACT = pytest.mark.skipif(not shutil.which("tesseract"), reason="needs Tesseract")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDPRIV_CACHE", str(tmp_path / "cache"))
    page._words.cache_clear()
    page._pixels.cache_clear()


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "scans"
    folder.mkdir()
    return folder


def write_pdf(path, *arguments, **more):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pdf(*arguments, **more))


def write_table(root, *rows):
    (root / "labels.csv").write_text("\n".join(rows) + "\n")


def texts(document):
    return [word.text for word in document.words]


# ------------------------------------------------------------------------------------- the pages


def test_every_kind_of_file_becomes_pages(root):
    save(picture(), root / "b" / "1.png")
    save(picture(), root / "a" / "2.jpg", quality=95)
    save(picture(), root / "a" / "3.tif", save_all=True, append_images=[picture(("Second",))] * 2)
    save(picture(), root / "a" / "4.WEBP")
    write_pdf(root / "5.pdf", (LINES, ("Another",)))
    (root / "notes.txt").write_text("no page")
    (root / ".hidden.png").write_bytes(b"")
    found = Folder(root, words="none", dpi=144).load()
    assert [document.id for document in found.documents] == [
        "5.pdf", "5.pdf/2", "a/2.jpg", "a/3.tif", "a/3.tif/2", "a/3.tif/3", "a/4.WEBP", "b/1.png",
    ]  # fmt: skip
    assert [document.provider for document in found.documents] == ["5.pdf"] * 2 + ["a"] * 5 + ["b"]
    assert [d.part_of for d in found.documents] == [
        *["5.pdf"] * 2, "", *["a/3.tif"] * 3, "", "",
    ]  # fmt: skip
    for document in found.documents:
        assert document.size == ((600, 400) if "pdf" in document.id else (300, 200))
        assert document.image().size == document.size
        assert document.pixels().std() > 0
        assert document.words == document.entities == ()
    assert found.remarks["files that are not read"] == ("notes.txt",)


def test_files_that_are_not_read_are_named_before_a_run(root, capsys):
    save(picture(), root / "1.png")
    for name in ("Labels.csv.bak", "labels.xlsx", "ground_truth.txt"):
        (root / name).write_text("file,provider,total")
    Folder(root, words="none").load()
    said = capsys.readouterr().err
    assert f"files that are not read in {root}:" in said
    assert all(name in said for name in ("Labels.csv.bak", "labels.xlsx", "ground_truth.txt"))


@pytest.mark.parametrize("thousandths", [False, True])
def test_boxes_that_miss_the_ink_are_refused_if_they_meet_it_in_thousandths(root, thousandths):
    size = (827, 1100)
    for number in range(3):
        page = picture(("ACME Ltd", "", "", "Total 12.50", "", "", "Bank 4711"), size)
        save(page, root / f"{number}.png")
        places = [(20, 20, 140, 50), (20, 140, 160, 170), (20, 260, 150, 290)]
        boxes = [
            [at * 1000 / side for at, side in zip(box, (*size, *size), strict=True)]
            if thousandths
            else list(box)
            for box in places
        ]
        words = [{"text": "word", "box": box} for box in boxes]
        (root / f"{number}.json").write_text(json.dumps({"words": words}))
    if thousandths:
        with pytest.raises(DataError, match=r"0\.json: as pixels its boxes miss .* \[1000, 1000\]"):
            Folder(root).load()
    else:
        assert len(Folder(root).load().documents) == 3


def test_the_text_layer_of_a_pdf_stands_where_it_is_drawn(root):
    write_pdf(root / "up.pdf")
    write_pdf(root / "turned.pdf", rotate=90)
    up, turned = reversed(Folder(root, dpi=144).load().documents)
    assert texts(up) == ["ACME", "Ltd", "Date", "03/02/2024", "Total", "12.50"]
    assert [word.segment for word in up.words] == [0, 0, 1, 1, 2, 2]
    assert sorted(texts(turned)) == sorted(texts(up))
    assert (up.size, turned.size) == ((600, 400), (400, 600))
    for document in (up, turned):
        pixels = document.pixels().min(axis=2)
        inside = 0
        for word in document.words:
            left, top, right, bottom = (round(side) for side in word.box)
            ink = (pixels[top : bottom + 1, left : right + 1] < 128).sum()
            assert ink > 20
            inside += ink
        assert inside > 0.95 * (pixels < 128).sum()
    left, top, _, bottom = up.words[0].box
    assert (left, bottom) == pytest.approx((40, 80), abs=3)
    assert 14 < bottom - top < 26  # capitals of 12 points, at two pixels each


def test_a_photograph_is_turned_and_what_is_transparent_is_white(root):
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was held upright
    save(picture(), root / "a" / "turned.jpg", exif=exif)
    save(Image.new("RGBA", (30, 20), (0, 0, 0, 0)), root / "a" / "clear.png")
    clear, turned = Folder(root, words="none").load().documents
    assert turned.size == turned.image().size == (200, 300)
    assert clear.pixels().min() == 255


def test_words_come_from_the_side_file_whatever_its_name(root):
    for name in ("x.json", "y.png.json", "z.xml"):
        save(picture(), root / f"{name[0]}.png")
        (root / name).write_text(json.dumps(OURS))
    found = Folder(root).load()
    assert [texts(document) for document in found.documents] == [["ACME", "Ltd", "12.50"]] * 3
    assert {document.page.origin() for document in found.documents} == {"side"}


def test_the_order_does_not_depend_on_the_file_system(root, monkeypatch):
    for name in ("b/1.png", "a/10.png", "a/2.png", "a.png", "a/c/1.png"):
        save(picture(), root / name)
    expected = [document.id for document in Folder(root, words="none").load().documents]
    walk = os.walk
    monkeypatch.setattr(
        os,
        "walk",
        lambda top: (row for row in reversed([(a, b, c[::-1]) for a, b, c in walk(top)])),
    )
    assert [document.id for document in Folder(root, words="none").load().documents] == expected


def test_pages_and_words_are_read_when_they_are_looked_at(root, monkeypatch):
    for number in range(5):
        save(picture(), root / "a" / f"{number}.png")
        (root / "a" / f"{number}.json").write_text(json.dumps(OURS))
    Folder(root).load()
    opened = []
    monkeypatch.setattr(page_file.pictures, "draw", lambda *a: opened.append(a))
    monkeypatch.setattr(page_file.pictures, "page_sizes", lambda *a: opened.append(a))
    monkeypatch.setattr("fedpriv.data.folder.words.read_side_file", lambda *a: opened.append(a))
    documents = Folder(root).load().documents
    assert len(pickle.dumps(documents[0])) < 2000
    assert pickle.loads(pickle.dumps(documents[0])) == documents[0]  # noqa: S301 - our own bytes
    assert [texts(document) for document in documents] == [["ACME", "Ltd", "12.50"]] * 5
    assert opened == []


def test_a_document_is_the_same_wherever_the_folder_lies(root, tmp_path):
    save(picture(), root / "a.png")
    (root / "a.json").write_text(json.dumps(OURS))
    (before,) = Folder(root).load().documents
    digest = document_digest(before)
    shutil.copytree(root, tmp_path / "copy")
    (copy,) = Folder(tmp_path / "copy").load().documents
    assert document_digest(copy) == digest
    other = {**OURS, "words": [{**word, "text": "other"} for word in OURS["words"]]}
    (tmp_path / "copy" / "a.json").write_text(json.dumps(other))
    (changed,) = Folder(tmp_path / "copy").load().documents
    assert document_digest(changed) != digest


def test_a_file_that_changes_afterwards_is_noticed(root):
    save(picture(), root / "a.png")
    (document,) = Folder(root, words="none").load().documents
    save(picture(size=(310, 200)), root / "a.png")
    with pytest.raises(DataError, match="has changed since the folder was read"):
        document.image()


# ------------------------------------------------------------------------------------ the labels


def test_fields_become_entities_and_questions(root):
    write_pdf(root / "a.pdf", (("Cover",), LINES))
    write_pdf(root / "b.pdf")
    write_table(
        root,
        "file,provider,split,company,date,total",
        "a.pdf,ACME,train,Acme Ltd.,3 Feb 2024,USD 12.5",
        "b.pdf,ACME,test,Globex,2024-02-03,",
    )
    found = Folder(root).load()
    cover, page_2, other = found.documents
    assert found.labels == ("company", "date", "total")
    assert cover.entities == ()
    spelled = {e.label: [page_2.words[w].text for w in e.words] for e in page_2.entities}
    assert spelled == {"company": ["ACME", "Ltd"], "date": ["03/02/2024"], "total": ["12.50"]}
    answers = {question.key: question.answers for question in page_2.questions}
    assert answers["date"] == ("3 Feb 2024", "03/02/2024")
    assert answers["provider"] == ("ACME",)
    assert [entity.label for entity in other.entities] == ["date"]
    assert [d.split for d in found.documents] == ["train", "train", "test"]
    assert found.remarks["fields not found on their page"] == (
        "company: 1 of 2 files",
        "b.pdf: company 'Globex'",
    )


def test_questions_stand_on_the_page_of_their_answer(root):
    write_pdf(root / "a.pdf", (("Cover",), LINES))
    write_table(root, "file,question,answer", "a.pdf,How much?,12.50", "a.pdf,Why?,unknown")
    cover, page_2 = Folder(root).load().documents
    assert [(q.text, q.answers) for q in cover.questions] == [("Why?", ("unknown",))]
    assert [(q.text, q.answers) for q in page_2.questions] == [("How much?", ("12.50",))]


@pytest.mark.parametrize(
    ("setting", "owners"),
    [
        ("auto", ["P", "Q"]),
        ("folder", ["x", "b.pdf"]),
        ("file", ["x/a.pdf", "b.pdf"]),
        ("company", ["C", "D"]),
    ],
)
def test_who_the_provider_is(root, setting, owners):
    write_pdf(root / "x" / "a.pdf")
    write_pdf(root / "b.pdf")
    write_table(root, "file,provider,company", "x/a.pdf,P,C", "b.pdf,Q,D")
    found = Folder(root, provider=setting).load()
    by_file = {document.id: document.provider for document in found.documents}
    assert [by_file["x/a.pdf"], by_file["b.pdf"]] == owners


def read_auto(root, header, *rows, **settings):
    """The providers in the order of the rows, and what told them; `root` is an empty folder."""
    names = [row.partition(",")[0] for row in rows]
    for name in names:
        save(picture(), root / name)
    write_table(root, header, *rows)
    found = Folder(root, words="none", **settings).load()
    by_file = {document.id: document.provider for document in found.documents}
    return [by_file[name] for name in names], found.remarks["providers are told by"][0]


@pytest.mark.parametrize("header", ["file,total,Company", "file,vendor,supplier"])
def test_a_column_with_a_usual_name_tells_the_provider(root, header):
    column = "Company" if "Company" in header else "vendor"
    at = ("{0},1,{1}" if column == "Company" else "{0},{1},1").format
    rows = (at("a.png", "P"), at("b.png", "P"), at("c.png", "Q"))
    guessed = f"the column {column} of labels.csv, guessed by its name"
    assert read_auto(root, header, *rows) == (["P", "P", "Q"], guessed)
    owners, told = read_auto(root, header, *rows, provider=column)
    assert (owners, told) == (["P", "P", "Q"], f"the column {column} of labels.csv")


@pytest.mark.parametrize(
    ("rows", "owners"),
    [
        (("x/a.png,P", "x/b.png,P", "y/c.png,Q"), ["P", "P", "Q"]),  # as the subfolders have it
        (("x/a.png,P", "x/b.png,Q"), ["P", "Q"]),  # one subfolder tells nobody apart
        (("x/a.png,P", "x/b.png,Q", "y/c.png,P"), None),
        (("x/a.png,P", "x/b.png,Q", "y/c.png,R"), None),
        (("x/a.png,P", "y/b.png,P"), None),
        (("x/a.png,P", "y/b.png,Q", "c.png,P"), None),
        (("Zürich West/a.png,P", "Bern (neu)/b.png,"), None),
    ],
)
def test_a_column_and_subfolders_that_disagree_are_not_guessed_between(root, rows, owners):
    if owners:
        assert read_auto(root, "file,company", *rows)[0] == owners
        return
    ways = (
        "the column company of labels.csv or by the subfolder, and they differ: say "
        "data.source.provider=company or data.source.provider=folder; data.source.client=folder if"
    )
    with pytest.raises(DataError, match=re.escape(ways)):
        read_auto(root, "file,company", *rows)
    assert read_auto(root, "file,company", *rows, provider="folder")


def test_a_column_named_provider_and_subfolders_that_are_clients_leave_nothing_to_guess(root):
    rows = ("x/a.png,P,B", "x/b.png,Q,B", "y/c.png,P,C")
    assert read_auto(root, "file,provider,company", *rows)[0] == ["P", "Q", "P"]
    guessed = "the column company of labels.csv, guessed by its name"
    told = read_auto(root, "file,company,branch", *rows, client="folder")
    assert told == (["P", "Q", "P"], guessed)
    # A client is no provider.
    assert read_auto(root, "file,company,branch", *rows, client="company")[0] == ["x", "x", "y"]


def test_an_empty_cell_of_a_guessed_column_names_the_way_on(root):
    with pytest.raises(
        DataErrors, match=r"empty for b\.png: every file needs a provider; data\.sou"
    ):
        read_auto(root, "file,company", "a.png,P", "b.png,")


@pytest.mark.parametrize("setting", ["folder", "branch"])
def test_who_the_client_is(root, setting):
    for name in ("x/a.png", "x/b.png", "y/c.png"):
        save(picture(), root / name)
    write_table(
        root, "file,provider,branch,total", "x/a.png,P,x,1.00", "x/b.png,Q,x,", "y/c.png,P,y,"
    )
    found = Folder(root, client=setting, words="none").load()
    assert [(d.client, d.provider) for d in found.documents] == [("x", "P"), ("x", "Q"), ("y", "P")]
    assert found.labels == (("total",) if setting == "branch" else ("branch", "total"))
    assert found.remarks["files of each client"] == ("x: 2", "y: 1")
    assert {d.client for d in Folder(root, words="none").load().documents} == {""}


def test_a_file_without_a_client_is_a_problem(root):
    for name in ("a.png", "x/b.png"):
        save(picture(), root / name)
    write_table(root, "file,provider,branch", "a.png,P,", "x/b.png,P,x")
    says = {
        "folder": "a.png: it lies in no subfolder, and the subfolder is the client",
        "branch": "line 2: the column branch is empty for a.png: every file needs a client",
    }
    for setting, why in says.items():
        with pytest.raises(DataErrors) as caught:
            Folder(root, client=setting, words="none").load()
        assert [str(error).endswith(why) for error in caught.value.errors] == [True]
    for wrong in ("gone", "provider"):
        with pytest.raises(DataError, match=r"data\.source\.client: there is no such column"):
            Folder(root, client=wrong, words="none").load()


def test_like_spellings_of_providers_are_told(root, capsys):
    for number, name in enumerate(("ACME Ltd", "ACME Ltd", "Acme Ltd.", "Shop 1", "Shop 2")):
        save(picture(), root / name / f"{number}.png")
    found = Folder(root, words="none").load()
    pair = "'ACME Ltd' (2) and 'Acme Ltd.' (1)"
    assert found.remarks["providers that look alike"] == (pair,)
    assert pair in capsys.readouterr().err


def test_spellings_of_many_names_are_compared():
    names = {f"Company {'abcdefghij'[n % 10] * 3}{n}": 1 for n in range(30_000)}
    assert like_spellings({**names, "Zebra Import": 3, "Zebra Imports": 5}) == [
        ("Zebra Imports", "Zebra Import")
    ]


# ----------------------------------------------------------------------------------- the mistakes


@pytest.fixture
def bad(root, tmp_path):
    """A sound page among everything that can be wrong with others."""
    write_pdf(root / "good.pdf")
    (root / "broken.pdf").write_bytes(pdf()[:200])
    write_pdf(root / "locked.pdf", encrypted=True)
    (root / "empty.png").write_bytes(b"")
    (root / "empty.pdf").write_bytes(b"")
    (root / "cut.jpg").write_bytes(b"\xff\xd8\xff\xe0 cut")
    save(Image.effect_noise((300, 200), 50), root / "half.png")
    (root / "half.png").write_bytes((root / "half.png").read_bytes()[:-2000])
    save(picture(), root / "wide.png")
    words = [{"text": "far", "box": [0, 0, 900, 10]}]
    (root / "wide.json").write_text(json.dumps({"words": words}))
    save(picture(), root / "two.png")
    (root / "two.json").write_text(json.dumps(OURS))
    (root / "two.xml").write_text("<alto/>")
    write_pdf(root / "unlisted.pdf")
    save(picture(), tmp_path / "outside" / "secret.png")
    (root / "link.png").symlink_to(tmp_path / "outside" / "secret.png")
    names = ["good.pdf", "broken.pdf", "locked.pdf", "empty.png", "empty.pdf", "cut.jpg",
             "half.png", "wide.png", "two.png", "gone.png", "good.pdf"]  # fmt: skip
    write_table(root, "file,total", *(f"{name},12.50" for name in names))
    return root


SAYS = {
    "link.png": "a link that leads out",
    "two.png": "two files may hold its words",
    "labels.csv, line 11": "there is no page 'gone.png'",
    "labels.csv, line 12": "good.pdf stands in line 2 already",
    "broken.pdf": "not a PDF that pdfium can read",
    "locked.pdf": "an encrypted PDF: save a copy without its password",
    "empty.png": "it is empty",
    "empty.pdf": "not a PDF: the file is empty",
    "cut.jpg": "not a picture that Pillow can read",
    "half.png": "not a picture that Pillow can read: image file is truncated",
    "wide.json": "does not fit the page of 300 × 200",
    "unlisted.pdf": "labels.csv does not name it",
}


def test_everything_that_is_wrong_is_told_at_once(bad):
    with pytest.raises(DataErrors) as caught:
        Folder(bad).load()
    lines = str(caught.value).splitlines()
    for name, why in SAYS.items():
        assert any(f"{bad / name}: " in line and why in line for line in lines), (name, lines)
    assert len(caught.value.errors) == len(SAYS)


def test_the_rest_is_read_and_what_is_left_out_is_counted(bad):
    found = Folder(bad, on_error="skip").load()
    assert [document.id for document in found.documents] == ["good.pdf"]
    assert len(found.skipped) == len(SAYS)


def test_the_folder_may_be_named_from_where_one_stands(bad, monkeypatch):
    monkeypatch.chdir(bad.parent)
    found = Folder(bad.name, on_error="skip").load()
    assert [document.id for document in found.documents] == ["good.pdf"]
    monkeypatch.chdir("/")  # pages are found from elsewhere, too
    assert found.documents[0].image().size == found.documents[0].size


def test_what_leads_out_of_the_folder_is_not_opened(root, tmp_path, monkeypatch):
    save(picture(), tmp_path / "outside" / "secret.png")
    (tmp_path / "outside" / "words.json").write_text(json.dumps(OURS))
    (root / "linked").symlink_to(tmp_path / "outside")
    save(picture(), root / "a.png")
    (root / "a.json").symlink_to(tmp_path / "outside" / "words.json")
    (root / "labels.csv").symlink_to(tmp_path / "outside" / "words.json")
    with pytest.raises(DataError, match="leads out"):
        Folder(root).load()
    (root / "labels.csv").unlink()
    with pytest.raises(DataErrors, match=r"a\.json: a link that leads out"):
        Folder(root).load()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({}, "no pages: expected files .png"),
        ({"dpi": 5}, "dpi=5: expected 36 to 600"),
        ({"words": "magic"}, "expected 'auto', 'ocr' or 'none'"),
        ({"provider": "vendor"}, "no pages"),
    ],
)
def test_settings_that_cannot_be(root, settings, says):
    with pytest.raises(ValueError, match=says):
        Folder(root, **settings).load()


def test_a_column_that_is_not_there(root):
    write_pdf(root / "a.pdf")
    with pytest.raises(DataError, match=r"data\.source\.provider: .* 'vendor'; no table"):
        Folder(root, provider="vendor").load()
    write_table(root, "file,total", "a.pdf,1.00")
    with pytest.raises(DataError, match=r"data\.source\.fields: .* 'date'; labels.csv has file"):
        Folder(root, fields=("date",)).load()


def test_a_missing_folder():
    with pytest.raises(DataError, match="there is no folder"):
        Folder("gone").load()


# ---------------------------------------------------------------------------------------- the OCR


def test_without_tesseract_the_pages_that_need_it_are_named(root, monkeypatch):
    save(picture(), root / "a.png")
    write_pdf(root / "b.pdf")
    monkeypatch.setenv("PATH", "")
    tesseract.version.cache_clear()
    tesseract.check_language.cache_clear()
    for on_error in ("raise", "skip"):
        with pytest.raises(DataErrors) as caught:
            Folder(root, on_error=on_error).load()
        assert "apt-get install tesseract-ocr" in str(caught.value)
        assert "1 page without words: a.png." in str(caught.value)
    assert len(Folder(root, words="none").load().documents) == 2
    tesseract.version.cache_clear()


@HAS_TESSERACT
def test_tesseract_reads_what_nothing_else_tells(root, monkeypatch):
    tesseract.version.cache_clear()
    save(picture(size=(600, 200)), root / "a.png")
    write_pdf(root / "b.pdf")
    write_table(root, "file,provider,total", "a.png,P,12.50", "b.pdf,P,12.50")
    scan, layer = Folder(root).load().documents
    assert (scan.page.origin(), layer.page.origin()) == ("ocr", "text")
    assert texts(scan) == ["ACME", "Ltd", "Date", "03/02/2024", "Total", "12.50"]
    ink = scan.pixels().min(axis=2) < 128
    for word in scan.words:
        left, top, right, bottom = (round(side) for side in word.box)
        assert ink[top:bottom, left:right].sum() > 20
    assert [entity.label for entity in scan.entities] == ["total"]
    monkeypatch.setattr(tesseract, "recognise", None)
    page._words.cache_clear()
    again, _ = Folder(root).load().documents
    assert again.words == scan.words


@HAS_TESSERACT
def test_a_language_that_is_not_installed(root):
    tesseract.version.cache_clear()
    save(picture(), root / "a.png")
    with pytest.raises(DataErrors, match="apt-get install tesseract-ocr-tlh"):
        Folder(root, language="eng+tlh").load()


TESSERACT = """#!{python} -IS
import os, sys, time
if "--version" in sys.argv: print("tesseract 5.0"); sys.exit()
if "--list-langs" in sys.argv: print("List of languages (1):\\neng"); sys.exit()
sys.stdin.buffer.read()
log = open({log!r}, "a")
log.write(f"{{os.getppid():9}}\\n")
log.flush()
for _ in range(600 if log.tell() > 40 else 0):  # the fifth page and all after it
    if os.path.exists({gate!r}): break
    time.sleep(0.1)
print("level\\tpage_num\\n5\\t1\\t1\\t1\\t1\\t1\\t5\\t5\\t20\\t10\\t90\\tword")
"""


def test_a_killed_reading_goes_on_where_it_was(root, tmp_path):
    """A real process is killed in the middle; no page that it finished is read again."""
    count = 8
    for number in range(count):
        save(picture((f"page {number}",)), root / "a" / f"{number}.png")
    program, log, gate = tmp_path / "bin" / "tesseract", tmp_path / "log", tmp_path / "gate"
    program.parent.mkdir()
    program.write_text(TESSERACT.format(python=sys.executable, log=str(log), gate=str(gate)))
    program.chmod(0o755)
    code = (
        "from fedpriv.data.folder.reader import Folder\n"
        f"print(len(Folder({str(root)!r}).load().documents))"
    )
    environment = {**os.environ, "PATH": str(program.parent)}
    command = [sys.executable, "-c", code]
    first = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE)
    kept = tmp_path / "cache" / "words"
    deadline = time.monotonic() + 60
    while not kept.is_dir() or len(list(kept.glob("[0-9a-f]*"))) < 4:
        assert time.monotonic() < deadline
        assert first.poll() is None
        time.sleep(0.02)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    gate.touch()
    second = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    assert second.communicate()[0].strip() == str(count)
    assert second.returncode == 0
    assert log.read_text().split().count(str(second.pid)) == count - 4


def test_the_rate_and_the_time_left_are_told():
    lines, now = [], [0.0]
    count = Count(100, "pages read", 4, lines.append, lambda: now[0])
    for second in range(1, 101):
        now[0] = second
        count.add()
    assert lines[0] == "4 of 100 pages read, 60 a minute, about 96 s left".replace("96 s", "2 min")
    assert lines[1].startswith("19 of 100 pages read")
    assert lines[-1].startswith("100 of 100")
    assert len(lines) < 10


def test_an_empty_cell_leaves_a_file_without_a_provider(tmp_path):
    for name in ("a.png", "b.png"):
        save(picture(), tmp_path / name)
    write_table(tmp_path, "file,provider", "a.png,ACME", "b.png,")
    with pytest.raises(DataErrors) as caught:
        Folder(tmp_path, words="none").load()
    (error,) = caught.value.errors
    assert error.why == "the column provider is empty for b.png: every file needs a provider"
    assert str(caught.value).endswith("\n  data.source.on_error=skip leaves these out")


@pytest.mark.parametrize("name", [b"Rechnung_M\xfcller.png", b"\xff\xfe.png", b"a\x80/b.png"])
def test_a_name_that_is_not_utf_8_is_the_problem_of_one_file(tmp_path, name, capsysbinary):
    Image.new("RGB", (40, 30), "white").save(tmp_path / "good.png")
    bad = os.path.join(os.fsencode(tmp_path), name)
    os.makedirs(os.path.dirname(bad), exist_ok=True)
    shutil.copy(tmp_path / "good.png", bad)
    with pytest.raises(DataError, match="is not UTF-8: rename the file"):
        Folder(tmp_path, words="none").load()
    found = Folder(tmp_path, words="none", on_error="skip").load()
    assert [one.id for one in found.documents] == ["good.png"]
    words = ["data", "check", str(tmp_path), "data.source.words=none", "--pages", "0"]
    assert main(words) == 0
    assert b"is not UTF-8: rename the file" in capsysbinary.readouterr().out


def test_folders_that_are_nested_too_deeply_are_told(tmp_path):
    """Or walked to their end, where Python needs no recursion for it."""
    Image.new("RGB", (40, 30), "white").save(tmp_path / "good.png")
    descriptor = os.open(tmp_path, os.O_RDONLY)
    for _ in range(1200):  # a path of so many parts could not be named
        os.mkdir("d", dir_fd=descriptor)
        below = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    os.close(descriptor)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(1000)  # torch's compiler raises it
    try:
        if sys.version_info >= (3, 12):
            assert len(Folder(tmp_path, words="none").load().documents) == 1
        else:
            with pytest.raises(DataError, match="its folders are nested too deeply"):
                Folder(tmp_path, words="none").load()
    finally:
        sys.setrecursionlimit(limit)
        subprocess.run(["rm", "-rf", tmp_path / "d"], check=True)
