"""What the shell offers after Tab, asked as Click's scripts ask."""

import pytest
from click.shell_completion import BashComplete, ShellComplete

from fedpriv.cli.main import COMPLETE, commands, main
from fedpriv.config import catalogue


def offered(*words):
    """Returns what is offered for the last word, which is not complete yet."""
    *before, incomplete = words
    items = ShellComplete(commands, {}, "fedpriv", COMPLETE).get_completions(before, incomplete)
    return {item.value: item for item in items if item.type == "plain"}


def test_commands_and_options_are_offered():
    assert list(offered("re")) == ["report", "reproduce", "resume"]
    assert list(offered("data", "")) == ["check", "convert"]
    assert list(offered("run", "quickstart", "--m")) == ["--multirun"]


def test_experiments_are_offered_with_their_headlines():
    assert set(offered("run", "")) == set(catalogue.experiments())
    assert list(offered("run", "quick")) == ["quickstart"]
    assert "invoices" in offered("run", "quick")["quickstart"].help


def test_sweeps_are_offered_with_their_headlines():
    assert set(offered("sweep", "")) == set(catalogue.sweeps())
    assert "Table 5" in offered("sweep", "papers/cdmi/table_5")["papers/cdmi/table_5"].help


def test_papers_and_their_tables_are_offered():
    assert list(offered("reproduce", "p")) == ["pfl-docvqa", "pried-kie"]
    assert list(offered("reproduce", "cdmi", "table5")) == [
        "table5",
        "table5criteria",
        "table5links",
    ]
    assert "Fig. 7" in offered("reproduce", "cdmi", "fig")["figure7"].help
    assert offered("reproduce", "nobody", "") == {}


@pytest.mark.parametrize("before", [(), ("seed=3",), ("-m", "strategy=fedavg,feam_dp")])
def test_groups_and_their_choices_are_offered(before):
    run = ("run", "quickstart", *before)
    assert {"model=", "strategy=", "masking="} <= offered(*run, "").keys()
    assert not {"attack=", "publisher="} & offered(*run, "").keys()
    assert list(offered(*run, "ma")) == ["masking=off", "masking=on"]
    assert list(offered(*run, "m")) == ["masking=", "model="]
    assert list(offered(*run, "model=layout")) == ["model=layoutlm", "model=layoutlmv3"]
    assert list(offered(*run, "keep=[held_out,tr")) == ["keep=[held_out,transcript"]
    assert offered(*run, "nothing=") == {}
    assert offered(*run, "client.epochs=") == {}


def test_attacks_are_offered():
    assert list(offered("attack", "RUN", "")) == ["attack=", "publisher="]
    assert list(offered("attack", "RUN", "attack=gi")) == ["attack=gi_dqa", "attack=gi_dqa_tuned"]
    assert list(offered("list", "at")) == ["attack"]


def test_files_of_the_users_are_offered(tmp_path, monkeypatch):
    (tmp_path / "experiments" / "strategy").mkdir(parents=True)
    (tmp_path / "experiments" / "mine.yaml").write_text("name: mine\n")
    (tmp_path / "experiments" / "strategy" / "mine.yaml").write_text("# My own strategy\n")
    monkeypatch.chdir(tmp_path)
    assert list(offered("run", "mi")) == ["mine"]
    assert offered("run", "mine", "strategy=mi")["strategy=mine"].help == "My own strategy"


def test_data_and_what_may_be_resumed_are_offered():
    assert list(offered("data", "check", "sr")) == ["sroie", "sroie_crops", "sroie_private"]
    assert list(offered("resume", "RUN", "r")) == ["rounds=", "ray."]


def test_run_folders_are_completed_by_the_shell():
    shell = ShellComplete(commands, {}, "fedpriv", COMPLETE)
    for command in ("attack", "resume", "report", "verify"):
        (item,) = shell.get_completions([command], "ru")
        assert (item.type, item.value) == ("dir", "ru")


@pytest.mark.parametrize(
    ("words", "at", "answer"),
    [
        ("fedpriv run quickstart model = layout", 5, ["layoutlm", "layoutlmv3"]),
        ("fedpriv run quickstart masking =", 4, ["off", "on"]),
        ("fedpriv run quickstart seed = 3 masking = o", 8, ["off", "on"]),
        ("fedpriv run quickstart seed = 3", 5, []),
        ("fedpriv attack RUN attack = clo", 5, ["closed_form"]),
    ],
)
def test_bash_splits_words_at_the_equals_sign(words, at, answer, monkeypatch, capfdbinary):
    monkeypatch.setenv("COMP_WORDS", words.replace(" ", "\n"))
    monkeypatch.setenv("COMP_CWORD", str(at))
    monkeypatch.setenv(COMPLETE, "bash_complete")
    assert main([]) == 0
    lines = capfdbinary.readouterr().out.decode().split()
    assert lines == [f"plain,{value}" for value in answer]


def test_the_scripts_for_shells_are_printed(monkeypatch, capfdbinary):
    monkeypatch.setattr(BashComplete, "_check_version", staticmethod(lambda: None))
    for shell in ("bash", "zsh", "fish"):
        monkeypatch.setenv(COMPLETE, f"{shell}_source")
        assert main([]) == 0
        assert f"{COMPLETE}={shell}_complete" in capfdbinary.readouterr().out.decode()
