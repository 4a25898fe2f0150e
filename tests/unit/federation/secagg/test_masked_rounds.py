"""Rounds behind masks: the plain run's model, whoever drops out where, and nothing else."""

import itertools
import json

import numpy as np
import pytest
from host_vectors import encode, read, to_vectors
from toy_private import (
    Double,
    Small,
    Watched,
    federation,
    first_model,
    provider_data,
    vector_of,
)

from fedpriv.clients.feam_dp import ExampleGradients
from fedpriv.clients.fedavg import LocalTraining
from fedpriv.clients.fl_provider_dp import ProviderUpdates
from fedpriv.federation.loop import Unworkable
from fedpriv.federation.messages import UPDATE
from fedpriv.federation.round_statistics import TooFewClients
from fedpriv.federation.secagg.masking import Masking
from fedpriv.privacy.ledger import Ledger
from fedpriv.privacy.mechanism import example_gaussian, provider_gaussian
from fedpriv.report.build import write_report
from fedpriv.runtime.progress import Progress
from fedpriv.strategies.feam_dp import FeAmDP
from fedpriv.strategies.fedavg import FedAvg
from fedpriv.strategies.fedavg_dp import FedAvgDP
from fedpriv.strategies.fl_provider_dp import FLProviderDP
from fedpriv.training.loops import Optimizer

CLIENTS = 5
SGD = Optimizer("sgd", lr=0.3)
STAGES = ["advertise", "share", "train", "reveal"]
MASKED = Masking(threshold=0.6)
EXAMPLES = example_gaussian(clip_norm=1, examples=9, noise_multiplier=1)


pytestmark = pytest.mark.usefixtures("in_own_folder", "budget_untold")


def strategy(threshold=0.6, rate=1.0, sigma=0.2):
    mechanism = provider_gaussian(
        clip_norm=0.5,
        providers=2,
        noise_multiplier=sigma,
        client_rate=rate,
        client_sampling="fixed",
    )
    return FLProviderDP(mechanism, threshold=threshold)


def make(masking, model=Double, parts=None, **settings):
    parts = parts or (strategy(), ProviderUpdates(steps=2, optimizer=SGD))
    return federation(*parts, provider_data(CLIENTS, 2), model, masking=masking, **settings)


def play(masking, faults=None, rounds=1, **settings):
    """Returns the result, the grid, and the federation."""
    made = make(masking, **settings)
    grid = Watched(made, faults)
    return made.run(rounds=rounds, grid=grid), grid, made


def events(result):
    return json.loads((result.run_dir / "ledger.json").read_text("utf-8"))["events"]


def start():
    return first_model(Double)


def sum_error(ring):
    """How far rounding may move a coordinate of the decoded sum."""
    return ring.clients * ring.step / 2


def assert_same_model(masked, plain, made, answered=CLIENTS, factor=1.0):
    """Equal up to the stated rounding of the sum, divided by those who answered."""
    off = np.abs(vector_of(masked) - vector_of(plain)).max()
    allowed = sum_error(made.algorithm.ring(CLIENTS, start().size)) / answered * factor
    assert off <= allowed + 1e-14
    assert off > allowed / 1e4  # it is rounding that one sees, not two plain runs
    assert np.linalg.norm(vector_of(plain) - start()) > 1e5 * allowed


# What the bound cuts off


