"""LayoutLMv3 for key information extraction as token classification (002 §4.2).

BIO tags, a label on the first sub-token of a word only, documents cut into windows of L tokens,
2-D positions of text lines scaled to 0…1000, the page image beside them; lower-cased text.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import LayoutLMv3Config, LayoutLMv3ForTokenClassification

from fedpriv.data.examples import Batch
from fedpriv.models.reader import Reader
from fedpriv.models.subwords import Subwords
from fedpriv.models.tagging import WordTagger, tags_of


def layoutlmv3_tiny(
    labels: Sequence[str],
    *,
    max_length: int = 128,
    image_size: int = 32,
    hidden_size: int = 32,
    layers: int = 2,
    dropout: float = 0.0,
    initializer_range: float = 0.1,
) -> LayoutLMv3Tagger:
    """Builds a LayoutLMv3 of 100 000 parameters that learns on two CPU cores in seconds.

    Coordinates are rounded down to multiples of 40 of 1000: from scratch, on few pages, most of the
    1000 positions are never seen, and the model would learn none of the layout.

    Args:
        labels: entity types of the data set.
        max_length: L, tokens of a window, the two special ones included.
        image_size: side of the square page image in pixels, a multiple of 8.
        hidden_size: width, a multiple of 16; the feed-forward layer is twice as wide.
        layers: Transformer layers.
        dropout: in the embeddings, the layers and the head.
        initializer_range: standard deviation of the drawn weights. The usual 0.02 is made for
            768 dimensions; in 32 it costs the first two epochs.
    """
    if hidden_size % 16 or image_size % 8:
        raise ValueError(
            f"{hidden_size=} must be a multiple of 16 and {image_size=} a multiple of 8"
        )
    subwords = Subwords.shipped()
    shape_size = hidden_size // 8
    config = LayoutLMv3Config(
        vocab_size=subwords.size,
        hidden_size=hidden_size,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=2 * hidden_size,
        max_position_embeddings=max_length + 2,
        coordinate_size=(hidden_size - 2 * shape_size) // 4,
        shape_size=shape_size,
        input_size=image_size,
        patch_size=8,
        initializer_range=initializer_range,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        pad_token_id=subwords.pad,
        bos_token_id=subwords.cls,
        eos_token_id=subwords.sep,
        num_labels=len(tags_of(labels)),
    )
    network = LayoutLMv3ForTokenClassification(config)
    _draw_visual_positions(network)
    reader = Reader(subwords, max_length, image_size, box_step=40)
    return LayoutLMv3Tagger(network, reader, labels)


def from_pretrained(
    folder: str | Path, labels: Sequence[str], *, max_length: int = 512
) -> LayoutLMv3Tagger:
    """Loads weights and tokenizer from a folder or a hub id (microsoft/layoutlmv3-base).

    A classification head for another number of labels is drawn anew.

    Args:
        folder: as `save_pretrained` of transformers writes it.
        labels: entity types of the data set.
        max_length: L, at most what the model's position embeddings allow.

    Raises:
        ValueError: if `max_length` is too long for the model.
        OSError: if there is no such folder and no such model on the hub.
    """
    network = LayoutLMv3ForTokenClassification.from_pretrained(
        str(folder),
        num_labels=len(tags_of(labels)),
        ignore_mismatched_sizes=True,
        dtype=torch.float32,
    )
    # Positions count from the padding id + 1, as in RoBERTa.
    most = network.config.max_position_embeddings - network.config.pad_token_id - 1
    if max_length > most:
        raise ValueError(f"max_length={max_length}: {folder} has positions for {most} tokens")
    subwords = Subwords.from_pretrained(folder)
    reader = Reader(subwords, max_length, network.config.input_size)
    return LayoutLMv3Tagger(network, reader, labels)


class LayoutLMv3Tagger(WordTagger):
    """LayoutLMv3 with a BIO tag on each word."""

    def __init__(
        self,
        network: LayoutLMv3ForTokenClassification,
        reader: Reader,
        labels: Sequence[str],
    ) -> None:
        super().__init__(reader, labels)
        self.network = network
        # transformers looks these tables up without gradient: they can never learn, so they must
        # not travel, be clipped or get noise.
        for name, parameter in self.network.named_parameters():
            if "rel_pos" in name:
                parameter.requires_grad_(False)

    def forward(self, batch: Batch) -> Tensor:
        """Returns the scores of the tags, of shape (batch, L, tags)."""
        pixels = (batch["pixels"].float() / 255 - 0.5) / 0.5
        output = self.network(
            input_ids=batch["input_ids"],
            attention_mask=batch["attention_mask"],
            bbox=batch["bbox"],
            pixel_values=pixels,
        )
        scores: Tensor = output.logits[:, : batch["input_ids"].shape[1]]
        return scores


def _draw_visual_positions(network: LayoutLMv3ForTokenClassification) -> None:
    """Draws cls_token and pos_embed, which transformers leaves at zero.

    At zero they stand in front of a LayerNorm, where the gradient is about 500 times that of all
    other parameters together: clipping and inversion would see nothing else.
    """
    base = network.layoutlmv3
    std = network.config.initializer_range
    nn.init.normal_(base.cls_token, std=std)
    nn.init.normal_(base.pos_embed, std=std)
