"""The DocVQA reader on small hand-made folders."""

import json

import pytest
from PIL import Image

from fedpriv.data.document import DataError, Question, Word
from fedpriv.data.partition import HoldOut
from fedpriv.data.readers.docvqa import DocVqa

SIZE = (100, 200)


def quad(x0, y0, x1, y1):
    return [x0, y0, x1, y0, x1, y1, x0, y1]


LINES = [
    {"text": "A b", "words": [{"text": "A", "boundingBox": quad(1, 2, 9, 8)},
                              {"text": "b", "boundingBox": [19, 8, 10, 8, 10, 2, 19, 2]}]},
    {"text": "", "words": [{"text": " ", "boundingBox": []}]},
    {"text": "c", "words": [{"text": " c ", "boundingBox": quad(1, 20, 5, 20)}]},
]  # fmt: skip
WORDS = (Word("A", (1, 2, 9, 8), 0), Word("b", (10, 2, 19, 8), 0), Word("c", (1, 20, 5, 21), 2))


def question(number, document="ab12", page="3", **other):
    return {
        "questionId": number,
        "question": f"Question {number}?",
        "image": f"documents/{document}_{page}.png",
        "docId": 1,
        "ucsf_document_id": document,
        "ucsf_document_page_no": page,
        "answers": [f"answer {number}"],
        "data_split": "val",
    } | other


class Folder:
    """A split in `base`: write the questions last, the pages come with them."""

    def __init__(self, base, split="val"):
        self.base, self.split = base, split
        for name in ("documents", "ocr_results"):
            (base / name).mkdir(parents=True, exist_ok=True)

    def questions(self, *items, name="{}_v1.0.json"):
        content = {"dataset_name": "x", "data": list(items)}
        (self.base / name.format(self.split)).write_text(json.dumps(content), encoding="utf-8")
        for item in items:
            if isinstance(item, dict):
                self.page(f"{item['ucsf_document_id']}_{item['ucsf_document_page_no']}")
        return self

    def page(self, stem, **other):
        page = {"page": 1, "width": SIZE[0], "height": SIZE[1], "unit": "pixel", "lines": LINES}
        self.ocr(stem, {"status": "Succeeded", "recognitionResults": [page | other]})
        Image.new("L", SIZE, 255).save(self.base / "documents" / f"{stem}.png")

    def ocr(self, stem, content):
        text = content if isinstance(content, str) else json.dumps(content)
        (self.base / "ocr_results" / f"{stem}.json").write_text(text, encoding="utf-8")


@pytest.fixture
def val(tmp_path):
    return Folder(tmp_path / "val")


def test_a_page_has_all_its_questions_and_the_words_of_its_lines(val, tmp_path):
    val.questions(
        question(1),
        question(2, page="4", answers=["x", " x ", "", "y"]),
        question(3),
        question(4, "zz99", "1"),
    )
    found = DocVqa(tmp_path).load()
    assert (found.name, found.labels, found.skipped) == ("DocVQA", (), ())
    assert [(d.id, d.provider, d.split) for d in found.documents] == [
        ("ab12_3", "ab12", "test"),
        ("ab12_4", "ab12", "test"),
        ("zz99_1", "zz99", "test"),
    ]
    assert [d.whole for d in found.documents] == ["ab12", "ab12", "zz99"]
    page, other, _ = found.documents
    assert page.words == WORDS
    assert page.questions == (
        Question("", "Question 1?", ("answer 1",)),
        Question("", "Question 3?", ("answer 3",)),
    )
    assert other.questions[0].answers == ("x", "y")
    assert (page.size, page.page) == (SIZE, tmp_path / "val" / "documents" / "ab12_3.png")


def test_splits_lie_together_or_apart_and_test_has_no_answers(tmp_path):
    Folder(tmp_path, "train").questions(question(1), name="{}_v1.0_withQT.json")
    unanswered = question(2, "q")
    del unanswered["answers"]
    Folder(tmp_path / "test", "test").questions(unanswered)
    assert [d.id for d in DocVqa(tmp_path).load().documents] == ["ab12_3"]
    both = DocVqa(tmp_path, splits=("train", "test")).load().documents
    assert [(d.id, d.split) for d in both] == [("ab12_3", "train"), ("q_3", "test")]
    assert both[1].questions == (Question("", "Question 2?", ()),)
    assert HoldOut(by="split").split(both, seed=0) == ([0], [1])
    with pytest.raises(DataError, match=r"no val_v1\.0\.json here or in a folder"):
        DocVqa(tmp_path, splits=("val",)).load()
    with pytest.raises(
        ValueError, match=r"splits=\('dev',\): expected one or more of 'train', 'val'"
    ):
        DocVqa(tmp_path, splits=("dev",)).load()


