"""Assessments: one experiment trained under every defence, and every attack made on each training.

One training under one defence and one seed is observed by every surface that the attacks ask for,
so it serves them all. Trainings with the same settings are one. What is done is found again by its
settings: repeating the command goes on with an assessment that was interrupted.
`fedpriv.studies.assessing.assessment` reads what the run folders hold.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fedpriv.config import attack, experiment
from fedpriv.config.attack import Order
from fedpriv.config.overrides import in_shell, key_of, write
from fedpriv.data.digests import documents_digest
from fedpriv.federation.dataset import DocumentData
from fedpriv.federation.loop import Federation, Unworkable
from fedpriv.models.field_model import as_field_model
from fedpriv.models.question_answering import QuestionAnswerer
from fedpriv.runtime import run_lock, versions
from fedpriv.runtime.refusals import Mistakes
from fedpriv.runtime.run_folder import RunFolder
from fedpriv.runtime.torch_state import seeded_model
from fedpriv.studies import running, trials
from fedpriv.studies.assessing.assessed import NONE, START
from fedpriv.studies.assessing.assessment import ERRORS, JSON
from fedpriv.studies.assessing.matrix import Asked, Assessment, Defence, Matrix, Training, chosen
from fedpriv.studies.assessing.outlook import Sides, outlook, sides_of
from fedpriv.studies.trials import RUNS, TRAINING, Store, Trial
from fedpriv.threat import access
from fedpriv.threat.attack import NotApplicable, Outline
from fedpriv.threat.runner import ThreatModel
from fedpriv.threat.scoring.registry import SCORERS
from fedpriv.threat.surfaces.base import observer

OURS = {
    "seed": "write seeds=[0,1], with the numbers that you want",
    "keep": "what is kept follows from the attacks",
    "strategy": "write a defence, such as \"defences=[none,'strategy=fedavg']\"",
    "masking": "write the defence, 'defences=[none,masking]'",
    "attack": "write 'attacks=[…]'",
    "federation.workers": "write workers=",
    "federation.report": "every training has its report",
    "privacy.audit": "the mechanism of every private training is measured",
}
"""Settings that an assessment makes itself, and what to write in their place."""

ASKED = (access.BlackBox, access.GreyBox)
"""What only a model that answers questions grants."""

OF_THE_START = ("model", "pretraining", "data", "blocking")
"""Sections that say from which model training begins, and on what it is evaluated."""

ALONE = ("federation.workers=0", "federation.report=false")
"""A training is done in one process; several go on at a time."""


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
        defences: names of the matrix, perhaps with overrides behind them, dotted paths of
            strategies, or overrides separated by spaces; None takes the usual ones. The defence
            "none" is always there.
        attacks: names of the matrix or dotted paths of attacks, perhaps with overrides.
        seeds: how many, or which.

    Raises:
        Mistakes: with everything that is wrong.
    """
    matrix, problems = Matrix.of(name), list[str]()
    usual = matrix.usual
    set_here = {one: key_of(one) for one in overrides}
    problems += [
        f"{one}: an assessment sets {key} itself: {OURS[key]}"
        for one, key in set_here.items()
        if key in OURS
    ]
    named = usual["defences"] if defences is None else defences
    rows = chosen(named, matrix.defences, "defences", matrix.defence, problems)
    named = usual["attacks"] if attacks is None else attacks
    asked = chosen(named, matrix.attacks, "attacks", matrix.attack, problems)
    count = usual["seeds"] if seeds is None else seeds
    every = tuple(range(count)) if isinstance(count, int) else tuple(count)
    whole = all(type(seed) is int and seed >= 0 for seed in every)
    if not whole or not 0 < len({*every}) == len(every):
        problems.append(f"seeds={seeds}: expected how many, as seeds=2, or which, as seeds=[7,8]")
    for one, key in set_here.items():
        setters = [row.name for row in rows if key in map(key_of, row.run)]
        if setters and key not in OURS:
            problems.append(
                f"{one}: {', '.join(setters)} set{'s' * (len(setters) == 1)} {key}: write it "
                f"behind the defence, \"defences=[none,'{setters[0]} {one}']\""
            )
    if problems:
        raise Mistakes(name, problems)
    if NONE not in [row.name for row in rows]:
        (bare,) = chosen([NONE], matrix.defences, "defences", matrix.defence, problems)
        rows.insert(0, bare)
    words = ["fedpriv", "assess", name, *overrides]
    for what, given in (("defences", defences), ("attacks", attacks), ("seeds", seeds)):
        if given is not None:
            told = given if isinstance(given, int) else list(given)
            words.append(f"{what}={write(told)}")
    plan = Assessment(
        name, tuple(overrides), tuple(rows), tuple(asked), every, matrix.adversaries, (),
        " ".join(map(in_shell, words)),
    )  # fmt: skip
    return _checked(plan, matrix.keepers, explicit=attacks is not None)


