"""No text from data is a command to the terminal that it is printed on."""

import json
import sys
import unicodedata

import numpy as np
import pytest
from form_folders import write, write_sroie

from fedpriv.cli import main
from fedpriv.cli.command import Command
from fedpriv.runtime.progress import Lines, for_this_terminal
from fedpriv.runtime.terminal import escaping_stderr, visible, visible_output

COMMANDS = "\x1b[2J\x1b]0;pwned\x07\r\x9b31m\u202e\u2066\x00\x7f\u2028\ud800\u200f"
SPELLED = r"\x1b[2J\x1b]0;pwned\x07\r\x9b31m\u202e\u2066\x00\x7f\u2028\ud800\u200f"


def commands_in(text):
    return [sign for sign in text if unicodedata.category(sign)[0] in "CZ" and sign not in " \n"]


def test_commands_are_spelled_out_and_scripts_are_not():
    assert visible(COMMANDS) == SPELLED
    assert visible("\u200b") == r"\u200b"
    for text in ("a\tb\n", "Čeština ελ 名前 عربي می‌خواهم क्‍ष 👩‍👩‍👧 ×·…", r"C:\x1b", ""):
        assert visible(text) == text


@pytest.fixture
def printed(monkeypatch, capsys):
    """Runs a command in the place of every other; returns status, output and error."""

    def run(command):
        monkeypatch.setitem(main.commands.commands, "x", Command("x", callback=command))
        status = main.main(["x"])
        return status, *capsys.readouterr()

    return run


def test_whatever_a_command_prints_is_visible(printed):
    def command():
        print(f"an attack's row: {COMMANDS}")
        print(COMMANDS, file=sys.stderr)
        raise ValueError(COMMANDS)

    status, out, err = printed(command)
    assert (status, out) == (1, f"an attack's row: {SPELLED}\n")
    assert err == f"{SPELLED}\n{SPELLED}\n"


def test_the_display_keeps_its_own_escapes(printed):
    def command():
        print("\x1b[1mbold", file=escaping_stderr())
        assert isinstance(for_this_terminal(), Lines)
        return 0

    _, _, err = printed(command)
    assert err == "\x1b[1mbold\n"


def test_what_is_printed_beside_the_display_is_visible(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("FORCE_COLOR", "1")
    with visible_output(), for_this_terminal().following(tmp_path / "[red]\x9bA", 0, 1, 1):
        print(f"beside {COMMANDS}")
    said = "".join(capsys.readouterr())
    assert "\x1b[" in said  # of the bars
    assert r"[red]\x9bA" in said.replace("\n", "")
    assert r"\x9b31m" in said
    assert not set("\x9b\x07\u202e") & set(said)


def test_check_shows_what_stands_in_names(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    provider = "\x1b[2J\x1b]0;pwned\x07EVIL\nproblems   none\r\x9b\u202e"
    for stem in ("X1", "X2", "X\x1b[2Jname"):
        write_sroie(tmp_path / "data", stem)
    rows = [{"split": "train", "id": stem, "provider": provider} for stem in ("X1", "X2")]
    write(tmp_path / "data" / "manifest.jsonl", "\n".join(map(json.dumps, rows)))
    (tmp_path / "data" / "train" / "img" / "X\x1b[2Jname.jpg").write_bytes(b"cut")
    assert main.main(["data", "check", "data", "--pages", "0"]) == 0
    out, err = capsys.readouterr()
    assert commands_in(out) == []
    assert r"largest: \x1b[2J\x1b]0;pwned\x07EVIL\nproblems   none\r\x9b\u202e 2" in out
    assert r"X\x1b[2Jname.jpg: not an image" in out
    assert sum(line.startswith("problems") for line in out.splitlines()) == 1
    assert err == ""


def test_convert_shows_what_stands_in_names(tmp_path, capsys):
    np.save(tmp_path / "a\x1b[2J.npy", np.zeros(3))
    assert main.main(["data", "convert", str(tmp_path)]) == 1
    out, err = capsys.readouterr()
    assert commands_in(out + err) == []
    assert r"a\x1b[2J.npy" in err
