"""The papers' tables from one command: found by name, run once, beside the paper's numbers."""

import csv
import functools
import json
import shutil
from pathlib import Path

import pytest
from processes import TOY, run

from fedpriv.cli.main import main
from fedpriv.config import catalogue
from fedpriv.privacy.accounting import calibration
from fedpriv.runtime import run_lock, versions
from fedpriv.runtime.refusals import Mistakes
from fedpriv.runtime.run_folder import FINAL
from fedpriv.studies import papers, reproduce, sweep, sweep_jobs
from fedpriv.studies.claims import unexplained, whose
from fedpriv.studies.papers import PAPERS, of_the_paper
from fedpriv.studies.sweep_page import Recorded

RESULTS = Path(__file__).parents[3] / "docs" / "papers" / "results"

FILE = """
# A toy of a table
experiment: toy
seeds: [0]
run: {data.clients: 4, rounds: 1}
attack: {attack: toy_attacks.Guess, attack.value: 5.0}
rows:
  guessed: {}
  lucky: {attack: {attack.value: 10.0}}
columns: {value: the value}
paper: Nobody 2026, Table 98
published:
  lucky: {value: 12.5}
claims:
  - text: luck beats guessing
    says: "value: lucky > guessed"
  - "value: guessed > lucky"
"""


def with_tables(folder):
    """Gives a paper two tables of a working directory's own, and that the toy federation."""
    tables = folder / "experiments" / "papers" / "cdmi"
    tables.mkdir(parents=True)
    (tables / "table_98.yaml").write_text(FILE)
    (tables / "table_99.yaml").write_text(FILE.replace("guessed", "tried"))
    shutil.copy(TOY, folder / "experiments")
    return folder


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A working directory with two tables of its own for a paper."""
    monkeypatch.chdir(tmp_path)
    return with_tables(tmp_path)


@pytest.fixture(scope="module")
def once(tmp_path_factory):
    """Such a directory where the first table was run under six seeds, and what the command said."""
    folder = with_tables(tmp_path_factory.mktemp("once"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(versions, "commit", lambda: "first")
        words = ("table98", "seeds=6", "--results", "kept")
        status, out, _ = run("reproduce", "cdmi", *words, cwd=folder)
    assert status == 0
    return folder, out.splitlines()


@pytest.fixture
def measured(once, folder):
    """The table's folder in a copy of that, which is the working directory."""
    shutil.copytree(once[0], folder, dirs_exist_ok=True)
    return Path(once[1][-1])


def times(pattern):
    """When the files of that name were written that are below the folder for runs."""
    return {path: path.stat().st_mtime_ns for path in Path("runs").rglob(pattern)}


