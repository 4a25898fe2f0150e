"""Ranking whole values of scrubbed fields: what was learnt by heart comes first, nothing else."""

import dataclasses
import json
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from attacked import attacked
from toy_fields import DIGITS, VOCABULARY, Codes, Follows, OneCode, federation, follows

from fedpriv.attacks.field_candidates import CandidateRanking, RankingAccess, Reference
from fedpriv.runtime.run_folder import RunFolder
from fedpriv.threat.attack import AttackContext
from fedpriv.threat.candidates import Candidates
from fedpriv.threat.claims import FieldRanking
from fedpriv.threat.scoring.rankings import REPEATED
from fedpriv.threat.truth import TruthStore


@dataclass(frozen=True)
class AnyCode:
    """Codes of five digits drawn at random."""

    count: int = 400

    def texts(self, rng):
        return [
            " ".join(DIGITS[d] for d in draw) for draw in rng.integers(10, size=(self.count, 5))
        ]


@dataclass(frozen=True)
class Kept:
    """Keeps what the attack was handed, and what it made of it."""

    inner: CandidateRanking
    handed: list
    made: list = field(default_factory=list)

    def run(self, access: RankingAccess, context: AttackContext) -> tuple[FieldRanking, ...]:
        self.handed.append(access)
        self.made.extend(self.inner.run(access, context))
        return tuple(self.made)


GIVEN = Candidates(public=False, values={"code": AnyCode()})


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Of 64 pages 24 are trained on, 16 held out, 24 public; each has a code of its own."""
    runs = tmp_path_factory.mktemp("runs")
    return federation(runs, source=Codes(64, 5), model=Recalls).run(8).run_dir


class Recalls(Follows):
    """Learns whole codes by heart; of one that it has not learnt it knows nothing."""

    def __init__(self, labels=(), task="tags"):
        super().__init__(labels, task)
        self.codes = torch.nn.Parameter(torch.zeros(100_000))

    def losses(self, batch):
        digits = batch["input_ids"][:, 3:8] - VOCABULARY.index("d0")
        real = (digits >= 0).all(1) & (digits < 10).all(1)
        number = (digits.clamp(0, 9) * torch.tensor([10_000, 1000, 100, 10, 1])).sum(1)
        return torch.where(real, torch.nn.functional.softplus(-self.codes[number]), 1.0)


def test_what_was_learnt_by_heart_comes_first_and_what_was_not_does_not(run):
    found = attacked(run, CandidateRanking(), Recalls, "ranked", candidates=GIVEN)
    trained, held_out = found["sides"]["trained on"], found["sides"]["held out"]
    assert (trained["fields"], trained["candidates"], trained["first"]) == (24, 51, 1.0)
    assert held_out["fields"] == 16
    # Nothing tells one code from another that the model was not trained on: all 51 tie.
    assert held_out["first"] == pytest.approx(1 / 51)
    assert held_out["auc"] == 0.5
    assert found["verdict"] == "leak"
    first = found["numbers"]["first"]
    assert (first["value"], first["n"], first["unit"]) == (1.0, 24, "document")
    assert first["control"] == held_out["first"]
    rows = json.loads((run / "findings/ranked/rankings.json").read_text())
    assert all(row["first"] == row["truth"] for row in rows if row["whose"] == "trained on")


def test_a_model_that_guesses_masked_tokens_is_asked_for_them(tmp_path):
    run = federation(tmp_path, source=OneCode(12, 5)).run(6).run_dir
    found = attacked(run, CandidateRanking(), follows, candidates=GIVEN)
    # One code stands in all documents: who guesses what is frequent has it, too.
    assert {side: one["fields"] for side, one in found["sides"].items() if one["fields"]} == {
        REPEATED: found["sides"][REPEATED]["fields"]
    }
    assert found["sides"][REPEATED]["first"] == 1.0
    assert (found["verdict"], found["numbers"]) == ("cannot_tell", {})
    assert found["headline"].startswith("nothing can be told: the text of every field")


def test_a_model_before_its_training_ranks_nothing(run):
    found = attacked(run, CandidateRanking(), Recalls, target="start", candidates=GIVEN)
    assert found["sides"]["trained on"]["first"] == pytest.approx(1 / 51)
    assert found["sides"]["trained on"]["auc"] == 0.5
    assert found["verdict"] != "leak"


def test_the_truth_cannot_be_told_from_the_list(run):
    handed = []
    attacked(run, Kept(CandidateRanking(), handed), Recalls, candidates=GIVEN)
    truths, lists = TruthStore(RunFolder(run)).fields(), handed[0].candidates.lists
    places = []
    for number, candidates in lists.items():
        assert len(candidates) == len(set(candidates)) == 51
        places.append(candidates.index(truths[number].tokens))
    # Of 40 places in 0…50, uniform: the mean is 25 ± 2.3, and they are spread over the list.
    assert len(places) == 40
    assert abs(np.mean(places) - 25) < 3 * 2.3
    assert len(set(places)) > 20


def test_the_open_game_hands_over_nothing_of_the_truth(run):
    handed = []
    settings = dataclasses.replace(GIVEN, game="open", most=None, values={"code": AnyCode(6000)})
    found = attacked(run, Kept(CandidateRanking(), handed), Recalls, candidates=settings)
    lists = {frozenset(candidates) for candidates in handed[0].candidates.lists.values()}
    assert len(lists) == 1
    truths = TruthStore(RunFolder(run)).fields()
    trained = [t for t in truths.values() if t.trained]
    (listed,) = lists  # the same for every field, whatever stands in it
    inside = np.mean([truth.tokens in listed for truth in trained])
    assert found["sides"]["trained on"]["listed"] == inside
    # The list has a few of the codes. On all pages the model says the one that it knows best, and
    # on one page that is right: an exact field out of a list that was made without it.
    assert inside > 1 / 24
    assert found["sides"]["trained on"]["first"] == pytest.approx(1 / 24)
    assert found["sides"]["held out"]["first"] == 0.0


def test_a_reference_takes_off_what_public_documents_tell(run):
    settings = dataclasses.replace(GIVEN, public=True, values={"code": AnyCode(60)}, most=None)
    attack = Kept(CandidateRanking(Reference(epochs=20, lr=0.5)), [])
    found = attacked(run, attack, Recalls, candidates=settings)
    documents = attack.handed[0].documents.documents
    public = {tuple(VOCABULARY.index(w.text) for w in d.words[2:7]) for d in documents}
    assert len(public) == 24
    for one in attack.made[0].fields:
        known = np.array([tokens in public for tokens in one.candidates])
        # Of the public codes the reference alone has learnt anything: the ratio is large.
        assert one.losses[known].min() > one.losses[~known].max()
    assert found["sides"]["trained on"]["first"] == 1.0


def test_fields_with_few_candidates_are_left_out(run):
    few = dataclasses.replace(GIVEN, values={"code": AnyCode(12)}, least=12)
    found = attacked(run, CandidateRanking(), Recalls, candidates=few)
    assert found["status"] == "done"
    none = attacked(run, CandidateRanking(), Recalls, candidates=dataclasses.replace(few, least=13))
    assert none["status"] == "not granted"
    assert "candidates.values" in none["headline"]
