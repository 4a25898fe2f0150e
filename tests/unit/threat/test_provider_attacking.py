"""Attacks on providers, from a run's folder to scored findings: no pretrained model, no Ray."""

import gc
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from toy_answers import Chooser, Pages, chooser, federation

from fedpriv.cli.attack import in_words, parse
from fedpriv.config.experiment import Mistakes
from fedpriv.data.partition import HoldOut
from fedpriv.federation.membership_table import TrainingMembership
from fedpriv.metrics.answers import is_exact
from fedpriv.report.build import write_report
from fedpriv.runtime.run_folder import FINAL, RunFolder
from fedpriv.threat.attack import Capability
from fedpriv.threat.keep.held_out import KeepHeldOut
from fedpriv.threat.keep.transcript import KeepTranscript
from fedpriv.threat.membership_game import (
    MEMBER,
    NON_MEMBER,
    Judgement,
    Probe,
    ProviderAttack,
    Verdict,
)
from fedpriv.threat.provider_attacking import ProviderAttackRun
from fedpriv.threat.queries import GreyBox
from fedpriv.threat.truth import TruthStore


@dataclass(frozen=True)
class Accurate:
    """Whoever is answered well is a member."""

    requires: ClassVar[frozenset[Capability]] = frozenset({Capability.ANSWERS})

    def judge(self, access, suspects, bench):
        right = {
            provider: np.mean(
                [
                    is_exact(answer, question.answers)
                    for page, said in zip(pages, access.final.answers(pages), strict=True)
                    for question, answer in zip(page.questions, said, strict=True)
                ]
            )
            for provider, pages in suspects.documents.items()
        }
        scores = np.array(list(right.values()))
        guesses = np.where(scores > 0.5, MEMBER, NON_MEMBER).astype(np.int8)
        return Judgement((Verdict("accurate", tuple(right), scores, guesses),))


@dataclass(frozen=True)
class Nosy:
    """Hands its arguments to whoever wants to look at them."""

    seen: ClassVar[list] = []
    requires: ClassVar[frozenset[Capability]] = frozenset()

    def judge(self, access, suspects, bench):
        self.seen[:] = [access, suspects, bench]
        return Judgement()


@dataclass(frozen=True)
class Demanding:
    """Wants what it is told to want."""

    requires: frozenset[Capability]

    def judge(self, access, suspects, bench):
        return Judgement()


@dataclass(frozen=True)
class Coins:
    """Guesses the coins of the canaries, all of them in."""

    requires: ClassVar[frozenset[Capability]] = frozenset({Capability.ANSWERS})
    judges_canaries: ClassVar[bool] = True

    def judge(self, access, suspects, bench):
        names = tuple(suspects.documents)
        assert set(names) == suspects.canaries
        ones = np.ones(len(names))
        return Judgement((Verdict("coins", names, ones, ones.astype(np.int8)),))


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    made = federation(
        tmp_path_factory.mktemp("runs"), source=Pages(12, 4), keep=[KeepTranscript(), KeepHeldOut()]
    )
    return made.run(2).run_dir


def judged(run_dir, attack=None, **settings):
    attack = attack or Accurate()
    run = ProviderAttackRun(attack, settings.pop("name", "toy"), resamples=100, **settings)
    return run.on(run_dir, chooser)


def findings(run_dir, file, name="toy"):
    return json.loads((run_dir / "findings" / name / file).read_text())


def test_a_model_that_remembers_gives_its_providers_away(run_dir):
    metrics = judged(run_dir)
    numbers = metrics["classifiers"]["accurate"]
    assert metrics["status"] == "done"
    assert (numbers["auc"], numbers["accuracy"], numbers["n"]) == (1.0, 1.0, metrics["providers"])
    assert numbers["p_value"] < 0.05
    assert findings(run_dir, "metrics.json") == json.loads(json.dumps(metrics))


def test_verdicts_are_kept_beside_the_truth(run_dir):
    judged(run_dir)
    (verdict,) = findings(run_dir, "verdicts.json")
    parts = TruthStore(RunFolder(run_dir)).parts()
    assert verdict["member"] == [parts[p].member for p in verdict["providers"]]
    assert [score == 1.0 for score in verdict["scores"]] == verdict["member"]


def test_an_untrained_model_gives_nobody_away(tmp_path):
    metrics = judged(federation(tmp_path).run(0).run_dir)
    numbers = metrics["classifiers"]["accurate"]
    assert (numbers["auc"], numbers["balanced_accuracy"]) == (0.5, 0.5)
    assert numbers["p_value"] == 1.0


