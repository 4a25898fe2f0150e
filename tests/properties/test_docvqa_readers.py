"""Whatever a release holds: documents, a `DataError` or a counted skip, and nothing from outside.

Every file that is opened meanwhile is watched through Python's audit events.
"""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from PIL import Image
from thorough import THOROUGH, examples

from fedpriv.data.document import DataError
from fedpriv.data.paths import inside
from fedpriv.data.readers.docvqa import DocVqa
from fedpriv.data.readers.pfl_arrow import LENGTH, SCHEMA
from fedpriv.data.readers.pfl_docvqa import OfficialClients, PflDocvqa

SIZE = (60, 80)
ROOMY = examples(
    30,
    60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

_watched = []
_watching = []


def _watch(event, arguments):
    if _watching and event == "open" and isinstance(arguments[0], str | bytes):
        _watched.append(Path(os.fsdecode(arguments[0])))


sys.addaudithook(_watch)


@contextlib.contextmanager
def nothing_opened_outside(folder):
    """Fails if a file is opened outside of `folder`, Python's own and the cache aside."""
    for module in ("JpegImagePlugin", "PngImagePlugin"):  # imported at the first image otherwise
        __import__(f"PIL.{module}")
    _watched.clear()
    _watching.append(True)
    try:
        yield
    finally:
        _watching.clear()
    root = Path(__file__).resolve().parents[2]
    ours = (sys.prefix, sys.base_prefix, str(root), os.environ["FEDPRIV_CACHE"], os.devnull)
    opened = [path.resolve() for path in _watched if not str(path).startswith(ours)]
    assert [path for path in opened if folder.resolve() not in path.parents] == []


def checked(source, folder):
    """Loads under both ways with errors; returns the documents and how many were skipped."""
    with nothing_opened_outside(folder):
        with contextlib.suppress(DataError):
            type(source)(**vars(source) | {"on_error": "raise"}).load()
        try:
            found = type(source)(**vars(source) | {"on_error": "skip"}).load()
        except DataError as error:
            return (), str(error)
    ids = [document.id for document in found.documents]
    assert len(set(ids)) == len(ids)
    for document in found.documents:
        assert folder.resolve() in document.page.resolve().parents
        assert document.provider
        for word in document.words:
            x0, y0, x1, y1 = word.box
            assert 0 <= x0 < x1 <= document.size[0]
            assert 0 <= y0 < y1 <= document.size[1]
            assert word.text.strip()
        assert document.questions
        assert all(question.text.strip() for question in document.questions)
    return found.documents, len(found.skipped)


def question(number=1, **other):
    return {
        "questionId": number,
        "question": "Total?",
        "image": "documents/a_1.png",
        "ucsf_document_id": "a",
        "ucsf_document_page_no": "1",
        "answers": ["9"],
    } | other


OCR = {"text": "9", "boundingBox": [1, 1, 9, 1, 9, 9, 1, 9]}


@pytest.fixture
def docvqa(tmp_path):
    """A function that writes a DocVQA folder around its questions, next to a secret."""
    root = tmp_path / "release"
    for name in ("documents", "ocr_results"):
        (root / name).mkdir(parents=True)
    Image.new("L", SIZE, 255).save(root / "documents" / "a_1.png")
    secret(tmp_path)

    def write(questions, words=(OCR,), ocr=None):
        page = {"recognitionResults": [{"lines": [{"words": list(words)}]}]} if ocr is None else ocr
        (root / "ocr_results" / "a_1.json").write_text(json.dumps(page), "utf-8")
        text = questions if isinstance(questions, str) else json.dumps({"data": questions})
        (root / "val_v1.0.json").write_text(text, "utf-8")
        return root

    return write


def secret(folder):
    """Files that a reader would take for its own if it looked there."""
    for name in ("secret.png", "secret.jpg"):
        Image.new("L", SIZE, 0).save(folder / name)
    page = {"recognitionResults": [{"lines": [{"words": [OCR]}]}]}
    (folder / "secret.json").write_text(json.dumps(page), "utf-8")


def row(image="a_1", **other):
    return {
        "position": 1,
        "question": "Total?",
        "answers": ["9"],
        "words": ["9"],
        "boxes": [[0.1, 0.1, 0.2, 0.2]],
        "image_name": image,
        "set_name": "val",
        "question_id": "0",
        "provider": None,
        "document": None,
        "label": None,
    } | other


@pytest.fixture
def pfl(tmp_path):
    """A function that writes a converted PFL-DocVQA folder around its rows, next to a secret."""
    root = tmp_path / "release"
    (root / "imdb").mkdir(parents=True)
    (root / "images").mkdir()
    Image.new("L", SIZE, 255).save(root / "images" / "a_1.jpg")
    secret(tmp_path)

    def write(*rows, name="imdb_val"):
        schema = SCHEMA.with_metadata({LENGTH: str(len(rows) + 1).encode()})
        placed = [{**item, "position": place} for place, item in enumerate(rows, 1)]
        pq.write_table(pa.Table.from_pylist(placed, schema), root / "imdb" / f"{name}.parquet")
        return root

    return write


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)
number = st.floats(width=32) | st.sampled_from([0.0, 1.0, 0.5, -0.2, 1.001, 2.0])
LEADS_OUT = [
    "../secret",
    "../../etc/passwd",
    "/etc/passwd",
    "..\\secret",
    "a\0b",
    "",
    "link",
    "x" * 300,
]


