"""What a person reads: a page as lines of text, a result as JSON, without what varies by nature."""

import json
import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path

from fedpriv.runtime import versions

REPOSITORY = Path(__file__).parents[2]

BLOCKS = {
    "article", "aside", "blockquote", "body", "caption", "dd", "details", "div", "dl", "dt",
    "figcaption", "figure", "footer", "h1", "h2", "h3", "h4", "h5", "h6", "header", "html", "li",
    "main", "nav", "ol", "p", "pre", "section", "summary", "table", "tbody", "thead", "title",
    "tr", "ul",
}  # fmt: skip
HEADINGS = {f"h{level}": "#" * level for level in range(1, 7)}
MARKS = {**HEADINGS, "li": "-", "dt": ":", "caption": "table:", "figcaption": "figure:"}
MARKS |= {"summary": ">", "title": "title:"}
CELLS = {"td", "th"}
NOTHING, BREAK = "\x00", "\x01"
"""Where a row begins, so that an empty first cell is a cell too, and where a cell begins a line."""
VOID = {"br", "col", "hr", "img", "input", "link", "meta", "wbr"}
UNSEEN = {"style", "script"}


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._words: list[str] = []
        self._mark = ""
        self._open: list[tuple[str, bool]] = []  # the tag, and whether what is in it is left out
        self._href: list[str] = []

    def handle_starttag(self, tag, attrs):
        told = dict(attrs)
        hidden = tag in UNSEEN or told.get("aria-hidden") == "true" or self._is_hidden()
        if not hidden:
            self._begin(tag, told)
        if tag not in VOID:
            # A reader is told of a drawing what its label says.
            self._open.append((tag, hidden or tag == "svg"))

    def handle_startendtag(self, tag, attrs):
        if tag in VOID:
            self.handle_starttag(tag, attrs)

    def _begin(self, tag, told):
        if tag in CELLS:
            self._words.append(" | " if self._words else NOTHING)
        elif tag == "br" or (tag in BLOCKS and self._is_in(CELLS)):
            self._words.append(BREAK)
        elif tag in BLOCKS:
            self._flush()
            self._mark = MARKS.get(tag, "")
        if tag == "img":
            self._line(f"picture: {told.get('alt', '')}")
        elif (tag, told.get("class")) == ("span", "see"):
            self._words.append(" – ")
        elif told.get("role") == "img":
            self._line(f"drawing: {told.get('aria-label', '')}")
        elif tag == "a":
            self._words.append(" " * self._is_in({"nav"}))
            href = told.get("href", "")
            self._href.append("" if href.startswith("#") else f" <{href}>")

    def handle_endtag(self, tag):
        while self._open:
            ended, hidden = self._open.pop()
            if ended == tag:
                break
        else:
            return
        if hidden:
            return
        if tag == "a":
            self._words.append(self._href.pop())
        elif tag in BLOCKS and not self._is_in(CELLS):
            self._flush()

    def handle_data(self, data):
        if self._is_hidden():
            return
        if self._is_in({"pre"}) and not self._is_in(CELLS):
            self.lines += [f"    {line}".rstrip() for line in data.splitlines()]
        elif self._words or not data.isspace():
            self._words.append(data)

    def _is_in(self, tags):
        return any(tag in tags for tag, _ in self._open)

    def _is_hidden(self):
        return bool(self._open) and self._open[-1][1]

    def _line(self, text):
        self._flush()
        self.lines.append(" ".join(text.split()))

    def _flush(self):
        text = " ".join("".join(self._words).split()).replace(NOTHING, "")
        text = re.sub(rf"(?: ?{BREAK})+ ?", BREAK, text)
        text = re.sub(rf"{BREAK}(?= \||$)|(?<= \|){BREAK}", " ", text).replace(BREAK, " / ")
        text = " ".join(text.split())
        if text:
            self.lines.append(f"{self._mark} {text}".strip())
        self._words, self._mark = [], ""


def visible(html: str) -> str:
    """Returns what a page says, a line for each block, each row of a table and each drawing.

    Links out of the page have their address behind them. A drawing is what its label tells.
    """
    page = _Page()
    page.feed(html)
    page.close()
    page._flush()
    return "\n".join(page.lines) + "\n"


