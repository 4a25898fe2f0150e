"""Pages of Markdown, and their blocks of code: what a reader could copy, so that tests can run it.

CONTRIBUTING.md tells writers how blocks are marked.
"""

import dataclasses
import doctest
import re
import shlex
from pathlib import Path

import yaml
from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
LANGUAGES = {"python", "yaml", "console", "sh", "text", "json", "bibtex", "toml"}
"""What a block may be in. Python runs, YAML is read, commands are checked; the rest is shown."""


@dataclasses.dataclass(frozen=True)
class Block:
    """A fenced block of code.

    Attributes:
        page: path of the page, from the root of the repository.
        line: on which it begins.
        language: empty where none is named.
        text: its lines.
        file: the name that its first line, a comment, gives it; empty for what is to be run.
        skipped: why it is not run, by the comment above it; empty if it is.
    """

    page: str
    line: int
    language: str
    text: str
    file: str
    skipped: str

    def __str__(self):
        return f"{self.page}:{self.line}"

    def commands(self):
        """Returns each command with the output shown below it, None where none is."""
        text = self.text.replace("\\\n", "")
        if self.language == "sh":
            return [(line, None) for line in text.splitlines() if line.strip()]
        found = []
        for line in text.splitlines():
            if line.startswith("$ "):
                found.append((line[2:], []))
            else:
                assert found, f"{self}: a block of console begins with `$ `, got {line!r}"
                found[-1][1].append(line)
        return [(command, "\n".join(shown) or None) for command, shown in found]


@dataclasses.dataclass(frozen=True)
class Page:
    """A page of Markdown.

    Attributes:
        name: its path from the root of the repository.
        settings: its front matter.
        blocks: in order.
        inline: `fedpriv …` in running text.
    """

    name: str
    settings: dict
    blocks: tuple[Block, ...]
    inline: tuple[str, ...]

    @property
    def end_to_end(self):
        """Whether everything on it is run in order, as somebody who follows it would."""
        return self.settings.get("end_to_end", self.name.startswith("docs/tutorials/"))


def _blank(match):
    """Returns as many blank lines, which keep the numbers of the lines below."""
    return "\n" * match[0].count("\n")


def read_text(text, name):
    """Returns a page, given its text and its path from the root of the repository."""
    front = re.match(r"---\n(.*?)^---\n", text, re.DOTALL | re.MULTILINE)
    settings = yaml.safe_load(front[1]) if front else {}
    if front:
        text = _blank(front) + text[front.end() :]
    blocks, inline, comment = [], [], ""
    for token in MarkdownIt().parse(text):
        if token.type == "fence":
            language, code = token.info.strip(), token.content
            if language == "{code-cell}":  # of a notebook; its options are not code
                language = "python"
                code = re.sub(r"\A---\n.*?^---\n", _blank, code, flags=re.DOTALL | re.MULTILINE)
            first = re.match(r"# ([\w./-]+\.(?:py|yaml))\n", code)
            reason = re.fullmatch(r"<!-- not run: (.+?) -->\s*", comment, re.DOTALL)
            file, skipped = first[1] if first else "", reason[1] if reason else ""
            blocks.append(Block(name, token.map[0] + 1, language, code, file, skipped))
        elif token.type == "inline":
            code = (child.content for child in token.children if child.type == "code_inline")
            inline += [one for one in code if one.startswith("fedpriv ")]
        comment = token.content if token.type == "html_block" else ""
    return Page(name, settings, tuple(blocks), tuple(inline))


def pages():
    """Returns the README and the pages of the docs."""
    made = {DOCS / "_build", DOCS / "_generated"}
    paths = sorted(path for path in DOCS.rglob("*.md") if made.isdisjoint(path.parents))
    paths.insert(0, ROOT / "README.md")
    return [read_text(path.read_text("utf-8"), str(path.relative_to(ROOT))) for path in paths]


def words_of(command):
    """Returns the words of a command of fedpriv, without what is set before it; None of another."""
    words = shlex.split(command.partition(" | ")[0], comments=True)
    while words and re.match(r"[A-Z_]+=", words[0]):
        del words[0]
    return words[1:] if words and words[0] == "fedpriv" else None


def write_file(block, folder):
    """Writes a block that is a file, without the line that names it."""
    path = folder / block.file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(block.text.partition("\n")[2])


def matches(shown, printed):
    """Whether a page shows what was printed; `...` stands for anything."""
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    return doctest.OutputChecker().check_output(f"{shown}\n", f"{printed}\n", flags)


def run_python(block, made):
    """Runs a block of Python among the names that earlier ones have made."""
    # The blank lines make a traceback name the line of the page.
    exec(compile("\n" * block.line + block.text, ROOT / block.page, "exec"), made)  # noqa: S102
