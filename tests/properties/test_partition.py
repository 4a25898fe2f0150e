"""Who holds which documents, whatever the documents."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pages import page

from fedpriv.data.partition import (
    ByClient,
    ByProvider,
    DirichletOverProviders,
    HoldOut,
    Iid,
    by_provider,
    table,
)
from fedpriv.runtime.seeds import generator

seeds = st.integers(0, 2**32)


def document(number, provider, split=""):
    return page("word", name=f"d{number}", provider=provider, split=split)


def documents(providers, splits=None):
    splits = splits or [""] * len(providers)
    return [
        document(k, provider, split)
        for k, (provider, split) in enumerate(zip(providers, splits, strict=True))
    ]


def at_branches(providers, branches):
    """Documents and the clients that they name; a space names none."""
    pairs = zip(documents(providers), branches, strict=True)
    return [replace(document, client=branch.strip()) for document, branch in pairs]


def test_documents_go_to_the_clients_that_they_name():
    deal = ByClient(2).deal(at_branches("ABABA", "yxxyy"), 0)
    assert deal == ((1, 2), (0, 3, 4))  # x and y, though A and B are at both


def test_there_are_as_many_clients_as_are_named():
    assert ByClient().deal(at_branches("ABABAC", "yxxyyz"), 0) == ((1, 2), (0, 3, 4), (5,))


def test_documents_that_name_no_client_go_by_provider_to_the_smallest():
    named = at_branches("ABABA", "yxxyy")
    more = [replace(document(k, "C"), client="") for k in (5, 6)]
    assert ByClient(2).deal([*named, *more], 0) == ((1, 2, 5, 6), (0, 3, 4))


some_documents = st.lists(st.sampled_from("ABCDEFGH"), min_size=1, max_size=40).map(documents)


def methods(clients):
    return [
        ByProvider(clients),
        Iid(clients),
        DirichletOverProviders(clients, 0.05),
        DirichletOverProviders(clients, 5.0),
    ]


def dealt(method, docs, seed):
    """The deal, or None where there are too few documents or providers for the clients."""
    enough = len({d.provider for d in docs} if isinstance(method, ByProvider) else docs)
    return method.deal(docs, seed) if enough >= method.clients else None


@given(some_documents, st.integers(1, 10), seeds)
def test_every_document_is_dealt_once_and_nobody_goes_empty(docs, clients, seed):
    for method in methods(clients):
        deal = dealt(method, docs, seed)
        if deal is not None:
            assert sorted(k for hand in deal for k in hand) == list(range(len(docs)))
            assert len(deal) == clients
            assert all(deal)
            assert all(list(hand) == sorted(hand) for hand in deal)
            assert all(type(k) is int for hand in deal for k in hand)


@given(some_documents, st.integers(1, 10), seeds)
def test_the_same_seed_deals_the_same(docs, clients, seed):
    for method in methods(clients):
        assert dealt(method, docs, seed) == dealt(method, docs, seed)


@given(some_documents, st.integers(1, 8), seeds)
def test_each_provider_goes_to_the_client_that_has_the_fewest_documents(docs, clients, seed):
    deal = dealt(ByProvider(clients), docs, seed)
    assume(deal is not None)
    groups = list(by_provider(docs, range(len(docs))).values())
    order = generator(seed, "partition").permutation(len(groups))
    hands = [[] for _ in range(clients)]
    for i in sorted(order, key=lambda i: -len(groups[i])):
        min(hands, key=len).extend(groups[i])  # of several, the first
    assert [list(hand) for hand in deal] == [sorted(hand) for hand in hands]


def test_another_seed_deals_otherwise():
    docs = documents("ABCDEFGH" * 5)
    for method in methods(4):
        assert len({method.deal(docs, seed) for seed in range(10)}) > 5


@given(some_documents, st.integers(1, 10), seeds)
def test_by_provider_gives_each_provider_to_one_client(docs, clients, seed):
    deal = dealt(ByProvider(clients), docs, seed)
    assume(deal is not None)
    owners = [(docs[k].provider, client) for client, hand in enumerate(deal) for k in hand]
    assert len(set(owners)) == len({provider for provider, _ in owners})


@given(some_documents, st.integers(1, 10), seeds)
def test_by_provider_deals_sizes_as_even_as_the_providers_allow(docs, clients, seed):
    """A client held least when it got its last provider: it is ahead by that one at most."""
    deal = dealt(ByProvider(clients), docs, seed)
    assume(deal is not None)
    sizes = [len(hand) for hand in deal]
    largest = max(Counter(d.provider for d in docs).values())
    assert max(sizes) - min(sizes) <= largest
    assert max(sizes) <= len(docs) / clients + largest


def test_by_provider_evens_out_unequal_providers():
    docs = documents("A" * 8 + "B" * 7 + "C" * 6 + "D" * 5 + "E" * 4 + "F" * 2)
    for seed in range(20):
        # Largest first: 8, 7, 6; then 5 to the 6, 4 to the 7, 2 to the 8.
        assert sorted(map(len, ByProvider(3).deal(docs, seed))) == [10, 11, 11]


@given(some_documents, st.integers(1, 10), seeds)
def test_iid_parts_differ_by_one_document_at_most(docs, clients, seed):
    deal = dealt(Iid(clients), docs, seed)
    assume(deal is not None)
    sizes = [len(hand) for hand in deal]
    assert max(sizes) - min(sizes) <= 1


def test_iid_parts_mix_the_providers():
    docs = documents(["A"] * 200 + ["B"] * 200)
    for hand in Iid(4).deal(docs, seed=1):
        # 100 of 400 without replacement: mean 50, deviation 4.3.
        assert abs(sum(docs[k].provider == "A" for k in hand) - 50) < 5 * 4.4


def concentration(alpha, seed):
    """The mean share of a provider's documents at the client that holds most of them."""
    docs = documents([provider for provider in "ABCDEFGHIJKLMNOPQRST" for _ in range(40)])
    deal = DirichletOverProviders(5, alpha).deal(docs, seed)
    held = Counter((docs[k].provider, client) for client, hand in enumerate(deal) for k in hand)
    return np.mean([max(held[p, c] for c in range(5)) / 40 for p in "ABCDEFGHIJKLMNOPQRST"])


