"""The closed form on a LayoutLMv3 of the published size: 12 layers, 768 dimensions, 224 x 224."""

import time
from functools import partial

import numpy as np
import pytest
import torch

from fedpriv.attacks.closed_form import solve
from fedpriv.attacks.inversion.gradients import gradient_of
from fedpriv.attacks.victim import victim_of
from fedpriv.data.generated.slips import Slips
from fedpriv.data.redaction.fields import without_fields
from fedpriv.models.layoutlmv3 import layoutlmv3
from fedpriv.runtime.torch_state import seeded_model
from fedpriv.threat.access import Known


def psnr(page, truth):
    return -10 * np.log10(((page - truth.float()) / 255).square().mean().item())


@pytest.mark.base
def test_a_page_is_exact_in_a_second_and_survives_the_noise_that_ends_the_papers_attack():
    (document,) = Slips((224, 224), providers=1, documents_per_provider=1).load().documents
    model = seeded_model(partial(layoutlmv3, task="answers", size="base", dropout=0.0), 0).eval()
    batch = model.encode([document]).batch(np.arange(1))
    truth = batch["pixels"]
    gradient = gradient_of(model, batch)
    victim = victim_of(model, gradient, Known(1))

    began = time.process_time()
    page = solve(victim)
    seconds = time.process_time() - began
    assert psnr(page, truth) > 80
    assert torch.equal(page.round().to(torch.uint8), truth)
    assert seconds < 3  # a third of it is what was measured; machines are noisy

    template = model.encode([without_fields(document, None)]).shared["pixels"][0]
    private = (template != truth.numpy()).any(1, keepdims=True)
    rng = torch.Generator().manual_seed(0)
    noisy = {n: g + 1e-7 * torch.randn(g.shape, generator=rng) for n, g in gradient.items()}
    helped = solve(victim_of(model, noisy, Known(1, template, private)), noise=1e-7)
    assert psnr(helped, truth) > 45
