"""The CORD reader on small hand-made folders."""

import json

import numpy as np
import pytest
from form_folders import CORD_RECEIPT, SIZE, cord_line, cord_receipt, quad, write_cord

from fedpriv.data.document import DataError, Entity, Word
from fedpriv.data.readers.cord import Cord


def only(root, **settings):
    (document,) = Cord(root, **settings).load().documents
    return document


def test_lines_become_segments_and_entities(tmp_path):
    lines = [
        cord_line("menu.nm", ("ES", quad(10, 20, 30, 28)), ("", quad(0, 0, 0, 0))),
        cord_line("other", ("***", quad(1, 30, 9, 38))),
        cord_line("menu.cnt", (" ", quad(0, 0, 0, 0))),
        cord_line("menu.sub.nm", ("less", quad(10, 40, 30, 48)), ("ice", quad(32, 40, 40, 48))),
    ]
    write_cord(tmp_path, content=cord_receipt(*lines))
    document = only(tmp_path)
    assert document.words == (
        Word("ES", (10, 20, 30, 28), 0),
        Word("***", (1, 30, 9, 38), 1),
        Word("less", (10, 40, 30, 48), 3),
        Word("ice", (32, 40, 40, 48), 3),
    )
    assert document.entities == (Entity("menu.nm", (0,)), Entity("menu.sub.nm", (2, 3)))
    assert document.size == SIZE
    assert document.page == tmp_path / "train" / "image" / "receipt_00000.png"


def test_a_mirrored_quadrilateral_has_an_upright_box(tmp_path):
    mirrored = {"x1": 30, "y1": 28, "x2": 10, "y2": 27, "x3": 11, "y3": 20, "x4": 31, "y4": 21}
    write_cord(tmp_path, content=cord_receipt(cord_line("menu.nm", ("ES", mirrored))))
    assert only(tmp_path).words[0].box == (10, 20, 31, 28)


def test_labels_are_those_that_occur_in_any_split_sorted(tmp_path):
    line = cord_line("menu.sub_nm", ("x", quad(1, 1, 9, 9)))
    write_cord(tmp_path, split="test", content=cord_receipt(line))
    write_cord(tmp_path)
    assert Cord(tmp_path).load().labels == ("menu.nm", "menu.sub_nm", "total.total_price")
    assert Cord(tmp_path, splits=("test",)).load().labels == ("menu.sub_nm",)


@pytest.mark.parametrize("folder", ["dev", "valid", "validation"])
def test_splits_and_identifiers(tmp_path, folder):
    for split in ("test", folder, "train"):
        write_cord(tmp_path / "CORD", split=split)
    write_cord(tmp_path / "CORD", "receipt_00002")
    found = Cord(tmp_path).load().documents
    expected = ["train/receipt_00000", "train/receipt_00002"]
    expected += ["valid/receipt_00000", "test/receipt_00000"]
    assert [document.id for document in found] == expected
    assert [document.provider for document in found] == expected
    assert [document.split for document in found] == ["train", "train", "valid", "test"]


def test_a_row_of_version_2_is_a_text_in_an_object(tmp_path):
    write_cord(tmp_path / "a")
    write_cord(tmp_path / "b", content={"ground_truth": json.dumps(CORD_RECEIPT)})
    a, b = only(tmp_path / "a"), only(tmp_path / "b")
    assert (a.words, a.entities) == (b.words, b.entities)
    write_cord(tmp_path / "b", content={"ground_truth": "{"})
    with pytest.raises(DataError, match="the text of ground_truth is not JSON"):
        Cord(tmp_path / "b").load()


def test_blank_pages_stand_for_images_that_are_not_there(tmp_path):
    write_cord(tmp_path, image=None)
    with pytest.raises(DataError, match=r'images="blank" does without'):
        Cord(tmp_path).load()
    document = only(tmp_path, images="blank")
    assert document.size == SIZE
    image = document.image()
    assert image.size == SIZE
    assert image.getextrema() == ((255, 255),) * 3
    assert isinstance(document.page, np.ndarray)
    assert not document.page.flags.writeable


def test_blank_pages_need_a_stated_size(tmp_path):
    write_cord(tmp_path, content=cord_receipt(size=None))
    assert only(tmp_path).words == ()
    with pytest.raises(DataError, match="no image_size"):
        Cord(tmp_path, images="blank").load()
    write_cord(tmp_path, content=cord_receipt(size=(10**6, 10**6)))
    with pytest.raises(DataError, match="at most 100,000,000 pixels"):
        Cord(tmp_path, images="blank").load()


def test_boxes_follow_a_shrunk_image_of_the_same_shape_only(tmp_path):
    write_cord(tmp_path, image=(50, 100))
    assert only(tmp_path).words[0].box == (5, 10, 15, 14)
    write_cord(tmp_path, image=(50, 120))
    with pytest.raises(DataError, match="no scaled form of the stated 100 × 200"):
        Cord(tmp_path).load()


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (3, "expected an object with 'category', found 3"),
        ({"category": " ", "words": []}, "expected a category, found ' '"),
        ({"category": "menu.nm"}, "expected a list for 'words', found None"),
        (cord_line("menu.nm", (5, quad(1, 1, 9, 9))), "expected a text for 'text', found 5"),
        (cord_line("menu.nm", ("a", None)), "expected an object for 'quad', found None"),
        (cord_line("menu.nm", ("a", {"x1": 3})), "expected 8 finite numbers, found .3, None"),
        (cord_line("menu.nm", ("a", quad(1, 1, 150, 9))), "does not fit the page of 100 × 200"),
        (cord_line("menu.nm", ("a\ud800", quad(1, 1, 9, 9))), "half a surrogate pair"),
    ],
)
def test_a_malformed_line_is_named_by_place(tmp_path, line, says):
    content = json.dumps(cord_receipt(CORD_RECEIPT["valid_line"][0], line))
    write_cord(tmp_path, content=content)
    with pytest.raises(DataError, match=rf"valid_line\[1\]: .*{says}") as caught:
        Cord(tmp_path).load()
    assert caught.value.path == tmp_path / "train" / "json" / "receipt_00000.json"


def test_skip_leaves_out_and_counts(tmp_path):
    for stem in "abcd":
        write_cord(tmp_path, stem)
    (tmp_path / "train" / "image" / "a.png").unlink()
    (tmp_path / "train" / "json" / "b.json").unlink()
    (tmp_path / "train" / "image" / "c.png").write_bytes(b"no image")
    (tmp_path / "train" / "json" / "._d.json").touch()
    with pytest.raises(DataError, match=r"a\.png: the image is missing"):
        Cord(tmp_path).load()
    found = Cord(tmp_path, on_error="skip").load()
    assert [document.id for document in found.documents] == ["train/d"]
    assert [error.path.name for error in found.skipped] == ["a.png", "b.json", "c.png"]


def test_wrong_folders_and_settings_say_what_would_work(tmp_path):
    with pytest.raises(DataError, match=r"there is no folder .*gone \(is FEDPRIV_DATA set\?\)"):
        Cord(tmp_path / "gone").load()
    (tmp_path / "eval").mkdir()
    with pytest.raises(DataError, match=r"no train/ nor dev/ nor valid/ .* holds eval/"):
        Cord(tmp_path).load()
    with pytest.raises(ValueError, match=r"splits=\('dev',\): expected one or more of 'train'"):
        Cord(tmp_path, splits=("dev",)).load()
    (tmp_path / "train" / "json").mkdir(parents=True)
    with pytest.raises(DataError, match="no documents"):
        Cord(tmp_path, images="blank").load()
