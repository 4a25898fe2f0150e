"""How much of a batch an attack recovered: where `RecoveredBatch` meets the truth.

Scores of pages are means over the B pages behind a message, those of reading means over their
private fields, those of text over tokens. A score that does not apply is none, and stays out of
the mean over messages. The keys:

- `psnr_page`, `ssim_page`: over all pixels. Where the template is known, most of them are given.
- `pages_recovered`: share of the pages whose private fields come out `GAIN` dB or more nearer than
  they are on the template.
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
- `words_named`: of tokens that are said to be one client's alone, the share that it has;
  `words_alone`: of those that it alone has among the messages, the share that is named.
- `private_text`: share of the private fields all of whose words are among the recovered tokens, of
  the words that the row holds.

The first of `WORTH` that applies carries the verdict. What a claim gets of it on its own message
is held against what it gets on others (`fedpriv.threat.scoring.exchange`).
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from fedpriv.metrics.images import LARGEST_PSNR, fft_distance, mse, mse_uint8_wrapped, psnr, ssim
from fedpriv.metrics.ocr import OCR, Crop, exact_match, fuzz_ratio
from fedpriv.models.question_answering import QUESTION
from fedpriv.models.readers.reader import read_places, tokens_of
from fedpriv.threat.access import BatchKnowledge, MessageKey
from fedpriv.threat.claims import RecoveredBatch, RecoveredText
from fedpriv.threat.results import (
    CANNOT_TELL,
    DONE,
    LEAK,
    Figure,
    Number,
    Result,
    Table,
)
from fedpriv.threat.scoring.exchange import against_others, table_of, units_of
from fedpriv.threat.scoring.power import Power
from fedpriv.threat.scoring.registry import OriginalSettings, Scoring, scorer
from fedpriv.threat.scoring.summaries import mean_of, percent
from fedpriv.threat.scoring.verdicts import exploratory, in_words, number, verdict
from fedpriv.threat.statistics import LEVEL, Estimate, median
from fedpriv.threat.truth import Field, Truth, TruthStore

Scores = dict[str, float | None]

Pages = NDArray[Any]
Mask = NDArray[np.bool_]

PAGE_SCORES = (
    "pages_recovered",
    *("psnr_page", "psnr_roi", "ssim_page", "ssim_roi", "fft_distance", "mse"),
    *("mse_uint8_wrapped", "template_psnr_page", "template_psnr_roi"),
    *("exact_match", "fuzz_ratio", "ocr_ceiling", "fields"),
)
TEXT_SCORES = (
    *("token_precision", "token_recall", "token_set_precision", "token_set_recall"),
    *("exact_position", "boxes_exact", "question_exact", "answer_exact", "private_text"),
    "words_named",
)

CROP_MARGIN = 2
"""Pixels around a field's box that are read with it."""

SHOWN: Mapping[str, tuple[str, str]] = {
    "psnr_roi": ("PSNR, private fields", "{:.1f} dB"),
    "psnr_page": ("PSNR, page", "{:.1f} dB"),
    "ssim_roi": ("SSIM, private fields", "{:.3f}"),
    "fft_distance": ("FFT distance", "{:.4f}"),
    "pages_recovered": ("pages recovered", "{:.0%}"),
    "exact_match": ("fields read exactly", "{:.0%}"),
    "fuzz_ratio": ("fuzz ratio", "{:.2f}"),
    "words_named": ("words rightly named", "{:.0%}"),
    "words_alone": ("own words named", "{:.0%}"),
    "private_text": ("private fields", "{:.0%}"),
    "token_set_recall": ("different tokens", "{:.0%}"),
    "token_recall": ("tokens, repeated ones too", "{:.0%}"),
    "exact_position": ("tokens at their place", "{:.0%}"),
    "answer_exact": ("answers exact", "{:.0%}"),
    "evaluations": ("gradients computed", "{:.0f}"),
    "seconds": ("CPU seconds", "{:.1f}"),
}
"""Columns of the table: the score's name, its heading and how a value is written."""

MOST_PAGES = 4
"""Pages of one attack that the report shows."""

WORTH = {
    "pages_recovered": 0.1,
    **dict.fromkeys(("words_named", "private_text", "answer_exact", "token_set_recall"), 0.25),
}
"""Scores that a verdict rests on, the first that there is: share above the control that is worth
telling."""

SAID = {
    "pages_recovered": "{} of the pages with private fields {:.0f} dB or more above the template",
    "words_named": "{} of the words that were named as one client's",
    "private_text": "{} of the private fields, all of their words",
    "answer_exact": "{} of the answers exactly",
    "token_set_recall": "{} of the different tokens",
}
"""How a report says them."""

