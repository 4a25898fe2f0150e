"""The round loop on a toy federation in this process: records, faults, checkpoints, resuming."""

import json
import random
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import pytest
import torch
import yaml
from toy import Net, OutOfLuck, data, federation, norm_net, weights

from fedpriv.clients.fedavg import LocalTraining
from fedpriv.federation.grids.base import Failure
from fedpriv.federation.grids.inline import InlineGrid
from fedpriv.federation.loop import Federation, Unworkable
from fedpriv.federation.round_statistics import TooFewClients
from fedpriv.federation.settings import Settings
from fedpriv.privacy.sampling import FixedSize, Poisson
from fedpriv.runtime.progress import Lines, Progress
from fedpriv.runtime.run_folder import CHECKPOINTS, CONFIG, FAILURES, FINAL, METRICS, NotARunFolder
from fedpriv.runtime.torch_state import seeded_model
from fedpriv.strategies.fedavg import FedAvg
from fedpriv.training.loops import Optimizer

# Clients hold 12, 13 or 14 examples: batches of 5 leave no last batch of one, on which BatchNorm
# would fail.
TRAINING = LocalTraining(batch_size=5, optimizer=Optimizer(lr=0.02))


pytestmark = pytest.mark.usefixtures("in_own_folder")


def lines(path):
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def contents(folder):
    """All that a run computed; who tried what is noted beside it."""
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {p: p.read_bytes() for p in paths if p.name not in ("log.jsonl", ".lock")}


def timeless(records):
    return [{k: v for k, v in record.items() if k != "seconds"} for record in records]


def initial(build=Net, seed=0):
    state = seeded_model(build, seed).state_dict()
    return b"".join(state[name].contiguous().numpy().tobytes() for name in sorted(state))


@dataclass(frozen=True)
class Diary:
    """Local training that notes each visit and fails where `fails` says so."""

    fails: object = lambda round, attempt, client: False
    visits: list = field(default_factory=list)

    action: ClassVar[str] = "local_training"

    def train(self, context):
        where = (context.instruction.round, context.instruction.attempt, context.client)
        self.visits.append(where)
        if self.fails(*where):
            raise OutOfLuck("the invoice of ACME Ltd could not be read")
        return TRAINING.train(context)

    def cohort(self, round, attempt=0):
        return [client for r, a, client in self.visits if (r, a) == (round, attempt)]


# Records


def test_metrics_hold_one_object_per_round():
    result = federation(chunk_size=3).run(3)
    records = lines(result.run_dir / METRICS)
    assert records == result.metrics
    assert [record["round"] for record in records] == [1, 2, 3]
    for record in records:
        assert record["loss"] > 0
        assert 0 <= record["accuracy"] <= 1
        assert record["train_loss"] > 0
        assert record["accepted"] is True
        assert record["attempts"] == 1
        assert record["clients"] == {"sampled": 8, "answered": 8, "failed": 0, "missing": 0}
        # 58 float32 parameters to and from eight clients.
        assert record["bytes_down"] == record["bytes_up"] == 8 * 58 * 4
        assert set(record["seconds"]) == {"train", "evaluate"}
    assert records[-1]["train_loss"] < records[0]["train_loss"]


def test_the_loss_on_record_is_that_of_the_global_model_in_evaluation_mode():
    result = federation(model=norm_net, client=Diary()).run(2)
    assert result.failures == []
    test = data().bind(norm_net, 0).test
    with torch.no_grad():
        scores = result.model.eval().evaluate(test)
    assert scores["loss"] == result.metrics[-1]["loss"]


def test_the_loss_is_absent_where_nothing_is_held_out():
    toy = data()
    everything = type(toy)(toy.train, toy.rows)
    (record,) = federation(data=everything).run(1).metrics
    assert "loss" not in record
    assert "train_loss" in record


def test_evaluation_is_every_so_many_rounds_and_after_the_last():
    metrics = federation(evaluate_every=3).run(5).metrics
    assert [record["round"] for record in metrics if "loss" in record] == [3, 5]


