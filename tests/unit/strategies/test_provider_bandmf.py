"""FL-PROVIDER-DP with bands: what clients send, what the server solves for, and what survives."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from flwr.app import RecordDict
from host_vectors import to_vectors
from toy_private import (
    SEED,
    Watched,
    answers,
    are_independent,
    federation,
    instruction,
    numbers,
    provider_data,
    rows_of,
    variance_is,
    vector_of,
)

from fedpriv.clients.banded import SUM
from fedpriv.clients.fl_provider_dp import ProviderUpdates
from fedpriv.federation.audit.mechanism import audit_mechanism, canaries_seen
from fedpriv.federation.faults import Dropout
from fedpriv.federation.loop import Unworkable
from fedpriv.federation.messages import UPDATE
from fedpriv.federation.secagg.masking import Masking
from fedpriv.privacy.accounting.event import ClientThenRecord
from fedpriv.privacy.banded import coefficients, turn
from fedpriv.privacy.ledger import Ledger
from fedpriv.privacy.lower_bounds import rejects, too_little
from fedpriv.privacy.mechanism import client_gaussian, provider_gaussian
from fedpriv.runtime.client_memory import InState, OnDisk, forget
from fedpriv.runtime.run_folder import LEDGER, RunFolder
from fedpriv.strategies.fl_provider_dp import FLProviderDP
from fedpriv.strategies.provider_bandmf import ProviderBandMF
from fedpriv.training.loops import Optimizer

HALF = ProviderUpdates(steps=1, batch_size=4, optimizer=Optimizer("sgd", lr=0.3))


pytestmark = pytest.mark.usefixtures("in_own_folder", "budget_untold")


def mechanism(bands=3, noise=0.0, rate=1.0, **settings):
    return provider_gaussian(
        clip_norm=0.5, providers=2, noise_multiplier=noise, provider_rate=rate / bands,
        bands=bands, **settings,
    )  # fmt: skip


def banded(bands=3, noise=0.0, rate=1.0, clients=4, providers=6, **settings):
    told = {name: settings.pop(name) for name in ("optimizer", "threshold") if name in settings}
    strategy = ProviderBandMF(mechanism(bands, noise, rate), **told)
    return federation(strategy, HALF, provider_data(clients, providers), **settings)


def booked(result):
    return Ledger.from_json(RunFolder.existing(result.run_dir).read_json(LEDGER))


def messages(watched, round, clients):
    """What each client sent in a round, (clients, d)."""
    sent = [to_vectors(reply.content[UPDATE])["float"] for reply in watched.replied]
    return np.stack(sent[(round - 1) * clients : round * clients]).astype(np.float64)


def test_one_band_is_fl_provider_dp():
    plain = FLProviderDP(mechanism(1, noise=1.0))
    expected = federation(plain, HALF, provider_data(4, 6)).run(3)
    assert (vector_of(banded(1, noise=1.0).run(3)) == vector_of(expected)).all()


def test_what_no_checkpoint_needs_is_forgotten():
    for round in range(1, 6):
        memory = banded(clients=2).run(round, run_dir=f"run{round}").run_dir / "clients" / "1"
        kept = range(max(1, round - 1), round + 1)
        assert {file.name for file in memory.glob(f"{SUM}-*")} == {f"{SUM}-{t}.npy" for t in kept}


def test_the_server_solves_for_each_rounds_own_sum():
    """Without noise, the model moves by the clipped changes of those whose turn it was."""
    made = banded(noise=0.0)
    result = made.run(5)
    solved = made.strategy._solved
    assert sorted(solved) == [4, 5]
    for round, found in solved.items():
        sums = [
            np.load(result.run_dir / "clients" / str(c) / f"{SUM}-{round}.npy") for c in range(4)
        ]
        assert found == pytest.approx(np.sum(sums, axis=0) / 2, abs=1e-6)


def test_noise_is_fresh_and_of_the_planned_size():
    """The same messages without noise are taken off: models differ from round 2 on."""
    found = []
    for noise in (0.0, 1.5):
        made = banded(noise=noise, providers=1)
        watched = Watched(made)
        made.run(4, grid=watched)
        found.append(watched)
    quiet, loud = (messages(one, 1, 4) for one in found)
    assert variance_is((loud - quiet).ravel(), (1.5 * 0.5 / 2) ** 2 / 4)


def test_another_memory_has_another_noise(tmp_path):
    """Two messages that differ in what is owed must not cancel each other's noise."""
    columns = numbers(8, providers=np.repeat([0, 1], 4))
    asked = instruction(ProviderBandMF(mechanism(2, noise=1.0)), 1, 1, round=2)
    sent = []
    for past in (None, 1.0, 2.0):
        if past is not None:
            OnDisk(tmp_path / "0").write(SUM, 1, np.full(51, past, np.float32))
        (tmp_path / "0" / "answered 0-2.npy").unlink(missing_ok=True)
        keyed = {"memory": tmp_path, "key": "run", "private": True}
        (one,), _ = answers(HALF, columns, rows_of(8), asked, **keyed)
        owed = 0.0 if past is None else coefficients(2)[1] * past / 2
        sent.append(one.astype(np.float64) - owed)
    assert are_independent(sent[0] - sent[1], sent[2])
    assert abs(sent[1] - sent[2]).max() > 0.1


