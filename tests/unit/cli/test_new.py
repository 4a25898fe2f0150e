"""`fedpriv new DIR`: a project that is whole, runs, and passes its own tests."""

import os
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
import yaml
from processes import Forked, run

from fedpriv.cli.main import main
from fedpriv.cli.new import TEMPLATES, package_name


def test_every_file_is_written_under_the_projects_name(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["new", "My-Study"]) == 0
    *named, following = capsys.readouterr().out.splitlines()
    files = [path for path in Path("My-Study").rglob("*") if path.is_file()]
    assert sorted(map(Path, named)) == sorted(files)
    assert len(files) == len(list(TEMPLATES.rglob("*.in"))) > 10
    assert following == "next: cd My-Study && fedpriv run first"
    for path in files:
        text = path.read_text()
        assert "{{" not in text
        if path.suffix == ".py":
            compile(text, str(path), "exec")
        if path.suffix == ".yaml":
            yaml.safe_load(text)
    assert (tmp_path / "My-Study/my_study/attack.py").is_file()


def test_the_readme_installs_what_it_runs(tmp_path):
    assert main(["new", str(tmp_path)]) == 0
    readme = (tmp_path / "README.md").read_text()
    assert readme.index('pip install -e ".[dev]"') < readme.index("\npytest ")
    extras = tomllib.loads((tmp_path / "pyproject.toml").read_text())["project"]
    assert any("pytest" in one for one in extras["optional-dependencies"]["dev"])
    assert "pypi.org" not in readme  # fedpriv is not there


@pytest.mark.parametrize(
    ("name", "package"), [("study", "study"), ("My-Study.2", "my_study_2"), ("a/b c", "b_c")]
)
def test_the_folder_names_the_package(name, package):
    assert package_name(Path(name)) == package


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("full", "is there already, and not empty"),
        ("json", "a module json is there already"),
        ("numpy", "a module numpy is there already"),
        ("fedpriv", "a module fedpriv is there already"),
        ("class", "makes no name of a package"),
        ("2024", "makes no name of a package"),
    ],
)
def test_a_folder_that_cannot_be_is_refused_and_nothing_written(
    name, why, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    assert main(["new", name]) == 2
    assert why in capsys.readouterr().err
    assert [path.name for path in tmp_path.rglob("*")] == ["full", "notes.txt"]


def test_an_empty_folder_will_do(tmp_path, capsys):
    assert main(["new", str(tmp_path)]) == 0
    assert (tmp_path / "README.md").is_file()


@pytest.mark.slow
def test_a_new_project_runs_and_passes_its_own_tests(tmp_path):
    assert run("new", "study", cwd=tmp_path)[0] == 0
    project = tmp_path / "study"
    assert "  momentum  " in run("list", "strategy", cwd=project)[1]
    # Apart from this process, which would keep its modules.
    first = Forked("run", "first", cwd=project)
    while first.poll() is None:
        time.sleep(0.05)
    assert "after 2 rounds" in first.said()
    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    environment = {**os.environ, "FEDPRIV_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(tests, cwd=project, env=environment, capture_output=True, text=True)
    assert "6 passed" in done.stdout, done.stdout + done.stderr
