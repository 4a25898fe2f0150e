"""How much of a batch an attack recovered: where `RecoveredBatch` meets the truth.

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

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from fedpriv.metrics.images import fft_distance, mse, mse_uint8_wrapped, psnr, ssim
from fedpriv.metrics.ocr import OCR, Crop, exact_match, fuzz_ratio
from fedpriv.models.question_answering import QUESTION
from fedpriv.models.readers.subwords import Subwords
from fedpriv.threat.access import Architecture, BatchKnowledge, MessageKey
from fedpriv.threat.claims import RecoveredBatch, RecoveredText
from fedpriv.threat.results import (
    CANNOT_TELL,
    DONE,
    LEAK,
    NONE_SHOWN,
    Figure,
    Number,
    Result,
    Table,
)
from fedpriv.threat.scoring.registry import Scoring, scorer
from fedpriv.threat.scoring.summaries import mean_of
from fedpriv.threat.scoring.verdicts import exploratory, number
from fedpriv.threat.statistics import LEVEL, POWER, Estimate, median
from fedpriv.threat.truth import Field, Truth, TruthStore

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

SHOWN: Mapping[str, tuple[str, str]] = {
    "psnr_roi": ("PSNR, private fields", "{:.1f} dB"),
    "psnr_page": ("PSNR, page", "{:.1f} dB"),
    "ssim_roi": ("SSIM, private fields", "{:.3f}"),
    "fft_distance": ("FFT distance", "{:.4f}"),
    "exact_match": ("fields read exactly", "{:.0%}"),
    "fuzz_ratio": ("fuzz ratio", "{:.2f}"),
    "token_recall": ("tokens found", "{:.0%}"),
    "exact_position": ("tokens at their place", "{:.0%}"),
    "answer_exact": ("answers exact", "{:.0%}"),
    "evaluations": ("gradients computed", "{:.0f}"),
    "seconds": ("CPU seconds", "{:.1f}"),
}
"""Columns of the table: the score's name, its heading and how a value is written."""

MOST_PAGES = 4
"""Pages of one attack that the report shows."""

WORTH = {"psnr_roi": 3.0, "private_text": 0.25, "answer_exact": 0.25, "token_recall": 0.25}
"""Gain over the control that is worth telling: in decibels, and in shares of the text."""

RARE = 0.1
"""Share of recovered messages whose absence is worth telling."""

ENOUGH = math.ceil(math.log(1 - POWER) / math.log(1 - RARE))
"""So many messages, of which a rare one that is recovered would have been among."""

MOST_OTHERS = 8
"""Other messages whose truth a recovered text is held against."""

SMALLEST_SSIM = 11
"""Side of a page below which it has no SSIM."""


@scorer(RecoveredBatch, reads=("ocr", "originals"))
def score_batches(claims: Sequence[RecoveredBatch], scoring: Scoring) -> Result:
    """Scores each message and returns the means over them, with pictures of the pages.

    `by_message` holds the scores of each. `seconds` and `evaluations` are sums: what was taken up
    from an earlier run counts as if it had been computed now.
    """
    knowledge: BatchKnowledge | None = scoring.granted.get(BatchKnowledge)
    known = knowledge.of if knowledge else {}
    templates = {key: one.template for key, one in known.items()}
    truths = {one.message: _truth(scoring.truth, one.message, list(known)) for one in claims}
    pieces = None
    architecture: Architecture | None = scoring.granted.get(Architecture)
    # The tokenizer comes with a model, which may be large: only where there is text to score.
    if architecture and any(one.text is not None for one in claims):
        subwords = getattr(getattr(architecture.build(), "reader", None), "subwords", None)
        pieces = subwords.pieces if isinstance(subwords, Subwords) else None
    scores = {
        one.message: score(one, truth, templates.get(one.message), scoring.settings.ocr, pieces)
        for one in claims
        if (truth := truths[one.message]) is not None
    }
    numbers: dict[str, Any] = {
        **summary(list(scores.values())),
        "evaluations": sum(one.evaluations for one in claims),
        "seconds": sum(one.seconds for one in claims) or scoring.seconds,
        "messages": len(claims),
    }
    columns = [name for name in SHOWN if numbers.get(name) is not None]
    tables = [
        Table(
            ("messages", *(SHOWN[name][0] for name in columns)),
            ((str(len(claims)), *(SHOWN[n][1].format(numbers[n]) for n in columns)),),
            title="Recovered",
            note=_beaten(numbers),
            public=True,
        )
    ]
    if read := _texts(claims):
        headings = ("message", "tokens", "question read", "answer read")
        tables.append(Table(headings, read, title="Text", printed=0))
    numbers["by_message"] = [{"round": r, "client": c, **of} for (r, c), of in scores.items()]
    shown = truths if scoring.settings.originals else {}
    chance = {} if len(scores) < 2 else _texts_elsewhere(claims, truths, pieces)
    gains = gains_of(scores, chance)
    recovered = {
        f"{name}_gain": number(median(own), "message", Estimate.known(0.0))
        for name, own in gains.items()
    }
    primary, told, why = _told(gains, recovered)
    return Result(
        "pages",
        _headline(numbers, len(claims)) + why,
        numbers,
        tuple(tables),
        tuple(_figures(claims, templates, shown, scoring.files)),
        status=DONE if scores else "not scored: the simulation kept no truth",
        verdict=told,
        primary=primary,
        numbers=exploratory(recovered, primary),
    )


