"""Clients that fail on purpose: who fails is a setting, costs what a real failure costs, and is
the same wherever the clients run."""

import time

import numpy as np
import pytest
from toy import federation, norm_net, weights
from toy_private import FaultyProviders, private_data

from fedpriv.config import experiment
from fedpriv.federation.faults import Absent, Crashing, Dropout, Slow
from fedpriv.federation.loop import Unworkable
from fedpriv.federation.secagg.masking import Masking
from fedpriv.privacy.mechanism import provider_gaussian
from fedpriv.privacy.sampling import FixedSize
from fedpriv.runtime.refusals import Mistakes
from fedpriv.strategies.fedavg import FedAvg
from fedpriv.strategies.fl_provider_dp import FLProviderDP
from fedpriv.threat.surfaces.server import KeepTranscript

pytestmark = pytest.mark.usefixtures("in_own_folder", "budget_untold")


def failed(result):
    return [(f["round"], f["client"], f["kind"], f["reason"]) for f in result.failures]


def private(**kw):
    """Masked FL-PROVIDER-DP on seven of eight clients, whom it may lose down to five."""
    mechanism = provider_gaussian(
        clip_norm=0.5,
        providers=3,
        provider_rate=0.7,
        client_rate=0.875,
        client_sampling="fixed",
        noise_multiplier=1.0,
    )
    return federation(
        strategy=FLProviderDP(mechanism, threshold=0.6),
        client=FaultyProviders(),
        data=private_data(),
        masking=Masking(),
        **kw,
    )


def test_an_absent_client_is_missing_in_every_round_and_costs_nobody_else_a_bit():
    result = federation(model=norm_net, on_purpose=Absent((3,))).run(3)
    assert failed(result) == [(r, 3, "missing", "Absent") for r in (1, 2, 3)]
    assert [m["clients"]["missing"] for m in result.metrics] == [1, 1, 1]
    raised = federation({f"{r}/3": "raise" for r in (1, 2, 3)}, model=norm_net).run(3)
    assert weights(result) == weights(raised)


def test_nobody_fails_and_no_bit_changes():
    plain = federation(model=norm_net).run(2)
    for harmless in (Absent(()), Dropout(probability=0.0), Slow(deadline=1e9)):
        result = federation(model=norm_net, on_purpose=harmless).run(2)
        assert weights(result) == weights(plain)
        assert result.failures == []


def test_clients_drop_out_by_name_and_are_back_in_the_next_round():
    result = federation(on_purpose=Dropout(at={1: (0, 2), 3: (5,)})).run(3)
    assert failed(result) == [
        (1, 0, "missing", "Dropout"),
        (1, 2, "missing", "Dropout"),
        (3, 5, "missing", "Dropout"),
    ]


def test_clients_drop_out_at_the_rate_that_is_asked_for_and_independently():
    dropout, rounds, clients = Dropout(probability=0.1), 200, 50
    out = np.array(
        [
            [dropout.fault(7, r, c, "train") is not None for c in range(clients)]
            for r in range(1, rounds + 1)
        ]
    )
    assert abs(out.mean() - 0.1) < 5 * np.sqrt(0.1 * 0.9 / out.size)
    # As many pairs of neighbours as independent draws have, between clients and between rounds.
    for pairs in (out[:, 1:] & out[:, :-1], out[1:] & out[:-1]):
        assert abs(pairs.mean() - 0.01) < 5 * np.sqrt(0.01 * 0.99 / pairs.size)
    other = [dropout.fault(8, 1, c, "train") is not None for c in range(clients)]
    assert other != out[0].tolist()


def test_crashing_clients_raise():
    result = federation(on_purpose=Crashing(at={2: (4,)})).run(2)
    assert failed(result) == [(2, 4, "failed", "Crash")]
    assert weights(result) == weights(federation({"2/4": "raise"}).run(2))


def test_slow_clients_miss_the_deadline_without_anybody_waiting():
    began = time.monotonic()
    slow = Slow(seconds=5.0, by_client={3: 1e4}, spread=0.0, deadline=10.0)
    result = federation(on_purpose=slow).run(2)
    assert failed(result) == [(r, 3, "missing", "Slow (1e+04 s)") for r in (1, 2)]
    assert time.monotonic() - began < 60
    # A median of 5 s with σ = 1: over 10 s with probability P(Z > ln 2) = 0.244.
    late = [Slow().fault(0, r, c, "train") is not None for r in range(1, 101) for c in range(50)]
    assert abs(np.mean(late) - 0.244) < 5 * np.sqrt(0.244 * 0.756 / len(late))


