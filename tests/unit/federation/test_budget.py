"""`fedpriv budget`, in Python and on the command line."""

import itertools
import json
import math
import os
import subprocess
import sys

import pytest

from fedpriv.cli.main import main
from fedpriv.federation.budget import budget, steps_in_a_share
from fedpriv.federation.plan import BudgetMistakes, Plan
from fedpriv.federation.secagg import masking
from fedpriv.federation.secagg.discrete import steps_of
from fedpriv.federation.secagg.masking import Masked, Masking
from fedpriv.federation.secagg.ring import Ring
from fedpriv.privacy.accounting.accountants import ACCOUNTANTS, epsilon
from fedpriv.privacy.accounting.event import ClientThenRecord
from fedpriv.privacy.mechanism import provider_gaussian
from fedpriv.privacy.views import VIEWS, cohorts_of, with_shares_known
from fedpriv.strategies.fl_provider_dp import FLProviderDP

RUN = {"client_rate": 0.2, "record_rate": 1.0, "rounds": 10, "delta": 1e-5}
FLAGS = ["--client-rate", "0.2", "--record-rate", "1", "--rounds", "10", "--delta", "1e-5"]
SIGMA = 0.771484375


def ask(by_round=False, **known):
    return budget(Plan(**known), by_round=by_round)


def command(*arguments):
    return main(["budget", *arguments])


def test_every_view_by_every_accountant():
    answer = ask(noise_multiplier=SIGMA, cohort=2, **RUN)
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
    plain = ask(noise_multiplier=SIGMA, **RUN)["views"]["server_plain"]
    for name in ACCOUNTANTS:
        assert plain[name] is None
        assert "no cohort given" in plain["reasons"][name]


@pytest.mark.parametrize("view", VIEWS)
def test_the_noise_for_an_epsilon(view):
    answer = ask(epsilon=8, view=view, cohort=2, **RUN)
    assert 7.99 <= answer["views"][view]["pld"] <= 8


def test_the_accountant_calibrates():
    answer = ask(epsilon=8, view="paper", accountant="rdp", **RUN)
    assert 7.99 <= answer["views"]["paper"]["rdp"] <= 8
    assert answer["views"]["paper"]["pld"] < 7.5


def test_a_unit_of_several_records():
    run = {**RUN, "record_rate": 0.1}
    one, three = (ask(noise_multiplier=1.0, group_size=n, **run)["views"] for n in (1, 3))
    assert three["global"]["pld"] > 2 * one["global"]["pld"]
    assert three["global"]["rdp"] is None
    assert "several records" in three["global"]["reasons"]["rdp"]


def test_epsilon_by_round_grows_to_that_of_the_run():
    answer = ask(noise_multiplier=SIGMA, cohort=2, by_round=True, **RUN)
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
    rows = ask(noise_multiplier=4, by_round=True, accountant="rdp", **run)["by_round"]
    assert len(rows) == 12
    assert rows[-1]["round"] == 500
    assert rows[-1]["server_plain"] is None


