"""Who may use what of a run: surfaces, who has them, and the run that grants them.

A surface is something that an adversary may use, such as the updates that a server receives. Its
class says who has it, which settings it depends on, and what a run must keep for it; its method
`granted` takes it from a run, or raises `NotGranted` with the reason and with what would grant it.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from torch import Tensor, nn

from fedpriv.runtime.run_folder import FINAL, RunFolder
from fedpriv.runtime.torch_state import seeded_model
from fedpriv.threat.attack import NotGranted
from fedpriv.threat.settings import AttackSettings

if TYPE_CHECKING:
    from fedpriv.threat.surfaces.retrain import Laboratory

T = TypeVar("T")
InWords = tuple[str, ...]
"""The assumptions that go with a surface."""

TRANSCRIPT = "transcript"
PUBLIC = f"{TRANSCRIPT}/transcript.json"
"""What is public of a run whose messages were kept."""

WINDOWS = "fields/windows"
"""The scrubbed fields of a run that kept them."""


@dataclass(frozen=True)
class Observer:
    """Somebody who attacks.

    Attributes:
        name: among the adversaries of an assessment.
        who: in a sentence.
        title: as a heading.
    """

    name: str
    who: str
    title: str


COLLUDING = Observer(
    "colluding", "the server, told by colluding clients,", "The server, with clients that collude"
)
SERVER = Observer("server", "the server", "The server, honest but curious")
RECEIVER = Observer(
    "model", "whoever holds the model", "Whoever receives global models, with their weights"
)
HOLDER = Observer(
    "model", "whoever holds the model", "Whoever has the final model, with its weights"
)
ASKER = Observer(
    "model",
    "whoever can query the model",
    "Whoever can ask the final model, and sees confidence and loss",
)
READER = Observer(
    "answers",
    "whoever can query the model",
    "Whoever can ask the final model, and sees answers alone",
)
OBSERVERS = (COLLUDING, SERVER, RECEIVER, HOLDER, ASKER, READER)
"""Who has more comes first."""


class Surface:
    """Something that an adversary may use. A run grants it, or says why not.

    A subclass says of itself, as in ``class Replies(Surface, observer=READER)``:

    Attributes:
        observer: who has it; None where anybody may.
        keeper: what a run must keep for it, as in `keep=transcript`; "" for nothing.
        auditor: who alone has it, as a heading: not an adversary, but somebody who measures.
        takes: the settings that it depends on.
    """

    observer: ClassVar[Observer | None] = None
    keeper: ClassVar[str] = ""
    auditor: ClassVar[str] = ""
    takes: ClassVar[type[AttackSettings]] = AttackSettings

    def __init_subclass__(cls, **said: Any) -> None:
        super().__init_subclass__()
        for name, value in said.items():
            if not hasattr(cls, name):  # a misspelt one would be passed over
                raise TypeError(f"{cls.__name__}: a surface says nothing of {name!r}")
            setattr(cls, name, value)
        SURFACES[cls.__name__] = cls

    @classmethod
    def granted(cls, run: AttackedRun) -> tuple[Self, InWords]:
        """Returns what the run grants, and the assumptions that go with it, in words.

        Raises:
            NotGranted: if the run does not grant it.
            NotApplicable: if its model gives an attack nothing to work on.
        """
        raise NotImplementedError(f"{cls.__name__}.granted")

    @classmethod
    def check(cls, run: AttackedRun) -> None:
        """Asks whether the run grants it, as far as that can be known without a look at the truth.

        A subclass says how, without reading weights or messages. Where it does not, all is granted.

        Raises:
            NotGranted: if the run does not grant it.
            NotApplicable: if its model gives an attack nothing to work on.
        """
        cls.granted(run)


SURFACES: dict[str, type[Surface]] = {}
"""By name, as a result knows them; `fedpriv.threat.access` has ours."""


def observer(kinds: Iterable[type]) -> Observer | None:
    """Returns who has all of these; None where nothing of it says."""
    has = {getattr(kind, "observer", None) for kind in kinds}
    return next((one for one in OBSERVERS if one in has), None)


@dataclass(frozen=True)
class Models:
    """Builds models of the run's architecture.

    Attributes:
        build_model: takes `labels` and `task`.
        labels: of the entities, for models that tag.
        device: where all of them lie.
    """

    build_model: Callable[..., nn.Module]
    labels: tuple[str, ...]
    device: str = "cpu"

    def new(self, *, seed: int = 0, **other: Any) -> nn.Module:
        """Returns a model with weights that say nothing, unless a checkpoint is loaded."""
        made = seeded_model(lambda: self.build_model(labels=self.labels, **other), seed)
        return made.to(self.device)

    def with_state(self, state: Mapping[str, Tensor]) -> nn.Module:
        """Returns a model with these weights, in evaluation mode.

        Raises:
            ValueError: if they are another model's.
        """
        model = self.new()
        try:
            model.load_state_dict(state)
        except RuntimeError as error:
            raise ValueError(f"the weights are of another model: {error}") from error
        return model.eval()


@dataclass(frozen=True, eq=False)
class AttackedRun:
    """A run as the surfaces see it.

    Attributes:
        folder: of the run.
        build_model: returns a model of the run's architecture; takes `labels` and `task`.
        settings: of the attack.
        laboratory: rebuilds the run's experiment. None for a run that was started from Python.
        left_out: reason → how many documents, questions or providers are not granted for it.
    """

    folder: RunFolder
    build_model: Callable[..., nn.Module]
    settings: AttackSettings
    laboratory: Laboratory | None = None
    left_out: dict[str, int] = dataclasses.field(default_factory=dict)
    _made: dict[Callable[[AttackedRun], Any], Any] = dataclasses.field(default_factory=dict)

    def once(self, make: Callable[[AttackedRun], T]) -> T:
        """Returns what a function makes of this run, which it makes the first time only."""
        if make not in self._made:
            self._made[make] = make(self)
        made: T = self._made[make]
        return made

    @property
    def models(self) -> Models:
        """Builds the run's models; an attack may hold it, since it knows no path."""
        return Models(self.build_model, self.once(_labels), self.settings.on)

    def require(self, name: str) -> None:
        """Checks that the run has a file of weights.

        Raises:
            NotGranted: if it has none.
        """
        if not self.folder.has(name):
            raise NotGranted(
                f"{self.folder.path} has no {name}",
                "finishing the run (fedpriv resume RUN_DIR)"
                if name == FINAL
                else "keep=held_out or keep=scrubbed when the federation is run",
            )

    def state(self, name: str) -> dict[str, Tensor]:
        """Returns the weights in one of the run's files.

        Raises:
            NotGranted: if the run has none.
        """
        self.require(name)
        return self.folder.read_state(name) or {}


