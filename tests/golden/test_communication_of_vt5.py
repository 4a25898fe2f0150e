"""PFL-DocVQA, Table 6 (and Table 3): 44.66 "GB" for VT5, 10 rounds of 2 clients."""

import pytest
import torch

from fedpriv.metrics.communication import communication, model_bytes
from fedpriv.models.vt5 import vt5

GIB = 2**30


@pytest.fixture(scope="module")
def base():
    with torch.device("meta"):
        return vt5(size="base")


def test_the_papers_number_counts_t5s_tied_embedding_four_times(base):
    total = communication(base, rounds=10, clients=2, tied_copies=True)
    assert total == 299_682_048 * 4 * 10 * 2 * 2
    assert total / GIB == pytest.approx(44.66, abs=0.005)
    assert round(total / GIB, 3) == 44.656


def test_what_really_travels_is_a_quarter_less(base):
    total = communication(base, rounds=10, clients=2)
    assert total == 225_659_136 * 4 * 10 * 2 * 2
    assert round(total / GIB, 2) == 33.63


def test_the_frozen_visual_encoder_does_not_travel(base):
    visual = sum(p.numel() for p in base.visual_embedding.image_model.parameters())
    everything = sum(p.numel() for p in base.parameters())
    assert model_bytes(base) == 4 * (everything - visual)
    assert visual > 80_000_000
