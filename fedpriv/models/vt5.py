"""VT5: a T5 that reads words, their places and the page, and writes answers (PFL-DocVQA, App. B).

The encoder's input is the question, the OCR words (each a T5 word embedding plus the sum of four
learned embeddings of its box) and the outputs of a visual encoder (DiT, a BEiT) for the page's
patches. Module names are those of the authors' framework (MP-DocVQA).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import BeitConfig, BeitModel, T5Config, T5ForConditionalGeneration
from transformers.utils import cached_file

from fedpriv.data.document import Document
from fedpriv.data.examples import Batch, Examples
from fedpriv.models.base import Answer
from fedpriv.models.choices import choose
from fedpriv.models.generation import read_answers, token_losses
from fedpriv.models.question_answering import QuestionAnswerer
from fedpriv.models.readers.reader import IGNORED, normalised
from fedpriv.models.readers.subwords import Subwords
from fedpriv.models.readers.vt5_reader import Coordinates, VT5Reader
from fedpriv.models.saving import there

Attention = Literal["sdpa", "eager"]

LANGUAGE, VISUAL = "language", "visual"
BETWEEN, READING = "between.safetensors", "fedpriv.json"
"""What a saved model consists of: two of transformers' folders, two files of ours."""

SHIPPED = Path(__file__).with_name("vt5_tiny")
"""A `vt5_tiny` that can read generated invoices; experiments/pretrain_vt5_tiny.py makes it."""

PLACES = 1024
"""Rows of the tables of coordinates, as published."""


def vt5(
    labels: Sequence[str] = (),
    *,
    size: Literal["tiny", "base"] = "tiny",
    pretrained: str | None = None,
    visual: str | None = None,
    max_length: int | None = None,
    answer_length: int | None = None,
    dropout: float | None = None,
    coordinates: Coordinates | None = None,
    train_visual: bool = False,
    attention: Attention = "sdpa",
) -> VT5:
    """Returns a VT5 as an experiment names it; what is None is left to the builder called.

    Args:
        labels: not used; see `vt5_tiny`.
        size: of a VT5 with random weights, "tiny" or "base".
        pretrained: weights instead, from a local folder or a hub id; their size is their own.
            "shipped" names a tiny VT5 that has learnt to read other generated invoices.
        visual: a pretrained BEiT or DiT; `pretrained` then names a T5. See `from_parts`.
        max_length: see `vt5_tiny`, like all that follow.
        answer_length: tokens of an answer.
        dropout: everywhere.
        coordinates: see `VT5Reader`.
        train_visual: see `VT5`.
        attention: "sdpa" or "eager".
    """
    asked = {
        "max_length": max_length,
        "answer_length": answer_length,
        "dropout": dropout,
        "coordinates": coordinates,
    }
    given: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    given |= {"train_visual": train_visual, "attention": attention}
    if visual is not None:
        if pretrained is None:
            raise ValueError(f"visual={visual!r} needs pretrained=, the T5 that it is joined to")
        return from_parts(pretrained, visual, labels, **given)
    if pretrained is not None:
        folder = str(SHIPPED) if pretrained == "shipped" else pretrained
        return from_pretrained(folder, labels, **given)
    return choose("size", size, SIZES)(labels, **given)


def vt5_tiny(
    labels: Sequence[str] = (),
    *,
    max_length: int = 256,
    answer_length: int = 24,
    width: int = 64,
    layers: int = 2,
    dropout: float = 0.0,
    coordinates: Coordinates = "thousandths",
    train_visual: bool = False,
    attention: Attention = "sdpa",
) -> VT5:
    """Builds a VT5 of half a million parameters that reads the generated invoices.

    Coordinates are rounded down to multiples of 40 of 1000, as in `layoutlmv3_tiny`.

    Args:
        labels: not used; taken because every document model is built with the data set's.
        max_length: L, tokens of question and words.
        answer_length: A, tokens of an answer.
        width: of T5 and of the visual encoder, a multiple of 16.
        layers: of T5's encoder, of its decoder, and of the visual encoder, each.
        dropout: everywhere.
        coordinates: see `VT5Reader`.
        train_visual: see `VT5`.
        attention: "eager" where gradients of gradients are needed, as by gradient inversion.
    """
    subwords = Subwords.shipped()
    language = _t5_config(
        subwords,
        attention,
        d_model=width,
        d_kv=16,
        d_ff=2 * width,
        num_layers=layers,
        num_heads=width // 16,
        dropout_rate=dropout,
    )
    visual = _beit_config(
        attention,
        dropout,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=width // 16,
        intermediate_size=2 * width,
        image_size=64,
        patch_size=16,
    )
    reader = VT5Reader(subwords, max_length, answer_length, 64, coordinates, box_step=40)
    return _drawn(language, visual, reader, train_visual)


