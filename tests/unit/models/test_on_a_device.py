"""Every model does on a device what it does on the CPU, and nothing that CUDA refuses."""

import dataclasses
import functools

import numpy as np
import pytest
import torch
from fake_device import DEVICE, FakeDevice
from model_checks import LABELS, SMALL

from fedpriv.models.donut import donut
from fedpriv.models.encoders.backbones import bert, bros, layoutlm
from fedpriv.models.layoutlmv3 import layoutlmv3
from fedpriv.models.pix2struct import pix2struct
from fedpriv.models.roberta import roberta
from fedpriv.models.vt5 import vt5
from fedpriv.runtime.torch_state import isolated_randomness, reproducible_torch
from fedpriv.training.adapters import LoRA


def adapted(labels):
    model = layoutlmv3(labels)
    LoRA(rank=2).apply(model)
    return model


MODELS = {
    "LayoutLMv3": layoutlmv3,
    "LayoutLMv3 that answers": functools.partial(layoutlmv3, task="answers"),
    "LayoutLMv3 with adapters": adapted,
    "VT5": vt5,
    "Donut": donut,
    "Pix2Struct": pix2struct,
    "RoBERTa": roberta,
    "BERT": bert,
    "BROS": bros,
    "LayoutLM": layoutlm,
    "masked words": functools.partial(layoutlm, task="mlm"),
    "SPADE": functools.partial(layoutlm, task="spade"),
    "links": functools.partial(layoutlm, task="links"),
}
LINKED = [dataclasses.replace(page, links=((0, 1),) * (len(page.entities) > 1)) for page in SMALL]


def learnt_and_told(model, device):
    """Returns the gradient, the scores and the answers of a model on a device."""
    examples = model.train().encode(LINKED)
    with isolated_randomness(0), reproducible_torch(1, device):
        model.loss(examples.batch(np.arange(len(examples)), device)).backward()
        with torch.no_grad():
            scores = model.eval().evaluate(examples)
            answers = model.answer(SMALL) if hasattr(model, "answer") else []
    grads = [p.grad.cpu() for p in model.parameters() if p.grad is not None]
    return grads, scores, answers


@pytest.mark.parametrize("name", MODELS)
def test_a_model_learns_and_tells_the_same_on_a_device(name):
    model = MODELS[name](labels=LABELS)
    expected = learnt_and_told(model, "cpu")
    model.zero_grad()
    with FakeDevice():
        grads, scores, answers = learnt_and_told(model.to(DEVICE), DEVICE)
    assert len(grads) == len(expected[0]) > 2
    torch.testing.assert_close(grads, expected[0], rtol=1e-4, atol=1e-6)
    assert scores == pytest.approx(expected[1], rel=1e-5)
    told = [[a.text for a in page] for page in answers]
    assert told == [[a.text for a in page] for page in expected[2]]