GAIN = 3.0
"""Decibels above the template from which private fields count as recovered: to fill them with the
colour around gains less than 1."""

SMALLEST_SSIM = 11
"""Side of a page below which it has no SSIM."""


@dataclass(frozen=True)
class Judged:
    """What the messages together show.

    Attributes:
        numbers: by name.
        primary: the name of that which the verdict rests on; empty if there is none.
        verdict: it.
        exact: messages that were recovered to the last pixel or token, which no chance does.
        failed: whether the attack ended below what was known without it, and shows nothing.
    """

    numbers: Mapping[str, Number]
    primary: str
    verdict: str
    exact: int
    failed: bool = False


@dataclass(frozen=True, kw_only=True)
class PageSettings(OriginalSettings):
    """How reconstructed pages are read and shown.

    Args:
        ocr: the program that reads the text on reconstructed pages. None leaves out the scores that
            need it.
    """

    ocr: OCR | None = None


@scorer(
    RecoveredBatch,
    settings=PageSettings,
    power=Power("What stands on the pages of a client?", "clients", 0.25, matched=True),
)
def score_batches(claims: Sequence[RecoveredBatch], scoring: Scoring) -> Result:
    """Scores each message and returns the means over them, with pictures of the pages.

    `by_message` holds the scores of each. `seconds` and `evaluations` are sums: what was taken up
    from an earlier run counts as if it had been computed now.
    """
    knowledge: BatchKnowledge | None = scoring.granted.get(BatchKnowledge)
    known = knowledge.of if knowledge else {}
    templates = {key: one.template for key, one in known.items()}
    truths = {one.message: _truth(scoring.truth, one.message, list(known)) for one in claims}
    settings = scoring.settings.of(PageSettings)
    scores = {
        one.message: score(one, truth, templates.get(one.message), settings.ocr)
        for one in claims
        if (truth := truths[one.message]) is not None
    }
    for one in claims:
        if one.text is not None and one.text.alone and one.message in scores:
            scores[one.message]["words_alone"] = _alone(one, truths)
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
    shown = truths if settings.originals else {}
    judged = _judged(claims, truths, templates, scores, scoring.truth)
    return Result(
        "pages",
        _headline(numbers, len(claims), judged),
        numbers,
        tuple(tables),
        tuple(_figures(claims, templates, shown, scoring.files)),
        status=DONE if scores else "not scored: the simulation kept no truth",
        verdict=judged.verdict,
        certain=judged.exact > 0,
        primary=judged.primary,
        numbers=exploratory(judged.numbers, judged.primary),
        clause=clause(numbers, judged, summed=next(iter(scores))[1] is None) if scores else "",
    )


READ = {
    "words_named": "name words as one client's by comparing sums, {} of them rightly",
    "private_text": "read all words of {} of the private fields in {}",
    "answer_exact": "read {} of the answers in {}",
    "token_set_recall": "read {} of the different words in {}",
}
"""Primary number → what can be done with a client's update, or without one."""


def clause(numbers: Mapping[str, Any], judged: Judged, *, summed: bool) -> str:
    """Returns what somebody can do who recovers that much of a client's pages or text.

    Args:
        numbers: `exact_match`, `ocr_ceiling`, `psnr_roi` and `template_psnr_roi`, where known.
        judged: what the verdict rests on.
        summed: whether sums of updates were attacked.
    """
    if (primary := judged.numbers.get(judged.primary)) is None:
        return ""
    of = "a sum of updates" if summed else "a client's update"
    chance = f", {percent(primary.control)} by chance" if primary.control else ""
    if judged.primary in READ:
        return f"{READ[judged.primary].format(percent(primary.value), of)}{chance}"
    said = f"restore {percent(primary.value)} of the pages in {of}{chance}"
    if read := numbers.get("exact_match"):
        most = ""
        if ceiling := numbers.get("ocr_ceiling"):
            most = f", where {percent(ceiling)} can be read on the page itself"
            if percent(ceiling) == percent(read):
                most = ", as many as on the page itself"
        return f"{said}, and read {percent(read)} of their private fields{most}"
    if (ours := numbers.get("psnr_roi")) is not None:
        given = numbers.get("template_psnr_roi")
        beside = "" if given is None else f", the empty form {given:.0f} dB"
        part = "to the last pixel" if judged.exact else "at least in part"
        return f"{said}, {part} ({ours:.0f} dB{beside})"
    return said