def test_what_the_bound_cuts_off_is_counted_on_each_client_and_told_once():
    """The oracle: every client's update as it is without masking, whose large ones are counted."""
    lines = []
    parts = (FedAvg(weighted=False, buffers=False), LocalTraining(optimizer=SGD))
    _, plain, _ = play(None, parts=parts)
    updates = [to_vectors(reply.content.array_records[UPDATE])["float"] for reply in plain.replied]
    bound = float(np.median(np.abs(updates)))
    expected = np.mean([np.mean(np.abs(update) > bound) for update in updates])
    assert 0.4 < expected < 0.6
    for workers in (0, 2):
        made = make(Masking(threshold=0.6, bound=bound), parts=parts, workers=workers)
        result = made.run(rounds=2, progress=Told(lines))
        assert result.metrics[0]["cut_off"] == pytest.approx(expected, abs=1e-3)
        assert [line for line in lines if "masking.bound" in line] == [
            f"round 1: masking.bound cuts off {result.metrics[0]['cut_off']:.2%} of the "
            "coordinates of the updates, and their sum is another than without masking: take a "
            "larger one"
        ]
        assert result.failures == []
        assert "masking.bound has cut off up to" in write_report(result.run_dir).read_text()
        lines.clear()
    within = make(Masking(threshold=0.6, bound=100.0), parts=parts).run(rounds=1)
    assert "cut_off" not in within.metrics[0]


class Told(Progress):
    def __init__(self, lines):
        self.note = lines.append


# The same model


def test_the_model_is_the_plain_runs_up_to_the_stated_rounding():
    plain, _, _ = play(None)
    masked, _, made = play(MASKED)
    assert_same_model(masked, plain, made)


def test_rounding_does_not_grow_beyond_the_rounds():
    plain, _, _ = play(None, rounds=4)
    masked, _, made = play(MASKED, rounds=4)
    # Each round adds its own, and moves a little with what the rounds before have added.
    assert_same_model(masked, plain, made, factor=4 * 2)


def test_a_coarser_ring_rounds_more_and_one_coarser_than_the_noise_is_refused():
    plain, _, _ = play(None)
    coarse, _, made = play(Masking(threshold=0.6, bound=2.0**20))
    off = np.abs(vector_of(coarse) - vector_of(plain)).max()
    step = made.algorithm.ring(CLIENTS, start().size).step
    assert off <= CLIENTS * step / 2 / CLIENTS + 1e-14
    assert off > sum_error(made.algorithm.ring(CLIENTS, start().size)) / 1e3 / CLIENTS
    fine = make(MASKED).algorithm.ring(CLIENTS, start().size)
    assert off > sum_error(fine)
    # σC/√5/M = .2 · .5 / √5 / 2 = .0224, and a step of 2^-7 goes into it 2.9 times.
    with pytest.raises(Unworkable, match=r"share of the noise, 0.0224, is 2.9 steps of a ring"):
        make(Masking(threshold=0.6, bound=2.0**21.5))


def test_single_precision_models_too():
    plain, _, _ = play(None, model=Small)
    masked, _, _ = play(MASKED, model=Small)
    np.testing.assert_allclose(vector_of(masked), vector_of(plain), rtol=1e-6, atol=1e-6)


def test_feam_dp_steps_on_the_same_gradient_behind_masks():
    def parts():
        mechanism = example_gaussian(clip_norm=0.5, examples=40, noise_multiplier=0.2)
        return FeAmDP(mechanism, lr=0.02), ExampleGradients()

    (ours, _, made), (plain, _, _) = (play(m, parts=parts(), rounds=3) for m in (MASKED, None))
    np.testing.assert_allclose(vector_of(ours), vector_of(plain), atol=1e-6)
    assert np.linalg.norm(vector_of(plain) - start()) > 0.05
    moments = made.algorithm.state()
    assert int(moments["step"]) == 3
    # What is decoded has the model's own type.
    assert moments["exp_avg"].dtype == np.float64


def test_fedavg_without_weights_can_be_masked_if_it_is_told_a_bound():
    parts = FedAvg(weighted=False, buffers=False), LocalTraining(optimizer=SGD)
    (plain, _, _), (masked, _, made) = (
        play(m, parts=parts) for m in (None, Masking(0.6, bound=4.0))
    )
    assert_same_model(masked, plain, made)


# Dropouts


def dropouts(stage, count):
    return {(1, 0, client): stage for client in range(CLIENTS - count, CLIENTS)}