def _texts(claims: Sequence[RecoveredBatch]) -> tuple[tuple[str, ...], ...]:
    """Returns what was read out of the first messages, a row each."""
    return tuple(
        (
            message_name(one.message).replace("-", " "),
            str(len(one.text.tokens)),
            one.text.question or "—",
            one.text.answer or "—",
        )
        for one in claims[:MOST_PAGES]
        if one.text is not None
    )


def _texts_elsewhere(
    claims: Sequence[RecoveredBatch],
    truths: Mapping[MessageKey, Truth | None],
    pieces: Pieces | None,
) -> dict[MessageKey, Scores]:
    """Returns what each recovered text scores on average against other messages' truths.

    Frequent words are found in any batch, and all of them by who claims the whole vocabulary.
    """
    return {
        one.message: summary(
            [
                _of_text(one.text, truth, pieces)
                for key, truth in truths.items()
                if key != one.message and truth is not None
            ][:MOST_OTHERS]
        )
        for one in claims
        if one.text is not None
    }


def gains_of(
    scores: Mapping[MessageKey, Scores], chance: Mapping[MessageKey, Scores]
) -> dict[str, list[float]]:
    """Returns how far each message's scores are above their control.

    That of the private fields is the template's; that of text, what the same text scores elsewhere.
    Of a single message there is no elsewhere: then its text counts where most of the tokens that
    it claims are right.
    """
    found: dict[str, list[float]] = {}
    for key, one in scores.items():
        for name in WORTH:
            value = one.get(name)
            if name == "psnr_roi":
                control = one.get("template_psnr_roi")
            elif chance:
                control = chance.get(key, {}).get(name)
            else:
                control = 0.0 if (one.get("token_precision") or 0.0) >= 1 / 2 else value
            if value is not None and control is not None:
                found.setdefault(name, []).append(value - control)
    return found


def _told(
    gains: Mapping[str, Sequence[float]], recovered: Mapping[str, Number]
) -> tuple[str, str, str]:
    """Returns the primary number, its verdict, and the end of a sentence why nothing can be told.

    One batch is enough for a leak, but not to show that there is none.
    """
    if not gains:
        return "", CANNOT_TELL, ""
    name, own = next(iter(gains.items()))
    primary = f"{name}_gain"
    if max(own) >= WORTH[name]:
        return primary, LEAK, ""
    # An attack that ends below its control has failed, and shows nothing.
    middle = recovered[primary]
    failed = middle.p_value is not None and middle.p_value <= LEVEL and middle.value < 0
    if len(own) >= ENOUGH and not failed:
        return primary, NONE_SHOWN, ""
    if middle.value < 0:
        return primary, CANNOT_TELL, "; the attack failed, which does not make the federation safe"
    bar = f"{WORTH[name]:.0f} dB" if name.startswith("psnr") else f"{WORTH[name]:.0%}"
    why = (
        f"; one message {bar} above its control would be a leak, and it takes {ENOUGH} messages "
        "without a leak to show that leaks are rare"
    )
    return primary, CANNOT_TELL, why


def _headline(numbers: Mapping[str, Any], messages: int) -> str:
    """Returns what was recovered, in one sentence."""
    found = []
    if numbers.get("psnr_page") is not None:
        private, template = numbers.get("psnr_roi"), numbers.get("template_psnr_roi")
        where = "the page" if private is None else "the private fields"
        value = numbers["psnr_page"] if private is None else private
        beside = "" if template is None else f" (the template alone: {template:.1f} dB)"
        if template is not None and private is not None and private < template:
            beside = f", worse than the template alone with {template:.1f} dB"
        found.append(f"{where} at {value:.1f} dB{beside}")
    if numbers.get("token_recall") is not None:
        found.append(f"{numbers['token_recall']:.0%} of the tokens")
    if numbers.get("answer_exact") is not None:
        found.append(f"{numbers['answer_exact']:.0%} of the answers exactly")
    several = f"{messages} messages" if messages != 1 else "one message"
    return f"recovered from {several}: {', '.join(found) or 'nothing that can be scored'}"


