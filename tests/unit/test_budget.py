"""`fedpriv budget`, in Python and on the command line."""

import itertools
import json
import math
import os
import subprocess
import sys

import pytest

from fedpriv.cli import main
from fedpriv.privacy.accounting import ACCOUNTANTS, ClientThenRecord, epsilon
from fedpriv.privacy.budget import BudgetMistakes, budget, calibrate
from fedpriv.privacy.views import VIEWS

RUN = {"client_rate": 0.2, "record_rate": 1.0, "rounds": 10, "delta": 1e-5}
FLAGS = ["--client-rate", "0.2", "--record-rate", "1", "--rounds", "10", "--delta", "1e-5"]
SIGMA = 0.771484375


def command(*arguments):
    return main(["budget", *arguments])


def test_every_view_by_every_accountant():
    answer = budget(noise_multiplier=SIGMA, cohort=2, **RUN)
    assert tuple(answer["views"]) == VIEWS
    paper, masked = answer["views"]["paper"], answer["views"]["server_masked"]
    assert [paper[name] for name in ACCOUNTANTS] == pytest.approx(
        [7.984, 9.198, 7.995, 6.065], abs=1e-3
    )
    assert paper["reasons"] == {"gdp": "approximation, not a bound"}
    assert not paper["guarantee"]
    assert [masked[name] for name in ("pld", "rdp", "prv")] == pytest.approx(
        [14.461, 16.282, 14.472], abs=1e-3
    )
    assert masked["gdp"] is None
    assert masked["reasons"] == {"gdp": "GDP cannot account for sampled clients; PLD can"}
    assert masked["guarantee"]
    assert answer["views"]["global"] == {**masked, "note": answer["views"]["global"]["note"]}
    assert answer["views"]["server_plain"]["pld"] == pytest.approx(23.683, abs=1e-3)


def test_without_a_cohort_the_plain_server_has_no_epsilon_but_a_reason():
    plain = budget(noise_multiplier=SIGMA, **RUN)["views"]["server_plain"]
    for name in ACCOUNTANTS:
        assert plain[name] is None
        assert "no cohort given" in plain["reasons"][name]


@pytest.mark.parametrize("view", VIEWS)
def test_the_noise_for_an_epsilon(view):
    answer = budget(epsilon=8, view=view, cohort=2, **RUN)
    assert 7.99 <= answer["views"][view]["pld"] <= 8
    assert answer["noise_multiplier"] == calibrate(8, view=view, cohort=2, **RUN)


def test_the_accountant_calibrates():
    answer = budget(epsilon=8, view="paper", accountant="rdp", **RUN)
    assert 7.99 <= answer["views"]["paper"]["rdp"] <= 8
    assert answer["views"]["paper"]["pld"] < 7.5


def test_a_unit_of_several_records():
    run = {**RUN, "record_rate": 0.1}
    one, three = (budget(noise_multiplier=1.0, group_size=n, **run)["views"] for n in (1, 3))
    assert three["global"]["pld"] > 2 * one["global"]["pld"]
    assert three["global"]["rdp"] is None
    assert "several records" in three["global"]["reasons"]["rdp"]


def test_epsilon_by_round_grows_to_that_of_the_run():
    answer = budget(noise_multiplier=SIGMA, cohort=2, by_round=True, **RUN)
    rows = answer["by_round"]
    assert [row["round"] for row in rows] == list(range(1, 11))
    for view in VIEWS:
        told = [row[view] for row in rows]
        assert all(a < b for a, b in itertools.pairwise(told))
        assert told[-1] == answer["views"][view]["pld"]
    event = ClientThenRecord(0.2, 1.0, SIGMA)
    assert rows[3]["global"] == epsilon([(event, 4)], 1e-5)


def test_a_long_run_is_told_at_twelve_rounds():
    run = {**RUN, "rounds": 500}
    rows = budget(noise_multiplier=4, by_round=True, accountant="rdp", **run)["by_round"]
    assert len(rows) == 12
    assert rows[-1]["round"] == 500
    assert rows[-1]["server_plain"] is None