def _checked(plan: Assessment, keepers: Mapping[str, Sequence[str]], explicit: bool) -> Assessment:
    """Returns a plan with its trainings, and with the reasons of what cannot be trained or made.

    Args:
        plan: without trainings.
        keepers: settings of what a training keeps, by keeper.
        explicit: whether the attacks were named by the user, so that a mistake in one is theirs.
    """
    source = plan.experiment
    load = functools.cache(lambda *words: trials.composed(source, list(words)))
    base = next(one for one in plan.defences if one.name == NONE)
    # Settings of keepers are for where they keep something.
    bare = tuple(one for one in plan.overrides if not one.startswith("keep."))
    bared = _assembled(load(*base.run, "keep=[]", *bare, *ALONE), source)
    if isinstance(bared, str):  # with nothing kept and no defence: the experiment itself is wrong
        raise Mistakes(source, bared.splitlines())
    model = seeded_model(experiment.model_of(load(*base.run, "keep=[]", *bare), source), 0)

    @functools.cache
    def keeps(keeper: str) -> str:
        """Returns why the experiment cannot keep something; "" if it can."""
        words = (f"keep=[{keeper}]", *keepers.get(keeper, ()))
        try:
            kept = _assembled(load(*base.run, *words, *bare, *ALONE), source)
        except Mistakes as error:
            return "; ".join(error.problems)
        return kept if isinstance(kept, str) else ""

    deal = functools.partial(load, *base.run, "keep=[]", *bare)
    units = _units(experiment.build(deal(f"seed={plan.seeds[0]}"), source), plan.seeds[0])
    apart = len({json.dumps(deal(f"seed={seed}")["data"], default=str) for seed in plan.seeds})
    attacks, kept, batches = _granted(plan, model, keeps, units, apart, explicit)
    observed = (f"keep=[{','.join(kept)}]", *(w for one in kept for w in keepers.get(one, ())))
    own = [w for w in plan.overrides if not w.startswith("keep.") or w.split(".")[1] in kept]
    observed = (*observed, *own, *(("keep.transcript.batches=true",) if batches else ()))
    made = [one for one in attacks if not one.withheld]
    trainings, starts, defences = list[Training](), dict[str, Training](), list[Defence]()
    misspelt = list[str]()
    for defence in plan.defences:
        words = (*defence.run, *observed, *ALONE)
        try:
            federation = _assembled(load(*words, f"seed={plan.seeds[0]}"), source)
        except Mistakes as error:
            misspelt += [f"{defence.name}: {problem}" for problem in error.problems]
            continue
        if isinstance(federation, str) and defence.name == NONE:  # nothing could be compared
            raise Mistakes(source, federation.splitlines())
        refused = federation if isinstance(federation, str) else _idle(defence, model, made)
        changed = tuple(w for w in defence.run if w.lstrip("+~").startswith(OF_THE_START))
        private, warning = False, ""
        if not isinstance(federation, str) and not refused:
            rounds = load(*words, f"seed={plan.seeds[0]}")["rounds"]
            private = trials.private_half(federation) is not None and bool(rounds)
            noise = trials.signal_against_noise(federation, rounds)
            warning = next((line for line in noise if line.startswith("WARNING")), "")
        defences.append(dataclasses.replace(defence, refused=refused, warning=warning))
        for seed in () if refused else plan.seeds:
            with_seed = (*words, f"seed={seed}")
            config = load(*with_seed)
            begun = (*base.run, *changed, "keep=[]", *bare, *ALONE, "rounds=0", f"seed={seed}")
            origin = load(*begun)
            start = Training(START, seed, Trial(origin).name, begun, config=origin)
            starts.setdefault(start.run, start)
            trainings.append(
                Training(
                    defence.name,
                    seed,
                    Trial(config).name,
                    with_seed,
                    start.run,
                    private=private,
                    masked=config["masking"] is not None,
                    config=config,
                )
            )
    if misspelt:  # one that does not fit the experiment is told, and the others are trained
        raise Mistakes(f"the defences of {source}", misspelt)
    plan = dataclasses.replace(
        plan,
        defences=tuple(defences),
        trainings=(*trainings, *starts.values()),
    ).ordered(attacks)
    return dataclasses.replace(plan, own=_own_parts(plan))


