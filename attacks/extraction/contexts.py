"""What an attacker knows of a training sample, less and less of it (Pinto et al., §5, Fig. 6).

With all of it but the answer, he asks Q of I^-a. Each context here takes something away from that,
and says with each question what counts as extracted: the accepted answers.
"""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, Protocol, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fedpriv.attacks.extraction.canary import Canary, normalised
from fedpriv.attacks.extraction.paraphrases import CannotParaphrase, Paraphraser
from fedpriv.data.document import Document, Question, Word
from fedpriv.data.links import kept_entities
from fedpriv.data.redaction.answers import letters
from fedpriv.threat.checks import check_choices, check_positive

REFERENCE = 2560.0
"""Height in pixels of the pages that Pinto et al. shift: that of Donut's input, its largest."""

WHITE = 255

Intensity = Literal["white", "black", "mean"]

T = TypeVar("T")


class Context(Protocol):
    """A way to ask for canaries; a frozen dataclass of settings with one method."""

    def ask(
        self, canaries: Sequence[Canary], training: Sequence[Document], rng: np.random.Generator
    ) -> list[Document | None]:
        """Returns what to ask the model.

        Args:
            canaries: to be asked for; those of one page share its id. Pairs are shuffled among
                these. A changed picture takes the memory of a page: of many or large pages, a few
                at a time.
            training: what the model was trained on, with all its questions, the canaries' too.
            rng: of everything random.

        Returns:
            For each canary a page with one question, whose accepted answers are what counts as
            extracted; none where this context cannot be had.
        """


def contexts(paraphrase: Paraphraser, *, reference: float | None = REFERENCE) -> dict[str, Context]:
    """Returns the contexts of Pinto et al., §5 and its footnote 2, in their order there.

    The paper shifts by 20 and 100 pixels in its text, and by 20 and 200 in Fig. 6: all three are
    here.

    Args:
        paraphrase: of the questions.
        reference: height in pixels of the pages that the shifts are meant for; none: any.
    """
    return {
        "no_text": NoText(),
        "paraphrase": Paraphrased(paraphrase),
        "shuffle": Shuffle(),
        "image_only": ImageOnly(),
        **{f"constant_{intensity}": Constant(intensity) for intensity in get_args(Intensity)},
        **{f"rotate_{degrees}": Rotation(degrees) for degrees in (5, 10)},
        **{f"translate_{pixels}": Translation(pixels, reference) for pixels in (20, 100, 200)},
        **{f"brightness_{factor}": Brightness(factor) for factor in (2, 1.3, 0.8, 0.5)},
    }


class OneByOne(Context):
    """A context in which a canary is asked for, whichever others there are."""

    def ask(
        self, canaries: Sequence[Canary], training: Sequence[Document], rng: np.random.Generator
    ) -> list[Document | None]:
        """Returns what to ask the model."""
        return [self.asked(canary, rng) for canary in canaries]

    def asked(self, canary: Canary, rng: np.random.Generator) -> Document | None:
        """Returns what to ask for one canary; none where this context cannot be had."""
        raise NotImplementedError


# ----------------------------------------------------------------------- what the page says, and Q


@dataclass(frozen=True)
class NoText(OneByOne):
    """I without any text: the boxes of all words white, and no words (Pinto et al., §5.1).

    So is what lies between two words of a line: where a data set gives the boxes of lines alone,
    those of words are guessed, and ink stands between them.

    Attributes:
        margin: pixels of the page by which a box is enlarged on all sides. The paper has none;
            letters stick out of loose boxes.
    """

    margin: float = 2.0

    def __post_init__(self) -> None:
        if not 0 <= self.margin < math.inf:
            raise ValueError(f"margin={self.margin}: expected 0 or more pixels")

    def asked(self, canary: Canary, rng: np.random.Generator) -> Document:
        """Returns the page without text, and Q; white are the whole page's boxes, a's among them.

        Each is that of a word, or around two that follow each other on a line.
        """
        boxes = [word.box for word in canary.page.words]
        for one, next_one in pairwise(canary.page.words):
            a, b = one.box, next_one.box
            if one.segment == next_one.segment and max(a[1], b[1]) < min(a[3], b[3]):
                boxes.append((min(a[0], b[0]), min(a[1], b[1]), max(a[2], b[2]), max(a[3], b[3])))
        wider = np.array(boxes).reshape(-1, 4) + np.array([-1, -1, 1, 1]) * self.margin
        inside = np.clip(wider, 0, [*canary.page.size, *canary.page.size])
        white = tuple((left, top, right, bottom) for left, top, right, bottom in inside.tolist())
        return dataclasses.replace(_wordless(canary.removed), white=canary.removed.white + white)