@ROOMY
@given(st.sampled_from(sorted(question())), anything)
def test_docvqa_takes_any_value_of_any_field(docvqa, name, value):
    root = docvqa([question(1), question(2) | {name: value}, question(3)])
    documents, skipped = checked(DocVqa(root, ("val",)), root)
    assert sum(len(d.questions) for d in documents) + skipped == 3


@ROOMY
@given(anything, anything)
def test_docvqa_takes_any_words_and_any_page(docvqa, value, page):
    for content in ({"words": [OCR, value]}, {"ocr": page}):
        root = docvqa([question()], **content)
        documents, skipped = checked(DocVqa(root, ("val",)), root)
        assert len(documents) + skipped == 1


@ROOMY
@given(st.lists(st.floats() | st.integers(), min_size=8, max_size=8))
def test_docvqa_boxes_are_on_the_page_or_refused(docvqa, box):
    root = docvqa([question()], [OCR | {"boundingBox": box}])
    documents, skipped = checked(DocVqa(root, ("val",)), root)
    on_page = all(0 <= x <= SIZE[0] for x in box[::2]) and all(0 <= y <= SIZE[1] for y in box[1::2])
    assert len(documents) + skipped == 1
    assert documents or not on_page


@ROOMY
@given(st.data())
def test_a_cut_or_altered_list_of_questions_is_a_data_error_or_skips(docvqa, data):
    whole = json.dumps({"data": [question(1), question(2)]})
    end = data.draw(st.integers(0, len(whole) - 1))
    root = docvqa(whole[:end])
    with pytest.raises(DataError, match="not JSON"):
        DocVqa(root, ("val",), on_error="skip").load()
    letter = data.draw(st.characters(codec="utf-8"))
    checked(DocVqa(docvqa(whole[:end] + letter + whole[end + 1 :]), ("val",)), root)


@pytest.mark.parametrize("name", LEADS_OUT)
@pytest.mark.parametrize("field", ["image", "ucsf_document_id"])
def test_docvqa_follows_no_name_out_of_its_folder(docvqa, name, field):
    root = docvqa([question(1), question(2, ucsf_document_page_no="2") | {field: name}])
    for place in ("documents", "ocr_results"):
        (root / place / "link_2.json").symlink_to(root.parent / "secret.json")
    (root / "link").symlink_to(root.parent / "secret.png")
    documents, skipped = checked(DocVqa(root, ("val",)), root)
    assert [d.id for d in documents] == ["a_1"]
    assert skipped == 1


@pytest.mark.parametrize("name", ["val_v1.0.json", "documents", "ocr_results"])
def test_docvqa_follows_no_link_of_its_own_files_out(docvqa, name):
    root = docvqa([question()])
    (root / name).rename(root.parent / "moved")
    (root / name).symlink_to(root.parent / "moved")
    with (
        nothing_opened_outside(root),
        pytest.raises(DataError, match="a link that leads out of the data's folder"),
    ):
        DocVqa(root, ("val",)).load()


