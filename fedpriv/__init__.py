"""fedpriv: simulated federations of document models, and what they leak.

What a script needs is here: `from fedpriv import Federation, FedAvg, run_attack`. The names stand
in `__init__.pyi`. Each is imported when it is first used, so that `import fedpriv` is quick.
"""

import os

import lazy_loader

# A privacy tool must not phone home. Flower reads its switch at import, Ray at start.
os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
# torch asks for large vectors in pages of 2 MB then, as NumPy does: a new one takes a fifth of the
# time. It looks at this before its first tensor.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")

__version__ = "0.2.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
