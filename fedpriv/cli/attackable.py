"""What `fedpriv attack RUN_DIR` tells where no attack is named: which are possible on this run."""

from __future__ import annotations

import textwrap
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from fedpriv.config import attack, catalogue, experiment
from fedpriv.config.overrides import key_of, values_of
from fedpriv.runtime.refusals import Mistakes
from fedpriv.runtime.run_folder import RunFolder
from fedpriv.studies.retraining import Rebuilt
from fedpriv.threat import runner
from fedpriv.threat.attack import NotApplicable, NotGranted
from fedpriv.threat.settings import AttackSettings
from fedpriv.threat.surfaces.base import AttackedRun

Groups = dict[str, list[str]]


@dataclass(frozen=True)
class Attackable:
    """Every attack of the catalogue, in one of three groups.

    Attributes:
        questions: that the attacks answer, by name.
        now: settings → attacks that the run grants with them; mostly with none, "".
        again: what to add when the run is made again → attacks that it then grants.
        never: reason → attacks that no such run grants.
    """

    questions: dict[str, str]
    now: Groups = field(default_factory=lambda: defaultdict(list))
    again: Groups = field(default_factory=lambda: defaultdict(list))
    never: Groups = field(default_factory=lambda: defaultdict(list))

    def lines(self) -> Iterator[str]:
        """Yields the groups as the command prints them."""
        for settings, names in sorted(self.now.items()):
            yield f"Possible now{settings and ' with '}{settings}:"
            yield from (f"  {name:<20} {self.questions[name]}" for name in names)
        groups = {
            "Possible if the run is made again with": self.again,
            "Never on this run, whatever it keeps": self.never,
        }
        for heading, group in groups.items():
            if group:
                yield f"{heading}:"
            for why, names in group.items():
                yield f"  {why}"
                yield textwrap.indent(textwrap.fill(", ".join(names), 96), "    ")


def attackable(folder: RunFolder, *, trust: bool) -> Attackable:
    """Asks of every attack whether it can be made on a run; nothing is attacked or trained.

    Args:
        folder: of the run.
        trust: whether code that the run's settings name may be run, though it is none of ours.

    Raises:
        Mistakes: if the run's settings name no model.
    """
    config = folder.config()
    build = experiment.model_of(config, str(folder.path))
    laboratory = Rebuilt.of(folder.path, lambda line: None, trust=trust)
    run = AttackedRun(folder, build, AttackSettings(), laboratory)
    found = Attackable(catalogue.described("attack"))
    for name in found.questions:
        settings = list[str]()
        try:
            reason = _refusal(run, name, settings)
        except Mistakes as error:  # an attack of the user's own that cannot be built
            found.never[" ".join(str(error).split())].append(name)
            continue
        if reason is None:
            found.now[" ".join(settings)].append(name)
        elif isinstance(reason, NotGranted):
            added = _added(reason, config.get("keep") or {})
            found.again[added].append(" ".join([name, *settings]))
        else:
            found.never[str(reason)].append(name)
    return found


def _refusal(run: AttackedRun, name: str, settings: list[str]) -> NotApplicable | None:
    """Returns why a run refuses an attack; adds the settings with which it would not."""
    while True:
        order = attack.parse([f"attack={name}", *settings])
        try:
            runner.check(order.attack, replace(run, settings=order))
        except NotApplicable as reason:
            if not reason.take or reason.take in settings:
                return reason
            settings.append(reason.take)
        else:
            return None


def _added(reason: NotGranted, kept: Iterable[str]) -> str:
    """Returns what grants an attack: settings, of which `keep=` also names what the run keeps."""
    keepers = values_of("keep", reason.again)
    others = [one for one in reason.again if key_of(one) != "keep"]
    if keepers:
        every = list(dict.fromkeys([*kept, *keepers]))
        others.insert(0, f"keep={every[0]}" if len(every) == 1 else f"keep=[{','.join(every)}]")
    return " ".join(others) or reason.remedy or str(reason)
