"""Held-out documents of seen and of unseen providers: drawn apart, and evaluated apart."""

import json
from dataclasses import replace

import numpy as np
import pytest
from pages import page
from torch import nn
from toy import data, federation

from fedpriv.clients.fedavg import LocalTraining
from fedpriv.data.document import DocumentSet
from fedpriv.data.examples import Examples
from fedpriv.data.folder.progress import tell
from fedpriv.data.partition import ByClient, ByProvider, HoldOut, Iid
from fedpriv.federation.dataset import DocumentData
from fedpriv.federation.loop import Federation
from fedpriv.report.rounds import metric_groups, metric_label
from fedpriv.strategies.fedavg import FedAvg


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def pages(providers=10, each=6, tests=0):
    return tuple(
        page(f"w{p}", name=f"{p}-{n}", provider=f"P{p}", split="test" if n < tests else "train")
        for p in range(providers)
        for n in range(each)
    )


def owners(documents, positions):
    return {documents[i].provider for i in positions}


class AtBranches:
    """Four providers at each of three branches, two pages each; of Ö, one at Bern (neu)."""

    def __init__(self, clients=True):
        pairs = [(f"P{p}", "xyz"[p % 3]) for p in range(12)] + [("Ö", "Bern (neu)")]
        self.pages = tuple(
            replace(page("w", name=f"{name} {n}", provider=name), client=client if clients else "")
            for name, client in pairs
            for n in range(2)
        )

    def load(self):
        return DocumentSet("branches", self.pages, ())


def test_a_client_that_loses_everything_is_named_and_nobody_is_spared_for_it(capsys):
    def data(seed, **settings):
        rule = HoldOut("document", 0.2, unseen=0.5)
        tell.cache_clear()
        return DocumentData(AtBranches(), ByClient(), rule, **settings).dealt(seed)

    emptied = set()
    for seed in range(10):
        dealt, told = data(seed), capsys.readouterr().err
        named = {page.client for page in dealt.of(dealt.trained)}
        gone = {"x", "y", "z", "Bern (neu)"} - named
        assert len(dealt.deal) == len(named)
        assert all(f"the client '{name}' takes no part: all of its documents" in told
                   for name in gone)  # fmt: skip
        assert bool(told) is bool(gone)
        emptied |= gone
        # Who is held out is drawn as if nobody were named, so that no member is one for certain.
        alone = DocumentData(AtBranches(False), Iid(1), HoldOut("document", 0.2, unseen=0.5))
        assert dealt.held == alone.dealt(seed).held
        # One client that holds all documents has lost nothing.
        data(seed, pooled=True)
        assert not capsys.readouterr().err
    assert "Bern (neu)" in emptied
    tell.cache_clear()
    public = DocumentData(AtBranches(), ByClient(), HoldOut("document", 0), public=0.95)
    assert len(public.dealt(0).deal) + capsys.readouterr().err.count("takes no part") == 4


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("by", ["document", "split"])
def test_unseen_providers_are_held_back_wholly_beside_documents_of_the_others(by, seed):
    documents = pages(tests=2)
    hold = HoldOut(by, 0.25, unseen=0.3)
    train, held = hold.split(documents, seed)
    groups = hold.groups(documents, train, held)
    assert sorted(train + held) == list(range(60))
    assert sorted(groups["seen"] + groups["unseen"]) == held
    assert len(owners(documents, groups["unseen"])) == 3
    assert len(groups["unseen"]) == 18
    assert not owners(documents, groups["unseen"]) & owners(documents, train)
    assert owners(documents, groups["seen"]) <= owners(documents, train)
    # Of the other seven providers' 42 documents: about a quarter, or the split's two each.
    assert len(groups["seen"]) in (range(5, 17) if by == "document" else [14])


def test_which_providers_are_unseen_depends_on_the_seed():
    documents = pages()
    hold = HoldOut("document", 0.2, unseen=0.2)

    def unseen(seed):
        return tuple(
            sorted(
                owners(documents, hold.groups(documents, *hold.split(documents, seed))["unseen"])
            )
        )

    assert unseen(0) == unseen(0)
    assert len({unseen(seed) for seed in range(6)}) > 1


def test_without_unseen_nothing_changes_and_there_are_no_groups():
    documents = pages()
    train, held = HoldOut("document", 0.2).split(documents, 3)
    rng_choice = HoldOut("document", 0.2, unseen=0.0).split(documents, 3)
    assert (train, held) == rng_choice
    assert len(held) == 12
    assert HoldOut().groups(documents, train, held) == {}


