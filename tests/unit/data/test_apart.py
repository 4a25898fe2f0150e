"""Decoders in a process apart: a bomb is the problem of one file, within seconds and bytes."""

import os
import resource
import signal
import subprocess
import sys
import threading
import time
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedpriv.data import apart, tokenizer_file
from fedpriv.data.document import DataError
from fedpriv.data.folder import pdf, pictures
from fedpriv.data.folder.reader import Folder
from fedpriv.models.readers.subwords import SHIPPED

SECONDS, MEMORY = 3, 2**30


def document(objects, content=b"/X Do", resources=b""):
    """Returns a PDF of one page that draws `content`; `objects` come from number 5 on."""
    page = b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 200 144] /Contents 4 0 R /Resources << "
    own = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        page + resources + b" >> >>",
        stream(content),
        *objects,
    ]
    numbered = [b"%d 0 obj\n%s\nendobj\n" % (n, one) for n, one in enumerate(own, 1)]
    return b"%PDF-1.4\n" + b"".join(numbered) + b"trailer << /Root 1 0 R >>\n%%EOF"


def stream(data, more=b""):
    return b"<< /Length %d %s >>\nstream\n%s\nendstream" % (len(data), more, data)


def form(data, used):
    more = b"/Type /XObject /Subtype /Form /BBox [0 0 200 144] /Resources << /XObject << %s >> >>"
    return stream(data, more % used)


def nested():
    """30 forms, of which each draws the next one ten times."""
    forms = [form(b"/X Do " * 10, b"/X %d 0 R" % (n + 1)) for n in range(5, 35)]
    return document([*forms, form(b"0 0 1 1 re f", b"")], resources=b"/XObject << /X 5 0 R >>")


def itself():
    """A form that draws itself twice: less than 600 bytes."""
    return document([form(b"/X Do /X Do", b"/X 5 0 R")], resources=b"/XObject << /X 5 0 R >>")


def inflated():
    """240 MB of drawing in a kilobyte."""
    data = zlib.compress(zlib.compress(b"0 0 m 9 9 l S " * (240 * 10**6 // 14), 9), 9)
    made = document([], b"")
    return made.replace(stream(b""), stream(data, b"/Filter [/FlateDecode /FlateDecode]"))


def tiled():
    """A pattern whose tiles are a hundred-thousandth of a point apart."""
    tile = stream(
        b"0 0 1 1 re f",
        b"/Type /Pattern /PatternType 1 /PaintType 1 /TilingType 1 /BBox [0 0 1 1] "
        b"/XStep 0.00001 /YStep 0.00001 /Resources << >>",
    )
    content = b"/Pattern cs /P scn 0 0 200 144 re f"
    return document([tile], content, b"/Pattern << /P 5 0 R >>")


BOMBS = {"nested": nested, "itself": itself, "inflated": inflated, "tiled": tiled}


@pytest.fixture
def little(monkeypatch):
    monkeypatch.setattr(apart, "SECONDS", SECONDS)
    monkeypatch.setattr(apart, "MEMORY", MEMORY)


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_is_skipped_with_its_name_and_the_others_are_read(bomb, little, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / f"{bomb}.pdf").write_bytes(BOMBS[bomb]())
    Image.new("RGB", (64, 48), "white").save(tmp_path / "a" / "good.png")
    (tmp_path / "a" / "good.txt").write_text("one two")
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = Folder(tmp_path, on_error="skip").load()
    assert time.monotonic() - began < 10 * SECONDS
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MEMORY // 4 / 1024
    assert [one.id for one in found.documents] == ["a/good.png"]
    assert f"{bomb}.pdf" in str(found.skipped)


def test_the_folder_in_which_the_first_file_was_read_may_go(tmp_path, monkeypatch):
    monkeypatch.setattr(apart, "_idle", [])
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    Image.new("RGB", (6, 4)).save(tmp_path / "a.png")
    assert apart.call(pictures.page_sizes, tmp_path / "a.png", 9) == [[6, 4]]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "work").rmdir()
    # Python 3.13 imports no library of Rust's in a folder that is not there.
    assert apart.call(tokenizer_file.check, SHIPPED) > 0


@pytest.mark.parametrize("call", [("draw", 0), ("page_sizes", 9)])
def test_the_pixels_and_sizes_are_those_of_a_call_in_this_process(tmp_path, call):
    name, argument = call
    path = tmp_path / "a.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (33, 21, 3), np.uint8)).save(path)
    function = getattr(pictures, name)
    expected = np.asarray(function(path, argument))
    for _ in range(2):  # the second one by the same process
        np.testing.assert_array_equal(apart.call(function, path, argument), expected)
    content = path.read_bytes()
    path.unlink()
    np.testing.assert_array_equal(apart.call(function, path, argument, content=content), expected)


def test_what_a_function_says_of_a_file_is_said_here(tmp_path):
    (tmp_path / "a.pdf").write_bytes(b"%PDF-1.4 nothing")
    with pytest.raises(DataError, match=r"a\.pdf: not a PDF that pdfium can read"):
        apart.call(pdf.draw, tmp_path / "a.pdf", 0, 72)


def hungry(path):
    return [len(bytes(4 * 2**30))]


def killed(path):
    os.kill(os.getpid(), signal.SIGSEGV)


def busy(path):
    while True:
        pass


def asleep(path):
    time.sleep(60)


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (hungry, "takes more than 1 GiB of memory"),
        (killed, r"ended the process that read it \(SIGSEGV\), which had 1 GiB of memory"),
        (busy, "takes more than 1 seconds, and was ended"),
        (asleep, "takes more than 1 seconds, and was ended"),
    ],
)
def test_whatever_ends_the_process_is_an_error_with_the_files_name(
    function, told, little, tmp_path, monkeypatch
):
    monkeypatch.setattr(apart, "SECONDS", 1)
    monkeypatch.setattr(apart, "WAIT", 3)
    (tmp_path / "x").write_bytes(b"")
    with pytest.raises(DataError, match=f"{tmp_path / 'x'}: .*{told}"):
        apart.call(function, tmp_path / "x")
    assert apart.call(number, tmp_path / "x") == 7


