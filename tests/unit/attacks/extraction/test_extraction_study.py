"""The whole study on a model that remembers colours, whose every number can be foretold.

A model that has not seen a page's colour says the first of four names. So of the canaries all are
extracted from a model that was trained with them, and from others those of the first name only.
"""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from toy_answers import WORDS

from fedpriv.config.experiment import Mistakes
from fedpriv.runtime.run_folder import RunFolder
from fedpriv.threat import studying

EXPERIMENT = str(Path(__file__).parents[3] / "system" / "extraction.yaml")


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    runs = tmp_path_factory.mktemp("study")
    folder, _ = studying.start(EXPERIMENT, [f"runs={runs}"], tell=lambda line: None)
    return folder


@pytest.fixture(scope="module")
def metrics(study):
    return found(study, "metrics")


def found(folder, name):
    return json.loads((folder.path / "findings" / "extraction" / f"{name}.json").read_text())


def guessed(study):
    """How many canaries have the name that a model without memory says."""
    rows = found(study, "canaries")
    return sum(int(row["document"].removeprefix("b")) % len(WORDS) == 0 for row in rows)


def test_all_are_extracted_and_those_of_the_first_name_without_training(study, metrics):
    first = guessed(study)
    assert 0 < first < 12
    assert (metrics["E"], metrics["G"], metrics["M"]) == (12, first, 12 - first)
    assert metrics["canaries"]["kept"] == 12


def test_scores_tell_memory_from_what_is_said_anyway(study, metrics):
    rows = found(study, "canaries")
    for row in rows:
        general = int(row["document"].removeprefix("b")) % len(WORDS) == 0
        assert row["memorization"] == (0.0 if general else 1.0)
        assert row["simplicity"] == (2.0 if general else 1.0)
        assert row["G"] == general
    assert metrics["memorization"]["of_M"]["mean"] == 1.0
    assert metrics["memorization"]["of_G"]["mean"] == 0.0
    assert metrics["memorization"]["rank_test"]["auc"] == 1.0
    assert metrics["memorization"]["p"] < 0.01


def test_each_canary_is_trained_on_in_half_of_the_splits(study):
    names = {row["name"] for row in found(study, "canaries")}
    plan = study.read_json("plan.json")
    left_out = Counter(
        name for split in range(8) for name in plan[f"split-{split:02}"]["data"]["unasked"]
    )
    assert left_out == dict.fromkeys(names, 4)
    assert set(plan["all-without"]["data"]["unasked"]) == names
    assert not plan["all"]["data"].get("unasked")


def test_contexts_that_keep_the_colour_lose_nothing_and_a_foreign_page_does(metrics):
    contexts = metrics["contexts"]
    assert contexts["no_text"]["M"] == contexts["baseline"]["M"] == metrics["M"]
    assert contexts["shuffle"]["M"] < metrics["M"]
    assert set(contexts) == {"baseline", "no_text", "shuffle", "brightness_0.5"}


def test_the_defences_at_inference_do_nothing_against_a_model_that_sees_colours(metrics):
    for name in ("none", "PR", "AR", "ITP"):
        row = metrics["defences"][name]
        assert (row["M"], row["anls_change"]) == (metrics["M"], 0.0)


def test_controls_come_to_nothing(study, metrics):
    assert metrics["controls"]["untrained"] == {"E": guessed(study), "canaries": 12}
    assert metrics["controls"]["unseen"]["E"] == metrics["controls"]["unseen"]["G"]


def test_the_half_that_was_trained_on_is_told_by_the_loss(metrics):
    assert metrics["side_channel"]["standard"]["auc"] == 1.0


def test_no_answer_stands_in_the_findings_unless_it_may(study, tmp_path):
    assert not any("answer" in row for row in found(study, "canaries"))
    quick = ["splits=0", "study.contexts=[]", "study.prompts=[]", "study.controls=false"]
    folder, metrics = studying.start(
        EXPERIMENT, [f"runs={tmp_path}", "study.originals=true", *quick], tell=lambda line: None
    )
    assert {row["answer"] for row in found(folder, "canaries")} <= set(WORDS)
    assert "memorization" not in metrics
    assert sorted(p.name for p in (folder.path / "trainings").iterdir()) == ["all", "all-without"]


def test_a_resumed_study_trains_nothing_again_and_says_the_same(study):
    before = found(study, "metrics")
    lines = []
    studying.resume(RunFolder.existing(study.path), tell=lines.append)
    assert "12 trainings, 0 to do" in lines[0]
    again = found(study, "metrics")
    assert {**again, "seconds": 0} == {**before, "seconds": 0}


def test_the_least_validation_loss_chooses_a_round(tmp_path):
    quick = ["splits=0", "study.contexts=[]", "study.prompts=[]", "study.controls=false"]
    folder, _ = studying.start(
        EXPERIMENT,
        [
            f"runs={tmp_path}",
            "study.target=loss",
            "federation.keep_checkpoints=0",
            *quick,
        ],
        tell=lambda line: None,
    )
    training = RunFolder.existing(folder.path / "trainings" / "all")
    losses = {r["round"]: r["loss"] for r in training.records("metrics.jsonl")}
    best = min(losses, key=losses.get)
    from fedpriv.attacks.extraction.asking import trained_model

    chosen = trained_model(training.path, "loss").state_dict()["weights"]
    assert np.array_equal(chosen, training.checkpoint(best).model["weights"])
    assert not np.array_equal(chosen, trained_model(training.path, "final").state_dict()["weights"])


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("splits=7", "expected an even number"),
        ("study.contexts=[rotate_7]", "contexts names"),
        ("study.prompts=[XX]", "prompts names"),
        ("study.target=best", "target"),
    ],
)
def test_mistakes_are_named(override, message, tmp_path):
    with pytest.raises(Mistakes, match=message):
        studying.start(EXPERIMENT, [f"runs={tmp_path}", override])


def test_too_many_canaries_are_refused_before_anything_starts(tmp_path):
    with pytest.raises(ValueError, match="count=30: there are 20 samples"):
        studying.start(EXPERIMENT, [f"runs={tmp_path}", "study.curation.count=30"])
    assert not list(tmp_path.iterdir())
