"""Provider membership inference by asking the model (Tito et al. 2023, §5.2, App. D.3-D.4).

The classifiers are::

    AZK       k-means on (ACC, NLS), without any knowledge
    APK       random forest on G1, G2 and G3, knowing some providers, confidence, loss, and the
              public model that training started from
    CLS1      NLS_mem above 0
    CLS2      k-means on ΔNLS_mem
    ensemble  a hard vote of AZK or APK with CLS1 and CLS2

beside which stand, not of the paper,

    log_ratio       by how much training lowered the logarithm of the loss, knowing no provider
    apk_log_ratio   the forest of APK with that as a further feature

and the other rows of Tables 4 and 11: k-means on ACC alone, with G4, on all six of G1 to G3; the
forest on ACC alone, on fewer groups, with G4.

In the paper everybody has a vote on everybody (`vote="paper"`). There, a provider of which CLS1
sees no sign of memory, which are nine in ten, has a vote against it, and with a CLS2 that cuts one
lump in two the ensemble says little more than no. In the sound vote these abstain:

    CLS1      where it sees no sign of memory: that shows nothing
    CLS2      where two clusters describe ΔNLS_mem no better than one (`classifiers.are_two`)
    each      where it gives everybody the same score

and a tie is left to AZK or APK. What a classifier says by itself is the same in both; notes tell
where its line between members and others means nothing. AZK keeps its vote where one cluster would
do: two groups that overlap can be told apart better than by chance without being seen to be two
(with 60 companies, in 13 of 15 splits; its accuracy was 0.72 to 0.79).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedpriv.attacks.membership.classifiers import (
    Opinion,
    above_zero,
    are_two,
    ensemble,
    folds,
    forest,
    two_means,
)
from fedpriv.attacks.membership.features import (
    G1,
    G2,
    G3,
    G4,
    LOG_RATIO,
    Aggregate,
    Features,
    Memory,
    measured,
)
from fedpriv.threat.access import (
    BlackBox,
    GreyBox,
    HeldOutDocuments,
    KnownMembershipSplit,
    PublicModel,
)
from fedpriv.threat.attack import AttackContext, NotApplicable
from fedpriv.threat.checks import check_choices
from fedpriv.threat.claims import NO_GUESS, MembershipScores

Vote = Literal["sound", "paper"]

UNSUPERVISED = {
    "azk": G1,
    "azk_accuracy": G1[:1],
    "azk_g4": (*G1, *G4),
    "kmeans_all": (*G1, *G2, *G3),
    "cls2": G4[1:],
}
SUPERVISED = {
    "apk_accuracy": G1[:1],
    "apk_g1": G1,
    "apk_g1_g2": (*G1, *G2),
    "apk": (*G1, *G2, *G3),
    "apk_g4": (*G1, *G2, *G3, *G4),
    "apk_log_ratio": (*G1, *G2, *G3, LOG_RATIO),
}
CLS1 = {"cls1": G4[:1]}
ENSEMBLES = {"azk_ensemble": ("azk", "cls1", "cls2"), "apk_ensemble": ("apk", "cls1", "cls2")}
BY_ONE = {LOG_RATIO: (LOG_RATIO,)}
ALONE = UNSUPERVISED | SUPERVISED | CLS1 | BY_ONE
"""Classifier → the features that it works on."""

ALIKE = "everybody gets the same score, which says nothing"
ONE_CLUSTER = (
    "two clusters are not shown to be there: they describe the features no better than one"
)


@dataclass(frozen=True)
class PMIAAccess:
    """The final model and the public one, with confidence and loss where they are granted."""

    model: BlackBox
    held_out: HeldOutDocuments
    confidence: GreyBox | None
    public: PublicModel | None


@dataclass(frozen=True)
class PMIA:
    """Judges each provider by how the model answers questions on its documents.

    Every classifier judges the providers of every split that are not known; AZK, CLS1 and CLS2 do
    not look at the known ones. The known of a split are used in that split only: of all splits
    together, an adversary would know nearly everybody.

    Args:
        aggregate: how the values of a provider's questions become one value: "mean", "min", "max"
            or "median". The paper does not say which.
        memory_key: the key of the question that is asked after its answer was cleared off the page,
            to see whether the model remembers it.
        memory: how like the right answer the model's answer to that question is (NLS_mem): "anls"
            takes a likeness below 1/2 for 0; "nls" takes any likeness, as the paper does.
        vote: who votes in the ensembles: with "sound", classifiers that have nothing to say of a
            provider abstain; with "paper", all of them vote.
        primary: the name of the classifier that the verdict rests on; where it cannot judge, "azk"
            takes its place. The others are exploratory: the best of many looks good by luck. The
            paper's is "apk"; on invoices and on receipts "log_ratio" told more
            (docs/papers/pfl_docvqa.md).

    Raises:
        ValueError: if a setting is none of its choices.
    """

    aggregate: Aggregate = "mean"
    memory_key: str = "provider"
    memory: Memory = "anls"
    vote: Vote = "sound"
    primary: str = LOG_RATIO

    def __post_init__(self) -> None:
        check_choices(self)
        if self.primary not in (every := [*ALONE, *ENSEMBLES]):
            raise ValueError(f"primary={self.primary!r}: expected one of {', '.join(every)}")

    def run(self, access: PMIAAccess, context: AttackContext) -> tuple[MembershipScores, ...]:
        """Asks about all documents once, then judges the providers in each split.

        Raises:
            NotApplicable: if no split leaves providers to be judged.
        """
        if not access.held_out.splits:
            raise NotApplicable(
                "beside the known suppliers too few are left to be judged: lower known or "
                "min_questions, or run the federation with more suppliers held out"
            )
        features = measured(
            access.held_out.documents,
            access.model,
            access.confidence,
            access.public.confidence if access.public else None,
            aggregate=self.aggregate,
            memory_key=self.memory_key,
            memory=self.memory,
            log=context.log,
        )
        claims = judged(features, access.held_out.splits, context, self.vote)
        judging = {claim.classifier for claim in claims}
        chosen = self.primary if self.primary in judging else "azk"
        return tuple(replace(one, primary=one.classifier == chosen) for one in claims)


def judged(
    features: Features,
    splits: Sequence[KnownMembershipSplit],
    context: AttackContext,
    vote: Vote = "sound",
) -> tuple[MembershipScores, ...]:
    """Returns what all classifiers make of the features, in every split."""
    refused = _refused(features, splits)
    found: list[MembershipScores] = []
    doubts: dict[str, Counter[str]] = defaultdict(Counter)
    for split in splits:
        context.log(f"judging, s = {split.min_questions}, split {split.repeat}")
        case = Case.of(split, features, int(context.rng.integers(2**31)))
        if not case.unknown:
            continue
        opinions = {
            name: case.opinion(name)
            for name in ALONE
            if name not in refused and not (name in SUPERVISED and folds(case.members) < 1)
        }
        votes = dict(opinions)
        for name, opinion in opinions.items():
            if doubt := case.doubt(name, opinion):
                doubts[doubt][name] += 1
            if vote == "sound":
                votes[name] = abstaining(name, opinion, doubt)
        for name, voters in ENSEMBLES.items():
            if opinions.keys() >= set(voters):
                opinions[name] = ensemble([votes[voter] for voter in voters])
        found += [case.scores(name, opinion) for name, opinion in opinions.items()]
    context.remarks.not_applicable.update(refused)
    context.remarks.left_out.update(features.skipped)
    context.remarks.notes += [*features.notes, *_notes(splits, refused)]
    for doubt, counts in doubts.items():
        where = ", ".join(f"{name} in {count}" for name, count in counts.items())
        context.remarks.notes.append(f"{doubt}: {where} of {len(splits)} splits")
    return tuple(found)


def abstaining(name: str, opinion: Opinion, doubt: str) -> Opinion:
    """Takes back the votes of a classifier that have nothing to say; see the module."""
    silent = np.full(len(opinion.guesses), doubt == ALIKE or (name == "cls2" and doubt != ""))
    if name in CLS1:
        silent |= opinion.scores == 0
    return replace(opinion, guesses=np.where(silent, NO_GUESS, opinion.guesses).astype(np.int8))


@dataclass(frozen=True)
class Case:
    """What a split gives the classifiers.

    Attributes:
        split: of the providers.
        features: of all providers.
        known: providers whose membership is known.
        members: (k,), it.
        unknown: providers to be judged.
        seed: of whatever is random.
    """

    split: KnownMembershipSplit
    features: Features
    known: tuple[str, ...]
    members: NDArray[np.bool_]
    unknown: tuple[str, ...]
    seed: int

    @classmethod
    def of(cls, split: KnownMembershipSplit, features: Features, seed: int) -> Case:
        """Leaves out the providers of which nothing was measured."""
        there = set(features.providers)
        known = {provider: member for provider, member in split.known.items() if provider in there}
        unknown = tuple(provider for provider in split.unknown if provider in there)
        return cls(
            split, features, tuple(known), np.array(list(known.values()), bool), unknown, seed
        )

    def opinion(self, name: str) -> Opinion:
        """Returns what a classifier says that needs no other."""
        rows = self.features.rows(self.unknown, ALONE[name])
        if name in CLS1:
            return above_zero(rows[:, 0])
        if name in UNSUPERVISED:
            return two_means(rows, self.seed)
        if name in BY_ONE:
            return replace(two_means(rows, self.seed), scores=rows[:, 0])
        known = self.features.rows(self.known, ALONE[name])
        return forest(known, self.members, rows, self.seed)

    def doubt(self, name: str, opinion: Opinion) -> str:
        """Returns why a classifier's line between members and others means nothing; "" if not."""
        if not np.ptp(opinion.scores):
            return ALIKE
        rows = self.features.rows(self.unknown, ALONE[name])
        one = name in UNSUPERVISED and not are_two(rows, np.random.default_rng(self.seed))
        return ONE_CLUSTER if one else ""

    def scores(self, name: str, opinion: Opinion) -> MembershipScores:
        """Returns a classifier's opinion on the unknown providers as a claim."""
        return MembershipScores(self.unknown, opinion.scores, opinion.guesses, name, self.split)


