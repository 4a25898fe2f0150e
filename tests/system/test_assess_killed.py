"""An assessment that is killed goes on where it was, and ends with the same numbers."""

import json
import time

import pytest
from processes import Forked, run, run_dir

WORDS = (
    "assess",
    "quickstart",
    "defences=[none,fl_provider_dp]",
    "attacks=[server_membership]",
    "seeds=1",
    "workers=2",
    "rounds=2",
    "data.source.providers=6",
    "data.source.documents_per_provider=4",
    "data.partition.clients=2",
    "privacy.providers=2",
    "privacy.entropy=seed",
)


def numbers(folder):
    """What was measured, without times and memory."""
    content = json.loads((folder / "assessment.json").read_text())
    return [
        (row["defence"], row["utility"], row["epsilon"], row["measured"], row["traffic"],
         [(c["attack"], c["verdict"], c["value"], c["interval"], c["runs"]) for c in row["cells"]])
        for row in content["rows"]
    ]  # fmt: skip


@pytest.mark.slow
def test_a_killed_assessment_goes_on(tmp_path):
    killed = Forked(*WORDS, "runs=killed", cwd=tmp_path)
    deadline = time.monotonic() + 600
    while not any(line.startswith("1 of 3") for line in killed.said().splitlines()):
        assert killed.poll() is None, killed.said()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    killed.kill()
    (place,) = (tmp_path / "killed" / "assess" / "quickstart").iterdir()
    assert not (place / "assessment.json").exists()
    done = {path: path.stat().st_mtime_ns for path in place.glob("runs/*/checkpoints/final*")}
    assert done

    status, out, err = run(*WORDS, "runs=killed", cwd=tmp_path)
    assert status == 0, err
    assert run_dir(out) == place.relative_to(tmp_path)
    assert done == {path: path.stat().st_mtime_ns for path in done}

    status, out, err = run(*WORDS, "runs=straight", cwd=tmp_path)
    assert status == 0, err
    assert numbers(tmp_path / run_dir(out)) == numbers(place)