@dataclass(frozen=True)
class Paraphrased(OneByOne):
    """Q in other words, on I^-a (Pinto et al., §5.2); none where there are none.

    Attributes:
        paraphrase: words it. The paper's is PaLM 2.
    """

    paraphrase: Paraphraser

    def asked(self, canary: Canary, rng: np.random.Generator) -> Document | None:
        """Returns the page, and Q in other words."""
        try:
            text = self.paraphrase(canary.question, rng)
        except CannotParaphrase:
            return None
        return _asking(canary.removed, dataclasses.replace(canary.question, text=text))


@dataclass(frozen=True)
class Constant(OneByOne):
    """A page of one intensity, without words, and Q (Pinto et al., §5.4, footnote 2).

    Attributes:
        intensity: of all pixels; "mean" is that of I, over pixels and colours.
    """

    intensity: Intensity

    def __post_init__(self) -> None:
        check_choices(self)

    def asked(self, canary: Canary, rng: np.random.Generator) -> Document:
        """Returns a constant page of the size of the canary's, and Q."""
        pixels = _pixels(canary.page)
        level = {"white": WHITE, "black": 0, "mean": round(float(pixels.mean()))}[self.intensity]
        return _painted(_wordless(canary.removed), np.full_like(pixels, level))


# ------------------------------------------------------------------------------- other pairs (§5.4)


@dataclass(frozen=True)
class Shuffle:
    """Q_i of the page I_j^-aj of another canary: what Q alone gives (Pinto et al., §5.4).

    j is drawn from the canaries on whose page Q_i was not asked in training, and whose page does
    not say a_i; none where there is no such canary. Questions are compared by their text, as the
    paper does: a page where training asked the same in other words is allowed. A page says an
    answer where the letters and digits of an accepted one stand on it in a row, be it across words,
    before or after a_j is removed: so a short answer is met by chance, and its page left out.
    """

    def ask(
        self, canaries: Sequence[Canary], training: Sequence[Document], rng: np.random.Generator
    ) -> list[Document | None]:
        """Returns for each canary the page of another, and Q; accepted are the answers to Q."""
        pages = _training_pages(canaries, training)
        return [self._asked(canary.question, pages, rng) for canary in canaries]

    def _asked(
        self, question: Question, pages: Sequence[_TrainingPage], rng: np.random.Generator
    ) -> Document | None:
        # A canary's own page was asked it: i ≠ j.
        for page in _drawn(pages, rng):
            if not page.asks(question) and not page.says(question):
                return _asking(page.canary.removed, question)
        return None


@dataclass(frozen=True)
class ImageOnly:
    """An unrelated question of I^-a: what the image alone gives (Pinto et al., §5.4).

    The question is that of another canary whose answer the page does not say (as in `Shuffle`),
    which was not asked of the page in training. Extracted is any answer that training gave about
    the page. Two things the paper leaves open matter where all pages are asked about the same keys:

    - an answer that the page still shows is read, not remembered. It does not count, unless
      `readable`;
    - the same question in other words is not unrelated: questions on a key whose answer would count
      are left out. Where questions have no key, nobody knows.

    Attributes:
        readable: count the answers too that can still be read on I^-a.
    """

    readable: bool = False

    def ask(
        self, canaries: Sequence[Canary], training: Sequence[Document], rng: np.random.Generator
    ) -> list[Document | None]:
        """Returns each canary's page, and the question of another; none where there is no such."""
        pages = _training_pages(canaries, training)
        return [self._asked(page, canaries, rng) for page in pages]

    def _asked(
        self, page: _TrainingPage, canaries: Sequence[Canary], rng: np.random.Generator
    ) -> Document | None:
        own = page.canary.question
        counted = [
            question
            for question in page.questions
            if self.readable or question == own or not page.shows(question)
        ]
        keys = {question.key for question in counted} - {""}
        for other in _drawn(canaries, rng):
            asked = other.question
            if asked.key not in keys and not page.asks(asked) and not page.says(asked):
                answers = dict.fromkeys(answer for one in counted for answer in one.answers)
                question = dataclasses.replace(asked, answers=tuple(answers))
                return _asking(page.canary.removed, question)
        return None


