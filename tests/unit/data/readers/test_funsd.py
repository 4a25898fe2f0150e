"""The FUNSD reader on small hand-made folders."""

import json

import pytest
from PIL import Image

from fedpriv.data.document import DataError, Entity, Word
from fedpriv.data.readers.funsd import Funsd

SIZE = (100, 200)


def field(label="question", *words, number=7, linking=()):
    """A form item; `words` are (text, box) pairs."""
    return {
        "id": number,
        "text": " ".join(text for text, _ in words),
        "box": [0, 0, 1, 1],
        "label": label,
        "words": [{"text": text, "box": box} for text, box in words],
        "linking": [list(pair) for pair in linking],
    }


ITEM = field("question", ("Date:", [10, 20, 30, 28]))


def write_form(root, stem, folder="training_data", form=(ITEM,)):
    """Writes one form under `root` / "dataset"; `form` is a list of items or the file's text."""
    base = root / "dataset" / folder
    for name in ("annotations", "images"):
        (base / name).mkdir(parents=True, exist_ok=True)
    text = form if isinstance(form, str) else json.dumps({"form": list(form)})
    (base / "annotations" / f"{stem}.json").write_text(text, encoding="utf-8")
    Image.new("L", SIZE, 255).save(base / "images" / f"{stem}.png")


def test_fields_become_segments_and_entities(tmp_path):
    form = [
        field("header", ("AUG 4", [1, 2, 9, 8]), ("", [0, 0, 0, 0]), ("fax", [10, 2, 19, 8])),
        field("question", ("", [0, 0, 0, 0]), ("  ", [0, 0, 0, 0])),
        field("other", ("§", [1, 10, 5, 18])),
        field("answer", ("yes", [1, 20, 9, 28])),
        field("answer"),
    ]
    write_form(tmp_path, "1", form=form)
    (document,) = Funsd(tmp_path).load().documents
    assert document.words == (
        Word("AUG 4", (1, 2, 9, 8), 0),
        Word("fax", (10, 2, 19, 8), 0),
        Word("§", (1, 10, 5, 18), 2),
        Word("yes", (1, 20, 9, 28), 3),
    )
    assert document.entities == (Entity("header", (0, 1)), Entity("answer", (3,)))
    assert document.tags() == ["B-header", "I-header", "O", "B-answer"]
    assert document.segment_boxes()[:2] == [(1, 2, 19, 8)] * 2


def linked(number, *linking, label="question", text="a"):
    return field(label, (text, [1, 2, 9, 8]), number=number, linking=linking)


def test_links_join_entities_each_once_in_the_order_of_the_file(tmp_path):
    form = [
        linked(40, (20, 40), (40, 10), label="answer"),
        linked(30, (30, 20), label="other"),
        linked(20, (30, 20), (20, 40), (20, 50), label="header"),
        linked(50, (20, 50), text=" "),
        linked(10, (40, 10), (10, 10), (10, 99)),
    ]
    write_form(tmp_path, "1", form=form)
    (document,) = Funsd(tmp_path).load().documents
    assert [entity.label for entity in document.entities] == ["answer", "header", "question"]
    assert document.links == ((1, 0), (0, 2))


def test_an_item_may_have_no_list_of_links(tmp_path):
    write_form(tmp_path, "1", form=[{"label": "answer", "words": ITEM["words"]}])
    (document,) = Funsd(tmp_path).load().documents
    assert document.links == ()


@pytest.mark.parametrize("linking", [3, None, {}, [3], [[1]], [[1, 2, 3]], [[1, "2"]], [[1, True]]])
def test_malformed_links_are_named_by_place(tmp_path, linking):
    write_form(tmp_path, "1", form=[ITEM, {**ITEM, "linking": linking}])
    with pytest.raises(DataError, match=r'form\[1\]: expected pairs of whole .* "linking", found'):
        Funsd(tmp_path).load()


def test_a_link_to_one_of_two_fields_is_refused(tmp_path):
    write_form(tmp_path, "1", form=[linked(1, (1, 2)), linked(2), linked(2)])
    with pytest.raises(DataError, match="form: two fields have the id 2, which a link names"):
        Funsd(tmp_path).load()


def test_every_form_is_its_own_provider(tmp_path):
    write_form(tmp_path, "2")
    write_form(tmp_path, "10", "testing_data")
    write_form(tmp_path, "1")
    found = Funsd(tmp_path).load()
    assert [(d.split, d.id, d.provider) for d in found.documents] == [
        ("train", "1", "1"),
        ("train", "2", "2"),
        ("test", "10", "10"),
    ]
    assert (found.name, found.skipped) == ("FUNSD", ())
    assert found.labels == ("header", "question", "answer")
    assert found.documents[0].size == SIZE
    assert found.documents[0].page == tmp_path / "dataset/training_data/images/1.png"


