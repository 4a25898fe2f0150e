"""What a run keeps for those who ask who was trained on, and who is."""

import dataclasses

import numpy as np
import pytest
from toy_answers import Pages, chooser, federation

from fedpriv.data.partition import ByProvider, HoldOut
from fedpriv.federation.dataset import DocumentData
from fedpriv.federation.loop import Unworkable
from fedpriv.runtime.run_folder import FINAL, START, RunFolder
from fedpriv.threat.attack import NotGranted
from fedpriv.threat.surfaces.held_out import KeepHeldOut, load_candidates
from fedpriv.threat.truth import TruthStore


def test_a_run_keeps_held_out_pages_and_both_models(tmp_path):
    made = federation(tmp_path)
    folder = RunFolder(made.run(1).run_dir)
    kept = load_candidates(folder, tmp_path)
    pages = {d.id: d for own in kept.documents.values() for d in own}
    held = {d.id: d for d in made.bound.suspects}
    assert pages.keys() == held.keys()
    for name, document in pages.items():
        assert np.array_equal(np.asarray(document.image()), np.asarray(held[name].image()))
        plain = [dataclasses.replace(d, page=held[name].page) for d in (document, held[name])]
        assert plain[0] == plain[1]
    first, last = folder.read_state(START), folder.read_state(FINAL)
    assert not first["weights"].any()
    assert last["weights"].any()


def test_no_kept_page_was_trained_on(tmp_path):
    made = federation(tmp_path)
    trained = {document.id for document in made.bound.documents}
    kept = load_candidates(RunFolder(made.run(1).run_dir), tmp_path)
    assert not trained & {d.id for own in kept.documents.values() for d in own}


def test_the_truth_says_who_was_trained_on_and_where(tmp_path):
    made = federation(tmp_path)
    parts = TruthStore(RunFolder(made.run(1).run_dir)).parts()
    trained = {document.provider for document in made.bound.documents}
    assert {p for p, part in parts.items() if part.member} == trained
    assert len(parts) == 8
    for client, hand in made.bound.partition["clients"].items():
        for provider, ids in hand.items():
            assert (parts[provider].client, parts[provider].documents) == (int(client), len(ids))
            assert parts[provider].answers == {"name": ("bo",)}


def test_keeping_pages_does_not_change_the_training(tmp_path):
    kept, plain = (
        federation(tmp_path / str(len(k)), keep=k).run(1) for k in ((KeepHeldOut(),), ())
    )
    assert (kept.run_dir / "candidates").is_dir()
    assert not (plain.run_dir / "candidates").exists()
    states = [RunFolder(r.run_dir).read_state(FINAL)["weights"] for r in (kept, plain)]
    assert states[0].equal(states[1])
    with pytest.raises(NotGranted, match="keep=held_out"):
        load_candidates(RunFolder(plain.run_dir), tmp_path)


@pytest.mark.parametrize(
    ("held", "says"),
    [
        (HoldOut(fraction=0), "nothing is held out"),
        (HoldOut(fraction=0.1), "set data.test.unseen"),
        (HoldOut(by="provider", fraction=0.5), "nothing is held out"),
    ],
)
def test_a_run_in_which_nobody_can_be_told_apart_does_not_start(tmp_path, held, says):
    with pytest.raises(Unworkable, match=says):
        federation(tmp_path, source=Pages(8, 4), test=held)


def test_one_provider_alone_cannot_be_told_apart(tmp_path):
    with pytest.raises(Unworkable, match="only one supplier is held out"):
        federation(tmp_path, source=Pages(1, 8), clients=1, test=HoldOut(fraction=0.5))


def test_pages_that_are_there_twice_are_refused_or_counted(tmp_path):
    with pytest.raises(Unworkable, match="duplicates=drop"):
        federation(tmp_path, source=Pages(same=True))
    made = federation(tmp_path, source=Pages(same=True), keep=[KeepHeldOut("drop")])
    kept = load_candidates(RunFolder(made.run(1).run_dir), tmp_path)
    assert not kept.documents
    assert kept.duplicates_dropped == len(made.bound.suspects) > 0


def test_duplicates_is_one_of_two_words():
    with pytest.raises(ValueError, match="'refuse' or 'drop'"):
        KeepHeldOut("ignore")


def test_how_many_pages_are_asked_about_does_not_tell_who_is_a_member():
    documents = Pages(30, 6).load().documents
    asked = [HoldOut(fraction=0.5, unseen=u).asked(documents, 0) for u in (0.0, 0.2, 0.8)]
    assert asked[0] == asked[1] == asked[2] != []
    train, held = HoldOut(fraction=0.5, unseen=0.2).split(documents, 0)
    assert set(asked[0]) <= set(held)
    assert not set(asked[0]) & set(train)


def test_who_could_not_have_been_trained_on_is_not_asked_about():
    documents = Pages(40, 1).load().documents  # one page each: held out, or trained on
    assert HoldOut(fraction=0.5, unseen=0.5).asked(documents, 0) == []


# --- Canaries, and providers left out ------------------------------------------------------------


def bound(seed=0, **data):
    data.setdefault("test", HoldOut(fraction=0))
    made = DocumentData(Pages(6), ByProvider(2), cache="off", **data)
    return made.bind(chooser, seed)


CANARIES = Pages(20, 1, first=100)


def test_about_half_of_the_canaries_are_trained_on_by_a_coin_of_the_seed():
    draws = [bound(seed, canaries=CANARIES).parts for seed in range(15)]
    members = np.array([[part.member for part in parts.values() if part.canary] for parts in draws])
    assert members.shape == (15, 20)
    assert 0.4 < members.mean() < 0.6
    assert members.any(0).all()
    assert not members.all(0).any()
    again = bound(3, canaries=CANARIES).parts
    assert again == draws[3]


def test_what_others_hold_does_not_depend_on_the_coins():
    made = [bound(canaries=CANARIES, leave_out=out) for out in ((), ("p3",))]
    hands = [
        {
            (client, document)
            for client, hand in b.partition["clients"].items()
            for provider, ids in hand.items()
            for document in ids
            if provider != "p3"
        }
        for b in made
    ]
    assert hands[0] == hands[1]
    assert not made[1].parts["p3"].member
    assert made[1].parts["p3"].client == made[0].parts["p3"].client


def test_the_canaries_own_pages_are_asked_about():
    made = bound(canaries=CANARIES)
    assert {d.provider for d in made.suspects} == {f"canary p{n}" for n in range(20)}


def test_canaries_may_be_of_the_same_kind_as_the_data(tmp_path):
    held = HoldOut(fraction=0)
    same = DocumentData(Pages(6), ByProvider(2), held, cache="off", canaries=Pages(6))
    made = same.bind(chooser, 0)
    assert len(made.parts) == 12
    assert {d.provider for d in made.suspects} == {f"canary p{n}" for n in range(6)}
    assert len({d.id for d in made.documents}) == len(made.documents)


def test_who_is_left_out_must_be_there():
    with pytest.raises(ValueError, match="leave_out: the data has no provider 'q'"):
        bound(leave_out=("q",))


def test_a_coin_is_not_overruled():
    with pytest.raises(ValueError, match="leave_out: the data has no provider 'canary p0'"):
        bound(canaries=CANARIES, leave_out=("canary p0",))


def test_a_client_left_with_nobody_is_an_error():
    with pytest.raises(ValueError, match="hold only providers that are not trained on"):
        bound(leave_out=tuple(f"p{n}" for n in range(6)))