def test_limits():
    nothing = ask(noise_multiplier=1.0, **{**RUN, "rounds": 0})["views"]["global"]
    assert [nothing[name] for name in ACCOUNTANTS] == [0, 0, 0, 0]
    bare = ask(noise_multiplier=0, **RUN)["views"]["global"]
    assert [bare[name] for name in ACCOUNTANTS] == [math.inf] * 4
    assert "without noise" in bare["reasons"]["pld"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"noise_multiplier": -1}, "noise_multiplier=-1: expected a finite number >= 0"),
        ({"noise_multiplier": None}, "noise_multiplier or epsilon: one of the two must be given"),
        (
            {"epsilon": 8, "view": "paper"},
            "only one of the two; or leave out rounds or record_rate",
        ),
        ({"noise_multiplier": None, "epsilon": 0, "view": "paper"}, "epsilon=0: expected"),
        ({"noise_multiplier": None, "epsilon": 8}, "view: epsilon is for one of paper, global"),
        (
            {"noise_multiplier": None, "epsilon": 8, "view": "server_plain"},
            "clients: view=server_plain needs how many clients",
        ),
        (
            {"noise_multiplier": None, "epsilon": 8, "view": "server_masked", "colluders": 1},
            "clients: must be given with colluders",
        ),
        ({"client_rate": None}, "client_rate: must be given; 1 where all clients take part"),
        ({"record_rate": None}, "record_rate: must be given"),
        ({"rounds": None}, "rounds: must be given"),
        ({"sampling": "coin", "clients": 10}, "sampling='coin': expected poisson or fixed"),
        ({"sampling": "fixed", "clients": 7}, "client_rate=0.2 of clients=7 is 1.4, and"),
        ({"cohort": 2, "sampling": "poisson"}, "cohort=2: under poisson sampling its size varies"),
        ({"cohort": 3, "clients": 10}, "cohort=3: client_rate=0.2 of 10 clients is another number"),
        ({"cohort": 11, "clients": 10, "client_rate": None}, "cohort=11: expected at most 10"),
        ({"batch_size": 5, "record_rate": None}, "examples: must be given with batch_size"),
        ({"batch_size": 5, "examples": 50}, "record_rate: examples and batch_size give it"),
        (
            {"batch_size": 50, "examples": 50, "record_rate": None},
            "batch_size=50: a round draws from 10",
        ),
        ({"epochs": 5, "rounds": None}, "epochs: needs examples and batch_size"),
        ({"dropouts": 1.5, "clients": 10}, "dropouts=1.5: expected a share below 1, or a whole"),
        ({"dropouts": 1, "clients": 10}, "dropouts=1: needs cohort"),
        ({"dropouts": 2, "cohort": 2}, "dropouts=2: nobody is left of a cohort of 2"),
        ({"dropouts": 0.2, "threshold": 0.8}, "threshold: dropouts give it"),
        ({"colluders": -1}, "colluders=-1: expected a whole number >= 0"),
        ({"parameters": 0}, "parameters=0: expected a whole number >= 1"),
        ({"units_per_client": 0}, "units_per_client=0: expected a finite number > 0"),
        ({"view": "server"}, "view='server': expected one of paper, global"),
        ({"accountant": "moments"}, "accountant='moments': one of pld, rdp"),
        ({"client_rate": 1.2}, "client_rate=1.2: expected a probability"),
        ({"record_rate": math.nan}, "record_rate=nan"),
        ({"rounds": 10.5}, "rounds=10.5: expected a whole number from 0 to 1,000,000"),
        ({"rounds": -1}, "rounds=-1"),
        ({"delta": 0}, r"delta=0: expected a number in \(0, 1\)"),
        ({"cohort": 0}, "cohort=0: expected a whole number >= 1"),
        ({"group_size": 0}, "group_size=0"),
    ],
)
def test_a_wrong_question_is_answered_by_what_would_be_right(change, message):
    with pytest.raises(BudgetMistakes, match=message) as caught:
        ask(**{"noise_multiplier": 1.0, **RUN, **change})
    assert len(caught.value.mistakes) == 1


def test_the_command_prints_json(capsys):
    assert command("--noise-multiplier", str(SIGMA), *FLAGS, "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads(json.dumps(ask(noise_multiplier=SIGMA, **RUN)))
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
    assert "server_masked      14.47     16.29     14.48         –" in lines
    for view in VIEWS:
        assert sum(line.startswith(f"{view}: ") for line in lines) == 1
    assert "gdp (paper): approximation, not a bound" in lines
    assert rows["10"] == ["7.985", "14.47", "14.47", "23.69"]


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
        "  delta=2.0: expected a number in (0, 1), such as 1e-5",
        "  client_rate=1.5: expected a probability in [0, 1]",
        "  cohort=0: expected a whole number >= 1",
        "  record_rate: must be given",
    ]


