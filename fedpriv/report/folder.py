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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeGuard

from PIL import Image

from fedpriv.data.document import Box, DataError, read_image
from fedpriv.runtime import run_files
from fedpriv.runtime.run_files import Damaged
from fedpriv.runtime.run_settings import settings_from, settings_text
from fedpriv.threat.results import FINDINGS, RESULT, Result, read_result

Row = Mapping[str, Any]
"""One decoded line of a JSON-lines file of the run."""

NOTHING = object()
"""Where there is no JSON value, not even null."""

MOST_PROBLEMS = 20
MOST_PICTURES = 16
"""Of one attack."""

PICTURES = "pictures"
"""The kind of figure that shows files, `[[caption, file], ...]` under "panels"."""

UNREADABLE = "unreadable"
LONGEST_SIDE = 1500
"""Of the page's picture in the report, in pixels."""


@dataclass(frozen=True)
class Partition:
    """Who holds what: client -> provider -> number of documents, and the held-out providers."""

    method: str
    clients: Mapping[str, Mapping[str, int]]
    test: Mapping[str, int]


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
class Found:
    """What one attack left.

    Attributes:
        name: of the attack.
        metrics: the content of its ``metrics.json``.
        curves: by message, the content of ``curve.json``.
        texts: by message, the content of ``text.json``.
        pages: by recovered page, its pictures as data URIs, by panel.
        verdicts: the content of ``verdicts.json``.
        over_p: the content of ``curves.json``, of an attack on fields.
        scores: the content of ``scores.json``, of an extraction study.
    """

    name: str
    metrics: Row
    curves: Mapping[str, Sequence[Row]]
    texts: Mapping[str, Row]
    pages: Mapping[str, Mapping[str, str]]
    verdicts: Sequence[Row] = ()
    over_p: Row = field(default_factory=dict)
    scores: Row = field(default_factory=dict)


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
    """One training of a study, whose folder ``trainings/NAME`` is a run folder.

    Attributes:
        name: of its folder.
        rounds: as those of a run.
        planned: how many rounds it is to have; None where the study has no plan of it.
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
        found: what attacks have left that write ``metrics.json``, by name.
        problems: what could not be read, in words for the reader.
        trainings: those that a study consists of, planned ones included; empty for other runs.
        findings: the results of attacks, by name.
    """

    folder: Path
    config: Mapping[str, Any]
    config_text: str
    rounds: Mapping[int, Row]
    partition: Partition | None
    failures: Sequence[Row]
    prediction: Prediction | None
    ledger: Row | None
    found: Sequence[Found]
    problems: Sequence[str]
    trainings: Sequence[Training] = ()
    findings: Sequence[Finding] = ()


def read_run(folder: Path) -> Run:
    """Returns what a run folder holds; what cannot be read is named in `Run.problems`.

    Raises:
        ValueError: the folder holds no ``config.yaml``.
    """
    if not (folder / "config.yaml").is_file():
        raise ValueError(f"{folder} is not a run folder: it holds no config.yaml")
    problems: list[str] = []
    config, text = _read_config(folder, problems)
    rounds = _read_rounds(folder, "metrics.jsonl", problems)
    trainings = _read_trainings(folder, problems)
    return Run(
        folder=folder,
        config=config,
        config_text=text,
        rounds=rounds,
        partition=_read_partition(folder, problems),
        failures=_read_lines(folder, "failures.jsonl", problems),
        prediction=_read_prediction(folder, problems),
        ledger=_read_json(folder, "ledger.json", problems),
        found=_read_findings(folder, problems),
        findings=_read_results(folder, problems),
        problems=tuple(dict.fromkeys(problems))[:MOST_PROBLEMS],
        trainings=trainings,
    )


def _read_text(folder: Path, name: str, problems: list[str]) -> str | None:
    """Returns a file as text; None where it is not there, or a link or the like."""
    try:
        data = run_files.read(folder, name)
    except Damaged as error:
        problems.append(f"{name} was not read: {error}")
        return None
    return None if data is None else data.decode("utf-8", "replace")


def _names(folder: Path, place: str, problems: list[str], pattern: str = "*") -> list[str]:
    try:
        return run_files.names(folder, place, pattern)
    except Damaged as error:
        problems.append(f"{place} was not read: {error}")
        return []


