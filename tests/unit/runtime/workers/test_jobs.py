"""Many jobs on a few workers: results by name, and what failures cost."""

import re

import pytest
from jobs_for_workers import Unreadable, hopeless, square

from fedpriv.runtime.workers.jobs import RETRIES, JobsFailed, Pool
from fedpriv.runtime.workers.ray_session import RaySettings


@pytest.fixture
def said():
    return []


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_every_job_has_its_result_and_workers_stay(workers, said):
    jobs = {f"job {n}": (n, "") for n in range(7)}
    done = Pool(workers, RaySettings(), said.append).map(square, jobs)
    assert {name: result for name, (result, _) in done.items()} == {
        f"job {n}": n**2 for n in range(7)
    }
    assert len({pid for _, pid in done.values()}) <= max(1, workers)
    assert sorted(re.sub(r"^\d of 7: |;.*", "", line) for line in said) == [
        f"job {n} done" for n in range(7)
    ]


def test_the_time_left_counts_what_other_workers_have_begun(said, monkeypatch):
    """Six jobs of a minute each, two at a time."""
    ends = {f"job {n}": 60.0 * (n // 2 + 1) for n in range(6)}
    clock = iter([0.0, *ends.values()])
    monkeypatch.setattr("fedpriv.runtime.workers.jobs.time.monotonic", lambda: next(clock))
    monkeypatch.setattr(Pool, "_done", lambda self, f, jobs: ((name, 0, None) for name in jobs))
    Pool(2, RaySettings(), said.append).map(square, ends)
    left = [int(re.search(r"about (\d+) s left", line)[1]) for line in said]
    true = [180.0 - end for end in ends.values()]
    assert left[-1] == 0
    assert all(0.5 * at <= found <= 2 * at for found, at in zip(left[:4], true[:4], strict=True))


def test_a_job_whose_worker_was_killed_is_done_again(said, tmp_path):
    jobs = {"dies": (5, str(tmp_path)), "lives": (6, "")}
    done = Pool(2, RaySettings(), said.append).map(square, jobs)
    assert [done[name][0] for name in jobs] == [25, 36]
    assert (tmp_path / "5").read_text() == "xxx"


@pytest.mark.parametrize("workers", [0, 2])
def test_errors_are_told_when_all_others_are_done(workers, said):
    jobs = {"wrong": (-1, ""), "right": (2, ""), "also wrong": (-2, "")}
    with pytest.raises(JobsFailed, match="2 jobs failed; all others are done") as failed:
        Pool(workers, RaySettings(), said.append).map(square, jobs)
    assert failed.value.reasons == {
        "wrong": "ValueError: -1 is negative",
        "also wrong": "ValueError: -2 is negative",
    }
    assert len(said) == 3


def test_a_job_that_kills_every_worker_is_given_up(said):
    with pytest.raises(JobsFailed) as failed:
        Pool(2, RaySettings(), said.append).map(hopeless, {"a": 1})
    times = RETRIES + 1
    assert failed.value.reasons == {
        "a": f"its process has ended {times} times: it ended with status 1"
    }


def test_a_job_that_a_worker_cannot_read_says_why(said):
    with pytest.raises(JobsFailed) as failed:
        Pool(1, RaySettings(), said.append).map(square, {"a": Unreadable(), "b": (2, "")})
    assert failed.value.reasons == {"a": "ModuleNotFoundError: No module named 'no_such_module'"}
    assert len(said) == 2
