"""What the process's malloc keeps, measured in a process of its own by the kernel's count."""

import platform
import subprocess
import sys

import pytest
import torch
from torch import nn

from fedpriv.runtime.memory import LARGE_MODEL, is_large

MEASURED = """
import numpy as np
from fedpriv.runtime.memory import keep_large_blocks, release_free_blocks

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

before = resident()
keep_large_blocks()
blocks = [np.ones(2**20) for _ in range(40)]  # 8 MiB each
kept = blocks[::8]  # so that the others lie between blocks that live on
del blocks
held = resident()
release_free_blocks()
print(held - before, resident() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries are left alone")
def test_freed_blocks_are_kept_until_they_are_released():
    done = subprocess.run(
        [sys.executable, "-c", MEASURED], capture_output=True, text=True, check=True
    )
    held, released = map(int, done.stdout.split())
    assert held > 300 * 2**20  # all 40 blocks
    assert released < 80 * 2**20  # 5 blocks live on


def test_a_large_model_has_a_quarter_of_a_gibibyte_of_parameters():
    with torch.device("meta"):
        at, below = nn.Linear(1024, 2**16, bias=False), nn.Linear(1023, 2**16, bias=False)
    assert is_large(at)
    assert not is_large(below)
    assert LARGE_MODEL == 4 * 1024 * 2**16
