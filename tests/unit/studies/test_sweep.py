"""Sweeps: read from YAML, checked as a whole, run once, and gone on with."""

import dataclasses
import json
import math
import os
import platform
import re
import shutil
import statistics
from pathlib import Path

import pandas as pd
import pytest
import yaml
from doc_pages import DOCS
from processes import TOY

from fedpriv.config import catalogue, composing, experiment
from fedpriv.models.layoutlmv3 import layoutlmv3
from fedpriv.runtime import versions
from fedpriv.runtime.refusals import Mistakes
from fedpriv.runtime.run_folder import FINAL, FINDINGS, RESULT, RunFolder
from fedpriv.runtime.workers.jobs import JobsFailed
from fedpriv.studies import running, sweep, sweep_jobs, trials
from fedpriv.studies.sweep import calculate

FILE = """
# A toy, in a table
experiment: toy
seeds: [0, 1]
let: {value: 5.0, size: small}
choices:
  size: {small: {run: {rounds: 1}}, large: {run: {rounds: 2}}}
run: {data.clients: 4}
attack: {attack: toy_attacks.Guess, attack.value: "${let.value}"}
rows:
  trained: {attack: {~attack: 0}}
  guessed: {}
  lucky: {attack: {attack.value: "${calc:'2 * ${let.value}'}", attack.luck: 0.5}}
  refused: {attack: {attack.refuse: true}}
columns:
  value: {label: the value, interval: around}
  inner.0.01.twice: twice
  run.accuracy: accuracy
legend: The value is guessed.
claims:
  - "value: lucky > guessed"
  - "value: guessed > lucky"
"""


def with_toy(folder):
    """Gives a folder the toy federation as an experiment of its own."""
    (folder / "experiments").mkdir()
    shutil.copy(TOY, folder / "experiments")
    return folder


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(with_toy(tmp_path))
    monkeypatch.setenv("FEDPRIV_DATA", "/somewhere")


