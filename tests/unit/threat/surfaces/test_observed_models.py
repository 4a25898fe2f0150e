"""A curious server over every model that ships: its notes, and an attack scored on them."""

import dataclasses
from functools import partial

import pytest
from attacked import attacked
from image_text_families import llava
from model_checks import LABELS, SMALL

from fedpriv.attacks.text.attack import TextRecovery
from fedpriv.clients.fedsgd import BatchGradient
from fedpriv.data.document import DocumentSet
from fedpriv.data.partition import HoldOut, Iid
from fedpriv.federation.dataset import DocumentData
from fedpriv.federation.loop import Federation
from fedpriv.models.donut import donut
from fedpriv.models.encoders.backbones import bert, bros, layoutlm
from fedpriv.models.image_text import image_text
from fedpriv.models.layoutlmv3 import layoutlmv3
from fedpriv.models.pix2struct import pix2struct
from fedpriv.models.roberta import roberta
from fedpriv.models.vt5 import vt5
from fedpriv.runtime.run_folder import RunFolder
from fedpriv.strategies.fedsgd import FedSGD
from fedpriv.threat.surfaces.batches import TEXTS, Assumed, load_known
from fedpriv.threat.surfaces.server import KeepTranscript
from fedpriv.threat.truth import TruthStore

KEY = (1, 0)
TINY = {"size": "tiny", "pretrained": None}
WITH_PIXELS = {
    "layoutlm with image": partial(layoutlm, **TINY, image=True),
    "layoutlmv3": partial(layoutlmv3, **TINY),
    "layoutlmv3 answers": partial(layoutlmv3, **TINY, task="answers"),
    "vt5": partial(vt5, **TINY),
    "vt5 published": partial(vt5, **TINY, coordinates="published", train_visual=True),
    "donut": partial(donut, **TINY),
}
WITHOUT_PIXELS = {
    "roberta": partial(roberta, **TINY),
    "bert": partial(bert, **TINY, image=False),
    "bert mlm": partial(bert, **TINY, image=False, task="mlm"),
    "bert spade": partial(bert, **TINY, image=False, task="spade"),
    "bert links": partial(bert, **TINY, image=False, task="links"),
    "bros": partial(bros, **TINY, image=False),
    "layoutlm": partial(layoutlm, **TINY, image=False),
    "layoutlmv3 without image": partial(layoutlmv3, **TINY, image=False),
    # They look at the page, but not as pixels.
    "pix2struct": partial(pix2struct, **TINY),
    "image_text": partial(image_text, longest_side=32, answer_length=8),
}
OF_IMAGES = {"donut": 2, "pix2struct": 2, "image_text": 1}
OF_THE_PAGE = {"patches", "mean", "deviation", "seen.pixel_values", "pixels"}


@dataclasses.dataclass(frozen=True)
class Given:
    """The two small documents that have entities, the one with the other linked."""

    def load(self):
        linked = (dataclasses.replace(document, links=((0, 1),)) for document in SMALL[:2])
        return DocumentSet("given", tuple(linked), LABELS)


def observe(build, folder):
    """Trains for one round under a curious server; returns the run folder."""
    return (
        Federation(
            model=build,
            data=DocumentData(Given(), Iid(1), HoldOut(fraction=0), cache="off"),
            strategy=FedSGD(),
            client=BatchGradient(),
            keep=[KeepTranscript()],
            runs=folder,
        )
        .run(1)
        .run_dir
    )


@pytest.mark.parametrize("name", [*WITH_PIXELS, *WITHOUT_PIXELS])
def test_every_model_is_observed_and_attacked(name, tmp_path):
    build = {**WITH_PIXELS, **WITHOUT_PIXELS}[name]
    if name == "image_text":
        llava(tmp_path / "llava")
        build = partial(build, pretrained=tmp_path / "llava")
    run_dir = observe(build, tmp_path / "runs")
    folder, shows = RunFolder.existing(run_dir), name in WITH_PIXELS

    truth = TruthStore(folder).of(KEY)
    (page,) = truth.fields
    assert [field.text for field in page] == ["Vega", "Ltd", "12.50"]
    assert (truth.pixels is not None) == shows
    assert all(any(field.box) == shows for field in page)

    known = load_known(folder, KEY, Assumed())
    assert known.size == 1
    assert (known.template is not None) == shows
    for text in set(TEXTS) - {"none"}:
        columns = load_known(folder, KEY, Assumed(text=text)).text
        assert not OF_THE_PAGE & set(columns)
        assert "labels" in columns or {"input_ids", "attention_mask"} <= set(columns)

    metrics = attacked(run_dir, TextRecovery(), build, "text")
    if name == "bert mlm":
        assert "MaskedWords" in metrics["headline"]
        return
    assert metrics["status"] == "done"
    # What reads the page as an image holds no word of it but the answer's, "Vega Ltd" of three
    # fields; LLaVA's tokens of a first word differ from those of a word after a space.
    assert sum(bool(field.tokens) for field in page) == OF_IMAGES.get(name, 3)
    assert metrics["private_text"] == 1
    if name != "pix2struct":  # its input is an image alone
        # LLaVA's tokens contain the mark where the image goes in, which is no word.
        assert metrics["token_set_recall"] == pytest.approx(20 / 21 if name == "image_text" else 1)
    templates = any("template of each page is known" in line for line in metrics["assumptions"])
    assert templates == shows