def number(path):
    return 7


def test_a_path_is_of_the_folder_that_one_is_in_and_a_file_may_go(tmp_path, monkeypatch):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        Image.new("RGB", (8 + ord(name), 8)).save(tmp_path / name / "x.png")
        monkeypatch.chdir(tmp_path / name)
        ((width, _),) = apart.call(pictures.page_sizes, Path("x.png"), 1)
        assert width == 8 + ord(name)
    (tmp_path / "gone").write_bytes(b"")
    with pytest.raises(DataError, match=r"gone: FileNotFoundError: "):
        apart.call(removed, tmp_path / "gone")


def test_a_damaged_file_costs_no_process_and_one_out_of_memory_does(little, tmp_path):
    (tmp_path / "x").write_bytes(b"")
    pid = apart.call(whose, tmp_path / "x")
    with pytest.raises(DataError, match="it is empty"):
        apart.call(pictures.draw, tmp_path / "x", 0)
    assert apart.call(whose, tmp_path / "x") == pid
    with pytest.raises(DataError, match="of memory"):
        apart.call(hungry, tmp_path / "x")
    assert apart.call(whose, tmp_path / "x") != pid


def whose(path):
    return os.getpid()


def removed(path):
    path.unlink()
    return path.stat().st_size


def test_many_threads_have_their_own_answers(tmp_path):
    for n in range(1, 9):
        Image.new("RGB", (n, 2 * n)).save(tmp_path / f"{n}.png")
    found = {}

    def look(n):
        for _ in range(5):
            found[n] = apart.call(pictures.page_sizes, tmp_path / f"{n}.png", 1)

    threads = [threading.Thread(target=look, args=(n,)) for n in range(1, 9)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert found == {n: [[n, 2 * n]] for n in range(1, 9)}


def test_a_process_ends_with_the_one_that_it_reads_for(tmp_path):
    (tmp_path / "x").write_bytes(b"")
    script = (
        "import os, sys; from pathlib import Path; from fedpriv.data import apart\n"
        "apart.call(os.path.getsize, Path(sys.argv[1]))\n"
        "print(apart._idle[0]._process.pid, flush=True)\n"
        "os.kill(os.getpid(), 9)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, tmp_path / "x"], capture_output=True, text=True, check=False
    )
    assert done.returncode == -9, done.stderr
    other = Path(f"/proc/{int(done.stdout)}")
    for _ in range(100):
        if not other.exists() or "\nState:\tZ" in (other / "status").read_text():
            break
        time.sleep(0.05)
    else:
        pytest.fail("it still runs")
