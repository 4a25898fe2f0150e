"""A data set cut in two by provider: some companies are public, say, and the others private."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from fedpriv.data.document import DocumentSet, DocumentSource
from fedpriv.data.partition import by_provider
from fedpriv.runtime.seeds import generator


@dataclass(frozen=True)
class SomeProviders:
    """All documents of a share of the providers, or those of all others.

    Two of these with the same source, share and seed, one of them with `rest`, share no provider.
    A provider that is spelled in two ways is two providers, though, and may be in both.

    Attributes:
        source: the reader of the whole data set.
        share: the share of the providers that is taken, in (0, 1).
        rest: whether the other providers are taken in their place.
        seed: the seed with which providers are drawn.
    """

    source: DocumentSource
    share: float
    rest: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise ValueError(f"share={self.share}: expected a value between 0 and 1")

    def load(self) -> DocumentSet:
        """Reads everything and leaves the other providers out.

        Raises:
            ValueError: if the share, or the rest, is less than one provider.
        """
        found = self.source.load()
        groups = list(by_provider(found.documents, range(len(found.documents))).values())
        count = round(self.share * len(groups))
        if not 0 < count < len(groups):
            raise ValueError(
                f"share={self.share} of the {len(groups)} providers of {found.name} is {count}: "
                "take a share that leaves a provider on both sides"
            )
        order = generator(self.seed, "share of the providers").permutation(len(groups))
        chosen = order[count:] if self.rest else order[:count]
        kept = sorted(position for group in chosen for position in groups[group])
        documents = tuple(found.documents[position] for position in kept)
        name = f"{found.name}, {len(chosen)} of {len(groups)} providers"
        return dataclasses.replace(found, name=name, documents=documents)