def test_a_page_of_two_splits_is_an_error(tmp_path):
    for split in ("train", "val"):
        Folder(tmp_path / split, split).questions(question(1), question(2, split))
    with pytest.raises(DataError, match="ab12_3 is a page of another split too"):
        DocVqa(tmp_path).load()
    found = DocVqa(tmp_path, on_error="skip").load()
    assert [(d.id, d.split) for d in found.documents] == [
        ("ab12_3", "train"),
        ("train_3", "train"),
        ("val_3", "test"),
    ]
    assert len(found.skipped) == 1


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"questionId": 1}, "the questionId 1 occurs twice"),
        ({"questionId": None}, "expected a questionId, found None"),
        ({"question": " "}, "expected a text question, found ' '"),
        ({"image": 7}, "expected a text image, found 7"),
        ({"image": "documents/other.png"}, "ab12_3 has the images 'documents/ab12_3.png' and"),
        ({"ucsf_document_page_no": None}, "expected a text ucsf_document_page_no, found None"),
        ({"answers": "x"}, "expected a list of answers, found 'x'"),
        ({"answers": [3]}, "expected a list of answers"),
    ],
)
def test_a_malformed_question_is_named_by_place_and_skipped(val, tmp_path, change, says):
    val.questions(question(1), question(2) | change)
    with pytest.raises(DataError, match=rf"data\[1\]: .*{says}"):
        DocVqa(tmp_path).load()
    found = DocVqa(tmp_path, on_error="skip").load()
    assert [len(d.questions) for d in found.documents] == [1]
    assert len(found.skipped) == 1


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ('{"data":\n [}', 2, "not JSON"),
        ("[]", None, "expected an object with 'data'"),
        ('{"data": {}}', None, "expected a list for 'data'"),
        ("[" * 100_000, None, "nested too deeply"),
    ],
)
def test_a_broken_list_of_questions_raises_even_under_skip(val, tmp_path, text, line, says):
    (tmp_path / "val" / "val_v1.0.json").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=says) as caught:
        DocVqa(tmp_path, on_error="skip").load()
    assert caught.value.line == line


def word(box, text="a"):
    return {"recognitionResults": [{"lines": [{"words": [{"text": text, "boundingBox": box}]}]}]}


@pytest.mark.parametrize(
    ("ocr", "says"),
    [
        ("{", "line 1: not JSON"),
        ([], r"an object with 'recognitionResults', found \[\]"),
        ({"recognitionResults": []}, "it has no page"),
        ({"recognitionResults": [[]]}, "expected an object with 'lines', found"),
        ({"recognitionResults": [{}]}, "expected a list for 'lines'"),
        ({"recognitionResults": [{"lines": [{"text": "a"}]}]}, "expected a list for 'words'"),
        (word([1] * 8, None), "expected a text for 'text', found None"),
        (word([1] * 7), "expected 8 finite numbers"),
        (word([1] * 7 + ["1"]), "expected 8 finite numbers"),
        (word([1] * 7 + [float("nan")]), "expected 8 finite numbers"),
        (word([1] * 7 + [float("inf")]), "expected 8 finite numbers"),
        (word([1] * 7 + [10**400]), "expected 8 finite numbers"),
        (word(quad(0, 0, 300, 10)), "0 to 300 is not within the page's 0 to 100 pixels"),
        ({"recognitionResults": [{"width": 50, "height": 100, "lines": []}]}, "50 × 100 pixels"),
        ({"recognitionResults": [{"width": "a", "lines": []}]}, "'a' × 200 pixels"),
    ],
)
def test_broken_ocr_is_named_and_its_page_skipped(val, tmp_path, ocr, says):
    val.questions(question(1), question(2, "good"))
    val.ocr("ab12_3", ocr)
    with pytest.raises(DataError, match=says) as caught:
        DocVqa(tmp_path).load()
    assert caught.value.path == tmp_path / "val" / "ocr_results" / "ab12_3.json"
    found = DocVqa(tmp_path, on_error="skip").load()
    assert [d.id for d in found.documents] == ["good_3"]
    assert len(found.skipped) == 1


def test_missing_files_are_named(val, tmp_path):
    val.questions(question(1), question(2, "b"), question(3, "c"))
    base = tmp_path / "val"
    (base / "documents" / "ab12_3.png").unlink()
    (base / "ocr_results" / "b_3.json").unlink()
    (base / "documents" / "c_3.png").write_bytes(b"no image")
    found = DocVqa(tmp_path, on_error="skip").load()
    assert found.documents == ()
    assert [str(error).removeprefix(f"{base}/") for error in found.skipped[:2]] == [
        "documents/ab12_3.png: missing: val_v1.0.json asks about this page",
        "ocr_results/b_3.json: there is no such file",
    ]
    assert "not an image" in str(found.skipped[2])
