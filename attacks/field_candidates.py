"""Which of several values stood in a scrubbed field, by the target's loss on the whole window.

Whoever knows the values that a field may hold (days, amounts, the customers of a region) need not
write it token by token, as CDMI does: it fills in all k tokens of each candidate at once and takes
the one with which the target's loss is least. CDMI, §2.2, calls that membership inference with
candidates. The target may have any task: its labels y are public, and its loss on the whole window
tells more than that on the field's own labels, as the words around a field are tagged less surely
where the field is another than the one that was trained on [ours].

A target that guesses masked tokens itself says how likely a value is: by its tokens from left to
right, with those to the right masked, as in CDMI.

A value may also have the least loss because it is plausible. So fields of documents held out are
ranked along, and what is found beyond them is memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from fedpriv.attacks.cdmi.attack import guesses_itself
from fedpriv.attacks.cdmi.windows import Windows, device_of, looked_at
from fedpriv.models.field_model import as_field_model
from fedpriv.threat.access import FieldCandidates, ModelSeries, WhiteBox
from fedpriv.threat.attack import AttackContext, NotApplicable
from fedpriv.threat.checks import check_least
from fedpriv.threat.claims import FieldRanking, RankedField


@dataclass(frozen=True)
class RankingAccess:
    """The losses of the target, and the candidates."""

    models: ModelSeries
    candidates: FieldCandidates


@dataclass(frozen=True)
class CandidateRanking:
    """Ranks the candidates for each field by the target's loss.

    Args:
        batch_size: windows that the model is given at once.
    """

    batch_size: int = 128

    def __post_init__(self) -> None:
        check_least(self, 1, "batch_size")

    def run(self, access: RankingAccess, context: AttackContext) -> tuple[FieldRanking, ...]:
        """Returns the losses of all candidates, with each model.

        Raises:
            NotApplicable: if the losses of no model are numbers.
        """
        found = []
        for build in access.models.models:
            box = build()
            context.log(f"attacking the model of {box.name}")
            try:
                found.append(self._ranked(box, access.candidates, context))
            except NotApplicable as reason:
                context.remarks.not_applicable[box.name] = str(reason)
        if not found:
            raise NotApplicable("; ".join(dict.fromkeys(context.remarks.not_applicable.values())))
        return tuple(found)

    def _ranked(
        self, box: WhiteBox, given: FieldCandidates, context: AttackContext
    ) -> FieldRanking:
        target, ranked = as_field_model(box.model), []
        fields = given.scrubbed.fields
        for count, one in enumerate(fields, 1):
            batch = given.scrubbed.examples.batch(np.array([one.number]), device_of(target))
            candidates = given.lists[one.number]
            with torch.inference_mode():
                rows = looked_at(target, batch)
                window = Windows(target, rows, [one.places], self.batch_size)
                loss = _own_head if guesses_itself(target) else _whole_window
                losses = loss(window, candidates)
            ranked.append(RankedField(one.number, candidates, losses))
            if count % max(1, len(fields) // 10) == 0:
                context.log(f"{count} of {len(fields)} fields")
        return FieldRanking(tuple(ranked), box.name, box.round)


def _whole_window(window: Windows, candidates: Sequence[tuple[int, ...]]) -> NDArray[np.float64]:
    """Returns the loss of the window with each of C candidates in it, (C,)."""
    beginnings = [(0, tokens[:-1]) for tokens in candidates]
    ends = np.array([tokens[-1:] for tokens in candidates], np.int64)
    return window.losses(beginnings, ends)[:, 0]


def _own_head(window: Windows, candidates: Sequence[tuple[int, ...]]) -> NDArray[np.float64]:
    """Returns -log p of each of C candidates by a masked language model's own head, (C,)."""
    losses = np.zeros(len(candidates))
    for step, tokens in enumerate(zip(*candidates, strict=True)):
        # Candidates that begin alike share one evaluation.
        rows = {prefix: row for row, prefix in enumerate({one[:step]: 0 for one in candidates})}
        likelihoods = window.scores([(0, prefix) for prefix in rows]).double().log_softmax(1)
        asked = [rows[one[:step]] for one in candidates]
        losses -= likelihoods[asked, list(tokens)].cpu().numpy()
    return losses
