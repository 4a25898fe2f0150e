"""ε of single providers: by what they gave, limited by a filter, told to nobody else."""

import math
import shutil

import pytest
from flwr.app import RecordDict
from hypothesis import given
from hypothesis import strategies as st
from toy_private import federation, provider_data, vector_of

from fedpriv.clients.fl_provider_dp import ProviderUpdates
from fedpriv.federation.audit.mechanism import audit_mechanism
from fedpriv.privacy import individual
from fedpriv.privacy.accounting import accountants
from fedpriv.privacy.accounting.event import ClientThenRecord
from fedpriv.privacy.individual import epsilon, most_given
from fedpriv.privacy.ledger import Ledger
from fedpriv.privacy.mechanism import client_gaussian, provider_gaussian
from fedpriv.privacy.statement import account, summary
from fedpriv.report.build import write_report
from fedpriv.runtime.client_memory import InState, OnDisk
from fedpriv.runtime.run_folder import LEDGER, RunFolder
from fedpriv.strategies.fl_provider_dp import FLProviderDP
from fedpriv.strategies.provider_bandmf import ProviderBandMF
from fedpriv.training.loops import Optimizer

DELTA = 1e-5


pytestmark = pytest.mark.usefixtures("in_own_folder")


def private(rounds=4, lr=0.3, scale=1.0, strategy=FLProviderDP, run_dir=None, **settings):
    settings = {"noise_multiplier": 2.0, "delta": DELTA, "provider_rate": 0.6, **settings}
    mechanism = provider_gaussian(clip_norm=0.5, providers=2, **settings)
    half = ProviderUpdates(steps=1, batch_size=4, optimizer=Optimizer("sgd", lr=lr))
    data = provider_data(3, 4, scale=scale)
    made = federation(strategy(mechanism), half, data, checkpoint_every=2)
    return made.run(rounds, run_dir=run_dir)


def told(result, view="global"):
    content = RunFolder.existing(result.run_dir).read_json(LEDGER)
    return content["views"][view]["individual"], content["spent"]


@given(st.floats(0.01, 50), st.floats(0.3, 20))
def test_epsilon_is_that_of_one_gaussian_of_all_shifts_together(share, noise):
    alone = ClientThenRecord(1.0, 1.0, noise / math.sqrt(share))
    assert epsilon(share, noise, DELTA) == pytest.approx(
        accountants.epsilon([(alone, 1)], DELTA), abs=0.01, rel=2e-3
    )


@given(st.floats(0.05, 20), st.floats(0.3, 20))
def test_what_may_be_given_is_what_comes_to_the_limit(limit, noise):
    most = most_given(limit, noise, DELTA)
    assert limit * (1 - 1e-6) < epsilon(most, noise, DELTA) <= limit


def test_nothing_given_costs_nothing_and_no_noise_hides_nothing():
    assert epsilon(0.0, 0.0, DELTA) == 0
    assert epsilon(0.1, 0.0, DELTA) == math.inf


@pytest.mark.parametrize("on_disk", [True, False])
def test_a_client_remembers_each_attempt_once_and_in_the_order_of_writing(tmp_path, on_disk):
    memory = OnDisk(tmp_path / "0") if on_disk else InState(RecordDict())
    individual.remember(memory, 1, 0, {4: 1.0, 7: 0.25})
    for _ in range(2):  # computed again after a kill
        individual.remember(memory, 2, 0, {4: 0.5})
        individual.remember(memory, 3, 0, {7: 1.0})
    individual.remember(memory, 2, 1, {4: 0.5})
    rows = individual.remembered(memory)
    assert individual.given_before(rows, 1) == {}
    assert individual.given_before(rows, 2) == {4: 1.0, 7: 0.25}
    # Round 3 had been run when round 2 was repeated as another attempt.
    assert individual.given_before(rows, 2, attempt=1) == {4: 1.5, 7: 1.25}
    assert individual.given_before(rows, 3) == {4: 1.5, 7: 0.25}
    assert individual.given_before(rows, 4) == {4: 2.0, 7: 1.25}


