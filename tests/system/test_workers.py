"""Workers: the same bits as in one process, and faults that cost one client one round."""

import functools
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from flwr.clientapp import ClientApp
from toy import federation, norm_net, weights
from toy_private import FaultyProviders, private_data

from fedpriv.federation.client import build_app
from fedpriv.federation.faults import Crashing, Dropout, Slow
from fedpriv.federation.grids.base import WorkersDied
from fedpriv.federation.grids.processes import ProcessGrid
from fedpriv.federation.grids.workers import Deaths
from fedpriv.federation.secagg.masking import Masking
from fedpriv.privacy.mechanism import provider_gaussian
from fedpriv.runtime.run_folder import LEDGER, RunFolder
from fedpriv.runtime.workers.ray_session import RaySettings
from fedpriv.strategies.provider_bandmf import ProviderBandMF
from fedpriv.threat.surfaces.server import KeepTranscript

ON_RAY = RaySettings(client_resources={"num_cpus": 1.0})
BOTH = ["processes", pytest.param("ray", marks=pytest.mark.slow)]
FAULTS = {"2/3": "raise", "3/1": "nan"}
WATCHING = KeepTranscript(clients=(0, 2, 3, 5))


@pytest.fixture(scope="module")
def inline(tmp_path_factory):
    runs = tmp_path_factory.mktemp("inline")
    return federation(FAULTS, model=norm_net, runs=runs, keep=[WATCHING]).run(4)


@pytest.fixture
def ray(request):
    """Where workers run: processes of this machine, or a Ray that the tests share."""
    if getattr(request, "param", "processes") == "processes":
        return RaySettings()
    request.getfixturevalue("one_ray")
    return ON_RAY


@pytest.mark.parametrize(
    ("workers", "ray"),
    [(1, "processes"), (2, "processes"), pytest.param(2, "ray", marks=pytest.mark.slow)],
    indirect=["ray"],
)
def test_any_number_of_workers_gives_the_bits_of_one_process(workers, ray, inline, tmp_path):
    settings = {"model": norm_net, "runs": tmp_path, "workers": workers, "ray": ray}
    result = federation(FAULTS, keep=[WATCHING], **settings).run(4)

    assert weights(result) == weights(inline)
    assert _seen(result) == _seen(inline)
    # Frozen; parameters and mean of each round, and four clients of whom one raised.
    assert len(_seen(result)) == 1 + 4 * (2 + 4) - 1
    untimed = {"seconds"}
    for ours, theirs in zip(result.metrics, inline.metrics, strict=True):
        assert {k: ours[k] for k in ours.keys() - untimed} == {
            k: theirs[k] for k in theirs.keys() - untimed
        }
    assert _who(result) == _who(inline) == [(2, 3, "failed"), (3, 1, "failed")]


def test_clients_remember_whichever_worker_serves_them(tmp_path):
    """Masked, in bands and with limits for each provider, and a client that misses a round."""

    def ran(runs, **where):
        mechanism = provider_gaussian(
            clip_norm=0.5,
            providers=3,
            noise_multiplier=1.0,
            provider_rate=0.35,
            bands=2,
            individual_epsilon=6.0,
        )
        return federation(
            model=norm_net,
            data=private_data(),
            strategy=ProviderBandMF(mechanism, threshold=0.5),
            client=FaultyProviders({"2/0/3": "raise"}),
            masking=Masking(),
            runs=runs,
            **where,
        ).run(4)

    alone, several = ran(tmp_path / "alone"), ran(tmp_path / "several", workers=2)
    assert weights(several) == weights(alone)
    of, there = (RunFolder.existing(one.run_dir).read_json(LEDGER) for one in (alone, several))
    assert of["spent"]
    assert of["spent"] == there["spent"]


def test_another_seed_gives_other_bits(inline, tmp_path):
    assert weights(federation(FAULTS, model=norm_net, runs=tmp_path, seed=1).run(4)) != weights(
        inline
    )


@pytest.mark.parametrize("ray", BOTH, indirect=True)
def test_a_dead_and_a_hanging_client_lose_their_round_and_nothing_more(ray, tmp_path):
    """Each of the three is the second client of its chunk."""
    faults = {"2/3": "raise", "3/1": "hang", "3/5": "exit"}
    timeout = 20.0 if ray.wanted else 5.0  # Ray's workers take seconds to import what they need
    there = {"ray": ray, "workers": 2, "client_timeout": timeout}
    result = federation(faults, runs=tmp_path, chunk_size=2, **there).run(4)

    assert [m["clients"] for m in result.metrics] == [
        {"sampled": 8, "answered": 8, "failed": 0, "missing": 0},
        {"sampled": 8, "answered": 7, "failed": 1, "missing": 0},
        {"sampled": 8, "answered": 6, "failed": 1, "missing": 1},
        {"sampled": 8, "answered": 8, "failed": 0, "missing": 0},
    ]
    assert sorted(_who(result)) == [(2, 3, "failed"), (3, 1, "missing"), (3, 5, "failed")]
    # The others' answers are the ones they would have given had the three only raised.
    raised = dict.fromkeys(faults, "raise")
    assert weights(result) == weights(federation(raised, runs=tmp_path, chunk_size=2).run(4))


