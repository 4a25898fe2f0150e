"""What a run keeps for attacks that ask who was trained on: held-out pages, and the first model.

`candidates/` in a run folder holds documents of every provider that may be suspected, whether it
was trained on or not; which of them were is in the truth store. Only the pages of canaries may have
been trained on themselves: who plants a page knows it.
"""

from __future__ import annotations

import dataclasses
import operator
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fedpriv.data.document import Document
from fedpriv.data.documents_on_disk import keep_documents, kept_documents, page_digest
from fedpriv.federation.dataset import FederatedDataset
from fedpriv.federation.membership_table import TrainingMembership
from fedpriv.runtime.cache import private_folder
from fedpriv.runtime.run_folder import PARTITION, START, RunFolder
from fedpriv.runtime.seeds import generator
from fedpriv.threat.attack import NotGranted
from fedpriv.threat.settings import AttackSettings, at_least, between_0_and_1
from fedpriv.threat.surfaces.base import AttackedRun, InWords, Surface
from fedpriv.threat.truth import TruthStore, save_parts

if TYPE_CHECKING:  # so that attacks need no Flower
    from fedpriv.federation.keep import Prepared

Documents = Mapping[str, tuple[Document, ...]]
CANDIDATES = "candidates"
DOCUMENTS = f"{CANDIDATES}/documents.json"
PAGES = f"{CANDIDATES}/pages"

HELD_OUT = {"seen": "data.test.fraction=0.2", "unseen": "data.test.unseen=0.25"}
"""What holds documents out of providers that are trained on, and of others."""

PLANT = "data.canaries=…"

Duplicates = Literal["refuse", "drop"]


@dataclass(frozen=True)
class KeepHeldOut:
    """Keeps the held-out documents of a run, and the model that its training started from.

    Args:
        duplicates: what to do with a held-out page whose pixels are those of a page that was
            trained on, or of another provider's: "refuse" the run, or "drop" it and count it.
    """

    duplicates: Duplicates = "refuse"

    def __post_init__(self) -> None:
        if self.duplicates not in ("refuse", "drop"):
            raise ValueError(f"duplicates={self.duplicates!r}: expected 'refuse' or 'drop'")

    def problems(self, bound: FederatedDataset, seed: int) -> list[str]:
        """Returns what keeps a run from being asked who was in it."""
        if not bound.suspects:
            return [
                "nothing is held out that could be asked about: set data.test.by=document, "
                "data.test.fraction and data.test.unseen, or data.canaries"
            ]
        asked = {document.provider for document in bound.suspects if document.questions}
        found: list[str] = []
        if not asked:
            found.append("no held-out document has a question: take data with questions")
        elif len(asked) == 1:
            found.append(f"only one supplier is held out, {asked.pop()!r}: there is nobody to tell")
        elif not any(not bound.parts[provider].member for provider in asked):
            found.append(
                "every held-out document is of a supplier that is trained on: set data.test.unseen "
                "to the share of the suppliers that shall not be, or data.canaries"
            )
        elif not any(bound.parts[provider].member for provider in asked):
            found.append("no held-out document is of a supplier that is trained on")
        if self.duplicates == "refuse" and (twice := _duplicates(bound)):
            found.append(
                f"{len(twice)} held-out pages are also trained on, or another provider's, pixel by "
                f"pixel, such as {twice[0]}: drop them (keep.held_out.duplicates=drop)"
            )
        return found

    def before(self, run: Prepared) -> None:
        """Writes what an adversary may be given, and, into the truth store, who was trained on."""
        folder, bound = run.folder, run.bound
        twice = set(_duplicates(bound)) if self.duplicates == "drop" else set()
        kept = [document for document in bound.suspects if document.id not in twice]
        folder.save_state(START, run.model.state_dict())
        save_parts(folder, bound.parts)
        folder.write_json(
            DOCUMENTS,
            {
                "documents": keep_documents(folder, PAGES, kept),
                "canaries": sorted(p for p, part in bound.parts.items() if part.canary),
                "canary_rate": bound.canary_rate,
                "duplicates_dropped": len(twice),
            },
        )

    def after(self, run: Prepared) -> None:
        """Does nothing: all is written before the first round."""


@dataclass(frozen=True)
class Kept:
    """What `KeepHeldOut.before` wrote, but for the model.

    Attributes:
        documents: by provider, in order.
        canaries: the providers that were planted.
        canary_rate: the probability with which each was trained on.
        duplicates_dropped: how many pages were left out, because they were there twice.
    """

    documents: Mapping[str, tuple[Document, ...]]
    canaries: frozenset[str]
    canary_rate: float
    duplicates_dropped: int


