"""A result as HTML and as lines of a terminal, whatever its file holds."""

import dataclasses
import json
import os
import re
import time
from dataclasses import dataclass
from html.parser import HTMLParser

import pytest
from markupsafe import Markup
from PIL import Image
from toy import Net

from fedpriv.report.build import write_report
from fedpriv.report.folder import MOST_PICTURES
from fedpriv.report.render import flat, lines, result_html
from fedpriv.threat.access import Architecture, PublicModel
from fedpriv.threat.attack import AttackContext
from fedpriv.threat.results import (
    CANNOT_TELL,
    LEAK,
    NONE_SHOWN,
    NOT_GRANTED,
    Figure,
    Number,
    Result,
    Table,
)
from fedpriv.threat.runner import run_attack_on
from fedpriv.threat.scoring.registry import SCORERS, scorer

WILD = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)> {{ 7*7 }} ]]> \x1b[2J"

FIGURES = {
    "lines": {"curves": {"a": {"1": 2.0, "50": 1e-3}}, "x": "gradients computed"},
    "roc": {"curves": {"a": [[0, 0.1, 1], [0, 0.5, 1]]}},
    "shares": {"curves": {"attack": [[0.1, 1], [0.5, 0.2]]}},
    "bars": {"bars": {"attack": {"PR": 0.5}, "baseline": {"PR": 0.1}}},
    "counts": {"bars": {"E": {"1×": 3}, "M": {"1×": 2}}, "darker": {"M": {"1×": 1}}, "wide": True},
    "scores": {"panels": {"all": [[0, 1, 0], [2, 0, 0], [0, 0, 5]]}},
    "exposure": {
        "lines": {"FedAvg": {"in": {"mean": {"1": 2.0}, "low": {"1": 1.0}, "high": {"1": 3.0}}}},
        "bound": 8.0,
        "baseline": 1.44,
    },
}

RESULT = Result(
    "pages",
    "2 of 3 pages are readable",
    details={"psnr": 24.123, "by_message": [{"psnr": 1}], "reading": {"exact": 0.5, "words": 7}},
    tables=(
        Table(("messages", "PSNR"), (("3", "24.1 dB"),), "Recovered", "the template has 9 dB"),
        Table(("text", "key"), (("april", "date"), ("may", "date")), "Text", printed=1),
    ),
    figures=(Figure("lines", "Distance", FIGURES["lines"], "Text"),),
    notes=("mind this",),
    assumptions=("the template is known",),
    left_out={"too long": 2, "no reason": 0},
    not_applicable={"the head": "it is frozen", "the body": "it is frozen"},
    threat_model={"Transcript": True, "BatchKnowledge": True, "PublicModel": False},
    settings={"seed": "0"},
)


class Tags(HTMLParser):
    def __init__(self, page):
        super().__init__()
        self.found = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "config.yaml").write_text("name: attacked\n")
    return tmp_path


def keep(folder, result, name="toy", **changes):
    """Writes a result, and what else is given in place of its fields, as an attack leaves it."""
    place = folder / "findings" / name
    place.mkdir(parents=True, exist_ok=True)
    values = dataclasses.asdict(result) if isinstance(result, Result) else result
    (place / "result.json").write_text(json.dumps({**values, **changes} if changes else values))
    return place


def page_of(folder):
    return write_report(folder).read_text("utf-8")


def section(folder):
    page = page_of(folder)
    return page[page.index('<section id="attacks"') : page.index('<section id="curves"')]


def rows_of(html):
    """Returns the cells of every row of every table, without markup."""
    rows = re.findall(r"<tr>(.*?)</tr>", html, re.DOTALL)
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in rows]
    return [[re.sub(r"<.*?>", "", cell).strip() for cell in row] for row in cells]


# ------------------------------------------------------------------------------ what is shown


