"""Hostile pickles: nothing runs, nothing is imported, and a bomb ends in a clear error."""

import io
import os
import pickle
import struct
import subprocess
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest

from fedpriv.cli.data.convert import arrays, convert
from fedpriv.data.document import DataError
from fedpriv.data.readers.pfl_arrow import write_records
from fedpriv.data.readers.restricted_pickle import Array, load_objects

RECORD = {
    "question": "Total?",
    "answers": "9.00\n9",
    "ocr_tokens": ["Total", "9.00"],
    "ocr_normalized_boxes": np.array([[0.1, 0.1, 0.2, 0.2], [0.3, 0.1, 0.5, 0.2]]),
    "image_name": "d1_1",
    "set_name": "train",
    "question_id": 7,
}
HEADER = {"version": "1"}


def objects(*items):
    array = np.empty(len(items), dtype=object)
    for place, item in enumerate(items):
        array[place] = item
    return array


def npy(path, pickled, shape=(1,), descr="|O"):
    """Writes a .npy file of object arrays around any bytes."""
    out = io.BytesIO()
    header = {"descr": descr, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(out, header)
    path.write_bytes(out.getvalue() + pickled)
    return path


def text(value):
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def named(module, name):
    """STACK_GLOBAL of a name."""
    return text(module) + text(name) + b"\x93"


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4])
def test_plain_records_come_through_every_protocol(tmp_path, protocol):
    extra = {"n": np.float32(0.5), "b": b"\xff", "t": (1, None), "s": np.str_("é")}
    array = objects(HEADER, RECORD | extra)
    path = npy(tmp_path / "a.npy", pickle.dumps(array, protocol), (2,))
    header, record = load_objects(path)
    boxes = record.pop("ocr_normalized_boxes")
    assert isinstance(boxes, Array)
    np.testing.assert_array_equal(boxes.numbers(), RECORD["ocr_normalized_boxes"])
    assert header == HEADER
    plain = {key: value for key, value in RECORD.items() if key != "ocr_normalized_boxes"}
    expected = {"n": 0.5, "b": b"\xff", "t": (1, None), "s": "é"}
    assert record == plain | expected
    assert type(record["n"]) is float
    assert type(record["s"]) is str


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("kind", ["<f4", ">f8", "<i2", "?"])
def test_numbers_keep_their_shape_order_and_kind(tmp_path, order, kind):
    array = np.array([[0, 1, 2], [3, 0, 5]], dtype=kind, order=order)
    (found,) = load_objects(npy(tmp_path / "a.npy", pickle.dumps(objects(array), 4)))
    np.testing.assert_array_equal(found.numbers(), array)


