"""Reads a run folder into frozen dataclasses, in whatever state the run was killed in.

Every file but ``config.yaml`` may be absent or broken: what cannot be read is told in words, and
the rest is read.
"""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedpriv.data.document import Box, DataError, read_image
from fedpriv.runtime import run_files
from fedpriv.runtime.run_files import Damaged
from fedpriv.runtime.run_folder import (
    CONFIG,
    FAILURES,
    FINDINGS,
    METRICS,
    PARTITION,
    PREDICTION,
    REPORT,
    RESULT,
    RunFolder,
    is_round,
)
from fedpriv.runtime.run_settings import settings_text
from fedpriv.runtime.verify import RETRAINED
from fedpriv.threat.results import Result, read_result
from fedpriv.threat.surfaces.retrain import PLAN

Row = Mapping[str, Any]
"""One decoded line of a JSON-lines file of the run."""

MOST_PROBLEMS = 20
MOST_PICTURES = 16
"""Of one attack."""

PICTURES = "pictures"
"""The kind of figure that shows files, `[[caption, file], ...]` under "panels"."""

PLANNED = "budget.json"
"""A plan that stands beside the run, as `fedpriv budget --json` prints it."""

UNREADABLE = "unreadable"
LONGEST_SIDE = 1500
"""Of the page's picture in the report, in pixels."""


@dataclass(frozen=True)
class Partition:
    """Who holds what: client -> provider -> number of documents, and the held-out providers.

    `documents` are the names of all documents, training and held-out.
    """

    method: str
    clients: Mapping[str, Mapping[str, int]]
    test: Mapping[str, int]
    documents: Sequence[str] = ()


@dataclass(frozen=True)
class TaggedWord:
    """A word of a page with its true and its predicted BIO tag."""

    text: str
    box: Box
    true: str
    predicted: str


@dataclass(frozen=True)
class Answered:
    """A question about a page, what is accepted as its answer, and what the model answered."""

    key: str
    question: str
    accepted: tuple[str, ...]
    answer: str
    confidence: float


@dataclass(frozen=True)
class Prediction:
    """One held-out page with its tags, or answers where the model gives those.

    `answers` is None for a model that tags; `image` is a data URI, "" where there is no picture.
    """

    document: str
    words: tuple[TaggedWord, ...]
    answers: tuple[Answered, ...] | None
    image: str
    size: tuple[int, int]


@dataclass(frozen=True)
class Finding:
    """The scored result of one attack.

    Attributes:
        name: of the attack.
        result: with `UNREADABLE` as its status where the file holds none.
        pictures: those that its figures name, by file name, as data URIs.
    """

    name: str
    result: Result
    pictures: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Training:
    """One variant of a run, whose folder ``retrained/NAME`` is a run folder.

    Attributes:
        name: of its folder.
        rounds: as those of a run.
        planned: how many rounds it is to have; None where there is no plan of it.
        has_report: whether it has a ``report.html``.
    """

    name: str
    rounds: Mapping[int, Row]
    planned: int | None
    has_report: bool

    @property
    def is_done(self) -> bool:
        """Whether it came to its end; without a plan, a report says so."""
        if self.planned is None:
            return self.has_report
        return max(self.rounds, default=0) >= self.planned


@dataclass(frozen=True)
class Run:
    """What a run folder holds.

    Attributes:
        folder: the folder.
        config: the settings, empty where the file is no YAML mapping.
        config_text: the settings as text, without the versions.
        rounds: the lines of ``metrics.jsonl`` by round; a resumed run's later line counts.
        partition: None where there is none.
        failures: the lines of ``failures.jsonl``.
        prediction: None where there is none.
        ledger: the content of ``ledger.json``, None where there is none.
        problems: what could not be read, in words for the reader.
        trainings: variants that were trained beside the run, planned ones included.
        findings: the results of attacks, by name.
        planned: the content of ``budget.json``, a plan as `fedpriv budget --json` prints it; None
            where there is none.
    """

    folder: Path
    config: Mapping[str, Any]
    config_text: str
    rounds: Mapping[int, Row]
    partition: Partition | None
    failures: Sequence[Row]
    prediction: Prediction | None
    ledger: Row | None
    problems: Sequence[str]
    trainings: Sequence[Training] = ()
    findings: Sequence[Finding] = ()
    planned: Row | None = None


def read_run(folder: Path) -> Run:
    """Returns what a run folder holds; what cannot be read is named in `Run.problems`.

    Raises:
        ValueError: the folder holds no ``config.yaml``.
    """
    if not (folder / "config.yaml").is_file():
        raise ValueError(f"{folder} is not a run folder: it holds no config.yaml")
    problems: list[str] = []
    files = RunFolder(folder, problems)
    config, text = _config(files)
    run = Run(
        folder=folder,
        config=config,
        config_text=text,
        rounds=_rounds(files, METRICS),
        partition=partition_of(files),
        failures=files.records(FAILURES),
        prediction=_prediction(files),
        ledger=files.read_ledger(),
        problems=(),
        trainings=_trainings(files),
        findings=_findings(files, problems),
        planned=files.read_json(PLANNED),
    )
    return replace(run, problems=tuple(dict.fromkeys(problems))[:MOST_PROBLEMS])


