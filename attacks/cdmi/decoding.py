"""Fields token by token, from left to right, all attempts at all fields of a chunk side by side.

Attempts that have come the same way share one evaluation, whoever's they are: what follows from a
beginning depends on nothing else.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedpriv.attacks.cdmi.likelihoods import Sampling, Table, drawn, in_nucleus, spreads
from fedpriv.attacks.cdmi.windows import Knot, Windows
from fedpriv.threat.claims import Reconstruction

Baseline = Literal["public", "silent"]


@dataclass
class Path:
    """One attempt at a field, as far as it has come.

    Attributes:
        place: of its field in the chunk.
        uniforms: (k,), a number in [0, 1) for each of its tokens.
        tokens: ids so far.
        target: log p of each.
        public: log ĝ of each.
    """

    place: int
    uniforms: NDArray[np.float64]
    tokens: list[int] = field(default_factory=list)
    target: list[float] = field(default_factory=list)
    public: list[float] = field(default_factory=list)

    @property
    def knot(self) -> Knot:
        """Where it stands."""
        return self.place, tuple(self.tokens)


@dataclass(frozen=True)
class Choices:
    """What may come next at some knots, C candidates each.

    Attributes:
        knots: of the rows of the tables.
        tokens: (knots, C), ids in ascending order.
        target: log p.
        public: log ĝ.
    """

    knots: Sequence[Knot]
    tokens: NDArray[np.int64]
    target: Table
    public: Table

    def rows(self, knots: Sequence[Knot]) -> NDArray[np.int64]:
        """Returns where some of the knots stand in the tables."""
        row = {knot: number for number, knot in enumerate(self.knots)}
        return np.array([row[knot] for knot in knots], np.int64)

    def extend(self, paths: Sequence[Path], nucleus: float) -> None:
        """Gives each path one more token (Algorithm 2, line 10)."""
        rows = self.rows([path.knot for path in paths])
        uniforms = np.array([path.uniforms[len(path.tokens)] for path in paths])
        columns = drawn(in_nucleus(np.exp(self.target[rows]), nucleus), uniforms)
        for path, row, column in zip(paths, rows, columns, strict=True):
            path.tokens.append(int(self.tokens[row, column]))
            path.target.append(float(self.target[row, column]))
            path.public.append(float(self.public[row, column]))


@dataclass(frozen=True)
class Say:
    """How much of the choice of one token was the target's.

    Attributes:
        spread: standard deviation of its losses with the candidates, over their median.
        raised: by how much its likelihood raises the candidate that it finds likeliest above the
            median one, w·(max - median) of log l̂.
        changed: whether the likeliest token is another one than without it.
    """

    spread: float
    raised: float
    changed: bool


@dataclass(frozen=True)
class Done:
    """A field that was attacked.

    Attributes:
        found: what was made of it.
        evaluations: candidates that were given to the target for it.
        asked: as many as there had been if no two attempts had shared any.
        seconds: of wall time, its share of its chunk's.
        say: the target's, at each place that the attack came to.
    """

    found: Reconstruction
    evaluations: int
    asked: int
    seconds: float
    say: tuple[Say, ...] = ()


@dataclass
class Tally:
    """What a decoding took, by the field's place in the chunk.

    Attributes:
        evaluated: candidates that were given to the target.
        asked: as many as there had been if no two attempts had shared any.
        say: the target's, at each place that the attack came to.
    """

    evaluated: Counter[int] = field(default_factory=Counter)
    asked: Counter[int] = field(default_factory=Counter)
    say: defaultdict[int, list[Say]] = field(default_factory=lambda: defaultdict(list))


@dataclass(frozen=True)
class Decoder:
    """Reconstructs the fields of a chunk.

    Args:
        generator: their windows as PUB-MLM reads them.
        target: as the model under attack does.
        sampling: of a token.
        own_head: the target is a masked language model, and proposes the tokens itself (CDMI,
            §4.3).
        banned: ids that no field holds: [MASK], [PAD].
        baseline: see `fedpriv.attacks.cdmi.attack.CDMI`.
    """

    generator: Windows
    target: Windows
    sampling: Sampling
    own_head: bool
    banned: tuple[int, ...]
    baseline: Baseline = "public"

    def decode(self, attack: Sequence[Path], baseline: Sequence[Path]) -> Tally:
        """Completes all paths, and returns what it took."""
        tally = Tally()
        losses_told = not self.own_head and self.sampling.weight > 0
        longest = max(len(path.uniforms) for path in (*attack, *baseline))
        for step in range(longest):
            mine, theirs = (
                [path for path in paths if len(path.uniforms) > step]
                for paths in (attack, baseline)
            )
            knots = distinct(path.knot for path in mine)
            everyone = distinct([*knots, *(path.knot for path in theirs)])
            logits = self.generator.scores(everyone)
            # By PUB-MLM alone (lines 2 to 4, and 6).
            tokens, scores = self._top(logits)
            alone = self.sampling.public_likelihoods(scores, step)
            public = Choices(everyone, tokens, alone, alone)
            choices = self._attack(knots, public, logits, step, tally)
            each = choices.tokens.shape[1] if losses_told else 0
            for place, _ in knots:
                tally.evaluated[place] += each
            for path in mine:
                tally.asked[path.place] += each
            choices.extend(mine, self.sampling.nucleus)
            self._silent(public).extend(theirs, self.sampling.nucleus)
        return tally

    def _attack(
        self, knots: Sequence[Knot], public: Choices, logits: Tensor, step: int, tally: Tally
    ) -> Choices:
        """Proposes tokens by the target's leave (lines 5 and 7 to 9).

        Args:
            knots: of the attack.
            public: choices at these and at the baseline's.
            logits: of PUB-MLM at the same.
            step: the token's, from 0.
            tally: to which the target's say is added.
        """
        rows = public.rows(knots)
        if self.own_head:
            return self._private(knots, logits[rows], step)
        tokens, likelihoods = public.tokens[rows], public.public[rows]
        if self.sampling.weight == 0:
            return Choices(knots, tokens, likelihoods, likelihoods)
        losses = self.target.losses(knots, tokens)
        told = self.sampling.target_likelihoods(losses)
        target = self.sampling.blend(likelihoods, told)
        raises = target - self.sampling.unmoved(likelihoods)
        raised = raises.max(axis=1) - np.median(raises, axis=1)
        changed = target.argmax(axis=1) != likelihoods.argmax(axis=1)
        for (place, _), *say in zip(knots, spreads(losses), raised, changed, strict=True):
            tally.say[place].append(Say(float(say[0]), float(say[1]), bool(say[2])))
        return Choices(knots, tokens, target, likelihoods)

    def _private(self, knots: Sequence[Knot], logits: Tensor, step: int) -> Choices:
        """Proposes tokens by the target's own head; ĝ is PUB-MLM's over the same tokens [ours]."""
        tokens, scores = self._top(self.target.scores(knots))
        public = np.take_along_axis(_table(logits), tokens, axis=1)
        likelihoods = (self.sampling.public_likelihoods(own, step) for own in (scores, public))
        return Choices(knots, tokens, *likelihoods)

    def _silent(self, public: Choices) -> Choices:
        """Returns the baseline's choices."""
        if self.baseline == "public" or self.own_head:
            return public
        return dataclasses.replace(public, target=self.sampling.unmoved(public.public))

    def _top(self, logits: Tensor) -> tuple[NDArray[np.int64], Table]:
        """Returns the candidates of each row and their logits, in ascending order of ids."""
        allowed = logits.clone()
        allowed[:, list(self.banned)] = -float("inf")
        count = min(self.sampling.candidates, logits.shape[1] - len(self.banned))
        tokens = allowed.topk(count, dim=1).indices.sort(dim=1).values
        return tokens.cpu().numpy(), _table(logits.gather(1, tokens))


def distinct(knots: Iterable[Knot]) -> list[Knot]:
    """Returns each knot once, in order of first appearance."""
    return list(dict.fromkeys(knots))


def _table(values: Tensor) -> Table:
    return values.double().cpu().numpy()
