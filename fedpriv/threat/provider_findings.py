"""What an attack on providers leaves in a run folder.

`findings/<attack>/`: `metrics.json`; `verdicts.json`, every provider's score and guess beside its
membership; `probes.json`, the questions that the pages do not answer and what the model said;
`exposure.json`, the rank of every canary's secret, but not the secret; and the attack's pictures.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from fedpriv.federation.membership_table import TrainingMembership
from fedpriv.runtime.run_folder import RunFolder
from fedpriv.threat.findings import cleared
from fedpriv.threat.membership_game import Judgement, Probe, Secret, Verdict
from fedpriv.threat.results import png
from fedpriv.threat.scoring.exposure import exposure, rank


def write_judgement(
    folder: RunFolder,
    name: str,
    metrics: Mapping[str, Any],
    judgement: Judgement,
    parts: Mapping[str, TrainingMembership],
) -> None:
    """Writes everything, in place of what an earlier attack of that name left.

    Args:
        folder: of the run.
        name: of the attack.
        metrics: for metrics.json.
        judgement: of the attack.
        parts: of each provider in the training.
    """
    place = cleared(folder, name)
    for file, picture in judgement.pictures.items():
        folder.write(f"{place}/{file}.png", png(picture))
    if judgement.verdicts:
        verdicts = [_verdict(verdict, parts) for verdict in judgement.verdicts]
        folder.write_json(f"{place}/verdicts.json", verdicts)
    if judgement.probes:
        folder.write_json(f"{place}/probes.json", [_probe(p, parts) for p in judgement.probes])
    if judgement.secrets:
        folder.write_json(f"{place}/exposure.json", [_secret(s, parts) for s in judgement.secrets])
    folder.write_json(f"{place}/metrics.json", metrics)


def _verdict(verdict: Verdict, parts: Mapping[str, TrainingMembership]) -> dict[str, Any]:
    trial = verdict.trial
    return {
        "classifier": verdict.classifier,
        "least_questions": trial.least_questions if trial else 0,
        "repeat": trial.repeat if trial else 0,
        "providers": list(verdict.providers),
        "member": [parts[provider].member for provider in verdict.providers],
        "scores": verdict.scores.tolist(),
        "guesses": verdict.guesses.tolist(),
        "clients": verdict.clients.tolist() if verdict.clients is not None else None,
    }


def _probe(probe: Probe, parts: Mapping[str, TrainingMembership]) -> dict[str, Any]:
    values = asdict(probe) | {"member": parts[probe.provider].member}
    return values | ({"confidence": None} if math.isnan(probe.confidence) else {})


def _secret(secret: Secret, parts: Mapping[str, TrainingMembership]) -> dict[str, Any]:
    return {
        "provider": secret.provider,
        "member": parts[secret.provider].member,
        "repeats": secret.repeats,
        "loss": secret.loss,
        "rank": rank(secret.loss, secret.references),
        "references": len(secret.references),
        "exposure": exposure(secret.loss, secret.references),
    }
