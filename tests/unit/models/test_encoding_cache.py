"""Encoded pages on disk: the same arrays, only while nothing has changed, whoever else writes."""

import dataclasses
import json
import multiprocessing
import os
import pickle
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedpriv.data.document import Document, Entity, Question, Word
from fedpriv.data.examples import Examples
from fedpriv.data.generated.invoices import Invoices
from fedpriv.data.partition import ByProvider
from fedpriv.federation.dataset import DocumentData
from fedpriv.models import encoding_cache
from fedpriv.models.encoding_cache import encode_cached
from fedpriv.models.layoutlmv3 import layoutlmv3
from fedpriv.runtime.cache import cache_folder
from fedpriv.runtime.torch_state import seeded_model


@dataclasses.dataclass
class Encoder:
    """Columns of every kind, and a count of how often it was asked."""

    settings: dict = dataclasses.field(default_factory=lambda: {"length": 3})
    calls: int = 0

    def reading(self):
        return self.settings

    def encode(self, documents):
        self.calls += 1
        count = len(documents)
        pages = np.stack([np.asarray(document.image()) for document in documents])
        return Examples.of(
            {
                "ids": np.arange(2 * count * 3).reshape(2 * count, 3),
                "document": np.repeat(np.arange(count), 2),
                "answers": np.array([f"{d.id} café\nß" for d in documents for _ in "ab"]),
                "empty": np.empty((2 * count, 0), np.float32),
            },
            {"pixels": (pages, "document")},
        )


class Mute(Encoder):
    reading = None


def page(number=0, **changes):
    document = Document(
        id=f"page {number}",
        provider="ACME",
        page=np.full((4, 4, 3), number, np.uint8),
        size=(4, 4),
        words=(Word("one", (0.0, 0.0, 1.0, 1.0), 0), Word("two", (1.0, 1.0, 2.0, 2.0), 1)),
        entities=(Entity("total", (1,)),),
        questions=(Question("total", "How much?", ("two",)),),
        split="train",
    )
    return dataclasses.replace(document, **changes)


PAGES = (page(0), page(1))


def content(examples):
    arrays = {name: examples.column(name) for name in examples.columns}
    arrays |= {f"/{name}": array for name, (array, _) in examples.shared.items()}
    return {name: (a.dtype.str, a.shape, a.tobytes()) for name, a in arrays.items()}


def entries(folder):
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def mapped(array):
    while array is not None and not isinstance(array, np.memmap):
        array = getattr(array, "base", None)
    return array is not None


def test_the_second_call_gives_the_same_and_encodes_nothing(tmp_path):
    model = Encoder()
    plain, first, second = (
        model.encode(PAGES),
        encode_cached(model, PAGES, tmp_path),
        encode_cached(model, PAGES, tmp_path),
    )
    assert model.calls == 2
    assert content(first) == content(second) == content(plain)
    assert second.shared["pixels"][1] == "document"
    assert second.columns["answers"].dtype.kind == "U"
    assert len(entries(tmp_path)) == 1


def test_arrays_are_mapped_from_the_file_and_read_only(tmp_path):
    for _ in range(2):
        examples = encode_cached(Encoder(), PAGES, tmp_path)
        arrays = {**examples.columns, "pixels": examples.shared["pixels"][0]}
        for array in arrays.values():
            assert mapped(array)
            assert type(array) is np.ndarray  # a memmap would be copied on its way to a worker
            with pytest.raises(ValueError, match="read-only"):
                array.flat[:1] = array.flat[:1]
    batch = examples.batch(np.array([3, 0]))
    assert batch["pixels"][:, 0, 0, 0].tolist() == [1, 0]
    batch["pixels"] += 1  # a batch is a copy


def test_a_worker_gets_the_arrays_without_the_files(tmp_path):
    examples = encode_cached(Encoder(), PAGES, tmp_path)
    buffers = []
    sent = pickle.dumps(examples, protocol=5, buffer_callback=buffers.append)
    assert len(buffers) >= 4  # out of band: Ray puts them into shared memory once
    encoding_cache.shutil.rmtree(tmp_path)
    assert content(pickle.loads(sent, buffers=buffers)) == content(examples)  # noqa: S301 - our own


def test_only_its_owner_can_read_an_entry(tmp_path):
    folder = tmp_path / "new"
    encode_cached(Encoder(), PAGES, folder)
    for path in (folder, *entries(folder)):
        assert path.stat().st_mode & 0o077 == 0


# What the key is made of


def moved(word, box):
    return dataclasses.replace(word, box=box)


WORDS = PAGES[0].words