@pytest.mark.parametrize("count", [0, 1, 2])
@pytest.mark.parametrize("stage", STAGES)
def test_up_to_k_minus_t_dropouts_at_any_stage_decode_the_survivors_sum(stage, count):
    masked, grid, made = play(MASKED, dropouts(stage, count))
    # Who falls silent after its update was counted is in the sum.
    missing = 0 if stage == "reveal" else count
    plain, _, _ = play(None, dropouts("train", missing))
    assert_same_model(masked, plain, made, answered=CLIENTS - missing)
    assert [r["accepted"] for r in masked.metrics] == [True]
    assert sum(message.has_error() for message in grid.received) == count
    (event,) = events(masked)
    assert event["cohort"] == [0, 1, 2, 3, 4]
    assert event["survivors"] == list(range(CLIENTS - missing))
    (same,) = events(plain)
    assert event["noise_multiplier"] == same["noise_multiplier"]


@pytest.mark.parametrize(("first", "second"), list(itertools.combinations(STAGES, 2)))
def test_dropouts_at_different_stages_decode_too(first, second):
    masked, _, made = play(MASKED, {(1, 0, 1): first, (1, 0, 3): second})
    missing = {(1, 0, 1): "train"} | ({} if second == "reveal" else {(1, 0, 3): "train"})
    plain, _, _ = play(None, missing)
    assert_same_model(masked, plain, made, answered=CLIENTS - len(missing))


@pytest.mark.parametrize("stage", STAGES)
def test_one_dropout_more_and_the_round_is_refused(stage):
    result, grid, _ = play(MASKED, dropouts(stage, 3), max_refused=0)
    assert [record["accepted"] for record in result.metrics] == [False]
    assert vector_of(result).tobytes() == start().tobytes()
    revealed = [m for m in grid.received if m.metadata.message_type == "query.reveal"]
    assert len([m for m in revealed if not m.has_error()]) < 3
    ledger = Ledger.from_json(json.loads((result.run_dir / "ledger.json").read_text("utf-8")))
    # The draw is booked as it was planned, whatever came of it.
    counted, _, _ = play(MASKED)
    whole = Ledger.from_json(json.loads((counted.run_dir / "ledger.json").read_text("utf-8")))
    for view in ("paper", "global", "server_masked"):
        assert ledger.history(view) == whole.history(view)


@pytest.mark.parametrize("stage", STAGES)
def test_a_refused_round_is_not_drawn_again_and_the_next_one_counts(stage):
    masked, _, made = play(MASKED, dropouts(stage, 3), rounds=2)
    plain, _, _ = play(None, dropouts("train", 3), rounds=2)
    for result in (masked, plain):
        assert [record["accepted"] for record in result.metrics] == [False, True]
        assert [record["attempts"] for record in result.metrics] == [1, 1]
    assert_same_model(masked, plain, made)


def test_too_few_too_often_end_the_run_and_resumed_it_goes_on_with_the_next_round():
    faults = {(r, 0, client): "reveal" for r in (1, 2, 3) for client in range(3)}
    made = make(MASKED, max_refused=3)
    with pytest.raises(
        TooFewClients, match=r"3 rounds in a row .* 2 of 5 clients revealed .* it takes 3"
    ):
        made.run(rounds=4, run_dir="here", grid=Watched(made, faults))
    resumed = make(MASKED).run(rounds=4, run_dir="here", resume=True)
    whole = make(MASKED)
    same = whole.run(rounds=4, grid=Watched(whole, faults))
    assert [record["accepted"] for record in resumed.metrics] == [False, False, False, True]
    assert vector_of(resumed).tobytes() == vector_of(same).tobytes()
    assert events(resumed) == events(same)


# Who must stay


@pytest.mark.parametrize(
    ("noise", "masks", "needed"),
    # Of 5: the larger of the noise's shares and the masks' threshold.
    [(1.0, 0.6, 5), (0.6, 0.6, 3), (0.2, 0.6, 3), (0.6, 0.8, 4), (0.8, 0.6, 4), (0.2, 1.0, 5)],
)
def test_the_larger_threshold_counts(noise, masks, needed):
    def refused(missing):
        faults = {(1, 0, client): "train" for client in range(missing)}
        parts = strategy(noise), ProviderUpdates(optimizer=SGD)
        result, _, _ = play(Masking(masks), faults, parts=parts, max_refused=0)
        return not result.metrics[0]["accepted"]

    assert not refused(CLIENTS - needed)
    assert refused(CLIENTS - needed + 1)


