"""Overrides: what is a path, what a sweep, and what to type in place of what cannot be read."""

import re

import pytest

from fedpriv.cli.main import main
from fedpriv.config import experiment
from fedpriv.config.overrides import combinations, parsed, read, split
from fedpriv.runtime.refusals import Mistakes

PATHS = [
    "./my scans (2024)", "scans (2019), copy", "q=4 scans", "./q=4", "./a,b", "/a, b/[c]", "./{a}",
    "über/Müller & Söhne", "~/scans", "~scans", "C:\\scans (1)\\2024", "\\\\server\\a b", "./#1",
    "./it's", "./'a'", "a'b", "./a ", "../x?", "/data/$x",
]  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_a_path_is_taken_as_it_stands(path):
    assert read(path) == path
    assert split(f"data.source.root={path}") == ("data.source.root", path)
    config = experiment.load("quickstart", ["data=folder", f"data.source.root={path}"])
    assert config["data"]["source"]["root"] == path


@pytest.mark.parametrize("name", ["a,b", "[a]", "{a: 1}", "range(3)"])
def test_so_is_the_name_of_a_folder_that_is_there(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert read(name) != name or parsed(f"x={name}").several
    (tmp_path / name).mkdir()
    assert read(name) == name
    assert combinations([f"x={name}"], "here") == [[f"x={name}"]]


def test_several_paths_are_a_sweep():
    assert combinations(["x=./a,./b (1)"], "here") == [["x=./a,./b (1)"]]
    assert combinations(["x=./a,./b"], "here") == [["x=./a"], ["x=./b"]]


@pytest.mark.parametrize("name", ["3", "true", "null"])
def test_a_file_of_that_name_makes_no_text_of_a_number(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).touch()
    assert read(name) == {"3": 3, "true": True, "null": None}[name]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"3": [0, 2], "ä b": null}', {"3": [0, 2], "ä b": None}),
        ("[none, fl_provider_dp privacy.epsilon=2]", ["none", "fl_provider_dp privacy.epsilon=2"]),
        ("on", "on"),
        ("12:30", "12:30"),
        ("{3:1}", {3: 1}),
    ],
)
def test_lists_and_mappings_may_be_json_or_yaml(text, value):
    assert read(text) == value


@pytest.mark.parametrize(
    ("word", "why"),
    [
        ("seed=[1", "a bracket or a quotation mark is not closed"),
        ("x='a", "a bracket or a quotation mark is not closed"),
        ("rounds", "type rounds=VALUE"),
        ("a b=3", "'a b' is no name of a setting"),
    ],
)
def test_what_cannot_be_read_says_what_to_type(word, why):
    with pytest.raises(ValueError, match=f"is not of the form key=value: {why}"):
        parsed(word)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["rounds", "3"], "rounds 3: is not of the form key=value; type rounds=3, and quote a "),
        (["rounds"], "rounds: is not of the form key=value; type rounds=VALUE, and quote a value"),
        (["rounds=1", "+rounds=0"], "rounds=1 rounds=0: rounds is given twice; give one value"),
        (
            ["ray.client_resources=num_cpus:1", "ray.client_resources=num_gpus:0.5"],
            "bash splits {a,b}, so type 'ray.client_resources={num_cpus:1,num_gpus:0.5}'",
        ),
    ],
)
def test_words_that_are_no_overrides_are_refused_with_the_line_to_type(
    words, line, capsys, monkeypatch
):
    monkeypatch.setattr("sys.argv", ["fedpriv", "run", "quickstart", *words])
    assert main() == 2
    (problem,) = capsys.readouterr().err.splitlines()[1:]
    assert line in problem


def test_of_a_setting_that_python_gives_twice_the_last_counts(capsys):
    assert main(["run", "quickstart", "rounds=7", "rounds=0", "--settings"]) == 0
    assert re.search(r"^rounds +0 ", capsys.readouterr().out, re.MULTILINE)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--rounds", "3"], "Settings have no dashes: type rounds=3."),
        (["--rounds=3"], "Settings have no dashes: type rounds=3."),
        (["--rounds"], "Settings have no dashes: type rounds=VALUE."),
        (["--setings"], "Did you mean '--settings'?"),
        (["-x3"], "No such option '-x'."),
    ],
)
def test_a_setting_with_dashes_is_told_without(words, line, capsys):
    assert main(["run", "quickstart", *words]) == 2
    assert capsys.readouterr().err.splitlines()[-1].endswith(line)


def test_sweeps_are_the_product_in_order():
    assert combinations(["seed=0,1", "strategy=fedavg", "rounds=range(2,4)"], "here") == [
        ["seed=0", "strategy=fedavg", "rounds=2"],
        ["seed=0", "strategy=fedavg", "rounds=3"],
        ["seed=1", "strategy=fedavg", "rounds=2"],
        ["seed=1", "strategy=fedavg", "rounds=3"],
    ]


@pytest.mark.parametrize("text", ["runs=r\udcff", "seed=[1", "rounds"])
def test_combinations_of_what_cannot_be_read_are_refused(text):
    with pytest.raises(Mistakes, match=r"is not UTF-8|is not of the form key=value"):
        combinations(["seed=0,1", text], "here")
