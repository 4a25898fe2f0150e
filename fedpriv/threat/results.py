"""What an attack found, scored: one shape for the terminal, the report and the run folder.

`findings/<attack>/result.json` holds a `Result`; the files that it names lie beside it.
"""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from pydantic import TypeAdapter, ValidationError

from fedpriv.runtime.run_folder import FINDINGS, RESULT, RunFolder
from fedpriv.threat.statistics import LEVEL, corrected

DONE, NOTHING_CLAIMED = "done", "nothing claimed"
NOT_GRANTED, NOT_APPLICABLE = "not granted", "not applicable"

LEAK, NONE_SHOWN, CANNOT_TELL, REFUSED = "leak", "none_shown", "cannot_tell", "not_applicable"
VERDICTS = (LEAK, NONE_SHOWN, CANNOT_TELL, REFUSED)
"""It leaks; it did not where it could have been seen; this run cannot tell; it was not attacked."""


@dataclass(frozen=True)
class Table:
    """Rows of text under headings.

    A table of one row sums an attack up: where several attacks of one kind have one of the same
    title, the report also shows a row for each attack under common headings.

    Attributes:
        headings: n; the first is of the rows' names.
        rows: each n texts.
        title: of the section that it stands in; tables and figures of one title go together.
        note: what a reader must know of it.
        printed: how many rows the terminal shows; None for all, 0 for none.
        public: whether no cell holds a name or a text of a document, so that a redacted report may
            show it.

    Raises:
        ValueError: if a row has another length than the headings.
    """

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    title: str = ""
    note: str = ""
    printed: int | None = None
    public: bool = False

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.headings):
                raise ValueError(
                    f"a row of {len(row)} cells under {len(self.headings)} headings: {row!r:.100}"
                )


@dataclass(frozen=True)
class Figure:
    """A figure as numbers; `fedpriv.report.render` draws it.

    Attributes:
        kind: how it is drawn, such as "lines", "roc" or "pictures".
        title: of the figure.
        data: arguments of the drawing function, as JSON has them.
        section: title of the section that it stands in.
    """

    kind: str
    title: str
    data: Mapping[str, Any]
    section: str = ""


@dataclass(frozen=True)
class Number:
    """A number that a person can act on, and what there is to know of it.

    Attributes:
        value: of this experiment.
        interval: in which it lies, by `fedpriv.threat.statistics`. None where there is none, as of
            a single unit.
        n: how many units it is of.
        unit: what was counted, such as "provider": what the truth was decided for.
        control: the same number where nothing can leak: of guessing, of what nobody trained on, of
            the blank template. None where nothing is known of it.
        detectable: the least value that so many units would show to be above the control in four
            of five experiments, if the control is as it was found; where the p-value comes of
            exchanged units, about that. None where even the largest would not be.
        p_value: of the difference to the control, two-sided; of rows beside the primary one
            corrected for their number. None without a control or an interval.
        most: the largest that it can be, such as 1 of a share; None where there is no such bound.
    """

    value: float
    interval: tuple[float, float] | None
    n: int
    unit: str
    control: float | None = None
    detectable: float | None = None
    p_value: float | None = None
    most: float | None = None


