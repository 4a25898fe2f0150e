"""Gradient inversion: pages that would have given the gradient that a client sent.

One engine (`engine.invert`); every published method is a setting of it (`presets`).
"""

from fedpriv.attacks.inversion.engine import invert
from fedpriv.attacks.inversion.method import Inversion
from fedpriv.attacks.inversion.objective import Objective

__all__ = ["Inversion", "Objective", "invert"]