@pytest.mark.parametrize("seed", range(3))
def test_a_small_alpha_concentrates_providers_and_a_large_one_spreads_them(seed):
    # One of five clients holds at least a fifth; a multinomial's largest part is about 0.3.
    assert concentration(0.01, seed) > 0.9
    assert 0.4 < concentration(0.5, seed) < 0.8
    assert concentration(1000.0, seed) < 0.36


@given(some_documents, seeds)
def test_dirichlet_feeds_the_empty_even_where_alpha_is_tiny(docs, seed):
    deal = DirichletOverProviders(len(docs), 1e-6).deal(docs, seed)
    assert [len(hand) for hand in deal] == [1] * len(docs)


# Held-out documents


@given(some_documents, st.floats(0, 0.99), seeds, st.sampled_from(["document", "provider"]))
def test_a_split_holds_every_document_on_one_side(docs, fraction, seed, by):
    try:
        train, held = HoldOut(by, fraction).split(docs, seed)
    except ValueError:
        return
    assert sorted(train + held) == list(range(len(docs)))
    assert train == sorted(train)
    assert held == sorted(held)
    assert HoldOut(by, fraction).split(docs, seed) == (train, held)


def test_by_document_holds_out_the_fraction_at_random():
    docs = documents("AB" * 10)
    helds = [HoldOut(fraction=0.25).split(docs, seed)[1] for seed in range(200)]
    assert {len(held) for held in helds} == {5}
    counts = Counter(k for held in helds for k in held)
    # Binomial with 200 trials and probability 1/4: mean 50, deviation 6.1.
    assert all(abs(counts[k] - 50) < 5 * 6.2 for k in range(20))


