"""The SROIE reader on small hand-made folders: every trap of the release, one by one."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from fedpriv.data.document import DataError, Word
from fedpriv.data.readers.sroie import (
    Sroie,
    decode,
    provider_name,
    read_entities,
    read_lines,
    read_manifest,
)
from fedpriv.data.readers.sroie_labels import LABELS, label_words

SIZE = (100, 200)
LINE = "10,20,50,20,50,30,10,30,AB CD\n"
KEYS = {"company": "AB CD", "date": "", "address": "", "total": ""}


def write_receipt(root, stem, split="train", box=LINE, keys=KEYS, size=SIZE, scaled=None):
    """Writes one receipt's files; `box` and `scaled` as text or bytes, `keys` as dict or text."""
    folder = root / split
    files = {"box": box, "entities": keys if isinstance(keys, str) else json.dumps(keys)}
    if scaled is not None:
        files["box_scaled"] = scaled
    for name, content in files.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        data = content if isinstance(content, bytes) else content.encode()
        (folder / name / f"{stem}.txt").write_bytes(data)
    (folder / "img").mkdir(exist_ok=True)
    Image.new("L", size, 255).save(folder / "img" / f"{stem}.jpg")


def write_manifest(root, *rows):
    (root / "manifest.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def only(root, **settings):
    """Loads a folder that holds one receipt and returns it."""
    (document,) = Sroie(root, **settings).load().documents
    return document


def page(*lines):
    """Words of hand-made text lines, one under the other; a tuple is a row of several lines."""
    words = []
    segment = 0
    for number, row in enumerate(lines):
        for text in (row,) if isinstance(row, str) else row:
            top = 10.0 * number
            words += [Word(word, (0.0, top, 9.0, top + 8.0), segment) for word in text.split()]
            segment += 1
    return words


def labelled(words, label, value):
    """The texts that carry the label."""
    found = label_words(words, {label: value})
    return [words[place].text for entity in found for place in entity.words]


# ------------------------------------------------------------------------------------- box files


def test_text_keeps_commas_and_a_leading_quote(tmp_path):
    path = tmp_path / "box.txt"
    path.write_text('1,2,3,2,3,4,1,4,"A, B",C\n1,2,3,2,3,4,1,4,"\n1,2,3,2,3,4,1,4,D\n')
    assert [line.text for line in read_lines(path)] == ['"A, B",C', '"', "D"]


def test_lf_and_crlf_may_be_mixed(tmp_path):
    path = tmp_path / "box.txt"
    path.write_bytes(b"1,2,3,2,3,4,1,4,A\r\n1,2,3,2,3,4,1,4,B\n1,2,3,2,3,4,1,4,C")
    assert [(line.text, line.number) for line in read_lines(path)] == [("A", 1), ("B", 2), ("C", 3)]


def test_blank_lines_and_blank_texts_are_left_out(tmp_path):
    path = tmp_path / "box.txt"
    path.write_bytes(b"\r\n1,2,3,2,3,4,1,4,\r\n1,2,3,2,3,4,1,4,  \n1,2,3,2,3,4,1,4, A \n\n")
    assert [(line.text, line.number) for line in read_lines(path)] == [("A", 4)]


def test_a_file_that_is_not_utf8_is_latin1(tmp_path):
    path = tmp_path / "box.txt"
    path.write_bytes(b"1,2,3,2,3,4,1,4,\xa35.00\n")
    assert read_lines(path)[0].text == "£5.00"
    assert decode("é".encode()) == "é"
    assert decode(b"\xef\xbb\xbf1,2") == "1,2"  # a byte order mark is no part of the number


def test_characters_that_python_calls_line_breaks_are_text(tmp_path):
    path = tmp_path / "box.txt"
    path.write_text("1,2,3,2,3,4,1,4,A\x85B\u2028C\x0cD\n", encoding="utf-8")
    assert [line.text for line in read_lines(path)] == ["A\x85B\u2028C\x0cD"]


def test_the_box_is_the_rectangle_around_the_quadrilateral(tmp_path):
    path = tmp_path / "box.txt"
    path.write_text("12,5,40,3,42,19,10,21,A\n40,20,10,20,10,4,40,4,B\n")
    assert [line.box for line in read_lines(path)] == [(10, 3, 42, 21), (10, 4, 40, 20)]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("1,2,3,4,A", "found 5 fields of 9"),
        ("1,2,3,2,3,4,1,x,A", "'1,2,3,2,3,4,1,x'"),
        ("1,2,3,2,3,4,1,nan,A", "finite"),
        ("TOTAL", "found 1 fields of 9"),
    ],
)
def test_a_malformed_line_is_named_by_number(tmp_path, line, says):
    path = tmp_path / "box.txt"
    path.write_text(f"{LINE}\n{line}\n")
    with pytest.raises(DataError, match=says) as caught:
        read_lines(path)
    assert (caught.value.path, caught.value.line) == (path, 3)


