"""All scorers: importing this module registers them."""

from fedpriv.threat.scoring import (
    audit,
    exposure,
    memorisation,
    pages,
    providers,
    rankings,
    reconstructions,
)

__all__ = ["audit", "exposure", "memorisation", "pages", "providers", "rankings", "reconstructions"]
