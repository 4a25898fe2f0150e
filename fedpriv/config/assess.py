"""Assessments: one experiment trained under every defence, and every attack made on each training.

`matrix.yaml` among the experiments names adversaries, defences and attacks. One training under one
defence and one seed is observed by every surface that the attacks ask for, so it serves them all.
Trainings with the same settings are one. What is done is found again by its settings: repeating the
command goes on with an assessment that was interrupted. `fedpriv.report.assessment` reads what the
run folders hold.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import shlex
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fedpriv.config import attack, catalogue, experiment, retraining, running, yaml_file
from fedpriv.config.attack import Order
from fedpriv.config.construct import near
from fedpriv.config.experiment import Mistakes
from fedpriv.config.resumable import digest, newest
from fedpriv.federation.loop import Unworkable
from fedpriv.federation.private_strategy import PrivateStrategy
from fedpriv.models.field_model import as_field_model
from fedpriv.models.question_answering import QuestionAnswerer
from fedpriv.report.assessment import ALARM_LEVEL, COST, ERRORS, JSON, NONE, PLAN, RUNS, START
from fedpriv.report.build import write_report
from fedpriv.report.wording import aligned, counted, show_bytes, show_seconds
from fedpriv.runtime import run_lock, versions
from fedpriv.runtime.memory import watched_memory
from fedpriv.runtime.run_folder import FINAL, FINDINGS, METRICS, RESULT, RunFolder
from fedpriv.runtime.torch_state import seeded_model
from fedpriv.runtime.workers.jobs import JobsFailed, Pool, reason_of
from fedpriv.runtime.workers.ray_session import RaySettings
from fedpriv.threat import access
from fedpriv.threat.attack import NotApplicable
from fedpriv.threat.mechanism import NAME as AUDIT
from fedpriv.threat.runner import ThreatModel

MATRIX = "matrix.yaml"

OURS = ("seed", "keep", "strategy", "masking", "attack", "federation.workers", "federation.report")
"""Settings that an assessment makes itself."""

KEEPERS: dict[str, tuple[type, ...]] = {
    "transcript": (access.Transcript, access.BatchKnowledge),
    "held_out": (access.HeldOutDocuments, access.PlantedCanaries),
    "scrubbed": (access.ScrubbedFields, access.FieldCandidates, access.PublicDocuments),
}
"""What a run must keep for what an attack may use."""

LEFT_OUT = "left out to fit into"

ASKED = (access.BlackBox, access.GreyBox)
"""What only a model that answers questions grants."""

PROBED = 2
"""Rounds of a training that are run to foretell how long it takes."""


@dataclass(frozen=True)
class Defence:
    """A defence that is compared.

    Attributes:
        name: of its row.
        told: what it is, in words.
        run: overrides of the experiment.
        attack: overrides of the attacks that read these settings.
        answers: whether it is for models that answer questions.
        refused: why the experiment cannot be combined with it; "" if it can.
    """

    name: str
    told: str
    run: tuple[str, ...]
    attack: tuple[str, ...] = ()
    answers: bool = False
    refused: str = ""


@dataclass(frozen=True)
class Asked:
    """An attack that is made on every training.

    Attributes:
        name: of its column.
        adversary: who makes it where sums are not masked.
        overrides: as `fedpriv attack` takes them.
        masked: more of them, where sums are masked.
        minutes: that it takes on one training of a tiny model, about.
        withheld: why no training of the experiment grants what it needs; "" if one may.
    """

    name: str
    adversary: str
    overrides: tuple[str, ...]
    masked: tuple[str, ...] = ()
    minutes: float = 0.5
    withheld: str = ""

    def order(self, defence: Defence, seed: int, *, masked: bool) -> tuple[str, ...]:
        """Returns its overrides against a defence, under the seed of the training."""
        against = self.reads(defence)
        return (*self.overrides, *(self.masked if masked else ()), *against, f"seed={seed}")

    def reads(self, defence: Defence) -> list[str]:
        """Returns the overrides of a defence that the attack reads."""
        reads = ThreatModel.of(attack.parse(self.overrides, self.name).attack).reads()
        return [one for one in defence.attack if one.partition("=")[0] in reads]


@dataclass(frozen=True)
class Training:
    """One training, with everything resolved.

    Attributes:
        defence: that it is under; `START` for the model that all start from.
        seed: of its data, its draws and its attacks.
        config: its settings.
        overrides: of the experiment, which `fedpriv run` takes.
        orders: overrides of each attack on it, by the attack's name.
    """

    defence: str
    seed: int
    config: dict[str, Any] = field(repr=False)
    overrides: tuple[str, ...]
    orders: Mapping[str, tuple[str, ...]]

    @property
    def run(self) -> str:
        """The name of its folder, the same for the same settings."""
        kept = {k: v for k, v in self.config.items() if k not in ("runs", experiment.COMPOSED)}
        return digest(kept)


@dataclass(frozen=True)
class Assessment:
    """What is going to be trained and attacked.

    Attributes:
        experiment: that is assessed.
        overrides: of it, for all defences.
        defences: in the order of the rows.
        attacks: in the order of the columns.
        seeds: of the trainings.
        adversaries: who they are, and the ledger's view that holds against them, by name.
        trainings: of the defences that the experiment can be combined with.
        command: that makes it.
        hours: into which it is to fit; None for as long as it takes.
    """

    experiment: str
    overrides: tuple[str, ...]
    defences: tuple[Defence, ...]
    attacks: tuple[Asked, ...]
    seeds: tuple[int, ...]
    adversaries: Mapping[str, Mapping[str, str]]
    trainings: tuple[Training, ...]
    command: str
    hours: float | None = None

    def with_seeds(self, count: int) -> Assessment:
        """Returns the same with the first seeds only."""
        kept = self.seeds[:count]
        trainings = tuple(one for one in self.trainings if one.seed in kept)
        return dataclasses.replace(self, seeds=kept, trainings=trainings)

    def without(self, attack: str) -> Assessment:
        """Returns the same without an attack, for lack of time."""
        reason = f"{LEFT_OUT} {self.hours:g} hours"
        attacks = tuple(
            dataclasses.replace(one, withheld=reason) if one.name == attack else one
            for one in self.attacks
        )
        trainings = tuple(
            dataclasses.replace(
                one, orders={name: order for name, order in one.orders.items() if name != attack}
            )
            for one in self.trainings
        )
        return dataclasses.replace(self, attacks=attacks, trainings=trainings)

    def as_json(self) -> dict[str, Any]:
        """Returns the plan that an assessment's folder keeps: all but the trainings' settings."""
        rows = [
            {"defence": t.defence, "seed": t.seed, "run": t.run, "overrides": t.overrides}
            | {"findings": {name: _finding(name, order) for name, order in t.orders.items()}}
            | {"orders": t.orders}
            for t in self.trainings
        ]
        plan = dataclasses.asdict(dataclasses.replace(self, trainings=()))
        return json.loads(json.dumps({**plan, "trainings": rows}))  # type: ignore[no-any-return]


def read(
    name: str,
    overrides: Sequence[str] = (),
    *,
    defences: Sequence[str] | None = None,
    attacks: Sequence[str] | None = None,
    seeds: int | Sequence[int] | None = None,
) -> Assessment:
    """Reads what is to be assessed, and checks all of it without training anything.

    Args:
        name: an experiment of `fedpriv list`, or a YAML file.
        overrides: of the experiment, for all defences.
        defences: names of the matrix, dotted paths of strategies, or overrides separated by spaces;
            None takes the usual ones. The defence "none" is always there.
        attacks: names of the matrix, dotted paths of attacks, or a name with overrides.
        seeds: how many, or which.

    Raises:
        Mistakes: with everything that is wrong.
    """
    matrix = _matrix(name)
    usual = matrix["usual"]
    problems = [
        f"{one}: an assessment sets {key} itself; a defence may change it: "
        "defences=[none,'strategy=fedavg masking=on masking.bound=10']"
        for one in overrides
        for key in OURS
        if one.lstrip("+~").partition("=")[0] == key
    ]
    chosen = list(usual["defences"] if defences is None else defences)
    rows = _named(chosen, matrix["defences"], "defences", _own_defence, problems)
    wanted = usual["attacks"] if attacks is None else attacks
    own_attack = functools.partial(_own_attack, matrix["attacks"])
    asked = _named(wanted, matrix["attacks"], "attacks", own_attack, problems)
    if not asked:
        problems.append(f"attacks={list(wanted)}: expected some of {', '.join(matrix['attacks'])}")
    count = usual["seeds"] if seeds is None else seeds
    every = tuple(range(count)) if isinstance(count, int) else tuple(count)
    if not 0 < len({*every}) == len(every) or not all(type(s) is int and s >= 0 for s in every):
        problems.append(f"seeds={seeds}: expected a number, or a list of different ones")
    if problems:
        raise Mistakes(name, problems)
    if NONE not in [one["name"] for one in rows]:
        rows.insert(0, {"name": NONE, **matrix["defences"][NONE]})
    listed = tuple(_defence(one, matrix["defences"]) for one in rows)
    setters: dict[str, list[str]] = {}
    for defence in listed:
        for word in defence.run:
            setters.setdefault(word.partition("=")[0], []).append(defence.name)
    if problems := [
        f"{one}: {', '.join(setters[key])} set{'s' * (len(setters[key]) == 1)} {key}; give such a "
        f"defence by its overrides, or write an experiments/{MATRIX} of your own"
        for one in overrides
        if (key := one.lstrip("+~").partition("=")[0]) in setters
    ]:
        raise Mistakes(name, problems)
    made = tuple(
        Asked(
            one["name"],
            one["adversary"],
            tuple(one["attack"]),
            tuple(one.get("masked", ())),
            one.get("minutes", Asked.minutes),
        )
        for one in asked
    )
    words = ["fedpriv", "assess", name, *overrides]
    for key, given in (("defences", defences), ("attacks", attacks), ("seeds", seeds)):
        if given is not None:
            told = given if isinstance(given, int) else json.dumps(list(given), ensure_ascii=False)
            words.append(f"{key}={told}")
    return _checked(
        Assessment(
            name,
            tuple(overrides),
            listed,
            made,
            every,
            matrix["adversaries"],
            (),
            shlex.join(words),
        ),
        matrix["keepers"],
        explicit=attacks is not None,
    )


def _matrix(source: str) -> dict[str, Any]:
    """Returns `matrix.yaml`, of the working directory's experiments if it has one.

    Under `ready`, an experiment may have entries in place of those for all.
    """
    path = next(found for folder in catalogue.folders() if (found := folder / MATRIX).is_file())
    try:
        yaml_file.check(path)
        matrix: Any = OmegaConf.to_container(OmegaConf.load(path), resolve=True)
    except (OmegaConfBaseException, ValueError, OSError) as error:
        raise Mistakes(source, [f"{path}: {' '.join(str(error).split())}"]) from error
    for section, entries in matrix.pop("ready", {}).get(Path(source).stem, {}).items():
        for key, value in entries.items():
            both = isinstance(value, dict) and key in matrix[section]
            matrix[section][key] = {**matrix[section][key], **value} if both else value
    return dict(matrix)


def _named(
    names: Sequence[str],
    known: Mapping[str, Any],
    what: str,
    own: Callable[[str], dict[str, Any] | None],
    problems: list[str],
) -> list[dict[str, Any]]:
    """Returns entries of the matrix by name, or the user's own ones."""
    found: list[dict[str, Any]] = []
    for name in names:
        text = str(name).lower() if name is None else str(name)  # YAML may read `none` as nothing
        entry = {"name": text, **known[text]} if text in known else own(text)
        if entry is None:
            told = f"{what}: there is no {text!r}{near(text, known)}; expected {', '.join(known)}, "
            problems.append(f"{told}the dotted path of a class, or overrides")
        elif entry["name"] == START or entry["name"] in [one["name"] for one in found]:
            problems.append(f"{what}: the name {entry['name']} is taken")
        else:
            found.append(entry)
    return found