def test_a_run_leaves_its_settings_its_weights_and_its_checkpoints():
    result = federation(checkpoint_every=2, keep_checkpoints=2).run(5)
    config = yaml.safe_load((result.run_dir / CONFIG).read_text("utf-8"))
    assert (config["name"], config["seed"], config["rounds"]) == ("federation", 0, 5)
    assert {"python", "torch", "flwr", "numpy", "fedpriv"} <= set(config["versions"])
    names = sorted(path.name for path in (result.run_dir / CHECKPOINTS).iterdir())
    assert names == ["final.safetensors", "round-000004.safetensors", "round-000005.safetensors"]
    assert (result.run_dir / FINAL).is_file()
    assert list((result.run_dir / "tensorboard").iterdir())
    assert not (result.run_dir / FAILURES).read_text()


def test_runs_get_folders_of_their_own_under_the_name():
    toy = federation()
    one, two = toy.run(1).run_dir, toy.run(1).run_dir
    assert one != two
    assert one.parent == two.parent
    assert one.parent.parts == ("runs", "federation")


def test_the_same_settings_give_the_same_bits_and_another_seed_others():
    one, two, other = federation().run(2), federation().run(2), federation(seed=1).run(2)
    assert weights(one) == weights(two) != weights(other)
    assert timeless(one.metrics) == timeless(two.metrics)


def test_the_weights_move_away_from_where_the_seed_put_them():
    assert weights(federation().run(1)) != initial()


def test_the_callers_random_numbers_are_left_alone():
    torch.manual_seed(1)
    np.random.seed(2)  # noqa: NPY002
    random.seed(3)
    before = torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002
    threads = torch.get_num_threads()
    federation(clients=2, model=norm_net, client=Diary(), threads=threads + 1).run(1)
    after = np.random.get_state()  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (after[1].tolist(), after[2:]) == (before[1][1].tolist(), before[1][2:])
    assert random.getstate() == before[2]
    assert torch.get_num_threads() == threads


def test_the_callers_random_numbers_do_not_change_the_run():
    torch.manual_seed(1)
    random.seed(1)
    one = federation(model=norm_net, client=Diary()).run(1)
    torch.manual_seed(2)
    random.seed(2)
    np.random.seed(2)  # noqa: NPY002
    assert weights(federation(model=norm_net, client=Diary()).run(1)) == weights(one)


def test_whoever_watches_is_told_of_answers_and_rounds():
    class Watching(Progress):
        def __init__(self):
            self.answers, self.rounds = [], []

        def client_answered(self, answered, sampled):
            self.answers.append((answered, sampled))

        def round(self, record):
            self.rounds.append(record)

    watching = Watching()
    result = federation(chunk_size=3).run(2, progress=watching)
    assert watching.answers == [(3, 8), (6, 8), (8, 8)] * 2
    assert watching.rounds == result.metrics


# Faults


def test_a_client_that_fails_costs_itself_the_round():
    result = federation({"2/3": "raise", "2/5": "nan"}).run(3)
    counts = [record["clients"] for record in result.metrics]
    assert counts[1] == {"sampled": 8, "answered": 6, "failed": 2, "missing": 0}
    assert counts[0] == counts[2] == {"sampled": 8, "answered": 8, "failed": 0, "missing": 0}
    assert result.metrics[1]["bytes_down"] == 8 * 232
    assert result.metrics[1]["bytes_up"] == 6 * 232
    failures = [(f["round"], f["client"], f["kind"], f["reason"]) for f in result.failures]
    assert failures == [(2, 3, "failed", "OutOfLuck"), (2, 5, "failed", "FloatingPointError")]
    assert "ACME" in result.failures[0]["traceback"]
    assert lines(result.run_dir / FAILURES) == result.failures
    assert "ACME" not in (result.run_dir / METRICS).read_text()


