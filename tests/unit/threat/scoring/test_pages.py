"""Scores of attacks: by hand on small batches, and on what models make of documents."""

import dataclasses
import math
import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpriv.data.generated.slips import Slips
from fedpriv.data.redaction.fields import private_fields, without_fields
from fedpriv.metrics.images import LARGEST_PSNR
from fedpriv.metrics.ocr import Tesseract
from fedpriv.models.layoutlmv3 import layoutlmv3
from fedpriv.models.page_geometry import in_model_pixels
from fedpriv.runtime.torch_state import seeded_model
from fedpriv.threat.access import BatchKnowledge, Known
from fedpriv.threat.claims import RecoveredBatch, RecoveredText
from fedpriv.threat.results import CANNOT_TELL, LEAK, NONE_SHOWN, Number
from fedpriv.threat.scoring.exchange import units_of
from fedpriv.threat.scoring.pages import (
    PAGE_SCORES,
    TEXT_SCORES,
    Judged,
    PageSettings,
    clause,
    matched,
    score,
    score_batches,
    summary,
)
from fedpriv.threat.scoring.registry import Scoring
from fedpriv.threat.truth import Field, Truth

KEY = (1, 0)


def pages(count=1, side=20, seed=0):
    random = np.random.default_rng(seed)
    return random.integers(0, 256, (count, 3, side, side), dtype=np.uint8)


def truth_of(pixels=None, fields=(), columns=None, questions=("",), answers=("",)):
    count = len(questions) if pixels is None else len(pixels)
    names = tuple(f"d{place}" for place in range(count))
    return Truth(names, columns or {}, pixels, fields, tuple(questions), tuple(answers))


def found(pages=None, text=None):
    return RecoveredBatch(KEY, None if pages is None else pages.astype(np.float32), text)


class Lookup:
    """Reads the crops that it was shown, and nothing else."""

    def __init__(self):
        self.known, self.asked = {}, 0

    def show(self, page, field, text):
        left, top, right, bottom = field.box
        crop = page[:, max(0, top - 2) : bottom + 2, max(0, left - 2) : right + 2]
        self.known[np.moveaxis(crop, 0, -1).tobytes()] = text

    def read(self, crops):
        self.asked += 1
        return [self.known.get(crop.tobytes(), "") for crop in crops]


# Pages

DATE, TOTAL = Field("date", "1 May", (2, 3, 9, 7)), Field("total", "12.50", (10, 12, 18, 17))
UNSEEN = Field("name", "Ada", (0, 0, 0, 0))


def test_a_page_recovered_whole_has_the_best_scores():
    pixels = pages(2)
    truth = truth_of(pixels, ((DATE, UNSEEN), (TOTAL,)))
    template = np.full_like(pixels, 255)
    scores = score(found(pixels), truth, template, None)
    assert set(scores) == {*PAGE_SCORES, *TEXT_SCORES}
    assert scores["psnr_page"] == scores["psnr_roi"] == LARGEST_PSNR
    assert scores["ssim_page"] == pytest.approx(1)
    assert scores["ssim_roi"] == pytest.approx(1)
    assert scores["fft_distance"] == pytest.approx(0, abs=1e-9)
    assert scores["mse"] == scores["mse_uint8_wrapped"] == 0
    assert scores["fields"] == 2
    assert scores["template_psnr_roi"] < 10
    for name in ("exact_match", "fuzz_ratio", "ocr_ceiling", *TEXT_SCORES):
        assert scores[name] is None


def test_what_is_private_is_scored_apart():
    pixels = np.full((1, 3, 20, 20), 100, np.uint8)
    wrong = pixels.copy()
    wrong[0, :, 3:7, 2:9] += 20  # all of the date, and nothing else
    scores = score(found(wrong), truth_of(pixels, ((DATE,),)), pixels + 10, None)
    assert scores["mse"] == 400
    assert scores["mse_uint8_wrapped"] == 400 % 256
    assert scores["psnr_roi"] == pytest.approx(10 * math.log10(255**2 / 400))
    share = 4 * 7 / 400
    assert scores["psnr_page"] == pytest.approx(10 * math.log10(255**2 / (400 * share)))
    template = 10 * math.log10(255**2 / 100)
    assert scores["template_psnr_page"] == pytest.approx(template)
    assert scores["template_psnr_roi"] == pytest.approx(template)


