"""How large the largest document, provider and client are, counted in what the noise protects."""

import dataclasses
import functools
import json
from dataclasses import dataclass

import numpy as np
import pytest
import toy_answers
import toy_private
from scipy.stats import norm

from fedpriv.clients.feam_dp import ExampleGradients
from fedpriv.data.augmentation import ExtractionBlocking
from fedpriv.data.document import DocumentSet
from fedpriv.data.generated.invoices import Invoices
from fedpriv.data.generated.slips import Slips
from fedpriv.data.partition import ByProvider, HoldOut, Iid
from fedpriv.federation.dataset import DocumentData
from fedpriv.federation.loop import Federation
from fedpriv.federation.units import example_meaning, largest_groups
from fedpriv.models.layoutlmv3 import layoutlmv3
from fedpriv.privacy.ledger import Attempt, Group, Ledger, shared_release
from fedpriv.privacy.mechanism import client_gaussian, example_gaussian, provider_gaussian
from fedpriv.privacy.statement import statement
from fedpriv.strategies.feam_dp import FeAmDP

EXAMPLES = example_gaussian(clip_norm=0.1, examples=10, noise_multiplier=1.0, client_rate=0.5)
PROVIDERS = provider_gaussian(clip_norm=1, providers=3, noise_multiplier=1.0)


@dataclass(frozen=True)
class Letters:
    """Letters of two companies: of two pages each, with two questions a page."""

    def load(self):
        pages = tuple(
            dataclasses.replace(
                toy_answers.page(10 * letter + sheet, "hello", "bo", name=f"l{letter}p{sheet}"),
                provider=f"c{letter % 2}",
                part_of=f"l{letter}",
            )
            for letter in range(6)
            for sheet in range(2)
        )
        return DocumentSet("letters", pages, ())


def bound(partition=None, model=toy_answers.chooser, **settings):
    partition = partition or ByProvider(clients=2)
    return DocumentData(Letters(), partition, HoldOut(fraction=0.0), cache="off", **settings).bind(
        model, 0
    )


def test_a_document_is_all_of_its_pages():
    groups = largest_groups(EXAMPLES, bound())
    assert groups == {
        "document": Group(4),  # two pages with two questions each
        "provider": Group(12),
        "client": Group(12),
    }


def test_blocking_counts_towards_the_document_that_is_blocked():
    """The one answer that stands on each page, "hello", is asked for once more without it."""
    groups = largest_groups(EXAMPLES, bound(augmentation=ExtractionBlocking()))
    assert groups["document"] == Group(6)
    assert groups["provider"] == Group(18)


def test_blocking_doubles_what_a_generated_slip_counts_for():
    def largest(augmentation):
        data = DocumentData(
            Slips(providers=3, documents_per_provider=2),
            ByProvider(clients=3),
            HoldOut(fraction=0.0),
            cache="off",
            augmentation=augmentation,
        )
        return largest_groups(EXAMPLES, data.bind(toy_answers.chooser, 0))["document"].records

    assert largest(ExtractionBlocking()) == 2 * largest(None)


def test_a_document_that_is_dealt_to_several_clients_is_told_as_such():
    groups = largest_groups(EXAMPLES, bound(Iid(clients=6)))
    assert groups["document"].records == 4
    assert groups["document"].clients == 2
    assert groups["provider"].clients > 2
    assert groups["client"] == Group(4)


def test_what_no_client_holds_counts_for_nothing():
    """Three rows of one letter are held, of the 24 that there are."""
    found = bound()
    few = dataclasses.replace(found, rows=(found.rows[0][:3], found.rows[1][:0]))
    expected = {"document": Group(3), "provider": Group(3), "client": Group(3)}
    assert largest_groups(EXAMPLES, few) == expected
    nobody = dataclasses.replace(found, rows=(found.rows[0][:0], found.rows[1][:0]))
    assert largest_groups(EXAMPLES, nobody) == {}


def test_a_provider_counts_where_it_is_held():
    """Not where its first example lies, which nobody holds here."""
    found = toy_private.provider_data(clients=3, providers=5).bind(toy_private.Small, 0)
    owners = found.train.column("provider")
    later = [
        np.array([row for row in rows if row != np.flatnonzero(owners == owners[row])[0]], np.int64)
        for rows in found.rows
    ]
    held = dataclasses.replace(found, rows=tuple(later))
    assert largest_groups(PROVIDERS, held) == {"client": Group(5)}


