"""Hypothesis tries new examples in every run, except in CI, which must not be red by luck."""

import os

from hypothesis import settings

settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")
