"""The batches behind messages are noted in the round and read when the run ends."""

import pytest
from toy import federation, weights

from fedpriv.clients.fedsgd import BatchGradient
from fedpriv.config import trust
from fedpriv.federation.round_statistics import TooFewClients
from fedpriv.runtime.progress import Progress
from fedpriv.runtime.run_folder import METRICS, PARTITION, RunFolder
from fedpriv.strategies.fedsgd import FedSGD
from fedpriv.threat.surfaces import server
from fedpriv.threat.surfaces.batches import Assumed, load_known, unread_rounds
from fedpriv.threat.surfaces.server import KeepTranscript
from fedpriv.threat.truth import ROWS, BatchesUnread, TruthStore


class Killed(Exception):
    """Stands for `kill -9` after a round."""


class KilledAfter(Progress):
    def __init__(self, last):
        self.last = last

    def round(self, record):
        if record["round"] == self.last:
            raise Killed


def watched(runs, **settings):
    parts = {"strategy": FedSGD(), "client": BatchGradient(3), "keep": [KeepTranscript()]}
    return federation(runs=runs, **{**parts, **settings})


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Four rounds that nothing has stopped."""
    return watched(tmp_path_factory.mktemp("whole")).run(4)


def stored(run_dir):
    return {
        path.relative_to(run_dir): path.read_bytes()
        for part in ("knowledge", "truth", "transcript")
        for path in (run_dir / part).rglob("*")
        if path.is_file()
    }


def killed(runs, after, **settings):
    with pytest.raises(Killed):
        watched(runs, **settings).run(4, progress=KilledAfter(after))
    return next((runs / "federation").iterdir())


def test_no_batch_is_read_before_the_last_round(tmp_path, monkeypatch):
    read, rounds = server.PrivatePages.read, []

    def counted(self, rows, rng):
        (run_dir,) = (tmp_path / "federation").iterdir()
        rounds.append(len((run_dir / METRICS).read_text().splitlines()))
        return read(self, rows, rng)

    monkeypatch.setattr(server.PrivatePages, "read", counted)
    watched(tmp_path).run(3)
    assert rounds == [3] * 3 * 8


def test_the_reading_is_told_round_by_round(tmp_path):
    class Told(Progress):
        def note(self, line):
            told.append(line)

    told = []
    watched(tmp_path).run(3, progress=Told())
    assert told[0] == "reading the batches behind the messages of 3 rounds"
    assert [line.partition("; about ")[0] for line in told[1:]] == [
        "batches of 1 of 3 rounds read",
        "batches of 2 of 3 rounds read",
    ]


@pytest.mark.parametrize("checkpoint_every", [1, 3])
def test_a_killed_run_leaves_the_same_once_it_is_resumed(whole, tmp_path, checkpoint_every):
    run_dir = killed(tmp_path / "killed", 2, checkpoint_every=checkpoint_every)
    assert unread_rounds(RunFolder(run_dir)) == [1, 2]
    trust.check_before_attack(RunFolder(run_dir))
    again = watched(tmp_path / "killed", checkpoint_every=checkpoint_every)
    resumed = again.run(4, run_dir=run_dir, resume=True)
    assert weights(resumed) == weights(whole)
    assert stored(run_dir) == stored(whole.run_dir)
    assert len(stored(run_dir)) > 4 * 8 * 2


def test_a_run_killed_after_its_last_round_is_made_whole(whole, tmp_path):
    run_dir = killed(tmp_path / "killed", 4)
    watched(tmp_path / "killed").run(4, run_dir=run_dir, resume=True)
    assert stored(run_dir) == stored(whole.run_dir)


def test_what_was_not_read_is_named_with_what_to_do(tmp_path):
    folder = RunFolder(killed(tmp_path, 2))
    for ask in (
        lambda: load_known(folder, (2, 0), Assumed()),
        lambda: TruthStore(folder).of((1, 0)),
    ):
        with pytest.raises(BatchesUnread, match=f"run `fedpriv resume {folder.path}` first"):
            ask()


def test_rows_of_other_data_are_not_read(tmp_path):
    run_dir = killed(tmp_path, 2)
    (run_dir / PARTITION).write_text('{"clients": {}}')
    with pytest.raises(ValueError, match=r"batches of rounds \[1, 2\] were read, and the data are"):
        watched(tmp_path).run(4, run_dir=run_dir, resume=True)


def test_rows_that_were_changed_are_not_resumed_from(tmp_path):
    run_dir = killed(tmp_path, 2)
    rows = run_dir / ROWS / "round-000001.jsonl"
    rows.write_text(rows.read_text().replace("0", "1"))
    with pytest.raises(trust.Untrusted, match=r"truth/rows/round-000001\.jsonl"):
        trust.check_before_resume(RunFolder(run_dir))


def test_a_run_that_gives_up_can_be_attacked_as_it_is(tmp_path):
    faults = {"1/2": "raise", "2/2": "raise"}
    with pytest.raises(TooFewClients):
        federation(
            faults, runs=tmp_path, keep=[KeepTranscript()], min_clients=8, max_refused=2
        ).run(4)
    (run_dir,) = (tmp_path / "federation").iterdir()
    assert load_known(RunFolder(run_dir), (2, 1), Assumed()).size == 13