@dataclass(frozen=True)
class Result:
    """What an attack found, scored against the truth.

    Attributes:
        kind: of what was claimed, such as "pages", "membership" or "fields".
        headline: the finding in one sentence.
        clause: what its leak lets the adversary do, in words that follow "can"; "" where its
            scorer has none.
        details: further numbers by name; may be nested. None stands for what does not apply.
        tables: for terminal and report.
        figures: for the report.
        notes: what a reader must know.
        assumptions: what the adversary was taken to have and to know, in words.
        left_out: reason → how many questions, fields or pages were left out for it.
        not_applicable: part of the attack → why it could not be run.
        threat_model: type of the access → whether it was granted, from the attack's annotation.
        settings: of attack and scoring, as text.
        status: "done", "nothing claimed", "not granted", "not applicable", or what else happened.
        verdict: one of `VERDICTS`.
        certain: whether a leak needs no test, such as a message that was recovered exactly: then
            no number of tests takes it back.
        primary: name of the number that the verdict rests on. All others are exploratory.
        numbers: those that a person can act on, by name.
        public: whether no text, name or figure in it can quote a document, a provider or a path, so
            that a redacted report may show them. The runner says so of fedpriv's own attacks and
            scorers. Tables say it for themselves.
    """

    kind: str
    headline: str
    details: Mapping[str, Any] = field(default_factory=dict)
    tables: tuple[Table, ...] = ()
    figures: tuple[Figure, ...] = ()
    notes: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    left_out: Mapping[str, int] = field(default_factory=dict)
    not_applicable: Mapping[str, str] = field(default_factory=dict)
    threat_model: Mapping[str, bool] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    status: str = DONE
    verdict: str = CANNOT_TELL
    certain: bool = False
    primary: str = ""
    numbers: Mapping[str, Number] = field(default_factory=dict)
    public: bool = False
    clause: str = ""

    @property
    def refused(self) -> bool:
        """Whether the attack was not run at all."""
        return self.status in (NOT_GRANTED, NOT_APPLICABLE)


def joined(results: Sequence[Result]) -> Result:
    """Returns several results, of the kinds of claims of one attack, as one.

    One leak is a leak. One that its p-value shows must be one at a p-value corrected for how many
    tests there are (Holm 1979). That nothing was shown is said only where no part cannot tell.
    """
    tested = [n for n, one in enumerate(results) if one.primary in one.numbers]
    tested = [n for n in tested if results[n].numbers[results[n].primary].p_value is not None]
    p_values = [results[n].numbers[results[n].primary].p_value or 0.0 for n in tested]
    parts = list(results)
    for n, alone, p in zip(tested, p_values, corrected(p_values), strict=True):
        one = results[n]
        primary = dataclasses.replace(one.numbers[one.primary], p_value=p)
        parts[n] = dataclasses.replace(
            one,
            headline=one.headline.replace(f"p {alone:.2g}", f"p {p:.2g}", 1),
            numbers={**one.numbers, one.primary: primary},
        )
        if one.verdict == LEAK and not one.certain and alone <= LEVEL < p:
            said = f"{parts[n].headline}; not shown among {len(tested)} tests (p {p:.2g})"
            parts[n] = dataclasses.replace(parts[n], verdict=CANNOT_TELL, headline=said)
    first = min(parts, key=lambda one: (LEAK, CANNOT_TELL, *VERDICTS).index(one.verdict))
    return dataclasses.replace(
        first,
        headline="; ".join(dict.fromkeys(one.headline for one in parts if one.headline)),
        numbers={name: value for one in parts for name, value in one.numbers.items()},
        details={name: value for one in parts for name, value in one.details.items()},
        tables=tuple(table for one in parts for table in one.tables),
        figures=tuple(figure for one in parts for figure in one.figures),
        notes=tuple(dict.fromkeys(note for one in parts for note in one.notes)),
    )


Files = Mapping[str, Any]
"""Contents by file name: pictures, (H, W, 3) uint8, under `*.png`; all else as JSON."""


def write_result(folder: RunFolder, name: str, result: Result, files: Files | None = None) -> None:
    """Writes a result in place of what an earlier attack of that name left.

    Args:
        folder: of the run.
        name: of the folder under `findings`.
        result: to be written last, so that it stands for all files.
        files: what lies beside it.
    """
    place = f"{FINDINGS}/{name}"
    folder.remove(place)
    for file, content in (files or {}).items():
        if file.endswith(".png"):
            folder.write(f"{place}/{file}", png(content))
        else:
            folder.write_json(f"{place}/{file}", content)
    folder.write_json(f"{place}/{RESULT}", dataclasses.asdict(result))


def read_result(values: Mapping[str, Any]) -> Result:
    """Returns the result that a JSON object describes.

    Raises:
        ValueError: if it is none.
    """
    try:
        result: Result = TypeAdapter(Result).validate_python(values)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise ValueError(f"it is no result of an attack: {place}: {first['msg']}") from error
    return result


def png(pixels: NDArray[np.uint8]) -> bytes:
    """Returns a picture, (H, W, 3), as the bytes of a file."""
    data = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(data, "PNG")
    return data.getvalue()