def test_one_provider_moves_all_messages_together_by_the_clip_norm_at_most():
    """Of the rounds of its turn and those after; stacked over all rounds, at the same models."""
    rounds, bands, clip_norm = 7, 3, 0.5
    owners = np.repeat(np.arange(5), 4)
    columns = numbers(20, providers=owners, scale=50.0)
    strategy = ProviderBandMF(mechanism(bands))
    half = replace(HALF, optimizer=Optimizer("sgd", lr=100.0))  # every change is clipped

    def sent(kept, folder):
        there = {name: column[kept] for name, column in columns.items()}
        return np.stack([
            answers(half, there, rows_of(int(kept.sum())),
                    instruction(strategy, 1, 1, round=t), memory=folder)[0][0].astype(np.float64)
            for t in range(1, rounds + 1)
        ])  # fmt: skip

    everyone = sent(np.ones(20, bool), Path("all"))
    for gone in range(5):
        apart = (everyone - sent(owners != gone, Path(f"without {gone}"))) * 2 / clip_norm
        own = turn(SEED, gone, bands)
        norms = np.linalg.norm(apart, axis=1)
        assert np.flatnonzero(norms > 1e-6).tolist() == list(range(own, rounds))
        for start in range(own, rounds, bands):
            together = np.sum(norms[start : start + bands] ** 2)
            complete = start + bands <= rounds
            assert together == pytest.approx(1, abs=1e-5) if complete else together < 1


@pytest.mark.parametrize(
    ("optimizer", "masking"), [(None, None), (Optimizer("adam", lr=0.01), Masking())]
)
def test_a_run_goes_on_with_the_same_bits(optimizer, masking):
    settings = {"noise": 1.0, "masking": masking, "optimizer": optimizer, "one_noise": False,
                "checkpoint_every": 2}  # fmt: skip
    straight = banded(**settings).run(7)
    banded(**settings).run(5, run_dir="stopped")
    resumed = banded(**settings).run(7, run_dir="stopped", resume=True)
    assert (vector_of(resumed) == vector_of(straight)).all()
    booked = [
        RunFolder.existing(r.run_dir).read_json(LEDGER)["events"] for r in (straight, resumed)
    ]
    assert booked[0] == booked[1]


def test_masks_change_nothing_but_rounding():
    plain, masked = (vector_of(banded(noise=1.0, masking=m).run(5)) for m in (None, Masking()))
    assert masked == pytest.approx(plain, abs=1e-4)


def test_who_drops_out_costs_utility_and_no_privacy():
    made = banded(noise=1.0, threshold=0.75)
    watched = Watched(made, {(2, 0, 1): "train", (4, 0, 3): "train"})
    result = made.run(6, grid=watched)
    whole = banded(noise=1.0, threshold=0.75).run(6)
    some, all_ = (
        Ledger.from_json(RunFolder.existing(one.run_dir).read_json(LEDGER))
        for one in (result, whole)
    )
    assert some.history("global") == all_.history("global")
    assert np.isfinite(vector_of(result)).all()
    # The rest of what the two had to send arrives all the same.
    assert 0 < np.linalg.norm(vector_of(result) - vector_of(whole)) < 2.0


def test_a_node_of_flowers_remembers_what_it_needs(tmp_path):
    disk, node = OnDisk(tmp_path / "7"), InState(RecordDict())
    for memory in (disk, node):
        for round in range(1, 5):
            memory.write(SUM, round, np.full(3, round, np.float32), needed_from=round - 1)
        assert [memory.read(SUM, t).tolist() for t in (3, 4)] == [[3.0] * 3, [4.0] * 3]
    assert node.read(SUM, 2) is None
    assert disk.read(SUM, 2) is not None  # a run that is resumed may need it
    forget(tmp_path, 3)
    assert disk.read(SUM, 2) is None


