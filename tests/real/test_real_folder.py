"""Real receipts as a user's folder: pictures, scans in PDFs, a table of fields, and no boxes.

The release is CC BY 4.0 (Huang et al., ICDAR 2019); nothing of it is stored here.
"""

import csv
import os
import shutil

import pytest
from folder_pages import pdf
from PIL import Image

from fedpriv.data.folder.placing import place_fields
from fedpriv.data.folder.reader import Folder

DATA = os.environ.get("FEDPRIV_DATA")
pytestmark = pytest.mark.skipif(
    not DATA, reason="FEDPRIV_DATA is not set: the folder that holds open/sroie"
)
FIELDS = ("company", "date", "total")


@pytest.fixture(scope="module")
def receipts(sroie):
    return sroie.documents


def test_fields_are_found_among_the_words_that_the_release_gives(receipts):
    found = asked = 0
    for document in receipts:
        values = {question.key: question.answers[0] for question in document.questions}
        places = place_fields([document.words], values)
        found += sum(place is not None for place in places.values())
        asked += len(places)
    assert found > 0.97 * asked


def test_dates_are_placed_on_the_words_that_the_reader_labels(receipts):
    same = []
    for document in receipts:
        labelled = {entity.label: entity.words for entity in document.entities}
        days = [q.answers[0] for q in document.questions if q.key == "date"]
        place = place_fields([document.words], {"date": days[0]})["date"] if days else None
        if place and "date" in labelled:
            same.append(tuple(range(*place[1:])) == labelled["date"])
    assert len(same) > 0.9 * len(receipts)
    assert sum(same) > 0.98 * len(same)


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("tesseract"), reason="needs Tesseract")
def test_receipts_become_documents_by_ocr(receipts, tmp_path):
    rows = [["file", "provider", *FIELDS]]
    for number, document in enumerate(receipts[:6]):
        values = {question.key: question.answers[0] for question in document.questions}
        name = f"branch {number % 2}/{document.id}"
        path = tmp_path / f"{name}{'.jpg' if number % 3 else '.pdf'}"
        path.parent.mkdir(exist_ok=True)
        if number % 3:
            shutil.copy(document.page, path)
        else:
            Image.open(document.page).convert("RGB").save(path, resolution=150)
        cells = [values.get(field, "") for field in FIELDS]
        rows.append([str(path.relative_to(tmp_path)), document.provider, *cells])
    (tmp_path / "typed.pdf").write_bytes(pdf((("ACME Ltd", "Total 12.50"),)))
    rows.append(["typed.pdf", "ACME", "ACME LTD", "", "12.50"])
    with (tmp_path / "labels.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    found = Folder(tmp_path, layout=6).load()
    origins = {document.id: document.page.origin() for document in found.documents}
    assert origins.pop("typed.pdf") == "text"
    assert set(origins.values()) == {"ocr"}
    by_provider = {row[0]: row[1] for row in rows[1:]}
    assert {document.id: document.provider for document in found.documents} == by_provider
    placed = sum(len(document.entities) for document in found.documents)
    assert placed >= 0.6 * sum(bool(cell) for row in rows[1:] for cell in row[2:])
    assert found.labels == FIELDS
