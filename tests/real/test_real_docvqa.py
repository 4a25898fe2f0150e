"""The readers of DocVQA and PFL-DocVQA on real receipts in the layouts of those releases.

Expectations were counted in the raw files, or are read from them without the code under test.
"""

import json
import os
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedpriv.cli.data.convert import arrays, convert
from fedpriv.data.document import DataError
from fedpriv.data.readers.docvqa import DocVqa
from fedpriv.data.readers.pfl_docvqa import OfficialClients, PflDocvqa

DATA = os.environ.get("FEDPRIV_DATA")
pytestmark = pytest.mark.skipif(
    not DATA, reason="FEDPRIV_DATA is not set: the folder that holds derived/"
)
ROOT = Path(DATA or "unset") / "derived"
PFL = ROOT / "pfl_docvqa_layout"
BOTH = {"test": ("val", "red_test")}


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    out = tmp_path_factory.mktemp("converted")
    done = [convert(path, out) for path in arrays(PFL)]
    assert [(d.source.stem, d.records, d.skipped) for d in done] == [
        ("imdb_train_client_0", 24, 0),
        ("imdb_train_client_1", 24, 0),
        ("imdb_train_client_2", 24, 0),
        ("imdb_val", 36, 0),
        ("red_test", 84, 0),
    ]
    return out


@pytest.fixture(scope="module")
def pfl(converted):
    return PflDocvqa(PFL, converted=converted, **BOTH).load()


@pytest.fixture(scope="module")
def raw():
    """The records of every array, unpickled: this data is known to be ours."""
    found = []
    for name in ("imdb_train_client_0", "imdb_train_client_1", "imdb_train_client_2"):
        found += [*np.load(PFL / "imdb" / f"{name}.npy", allow_pickle=True)[1:]]
    for name in ("imdb_val", "red_test"):
        found += [*np.load(PFL / "imdb" / f"{name}.npy", allow_pickle=True)[1:]]
    return found


def test_the_counts_are_those_of_the_files(pfl):
    assert pfl.skipped == ()
    assert Counter(d.split for d in pfl.documents) == {"train": 18, "test": 30}
    assert sum(len(d.questions) for d in pfl.documents) == 192
    assert {len(d.questions) for d in pfl.documents} == {4}
    assert len({d.provider for d in pfl.documents if d.split == "train"}) == 9


def test_no_question_or_word_is_lost(pfl, raw):
    documents = {document.id: document for document in pfl.documents}
    asked = Counter()
    for record in raw:
        document = documents[record["image_name"]]
        question = document.questions[asked[document.id]]
        asked[document.id] += 1
        assert question.text == record["question"]
        assert question.answers == tuple(dict.fromkeys(record["answers"].split("\n")))
        if record["ocr_tokens"]:
            assert [word.text for word in document.words] == record["ocr_tokens"]
            scaled = record["ocr_normalized_boxes"] * [*document.size, *document.size]
            boxes = np.array([word.box for word in document.words])
            np.testing.assert_allclose(boxes, scaled, atol=2e-3)


def test_every_box_is_on_its_page(pfl):
    for document in pfl.documents:
        with Image.open(document.page) as image:
            assert document.size == image.size
        for word in document.words:
            x0, y0, x1, y1 = word.box
            assert 0 <= x0 < x1 <= document.size[0]
            assert 0 <= y0 < y1 <= document.size[1]


def test_providers_are_those_of_the_release(pfl):
    """One key has a line break; 9 of the 21 red pages are of providers trained on."""
    providers = {d.id: d.provider for d in pfl.documents}
    assert providers["X51006328919_1"] == "B & BEST RESTAURANT"
    red = json.loads((PFL / "imdb" / "red_doc2provider.json").read_text(encoding="utf-8"))
    assert len(red) == 21
    for document, value in red.items():
        assert providers[f"{document}_1"] == value["provider"].replace("\n", " ")
    trained = {d.provider for d in pfl.documents if d.split == "train"}
    assert sum(providers[f"{document}_1"] in trained for document in red) == 9


def test_the_official_clients_are_dealt_their_nine_providers(pfl, converted):
    train = [d for d in pfl.documents if d.split == "train"]
    deal = OfficialClients(PFL, converted=converted).deal(train, seed=0)
    points = json.loads((PFL / "imdb" / "data_points.json").read_text(encoding="utf-8"))
    held = [{train[place].provider for place in hand} for hand in deal]
    assert held == [{name.replace("\n", " ") for name in client} for client in points.values()]
    assert [len(hand) for hand in deal] == [6, 6, 6]


def test_the_release_itself_has_only_pickles():
    if any((PFL / "imdb").glob("*.parquet")):
        pytest.skip("converted in place")
    with pytest.raises(DataError, match="fedpriv data convert"):
        PflDocvqa(PFL).load()


def test_a_copy_converted_in_place_reads_the_same(pfl, converted, tmp_path):
    shutil.copytree(PFL, tmp_path / "pfl", copy_function=shutil.copyfile)
    for path in converted.iterdir():
        (tmp_path / "pfl").chmod(0o755)
        (tmp_path / "pfl" / "imdb").chmod(0o755)
        shutil.copyfile(path, tmp_path / "pfl" / "imdb" / path.name)
    again = PflDocvqa(tmp_path / "pfl", **BOTH).load()
    assert [d.words for d in again.documents] == [d.words for d in pfl.documents]


def test_docvqa_counts_and_words():
    found = DocVqa(ROOT / "docvqa_v1_layout").load()
    assert found.skipped == ()
    assert len(found.documents) == len({d.provider for d in found.documents}) == 12
    assert {len(d.questions) for d in found.documents} == {3}
    assert sum(len(d.words) for d in found.documents) == 1173
    base = ROOT / "docvqa_v1_layout" / "val"
    asked = json.loads((base / "val_v1.0.json").read_text(encoding="utf-8"))["data"]
    assert [(q.text, q.answers) for d in found.documents for q in d.questions] == [
        (item["question"], tuple(item["answers"])) for item in asked
    ]
    for document in found.documents:
        ocr = json.loads((base / "ocr_results" / f"{document.id}.json").read_text("utf-8"))
        words = [
            (word["text"], tuple(word["boundingBox"][:2] + word["boundingBox"][4:6]), number)
            for number, line in enumerate(ocr["recognitionResults"][0]["lines"])
            for word in line["words"]
        ]
        assert [(word.text, word.box, word.segment) for word in document.words] == words