def test_what_is_recovered_beyond_the_boxes_does_not_help_the_private_score():
    pixels = pages()
    wrong, right = pages(seed=1), pages(seed=1)
    right[0, :, 8:, :] = pixels[0, :, 8:, :]
    truth = truth_of(pixels, ((DATE,),))
    one, other = (score(found(page), truth, None, None) for page in (wrong, right))
    for name in ("psnr_roi", "mse", "fft_distance", "mse_uint8_wrapped"):
        assert one[name] == other[name]
    assert one["psnr_page"] < other["psnr_page"]
    assert one["template_psnr_roi"] is None


def test_without_fields_the_page_is_compared():
    pixels, other = pages(), pages(seed=3)
    for fields in ((), ((),), ((UNSEEN,),)):
        scores = score(found(other), truth_of(pixels, fields), None, Lookup())
        assert scores["psnr_roi"] is scores["ssim_roi"] is scores["exact_match"] is None
        assert scores["fields"] == 0
        assert scores["mse"] == pytest.approx(65025 / 10 ** (scores["psnr_page"] / 10))
        assert scores["fft_distance"] > 0


def test_pages_of_fewer_than_eleven_pixels_have_no_ssim():
    pixels = pages(side=8)
    scores = score(found(pixels), truth_of(pixels), None, None)
    assert scores["ssim_page"] is None
    assert scores["psnr_page"] == LARGEST_PSNR


def test_pixels_out_of_range_are_clipped_and_no_numbers_are_black():
    pixels = np.zeros((1, 3, 20, 20), np.uint8)
    pixels[0, 0] = 255
    wild = pixels.astype(np.float32)
    wild[0, 0] = 1e9
    wild[0, 1] = -7
    wild[0, 2] = np.nan
    assert score(found(wild), truth_of(pixels), None, None)["psnr_page"] == LARGEST_PSNR


@given(order=st.permutations(range(4)))
def test_the_order_of_a_batch_does_not_count(order):
    pixels = pages(4)
    noisy = np.clip(pixels + np.random.default_rng(2).normal(0, 30, pixels.shape), 0, 255)
    assert np.array_equal(matched(noisy[list(order)], pixels), noisy)


def test_each_page_is_assigned_once():
    """Both recovered pages are nearest to the second, but only one can be it."""
    pixels = np.stack([np.full((3, 12, 12), 0, np.uint8), np.full((3, 12, 12), 100, np.uint8)])
    recovered = np.stack([np.full((3, 12, 12), 90.0), np.full((3, 12, 12), 70.0)])
    assert np.array_equal(matched(recovered, pixels), recovered[::-1])


def test_pages_of_another_shape_are_refused():
    with pytest.raises(ValueError, match=r"recovered pages of \(1, 3, 20, 20\), true pages of \(2"):
        score(found(pages(1)), truth_of(pages(2)), None, None)


def test_models_without_pages_have_no_scores_of_pages():
    scores = score(found(pages()), truth_of(), None, Lookup())
    assert all(scores[name] is None for name in PAGE_SCORES)


# Reading


def test_reading_is_scored_by_field_beside_what_can_be_read_at_all():
    pixels, ocr = pages(2), Lookup()
    recovered = pages(2, seed=5)
    fields = ((DATE, UNSEEN), (TOTAL,))
    ocr.show(pixels[0], DATE, "1 MAY")
    ocr.show(pixels[1], TOTAL, "12,50")
    ocr.show(recovered[0], DATE, "2 May")
    ocr.show(recovered[1], TOTAL, " 12.50\n")
    scores = score(found(recovered), truth_of(pixels, fields), None, ocr)
    assert scores["ocr_ceiling"] == 0.5  # "12,50" is not 12.50
    assert scores["exact_match"] == 0.5  # " 12.50" is
    assert scores["fuzz_ratio"] == pytest.approx((0.8 + 1) / 2)
    assert ocr.asked == 1


