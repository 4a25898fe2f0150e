"""What several of these files look at is read once in a session."""

import os
from pathlib import Path

import pytest

from fedpriv.data.readers.funsd import Funsd
from fedpriv.data.readers.sroie import Sroie


@pytest.fixture(scope="session")
def sroie():
    return Sroie(Path(os.environ["FEDPRIV_DATA"]) / "open" / "sroie").load()


@pytest.fixture(scope="session")
def funsd():
    return Funsd(Path(os.environ["FEDPRIV_DATA"]) / "restricted" / "funsd").load()
