"""What is scored is what a row holds, and what is a leak: on documents that nobody tuned on."""

import os
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from oracle import claimed
from scipy.stats import binomtest

from fedpriv.data.generated.slips import Slips
from fedpriv.data.readers.xfund import Xfund
from fedpriv.models.donut import donut
from fedpriv.models.layoutlmv3 import layoutlmv3
from fedpriv.models.vt5 import vt5
from fedpriv.runtime.torch_state import seeded_model
from fedpriv.threat.results import LEAK
from fedpriv.threat.scoring.exchange import against_others, table_of, units_of
from fedpriv.threat.scoring.pages import TEXT_SCORES, WORTH, _share_of, score
from fedpriv.threat.scoring.verdicts import verdict
from fedpriv.threat.surfaces.batches import PrivatePages

DATA = os.environ.get("FEDPRIV_DATA")
pytestmark = pytest.mark.skipif(not DATA, reason="needs FEDPRIV_DATA")

MODELS = {
    "tags": partial(layoutlmv3, task="tags", image_size=112),
    "windows": partial(layoutlmv3, task="answers", size="small", image_size=112),
    "donut": donut,
    "vt5": partial(vt5, max_length=96),  # a page is cut
}


@pytest.fixture(scope="module")
def sets(sroie, funsd):
    xfund = Xfund(Path(DATA) / "restricted" / "xfund_zh").load()
    slips = Slips(providers=30, documents_per_provider=1).load()
    return {"sroie": sroie, "funsd": funsd, "xfund": xfund, "slips": slips}


def truths(loaded, build, documents, rows):
    """The model, and what each of so many rows holds, of as many documents where there are."""
    pages = loaded.documents[:documents]
    model = seeded_model(partial(build, labels=loaded.labels), 0)
    examples = model.encode(pages)
    read = PrivatePages(examples, pages, model, None)
    first = np.unique(examples.column("document"), return_index=True)[1]
    order = np.unique([*first, *range(len(examples))], return_index=True)[1]
    chosen = np.array([*first, *range(len(examples))])[np.sort(order)][:rows]
    return model, [read.truth(np.array([row])) for row in chosen]


@pytest.mark.parametrize(
    ("data", "model"),
    [
        *(("sroie", model) for model in MODELS),
        *(("funsd", "tags"), ("xfund", "tags")),
        *(("slips", model) for model in MODELS),
    ],
)
def test_who_claims_what_a_row_holds_gets_every_score_whole(sets, data, model):
    """Windows, cut pages and answers outside of the window included."""
    network, found = truths(sets[data], MODELS[model], documents=5, rows=30)
    whole = {"pages_recovered", *TEXT_SCORES} - {"words_named"}  # nothing is said to be alone
    told = set()
    for truth in found:
        scores = score(claimed(network, truth), truth, truth.template, None)
        scored = {name: value for name, value in scores.items() if name in whole}
        assert set(scored.values()) <= {1.0, None}, truth.documents
        told |= {name for name, value in scored.items() if value is not None}
    asked = {"question_exact", "answer_exact"} if model != "tags" else set()
    boxes = {"boxes_exact"} if model != "donut" else set()
    assert told == whole - {"question_exact", "answer_exact", "boxes_exact"} | asked | boxes
    # What lies outside of the window is no part of the truth, and was there.
    if (data, model) == ("sroie", "windows"):
        assert "" in {truth.answers[0] for truth in found}
        fields = [field for truth in found for page in truth.fields for field in page]
        assert {bool(field.tokens) for field in fields} == {True, False}


POOL, TIMES = 12, 200
"""Messages that there are, and how often some of them are drawn."""


def leaks(table, name, messages, rng):
    """How often claims are a leak, each held for that of another message that was drawn."""
    found = 0
    for _ in range(TIMES):
        some = rng.permutation(POOL)[:messages]
        order = rng.permutation(messages)
        while (order == np.arange(messages)).any():
            order = rng.permutation(messages)
        number = against_others(table[some[order]][:, [*some, *range(POOL, table.shape[1])]], "any")
        found += verdict(number, number.control + WORTH[name]) == LEAK
    return found


@pytest.mark.parametrize(
    ("data", "model"),
    [("sroie", "windows"), ("sroie", "tags"), ("funsd", "tags"), ("slips", "windows")],
)
def test_what_was_made_of_another_message_is_no_leak(sets, data, model):
    """In at most one of twenty cases; what was made of its own is one."""
    network, found = truths(sets[data], MODELS[model], documents=POOL + 18, rows=POOL + 18)
    found = [replace(truth, documents=(f"{place}",)) for place, truth in enumerate(found)]
    claims = [claimed(network, truth) for truth in found[:POOL]]
    units = units_of(found, [None] * len(found))
    rng = np.random.default_rng(1)
    for name in WORTH:
        table = table_of(claims, found, units, partial(_share_of, name))
        if np.isnan(table).all():  # a tagger has no answer
            continue
        for messages in (2, 6, POOL):
            alarms = leaks(table, name, messages, rng)
            assert binomtest(alarms, TIMES, 0.05, alternative="greater").pvalue > 0.01, name
        # Short questions have the same answers, and words, in many messages.
        if name in ("pages_recovered", "private_text"):
            own = against_others(table, "message")
            assert verdict(own, own.control + WORTH[name]) == LEAK, name
