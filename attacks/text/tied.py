"""The words' gradient where the table is tied to the scores of the next word.

Row v is then a sum of two: the gradients of the inputs where v stands, and of the scores,
Σ_t c_tv h_t over the places with a label. All rows have the latter, but it lies in the span of the
few h_t: outside of that span, the table is as sparse as one that is not tied.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedpriv.attacks.text.span import Array, Mask, largest_of_noise, row_space, upper_class

SCORES_ONLY = 0.5
"""Share of the rows, those of the smallest norm, that are taken to be of no input word."""


@dataclass(frozen=True)
class Words:
    """The words' gradient outside of the span of the scores.

    Attributes:
        table: (vocabulary, width - labels), in coordinates of `outside`.
        outside: orthonormal, (width - labels, width).
        labels: dimension of the span, the number of places with a label, where it is not full.
    """

    table: Array
    outside: Array
    labels: int

    @classmethod
    def of(cls, table: Array, most_labels: int) -> Words:
        """Takes the span of the scores away.

        Args:
            table: gradient of the tied embedding, (vocabulary, width).
            most_labels: how many places of the batch can have a label.
        """
        norms = np.linalg.norm(table, axis=1)
        small = table[norms <= np.quantile(norms, SCORES_ONLY)]
        inside, outside = row_space(small, most_labels)
        return cls(table @ outside.T, outside, len(inside))

    def used(self, noise: float, most: int) -> Mask:
        """Returns which words are of the input, (vocabulary,).

        Args:
            noise: standard deviation of the message's entries.
            most: tokens of the input.
        """
        norms = np.linalg.norm(self.table, axis=1)
        # Behind the tokens come rounding, or noise, and what is left of the scores.
        floor = np.sort(norms)[-min(most, len(norms) - 1) - 1]
        if noise:
            floor = max(floor, largest_of_noise(self.table.shape, noise))
        return upper_class(np.maximum(norms, floor))
