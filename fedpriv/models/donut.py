"""Donut (Kim et al. 2022): reads the page's image alone, without OCR, and writes the answer.

A Swin encoder sees the page; an MBart decoder reads the question as the beginning of its own text,
`<s_docvqa><s_question>…</s_question><s_answer>`, and goes on with the answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from torch import Tensor, nn
from transformers import (
    DonutSwinConfig,
    DonutSwinModel,
    MBartConfig,
    MBartForCausalLM,
    VisionEncoderDecoderConfig,
    VisionEncoderDecoderModel,
)

from fedpriv.data.examples import Batch
from fedpriv.models.checkpoints import another_type, config_of, network_of
from fedpriv.models.generation import PromptedAnswerer, greedy
from fedpriv.models.presets import Attention, Presets, choose
from fedpriv.models.readers.donut_reader import MARKS, START, DonutReader, with_prompt
from fedpriv.models.readers.reader import normalised
from fedpriv.models.readers.subwords import Subwords
from fedpriv.models.saving import fits_positions, save, settings_of
from fedpriv.runtime.outside import PathSetting

PUBLISHED_VOCABULARY = 57_525
"""Tokens of naver-clova-ix/donut-base, those of a prompt not among them."""

PATCH = 4
"""Side of a patch in pixels."""


def _decoder(width: int, *, layers: int, heads: int, ffn_dim: int) -> dict[str, int]:
    """Returns the sizes of MBart: those of an encoder, which is not there, set the cache's."""
    halves = ("encoder", "decoder")
    sizes = {"layers": layers, "attention_heads": heads, "ffn_dim": ffn_dim}
    return {"d_model": width} | {f"{h}_{n}": value for h in halves for n, value in sizes.items()}


PRESETS = Presets(
    {
        "tiny": {
            "image_size": (64, 64),
            "max_length": 64,
            "answer_length": 24,
            "dropout": 0.0,
            "drop_path": 0.0,
            # With 0.02, made for widths of hundreds, it takes four times as long to look at the
            # page at all.
            "initializer_range": 0.1,
            "encoder": {
                "embed_dim": 24,
                "depths": [1, 1, 2],
                "num_heads": (2, 2, 4),
                "window_size": 4,
            },
            "decoder": _decoder(96, layers=2, heads=4, ffn_dim=192),
        },
        "small": {
            "image_size": (112, 112),
            "max_length": 64,
            "answer_length": 24,
            "dropout": 0.0,
            "drop_path": 0.0,
            "initializer_range": 0.07,
            "encoder": {
                "embed_dim": 96,
                "depths": [2, 2],
                "num_heads": (4, 8),
                "window_size": 14,
            },
            "decoder": _decoder(192, layers=2, heads=4, ffn_dim=384),
        },
        "base": {
            "image_size": (1280, 960),
            "max_length": 128,
            "answer_length": 48,
            "dropout": 0.1,
            "drop_path": 0.1,
            "initializer_range": 0.02,
            "encoder": {
                "embed_dim": 128,
                "depths": [2, 2, 14, 2],
                "num_heads": (4, 8, 16, 32),
                "window_size": 10,
            },
            "decoder": _decoder(1024, layers=4, heads=16, ffn_dim=4096),
        },
    },
    loadable=("image_size", "max_length", "answer_length", "dropout", "drop_path"),
)


