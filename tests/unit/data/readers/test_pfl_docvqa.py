"""The PFL-DocVQA reader on small hand-made releases."""

import json
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from fedpriv.cli import main
from fedpriv.cli.data.convert import arrays
from fedpriv.data.document import DataError, Question, Word
from fedpriv.data.partition import HoldOut
from fedpriv.data.readers.pfl_arrow import write_records
from fedpriv.data.readers.pfl_docvqa import OfficialClients, PflDocvqa

SIZE = (100, 200)


def record(image="d1_1", question="Total?", **other):
    return {
        "question": question,
        "answers": "9.00\n9",
        "ocr_tokens": ["Total", " ", "9.00"],
        "ocr_normalized_boxes": np.array(
            [[0.1, 0.1, 0.2, 0.2], [0, 0, 0, 0], [0.3, 0.1, 0.5, 0.2]]
        ),
        "image_name": image,
        "set_name": "train",
    } | other


WORDS = (Word("Total", (10, 20, 20, 40), 0), Word("9.00", (30, 20, 50, 40), 2))


class Release:
    """A release under `root`, written array by array.

    Each is converted at once, by what the process of `fedpriv data convert` calls.
    """

    def __init__(self, root):
        self.root = root
        self.imdb = root / "imdb"
        self.imdb.mkdir(parents=True)
        (root / "images").mkdir()

    def array(self, stem, *records, header=True):
        items = [{"version": "1"}, *records] if header else list(records)
        array = np.empty(len(items), dtype=object)
        for place, item in enumerate(items):
            array[place] = item
        np.save(self.imdb / f"{stem}.npy", array, allow_pickle=True)
        for item in records:
            image = self.root / "images" / f"{item['image_name']}.jpg"
            Image.new("L", SIZE, 255).save(image)
        write_records(self.imdb / f"{stem}.npy", self.imdb / f"{stem}.parquet")
        return self

    def json(self, name, content):
        text = content if isinstance(content, str) else json.dumps(content)
        (self.imdb / name).write_text(text, encoding="utf-8")
        return self


@pytest.fixture
def release(tmp_path):
    return Release(tmp_path / "pfl")


@pytest.fixture
def two_clients(release):
    release.array("imdb_train_client_0", record("d1_1"), record("d1_1", "Date?"), record("d1_2"))
    release.array("imdb_train_client_10", record("d3_1"))
    release.array("imdb_train_client_2", record("d2_1"))
    release.array("imdb_val", record("d4_1", set_name="val"), record("d5_1", set_name="val"))
    points = {"client_0": {"A\n&  B": [1, 2, 3]}, "client_2": {"C": [1]}, "client_10": {"D": [1]}}
    release.json("data_points.json", points)
    release.json("red_doc2provider.json", {"d4": {"provider": "C"}})
    return release


def test_questions_about_a_page_make_one_document(two_clients):
    found = PflDocvqa(two_clients.root).load()
    assert (found.name, found.labels, found.skipped) == ("PFL-DocVQA", (), ())
    assert [(d.id, d.split, d.provider) for d in found.documents] == [
        ("d1_1", "train", "A & B"),
        ("d1_2", "train", "A & B"),
        ("d2_1", "train", "C"),
        ("d3_1", "train", "D"),
        ("d4_1", "test", "C"),
        ("d5_1", "test", "d5"),
    ]
    assert [d.whole for d in found.documents] == ["d1", "d1", "d2", "d3", "d4", "d5"]
    page = found.documents[0]
    assert page.questions == (
        Question("", "Total?", ("9.00", "9")),
        Question("", "Date?", ("9.00", "9")),
    )
    assert [word.text for word in page.words] == ["Total", "9.00"]
    for word, expected in zip(page.words, WORDS, strict=True):
        assert word.box == pytest.approx(expected.box, abs=1e-4)
        assert word.segment == expected.segment
    assert (page.size, page.page) == (SIZE, two_clients.root / "images" / "d1_1.jpg")


def test_the_official_clients_hold_their_files(two_clients):
    documents = PflDocvqa(two_clients.root).load().documents
    train, held = HoldOut(by="split").split(documents, seed=0)
    assert held == [4, 5]
    deal = OfficialClients(two_clients.root).deal([documents[i] for i in train], seed=0)
    assert deal == ((0, 1), (2,), (3,))
    with pytest.raises(ValueError, match=r"d4_1: no client of .* holds this page"):
        OfficialClients(two_clients.root).deal(documents, seed=0)
    with pytest.raises(ValueError, match=r"client_2, client_10: none of the training documents"):
        OfficialClients(two_clients.root).deal(documents[:2], seed=0)


