"""CDMI's fast way to losses and scores, on real models, against whole rows one by one."""

import dataclasses

import numpy as np
import pytest
import torch

from fedpriv.attacks.cdmi.windows import Windows, gaussian_like, looked_at
from fedpriv.data.generated.invoices import Invoices
from fedpriv.models.encoders.backbones import layoutlm
from fedpriv.models.heads.linking import SpadeLinker
from fedpriv.models.heads.spade import SpadeExtractor

LENGTH = 200
PLACES = ((4, 5, 6), (20, 21))
KNOTS = [(0, ()), (1, (9,)), (0, (7,)), (0, (8,))]
CANDIDATES = np.array([[5, 6, 70], [5, 8, 9], [3, 44, 5], [3, 44, 5]])


@pytest.fixture(scope="module")
def documents():
    made = Invoices(providers=2, documents_per_provider=1, seed=3).load()
    return [dataclasses.replace(one, links=((0, 1), (2, 3))) for one in made.documents], made.labels


def model_of(task, labels):
    torch.manual_seed(0)
    small = {"hidden_size": 32, "layers": 2, "max_length": LENGTH}
    image = task == "image"
    model = layoutlm(labels, task="mlm" if task == "mlm" else "tags", image=image, **small)
    heads = {"spade": SpadeExtractor, "links": SpadeLinker}
    if task in heads:
        model = heads[task](model.encoder, model.reader, labels)
    return model.eval()


def rows_of(model, documents):
    """Two windows, of which one is much shorter."""
    examples = model.encode(
        [documents[0], dataclasses.replace(documents[1], **start(documents[1]))]
    )
    batch = examples.batch(np.array([0, len(examples) - 1]))
    for row, places in enumerate(PLACES):
        batch["input_ids"][row, list(places)] = model.reader.subwords.mask
    return batch


def start(document):
    words = document.words[:25]
    kept = [e for e in document.entities if max(e.words) < len(words)]
    return {"words": words, "entities": tuple(kept), "links": ((0, 1),) if len(kept) > 1 else ()}


def by_hand(batch, knot, token=None):
    """Returns one whole row, filled in."""
    field, prefix = knot
    row = {name: column[field : field + 1].clone() for name, column in batch.items()}
    filled = prefix if token is None else (*prefix, token)
    for place, value in zip(PLACES[field], filled, strict=False):
        row["input_ids"][0, place] = value
    return row


@pytest.mark.parametrize("task", ["tags", "image", "spade", "links"])
@pytest.mark.parametrize("size", [5, 64])
def test_losses_are_those_of_whole_rows_one_by_one(documents, task, size):
    model = model_of(task, documents[1])
    batch = rows_of(model, documents[0])

    with torch.inference_mode():
        windows = Windows(model, looked_at(model, batch), PLACES, size)
        found = windows.losses(KNOTS, CANDIDATES)
        expected = [
            [model.losses(by_hand(batch, knot, token)).item() for token in row]
            for knot, row in zip(KNOTS, CANDIDATES.tolist(), strict=True)
        ]

    np.testing.assert_allclose(found, expected, rtol=2e-5)
    assert len(np.unique(found.round(7))) > 6  # they depend on what is filled in


def test_scores_are_those_of_whole_rows_one_by_one(documents):
    model = model_of("mlm", documents[1])
    batch = rows_of(model, documents[0])

    with torch.inference_mode():
        found = Windows(model, looked_at(model, batch), PLACES, 3).scores(KNOTS)
        expected = torch.cat(
            [
                model.token_scores(
                    by_hand(batch, knot), torch.tensor([PLACES[knot[0]][len(knot[1])]])
                )
                for knot in KNOTS
            ]
        )

    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_the_page_is_looked_at_once_and_padding_is_cut(documents):
    model = model_of("image", documents[1])
    batch = rows_of(model, documents[0])
    calls = []
    model.encoder.visual.register_forward_hook(lambda *_: calls.append(1))

    with torch.inference_mode():
        cut = looked_at(model, batch)
        Windows(model, cut, PLACES, 4).losses(KNOTS, CANDIDATES)

    attended = int(batch["attention_mask"].sum(1).max())
    assert len(calls) == 1
    assert attended < LENGTH
    assert cut["input_ids"].shape == (2, attended)
    assert cut["visual"].shape == (2, attended, 32)
    assert "pixels" not in cut


def test_noise_has_the_features_mean_and_deviation():
    features = torch.randn(2, 300, 40) * torch.tensor([2.0, 5.0])[:, None, None] + 3
    mask = torch.ones(2, 300, dtype=torch.int64)
    mask[1, 150:] = 0
    features[1, 150:] = 1e6  # padding, which does not count
    rngs = [np.random.default_rng(seed) for seed in (1, 2)]

    noise = gaussian_like(features, mask, rngs)

    assert noise.mean((1, 2)).tolist() == pytest.approx([3.0, 3.0], abs=0.2)
    assert noise.std((1, 2)).tolist() == pytest.approx([2.0, 5.0], rel=0.05)
    assert not torch.equal(noise[0], noise[1])
