"""The report of a run folder: what it shows, what it survives, and that it is self-contained."""

import itertools
import json
import math
import re
import time
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from PIL import Image

from fedpriv.report import build, figures
from fedpriv.report.build import write_report
from fedpriv.report.folder import TaggedWord
from fedpriv.threat.results import Figure

CONFIG = """\
name: tiny
seed: 7
rounds: 3
strategy: {_target_: strategies.FedAvg, learning_rate: 1e-3}
versions: {python: 3.11.9, torch: 2.13.0}
"""
OPTIONAL = ("metrics.jsonl", "partition.json", "failures.jsonl", "prediction.json")
OPTIONAL += ("prediction.png",)


def a_round(number, **more):
    return {
        "round": number,
        "loss": 2.0 / number,
        "train_loss": 1.5 / number,
        "f1": 0.2 * number,
        "f1/company": 0.3 * number,
        "f1/total": 0.1 * number,
        "accepted": True,
        "attempts": 1,
        "clients": {"sampled": 3, "answered": 3, "failed": 0, "missing": 0},
        "seconds": {"train": 3.2, "evaluate": 0.5},
        "bytes_down": 3_000_000,
        "bytes_up": 3_000_000,
        "bytes_by_client": {"0": [1_000_000, 1_000_000]},
        **more,
    }


def a_word(text, left, true, predicted):
    return {"text": text, "box": [left, 10, left + 40, 20], "true": true, "predicted": predicted}


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def fill(path):
    path.mkdir()
    (path / "config.yaml").write_text(CONFIG)
    write_lines(path / "metrics.jsonl", [a_round(number) for number in (1, 2, 3)])
    failure = {"round": 2, "client": 1, "kind": "failed", "reason": "ValueError: odd"}
    write_lines(path / "failures.jsonl", [failure | {"traceback": "File x, line 3"}])
    clients = {"0": {"ACME": ["a", "b"], "Bolt": ["c"]}, "1": {"Cord": ["d"]}}
    partition = {"method": "ByProvider(clients=2)", "clients": clients, "test": {"ACME": ["z"]}}
    (path / "partition.json").write_text(json.dumps(partition))
    words = [a_word("ACME", 5, "B-company", "B-company"), a_word("9.90", 60, "B-total", "O")]
    prediction = {"document": "X51005", "words": words}
    (path / "prediction.json").write_text(json.dumps(prediction))
    Image.new("RGB", (120, 60), "white").save(path / "prediction.png")
    return path


@pytest.fixture
def folder(tmp_path):
    return fill(tmp_path / "2026-03-02_14-05-11")


def page_of(folder):
    return write_report(folder).read_text("utf-8")


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return page_of(fill(tmp_path_factory.mktemp("runs") / "2026-03-02_14-05-11"))


MASKS = "masking: {bound: 10.0}\nstrategy: {weighted: false}\n"
WEIGH = "Behind masks all clients weigh the same, and buffers are not averaged."


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (MASKS, [WEIGH, "A coordinate of an update is cut off at ±10 (masking.bound)."]),
        ("masking: {bound: null}\nstrategy: {mechanism: {}}\n", []),
        ("masking: null\nstrategy: {weighted: false}\n", []),
        ("masking: [1]\nstrategy: x\n", []),
    ],
)
def test_what_masks_have_set_is_said(config, said, folder):
    (folder / "config.yaml").write_text(CONFIG + config)
    text = page_of(folder)
    shown = [one for one in (WEIGH, "A coordinate of an update is cut off at ±10 (masking.bound).")
             if one in text]  # fmt: skip
    assert shown == said


class Elements(HTMLParser):
    """Collects (tag, attributes) and the text of a page."""

    def __init__(self, page):
        super().__init__()
        self.elements, self.words, self.open = [], [], []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data):
        if "style" not in self.open:
            self.words.append(data)

    @property
    def text(self):
        return re.sub(r"\s+", " ", " ".join(self.words))


def text_of(folder):
    return Elements(page_of(folder)).text


# ------------------------------------------------------------------------------ the page itself


def test_tells_the_run_in_order(page):
    text = Elements(page).text
    for said in (
        "tiny",
        "2026-03-02 14:05",
        "complete: 3 of 3 rounds",
        "0.600",
        "2 clients",
        "3 suppliers",
        "4 training documents",
        "1 held-out document",
        "ValueError: odd",
        "File x, line 3",
        "11.1 s",
        "18 MB",
        "2.13.0",
        "_target_: strategies.FedAvg",
    ):
        assert said in text, said
    sections = ["Curves", "Partition", "Privacy", "A page", "What failed", "Cost", "Settings"]
    sections.append("Words used here")
    titles = re.findall(r'<h2 id="[a-z]+-title">([^<]+)', page)
    assert [title.split(":")[0] for title in titles] == sections


