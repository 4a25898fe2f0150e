"""What to type after `fedpriv data check`: a run and an assessment of what was checked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedpriv.config import experiment
from fedpriv.config.overrides import in_shell, read, write
from fedpriv.data.document import Document, DocumentSource
from fedpriv.data.folder.reader import Folder
from fedpriv.data.hub.reader import HubData
from fedpriv.data.partition import HoldOut

SEEDS = range(3)
"""Of the draws of held-out providers for which the number of clients shall do."""


def next_lines(
    given: str,
    overrides: Sequence[str],
    source: DocumentSource,
    facts: dict[str, Any],
    documents: Sequence[Document],
) -> list[str]:
    """Returns the commands, quoted for a shell; none where no experiment reads the data by itself.

    Args:
        given: what was checked: a folder, a choice of data=, or a YAML file.
        overrides: the settings that the check was given.
        source: the reader.
        facts: see `fedpriv.cli.data.survey.survey`.
        documents: what it read.
    """
    if given.endswith((".yaml", ".yml")):
        return []
    chosen = given.removeprefix("data=")
    settings = list(overrides)
    if chosen == given and Path(given).is_dir():
        if not isinstance(source, Folder | HubData):
            return []  # the layout of a research data set, which was recognised with its settings
        chosen, key = ("folder", "root") if isinstance(source, Folder) else ("hf", "path")
        settings.insert(0, f"data.source.{key}={given if read(given) == given else write(given)}")
    if facts["problems"]["refused"] and "data.source.on_error=skip" not in settings:
        settings.append("data.source.on_error=skip")
    found = []
    if any(facts["entities"].values()) or facts["questions"]:
        tags = any(facts["entities"].values())
        name = "kie_layoutlmv3" if tags else "docvqa_vt5"
        found.append(_line(["run", name, f"data={chosen}", *settings], documents))
    if chosen == "folder" and facts["questions"]:
        found.append(_line(["assess", "assessed_folder", *settings], documents))
    return [line for line in found if line]


def _line(words: list[str], documents: Sequence[Document]) -> str:
    """Returns a command that its data are enough for, with fewer clients if need be, or ""."""
    data = experiment.load(words[1], words[2:])["data"]
    partition = data["partition"]
    try:
        test = HoldOut(**data["test"])
        kept = [test.split(documents, seed)[0] for seed in SEEDS]
    except (TypeError, ValueError):  # too few to hold some out: it would be refused
        return ""
    left = min(len({documents[i].provider for i in train}) for train in kept)
    if partition["_target_"].endswith(".ByProvider") and left < partition["clients"]:
        words = [*words, f"data.partition.clients={left}"]
    return f"fedpriv {' '.join(map(in_shell, words))}"
