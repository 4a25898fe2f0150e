"""Noise is never used for two messages: what its key holds, and what a resume does with it."""

import json
import shutil
import types
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from host_vectors import to_vectors
from toy_private import (
    Small,
    Watched,
    data_of,
    federation,
    first_model,
    provider_data,
    sent_by,
)

from fedpriv.clients.feam_dp import ExampleGradients
from fedpriv.clients.fl_provider_dp import ProviderUpdates
from fedpriv.federation.dataset import ArrayData
from fedpriv.federation.loop import Federation
from fedpriv.federation.messages import UPDATE
from fedpriv.federation.secagg.masking import Masking
from fedpriv.federation.settings import Settings
from fedpriv.privacy import message_key
from fedpriv.privacy.ledger import Ledger, LedgerMissing
from fedpriv.privacy.mechanism import example_gaussian, provider_gaussian
from fedpriv.runtime.progress import Progress
from fedpriv.runtime.run_folder import BOOKED, FINAL, LEDGER, RunFolder
from fedpriv.strategies.feam_dp import FeAmDP
from fedpriv.strategies.fl_provider_dp import FLProviderDP
from fedpriv.training.loops import Optimizer

CLIENTS, PROVIDERS, SIGMA, CLIP = 3, 2, 50.0, 0.5
SGD = Optimizer("sgd", lr=0.3)


pytestmark = pytest.mark.usefixtures("in_own_folder", "budget_untold")


def mechanism(**changes):
    asked = {"clip_norm": CLIP, "providers": PROVIDERS, "noise_multiplier": SIGMA}
    return provider_gaussian(**(asked | changes))


def made(strategy=None, client=None, data=None, masking=None, **settings):
    return federation(
        strategy or FLProviderDP(mechanism()),
        client or ProviderUpdates(steps=2, optimizer=SGD),
        data or provider_data(CLIENTS, PROVIDERS),
        masking=masking,
        one_noise=False,
        **settings,
    )


def key(**changes):
    return made(**changes).spec.key


# What the key holds


class Loose(Small):
    def __init__(self):
        super().__init__()
        self.layers.insert(1, torch.nn.Dropout(0.1))


def one_label_changed():
    data = provider_data(CLIENTS, PROVIDERS)
    labels = data.train["y"].copy()
    labels[5] = (labels[5] + 1) % 3
    return ArrayData({**data.train, "y": labels}, data.rows)


def one_example_gone():
    data = provider_data(CLIENTS, PROVIDERS)
    return ArrayData(data.train, (data.rows[0][1:], *data.rows[1:]))


DIFFERENT = {
    "learning rate": {"client": ProviderUpdates(steps=2, optimizer=Optimizer("sgd", lr=0.2))},
    "steps": {"client": ProviderUpdates(steps=3, optimizer=SGD)},
    "clip norm": {"strategy": FLProviderDP(mechanism(clip_norm=0.4))},
    "noise": {"strategy": FLProviderDP(mechanism(noise_multiplier=SIGMA + 1))},
    "rate": {"strategy": FLProviderDP(mechanism(client_rate=0.5))},
    "threshold": {"strategy": FLProviderDP(mechanism(), threshold=0.5)},
    "variant": {"strategy": FLProviderDP(mechanism(), variant="paper")},
    "masking": {"masking": Masking(0.6)},
    "masking's bound": {"masking": Masking(0.6, bound=400.0)},
    "one label": {"data": one_label_changed()},
    "one example": {"data": one_example_gone()},
    "threads": {"threads": 2},
}


def test_every_change_of_a_message_is_another_key():
    keys = {"": key(), **{what: key(**change) for what, change in DIFFERENT.items()}}
    assert len(set(keys.values())) == len(keys), keys


def test_what_changes_no_message_is_the_same_key():
    same = [
        {},
        {"keep_checkpoints": 0, "checkpoint_every": 3, "evaluate_every": 7, "max_refused": 2},
        {"chunk_size": 1},
        {"strategy": FLProviderDP(mechanism(delta=1e-6))},
    ]
    assert len({key(**change) for change in same}) == 1


def test_an_algorithm_and_its_half_do_not_share_a_key_with_another(monkeypatch):
    examples = example_gaussian(clip_norm=CLIP, examples=24, noise_multiplier=SIGMA)
    parts = {"strategy": FeAmDP(examples), "client": ExampleGradients()}
    assert key(**parts) != key()
    before = key()
    monkeypatch.setattr(ProviderUpdates, "version", 2, raising=False)
    assert key() != before


