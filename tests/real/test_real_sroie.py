"""The SROIE reader on the 269 receipts of the pack; expectations come from the raw files.

The release is CC BY 4.0 (Huang et al., ICDAR 2019); nothing of it is stored here.
"""

import json
import os
import re
import shutil
from collections import Counter
from pathlib import Path

import pytest
from PIL import Image

from fedpriv.data.readers.sroie import Sroie, provider_name

DATA = os.environ.get("FEDPRIV_DATA")
pytestmark = pytest.mark.skipif(
    not DATA, reason="FEDPRIV_DATA is not set: the folder that holds open/sroie"
)
ROOT = Path(DATA or "unset") / "open" / "sroie"


@pytest.fixture(scope="module")
def found(sroie):
    return sroie


@pytest.fixture(scope="module")
def manifest():
    lines = (ROOT / "manifest.jsonl").read_text(encoding="utf-8").splitlines()
    return {row["id"]: row for row in map(json.loads, lines)}


def raw(document, folder):
    """The nine fields of each line of a document's file, read without the code under test."""
    data = (ROOT / document.split / folder / f"{document.id}.txt").read_bytes()
    return [line.split(b",", 8) for line in re.split(rb"\r?\n", data) if line]


def keys(document):
    path = ROOT / document.split / "entities" / f"{document.id}.txt"
    return json.loads(path.read_text(encoding="utf-8"))


def text_of(document, label):
    """The words of a label, joined; None where it was not found."""
    for entity in document.entities:
        if entity.label == label:
            return " ".join(document.words[place].text for place in entity.words)
    return None


def plain(text):
    return re.sub(r"[\W_]", "", text).lower()


def test_the_counts_are_those_of_the_readme(found, manifest):
    assert found.skipped == ()
    assert len(found.documents) == 269
    assert Counter(document.split for document in found.documents) == {"train": 179, "test": 90}
    providers = Counter(document.provider for document in found.documents)
    at_least = [sum(count >= n for count in providers.values()) for n in (1, 2, 3, 5, 10)]
    assert at_least == [86, 50, 32, 16, 8]
    assert {d.id: d.provider for d in found.documents} == {
        stem: row["provider"] for stem, row in manifest.items()
    }


def test_no_word_is_lost(found, manifest):
    for document in found.documents:
        lines = raw(document, "box")
        assert len(lines) == manifest[document.id]["lines"]
        assert len({word.segment for word in document.words}) == len(lines)
        texts = [text for line in lines for text in line[8].decode().split()]
        assert [word.text for word in document.words] == texts
    assert sum(len(document.words) for document in found.documents) == 30790


def test_every_box_is_on_its_page(found):
    for document in found.documents:
        with Image.open(document.page) as image:
            assert document.size == image.size
        for word in document.words:
            x0, y0, x1, y1 = word.box
            assert 0 <= x0 < x1 <= document.size[0]
            assert 0 <= y0 < y1 <= document.size[1]


def test_boxes_are_those_of_the_shrunk_page(found):
    for document in found.documents:
        boxes = dict(
            zip((w.segment for w in document.words), document.segment_boxes(), strict=True)
        )
        for segment, line in enumerate(raw(document, "box_scaled")):
            xs, ys = [int(x) for x in line[0:8:2]], [int(y) for y in line[1:8:2]]
            assert boxes[segment] == pytest.approx((min(xs), min(ys), max(xs), max(ys)), abs=0.01)


@pytest.mark.slow
def test_without_box_scaled_the_manifest_gives_the_same_boxes(found, tmp_path):
    copy(tmp_path, "img", "box", "entities")
    shutil.copy(ROOT / "manifest.jsonl", tmp_path)
    for scaled, given in zip(Sroie(tmp_path).load().documents, found.documents, strict=True):
        assert scaled.entities == given.entities
        for ours, theirs in zip(scaled.words, given.words, strict=True):
            assert ours.box == pytest.approx(theirs.box, abs=1.5)


def copy(root, *names):
    for split in ("train", "test"):
        (root / split).mkdir()
        for name in names:
            shutil.copytree(ROOT / split / name, root / split / name)


