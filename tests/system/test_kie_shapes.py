"""What LayoutLMv3-tiny learns of invoices, receipts and forms, and how kie_shapes.py judges it."""

import importlib
import json
import os
import sys
from pathlib import Path

import pytest

from fedpriv.clients.fedavg import LocalTraining
from fedpriv.data.generated.invoices import Invoices
from fedpriv.data.partition import HoldOut, Iid
from fedpriv.federation.dataset import DocumentData
from fedpriv.federation.loop import Federation
from fedpriv.models.layoutlmv3 import layoutlmv3
from fedpriv.strategies.fedavg import FedAvg
from fedpriv.training.loops import Optimizer

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
real = pytest.mark.skipif(
    not os.environ.get("FEDPRIV_DATA"), reason="FEDPRIV_DATA names no folder with real documents"
)


@pytest.fixture(scope="module")
def shapes():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(EXPERIMENTS)  # as `python experiments/kie_shapes.py` does
        yield importlib.import_module("kie_shapes")


# ------------------------------------------------------------------------------- what is learnt


@pytest.mark.slow
def test_seen_providers_are_read_better_than_unseen_ones(tmp_path):
    """F1 measured under seeds 0 to 3: 0.64 to 0.79 against 0.09 to 0.20, apart by 0.50 or more."""
    result = Federation(
        model=layoutlmv3,
        data=DocumentData(
            Invoices(providers=8, documents_per_provider=16), Iid(1), HoldOut(unseen=0.25)
        ),
        strategy=FedAvg(),
        client=LocalTraining(epochs=6, optimizer=Optimizer(lr=4e-3)),
        runs=tmp_path,
    ).run(1)
    (scores,) = result.metrics
    assert scores["f1_seen"] > 0.5
    assert scores["f1_seen"] > scores["f1_unseen"] + 0.3


@real
@pytest.mark.slow
@pytest.mark.parametrize("data", ["sroie", "funsd"])
def test_real_documents_are_learnt_beyond_the_majority_baseline(shapes, data, tmp_path):
    task = shapes.TASKS[data]
    learnt, guessed = shapes.baseline(task).rows("baseline", task, 0, tmp_path)
    assert (learnt.setting, guessed.setting) == ("LayoutLMv3", "majority tag of each word")
    assert learnt.f1 > guessed.f1 + 0.05


# --------------------------------------------------------------------------- how it is judged


def rows_of(shapes, **by_setting):
    return [
        shapes.Row("made up", "shape", setting, seed, f1)
        for setting, values in by_setting.items()
        for seed, f1 in enumerate(values)
    ]


def test_an_order_beyond_the_spread(shapes):
    rows = rows_of(shapes, a=[0.9, 0.8], b=[0.7, 0.6], c=[0.5, 0.1])
    found = shapes.verdicts(("a", "b", "c"), rows)
    assert [(v.better, v.worse) for v in found] == [("a", "b"), ("b", "c"), ("a", "c")]
    assert all(v.measure == "f1" and v.means and v.apart and v.wins == 2 for v in found)
    assert shapes.holds(found) == "holds, beyond the spread"


def test_an_order_in_every_seed_within_the_spread(shapes):
    found = shapes.verdicts(("a", "b"), rows_of(shapes, a=[0.9, 0.5], b=[0.6, 0.4]))
    (only,) = found
    assert (only.means, only.apart, only.wins) == (True, False, 2)
    assert shapes.holds(found) == "holds in every seed, within the spread"
    assert str(only) == "  f1: a better than b: yes, within the spread (2 of 2 seeds)"


def test_an_order_in_the_means_only(shapes):
    found = shapes.verdicts(("a", "b"), rows_of(shapes, a=[0.9, 0.5], b=[0.4, 0.6]))
    assert (found[0].means, found[0].apart, found[0].wins) == (True, False, 1)
    assert shapes.holds(found) == "holds in the means"


def test_an_order_that_is_the_other_way_round(shapes):
    found = shapes.verdicts(("b", "a"), rows_of(shapes, a=[0.9, 0.8], b=[0.7, 0.6]))
    assert shapes.holds(found) == "does not hold"
    assert str(found[0]) == "  f1: b better than a: NO (0 of 2 seeds)"


def test_a_step_back_in_the_middle_is_not_hidden_by_the_ends(shapes):
    rows = rows_of(shapes, a=[0.9, 0.9], b=[0.4, 0.4], c=[0.5, 0.5])
    found = shapes.verdicts(("a", "b", "c"), rows)
    assert [v.means for v in found] == [True, False, True]
    assert shapes.holds(found) == "does not hold; of its ends it holds, beyond the spread"


def test_a_tie_is_no_order(shapes):
    found = shapes.verdicts(("a", "b"), rows_of(shapes, a=[0.0, 0.0], b=[0.0, 0.0]))
    assert shapes.holds(found) == "does not hold"