def test_without_data_points_the_files_are_the_clients(two_clients):
    (two_clients.imdb / "data_points.json").unlink()
    documents = PflDocvqa(two_clients.root, test=(), without_provider="document").load().documents
    assert [d.provider for d in documents] == ["d1", "d1", "d2", "d3"]
    assert OfficialClients(two_clients.root).deal(documents, 0) == ((0, 1), (2,), (3,))
    with pytest.raises(DataError, match=r"d1 has no provider: .*without_provider='document'"):
        PflDocvqa(two_clients.root).load()


def test_a_file_that_is_not_dealt_out_has_no_official_clients(release):
    release.array("imdb_train", record("d1_1"), record("d2_1"))
    release.json("centralized_data_points.json", {"A": [1], "B": [2]})
    release.json("data_points.json", {"client_0": {"X": [1]}})
    documents = PflDocvqa(release.root, test=()).load().documents
    assert [d.provider for d in documents] == ["A", "B"]
    with pytest.raises(DataError, match=r"is not one client's"):
        OfficialClients(release.root).deal(documents, 0)


def test_flat_data_points_are_those_of_the_one_file(release):
    release.array("train", record("d1_1"), record("d2_1")).json(
        "data_points.json", {"A": [2], "B": [1]}
    )
    documents = PflDocvqa(release.root, test=()).load().documents
    assert [d.provider for d in documents] == ["B", "A"]


def test_an_array_without_header_counts_from_zero(release):
    release.array("train", record("d1_1"), record("d2_1"), header=False)
    release.json("data_points.json", {"A": [1]}).json("provider2docs.json", {"B": ["d1"]})
    documents = PflDocvqa(release.root, test=()).load().documents
    assert [(d.id, d.provider) for d in documents] == [("d1_1", "B"), ("d2_1", "A")]


def test_a_broken_record_does_not_shift_the_data_points(release):
    release.array("train", record("d1_1"), record("d2_1", question=None), record("d3_1"))
    release.json("data_points.json", {"A": [1], "B": [2], "C": [3]})
    documents = PflDocvqa(release.root, test=()).load().documents
    assert [(d.id, d.provider) for d in documents] == [("d1_1", "A"), ("d3_1", "C")]


def test_sets_go_by_file_and_by_set_name(release):
    release.array("blue_train_client_0", record("d1_1", provider="A"))
    release.array("blue_train_client_1", record("d2_1", provider="B"))
    red = [
        record(f"r{i}_1", set_name=f"red_test_{s}") for i, s in enumerate(("positive", "negative"))
    ]
    release.array("red_test", *red)
    everything = {"train": ("blue_train",), "test": ("red_test",)}
    ids = [d.id for d in PflDocvqa(release.root, **everything).load().documents]
    assert ids == ["d1_1", "d2_1", "r0_1", "r1_1"]
    some = PflDocvqa(release.root, **everything, test_names=("red_test_negative",))
    assert [d.id for d in some.load().documents] == ["d1_1", "d2_1", "r1_1"]
    one = PflDocvqa(release.root, train=("blue_train_client_1",), test=())
    assert [d.id for d in one.load().documents] == ["d2_1"]
    with pytest.raises(DataError, match=r"no set 'val': expected val\.parquet, .* holds "):
        PflDocvqa(release.root, train=("blue_train",)).load()


def test_the_record_of_the_membership_challenge_names_its_document(release):
    release.array("train", record("d1_1", provider="A", document="z"))
    release.json("provider2docs.json", {"A": ["z"], "B": ["d1"]})
    (page,) = PflDocvqa(release.root, test=()).load().documents
    assert (page.provider, page.whole) == ("A", "z")


def test_words_come_from_the_first_record_that_has_any(release):
    none = {"ocr_tokens": [], "ocr_normalized_boxes": np.zeros((0, 4))}
    release.array("val", record("d1_1", **none), record("d1_1", "Date?"), record("d2_1", **none))
    first, second = PflDocvqa(release.root, train=(), test=("val",)).load().documents
    assert (len(first.words), len(first.questions)) == (2, 2)
    assert (second.words, len(second.questions)) == ((), 1)


