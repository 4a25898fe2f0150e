"""The bound on ε from one run: golden values by hand, and what is reported beside the ledger's."""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from pages import page
from scipy.stats import binom

from fedpriv.attacks.exposure import Exposure
from fedpriv.attacks.one_run_audit import Audit, LossAccess, LossScore
from fedpriv.attacks.server_membership import ServerMembership
from fedpriv.data.document import Question
from fedpriv.federation.membership_table import TrainingMembership
from fedpriv.privacy.one_run import epsilon_lower, p_value
from fedpriv.threat.access import (
    Architecture,
    BlackBox,
    GreyBox,
    HeldOutDocuments,
    PlantedCanaries,
    PublicModel,
    Transcript,
)
from fedpriv.threat.attack import AttackContext, NotApplicable
from fedpriv.threat.claims import (
    MEMBER,
    NO_GUESS,
    NON_MEMBER,
    CanaryGuesses,
    CanaryRank,
    MembershipScores,
)
from fedpriv.threat.queries import Reply
from fedpriv.threat.results import CANNOT_TELL, LEAK, NONE_SHOWN
from fedpriv.threat.runner import ThreatModel
from fedpriv.threat.scoring.audit import (
    audit_metrics,
    bound_in_words,
    epsilon_detectable,
    score_canaries,
)
from fedpriv.threat.scoring.registry import IntervalSettings, Scoring
from fedpriv.threat.surfaces.base import wanted

# --- the statistics -------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "confidence"), [(5, 0.95), (20, 0.95), (200, 0.99)])
def test_all_right_without_delta(count, confidence):
    # q^r = 1 - confidence, and ε is the logarithm of q's odds.
    q = (1 - confidence) ** (1 / count)
    assert epsilon_lower(count, count, count, 0.0, confidence) == pytest.approx(
        max(math.log(q / (1 - q)), 0.0)
    )


def test_one_wrong_without_delta():
    # q^r + r q^(r-1) (1-q) is the chance of at most one wrong guess.
    q = 1 / (1 + math.exp(-2.0))
    by_hand = q**12 + 12 * q**11 * (1 - q)
    assert p_value(12, 12, 11, 2.0) == pytest.approx(by_hand)
    assert epsilon_lower(12, 12, 11, confidence=1 - by_hand) == pytest.approx(2.0)


def test_delta_by_hand():
    # r = 2, both right, ε = 0: B is 0, 1, 2 with chances 1/4, 1/2, 1/4, so β = 1/4 and
    # α = max(1/2, (1/2 + 1/4) / 2) = 1/2; and 2 m δ α = 2 · 5 · 0.01 · 1/2.
    assert p_value(5, 2, 2, 0.0, 0.01) == pytest.approx(0.25 + 0.05)
    # Three guesses, ε = ln 3: q = 3/4, B = 0…3 with chances 1, 9, 27, 27 of 64; two right:
    # β = 54/64 and α = max(9, 10 / 2) / 64.
    assert p_value(3, 3, 2, math.log(3), 0.01) == pytest.approx(54 / 64 + 0.06 * 9 / 64)


def test_the_largest_alpha_may_need_more_than_one_step():
    right, guesses, q = 9, 10, 0.5
    chances = [math.comb(guesses, k) * q**k * (1 - q) ** (guesses - k) for k in range(guesses + 1)]
    alpha = max(sum(chances[right - i : right]) / i for i in range(1, right + 1))
    assert alpha > chances[right - 1]
    expected = sum(chances[right:]) + 2 * 10 * 1e-3 * alpha
    assert p_value(10, 10, right, 0.0, 1e-3) == pytest.approx(expected)


def test_nothing_is_shown_by_chance_or_by_silence():
    assert epsilon_lower(100, 100, 50) == 0
    assert epsilon_lower(100, 100, 58) == 0  # 6.7 % of all runs have as many
    assert epsilon_lower(100, 100, 60) > 0  # 2.8 %
    assert epsilon_lower(100, 0, 0) == 0
    assert epsilon_lower(4, 4, 4) == 0  # 1/16 of all runs
    assert p_value(100, 0, 0, 0.0) == 1


