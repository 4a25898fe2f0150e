"""What an adversary may use. An attack names what it takes by the types of its access.

The access of an attack is a frozen dataclass with one field for each thing that it uses::

    @dataclass(frozen=True)
    class LossAccess:
        model: GreyBox
        held_out: HeldOutDocuments
        public: PublicModel | None      # used where it is granted

Each type says itself when a run grants it (`fedpriv.threat.surfaces`). mypy sees to it that an
attack uses nothing else, and the report prints the threat model from these annotations. Nothing
here holds the truth, or a path to the run folder in which it lies.
"""

from fedpriv.threat.surfaces.base import SURFACES, Surface
from fedpriv.threat.surfaces.batches import BatchKnowledge, Known
from fedpriv.threat.surfaces.fields import (
    FieldCandidates,
    PublicDocuments,
    ScrubbedField,
    ScrubbedFields,
)
from fedpriv.threat.surfaces.held_out import (
    HeldOutDocuments,
    KnownMembershipSplit,
    PlantedCanaries,
)
from fedpriv.threat.surfaces.models import (
    Architecture,
    BlackBox,
    GreyBox,
    ModelSeries,
    PublicModel,
    WhiteBox,
)
from fedpriv.threat.surfaces.retrain import Retrain, TrainingDocuments
from fedpriv.threat.surfaces.transcript import ColludingTranscript, Transcript
from fedpriv.threat.truth import MessageKey

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
    "Surface",
    "TrainingDocuments",
    "Transcript",
    "WhiteBox",
]
