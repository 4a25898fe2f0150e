"""The same apps on Flower's own simulation engine give the same bits.

Those on SuperLink and SuperNodes are compared where `docs/guides/flower.md` is followed.
"""

import subprocess
import sys
from pathlib import Path

import pytest
from processes import TOY, environment, run, run_dir

HERE = Path(__file__).parent
FINAL = "checkpoints/final.safetensors"


BANDED = TOY.replace("toy.yaml", "banded.yaml")
SIX = "strategy.sampling={_target_:fedpriv.privacy.sampling.FixedSize,count:6}"


def ours(cwd, *overrides, experiment=TOY):
    status, out, err = run("run", experiment, *overrides, cwd=cwd)
    assert status == 0, err
    return (cwd / run_dir(out) / FINAL).read_bytes()


def theirs(cwd):
    (folder,) = (cwd / "flower").glob("*/*")
    return (folder / FINAL).read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("experiment", "at", "more"),
    [(TOY, "2/3", [SIX]), (BANDED, "2/0/3", [])],
    ids=["six of eight", "private, masked, remembering"],
)
def test_flowers_simulation_engine(experiment, at, more, tmp_path):
    # Spaces separate overrides there, so what fails is written without.
    overrides = ["rounds=3", f"client.faults={{{at}:raise}}", "faults=dropout", "faults.at={3:[4]}"]
    overrides += more
    command = [sys.executable, str(HERE / "on_flower.py"), experiment, *overrides]
    command += [f"runs={tmp_path / 'flower'}"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert theirs(tmp_path) == ours(tmp_path, *overrides, experiment=experiment)
    assert "ACME" not in done.stdout