def test_whatever_the_umask_only_its_owner_can_read_a_memory(tmp_path):
    before = os.umask(0)
    try:
        OnDisk(tmp_path / "clients" / "7").write(SUM, 1, np.zeros(3, np.float32))
    finally:
        os.umask(before)
    made = list((tmp_path / "clients").rglob("*"))
    modes = {path.is_dir(): path.stat().st_mode & 0o777 for path in [tmp_path / "clients", *made]}
    assert modes == {True: 0o700, False: 0o600}


def test_an_attempt_is_answered_in_one_way_only(tmp_path):
    for memory in (OnDisk(tmp_path / "0"), InState(RecordDict())):
        memory.same(3, 0, "ab" * 16)
        memory.same(3, 0, "ab" * 16)
        memory.same(3, 1, "cd" * 16)
        with pytest.raises(ValueError, match="round 3, attempt 0 was answered before"):
            memory.same(3, 0, "cd" * 16)


class Killed:
    """A run of seven rounds that is killed in its seventh, and goes on from the fourth."""

    def __init__(self, **settings):
        self.settings = {"noise": 1.0, "one_noise": False, "checkpoint_every": 4, **settings}
        made, folder = self.made(), Path("stopped")
        watched = Watched(made, {(7, 0, 2): "killed"}, memory=folder / "clients")
        with pytest.raises(KeyboardInterrupt):
            made.run(7, run_dir=folder, grid=watched)

    def made(self):
        return banded(**self.settings)

    def resumed(self):
        return self.made().run(7, run_dir="stopped", resume=True)


@pytest.mark.parametrize("masking", [None, Masking(), Masking(mechanism="discrete")])
def test_a_killed_run_goes_on_with_the_same_bits(masking):
    """Round 5 tells of rounds 3 and 4, which nobody needs any more when it is killed in round 7."""
    killed = Killed(masking=masking)
    straight, resumed = killed.made().run(7), killed.resumed()
    assert (vector_of(resumed) == vector_of(straight)).all()
    assert booked(resumed).history("global") == booked(straight).history("global")


def test_a_run_whose_clients_have_forgotten_is_booked_once_more():
    killed = Killed()
    shutil.rmtree("stopped/clients")
    resumed = killed.resumed()
    again = [r.attempt.round for r in booked(resumed).releases if r.attempt.attempt]
    assert again == [5, 6, 7]
    # Three turns, and rounds 5 and 6 once more; round 7 had shown no sum.
    assert booked(resumed).history("global") == [(ClientThenRecord(1.0, 1.0, 1.0), 3 + 2)]


def test_another_seed_does_not_go_on_even_without_a_checkpoint():
    made = banded(noise=1.0, checkpoint_every=9)
    watched = Watched(made, {(3, 0, 2): "killed"}, memory=Path("stopped/clients"))
    made.config = {"seed": made.seed}
    with pytest.raises(KeyboardInterrupt):
        made.run(5, run_dir="stopped", grid=watched)
    other = banded(noise=1.0, checkpoint_every=9, seed=SEED + 1)
    with pytest.raises(ValueError, match=f"was run with seed={SEED}"):
        other.run(5, run_dir="stopped", resume=True)


def test_a_repeated_round_tells_of_itself_alone(tmp_path):
    columns, half = numbers(8, providers=np.repeat([0, 1], 4)), HALF
    strategy = ProviderBandMF(mechanism(2))
    OnDisk(tmp_path / "0").write(SUM, 1, np.full(51, 100.0, np.float32))
    first, again = (
        answers(half, columns, rows_of(8), instruction(strategy, 1, 1, round=2, attempt=attempt),
                memory=tmp_path)[0][0]
        for attempt in (0, 1)
    )  # fmt: skip
    assert abs(first).max() > 20
    assert abs(again).max() < 2


def test_turns_outlive_settings_and_secrets(tmp_path):
    """A run that goes on with another key, as entropy=os always does, keeps the turns."""
    columns = numbers(40, providers=np.repeat(np.arange(10), 4))
    strategy = ProviderBandMF(mechanism(4))
    sent = [
        answers(HALF, columns, rows_of(40), instruction(strategy, 1, 1), memory=tmp_path / key,
                key=key)[0][0]
        for key in ("one", "other")
    ]  # fmt: skip
    assert (sent[0] == sent[1]).all()