def test_large_epsilons_are_not_rounded_away():
    # q^r = confidence needs ε near ln(r / -ln(confidence)): 1 - q is of the order of 1e-9 here.
    bound = epsilon_lower(10**6, 10**6, 10**6, 0.0, 1 - math.exp(-1e-3))
    assert bound == pytest.approx(math.log(1e9), rel=1e-6)


def test_delta_can_make_the_audit_worthless():
    assert epsilon_lower(1000, 500, 500, 0.01) < epsilon_lower(1000, 500, 500, 1e-6)
    assert epsilon_lower(100, 100, 100, 1.0) < epsilon_lower(100, 100, 100)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((10, 11, 5, 1.0), "canaries=10, guesses=11, right=5"),
        ((10, 5, 6, 1.0), "no more right ones"),
        ((10, 5, -1, 1.0), "right=-1"),
        ((0, 0, 0, 1.0), "1 canary or more"),
        ((10, 5, 5, -1.0), "epsilon=-1.0: expected 0 or more"),
        ((10, 5, 5, math.nan), "epsilon=nan"),
        ((10, 5, 5, 1.0, 1.5), "delta=1.5"),
    ],
)
def test_what_cannot_be_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        p_value(*arguments)
    with pytest.raises(ValueError, match="confidence=1"):
        epsilon_lower(10, 5, 5, confidence=1)


# --- beside the ledger ----------------------------------------------------------------------


def scores_of(guesses):
    names = tuple(guesses)
    marks = np.array(list(guesses.values()), np.int8)
    return MembershipScores(names, marks.astype(np.float64), marks, "server_update")


PARTS = {
    "a": TrainingMembership(3, 0, canary=True),
    "b": TrainingMembership(0, 1, canary=True),
    "c": TrainingMembership(2, 1, canary=True),
    "d": TrainingMembership(0, 0, canary=True),
    "plain": TrainingMembership(4, 0),
}
GUESSES = {"a": MEMBER, "b": NON_MEMBER, "c": NON_MEMBER, "d": NO_GUESS, "plain": MEMBER}


def ledger_of(unit, masked=False, **more):
    epsilons = {"global": 1.0, "server_masked": 1.5, "server_plain": 2.0, "paper": 0.5}
    views = {view: {"pld": e, "rdp": e + 1} for view, e in epsilons.items()}
    return {"unit": unit, "delta": 1e-6, "views": views, "masked": masked, **more}


@pytest.mark.parametrize(("guesses", "claimed"), [(30, 2.0), (87, 3.0), (40, 0.0)])
def test_an_epsilon_that_is_detectable_is_shown_in_four_of_five_audits(guesses, claimed):
    least = epsilon_detectable(100, guesses, claimed)
    right = np.arange(guesses + 1)
    shown = [p_value(100, guesses, int(v), claimed) <= 0.05 for v in right]
    assert binom.pmf(right, guesses, 1 / (1 + math.exp(-least))) @ shown == pytest.approx(0.8)
    assert epsilon_detectable(4, 4, claimed) is None  # four coins may all be guessed by luck


def test_only_guesses_on_canaries_count():
    found = audit_metrics(scores_of(GUESSES), PARTS, None)
    assert (found["canaries"], found["guesses"], found["right"]) == (4, 3, 2)
    assert found["p_value"] == pytest.approx(4 / 8)  # two or three of three
    assert found["epsilon_lower"] == 0
    assert found["delta"] == 0
    assert found["violated"] is None
    assert found["epsilon_claimed"]["global"] is None


def test_without_canaries_it_says_how_to_plant_some():
    with pytest.raises(ValueError, match=r"none of the 1 suppliers is a canary.*data\.canaries="):
        audit_metrics(scores_of({"plain": MEMBER}), PARTS, None)


