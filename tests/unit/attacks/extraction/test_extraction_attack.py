"""Extraction from a model that remembers colours, whose every number can be foretold.

A model that has not seen a page's colour says the first of four names. So of the canaries all are
extracted from a model that was trained with them, and from others those of the first name only.
"""

import json
from collections import Counter
from pathlib import Path

import pytest
from experiments_run import ran, result_of
from toy_answers import WORDS

from fedpriv.studies.retraining import least_loss

ALONE = str(Path(__file__).parents[3] / "system" / "extraction_alone.yaml")
EXPERIMENT = str(Path(__file__).parents[3] / "system" / "extraction.yaml")


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    runs = tmp_path_factory.mktemp("study")
    status, folder, _ = ran("run", EXPERIMENT, f"runs={runs}")
    assert status == 0
    return folder


@pytest.fixture(scope="module")
def metrics(study):
    return result_of(study)["details"]


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
    plan = study.read_json("retrained/plan.json")
    left_out = Counter(
        name for split in range(8) for name in plan[f"split-{split:02}"]["data"]["unasked"]
    )
    assert left_out == dict.fromkeys(names, 4)
    assert set(plan["all-without"]["data"]["unasked"]) == names
    assert not study.config()["data"].get("unasked")


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


QUICK = ("attack.splits=0", "attack.contexts=[]", "attack.prompts=[]", "attack.controls=false")


@pytest.mark.slow
def test_no_answer_stands_in_the_findings_unless_it_may(study, tmp_path):
    assert not any("answer" in row for row in found(study, "canaries"))
    _, folder, _ = ran("run", EXPERIMENT, f"runs={tmp_path}", "attack.originals=true", *QUICK)
    assert {row["answer"] for row in found(folder, "canaries")} <= set(WORDS)
    assert "memorization" not in result_of(folder)["details"]
    assert sorted(p.name for p in (folder.path / "retrained").iterdir()) == [
        "all-without",
        "plan.json",
    ]


@pytest.mark.slow
def test_a_resumed_run_trains_nothing_again_and_says_the_same(study):
    before = result_of(study)["details"]
    status, _, told = ran("resume", study.path, "--trust")
    assert status == 0
    assert "11 trainings, 0 to do" in told
    assert {**result_of(study)["details"], "seconds": 0} == {**before, "seconds": 0}


@pytest.mark.slow
def test_the_least_validation_loss_chooses_a_round(tmp_path):
    chosen = ("attack.target=loss", "federation.keep_checkpoints=0")
    _, folder, _ = ran("run", EXPERIMENT, f"runs={tmp_path}", *chosen, *QUICK)
    losses = {r["round"]: r["loss"] for r in folder.records("metrics.jsonl")}
    assert least_loss(folder) == min(losses, key=losses.get)
    assert result_of(folder)["details"]["target"] == "loss"


def test_a_finished_run_is_attacked_by_the_one_command(tmp_path):
    """Without training again it gives E; with it, the same as the experiment itself."""
    _, folder, _ = ran("run", ALONE, f"runs={tmp_path}")
    assert not (folder.path / "findings").exists()
    chosen = ["attack=extraction", "attack.curation.count=12", "attack.curation.rules=[]"]
    chosen += ["attack.contexts=[no_text]", "attack.blocking=false", "attack.prompts=[]"]
    status, _, told = ran("attack", folder.path, *chosen, "--trust")
    assert status == 0
    result = result_of(folder)
    assert result["details"]["E"] == 12
    assert "M" not in result["details"]
    assert "retrain=false: no variant of the run is trained; granted by retrain=true" in told
    assert not (folder.path / "retrained").exists()
    few = ["attack.splits=2", "attack.controls=false", "retrain=true"]
    assert ran("attack", folder.path, *chosen, *few, "--trust")[0] == 0
    assert result_of(folder)["details"]["M"] > 0
    assert result_of(folder)["threat_model"] == {
        "BlackBox": True, "TrainingDocuments": True, "Retrain": True
    }  # fmt: skip


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("attack.splits=7", "expected an even number"),
        ("attack.contexts=[rotate_7]", "contexts names"),
        ("attack.prompts=[XX]", "prompts names"),
        ("attack.target=best", "target"),
        ("attack.curation.count=30", "count=30: there are 20 samples"),
        ('attack.dp=["client.faluts=1"]', "DP: client.faluts"),
    ],
)
def test_mistakes_are_named_before_anything_starts(override, message, tmp_path):
    status, _, told = ran("run", EXPERIMENT, f"runs={tmp_path}", override)
    assert status == 2
    assert message in told
    assert not list(tmp_path.iterdir())