def test_needs_nothing_but_itself(page):
    assert "http://" not in page
    assert "https://" not in page
    assert "@import" not in page
    assert page.count("<style") == 1, "a style sheet inside a drawing applies to the whole page"
    for tag, attributes in Elements(page).elements:
        assert tag not in {"script", "link", "iframe", "object", "embed", "base"}
        for name in ("src", "href", "xlink:href", "data", "action", "srcset"):
            value = attributes.get(name, "#")
            assert value.startswith(("#", "data:image/")), (tag, name, value[:80])
    assert all(link.startswith("#") for link in re.findall(r"url\(([^)]*)\)", page))


def test_every_picture_has_a_description(page):
    pictures = [held for tag, held in Elements(page).elements if tag == "svg"]
    assert len(pictures) > 5
    assert all(held.get("aria-label") or held.get("aria-hidden") for held in pictures)
    assert "held-out loss from 2 in round 1 to 0.667 in round 3" in page


def test_inline_drawings_are_well_formed(page):
    drawings = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    for drawing in drawings:
        ElementTree.fromstring(drawing.replace("xlink:href", "href"))  # noqa: S314
    assert not re.search("#0a0a[0-9]{2}", page), "a colour has no CSS variable"


def test_is_the_same_page_each_time(folder):
    assert page_of(folder) == page_of(folder)


def test_leaves_no_draft_and_keeps_the_old_page_when_it_cannot_write(folder, monkeypatch):
    before = page_of(folder)
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write_report(folder)
    assert (folder / "report.html").read_text() == before
    assert not list(folder.glob(".report*"))


def test_draws_without_pyplot_and_leaves_its_settings_alone(folder):
    import matplotlib

    before = dict(matplotlib.rcParams)
    write_report(folder)
    assert dict(matplotlib.rcParams) == before


# ---------------------------------------------------------------------------- untrusted, broken


HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)> {{ 7*7 }} ]]>"


def test_escapes_every_text_of_the_run(folder):
    (folder / "config.yaml").write_text(
        json.dumps({"name": HOSTILE, "versions": {HOSTILE: HOSTILE}})
    )
    write_lines(
        folder / "metrics.jsonl",
        [a_round(1, **{HOSTILE: 0.5, f"f1/{HOSTILE}": 0.5, "seconds": {HOSTILE: 1.0}})],
    )
    failure = dict.fromkeys(("client", "kind", "reason", "traceback"), HOSTILE) | {"round": HOSTILE}
    write_lines(folder / "failures.jsonl", [failure])
    partition = {"method": HOSTILE, "clients": {HOSTILE: {HOSTILE: [HOSTILE]}, "1": {HOSTILE: [1]}}}
    (folder / "partition.json").write_text(json.dumps(partition))
    words = [a_word(HOSTILE, 5, f"B-{HOSTILE}", f"B-{HOSTILE}"), a_word("x", 50, "O", "B-x")]
    (folder / "prediction.json").write_text(json.dumps({"document": HOSTILE, "words": words}))
    page = page_of(folder)
    tags = {tag for tag, _ in Elements(page).elements}
    assert not tags & {"script", "img"}
    assert not any("onerror" in held for _, held in Elements(page).elements)
    assert "{{ 7*7 }}" in page
    assert page.count("&lt;script&gt;") > 15


@pytest.mark.parametrize("absent", OPTIONAL)
def test_says_what_is_absent(folder, absent):
    (folder / absent).unlink()
    said = {
        "metrics.jsonl": "No metric is recorded.",
        "partition.json": "No partition by supplier is recorded.",
        "failures.jsonl": "Nothing failed.",
        "prediction.json": "No held-out page is recorded",
        "prediction.png": "No picture of the page is recorded",
    }
    assert said[absent] in text_of(folder)


@pytest.mark.parametrize(
    "content", ["", "[]", "{", "null", "3", '{"clients": 3, "words": 3}', "\0"]
)
def test_survives_folders_of_nonsense(folder, content):
    for name in OPTIONAL:
        (folder / name).write_text(content)
    text = text_of(folder)
    assert "no round done of 3" in text
    assert "partition.json" in text


def test_a_folder_with_settings_only(tmp_path):
    (tmp_path / "config.yaml").write_text("{}")
    text = text_of(tmp_path)
    assert "0 rounds done, number planned not recorded" in text
    assert "No failure is recorded." in text
    assert "No seconds are recorded." in text