def _refused(features: Features, splits: Sequence[KnownMembershipSplit]) -> dict[str, str]:
    """Returns the classifiers that cannot be run in any split, and why."""
    refused: dict[str, str] = {}
    if not any(set(split.known.values()) == {True, False} for split in splits):
        why = "no split knows both a member and a non-member"
        refused |= dict.fromkeys(SUPERVISED, why)
    for name, needed in ALONE.items():
        lacking = [feature for feature in needed if feature in features.missing]
        if lacking:
            refused[name] = features.missing[lacking[0]]
    for name, voters in ENSEMBLES.items():
        if out := [voter for voter in voters if voter in refused]:
            refused[name] = f"{out[0]} has no vote: {refused[out[0]]}"
    return refused


def _notes(splits: Sequence[KnownMembershipSplit], refused: Collection[str]) -> list[str]:
    """Says where the forest had too little to learn from."""
    if set(SUPERVISED) <= set(refused):
        return []
    parts = [folds(np.array(list(split.known.values()), bool)) for split in splits]
    notes = []
    if untaught := sum(part < 1 for part in parts):
        notes.append(
            f"{untaught} of {len(parts)} splits do not know both a member and a non-member: "
            "no forest learns in them"
        )
    if unsearched := sum(part == 1 for part in parts):
        notes.append(
            f"in {unsearched} of {len(parts)} splits fewer than two members, or two non-members, "
            "are known: the forests have scikit-learn's defaults, without a search"
        )
    return notes
