"""The grid in this process: Flower's strategies and client apps run on it as they are."""

import time

import numpy as np
import pytest
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from toy import OutOfLuck

from fedpriv.federation.grids.inline import CLIENT_FAILED, InlineGrid, serve
from fedpriv.federation.messages import Instruction, instruct, to_array_record

PRIVATE = "the invoice of ACME Ltd could not be read"


class Recorder(ClientApp):
    """A stock client app that notes whom it served; `failing` clients raise."""

    def __init__(self, failing=(), error=OutOfLuck):
        super().__init__()
        self.served = []

        @self.train()
        def train(message, context):
            client = context.node_config["partition-id"]
            self.served.append(client)
            if client in failing:
                raise error(PRIVATE)
            return Message(RecordDict({"who": MetricRecord({"client": client})}), reply_to=message)


def messages_to(grid, clients, content=None):
    nodes = list(grid.get_node_ids())
    return [
        grid.create_message(content or RecordDict(), "train", nodes[client], group_id="1")
        for client in clients
    ]


def who(reply):
    return reply.content["who"]["client"]


# Flower's own FedAvg

SIZES = [1, 2, 5]
INITIAL = np.array([8, -8], np.float32)


def stock_app(keep_input=True):
    """Client k adds k + 1 to every number, and reports its size and what it was given."""
    app = ClientApp()

    @app.train()
    def train(message, context):
        client = context.node_config["partition-id"]
        arrays = message.content["arrays"].to_torch_state_dict(keep_input=keep_input)
        metrics = {"num-examples": SIZES[client], "first": float(arrays["w"][0])}
        update = ArrayRecord({"w": arrays["w"] + client + 1})
        content = {"arrays": update, "metrics": MetricRecord(metrics)}
        return Message(RecordDict(content), reply_to=message)

    @app.evaluate()
    def evaluate(message, context):
        client = context.node_config["partition-id"]
        clients = context.node_config["num-partitions"]
        metrics = {"num-examples": 1, "client": float(client), "clients": float(clients)}
        return Message(RecordDict({"metrics": MetricRecord(metrics)}), reply_to=message)

    return app


def run_fedavg(app):
    start = ArrayRecord([INITIAL])
    arrays = ArrayRecord({"w": start["0"]})
    grid = InlineGrid(app, 3)
    result = FedAvg().start(grid, initial_arrays=arrays, num_rounds=2)
    assert grid.take_failures() == []
    return result


def test_flowers_fedavg_runs_as_it_is():
    result = run_fedavg(stock_app())
    # The weighted mean of 1, 2, 3 with weights 1, 2, 5 is 20 / 8.
    assert result.arrays["w"].numpy().tolist() == [8 + 5, -8 + 5]
    assert [dict(result.train_metrics_clientapp[round]) for round in (1, 2)] == [
        {"first": 8.0},
        {"first": 10.5},
    ]
    assert dict(result.evaluate_metrics_clientapp[2]) == {"client": 1.0, "clients": 3.0}


def test_a_stock_client_may_empty_the_record_that_it_was_sent():
    result = run_fedavg(stock_app(keep_input=False))
    assert result.arrays["w"].numpy().tolist() == [13, -3]


# Order and streaming


def test_replies_come_in_the_order_of_the_messages_not_of_the_clients():
    app = Recorder()
    grid = InlineGrid(app, 9)
    order = [4, 0, 8, 3, 7]
    assert [who(reply) for reply in grid.send_and_receive(messages_to(grid, order))] == order
    assert app.served == order


def test_nobody_is_served_before_a_reply_is_asked_for():
    app = Recorder()
    grid = InlineGrid(app, 8)
    replies = grid.send_and_receive(messages_to(grid, range(8)))
    assert app.served == []
    for client in range(8):
        assert who(next(replies)) == client
        assert app.served == list(range(client + 1))
    assert list(replies) == []


