"""VT5: a T5 that reads words, their places and the page, and writes answers (PFL-DocVQA, App. B).

The encoder's input is the question, the OCR words (each a T5 word embedding plus the sum of four
learned embeddings of its box) and the outputs of a visual encoder (DiT, a BEiT) for the page's
patches. Module names are those of the authors' framework (MP-DocVQA).
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import BeitConfig, BeitModel, T5Config, T5ForConditionalGeneration
from transformers.utils import cached_file

from fedpriv.data.examples import Batch
from fedpriv.models.checkpoints import config_of, network_of
from fedpriv.models.generation import EncoderDecoderAnswerer, greedy
from fedpriv.models.presets import Attention, Presets
from fedpriv.models.readers.reader import normalised
from fedpriv.models.readers.subwords import Subwords
from fedpriv.models.readers.vt5_reader import Coordinates, VT5Reader
from fedpriv.models.saving import SETTINGS, VISUAL, save_settings, there
from fedpriv.runtime.outside import PathSetting

LANGUAGE = "language"
BETWEEN = "between.safetensors"
"""What a saved model consists of: two of transformers' folders, this file and `SETTINGS`."""

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
    pretrained: PathSetting | Literal["shipped"] | None = None,
    visual: PathSetting | None = None,
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
        labels: the entity types of the data set. They are not used, but every document model is
            built with them.
        size: the size of a model with random weights: "tiny" has half a million parameters, "base"
            is T5-base with DiT-base, as published. With `pretrained`, it has no effect on the
            model, but experiments take their learning rates from it.
        pretrained: the weights to start from: a local folder or a hub id that `VT5.save_pretrained`
            wrote. "shipped" is a tiny VT5 that comes with fedpriv and can read generated invoices.
            None draws random weights.
        visual: the folder or hub id of a pretrained BEiT or DiT, such as
            microsoft/dit-base-finetuned-rvlcdip. `pretrained` then names a T5, such as
            google-t5/t5-base, and the parameters that join the two are drawn at random. None takes
            a whole VT5.
        max_length: the largest number of tokens in question and words together, the end token
            included (L); what is longer is cut. None takes 256 in "tiny" and 512 in "base", or the
            value of the pretrained model.
        answer_length: the largest number of tokens in an answer (A), the end token included. None
            takes 24 in "tiny" and 32 in "base", or the value of the pretrained model.
        dropout: the dropout probability in all parts of the model. None takes 0 in "tiny" and 0.1
            in "base", or the value of the pretrained model.
        coordinates: "thousandths" gives the boxes of words in thousandths of the page. "published"
            repeats the code of the authors, which rounds coordinates between 0 and 1 to integers,
            so that the model hardly sees where a word is; it is for comparison with the numbers of
            the paper. None takes the value of the pretrained model, or "thousandths".
        width: the width of T5 and of the visual encoder, a multiple of 16. Only "tiny" with random
            weights takes it. None takes 64.
        layers: the number of layers in each of T5's encoder, T5's decoder and the visual encoder.
            Only "tiny" with random weights takes it. None takes 2.
        train_visual: whether the visual encoder is trained; the code of the authors freezes it.
        attention: how attention is computed: "sdpa", or "eager" for attacks that need gradients of
            gradients.

    Raises:
        OSError: if there is no such folder and no such model on the hub, or a part is missing.
        ValueError: if the weights are not those of a VT5.
    """
    if visual is not None and pretrained is None:
        raise ValueError(f"visual={visual!r} needs pretrained=, the T5 that it is joined to")
    settings = PRESETS.settings(locals())
    return _draw(settings) if pretrained is None else _load(settings)


def _draw(given: Mapping[str, Any]) -> VT5:
    """Returns a VT5 with random weights, in its published size if no width is given."""
    subwords, width, layers = Subwords.shipped(), given["width"], given["layers"]
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
        dropout_rate=given["dropout"],
        pad_token_id=subwords.pad,
        eos_token_id=subwords.sep,
        decoder_start_token_id=subwords.pad,
        attn_implementation=given["attention"],
    )
    # The structure of DiT (microsoft/dit-base).
    beit_config = BeitConfig(
        **page,
        **{DIT_DROPOUT: given["dropout"]},
        use_absolute_position_embeddings=True,
        use_relative_position_bias=False,
        use_mask_token=False,
        layer_scale_init_value=0.1,
        attn_implementation=given["attention"],
    )
    reading = {name: given[name] for name in ("max_length", "answer_length", "coordinates")}
    reading |= {"image_size": beit_config.image_size, "box_step": 1 if width is None else 40}
    backbone = T5ForConditionalGeneration(t5_config)
    image_model = BeitModel(beit_config, add_pooling_layer=False)
    reader = VT5Reader(subwords, **reading)
    return VT5(backbone, image_model, reader, train_visual=given["train_visual"])


def _load(given: Mapping[str, Any]) -> VT5:
    """Returns a saved VT5 or, if `visual` is given, a T5 joined to that visual encoder."""
    pretrained, visual = given["pretrained"], given["visual"]
    dropout, attention = given["dropout"], given["attention"]
    name = str(SHIPPED if pretrained == "shipped" else pretrained)
    reading = {
        key: given[key]
        for key in ("max_length", "answer_length", "coordinates")
        if given[key] is not None
    }
    language = page = ""
    if visual is None:
        there(name)
        language, page = LANGUAGE, VISUAL
        saved = Path(str(cached_file(name, SETTINGS))).read_text("utf-8")
        reading = json.loads(saved) | reading
        reading.pop("vocabulary", None)  # for information
    drops = {} if dropout is None else {"dropout_rate": dropout}
    config = config_of(T5Config, name, language, **drops)
    backbone, _ = network_of(
        T5ForConditionalGeneration, name, language, config=config, attn_implementation=attention
    )
    drops = {} if dropout is None else {DIT_DROPOUT: dropout}
    config = config_of(BeitConfig, visual or name, page, **drops)
    image_model, _ = network_of(
        BeitModel,
        visual or name,
        page,
        config=config,
        add_pooling_layer=False,
        attn_implementation=attention,
    )
    reading.setdefault("image_size", image_model.config.image_size)
    reader = VT5Reader(Subwords.from_pretrained(name, language), **reading)
    model = VT5(backbone, image_model, reader, train_visual=given["train_visual"])
    if visual is None:
        weights = load_file(Path(str(cached_file(name, BETWEEN))))
        expected, found = (
            {key: tuple(tensor.shape) for key, tensor in tensors.items()}
            for tensors in (model.between(), weights)
        )
        if expected != found:
            raise ValueError(f"{name}: {BETWEEN} holds {found}, a VT5 of its size needs {expected}")
        model.load_state_dict(weights, strict=False)
    return model


class SpatialEmbedding(nn.Module):
    """Where a word stands: x0, y0, x1, y1 embedded, summed, normalised and projected."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.x_position_embeddings = nn.Embedding(PLACES, width)
        self.y_position_embeddings = nn.Embedding(PLACES, width)
        self.LayerNorm = nn.LayerNorm(width, eps=1e-12)
        self.dropout = nn.Dropout(dropout)
        self.spatial_emb_matcher: Any = _projection(width, width)

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
        self.visual_emb_matcher = _projection(image_model.config.hidden_size, width)

    def forward(self, pixels: Tensor) -> Tensor:
        """Returns (batch, patches + 1, width) for pixels (batch, 3, side, side) in 0…255."""
        dtype = next(self.visual_emb_matcher.parameters()).dtype
        seen = self.image_model(pixel_values=normalised(pixels, dtype)).last_hidden_state
        projected: Tensor = self.visual_emb_matcher(seen)
        return projected


