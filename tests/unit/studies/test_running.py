"""`fedpriv.run`: an experiment from Python, as the command line runs it."""

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st

import fedpriv
from fedpriv.config.overrides import write
from fedpriv.runtime.refusals import Mistakes

TOY = "tests/system/toy.yaml"

PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False)
# OmegaConf reads `${` in a text as a reference, as in an experiment file.
TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="$"))
VALUES = st.recursive(
    PLAIN | TEXT,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.from_regex(r"[a-z_]{1,8}", fullmatch=True), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(VALUES)
def test_a_value_means_in_an_override_what_it_means_in_python(value):
    read = OverridesParser.create().parse_override(f"key={write(value)}").value()
    assert _plain(read) == value


def _plain(value):
    """Returns texts without Hydra's note of how they were quoted."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    return getattr(value, "text", value)


def test_mistakes_are_told_before_anything_starts(tmp_path):
    with pytest.raises(Mistakes, match=r"(?s)client\.epoch.*did you mean 'epochs'"):
        fedpriv.run("quickstart", runs=str(tmp_path), rounds=1, client={"epoch": 2})
    with pytest.raises(Mistakes, match="strategy=fedavgg"):
        fedpriv.run("quickstart", strategy="fedavgg")
    assert not list(tmp_path.iterdir())


def test_a_run_from_python_is_that_of_the_command_line(tmp_path, capsys):
    run = fedpriv.run(TOY, "seed=3", runs=str(tmp_path), rounds=2)
    assert len(run.metrics) == 2
    assert (run.config()["rounds"], run.config()["seed"]) == (2, 3)
    assert run.config()["composed"]["overrides"] == ["seed=3", f"runs='{tmp_path}'", "rounds=2"]
    assert "round 2/2" in capsys.readouterr().err
    assert run.metrics.loss.tolist() == [row["loss"] for row in run.records("metrics.jsonl")]
