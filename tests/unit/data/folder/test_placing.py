"""Fields are found on their page, as the page writes them, and nowhere else."""

import pytest

from fedpriv.data.document import Word
from fedpriv.data.folder.placing import place_fields


def page(*lines):
    """Returns the words of lines, 10 pixels for each letter, 20 for each line."""
    words = []
    for row, line in enumerate(lines):
        left = 0.0
        for text in line.split():
            words.append(
                Word(text, (left, 20.0 * row, left + 10 * len(text), 20.0 * row + 15), row)
            )
            left += 10 * (len(text) + 1)
    return words


def found(words, **fields):
    """Returns the text of each field on one page."""
    places = place_fields([words], fields)
    return {
        name: place and " ".join(word.text for word in words[place[1] : place[2]])
        for name, place in places.items()
    }


RECEIPT = page(
    "ACME Trading Sdn. Bhd.",
    "12, Jalan Tun Razak",
    "Invoice No: INV-20231",
    "DATE:25/12/2018 10:30",
    "Subtotal 9.00",
    "Total RM 1,234.50",
    "Cash 1,300.00",
)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("company", "Acme Trading SDN BHD", "ACME Trading Sdn. Bhd."),
        ("company", "ACME Tradlng Sdn Bhd", "ACME Trading Sdn. Bhd."),
        ("address", "12 Jalan Tun Razak", "12, Jalan Tun Razak"),
        ("number", "INV20231", "INV-20231"),
        ("number", "INV-20232", None),
        ("date", "2018-12-25", "DATE:25/12/2018"),
        ("date", "25 December 2018", "DATE:25/12/2018"),
        ("date", "24.12.2018", None),
        ("total", "1234.5 RM", "RM 1,234.50"),
        ("total", "1.234,50", "1,234.50"),
        ("total", "1234.60", None),
        ("subtotal", "9.00", "9.00"),
        ("nothing", "- .", None),
        ("other", "Globex Corporation", None),
    ],
)
def test_where_a_value_stands(name, value, text):
    assert found(RECEIPT, **{name: value}) == {name: text}


@pytest.mark.parametrize(
    ("lines", "value", "text"),
    [
        (("3.68 0.22", "24-11-17"), "24-11-17", "24-11-17"),
        (("3.68 0.22 24-11-17",), "24-11-17", "24-11-17"),
        (("3.68 0.22", "24/11/2017"), "24/11/2017", "24/11/2017"),
        (("12.00 5.00", "03-02-18 13:00"), "03-02-18", "03-02-18"),
        (("1 12.00 5.00", "3 Feb 2018 13:00"), "03/02/2018", "3 Feb 2018"),
    ],
)
def test_a_date_takes_no_numbers_beside_it(lines, value, text):
    assert found(page(*lines), date=value) == {"date": text}


def test_of_several_places_the_one_beside_the_fields_name():
    words = page("Paid 5.00", "Total 5.00", "Change 5.00")
    assert place_fields([words], {"total": "5.00"}) == {"total": (0, 3, 4)}
    assert place_fields([words], {"price": "5.00"}) == {"price": (0, 5, 6)}


def test_a_word_belongs_to_one_field():
    words = page("1/2/2024 1/2/2024")
    places = place_fields([words], {"issued": "1/2/2024", "due": "1/2/2024", "paid": "1/2/2024"})
    assert places == {"issued": (0, 0, 1), "due": (0, 1, 2), "paid": None}


def test_the_best_page_of_a_file():
    pages = [page("nothing here"), page("Globex Corp"), page("Globex Corporation")]
    assert place_fields(pages, {"name": "Globex Corporation"}) == {"name": (2, 0, 2)}


SHEET = page(
    "Invoice no 777", "Date 2 de septiembre de 2016", "Total 777.00", "paid 1 234,50 €", "- 45.00"
)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("date", "2016-09-02", "2 de septiembre de 2016"),
        ("paid", "1234.5", "1 234,50"),
        ("refund", "-45", "- 45.00"),
        ("number", "777", "777"),
        ("total", "777", "777.00"),  # beside the name
        ("sum", "777", "777"),  # as it is written
        ("number", "778", None),
    ],
)
def test_a_value_of_several_words_or_without_its_cents(name, value, text):
    assert found(SHEET, **{name: value}) == {name: text}


def test_a_whole_number_is_an_amount_where_others_of_its_column_are():
    assert place_fields([SHEET], {"sum": "777"}, money=["sum"]) == {"sum": (0, 10, 11)}
    assert place_fields([SHEET], {"sum": "778"}, money=["sum"]) == {"sum": None}


@pytest.mark.parametrize(
    "text",
    ["١٬٢٣٤٫٥٠", "۱۲۳۴٫۵", "१,२३४.५०", "1’234.50", "RM1,234 .50", "1 234 . 50", "1.234 € 50"],
)
def test_an_amount_in_other_digits_and_signs(text):
    assert found(page(f"total {text}"), total="1234.50") == {"total": text}


def test_of_days_that_read_alike_the_one_that_is_written_so():
    words = page("04/03/2024", "03/04/2024", "3 April 2024")
    assert found(words, date="03/04/2024") == {"date": "03/04/2024"}
    assert found(words, date="2024-04-03") == {"date": "3 April 2024"}
