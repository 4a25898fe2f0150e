"""Exposure of planted secrets: models that know some, and models that know none."""

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from toy_answers import Pages

from fedpriv.attacks.exposure import Exposure, ExposureAccess
from fedpriv.clients.fedavg import LocalTraining
from fedpriv.data.document import Document, DocumentSet, Question, Word
from fedpriv.data.generated.identities import Identities
from fedpriv.data.partition import ByProvider, HoldOut
from fedpriv.federation.dataset import DocumentData
from fedpriv.federation.loop import Federation
from fedpriv.federation.membership_table import TrainingMembership
from fedpriv.models.base import Answer
from fedpriv.models.question_answering import QuestionAnswerer, asked, table
from fedpriv.models.vt5 import vt5
from fedpriv.strategies.fedavg import FedAvg
from fedpriv.threat.access import GreyBox, PlantedCanaries
from fedpriv.threat.attack import AttackContext, NotApplicable
from fedpriv.threat.claims import MEMBER, NON_MEMBER, CanaryGuesses, CanaryRank
from fedpriv.threat.queries import Oracle
from fedpriv.threat.runner import run_attack_on
from fedpriv.threat.scoring.exposure import exposure_figures, exposure_metrics, exposure_tables
from fedpriv.threat.surfaces.held_out import KeepHeldOut
from fedpriv.training.loops import Optimizer


def page(provider, secret, colour=0, number=0):
    """A page of one colour that says `secret` in its lower right corner."""
    pixels = np.full((16, 16, 3), colour, np.uint8)
    pixels[0, 1] = number
    words = (Word("hello", (0, 0, 4, 4), 0), Word(secret, (10, 10, 14, 14), 1))
    questions = (
        Question("date", "When?", ("12/03/2019",)),
        Question("account", "Which account?", (secret,)),
    )
    return Document(f"{provider}-{number}", provider, pixels, (16, 16), words, questions=questions)


SECRETS = {f"canary {n}": f"{n:02}{(37 * n) % 100:02}" for n in range(20)}
PAGES = {
    name: tuple(page(name, secret, number=n) for n in range(1 + place % 2))
    for place, (name, secret) in enumerate(SECRETS.items())
}


class Memory:
    """A model that is sure of some providers' secrets; of all else its losses are noise."""

    def __init__(self, known=(), seed=0):
        self.known = set(known)
        self.rng = np.random.default_rng(seed)
        self.asked = []

    def losses(self, documents):
        self.asked += documents
        return [tuple(self.loss(page.provider, q) for q in page.questions) for page in documents]

    def loss(self, provider, question):
        sure = provider in self.known and question.answers == (SECRETS[provider],)
        return -1.0 if sure else self.rng.random()


@dataclass(frozen=True)
class Found:
    """What the attack claims."""

    scores: object
    ranks: tuple
    left_out: dict


def judged(box, attack=None, pages=PAGES, seed=0):
    if isinstance(box, Memory):
        box = GreyBox(lambda documents: [], box.losses)
    context = AttackContext(np.random.default_rng(seed), lambda line: None, Path())
    access = ExposureAccess(box, PlantedCanaries(pages))
    guesses, *ranks = (attack or Exposure(references=99)).run(access, context)
    assert isinstance(guesses, CanaryGuesses)
    assert guesses.view == "global"
    return Found(guesses.scores, tuple(ranks), context.remarks.left_out)


def parts_of(pages, members=()):
    return {
        name: TrainingMembership(len(own) if name in members else 0, 0, canary=True)
        for name, own in pages.items()
    }


def measured(ranks, parts):
    return exposure_metrics(ranks, parts, np.random.default_rng(0))


def test_secrets_that_the_model_knows_are_first_and_no_exposure_is_above_the_bound():
    known = [f"canary {n}" for n in range(5)]
    scores = judged(Memory(known)).scores
    bits = dict(zip(scores.providers, scores.scores.tolist(), strict=True))
    assert len(bits) == 20
    assert {bits[name] for name in known} == {math.log2(100)}
    assert all(0 <= one <= math.log2(100) for one in bits.values())
    assert np.mean([one for name, one in bits.items() if name not in known]) < 4
    guessed = dict(zip(scores.providers, scores.guesses.tolist(), strict=True))
    assert all(guessed[name] == MEMBER for name in known)
    assert list(guessed.values()).count(NON_MEMBER) >= 10


def test_the_answer_is_not_on_the_page_that_is_asked():
    box = Memory()
    judged(box)
    for document in box.asked:
        assert [word.text for word in document.words] == ["hello"]
        assert (np.asarray(document.image())[10:14, 10:14] == 255).all()
    told = Memory()
    judged(told, Exposure(references=9, removed=False))
    assert {document.words[1].text for document in told.asked} == set(SECRETS.values())