def load_candidates(folder: RunFolder, own: Path) -> Kept:
    """Reads what was kept.

    Args:
        folder: of the run.
        own: a folder of the adversary's, to which the pages are copied: a document shall not lead
            into the run, where the truth lies.

    Raises:
        NotGranted: if nothing was kept.
        Damaged: if what was kept cannot be read.
    """
    content = _content(folder)
    by_provider: dict[str, list[Document]] = defaultdict(list)
    with folder.making_sense_of(DOCUMENTS):
        for document in kept_documents(content["documents"], folder, PAGES, own):
            by_provider[document.provider].append(document)
        documents = {provider: tuple(pages) for provider, pages in by_provider.items()}
        dropped = operator.index(content["duplicates_dropped"])
        rate = float(content["canary_rate"])
        return Kept(documents, frozenset(content["canaries"]), rate, dropped)


def _content(folder: RunFolder, *also: str) -> dict[str, Any]:
    """Returns the documents as JSON.

    Args:
        folder: of the run.
        also: what else a run needs that is made again with documents.

    Raises:
        NotGranted: if nothing was kept.
    """
    content: dict[str, Any] | None = folder.read_json(DOCUMENTS)
    if content is None:
        raise NotGranted(
            "the run keeps no documents to ask about",
            "keep=held_out when the federation is run (it has no effect on the training)",
            again=["keep=held_out", *also],
        )
    return content


def _duplicates(bound: FederatedDataset) -> list[str]:
    """Returns the held-out documents whose page is trained on, or another provider's too."""
    hashes = {document.id: page_digest(document) for document in bound.suspects}
    canaries = {provider for provider, part in bound.parts.items() if part.canary}
    trained = {page_digest(d) for d in bound.documents if d.provider not in canaries}
    owners: dict[str, set[str]] = defaultdict(set)
    for document in bound.suspects:
        owners[hashes[document.id]].add(document.provider)
    return [
        document.id
        for document in bound.suspects
        if len(owners[hashes[document.id]]) > 1 or hashes[document.id] in trained
    ]


@dataclass(frozen=True, kw_only=True)
class HeldOutSettings(AttackSettings):
    """Which providers the adversary knows, and which of the others it judges.

    Args:
        known: r, the share of the providers whose membership the adversary knows. Half of these
            are members.
        repeats: how many times the known providers are drawn anew. The attack judges the other
            providers after each draw.
        min_questions: thresholds s on the number of a provider's questions, in ascending order.
            Providers with too few questions are left out, and the attack is scored for each
            threshold (PFL-DocVQA's sets T_s).
        strict: whether a provider needs more than s questions, as the caption of Table 4 in
            PFL-DocVQA says. If False, s questions are enough, as its §7.2 says.
    """

    known: float = 0.15
    repeats: int = 5
    min_questions: tuple[int, ...] = (0, 5, 10)
    strict: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        between_0_and_1(known=self.known)
        at_least(1, repeats=self.repeats)
        few = list(self.min_questions)
        if not few or few != sorted(set(few)) or few[0] < 0:
            raise ValueError(f"min_questions={few}: expected ascending numbers from 0 on")


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
class HeldOutDocuments(Surface, keeper="held_out", takes=HeldOutSettings):
    """Documents of providers that may have been trained on. None of the documents was.

    Attributes:
        documents: of each provider, each with questions whose answers the adversary knows.
        splits: for attacks that are told some members; any other judges all providers once. What
            is known in one split is not to be used in another. Empty where too few are left.
    """

    documents: Mapping[str, tuple[Document, ...]]
    splits: tuple[KnownMembershipSplit, ...] = ()

    @classmethod
    def granted(cls, run: AttackedRun) -> tuple[HeldOutDocuments, InWords]:
        """Documents of members and non-members, none of which was trained on."""
        cls.check(run)
        parts = TruthStore(run.folder).parts()
        documents = _answerable(run, canaries=False)
        require_both_kinds(documents, parts)
        words = f"{_counted(documents)}, none of which was trained on"
        splits = _splits(run.settings.of(HeldOutSettings), documents, parts)
        return HeldOutDocuments(documents, tuple(splits)), (words,)

    @classmethod
    def check(cls, run: AttackedRun) -> None:
        """Whether documents of providers were kept that are no canaries."""
        dealt = run.folder.read_json(PARTITION) or {}
        groups = dealt.get("test_groups") or {"seen": dealt.get("test")}
        lacking = [setting for group, setting in HELD_OUT.items() if not groups.get(group)]
        content = _content(run.folder, *lacking)
        with run.folder.making_sense_of(DOCUMENTS):
            others = {one["provider"] for one in content["documents"]} - {*content["canaries"]}
        if not others:
            raise NotGranted(
                "the run keeps documents of canaries only",
                "held-out documents of others (data.test)",
                again=lacking,
            )


