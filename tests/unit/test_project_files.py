"""Files about the project say what pyproject.toml and the Makefile say."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

import fedpriv

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


def test_citation_changelog_and_flower_app_name_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert (citation["version"], citation["license"]) == (fedpriv.__version__, PROJECT["license"])
    changes = (ROOT / "CHANGELOG.md").read_text()
    newest = re.search(r"^## \[(\d.*)\] - (.*)$", changes, re.MULTILINE)
    assert newest.groups() == (fedpriv.__version__, str(citation["date-released"]))
    app = tomllib.loads((ROOT / "experiments/flower/pyproject.toml").read_text())
    assert app["project"]["version"] == fedpriv.__version__


def test_a_citation_names_the_papers():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
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


def test_the_notice_says_where_every_file_comes_from_that_is_neither_code_nor_text():
    notice = (ROOT / "NOTICE").read_text()
    ours = {".py", ".pyi", ".yaml", ".j2", ".md", ".rst", ".sh", ".typed", ".toml", ".pyc", ""}
    for folder in ("fedpriv", "strategies", "clients", "attacks", "experiments", "docs", "tests"):
        for path in (ROOT / folder).rglob("*"):
            made = {"_build", "_generated", "_kernel"} & set(path.parts)
            if path.is_file() and path.suffix not in ours and not made:
                place = path.relative_to(ROOT)
                named = [*map(str, [place, *place.parents[:-2]]), f"docs/*{path.suffix}"]
                assert any(name in notice for name in named), place
