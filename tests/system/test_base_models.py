"""Models in their published sizes, with random weights: one step of training each, and an answer.

They are freed one after the other; Donut on pages of 1280 x 960 takes about 9 GiB.
"""

import gc
import math

import numpy as np
import pytest
import torch
from model_checks import LABELS, SMALL

from fedpriv.client import seeded_model
from fedpriv.models.donut import donut_base
from fedpriv.models.layoutlmv3 import layoutlmv3_base
from fedpriv.models.layoutlmv3_answers import layoutlmv3_answers_base
from fedpriv.models.roberta import roberta_base

pytestmark = pytest.mark.slow

KINDS = {
    "layoutlmv3": (layoutlmv3_base, {"max_length": 512}),
    "without image": (layoutlmv3_base, {"image": False}),
    "answers": (layoutlmv3_answers_base, {}),
    "roberta": (roberta_base, {}),
    "donut": (donut_base, {"image_size": (1280, 960), "answer_length": 4}),
}


@pytest.fixture(autouse=True)
def freed():
    yield
    gc.collect()


@pytest.mark.parametrize("kind", KINDS)
def test_a_base_model_takes_a_step_and_answers(kind):
    build, settings = KINDS[kind]
    model = seeded_model(lambda: build(LABELS, **settings), 0).train()
    batch = model.encode(SMALL[1:2]).batch(np.array([0]))
    before = model.loss(batch)
    before.backward()
    squares = [p.grad.norm().item() for p in model.parameters() if p.requires_grad]
    assert 0.01 < math.hypot(*squares) < 1000
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.sub_(parameter.grad, alpha=1e-4)
                parameter.grad = None
        model.eval()
        assert model.loss(batch).isfinite()
        (answers,) = model.answer(SMALL[1:2])
    assert len(answers) == 1
    assert all(0 <= answer.confidence <= 1 for answer in answers)