def test_the_terminal_has_the_whole_result():
    assert list(lines(RESULT)) == [
        "done: 2 of 3 pages are readable",
        "may use: Transcript, BatchKnowledge; not granted: PublicModel",
        "Recovered:",
        "messages  PSNR",
        "3         24.1 dB",
        "Text:",
        "text   key",
        "april  date",
        "and 1 more in result.json",
        "assumed: the template is known",
        "not applicable: the head, the body: it is frozen",
        "left out: 2 for too long",
        "note: mind this",
    ]


def test_a_refused_attack_says_what_it_asks_for():
    refused = Result("pages", "not granted, because x", status=NOT_GRANTED, threat_model={"A": 0})
    assert list(lines(refused)) == ["not granted, because x", "asks for: A"]
    assert "The attack asks for: A." in result_html(refused)


def test_without_tables_the_terminal_has_the_numbers():
    assert list(lines(Result("x", "y", {"a": 0.12345, "b": {"c": 3}}))) == [
        "done: y",
        "a 0.1235, b.c 3",
    ]


def test_a_text_of_a_document_cannot_steer_the_terminal():
    wild = "\x1b[2J\r\n" + "long\n" * 90
    result = dataclasses.replace(
        RESULT,
        headline=wild,
        tables=(Table((wild, "key"), ((wild, wild),), wild),),
        notes=(wild,),
        left_out={wild: 1},
        threat_model={wild: True},
    )
    shown = list(lines(result))
    assert all(line.isprintable() for line in shown)
    assert max(map(len, shown)) <= 500


def test_html_of_one_result_is_markup_with_all_its_parts():
    html = result_html(RESULT)
    assert isinstance(html, Markup)
    text = re.sub(r"<[^>]+>", " ", html)
    for said in (
        "2 of 3 pages are readable.",
        "may use: Transcript, BatchKnowledge; not granted: PublicModel.",
        "Assumed: the template is known.",
        "Note: mind this.",
        "Not applicable: the head, the body: it is frozen.",
        "Left out: 2 for too long.",
        "the template has 9 dB",
        "reading.exact",
    ):
        assert said in text, said
    assert "no reason" not in text
    assert html.index("<h4>Recovered") < html.index("24.1 dB") < html.index("<h4>Text")
    assert html.index("<h4>Text") < html.index("may</th>") < html.index("<svg")


@pytest.mark.parametrize("kind", FIGURES)
def test_every_kind_of_figure_is_drawn(kind):
    html = result_html(Result("x", "y", figures=(Figure(kind, "What it shows", FIGURES[kind]),)))
    assert html.count("<figcaption>What it shows") == 1
    assert "not drawn" not in html
    assert ('<div class="charts">' in html) == (kind not in ("counts", "scores"))


def test_exposure_that_was_not_measured_has_no_place():
    ends = {end: {"1": 2.0, "4": None} for end in ("mean", "low", "high")}
    never = {end: {"1": None} for end in ends}
    data = {"lines": {"": {"in": ends, "out": never}}, "bound": 8.0, "baseline": 1.44}
    html = result_html(Result("x", "y", figures=(Figure("exposure", "Exposure", data),)))
    assert "Exposure.  in: 1 times 2." in html
    assert "</svg> in training</li>" in html
    assert "out of training" not in html


def test_the_first_screen_states_every_headline(folder):
    keep(folder, RESULT, "gi_dqa")
    keep(folder, Result("", "not granted, because …", status=NOT_GRANTED), "closed_form")
    top = page_of(folder).partition("<nav")[0]
    assert rows_of(top)[-3:] == [
        ["attack", "verdict", "what it found"],
        ["closed_form", "not applicable", "not granted, because …."],
        ["gi_dqa", "done", "2 of 3 pages are readable."],
    ]
    assert "No ε is recorded." in top


AUC = Number(0.83, (0.72, 0.92), 51, "provider", 0.5, 0.7, 0.003)


