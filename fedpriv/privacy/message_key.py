"""The key of noise and masks: a digest of all that determines what clients send, and a salt.

Noise and masks hide a message once. If two different messages had the same noise, their difference
would contain no noise at all; and two sums of different clients under the same noise differ by
single messages. So the key of every random number of a private run, and of every mask, contains

- this digest: two runs that differ in a setting or in the data have independent noise,
- the salt of the run (`fedpriv.privacy.salt`), drawn from the operating system: so have two runs
  that differ in nothing but in who answered. A resumed run has its salt, and the same bits.

It is made of all settings that change a message: the algorithm, named by an action and a version of
ours (so that moving code moves no bits), the settings of both halves, the mechanism in them,
masking, the model with every weight that it starts from, the clients' examples, threads, device,
and the versions of the libraries that compute. It does not read code: after editing the computation
of an algorithm or a model, raise its `version`, or begin a new run, with its own salt. Settings
that change no message (rounds, workers, keepers, folders) are not in it. A client half of your own
marks such a setting with `field(metadata={"message": False})`. The global model of a round travels
with the instruction, and is added there.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from fedpriv.runtime.tensors import digest
from fedpriv.runtime.versions import versions_of

LIBRARIES = ("torch", "transformers", "peft", "numpy")
SAYS_NOTHING = {"delta", "asked_epsilon", "asked_view", "asked_clients", "asked_colluders"}
"""Settings of a mechanism that change no message."""


def message_key(
    halves: Iterable[Any],
    model: nn.Module,
    data: str,
    *,
    threads: int,
    device: str,
    computing: Mapping[str, Any] | None = None,
) -> str:
    """Returns the digest as 32 hexadecimal digits.

    Args:
        halves: the strategy, the client half, and the masking or None.
        model: as round 1 starts from it.
        data: digest of the clients' examples, see `data_digest`.
        threads: torch threads of one client.
        device: where clients train.
        computing: how gradients are computed, where that is not the default. The defaults are left
            out, so that runs from before there was a choice keep their keys.
    """
    # Another kind of machine rounds otherwise.
    if torch.device(device).type == "cuda" and torch.cuda.is_available():
        processor = torch.cuda.get_device_name(torch.device(device))
    else:
        processor = f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}"
    parts = {
        # A change of an algorithm's messages raises its version.
        "algorithm": [
            ""
            if half is None
            else f"{getattr(half, 'action', 'masking')}/{getattr(half, 'version', 1)}"
            for half in halves
        ],
        "settings": [_settings(half) for half in halves],
        "model": structure(model),
        "weights": digest(
            {name: tensor.detach().cpu() for name, tensor in model.state_dict().items()}
        ),
        "data": data,
        "threads": threads,
        "device": processor,
        "versions": versions_of(*LIBRARIES),
    }
    if computing:
        parts["computing"] = dict(computing)
    text = json.dumps(parts, sort_keys=True, default=repr)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _settings(value: Any) -> Any:
    """Returns settings as JSON values; of an object, the settings that it was built with."""
    if is_dataclass(value) and not isinstance(value, type):
        told = {f.name for f in fields(value) if f.metadata.get("message", True)} - SAYS_NOTHING
        # A setting that is new: runs from before there was one keep their keys.
        new = {f.name: f.default for f in fields(value) if f.metadata.get("new")}
        told -= {name for name, default in new.items() if getattr(value, name) == default}
        return {name: _settings(getattr(value, name)) for name in sorted(told)}
    if isinstance(value, Mapping):
        return {str(key): _settings(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_settings(item) for item in value]
    if isinstance(value, np.ndarray | torch.Tensor):
        return digest({"": value})
    return value


def structure(model: nn.Module) -> list[Any]:
    """Returns the modules of a model with their plain settings, without the weights."""
    plain = (bool, int, float, str, type(None))
    found: list[Any] = []
    for name, module in model.named_modules():
        kept: dict[str, Any] = {}
        for key, value in vars(module).items():
            items = value if isinstance(value, list | tuple) else [value]
            if key[0] != "_" and all(isinstance(item, plain) for item in items):
                kept[key] = value
        to_dict = getattr(getattr(module, "config", None), "to_dict", dict)
        kept["config"] = {k: v for k, v in to_dict().items() if k[0] != "_"}
        trained = [n for n, p in module.named_parameters(recurse=False) if p.requires_grad]
        version = getattr(module, "version", 1)
        found.append([name, type(module).__name__, version, kept, trained])
    return found
