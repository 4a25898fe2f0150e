"""Classes of personal information, by key and by pattern."""

import pytest

from fedpriv.attacks.extraction.pii import CLASSES, OF_KEY, pii_class
from fedpriv.data.generated.questions import (
    IDENTITY_QUESTIONS,
    QUESTION_TEMPLATES,
    RECEIPT_QUESTIONS,
)


@pytest.mark.parametrize("keys", [QUESTION_TEMPLATES, RECEIPT_QUESTIONS, IDENTITY_QUESTIONS])
def test_every_key_that_is_asked_for_has_a_class(keys):
    assert set(keys) <= set(OF_KEY)
    assert set(OF_KEY.values()) <= {"", *CLASSES}


@pytest.mark.parametrize(
    ("key", "text", "expected"),
    [
        ("customer", "Ada Brown", "person"),
        ("provider", "Vega Builders", ""),
        ("company", "info@vega.test", ""),  # the key decides
        ("total", "1234567", ""),
        ("account", "12", "id"),
    ],
)
def test_the_key_decides_where_it_is_known(key, text, expected):
    assert pii_class(key, text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("info@vega-builders.test", "contact"),
        ("+44 20 7946 0123", "contact"),
        ("(212) 555-0123", "contact"),
        ("012-345 6789", "contact"),
        ("www.vega.de/shop", "url"),
        ("https://vega.io", "url"),
        ("vega-builders.co.uk", "url"),
        ("12/03/2018", "time"),
        ("2018-03-12", "time"),
        ("March 12, 2018", "time"),
        ("10:15", "time"),
        ("9:05 p.m.", "time"),
        ("DE89 3704 0044 0532 0130 00", "id"),
        ("INV-2019-00123", "id"),
        (" 48392011 ", "id"),
        ("Dutch", "nrp"),
        ("catholics", "nrp"),
        ("31/31/2018", "id"),  # no date
        ("Vega Builders", ""),
        ("Ada Brown", ""),  # names need a key, or another tagger
        ("12 High Road, Leeds", ""),
        ("12 High Road Leeds 123456", ""),
        ("$1,234,567.50", ""),
        ("123456.50", ""),
        ("12345", ""),
        ("Dutch cheese", ""),
        ("", ""),
    ],
)
def test_patterns_decide_where_the_key_says_nothing(text, expected):
    assert pii_class("", text) == expected
