"""FeAm-DP against a standalone DP-Adam written out in plain torch, and against sums by hand."""

import json
import math

import numpy as np
import pytest
import torch
from host_vectors import to_vectors
from toy_private import (
    SEED,
    Small,
    Watched,
    Wide,
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
    variance_is,
    vector_of,
)

from fedpriv.clients.feam_dp import ExampleGradients
from fedpriv.data.examples import Examples
from fedpriv.federation.messages import UPDATE, instruction_of
from fedpriv.federation.secagg.masking import Masking
from fedpriv.privacy.mechanism import example_gaussian, provider_gaussian
from fedpriv.runtime.seeds import generator
from fedpriv.runtime.torch_state import seeded_model
from fedpriv.strategies.feam_dp import FeAmDP
from fedpriv.training.per_example import PerExample

LOOP = ExampleGradients(PerExample("loop"))
CLIP = 0.3


pytestmark = pytest.mark.usefixtures("in_own_folder", "budget_untold")


def mechanism(sigma=1.5, examples=30, record_rate=0.4, clip_norm=CLIP, **more):
    return example_gaussian(
        clip_norm=clip_norm,
        examples=examples,
        noise_multiplier=sigma,
        record_rate=record_rate,
        **more,
    )


def clipped(model, example):
    """One example's clipped gradient, a tensor per parameter, and the factor, rounded down."""
    model.zero_grad(set_to_none=True)
    model.loss(example).backward()
    gradients = [p.grad for p in model.parameters()]
    norm = math.sqrt(sum(g.double().square().sum().item() for g in gradients))
    factor = 1.0 if norm <= CLIP else CLIP / norm * (1 - 4 * 2.0**-23)
    return gradients, factor


def drawn(count, rate, round, client=0):
    """The Poisson coins of a client."""
    coins = generator(SEED, "example sampling, attempt 0", round, client).random(count)
    return np.flatnonzero(coins < rate)


def clipped_sum(model, examples, rows):
    """Σ clip(g_i) as one flat float64 vector."""
    total = np.zeros(sum(p.numel() for p in model.parameters()))
    for row in rows:
        gradients, factor = clipped(model, examples.batch(np.array([row])))
        total += factor * torch.cat([g.reshape(-1) for g in gradients]).double().numpy()
    return total


def dp_adam(columns, rounds, sigma, rate, lr):
    """Standalone DP-Adam (PrIeD-KIE, Eq. 1): one machine, plain torch, Adam per tensor."""
    examples = Examples.of(columns)
    model = seeded_model(Small, SEED)
    parameters = list(model.parameters())
    adam = torch.optim.Adam(parameters, lr=lr)
    for round in range(1, rounds + 1):
        totals = [torch.zeros_like(p).reshape(-1) for p in parameters]
        for row in drawn(len(examples), rate, round):
            gradients, factor = clipped(model, examples.batch(np.array([row])))
            for total, gradient in zip(totals, gradients, strict=True):
                total.add_(gradient.reshape(-1), alpha=factor)
        noise = generator(SEED, "privacy noise, attempt 0", round, 0)
        for parameter, total in zip(parameters, totals, strict=True):
            z = sigma * CLIP * torch.from_numpy(noise.standard_normal(total.numel()))
            noisy = (total.double() + z).float() / (rate * len(examples))
            parameter.grad = noisy.view(parameter.shape)
        adam.step()
    return torch.cat([p.detach().reshape(-1) for p in parameters]).numpy()


@pytest.mark.parametrize(("sigma", "rate"), [(1.5, 0.4), (0.0, 1.0), (4.0, 0.02)])
def test_one_client_is_standalone_dp_adam_bit_for_bit(sigma, rate):
    """At rate .02 some batches are empty, and send noise like the others."""
    result = federation(FeAmDP(mechanism(sigma, record_rate=rate), lr=0.02), LOOP, data_of(30)).run(
        rounds=8
    )
    expected = dp_adam(numbers(30, providers=np.zeros(30)), 8, sigma, rate, 0.02)
    assert vector_of(result).astype(np.float32).tobytes() == expected.tobytes()
    assert np.linalg.norm(vector_of(result) - first_model()) > 0.1
    if rate == 0.02:
        assert any(drawn(30, rate, round).size == 0 for round in range(1, 9))
    if rate == 0.4:
        other = dp_adam(numbers(30, providers=np.zeros(30)), 8, sigma * (1 + 1e-6), rate, 0.02)
        assert other.tobytes() != expected.tobytes()