def _beaten(numbers: Mapping[str, Any]) -> str:
    template, ceiling = numbers.get("template_psnr_roi"), numbers.get("ocr_ceiling")
    if template is None:
        return ""
    said = (
        f"The template alone scores {template:.1f} dB on the private fields: an attack that does "
        "not beat it has learnt nothing of the page."
    )
    if ceiling is None:
        return said
    return f"{said} On the original pages {ceiling:.0%} of the private fields are read exactly."


def _figures(
    claims: Sequence[RecoveredBatch],
    templates: Mapping[MessageKey, NDArray[np.uint8] | None],
    truths: Mapping[MessageKey, Truth | None],
    files: dict[str, Any],
) -> Iterator[Figure]:
    """Yields pages beside their template and, where allowed, the original; and the curves.

    Puts the pictures of all pages, the curves and the recovered text into `files`.
    """
    shown = 0
    for one in claims:
        truth, pages = truths.get(one.message), one.pages
        if pages is None:
            continue
        originals = truth.pixels if truth is not None else None
        if originals is not None:
            pages = matched(pages, originals)
        template = templates.get(one.message)
        for place, page in enumerate(pages):
            name = f"{message_name(one.message)}-page-{place}"
            panels = {
                "original": None if originals is None else originals[place],
                "template": None if template is None else template[place],
                "reconstruction": page,
                "difference": None if originals is None else 255 - np.abs(page - originals[place]),
            }
            files_of = {
                panel: f"{name}-{panel}.png" for panel, p in panels.items() if p is not None
            }
            for panel, file in files_of.items():
                files[file] = np.moveaxis(_bytes(panels[panel]), 0, -1)
            shown += 1
            if shown <= MOST_PAGES:
                pictures = {"panels": [list(pair) for pair in files_of.items()]}
                yield Figure("pictures", name.replace("-", " "), pictures, "Pages")
    curves = {message_name(one.message): list(one.curve) for one in claims if one.curve}
    if curves:
        files["curve.json"] = curves
        lines = {
            name: {str(point["evaluations"]): point["objective"] for point in curve}
            for name, curve in curves.items()
            if all({"evaluations", "objective"} <= point.keys() for point in curve)
        }
        if lines:
            data = {"curves": lines, "x": "gradients computed"}
            yield Figure("lines", "Distance between gradients", data, "Pages")
    texts = {
        message_name(one.message): {
            "tokens": one.text.tokens.tolist(),
            "boxes": one.text.boxes.tolist() if one.text.boxes is not None else None,
            "question": one.text.question,
            "answer": one.text.answer,
        }
        for one in claims
        if one.text
    }
    if texts:
        files["text.json"] = texts


def message_name(key: MessageKey) -> str:
    """Returns what files and reports call a message."""
    round, client = key
    return f"round-{round}-" + ("aggregate" if client is None else f"client-{client}")


def _bytes(page: NDArray[Any]) -> NDArray[np.uint8]:
    clean: NDArray[np.uint8] = np.clip(np.rint(page), 0, 255).astype(np.uint8)
    return clean


def _truth(store: TruthStore, key: MessageKey, known: Sequence[MessageKey]) -> Truth | None:
    """Returns the truth behind a message; of an aggregate, that of all messages in it."""
    round, client = key
    if client is not None:
        return store.of(key)
    keys = [k for k in known if k[0] == round and k[1] is not None]
    parts = [truth for k in keys if (truth := store.of(k)) is not None]
    if len(parts) < len(keys) or not parts:
        return None
    pixels = [p.pixels for p in parts if p.pixels is not None]
    return Truth(
        tuple(d for p in parts for d in p.documents),
        {name: np.concatenate([p.columns[name] for p in parts]) for name in parts[0].columns},
        np.concatenate(pixels) if pixels else None,
        tuple(f for p in parts for f in p.fields),
        tuple(q for p in parts for q in p.questions),
        tuple(a for p in parts for a in p.answers),
    )


def score(
    recovered: RecoveredBatch,
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
    means = {name: mean_of(one.get(name) for one in scores) for name in names}
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
    recovered: Pages | None, truth: Truth, template: NDArray[np.uint8] | None, ocr: OCR | None
) -> Scores:
    scores: Scores = dict.fromkeys(PAGE_SCORES)
    if recovered is None or truth.pixels is None:
        return scores
    displayed = np.clip(np.nan_to_num(recovered.astype(np.float64), nan=0.0), 0, 255)
    pages = matched(displayed, truth.pixels)
    shown = [
        [f for f in page if f.box[0] < f.box[2] and f.box[1] < f.box[3]] for page in truth.fields
    ] or [[] for _ in pages]
    masks = [_mask(fields, truth.pixels.shape[2:]) for fields in shown]
    scores.update(_of_pixels(pages, truth.pixels, masks, shown))
    if template is not None:
        whole, private = _psnr(truth.pixels, template, masks)
        scores.update(template_psnr_page=whole, template_psnr_roi=private)
    scores["fields"] = float(sum(map(len, shown)))
    return {**scores, **_of_reading(pages, truth.pixels, shown, ocr)}


