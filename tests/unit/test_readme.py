"""What the README says is so."""

import json
import re
import shlex
from pathlib import Path

import pytest
from attacked import attacked
from toy_fields import federation, follows

from fedpriv.cli.main import main
from fedpriv.config import attack, experiment, sweep

README = (Path(__file__).parents[2] / "README.md").read_text("utf-8")


def blocks(language):
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
    return [text for name, text in fenced if name == language]


def test_the_python_example_runs(tmp_path, monkeypatch, capsys):
    code = blocks("python")[0]
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {})  # noqa: S102
    f1, folder = capsys.readouterr().out.split()
    assert 0 <= float(f1) <= 1
    assert (tmp_path / folder / "report.html").is_file()


def test_the_attack_example_runs(tmp_path, monkeypatch, capsys):
    code = blocks("python")[1]
    assert len(code.strip().splitlines()) <= 20
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {})  # noqa: S102
    told = capsys.readouterr().out
    assert float(re.search(r"the private fields at ([\d.]+) dB", told)[1]) > 70
    assert list(tmp_path.glob("runs/**/findings/closed_form/result.json"))


def test_an_attack_of_ones_own_runs_by_its_dotted_path(tmp_path, monkeypatch, capsys):
    """The README's, from a folder outside the repository, through the command line."""
    (tmp_path / "my_attacks").mkdir()
    (tmp_path / "my_attacks/blank.py").write_text(blocks("python")[2])
    monkeypatch.chdir(tmp_path)
    small = ["data.source.page_size=[64,64]", "data.source.providers=2", "data.partition.clients=1"]
    nothing = ["data.test.fraction=0", "data.test.unseen=0", "model.image_size=64"]
    assert main(["run", "gi_dqa", *small, *nothing]) == 0
    run = capsys.readouterr().out.splitlines()[-1]
    assert main(["attack", run, "attack=my_attacks.blank.Blank", "ocr=null"]) == 0
    result = json.loads((tmp_path / run / "findings/Blank/result.json").read_text("utf-8"))
    assert result["status"] == "done"
    numbers = result["details"]
    assert numbers["psnr_roi"] == pytest.approx(numbers["template_psnr_roi"])


def test_an_attack_of_ones_own_on_fields_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDPRIV_CACHE", str(tmp_path / "cache"))
    code = next(block for block in blocks("python") if "class Greedy" in block)
    made = {"__name__": "greedy"}
    exec(compile(code, "README.md", "exec"), made)  # noqa: S102
    run = federation(tmp_path).run(1).run_dir
    found = attacked(run, made["Greedy"](), follows)
    assert (found["status"], found["kind"], found["fields"]) == ("done", "fields", 5)


def test_the_yaml_example_builds(tmp_path, monkeypatch):
    text = next(block for block in blocks("yaml") if "defaults:" in block)
    (tmp_path / "mine.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    assert experiment.build(experiment.load("mine.yaml")).strategy.sampling.rate == 0.5


@pytest.mark.slow
def test_every_command_names_what_exists(monkeypatch):
    monkeypatch.setenv("FEDPRIV_DATA", "/data")
    commands = re.findall(r"fedpriv run (?!-m)(\w+\b)(?!\.yaml)((?: [\w.]+=\S+)*)", README)
    assert len(commands) > 4
    wrong = {"strategy.weigted=true", "federation.wrokers=2", "client.optimizer.lr=-1"}
    for name, overrides in sorted(set(commands)):
        good = [o for o in overrides.split() if o not in wrong]
        experiment.build(experiment.load(name, good))


def test_every_attack_names_what_exists():
    commands = re.findall(r"fedpriv attack RUN_DIR((?: [\w.]+=[^\s`)]+)+)", README)
    assert len(commands) > 3
    for overrides in sorted(set(commands)):
        if "my_attacks" not in overrides:
            attack.parse(["ocr=null", *overrides.split()])
    for override in ("attack.hybrid=true", "attack.target=masked", "assume.template=false"):
        assert override in README
        attack.parse(["attack=gi_dqa", override, "ocr=null"])


def test_the_error_shown_is_the_error_given():
    shown = next(block for block in blocks("") if "3 mistakes" in block)
    command, *lines = shown.splitlines()
    name, *overrides = command.removeprefix("$ fedpriv run ").split()
    with pytest.raises(experiment.Mistakes) as caught:
        experiment.build(experiment.load(name, overrides), name)
    assert sorted(str(caught.value).splitlines()) == sorted(lines)


def test_every_file_linked_is_there():
    links = re.findall(r"\]\((?!http)([^)#]+)\)", README)
    assert len(links) > 5
    for link in links:
        assert (Path(__file__).parents[2] / link).exists(), link


@pytest.mark.parametrize("number", [0, 1])
def test_the_budgets_shown_are_the_budgets_told(number, capsys):
    shown = [block for block in blocks("") if block.startswith("$ fedpriv budget")][number]
    command, *lines = shown.splitlines()
    assert main(command.removeprefix("$ fedpriv ").split()) == 0
    assert capsys.readouterr().out.startswith("\n".join(lines))
    assert len(lines) >= 1


def test_the_table_is_a_sweep(tmp_path):
    text = next(block for block in blocks("yaml") if "claims:" in block)
    (tmp_path / "my_table.yaml").write_text(text)
    table = sweep.read(str(tmp_path / "my_table.yaml"))
    assert [row.name for row in table.rows][:2] == [
        "closed form, noise 0",
        "closed form, noise 1e-06",
    ]
    assert len(sweep.plan(table)) == 12
    changed = [
        shlex.split(line, comments=True)[2:]
        for block in blocks("")
        for line in block.splitlines()
        if line.startswith("fedpriv sweep papers")
    ]
    assert len(changed) >= 3
    for name, *overrides in changed:
        assert sweep.read(name, overrides).rows