def vt5_base(
    labels: Sequence[str] = (),
    *,
    max_length: int = 512,
    answer_length: int = 32,
    dropout: float = 0.1,
    coordinates: Coordinates = "thousandths",
    train_visual: bool = False,
    attention: Attention = "sdpa",
) -> VT5:
    """Builds VT5 in its published size, T5-base and DiT-base, with random weights.

    Args: see `vt5_tiny`. The shipped tokenizer's tokens are the first of T5's 32 128.
    """
    subwords = Subwords.shipped()
    language = _t5_config(
        subwords,
        attention,
        vocab_size=32_128,
        d_model=768,
        d_kv=64,
        d_ff=3072,
        num_layers=12,
        num_heads=12,
        dropout_rate=dropout,
    )
    visual = _beit_config(attention, dropout)
    reader = VT5Reader(subwords, max_length, answer_length, 224, coordinates)
    return _drawn(language, visual, reader, train_visual)


SIZES: dict[str, Callable[..., VT5]] = {"tiny": vt5_tiny, "base": vt5_base}


def from_pretrained(
    folder: str | Path,
    labels: Sequence[str] = (),
    *,
    max_length: int | None = None,
    answer_length: int | None = None,
    dropout: float | None = None,
    coordinates: Coordinates | None = None,
    train_visual: bool = False,
    attention: Attention = "sdpa",
) -> VT5:
    """Loads what `VT5.save_pretrained` wrote, from a local folder or a hub id.

    Args:
        folder: where.
        labels: not used; see `vt5_tiny`.
        max_length: as it was saved if left out, like the three below.
        answer_length: tokens of an answer.
        dropout: everywhere; 0.1 in published weights.
        coordinates: see `VT5Reader`.
        train_visual: see `VT5`.
        attention: see `vt5_tiny`.

    Raises:
        OSError: if there is no such folder and no such model on the hub, or a part is missing.
        ValueError: if the weights are not those of a VT5.
    """
    name = str(folder)
    settings = json.loads(_file(name, READING).read_text("utf-8"))
    given = {"max_length": max_length, "answer_length": answer_length, "coordinates": coordinates}
    settings |= {key: value for key, value in given.items() if value is not None}
    backbone, image_model = _loaded(
        (name, {"subfolder": LANGUAGE}), (name, {"subfolder": VISUAL}), dropout, attention
    )
    reader = VT5Reader(Subwords.from_pretrained(name, subfolder=LANGUAGE), **settings)
    model = VT5(backbone, image_model, reader, train_visual=train_visual)
    model.take_between(load_file(_file(name, BETWEEN)), name)
    return model


def from_parts(
    language: str | Path,
    visual: str | Path,
    labels: Sequence[str] = (),
    *,
    max_length: int = 512,
    answer_length: int = 32,
    dropout: float | None = None,
    coordinates: Coordinates = "thousandths",
    train_visual: bool = False,
    attention: Attention = "sdpa",
) -> VT5:
    """Joins a pretrained T5 and a pretrained BEiT or DiT; what lies between is drawn.

    Args: as of `from_pretrained`, and

        language: a local folder or hub id, such as google-t5/t5-base.
        visual: such as microsoft/dit-base-finetuned-rvlcdip.

    Raises:
        OSError: if there is no such folder and no such model on the hub.
    """
    backbone, image_model = _loaded((str(language), {}), (str(visual), {}), dropout, attention)
    side = image_model.config.image_size
    subwords = Subwords.from_pretrained(language)
    reader = VT5Reader(subwords, max_length, answer_length, side, coordinates)
    return VT5(backbone, image_model, reader, train_visual=train_visual)


def _loaded(
    language: tuple[str, dict[str, str]],
    visual: tuple[str, dict[str, str]],
    dropout: float | None,
    attention: Attention,
) -> tuple[T5ForConditionalGeneration, BeitModel]:
    """Loads both parts, each given as a name and where in it to look."""
    common = {"dtype": torch.float32, "attn_implementation": attention}
    of_text = {} if dropout is None else {"dropout_rate": dropout}
    of_page = {} if dropout is None else _visual_dropout(dropout)
    (name, place), (page, page_place) = language, visual
    return (
        T5ForConditionalGeneration.from_pretrained(name, **place, **of_text, **common),
        BeitModel.from_pretrained(page, add_pooling_layer=False, **page_place, **of_page, **common),
    )


def _file(name: str, file: str) -> Path:
    """Returns a file of a local folder or, downloaded, of a model on the hub."""
    there(name)
    return Path(str(cached_file(name, file)))


