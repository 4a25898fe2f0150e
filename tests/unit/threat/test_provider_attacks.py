"""Attacks on providers, from a run's folder to scored findings: no pretrained model, no Ray."""

import gc
import json
import math
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from toy_answers import Chooser, Pages, chooser, federation

from fedpriv.config.attack import parse
from fedpriv.data.partition import HoldOut
from fedpriv.federation.membership_table import TrainingMembership
from fedpriv.metrics.answers import is_exact
from fedpriv.report import render
from fedpriv.runtime.run_folder import FINAL, RunFolder
from fedpriv.threat.access import (
    Architecture,
    BlackBox,
    GreyBox,
    HeldOutDocuments,
    PlantedCanaries,
    PublicModel,
    Transcript,
)
from fedpriv.threat.attack import AttackContext
from fedpriv.threat.claims import (
    MEMBER,
    NON_MEMBER,
    CanaryGuesses,
    MembershipScores,
    MemorisationProbe,
)
from fedpriv.threat.results import CANNOT_TELL, LEAK
from fedpriv.threat.runner import run_attack_on
from fedpriv.threat.surfaces.held_out import KeepHeldOut
from fedpriv.threat.surfaces.server import KeepTranscript
from fedpriv.threat.truth import TruthStore


@dataclass(frozen=True)
class Answers:
    model: BlackBox
    held_out: HeldOutDocuments


@dataclass(frozen=True)
class Everything:
    model: BlackBox
    architecture: Architecture
    held_out: HeldOutDocuments
    confidence: GreyBox | None
    public: PublicModel | None
    transcript: Transcript | None


@dataclass(frozen=True)
class Coin:
    canaries: PlantedCanaries


@dataclass(frozen=True)
class Confidence:
    model: GreyBox
    held_out: HeldOutDocuments


@dataclass(frozen=True)
class Start:
    public: PublicModel
    held_out: HeldOutDocuments


@dataclass(frozen=True)
class Server:
    transcript: Transcript
    held_out: HeldOutDocuments


@dataclass(frozen=True)
class Accurate:
    """Whoever is answered well is a member."""

    def run(self, access: Answers, context: AttackContext) -> MembershipScores:
        right = {
            provider: np.mean(
                [
                    is_exact(answer, question.answers)
                    for page, said in zip(pages, access.model.answers(pages), strict=True)
                    for question, answer in zip(page.questions, said, strict=True)
                ]
            )
            for provider, pages in access.held_out.documents.items()
        }
        scores = np.array(list(right.values()))
        guesses = np.where(scores > 0.5, MEMBER, NON_MEMBER).astype(np.int8)
        return MembershipScores(tuple(right), scores, guesses, "accurate")


@dataclass(frozen=True)
class Nosy:
    """Hands its arguments to whoever wants to look at them."""

    seen: ClassVar[list] = []
    access_type: type = Everything

    def run(self, access, context) -> tuple[MembershipScores, ...]:
        self.seen[:] = [access, context]
        return ()


@dataclass(frozen=True)
class Coins:
    """Guesses the coins of the canaries, all of them in."""

    times: int = 1

    def run(self, access: Coin, context: AttackContext) -> tuple[CanaryGuesses, ...]:
        assert access.canaries.splits == ()
        names = tuple(access.canaries.documents)
        ones = np.ones(len(names))
        guesses = MembershipScores(names, ones, ones.astype(np.int8), "coins")
        return (CanaryGuesses(guesses),) * self.times


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    made = federation(
        tmp_path_factory.mktemp("runs"), source=Pages(12, 4), keep=[KeepTranscript(), KeepHeldOut()]
    )
    return made.run(2).run_dir


def judged(run_dir, attack=None, **settings):
    return run_attack_on(run_dir, attack or Accurate(), chooser, name="toy", settings=settings)


def findings(run_dir, file, name="toy"):
    return json.loads((run_dir / "findings" / name / file).read_text())


def test_a_model_that_remembers_gives_its_providers_away(run_dir):
    result = judged(run_dir)
    numbers = result.details["classifiers"]["accurate"]
    assert result.status == "done"
    assert (numbers["auc"], numbers["accuracy"]) == (1.0, 1.0)
    assert numbers["n"] == result.details["providers"]
    # The interval takes the five of the smaller side for five coins; their order is exact.
    assert numbers["p_value"] == pytest.approx(2 * 0.5**5)
    assert result.numbers["accurate"].p_value == pytest.approx(2 / math.comb(int(numbers["n"]), 5))
    assert result.verdict == LEAK
    assert result.headline.startswith("accurate has AUC 1.000 [0.48, 1")
    assert findings(run_dir, "result.json")["details"] == json.loads(json.dumps(result.details))
    assert any(line.startswith("accurate") for line in render.lines(result))


