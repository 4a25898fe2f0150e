"""The experiment `extraction_sroie` on a few receipts: what is a canary, and what is asked."""

import json
import os

import pytest
from experiments_run import ran, result_of

pytestmark = pytest.mark.skipif(
    "FEDPRIV_DATA" not in os.environ,
    reason="FEDPRIV_DATA is not set: the folder that holds open/sroie",
)


@pytest.mark.slow
def test_a_small_extraction_from_receipts(tmp_path):
    quick = [
        "attack.splits=0",
        "attack.controls=false",
        "rounds=1",
        "training.epochs=1",
        "federation.workers=0",
    ]
    asked = [
        "attack.curation.count=20",
        "attack.contexts=[no_text,shuffle]",
        "attack.prompts=[ITP]",
    ]
    # The pages held out are answered after each training: they take most of the time.
    few = [
        "data.source.splits=[test]",
        "data.test.fraction=0.6",
        "attack.blocking=false",
        f"runs={tmp_path}",
    ]
    _, folder, _ = ran("run", "extraction_sroie", *quick, *asked, *few)
    metrics = result_of(folder)["details"]
    assert metrics["canaries"]["drawn"] == 20
    assert 10 <= metrics["canaries"]["kept"] <= 20
    assert set(metrics["canaries"]["pii"]) <= {"time"}
    assert metrics["contexts"]["shuffle"]["asked"] > 0
    rows = json.loads((folder.path / "findings/extraction/canaries.json").read_text())
    assert {row["key"] for row in rows} == {"company", "date"}
    assert not any("answer" in row for row in rows)
