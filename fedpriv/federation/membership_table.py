"""Who was trained on: each provider's part in the training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class TrainingMembership:
    """A provider's part in the training.

    Attributes:
        documents: of it that were trained on; 0 for a non-member.
        client: that holds, or would have held, them; none where they were at several, or nowhere.
        canary: whether a coin decided on its membership.
        answers: that were trained on, by key.
    """

    documents: int
    client: int | None = None
    canary: bool = False
    answers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def member(self) -> bool:
        """Whether the provider was trained on."""
        return self.documents > 0
