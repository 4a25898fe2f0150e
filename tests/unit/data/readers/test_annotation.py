"""Values out of annotation files: what is taken and what is refused."""

import pytest
from form_folders import write_docile

from fedpriv.cli.data.recognise import recognise
from fedpriv.data.readers.annotation import (
    around,
    blank_page,
    encodable,
    fitted,
    is_file,
    member,
    numbers,
    page_size,
    plain_name,
    scale_to,
)
from fedpriv.data.reading import shown


def test_numbers_are_finite_and_of_the_right_count():
    assert numbers([1, 2.5, -3], 3) == (1.0, 2.5, -3.0)


@pytest.mark.parametrize(
    "values",
    [
        [1],
        [1, 2, 3],
        [1, True],
        [1, "2"],
        [1, None],
        [1, [2]],
        [1, 10**400],
        [1, float("nan")],
        [1, float("inf")],
        "12",
        None,
        5,
        {"x": 1, "y": 2},
    ],
)
def test_what_is_not_two_numbers_is_shown(values):
    with pytest.raises(ValueError, match="expected 2 finite numbers, found"):
        numbers(values, 2)


def test_a_member_is_of_its_kind():
    assert member({"a": []}, "a", list) == []
    with pytest.raises(ValueError, match="expected a whole number for 'a', found True"):
        member({"a": True}, "a", int)
    with pytest.raises(ValueError, match="expected an object with 'a', found None"):
        member(None, "a", int)


def test_half_a_surrogate_pair_is_no_text():
    assert encodable("é\0") == "é\0"
    with pytest.raises(ValueError, match="half a surrogate pair"):
        encodable("a\udc00")


def test_boxes_are_around_their_corners_then_scaled_and_clipped():
    assert around([9, 8, 1, 8, 1, 2, 9, 2]) == (1, 2, 9, 8)
    assert fitted((2, 4, 6, 8), (0.5, 2.0), (100, 100)) == (1, 8, 3, 16)
    assert fitted((-1, 0, 5, 5), (1.0, 1.0), (100, 100)) == (0, 0, 5, 5)
    with pytest.raises(ValueError, match="the box 2, 4, 60, 8 does not fit the page of 50 × 50"):
        fitted((2, 4, 60, 8), (1.0, 1.0), (50, 50))


@pytest.mark.parametrize(
    ("stated", "factors"),
    [((200, 400), (0.5, 0.5)), ((100, 200), (1, 1)), ((201, 400), (100 / 201, 0.5))],
)
def test_a_shrunk_image_keeps_its_shape(stated, factors):
    assert scale_to((100, 200), stated) == factors


def test_another_shape_is_another_image():
    with pytest.raises(ValueError, match=r"100 × 200 pixels, which is no .* of .*205 × 4"):
        scale_to((100, 200), (205, 400))


@pytest.mark.parametrize("size", [(0, 5), (5, -1), (10**5, 10**4), (float("inf"), 1), (1e300, 2)])
def test_a_page_has_a_possible_size(size):
    with pytest.raises(ValueError, match="expected sides of at least 1"):
        page_size(*size)


def test_a_blank_page_is_white_and_takes_no_memory():
    page = blank_page((3, 2))
    assert page.shape == (2, 3)
    assert page.min() == page.max() == 255
    assert blank_page((10_000, 10_000)).base.nbytes == 1


def test_a_path_too_long_is_no_file(tmp_path):
    assert not is_file(tmp_path / ("x/" * 3000))
    (tmp_path / "f").touch()
    assert is_file(tmp_path / "f")


def test_a_value_in_a_message_stays_short_however_wide_and_deep():
    value = ["x" * 1000] * 9
    for _ in range(8):
        value = [value] * 9
    assert len(shown(value)) <= 400
    assert len(shown({"k" * 99: value, "other": [b"\0" * 10**6]})) <= 400
    assert shown([[3, "a\x1b"]]) == "[[3, 'a\\x1b']]"
    assert shown(10**5000) == "a int too long to show"


def test_names_that_differ_in_case_and_signs_are_one():
    assert plain_name("Café & Co. 7") == plain_name("CAFÉ-CO 7") == "CAFÉCO7"


def test_of_docile_the_official_lists_are_read(tmp_path):
    for split in ("debug", "train", "trainval"):
        write_docile(tmp_path, split, split)
    assert [document.id for document in recognise(tmp_path).load().documents] == ["train"]