def _own_defence(text: str) -> dict[str, Any] | None:
    """Returns a strategy's dotted path, or overrides, as an entry of the matrix."""
    if "=" in text:
        return {"name": text, "told": text, "run": shlex.split(text)}
    if "." in text:
        told = f"{text}, a strategy of your own"
        run = [f"strategy={text}", "masking=off"]
        return {"name": text.rpartition(".")[2], "told": told, "run": run}
    return None


def _own_attack(known: Mapping[str, Any], text: str) -> dict[str, Any] | None:
    """Returns a dotted path or a name, perhaps with overrides, as an entry of the matrix."""
    first, *rest = shlex.split(text) or [""]
    if "=" in first or ("." not in first and first not in catalogue.groups()["attack"]):
        return None
    name = first.rpartition(".")[2] + "".join(f" {one}" for one in rest)
    like = known.get(first, {"adversary": "", "attack": [f"attack={first}"]})
    return {**like, "name": name, "attack": [*like["attack"], *rest]}


def _defence(entry: Mapping[str, Any], known: Mapping[str, Any]) -> Defence:
    """Returns a defence: the settings of that which it is `like`, then its own."""
    like = known[entry["like"]]["run"] if "like" in entry else ()
    attacked = tuple(entry.get("attack", ()))
    run = (*like, *entry["run"])
    return Defence(entry["name"], entry["told"], run, attacked, entry.get("answers", False))


