"""The result of an audit of a run's mechanism, in the shape of what attacks find."""

from __future__ import annotations

import math
from dataclasses import asdict

from fedpriv.federation.audit.mechanism import ASSUMES, Audit
from fedpriv.privacy.views import face, rounded_up
from fedpriv.runtime.run_folder import AUDIT, RunFolder
from fedpriv.threat.results import (
    CANNOT_TELL,
    LEAK,
    NONE_SHOWN,
    Number,
    Result,
    Table,
    write_result,
)


def as_result(audit: Audit) -> Result:
    """Returns an audit as a result: a leak where a bound is above what the ledger says."""
    rows = tuple(
        (
            view.replace("_", " "),
            rounded_up(found.ledger, 3),
            *(_down(bound) for bound in (found.sigma_fit, found.count, found.one_run)),
            f"{found.releases}",
            f"{found.canaries}",
        )
        for view, found in audit.views.items()
    )
    headings = ("view", "ledger", "σ-fit", "counting", "one run", "releases", "canaries")
    note = (
        f"Lower bounds on ε of one {face(audit.unit)} at δ = {audit.delta:g}, each with "
        f"{audit.confidence:.0%} confidence, beside the ledger's ε of a client that was in so many "
        "releases"
    )
    numbers = {
        f"epsilon_lower_{view}": Number(
            found.sigma_fit, (found.sigma_fit, math.inf), found.canaries, "canary", found.ledger
        )
        for view, found in audit.views.items()
    }
    return Result(
        "mechanism audit",
        "; ".join(audit.lines()),
        details=asdict(audit),
        tables=(Table(headings, rows, "The mechanism, measured", note, public=True),),
        notes=tuple(f"{bound}: it assumes that {what}" for bound, what in ASSUMES.items()),
        verdict=LEAK if audit.contradicted else CANNOT_TELL if audit.blind else NONE_SHOWN,
        primary=next(iter(numbers)),
        numbers=numbers,
        public=True,
    )


def keep_audit(folder: RunFolder, audit: Audit) -> None:
    """Writes an audit among the findings of a run, in place of an earlier one."""
    settings = {"runs": audit.runs, "confidence": audit.confidence}
    with folder.writing("audit", settings, AUDIT):
        write_result(folder, AUDIT, as_result(audit))


def _down(epsilon: float) -> str:
    """Returns a lower bound as text, never above it."""
    return f"{math.floor(epsilon * 1000) / 1000:.3f}"
