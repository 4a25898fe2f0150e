"""How many examples a property is tried on: more in `make test-all`, few with `FEW=1`."""

import os

from hypothesis import settings

THOROUGH = bool(os.environ.get("THOROUGH"))


def examples(usually, thoroughly=None, **more):
    """Returns Hypothesis' settings of a property that needs a number of its own."""
    count = thoroughly if thoroughly and THOROUGH else usually
    return settings(max_examples=5 if os.environ.get("FEW") else count, **more)