@pytest.fixture
def table(tmp_path):
    """Writes a sweep; returns its path."""

    def write(text=FILE, name="toys.yaml"):
        (tmp_path / name).write_text(text)
        return name

    return write


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The sweep once it was run in a folder of its own: where, what it measured, what it told."""
    told = []
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(with_toy(tmp_path_factory.mktemp("run")))
        Path("toys.yaml").write_text(FILE)
        folder, measured = sweep_jobs.run(sweep.read("toys.yaml"), tell=told.append)
        return RunFolder.made(folder.path.absolute()), measured, told


def mistakes(name, *overrides):
    with pytest.raises(Mistakes) as caught:
        sweep_jobs.plan(sweep.read(name, overrides))
    assert not os.path.exists("runs")
    return "\n".join(caught.value.problems)


def results(folder):
    found = folder.read_json("results.json")
    return found, {(row["row"], row["seed"]): row for row in found["rows"]}


@pytest.mark.slow
@pytest.mark.parametrize("name", catalogue.sweeps())
def test_every_sweep_of_ours_is_checked(name):
    table = sweep.read(name)
    jobs = sweep_jobs.plan(dataclasses.replace(table, seeds=table.seeds[:1]))
    assert len({job.row.name for job in jobs}) == len(jobs) == len(table.rows)
    # A table that shows what an attack found attacks in every row; one of the runs alone, in none.
    of_attacks = any(not c.path.startswith(("run.", "ledger.")) for c in table.columns)
    assert {bool(job.finding) for job in jobs} == {of_attacks}


@pytest.mark.parametrize("data", ["sroie", "sroie_64"])
def test_tables_of_inversion_are_of_receipts_too(data):
    one_row = (f"data={data}", "model=layoutlmv3", "rows=['template only']")
    (job,) = sweep_jobs.plan(sweep.read("papers/gi_dqa/table_1", one_row))
    side = job.trial.config["data"]["source"]["size"]
    assert side == job.trial.config["model"]["image_size"] == {"sroie": 112, "sroie_64": 64}[data]


@pytest.mark.parametrize("name", [*(f"table_{number}" for number in range(2, 9)), "figure_6"])
def test_all_rows_of_each_table_of_inversion_are_of_receipts_too(name):
    jobs = sweep_jobs.plan(sweep.read(f"papers/gi_dqa/{name}", ["data=sroie_64"]))
    sources = {job.trial.config["data"]["source"]["_target_"] for job in jobs}
    assert sources == {"fedpriv.data.cropped.Cropped"}


def test_settings_are_those_that_the_command_line_may_change(table):
    shared = "let:\n  much: 3  # of it\n  size: small\nchoices: {size: {small: {}, large: {}}}\n"
    table(FILE.replace('let: {value: 5.0, size: small}\n', '').replace(
        "choices:\n  size: {small: {run: {rounds: 1}}, large: {run: {rounds: 2}}}\n", shared
    ), "shared.yaml")  # fmt: skip
    name = table("like: shared\nlet:\n  value: 5.0  # that is guessed\ngrid: {speed: [1, 2]}\n"
                 "rows: {'a, b': {}}\ncolumns: {value: v}\n")  # fmt: skip
    assert [*sweep.settings(name)][:-2] == [
        "much=3  # of it",
        "size=small  # small | large",
        "value=5.0  # that is guessed",
        "rows=['a, b']",
        "speed=[1,2]",
        "seeds=[0,1]",
        "experiment=toy",
        "workers=0  # trainings or attacks at a time, each in its own process",
    ]


def test_settings_are_shown_as_the_command_line_has_changed_them(table):
    changed = [*sweep.settings(table(), ["value=7", "seeds=[3]", "run.rounds=9", "rows=[lucky]"])]
    assert {"value=7", "seeds=[3]", "run.rounds=9", "rows=[lucky]"} <= {*changed}
    assert not [line for line in changed if "guessed" in line]
    with pytest.raises(Mistakes, match="valu=7: expected one of value="):
        [*sweep.settings(table(), ["valu=7"])]


def test_weights_of_another_model_are_refused_before_anything_starts(tmp_path):
    layoutlmv3(labels=("total",)).save_pretrained(tmp_path / "weights")
    name, weights = "papers/pried_kie/table_3", f"pretrained={tmp_path / 'weights'}"
    plain = "method=['no privacy']"
    with pytest.raises(Mistakes) as caught:
        sweep_jobs.run(sweep.read(name, [weights, "rows=[RoBERTa, 'without image']", plain]))
    assert not Path("runs").exists()
    (wrong,) = caught.value.problems
    assert wrong.startswith("RoBERTa, no privacy: ")
    assert "holds a model of type 'layoutlmv3': expected 'roberta'" in wrong
    assert "rows=[…]" in wrong
    assert sweep_jobs.checked(sweep.read(name, [weights, "rows=['without image']", plain]))
    nowhere = [f"pretrained={tmp_path / 'nowhere'}", "rows=[RoBERTa]", plain]
    with pytest.raises(Mistakes, match=r"RoBERTa, no privacy: .*nowhere"):
        sweep_jobs.checked(sweep.read(name, nowhere))


def test_models_of_base_size_from_random_weights_are_told(monkeypatch):
    def killed(*_, **__):
        raise KeyboardInterrupt

    def told(*words):
        said, one = [], sweep.read("papers/gi_dqa/table_1", ["rows=['template only']", *words])
        with pytest.raises(KeyboardInterrupt):
            sweep_jobs.run(one, tell=said.append)
        return said

    monkeypatch.setattr(trials.Store, "run", killed)
    assert told("size=base")[0].startswith("models of size=base start from random weights")
    assert not any("random" in line for line in told())


def test_a_sweep_measures_its_rows_and_checks_its_claims(run):
    folder, measured, told = run
    assert folder.path.parts[-4:-1] == ("runs", "sweeps", "toys")
    found, rows = results(folder)
    assert found["finished"] is True
    assert found["title"] == "A toy, in a table"
    assert found["legend"] == "The value is guessed."
    for page in ("table.md", "report.html"):
        assert "The value is guessed." in (folder.path / page).read_text()
    table = pd.read_csv(folder.path / "table.csv").set_index(["row", "column"])
    guessed = table.loc[("guessed", "value")]
    assert (guessed["mean"], guessed["label"]) == (5, "the value")
    mean = statistics.fmean(rows["lucky", seed]["values"]["value"] for seed in (0, 1))
    lucky = table.loc[("lucky", "value")]
    assert lucky["mean"] == pytest.approx(mean)
    assert lucky["low"] < mean < lucky["high"]
    assert math.isnan(table.loc[("trained", "value"), "mean"])
    assert len(rows) == len(measured) == 8
    assert "rows × seeds: 8, runs: 2" in told[0]
    assert [line for line in told if line.startswith("8 of 8: refused, seed 1 done; ")]
    assert rows["guessed", 0]["values"]["value"] == 5
    assert rows["guessed", 0]["intervals"] == {"value": [4, 6]}
    assert rows["guessed", 0]["values"]["inner.0.01.twice"] == 10
    lucky = [rows["lucky", seed]["values"]["value"] for seed in (0, 1)]
    assert 10 < min(lucky) < max(lucky) < 10.5  # each seed has luck of its own
    assert rows["trained", 0]["values"]["value"] is None
    accuracy = rows["trained", 1]["values"]["run.accuracy"]
    assert accuracy == rows["lucky", 1]["values"]["run.accuracy"] > 0
    assert rows["refused", 0]["refused"] is True
    assert rows["refused", 0]["headline"] == "not applicable: the toy does not want to"
    holds, fails = found["claims"]
    assert (holds["text"], holds["holds"]) == ("value: lucky > guessed", True)
    assert holds["comparisons"][0]["verdict"].startswith("holds: ")
    assert fails["holds"] is False
    assert "| refused | — | — |" in (folder.path / "table.md").read_text("utf-8")
    made = found["made"]
    assert made["command"] == "fedpriv sweep toys.yaml"
    assert str(os.cpu_count()) in made["machine"]
    assert platform.node() not in json.dumps(made)
    assert rows["guessed", 0]["commit"] == versions.commit()
    assert rows["guessed", 0]["date"] == versions.today()
    assert {"figure.svg", "figure.png"} <= {path.name for path in folder.path.iterdir()}


@pytest.mark.slow
def test_an_interrupted_sweep_goes_on_where_it_was(table, monkeypatch):
    made, honest = [], running.made

    def interrupted(folder, order, *more, **others):
        if len(made) == 2:
            raise KeyboardInterrupt
        made.append(order)
        return honest(folder, order, *more, **others)

    monkeypatch.setattr(running, "made", interrupted)
    with pytest.raises(KeyboardInterrupt) as end:
        sweep_jobs.run(sweep.read(table()))
    assert end.value.__notes__ == ["repeat the command to go on"]
    (folder,) = (path.parent for path in Path("runs").rglob("plan.json"))
    before = {path: path.stat().st_mtime_ns for path in folder.rglob(FINAL)}
    assert len(before) == 1

    monkeypatch.setattr(running, "made", lambda *a, **k: made.append(a[1]) or honest(*a, **k))
    monkeypatch.setattr(versions, "commit", lambda: "later")
    again, measured = sweep_jobs.run(sweep.read(table()))
    assert again.path == folder
    # What was measured before the interruption keeps its commit.
    assert [one.commit == "later" for one in measured] == [False] * 3 + [True] * 5
    assert len(measured) == 8
    assert len(made) == 6  # three attacks under two seeds, none of them twice
    assert {path: path.stat().st_mtime_ns for path in before} == before

    # What is finished stays, and another plan is another sweep.
    unlike = sweep.read(table(), ["seeds=[0]", "rows=[guessed]"])
    assert len({folder, *(sweep_jobs.run(unlike)[0].path for _ in range(2))}) == 3


@pytest.mark.slow
def test_rows_on_workers_measure_the_same(table, run):
    told, (_, alone, _) = [], run
    folder, measured = sweep_jobs.run(sweep.read(table(), ["workers=2"]), tell=told.append)
    assert measured == alone
    assert results(folder)[0]["finished"] is True
    # Four rows share the run of a seed, and one of them has no attack.
    assert (
        len([line for line in told if re.match(r"\d of 2: \w+, seed .: training done; ", line)])
        == 2
    )
    assert len([line for line in told if re.match(r"\d of 6: \w+, seed . done; ", line)]) == 6


@pytest.mark.slow
def test_what_fails_on_a_worker_is_told_when_all_else_is_done(table):
    wrong = FILE.replace("refused: {attack: {attack.refuse: true}}", "refused: {run: {rounds: 3}}")
    wrong = wrong.replace("lucky: {attack: {", "lucky: {attack: {attack.parts: [fail], ")
    with pytest.raises(JobsFailed, match="2 jobs failed") as failed:
        sweep_jobs.run(sweep.read(table(wrong), ["workers=2"]))
    assert {*failed.value.reasons} == {"lucky, seed 0", "lucky, seed 1"}
    assert failed.value.__notes__ == ["repeat the command to go on"]


def test_the_command_line_changes_values_choices_axes_and_settings(table):
    grid = "grid:\n  noise: [0.0, 1.0e-9]\n  kind: {a: {}, b: {}}\nx: noise\n"
    name = table(FILE.replace("claims:", grid + "claims_:").split("claims_:")[0])
    plain = sweep.read(name)
    assert plain.rows[4].name == "guessed, noise 0, a"
    assert [row.x for row in plain.rows[:4]] == [0, 0, 1e-9, 1e-9]
    assert plain.rows[5].curve == "guessed, b"
    changed = sweep.read(
        name,
        ["value=7", "size=large", "noise=[1e-3]", "rows=[lucky]", "kind=[b]", "seeds=[3]",
         "run.data.clients=5", "attack.attack.parts=[1, x]", "runs=elsewhere"],
    )  # fmt: skip
    (row,) = changed.rows
    assert row.name == "lucky, noise 0.001, b"
    assert set(row.run) == {"data.clients=5", "rounds=2"}
    assert {"attack.value=14", "attack.luck=0.5", "attack.parts=[1,x]"} < set(row.attack)
    assert (changed.seeds, changed.runs) == ((3,), "elsewhere")


@pytest.mark.parametrize("text", ["2023", "true", "null", "1e-3", r"C:\new", "Müller, ü", "it's"])
def test_a_text_stays_the_text_that_the_file_has(table, text):
    quoted = json.dumps(text, ensure_ascii=False)
    plain = f"experiment: toy\ncolumns: {{loss: loss}}\nrows: {{a: {{run: {{name: {quoted}}}}}}}\n"
    (row,) = sweep.read(table(plain)).rows
    assert experiment.load("toy", row.run)["name"] == text


def test_a_file_extends_another(table):
    table(name="_shared.yaml")
    name = table(
        "like: _shared\nlet: {value: 1.0}\nrun: {rounds: 3}\n"
        "rows:\n  own: {attack: {~attack.value: 0}}\nclaims: []\n"
    )
    (row,) = sweep.read(name).rows
    assert row.run == ("data.clients=4", "rounds=1")  # the choice comes after what all share
    assert row.attack == ("attack=toy_attacks.Guess",)


def test_a_column_of_a_claim_that_no_row_has_is_told(table):
    told = []
    misspelt = FILE.replace('"value: guessed > lucky"', '"valeu: guessed > lucky"')
    sweep_jobs.run(sweep.read(table(misspelt), ["seeds=[0]", "rows=[guessed]"]), tell=told.append)
    of_claims = [line for line in told if line.startswith("claims: ")]
    assert of_claims == ["claims: no row has a number 'valeu'"]


def test_a_row_that_a_claim_misspells_is_told_unless_rows_are_chosen(table):
    misspelt = FILE.replace('"value: guessed > lucky"', '"value: guessed > lukcy"')
    message = "claims: there is no row 'lukcy'; did you mean 'lucky'"
    assert message in mistakes(table(misspelt), "seeds=[0]")
    assert sweep.read(table(misspelt), ["rows=[guessed]"]).rows


def test_nested_settings_are_built(table):
    section = "{_target_: toy_attacks.Found, told: two}"
    parts = f"lucky: {{attack: {{attack.parts: [[0.1, {section}], []], attack.luck: -1.5e-7}}}}"
    name = table(FILE.replace("  refused:", f"  nested {parts}\n  refused:"))
    row = next(row for row in sweep.read(name).rows if row.name == "nested lucky")
    assert "attack.parts=[[0.1,{_target_:toy_attacks.Found,told:two}],[]]" in row.attack


def test_all_mistakes_are_told_before_anything_starts(table):
    wrong = FILE.replace("data.clients: 4", "data.clints: 4").replace("luck: 0.5", "lukc: 1")
    told = mistakes(table(wrong))
    assert "trained: data.clints: toy.data takes no 'clints'; did you mean 'clients'?" in told
    told = mistakes(table(FILE.replace("luck: 0.5", "lukc: 1, known: 0.3")))
    assert "lucky: attack.lukc: toy_attacks.Guess takes no 'lukc'; did you mean 'luck'?" in told
    told = mistakes(table(FILE.replace("attack.refuse: true", "known: 0.3")))
    assert told.startswith("refused: known=0.3: nothing that this attack uses depends on it")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("seeds: [0, 1]", "seeds: [0, 0]", "seeds=[0, 0]: expected a list of different whole"),
        ("seeds: [0, 1]", "seeds: 3", "seeds=3: expected a list"),
        ("columns:", "colums:", "there is no 'colums'; did you mean 'columns'?"),
        ("rows:", "rows: 5\nlike_:", "rows=5: expected a mapping"),
        ("  guessed: {}", "  guessed: {atack: 1}", "guessed: there is no 'atack'; did you mean"),
        ("  guessed: {}", "  guessed: {run: 1}", "guessed: run=1: expected a mapping"),
        ("  guessed: {}", "  guessed: 7", "guessed: got 7, expected a mapping of let, run"),
        ("value: guessed >", "value: gessed >", "there is no row 'gessed'; did you mean 'guessed'"),
        ("value: guessed >", "value: guessed =", "claims: 'value: guessed = lucky'"),
        ("2 * $", "[2] * $", "List is not allowed; expected numbers, "),
        ("${let.value}\"}\nrows", "${let.valeu}\"}\nrows", "valeu"),
        ("label: the value", "lable: x", "lable: there is no setting 'lable'"),
        ("experiment:", "like: nowhere\nexperiment:", "nowhere.yaml"),
    ],
)  # fmt: skip
def test_mistakes_in_a_file_are_named(table, old, new, message):
    assert old in FILE
    assert message in mistakes(table(FILE.replace(old, new)))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("valeu=3", "valeu=3: expected one of value=, size=, rows=, seeds=,"),
        ("size=huge", "size=huge: expected one of small, large"),
        (
            "rows=[trained, nobody]",
            "rows=nobody: expected some of 'trained', 'guessed', 'lucky', 'refused'",
        ),
        ("seeds=[]", "seeds=[]: expected a list"),
        ("workers=-1", "workers=-1: expected how many, or 0"),
        ("run.rounds", "run.rounds: is not of the form key=value; type run.rounds=VALUE"),
        ("run.roundz=3", "roundz: there is no setting 'roundz'; did you mean 'rounds'?"),
    ],
)
def test_mistakes_on_the_command_line_are_named(table, override, message):
    assert message in mistakes(table(), override)


def test_a_command_is_told_without_the_folder_of_the_runs(table):
    read = sweep.read(table(), ["runs=/home/me/runs", "value=7.5", "workers=3", "rows=[guessed]"])
    assert read.command == "fedpriv sweep toys.yaml value=7.5 'rows=[guessed]'"


def test_a_sweep_that_is_not_there_is_a_mistake():
    assert "did you mean 'papers/gi_dqa/table_1'?" in mistakes("papers/gi_dqa/tabel_1")
    assert "no such sweep" in mistakes("nowhere.yaml")


@pytest.mark.parametrize(
    "formula", ["__import__('os')", "a.b", "[1]", "lambda: 1", "1 if 2 else 3"]
)
def test_a_formula_is_arithmetic_only(formula):
    with pytest.raises((ValueError, NameError)):
        calculate(formula)


def test_the_guide_has_an_example_of_each_section():
    page = (DOCS / "guides/sweeps.md").read_text("utf-8")
    rows = re.findall(r"^\| `(\w+)`.*?\| `([^`]+)` \|$", page, re.MULTILINE)
    for section, example in rows:
        ((name, value),) = yaml.safe_load(example.replace(r"\|", "|")).items()
        assert (name, type(value)) == (section, sweep.SECTIONS[section])
    assert {section for section, _ in rows} == set(sweep.SECTIONS)


def test_runs_of_a_sweep_can_be_trained_again_in_variants(run):
    folder, measured, _ = run
    config = yaml.safe_load((folder.path / measured[0].run / "config.yaml").read_text())
    made = config[composing.COMPOSED]
    assert experiment.load(made["experiment"], made["overrides"])["seed"] == measured[0].seed


def test_what_the_command_line_says_is_not_changed_by_a_choice():
    words = ("run.model.size=tiny", "rows=['template only']", "model=layoutlmv3")
    (job,) = sweep_jobs.plan(sweep.read("papers/gi_dqa/table_1", words))
    assert job.trial.config["model"]["size"] == "tiny"
    (job,) = sweep_jobs.plan(sweep.read("papers/gi_dqa/table_1", words[1:]))
    assert job.trial.config["model"]["size"] == "small"


def test_a_value_that_no_row_depends_on_is_refused():
    with pytest.raises(Mistakes, match="epsilon=1: has no effect, since no row depends"):
        sweep.read("papers/pried_kie/table_2", ["epsilon=1"])
    assert sweep.read("papers/pried_kie/figure_1", ["epsilon=1"]).rows
    with pytest.raises(Mistakes, match=r"pretrained=/w: has no effect.* another model or size"):
        sweep.read("papers/gi_dqa/table_1", ["pretrained=/w"])
    assert sweep.read("papers/gi_dqa/table_1", ["pretrained=/w", "size=base"]).rows


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["rows=[closed"], r"rows=\[closed: cannot be read; a list is quoted like 'rows="),
        (["rows=[GI-DQA tuned, a tenth]"], "rows=a tenth: .*; labels with commas need quotes"),
        (["experiment=nope"], "experiment=nope: no experiment of that name"),
        (["victims=2", "side=64", "victims=3"], "victims=2 victims=3: victims is given twice; "),
        (["victims"], "victims: is not of the form key=value; type victims=VALUE"),
        (["evaluations=many"], "evaluations=many: expected a number, such as 250"),
        (["victims=0"], r"gi_dqa/table_1 victims=0: (?s:.*)data.source: Expected providers=0 in 1"),
    ],
)
def test_what_the_command_line_gets_wrong_is_named(words, why):
    with pytest.raises(Mistakes, match=why):
        sweep_jobs.plan(sweep.read("papers/gi_dqa/table_1", words))


def test_rows_that_the_file_leaves_out_cannot_be_chosen():
    links = "papers/cdmi/table_5_links"
    with pytest.raises(Mistakes, match=r"rows=BROS: expected some of 'LayoutLM', 'LayoutLM, bim"):
        sweep.read(links, ["rows=[BROS]"])
    assert "rows=[LayoutLM,'LayoutLM, bimodal']" in [*sweep.settings(links)]
    with pytest.raises(Mistakes, match=r"no row is left: `without` .* leaves out 'BROS, EE-\*'"):
        sweep.read("papers/cdmi/table_5", ["rows=[BROS]", "task=[EE-BIO]"])


def test_folders_that_are_not_there_are_named_before_anything_starts():
    words = ["rows=[forms]"]
    with pytest.raises(Mistakes) as caught:
        sweep_jobs.checked(sweep.read("papers/cdmi/figure_8_shift", words))
    assert caught.value.problems == [
        f"forms: there is no folder /somewhere/{name} (is FEDPRIV_DATA set?)"
        for name in ("open/sroie", "restricted/funsd")
    ]


def test_folders_are_not_needed_where_all_is_done(tmp_path):
    table = sweep.read("papers/cdmi/table_5_links", ["rows=[LayoutLM]"])
    (job,) = sweep_jobs.plan(table)
    with pytest.raises(Mistakes, match="no folder /somewhere/restricted/funsd"):
        sweep_jobs.checked(table, shared=tmp_path)
    for name in (FINAL, f"{FINDINGS}/{job.finding}/{RESULT}"):
        (tmp_path / job.trial.name / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / job.trial.name / name).touch()
    assert [one.trial.name for one in sweep_jobs.checked(table, shared=tmp_path)] == [
        job.trial.name
    ]


def test_a_value_of_the_command_line_is_not_changed_by_a_choice(monkeypatch):
    monkeypatch.setenv("FEDPRIV_DATA", "/data")
    words = ("side=80", "data=sroie", "model=layoutlmv3", "rows=['template only']")
    (job,) = sweep_jobs.plan(sweep.read("papers/gi_dqa/table_1", words))
    assert job.trial.config["model"]["image_size"] == 80


def test_names_with_commas_are_told_apart():
    with pytest.raises(
        Mistakes,
        match=r"'TSP, all labels'; labels with commas need quotes; did you mean 'TSP, all labels'",
    ):
        sweep.read("papers/pried_kie/table_2", ["rows=['TSP, all label']"])
    with pytest.raises(Mistakes, match=r"what follows in the name of a row is of another axis"):
        sweep.read("papers/pried_kie/table_2", ["rows=['no TSP, ε = 8']"])