def _config(files: RunFolder) -> tuple[Mapping[str, Any], str]:
    """Returns the settings, and as text without the versions."""
    config = {}
    with files.noting():
        config = files.config()
    if not config:
        return {}, (files.read(CONFIG) or b"").decode("utf-8", "replace")
    shown = {key: value for key, value in config.items() if key != "versions"}
    return config, settings_text(shown, indent=2, width=100)


def _rounds(files: RunFolder, name: str) -> dict[int, Row]:
    """Returns the lines of a metrics file by round."""
    rounds = {row["round"]: row for row in files.records(name)}
    return dict(sorted(rounds.items()))


def _trainings(files: RunFolder) -> list[Training]:
    """Returns the variants that were trained beside the run, planned ones first."""
    plan = files.read_json(PLAN) or {}
    trainings = []
    found = [name for name in files.names(RETRAINED) if name != Path(PLAN).name]
    for name in dict.fromkeys([*plan, *found]):
        place, settings = f"{RETRAINED}/{name}", plan.get(name)
        planned = settings.get("rounds") if isinstance(settings, Mapping) else None
        training = Training(
            name,
            _rounds(files, f"{place}/{METRICS}"),
            planned if is_round(planned) else None,
            bool(files.names(place, REPORT)),
        )
        trainings.append(training)
    return trainings


def partition_of(files: RunFolder) -> Partition | None:
    """Returns who holds what; None where it is not recorded."""
    content, found = files.read_json(PARTITION), None
    if content is not None:
        with files.making_sense_of(PARTITION):
            held, test = content["clients"], content.get("test") or {}
            clients = {str(client): _counts(providers) for client, providers in held.items()}
            everyone = [names for own in (*held.values(), test) for names in own.values()]
            documents = dict.fromkeys(str(name) for names in everyone for name in names)
            method = str(content.get("method") or "")
            found = Partition(method, clients, _counts(test), tuple(documents))
    return found


def _prediction(files: RunFolder) -> Prediction | None:
    """Returns the held-out page with its predictions; None where there is none."""
    content, found = files.read_json(PREDICTION), None
    if content is None:
        return None
    with files.making_sense_of(PREDICTION):
        words, answers = [], []
        for word in content["words"]:
            x0, y0, x1, y1 = (float(side) for side in word["box"])
            if not all(map(math.isfinite, (x0, y0, x1, y1))):
                raise ValueError(f"box {word['box']}: expected four finite numbers")
            box = (min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1))
            tags = str(word.get("true", "O")), str(word.get("predicted", "O"))
            words.append(TaggedWord(str(word["text"]), box, *tags))
        has_answers = content.get("answers") is not None
        for given in content["answers"] if has_answers else ():
            answers.append(
                Answered(
                    key=str(given.get("key", "")),
                    question=str(given["question"]),
                    accepted=tuple(str(text) for text in given["accepted"]),
                    answer=str(given["answer"]),
                    confidence=float(given["confidence"]),
                )
            )
        image, size = _picture(files, "prediction.png")
        told = tuple(answers) if has_answers else None
        found = Prediction(str(content.get("document", "")), tuple(words), told, image, size)
    return found


def _findings(files: RunFolder, problems: list[str]) -> list[Finding]:
    """Returns the results of attacks; one that cannot be read says why."""
    findings = []
    for name in files.names(FINDINGS):
        place = f"{FINDINGS}/{name}"
        beside = files.names(place)
        if RESULT not in beside:
            continue
        pictures = {}
        try:
            result = read_result(files.read_json(f"{place}/{RESULT}") or {})
        except ValueError as error:
            problems.append(f"{place}/{RESULT}: {error}")
            result = Result("", f"the result cannot be shown: {error}", status=UNREADABLE)
        for file in _pictures_of(result)[:MOST_PICTURES]:
            # What does not lie right beside the result is no picture of it.
            if file in beside:
                pictures[file], _ = _picture(files, f"{place}/{file}", exact=True)
            else:
                problems.append(f"{place} has no picture {file!r:.100}")
        shown = {file: uri for file, uri in pictures.items() if uri}
        findings.append(Finding(name, result, shown))
    return findings


def _picture(files: RunFolder, name: str, *, exact: bool = False) -> tuple[str, tuple[int, int]]:
    """Returns a picture as a data URI, and its width and height in pixels of the file.

    Unless `exact`, it is shrunk and compressed with loss.
    """
    image = None
    with files.noting():
        try:
            with run_files.open_file(files.path, name) as file:
                image = read_image(Path(f"/dev/fd/{file.fileno()}"))
        except FileNotFoundError:
            pass
        except DataError as error:
            raise Damaged(f"{name} cannot be shown: {error.why}") from error
    if image is None:
        return "", (0, 0)
    data, size = io.BytesIO(), image.size
    if exact:
        image.save(data, "PNG")
    else:
        image.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
        image.save(data, "JPEG", quality=80, optimize=True)
    kind = "png" if exact else "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(data.getvalue()).decode()}", size


def _counts(providers: Mapping[str, Sequence[str]]) -> dict[str, int]:
    return {str(provider): len(documents) for provider, documents in providers.items()}


def _pictures_of(result: Result) -> list[str]:
    """Returns the files that the figures of a result name, as far as they are of our shape."""
    panels = [
        panel
        for figure in result.figures
        if figure.kind == PICTURES and isinstance(figure.data.get("panels"), list)
        for panel in figure.data["panels"]
    ]
    files = [one[1] for one in panels if isinstance(one, list) and len(one) == 2]
    return list(dict.fromkeys(file for file in files if isinstance(file, str)))
