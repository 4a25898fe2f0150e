"""FedAvg-DP: DP-SGD and DP-Adam at the clients by hand, the mean, and what is booked."""

import json
import math

import numpy as np
import pytest
import torch
from toy_private import (
    SEED,
    Small,
    Watched,
    answers,
    data_of,
    federation,
    first_model,
    instruction,
    moved,
    numbers,
    reply_to,
    rows_of,
    sent_by,
    vector_of,
)

from fedpriv.clients.fedavg_dp import DPLocalTraining
from fedpriv.data.examples import Examples
from fedpriv.federation.messages import instruction_of
from fedpriv.privacy.accounting.accountants import epsilon
from fedpriv.privacy.accounting.event import ClientThenRecord
from fedpriv.privacy.mechanism import example_gaussian, provider_gaussian
from fedpriv.runtime.seeds import generator
from fedpriv.runtime.torch_state import seeded_model
from fedpriv.strategies.fedavg_dp import FedAvgDP
from fedpriv.training.loops import Optimizer
from fedpriv.training.per_example import PerExample

CLIP = 0.3
START = {"float": np.array([10, 20], np.float32)}


pytestmark = pytest.mark.usefixtures("in_own_folder")


def mechanism(sigma=1.5, examples=40, record_rate=0.4, **more):
    return example_gaussian(
        clip_norm=CLIP,
        examples=examples,
        noise_multiplier=sigma,
        record_rate=record_rate,
        **more,
    )


def half(name="sgd", lr=0.2):
    return DPLocalTraining(optimizer=Optimizer(name, lr=lr), per_example=PerExample("loop"))


def dp_training(columns, kind, lr, steps, sigma, rate, batch, client=0):
    """DP-SGD or DP-Adam by hand, in float64 but for the gradients: the change of the weights."""
    examples = Examples.of(columns)
    model = seeded_model(Small, SEED)
    parameters = list(model.parameters())
    weights = torch.cat([p.detach().reshape(-1) for p in parameters]).double()
    start = weights.clone()
    weights.requires_grad_(True)
    optimizer = kind([weights], lr=lr)
    coins = generator(SEED, "example sampling, attempt 0", 1, client)
    noise = generator(SEED, "privacy noise, attempt 0", 1, client)
    for _ in range(steps):
        torch.nn.utils.vector_to_parameters(weights.detach().float(), parameters)
        total = torch.zeros_like(start)
        for row in np.flatnonzero(coins.random(len(examples)) < rate):
            model.zero_grad()
            model.loss(examples.batch(np.array([row]))).backward()
            gradient = torch.cat([p.grad.reshape(-1) for p in parameters]).double()
            total += gradient * min(1.0, CLIP / gradient.norm().item())
        total += sigma * CLIP * torch.from_numpy(noise.standard_normal(len(total)))
        weights.grad = total / batch
        optimizer.step()
    return (weights.detach() - start).numpy()


@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize(
    ("name", "kind"), [("sgd", torch.optim.SGD), ("adam", torch.optim.Adam)], ids=["sgd", "adam"]
)
@pytest.mark.parametrize("sigma", [0.0, 1.5])
def test_one_client_is_dp_training_by_hand(name, kind, steps, sigma):
    columns = numbers(20, providers=np.zeros(20))
    strategy = FedAvgDP(mechanism(sigma, examples=25), steps=steps)
    lr = 0.2 if name == "sgd" else 0.01
    result = federation(strategy, half(name, lr), data_of(20)).run(rounds=1)
    expected = dp_training(columns, kind, lr, steps, sigma, 0.4, 10)
    np.testing.assert_allclose(vector_of(result) - first_model(), expected, atol=3e-5)
    if name == "sgd" or steps > 1:  # Adam's first step is lr · sign(g)
        wrong = dp_training(columns, kind, lr, steps, sigma + 0.1, 0.4, 10)
        assert np.abs(wrong - expected).max() > 1e-3


def test_three_clients_are_the_mean_of_three_by_hand():
    columns = numbers(15, providers=np.zeros(15))
    strategy = FedAvgDP(mechanism(1.5, examples=15), steps=2)
    result = federation(strategy, half(), data_of(4, 5, 6)).run(rounds=1)
    changes = []
    for client, rows in enumerate(rows_of(4, 5, 6)):
        own = {name: column[rows] for name, column in columns.items()}
        # The expected batch is .4 · 15 / 3 for each, whatever it holds.
        changes.append(dp_training(own, torch.optim.SGD, 0.2, 2, 1.5, 0.4, 2, client))
    expected = np.mean(changes, axis=0)
    np.testing.assert_allclose(vector_of(result) - first_model(), expected, atol=3e-5)


def test_the_papers_variant_divides_by_the_clients_own_number():
    columns = numbers(15, providers=np.zeros(15))
    strategy = FedAvgDP(mechanism(1.5, examples=15), variant="paper")
    messages, _ = answers(half(), columns, rows_of(5, 10), instruction(strategy, 2, 2))
    for client, (message, rows) in enumerate(zip(messages, rows_of(5, 10), strict=True)):
        own = {name: column[rows] for name, column in columns.items()}
        expected = dp_training(own, torch.optim.SGD, 0.2, 1, 1.5, 0.4, 0.4 * len(rows), client)
        np.testing.assert_allclose(message, expected, atol=3e-5)