def _checked(plan: Assessment, keepers: Mapping[str, Sequence[str]], explicit: bool) -> Assessment:
    """Returns a plan with its trainings, and with the reasons of what cannot be trained or made."""
    load = functools.cache(lambda words: running.composed(plan.experiment, list(words)))
    base = plan.defences[[one.name for one in plan.defences].index(NONE)]
    # Settings of keepers are for where they keep something.
    bare = tuple(one for one in plan.overrides if not one.startswith("keep."))
    kept: dict[str, str] = {}

    @functools.cache
    def keeps(keeper: str) -> str:
        """Returns why the experiment cannot keep something; "" if it can."""
        words = (f"keep=[{keeper}]", *keepers.get(keeper, ()))
        return _unworkable(load((*base.run, *words, *bare, *ALONE)), plan.experiment)

    why = _unworkable(load((*base.run, "keep=[]", *bare, *ALONE)), plan.experiment)
    if why:  # with nothing kept and no defence: the experiment itself is wrong
        raise Mistakes(plan.experiment, why.splitlines())
    model = seeded_model(
        experiment.model_of(load((*base.run, "keep=[]", *bare)), plan.experiment), 0
    )
    attacks, problems = [], []
    for one in plan.attacks:
        try:
            order = attack.parse(one.overrides, one.name)
            reason, adversary = _withheld(order, model, keeps, kept)
            one = dataclasses.replace(one, withheld=reason, adversary=one.adversary or adversary)
        except Mistakes as error:
            if explicit:
                problems += [f"{one.name}: {problem}" for problem in error.problems]
            one = dataclasses.replace(one, withheld="; ".join(error.problems))
        attacks.append(one)
    if problems:
        raise Mistakes(plan.experiment, problems)
    if all(one.withheld for one in attacks):
        raise Mistakes(plan.experiment, [f"{one.name}: {one.withheld}" for one in attacks])
    observed = (
        f"keep=[{','.join(kept)}]",
        *(word for keeper in kept for word in keepers.get(keeper, ())),
    )
    trainings, defences = [], []
    for defence in plan.defences:
        words = (*defence.run, *observed, *plan.overrides, *ALONE)
        try:
            refused = _unworkable(load((*words, f"seed={plan.seeds[0]}")), plan.experiment)
        except Mistakes as error:
            refused = "; ".join(error.problems)
        # Where it would change nothing, its row would be that of `none` by another name.
        if defence.answers and not isinstance(model, QuestionAnswerer):
            refused = (
                f"{type(model).__name__} answers no questions, so that it would change nothing"
            )
        made = [one for one in attacks if not one.withheld]
        if defence.attack and not any(one.reads(defence) for one in made):
            refused = f"none of the attacks takes {defence.attack[0].partition('=')[0]}"
        defences.append(dataclasses.replace(defence, refused=refused))
        for seed in () if refused else plan.seeds:
            with_seed = (*words, f"seed={seed}")
            config = load(with_seed)
            masked = config["masking"] is not None
            orders = {
                one.name: one.order(defence, seed, masked=masked)
                for one in attacks
                if not one.withheld
            }
            trainings.append(Training(defence.name, seed, config, with_seed, orders))
    for seed in plan.seeds:
        words = (*base.run, "keep=[]", *bare, *ALONE, "rounds=0", f"seed={seed}")
        trainings.append(Training(START, seed, load(words), words, {}))
    return dataclasses.replace(
        plan, defences=tuple(defences), attacks=tuple(attacks), trainings=tuple(trainings)
    )