@pytest.mark.skipif(shutil.which("tesseract") is None, reason="no tesseract here")
def test_slips_are_read_where_they_are_recovered_and_not_on_the_template():
    model = seeded_model(lambda: layoutlmv3(task="answers", image_size=112), 0)
    documents = Slips(providers=3, documents_per_provider=1).load().documents
    keys = ["customer", "date", "total"]
    fields = []
    for document in documents:
        private = private_fields(document, keys)
        boxes = in_model_pixels(model, document, [field.box for field in private])
        fields.append(
            tuple(Field(f.key, f.text, box) for f, box in zip(private, boxes, strict=True))
        )
    pixels = model.encode(documents).shared["pixels"][0]
    template = model.encode([without_fields(d, keys) for d in documents]).shared["pixels"][0]
    truth = truth_of(pixels, tuple(fields))
    whole = score(found(pixels), truth, template, Tesseract())
    blank = score(found(template), truth, template, Tesseract())
    assert whole["exact_match"] == whole["ocr_ceiling"] == blank["ocr_ceiling"] >= 7 / 9
    assert blank["exact_match"] == 0
    assert blank["psnr_roi"] == pytest.approx(blank["template_psnr_roi"])
    assert blank["psnr_roi"] < 15
    assert blank["psnr_page"] > 17


# Text

COLUMNS = {
    "input_ids": np.array([[0, 7, 8, 7, 2, 1, 1]]),
    "attention_mask": np.array([[1, 1, 1, 1, 1, 0, 0]]),
    "bbox": np.array(
        [[[0] * 4, [1, 2, 3, 4], [5, 6, 7, 8], [5, 6, 9, 9], [0] * 4, *[[0] * 4] * 2]]
    ),
    "question": np.array([3]),
}


def text(pairs, **rest):
    return RecoveredText(np.array(pairs, dtype=np.int64).reshape(-1, 2), **rest)


def of_text(recovered, columns=COLUMNS, **rest):
    return score(found(text=recovered), truth_of(columns=columns, **rest), None, None)


def test_text_recovered_whole():
    pairs = [(0, 0), (1, 7), (2, 8), (3, 7), (4, 2)]
    boxes = COLUMNS["bbox"][0][:5]
    scores = of_text(
        text(pairs, boxes=boxes, question="what IS it?", answer="12.50 "),
        questions=["What is  it?"],
        answers=["12.50"],
    )
    without = {"private_text", "words_named"}  # no field, and nothing that is said to be alone
    assert {scores[name] for name in TEXT_SCORES if name not in without} == {1.0}
    assert {scores[name] for name in without} == {None}
    assert all(scores[name] is None for name in PAGE_SCORES)


def test_text_by_hand():
    """Of 0 7 8 7 2: 7 once and in its place, 8 in a wrong one, and a 9 that is not there."""
    boxes = np.array([[1, 2, 3, 4], [5, 6, 7, 8], [-1, -1, -1, -1], [0, 0, 0, 0]])
    scores = of_text(text([(1, 7), (3, 8), (-1, 9), (0, 0)], boxes=boxes))
    assert scores["token_precision"] == 3 / 4
    assert scores["token_recall"] == 3 / 5
    assert scores["token_set_precision"] == 3 / 4
    assert scores["token_set_recall"] == 3 / 4
    assert scores["exact_position"] == 2 / 5
    # Of three tokens with a box: the marks at the ends have none.
    assert scores["boxes_exact"] == 1 / 3


