"""What works with a model, found out by trying it on two small pages."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from fedpriv.attacks.closed_form import layoutlmv3_of
from fedpriv.attacks.inversion.gradients import gradient_of, twice_differentiable
from fedpriv.attacks.text.recover import recover_text
from fedpriv.attacks.victim import Victim
from fedpriv.cli.data.prospects import ATTACKS, OF_EXAMPLES
from fedpriv.data.document import Document, Entity, Question, Word
from fedpriv.models.field_model import as_field_model
from fedpriv.threat.claims import RecoveredBatch
from fedpriv.training.adapters import LoRA, TopLayers
from fedpriv.training.per_example import Method, PerExample

LABEL = "total"
"""The entity type that the model is built with."""

BY_GRADIENTS = tuple(
    name for name in ATTACKS[RecoveredBatch] if name not in ("closed_form", "text")
)
OF_FIELDS = ("cdmi", "field_candidates", "field_search")
SIDE = 64
"""Pixels of the pages; a model reads them in its own size."""


FAST: tuple[Method, ...] = ("ghost", "vmap")
"""Ways to clip examples that need rules for a model's layers; the loop takes any."""


@dataclass(frozen=True, slots=True)
class Ability:
    """Whether something works with a model.

    Attributes:
        what: would be done.
        works: whether it can.
        how: in what way; if it cannot, why.
    """

    what: str
    works: bool
    how: str


def abilities(model: Any) -> list[Ability]:
    """Returns what works with a model, which keeps its parameters.

    Args:
        model: a `fedpriv.models.base.DocumentModel` built for the label `LABEL`, on the CPU.
    """
    examples = model.encode([_page("12.50"), _page("7")])
    batch = examples.batch(np.arange(1))

    def clipped(way: Method) -> str:
        return _error(lambda: PerExample(way).clipped_sum(model, examples, 1.0))

    loop, ways = clipped("loop"), {str(way): clipped(way) for way in FAST}
    top = _error(lambda: TopLayers(1).apply(copy.deepcopy(model)))
    lora = _error(lambda: LoRA().apply(copy.deepcopy(model)))
    model.eval()
    page = _error(lambda: _slopes_of_pixels(model, batch))
    solved = _error(lambda: layoutlmv3_of(model))
    text = _error(lambda: _read(model, batch))
    fields = _error(lambda: _masked(model, batch))
    model.train()
    found = [
        (f"privacy of examples ({', '.join(OF_EXAMPLES)})", loop, _ways(ways)),
        ("training the last layers (finetuning=top4, top8)", top, "layers and head are known"),
        ("adapters (finetuning=lora)", lora, "in the attention of the layers"),
        (f"inversion of the page ({', '.join(BY_GRADIENTS)})", page, "its pixels have slopes"),
        ("the page by linear algebra (closed_form)", solved, "from the gradients of its patches"),
        ("text out of gradients (text)", text, "from the gradients of its word embeddings"),
        (f"attacks on fields ({', '.join(OF_FIELDS)})", fields, "each example has its loss"),
    ]
    return [Ability(what, not error, error or how) for what, error, how in found]


def _ways(errors: Mapping[str, str]) -> str:
    works = [way for way, error in errors.items() if not error]
    missing = [f"; not by {way}: {error}" for way, error in errors.items() if error]
    return f"by {', '.join([*works, 'loop'])}{''.join(missing)}"


def _page(total: str) -> Document:
    words = (Word(LABEL, (2, 2, 30, 12), 0), Word(total, (32, 2, 60, 12), 1))
    asks = (Question(LABEL, "How much?", (total,)),)
    white = np.full((SIDE, SIDE, 3), 255, np.uint8)
    return Document(total, "trial", white, (SIDE, SIDE), words, (Entity(LABEL, (1,)),), asks)


def _slopes_of_pixels(model: Any, batch: dict[str, torch.Tensor]) -> None:
    """Differentiates the gradient's square by the pixels, as inversions do."""
    if "pixels" not in batch:
        raise ValueError("it reads no page; take model=layoutlmv3 or model=donut")
    pixels = batch["pixels"].float().requires_grad_()
    parameters = [p for p in model.parameters() if p.requires_grad]
    with twice_differentiable():
        loss = model.loss({**batch, "pixels": pixels})
        slopes = torch.autograd.grad(loss, parameters, create_graph=True, allow_unused=True)
        square = torch.stack([(g**2).sum() for g in slopes if g is not None]).sum()
        torch.autograd.grad(square, pixels)


def _read(model: Any, batch: dict[str, torch.Tensor]) -> None:
    """Reads text out of the gradient of an example, as attack=text does."""
    pages = batch.get("pixels", torch.zeros(1, 3, 1, 1)).float()
    unknown = torch.ones_like(pages[:, :1], dtype=torch.bool)
    white = torch.full_like(pages, 255)
    recover_text(Victim(model, gradient_of(model, batch), {}, white, unknown))


def _masked(model: Any, batch: dict[str, torch.Tensor]) -> None:
    """Computes the losses of examples, as attacks on fields do."""
    if as_field_model(model).reader.subwords.mask is None:
        raise ValueError("its tokenizer has no mask token, and scrubbed fields need one")
    with torch.no_grad():
        model.losses(model.seen(batch))


def _error(job: Callable[[], object]) -> str:
    """Does a job; returns its error in a line, or "" if there is none."""
    try:
        job()
    except Exception as error:  # of networks that nobody has tried before
        return (str(error).strip().splitlines() or [type(error).__name__])[0]
    return ""