ALONE = ("federation.workers=0", "federation.report=false")
"""A training is done in one process; several go on at a time."""


def _unworkable(config: dict[str, Any], source: str) -> str:
    """Returns why a federation cannot be put together; "" if it can."""
    try:
        experiment.build(config, source).assemble(config)
    except (Mistakes, Unworkable) as error:
        return "; ".join(error.problems)
    except (ValueError, TypeError, OSError) as error:
        return str(error)
    return ""


def _withheld(
    order: Order, model: Any, keeps: Callable[[str], str], kept: dict[str, str]
) -> tuple[str, str]:
    """Returns why no training grants what an attack needs, and who its adversary is.

    Keepers that it needs are added to `kept`.
    """
    wants = ThreatModel.of(order.attack).wants.values()
    needed = {kind for kind, optional in wants if not optional}
    if needed & {*ASKED} and not isinstance(model, QuestionAnswerer):
        return f"{type(model).__name__} answers no questions", ""
    if needed & {*KEEPERS["scrubbed"]}:
        try:
            as_field_model(model)
        except (TypeError, NotApplicable) as error:
            return str(error), ""
    keepers = [name for name, kinds in KEEPERS.items() if needed & {*kinds}]
    for name in keepers:
        if reason := keeps(name):
            return f"keep={name}: {reason}", ""
    kept.update(dict.fromkeys(keepers, ""))
    if "transcript" in keepers:
        return "", "server"
    answers = needed <= {access.BlackBox, access.HeldOutDocuments, access.TrainingDocuments}
    return "", "answers" if answers else "model"


