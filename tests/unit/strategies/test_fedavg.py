"""FedAvg's server half, fed by hand: two numbers for a model, replies written out."""

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from host_vectors import to_vectors

from fedpriv.federation.grids.base import ClientGrid
from fedpriv.federation.messages import (
    CLIENT,
    INSTRUCTION,
    METRICS,
    NUM_EXAMPLES,
    PARAMETERS,
    UPDATE,
    instruction_of,
    to_array_record,
)
from fedpriv.privacy.sampling import FixedSize, Poisson
from fedpriv.strategies.fedavg import LOSS, FedAvg


class Nodes(ClientGrid):
    """A grid that knows its clients and serves none of them."""

    def _deliver(self, messages, timeout):
        raise NotImplementedError


def vectors(*numbers, integer=None):
    made = {"float": np.array(numbers, np.float32)}
    return made if integer is None else made | {"integer": np.array(integer)}


def sent_by(strategy, start, clients=4, round=3, seed=0, attempt=0):
    config = ConfigRecord({"seed": seed, "attempt": attempt})
    return list(strategy.configure_train(round, to_array_record(start), config, Nodes(clients)))


def reply(to, update, **metrics):
    """The sum of a chunk as a grid sends it: `clients`, and a list of each metric."""
    named = {name.replace("_", "-"): values for name, values in metrics.items()}
    content = {UPDATE: to_array_record(update), METRICS: MetricRecord(named)}
    return Message(RecordDict(content), reply_to=to)


def aggregated(strategy, replies):
    arrays, metrics = strategy.aggregate_train(3, iter(replies))
    assert type(arrays) is ArrayRecord
    return to_vectors(arrays), dict(metrics)


def test_the_next_model_is_the_paper_s_weighted_mean():
    strategy = FedAvg()
    to = sent_by(strategy, vectors(10, 20))
    # Clients 0 and 1 hold 1 and 3 examples and moved by (1, -2) and (5, 2); client 2 holds 4 and
    # moved by (-1, 0.5). Chunk sums are Σ n_k Δ_k.
    replies = [
        reply(to[0], vectors(16, 4), client=[0, 1], num_examples=[1, 3], train_loss=[1.0, 2.0]),
        reply(to[2], vectors(-4, 2), client=[2], num_examples=[4], train_loss=[0.25]),
    ]
    moved, metrics = aggregated(strategy, replies)
    # w + Σ n_k Δ_k / n = (10, 20) + (12, 6) / 8; the loss is (1·1 + 3·2 + 4·0.25) / 8.
    assert moved["float"].tolist() == [11.5, 20.75]
    assert moved["float"].dtype == np.float32
    assert metrics == {LOSS: 1.0}


def test_with_equal_weights_the_numbers_of_examples_stay_unknown():
    strategy = FedAvg(weighted=False)
    to = sent_by(strategy, vectors(10, 20))
    replies = [
        reply(to[0], vectors(6, 0), client=[0, 1], train_loss=[1.0, 2.0]),
        reply(to[2], vectors(-3, 3), client=[2], train_loss=[6.0]),
    ]
    moved, metrics = aggregated(strategy, replies)
    assert moved["float"].tolist() == [11, 21]
    assert metrics == {LOSS: 3.0}


def test_one_client_alone_moves_the_model_all_the_way():
    strategy = FedAvg()
    to = sent_by(strategy, vectors(1, 2))
    only = reply(to[1], vectors(21, -7), client=[1], num_examples=[7], train_loss=[0.5])
    moved, metrics = aggregated(strategy, [only])
    assert moved["float"].tolist() == [4, 1]
    assert metrics == {LOSS: 0.5}


@pytest.mark.parametrize("weighted", [True, False])
def test_failed_clients_are_left_out_of_the_mean(weighted):
    strategy = FedAvg(weighted=weighted)
    to = sent_by(strategy, vectors(10, 20))
    count = {"num_examples": [2]} if weighted else {}
    replies = [
        Message(Error(2, "OutOfLuck"), reply_to=to[0]),
        reply(to[1], vectors(4, 8), client=[1], train_loss=[1.5], **count),
        Message(Error(2, "OutOfLuck"), reply_to=to[2]),
    ]
    moved, metrics = aggregated(strategy, replies)
    assert moved["float"].tolist() == ([12, 24] if weighted else [14, 28])
    assert metrics == {LOSS: 1.5}


@pytest.mark.parametrize("weighted", [True, False])
def test_where_nobody_answers_the_model_stays_as_it_was(weighted):
    start = vectors(0.1, -0.0, integer=[5])
    for failures in (0, 2):
        strategy = FedAvg(weighted=weighted)
        to = sent_by(strategy, start)
        replies = [Message(Error(2, "OutOfLuck"), reply_to=to[k]) for k in range(failures)]
        moved, metrics = aggregated(strategy, replies)
        assert {k: v.tobytes() for k, v in moved.items()} == {
            k: v.tobytes() for k, v in start.items()
        }
        assert metrics == {}


