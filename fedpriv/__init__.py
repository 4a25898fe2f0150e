"""fedpriv: simulated federations of document models, and what they leak."""

import os

# A privacy tool must not phone home. Flower reads its switch at import, Ray at start.
os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

__version__ = "0.1.0"