def test_clients_of_any_number_follow_standalone_dp_adam_without_noise_and_sampling():
    """Eq. 4: the examples' gradients are the same, wherever they lie."""
    columns = numbers(24, providers=np.zeros(24))
    expected = dp_adam(columns, 5, 0.0, 1.0, 0.02)
    for sizes in ([24], [12, 12], [3, 1, 20], [24, 0], [6] * 4):
        data = data_of(*sizes)
        strategy = FeAmDP(mechanism(0, examples=24, record_rate=1.0), lr=0.02)
        result = federation(strategy, ExampleGradients(), data).run(rounds=5)
        np.testing.assert_allclose(vector_of(result), expected, atol=2e-4)
    assert np.abs(expected - first_model()).max() > 0.05


# The state


def run(strategy, rounds, **resume):
    return federation(strategy, LOOP, data_of(9, 12, 9)).run(rounds=rounds, **resume)


def strategy_of(kind=FeAmDP):
    return kind(mechanism(record_rate=0.5), lr=0.05)


def test_a_run_that_is_resumed_ends_in_the_same_bits():
    whole = run(strategy_of(), 5)
    part = run(strategy_of(), 2)
    resumed = run(strategy_of(), 5, run_dir=part.run_dir, resume=True)
    assert vector_of(resumed).tobytes() == vector_of(whole).tobytes()


def test_without_the_moments_it_would_end_elsewhere():
    class Forgetful(FeAmDP):
        def load_state(self, state):
            super().load_state({})

    whole = run(strategy_of(), 5)
    part = run(strategy_of(), 2)
    resumed = run(strategy_of(Forgetful), 5, run_dir=part.run_dir, resume=True)
    assert vector_of(resumed).tobytes() != vector_of(whole).tobytes()


def test_a_second_run_of_one_federation_starts_afresh():
    made = federation(strategy_of(), LOOP, data_of(9, 12, 9))
    first, second = (vector_of(made.run(rounds=3, run_dir=name)) for name in ("one", "two"))
    assert first.tobytes() == second.tobytes()


def test_a_round_that_does_not_count_moves_no_moment():
    strategy = strategy_of()
    made = federation(strategy, LOOP, data_of(9, 12, 9), max_refused=0)
    grid = Watched(made, {(2, 0, 1): "train"})
    result = made.run(rounds=2, grid=grid)
    assert [record["accepted"] for record in result.metrics] == [True, False]
    assert int(strategy.state()["step"]) == 1
    once = run(strategy_of(), 1)
    assert vector_of(result).tobytes() == vector_of(once).tobytes()


def test_saved_moments_are_those_of_adam_by_hand():
    strategy = FeAmDP(mechanism(), lr=0.1)
    theta = np.array([1.0, -2.0], np.float32)
    first, second = np.array([0.5, 3.0], np.float32), np.array([-1.0, 0.25], np.float32)
    (to,) = sent_by(strategy, {"float": theta}, clients=1)
    one = moved(strategy, [reply_to(to, {"float": first}, [0])])
    # Bias-corrected, Adam's first step is lr · sign(g).
    np.testing.assert_allclose(one, theta - 0.1 * np.sign(first), rtol=1e-6)
    (to,) = sent_by(strategy, {"float": one}, clients=1, round=2)
    two = moved(strategy, [reply_to(to, {"float": second}, [0])], 2)
    m = 0.9 * 0.1 * first + 0.1 * second
    v = 0.999 * 0.001 * first**2 + 0.001 * second**2
    step = (m / (1 - 0.9**2)) / (np.sqrt(v / (1 - 0.999**2)) + 1e-8)
    np.testing.assert_allclose(two, one - 0.1 * step, rtol=1e-6)
    state = strategy.state()
    np.testing.assert_allclose(state["exp_avg"], m, rtol=1e-6)
    np.testing.assert_allclose(state["exp_avg_sq"], v, rtol=1e-6)
    assert state["step"] == 2


@pytest.mark.parametrize("what", ["uncovered", "masked"])
def test_a_ledger_does_not_forget_how_the_first_rounds_were_run(what):
    """Resumed as sound and behind masks: the first round still told n_k, and every update."""
    data = data_of(9, 12, 9)
    first = federation(FeAmDP(mechanism(), variant="paper"), LOOP, data).run(rounds=1)
    made = federation(FeAmDP(mechanism()), LOOP, data, masking=Masking())
    try:
        made.run(rounds=2, run_dir=first.run_dir, resume=True)
    except ValueError:
        return  # to refuse it would do, too
    told = json.loads((first.run_dir / "ledger.json").read_text("utf-8"))
    assert [event["round"] for event in told["events"]] == [1, 2]
    assert told["uncovered"] if what == "uncovered" else not told["masked"]


