"""Real receipts and forms, put into a data set of the `datasets` library, are read as before."""

import os
from pathlib import Path

import numpy as np
import pytest
from datasets import ClassLabel, Dataset, Features, Image, List, Value

from fedpriv.data.hub.reader import HubData
from fedpriv.models.tagging import tags_of

DATA = Path(os.environ.get("FEDPRIV_DATA", "missing"))
PAGES = 12


@pytest.mark.parametrize(("name", "place"), [("sroie", "open"), ("funsd", "restricted")])
@pytest.mark.parametrize("unit", ["pixel", "thousandth"])
def test_the_same_pages_by_another_way(name, place, unit, request, tmp_path, monkeypatch):
    if not (DATA / place / name).is_dir():
        pytest.skip("needs real documents in FEDPRIV_DATA")
    monkeypatch.setenv("FEDPRIV_CACHE", str(tmp_path / "cache"))
    found = request.getfixturevalue(name)
    documents = found.documents[:PAGES]
    tags = tags_of(found.labels)

    def boxes(document):
        whole = np.tile(document.size, 2) if unit == "thousandth" else np.full(4, 1000)
        given = np.array([word.box for word in document.words])
        return np.round(given * 1000 / whole).astype(int).tolist()

    rows = {
        "id": [one.id for one in documents],
        "words": [[word.text for word in one.words] for one in documents],
        "bboxes": [boxes(one) for one in documents],
        "ner_tags": [[tags.index(tag) for tag in one.tags()] for one in documents],
        "image": [{"bytes": one.page.read_bytes(), "path": None} for one in documents],
        "company": [one.provider for one in documents],
    }
    features = Features(
        {
            "id": Value("string"), "words": List(Value("string")),
            "bboxes": List(List(Value("int64"))), "ner_tags": List(ClassLabel(names=list(tags))),
            "image": Image(), "company": Value("string"),
        }
    )  # fmt: skip
    Dataset.from_dict(rows, features).save_to_disk(str(tmp_path / "set"))
    again = HubData(str(tmp_path / "set")).load()
    assert again.labels == found.labels
    assert len(again.documents) == PAGES
    for old, new in zip(documents, again.documents, strict=True):
        assert (new.id, new.provider, new.size) == (old.id, old.provider, old.size)
        assert [word.text for word in new.words] == [word.text for word in old.words]
        assert set(new.entities) == set(old.entities)
        apart = np.abs(
            [np.subtract(a.box, b.box) for a, b in zip(new.words, old.words, strict=True)]
        )
        assert apart.max() <= max(1, 0.0006 * max(old.size))  # boxes are whole numbers there
        assert np.array_equal(new.pixels(), old.pixels())