@pytest.mark.parametrize("config", ["- 1\n", "a: [", "!!python/object:os.system {}", "name: [1]"])
def test_shows_settings_it_cannot_use(folder, config):
    (folder / "config.yaml").write_text(config)
    assert config.split(":")[0].strip() in text_of(folder)


def test_says_that_a_folder_is_no_run(tmp_path):
    with pytest.raises(ValueError, match=r"nowhere is not a run folder: it holds no config.yaml"):
        write_report(tmp_path / "nowhere")


def test_ignores_the_last_line_of_a_killed_run(folder):
    with (folder / "metrics.jsonl").open("ab") as file:
        file.write('{"round": 4, "loss": 0.1, "f1": "é'.encode()[:-1])
    text = text_of(folder)
    assert "complete: 3 of 3 rounds" in text
    assert "could not be read" not in text


def test_names_a_broken_line_in_the_middle(folder):
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    (folder / "metrics.jsonl").write_text("\n".join([lines[0], "{oops", *lines[1:]]))
    assert "metrics.jsonl, line 2: not JSON" in text_of(folder)


def test_draws_what_is_finite_of_odd_metrics(folder):
    odd = [
        a_round(1, loss=None, f1=math.nan, big=1e308),
        a_round(2, loss=math.inf, f1=0.5, big=-1e308, text="high", flag=True, nested={"a": 1}),
        a_round(
            3,
            loss=math.nan,
            f1=None,
            big=10**400,
            clients=None,
            seconds=[],
            bytes_up="x",
            bytes_down=1,
        ),
    ]
    write_lines(folder / "metrics.jsonl", odd)
    page = page_of(folder)
    text = Elements(page).text
    assert "Some rounds have no finite value of:" in text
    assert "not a number" in text
    assert "× marks a round whose value is not a finite number" in text
    assert "F1 from 0.5 in round 2 to 0.5 in round 2" in page
    assert "nested" not in text.split("Settings")[0]


def test_a_run_of_no_rounds_has_scores_and_neither_clients_nor_bytes(folder):
    nobody = {"sampled": 0, "answered": 0, "failed": 0, "missing": 0}
    nothing = {"bytes_down": 0, "bytes_up": 0, "bytes_by_client": {}}
    row = a_round(7, round=0, attempts=0, clients=nobody, **nothing)
    write_lines(folder / "metrics.jsonl", [row])
    (folder / "config.yaml").write_text(CONFIG.replace("rounds: 3", "rounds: 0"))
    text = text_of(folder)
    assert "0 of 0 rounds" in text
    assert "held-out loss" in text
    assert "No bytes are recorded" in text
    assert "Clients by round" not in text


def test_unseen_providers_have_curves_of_their_own(folder):
    write_lines(folder / "metrics.jsonl", [a_round(1, f1_seen=0.5, f1_unseen=0.25, loss_unseen=3)])
    text = text_of(folder)
    assert "F1 (unseen suppliers)" in text
    assert "F1 (seen suppliers)" in text
    assert "held-out loss (unseen suppliers)" in text


def test_texts_that_utf8_cannot_hold(folder):
    failure = '{"round": 1, "client": 0, "kind": "failed", "reason": "\\ud800 half"}'
    (folder / "failures.jsonl").write_text(failure)
    assert "? half" in text_of(folder)


def test_a_picture_that_is_none(folder):
    (folder / "prediction.png").write_bytes(b"\x89PNG\r\n\x1a\n broken")
    text = text_of(folder)
    assert "No picture of the page is recorded" in text
    assert "prediction.png cannot be shown" in text


# -------------------------------------------------------------------------------------- headline


@pytest.mark.parametrize(
    ("rounds", "done", "state", "complete"),
    [
        (3, 3, "complete: 3 of 3 rounds", True),
        (20, 3, "interrupted after round 3 of 20", False),
        (1, 1, "complete: 1 of 1 round", True),
        (5, 0, "no round done of 5", False),
    ],
)
def test_state(folder, rounds, done, state, complete):
    (folder / "config.yaml").write_text(f"rounds: {rounds}")
    write_lines(folder / "metrics.jsonl", [a_round(number + 1) for number in range(done)])
    assert build.run_state(build.read_run(folder)) == (state, complete)