def reachable(things):
    """Returns every object that can be got at from these, short of modules and classes."""
    seen, left = {}, list(things)
    while left:
        thing = left.pop()
        if id(thing) in seen or isinstance(thing, type | type(np)):
            continue
        seen[id(thing)] = thing
        cells = getattr(thing, "__closure__", None) or ()
        left += [cell.cell_contents for cell in cells]
        if not callable(thing) or hasattr(thing, "__dict__") or hasattr(thing, "__self__"):
            left += [one for one in gc.get_referents(thing) if not isinstance(one, dict)]
            left += list(vars(thing).values()) if hasattr(thing, "__dict__") else []
            left += [*thing.keys(), *thing.values()] if isinstance(thing, dict) else []
    return list(seen.values())


def test_no_attack_on_providers_is_handed_the_truth_or_a_way_to_it(run_dir):
    judged(run_dir, Nosy())
    found = reachable(Nosy.seen)
    assert any(isinstance(thing, Chooser) for thing in found)  # the walk goes deep enough
    assert not [
        thing for thing in found if isinstance(thing, TrainingMembership | TruthStore | RunFolder)
    ]
    inside = str(run_dir.resolve())
    paths = [str(t.resolve()) for t in found if isinstance(t, Path)]
    assert paths
    assert not [path for path in paths if path.startswith(inside)]
    assert not [t for t in found if isinstance(t, str) and inside in t]


def test_a_black_box_gives_answers_only(run_dir):
    judged(run_dir, Nosy(), access="black_box", public_start=False)
    access = Nosy.seen[0]
    assert not isinstance(access.final, GreyBox)
    assert access.start is None
    assert Nosy.seen[1].start_model is None


@pytest.mark.parametrize(
    ("wanted", "settings", "says"),
    [
        (Capability.CONFIDENCE, {"access": "black_box"}, "access=black_box"),
        (Capability.PUBLIC_MODEL, {"public_start": False}, "public_start=False"),
        (Capability.MASKED_UPDATE, {}, "transcript holds none"),
        (Capability.MODEL_SERIES, {"rounds": (1,)}, "1 round was observed, and a series takes two"),
    ],
)
def test_what_is_not_granted_is_recorded_not_run(run_dir, wanted, settings, says):
    metrics = judged(run_dir, Demanding(frozenset({wanted})), **settings)
    assert metrics["status"] == "not_applicable"
    assert wanted.value in metrics["reason"]
    assert says in metrics["reason"]
    assert findings(run_dir, "metrics.json") == metrics


def test_without_an_observer_there_is_nothing_that_the_server_saw(tmp_path):
    run_dir = federation(tmp_path).run(1).run_dir
    metrics = judged(run_dir, Demanding(frozenset({Capability.CLIENT_UPDATE})))
    assert "keep=transcript" in metrics["reason"]


def test_a_run_is_attacked_from_its_folder_alone(run_dir, tmp_path):
    here = judged(run_dir)
    there = judged(Path(shutil.copytree(run_dir, tmp_path / "moved")))
    assert {**here, "seconds": 0} == {**there, "seconds": 0}


def test_findings_depend_on_the_seed_only(run_dir):
    assert judged(run_dir)["classifiers"] == judged(run_dir)["classifiers"]


def test_known_providers_are_half_members_and_not_judged(run_dir):
    judged(run_dir, Nosy(), known=0.5, least_questions=(0, 1, 30))
    parts = TruthStore(RunFolder(run_dir)).parts()
    trials = Nosy.seen[1].trials
    assert {t.repeat for t in trials} == set(range(5))
    assert {t.least_questions for t in trials} <= {0, 1}
    assert len({frozenset(t.known) for t in trials if t.least_questions == 0}) > 1
    for trial in trials:
        assert trial.known == {p: parts[p].member for p in trial.known}
        assert 2 * sum(trial.known.values()) == len(trial.known)
        assert not set(trial.known) & set(trial.unknown)


@pytest.mark.parametrize(("more_than", "least"), [(True, 3), (False, 2)])
def test_both_readings_of_s_are_offered(run_dir, more_than, least):
    judged(run_dir, Nosy(), least_questions=(2,), more_than=more_than)
    suspects = Nosy.seen[1]
    counts = {p: sum(len(d.questions) for d in own) for p, own in suspects.documents.items()}
    for trial in suspects.trials:
        assert {*trial.known, *trial.unknown} == {p for p, n in counts.items() if n >= least}


def test_what_cannot_be_asked_is_counted(tmp_path):
    source = Pages(12, 4, answers=("bo", ""))
    metrics = judged(federation(tmp_path, source=source).run(1).run_dir)
    assert metrics["left_out"]["questions without an accepted answer"] == metrics["questions"] > 0