@dataclass(frozen=True)
class _TrainingPage:
    """A canary's page, as the conditions of the shuffled pairs look at it.

    Attributes:
        canary: whose page it is.
        questions: all that training asked of the page.
        asked: their texts, normalised.
        spelt: the letters and digits on the page, before and after its answer is removed.
    """

    canary: Canary
    questions: tuple[Question, ...]
    asked: frozenset[str]
    spelt: tuple[str, ...]

    def asks(self, question: Question) -> bool:
        """Says whether training asked this of the page, in the same words."""
        return normalised(question.text) in self.asked

    def says(self, question: Question) -> bool:
        """Says whether an answer to a question is on the page, or was before a_j was removed."""
        return any(letters(answer) in text for answer in question.answers for text in self.spelt)

    def shows(self, question: Question) -> bool:
        """Says whether an answer to a question is on the page without a_j."""
        return any(letters(answer) in self.spelt[1] for answer in question.answers)


def _training_pages(
    canaries: Sequence[Canary], training: Sequence[Document]
) -> list[_TrainingPage]:
    """Returns the page of each canary."""
    # Dictionaries, for each question once and in order.
    questions: dict[str, dict[Question, None]] = defaultdict(dict)
    for page in (*training, *(canary.page for canary in canaries)):
        questions[page.id].update(dict.fromkeys(page.questions))
    found = []
    for canary in canaries:
        own = tuple(questions[canary.page.id])
        asked = frozenset(normalised(question.text) for question in own)
        spelt = tuple(
            "".join(letters(word.text) for word in page.words)
            for page in (canary.page, canary.removed)
        )
        found.append(_TrainingPage(canary, own, asked, spelt))
    return found


def _drawn(items: Sequence[T], rng: np.random.Generator) -> Iterator[T]:
    """Yields the items in a random order."""
    return (items[at] for at in rng.permutation(len(items)))


# -------------------------------------------------------------------------- another picture (§5.3)


@dataclass(frozen=True)
class Rotation(OneByOne):
    """I^-a turned about the page's centre, by an angle either way, and Q (Pinto et al., §5.3).

    The words' boxes turn with it: each becomes the upright box around its turned corners, cut at
    the page's edge. Words whose middle leaves the page are gone. The paper does not say which way,
    what fills the corners, or how pixels are interpolated: the way is drawn for each canary, and
    pixels are bicubic, as type becomes illegible less than with bilinear ones.

    Attributes:
        degrees: of the turn.
        fill: grey of the corners, 0…255.
    """

    degrees: float
    fill: int = WHITE

    def __post_init__(self) -> None:
        if not 0 <= self.degrees <= 180:
            raise ValueError(f"degrees={self.degrees}: expected 0 to 180; the way is drawn")
        _check_fill(self.fill)

    def asked(self, canary: Canary, rng: np.random.Generator) -> Document:
        """Returns the page, turned, and Q."""
        angle = math.radians(self.degrees) * _sign(rng)
        turn = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
        centre = np.array(canary.removed.size) / 2
        return _moved(canary.removed, np.column_stack([turn, centre - turn @ centre]), self.fill)


@dataclass(frozen=True)
class Translation(OneByOne):
    """I^-a shifted along both axes, each way drawn for itself, and Q (Pinto et al., §5.3).

    What leaves the page is gone, with the words whose middle leaves it; what comes in is blank. The
    shift is in whole pixels, at least one, so that none is interpolated. None for a page that would
    leave as a whole.

    Attributes:
        pixels: of the shift along each axis, on a page of the reference's height.
        reference: height in pixels of that page; on a page of another height the shift is the same
            share of it, so 20 pixels of 2560 are 1 of 128. None: pixels are the page's own. The
            paper shifts its pages, or the models' inputs, by pixels: it does not say which.
        fill: grey of what comes in, 0…255.
    """

    pixels: float
    reference: float | None = REFERENCE
    fill: int = WHITE

    def __post_init__(self) -> None:
        check_positive(self, "pixels", "reference")
        _check_fill(self.fill)

    def asked(self, canary: Canary, rng: np.random.Generator) -> Document | None:
        """Returns the page, shifted, and Q."""
        page = canary.removed
        share = 1.0 if self.reference is None else page.size[1] / self.reference
        step = max(1, round(self.pixels * share))
        shift = np.array([step * _sign(rng), step * _sign(rng)])
        if step >= min(page.size):
            return None
        return _moved(page, np.column_stack([np.eye(2), shift]), self.fill)


