"""A round costs by its cohort: what is drawn and read of a federation of ten thousand clients."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn

from fedpriv.clients.fedavg import LocalTraining
from fedpriv.data import drawn_page
from fedpriv.data.document import Document, DocumentSet, Question, Word
from fedpriv.data.drawn_page import Drawing, DrawnPage, PageText
from fedpriv.data.examples import Examples
from fedpriv.data.partition import ByProvider, HoldOut
from fedpriv.federation.dataset import DocumentData
from fedpriv.federation.grids.inline import InlineGrid
from fedpriv.federation.loop import Federation
from fedpriv.privacy.sampling import FixedSize
from fedpriv.strategies.fedavg import FedAvg
from fedpriv.training.loops import Optimizer

CLIENTS, COHORT = 10_000, 100

drawn = []


def one_word(number):
    drawn.append(number)
    words = (Word(str(number), (0.0, 0.0, 2.0, 1.0), 0),)
    text = PageText(words, (), (Question("number", "Which?", (str(number),)),))
    return Drawing(np.full((2, 2, 3), number % 256, np.uint8), text)


@dataclass(frozen=True)
class Pages:
    """Pages of one word, several of each provider."""

    providers: int = CLIENTS
    pages: int = 1

    def load(self):
        made = [
            Document.drawn(f"page {n}", f"provider {n // self.pages}", page, (2, 2))
            for n in range(self.providers * self.pages)
            for page in [DrawnPage(one_word, (n,))]
        ]
        return DocumentSet("pages of one word", tuple(made), ("number",))


class Windows(nn.Module):
    """Reads a page in one to three windows, and learns a constant."""

    def __init__(self, labels=()):
        super().__init__()
        self.constant = nn.Parameter(torch.zeros(1))

    def reading(self):
        return {}

    def encode(self, documents):
        numbers = [int(document.words[0].text) for document in documents]
        windows = [1 + number % 3 for number in numbers]
        return Examples.of(
            {
                "number": np.repeat(np.array(numbers, np.float32), windows),
                "document": np.repeat(np.arange(len(documents)), windows),
            }
        )

    def loss(self, batch):
        return (self.constant - batch["number"] / CLIENTS).square().mean()

    def answer(self, documents):
        return [() for _ in documents]

    def tag(self, document):
        return ["O"] * len(document.words)

    def evaluate(self, examples):
        return {}


@pytest.fixture(autouse=True)
def nothing_drawn():
    forget()


def forget():
    drawn.clear()
    drawn_page._drawn.cache_clear()
    drawn_page._text.cache_clear()


def data(folder, clients=CLIENTS, source=None):
    return DocumentData(source or Pages(), ByProvider(clients), HoldOut(fraction=0), cache=folder)


def test_with_encoded_pages_a_run_draws_none_and_a_round_reads_those_of_its_cohort(
    tmp_path, monkeypatch
):
    data(tmp_path / "cache").bind(Windows, seed=0)
    assert len(drawn) == CLIENTS
    forget()

    read, whole = set(), Examples.batch

    def batch(examples, positions, device="cpu"):
        read.update(examples.rows[positions].tolist())
        return whole(examples, positions, device)

    monkeypatch.setattr(Examples, "batch", batch)
    federation = Federation(
        model=Windows,
        data=data(tmp_path / "cache"),
        strategy=FedAvg(sampling=FixedSize(count=COHORT)),
        client=LocalTraining(optimizer=Optimizer(lr=0.1)),
        runs=tmp_path / "runs",
    )
    rows = federation.bound.rows
    assert len(rows) == CLIENTS
    tried = set(read)
    assert len(tried) == 1  # the example that a fresh model is tried on
    (record,) = federation.run(1).metrics
    assert drawn == []
    cohort = [int(client) for client in record["bytes_by_client"]]
    assert len(cohort) == COHORT
    assert read - tried == {row for client in cohort for row in rows[client].tolist()} - tried


def test_a_round_sends_to_its_cohort_only(tmp_path, monkeypatch):
    made, create = [], InlineGrid.create_message

    def counted(grid, *given):
        made.append(given)
        return create(grid, *given)

    monkeypatch.setattr(InlineGrid, "create_message", counted)
    federation = Federation(
        model=Windows,
        data=data(tmp_path / "cache"),
        strategy=FedAvg(sampling=FixedSize(count=COHORT)),
        client=LocalTraining(optimizer=Optimizer(lr=0.1)),
        runs=tmp_path / "runs",
    )
    federation.run(2)
    assert len(made) == 2 * COHORT


def test_who_has_what_part_is_read_when_it_is_asked_for(tmp_path):
    data(tmp_path, clients=4, source=Pages(6, 2)).bind(Windows, seed=0)
    forget()
    bound = data(tmp_path, clients=4, source=Pages(6, 2)).bind(Windows, seed=0)
    assert drawn == []
    parts = bound.parts
    assert sorted(drawn) == list(range(12))
    assert parts["provider 2"].documents == 2
    assert parts["provider 2"].answers == {"number": ("4", "5")}


def test_each_client_has_all_windows_of_its_documents(tmp_path):
    bound = data(tmp_path, clients=5, source=Pages(13, 2)).bind(Windows, seed=3)
    of_document = bound.train.column("document")
    assert sorted(np.concatenate(bound.rows).tolist()) == list(range(len(of_document)))
    for client, rows in enumerate(bound.rows):
        held = {bound.documents[i].id for i in of_document[rows]}
        named = bound.partition["clients"][str(client)]
        assert held == {name for names in named.values() for name in names}
        assert rows.tolist() == sorted(rows.tolist())