def test_replies_stream_in_chunks():
    app = Recorder()
    grid = InlineGrid(app, 8, chunk_size=3)
    replies = grid.send_and_receive(messages_to(grid, range(8)))
    seen = []
    for reply in replies:
        seen.append((who(reply), len(app.served)))
    assert seen == [(0, 3), (1, 3), (2, 3), (3, 6), (4, 6), (5, 6), (6, 8), (7, 8)]


def test_no_messages_no_replies():
    app = Recorder()
    assert list(InlineGrid(app, 3).send_and_receive([])) == []
    assert app.served == []


def test_messages_may_come_from_a_generator():
    grid = InlineGrid(Recorder(), 3)
    replies = grid.send_and_receive(message for message in messages_to(grid, [2, 1]))
    assert [who(reply) for reply in replies] == [2, 1]


def test_pushed_messages_are_served_when_they_are_pulled():
    app = Recorder()
    grid = InlineGrid(app, 5)
    first, second, third = grid.push_messages(messages_to(grid, [1, 4, 2]))
    assert app.served == []
    replies = list(grid.pull_messages([third, first]))
    assert [who(reply) for reply in replies] == [2, 1]
    assert [reply.metadata.reply_to_message_id for reply in replies] == [third, first]
    assert [who(reply) for reply in grid.pull_messages([second])] == [4]


def test_every_message_has_an_id_of_its_own():
    grid = InlineGrid(Recorder(), 5)
    pushed = list(grid.push_messages(messages_to(grid, [0, 1, 1, 4])))
    replies = list(grid.send_and_receive(messages_to(grid, [0, 1])))
    answered = [reply.metadata.reply_to_message_id for reply in replies]
    assert len({*pushed, *answered}) == 6


def test_nodes_are_the_clients_in_order():
    grid = InlineGrid(Recorder(), 4)
    nodes = list(grid.get_node_ids())
    assert nodes == sorted(set(nodes))
    assert [grid.client_of(node) for node in nodes] == [0, 1, 2, 3]
    assert list(InlineGrid(Recorder(), 4).get_node_ids()) == nodes


def test_a_node_that_is_nobodys_is_refused():
    grid = InlineGrid(Recorder(), 4)
    for node in (0, 1, 6):
        with pytest.raises(ValueError, match=f"^node id {node} is none of the 4 clients'$"):
            grid.client_of(node)


@pytest.mark.parametrize(("clients", "chunk_size"), [(0, None), (3, 0), (-1, 2)])
def test_a_grid_needs_clients_and_chunks(clients, chunk_size):
    message = f"^clients={clients} and chunk_size={chunk_size} must be at least 1$"
    with pytest.raises(ValueError, match=message):
        InlineGrid(Recorder(), clients, chunk_size)


def test_a_grid_knows_its_run():
    grid = InlineGrid(Recorder(), 1)
    (message,) = messages_to(grid, [0])
    assert message.metadata.run_id == grid.run.run_id
    grid.set_run("another")
    assert grid.run == "another"


def test_a_client_finds_nothing_of_its_last_visit_in_its_context():
    app = ClientApp()
    found = []

    @app.train()
    def train(message, context):
        found.append(sorted(context.state))
        context.state["diary"] = MetricRecord({"visits": 1})
        return Message(RecordDict(), reply_to=message)

    grid = InlineGrid(app, 1)
    for _ in range(2):
        list(grid.send_and_receive(messages_to(grid, [0])))
    assert found == [[], []]


# Failures


@pytest.mark.parametrize("error", [OutOfLuck, ValueError, SystemExit, MemoryError])
def test_a_client_that_raises_costs_itself_the_round_and_tells_the_server_its_kind_only(error):
    grid = InlineGrid(Recorder(failing=[1], error=error), 3)
    first, failed, last = grid.send_and_receive(messages_to(grid, [0, 1, 2]))
    assert (who(first), who(last)) == (0, 2)
    assert failed.has_error()
    assert not failed.has_content()
    known = "Exception" if error is OutOfLuck else error.__name__
    assert (failed.error.code, failed.error.reason) == (CLIENT_FAILED, known)
    assert PRIVATE not in repr(failed)
    assert PRIVATE.encode() not in failed.deflate()