@functools.cache
def read(file, *words):
    """A sweep of ours, which takes a tenth of a second."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDPRIV_DATA", "/data")  # no data are read
        return sweep.read(file, words)


def test_every_sweep_of_a_paper_is_a_table_of_it():
    listed = {sweep for paper in reproduce.PAPERS for sweep in papers.tables(paper).values()}
    others = {name for name in catalogue.sweeps() if name.startswith("papers/private/")}
    assert listed | others == set(catalogue.sweeps())
    assert papers.tables("gi-dqa")["table1"] == "papers/gi_dqa/table_1"


def test_tables_are_sorted_by_their_number():
    names = ["table10", "figure1", "table2", "figure13", "canaries"]
    assert sorted(names, key=papers.in_order) == [
        "table2",
        "table10",
        "figure1",
        "figure13",
        "canaries",
    ]


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
        ("extraction", "table98", [], "expected table1, table2, .*canaries"),
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


def test_what_was_chosen_stands_in_the_title_and_in_the_name_of_the_result(folder, capsys):
    file = folder / "experiments" / "papers" / "cdmi" / "table_98.yaml"
    choices = "let: {size: small}\nchoices: {size: {small: {}, large: {run: {rounds: 2}}}}\n"
    file.write_text(FILE + choices)
    assert reproduce.read("cdmi", "table98", ["size=small"]).title == "A toy of a table"
    other = reproduce.read("cdmi", "table98", ["size=large"])
    assert other.title == "A toy of a table (size=large)"
    words = ["reproduce", "cdmi", "table98", "size=large", "seeds=2", "--results", "kept"]
    assert main(words) == 0
    (kept,) = (folder / "kept" / "cdmi").iterdir()
    assert kept.name == "table_98.size=large.json"
    assert " left" in capsys.readouterr().err
    assert main(words) == 0
    assert " left" not in capsys.readouterr().err  # nothing was to be done
    assert reproduce.of_result("cdmi/table_98.size=large.json") == (
        "papers/cdmi/table_98",
        ["size=large"],
    )


def test_a_result_of_other_settings_does_not_take_the_place_of_the_tables_own():
    words = ["seeds=2", "rows=[lucky]", "run.rounds=2", "attack.name=a/b.c"]
    table = reproduce.read("cdmi", "table98", [*words, "runs=/tmp/me", "workers=2"])
    assert table.title == "A toy of a table (rows=[lucky], run.rounds=2, attack.name=a/b.c)"
    name = reproduce.result_name(table)
    assert name.count("/") == 1
    assert reproduce.of_result(name) == ("papers/cdmi/table_98", list(table.varied))
    assert reproduce.result_name(reproduce.read("cdmi", "table98", ["seeds=9"])) == (
        "cdmi/table_98.json"
    )


def test_a_claim_is_an_ordering_or_words_and_an_ordering(folder):
    file = folder / "experiments" / "papers" / "cdmi" / "table_98.yaml"
    file.write_text(FILE.replace("says:", "means:"))
    with pytest.raises(Mistakes, match="expected an ordering, or text and says"):
        sweep.read("papers/cdmi/table_98")


def test_a_mistake_in_a_table_is_told_by_the_name_that_was_given(capsys):
    assert main(["reproduce", "cdmi", "table_98", "rows=[unlucky]"]) == 2
    assert "cdmi table98: 1 mistake, nothing was started" in capsys.readouterr().err


def test_settings_of_a_table_are_shown_and_nothing_is_started(folder, capsys):
    assert main(["reproduce", "cdmi", "table98", "--settings"]) == 0
    assert "rows=[guessed,lucky]" in capsys.readouterr().out
    assert not (folder / "runs").exists()


def test_settings_of_a_paper_are_those_of_its_tables_without_studies_of_ours(
    folder, monkeypatch, capsys
):
    found = papers.tables
    names = ("table98", "table99", "ofours")
    monkeypatch.setattr(papers, "tables", lambda paper: {n: found(paper)[n] for n in names})
    place = folder / "experiments" / "papers" / "cdmi"
    (place / "of_ours.yaml").write_text(FILE)
    assert main(["reproduce", "cdmi", "seeds=2", "--settings"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert [line for line in out if line.endswith(":")] == ["table98:", "table99:"]
    assert out.count("  seeds=[0,1]") == 2
    assert not (folder / "runs").exists()


def test_settings_name_the_seeds_that_would_be_run(folder, monkeypatch):
    assert "seeds=[0,1,2]" in [*reproduce.settings("cdmi", "table98")]
    assert "seeds=[0,1]" in [*reproduce.settings("cdmi", "table_98", ["seeds=2"])]
    monkeypatch.delenv("FEDPRIV_DATA", raising=False)  # they are shown without data, too
    assert "experiment=cdmi_sroie" in [*reproduce.settings("cdmi", "figure8shift")]


def test_a_table_that_other_code_has_measured_begins_anew_and_says_so(monkeypatch, capsys):
    words = ["reproduce", "cdmi", "table98", "seeds=1"]
    assert main(words) == 0
    assert "other code" not in capsys.readouterr().err
    monkeypatch.setattr(versions, "code", lambda: "0" * 40)
    assert main(words) == 0
    assert "was measured by other code, so everything is measured anew" in capsys.readouterr().err


def test_a_table_is_run_beside_the_papers(once):
    folder, out = once
    place = folder / out[-1]
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
    around = {"mean": 10, "low": 10, "high": 10, "paper": 12.5}
    assert lucky["columns"]["value"] == {**around, "seeds": {str(seed): 10 for seed in range(6)}}
    findings = [place / found / "result.json" for found in lucky["made"].values()]
    assert [json.loads(one.read_text())["details"]["value"] for one in findings] == [10] * 6
    with (place / "table.csv").open(encoding="utf-8") as file:
        told = [*csv.DictReader(file)][1]
    assert (told["column"], told["label"], told["paper"]) == ("value", "the value", "12.5")
    page = (place / "report.html").read_text()
    assert "luck beats guessing" in page
    assert "(paper: 12.500)" in page
    assert "Numbers of the paper are of Nobody 2026, Table 98." in page
    assert "Numbers of the paper" in "\n".join(out)


def test_without_a_paper_all_tables_are_listed(capsys):
    assert main(["reproduce"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert "  table98            A toy of a table" in out
    assert [*reproduce.PAPERS] == [line.split(":")[0] for line in out if line[0] != " "]
    assert main(["reproduce", "nobody"]) == 2


def test_without_a_table_all_of_the_papers_are_run(measured, monkeypatch, capsys):
    found = papers.tables
    ours = ("table98", "table99", "ofours")
    monkeypatch.setattr(papers, "tables", lambda paper: {n: found(paper)[n] for n in ours})
    Path("experiments", "papers", "cdmi", "of_ours.yaml").write_text(FILE)
    trained = times(FINAL)
    assert len(trained) == 6
    assert main(["reproduce", "cdmi", "seeds=6", "--results", "kept"]) == 0
    place = Path(capsys.readouterr().out.splitlines()[-1])
    told = json.loads((place / "paper.json").read_text())
    assert [*told["tables"]] == ["table98", "table99"]
    assert told["answer"] == "2 of 4 claims hold, 2 do not"
    assert all(one["seconds"] > 0 and one["memory"] > 0 for one in told["tables"].values())
    page = (place / "report.html").read_text()
    assert "2 of 4 claims hold" in page
    assert page.count("luck beats guessing") == 2  # of either table
    for table, first in (("table_98", "guessed"), ("table_99", "tried")):
        kept = json.loads(Path("kept", "cdmi", f"{table}.json").read_text())
        assert kept["finished"]
        assert [one["row"] for one in kept["rows"]][:2] == [first, "lucky"]

    # What was finished stays, and the other table trains nothing that this one has trained.
    assert measured.is_dir()
    assert len([*measured.parent.iterdir()]) == 1
    assert times(FINAL) == trained
    (other,) = measured.parent.with_name("table_99").iterdir()
    rows = json.loads((other / "results.json").read_text())["rows"]
    assert all((other / row["run"] / FINAL).is_file() for row in rows)


def test_tables_that_need_data_sets_are_left_out_of_a_paper_without(measured, monkeypatch, capsys):
    found = papers.tables
    named = ("table98", "table97", "table96")
    monkeypatch.setattr(papers, "tables", lambda paper: {n: found(paper)[n] for n in named})
    place = Path("experiments", "papers", "cdmi")
    root = "{root: '${oc.env:FEDPRIV_DATA}/receipts'}"
    for number, text in (
        (97, f"run: {{data.source: {root}"),
        (96, f"attack: {{attack.parts: {root}"),
    ):
        section, rest = text.split("{", 1)
        (place / f"table_{number}.yaml").write_text(
            FILE.replace(f"\n{section}{{", f"\n{section}{{{rest}, ")
        )
    monkeypatch.delenv("FEDPRIV_DATA", raising=False)
    assert main(["reproduce", "cdmi", "seeds=6"]) == 0
    out, err = capsys.readouterr()
    assert "table97: left out, because FEDPRIV_DATA is not set" in err
    assert "table96: left out, because FEDPRIV_DATA is not set" in err
    told = json.loads((Path(out.splitlines()[-1]) / "paper.json").read_text())
    assert [*told["tables"]] == ["table98"]
    named = ("table97",)
    assert main(["reproduce", "cdmi", "seeds=1"]) == 2
    assert "all of its tables need data sets" in capsys.readouterr().err
    named = ("table98",)
    assert main(["reproduce", "cdmi", "seeds=1", "run.roundz=2"]) == 2
    assert "did you mean 'rounds'?" in capsys.readouterr().err


def test_a_finished_table_stays_where_it_is(measured, capsys):
    assert main(["reproduce", "cdmi", "table98", "seeds=6"]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[-1] == str(measured)
    assert "other code" not in err


def test_of_two_tables_with_the_same_runs_the_second_is_refused_at_once(measured, capsys):
    shared = reproduce._shared(reproduce.read("cdmi", "table98"))
    words = ["reproduce", "cdmi", "table99", "seeds=6"]
    with run_lock.writing(shared, "sweep"):
        assert main(words) == 2
        assert "is being written by process" in capsys.readouterr().err
        assert not measured.parent.with_name("table_99").exists()
    assert main(words) == 0


def test_a_table_is_made_again_from_its_run_folders_alone(measured, capsys):
    first = json.loads((measured / "table.json").read_text())
    trained = times(FINAL)
    shutil.rmtree(measured)
    assert main(["reproduce", "cdmi", "table98", "seeds=6"]) == 0
    again = json.loads((Path(capsys.readouterr().out.splitlines()[-1]) / "table.json").read_text())
    assert (again["rows"], again["claims"]) == (first["rows"], first["claims"])
    assert times(FINAL) == trained


def test_a_row_keeps_the_commit_of_when_it_was_made(measured, capsys, monkeypatch):
    def commits():
        place = Path(capsys.readouterr().out.splitlines()[-1])
        rows = json.loads((place / "results.json").read_text())["rows"]
        return {(row["row"], row["seed"]): row["commit"] for row in rows}

    for commit in ("second", "third"):
        monkeypatch.setattr(versions, "commit", lambda commit=commit: commit)
        assert main(["reproduce", "cdmi", "table98", "seeds=7"]) == 0
        assert commits() == {
            (row, seed): "first" if seed < 6 else "second"
            for row in ("guessed", "lucky")
            for seed in range(7)
        }


def test_a_claim_is_not_changed_after_its_first_result_without_a_note(measured, capsys):
    file = Path("experiments", "papers", "cdmi", "table_98.yaml")
    changed = FILE.replace('says: "value: lucky > guessed"', 'says: "value: lucky > guessed + 1"')
    file.write_text(changed)
    assert main(["reproduce", "cdmi", "table98", "seeds=6"]) == 2
    err = capsys.readouterr().err
    assert "'value: lucky > guessed' has a result and is gone" in err
    assert "'luck beats guessing' is new or changed since the first result" in err
    assert main(["reproduce", "cdmi", "table98", "seeds=2"]) == 2  # nor with other seeds
    assert "claims, since runs/sweeps/cdmi/table_98/" in capsys.readouterr().err
    noted = '+ 1"\n    was: "value: lucky > guessed"\n    note: it was too easy'
    file.write_text(changed.replace('+ 1"', noted))
    assert main(["reproduce", "cdmi", "table98", "seeds=6"]) == 0
    told = "luck beats guessing (note: it was too easy)"
    assert told in (measured / "report.html").read_text()
    assert told in (measured / "table.md").read_text()


def test_a_claim_is_held_against_the_result_that_is_kept_too(measured, capsys, monkeypatch):
    words = ["reproduce", "cdmi", "table98", "seeds=6", "--results", "kept"]
    shutil.rmtree("runs")
    Path("experiments", "papers", "cdmi", "table_98.yaml").write_text(
        FILE.replace('"value: lucky > guessed"', '"value: lucky > 1"')
    )
    kept = Path("kept", "cdmi", "table_98.json")
    before = kept.read_bytes()
    assert main(words) == 2
    assert "claims, since the result that is kept: 'value: lucky" in capsys.readouterr().err
    monkeypatch.setattr(papers, "tables", lambda paper: {"table98": "papers/cdmi/table_98"})
    assert main(["reproduce", "cdmi", *words[3:]]) == 2  # before any table of the paper is run
    assert not Path("runs").exists()
    assert kept.read_bytes() == before


def test_claims_of_a_papers_tables_say_whose_they_are():
    files = [
        file for paper in PAPERS for n, file in papers.tables(paper).items() if of_the_paper(n)
    ]
    tables = {file: read(file) for file in files if not file.endswith(("98", "99"))}
    assert len(tables) > 30
    found = {(n, c.text): whose(c.text) for n, table in tables.items() for c in table.claims}
    assert [one for one, owner in found.items() if not owner] == []
    assert {*found.values()} == {"paper", "ours"}


def test_results_are_of_the_claims_as_they_stand():
    """Of what is checked in; the claims of the files may be changed with a note only."""
    found = [*RESULTS.rglob("*.json")]
    assert len(found) > 6
    for path in found:
        file, words = reproduce.of_result(str(path.relative_to(RESULTS)))
        content = json.loads(path.read_text())
        assert [*unexplained(read(file, *words).claims, content)] == [], path
        assert Recorded.of(content).finished, path


@pytest.mark.parametrize(
    ("paper", "table", "pretrained", "words"),
    [
        ("pried-kie", "table3", "microsoft/layoutlmv3-base", ["data=sroie", "rows=['with image']"]),
        ("pried-kie", "figure6", "microsoft/layoutlmv3-base", ["data=funsd"]),
        ("pfl-docvqa", "table6", "google-t5/t5-base", ["data=pfl_docvqa"]),
        (
            "pfl-docvqa",
            "table6",
            "google-t5/t5-base",
            ["data=pfl_docvqa", "view=paper", "accountant=prv_opacus"],
        ),
        ("pried-kie", "table3", "me/layoutlmv3", ["data=xfund", "rows=['with image']"]),
        ("gi-dqa", "table1", "microsoft/layoutlmv3-base", ["model=layoutlmv3", "side=224"]),
        ("cdmi", "table5", "microsoft/layoutlm-base-uncased", ["rows=[LayoutLM]"]),
        (
            "extraction",
            "table1",
            "naver-clova-ix/donut-base",
            ["count=5400", "attack.attack.target=loss"],
        ),
    ],
)
def test_whoever_has_weights_and_data_runs_it_at_full_size(
    paper, table, pretrained, words, monkeypatch
):
    monkeypatch.setenv("FEDPRIV_DATA", "/data")
    # What noise comes out has tests of its own, and Opacus takes seconds to find it.
    monkeypatch.setattr(calibration, "search", lambda *_: 1.0)
    asked = ["seeds=1", "size=base", f"pretrained={pretrained}", *words]
    jobs = sweep_jobs.plan(reproduce.read(paper, table, asked))
    models = {
        (job.trial.config["model"]["size"], job.trial.config["model"]["pretrained"]) for job in jobs
    }
    assert models == {("base", pretrained)}
    if paper == "pried-kie":  # the paper's Table 7
        settings = {"sroie": (128, 0.2, 1601), "funsd": (128, 1 / 7, 389)}
        settings["xfund"] = (128, 1 / 9, 562)
        data = words[0].removeprefix("data=")
        private = [job.trial.config for job in jobs if job.row.name[-9:] == "DP, ε = 8"]
        for one in private or [jobs[1].trial.config]:
            found = one["model"]["max_length"], one["privacy"]["record_rate"]
            assert (*found, one["privacy"]["examples"]) == pytest.approx(settings[data])
        if table == "table3":  # 512 tokens without DP
            plain = {
                job.trial.config["model"]["max_length"] for job in jobs if "DP" not in job.row.name
            }
            assert plain == {512}
    if paper == "pfl-docvqa":  # the paper's Table 12
        private = [job for job in jobs if "DP" in job.row.name]
        assert {job.trial.config["client"]["batch_size"] for job in private} == {8}
        for job in private:
            clip = job.trial.config["strategy"]["mechanism"]["clip_norm"]
            assert clip == (1 if job.row.name.endswith("ε = 1") else 5)
        asked_view = "paper" if "view=paper" in words else "server_masked"
        federated = [
            job.trial.config["privacy"] for job in private if job.row.name.startswith("FL")
        ]
        assert {one["view"] for one in federated} == {asked_view}
