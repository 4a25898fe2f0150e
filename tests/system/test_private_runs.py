"""Private runs on real processes: the same bits on any grid, and a ledger that survives a kill."""

import json
import time

import pytest
from processes import TESTS, Forked, run, run_dir
from toy import Net, weights
from toy_private import FaultyProviders, copied, private_data

from fedpriv.federation.loop import Federation
from fedpriv.federation.secagg.masking import Masking
from fedpriv.federation.settings import Settings
from fedpriv.privacy.mechanism import provider_gaussian
from fedpriv.runtime.run_folder import RunFolder
from fedpriv.strategies.fl_provider_dp import FLProviderDP

PRIVATE = str(TESTS / "system" / "private.yaml")
BANDED = str(TESTS / "system" / "banded.yaml")
ROUNDS = 6


def federation(runs, faults=None, masking=None, threshold=0.6, **settings):
    mechanism = provider_gaussian(
        clip_norm=0.5,
        providers=3,
        provider_rate=0.7,
        client_rate=0.75,
        client_sampling="fixed",
        noise_multiplier=1.0,
    )
    return Federation(
        model=Net,
        data=private_data(),
        strategy=FLProviderDP(mechanism, threshold=threshold),
        client=FaultyProviders(faults or {}),
        masking=masking,
        runs=runs,
        entropy="seed",
        settings=Settings(**settings),
    )


def ledger(result):
    return json.loads((result.run_dir / "ledger.json").read_text())


@pytest.mark.parametrize(
    ("masking", "workers"),
    [
        pytest.param(None, 2, marks=pytest.mark.slow, id="plain-2"),
        pytest.param(Masking(), 1, marks=pytest.mark.slow, id="masked-1"),
        pytest.param(Masking(), 2, marks=pytest.mark.slow, id="masked-2"),
    ],
)
def test_any_number_of_workers_gives_the_bits_of_one_process(workers, masking, tmp_path):
    faults = {"2/0/1": "raise", "2/0/6": "raise"}
    inline = federation(tmp_path, faults, masking).run(4)
    ray = federation(tmp_path, faults, masking, workers=workers).run(4)
    assert weights(ray) == weights(inline)
    assert ledger(ray) == ledger(inline)


@pytest.mark.slow
def test_a_client_that_takes_its_worker_down_never_lowers_the_noise(tmp_path):
    faults = {f"2/0/{client}": "exit" for client in (1, 4)}
    result = federation(tmp_path, faults, Masking(), workers=2).run(3)
    booked = ledger(result)
    lost = [event for event in booked["events"] if event["round"] == 2]
    assert len(lost[0]["survivors"]) < len(lost[0]["cohort"])
    for event in booked["events"]:
        assert not event["released"] or event["noise_multiplier"] > event["planned"] * (1 - 1e-5)
    raised = federation(tmp_path, dict.fromkeys(faults, "raise"), Masking()).run(3)
    assert weights(result) == weights(raised)


def test_clients_that_stay_away_cost_rounds_and_no_privacy(tmp_path):
    """Six of eight are drawn, and the noise needs all: without client 3, a quarter count."""
    faults = {f"{round}/0/3": "raise" for round in range(1, 9)}
    result = federation(tmp_path, faults, threshold=1.0).run(8)
    refused = [event["round"] for event in ledger(result)["events"] if not event["released"]]
    assert refused == [r["round"] for r in result.metrics if not r["accepted"]] != []
    booked, clean = ledger(result), ledger(federation(tmp_path, threshold=1.0).run(8))
    for view, told in clean["views"].items():
        assert booked["views"][view]["pld"] == told["pld"]


@pytest.mark.slow
def test_killed_and_resumed_gives_the_same_bits_and_the_same_ledger(tmp_path):
    status, out, err = run("run", PRIVATE, f"rounds={ROUNDS}", cwd=tmp_path)
    assert status == 0, err
    straight = tmp_path / run_dir(out)

    slow = ["client.pause=0.1", f"runs={tmp_path}/k"]
    process = Forked("run", PRIVATE, f"rounds={ROUNDS}", *slow, cwd=tmp_path)
    folder = _killed_after(3, process, tmp_path / "k")
    (folder / "checkpoints" / "round-000003.safetensors").unlink(missing_ok=True)
    status, _, err = run("resume", str(folder), "--trust", cwd=tmp_path)
    assert status == 0, err

    names = ("final.safetensors", f"round-{ROUNDS:06d}.safetensors")
    for name in names:
        ours, theirs = (f / "checkpoints" / name for f in (folder, straight))
        assert ours.read_bytes() == theirs.read_bytes()
    assert (folder / "ledger.json").read_bytes() == (straight / "ledger.json").read_bytes()


@pytest.mark.slow
def test_a_run_with_a_salt_is_killed_and_goes_on_with_the_same_bits(tmp_path):
    """Its salt is nowhere but in its folder, so a copy of the folder is what it is held against."""
    words = ("privacy.entropy=run", "client.pause=0.1", f"runs={tmp_path}/k", "rounds=1")
    status, out, err = run("run", BANDED, *words, cwd=tmp_path)
    assert status == 0, err
    folder, straight = tmp_path / run_dir(out), tmp_path / "straight"
    copied(folder, straight)
    on = ("--trust", f"rounds={ROUNDS}")
    status, _, err = run("resume", str(straight), *on, cwd=tmp_path)
    assert status == 0, err

    process = Forked("resume", str(folder), *on, cwd=tmp_path)
    _killed_after(3, process, tmp_path / "k")
    status, _, err = run("resume", str(folder), *on, cwd=tmp_path)
    assert status == 0, err
    final = "checkpoints/final.safetensors"
    assert (folder / final).read_bytes() == (straight / final).read_bytes()
    assert (folder / "ledger.json").read_bytes() == (straight / "ledger.json").read_bytes()
    assert RunFolder(folder).salt() == RunFolder(straight).salt() != ""


def _killed_after(rounds, process, runs):
    """Kills the run once it has so many rounds; returns its folder."""
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        found = [p for p in runs.glob("*/*/metrics.jsonl") if len(p.read_text().splitlines())]
        if found and len(found[0].read_text().splitlines()) >= rounds:
            process.kill()
            return found[0].parent
        time.sleep(0.02)
    raise AssertionError("the run has not come so far in ten minutes")