TEXT = st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"])).filter(str.strip)


@given(st.lists(st.tuples(TEXT, st.sampled_from(["\n", "\r\n"])), min_size=1, max_size=5))
def test_any_text_survives_a_box_file(tmp_path_factory, lines):
    path = tmp_path_factory.getbasetemp() / "round-trip.txt"
    content = "".join(f"{n},2,30,2,30,4,{n},4,{text}{end}" for n, (text, end) in enumerate(lines))
    path.write_bytes(content.encode())
    back = read_lines(path)
    assert [line.text for line in back] == [text.strip() for text, _ in lines]
    assert [line.box for line in back] == [(n, 2, 30, 4) for n in range(len(lines))]


# ------------------------------------------------------------------------- key files, manifest


def test_keys_may_be_missing_empty_or_null(tmp_path):
    path = tmp_path / "key.txt"
    path.write_text('{"company": " A ", "date": "", "total": null, "other": 3}')
    assert read_entities(path) == {"company": "A", "date": "", "address": "", "total": ""}


@pytest.mark.parametrize(
    ("content", "line", "says"),
    [
        ('{\n"company": "A"\n"date": "B"}', 3, "not JSON"),
        ("", 1, "not JSON"),
        ('["A"]', None, "expected a JSON object, found list"),
        ('{"total": 3.5}', None, "expected a text for 'total', found 3.5"),
    ],
)
def test_a_broken_key_file_is_named_with_its_line(tmp_path, content, line, says):
    write_receipt(tmp_path, "X1", keys=content)
    with pytest.raises(DataError, match=says) as caught:
        Sroie(tmp_path).load()
    assert caught.value.path == tmp_path / "train" / "entities" / "X1.txt"
    assert caught.value.line == line


@pytest.mark.parametrize(
    "row",
    [
        '{"id": "X1"',
        '{"id": "X1"}',
        "[1]",
        '{"id": "X1", "split": "train", "scale": [1]}',
        '{"id": "X1", "split": "train", "scale": [0, 1]}',
        '{"id": "X1", "split": "train", "size": 3}',
    ],
)
def test_a_broken_manifest_is_named_with_its_line_even_under_skip(tmp_path, row):
    write_receipt(tmp_path, "X1")
    (tmp_path / "manifest.jsonl").write_text(f'{{"id": "X0", "split": "train"}}\n\n{row}\n')
    with pytest.raises(DataError) as caught:
        Sroie(tmp_path, on_error="skip").load()
    assert (caught.value.path, caught.value.line) == (tmp_path / "manifest.jsonl", 3)


def test_a_manifest_need_not_be_there(tmp_path):
    assert read_manifest(tmp_path / "manifest.jsonl") == {}


# ----------------------------------------------------------------------------------- a receipt


