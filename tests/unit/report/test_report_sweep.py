"""What a sweep says of its rows: intervals, claims, a table and a figure."""

import dataclasses

import pytest

from fedpriv.report.sweep import (
    Column,
    Comparison,
    Interval,
    Measured,
    Term,
    cells,
    comparisons,
    draw,
    html,
    interval,
    markdown,
    verdicts,
)

COLUMNS = [Column("psnr", "PSNR", "around"), Column("read", "read | words")]


def measured(name, psnr, read=None, **more):
    """Returns a row, one seed for each value."""
    return [
        Measured(name, seed, "runs/1", "", False, {"psnr": value, "read": read}, {}, **more)
        for seed, value in enumerate(psnr)
    ]


def verdict(claim, *rows):
    (one,) = verdicts([claim], [m for row in rows for m in row])
    return one["holds"], one["verdict"]


def test_a_claim_is_split_into_comparisons():
    found = comparisons("psnr | read: a, b > c @ other + 1 | 20 > d")
    assert list(found) == [
        "psnr: a, b > c @ other + 1",
        "psnr: a, b > 20",
        "psnr: c @ other + 1 > d",
        "psnr: 20 > d",
        "read: a, b > c @ other + 1",
        "read: a, b > 20",
        "read: c @ other + 1 > d",
        "read: 20 > d",
    ]
    assert found["psnr: a, b > c @ other + 1"] == Comparison(
        Term("a, b", "psnr"), Term("c", "other", 1.0)
    )
    assert found["read: 20 > d"].above == Term(None, "read", 20.0)
    assert Term.parse("noise 1e-07 - 1.5e-1", "psnr") == Term("noise 1e-07", "psnr", -0.15)
    assert Term.parse("+ TV-C", "psnr") == Term("+ TV-C", "psnr")


def test_less_is_more_the_other_way_round():
    assert comparisons("loss: a < b")["loss: a < b"] == Comparison(
        Term("b", "loss"), Term("a", "loss")
    )


@pytest.mark.parametrize("claim", ["a > b", "psnr: a", "psnr: a >= b", ""])
def test_what_is_no_claim_is_refused(claim):
    with pytest.raises(ValueError, match="expected `column: row > other row`"):
        comparisons(claim)


@pytest.mark.parametrize(
    ("a", "b", "holds", "words"),
    [
        ([9.0, 8.0], [7.0, 6.0], True, "holds beyond the spread of 2 seeds: 8.500 > 6.500"),
        ([9.0, 5.0], [6.0, 4.0], True, "holds in the mean, and in 2 of 2 seeds: 7.000 > 5.000"),
        ([9.0, 5.0], [4.0, 6.0], True, "holds in the mean, and in 1 of 2 seeds: 7.000 > 5.000"),
        ([9.0], [8.0], True, "holds: 9.000 > 8.000"),
        ([5.0, 5.0], [9.0, 8.0], False, "DOES NOT HOLD: 5.000 against 8.500"),
        ([5.0], [5.0], False, "DOES NOT HOLD: 5.000 against 5.000"),
        ([5.0], [None], None, "not measured"),
        ([], [1.0], None, "not measured"),
    ],
)
def test_a_claim_holds_by_the_means_and_says_how_clearly(a, b, holds, words):
    assert verdict("psnr: a > b", measured("a", a), measured("b", b)) == (holds, words)


def test_only_seeds_that_both_have_are_compared():
    a, b = measured("a", [1.0, 9.0]), measured("b", [None, 5.0, 20.0])
    assert verdict("psnr: a > b", a, b) == (True, "holds: 9.000 > 5.000")


def test_a_margin_and_another_column_count():
    a, b = measured("a", [9.0], read=0.5), measured("b", [8.0], read=8.6)
    assert verdict("psnr: a > b + 2", a, b)[0] is False
    assert verdict("psnr: a > b - 2", a, b)[0] is True
    assert verdict("psnr: a - 1 > b @ read", a, b)[0] is False
    assert verdict("psnr: a > 8.5", a, b)[0] is True