def _read_rounds(folder: Path, name: str, problems: list[str]) -> dict[int, Row]:
    rounds = {}
    for row in _read_lines(folder, name, problems):
        if is_round(row.get("round")):
            rounds[row["round"]] = row
        else:
            problems.append(f"{name}: a line without a round number was skipped")
    return dict(sorted(rounds.items()))


def _read_trainings(folder: Path, problems: list[str]) -> list[Training]:
    """Returns a study's trainings, planned ones first, in the order of the plan."""
    plan = _read_json(folder, "plan.json", problems) or {}
    begun = _names(folder, "trainings", problems)
    trainings = []
    for name in dict.fromkeys([*plan, *begun]):
        place = f"trainings/{name}"
        rounds = _read_rounds(folder, f"{place}/metrics.jsonl", problems)
        has_report = bool(_names(folder, place, problems, "report.html"))
        trainings.append(Training(name, rounds, _planned(plan.get(name)), has_report))
    return trainings


def _planned(settings: object) -> int | None:
    rounds = settings.get("rounds") if isinstance(settings, Mapping) else None
    return rounds if is_round(rounds) else None


def is_round(value: object) -> TypeGuard[int]:
    """Says whether a value of the run's files can be the number of a round."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**9


def _read_config(folder: Path, problems: list[str]) -> tuple[Mapping[str, Any], str]:
    text = _read_text(folder, "config.yaml", problems)
    if text is None:
        return {}, ""
    try:
        config = settings_from(text)
    except ValueError as error:
        problems.append(f"config.yaml is shown as it is: {_brief(error)}")
        return {}, text
    shown = {key: value for key, value in config.items() if key != "versions"}
    return config, settings_text(shown, indent=2, width=100)


def _brief(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]


def _read_lines(folder: Path, name: str, problems: list[str]) -> list[Row]:
    """Returns the objects of a JSON-lines file; a killed run's broken last line is left out."""
    text = _read_text(folder, name, problems) or ""
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
            problems.append(f"{name}: line {at} is no JSON object, and was skipped")
    return rows


def _read_list(folder: Path, name: str, problems: list[str]) -> list[Row]:
    """Returns the objects of a JSON array; empty where there is none."""
    content = _parsed(folder, name, problems)
    return [row for row in content if isinstance(row, dict)] if isinstance(content, list) else []


def _read_json(folder: Path, name: str, problems: list[str]) -> dict[str, Any] | None:
    content = _parsed(folder, name, problems)
    if isinstance(content, dict):
        return content
    if content is not NOTHING:
        problems.append(f"{name} holds no JSON object")
    return None


def _parsed(folder: Path, name: str, problems: list[str]) -> Any:
    """Returns what a JSON file holds, `NOTHING` where it is not there or cannot be read."""
    text = _read_text(folder, name, problems)
    try:
        return NOTHING if text is None else json.loads(text)
    except (ValueError, RecursionError) as error:
        problems.append(f"{name} is not valid JSON: {_brief(error)}")
        return NOTHING


def _read_partition(folder: Path, problems: list[str]) -> Partition | None:
    content = _read_json(folder, "partition.json", problems)
    if content is None:
        return None
    try:
        clients = {
            str(client): _counts(providers) for client, providers in content["clients"].items()
        }
        return Partition(
            str(content.get("method") or ""), clients, _counts(content.get("test") or {})
        )
    except (AttributeError, KeyError, TypeError) as error:
        problems.append(f"partition.json is not client -> provider -> documents: {error!r:.200}")
        return None


def _counts(providers: Mapping[str, Sequence[str]]) -> dict[str, int]:
    return {str(provider): len(documents) for provider, documents in providers.items()}


def _read_prediction(folder: Path, problems: list[str]) -> Prediction | None:
    content = _read_json(folder, "prediction.json", problems)
    if content is None:
        return None
    try:
        words = tuple(_read_word(word) for word in content["words"])
        answers = _read_answers(content.get("answers"))
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        problems.append(
            f"prediction.json holds no list of words with boxes and tags or answers: {error!r:.200}"
        )
        return None
    image, size = _read_picture(folder, "prediction.png", problems)
    return Prediction(str(content.get("document", "")), words, answers, image, size)


def _read_word(word: Mapping[str, Any]) -> TaggedWord:
    x0, y0, x1, y1 = (float(side) for side in word["box"])
    if not all(map(math.isfinite, (x0, y0, x1, y1))):
        raise ValueError(f"box {word['box']}: expected four finite numbers")
    box = (min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1))
    tags = str(word.get("true", "O")), str(word.get("predicted", "O"))
    return TaggedWord(str(word["text"]), box, *tags)


