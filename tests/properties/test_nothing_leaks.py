"""Nothing of a client reaches the server beside what was asked for, and nothing the next client.

A site is one worker's model and data, used by all clients in turn. So two things are compared bit
by bit: the reply of a client that came after one that left everything behind dirty, and the reply
of the same client on a site of its own.
"""

import dataclasses
import random
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch
from flwr.app import RecordDict
from host_vectors import on_host, to_vectors
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import nn
from toy import OutOfLuck

from fedpriv.clients.fedavg import LocalTraining
from fedpriv.data.examples import Examples
from fedpriv.federation.client import ClientUpdate, WorkerSpec, build_app
from fedpriv.federation.grids.inline import InlineGrid
from fedpriv.federation.messages import (
    CLIENT,
    METRICS,
    NUM_EXAMPLES,
    UPDATE,
    Instruction,
    instruct,
    sum_of,
    to_array_record,
)
from fedpriv.runtime.torch_state import seeded_model
from fedpriv.runtime.vectors import ParameterLayout
from fedpriv.training.loops import Optimizer

CLIENTS = 3
TRAINING = LocalTraining(batch_size=4, optimizer=Optimizer(lr=0.02))


class Everything(nn.Module):
    """A model with every kind of state: trained, frozen, tied, counted, and not saved."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.dropout = nn.Dropout(0.3)
        self.frozen = nn.Linear(4, 4).requires_grad_(False)
        self.last = nn.Linear(4, 4)
        self.last.weight = self.first.weight
        self.register_buffer("scale", torch.ones(4), persistent=False)

    def loss(self, batch):
        hidden = self.dropout(self.norm(self.first(batch["x"]))).relu()
        scores = self.last(self.frozen(hidden) * self.scale)
        return nn.functional.cross_entropy(scores, batch["y"])


def examples():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 4)).astype(np.float32)
    return Examples.of({"x": x, "y": rng.integers(0, 4, 30)})


def app_of(half, build=Everything, threads=1):
    rows = tuple(np.arange(10 * client, 10 * client + 10) for client in range(CLIENTS))
    return build_app(WorkerSpec(build, half, examples(), rows, seed=5, threads=threads))


def replies_of(app, cohort, instruction, build=Everything, chunk_size=None):
    """Serves the cohort on one site; returns the replies and whoever failed."""
    start = ParameterLayout(seeded_model(build, 5), buffers=instruction.buffers).read()
    grid = InlineGrid(app, CLIENTS, chunk_size)
    nodes = list(grid.get_node_ids())
    content = instruct(to_array_record(start), instruction)
    messages = [grid.create_message(content, "train.toy", nodes[k], "1") for k in cohort]
    return list(grid.send_and_receive(messages)), grid.take_failures()


def asking(*metrics, summed=False, buffers=False, weight="", round=1):
    return Instruction(round=round, summed=summed, weight=weight, buffers=buffers, metrics=metrics)


def bits(reply):
    """All that the server gets to see."""
    update = {k: (str(v.dtype), v.tobytes()) for k, v in to_vectors(reply.content[UPDATE]).items()}
    return update, dict(reply.content[METRICS])


# From one client to the next


def dirty_parameters(context):
    with torch.no_grad():
        for parameter in context.model.parameters():
            parameter.fill_(float("nan"))


def dirty_buffers(context):
    for buffer in context.model.buffers():
        buffer.fill_(77)


def dirty_flags(context):
    for parameter in context.model.parameters():
        parameter.requires_grad_(not parameter.requires_grad)


def dirty_modes(context):
    context.model.eval()


def dirty_gradients(context):
    context.model.requires_grad_(True)
    context.model.loss(context.examples.batch(np.arange(4))).backward()
    for parameter in context.model.parameters():
        if parameter.grad is not None:
            parameter.grad.fill_(1e6)


def dirty_data(context):
    for parameter in context.model.parameters():
        parameter.data = torch.full_like(parameter, 3)


def dirty_torch(context):
    torch.manual_seed(context.client)
    torch.rand(1000)


def dirty_numpy(context):
    np.random.seed(context.client)  # noqa: NPY002
    np.random.random(1000)  # noqa: NPY002


def dirty_python(context):
    random.seed(context.client)


def dirty_threads(context):
    torch.set_num_threads(3)


DIRT = [
    dirty_parameters,
    dirty_buffers,
    dirty_flags,
    dirty_modes,
    dirty_gradients,
    dirty_data,
    dirty_torch,
    dirty_numpy,
    dirty_python,
    dirty_threads,
]


@dataclass(frozen=True)
class Neighbours:
    """Client 0 leaves dirt behind; the others train, and tell all they can find out."""

    dirt: tuple = ()
    fails: bool = False

    action: ClassVar[str] = "toy"

    def train(self, context):
        if context.client == 0:
            contribution = TRAINING.train(context)
            for soil in self.dirt:
                soil(context)
            if self.fails:
                raise OutOfLuck
            return ClientUpdate(contribution.update, {"found": 0.0})
        found = self.look_around(context)
        contribution = TRAINING.train(context)
        return ClientUpdate(contribution.update, {"found": found})

    def look_around(self, context):
        model = context.model
        state = [*model.parameters(), *model.buffers()]
        clues = [
            *(float(tensor.detach().double().sum()) for tensor in state),
            sum(parameter.requires_grad for parameter in model.parameters()),
            sum(module.training for module in model.modules()),
            sum(parameter.grad is not None for parameter in model.parameters()),
            *(float(vector.sum()) for vector in context.parameters.values()),
            torch.rand(()).item(),
            np.random.random(),  # noqa: NPY002
            random.random(),
            torch.get_num_threads(),
        ]
        return float(np.dot(clues, np.sqrt(np.arange(2, 2 + len(clues)))))


@settings(max_examples=30)
@given(st.lists(st.sampled_from(DIRT), unique=True), st.booleans(), st.booleans(), st.booleans())
@example(dirt=DIRT, fails=False, buffers=False, summed=False)
@example(dirt=DIRT, fails=True, buffers=True, summed=False)
@example(dirt=DIRT, fails=False, buffers=True, summed=True)
def test_what_a_client_leaves_behind_changes_no_bit_of_the_next_reply(dirt, fails, buffers, summed):
    app = app_of(Neighbours(tuple(dirt), fails))
    instruction = asking("found", buffers=buffers, summed=summed)
    (alone,), _ = replies_of(app_of(Neighbours()), [1], instruction, chunk_size=1)
    both, failures = replies_of(app, [0, 1], instruction, chunk_size=1)
    after = next(reply for reply in both if reply.metadata.src_node_id == 3)
    assert len(failures) == fails
    assert bits(after) == bits(alone)


@dataclass(frozen=True)
class Witness(Neighbours):
    """Looks around, makes the place dirty, and reports whether it looks different."""

    def train(self, context):
        numbers = torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002
        before = self.look_around(context)
        torch.set_rng_state(numbers[0])
        np.random.set_state(numbers[1])  # noqa: NPY002
        random.setstate(numbers[2])
        for soil in self.dirt:
            soil(context)
        same = self.look_around(context) == before
        nothing = {name: np.zeros_like(vector) for name, vector in context.parameters.items()}
        return ClientUpdate(nothing, {"found": float(same)})


@pytest.mark.parametrize("soil", [None, *DIRT])
def test_the_neighbour_looks_in_the_right_places(soil):
    half = Witness((soil,) if soil else ())
    (reply,), _ = replies_of(app_of(half), [1], asking("found"))
    assert reply.content[METRICS]["found"] == (soil is None)


def other_precision(context):
    context.model.double()


def other_module(context):
    context.model.frozen = nn.Linear(4, 4)


def other_dropout(context):
    context.model.dropout.p = 0.9


def hook(context):
    context.model.first.register_forward_hook(lambda module, given, output: 2 * output)


@pytest.mark.parametrize("soil", [other_precision, other_module, other_dropout, hook])
def test_a_client_may_leave_the_model_in_any_state(soil):
    (alone,), _ = replies_of(app_of(Neighbours()), [1], asking("found"))
    both, _ = replies_of(app_of(Neighbours((soil,))), [0, 1], asking("found"))
    assert not both[-1].has_error()
    assert bits(both[-1]) == bits(alone)


def test_a_model_that_changes_its_own_settings_is_not_built_again():
    built = []

    class Shifting(Everything):
        def __init__(self):
            super().__init__()
            built.append(self)
            self.shift = 3

        def loss(self, batch):
            assert self.shift == 3
            self.shift = 0  # as the layers of Donut's encoder do, where a page is small
            return super().loss(batch)

    class Once(Neighbours):
        def train(self, context):
            context.model.loss(context.examples.batch(np.arange(4)))
            return ClientUpdate({k: 0 * v for k, v in context.parameters.items()}, {})

    app = app_of(Once(), Shifting)
    for round in (1, 2):
        replies, failed = replies_of(app, [0, 1, 2], asking(round=round), Shifting)
        assert len(replies) == CLIENTS
        assert not failed
    worker, *others = (model for model in built if model.shift == 0)
    assert worker
    assert not others


def test_a_client_gives_the_same_reply_every_time_and_another_in_every_round():
    app = app_of(Neighbours())
    one, two = (replies_of(app, [1], asking("found"))[0] for _ in range(2))
    other, _ = replies_of(app, [1], asking("found", round=2))
    assert bits(one[0]) == bits(two[0]) != bits(other[0])


def test_another_attempt_draws_other_numbers():
    app = app_of(Neighbours())
    one, two = (
        replies_of(app, [1], dataclasses.replace(asking("found"), attempt=attempt))[0][0]
        for attempt in (0, 1)
    )
    # Before it trains, a client sees the same model in both: only what it draws differs.
    assert one.content[METRICS]["found"] != two.content[METRICS]["found"]


@pytest.mark.parametrize("seed", [dirty_torch, dirty_numpy, dirty_python])
def test_the_numbers_that_a_client_draws_are_not_the_callers(seed):
    """Each generator alone, because the three add up to one clue."""

    class Caller:
        client = 123

    (one,), _ = replies_of(app_of(Neighbours()), [1], asking("found"))
    seed(Caller)
    (two,), _ = replies_of(app_of(Neighbours()), [1], asking("found"))
    assert bits(one) == bits(two)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_client_runs_on_the_threads_of_the_recipe_not_on_the_callers(threads):
    @dataclass(frozen=True)
    class Counting(Neighbours):
        def train(self, context):
            update = TRAINING.train(context).update
            return ClientUpdate(update, {"threads": torch.get_num_threads()})

    before = torch.get_num_threads()
    torch.set_num_threads(3 - threads)
    try:
        (reply,), _ = replies_of(app_of(Counting(), threads=threads), [1], asking("threads"))
    finally:
        torch.set_num_threads(before)
    assert reply.content[METRICS]["threads"] == threads


def test_the_order_of_the_cohort_changes_no_reply():
    app = app_of(Neighbours())
    forth, _ = replies_of(app, [0, 1, 2], asking("found"))
    back, _ = replies_of(app, [2, 1, 0], asking("found"))
    assert list(map(bits, forth)) == list(map(bits, reversed(back)))


def scribble(context):
    for vector in context.parameters.values():
        vector[:] = 9


@pytest.mark.parametrize("summed", [True, False])
def test_what_a_client_writes_into_the_global_vectors_reaches_nobody(summed):
    """They are said to be read-only, and are the server's own memory in this process."""
    instruction = asking("found", summed=summed)
    (alone,), _ = replies_of(app_of(Neighbours()), [1], instruction)
    app = app_of(Neighbours((scribble,)))
    replies, (failure,) = replies_of(app, [0, 1], instruction, chunk_size=2)
    assert "has changed the parameters" in failure.traceback
    (reply,) = (one for one in replies if not one.has_error())
    assert bits(reply) == bits(alone)


