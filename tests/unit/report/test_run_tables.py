"""A run folder as tables: every number of its files, in the shape that pandas users expect."""

import json
import math

import pandas as pd
import pytest

from fedpriv.report.tables import RunFolder
from fedpriv.runtime.run_files import Damaged


@pytest.fixture
def folder(tmp_path):
    run = RunFolder.made(tmp_path / "run")
    run.write_config({"name": "x"})
    return run


ROUND = {
    "round": 1,
    "f1": 0.5,
    "accepted": True,
    "clients": {"sampled": 3, "answered": 2},
    "bytes_by_client": {"0": [1, 2]},
    "seconds": {"train": 1.5},
}


def test_an_empty_run_has_empty_tables_with_their_columns(folder):
    assert folder.metrics.empty
    assert folder.metrics.index.name == "round"
    assert folder.ledger.empty
    assert "pld" in folder.ledger
    assert folder.findings.empty
    assert {"value", "low", "high", "verdict"} <= set(folder.findings)
    assert list(folder.partition) == ["client", "provider", "document"]
    assert "0 rounds" in folder._repr_html_()


def test_metrics_have_a_row_for_each_round_and_the_later_line_counts(folder):
    again = {**ROUND, "round": 2, "f1": 0.75}
    folder.append("metrics.jsonl", [ROUND, {**ROUND, "round": 2}, again])
    table = folder.metrics
    assert table.index.tolist() == [1, 2]
    assert table.f1.tolist() == [0.5, 0.75]
    assert table["clients.answered"].tolist() == [2, 2]
    assert table["seconds.train"].tolist() == [1.5, 1.5]
    assert not [name for name in table if name.startswith("bytes_by_client")]


def test_the_ledger_has_epsilon_by_observer_and_infinity_where_nothing_is_promised(folder):
    views = {
        "global": {"pld": 7.9, "rdp": 8.5, "guarantee": True, "applies": True},
        "server_plain": {"pld": "inf", "rdp": "inf", "guarantee": False, "applies": True},
        "server_masked": {"pld": 3.0, "guarantee": True, "applies": False},
    }
    folder.write_json("ledger.json", {"views": views})
    assert folder.ledger.loc["global", "pld"] == 7.9
    assert folder.ledger.loc["server_plain", "pld"] == math.inf
    assert pd.isna(folder.ledger.loc["global", "prv"])
    assert "server_masked" not in folder._repr_html_()


def test_findings_have_a_row_for_each_number_and_one_for_what_was_refused(folder):
    auc = {"value": 0.8, "interval": [0.7, 0.9], "n": 51, "unit": "provider", "control": 0.5}
    done = {"verdict": "leak", "status": "done", "headline": "<b>", "primary": "auc"}
    folder.write_json("findings/pmia/result.json", {**done, "numbers": {"auc": auc, "tpr": {**auc, "interval": None}}})  # fmt: skip # noqa: E501
    refused = {"verdict": "not_applicable", "status": "not granted", "numbers": {}}
    folder.write_json("findings/other/result.json", refused)
    table = folder.findings
    assert table.loc[("pmia", "auc"), ["value", "low", "high", "n"]].tolist() == [0.8, 0.7, 0.9, 51]
    assert table.loc[("pmia", "tpr"), "primary"] is False or not table.loc[("pmia", "tpr")].primary
    assert pd.isna(table.loc[("pmia", "tpr"), "low"])
    assert table.loc[("other", ""), "status"] == "not granted"
    html = folder._repr_html_()
    assert "leak" in html
    assert "not_applicable" in html


def test_the_partition_has_a_row_for_each_document_and_no_client_for_held_out_ones(folder):
    clients = {"0": {"Acme": ["a", "b"]}, "1": {"<i>Bell</i>": ["c"]}}
    folder.write_json("partition.json", {"clients": clients, "test": {"Acme": ["t"]}})
    table = folder.partition
    assert table.groupby("client").size().to_dict() == {0: 2, 1: 1}
    assert table[table.client.isna()].document.tolist() == ["t"]


@pytest.mark.parametrize(
    ("name", "content", "table"),
    [
        ("ledger.json", {"views": [1]}, "ledger"),
        ("findings/x/result.json", {"numbers": {"auc": 3}}, "findings"),
        ("partition.json", {"clients": {"a": {"b": ["c"]}}}, "partition"),
    ],
)
def test_a_file_of_another_shape_is_named(folder, name, content, table):
    folder.write_json(name, content)
    with pytest.raises(Damaged, match=name):
        getattr(folder, table)


def test_metrics_are_those_of_the_file_to_the_digit(folder):
    folder.append("metrics.jsonl", [ROUND])
    (line,) = (folder.path / "metrics.jsonl").read_text().splitlines()
    assert folder.metrics.f1.iloc[0] == json.loads(line)["f1"]


def test_a_notebook_says_where_the_whole_report_is(folder):
    folder.write("report.html", b"<p>")
    assert folder._repr_html_().endswith(
        "<p>The whole report is <code>report.html</code> in that folder.</p>"
    )
