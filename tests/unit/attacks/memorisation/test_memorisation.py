"""Memorisation tests: what is asked of which page, what the models say to it, and the scores."""

import dataclasses
import json
import math
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest

from fedpriv.attacks.memorisation.attack import Memorisation, MemorisationAccess
from fedpriv.attacks.memorisation.pictures import captioned, telling
from fedpriv.data.document import Document, Entity, Question, Word
from fedpriv.data.generated.questions import QUESTION_TEMPLATES, RECEIPT_QUESTIONS
from fedpriv.federation.membership_table import TrainingMembership
from fedpriv.runtime.seeds import generator
from fedpriv.threat.access import BlackBox, GreyBox, HeldOutDocuments, PublicModel
from fedpriv.threat.attack import AttackContext, Remarks
from fedpriv.threat.claims import MemorisationProbe
from fedpriv.threat.queries import Reply
from fedpriv.threat.scoring.memorisation import (
    ALL,
    answered,
    headline,
    memorisation_metrics,
    tables,
)
from fedpriv.threat.scoring.summaries import digits

NAMES = {"vega": "Vega Builders", "orion": "Orion Optics", "lyra": "Lyra Music"}


class Memory:
    """Knows the names of some providers by their pages; otherwise reads the first word."""

    def __init__(self, known=()):
        self.known, self.seen = set(known), []

    def __call__(self, documents):
        self.seen += documents
        return [tuple(self._reply(page, q) for q in page.questions) for page in documents]

    def _reply(self, page, question):
        if question.key == "provider" and page.provider in self.known:
            return Reply(NAMES[page.provider], 0.95, 0.1)
        return Reply(page.words[0].text, 0.4, 3.0)


def page(provider, number=0, tax=None, questions=("provider",)):
    texts = ["Invoice", str(100 + number), *NAMES[provider].split(), "thanks"]
    entities = [Entity("provider", (2, 3))]
    if tax is not None:
        entities.append(Entity("tax_number", (len(texts),)))
        texts.append(tax)
    words = tuple(
        Word(text, (10 + 60 * place, 20, 60 + 60 * place, 32), 0)
        for place, text in enumerate(texts)
    )
    asked = tuple(Question(key, f"{key} of {provider}?", (NAMES[provider],)) for key in questions)
    white = np.full((60, 500, 3), 255, np.uint8)
    white[20:32, 10:490:3] = 0
    return Document(
        f"{provider}-{number}", provider, white, (500, 60), words, tuple(entities), asked
    )


def pages(count=2, **settings):
    return {name: tuple(page(name, n, **settings) for n in range(count)) for name in NAMES}


@dataclass(frozen=True)
class Found:
    """What the attack claims and remarks."""

    probes: tuple
    remarks: Remarks


def judge(documents, final, start=None, *, grey=True, log=lambda line: None, **settings):
    boxes = [
        (BlackBox(replies), GreyBox(replies) if grey else None) if replies else None
        for replies in (final, start)
    ]
    public = PublicModel({}, *boxes[1], lambda: None) if start else None
    access = MemorisationAccess(boxes[0][0], HeldOutDocuments(documents), boxes[0][1], public)
    context = AttackContext(generator(0, "test"), log, None)
    return Found(Memorisation(**settings).run(access, context), context.remarks)


def said(found, **wanted):
    """The probes with these attributes."""
    return [
        probe
        for probe in found.probes
        if all(getattr(probe, name) == value for name, value in wanted.items())
    ]


# ------------------------------------------------------------------------------------- the attack


def test_a_model_that_remembers_answers_where_the_page_does_not():
    memory, start = Memory(["vega"]), Memory()
    found = judge(pages(), memory, start, keys=("provider",), absent_keys=())
    assert [(p.provider, p.answer, p.confidence) for p in said(found, model="final")] == [
        ("vega", "Vega Builders", 0.95),
        ("vega", "Vega Builders", 0.95),
        *[("orion", "Invoice", 0.4)] * 2,
        *[("lyra", "Invoice", 0.4)] * 2,
    ]
    assert [probe.answer for probe in said(found, model="start")] == ["Invoice"] * 6
    first = found.probes[0]
    assert (first.test, first.document, first.key) == ("removed", "vega-0", "provider")
    assert (first.accepted, first.residual) == (("Vega Builders",), False)
    assert found.remarks.left_out == {}


