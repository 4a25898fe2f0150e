"""Canaries are drawn by seed, and those that would show nothing are dropped and counted."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from pages import page

from fedpriv.attacks.extraction.canaries import Curation
from fedpriv.attacks.extraction.inferable import (
    continues_a_sequence,
    is_a_date_elsewhere,
    is_a_sum,
    is_spelt_elsewhere,
    stands_in_question,
)
from fedpriv.data.document import Question
from fedpriv.data.generated.identities import Identities
from fedpriv.data.generated.invoices import Invoices
from fedpriv.data.generated.slips import Slips
from fedpriv.data.redaction.answers import without_answer


def removed(*lines, answer, text="What?"):
    return without_answer(page(*lines), Question("key", text, (answer,)))


def rng():
    return np.random.default_rng(0)


# ---------------------------------------------------------------------------------------- rules


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Is vega builders, the seller?", True),
        ("Is Vega the seller?", False),
        ("Who are the Vega-Builders?", True),
        ("Who are the VegaBuildersLtd?", False),
    ],
)
def test_the_answer_in_the_question(text, expected):
    assert stands_in_question(removed("Vega Builders", answer="Vega Builders", text=text)) is (
        expected
    )


@pytest.mark.parametrize(
    ("lines", "answer", "expected"),
    [
        (("Page 1 then 2 then 3",), "2", True),
        (("Page 1 then 2 then 4",), "2", False),
        (("Page 2 then 3",), "3", False),  # at the end
        (("1 a", "2 b", "3 c"), "2", True),  # a column
        (("3 a", "2 b", "1 c"), "2", True),
        (("1 a", "_ 2", "3 c"), "2", False),  # of another column
        (("2 5 8",), "5", False),  # two numbers tell no step
        (("2 5 8 11",), "5", True),
        (("2 5 8 12",), "5", False),
        (("10 20 30 40",), "30", True),
        (("1.0 1.5 2.0",), "1.5", False),  # no whole number
        (("2017 2018 2019",), "2018", True),
        (("2 a 2 a",), "a", False),
        (("2 02 2 2",), "02", False),  # no step
        (("1 x", "1 2", "x 3"), "2", False),
    ],
)
def test_a_value_of_a_sequence(lines, answer, expected):
    assert continues_a_sequence(removed(*lines, answer=answer)) is expected


@pytest.mark.parametrize(
    ("lines", "answer", "expected"),
    [
        (("tea 4.00", "milk 1.50", "total 5.50"), "5.50", True),
        (("tea 4.00", "milk 1.50", "total 5.60"), "5.60", False),
        (("tea 2 4.00", "milk 3 1.50", "total 5.50"), "5.50", True),  # quantities are no amounts
        (("net 100.00 tax", "20.00 sum 120.00"), "120.00", True),
        (("net €1.000,00", "tax €200,00", "sum €1.200,00"), "€1.200,00", True),
        (("tea 4.00 x 12.35", "_ 8.35"), "12.35", True),  # of the reading order or of the column
        (("4.00", "2.00", "1.00", "5.00"), "5.00", False),  # 4 and 1 do not follow each other
        (("due 37.70", "cash 50.00", "change 12.30"), "37.70", True),
        (("due 37.70", "cash 50.00", "change 12.40"), "37.70", False),
        (("3 x 4.00 12.00",), "12.00", True),
        (("3 x 4.10 12.00",), "12.00", False),
        (("1.50 x 2.50 3.75",), "3.75", False),  # neither is a quantity
        (("tea 4.00", "milk 1.50", "rice 2.25", "total 7.75"), "7.75", True),
        (("RM12.50 or 12.50",), "RM12.50", True),  # the same without its currency
        (("1 2 or 3",), "3", False),  # small numbers always add up
        (("100 200 300",), "300", True),
        (("4 5 9.00",), "9.00", False),  # other numbers than amounts
        (("net 27.56", "rounding -0.01", "sum 27.55"), "27.55", True),
        (("net 27.56", "rounding −0.01", "sum 27.54"), "27.54", False),
        (("tea 1,500", "milk 12,345", "sum 13,845"), "13,845", True),
        (("チーズ 1,500円", "牛乳 12,345円", "合計 13,845円"), "13,845円", True),
        (("sum 0.00",), "0.00", False),
        (("tea 4.00", "milk 1.50"), "tea", False),
    ],
)
def test_a_total_of_what_is_left(lines, answer, expected):
    assert is_a_sum(removed(*lines, answer=answer)) is expected


@pytest.mark.parametrize(
    ("lines", "answer", "expected"),
    [
        (("Vega Builders Ltd", "info@vega-builders.test"), "Vega Builders Ltd", True),
        (("Vega Builders Ltd", "info@vega.test"), "Vega Builders Ltd", False),
        (("Ada Brown", "brown.ada@vega.test"), "Ada Brown", True),
        (("Ada Brown", "a.brown@vega.test"), "Ada Brown", False),
        (("12 High Road", "High Road"), "12 High Road", False),  # a number is told by nothing
        (("Vega", "vegas.test"), "Vega", False),  # one word: a trace, if anything
        (("S N Bhd", "sun bhd"), "S N Bhd", False),  # single letters are everywhere
    ],
)
def test_a_name_that_is_spelt_elsewhere(lines, answer, expected):
    assert is_spelt_elsewhere(removed(*lines, answer=answer)) is expected


@pytest.mark.parametrize(
    ("lines", "answer", "expected"),
    [
        (("13/04/2019 or", "13 April 2019"), "13/04/2019", True),
        (("13/04/2019 or", "14 April 2019"), "13/04/2019", False),
        (("13/04/2019 or", "April 2019"), "13/04/2019", False),
        (("Total 13 April 2019",), "Total", False),
    ],
)
def test_a_date_that_is_left_in_another_form(lines, answer, expected):
    assert is_a_date_elsewhere(removed(*lines, answer=answer)) is expected


# --------------------------------------------------------------------------------------- curation


def asked(answer, key="key", text="What?"):
    return Question(key, text, (answer,))


def dropped_as(reason, document, **settings):
    """Whether the one sample is dropped for this reason."""
    chosen = Curation(**settings).choose([document], rng())
    return chosen.canaries == () and chosen.drawn == 1 and chosen.dropped == {reason: 1}


def test_each_reason_is_counted():
    assert dropped_as("not found", page("Vega", questions=(asked("Orion"),)))
    assert dropped_as("not found", page("Vega", questions=(asked("--"),)))
    assert dropped_as("trace left", page("Vega vegas", questions=(asked("Vega"),)))
    assert dropped_as("too short", page("A 7", questions=(asked("7"),)))
    assert dropped_as("in the question", page("Vega x", questions=(asked("Vega", text="Vega?"),)))
    assert dropped_as("sequence", page("11 12 13", questions=(asked("12"),)))
    assert dropped_as("sum", page("1.00 1.50 2.50", questions=(asked("2.50"),)))
    name = page("Ada Brown", "brown.ada@vega.test", questions=(asked("Ada Brown"),))
    assert dropped_as("spelt elsewhere", name)
    date = page("13/04/2019 13 April 2019", questions=(asked("13/04/2019"),))
    assert dropped_as("date elsewhere", date)


def test_rules_can_be_switched_off_one_by_one():
    document = page("11 12 13", questions=(asked("12"),))
    assert dropped_as("sequence", document)
    kept = Curation(rules=("sum", "constant")).choose([document], rng())
    assert [canary.answer for canary in kept.canaries] == ["12"]
    assert kept.dropped == {}


def test_whoever_has_looked_at_the_samples_names_those_to_keep():
    documents = [page("Vega Orion", questions=(asked("Vega"), asked("Orion")))]
    every = Curation().choose(documents, rng())
    names = [canary.name for canary in every.canaries]
    assert len(names) == 2
    kept = Curation(names=(names[1],)).choose(documents, rng())
    assert [canary.answer for canary in kept.canaries] == ["Orion"]
    assert kept.dropped == {"left out by hand": 1}
    with pytest.raises(ValueError, match=r"names: there is no sample 'nobody' \(1 of these\)"):
        Curation(names=("nobody", *names)).choose(documents, rng())


def test_short_answers_are_kept_where_that_is_asked_for():
    document = page("A 7", questions=(asked("7"),))
    assert len(Curation(least_letters=1).choose([document], rng()).canaries) == 1
    assert dropped_as("too short", page("A 77", questions=(asked("77"),)), least_letters=3)


@pytest.mark.parametrize(
    ("answers", "kept"),
    [
        (["Vega"] * 3 + ["Orion"] * 2, ["Orion"] * 2),  # three of five
        (["Vega"] * 3 + ["Orion"] * 3, ["Vega"] * 3 + ["Orion"] * 3),  # half is not more than half
        (["Vega"] * 2, ["Vega"] * 2),  # two may agree
        (["Vega", "vega", " VEGA"], []),
    ],
)
def test_a_constant_of_its_key_is_dropped(answers, kept):
    documents = [
        page(f"to {answer}", name=str(n), questions=(asked(answer),))
        for n, answer in enumerate(answers)
    ]
    chosen = Curation().choose(documents, rng())
    assert [canary.answer for canary in chosen.canaries] == kept
    assert chosen.dropped.get("constant", 0) == len(answers) - len(kept)


def test_another_key_with_the_same_answer_makes_no_constant():
    documents = [
        page("Vega", name=str(n), questions=(asked("Vega", key=str(n)),)) for n in range(4)
    ]
    chosen = Curation().choose(documents, rng())
    assert [canary.repeats for canary in chosen.canaries] == [4] * 4


def test_repeats_are_of_the_whole_training_set():
    answers = ["Vega", "VEGA ", "Orion", "Castor", "Orion"]
    documents = [
        page(f"to {answer}", name=str(n), questions=(asked(answer, key=f"{n}"),))
        for n, answer in enumerate(answers)
    ]
    chosen = Curation(keys=("0", "3")).choose(documents, rng())
    assert [(c.name, c.repeats) for c in chosen.canaries] == [("0#0", 2), ("3#0", 1)]
    assert chosen.drawn == 2


def test_a_canary_has_the_one_question_with_and_without_its_answer():
    document = page(
        "Vega pays 12.50", questions=(asked("Vega", "customer"), asked("12.50", "total"))
    )
    first, second = Curation().choose([document], rng()).canaries
    assert (first.name, second.name) == ("a#0", "a#1")
    assert first.page == replace(document, questions=document.questions[:1])
    assert second.removed == without_answer(document, document.questions[1]).page
    assert (first.pii, second.pii) == ("person", "")
    assert second.removed.questions[0].answers == ("12.50",)


def test_planted_samples_all_come_in_beside_those_that_are_drawn():
    slips = Slips(providers=4, documents_per_provider=5).load().documents
    planted = [
        replace(document, id=f"canary-{document.id}", provider=f"canary {document.provider}")
        for document in Identities(repeats=(1, 3), each=2).load().documents
    ]
    chosen = Curation(count=7).choose([*slips, *planted], rng())
    assert chosen.drawn == 7 + 8
    assert len(chosen.canaries) + sum(chosen.dropped.values()) == chosen.drawn
    there = [canary for canary in chosen.canaries if canary.planted]
    assert Counter(canary.repeats for canary in there) == {1: 2, 3: 6}
    assert {canary.pii for canary in there} == {"id"}
    alone = Curation(count=0).choose([*slips, *planted], rng())
    assert alone.drawn == 8


def test_planted_samples_are_not_asked_for_what_can_be_inferred():
    document = page("11 12 13", provider="canary p", questions=(asked("12"),))
    (canary,) = Curation().choose([document], rng()).canaries
    assert canary.planted
    unfound = page("11 12 13", provider="canary p", questions=(asked("x"),))
    assert Curation().choose([unfound], rng()).dropped == {"not found": 1}


def test_the_draw_is_by_seed_without_repeats_and_in_the_order_of_the_documents():
    documents = Slips(providers=4, documents_per_provider=6).load().documents

    def names(seed, **settings):
        chosen = Curation(count=9, **settings).choose(documents, np.random.default_rng(seed))
        return [canary.name for canary in chosen.canaries]

    order = [name for document in documents for name in document.question_names()]
    assert names(1) == names(1) == sorted(names(1), key=order.index)
    assert names(1) != names(2)
    assert len(set(names(1))) == 9
    assert all(name.endswith("#1") for name in names(3, keys=("date",)))


def test_every_sample_is_drawn_about_as_often():
    documents = Slips(providers=2, documents_per_provider=2).load().documents
    random, counts = rng(), Counter()
    for _ in range(300):
        counts.update(c.name for c in Curation(count=3).choose(documents, random).canaries)
    # 12 samples, 3 of which are drawn: 75 of 300 on average, 7.5 is one standard deviation.
    assert len(counts) == 12
    assert all(40 < count < 110 for count in counts.values())


def test_the_total_of_a_generated_invoice_is_inferable_and_its_numbers_are_not():
    documents = Invoices(providers=5, documents_per_provider=4).load().documents
    chosen = Curation().choose(documents, rng())
    kept = Counter(canary.question.key for canary in chosen.canaries)
    assert kept["total"] == 0
    assert chosen.dropped["sum"] == 20
    assert kept["invoice_number"] == kept["customer"] == kept["phone"] == kept["date"] == 20


def test_another_tagger_can_be_given_and_is_checked():
    document = page("Vega pays", questions=(asked("Vega"),))
    (canary,) = Curation(tagger=lambda key, text: "nrp").choose([document], rng()).canaries
    assert canary.pii == "nrp"
    with pytest.raises(ValueError, match="the tagger says 'PERSON': expected one of place, person"):
        Curation(tagger=lambda key, text: "PERSON").choose([document], rng())


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"count": -1}, "count=-1: expected 0 or more"),
        (
            {"rules": ("sums",)},
            r"rules names \['sums'\]: expected some of in the question, sequence",
        ),
        ({"least_letters": 0}, "least_letters=0: expected 1 or more"),
        ({"margin": -1}, "margin=-1: expected 0 or more"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings, said):
    with pytest.raises(ValueError, match=said):
        Curation(**settings)


def test_more_than_there_is_cannot_be_drawn():
    document = page("Vega pays", questions=(asked("Vega"),))
    with pytest.raises(ValueError, match="count=2: there are 1 samples to draw from"):
        Curation(count=2).choose([document], rng())
    with pytest.raises(ValueError, match=r"keys names \['total'\]: there are samples of \['key'\]"):
        Curation(keys=("total",)).choose([document], rng())
