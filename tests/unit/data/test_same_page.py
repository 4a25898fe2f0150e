"""Pages that are there twice are found, whatever file, format or resolution they came in."""

import dataclasses

import numpy as np
import pytest
from folder_pages import picture
from PIL import Image

from fedpriv.cli.main import main
from fedpriv.data.document import Document, DocumentSet, Word
from fedpriv.data.folder.reader import Folder
from fedpriv.data.generated.invoices import Invoices
from fedpriv.data.partition import HoldOut, Iid
from fedpriv.data.same_page import told, twins, warning
from fedpriv.federation.dataset import DocumentData
from fedpriv.models.layoutlmv3 import layoutlmv3

WORDS = ["ACME", "Ltd", "Invoice", "4711", "of", "3", "May", "2024", "Total", "due", "12.50"]


def page(name, shown=WORDS, size=(300, 200), words=True, provider="", part_of=""):
    lines = [" ".join(shown[at : at + 3]) for at in range(0, len(shown), 3)]
    pixels = np.array(picture(lines, size))
    width, height = (side / 20 for side in size)
    placed = tuple(
        Word(text, (k % 3 * width, k * height, (k % 3 + 1) * width, (k + 1) * height), k)
        for k, text in enumerate(shown)
    )
    read = placed if words else ()
    return Document(name, provider or name, pixels, size, read, part_of=part_of)


def groups(*documents):
    return told(documents, twins(documents))


def as_jpeg(document, tmp_path, name, factor=1.0):
    path = tmp_path / f"{name}.jpg"
    size = tuple(round(side * factor) for side in document.size)
    document.image().resize(size).save(path, quality=85)
    words = tuple(
        Word(word.text, tuple(factor * at for at in word.box), word.segment)
        for word in document.words
    )
    return dataclasses.replace(document, id=name, page=path, size=size, words=words)


@pytest.mark.parametrize("shown", [WORDS, WORDS[:4]], ids=["many words", "few words"])
@pytest.mark.parametrize("factor", [1.0, 0.8, 2.0])
def test_another_format_or_resolution_is_the_same_page(tmp_path, shown, factor):
    one = page("a", shown)
    other = as_jpeg(one, tmp_path, "b", factor)
    assert groups(one, page("c", ["Other", *shown[1:]]), other) == ["a = b"]


def test_the_same_pixels_are_the_same_page_whatever_was_read_there(tmp_path):
    Image.fromarray(page("a").page).save(tmp_path / "a.png")
    (tmp_path / "b.png").write_bytes((tmp_path / "a.png").read_bytes())
    unread = [page("a", words=False), page("b", words=False)]
    files = [dataclasses.replace(one, page=tmp_path / f"{one.id}.png") for one in unread]
    assert groups(*unread) == groups(*files) == ["a = b"]


def test_other_pages_are_not_the_same():
    few = ["Total", "5.00"]
    other = dataclasses.replace(page("b", few), page=np.array(picture(("#" * 20,) * 4)))
    assert groups(page("a", few), other) == []  # the same few words, another picture
    blank = np.full((200, 300, 3), 255, np.uint8)
    blanks = [dataclasses.replace(page(n, words=False), page=blank) for n in "ab"]
    assert groups(*blanks) == []
    assert groups(page("a", part_of="x"), page("b", part_of="x")) == []  # of one document
    invoices = Invoices(providers=20, documents_per_provider=5).load().documents
    assert twins(invoices) == []


def test_the_second_pair_of_few_words_is_found_too():
    few = ["Total", "5.00"]
    other = np.array(picture(("#" * 20,) * 4))
    pair = [dataclasses.replace(page(name, few), page=other) for name in "bc"]
    assert groups(page("a", few), *pair) == ["b = c"]


@dataclasses.dataclass(frozen=True)
class Given:
    documents: tuple

    def load(self):
        return DocumentSet("given", self.documents, ())


def test_a_run_says_what_does_not_hold_for_them(tmp_path, capsys):
    one = [page(f"a{n}", [f"N{n}", *WORDS], provider=f"P{n % 3}") for n in range(6)]
    two = [page(f"b{n}", [f"N{n}", *WORDS], provider=f"P{n % 2}") for n in range(4)]
    line = warning([*one, *two], trained=range(6), held=range(6, 10))
    assert line.startswith(
        "4 pages are there twice (a0 = b0, a1 = b1, a2 = b2, …): 4 of 4 held-out pages are trained "
        "on too, and 2 are under two providers."
    )
    assert warning(one, range(3), range(3, 6)) == ""


def test_a_folder_with_copies_is_told_by_data_check_and_by_a_run(tmp_path, capsys):
    root = tmp_path / "scans"
    root.mkdir()
    for n in range(4):
        picture((f"ACME {n}", "Total 5.00")).save(root / f"d{n}.png")
    (root / "copy.png").write_bytes((root / "d0.png").read_bytes())
    assert main(["data", "check", str(root), "data.source.words=none", "--pages", "0"]) == 0
    assert "pages that are there twice:\n             copy.png = d0.png" in capsys.readouterr().out
    data = DocumentData(Folder(root, words="none"), Iid(2), HoldOut(fraction=0.2), cache="off")
    with pytest.raises(ValueError, match="no entities"):
        data.bind(layoutlmv3, seed=0)
    assert "1 page is there twice (copy.png = d0.png)" in capsys.readouterr().err