@dataclass(frozen=True)
class Aliasing:
    """Sends views of the model's own memory as its update."""

    action: ClassVar[str] = "toy"

    def train(self, context):
        with torch.no_grad():
            context.model.weight.fill_(context.client + 1)
        return ClientUpdate({"float": context.model.weight.detach().numpy().reshape(-1)}, {})


def test_a_reply_does_not_follow_the_model_to_the_next_client():
    def build():
        return nn.Linear(2, 1, bias=False)

    replies, failures = replies_of(
        app_of(Aliasing(), build=build), [0, 1, 2], asking(), build=build, chunk_size=3
    )
    assert failures == []
    updates = [to_vectors(reply.content[UPDATE])["float"].tolist() for reply in replies]
    assert updates == [[1, 1], [2, 2], [3, 3]]


@dataclass(frozen=True)
class Scribbler:
    """Client 0 writes into the columns under its examples."""

    action: ClassVar[str] = "toy"

    def train(self, context):
        column = context.examples.columns["x"]
        if context.client == 0 and column.flags.writeable:
            column[:] = 0
        return TRAINING.train(context)


def test_a_client_cannot_change_the_examples_of_another():
    (alone,), _ = replies_of(app_of(Scribbler()), [1], asking())
    both, _ = replies_of(app_of(Scribbler()), [0, 1], asking())
    assert bits(both[-1]) == bits(alone)


