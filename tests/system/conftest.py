"""One Ray for all tests of a file that ask for it."""

import pytest

from fedpriv.runtime.workers.ray_session import start_ray, stop_ray


@pytest.fixture(scope="module")
def one_ray():
    """A Ray for three workers, which federations and studies join instead of starting their own."""
    start_ray(3, {"num_cpus": 1.0}, None)
    yield
    stop_ray()