def donut(
    labels: Sequence[str] = (),
    *,
    size: Literal["tiny", "small", "base"] = "tiny",
    pretrained: PathSetting | None = None,
    task: Literal["answers"] = "answers",
    image_size: tuple[int, int] | None = None,
    max_length: int | None = None,
    answer_length: int | None = None,
    dropout: float | None = None,
    drop_path: float | None = None,
    initializer_range: float | None = None,
    attention: Attention = "sdpa",
) -> Donut:
    """Builds a Donut.

    Arguments left as None keep the default of `size`, or of the pretrained model.

    "tiny" has 0.7 million parameters: on pages of 64 x 64 pixels no text can be read, but it learns
    what a page's layout and logo give away. "small" has 2.4 million and sees every letter of a
    small page: its 96 dimensions hold a patch of 4 x 4 pixels in three colours, and a window has
    14 x 14 patches. "base" has 202 million; its page image is (2560, 1920) as published, and a
    quarter of that here.

    Args:
        labels: the entity types of the data set. They are not used, but every document model is
            built with them.
        size: the size of a model with random weights: "tiny" has 0.7 million parameters, "small"
            2.4 million, "base" 202 million, as published. With `pretrained`, it has no effect on
            the model, but experiments take their learning rates from it.
        pretrained: the weights to start from: a local folder or a hub id, such as
            naver-clova-ix/donut-base-finetuned-docvqa. Prompt tokens that its tokenizer does not
            know are added, with randomly drawn embeddings. None draws random weights.
        task: what the model learns: always "answers" to questions. The setting is there because
            LayoutLMv3, which can take the place of Donut, has two tasks.
        image_size: the height and width of the page image in pixels. In "tiny" both are multiples
            of 16 and at least 64, in "small" multiples of 8. None takes (64, 64) in "tiny", (112,
            112) in "small" and (1280, 960) in "base", or the size of the pretrained model.
        max_length: the largest number of tokens in prompt and answer together; a longer question is
            cut. None takes 64 in "tiny" and "small" and 128 in "base", or the value of the
            pretrained model.
        answer_length: the largest number of tokens in an answer, the end token included. None takes
            24 in "tiny" and "small" and 48 in "base", or the value of the pretrained model.
        dropout: the dropout probability in the decoder. None takes 0 in "tiny" and "small" and 0.1
            in "base", or the value of the pretrained model.
        drop_path: the probability with which the last layer of the encoder skips its residual
            branches; earlier layers do so less often. None takes 0 in "tiny" and "small" and 0.1 in
            "base", or the value of the pretrained model.
        initializer_range: the standard deviation of random weights. None takes 0.1 in "tiny", 0.07
            in "small" and 0.02 in "base". A pretrained model takes none.
        attention: how attention is computed in the decoder: "sdpa", or "eager" for attacks that
            need gradients of gradients. The encoder always computes it as "eager" does.

    Raises:
        ValueError: if sizes do not fit each other, or the pretrained model.
        OSError: if there is no such folder and no such model on the hub.
    """
    choose("task", task, {"answers": None})
    settings = PRESETS.settings(locals())
    return _draw(settings) if pretrained is None else _load(settings)


def _draw(given: Mapping[str, Any]) -> Donut:
    subwords, size = with_prompt(Subwords.shipped()), given["size"]
    image_size, max_length = given["image_size"], given["max_length"]
    swin = DonutSwinConfig(
        **_windows(given["encoder"], image_size, shrink=size == "small"),
        image_size=list(image_size),
        patch_size=PATCH,
        initializer_range=given["initializer_range"],
        # As published: in the encoder only paths are dropped.
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        drop_path_rate=given["drop_path"],
        attn_implementation="eager",
    )
    published = size == "base"
    mbart = MBartConfig(
        **given["decoder"],
        vocab_size=PUBLISHED_VOCABULARY + len(MARKS) if published else subwords.size,
        max_position_embeddings=1536 if published else max_length,
        init_std=given["initializer_range"],
        dropout=given["dropout"],
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
        attn_implementation=given["attention"],
    )
    encoder, decoder = DonutSwinModel(swin), MBartForCausalLM(mbart)
    network = VisionEncoderDecoderModel(encoder=encoder, decoder=decoder)
    model = Donut(network, DonutReader(subwords, max_length, given["answer_length"], image_size))
    if size == "small":
        # Tells places in a window apart, and the brightness of a patch, which LayerNorm would take
        # away: transformers leaves these parameters at zero.
        for name, parameter in network.encoder.named_parameters():
            if name.endswith("relative_position_bias_table"):
                nn.init.normal_(parameter, std=0.5)
            if name.endswith("patch_embeddings.projection.bias"):
                nn.init.normal_(parameter, std=0.1)
    return model


