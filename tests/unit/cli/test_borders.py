"""What a command leaves on the disk: nothing where it only reads or refuses, nothing for others."""

import os
import shutil
import stat

import pytest
from processes import TOY

from fedpriv.cli.main import main

FOREIGN = ("foreign", "empty", "file", "link", "missing")
GIVEN = {
    "assess": ("assess", "{}"),
    "assess a page": ("assess", "{}", "--plan"),
    "attack": ("attack", "{}", "attack=text"),
    "audit": ("audit", "{}"),
    "budget": ("budget", "{}"),
    "compare": ("compare", "{}", "{}"),
    "data check": ("data", "check", "{}"),
    "data check hf": ("data", "check", "data=hf", "data.source.path={}"),
    "data convert": ("data", "convert", "{}", "--out", "converted"),
    "model check": ("model", "check", "auto", "model.pretrained={}"),
    "report": ("report", "{}"),
    "report redacted": ("report", "{}", "--redacted"),
    "resume": ("resume", "{}", "rounds=2"),
    "run": ("run", TOY, "data.source={{_target_: fedpriv.data.folder.load.load_folder, root: {}}}"),
    "sweep": ("sweep", "{}"),
    "verify": ("verify", "{}"),
}


@pytest.fixture
def places(tmp_path, monkeypatch):
    """A folder of each kind that holds nothing of fedpriv, and the folder that one works in."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    for name in ("foreign/below", "empty"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "foreign/x.txt").write_text("mine")
    (tmp_path / "foreign/plan.json").write_text('{"mine": 1}')
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to("foreign")
    for path in (tmp_path / "foreign", tmp_path / "foreign/below", tmp_path / "empty"):
        path.chmod(0o755)
    return tmp_path


def tree(root):
    """Returns names, modes, times and contents of all that is there."""
    found = {}
    for path in sorted([root, *root.rglob("*")]):
        seen = path.lstat()
        content = path.read_bytes() if path.is_file() else None
        found[str(path)] = (seen.st_mode, seen.st_mtime_ns, content)
    return found


@pytest.mark.parametrize("kind", FOREIGN)
@pytest.mark.parametrize("command", GIVEN)
def test_a_refused_command_changes_nothing(places, command, kind, capsys):
    before = tree(places)
    words = [word.format(places / kind) for word in GIVEN[command]]
    assert main(words) in (1, 2), capsys.readouterr().out
    assert tree(places) == before
    err = capsys.readouterr().err
    assert "Traceback" not in err
    assert err.strip()


@pytest.mark.parametrize("command", ["verify", "budget", "attack --plan"])
def test_a_command_that_reads_changes_nothing(copy, command, tmp_path, monkeypatch):
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    name, *more = command.split()
    before = tree(tmp_path)
    main([name, str(copy), *more])
    assert tree(tmp_path) == before


def test_what_commands_write_is_their_owners_only_whatever_the_umask(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = os.umask(0)
    try:
        for words in (
            ("run", TOY, "rounds=1", "runs=runs", "name=a"),
            ("run", TOY, "rounds=1", "runs=runs", "name=b", "seed=1"),
            ("data", "check", "slips", "--pages", "2"),
        ):
            assert main(list(words)) == 0
        runs = [str(path.parent) for path in tmp_path.glob("runs/*/*/config.yaml")]
        assert main(["report", runs[0]]) == 0
        assert main(["compare", *runs, "--csv", "table.csv"]) == 0
        assert os.umask(0) == 0
    finally:
        os.umask(before)
    written = [path for path in tmp_path.rglob("*") if not path.is_symlink()]
    assert {"table.csv", "comparison.html", "contact-sheet.png"} <= {path.name for path in written}
    open_to_others = [str(p) for p in written if stat.S_IMODE(p.stat().st_mode) & 0o077]
    assert open_to_others == []
    shutil.rmtree(tmp_path / "runs")