def test_each_provider_is_told_by_its_own_contributions():
    """With changes that are all clipped, it is the number of rounds in which it was drawn."""
    found, spent = told(private(lr=100.0))
    assert 3 < len(spent) <= 12
    assert len({one["releases"] for one in spent.values()}) > 1
    for name, one in spent.items():
        assert one["given"] == pytest.approx(one["releases"], rel=1e-5)
        often = [(ClientThenRecord(1.0, 1.0, 2.0), one["releases"])]
        assert found["epsilon"][name] == pytest.approx(accountants.epsilon(often, DELTA), abs=0.01)


def test_short_contributions_cost_less():
    long, short = (max(told(private(lr=lr))[0]["epsilon"].values()) for lr in (100.0, 0.01))
    assert short < long / 5
    # Never more than the promise to everybody, had drawing been no secret.
    every = accountants.epsilon([(ClientThenRecord(1.0, 1.0, 2.0), 4)], DELTA)
    assert long <= every + 0.01


def test_a_server_that_sees_messages_sees_a_share_of_the_noise():
    result = private(lr=100.0)
    sums, messages = (told(result, view)[0]["epsilon"] for view in ("global", "server_plain"))
    one = told(result)[1]["0"]["given"]
    assert messages["0"] == pytest.approx(epsilon(one, 2.0 / math.sqrt(3), DELTA))
    assert messages["0"] > sums["0"]


@pytest.mark.parametrize(
    ("strategy", "limit", "bands"),
    [(FLProviderDP, 4.5, {}), (ProviderBandMF, 3.3, {"bands": 2, "provider_rate": 0.3})],
)
def test_a_filter_stops_whoever_has_spent_its_share(strategy, limit, bands):
    free = private(8, 100.0, strategy=strategy, **bands)
    limited = private(8, 100.0, strategy=strategy, individual_epsilon=limit, **bands)
    spent, found = told(free)[0]["epsilon"], told(limited)[0]
    assert max(spent.values()) > limit + 0.2
    assert found["limit"] == limit
    assert max(found["epsilon"].values()) == pytest.approx(limit, abs=1e-6)
    # Whoever is below the limit is as before.
    below = {name: e for name, e in spent.items() if e < limit - 0.1}
    assert below
    assert all(found["epsilon"][name] == pytest.approx(e, rel=1e-3) for name, e in below.items())
    assert (vector_of(free) != vector_of(limited)).any()
    ledgers = (RunFolder.existing(one.run_dir).read_json(LEDGER) for one in (free, limited))
    unsaid, said = ([line for line in summary(of) if "limit" in line] for of in ledgers)
    many = sum(one > limit - 1e-3 for one in found["epsilon"].values())
    assert said == [
        f"  limit: {limit} for each supplier; of {len(spent)} that were drawn, {many} have reached "
        "it, and give no more"
    ]
    assert unsaid == []


@pytest.mark.parametrize("strategy", [FLProviderDP, ProviderBandMF])
def test_an_audit_sees_no_more_than_the_limit(strategy):
    """Canaries give all that they may. By its rounds, a run would give away more than the limit."""
    bands = {"bands": 2} if strategy is ProviderBandMF else {}
    mechanism = provider_gaussian(
        clip_norm=0.5, providers=2, noise_multiplier=2.0, delta=DELTA, individual_epsilon=1.5,
        **bands,
    )  # fmt: skip
    half = ProviderUpdates(steps=1, batch_size=4, optimizer=Optimizer("sgd", lr=0.3))
    made = federation(strategy(mechanism), half, provider_data(3, 4))
    audit = audit_mechanism(made, 8, axes=1 << 12, confidence=0.9999)
    assert not audit.contradicted
    assert not audit.blind
    for view in audit.views.values():
        assert view.ledger > 2.5
        assert max(view.sigma_fit, view.count, view.one_run) < 1.6