def broken(release, *records, **settings):
    """What is skipped and what is left of held-out records, one of which must be broken."""
    release.array("val", *records)
    reader = PflDocvqa(release.root, train=(), **settings)
    with pytest.raises(DataError):
        reader.load()
    found = PflDocvqa(release.root, train=(), on_error="skip", **settings).load()
    (error,) = found.skipped
    return str(error), [(d.id, len(d.questions)) for d in found.documents]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"question": "  "}, "record 2: its question is empty"),
        ({"ocr_tokens": ["Total", " ", "8.00"]}, "record 2: its words or boxes differ from those"),
        ({"ocr_normalized_boxes": [[0, 0, 1, 1]] * 3}, "differ from those of d1_1"),
        ({"question_id": "val-0"}, "question val-0 of d1_1 occurs twice"),
        ({"provider": "Other"}, "d1_1 is of 'd1' and of 'Other'"),
        ({"document": "z"}, "d1_1 is a page of 'd1' and of 'z'"),
    ],
)
def test_a_record_at_odds_with_its_page_is_left_out(release, change, says):
    first = record("d1_1", set_name="val")
    message, left = broken(release, first, record(**{"question": "Date?"} | change))
    assert says in message
    assert "val.parquet" in message
    assert left == [("d1_1", 1)]


@pytest.mark.parametrize(
    "box",
    [[0, 0, 1.2, 1], [-0.1, 0, 1, 1], [0.5, 0, 0.2, 1], [0, 0, float("nan"), 1], [0, 0, 1, 1e300]],
)
def test_a_box_off_its_page_is_named(release, box):
    boxes = [[0, 0, 1, 1], [9, 9, 9, 9], box]
    with np.errstate(over="ignore"):
        message, left = broken(release, record("d1_1"), record("d2_1", ocr_normalized_boxes=boxes))
    assert "record 2: word 2, '9.00', at [" in message
    assert left == [("d1_1", 1)]


def test_a_page_that_is_trained_on_and_held_out_is_an_error(two_clients):
    two_clients.array("imdb_val", record("d1_1", set_name="val"), record("d4_1", set_name="val"))
    with pytest.raises(DataError, match="d1_1 is a page of the train sets too"):
        PflDocvqa(two_clients.root).load()
    found = PflDocvqa(two_clients.root, on_error="skip").load()
    assert [d.id for d in found.documents if d.split == "test"] == ["d4_1"]


def test_a_page_of_two_clients_is_an_error(two_clients):
    two_clients.array("imdb_train_client_2", record("d1_1"))
    points = {"client_0": {"A": [1, 2, 3]}, "client_2": {"A": [1]}, "client_10": {"D": [1]}}
    two_clients.json("data_points.json", points)
    with pytest.raises(DataError, match="d1_1 is a page of client_0 too"):
        PflDocvqa(two_clients.root).load()
    with pytest.raises(DataError, match="'d1_1' is client_0's too"):
        OfficialClients(two_clients.root).deal((), 0)


def test_images_must_be_there_and_be_images(release):
    release.array("val", record("d1_1"), record("d2_1"), record("d3_1"))
    (release.root / "images" / "d1_1.jpg").unlink()
    (release.root / "images" / "d2_1.jpg").write_bytes(b"no image")
    reader = PflDocvqa(release.root, train=())
    with pytest.raises(DataError, match=r"d1_1\.jpg: missing: record 1 of val\.parquet"):
        reader.load()
    found = PflDocvqa(release.root, train=(), on_error="skip").load()
    assert [error.path.name for error in found.skipped] == ["d1_1.jpg", "d2_1.jpg"]
    assert [d.id for d in found.documents] == ["d3_1"]


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("data_points.json", '{"client_0":\n {"A": [1,}', "line 2: not JSON"),
        ("data_points.json", [], "expected a JSON object, found"),
        ("data_points.json", {"client_1": {}}, "has no 'client_0'"),
        ("data_points.json", {"client_0": [1]}, "expected providers with lists of indexes"),
        ("data_points.json", {"client_0": {"A": [0]}}, "'A': index 0; expected .* from 1 .* to 2"),
        ("data_points.json", {"client_0": {"A": [3]}}, "'A': index 3; expected"),
        ("data_points.json", {"client_0": {"A": [True]}}, "'A': index True"),
        ("data_points.json", {"client_0": {"A": "1"}}, "'A': index '1'"),
        ("data_points.json", {"client_0": {"A": [1], "B": [1]}}, "index 1 is of 'A' and of 'B'"),
        (
            "data_points.json",
            {"client_0": {"A\nB": [1], "A B": [2]}},
            r"'A\\nB' and 'A B': expected",
        ),
        ("data_points.json", {"client_0": {" ": [1]}}, "the provider's name ' '"),
        ("provider2docs.json", {"A": "d1"}, "'A': expected a list of documents"),
        ("provider2docs.json", {"A": ["d1"], "B": ["d1"]}, "'d1' is of 'A' and 'B'"),
        ("red_doc2provider.json", {"d1": {"x": 1}}, "'d1': expected a provider, found None"),
        ("red_doc2provider.json", {"d1": {"provider": "Z"}}, "d1 is of 'A' and of 'Z'"),
    ],
)
def test_what_is_wrong_about_providers_is_named(release, name, content, says):
    release.array("imdb_train_client_0", record("d1_1"), record("d2_1"))
    release.json("data_points.json", {"client_0": {"A": [1, 2]}}).json(name, content)
    with pytest.raises(DataError, match=says):
        PflDocvqa(release.root, test=()).load()