def test_the_model_sees_the_page_without_the_clues():
    memory = Memory()
    judge(pages(), memory, keys=("provider",), absent_keys=())
    for shown in memory.seen:
        texts = " ".join(word.text for word in shown.words)
        assert texts == f"Invoice 10{shown.id[-1]} thanks"
        assert len(shown.questions) == 1
        assert np.ptp(shown.page[20:32, 130:240]) < 60  # the ink of words 2 and 3 is gone
        assert np.ptp(shown.page[:, 10:60]) == 255


def test_a_black_box_gives_no_confidence():
    found = judge(pages(), Memory(["vega"]), grey=False, keys=("provider",), absent_keys=())
    assert len(found.probes) == 6
    assert all(math.isnan(probe.confidence) for probe in found.probes)


def test_the_pages_own_question_is_asked_or_one_of_the_training():
    own = judge(pages(), Memory(), keys=("provider",), absent_keys=())
    assert {probe.question for probe in own.probes} == {f"provider of {name}?" for name in NAMES}
    drawn = judge(pages(questions=()), Memory(), keys=("provider",), absent_keys=())
    questions = {probe.question for probe in drawn.probes}
    assert questions <= set(QUESTION_TEMPLATES["provider"])
    assert len(questions) > 1
    assert {probe.accepted for probe in drawn.probes} == {(name,) for name in NAMES.values()}


def test_a_receipt_is_asked_in_the_words_for_receipts():
    receipt = dataclasses.replace(
        page("vega"), questions=(), entities=(Entity("company", (2, 3)), Entity("address", (4,)))
    )
    settings = {"keys": ("company", "address"), "absent_keys": ()}
    found = judge({"vega": (receipt,)}, Memory(), **settings)
    company, address = found.probes
    assert company.question in RECEIPT_QUESTIONS["company"]
    assert address.question in RECEIPT_QUESTIONS["address"]
    assert address.accepted == ("thanks",)


def test_what_cannot_be_asked_is_counted_by_its_reason():
    documents = pages(questions=())
    documents["vega"] = (
        dataclasses.replace(
            documents["vega"][0], questions=(Question("provider", "Who?", ("Castor Pollux",)),)
        ),
    )
    settings = {"keys": ("provider", "email"), "absent_keys": ()}
    found = judge(documents, Memory(), **settings)
    assert Counter(probe.provider for probe in found.probes) == {"orion": 2, "lyra": 2}
    missing = "no question on the page, and no text with this label"
    assert found.remarks.left_out == {
        "removed/provider: the page's words do not spell the answer": 1,
        f"removed/email: {missing}": 5,
    }
    assert found.remarks.not_applicable == {"removed/email": f"{missing} (5 pages)"}


def test_fewer_pages_of_a_provider_on_request():
    found = judge(pages(3), Memory(), keys=("provider",), absent_keys=(), documents_per_provider=1)
    assert [probe.document for probe in found.probes] == ["vega-0", "orion-0", "lyra-0"]


def test_absent_asks_pages_that_never_said_it_and_leaves_the_others_out():
    documents = pages(7) | {"vega": tuple(page("vega", n, tax="DE123456789") for n in range(2))}
    settings = {"keys": (), "absent_keys": ("tax_number",), "strip_absent": False}
    memory = Memory()
    found = judge(documents, memory, **settings)
    assert Counter(probe.provider for probe in found.probes) == {"orion": 5, "lyra": 5}
    assert len({probe.document for probe in found.probes}) == 10
    assert all(probe.accepted == () and probe.test == "absent" for probe in found.probes)
    assert {probe.question for probe in found.probes} <= set(QUESTION_TEMPLATES["tax_number"])
    assert found.remarks.left_out == {"absent/tax_number: the page says it": 2}
    assert [word.text for word in memory.seen[0].words][2:4] == ["Orion", "Optics"]
    assert all(shown.questions[0].answers == () for shown in memory.seen)


def test_absent_takes_it_off_where_that_is_wanted():
    documents = {"vega": tuple(page("vega", n, tax="DE123456789") for n in range(3))}
    memory = Memory()
    found = judge(documents, memory, keys=(), absent_keys=("tax_number",), most_absent=2)
    assert len(found.probes) == 2
    assert {probe.accepted for probe in found.probes} == {()}
    for shown in memory.seen:
        assert [word.text for word in shown.words][2:] == ["Vega", "Builders", "thanks"]
        assert shown.questions[0].answers == ()
    refused = judge(documents, memory, keys=(), absent_keys=("tax_number",), strip_absent=False)
    assert refused.remarks.not_applicable == {"absent/tax_number": "the page says it (3 pages)"}