def test_warns_of_refused_rounds_and_failed_clients(folder):
    counts = {"sampled": 3, "answered": 1, "failed": 1, "missing": 1}
    rows = [a_round(1), a_round(2, accepted=False, attempts=2, clients=counts), a_round(3)]
    write_lines(folder / "metrics.jsonl", rows)
    late = {"round": 4, "client": 0, "kind": "missing", "reason": "no reply"}
    write_lines(folder / "failures.jsonl", [late])
    text = text_of(folder)
    assert "1 round was refused (round 2)." in text
    assert "Clients failed 1 time, in round 2." in text
    assert "Clients did not answer 2 times, in rounds 2, 4." in text
    assert "▼ marks a refused round" in text
    assert "More than one attempt was needed in round 2." in text


def test_a_quiet_run_has_no_warning(folder):
    (folder / "failures.jsonl").unlink()
    assert 'class="warnings"' not in page_of(folder)


def test_tiles_name_the_round_of_a_value_that_is_not_the_last_rounds(folder):
    rows = [a_round(1, f1=0.9), a_round(2, f1=0.5), a_round(3, f1=None)]
    write_lines(folder / "metrics.jsonl", rows)
    tile = build.headline(build.read_run(folder), None)["tiles"][0]
    assert (tile.label, tile.value) == ("F1", "0.500")
    assert tile.note == "in round 2, best 0.900 in round 1"


def test_a_resumed_rounds_later_line_counts(folder):
    write_lines(folder / "metrics.jsonl", [a_round(1), a_round(2, f1=0.1), a_round(2, f1=0.7)])
    assert build.read_run(folder).rounds[2]["f1"] == 0.7


def test_sorts_metrics_into_charts():
    row = {"loss": 2.0, "accuracy": 0.5, "epsilon": 0.5, "perplexity": 9.0, "lr": 0.1}
    row |= {"f1/total": 0.5, "precision": 1, "accepted": True, "round": 1, "attempts": 1}
    groups = build.metric_groups({1: row})
    assert list(groups.losses) == ["loss"]
    assert sorted(groups.scores) == ["accuracy", "precision"]
    assert sorted(groups.others) == ["epsilon", "lr", "perplexity"]
    assert list(groups.by_type) == ["f1"]


def test_units():
    shown = [build.show_seconds(s) for s in (0.042, 3.2, 59.96, 75, 7_500, 3_599.9)]
    assert shown == ["42 ms", "3.2 s", "1 min 0 s", "1 min 15 s", "2 h 5 min", "1 h 0 min"]
    shown = [build.show_bytes(b) for b in (0, 123, 4_560_000, 57_600_000_000)]
    assert shown == ["0 bytes", "123 bytes", "4.56 MB", "57.6 GB"]
    assert build.show_rounds(range(1, 11)) == "rounds 1, 2, 3, 4, 5, 6, 7, 8 and 2 more"


# ------------------------------------------------------------------------------------- partition


def test_a_hundred_clients_and_four_hundred_providers_in_time(folder):
    clients = {
        str(client): {
            f"P{provider}": ["doc"] * (1 + provider % 17) for provider in range(client, 400, 100)
        }
        for client in range(100)
    }
    (folder / "partition.json").write_text(json.dumps({"clients": clients}))
    began = time.process_time()
    page = page_of(folder)
    assert time.process_time() - began < 3
    assert page.count('class="bar few"') == 100
    assert page.count('title="P') == 400
    assert 'class="bars dense"' in page


def test_neighbours_in_a_bar_differ_in_colour():
    one = {"0": {f"P{i}": i + 1 for i in range(50)}}
    shades = [block.shade for block in figures.partition_bars(one).bars[0].blocks]
    assert len(shades) == 50
    assert all(a != b for a, b in itertools.pairwise(shades))


def test_a_shared_provider_keeps_its_colour():
    clients = {"1": {"A": 5, "B": 1}, "0": {"B": 4}, "10": {"C": 1, "A": 2}}
    bars = figures.partition_bars(clients)
    shade = {key.label: key.shade for key in bars.keys}
    assert [bar.client for bar in bars.bars] == ["0", "1", "10"]
    assert sorted(shade) == ["A", "B", "C"]
    assert all(shade[block.provider] == block.shade for bar in bars.bars for block in bar.blocks)
    assert [bar.percent for bar in bars.bars] == pytest.approx([400 / 6, 100, 50])


def test_a_huge_partition_stays_drawable():
    clients = {str(c): {f"P{p}": 1 + (p == 7) for p in range(200)} for c in range(1000)}
    bars = figures.partition_bars(clients)
    blocks = [block for bar in bars.bars for block in bar.blocks]
    assert len(blocks) <= 5000
    assert bars.lumped
    assert sum(block.documents for block in bars.bars[0].blocks) == 201


# -------------------------------------------------------------------------------------- the page


