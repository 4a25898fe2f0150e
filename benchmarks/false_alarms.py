"""How often an attack finds a leak where there is none, and where there is one.

Each attack is made on five trained models. Then its claims are scored again against truths that
have been dealt out anew, twenty times for each model: providers and canaries change who was trained
on, documents change whether their fields were, messages change whose they are, and answers change
which of two models gave them. Nothing can leak then, and at most one of twenty verdicts should be
`leak`. As trained, each should be one, if the attack can find it there. And each is made end to end
on five models that nothing was trained into (`rounds=0`), where it needs neither messages nor a
second training.

    FEDPRIV_DATA=… python benchmarks/false_alarms.py RUNS docs/explanations/false_alarms.json
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import fedpriv as fp
import fedpriv.threat.scoring.all
from fedpriv import run
from fedpriv.attacks.extraction.scoring import WITHOUT, ExtractedAnswers
from fedpriv.federation.membership_table import TrainingMembership
from fedpriv.runtime.run_folder import RunFolder
from fedpriv.threat.access import MessageKey, ScrubbedFields
from fedpriv.threat.claims import (
    CanaryGuesses,
    CanaryRank,
    MembershipScores,
    MemorisationProbe,
    RecoveredBatch,
)
from fedpriv.threat.results import Result, joined
from fedpriv.threat.scoring.registry import SCORERS, Scorer, Scoring
from fedpriv.threat.truth import TrueField, Truth, TruthStore

SEEDS, DRAWS = (1, 2, 3, 4, 5), 20

HALF = ("data.test.unseen=0.5",)
EXPERIMENTS: tuple[tuple[str, tuple[str, ...], dict[str, tuple[str, ...]]], ...] = (
    (
        "sroie_kie",
        (
            *("keep=[transcript,held_out]", "keep.transcript.batches=false", "rounds=2"),
            *("data.partition.clients=6", "data.source.rescans=drop", *HALF),
        ),
        {"server_membership": ()},
    ),
    (
        "gi_dqa",
        ("data=sroie", "data.partition.clients=8"),
        {
            "text": (),
            "closed_form": ("ocr=null",),
            "gi_dqa_tuned": ("ocr=null", "attack.method.evaluations=60"),
        },
    ),
    (
        "pmia",
        ("data.source.providers=40", "rounds=4", "keep=[held_out]"),
        {
            "pmia": (),
            "provider_rmia": (),
            "provider_lira": ("attack.steps=100",),
            "memorisation": (),
        },
    ),
    (
        "cdmi",
        ("rounds=12",),
        {"field_candidates": ("most_fields=400",), "cdmi": ("most_fields=40",)},
    ),
    (
        "cdmi",
        ("model.task=tags", "rounds=60"),
        {
            "field_search": (
                *("candidates.game=open", "most_fields=150", "attack.search.sweeps=2"),
                *("attack.search.width=16", "attack.search.beam=4"),
            )
        },
    ),
    ("exposure", ("rounds=6",), {"exposure": ("attack.references=200",)}),
    (
        "extraction",
        (),
        {
            "extraction": (
                *("retrain=true", "attack.curation.count=60", "attack.splits=0"),
                "attack.controls=false",
                *("attack.blocking=false", "attack.prompts=[]", "attack.contexts=[]"),
            )
        },
    ),
)
"""Experiments, their settings, and their attacks with theirs."""

TRAINED_ONLY = ("sroie_kie", "gi_dqa", "extraction")
"""Experiments whose attacks read messages or train again: without a round there is nothing."""


class DealtAnew(TruthStore):
    """The truth of a run, dealt out anew among what an attack made claims about.

    Args:
        folder: of the run.
        seed: of the deal.
        claims: of one kind.
        granted: what the attack was granted, by its type.
    """

    def __init__(
        self, folder: RunFolder, seed: int, claims: Sequence[Any], granted: Mapping[type, Any]
    ) -> None:
        super().__init__(folder)
        rng = np.random.default_rng(seed)
        self._parts, self._fields = super().parts(), super().fields()
        names = sorted(providers_of(claims) & self._parts.keys())
        dealt = [self._parts[name] for name in rng.permutation(names).tolist()]
        self._parts |= dict(zip(names, dealt, strict=True))
        scrubbed = [getattr(one, "scrubbed", one) for one in granted.values()]
        asked = [f for s in scrubbed if isinstance(s, ScrubbedFields) for f in s.fields]
        sides = {field.document: self._fields[field.number].trained for field in asked}
        sides = dict(zip(sides, rng.permutation([*sides.values()]).tolist(), strict=True))
        for one in asked:
            field = self._fields[one.number]
            now = sides[one.document]
            # Its own document is among those that its text occurs in, where it is trained on.
            occurrences = field.occurrences - field.trained + now
            dealt_field = dataclasses.replace(field, trained=now, occurrences=occurrences)
            self._fields[one.number] = dealt_field
        keys = [claim.message for claim in claims if isinstance(claim, RecoveredBatch)]
        order = rng.permutation(len(keys)).tolist()
        while len(keys) > 1 and any(at == to for at, to in enumerate(order)):
            order = rng.permutation(len(keys)).tolist()
        self._keys = {key: keys[to] for key, to in zip(keys, order, strict=True)}

    def parts(self) -> dict[str, TrainingMembership]:
        """Each judged provider has another's part."""
        return self._parts

    def fields(self) -> dict[int, TrueField]:
        """Each document's fields have another's side."""
        return self._fields

    def of(self, key: MessageKey) -> Truth | None:
        """Each message has another's truth."""
        return super().of(self._keys.get(key, key))


