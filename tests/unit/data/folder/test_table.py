"""Tables of labels: fields, questions, and every mistake with its line."""

import json
from pathlib import Path

import pytest

from fedpriv.data.document import DataError
from fedpriv.data.folder.table import find_table, parse_table

FILES = ("a/1.jpg", "a/2.pdf", "b/3.png")


def read(text, name="labels.csv", files=FILES):
    content = text if isinstance(text, bytes) else text.encode()
    return parse_table(Path(name), content, files)


def test_fields_of_a_file():
    table = read("File,provider,split,total,Due date\na/1.jpg, ACME ,train,12.50,\n")
    assert table.columns == ("file", "provider", "split", "total", "Due date")
    assert table.fields == ("total", "Due date")
    row = table.files["a/1.jpg"]
    assert (row.provider, row.split, row.fields) == ("ACME", "train", {"total": "12.50"})
    assert table.problems == ()


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbffile;total\r\na/1.jpg;1,5\r\n",
        "file;total\na/1.jpg;1,5\n".encode("utf-16"),
        b'file\ttotal\na/1.jpg\t"1,5"\n',
    ],
)
def test_what_spreadsheets_write(content):
    assert read(content).files["a/1.jpg"].fields == {"total": "1,5"}


def test_questions_in_several_rows():
    rows = "file,question,answer\na/1.jpg,Who?,ACME\na/1.jpg,When?,Monday\na/1.jpg,Who?,Acme Ltd\n"
    assert read(rows).files["a/1.jpg"].questions == {
        "Who?": ("ACME", "Acme Ltd"),
        "When?": ("Monday",),
    }


def test_json_lines_hold_numbers_and_lists_of_answers():
    rows = [
        {"file": "a/1.jpg", "total": 12.5, "due": None},
        {"file": "b/3.png", "question": "Who?", "answer": ["A", "B"]},
    ]
    table = read("\n\n".join(map(json.dumps, rows)), "labels.jsonl")
    assert table.files["a/1.jpg"].fields == {"total": "12.5"}
    assert table.files["b/3.png"].questions == {"Who?": ("A", "B")}


def test_only_a_name_that_is_close_is_suggested():
    (error,) = read("file,total\ngone.jpg,1\n", files=("ok1.jpg", "a/ok2.jpg")).problems
    assert error.why == "there is no page 'gone.jpg' in this folder"


def test_every_row_that_cannot_be_used_is_told_at_once():
    table = read(
        "file,provider,total\n"
        "a/1.jpg,A,1\n"
        "a/9.jpg,A,1\n"
        "a/1.jpg,A,2\n"
        "../x.jpg,A,1\n"
        "b/3.png,A\n"
        "a/2.pdf,B,3\n"
        ",B,3\n"
    )
    assert [(error.line, error.why) for error in table.problems] == [
        (3, "there is no page 'a/9.jpg' in this folder; did you mean 'a/1.jpg'?"),
        (4, "a/1.jpg stands in line 2 already"),
        (5, "the file name '../x.jpg' climbs out by \"..\"; expected a path in this folder"),
        (6, "2 cells, but the table has 3 columns"),
        (8, "the file is not named"),
    ]
    assert list(table.files) == ["a/1.jpg", "a/2.pdf"]


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("", 1, "expected a column 'file' with paths in the folder; found none"),
        ("name,total\na,1\n", 1, "found 'name', 'total'"),
        ("file,total,total\n", 1, "'total' stands there twice"),
        ("file,,total\n", 1, "a column has no name"),
        ("file,question\n", 1, "'question' and 'answer' go together"),
        (b"file,total\na/1.jpg,\xe9\n", 2, "not UTF-8: it holds the byte e9"),
        (b"file,total\na/1.jpg,\0\n", 2, "NUL character"),
        ("file,total\n", None, "a table without rows"),
    ],
)
def test_a_table_that_cannot_be_used_at_all(text, line, says):
    with pytest.raises(DataError, match=says) as caught:
        read(text)
    assert caught.value.line == line


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ("file,question,answer\na/1.jpg,Who?,\n", "has no answer"),
        ("file,question,answer\na/1.jpg,,ACME\n", "an answer without a question"),
        ("file,question,answer\na/1.jpg,Q,A\na/1.jpg,Q,A\n", "stands there twice"),
        (
            "file,provider,question,answer\na/1.jpg,X,Q,A\na/1.jpg,Y,R,A\n",
            "the provider 'Y' here and 'X' in line 2",
        ),
        ('file,total\na/1.jpg,"1\n', "not a row of a table"),
    ],
)
def test_rows_that_contradict(rows, says):
    (problem,) = read(rows).problems
    assert says in problem.why


def test_lines_of_json_that_are_none():
    table = read('{"file": "a/1.jpg"}\n[]\n{\n{"file": "a/2.pdf", "x": {}}\n', "labels.jsonl")
    assert [error.line for error in table.problems] == [2, 3, 4]


def test_a_table_of_more_columns_than_documents_have_is_refused():
    wide = ",".join(["file", *(f"c{n}" for n in range(100_000))])
    with pytest.raises(DataError, match="100,001 columns: expected at most 1,000"):
        read(f"{wide}\n")


def test_one_table_is_found(tmp_path):
    assert find_table(tmp_path, None) is None
    (tmp_path / "labels.csv").write_text("file\n")
    assert find_table(tmp_path, None) == tmp_path / "labels.csv"
    (tmp_path / "labels.jsonl").write_text("")
    with pytest.raises(DataError, match=r"set data\.source\.labels"):
        find_table(tmp_path, None)
    assert find_table(tmp_path, "labels.csv") == tmp_path / "labels.csv"
    with pytest.raises(DataError, match="climbs out"):
        find_table(tmp_path, "../labels.csv")