def test_a_target_out_of_reach_is_said_without_a_traceback(capsys):
    flags = ["--epsilon", "0.001", "--view", "paper", "--accountant", "rdp"]
    assert command(*flags, *FLAGS) == 2
    assert "below what this accountant can show" in capsys.readouterr().err


# What engineers have


def test_examples_batch_size_and_epochs_give_rate_and_rounds():
    sizes = {"examples": 1000, "batch_size": 50, "epochs": 3}
    half = ask(noise_multiplier=1.0, client_rate=0.5, delta=1e-5, **sizes)
    assert (half["record_rate"], half["rounds"]) == (0.1, 60)
    named = ask(noise_multiplier=1.0, client_rate=0.5, delta=1e-5, record_rate=0.1, rounds=60)
    assert half["views"] == named["views"]
    whole = ask(noise_multiplier=1.0, client_rate=1, delta=1e-5, **{**sizes, "batch_size": 300})
    assert (whole["record_rate"], whole["rounds"]) == (0.3, 10)
    assert (
        ask(noise_multiplier=1.0, cohort=2, clients=8, delta=1e-5, **sizes)["client_rate"] == 0.25
    )


def test_clients_give_the_plain_server_of_their_sampling():
    for how in ("poisson", "fixed"):
        answer = ask(noise_multiplier=SIGMA, clients=10, sampling=how, **RUN)
        event = with_shares_known(ClientThenRecord(0.2, 1.0, SIGMA), cohorts_of(how, 0.2, 10), 10)
        assert answer["views"]["server_plain"]["pld"] == epsilon([(event, 10)], 1e-5)
        assert answer["views"]["server_plain"]["guarantee"]
    assert ask(noise_multiplier=SIGMA, clients=10, **RUN)["sampling"] == "poisson"
    assert ask(noise_multiplier=SIGMA, cohort=2, **RUN)["sampling"] == "fixed"


def test_dropouts_give_the_threshold():
    run = {**RUN, "client_rate": 0.5, "clients": 16, "sampling": "fixed"}
    share, number = (ask(noise_multiplier=2, dropouts=d, **run) for d in (0.25, 2))
    assert share["threshold"] == number["threshold"] == 0.75
    all_needed = ask(noise_multiplier=2, **run)
    assert share["views"]["server_masked"] == all_needed["views"]["server_masked"]
    # Six shares instead of eight.
    plain = epsilon([(ClientThenRecord(0.5, 1.0, 2 / math.sqrt(6)), 10)], 1e-5)
    assert share["views"]["server_plain"]["pld"] == pytest.approx(plain)


def test_colluders_of_the_masked_server():
    run = {**RUN, "cohort": 8, "client_rate": 0.5}
    none = ask(noise_multiplier=2, masked=True, **run)
    three = ask(noise_multiplier=2, masked=True, colluders=3, **run)
    rows = {row["colluders"]: row["epsilon"] for row in three["by_colluders"]}
    assert list(rows) == list(range(8))
    assert none["by_colluders"] == three["by_colluders"]
    assert rows[0] == none["views"]["server_masked"]["pld"]
    assert rows[3] == three["views"]["server_masked"]["pld"]
    assert rows[7] == none["views"]["server_plain"]["pld"]
    left = ClientThenRecord(0.5, 1.0, 2 * math.sqrt(5 / 8))
    assert rows[3] == pytest.approx(epsilon([(left, 10)], 1e-5))
    assert three["views"]["global"] == none["views"]["global"]
    assert "by_colluders" not in ask(noise_multiplier=2, **run)


def test_many_clients_have_few_rows_of_colluders():
    run = {**RUN, "clients": 20, "accountant": "rdp"}
    answer = ask(noise_multiplier=5, colluders=5, **run)
    assert [row["colluders"] for row in answer["by_colluders"]] == [0, 1, 2, 4, 5, 8, 16, 19]
    cohorts = cohorts_of("poisson", 0.2, 20)
    five = with_shares_known(ClientThenRecord(0.2, 1.0, 5.0), cohorts, 5)
    assert answer["by_colluders"][4]["epsilon"] == epsilon([(five, 10)], 1e-5, "rdp")


