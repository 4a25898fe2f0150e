"""What an attack on scrubbed fields leaves in a run folder.

`findings/<attack>/`: `metrics.json`; `curves.json`, AccAt and HamAt over p; and `fields.json`, each
field with what was made of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fedpriv.runtime.run_folder import RunFolder
from fedpriv.threat.access import ScrubbedField
from fedpriv.threat.claims import PUBLIC
from fedpriv.threat.fields_game import Reconstructions, TrueField
from fedpriv.threat.findings import cleared
from fedpriv.threat.scoring.reconstructions import Case, cases_of, chosen

Texts = Callable[[Sequence[int]], str]


def write_reconstructions(
    folder: RunFolder,
    name: str,
    metrics: Mapping[str, Any],
    found: Reconstructions,
    fields: Sequence[ScrubbedField],
    truths: Mapping[int, TrueField],
    curves: Mapping[str, Any],
    texts: Texts,
    *,
    originals: bool,
) -> None:
    """Writes everything, in place of what an earlier attack of that name left.

    Args:
        folder: of the run.
        name: of the attack.
        metrics: for metrics.json.
        found: what the attack handed back.
        fields: what it was to attack.
        truths: by number of the field; a text is shown only if `originals`, or where the attack
            has found it anyway.
        curves: for curves.json.
        texts: turns token ids into text.
        originals: whether the true texts may be written.
    """
    cases = cases_of(found, fields, truths)
    place = cleared(folder, name)
    rows = [_row(case, found.membership, texts, originals) for case in cases]
    folder.write_json(f"{place}/fields.json", rows)
    folder.write_json(f"{place}/curves.json", curves)
    folder.write_json(f"{place}/metrics.json", metrics)


def _row(case: Case, by: str, texts: Texts, originals: bool) -> dict[str, Any]:
    one_shot, kept = case.found.attempts[0], chosen(case.found.attempts, by)
    of_public = case.found.baseline[0], chosen(case.found.baseline, PUBLIC)
    confidence = kept.confidence[by]
    row = {
        "document": case.field.document,
        "key": case.field.key,
        "length": len(case.truth.tokens),
        "one_shot": texts(one_shot.tokens),
        "one_shot_perfect": case.perfect(one_shot),
        "reconstruction": texts(kept.tokens),
        "perfect": case.perfect(kept),
        # JSON has no infinity.
        "confidence": confidence if math.isfinite(confidence) else None,
        "baseline_one_shot": texts(of_public[0].tokens),
        "baseline": texts(of_public[1].tokens),
    }
    shown = originals or row["perfect"] or row["one_shot_perfect"]
    return {**row, "truth": case.truth.text} if shown else row
