"""How much of a batch an attack recovered: the only place where findings meet the truth.

Scores of pages are means over the B pages behind a message, those of reading means over their
private fields, those of text over tokens. A score that does not apply is none, and stays out of
the mean over messages. The keys:

- `psnr_page`, `ssim_page`: over all pixels. Where the template is known, most of them are given.
- `psnr_roi`, `ssim_roi`, `mse`, `mse_uint8_wrapped`: over the pixels in the boxes of the private
  fields; the latter two over the page where no box is known.
- `fft_distance`: between the crops of the private fields; of the pages where no box is known.
- `template_psnr_page`, `template_psnr_roi`: of the template itself, in place of what was
  recovered. An attack that does not beat them has learnt nothing.
- `exact_match`, `fuzz_ratio`: of what is read on the private crops; `ocr_ceiling`: the exact match
  on the original crops. None where nobody reads.
- `fields`: how many private fields the model's pages show.
- `token_precision`, `token_recall`: of tokens, each as often as it occurs; `token_set_precision`,
  `token_set_recall`: of different tokens.
- `exact_position`: share of the true pairs of place and token that were found; `boxes_exact`: share
  of those with a box that were found with it. Of several examples, the pairs of any.
- `question_exact`, `answer_exact`: of single examples, as `exact_match`.
- `private_text`: share of the private fields all of whose words are among the recovered tokens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from fedpriv.metrics.images import fft_distance, mse, mse_uint8_wrapped, psnr, ssim
from fedpriv.metrics.ocr import OCR, Crop, exact_match, fuzz_ratio
from fedpriv.models.question_answering import QUESTION
from fedpriv.threat.attack import Recovered
from fedpriv.threat.claims import RecoveredText
from fedpriv.threat.truth import Field, Truth

Scores = dict[str, float | None]

Pieces = Callable[[Sequence[str]], Sequence[Sequence[int]]]
"""Returns the token ids of each word, as `Subwords.pieces`."""

Pages = NDArray[Any]
Mask = NDArray[np.bool_]

PAGE_SCORES = (
    *("psnr_page", "psnr_roi", "ssim_page", "ssim_roi", "fft_distance", "mse"),
    *("mse_uint8_wrapped", "template_psnr_page", "template_psnr_roi"),
    *("exact_match", "fuzz_ratio", "ocr_ceiling", "fields"),
)
TEXT_SCORES = (
    *("token_precision", "token_recall", "token_set_precision", "token_set_recall"),
    *("exact_position", "boxes_exact", "question_exact", "answer_exact", "private_text"),
)

CROP_MARGIN = 2
"""Pixels around a field's box that are read with it."""

_SMALLEST_SSIM = 11


def score(
    recovered: Recovered,
    truth: Truth,
    template: NDArray[np.uint8] | None,
    ocr: OCR | None,
    pieces: Pieces | None = None,
) -> Scores:
    """Returns every score of the module's list for one message.

    A gradient does not say in which order its batch was: recovered pages are first assigned to the
    true ones, each to one, so that the sum of squared differences is least. Pixels are clipped to
    0…255; those that are no numbers count as black.

    Args:
        recovered: what an attack made of the message.
        truth: the batch behind it, B examples.
        template: what was known of the pages, (B, 3, H, W), in the order of the truth.
        ocr: reads the private crops.
        pieces: of the model's tokenizer, for `private_text`.

    Raises:
        ValueError: if pages have another shape than the true ones.
    """
    return {
        **_of_pages(recovered.pages, truth, template, ocr),
        **_of_text(recovered.text, truth, pieces),
    }


def summary(scores: Sequence[Scores]) -> Scores:
    """Returns the mean of each score over the messages that have it; the sum of `fields`."""
    names = dict.fromkeys(name for one in scores for name in one)
    means = {name: _mean(one.get(name) for one in scores) for name in names}
    fields = [count for one in scores if (count := one.get("fields")) is not None]
    return {**means, "fields": sum(fields)} if fields else means


