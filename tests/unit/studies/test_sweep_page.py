"""What a sweep says of its rows: intervals, claims, a table and a figure."""

import dataclasses
import json
import re

import pytest
from private_places import places_that_show

from fedpriv.studies.claims import Claim, Measured, verdicts
from fedpriv.studies.sweep_page import (
    Column,
    Recorded,
    cells,
    draw,
    html,
    interval,
    markdown,
    redact,
    write_page,
)


def judged(claims, rows):
    return list(verdicts([Claim(says, says) for says in claims], rows))


COLUMNS = [Column("psnr", "PSNR", "around"), Column("read", "read | words")]


def measured(name, psnr, read=None, **more):
    """Returns a row, one seed for each value."""
    return [
        Measured(name, seed, "runs/1", "", False, {"psnr": value, "read": read}, {}, **more)
        for seed, value in enumerate(psnr)
    ]


def test_a_single_seed_shows_the_interval_of_its_own():
    one = Measured("a", 0, "runs/1", "", False, {"psnr": 9.0}, {"psnr": (8.0, 9.5)})
    found = interval(COLUMNS[0], [one])
    assert (found.mean, found.low, found.high) == (9.0, 8.0, 9.5)
    assert interval(COLUMNS[1], [one]) is None


def test_a_refused_attack_is_a_row_with_its_headline():
    refused = Measured("b", 0, "runs/1", "not granted, because", True, {}, {})
    table = cells(COLUMNS, [*measured("a", [9.0, 8.0], 1.0), refused])
    assert table == [
        ["", "PSNR", "read | words", ""],
        ["a", "8.500 [2.147, 14.853]", "1.000", ""],
        ["b", "—", "—", "not granted, because"],
    ]


MADE = {"command": "fedpriv sweep x", "machine": "Linux with 2 cores"}


def test_markdown_has_the_table_its_origin_and_the_claims():
    rows = [*measured("a", [9.0, 7.0], 1.0), *measured("b", [6.0, 8.0], 1.0)]
    rows = [dataclasses.replace(one, commit=f"c{one.seed}", date="2026-11-23") for one in rows]
    claims = judged(["psnr: a > b"], rows)
    results = {
        "title": "A title",
        "axis": "",
        "columns": [dataclasses.asdict(column) for column in COLUMNS],
        "rows": [dataclasses.asdict(one) for one in rows],
        "claims": claims,
        "made": MADE,
    }
    assert markdown(Recorded.of(json.loads(json.dumps(results)))) == (
        "|  | PSNR | read \\| words |\n"
        "| --- | --- | --- |\n"
        "| a | 8.000 [-4.706, 20.706] | 1.000 |\n"
        "| b | 7.000 [-5.706, 19.706] | 1.000 |\n"
        "\n"
        "Seeds 0, 1; in brackets: 95 % intervals of the means. Measured by `fedpriv sweep x` on "
        "2026-11-23, at c0 and c1, Linux with 2 cores.\n"
        "\n"
        "- psnr: a > b: cannot tell: 8.000 against 7.000, a difference of 1.000 [-24.412, 26.412] "
        "over 2 seeds; 65 would tell\n"
    )
    results["rows"][0] |= {"refused": True, "headline": "not granted"}
    results["columns"].append(dataclasses.asdict(Column("nothing", "never measured")))
    results["claims"] += judged(["nothing: a > b"], rows)
    assert "never measured" not in markdown(Recorded.of(results))
    assert markdown(Recorded.of(results)).endswith("\n- Not measured: 1 further claim\n")
    results["claims"] = judged(["psnr: b > a | c"], rows)
    told = "- psnr: b > a | c: cannot tell, so far the other way round in 1 of 2; measured in part"
    assert told in markdown(Recorded.of(results))
    assert told.removeprefix("- psnr: b > a | c: ") in html(Recorded.of(results))
    assert "| a | 8.000 [-4.706, 20.706] | 1.000 | not granted |" in markdown(Recorded.of(results))


