"""Page images: checked to the last pixel when they are read, once, and opened in one place."""

import os
import shutil
import sys
from pathlib import Path

import pytest
from form_folders import SIZE, write_image
from hostile import BAD_IMAGES, LAYOUTS, png
from PIL import Image

from fedpriv.data import apart, page_files
from fedpriv.data.cropped import Cropped
from fedpriv.data.document import (
    DataError,
    Document,
    DocumentSet,
    Entity,
    Word,
    check_file,
    read_image,
)
from fedpriv.data.page_files import image_size

ROOT = Path(__file__).parents[3]
OF_IMAGES = {name: layout for name, layout in LAYOUTS.items() if name not in ("docile", "folder")}
"""Readers of image files alone, who name the first that is damaged."""


def cut_jpeg(path):
    write_image(path, (400, 600))
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 2 // 3])


# --------------------------------------------------------------------------------------- readers


@pytest.mark.parametrize("name", OF_IMAGES)
def test_every_reader_names_a_damaged_image_or_skips_and_counts_it(name, tmp_path):
    """The header is whole and only pixels are missing, as in half of a download."""
    layout = LAYOUTS[name]
    layout.write(tmp_path)
    image = tmp_path / layout.image
    whole = image.read_bytes()
    assert len(layout.load(tmp_path).load().documents) == 2
    image.write_bytes(BAD_IMAGES["cut"] if image.suffix == ".png" else whole[:-150])
    with Image.open(image) as header:
        assert header.size == SIZE
    with pytest.raises(
        DataError, match="not an image that Pillow can read as PNG or JPEG"
    ) as error:
        layout.load(tmp_path).load()
    assert error.value.path == image
    found = layout.load(tmp_path, on_error="skip").load()
    assert len(found.documents) == 1
    assert [skipped.path for skipped in found.skipped] == [image]


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_reader_refuses_a_pipe_in_the_place_of_any_file(name, tmp_path):
    """Without waiting: nobody writes into it, so that opening it would last for ever."""
    layout = LAYOUTS[name]
    layout.write(tmp_path / "sound")
    files = [p.relative_to(tmp_path / "sound") for p in (tmp_path / "sound").rglob("*.*")]
    for number, file in enumerate(path for path in files if (tmp_path / "sound" / path).is_file()):
        root = tmp_path / str(number)
        shutil.copytree(tmp_path / "sound", root)
        (root / file).unlink()
        os.mkfifo(root / file)
        with pytest.raises(DataError) as error:
            layout.load(root).load()
        (one,) = getattr(error.value, "errors", (error.value,))
        assert (one.path, one.why) == (root / file, "is a pipe, not a file")


# ------------------------------------------------------------------------------------- one image


@pytest.mark.parametrize("kind", BAD_IMAGES)
def test_a_bad_image_is_refused_with_its_path_at_once_and_when_it_is_looked_at(kind, tmp_path):
    path = tmp_path / "page.png"
    path.write_bytes(BAD_IMAGES[kind])
    document = Document("d", "p", path, SIZE, ())
    for use in (image_size, read_image, lambda _: document.image()):
        with pytest.raises(DataError) as error:
            use(path)
        assert error.value.path == path
        assert len(error.value.why) < 400


def test_postscript_starts_no_process(tmp_path):
    """Pillow, asked for any format, takes it for an image and runs Ghostscript on it."""
    started = []
    sys.addaudithook(lambda event, _: started.append(event) if "Popen" in event else None)
    path = tmp_path / "page.png"
    path.write_bytes(BAD_IMAGES["eps"])
    with Image.open(path) as eps:
        assert eps.format == "EPS"
    with pytest.raises(DataError, match="cannot identify"):
        read_image(path)
    assert started == []


def test_the_number_of_pixels_is_limited(tmp_path):
    path = tmp_path / "page.png"
    path.write_bytes(png(10_001, 10_000))
    with pytest.raises(DataError, match=r"10001 × 10000 pixels: expected at most 100,000,000"):
        read_image(path)


def test_a_bad_page_of_a_window_is_skipped(tmp_path):
    path = tmp_path / "page.jpg"
    cut_jpeg(path)

    class Given:
        def load(self):
            word = Word("9", (10, 10, 20, 20), 0)
            page = Document("d", "p", path, (400, 600), (word,), (Entity("total", (0,)),))
            return DocumentSet("given", (page,), ("total",))

    (skipped,) = Cropped(Given(), size=64, key="total").load().skipped
    assert skipped.path == path


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda path: None, "there is no such file"),
        (lambda path: path.mkdir(), "is a folder, not a file"),
        (os.mkfifo, "is a pipe, not a file"),
        (lambda path: path.symlink_to("/dev/zero"), "is a device, not a file"),
        (lambda path: path.symlink_to(path.name), "cannot be read: .*symbolic links"),
    ],
)
def test_only_files_are_files(make, says, tmp_path):
    make(tmp_path / "x")
    with pytest.raises(DataError, match=says):
        check_file(tmp_path / "x")
    with pytest.raises(DataError, match=r"cannot be read: .*embedded null"):
        check_file(tmp_path / "\0")


# -------------------------------------------------------------------------------------- the cache


@pytest.fixture
def decoded(monkeypatch, tmp_path):
    """Which files are decoded, with a cache of the test's own."""
    paths, call = [], apart.call
    monkeypatch.setenv("FEDPRIV_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(apart, "call", lambda f, path: paths.append(path) or call(f, path))
    return paths


def test_an_image_is_decoded_once_in_all_runs(decoded, tmp_path):
    path = tmp_path / "page.png"
    write_image(path)
    for _ in range(2):
        page_files._known.cache_clear()  # as in a new process
        assert [image_size(path), image_size(path)] == [SIZE, SIZE]
    assert decoded == [path]
    table = tmp_path / "cache" / "pages" / "whole.txt"
    assert table.parent.stat().st_mode & 0o777 == 0o700
    assert str(path) not in table.read_text()


def test_a_changed_image_is_decoded_again_and_a_bad_one_never_remembered(decoded, tmp_path):
    path = tmp_path / "page.png"
    write_image(path)
    image_size(path)
    write_image(path, (30, 40))
    assert image_size(path) == (30, 40)
    path.write_bytes(BAD_IMAGES["cut"])
    for _ in range(2):
        with pytest.raises(DataError):
            image_size(path)
    assert len(decoded) == 4


def test_a_damaged_table_or_none_costs_no_more_than_time(decoded, tmp_path):
    path = tmp_path / "page.png"
    write_image(path)
    folder = tmp_path / "cache" / "pages"
    folder.mkdir(parents=True)
    (folder / "whole.txt").write_bytes(b"\xff\x00 x y\nabc 1\nabc 1 2 3\nabc -1 2\n")
    assert image_size(path) == SIZE
    shutil.rmtree(folder)
    folder.write_text("a file where the folder should be")
    page_files._known.cache_clear()
    assert image_size(path) == SIZE


# ------------------------------------------------------------------------------------- one place


def test_images_are_opened_in_two_places():
    """Every other would need the same limits and errors; a user's folder has more formats."""
    packages = ("fedpriv", "strategies", "clients", "attacks")
    opening = {
        path.relative_to(ROOT).as_posix()
        for package in packages
        for path in (ROOT / package).rglob("*.py")
        if "Image.open" in path.read_text("utf-8")
    }
    assert opening == {"fedpriv/data/document.py", "fedpriv/data/folder/pictures.py"}
