"""Attacks on scrubbed fields: which model, what is handed over, what is left."""

import dataclasses
import functools
import json
import shutil
from dataclasses import dataclass, field
from types import SimpleNamespace

import attacked as attacks
import numpy as np
import pytest
import torch
from toy_fields import Codes, Follows, OneCode, federation, follows

from fedpriv.attacks.cdmi.attack import CDMI
from fedpriv.attacks.cdmi.generator import untrained
from fedpriv.config.attack import order
from fedpriv.runtime.run_folder import FINAL, START, RunFolder
from fedpriv.threat.access import (
    Architecture,
    ModelSeries,
    PublicDocuments,
    PublicModel,
    ScrubbedFields,
)
from fedpriv.threat.attack import AttackContext, NotApplicable
from fedpriv.threat.claims import PUBLIC, Attempt, FieldGuesses, Reconstruction
from fedpriv.threat.surfaces.fields import KeepScrubbed
from fedpriv.threat.truth import TruthStore

attacked = functools.partial(attacks.attacked, resamples=100)


@dataclass(frozen=True)
class GreedyAccess:
    models: ModelSeries
    fields: ScrubbedFields


@dataclass(frozen=True)
class Greedy:
    """Fills in the token that the target finds likeliest; the baseline always the first digit."""

    def run(self, access: GreedyAccess, context: AttackContext) -> tuple[FieldGuesses, ...]:
        context.log(f"{len(access.fields.fields)} fields")
        context.remarks.left_out["too odd"] = 0
        return tuple(self.guesses(build(), access.fields) for build in access.models.models)

    def guesses(self, box, scrubbed):
        found = []
        for one in scrubbed.fields:
            batch = scrubbed.examples.batch(np.array([one.number]))
            tokens = []
            for place in one.places:
                scores = box.model.token_scores(batch, torch.tensor([place]))
                tokens.append(int(scores.argmax()))
                batch["input_ids"][0, place] = tokens[-1]
            mine = Attempt(tuple(tokens), {"score": scores.max().item()})
            public = Attempt((7,) * len(tokens), {PUBLIC: 0.0})
            found.append(Reconstruction(one.number, (mine,), (public,)))
        return FieldGuesses(tuple(found), "score", box.name, box.round, box.measured)


@dataclass(frozen=True)
class SpyAccess(GreedyAccess):
    documents: PublicDocuments
    architecture: Architecture
    public: PublicModel | None


@dataclass(frozen=True)
class Spy:
    """Keeps what it is handed, and the models."""

    handed: list
    models: list = field(default_factory=list)

    def run(self, access: SpyAccess, context: AttackContext) -> tuple[FieldGuesses, ...]:
        self.handed.append((access, context))
        self.models.extend(build().model for build in access.models.models)
        return Greedy().run(access, context)


@dataclass(frozen=True)
class Refuses:
    def run(self, access: GreedyAccess, context: AttackContext) -> FieldGuesses:
        raise NotApplicable("there is nothing to work on")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return federation(tmp_path_factory.mktemp("runs"), source=OneCode()).run(6).run_dir


@pytest.fixture
def run(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "run")


def test_what_the_model_has_learnt_is_found_and_scored(run):
    found = attacked(run, Greedy(), follows, "greedy")
    assert found["status"] == "done"
    assert found["fields"] == 5
    assert found["pr"]["attack"] == 1.0
    assert found["pr"]["baseline"] == 0.0
    assert found["ipf"] > 10
    assert found["target"] == "the end of the run"
    assert found["perfect"][0]["occurrences"] == 5
    # A page held out is filled in as well, and a public one has the same code.
    assert found["ipf_held_out"] == found["ipf"]
    assert found["verdict"] == "cannot_tell"
    assert "every text is in another document too" in found["headline"]
    written = json.loads((run / "findings/greedy/result.json").read_text())
    kept = {name: found[name] for name in written["details"]}
    assert written["details"] == json.loads(json.dumps(kept))
    assert set(written["threat_model"]) == {"ModelSeries", "ScrubbedFields"}
    rows = json.loads((run / "findings/greedy/fields.json").read_text())
    assert [row["reconstruction"] for row in rows] == [row["truth"] for row in rows]
    assert [row["trained"] for row in rows] == [True] * 5 + [False] * 3
    assert (run / "findings/greedy/curves.json").is_file()


