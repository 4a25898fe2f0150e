"""Whole values of a scrubbed field that no list holds, searched for by the target's loss.

A list that holds the truth is a strong assumption. What an adversary has at any rate are values of
other documents, and so the words and tokens of which such values are made. The search puts them
together anew, one place at a time::

    B   the b best of some listed values
    for each place of the field (a word or a token), in random order
        for each value in B, and each option at the place
            the value with the option in its place: a move
        the N moves with the least loss to first order
        the b best of B and these, by their losses, are the new B
    until a sweep over all places leaves B as it was

To first order, the loss L changes with another token at a place by (e' - e) · dL/de, e its word
embedding: one backward pass ranks the options of all places (HotFlip, Ebrahimi et al. 2018, §3,
which has the beam search too). That a move may exchange a whole word [ours] lets names be found
whose tokens mean nothing each on its own.

A value that the tokenizer would cut otherwise, or whose words have other numbers of tokens than
the field's, cannot have stood there and is not visited.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from fedpriv.threat.checks import check_choices, check_least

Tokens = tuple[int, ...]
Place = tuple[int, int]
"""The first token of a word, or any token, of a field, and the one behind the last."""


class Objective(Protocol):
    """What is minimised over the values of one field."""

    def losses(self, values: Sequence[Tokens]) -> NDArray[np.float64]:
        """Returns the loss of each of C values, (C,)."""

    def changes(self, values: Sequence[Tokens]) -> NDArray[np.float64] | None:
        """Returns by how much another token changes the loss to first order, (C, k, V).

        None where the model has no word embeddings.
        """


@dataclass(frozen=True)
class Search:
    """How values are searched for.

    Args:
        space: which values the search may visit: "listed", values of the list only, and so a small
            part of a long list, such as all days of twelve years; "words", also values each word of
            which stands at its place in some listed value; "tokens", also values each token of
            which does; "vocabulary", any tokens.
        start: the number of listed values, drawn at random, that a search starts from.
        beam: b, the number of best values that are kept after each place.
        width: N, the largest number of changed values for which the model is asked at each place:
            those that promise the least loss by the gradient. If there are fewer, or the model has
            no word embeddings, it is asked for all of them, and no gradient is needed.
        sweeps: the largest number of passes over all places of a field.
        restarts: the number of searches, each from other listed values. The best value of all of
            them is taken.
    """

    space: Literal["listed", "words", "tokens", "vocabulary"] = "words"
    start: int = 64
    beam: int = 8
    width: int = 64
    sweeps: int = 6
    restarts: int = 1

    def __post_init__(self) -> None:
        check_choices(self)
        check_least(self, 1, "start", "beam", "width", "sweeps", "restarts")

    def visit(
        self,
        objective: Objective,
        listed: Sequence[Tokens],
        fits: Callable[[Tokens], bool],
        words: Sequence[Place],
        vocabulary: int,
        rng: np.random.Generator,
    ) -> dict[Tokens, float]:
        """Searches one field.

        Args:
            objective: of the field.
            listed: values that it may hold; all of them fit.
            fits: says whether tokens can be the field's.
            words: of the field.
            vocabulary: V, number of tokens of the tokenizer.
            rng: draws where to start, and the order of the places.

        Returns:
            The losses of all values that were visited.
        """
        options = _Options(self.space, listed, words, vocabulary)
        visited: dict[Tokens, float] = {}

        def best(values: Sequence[Tokens]) -> list[Tokens]:
            if new := [one for one in dict.fromkeys(values) if one not in visited]:
                visited.update(zip(new, objective.losses(new).tolist(), strict=True))
            return sorted(dict.fromkeys(values), key=visited.__getitem__)[: self.beam]

        for _ in range(self.restarts):
            drawn = rng.permutation(len(listed))[: self.start]
            beam = best([listed[number] for number in drawn])
            for _ in range(self.sweeps):
                before = beam
                for number in rng.permutation(len(options.places)):
                    place = options.places[number]
                    moves = [one for one in options.moves(beam, place) if fits(one)]
                    moves = self._likeliest(objective, moves, beam, place, visited)
                    beam = best([*beam, *moves])
                if beam == before:
                    break
        return visited

    def _likeliest(
        self,
        objective: Objective,
        moves: list[Tokens],
        beam: Sequence[Tokens],
        place: Place,
        losses: Mapping[Tokens, float],
    ) -> list[Tokens]:
        """Returns the moves whose loss is least to first order."""
        if len(moves) <= self.width or (changes := objective.changes(beam)) is None:
            return moves
        # A value of the beam from which each move leads: any that is the same around the place.
        leads = {one[: place[0]] + one[place[1] :]: row for row, one in enumerate(beam)}
        rows = np.array([leads[one[: place[0]] + one[place[1] :]] for one in moves])
        expected = np.array([losses[beam[row]] for row in rows])
        for token in range(*place):
            expected += changes[rows, token, [one[token] for one in moves]]
        return [moves[number] for number in expected.argsort(kind="stable")[: self.width]]


class _Options:
    """What may stand at each place of a field."""

    def __init__(
        self, space: str, listed: Sequence[Tokens], words: Sequence[Place], vocabulary: int
    ) -> None:
        tokens = [(place, place + 1) for place in range(words[-1][1])]
        self.places: list[Place] = list(dict.fromkeys([*words, *tokens]))
        # Where no option may stand but what some listed value has there, the rest being as it is.
        self._bound = {"listed": {*self.places}, "words": {*tokens} - {*words}}.get(space, set())
        self._any = {*tokens} if space == "vocabulary" else set()
        self._vocabulary = [(token,) for token in range(vocabulary)]
        self._seen: dict[tuple[Place, Tokens], dict[Tokens, None]] = defaultdict(dict)
        for value in listed:
            for place in self.places:
                self._seen[place, self._around(value, place)][value[slice(*place)]] = None

    def _around(self, value: Tokens, place: Place) -> Tokens:
        return value[: place[0]] + value[place[1] :] if place in self._bound else ()

    def moves(self, beam: Sequence[Tokens], place: Place) -> list[Tokens]:
        """Returns all values that differ from one of the beam at one place."""
        found = {
            value[: place[0]] + option + value[place[1] :]: None
            for value in beam
            for option in (
                self._vocabulary
                if place in self._any
                else self._seen.get((place, self._around(value, place)), ())
            )
        }
        return [move for move in found if move not in beam]
