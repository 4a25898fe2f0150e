"""VT5: a T5 that reads words, their places and the page, and writes answers (PFL-DocVQA, App. B).

The encoder's input is the question, the OCR words (each a T5 word embedding plus the sum of four
learned embeddings of its box) and the outputs of a visual encoder (DiT, a BEiT) for the page's
patches. Module names are those of the authors' framework (MP-DocVQA).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import BeitConfig, BeitModel, T5Config, T5ForConditionalGeneration
from transformers.utils import cached_file

from fedpriv.data.examples import Batch
from fedpriv.models.base import Answer
from fedpriv.models.generation import (
    GREEDY,
    GenerativeAnswerer,
    read_answers,
    shifted_right,
    token_losses,
)
from fedpriv.models.presets import Attention, Presets
from fedpriv.models.readers.reader import normalised
from fedpriv.models.readers.subwords import Subwords
from fedpriv.models.readers.vt5_reader import Coordinates, VT5Reader
from fedpriv.models.saving import there

LANGUAGE, VISUAL = "language", "visual"
BETWEEN, READING = "between.safetensors", "fedpriv.json"
"""What a saved model consists of: two of transformers' folders, two files of ours."""

SHIPPED = Path(__file__).with_name("vt5_tiny")
"""A tiny VT5 that can read generated invoices; experiments/pretrain_vt5_tiny.py makes it."""

PLACES = 1024
"""Rows of the tables of coordinates, as published."""

DIT_DROPOUT = "drop_path_rate"
"""All that DiT drops, as its config names it."""

PRESETS = Presets(
    {
        "tiny": {
            "max_length": 256,
            "answer_length": 24,
            "dropout": 0.0,
            "coordinates": "thousandths",
            "width": 64,
            "layers": 2,
        },
        "base": {
            "max_length": 512,
            "answer_length": 32,
            "dropout": 0.1,
            "coordinates": "thousandths",
        },
    },
    loadable=("max_length", "answer_length", "dropout", "coordinates"),
)


def vt5(
    labels: Sequence[str] = (),
    *,
    size: Literal["tiny", "base"] = "tiny",
    pretrained: str | Path | None = None,
    visual: str | Path | None = None,
    max_length: int | None = None,
    answer_length: int | None = None,
    dropout: float | None = None,
    coordinates: Coordinates | None = None,
    width: int | None = None,
    layers: int | None = None,
    train_visual: bool = False,
    attention: Attention = "sdpa",
) -> VT5:
    """Builds a VT5.

    Arguments left as None keep the default of `size`, or of the pretrained model.

    "tiny" has half a million parameters and reads the generated invoices; coordinates are rounded
    down to multiples of 40 of 1000, as in the tiny LayoutLMv3. "base" is T5-base and DiT-base as
    published; the shipped tokenizer's tokens are the first of T5's 32 128.

    Args:
        labels: not used; taken because every document model is built with the data set's.
        size: of a model with random weights; decides nothing beside `pretrained`.
        pretrained: what `VT5.save_pretrained` wrote, a local folder or a hub id. "shipped" names a
            tiny VT5 that has learnt to read other generated invoices.
        visual: a pretrained BEiT or DiT, such as microsoft/dit-base-finetuned-rvlcdip. `pretrained`
            then names a T5, such as google-t5/t5-base; the parameters between the two are drawn.
        max_length: L, tokens of question and words.
        answer_length: A, tokens of an answer.
        dropout: everywhere.
        coordinates: see `VT5Reader`.
        width: of T5 and of the visual encoder in "tiny", a multiple of 16.
        layers: of T5's encoder, of its decoder, and of the visual encoder in "tiny", each.
        train_visual: see `VT5`.
        attention: see `Attention`.

    Raises:
        OSError: if there is no such folder and no such model on the hub, or a part is missing.
        ValueError: if the weights are not those of a VT5.
    """
    if visual is not None and pretrained is None:
        raise ValueError(f"visual={visual!r} needs pretrained=, the T5 that it is joined to")
    settings = PRESETS.settings(
        size, pretrained, max_length=max_length, answer_length=answer_length, dropout=dropout,
        coordinates=coordinates, width=width, layers=layers,
    )  # fmt: skip
    if pretrained is None:
        return _draw(attention, train_visual, **settings)
    folder = SHIPPED if pretrained == "shipped" else pretrained
    return _load(str(folder), visual, attention, train_visual, **settings)


