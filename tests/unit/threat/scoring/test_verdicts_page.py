"""The page on verdicts says what the scorers do."""

import importlib
import json
import pkgutil
import re
from pathlib import Path

import fedpriv.attacks.extraction.scoring as extraction
import fedpriv.threat.scoring as scoring
from fedpriv.threat.scoring.pages import GAIN, WORTH
from fedpriv.threat.scoring.registry import SCORERS

PAGE = Path(__file__).parents[4] / "docs" / "explanations" / "verdicts.md"


def rows():
    """The table of what is worth telling: claim → primary number, share or sum."""
    table = re.findall(
        r"^\| `([A-Z]\w+)`([^|]*)\|[^|]*\|([^|]*)\| ([\d.]+)", PAGE.read_text("utf-8"), re.M
    )
    return {(claim, kind.strip(", ")): (said, float(worth)) for claim, kind, said, worth in table}


def worth_of(claim):
    """What the module of a claim's scorer says."""
    return importlib.import_module(SCORERS[claim].score.__module__).WORTH


def test_every_scorer_has_a_row_with_what_it_finds_worth_telling():
    for module in pkgutil.iter_modules(scoring.__path__):
        importlib.import_module(f"{scoring.__name__}.{module.name}")
    assert extraction.WORTH  # registers the claim of that attack
    ours = {claim for claim in SCORERS if claim.__module__.startswith("fedpriv.")}
    told = rows()
    assert {name for name, _ in told} == {claim.__name__ for claim in ours}
    for claim in ours:
        worth = worth_of(claim)
        if isinstance(worth, float):
            assert told[claim.__name__, ""][1] == worth, claim
    pages, text = told["RecoveredBatch", "pages"], told["RecoveredBatch", "text"]
    assert re.findall(r"`(\w+)`", pages[0]) + re.findall(r"`(\w+)`", text[0]) == list(WORTH)
    assert [pages[1], *[text[1]] * (len(WORTH) - 1)] == list(WORTH.values())
    assert f"{GAIN:.0f} dB or more nearer to the original" in " ".join(PAGE.read_text().split())


def test_the_table_of_false_alarms_is_what_was_counted():
    counted = json.loads((PAGE.parent / "false_alarms.json").read_text("utf-8"))
    told = {}
    row = re.compile(
        r"^\| `(\w+)`[^|]*\|[^|]*\|([^|]*of[^|]*)\|([^|]*of[^|]*)\|([^|]*)\|", re.MULTILINE
    )
    for attack, *cells in row.findall(PAGE.read_text("utf-8")):
        told[attack] = [tuple(map(int, cell.split(" of "))) for cell in cells if cell.strip()]
    parts = ("trained", "dealt anew", "untrained")
    assert told == {
        attack: [
            (found[part].get("leak", 0), sum(found[part].values()))
            for part in parts
            if part in found
        ]
        for attack, found in counted.items()
    }