def blank(run: AttackedRun) -> nn.Module:
    """Returns a model of the run's architecture, whose weights say nothing."""
    return run.models.new()


def _labels(run: AttackedRun) -> tuple[str, ...]:
    """Returns the labels of the entities, which a tagging model is built with."""
    public = run.folder.read_json(PUBLIC)
    if public is None and run.folder.has(f"{WINDOWS}.safetensors"):
        _, public = run.folder.tensors(f"{WINDOWS}.safetensors", only_notes=True)
    return tuple((public or {}).get("labels", ()))


def wanted(access: type) -> dict[str, tuple[type[Surface], bool]]:
    """Returns, for each field of an access dataclass, its type and whether it is optional.

    Raises:
        TypeError: if the access is no dataclass of types that can be granted.
    """
    if not dataclasses.is_dataclass(access):
        raise TypeError(
            f"{access!r} is no access: expected a dataclass whose fields have the types of "
            "fedpriv.threat.access"
        )
    found: dict[str, tuple[type[Surface], bool]] = {}
    hints = typing.get_type_hints(access)
    for field in dataclasses.fields(access):
        hint = hints[field.name]
        union = typing.get_origin(hint) in (typing.Union, types.UnionType)
        kinds = [k for k in (typing.get_args(hint) if union else (hint,)) if k is not type(None)]
        if len(kinds) != 1 or not (isinstance(kinds[0], type) and issubclass(kinds[0], Surface)):
            known = ", ".join(sorted(SURFACES))
            raise TypeError(f"{access.__name__}.{field.name}: {hint} is none of {known}")
        if not any("granted" in vars(one) for one in kinds[0].__mro__ if one is not Surface):
            raise TypeError(
                f"{access.__name__}.{field.name}: nothing says when a run grants a "
                f"{kinds[0].__name__}: give it a class method `granted`"
            )
        found[field.name] = kinds[0], union
    return found