def _t5_config(subwords: Subwords, attention: Attention, **sizes: Any) -> T5Config:
    return T5Config(
        **{"vocab_size": subwords.size, **sizes},
        pad_token_id=subwords.pad,
        eos_token_id=subwords.sep,
        decoder_start_token_id=subwords.pad,
        attn_implementation=attention,
    )


def _beit_config(attention: Attention, dropout: float, **sizes: Any) -> BeitConfig:
    """Returns the structure of DiT (microsoft/dit-base), in other sizes where they are given."""
    return BeitConfig(
        **sizes,
        **_visual_dropout(dropout),
        use_absolute_position_embeddings=True,
        use_relative_position_bias=False,
        use_mask_token=False,
        layer_scale_init_value=0.1,
        attn_implementation=attention,
    )


def _visual_dropout(dropout: float) -> dict[str, float]:
    return {"drop_path_rate": dropout}  # all that DiT drops


def _drawn(language: T5Config, visual: BeitConfig, reader: VT5Reader, train_visual: bool) -> VT5:
    backbone = T5ForConditionalGeneration(language)
    image_model = BeitModel(visual, add_pooling_layer=False)
    return VT5(backbone, image_model, reader, train_visual=train_visual)


class SpatialEmbedding(nn.Module):
    """Where a word stands: x0, y0, x1, y1 embedded, summed, normalised and projected."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.x_position_embeddings = nn.Embedding(PLACES, width)
        self.y_position_embeddings = nn.Embedding(PLACES, width)
        self.LayerNorm = nn.LayerNorm(width, eps=1e-12)
        self.dropout = nn.Dropout(dropout)
        self.spatial_emb_matcher = _Projection(width, width)

    def forward(self, boxes: Tensor) -> Tensor:
        """Returns (…, width) for boxes (…, 4) of left, top, right, bottom."""
        x, y = self.x_position_embeddings, self.y_position_embeddings
        left, top, right, bottom = boxes.unbind(-1)
        summed = x(left) + y(top) + x(right) + y(bottom)
        projected: Tensor = self.spatial_emb_matcher(self.dropout(self.LayerNorm(summed)))
        return projected


class VisualEmbedding(nn.Module):
    """What the page looks like: the visual encoder's outputs, projected; it has no positions."""

    def __init__(self, image_model: BeitModel, width: int) -> None:
        super().__init__()
        self.image_model = image_model
        self.visual_emb_matcher = _Projection(image_model.config.hidden_size, width)

    def forward(self, pixels: Tensor) -> Tensor:
        """Returns (batch, patches + 1, width) for pixels (batch, 3, side, side) in 0…255."""
        dtype = next(self.visual_emb_matcher.parameters()).dtype
        seen = self.image_model(pixel_values=normalised(pixels, dtype)).last_hidden_state
        projected: Tensor = self.visual_emb_matcher(seen)
        return projected