@pytest.mark.parametrize("stage", ["advertise", "share", "train", "reveal"])
def test_masked_rounds_survive_dropouts_at_every_stage(stage):
    # Whom a round leaves out depends on the machine. It is one client, so one of each two is asked.
    gone = Dropout(at={1: (2, 5), 2: (0, 4)}, stage=stage)
    result = private(on_purpose=gone).run(2)
    asked_and_gone = {(r, c) for r, c, _, _ in failed(result)}
    assert asked_and_gone
    assert asked_and_gone <= {(1, 2), (1, 5), (2, 0), (2, 4)}
    assert [m["accepted"] for m in result.metrics] == [True, True]
    assert all(kind == "missing" for _, _, kind, _ in failed(result))


def test_an_absent_client_answers_no_stage_of_a_masked_round():
    strategy = FedAvg(weighted=False, buffers=False)
    settings = {"strategy": strategy, "masking": Masking(bound=1.0)}
    absent = federation(on_purpose=Absent((3,)), **settings).run(1)
    # It is asked once, for its keys, and from then on it is no part of the round.
    assert failed(absent) == [(1, 3, "missing", "Absent")]
    assert absent.metrics[0]["clients"]["answered"] == 7
    late = federation(on_purpose=Dropout(at={1: (3,)}), **settings).run(1)
    assert weights(absent) == weights(late)


def test_faults_are_the_same_after_a_resume_and_under_a_curious_server():
    def start(**kw):
        return private(on_purpose=Dropout(probability=0.24), **kw)

    whole = start().run(4)
    half = start().run(2)
    resumed = start().run(4, run_dir=half.run_dir, resume=True)
    watched = start(keep=[KeepTranscript(batches=False)]).run(4)
    assert failed(whole) == failed(resumed) == failed(watched) != []
    assert weights(whole) == weights(resumed) == weights(watched)


def test_only_drawn_clients_fail():
    result = federation(
        strategy=FedAvg(sampling=FixedSize(count=2)), on_purpose=Dropout(at={1: tuple(range(8))})
    ).run(1)
    nobody = {"sampled": 2, "answered": 0, "failed": 0, "missing": 2}
    assert (result.metrics[0]["accepted"], result.metrics[0]["clients"]) == (False, nobody)


@pytest.mark.parametrize(
    ("faults", "message"),
    [
        (Absent((3, 8, -1)), r"faults.clients: there is no client -1, 8, only 0 to 7"),
        (Dropout(at={2: (9,)}), r"faults.at: there is no client 9, only 0 to 7"),
        (Slow(by_client={8: 1.0}), r"faults.by_client: there is no client 8"),
        (Dropout(0.1, stage="share"), r"faults.stage=share: .* set masking=on"),
        (
            Crashing(0.1, kill=True),
            r"faults.kill=true ends this process: set federation.workers=1 or more",
        ),
        (Slow(deadline=None), r"faults.deadline=null waits .* federation.workers=1 or more"),
    ],
)
def test_what_cannot_be_is_said_before_anything_starts(faults, message, tmp_path):
    with pytest.raises(Unworkable, match=message):
        federation(on_purpose=faults)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["faults=dropout", "faults.probability=1.1"], "faults: probability=1.1: expected"),
        (["faults=dropout", "faults.at={0: [1]}"], "faults: at={0: (1,)}: expected rounds from 1"),
        (["faults=dropout", "faults.stage=tea"], "faults.stage: got 'tea'"),
        (["faults=absent", "faults.clients=[x]"], "faults.clients: got ['x']"),
        (["faults=slow", "faults.deadline=0"], "faults: deadline=0.0: expected seconds above 0"),
        (["faults=slow", "faults.seconds=-1"], "faults: seconds=-1.0: expected a finite number"),
        (["faults=late"], "faults=late: expected one of absent, crash, dropout, none, slow"),
        (["federation.round_deadline=0"], "federation: round_deadline=0.0: expected seconds"),
    ],
)
def test_mistakes_in_the_settings_are_named(overrides, message):
    with pytest.raises(Mistakes) as caught:
        experiment.build(experiment.load("quickstart", overrides))
    assert message in str(caught.value)


def test_the_names_on_the_command_line():
    def built(*overrides):
        return experiment.build(experiment.load("quickstart", overrides)).faults

    assert built() is None
    assert built("faults=absent", "faults.clients=[3]") == Absent((3,))
    assert built("faults=dropout", "faults.probability=0.1") == Dropout(0.1)
    assert built("faults=dropout", "faults.at={3: [0, 2]}") == Dropout(at={3: (0, 2)})
    assert built("faults=crash", "faults.kill=true") == Crashing(kill=True)
    assert built("faults=slow", "faults.by_client={3: 60}") == Slow(by_client={3: 60.0})


def test_a_rounds_deadline_reaches_the_grid():
    late = federation({}, round_deadline=1e-9).run(1)
    assert late.metrics[0]["clients"]["missing"] > 0
    assert len(federation({}, round_deadline=1e9).run(1).failures) == 0