def many(count):
    names = [f"p{n}" for n in range(count)]
    parts = {name: TrainingMembership(n % 2, 0, canary=True) for n, name in enumerate(names)}
    return parts, scores_of({n: MEMBER if parts[n].member else NON_MEMBER for n in names})


def test_a_bound_above_the_claim_of_a_provider_is_a_violation():
    parts, guessed = many(60)  # ε = 2.97 by q^60 = 0.05
    found = audit_metrics(guessed, parts, ledger_of("provider"))
    assert found["epsilon_lower"] == found["epsilon_ceiling"] == pytest.approx(2.97, abs=0.01)
    assert found["epsilon_claimed"] == {
        "global": 1.0,
        "server_masked": 1.5,
        "server_plain": 2.0,
        "paper": 0.5,
    }
    assert found["delta"] == 1e-6
    assert (found["view"], found["violated"]) == ("server_plain", True)
    assert audit_metrics(guessed, parts, ledger_of("provider", masked=True))["view"] == (
        "server_masked"
    )
    few, sure = many(10)
    assert audit_metrics(sure, few, ledger_of("provider"))["violated"] is False


@pytest.mark.parametrize(
    ("canaries", "right", "ledger", "verdict"),
    [
        (60, 60, "provider", LEAK),  # a bound of 2.97 where 2 is claimed
        (400, 200, "provider", NONE_SHOWN),  # an ε of 3 would have been shown
        (10, 5, "provider", CANNOT_TELL),  # no ε would have been
        (60, 60, None, LEAK),
        (400, 200, None, CANNOT_TELL),  # nothing is claimed
    ],
)
def test_silence_says_something_only_where_little_more_would_have_been_shown(
    canaries, right, ledger, verdict
):
    parts, guessed = many(canaries)
    guessed = replace(
        guessed, guesses=guessed.guesses * np.where(np.arange(canaries) < right, 1, -1)
    )
    truth = SimpleNamespace(parts=lambda: parts)
    scoring = Scoring(truth, {}, IntervalSettings(), np.random.default_rng(0))
    scoring = replace(scoring, ledger=ledger and ledger_of(ledger))
    assert score_canaries([CanaryGuesses(guessed, "server_plain")], scoring).verdict == verdict


def test_examples_are_no_providers():
    parts, guessed = many(60)
    alone = audit_metrics(guessed, parts, ledger_of("example"))
    assert alone["violated"] is None
    assert alone["epsilon_claimed"]["server_plain"] == 2.0
    assert alone["epsilon_claimed_provider"]["server_plain"] is None
    groups = {"provider": {"records": 7, "epsilon": {"server_plain": "inf", "global": 2.5}}}
    grouped = ledger_of("example", larger_units=groups)
    found = audit_metrics(guessed, parts, grouped)
    assert (found["epsilon_claimed_provider"]["server_plain"], found["violated"]) == ("inf", False)
    assert audit_metrics(guessed, parts, grouped, view="global")["violated"] is True
    with pytest.raises(ValueError, match="view='sever'"):
        audit_metrics(guessed, parts, grouped, view="sever")


@pytest.mark.parametrize(
    ("view", "says"),
    [
        ("server_plain", "the ledger claims ε ≤ 2.00 of a supplier"),
        ("global", "the ledger promises nothing"),
        ("paper", "the ledger says nothing of a supplier"),
    ],
)
def test_an_audit_is_told_beside_the_ledger(view, says):
    parts, guessed = many(60)
    ledger = ledger_of("provider")
    ledger["views"]["global"]["pld"] = "inf"
    ledger["views"]["paper"] = {}
    line = bound_in_words(audit_metrics(guessed, parts, ledger, view=view))
    assert line.startswith("ε ≥ 2.97 of a supplier with 95% confidence (60 of 60 guesses on ")
    assert "are right; with all of them right it would be 2.97; δ = " in line
    assert says in line
    assert ("THE CLAIM IS BROKEN" in line) == (view == "server_plain")