def test_an_unknown_place_finds_no_place():
    scores = of_text(text([(-1, token) for token in (0, 7, 8, 2)]))
    assert scores["token_set_recall"] == scores["token_precision"] == 1
    assert scores["token_recall"] == 4 / 5
    assert scores["exact_position"] == 0
    assert scores["boxes_exact"] is None


def test_nothing_found():
    scores = of_text(text([]), questions=["When?"], answers=["now"])
    assert scores["token_precision"] is scores["token_set_precision"] is None
    assert scores["token_recall"] == scores["exact_position"] == 0
    assert scores["question_exact"] == scores["answer_exact"] == 0


def test_of_several_examples_the_union_counts_and_no_question():
    columns = {
        "input_ids": np.array([[0, 7, 2], [0, 8, 2]]),
        "attention_mask": np.ones((2, 3), dtype=int),
        "question": np.array([3, 4]),
    }
    scores = of_text(
        text([(0, 0), (1, 7), (1, 8), (2, 2)]),
        columns,
        questions=["a", "b"],
        answers=["c", "d"],
    )
    assert scores["exact_position"] == scores["token_set_recall"] == 1
    assert scores["token_recall"] == 4 / 6
    assert scores["question_exact"] is scores["answer_exact"] is None


def test_a_model_that_reads_no_question_is_not_asked_for_it():
    columns = {name: array for name, array in COLUMNS.items() if name != "question"}
    scores = of_text(text([(1, 7)]), columns, questions=["When?"], answers=["now"])
    assert scores["question_exact"] is scores["answer_exact"] is None


def test_private_text_needs_all_words_of_a_field_that_the_row_holds():
    fields = (("1 May", (1, 7, 8)), ("12.50", (8, 9)), ("behind the window", ()))
    fields = tuple(Field("any", words, (0, 0, 0, 0), tokens) for words, tokens in fields)
    scores = of_text(
        text([(1, 7), (-1, 8), (2, 1), (3, 2)]),
        fields=(fields, (Field("name", "Ada", (0, 0, 0, 0), (2,)),)),
    )
    assert scores["private_text"] == 2 / 3


# Together


def test_the_summary_is_the_mean_of_what_there_is():
    assert summary([]) == {}
    one = {"psnr_page": 10.0, "fields": 3.0, "exact_match": None, "mse": None}
    other = {"psnr_page": 20.0, "fields": 4.0, "exact_match": 0.5, "mse": None}
    assert summary([one, other]) == {
        "psnr_page": 15.0,
        "fields": 7.0,
        "exact_match": 0.5,
        "mse": None,
    }


def test_scores_are_numbers_that_json_has():
    pixels = pages()
    scores = score(found(pixels), truth_of(pixels, ((DATE,),)), pixels, Lookup())
    assert all(value is None or type(value) is float for value in scores.values())
    assert all(value is None or math.isfinite(value) for value in scores.values())


# Verdicts


def result_of(claims, truths, template=None, controls=(), **settings):
    """The result of claims by message, whose truths these are."""

    class Store:
        def of(self, key):
            return truths.get(key)

        def controls(self):
            return list(controls)

    size = 1
    known = BatchKnowledge({key: Known(size, template) for key in truths})
    scoring = Scoring(
        Store(),
        {BatchKnowledge: known},
        PageSettings(**settings),
        np.random.default_rng(0),
    )
    return score_batches(claims, scoring)


def named(truth, *documents):
    return dataclasses.replace(truth, documents=documents)


def words(rng, vocabulary=200, length=30):
    """A message with words as frequent as Zipf has it."""
    frequent = 1 / np.arange(1, vocabulary + 1)
    ids = rng.choice(vocabulary, length, p=frequent / frequent.sum())[None]
    name = f"{rng.integers(2**40)}"
    return named(truth_of(columns={"input_ids": ids, "attention_mask": np.ones_like(ids)}), name)


def read_of(key, truth):
    """All tokens of a message."""
    return RecoveredBatch(key, None, text(list(enumerate(truth.columns["input_ids"][0].tolist()))))