class Runs:
    """Its pickle calls `function`, as anybody's can."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def gadgets(marker):
    """Pickles that leave `marker` behind if they are let."""
    shell = f"touch {marker}"
    code = f"open({str(marker)!r}, 'w').close()"
    for protocol in range(6):
        call = Runs(os.system, shell)
        yield f"reduce-{protocol}", pickle.dumps(objects(call), protocol)
        yield f"nested-{protocol}", pickle.dumps(objects({"a": [call]}), protocol)
    one = text(shell) + b"\x85R."
    yield "global", b"cposix\nsystem\n" + one
    yield "stack-global", b"\x80\x04" + named("posix", "system") + one
    yield "inst", b"(" + text(shell) + b"iposix\nsystem\n."
    yield "obj", b"(cposix\nsystem\n" + text(shell) + b"o."
    yield "eval", b"\x80\x04" + named("builtins", "eval") + text(code) + b"\x85R."
    yield "exec", b"\x80\x04" + named("builtins", "exec") + text(code) + b"\x85R."
    yield "popen", pickle.dumps(Runs(subprocess.Popen, ["touch", str(marker)]), 4)
    yield "python-2", b"c__builtin__\neval\n" + text(code) + b"\x85R."
    runstring = named("numpy.testing._private.utils", "runstring")
    yield "numpy", b"\x80\x04" + runstring + text(code) + b"}\x86R."
    tofile = named("numpy", "ndarray.tofile")
    yield "dotted", b"\x80\x04" + tofile + text(str(marker)) + b"\x85R."
    yield "codec", b"\x80\x04" + named("_codecs", "encode") + text("a") + text("zlib") + b"\x86R."
    dump = named("numpy", "save") + text(str(marker)) + b"K\x01\x86R."
    yield "save", b"\x80\x04" + dump
    yield "import", b"\x80\x04" + named("runs_when_imported", "x") + b"."
    yield "persistent", b"P" + shell.encode() + b"\n."
    yield "persistent-binary", text(shell) + b"Q."
    yield "extension", b"\x80\x02\x82\x01."
    # BUILD with a second state sets attributes on whatever stands there.
    state = b"}" + text("__call__") + named("numpy", "dtype") + b"s"
    yield "build", b"\x80\x04" + named("numpy", "ndarray") + b"N" + state + b"\x86b."
    yield "newobj", b"\x80\x04" + named("numpy", "ndarray") + b"K\x05\x85\x81."
    reconstruct = named("numpy._core.multiarray", "_reconstruct")
    odd = reconstruct + named("numpy", "dtype") + b"K\x00\x85C\x01b\x87R."
    yield "odd-class", b"\x80\x04" + odd


NAMES = [name for name, _ in gadgets("x")]


@pytest.mark.parametrize("name", NAMES)
def test_no_gadget_runs_or_imports(tmp_path, monkeypatch, name):
    marker = tmp_path / "it-ran"
    module = tmp_path / "runs_when_imported.py"
    module.write_text(f"x = open({str(marker)!r}, 'w')", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    path = npy(tmp_path / "a.npy", dict(gadgets(marker))[name])
    with pytest.raises(DataError, match="not a safe array of records") as caught:
        load_objects(path)
    assert "the file holds" not in str(caught.value)  # it was stopped, and did not end in no array
    with pytest.raises(DataError, match="not a safe array of records"):
        write_records(path, tmp_path / "a.parquet")
    assert not marker.exists()
    assert "runs_when_imported" not in sys.modules
    assert not (tmp_path / "a.parquet").exists()


MAIN = """
import sys
from fedpriv.data.readers.pfl_arrow import main
for path in sys.argv[1:]:
    print(path, main([path, path + ".parquet", str(2**30), "120"]))
