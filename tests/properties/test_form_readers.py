"""Whatever a folder holds, a form reader returns sound documents or says `DataError`.

Nothing else may be raised, and no file outside the folder may be opened.
"""

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from form_folders import (
    docile_field,
    wild_receipt,
    write,
    write_cord,
    write_docile,
    write_funsd,
    write_image,
    write_sroie,
    write_wildreceipt,
    write_xfund,
    xfund_form,
)
from hypothesis import given
from hypothesis import strategies as st
from thorough import examples

from fedpriv.data.document import DataError
from fedpriv.data.readers.cord import Cord
from fedpriv.data.readers.docile import Docile
from fedpriv.data.readers.funsd import Funsd
from fedpriv.data.readers.sroie import Sroie
from fedpriv.data.readers.wildreceipt import Wildreceipt
from fedpriv.data.readers.xfund import Xfund


class Layout(NamedTuple):
    """How to write a sound folder, how to read it, and which of its files are annotations."""

    write: Callable[[Path], None]
    load: Callable[..., object]
    files: tuple[str, ...]


def manifest(root):
    write_sroie(root)
    row = {"id": "X1", "split": "train", "provider": "AB", "size": [100, 200], "scale": [1, 1]}
    write(root / "manifest.jsonl", row)


LAYOUTS = {
    "cord": Layout(write_cord, Cord, ("train/json/receipt_00000.json",)),
    "cord without images": Layout(
        lambda root: write_cord(root, image=None),
        lambda root, **rest: Cord(root, images="blank", **rest),
        ("train/json/receipt_00000.json",),
    ),
    "xfund": Layout(
        lambda root: write_xfund(root, [xfund_form("a"), xfund_form("b")]),
        Xfund,
        ("zh.train.json",),
    ),
    "wildreceipt": Layout(
        lambda root: write_wildreceipt(root, [wild_receipt()]),
        Wildreceipt,
        ("train.txt", "class_list.txt"),
    ),
    "docile": Layout(
        write_docile, Docile, ("train.json", "annotations/d1.json", "ocr/d1.json", "pdfs/d1.pdf")
    ),
    "docile without pages": Layout(
        lambda root: write_docile(root, pages=0),
        lambda root, **rest: Docile(root, pages="blank", **rest),
        ("train.json", "annotations/d1.json", "ocr/d1.json"),
    ),
    "funsd": Layout(write_funsd, Funsd, ("dataset/training_data/annotations/1.json",)),
    "sroie": Layout(
        manifest, Sroie, ("train/entities/X1.txt", "train/box/X1.txt", "manifest.jsonl")
    ),
}
FILES = [(name, file) for name, layout in LAYOUTS.items() for file in layout.files]
OBJECTS = [pair for pair in FILES if not pair[1].endswith(("class_list.txt", "box/X1.txt", ".pdf"))]

# ------------------------------------------------------------------------------ what must hold

opened: list[str] = []
watching = False


def watch(event, arguments):
    if watching and event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
        opened.append(os.fsdecode(arguments[0]))


sys.addaudithook(watch)


def read(layout, base, **rest):
    """Loads ``base / "data"``; returns None where that was a `DataError`."""
    global watching
    opened.clear()
    watching = True
    try:
        return layout.load(base / "data", **rest).load()
    except DataError:
        return None
    finally:
        watching = False
        home, data = base.resolve(), (base / "data").resolve()
        for path in map(Path, opened):
            real = path.resolve()
            assert home not in real.parents or data in real.parents, f"opened {path}"


def check(layout, base):
    """Reads with and without skipping; checks what comes back. Returns the set, if there is one."""
    strict = read(layout, base, on_error="raise")
    lenient = read(layout, base, on_error="skip")
    if strict is not None:
        assert lenient is not None
        assert lenient.skipped == ()
    for found in filter(None, (strict, lenient)):
        assert len({document.id for document in found.documents}) == len(found.documents)
        for document in found.documents:
            sound(document, found.labels)
    return lenient