def test_without_a_memory_nobody_takes_part():
    strategy = ProviderBandMF(mechanism(2))
    columns = numbers(8, providers=np.repeat([0, 1], 4))
    with pytest.raises(AssertionError, match="need clients that remember"):
        answers(HALF, columns, rows_of(8), instruction(strategy, 1, 1))


def test_on_other_data_a_run_does_not_go_on():
    banded(checkpoint_every=1).run(2, run_dir="here")
    other = federation(ProviderBandMF(mechanism()), HALF, provider_data(4, 5), checkpoint_every=1)
    with pytest.raises(ValueError, match="start a new run"):
        other.run(3, run_dir="here", resume=True)


def test_settings_that_void_the_theorem_are_refused():
    with pytest.raises(ValueError, match=r"variant='paper'.*take variant='sound'"):
        ProviderBandMF(mechanism(), variant="paper")
    with pytest.raises(ValueError, match="take strategy=provider_bandmf"):
        FLProviderDP(mechanism())
    with pytest.raises(ValueError, match="1 where the unit is no provider"):
        replace(client_gaussian(clip_norm=1, noise_multiplier=1), bands=2)
    with pytest.raises(ValueError, match=r"^bands=0: expected a whole number of 1 or more$"):
        provider_gaussian(clip_norm=1, providers=1, noise_multiplier=1, bands=0)
    planned = provider_gaussian(
        clip_norm=1, providers=1, noise_multiplier=1, client_rate=0.5, bands=2
    )
    with pytest.raises(Unworkable, match="take client_rate=1"):
        federation(ProviderBandMF(planned), HALF, provider_data(4, 2))


@pytest.mark.parametrize("masking", [None, Masking()])
def test_an_audit_measures_what_is_booked_and_no_more(masking):
    made = banded(bands=3, noise=2.0, rate=0.9, clients=2, masking=masking)
    found = audit_mechanism(made, 6, axes=1 << 15, confidence=0.9999)
    assert not found.contradicted, found.lines()
    assert not found.blind, found.lines()
    for view in found.views.values():
        assert view.releases == 2
        assert 0.6 * view.ledger < view.sigma_fit <= view.ledger


@pytest.mark.parametrize(
    ("rounds", "away", "masking"),
    [
        pytest.param(6, {2: [0]}, None, id="a part is lost"),
        pytest.param(6, {1: [0]}, None, id="a turn"),
        pytest.param(6, {1: [0]}, Masking(), id="a turn, masked"),
        pytest.param(6, {4: [1]}, None, id="the turn of one client"),
        pytest.param(5, {}, None, id="the last turn ends early"),
    ],
)
def test_an_audit_knows_what_of_a_contribution_was_never_shown(rounds, away, masking):
    """A refused round shows nothing; what clients owe of it comes with the rounds after it."""
    made = banded(bands=3, noise=1.0, rate=0.9, clients=2, masking=masking)
    made.faults = Dropout(at=away)
    assert verdicts(made, rounds, axes=1 << 15) == {(False, False)}


def verdicts(made, rounds, axes):
    """Whether canaries of a run are told apart too often, and too seldom: of all views together.

    An audit asks the same of them, and makes bounds on ε besides.
    """
    _, found = canaries_seen(made, rounds, axes)
    return {
        (rejects(scores, inside, booked, 0.9999), too_little(scores, inside, seen))
        for _, (booked, seen), scores, inside in found
    }


def test_an_audit_is_blind_where_a_client_sends_nothing_of_what_it_owes(monkeypatch):
    first = np.array([1.0, 1e-9, 1e-9]) * coefficients(3)
    monkeypatch.setattr("fedpriv.clients.banded.coefficients", lambda bands: first)
    made = banded(bands=3, noise=1.0, clients=2)
    made.faults = Dropout(at={5: [0]})
    assert audit_mechanism(made, 6, axes=1 << 14).blind


def test_an_audit_sees_noise_that_was_split_among_bands(monkeypatch):
    """A sum that is sent at its full weight in every round gives away more than is booked."""
    full = np.ones(3)
    monkeypatch.setattr("fedpriv.clients.banded.coefficients", lambda bands: full)
    found = audit_mechanism(banded(bands=3, noise=2.0, clients=2), 6, axes=1 << 14)
    assert found.contradicted
