"""A stranger's config and tokenizer take no more than a model's: they are refused in a line."""

import json
import shutil
import time

import pytest

from fedpriv.data import apart
from fedpriv.data.document import DataError
from fedpriv.models.auto import auto
from fedpriv.models.layoutlmv3 import layoutlmv3
from fedpriv.models.readers.subwords import Subwords
from fedpriv.runtime.torch_state import seeded_model


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "model"
    seeded_model(lambda: layoutlmv3(("date", "total")), 0).save_pretrained(folder)
    return folder


@pytest.fixture
def folder(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "model")


def changed(folder, name, **values):
    file = folder / name
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"num_hidden_layers": 10**7}, r"num_hidden_layers=10000000: expected at most 1,000"),
        ({"num_labels": 10**9}, r"num_labels=1000000000: expected at most 100,000"),
        ({"id2label": {str(n): "x" for n in range(10**5 + 1)}}, "id2label=100001: expected"),
        ({"vocab_size": 10**12}, "vocab_size=1000000000000: expected at most 10,000,000"),
        ({"text_config": {"num_layers": 10**6}}, "num_layers=1000000: expected at most 1,000"),
        ({"num_hidden_layers": -3}, "num_hidden_layers=-3: expected 0 or more"),
        ({"quantization_config": {"quant_method": "awq"}}, "expected weights in floating point"),
        ({"depths": [2, 10**6]}, "depths=1000000: expected at most 1,000"),
    ],
)
def test_a_config_of_no_model_is_refused_before_it_is_built(folder, values, told):
    changed(folder, "config.json", **values)
    began = time.monotonic()
    for load in (layoutlmv3, auto):
        with pytest.raises(ValueError, match=told):
            load(("date", "total"), pretrained=folder)
    assert time.monotonic() - began < 20


REPLACE = {"type": "Replace", "pattern": {"Regex": "."}, "content": "abcdefghijklmnopqrst"}


@pytest.mark.parametrize(
    ("normalizer", "told"),
    [
        ({"type": "Sequence", "normalizers": [REPLACE] * 7}, "took|takes|memory|ended"),
        ({"type": "Sequence", "normalizers": [REPLACE] * 3}, "tokens of a line of 95 letters"),
        ({"type": "Prepend", "prepend": "abc " * 2_500_000}, "tokens of a line|memory|time"),
        ({"type": "Nonsense"}, "no tokenizer that can be read"),
    ],
)
def test_a_tokenizer_that_makes_a_book_of_a_line_is_refused(folder, normalizer, told, monkeypatch):
    monkeypatch.setattr(apart, "SECONDS", 10)
    changed(folder, "tokenizer.json", normalizer=normalizer)
    with pytest.raises((DataError, ValueError), match=rf"tokenizer\.json: .*({told})"):
        Subwords.from_pretrained(folder)


@pytest.mark.parametrize(
    "values", [{"hidden_act": "os.system"}, {"num_attention_heads": 0}, {"dtype": "float99"}]
)
def test_a_config_that_makes_the_libraries_stumble_is_named(folder, values):
    changed(folder, "config.json", model_type="lilt", **values)
    with pytest.raises(ValueError, match=r"model(/|: a model as its )config\.json"):
        auto(("date", "total"), pretrained=folder)


def test_a_tokenizer_as_it_is_reads_on(folder):
    assert Subwords.from_pretrained(folder).pieces(["total"])
    assert auto(("date", "total"), pretrained=folder)