@pytest.mark.parametrize("masks", [0.6, 1.0])
def test_a_sum_that_lacks_noise_is_never_unmasked(masks):
    """Four of five answer, and the noise needs five: refusing the sum afterwards is too late."""
    parts = strategy(1.0), ProviderUpdates(optimizer=SGD)
    _, grid, _ = play(Masking(masks), {(1, 0, 4): "train"}, parts=parts, max_refused=0)
    assert len(updates_of(grid)) == 4
    assert not any(message.metadata.message_type == "query.reveal" for message in grid.sent)


@pytest.mark.parametrize("least", [4, 5])
def test_nor_one_that_has_fewer_answers_than_the_run_accepts(least):
    faults = {(1, 0, 3): "train", (1, 0, 4): "train"}
    result, grid, _ = play(MASKED, faults, min_clients=least, max_refused=0)
    assert not result.metrics[0]["accepted"]
    assert not any(message.metadata.message_type == "query.reveal" for message in grid.sent)


# What the grid sees


def test_no_update_of_real_numbers_leaves_a_client():
    plain, masked = (play(m, rounds=2)[1] for m in (None, MASKED))
    for grid, kind in [(plain, "f8"), (masked, "i4")]:
        arrays = [
            array.numpy()
            for reply in grid.replied + grid.received
            for record in reply.content.array_records.values()
            for array in record.values()
        ]
        assert len(arrays) >= 4 * CLIENTS
        assert {array.dtype.str[1:] for array in arrays} == {kind}


def test_masked_words_do_not_tell_the_update_and_not_even_twice_the_same():
    _, grid, made = play(MASKED, rounds=2)
    _, plain, _ = play(None, rounds=2)
    ring = made.algorithm.ring(CLIENTS, start().size)
    words = [to_vectors(r.content[UPDATE])["masked"] for r in updates_of(grid)]
    values = [to_vectors(r.content[UPDATE])["float"] for r in updates_of(plain)]
    for word, value in zip(words, values, strict=True):
        assert not (word == encode(ring, value)).any()
    for one, other in itertools.combinations(words, 2):
        assert (one == other).sum() <= 1


def updates_of(grid):
    return [r for r in grid.replied if r.metadata.message_type.startswith("train")]


def test_a_cohort_of_one_has_no_masks_and_is_booked_as_it_is():
    def parts():
        return strategy(rate=0.2), ProviderUpdates(optimizer=SGD)

    masked, grid, _ = play(MASKED, parts=parts())
    plain, _, _ = play(None, parts=parts())
    assert {m.metadata.message_type for m in grid.sent} == {"train.provider_updates"}
    assert vector_of(masked).tobytes() == vector_of(plain).tobytes()
    assert events(masked) == events(plain)


def test_a_poisson_round_of_nobody_is_noise_alone_behind_masks_too():
    mechanism = provider_gaussian(
        clip_norm=0.5, providers=2, noise_multiplier=0.2, client_rate=1e-9
    )

    def parts():
        return FLProviderDP(mechanism), ProviderUpdates()

    (masked, grid, _), (plain, _, _) = (play(m, parts=parts()) for m in (MASKED, None))
    assert grid.sent == []
    assert vector_of(masked).tobytes() == vector_of(plain).tobytes() != start().tobytes()


def test_masking_costs_none_of_the_booked_noise():
    """Rounding comes after a client's own noise, and before nothing but whole steps."""
    (masked,), (plain,) = (events(play(m)[0]) for m in (MASKED, None))
    assert masked["noise_multiplier"] == plain["noise_multiplier"] == 0.2 * np.sqrt(5 / 3)
    assert masked["share"] == plain["share"]


