"""The same apps on Flower's own simulation engine give the same bits.

Those on SuperLink and SuperNodes are compared where `docs/guides/flower.md` is followed.
"""

import subprocess
import sys

import pytest
from processes import TESTS, environment, run, run_dir

SYSTEM = TESTS / "system"
FINAL = "checkpoints/final.safetensors"


@pytest.mark.slow
def test_flowers_simulation_engine(tmp_path):
    """A private, masked strategy whose clients remember; one fails, and another is not asked."""
    # Spaces separate overrides there, so what fails is written without.
    overrides = ["rounds=3", "client.faults={2/0/3:raise}", "faults=dropout", "faults.at={3:[4]}"]
    overrides = [str(SYSTEM / "banded.yaml"), *overrides]
    command = [sys.executable, str(SYSTEM / "on_flower.py"), *overrides]
    command += [f"runs={tmp_path / 'flower'}"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    status, out, err = run("run", *overrides, cwd=tmp_path)
    assert status == 0, err
    (theirs,) = (tmp_path / "flower").glob("*/*")
    assert (theirs / FINAL).read_bytes() == (tmp_path / run_dir(out) / FINAL).read_bytes()
    assert "ACME" not in done.stdout