@pytest.mark.parametrize("axis", ["", "noise"])
def test_the_figure_is_drawn_in_both_kinds(axis, tmp_path):
    rows = [
        *measured("a $x$, noise 0", [9.0, 8.0], x=0.0, curve="a $x$"),
        *measured("a $x$, noise 1e-9", [7.0, 6.0], x=1e-9, curve="a $x$"),
        *measured("b", [None], x=None, curve="b"),
    ]
    draw(Recorded("A title", COLUMNS, axis, rows, [], MADE), tmp_path)
    assert (tmp_path / "figure.svg").read_text("utf-8").count("<svg") == 1
    assert (tmp_path / "figure.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize(
    ("claims", "words"),
    [
        ([], "2 rows measured, and no claim made about them."),
        (["psnr: a > 1"], "the claim holds."),
        (["psnr: a > 1", "psnr: a > 0 | 0.5"], "all 2 claims hold."),
        (
            ["psnr: a > 1", "psnr: 1 > a", "psnr: a > 8.6", "read: a > b"],
            "1 of 4 claims holds, 1 does not, 1 cannot be told, 1 was not measured.",
        ),
    ],
)
@pytest.mark.parametrize("axis", ["", "noise"])
def test_the_page_of_a_sweep_opens_with_its_claims(claims, words, axis):
    rows = [*measured("a", [9.0, 8.0], x=0.0), *measured("b <i>", [7.0], x=1.0)]
    rows += [dataclasses.replace(one, row="b") for one in rows[2:]]
    rows = [one for one in rows if one.row != "b <i>"]
    page = html(Recorded("A <b>title", COLUMNS, axis, rows, judged(claims, rows), MADE))
    assert f"<h1>A &lt;b&gt;title: {words}</h1>" in page
    assert "8.500 [2.147, 14.853]" in page
    assert page.count("<svg viewBox") == 1
    assert "://" not in page


def test_a_sweep_that_measured_nothing_has_no_empty_figure():
    refused = Measured("b", 0, "runs/1", "not granted, because <x>", True, {}, {})
    page = html(Recorded("title", COLUMNS, "", [refused], [], MADE, finished=False))
    assert "<svg" not in page
    assert "not granted, because &lt;x&gt;" in page
    assert "not finished" in page


PRIVATE = ("Yarrow", "/home/somebody", "Zwölf", "IBAN 3704", "branch_ulm", "Total Page")


@pytest.fixture
def folder(tmp_path):
    """A finished sweep whose every text holds names and paths."""
    rows = [
        *measured("fedavg, steps 20", [9.0, 8.0], 0.5, x=0.0, curve="fedavg"),
        *measured("root /home/somebody/scans", [7.0, 6.0], x=1.0, curve="of Zwölf"),
        *measured("total page", [5.0], x=2.0, curve="fedavg"),
        Measured("Yarrow", 0, "runs/1", "not granted: IBAN 3704", True, {}, {}, 3.0, "fedavg"),
    ]
    claims = [
        "psnr: fedavg, steps 20 > root /home/somebody/scans",
        "branch_ulm: total page > Yarrow",
    ]
    results = {
        "title": "What Yarrow and Zwölf lose",
        "columns": [dataclasses.asdict(one) for one in (*COLUMNS, Column("x", "branch_ulm"))],
        "axis": "steps of Zwölf",
        "rows": [dataclasses.asdict(one) for one in rows],
        "claims": judged(claims, rows),
        "made": {"command": "fedpriv sweep yarrow.yaml seeds=[0,1]", "machine": "host Zwölf"},
        "finished": True,
    }
    (tmp_path / "results.json").write_text(json.dumps(results))
    (tmp_path / "runs" / "1").mkdir(parents=True)
    partition = {"clients": {"0": {"Total Page": ["d"]}}}
    (tmp_path / "runs" / "1" / "partition.json").write_text(json.dumps(partition))
    return tmp_path


def test_a_redacted_sweep_has_no_name_and_no_path(folder):
    full = write_page(folder).read_text("utf-8")
    place = write_page(folder, redacted=True)
    assert place.name == "report-redacted.html"
    page = place.read_text("utf-8")
    for private in PRIVATE:
        assert private.lower() in full.lower() or private == "Total Page", private
        assert private.lower() not in page.lower(), private
    for kept in (
        "8.500 [2.147, 14.853]",
        "psnr: fedavg, steps 20 &gt; row 2",
        "claim 2",
        "row 3",
        "row 4",
        "column 3",
        "the reason is left out",
        "A sweep: 0 of 2 claims hold, 1 cannot be told, 1 was not measured",
        "This is a redacted page",
    ):
        assert kept in page, kept


def test_no_place_of_a_sweep_shows_what_somebody_wrote(folder):
    content = json.loads((folder / "results.json").read_text())
    content["published"] = {"Yarrow": {"psnr": 20.0}}
    shown = places_that_show(Recorded.of(content), lambda one: repr(redact(one, str)))
    # What names no row and no column, but says where a number stands; and words of a verdict.
    ours = re.compile(r"columns \d (path|interval)|rows \d values \.|claims .*( \.|verdict)")
    assert [place for place in shown if not ours.match(place)] == []


def test_a_folder_without_a_sweep_has_no_page(folder):
    (folder / "results.json").write_text("[]")
    with pytest.raises(ValueError, match="is not the folder of a sweep"):
        write_page(folder)
