"""Checkpoints of transformers, refused where their weights are of another architecture.

Given a checkpoint of another architecture, transformers warns, loads what happens to have the same
name, draws all other weights at random, and goes on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.utils import (
    SAFE_WEIGHTS_INDEX_NAME,
    SAFE_WEIGHTS_NAME,
    cached_file,
    logging,
)

from fedpriv.runtime.file_names import name_problem

TAKEN_BY = {
    "bert": ("model=bert", "google-bert/bert-base-uncased"),
    "bros": ("model=bros", "jinho8345/bros-base-uncased"),
    "layoutlm": ("model=layoutlm", "microsoft/layoutlm-base-uncased"),
    "layoutlmv3": ("model=layoutlmv3", "microsoft/layoutlmv3-base"),
    "roberta": ("model=roberta", "FacebookAI/roberta-base"),
    "t5": ("model=vt5 with a visual encoder, model.visual", "google-t5/t5-base"),
    "beit": ("model=vt5, layoutlm, bros or bert as its model.visual", "microsoft/dit-base"),
    "vision-encoder-decoder": ("model=donut", "naver-clova-ix/donut-base-finetuned-docvqa"),
    "pix2struct": ("model=pix2struct", "google/pix2struct-docvqa-base"),
}
"""Type of a checkpoint → what takes it here, and a published one."""

UNUSED = ("pooler.", "mask_token")
"""In names of weights that no model here uses, and that published checkpoints may lack."""

MOST_OF = {"layer": 1000, "depth": 1000, "label": 100_000, "size": 10_000_000}
"""By a part of the name: the largest numbers in a config, and the most entries of a table."""

MOST = 10_000_000_000
"""Any other number; some configs have 10^9 where they mean no limit."""

NAMED = 3
"""Missing weights that an error names."""


def config_of(
    kind: type[PreTrainedConfig], folder: str | Path, subfolder: str = "", **changes: Any
) -> Any:
    """Reads the config of a checkpoint of the right architecture.

    Args:
        kind: the class of the config that the model needs. A `config.json` without `model_type`,
            as some older ones are, passes.
        folder: a local folder or a hub id.
        subfolder: in it.
        changes: settings that replace those of the checkpoint.

    Raises:
        ValueError: if the checkpoint is of another architecture.
        OSError: if there is no such checkpoint.
    """
    given = check_config(folder, subfolder)
    if (found := given.get("model_type", kind.model_type)) != kind.model_type:
        raise another_type(Path(folder, subfolder), found, kind.model_type)
    with _quiet(folder):
        return kind.from_pretrained(str(folder), subfolder=subfolder, **changes)


def check_config(folder: str | Path, subfolder: str = "") -> dict[str, Any]:
    """Returns a checkpoint's config as it is written, if a model of these sizes can be built.

    Raises:
        ValueError: if it asks for more layers, labels or sizes than any model has: they are built
            before the weights are looked at.
        OSError: if there is no such checkpoint.
    """
    given: dict[str, Any]
    given, _ = PreTrainedConfig.get_config_dict(str(folder), subfolder=subfolder)
    left: list[tuple[str, Any]] = [("", given)]
    if "quantization_config" in given:
        raise ValueError(
            f"{Path(folder, subfolder)}/config.json: quantization_config: expected weights in "
            "floating point, which can be trained; save the model without quantisation"
        )
    while left:
        name, value = left.pop()
        if isinstance(value, dict):
            left += [(str(key), inner) for key, inner in value.items()]
            value = len(value)
        elif isinstance(value, list):
            left += [(name, inner) for inner in value]
            value = len(value)
        most = next((most for part, most in MOST_OF.items() if part in name), MOST)
        number = isinstance(value, int | float)
        expected = f"at most {most:,}" if number and value > most else ""
        expected = "0 or more" if number and value < 0 and name.startswith("num_") else expected
        if expected:
            raise ValueError(
                f"{Path(folder, subfolder)}/config.json: {name}={value}: expected {expected}"
            )
    return given


def another_type(folder: str | Path, found: str, expected: str) -> ValueError:
    """Returns the error that says what a checkpoint holds, and what would work.

    Args:
        folder: a local folder or a hub id.
        found: the type of its model.
        expected: another one, or what else would do, in words.
    """
    needed = f"{expected!r}, such as {TAKEN_BY[expected][1]}" if expected in TAKEN_BY else expected
    other = f"; this one is for {TAKEN_BY[found][0]}" if found in TAKEN_BY else ""
    return ValueError(f"{folder} holds a model of type {found!r}: expected {needed}{other}")


def network_of(
    kind: type[PreTrainedModel],
    folder: str | Path,
    subfolder: str = "",
    *,
    new_head: bool = False,
    **given: Any,
) -> tuple[Any, frozenset[str]]:
    """Loads a network in float32: in the float16 of some checkpoints it could not be trained.

    Args:
        kind: class of the network.
        folder: a local folder or a hub id.
        subfolder: in it.
        new_head: whether what is not part of the base model may be missing, or of another shape,
            and is then drawn anew.
        given: further arguments of `from_pretrained`.

    Returns:
        The network, and the names of the weights that were drawn.

    Raises:
        ValueError: if any other weight is missing, or of another shape, or as `check_weights`.
        OSError: if there is no such checkpoint.
    """
    check_weights(folder, subfolder)
    with _quiet(folder):
        network, told = kind.from_pretrained(
            str(folder),
            subfolder=subfolder,
            use_safetensors=True,
            ignore_mismatched_sizes=True,
            dtype=torch.float32,
            output_loading_info=True,
            **given,
        )
    drawn = frozenset((*told["missing_keys"], *(name for name, *_ in told["mismatched_keys"])))
    base = {id(parameter) for parameter in network.base_model.parameters()}
    needed = [
        name
        for name, parameter in network.named_parameters()
        if (id(parameter) in base or not new_head) and not any(part in name for part in UNUSED)
    ]
    if lost := [name for name in needed if name in drawn]:
        more = f" and {len(lost) - NAMED} more" if len(lost) > NAMED else ""
        raise ValueError(
            f"{Path(folder, subfolder)} holds a model of type {network.config.model_type!r}, but "
            f"{len(lost)} of the {len(needed)} weights of a {type(network).__name__} are not there "
            f"or have another shape: {', '.join(lost[:NAMED])}{more}; expected all of them, as "
            "its save_pretrained writes them"
        )
    return network, drawn


def check_weights(folder: str | Path, subfolder: str = "") -> None:
    """Refuses a checkpoint of which transformers would unpickle something, or look elsewhere.

    Raises:
        ValueError: if it has no safetensors, or their index names anything but safetensors beside
            itself: transformers opens whatever stands there.
        OSError: if there is no such checkpoint.
    """
    whole, index = (
        cached_file(
            str(folder), name, subfolder=subfolder, _raise_exceptions_for_missing_entries=False
        )
        for name in (SAFE_WEIGHTS_NAME, SAFE_WEIGHTS_INDEX_NAME)
    )
    place = Path(folder, subfolder)
    if whole is None and index is None:
        raise ValueError(
            f"{place} has no {SAFE_WEIGHTS_NAME} or {SAFE_WEIGHTS_INDEX_NAME}: weights are never "
            "read from a pickle; write them anew with transformers' save_pretrained"
        )
    if whole is None:
        try:
            files = set(json.loads(Path(index).read_bytes())["weight_map"].values())
        except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
            raise ValueError(f"{Path(index)} is no index of weights: {error!r:.200}") from error
        for name in files:
            beside = isinstance(name, str) and not name_problem(name) and Path(name).name == name
            if not beside or not name.endswith(".safetensors"):
                raise ValueError(
                    f"{Path(index)} names {name!r:.100}: expected .safetensors files beside it"
                )


@contextmanager
def _quiet(folder: str | Path) -> Iterator[None]:
    """Silences transformers' warnings of a new head, and its progress on a local folder.

    It warns wherever a head is for other labels, as for a data set of one's own it always is. What
    must not be missing is an error of `network_of`.
    """
    verbosity, shown = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    if Path(folder).is_dir():  # read in a moment; of a download the bars are worth seeing
        logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if shown:
            logging.enable_progress_bar()
