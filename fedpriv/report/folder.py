"""Reads a run folder into frozen dataclasses, in whatever state the run was killed in.

Every file but ``config.yaml`` may be absent or broken: what cannot be read is told in words, and
the rest is read.
"""

from __future__ import annotations

import base64
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeGuard

from fedpriv.data.document import Box, DataError, read_image
from fedpriv.runtime import run_files
from fedpriv.runtime.run_files import Damaged
from fedpriv.runtime.run_folder import BOOKED, FINDINGS, LEDGER, REPORT, RESULT, with_booked
from fedpriv.runtime.run_settings import settings_from, settings_text
from fedpriv.runtime.verify import RETRAINED
from fedpriv.threat.results import Result, read_result
from fedpriv.threat.surfaces.retrain import PLAN

Row = Mapping[str, Any]
"""One decoded line of a JSON-lines file of the run."""

NOTHING = object()
"""Where there is no JSON value, not even null."""

_NOT_OURS = (LookupError, TypeError, ValueError, OverflowError, AttributeError)
"""What content of another shape leads to."""

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
    files = RunReader(folder)
    config, text = files.config()
    run = Run(
        folder=folder,
        config=config,
        config_text=text,
        rounds=files.rounds("metrics.jsonl"),
        partition=files.partition(),
        failures=files.lines("failures.jsonl"),
        prediction=files.prediction(),
        ledger=files.ledger(),
        problems=(),
        trainings=files.trainings(),
        findings=files.findings(),
        planned=files.mapping(PLANNED),
    )
    return replace(run, problems=tuple(dict.fromkeys(files.problems))[:MOST_PROBLEMS])