def matched(recovered: Pages, pixels: NDArray[np.uint8]) -> Pages:
    """Returns the recovered pages in the order of the true ones that they are likest, in MSE.

    Args:
        recovered: (B, 3, H, W).
        pixels: the true pages, likewise.

    Raises:
        ValueError: if the shapes differ.
    """
    if recovered.shape != pixels.shape:
        raise ValueError(f"recovered pages of {recovered.shape}, true pages of {pixels.shape}")
    costs = [[mse(true, page) for page in recovered] for true in pixels]
    _, order = linear_sum_assignment(np.array(costs))
    ordered: Pages = recovered[order]
    return ordered


# --- Pages ----------------------------------------------------------------------------------------


def _of_pages(
    recovered: Pages | None,
    truth: Truth,
    template: NDArray[np.uint8] | None,
    ocr: OCR | None,
) -> Scores:
    scores: Scores = dict.fromkeys(PAGE_SCORES)
    if recovered is None or truth.pixels is None:
        return scores
    pages = matched(_displayed(recovered), truth.pixels)
    shown = [[f for f in page if _shows(f)] for page in truth.fields] or [[] for _ in pages]
    masks = [_mask(fields, truth.pixels.shape[2:]) for fields in shown]
    scores.update(_of_pixels(pages, truth.pixels, masks, shown))
    if template is not None:
        whole, private = _psnr(truth.pixels, template, masks)
        scores.update(template_psnr_page=whole, template_psnr_roi=private)
    scores["fields"] = float(sum(map(len, shown)))
    return {**scores, **_of_reading(pages, truth.pixels, shown, ocr)}


def _of_pixels(
    pages: Pages,
    pixels: Pages,
    masks: Sequence[Mask | None],
    shown: Sequence[Sequence[Field]],
) -> Scores:
    whole, private = _psnr(pixels, pages, masks)
    triples = list(zip(pixels, pages, masks, strict=True))
    large = min(pixels.shape[2:]) >= _SMALLEST_SSIM
    crops = [
        pair
        for true, page, fields in zip(pixels, pages, shown, strict=True)
        for pair in ([(_crop(true, f, 0), _crop(page, f, 0)) for f in fields] or [(true, page)])
    ]
    return {
        "psnr_page": whole,
        "psnr_roi": private,
        "ssim_page": _mean(ssim(a, b) for a, b, _ in triples if large),
        "ssim_roi": _mean(ssim(a, b, m) for a, b, m in triples if large and m is not None),
        "fft_distance": _mean(fft_distance(a, b) for a, b in crops),
        "mse": _mean(mse(a, b, m) for a, b, m in triples),
        "mse_uint8_wrapped": _mean(mse_uint8_wrapped(a, b, m) for a, b, m in triples),
    }


def _psnr(
    pixels: Pages, pages: Pages, masks: Sequence[Mask | None]
) -> tuple[float | None, float | None]:
    triples = list(zip(pixels, pages, masks, strict=True))
    whole = _mean(psnr(a, b) for a, b, _ in triples)
    return whole, _mean(psnr(a, b, m) for a, b, m in triples if m is not None)


def _of_reading(
    pages: Pages, pixels: Pages, shown: Sequence[Sequence[Field]], ocr: OCR | None
) -> Scores:
    fields = [(place, field) for place, page in enumerate(shown) for field in page]
    if ocr is None or not fields:
        return {}
    crops = [_image(_crop(kind[p], f, CROP_MARGIN)) for kind in (pages, pixels) for p, f in fields]
    read, right = ocr.read(crops), [field.text for _, field in fields]
    ours, originals = read[: len(fields)], read[len(fields) :]
    return {
        "exact_match": _mean(map(exact_match, ours, right)),
        "fuzz_ratio": _mean(map(fuzz_ratio, ours, right)),
        "ocr_ceiling": _mean(map(exact_match, originals, right)),
    }


def _displayed(pages: Pages) -> Pages:
    clean = np.nan_to_num(pages.astype(np.float64), nan=0.0)
    clipped: Pages = np.clip(clean, 0, 255)
    return clipped


def _shows(field: Field) -> bool:
    left, top, right, bottom = field.box
    return left < right and top < bottom


def _mask(fields: Sequence[Field], size: tuple[int, ...]) -> Mask | None:
    """Returns the pixels in the boxes, (H, W); none where there is no box."""
    mask = np.zeros(size, dtype=np.bool_)
    for left, top, right, bottom in (field.box for field in fields):
        mask[top:bottom, left:right] = True
    return mask if mask.any() else None


