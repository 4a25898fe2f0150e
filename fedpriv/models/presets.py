"""Named sizes of a model: what they set, and what a caller may set otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from fedpriv.models.readers.subwords import Subwords

T = TypeVar("T")

Attention = Literal["sdpa", "eager"]
"""How attention is computed: "eager" where gradients of gradients are needed, as by inversion."""


@dataclass(frozen=True)
class Presets:
    """The settings of a model by its size.

    Attributes:
        sizes: settings by name, for each size. Together they draw a model with random weights.
        loadable: names of the settings that a pretrained model takes too.
    """

    sizes: Mapping[str, Mapping[str, Any]]
    loadable: tuple[str, ...]

    def settings(self, size: str, pretrained: object = None, **overrides: Any) -> dict[str, Any]:
        """Returns the settings of a size, or of a pretrained model, with overrides.

        Args:
            size: a name of `sizes`; decides nothing if `pretrained` is given.
            pretrained: where weights are loaded from. Its settings are None, for "as saved".
            **overrides: settings that replace the preset's, unless they are None.

        Raises:
            ValueError: if there is no such size, or an override is none of its settings.
        """
        if pretrained is None:
            settings = dict(choose("size", size, self.sizes))
        else:
            settings = dict.fromkeys(self.loadable)
        for name, value in overrides.items():
            if value is None:
                continue
            if name not in settings:
                owner = f"size={size!r}" if pretrained is None else f"the model in {pretrained}"
                raise ValueError(f"{name}={value}: {owner} has its own")
            settings[name] = value
        return settings


def choose(setting: str, name: str, choices: Mapping[str, T]) -> T:
    """Looks up a setting by name.

    Args:
        setting: what is set, for the error.
        name: of the choice.
        choices: by name.

    Raises:
        ValueError: if there is no choice of that name; lists the names that there are.
    """
    if name not in choices:
        raise ValueError(f"{setting}={name!r}: expected {' or '.join(map(repr, choices))}")
    return choices[name]


def small_network(
    subwords: Subwords, *, hidden_size: int, layers: int, positions: int, initializer_range: float
) -> dict[str, Any]:
    """Returns the structure of a small network like BERT's, in transformers' words.

    Args:
        subwords: the tokenizer.
        hidden_size: width, even; the feed-forward layer is twice as wide.
        layers: Transformer layers, each with two attention heads.
        positions: rows of the table of positions.
        initializer_range: standard deviation of the random weights.
    """
    return {
        "vocab_size": subwords.size,
        "hidden_size": hidden_size,
        "num_hidden_layers": layers,
        "num_attention_heads": 2,
        "intermediate_size": 2 * hidden_size,
        "max_position_embeddings": positions,
        "initializer_range": initializer_range,
    }