def test_an_identifier_of_both_splits_stays_unique(tmp_path):
    write_form(tmp_path, "1")
    write_form(tmp_path, "1", "testing_data")
    found = Funsd(tmp_path).load().documents
    assert [d.id for d in found] == [d.provider for d in found] == ["train/1", "test/1"]


def test_the_dataset_folder_itself_and_one_split_will_do(tmp_path):
    write_form(tmp_path, "1", "testing_data")
    assert Funsd(str(tmp_path / "dataset")).load() == Funsd(tmp_path).load()
    assert len(Funsd(tmp_path, splits=("test",)).load().documents) == 1
    with pytest.raises(DataError, match=r"no training_data/ here: .* holds testing_data/"):
        Funsd(tmp_path, splits=("train",)).load()


@pytest.mark.parametrize(
    ("item", "says"),
    [
        (3, "expected an object with 'label', found 3"),
        (field("Answer"), "found 'Answer'"),
        ({"label": "other"}, "expected a list for 'words', found None"),
        ({"label": "other", "words": ["a"]}, "expected an object with 'text', found 'a'"),
        ({"label": "other", "words": [{"text": None}]}, "expected a text for 'text', found None"),
        ({"label": "other", "words": [{"text": "a"}]}, "found None"),
        (field("other", ("a", [1, 2, 3])), "found .1, 2, 3."),
        (field("other", ("a", [1, 2, "x", 4])), "found .1, 2, 'x', 4."),
        (field("other", ("a", [1, 2, 110, 4])), "does not fit the page of 100 × 200 pixels"),
        (field("other", ("a", [9, 2, 3, 4])), "does not fit"),
    ],
)
def test_a_malformed_item_is_named_by_place(tmp_path, item, says):
    write_form(tmp_path, "1", form=[ITEM, item])
    with pytest.raises(DataError, match=rf"form\[1\]: .*{says}") as caught:
        Funsd(tmp_path).load()
    assert caught.value.path == tmp_path / "dataset/training_data/annotations/1.json"


def test_boxes_are_clipped_and_widened(tmp_path):
    form = [field("other", ("a", [-1, 2, 101, 8]), ("b", [5, 9, 5, 9]))]
    write_form(tmp_path, "1", form=form)
    (document,) = Funsd(tmp_path).load().documents
    assert [word.box for word in document.words] == [(0, 2, 100, 8), (5, 9, 6, 10)]


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ('{"form":\n [}', 2, "not JSON"),
        ('{"forms": []}', None, "a list for 'form'"),
        ("[]", None, "expected an object with 'form'"),
    ],
)
def test_a_broken_annotation_is_named_with_its_line(tmp_path, text, line, says):
    write_form(tmp_path, "1", form=text)
    with pytest.raises(DataError, match=says) as caught:
        Funsd(tmp_path).load()
    assert caught.value.line == line


def test_skip_leaves_out_and_counts(tmp_path):
    for stem in ("1", "2", "3", "4", "5"):
        write_form(tmp_path, stem)
    base = tmp_path / "dataset" / "training_data"
    (base / "images" / "1.png").unlink()
    (base / "annotations" / "2.json").unlink()
    (base / "images" / "3.png").write_bytes(b"no image")
    (base / "annotations" / "5.json").write_bytes(b"\xa3")
    (base / "images" / "._1.png").touch()
    with pytest.raises(DataError, match=r"the annotation 1\.json has no image"):
        Funsd(tmp_path).load()
    found = Funsd(tmp_path, on_error="skip").load()
    assert [document.id for document in found.documents] == ["4"]
    assert [error.path.name for error in found.skipped] == ["1.png", "2.json", "3.png", "5.json"]


def test_a_wrong_root_says_what_lies_there(tmp_path):
    with pytest.raises(DataError, match=r"there is no folder .*gone \(is FEDPRIV_DATA set\?\)"):
        Funsd(tmp_path / "gone").load()
    (tmp_path / "other").mkdir()
    with pytest.raises(DataError, match=r"no training_data/ nor testing_data/ here: .* other/"):
        Funsd(tmp_path).load()
    with pytest.raises(ValueError, match=r"splits=\('dev',\): expected"):
        Funsd(tmp_path, splits=("dev",)).load()


def test_missing_or_empty_subfolders_are_named(tmp_path):
    (tmp_path / "training_data" / "images").mkdir(parents=True)
    with pytest.raises(DataError, match="missing: expected") as caught:
        Funsd(tmp_path, on_error="skip").load()
    assert caught.value.path.name == "annotations"
    (tmp_path / "training_data" / "annotations").mkdir()
    with pytest.raises(DataError, match="no documents"):
        Funsd(tmp_path).load()