# What the clients send


def gradient_of(strategy, replies):
    """The g that Adam was given: a tenth of it is the first moment after one step."""
    moved(strategy, replies)
    return strategy.state()["exp_avg"].astype(np.float64) * 10


SIZES = 5, 14, 1, 20
COLUMNS = numbers(40, providers=np.zeros(40), seed=3)


def test_sound_unequal_clients_are_one_sum_over_a_public_constant():
    strategy = FeAmDP(mechanism(0, examples=100, record_rate=0.5))
    messages, _ = answers(LOOP, COLUMNS, rows_of(*SIZES), instruction(strategy, 4, 4))
    model, examples = seeded_model(Small, SEED), Examples.of(COLUMNS)
    parts = [
        clipped_sum(model, examples, rows[drawn(len(rows), 0.5, 1, client)])
        for client, rows in enumerate(rows_of(*SIZES))
    ]
    for message, part in zip(messages, parts, strict=True):
        np.testing.assert_allclose(message, part / 50, atol=1e-7)
    start = first_model().astype(np.float32)
    to = sent_by(strategy, {"float": start})
    total = {"float": np.sum(messages, axis=0)}
    gradient = gradient_of(strategy, [reply_to(to[0], total, [0, 1, 2, 3])])
    np.testing.assert_allclose(gradient, np.sum(parts, axis=0) / 50, atol=1e-6)


def test_the_papers_variant_weights_the_means_over_drawn_batches_by_sizes():
    strategy = FeAmDP(mechanism(0, examples=100, record_rate=0.5), variant="paper")
    model, examples = seeded_model(Small, SEED), Examples.of(COLUMNS)
    batches = [
        rows[drawn(len(rows), 0.5, 1, client)] for client, rows in enumerate(rows_of(*SIZES))
    ]
    means = [clipped_sum(model, examples, batch) / max(1, len(batch)) for batch in batches]
    asked = instruction(strategy, 4, 4)
    assert asked.weight == "num-examples"
    messages, _ = answers(LOOP, COLUMNS, rows_of(*SIZES), asked)
    for message, mean in zip(messages, means, strict=True):
        np.testing.assert_allclose(message, mean, atol=1e-6)

    # And in a whole round, by the sums that the grid makes.
    strategy = FeAmDP(mechanism(0, examples=100, record_rate=0.5), variant="paper")
    federation(strategy, LOOP, data_of(*SIZES, seed=3)).run(rounds=1)
    gradient = strategy.state()["exp_avg"].astype(np.float64) * 10
    expected = sum(n / 40 * mean for n, mean in zip(SIZES, means, strict=True))
    np.testing.assert_allclose(gradient, expected, atol=1e-6)
    unweighted = np.mean(means, axis=0)
    assert np.abs(expected - unweighted).max() > 1e-3


def test_one_example_more_moves_the_sum_by_at_most_the_clip_norm():
    strategy = FeAmDP(mechanism(0, examples=2.5, record_rate=1.0, clip_norm=0.01))
    asked = instruction(strategy, 1, 1)
    (without,), _ = answers(LOOP, COLUMNS, rows_of(7), asked)
    (with_it,), _ = answers(LOOP, COLUMNS, rows_of(8), asked)
    change = np.linalg.norm((with_it - without).astype(float)) * 2.5
    assert 0.0099 < change <= 0.01 * (1 + 1e-5)


@pytest.mark.parametrize("variant", ["sound", "paper"])
def test_an_empty_batch_sends_its_noise(variant):
    strategy = FeAmDP(mechanism(2.0, examples=10, record_rate=1e-9 + 0.1), variant=variant)
    nobody = numbers(1, providers=[0]), [np.empty(0, np.int64)]
    (message,), _ = answers(LOOP, *nobody, instruction(strategy, 4, 4), Wide)
    # Divided by the expected batch of 1, or by the drawn one, of which 1 is the least.
    assert variance_is(message, (2 * CLIP) ** 2 / 4)
    assert not variance_is(message * math.sqrt(2), (2 * CLIP) ** 2 / 4)