def test_of_providers_that_nothing_can_be_asked_of_nobody_is_judged(tmp_path):
    run_dir = federation(tmp_path, source=Pages(12, 4, answers=("",))).run(1).run_dir
    with pytest.raises(ValueError, match="of 0 providers with questions"):
        judged(run_dir)


def test_a_run_that_was_cut_off_is_not_attacked(run_dir, tmp_path):
    copy = Path(shutil.copytree(run_dir, tmp_path / "cut"))
    (copy / FINAL).unlink()
    with pytest.raises(ValueError, match="has not come to its end"):
        judged(copy)


def test_another_model_is_not_attacked(run_dir):
    run = ProviderAttackRun(Accurate(), "toy")

    class Other(Chooser):
        def __init__(self):
            super().__init__()
            self.more = self.weights

    with pytest.raises(ValueError, match="of another model"):
        run.on(run_dir, lambda labels=(): Other())


def test_probes_are_kept_and_scored(run_dir):
    class Remembers:
        requires: ClassVar[frozenset[Capability]] = frozenset()

        def judge(self, access, suspects, bench):
            return Judgement(
                probes=tuple(
                    Probe("removed", p, "d", "name", "Who?", ("bo",), "bo", float("nan"), False)
                    for p in suspects.documents
                ),
                pictures={"page": np.zeros((4, 4, 3), np.uint8)},
            )

    metrics = judged(run_dir, Remembers())
    assert metrics["memorisation"]["removed"]["final"]["name"]["members"]["accuracy"] == 1.0
    first, *_ = findings(run_dir, "probes.json")
    assert (first["answer"], first["confidence"]) == ("bo", None)
    assert (run_dir / "findings" / "toy" / "page.png").is_file()


def test_an_audit_is_of_canaries_and_nobody_else(tmp_path):
    canaries = Pages(30, 1, first=100)
    made = federation(tmp_path, source=Pages(12, 4), canaries=canaries)
    run_dir = made.run(1).run_dir
    metrics = judged(run_dir, Coins())
    members = sum(p.member for p in made.bound.parts.values() if p.canary)
    assert (metrics["canaries"], metrics["guesses"], metrics["right"]) == (30, 30, members)
    assert metrics["epsilon_lower"] == 0.0
    judged(run_dir, Nosy())
    assert not [p for p in Nosy.seen[1].documents if p.startswith("canary")]


def test_an_audit_is_told_no_coin(tmp_path):
    class NosyCoins(Nosy):
        judges_canaries: ClassVar[bool] = True

    made = federation(tmp_path, source=Pages(12, 4), canaries=Pages(30, 1, first=100))
    with pytest.raises(ValueError, match="one verdict, not 0"):
        judged(made.run(1).run_dir, NosyCoins())
    assert Nosy.seen[1].trials == ()


def test_without_canaries_there_is_no_audit(run_dir):
    with pytest.raises(ValueError, match="no canaries"):
        judged(run_dir, Coins())


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ({"name": "../x"}, "name of a folder"),
        ({"access": "white_box"}, "'grey_box' or 'black_box'"),
        ({"known": 1.0}, "between 0 and 1"),
        ({"repeats": 0}, "at least 1"),
        ({"least_questions": (5, 0)}, "ascending"),
        ({"confidence": 95}, "between 0 and 1"),
    ],
)
def test_settings_are_checked(setting, says):
    with pytest.raises(ValueError, match=says):
        ProviderAttackRun(**{"attack": Accurate(), "name": "toy", **setting})


def test_held_out_documents_of_nobody_seen_are_refused_at_the_attack(tmp_path):
    held = HoldOut(fraction=0)
    run_dir = federation(tmp_path, test=held, canaries=Pages(10, 1, first=100)).run(1).run_dir
    with pytest.raises(ValueError, match="attack=audit judges them"):
        judged(run_dir)


# --- The command ---------------------------------------------------------------------------------


def test_the_command_knows_both_kinds_of_attack():
    run, name = parse(["attack=pmia", "access=black_box", "least_questions=[0]"])
    assert isinstance(run, ProviderAttackRun)
    assert isinstance(run.attack, ProviderAttack)
    assert (name, run.access, run.least_questions) == ("pmia", "black_box", (0,))


def test_an_attack_of_the_users_own_is_named_by_its_path():
    run, name = parse([f"attack={__name__}.Accurate", "name=mine"])
    assert isinstance(run, ProviderAttackRun)
    assert name == "mine"


def test_a_setting_of_the_other_kind_is_a_mistake():
    with pytest.raises(Mistakes, match="originals"):
        parse(["attack=pmia", "originals=true"])


def test_the_table_is_shown_and_reported(run_dir):
    lines = in_words(judged(run_dir))
    assert any(line.startswith("accurate") for line in lines)
    assert "accurate" in write_report(run_dir).read_text("utf-8")