# Killed and resumed


@pytest.mark.slow
@pytest.mark.parametrize("stage", STAGES)
def test_a_run_that_is_killed_at_any_stage_ends_in_the_same_bits(stage):
    whole = make(MASKED).run(rounds=4)
    made = make(MASKED)
    grid = Watched(made, {(3, 0, 2): stage}, error=KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        made.run(rounds=4, run_dir="here", grid=grid)
    resumed = make(MASKED).run(rounds=4, run_dir="here", resume=True)
    assert vector_of(resumed).tobytes() == vector_of(whole).tobytes()
    assert events(resumed) == events(whole)


def test_a_round_run_again_with_other_survivors_gives_nobody_away():
    """What double masking is for (Bonawitz et al. 2017, §4): never both of one client's secrets."""
    faults = {(1, 0, 4): "train"}
    first = make(MASKED, checkpoint_every=9)
    before = Killed(first, faults)
    with pytest.raises(KeyboardInterrupt):
        first.run(rounds=2, run_dir="here", grid=before)
    second = make(MASKED, checkpoint_every=9)
    after = Watched(second)
    second.run(rounds=2, run_dir="here", resume=True, grid=after)
    seeds, keys = _revealed(before.replied + after.replied)
    assert {4} in keys.values()
    assert len(seeds) == 2  # attempt 0, and attempt 1 under keys of its own
    assert all(not seeds[session] & keys[session] for session in seeds)


def _revealed(replies):
    """Whose seeds and whose keys were revealed in round 1, by session: client 0's public key."""
    seeds, keys, session = {}, {}, None
    for reply in replies:
        if reply.metadata.group_id != "1":
            continue
        kind, node = reply.metadata.message_type, reply.metadata.src_node_id
        if kind == "query.advertise" and node == replies[0].metadata.src_node_id:
            session = reply.content["secagg"]["masking"]
        if kind == "query.reveal":
            seeds.setdefault(session, set()).update(reply.content["secagg"]["alive"])
            keys.setdefault(session, set()).update(reply.content["secagg"]["dropped"])
    return seeds, keys


class Killed(Watched):
    """Ends the run as soon as the second round begins."""

    def _deliver(self, messages, timeout):
        if messages[0].metadata.group_id == "2":
            raise KeyboardInterrupt
        yield from super()._deliver(messages, timeout)


# What cannot be masked


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (FedAvg(), "strategy.buffers=true: buffers cannot be masked"),
        (FeAmDP(EXAMPLES, "paper"), "set strategy.variant=sound"),
        (FedAvgDP(EXAMPLES, "paper"), "set strategy.variant=sound"),
        (FedAvgDP(EXAMPLES), "masking.bound=null: the strategy does not bound what a client sends"),
    ],
)
def test_what_cannot_be_masked_is_said_with_what_to_set(made, message):
    assert any(message in problem for problem in MASKED.problems(made))


def test_what_can_be_masked_has_no_problem():
    for made in (FeAmDP(EXAMPLES), strategy(), FLProviderDP(strategy().mechanism, "paper")):
        assert MASKED.problems(made) == []


def test_and_said_before_any_training():
    with pytest.raises(Unworkable, match="buffers cannot be masked"):
        make(MASKED, parts=(FedAvg(), LocalTraining()))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"threshold": 0.5}, r"threshold=0.5: expected a value in \(0.5, 1\]"),
        ({"threshold": 1.01}, r"threshold=1.01: expected a value in \(0.5, 1\]"),
        ({"bound": 0.0}, r"bound=0.0: expected a number in \[2\^-64, 2\^64\]"),
        ({"bound": float("inf")}, r"bound=inf: expected a number in \[2\^-64, 2\^64\]"),
    ],
)
def test_settings_that_make_no_sense_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Masking(**arguments)


def test_the_exchange_of_this_files_model_is_double():
    assert read(Double())["float"].dtype == np.float64