def options(
    source: str, words: Sequence[str], own: Sequence[str]
) -> tuple[dict[str, Any], list[str]]:
    """Separates an assessment's own settings from overrides of the experiment.

    Raises:
        Mistakes: if one of them cannot be read.
    """
    settings, rest, problems = dict[str, Any](), list[str](), list[str]()
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or key not in own:
            rest.append(word)
            continue
        try:
            value = OmegaConf.to_container(OmegaConf.from_dotlist([f"x={text}"]))["x"]  # type: ignore[index,call-overload]
        except (OmegaConfBaseException, ValueError) as error:
            problems.append(f"{word}: {' '.join(str(error).split())}")
            continue
        if key in ("defences", "attacks"):
            value = [value] if isinstance(value, str) else value
            if not isinstance(value, list) or not value:
                problems.append(f"{word}: expected names in brackets: {key}=[…]")
        elif key == "hours" and not (isinstance(value, int | float) and 0 < value < 10_000):
            problems.append(f"{word}: expected a number of hours above 0")
        elif key == "workers" and not (type(value) is int and 0 <= value <= 1000):
            problems.append(f"{word}: expected 0 or more processes")
        elif key == "seeds" and not (isinstance(value, list) or (type(value) is int and value > 0)):
            problems.append(f"{word}: expected how many seeds, or a list of them")
        settings[key] = value
    if problems:
        raise Mistakes(source, problems)
    return settings, rest


