"""Dates and amounts are read as locales write them, and other numbers are no dates."""

import itertools
import random
import re
from datetime import date, timedelta
from decimal import Decimal

import pytest
from babel import Locale
from babel.dates import format_date
from babel.numbers import format_currency, format_decimal, get_territory_currencies
from hypothesis import given
from hypothesis import strategies as st

from fedpriv.data.document import Word
from fedpriv.data.folder.placing import place_fields
from fedpriv.data.values import amounts, dates

LOCALES = re.findall(
    r"\w+",
    "ar_AE ar_EG bg_BG bn_BD ca_ES cs_CZ da_DK de_AT de_CH de_DE el_GR en_GB en_IN en_US es_ES "
    "es_MX et_EE eu_ES fi_FI fr_CH fr_FR ga_IE gl_ES he_IL hi_IN hr_HR hu_HU id_ID is_IS it_IT "
    "ja_JP ka_GE kk_KZ ko_KR lt_LT lv_LV mr_IN ms_MY nb_NO ne_NP nl_NL pl_PL pt_BR pt_PT ro_RO "
    "ru_RU sk_SK sl_SI sr_Latn_RS sr_Cyrl_RS sv_SE sw_KE ta_IN th_TH tr_TR uk_UA ur_PK vi_VN "
    "zh_Hans_CN zh_Hant_TW",
)
ZEROS = {"arab": "٠", "arabext": "۰", "beng": "০", "deva": "०"}


def own_digits(text, locale):
    """The text in the digits of the locale, which babel leaves as they are."""
    zero = ord(ZEROS.get(locale.default_numbering_system, "0"))
    return text.translate({ord("0") + n: zero + n for n in range(10)})


def written_dates(name, rng, times):
    """Yields pairs of a day, as a table has it, and as the locale writes it."""
    locale = Locale.parse(name)
    for _, width in itertools.product(range(times), ("short", "medium", "long")):
        day = date(1970, 1, 1) + timedelta(rng.randrange(80 * 365))
        yield day.isoformat(), own_digits(format_date(day, width, locale), locale)


def written_amounts(name, rng, times):
    locale = Locale.parse(name)
    (currency, *_) = get_territory_currencies(locale.territory)
    for _ in range(times):
        amount = Decimal(rng.randrange(1, 10 ** rng.randrange(2, 9))).scaleb(-2)
        digits = {"locale": locale, "numbering_system": "default"}
        for text, value in (
            (format_decimal(amount, **digits), amount),
            (format_currency(amount, currency, currency_digits=False, **digits), amount),
            (format_currency(-amount, currency, currency_digits=False, **digits), -amount),
            (format_currency(-amount, currency, format_type="accounting", currency_digits=False,
                             **digits), -amount),
        ):  # fmt: skip
            yield str(value), own_digits(text, locale)


def misread(pairs):
    """Returns the pairs whose value is not found on a page, or not where it was written."""
    wrong = []
    for value, text in pairs:
        texts = ["Invoice", "4711", *text.split(), "paid"]
        words = [Word(word, (10.0 * n, 0.0, 10.0 * n + 9, 9.0), 0) for n, word in enumerate(texts)]
        place = place_fields([words], {"value": value})["value"]
        if place is None or not 2 <= place[1] < place[2] < len(texts):
            wrong.append((value, text))
    return wrong


@pytest.mark.parametrize("times", [5, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.parametrize("written", [written_dates, written_amounts])
@pytest.mark.parametrize("name", LOCALES)
def test_what_a_locale_writes_is_read(name, written, times):
    pairs = list(written(name, random.Random(name), times))
    assert len(misread(pairs)) <= 0.01 * len(pairs), misread(pairs)[:5]


@given(st.decimals(0, 10**9, places=2))
def test_an_amount_is_the_same_in_every_writing(amount):
    english, plain = f"{amount:,}", f"{amount}"
    german = english.translate(str.maketrans(",.", ".,"))
    for text in (english, german, plain, f"RM {english}", f"{german} €"):
        assert Decimal(amount) in amounts(text)


@given(st.dates(date(1900, 1, 1), date(2099, 12, 31)))
def test_a_date_is_the_same_in_every_writing(day):
    for text in (
        day.isoformat(),
        f"{day.day}/{day.month}/{day.year}",
        f"{day.day:02}.{day.month:02}.{day.year}",
        f"{day.month}/{day.day}/{day.year}",
        f"{day:%d %B} {day.year}",
        f"{day:%B %d}, {day.year}",
    ):
        assert day in dates(text)


# 9 stands for any digit.
TELEPHONES = (
    "+99 999 9999999", "+99 9 99 99 99 99", "(099) 9999 9999", "099-999 9999", "999-999-9999",
    "1-800-999-9999", "09 99 99 99 99", "09.99.99.99.99", "09-99-99-99-99", "99 99 99 99",
    "0999/999999", "0999/99 99 99", "+99 (0)99 9999 9999",
)  # fmt: skip
ARTICLES = (
    "99999", "A-9999", "999-999-999", "99.999.999", "999.999.99", "9999-9999", "99-9999",
    "9999999999999", "AB99-9999/99", "9.9.9", "99.9.9", "#9999", "99x99 mm",
)  # fmt: skip
POSTCODES = ("99999", "9999 AB", "99-999", "999-9999", "99999-999", "SW9A 9AA", "999 99", "D-99999")
WORD = st.text("bcdfghjk", min_size=4, max_size=9)
PLAIN = st.lists(st.tuples(WORD, st.integers(0, 99_999).map(str)).map(" ".join)).map(" ".join)


@given(
    PLAIN | st.sampled_from(TELEPHONES + ARTICLES + POSTCODES),
    st.randoms(use_true_random=False),
    st.sampled_from(["", "Tel ", "Art. ", "Total: ", "Berlin "]),
)
def test_words_and_other_numbers_are_no_dates(text, rng, before):
    drawn = "".join(str(rng.randrange(10)) if sign == "9" else sign for sign in text)
    assert not dates(before + drawn)
