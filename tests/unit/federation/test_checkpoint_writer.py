"""Checkpoints are written while the next round trains: whole, in order, and never unnoticed."""

import errno
import multiprocessing
import os
import re
import signal
import threading
from pathlib import Path

import pytest
import torch
from test_federation_loop import Diary, crash, federation, lines, weights
from toy import Net
from toy_private import federation as private
from toy_private import provider_data

from fedpriv.clients.feam_dp import ExampleGradients
from fedpriv.config.trust import check_before_resume
from fedpriv.privacy.mechanism import example_gaussian
from fedpriv.runtime import run_files, verify
from fedpriv.runtime.run_folder import METRICS, RunFolder
from fedpriv.strategies.feam_dp import FeAmDP

pytestmark = pytest.mark.usefixtures("in_own_folder")

MOMENT = 30
"""Seconds until a test says that nobody came."""


def notices(round, begun):
    """Local training that sets an event when a round trains."""
    return Diary(lambda now, attempt, client: now == round and begun.set())


def writing(monkeypatch, name, before):
    """Has `before` called when the content of a file is about to be written."""
    write = run_files.write

    def watched(root, file, data):
        if file.endswith(name):
            before(Path(root) / file, data)
        write(root, file, data)

    monkeypatch.setattr(run_files, "write", watched)


def test_the_next_round_trains_while_a_checkpoint_is_written(monkeypatch):
    begun, waited = threading.Event(), []
    writing(monkeypatch, "round-000001.safetensors", lambda *_: waited.append(begun.wait(MOMENT)))
    result = federation(client=notices(2, begun)).run(3)
    assert waited == [True]
    assert weights(result) == weights(federation(client=Diary()).run(3))


def test_a_full_disk_ends_the_run_which_goes_on_when_there_is_room(monkeypatch, tmp_path):
    def full(path, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    with monkeypatch.context() as patched:
        writing(patched, "round-000002.safetensors", full)
        with pytest.raises(OSError, match=r"No space left.*round-000002\.safetensors") as caught:
            federation(client=Diary()).run(5, run_dir=tmp_path / "mine")
    assert caught.value.__notes__ == [f"go on with: fedpriv resume {tmp_path / 'mine'}"]
    assert len(lines(tmp_path / "mine" / METRICS)) <= 3  # noticed after the round that had begun
    resumed = federation(client=Diary()).run(5, run_dir=tmp_path / "mine", resume=True)
    assert weights(resumed) == weights(federation(client=Diary()).run(5))


def test_an_error_of_the_writer_is_told_beside_the_one_that_ends_the_run(monkeypatch, tmp_path):
    def full(path, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    writing(monkeypatch, "round-000002.safetensors", full)
    with pytest.raises(KeyboardInterrupt) as caught:
        federation(client=crash(in_round=3)).run(5, run_dir=tmp_path / "mine")
    told = " ".join(caught.value.__notes__)
    assert re.search(r"last checkpoint was not written: .*No space left.*round-000002", told)


def test_a_second_run_starts_from_the_same_bits_whatever_the_threads_around_it(tmp_path):
    before, made = torch.get_num_threads(), federation(model=Orthogonal)
    try:
        found = []
        for threads in (2, 1):
            torch.set_num_threads(threads)
            found.append(weights(made.run(1)))
    finally:
        torch.set_num_threads(before)
    assert found[0] == found[1]


class Orthogonal(Net):
    """Drawn by a decomposition, whose bits depend on the number of threads."""

    def __init__(self):
        super().__init__()
        self.large = torch.nn.Parameter(torch.empty(700, 700))
        torch.nn.init.orthogonal_(self.large)


def test_whatever_ends_the_run_the_last_checkpoint_is_written_to_its_end(monkeypatch, tmp_path):
    begun = threading.Event()
    writing(monkeypatch, "round-000002.safetensors", lambda *_: begun.wait(0.2))
    with pytest.raises(KeyboardInterrupt):
        federation(client=crash(in_round=3)).run(5, run_dir=tmp_path / "mine")
    assert RunFolder.existing(tmp_path / "mine").latest().round == 2


def test_killed_inside_a_write_the_run_goes_on_with_the_same_bits(monkeypatch, tmp_path):
    begun = threading.Event()

    def half(path, data):
        assert begun.wait(MOMENT)
        path.with_name(f".{path.name}.part").write_bytes(data[: len(data) // 2])
        os.kill(os.getpid(), signal.SIGKILL)

    def run():
        writing(monkeypatch, "round-000002.safetensors", half)
        federation(client=notices(3, begun)).run(5, run_dir=tmp_path / "mine")

    process = multiprocessing.get_context("fork").Process(target=run)
    process.start()
    process.join(MOMENT)
    assert process.exitcode == -signal.SIGKILL
    assert RunFolder.existing(tmp_path / "mine").latest().round == 1
    assert verify.check(tmp_path / "mine").problems() == []  # by its log, too
    check_before_resume(RunFolder.existing(tmp_path / "mine"))
    resumed = federation(client=Diary()).run(5, run_dir=tmp_path / "mine", resume=True)
    assert weights(resumed) == weights(federation(client=Diary()).run(5))


class Moves(FeAmDP):
    """Notes when round 2 has moved the model and the moments of its optimiser."""

    def moved(self, start, total):
        found = super().moved(start, total)
        self.rounds = getattr(self, "rounds", 0) + 1
        if self.rounds == 2:
            self.done.set()
        return found


@pytest.mark.usefixtures("budget_untold")
def test_a_checkpoint_is_what_it_was_when_its_round_ended(monkeypatch):
    """The optimiser goes on in place: its moments of round 1 must not be those of round 2."""
    mechanism = example_gaussian(clip_norm=1.0, examples=24, noise_multiplier=1.0)
    found = {}
    for strategy, rounds in ((FeAmDP(mechanism), 1), (Moves(mechanism), 2)):
        strategy.done = threading.Event()
        save = RunFolder.save

        def late(folder, checkpoint, *, keep, done=strategy.done, save=save, rounds=rounds):
            assert rounds == 1 or checkpoint.round == 2 or done.wait(MOMENT)
            save(folder, checkpoint, keep=keep)

        with monkeypatch.context() as patched:
            patched.setattr(RunFolder, "save", late)
            data = provider_data(2, 3)
            made = private(strategy, ExampleGradients(), data, keep_checkpoints=0)
            found[rounds] = RunFolder.existing(made.run(rounds).run_dir).checkpoint(1)
    assert found[1].strategy.keys() == found[2].strategy.keys() >= {"exp_avg", "exp_avg_sq"}
    for which in ("model", "strategy"):
        one, other = (getattr(found[rounds], which) for rounds in (1, 2))
        assert all(torch.equal(one[name], other[name]) for name in one)
