"""Trackers: what is written, that it stays here, and that a resumed run goes on with its entry."""

import sqlite3
from contextlib import contextmanager, suppress
from types import SimpleNamespace

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


@pytest.mark.parametrize(
    ("name", "variable"), [("mlflow", "MLFLOW_TRACKING_URI"), ("wandb", "WANDB_BASE_URL")]
)
def test_a_server_that_does_not_answer_is_told_before_the_run_without_its_password(
    name, variable, monkeypatch
):
    monkeypatch.setattr(base.importlib.util, "find_spec", lambda name: name)
    monkeypatch.setenv(variable, "http://user:SECRET@127.0.0.1:9/x?token=SECRET")
    monkeypatch.setenv("WANDB_MODE", "online")
    for proxy in ("http_proxy", "HTTP_PROXY", "no_proxy", "NO_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(proxy, raising=False)
    (told,) = problems([name])
    assert f"{name}: nobody answers at http://127.0.0.1:9/x (" in told
    assert "SECRET" not in told
    monkeypatch.setenv("http_proxy", "http://proxy.example:3128")
    assert problems([name]) == []  # the proxy may reach it
    monkeypatch.delenv("WANDB_MODE")
    assert problems(["wandb"]) == []  # it writes files


@pytest.mark.parametrize("fails", ["enter", "round", "exit"])
def test_a_tracker_that_fails_ends_no_training_and_says_no_password(fails, run, monkeypatch):
    """The other one goes on, and what ended the run itself is not held back."""

    class Board:
        def __init__(self, name):
            self.name, self.rounds = name, []

        def round(self, record):
            self.rounds.append(record["round"])
            if (fails, self.name) == ("round", "mlflow"):
                raise OSError("http://user:SECRET@host/ is gone\nTraceback")

    boards = {}

    def follow_as(name):
        @contextmanager
        def follow(run):
            if (fails, name) == ("enter", "mlflow"):
                raise OSError("http://user:SECRET@host/ is gone\nTraceback")
            boards[name] = Board(name)
            try:
                yield boards[name]
            finally:
                if (fails, name) == ("exit", "mlflow"):
                    raise OSError("http://user:SECRET@host/ is gone\nTraceback")

        return SimpleNamespace(follow=follow)

    monkeypatch.setattr(base.importlib, "import_module", lambda name: follow_as(name[25:]))
    said = []
    with following(["mlflow", "wandb"], run, said.append) as take:
        take({"round": 1})
        take({"round": 2})
    told = (
        "the tracker mlflow failed, and the run goes on without it: OSError: http://host/ is gone"
    )
    assert said == [told]
    assert boards["wandb"].rounds == [1, 2]
    with pytest.raises(KeyError), following(["wandb"], run, said.append):
        raise KeyError
    assert said == [told]


def test_tensorboard_has_every_number(run):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with following(["tensorboard"], run, print) as take:
        take(ROUND)
    events = EventAccumulator(str(run.run_dir / "tensorboard")).Reload()
    assert set(events.Tags()["scalars"]) == {"f1", "accepted", "clients/answered"}
    assert [(one.step, one.value) for one in events.Scalars("f1")] == [(1, 0.5)]


@pytest.mark.slow
def test_mlflow_has_settings_and_rounds_and_a_resumed_run_has_one_entry(run):
    pytest.importorskip("mlflow")
    pytest.importorskip("alembic")
    with following(["mlflow"], run, print) as take:
        take(ROUND)
    with suppress(KeyboardInterrupt), following(["mlflow"], run, print) as take:
        take({**ROUND, "f1": 0.9})  # written before
        take({**ROUND, "round": 2, "f1": 0.75})
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
    with following(["wandb"], run, print) as take:
        assert wandb.run.settings.mode == "offline"
        assert not wandb.env.error_reporting_enabled()  # which asks the network while offline, too
        assert dict(wandb.run.config) == {"seed": 3, "client.epochs": 2}
        take(ROUND)
        assert wandb.run.summary["f1"] == 0.5
    assert list(run.run_dir.glob("wandb/offline-run-*/*.wandb"))