@pytest.mark.parametrize("messages", [1, 2, 20])
@pytest.mark.parametrize("claimed", [200, 20])
def test_frequent_words_are_no_leak_however_many_are_claimed(messages, claimed):
    """All words that there are, or the twenty commonest: nothing was read of any message."""
    rng = np.random.default_rng(0)
    truths = {(1, n): words(rng) for n in range(messages)}
    same = text([(-1, word) for word in range(claimed)])
    controls = [words(rng) for _ in range(30 - messages)]
    found = result_of([RecoveredBatch(key, None, same) for key in truths], truths, None, controls)
    assert found.verdict == CANNOT_TELL  # what is as high by chance hides a leak
    assert found.numbers["token_set_recall"].p_value > 0.05
    assert found.numbers["token_set_recall"].control > 0.4


@pytest.mark.parametrize("messages", [1, 8])
def test_text_that_is_only_in_its_own_message_is_a_leak(messages):
    rng = np.random.default_rng(0)
    truths = {(1, n): words(rng) for n in range(messages)}
    claims = [read_of(key, truth) for key, truth in truths.items()]
    found = result_of(claims, truths)
    number = found.numbers["token_set_recall"]
    assert (found.verdict, found.primary, number.value) == (LEAK, "token_set_recall", 1.0)
    if messages == 8:
        assert number.p_value <= 0.001
        assert 0.2 < number.control < 0.9  # frequent words are in the others too
        assert (
            "recovered from 8 messages, with every different token: 100% of the different tokens"
            in found.headline
        )
    else:  # there is nothing to compare with, and no chance recovers all to the last
        assert number.p_value is number.control is None
        assert "recovered from one message, with every different token: 100%" in found.headline


def test_words_that_are_named_as_one_clients():
    """Of two clients with a word in common: its own are 3 and 4, and it is said to have 4 and 5."""
    ids = [np.array([[1, 2, 3, 4]]), np.array([[1, 2, 5, 6]])]
    truths = {
        (1, n): named(truth_of(columns={"input_ids": own}), f"{n}") for n, own in enumerate(ids)
    }
    claims = [
        RecoveredBatch((1, 0), None, text([(-1, 4), (-1, 5)], alone=True)),
        RecoveredBatch((1, 1), None, text([(-1, 6)], alone=True)),
    ]
    found = result_of(claims, truths)
    assert found.primary == "words_named"
    assert found.numbers["words_named"].value == (1 / 2 + 1) / 2
    assert found.numbers["words_named"].control == (1 / 2 + 0) / 2
    assert [row["words_alone"] for row in found.details["by_message"]] == [1 / 2, 1 / 2]
    assert found.details["words_alone"] == 1 / 2


def some_of(key, truth, share=0.7):
    """The first tokens of a message."""
    ids = truth.columns["input_ids"][0]
    kept = ids[: round(share * len(ids))]
    return RecoveredBatch(key, None, text([(-1, token) for token in np.unique(kept).tolist()]))


@pytest.mark.parametrize("controls", [18, 19, 20])
def test_one_message_is_held_against_held_out_documents(controls):
    rng = np.random.default_rng(3)
    truths, others = {(1, 0): words(rng)}, [words(rng) for _ in range(controls)]
    found = result_of([some_of((1, 0), truths[1, 0])], truths, None, others)
    assert found.numbers[found.primary].p_value == pytest.approx(1 / (controls + 1))
    assert found.verdict == (LEAK if controls >= 19 else CANNOT_TELL)