def test_words_share_their_lines_box_in_proportion(tmp_path):
    write_receipt(tmp_path, "X1", box=LINE + "0,40,80,40,80,60,0,60,E\n")
    document = only(tmp_path)
    assert document.words == (
        Word("AB", (10.0, 20.0, 26.0, 30.0), 0),
        Word("CD", (34.0, 20.0, 50.0, 30.0), 0),
        Word("E", (0.0, 40.0, 80.0, 60.0), 1),
    )
    assert document.segment_boxes()[0] == (10.0, 20.0, 50.0, 30.0)
    assert document.size == SIZE
    assert document.page == tmp_path / "train" / "img" / "X1.jpg"
    assert document.split == "train"
    (question,) = document.questions
    assert (question.key, question.answers) == ("company", ("AB CD",))
    assert document.tags() == ["B-company", "I-company", "O"]


def test_receipts_come_by_split_then_identifier(tmp_path):
    for stem, split in [("X2", "train"), ("X10", "test"), ("X1", "train"), ("X3", "test")]:
        write_receipt(tmp_path, stem, split)
    (tmp_path / "train" / "img" / "._X9.jpg").write_bytes(b"of the file system, not a receipt")
    found = Sroie(tmp_path).load()
    assert [(document.split, document.id) for document in found.documents] == [
        ("train", "X1"),
        ("train", "X2"),
        ("test", "X10"),
        ("test", "X3"),
    ]
    assert (found.name, found.labels, found.skipped) == ("SROIE", LABELS, ())
    test_first = Sroie(tmp_path, splits=("test", "train")).load()
    assert [document.id for document in test_first.documents] == ["X10", "X3", "X1", "X2"]


def test_one_split_alone_is_enough(tmp_path):
    write_receipt(tmp_path, "X1", "test")
    assert only(tmp_path).split == "test"


def test_an_identifier_of_both_splits_stays_unique(tmp_path):
    write_receipt(tmp_path, "X1", "train")
    write_receipt(tmp_path, "X1", "test")
    write_receipt(tmp_path, "X2", "test")
    ids = [document.id for document in Sroie(tmp_path).load().documents]
    assert ids == ["train/X1", "test/X1", "X2"]


@pytest.mark.parametrize(
    ("company", "provider"),
    [
        ("Mr. A.B.C. (M) Sdn Bhd", "MRABCM"),
        ("MR ABC (M) SDN. BHD.", "MRABCM"),
        ("SDN BHD HOLDINGS", "SDNBHDHOLDINGS"),
        ("SDN BHD", "unknown"),
        ("", "unknown"),
    ],
)
def test_without_manifest_the_company_names_the_provider(tmp_path, company, provider):
    assert provider_name(company) == provider
    write_receipt(tmp_path, "X1", keys={"company": company})
    assert only(tmp_path).provider == provider


def test_the_manifest_names_the_provider_where_it_can(tmp_path):
    for stem in ("X1", "X2", "X3"):
        write_receipt(tmp_path, stem, keys={"company": "TEE BEE"})
    write_manifest(
        tmp_path,
        {"id": "X1", "split": "train", "provider": "TEABEE"},
        {"id": "X2", "split": "train", "provider": None},
        {"id": "X3", "split": "test", "provider": "OTHER"},
    )
    found = [document.provider for document in Sroie(tmp_path).load().documents]
    assert found == ["TEABEE", "TEEBEE", "TEEBEE"]


def test_second_scans_are_dropped_and_counted_where_asked(tmp_path):
    for stem in ("X1", "X2"):
        write_receipt(tmp_path, stem)
    write_manifest(tmp_path, {"id": "X2", "split": "train", "possible_rescan_of": "X1"})
    both = Sroie(tmp_path).load().documents
    assert [(d.id, d.whole) for d in both] == [("X1", "X1"), ("X2", "X1")]
    found = Sroie(tmp_path, rescans="drop").load()
    assert [d.id for d in found.documents] == ["X1"]
    (skipped,) = found.skipped
    assert "second scan of X1" in str(skipped)
    with pytest.raises(ValueError, match="'keep' or 'drop'"):
        Sroie(tmp_path, rescans="merge")


