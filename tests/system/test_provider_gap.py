"""VT5 on generated invoices: it learns, and knows the providers that it was trained on better."""

import numpy as np
import pytest
import torch

from fedpriv.config import experiment
from fedpriv.metrics.answers import is_exact
from fedpriv.models.vt5 import vt5


def run(name, tmp_path, *overrides):
    config = experiment.load(name, ["federation.workers=0", f"runs={tmp_path}", *overrides])
    parts = experiment.build(config)
    federation = parts.assemble(config)
    return federation, federation.run(parts.rounds)


def right_by_provider(federation, model, group):
    """Returns each provider's share of right answers to the question on its name."""
    examples = federation.bound.test.take(federation.bound.test_groups[group])
    examples = examples.take(np.flatnonzero(examples.column("key") == "provider"))
    with torch.no_grad():
        answers = model.eval().answers(examples)
    shares = {}
    for answer, accepted in zip(answers, examples.column("answers"), strict=True):
        shares.setdefault(accepted, []).append(is_exact(answer.text, [accepted]))
    return np.array([np.mean(marks) for marks in shares.values()])


def gap(federation, model):
    """Returns the central 95 % of seen minus unseen, over providers drawn anew."""
    rng = np.random.default_rng(0)
    seen, unseen = (right_by_provider(federation, model, group) for group in ("seen", "unseen"))
    draws = [
        rng.choice(seen, seen.size).mean() - rng.choice(unseen, unseen.size).mean()
        for _ in range(2000)
    ]
    return np.quantile(draws, [0.025, 0.975])


@pytest.mark.slow
def test_vt5_learns_and_knows_its_providers_better_than_others(tmp_path):
    few = ["data.source.providers=16", "data.partition.clients=4", "rounds=6"]
    asked = ["data.source.questions=[provider]", "federation.evaluate_every=6"]
    federation, result = run("docvqa_vt5", tmp_path, *few, *asked, "seed=1")
    last = result.metrics[-1]
    assert last["accuracy_seen/provider"] >= 0.85
    low, _ = gap(federation, result.model)
    assert low > 0
    before = vt5(pretrained="shipped")  # the model that round 1 started from
    low, high = gap(federation, before)
    assert low <= 0 <= high


@pytest.mark.slow
def test_zero_shot_is_the_shipped_model_without_a_round(tmp_path):
    few = ["data.source.providers=12", "data.source.documents_per_provider=6"]
    federation, result = run("pfl_docvqa_zero_shot", tmp_path, *few, "data.partition.clients=3")
    (record,) = result.metrics
    assert record["round"] == record["bytes_up"] == 0
    assert record["accuracy"] > 0.5
    assert record["accuracy/date"] >= 0.9
    with torch.no_grad():
        scores = vt5(pretrained="shipped").eval().evaluate(federation.bound.test)
    assert record["anls"] == pytest.approx(scores["anls"])