def _projection(inputs: int, outputs: int) -> nn.Sequential:
    """Returns one linear layer, under the name that the authors' MLP gives it."""
    return nn.Sequential(OrderedDict(layers=nn.Sequential(nn.Linear(inputs, outputs))))


class VT5(EncoderDecoderAnswerer):
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
        start = config.decoder_start_token_id
        language_backbone.generation_config = greedy(reader, decoder_start_token_id=start)
        image_model.requires_grad_(train_visual)
        for name, parameter in image_model.named_parameters():
            # Neither is used, so they could not learn, and must get no noise.
            if "mask_token" in name or "pooler" in name:
                parameter.requires_grad_(False)

    @property
    def writer(self) -> Any:
        """T5."""
        return self.language_backbone

    def page(self, batch: Batch) -> dict[str, Tensor]:
        """Returns the encoder's input, (batch, L + patches + 1, width), and its attention mask."""
        words = self.language_backbone.shared(batch["input_ids"].long())
        text = words + self.spatial_embedding(batch["bbox"].long())
        page = self.visual_embedding(batch["pixels"])
        mask = batch["attention_mask"].long()
        seen = torch.ones(page.shape[:2], dtype=mask.dtype, device=mask.device)
        together = {"attention_mask": (mask, seen), "inputs_embeds": (text, page)}
        return {name: torch.cat(parts, 1) for name, parts in together.items()}

    def save_pretrained(self, folder: str | Path) -> None:
        """Writes a folder that `from_pretrained` reads; its parts load as transformers' own."""
        folder = Path(folder)
        self.language_backbone.save_pretrained(folder / LANGUAGE)
        self.reader.subwords.save_pretrained(folder / LANGUAGE)
        self.visual_embedding.image_model.save_pretrained(folder / VISUAL)
        own = {n: p.detach().cpu().contiguous() for n, p in self.between().items()}
        save_file(own, folder / BETWEEN)
        save_settings(folder, self.reader.settings())

    def between(self) -> dict[str, nn.Parameter]:
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
