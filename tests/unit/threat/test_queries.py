"""Questions put to a model: what a box gives, and that nothing is asked twice."""

import math

import pytest
import torch
from toy_answers import Chooser, page

from fedpriv.models.vt5 import vt5
from fedpriv.threat.access import BlackBox, GreyBox
from fedpriv.threat.queries import Oracle


@pytest.fixture
def model():
    torch.manual_seed(0)
    model = Chooser()
    with torch.no_grad():
        model.weights[7] = torch.tensor([0.0, math.log(3), 0.0, math.log(3)])  # ⅛ ⅜ ⅛ ⅜
        model.weights[8, 2] = 9.0
    return model


def test_a_reply_is_answer_confidence_and_loss(model):
    ((reply, other),) = Oracle(model, None).replies([page(7, "ada", "bo")])
    assert (reply.text, other.text) == ("bo", "bo")
    assert reply.confidence == pytest.approx(3 / 8)
    assert reply.loss == pytest.approx(math.log(8))
    assert other.loss == pytest.approx(-math.log(3 / 8))


def test_a_black_box_says_its_answers_and_nothing_else(model):
    box = BlackBox(Oracle(model, None).replies)
    assert box.answers([page(7, "ada"), page(8, "ada", "bo")]) == [("bo",), ("cy", "cy")]
    assert not hasattr(box, "replies")
    assert isinstance(GreyBox(Oracle(model, None).replies), BlackBox)


def test_losses_are_those_of_the_replies_and_no_answer_is_written(model):
    pages = [page(7, "ada", "bo"), page(8), page(8, "cy")]
    oracle = Oracle(model, None)
    found = oracle.losses(pages)
    assert model.rows_asked == 0
    assert found[0] == pytest.approx((math.log(8), -math.log(3 / 8)))
    assert found == [tuple(reply.loss for reply in said) for said in oracle.replies(pages)]
    assert GreyBox(oracle.replies).losses(pages) == found
    assert GreyBox(lambda pages: [], oracle.losses).losses(pages) == found
    assert oracle.losses([page(7)]) == [()]
    assert not hasattr(BlackBox(oracle.replies), "losses")


def test_the_loss_of_many_pages_in_windows_is_the_mean_of_each():
    model = Chooser(windows=3)
    with torch.no_grad():
        model.weights[:, 0] = torch.arange(256) / 100
    pages = [page(colour, "ada") for colour in range(150)]
    expected = [math.log(1 + 3 / math.exp(colour / 100)) for colour in range(150)]
    assert [loss for (loss,) in Oracle(model, None).losses(pages)] == pytest.approx(expected)


def test_nothing_is_asked_twice(model):
    oracle = Oracle(model, None)
    first = oracle.replies([page(7, "ada", "bo"), page(8, "ada")])
    assert model.rows_asked == 3
    assert oracle.replies([page(8, "ada"), page(7, "ada", "bo")]) == first[::-1]
    assert oracle.replies([page(7, "ada")]) == [first[0][:1]]
    assert model.rows_asked == 3
    oracle.replies([page(7, "cy")])  # another accepted answer has another loss
    assert model.rows_asked == 4


def test_of_equal_pages_in_one_call_one_is_asked(model):
    said = Oracle(model, None).replies([page(7, "ada", name="a"), page(7, "ada", name="b")])
    assert model.rows_asked == 1
    assert said[0] == said[1]


def test_replies_outlive_the_process(model, tmp_path):
    first = Oracle(model, tmp_path).replies([page(7, "ada"), page(8, "bo")])
    (file,) = tmp_path.glob("*.jsonl")
    file.write_text(file.read_text()[:-20], "ascii")  # the process was killed while it wrote
    model.rows_asked = 0
    assert Oracle(model, tmp_path).replies([page(7, "ada"), page(8, "bo")]) == first
    assert model.rows_asked == 1


def test_after_a_broken_line_replies_are_kept_again(model, tmp_path):
    Oracle(model, tmp_path).replies([page(7, "ada")])
    (file,) = tmp_path.glob("*.jsonl")
    file.write_text(file.read_text()[:-20], "ascii")
    Oracle(model, tmp_path).replies([page(7, "ada")])
    model.rows_asked = 0
    Oracle(model, tmp_path).replies([page(7, "ada")])
    assert model.rows_asked == 0


def test_another_model_is_asked_itself(model, tmp_path):
    Oracle(model, tmp_path).replies([page(7, "ada")])
    with torch.no_grad():
        model.weights[7, 0] = 5.0
    assert Oracle(model, tmp_path).replies([page(7, "ada")])[0][0].text == "ada"


def test_the_loss_of_a_page_in_windows_is_their_mean():
    model = Chooser(windows=3)
    (said,) = Oracle(model, None).replies([page(7, "ada", "bo")])
    assert [reply.loss for reply in said] == pytest.approx([math.log(4)] * 2)


def test_pages_without_questions_get_no_reply(model):
    assert Oracle(model, None).replies([page(7), page(8, "bo")])[0] == ()


def test_no_question_at_all_is_no_error(model):
    assert Oracle(model, None).replies([page(7)]) == [()]
    assert Oracle(model, None).replies([]) == []


def test_one_reading_of_a_page_gives_what_two_gave():
    from fedpriv.data.generated.invoices import Invoices
    from fedpriv.models.question_answering import QuestionAnswerer

    torch.manual_seed(0)
    model = vt5(width=16, layers=1).eval()
    pages = Invoices(2, 1, questions=("provider", "total")).load().documents
    (batch,) = model.encode(pages).batches(8)
    with torch.no_grad():
        answers, losses = model.reply_batch(batch)
        apart, slowly = QuestionAnswerer.reply_batch(model, batch)
    assert answers == apart
    assert torch.equal(losses, slowly)