def sound(document, labels):
    width, height = document.size
    json.dumps([document.id, document.provider], ensure_ascii=False).encode()
    for word in document.words:
        x0, y0, x1, y1 = word.box
        assert 0 <= x0 < x1 <= width
        assert 0 <= y0 < y1 <= height
        assert word.text.strip()
        word.text.encode()
    for entity in document.entities:
        assert entity.label in labels
        assert list(entity.words) == sorted(set(entity.words)) != []
        assert 0 <= entity.words[0] <= entity.words[-1] < len(document.words)
    for question in document.questions:
        "".join(question.answers).encode()


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_sound_folder_reads(name):
    with tempfile.TemporaryDirectory() as base:
        LAYOUTS[name].write(Path(base) / "data")
        found = check(LAYOUTS[name], Path(base))
        assert found.skipped == ()
        assert all(document.words and document.entities for document in found.documents)


# --------------------------------------------------------------------------------- broken files


@examples(60, 150)
@given(which=st.sampled_from(FILES), cut=st.integers(0, 3000), tail=st.binary(max_size=4))
def test_truncated_files(which, cut, tail):
    name, file = which
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        LAYOUTS[name].write(base / "data")
        path = base / "data" / file
        data = path.read_bytes()
        path.write_bytes(data[: cut % len(data)] + tail)
        check(LAYOUTS[name], base)


HUGE, DEEP = "@huge@", "@deep@"
ODD = st.one_of(
    st.sampled_from([None, True, "", " ", "\ud800", "\0", [], {}, [[]], [None], HUGE, DEEP]),
    st.sampled_from([float("nan"), float("inf"), -float("inf"), 1e308, -1e308, 10**400, -(10**20)]),
    st.integers(-300, 300),
    st.floats(),
    st.text(max_size=5),
    st.dictionaries(st.text(max_size=3), st.none(), max_size=2),
    st.lists(st.one_of(st.floats(), st.text(max_size=2), st.integers()), max_size=9),
)


def places(value, path=()):
    """The path of every value in a JSON value, itself included."""
    yield path
    items = enumerate(value) if isinstance(value, list) else ()
    for key, inner in value.items() if isinstance(value, dict) else items:
        yield from places(inner, (*path, key))


def replaced(value, path, new):
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(value[path[0]], path[1:], new)
    return copy


def written(value):
    text = json.dumps(value).replace(f'"{HUGE}"', "1" + "0" * 5000)
    return text.replace(f'"{DEEP}"', "[" * 60_000 + "]" * 60_000)


@examples(160, 400)
@given(which=st.sampled_from(OBJECTS), data=st.data())
def test_wrong_values_at_random_places(which, data):
    name, file = which
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        LAYOUTS[name].write(base / "data")
        path = base / "data" / file
        content = json.loads(path.read_text())
        for _ in range(data.draw(st.integers(1, 2), label="changes")):
            place = data.draw(st.sampled_from(list(places(content))), label="place")
            content = replaced(content, place, data.draw(ODD, label="value"))
        path.write_text(written(content))
        check(LAYOUTS[name], base)


@examples(40, 100)
@given(
    box=st.lists(
        st.one_of(st.floats(), st.integers(-(10**30), 10**30), st.text(max_size=3)),
        min_size=6,
        max_size=9,
    ),
    text=st.text(max_size=6),
)
def test_lines_of_sroies_box_files(box, text):
    line = ",".join(map(str, box)) + "," + text
    with tempfile.TemporaryDirectory() as folder:
        data = line.encode("utf-8", "surrogatepass")
        write_sroie(Path(folder) / "data", boxes=data)
        check(LAYOUTS["sroie"], Path(folder))


