"""Public documents that are private too are found, and no view of such a run is a guarantee."""

import dataclasses
import io
import json

import numpy as np
import pytest
import toy_answers
from PIL import Image

from fedpriv.clients.feam_dp import ExampleGradients
from fedpriv.data.document import Document, Word
from fedpriv.data.examples import Examples
from fedpriv.data.partition import ByProvider, HoldOut
from fedpriv.federation.dataset import DocumentData, FederatedDataset
from fedpriv.federation.loop import Federation
from fedpriv.federation.overlap import published, published_problems, traces
from fedpriv.privacy.mechanism import example_gaussian
from fedpriv.runtime.cache import SECRET, user_secret
from fedpriv.strategies.feam_dp import FeAmDP
from fedpriv.training.pretraining import Pretraining


def page(name, text="", seed=0, size=(40, 30), **other):
    """A page of random shades with its words in a row."""
    words = tuple(Word(word, (n, 10, n + 1, 16), 0) for n, word in enumerate(text.split(), start=1))
    blocks = np.random.default_rng(seed).integers(0, 255, (3, 4), dtype=np.uint8)
    shades = np.kron(blocks, np.ones((10, 10), np.uint8))[: size[1], : size[0]]
    pixels = np.pad(shades, [(0, size[1] - shades.shape[0]), (0, size[0] - shades.shape[1])])
    return Document(name, "p", pixels, size, words, **other)


def enlarged(document):
    """The page at twice the resolution, as JPEG: other pixels, the words where they were."""
    file = io.BytesIO()
    document.image().resize((80, 60), Image.Resampling.NEAREST).save(file, "JPEG")
    words = tuple(
        dataclasses.replace(w, box=tuple(2.0 * side for side in w.box)) for w in document.words
    )
    pixels = np.asarray(Image.open(file))
    return dataclasses.replace(document, id="again", page=pixels, size=(80, 60), words=words)


PRIVATE = [page("a", "Total 9.00", seed=1), page("b", "Total 8.00", seed=2), page("c", seed=3)]


def test_pages_of_others_are_not_found():
    public = [page("a", "Total 7.00", seed=4), page("c", seed=5, size=(41, 30)), page("d", seed=6)]
    assert published(PRIVATE, public) == []
    assert published_problems(PRIVATE, public) == []


def test_the_same_words_in_the_same_places_are_the_same_page():
    assert published(PRIVATE, [enlarged(PRIVATE[1])]) == ["b"]
    moved = tuple(dataclasses.replace(w, box=(0, 0, 5, 5)) for w in PRIVATE[1].words)
    assert published(PRIVATE, [dataclasses.replace(enlarged(PRIVATE[1]), words=moved)]) == []


def test_few_words_may_be_another_page_s_and_many_are_not():
    """The name on a card says little; a letter is the same letter on other paper."""
    card, letter = page("card", "Ada Ltd", seed=1), page("letter", "word " * 12, seed=2)
    public = [page("x", "Ada Ltd", seed=3), page("y", "word " * 12, seed=4)]
    assert published([card, letter], public) == ["letter"]


def test_the_same_pixels_are_the_same_page_whatever_was_read_there():
    other = dataclasses.replace(PRIVATE[0], id="x", provider="q", words=())
    assert published(PRIVATE, [other, page("y", seed=3)]) == ["a", "c"]


def test_a_page_makes_its_document_public():
    sheets = [page("l/1", seed=1, part_of="l"), page("l/2", seed=2, part_of="l")]
    assert published(sheets, [page("x", seed=2)]) == ["l"]


def test_blank_pages_are_alike_only_by_their_words():
    def blank(name, text):
        white = np.full((30, 40, 3), 255, np.uint8)
        return dataclasses.replace(page(name, text), page=white)

    private = [blank("a", "Total 9.00"), blank("b", "Total 8.00"), blank("c", "")]
    assert published(private, [blank("x", "Total 8.00"), blank("y", "")]) == ["b"]


def test_the_sentence_counts_all_and_names_a_few():
    private = [page(f"d{n}", seed=n) for n in range(9)]
    (sentence,) = published_problems(private, private[:7])
    assert sentence.startswith("7 of 9 training documents")
    assert sentence.endswith("d0, d1, d2, d3, d4 and 2 more")


def private_run(first=0, **more):
    """A federation on pages from a place on."""
    return Federation(
        model=toy_answers.chooser,
        data=DocumentData(
            Coloured(first), ByProvider(clients=2), HoldOut(fraction=0.0), cache="off"
        ),
        strategy=FeAmDP(example_gaussian(clip_norm=0.1, examples=4, noise_multiplier=9.0)),
        client=ExampleGradients(),
        **more,
    )