"""


def test_the_process_of_a_conversion_runs_no_gadget(tmp_path):
    """All of them in one process, as its start takes longer than they do."""
    marker = tmp_path / "it-ran"
    paths = [npy(tmp_path / f"{name}.npy", pickled) for name, pickled in gadgets(marker)]
    command = [sys.executable, "-c", MAIN, *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    said = done.stdout.splitlines()
    assert len(said) == 2 * len(NAMES)
    assert all(line.startswith('{"why": "not a safe array of records: ') for line in said[::2])
    assert said[1::2] == [f"{path} 1" for path in paths]
    assert {*tmp_path.iterdir()} == {*paths}


def test_the_gadgets_do_run_where_nothing_holds_them(tmp_path):
    """Otherwise the test above would prove nothing."""
    names = ["reduce-0", "nested-4", "global", "stack-global", "inst", "obj", "eval", "python-2"]
    pickles = [dict(gadgets(tmp_path / name))[name] for name in names]
    code = "import pickle, sys; [*map(pickle.loads, pickle.load(sys.stdin.buffer))]"
    command = [sys.executable, "-I", "-c", code]  # which `make test-hostile` leaves alone
    subprocess.run(command, input=pickle.dumps(pickles), check=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)


def array_of(shape, dtype, data):
    """The opcodes of an array whose parts are pickled as given."""
    reconstruct = named("numpy._core.multiarray", "_reconstruct") + named("numpy", "ndarray")
    state = b"(K\x01" + shape + dtype + b"\x89" + data + b"t"
    return b"\x80\x04" + reconstruct + b"K\x00\x85C\x01b\x87R" + state + b"b."


def dtype_of(code, names=b"N", fields=b"N", flags=b"K\x3f"):
    new = named("numpy", "dtype") + text(code) + b"\x89\x88\x87R"
    state = b"(K\x03" + text("|") + b"N" + names + fields
    return new + state + b"J\xff\xff\xff\xffJ\xff\xff\xff\xff" + flags + b"tb"


@pytest.mark.parametrize(
    "pickled",
    [
        array_of(b"K\x01\x85", dtype_of("O8"), b"C\x08AAAAAAAA"),  # addresses as bytes
        array_of(b"K\x01\x85", dtype_of("O8", flags=b"K\x00"), b"C\x08AAAAAAAA"),
        array_of(b"K\x01\x85", dtype_of("V8"), b"C\x08AAAAAAAA"),
        array_of(b"K\x01\x85", dtype_of("O8", names=text("a") + b"\x85", fields=b"}"), b"]Na"),
        array_of(b"K\x01\x85", dtype_of("O8"), b"]" + b"Px\na"),
        array_of(b"K\x01\x85", dtype_of("O8"), b"]" + text("x") + b"Qa"),
        array_of(b"\x8a\x08" + b"\xff" * 7 + b"\x7f\x85", dtype_of("O8"), b"]"),  # 2**63 - 1
        array_of(b"K\x02\x85", dtype_of("O8"), b"]"),
        array_of(b"J\xff\xff\xff\xff\x85", dtype_of("O8"), b"]"),  # -1
        array_of(text("a"), dtype_of("O8"), b"]"),
        array_of(b"K\x01\x85", text("O"), b"]"),
        array_of(b"K\x01\x85", dtype_of("f8"), b"C\x08AAAAAAAA"),
        pickle.dumps([1]),
        pickle.dumps(objects(1, 2)),
    ],
)
def test_a_forged_array_is_refused(tmp_path, pickled):
    with pytest.raises(DataError, match="not a safe array of records"):
        load_objects(npy(tmp_path / "a.npy", pickled))


@pytest.mark.parametrize("code", ["V8", "M8[s]", "f8,O", "(2,)f8", "", "f8\n"])
def test_a_dtype_of_anything_but_numbers_texts_and_objects_is_refused(tmp_path, code):
    path = npy(tmp_path / "a.npy", array_of(b"K\x01\x85", dtype_of(code), b"]Na"))
    with pytest.raises(DataError, match="not a safe array of records: a dtype "):
        load_objects(path)


def test_an_array_has_as_many_items_as_its_shape(tmp_path):
    for items, refused in ((b"](Ne", True), (b"](NNe", False), (b"](NNNe", True)):
        path = npy(tmp_path / "a.npy", array_of(b"K\x02\x85", dtype_of("O8"), items), (2,))
        if refused:
            with pytest.raises(DataError, match="as many items as its shape says"):
                load_objects(path)
        else:
            assert load_objects(path) == [None, None]


@pytest.mark.parametrize(
    ("shape", "code", "data"),
    [(b"K\x02\x85", "f8", 8), (b"J\xff\xff\xff\x7f\x85", "f8", 8), (b"K\x01\x85", "U4", 16)],
)
def test_forged_numbers_are_refused_when_asked_for(tmp_path, shape, code, data):
    inner = array_of(shape, dtype_of(code), b"C" + bytes([data]) + b"A" * data)
    outer = array_of(b"K\x01\x85", dtype_of("O8"), b"]" + inner[2:-1] + b"a")
    (found,) = load_objects(npy(tmp_path / "a.npy", outer))
    with pytest.raises(ValueError, match=r"bytes of|array of numbers"):
        found.numbers()


def test_a_true_array_in_the_same_opcodes_is_read(tmp_path):
    """So that the forgeries above fail for what is forged in them."""
    data = b"C\x08" + struct.pack("<d", 0.5)
    inner = array_of(b"K\x01\x85", dtype_of("f8").replace(text("|"), text("<")), data)
    outer = array_of(b"K\x01\x85", dtype_of("O8"), b"]" + inner[2:-1] + b"a")
    (found,) = load_objects(npy(tmp_path / "a.npy", outer))
    assert found.numbers().tolist() == [0.5]


@pytest.mark.parametrize(
    ("shape", "descr", "says"),
    [
        ((1,), "<f8", "expected one dimension of objects"),
        ((1, 1), "|O", "expected one dimension of objects"),
        ((), "|O", "expected one dimension of objects"),
        ((2,), "|O", "announces 2 objects, but it holds 1"),
    ],
)
def test_a_header_that_does_not_fit_is_named(tmp_path, shape, descr, says):
    path = npy(tmp_path / "a.npy", pickle.dumps(objects(1)), shape, descr)
    with pytest.raises(DataError, match=says):
        load_objects(path)


def test_every_cut_of_a_file_is_a_data_error(tmp_path):
    whole = npy(tmp_path / "a.npy", pickle.dumps(objects(RECORD), 4)).read_bytes()
    for end in reversed(range(len(whole))):
        os.truncate(tmp_path / "a.npy", end)
        with pytest.raises(DataError):
            load_objects(tmp_path / "a.npy")
    with pytest.raises(DataError, match="No such file"):
        load_objects(tmp_path / "none.npy")


BOMBS = {
    "bytes": b"\x80\x04\x8e" + struct.pack("<Q", 2**40) + b".",
    "text": b"\x80\x04\x8d" + struct.pack("<Q", 2**62) + b".",
    "memo": b"\x80\x04Nr" + struct.pack("<I", 2**31 - 1) + b".",
    "sets": b"\x80\x04](" + b"\x8f" * 4_000_000 + b"e.",
    "tuples": b"\x80\x04" + b")" + b"\x85" * 8_000_000 + b".",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BOMBS)
def test_a_memory_bomb_is_an_error_within_the_limit(tmp_path, name):
    path = npy(tmp_path / "a.npy", BOMBS[name])
    with pytest.raises(DataError, match=r"takes more memory|ended with SIG") as caught:
        convert(path, tmp_path / "out", memory=0.25)
    assert caught.value.path == path
    assert list((tmp_path / "out").iterdir()) == []


def test_records_that_share_one_list_for_ever_are_a_bomb_too(tmp_path):
    """A word of a million letters, stored once: a thousand pages in a file of 1 MB."""
    record = RECORD | {"ocr_tokens": ["x" * 10**6, "y"]}
    np.save(tmp_path / "a.npy", objects(*[record] * 1000), allow_pickle=True)
    with pytest.raises(DataError, match="spell out to far more than its size"):
        write_records(tmp_path / "a.npy", tmp_path / "a.parquet")


@pytest.mark.slow
def test_a_pickle_that_takes_for_ever_is_stopped(tmp_path):
    """Keys of one hash: a dictionary of them takes quadratic time."""
    keys = {number * (2**61 - 1): None for number in range(10)}
    assert {hash(key) for key in keys} == {0}
    many = b"".join(
        b"\x8a\x0c" + (number * (2**61 - 1)).to_bytes(12, "little") + b"N"
        for number in range(100_000)
    )
    path = npy(tmp_path / "a.npy", b"\x80\x04}(" + many + b"u.")
    with pytest.raises(DataError, match=r"ended with SIG(KILL|XCPU)"):
        convert(path, tmp_path / "out", seconds=2)


def test_nothing_can_be_opened_while_a_pickle_is_read():
    code = """
