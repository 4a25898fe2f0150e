"""fedpriv: simulated federations of document models, and what they leak."""

__version__ = "0.1.0"
