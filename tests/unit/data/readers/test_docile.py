"""The DocILE reader on small hand-made folders."""

import numpy as np
import pytest
from form_folders import (
    DOCILE_TEXT,
    docile_annotation,
    docile_field,
    docile_text,
    write,
    write_docile,
)

from fedpriv.data.document import DataError, Entity
from fedpriv.data.readers.docile import Docile


def only(root, **settings):
    (document,) = Docile(root, **settings).load().documents
    return document


def test_words_carry_relative_boxes_times_the_rendered_page(tmp_path):
    write_docile(tmp_path)
    document = only(tmp_path)
    assert document.size == (100, 200)
    assert [word.text for word in document.words] == ["ACME", "Ltd."]
    assert document.words[0].box == pytest.approx((10, 20, 30, 30))
    assert document.entities == (Entity("vendor_name", (0, 1)),)
    assert document.page.shape == (200, 100)
    assert document.page.dtype == np.uint8
    assert document.page.mean() == pytest.approx(200, abs=2)


def test_dpi_scales_page_and_boxes_together(tmp_path):
    write_docile(tmp_path)
    document = only(tmp_path, dpi=144)
    assert document.size == (200, 400)
    assert document.words[0].box == pytest.approx((20, 40, 60, 60))
    with pytest.raises(ValueError, match="dpi=5: expected 10 to 600"):
        Docile(tmp_path, dpi=5)


def test_blank_pages_take_their_size_from_the_annotation_and_open_no_pdf(tmp_path):
    write_docile(tmp_path, pages=0)
    with pytest.raises(DataError, match=r'the PDF is missing \(pages="blank" does without\)'):
        Docile(tmp_path).load()
    document = only(tmp_path, pages="blank", dpi=100)
    assert document.size == (139, 278)
    assert document.image().getextrema() == ((255, 255),) * 3


def test_a_word_belongs_to_the_smallest_field_around_its_centre(tmp_path):
    text = docile_text(
        [
            [("Ann", (0.1, 0.1, 0.2, 0.15)), ("Road", (0.1, 0.2, 0.2, 0.25))],
            [("42", (0.6, 0.1, 0.7, 0.15)), ("far", (0.8, 0.8, 0.9, 0.9))],
            [("half", (0.1, 0.5, 0.3, 0.55))],
        ]
    )
    fields = [
        docile_field("customer_billing_address", (0.05, 0.05, 0.5, 0.3)),
        docile_field("customer_billing_name", (0.05, 0.05, 0.5, 0.17)),
        docile_field("document_id", (0.6, 0.1, 0.7, 0.15)),
        docile_field("payment_reference", (0.6, 0.1, 0.7, 0.15)),
        docile_field("date_due", (0.9, 0.1, 0.95, 0.15)),
        docile_field("date_issue", (0.05, 0.45, 0.19, 0.6)),
    ]
    cells = [docile_field("line_item_quantity", (0.75, 0.75, 0.95, 0.95))]
    write_docile(tmp_path, annotation=docile_annotation(fields, cells), text=text)
    document = only(tmp_path)
    assert document.entities == (
        Entity("customer_billing_name", (0,)),
        Entity("customer_billing_address", (1,)),
        Entity("document_id", (2,)),
        Entity("line_item_quantity", (3,)),
    )
    assert [word.segment for word in document.words] == [0, 0, 1, 1, 2]


def test_pages_are_documents_with_one_provider(tmp_path):
    box = (0.1, 0.1, 0.2, 0.2)
    text = docile_text([[("a", box)]], [[(" ", box), ("b", box)]], [])
    fields = [
        docile_field("vendor_name", (0.1, 0.1, 0.2, 0.2), "Acmé & Co.", page=1),
        docile_field("vendor_name", (0.1, 0.1, 0.2, 0.2), "Other", page=0),
    ]
    annotation = docile_annotation(fields, pages=3)
    write_docile(tmp_path, "doc", annotation=annotation, text=text, pages=3)
    found = Docile(tmp_path).load()
    assert [document.id for document in found.documents] == ["doc", "doc/2", "doc/3"]
    assert {document.whole for document in found.documents} == {"doc"}
    assert {document.provider for document in found.documents} == {"ACMÉCO"}
    assert [[word.text for word in d.words] for d in found.documents] == [["a"], ["b"], []]
    assert found.labels == ("vendor_name",)
    shades = [document.page.mean() for document in found.documents]
    assert shades == pytest.approx([200, 150, 100], abs=2)