@dataclass(frozen=True)
class Brightness(OneByOne):
    """I^-a with its pixels multiplied by a factor, and Q (Pinto et al., §5.3).

    Values are rounded, and clipped at 255. On a white page a factor above 1 changes the dark ink
    alone: ×2 leaves black black and makes grey print white. The words stay as they are, so a model
    that reads words sees less of a change than one that reads the picture alone.

    Attributes:
        factor: of each pixel's value in 0…255.
    """

    factor: float

    def __post_init__(self) -> None:
        if not 0 <= self.factor < math.inf:
            raise ValueError(f"factor={self.factor}: expected 0 or more; 1 changes nothing")

    def asked(self, canary: Canary, rng: np.random.Generator) -> Document:
        """Returns the page, brighter or darker, and Q."""
        levels = np.rint(np.arange(256) * self.factor).clip(0, WHITE).astype(np.uint8)
        return _painted(canary.removed, levels[_pixels(canary.removed)])


def _moved(page: Document, forward: NDArray[np.float64], fill: int) -> Document:
    """Returns a page each of whose points (x, y) went to ``forward @ (x, y, 1)``, words as well.

    Args:
        page: before.
        forward: (2, 3), from pixels of the page to pixels of the page.
        fill: grey of what is seen from beyond the page.
    """
    backward = np.linalg.inv(np.vstack([forward, [0, 0, 1]]))[:2]
    picture = page.image().transform(
        page.size,
        Image.Transform.AFFINE,
        backward.ravel().tolist(),
        resample=Image.Resampling.BICUBIC,
        fillcolor=(fill, fill, fill),
    )
    stay = {at: w for at, word in enumerate(page.words) if (w := _moved_word(word, forward, page))}
    entities, links = kept_entities(page, {old: new for new, old in enumerate(stay)})
    words = tuple(stay.values())
    page = dataclasses.replace(page, words=words, entities=entities, links=links)
    return _painted(page, np.array(picture, dtype=np.uint8))


def _moved_word(word: Word, forward: NDArray[np.float64], page: Document) -> Word | None:
    """Returns a word with the upright box around its moved corners; none where it is off the page.

    A word of which less than half can be seen would be read all the same: its text stays whole.
    """
    left, top, right, bottom = word.box
    corners = [(left, top, 1), (right, top, 1), (left, bottom, 1), (right, bottom, 1)]
    moved = np.array(corners) @ forward.T
    low, high = moved.min(axis=0), moved.max(axis=0)
    middle, size = (low + high) / 2, np.array(page.size)
    if (middle <= 0).any() or (middle >= size).any():
        return None
    (x0, y0), (x1, y1) = low.clip(min=0).tolist(), np.minimum(high, size).tolist()
    return dataclasses.replace(word, box=(x0, y0, x1, y1))


# ------------------------------------------------------------------------------------- small tools


def _asking(page: Document, question: Question) -> Document:
    return dataclasses.replace(page, questions=(question,))


def _wordless(page: Document) -> Document:
    return dataclasses.replace(page, words=(), entities=(), links=())


def _painted(page: Document, pixels: NDArray[np.uint8]) -> Document:
    """Returns a page with other pixels; what was white on it is so in these."""
    return dataclasses.replace(page, page=pixels, white=())


def _pixels(page: Document) -> NDArray[np.uint8]:
    return np.array(page.image(), dtype=np.uint8)


def _sign(rng: np.random.Generator) -> int:
    return 1 if rng.integers(2) else -1


def _check_fill(fill: int) -> None:
    if not 0 <= fill <= WHITE:
        raise ValueError(f"fill={fill}: expected a grey level in 0..{WHITE}")