def _units(parts: experiment.Experiment, seed: int) -> dict[str, Sides]:
    """Returns how many units of each kind an experiment has; none of data that are no documents."""
    if not isinstance(parts.data, DocumentData):
        return {}
    dealt = parts.data.dealt(seed)
    return sides_of(
        dealt.documents,
        dealt.trained,
        dealt.held,
        parts.data.test.asked(dealt.loaded.documents, seed),
        clients=len(dealt.deal),
        secrets=len({page.provider for page in dealt.planted}),
    )


def _granted(
    plan: Assessment,
    model: Any,
    keeps: Callable[[str], str],
    units: Mapping[str, Sides],
    seeds: int,
    explicit: bool,
) -> tuple[list[Asked], list[str], bool]:
    """Returns the attacks, with reasons why some are withheld, and the keepers that they need.

    And whether one needs to know the batches behind the messages. One that so few units forbid to
    tell anything is withheld too, unless it was asked for by name. `seeds` have data of their own.

    Raises:
        Mistakes: if none can be made, or one is wrong that the user has named.
    """
    kept, batches = dict[str, None](), False
    looks = (2 * len(plan.defences) - 1) * len(plan.attacks)
    attacks, problems = list[Asked](), list[str]()
    for one in plan.attacks:
        try:
            order = attack.parse((*one.overrides, *one.own), one.name)
            attack.parse((*one.overrides, *one.masked, *one.own), one.name)
            claims = ThreatModel.of(order.attack).claims
            known = (SCORERS[claim].power for claim in claims if claim in SCORERS)
            power = next(filter(None, known), None)
            ahead = outlook(power, units, looks=looks, seeds=seeds) if power and units else None
            idle = ahead is not None and ahead.hopeless and not explicit
            reason, adversary = _withheld(order, model, keeps, {} if idle else kept)
            if ahead and idle:
                reason = reason or ahead.reason
            batches = batches or (not reason and access.BatchKnowledge in _needs(order))
            who = one.adversary or adversary
            one = dataclasses.replace(one, withheld=reason, adversary=who, outlook=ahead)
        except Mistakes as error:
            if explicit:
                problems += [f"{one.name}: {problem}" for problem in error.problems]
            one = dataclasses.replace(one, withheld="; ".join(error.problems))
        attacks.append(one)
    if not problems and all(one.withheld for one in attacks):
        problems = [f"{one.name}: {one.withheld}" for one in attacks]
    if problems:
        raise Mistakes(plan.experiment, problems)
    return attacks, list(kept), batches