def test_the_versions_of_the_libraries_and_the_kind_of_processor_are_in_it(monkeypatch):
    before, real = key(), message_key.versions_of
    for name in ("torch", "transformers"):
        with monkeypatch.context() as patch:
            other = {name: "9.9"}
            patch.setattr(message_key, "versions_of", lambda *names, o=other: real(*names) | o)
            assert key() != before
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "another")
    assert key() != before


def test_moved_code_moves_no_bits():
    """A class of the same settings and action in another module."""
    elsewhere = types.ModuleType("somewhere.else_entirely")
    moved = type("ProviderUpdates", (ProviderUpdates,), {"__module__": elsewhere.__name__})
    assert key(client=moved(steps=2, optimizer=SGD)) == key()


def test_weights_and_settings_of_the_model_are_in_it():
    data = data_of(4, 4)
    examples = example_gaussian(clip_norm=CLIP, examples=8, noise_multiplier=SIGMA)

    def of(model, seed=0):
        return Federation(
            model=model, data=data, strategy=FeAmDP(examples), client=ExampleGradients(), seed=seed
        ).spec.key

    assert of(Small) == of(Small)
    assert len({of(Small), of(Loose), of(Small, seed=1)}) == 3


# No two messages under one noise


def messages(federation, **run):
    """What each client sent, by (round, client): float vectors times M, so noise has std σC/√n."""
    grid = Watched(federation)
    result = federation.run(run.pop("rounds", 1), grid=grid, **run)
    sent = [r for r in grid.replied if r.metadata.message_type.startswith("train")]
    rounds = [int(r.metadata.group_id) for r in sent]
    clients = [grid.client_of(r.metadata.src_node_id) for r in sent]
    vectors = [to_vectors(r.content[UPDATE])["float"].astype(np.float64) for r in sent]
    scaled = [PROVIDERS * vector for vector in vectors]
    return result, dict(zip(zip(rounds, clients, strict=True), scaled, strict=True))


SHARE = SIGMA * CLIP / np.sqrt(CLIENTS)


@pytest.mark.parametrize("change", ["learning rate", "one label", "threshold", "threads", "noise"])
def test_two_runs_of_one_seed_that_differ_in_a_message_have_independent_noise(change):
    """Under one noise, the difference would be that of the clipped updates, at most 2 C = 1."""
    _, one = messages(made())
    _, other = messages(made(**DIFFERENT[change]))
    size = first_model().size
    for at, vector in one.items():
        apart = np.linalg.norm(vector - other[at])
        # The threshold splits the noise otherwise; all of these have at least one share of each.
        assert apart > 0.6 * SHARE * np.sqrt(2 * size)
    again = messages(made())[1]
    assert all(np.array_equal(one[at], again[at]) for at in one)


def test_a_sweep_over_the_noise_does_not_give_the_clean_sum_away():
    """x + σ₁z and x + σ₂z under one z are solved for x; with two z they are not."""
    noises = (2.0, 4.0)
    (_, low), (_, high) = (
        messages(made(FLProviderDP(mechanism(noise_multiplier=s)))) for s in noises
    )
    _, clean = messages(made(FLProviderDP(mechanism(noise_multiplier=0.0))))
    for at, message in clean.items():
        solved = (noises[1] * low[at] - noises[0] * high[at]) / (noises[1] - noises[0])
        assert np.linalg.norm(solved - message) > 3 * np.linalg.norm(message)


# Resuming


