"""Hypothesis tries new examples in every run, except in CI, which must not be red by luck.

`FEW=1` tries few of them: for another version of Python, where all are tried on one version.

Encoded pages and pretrained weights go to a folder of the test session, not to the user's.
"""

import os

import pytest
from hypothesis import settings

settings.register_profile("ci", derandomize=True)
settings.register_profile("few", derandomize=True, max_examples=5)
if os.environ.get("FEW"):
    settings.load_profile("few")
elif os.environ.get("CI"):
    settings.load_profile("ci")


@pytest.fixture(scope="session", autouse=True)
def _cache_of_the_session(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDPRIV_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
