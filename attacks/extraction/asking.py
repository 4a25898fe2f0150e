"""Asking one trained model for the answers of the canaries, in every context that is wanted."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from fedpriv.attacks.extraction.canary import Canary, is_extracted
from fedpriv.attacks.extraction.contexts import Context
from fedpriv.attacks.extraction.prompts import Prompt, defended
from fedpriv.data.augmentation import ANSWER_NOT_PRESENT
from fedpriv.data.document import Document
from fedpriv.metrics.answers import anls
from fedpriv.runtime.seeds import generator
from fedpriv.runtime.torch_state import reproducible_torch
from fedpriv.threat.access import BlackBox, GreyBox
from fedpriv.threat.queries import Reply
from fedpriv.threat.surfaces.retrain import TrainedRun

Target = Literal["final", "loss"]

BASELINE = "baseline"
"""The context of definition 3.1: the page without the answer, and the question."""

TRAINED = "trained"
"""The page and the question as they were trained on."""

BLOCKED = "blocked"
"""As the baseline; what is looked for is that the model says the answer is not there."""

UNDEFENDED = "none"

CHUNK = 64
"""Canaries whose pages are in memory at a time."""

Way = Callable[[Sequence[Canary], np.random.Generator], Sequence[Document | None]]
"""Makes a page to be asked of each canary; none where it cannot."""


@dataclass(frozen=True)
class Inquiry:
    """What one trained model is asked.

    Attributes:
        target: which of its models: "final", or "loss", after the round with the least validation
            loss (Pinto et al. stop early by it).
        canaries: n, to be extracted.
        training: what the model may have been trained on, which contexts look at.
        contexts: by name, beside the baseline.
        prompts: defences at inference by name; each changes the baseline's questions and those of
            the held-out pages.
        held_out: pages for the ANLS; none for none.
        trained: whether the pages as they were trained on are asked about too, and the baseline
            for its refusal: what tells members from others.
        seed: of the contexts and prompts, the same for all models.
        threads: of torch.
        device: where the model is.
    """

    target: Target
    canaries: tuple[Canary, ...]
    training: tuple[Document, ...] = ()
    contexts: Mapping[str, Context] = field(default_factory=dict)
    prompts: Mapping[str, Prompt] = field(default_factory=dict)
    held_out: tuple[Document, ...] = ()
    trained: bool = False
    seed: int = 0
    threads: int = 1
    device: str = "cpu"


@dataclass(frozen=True)
class Said:
    """What a model gave away.

    Attributes:
        extracted: context or defence → whether each of the n canaries' answers was said; none where
            the context could not be had.
        anls: defence → ANLS of each question of each held-out page; "none" without any.
        losses: "trained" and "blocked" → each canary's loss.
    """

    extracted: Mapping[str, tuple[bool | None, ...]]
    anls: Mapping[str, tuple[tuple[float, ...], ...]]
    losses: Mapping[str, tuple[float, ...]]


def ask(box: BlackBox, inquiry: Inquiry) -> Said:
    """Asks a model everything that needs no loss."""
    held_out: dict[str, Sequence[Document]] = {}
    if inquiry.held_out:
        held_out[UNDEFENDED] = inquiry.held_out
        for name, prompt in inquiry.prompts.items():
            rng = generator(inquiry.seed, f"held-out {name}")
            held_out[name] = defended(inquiry.held_out, prompt, rng)
    return Said(
        extracted={name: _hits(box, inquiry, name, way) for name, way in _ways(inquiry).items()},
        anls={name: _anls(box, pages) for name, pages in held_out.items()},
        losses={},
    )


def ask_trained(job: tuple[TrainedRun, Inquiry]) -> Said:
    """Asks the model of a training everything, given the training and what to ask.

    Raises:
        ValueError: if the run is not finished, or has not kept the model that is wanted.
        TypeError: if the model answers no questions.
    """
    run, inquiry = job
    with reproducible_torch(inquiry.threads, inquiry.device):
        box = run.box(inquiry.target, inquiry.device)
        losses = _losses(box, inquiry.canaries) if inquiry.trained else {}
        return dataclasses.replace(ask(box, inquiry), losses=losses)


def _ways(inquiry: Inquiry) -> dict[str, Way]:
    """Returns what makes the pages to be asked, by the name of the context or defence."""

    def in_context(context: Context) -> Way:
        return lambda canaries, rng: context.ask(canaries, inquiry.training, rng)

    def with_prompt(prompt: Prompt) -> Way:
        return lambda canaries, rng: defended([c.removed for c in canaries], prompt, rng)

    ways: dict[str, Way] = {BASELINE: lambda canaries, rng: [c.removed for c in canaries]}
    ways |= {name: in_context(context) for name, context in inquiry.contexts.items()}
    ways |= {name: with_prompt(prompt) for name, prompt in inquiry.prompts.items()}
    if inquiry.trained:
        ways[BLOCKED] = lambda canaries, rng: [_refusing(c.removed) for c in canaries]
    return ways


def _hits(box: BlackBox, inquiry: Inquiry, name: str, way: Way) -> tuple[bool | None, ...]:
    """Returns whether each canary's answer was said, a chunk of pages in memory at a time."""
    found: list[bool | None] = [None] * len(inquiry.canaries)
    chunks = -(-len(found) // CHUNK)
    for chunk in range(chunks):
        # Far apart: a context may need other canaries' pages, and neighbours are much alike.
        places = range(chunk, len(found), chunks)
        rng = generator(inquiry.seed, f"extraction {name}", chunk)
        pages = way([inquiry.canaries[place] for place in places], rng)
        there = {place: page for place, page in zip(places, pages, strict=True) if page is not None}
        answers = box.answers(list(there.values()))
        for (place, page), (answer,) in zip(there.items(), answers, strict=True):
            found[place] = is_extracted(answer, page)
    return tuple(found)


def _anls(box: BlackBox, pages: Sequence[Document]) -> tuple[tuple[float, ...], ...]:
    """Returns the ANLS of each page's questions that have an answer."""
    return tuple(
        tuple(
            anls(answer, question.answers)
            for question, answer in zip(page.questions, answers, strict=True)
            if question.answers
        )
        for page, answers in zip(pages, box.answers(pages), strict=True)
    )


def _losses(box: GreyBox, canaries: Sequence[Canary]) -> dict[str, tuple[float, ...]]:
    """Returns the loss of each answer on its page, and of the refusal on the page without it."""

    def losses(pages: Sequence[Document]) -> tuple[float, ...]:
        replies: list[tuple[Reply, ...]] = box.replies(pages)
        return tuple(reply.loss for (reply,) in replies)

    return {
        TRAINED: losses([canary.page for canary in canaries]),
        BLOCKED: losses([_refusing(canary.removed) for canary in canaries]),
    }


def _refusing(page: Document) -> Document:
    """Returns the page with the refusal for its answer."""
    (question,) = page.questions
    refusal = dataclasses.replace(question, answers=(ANSWER_NOT_PRESENT,))
    return dataclasses.replace(page, questions=(refusal,))