def cut_off_in(round, *, data=None, client=None, run_dir="here", rounds=3, **settings):
    """A run that ends after client 1 has answered in a round."""
    parts = made(data=data, client=client, **settings)
    grid = Watched(parts, {(round, 0, 2): "train"}, error=KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        parts.run(rounds, run_dir=run_dir, grid=grid)
    sent = [r for r in grid.replied if r.metadata.message_type.startswith("train")]
    return {
        (int(r.metadata.group_id), grid.client_of(r.metadata.src_node_id)): PROVIDERS
        * to_vectors(r.content[UPDATE])["float"].astype(np.float64)
        for r in sent
    }


class Told(Progress):
    def __init__(self):
        self.lines = []

    def note(self, line):
        self.lines.append(line)


def booked(run_dir="here"):
    return RunFolder(Path(run_dir)).read_ledger()


def events(run_dir="here"):
    return booked(run_dir)["events"]


def test_a_round_that_was_cut_off_gives_the_same_bits_and_is_booked_once():
    before = cut_off_in(2)
    (first, open_one) = events()
    assert (first["finished"], open_one["finished"]) == (True, False)
    assert open_one["survivors"] == open_one["cohort"]  # what had arrived is not known
    told = Told()
    result, after = messages(made(), rounds=3, run_dir="here", resume=True, progress=told)
    assert np.array_equal(before[2, 0], after[2, 0])
    assert np.array_equal(before[2, 1], after[2, 1])
    assert [(e["round"], e["attempt"], e["finished"]) for e in events()] == [
        (1, 0, True),
        (2, 0, True),
        (3, 0, True),
    ]
    assert told.lines == []
    assert [record["attempts"] for record in result.metrics] == [1, 1, 1]


@pytest.mark.parametrize("change", ["one label", "learning rate", "threads"])
def test_resumed_on_other_data_or_settings_it_is_a_new_attempt_booked_and_said(change):
    """What was sent before and what is sent now differ by at most 2 C, but for their noise."""
    before = cut_off_in(2)
    told = Told()
    result, after = messages(
        made(**DIFFERENT[change]),
        rounds=3,
        run_dir="here",
        resume=True,
        other_data=True,
        progress=told,
    )
    size = first_model().size
    for client in (0, 1):
        apart = np.linalg.norm(before[2, client] - after[2, client])
        assert apart > 0.6 * SHARE * np.sqrt(2 * size)
    attempts = [(e["round"], e["attempt"], e["finished"]) for e in events()]
    assert attempts == [(1, 0, True), (2, 0, False), (2, 1, True), (3, 0, True)]
    assert [record["attempts"] for record in result.metrics] == [1, 2, 1]
    assert len(told.lines) == (2 if change == "one label" else 1)
    assert "round 2 was begun before" in told.lines[-1]
    assert "new noise, and both are booked" in told.lines[-1]
    # The plain server has seen both; the models show the released one only.
    ledger = Ledger.from_json(booked())
    assert sum(times for _, times in ledger.history("server_plain")) == 4
    assert sum(times for _, times in ledger.history("global")) == 3


@pytest.mark.parametrize("stage", ["advertise", "share", "train", "reveal"])
def test_a_masked_round_is_booked_before_its_first_key_travels(stage):
    """Whoever interrupts it there has seen who was drawn, and may wish for others."""
    masked = {"masking": Masking(0.6)}
    parts = made(**masked)
    grid = Watched(parts, {(2, 0, 1): stage}, error=KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        parts.run(3, run_dir="here", grid=grid)
    assert [(e["round"], e["cohort"]) for e in events()] == [(1, [0, 1, 2]), (2, [0, 1, 2])]
    other = made(**masked, **DIFFERENT["learning rate"])
    other.run(3, run_dir="here", resume=True)
    assert [(e["round"], e["attempt"]) for e in events()] == [(1, 0), (2, 0), (2, 1), (3, 0)]


def test_entropy_of_the_operating_system_is_never_drawn_again():
    secret = {"entropy": "os"}
    _, one = messages(made(**secret))
    _, other = messages(made(**secret))
    for at, vector in one.items():
        assert np.linalg.norm(vector - other[at]) > SHARE
    cut_off_in(2, **secret)
    messages(made(**secret), rounds=3, run_dir="here", resume=True)
    assert [(e["round"], e["attempt"]) for e in events()] == [(1, 0), (2, 0), (2, 1), (3, 0)]


@pytest.mark.parametrize("sampling", ["poisson", "fixed"])
def test_a_round_that_is_made_again_has_the_cohort_that_was_drawn_for_it(sampling):
    """Whoever interrupts a run until the cohort suits would draw who suits more often."""
    strategy = FLProviderDP(mechanism(client_rate=0.5, client_sampling=sampling))
    start = {"float": np.zeros(3, np.float32)}

    def cohort(round, attempt):
        asked = sent_by(strategy, start, clients=20, round=round, attempt=attempt)
        return [message.metadata.dst_node_id for message in asked]

    assert cohort(1, 0) == cohort(1, 1) != cohort(2, 0)


# Ledger and checkpoint belong together


def finished(run_dir="here", rounds=3, **changes):
    return made(**changes).run(rounds, run_dir=run_dir)


def resume(rounds=4):
    return made().run(rounds, run_dir="here", resume=True)


def test_a_run_without_its_ledger_does_not_go_on(tmp_path):
    finished()
    (tmp_path / "here" / LEDGER).unlink()
    with pytest.raises(LedgerMissing, match=r"here/ledger.json is not there: .* cannot go on"):
        resume()


@pytest.mark.parametrize("content", ["{}", "[1]", "", '{"events": [', "null"])
def test_nor_does_one_whose_ledger_is_no_ledger(content, tmp_path):
    finished()
    (tmp_path / "here" / LEDGER).write_text(content)
    with pytest.raises(LedgerMissing, match=r"here/ledger.json is no (JSON|whole ledger)"):
        resume()


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_nor_one_whose_ledger_was_cut(kept, tmp_path):
    finished()
    path = tmp_path / "here" / LEDGER
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "events": content["events"][:kept]}))
    with pytest.raises(LedgerMissing, match=f"has {kept} attempts, .* another ledger, of 3"):
        resume()


