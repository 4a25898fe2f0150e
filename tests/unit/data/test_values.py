"""What a text may mean as an amount or a date; that every locale is read is in the properties."""

from decimal import Decimal

import pytest

from fedpriv.data.values import amounts, dates, dates_among, has_cents, numbers


def decimals(values):
    return {Decimal(value) for value in values}


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1,234.50", {"1234.50"}),
        ("1.234,50 €", {"1234.50"}),
        ("RM12.5", {"12.5"}),
        ("12,5", {"12.5"}),
        ("1.234", {"1.234", "1234"}),
        ("0,125", {"0.125"}),  # no thousands begin with 0
        ("1,234,567", {"1234567"}),
        ("12,34,567.50", {"1234567.50"}),  # lakhs
        ("1,2,3.50", set()),
        ("1 234,50", {"1234.50"}),
        ("1\u202f234,50", {"1234.50"}),
        ("CHF 1'234.50", {"1234.50"}),
        ("12'50 €", {"12.50"}),
        ("١٬٢٣٤٫٥٠", {"1234.50"}),
        ("१,२३४.५०", {"1234.50"}),
        (".99", {"0.99"}),
        ("£12·50", {"12.50"}),
        ("Rs.12.50", {"12.50"}),
        # signs
        ("-3.00", {"-3"}),
        ("−45.00", {"-45"}),
        ("(45.00)", {"-45"}),
        ("(RM 45.00)", {"-45"}),
        ("45,00-", {"-45"}),
        ("RM-45.00", {"-45"}),
        ("TOTAL-45.00", {"45", "-45"}),
        ("45.00 CR", {"45", "-45"}),
        ("45.00DR", {"45", "-45"}),
        ("50,-", {"50"}),
        ("50.—", {"50"}),
        ("50:-", {"50"}),
        ("¥1,234,567-", {"1234567", "-1234567"}),  # an end, or a sign
        # currencies
        ("$12345", {"12345"}),
        ("500 Kč", {"500"}),
        ("12345円", {"12345"}),
        ("5€99", {"5.99"}),
        ("5 kr 99", {"5.99"}),
        ("1.234$50", {"1234.50"}),
        # as OCR reads
        ("12. 50", {"12.50"}),
        ("12 ,50", {"12.50"}),
        ("12 . 50", {"12.50"}),
        ("1.234.50", {"1234.50"}),
        # none
        ("03/02/2024", set()),
        ("25.12.2018", set()),
        ("10:15", set()),
        ("1.2.3", set()),
        ("12.50 %", set()),
        ("INV00123X9", set()),
        ("twelve", set()),
        ("", set()),
        ("9" * 5000, set()),
    ],
)
def test_what_an_amount_means(text, values):
    assert amounts(text) == decimals(values)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("12345", {"12345"}),
        ("١٢", {"12"}),
        ("123 456 789", {"123456789"}),
        ("2.", {"2"}),
        ("(3)", {"3", "-3"}),  # of a list, or negative
        ("INV-20231", {"20231", "-20231"}),
        ("6%", {"6"}),
        ("12 34", set()),
        ("12/03/2018", set()),
    ],
)
def test_plain_whole_numbers_are_no_amounts(text, values):
    assert numbers(text) == decimals(values)
    assert amounts(text) == set()


def test_cents():
    assert [text for text in ("1", "1.5", "1,50", "١٫٥٠", "1.234") if has_cents(text)] == [
        "1,50",
        "١٫٥٠",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("13/04/2019", ["2019-04-13"]),
        ("3/4/2019", ["2019-03-04", "2019-04-03"]),
        ("13/04-2019", ["2019-04-13"]),
        ("3/13 2019", ["2019-03-13"]),
        ("25 12 2018", ["2018-12-25"]),
        ("2019-04-13", ["2019-04-13"]),
        ("20190413", ["2019-04-13"]),
        ("13.04.79", ["1979-04-13", "2079-04-13"]),
        ("24. 5. 3.", ["1924-05-03", "2024-05-03"]),
        ("13 April 2019", ["2019-04-13"]),
        ("13-Apr-2019", ["2019-04-13"]),
        ("13APR19", ["1919-04-13", "2019-04-13"]),
        ("Apr 13, 2019", ["2019-04-13"]),
        ("Apr 13th, 2019", ["2019-04-13"]),
        ("3. März 2024", ["2024-03-03"]),
        ("25 DEC. 2018", ["2018-12-25"]),
        ("20 ENE 2019", ["2019-01-20"]),
        ("3 mrt 2022", ["2022-03-03"]),
        ("3 FEVRIER 2024", ["2024-02-03"]),
        ("3. Maerz 2024", ["2024-03-03"]),
        ("3 de mayo del año 2024", ["2024-05-03"]),
        ("5 KASIM 2021", ["2021-11-05"]),
        ("2 de septiembre de 2016", ["2016-09-02"]),
        ("3 d’ag. del 2024", ["2024-08-03"]),
        ("2024. gada 3. maijs", ["2024-05-03"]),
        ("3 listopada 2024", ["2024-10-03", "2024-11-03"]),  # in Croatian, and in Polish
        ("٣ مايو ٢٠٢٤", ["2024-05-03"]),
        ("३ मई २०२४", ["2024-05-03"]),
        ("3 พ.ค. 2024", ["2024-05-03"]),
        ("2024年5月3日", ["2024-05-03"]),
        ("2024년 5월 3일", ["2024-05-03"]),
        ("ngày 3 tháng 5 năm 2024", ["2024-05-03"]),
        ("2024 m. 05 m. 03 d.", ["2024-05-03"]),
        ("31/31/2019", []),
        ("31 Feb 2019", []),
        ("Mayor 13", []),
        ("13/04/1066", []),
    ],
)
def test_days_that_are_meant(text, expected):
    assert sorted(day.isoformat() for day in dates(text, whole=True)) == expected
    assert sorted(day.isoformat() for day in dates(f"on {text} at 10:15")) == expected


@pytest.mark.parametrize(
    "text",
    ["on 13/04/2019", "13/04/2019 10:15", "13/04/2019 Total", "13/04/2019 and 14/04/2019"],
)
def test_a_text_with_more_than_a_date_is_not_one(text):
    assert dates(text)
    assert not dates(text, whole=True)


@pytest.mark.parametrize(
    "text",
    [
        "01.23.45.67.89",
        "06-12-12-12-12",
        "12 12 20 20",
        "3 12 1950",
        "12.03 Mar 2019",
        "3 Mar 12.50",
        "Mar 12.50",
        "Dec 25 10:30",
        "10.1.2",
    ],
)
def test_prices_times_and_numbers_to_call_are_no_dates(text):
    assert dates(text) == set()


def test_the_words_of_a_date():
    words = ["of", "3", "Mar", "2019", "DATE:4/13/2019.", "2", "de", "abril", "de", "2020"]
    assert [
        (" ".join(words[start:stop]), {*map(str, days)}) for start, stop, days in dates_among(words)
    ] == [
        ("3 Mar 2019", {"2019-03-03"}),
        ("DATE:4/13/2019.", {"2019-04-13"}),
        ("2 de abril de 2020", {"2020-04-02"}),
    ]