# --- What it costs --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cost:
    """What one training under a defence costs, foretold from its first rounds.

    Attributes:
        seconds: of one training.
        memory: bytes of the process that trains.
        traffic: bytes of all messages.
    """

    seconds: float
    memory: float
    traffic: float


def foretold(plan: Assessment, tell: Callable[[str], None]) -> dict[str, Cost]:
    """Returns what a training under each defence costs, by running its first rounds.

    Nothing of these rounds is kept.
    """
    found = {}
    for one in plan.trainings:
        if one.seed == plan.seeds[0] and one.defence not in found:
            tell(f"{one.defence}: {PROBED} rounds, to foretell how long it takes")
            try:
                found[one.defence] = _probe(one.config)
            except Exception as error:  # such as of a strategy of the user's own
                tell(f"{one.defence}: fails: {reason_of(error)}")
                found[one.defence] = Cost(0.0, 0.0, 0.0)
    return found


def _probe(config: dict[str, Any]) -> Cost:
    rounds = min(PROBED, config["rounds"])
    settings = {**config, "rounds": rounds, "attack": None}
    # Noise for all rounds takes as long to find as for two.
    with tempfile.TemporaryDirectory(prefix="fedpriv-probe-") as folder, watched_memory() as most:
        path = Path(folder) / "run"
        began = time.monotonic()
        parts = experiment.build(settings, "the probe")
        parts.assemble(settings).run(rounds, run_dir=RunFolder.at(path).path, progress=False)
        whole, memory = time.monotonic() - began, most()
        rows = [one for one in RunFolder.existing(path).records(METRICS) if one["round"]]
    per_round = [sum(one["seconds"].values()) for one in rows]
    trained = min((one["seconds"]["train"] for one in rows), default=0.0)
    evaluated = max((one["seconds"]["evaluate"] for one in rows), default=0.0)
    evaluations = config["rounds"] // max(1, config["federation"]["evaluate_every"])
    left = config["rounds"] - rounds
    seconds = whole + left * trained + max(0, evaluations - 1) * evaluated * bool(per_round)
    traffic = max((one["bytes_up"] + one["bytes_down"] for one in rows), default=0)
    return Cost(seconds, memory, traffic * config["rounds"])


def duration(plan: Assessment, costs: Mapping[str, Cost], workers: int) -> float:
    """Returns the seconds that an assessment takes, about."""
    attacks = sum(one.minutes * 60 for one in plan.attacks if not one.withheld)
    runs = {one.run: one for one in plan.trainings}.values()
    every = sum(costs[one.defence].seconds + (attacks if one.orders else 0) for one in runs)
    return every / max(1, min(workers, len(runs)))


def within(
    plan: Assessment, costs: Mapping[str, Cost], hours: float, workers: int
) -> tuple[Assessment, list[str]]:
    """Returns what fits into so many hours, and what was left out for it.

    Seeds are left out first, down to two, then the longest attacks, then the second seed.

    Raises:
        Mistakes: if one seed and one attack do not fit.
    """
    told: list[str] = []
    plan = dataclasses.replace(plan, hours=hours)

    def fits() -> bool:
        return duration(plan, costs, workers) <= hours * 3600

    def fewer_seeds(least: int) -> None:
        nonlocal plan
        before = len(plan.seeds)
        while not fits() and len(plan.seeds) > least:
            plan = plan.with_seeds(len(plan.seeds) - 1)
        if len(plan.seeds) < before:
            told.append(f"{len(plan.seeds)} seeds in place of {before}")

    fewer_seeds(2)
    while not fits():
        made = [one for one in plan.attacks if not one.withheld]
        if len(made) < 2:
            break
        longest = max(made, key=lambda one: one.minutes)
        told.append(f"without {longest.name}")
        plan = plan.without(longest.name)
    fewer_seeds(1)
    if not fits():
        need = duration(plan, costs, workers) / 3600
        raise Mistakes(
            plan.experiment,
            [f"hours={hours:g}: one seed and one attack take about {need:.2g}; leave defences out"],
        )
    return plan, told