@pytest.mark.parametrize("kept", [0, 1, 2, 3])
def test_nor_one_whose_attempts_since_its_last_checkpoint_were_cut_too_early(kept, tmp_path):
    cut_off_in(3)
    assert len(json.loads((tmp_path / "here" / LEDGER).read_text())["events"]) == 1
    path = tmp_path / "here" / BOOKED
    lines = path.read_bytes().splitlines(keepends=True)
    assert len(lines) == 4  # the end of round 1, both of round 2, the beginning of round 3
    path.write_bytes(b"".join(lines[:kept]))
    if kept < 2:  # the checkpoint of round 2 knows of two attempts
        with pytest.raises(LedgerMissing, match=r"has 1 attempts, .* another ledger, of 2"):
            resume()
    else:
        resume()
        assert [e["round"] for e in events()] == [1, 2, 3, 4]


@pytest.mark.parametrize("lost", [2, 40, 10_000])
def test_a_last_line_that_was_cut_off_leaves_the_attempt_booked(lost, tmp_path):
    straight, _ = messages(made(), rounds=3, run_dir="straight")
    cut_off_in(3)
    path = tmp_path / "here" / BOOKED
    whole = path.read_bytes().splitlines(keepends=True)
    # As a kill inside of the write that books the end of round 2 would leave it.
    (tmp_path / "here" / "checkpoints" / "round-000002.safetensors").unlink()
    path.write_bytes(b"".join(whole[:2]) + whole[2][: max(1, len(whole[2]) - lost)])
    assert [(e["round"], e["finished"]) for e in events()] == [(1, True), (2, False)]
    resumed = resume(rounds=3)
    assert events() == events("straight")
    assert (resumed.run_dir / FINAL).read_bytes() == (straight.run_dir / FINAL).read_bytes()
    assert not path.exists()  # at the end all of it stands in one file


def test_what_is_booked_in_a_round_does_not_grow_with_the_rounds(tmp_path, monkeypatch):
    written = []

    def noting(folder, name, records, *, sync=False, append=RunFolder.append):
        records = list(records)
        if name == BOOKED:
            assert sync
            written.append(len(json.dumps(records)))
        append(folder, name, records, sync=sync)

    monkeypatch.setattr(RunFolder, "append", noting)
    finished(rounds=12)
    assert len(written) == 2 * 12 - 1
    assert max(written) < 1.2 * min(written)


def test_nor_one_with_the_ledger_of_another_run(tmp_path):
    finished()
    finished("other", data=provider_data(CLIENTS, PROVIDERS, seed=9))
    shutil.copy(tmp_path / "other" / LEDGER, tmp_path / "here" / LEDGER)
    with pytest.raises(LedgerMissing, match="cut, changed or of another run"):
        resume()


def test_nor_one_whose_ledger_claims_more_noise(tmp_path):
    finished()
    path = tmp_path / "here" / LEDGER
    content = json.loads(path.read_text())
    louder = [{**event, "planned": 99.0, "share": 99.0} for event in content["events"]]
    path.write_text(json.dumps({**content, "events": louder}))
    with pytest.raises(LedgerMissing, match="another ledger"):
        resume()


def test_a_run_that_was_killed_before_anything_was_sent_has_a_ledger_of_nothing(tmp_path):
    cut_off_in(1)
    assert [(e["round"], e["finished"]) for e in events()] == [(1, False)]
    shutil.rmtree(tmp_path / "here" / "checkpoints", ignore_errors=True)
    (tmp_path / "here" / LEDGER).unlink()
    with pytest.raises(LedgerMissing):
        resume()


def test_what_is_not_private_needs_no_ledger_to_go_on(tmp_path):
    from fedpriv.clients.fedavg import LocalTraining
    from fedpriv.strategies.fedavg import FedAvg

    parts = {"strategy": FedAvg(), "client": LocalTraining()}
    plain = Federation(**parts, model=Small, data=data_of(4, 4), settings=Settings())
    plain.run(1, run_dir="here")
    (tmp_path / "here" / LEDGER).unlink()
    assert len(plain.run(2, run_dir="here", resume=True).metrics) == 2


def test_ledgers_of_runs_on_the_same_data_say_so():
    one, other = made(), made(client=ProviderUpdates(steps=5, optimizer=SGD))
    changed = made(data=one_label_changed())
    assert one.ledger().data == other.ledger().data != changed.ledger().data
    assert replace(one.spec, key="").key != one.spec.key