def test_masking_takes_no_noise_away_and_says_what_it_costs():
    sizes = {"clients": 10, "units_per_client": 400, "parameters": 226_000_000}
    plain, masked = (ask(noise_multiplier=SIGMA, masked=m, **sizes, **RUN) for m in (False, True))
    assert plain["views"] == masked["views"]
    assert masked["views"]["server_masked"]["pld"] == pytest.approx(14.4606, abs=1e-3)
    # Two public keys; a box for the other of two; a share of each: the vector is words of 4 bytes.
    assert masked["traffic"] == {"update": 904_000_000, "keys_up": 212, "keys_down": 210}
    assert masked["warnings"] == []
    assert "traffic" not in plain


@pytest.mark.parametrize(
    ("epsilon", "rounds", "rate", "bands", "left"),
    [
        (8, 120, 0.08, 8, 0.83),
        (8, 30, 0.3, 3, 0.93),
        (3, 120, 0.08, 2, 0.98),
        (1, 120, 0.08, 4, 1.11),
    ],
)
def test_what_bands_leave_of_the_noise_is_told(epsilon, rounds, rate, bands, left):
    """The numbers of docs/guides/strategies.md."""
    run = {"client_rate": 1.0, "record_rate": rate, "rounds": rounds, "delta": 1e-4}
    answer = ask(epsilon=epsilon, view="global", bands=bands, **run)
    plain = ask(epsilon=epsilon, view="global", **run)
    found = answer["without_bands"]
    assert found["noise_left"] == pytest.approx(left, abs=0.006)
    assert found["noise_multiplier"] == pytest.approx(plain["noise_multiplier"], rel=0.01)
    assert "without_bands" not in plain


def test_bands_without_a_turn_are_warned_of():
    run = {"client_rate": 1.0, "record_rate": 0.1, "rounds": 3, "delta": 1e-4, "bands": 8}
    (warning,) = ask(noise_multiplier=1.0, **run)["warnings"]
    assert "about 5 of 8 units have none in 3 rounds" in warning


def test_whole_numbers_take_half_the_traffic_and_a_little_more_noise():
    sizes = {"clients": 10, "units_per_client": 41, "parameters": 226_000_000, "clip_norm": 5.0}
    run = {"noise_multiplier": 0.77, "masked": True, **sizes, **RUN}
    whole, plain = ask(discrete=True, **run), ask(**run)
    assert whole["views"] == plain["views"]
    assert whole["traffic"] == plain["traffic"] | {"update": 452_000_000}
    assert whole["whole_numbers"]["noise"] == pytest.approx(1.023, abs=5e-4)  # as in the docs
    steps = 0.77 * 5 * 1.023 / math.sqrt(10)  # times a power of two, for each unit
    scale = math.log2(whole["whole_numbers"]["steps"] / steps)
    assert scale == pytest.approx(round(scale), abs=1e-3)
    ratio = plain["signal"]["per_round"] / whole["signal"]["per_round"]
    assert ratio == pytest.approx(whole["whole_numbers"]["noise"])
    assert "whole_numbers" not in plain


def test_whole_numbers_follow_the_run_of_the_same_sizes():
    """The strategy that is masked chooses its own steps; the plan must foresee them."""
    mechanism = provider_gaussian(clip_norm=0.5, providers=6, noise_multiplier=1.5)
    masked = Masked(FLProviderDP(mechanism, threshold=0.7), Masking(mechanism="discrete"))
    masked.settle(8, 5000)
    run = {"client_rate": 1, "record_rate": 0.5, "rounds": 4, "delta": 1e-5, "threshold": 0.7}
    sizes = {"clients": 8, "units_per_client": 12, "parameters": 5000, "clip_norm": 0.5}
    answer = ask(noise_multiplier=1.5, masked=True, discrete=True, **run, **sizes)
    steps = steps_of(masked.mechanism, 5000)
    expected = {"noise": steps.inflation, "steps": steps.share(1.5, 8)}
    assert answer["whole_numbers"] == expected