def words_of(*tags):
    return [
        TaggedWord(f"w{at}", (at * 10.0, 0.0, at * 10.0 + 9, 8.0), true, predicted)
        for at, (true, predicted) in enumerate(tags)
    ]


def test_spans_read_bio_as_seqeval_does():
    tags = ["I-a", "I-a", "B-a", "O", "I-b", "I-a", "odd"]
    assert figures.spans(tags) == [("a", 0, 2), ("a", 2, 3), ("b", 4, 5), ("a", 5, 6)]


def test_verdicts_of_entities():
    words = words_of(
        ("B-company", "I-company"),  # same span, whatever its first tag
        ("I-company", "I-company"),
        ("B-date", "O"),
        ("B-total", "B-total"),
        ("I-total", "O"),
        ("O", "B-total"),
    )
    rows, row_of = figures.entity_rows(words)
    assert [(row.number, row.status) for row in rows] == [
        (1, "correct"),
        (2, "missed"),
        (3, "wrong"),
        (4, "spurious"),
    ]
    assert rows[2].true == ("total", "w3 w4")
    assert rows[2].predicted == (("total", "w3"),)
    marks = figures.page_marks(words, row_of)
    assert [(mark.status, mark.number) for mark in marks] == [
        ("correct", 1),
        ("missed", 2),
        ("correct", 3),
        ("missed", 0),
        ("wrong", 4),
    ]
    assert (marks[0].left, marks[0].width) == (0, 19)


def test_marks_do_not_run_over_a_line_break():
    words = [
        TaggedWord("a", (50, 0, 60, 10), "B-x", "B-x"),
        TaggedWord("b", (0, 12, 10, 22), "I-x", "I-x"),
    ]
    _, row_of = figures.entity_rows(words)
    assert len(figures.page_marks(words, row_of)) == 2


def test_the_page_tells_fates_apart_by_line_style_too(page):
    rules = {
        status: re.search(rf"\.page \.{status} {{([^}}]*)}}", page).group(1)
        for status in ("correct", "missed", "wrong")
    }
    dashes = [re.search(r"stroke-dasharray: ([\d ]+)", rule) for rule in rules.values()]
    assert dashes[0] is None
    assert dashes[1].group(1) != dashes[2].group(1)
    assert '<rect class="missed" x="60.0" y="10.0"' in page


def test_charts_of_one_point_and_of_nothing_but_zeros_can_be_drawn():
    dot = figures.draw(Figure("shares", "t", {"curves": {"attack": ([1.0], [0.0])}}))
    assert "attack from 0 at 1 to 0 at 1" in dot.svg
    nothing = {"attack": {"a": 0.0}, "baseline": {"a": 0.0}}
    flat = figures.draw(Figure("bars", "t", {"bars": nothing}))
    assert [key.label for key in flat.keys] == ["attack", "baseline"]
    assert "baseline: a 0" in flat.svg


# ------------------------------------------------------------------------------- numbers, not dots


def test_one_evaluated_round_is_told_in_numbers(folder):
    write_lines(folder / "metrics.jsonl", [a_round(1, f1_seen=0.5, f1_unseen=0.25)])
    page = page_of(folder)
    curves = re.search(r'<section id="curves".*?</section>', page, re.DOTALL)[0]
    cost = re.search(r'<section id="cost".*?</section>', page, re.DOTALL)[0]
    assert "<svg" not in curves + cost
    text = Elements(curves).text
    for said in (
        "F1 (seen suppliers) 1 0.500",
        "company 0.300",
        "In round 1, 3 clients were asked",
    ):
        assert said in text, said
    assert "3.2 s" in cost


def test_every_chart_says_what_there_is_to_see(page):
    captions = re.findall(
        r'<figure class="chart">\s*<figcaption>(.*?)</figcaption>', page, re.DOTALL
    )
    large = [caption for caption in captions if "<b>" not in caption]
    assert len(large) >= 4
    assert all('<span class="see">' in caption for caption in large)


def test_tables_have_captions_and_scopes(page):
    tables = re.findall(r"<table.*?</table>", page, re.DOTALL)
    assert len(tables) >= 4
    assert all("<caption" in table for table in tables)
    assert all("scope=" in head for head in re.findall(r"<th\b[^>]*>", page))


def test_terms_lead_to_the_glossary_and_it_holds_no_others(page):
    linked = set(re.findall(r'href="#(term-[a-z0-9-]+)"', page))
    defined = re.findall(r'id="(term-[a-z0-9-]+)"', page)
    assert linked == set(defined)
    assert len(defined) == len(linked) > 0