class _Projection(nn.Module):
    """One linear layer, under the name that the authors' MLP gives it."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(inputs, outputs)])

    def forward(self, x: Tensor) -> Tensor:
        projected: Tensor = self.layers[0](x)
        return projected


class VT5(QuestionAnswerer):
    """Answers questions about pages.

    Args:
        language_backbone: T5.
        image_model: BEiT, DiT.
        reader: makes the arrays; its tokenizer is T5's.
        train_visual: whether the visual encoder is trained; the authors' code freezes it.
    """

    def __init__(
        self,
        language_backbone: T5ForConditionalGeneration,
        image_model: BeitModel,
        reader: VT5Reader,
        *,
        train_visual: bool = False,
    ) -> None:
        super().__init__()
        config = language_backbone.config
        width = config.d_model
        self.language_backbone = language_backbone
        self.spatial_embedding = SpatialEmbedding(width, config.dropout_rate)
        self.visual_embedding = VisualEmbedding(image_model, width)
        self.reader = reader
        image_model.requires_grad_(train_visual)
        for name, parameter in image_model.named_parameters():
            # Neither is used in what we compute: they could not learn, and must not be noised.
            if "mask_token" in name or "pooler" in name:
                parameter.requires_grad_(False)

    def encode(self, documents: Sequence[Document]) -> Examples:
        """Returns one row per question; see `VT5Reader.read`."""
        return self.reader.read(documents)

    def forward(self, batch: Batch) -> Tensor:
        """Returns the scores of the answer's tokens, of shape (batch, A, vocabulary)."""
        embeddings, mask = self.read(batch)
        output = self.language_backbone(
            inputs_embeds=embeddings,
            attention_mask=mask,
            decoder_input_ids=self._before(batch["labels"]),
            use_cache=False,
        )
        logits: Tensor = output.logits
        return logits

    def read(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Returns the encoder's input, (batch, L + patches + 1, width), and its attention mask."""
        words = self.language_backbone.shared(batch["input_ids"].long())
        text = words + self.spatial_embedding(batch["bbox"].long())
        page = self.visual_embedding(batch["pixels"])
        mask = batch["attention_mask"].long()
        seen = torch.ones(page.shape[:2], dtype=mask.dtype, device=mask.device)
        return torch.cat([text, page], 1), torch.cat([mask, seen], 1)

    def losses(self, batch: Batch) -> Tensor:
        """Returns -log p(answer | page, question), the mean over the answer's tokens, (batch,)."""
        return token_losses(self(batch), batch["labels"])

    def answer_batch(self, batch: Batch) -> list[Answer]:
        """Returns the greedy answer of each row."""
        embeddings, mask = self.read(batch)
        return self._written(mask, inputs_embeds=embeddings)

    def reply_batch(self, batch: Batch) -> tuple[list[Answer], Tensor]:
        """Returns answers and losses of one reading of the page."""
        embeddings, mask = self.read(batch)
        backbone = self.language_backbone
        read = backbone.encoder(inputs_embeds=embeddings, attention_mask=mask)
        output = backbone(
            encoder_outputs=read,
            attention_mask=mask,
            decoder_input_ids=self._before(batch["labels"]),
            use_cache=False,
        )
        losses = token_losses(output.logits, batch["labels"])
        return self._written(mask, encoder_outputs=read), losses

    def _written(self, mask: Tensor, **read: Any) -> list[Answer]:
        generated = self.language_backbone.generate(
            **read,
            attention_mask=mask,
            max_new_tokens=self.reader.answer_length,
            do_sample=False,
            num_beams=1,
            return_dict_in_generate=True,
            output_scores=True,
        )
        return read_answers(generated, self.reader.subwords, begin=1)

    def save_pretrained(self, folder: str | Path) -> None:
        """Writes a folder that `from_pretrained` reads; its parts load as transformers' own."""
        folder = Path(folder)
        self.language_backbone.save_pretrained(folder / LANGUAGE)
        self.reader.subwords.save_pretrained(folder / LANGUAGE)
        self.visual_embedding.image_model.save_pretrained(folder / VISUAL)
        own = {n: p.detach().cpu().contiguous() for n, p in self._between().items()}
        save_file(own, folder / BETWEEN)
        (folder / READING).write_text(json.dumps(self.reader.settings(), indent=2) + "\n", "utf-8")

    def take_between(self, saved: Mapping[str, Tensor], source: str) -> None:
        """Takes the parameters that are neither T5's nor the visual encoder's.

        Raises:
            ValueError: if names or shapes are not this model's; names `source`.
        """
        own = self._between()
        shapes = {name: tuple(tensor.shape) for name, tensor in own.items()}
        found = {name: tuple(tensor.shape) for name, tensor in saved.items()}
        if shapes != found:
            raise ValueError(f"{source}: {BETWEEN} holds {found}, a VT5 of its size needs {shapes}")
        with torch.no_grad():
            for name, tensor in saved.items():
                own[name].copy_(tensor)

    def _between(self) -> dict[str, nn.Parameter]:
        """Returns the parameters that are neither T5's nor the visual encoder's."""
        parts = ("language_backbone.", "visual_embedding.image_model.")
        return {n: p for n, p in self.named_parameters() if not n.startswith(parts)}

    def blocks(self) -> list[nn.Module]:
        """Returns the Transformer layers from input to output, the encoder's first."""
        backbone = self.language_backbone
        return [*backbone.encoder.block, *backbone.decoder.block]

    def head(self) -> list[nn.Module]:
        """Returns what comes after the last layer; the scores are tied to the words."""
        return [self.language_backbone.decoder.final_layer_norm]

    def visual(self) -> list[nn.Module]:
        """Returns the visual encoder."""
        return [self.visual_embedding.image_model]

    def reading(self) -> dict[str, Any]:
        """Returns all that decides how documents become arrays."""
        return {"model": "vt5", **self.reader.settings(), "vocabulary": self.reader.subwords.digest}

    def _before(self, labels: Tensor) -> Tensor:
        """Returns the labels moved one place to the right, as the decoder reads them."""
        start = self.language_backbone.config.decoder_start_token_id
        shifted = nn.functional.pad(labels[:, :-1], (1, 0), value=start)
        return shifted.masked_fill(shifted == IGNORED, self.reader.subwords.pad)