def test_others_are_asked_for_in_the_secrets_place():
    box = Memory()
    judged(box)
    for name, document in zip(sorted(PAGES), box.asked, strict=True):
        assert document.id == f"{name}-0"  # of several pages the first
        assert {(question.key, question.text) for question in document.questions} == {
            ("account", "Which account?")
        }
        own, *others = [question.answers[0] for question in document.questions]
        assert own == SECRETS[name]
        assert len({own, *others}) == 100
        assert all(len(other) == 4 and other.isdigit() for other in others)


def test_of_a_small_space_all_others_are_asked():
    pages = {name: (page(name, name[-1]),) for name in ("canary 3", "canary 7")}
    for rank in judged(Memory(), pages=pages).ranks:
        assert rank.references.shape == (9,)


def test_neither_order_nor_number_of_the_canaries_tells_anything():
    class Fixed(Memory):
        def losses(self, documents):
            return [tuple(float(q.answers[0]) % 97 for q in d.questions) for d in documents]

    one = judged(Fixed())
    other = judged(Fixed(), pages=dict(reversed(PAGES.items())))
    np.testing.assert_array_equal(one.scores.scores, other.scores.scores)
    assert one.scores.providers == other.scores.providers == tuple(sorted(PAGES))


def test_ranks_are_uniform_on_an_untrained_model_and_a_planted_bias_is_noticed():
    torch.manual_seed(1)
    box = Oracle(vt5(width=16, layers=1, max_length=64), None)
    persons = Identities(repeats=(1,), each=48, page_size=(128, 112)).load().documents
    pages = {person.provider: (person,) for person in persons}
    grey = GreyBox(box.replies, box.losses)
    ranks = judged(grey, Exposure(references=31), pages).ranks
    found = measured(ranks, parts_of(pages))
    assert found["in"] == {}
    assert found["out"]["1"]["count"] == 48
    # Three standard errors: one exposure varies by about 1.4 bits.
    assert abs(found["out"]["1"]["mean"] - found["expected"]) < 3 * 1.4 / math.sqrt(48)
    assert found["ks"]["p"] > 0.01
    biased = tuple(replace(r, loss=r.loss - np.std(r.references) / 2) for r in ranks)
    assert measured(biased, parts_of(pages))["ks"]["p"] < 0.01


# --- what cannot be ranked ------------------------------------------------------------------


def test_a_secret_that_cannot_be_taken_off_is_left_out_and_counted():
    unwritten = replace(page("canary 3", "1234"), words=(), id="blank")
    pages = {**PAGES, "canary 3": (unwritten,)}
    twice = page("canary 4", "1234")
    pages["canary 4"] = (replace(twice, words=(*twice.words, Word("x1234y", (0, 4, 4, 8), 2))),)
    found = judged(Memory(), pages=pages)
    assert sorted(found.left_out.values()) == [1, 1]
    assert {rank.provider for rank in found.ranks} == PAGES.keys() - {"canary 3", "canary 4"}
    with pytest.raises(NotApplicable, match="no secret to rank"):
        judged(Memory(), pages={"canary 3": (unwritten,)})


def test_what_the_attack_needs():
    with pytest.raises(NotApplicable, match=r"set data\.canaries"):
        judged(Memory(), pages={})
    with pytest.raises(NotApplicable, match="'iban': set key to one of date, account"):
        judged(Memory(), Exposure(key="iban"))
    with pytest.raises(NotApplicable, match="'Ada' has no digits"):
        judged(Memory(), pages={"a": (page("a", "Ada"),)})
    mixed = {"a": (page("a", "1"),), "b": (page("b", "1234"),)}
    with pytest.raises(NotApplicable, match=r"9 to 99 others.*references=9"):
        judged(Memory(), pages=mixed)
    with pytest.raises(ValueError, match="references=0"):
        Exposure(references=0)


@pytest.mark.parametrize(("loss", "says"), [(math.nan, "diverged"), (1.0, "points at words")])
def test_losses_that_say_nothing(loss, says):
    box = GreyBox(lambda pages: [], lambda pages: [(loss,) * len(p.questions) for p in pages])
    with pytest.raises(NotApplicable, match=says):
        judged(box)


# --- beside the truth -----------------------------------------------------------------------


def rank_of(provider, below, repeats):
    """A secret with so many of seven references below it."""
    return CanaryRank(provider, repeats, 0.0, np.array([-1.0] * below + [1.0] * (7 - below)))