def test_the_callers_random_numbers_and_threads_are_left_alone():
    torch.manual_seed(1)
    np.random.seed(2)  # noqa: NPY002
    random.seed(3)
    before = torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002
    threads = torch.get_num_threads()
    replies_of(app_of(Neighbours(tuple(DIRT))), [0, 1], asking("found"))
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.random.get_state()[1].tolist() == before[1][1].tolist()  # noqa: NPY002
    assert random.getstate() == before[2]
    assert torch.get_num_threads() == threads


# From a client to the server


@dataclass(frozen=True)
class Talkative:
    """Trains, and reports whatever it likes; clients in `odd` send another update."""

    metrics: tuple = ()
    odd: tuple = ()
    change: object = None

    action: ClassVar[str] = "toy"

    def train(self, context):
        update = TRAINING.train(context).update
        if context.client in self.odd:
            update = self.change(update)
        return ClientUpdate(update, {"size": 10, **dict(self.metrics)})


numbers = st.one_of(st.integers(-(2**62), 2**62), st.floats(allow_nan=False))
names = st.text(min_size=1, max_size=8)


@settings(max_examples=60)
@given(st.data(), st.dictionaries(names, numbers, max_size=6), st.booleans(), st.booleans())
def test_a_reply_holds_the_update_and_the_metrics_asked_for(data, metrics, buffers, summed):
    metrics.pop(CLIENT, None)
    asked = [name for name in sorted(metrics) if data.draw(st.booleans())]
    half = Talkative(metrics=tuple(metrics.items()))
    instruction = asking(*asked, buffers=buffers, summed=summed)
    (reply,), failures = replies_of(app_of(half), [1], instruction)
    assert failures == []
    assert type(reply.content) is RecordDict
    assert sorted(reply.content) == [METRICS, UPDATE]
    sent = dict(reply.content[METRICS])
    if summed:
        assert sent.pop(CLIENT) == [1]
        assert sent == {name: [metrics[name]] for name in asked}
    else:
        assert sent == {name: metrics[name] for name in asked}
    # 4·4 tied weights, two biases, BatchNorm's two; with buffers its mean, variance and counter.
    sizes = {name: vector.shape for name, vector in to_vectors(reply.content[UPDATE]).items()}
    assert sizes == ({"float": (40,), "integer": (1,)} if buffers else {"float": (32,)})