@pytest.mark.parametrize(
    ("verdict", "shown"),
    [(LEAK, "leak"), (NONE_SHOWN, "none shown"), (CANNOT_TELL, "cannot tell")],
)
def test_the_verdict_stands_first_and_its_number_in_the_first_row(folder, verdict, shown):
    numbers = {"other": dataclasses.replace(AUC, interval=None, control=None), "auc": AUC}
    result = Result("x", "so it is", verdict=verdict, primary="auc", numbers=numbers)
    assert next(iter(lines(result))) == f"{shown}: so it is"
    html = result_html(result)
    assert f"<b>{shown.capitalize()}</b>: so it is." in html
    rows = rows_of(html)
    assert rows[1] == ["auc", "0.83", "0.72 to 0.92", "51 suppliers", "0.5", "0.003", "0.7"]
    assert rows[2][:4] == ["other", "0.83", "—", "51 suppliers"]
    keep(folder, result, "pmia")
    assert ["pmia", shown, "so it is."] in rows_of(page_of(folder).partition("<nav")[0])


def test_rows_beyond_a_dozen_stand_below_a_fold():
    rows = tuple((f"row {number}",) for number in range(30))
    html = result_html(Result("x", "y", tables=(Table(("name",), rows),)))
    above, below = html.split("<details><summary>18 more rows</summary>")
    assert "row 11<" in above
    assert "row 12<" not in above
    assert "row 12<" in below
    assert "row 29<" in below


def test_attacks_of_a_kind_stand_in_one_table(folder):
    other = Table(("messages", "tokens found"), (("1", "40%"),), "Recovered")
    keep(folder, RESULT, "gi_dqa")
    keep(folder, dataclasses.replace(RESULT, tables=(other,)), "text")
    keep(folder, dataclasses.replace(RESULT, kind="membership"), "pmia")
    keep(folder, {}, "broken")
    html = section(folder)
    cells = rows_of(html)
    assert ["attack", "messages", "PSNR", "tokens found"] in cells
    assert ["gi_dqa", "3", "24.1 dB", "—"] in cells
    assert ["text", "1", "—", "40%"] in cells
    assert not [row for row in cells if row[0] == "pmia" and row[1] == "3"]
    assert html.count("24.1 dB") == 2  # once for gi_dqa, and where pmia has no other beside it
    assert html.count("the template has 9 dB") == 2


def test_pictures_are_embedded_once_each(folder):
    panels = [["template", "a.png"], ["reconstruction", "b.png"]]
    figure = Figure("pictures", "round 1", {"panels": panels}, "Pages")
    place = keep(folder, dataclasses.replace(RESULT, figures=(figure,)))
    for name in ("a.png", "b.png", "c.png"):
        Image.new("RGB", (8, 8), "white").save(place / name)
    html = section(folder)
    assert html.count("data:image/png;base64,") == 2
    assert html.index("<figcaption>template") < html.index("<figcaption>reconstruction")
    assert "not shown" not in html


def test_flat_numbers_keep_their_order_and_leave_out_lists():
    assert flat(RESULT.details) == [
        ("psnr", "24.12"),
        ("reading.exact", "0.5"),
        ("reading.words", "7"),
    ]


# ------------------------------------------------------------------------- somebody else's files


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{",
        "null",
        "3",
        "{}",
        "[" * 100_000,
        "\0",
        json.dumps({**dataclasses.asdict(RESULT), "tables": 3}),
        json.dumps({**dataclasses.asdict(RESULT), "tables": [{}]}),
        json.dumps({**dataclasses.asdict(RESULT), "figures": [["lines"]]}),
        json.dumps({**dataclasses.asdict(RESULT), "notes": None}),
        json.dumps({**dataclasses.asdict(RESULT), "left_out": {"x": "many"}}),
        json.dumps({**dataclasses.asdict(RESULT), "threat_model": ["all"]}),
        json.dumps({**dataclasses.asdict(RESULT), "details": 10**400}),
    ],
)
def test_a_result_that_is_none_is_told_and_the_others_are_shown(folder, content):
    keep(folder, RESULT, "fine")
    (keep(folder, {}, "broken") / "result.json").write_text(content)
    page = page_of(folder)
    assert page.count("the result cannot be shown: ") == 3  # top, table and its own place
    assert "findings/broken/result.json" in page
    assert "2 of 3 pages are readable" in page