def test_limits():
    nothing = budget(noise_multiplier=1.0, **{**RUN, "rounds": 0})["views"]["global"]
    assert [nothing[name] for name in ACCOUNTANTS] == [0, 0, 0, 0]
    bare = budget(noise_multiplier=0, **RUN)["views"]["global"]
    assert [bare[name] for name in ACCOUNTANTS] == [math.inf] * 4
    assert "without noise" in bare["reasons"]["pld"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"noise_multiplier": -1}, "noise_multiplier=-1: expected a finite number >= 0"),
        ({"noise_multiplier": None}, "noise_multiplier or epsilon: one of the two must be given"),
        ({"epsilon": 8, "view": "paper"}, "noise_multiplier or epsilon: one of the two"),
        ({"noise_multiplier": None, "epsilon": 0, "view": "paper"}, "epsilon=0: expected"),
        ({"noise_multiplier": None, "epsilon": 8}, "view: epsilon is for one of paper, global"),
        (
            {"noise_multiplier": None, "epsilon": 8, "view": "server_plain"},
            "cohort: view=server_plain needs how many clients",
        ),
        ({"view": "server"}, "view='server': expected one of paper, global"),
        ({"accountant": "moments"}, "accountant='moments': one of pld, rdp"),
        ({"client_rate": 1.2}, "client_rate=1.2: expected a probability"),
        ({"record_rate": math.nan}, "record_rate=nan"),
        ({"rounds": 10.5}, "rounds=10.5: expected a whole number >= 0"),
        ({"rounds": -1}, "rounds=-1"),
        ({"delta": 0}, r"delta=0: expected a number in \(0, 1\)"),
        ({"cohort": 0}, "cohort=0: expected a whole number >= 1"),
        ({"group_size": 0}, "group_size=0"),
    ],
)
def test_a_wrong_question_is_answered_by_what_would_be_right(change, message):
    with pytest.raises(BudgetMistakes, match=message) as caught:
        budget(**{"noise_multiplier": 1.0, **RUN, **change})
    assert len(caught.value.mistakes) == 1


def test_calibration_asks_the_same_questions():
    with pytest.raises(BudgetMistakes, match="cohort: view=server_plain needs"):
        calibrate(8, view="server_plain", **RUN)


def test_the_command_prints_json(capsys):
    assert command("--noise-multiplier", str(SIGMA), *FLAGS, "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads(json.dumps(budget(noise_multiplier=SIGMA, **RUN)))
    assert printed["noise_multiplier"] == SIGMA
    assert printed["views"]["server_plain"]["pld"] is None


def test_no_privacy_is_the_string_inf_in_json(capsys):
    assert command("--noise-multiplier", "0", *FLAGS, "--json") == 0
    printed = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert printed["views"]["global"]["pld"] == "inf"


def test_the_command_prints_a_table_that_explains_itself(capsys):
    assert command("--noise-multiplier", str(SIGMA), "--cohort", "2", *FLAGS, "--by-round") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "noise_multiplier 0.771484375"
    rows = {line.split()[0]: line.split()[1:] for line in lines if line}
    assert rows["epsilon"] is not None
    assert "server_masked      14.46     16.28     14.47         -" in lines
    for view in VIEWS:
        assert sum(line.startswith(f"{view}: ") for line in lines) == 1
    assert "gdp (paper): approximation, not a bound" in lines
    assert rows["10"] == ["7.984", "14.46", "14.46", "23.68"]


def test_the_command_finds_the_noise(capsys):
    assert command("--epsilon", "8", "--view", "server_masked", *FLAGS) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first == "noise_multiplier 1.204833984375  (for epsilon 8 in the view server_masked)"


def test_the_plot_is_a_picture(tmp_path, capsys):
    path = tmp_path / "budget.png"
    assert command("--noise-multiplier", "1", "--cohort", "2", *FLAGS, "--plot", str(path)) == 0
    assert path.read_bytes().startswith(b"\x89PNG")
    assert str(path) in capsys.readouterr().err


def test_all_mistakes_are_told_at_once_and_nothing_is_printed(capsys):
    wrong = ["--noise-multiplier", "much", "--client-rate", "1.5", "--rounds", "10.5"]
    assert command(*wrong, "--delta", "2", "--cohort", "0") == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "budget: 6 mistakes",
        "  noise_multiplier='much': expected a number",
        "  rounds='10.5': expected a whole number",
        "  record_rate: must be given",
        "  client_rate=1.5: expected a probability in [0, 1]",
        "  delta=2.0: expected a number in (0, 1), such as 1e-5",
        "  cohort=0: expected a whole number >= 1",
    ]


def test_a_target_out_of_reach_is_said_without_a_traceback(capsys):
    flags = ["--epsilon", "0.001", "--view", "paper", "--accountant", "rdp"]
    assert command(*flags, *FLAGS) == 2
    assert "below what this accountant can show" in capsys.readouterr().err


QUICK = """
import sys
from fedpriv.cli import main
status = main(sys.argv[1:])
slow = {"torch", "transformers", "matplotlib", "ray", "flwr"} & set(sys.modules)
sys.exit(f"imported: {slow}" if slow else status)
"""


@pytest.mark.parametrize("ask", [["--noise-multiplier", "1.5"], ["--epsilon", "8"]])
def test_the_answer_does_not_wait_for_what_runs_experiments(ask):
    """Torch alone takes longer to import than the answer takes; benchmarks/privacy.py times it."""
    run = ["--client-rate", "0.5", "--record-rate", "0.3", "--rounds", "500", "--delta", "1e-5"]
    view = ["--view", "server_plain", "--cohort", "8", "--json"]
    done = subprocess.run(
        [sys.executable, "-c", QUICK, "budget", *ask, *run, *view],
        capture_output=True,
        text=True,
        env=dict(os.environ),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    plain = json.loads(done.stdout)["views"]["server_plain"]
    assert all(isinstance(plain[name], float) for name in ("pld", "rdp", "prv"))