def _of_pixels(
    pages: Pages, pixels: Pages, masks: Sequence[Mask | None], shown: Sequence[Sequence[Field]]
) -> Scores:
    whole, private = _psnr(pixels, pages, masks)
    triples = list(zip(pixels, pages, masks, strict=True))
    large = min(pixels.shape[2:]) >= SMALLEST_SSIM
    crops = [
        pair
        for true, page, fields in zip(pixels, pages, shown, strict=True)
        for pair in ([(_crop(true, f, 0), _crop(page, f, 0)) for f in fields] or [(true, page)])
    ]
    return {
        "psnr_page": whole,
        "psnr_roi": private,
        "ssim_page": mean_of(ssim(a, b) for a, b, _ in triples if large),
        "ssim_roi": mean_of(ssim(a, b, m) for a, b, m in triples if large and m is not None),
        "fft_distance": mean_of(fft_distance(a, b) for a, b in crops),
        "mse": mean_of(mse(a, b, m) for a, b, m in triples),
        "mse_uint8_wrapped": mean_of(mse_uint8_wrapped(a, b, m) for a, b, m in triples),
    }


def _psnr(
    pixels: Pages, pages: Pages, masks: Sequence[Mask | None]
) -> tuple[float | None, float | None]:
    triples = list(zip(pixels, pages, masks, strict=True))
    whole = mean_of(psnr(a, b) for a, b, _ in triples)
    return whole, mean_of(psnr(a, b, m) for a, b, m in triples if m is not None)


def _of_reading(
    pages: Pages, pixels: Pages, shown: Sequence[Sequence[Field]], ocr: OCR | None
) -> Scores:
    fields = [(place, field) for place, page in enumerate(shown) for field in page]
    if ocr is None or not fields:
        return {}
    crops: list[Crop] = [
        np.moveaxis(np.round(_crop(kind[place], field, CROP_MARGIN)), 0, -1).astype(np.uint8)
        for kind in (pages, pixels)
        for place, field in fields
    ]
    read, right = ocr.read(crops), [field.text for _, field in fields]
    ours, originals = read[: len(fields)], read[len(fields) :]
    return {
        "exact_match": mean_of(map(exact_match, ours, right)),
        "fuzz_ratio": mean_of(map(fuzz_ratio, ours, right)),
        "ocr_ceiling": mean_of(map(exact_match, originals, right)),
    }


def _mask(fields: Sequence[Field], size: tuple[int, ...]) -> Mask | None:
    """Returns the pixels in the boxes, (H, W); none where there is no box."""
    mask = np.zeros(size, dtype=np.bool_)
    for left, top, right, bottom in (field.box for field in fields):
        mask[top:bottom, left:right] = True
    return mask if mask.any() else None


def _crop(page: Pages, field: Field, margin: int) -> Pages:
    left, top, right, bottom = field.box
    rows = slice(max(0, top - margin), bottom + margin)
    return page[:, rows, max(0, left - margin) : right + margin]


# --- Text -----------------------------------------------------------------------------------------


def _of_text(text: RecoveredText | None, truth: Truth, pieces: Pieces | None) -> Scores:
    scores: Scores = dict.fromkeys(TEXT_SCORES)
    if text is None:
        return scores
    if "input_ids" in truth.columns:
        scores.update(_of_tokens(text, truth.columns))
    if QUESTION in truth.columns and len(truth.questions) == 1:
        pairs = ((text.question, truth.questions[0]), (text.answer, truth.answers[0]))
        for name, (said, right) in zip(("question_exact", "answer_exact"), pairs, strict=True):
            scores[name] = float(said is not None and exact_match(said, right))
    if pieces is not None:
        tokens = set(text.tokens[:, 1].tolist())
        scores["private_text"] = mean_of(
            all(tokens.issuperset(word) for word in words)
            for page in truth.fields
            for field in page
            if any(words := pieces(field.text.split()))
        )
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
        return columns["attention_mask"] > 0

    if "labels" not in columns:
        return np.ones(ids.shape, dtype=np.bool_)
    return np.logical_or.accumulate(columns["labels"][:, ::-1] >= 0, axis=1)[:, ::-1]


def _written(columns: Mapping[str, NDArray[Any]]) -> list[int]:
    """Returns the tokens that a decoder of its own read: its answer but for the end.

    Labels as long as the input are tags, or the input's own next tokens.
    """
    labels = columns.get("labels")
    if labels is None or labels.shape == columns["input_ids"].shape:
        return []
    return [token for row in labels for token in row[row >= 0][:-1].tolist()]


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