def test_a_provider_of_whom_nothing_is_trained_on_by_chance_is_unseen():
    documents = pages(providers=2, each=2)
    groups = HoldOut(unseen=0.5).groups(documents, [0], [1, 2, 3])
    assert groups == {"seen": [1], "unseen": [2, 3]}


def test_only_unseen_providers_may_be_held_back():
    documents = pages()
    hold = HoldOut("document", 0.0, unseen=0.1)
    assert set(hold.groups(documents, *hold.split(documents, 0))) == {"unseen"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"unseen": 1.0}, r"unseen=1\.0: expected a value in \[0, 1\)"),
        ({"unseen": -0.1}, r"unseen=-0\.1: expected a value in \[0, 1\)"),
        ({"by": "provider", "unseen": 0.1}, r"unseen=0\.1: with by='provider' all held-out .*"),
    ],
)
def test_settings_are_checked(arguments, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        HoldOut(**arguments)


def test_a_fraction_of_no_provider_is_refused():
    with pytest.raises(ValueError, match=r"^unseen=0\.04 of 10 providers is none: .* 0\.1$"):
        HoldOut(unseen=0.04).split(pages(), 0)


def test_holding_everything_back_is_refused():
    with pytest.raises(ValueError, match="leaves none of 12 documents to train on"):
        HoldOut(unseen=0.9).split(pages(providers=2), 0)


class Source:
    def load(self):
        return DocumentSet("pages", pages(), ("x",))


class Memory(nn.Module):
    """Two rows a document; its scores tell which documents it was asked about."""

    def __init__(self, labels):
        super().__init__()
        self.layer = nn.Linear(1, 1)

    def encode(self, documents):
        number = [float(document.provider[1:]) for document in documents for _ in "ab"]
        place = np.repeat(np.arange(len(documents)), 2)
        x = np.array(number, np.float32)[:, None]
        return Examples.of({"x": x, "document": place})

    def loss(self, batch):
        return self.layer(batch["x"]).square().mean()

    def evaluate(self, examples):
        asked = np.unique(examples.column("x"))
        return {"share": len(asked) / 10, "rows": float(len(examples)), "share/total": 1.0}

    def answer(self, documents):
        return [() for _ in documents]

    def tag(self, document):
        return ["O"] * len(document.words)


@pytest.fixture
def result():
    return Federation(
        model=Memory,
        data=DocumentData(
            Source(), ByProvider(2), HoldOut("document", 0.25, unseen=0.3), cache="off"
        ),
        strategy=FedAvg(),
        client=LocalTraining(),
    ).run(1)


def test_each_group_is_evaluated_by_itself_and_all_of_them_together(result):
    record = result.metrics[0]
    assert record["rows_unseen"] == 3 * 6 * 2
    assert record["rows_seen"] == 10 * 2
    assert record["rows"] == record["rows_seen"] + record["rows_unseen"]
    assert record["share_unseen"] == 0.3
    assert record["share/total"] == 1.0
    assert not any("/" in name and name.endswith("seen") for name in record)


def test_the_groups_are_named_in_the_run_folder(result):
    partition = json.loads((result.run_dir / "partition.json").read_text())
    trained = {p for client in partition["clients"].values() for p in client}
    groups = partition["test_groups"]
    assert len(groups["unseen"]) == 3
    assert not set(groups["unseen"]) & trained
    assert set(groups["seen"]) <= trained
    assert set(groups["seen"]) | set(groups["unseen"]) == set(partition["test"])


def test_data_without_groups_is_evaluated_once():
    assert data().bind(lambda: None, 0).test_groups == {}
    record = federation().run(1).metrics[0]
    assert not [name for name in record if name.endswith("seen")]


def test_the_report_shows_groups_as_scores_and_losses_of_their_own():
    row = {"loss_seen": 2.0, "f1_seen": 0.5, "f1_unseen": 0.4, "anls_unseen": 0.1}
    groups = metric_groups({1: row})
    assert set(groups.scores) == {"f1_seen", "f1_unseen", "anls_unseen"}
    assert set(groups.losses) == {"loss_seen"}
    assert metric_label("f1_seen") == "F1 (seen suppliers)"
    assert metric_label("loss_unseen") == "held-out loss (unseen suppliers)"
    assert metric_label("seen") == "seen"
