"""Small data sets in the forms in which people put them on the hub, made for the tests."""

import io
import json

from datasets import ClassLabel, Dataset, DatasetDict, Features, Image, List, Value
from folder_pages import picture

SIZE = (600, 400)
"""Width and height of each page."""

WORDS = ("ACME", "Ltd", "Total", "12.50")
PIXELS = ((20, 24, 80, 40), (90, 24, 120, 40), (20, 344, 90, 360), (420, 344, 540, 360))
"""Of the words, on a page of `SIZE`."""

TAGS = ("O", "B-COMPANY", "I-COMPANY", "B-TOTAL", "I-TOTAL")
THOUSANDTHS = tuple(
    tuple(round(1000 * side / SIZE[place % 2]) for place, side in enumerate(box)) for box in PIXELS
)
ENTITIES = [("COMPANY", ("ACME", "Ltd")), ("TOTAL", ("12.50",))]


def png(number=0, size=SIZE):
    """Returns the content of a page; each number gives another one."""
    content = io.BytesIO()
    picture(("ACME Ltd", f"Total {number}"), size).save(content, "PNG")
    return content.getvalue()


def image(number=0, size=SIZE):
    return {"bytes": png(number, size), "path": None}


def tagged(boxes=THOUSANDTHS, words="words", count=3, first=0, **more):
    """Returns a data set as FUNSD (words, bboxes, ner_tags) or its variants have it."""
    features = {
        "id": Value("string"), words: List(Value("string")),
        "bboxes": List(List(Value("float64" if isinstance(boxes[0][0], float) else "int64"))),
        "ner_tags": List(ClassLabel(names=list(TAGS))), "image": Image(),
    }  # fmt: skip
    rows = {
        "id": [str(number) for number in range(count)],
        words: [list(WORDS)] * count,
        "bboxes": [[list(box) for box in boxes]] * count,
        "ner_tags": [[1, 2, 0, 3]] * count,
        "image": [image(first + number) for number in range(count)],
    }
    for name, (feature, values) in more.items():
        features[name], rows[name] = feature, values
    return Dataset.from_dict(rows, Features(features))


def cord(count=2):
    """Returns a data set as naver-clova-ix/cord-v2 has it: an image, and JSON as a text."""

    def line(category, words):
        corners = ("x1", "y1", "x2", "y1", "x2", "y2", "x1", "y2")
        names = ("x1", "y1", "x2", "y2", "x3", "y3", "x4", "y4")
        return {
            "category": category,
            "words": [
                {
                    "text": text,
                    "quad": {
                        name: dict(zip(("x1", "y1", "x2", "y2"), box, strict=True))[corner]
                        for name, corner in zip(names, corners, strict=True)
                    },
                }
                for text, box in words
            ],
        }

    pairs = list(zip(WORDS, PIXELS, strict=True))
    annotation = {
        "gt_parse": {"total": {"total_price": "12.50"}},
        "meta": {"version": "2.0.0", "image_size": {"width": SIZE[0], "height": SIZE[1]}},
        "valid_line": [
            line("COMPANY", pairs[:2]), line("other", pairs[2:3]), line("TOTAL", pairs[3:])
        ],
    }  # fmt: skip
    return Dataset.from_dict(
        {
            "image": [image(number) for number in range(count)],
            "ground_truth": [json.dumps(annotation)] * count,
        },
        Features({"image": Image(), "ground_truth": Value("string")}),
    )


def asked():
    """Returns a data set as lmms-lab/DocVQA has it: a row for each question, without words."""
    return Dataset.from_dict(
        {
            "questionId": ["7", "8", "9"],
            "question": ["Who?", "How much?", "How much?"],
            "image": [image(0), image(0), image(1)],
            "docId": [1, 1, 2],
            "ucsf_document_id": ["aaaa", "aaaa", "bbbb"],
            "answers": [["ACME Ltd", "ACME"], ["0"], ["1"]],
        },
        Features(
            {
                "questionId": Value("string"), "question": Value("string"), "image": Image(),
                "docId": Value("int32"), "ucsf_document_id": Value("string"),
                "answers": List(Value("string")),
            }
        ),
    )  # fmt: skip


def split(train, test):
    return DatasetDict({"train": train, "test": test})


def save(data, folder):
    data.save_to_disk(str(folder))
    return str(folder)
