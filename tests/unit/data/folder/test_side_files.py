"""Words beside a page: the same page in each format, and what is refused."""

import json
import re
from pathlib import Path

import pytest
from folder_pages import ALTO, DOCTR, HOCR, OURS, SIDES, TEXTRACT

from fedpriv.data.document import DataError, Word
from fedpriv.data.folder.side_files import parse_side_file, words_on

PATH = Path("page.any")
WORDS = (
    Word("ACME", (20.0, 20.0, 80.0, 40.0), 0),
    Word("Ltd", (90.0, 20.0, 120.0, 40.0), 0),
    Word("12.50", (20.0, 60.0, 80.0, 80.0), 1),
)


def parsed(content):
    text = content if isinstance(content, str) else json.dumps(content)
    return parse_side_file(PATH, text.encode())


@pytest.mark.parametrize("name", SIDES)
def test_every_format_gives_the_same_words(name):
    (page,) = parsed(SIDES[name])
    for factor in (1, 2):  # of a page that was drawn larger than the words were read
        words = words_on(page, (300 * factor, 200 * factor))
        assert [(word.text, word.segment) for word in words] == [
            (word.text, word.segment) for word in WORDS
        ]
        for word, expected in zip(words, WORDS, strict=True):
            assert word.box == pytest.approx([factor * side for side in expected.box])


def test_several_pages_of_each_format():
    assert len(parsed({"pages": [OURS, OURS]})) == 2
    assert len(parsed({"pages": DOCTR["pages"] * 3})) == 3
    blocks = [{**block, "Page": n, "Id": f"{block['Id']}{n}"} for n in (2, 1)
              for block in TEXTRACT["Blocks"]]  # fmt: skip
    assert [len(page.words) for page in parsed({"Blocks": blocks})] == [3, 3]
    page = HOCR[HOCR.index("<div") : HOCR.index("</body>")]
    assert len(parsed(HOCR.replace(page, page * 2))) == 2
    page = ALTO[ALTO.index("<Page") : ALTO.index("</Layout>")]
    assert len(parsed(ALTO.replace(page, page * 2))) == 2


def test_words_without_a_size_are_in_pixels_of_the_page():
    (page,) = parsed({"words": OURS["words"]})
    assert words_on(page, (300, 200)) == WORDS


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "expected our JSON, docTR's, Textract's, hOCR or ALTO, found other content"),
        ("PK\x03\x04", "found other content"),
        ({"invoice": 3}, "found JSON with 'invoice'"),
        ({"words": [{"text": "a", "box": [0, 0, 1]}]}, r"words\[0\]: expected 4 finite numbers"),
        ({"words": [{"text": "a", "box": [0, 0, 1, "x"]}]}, r"words\[0\]: expected 4 finite"),
        ({"words": ["a"]}, r"words\[0\]: expected an object with 'text'"),
        ({"Blocks": []}, "found none"),
        ({"Blocks": [{"BlockType": "WORD", "Id": "a", "Page": 0}]}, "a page from 1 on, found 0"),
        ("<a>", "line 1: not well-formed XML"),
        ("<a/>", "XML without pages, 'a': expected hOCR"),
        (HOCR.replace("bbox 90 20 120 40", "bbox 90 20"), "line 8: expected a title with bbox"),
        (
            '<!DOCTYPE a [<!ENTITY b "bb"><!ENTITY c "&b;&b;">]><a>&c;</a>',
            "declares entities of its own",
        ),
        ('<!DOCTYPE a [<!ENTITY b SYSTEM "/etc/passwd">]><a>&b;</a>', "declares entities"),
        ("{" * 100_000, "not JSON|nested too deeply"),
        ('{"words": [{"text": "\\ud800", "box": [0, 0, 1, 1]}]}', "half a surrogate pair"),
    ],
)
def test_other_content_is_refused_with_its_path(content, says):
    with pytest.raises(DataError, match=says) as caught:
        parsed(content)
    assert caught.value.path == PATH


PAGE_XML = """<PcGts xmlns="http://schema.primaresearch.org/PAGE/gts/pagecontent/2019-07-15">
<Page imageWidth="300" imageHeight="200"><TextLine><Word><Coords points="1,1 9,9"/><TextEquiv>
<Unicode>ACME</Unicode></TextEquiv></Word></TextLine></Page></PcGts>"""
LINES_ONLY = [block for block in TEXTRACT["Blocks"] if block["BlockType"] == "LINE"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (PAGE_XML, "PAGE XML is not read: it holds text, such as 'ACME', and no word"),
        (
            HOCR.replace("ocrx_word", "ocrx_cinfo"),
            "hOCR with text outside of ocrx_word is not read: .* 'ACME'",
        ),
        (ALTO.replace("CONTENT", "content"), "a String without CONTENT"),
        ({"Blocks": LINES_ONLY}, "a LINE of text, 'ACME Ltd', without its WORDs"),
        (
            {
                "Blocks": [
                    *TEXTRACT["Blocks"],
                    {**LINES_ONLY[0], "Id": "x", "Relationships": [], "Text": "Lost"},
                ]
            },
            "a LINE of text, 'Lost', without",
        ),
        (
            HOCR.replace("</div>", "<span class='ocr_line'>Lost</span></div>"),
            "such as 'Lost', in no",
        ),
        ({"pages": [OURS, {"words": [], "text": "Lost"}]}, "such as 'Lost', and no word"),
        ({"words": [], "lines": ["Lost 12.00"]}, "such as 'Lost 12.00', and no word"),
        ({"words": [], "text": "ACME Ltd"}, "it holds text, such as 'ACME Ltd', and no word"),
        ({"pages": [{"words": [], "lines": [{"content": "ACME"}]}]}, "such as 'ACME', and no word"),
        ({**TEXTRACT, "NextToken": "abc"}, "a part of Textract's answer: NextToken says"),
        ([TEXTRACT, {**TEXTRACT, "NextToken": "abc"}], "a part of Textract's answer"),
        ({**TEXTRACT, "JobStatus": "IN_PROGRESS"}, "not whole: JobStatus 'IN_PROGRESS'"),
        ({**TEXTRACT, "JobStatus": "PARTIAL_SUCCESS"}, "not whole: JobStatus 'PARTIAL_SUCCESS'"),
    ],
)
def test_text_is_never_read_as_no_words(content, says):
    with pytest.raises(DataError, match=says) as caught:
        parsed(content)
    assert caught.value.path == PATH


def test_a_blank_page_has_no_words_in_any_format():
    for blank in (
        {"words": []},
        {"words": [], "description": "blank back side"},
        {"pages": [{"blocks": []}]},
        {"Blocks": [{"BlockType": "PAGE", "Id": "p"}], "meta": {"value": "v1.2"}},
        HOCR[: HOCR.index("<span")] + HOCR[HOCR.index("</div>") :],
        re.sub("<String[^>]*/>", "", ALTO),
    ):
        (page,) = parsed(blank)
        assert page.words == []


def test_the_parts_of_a_long_answer_of_textract_are_one():
    blocks = TEXTRACT["Blocks"]
    parts = [{"Blocks": blocks[:2], "NextToken": "abc"}, {"Blocks": blocks[2:]}]
    assert parsed(parts) == parsed(TEXTRACT)


def test_boxes_must_fit_the_page():
    (page,) = parsed({"words": [{"text": "a", "box": [0, 0, 400, 10]}]})
    with pytest.raises(ValueError, match="does not fit the page of 300 × 200 pixels"):
        words_on(page, (300, 200))
    (page,) = parsed(OURS)
    with pytest.raises(ValueError, match="no scaled form"):
        words_on(page, (200, 300))