@settings(max_examples=30)
@given(st.sets(names, min_size=1, max_size=4))
def test_a_client_that_lacks_a_metric_fails_and_says_which_to_its_own_side(asked):
    asked -= {"size"}
    (reply,), failures = replies_of(app_of(Talkative()), [1], asking("size", *sorted(asked)))
    if not asked:
        assert failures == []
        return
    assert reply.error.reason == "ValueError"
    assert f"the strategy asks for {sorted(asked)}, the client computed ['size']" in (
        failures[0].traceback
    )


def spoiled(value):
    def change(update):
        update["float"][7] = value
        return update

    return change


def all_of(value):
    return lambda update: {k: np.full_like(v, value) for k, v in update.items()}


ODD_UPDATES = {
    "one NaN": spoiled(np.nan),
    "one infinity": spoiled(np.inf),
    "one minus infinity": spoiled(-np.inf),
    "all NaN": all_of(np.nan),
    "too short": lambda update: {"float": update["float"][:-1]},
    "too long": lambda update: {"float": np.append(update["float"], np.float32(0))},
    "empty": lambda update: {"float": update["float"][:0]},
    "another shape": lambda update: {"float": update["float"].reshape(4, 8)},
    "float64": lambda update: {"float": update["float"].astype(np.float64)},
    "integers": lambda update: {"float": update["float"].astype(np.int32)},
    "nothing": lambda update: {},
    "another name": lambda update: {"weights": update["float"]},
    "one more vector": lambda update: update | {"extra": np.arange(3)},
    "a list": lambda update: {"float": update["float"].tolist()},
}


@pytest.mark.parametrize("odd", ODD_UPDATES)
@pytest.mark.parametrize("summed", [True, False])
@pytest.mark.parametrize("chunk_size", [1, 3])
def test_an_update_that_would_spoil_the_sum_is_refused(odd, summed, chunk_size):
    half = Talkative(odd=(1,), change=ODD_UPDATES[odd])
    instruction = asking("size", summed=summed)
    replies, failures = replies_of(app_of(half), [0, 1, 2], instruction, chunk_size=chunk_size)
    assert [failure.client for failure in failures] == [1]
    (refused,) = (reply for reply in replies if reply.has_error())
    assert refused.error.reason in ("ValueError", "FloatingPointError", "AttributeError")

    others, _ = replies_of(app_of(half), [0, 2], instruction, chunk_size=chunk_size)
    answered = [bits(reply) for reply in replies if not reply.has_error()]
    if chunk_size == 1 or not summed:
        assert answered == [bits(reply) for reply in others]
    if summed:
        ours, theirs = sum_of(replies), sum_of(others)
        assert ours.clients == [0, 2]
        assert (
            on_host(ours.vectors["float"]).tobytes() == on_host(theirs.vectors["float"]).tobytes()
        )