@pytest.mark.parametrize(
    ("gone", "says"),
    [("img/X1.jpg", "no image"), ("box/X1.txt", "no box file"), ("entities/X1.txt", "no key file")],
)
def test_a_missing_partner_is_named(tmp_path, gone, says):
    write_receipt(tmp_path, "X1")
    write_receipt(tmp_path, "X2")
    (tmp_path / "train" / gone).unlink()
    with pytest.raises(DataError, match=says) as caught:
        Sroie(tmp_path).load()
    assert caught.value.path == tmp_path / "train" / gone


def test_an_unreadable_image_is_named(tmp_path):
    write_receipt(tmp_path, "X1")
    image = tmp_path / "train" / "img" / "X1.jpg"
    image.write_bytes(b"no image")
    with pytest.raises(DataError, match="not an image") as caught:
        Sroie(tmp_path).load()
    assert caught.value.path == image


def test_skip_leaves_out_and_counts(tmp_path):
    for stem in ("X1", "X2", "X3", "X4", "X5"):
        write_receipt(tmp_path, stem)
    train = tmp_path / "train"
    (train / "img" / "X1.jpg").unlink()
    (train / "img" / "X2.jpg").write_bytes(b"")
    (train / "box" / "X3.txt").write_text("nonsense\n")
    (train / "entities" / "X5.txt").write_text("{")
    found = Sroie(tmp_path, on_error="skip").load()
    assert [document.id for document in found.documents] == ["X4"]
    assert [(error.path.name, error.line) for error in found.skipped] == [
        ("X1.jpg", None),
        ("X2.jpg", None),
        ("X3.txt", 1),
        ("X5.txt", 1),
    ]


# ------------------------------------------------------------------------------ boxes and sizes

BIG = "20,40,100,40,100,60,20,60,AB\n20,300,100,300,100,390,20,390,CD\n"
SMALL = "10,20,50,20,50,30,10,30,AB\n10,150,50,150,50,195,10,195,CD\n"
SHRUNK = [(10, 20, 50, 30), (10, 150, 50, 195)]
ROW = {"id": "X1", "split": "train", "size": [100, 200], "orig_size": [200, 400]}


def boxes(document):
    return [word.box for word in document.words]


def test_boxes_of_the_original_size_are_refused_on_a_shrunk_image(tmp_path):
    write_receipt(tmp_path, "X1", box=BIG)
    with pytest.raises(DataError, match=r"100 × 200 pixels.*put box_scaled/X1\.txt") as caught:
        Sroie(tmp_path).load()
    assert (caught.value.path.name, caught.value.line) == ("X1.txt", 2)
    assert len(Sroie(tmp_path, on_error="skip").load().skipped) == 1


def test_box_scaled_is_taken_where_it_lies(tmp_path):
    write_receipt(tmp_path, "X1", box=BIG, scaled=SMALL)
    assert boxes(only(tmp_path)) == SHRUNK
    assert boxes(only(tmp_path, boxes="scaled")) == SHRUNK
    with pytest.raises(DataError, match="boxes='original' was given"):
        Sroie(tmp_path, boxes="original").load()


def test_box_scaled_is_enough_without_box(tmp_path):
    write_receipt(tmp_path, "X1", box=BIG, scaled=SMALL)
    (tmp_path / "train" / "box" / "X1.txt").unlink()
    (tmp_path / "train" / "box").rmdir()
    assert boxes(only(tmp_path)) == SHRUNK
    with pytest.raises(DataError, match="box_scaled/ only"):
        Sroie(tmp_path, boxes="original").load()


@pytest.mark.parametrize("sizes", [ROW, {**ROW, "orig_size": None, "scale": [0.5, 0.5]}])
@pytest.mark.parametrize("way", ["auto", "scaled"])
def test_the_manifest_scales_where_box_scaled_is_missing(tmp_path, sizes, way):
    write_receipt(tmp_path, "X1", box=BIG)
    write_manifest(tmp_path, sizes)
    assert boxes(only(tmp_path, boxes=way)) == SHRUNK