def test_the_server_takes_the_mean_of_those_who_answered():
    strategy = FedAvgDP(mechanism())
    to = sent_by(strategy, START)
    replies = [
        reply_to(to[0], {"float": np.array([4, 2], np.float32)}, [0, 1]),
        reply_to(to[3], {"float": np.array([-1, 4], np.float32)}, [3]),
    ]
    assert moved(strategy, replies).tolist() == [11, 22]


def test_the_papers_server_weights_by_numbers_of_examples():
    strategy = FedAvgDP(mechanism(), variant="paper")
    to = sent_by(strategy, START)
    total = {"float": np.array([16, 8], np.float32)}
    one = reply_to(to[0], total, [0, 1], num_examples=[3, 5])
    assert moved(strategy, [one]).tolist() == [12, 21]


def test_clients_without_examples_leave_the_papers_model_as_it_was():
    strategy = FedAvgDP(mechanism(), variant="paper")
    to = sent_by(strategy, START)
    nothing = reply_to(to[0], {"float": np.zeros(2, np.float32)}, [0, 1], num_examples=[0, 0])
    assert moved(strategy, [nothing]).tolist() == [10, 20]


def test_a_round_of_no_clients_leaves_the_model_as_it_was():
    strategy = FedAvgDP(mechanism(client_rate=1e-9, client_sampling="poisson"))
    assert sent_by(strategy, START) == []
    assert moved(strategy, []).tobytes() == START["float"].tobytes()


@pytest.mark.parametrize(("rate", "clients", "batch"), [(1.0, 4, 4.0), (0.5, 8, 2.0)])
def test_clients_are_told_their_steps_and_a_public_batch(rate, clients, batch):
    """q · |D| / K = .4 · 40 / K, whatever share of the clients is drawn."""
    strategy = FedAvgDP(mechanism(client_rate=rate), steps=7)
    messages = sent_by(strategy, START, clients=clients)
    assert len(messages) == rate * clients
    for message in messages:
        settings = instruction_of(message).settings
        assert settings["steps"] == 7
        assert settings["batch"] == pytest.approx(batch)
        assert settings["shares"] == 1


def test_the_steps_of_a_run_are_booked_and_a_dropout_takes_no_noise_away():
    strategy = FedAvgDP(mechanism(2.0, record_rate=0.25), steps=3)
    made = federation(strategy, half(), data_of(4, 5, 6))
    grid = Watched(made, {(2, 0, 1): "train"})
    result = made.run(rounds=3, grid=grid)
    assert [record["accepted"] for record in result.metrics] == [True] * 3
    told = json.loads((result.run_dir / "ledger.json").read_text("utf-8"))
    assert [event["survivors"] for event in told["events"]] == [[0, 1, 2], [0, 2], [0, 1, 2]]
    assert {(event["steps"], event["share"]) for event in told["events"]} == {(3, 2.0)}
    # Nine steps for clients 0 and 2, which answered thrice: the same ε for every observer.
    epsilons = [told["views"][view]["pld"] for view in told["views"]]
    assert len(set(epsilons)) == 1
    assert epsilons[0] == pytest.approx(epsilon([(ClientThenRecord(1, 0.25, 2.0), 9)], 1e-5))


def test_noise_differs_from_step_to_step():
    """Three noisy steps of SGD on nothing: their sum, and not three times the first."""
    nobody = numbers(1, providers=[0]), [np.empty(0, np.int64)]
    one, three = (
        answers(half(), *nobody, instruction(FedAvgDP(mechanism(), steps=s), 1, 1))[0][0]
        for s in (1, 3)
    )
    assert not np.allclose(three, 3 * one, rtol=0.1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"steps": 0}, "steps=0: expected at least 1"),
        ({"threshold": 0.5}, "threshold=0.5: FedAvg-DP has none, each client's noise is complete"),
        (
            {"mechanism": provider_gaussian(clip_norm=1, providers=2, noise_multiplier=1)},
            "FedAvgDP clips one example, the mechanism protects one provider",
        ),
    ],
)
def test_settings_that_do_not_fit_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        FedAvgDP(**({"mechanism": mechanism()} | arguments))


def test_more_clients_have_smaller_batches_under_the_same_noise():
    """Why it degrades (PrIeD-KIE, Fig. 1): a step's noise grows with the number of clients."""
    nobody = numbers(1, providers=[0])
    spreads = []
    for clients in (1, 4):
        strategy = FedAvgDP(mechanism(1.5))
        asked = instruction(strategy, clients, clients)
        messages, _ = answers(half(), nobody, [np.empty(0, np.int64)] * clients, asked)
        spreads.append(np.linalg.norm(messages[0]))
    assert spreads[1] == pytest.approx(4 * spreads[0], rel=1e-4)
    assert not math.isclose(spreads[1], 2 * spreads[0], rel_tol=0.1)