def test_whole_numbers_that_16_bits_cannot_hold_are_said():
    run = {"client_rate": 1, "record_rate": 1, "rounds": 1, "delta": 1e-5, "clients": 10}
    sizes = {"units_per_client": 1e6, "parameters": 100, "masked": True}
    (warning,) = ask(noise_multiplier=1, discrete=True, **run, **sizes)["warnings"][-1:]
    assert warning.startswith("masking.mechanism=discrete: ")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"masked": False}, "give masked too"),
        ({"clients": None}, "give clients too"),
        (
            {"units_per_client": None, "parameters": None},
            "parameters, units_per_client or examples",
        ),
        ({"steps": 2}, "not with steps"),
    ],
)
def test_what_whole_numbers_need(given, said):
    sizes = {"clients": 10, "units_per_client": 4, "parameters": 1000, "masked": True}
    with pytest.raises(BudgetMistakes, match=f"discrete: .*{said}"):
        ask(noise_multiplier=1, discrete=True, **(RUN | sizes | given))


def test_a_ring_that_is_too_coarse_is_said():
    run = {"client_rate": 1, "record_rate": 1, "rounds": 1, "delta": 1e-8, "clients": 100}
    run |= {"parameters": 10**6, "units_per_client": 10**5, "masked": True, "sampling": "fixed"}
    (warning,) = ask(noise_multiplier=0.5, **run)["warnings"]
    assert "steps of the 32-bit ring wide, and should be 4 at least" in warning
    assert ask(noise_multiplier=2, **run)["warnings"] == []
    (unknown,) = ask(noise_multiplier=1, masked=True, parameters=10, **RUN)["warnings"]
    assert "clients and units_per_client would tell" in unknown


def test_the_ring_is_that_of_masked_rounds_or_a_coarser_one():
    for units, clip in ((3, 1.0), (400, 0.1)):
        mechanism = provider_gaussian(
            clip_norm=clip, providers=units, noise_multiplier=2, client_rate=0.5
        )
        ring = Ring.fitting(masking._bound(mechanism, 8, 1000), 8)
        share = mechanism.noise_std / mechanism.normaliser / math.sqrt(8)
        plan = {"noise_multiplier": 2, "clip_norm": clip, "clients": 8, "client_rate": 0.5}
        plan |= {"units_per_client": units, "record_rate": 1.0, "parameters": 1000}
        told = steps_in_a_share(Plan(delta=1e-5, **plan).completed())
        assert told <= share / ring.step <= 2 * told


def test_delta_is_to_be_below_one_in_all_units():
    run = {**RUN, "delta": 1e-3}
    assert ask(noise_multiplier=1, examples=999, **run)["warnings"] == []
    (warning,) = ask(noise_multiplier=1, examples=1000, **run)["warnings"]
    assert "delta=0.001 is at least 1/1000" in warning
    assert ask(noise_multiplier=1, clients=20, units_per_client=50, **run)["warnings"]


def test_clients_that_protect_themselves_have_one_view():
    answer = ask(noise_multiplier=2, steps=5, **{**RUN, "record_rate": 0.2})
    own = epsilon([(ClientThenRecord(1.0, 0.2, 2.0), 50)], 1e-5)
    assert {view["pld"] for view in answer["views"].values()} == {own}
    found = ask(epsilon=4, view="paper", steps=5, **{**RUN, "record_rate": 0.2})
    assert 3.99 <= found["views"]["server_plain"]["pld"] <= 4


# The inverse questions


