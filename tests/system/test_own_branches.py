"""A folder of branches: from the first look to the run that it says to type."""

import json
import subprocess

import pytest
from folder_pages import BRANCHES, branches

from fedpriv.cli.main import main
from fedpriv.studies.assessing import assess

pytestmark = pytest.mark.usefixtures("in_own_folder")


def words_of(line):
    """The words of a command as bash hands them over."""
    printed = ["bash", "-c", f"fedpriv() {{ printf '%s\\0' \"$@\"; }}; {line}"]
    return subprocess.run(printed, capture_output=True, check=True, text=True).stdout.split("\0")[
        :-1
    ]


def test_what_data_check_says_to_type_runs_with_a_client_for_each_branch(tmp_path, capsys):
    branches(tmp_path / "my scans, [2024] (it's)")
    scans = "my scans, [2024] (it's)"
    assert main(["data", "check", scans, "--pages", "0"]) == 2
    asked = capsys.readouterr().err
    assert "data.source.provider=company or data.source.provider=folder" in asked
    assert "data.source.client=folder if the subfolders are your branches" in asked
    given = ["data.source.client=folder", "data.source.language=deu+eng"]
    assert main(["data", "check", scans, "--pages", "0", "--json", *given]) == 0
    facts = json.loads(capsys.readouterr().out)
    run, assessment = map(words_of, facts["next"])
    assert run[:3] == ["run", "kie_layoutlmv3", "data=folder"]
    assert run[4:] == assessment[3:] == given
    assert main([*run, "rounds=1", "federation.workers=0", "federation.report=false"]) == 0
    folder = tmp_path / capsys.readouterr().out.splitlines()[-1]
    dealt = json.loads((folder / "partition.json").read_text("utf-8"))
    assert dealt["method"] == "ByClient(clients=None)"
    held = [
        {page.partition("/")[0] for pages in providers.values() for page in pages}
        for providers in dealt["clients"].values()
    ]
    assert held == [{name} for name in sorted(BRANCHES)]
    # The assessment's settings are checked on the documents, of which it holds out much.
    plan = assess.read("assessed_folder", assessment[2:], defences=["none"], attacks=["text"])
    assert all("ByClient" in one.config["data"]["partition"]["_target_"] for one in plan.trainings)
    # What protects suppliers refuses what data check has named.
    (shared,) = facts["clients"]["shared_providers"]
    assert facts["clients"] == {
        "count": 6,
        "shared_providers": {shared: ["Zürich West", "east (old)"]},
    }
    private = [*run, "rounds=1", "federation.workers=0", "strategy=fl_provider_dp"]
    assert main(private) == 2
    assert "ByProvider, without data.source.client" in capsys.readouterr().err