def exchanged(claim: ExtractedAnswers, rng: np.random.Generator) -> ExtractedAnswers:
    """Returns the claim of two models that were trained alike.

    What each said of an answer is the other's with probability one half; samples with one answer
    go together.
    """
    answers = [canary.page.questions[0].answers[0] for canary in claim.canaries]
    turned = {answer: rng.random() < 0.5 for answer in sorted(set(answers))}
    pair = claim.pair("all")
    ours, theirs = {}, {}
    for way in pair.asked:
        both = zip(answers, pair.said.extracted[way], pair.without.extracted[way], strict=True)
        dealt = [(b, a) if turned[answer] else (a, b) for answer, a, b in both]
        ours[way], theirs[way] = (tuple(one) for one in zip(*dealt, strict=True))
    said = {
        "all": dataclasses.replace(pair.said, extracted=ours),
        "all" + WITHOUT: dataclasses.replace(pair.without, extracted=theirs),
    }
    return dataclasses.replace(claim, said={**claim.said, **said})


def providers_of(claims: Sequence[Any]) -> set[str]:
    """Returns the providers that claims are about."""
    judged = [claim.scores if isinstance(claim, CanaryGuesses) else claim for claim in claims]
    scored = {name for one in judged if isinstance(one, MembershipScores) for name in one.providers}
    kinds = (CanaryRank, MemorisationProbe)
    return scored | {claim.provider for claim in claims if isinstance(claim, kinds)}


def verdicts(run_dir: Path, attack: str, overrides: Sequence[str]) -> tuple[str, list[str]]:
    """Returns the verdict as trained, and those on truths dealt out anew."""
    kept: list[tuple[Scorer, Sequence[Any], Scoring]] = []
    real = dict(SCORERS)

    def keeping(score: Scorer, claims: Sequence[Any], scoring: Scoring) -> Result:
        kept.append((score, claims, scoring))
        return score(claims, scoring)

    for kind, scored in real.items():
        score = functools.partial(keeping, scored.score)
        score.__module__ = scored.score.__module__  # type: ignore[attr-defined]
        SCORERS[kind] = dataclasses.replace(scored, score=score)
    try:
        result = fp.run_attack(run_dir, attack, overrides, name=f"alarms_{attack}")
    finally:
        SCORERS.update(real)
    folder, dealt = RunFolder.existing(run_dir), []
    for seed in range(DRAWS if kept else 0):
        parts = []
        for scorer, claims, scoring in kept:
            truth = DealtAnew(folder, seed, claims, scoring.granted)
            rng = np.random.default_rng(seed)
            again = dataclasses.replace(scoring, truth=truth, rng=rng, files={})
            anew = [exchanged(c, rng) if isinstance(c, ExtractedAnswers) else c for c in claims]
            parts.append(scorer(anew, again))
        dealt.append(joined(parts).verdict)
    return result.verdict, dealt


def main(place: str, output: str) -> None:
    """Makes the runs that are missing, attacks them, and writes how often each verdict was."""
    table: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    Path(place).mkdir(parents=True, exist_ok=True)
    written = Path(output).resolve()
    os.chdir(place)
    for experiment, settings, attacks in EXPERIMENTS:
        for seed, untrained in itertools.product(SEEDS, (False, True)):
            if untrained and experiment in TRAINED_ONLY:
                continue
            name = f"{next(iter(attacks))}_{seed}{'_untrained' * untrained}"
            more = ["rounds=0"] * untrained
            if not (runs := sorted(Path("runs", name).glob("*"))):
                words = [*settings, *more, f"seed={seed}", f"name={name}"]
                runs = [run(experiment, *words, progress=False).path]
            for attack, overrides in attacks.items():
                found, dealt = verdicts(runs[-1], attack, overrides)
                table[attack]["untrained" if untrained else "trained"][found] += 1
                if not untrained:
                    table[attack]["dealt anew"].update(dealt)
                print(
                    attack, name, {what: dict(n) for what, n in table[attack].items()}, flush=True
                )
                written.write_text(json.dumps(table, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