def test_no_mechanism_claims_nothing_that_could_be_violated():
    parts, guessed = many(60)
    views = {view: {"pld": "inf"} for view in ("global", "server_masked", "server_plain", "paper")}
    found = audit_metrics(guessed, parts, {"unit": None, "views": views, "masked": False})
    assert found["epsilon_claimed"]["global"] == "inf"
    assert found["violated"] is False


def test_rdp_stands_in_where_pld_has_no_number():
    parts, guessed = many(60)
    ledger = ledger_of("provider")
    ledger["views"]["server_plain"] = {"pld": None, "rdp": 9.0}
    found = audit_metrics(guessed, parts, ledger)
    assert (found["epsilon_claimed"]["server_plain"], found["violated"]) == (9.0, False)


# --- the guesses ----------------------------------------------------------------------------


@dataclass(frozen=True)
class ScoresAccess:
    model: BlackBox
    held_out: HeldOutDocuments
    public: PublicModel | None


@dataclass(frozen=True)
class Scores:
    """An attack that gives these scores, and guesses that everybody is a member."""

    scores: dict
    times: int = 1

    def run(self, access: ScoresAccess, context: AttackContext) -> tuple[MembershipScores, ...]:
        assert isinstance(access, ScoresAccess)
        context.remarks.notes.append("mine")
        scores = np.array(list(self.scores.values()), np.float64)
        marks = np.full(len(scores), MEMBER, np.int8)
        return (MembershipScores(tuple(self.scores), scores, marks, "scores"),) * self.times


def judged(attack, canaries, seed=0):
    """Returns the scores with their guesses, and the notes."""
    access = attack.access_type(
        BlackBox(lambda pages: []), PlantedCanaries(dict.fromkeys(canaries, ())), None
    )
    context = AttackContext(np.random.default_rng(seed), lambda line: None, Path())
    (claim,) = attack.run(access, context)
    assert claim.view == "global"
    return claim.scores, context.remarks.notes


SCORED = {"e": 5.0, "a": 1.0, "other": 9.0, "b": 2.0, "d": 4.0, "c": 3.0, "f": 6.0}


def guesses_of(found):
    scores, _ = found
    return dict(zip(scores.providers, scores.guesses.tolist(), strict=True))


def test_the_highest_are_said_to_be_in_and_the_lowest_out():
    found = judged(Audit(Scores(SCORED), guesses=1.0), "abcdef")
    assert guesses_of(found) == {"a": -1, "b": -1, "c": -1, "d": 1, "e": 1, "f": 1}
    scores, notes = found
    assert notes[0] == "mine"
    assert scores.classifier == "scores"


def test_those_in_the_middle_are_left_out():
    found = judged(Audit(Scores(SCORED), guesses=0.34), "abcdef")
    assert guesses_of(found) == {"a": -1, "b": 0, "c": 0, "d": 0, "e": 0, "f": 1}
    odd = judged(Audit(Scores(SCORED), guesses=1.0), "abcde")
    assert sorted(guesses_of(odd).values()) == [-1, -1, 1, 1, 1]


def test_ties_are_not_broken_by_the_order_of_the_providers():
    alike = dict.fromkeys([f"p{n}" for n in range(40)], 0.0)
    found = guesses_of(judged(Audit(Scores(alike), guesses=1.0), alike))
    first = list(found.values())[:20]
    assert sum(g == MEMBER for g in found.values()) == 20
    assert 4 < sum(g == MEMBER for g in first) < 16
    again = guesses_of(judged(Audit(Scores(alike), guesses=1.0), alike))
    assert again == found


