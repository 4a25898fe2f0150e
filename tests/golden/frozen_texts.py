"""Small studies through the command line whose results and pages a redesign may not change.

`python tests/golden/frozen.py texts` makes them anew and writes `texts/`: JSON as the commands
write it, what they print, and the pages as `readable.visible` reads them.
"""

import contextlib
import json
import os
import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

import frozen
from readable import as_json, rounded, scrubbed, visible

from fedpriv.studies.assessing.assessed import from_json, markdown

TEXTS = Path(__file__).with_name("texts")
MACHINE = "machine.json"
"""What made the texts of a study, beside them."""

TOYS = Path(__file__).with_name("toys")

Texts = dict[str, str]


@contextlib.contextmanager
def workplace() -> Iterator[Path]:
    """Changes into a new folder with the toys among its experiments, as those of a paper."""
    from fedpriv.studies import papers

    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "experiments"
        (place / "papers").mkdir(parents=True)
        shutil.copytree(TOYS, place / "papers" / "toys")
        for name in ("study", "noise"):
            shutil.move(place / "papers" / "toys" / f"{name}.yaml", place / f"{name}.yaml")
        papers.PAPERS["toys"] = papers.Paper("toys", "Nobody 2026, Of Toys")
        os.chdir(folder)
        try:
            yield Path(folder)
        finally:
            os.chdir(before)
            del papers.PAPERS["toys"]


def sweep() -> Texts:
    """Of a sweep: results, table, what is printed, and its page, also redacted."""
    out = frozen.printed("sweep", "experiments/noise.yaml")
    folder = last(out)
    frozen.command("report", str(folder), "--redacted")
    return {
        "printed.txt": out,
        "results.json": as_json(json.loads((folder / "results.json").read_text())),
        "table.md": (folder / "table.md").read_text("utf-8"),
        "page.txt": page(folder / "report.html"),
        "redacted.txt": page(folder / "report-redacted.html"),
    }


def reproduced() -> Texts:
    """Of a paper: each table as `fedpriv reproduce` writes it, and the page of the paper."""
    out = frozen.printed("reproduce", "toys", "seeds=6")
    folder = last(out)
    table = max((folder / "table_1").iterdir())
    return {
        "printed.txt": out,
        "paper.json": as_json(json.loads((folder / "paper.json").read_text())),
        "page.txt": page(folder / "report.html"),
        "table.json": as_json(json.loads((table / "table.json").read_text())),
        "table.csv": rounded((table / "table.csv").read_text("utf-8")),
        "table.md": (table / "table.md").read_text("utf-8"),
        "table.page.txt": page(table / "report.html"),
    }


def assessed() -> Texts:
    """Of an assessment, and of a comparison and the reports of some of its trainings."""
    defences = "none,'strategy=fedavg strategy.weighted=true masking=on',fl_provider_dp"
    attacks = "toy_study.Overhears,toy_study.Asks,'toy_study.Asks attack.broken=true',pmia"
    folder, texts = assessment("study", f"defences=[{defences}]", f"attacks=[{attacks}]", "seeds=1")
    content = json.loads((folder / "assessment.json").read_text())
    runs = {row["defence"]: str(folder / run) for row in content["rows"] for run in row["runs"]}
    (undefended,) = content["rows"][0]["commands"]
    again = frozen.command(*shlex.split(undefended.replace("seed=0", "seed=1"))[1:])
    compared = [runs["none"], again, runs["fl_provider_dp"]]
    told = frozen.printed("compare", *compared, "-o", "page.html", "--csv", "numbers.csv")
    frozen.command("compare", *compared, "-o", "redacted.html", "--redacted")
    comparison = {
        "printed.txt": told,
        "numbers.csv": rounded(Path("numbers.csv").read_text("utf-8")),
        "page.txt": page(Path("page.html")),
        "redacted.txt": page(Path("redacted.html")),
    }
    found = {
        "assessment": texts,
        "comparison": comparison,
        "private": reports(Path(runs["fl_provider_dp"])),
    }
    return {f"{of}.{name}": text for of, some in found.items() for name, text in some.items()}