def begun(plan: Assessment, hours: float) -> Assessment | None:
    """Returns what an interrupted assessment of so many hours fitted in; None if there is none.

    How long trainings take is measured anew by each command, and would leave out something else.
    """
    for path in sorted(_place(plan).glob("*/"), reverse=True):
        before = RunFolder(path).read_json(PLAN) or {}
        same = before.get("command") == plan.command and before.get("hours") == hours
        if same and not (path / JSON).is_file():
            fitted = dataclasses.replace(plan, hours=hours).with_seeds(len(before["seeds"]))
            for one in before["attacks"]:
                if one["withheld"].startswith(LEFT_OUT):
                    fitted = fitted.without(one["name"])
            return fitted
    return None


def told(plan: Assessment, costs: Mapping[str, Cost], workers: int) -> list[str]:
    """Returns a plan in lines: who attacks, what is trained and made, and what it costs."""
    lines = [f"{name.replace('_', ' ')}: {one['who']}" for name, one in plan.adversaries.items()]
    rows = [["defence", "trainings", "seconds each", "memory", "messages", ""]]
    for one in (*plan.defences, Defence(START, "the model that all begin from", ())):
        count = sum(t.defence == one.name for t in plan.trainings)
        if cost := costs.get(one.name):
            cells = [f"{cost.seconds:.0f}", show_bytes(cost.memory), show_bytes(cost.traffic)]
        else:
            cells = ["—"] * 3
        rows.append([one.name, f"{count}", *cells, one.refused and f"not trained: {one.refused}"])
    lines += ["", *aligned(rows), ""]
    rows = [["attack", "adversary", "minutes each", ""]]
    for asked in plan.attacks:
        why = asked.withheld and f"not made: {asked.withheld}"
        rows.append([asked.name, asked.adversary, "—" if why else f"{asked.minutes:g}", why])
    runs = len({one.run for one in plan.trainings})
    every = show_seconds(duration(plan, costs, workers))
    lines += [*aligned(rows), ""]
    lines.append(
        f"{counted(runs, 'training')} with {counted(len(plan.seeds), 'seed')}, "
        f"{workers or 1} at a time: about {every}. Minutes of attacks are those of tiny models."
    )
    return lines


# --- Doing it -------------------------------------------------------------------------------------


def run(
    plan: Assessment, *, workers: int | None = None, tell: Callable[[str], None] = print
) -> RunFolder:
    """Trains and attacks what is not done yet; returns the assessment's folder.

    Args:
        plan: as `read` returns it.
        workers: trainings at a time, each in its own process; None for as many as there are cores.
            0 does one after the other in this process.
        tell: shows one line.
    """
    settings, place = plan.as_json(), _place(plan)

    def same(folder: RunFolder) -> bool:
        before = folder.read_json(PLAN) or {}
        made = before.pop("made", {})
        return before == settings and made.get("commit") == now["commit"]

    now = {"commit": versions.commit()}
    folder = newest(place, same)
    if folder is None:
        folder = RunFolder.create(place.parent, place.name)
        made = {**now, "date": versions.today(), "machine": versions.machine()}
        folder.write_json(PLAN, {**settings, "made": made})
    elif (folder.path / JSON).is_file():
        tell(f"{folder.path} is of the same settings; what is done there is not done again")
    with run_lock.writing(folder.path, "assess"):
        folder.write_json(ERRORS, {})
        jobs, titles = dict[str, Job](), dict[str, str]()
        for one in plan.trainings:
            path = folder.path / RUNS / one.run
            orders = {_finding(name, order): order for name, order in one.orders.items()}
            title = titles.setdefault(one.run, f"{one.defence}, seed {one.seed}")
            _, _, others = jobs.get(title, (None, None, {}))
            jobs[title] = (one.config, str(path), {**others, **orders})
        todo = sum(not (Path(path) / FINAL).is_file() for _, path, _ in jobs.values())
        tell(
            f"{folder.path}: {len(jobs)} trainings of {len(plan.defences)} defences and the model "
            f"that they start from, {todo} to do"
        )
        pool = Pool(versions.cores() if workers is None else workers, RaySettings(), tell)
        try:
            errors = pool.map(carry_out, jobs)
        except JobsFailed as failed:
            errors = {title: {"": reason} for title, reason in failed.reasons.items()}
        except (KeyboardInterrupt, SystemExit) as end:
            end.add_note("repeat the command to go on")
            raise
        folder.write_json(ERRORS, {run: errors.get(title, {}) for run, title in titles.items()})
    return folder