def test_an_interval_is_from_least_to_most_until_there_are_five_seeds():
    assert Interval.of([1.0, 2.0, 6.0]) == Interval(3.0, 1.0, 6.0)
    five = Interval.of([1.0, 2.0, 3.0, 4.0, 5.0])
    # Student's t with four degrees of freedom: 2.776 standard errors.
    assert five.low == pytest.approx(3 - 2.776 * 2.5**0.5 / 5**0.5, abs=1e-3)
    assert str(Interval.of([0.5])) == "0.500"
    assert str(Interval.of([1.0, 2.0])) == "1.500 [1.000, 2.000]"


def test_a_single_seed_shows_the_interval_of_its_own():
    one = Measured("a", 0, "runs/1", "", False, {"psnr": 9.0}, {"psnr": (8.0, 9.5)})
    assert interval(COLUMNS[0], [one]) == Interval(9.0, 8.0, 9.5)
    assert interval(COLUMNS[1], [one]) is None


def test_a_refused_attack_is_a_row_with_its_headline():
    refused = Measured("b", 0, "runs/1", "not granted, because", True, {}, {})
    table = cells(COLUMNS, [*measured("a", [9.0, 8.0], 1.0), refused])
    assert table == [
        ["", "PSNR", "read | words", ""],
        ["a", "8.500 [8.000, 9.000]", "1.000", ""],
        ["b", "—", "—", "not granted, because"],
    ]


def test_markdown_has_the_table_and_the_claims():
    rows = [*measured("a", [9.0], 1.0), *measured("b", [8.0], 1.0)]
    text = markdown("A title", COLUMNS, ["psnr: a > b"], rows)
    assert text.startswith("# A title\n\nSeeds 0; in brackets least to most.\n\n|  | PSNR |")
    assert "| read \\| words |" in text
    assert "| a | 9.000 | 1.000 |  |\n| b | 8.000 | 1.000 |  |" in text
    assert text.endswith("- psnr: a > b: holds: 9.000 > 8.000\n")


@pytest.mark.parametrize("axis", ["", "noise"])
def test_the_figure_is_drawn_in_both_kinds(axis, tmp_path):
    rows = [
        *measured("a $x$, noise 0", [9.0, 8.0], x=0.0, curve="a $x$"),
        *measured("a $x$, noise 1e-9", [7.0, 6.0], x=1e-9, curve="a $x$"),
        *measured("b", [None], x=None, curve="b"),
    ]
    draw("A title", COLUMNS, rows, axis, tmp_path)
    assert (tmp_path / "figure.svg").read_text("utf-8").count("<svg") == 1
    assert (tmp_path / "figure.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize(
    ("claims", "words"),
    [
        ([], "2 rows measured, and no claim made about them."),
        (["psnr: a > b"], "the claim holds."),
        (["psnr: a > b", "psnr: a > 1"], "all 2 claims hold."),
        (
            ["psnr: a > b", "psnr: b > a", "read: a > b"],
            "1 of 3 claims holds, 1 does not, 1 could not be measured.",
        ),
    ],
)
@pytest.mark.parametrize("axis", ["", "noise"])
def test_the_page_of_a_sweep_opens_with_its_claims(claims, words, axis):
    rows = [*measured("a", [9.0, 8.0], x=0.0), *measured("b <i>", [7.0], x=1.0)]
    rows += [dataclasses.replace(one, row="b") for one in rows[2:]]
    rows = [one for one in rows if one.row != "b <i>"]
    page = html("A <b>title", COLUMNS, list(verdicts(claims, rows)), rows, axis)
    assert f"<h1>A &lt;b&gt;title: {words}</h1>" in page
    assert "8.500 [8.000, 9.000]" in page
    assert page.count("<svg viewBox") == 1
    assert "://" not in page


def test_a_sweep_that_measured_nothing_has_no_empty_figure():
    refused = Measured("b", 0, "runs/1", "not granted, because <x>", True, {}, {})
    page = html("title", COLUMNS, [], [refused], "", finished=False)
    assert "<svg" not in page
    assert "not granted, because &lt;x&gt;" in page
    assert "not finished" in page
