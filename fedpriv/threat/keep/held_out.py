"""What a run keeps for attacks that ask who was trained on: held-out pages, and the first model.

`candidates/` in a run folder holds documents of every provider that may be suspected, whether it
was trained on or not; which of them were is in the truth store. Only the pages of canaries may have
been trained on themselves: who plants a page knows it.
"""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fedpriv.data.document import Document
from fedpriv.data.documents_on_disk import keep_documents, kept_documents, page_digest
from fedpriv.federation.dataset import FederatedDataset
from fedpriv.federation.keep import Prepared
from fedpriv.runtime.run_folder import START, RunFolder
from fedpriv.threat.truth import save_parts

CANDIDATES = "candidates"
DOCUMENTS = f"{CANDIDATES}/documents.json"
PAGES = f"{CANDIDATES}/pages"

Duplicates = Literal["refuse", "drop"]


class NoCandidates(ValueError):
    """The run folder holds no suspects."""


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
            found.append(f"only one provider is held out, {asked.pop()!r}: there is nobody to tell")
        elif not any(not bound.parts[provider].member for provider in asked):
            found.append(
                "every held-out document is of a provider that is trained on: set data.test.unseen "
                "to the share of the providers that shall not be, or data.canaries"
            )
        elif not any(bound.parts[provider].member for provider in asked):
            found.append("no held-out document is of a provider that is trained on")
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
        NoCandidates: if nothing was kept.
        Damaged: if what was kept cannot be read.
    """
    content = folder.read_json(DOCUMENTS)
    if content is None:
        raise NoCandidates(
            f"{folder.path} keeps no documents to ask about: run the federation with "
            "keep=held_out (it has no effect on the training)"
        )
    by_provider: dict[str, list[Document]] = defaultdict(list)
    with folder.making_sense_of(DOCUMENTS):
        for document in kept_documents(content["documents"], folder, PAGES, own):
            by_provider[document.provider].append(document)
        documents = {provider: tuple(pages) for provider, pages in by_provider.items()}
        dropped = operator.index(content["duplicates_dropped"])
        rate = float(content["canary_rate"])
        return Kept(documents, frozenset(content["canaries"]), rate, dropped)


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