@given(rounds=st.integers(1, 4), clients=st.integers(1, 5), seed=st.integers(0, 99))
def test_the_same_documents_again_change_no_verdict(rounds, clients, seed):
    """Further rounds of the same clients are neither evidence nor a control; nor is their sum."""
    rng = np.random.default_rng(seed)
    one = {(1, n): words(rng) for n in range(clients)}
    others = [words(rng) for _ in range(15)]
    again = {(r, n): truth for r in range(1, rounds + 1) for (_, n), truth in one.items()}
    claims = [some_of(key, truth) for key, truth in again.items()]
    first = result_of(claims[:clients], one, None, others)
    all_of_them = result_of(claims, again, None, others)
    assert all_of_them.verdict == first.verdict
    for name, number in first.numbers.items():
        other = all_of_them.numbers[name]
        assert (number.value, number.control, number.p_value, number.n) == pytest.approx(
            (other.value, other.control, other.p_value, other.n)
        )


def test_more_messages_show_a_leak_more_often():
    """Of 80 leaks of every twelfth word, more are seen where there are more messages."""
    shares = []
    for messages in (1, 3, 8):
        seen = 0
        for seed in range(80):
            rng = np.random.default_rng((messages, seed))
            truths = {(1, n): words(rng) for n in range(messages)}
            claims = [some_of(key, truth, 0.08) for key, truth in truths.items()]
            found = result_of(claims, truths, None, [words(rng) for _ in range(20)])
            seen += found.verdict == LEAK
        shares.append(seen)
    assert shares == sorted(shares), shares
    assert shares[0] < 40 < shares[-1], shares


def test_a_clients_other_messages_are_no_independent_evidence():
    """What is found of a client is in all that it sends: it is one unit, and no control."""
    rng = np.random.default_rng(5)
    truths = {(r, n): words(rng) for r in range(1, 4) for n in range(2)}
    claims = [some_of((r, n), truths[3 - r + 1, n]) for r, n in truths]
    claims = [dataclasses.replace(c, message=key) for c, key in zip(claims, truths, strict=True)]
    found = result_of(claims, truths)
    assert found.numbers[found.primary].n == 2
    assert found.numbers[found.primary].unit == "client"


def test_a_sum_of_what_was_seen_takes_no_evidence_away():
    rng = np.random.default_rng(6)
    one, other = words(rng), words(rng)
    both = dataclasses.replace(
        one,
        documents=one.documents + other.documents,
        columns={n: np.concatenate([one.columns[n], other.columns[n]]) for n in one.columns},
    )
    assert units_of([one, other, both], [None, None, None]) == [0, 1, -1]
    assert units_of([one, one, other], [None, None, None]) == [0, 0, 1]
    assert units_of([one, other], [3, 3]) == [0, 0]


def test_marks_that_are_always_claimed_are_no_exact_recovery():
    """One of twenty pages is empty: whoever claims the marks around a text has all of it."""
    rng = np.random.default_rng(7)
    truths = {(1, n): words(rng) for n in range(20)}
    empty = {"input_ids": np.array([[0, 2]]), "attention_mask": np.ones((1, 2), int)}
    truths[1, 4] = named(truth_of(columns=empty), "empty")
    marks = text([(0, 0), (1, 2)])
    found = result_of([RecoveredBatch(key, None, marks) for key in truths], truths)
    assert not found.certain
    assert found.verdict != LEAK


def boxed(rng, *, ink=0.3):
    pixels = np.full((1, 3, 20, 20), 255, np.uint8)
    pixels[:, :, 3:7, 2:9] = np.where(rng.random((1, 1, 4, 7)) < ink, 0, 255)
    return named(truth_of(pixels, [[DATE]]), f"{rng.integers(2**40)}")


WHITE = np.full((1, 3, 20, 20), 255, np.uint8)


def held_out(rng, count):
    return [dataclasses.replace(boxed(rng), template=WHITE) for _ in range(count)]