def test_the_noise_of_all_clients_together_is_that_of_one():
    nobody = numbers(1, providers=[0])
    for clients in (1, 2, 8):
        strategy = FeAmDP(mechanism(2.0, examples=50, record_rate=0.1))
        asked = instruction(strategy, clients, clients)
        rows = [np.empty(0, np.int64)] * clients
        messages, _ = answers(LOOP, *[nobody, rows], asked, Wide)
        total = np.sum(messages, axis=0, dtype=np.float64)
        assert variance_is(total, (2 * CLIP / 5) ** 2)
        assert not variance_is(total / math.sqrt(2), (2 * CLIP / 5) ** 2)


def test_an_example_whose_gradient_is_not_finite_counts_as_nothing_and_is_noted():
    columns = {name: column[:6].copy() for name, column in COLUMNS.items()}
    columns["x"][2, 1] = np.inf
    strategy = FeAmDP(mechanism(0, examples=6, record_rate=1.0))
    asked = instruction(strategy, 1, 1)
    (message,), (note,) = answers(LOOP, columns, rows_of(6), asked)
    rest = {name: np.delete(column, 2, axis=0) for name, column in columns.items()}
    (expected,), none = answers(LOOP, rest, rows_of(5), asked)
    assert message.tobytes() == expected.tobytes()
    assert none == []
    assert (note.kind, note.reason) == ("noted", "1 gradients are not finite, counted as 0")


def test_vmap_and_the_loop_send_the_same_up_to_rounding():
    strategy = FeAmDP(mechanism(1.0, examples=40))
    asked = instruction(strategy, 4, 4)
    loop, vmap = (
        answers(ExampleGradients(PerExample(way)), COLUMNS, rows_of(*SIZES), asked)[0]
        for way in ("loop", "vmap")
    )
    np.testing.assert_allclose(loop, vmap, atol=1e-6)


# The round


def test_a_fixed_number_of_clients_is_drawn_each_round():
    strategy = FeAmDP(mechanism(client_rate=0.5))
    start = {"float": np.zeros(2, np.float32)}
    cohorts = [
        tuple(m.metadata.dst_node_id for m in sent_by(strategy, start, clients=8, round=r))
        for r in range(1, 41)
    ]
    assert {len(set(cohort)) for cohort in cohorts} == {4}
    assert len(set(cohorts)) > 20
    for message in sent_by(strategy, start, clients=8):
        assert instruction_of(message).settings["shares"] == 4


@pytest.mark.parametrize(("variant", "metrics"), [("sound", ()), ("paper", ("num-examples",))])
def test_only_the_papers_variant_asks_for_numbers_of_examples(variant, metrics):
    strategy = FeAmDP(mechanism(), variant=variant)
    for message in sent_by(strategy, {"float": np.zeros(2, np.float32)}):
        asked = instruction_of(message)
        assert asked.metrics == metrics
        assert asked.weight == "".join(metrics)
    assert bool(strategy.uncovered()) is (variant == "paper")


def test_a_poisson_round_of_nobody_is_a_step_on_noise_alone():
    made = mechanism(2.0, examples=1e9, client_rate=1e-9, client_sampling="poisson")
    strategy = FeAmDP(made)
    assert made.normaliser == pytest.approx(0.4)
    assert sent_by(strategy, {"float": np.zeros(100_000, np.float32)}) == []
    assert variance_is(gradient_of(strategy, []), (2 * CLIP / 0.4) ** 2)


def test_clients_without_examples_leave_a_finite_model():
    strategy = FeAmDP(mechanism(), variant="paper")
    to = sent_by(strategy, {"float": np.array([1, 2], np.float32)}, clients=2)
    nothing = reply_to(to[0], {"float": np.zeros(2, np.float32)}, [0, 1], num_examples=[0, 0])
    assert moved(strategy, [nothing]).tolist() == [1, 2]


def test_one_message_is_of_the_parameters_dtype_and_length():
    made = federation(FeAmDP(mechanism()), LOOP, data_of(9, 12))
    grid = Watched(made)
    made.run(rounds=1, grid=grid)
    for reply in grid.replied:
        (vector,) = to_vectors(reply.content[UPDATE]).values()
        assert (vector.dtype, vector.shape) == (np.float32, first_model().shape)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lr": 0.0}, "lr=0.0: expected a positive number"),
        ({"lr": math.nan}, "lr=nan: expected a positive number"),
        ({"weight_decay": -1.0}, "weight_decay=-1.0: expected 0 or more"),
        (
            {"mechanism": provider_gaussian(clip_norm=1, providers=2, noise_multiplier=1)},
            "FeAmDP clips one example, the mechanism protects one provider: take example_gaussian",
        ),
    ],
)
def test_settings_that_do_not_fit_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        FeAmDP(**({"mechanism": mechanism()} | arguments))