def test_verdicts_are_kept_beside_the_truth(run_dir):
    judged(run_dir)
    (verdict,) = findings(run_dir, "verdicts.json")
    parts = TruthStore(RunFolder(run_dir)).parts()
    assert verdict["member"] == [parts[p].member for p in verdict["providers"]]
    assert [score == 1.0 for score in verdict["scores"]] == verdict["member"]


def test_an_untrained_model_gives_nobody_away(tmp_path):
    result = judged(federation(tmp_path).run(0).run_dir)
    numbers = result.details["classifiers"]["accurate"]
    assert (numbers["auc"], numbers["balanced_accuracy"]) == (0.5, 0.5)
    assert numbers["p_value"] == 1.0
    assert "so few suppliers hardly show a leak" in result.headline
    assert result.verdict == CANNOT_TELL


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
    access, context = Nosy.seen
    assert not isinstance(access.model, GreyBox)
    assert access.confidence is access.public is None
    assert set(context.refused) == {GreyBox, PublicModel}
    judged(run_dir, Nosy(), access="black_box")
    public = Nosy.seen[0].public
    assert not isinstance(public.answers, GreyBox)
    assert public.confidence is None


@pytest.mark.parametrize(
    ("wanted", "settings", "says"),
    [
        (Confidence, {"access": "black_box"}, "GreyBox: access=black_box"),
        (Start, {"public_start": False}, "PublicModel: public_start=false"),
    ],
)
def test_what_is_not_granted_is_recorded_not_run(run_dir, wanted, settings, says):
    Nosy.seen.clear()
    result = judged(run_dir, Nosy(wanted), **settings)
    assert (result.status, result.refused, Nosy.seen) == ("not granted", True, [])
    assert says in result.headline
    assert findings(run_dir, "result.json")["headline"] == result.headline


def test_without_a_keeper_there_is_nothing_that_the_server_saw(tmp_path):
    run_dir = federation(tmp_path).run(1).run_dir
    assert "keep=transcript" in judged(run_dir, Nosy(Server)).headline


def test_a_run_is_attacked_from_its_folder_alone(run_dir, tmp_path):
    here = judged(run_dir)
    there = judged(Path(shutil.copytree(run_dir, tmp_path / "moved")))
    assert {**here.details, "seconds": 0} == {**there.details, "seconds": 0}


def test_findings_depend_on_the_seed_only(run_dir):
    one, other = (judged(run_dir).details["classifiers"] for _ in range(2))
    assert one == other


def test_known_providers_are_half_members_and_not_judged(run_dir):
    judged(run_dir, Nosy(), known=0.5, min_questions=(0, 1, 30))
    parts = TruthStore(RunFolder(run_dir)).parts()
    splits = Nosy.seen[0].held_out.splits
    assert {split.repeat for split in splits} == set(range(5))
    assert {split.min_questions for split in splits} <= {0, 1}
    assert len({frozenset(split.known) for split in splits if split.min_questions == 0}) > 1
    for split in splits:
        assert split.known == {p: parts[p].member for p in split.known}
        assert 2 * sum(split.known.values()) == len(split.known)
        assert not set(split.known) & set(split.unknown)


@pytest.mark.parametrize(("strict", "least"), [(True, 3), (False, 2)])
def test_both_readings_of_s_are_offered(run_dir, strict, least):
    judged(run_dir, Nosy(), min_questions=(2,), strict=strict)
    held_out = Nosy.seen[0].held_out
    counts = {p: sum(len(d.questions) for d in own) for p, own in held_out.documents.items()}
    for split in held_out.splits:
        assert {*split.known, *split.unknown} == {p for p, n in counts.items() if n >= least}


def test_what_cannot_be_asked_is_counted(tmp_path):
    source = Pages(12, 4, answers=("bo", ""))
    result = judged(federation(tmp_path, source=source).run(1).run_dir)
    left_out = result.left_out["questions without an accepted answer"]
    assert left_out == result.details["questions"] > 0