def test_clients_without_examples_move_nothing():
    strategy = FedAvg()
    to = sent_by(strategy, vectors(10, 20))
    nothing = reply(to[0], vectors(0, 0), client=[0], num_examples=[0], train_loss=[0.0])
    moved, metrics = aggregated(strategy, [nothing])
    assert moved["float"].tolist() == [10, 20]
    assert metrics == {}


@pytest.mark.parametrize(
    ("weighted", "total", "expected"),
    # Weighted: Σ n_k = 8. Halves go to the even neighbour.
    [(True, 49, 106), (True, 52, 106), (True, 44, 106), (True, -11, 99), (False, 7, 104)],
)
def test_integer_buffers_move_by_the_rounded_mean(weighted, total, expected):
    strategy = FedAvg(weighted=weighted)
    to = sent_by(strategy, vectors(0, integer=[100]))
    update = vectors(0, integer=[total])
    counts = {"num_examples": [5, 3]} if weighted else {}
    one = reply(to[0], update, client=[0, 1], train_loss=[1.0, 1.0], **counts)
    moved, _ = aggregated(strategy, [one])
    assert moved["integer"].tolist() == [expected]
    assert moved["integer"].dtype == np.int64


def test_the_vectors_that_were_sent_are_not_changed():
    start = vectors(10, 20)
    strategy = FedAvg()
    to = sent_by(strategy, start)
    one = reply(to[0], vectors(4, 4), client=[0], num_examples=[2], train_loss=[1.0])
    aggregated(strategy, [one])
    assert start["float"].tolist() == [10, 20]
    assert to_vectors(to[1].content[PARAMETERS])["float"].tolist() == [10, 20]
    assert to_vectors(one.content[UPDATE])["float"].tolist() == [4, 4]


def test_every_drawn_client_gets_one_message():
    strategy = FedAvg(sampling=FixedSize(count=5))
    messages = sent_by(strategy, vectors(1, 2), clients=9, round=7, attempt=2)
    nodes = [message.metadata.dst_node_id for message in messages]
    assert len(set(nodes)) == 5
    assert nodes == sorted(nodes)
    assert set(nodes) <= set(Nodes(9).get_node_ids())
    for message in messages:
        assert message.metadata.message_type == "train.local_training"
        assert message.metadata.group_id == "7"
        assert sorted(message.content) == [INSTRUCTION, PARAMETERS]
        assert to_vectors(message.content[PARAMETERS])["float"].tolist() == [1, 2]
        instruction = instruction_of(message)
        assert (instruction.round, instruction.attempt) == (7, 2)
        assert instruction.summed


@pytest.mark.parametrize(
    ("weighted", "weight", "metrics"),
    [(True, NUM_EXAMPLES, (NUM_EXAMPLES, LOSS)), (False, "", (LOSS,))],
)
def test_the_number_of_examples_is_asked_for_only_as_a_weight(weighted, weight, metrics):
    instruction = instruction_of(sent_by(FedAvg(weighted=weighted), vectors(1))[0])
    assert instruction.weight == weight
    assert instruction.metrics == metrics


@pytest.mark.parametrize("buffers", [True, False])
def test_clients_are_told_whether_buffers_travel(buffers):
    assert instruction_of(sent_by(FedAvg(buffers=buffers), vectors(1))[0]).buffers is buffers


def cohort(**settings):
    strategy = FedAvg(sampling=Poisson(0.5))
    return [m.metadata.dst_node_id for m in sent_by(strategy, vectors(1), clients=64, **settings)]


def test_the_same_seed_round_and_attempt_draw_the_same_cohort():
    assert cohort(seed=1, round=2, attempt=0) == cohort(seed=1, round=2, attempt=0)


@pytest.mark.parametrize("change", [{"seed": 2}, {"round": 3}, {"attempt": 1}])
def test_another_seed_round_or_attempt_draws_another_cohort(change):
    key = {"seed": 1, "round": 2, "attempt": 0}
    assert cohort(**key) != cohort(**(key | change))


def test_a_cohort_may_be_empty():
    assert sent_by(FedAvg(sampling=Poisson(0)), vectors(1)) == []


def test_what_the_sampling_cannot_do_is_a_problem():
    assert FedAvg(sampling=FixedSize(count=5)).problems(4) == [
        "sampling: count=5, but the federation has 4 clients"
    ]
    assert FedAvg(sampling=FixedSize(count=4)).problems(4) == []


def test_fedavg_keeps_no_state_between_rounds():
    assert FedAvg().state() == {}


def test_clients_are_asked_to_evaluate_nothing():
    config = ConfigRecord({"seed": 0, "attempt": 0})
    start = to_array_record(vectors(1))
    assert list(FedAvg().configure_evaluate(1, start, config, Nodes(2))) == []
    assert FedAvg().aggregate_evaluate(1, []) is None


def test_the_replies_above_use_the_names_of_a_grids_replies():
    assert (CLIENT, NUM_EXAMPLES, LOSS) == ("client", "num-examples", "train-loss")