def test_the_manifest_knows_a_shrunk_image_whose_boxes_happen_to_fit(tmp_path):
    fits = "20,40,90,40,90,60,20,60,AB\n"
    write_receipt(tmp_path, "X1", box=fits)
    write_manifest(tmp_path, ROW)
    assert boxes(only(tmp_path)) == [(10, 20, 45, 30)]


@pytest.mark.parametrize("row", [ROW, {**ROW, "size": None}])
def test_an_image_of_the_original_size_takes_box(tmp_path, row):
    write_receipt(tmp_path, "X1", box=BIG, scaled=SMALL, size=(200, 400))
    write_manifest(tmp_path, row)
    assert boxes(only(tmp_path)) == [(20, 40, 100, 60), (20, 300, 100, 390)]


def test_an_image_that_was_never_shrunk_may_have_box_scaled_only(tmp_path):
    write_receipt(tmp_path, "X1", scaled=SMALL)
    write_manifest(tmp_path, {**ROW, "orig_size": list(SIZE)})
    (tmp_path / "train" / "box" / "X1.txt").unlink()
    assert boxes(only(tmp_path)) == SHRUNK


def test_an_image_of_a_third_size_is_scaled_from_the_original(tmp_path):
    write_receipt(tmp_path, "X1", box=BIG, scaled=SMALL, size=(50, 100))
    write_manifest(tmp_path, ROW)
    assert boxes(only(tmp_path)) == [(5, 10, 25, 15), (5, 75, 25, 97.5)]


def test_an_image_of_another_shape_is_refused(tmp_path):
    write_receipt(tmp_path, "X1", box=BIG, size=(200, 100))
    write_manifest(tmp_path, ROW)
    with pytest.raises(DataError, match=r"200 × 100 pixels.*orig_size 200 × 400") as caught:
        Sroie(tmp_path).load()
    assert caught.value.path.name == "X1.jpg"


def test_scaled_boxes_need_a_source(tmp_path):
    write_receipt(tmp_path, "X1")
    with pytest.raises(DataError, match=r"manifest\.jsonl gives no scale for X1"):
        Sroie(tmp_path, boxes="scaled").load()


def test_a_box_slightly_over_the_edge_is_clipped(tmp_path):
    write_receipt(tmp_path, "X1", box="-2,-1,102,-1,102,202,-2,202,A\n")
    assert boxes(only(tmp_path)) == [(0, 0, 100, 200)]


@pytest.mark.parametrize("box", ["-3,0,50,9", "0,0,103,9", "0,-3,50,9", "0,190,50,203"])
def test_a_box_far_over_the_edge_is_refused(tmp_path, box):
    x0, y0, x1, y1 = box.split(",")
    write_receipt(tmp_path, "X1", box=f"{x0},{y0},{x1},{y0},{x1},{y1},{x0},{y1},A\n")
    with pytest.raises(DataError, match="does not fit the image X1") as caught:
        Sroie(tmp_path).load()
    assert caught.value.line == 1


@pytest.mark.parametrize(
    ("line", "box"),
    [
        ("10,20,10,20,10,30,10,30,A\n", (10, 20, 11, 30)),
        ("10,20,40,20,40,20,10,20,A\n", (10, 20, 40, 21)),
        ("100,20,101,20,101,30,100,30,A\n", (99, 20, 100, 30)),
        ("10,-2,40,-2,40,-1,10,-1,A\n", (10, 0, 40, 1)),
    ],
)
def test_a_box_without_extent_is_widened_to_a_pixel(tmp_path, line, box):
    write_receipt(tmp_path, "X1", box=line)
    assert boxes(only(tmp_path)) == [box]


# ------------------------------------------------------------------------------------------ root