@pytest.mark.parametrize(
    "changes",
    [
        {"id": "other"},
        {"provider": "Bolt"},
        {"size": (4, 5)},
        {"split": "test"},
        {"words": (moved(WORDS[0], (0.0, 0.0, 1.0, 1.5)), WORDS[1])},
        {"words": (dataclasses.replace(WORDS[0], segment=1), WORDS[1])},
        {"words": (dataclasses.replace(WORDS[0], text="won"), WORDS[1])},
        {"words": WORDS[::-1]},
        {"entities": (Entity("total", (0,)),)},
        {"entities": (Entity("date", (1,)),)},
        {"questions": (Question("total", "How much?", ("two", "2")),)},
        {"questions": (Question("total", "How many?", ("two",)),)},
        {"questions": (Question("sum", "How much?", ("two",)),)},
        {"page": np.full((4, 4, 3), 7, np.uint8)},
        {"page": np.zeros((2, 8, 3), np.uint8)},
    ],
    ids=str,
)
def test_whatever_changes_in_a_document_is_encoded_anew(changes, tmp_path):
    model = Encoder()
    encode_cached(model, PAGES[:1], tmp_path)
    encode_cached(model, [page(0)], tmp_path)
    assert model.calls == 1
    encode_cached(model, [page(0, **changes)], tmp_path)
    assert model.calls == 2
    assert len(entries(tmp_path)) == 2


def test_order_settings_and_the_kind_of_model_are_part_of_the_key(tmp_path):
    @dataclasses.dataclass
    class Other(Encoder):
        pass

    for model, pages in (
        (Encoder(), PAGES),
        (Encoder(), PAGES[::-1]),
        (Encoder({"length": 4}), PAGES),
        (Encoder({"length": 3, "case": "lower"}), PAGES),
        (Other(), PAGES),
    ):
        encode_cached(model, pages, tmp_path)
        assert model.calls == 1


def test_other_versions_and_other_code_encode_anew(tmp_path, monkeypatch):
    model = Encoder()
    encode_cached(model, PAGES, tmp_path)
    monkeypatch.setattr(encoding_cache, "versions_of", lambda *names: dict.fromkeys(names, "99"))
    encode_cached(model, PAGES, tmp_path)
    assert model.calls == 2
    monkeypatch.setattr(encoding_cache, "code_digest", lambda kind: "edited")
    encode_cached(model, PAGES, tmp_path)
    assert model.calls == 3


def test_the_code_of_the_models_and_of_the_users_own_counts(tmp_path):
    mine, read = tmp_path / "mine.py", {Path(name).name for name in encoding_cache._sources()}
    assert {"layoutlmv3.py", "reader.py", "subwords.py"} <= read
    mine.write_text("a = 1")
    one = encoding_cache._code.__wrapped__((str(mine),))
    mine.write_text("a = 2")
    assert encoding_cache._code.__wrapped__((str(mine),)) != one


def test_an_image_file_that_changed_is_read_again(tmp_path):
    path = tmp_path / "page.png"
    Image.new("RGB", (4, 4), "red").save(path)
    model, folder = Encoder(), tmp_path / "cache"
    encode_cached(model, [page(page=path)], folder)
    encode_cached(model, [page(page=path)], folder)
    assert model.calls == 1
    os.utime(path, ns=(1, 1))  # as large as before, but written since
    encode_cached(model, [page(page=path)], folder)
    assert model.calls == 2
    Image.new("RGB", (4, 4), "blue").save(path)
    examples = encode_cached(model, [page(page=path)], folder)
    assert examples.shared["pixels"][0][0, 0, 0].tolist() == [0, 0, 255]


def test_settings_that_are_not_plain_are_refused(tmp_path):
    with pytest.raises(ValueError, match="not JSON serializable: only plain values"):
        encode_cached(Encoder({"size": object()}), PAGES, tmp_path)


@pytest.mark.parametrize("model", [Encoder(), Mute()])
def test_no_folder_or_no_settings_is_no_cache(model, tmp_path):
    for _ in range(2):
        encode_cached(model, PAGES, tmp_path if model.reading is None else None)
    assert model.calls == 2
    assert not list(tmp_path.iterdir())


def test_columns_of_objects_are_not_kept(tmp_path):
    class Odd(Encoder):
        def encode(self, documents):
            return Examples.of({"x": np.array([None, {}], object)})

    assert len(encode_cached(Odd(), PAGES, tmp_path)) == 2
    assert not list(tmp_path.iterdir())


# What can go wrong


def cut(path):
    path.write_bytes(path.read_bytes()[:-1])