def test_where_clients_are_the_units_each_is_told_by_its_number():
    mechanism = client_gaussian(clip_norm=0.5, noise_multiplier=2.0, delta=DELTA)
    half = ProviderUpdates(steps=1, batch_size=4, optimizer=Optimizer("sgd", lr=100.0))
    result = federation(FLProviderDP(mechanism), half, provider_data(3, 4)).run(3)
    assert {n: (o["releases"], round(o["given"], 4)) for n, o in told(result)[1].items()} == {
        "0": (3, 3.0), "1": (3, 3.0), "2": (3, 3.0),
    }  # fmt: skip


def test_a_filter_goes_on_where_a_run_was_interrupted():
    settings = {"lr": 100.0, "individual_epsilon": 2.0}
    straight = private(8, **settings)
    private(5, run_dir="stopped", **settings)
    mechanism = provider_gaussian(
        clip_norm=0.5, providers=2, noise_multiplier=2.0, delta=DELTA, provider_rate=0.6,
        individual_epsilon=2.0,
    )  # fmt: skip
    half = ProviderUpdates(steps=1, batch_size=4, optimizer=Optimizer("sgd", lr=100.0))
    again = federation(FLProviderDP(mechanism), half, provider_data(3, 4), checkpoint_every=2)
    resumed = again.run(8, run_dir="stopped", resume=True)
    assert (vector_of(resumed) == vector_of(straight)).all()
    assert told(resumed) == told(straight)


def test_where_a_memory_is_lost_no_limit_is_kept_and_nothing_is_told():
    private(4, run_dir="limited", individual_epsilon=2.0)
    shutil.rmtree("limited/clients")
    with pytest.raises(ValueError, match="individual_epsilon cannot be kept"):
        going_on("limited", individual_epsilon=2.0)
    private(4, run_dir="free")
    shutil.rmtree("free/clients")
    content = RunFolder.existing(going_on("free").run_dir).read_json(LEDGER)
    assert content["spent"] == {}
    assert "individual" not in content["views"]["global"]


def going_on(folder, **settings):
    mechanism = provider_gaussian(
        clip_norm=0.5, providers=2, noise_multiplier=2.0, delta=DELTA, provider_rate=0.6, **settings
    )
    half = ProviderUpdates(steps=1, batch_size=4, optimizer=Optimizer("sgd", lr=0.3))
    made = federation(FLProviderDP(mechanism), half, provider_data(3, 4), checkpoint_every=2)
    return made.run(6, run_dir=folder, resume=True)


def test_the_report_shows_it_and_a_redacted_one_does_not():
    result = private(8, 100.0, individual_epsilon=2.0)
    page = write_report(result.run_dir).read_text()
    assert "Each supplier's own ε" in page.replace("&#39;", "'")
    assert "have reached the limit of 2, and give no more" in page
    assert "whoever sees the global models" in page
    assert "its own eyes" in page
    redacted = write_report(result.run_dir, redacted=True).read_text()
    assert "own ε" not in redacted


def test_epsilon_is_computed_again_from_what_the_ledger_has():
    result = private()
    folder = RunFolder.existing(result.run_dir)
    before = folder.read_json(LEDGER)
    account(folder)
    assert folder.read_json(LEDGER) == before
    assert Ledger.from_json(before).releases


def test_limits_below_nothing_are_refused():
    for limit in (-1, 0):
        with pytest.raises(ValueError, match=f"individual_epsilon={limit}: .*or null for no limit"):
            provider_gaussian(
                clip_norm=1, providers=1, noise_multiplier=1, individual_epsilon=limit
            )
    limited = provider_gaussian(
        clip_norm=1, providers=1, noise_multiplier=1, individual_epsilon=1.0
    )
    with pytest.raises(ValueError, match="individual_epsilon counts on all of the noise"):
        FLProviderDP(limited, variant="paper")