def test_a_root_that_is_no_folder_says_so(tmp_path):
    with pytest.raises(DataError, match=r"there is no folder .*gone \(is FEDPRIV_DATA set\?\)"):
        Sroie(tmp_path / "gone").load()
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(DataError, match="is a file, not a folder"):
        Sroie(str(file)).load()


def test_a_root_without_splits_says_what_lies_there(tmp_path):
    for number in range(10):
        (tmp_path / f"part{number}").mkdir()
    with pytest.raises(DataError, match=r"no train/ nor test/ here: .*img/.*part0/.*and 2 more"):
        Sroie(tmp_path).load()
    with pytest.raises(DataError, match="none was asked for"):
        Sroie(tmp_path, splits=()).load()


@pytest.mark.parametrize("name", ["img", "box", "entities"])
def test_a_missing_subfolder_is_named(tmp_path, name):
    for other in {"img", "box", "entities"} - {name}:
        (tmp_path / "train" / other).mkdir(parents=True)
    with pytest.raises(DataError, match="missing: expected") as caught:
        Sroie(tmp_path, on_error="skip").load()
    assert caught.value.path == tmp_path / "train" / name


def test_empty_folders_are_an_error(tmp_path):
    for name in ("img", "box", "entities"):
        (tmp_path / "test" / name).mkdir(parents=True)
    with pytest.raises(DataError, match="no receipts"):
        Sroie(tmp_path).load()


# ---------------------------------------------------------------------------------------- labels


@pytest.mark.parametrize(
    ("label", "lines", "value", "found"),
    [
        # company: a run of words, over lines, with other spacing and punctuation
        ("company", ["HI", "A.B.C. MOTOR - SDN.BHD."], "ABC Motor (Sdn Bhd)",
         "A.B.C. MOTOR - SDN.BHD."),
        ("company", ["NORTHERN SOUTHERN", "PAPER SDN. BHD"], "NORTHERN SOUTHERN PAPER SDN BHD",
         "NORTHERN SOUTHERN PAPER SDN. BHD"),
        ("company", ["BEE TEA (M) SDN.BHD.(12345-X)"], "BEE TEA (M) SDN.BHD.",
         "BEE TEA (M) SDN.BHD.(12345-X)"),
        ("company", ["CITY MARTIN", "CITY MART"], "CITY MART", "CITY MART"),
        ("company", ["CITY MARTIN"], "CITY MART", ""),
        ("company", ["TEA BEE"], "TEE BEE", ""),
        # date: alone, inside a token, before a time, as words
        ("date", ["DATE:25/12/2018", "PAID 25/12/2018"], "25/12/2018", "25/12/2018"),
        ("date", ["DATE:25/12/2018"], "25/12/2018", "DATE:25/12/2018"),
        ("date", ["25/12/2018 8:13:39PM"], "25/12/2018", "25/12/2018"),
        ("date", ["25/12/2018-8:13:39PM"], "25/12/2018", "25/12/2018-8:13:39PM"),
        ("date", ["ON 28 MAR", "18"], "28-mar-18", "28 MAR 18"),
        ("date", ["NO 25122018"], "25/12/2018", "25122018"),
        ("date", ["11/2/2017", "1/12/2017"], "1/12/2017", "1/12/2017"),
        ("date", ["125/12/2018", "25/12/20189"], "25/12/2018", ""),
        # total: the decimal point counts, the currency does not
        ("total", ["TOTAL 100"], "1.00", ""),
        ("total", ["TOTAL 1.00"], "100", ""),
        ("total", ["TOTAL 11.00", "1.005"], "1.00", ""),
        ("total", ["TOTAL RM33.90"], "33.90", "RM33.90"),
        ("total", ["TOTAL RM 33.90"], "33.90", "33.90"),
        ("total", ["TOTAL RM 33.90"], "RM33.90", "RM 33.90"),
        ("total", ["TOTAL 1,234.50"], "RM1234.50", "1,234.50"),
        ("total", ["TOTAL 8,20"], "8.20", "8,20"),
        ("total", ["TOTAL -8.20"], "8.20", ""),
        ("total", ["TOTAL -8.20"], "-8.20", "-8.20"),
        ("total", ["TOTAL 8.20"], "none", ""),
    ],
)  # fmt: skip
def test_labels(label, lines, value, found):
    assert labelled(page(*lines), label, value) == found.split()


