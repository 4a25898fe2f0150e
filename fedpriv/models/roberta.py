"""RoBERTa for key information extraction: the baseline of PrIeD-KIE that reads the text alone.

Words, windows and tags are those of LayoutLMv3; places and image are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from torch import Tensor, nn
from transformers import RobertaConfig, RobertaForTokenClassification

from fedpriv.data.examples import Batch
from fedpriv.models.checkpoints import config_of, network_of
from fedpriv.models.presets import Attention, Presets, small_network
from fedpriv.models.readers.reader import Reader
from fedpriv.models.readers.subwords import Subwords
from fedpriv.models.saving import (
    draw_linear,
    fits_positions,
    positions,
    settings_of,
)
from fedpriv.models.tagging import NetworkTagger, tags_of
from fedpriv.runtime.outside import PathSetting

PRESETS = Presets(
    {
        "tiny": {
            "max_length": 128,
            "dropout": 0.0,
            "hidden_size": 32,
            "layers": 2,
            "initializer_range": 0.1,
        },
        "base": {"max_length": 512, "dropout": 0.1},
    },
    loadable=("max_length", "dropout"),
)


def roberta(
    labels: Sequence[str] = (),
    *,
    size: Literal["tiny", "base"] = "tiny",
    pretrained: PathSetting | None = None,
    max_length: int | None = None,
    dropout: float | None = None,
    hidden_size: int | None = None,
    layers: int | None = None,
    initializer_range: float | None = None,
    attention: Attention = "sdpa",
) -> RobertaTagger:
    """Builds a RoBERTa that tags words.

    Arguments left as None keep the default of `size`, or of the pretrained model.

    Args:
        labels: the entity types of the data set. If empty, a pretrained model keeps its own; for
            other labels, a new head is drawn.
        size: the size of a model with random weights: "tiny" has 70,000 parameters and the
            dimensions of the tiny LayoutLMv3, "base" has 124 million, as published. With
            `pretrained`, it has no effect on the model, but experiments take their learning rates
            from it.
        pretrained: the weights to start from: a local folder or a hub id, such as
            FacebookAI/roberta-base. None draws random weights.
        max_length: the number of tokens in a window of the text, the two special tokens included
            (L). "base" takes at most 512. None takes 128 in "tiny" and 512 in "base", or the value
            of the pretrained model.
        dropout: the dropout probability in the embeddings, the layers and the head. None takes 0 in
            "tiny" and 0.1 in "base", or the value of the pretrained model.
        hidden_size: the width of the layers, an even number; the feed-forward layers are twice as
            wide. Only "tiny" with random weights takes it. None takes 32.
        layers: the number of Transformer layers. Only "tiny" with random weights takes it. None
            takes 2.
        initializer_range: the standard deviation of the random weights. Only "tiny" with random
            weights takes it. None takes 0.1.
        attention: how attention is computed: "sdpa", or "eager" for attacks that need gradients of
            gradients.

    Raises:
        ValueError: if `max_length` is too long for the model.
        OSError: if there is no such folder and no such model on the hub.
    """
    settings = PRESETS.settings(locals())
    return _draw(settings) if pretrained is None else _load(settings)


def _draw(given: Mapping[str, Any]) -> RobertaTagger:
    subwords, dropout, tiny = Subwords.shipped(), given["dropout"], given["size"] == "tiny"
    sizes = {"vocab_size": 50265, "max_position_embeddings": 514}
    if tiny:
        if given["hidden_size"] % 2:
            raise ValueError(
                f"hidden_size={given['hidden_size']} must be even, for two attention heads"
            )
        sizes = small_network(subwords, given, padding=2)
    config = RobertaConfig(
        **sizes,
        type_vocab_size=1,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        pad_token_id=subwords.pad,
        bos_token_id=subwords.cls,
        eos_token_id=subwords.sep,
        num_labels=len(tags_of(given["labels"])),
        attn_implementation=given["attention"],
    )
    source = f"size={given['size']!r}"
    length = fits_positions(given["max_length"], None, positions(config), source)
    reader = Reader(subwords, length, None, box_step=40 if tiny else 1)
    return RobertaTagger(RobertaForTokenClassification(config), reader, given["labels"])


def _load(given: Mapping[str, Any]) -> RobertaTagger:
    folder = given["pretrained"]
    saved = settings_of(folder)
    labels = given["labels"] or saved.get("labels", ())
    config = config_of(RobertaConfig, folder, num_labels=len(tags_of(labels)))
    if given["dropout"] is not None:
        config.hidden_dropout_prob = config.attention_probs_dropout_prob = given["dropout"]
    network, _ = network_of(
        RobertaForTokenClassification,
        folder,
        new_head=True,
        config=config,
        attn_implementation=given["attention"],
    )
    if saved.get("labels", list(labels)) != list(labels):
        draw_linear(network.classifier, config.initializer_range)
    most = positions(config)
    length = fits_positions(given["max_length"], saved.get("max_length"), most, folder)
    reader = Reader(Subwords.from_pretrained(folder), length, None, saved.get("box_step", 1))
    return RobertaTagger(network, reader, labels).train()


class RobertaTagger(NetworkTagger):
    """RoBERTa with a BIO tag on each word."""

    name = "roberta"

    def inputs(self, batch: Batch) -> dict[str, Tensor]:
        """Returns the network's arguments for a batch."""
        return {name: batch[name] for name in ("input_ids", "attention_mask")}

    def blocks(self) -> list[nn.Module]:
        """Returns the Transformer layers from input to output."""
        return list(self.network.roberta.encoder.layer)

    def visual(self) -> list[nn.Module]:
        """Returns nothing: there is no image."""
        return []
