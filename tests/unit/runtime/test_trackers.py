"""Trackers: what is written, that it stays here, and that a resumed run goes on with its entry."""

import sqlite3
from contextlib import suppress

import pytest

from fedpriv.federation.settings import Settings
from fedpriv.runtime.trackers import base
from fedpriv.runtime.trackers.base import Tracked, following, problems

ROUND = {"round": 1, "f1": 0.5, "accepted": True, "clients": {"answered": 3}, "note": "text"}


@pytest.fixture
def run(tmp_path, monkeypatch):
    for name in ("MLFLOW_TRACKING_URI", "WANDB_MODE", "WANDB_ERROR_REPORTING"):
        monkeypatch.delenv(name, raising=False)
    place = tmp_path / "runs" / "toy" / "2026"
    place.mkdir(parents=True)
    return Tracked(place, tmp_path / "runs", "toy", 0, {"seed": 3, "client": {"epochs": 2}})


def test_an_unknown_tracker_and_one_without_its_package_are_told(monkeypatch):
    with pytest.raises(ValueError, match=r"trackers: got 'comet': expected any of tensorboard, ml"):
        Settings(trackers=("comet",))
    monkeypatch.setattr(base.importlib.util, "find_spec", lambda name: None)
    (told,) = problems(["wandb"])
    assert "wandb, which is not installed: pip install 'fedpriv[trackers]'" in told
    assert problems([]) == []


def test_tensorboard_has_every_number(run):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with following(["tensorboard"], run) as (board,):
        board.round(ROUND)
    events = EventAccumulator(str(run.run_dir / "tensorboard")).Reload()
    assert set(events.Tags()["scalars"]) == {"f1", "accepted", "clients/answered"}
    assert [(one.step, one.value) for one in events.Scalars("f1")] == [(1, 0.5)]


@pytest.mark.slow
def test_mlflow_has_settings_and_rounds_and_a_resumed_run_has_one_entry(run):
    pytest.importorskip("mlflow")
    pytest.importorskip("alembic")
    with following(["mlflow"], run) as (board,):
        board.round(ROUND)
    with suppress(KeyboardInterrupt), following(["mlflow"], run) as (board,):
        board.round({**ROUND, "f1": 0.9})  # written before
        board.round({**ROUND, "round": 2, "f1": 0.75})
        raise KeyboardInterrupt
    store = run.runs / "mlflow.db"
    assert store.stat().st_mode & 0o077 == 0
    with sqlite3.connect(store) as database:
        rows = database.execute("select step, value from metrics where key = 'f1'").fetchall()
        params = dict(database.execute("select key, value from params").fetchall())
        states = database.execute("select name, status from runs").fetchall()
    assert sorted(rows) == [(1, 0.5), (2, 0.75)]
    assert params == {"seed": "3", "client.epochs": "2"}
    assert states == [("2026", "FAILED")]


@pytest.mark.slow
def test_wandb_writes_into_the_run_folder_and_stays_offline(run):
    wandb = pytest.importorskip("wandb")
    with following(["wandb"], run) as (board,):
        assert wandb.run.settings.mode == "offline"
        assert not wandb.env.error_reporting_enabled()  # which asks the network while offline, too
        assert dict(wandb.run.config) == {"seed": 3, "client.epochs": 2}
        board.round(ROUND)
        assert wandb.run.summary["f1"] == 0.5
    assert list(run.run_dir.glob("wandb/offline-run-*/*.wandb"))
