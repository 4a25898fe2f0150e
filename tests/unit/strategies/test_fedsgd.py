"""FedSGD on the toy federation, and the two simple defences of its client half."""

import numpy as np
import pytest
import torch
from toy import Net, data, federation

from fedpriv.clients.fedsgd import BatchGradient
from fedpriv.runtime.run_folder import RunFolder
from fedpriv.runtime.torch_state import seeded_model
from fedpriv.strategies.fedsgd import FedSGD
from fedpriv.threat.surfaces.server import KeepTranscript
from fedpriv.threat.surfaces.transcript import load


class Plain(Net):
    """Without dropout, so that a gradient can be computed again."""

    def __init__(self):
        super().__init__()
        self.layers[3].p = 0.0


pytestmark = pytest.mark.usefixtures("in_own_folder")


def updates(client, clients=2, **kw):
    """Returns each client's flattened gradient of round 1."""
    result = federation(
        model=Plain, strategy=FedSGD(lr=0.5), client=client, keep=[KeepTranscript()],
        data=data(clients), clients=clients, **kw
    ).run(1)  # fmt: skip
    (seen,) = load(RunFolder.existing(result.run_dir)).rounds
    flat = [torch.cat([t.flatten() for t in u.tensors.values()]) for u in seen.uploads]
    return result, seen, flat


def test_one_round_is_a_step_of_gradient_descent_on_all_examples():
    everything = data(3)
    result, _, _ = updates(BatchGradient(batch_size=100), clients=3)
    model = seeded_model(Plain, 0)
    losses = [
        model.loss({k: torch.from_numpy(v[rows]) for k, v in everything.train.items()})
        for rows in everything.rows
    ]
    torch.stack(losses).mean().backward()
    for (name, start), moved in zip(
        model.named_parameters(), result.model.parameters(), strict=True
    ):
        torch.testing.assert_close(moved, start - 0.5 * start.grad, msg=name)
    assert "train_loss" not in result.metrics[0]  # gradients are all that is sent


def test_batches_are_new_in_each_round_and_differ_between_clients():
    client = BatchGradient(batch_size=3)
    examples = data(1).bind(Plain, 0).train

    def batch(round, number):
        return client.drawn(
            examples, None, lambda purpose: np.random.default_rng([round, number])
        ).tolist()

    drawn = [batch(round, number) for round in range(4) for number in range(4)]
    assert all(len(set(rows)) == 3 for rows in drawn)
    assert len({tuple(rows) for rows in drawn}) > 10


def test_clipping_bounds_the_whole_gradient_and_keeps_its_direction():
    _, _, free = updates(BatchGradient(4))
    _, _, clipped = updates(BatchGradient(4, clip_norm=0.05))
    for one, other in zip(free, clipped, strict=True):
        assert one.norm() > 0.05
        assert other.norm() == pytest.approx(0.05, rel=1e-5)
        assert torch.cosine_similarity(one, other, dim=0) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("std", [1e-3, 1e-1])
def test_the_noise_has_the_deviation_that_was_asked_for(std):
    _, _, clean = updates(BatchGradient(4), clients=12)
    _, _, noisy = updates(BatchGradient(4, gradient_noise=std), clients=12)
    noise = torch.stack([b - a for a, b in zip(clean, noisy, strict=True)])
    n = noise.numel()
    assert n > 500
    # Six standard errors of a deviation: a scale wrong by a quarter is refused.
    assert abs(noise.std().item() / std - 1) < 6 / np.sqrt(2 * n) < 0.25
    assert len({tuple(row) for row in noise.tolist()}) == 12  # nobody's noise is another's


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"batch_size": 0}, "batch_size=0"),
        ({"clip_norm": 0.0}, "clip_norm=0.0"),
        ({"gradient_noise": -1.0}, "gradient_noise=-1.0"),
    ],
)
def test_settings_are_checked(settings, why):
    with pytest.raises(ValueError, match=why):
        BatchGradient(**settings)
    with pytest.raises(ValueError, match="lr=0"):
        FedSGD(lr=0)