def is_round(value: object) -> TypeGuard[int]:
    """Says whether a value of the run's files can be the number of a round."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**9


class RunReader:
    """Reads the files of a run folder.

    Args:
        folder: the folder.

    Attributes:
        problems: what could not be read, in words; it grows with each file.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.problems: list[str] = []

    def config(self) -> tuple[Mapping[str, Any], str]:
        """Returns the settings, and as text without the versions."""
        text = self.text("config.yaml")
        if text is None:
            return {}, ""
        try:
            config = settings_from(text)
        except ValueError as error:
            self.problems.append(f"config.yaml is shown as it is: {_brief(error)}")
            return {}, text
        shown = {key: value for key, value in config.items() if key != "versions"}
        return config, settings_text(shown, indent=2, width=100)

    def rounds(self, name: str) -> dict[int, Row]:
        """Returns the lines of a metrics file by round."""
        rounds = {}
        for row in self.lines(name):
            if is_round(row.get("round")):
                rounds[row["round"]] = row
            else:
                self.problems.append(f"{name}: a line without a round number was skipped")
        return dict(sorted(rounds.items()))

    def trainings(self) -> list[Training]:
        """Returns the variants that were trained beside the run, planned ones first."""
        plan = self.mapping(PLAN) or {}
        trainings = []
        found = [name for name in self.names(RETRAINED) if name != Path(PLAN).name]
        for name in dict.fromkeys([*plan, *found]):
            place, settings = f"{RETRAINED}/{name}", plan.get(name)
            planned = settings.get("rounds") if isinstance(settings, Mapping) else None
            training = Training(
                name,
                self.rounds(f"{place}/metrics.jsonl"),
                planned if is_round(planned) else None,
                bool(self.names(place, REPORT)),
            )
            trainings.append(training)
        return trainings

    def partition(self) -> Partition | None:
        """Returns who holds what; None where it is not recorded."""
        content = self.mapping("partition.json")
        if content is None:
            return None
        try:
            held, test = content["clients"], content.get("test") or {}
            clients = {str(client): _counts(providers) for client, providers in held.items()}
            everyone = [names for own in (*held.values(), test) for names in own.values()]
            documents = dict.fromkeys(str(name) for names in everyone for name in names)
            method = str(content.get("method") or "")
            return Partition(method, clients, _counts(test), tuple(documents))
        except (AttributeError, KeyError, TypeError) as error:
            self.problems.append(
                f"partition.json is not client -> provider -> documents: {error!r:.200}"
            )
            return None

    def prediction(self) -> Prediction | None:
        """Returns the held-out page with its predictions; None where there is none."""
        content = self.mapping("prediction.json")
        if content is None:
            return None
        words, answers = [], []
        try:
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
        except _NOT_OURS as error:
            self.problems.append(
                "prediction.json holds no list of words with boxes and tags or answers: "
                f"{error!r:.200}"
            )
            return None
        image, size = self.picture("prediction.png")
        document = str(content.get("document", ""))
        return Prediction(
            document, tuple(words), tuple(answers) if has_answers else None, image, size
        )

    def findings(self) -> list[Finding]:
        """Returns the results of attacks; one that cannot be read says why."""
        findings = []
        for name in self.names(FINDINGS):
            place = f"{FINDINGS}/{name}"
            files = self.names(place)
            if RESULT not in files:
                continue
            pictures = {}
            try:
                result = read_result(self.mapping(f"{place}/{RESULT}") or {})
                for file in _pictures_of(result)[:MOST_PICTURES]:
                    # What does not lie right beside the result is no picture of it.
                    if file in files:
                        pictures[file], _ = self.picture(f"{place}/{file}", exact=True)
                    else:
                        self.problems.append(f"{place} has no picture {file!r:.100}")
            except ValueError as error:
                self.problems.append(f"{place}/{RESULT}: {error}")
                why = f"the result cannot be shown: {error}"
                result = Result("", why, status=UNREADABLE)
            shown = {file: uri for file, uri in pictures.items() if uri}
            findings.append(Finding(name, result, shown))
        return findings

    def text(self, name: str) -> str | None:
        """Returns a file as text; None where it is not there, or a link or the like."""
        try:
            data = run_files.read(self.folder, name)
        except Damaged as error:
            self.problems.append(f"{name} was not read: {error}")
            return None
        return None if data is None else data.decode("utf-8", "replace")

    def names(self, place: str, pattern: str = "*") -> list[str]:
        """Returns the names in a folder; empty where it is not there."""
        try:
            return run_files.names(self.folder, place, pattern)
        except Damaged as error:
            self.problems.append(f"{place} was not read: {error}")
            return []

    def lines(self, name: str) -> list[Row]:
        """Returns the objects of a JSON-lines file; a killed run's broken last line is left out."""
        text = self.text(name) or ""
        # Not splitlines: it would also cut at characters that are part of a text, such as U+2028.
        lines = [line for line in text.split("\n") if line.strip()]
        rows: list[Row] = []
        for at, line in enumerate(lines, 1):
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                row = None
            if isinstance(row, dict):
                rows.append(row)
            elif at < len(lines):
                self.problems.append(f"{name}: line {at} is no JSON object, and was skipped")
        return rows

    def mapping(self, name: str) -> dict[str, Any] | None:
        """Returns a JSON object; None where there is none."""
        content = self.parsed(name)
        if isinstance(content, dict):
            return content
        if content is not NOTHING:
            self.problems.append(f"{name} holds no JSON object")
        return None

    def parsed(self, name: str) -> Any:
        """Returns what a JSON file holds, `NOTHING` where it is not there or cannot be read."""
        text = self.text(name)
        try:
            return NOTHING if text is None else json.loads(text)
        except (ValueError, RecursionError) as error:
            self.problems.append(f"{name} is not valid JSON: {_brief(error)}")
            return NOTHING

    def ledger(self) -> dict[str, Any] | None:
        """Returns the ledger as far as it has come."""
        ledger, booked = run_files.unchanged(
            self.folder / LEDGER, lambda: (self.mapping(LEDGER), self.lines(BOOKED))
        )
        try:
            return with_booked(ledger, booked) if ledger and booked else ledger
        except (KeyError, TypeError) as error:
            self.problems.append(f"{BOOKED} holds no attempts: {error!r}")
            return ledger

    def picture(self, name: str, *, exact: bool = False) -> tuple[str, tuple[int, int]]:
        """Returns a picture as a data URI, and its width and height in pixels of the file.

        Unless `exact`, it is shrunk and compressed with loss.
        """
        try:
            with run_files.open_file(self.folder, name) as file:
                image = read_image(Path(f"/dev/fd/{file.fileno()}"))
        except FileNotFoundError:
            return "", (0, 0)
        except (DataError, Damaged) as error:
            why = error.why if isinstance(error, DataError) else str(error)
            self.problems.append(f"{name} cannot be shown: {why}")
            return "", (0, 0)
        data, size = io.BytesIO(), image.size
        if exact:
            image.save(data, "PNG")
        else:
            image.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
            image.save(data, "JPEG", quality=80, optimize=True)
        kind = "png" if exact else "jpeg"
        return f"data:image/{kind};base64,{base64.b64encode(data.getvalue()).decode()}", size


def _brief(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]


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
