"""The reference says what the code says."""

import ast
import json
import re
import shutil
import sys

import pytest
import yaml
from doc_pages import DOCS, ROOT

sys.path.append(str(DOCS / "_ext"))
import generated
import layers
import offline
from generated import catalogue

REFERENCE = DOCS / "reference"


def test_every_exported_name_is_described():
    tree = ast.parse((ROOT / "fedpriv/__init__.pyi").read_text("utf-8"))
    exported = {
        f"fedpriv.{node.module}.{alias.name}"
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    text = "\n".join(path.read_text("utf-8") for path in REFERENCE.glob("api/*.rst"))
    whole = tuple(f"{name}." for name in re.findall(r"automodule:: (\S+)", text))
    described = set(re.findall(r"auto(?:class|exception|function|data):: (\S+)", text))
    # Queries and transcripts are described where they are defined, and exported with the access.
    assert {name for name in exported - described if not name.startswith(whole)} == set()


def test_every_attack_has_one_adversary_and_its_access():
    text = generated.threat_models()
    rows = dict(re.findall(r"^\| `(\w+)` (.*)", text, re.MULTILINE))
    assert rows.keys() == catalogue.groups()["attack"].keys()
    assert text.count("| `") >= len(rows)
    assert "| `Transcript`, `BatchKnowledge`, `Architecture` |" in rows["closed_form"]
    assert rows["pmia"].endswith("| `GreyBox`, `PublicModel` | `MembershipScores` |")
    server = text.split("## ")[1]
    assert server.startswith("The server")
    assert "`closed_form`" in server
    assert "`pmia`" not in server


def test_a_choice_is_described_with_its_own_values():
    rows = {
        row.name: row
        for row in generated.choice("strategy", catalogue.groups()["strategy"]["fedavg"])
    }
    assert rows["client.epochs"].default == "${training.epochs}"
    assert rows["client.optimizer.name"].default == "adamw"
    assert "epochs" in generated.listed([rows["client.epochs"]])
    assert all(row.meaning for name, row in rows.items() if "." in name and "_target_" not in name)


def test_the_settings_of_every_attack_have_meanings():
    for name, path in catalogue.groups()["attack"].items():
        silent = [
            row.name
            for row in generated.choice("attack", path)
            if not row.meaning and not row.name.endswith("_target_")
        ]
        assert silent == [], name
    assert {row.name for row in generated.settings(generated.all_settings())} >= {"rounds", "known"}


def test_a_meaning_can_be_read_alone():
    rows = [
        row
        for group, choices in catalogue.groups().items()
        for path in choices.values()
        for row in generated.choice(group, path)
    ]
    assert len(rows) > 500
    begun = re.compile(r"(as above|as of|as there|at|by|everywhere|for|in|of|on|see|with)\b")
    assert [row.name for row in rows if begun.match(row.meaning)] == []
    silent = {row.name for row in rows if not row.meaning and not row.name.endswith("_target_")}
    assert {name.partition(".")[0] for name in silent} <= {"attack", "model", "publisher"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [("a*b* `x_*y` |K|", r"a\*b\* `x_*y` |K|"), ("<b> ${let}", r"\<b\> \$\{let\}")],
)
def test_a_meaning_is_no_markup(text, shown):
    assert generated.prose(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        '<script defer="defer" src="https://cdn/mathjax.js"></script>',
        '<link rel="stylesheet" href="//cdn/a.css" />',
        "<img alt='x' src='http://cdn/a.png'>",
        '@import "https://cdn/a.css";',
        "@font-face { src: url(https://cdn/a.woff2) }",
    ],
)
def test_a_page_that_loads_from_the_network_is_found(text):
    (address,) = offline.loads(f"<p>{text}</p>")
    assert address.partition("//")[2].startswith("cdn/")


def test_a_page_may_link_to_the_network_and_load_from_its_folder():
    text = '<a href="https://example.org">x</a><script src="_static/a.js?v=1"></script>'
    assert offline.loads(f"{text}<link href='a.css'><style>b {{ c: url(d.svg) }}</style>") == []


def test_the_page_on_run_folders_names_every_file_and_key(run):
    page = (REFERENCE / "run_folder.md").read_text("utf-8")
    for path in run.iterdir():
        name = path.name if not path.name.startswith(".lock-") else ".lock-ATTACK"
        assert f"`{name}{'/' if path.is_dir() else '`'}" in page
    keys = set(re.findall(r'"(\w+)":', (run / "metrics.jsonl").read_text().splitlines()[-1]))
    scores = {"loss", "accuracy"}
    clients = {"sampled", "answered", "failed", "missing", "train", "evaluate"}
    assert {key for key in keys - scores - clients if not key.isdigit()} <= set(
        re.findall(r"`(\w+)`", page)
    )


def test_the_result_is_described_field_by_field():
    text = generated.result_schema()
    assert "| `verdict` | `str` | one of `VERDICTS`. |" in text
    assert not re.search(r"\|  \|$", text, re.MULTILINE)


def test_a_result_is_told_in_the_words_that_its_file_has_today(tmp_path, monkeypatch):
    """What a claim compares, and what was found, stay."""
    path = generated.RESULTS / "pried_kie" / "figure_6.json"
    before = json.loads(path.read_text("utf-8"))
    place = tmp_path / "experiments" / "papers" / "pried_kie"
    papers = ROOT / "experiments" / "papers"
    shutil.copytree(papers / "pried_kie", place, copy_function=shutil.copyfile)
    first = before["claims"][0]
    claim = {"text": "all of it is best (nobody)", "says": first["says"]}
    file = place / "figure_6.yaml"
    columns = {before["columns"][0]["path"]: "F1 of today"}
    words = {"title": "A title", "paper": "Nobody 2026", "claims": [claim], "columns": columns}
    file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text("utf-8")) | words))
    monkeypatch.chdir(tmp_path)
    found = generated.recorded(path)
    assert (found.title, found.paper, found.columns[0].label) == (
        "A title",
        "Nobody 2026",
        "F1 of today",
    )
    (told,) = found.claims
    assert (told["text"], told["note"]) == (claim["text"], "")
    assert (told["says"], told["holds"]) == (first["says"], first["holds"])
    verdicts = [one["verdict"] for one in told["comparisons"]]
    assert verdicts == [one["verdict"] for one in first["comparisons"]]
    assert "all of it is best (nobody)" in generated.measured(path)


def test_the_drawing_has_every_room_and_no_arrow_upwards():
    drawn = layers.drawing()
    assert set(re.findall(r">([a-z]+)</text>", drawn)) == set(layers.imports())
    assert {"cli", "federation", "runtime", "attacks"} <= set(layers.imports())
    for room, other in layers.direct():
        assert layers.floor(room) > layers.floor(other)
        assert other in layers.imports()[room]
    assert ("cli", "studies") in layers.direct()
    assert ("cli", "runtime") not in layers.direct()