def test_less_loss_is_better(shapes):
    rows = [
        shapes.Row("made up", "shape", setting, seed, 0.5, loss=loss)
        for setting, losses in {"a": [0.1, 0.2], "b": [0.3, 0.4]}.items()
        for seed, loss in enumerate(losses)
    ]
    by_f1, by_loss = shapes.verdicts(("a", "b"), rows)
    assert (by_f1.measure, by_f1.means) == ("f1", False)
    assert (by_loss.measure, by_loss.means, by_loss.apart) == ("loss", True, True)


def test_a_measure_that_one_setting_lacks_is_not_judged(shapes):
    rows = [
        shapes.Row("made up", "shape", "a", 0, 0.5, loss=0.1),
        shapes.Row("made up", "shape", "b", 0, 0.4),
    ]
    assert [v.measure for v in shapes.verdicts(("a", "b"), rows)] == ["f1"]
    assert shapes.holds([]) == "not measured"


def test_only_seeds_that_both_have_are_compared(shapes):
    values = {"a": {0: 0.9, 1: 0.8}, "b": {1: 0.7, 2: 1.0}}
    found = shapes.verdict("a", "b", "f1", values)
    assert (found.seeds, found.apart) == (1, True)
    with pytest.raises(ValueError, match="a and b have no seed in common"):
        shapes.verdict("a", "b", "f1", {"a": {0: 0.9}, "b": {1: 0.7}})


def test_the_table_has_mean_spread_and_the_largest_epsilon(shapes):
    rows = [
        shapes.Row("made up", "shape", "q = 1/3", seed, f1, 0.5, 2.0, epsilon)
        for seed, (f1, epsilon) in enumerate([(0.2, 5.0), (0.4, 5.5)])
    ]
    head, line = shapes.table([*rows, shapes.Row("made up", "shape", "plain", 0, 1.0)]).split(
        "\n", 1
    )
    assert head.split() == ["setting", "f1", "loss", "σ", "ε", "seeds"]
    first, second = line.splitlines()
    assert first.split("  ")[0] == "q = 1/3"
    assert first.removeprefix("q = 1/3").split() == [
        *("0.300", "(0.200–0.400)", "0.500", "(0.500–0.500)", "2.00", "5.50", "2")
    ]
    assert second.split() == ["plain", "1.000", "(1.000–1.000)", "-", "-", "-", "1"]


def test_what_is_told_names_every_order_and_its_outcome(shapes):
    shape = shapes.Shape("a before b", {}, (("a", "b"), ("b", "a")))
    text = shapes.told(shape, rows_of(shapes, a=[0.9, 0.8], b=[0.7, 0.6]))
    assert text.startswith("made up, shape: a before b\nsetting ")
    assert "  a > b, by f1: holds, beyond the spread\n" in text
    assert "  b > a, by f1: does not hold\n" in text
    assert text.endswith("  b > a, by loss: not measured")


def test_the_settings_in_an_order_are_those_that_are_run(shapes):
    task = shapes.TASKS["invoices"]
    for name in ("batch", "clip", "layers", "clients"):
        shape = shapes.SHAPES[name](task)
        assert {s for order in shape.orders for s in order} == set(shape.arms)
    assert len({arm.noise_multiplier for arm in shapes.batch(task).arms.values()}) == 1
    rates = [arm.rate for arm in shapes.batch(task).arms.values()]
    assert rates == sorted(rates, reverse=True)


def test_a_shape_that_there_is_not_is_named(shapes, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["kie_shapes.py", "batch", "size"])
    with pytest.raises(SystemExit):
        shapes.main()
    assert "unknown shape size: there is baseline, batch, clip" in capsys.readouterr().err


def test_a_run_prints_and_writes_its_rows(shapes, monkeypatch, capsys, tmp_path):
    rows = rows_of(shapes, a=[0.9, 0.8], b=[0.7, 0.6])

    class Made:
        claim, orders = "a before b", (("a", "b"),)

        def rows(self, name, task, seed, runs):
            assert (name, task.name, runs) == ("made", "invoices", tmp_path)
            return [row for row in rows if row.seed == seed]

    monkeypatch.setitem(shapes.SHAPES, "made", lambda task: Made())
    options = ["--seeds", "2", "--runs", str(tmp_path), "--json", str(tmp_path / "rows.json")]
    monkeypatch.setattr(sys, "argv", ["kie_shapes.py", "made", *options])
    shapes.main()
    assert "a > b, by f1: holds, beyond the spread" in capsys.readouterr().out
    written = json.loads((tmp_path / "rows.json").read_text())
    assert [(row["setting"], row["seed"], row["f1"]) for row in written] == [
        ("a", 0, 0.9),
        ("b", 0, 0.7),
        ("a", 1, 0.8),
        ("b", 1, 0.6),
    ]