def test_by_provider_holds_out_whole_providers():
    docs = documents("ABCDE" * 4)
    chosen = set()
    for seed in range(50):
        train, held = HoldOut("provider", 0.4).split(docs, seed)
        unseen = {docs[k].provider for k in held}
        assert len(unseen) == 2
        assert not unseen & {docs[k].provider for k in train}
        chosen |= unseen
    assert chosen == set("ABCDE")


def test_by_split_holds_out_the_official_test_documents():
    docs = documents("ABAB", ["train", "test", "", "test"])
    assert HoldOut("split", 0.9).split(docs, seed=0) == ([0, 2], [1, 3])


def test_nothing_is_held_out_of_fraction_zero():
    assert HoldOut(fraction=0).split(documents("ABC"), 0) == ([0, 1, 2], [])


def test_the_held_out_documents_do_not_depend_on_the_partition():
    docs = documents("ABCD" * 6)
    train, _ = HoldOut().split(docs, seed=4)
    Iid(2).deal(docs, seed=4)
    assert HoldOut().split(docs, seed=4)[0] == train


# What is written down


def test_the_table_says_who_holds_what():
    docs = documents("ABAB")
    written = table(repr(Iid(2)), docs, ((0, 1), (2,)), [3])
    assert written == {
        "method": "Iid(clients=2)",
        "clients": {"0": {"A": ["d0"], "B": ["d1"]}, "1": {"A": ["d2"]}},
        "test": {"B": ["d3"]},
    }


def test_providers_are_grouped_in_order_of_first_appearance():
    assert by_provider(documents("BABC"), [3, 0, 1, 2]) == {"C": [3], "B": [0, 2], "A": [1]}


# Errors


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: ByProvider(0), r"clients=0: expected at least 1"),
        (lambda: ByClient(0), r"clients=0: expected at least 1"),
        (lambda: Iid(-1), r"clients=-1: expected at least 1"),
        (lambda: DirichletOverProviders(0), r"clients=0: expected at least 1"),
        (lambda: DirichletOverProviders(2, 0), r"alpha=0: expected a positive, finite number"),
        (
            lambda: DirichletOverProviders(2, float("nan")),
            r"alpha=nan: expected a positive, finite number",
        ),
        (
            lambda: ByProvider(3).deal(documents("ABAB"), 0),
            r"clients=3, but the documents are of 2 providers: each client needs one of its "
            r"own; expected data.partition.clients of 2 or fewer",
        ),
        (
            lambda: ByClient(3).deal(at_branches("ABAB", "yyxx"), 0),
            r"clients=3, but the training documents name 2: 'x', 'y'; expected "
            r"data.partition.clients=2, or null for as many as they name",
        ),
        (
            lambda: ByClient(1).deal(documents("ABAB"), 0),
            r"no document names its client: set data.source.client",
        ),
        (
            lambda: Iid(5).deal(documents("ABAB"), 0),
            r"clients=5: expected at most 4, one for each document",
        ),
        (
            lambda: DirichletOverProviders(5).deal(documents("ABAB"), 0),
            r"clients=5: expected at most 4, one for each document",
        ),
        (
            lambda: HoldOut("page"),
            r"by='page': expected 'document', 'provider' or 'split'",
        ),
        (lambda: HoldOut(fraction=1), r"fraction=1: expected a value in \[0, 1\)"),
        (lambda: HoldOut(fraction=-0.1), r"fraction=-0\.1: expected a value in \[0, 1\)"),
        (
            lambda: HoldOut("document", 0.99).split(documents("AB"), 0),
            r"holding out by 'document' leaves none of 2 documents to train on",
        ),
        (
            lambda: HoldOut("split").split(documents("A", ["test"]), 0),
            r"holding out by 'split' leaves none of 1 documents to train on",
        ),
    ],
)
def test_errors_say_what_was_given_and_what_would_work(act, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        act()
