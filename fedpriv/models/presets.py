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

    def settings(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the arguments of a model's function, with the settings of its size for None.

        Args:
            given: all arguments by name. `size` names one of `sizes`, and decides nothing beside
                `pretrained`, where weights are loaded from: its settings stay None, for "as saved".

        Raises:
            ValueError: if there is no such size, or it has no such setting.
        """
        size, pretrained = given["size"], given["pretrained"]
        if pretrained is None:
            own, owner = choose("size", size, self.sizes), f"size={size!r}"
        else:
            own, owner = dict.fromkeys(self.loadable), f"the model in {pretrained}"
        chosen = {name: value for name, value in given.items() if value is not None}
        for name, value in chosen.items():
            if name not in own and any(name in settings for settings in self.sizes.values()):
                raise ValueError(f"{name}={value}: {owner} has its own")
        return {**given, **own, **chosen}


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


def small_network(subwords: Subwords, given: Mapping[str, Any], padding: int = 0) -> dict[str, Any]:
    """Returns the structure of a small network like BERT's, in transformers' words.

    Args:
        subwords: the tokenizer.
        given: `max_length`, the tokens of a window; `hidden_size`, even, where the feed-forward
            layer is twice as wide; `layers`, each with two attention heads; `initializer_range`,
            the standard deviation of the random weights.
        padding: positions beside those of a window.
    """
    return {
        "vocab_size": subwords.size,
        "hidden_size": given["hidden_size"],
        "num_hidden_layers": given["layers"],
        "num_attention_heads": 2,
        "intermediate_size": 2 * given["hidden_size"],
        "max_position_embeddings": given["max_length"] + padding,
        "initializer_range": given["initializer_range"],
    }
