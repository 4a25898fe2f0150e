"""The README is short, and its commands are the ones that `make quickstart` runs.

Its blocks and links are checked with those of the docs, in `test_docs.py`.
"""

import re
from pathlib import Path

from fedpriv.cli.main import commands

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")


def test_it_is_read_to_the_end():
    assert len(README.splitlines()) <= 150


def commands_of_the_quickstart():
    script = (ROOT / "experiments/quickstart.sh").read_text("utf-8").replace("\\\n", " ")
    lines = re.findall(r"^ *fed (.+)$", script, re.MULTILINE)
    return [["fed", *line.replace('"', "").split()] for line in lines]


def test_the_quickstart_takes_options_that_its_commands_have():
    ran = commands_of_the_quickstart()
    assert len(ran) == 3
    for _, name, *words in ran:
        options = {one for param in commands.commands[name].params for one in param.opts}
        assert options.issuperset(word for word in words if word.startswith("-")), name


def test_its_first_table_shows_what_the_quickstart_runs():
    rows = re.findall(r"^\| (`fedpriv .+?`) \|", README.replace('"', ""), re.MULTILINE)
    shown = [command for row in rows[:2] for command in re.findall(r"`fedpriv (.+?)`", row)]
    assert len(shown) == 3
    ran = commands_of_the_quickstart()
    for command in shown:
        name, subject, *settings = command.split()
        fits = [words for words in ran if words[1] == name and set(settings) <= set(words)]
        assert [w for w in fits if subject in (w[2], "RUN_DIR")], command


def test_every_file_linked_is_there():
    links = re.findall(r"\]\((?!http)([^)#]+)\)", README)
    assert len(links) > 15
    for link in links:
        assert (ROOT / link).exists(), link
