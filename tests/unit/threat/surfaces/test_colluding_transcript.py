"""Clients that collude with a masked server: what they tell it, and what is left of the others."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from host_vectors import encode
from toy import federation, weights
from toy_private import SEED, Double, Small, provider_data

from fedpriv.attacks.rest_of_sums import mean_of_others, nobody_left
from fedpriv.clients.feam_dp import ExampleGradients
from fedpriv.clients.fedavg import LocalTraining
from fedpriv.federation.faults import Absent
from fedpriv.federation.loop import Unworkable
from fedpriv.federation.secagg.masking import Masking
from fedpriv.privacy.mechanism import example_gaussian
from fedpriv.runtime.run_folder import RunFolder
from fedpriv.strategies.feam_dp import FeAmDP
from fedpriv.strategies.fedavg import FedAvg
from fedpriv.threat.attack import NotApplicable
from fedpriv.threat.surfaces import transcript
from fedpriv.threat.surfaces.server import KeepTranscript
from fedpriv.training.loops import Optimizer

CLIENTS = 4
SGD = LocalTraining(optimizer=Optimizer("sgd", lr=0.3))
PLAIN = {"strategy": FedAvg(weighted=False, buffers=False), "client": SGD, "model": Small}
MASKS = Masking(0.6, bound=4.0)


pytestmark = pytest.mark.usefixtures("in_own_folder", "budget_untold")


def made(masking=MASKS, keep=(), **settings):
    """A federation of four, whose noise, if it has some, is the seed's alone."""
    parts = {**PLAIN, "data": provider_data(CLIENTS, 2), "clients": CLIENTS, "seed": SEED}
    one = federation(**{**parts, **settings}, masking=masking, keep=keep)
    one.spec = replace(one.spec, key="")
    return one


def observed(masking=MASKS, rounds=2, keep=None, **settings):
    """Returns what a server saw that clients 0 and 2 work with."""
    keep = keep or KeepTranscript(colluders=(2, 0), batches=False)
    result = made(masking, keep=[keep], **settings).run(rounds)
    return transcript.load(RunFolder.existing(result.run_dir))


def flat(tensors):
    return torch.cat([tensor.flatten() for tensor in tensors.values()]).numpy()


def by_client(seen):
    return {upload.client: upload for upload in seen.uploads}


def noisy_gradients(**more):
    mechanism = example_gaussian(clip_norm=0.5, examples=32, noise_multiplier=0.2)
    return {"strategy": FeAmDP(mechanism, lr=0.02, **more), "client": ExampleGradients()}


def test_colluders_tell_their_updates_and_the_others_stay_masked():
    view, in_the_open = observed(), observed(masking=None)
    assert view.colluders == in_the_open.colluders == {0, 2}
    assert view.settings["colluders"] == [0, 2]
    assert (view.masked, in_the_open.masked) == (True, False)
    ring = made().algorithm.ring(CLIENTS, flat(view.rounds[0].parameters).size)
    seen, there = by_client(view.rounds[0]), by_client(in_the_open.rounds[0])
    kinds = {client: upload.kind for client, upload in seen.items()}
    assert kinds == {0: "delta", 1: "masked", 2: "delta", 3: "masked"}
    for client in (0, 2):
        sent, told = (flat(uploads[client].tensors) for uploads in (there, seen))
        # What went into the ring, to the bit.
        words = encode(ring, sent)
        np.testing.assert_array_equal(told, ring.decode(words, np.float32))
        assert 0 < np.abs(told - sent).max() <= ring.step / 2


@pytest.mark.parametrize("model", [Small, Double])
def test_what_all_colluders_tell_is_the_sum_to_the_bit(model):
    view = observed(model=model, keep=KeepTranscript(clients=(), colluders=tuple(range(CLIENTS))))
    for seen in view.rounds:
        assert [upload.client for upload in seen.uploads] == [0, 1, 2, 3]
        step = made(model=model).algorithm.ring(CLIENTS, flat(seen.parameters).size).step
        steps = [flat(upload.tensors).astype(np.float64) / step for upload in seen.uploads]
        assert all((one == np.rint(one)).all() for one in steps)
        aggregate = flat(seen.aggregate)
        whole = np.sum(steps, axis=0) * step
        # The server decodes the sum into the model's own type, and divides it there.
        np.testing.assert_array_equal(aggregate, whole.astype(aggregate.dtype) / CLIENTS)
    assert [mean_of_others(view, seen) for seen in view.rounds] == [None, None]
    assert "nobody is left to attack" in nobody_left(view)


def test_colluders_tell_what_their_whole_numbers_stand_for():
    """Of a discrete mechanism: what all of them tell adds up to what the server has found."""
    keep = KeepTranscript(clients=(), colluders=tuple(range(CLIENTS)), batches=False)
    parts = noisy_gradients()
    view = observed(Masking(0.6, mechanism="discrete"), keep=keep, **parts)
    for seen in view.rounds:
        told = np.sum([flat(upload.tensors) for upload in seen.uploads], axis=0)
        assert told == pytest.approx(flat(seen.aggregate) * len(seen.uploads), abs=1e-4)
    some = observed(Masking(0.6, mechanism="discrete"), rounds=1, **parts)
    kinds = {upload.client: upload.kind for upload in some.rounds[0].uploads}
    assert kinds == {0: "gradient", 1: "masked", 2: "gradient", 3: "masked"}


