"""The XFUND reader on small hand-made folders."""

import pytest
from form_folders import SIZE, XFUND_ITEMS, write, write_image, write_xfund, xfund_form, xfund_item

from fedpriv.data.document import DataError, Entity, Word
from fedpriv.data.readers.xfund import Xfund


def only(root, **settings):
    (document,) = Xfund(root, **settings).load().documents
    return document


def test_fields_become_segments_and_entities(tmp_path):
    items = [
        xfund_item("header", "表", (10, 2, 40, 8), [("表", (10, 2, 40, 8))]),
        xfund_item("other", "§", (1, 10, 5, 18)),
        xfund_item("question", " ", (0, 0, 0, 0)),
        xfund_item(
            "answer", "是 x", (10, 20, 40, 30), [("是", (10, 20, 20, 30)), (" ", (0, 0, 0, 0))]
        ),
    ]
    write_xfund(tmp_path, [xfund_form(items=items)])
    document = only(tmp_path)
    assert document.words == (
        Word("表", (10, 2, 40, 8), 0),
        Word("§", (1, 10, 5, 18), 1),
        Word("是", (10, 20, 20, 30), 3),
    )
    assert document.entities == (Entity("header", (0,)), Entity("answer", (2,)))


def test_a_field_without_words_is_cut_at_white_space(tmp_path):
    write_xfund(tmp_path, [xfund_form()])
    document = only(tmp_path)
    assert document.words == (
        Word("名", (10, 20, 25, 30), 0),
        Word("A", (40, 20, 50, 30), 1),
        Word("BC", (60, 20, 80, 30), 1),
    )
    bare = {key: value for key, value in XFUND_ITEMS[1].items() if key != "words"}
    write_xfund(tmp_path, [xfund_form(items=[bare])])
    assert [word.text for word in only(tmp_path).words] == ["A", "BC"]


def test_links_join_entities(tmp_path):
    box = (10, 20, 40, 30)
    items = [
        xfund_item("answer", "x", box, number=5, linking=[(3, 5), (9, 5)]),
        xfund_item("other", "x", box, number=9, linking=[(9, 5)]),
        xfund_item("question", "x", box, number=3, linking=[(3, 5), (3, 3), (3, 4)]),
        xfund_item("question", " ", box, number=4, linking=[(3, 4)]),
    ]
    write_xfund(tmp_path, [xfund_form(items=items)])
    assert only(tmp_path).links == ((1, 0),)
    write_xfund(tmp_path, [xfund_form(items=[XFUND_ITEMS[0], {**items[0], "linking": [3]}])])
    with pytest.raises(DataError, match=r"documents\[0\]\.document\[1\]: expected pairs of whole"):
        Xfund(tmp_path).load()


def test_two_fields_of_one_id_that_is_linked_are_refused(tmp_path):
    items = [xfund_item("answer", "x", (1, 2, 9, 8), linking=[(1, 2)]) for _ in range(2)]
    write_xfund(tmp_path, [xfund_form(items=items)])
    with pytest.raises(DataError, match=r"documents\[0\]\.document: two fields have the id 1"):
        Xfund(tmp_path).load()


def test_val_is_the_test_split_and_every_form_a_provider(tmp_path):
    write_xfund(tmp_path, [xfund_form("zh_val_1")], "val")
    write_xfund(tmp_path, [xfund_form("zh_train_9"), xfund_form("zh_train_2")])
    found = Xfund(tmp_path).load()
    assert [(d.split, d.id, d.provider) for d in found.documents] == [
        ("train", "zh_train_9", "zh_train_9"),
        ("train", "zh_train_2", "zh_train_2"),
        ("test", "zh_val_1", "zh_val_1"),
    ]
    assert (found.name, found.labels) == ("XFUND zh", ("header", "question", "answer"))
    assert [d.id for d in Xfund(tmp_path, splits=("test",)).load().documents] == ["zh_val_1"]


def test_the_language_chooses_the_files(tmp_path):
    write_xfund(tmp_path, [xfund_form("de_train_1")], language="de")
    assert only(tmp_path, language="de").id == "de_train_1"
    with pytest.raises(DataError, match=r"no zh\.train\.json nor zh\.val\.json here"):
        Xfund(tmp_path).load()
    with pytest.raises(DataError, match="climbs out"):
        Xfund(tmp_path / "images", language="../de").load()


def test_boxes_follow_a_shrunk_image_of_the_same_shape_only(tmp_path):
    write_xfund(tmp_path, [xfund_form(size=(200, 400), items=XFUND_ITEMS[:1])])
    document = only(tmp_path)
    assert document.size == SIZE
    assert document.words[0].box == (5, 10, 12.5, 15)
    write_xfund(tmp_path, [xfund_form(size=(200, 300))])
    with pytest.raises(DataError, match="no scaled form of the stated 200 × 300"):
        Xfund(tmp_path).load()


def test_images_may_lie_in_the_folder_of_the_archive(tmp_path):
    write(tmp_path / "zh.train.json", {"documents": [xfund_form()]})
    write_image(tmp_path / "zh.train" / "zh_train_0.jpg")
    assert only(tmp_path).page == tmp_path / "zh.train" / "zh_train_0.jpg"


def test_the_same_identifier_twice_is_refused_across_splits_too(tmp_path):
    write_xfund(tmp_path, [xfund_form("a"), xfund_form("a")])
    write_xfund(tmp_path, [xfund_form("a")], "val")
    with pytest.raises(DataError, match=r"documents\[1\]: expected an id of its own, found 'a'"):
        Xfund(tmp_path).load()
    found = Xfund(tmp_path, on_error="skip").load()
    assert [document.id for document in found.documents] == ["a"]
    assert [error.path.name for error in found.skipped] == ["zh.train.json", "zh.val.json"]


@pytest.mark.parametrize(
    ("item", "says"),
    [
        (3, "expected an object with 'label', found 3"),
        (xfund_item("Answer", "x", (1, 1, 9, 9)), "expected a label of header, .*found 'Answer'"),
        (xfund_item("answer", "x", (1, 1, 9)), "expected 4 finite numbers, found .1, 1, 9."),
        (xfund_item("answer", "x", (1, 1, float("nan"), 9)), "expected 4 finite numbers"),
        (xfund_item("answer", "x", (9, 1, 3, 9)), "does not fit"),
        ({**xfund_item("answer", "x", (1, 1, 9, 9)), "words": {"a": 1}}, "a list for 'words'"),
        ({**xfund_item("answer", "x", (1, 1, 9, 9)), "words": ["a"]}, "an object with 'text'"),
    ],
)
def test_a_malformed_field_is_named_by_place(tmp_path, item, says):
    write_xfund(tmp_path, [xfund_form(items=[XFUND_ITEMS[0], item])])
    with pytest.raises(DataError, match=rf"documents\[0\]\.document\[1\]: .*{says}"):
        Xfund(tmp_path).load()


def test_a_broken_file_is_an_error_even_under_skip(tmp_path):
    write_xfund(tmp_path, '{"documents":\n [}')
    with pytest.raises(DataError, match="not JSON") as caught:
        Xfund(tmp_path, on_error="skip").load()
    assert caught.value.line == 2
    write_xfund(tmp_path, "[]")
    with pytest.raises(DataError, match="expected an object with 'documents'"):
        Xfund(tmp_path, on_error="skip").load()