@dataclass(frozen=True)
class PlantedCanaries(
    HeldOutDocuments,
    auditor="An auditor, who planted documents",
    takes=AttackSettings,
):
    """Documents of planted providers, each in the training set or left out by a fair coin.

    Nobody may know a coin before the attack is scored, so there are no splits.
    """

    @classmethod
    def granted(cls, run: AttackedRun) -> tuple[PlantedCanaries, InWords]:
        """The documents of planted providers, in or out by a fair coin."""
        cls.check(run)
        documents = _answerable(run, canaries=True)
        require_both_kinds(documents, TruthStore(run.folder).parts())
        words = f"{_counted(documents)}, which a coin decided to train on or not"
        return PlantedCanaries(documents), (words,)

    @classmethod
    def check(cls, run: AttackedRun) -> None:
        """Whether canaries were planted, and by fair coins."""
        content = _content(run.folder, PLANT)
        with run.folder.making_sense_of(DOCUMENTS):
            planted, rate = content["canaries"], float(content["canary_rate"])
        if not planted:
            raise NotGranted(
                "no canaries were planted, so there are no coins to guess",
                "data.canaries=20, or more, when the federation is run, as experiment pmia_audit "
                "has",
                again=[PLANT],
            )
        if rate != 0.5:
            raise NotGranted(
                f"each canary was trained on with probability {rate:g}, and what guesses show of "
                "ε is proven for fair coins only",
                "data.canary_rate=0.5 when the federation is run",
                again=["data.canary_rate=0.5"],
            )


def candidates(run: AttackedRun) -> Kept:
    """Returns the documents that may be asked about."""
    return load_candidates(run.folder, private_folder("pages"))


def _answerable(run: AttackedRun, *, canaries: bool) -> Documents:
    """Returns documents of canaries, or of all others, with those questions that have answers."""
    kept = run.once(candidates)
    of_kind = {p: pages for p, pages in kept.documents.items() if (p in kept.canaries) is canaries}
    documents = answerable(of_kind)
    every, asked = (sum(map(questions, of.values())) for of in (of_kind, documents))
    run.left_out.update(
        {
            "questions without an accepted answer": every - asked,
            "suppliers without an answerable question": len(of_kind) - len(documents),
            "duplicate pages": kept.duplicates_dropped,
        }
    )
    return documents


def answerable(documents: Documents) -> Documents:
    """Returns the documents with those of their questions that have an accepted answer."""
    kept: dict[str, tuple[Document, ...]] = {}
    for provider, pages in documents.items():
        asked = [
            dataclasses.replace(page, questions=questions)
            for page in pages
            if (questions := tuple(q for q in page.questions if any(q.answers)))
        ]
        if asked:
            kept[provider] = tuple(asked)
    return kept


def require_both_kinds(documents: Documents, parts: Mapping[str, TrainingMembership]) -> None:
    """Checks that there is somebody to tell apart.

    Raises:
        NotGranted: if there is one provider only, or there are no members, or no non-members.
    """
    members = sum(parts[provider].member for provider in documents)
    if len(documents) < 2 or members in (0, len(documents)):
        raise NotGranted(
            f"members (trained on) are {members} of {len(documents)} suppliers with questions, and "
            "the attack needs at least one member and one non-member",
            "data.test.unseen, which holds whole suppliers back, and data.test.fraction, which "
            "holds back documents of the others",
        )


def _splits(
    settings: HeldOutSettings, documents: Documents, parts: Mapping[str, TrainingMembership]
) -> Iterator[KnownMembershipSplit]:
    """Draws the known providers of every split; none where too few providers are left."""
    for s in settings.min_questions:
        there = [p for p, pages in documents.items() if questions(pages) >= s + settings.strict]
        members = [p for p in there if parts[p].member]
        others = [p for p in there if not parts[p].member]
        each = max(1, round(settings.known * len(there) / 2))
        if min(len(members), len(others)) <= each:
            continue
        for repeat in range(settings.repeats):
            rng = generator(settings.seed, "known providers", round=repeat, client=s)
            drawn = (rng.choice(group, each, False).tolist() for group in (members, others))
            known = {p: parts[p].member for group in drawn for p in group}
            unknown = tuple(p for p in there if p not in known)
            yield KnownMembershipSplit(s, repeat, known, unknown)


def questions(pages: Sequence[Document]) -> int:
    """Returns how many questions are asked about documents."""
    return sum(len(page.questions) for page in pages)


def _counted(documents: Documents) -> str:
    count = sum(map(len, documents.values()))
    return (
        f"the adversary holds {count} document{'s' * (count != 1)} of {len(documents)} "
        f"supplier{'s' * (len(documents) != 1)} with questions and answers"
    )
