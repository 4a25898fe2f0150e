"""What no machine can do is refused in a line, and at once."""

import pytest

from fedpriv.cli.main import main

BUDGET = ("budget", "--noise-multiplier", "1", "--client-rate", ".5", "--record-rate", "1",
          "--delta", "1e-5")  # fmt: skip


def laughs(levels=11):
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    for n in range(1, levels):
        lines.append(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]")
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((*BUDGET, "--rounds", "10", "--group-size", "100000000000"), "from 1 to 100,000"),
        ((*BUDGET, "--rounds", "1000000000"), "from 0 to 1,000,000"),
        (("run", "-m", "quickstart", "seed=range(0,1e9)"), "at most 10,000 combinations"),
        (("run", "-m", "quickstart", "seed=range(0,1e3)", "rounds=range(1,99)"), "98,000 or more"),
        (("data", "check", ""), "expected a folder, a YAML file or a name"),
        (("data", "check", "deep.yaml"), "deep.yaml: "),
        (("data", "check", "bomb.yaml"), "its aliases expand to more than 100,000 values"),
        (("model", "check", "bert", "model.max_length=-1"), "max_length=-1: expected 1 or more"),
        (("assess", "assessed_kie", "hours=1e-9"), "hours=1e-9: expected hours, 0.001 or more"),
        (
            ("run", "kie_layoutlmv3", "finetuning=lora", "finetuning.rank=100000"),
            "finetuning: rank=100000: expected at most 64; no layer of this model",
        ),
    ],
)
def test_what_no_machine_can_do_is_refused_at_once(words, told, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "deep.yaml").write_text("a: " + "[" * 3000 + "]" * 3000)
    (tmp_path / "bomb.yaml").write_text(laughs())
    assert main(list(words)) == 2
    assert told in capsys.readouterr().err


def test_a_large_unit_has_no_value_of_pld_and_says_why(capsys):
    assert main([*BUDGET, "--rounds", "10", "--group-size", "2000", "--json"]) == 0
    assert "too many for PLD" in capsys.readouterr().out
