"""Who was trained on, of real receipts by company."""

import os
from pathlib import Path

import pytest

from fedpriv.attacks.membership.pmia import PMIA
from fedpriv.attacks.server_membership import ServerMembership
from fedpriv.clients.fedavg import LocalTraining
from fedpriv.data.partition import ByProvider, HoldOut
from fedpriv.data.readers.sroie import Sroie
from fedpriv.federation.dataset import DocumentData
from fedpriv.federation.loop import Federation
from fedpriv.models.vt5 import vt5
from fedpriv.runtime.run_folder import RunFolder
from fedpriv.strategies.fedavg import FedAvg
from fedpriv.threat.runner import run_attack_on
from fedpriv.threat.surfaces.held_out import KeepHeldOut, load_candidates
from fedpriv.threat.surfaces.server import KeepTranscript
from fedpriv.training.loops import Optimizer

ROOT = Path(os.environ.get("FEDPRIV_DATA", "")) / "open" / "sroie"

pytestmark = pytest.mark.skipif(
    "FEDPRIV_DATA" not in os.environ,
    reason="FEDPRIV_DATA is not set: the folder that holds open/sroie",
)


def shipped(labels=()):
    return vt5(pretrained="shipped", max_length=128)


def federation(runs, **source):
    return Federation(
        model=shipped,
        data=DocumentData(
            Sroie(ROOT, rescans="drop", **source),
            ByProvider(4),
            HoldOut(fraction=0.4, unseen=0.4),
        ),
        strategy=FedAvg(),
        client=LocalTraining(epochs=1, optimizer=Optimizer(lr=1e-3)),
        keep=[KeepTranscript(batches=False), KeepHeldOut()],
        runs=runs,
    )


@pytest.mark.slow
def test_second_scans_are_left_out_and_no_page_is_there_twice(tmp_path):
    found = federation(tmp_path).bound
    assert len(found.partition["skipped"]) == 4
    assert not KeepHeldOut().problems(found, 0)
    asked = {document.provider for document in found.suspects}
    members = {provider for provider in asked if found.parts[provider].member}
    assert len(asked) > 25
    assert members
    assert members != asked


@pytest.mark.slow
def test_companies_are_judged_on_receipts_that_nobody_trained_on(tmp_path):
    made = federation(tmp_path, splits=("test",))
    run_dir = made.run(1).run_dir
    kept = load_candidates(RunFolder(run_dir), tmp_path)
    trained = {document.id for document in made.bound.documents}
    assert not trained & {page.id for own in kept.documents.values() for page in own}
    for attack, settings in (
        (PMIA(memory_key="company"), {"min_questions": (0,), "repeats": 1}),
        (ServerMembership(), {}),
    ):
        result = run_attack_on(run_dir, attack, shipped, name="test", settings=settings)
        metrics = result.details
        assert result.status == "done"
        assert metrics["providers"] == len(kept.documents) > 5
        for numbers in metrics["classifiers"].values():
            assert 0 <= numbers["auc"] <= 1
            assert 0 < numbers["p_value"] <= 1
    assert metrics["classifiers"].keys() == {"server_update"}