def test_of_providers_that_nothing_can_be_asked_of_nobody_is_judged(tmp_path):
    run_dir = federation(tmp_path, source=Pages(12, 4, answers=("",))).run(1).run_dir
    assert "of 0 suppliers with questions" in judged(run_dir).headline


def test_a_run_that_was_cut_off_is_not_attacked(run_dir, tmp_path):
    copy = Path(shutil.copytree(run_dir, tmp_path / "cut"))
    (copy / FINAL).unlink()
    result = judged(copy)
    assert result.refused
    assert "fedpriv resume" in result.headline


def test_another_model_is_not_attacked(run_dir):
    class Other(Chooser):
        def __init__(self):
            super().__init__()
            self.more = self.weights

    with pytest.raises(ValueError, match="of another model"):
        run_attack_on(run_dir, Accurate(), lambda labels=(): Other(), name="toy")


def test_probes_are_kept_and_scored(run_dir):
    class Remembers:
        def run(self, access: Answers, context: AttackContext) -> tuple[MemorisationProbe, ...]:
            context.remarks.pictures["removed-name-00-page"] = np.zeros((4, 4, 3), np.uint8)
            about = ("d", "name", "Who?", ("bo",), "bo", float("nan"), False)
            return tuple(MemorisationProbe("removed", p, *about) for p in access.held_out.documents)

    result = run_attack_on(run_dir, Remembers(), chooser, name="toy")
    members = result.details["memorisation"]["removed"]["final"]["name"]["members"]
    assert members["accuracy"] == 1.0
    first, *_ = findings(run_dir, "probes.json")
    assert (first["answer"], first["confidence"]) == ("bo", None)
    assert (run_dir / "findings" / "toy" / "removed-name-00-page.png").is_file()
    (figure,) = result.figures
    assert figure.title == "removed-name-00"
    assert figure.data["panels"] == [["page", "removed-name-00-page.png"]]


def test_an_audit_is_of_canaries_and_nobody_else(tmp_path):
    canaries = Pages(30, 1, first=100)
    made = federation(tmp_path, source=Pages(12, 4), canaries=canaries)
    run_dir = made.run(1).run_dir
    result = judged(run_dir, Coins())
    metrics = result.details
    members = sum(p.member for p in made.bound.parts.values() if p.canary)
    assert (metrics["canaries"], metrics["guesses"], metrics["right"]) == (30, 30, members)
    assert metrics["epsilon_lower"] == 0.0
    assert result.headline.startswith("ε ≥ 0.00 of a supplier with 95% confidence")
    with pytest.raises(ValueError, match="one guess of the coins, not 2"):
        judged(run_dir, Coins(times=2))
    judged(run_dir, Nosy())
    assert not [p for p in Nosy.seen[0].held_out.documents if p.startswith("canary")]


def test_coins_that_are_not_fair_are_not_audited(tmp_path):
    canaries = Pages(30, 1, first=100)
    made = federation(tmp_path, source=Pages(12, 4), canaries=canaries, canary_rate=0.8)
    result = judged(made.run(1).run_dir, Coins())
    assert result.verdict == "not_applicable"
    assert "trained on with probability 0.8" in result.headline
    assert "data.canary_rate=0.5" in result.headline


def test_without_canaries_there_is_no_audit(run_dir):
    result = judged(run_dir, Coins())
    assert result.refused
    assert "no canaries were planted" in result.headline
    assert "data.canaries=20" in result.headline


def test_held_out_documents_of_nobody_seen_are_refused_at_the_attack(tmp_path):
    held = HoldOut(fraction=0)
    run_dir = federation(tmp_path, test=held, canaries=Pages(10, 1, first=100)).run(1).run_dir
    assert "documents of canaries only" in judged(run_dir).headline


def test_a_setting_that_changes_nothing_is_refused(run_dir):
    with pytest.raises(ValueError, match=r"min_questions=.*nothing that this attack uses"):
        judged(run_dir, Coins(), min_questions=(0,))


# --- The command ---------------------------------------------------------------------------------


def test_the_command_takes_settings_of_attacks_on_providers():
    order = parse(["attack=pmia", "access=black_box", "min_questions=[0]"])
    assert (order.name, order.access, order.min_questions) == ("pmia", "black_box", (0,))


def test_an_attack_of_the_users_own_is_named_by_its_path():
    order = parse([f"attack={__name__}.Accurate", "name=mine"])
    assert isinstance(order.attack, Accurate)
    assert order.name == "mine"
