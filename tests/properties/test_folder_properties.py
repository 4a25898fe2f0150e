"""Whatever lies in a user's folder is read, or refused by a DataError."""

import copy
import json
from pathlib import Path

from folder_pages import SIDES, pdf
from hypothesis import given
from hypothesis import strategies as st

from fedpriv.data.document import DataError, Word
from fedpriv.data.folder import page_file
from fedpriv.data.folder.placing import place_fields
from fedpriv.data.folder.side_files import parse_side_file, words_on
from fedpriv.data.folder.table import parse_table
from fedpriv.data.spelling import like_spellings

PATH = Path("given")
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
JSON = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


def places(value, path=()):
    """Yields the path of every value in plain JSON."""
    yield path
    if isinstance(value, dict | list):
        keys = value if isinstance(value, dict) else range(len(value))
        for key in keys:
            yield from places(value[key], (*path, key))


@st.composite
def broken_json(draw):
    """A side file with something else in one or two places."""
    value = copy.deepcopy(SIDES[draw(st.sampled_from(["ours", "doctr", "textract"]))])
    for _ in range(draw(st.integers(1, 2))):
        left = [p for p in places(value) if p]
        if not left:  # the first change has emptied it
            break
        *path, last = draw(st.sampled_from(left))
        inner = value
        for key in path:
            inner = inner[key]
        if draw(st.booleans()) and isinstance(inner, dict):
            del inner[last]
        else:
            inner[last] = draw(JSON)
    return json.dumps(value).encode()


@st.composite
def broken_bytes(draw, sound):
    """Sound content with a piece cut out, or replaced by other bytes."""
    content = draw(sound)
    start = draw(st.integers(0, len(content)))
    stop = draw(st.integers(start, len(content)))
    return content[:start] + draw(st.binary(max_size=20)) + content[stop:]


SOUND = st.sampled_from(
    [v.encode() if isinstance(v, str) else json.dumps(v).encode() for v in SIDES.values()]
)


def read_side(content):
    try:
        pages = parse_side_file(PATH, content)
    except DataError:
        return
    for page in pages:
        try:
            words = words_on(page, (300, 200))
        except ValueError:
            continue
        for word in words:
            left, top, right, bottom = word.box
            assert 0 <= left < right <= 300
            assert 0 <= top < bottom <= 200
            assert word.text.strip() == word.text != ""


@given(broken_json() | broken_bytes(SOUND) | st.binary(max_size=200))
def test_side_files_are_read_or_refused(content):
    read_side(content)


ROWS = st.lists(st.lists(st.text('abc,;"\n\r\t ./é\0', max_size=6), max_size=4), max_size=5)


@given(ROWS, st.sampled_from([",", ";", "\t"]), st.sampled_from(["utf-8", "utf-16", "latin-1"]))
def test_tables_are_read_or_refused(rows, separator, encoding):
    text = "\n".join(separator.join(row) for row in [["file", "total"], *rows])
    try:
        table = parse_table(PATH.with_suffix(".csv"), text.encode(encoding), ["a", "b", "a/b"])
    except DataError:
        return
    assert set(table.files) <= {"a", "b", "a/b"}
    assert all(error.line for error in table.problems)


@given(st.binary(max_size=80) | st.lists(JSON, max_size=4).map(
    lambda rows: "\n".join(json.dumps(row) for row in rows).encode()
))  # fmt: skip
def test_tables_of_json_are_read_or_refused(content):
    for suffix in (".jsonl", ".csv"):
        try:
            parse_table(PATH.with_suffix(suffix), content, ["a"])
        except DataError:
            continue


@given(st.lists(st.dictionaries(
    st.sampled_from(["file", "provider", "split", "question", "answer", "total"]),
    st.sampled_from(["a", "b", "", 1, None]) | JSON, max_size=6), max_size=4))  # fmt: skip
def test_rows_of_any_shape_are_read_or_refused(rows):
    content = "\n".join(map(json.dumps, rows)).encode()
    try:
        table = parse_table(PATH.with_suffix(".jsonl"), content, ["a", "b"])
    except DataError:
        return
    for labels in table.files.values():
        assert all(text and isinstance(text, str) for text in labels.fields.values())
        assert all(labels.questions.values())


@given(broken_bytes(st.just(pdf())))
def test_broken_pdfs_are_read_or_refused(tmp_path_factory, content):
    root = tmp_path_factory.mktemp("pdf")
    (root / "a.pdf").write_bytes(content)
    try:
        file = page_file.FileIndex(root, 36, {}).look("a.pdf", "")
    except DataError:
        return
    for number in range(len(file.sizes)):
        try:
            page_file.text_layer(root, file, number, 36)
            page_file.draw(root, file, number, 36)
        except DataError:
            continue


WORDS = st.lists(st.text(min_size=1, max_size=8).filter(str.strip), max_size=12)


def on_a_line(texts):
    return [Word(text, (10.0 * n, 0.0, 10.0 * n + 9, 9.0), 0) for n, text in enumerate(texts)]


@given(WORDS, st.dictionaries(st.text(max_size=5), st.text(max_size=20), max_size=3))
def test_any_value_is_looked_for_on_any_page(texts, fields):
    found = place_fields([on_a_line(texts)], fields)
    assert list(found) == list(fields)
    taken = [n for place in found.values() if place for n in range(place[1], place[2])]
    assert len(taken) == len(set(taken))
    assert all(0 <= n < len(texts) for n in taken)


LETTERS = st.text("abcdefghijkl", min_size=2, max_size=8)


@given(st.lists(LETTERS, min_size=1, max_size=10), st.data())
def test_what_stands_on_the_page_is_found(texts, data):
    start = data.draw(st.integers(0, len(texts) - 1))
    stop = data.draw(st.integers(start + 1, len(texts)))
    value = " ".join(texts[start:stop])
    place = place_fields([on_a_line(texts)], {"name": value.upper()})["name"]
    assert place is not None
    # The same letters may stand there elsewhere, or cut into other words.
    assert "".join(texts[start:stop]) in "".join(texts[place[1] : place[2]])


@given(st.dictionaries(st.text(max_size=8), st.integers(1, 9), max_size=8))
def test_like_names_are_names_that_are_there(sizes):
    for one, other in like_spellings(sizes):
        assert one != other
        assert sizes[one] >= sizes[other]
