"""Files about the project say what pyproject.toml and the Makefile say."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOW = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
COMMANDS = [
    step["run"] for job in WORKFLOW["jobs"].values() for step in job["steps"] if "run" in step
]


def test_pre_commit_has_the_pinned_linter():
    (pinned,) = (one for one in PROJECT["optional-dependencies"]["dev"] if one.startswith("ruff=="))
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    (revision,) = (one["rev"] for one in hooks if "ruff" in one["repo"])
    assert revision == f"v{pinned.removeprefix('ruff==')}"


def test_a_citation_names_this_version_and_licence():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert (citation["version"], citation["license"]) == (PROJECT["version"], PROJECT["license"])
    papers = (ROOT / "docs/reference/bibliography.md").read_text()
    assert len(citation["references"]) == 5
    assert all(paper["url"] in papers for paper in citation["references"])


def test_the_workflow_makes_what_the_makefile_has():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    matrix = [row["target"] for row in WORKFLOW["jobs"]["test"]["strategy"]["matrix"]["include"]]
    named = [word for one in COMMANDS for word in re.findall(r"^make ([a-z-]+)", one)]
    assert named
    assert {*named, *matrix} <= targets


@pytest.mark.parametrize("name", ["transcript", "knowledge", "candidates", "fields", "truth"])
def test_the_security_policy_names_the_folders_that_runs_keep(name):
    assert f"`RUN_DIR/{name}/`" in (ROOT / "SECURITY.md").read_text()
    sources = (path.read_text() for path in (ROOT / "fedpriv/threat").rglob("*.py"))
    assert any(re.search(rf'^[A-Z]+ = "{name}"', text, re.MULTILINE) for text in sources)
