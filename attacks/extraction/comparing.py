"""What the answers of many trained models say together: the numbers of the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpriv.attacks.extraction.asking import BASELINE, BLOCKED, TRAINED, UNDEFENDED, Said
from fedpriv.attacks.extraction.canary import Canary
from fedpriv.attacks.extraction.prompts import PROMPTS
from fedpriv.runtime.seeds import generator
from fedpriv.threat.claims import MEMBER, NON_MEMBER
from fedpriv.threat.scoring.extraction import (
    Scores,
    mcnemar,
    memorised,
    pii_counts,
    set_sizes,
    sizes_by_repeats,
)
from fedpriv.threat.scoring.membership import Judged, membership_metrics

Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Pair:
    """Two models of one kind: f, trained with the canaries, and f_G, trained without (§4.1).

    Attributes:
        canaries: n, of which both were asked.
        said: by f.
        without: said by f_G.
    """

    canaries: Sequence[Canary]
    said: Said
    without: Said

    def sizes(self, context: str = BASELINE) -> dict[str, Any]:
        """Returns `asked`, |E|, |G|, |M|, `pii` and `unique_pii` of a context or defence.

        Canaries that the context cannot be had of are not among them. The rows of both models
        answer for the same context: Pinto et al., §5 notes that f_G is weaker in some, so that M
        grows.
        """
        there = [hit is not None for hit in self.said.extracted[context]]
        canaries = [c for c, here in zip(self.canaries, there, strict=True) if here]
        in_e, in_g = (
            np.array([h for h in said.extracted[context] if h is not None], bool)
            for said in (self.said, self.without)
        )
        personal = pii_counts(
            memorised(in_e, in_g), [c.pii for c in canaries], [c.repeats for c in canaries]
        )
        personal.pop("pii_classes")
        return {"asked": len(canaries), **set_sizes(in_e, in_g), **personal}

    def contexts(self) -> dict[str, dict[str, Any]]:
        """Returns the sizes of every context that both were asked in."""
        return {
            name: self.sizes(name)
            for name in self.said.extracted
            if name in self.without.extracted and name not in (*PROMPTS, BLOCKED)
        }

    def defence(self, name: str, undefended: float | None) -> dict[str, Any]:
        """Returns a row of Table 1: the sizes, the ANLS, and its change.

        Args:
            name: of the defence at inference; "none" for how the pair was trained.
            undefended: the ANLS of the model without any defence; none if it was not measured.
        """
        context = BASELINE if name == UNDEFENDED else name
        score = self.said.anls.get(name)
        known = score is not None and undefended is not None
        change = score - undefended if known else None  # type: ignore[operator]
        return {**self.sizes(context), "anls": score, "anls_change": change}


def hits(said: Said, context: str = BASELINE) -> Bools:
    """Returns which canaries were extracted, (n,); where none could be asked, it was not."""
    return np.array([bool(hit) for hit in said.extracted[context]], bool)


def whole(pair: Pair) -> dict[str, Any]:
    """Returns E, G and M of all canaries, what of M is personal, and the sizes by repeat count."""
    in_e, in_g = hits(pair.said), hits(pair.without)
    repeats = [canary.repeats for canary in pair.canaries]
    return {
        **set_sizes(in_e, in_g),
        **pii_counts(memorised(in_e, in_g), [c.pii for c in pair.canaries], repeats),
        "by_repeats": sizes_by_repeats(in_e, in_g, repeats),
    }


def scores_of(said: Sequence[Said], inside: Bools) -> Scores:
    """Returns the scores of K models, each trained with the canaries inside of its split."""
    return Scores.of(np.stack([hits(one) for one in said]), inside)


def controls(pair: Pair, untrained: Said | None, unseen: Said | None) -> dict[str, Any]:
    """Returns what must come to nothing: of no training, and of a model without the canaries."""
    found: dict[str, Any] = {}
    if untrained is not None:
        found["untrained"] = {"E": int(hits(untrained).sum()), "canaries": len(pair.canaries)}
    if unseen is not None:
        found["unseen"] = mcnemar(hits(unseen), hits(pair.without))
    return found


def side_channel(
    canaries: Sequence[Canary], inside: Bools, standard: Said, blocked: Said | None, seed: int
) -> dict[str, Any]:
    """Returns how well one model's own behaviour tells the canaries that it was trained with.

    Pinto et al. fear that with extraction blocking a refusal tells a member: whoever asks for the
    answer of a page without it learns whether that very page was trained on. Both models were
    trained with the same half of the canaries.

    Args:
        canaries: n.
        inside: (n,), which both models were trained with.
        standard: by a model without defence, which is asked what it was trained on: the usual
            attack by the loss.
        blocked: by one with extraction blocking.
        seed: of the intervals.

    Returns:
        `standard`: by the loss of the answer on its page. `standard, refusal`: by that of the
        refusal on the page without it, which this model never learnt. `EB`: by the loss of the
        refusal. `EB, answer`: by that of the answer, of the same model. `EB, said`: by whether it
        refuses. Nothing if chance has put all canaries on one side.
    """
    if inside.all() or not inside.any():
        return {}
    rows = {
        "standard": -np.array(standard.losses[TRAINED]),
        "standard, refusal": -np.array(standard.losses[BLOCKED]),
    }
    if blocked is not None:
        rows["EB"] = -np.array(blocked.losses[BLOCKED])
        rows["EB, answer"] = -np.array(blocked.losses[TRAINED])
        rows["EB, said"] = hits(blocked, BLOCKED).astype(np.float64)
    return {name: _membership(canaries, inside, scores, seed) for name, scores in rows.items()}


def _membership(
    canaries: Sequence[Canary], inside: Bools, scores: NDArray[np.float64], seed: int
) -> dict[str, Any]:
    guesses = np.where(scores > np.median(scores), MEMBER, NON_MEMBER).astype(np.int8)
    names = tuple(canary.name for canary in canaries)
    found = membership_metrics(
        [Judged(names, inside, scores, guesses)], generator(seed, "side channel")
    )
    low, high = found["interval"]["auc"]
    return {"auc": found["auc"], "low": low, "high": high, "tpr": found["tpr_at_fpr"]}


def rows_of_canaries(
    canaries: Sequence[Canary],
    in_e: Bools,
    in_g: Bools,
    scores: Mapping[str, Sequence[float]],
    *,
    originals: bool,
) -> list[dict[str, Any]]:
    """Returns a row for each canary; its question and answer only where `originals` allows it."""
    rows = []
    for place, canary in enumerate(canaries):
        row = {
            "name": canary.name,
            "document": canary.page.id,
            "key": canary.question.key,
            "pii": canary.pii,
            "repeats": canary.repeats,
            "planted": canary.planted,
            "E": bool(in_e[place]),
            "G": bool(in_g[place]),
            **{name: float(values[place]) for name, values in scores.items()},
        }
        if originals:
            row |= {"question": canary.question.text, "answer": canary.answer}
        rows.append(row)
    return rows