def test_the_mean_is_that_of_a_federation_without_the_failed_client():
    def two_of_three(fails):
        strategy = FedAvg(sampling=FixedSize(count=3))
        return federation(clients=3, strategy=strategy, client=Diary(fails), chunk_size=1).run(1)

    toy = data(clients=3)
    without = type(toy)(toy.train, (toy.rows[0], toy.rows[1]), toy.test)
    failed = two_of_three(lambda round, attempt, client: client == 2)
    two = federation(data=without, strategy=FedAvg(), client=Diary(), chunk_size=1).run(1)
    assert weights(failed) == weights(two)


class Deaf(InlineGrid):
    """Never hears of client 2, as after a timeout."""

    def _deliver(self, messages, timeout):
        heard = [m for m in messages if self.client_of(m.metadata.dst_node_id) != 2]
        self._failures.append(Failure(1, 2, "missing", "RoundTimeout"))
        yield from super()._deliver(heard, timeout)


def test_a_client_that_is_never_heard_of_is_missing():
    toy = federation({"1/4": "raise"})
    result = toy.run(1, grid=Deaf(toy.grid()._app, 8))
    assert result.metrics[0]["clients"] == {
        "sampled": 8,
        "answered": 6,
        "failed": 1,
        "missing": 1,
    }
    assert sorted((f["client"], f["kind"]) for f in result.failures) == [
        (2, "missing"),
        (4, "failed"),
    ]


def everybody_fails(*rounds):
    return lambda round, attempt, client: round in rounds


def test_a_round_with_too_few_answers_is_not_drawn_again_and_the_run_goes_on():
    """Drawing until a cohort suits would include those who suit more often than their rate says."""
    diary = Diary(everybody_fails(2))
    result = federation(client=diary, strategy=FedAvg(sampling=Poisson(0.5)), clients=16).run(3)
    assert [record["attempts"] for record in result.metrics] == [1, 1, 1]
    assert [record["accepted"] for record in result.metrics] == [True, False, True]
    assert len(result.failures) == len(diary.cohort(2)) == result.metrics[1]["clients"]["failed"]
    straight = Diary()
    federation(client=straight, strategy=FedAvg(sampling=Poisson(0.5)), clients=16).run(3)
    assert [diary.cohort(r) for r in (1, 2, 3)] == [straight.cohort(r) for r in (1, 2, 3)]


def test_too_few_answers_again_and_again_end_the_run_and_name_its_folder(tmp_path):
    diary = Diary(everybody_fails(2, 3))
    toy = federation(client=diary, min_clients=3, max_refused=2, checkpoint_every=5)
    with pytest.raises(TooFewClients) as caught:
        toy.run(5, run_dir=tmp_path / "mine")
    assert str(caught.value) == (
        "2 rounds in a row did not count. Round 3: 0 of 8 clients answered, min_clients is 3. See "
        f"failures.jsonl in {tmp_path / 'mine'}; resumed, the run goes on with the next round and "
        "its cohort"
    )
    assert [record["round"] for record in lines(tmp_path / "mine" / METRICS)] == [1, 2, 3]
    assert len(lines(tmp_path / "mine" / FAILURES)) == 16


def test_a_run_that_ended_with_too_few_clients_goes_on_with_the_next_round(tmp_path):
    fails = everybody_fails(2, 3)
    with pytest.raises(TooFewClients):
        federation(client=Diary(fails), max_refused=2).run(5, run_dir=tmp_path / "mine")
    diary = Diary(fails)
    resumed = federation(client=diary).run(5, run_dir=tmp_path / "mine", resume=True)
    assert min(round for round, _, _ in diary.visits) == 4
    straight = federation(client=Diary(fails)).run(5)
    assert weights(resumed) == weights(straight)
    assert timeless(resumed.metrics) == timeless(straight.metrics)


@pytest.mark.parametrize("most", [0, 4])
def test_a_run_that_may_lose_so_many_rounds_does_not_end(most):
    result = federation(client=Diary(everybody_fails(1, 2, 3, 5)), max_refused=most).run(5)
    assert [r["accepted"] for r in result.metrics] == [False, False, False, True, False]


