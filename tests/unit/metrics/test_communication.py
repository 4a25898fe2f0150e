"""Bytes: by client and round as they were sent, and as they are to be expected of a model."""

import json

import numpy as np
import pytest
import torch
from flwr.app import RecordDict
from host_vectors import read
from torch import nn
from toy import Net, federation, norm_net

from fedpriv.federation.messages import to_array_record
from fedpriv.federation.round_statistics import RoundStatistics
from fedpriv.metrics.communication import communication, model_bytes
from fedpriv.privacy.sampling import FixedSize
from fedpriv.runtime.vectors import ParameterLayout
from fedpriv.strategies.fedavg import FedAvg


class Tied(nn.Module):
    """10 values under two names, 3 frozen ones, 6 of half precision."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(5, 2)
        self.out = nn.Linear(2, 5, bias=False)
        self.out.weight = self.embedding.weight
        self.frozen = nn.Parameter(torch.zeros(3), requires_grad=False)
        self.small = nn.Parameter(torch.zeros(6, dtype=torch.float16))
        self.register_buffer("buffer", torch.zeros(100))


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


# To be expected


def test_what_travels_is_each_trainable_tensor_once_in_single_precision():
    assert model_bytes(Tied()) == (10 + 6) * 4
    assert model_bytes(Tied()) == read(Tied())["float"].nbytes
    assert model_bytes(Tied().double()) == (10 + 6) * 8


def test_the_baseline_counts_a_tied_tensor_once_for_each_name():
    assert model_bytes(Tied(), tied_copies=True) == 2 * 10 * 4 + 6 * 2


def test_a_model_on_the_meta_device_is_counted_without_memory():
    with torch.device("meta"):
        model = nn.Sequential(*(nn.Linear(60_000, 60_000, bias=False) for _ in range(3)))
    model[0].weight.requires_grad_(False)
    assert model_bytes(model) == model_bytes(model, tied_copies=True) == 2 * 60_000**2 * 4


def test_a_whole_training_goes_both_ways_for_every_client_of_every_round():
    assert communication(Tied(), rounds=10, clients=3) == 64 * 10 * 3 * 2
    assert communication(Tied(), 10, 3, tied_copies=True) == 92 * 10 * 3 * 2
    assert communication(Tied(), rounds=0, clients=3) == 0


def test_the_published_total_is_that_of_the_values_with_tied_copies():
    """PFL-DocVQA, Table 6: 44.66 "GB"; 299 682 048 values, each tensor once 225 659 136."""
    with torch.device("meta"):
        shared = nn.Embedding(32_128, 768)  # T5's: 3 copies more than fedpriv sends
        model = nn.ModuleList([shared, shared, shared, shared])
        rest = 225_659_136 - 32_128 * 768
        model.rest = nn.Parameter(torch.empty(rest))
    assert communication(model, 10, 2, tied_copies=True) == 299_682_048 * 4 * 40
    assert communication(model, 10, 2, tied_copies=True) / 2**30 == pytest.approx(44.656, abs=5e-4)
    assert communication(model, 10, 2) / 2**30 == pytest.approx(33.63, abs=5e-3)


@pytest.mark.parametrize(("rounds", "clients", "named"), [(-1, 2, "rounds=-1"), (1, -2, "clients")])
def test_negative_numbers_are_refused(rounds, clients, named):
    with pytest.raises(ValueError, match=f"^{named}.*: expected 0 or more"):
        communication(Tied(), rounds, clients)


@pytest.mark.parametrize("tied_copies", [False, True])
def test_a_frozen_model_sends_nothing_and_that_is_an_error(tied_copies):
    with pytest.raises(ValueError, match="no trainable parameter"):
        model_bytes(Tied().requires_grad_(False), tied_copies=tied_copies)


# As sent


def test_a_round_counts_what_the_model_says(tmp_path):
    result = federation(strategy=FedAvg(sampling=FixedSize(count=3))).run(4)
    one = model_bytes(Net())
    cohorts = set()
    for record in result.metrics:
        assert record["bytes_down"] == record["bytes_up"] == 3 * one
        assert list(record["bytes_by_client"].values()) == [[one, one]] * 3
        cohorts.add(tuple(record["bytes_by_client"]))
    assert len(cohorts) > 1
    total = sum(record["bytes_down"] + record["bytes_up"] for record in result.metrics)
    assert total == communication(Net(), rounds=4, clients=3)
    written = [json.loads(line) for line in (result.run_dir / "metrics.jsonl").open()]
    assert written == result.metrics


@pytest.mark.parametrize("chunk_size", [1, 3, 8])
def test_a_client_that_fails_has_received_and_not_sent_however_sums_are_cut(chunk_size):
    record = federation({"1/2": "raise"}, chunk_size=chunk_size).run(1).metrics[0]
    one = 58 * 4
    assert record["bytes_by_client"] == {
        str(client): [one, 0 if client == 2 else one] for client in range(8)
    }
    assert (record["bytes_down"], record["bytes_up"]) == (8 * one, 7 * one)


def test_buffers_that_travel_are_counted():
    record = federation(model=norm_net, strategy=FedAvg(buffers=True)).run(1).metrics[0]
    values = ParameterLayout(norm_net(), buffers=True)
    assert values.bytes == (58 + 16 + 16) * 4 + 8
    assert record["bytes_by_client"]["0"] == [values.bytes, values.bytes]
    assert values.bytes == sum(vector.nbytes for vector in values.read().values())


def test_two_messages_to_a_client_add_up():
    class Meta:
        dst_node_id = 7

    class Message:
        metadata = Meta()
        content = RecordDict({"x": to_array_record({"float": np.zeros(5, np.float32)})})

        def has_error(self):
            return False

    statistics = RoundStatistics(1, [3, 7])
    list(statistics.sending([Message(), Message()]))
    assert statistics.traffic() == {
        "bytes_down": 40,
        "bytes_up": 0,
        "bytes_by_client": {"1": [40, 0]},
    }
