"""What `fedpriv/federation/grids/_flwr.py` and its users assume of Flower beyond its public names.

When one of these fails after an update of Flower, `_flwr.py` is the file to mend.
"""

import importlib.metadata
import inspect
import tomllib
import urllib.request
from pathlib import Path

import flwr.supercore.telemetry as telemetry
import numpy as np
import pytest
from flwr.app import ArrayRecord, Error, Message, RecordDict
from flwr.app.message.array import Array
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode, SType
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy as FlowerStrategy
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import (
    inflatable_class_registry,
    validate_object_content,
)
from flwr.supercore.task_identity import TaskIdentity
from packaging.requirements import Requirement

from fedpriv.federation.grids._flwr import (
    NUMPY_STYPE,
    SERVER_NODE_ID,
    VectorArray,
    enter_run,
    readdressed,
    set_message_id,
    timeless,
)
from fedpriv.federation.grids.base import ClientGrid
from fedpriv.federation.grids.inline import CLIENT_FAILED
from fedpriv.federation.strategy import Strategy

PYPROJECT = Path(__file__).parents[4] / "pyproject.toml"


@pytest.fixture(autouse=True)
def identity(monkeypatch):
    """Every test starts as the server of run 1 and leaves the process as it was."""
    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, getattr(TaskIdentity, name))
    enter_run(1)


def message():
    return Message(RecordDict(), 5, "train", group_id="3")


def test_the_installed_flower_is_one_that_pyproject_allows():
    dependencies = tomllib.loads(PYPROJECT.read_text("utf-8"))["project"]["dependencies"]
    (pin,) = (r for r in map(Requirement, dependencies) if r.name == "flwr")
    assert pin.specifier.contains(importlib.metadata.version("flwr"))
    assert not pin.specifier.contains("2.0")


# Who we are


@pytest.mark.parametrize("part", ["_task_id", "_run_id", "_node_id"])
def test_a_message_needs_every_part_of_the_task_identity(part, monkeypatch):
    message()
    monkeypatch.setattr(TaskIdentity, part, None)
    with pytest.raises(RuntimeError, match="is not set"):
        message()


def test_entering_a_run_makes_this_process_its_server():
    run = enter_run(42)
    assert run.run_id == 42
    assert message().metadata.run_id == 42
    assert message().metadata.src_node_id == SERVER_NODE_ID


# Messages


def test_a_message_is_born_without_an_id_and_keeps_the_one_it_gets():
    sent = message()
    assert sent.metadata.message_id == ""
    set_message_id(sent, "message-7")
    assert sent.metadata.message_id == "message-7"


def test_a_reply_goes_back_and_names_what_it_answers():
    sent = message()
    set_message_id(sent, "message-7")
    reply = Message(RecordDict(), reply_to=sent)
    assert reply.metadata.reply_to_message_id == "message-7"
    assert (reply.metadata.src_node_id, reply.metadata.dst_node_id) == (5, SERVER_NODE_ID)
    assert (reply.metadata.group_id, reply.metadata.message_type) == ("3", "train")


def test_the_times_of_a_reply_are_metadata_that_can_be_set():
    sent = message()
    reply = Message(RecordDict(), reply_to=sent)
    assert reply.metadata.created_at > sent.metadata.created_at
    assert reply.metadata.ttl < sent.metadata.ttl
    alone = timeless(reply, sent)
    assert alone is reply
    assert (reply.metadata.created_at, reply.metadata.ttl) == (
        sent.metadata.created_at,
        sent.metadata.ttl,
    )
    # Nothing else in the metadata is a time.
    kinds = {name for name, value in vars(reply.metadata).items() if isinstance(value, float)}
    assert kinds <= {"_created_at", "_ttl"}


def test_another_content_takes_over_the_metadata():
    reply = Message(RecordDict(), reply_to=message())
    other = RecordDict({"arrays": ArrayRecord()})
    again = readdressed(other, reply)
    assert again.metadata is reply.metadata
    assert again.content is other
    assert not again.has_error()


def test_an_error_reply_has_an_error_and_no_content():
    reply = Message(Error(code=CLIENT_FAILED, reason="OutOfLuck"), reply_to=message())
    assert reply.has_error()
    assert not reply.has_content()
    assert CLIENT_FAILED == ErrorCode.CLIENT_APP_RAISED_EXCEPTION


def test_an_action_is_routed_by_its_name():
    app = ClientApp()

    @app.train("local_training")
    def train(message, context):
        return "served"

    assert app(Message(RecordDict(), 5, "train.local_training"), None) == "served"
    with pytest.raises(ValueError, match="other"):
        app(Message(RecordDict(), 5, "train.other"), None)


# Arrays


def test_flower_takes_a_vector_array_for_an_array_and_keeps_it():
    array = VectorArray(np.arange(3.0))
    assert isinstance(array, Array)
    record = ArrayRecord()
    record["float"] = array
    assert record["float"] is array
    assert RecordDict({"update": record}).array_records["update"]["float"] is array


def test_the_wire_name_of_a_vector_array_is_in_flowers_registry():
    assert inflatable_class_registry[VectorArray.__qualname__] is Array
    record = ArrayRecord()
    record["float"] = VectorArray(np.arange(3.0))
    for part in get_all_nested_objects(record).values():
        validate_object_content(part.deflate())


def test_a_vector_array_describes_itself_as_flowers_own_does():
    vector = np.arange(6, dtype=np.float32).reshape(2, 3)
    ours, theirs = VectorArray(vector), Array(vector)
    for name in ("dtype", "shape", "stype", "data", "object_id"):
        assert getattr(ours, name) == getattr(theirs, name)
    assert NUMPY_STYPE == SType.NUMPY
    assert np.shares_memory(ours.numpy(), vector)
    assert not ours.numpy().flags.writeable


# Interfaces


def names(method):
    return [(p.name, p.kind, p.default) for p in inspect.signature(method).parameters.values()]


def test_our_grids_have_every_method_of_flowers_grid_with_its_parameters():
    assert Grid.__abstractmethods__
    for name in Grid.__abstractmethods__:
        ours, theirs = inspect.getattr_static(ClientGrid, name), inspect.getattr_static(Grid, name)
        assert not getattr(ours, "__isabstractmethod__", False)
        assert type(ours) is type(theirs)
        if inspect.isfunction(theirs):
            assert names(ours) == names(theirs)


def test_our_strategies_have_every_method_of_flowers_strategy_with_its_parameters():
    assert Strategy.__abstractmethods__ == {"configure_train", "aggregate_train"}
    for name in FlowerStrategy.__abstractmethods__:
        assert names(getattr(Strategy, name)) == names(getattr(FlowerStrategy, name))


# Telemetry


@pytest.fixture
def requests(monkeypatch):
    """What telemetry would have sent."""
    sent = []

    def urlopen(request, **_):
        sent.append(request.full_url)
        raise urllib.error.URLError("no network in tests")

    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    # So that no identity file is made in the home folder.
    monkeypatch.setattr(telemetry, "state", dict.fromkeys(("source", "cluster", "partner"), "x"))
    return sent


def test_telemetry_sends_nothing(requests):
    assert telemetry.event(telemetry.EventType.PING).result(timeout=10) == "disabled"
    assert requests == []


def test_it_is_our_switch_that_keeps_telemetry_silent(requests, monkeypatch):
    monkeypatch.setattr(telemetry, "FLWR_TELEMETRY_ENABLED", "1")
    telemetry.event(telemetry.EventType.PING).result(timeout=10)
    assert requests == [telemetry.TELEMETRY_EVENTS_URL]
