"""Companies that are public, and the others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpriv.data.generated.slips import Slips
from fedpriv.data.some_providers import SomeProviders

SLIPS = Slips(providers=7, documents_per_provider=2)


def providers(documents):
    return {document.provider for document in documents}


@given(share=st.floats(0.08, 0.92), seed=st.integers(0, 2**32))
def test_the_two_sides_have_all_documents_and_no_common_provider(share, seed):
    whole = SLIPS.load()
    some = SomeProviders(SLIPS, share, seed=seed).load()
    others = SomeProviders(SLIPS, share, rest=True, seed=seed).load()
    assert len(providers(some.documents)) == round(7 * share)
    assert not providers(some.documents) & providers(others.documents)
    found = sorted([d.id for d in some.documents] + [d.id for d in others.documents])
    assert found == sorted(document.id for document in whole.documents)
    assert some.labels == others.labels == whole.labels


def test_documents_stay_in_their_order():
    place = {document.id: i for i, document in enumerate(SLIPS.load().documents)}
    kept = [place[document.id] for document in SomeProviders(SLIPS, 0.5).load().documents]
    assert kept == sorted(kept)


def test_another_seed_draws_other_providers():
    drawn = {
        frozenset(providers(SomeProviders(SLIPS, 0.4, seed=s).load().documents)) for s in range(9)
    }
    assert len(drawn) > 1


@pytest.mark.parametrize("share", [0, 1, -0.2, float("nan")])
def test_a_share_of_none_or_all_is_refused(share):
    with pytest.raises(ValueError, match="between 0 and 1"):
        SomeProviders(SLIPS, share)


def test_a_share_of_less_than_one_provider_is_told_with_the_numbers():
    with pytest.raises(ValueError, match=r"share=0.05 of the 7 providers of .* is 0"):
        SomeProviders(SLIPS, 0.05).load()
