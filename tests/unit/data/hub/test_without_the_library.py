"""Without the datasets library, `data=hf` is a mistake like others, and says what to install."""

import sys

import pytest

from fedpriv.cli.main import main

WHAT = "data=hf needs the datasets library: pip install 'fedpriv[datasets]'"


@pytest.mark.parametrize(
    "command",
    [["data", "check", "hf"], ["run", "kie_layoutlmv3", "data=hf", "federation.workers=0"]],
    ids=["check", "run"],
)
def test_what_to_install_is_told(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "receipts").mkdir()
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert main([*command, "data.source.path=receipts"]) == 2
    assert WHAT in capsys.readouterr().err
