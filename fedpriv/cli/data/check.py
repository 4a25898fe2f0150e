"""`fedpriv data check`: tells what was understood of a data set, and draws some of its pages."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fedpriv.cli import completion
from fedpriv.cli.command import Command
from fedpriv.config import catalogue
from fedpriv.runtime import run_files
from fedpriv.runtime.refusals import Mistakes, near
from fedpriv.runtime.terminal import visible

if TYPE_CHECKING:
    from fedpriv.data.document import DocumentSource

GROUP = "data"
SHEET = "contact-sheet.png"
PERSONAL = (
    "The pages may carry names, addresses and other personal data: keep the sheet and this "
    "output as you keep the data."
)


@click.command(
    "check",
    cls=Command,
    epilog="""
        fedpriv data check ./scans
        fedpriv data check ./scans data.source.provider=company data.source.language=deu
        fedpriv data check sroie --pages 24 --out sheets
        fedpriv data check my_data.yaml --json
    """,
)
@click.argument(
    "given",
    metavar="FOLDER_OR_NAME",
    shell_complete=completion.data,
    help="A folder, a choice of data= (see `fedpriv list data`), or a data YAML file.",
)
@click.argument("overrides", nargs=-1, help="Settings of data.source, as `fedpriv run` takes them.")
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
def command(
    given: str, overrides: tuple[str, ...], as_json: bool, out: Path | None, pages: int
) -> int:
    """Tell what is understood of a data set, what is not, and what it is enough for.

    Counts documents, providers, words, fields and questions, lists what was skipped and why, says
    what models, strategies and attacks would have to work with, and draws some pages with their
    boxes. The last lines are the commands to type next, with the settings of this check, and the
    path of the drawing. A folder that lies here is read before a choice of data= of the same name;
    data=NAME names the choice.
    """
    from fedpriv.cli.data.next_lines import next_lines
    from fedpriv.cli.data.prospects import ASSUMED, prospects
    from fedpriv.cli.data.survey import as_table, survey
    from fedpriv.data import promises
    from fedpriv.data.generated.invoices import Invoices

    name, source = find_source(given, overrides)
    if not 0 <= pages <= 100:
        raise Mistakes(given, [f"--pages {pages}: expected 0 to 100"])
    try:
        found = promises.load(source)
    except (ValueError, OSError) as error:
        problems = [str(one) for one in getattr(error, "errors", (error,))]
        raise Mistakes(given, problems) from error
    facts = {"source": repr(source), **survey(found)}
    facts["problems"]["refused"] = bool(found.skipped) and hasattr(source, "on_error")
    facts["works"] = [one.plain() for one in prospects(found)]
    facts["works_with"] = ASSUMED
    if Path(given).is_dir() and given in catalogue.groups().get(GROUP, {}):
        facts["taken"] = (
            f"the folder {given} that lies here; `fedpriv data check {GROUP}={given}` reads the "
            f"choice of {GROUP}= of that name"
        )
    if not isinstance(source, Invoices):
        facts["note"] = PERSONAL
    if pages and found.documents:
        from fedpriv.cli.data.contact_sheet import draw

        path = (out or Path(f"data-{name}")) / SHEET
        facts["contact_sheet"] = str(path)
        with run_files.output(path) as file:
            draw(found.documents, found.labels, pages).save(file, "PNG")
    facts["next"] = next_lines(given, overrides, source, facts, found.documents)
    if as_json:
        print(json.dumps(facts))
        return 0
    typed = ["Next:", *map(visible, facts["next"])] if facts["next"] else []
    lines = [as_table(facts), facts.get("note"), *typed, facts.get("contact_sheet")]
    print("\n".join(line for line in lines if line))
    return 0


def find_source(given: str, overrides: Sequence[str] = ()) -> tuple[str, DocumentSource]:
    """Returns a short name and the reader of a folder, a choice of data= or a data YAML file.

    Whatever names it, the reader skips what it cannot read, if it can skip.

    Args:
        given: the name or path; a folder goes before a choice of the same name, data=NAME is one.
        overrides: settings of `data.source`.

    Raises:
        Mistakes: if nothing of that name exists or its settings are wrong.
    """
    from fedpriv.cli.data.recognise import recognise
    from fedpriv.data.folder.reader import Folder
    from fedpriv.data.hub.reader import HubData

    if not given.strip():
        raise Mistakes("data check", ["expected a folder, a YAML file or a name"])
    path = Path(given)
    chosen = given.removeprefix(f"{GROUP}=")
    choices = catalogue.groups().get(GROUP, {})
    if given.endswith((".yaml", ".yml")):
        _refuse_settings(given, overrides, "a YAML file has its own")
        return path.stem, _built(_section_of_file(path), given)
    if path.is_dir() and chosen == given:
        try:
            source = recognise(path)
        except (ValueError, OSError) as error:
            raise Mistakes(given, [str(error)]) from error
        name = path.resolve().name or "root"
        if overrides and isinstance(source, Folder | HubData):
            choice, key = ("folder", "root") if isinstance(source, Folder) else ("hf", "path")
            return name, _built(_section(choice, given, overrides, (key, str(path))), given)
        _refuse_settings(given, overrides, f"the folder is read by {type(source).__name__}")
        return name, source
    if chosen in choices or chosen in catalogue.plugins()[GROUP] or "." in chosen:
        return chosen, _built(_section(chosen, given, overrides), given)
    problem = (
        f"no folder, no data of that name{near(given, choices)} and no YAML file: "
        f"expected a folder, a YAML file or one of {', '.join(choices)}"
    )
    raise Mistakes(given, [problem])


def _section(
    choice: str, given: str, overrides: Sequence[str], place: tuple[str, str] | None = None
) -> Any:
    """Returns the data section of a choice of data=, with settings.

    Args:
        choice: of data=.
        given: by the user, for errors.
        overrides: the settings.
        place: the setting of the source that says where the data lie, and its value.
    """
    from fedpriv.config import experiment
    from fedpriv.config.overrides import write

    settings = [f"{GROUP}={choice}", *overrides]
    if place is not None:
        settings.append(f"{GROUP}.source.{place[0]}={write(place[1])}")
    try:
        return experiment.load("quickstart", settings)[GROUP]
    except Mistakes as error:
        raise Mistakes(given, error.problems) from error


def _refuse_settings(given: str, overrides: Sequence[str], why: str) -> None:
    if overrides:
        raise Mistakes(given, [f"{' '.join(overrides)}: settings are not taken here; {why}"])


def _section_of_file(path: Path) -> Any:
    """Returns the data section of a YAML file: of an experiment, or of a choice of data=."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    from fedpriv.config import experiment, yaml_file

    catalogue.experiment(str(path))  # raises Mistakes if there is no such file
    try:
        yaml_file.check(path)
        content = OmegaConf.load(path)
        if OmegaConf.is_dict(content) and "defaults" in content:
            return experiment.load(str(path))[GROUP]
        if OmegaConf.is_dict(content) and GROUP in content:
            return OmegaConf.to_container(content, resolve=True)[GROUP]  # type: ignore[call-overload, index]
        whole = OmegaConf.create({"seed": 0, GROUP: content})
        return OmegaConf.to_container(whole[GROUP], resolve=True)
    except (OmegaConfBaseException, yaml_file.BadYAML, OSError) as error:
        raise Mistakes(str(path), [str(error).splitlines()[0]]) from error


def _built(section: Any, given: str) -> DocumentSource:
    """Builds the source of a data section, or of a section that is one; lets it skip if it can."""
    from fedpriv.config.construct import TARGET, construct
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
