"""The papers' tables from one command: found by name, run once, beside the paper's numbers."""

import csv
import json
from pathlib import Path

import pytest
from processes import TOY

from fedpriv.cli.main import main
from fedpriv.config import catalogue, reproduce, sweep
from fedpriv.config.experiment import Mistakes
from fedpriv.runtime.run_folder import FINAL

FILE = f"""
# A toy of a table
experiment: {TOY}
seeds: [0]
run: {{data.clients: 4, rounds: 1}}
attack: {{attack: toy_sweep.Guess, attack.value: 5.0}}
rows:
  guessed: {{}}
  lucky: {{attack: {{attack.value: 10.0}}}}
columns: {{value: the value}}
paper: Nobody 2026, Table 98
published:
  lucky: {{value: 12.5}}
claims:
  - text: luck beats guessing
    says: "value: lucky > guessed"
  - "value: guessed > lucky"
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A working directory with two tables of its own for a paper."""
    monkeypatch.chdir(tmp_path)
    tables = tmp_path / "experiments" / "papers" / "cdmi"
    tables.mkdir(parents=True)
    (tables / "table_98.yaml").write_text(FILE)
    (tables / "table_99.yaml").write_text(FILE.replace("guessed", "tried"))
    return tmp_path


def test_every_sweep_of_a_paper_is_a_table_of_it():
    listed = {sweep for paper in reproduce.PAPERS for sweep in reproduce.tables(paper).values()}
    others = {name for name in catalogue.sweeps() if name.startswith("papers/private/")}
    assert listed | others == set(catalogue.sweeps())
    assert reproduce.tables("gi-dqa")["table1"] == "papers/gi_dqa/table_1"


def test_a_table_has_three_seeds_or_as_many_as_are_asked_for():
    assert reproduce.read("cdmi", "table98").seeds == (0, 1, 2)
    assert reproduce.read("cdmi", "table_98", ["seeds=2"]).seeds == (0, 1)
    assert reproduce.read("cdmi", "table98", ["seeds=[7,8]"]).seeds == (7, 8)
    # Seeds that settings were chosen with are not among them.
    assert reproduce.read("gi-dqa", "tunedbaselines").seeds == (21, 22, 23)
    assert 0 not in reproduce.read("gi-dqa", "table1").seeds
    other = reproduce.read("cdmi", "table98", ["run.rounds=2", "seeds=1", "runs=/tmp/me"])
    assert other.command == "fedpriv reproduce cdmi table98 run.rounds=2 seeds=1"


@pytest.mark.parametrize(
    ("paper", "table", "words", "why"),
    [
        ("cdm", "table98", [], "there is no paper 'cdm'; did you mean 'cdmi'"),
        ("cdmi", "table97", [], "there is no table 'table97'; did you mean 'table9"),
        ("extraction", "table1", [], "expected none yet"),
        ("cdmi", "table98", ["rows=[unlucky]"], "unlucky"),
        ("cdmi", "table98", ["seeds=0"], "seeds"),
    ],
)
def test_mistakes(paper, table, words, why):
    with pytest.raises(Mistakes, match=why):
        reproduce.read(paper, table, words)


def test_numbers_of_the_paper_are_of_rows_that_are_there(folder):
    file = folder / "experiments" / "papers" / "cdmi" / "table_98.yaml"
    file.write_text(FILE.replace("  lucky: {value: 12.5}", "  plucky: {value: 12.5}"))
    with pytest.raises(Mistakes, match=r"published: there is no row 'plucky'.*'lucky'"):
        sweep.read("papers/cdmi/table_98")


def test_numbers_of_the_paper_are_of_columns_that_are_there(folder):
    file = folder / "experiments" / "papers" / "cdmi" / "table_98.yaml"
    file.write_text(FILE.replace("lucky: {value: 12.5}", "lucky: {valeu: 12.5}"))
    with pytest.raises(Mistakes, match=r"published: there is no column 'valeu'.*'value'"):
        sweep.read("papers/cdmi/table_98")
    file.write_text(FILE.replace("lucky: {value: 12.5}", "experiment=x: {lucky: {value: many}}"))
    with pytest.raises(Mistakes, match="published: lucky: value='many': expected a number"):
        reproduce.read("cdmi", "table98", ["seeds=1"])


def test_numbers_of_the_paper_may_be_those_of_a_choice():
    tiny = {
        model: reproduce.read("gi-dqa", "table1", [f"model={model}"]).published["GI-DQA"]
        for model in ("donut", "layoutlmv3")
    }
    assert [one["psnr_roi"] for one in tiny.values()] == [24.194, 22.713]


def test_a_claim_is_an_ordering_or_words_and_an_ordering(folder):
    file = folder / "experiments" / "papers" / "cdmi" / "table_98.yaml"
    file.write_text(FILE.replace("says:", "means:"))
    with pytest.raises(Mistakes, match="expected an ordering, or text and says"):
        sweep.read("papers/cdmi/table_98")


def test_a_table_is_run_beside_the_papers_and_shares_its_runs(capsys):
    assert main(["reproduce", "cdmi", "table98", "seeds=6"]) == 0
    out = capsys.readouterr().out.splitlines()
    place = Path(out[-1])
    assert "10.000 (paper: 12.500)" in "\n".join(out)
    assert "- luck beats guessing: holds: 10.000 against 5.000" in "\n".join(out)
    content = json.loads((place / "table.json").read_text())
    assert content["paper"] == "Nobody 2026, Table 98"
    assert [(one["text"], one["holds"]) for one in content["claims"]] == [
        ("luck beats guessing", True),
        ("value: guessed > lucky", False),
    ]
    lucky = content["rows"][1]
    assert (lucky["row"], lucky["seeds"]) == ("lucky", [*range(6)])
    assert lucky["columns"]["value"] == {"mean": 10, "low": 10, "high": 10, "paper": 12.5}
    with (place / "table.csv").open(encoding="utf-8") as file:
        assert [*csv.DictReader(file)][1]["paper"] == "12.5"
    page = (place / "report.html").read_text()
    assert "luck beats guessing" in page
    assert "(paper: 12.500)" in page
    assert "Numbers of the paper are of Nobody 2026, Table 98." in page
    assert "Numbers of the paper" in "\n".join(out)

    # Another table of the paper trains nothing that this one has trained.
    trained = {path: path.stat().st_mtime_ns for path in Path("runs").rglob(FINAL)}
    assert len(trained) == 6
    assert main(["reproduce", "cdmi", "table99", "seeds=6"]) == 0
    assert {path: path.stat().st_mtime_ns for path in Path("runs").rglob(FINAL)} == trained
    rows = json.loads((place / "results.json").read_text())["rows"]
    assert all((place / row["run"] / FINAL).is_file() for row in rows)


def test_without_a_table_they_are_listed(capsys):
    assert main(["reproduce"]) == 0
    assert capsys.readouterr().out.count("\n") == 5
    assert main(["reproduce", "cdmi"]) == 0
    out = capsys.readouterr().out
    assert "  table98            A toy of a table" in out
    assert "gi-dqa" not in out
    assert main(["reproduce", "nobody"]) == 2
