"""How well Tesseract reads the receipts of SROIE, against the lines and boxes that it gives.

Word recall is the share of a receipt's words that Tesseract reads to the last letter or digit, in
their line. The character error is the edit distance of a line to what stands in its box, over its
length, without white space and case; a line counts as 1 at most. SROIE's lines are in capitals in
part and were typed by people, with errors of their own, so neither number can be perfect.

    FEDPRIV_DATA=... python benchmarks/ocr_accuracy.py --receipts 20 --layouts 3 4 6
"""

import argparse
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from rapidfuzz.distance import Levenshtein

from fedpriv.data.document import bounding_box
from fedpriv.data.folder import tesseract
from fedpriv.data.folder.placing import place_fields, plain
from fedpriv.data.folder.progress import cores
from fedpriv.data.readers.sroie import Sroie


def score(document, layout):
    """Returns word recall and character error of a receipt, and the share of its fields found."""
    read = tesseract.recognise(document.pixels(), "eng", layout)
    lines = {}
    for word in document.words:
        lines.setdefault(word.segment, []).append(word)
    found = words = distance = letters = 0
    for line in lines.values():
        left, top, right, bottom = bounding_box(word.box for word in line)
        inside = [
            word.text
            for word in read
            if left - 3 <= (word.box[0] + word.box[2]) / 2 <= right + 3
            and top - 3 <= (word.box[1] + word.box[3]) / 2 <= bottom + 3
        ]
        left_over = [plain(text) for text in inside]
        for word in filter(None, (plain(word.text) for word in line)):
            words += 1
            if word in left_over:
                left_over.remove(word)
                found += 1
        right_text = "".join(word.text for word in line).casefold()
        text = "".join(inside).casefold()
        distance += min(Levenshtein.distance(right_text, text), len(right_text))
        letters += len(right_text)
    fields = {question.key: question.answers[0] for question in document.questions}
    placed = place_fields([read], fields)
    of_boxes = place_fields([document.words], fields)
    shares = [np.mean([p is not None for p in places.values()]) for places in (placed, of_boxes)]
    return found / words, distance / letters, *shares


def main():
    """Prints mean, standard deviation, median and range over receipts, for each layout."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--receipts", type=int, default=20)
    parser.add_argument("--layouts", type=int, nargs="+", default=[3])
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    documents = Sroie(Path(os.environ["FEDPRIV_DATA"]) / "open" / "sroie").load().documents
    count = min(given.receipts, len(documents))
    chosen = np.random.default_rng(given.seed).choice(len(documents), count, replace=False)
    print(f"{tesseract.version()}, {count} receipts of SROIE, seed {given.seed}, {cores()} cores")
    for layout in given.layouts:
        began = time.monotonic()
        with ThreadPoolExecutor(cores()) as pool:
            scores = list(pool.map(lambda i, psm=layout: score(documents[i], psm), sorted(chosen)))
        seconds = time.monotonic() - began
        print(f"layout {layout}: {60 * count / seconds:.0f} pages a minute")
        names = ("word recall", "character error", "fields found", "fields found in SROIE's words")
        for name, values in zip(names, np.array(scores).T, strict=True):
            print(
                f"  {name:<30} {values.mean():.3f} ± {values.std(ddof=1):.3f}, median "
                f"{np.median(values):.3f}, {values.min():.3f} to {values.max():.3f}"
            )


if __name__ == "__main__":
    main()
