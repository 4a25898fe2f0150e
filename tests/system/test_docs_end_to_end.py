"""Pages that somebody can follow, followed: each block in order, in one folder and one shell."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from doc_pages import matches, pages, read_text, run_python, words_of, write_file
from processes import Forked

END = "the command has ended:"


class Shell:
    """A shell in which one command is run after another."""

    def __init__(self, folder):
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self.bash = subprocess.Popen(
            ["bash"],
            cwd=folder,
            env={**os.environ, "PATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, command):
        """Runs a command; returns its exit status, and what it printed on both streams."""
        self.bash.stdin.write(f"{{ {command}\n}} < /dev/null; printf '\\n{END}%d\\n' $?\n")
        self.bash.stdin.flush()
        lines = []
        for line in self.bash.stdout:
            if line.startswith(END):
                return int(line.removeprefix(END)), "".join(lines).removesuffix("\n")
            lines.append(line)
        raise AssertionError(f"the shell has ended after {command!r}: {''.join(lines)}")

    def close(self):
        """Ends the shell."""
        self.bash.stdin.close()
        self.bash.wait(timeout=10)


@pytest.fixture
def shell(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shell = Shell(tmp_path)
    yield shell
    shell.close()


def forked(words, folder):
    """Runs a command of fedpriv that needs no shell, as `Shell.run`, without seconds of imports."""
    process = Forked(*words, cwd=folder)
    while process.poll() is None:
        time.sleep(0.05)
    return int(process.poll().removeprefix("it ended with status ")), process.said().rstrip("\n")


def follow(page, shell, folder):
    """Runs everything on a page. RUN_DIR stands for the run folder that was printed last."""
    run_dir, made = "RUN_DIR", {"__name__": "__main__"}
    for block in page.blocks:
        if block.file:
            write_file(block, folder)
        elif block.skipped:
            continue
        elif block.language == "python":
            run_python(block, made)
        elif block.language in ("console", "sh"):
            for command, shown in block.commands():
                command = command.replace("RUN_DIR", run_dir)
                words = [] if set("$|&;<>") & set(command) else words_of(command)
                status, printed = forked(words, folder) if words else shell.run(command)
                said = f"{block}: {command}\n{printed}"
                assert shown is None or matches(shown, printed), said
                assert status == 0 or shown is not None, said
                if (words_of(command) or [""])[0] in ("run", "resume") and status == 0:
                    run_dir = printed.splitlines()[-1]
                    assert (folder / run_dir).is_dir(), said


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [page for page in pages() if page.end_to_end and page.blocks],
    ids=lambda page: page.name,
)
def test_a_page_can_be_followed(page, shell, tmp_path):
    follow(page, shell, tmp_path)


GOOD = """
```python
# shout.py
print("HELLO")
```
```console
$ here=1
$ python shout.py
HELLO
$ echo $here; fedpriv --version
1
fedpriv ...
```
```python
import pathlib
assert pathlib.Path("shout.py").exists()
left = 2
```
<!-- not run: nobody has this -->
```sh
nosuch
```
```python
assert left == 2
```
"""


def test_a_page_is_followed_in_order(shell, tmp_path):
    follow(read_text(GOOD, "docs/tutorials/good.md"), shell, tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "```sh\nfalse\n```",
        "```sh\nexit\n```",
        "```console\n$ echo 1\n2\n```",
        "```console\n$ fedpriv --version\nfedpriv 99\n```",
        "```sh\nfedpriv run nosuch\n```",
        "```python\n1 / 0\n```",
    ],
)
def test_a_page_that_does_not_work_is_found(text, shell, tmp_path):
    with pytest.raises((AssertionError, ZeroDivisionError)):
        follow(read_text(text, "docs/tutorials/bad.md"), shell, tmp_path)
