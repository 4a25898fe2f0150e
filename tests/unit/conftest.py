"""Fixtures that several files of unit tests share."""

import shutil

import pytest
from toy import federation

from fedpriv.report.build import write_report


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    """The folder of a finished run with a failed client; tests that write take a copy."""
    folder = tmp_path_factory.mktemp("run") / "run"
    federation({"1/0": "raise"}, clients=2).run(2, run_dir=folder)
    write_report(folder)
    return folder


@pytest.fixture
def copy(run, tmp_path):
    """A copy of the finished run."""
    return shutil.copytree(run, tmp_path / "run")
