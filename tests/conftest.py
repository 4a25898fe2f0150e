"""Hypothesis tries new examples in every run, except in CI, which must not be red by luck.

`FEW=1` tries few of them: for another version of Python, where all are tried on one version. No
example has a deadline: how long one takes depends on who else uses the machine.

Encoded pages and pretrained weights go to a folder of the test session, not to the user's. Nothing
waits for the disk, which is half of the time of a run as small as these: real processes do.

Torch has one thread, as a client has: several would only wait for one another on models so small.
"""

import gc
import hashlib
import itertools
import os
from types import SimpleNamespace

os.environ.setdefault("OMP_NUM_THREADS", "1")  # torch reads it when it is imported first

import pytest
from hypothesis import HealthCheck, settings

untimed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("new", untimed)
settings.register_profile("ci", untimed, derandomize=True)
settings.register_profile("few", untimed, derandomize=True, max_examples=5)
settings.load_profile("few" if os.environ.get("FEW") else "ci" if os.environ.get("CI") else "new")


@pytest.fixture(scope="session", autouse=True)
def _of_the_session(tmp_path_factory):
    gc.collect()
    gc.freeze()  # so that no full collection looks through all modules and tests again
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDPRIV_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(os, "fsync", lambda file: None)
        yield


@pytest.fixture(autouse=True)
def _salts_by_test(request, monkeypatch):
    """Runs of one test have different salts, and a test has the same ones in every session."""
    numbers = itertools.count()

    def drawn(size):
        named = f"{request.node.nodeid} {next(numbers)}".encode()
        return hashlib.shake_256(named).hexdigest(size)

    monkeypatch.setattr("fedpriv.privacy.salt.secrets", SimpleNamespace(token_hex=drawn))


@pytest.fixture
def in_own_folder(tmp_path, monkeypatch):
    """Run folders go to a folder of this test."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def budget_untold(monkeypatch):
    """A run keeps its ledger and works out no ε, which has tests of its own and takes longer."""
    monkeypatch.setattr("fedpriv.federation.loop.statement", lambda ledger, spent: ledger.to_json())