def _windows(
    encoder: Mapping[str, Any], image_size: tuple[int, int], *, shrink: bool
) -> dict[str, Any]:
    """Returns the encoder's sizes with windows that fit the image.

    Args:
        encoder: sizes from the presets.
        image_size: height and width in pixels.
        shrink: whether windows may become as small as the last stage's grid of patches.

    Raises:
        ValueError: if the image is not made of whole patches and windows.
    """
    step = PATCH * 2 ** (len(encoder["depths"]) - 1)
    window = encoder["window_size"]
    window = min(window, min(image_size) // step) if shrink else window
    if any(side % step or side < step * window for side in image_size):
        # Smaller pages would have fewer patches than a window, whose table of places is fixed.
        raise ValueError(
            f"image_size={tuple(image_size)}: expected multiples of {step}, {step * window} or more"
        )
    return {**encoder, "window_size": window}


def _load(given: Mapping[str, Any]) -> Donut:
    folder = given["pretrained"]
    saved = settings_of(folder)
    config = config_of(VisionEncoderDecoderConfig, folder)
    parts = (config.encoder.model_type, config.decoder.model_type)
    if parts != (DonutSwinConfig.model_type, MBartConfig.model_type):
        raise another_type(folder, " with ".join(parts), "donut-swin with mbart, which is a Donut")
    if given["dropout"] is not None:
        config.decoder.dropout = given["dropout"]
    if given["drop_path"] is not None:
        config.encoder.drop_path_rate = given["drop_path"]
    network, _ = network_of(
        VisionEncoderDecoderModel,
        folder,
        config=config,
        attn_implementation={"encoder": "eager", "decoder": given["attention"]},
    )
    subwords = with_prompt(Subwords.from_pretrained(folder))
    if subwords.size > network.decoder.config.vocab_size:
        # The mean of all embeddings, the other choice, takes a minute of linear algebra.
        network.decoder.resize_token_embeddings(subwords.size, mean_resizing=False)
    most = min(network.decoder.config.max_position_embeddings, 128)
    sides = given["image_size"] or saved.get("image_size", network.encoder.config.image_size)
    high, wide = (sides, sides) if isinstance(sides, int) else sides
    reader = DonutReader(
        subwords,
        fits_positions(given["max_length"], saved.get("max_length"), most, folder),
        given["answer_length"] or saved.get("answer_length", 48),
        (int(high), int(wide)),
    )
    return Donut(network, reader).train()


class Donut(PromptedAnswerer):
    """Answers questions about page images.

    Args:
        network: DonutSwin and MBart.
        reader: makes the arrays; its tokenizer is the network's.
    """

    name = "donut"
    reader: DonutReader

    def __init__(self, network: VisionEncoderDecoderModel, reader: DonutReader) -> None:
        super().__init__()
        self.network = network
        self.reader = reader
        # Its mean over the page is not used, and vmap would take it example by example.
        network.encoder.pooler = None
        ids, config = reader.subwords, network.config
        config.decoder_start_token_id = ids.tokenizer.token_to_id(START)
        config.pad_token_id, config.eos_token_id = ids.pad, ids.sep
        start = config.decoder_start_token_id
        network.generation_config = greedy(reader, decoder_start_token_id=start)

    def given(self, batch: Batch, length: int | None = None) -> dict[str, Tensor]:
        """Returns the network's arguments, with the tokens cut to the first `length`."""
        page = normalised(batch["pixels"], self.network.dtype)
        return {"pixel_values": page, "decoder_input_ids": batch["input_ids"][:, :length]}

    def unsaid(self) -> tuple[int, ...]:
        """Returns the mark at the end of an answer."""
        return (self.reader.answer_end,)

    def blocks(self) -> list[nn.Module]:
        """Returns the Transformer layers from input to output, the encoder's first."""
        stages = self.network.encoder.encoder.layers
        layers = [layer for stage in stages for layer in stage.blocks]
        return [*layers, *self.network.decoder.model.decoder.layers]

    def head(self) -> list[nn.Module]:
        """Returns the modules after the last layer, without the scores, which are tied to words."""
        return [self.network.decoder.model.decoder.layer_norm]

    def visual(self) -> list[nn.Module]:
        """Returns the encoder."""
        return [self.network.encoder]

    def save_pretrained(self, folder: str | Path) -> None:
        """Writes the model into a folder; `donut(pretrained=folder)` reads it back."""
        save(folder, self.network, self.reader.subwords, self.reading())