def _read_answers(answers: Sequence[Mapping[str, Any]] | None) -> tuple[Answered, ...] | None:
    if answers is None:
        return None
    return tuple(
        Answered(
            key=str(said.get("key", "")),
            question=str(said["question"]),
            accepted=tuple(str(text) for text in said["accepted"]),
            answer=str(said["answer"]),
            confidence=float(said["confidence"]),
        )
        for said in answers
    )


def _read_results(folder: Path, problems: list[str]) -> list[Finding]:
    findings = []
    for name in _names(folder, FINDINGS, problems):
        place = f"{FINDINGS}/{name}"
        files = _names(folder, place, problems)
        if RESULT not in files:
            continue
        pictures = {}
        try:
            result = read_result(_read_json(folder, f"{place}/{RESULT}", problems) or {})
            for file in _named_pictures(result)[:MOST_PICTURES]:
                # What does not lie right beside the result is no picture of it.
                if file in files:
                    uri, _ = _read_picture(folder, f"{place}/{file}", problems, exact=True)
                    pictures[file] = uri
                else:
                    problems.append(f"{place} has no picture {file!r:.100}")
        except ValueError as error:
            problems.append(f"{place}/{RESULT}: {error}")
            result = Result("", f"the result cannot be shown: {error}", status=UNREADABLE)
        findings.append(Finding(name, result, {file: uri for file, uri in pictures.items() if uri}))
    return findings


def _named_pictures(result: Result) -> list[str]:
    """Returns the files that the figures of a result name, as far as they are of our shape."""
    panels = [
        panel
        for figure in result.figures
        if figure.kind == PICTURES and isinstance(figure.data.get("panels"), list)
        for panel in figure.data["panels"]
    ]
    files = [one[1] for one in panels if isinstance(one, list) and len(one) == 2]
    return list(dict.fromkeys(file for file in files if isinstance(file, str)))


def _read_findings(folder: Path, problems: list[str]) -> list[Found]:
    found: list[Found] = []
    for name in _names(folder, "findings", problems):
        place = f"findings/{name}"
        metrics = _read_json(folder, f"{place}/metrics.json", problems)
        if metrics is None:
            continue
        curves = _read_json(folder, f"{place}/curve.json", problems) or {}
        texts = _read_json(folder, f"{place}/text.json", problems) or {}
        verdicts = _read_list(folder, f"{place}/verdicts.json", problems)
        over_p = _read_json(folder, f"{place}/curves.json", problems) or {}
        scores = _read_json(folder, f"{place}/scores.json", problems) or {}
        pages = _read_pages(folder, place, problems)
        found.append(Found(name, metrics, curves, texts, pages, verdicts, over_p, scores))
    return found


def _read_pages(folder: Path, place: str, problems: list[str]) -> dict[str, dict[str, str]]:
    """Returns the pictures `<page>-<panel>.png` as data URIs, by page and panel."""
    pages: dict[str, dict[str, str]] = {}
    for name in _names(folder, place, problems, "*.png"):
        page, _, panel = name.removesuffix(".png").rpartition("-")
        uri, _ = _read_picture(folder, f"{place}/{name}", problems, exact=True)
        if uri:
            pages.setdefault(page, {})[panel] = uri
    return pages


def _read_picture(
    folder: Path, name: str, problems: list[str], *, exact: bool = False
) -> tuple[str, tuple[int, int]]:
    """Returns the picture as a data URI, and its width and height in pixels of the file.

    Unless `exact`, it is shrunk and compressed with loss.
    """
    try:
        with run_files.open_file(folder, name) as file:
            image = read_image(Path(f"/dev/fd/{file.fileno()}"))
            return _data_uri(image, exact), image.size
    except FileNotFoundError:
        return "", (0, 0)
    except (DataError, Damaged) as error:
        why = error.why if isinstance(error, DataError) else str(error)
        problems.append(f"{name} cannot be shown: {why}")
        return "", (0, 0)


def _data_uri(image: Image.Image, exact: bool) -> str:
    if exact:
        png = io.BytesIO()
        image.save(png, "PNG")
        return "data:image/png;base64," + base64.b64encode(png.getvalue()).decode()
    small = image.convert("RGB")
    small.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
    file = io.BytesIO()
    small.save(file, "JPEG", quality=80, optimize=True)
    return "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode()
