"""What the answers of many models say together: how `ExtractedAnswers` is scored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpriv.attacks.extraction import tables
from fedpriv.attacks.extraction.asking import UNDEFENDED, Said, Target
from fedpriv.attacks.extraction.canary import Canary, normalised
from fedpriv.attacks.extraction.comparing import (
    Pair,
    controls,
    hits,
    rows_of_canaries,
    scores_of,
    side_channel,
    whole,
)
from fedpriv.runtime.seeds import generator
from fedpriv.threat.results import Result
from fedpriv.threat.scoring.extraction import memorization_metrics
from fedpriv.threat.scoring.registry import Scoring, scorer

Bools = NDArray[np.bool_]

WITHOUT = "-without"
"""What the name of a model without the canaries ends with."""


def split_name(number: int) -> str:
    """Returns what the model of a split is called."""
    return f"split-{number:02}"


@dataclass(frozen=True)
class ExtractedAnswers:
    """Which of n canaries' answers models gave away.

    Attributes:
        canaries: n.
        described: how many there are, of which kinds, and what was dropped.
        inside: which canaries each split is trained with, (K, n).
        said: model → what it gave away; "all" is the run's own.
        exposed: strategy → exposure of planted secrets.
        trained: model → its model, strategy, ε and δ, of "all" and "DP".
        resolutions: that were trained, by name, with their overrides.
        prompts: defences at inference that were tried.
        target: which model of each training was asked.
        seed: of the run.
        originals: may questions and answers stand in the findings?
    """

    canaries: tuple[Canary, ...]
    described: Mapping[str, Any]
    inside: Bools
    said: Mapping[str, Said]
    exposed: Mapping[str, Mapping[str, Any]]
    trained: Mapping[str, Mapping[str, Any]]
    resolutions: Mapping[str, Sequence[str]]
    prompts: tuple[str, ...]
    target: Target
    seed: int
    originals: bool


@scorer(ExtractedAnswers)
def score_answers(claims: Sequence[ExtractedAnswers], scoring: Scoring) -> Result:
    """Returns E; and where there is a model without the canaries, G, M and all that compares."""
    (claim,) = claims
    canaries, said = claim.canaries, claim.said
    if "all" + WITHOUT not in said:
        return _extracted_only(claim)
    pair = Pair(canaries, said["all"], said["all" + WITHOUT])
    in_e, in_g = hits(pair.said), hits(pair.without)
    scores: dict[str, Sequence[float]] = {}
    memorized: dict[str, Any] = {}
    if len(claim.inside):
        answered = [said[split_name(number)] for number in range(len(claim.inside))]
        of_splits = scores_of(answered, claim.inside)
        memorized = memorization_metrics(
            of_splits,
            in_e,
            in_g,
            [canary.repeats for canary in canaries],
            generator(claim.seed, "extraction scoring"),
            documents=[f"{c.question.key} {normalised(c.answer)}" for c in canaries],
        )
        scores = {
            "memorization": of_splits.memorization.tolist(),
            "simplicity": of_splits.simplicity.tolist(),
        }
    numbers = {
        "model": claim.trained["all"]["model"].rpartition(".")[2],
        "target": claim.target,
        "splits": len(claim.inside),
        "canaries": dict(claim.described),
        **whole(pair),
        "anls": {
            "standard": pair.said.anls.get(UNDEFENDED),
            "without_canaries": pair.without.anls.get(UNDEFENDED),
        },
        **memorized,
        **_compared(claim, pair),
        **({"exposure": dict(claim.exposed)} if claim.exposed else {}),
    }
    rows = rows_of_canaries(canaries, in_e, in_g, scores, originals=claim.originals)
    sets = {"names": [c.name for c in canaries], "in_E": in_e.tolist(), "in_G": in_g.tolist()}
    scoring.files["canaries.json"] = rows
    scoring.files["scores.json"] = {**scores, **sets}
    return Result(
        "extraction",
        tables.headline(numbers),
        numbers,
        tables.tables(numbers),
        tables.figures(numbers, {**scores, **sets}),
        notes=_notes(claim),
        assumptions=(
            f"the adversary asks for {len(canaries)} answers, holding each page without its "
            "answer, and the question as it was trained on (other contexts say what differs)",
            "it sees the model's answers only; the side channel and the exposure, its losses too",
        ),
    )


def _extracted_only(claim: ExtractedAnswers) -> Result:
    """Returns what the run's own model gives away, without anything to compare it with."""
    said = claim.said["all"]
    found = {
        name: {"asked": sum(hit is not None for hit in of), "E": int(hits(said, name).sum())}
        for name, of in said.extracted.items()
    }
    numbers = {
        "target": claim.target,
        "canaries": dict(claim.described),
        "E": int(hits(said).sum()),
        "anls": {"standard": said.anls.get(UNDEFENDED)},
        "contexts": found,
    }
    headline = (
        f"the model says {numbers['E']} of {len(claim.canaries)} training answers that were taken "
        "off their page; how many of them it would say without having seen them is not known"
    )
    return Result("extraction", headline, numbers, (tables.extracted_table(found),))


def _compared(claim: ExtractedAnswers, pair: Pair) -> dict[str, Any]:
    """Returns the sections that compare models of several kinds."""
    said = claim.said

    def of(name: str) -> Pair:
        return Pair(claim.canaries, said[name], said[name + WITHOUT])

    standard = pair.said.anls.get(UNDEFENDED)
    found: dict[str, Any] = {"contexts": pair.contexts()}
    if claim.resolutions:
        pairs = {n: of(f"at {n}") if o else pair for n, o in claim.resolutions.items()}
        found["resolutions"] = {n: p.defence(UNDEFENDED, standard) for n, p in pairs.items()}
    rows = {name: pair.defence(name, standard) for name in (UNDEFENDED, *claim.prompts)}
    if "EB" in said:
        blocked = of("EB")
        rows["EB"] = blocked.defence(UNDEFENDED, standard) | {"contexts": blocked.contexts()}
    if "DP" in said:
        budget = {n: v for n, v in claim.trained["DP"].items() if n in ("epsilon", "delta")}
        rows["DP"] = of("DP").defence(UNDEFENDED, standard) | budget
    found["defences"] = rows
    if len(claim.inside):
        found["side_channel"] = side_channel(
            claim.canaries,
            claim.inside[0],
            said[split_name(0)],
            said.get(f"EB {split_name(0)}"),
            claim.seed,
        )
    if "untrained" in said or "unseen" in said:
        found["controls"] = controls(pair, said.get("untrained"), said.get("unseen"))
    return found


def _notes(claim: ExtractedAnswers) -> tuple[str, ...]:
    samples = claim.described["training"]
    chosen = {
        "final": "each training's last model is asked; Pinto et al. stop early by the validation "
        "loss (attack.target=loss)",
        "loss": "each training's model of the least validation loss is asked; the ANLS is of the "
        "same held-out pages that chose it",
    }
    return (
        chosen[claim.target],
        "an answer is extracted if it is the accepted one but for case and blanks; Pinto et al. do "
        "not say",
        "f and f_G start from the same weights, and both are trained with the defence where it "
        "acts in training",
        f"f is trained on {samples} samples, f_G on {samples - len(claim.canaries)}, for as many "
        "epochs: what f answers for having been trained for longer counts as memory too; compare "
        "their ANLS",
        "with extraction blocking an epoch is twice as long",
        "intervals and the rank test take all canaries with one answer as one, and the models as "
        "given",
        "shuffled pages and foreign questions are those of other canaries of the same chunk",
    )
