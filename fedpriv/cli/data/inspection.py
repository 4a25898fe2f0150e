"""`fedpriv data inspect`: counts the contents of a data set and draws some of its pages."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fedpriv.cli import completion
from fedpriv.cli.command import Command
from fedpriv.config import catalogue

if TYPE_CHECKING:
    from fedpriv.data.document import DocumentSource

GROUP = "data"
SHEET = "contact-sheet.png"
PERSONAL = (
    "The pages may carry names, addresses and other personal data: keep the sheet and this "
    "output as you keep the data."
)


@click.command(
    "inspect",
    cls=Command,
    epilog="""
        fedpriv data inspect sroie
        fedpriv data inspect /path/to/folder --pages 24 --out sheets
        fedpriv data inspect my_data.yaml --json
    """,
)
@click.argument(
    "given",
    metavar="NAME_OR_PATH",
    shell_complete=completion.data,
    help="A choice of data= (see `fedpriv list data`), a data YAML file, or a folder.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option(
    "--out", type=Path, metavar="FOLDER", help=f"Write {SHEET} here (default: data-NAME)."
)
@click.option(
    "--pages",
    type=int,
    default=12,
    show_default=True,
    metavar="N",
    help="How many pages to draw, from 0 to 100.",
)
def command(given: str, as_json: bool, out: Path | None, pages: int) -> int:
    """Count what a data set holds, name its problems, and draw some of its pages.

    Counts documents, providers, words, entities and questions, and draws some pages with their
    boxes; the path of the drawing is the last line. Files that cannot be read are skipped and
    counted.
    """
    from fedpriv.cli.data.survey import as_table, survey
    from fedpriv.config.experiment import Mistakes
    from fedpriv.data.generated.invoices import Invoices

    name, source = find_source(given)
    if not 0 <= pages <= 100:
        raise Mistakes(given, [f"--pages {pages}: expected 0 to 100"])
    try:
        found = source.load()
    except (ValueError, OSError) as error:
        raise Mistakes(given, [str(error)]) from error
    facts = {"source": repr(source), **survey(found)}
    if not isinstance(source, Invoices):
        facts["note"] = PERSONAL
    if pages and found.documents:
        from fedpriv.cli.data.contact_sheet import draw

        path = (out or Path(f"data-{name}")) / SHEET
        facts["contact_sheet"] = str(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        draw(found.documents, found.labels, pages).save(path)
    if as_json:
        print(json.dumps(facts))
        return 0
    lines = [as_table(facts), facts.get("note"), facts.get("contact_sheet")]
    print("\n".join(line for line in lines if line))
    return 0


def find_source(given: str) -> tuple[str, DocumentSource]:
    """Returns a short name and the reader of a choice of data=, a data YAML file or a folder.

    Whatever names it, the reader skips what it cannot read, if it can skip.

    Raises:
        Mistakes: if nothing of that name exists or its settings are wrong.
    """
    from fedpriv.cli.data.recognise import recognise
    from fedpriv.config import experiment
    from fedpriv.config.construct import near

    path = Path(given)
    if given.endswith((".yaml", ".yml")):
        return path.stem, _built(_section_of_file(path), given)
    choices = catalogue.groups().get(GROUP, {})
    if given in choices:
        try:
            section = experiment.load("quickstart", [f"{GROUP}={given}"])[GROUP]
        except experiment.Mistakes as error:
            raise experiment.Mistakes(given, error.problems) from error
        return given, _built(section, given)
    if not path.is_dir():
        problem = (
            f"no data of that name{near(given, choices)}, no YAML file and no folder: "
            f"expected a folder, a YAML file or one of {', '.join(choices)}"
        )
        raise experiment.Mistakes(given, [problem])
    try:
        return path.resolve().name or "root", recognise(path)
    except (ValueError, OSError) as error:
        raise experiment.Mistakes(given, [str(error)]) from error


def _section_of_file(path: Path) -> Any:
    """Returns the data section of a YAML file: of an experiment, or of a choice of data=."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    from fedpriv.config import experiment

    experiment.find(str(path))  # raises Mistakes if there is no such file
    try:
        content = OmegaConf.load(path)
        if OmegaConf.is_dict(content) and "defaults" in content:
            return experiment.load(str(path))[GROUP]
        if OmegaConf.is_dict(content) and GROUP in content:
            return OmegaConf.to_container(content, resolve=True)[GROUP]  # type: ignore[call-overload, index]
        whole = OmegaConf.create({"seed": 0, GROUP: content})
        return OmegaConf.to_container(whole[GROUP], resolve=True)
    except (OmegaConfBaseException, YAMLError, OSError, UnicodeDecodeError) as error:
        raise experiment.Mistakes(str(path), [str(error).splitlines()[0]]) from error


def _built(section: Any, given: str) -> DocumentSource:
    """Builds the source of a data section, or of a section that is one; lets it skip if it can."""
    from fedpriv.config.construct import TARGET, construct
    from fedpriv.config.experiment import Mistakes
    from fedpriv.data.document import DocumentSource

    inner = section.get("source", section) if isinstance(section, Mapping) else None
    if not isinstance(inner, Mapping) or TARGET not in inner:
        problem = f"data.source: expected a section with a {TARGET}, found {inner!r}"
        raise Mistakes(given, [problem])
    problems: list[str] = []
    holder = dataclasses.make_dataclass("Data", [("source", DocumentSource)])
    built = construct(holder, {"source": inner}, GROUP, problems)
    if problems:
        raise Mistakes(given, problems)
    source: DocumentSource = built.source
    if dataclasses.is_dataclass(source) and hasattr(source, "on_error"):
        source = dataclasses.replace(source, on_error="skip")
    return source