@examples(40)
@given(text=st.text(max_size=40))
def test_lines_of_wildreceipts_class_list(text):
    with tempfile.TemporaryDirectory() as folder:
        LAYOUTS["wildreceipt"].write(Path(folder) / "data")
        write(Path(folder) / "data" / "class_list.txt", text)
        check(LAYOUTS["wildreceipt"], Path(folder))


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_same_document_twice(name, tmp_path):
    root = tmp_path / "data"
    LAYOUTS[name].write(root)
    if name == "xfund":
        write_xfund(root, [xfund_form("a"), xfund_form("a")])
    elif name == "wildreceipt":
        write_wildreceipt(root, [wild_receipt()] * 2)
    elif name.startswith("docile"):
        write(root / "train.json", ["d1", "d1"])
    else:  # a file's name is the identifier: the same one in both splits
        halves = {"funsd": ("dataset/training_data", "dataset/testing_data")}
        first, second = halves.get(name, ("train", "test"))
        shutil.copytree(root / first, root / second)
    found = check(LAYOUTS[name], tmp_path)
    assert len(found.documents) + len(found.skipped) == 2


# --------------------------------------------------------------------------- out of the folder

CLIMBING = st.sampled_from(
    [
        "../secret.png",
        "../../secret.png",
        "images/../../secret.png",
        "a/../../../secret.png",
        "..\\secret.png",
        "C:\\secret.png",
        "..",
        ".",
        "",
        "\0",
        "x" * 300,
        "x/" * 3000,
        "ABSOLUTE",
        "link.png",
        "linked/secret.png",
        "../images/link.png",
    ]
)


def with_a_secret(base):
    """A sound image beside the data's folder, and links to it inside."""
    write_image(base / "secret.png")
    root = base / "data"
    for folder in (root, root / "images"):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "link.png").symlink_to(base / "secret.png")
        (folder / "linked").symlink_to(base)
    return root


@examples(60)
@given(name=CLIMBING, layout=st.sampled_from(["xfund", "wildreceipt", "docile"]))
def test_names_in_the_data_do_not_lead_out_of_the_folder(name, layout):
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        root = with_a_secret(base)
        name = str(base / "secret.png") if name == "ABSOLUTE" else name
        if layout == "xfund":
            form = xfund_form()
            form["img"]["fname"] = name
            write(root / "zh.train.json", json.dumps({"documents": [form]}))
        elif layout == "wildreceipt":
            write_wildreceipt(root, [json.dumps(wild_receipt(name))])
        else:
            write_docile(root)
            write(root / "train.json", json.dumps([name]))
        found = check(LAYOUTS[layout], base)
        assert found.documents == ()
        assert len(found.skipped) == 1


@pytest.mark.parametrize(
    ("name", "file"),
    [
        *FILES,
        ("cord", "train/image/receipt_00000.png"),
        ("xfund", "images/a.jpg"),
        ("wildreceipt", "image_files/Image_1/1/a.jpeg"),
        ("funsd", "dataset/training_data/images/1.png"),
        ("sroie", "train/img/X1.jpg"),
    ],
)
@pytest.mark.parametrize("whole_folder", [False, True])
def test_links_do_not_lead_out_of_the_folder(name, file, whole_folder, tmp_path):
    """A sound file, or its folder, is moved out and a link to it left in its place."""
    root = tmp_path / "data"
    LAYOUTS[name].write(root)
    moved = root / file
    if whole_folder and moved.parent != root:
        moved = moved.parent
    moved.rename(tmp_path / "outside")
    moved.symlink_to(tmp_path / "outside")
    found = check(LAYOUTS[name], tmp_path)
    assert found is None or (found.skipped and "a" not in {d.id for d in found.documents})


def test_the_watch_would_see_a_file_outside(tmp_path):
    """The check of opened files can fail: a reader that does open the secret is found out."""

    class Careless:
        def __init__(self, root, **_):
            self.root = root

        def load(self):
            (self.root.parent / "secret").read_text()

    write(tmp_path / "secret", "x")
    (tmp_path / "data").mkdir()
    with pytest.raises(AssertionError, match="opened"):
        read(Layout(None, Careless, ()), tmp_path)


def test_fields_of_docile_far_from_the_page_are_refused(tmp_path):
    field = docile_field("date", (0, 0, 1, 1), page=10**30)
    write_docile(tmp_path / "data", annotation={"field_extractions": [field]})
    found = check(LAYOUTS["docile"], tmp_path)
    assert len(found.skipped) == 1