def test_many_pages_are_asked_in_parts():
    told = []
    settings = {"keys": ("provider",), "absent_keys": (), "pictures": 0}
    found = judge(pages(40), Memory(), log=told.append, **settings)
    assert [probe.document for probe in found.probes] == [
        f"{name}-{number}" for name in NAMES for number in range(40)
    ]
    assert told == ["memorisation: 64 questions asked, 0 left out"]


def test_the_same_seed_asks_the_same():
    first, second = (judge(pages(3, questions=()), Memory()) for _ in range(2))
    key = [(probe.document, probe.question) for probe in first.probes]
    assert key == [(probe.document, probe.question) for probe in second.probes]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"keys": (), "absent_keys": ()}, "expected a key in one of them"),
        ({"radius": -1.0}, "radius=-1.0"),
        ({"likeness": 200.0}, "likeness=200.0"),
        ({"documents_per_provider": 0}, "documents_per_provider=0"),
        ({"most_absent": 0}, "most_absent=0"),
        ({"pictures": -1}, "pictures=-1"),
    ],
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Memorisation(**settings)


# ----------------------------------------------------------------------------------- the pictures


def test_pictures_show_the_page_the_blur_in_blue_and_the_answer():
    documents = pages()
    found = judge(documents, Memory(["orion"]), keys=("provider",), absent_keys=(), pictures=2)
    assert list(found.remarks.pictures) == [
        f"removed-provider-{number}-{part}"
        for number in ("00", "01")
        for part in ("page", "cleared", "answer")
    ]
    # What the model remembers comes first.
    before, cleared, answer = list(found.remarks.pictures.values())[:3]
    np.testing.assert_array_equal(before, documents["orion"][0].page)
    red, green, blue = cleared[26, 150].astype(int)
    assert blue > green > red
    np.testing.assert_array_equal(cleared[:, :120], before[:, :120])
    assert answer.shape[0] > 60
    np.testing.assert_array_equal(answer[:60], cleared)
    assert answer[61:].min() < 100  # ink


def test_telling_pages_come_first_one_a_provider_and_key():
    probes = [
        probe("a", "wrong", "right", document="1"),
        probe("b", "righ", "right", document="2"),
        probe("c", "right", "right", document="3", residual=True),
        probe("d", "right", "right", document="4"),
        probe("d", "right", "right", document="5"),
        probe("e", "right", "right", document="6", model="start"),
        probe("e", "right", document="7", test="absent"),
    ]
    assert [p.document for p in telling(probes, 9)] == ["4", "3", "2", "1"]
    assert [p.document for p in telling(probes, 1)] == ["4"]


def test_a_long_answer_is_broken():
    short, long = (
        captioned(pages()["vega"][0].image(), [text]) for text in ("word", "word " * 40 + "w" * 300)
    )
    assert short.width == long.width == 500
    assert long.height > short.height + 8 * 18
    assert np.asarray(long)[62:, -10:].min() == 255


# ------------------------------------------------------------------------------------- the scores


def probe(
    provider,
    answer,
    *accepted,
    key="provider",
    test="removed",
    confidence=0.5,
    residual=False,
    model="final",
    document="d",
):
    return MemorisationProbe(
        test, provider, document, key, "?", accepted, answer, confidence, residual, model
    )


IN, OUT = TrainingMembership(3), TrainingMembership(0)


def test_scores_of_members_and_non_members():
    probes = [
        probe("a", "Vega ", "vega", confidence=0.95),  # 1, 1
        probe("a", "vegb", "vega", confidence=0.9, residual=True),  # 0, 0.75
        probe("b", "xyz", "vega"),  # 0, 0
        probe("c", "vg", "vega", confidence=math.nan),  # 0, 0.5
    ]
    found = memorisation_metrics(probes, {"a": IN, "b": IN, "c": OUT})
    scores = found["removed"]["final"]["provider"]
    members = scores["members"]
    assert (members["n"], members["providers"], members["n_confident"]) == (3, 2, 2)
    assert members["accuracy"] == pytest.approx(1 / 3)
    assert members["anls"] == pytest.approx(1.75 / 3)
    assert members["accuracy_confident"] == 0.5
    assert members["anls_confident"] == pytest.approx(0.875)
    assert members["residual"] == pytest.approx(1 / 3)
    assert (members["accuracy_clean"], members["anls_clean"]) == (0.5, 0.5)
    # Three pages of two providers are hardly more than two answers.
    told = members["intervals"]["accuracy"]
    assert told["mean"] == members["accuracy"]
    assert 0 <= told["low"] < 0.1
    assert 0.9 < told["high"] <= 1
    others = scores["non_members"]
    assert (others["n"], others["accuracy"], others["anls"]) == (1, 0, 0.5)
    assert (others["n_confident"], others["accuracy_confident"]) == (0, None)