def _judged(
    claims: Sequence[RecoveredBatch],
    truths: Mapping[MessageKey, Truth | None],
    templates: Mapping[MessageKey, NDArray[np.uint8] | None],
    scores: Mapping[MessageKey, Scores],
    store: TruthStore,
) -> Judged:
    """Holds each claim against the truths of all messages, and against held-out documents."""
    claimed = [(one, truth) for one in claims if (truth := truths[one.message]) is not None]
    if not claimed:
        return Judged({}, "", CANNOT_TELL, 0)
    own = [one for one, _ in claimed]
    beside = [
        *(dataclasses.replace(truth, template=templates.get(o.message)) for o, truth in claimed),
        *store.controls(),
    ]
    whose = [one.message[1] for one in own] + [None] * (len(beside) - len(own))
    units = units_of(beside, whose)
    unit = "message" if len(set(units[: len(own)])) == len(own) else "client"
    several = any(len(truth.documents) > 1 for _, truth in claimed)
    found: dict[str, Number] = {}
    for name in WORTH:
        if any(one.get(name) is not None for one in scores.values()):
            # Of a large batch more words are right by chance than of a single held-out page.
            alike = len(own) if name == "words_named" and several else len(beside)
            fit = functools.partial(_share_of, name)
            table = table_of(own, beside[:alike], units[:alike], fit)
            if (share := against_others(table, unit)) is not None:
                found[name] = share
    primary = next(iter(found), "")
    gains: dict[int, list[float]] = {}
    for of, one in zip(units, own, strict=False):
        ours, given = (scores[one.message].get(n) for n in ("psnr_roi", "template_psnr_roi"))
        if ours is not None and given:
            gains.setdefault(of, []).append(ours - given)
    if gains:
        each = [float(np.mean(of)) for of in gains.values()]
        found["psnr_roi_gain"] = number(median(each), unit, Estimate.known(0.0))
    if not primary:
        return Judged(found, "", CANNOT_TELL, 0)
    # What fits another message as well, or is claimed of another too, tells nothing of its own.
    right = np.array([[_is_exact(primary, one, truth) for truth in beside] for one in own])
    apart = np.array(units[: len(own)])[:, None] != np.array(units)
    clear = ~(right & apart).any(1) & ~(right[:, : len(own)] & apart[:, : len(own)]).any(0)
    exact = int((np.diagonal(right) & clear).sum())
    told = verdict(found[primary], (found[primary].control or 0.0) + WORTH[primary])
    if exact:
        told = LEAK
    # An attack that ends below its control has failed, and shows nothing.
    gain = found.get("psnr_roi_gain")
    failed = primary == "pages_recovered" and gain is not None and gain.value < 0 and told != LEAK
    if failed and gain is not None and gain.p_value is not None and gain.p_value <= LEVEL:
        told = CANNOT_TELL
    return Judged(found, primary, told, exact, failed and told == CANNOT_TELL)


def _share_of(name: str, claim: RecoveredBatch, truth: Truth) -> float:
    """Returns one score of a claim against any truth; NaN where it does not apply."""
    if name == "pages_recovered":
        value = _recovered(claim.pages, truth)
    else:
        value = _of_text(claim.text, truth)[name]
    return math.nan if value is None else value


def _alone(claim: RecoveredBatch, truths: Mapping[MessageKey, Truth | None]) -> float | None:
    """Returns the share of the tokens that this message has and no other client's that is named."""
    held = {
        key: {token for row in tokens_of(truth.columns) for token in row}
        for key, truth in truths.items()
        if truth is not None
    }
    others = (tokens for (_, client), tokens in held.items() if client != claim.message[1])
    own = held[claim.message].difference(*others)
    named = set() if claim.text is None else set(claim.text.tokens[:, 1].tolist())
    return _share(len(own & named), len(own))