def _draw(
    attention: Attention,
    train_visual: bool,
    *,
    max_length: int,
    answer_length: int,
    dropout: float,
    coordinates: Coordinates,
    width: int | None = None,
    layers: int | None = None,
) -> VT5:
    """Returns a VT5 with random weights, in its published size if no width is given."""
    subwords = Subwords.shipped()
    language: dict[str, Any] = {"vocab_size": 32_128, "num_layers": 12, "num_heads": 12}
    language |= {"d_model": 768, "d_kv": 64, "d_ff": 3072}
    page: dict[str, Any] = {}
    if width is not None:
        language = {"vocab_size": subwords.size, "num_layers": layers, "num_heads": width // 16}
        language |= {"d_model": width, "d_kv": 16, "d_ff": 2 * width}
        page = {"hidden_size": width, "num_hidden_layers": layers, "intermediate_size": 2 * width}
        page |= {"num_attention_heads": width // 16, "image_size": 64, "patch_size": 16}
    t5_config = T5Config(
        **language,
        dropout_rate=dropout,
        pad_token_id=subwords.pad,
        eos_token_id=subwords.sep,
        decoder_start_token_id=subwords.pad,
        attn_implementation=attention,
    )
    # The structure of DiT (microsoft/dit-base).
    beit_config = BeitConfig(
        **page,
        **{DIT_DROPOUT: dropout},
        use_absolute_position_embeddings=True,
        use_relative_position_bias=False,
        use_mask_token=False,
        layer_scale_init_value=0.1,
        attn_implementation=attention,
    )
    side, step = beit_config.image_size, 1 if width is None else 40
    reader = VT5Reader(subwords, max_length, answer_length, side, coordinates, box_step=step)
    backbone = T5ForConditionalGeneration(t5_config)
    image_model = BeitModel(beit_config, add_pooling_layer=False)
    return VT5(backbone, image_model, reader, train_visual=train_visual)


def _load(
    name: str,
    visual: str | Path | None,
    attention: Attention,
    train_visual: bool,
    *,
    dropout: float | None,
    **given: Any,
) -> VT5:
    """Returns a saved VT5 or, if `visual` is given, a T5 joined to that visual encoder."""
    settings = {key: value for key, value in given.items() if value is not None}
    language, page = {}, {}
    if visual is None:
        there(name)
        language, page = {"subfolder": LANGUAGE}, {"subfolder": VISUAL}
        saved = Path(str(cached_file(name, READING))).read_text("utf-8")
        settings = json.loads(saved) | settings
    common = {"dtype": torch.float32, "attn_implementation": attention}
    backbone = T5ForConditionalGeneration.from_pretrained(
        name, **language, **({} if dropout is None else {"dropout_rate": dropout}), **common
    )
    image_model = BeitModel.from_pretrained(
        str(visual or name),
        add_pooling_layer=False,
        **page,
        **({} if dropout is None else {DIT_DROPOUT: dropout}),
        **common,
    )
    settings.setdefault("image_size", image_model.config.image_size)
    reader = VT5Reader(Subwords.from_pretrained(name, **language), **settings)
    model = VT5(backbone, image_model, reader, train_visual=train_visual)
    if visual is None:
        model.take_between(load_file(Path(str(cached_file(name, BETWEEN)))), name)
    return model


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


class VT5(GenerativeAnswerer):
    """Answers questions about pages.

    Args:
        language_backbone: T5.
        image_model: BEiT, DiT.
        reader: makes the arrays; its tokenizer is T5's.
        train_visual: whether the visual encoder is trained; the authors' code freezes it.
    """

    name = "vt5"
    reader: VT5Reader

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
            # Neither is used, so they could not learn, and must get no noise.
            if "mask_token" in name or "pooler" in name:
                parameter.requires_grad_(False)

    def forward(self, batch: Batch) -> Tensor:
        """Returns the scores of the answer's tokens, of shape (batch, A, vocabulary)."""
        embeddings, mask = self.read(batch)
        return self._scores(batch, attention_mask=mask, inputs_embeds=embeddings)

    def read(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Returns the encoder's input, (batch, L + patches + 1, width), and its attention mask."""
        words = self.language_backbone.shared(batch["input_ids"].long())
        text = words + self.spatial_embedding(batch["bbox"].long())
        page = self.visual_embedding(batch["pixels"])
        mask = batch["attention_mask"].long()
        seen = torch.ones(page.shape[:2], dtype=mask.dtype, device=mask.device)
        return torch.cat([text, page], 1), torch.cat([mask, seen], 1)

    def answer_batch(self, batch: Batch) -> list[Answer]:
        """Returns the greedy answer of each row."""
        embeddings, mask = self.read(batch)
        return self._written(attention_mask=mask, inputs_embeds=embeddings)

    def reply_batch(self, batch: Batch) -> tuple[list[Answer], Tensor]:
        """Returns answers and losses of one reading of the page."""
        embeddings, mask = self.read(batch)
        encode = self.language_backbone.encoder
        page = {
            "attention_mask": mask,
            "encoder_outputs": encode(inputs_embeds=embeddings, attention_mask=mask),
        }
        losses = token_losses(self._scores(batch, **page), batch["labels"])
        return self._written(**page), losses

    def _scores(self, batch: Batch, **page: Any) -> Tensor:
        start = self.language_backbone.config.decoder_start_token_id
        before = shifted_right(batch["labels"], start, self.reader.subwords.pad)
        output = self.language_backbone(decoder_input_ids=before, use_cache=False, **page)
        logits: Tensor = output.logits
        return logits

    def _written(self, **page: Any) -> list[Answer]:
        generated = self.language_backbone.generate(
            **page, max_new_tokens=self.reader.answer_length, **GREEDY
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
        """Returns the modules after the last layer; the scores are tied to the words."""
        return [self.language_backbone.decoder.final_layer_norm]

    def visual(self) -> list[nn.Module]:
        """Returns the visual encoder."""
        return [self.visual_embedding.image_model]

    def reading(self) -> dict[str, Any]:
        """Returns all settings that decide how documents become arrays."""
        return {**super().reading(), "vocabulary": self.reader.subwords.digest}
