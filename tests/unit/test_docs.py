"""What the pages of the docs say is so: their commands exist, and their Python runs.

Pages that are followed from end to end are in `tests/system/test_docs_end_to_end.py`.
"""

import re
import sys

import click
import matplotlib
import pytest
import yaml
from doc_pages import LANGUAGES, ROOT, matches, pages, read_text, run_python, words_of, write_file
from thorough import THOROUGH

from fedpriv.cli.main import commands, main
from fedpriv.config import attack, catalogue, experiment
from fedpriv.runtime.refusals import Mistakes
from fedpriv.studies import papers, reproduce, sweep

PAGES = pages()
IDS = [page.name for page in PAGES]
QUICK = {"budget", "list"}
"""Commands that take no time, and are really run."""
TELLS = {"-h", "--help", "--version"}
NAMES = [[name] for name in commands.commands]
PLACEHOLDER = re.compile(r"\b[A-Z][A-Z_]+\b(?!=)")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder to work in, whose modules can be imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("FEDPRIV_DATA", "/data")
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def parsed(words):
    """Returns a command by name and what it is given, as Click reads it."""
    context = commands.make_context("fedpriv", list(words))
    while isinstance(context.command, click.Group):
        rest = [*context._protected_args, *context.args]
        name, command, rest = context.command.resolve_command(context, rest)
        context = command.make_context(name, rest, parent=context)
    return context.command.name, context.params


def refusal(name, overrides):
    """Returns the mistakes for which an experiment is refused; empty if it is not."""
    try:
        experiment.build(experiment.load(name, overrides), name)
    except Mistakes as mistakes:
        return str(mistakes)
    return ""


def unknown(name, given):
    """Returns what a command names that is not there; its settings are not looked at."""
    groups, names = catalogue.groups(), []
    if name == "run":
        catalogue.experiment(given["name"])
    elif name == "sweep" and not given["name"].endswith(".yaml"):
        names += [given["name"]] if given["name"] not in catalogue.sweeps() else []
    elif name == "reproduce" and given["paper"]:
        known = papers.tables(given["paper"])
        names += [given["table"]] if given["table"] and given["table"] not in known else []
    for override in given.get("overrides", ()):
        key, _, value = override.partition("=")
        if key in groups and name in ("run", "attack"):
            chosen = value.strip("[]").split(",")
            names += [one for one in chosen if "." not in one and one not in groups[key]]
    return names


def check(words, shown, capsys, compose):
    """Checks one command of fedpriv, without starting what takes long.

    Args:
        words: of the command, without its own name.
        shown: what the page shows of its output; None for nothing.
        capsys: pytest's.
        compose: whether experiments, attacks and sweeps are composed, which takes Hydra a third of
            a second each. If not, the names in the command are looked up.
    """
    name, given = (words[0], {}) if TELLS & set(words) else parsed(words)
    if TELLS & set(words) or (name in QUICK and not given.get("runs")):
        assert main(words) == 0
        printed = capsys.readouterr().out
        assert shown is None or matches(shown, printed), printed
    elif not compose:
        assert unknown(name, given) == []
    elif name == "run":
        lists = [given["overrides"]]
        if given["multirun"]:
            lists = [row.run for row in sweep.of_runs(given["name"], given["overrides"]).rows]
        for overrides in lists:
            said = refusal(given["name"], overrides)
            expected = shown if shown and "nothing was started" in shown else ""
            assert sorted(said.splitlines()) == sorted(expected.splitlines())
    elif name == "attack":
        if given["overrides"]:  # without any, it lists the attacks
            attack.parse([*given["overrides"]])
    elif name == "sweep":
        assert sweep.read(given["name"], given["overrides"]).rows
    elif name == "reproduce" and given["table"]:
        assert reproduce.read(given["paper"], given["table"], given["overrides"]).rows


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_every_command_of_a_page_exists(page, folder, capsys):
    check_page(page, folder, capsys, compose=THOROUGH)


def test_there_are_pages():
    assert len(PAGES) > 5
    folders = {page.name.rpartition("/")[0] for page in PAGES}
    assert folders >= {"", "docs", "docs/tutorials", "docs/guides", "docs/reference"}


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_every_block_says_what_it_is(page):
    for block in page.blocks:
        directive = block.language.startswith("{")
        assert directive or block.language in LANGUAGES, f"{block}: {block.language!r}"
        assert not directive or "{code" not in block.language, f"{block}: use ``` with a language"
        assert block.language != "text" or not re.search(r"^(\$ )?fedpriv ", block.text, re.M), (
            block
        )


def check_page(page, folder, capsys, *, compose):
    """Checks the commands and files of a page."""
    for block in page.blocks:
        if block.file:
            write_file(block, folder)
        elif block.language == "yaml":
            yaml.safe_load(block.text)
        elif block.language in ("console", "sh"):
            for command, shown in block.commands():
                if (words := words_of(command)) is not None:
                    check(words, shown, capsys, compose)
                elif command.startswith("make "):
                    target = command.split()[1]
                    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.M), block
    for command in page.inline:
        if not PLACEHOLDER.search(command.replace("RUN_DIR", "")) and "…" not in command:
            words = words_of(command)
            if words not in NAMES:  # `fedpriv run` alone speaks of the command
                check(words, None, capsys, compose)


