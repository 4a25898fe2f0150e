"""All scorers: importing this module registers them."""

from fedpriv.threat.scoring import pages

__all__ = ["pages"]
