"""`fedpriv audit`: the mechanism of an experiment or a run, measured against its ledger."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from fedpriv.cli import completion
from fedpriv.cli.command import Command, trust
from fedpriv.runtime.refusals import Mistakes


@click.command(
    "audit",
    cls=Command,
    epilog="""
        fedpriv audit quickstart strategy=fl_provider_dp privacy.epsilon=4
        fedpriv audit pried_kie_feam_dp masking=on --runs 16
        fedpriv audit RUN_DIR --json
    """,
)
@click.argument(
    "name",
    metavar="EXPERIMENT_OR_RUN_DIR",
    shell_complete=completion.experiments,
    help="An experiment of `fedpriv list`, a YAML file, or the folder of a run.",
)
@click.argument(
    "overrides",
    nargs=-1,
    metavar="[KEY=VALUE]...",
    shell_complete=completion.experiment_settings,
    help="Settings of an experiment, as for `fedpriv run`.",
)
@click.option(
    "--canaries",
    type=click.IntRange(1 << 10, 1 << 22),
    metavar="N",
    help="Canaries in each run; by default as many as some seconds allow, 524288 at most.",
)
@click.option(
    "--runs",
    type=click.IntRange(1, 1000),
    default=1,
    metavar="N",
    help="Runs of the mechanism, whose canaries are pooled (default 1). Counting needs millions.",
)
@click.option(
    "--confidence",
    type=click.FloatRange(0.5, 1, max_open=True),
    default=0.95,
    metavar="P",
    help="Confidence of each bound (default 0.95).",
)
@click.option(
    "--left-out",
    type=click.IntRange(0),
    default=3,
    metavar="N",
    help="Suppliers that are left out of the data, each by itself, to compare real sums; 0 skips.",
)
@click.option("--json", "in_json", is_flag=True, help="Print JSON.")
@trust
def command(
    name: str,
    overrides: tuple[str, ...],
    canaries: int | None,
    runs: int,
    confidence: float,
    left_out: int,
    in_json: bool,
    trust: bool,
) -> int:
    """Measure the epsilon of a private mechanism, and compare it with the ledger.

    Canaries go through the experiment's own strategy, client half, sampling, noise and masking.
    What an observer sees of them gives lower bounds on epsilon. Some providers are left out of the
    data, and what that changes in the clients' sums is compared with what the ledger counts. The
    exit status is 1 if a bound is above what the ledger says, or if the canaries were not seen as
    they must be.
    """
    from fedpriv.config import composing
    from fedpriv.runtime.run_folder import CONFIG, REPORT, RunFolder

    folder = RunFolder.existing(name) if (Path(name) / CONFIG).is_file() else None
    if folder and overrides:
        told = ", ".join(overrides)
        raise Mistakes(name, [f"{told}: a run has its settings; audit an experiment"])
    if not folder:
        composing.check(name, overrides)
    from fedpriv.config import experiment
    from fedpriv.config.trust import check_before_resume
    from fedpriv.federation.audit.mechanism import audit_mechanism, audit_problems
    from fedpriv.report.build import write_report
    from fedpriv.studies.trials import to_stderr
    from fedpriv.threat.mechanism import keep_audit

    if folder and not trust:
        check_before_resume(folder, ())
    config = folder.config() if folder else experiment.load(name, overrides)
    parts = experiment.build(config, name, overrides)
    federation = parts.assemble(config)
    if problems := audit_problems(federation):
        raise Mistakes(name, problems)
    audit = audit_mechanism(
        federation,
        parts.rounds,
        axes=canaries,
        runs=runs,
        confidence=confidence,
        left_out=left_out,
        tell=to_stderr,
    )
    if folder:
        keep_audit(folder, audit)
        if folder.has(REPORT):
            write_report(folder.path)
    if in_json:
        alarms = {"contradicted": audit.contradicted, "blind": audit.blind}
        print(json.dumps({**asdict(audit), **alarms}, indent=2))
    else:
        for line in audit.lines():
            print(line)
    return 1 if audit.contradicted or audit.blind else 0
