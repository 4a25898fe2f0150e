"""Documents that a run keeps, and the adversary's copies of their pages."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from PIL import Image

from fedpriv.data.document import Document
from fedpriv.data.documents_on_disk import keep_documents, kept_documents
from fedpriv.runtime.run_files import Damaged
from fedpriv.runtime.run_folder import RunFolder

SIZE = (40, 30)


@pytest.fixture
def kept(tmp_path):
    """A run folder and what it says of ten documents."""
    rng = np.random.default_rng(0)
    folder = RunFolder.made(tmp_path / "run")
    pages = [Image.fromarray(rng.integers(0, 255, (30, 40, 3), np.uint8)) for _ in range(10)]
    files = [tmp_path / f"{i}.png" for i in range(10)]
    for page, file in zip(pages, files, strict=True):
        page.save(file)
    documents = [Document(f"d{i}", "p", file, SIZE, (), client="x") for i, file in enumerate(files)]
    with folder.writing("run", {}):
        return folder, keep_documents(folder, "pages", documents), pages


def test_attacks_that_start_together_share_their_copies(kept, tmp_path):
    """Each copies what is missing; none takes the half-written file of another for its own."""
    folder, said, pages = kept
    for attempt in range(5):
        own = tmp_path / f"own-{attempt}"
        own.mkdir()
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda _: kept_documents(said, folder, "pages", own), range(8)))  # noqa: B023
        assert all(one == found[0] for one in found)
        assert [np.asarray(d.image()).tolist() for d in found[0]] == [
            np.asarray(page).tolist() for page in pages
        ]
        assert len(list(own.iterdir())) == len(pages)  # and no half is left


def test_who_holds_a_page_is_not_kept(kept):
    _, said, _ = kept
    assert not any("client" in values for values in said)


def test_a_page_that_is_gone_is_named(kept, tmp_path):
    folder, said, _ = kept
    (folder.path / "pages" / f"{said[3]['page']}.png").unlink()
    with pytest.raises(Damaged, match=f"has no pages/{said[3]['page']}.png"):
        kept_documents(said, folder, "pages", tmp_path)
