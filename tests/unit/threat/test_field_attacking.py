"""The driver of attacks on scrubbed fields: which model, what is handed over, what is left."""

import dataclasses
import inspect
import json
import shutil

import numpy as np
import pytest
import torch
from toy_fields import Codes, Follows, federation, follows

from fedpriv.runtime.run_folder import RunFolder
from fedpriv.threat.attack import NotApplicable
from fedpriv.threat.claims import PUBLIC, Attempt, Reconstruction
from fedpriv.threat.field_attacking import FieldAttackRun, _Models
from fedpriv.threat.fields_game import Reconstructions
from fedpriv.threat.truth import TruthStore


@dataclasses.dataclass(frozen=True)
class Greedy:
    """Fills in the token that the target finds likeliest; the baseline always the first digit."""

    def reconstruct(self, box, scrubbed, bench):
        bench.tell(f"{len(scrubbed.fields)} fields")
        found = []
        for field in scrubbed.fields:
            batch = scrubbed.examples.batch(np.array([field.number]))
            tokens = []
            for place in field.places:
                scores = box.target.token_scores(batch, torch.tensor([place]))
                tokens.append(int(scores.argmax()))
                batch["input_ids"][0, place] = tokens[-1]
            mine = Attempt(tuple(tokens), {"score": scores.max().item()})
            public = Attempt((7,) * len(tokens), {PUBLIC: 0.0})
            found.append(Reconstruction(field.number, (mine,), (public,)))
        return Reconstructions(tuple(found), "score", left_out={"too odd": 0})


@dataclasses.dataclass(frozen=True)
class Spy:
    """Keeps what it is handed."""

    handed: list

    def reconstruct(self, box, scrubbed, bench):
        self.handed.append((box, scrubbed, bench))
        return Greedy().reconstruct(box, scrubbed, bench)


@dataclasses.dataclass(frozen=True)
class Refuses:
    def reconstruct(self, box, scrubbed, bench):
        raise NotApplicable("there is nothing to work on")


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDPRIV_CACHE", str(tmp_path / "cache"))
    # One code on every page: a model of which token follows which can learn it by heart.
    return federation(tmp_path / "runs", source=Same()).run(6).run_dir


class Same(Codes):
    def load(self):
        loaded = super().load()
        words = loaded.documents[0].words
        same = tuple(dataclasses.replace(d, words=words) for d in loaded.documents)
        return dataclasses.replace(loaded, documents=same)


def test_what_the_model_has_learnt_is_found_and_scored(run):
    lines = []
    metrics = FieldAttackRun(Greedy(), "greedy").on(run, follows, lines.append)
    assert metrics["status"] == "done"
    assert metrics["fields"] == 5
    assert metrics["pr"]["attack"] == 1.0
    assert metrics["pr"]["baseline"] == 0.0
    assert metrics["ipf"] > 10
    assert metrics["target"] == "the end of the run"
    assert metrics["perfect"][0]["occurrences"] == 5
    assert lines == ["attacking the model of the end of the run", "5 fields"]
    written = json.loads((run / "findings/greedy/metrics.json").read_text())
    assert written == json.loads(json.dumps(metrics))
    assert (run / "findings/greedy/fields.json").is_file()


def test_before_the_training_nothing_is_known(run):
    metrics = FieldAttackRun(Greedy(), "greedy", target="start").on(run, follows)
    assert metrics["target"] == "before the training"
    assert metrics["pr"]["attack"] == 0.0


def test_a_series_tells_how_much_is_known_after_each_round(run):
    metrics = FieldAttackRun(Greedy(), "greedy", target="series", every=2).on(run, follows)
    series = metrics["series"]
    assert [one["round"] for one in series] == [2, 4, 6]
    assert series[-1]["ipf"] == metrics["ipf"]
    assert all(one["loss"] > 0 and one["score"] == 0.5 for one in series)
    assert [one["loss"] for one in series] == sorted((o["loss"] for o in series), reverse=True)


def test_the_criteria_of_the_paper_choose_the_round(run):
    records = RunFolder(run).records("metrics.jsonl")
    records[3]["accuracy"], records[1]["loss"] = 0.9, -1.0
    RunFolder(run).write(
        "metrics.jsonl", "".join(json.dumps(record) + "\n" for record in records).encode()
    )
    for criterion, round in {"precision": 4, "loss": 2}.items():
        metrics = FieldAttackRun(Greedy(), "g", target=criterion).on(run, follows)
        assert metrics["target"] == f"round {round}, of the best validation {criterion}"
    for number, record in enumerate(records):
        record["f1"] = 0.2 if number == 4 else 0.1
    RunFolder(run).write(
        "metrics.jsonl", "".join(json.dumps(record) + "\n" for record in records).encode()
    )
    metrics = FieldAttackRun(Greedy(), "g", target="precision").on(run, follows)
    assert metrics["target"].startswith("round 5")


def test_a_rounds_own_model_is_attacked(run):
    handed = []
    for target in (1, 6, "final", "start"):
        FieldAttackRun(Spy(handed), "spy", target=target).on(run, follows)
    tables = [box.target.table for box, _, _ in handed]
    assert not tables[0].equal(tables[1])
    assert tables[1].equal(tables[2])
    assert not tables[3].any()