@settings(max_examples=30)
@given(st.integers(0, 31), st.sampled_from([np.nan, np.inf, -np.inf]))
def test_one_bad_number_anywhere_is_enough(place, value):
    def change(update):
        update["float"][place] = value
        return update

    (reply,), _ = replies_of(app_of(Talkative(odd=(1,), change=change)), [1], asking())
    assert reply.error.reason == "FloatingPointError"


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_two_opposite_infinities_do_not_cancel():
    def change(update):
        update["float"][0], update["float"][1] = np.inf, -np.inf
        return update

    (reply,), _ = replies_of(app_of(Talkative(odd=(1,), change=change)), [1], asking())
    assert reply.error.reason == "FloatingPointError"


BAD_WEIGHTS = {
    "NaN": (float("nan"), False),
    "infinite": (float("inf"), False),
    "negative": (-3, False),
    "a list": ([1, 2], False),
    "half an example, with integer buffers": (2.5, True),
}


@dataclass(frozen=True)
class Miscounting:
    """Client 1 is wrong about the number of its examples."""

    weight: object

    action: ClassVar[str] = "toy"

    def train(self, context):
        count = self.weight if context.client == 1 else 10
        return ClientUpdate(TRAINING.train(context).update, {NUM_EXAMPLES: count})


@pytest.mark.parametrize("kind", BAD_WEIGHTS)
def test_a_weight_that_would_spoil_the_sum_is_refused(kind):
    weight, buffers = BAD_WEIGHTS[kind]
    instruction = asking(NUM_EXAMPLES, summed=True, weight=NUM_EXAMPLES, buffers=buffers)
    app = app_of(Miscounting(weight))
    replies, failures = replies_of(app, [0, 1, 2], instruction)
    assert [failure.client for failure in failures] == [1]
    others, _ = replies_of(app, [0, 2], instruction)
    ours, theirs = sum_of(replies), sum_of(others)
    assert ours.metrics == theirs.metrics == {NUM_EXAMPLES: [10, 10]}
    assert on_host(ours.vectors["float"]).tobytes() == on_host(theirs.vectors["float"]).tobytes()


def test_batch_norms_statistics_stay_with_the_client_unless_asked_for():
    """What the server gets is the same bits whether the client's buffers move or not."""

    @dataclass(frozen=True)
    class Quiet:
        buffers_move: bool
        action: ClassVar[str] = "toy"

        def train(self, context):
            contribution = TRAINING.train(context)
            if self.buffers_move:
                dirty_buffers(context)
            return ClientUpdate(
                context.layout.change_since(context.parameters), contribution.metrics
            )

    moved, still = (
        replies_of(app_of(Quiet(move)), [1], asking(NUM_EXAMPLES))[0][0] for move in (True, False)
    )
    assert bits(moved) == bits(still)
    moved, still = (
        replies_of(app_of(Quiet(move)), [1], asking(NUM_EXAMPLES, buffers=True))[0][0]
        for move in (True, False)
    )
    assert bits(moved) != bits(still)


@settings(max_examples=30)
@given(st.text(st.characters(categories=["L", "N"]), min_size=12, max_size=40))
def test_no_word_of_an_error_reaches_the_server(text):
    @dataclass(frozen=True)
    class Unlucky:
        action: ClassVar[str] = "toy"

        def train(self, context):
            raise OutOfLuck(text) from ValueError(text)

    (reply,), failures = replies_of(app_of(Unlucky()), [1], asking(summed=True))
    assert reply.error.reason == "Exception"
    assert text not in repr(reply)
    assert text.encode() not in reply.deflate()
    assert text in failures[0].traceback


def test_a_message_without_an_instruction_is_refused():
    grid = InlineGrid(app_of(Neighbours()), CLIENTS)
    node = next(iter(grid.get_node_ids()))
    (reply,) = grid.send_and_receive([grid.create_message(RecordDict(), "train.toy", node, "1")])
    assert reply.error.reason == "ValueError"
    assert "the message carries no fedpriv instruction" in grid.take_failures()[0].traceback