def _is_exact(name: str, claim: RecoveredBatch, truth: Truth) -> bool:
    """Says whether a claim has a page's private pixels, or the set of tokens, to the last one.

    Of a page that its template shows already, or a text without anything that is scored, none is.
    """
    if name != "pages_recovered":
        found = _of_text(claim.text, truth)
        tokens = found["token_set_precision"] == found["token_set_recall"] == 1
        return tokens and found[name] in (1, None)
    if claim.pages is None or truth.pixels is None or truth.template is None:
        return False
    pages = _displayed(claim.pages).round()
    return any(
        mask is not None
        and psnr(true, blank, mask) <= LARGEST_PSNR - GAIN
        and any((true == page)[:, mask].all() for page in pages)
        for true, blank, mask in zip(truth.pixels, truth.template, _masks(truth), strict=True)
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


def _headline(numbers: Mapping[str, Any], messages: int, judged: Judged) -> str:
    """Returns what was recovered, in one sentence, the number first that the verdict rests on."""
    several = f"{messages} messages" if messages != 1 else "one message"
    if judged.exact:
        of = "" if judged.exact == messages else f" {judged.exact} of them"
        pages = judged.primary == "pages_recovered"
        several += f",{of} {'to the last pixel' if pages else 'with every different token'}"
    primary = judged.numbers.get(judged.primary)
    if primary is None:
        return f"recovered from {several}: nothing that can be scored"
    if judged.exact and judged.verdict == LEAK and (primary.p_value or 0.0) > LEVEL:
        # Too few to be compared with each other, or with the sum of all, and yet no chance.
        primary = dataclasses.replace(primary, p_value=None)
    said = SAID[judged.primary].format(f"{primary.value:.0%}", GAIN)
    found = in_words(primary, said)
    private, template = numbers.get("psnr_roi"), numbers.get("template_psnr_roi")
    if private is not None:
        beside = "" if template is None else f" (the template alone: {template:.1f} dB)"
        if template is not None and private < template:
            beside = f", worse than the template alone with {template:.1f} dB"
        found += f"; the private fields are at {private:.1f} dB{beside}"
    failed = "; the attack failed, which does not make the federation safe" * judged.failed
    return f"recovered from {several}: {found}{failed}"


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

    Raises:
        ValueError: if pages have another shape than the true ones.
    """
    return {
        **_of_pages(recovered.pages, truth, template, ocr),
        **_of_text(recovered.text, truth),
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
    pages = matched(_displayed(recovered), truth.pixels)
    shown = [_visible(page) for page in truth.fields] or [[] for _ in pages]
    masks = _masks(truth)
    scores.update(_of_pixels(pages, truth.pixels, masks, shown))
    if template is not None:
        whole, private = _psnr(truth.pixels, template, masks)
        scores.update(template_psnr_page=whole, template_psnr_roi=private)
        scores["pages_recovered"] = _recovered(
            recovered, dataclasses.replace(truth, template=template)
        )
    scores["fields"] = float(sum(map(len, shown)))
    return {**scores, **_of_reading(pages, truth.pixels, shown, ocr)}


def _recovered(pages: Pages | None, truth: Truth) -> float | None:
    """Returns the share of a truth's pages that are recovered, as `pages_recovered` has it.

    Pages may be more or fewer than the true ones; each is taken for one of them. None where no
    private field shows, or the template is not known.
    """
    if pages is None or truth.pixels is None or truth.template is None:
        return None
    found = _displayed(pages)
    masks = _masks(truth)
    costs = [[mse(true, page) for page in found] for true in truth.pixels]
    place = dict(zip(*linear_sum_assignment(np.array(costs)), strict=True))
    return mean_of(
        number in place and psnr(true, found[place[number]], mask) - psnr(true, blank, mask) >= GAIN
        for number, (true, blank, mask) in enumerate(
            zip(truth.pixels, truth.template, masks, strict=True)
        )
        if mask is not None
    )


def _displayed(pages: Pages) -> Pages:
    """Returns pages as they are shown: clipped to 0…255, and black where they are no numbers."""
    return np.clip(np.nan_to_num(pages.astype(np.float64), nan=0.0), 0, 255)


def _visible(fields: Sequence[Field]) -> list[Field]:
    return [f for f in fields if f.box[0] < f.box[2] and f.box[1] < f.box[3]]


def _masks(truth: Truth) -> list[Mask | None]:
    """Returns the private pixels of each page."""
    if truth.pixels is None or not truth.fields:
        return [None] * (0 if truth.pixels is None else len(truth.pixels))
    return [_mask(_visible(page), truth.pixels.shape[2:]) for page in truth.fields]


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


def _of_text(text: RecoveredText | None, truth: Truth) -> Scores:
    scores: Scores = dict.fromkeys(TEXT_SCORES)
    if text is None:
        return scores
    if "input_ids" in truth.columns:
        scores.update(_of_tokens(text, truth.columns))
    if QUESTION in truth.columns and len(truth.questions) == 1:
        pairs = ((text.question, truth.questions[0]), (text.answer, truth.answers[0]))
        for name, (said, right) in zip(("question_exact", "answer_exact"), pairs, strict=True):
            if right:  # what a cut row is not labelled with nobody can read
                scores[name] = float(said is not None and exact_match(said, right))
    if text.alone:
        scores["words_named"] = scores["token_set_precision"]
    tokens = set(text.tokens[:, 1].tolist())
    scores["private_text"] = mean_of(
        tokens.issuperset(field.tokens) for page in truth.fields for field in page if field.tokens
    )
    return scores


def _of_tokens(text: RecoveredText, columns: Mapping[str, NDArray[Any]]) -> Scores:
    ids, read = columns["input_ids"], read_places(columns)
    true = Counter(token for row in tokens_of(columns) for token in row)
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


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