def _needs(order: Order) -> list[type]:
    """Returns the types of what an attack cannot do without."""
    wants = ThreatModel.of(order.attack).wants.values()
    return [kind for kind, optional in wants if not optional]


def _idle(defence: Defence, model: Any, made: Sequence[Asked]) -> str:
    """Returns why a defence would change nothing: its row would be that of `none`, renamed."""
    if defence.answers and not isinstance(model, QuestionAnswerer):
        return f"{type(model).__name__} answers no questions, so that it would change nothing"
    if defence.attack and not any(one.reads(defence) for one in made):
        return f"none of the attacks takes {key_of(defence.attack[0])}"
    return ""


def _own_parts(plan: Assessment) -> dict[str, str]:
    """Returns hashes of the code and of the documents: with others, it is another assessment."""
    first = [one for one in plan.trainings if one.seed == plan.seeds[0]]  # others name no others
    orders = {order for one in first for order in one.orders.values()}
    configs = [*(one.config for one in first), *map(attack.compose, sorted(orders))]
    found = trials.code_of(configs)
    parts = experiment.build(plan.trainings[0].config, plan.experiment)
    if isinstance(parts.data, DocumentData):
        found["documents"] = documents_digest(parts.data.dealt(plan.seeds[0]).documents)
    return found


def _assembled(config: dict[str, Any], source: str) -> Federation | str:
    """Returns a federation, or why it cannot be put together.

    Raises:
        Mistakes: the settings themselves are wrong.
    """
    try:
        return experiment.build(config, source).assemble(config)
    except Mistakes:
        raise
    except Unworkable as error:
        return "; ".join(error.problems)
    except (ValueError, TypeError, OSError) as error:
        return str(error)


def _withheld(
    order: Order, model: Any, keeps: Callable[[str], str], kept: dict[str, None]
) -> tuple[str, str]:
    """Returns why no training grants what an attack needs, and who its adversary is.

    Keepers that it needs are added to `kept`.
    """
    if suits := getattr(order.attack, "suits", None):
        try:
            suits(Outline(model, masked=False, fewest=None, settings=order))
        except NotApplicable as error:
            return str(error), ""
    needed = _needs(order)
    if {*needed} & {*ASKED} and not isinstance(model, QuestionAnswerer):
        told = "answers no questions, as models vt5, donut and pix2struct do: leave the attack out"
        return f"{type(model).__name__} {told}", ""
    keepers = dict.fromkeys(filter(None, (getattr(one, "keeper", "") for one in needed)))
    if "scrubbed" in keepers:
        try:
            as_field_model(model)
        except (TypeError, NotApplicable) as error:
            return str(error), ""
    for name in keepers:
        if reason := keeps(name):
            return f"keep={name}: {reason}", ""
    kept.update(keepers)
    return "", who.name if (who := observer(needed)) else "model"


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
    folder = trials.folder_of(plan.place, plan.as_json())
    if (folder.path / JSON).is_file():
        tell(f"{folder.path} is of the same settings; what is done there is not done again")
    with run_lock.writing(folder.path, "assess"):
        folder.write_json(ERRORS, {})
        for defence in plan.defences:
            if defence.refused:
                tell(f"not trained: {defence.name}: {defence.refused}")
        store, every = Store(folder.path / RUNS, running.made), plan.trials()
        done = {one.name: store.is_done(one, TRAINING) for one in every}
        tell(
            f"{folder.path}: {len(done)} trainings of {len(plan.defences)} defences and the model "
            f"that they start from, {sum(not one for one in done.values())} to do"
        )
        errors: dict[str, dict[str, str]] = {}
        for one in store.run(every, versions.cores() if workers is None else workers, tell):
            errors.setdefault(one.trial, {})[one.part] = one.reason
        folder.write_json(ERRORS, errors)
    return folder
