"""Whether a resumed run goes on with the data that it was begun with.

A folder of documents changes between two commands: a page is added, a label corrected. The rounds
before and after would be of different data, and `partition.json` true of one of them only.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedpriv.data.digests import data_digest, document_digest
from fedpriv.federation.dataset import FederatedDataset
from fedpriv.runtime.cache import json_digest
from fedpriv.runtime.refusals import Refused
from fedpriv.runtime.run_files import Damaged
from fedpriv.runtime.run_folder import DATA, PARTITION, RunFolder

HELD_OUT = "held out"
"""Whose hands held-out documents are in."""

NAMED = 3
"""So many documents of a kind are named in a message."""


class OtherData(Refused):
    """A run would go on with other data than those that it was begun with."""

    def __init__(self, root: Path, why: str) -> None:
        super().__init__(
            f"{root}: {why}, or start a new run; --other-data (in Python other_data=True) goes on "
            "all the same"
        )


def digests(bound: FederatedDataset) -> dict[str, Any]:
    """Returns the content of `data.json`: digests of all documents by name, or of the examples.

    Held-out documents are among them, since metrics are of those. So is who holds each, as
    `partition.json` says it.
    """
    found: dict[str, str] = {}
    for page in itertools.chain(bound.documents, bound.held_out, bound.public):
        # Several may have one name, such as those that an augmentation makes.
        same = document_digest(page, here=False)[:20]
        found[page.id] = json_digest([found[page.id], same])[:20] if page.id in found else same
    if found:
        partition = bound.partition or {}
        who_has = {**partition.get("clients", {}), HELD_OUT: partition.get("test", {})}
        hands = {n: who for who, own in who_has.items() for names in own.values() for n in names}
        return {"documents": found, "hands": hands}
    tests = [bound.test] if bound.test is not None else []
    held = [data_digest(test, [np.arange(len(test))]) for test in tests]
    return {"examples": [data_digest(bound.train, bound.rows), *held]}


def held_out_digest(path: Path) -> str:
    """Returns a digest of the held-out documents, with their labels, that a run was measured on.

    Args:
        path: of the run folder.

    Returns:
        "" where the run does not say which they were.
    """
    folder = RunFolder(path)
    try:
        content = folder.read_json(DATA) or {}
        with folder.making_sense_of(DATA):
            hands = content.get("hands", {})
            held = {n: d for n, d in content.get("documents", {}).items() if hands[n] == HELD_OUT}
            found = held or content.get("examples", [])[1:]
    except Damaged:
        return ""
    return json_digest(found) if found else ""


def check(folder: RunFolder, bound: FederatedDataset) -> None:
    """Checks that the data are those that a run was begun with, labels included.

    Raises:
        OtherData: if they are not; names what differs.
    """
    before, now = folder.read_json(DATA), digests(bound)
    if before is None:
        raise OtherData(
            folder.path,
            f"{DATA} is not there, and whether the data are the same cannot be told. Put that file "
            "back",
        )
    if before != now:
        with folder.making_sense_of(DATA):
            told = "; ".join(_differences(before, now))
        raise OtherData(
            folder.path,
            f"the data are not those that it was run on before{told and ': '}{told}. Put them back "
            "as they were",
        )


def take(folder: RunFolder, bound: FederatedDataset, rounds: int) -> None:
    """Notes that a run goes on with these data: `partition.json` has theirs, and the earlier ones.

    Args:
        folder: of the run.
        bound: the data.
        rounds: the number of rounds that were run on other data.
    """
    now = digests(bound)
    if folder.read_json(DATA) == now:
        return
    if (partition := bound.partition) is not None:
        earlier = folder.read_json(PARTITION) or {}
        past = [*earlier.pop("earlier", ()), {"to_round": rounds, **earlier}]
        folder.write_json(PARTITION, {**partition, "earlier": past})
    folder.write_json(DATA, now)


def _differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    old, new = before.get("documents", {}), now.get("documents", {})
    whose, whose_now = before.get("hands", {}), now.get("hands", {})
    kinds = {
        "new": [name for name in new if name not in old],
        "gone": [name for name in old if name not in new],
        "changed": [name for name in new if name in old and new[name] != old[name]],
    }
    if not any(kinds.values()):  # else it follows from them
        kinds["in other hands"] = [n for n in new if whose.get(n) != whose_now.get(n)]
    return [
        f"{len(names)} {kind} ({', '.join(names[:NAMED])}{', …' * (len(names) > NAMED)})"
        for kind, names in kinds.items()
        if names
    ]