@ROOMY
@given(
    st.lists(
        st.builds(
            row,
            image=st.sampled_from(["a_1", "gone_1", *LEADS_OUT]) | st.text(max_size=9),
            question=st.sampled_from(["", " ", "Total?"]),
            answers=st.lists(st.text(max_size=3), max_size=2),
            question_id=st.sampled_from(["0", "1", "2", "3"]),
            provider=st.none() | st.text(max_size=3),
            words=st.just(["9"]) | st.just([" "]),
            boxes=st.lists(number, min_size=4, max_size=4).map(lambda box: [box]),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_pfl_takes_any_records(pfl, rows):
    rows = [{**item, "image_name": item["image_name"].replace("\ud800", "")} for item in rows]
    root = pfl(*rows)
    documents, skipped = checked(PflDocvqa(root, train=()), root)
    assert sum(len(d.questions) for d in documents) + skipped == len(rows)
    assert {d.id for d in documents} <= {"a_1"}


@ROOMY
@given(st.lists(number, min_size=4, max_size=4))
def test_pfl_boxes_are_on_the_page_or_refused(pfl, box):
    root = pfl(row(boxes=[box]))
    documents, skipped = checked(PflDocvqa(root, train=()), root)
    x0, y0, x1, y1 = np.float32(box)
    assert len(documents) + skipped == 1
    if 0 <= x0 <= x1 <= 1 and 0 <= y0 <= y1 <= 1:
        assert len(documents) == 1
    if not (x0 <= x1 and y0 <= y1):
        assert skipped == 1


@pytest.mark.parametrize("name", LEADS_OUT)
def test_pfl_follows_no_name_out_of_its_folder(pfl, name):
    root = pfl(row(), row(name))
    (root / "images" / "link.jpg").symlink_to(root.parent / "secret.jpg")
    documents, skipped = checked(PflDocvqa(root, train=()), root)
    assert [d.id for d in documents] == ["a_1"]
    assert skipped == 1


@pytest.mark.parametrize(
    "name", ["images", "imdb", "imdb/imdb_val.parquet", "imdb/provider2docs.json"]
)
def test_pfl_follows_no_link_of_its_own_files_out(pfl, name):
    root = pfl(row())
    (root / "imdb" / "provider2docs.json").write_text('{"P": ["a"]}', "utf-8")
    (root / name).rename(root.parent / "moved")
    (root / name).symlink_to(root.parent / "moved")
    with (
        nothing_opened_outside(root),
        pytest.raises(DataError, match="a link that leads out of the data's folder"),
    ):
        PflDocvqa(root, train=()).load()


@ROOMY
@given(
    st.sampled_from(["data_points.json", "provider2docs.json", "red_doc2provider.json"]), anything
)
def test_pfl_takes_any_json_about_providers(pfl, name, value):
    root = pfl(row(), name="imdb_train_client_0")
    for other in root.glob("imdb/*.json"):
        other.unlink()
    for content in (value, {"client_0": value}, {"client_0": {"A": value}}, {"a": value}):
        (root / "imdb" / name).write_text(json.dumps(content), "utf-8")
        source = PflDocvqa(root, test=(), without_provider="document")
        documents, _ = checked(source, root)
        with nothing_opened_outside(root), contextlib.suppress(ValueError):
            hands = OfficialClients(root).deal(documents, 0)
            assert sorted(place for hand in hands for place in hand) == [*range(len(documents))]


FUZZ = """
import pathlib, random, sys
from fedpriv.data.readers import pfl_arrow
from fedpriv.data.document import DataError
path, count = pathlib.Path(sys.argv[1]), int(sys.argv[2])
pfl_arrow._limit(2**29, 120)
whole, guard, draw = path.read_bytes(), pfl_arrow._Shut(), random.Random(1)
start, good, bad = whole.index(b"\\x80\\x04"), 0, 0
for _ in range(count):
    altered = bytearray(whole)
    for _ in range(draw.choice((1, 1, 2, 8))):
        altered[draw.randrange(start, len(whole))] = draw.randrange(256)
    with path.open("r+b") as file:
        file.write(altered)
    try:
        pfl_arrow.write_records(path, path.with_suffix(".parquet"), guard)
        good += 1
    except DataError:
        bad += 1
print(good, bad)
"""


def test_altered_pickles_are_read_or_a_data_error_and_do_nothing_else(tmp_path):
    """Bytes changed at random, in a process with limits: some alterations take much memory."""
    record = row(ocr_tokens=["9"] * 3, ocr_normalized_boxes=np.full((3, 4), 0.5))
    items = np.array([{"version": 1}, record, record | {"question": "Date?"}], dtype=object)
    np.save(tmp_path / "a.npy", items, allow_pickle=True)
    count = 1500 if THOROUGH else 500
    command = [sys.executable, "-c", FUZZ, str(tmp_path / "a.npy"), str(count)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    good, bad = map(int, done.stdout.split())
    assert good + bad == count
    assert min(good, bad) > count / 15


def test_the_watch_sees_what_is_opened_outside(tmp_path):
    """Otherwise the tests above would prove nothing."""
    (tmp_path / "release").mkdir()
    secret(tmp_path)
    with pytest.raises(AssertionError), nothing_opened_outside(tmp_path / "release"):
        (tmp_path / "secret.json").read_text("utf-8")
    with pytest.raises(AssertionError), nothing_opened_outside(tmp_path / "release"):
        Image.open(tmp_path / "secret.png").close()


@ROOMY
@given(st.text(max_size=12) | st.lists(st.sampled_from(["..", ".", "a", "", "in"])).map("/".join))
def test_inside_stays_inside(tmp_path, name):
    (tmp_path / "home").mkdir(exist_ok=True)
    try:
        path = inside(tmp_path / "home", name)
    except DataError:
        return
    assert os.path.realpath(path).startswith(os.path.realpath(tmp_path / "home") + os.sep)
    assert ".." not in path.parts
    assert not os.path.isabs(name)


@pytest.mark.parametrize("name", [name for name in LEADS_OUT if name != "link"])
def test_inside_refuses_what_leads_out(tmp_path, name):
    with pytest.raises(DataError, match=r"absolute|climbs out|NUL|empty|255 bytes"):
        inside(tmp_path, name)
