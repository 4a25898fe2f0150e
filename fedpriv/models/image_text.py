"""Any image-text-to-text model of transformers, asked about page images: writes the answer.

A stand-in for PaLI-3, which is not public (Pinto et al., §3.1). It takes what
`AutoModelForImageTextToText` and `AutoProcessor` load, as long as a decoder reads image and prompt
as the beginning of its own text.

Tested, with small random weights and without torchvision: LLaVA (CLIP and Llama, a chat template),
PaliGemma (SigLIP and Gemma, the closest to PaLI-3) and Idefics3. Refused: encoders with a decoder
(Pix2Struct has a model of its own here). Families whose processor also takes videos (Qwen2-VL,
SmolVLM) need torchvision to be loaded, and are not tested. All others need no more than a processor
that, called with one image and one text, gives arrays that can be joined along their first axis.

Per-example gradients are computed by the loop: these networks count image tokens in a way that vmap
cannot follow. Parameters that no loss reaches, such as LLaVA's last layer of vision, stay as they
are, but are sent, and noised where there is noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, cast

from torch import Tensor, nn
from transformers import (
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
    AutoConfig,
    AutoModelForImageTextToText,
    AutoProcessor,
    PreTrainedModel,
)

from fedpriv.data.examples import Batch
from fedpriv.models.checkpoints import another_type, check_config, network_of
from fedpriv.models.generation import PromptedAnswerer, greedy
from fedpriv.models.presets import Attention
from fedpriv.models.readers.image_text_reader import SEEN, TOKEN, ImageTextReader, subwords_of
from fedpriv.models.saving import save_settings, settings_of
from fedpriv.runtime.outside import PathSetting


def image_text(
    labels: Sequence[str] = (),
    *,
    pretrained: PathSetting | None,
    size: Literal["tiny", "base"] = "base",
    longest_side: int | None = None,
    square: bool | None = None,
    max_length: int | None = None,
    answer_length: int | None = None,
    prompt: str | None = None,
    attention: Attention = "sdpa",
) -> ImageText:
    """Loads an image-text-to-text model, for settings files.

    Arguments left as None keep the saved value, or else the default of `ImageTextReader`.

    Args:
        labels: the entity types of the data set. They are not used, but every document model is
            built with them.
        pretrained: the model to load: a local folder or a hub id, such as
            google/paligemma2-3b-pt-448. It must be given.
        size: "tiny" or "base". It has no effect on the model, but experiments take their learning
            rates from it.
        longest_side: the longest side in pixels to which a page is shrunk before the processor of
            the model sees it, which limits the resolution of training. A processor with one fixed
            size scales the page up again. None takes the saved value, or 448.
        square: whether all pages are put on white squares, so that they have one shape even if the
            shape of the processor's output depends on it. None takes the saved value, or false.
        max_length: the number of tokens in prompt, image and answer together. None takes the saved
            value, or as many as the longest prompt of the documents needs.
        answer_length: the largest number of tokens in an answer, the end token included. None takes
            the saved value, or 48.
        prompt: the text that the model is given, with `{question}` in the place of the question,
            such as "answer en {question}". None takes the saved value, or the question alone.
        attention: how attention is computed: "sdpa", or "eager" for attacks that need gradients of
            gradients.

    Raises:
        ValueError: if there is nothing to load, or it is not such a model.
        OSError: if there is no such folder and no such model on the hub.
    """
    given = locals()
    if pretrained is None:
        raise ValueError(
            "pretrained=None: expected a local folder or a model's name on the hub, such as "
            "google/paligemma2-3b-pt-448; an image-text model has no size of its own to draw"
        )
    known = {"longest_side", "square", "max_length", "answer_length", "prompt"}
    chosen = settings_of(pretrained) | {name: v for name, v in given.items() if v is not None}
    settings = {name: v for name, v in chosen.items() if name in known and v is not None}
    network, processor = _network(pretrained, attention), _processor(pretrained)
    reader = ImageTextReader(processor, subwords_of(processor), **settings)
    return ImageText(network, reader).train()


def _network(folder: str | Path, attention: Attention) -> PreTrainedModel:
    check_config(folder)
    config = AutoConfig.from_pretrained(str(folder), trust_remote_code=False)
    known = type(config) in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING
    if not known or config.is_encoder_decoder:
        raise another_type(
            folder,
            config.model_type,
            "an image-text-to-text model with a decoder alone, such as PaliGemma, LLaVA, Idefics3",
        )
    kind = AutoModelForImageTextToText
    network, _ = network_of(kind, folder, config=config, attn_implementation=attention)
    return cast(PreTrainedModel, network)


def _processor(folder: str | Path) -> Any:
    try:
        processor = AutoProcessor.from_pretrained(str(folder), trust_remote_code=False)
    except (OSError, ImportError, AttributeError) as error:
        raise ValueError(
            f"pretrained={str(folder)!r}: its processor cannot be loaded ({error}); save the "
            "model's own into the folder with `save_pretrained`, its image processor with it; one "
            "that takes videos too needs torchvision"
        ) from error
    parts = [getattr(processor, name, None) for name in ("image_processor", "tokenizer")]
    if None in parts:
        raise ValueError(
            f"pretrained={str(folder)!r}: a {type(processor).__name__} does not take both images "
            "and text; save the model's own processor into the folder, with its image processor"
        )
    return processor


class ImageText(PromptedAnswerer):
    """Answers questions about page images.

    Args:
        network: as `AutoModelForImageTextToText` loads it.
        reader: makes the arrays; its processor is the network's.
    """

    name = "image_text"
    reader: ImageTextReader

    def __init__(self, network: PreTrainedModel, reader: ImageTextReader) -> None:
        super().__init__()
        self.network = network
        self.reader = reader
        network.generation_config = greedy(reader)

    def blocks(self) -> list[nn.Module]:
        """Returns the decoder's layers from input to output; those of vision are in `visual`."""
        return list(self._decoder().layers)

    def head(self) -> list[nn.Module]:
        """Returns the modules after the last layer, without scores that are tied to words."""
        words, scores = self.network.get_input_embeddings(), self.network.get_output_embeddings()
        tied = scores.weight is words.weight
        return [self._decoder().norm, *([] if tied else [scores])]

    def visual(self) -> list[nn.Module]:
        """Returns the encoder of images."""
        return [self.network.get_encoder(modality="image")]

    def save_pretrained(self, folder: str | Path) -> None:
        """Writes the model into a folder; `image_text(pretrained=folder)` reads it back."""
        self.network.save_pretrained(folder)
        self.reader.processor.save_pretrained(folder)
        save_settings(folder, self.reading())

    def _decoder(self) -> Any:
        decoder = self.network.get_decoder()
        if not hasattr(decoder, "layers") or not hasattr(decoder, "norm"):
            raise ValueError(
                f"{type(self.network).__name__}: its decoder, a {type(decoder).__name__}, has no "
                "`layers` and `norm` by which a part of it could be trained; take finetuning=full"
            )
        return decoder

    def given(self, batch: Batch, length: int | None = None) -> dict[str, Tensor]:
        """Returns the network's arguments, with the tokens cut to the first `length`."""
        given = {"input_ids": batch["input_ids"][:, :length]}
        for name, column in batch.items():
            if name.startswith(TOKEN):
                given[name.removeprefix(TOKEN)] = column[:, :length]
            if name.startswith(SEEN):
                joined = column.flatten(0, 1)
                real = joined.is_floating_point()
                given[name.removeprefix(SEEN)] = joined.to(self.network.dtype) if real else joined
        return given
