"""Data sets of the `datasets` library become documents, whatever their columns are called."""

import io
import json
import pickle
import shutil
import tarfile

import numpy as np
import PIL.Image
import pytest
import yaml
from datasets import ClassLabel, Dataset, Features, Image, List, Value
from hub_sets import (
    ENTITIES,
    PIXELS,
    SIZE,
    TAGS,
    THOUSANDTHS,
    WORDS,
    asked,
    cord,
    image,
    png,
    save,
    split,
    tagged,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpriv.cli.main import main
from fedpriv.data.digests import document_digest
from fedpriv.data.document import DataError, DataErrors
from fedpriv.data.folder import tesseract
from fedpriv.data.hub import page
from fedpriv.data.hub.boxes import UNITS, fitting, inked, likely, whole_of
from fedpriv.data.hub.columns import Columns
from fedpriv.data.hub.reader import HubData
from fedpriv.data.hub.row import entities_of
from fedpriv.data.partition import ByClient

HAS_TESSERACT = pytest.mark.skipif(not shutil.which("tesseract"), reason="needs Tesseract")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDPRIV_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    page._text.cache_clear()
    page._pixels.cache_clear()


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "set"


def entities(document):
    return [
        (one.label, tuple(document.words[word].text for word in one.words))
        for one in document.entities
    ]


def load(data, folder, **settings):
    return HubData(save(data, folder), **settings).load()


# --------------------------------------------------------------------------- forms on the hub


def check_pages(found, count=3):
    assert len(found.documents) == count
    for document in found.documents:
        assert [word.text for word in document.words] == list(WORDS)
        assert entities(document) == ENTITIES
        boxes = np.array([word.box for word in document.words])
        assert np.abs(boxes - np.array(PIXELS)).max() <= 0.6
        assert document.size == SIZE
        assert document.image().size == SIZE


def test_funsd_and_its_kind_need_nothing_said(folder):
    found = load(split(tagged(), tagged(first=3)), folder)
    check_pages(found, 6)
    assert [one.id for one in found.documents] == [
        "train/0", "train/1", "train/2", "test/0", "test/1", "test/2",
    ]  # fmt: skip
    assert [one.split for one in found.documents] == ["train"] * 3 + ["test"] * 3
    assert found.labels == ("COMPANY", "TOTAL")
    assert len({one.provider for one in found.documents}) == 6
    assert found.remarks["boxes"] == ("of 0 to 1000, told by what fits; 6 of 6 pages fit",)
    assert "words: words (guessed)" in found.remarks["columns"]


def test_other_names_of_the_same_columns(folder):
    check_pages(load(tagged(words="tokens"), folder))


def test_cord_as_it_lies_on_the_hub(folder):
    found = load(cord(), folder)
    check_pages(found, 2)
    assert found.labels == ("COMPANY", "TOTAL")


def test_receipts_with_the_paths_of_their_images(folder, tmp_path):
    """SROIE's usual form has `image_path`, and an image that nobody has is told at once."""
    data = tagged().remove_columns("image").add_column("image_path", ["a.png", "b.png", "c.png"])
    path = save(data, folder)
    with pytest.raises(DataError, match=r"image_path of .*: .*Put the images into the data set"):
        HubData(path).load()
    blank = HubData(path, images="blank").load()
    assert [word.text for word in blank.documents[0].words] == list(WORDS)
    assert blank.documents[0].pixels().min() == 255
    for number, name in enumerate("abc"):
        (folder / f"{name}.png").write_bytes(png(number))
    check_pages(HubData(path).load())


@HAS_TESSERACT
def test_questions_on_one_page_are_one_document(folder):
    tesseract.version.cache_clear()
    found = load(asked(), folder)
    first, second = found.documents
    assert [(q.text, q.answers) for q in first.questions] == [
        ("Who?", ("ACME Ltd", "ACME")), ("How much?", ("0",)),
    ]  # fmt: skip
    assert [(q.text, q.answers) for q in second.questions] == [("How much?", ("1",))]
    assert (first.provider, second.provider) == ("aaaa", "bbbb")
    # There are no words, so Tesseract reads them.
    assert [word.text for word in second.words] == ["ACME", "Ltd", "Total", "1"]
    assert first.page.origin() == "ocr"


def test_questions_by_language_and_answers_that_are_not_there(folder):
    data = Dataset.from_dict(
        {
            "query": [
                {"de": "Wer?", "en": "Who?"}, {"de": "Wer?", "en": None}, {"de": None, "en": " "},
            ],
            "answer": ["ACME", None, "no question"],
            "image": [image(0), image(1), image(2)],
        },
        Features({"query": {"de": Value("string"), "en": Value("string")},
                  "answer": Value("string"), "image": Image()}),
    )  # fmt: skip
    found = load(data, folder, words="none")
    assert [[(q.text, q.answers) for q in one.questions] for one in found.documents] == [
        [("Who?", ("ACME",))], [("Wer?", ())], [],
    ]  # fmt: skip
    assert found.documents[0].words == ()


def test_a_folder_of_parquet(folder):
    folder.mkdir()
    tagged().to_parquet(str(folder / "train.parquet"))
    found = HubData(str(folder)).load()
    check_pages(found)
    assert [one.split for one in found.documents] == ["train"] * 3


@pytest.mark.parametrize(
    "place",
    [
        "hf://datasets/x/y/z.csv",
        "https://example.org/z.csv",
        "../other/z.csv",
        "/etc/passwd",
        [{"split": "train", "path": ["train.parquet", "s3://x/y.parquet"]}],
    ],
)
@pytest.mark.parametrize(
    ("name", "around"),
    [
        ("README.md", "---\n{}---\n"),
        ("README.md", "\ufeff---\n{}---\n"),  # a byte order mark
        ("README.md", "\r\n\r\n---\r\n{}---\r\n"),
        (".huggingface.yaml", "{}"),
        (".huggingface.yaml", "\ufeff{}"),
    ],
)
def test_a_card_that_names_files_elsewhere_is_refused_and_nobody_is_asked(
    folder, place, name, around, monkeypatch
):
    def asked(*_, **__):
        raise AssertionError("the network")

    monkeypatch.setattr("socket.getaddrinfo", asked)
    monkeypatch.setattr("socket.socket.connect", asked)
    folder.mkdir()
    tagged().to_parquet(str(folder / "train.parquet"))
    head = yaml.safe_dump({"configs": [{"config_name": "default", "data_files": place}]})
    (folder / name).write_text(around.format(head), "utf-8")
    with pytest.raises(DataError, match="lies outside of the folder; nothing was read"):
        HubData(str(folder)).load()


def test_a_readme_may_name_files_of_the_folder(folder):
    (folder / "data").mkdir(parents=True)
    tagged().to_parquet(str(folder / "data/some.parquet"))
    head = {"configs": [{"config_name": "default", "data_files": "data/*.parquet"}]}
    (folder / "README.md").write_text(f"---\n{yaml.safe_dump(head)}---\n")
    check_pages(HubData(str(folder)).load())


def test_a_folder_of_folders_too_deep_is_refused_in_words(folder, monkeypatch):
    folder.mkdir()

    def deep(*_, **__):
        raise RecursionError("maximum recursion depth exceeded")

    monkeypatch.setattr("datasets.load_dataset_builder", deep)
    with pytest.raises(DataError, match="folders lie too deep in it: name that of the data set"):
        HubData(str(folder)).load()


def test_what_datasets_would_unpickle_is_refused(folder, monkeypatch):
    folder.mkdir()
    with tarfile.open(folder / "train.tar", "w") as archive:
        for name in ("0.pth", "1.pyd"):
            data = pickle.dumps([1])
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    monkeypatch.setattr("torch.load", None)
    monkeypatch.setattr("pickle.load", None)
    with pytest.raises(DataError, match="datasets reads it as webdataset: expected one of arrow,"):
        HubData(str(folder)).load()


# -------------------------------------------------------------------------- boxes and their unit


@pytest.mark.parametrize(
    ("boxes", "unit"),
    [
        (PIXELS, "pixels"),
        (THOUSANDTHS, "0 to 1000"),
        (tuple(tuple(side / 1000 for side in box) for box in THOUSANDTHS), "0 to 1,"),
        (tuple((x, y, r, y, r, b, x, b) for x, y, r, b in PIXELS), "pixels"),
    ],
)
def test_the_unit_of_boxes_is_told_by_what_fits(boxes, unit, folder):
    found = load(tagged(boxes), folder)
    check_pages(found)
    assert unit in found.remarks["boxes"][0]


def test_the_unit_can_be_said(folder):
    path = save(tagged(THOUSANDTHS), folder)
    with pytest.raises(DataErrors, match=r"rows\[0\]: bboxes\[2\]: the box .* does not fit"):
        HubData(path, boxes="pixel").load()
    check_pages(HubData(path, boxes="thousandth").load())


@given(
    st.lists(
        st.tuples(*[st.floats(0, 0.9)] * 2, *[st.floats(0.02, 0.1)] * 2),
        min_size=1, max_size=20,
    ),
    st.tuples(st.integers(200, 4000), st.integers(200, 4000)),
    st.sampled_from(UNITS),
)  # fmt: skip
def test_pages_whose_text_reaches_the_corner_tell_their_unit(places, size, unit):
    shares = [(x, y, x + w, y + h) for x, y, w, h in places] + [(0.9, 0.9, 1.0, 1.0)]
    width, height = whole_of(unit, size)
    boxes = [(a * width, b * height, c * width, d * height) for a, b, c, d in shares]
    found = fitting(boxes, size)
    assert found[unit] == pytest.approx(1.0, abs=1e-6)
    chosen = likely([found])[0]
    # A page of about 1000 pixels reads nearly the same in both units.
    near = all(abs(side - 1000) <= 20 for side in size)
    assert chosen == unit or (near and {chosen, unit} == {"pixel", "thousandth"})


@settings(max_examples=30)
@given(
    st.lists(
        st.tuples(st.integers(0, 8), st.integers(0, 14), st.floats(0.03, 0.09)),
        min_size=3, max_size=20, unique_by=lambda place: place[:2],
    ),
    st.tuples(st.integers(300, 2500), st.integers(300, 2500)),
    st.sampled_from(["thousandth", "pixel"]),
    st.booleans(),
)  # fmt: skip
def test_the_ink_under_the_boxes_tells_their_unit(places, size, unit, dark):
    """Words in any part of the page, with a line and a logo that no box is of."""
    width, height = whole_of(unit, size)
    shares = [(x / 10 + 0.01, y / 16, x / 10 + 0.01 + w, y / 16 + 0.03) for x, y, w in places]
    boxes = [(a * width, b * height, c * width, d * height) for a, b, c, d in shares]
    page = np.full((size[1], size[0], 3), 20 if dark else 250, np.uint8)
    page[-3:] = 90  # a line at the bottom
    for a, b, c, d in shares:
        page[int(b * size[1]) : int(d * size[1]), int(a * size[0]) : int(c * size[0])] = 128
    found = inked(boxes, page, fitting(boxes, size))
    near = all(abs(side - 1000) <= 60 for side in size)
    assert near or found[unit] == max(found.values())


def half_filled(folder, unit="thousandth", ink=True, count=3, size=(827, 1100)):
    """Pages of which the text fills the left half, as of a receipt on a scanner's glass."""
    places = ((50, 40, 200, 60), (250, 40, 480, 60), (50, 880, 200, 900), (300, 880, 480, 900))
    to = np.array([*size, *size]) / 1000
    pages = []
    for number in range(count):
        page = np.full((size[1], size[0], 3), 255 - number, np.uint8)
        for left, top, right, bottom in (places * to).astype(int) if ink else ():
            page[top:bottom, left:right] = 0
        content = io.BytesIO()
        PIL.Image.fromarray(page).save(content, "PNG")
        pages.append({"bytes": content.getvalue(), "path": None})
    boxes = places if unit == "thousandth" else tuple(tuple(row) for row in (places * to).tolist())
    data = tagged(boxes, count=count).remove_columns("image").add_column("image", pages)
    return save(data.cast_column("image", Image()), folder)


@pytest.mark.parametrize("unit", ["thousandth", "pixel"])
def test_where_several_units_fit_the_ink_decides(unit, folder, capsys):
    """Of a public bug report: receipts that fill the left half of the glass."""
    found = HubData(half_filled(folder, unit)).load()
    named = {"thousandth": "of 0 to 1000", "pixel": "in pixels"}[unit]
    told = f"{named}, told by the ink under them (of 3 pages); 3 of 3 pages fit"
    assert found.remarks["boxes"] == (told,)
    assert f"boxes are {told}" in capsys.readouterr().err  # before a run, too
    boxes = [word.box for word in found.documents[0].words]
    assert np.allclose(boxes[3], (300 * 0.827, 880 * 1.1, 480 * 0.827, 900 * 1.1), atol=1.5)


def test_where_nothing_tells_the_unit_the_user_is_asked(folder):
    path = half_filled(folder, ink=False)
    with pytest.raises(DataError, match=r"data\.source\.boxes: the boxes fit .* say \w+ \(.* or "):
        HubData(path).load()
    assert HubData(path, boxes="thousandth").load().remarks["boxes"] == (
        "of 0 to 1000, as given; 3 of 3 pages fit",
    )


def test_one_bad_page_does_not_change_the_unit_of_all(folder):
    bad = [[[0, 0, 1000, 5000]] * 4, *[[list(box) for box in THOUSANDTHS]] * 4]
    data = tagged(count=5).remove_columns("bboxes").add_column("bboxes", bad)
    found = load(data, folder, on_error="skip")
    check_pages(found, 4)
    assert [str(one) for one in found.skipped] == [
        f"{folder}: rows[0]: bboxes[0]: the box 0, 0, 1000, 5000 does not fit the page of 600 × "
        "400 pixels: 0 to 2000 is not within the page's 0 to 400 pixels"
    ]


# -------------------------------------------------------------------------------------- tags


def test_tags_of_every_scheme():
    words = {
        "BIO": ["B-a", "I-a", "O", "B-a", "B-a", "I-b"],
        "IO": ["I-a", "I-a", "O", "I-a", "B-a", "I-b"],
        "BIOES": ["B-a", "E-a", "O", "S-a", "S-a", "S-b"],
    }
    for tags in words.values():
        assert [(one.label, one.words) for one in entities_of(tags)] == [
            ("a", (0, 1)), ("a", (3,)), ("a", (4,)), ("b", (5,)),
        ]  # fmt: skip
    plain = entities_of(["a", "a", "other", "a", "b"])
    assert [(one.label, one.words) for one in plain] == [("a", (0, 1)), ("a", (3,)), ("b", (4,))]


@given(st.lists(st.sampled_from([*TAGS, "a", "S-x", "E-x"]), max_size=30))
def test_each_word_is_in_one_entity_or_in_none(tags):
    found = entities_of(tags)
    words = [word for one in found for word in one.words]
    assert words == sorted(set(words)) == [n for n, tag in enumerate(tags) if tag != "O"]
    for one in found:
        assert all(
            tags[word].removeprefix("B-")[-len(one.label) :] == one.label for word in one.words
        )


# ---------------------------------------------------------------------------------- providers


def test_what_tells_the_provider(folder):
    companies = ["ACME Ltd", "Acme Ltd.", "Globex"]
    path = save(tagged(company=(Value("string"), companies)), folder)
    found = HubData(path).load()
    assert [one.provider for one in found.documents] == companies
    assert len(found.remarks["providers that look alike"]) == 1
    assert found.remarks["providers are told by"] == ("the column company, guessed by its name",)
    [asked_for, *_] = found.documents[2].questions
    assert asked_for.answers == ("Globex",)
    pages = HubData(path, provider="page").load().documents
    assert [one.provider for one in pages] == ["0", "1", "2"]
    labels = HubData(path, provider="COMPANY").load().documents
    assert {one.provider for one in labels} == {"ACME Ltd"}
    with pytest.raises(DataErrors, match=r"rows\[0\]: no DATE, which is to be its provider"):
        HubData(path, provider="DATE").load()


def test_a_provider_may_be_a_class(folder):
    feature = ClassLabel(names=["north", "south"])
    found = load(tagged(vendor=(feature, [1, 0, 1])), folder)
    assert [one.provider for one in found.documents] == ["south", "north", "south"]


def test_a_column_names_the_client_that_holds_a_page(folder):
    rows = tagged(
        vendor=(Value("string"), ["ACME", "Globex", "ACME"]),
        company=(ClassLabel(names=["north", "south"]), [1, 0, 1]),
    )
    path = save(rows, folder)
    found = HubData(path, client="company").load()
    assert [one.client for one in found.documents] == ["south", "north", "south"]
    # What names the client is not taken for the provider too.
    assert [one.provider for one in found.documents] == ["ACME", "Globex", "ACME"]
    assert {one.client for one in HubData(path).load().documents} == {""}
    dealt = ByClient().deal(found.documents, 0)
    assert [[found.documents[i].client for i in at] for at in dealt] == [["north"], ["south"] * 2]
    with pytest.raises(DataError, match=r"data\.source\.client: no column 'branch'; there are "):
        HubData(path, client="branch").load()
    empty = save(tagged(branch=(Value("string"), ["x", " ", "y"])), folder)
    with pytest.raises(DataErrors, match=r"rows\[1\]: no branch, which is to be its client"):
        HubData(empty, client="branch").load()


def test_one_page_is_not_at_two_clients(folder):
    rows = asked()  # two questions are about the first page
    branches = [f"b{number}" for number in range(len(rows))]
    path = save(rows.add_column("branch", branches), folder)
    with pytest.raises(DataErrors, match="one page at two clients, 'b0' and 'b"):
        HubData(path, client="branch", words="none").load()


def test_the_same_image_is_the_same_document(folder):
    found = load(split(tagged(), tagged(count=1)), folder)
    assert [one.whole for one in found.documents] == ["train/0", "train/1", "train/2", "train/0"]
    assert found.remarks["pages with the same image"] == ("test/0 has the image of train/0",)


# ---------------------------------------------------------------------------------- laziness


def test_a_page_is_small_and_the_same_elsewhere(folder, tmp_path):
    path = save(tagged(), folder)
    first = HubData(path).load().documents[0]
    assert len(pickle.dumps(first)) < 2500
    assert pickle.loads(pickle.dumps(first)) == first  # noqa: S301 - as workers get it
    shutil.copytree(folder, tmp_path / "moved")
    moved = HubData(str(tmp_path / "moved")).load().documents[0]
    assert document_digest(moved) == document_digest(first)
    other = HubData(path, columns=Columns(tags="")).load().documents[0]
    assert document_digest(other) != document_digest(first)


def test_the_folder_may_be_named_from_where_one_stands(folder, monkeypatch):
    save(tagged(), folder)
    monkeypatch.chdir(folder.parent)
    found = HubData(folder.name).load()
    monkeypatch.chdir("/")  # pages are found from elsewhere, too
    check_pages(found)


def test_what_was_seen_is_not_looked_at_again(folder, monkeypatch):
    path = save(tagged(), folder)
    HubData(path).load()
    monkeypatch.setattr("fedpriv.data.hub.reader.apart", None)
    check_pages(HubData(path).load())
    # Another data set in the same place is another one.
    shutil.rmtree(folder)
    save(tagged(count=4), folder)
    with pytest.raises(AttributeError, match="'NoneType' object has no attribute 'call'"):
        HubData(path).load()


# ----------------------------------------------------------------------------------- bad input


def test_all_bad_rows_are_told_at_once(folder):
    """Each row has a fault of its own."""
    rows = {
        "id": ["a", "a", "c", "d", "e", "f"],
        "words": [list(WORDS)] * 4 + [["one"], list(WORDS)],
        "bboxes": [[list(box) for box in PIXELS]] * 3 + [[[1, 2, 3]] * 4] + [[]] + [
            [[0, 0, 900, 10]] * 4
        ],
        "ner_tags": [[1, 2, 0, 3]] * 4 + [[0], [0] * 4],
        "image": [image(0), image(1), {"bytes": b"", "path": None}, image(3), image(4), image(5)],
    }  # fmt: skip
    data = Dataset.from_dict(rows, tagged().features)
    with pytest.raises(DataErrors) as caught:
        load(data, folder)
    assert [one.why for one in caught.value.errors] == [
        "rows[2]: not a picture that Pillow can read: it is empty",
        "rows[3]: bboxes[0]: expected 4 finite numbers, found [1, 2, 3]",
        "rows[4]: expected as many words as boxes and tags; found 1 in words, 0 in bboxes, "
        "1 in ner_tags",
        "rows[5]: bboxes[0]: the box 0, 0, 900, 10 does not fit the page of 600 × 400 pixels: "
        "0 to 900 is not within the page's 0 to 600 pixels",
        "rows[1]: its identifier 'a' is that of rows[0], too",
    ]
    assert all(str(one).startswith(str(folder)) for one in caught.value.errors)
    kept = HubData(str(folder), on_error="skip").load()
    assert [one.id for one in kept.documents] == ["a"]
    assert len(kept.skipped) == 5


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"columns": Columns(words="tokns")}, "columns.words='tokns': no such column"),
        ({"columns": Columns(words="wrds")}, "did you mean 'words'"),
        ({"columns": Columns(boxes="words")}, "columns.boxes='words' holds .*: expected lists of"),
        ({"columns": Columns(boxes="")}, "no column their boxes"),
        ({"columns": Columns(image="")}, "no column of images; .*data.source.images=blank"),
        ({"splits": ("test",)}, r"data.source.splits: no rows of \['test'\]"),
        ({"images": "blank", "columns": Columns(words="")}, "white pages without words"),
    ],
)
def test_settings_that_cannot_be_are_told(folder, settings, says):
    with pytest.raises(DataError, match=says):
        load(tagged(), folder, **settings)


