"""Attacks on a federation of real receipts: pages and dates out of gradients."""

import os
from dataclasses import dataclass, replace
from functools import partial

import pytest
from attacked import attacked

from fedpriv.attacks.closed_form import ClosedForm
from fedpriv.attacks.text.attack import TextRecovery
from fedpriv.clients.fedsgd import BatchGradient
from fedpriv.data.cropped import Cropped
from fedpriv.data.document import DocumentSet
from fedpriv.data.partition import HoldOut, Iid
from fedpriv.federation.dataset import DocumentData
from fedpriv.federation.loop import Federation
from fedpriv.models.donut import donut
from fedpriv.models.layoutlmv3 import layoutlmv3
from fedpriv.models.vt5 import vt5
from fedpriv.strategies.fedsgd import FedSGD
from fedpriv.threat.surfaces.server import KeepTranscript

DATA = os.environ.get("FEDPRIV_DATA")
pytestmark = pytest.mark.skipif(not DATA, reason="needs FEDPRIV_DATA")
SMALL = partial(layoutlmv3, task="answers", size="small")


@dataclass(frozen=True)
class First:
    """The first receipts of a set that was read."""

    receipts: DocumentSet
    count: int

    def load(self) -> DocumentSet:
        return replace(self.receipts, documents=self.receipts.documents[: self.count])


def cropped(receipts, count):
    """The first receipts, cut out around their date."""
    return Cropped(First(receipts, count), 112, "date", word_height=16.0)


def run(model, receipts, folder):
    federation = Federation(
        model=model,
        data=DocumentData(cropped(receipts, 3), Iid(3), HoldOut(fraction=0), cache="off"),
        strategy=FedSGD(),
        client=BatchGradient(),
        keep=[KeepTranscript()],
        runs=folder,
    )
    return federation.run(1).run_dir


def test_receipts_are_copied_from_the_gradients_of_a_layoutlmv3(sroie, tmp_path):
    folder = run(SMALL, sroie, tmp_path)
    page = attacked(folder, ClosedForm(), SMALL, "closed_form")
    assert page["psnr_roi"] > 60
    assert page["psnr_roi"] > page["template_psnr_roi"] + 30
    text = attacked(folder, TextRecovery(), SMALL, "text")
    assert text["token_recall"] == text["exact_position"] == text["private_text"] == 1
    assert text["answer_exact"] == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "model", [partial(donut, attention="eager"), partial(vt5, attention="eager")]
)
def test_question_and_answer_are_read_from_the_gradients_of_models_that_write(
    sroie, model, tmp_path
):
    folder = run(model, sroie, tmp_path)
    phrases = tuple(q.text for d in cropped(sroie, 40).load().documents for q in d.questions)
    text = attacked(folder, TextRecovery(phrases=phrases), model, "text")
    assert text["question_exact"] == text["answer_exact"] == 1
    assert text["token_set_recall"] == 1
