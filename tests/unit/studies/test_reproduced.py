"""A paper's claims in one place: counted, with what it would take to tell, and what tables took."""

from fedpriv.studies.claims import Claim, Measured, verdicts
from fedpriv.studies.reproduced import Reproduced
from fedpriv.studies.sweep_page import Column, Recorded


def recorded(claims, *rows, **cost):
    """Returns a table of rows, each with its values under seeds 0, 1, ..."""
    measured = [
        Measured(name, seed, "", "", False, {"f1": value}, {})
        for name, values in rows
        for seed, value in enumerate(values)
    ]
    found = list(verdicts(claims, measured))
    made = {"command": "fedpriv reproduce", "machine": "here"}
    return Recorded("A | table", (Column("f1", "F1"),), "", measured, found, made, **cost)


TABLES = {
    "table2": recorded(
        [Claim("a beats b", "f1: a > b"), Claim("b beats a", "f1: b > a", note="it was a > b")],
        ("a", [0.9, 0.91, 0.92]),
        ("b", [0.5, 0.52, 0.51]),
        seconds=90.0,
        memory=2_000_000_000,
    ),
    "table10": recorded(
        [Claim("c beats d", "f1: c > d")], ("c", [0.5, 0.7, 0.6]), ("d", [0.5, 0.55, 0.6])
    ),
}


def test_claims_are_counted():
    told = Reproduced("Nobody 2026", TABLES)
    assert told.answer() == "1 of 3 claims holds, 1 does not, 1 cannot be told"
    mixed = [
        Claim("a (the paper)", "f1: a > b"),
        Claim("b (ours)", "f1: b > a"),
        Claim("c (ours)", "f1: c > a"),
    ]
    told = Reproduced(
        "Nobody 2026", {"table1": recorded(mixed, ("a", [0.9, 0.91]), ("b", [0.5, 0.52]))}
    )
    assert told.answer() == (
        "The paper's: the claim holds; ours: 0 of 2 claims hold, 1 does not, 1 was not measured"
    )
    assert Reproduced("Nobody 2026", {}).answer() == "No table has been run yet"
    assert Reproduced("Nobody 2026", {}).markdown() == "No table has been run yet.\n"


def test_each_claim_has_its_outcome_and_each_table_its_cost():
    lines = Reproduced("Nobody 2026", TABLES).markdown().splitlines()
    (cost,) = (line for line in lines if line.startswith("| `table2`: A \\| table"))
    assert cost.endswith("1 of 2 claims holds, 1 does not | 1 min 30 s, 2 GB |")
    assert "| a beats b | `table2` | holds |" in lines
    assert "| b beats a (note 1) | `table2` | DOES NOT HOLD |" in lines
    assert lines[-1] == "- Note 1: it was a > b."
    (unsure,) = (line for line in lines if "c beats d" in line)
    assert "cannot tell; " in unsure
    assert " seeds would tell |" in unsure
    page = Reproduced("Nobody 2026", TABLES).html()
    assert "1 of 3 claims holds" in page
    assert "b beats a (note 1)" in page
    assert "Note 1: it was a &gt; b." in page
    assert "Claims by table. table2: 1 of 2 claims holds" in page
