"""Defaults against one line of code each, on receipts: what loses to one is no default."""

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from attacked import attacked

from fedpriv.attacks.membership.features import LOG_RATIO, measured
from fedpriv.attacks.membership.pmia import PMIA, PMIAAccess
from fedpriv.attacks.server_membership import ServerMembership, ServerMembershipAccess
from fedpriv.attacks.text.attack import TextRecovery
from fedpriv.attacks.text.words_moved import moved, telling_table
from fedpriv.clients.fedavg import LocalTraining
from fedpriv.data.partition import ByProvider, HoldOut
from fedpriv.data.readers.sroie import Sroie
from fedpriv.federation.dataset import DocumentData
from fedpriv.federation.loop import Federation
from fedpriv.federation.settings import Settings
from fedpriv.models.layoutlmv3 import layoutlmv3
from fedpriv.models.vt5 import vt5
from fedpriv.privacy.sampling import FixedSize
from fedpriv.strategies.fedavg import FedAvg
from fedpriv.threat.attack import AttackContext
from fedpriv.threat.claims import MembershipScores
from fedpriv.threat.surfaces.held_out import KeepHeldOut
from fedpriv.threat.surfaces.server import KeepTranscript
from fedpriv.training.loops import Optimizer

DATA = os.environ.get("FEDPRIV_DATA")
pytestmark = [
    pytest.mark.skipif(not DATA, reason="needs FEDPRIV_DATA"),
    pytest.mark.slow,
]

SEEDS = (1, 2)
TAGGER = partial(layoutlmv3, task="tags", size="tiny")
MARGIN = 0.03
"""By how much a default may be below the best line on so few seeds."""


def trained(model, folder, seed=0, *, rounds, clients=6, keep=(), strategy=None, **test):
    """The run folder of a federation of companies, some of which nobody trains on."""
    federation = Federation(
        model=model,
        data=DocumentData(
            Sroie(Path(DATA) / "open" / "sroie", splits=("test",), rescans="drop"),
            ByProvider(clients),
            HoldOut(**test),
        ),
        strategy=strategy or FedAvg(),
        client=LocalTraining(epochs=1, optimizer=Optimizer(lr=1e-3)),
        keep=list(keep),
        seed=seed,
        runs=folder,
        settings=Settings(evaluate_every=rounds, report=False),
    )
    return federation.run(rounds).run_dir


def scores(values, name):
    """What one line says of each provider, as a claim."""
    guesses = np.zeros(len(values), np.int8)
    return MembershipScores(tuple(values), np.array([*values.values()], float), guesses, name)


@dataclass(frozen=True)
class Words:
    """The largest share of a provider's words whose rows a client's first update moves."""

    def run(self, access: ServerMembershipAccess, context: AttackContext) -> MembershipScores:
        model = access.architecture.build()
        table = telling_table(model)
        rows = [moved(upload.tensors, table) for upload in access.transcript.rounds[0].uploads]
        found = {}
        for name, pages in access.held_out.documents.items():
            examples = model.encode(pages)
            ids = np.unique(examples.column("input_ids")[examples.column("attention_mask") > 0])
            found[name] = max(own[ids].mean() for own in rows)
        return scores(found, "words")


@dataclass(frozen=True)
class Losses:
    """The final model's loss on a provider's questions, and its change, in three ways."""

    def run(self, access: PMIAAccess, context: AttackContext) -> tuple[MembershipScores, ...]:
        found = measured(
            access.held_out.documents, access.model, access.confidence, access.public.confidence
        )
        columns = {
            "loss": -found.columns["loss"],
            "log loss": -np.log(found.columns["loss"] + 1e-9),
            "loss drop": found.columns["loss_drop"],
            "log ratio": found.columns[LOG_RATIO],
        }
        return tuple(
            scores(dict(zip(found.providers, column, strict=True)), name)
            for name, column in columns.items()
        )


def aucs(runs, attacks, model, **settings):
    """The AUC of each classifier, a mean over runs."""
    found = {}
    for run in runs:
        for attack in attacks:
            result = attacked(run, attack, model, **settings)
            for name, number in result["numbers"].items():
                if "client" not in name:
                    found.setdefault(name, []).append(number["value"])
    return {name: np.mean(values) for name, values in found.items()}


def test_a_server_that_looks_for_companies(tmp_path):
    keep = [KeepTranscript(batches=False), KeepHeldOut()]
    test = {"fraction": 0.4, "unseen": 0.5}
    runs = [
        trained(TAGGER, tmp_path / f"{seed}", seed, rounds=1, keep=keep, **test) for seed in SEEDS
    ]
    lines = aucs(runs, [Words()], TAGGER)
    cosine = aucs(runs, [ServerMembership(statistic="cosine")], TAGGER)["server_update"]
    default = aucs(runs, [ServerMembership()], TAGGER)["server_update"]
    assert default > cosine
    assert default > lines["words"] - MARGIN


def test_who_asks_the_model_about_companies(tmp_path):
    model = partial(vt5, pretrained="shipped", max_length=128)
    test = {"fraction": 0.6, "unseen": 0.5}
    runs = [
        trained(model, tmp_path / f"{seed}", seed, rounds=2, keep=[KeepHeldOut()], **test)
        for seed in SEEDS
    ]
    lines = aucs(runs, [Losses()], model)
    found = aucs(runs, [PMIA(memory_key="company")], model, min_questions=(0,), repeats=2)
    assert found["log_ratio"] > max(lines.values()) - MARGIN
    assert found["log_ratio"] > found["apk"]


def test_a_server_that_sees_sums_of_clients(tmp_path):
    """The words of a sum are all its clients'; compared, they are those of one."""
    run = trained(
        TAGGER,
        tmp_path,
        rounds=3,
        clients=4,
        strategy=FedAvg(sampling=FixedSize(count=2)),
        keep=[KeepTranscript()],
        fraction=0.6,
    )
    result = attacked(run, TextRecovery(target="sums"), TAGGER)
    union = attacked(run, TextRecovery(target="aggregate"), TAGGER)
    assert result["words_named"] == 1
    assert result["words_alone"] > 0.5
    assert result["numbers"]["words_named"]["control"] < 0.5
    assert union["token_set_recall"] == 1  # of both clients together
