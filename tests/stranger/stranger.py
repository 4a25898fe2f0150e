"""Makes the machine unfriendly to tests: `PYTHONPATH=tests/stranger python -m pytest -p stranger`.

Home cannot be written, new files are open to everybody unless whoever makes them says otherwise,
and `sitecustomize.py` refuses sockets and pickles. `make test-hostile` adds another user, and a
checkout that this user cannot write.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest
import sitecustomize
from sitecustomize import LOG, TESTS, Refused, unpickles

assert sitecustomize.__file__ == str(Path(__file__).with_name("sitecustomize.py"))


def pytest_configure(config):
    folder = Path(tempfile.mkdtemp(prefix="stranger-"))
    config.add_cleanup(lambda: shutil.rmtree(folder))
    (folder / "home").mkdir(mode=0o500)
    (folder / "log").touch()
    for name in [name for name in os.environ if name.startswith("XDG_")]:
        del os.environ[name]
    os.environ["HOME"] = str(folder / "home")
    os.environ[LOG] = str(folder / "log")
    os.environ["PYTHONPATH"] = f"{Path(__file__).parent}:{TESTS.parent}"
    os.umask(0)


def pytest_runtest_protocol(item):
    sitecustomize.running = item.nodeid.partition("::")[0]


def pytest_runtest_setup():
    """Weights are read by an unpickler of torch's own, of plain values, which are not wanted."""
    torch = sys.modules.get("torch")
    if torch and not hasattr(torch.load, "__wrapped__"):
        torch.load = torch.serialization.load = unpickles(torch.load)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown():
    yield
    log = Path(os.environ[LOG])
    if refused := log.read_text("utf-8"):
        log.write_text("")
        raise Refused(refused)