def test_a_row_of_another_length_than_the_headings_is_refused(folder):
    with pytest.raises(ValueError, match="a row of 1 cells under 2 headings"):
        Table(("a", "b"), (("1",),))
    table = {"headings": ["a"], "rows": [["1", "2"]], "title": "", "note": "", "printed": None}
    keep(folder, RESULT, tables=[table])
    assert "a row of 2 cells under 1 headings" in page_of(folder)


def test_every_text_of_a_result_is_escaped(folder):
    table = Table((WILD, WILD), ((WILD, WILD),), WILD, WILD)
    data = {
        "bars": {"bars": {WILD: {WILD: 1.0}}},
        "counts": {"bars": {WILD: {WILD: 1}, "$x": {WILD: 2}}},
        "scores": {"panels": {WILD: [[1, 2], [3, 4]]}},
        "lines": {"curves": {WILD: {"1": 1.0, "2": 1.0}}, "x": WILD},
        "roc": {"curves": {WILD: [[0, 1], [0, 1]]}},
        "pictures": {"panels": [[WILD, "a.png"]]},
        WILD: {},
    }
    place = keep(
        folder,
        Result(
            WILD,
            WILD,
            {WILD: WILD},
            (table, table),
            tuple(Figure(kind, WILD, held, WILD) for kind, held in data.items()),
            (WILD,),
            (WILD,),
            {WILD: 1},
            {WILD: WILD},
            {WILD: True},
            {WILD: WILD},
            WILD,
        ),
        name="<i>x",
    )
    keep(folder, Result(WILD, WILD, tables=(table,)), "another")
    Image.new("RGB", (8, 8)).save(place / "a.png")
    page = page_of(folder)
    tags = Tags(page).found
    assert not {"script", "i"} & {tag for tag, _ in tags}
    assert all(held["src"].startswith("data:image/png") for tag, held in tags if tag == "img")
    assert not any("onerror" in held for _, held in tags)
    assert page.count("not drawn: unknown kind") == 1
    assert page.count(" not drawn: ") == 1


@pytest.mark.parametrize(
    "file", ["../../secret.png", "/etc/passwd", "..", "", "a/b.png", "link.png"]
)
def test_a_picture_elsewhere_is_not_shown(folder, file):
    Image.new("RGB", (8, 8)).save(folder / "secret.png")
    (folder / "findings/toy/a").mkdir(parents=True)
    Image.new("RGB", (8, 8)).save(folder / "findings/toy/a/b.png")
    figure = Figure("pictures", "round 1", {"panels": [["original", file]]})
    place = keep(folder, Result("pages", "found", figures=(figure,)))
    os.symlink(folder / "secret.png", place / "link.png")
    page = page_of(folder)
    assert "data:image" not in page
    assert "round 1: 1 picture not shown" in page
    assert "Some of the run&#39;s files could not be read" in page


def test_more_pictures_than_a_page_can_hold_are_counted(folder):
    panels = [[f"{n}", f"{n}.png"] for n in range(MOST_PICTURES + 5)]
    figure = Figure("pictures", "all", {"panels": panels})
    place = keep(folder, Result("pages", "found", figures=(figure,)))
    for _, name in panels:
        Image.new("RGB", (2, 2)).save(place / name)
    html = section(folder)
    assert html.count("data:image") == MOST_PICTURES
    assert "all: 5 pictures not shown" in html


