"""One page of an assessment to hand in, in the words of a data-protection impact assessment.

It is made of the redacted assessment and of counts, so it names no document, supplier or branch.
Its sections follow what article 35 (7) of the GDPR asks for, and what opinion 28/2024 of the EDPB
asks of models that were trained on personal data. docs/guides/assessing says what fedpriv does not
measure.
"""

from __future__ import annotations

from pathlib import Path

from fedpriv.privacy.views import face, rounded_up
from fedpriv.report.folder import partition_of
from fedpriv.report.redaction import stamp
from fedpriv.report.render import page
from fedpriv.runtime import run_files
from fedpriv.runtime.cache import json_digest
from fedpriv.runtime.run_folder import PLAN, RunFolder
from fedpriv.studies.assessing import assessment
from fedpriv.studies.assessing.advice import advice
from fedpriv.studies.assessing.assessed import NONE, Assessed
from fedpriv.studies.trials import RUNS
from fedpriv.threat.results import Table

BRIEF = "brief.html"
COMPUTING = ("fedpriv", "torch", "transformers", "flwr", "python")


def write_brief(folder: Path) -> Path:
    """Writes the page into an assessment's folder, and returns its path.

    Raises:
        ValueError: if it is not the folder of an assessment, or nothing was trained.
    """
    found, plan = assessment.read(folder, redacted=True), RunFolder(folder).read_json(PLAN)
    runs = [
        run_files.folder_inside(folder, f"{RUNS}/{one['run']}")
        for one in plan["trainings"]
        if one["defence"] == NONE
    ]
    known = ((one, dealt) for one in map(RunFolder, runs) if (dealt := partition_of(one)))
    run, dealt = next(known, (None, None))
    if run is None or dealt is None:
        raise ValueError(f"{folder}: nothing was trained without a defence: repeat fedpriv assess")
    config = run.config()
    versions, path = config.get("versions") or {}, str(config["model"]["_target_"])
    hands = dealt.clients.values()
    text = page(
        "brief.html.j2",
        found=found,
        rounds=config["rounds"],
        model=path.rpartition(".")[2] if path.startswith("fedpriv.") else "one of their own",
        clients=len(hands),
        suppliers=len({name for hand in hands for name in hand}),
        documents=sum(count for hand in hands for count in hand.values()),
        held_out=sum(dealt.test.values()),
        answer=found.answer(),
        advice=advice(found),
        defences=_defences(found),
        # Without what stands behind a plus, as in 2.8.0+cpu: a version is digits.
        versions=", ".join(
            f"{name} {stamp(str(versions.get(name)).partition('+')[0])}" for name in COMPUTING
        ),
        digest=json_digest(plan)[:16],
    )
    RunFolder(folder).write(BRIEF, text.encode("utf-8", "replace"))
    return folder / BRIEF


def _defences(found: Assessed) -> Table:
    """Returns what each defence does to each attack, what it costs, and what it promises."""
    told = []
    for row in found.rows:
        if row.refused:
            continue
        sizes = [size for size in row.epsilon.values() if size is not None]
        most = [auc for auc in row.ceiling.values() if auc is not None]
        state = f", {row.state}" if row.state else ""
        promised = f"{rounded_up(max(sizes))} for one {face(row.unit)}" if sizes else "nothing"
        told.append(
            (
                row.title,
                f"{row.utility}{state}" if row.utility else "—",
                promised,
                rounded_up(max(most), 3) if most else "—",
                *map(row.says, found.columns),
            )
        )
    bounds = ("ε, of the worst observer", "AUC of any attack, at most")
    return Table(("defence", found.metric, *bounds, *found.columns), tuple(told))
