"""Who was trained on: real federations of VT5-tiny, judged from their run folders."""

from dataclasses import dataclass

import pytest

from fedpriv.attacks.membership.pmia import PMIA
from fedpriv.attacks.memorisation.attack import Memorisation
from fedpriv.attacks.one_run_audit import Audit, LossScore
from fedpriv.attacks.provider_lira import ProviderLiRA
from fedpriv.attacks.server_membership import ServerMembership
from fedpriv.clients.fedavg import LocalTraining
from fedpriv.clients.fl_provider_dp import ProviderUpdates
from fedpriv.data.generated.invoices import Invoices
from fedpriv.data.partition import ByProvider, HoldOut
from fedpriv.federation.dataset import DocumentData
from fedpriv.federation.loop import Federation
from fedpriv.federation.secagg.masking import Masking
from fedpriv.models.vt5 import vt5
from fedpriv.privacy.mechanism import Budget, provider_gaussian
from fedpriv.runtime.run_folder import RunFolder
from fedpriv.strategies.fedavg import FedAvg
from fedpriv.strategies.fl_provider_dp import FLProviderDP
from fedpriv.threat.runner import run_attack_on
from fedpriv.threat.surfaces.held_out import KeepHeldOut
from fedpriv.threat.surfaces.server import KeepTranscript
from fedpriv.threat.truth import TruthStore
from fedpriv.training.loops import Optimizer

ADAMW = Optimizer(lr=1e-3)
FEDAVG = (FedAvg(), LocalTraining(epochs=2, batch_size=8, optimizer=ADAMW))


def shipped(labels=()):
    return vt5(pretrained="shipped", max_length=160)


@dataclass(frozen=True)
class Budgeted:
    """FL-PROVIDER-DP that holds ε against whoever sees the global models."""

    epsilon: float
    rounds: int

    def halves(self):
        mechanism = provider_gaussian(
            clip_norm=0.5,
            providers=3,
            client_rate=1.0,
            client_sampling="fixed",
            budget=Budget(self.epsilon, rounds=self.rounds),
        )
        return FLProviderDP(mechanism), ProviderUpdates(steps=1, optimizer=ADAMW)


def trained(runs, halves=FEDAVG, *, rounds=2, masking=None, **data):
    strategy, client = halves
    source = data.pop("source", Invoices(32, 4, questions=("provider",)))
    held = data.pop("test", HoldOut(fraction=0.5, unseen=0.5))
    federation = Federation(
        model=shipped,
        data=DocumentData(source, ByProvider(4), held, **data),
        strategy=strategy,
        client=client,
        masking=masking,
        keep=[KeepTranscript(batches=False), KeepHeldOut()],
        runs=runs,
    )
    return federation.run(rounds).run_dir


def judged(run_dir, attack, **settings):
    return run_attack_on(run_dir, attack, shipped, name="test", settings=settings)


ALL = {"min_questions": (0,), "repeats": 2}


@pytest.fixture(scope="module")
def memorising(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("runs"))


def scores_of(run_dir):
    (verdict,) = RunFolder(run_dir).read_json("findings/test/verdicts.json", list)
    return dict(zip(verdict["providers"], verdict["scores"], strict=True)), verdict


@pytest.mark.slow
def test_a_server_knows_who_holds_whom_and_misses_who_is_left_out(memorising, tmp_path):
    numbers = judged(memorising, ServerMembership()).details["classifiers"]["server_update"]
    assert numbers["auc"] > 0.85
    assert numbers["p_value"] < 0.01
    assert numbers["clients_right"] > 0.5  # of four clients
    before, verdict = scores_of(memorising)
    pairs = zip(verdict["providers"], verdict["member"], strict=True)
    members = [provider for provider, member in pairs if member]
    found = max(members, key=before.get)
    without = trained(tmp_path, leave_out=(found,))
    assert not TruthStore(RunFolder(without)).parts()[found].member
    judged(without, ServerMembership())
    after, verdict = scores_of(without)
    others = [
        after[p] for p, m in zip(verdict["providers"], verdict["member"], strict=True) if not m
    ]
    assert before[found] > max(others)
    assert after[found] <= max(others)


@pytest.mark.slow
def test_an_untrained_model_gives_nobody_away(tmp_path):
    run_dir = trained(tmp_path, rounds=0)
    for attack in (PMIA(), ProviderLiRA(references=4, steps=5)):
        metrics = judged(run_dir, attack, repeats=1).details
        assert metrics["classifiers"]
        beside = [
            name
            for name, numbers in metrics["classifiers"].items()
            if not holds_chance(numbers["interval"]["balanced_accuracy"])
        ]
        # Ten classifiers with 95 % intervals: one or two may miss, being of the same features.
        assert len(beside) <= 2, beside
        for name, numbers in metrics["classifiers"].items():
            assert numbers["p_value"] > 0.02, name


def holds_chance(interval):
    low, high = interval
    return low <= 0.5 <= high


@pytest.mark.slow
def test_outside_and_inside_attacks_write_what_others_rely_on(memorising):
    metrics = judged(memorising, PMIA(), **ALL).details
    assert {"azk", "apk", "cls1", "cls2", "azk_ensemble"} <= metrics["classifiers"].keys()
    for numbers in metrics["classifiers"].values():
        assert {
            *("n", "prior", "accuracy", "balanced_accuracy", "auc", "tpr_at_fpr", "interval"),
            "p_value",
        } <= numbers.keys()
    told = judged(memorising, PMIA(), access="black_box", public_start=False, **ALL)
    assert "apk" in told.not_applicable
    remembering = Memorisation(keys=("provider",), documents_per_provider=1)
    remembered = run_attack_on(memorising, remembering, shipped, name="test")
    assert remembered.details["memorisation"]["removed"]["final"]["provider"]["members"]["n"] > 0


# --- Audits --------------------------------------------------------------------------------------

CANARIES = Invoices(40, 1, questions=("provider",), seed=1000)
FEW = Invoices(4, 1, questions=("provider",))


def audited(runs, halves=FEDAVG, **more):
    return trained(runs, halves, source=FEW, canaries=CANARIES, test=HoldOut(fraction=0), **more)


@pytest.mark.slow
def test_without_privacy_an_audit_shows_an_epsilon(tmp_path):
    run_dir = audited(tmp_path)
    metrics = judged(run_dir, Audit(ServerMembership())).details
    assert metrics["canaries"] == 40
    assert metrics["guesses"] == 30
    assert 0.5 < metrics["epsilon_lower"] <= metrics["epsilon_ceiling"]
    assert metrics["epsilon_claimed_provider"]["server_plain"] == "inf"
    assert metrics["violated"] is False
    assert judged(run_dir, Audit(LossScore())).details["view"] == "global"


@pytest.mark.slow
def test_under_provider_privacy_no_audit_is_above_the_ledger(tmp_path):
    run_dir = audited(tmp_path, Budgeted(1.0, rounds=2).halves(), masking=Masking())
    assert judged(run_dir, Audit(ServerMembership())).refused
    for attack in (Audit(ServerMembership("series", statistic="cosine")), Audit(LossScore())):
        metrics = judged(run_dir, attack).details
        assert metrics["violated"] is False
        assert metrics["epsilon_lower"] <= metrics["epsilon_claimed_provider"]["global"]
        assert metrics["epsilon_claimed_provider"]["global"] == pytest.approx(1.0, rel=0.05)
        (numbers,) = metrics["classifiers"].values()
        low, _ = numbers["interval"]["auc"]
        assert low < 0.6  # near chance