def test_arrays_alone_are_not_read_but_the_command_is_named(two_clients):
    for path in two_clients.imdb.glob("*.parquet"):
        path.unlink()
    says = r"only as \.npy, which are pickles .* First: fedpriv data convert .*pfl$"
    with pytest.raises(DataError, match=says):
        PflDocvqa(two_clients.root).load()


def test_the_command_converts_and_out_is_read_from_there(release, tmp_path, monkeypatch, capsys):
    release.array("imdb_train", record("d1_1", provider="A"), record("d2_1", provider="B"))
    release.array("imdb_val", record("d3_1"))
    for path in release.imdb.glob("*.parquet"):
        path.unlink()
    out = tmp_path / "elsewhere"
    arguments = ["data", "convert", str(release.root), "--out", str(out)]
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert main.main(arguments) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"imdb_train.npy: 2 records, 0 skipped -> {out}/imdb_train.parquet",
        f"imdb_val.npy: 1 records, 0 skipped -> {out}/imdb_val.parquet",
    ]
    assert len(PflDocvqa(release.root, converted=out).load().documents) == 3
    assert list(release.imdb.glob("*.parquet")) == []
    (release.imdb / "imdb_train.npy").write_bytes(b"no array")
    assert main.main(arguments) == 1
    said = capsys.readouterr()
    assert said.out.startswith("imdb_val.npy: 1 records")
    assert "not converted: " in said.err
    assert "imdb_train.npy: not a safe array of records" in said.err


def test_a_killed_conversion_leaves_nothing_that_is_read(two_clients):
    before = PflDocvqa(two_clients.root).load()
    scratch = two_clients.imdb / ".imdb_val.x7k2"
    scratch.mkdir()
    (scratch / "imdb_val.parquet").write_bytes(b"PAR1")
    (two_clients.imdb / ".imdb_train_client_3.parquet").write_bytes(b"PAR1")
    assert PflDocvqa(two_clients.root).load() == before
    assert len(arrays(two_clients.root)) == 4


def test_a_damaged_or_foreign_parquet_says_how_to_get_a_good_one(release):
    path = release.array("val", record("d1_1")).imdb / "val.parquet"
    whole = path.read_bytes()
    reader = PflDocvqa(release.root, train=())
    for end in (0, 3, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:end])
        with pytest.raises(DataError, match="`fedpriv data convert` writes it again"):
            reader.load()
    middle = whole.index(b"PAR1", 0) + 20
    path.write_bytes(whole[:middle] + bytes([whole[middle] ^ 255]) + whole[middle + 1 :])
    with pytest.raises(DataError, match="convert"):
        reader.load()
    path.write_bytes(whole)
    pq.write_table(pq.read_table(path).select(["question"]), path)
    with pytest.raises(DataError, match="not a file of `fedpriv data convert`"):
        reader.load()


def test_settings_are_checked(release):
    with pytest.raises(ValueError, match="without_provider='own': expected 'raise' or 'document'"):
        PflDocvqa(release.root, without_provider="own").load()
    with pytest.raises(DataError, match="there is no folder"):
        PflDocvqa(release.root / "gone").load()