PYTHON = [
    page
    for page in PAGES
    if not page.end_to_end and any(block.language == "python" for block in page.blocks)
]
NOTEBOOKS = [page for page in PYTHON if "kernelspec" in page.settings]


@pytest.mark.parametrize(
    "page", [page for page in PYTHON if page not in NOTEBOOKS], ids=lambda page: page.name
)
def test_the_python_of_a_page_runs(page, folder):
    run_all_python(page, folder)


@pytest.mark.slow  # `make docs` runs them too
@pytest.mark.parametrize("page", NOTEBOOKS, ids=lambda page: page.name)
def test_a_notebook_runs(page, folder):
    run_all_python(page, folder)


def test_there_are_notebooks_and_only_they_have_cells():
    assert len(NOTEBOOKS) > 1
    cells = [p.name for p in PAGES if "```{code-cell}" in (ROOT / p.name).read_text("utf-8")]
    assert cells == [page.name for page in NOTEBOOKS]


def run_all_python(page, folder):
    """Runs the blocks of Python on a page, and the cells of a notebook, in order."""
    made = {"__name__": "__main__"}
    with matplotlib.rc_context():
        for block in page.blocks:
            if block.file:
                write_file(block, folder)
            elif block.language == "python" and not block.skipped:
                run_python(block, made)


NOTEBOOK = """---
kernelspec: {name: python3}
---
```{code-cell}
---
tags: [hide-input]
---
two = 1 + 1
```

```{code-cell}
assert two == TWO
two;
```
"""


def test_the_cells_of_a_notebook_run_in_order(folder):
    run_all_python(page_of(NOTEBOOK.replace("TWO", "2")), folder)
    with pytest.raises(AssertionError) as error:
        run_all_python(page_of(NOTEBOOK.replace("TWO", "3")), folder)
    assert error.traceback[-1].lineno == NOTEBOOK.splitlines().index("assert two == TWO")


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_every_file_linked_is_there(page):
    text = (ROOT / page.name).read_text("utf-8")
    for link in re.findall(r"\]\((?!https?:|mailto:|#)([^)#\s]+)", text):
        assert ((ROOT / page.name).parent / link).exists(), link


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_every_test_that_a_page_names_is_there(page):
    text = (ROOT / page.name).read_text("utf-8")
    for path, name in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text):
        assert f"def {name}(" in (ROOT / path).read_text("utf-8"), f"{path}::{name}"


def page_of(text):
    return read_text(text, "docs/guides/made_up.md")


@pytest.mark.parametrize(
    "text",
    [
        "```sh\nfedpriv run quickstart strategy=fedavg_\n```",
        "```sh\nfedpriv run quickstart client.epoch=2\n```",
        "```sh\nfedpriv run nosuch\n```",
        "```sh\nfedpriv attack RUN_DIR attack=pmia knwon=0.3\n```",
        "```sh\nFEDPRIV_DATA=/x fedpriv resume RUN_DIR --hastily\n```",
        "```sh\nfedpriv sweep papers/gi_dqa/table_0\n```",
        "```sh\nmake tea\n```",
        "```console\n$ fedpriv --version\nfedpriv 99\n```",
        "```console\n$ fedpriv run quickstart\nquickstart: 1 mistake, nothing was started\n```",
        "Try `fedpriv run quickstart rounds=few`.",
        "Try `fedpriv ruin`.",
        "```yaml\nrounds: [1\n```",
    ],
)
def test_a_wrong_page_is_found(text, folder, capsys):
    with pytest.raises((AssertionError, ValueError, click.ClickException, yaml.YAMLError)):
        check_page(page_of(text), folder, capsys, compose=True)


@pytest.mark.parametrize(
    "command",
    [
        "run nosuch",
        "run quickstart strategy=fedavg_",
        "attack RUN_DIR attack=no",
        "sweep papers/no",
    ],
)
def test_a_wrong_name_is_found_without_composing(command, folder, capsys):
    with pytest.raises((AssertionError, Mistakes)):
        check_page(page_of(f"```sh\nfedpriv {command}\n```"), folder, capsys, compose=False)


def test_a_page_with_files_and_commands_is_good(folder, capsys):
    text = """---
end_to_end: true
---
```yaml
# mine.yaml
defaults: [base, {data: invoices}, {model: layoutlmv3}, {strategy: fedavg}, _self_]
name: mine
rounds: 1
```

<!-- not run: it would take long -->
```console
$ fedpriv run mine.yaml rounds=2
...
$ fedpriv --version
fedpriv ...
```
"""
    page = page_of(text)
    assert page.end_to_end
    assert [(block.line, block.file, block.skipped) for block in page.blocks] == [
        (4, "mine.yaml", ""),
        (12, "", "it would take long"),
    ]
    check_page(page, folder, capsys, compose=False)
    check_page(page, folder, capsys, compose=True)