Job = tuple[dict[str, Any], str, dict[str, tuple[str, ...]]]
"""Settings of a training, its folder, and each attack's overrides by the name of its result."""


def carry_out(job: Job) -> dict[str, str]:
    """Trains, measures the mechanism, makes the attacks; returns what failed, by attack, and why.

    The training itself has no name. What was done before is not done again.
    """
    config, path, orders = job
    folder, failed = RunFolder.at(Path(path)), dict[str, str]()
    if not (folder.path / FINAL).is_file():
        try:
            with watched_memory() as most:
                retraining.train((config, path))
                folder.write_json(COST, {"memory": most()})
        except Exception as error:  # of this seed; the others go on
            return {"": reason_of(error)}
    _audit(folder, config, failed)
    for name, overrides in orders.items():
        if folder.has(f"{FINDINGS}/{name}/{RESULT}"):
            continue
        try:
            order = dataclasses.replace(attack.parse(overrides, name), name=name)
            _unless_in_use(lambda: attack.made(folder, order, lambda line: None, trust=True))  # noqa: B023
        except Exception as error:  # of this attack; the others go on
            failed[name] = reason_of(error)
    try:
        write_report(folder.path)
    except Exception as error:
        failed["report"] = reason_of(error)
    return failed


def _unless_in_use(make: Callable[[], Any]) -> None:
    """Makes an attack, as soon as the worker of a driver that was killed lets go of it."""
    deadline = time.monotonic() + retraining.MOST_WAIT
    while True:
        try:
            make()
            return
        except run_lock.InUse:
            if time.monotonic() > deadline:
                raise
            time.sleep(1)


def _audit(folder: RunFolder, config: dict[str, Any], failed: dict[str, str]) -> None:
    """Measures the mechanism of a private training, which takes seconds."""
    from fedpriv.federation.audit.mechanism import audit_mechanism, audit_problems
    from fedpriv.threat.mechanism import keep_audit

    parts = experiment.build(config, str(folder.path))
    private = isinstance(parts.strategy, PrivateStrategy) and parts.rounds
    if not private or folder.has(f"{FINDINGS}/{AUDIT}/{RESULT}"):
        return
    try:
        federation = parts.assemble(config)
        if not audit_problems(federation):
            keep_audit(folder, audit_mechanism(federation, parts.rounds, confidence=ALARM_LEVEL))
    except Exception as error:
        failed[AUDIT] = reason_of(error)


def _finding(name: str, order: Sequence[str]) -> str:
    """Returns the name of an attack's result, the same for the same settings."""
    letters = "".join(letter if letter.isalnum() or letter == "_" else "-" for letter in name)
    return f"{letters[:60]}-{digest(list(order))}"


def _place(plan: Assessment) -> Path:
    """Returns the folder that assessments of this experiment go to."""
    config = plan.trainings[0].config
    return Path(config["runs"]) / "assess" / str(config["name"])