from fedpriv.data.readers.pfl_arrow import _Shut
guard = _Shut()
open(__import__("os").devnull).close()
try:
    with guard:
        open("/dev/null")
except RuntimeError as error:
    print(error)
open("/dev/null").close()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "it tries open\n"


def test_the_conversion_keeps_every_field(tmp_path):
    second = RECORD | {
        "ocr_tokens": [],
        "ocr_normalized_boxes": np.zeros((0, 4)),
        "answers": ["a", " "],
        "provider": "Acme",
        "document": "d1",
        "label": 1,
    }
    del second["question_id"]
    broken = RECORD | {"question": None}
    np.save(tmp_path / "imdb_x.npy", objects(HEADER, RECORD, broken, 5, second), allow_pickle=True)
    done = convert(tmp_path / "imdb_x.npy", tmp_path / "out")
    assert (done.records, done.skipped) == (2, 2)
    assert done.reasons == (
        "record 2: question: expected a text, found None",
        "record 3: expected a record, found 5",
    )
    table = pq.read_table(done.target)
    first, last = table.to_pylist()
    assert first == {
        "position": 1,
        "question": "Total?",
        "answers": ["9.00", "9"],
        "words": ["Total", "9.00"],
        "boxes": np.float32([[0.1, 0.1, 0.2, 0.2], [0.3, 0.1, 0.5, 0.2]]).tolist(),
        "image_name": "d1_1",
        "set_name": "train",
        "question_id": "7",
        "provider": None,
        "document": None,
        "label": None,
    }
    assert (last["position"], last["question_id"], last["answers"]) == (4, "train-3", ["a"])
    assert (last["provider"], last["document"], last["label"]) == ("Acme", "d1", 1)
    assert (last["words"], last["boxes"]) == ([], [])
    assert table.schema.metadata[b"fedpriv.length"] == b"5"


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("ocr_tokens", "a b", "expected a list of texts"),
        ("ocr_tokens", ["a", 3], "expected a text, found 3"),
        ("ocr_tokens", ["a", "\ud800"], "half a character"),
        ("ocr_normalized_boxes", [[0, 0, 1, 1]], r"4 numbers for each of 2 .* shape \(1, 4\)"),
        ("ocr_normalized_boxes", [[0, 0, 1], [0, 0, 1, 1]], "expected 4 numbers"),
        ("ocr_normalized_boxes", [[0, 0, 1, "1"], [0, 0, 1, 1]], "expected 4 numbers"),
        ("ocr_normalized_boxes", None, "expected boxes"),
        ("answers", 3, "expected a list of texts"),
        ("image_name", 3, "expected a text, found 3"),
        pytest.param("question_id", 10**5000, "4300 digits", id="long number"),
        ("label", "x", "expected a whole number"),
        ("provider", ["x"], "expected a text"),
    ],
)
def test_a_broken_record_is_counted_with_its_reason(tmp_path, field, value, says):
    np.save(tmp_path / "x.npy", objects(RECORD, RECORD | {field: value}), allow_pickle=True)
    done = write_records(tmp_path / "x.npy", tmp_path / "x.parquet")
    assert (done.records, done.skipped) == (1, 1)
    (reason,) = done.reasons
    assert reason.startswith("record 1: ")
    with pytest.raises(ValueError, match=says):
        raise ValueError(reason)