def _crop(page: Pages, field: Field, margin: int) -> Pages:
    left, top, right, bottom = field.box
    rows = slice(max(0, top - margin), bottom + margin)
    crop: Pages = page[:, rows, max(0, left - margin) : right + margin]
    return crop


def _image(crop: Pages) -> Crop:
    image: Crop = np.moveaxis(np.round(crop), 0, -1).astype(np.uint8)
    return image


# --- Text -----------------------------------------------------------------------------------------


def _of_text(text: RecoveredText | None, truth: Truth, pieces: Pieces | None) -> Scores:
    scores: Scores = dict.fromkeys(TEXT_SCORES)
    if text is None:
        return scores
    if "input_ids" in truth.columns:
        scores.update(_of_tokens(text, truth.columns))
    if QUESTION in truth.columns and len(truth.questions) == 1:
        scores["question_exact"] = _same(text.question, truth.questions[0])
        scores["answer_exact"] = _same(text.answer, truth.answers[0])
    if pieces is not None:
        scores["private_text"] = _private_text(text, truth.fields, pieces)
    return scores


def _of_tokens(text: RecoveredText, columns: Mapping[str, NDArray[Any]]) -> Scores:
    ids, read = columns["input_ids"], _read(columns)
    true = Counter([*ids[read].tolist(), *_written(columns)])
    found = Counter(text.tokens[:, 1].tolist())
    both, either = (true & found).total(), len(true.keys() & found.keys())
    pairs = set(zip(np.nonzero(read)[1].tolist(), ids[read].tolist(), strict=True))
    found_pairs = set(map(tuple, text.tokens.tolist()))
    return {
        "token_precision": _share(both, found.total()),
        "token_recall": _share(both, true.total()),
        "token_set_precision": _share(either, len(found)),
        "token_set_recall": _share(either, len(true)),
        "exact_position": _share(len(pairs & found_pairs), len(pairs)),
        "boxes_exact": _boxes_exact(text, columns, read),
    }


def _boxes_exact(
    text: RecoveredText, columns: Mapping[str, NDArray[Any]], read: Mask
) -> float | None:
    if text.boxes is None or "bbox" not in columns:
        return None
    bbox = columns["bbox"]
    boxed = read & bbox.any(-1)
    places = np.nonzero(boxed)[1]
    true = np.column_stack([places, columns["input_ids"][boxed], bbox[boxed]])
    found = np.column_stack([text.tokens, text.boxes])
    wanted = set(map(tuple, true.tolist()))
    return _share(len(wanted & set(map(tuple, found.tolist()))), len(wanted))


def _read(columns: Mapping[str, NDArray[Any]]) -> Mask:
    """Returns which places of `input_ids` hold text, (B, L).

    Of models without an attention mask, whose labels are the next tokens, all up to the last label.
    """
    ids = columns["input_ids"]
    if "attention_mask" in columns:
        attended: Mask = columns["attention_mask"] > 0
        return attended
    if "labels" not in columns:
        return np.ones(ids.shape, dtype=np.bool_)
    later: Mask = np.logical_or.accumulate(columns["labels"][:, ::-1] >= 0, axis=1)[:, ::-1]
    return later


def _written(columns: Mapping[str, NDArray[Any]]) -> list[int]:
    """Returns the tokens that a decoder of its own read: its answer but for the end.

    Labels as long as the input are tags, or the input's own next tokens.
    """
    labels = columns.get("labels")
    if labels is None or labels.shape == columns["input_ids"].shape:
        return []
    return [token for row in labels for token in row[row >= 0][:-1].tolist()]


def _private_text(
    text: RecoveredText, fields: Iterable[Sequence[Field]], pieces: Pieces
) -> float | None:
    found = set(text.tokens[:, 1].tolist())
    known = [
        all(found.issuperset(tokens) for tokens in words)
        for page in fields
        for field in page
        if any(words := pieces(field.text.split()))
    ]
    return _mean(known)


def _same(found: str | None, right: str) -> float:
    return float(found is not None and exact_match(found, right))


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _mean(values: Iterable[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return float(np.mean(there)) if there else None