def test_one_answer_less_than_asked_for_is_too_few_and_as_many_are_enough():
    def three_fail(round, attempt, client):
        return client < 3

    federation(client=Diary(three_fail), min_clients=5).run(1)
    with pytest.raises(TooFewClients, match=r"5 of 8 clients answered, min_clients is 6"):
        federation(client=Diary(three_fail), min_clients=6, max_refused=1).run(1)


def test_a_refused_round_leaves_the_model_bit_by_bit_and_goes_on():
    def most_fail(round, attempt, client):
        return round == 2 and client < 6

    settings = {"model": norm_net, "min_clients": 3}
    one = federation(client=Diary(), **settings).run(1)
    diary = Diary(most_fail)
    two = federation(client=diary, **settings).run(2)
    assert weights(two) == weights(one)
    assert two.metrics[1]["accepted"] is False
    assert two.metrics[1]["attempts"] == 1
    assert two.metrics[1]["clients"] == {"sampled": 8, "answered": 2, "failed": 6, "missing": 0}
    assert two.metrics[1]["loss"] == two.metrics[0]["loss"]
    assert "train_loss" not in two.metrics[1]
    three = federation(client=Diary(most_fail), **settings).run(3)
    assert [record["accepted"] for record in three.metrics] == [True, False, True]
    assert weights(three) != weights(two)


def test_empty_poisson_cohorts_are_rounds():
    result = federation(strategy=FedAvg(sampling=Poisson(0))).run(3)
    assert [record["clients"]["sampled"] for record in result.metrics] == [0, 0, 0]
    assert [record["accepted"] for record in result.metrics] == [True] * 3
    assert [record["attempts"] for record in result.metrics] == [1] * 3
    assert weights(result) == initial()


def test_empty_cohorts_are_too_few_where_more_than_one_client_is_asked_for():
    with pytest.raises(TooFewClients, match=r"0 of 0 clients answered, min_clients is 2"):
        federation(strategy=FedAvg(sampling=Poisson(0)), min_clients=2, max_refused=1).run(1)


def test_with_no_minimum_a_round_that_everybody_failed_counts():
    result = federation(client=Diary(everybody_fails(1)), min_clients=0).run(1)
    assert result.metrics[0]["accepted"] is True
    assert result.metrics[0]["clients"]["failed"] == 8
    assert weights(result) == initial()


# Resuming


def crash(in_round, kind=KeyboardInterrupt):
    """A client half that takes the run down in the middle of a round."""

    def fails(round, attempt, client):
        if (round, client) == (in_round, 5):
            raise kind
        return False

    return Diary(fails)


def test_four_rounds_and_four_more_are_eight(tmp_path):
    straight = federation(model=norm_net, client=Diary()).run(8)
    federation(model=norm_net, client=Diary()).run(4, run_dir=tmp_path / "mine")
    resumed = federation(model=norm_net, client=Diary()).run(
        8, run_dir=tmp_path / "mine", resume=True
    )
    assert weights(resumed) == weights(straight)
    assert timeless(resumed.metrics) == timeless(straight.metrics)
    assert resumed.run_dir == tmp_path / "mine"
    for name in (FINAL, f"{CHECKPOINTS}/round-000008.safetensors"):
        assert (resumed.run_dir / name).read_bytes() == (straight.run_dir / name).read_bytes()


def test_a_run_interrupted_in_a_round_goes_on_from_its_checkpoint(tmp_path):
    settings = {"model": norm_net, "checkpoint_every": 3}
    straight = federation(client=Diary(), **settings).run(8)
    with pytest.raises(KeyboardInterrupt):
        federation(client=crash(in_round=6), **settings).run(8, run_dir=tmp_path / "mine")
    assert [record["round"] for record in lines(tmp_path / "mine" / METRICS)] == [1, 2, 3, 4, 5]
    diary = Diary()
    resumed = federation(client=diary, **settings).run(8, run_dir=tmp_path / "mine", resume=True)
    assert min(round for round, _, _ in diary.visits) == 4
    assert weights(resumed) == weights(straight)
    assert timeless(resumed.metrics) == timeless(straight.metrics)


