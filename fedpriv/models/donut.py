"""Donut (Kim et al. 2022): reads the page's image alone, without OCR, and writes the answer.

A Swin encoder sees the page; an MBart decoder reads the question as the beginning of its own text,
`<s_docvqa><s_question>…</s_question><s_answer>`, and goes on with the answer.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from tokenizers import AddedToken, Tokenizer
from torch import Tensor, nn
from transformers import (
    DonutSwinConfig,
    DonutSwinModel,
    GenerationConfig,
    MBartConfig,
    MBartForCausalLM,
    VisionEncoderDecoderConfig,
    VisionEncoderDecoderModel,
)

from fedpriv.data.document import Document
from fedpriv.data.examples import Batch, Examples
from fedpriv.models.base import Answer
from fedpriv.models.choices import choose
from fedpriv.models.generation import read_answers, target, token_losses
from fedpriv.models.question_answering import Asked, QuestionAnswerer, asked, table
from fedpriv.models.readers.reader import IGNORED, normalised
from fedpriv.models.readers.subwords import Subwords
from fedpriv.models.saving import fits_positions, save, settings_of

Attention = Literal["sdpa", "eager"]

START, QUESTION, QUESTION_END, ANSWER = (
    "<s_docvqa>",
    "<s_question>",
    "</s_question>",
    "<s_answer>",
)
PROMPT = (START, QUESTION, QUESTION_END, ANSWER)
ANSWER_END = "</s_answer>"
MARKS = (*PROMPT, ANSWER_END)
"""The tokens around a question and at the end of its answer, of the published model for DocVQA."""

PUBLISHED_VOCABULARY = 57_525
"""Tokens of naver-clova-ix/donut-base, those of a prompt not among them."""

PATCH = 4
"""Side of a patch in pixels."""


def donut(
    labels: Sequence[str] = (),
    *,
    size: Literal["tiny", "small", "base"] = "tiny",
    pretrained: str | None = None,
    task: Literal["answers"] = "answers",
    image_size: tuple[int, int] | None = None,
    max_length: int | None = None,
    answer_length: int | None = None,
    dropout: float | None = None,
    drop_path: float | None = None,
    attention: Attention = "sdpa",
) -> Donut:
    """Builds a Donut, for settings files.

    What is none is as the size, or the pretrained model, has it.

    Args:
        labels: not used; taken because every document model is built with the data set's.
        size: "tiny"; "small", which sees every letter of a small page; or as published,
            with random weights. Beside `pretrained` it decides nothing here, but experiments take
            their learning rates from it.
        pretrained: a local folder or a hub id (naver-clova-ix/donut-base-finetuned-docvqa).
        task: the one that it has; LayoutLMv3, which may stand in its place, has two.
        image_size: height and width of the page image in pixels.
        max_length: tokens of prompt and answer.
        answer_length: tokens of an answer.
        dropout: in the decoder.
        drop_path: the encoder's share of residual branches that are left out, at its last layer.
        attention: of the decoder; "eager" where gradients of gradients are needed, as by gradient
            inversion. The encoder knows no other than eager.
    """
    choose("task", task, {"answers": None})
    given = {
        "image_size": image_size,
        "max_length": max_length,
        "answer_length": answer_length,
        "dropout": dropout,
        "drop_path": drop_path,
        "attention": attention,
    }
    set_ones: dict[str, Any] = {k: value for k, value in given.items() if value is not None}
    if pretrained is not None:
        return from_pretrained(pretrained, labels, **set_ones)
    builders = {"tiny": donut_tiny, "small": donut_small, "base": donut_base}
    return choose("size", size, builders)(labels, **set_ones)


def donut_tiny(
    labels: Sequence[str] = (),
    *,
    image_size: tuple[int, int] = (64, 64),
    max_length: int = 64,
    answer_length: int = 24,
    dropout: float = 0.0,
    drop_path: float = 0.0,
    initializer_range: float = 0.1,
    attention: Attention = "sdpa",
) -> Donut:
    """Builds a Donut of 0.7 million parameters that learns companies by their look.

    On pages of 64 x 64 no text can be read: it learns what a page's layout and logo give away.

    Args: see `donut`; both sides of the image must be multiples of 16, and at least 64.
        `initializer_range` is the standard deviation of the drawn weights: with the usual 0.02,
        made for widths of hundreds, it takes four times as long to look at the page at all.
    """
    subwords = with_prompt(Subwords.shipped())
    encoder = _encoder_config(
        image_size, drop_path, embed_dim=24, depths=(1, 1, 2), num_heads=(2, 2, 4),
        window_size=4, initializer_range=initializer_range,
    )  # fmt: skip
    decoder = _decoder_config(
        subwords, dropout, attention, vocab_size=subwords.size, d_model=96, layers=2, heads=4,
        ffn_dim=192, max_position_embeddings=max_length, init_std=initializer_range,
    )  # fmt: skip
    reader = DonutReader(subwords, max_length, answer_length, image_size)
    return _drawn(encoder, decoder, reader)


def donut_small(
    labels: Sequence[str] = (),
    *,
    image_size: tuple[int, int] = (112, 112),
    max_length: int = 64,
    answer_length: int = 24,
    dropout: float = 0.0,
    drop_path: float = 0.0,
    initializer_range: float = 0.07,
    attention: Attention = "sdpa",
) -> Donut:
    """Builds a Donut of 2.4 million parameters that sees every letter of a small page.

    Its 96 dimensions hold a patch of 4 x 4 pixels in three colours, and a window has 14 x 14
    patches. Places in a window, and the brightness of a patch, which LayerNorm would take away, are
    told apart by drawing the tables of places and the patches' bias, which transformers leaves at
    zero.

    Args: as of `donut_tiny`; both sides of the image must be multiples of 8. On pages below 112
        pixels the windows are as large as the last stage's grid of patches.
    """
    subwords = with_prompt(Subwords.shipped())
    encoder = _encoder_config(
        image_size, drop_path, embed_dim=96, depths=(2, 2), num_heads=(4, 8),
        window_size=min(14, min(image_size) // 8), initializer_range=initializer_range,
    )  # fmt: skip
    decoder = _decoder_config(
        subwords, dropout, attention, vocab_size=subwords.size, d_model=192, layers=2, heads=4,
        ffn_dim=384, max_position_embeddings=max_length, init_std=initializer_range,
    )  # fmt: skip
    reader = DonutReader(subwords, max_length, answer_length, image_size)
    model = _drawn(encoder, decoder, reader)
    _draw_places(model.network.encoder)
    return model


def _draw_places(encoder: DonutSwinModel) -> None:
    for name, parameter in encoder.named_parameters():
        if name.endswith("relative_position_bias_table"):
            nn.init.normal_(parameter, std=0.5)
        if name.endswith("patch_embeddings.projection.bias"):
            nn.init.normal_(parameter, std=0.1)


def donut_base(
    labels: Sequence[str] = (),
    *,
    image_size: tuple[int, int] = (1280, 960),
    max_length: int = 128,
    answer_length: int = 48,
    dropout: float = 0.1,
    drop_path: float = 0.1,
    attention: Attention = "sdpa",
) -> Donut:
    """Builds Donut in its published size, 202 million parameters, with random weights.

    Args: see `donut`; the page image is (2560, 1920) as published, and a quarter of that here.
    """
    subwords = with_prompt(Subwords.shipped())
    encoder = _encoder_config(
        image_size, drop_path, embed_dim=128, depths=(2, 2, 14, 2), num_heads=(4, 8, 16, 32),
        window_size=10,
    )  # fmt: skip
    decoder = _decoder_config(
        subwords, dropout, attention, vocab_size=PUBLISHED_VOCABULARY + len(MARKS), d_model=1024,
        layers=4, heads=16, ffn_dim=4096, max_position_embeddings=1536,
    )  # fmt: skip
    reader = DonutReader(subwords, max_length, answer_length, image_size)
    return _drawn(encoder, decoder, reader)


def from_pretrained(
    folder: str | Path,
    labels: Sequence[str] = (),
    *,
    image_size: tuple[int, int] | None = None,
    max_length: int | None = None,
    answer_length: int | None = None,
    dropout: float | None = None,
    drop_path: float | None = None,
    attention: Attention = "sdpa",
) -> Donut:
    """Loads weights and tokenizer from a folder or a hub id (naver-clova-ix/donut-base).

    Prompt tokens that the tokenizer does not know are added, with newly drawn embeddings.

    Args: see `donut`.

    Raises:
        ValueError: if `max_length` is too long for the decoder.
        OSError: if there is no such folder and no such model on the hub.
    """
    saved = settings_of(folder)
    config = VisionEncoderDecoderConfig.from_pretrained(str(folder))
    if dropout is not None:
        config.decoder.dropout = dropout
    if drop_path is not None:
        config.encoder.drop_path_rate = drop_path
    network = VisionEncoderDecoderModel.from_pretrained(
        str(folder),
        config=config,
        dtype=torch.float32,
        attn_implementation={"encoder": "eager", "decoder": attention},
    )
    subwords = with_prompt(Subwords.from_pretrained(folder))
    if subwords.size > network.decoder.config.vocab_size:
        # The mean of all embeddings, the other choice, takes a minute of linear algebra.
        network.decoder.resize_token_embeddings(subwords.size, mean_resizing=False)
    most = network.decoder.config.max_position_embeddings
    reader = DonutReader(
        subwords,
        fits_positions(max_length, saved.get("max_length"), min(most, 128), folder),
        answer_length or saved.get("answer_length", 48),
        _pair(image_size or saved.get("image_size", network.encoder.config.image_size)),
    )
    return Donut(network, reader).train()


def with_prompt(subwords: Subwords) -> Subwords:
    """Returns a copy that knows the tokens of `MARKS`; new ones are the last of the vocabulary.

    Words keep their case, as the published tokenizer has them; the shipped one knows none.
    """
    tokenizer = Tokenizer.from_str(subwords.tokenizer.to_str())
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in MARKS])
    return dataclasses.replace(subwords, tokenizer=tokenizer, lowercase=False)


def _encoder_config(
    image_size: tuple[int, int],
    drop_path: float,
    *,
    window_size: int,
    depths: Sequence[int],
    **sizes: Any,
) -> DonutSwinConfig:
    step = PATCH * 2 ** (len(depths) - 1)
    least = step * window_size
    if any(side % step or side < least for side in image_size):
        # Smaller pages would have fewer patches than a window, whose table of places is fixed.
        raise ValueError(
            f"image_size={tuple(image_size)}: expected multiples of {step}, {least} or more"
        )
    return DonutSwinConfig(
        **sizes,
        depths=list(depths),
        window_size=window_size,
        image_size=list(image_size),
        patch_size=PATCH,
        # As published: in the encoder only paths are dropped.
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        drop_path_rate=drop_path,
        attn_implementation="eager",
    )


def _decoder_config(
    subwords: Subwords,
    dropout: float,
    attention: Attention,
    *,
    layers: int,
    heads: int,
    ffn_dim: int,
    **sizes: Any,
) -> MBartConfig:
    return MBartConfig(
        **sizes,
        # There is no text encoder, but the cache is as long as one would be deep.
        encoder_layers=layers,
        encoder_attention_heads=heads,
        encoder_ffn_dim=ffn_dim,
        decoder_layers=layers,
        decoder_attention_heads=heads,
        decoder_ffn_dim=ffn_dim,
        dropout=dropout,
        attention_dropout=0.0,
        activation_dropout=0.0,
        scale_embedding=True,
        add_cross_attention=True,
        is_decoder=True,
        is_encoder_decoder=False,
        bos_token_id=subwords.cls,
        pad_token_id=subwords.pad,
        eos_token_id=subwords.sep,
        forced_eos_token_id=None,
        attn_implementation=attention,
    )


def _drawn(encoder: DonutSwinConfig, decoder: MBartConfig, reader: DonutReader) -> Donut:
    network = VisionEncoderDecoderModel(
        encoder=DonutSwinModel(encoder), decoder=MBartForCausalLM(decoder)
    )
    return Donut(network, reader)


@dataclass(frozen=True)
class DonutReader:
    """Turns questions about page images into arrays.

    Args:
        subwords: tokenizer, with the tokens of `MARKS`.
        max_length: L, tokens of prompt and answer; a question that is too long is cut.
        answer_length: A, tokens of an answer, the end token included.
        image_size: height and width of the page image in pixels.
    """

    subwords: Subwords
    max_length: int = 128
    answer_length: int = 48
    image_size: tuple[int, int] = (1280, 960)

    def __post_init__(self) -> None:
        if None in (ids := self._marks()):
            raise ValueError(f"the tokenizer does not know all of {MARKS}: {ids}; see with_prompt")
        if not 0 < self.answer_length < self.max_length - len(PROMPT):
            raise ValueError(
                f"answer_length={self.answer_length}: expected 1 or more, and less than "
                f"max_length - {len(PROMPT)} = {self.max_length - len(PROMPT)}, to leave room for "
                "the question"
            )

    def read(self, documents: Sequence[Document]) -> Examples:
        """Returns one row per question.

        Columns (N questions, L = max_length, D documents): input_ids (N, L), prompt and answer
        without its end token; prompt (N,), how many of them are the prompt's; labels (N, L), at
        each place the token to follow, only where that is the first accepted answer's, its mark
        `</s_answer>` or the end; those of `Asked`. Shared: pixels (D, 3, height, width), uint8.

        Raises:
            ValueError: if no document has a question.
        """
        rows = [self._row(question) for question in asked(documents)]
        return table(rows, np.stack([self._pixels(page.image()) for page in documents]))

    @property
    def answer_end(self) -> int:
        """The token that marks the end of an answer."""
        return self._marks()[-1]

    def settings(self) -> dict[str, Any]:
        """Returns everything, the tokenizer by its fingerprint."""
        fields = dataclasses.fields(self)
        settings = {f.name: getattr(self, f.name) for f in fields if f.name != "subwords"}
        return {
            **settings,
            "image_size": list(self.image_size),
            "vocabulary": self.subwords.digest,
        }

    def _row(self, question: Asked) -> dict[str, NDArray[Any]]:
        prompt = self._prompt(question.question.text)
        answer = self._tokens(next(iter(question.question.answers), ""))
        wanted = target([*answer, self.answer_end], self.answer_length, self.subwords.sep)
        count = int((wanted != IGNORED).sum())
        input_ids = np.full(self.max_length, self.subwords.pad, dtype=np.int64)
        labels = np.full(self.max_length, IGNORED, dtype=np.int64)
        input_ids[: len(prompt)] = prompt
        input_ids[len(prompt) : len(prompt) + count - 1] = wanted[: count - 1]
        labels[len(prompt) - 1 : len(prompt) - 1 + count] = wanted[:count]
        return {
            "input_ids": input_ids,
            "labels": labels,
            "prompt": np.array(len(prompt)),
            **question.columns(),
        }

    def _prompt(self, question: str) -> list[int]:
        marks = self._marks()
        room = self.max_length - len(PROMPT) - self.answer_length
        return [*marks[:2], *self._tokens(question)[:room], *marks[2 : len(PROMPT)]]

    def _marks(self) -> list[int]:
        return [cast(int, self.subwords.tokenizer.token_to_id(token)) for token in MARKS]

    def _tokens(self, text: str) -> list[int]:
        return [token for tokens in self.subwords.pieces(text.split()) for token in tokens]

    def _pixels(self, image: Image.Image) -> NDArray[np.uint8]:
        """Returns the page in the middle of a black field, its proportions kept: Donut's own way.

        It is resized twice, as there: to the shorter side, then to what the field can hold.
        """
        high, wide = self.image_size
        short = min(high, wide)
        width, height = image.size
        if width <= height:
            page = image.resize((short, int(short * height / width)), Image.Resampling.BILINEAR)
        else:
            page = image.resize((int(short * width / height), short), Image.Resampling.BILINEAR)
        page = _thumbnail(page, high, wide)
        field = np.zeros((3, high, wide), dtype=np.uint8)
        top, left = (high - page.height) // 2, (wide - page.width) // 2
        pixels = np.moveaxis(np.asarray(page, dtype=np.uint8), -1, 0)
        field[:, top : top + page.height, left : left + page.width] = pixels
        return field


def _thumbnail(page: Image.Image, high: int, wide: int) -> Image.Image:
    width, height = min(page.width, wide), min(page.height, high)
    if (width, height) == page.size:
        return page
    if page.height > page.width:
        width = int(page.width * height / page.height)
    elif page.width > page.height:
        height = int(page.height * width / page.width)
    return page.resize((width, height), Image.Resampling.BILINEAR)


def _pair(size: Any) -> tuple[int, int]:
    """Returns height and width of a setting that may be one number for both."""
    high, wide = (size, size) if isinstance(size, int) else size
    return int(high), int(wide)


class Donut(QuestionAnswerer):
    """Answers questions about page images.

    Args:
        network: DonutSwin and MBart.
        reader: makes the arrays; its tokenizer is the network's.
    """

    def __init__(self, network: VisionEncoderDecoderModel, reader: DonutReader) -> None:
        super().__init__()
        self.network = network
        self.reader = reader
        # Its mean over the page is not used, and vmap would take it example by example.
        network.encoder.pooler = None
        ids, config = reader.subwords, network.config
        config.decoder_start_token_id = ids.tokenizer.token_to_id(START)
        config.pad_token_id, config.eos_token_id = ids.pad, ids.sep
        self._writing = GenerationConfig(
            max_new_tokens=reader.answer_length,
            do_sample=False,
            num_beams=1,
            decoder_start_token_id=config.decoder_start_token_id,
            pad_token_id=ids.pad,
            eos_token_id=ids.sep,
            return_dict_in_generate=True,
            output_scores=True,
        )
        # In place of what a checkpoint says, which `generate` would mix in.
        network.generation_config = self._writing

    def encode(self, documents: Sequence[Document]) -> Examples:
        """Returns one row per question; see `DonutReader.read`."""
        return self.reader.read(documents)

    def forward(self, batch: Batch) -> Tensor:
        """Returns the scores of the token to follow at each place, (batch, L, vocabulary)."""
        # The padding stands at the end, where a causal decoder does not look back from.
        output = self.network(
            pixel_values=self._page(batch),
            decoder_input_ids=batch["input_ids"],
            use_cache=False,
        )
        logits: Tensor = output.logits
        return logits

    def losses(self, batch: Batch) -> Tensor:
        """Returns -log p(answer | page, question), the mean over the answer's tokens, (batch,)."""
        return token_losses(self(batch), batch["labels"])

    def answer_batch(self, batch: Batch) -> list[Answer]:
        """Returns the greedy answer of each row.

        Rows are answered in groups whose prompts are of one length: MBart counts positions from
        the first token, padding or not, so that padded prompts would be read as others.
        """
        groups: dict[int, list[int]] = defaultdict(list)
        for row, length in enumerate(batch["prompt"].tolist()):
            groups[length].append(row)
        answers: dict[int, Answer] = {}
        for length, rows in groups.items():
            group = {name: batch[name][rows] for name in ("input_ids", "pixels")}
            answers.update(zip(rows, self._write(group, length), strict=True))
        return [answers[row] for row in sorted(answers)]

    def blocks(self) -> list[nn.Module]:
        """Returns the Transformer layers from input to output, the encoder's first."""
        stages = self.network.encoder.encoder.layers
        layers = [layer for stage in stages for layer in stage.blocks]
        return [*layers, *self.network.decoder.model.decoder.layers]

    def head(self) -> list[nn.Module]:
        """Returns what comes after the last layer, but for the scores, which are tied to words."""
        return [self.network.decoder.model.decoder.layer_norm]

    def visual(self) -> list[nn.Module]:
        """Returns the encoder."""
        return [self.network.encoder]

    def reading(self) -> dict[str, Any]:
        """Returns all that decides how documents become arrays."""
        return {"model": "donut", **self.reader.settings()}

    def save_pretrained(self, folder: str | Path) -> None:
        """Writes the model into a folder; `from_pretrained` reads it back."""
        save(folder, self.network, self.reader.subwords, self.reading())

    def _page(self, batch: Batch) -> Tensor:
        return normalised(batch["pixels"], self.network.dtype)

    def _write(self, batch: Batch, length: int) -> list[Answer]:
        generated = self.network.generate(
            pixel_values=self._page(batch),
            decoder_input_ids=batch["input_ids"][:, :length],
            generation_config=self._writing,
        )
        return read_answers(
            generated, self.reader.subwords, begin=length, unsaid=(self.reader.answer_end,)
        )