def test_what_the_audit_needs():
    audit = Audit(Scores(SCORED), guesses=1.0)
    assert wanted(audit.access_type) == {
        "model": (BlackBox, False),
        "held_out": (PlantedCanaries, False),
        "public": (PublicModel, True),
    }
    assert {CanaryGuesses, CanaryRank} == set(ThreatModel.of(audit).claims)
    with pytest.raises(ValueError, match="says nothing of 1 of the 2 canaries"):
        judged(audit, ["a", "missing"])
    with pytest.raises(ValueError, match="scores of one classifier, not of 2"):
        judged(Audit(Scores(SCORED, times=2)), "ab")
    with pytest.raises(ValueError, match="not a number"):
        judged(Audit(Scores({"a": math.nan, "b": 1.0})), "ab")
    with pytest.raises(ValueError, match=r"guesses=0: expected"):
        Audit(Scores(SCORED), guesses=0)


def test_an_attack_that_scores_no_providers_cannot_be_audited():
    @dataclass(frozen=True)
    class Access:
        architecture: Architecture

    class Other:
        def run(self, access: Access, context: AttackContext) -> MembershipScores:
            raise NotImplementedError

    Other.run.__annotations__["access"] = Access
    with pytest.raises(TypeError, match="Other takes no HeldOutDocuments"):
        ThreatModel.of(Audit(Other()))


def test_the_bound_is_held_against_the_view_of_what_was_looked_at():
    assert Audit(ServerMembership()).view == "server_plain"
    assert Audit(ServerMembership("series")).view == "global"
    assert Audit(LossScore()).view == "global"

    @dataclass(frozen=True)
    class Access:
        transcript: Transcript
        held_out: HeldOutDocuments

    class Silent:
        def run(self, access: Access, context: AttackContext) -> MembershipScores:
            raise NotImplementedError

    Silent.run.__annotations__["access"] = Access
    assert Audit(Silent()).view == "server_plain"


def test_an_audit_by_exposure_keeps_the_ranks():
    question = Question("account", "Which?", ("12",))
    pages = {name: (page(name=name, provider=name, questions=[question]),) for name in "abcd"}

    def losses(documents):
        return [
            tuple(float(n + ord(page.id)) for n in range(len(page.questions))) for page in documents
        ]

    audit = Audit(Exposure(references=3, removed=False), guesses=0.5)
    access = audit.access_type(GreyBox(lambda pages: [], losses), PlantedCanaries(pages))
    context = AttackContext(np.random.default_rng(0), lambda line: None, Path())
    guesses, *ranks = audit.run(access, context)
    assert sorted(guesses.scores.guesses.tolist()) == [-1, 0, 0, 1]
    assert [rank.provider for rank in ranks] == list("abcd")


def asked(name):
    question = Question("total", "How much?", ("1",))
    return page(name=name, provider=name[0], questions=[question])


def test_the_loss_score_is_by_how_much_the_loss_fell():
    pages = {"a": (asked("a0"), asked("a1")), "b": (asked("b0"),)}
    losses = {"a0": 1.0, "a1": 2.0, "b0": 3.0}

    def after(documents):
        return [(Reply("", 0.5, losses[d.id]),) for d in documents]

    def before(documents):
        return [(Reply("", 0.5, 4.0),) for _ in documents]

    found = loss_scores(pages, GreyBox(after), GreyBox(before))
    assert found.providers == ("a", "b")
    np.testing.assert_allclose(found.scores, [2.5, 1.0])
    assert found.guesses.tolist() == [MEMBER, NON_MEMBER]


def loss_scores(pages, final, start):
    public = PublicModel({}, start, start, lambda: None)
    context = AttackContext(np.random.default_rng(0), lambda line: None, Path())
    return LossScore().run(LossAccess(final, public, HeldOutDocuments(pages)), context)


def test_a_model_that_has_diverged_is_not_audited():
    pages = {"a": (asked("a0"),)}
    box = GreyBox(lambda documents: [(Reply("", 0.5, float("nan")),) for _ in documents])
    with pytest.raises(NotApplicable, match="diverged"):
        loss_scores(pages, box, box)
    with pytest.raises(NotApplicable, match="losses of the public model"):
        loss_scores(pages, box, None)