def test_without_a_vendor_the_cluster_is_the_provider(tmp_path):
    unnamed = [docile_field("vendor_name", (0.1, 0.1, 0.2, 0.2), " - ")]
    write_docile(tmp_path, "a", annotation=docile_annotation(unnamed, cluster=9))
    write_docile(tmp_path, "b", annotation=docile_annotation(cluster=9))
    write_docile(tmp_path, "c", annotation=docile_annotation(cluster=None))
    found = Docile(tmp_path).load().documents
    assert [document.provider for document in found] == ["cluster 9", "cluster 9", "c"]


def test_val_is_the_test_split_and_other_lists_keep_their_names(tmp_path):
    write_docile(tmp_path, "b")
    write_docile(tmp_path, "a", "val")
    write_docile(tmp_path, "c", "dev")
    found = Docile(tmp_path).load().documents
    assert [(d.split, d.id) for d in found] == [("train", "b"), ("test", "a")]
    assert only(tmp_path, splits=("dev",)).split == "dev"
    with pytest.raises(DataError, match=r"no other\.json here"):
        Docile(tmp_path, splits=("other",)).load()
    with pytest.raises(DataError, match="climbs out"):
        Docile(tmp_path, splits=("../x",)).load()


ONE_CORNER = {"value": "a", "geometry": [[0.5, 0.1]]}


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        ({"text": docile_text([], [])}, "2 pages of text, but the document has 1"),
        ({"text": {"pages": [{"blocks": [{"lines": [3]}]}]}}, r"pages\[0\]: expected an object"),
        (
            {"text": docile_text([[("a", (0.5, 0.1, 1.4, 0.2))]])},
            r"pages\[0\]: the box .* does not fit",
        ),
        (
            {"text": {"pages": [{"blocks": [{"lines": [{"words": [ONE_CORNER]}]}]}]}},
            r"pages\[0\]: expected \[\[left, top\], \[right, bottom\]\]",
        ),
        ({"annotation": {"field_extractions": {}}}, "a list for 'field_extractions'"),
        (
            {"annotation": docile_annotation([docile_field("date", (0, 0, 1, 1), page=2)])},
            "the field date is on page 2 of a document of 1",
        ),
        (
            {"annotation": docile_annotation([docile_field("date", (0, 0, 1))])},
            r"field_extractions\[0\]: expected 4 finite numbers",
        ),
        ({"annotation": docile_annotation([docile_field("date", (0, 0, 2, 1))])}, "date: the box"),
    ],
)
def test_a_malformed_document_is_named_and_can_be_skipped(tmp_path, broken, says):
    write_docile(tmp_path, "good")
    write_docile(tmp_path, "bad", **broken)
    with pytest.raises(DataError, match=says) as caught:
        Docile(tmp_path).load()
    assert caught.value.path.name == "bad.json"
    found = Docile(tmp_path, on_error="skip").load()
    assert ([d.id for d in found.documents], len(found.skipped)) == (["good"], 1)


def test_a_pdf_that_is_none_is_named(tmp_path):
    write_docile(tmp_path)
    (tmp_path / "pdfs" / "d1.pdf").write_bytes(b"%PDF-1.4 no more")
    with pytest.raises(DataError, match=r"d1\.pdf: not a PDF that pdfium can read"):
        Docile(tmp_path).load()


def test_lists_hold_each_identifier_once(tmp_path):
    write_docile(tmp_path)
    write(tmp_path / "train.json", ["d1", "d1", 5])
    found = Docile(tmp_path, on_error="skip").load()
    assert [document.id for document in found.documents] == ["d1"]
    reasons = [error.why for error in found.skipped]
    assert reasons == [f"expected an identifier of its own, found {x}" for x in ("'d1'", "5")]
    write(tmp_path / "train.json", {"d1": 1})
    with pytest.raises(DataError, match="expected a list of identifiers"):
        Docile(tmp_path, on_error="skip").load()


def test_blank_pages_of_impossible_size_are_refused(tmp_path):
    annotation = docile_annotation()
    for sizes in ([[1e308, 5]], [[0, 5]], [[5]], 3, [[1e6, 1e6]]):
        annotation["metadata"]["page_sizes_at_200dpi"] = sizes
        write_docile(tmp_path, annotation=annotation, text=DOCILE_TEXT, pages=0)
        write(tmp_path / "train.json", ["d1"])
        with pytest.raises(DataError, match="metadata: "):
            Docile(tmp_path, pages="blank", dpi=600).load()
