"""The variants of a run that an attack trained, as its report lists them."""

import json

import pytest

from fedpriv.report.build import write_report
from fedpriv.report.folder import read_run
from fedpriv.report.trainings import trainings_view


def train(folder, name, rounds, report=True):
    own = folder / "retrained" / name
    own.mkdir(parents=True)
    rows = [{"round": n, "anls": n / 10, "loss": 1 / n} for n in range(1, rounds + 1)]
    (own / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if report:
        (own / "report.html").write_text("a report")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "config.yaml").write_text("name: attacked\nseed: 1\nrounds: 3\n")
    train(tmp_path, 'all "b" #1', 3)
    train(tmp_path, "with out", 2, report=False)
    plan = {'all "b" #1': {"rounds": 3}, "with out": {"rounds": 3}, "later": {"rounds": 3}}
    (tmp_path / "retrained" / "plan.json").write_text(json.dumps({**plan, "odd": 3}))
    return tmp_path


def rows(folder):
    shown = trainings_view(read_run(folder).trainings)
    return {row.name: (row.rounds, *row.values) for row in shown.rows}, list(shown.headings)


def test_a_row_for_each_training_says_how_far_it_came(folder):
    assert rows(folder) == (
        {
            'all "b" #1': ("3 of 3", "0.300", "0.333"),
            "with out": ("2 of 3", "0.200", "0.500"),
            "later": ("0 of 3", "—", "—"),
            "odd": ("0", "—", "—"),
        },
        ["ANLS", "held-out loss"],
    )


def test_without_a_plan_those_are_shown_that_are_there(folder):
    (folder / "retrained" / "plan.json").unlink()
    assert rows(folder)[0] == {
        'all "b" #1': ("3", "0.300", "0.333"),
        "with out": ("2", "0.200", "0.500"),
    }


def test_a_training_with_a_report_leads_to_it(folder):
    page = write_report(folder).read_text("utf-8")
    assert 'href="retrained/all%20%22b%22%20%231/report.html"' in page
    assert 'href="retrained/with' not in page
    assert 'href="#trainings"' in page
    for cells in (("3 of 3", "0.300", "0.333"), ("2 of 3", "0.200", "0.500"), ("0 of 3", "—")):
        assert "".join(f'<td class="number">{cell}</td>' for cell in cells) in page


def test_a_run_without_any_has_no_section(tmp_path):
    (tmp_path / "config.yaml").write_text("name: run\nrounds: 1\n")
    (tmp_path / "metrics.jsonl").write_text('{"round": 1, "loss": 1.0}\n')
    page = write_report(tmp_path).read_text("utf-8")
    assert 'id="curves"' in page
    assert 'id="trainings"' not in page
