"""What an adversary may use. An attack names what it takes by the types of its access.

The access of an attack is a frozen dataclass with one field for each thing that it uses::

    @dataclass(frozen=True)
    class LossAccess:
        model: GreyBox
        held_out: HeldOutDocuments
        public: PublicModel | None      # used where it is granted

`fedpriv.threat.grants` says for each type here when a run grants it. mypy sees to it that an attack
uses nothing else, and the report prints the threat model from these annotations. Nothing here
holds the truth, or a path to the run folder in which it lies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from fedpriv.data.document import Document
from fedpriv.data.examples import Examples
from fedpriv.threat.queries import BlackBox, GreyBox
from fedpriv.threat.retrain import Laboratory
from fedpriv.threat.surface import HOLDER, RECEIVER, SERVER, SURFACES, Surface
from fedpriv.threat.transcript import ColludingTranscript, Transcript

__all__ = [
    "SURFACES",
    "Architecture",
    "BatchKnowledge",
    "BlackBox",
    "ColludingTranscript",
    "FieldCandidates",
    "GreyBox",
    "HeldOutDocuments",
    "Known",
    "KnownMembershipSplit",
    "MessageKey",
    "ModelSeries",
    "PlantedCanaries",
    "PublicDocuments",
    "PublicModel",
    "Retrain",
    "ScrubbedField",
    "ScrubbedFields",
    "TrainingDocuments",
    "Transcript",
    "WhiteBox",
]

MessageKey = tuple[int, int | None]
"""Round and client of a message. The client is None for the aggregate of a round."""


@dataclass(frozen=True)
class Architecture(Surface):
    """The federation's model without its weights: architecture and tokenizer are public.

    Attributes:
        build: returns a new model. Its weights say nothing of the run, unless the run's model is
            loaded from a checkpoint: then so is this. With `task="mlm"` it returns a model of the
            same architecture for masked language modelling, with `pretrained=` one from another
            checkpoint, or raises `TypeError` where there is none.
    """

    build: Callable[..., nn.Module]


@dataclass(frozen=True)
class WhiteBox(Surface, onlooker=HOLDER):
    """One model of the run with its weights.

    Attributes:
        name: in words, such as "round 3" or "the end of the run".
        round: after which it was; 0 before the first.
        model: in evaluation mode.
        measured: its validation "loss" and "score", where they were measured.
    """

    name: str
    round: int
    model: nn.Module
    measured: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class ModelSeries(Surface, onlooker=RECEIVER):
    """The models that the setting `target` names, one or several.

    Attributes:
        models: builds each when it is asked for, in the order of their rounds.
    """

    models: tuple[Callable[[], WhiteBox], ...]


@dataclass(frozen=True)
class PublicModel(Surface):
    """The public model that training started from.

    Attributes:
        state: its weights, by name.
        answers: of the model. None if it answers no questions.
        confidence: the same with confidence and loss. None where they are not granted.
        build: returns a new model with these weights, in evaluation mode.
    """

    state: Mapping[str, Tensor]
    answers: BlackBox | None
    confidence: GreyBox | None
    build: Callable[[], nn.Module]


@dataclass(frozen=True)
class Known:
    """What the adversary is taken to know of the batch behind one message, B examples.

    Attributes:
        size: B.
        template: the pages with their private fields blank, (B, 3, H, W), uint8, in the model's
            resolution. None where no template is known, or the model reads no page.
        private: where the private fields are, (B, 1, H, W), bool. None without a template.
        text: the model's columns but `pixels`, each (B, …). None where the text is not given.
    """

    size: int
    template: NDArray[np.uint8] | None = None
    private: NDArray[np.bool_] | None = None
    text: Mapping[str, NDArray[Any]] | None = None


@dataclass(frozen=True)
class BatchKnowledge(Surface, onlooker=SERVER, keeper="transcript"):
    """What the adversary knows of the batches behind the messages, as the assumptions grant it.

    Attributes:
        of: by message.
    """

    of: Mapping[MessageKey, Known]


@dataclass(frozen=True)
class KnownMembershipSplit:
    """One split of the providers into those whose membership is known and those to be judged.

    Attributes:
        min_questions: s; providers with too few questions are in neither part (PFL-DocVQA, §7.2).
        repeat: its number among the splits of the same s.
        known: provider → whether it is a member; half of them are.
        unknown: the providers to be judged.
    """

    min_questions: int
    repeat: int
    known: Mapping[str, bool]
    unknown: tuple[str, ...]


@dataclass(frozen=True)
class HeldOutDocuments(Surface, keeper="held_out"):
    """Documents of providers that may have been trained on. None of the documents was.

    Attributes:
        documents: of each provider, each with questions whose answers the adversary knows.
        splits: for attacks that are told some members; any other judges all providers once. What
            is known in one split is not to be used in another. Empty where too few are left.
    """

    documents: Mapping[str, tuple[Document, ...]]
    splits: tuple[KnownMembershipSplit, ...] = ()


@dataclass(frozen=True)
class PlantedCanaries(HeldOutDocuments, auditor="An auditor, who planted documents"):
    """Documents of planted providers, each in the training set or left out by a fair coin.

    Nobody may know a coin before the attack is scored, so there are no splits.
    """


@dataclass(frozen=True)
class ScrubbedField:
    """A field of k tokens that is to be reconstructed.

    Attributes:
        number: its row in `ScrubbedFields.examples`.
        document: id of its document.
        key: its label, such as "date".
        places: (k,), ascending positions in the row's `input_ids` that hold [MASK].
    """

    number: int
    document: str
    key: str
    places: tuple[int, ...]


@dataclass(frozen=True)
class ScrubbedFields(Surface, keeper="scrubbed"):
    """Documents with one field masked at a time, F fields.

    Some are of documents that were trained on, the others of documents held out, on which the same
    attack shows what is no memory. The adversary does not know which, and an attack must judge each
    field by its own window.

    Attributes:
        fields: F.
        examples: F rows, the window of each field as the model reads it: its tokens masked and,
            where the model reads pages, white in the shared "pixels"; other fields as they are.
            The labels y are those of the unmasked window: they are public (CDMI, §3.2).
        text: turns token ids into text; the tokenizer is public.
        left_out: reason → number of fields that cannot be attacked.
    """

    fields: tuple[ScrubbedField, ...]
    examples: Examples
    text: Callable[[Sequence[int]], str]
    left_out: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class FieldCandidates(Surface, keeper="scrubbed"):
    """Scrubbed fields, each with a list of values that may have stood there, in random order.

    Some fields are of documents that were trained on, the others of documents held out, on which
    the same attack shows what is no memory. As with all scrubbed fields, an attack must judge each
    by its own window and list.

    Attributes:
        scrubbed: the fields of both.
        lists: number of a field → C candidates, each the ids of its k tokens, no two alike. What
            is in them is said at `fedpriv.threat.candidates.Candidates`.
        given: whether the true value was put into each list.
    """

    scrubbed: ScrubbedFields
    lists: Mapping[int, Sequence[tuple[int, ...]]]
    given: bool = True


@dataclass(frozen=True)
class PublicDocuments(Surface, keeper="scrubbed"):
    """The adversary's own documents, in full. None was trained on."""

    documents: tuple[Document, ...]


@dataclass(frozen=True)
class TrainingDocuments(Surface, auditor="An auditor, who chose the training documents"):
    """The documents that the run trained on, with their questions and answers.

    No adversary has them. An audit does: it asks a model for what it was trained on, without the
    answer, and counts which answers it gives away.

    Attributes:
        training: in the order in which they were trained on.
        held_out: not trained on.
        seed: of the run.
        threads: of torch.
        device: where models are asked.
    """

    training: tuple[Document, ...]
    held_out: tuple[Document, ...]
    seed: int
    threads: int
    device: str


@dataclass(frozen=True)
class Retrain(Surface):
    """Trains variants of the run's experiment. What was trained is not trained again.

    Attributes:
        laboratory: trains, and asks the models, on all cores.
    """

    laboratory: Laboratory