@pytest.mark.parametrize("setting", ["boxes", "images", "words", "layout"])
def test_choices_are_named(setting):
    with pytest.raises(ValueError, match=f"^{setting}='no': expected one of "):
        HubData("any", **{setting: "no"})


def test_what_is_no_data_set(folder, tmp_path):
    with pytest.raises(DataError, match="expected a folder, or a name on the hub"):
        HubData(str(tmp_path / "none")).load()
    with pytest.raises(DataError, match="there is no folder owner/none"):
        HubData("owner/none").load()
    folder.mkdir()
    with pytest.raises(DataError, match="datasets cannot read it"):
        HubData(str(folder)).load()
    with pytest.raises(DataError, match=r"cannot read it|no rows"):
        load(tagged(count=0), tmp_path / "empty")


def test_nothing_outside_of_the_folder_is_opened(folder, tmp_path):
    (tmp_path / "secret.png").write_bytes(png())
    outside = {"bytes": None, "path": str(tmp_path / "secret.png")}
    features = Features({"image": Image(), "words": List(Value("string"))})
    data = Dataset.from_dict({"image": [outside], "words": [["x"]]}, features)
    # save_to_disk would put the image into the folder, so its path is put back.
    kept = {"image": {"path": Value("string"), "bytes": Value("binary")}}
    path = save(Dataset.from_dict({"image": [outside]}, Features(kept)), folder)
    info = folder / "dataset_info.json"
    content = json.loads(info.read_text())
    content["features"]["image"] = {"_type": "Image"}
    info.write_text(json.dumps(content))
    del data
    with pytest.raises(DataError):
        HubData(path, words="none").load()
    for name, link in {"data": "../secret.png", "/etc/passwd": None}.items():
        state = folder / "state.json"
        content = json.loads(state.read_text())
        content["_data_files"] = [{"filename": link or name}]
        state.write_text(json.dumps(content))
        with pytest.raises(DataError, match=r"leads out|expected a name in this folder"):
            HubData(path).load()


def test_a_path_of_an_image_that_leads_out_is_refused(folder, tmp_path):
    (tmp_path / "secret.png").write_bytes(png())
    for name in (str(tmp_path / "secret.png"), "../secret.png"):
        data = tagged(count=1).remove_columns("image").add_column("image_path", [name])
        with pytest.raises(DataError, match=r"outside of the data set|leads|\.\."):
            load(data, folder)
        shutil.rmtree(folder)


# ------------------------------------------------------------------------------- data check


def test_data_check_recognises_a_saved_data_set(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save(split(tagged(), tagged(first=3)), folder)
    assert main(["data", "check", "set", "--json", "--out", "sheet"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["documents"], told["words_from"]) == (6, {"the data set": 6})
    assert (tmp_path / "sheet" / "contact-sheet.png").is_file()
    assert main(["data", "check", "set", "data.source.provider=COMPANY", "--pages", "0"]) == 0
    assert "ACME Ltd" in capsys.readouterr().out
    assert main(["data", "check", "hf", "data.source.path=set", "--pages", "0"]) == 0