def test_a_round_that_was_not_kept_is_named(tmp_path):
    run = federation(tmp_path, keep_checkpoints=1).run(3).run_dir
    with pytest.raises(ValueError, match=r"round 1 was not kept, but those of rounds \[3\]"):
        FieldAttackRun(Greedy(), "greedy", target=1).on(run, follows)


def test_no_attack_is_handed_the_truth_or_a_way_to_it(run):
    handed = []
    FieldAttackRun(Spy(handed), "spy").on(run, follows)
    box, scrubbed, bench = handed[0]
    truths = {truth.tokens for truth in TruthStore(RunFolder(run)).fields().values()}
    for row in scrubbed.examples.column("input_ids"):
        windows = {tuple(row[n : n + 3].tolist()) for n in range(len(row) - 2)}
        assert not windows & truths
    told = [repr(one) for one in (scrubbed.fields, scrubbed.assumptions, bench)]
    told += [str(d.page) for d in scrubbed.public]
    closed = inspect.getclosurevars(box.build_generator).nonlocals
    told.append(repr({n: v for n, v in closed.items() if n != "start"}))
    assert not any(str(run) in text for text in told)


def test_an_attack_needs_the_folder_only(run, tmp_path):
    before = FieldAttackRun(Greedy(), "greedy").on(run, follows)
    moved = tmp_path / "elsewhere"
    shutil.move(run, moved)
    after = FieldAttackRun(Greedy(), "greedy").on(moved, follows)
    same = [{k: v for k, v in m.items() if k != "seconds"} for m in (before, after)]
    assert same[0] == same[1]


def test_as_many_fields_as_asked_for(run):
    handed = []
    metrics = FieldAttackRun(Spy(handed), "spy", most_fields=2).on(run, follows)
    assert metrics["fields"] == len(handed[0][1].fields) == 2
    again = []
    FieldAttackRun(Spy(again), "spy", most_fields=2).on(run, follows)
    assert handed[0][1].fields == again[0][1].fields


def test_the_adversarys_model_starts_as_the_run_did(run):
    class Encoded(Follows):
        def __init__(self, labels=(), task="mlm"):
            super().__init__(labels, task)
            self.encoder = torch.nn.Linear(2, 2)

    model = Encoded()
    state = model.state_dict()
    folder = RunFolder(run)
    folder.save_start(state)
    folder.save_final(state)
    handed = []
    build = lambda labels=(), task="mlm": Encoded(labels, task)  # noqa: E731
    for public_start in (True, False):
        FieldAttackRun(Spy(handed), "spy", public_start=public_start).on(run, build)
    own = [box.build_generator().encoder.weight for box, _, _ in handed]
    assert own[0].equal(model.encoder.weight)
    assert not own[1].equal(model.encoder.weight)


def test_an_attack_that_cannot_work_says_so(run):
    metrics = FieldAttackRun(Refuses(), "refuses").on(run, follows)
    assert metrics == {"status": "not_applicable", "reason": "there is nothing to work on"}
    assert json.loads((run / "findings/refuses/metrics.json").read_text()) == metrics


def test_one_model_of_a_series_that_cannot_be_attacked_does_not_cost_the_others(run):
    class Sometimes(Greedy):
        def reconstruct(self, box, scrubbed, bench):
            if abs(box.target.table).max() < 0.6:  # after one step of 0.5
                raise NotApplicable("too early")
            return super().reconstruct(box, scrubbed, bench)

    metrics = FieldAttackRun(Sometimes(), "sometimes", target="series").on(run, follows)
    assert metrics["not_applicable"] == {"round 1": "too early"}
    assert [one["round"] for one in metrics["series"]] == [2, 3, 4, 5, 6]


def test_weights_that_lora_adapts_are_the_generators_too():
    class Linear(Follows):
        def __init__(self, labels=(), task="mlm"):
            super().__init__(labels, task)
            self.query = torch.nn.Linear(2, 2)

    models = _Models(lambda labels=(), task="mlm": Linear(labels, task), ("code",), "cpu")
    ones = torch.ones(2, 2)
    adapted = models.generator({"query.base_layer.weight": ones, "query.lora_A.weight": ones})
    assert adapted.query.weight.equal(ones)


def test_a_model_without_a_masked_task_is_named(run):
    def stubborn(labels=()):
        return Follows(labels)

    class Asks(Greedy):
        def reconstruct(self, box, scrubbed, bench):
            box.build_generator()

    metrics = FieldAttackRun(Asks(), "asks").on(run, stubborn)
    assert "masked language modelling" in metrics["reason"]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"target": "best"}, "target='best': expected a round's number, or final, start"),
        ({"most_fields": 0}, "most_fields=0: expected at least 1"),
        ({"every": 0}, "every=0"),
        ({"epsilon": 0.0}, "epsilon=0.0: expected a positive number"),
        ({"confidence": 1.0}, "confidence=1.0"),
        ({"device": "cuda:7"}, "device='cuda:7': torch finds no GPU here"),
        ({"resamples": 3}, "resamples=3: expected at least 100"),
        ({"name": "a/b"}, "expected the name of a folder"),
    ],
)
def test_impossible_settings_are_refused(settings, says):
    with pytest.raises(ValueError, match=says):
        FieldAttackRun(Greedy(), **{"name": "greedy", **settings})