def test_the_name_of_a_clients_own_error_stays_with_the_client():
    grid = InlineGrid(Recorder(failing=[0], error=type("Total_117_EUR", (ValueError,), {})), 1)
    (failed,) = grid.send_and_receive(messages_to(grid, [0]))
    assert failed.error.reason == "Exception"
    assert b"Total_117" not in failed.deflate()
    assert [failure.reason for failure in grid.take_failures()] == ["Total_117_EUR"]


def test_replies_do_not_tell_how_long_a_client_was_at_work():
    class Busy(Recorder):
        def __call__(self, message, context):
            time.sleep(0.01 * context.node_config["partition-id"])
            return super().__call__(message, context)

    grid = InlineGrid(Busy(failing=[2]), 3)
    sent = messages_to(grid, [0, 1, 2])
    for message, reply in zip(sent, grid.send_and_receive(sent), strict=True):
        assert reply.metadata.created_at == message.metadata.created_at
        assert reply.metadata.ttl == message.metadata.ttl


def test_the_person_at_the_simulation_gets_the_traceback_once():
    grid = InlineGrid(Recorder(failing=[1, 2]), 3)
    list(grid.send_and_receive(messages_to(grid, [0, 1, 2])))
    failures = grid.take_failures()
    assert [(f.round, f.client, f.kind, f.reason) for f in failures] == [
        (0, 1, "failed", "OutOfLuck"),
        (0, 2, "failed", "OutOfLuck"),
    ]
    for failure in failures:
        assert f"OutOfLuck: {PRIVATE}" in failure.traceback
        assert "test_inline_grid.py" in failure.traceback
    assert grid.take_failures() == []


def test_a_failure_names_the_round_of_the_instruction():
    grid = InlineGrid(Recorder(failing=[0]), 1)
    content = instruct(to_array_record({"float": np.zeros(1, np.float32)}), Instruction(round=17))
    list(grid.send_and_receive(messages_to(grid, [0], content)))
    (failure,) = grid.take_failures()
    assert failure.to_json() | {"traceback": ""} == {
        "round": 17,
        "client": 0,
        "kind": "failed",
        "reason": "OutOfLuck",
        "traceback": "",
    }


def test_an_action_that_no_client_half_answers_is_a_failure():
    grid = InlineGrid(Recorder(), 1)
    node = next(iter(grid.get_node_ids()))
    (reply,) = grid.send_and_receive([grid.create_message(RecordDict(), "train.other", node, "1")])
    assert reply.error.reason == "ValueError"
    assert "other" in grid.take_failures()[0].traceback


def test_an_interrupt_by_the_user_ends_the_run():
    grid = InlineGrid(Recorder(failing=[0], error=KeyboardInterrupt), 2)
    with pytest.raises(KeyboardInterrupt):
        list(grid.send_and_receive(messages_to(grid, [0, 1])))


def test_who_comes_after_the_deadline_is_missing_and_yields_nothing():
    app = ClientApp()

    @app.train()
    def train(message, context):
        time.sleep(0.4)
        client = context.node_config["partition-id"]
        return Message(RecordDict({"who": MetricRecord({"client": client})}), reply_to=message)

    grid = InlineGrid(app, 4)
    replies = list(grid.send_and_receive(messages_to(grid, [3, 1, 0]), timeout=0.2))
    assert [who(reply) for reply in replies] == [3]
    failures = grid.take_failures()
    assert [(f.client, f.kind, f.reason) for f in failures] == [
        (0, "missing", "RoundTimeout"),
        (1, "missing", "RoundTimeout"),
    ]


def test_serving_one_client_needs_no_grid():
    grid = InlineGrid(Recorder(), 2)
    (message,) = messages_to(grid, [1])
    reply, failure = serve(Recorder(), message, client=1, clients=2)
    assert failure is None
    assert who(reply) == 1