def assessed_in_full() -> Texts:
    """Of an assessment in which a defence weakens an attack, and one leaves a dead model."""
    idle = "'strategy=fedavg masking=off training.lr=1e-9'"
    strong = "'fl_provider_dp privacy.epsilon=0.1'"
    defences = f"defences=[none,clipping,masking,{idle},{strong},safe_template]"
    attacks = "attacks=[toy_study.Overhears,closed_form]"
    folder, texts = assessment("study", defences, attacks, "seeds=2")
    clipped = json.loads((folder / "assessment.json").read_text())["rows"][1]["runs"][0]
    # Its ledger has no ε that is a guarantee.
    return {**texts, **reports(folder / clipped)}


def assessed_documents() -> Texts:
    """Of an assessment of a real model, with an attack of ours."""
    small = [
        "rounds=1",
        "data.source.providers=6",
        "data.source.documents_per_provider=4",
        "data.partition.clients=2",
        "privacy.providers=2",
    ]
    attacks = "attacks=[server_membership,field_candidates]"
    return assessment("quickstart", *small, "defences=[none,masking]", attacks, "seeds=2")[1]


def assessment(*words: str) -> tuple[Path, Texts]:
    """Makes an assessment; returns its folder and its texts."""
    out = frozen.printed("assess", *words, "privacy.entropy=seed", "workers=0")
    folder = last(out)
    content = json.loads((folder / "assessment.json").read_text())
    return folder, {
        "printed.txt": out,
        "numbers.json": as_json(content),
        "numbers.csv": rounded((folder / "assessment.csv").read_text("utf-8")),
        "table.md": markdown(from_json(content)),
        "page.txt": page(folder / "assessment.html"),
    }


def stolen() -> Texts:
    """Of a run with documents and an attack that gets a page back."""
    run_dir = frozen.run("pages of layoutlmv3", Path("runs"))
    out = frozen.printed("attack", str(run_dir), "attack=closed_form", "ocr=null")
    return {"printed.txt": out, **reports(run_dir)}


def attacked(run: str) -> Texts:
    """Of one of the frozen runs, after all attacks on it."""
    run_dir = frozen.run(run, Path("runs"))
    told = {
        f"{words[0].partition('=')[2]}.txt": frozen.printed("attack", str(run_dir), *words)
        for name, words in frozen.ATTACKS.items()
        if name.partition(":")[0] == run
    }
    return {**told, **reports(run_dir)}


def reports(run_dir: Path) -> Texts:
    """Returns the report of a run, and the redacted one."""
    found = {}
    for name, words in (("report", ()), ("report-redacted", ("--redacted",))):
        frozen.command("report", str(run_dir), *words)
        found[f"{name}.txt"] = page(run_dir / f"{name}.html")
    return found


ATTACKED = dict.fromkeys(name.partition(":")[0] for name in frozen.ATTACKS) | {"extraction": None}
FAST: dict[str, Callable[[], Texts]] = {
    "sweep": sweep,
    "paper": reproduced,
    "assessed": assessed,
    "stolen": stolen,
}
STUDIES: dict[str, Callable[[], Texts]] = {
    **FAST,
    "assessed in full": assessed_in_full,
    "assessed documents": assessed_documents,
    **{f"attacked {run}": partial(attacked, run) for run in ATTACKED},
}
EXACT = ("sweep", "paper")
"""Of which no number depends on how a processor rounds."""

DRAWN = ("assessed", "assessed in full")
"""Whose words depend on which clients a private training draws, and on its noise."""


def made(name: str) -> Texts:
    """Returns the texts of a study by the name of their files, without what varies by nature."""
    with workplace() as place:
        texts = STUDIES[name]()
        return {file: scrubbed(text, [place]) for file, text in texts.items()}


def place_of(name: str) -> Path:
    return TEXTS / name.replace(" ", "_").replace(",", "")


def write(names: Iterable[str]) -> None:
    """Makes some of the studies anew and writes their texts."""
    for name in names:
        texts = made(name)
        shutil.rmtree(place_of(name), ignore_errors=True)
        place_of(name).mkdir(parents=True)
        for file, text in {**texts, MACHINE: as_json(frozen.machine())}.items():
            (place_of(name) / file).write_text(text, "utf-8")


def last(out: str) -> Path:
    return Path(out.splitlines()[-1])


def page(path: Path) -> str:
    return visible(path.read_text("utf-8"))