def test_how_many_rounds_an_epsilon_allows():
    run = {**RUN, "rounds": None, "noise_multiplier": 2.0}
    answer = ask(epsilon=8, view="global", **run)
    event = ClientThenRecord(0.2, 1.0, 2.0)
    assert epsilon([(event, answer["rounds"])], 1e-5) <= 8
    assert epsilon([(event, answer["rounds"] + 1)], 1e-5) > 8
    with pytest.raises(ValueError, match=r"one alone exceeds epsilon=0\.1"):
        ask(epsilon=0.1, view="global", **run)
    with pytest.raises(ValueError, match="may have, 1000000, stay within epsilon=8; lower"):
        ask(epsilon=8, view="global", accountant="rdp", **{**run, "noise_multiplier": 1e5})


def test_which_rate_an_epsilon_allows():
    run = {**RUN, "record_rate": None, "noise_multiplier": 1.0}
    rate = ask(epsilon=6, view="global", **run)["record_rate"]
    assert epsilon([(ClientThenRecord(0.2, rate, 1.0), 10)], 1e-5) <= 6
    assert epsilon([(ClientThenRecord(0.2, rate * 1.001, 1.0), 10)], 1e-5) > 6
    assert ask(epsilon=60, view="global", **run)["record_rate"] == 1


def test_the_command_answers_what_engineers_ask(capsys):
    asked = ["--epsilon", "8", "--view", "server_plain", "--clients", "10", "--client-rate", "0.2"]
    sizes = ["--examples", "2000", "--batch-size", "40", "--epochs", "2", "--delta", "1e-3"]
    more = ["--dropouts", "0.5", "--parameters", "100000", "--accountant", "rdp", "--masked"]
    assert command(*asked, *sizes, *more) == 0
    out = capsys.readouterr().out
    assert (
        "100 rounds, client rate 0.2, record rate 0.1, 10 clients (poisson), threshold 0.5" in out
    )
    assert "colluders        0        1" in out
    assert "signal against noise: a round sums about 40 units" in out
    assert "masked: 400,000 bytes up for a client and round" in out
    assert "WARNING: delta=0.001 is at least 1/2000" in out
    assert command(*asked, *sizes, *more, "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert tuple(answer["views"]) == VIEWS
    assert answer["views"]["server_plain"]["rdp"] <= 8
    assert answer["signal"]["units"] == 40


def test_a_wrong_word_is_one_mistake(capsys):
    assert command(*FLAGS[2:], "--client-rate", "half", "--noise-multiplier", "1") == 2
    assert capsys.readouterr().err.splitlines() == [
        "budget: 1 mistake",
        "  client_rate='half': expected a number",
    ]


def test_more_colluders_than_other_clients_are_a_mistake(capsys):
    run = [*FLAGS[2:], "--noise-multiplier", "1", "--clients", "10", "--colluders", "10"]
    assert command(*run, "--masked") == 2
    assert "colluders=10: expected 9 at most" in capsys.readouterr().err


# Several runs: see test_joint


@pytest.mark.parametrize("content", [None, "{", "[]", '{"mechanism": null}'])
def test_a_folder_without_a_ledger_is_said(tmp_path, content, capsys):
    if content is not None:
        (tmp_path / "ledger.json").write_text(content)
    assert command(str(tmp_path)) == 2
    assert f"{tmp_path}: no ledger.json that can be read" in capsys.readouterr().err


def test_runs_take_no_plan(tmp_path, capsys):
    assert command(str(tmp_path), "--rounds", "3") == 2
    assert "--rounds: already fixed by the runs" in capsys.readouterr().err


QUICK = """
import sys
from fedpriv.cli.main import main
status = main(sys.argv[1:])
slow = {"torch", "transformers", "matplotlib", "ray", "flwr"} & set(sys.modules)
sys.exit(f"imported: {slow}" if slow else status)
"""


@pytest.mark.parametrize(
    "ask", [pytest.param(["--noise-multiplier", "1.5"], marks=pytest.mark.slow), ["--epsilon", "8"]]
)
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