def test_a_run_interrupted_before_its_first_checkpoint_starts_again(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        federation(client=crash(in_round=1)).run(2, run_dir=tmp_path / "mine")
    resumed = federation(client=Diary()).run(2, run_dir=tmp_path / "mine", resume=True)
    assert weights(resumed) == weights(federation(client=Diary()).run(2))


def test_a_finished_run_has_nothing_left_to_do(tmp_path):
    done = federation().run(2, run_dir=tmp_path / "mine")
    diary = Diary()
    again = federation(client=diary).run(2, run_dir=tmp_path / "mine", resume=True)
    assert diary.visits == []
    assert weights(again) == weights(done)
    assert again.metrics == done.metrics


class Counting(FedAvg):
    """FedAvg that counts its moves, as a server optimiser keeps its moments."""

    moves = 0

    def aggregate_train(self, server_round, replies):
        moved = super().aggregate_train(server_round, replies)
        self.moves += 1
        return moved

    def state(self):
        return {"moves": np.array(self.moves), "none": np.zeros((0, 2), np.float32)}

    def load_state(self, state):
        self.moves = int(state["moves"])


def test_the_strategys_state_survives(tmp_path):
    federation(strategy=Counting()).run(3, run_dir=tmp_path / "mine")
    strategy = Counting()
    federation(strategy=strategy).run(5, run_dir=tmp_path / "mine", resume=True)
    assert strategy.moves == 5


def test_a_strategy_does_not_move_in_a_round_that_does_not_count():
    strategy = Counting()
    federation(strategy=strategy, client=Diary(everybody_fails(1, 2))).run(3)
    assert strategy.moves == 1


def test_another_seed_cannot_resume_a_run(tmp_path):
    federation().run(1, run_dir=tmp_path / "mine")
    with pytest.raises(ValueError, match=r"mine was run with {'seed': 0}, not {'seed': 1}$"):
        federation(seed=1).run(2, run_dir=tmp_path / "mine", resume=True)
    assert [record["round"] for record in lines(tmp_path / "mine" / METRICS)] == [1]


def test_a_resume_that_is_refused_changes_no_file(tmp_path):
    done = federation().run(1, run_dir=tmp_path / "mine")
    before = contents(done.run_dir)
    for other in ({"seed": 1}, {"model": norm_net}):
        with pytest.raises(ValueError, match=r"was run with|not the model's"):
            federation(**other).run(2, run_dir=tmp_path / "mine", resume=True)
        assert contents(done.run_dir) == before


def test_another_model_cannot_resume_a_run(tmp_path):
    federation().run(1, run_dir=tmp_path / "mine")
    with pytest.raises(ValueError, match=r"these tensors are not the model's"):
        federation(model=norm_net, client=Diary()).run(2, run_dir=tmp_path / "mine", resume=True)


def test_a_folder_that_holds_a_run_is_not_run_into_again(tmp_path):
    done = federation().run(1, run_dir=tmp_path / "mine")
    before = contents(done.run_dir)
    with pytest.raises(ValueError, match=r"mine holds a run already: resume it, or name another$"):
        federation().run(1, run_dir=tmp_path / "mine")
    assert contents(done.run_dir) == before


def test_resuming_needs_a_folder_with_a_run(tmp_path):
    with pytest.raises(ValueError, match=r"^resume=True needs the run_dir of the run to resume$"):
        federation().run(1, resume=True)
    with pytest.raises(NotARunFolder, match=r"nowhere is not a run folder: no such folder$"):
        federation().run(1, run_dir=tmp_path / "nowhere", resume=True)
    assert not (tmp_path / "nowhere").exists()


# Parts that do not fit


def test_two_halves_of_different_algorithms_are_refused_before_any_data_is_read():
    class Other(Diary):
        action = "other"

    class Unread:
        def bind(self, build_model, seed):
            raise AssertionError

    with pytest.raises(Unworkable) as caught:
        Federation(model=Net, data=Unread(), strategy=FedAvg(), client=Other())
    assert str(caught.value) == (
        "strategy FedAvg sends 'train.local_training', but client Other answers 'train.other': "
        "take the two halves of one algorithm"
    )
    assert caught.value.problems == [str(caught.value)]


def test_a_sampling_that_cannot_work_is_refused_before_any_round():
    with pytest.raises(Unworkable) as caught:
        federation(strategy=FedAvg(sampling=FixedSize(count=9)))
    assert caught.value.problems == ["strategy.sampling: count=9, but the federation has 8 clients"]


def test_less_than_no_round_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"^rounds=-1: expected 0 or more$"):
        federation().run(-1, run_dir=tmp_path / "mine")
    assert not (tmp_path / "mine").exists()


