"""The ground truth of the messages that a server saw, in a store that only scoring opens.

The simulated clients' documents, as the model read them. No attack gets a handle: an attack's
arguments are a `Transcript` and `Knowledge`, loaded into memory without a path to here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Field:
    """One private text segment of a page, one line at most.

    Attributes:
        key: of the entity, such as "total".
        text: what stands there.
        box: left, top, right, bottom in the model's pixels, end exclusive; empty (all 0) where the
            model's page does not show it.
    """

    key: str
    text: str
    box: tuple[int, int, int, int]


@dataclass(frozen=True)
class Truth:
    """The batch of B examples behind one message.

    Attributes:
        documents: ids, B.
        columns: the model's batch without `pixels`, numeric, each (B, …).
        pixels: (B, 3, H, W), uint8; none for models that read no page.
        fields: the private segments of each page.
        questions: of each example; empty strings where there are none.
        answers: the first accepted answer of each example.
    """

    documents: tuple[str, ...]
    columns: Mapping[str, NDArray[Any]]
    pixels: NDArray[np.uint8] | None
    fields: tuple[tuple[Field, ...], ...]
    questions: tuple[str, ...]
    answers: tuple[str, ...]
