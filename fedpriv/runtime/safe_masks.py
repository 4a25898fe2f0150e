"""Makes `torch.vmap` work with the attention masks of transformers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_MASKING = "transformers.masking_utils"


@contextmanager
def safe_masks() -> Iterator[None]:
    """Lets transformers build every attention mask, instead of skipping those that mask nothing.

    Whether a mask may be skipped depends on its values (`padding_mask.all()`), which `torch.vmap`
    cannot evaluate. Building them changes no result. The override uses transformers' own mechanism,
    a local entry in its mapping, and is removed at the end. Until then it holds for the whole
    process. If transformers has not been imported, nothing happens.
    """
    masking = sys.modules.get(_MASKING)
    if masking is None:
        yield
        return
    functions = masking.ALL_MASK_ATTENTION_FUNCTIONS
    # Private, but without it one could not tell a local override from the library's own.
    before = dict(functions._local_mapping)
    for name in ("eager", "sdpa"):
        functions[name] = _never_skipping(functions[name])
    try:
        yield
    finally:
        functions._local_mapping.clear()
        functions._local_mapping.update(before)


def _never_skipping(function: Callable[..., Any]) -> Callable[..., Any]:
    def mask(*arguments: Any, **settings: Any) -> Any:
        never = {"allow_is_bidirectional_skip": False, "allow_is_causal_skip": False}
        return function(*arguments, **{**settings, **never})

    return mask
