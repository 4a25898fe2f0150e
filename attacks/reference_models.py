"""Models of the adversary's own, each trained on documents of half of the providers.

What LiRA and RMIA compare the final model with. They are not the federation's: it saw other
documents of a provider, in other numbers and other steps.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from fedpriv.data.document import Document
from fedpriv.data.examples import Examples
from fedpriv.models.question_answering import DOCUMENT, QUESTION, QuestionAnswerer
from fedpriv.runtime.torch_state import isolated_randomness, reproducible_torch
from fedpriv.runtime.workers.jobs import Pool
from fedpriv.runtime.workers.ray_session import RaySettings
from fedpriv.threat.access import GreyBox, HeldOutDocuments, PublicModel
from fedpriv.threat.attack import AttackContext, NotApplicable, answering
from fedpriv.threat.checks import check_choices, check_least, check_share
from fedpriv.threat.kept import Kept
from fedpriv.threat.queries import losses
from fedpriv.training.loops import Optimizer, train_steps

Row = NDArray[np.float64]
"""One number for each provider, or for each question."""
Table = NDArray[np.float64]
"""One row for each reference model."""
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class ReferenceAccess:
    """The losses of the final model, and the public one, which the references start from."""

    model: GreyBox
    public: PublicModel
    held_out: HeldOutDocuments


@dataclass(frozen=True)
class OnReferences:
    """An attack that holds the final model against reference models.

    Args:
        references: K, the number of reference models, each trained on half of the providers.
        steps: the number of training steps of each reference model. It should be about
            as many as the final model took on the documents of one provider.
        batch_size: the number of examples in a training step of a reference model.
        optimizer: the optimiser of the reference models.
        train_share: the share of a provider's documents that reference models may be trained on;
            the final model is asked about the others. A provider with a single document is only
            asked about.
        workers: the number of reference models that are trained side by side, each in a process of
            its own. 0 trains one after the other. It does not change the scores.
    """

    references: int
    steps: int = 200
    batch_size: int = 8
    optimizer: Optimizer = Optimizer()  # noqa: RUF009 - frozen
    train_share: float = 0.5
    workers: int = 0

    def __post_init__(self) -> None:
        check_choices(self)
        check_least(self, 1, "steps", "batch_size")
        check_least(self, 0, "workers")
        check_share(self, "train_share")

    def trained(
        self,
        public: PublicModel,
        taught: Mapping[str, Sequence[Document]],
        asked: Mapping[str, Sequence[Document]],
        trained_on: Mask,
        context: AttackContext,
    ) -> Asked:
        """Trains references from the public model, and asks each all questions.

        Args:
            public: the model that training starts from.
            taught: what a reference that is trained on a provider is trained on.
            asked: what all are asked.
            trained_on: which of the taught providers each is trained on, (references, providers).
            context: of the attack.
        """
        model = answering(public.build())
        lessons, owners = encoded(model, taught)
        questions, asked_of = encoded(model, asked)
        course = Course(
            model,
            lessons,
            questions,
            self.optimizer,
            self.steps,
            self.batch_size,
            torch.get_num_threads(),
            context.scratch / "references",
        )
        jobs = {
            f"reference {number}": course.reference(np.flatnonzero(inside[owners]), context.rng)
            for number, inside in enumerate(trained_on, 1)
        }
        pool = Pool(self.workers, RaySettings(), context.log)
        of_all = pool.map(functools.partial(reference_losses, course), jobs)
        table = np.array([of_all[name] for name in jobs])
        context.remarks.notes.append(
            f"{self.references} reference models of {self.steps} steps, each on half of the "
            "suppliers; the final model was asked about other documents than they were trained on"
        )
        return Asked(table, asked_of, questions.column(QUESTION))


@dataclass(frozen=True)
class Reference:
    """What tells one reference model from the others.

    Attributes:
        rows: of the lessons that it is trained on.
        seed: of dropout and the like.
        shuffle: draws the order of the lessons; a generator of its own.
    """

    rows: NDArray[np.int64]
    seed: int
    shuffle: np.random.Generator


@dataclass(frozen=True)
class Course:
    """What all reference models have in common.

    Attributes:
        model: the public one, that training starts from.
        lessons: documents that references are trained on.
        questions: what they are asked.
        optimizer: of each.
        steps: that each takes.
        batch_size: of each step.
        threads: of torch.
        folder: where the losses of each are kept, for a run that takes up an interrupted one.
    """

    model: QuestionAnswerer
    lessons: Examples
    questions: Examples
    optimizer: Optimizer
    steps: int
    batch_size: int
    threads: int
    folder: Path

    def reference(self, rows: NDArray[np.int64], rng: np.random.Generator) -> Reference:
        """Returns a reference, and leaves the generator as its training would."""
        own = Reference(rows, int(rng.integers(2**31)), copy.deepcopy(rng))
        batches = -(-len(rows) // self.batch_size)
        for _ in range(-(-self.steps // batches) if batches else 0):
            rng.permutation(len(rows))
        return own

    def trained(self, reference: Reference) -> QuestionAnswerer:
        """Returns a reference model: the public model, trained on some of the lessons."""
        with isolated_randomness(reference.seed):
            model = copy.deepcopy(self.model).train()
            train_steps(
                model,
                self.lessons.take(reference.rows),
                self.optimizer.build(model),
                steps=self.steps,
                batch_size=self.batch_size,
                shuffle=copy.deepcopy(reference.shuffle),
                device=model.device,
            )
        return model.eval()

    def kept(self, reference: Reference) -> Kept:
        """Returns the file of the losses of a reference."""
        return Kept.of(
            self.folder,
            "losses",
            model=self.model,
            lessons=self.lessons.take(reference.rows),
            questions=self.questions,
            training=[self.optimizer, self.steps, self.batch_size, self.threads],
            device=self.model.device.type,
            seed=[reference.seed, str(reference.shuffle.bit_generator.state)],
        )


def reference_losses(course: Course, reference: Reference) -> list[float]:
    """Returns the losses of one reference model on all questions; trains it if need be."""
    kept = course.kept(reference)
    losses: list[float] | None = kept.state()
    if losses is None:
        with reproducible_torch(course.threads, str(course.model.device)):
            losses = losses_of(course.trained(reference), course.questions).tolist()
        kept.write(losses)
    return losses


@dataclass(frozen=True)
class Asked:
    """What the references said to the questions that all of them were asked.

    Attributes:
        losses: (references, examples); of a page in several windows, each has the mean over them.
        owner: (examples,), the place of the provider of each.
        question: (examples,), which question each is of.
    """

    losses: Table
    owner: NDArray[np.int64]
    question: NDArray[np.int64]


def split(
    documents: Mapping[str, Sequence[Document]], train_share: float, rng: np.random.Generator
) -> tuple[dict[str, list[Document]], dict[str, list[Document]]]:
    """Parts each provider's documents at random into those to train on and those to ask about.

    Each part gets one at least; a single document is only asked about.
    """
    taught: dict[str, list[Document]] = {}
    asked: dict[str, list[Document]] = {}
    for provider, pages in documents.items():
        mixed = [pages[place] for place in rng.permutation(len(pages))]
        some = min(max(round(train_share * len(pages)), 1), len(pages) - 1)
        taught[provider], asked[provider] = mixed[:some], mixed[some:]
    return taught, asked


def balanced_halves(count: int, eligible: Sequence[bool], rng: np.random.Generator) -> Mask:
    """Returns who is in which half, (count, providers): each eligible one in half of the halves.

    They come in pairs: a random half, and all others. Who is not eligible is in none.
    """
    places = np.flatnonzero(eligible)
    halves = np.zeros((count, len(eligible)), np.bool_)
    for pair in range(0, count, 2):
        mixed = rng.permutation(places)
        halves[pair, mixed[: len(mixed) // 2]] = True
        halves[pair + 1, mixed[len(mixed) // 2 :]] = True
    return halves


def encoded(
    model: QuestionAnswerer, documents: Mapping[str, Sequence[Document]]
) -> tuple[Examples, NDArray[np.int64]]:
    """Returns all documents as examples, and the place of each example's provider."""
    pages = [page for own in documents.values() for page in own]
    owners = np.repeat(np.arange(len(documents)), [len(own) for own in documents.values()])
    examples = model.encode(pages)
    return examples, owners[examples.column(DOCUMENT)]


