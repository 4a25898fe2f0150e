"""The experiment `extraction`, small: a Donut that learns cards by heart, and its controls."""

import pytest
from experiments_run import ran, result_of

pytestmark = pytest.mark.slow

SMALL = [
    "pretraining=none",
    "attack.splits=4",
    "rounds=1",
    "training.epochs=20",
    "training.lr=2e-3",
    "data.source.documents_per_provider=4",
    "data.source.questions=[customer]",
    "data.canaries.documents_per_provider=4",
    "data.canaries.cards_per_customer=[1,1,2,4]",
    "attack.curation.count=8",
    "attack.resolutions=null",
    "attack.dp=[]",
    "attack.exposure=null",
    "attack.contexts=[no_text,constant_white]",
    "attack.prompts=[PR]",
]


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    runs = tmp_path_factory.mktemp("extraction")
    return ran("run", "extraction", f"runs={runs}", *SMALL)[1]


@pytest.fixture(scope="module")
def metrics(study):
    return result_of(study)["details"]


def test_what_was_learnt_by_heart_is_extracted(metrics):
    canaries = metrics["canaries"]["kept"]
    assert metrics["M"] >= 0.7 * canaries
    assert metrics["G"] <= 0.2 * canaries
    assert metrics["memorization"]["mean"] > 0.3
    assert metrics["memorization"]["p"] < 0.01


def test_an_untrained_model_says_nothing_and_one_without_the_canaries_no_more_than_another(metrics):
    assert metrics["controls"]["untrained"]["E"] == 0
    assert metrics["controls"]["unseen"]["p"] > 0.05
    null = metrics["memorization"]["null"]
    assert null["low"] <= 0 <= null["high"]


def test_without_the_page_nothing_is_extracted(metrics):
    assert metrics["contexts"]["constant_white"]["M"] <= 0.2 * metrics["M"]


def test_blocking_keeps_a_part_from_being_extracted_even_in_so_short_a_training(metrics):
    # In the whole experiment, which is trained for longer, it leaves nothing.
    assert metrics["defences"]["EB"]["M"] <= 0.75 * metrics["M"]


def test_the_report_shows_what_was_trained_and_asked(study):
    page = (study.path / "report.html").read_text("utf-8")
    assert "split-03" in page
    assert "no text" in page


def test_a_finished_study_is_resumed_without_anything_to_train(study):
    before = result_of(study)
    status, folder, said = ran("resume", study.path)
    assert status == 0, said
    assert ", 0 to do" in said
    again = result_of(folder)["details"]
    assert again | {"seconds": 0} == before["details"] | {"seconds": 0}