# No rounds


def test_a_run_of_no_rounds_evaluates_where_the_others_start(tmp_path):
    diary = Diary()
    done = federation(client=diary).run(0, run_dir=tmp_path / "mine")
    assert diary.visits == []
    assert weights(done) == initial()
    (record,) = lines(done.run_dir / METRICS)
    test = data().bind(Net, 0).test
    with torch.no_grad():
        want = done.model.eval().evaluate(test)
    assert timeless([record]) == [
        {
            "round": 0,
            **want,
            "accepted": True,
            "attempts": 0,
            "clients": {"sampled": 0, "answered": 0, "failed": 0, "missing": 0},
            "bytes_down": 0,
            "bytes_up": 0,
            "bytes_by_client": {},
        }
    ]
    assert (done.run_dir / FINAL).is_file()


def test_a_run_of_no_rounds_is_evaluated_once_and_can_be_gone_on_with(tmp_path):
    done = federation().run(0, run_dir=tmp_path / "mine")
    again = federation().run(0, run_dir=tmp_path / "mine", resume=True)
    assert again.metrics == done.metrics
    on = federation().run(2, run_dir=tmp_path / "mine", resume=True)
    straight = federation().run(2)
    assert [record["round"] for record in on.metrics] == [0, 1, 2]
    assert on.metrics[0] == done.metrics[0]
    assert timeless(on.metrics[1:]) == timeless(straight.metrics)
    assert weights(on) == weights(straight)


def test_no_rounds_are_shown_on_a_line_of_their_own(capsys):
    federation().run(0, progress=Lines())
    shown = capsys.readouterr().err
    assert "evaluation of the starting model" in shown
    assert "round 0/0  loss " in shown


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"workers": -1}, r"workers=-1: expected at least 0"),
        ({"chunk_size": 0}, r"chunk_size=0: expected at least 1"),
        ({"min_clients": -1}, r"min_clients=-1: expected at least 0"),
        ({"max_refused": -1}, r"max_refused=-1: expected at least 0"),
        ({"threads": 0}, r"threads=0: expected at least 1"),
        ({"evaluate_every": 0}, r"evaluate_every=0: expected at least 1"),
        ({"checkpoint_every": 0}, r"checkpoint_every=0: expected at least 1"),
        ({"keep_checkpoints": -1}, r"keep_checkpoints=-1: expected at least 0"),
        (
            {"client_timeout": 0, "workers": 2},
            r"client_timeout=0: expected seconds above 0",
        ),
        (
            {"client_timeout": float("nan"), "workers": 2},
            r"client_timeout=nan: expected seconds above 0",
        ),
        (
            {"client_timeout": 5},
            r"client_timeout=5 needs workers of their own, which can be replaced: set workers=1 "
            r"or more, or leave client_timeout out",
        ),
    ],
)
def test_settings_say_what_would_work(wrong, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        Settings(**wrong)


def test_the_run_closes_its_own_grid_and_leaves_anothers_open(monkeypatch):
    closed = []
    monkeypatch.setattr(InlineGrid, "close", lambda self: closed.append(self))
    toy = federation(client=crash(in_round=2))
    theirs = toy.grid()
    toy.run(1, grid=theirs)
    assert closed == []
    with pytest.raises(KeyboardInterrupt):
        toy.run(2)
    assert len(closed) == 1
    assert closed[0] is not theirs
