"""Models in folders: network and tokenizer as transformers writes them, and reading settings.

`config.json`, `model.safetensors`, `tokenizer.json` and `tokenizer_config.json` are those of
transformers. `fedpriv.json` holds the reading settings, which transformers does not know, and
`head.safetensors` the weights of a head that is not part of a network of transformers. A visual
encoder that is itself a network of transformers lies in the subfolder `visual`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from fedpriv.data.document import DataError
from fedpriv.models.readers.subwords import Subwords

SETTINGS = "fedpriv.json"
HEAD = "head.safetensors"
VISUAL = "visual"


def save(
    folder: str | Path, network: PreTrainedModel, subwords: Subwords, settings: Mapping[str, Any]
) -> None:
    """Writes a model into a folder, and makes the folder if needed.

    Args:
        folder: files of the same names are replaced.
        network: of transformers.
        subwords: its tokenizer; `Subwords.from_pretrained` reads it back.
        settings: how documents are read, as JSON can hold it.
    """
    path = Path(folder)
    network.save_pretrained(path)
    subwords.save_pretrained(path)
    save_settings(path, settings)


def save_settings(folder: str | Path, settings: Mapping[str, Any]) -> None:
    """Writes the settings of a model into its folder, as `settings_of` reads them."""
    text = json.dumps(dict(settings), indent=2, ensure_ascii=False)
    (Path(folder) / SETTINGS).write_text(text + "\n", "utf-8")


def settings_of(folder: str | Path) -> dict[str, Any]:
    """Returns the settings given to `save`; empty for a model that fedpriv did not save.

    Raises:
        DataError: if the settings cannot be read.
        OSError: if the name is plainly that of a local folder, and there is none.
    """
    there(folder)
    path = Path(folder) / SETTINGS
    if not path.is_file():
        return {}
    try:
        settings = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise DataError(path, f"not the settings of a model: {error}") from error
    if not isinstance(settings, dict):
        raise DataError(path, "not the settings of a model: expected an object")
    return settings


def tensors_of(folder: str | Path) -> dict[str, Tensor]:
    """Returns the weights that transformers does not save; empty if fedpriv did not save the model.

    Raises:
        DataError: if the weights cannot be read.
    """
    path = Path(folder) / HEAD
    if not path.is_file():
        return {}
    try:
        tensors: dict[str, Tensor] = load_file(path)
    except SafetensorError as error:
        raise DataError(path, f"not the weights of a head: {error}") from error
    return tensors


def there(folder: str | Path) -> None:
    """Checks the name of a pretrained model before a hub is asked for it.

    Raises:
        OSError: if the name is plainly that of a local folder, and there is none.
    """
    if str(folder).startswith(("/", ".", "~")) and not Path(folder).is_dir():
        raise OSError(
            f"pretrained={str(folder)!r}: there is no such folder; expected one that "
            "save_pretrained wrote, or a model's name on the hub, such as google-t5/t5-base"
        )


def positions(config: PreTrainedConfig) -> int:
    """Returns how many tokens a RoBERTa or LayoutLMv3 has positions for."""
    # They count from the padding id + 1.
    return int(config.max_position_embeddings - config.pad_token_id - 1)


def fits_positions(max_length: int | None, saved: Any, most: int, source: str | Path) -> int:
    """Returns the length of windows in tokens: the given one, else the saved one, else the most.

    Args:
        max_length: as asked for; None for the saved length.
        saved: as the settings of a saved model have it; None if they have none.
        most: how many tokens the model has positions for.
        source: the model, for the error.

    Raises:
        ValueError: if the model does not have that many positions.
    """
    length = max_length or saved or most
    if isinstance(length, int) and length < 1:
        raise ValueError(f"max_length={length}: expected 1 or more")
    if not isinstance(length, int) or length > most:
        raise ValueError(f"max_length={length}: {source} has positions for {most} tokens")
    return length


def draw_linear(modules: nn.Module, std: float) -> None:
    """Draws the linear layers of a head again, as transformers draws them."""
    for module in modules.modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=std)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
