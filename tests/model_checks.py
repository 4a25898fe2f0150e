"""Checks that every document model must pass; each says what it found where it fails."""

import dataclasses

import numpy as np
import pytest
import torch
from pages import page

from fedpriv.data.document import Entity, Question
from fedpriv.data.generated.invoices import Invoices
from fedpriv.training.computing import Computing
from fedpriv.training.ghost import MARGIN, NoRule
from fedpriv.training.per_example import PerExample

SMALL = [
    page(
        "Vega Ltd total 12.50",
        entities=[Entity("provider", (0, 1)), Entity("total", (3,))],
        questions=[
            Question("provider", "Who asks for money?", ("Vega Ltd",)),
            Question("total", "How much?", ("12.50",)),
        ],
        name="a",
    ),
    page(
        "total 7 Orion",
        entities=[Entity("total", (1,)), Entity("provider", (2,))],
        questions=[Question("provider", "And which company is it?", ("Orion",))],
        name="b",
    ),
    page("nothing", questions=[Question("total", "How much?", ("99",))], name="c"),
]
LABELS = ("provider", "total")


def invoices(keys=("provider",), providers=4, per_provider=2):
    """Generated invoices with some of their questions."""
    source = Invoices(providers=providers, documents_per_provider=per_provider)
    return [
        dataclasses.replace(one, questions=tuple(q for q in one.questions if q.key in keys))
        for one in source.load().documents
    ]


def batch_of(model, documents=SMALL, rows=None):
    examples = model.encode(documents)
    return examples.batch(np.arange(len(examples)) if rows is None else np.array(rows))


def check_every_parameter_learns(model, documents=SMALL):
    model.loss(batch_of(model, documents)).backward()
    without = [n for n, p in model.named_parameters() if p.requires_grad and p.grad is None]
    assert not without
    assert all(p.grad is None for p in model.parameters() if not p.requires_grad)


def check_every_way_gives_what_the_loop_gives(model, documents=SMALL, ghost=True):
    """In float64, where they agree to the last digits or are not the same; in bf16 about.

    Without `ghost`, the model has a layer that has no rule in `fedpriv.training.ghost`.
    """
    examples = model.encode(documents)
    if ghost:
        kept, loop = (
            PerExample(way, 2).clipped_sum(model, examples, 0.3, computing=Computing("bf16"))
            for way in ("ghost", "loop")
        )
        np.testing.assert_allclose(kept.norms, loop.norms, rtol=0.1)
    model = model.double()
    vmap = PerExample("vmap", 2).clipped_sum(model, examples, 0.3)
    loop = PerExample("loop").clipped_sum(model, examples, 0.3)
    np.testing.assert_allclose(vmap.norms, loop.norms, rtol=1e-11)
    assert np.linalg.norm(vmap.total - loop.total) < 1e-12 * len(examples)
    assert len(set(loop.norms.round(9))) > 1
    assert loop.norms.min() > 1e-3
    if not ghost:
        with pytest.raises(NoRule):
            PerExample("ghost", 2).clipped_sum(model, examples, 0.3)
        return
    kept = PerExample("ghost", 2).clipped_sum(model, examples, 0.3)
    np.testing.assert_allclose(kept.norms, loop.norms, rtol=1e-9)
    assert np.linalg.norm(kept.total - loop.total) < 2 * MARGIN * 0.3 * len(examples)


def check_the_batch_is_the_mean_of_its_examples(model, documents=SMALL):
    model, examples = model.double(), model.encode(documents)
    unclipped = PerExample("loop").clipped_sum(model, examples, 1e9).total
    model.loss(examples.batch(np.arange(len(examples)))).backward()
    whole = [p.grad.flatten() for p in model.parameters() if p.requires_grad]
    np.testing.assert_allclose(
        torch.cat(whole).numpy(), unclipped / len(examples), rtol=1e-7, atol=1e-12
    )


def check_dropout_is_the_seeds_and_each_examples_own(model, documents=SMALL):
    """The loop draws for one example after the other, as backward passes by hand do."""
    model, examples = model.train().double(), model.encode(documents)
    torch.manual_seed(1)
    loop = PerExample("loop").clipped_sum(model, examples, 0.3)
    torch.manual_seed(1)
    norms = []
    for row in range(len(examples)):
        model.zero_grad()
        model.loss(examples.batch(np.array([row]))).backward()
        grads = [p.grad for p in model.parameters() if p.grad is not None]
        norms.append(torch.cat([g.flatten() for g in grads]).norm().item())
    np.testing.assert_allclose(loop.norms, norms, rtol=1e-10)
    torch.manual_seed(2)
    other = PerExample("loop").clipped_sum(model, examples, 0.3)
    assert not np.allclose(other.norms, loop.norms, rtol=1e-3)
    twins = examples.take([0] * 4)
    torch.manual_seed(1)
    vmap = PerExample("vmap", 4).clipped_sum(model, twins, 0.3)
    assert len(set(vmap.norms.round(9))) == 4
    assert vmap.nonfinite == 0


def check_gradients_of_gradients(model, wanted="pixels", documents=SMALL):
    """Against a finite difference, in float64: d/dx of the squared norm of the gradient."""
    model = model.double()
    batch = batch_of(model, documents, [0])
    x = batch[wanted].double() if wanted == "pixels" else None
    parameters = [p for p in model.parameters() if p.requires_grad]

    def squared_norm(at):
        inputs = batch if at is None else {**batch, wanted: at}
        loss = model.loss(inputs)
        grads = torch.autograd.grad(loss, parameters, create_graph=True, allow_unused=True)
        return sum((g**2).sum() for g in grads if g is not None)

    if x is None:  # no continuous input: the parameters themselves
        squared_norm(None).backward()
        assert sum(p.grad.abs().sum() for p in parameters if p.grad is not None) > 0
        return
    torch.manual_seed(0)
    direction = torch.randn_like(x)
    x.requires_grad_(True)
    (gradient,) = torch.autograd.grad(squared_norm(x), x)
    analytic = (gradient * direction).sum().item()
    step = 1e-3
    ahead, behind = squared_norm(x + step * direction), squared_norm(x - step * direction)
    numeric = (ahead - behind).item() / (2 * step)
    assert analytic != 0
    assert abs(analytic - numeric) < 1e-5 * abs(numeric)


def check_alone_or_together_the_answers_are_the_same(model, documents=SMALL):
    model.eval()
    with torch.no_grad():
        together = model.answer(documents)
        alone = [model.answer([one])[0] for one in documents]
    assert [len(a) for a in together] == [len(d.questions) for d in documents]
    for both in zip(together, alone, strict=True):
        for one, other in zip(*both, strict=True):
            assert one.text == other.text
            assert 0 <= one.confidence <= 1
            assert abs(one.confidence - other.confidence) <= 1e-5 * one.confidence


def learn(model, documents, steps, lr):
    """Trains on all of it at once; returns the first and the last loss."""
    batch = batch_of(model.train(), documents)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=lr)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model.loss(batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    return losses[0], losses[-1]