def test_fields_that_were_left_out_are_counted(tmp_path):
    class Bare(Codes):
        def load(self):
            loaded = super().load()
            pages = tuple(
                dataclasses.replace(d, entities=()) if n % 2 else d
                for n, d in enumerate(loaded.documents)
            )
            return dataclasses.replace(loaded, documents=pages)

    run = federation(tmp_path, source=Bare(), keep=[KeepScrubbed(keys=("code",))]).run(1).run_dir
    found = attacked(run, Greedy(), follows)
    assert found["left_out"]["no code in the document"] > 0
    assert found["left_out"]["too odd"] == 0


def test_before_the_training_nothing_is_known(run):
    found = attacked(run, Greedy(), follows, target="start")
    assert found["target"] == "before the training"
    assert found["pr"]["attack"] == 0.0
    assert found["ipf"] <= 1


def test_a_series_tells_how_much_is_known_after_each_round(run):
    found = attacked(run, Greedy(), follows, target="series", every=2)
    series = found["series"]
    assert [one["round"] for one in series] == [2, 4, 6]
    assert series[-1]["ipf"] == found["ipf"]
    assert all(one["loss"] > 0 and one["score"] == 0.5 for one in series)
    assert [one["loss"] for one in series] == sorted((o["loss"] for o in series), reverse=True)
    assert [table["headings"][0] for table in found["tables"]][-1] == "round"


def test_each_model_of_a_series_is_scored_as_it_would_be_alone(run):
    series = attacked(run, Greedy(), follows, target="series")["series"]
    for one in series[1], series[3]:
        alone = attacked(run, Greedy(), follows, target=one["round"])
        assert {name: alone[name] for name in ("ipf", "ipf_interval", "acc_at")} == {
            name: one[name] for name in ("ipf", "ipf_interval", "acc_at")
        }
        assert alone["series"] == []


def test_the_criteria_of_the_paper_choose_the_round(run):
    records = RunFolder(run).records("metrics.jsonl")
    records[3]["accuracy"], records[1]["loss"] = 0.9, -1.0
    RunFolder(run).write(
        "metrics.jsonl", "".join(json.dumps(record) + "\n" for record in records).encode()
    )
    for criterion, round in {"precision": 4, "loss": 2}.items():
        found = attacked(run, Greedy(), follows, target=criterion)
        assert found["target"] == f"round {round}, of the best validation {criterion}"
    for number, record in enumerate(records):
        record["f1"] = 0.2 if number == 4 else 0.1
    RunFolder(run).write(
        "metrics.jsonl", "".join(json.dumps(record) + "\n" for record in records).encode()
    )
    found = attacked(run, Greedy(), follows, target="precision")
    assert found["target"].startswith("round 5")


def test_a_rounds_own_model_is_attacked(run):
    spy = Spy([])
    for target in (1, 6, "final", "start"):
        attacked(run, spy, follows, target=target)
    tables = [model.table for model in spy.models]
    assert not tables[0].equal(tables[1])
    assert tables[1].equal(tables[2])
    assert not tables[3].any()
    assert not any(model.training for model in spy.models)


def test_a_round_that_was_not_kept_is_named(tmp_path):
    run = federation(tmp_path, keep_checkpoints=1).run(3).run_dir
    found = attacked(run, Greedy(), follows, target=1)
    assert found["status"] == "not granted"
    assert "round 1 was not kept, but those of rounds [3]" in found["headline"]


def test_no_attack_is_handed_the_truth_or_a_way_to_it(run):
    handed = []
    attacked(run, Spy(handed), follows)
    access, context = handed[0]
    truths = {truth.tokens for truth in TruthStore(RunFolder(run)).fields().values()}
    for row in access.fields.examples.column("input_ids"):
        windows = {tuple(row[n : n + 3].tolist()) for n in range(len(row) - 2)}
        assert not windows & truths
    told = [repr(one) for one in (access.fields, access.architecture, access.public, context)]
    told += [str(d.page) for d in access.documents.documents]
    assert not any(str(run) in text for text in told)


