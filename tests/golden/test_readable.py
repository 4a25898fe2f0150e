"""What is frozen of a page is what a person reads, and only what varies by nature is taken out."""

from datetime import UTC, datetime, timedelta

import pytest
from readable import REPOSITORY, as_json, rounded, scrubbed, visible

from fedpriv.runtime import versions

PAGE = """<!doctype html><html><head><title>A page</title><style>p { color: red }</style></head>
<body><a class="skip" href="#main">Skip</a><h1>One &amp; <b>two</b></h1>
<nav><a href="#x">First</a><a href="#y">Second</a></nav>
<figure><figcaption>Loss<span class="see">Lower is better.</span></figcaption>
<svg role="img" aria-label="Loss: 2 in round 1"><title>hidden</title><text>drawn</text></svg>
<ul><li><svg aria-hidden="true"><path/></svg> dashed</li></ul></figure>
<img src="data:image/png;base64,AAAA" alt="the form">
<table><caption class="sr">Runs</caption>
<thead><tr><th></th><th>F1</th></tr></thead>
<tbody><tr><th><a href="runs/1.html">a</a><br>first</th><td></td></tr>
<tr><td>b</td><td><div>0.5</div><div>0.6</div></td></tr></tbody></table>
<dl><div><dt>F1</dt><dd>0.5</dd></div></dl>
<details><summary>Settings</summary><pre>rounds: 1
  seed: 2</pre></details><script>x()</script></body></html>"""


def test_a_page_is_read_as_lines():
    assert visible(PAGE).splitlines() == [
        "title: A page",
        "Skip",
        "# One & two",
        "First Second",
        "figure: Loss – Lower is better.",
        "drawing: Loss: 2 in round 1",
        "- dashed",
        "picture: the form",
        "table: Runs",
        "| F1",
        "a <runs/1.html> / first |",
        "b | 0.5 / 0.6",
        ": F1",
        "0.5",
        "> Settings",
        "    rounds: 1",
        "      seed: 2",
    ]


def test_json_has_nine_digits():
    content = {"b": [0.1 + 0.2, 1, None], "a": -12345.678901234, "c": 1.25e-7}
    assert as_json(content) == (
        '{\n "a": -12345.6789,\n "b": [\n  0.3,\n  1,\n  null\n ],\n "c": 1.25e-07\n}\n'
    )
    assert rounded("a,0.30000000000000004,0.5") == "a,0.3,0.5"


TODAY, TOMORROW = (f"{datetime.now(UTC) + timedelta(days=n):%Y-%m-%d}" for n in (0, 1))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("in /here/it/runs of /here", "in FOLDER/runs of /here"),
        (f"file: {REPOSITORY}/experiments/x.yaml", "file: REPOSITORY/experiments/x.yaml"),
        ("runs/2026-01-02_03-04-05_2 and 2026-01-02_03-04-05", "runs/BEGUN-1 and BEGUN-2"),
        ("a/2026-01-02_03-04-05/b 2026-01-02_03-04-05", "a/BEGUN-1/b BEGUN-1"),
        (f"on {TODAY}, began {TOMORROW} 12:30, '{TODAY} 12:30:59'", "on DAY, began DAY, 'DAY'"),
        ("Guesses-0123456789ab, runs/abcdef012345/x", "Guesses-DIGEST-1, runs/DIGEST-2/x"),
        ("12 ms, 3.2 s, 1 min 15 s, 2 h 5 min", "TIME, TIME, TIME, TIME"),
        ("seconds | 0.0123", "seconds | TIME"),
        ('"seconds": 1.5e-05, "memory": 123,', '"seconds": …, "memory": …,'),
        (
            "took 3.2 s, one after the other, and 598 MB of memory.",
            "took TIME, one after the other, and MEMORY of memory.",
        ),
        ("holds | 1 min 3 s, 2 GB | x", "holds | TIME, MEMORY | x"),
        ("a | 0.5 | 9 ms | 3.71 kB | 1.2 GB | 2", "a | 0.5 | TIME | 3.71 kB | MEMORY | 2"),
        ("none,0.5,True,0.36,3712.0,617594880,2,0", "none,0.5,True,TIME,3712.0,MEMORY,2,0"),
        ("a | CPU seconds | n\n9 | 0.1 | 3\nend", "a | CPU seconds | n\n9 | TIME | 3\nend"),
        ("n  CPU seconds\n2  0.0\n2  0.0  x", "n  CPU seconds\n2  TIME\n2  0.0  x"),
        ("Time by round, seconds", "Time by round, UNIT"),
        ("drawing: Time by round, seconds: train from 1 to 2.", "drawing: Time by round, UNIT: …"),
        ("tagger=<function pii at 0x7f99c3da7740>)", "tagger=<function pii at ADDRESS>)"),
        ("fft_distance | 3.467e-13", "fft_distance | 0"),
        (f"Measured at {versions.commit()}, {versions.machine()}.", "Measured at COMMIT, MACHINE."),
        (f"torch | {versions.versions()['torch']}", "torch | VERSION"),
    ],
)  # fmt: skip
def test_what_varies_by_nature_is_replaced(text, expected):
    assert scrubbed(text, ["/here/it"]) == expected


@pytest.mark.parametrize(
    "text",
    [
        "from 0.123456789012 to 1e-05, p 6e-08 and −3.2",
        "Written on 11/02/2024 and 2024-02-11 at 12:30",
        "down | 1.86 kB | 928 bytes",
        "3 steps, 12 samples, 5 minutes, seconds, 3 x",
        "deadbeef, 1234567890123, rows: 123456789",
        "the document of torch is 2.13 pages long",
        "memory of a model, in seconds",
    ],
)
def test_everything_else_stays(text):
    assert scrubbed(text, ["/here"]) == text