@pytest.fixture
def federated(tmp_path, capsys):
    """Runs a private federation after pretraining; returns its ledger and what it said before."""

    def run(first):
        public = Pretraining(Coloured(first), epochs=1, cache=tmp_path / "cache")
        made = private_run(pretraining=public, runs=tmp_path)
        before = capsys.readouterr().err
        result = made.run(rounds=1)
        return json.loads((result.run_dir / "ledger.json").read_text()), before

    return run


@dataclasses.dataclass(frozen=True)
class Coloured:
    """Pages without words, told apart by their colour."""

    first: int = 0

    def load(self):
        loaded = toy_answers.Pages(providers=4, each=1, first=self.first).load()
        pages = tuple(
            dataclasses.replace(p, words=(), page=p.page + (n + self.first) * np.eye(4, dtype="u1"))
            for n, p in enumerate(loaded.documents)
        )
        return dataclasses.replace(loaded, documents=pages)


def test_pretraining_on_private_pages_voids_every_guarantee_and_is_said_before_training(federated):
    ledger, before = federated(first=2)
    told = "2 of 4 training documents were read in pretraining"
    assert told in before
    for view in ledger["views"].values():
        assert not view["guarantee"]
        (doubt,) = (doubt for doubt in view["doubts"] if told in doubt)
        assert sorted(doubt.split(": ")[-1].split(", ")) == ["p2-0", "p3-0"]


def test_pretraining_on_other_pages_changes_no_guarantee(federated):
    ledger, before = federated(first=4)
    assert "training documents" not in before
    assert ledger["views"]["global"]["guarantee"]
    assert ledger["uncovered"] == []


# Traces


def bound_to(documents, rows):
    """Documents as a federation has them: an example each, dealt out by `rows`."""
    train = Examples.of({"document": np.arange(len(documents))})
    return FederatedDataset(lambda: None, train, rows, documents=tuple(documents))


LETTERS = [
    dataclasses.replace(page(name, f"{name} " * 12, seed=n), provider=f"of {name}")
    for n, name in enumerate("abcd")
]
BY_TWO = (np.array([0, 1]), np.array([2, 3]))


def test_a_copy_of_the_data_in_another_order_and_resolution_leaves_the_same_traces():
    one = traces(bound_to(LETTERS, BY_TWO), "digest")
    copied = [enlarged(letter) for letter in LETTERS[2:] + LETTERS[:2]]
    other = traces(bound_to(copied, BY_TWO), "another")
    kinds = ("providers", "clients", "secret", "encoding")
    assert [one[kind] for kind in kinds] == [other[kind] for kind in kinds]
    assert one["data"] != other["data"]
    assert len({*one["documents"]} & {*other["documents"]}) == len(LETTERS)  # by their words
    split = traces(bound_to(LETTERS, (np.array([0, 2]), np.array([1, 3]))), "digest")
    assert split["documents"] == one["documents"]
    assert not set(split["clients"]) & set(one["clients"])


def test_a_page_is_known_by_any_of_name_file_and_words():
    letter = LETTERS[0]
    alike = {
        "name": dataclasses.replace(letter, page=letter.page + 1, words=letter.words[:3]),
        "file": dataclasses.replace(letter, id="other", words=()),
        "words": dataclasses.replace(letter, id="other", page=letter.page + 1),
    }
    first = {*traces(bound_to([letter], (np.array([0]),)), "a")["documents"]}
    for changed in alike.values():
        second = {*traces(bound_to([changed], (np.array([0]),)), "b")["documents"]}
        assert len(first & second) == 1


def test_traces_say_nothing_without_the_secret_that_only_this_user_has(monkeypatch):
    one = traces(bound_to(LETTERS, BY_TWO), "digest")
    monkeypatch.setattr("fedpriv.federation.overlap.user_secret", lambda: b"of somebody else")
    other = traces(bound_to(LETTERS, BY_TWO), "digest")
    for kind in one:
        assert not {*one[kind]} & {*other[kind]} or kind == "secret"
    assert one["secret"] != other["secret"]


def test_the_secret_is_drawn_once_and_readable_by_its_owner_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDPRIV_CACHE", str(tmp_path))
    secret = user_secret()
    assert secret == user_secret() == (tmp_path / SECRET).read_bytes()
    assert len(secret) == 32
    assert (tmp_path / SECRET).stat().st_mode & 0o77 == 0


def test_resumed_on_other_data_a_run_is_known_to_be_on_both(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runs = [private_run(first) for first in (0, 2)]
    for made, rounds in zip(runs, (1, 2), strict=True):
        made.run(rounds=rounds, run_dir="here", resume=rounds == 2, other_data=True)
    units = json.loads((tmp_path / "here" / "units.json").read_text())
    alone = [traces(made.bound, made.data_digest) for made in runs]
    for kind in ("data", "documents", "providers", "clients"):
        assert {*units[kind]} == {*alone[0][kind], *alone[1][kind]}