def test_a_picture_that_is_none_is_told(folder):
    figure = Figure("pictures", "all", {"panels": [["a", "a.png"], ["b", "gone.png"]]})
    place = keep(folder, Result("pages", "found", figures=(figure,)))
    (place / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n broken")
    page = page_of(folder)
    assert "a.png cannot be shown" in page
    assert "findings/toy has no picture &#39;gone.png&#39;" in page
    assert "all: 2 pictures not shown" in page


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("lines", {}),
        ("lines", {"curves": {"a": {}}}),
        ("lines", {"curves": {"a": {"first": 1}}}),
        ("lines", {"curves": {"a": [1, 2]}}),
        ("lines", {"curves": {"a": {"1": 10**400}}}),
        ("lines", {"curves": {"a": {"1e400": 1}}}),
        ("lines", {"curves": {"a": {"1": 1}}, "colour": 3}),
        ("lines", {"curves": {"a": {str(n): 1 for n in range(30_000)}}}),
        ("roc", {"curves": {"a": [[0, 1], [0]]}}),
        ("roc", {"curves": {"a": [[0, float("nan")], [0, 1]]}}),
        ("roc", {"curves": {"a": [[-1, 1], [0, 1]]}}),
        ("shares", {"curves": {"a": [[], []]}}),
        ("shares", {"curves": {"a": [[0.5], [1e300]]}}),
        ("bars", {"bars": {"a": {"g": 1}, "b": {"h": 1}}}),
        ("bars", {"bars": {str(n): {"g": 1} for n in range(9)}}),
        ("bars", {"bars": {"a": {"g": "high"}}}),
        ("counts", {"bars": {"a": {str(n): 1 for n in range(900)}}}),
        ("counts", {"bars": {"a": {"g": -3}}}),
        ("counts", {"bars": {"a": {"g": 10**400}}}),
        ("scores", {"panels": {"a": [[1]]}}),
        ("scores", {"panels": {"a": [[1, 2], [3]]}}),
        ("scores", {"panels": {"a": [[1, 2], [3, -4]]}}),
        ("exposure", {"lines": {"a": {"in": {"mean": {"1": 1}}}}, "bound": 1, "baseline": 1}),
        ("exposure", {"lines": {}, "bound": float("nan"), "baseline": 1}),
        ("pictures", {}),
        ("pictures", {"panels": 3}),
        ("pictures", {"panels": [["a"]]}),
        ("pictures", {"panels": [[["a"], {"b": 1}]]}),
        ("hologram", {}),
    ],
)
def test_a_figure_of_another_shape_is_told_and_the_rest_is_shown(kind, data):
    odd = Figure(kind, "Odd one", data)
    html = result_html(dataclasses.replace(RESULT, figures=(odd, *RESULT.figures)))
    assert "Odd one is not drawn: " in html
    assert "<figcaption>Distance" in html


def test_what_is_too_much_is_cut_and_told(folder):
    rows = tuple((str(n), "x" * 10_000) for n in range(3_000))
    wide = Table(tuple(map(str, range(900))), (tuple("y" * 900),), "Wide")
    figures = tuple(Figure("unknown", f"n{n}", {}) for n in range(200))
    keep(
        folder,
        Result(
            "x" * 10_000,
            "h" * 10_000,
            {str(n): n for n in range(100_000)},
            (Table(("a", "b"), rows, "Long"), wide),
            figures,
            ("note" * 10_000,) * 1000,
        ),
    )
    began = time.process_time()
    page = page_of(folder)
    assert time.process_time() - began < 10
    assert len(page) < 2_000_000
    assert "The first 500 of 3000 rows." in page
    assert "The first 40 of 900 columns." in page
    assert "176 further figures not shown" in page


# ------------------------------------------------------------------------------ a user's own claim


@dataclass(frozen=True)
class Weights:
    """A claim of the user's own: how many weights the model has."""

    number: int


@dataclass(frozen=True)
class CountingAccess:
    architecture: Architecture
    public: PublicModel | None


@dataclass(frozen=True)
class Counting:
    def run(self, access: CountingAccess, context: AttackContext) -> Weights:
        context.remarks.left_out["biases"] = 2
        model = access.architecture.build()
        return Weights(sum(p.numel() for n, p in model.named_parameters() if "weight" in n))