def test_providers_known_on_all_their_pages():
    probes = [
        *[probe("all", "x", "x")] * 2,
        *[probe("half", "x", "x"), probe("half", "y", "x")],
        probe("one", "x", "x"),
        *[probe("other", "x", "x")] * 2,
    ]
    parts = {"all": IN, "half": IN, "one": IN, "other": OUT}
    scores = memorisation_metrics(probes, parts)["removed"]["final"]["provider"]
    assert (scores["perfect_providers"], scores["perfect_of"]) == (1, 2)


def scores_of(probes, parts):
    return memorisation_metrics(probes, parts)["removed"]["final"]["provider"]


def test_the_p_value_is_over_providers():
    """4 of 4 members and 0 of 4 others are four and four coins, however many their pages."""
    parts = {name: IN if name in "abcd" else OUT for name in "abcdefgh"}
    found = [
        scores_of(
            [probe(name, "x" if name in "abcd" else "y", "x") for name in parts] * pages, parts
        )
        for pages in (1, 6)
    ]
    p_values = [one["p_value"] for one in found]
    # 2 of the 70 ways to choose four.
    assert p_values == pytest.approx([2 / 70, 2 / 70], abs=0.005)


def test_pages_with_a_clue_left_are_no_sign_of_memory():
    parts = {name: IN if name < "k" else OUT for name in "abcdefghijklmnopqrst"}
    read = [probe(name, "x" if name < "k" else "y", "x", residual=True) for name in parts]
    said = [probe(name, "y", "x") for name in parts]
    found = answered([*read, *said], parts)[ALL]
    assert (found.value, found.control, found.p_value) == (0, 0, 1)
    assert answered(read, parts) == {}
    assert answered([*said, *[probe(n, "x", "x") for n in "abcdefg"]], parts)[ALL].p_value < 0.05


def test_the_p_value_and_the_interval_agree():
    parts = {name: IN if name < "k" else OUT for name in "abcdefghijklmnopqrst"}
    for right in ("abcdefgh", "abc", "aklm"):
        probes = [probe(name, "x" if name in right else "y", "x") for name in parts]
        numbers = answered(probes, parts)
        assert set(numbers) == {ALL, "provider"}
        apart = numbers[ALL].value - numbers[ALL].control
        assert apart == pytest.approx(
            sum(n < "k" for n in right) / 10 - sum(n >= "k" for n in right) / 10
        )
        assert (numbers[ALL].p_value <= 0.05) == (right == "abcdefgh")


@pytest.mark.slow
def test_where_nothing_is_remembered_few_p_values_are_small():
    """Of pages that are right by chance, of which the members have twice as many."""
    rng = np.random.default_rng(0)
    parts = {f"p{n}": IN if n < 10 else OUT for n in range(20)}
    found = []
    for _ in range(200):
        probes = [
            probe(name, "x" if rng.random() < 0.1 else "y", "x")
            for name, part in parts.items()
            for _ in range(8 if part is IN else 4)
        ]
        found.append(answered(probes, parts)[ALL].p_value)
    # Three standard deviations above 5 %.
    assert np.mean([p <= 0.05 for p in found]) <= 0.05 + 3 * 0.0154


def test_one_group_alone_has_no_p_value():
    scores = memorisation_metrics([probe("a", "x", "x")], {"a": IN})["removed"]["final"]
    assert scores["provider"]["p_value"] is None
    nothing = {"mean": None, "low": None, "high": None, "count": 0}
    assert scores["provider"]["non_members"] == {
        "n": 0,
        "providers": 0,
        "accuracy": None,
        "anls": None,
        "intervals": dict.fromkeys(("accuracy", "anls"), nothing),
        "n_confident": 0,
        "accuracy_confident": None,
        "anls_confident": None,
        "residual": None,
        "accuracy_clean": None,
        "anls_clean": None,
    }


def test_models_and_keys_are_apart():
    probes = [probe("a", "x", "x", model=m, key=k) for m in ("final", "start") for k in "pq"]
    found = memorisation_metrics(probes, {"a": IN})["removed"]
    assert {model: set(keys) for model, keys in found.items()} == {
        "final": {"p", "q"},
        "start": {"p", "q"},
    }


def absent(answers, provider="out", **settings):
    return [
        probe(provider, answer, key="tax", test="absent", document=str(n), **settings)
        for n, answer in enumerate(answers)
    ]