def test_an_attack_needs_the_folder_only(run, tmp_path):
    before = attacked(run, Greedy(), follows)
    moved = tmp_path / "elsewhere"
    shutil.move(run, moved)
    after = attacked(moved, Greedy(), follows)
    timed = ("seconds", "numbers")
    same = [{k: v for k, v in m.items() if k not in timed} for m in (before, after)]
    assert same[0] == same[1]


def test_as_many_fields_as_asked_for(run):
    handed = []
    found = attacked(run, Spy(handed), follows, most_fields=2)
    assert found["fields"] == found["held_out"]["fields"] == 2
    assert len(handed[0][0].fields.fields) == 4
    again = []
    attacked(run, Spy(again), follows, most_fields=2)
    assert handed[0][0].fields.fields == again[0][0].fields.fields


@pytest.mark.parametrize(("controls", "count"), [(None, 3), (1, 1), (0, 0)])
def test_as_many_controls_as_asked_for(run, controls, count):
    handed = []
    found = attacked(run, Spy(handed), follows, controls=controls)
    assert len(handed[0][0].fields.fields) == 5 + count
    assert (found["held_out"] or {"fields": 0})["fields"] == count
    assert found["fields"] == 5


def test_the_adversarys_model_starts_as_the_run_did(run):
    class Encoded(Follows):
        def __init__(self, labels=(), task="mlm"):
            super().__init__(labels, task)
            self.encoder = torch.nn.Linear(2, 2)

    model = Encoded()
    state = model.state_dict()
    folder = RunFolder(run)
    folder.save_state(START, state)
    folder.save_state(FINAL, state)
    spy = Spy([])
    for public_start in (True, False):
        attacked(run, spy, Encoded, public_start=public_start)
    own = [
        untrained(access.architecture, target, access.public).encoder.weight
        for (access, _), target in zip(spy.handed, spy.models, strict=True)
    ]
    assert own[0].equal(model.encoder.weight)
    assert not own[1].equal(model.encoder.weight)


def test_an_attack_that_cannot_work_says_so(run):
    found = attacked(run, Refuses(), follows, "refuses")
    assert (found["status"], found["headline"]) == (
        "not applicable",
        "not applicable: there is nothing to work on",
    )
    written = json.loads((run / "findings/refuses/result.json").read_text())
    assert written["headline"] == found["headline"]


def test_weights_that_lora_adapts_are_the_generators_too():
    class Linear(Follows):
        def __init__(self, labels=(), task="mlm"):
            super().__init__(labels, task)
            self.query = torch.nn.Linear(2, 2)

    ones = torch.ones(2, 2)
    state = {"query.base_layer.weight": ones, "query.lora_A.weight": ones}
    public = SimpleNamespace(state=state)
    adapted = untrained(Architecture(Linear), Linear(), public)
    assert adapted.query.weight.equal(ones)


def test_a_model_without_a_masked_task_is_named():
    def stubborn(labels=()):
        return Follows(labels)

    with pytest.raises(NotApplicable, match="masked language modelling"):
        untrained(Architecture(stubborn), stubborn(), None)


def test_a_model_that_tells_no_loss_of_its_own_is_named(run):
    found = attacked(run, Greedy(), lambda labels=(): torch.nn.Linear(2, 2))
    assert found["status"] == "not applicable"
    assert "Linear does not tell its loss example by example: take model=lay" in found["headline"]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"target": "best"}, "target='best': expected a round's number, or final, start"),
        ({"most_fields": 0}, "most_fields=0: expected at least 1"),
        ({"every": 0}, "every=0"),
        ({"epsilon": 0.0}, "epsilon=0.0: expected a positive number"),
        ({"confidence": 1.0}, "confidence=1.0"),
        ({"device": "cuda:7"}, "device='cuda:7': .*; this machine has cpu"),
        ({"device": "gpu"}, "device='gpu': torch has no device of that name .*this machine has"),
        ({"device": "meta"}, "device='meta': "),
        ({"resamples": 3}, "resamples=3: expected at least 100"),
    ],
)
def test_impossible_settings_are_refused(settings, says):
    with pytest.raises(ValueError, match=says):
        order(CDMI(), **settings)


def test_a_finding_is_named_as_a_folder_can_be(run):
    with pytest.raises(ValueError, match="expected the name of a folder"):
        attacked(run, Greedy(), follows, "a/b")
