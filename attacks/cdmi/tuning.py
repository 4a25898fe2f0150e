"""Settings chosen on a model and on documents of the adversary's own.

CDMI, §5.1 tunes 14 sets, one for each configuration of LayoutLM, by the metrics of the attack
itself, which no adversary can measure. So ours trains a shadow of the target, with the target's
architecture, task and start, on one half of its public documents, and PUB-MLM on the other half. It
attacks fields of the first half, of which it knows the text, and takes the settings with the fewest
wrong tokens [ours].
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedpriv.attacks.cdmi.decoding import Done
from fedpriv.attacks.cdmi.generator import Training, public_mlm, started, untrained
from fedpriv.attacks.cdmi.likelihoods import Likelihood
from fedpriv.data.document import Document
from fedpriv.data.examples import Examples
from fedpriv.models.field_model import FieldModel, TokenModel, as_field_model
from fedpriv.runtime.seeds import generator
from fedpriv.threat.access import Architecture, PublicModel, ScrubbedField
from fedpriv.threat.attack import NotApplicable
from fedpriv.threat.checks import check_least
from fedpriv.threat.surfaces.fields import KeepScrubbed, scrub


@dataclass(frozen=True)
class Tuning:
    """What is tried, and on what.

    Args:
        likelihoods: the values of `likelihood` that are tried.
        temperatures: the values of `target_temperature`, T_l, that are tried.
        weights: the values of `weight`, w, that are tried. All combinations of the three are tried.
        fields: the number of fields of the shadow that are attacked with each combination, drawn at
            random.
        shadow: how the shadow is trained; it should be trained as the target was.
    """

    likelihoods: tuple[Likelihood, ...] = ("paper", "scaled")
    temperatures: tuple[float, ...] = (0.3, 0.03, 0.003)
    weights: tuple[float, ...] = (0.4,)
    fields: int = 20
    shadow: Training = field(default_factory=lambda: Training(epochs=150, lr=2e-3, held_out=0.0))

    def __post_init__(self) -> None:
        check_least(self, 1, "fields")
        for name in ("likelihoods", "temperatures", "weights"):
            if not getattr(self, name):
                raise ValueError(f"{name}=[]: name at least one")

    def choices(self) -> list[dict[str, Any]]:
        """Returns the settings that are tried."""
        names = ("likelihood", "target_temperature", "weight")
        values = itertools.product(self.likelihoods, self.temperatures, self.weights)
        return [dict(zip(names, one, strict=True)) for one in values]


@dataclass(frozen=True)
class Rehearsal:
    """An attack whose outcome the adversary knows.

    Attributes:
        target: the shadow.
        helper: PUB-MLM, trained on documents that the shadow was not trained on.
        fields: of documents that it was trained on.
        examples: their masked windows.
        truths: number of a field → the ids of its tokens.
    """

    target: FieldModel
    helper: TokenModel
    fields: tuple[ScrubbedField, ...]
    examples: Examples
    truths: Mapping[int, tuple[int, ...]]

    def wrong(self, done: Iterable[Done]) -> float:
        """Returns the mean share of wrong tokens of the first attempts."""
        first = {one.found.number: one.found.attempts[0].tokens for one in done}
        shares = [
            np.mean([guess != true for guess, true in zip(first[number], tokens, strict=True)])
            for number, tokens in self.truths.items()
        ]
        return float(np.mean(shares))


def rehearse(
    tuning: Tuning,
    helper: Training,
    architecture: Architecture,
    public: PublicModel | None,
    documents: Sequence[Document],
    attacked: Sequence[ScrubbedField],
    seed: int,
    scratch: Path,
    device: torch.device,
    tell: Callable[[str], None],
) -> Rehearsal:
    """Trains the shadow and its PUB-MLM.

    Args:
        tuning: see there.
        helper: how PUB-MLM is trained.
        architecture: of the target.
        public: what both start from; None for random weights.
        documents: the adversary's, with their entities.
        attacked: fields of the target, whose keys and lengths are the rehearsal's.
        seed: of all that is drawn.
        scratch: a folder for weights.
        device: of the target, where both are trained.
        tell: shows a line of progress.

    Raises:
        NotApplicable: if the documents have no such field.
    """
    halves = generator(seed, "cdmi tuning").permutation(len(documents))
    middle = (len(documents) + 1) // 2
    shown, others = (
        [documents[place] for place in sorted(half.tolist())]
        for half in (halves[:middle], halves[middle:])
    )
    shadow = started(as_field_model(architecture.build().to(device)), public)
    own = untrained(architecture, shadow, public, helper.start)
    target = public_mlm(shadow, shown, tuning.shadow, seed, scratch, tell, "shadow").model
    lengths = [len(one.places) for one in attacked]
    keep = KeepScrubbed(
        tuple(sorted({one.key for one in attacked})), max(1, min(lengths)), max(lengths)
    )
    fields, examples, truths = scrub(shown, target.encode(shown), target.reader, keep)
    if not fields or not others:
        raise NotApplicable(
            f"tune: {len(documents)} public documents have no fields {list(keep.keys)} of "
            f"{keep.min_tokens} to {keep.max_tokens} tokens to tune on: take more of them "
            "(data.public), or attack.tune=null"
        )
    drawn = generator(seed, "cdmi tuning, fields").permutation(len(fields))[: tuning.fields]
    chosen = tuple(fields[place] for place in sorted(drawn.tolist()))
    trained = public_mlm(own, others, helper, seed, scratch, tell).model
    known = {one.number: truths[one.number] for one in chosen}
    return Rehearsal(target, trained, chosen, examples, known)