def as_json(content: object) -> str:
    """Returns JSON with sorted keys, a line for each value."""
    return rounded(json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


def rounded(text: str) -> str:
    """Returns a text whose numbers have nine digits: the others are a processor's rounding."""
    return re.sub(r"\d+\.\d{8,}(?:e[+-]\d+)?", lambda found: f"{float(found[0]):.9g}", text)


DURATION = r"\d[\d,]* h \d+ min|\d+ min \d+ s|\d+(?:\.\d+)? (?:ms|s)"
BYTES = r"\d+(?:\.\d+)? (?:bytes|[kMGT]B)"
PATTERNS = (
    (rf"(?<![\w.-])(?:{DURATION})(?![\w-])", "TIME"),
    (r'("(?:seconds|memory)": )[\d.e+-]+', r"\1…"),
    # What a process held stands behind what it took: in a sentence, in tables, and in CSV.
    (rf"(TIME, one after the other, and ){BYTES}(?= of memory)", r"\1MEMORY"),
    (rf"(\| TIME, ){BYTES}", r"\1MEMORY"),
    (rf"(\| TIME \| [^|\n]+ \| ){BYTES}", r"\1MEMORY"),
    (r"(?m),[\d.]+(,[\d.]+),\d+(?=,\d+,\d+$)", r",TIME\1,MEMORY"),
    (r"(?<=Time by round, )\w+", "UNIT"),
    (r"(drawing: Time by round, UNIT:).*", r"\1 …"),
    (r"DAY \d\d:\d\d(?::\d\d)?", "DAY"),
    (r"(?<= at )0x[0-9a-f]{6,}(?=>)", "ADDRESS"),
    (r"(?m)^(seconds \|) [\d.e+-]+$", r"\1 TIME"),
    # What is left where two transforms of the same are compared is a processor's rounding.
    (r"(?<![\w.-])\d(?:\.\d+)?e-(?:09|[1-9]\d)(?!\d)", "0"),
)
"""What depends on the clock, and on the memory at hand."""

CELL = re.compile(r"( \| |  +)")
"""Between two cells of a table on a page, or in a terminal."""

BEGUN = (r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d(?:_\d+)?", "BEGUN")
DIGEST = (r"(?<![\w.])(?:[0-9a-f]{64}|[0-9a-f]{12})(?!\w)", "DIGEST")
"""Names of folders and of results."""


def scrubbed(text: str, folders: Iterable[Path | str] = ()) -> str:
    """Returns a text with placeholders for what is another in each run.

    These are paths, names of folders by date or digest, dates, durations, memory, and the versions,
    the commit and the machine that computed it. Everything else is to be compared.

    Args:
        text: of a page, a terminal or a file.
        folders: whose paths may stand in it, the innermost first.
    """
    named = [(folder, "FOLDER") for folder in folders]
    for folder, instead in (*named, (REPOSITORY, "REPOSITORY")):
        for path in (Path(folder).resolve(), Path(folder)):
            text = text.replace(str(path), instead)
    text = _numbered(text, *BEGUN)
    now = datetime.now(UTC)  # it may be later or earlier where a clock shows the local time
    known = {f"{now + timedelta(days=later):%Y-%m-%d}": "DAY" for later in (-1, 0, 1)}
    known |= {versions.machine(): "MACHINE", versions.commit(): "COMMIT"}
    for said, instead in known.items():
        text = text.replace(said, instead)
    for package, version in versions.versions().items():
        said = rf"(?m)^(\s*{package}(?: \||:)) '?{re.escape(version)}'?$"
        text = re.sub(said, r"\1 VERSION", text)
    for pattern, instead in PATTERNS:
        text = re.sub(pattern, instead, text)
    return _numbered(_without_seconds(text), *DIGEST)


def _without_seconds(text: str) -> str:
    """Returns a text whose tables tell no CPU seconds, whatever they are written with."""
    lines, heading = text.split("\n"), []
    for at, line in enumerate(lines):
        cells = CELL.split(line)
        if "CPU seconds" in cells:
            heading = cells
        elif len(cells) == len(heading):
            place = heading.index("CPU seconds")
            lines[at] = "".join([*cells[:place], "TIME", *cells[place + 1 :]])
        else:
            heading = []
    return "\n".join(lines)


def _numbered(text: str, pattern: str, word: str) -> str:
    """Returns a text with numbers for names, the same for the same ones."""
    places = {name: at for at, name in enumerate(dict.fromkeys(re.findall(pattern, text)), 1)}
    return re.sub(pattern, lambda match: f"{word}-{places[match[0]]}", text)
