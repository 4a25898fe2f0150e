"""Questions about page images, encoded by a processor of transformers into rows of one shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from tokenizers import Tokenizer
from transformers import PaliGemmaProcessor

from fedpriv.data.document import Document
from fedpriv.data.examples import Examples
from fedpriv.models.generation import continued, target
from fedpriv.models.question_answering import DOCUMENT, Asked, asked
from fedpriv.models.readers.reader import IGNORED
from fedpriv.models.readers.subwords import Subwords

TOKEN, SEEN = "token.", "seen."
"""Prefixes of a processor's columns: with one entry per token, or of the image."""

Made = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class ImageTextReader:
    """Turns questions about page images into arrays.

    Args:
        processor: of transformers, for images and text.
        subwords: its tokenizer, for answers.
        longest_side: of the page in pixels; a longer one is shrunk before the processor sees it.
        square: whether the shrunk page is put on a white square of that side, so that all pages
            have one shape, even if the processor depends on it.
        max_length: L, tokens of prompt, image and answer; None takes as many as the longest prompt
            of the documents needs.
        answer_length: A, tokens of an answer, the end token included.
        prompt: a text with `{question}` in it. It goes into the processor's chat template if
            there is one, otherwise it follows the image's mark.
    """

    processor: Any
    subwords: Subwords
    longest_side: int = 448
    square: bool = False
    max_length: int | None = None
    answer_length: int = 48
    prompt: str = "{question}"

    def __post_init__(self) -> None:
        for name in ("longest_side", "answer_length"):
            if (value := getattr(self, name)) < 1:
                raise ValueError(f"{name}={value}: expected 1 or more")
        if "{question}" not in self.prompt:
            raise ValueError(f"prompt={self.prompt!r}: expected {{question}} in it")

    def read(self, documents: Sequence[Document]) -> Examples:
        """Returns one row per question.

        Columns (N questions, L tokens, D documents): input_ids (N, L), prompt and answer without
        its end token; prompt (N,), how many of them are the prompt's; labels (N, L), at each place
        the token to follow, only where that is the first accepted answer's or the end; what else
        the processor makes for tokens, (N, L); those of `Asked`. Shared: what it makes of an image,
        (D, …).

        Raises:
            ValueError: if no document has a question, a prompt is too long, or the processor makes
                other shapes of some pages than of others.
        """
        pages = [self._page(document.image()) for document in documents]
        questions = asked(documents)  # after the images: each page is drawn once so
        made = [self._made(pages[q.document], q.question.text) for q in questions]
        longest = max(m["input_ids"].shape[1] for m in made)
        needed = longest + self.answer_length
        if self.max_length is not None and self.max_length < needed:
            raise ValueError(
                f"max_length={self.max_length}: the longest prompt has {longest} tokens, with "
                f"those of the image, and an answer {self.answer_length}; set max_length to "
                f"{needed} or more, or take a smaller longest_side"
            )
        length = self.max_length or needed
        rows = [self._row(q, m, length) for q, m in zip(questions, made, strict=True)]
        columns = {name: np.stack([row[name] for row in rows]) for name in rows[0]}
        images = self._images(questions, made, len(documents))
        return Examples.of(columns, {SEEN + n: (array, DOCUMENT) for n, array in images.items()})

    def settings(self) -> dict[str, Any]:
        """Returns all settings, those of the processor and the hash of the tokenizer among them."""
        names = ("longest_side", "square", "max_length", "answer_length", "prompt")
        settings = {name: getattr(self, name) for name in names}
        image_processor = self.processor.image_processor.to_dict()
        template = getattr(self.processor, "chat_template", None)
        return {
            **settings,
            "image_processor": {n: str(value) for n, value in sorted(image_processor.items())},
            "chat_template": template,
            "vocabulary": self.subwords.digest,
        }

    def _page(self, image: Image.Image) -> Image.Image:
        """Returns the shrunk page, on a white square if `square` is set."""
        share = min(1.0, self.longest_side / max(image.size))
        width, height = (max(1, round(side * share)) for side in image.size)
        page = image.resize((width, height), Image.Resampling.BICUBIC) if share < 1 else image
        if not self.square:
            return page
        field = Image.new("RGB", (self.longest_side, self.longest_side), "white")
        field.paste(page, (0, 0))
        return field

    def _made(self, page: Image.Image, question: str) -> Made:
        """Returns the processor's arrays for one page and one question."""
        text = self.prompt.replace("{question}", " ".join(question.split()))
        if getattr(self.processor, "chat_template", None):
            content = [{"type": "image"}, {"type": "text", "text": text}]
            text = self.processor.apply_chat_template(
                [{"role": "user", "content": content}], add_generation_prompt=True, tokenize=False
            )
        else:
            text = f"{getattr(self.processor, 'image_token', '')}{text}"
        begin = self.processor.tokenizer.bos_token
        # Some chat templates already contain the begin token, which must not be there twice.
        more = {"add_special_tokens": False} if begin and text.startswith(begin) else {}
        made = self.processor(images=[page], text=text, return_tensors="np", **more)
        return {name: np.asarray(array) for name, array in made.items() if name != "labels"}

    def _row(self, question: Asked, made: Made, length: int) -> dict[str, NDArray[Any]]:
        prompt = made["input_ids"][0]
        # An answer that reads "</s>" is text, not the end of itself.
        self.subwords.tokenizer.encode_special_tokens = True
        answer = self.subwords.tokenizer.encode(question.answer, add_special_tokens=False).ids
        wanted = target(answer, self.answer_length, self.subwords.sep)
        row = continued(question, prompt, wanted, length, self.subwords.pad)
        for name, array in made.items():
            if name != "input_ids" and _of_tokens(array, made):
                # In PaliGemma 0 is a prompt, which is read in both directions; elsewhere 0 is text.
                paligemma = isinstance(self.processor, PaliGemmaProcessor)
                kind = int(name == "token_type_ids" and paligemma)
                row[TOKEN + name] = np.full(length, kind, dtype=np.int64)
                row[TOKEN + name][: len(prompt)] = array[0]
        end = len(prompt) + int((wanted != IGNORED).sum()) - 1
        row[TOKEN + "attention_mask"] = (np.arange(length) < end).astype(np.int64)
        return row

    def _images(
        self, questions: Sequence[Asked], made: Sequence[Made], documents: int
    ) -> dict[str, NDArray[Any]]:
        """Returns the processor's arrays of each document's page; zero without a question."""
        of_page = {q.document: m for q, m in zip(questions, made, strict=True)}
        first = made[0]
        names = [name for name, array in first.items() if not _of_tokens(array, first)]
        images = {}
        for name in names:
            shapes = {m[name].shape for m in of_page.values()}
            if len(shapes) > 1:
                raise ValueError(
                    f"the processor makes {name} of different shapes of different pages, such as "
                    f"{sorted(shapes)[:2]}: set square=true, so that all pages have one shape"
                )
            images[name] = np.zeros((documents, *shapes.pop()), dtype=first[name].dtype)
            for place, of_one in of_page.items():
                images[name][place] = of_one[name]
        return images


def subwords_of(processor: Any) -> Subwords:
    """Returns a copy of the processor's tokenizer that ends texts with its end of text."""
    tokenizer = processor.tokenizer
    end, pad = tokenizer.eos_token_id, tokenizer.pad_token_id
    copy = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    copy.no_padding()
    copy.no_truncation()
    return Subwords(copy, cls=end, sep=end, pad=end if pad is None else pad, lowercase=False)


def _of_tokens(array: NDArray[Any], made: Made) -> bool:
    """Returns whether an array has one entry for each token of the prompt."""
    return array.shape == made["input_ids"].shape