def test_workers_killed_from_outside_are_replaced(tmp_path):
    # The timeout is for the test's own sake: the workers are to die long before.
    toy = federation({"2/0": "hang"}, runs=tmp_path, workers=2, client_timeout=120.0)
    grid = toy.grid()
    before = grid.worker_pids()
    threading.Thread(target=_kill_when_stuck, args=(before, tmp_path), daemon=True).start()
    try:
        result = toy.run(3, grid=grid)
        after = grid.worker_pids()
    finally:
        grid.close()

    assert [m["clients"]["answered"] for m in result.metrics][0::2] == [8, 8]
    assert result.metrics[1]["clients"]["answered"] >= 6
    assert not set(before) & set(after)


@pytest.mark.slow
def test_faults_on_purpose_are_those_of_one_process(tmp_path):
    dropout, crash = Dropout(probability=0.3), {"probability": 0.3}
    settings = {"model": norm_net, "runs": tmp_path}
    grid = federation(workers=2, **settings).grid()
    try:
        for there, here in [
            (dropout, dropout),
            (Crashing(**crash, kill=True), Crashing(**crash)),  # workers die, and the process lives
            (Slow(seconds=0.05, deadline=None), None),  # waited for
        ]:
            result = federation(workers=2, on_purpose=there, **settings).run(2, grid=grid)
            inline = federation(on_purpose=here, **settings).run(2)
            assert weights(result) == weights(inline)
            assert _who(result) == _who(inline)
            assert bool(_who(result)) == (here is not None)
    finally:
        grid.close()


@pytest.mark.slow
def test_a_rounds_deadline_ends_the_wait_for_a_hanging_client(tmp_path):
    hanging = federation(
        {"1/3": "hang"}, runs=tmp_path, workers=2, chunk_size=1, round_deadline=3.0
    )
    result = hanging.run(1)
    assert (1, 3, "missing") in _who(result)
    assert {f["reason"] for f in result.failures} == {"RoundTimeout"}


@pytest.mark.slow
def test_what_the_cluster_can_never_give_is_refused_before_anything_starts(one_ray, tmp_path):
    wanted = RaySettings(client_resources={"num_gpus": 1})
    toy = federation(runs=tmp_path, workers=2, ray=wanted)
    with pytest.raises(ValueError, match=r"2 workers × num_gpus=1 need 2, Ray has \d"):
        toy.run(1)


@pytest.mark.parametrize("ray", BOTH, indirect=True)
def test_an_app_that_cannot_be_built_ends_the_run_with_its_own_error(ray, tmp_path):
    toy = federation(runs=tmp_path, ray=ray, workers=1)
    toy.spec = replace(toy.spec, build_model=_unbuildable)
    with pytest.raises(WorkersDied, match="no such weights"):
        toy.run(1)


@pytest.mark.parametrize(("deaths", "works"), [(range(1, 4), True), (range(100), False)])
def test_workers_killed_while_they_start(deaths, works, tmp_path, monkeypatch):
    monkeypatch.setattr(Deaths, "LONGEST_REST", 0.1)
    monkeypatch.setattr(Deaths, "ATTEMPTS", 2)
    toy = federation({"1/2": "exit"}, runs=tmp_path)
    factory = _Killed(functools.partial(build_app, toy.spec), tmp_path / "starts", tuple(deaths))
    grid = ProcessGrid(factory, toy.clients, workers=1)
    try:
        if works:  # the first worker starts; the next three, when it has died, do not
            result = toy.run(2, grid=grid)
            expected = federation({"1/2": "raise"}, runs=tmp_path).run(2)
            assert weights(result) == weights(expected)
            assert len((tmp_path / "starts").read_text()) == 5
        else:
            with pytest.raises(WorkersDied, match="died before they served anybody"):
                toy.run(2, grid=grid)
            assert len((tmp_path / "starts").read_text()) == 2
    finally:
        grid.close()


@dataclass(frozen=True)
class _Killed:
    """Builds an app, but of some starts none: the process is killed."""

    factory: Callable[[], ClientApp]
    starts: Path
    deaths: tuple[int, ...]

    def __call__(self):
        with self.starts.open("a") as file:
            file.write("x")
        if self.starts.stat().st_size - 1 in self.deaths:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.factory()


def _unbuildable():
    """A recipe by which no model can be built."""
    raise RuntimeError("no such weights")


def _seen(result):
    root = result.run_dir / "transcript"
    return {p.relative_to(root): p.read_bytes() for p in root.rglob("*.safetensors")}


def _who(result):
    return [(f["round"], f["client"], f["kind"]) for f in result.failures]


def _kill_when_stuck(pids, runs):
    """Waits for the first round to be over and the second to hang, then kills both workers."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not any(
        path.stat().st_size for path in runs.glob("*/*/metrics.jsonl")
    ):
        time.sleep(0.05)
    time.sleep(0.5)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