def flip(path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def rewritten(change):
    def damage(path):
        table = json.loads((path.parent / "table.json").read_text())
        change(table)
        (path.parent / "table.json").write_text(json.dumps(table))

    return damage


@pytest.mark.parametrize(
    "damage",
    [
        cut,
        flip,
        Path.unlink,
        lambda path: cut(path.parent / "table.json"),
        lambda path: (path.parent / "table.json").write_text("[]"),
        lambda path: (path.parent / "table.json").unlink(),
        rewritten(lambda table: table.update(format=0)),
        rewritten(lambda table: table["arrays"].pop("/pixels")),
        rewritten(lambda table: table["arrays"]["ids"].update(file="../../secret.npy")),
    ],
)
def test_a_damaged_entry_is_found_and_written_again(damage, tmp_path):
    model = Encoder()
    whole = content(encode_cached(model, PAGES, tmp_path))
    (entry,) = entries(tmp_path)
    damage(entry / "0.npy")
    assert content(encode_cached(model, PAGES, tmp_path)) == whole
    assert model.calls == 2
    assert content(encode_cached(model, PAGES, tmp_path)) == whole
    assert model.calls == 2
    assert entries(tmp_path) == [entry] == list(tmp_path.iterdir())


def test_an_entry_holding_pickled_objects_is_not_opened(tmp_path):
    model = Encoder()
    encode_cached(model, PAGES, tmp_path)
    (entry,) = entries(tmp_path)
    np.save(entry / "0.npy", np.array([{}], object), allow_pickle=True)
    table = json.loads((entry / "table.json").read_text())
    ids = table["arrays"]["ids"]
    ids["bytes"] = (entry / "0.npy").stat().st_size
    ids["sha256"] = encoding_cache._file_hash(entry / "0.npy")
    (entry / "table.json").write_text(json.dumps(table))
    encode_cached(model, PAGES, tmp_path)
    assert model.calls == 2


def test_a_folder_that_cannot_be_written_costs_a_warning_only(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.warns(UserWarning, match="encoded pages could not be kept: "):
        examples = encode_cached(Encoder(), PAGES, tmp_path / "file")
    assert content(examples) == content(Encoder().encode(PAGES))


class Processes:
    """Forked, so that they start at once and share what this test has changed."""

    def __init__(self):
        self.context = multiprocessing.get_context("fork")
        self.results = self.context.Queue()

    def start(self, work, *arguments):
        process = self.context.Process(target=self._work, args=(work, *arguments))
        process.start()
        return process

    def _work(self, work, *arguments):
        self.results.put(work(*arguments))


def test_processes_that_encode_at_once_all_succeed_though_one_is_killed(tmp_path, monkeypatch):
    processes = Processes()
    halfway, ready = processes.context.Event(), processes.context.Barrier(3)
    written = []

    def slowly(file, array, **more):
        written.append(array)
        if len(written) == 3:
            halfway.set()
            time.sleep(60)
        real_save(file, array, **more)

    def together():
        model = Encoder()
        examples = model.encode(PAGES)
        ready.wait(30)
        model.encode = lambda documents: examples  # all at the same moment
        return content(encode_cached(model, PAGES, tmp_path))

    real_save = np.save
    with monkeypatch.context() as patch:
        patch.setattr(np, "save", slowly)
        killed = processes.start(lambda: encode_cached(Encoder(), PAGES, tmp_path))
        assert halfway.wait(30)
        os.kill(killed.pid, signal.SIGKILL)
        killed.join(30)
    assert killed.exitcode == -signal.SIGKILL
    assert entries(tmp_path) == []
    assert len(list(tmp_path.iterdir())) == 1  # what it has left

    others = [processes.start(together) for _ in range(3)]
    results = [processes.results.get(timeout=60) for _ in others]
    for process in others:
        process.join(30)
        assert process.exitcode == 0
    assert results == [content(Encoder().encode(PAGES))] * 3
    assert len(entries(tmp_path)) == 1


def test_what_a_killed_process_left_is_removed_after_a_day(tmp_path):
    old, new = tmp_path / ".old.part", tmp_path / ".new.part"
    for left in (old, new):
        left.mkdir(parents=True)
        (left / "0.npy").write_bytes(b"half")
    yesterday = time.time() - 25 * 3600
    os.utime(old, (yesterday, yesterday))
    encode_cached(Encoder(), PAGES, tmp_path)
    assert not old.exists()
    assert new.exists()


# In a federation's data


def test_the_folder_is_named_by_the_environment_or_in_the_home_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDPRIV_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("FEDPRIV_CACHE")
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    assert cache_folder() == tmp_path / "home" / ".cache" / "fedpriv"


def bind(folder=None, **settings):
    source = Invoices(providers=3, documents_per_provider=3)
    bound = DocumentData(source, ByProvider(2), cache=folder).bind(
        lambda labels: layoutlmv3(labels, **settings), seed=0
    )
    return [content(bound.train), content(bound.test), [rows.tolist() for rows in bound.rows]]


def test_the_second_bind_decodes_no_image(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDPRIV_CACHE", str(tmp_path))
    first = bind()
    assert len(entries(tmp_path / "examples")) == 2  # train and test

    def unread(document):
        raise AssertionError(document.id)

    monkeypatch.setattr(Document, "image", unread)
    assert bind() == first
    with pytest.raises(AssertionError, match="invoice"):
        bind(max_length=64)
    with pytest.raises(AssertionError, match="invoice"):
        bind("off")


def test_the_cache_changes_no_bit(tmp_path):
    assert bind("off") == bind(tmp_path) == bind(str(tmp_path))
    assert len(entries(tmp_path)) == 2


def test_models_that_read_documents_say_how():
    model = seeded_model(lambda: layoutlmv3(["total"]), 0)
    json.dumps(model.reading())