def test_absent_answers_of_non_members_are_counted():
    probes = [*absent(["91-08", "91-08 ", "x", ""]), *absent(["91-08"] * 9, provider="in")]
    found = memorisation_metrics(probes, {"out": OUT, "in": IN})["absent"]["final"]["tax"]
    assert (found["n"], found["empty"], found["unique"]) == (4, 0.25, 2)
    assert found["answers"] == [["91-08", 2], ["x", 1]]
    assert found["top_share"] == pytest.approx(2 / 3)
    # -(2/3 log 2/3 + 1/3 log 1/3) / log 3
    assert found["entropy"] == pytest.approx(0.579380, abs=1e-6)
    assert found["top_new"] is None


@pytest.mark.parametrize(
    ("answers", "entropy", "share"),
    [(list("abcd"), 1, 0.25), (["a"] * 4, 0, 1), (["a"], None, 1), ([""], None, None)],
)
def test_skew_at_its_ends(answers, entropy, share):
    found = memorisation_metrics(absent(answers), {"out": OUT})["absent"]["final"]["tax"]
    assert found["entropy"] == (None if entropy is None else pytest.approx(entropy))
    assert found["top_share"] == share


def test_fifteen_answers_are_shown():
    answers = [f"{n:02}" for n in range(20)] + ["19"]
    found = memorisation_metrics(absent(answers), {"out": OUT})["absent"]["final"]["tax"]
    assert found["answers"][0] == ["19", 2]
    assert found["answers"][-1] == ["13", 1]
    assert (found["unique"], len(found["answers"])) == (20, 15)


def test_absent_answers_from_the_training():
    parts = {
        "out": TrainingMembership(0, answers={"tax": ("mine",)}),
        "in": TrainingMembership(2, answers={"tax": ("DE 1",), "phone": ("555", "de 1")}),
    }
    final = absent(["de 1", "de 1", "555", "mine", ""])
    start = absent(["mine", "555"], model="start")
    found = memorisation_metrics([*final, *start], parts)["absent"]
    assert found["final"]["tax"]["from_training"] == {
        "same_key": 1,
        "other_key": 1,
        "top_same_key": 1,
        "top_other_key": 1,
        "share": 0.75,
    }
    assert found["final"]["tax"]["top_new"] == 1
    assert found["start"]["tax"]["from_training"]["share"] == 0.5


def test_nothing_asked_nothing_scored():
    found = memorisation_metrics([], {})
    assert found == {"removed": {}, "absent": {}}
    assert headline({}).startswith("whether members are remembered cannot be tested")
    assert [table.rows for table in tables(found)] == [(), ()]


def test_tables_and_headline_are_fair_to_the_choice_of_the_key():
    asked = [probe(name, "x", "x") for name in "abcd"] + [probe(name, "y", "x") for name in "efgh"]
    others = [probe(name, "y", "x", key="tax") for name in "abcdefgh"]
    parts = {name: IN if name in "abcd" else OUT for name in "abcdefgh"}
    probes = [*asked, *others, *absent(["91-08", "x"], provider="e")]
    found = memorisation_metrics(probes, parts)
    numbers = answered([*asked, *others], parts)
    # Half of all answers, of both keys: four companies are not enough.
    assert headline(numbers).startswith(
        "answers taken off members' pages are given exactly in 50.0% ["
    )
    assert "on 4 suppliers, against 0 without a leak, p 0." in headline(numbers)
    alone = answered(asked, parts)["provider"].p_value
    assert numbers["provider"].p_value == pytest.approx(2 * alone)  # two were looked at
    removed, never = tables(found)
    # Clopper and Pearson, of four providers: their end is 0.025 to the power of a quarter.
    every, none = "100.0% [39.8%, 100.0%]", "0.0% [0.0%, 60.2%]"
    row = ("provider, final model", "4", every, every, "4", none, none)
    assert removed.rows[0] == (*row, digits(2 * alone, ".2g"))
    assert never.rows == (("tax, final model", "2", "2", "50%", "1.00", "0", "0"),)


def test_a_provider_without_a_part_is_refused():
    with pytest.raises(ValueError, match="not recorded whether these were trained on: who"):
        memorisation_metrics([probe("who", "x", "x")], {"a": IN})


def test_scores_are_json_without_nan():
    probes = [probe("a", "x", "x", confidence=math.nan), *absent(["x", ""], provider="b")]
    text = json.dumps(memorisation_metrics(probes, {"a": IN, "b": OUT}), allow_nan=False)
    assert '"p_value": null' in text
