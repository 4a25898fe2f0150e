"""Attacks that reconstruct scrubbed fields of the documents that a model was trained on (CDMI, §3).

The adversary holds the model, and each document with one field masked. It hands back its guesses
for each field; what stood there is in none of its arguments (`fedpriv.threat.truth`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fedpriv.data.document import Document
from fedpriv.data.examples import Examples
from fedpriv.models.field_model import FieldModel, TokenModel
from fedpriv.threat.access import ScrubbedField
from fedpriv.threat.attack import Workbench
from fedpriv.threat.claims import Reconstruction


@dataclass(frozen=True)
class Scrubbed:
    """What the adversary holds of the private documents, F fields.

    Attributes:
        fields: F.
        examples: F rows, the window of each field as the model reads it: its tokens masked and,
            where the model reads pages, white in the shared "pixels"; other fields as they are.
            The labels y are those of the unmasked window: they are public (CDMI, §3.2).
        public: documents that were not trained on, in full.
        labels: of the entities.
        assumptions: in words, for the report.
    """

    fields: tuple[ScrubbedField, ...]
    examples: Examples
    public: tuple[Document, ...]
    labels: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()


@dataclass(frozen=True)
class WhiteBox:
    """The model under attack, and how to make others like it.

    Attributes:
        target: with the weights under attack, in evaluation mode.
        build_generator: returns a model of the same architecture for masked language modelling,
            with the public weights that training started from, or none; its own at each call.
    """

    target: FieldModel
    build_generator: Callable[[], TokenModel]


@dataclass(frozen=True)
class Reconstructions:
    """What an attack hands back.

    Attributes:
        fields: of those that could be attacked.
        membership: the confidence by which the attack chooses and sorts; all are scored.
        left_out: reason → number of fields.
        notes: what a reader must know.
        details: further numbers for metrics.json.
    """

    fields: tuple[Reconstruction, ...]
    membership: str
    left_out: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    details: Mapping[str, float | int | str] = field(default_factory=dict)


@runtime_checkable
class FieldAttack(Protocol):
    """An attack on scrubbed fields: a frozen dataclass of settings with one method.

    Example:
        The likeliest token of a target that guesses masked words, against no guess at all::

            import dataclasses
            import numpy as np
            import torch
            from fedpriv.threat.attack import NotApplicable
            from fedpriv.threat.claims import Attempt, PUBLIC, Reconstruction
            from fedpriv.threat.fields_game import Reconstructions
            from fedpriv.models.field_model import TokenModel

            @dataclasses.dataclass(frozen=True)
            class Greedy:
                def reconstruct(self, box, scrubbed, bench):
                    if not isinstance(box.target, TokenModel):
                        raise NotApplicable("it takes a target of the task mlm")
                    found = []
                    for field in scrubbed.fields:
                        batch = scrubbed.examples.batch(np.array([field.number]))
                        tokens = tuple(
                            int(box.target.token_scores(batch, torch.tensor([place])).argmax())
                            for place in field.places
                        )
                        mine = Attempt(tokens, {"none": 0.0})
                        nothing = Attempt((0,) * len(tokens), {PUBLIC: 0.0})
                        found.append(Reconstruction(field.number, (mine,), (nothing,)))
                    return Reconstructions(tuple(found), "none")
    """

    def reconstruct(self, box: WhiteBox, scrubbed: Scrubbed, bench: Workbench) -> Reconstructions:
        """Reconstructs the fields.

        Raises:
            NotApplicable: if this model gives the attack nothing to work on.
        """
        ...


@dataclass(frozen=True)
class TrueField:
    """What stood in a field, for the scoring only.

    Attributes:
        tokens: (k,), ids.
        text: as the document has it.
        occurrences: documents of the training set with an entity of that text (lower-cased).
        public: public documents with such a one: the adversary can know it without the model.
    """

    tokens: tuple[int, ...]
    text: str
    occurrences: int = 1
    public: int = 0


def subset(scrubbed: Scrubbed, numbers: Sequence[int] | NDArray[Any]) -> Scrubbed:
    """Returns the same with some fields only; rows and numbers stay."""
    wanted = {int(number) for number in np.asarray(numbers)}
    kept = tuple(field for field in scrubbed.fields if field.number in wanted)
    return Scrubbed(kept, scrubbed.examples, scrubbed.public, scrubbed.labels, scrubbed.assumptions)