@pytest.mark.parametrize("masking", [MASKS, None])
def test_colluding_changes_no_bit_of_the_training(masking):
    alone = made(masking).run(3)
    told = made(masking, keep=[KeepTranscript(colluders=(1, 3))]).run(3)
    assert weights(alone) == weights(told)


def test_without_masking_nothing_else_is_kept():
    keep = KeepTranscript(colluders=(1,), batches=False)
    named, unnamed = (observed(None, keep=k) for k in (keep, replace(keep, colluders=())))
    assert (named.colluders, unnamed.colluders) == ({1}, set())
    for one, other in zip(named.rounds, unnamed.rounds, strict=True):
        assert [u.kind for u in one.uploads] == [u.kind for u in other.uploads] == ["delta"] * 4
        for mine, theirs in zip(one.uploads, other.uploads, strict=True):
            np.testing.assert_array_equal(flat(mine.tensors), flat(theirs.tensors))


def test_a_colluders_message_is_kept_whichever_clients_are_chosen():
    view = observed(keep=KeepTranscript(clients=(1,), colluders=(3,), rounds=(2,)))
    (seen,) = view.rounds
    assert {u.client: u.kind for u in seen.uploads} == {1: "masked", 3: "delta"}
    assert mean_of_others(view, seen)


@pytest.mark.parametrize("parts", [{}, noisy_gradients()], ids=["changes", "gradients"])
def test_what_is_left_of_a_masked_sum_is_the_mean_of_the_others(parts):
    masked, plain = (observed(masking, rounds=1, **parts) for masking in (MASKS, None))
    ((behind,), (there,)) = masked.rounds, plain.rounds
    assert behind.kind == there.kind == ("gradient" if parts else "delta")
    assert {u.kind for u in behind.uploads} == {behind.kind, "masked"}
    own = by_client(there)
    by_hand = (flat(own[1].tensors) + flat(own[3].tensors)) / 2
    np.testing.assert_allclose(flat(mean_of_others(plain, there)), by_hand, rtol=1e-6)
    step = made(**parts).algorithm.ring(CLIENTS, by_hand.size).step
    left = flat(mean_of_others(masked, behind))
    # Half a step for each of the two, and the sum's own rounding to float32.
    most = np.abs(flat(behind.aggregate)).max()
    np.testing.assert_allclose(left, by_hand, rtol=0, atol=step / 2 + 4 * most * 2**-24)
    assert np.abs(by_hand - flat(there.aggregate)).max() > 1e3 * step


def test_a_colluder_that_is_absent_is_not_taken_out():
    for parts in ({}, noisy_gradients(threshold=0.6)):
        view = observed(rounds=1, on_purpose=Absent((0,)), **parts)
        (seen,) = view.rounds
        assert seen.answered == (1, 2, 3)
        assert sorted(by_client(seen)) == [1, 2, 3]
        rest = 3 * flat(seen.aggregate).astype(np.float64) - flat(by_client(seen)[2].tensors)
        np.testing.assert_allclose(flat(mean_of_others(view, seen)), rest / 2, rtol=1e-6)


def test_a_sum_that_lacks_what_it_takes_is_refused():
    view = observed(rounds=1)
    (seen,) = view.rounds
    unread = replace(seen, uploads=tuple(u for u in seen.uploads if u.client != 2))
    with pytest.raises(NotApplicable, match=r"clients \[2\] in round 1 are needed: .*clients=null"):
        mean_of_others(view, unread)
    plain = observed(None, keep=KeepTranscript(clients=(1,), colluders=(0,)), rounds=1)
    with pytest.raises(NotApplicable, match=r"clients \[2, 3\] in round 1 are needed"):
        mean_of_others(plain, plain.rounds[0])
    failed = replace(seen, aggregate=None, answered=())
    assert mean_of_others(view, failed) is None
    assert "no round that was observed has a sum" in nobody_left(replace(view, rounds=(failed,)))


def test_without_colluders_it_is_the_aggregate():
    view = observed(None, keep=KeepTranscript(), strategy=FedAvg(buffers=False), rounds=1)
    assert mean_of_others(view, view.rounds[0]) is view.rounds[0].aggregate


def test_colluders_must_exist():
    with pytest.raises(
        Unworkable, match=r"keep.transcript.colluders=\[4\]: there are clients 0 to"
    ):
        made(keep=[KeepTranscript(colluders=(1, 4))])
    with pytest.raises(ValueError, match=r"colluders=\(-1,\): expected numbers from 0 on"):
        KeepTranscript(colluders=(-1,))