def losses_of(model: QuestionAnswerer, examples: Examples) -> NDArray[np.float64]:
    """Returns the loss on each example, (examples,); a grey box' replies, but without answers.

    Of a page that is read in several windows, each window gets the mean over them.
    """
    numbers = np.unique(examples.column(QUESTION), return_inverse=True)[1]
    with torch.no_grad():
        return np.array(losses(model, examples))[numbers]


def mean_of(owner: NDArray[np.int64], values: Row) -> Row:
    """Returns the mean of each owner's values, (owners,)."""
    mean: Row = np.bincount(owner, values) / np.bincount(owner)
    return mean


def means_where(references: Table, chosen: Mask) -> Row:
    """Returns the means of the chosen references, (columns,); NaN where none is."""
    times = chosen.sum(axis=0)
    sums = np.where(chosen, references, 0.0).sum(axis=0)
    means: Row = np.divide(sums, times, out=np.full(len(sums), np.nan), where=times > 0)
    return means


def check_finite(signals: Row, whose: str) -> None:
    """Checks one signal of each provider.

    Raises:
        NotApplicable: if one is not finite.
    """
    if wrong := int((~np.isfinite(signals)).sum()):
        raise NotApplicable(
            f"the losses of {whose} are not finite for {wrong} suppliers: has it diverged?"
        )