def test_boxes_may_be_lists_or_arrays_of_objects(tmp_path):
    boxes = RECORD["ocr_normalized_boxes"]
    forms = [
        boxes.tolist(),
        list(boxes),
        objects(*boxes),
        objects(*boxes.tolist()),
        boxes.astype("O"),
    ]
    records = [RECORD | {"ocr_normalized_boxes": form} for form in forms]
    np.save(tmp_path / "x.npy", objects(*records), allow_pickle=True)
    write_records(tmp_path / "x.npy", tmp_path / "x.parquet")
    rows = pq.read_table(tmp_path / "x.parquet").to_pylist()
    assert [row["boxes"] for row in rows] == [boxes.astype("float32").tolist()] * len(forms)


def test_many_records_keep_their_order(tmp_path):
    records = [RECORD | {"question": f"{number}?"} for number in range(600)]
    np.save(tmp_path / "x.npy", objects(HEADER, *records), allow_pickle=True)
    assert write_records(tmp_path / "x.npy", tmp_path / "x.parquet").records == 600
    rows = pq.read_table(tmp_path / "x.parquet", columns=["position", "question"]).to_pylist()
    assert rows == [{"position": n + 1, "question": f"{n}?"} for n in range(600)]


def test_a_failed_conversion_leaves_the_last_good_one(tmp_path):
    path = tmp_path / "x.npy"
    (tmp_path / "x.parquet").write_bytes(b"good")
    np.save(path, objects(Runs(os.system, "true")), allow_pickle=True)
    with pytest.raises(DataError, match="not a safe array of records"):
        convert(path, tmp_path)
    np.save(path, objects(HEADER), allow_pickle=True)
    with pytest.raises(DataError, match="none of its 1 items is a record"):
        convert(path, tmp_path)
    assert (tmp_path / "x.parquet").read_bytes() == b"good"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["x.npy", "x.parquet"]


def test_arrays_come_from_imdb_and_never_from_outside(tmp_path):
    release = tmp_path / "release"
    (release / "imdb").mkdir(parents=True)
    with pytest.raises(DataError, match=r"no \.npy files here"):
        arrays(release)
    for name in ("b.npy", "a.npy", "._a.npy"):
        (release / "imdb" / name).touch()
    assert [path.name for path in arrays(release)] == ["a.npy", "b.npy"]
    assert arrays(release / "imdb") == arrays(release)
    (tmp_path / "secret.npy").touch()
    (release / "imdb" / "c.npy").symlink_to(tmp_path / "secret.npy")
    with pytest.raises(DataError, match="a link that leads out"):
        arrays(release)
    with pytest.raises(ValueError, match="memory=-1: expected a positive number"):
        convert(tmp_path / "secret.npy", tmp_path, memory=-1)
