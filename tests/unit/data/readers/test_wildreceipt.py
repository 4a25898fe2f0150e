"""The WildReceipt reader on small folders in the layout of the release."""

import pytest
from form_folders import (
    CLASSES,
    SIZE,
    WILD_LINES,
    wild_line,
    wild_receipt,
    write,
    write_wildreceipt,
)

from fedpriv.data.document import DataError, Entity, Word
from fedpriv.data.readers.wildreceipt import Wildreceipt, read_classes


def only(root, **settings):
    (document,) = Wildreceipt(root, **settings).load().documents
    return document


@pytest.mark.parametrize("numbered", [True, False])
def test_both_forms_of_the_class_list(tmp_path, numbered):
    write_wildreceipt(tmp_path, [wild_receipt()], numbered=numbered)
    assert read_classes(tmp_path / "class_list.txt") == dict(enumerate(CLASSES))
    labels = Wildreceipt(tmp_path).load().labels
    assert len(labels) == 24
    assert labels == tuple(name for name in CLASSES if name not in ("Ignore", "Others"))


def test_lines_become_segments_and_entities(tmp_path):
    lines = [
        wild_line("Total_key", "TOTAL DUE"),
        wild_line("Total_value", ""),
        wild_line("Others", "thanks", (50, 60, 10, 60, 10, 50, 50, 50)),
        wild_line("Ignore", "#", (1, 70, 9, 70, 9, 79, 1, 79)),
        wild_line("Date_value", "1/2", (10, 80, 50, 82, 50, 92, 10, 90)),
    ]
    write_wildreceipt(tmp_path, [wild_receipt(lines=lines)])
    document = only(tmp_path)
    assert document.words == (
        Word("TOTAL", (10, 20, pytest.approx(10 + 40 * 5 / 9), 30), 0),
        Word("DUE", (pytest.approx(10 + 40 * 6 / 9), 20, 50, 30), 0),
        Word("thanks", (10, 50, 50, 60), 2),
        Word("#", (1, 70, 9, 79), 3),
        Word("1/2", (10, 80, 50, 92), 4),
    )
    assert document.entities == (Entity("Total_key", (0, 1)), Entity("Date_value", (4,)))


def test_the_store_is_the_provider_otherwise_the_receipt(tmp_path):
    lines = [wild_line("Store_name_value", "café"), wild_line("Store_name_value", "no-1")]
    receipts = [
        wild_receipt("image_files/a.jpeg"),
        wild_receipt("image_files/b.jpeg", lines),
        wild_receipt("image_files/c.jpeg", [wild_line("Store_name_key", "Shop")]),
        wild_receipt("image_files/d.jpeg", [wild_line("Store_name_value", "***")]),
    ]
    write_wildreceipt(tmp_path, receipts)
    providers = [document.provider for document in Wildreceipt(tmp_path).load().documents]
    assert providers == ["CAFÉNO1", "CAFÉNO1", "image_files/c.jpeg", "image_files/d.jpeg"]


def test_splits_come_in_the_files_order(tmp_path):
    write_wildreceipt(tmp_path, [wild_receipt("z.jpeg"), "", wild_receipt("b.jpeg")])
    write_wildreceipt(tmp_path, [wild_receipt("a.jpeg")], "test")
    found = Wildreceipt(tmp_path).load()
    assert [(document.split, document.id) for document in found.documents] == [
        ("train", "z.jpeg"),
        ("train", "b.jpeg"),
        ("test", "a.jpeg"),
    ]
    assert found.name == "WildReceipt"
    assert found.documents[2].page == tmp_path / "a.jpeg"
    (tmp_path / "train.txt").unlink()
    assert len(Wildreceipt(tmp_path).load().documents) == 1


def test_boxes_follow_a_shrunk_image(tmp_path):
    write_wildreceipt(tmp_path, [wild_receipt(size=(200, 400))])
    document = only(tmp_path)
    assert document.size == SIZE
    assert document.words[-1].box == (30, 25, 45, 30)


def test_an_image_of_both_splits_is_refused(tmp_path):
    write_wildreceipt(tmp_path, [wild_receipt()])
    write_wildreceipt(tmp_path, [wild_receipt()], "test")
    with pytest.raises(DataError, match=r"a\.jpeg stands in an earlier line") as caught:
        Wildreceipt(tmp_path).load()
    assert (caught.value.path.name, caught.value.line) == ("test.txt", 1)


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "nested too deeply"),
        ("[]", "expected an object with 'file_name'"),
        (wild_receipt(lines=[*WILD_LINES, 5]), r"annotations\[2\]: expected an object"),
        (
            wild_receipt(lines=[{**WILD_LINES[0], "label": 26}]),
            r"annotations\[0\]: expected a label of class_list.txt, 0 to 25; found 26",
        ),
        (wild_receipt(lines=[{**WILD_LINES[0], "label": True}]), "a whole number for 'label'"),
        (wild_receipt(lines=[wild_line("Others", "x", (1, 2, 3))]), "expected 8 finite numbers"),
        (
            wild_receipt(lines=[wild_line("Others", "x", (1, 2, 150, 2, 150, 9, 1, 9))]),
            "does not fit the page of 100 × 200 pixels",
        ),
    ],
)
def test_a_malformed_line_is_named_with_its_number(tmp_path, row, says):
    write_wildreceipt(tmp_path, [wild_receipt("ok.jpeg"), row])
    with pytest.raises(DataError, match=says) as caught:
        Wildreceipt(tmp_path).load()
    assert caught.value.line == 2
    found = Wildreceipt(tmp_path, on_error="skip").load()
    assert ([d.id for d in found.documents], len(found.skipped)) == (["ok.jpeg"], 1)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("0 Ignore\n0 Others\n", "line 2: the class '0 Others' stands twice"),
        ("Ignore\nIgnore\n", "line 2: the class 'Ignore' stands twice"),
        ("0 a b\n", "line 1: expected a class or a number and a class"),
        ("x Ignore\n", "line 1: expected a class"),
        ("\n", "no classes"),
        (b"\xff", "cannot be read as UTF-8"),
    ],
)
def test_a_broken_class_list_is_an_error_even_under_skip(tmp_path, text, says):
    write_wildreceipt(tmp_path, [wild_receipt()])
    write(tmp_path / "class_list.txt", text)
    with pytest.raises(DataError, match=says):
        Wildreceipt(tmp_path, on_error="skip").load()


def test_missing_files_are_named(tmp_path):
    with pytest.raises(DataError, match=r"no train\.txt nor test\.txt here"):
        Wildreceipt(tmp_path).load()
    write_wildreceipt(tmp_path, [wild_receipt()])
    (tmp_path / "class_list.txt").unlink()
    with pytest.raises(DataError, match=r"class_list\.txt: missing"):
        Wildreceipt(tmp_path).load()