@pytest.fixture
def weights_scorer():
    @scorer(Weights)
    def score(claims, scoring):
        number = claims[0].number
        table = Table(("weights",), ((str(number),),), "Counted")
        return Result("weights", f"the model has {number} weights", {"n": number}, (table,))

    yield score
    del SCORERS[Weights]


def test_a_claim_of_the_users_own_has_its_section(copy, weights_scorer):
    result = run_attack_on(copy, Counting(), lambda **_: Net(), name="counting")
    write_report(copy)
    assert list(lines(result))[:2] == [
        "done: the model has 48 weights",
        "may use: Architecture; not granted: PublicModel",
    ]
    html = section(copy)
    assert "counting" in html
    assert "the model has 48 weights." in html
    assert "may use: Architecture; not granted: PublicModel." in html
    assert "Left out: 2 for biases." in html
    assert "<h4>Counted" in html


# ------------------------------------------------------------------------------ the first picture


def test_the_report_opens_with_the_stolen_page(folder):
    panels = [[name, f"{name}.png"] for name in ("original", "template", "reconstruction")]
    pages = Figure("pictures", "round 1 client 0 page 0", {"panels": panels}, "Pages")
    curve = Figure("roc", "ROC", FIGURES["roc"])
    keep(folder, Result("membership", "x", figures=(curve,), verdict=NONE_SHOWN), "a_pmia")
    place = keep(folder, Result("pages", "x", figures=(pages,), verdict=LEAK), "gi_dqa")
    for name, _ in panels:
        Image.new("RGB", (400, 400), "white").save(place / f"{name}.png")
    top = page_of(folder).partition("<nav")[0]
    shown = [held["alt"].partition(" of ")[0] for tag, held in Tags(top).found if tag == "img"]
    assert shown == ["original", "reconstruction"]
    assert "what the attack took out of the client&#39;s update." in top
    assert "ROC" not in top


def test_pictures_of_a_failed_attack_do_not_say_that_it_took_anything(folder):
    panels = [[name, f"{name}.png"] for name in ("template", "reconstruction")]
    pages = Figure("pictures", "page 0", {"panels": panels})
    place = keep(folder, Result("pages", "x", figures=(pages,), verdict=CANNOT_TELL))
    for name, _ in panels:
        Image.new("RGB", (8, 8), "white").save(place / f"{name}.png")
    top = page_of(folder).partition("<nav")[0]
    assert "the form that the attack starts from, and how far it came." in top
    assert top.count('<img class="tiny"') == 2


def test_a_roc_of_few_units_has_linear_axes_and_points():
    few = result_html(Result("x", "y", figures=(Figure("roc", "t", FIGURES["roc"]),)))
    rates = [n / 100 for n in range(101)]
    data = {"curves": {"a": [rates, rates]}}
    many = result_html(Result("x", "y", figures=(Figure("roc", "t", data),)))
    assert ">0.25<" in few
    assert ">0.01<" in many
    assert "rates of 0 stand at the edge" not in few
    assert "rates of 0 stand at the edge" in many
    assert "a finds 0 of the members without a false alarm" in many


def test_a_curve_of_one_point_is_a_number():
    data = {"curves": {"a": {"7": 0.25}, "b": {"7": None}}}
    html = result_html(Result("x", "y", figures=(Figure("lines", "Loss", data),)))
    assert "<svg" not in html
    assert rows_of(html)[-2:] == [["a", "7", "0.25"], ["b", "7", "—"]]


def test_a_long_fold_is_printed_in_part_and_shown_whole():
    numbers = {f"n{at}": float(at) for at in range(100)}
    table = Table(("row", "n"), tuple((f"r{at}", "1") for at in range(100)), "Long")
    page = str(result_html(Result("pages", "x", details=numbers, tables=(table,))))
    assert page.count('<tr class="screen">') == 60 + 48
    assert "60 more numbers on the screen and in result.json." in page
    assert "48 more rows on the screen and in result.json." in page
    assert page.count('<th scope="row">') == 200
    short = str(result_html(Result("pages", "x", details={"n": 1.0})))
    assert "screen" not in short
