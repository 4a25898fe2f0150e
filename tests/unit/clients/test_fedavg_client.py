"""Local training and its loop on a linear model of two weights, against NumPy."""

import numpy as np
import pytest
import torch
from torch import nn

from fedpriv.clients.fedavg import LOSS, LocalTraining
from fedpriv.data.examples import Examples
from fedpriv.federation.client import ClientContext
from fedpriv.federation.messages import NUM_EXAMPLES, Instruction
from fedpriv.runtime.vectors import ParameterLayout
from fedpriv.training.loops import Optimizer, train_epoch

X = np.array([[1, 2], [0, -1], [3, 0.5], [-2, 1], [0.5, 0.5]], np.float32)
Y = np.array([1, 0, -1, 2, 3], np.float32)
START = np.array([0.5, -1.0], np.float32)


class Linear(nn.Module):
    """Least squares; notes the batches it sees."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.from_numpy(START.copy()))
        self.seen = []

    def loss(self, batch):
        self.seen.append(batch["y"].tolist())
        return (batch["x"] @ self.weight - batch["y"]).square().mean()


def visit_of(model, examples=None, round=1, attempt=0, client=0, seed=0):
    layout = ParameterLayout(model)
    return ClientContext(
        client=client,
        model=model,
        examples=Examples.of({"x": X, "y": Y}) if examples is None else examples,
        instruction=Instruction(round=round, attempt=attempt),
        layout=layout,
        parameters=layout.read(),
        device=torch.device("cpu"),
        seed=seed,
        restart=lambda: None,
    )


def gradient(weight, x=X, y=Y):
    return 2 * x.T @ (x @ weight - y) / len(y)


def mean_square(weight):
    return float(np.mean((X.astype(float) @ weight - Y) ** 2))


def trained(**settings):
    model = Linear()
    return model, LocalTraining(**settings).train(visit_of(model))


def sgd(lr=0.1, **more):
    return Optimizer("sgd", lr=lr, **more)


def test_full_batches_are_gradient_descent():
    _, contribution = trained(epochs=3, batch_size=5, optimizer=sgd())
    weight = START.astype(float)
    for _ in range(3):
        loss = mean_square(weight)
        weight = weight - 0.1 * gradient(weight)
    np.testing.assert_allclose(contribution.update["float"], weight - START, rtol=1e-5)
    assert contribution.metrics[LOSS] == pytest.approx(loss, rel=1e-5)
    assert contribution.metrics[NUM_EXAMPLES] == 5


def test_small_batches_are_the_steps_of_the_batches_seen():
    model, contribution = trained(epochs=2, batch_size=2, optimizer=sgd(lr=0.05))
    weight, losses = START.astype(float), []
    for seen in model.seen:
        rows = [Y.tolist().index(y) for y in seen]
        losses.append(np.mean((X[rows] @ weight - Y[rows]) ** 2))
        weight = weight - 0.05 * gradient(weight, X[rows], Y[rows])
    np.testing.assert_allclose(contribution.update["float"], weight - START, rtol=1e-5)
    # The last epoch's three batches, each counting the same.
    assert contribution.metrics[LOSS] == pytest.approx(np.mean(losses[-3:]), rel=1e-5)


@pytest.mark.parametrize(
    ("epochs", "batch_size", "sizes"),
    [(1, 5, [5]), (1, 2, [2, 2, 1]), (2, 3, [3, 2, 3, 2]), (1, 100, [5]), (3, 1, [1] * 15)],
)
def test_an_epoch_visits_every_example_once(epochs, batch_size, sizes):
    model, _ = trained(epochs=epochs, batch_size=batch_size, optimizer=sgd())
    assert [len(batch) for batch in model.seen] == sizes
    visited = [y for batch in model.seen for y in batch]
    for epoch in range(epochs):
        assert sorted(visited[5 * epoch : 5 * epoch + 5]) == sorted(Y.tolist())


def order(**where):
    model = Linear()
    y = np.arange(30, dtype=np.float32)
    examples = Examples.of({"x": np.ones((30, 2), np.float32), "y": y})
    LocalTraining(epochs=2, batch_size=1, optimizer=sgd(lr=1e-6)).train(
        visit_of(model, examples, **where)
    )
    return [y for batch in model.seen for y in batch]


def test_examples_are_shuffled_anew_in_every_epoch():
    one = order()
    assert one[:30] != sorted(one[:30])
    assert one[:30] != one[30:]


def test_the_order_depends_on_seed_round_attempt_and_client_and_on_nothing_else():
    assert order() == order()
    for change in ({"seed": 1}, {"round": 2}, {"attempt": 1}, {"client": 1}):
        assert order() != order(**change)


def test_the_update_is_the_change_of_the_model():
    model, contribution = trained(optimizer=sgd())
    after = model.weight.detach().numpy()
    assert list(contribution.update) == ["float"]
    assert contribution.update["float"].tolist() == (after - START).tolist()
    assert np.abs(contribution.update["float"]).min() > 0.01


def test_the_global_vectors_are_left_as_they_came():
    model = Linear()
    context = visit_of(model)
    LocalTraining(optimizer=sgd()).train(context)
    assert context.parameters["float"].tolist() == START.tolist()


def test_a_client_without_examples_changes_nothing():
    model = Linear()
    nobody = Examples.of({"x": X, "y": Y}).take([])
    contribution = LocalTraining(epochs=2).train(visit_of(model, nobody))
    assert contribution.update["float"].tolist() == [0, 0]
    assert contribution.metrics == {NUM_EXAMPLES: 0, LOSS: 0.0}


@pytest.mark.parametrize("name", ["adam", "adamw"])
def test_adams_first_step_is_the_learning_rate_against_the_gradients_sign(name):
    _, contribution = trained(batch_size=5, optimizer=Optimizer(name, lr=0.01))
    expected = -0.01 * np.sign(gradient(START))
    np.testing.assert_allclose(contribution.update["float"], expected, rtol=1e-4)


def test_adamw_decays_apart_from_the_gradient():
    optimizer = Optimizer("adamw", lr=0.01, weight_decay=0.5)
    _, contribution = trained(batch_size=5, optimizer=optimizer)
    expected = -0.01 * np.sign(gradient(START)) - 0.01 * 0.5 * START
    np.testing.assert_allclose(contribution.update["float"], expected, rtol=1e-4)


def test_sgd_takes_momentum_and_weight_decay():
    optimizer = sgd(momentum=0.9, weight_decay=0.2)
    _, contribution = trained(epochs=2, batch_size=5, optimizer=optimizer)
    weight, velocity = START.astype(float), 0
    for _ in range(2):
        velocity = 0.9 * velocity + gradient(weight) + 0.2 * weight
        weight = weight - 0.1 * velocity
    np.testing.assert_allclose(contribution.update["float"], weight - START, rtol=1e-5)


@pytest.mark.parametrize("optimizer", [sgd(momentum=0.9), Optimizer("adam", lr=0.1)])
def test_no_moments_survive_between_visits(optimizer):
    client = LocalTraining(epochs=2, batch_size=5, optimizer=optimizer)
    first, second = (client.train(visit_of(Linear())).update["float"] for _ in range(2))
    assert torch.equal(first, second)


def test_frozen_parameters_are_given_to_no_optimiser():
    model = nn.Linear(2, 3)
    model.weight.requires_grad_(False)
    (group,) = Optimizer("sgd", lr=1).build(model).param_groups
    assert [parameter.shape for parameter in group["params"]] == [(3,)]


def test_old_gradients_are_not_added_to():
    model = Linear()
    model.weight.grad = torch.full((2,), 1e6)
    train_epoch(model, [{"x": torch.from_numpy(X), "y": torch.from_numpy(Y)}], sgd().build(model))
    np.testing.assert_allclose(model.weight.detach(), START - 0.1 * gradient(START), rtol=1e-5)


def test_an_epoch_without_batches_has_loss_zero():
    model = Linear()
    assert train_epoch(model, [], sgd().build(model)) == 0.0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LocalTraining(epochs=0), "epochs=0: expected at least 1"),
        (lambda: LocalTraining(batch_size=-1), "batch_size=-1: expected at least 1"),
        (lambda: Optimizer("rmsprop"), "name='rmsprop': expected 'sgd', 'adam' or 'adamw'"),
        (lambda: Optimizer(lr=0), r"lr=0: expected a number in \(0, 10000\]"),
        (lambda: Optimizer(lr=float("nan")), r"lr=nan: expected a number in \(0, 10000\]"),
        (
            lambda: Optimizer("adam", momentum=0.9),
            r"momentum=0\.9: only 'sgd' has it, not 'adam'",
        ),
    ],
)
def test_settings_say_what_would_work(make, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        make()