def test_shrunk_images_alone_are_refused(manifest, tmp_path):
    """The common layout with the wrong images: found out for 255 of the 258 that were shrunk."""
    copy(tmp_path, "img", "box", "entities")
    found = Sroie(tmp_path, on_error="skip").load()
    assert len(found.skipped) == 255
    read = {document.id for document in found.documents}
    unshrunk = {stem for stem, row in manifest.items() if row["size"] == row["orig_size"]}
    assert read - unshrunk == {"X00016469623", "X51005442341", "X51005442397"}


@pytest.mark.parametrize("with_manifest", [True, False])
def test_the_originals_give_the_boxes_of_the_shrunk_pages(found, manifest, tmp_path, with_manifest):
    by_id = {document.id: document for document in found.documents}
    originals = sorted((ROOT / "originals").glob("*.jpg"))
    assert len(originals) == 6
    for path in originals:
        split = by_id[path.stem].split
        for name, file in (("img", path), ("box", None), ("entities", None), ("box_scaled", None)):
            if name == "box_scaled" and not with_manifest:
                continue
            (tmp_path / split / name).mkdir(parents=True, exist_ok=True)
            source = file or ROOT / split / name / f"{path.stem}.txt"
            shutil.copy(source, tmp_path / split / name)
    if with_manifest:
        shutil.copy(ROOT / "manifest.jsonl", tmp_path)
    full = Sroie(tmp_path).load().documents
    assert {document.id for document in full} == {path.stem for path in originals}
    for document in full:
        assert list(document.size) == manifest[document.id]["orig_size"]
        across, down = manifest[document.id]["scale"]
        shrunk = by_id[document.id]
        for ours, theirs in zip(document.words, shrunk.words, strict=True):
            x0, y0, x1, y1 = ours.box
            scaled = (x0 * across, y0 * down, x1 * across, y1 * down)
            assert scaled == pytest.approx(theirs.box, abs=1.5)


def test_label_coverage(found):
    """Measured on this pack; the rest are values that the print does not show."""
    count = Counter(entity.label for document in found.documents for entity in document.entities)
    assert count == {"company": 262, "date": 268, "total": 269, "address": 261}
    equal = Counter()
    for document in found.documents:
        for label, value in keys(document).items():
            equal[label] += plain(text_of(document, label) or "") == plain(value)
    assert equal["company"] == 257
    assert equal["date"] == 266
    assert equal["address"] == 249


def test_labelled_words_hold_the_value(found):
    for document in found.documents:
        values = keys(document)
        company, date = (text_of(document, label) for label in ("company", "date"))
        assert company is None or plain(values["company"]) in plain(company)
        # 03 JUN is printed as 3 JUN.
        assert date is None or plain(values["date"]).lstrip("0") in plain(date)
        amount = re.sub(r"[^\d.]", "", values["total"])
        assert amount in text_of(document, "total")
        address = text_of(document, "address")
        assert address is None or len(plain(address)) > len(plain(values["address"])) / 2


def test_no_word_has_two_labels(found):
    for document in found.documents:
        places = [place for entity in document.entities for place in entity.words]
        assert len(places) == len(set(places))
        for entity in document.entities:
            first, last = entity.words[0], entity.words[-1]
            assert entity.words == tuple(range(first, last + 1))


@pytest.mark.parametrize(
    ("stem", "before"),
    [
        ("X51005724552", ["(INCLUSIVE", "OF", "GST)", ":"]),  # not the one beside TOTAL QTY
        ("X51005663293", ["TOTAL:"]),  # not the one beside TOTAL (INCLUSIVE OF GST)
        ("X51005757349", ["NET", "TOTAL", ":"]),
    ],
)
def test_the_total_is_the_one_that_the_eye_takes(found, stem, before):
    (document,) = (document for document in found.documents if document.id == stem)
    (total,) = (entity for entity in document.entities if entity.label == "total")
    first = total.words[0]
    texts = [word.text for word in document.words[first - len(before) : first]]
    assert texts == before


def test_a_total_in_a_column_of_amounts_stands_in_the_row_of_total(found):
    """This file lists all labels first: TOTAL's top is at 533, the amounts' at 535 and 551."""
    (document,) = (document for document in found.documents if document.id == "X51007339642")
    (total,) = (entity for entity in document.entities if entity.label == "total")
    assert [document.words[place].box[1] for place in total.words] == [535]


def test_companies_without_the_manifest(found, manifest):
    agree = sum(
        provider_name(keys(d)["company"]) == manifest[d.id]["provider"] for d in found.documents
    )
    assert agree == 252
