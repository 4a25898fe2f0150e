"""Runs an attack on a run folder: grant what it asks for, let it claim, open the truth, score.

Every attack goes this way. Its access is built from what the run grants, and holds no path to the
folder. Only when it has handed back its claims is the truth opened, by their scorers.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from torch import nn

import fedpriv.threat.scoring.all  # noqa: F401 - registers the scorers
from fedpriv.metrics.learnt import SAYS_LITTLE, little_learnt
from fedpriv.runtime.cache import private_folder
from fedpriv.runtime.run_files import Damaged
from fedpriv.runtime.run_folder import FINDINGS, LEDGER, METRICS, RESULT, RunFolder, check_name
from fedpriv.runtime.seeds import entropy
from fedpriv.runtime.torch_state import reproducible_torch
from fedpriv.runtime.workers.fork_server import cpu_seconds
from fedpriv.threat.attack import (
    AttackContext,
    NotApplicable,
    NotGranted,
    Outline,
    Remarks,
    told_once,
)
from fedpriv.threat.results import (
    NOT_APPLICABLE,
    NOT_GRANTED,
    NOTHING_CLAIMED,
    REFUSED,
    Files,
    Result,
    joined,
    read_result,
    write_result,
)
from fedpriv.threat.scoring.registry import SCORERS, Scoring, by_kind, claims_of
from fedpriv.threat.settings import AttackSettings, composed, not_taken, taken
from fedpriv.threat.surfaces.base import (
    ASKER,
    HOLDER,
    PUBLIC,
    READER,
    AttackedRun,
    Surface,
    blank,
    observer,
    wanted,
)
from fedpriv.threat.surfaces.batches import fewest_known
from fedpriv.threat.surfaces.retrain import Laboratory
from fedpriv.threat.truth import TruthStore

A = TypeVar("A")
S = TypeVar("S", bound=AttackSettings)


@dataclass(frozen=True)
class ThreatModel:
    """What an attack asks for and hands back, from the annotations of its `run`.

    Attributes:
        access: a dataclass.
        wants: field of the access → type, and whether it is optional.
        claims: types that may be handed back.
    """

    access: type
    wants: Mapping[str, tuple[type[Surface], bool]]
    claims: tuple[type, ...]

    @classmethod
    def of(cls, attack: Any) -> ThreatModel:
        """Reads the annotations.

        Raises:
            TypeError: if there are none, or not such as can be granted.
        """
        hints = typing.get_type_hints(attack.run)
        # An attack that wraps another one says itself what that one asks for.
        access = getattr(attack, "access_type", None) or hints.get("access")
        if not isinstance(access, type):
            raise TypeError(
                f"{type(attack).__name__}.run does not say what it may use: annotate its first "
                "argument, `access`, with a dataclass of types of fedpriv.threat.access"
            )
        return cls(access, wanted(access), tuple(claims_of(hints.get("return"))))

    def settings(self, base: type[S]) -> type[S]:
        """Returns a subclass of `base` with all settings that the attack depends on."""
        scored = [SCORERS[claim].settings for claim in self.claims if claim in SCORERS]
        return composed([*(kind.takes for kind, _ in self.wants.values()), *scored], base)

    def settings_of(self, base: type[S], given: Mapping[str, Any]) -> S:
        """Returns the settings that are given by name, in such a subclass.

        Raises:
            ValueError: if the attack takes no setting of a name, or one is out of range.
        """
        kind = self.settings(base)
        if idle := not_taken(kind, given):
            raise ValueError("; ".join(idle.values()))
        return kind(**given)

    def reads(self) -> set[str]:
        """Returns the names of the settings that the attack depends on, but for the usual ones."""
        usual = {*taken(AttackSettings)}
        return {*taken(self.settings(AttackSettings))} - usual


@dataclass(frozen=True)
class Granted:
    """What a run grants of what an attack wants.

    Attributes:
        surfaces: by type.
        assumptions: in words.
        refused: type → why it is not granted.
    """

    surfaces: dict[type, Any] = field(default_factory=dict)
    assumptions: list[str] = field(default_factory=list)
    refused: dict[type, str] = field(default_factory=dict)


def check(attack: Any, run: AttackedRun) -> None:
    """Asks whether an attack can be made on a run, as far as that can be known in advance.

    Neither the truth nor a message or the weights of a model are read.

    Raises:
        NotGranted: if the run does not grant something that is not optional; it names all of it.
        NotApplicable: if the run's model gives the attack nothing to work on.
    """
    if suits := getattr(attack, "suits", None):
        public = run.folder.read_json(PUBLIC)
        masked = run.folder.config().get("masking") if public is None else public.get("masked")
        suits(Outline(run.once(blank), bool(masked), run.once(fewest_known), run.settings))
    missing = dict[str, NotGranted]()
    for kind, optional in ThreatModel.of(attack).wants.values():
        try:
            kind.check(run)
        except NotGranted as reason:
            if not optional:
                missing[str(reason)] = reason
    if missing:
        again = dict.fromkeys(setting for one in missing.values() for setting in one.again)
        take = next((one.take for one in missing.values() if one.take), "")
        raise NotGranted("; ".join(missing), take=take, again=[*again])


def grant(threat_model: ThreatModel, run: AttackedRun) -> Granted:
    """Grants what can be granted.

    Raises:
        NotGranted: if something that is not optional is missing; it names all that is.
        NotApplicable: if the run's model gives the attack nothing to work on.
    """
    found, missing = Granted(), []
    for kind, optional in threat_model.wants.values():
        try:
            found.surfaces[kind], words = kind.granted(run)
            found.assumptions.extend(words)
        except NotGranted as reason:
            found.refused[kind] = str(reason)
            if not optional:
                missing.append(f"{kind.__name__}: {reason}")
    if missing:
        raise NotGranted("; ".join(missing))
    return found


def supplied(access: type[A], surfaces: Mapping[type, Any]) -> A:
    """Returns an access with surfaces by type; None where an optional one is not among them.

    A surface also serves where its base class is asked for.

    Raises:
        NotGranted: if one is missing that is not optional.
    """
    values: dict[str, Any] = {}
    for name, (kind, optional) in wanted(access).items():
        value = surfaces.get(kind)
        if value is None:
            value = next((s for k, s in surfaces.items() if issubclass(k, kind)), None)
        if value is None and not optional:
            raise NotGranted(f"{kind.__name__} is missing", "an access that has it")
        values[name] = value
    return access(**values)


def run_attack_on(
    run_dir: Path | str,
    attack: Any,
    build_model: Callable[..., nn.Module],
    *,
    name: str,
    settings: AttackSettings | Mapping[str, Any] | None = None,
    laboratory: Laboratory | None = None,
    log: Callable[[str], None] = lambda line: None,
) -> Result:
    """Attacks a run, and writes `findings/<name>/`.

    Args:
        run_dir: of a finished run.
        attack: anything with `run(access, context)`; see `fedpriv.threat.attack.Attack`.
        build_model: the architecture, as the federation was given it.
        name: of the folder under `findings`.
        settings: what the adversary is taken to have, and how it is scored, by name.
        laboratory: rebuilds the run's experiment, for attacks that train variants of it.
        log: shows one line of progress.

    Raises:
        NotARunFolder: if it is none.
        InUse: if an attack of this name is being made on it.
        Damaged: if a file of the run cannot be used; it is named.
        TypeError: if the attack does not say what it may use.
        ValueError: if a setting has no effect on this attack, or the run is of another model.
    """
    check_name(name)
    threat_model = ThreatModel.of(attack)
    if not isinstance(settings, AttackSettings):
        settings = threat_model.settings_of(AttackSettings, settings or {})
    folder = RunFolder.existing(run_dir)
    about = {"attack": repr(attack)} | {
        one.name: repr(getattr(settings, one.name)) for one in dataclasses.fields(settings)
    }
    with folder.writing("attack", about, name):
        run = AttackedRun(folder, build_model, settings, laboratory)
        result, files = _result(attack, threat_model, run, log)
        shown = {key: about[key] for key in ("attack", *sorted(threat_model.reads()), "seed")}
        result = dataclasses.replace(result, settings=shown)
        earlier = _found_before(folder, name)
        if earlier is not None and result.refused:
            log(f"{FINDINGS}/{name} keeps what an earlier attack found there")
            return result
        if earlier is not None and earlier.settings != result.settings:
            log(
                f"{FINDINGS}/{name} held a result of other settings, now replaced; name= keeps both"
            )
        write_result(folder, name, result, files)
        return result


def _found_before(folder: RunFolder, name: str) -> Result | None:
    """Returns the result that is there; None where nothing was found, or none can be read."""
    try:
        result = read_result(folder.read_json(f"{FINDINGS}/{name}/{RESULT}") or {})
    except (Damaged, ValueError):
        return None
    return None if result.refused or result.status == NOTHING_CLAIMED else result


def _result(
    attack: Any, threat_model: ThreatModel, run: AttackedRun, log: Callable[[str], None]
) -> tuple[Result, Files]:
    settings = run.settings
    # The same for every attack, so that in a table all start alike; and able to spawn others.
    rng = np.random.default_rng(entropy(settings.seed, "attack"))
    kind = next((claim.__name__ for claim in threat_model.claims), "none")
    names = {k.__name__: False for k, _ in threat_model.wants.values()}
    try:
        with reproducible_torch(settings.threads, settings.on):
            granted = grant(threat_model, run)
            names |= {k.__name__: True for k in granted.surfaces}
            context = AttackContext(rng, log, private_folder("attacks"), Remarks(), granted.refused)
            access: Any = supplied(threat_model.access, granted.surfaces)
            began = cpu_seconds()
            claimed = attack.run(access, context)
            seconds = cpu_seconds() - began
    except NotApplicable as reason:
        said, status = "not applicable:", NOT_APPLICABLE
        if isinstance(reason, NotGranted):
            said, status = "not granted, because", NOT_GRANTED
        return Result(
            kind,
            f"{said} {reason}",
            status=status,
            threat_model=names,
            verdict=REFUSED,
            public=_is_ours(type(attack)),
        ), {}
    scoring = Scoring(
        truth=TruthStore(run.folder),
        granted=granted.surfaces,
        settings=settings,
        rng=np.random.default_rng(entropy(settings.seed, "scoring")),
        seconds=seconds,
        ledger=run.folder.read_json(LEDGER),
        remarks=context.remarks,
    )
    claims_by_kind = by_kind(claimed)
    results = [SCORERS[of].score(claims, scoring) for of, claims in claims_by_kind.items()]
    scorers = [SCORERS[of].score for of in claims_by_kind]
    remarks = context.remarks
    files = dict(scoring.files) | {f"{n}.png": pixels for n, pixels in remarks.pictures.items()}
    about_the_model = observer(granted.surfaces) in (HOLDER, ASKER, READER)
    if about_the_model and (little := little_learnt(run.folder.records(METRICS))):
        remarks.notes.append(f"{little} {SAYS_LITTLE}".rstrip("."))
    nothing = Result(kind, "the attack handed back no claim", status=NOTHING_CLAIMED)
    whole = joined(results) if results else nothing
    return dataclasses.replace(
        whole,
        details={"seconds": seconds, **whole.details, **remarks.details},
        notes=tuple(told_once((*whole.notes, *remarks.notes))),
        assumptions=tuple(dict.fromkeys(granted.assumptions)),
        left_out={**run.left_out, **whole.left_out, **remarks.left_out},
        not_applicable=remarks.not_applicable,
        threat_model=names,
        public=all(map(_is_ours, (type(attack), *scorers))),
    ), files


def _is_ours(written: Any) -> bool:
    """Says whether a class or function is part of fedpriv, whose texts quote no document."""
    return str(written.__module__).partition(".")[0] == "fedpriv"