def test_the_means_by_repeat_count_by_hand():
    ranked = {"a": (0, 1), "b": (1, 1), "c": (0, 4), "d": (3, 1), "e": (7, 4)}
    ranks = tuple(rank_of(name, *numbers) for name, numbers in ranked.items())
    parts = {name: TrainingMembership(int(name in "abc"), 0, canary=True) for name in ranked}
    found = measured(ranks, parts)
    assert (found["references"], found["bound"]) == (7, 3.0)
    # The mean of 3 - log2 r over the ranks 1…8; log2 8! is 15.299.
    assert found["expected"] == pytest.approx(3 - 15.299 / 8, abs=1e-4)
    means = {kind: {n: one["mean"] for n, one in found[kind].items()} for kind in ("in", "out")}
    assert means == {"in": {"1": 2.5, "4": 3.0}, "out": {"1": 1.0, "4": 0.0}}
    assert found["in"]["1"]["count"] == 2
    # Two secrets, of which the bound of 3 bits would be seen as rarely as two coins' heads.
    assert 0 < found["in"]["1"]["low"] < 2.0
    assert found["in"]["1"]["high"] == pytest.approx(3.0)
    assert set(found["ks"]) == {"statistic", "p"}
    everyone = {name: TrainingMembership(1, 0, canary=True) for name in ranked}
    alone = measured(ranks, everyone)
    assert alone["out"] == {}
    assert "ks" not in alone
    rows, bounds = exposure_tables({"": found, "FedAvg": alone})
    name, inside, outside, secrets = rows.rows[0]
    assert (name, inside[:7], outside[:7], secrets) == ("once", "2.500 [", "1.000 [", "2")
    assert rows.rows[2][0] == "FedAvg once"
    assert rows.rows[2][2] == "—"
    assert bounds.rows[0][:4] == ("all", "7", "3.00", "1.09")
    assert bounds.rows[1][4:] == ("—", "—")
    (figure,) = exposure_figures({"FedAvg": alone})
    assert figure.data["lines"]["FedAvg"].keys() == {"in"}
    assert figure.data["lines"]["FedAvg"]["in"]["mean"].keys() == {"1", "4"}
    assert figure.data["bound"] == 3.0


class Speller(QuestionAnswerer):
    """Answers with two digits, each the one of most weight for the page's colour."""

    def __init__(self):
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(256, 2, 10))

    def encode(self, documents):
        rows = []
        for one in asked(documents):
            answer = one.question.answers[0]
            digits = [int(sign) for sign in answer] if answer.isdigit() else [0, 0]
            colour = int(np.asarray(documents[one.document].image())[0, 0, 0])
            rows.append({"colour": np.array(colour), "digits": np.array(digits), **one.columns()})
        return table(rows)

    def losses(self, batch):
        scores = self.weights[batch["colour"]].transpose(1, 2)
        return nn.functional.cross_entropy(scores, batch["digits"], reduction="none").mean(-1)

    def answer_batch(self, batch):
        return [Answer("00", 0.5) for _ in batch["colour"]]


@dataclass(frozen=True)
class Persons:
    """Persons of one colour each, with a number of two digits on one or three pages."""

    persons: int = 24

    def load(self):
        documents = tuple(
            replace(
                page(f"person {n}", f"{(61 * n + 7) % 100:02}", colour=100 + n, number=number),
                questions=page("", f"{(61 * n + 7) % 100:02}").questions[1:],
            )
            for n in range(self.persons)
            for number in range(1 + 2 * (n % 2))
        )
        return DocumentSet("persons", documents, ())


def test_a_run_exposes_those_that_were_in_and_nobody_else(tmp_path):
    made = Federation(
        model=lambda labels=(): Speller(),
        data=DocumentData(
            Pages(4, 2, answers=("11",)),
            ByProvider(2),
            HoldOut(fraction=0.5, unseen=0.5),
            cache="off",
            canaries=Persons(),
        ),
        strategy=FedAvg(),
        client=LocalTraining(epochs=5, optimizer=Optimizer("sgd", lr=3.0)),
        keep=[KeepHeldOut()],
        runs=tmp_path,
    ).run(2)
    result = run_attack_on(
        made.run_dir,
        Exposure(),
        lambda labels=(): Speller(),
        name="exposure",
    )
    metrics, found = result.details, result.details["exposure"]
    assert "the mean exposure is 6.64 bits" in result.headline
    assert "1.44 on average" not in result.headline  # of so few references it is less
    # All 99 others; an untrained row of weights says the same of all, which is half a rank.
    assert found["bound"] == math.log2(100)
    assert {one["mean"] for one in found["in"].values()} == {math.log2(100)}
    assert {one["mean"] for one in found["out"].values()} == {math.log2(100 / 50.5)}
    assert found["in"].keys() == found["out"].keys() == {"1", "3"}
    assert sum(one["count"] for kind in ("in", "out") for one in found[kind].values()) == 24
    assert found["ks"]["p"] > 0.001
    # The coins are about even, so the more exposed half is nearly who was in.
    assert metrics["right"] >= 20
    assert metrics["classifiers"]["exposure"]["auc"] == 1.0
    written = json.loads((made.run_dir / "findings/exposure/exposure.json").read_text())
    assert {row["rank"] for row in written if row["member"]} == {1.0}
    assert {row["rank"] for row in written if not row["member"]} == {50.5}
    assert "answer" not in str(written[0].keys())
    assert len(written) == 24