def test_a_grey_box_is_no_page_that_was_stolen_and_one_stolen_page_of_many_is():
    """One grey in every box is nearer to the ink than the template's white is."""
    rng = np.random.default_rng(1)
    truths = {(1, n): boxed(rng) for n in range(6)}
    grey = WHITE.astype(np.float32)
    grey[:, :, 3:7, 2:9] = 180.0
    claims = [RecoveredBatch(key, grey, None) for key in truths]
    found = result_of(claims, truths, WHITE, held_out(rng, 14))
    assert found.numbers["psnr_roi_gain"].value > 0.5
    assert found.numbers["pages_recovered"].value == 0
    assert found.verdict == CANNOT_TELL  # and not a leak, however alike the six are
    noisy = truths[1, 3].pixels + rng.normal(0, 20, WHITE.shape)
    claims[3] = RecoveredBatch((1, 3), noisy.astype(np.float32), None)
    found = result_of(claims, truths, WHITE, held_out(rng, 14))
    assert found.numbers["pages_recovered"].p_value == pytest.approx(0.05, abs=0.005)
    claims[3] = RecoveredBatch((1, 3), truths[1, 3].pixels.astype(np.float32), None)
    found = result_of(claims, truths, WHITE)
    assert (found.verdict, found.primary) == (LEAK, "pages_recovered")
    assert found.headline.startswith(
        "recovered from 6 messages, 1 of them to the last pixel: 17% of the pages with private "
        "fields 3 dB or more above the template on 6 messages"
    )
    assert result_of(claims[:1], truths, WHITE).verdict == CANNOT_TELL


def test_an_attack_that_ends_below_the_template_shows_nothing():
    rng = np.random.default_rng(2)
    truths = {(1, n): boxed(rng) for n in range(20)}
    black = np.zeros((1, 3, 20, 20))
    claims = [RecoveredBatch(key, black, None) for key in truths]
    found = result_of(claims, truths, WHITE)
    assert found.numbers["psnr_roi_gain"].value < 0
    assert found.verdict == CANNOT_TELL
    assert "worse than the template alone" in found.headline
    assert found.headline.endswith("; the attack failed, which does not make the federation safe")
    white = [RecoveredBatch(key, WHITE.astype(np.float32), None) for key in truths]
    assert result_of(white, truths, WHITE).verdict == NONE_SHOWN


RECOVERED = Number(0.6, (0.4, 0.8), 30, "message", 0.02, 0.1, 0.0001)


@pytest.mark.parametrize(
    ("numbers", "exact", "words"),
    [
        ({"exact_match": 0.8, "ocr_ceiling": 0.8}, 0, "as many as on the page itself"),
        (
            {"exact_match": 0.75, "ocr_ceiling": 0.8, "psnr_roi": 100.7},
            0,
            "restore 60% of the pages in a client's update, 2% by chance, and read 75% of their "
            "private fields, where 80% can be read on the page itself",
        ),
        ({"exact_match": 0.8}, 0, "by chance, and read 80% of their private fields"),
        (
            {"psnr_roi": 14.0, "template_psnr_roi": 9.6},
            0,
            "at least in part (14 dB, the empty form",
        ),
        ({"exact_match": 0.0, "psnr_roi": 14.0}, 0, "at least in part (14 dB)"),
        ({"psnr_roi": 101.0}, 3, "to the last pixel (101 dB)"),
        ({}, 0, "restore 60% of the pages in a client's update, 2% by chance"),
    ],
)
def test_what_was_read_is_said_by_what_was_measured(numbers, exact, words):
    judged = Judged({"pages_recovered": RECOVERED}, "pages_recovered", LEAK, exact)
    assert words in clause(numbers, judged, summed=False)
    assert "of the pages in a sum of updates" in clause(numbers, judged, summed=True)


@pytest.mark.parametrize(
    ("primary", "words"),
    [
        ("private_text", "read all words of 60% of the private fields in a client's update, 2%"),
        ("answer_exact", "read 60% of the answers in a client's update, 2% by chance"),
        ("token_set_recall", "read 60% of the different words in a client's update, 2% by chance"),
    ],
)
def test_what_was_read_is_said_by_the_number_of_the_verdict(primary, words):
    """And not by how many tokens were found with their repetitions."""
    judged = Judged({primary: RECOVERED}, primary, LEAK, 0)
    assert words in clause({"token_recall": 0.25, primary: 0.6}, judged, summed=False)