@pytest.mark.parametrize(
    ("lines", "place"),
    [
        (["5.00", "TOTAL", "5.00", "CASH", "5.00"], 2),  # after the line that says TOTAL
        ([("TOTAL", "1"), ("5.00", "TOTAL"), ("CASH", "5.00")], 2),  # before it, in its row
        ([("TOTAL QTY", "5.00"), ("TOTAL", "5.00"), ("CASH", "5.00")], 4),  # the last such row
        ([("SUBTOTAL", "5.00"), "Total :", "5.00"], 4),
        ([("SUB TOTAL", "5.00"), ("GRAND TOTAL:", "5.00")], 5),
        (["5.00", "AMOUNT DUE", "5.00"], 3),  # no line says TOTAL: the last
    ],
)
def test_of_several_amounts_the_one_by_total_is_labelled(lines, place):
    (entity,) = label_words(page(*lines), {"total": "5.00"})
    assert entity.words == (place,)


@pytest.mark.parametrize(
    ("lines", "value", "found"),
    [
        # whole consecutive lines, cleaned and joined
        (["SHOP", "NO.7&9,JALAN 3/2,", "45600 KOTA.", "TEL 1"], "NO. 7 & 9, JALAN 3/2 45600 KOTA",
         "NO.7&9,JALAN 3/2, 45600 KOTA."),
        # the run that covers most, not the first that begins
        (["LOT 13, JALAN", "SHOP", "LOT 13, JALAN UTAMA", "12300 BARU"],
         "LOT 13, JALAN UTAMA, 12300 BARU", "LOT 13, JALAN UTAMA 12300 BARU"),
        # in order
        (["12300 BARU", "LOT 13, JALAN UTAMA"], "LOT 13, JALAN UTAMA, 12300 BARU",
         "LOT 13, JALAN UTAMA"),
        # a line that holds more than the address is not labelled
        (["LOT 13, JALAN UTAMA", "12300 BARU TEL 1"], "LOT 13, JALAN UTAMA, 12300 BARU",
         "LOT 13, JALAN UTAMA"),
        # half of the address or less is too little
        (["12300 BARU TEL 1", "LOT 13"], "LOT 13, JALAN UTAMA, 12300 BARU", ""),
        # a line of signs joins, and neither begins nor ends the run
        (["---", "LOT 13", "***", "JALAN UTAMA", "---"], "LOT 13 JALAN UTAMA",
         "LOT 13 *** JALAN UTAMA"),
    ],
)  # fmt: skip
def test_address(lines, value, found):
    assert labelled(page(*lines), "address", value) == found.split()


def test_a_word_belongs_to_one_entity_the_company_first():
    words = page("UTAMA MART", "LOT 1 UTAMA", "UTAMA MART", "12300 BARU")
    values = {"company": "UTAMA MART", "address": "UTAMA MART, LOT 1 UTAMA, UTAMA MART, 12300 BARU"}
    company, address = label_words(words, values)
    assert (company.label, company.words) == ("company", (0, 1))
    assert (address.label, address.words) == ("address", (2, 3, 4, 5, 6, 7, 8))


def test_entities_come_in_the_order_of_the_labels():
    words = page("TOTAL 5.00", "1/2/2018", "LOT 1 UTAMA", "SHOP")
    values = {"total": "5.00", "company": "SHOP", "address": "LOT 1 UTAMA", "date": "1/2/2018"}
    assert [entity.label for entity in label_words(words, values)] == list(LABELS)


def test_the_path_type_does_not_matter(tmp_path):
    write_receipt(tmp_path, "X1")
    assert only(str(tmp_path)) == only(Path(tmp_path))