def test_the_client_is_a_larger_unit_for_providers_too():
    data = toy_private.provider_data(clients=3, providers=5)
    groups = largest_groups(PROVIDERS, data.bind(toy_private.Small, 0))
    assert groups == {"client": Group(5)}


def test_where_the_client_is_the_unit_nothing_is_larger():
    data = toy_private.provider_data(clients=3, providers=5).bind(toy_private.Small, 0)
    assert largest_groups(client_gaussian(clip_norm=1, noise_multiplier=1.0), data) == {}
    assert largest_groups(None, data) == {}


def test_the_only_client_is_no_unit():
    assert "client" not in largest_groups(EXAMPLES, bound(pooled=True))


@pytest.mark.parametrize(
    ("windows", "meaning", "questions"),
    [
        (1, "one question about a page with its answer, not a page or a document", None),
        (3, "a question beside one window of its page, neither the question nor the page", 3),
    ],
)
def test_an_example_of_a_model_that_answers_is_a_question(windows, meaning, questions):
    found = bound(model=lambda labels=(): toy_answers.Chooser(windows))
    assert example_meaning(found) == meaning
    groups = largest_groups(EXAMPLES, found)
    assert groups.get("question") == (Group(questions) if questions else None)
    assert groups["document"] == Group(4 * windows)


def test_an_example_of_a_model_that_tags_is_a_window():
    data = DocumentData(
        Invoices(providers=2, documents_per_provider=2), ByProvider(clients=2), HoldOut(fraction=0)
    )
    model = functools.partial(layoutlmv3, max_length=64)
    assert example_meaning(data.bind(model, 0)) == "a window of at most L tokens, not a document"
    plain = toy_private.data_of(3, 3).bind(toy_private.Small, 0)
    assert example_meaning(plain) == "one row of the training data"


def test_a_run_says_what_its_unit_is_and_what_is_larger(tmp_path):
    mechanism = dataclasses.replace(EXAMPLES, client_rate=1.0)
    made = Federation(
        model=toy_answers.chooser,
        data=DocumentData(Letters(), ByProvider(clients=2), HoldOut(fraction=0.0), cache="off"),
        strategy=FeAmDP(mechanism),
        client=ExampleGradients(),
        runs=tmp_path,
    )
    told = json.loads((made.run(rounds=1).run_dir / "ledger.json").read_text())
    assert told["meaning"] == (
        "adding or removing one training example: one question about a page with its answer, not a "
        "page or a document"
    )
    sizes = {unit: (of["records"], of["clients"]) for unit, of in told["larger_units"].items()}
    assert sizes == {"document": (4, 1), "provider": (12, 1), "client": (12, 1)}
    for unit, group in told["larger_units"].items():
        assert group["epsilon"]["global"] > told["views"]["global"]["pld"], unit


def gaussian_delta(mu, epsilon):
    """δ(ε) of a Gaussian whose mean moves by `mu` standard deviations (Balle and Wang 2018)."""
    return norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)


def test_a_document_at_two_clients_is_not_told_less_than_it_loses():
    """A page at each of two clients that are drawn independently; whoever looks knows who was.

    The sum then moves by 0, 1 or 2 clip norms. With both pages at one client it would move by two
    or not at all, which at this δ, just below the rate, is the smaller loss.
    """
    rate, sigma, delta = 0.3, 0.3, 0.2995
    mechanism = provider_gaussian(
        clip_norm=1, providers=1, noise_multiplier=sigma, client_rate=rate, delta=delta
    )

    def told(clients):
        ledger = Ledger(mechanism, groups={"document": Group(2, clients)})
        drawn = Attempt(1, 0, 2, (0, 1), (0, 1), released=True)
        ledger.book(shared_release(mechanism, drawn))
        return statement(ledger)["larger_units"]["document"]["epsilon"]["global"]

    def true_delta(epsilon):
        one, both = gaussian_delta(1 / sigma, epsilon), gaussian_delta(2 / sigma, epsilon)
        return 2 * rate * (1 - rate) * one + rate**2 * both

    assert true_delta(told(clients=2)) <= delta < true_delta(told(clients=1))
