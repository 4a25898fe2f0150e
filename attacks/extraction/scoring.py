"""What the answers of many models say together: how `ExtractedAnswers` is scored."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpriv.attacks.extraction import tables
from fedpriv.attacks.extraction.asking import (
    BASELINE,
    BLOCKED,
    TRAINED,
    UNDEFENDED,
    Said,
    Target,
)
from fedpriv.attacks.extraction.canary import Canary, normalised
from fedpriv.attacks.extraction.measures import (
    Scores,
    memorised,
    memorised_share,
    memorization_metrics,
    pii_counts,
    set_sizes,
    sizes_by_repeats,
)
from fedpriv.attacks.extraction.prompts import PROMPTS
from fedpriv.runtime.seeds import generator
from fedpriv.threat.claims import MEMBER, NON_MEMBER
from fedpriv.threat.results import CANNOT_TELL, LEAK, Number, Result
from fedpriv.threat.scoring.membership import Judged, membership_metrics
from fedpriv.threat.scoring.registry import Scoring, scorer
from fedpriv.threat.scoring.verdicts import exploratory, verdict
from fedpriv.threat.statistics import CONFIDENCE, LEVEL, mean

Bools = NDArray[np.bool_]
Marks = Sequence[Sequence[float]]
"""Of each page, the ANLS of its questions."""

WORTH = 0.02
"""Share of the answers in M above the control, and M_E, whose absence is worth telling.

Of Pinto et al.'s 4,654 canaries, 94 to 109 are in M.
"""

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

    def pair(self, name: str) -> Pair:
        """Returns the two models of a kind."""
        return Pair(self.canaries, self.said[name], self.said[name + WITHOUT])


@scorer(ExtractedAnswers)
def score_answers(claims: Sequence[ExtractedAnswers], scoring: Scoring) -> Result:
    """Returns E; and where there is a model without the canaries, G, M and all that compares."""
    (claim,) = claims
    canaries, said = claim.canaries, claim.said
    if "all" + WITHOUT not in said:
        return _extracted_only(claim)
    pair = claim.pair("all")
    in_e, in_g = hits(pair.said), hits(pair.without)
    memorized, scores = _by_splits(claim, in_e, in_g)
    numbers = {
        "model": claim.trained["all"]["model"].rpartition(".")[2],
        "target": claim.target,
        "splits": len(claim.inside),
        "canaries": dict(claim.described),
        **whole(pair),
        "anls": {
            "standard": utility(pair.said),
            "without_canaries": utility(pair.without),
        },
        **memorized,
        **_compared(claim, pair),
    }
    acted_on = _acted_on(claim, pair, numbers.get("memorization"))
    primary = next(iter(acted_on))
    shown = verdict(acted_on[primary], (acted_on[primary].control or 0.0) + WORTH)
    unseen = (numbers.get("controls") or {}).get("unseen")
    if shown == LEAK and primary == "M" and unseen and unseen["p"] <= LEVEL:
        shown = CANNOT_TELL  # two models that never saw the canaries differ as clearly
    names = [canary.name for canary in canaries]
    sets = {**scores, "names": names, "in_E": in_e.tolist(), "in_G": in_g.tolist()}
    scoring.files["scores.json"] = sets
    scoring.files["canaries.json"] = rows_of_canaries(
        canaries, in_e, in_g, scores, originals=claim.originals
    )
    return Result(
        "extraction",
        tables.headline(numbers, acted_on[primary]),
        numbers,
        tables.tables(numbers),
        tables.figures(numbers, sets),
        notes=_notes(claim),
        assumptions=(
            f"the adversary asks for {len(canaries)} answers, holding each page without its "
            "answer, and the question as it was trained on (other contexts say what differs)",
            "it sees the model's answers only; the side channel and the exposure, its losses too",
        ),
        verdict=shown,
        primary=primary,
        numbers=exploratory(acted_on, primary),
    )


def _acted_on(
    claim: ExtractedAnswers, pair: Pair, memorization: Mapping[str, Any] | None
) -> dict[str, Number]:
    """Returns the number that the verdict rests on, then M of all, by context and by defence.

    M compares two trainings, which differ by their seeds too. Where there are splits, the verdict
    rests on M_E, whose p-value is exact for the very draw of the canaries into models.
    """
    found: dict[str, Number] = {}
    if memorization and memorization["mean"] is not None:
        null, p = memorization["null"], memorization["p"]
        found["M_E"] = Number(
            memorization["mean"],
            (memorization["low"], memorization["high"]),
            len(set(_answers(claim.canaries))),
            "answer",
            0.0,
            # Twice the half of an interval of 95 % is 3.92 standard errors; 2.8 are shown in 80 %.
            (null["high"] - null["low"]) * 2.8 / 3.92 if null else None,
            min(1.0, 2 * p),
        )
    found["M"] = pair.share()
    # A context may be had of no canary: nothing is compared there.
    able = [name for name in pair.said.extracted if pair.answered(name)[0]]
    asked = (name for name in pair.asked if name != BASELINE and name in able)
    found |= {f"M, {tables.CONTEXTS.get(name, name)}": pair.share(name) for name in asked}
    found |= {f"M under {name}": pair.share(name) for name in claim.prompts if name in able}
    for name in ("EB", "DP"):
        if name in claim.said:
            found[f"M under {name}"] = claim.pair(name).share()
    return found


def _by_splits(
    claim: ExtractedAnswers, in_e: Bools, in_g: Bools
) -> tuple[dict[str, Any], dict[str, Sequence[float]]]:
    """Returns what the models of the splits say together, and M_E and S_E of each canary."""
    if not len(claim.inside):
        return {}, {}
    answered = [hits(claim.said[split_name(number)]) for number in range(len(claim.inside))]
    of_splits = Scores.of(np.stack(answered), claim.inside)
    memorized = memorization_metrics(
        of_splits,
        in_e,
        in_g,
        [canary.repeats for canary in claim.canaries],
        generator(claim.seed, "extraction scoring"),
        documents=_answers(claim.canaries),
    )
    of_each = {
        "memorization": of_splits.memorization.tolist(),
        "simplicity": of_splits.simplicity.tolist(),
    }
    return memorized, of_each


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
        "anls": {"standard": utility(said)},
        "contexts": found,
    }
    headline = (
        f"the model says {numbers['E']} of {len(claim.canaries)} training answers that were taken "
        "off their page; how many of them it would say without having seen them is not known"
    )
    return Result("extraction", headline, numbers, (tables.extracted_table(found),))


def _compared(claim: ExtractedAnswers, pair: Pair) -> dict[str, Any]:
    """Returns the sections that compare models of several kinds."""
    said, of = claim.said, claim.pair
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
        )
    if "untrained" in said or "unseen" in said:
        found["controls"] = controls(pair, said.get("untrained"), said.get("unseen"))
    if claim.exposed:
        found["exposure"] = dict(claim.exposed)
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
        """Returns `asked`, the sizes of the sets, `pii` and `unique_pii` of a context or defence.

        The rows of both models answer for the same context: Pinto et al., §5 notes that f_G is
        weaker in some, so that M grows.
        """
        canaries, in_e, in_g = self.answered(context)
        personal = pii_counts(
            memorised(in_e, in_g), [c.pii for c in canaries], [c.repeats for c in canaries]
        )
        personal.pop("pii_classes")
        return {"asked": len(canaries), **set_sizes(in_e, in_g, _answers(canaries)), **personal}

    def share(self, context: str = BASELINE) -> Number:
        """Returns the share of the canaries in M beside its control."""
        canaries, in_e, in_g = self.answered(context)
        return memorised_share(in_e, in_g, _answers(canaries))

    def answered(self, context: str) -> tuple[Sequence[Canary], Bools, Bools]:
        """Returns the canaries that the context can be had of, and which are in E and in G."""
        there = [hit is not None for hit in self.said.extracted[context]]
        in_e, in_g = (hits(said, context)[there] for said in (self.said, self.without))
        return list(itertools.compress(self.canaries, there)), in_e, in_g

    @property
    def asked(self) -> tuple[str, ...]:
        """The contexts that both were asked in."""
        both = (name for name in self.said.extracted if name in self.without.extracted)
        return tuple(name for name in both if name not in (*PROMPTS, BLOCKED))

    def contexts(self) -> dict[str, dict[str, Any]]:
        """Returns the sizes of every context that both were asked in."""
        return {name: self.sizes(name) for name in self.asked}

    def defence(self, name: str, undefended: Marks | None) -> dict[str, Any]:
        """Returns a row of Table 1: the sizes, the ANLS, its change and where that lies.

        The interval of the change is over the pages that both were asked about.

        Args:
            name: of the defence at inference; "none" for how the pair was trained.
            undefended: the ANLS of the model without any defence; none if it was not measured.
        """
        sizes = self.sizes(BASELINE if name == UNDEFENDED else name)
        marks, score = self.said.anls.get(name), utility(self.said, name)
        if marks is None or undefended is None or score is None:
            return {**sizes, "anls": score, "anls_change": None, "anls_change_interval": None}
        pages = [place for place, own in enumerate(marks) for _ in own]
        change = mean(np.subtract(_flat(marks), _flat(undefended)), pages)
        low, high = change.limits(CONFIDENCE)
        between = [low, high] if math.isfinite(high) else None
        return {
            **sizes,
            "anls": score,
            "anls_change": change.value,
            "anls_change_interval": between,
        }


def _answers(canaries: Sequence[Canary]) -> list[str]:
    return [normalised(canary.answer) for canary in canaries]


def utility(said: Said, name: str = UNDEFENDED) -> float | None:
    """Returns the ANLS on the held-out pages; none where it was not measured."""
    marks = _flat(said.anls.get(name, ()))
    return float(np.mean(marks)) if marks else None


def _flat(marks: Marks) -> list[float]:
    return [mark for page in marks for mark in page]


def hits(said: Said, context: str = BASELINE) -> Bools:
    """Returns which canaries were extracted, (n,); where none could be asked, it was not."""
    return np.array([bool(hit) for hit in said.extracted[context]], bool)


def whole(pair: Pair) -> dict[str, Any]:
    """Returns E, G and M of all canaries, what of M is personal, and the sizes by repeat count."""
    in_e, in_g = hits(pair.said), hits(pair.without)
    repeats, answers = [canary.repeats for canary in pair.canaries], _answers(pair.canaries)
    return {
        **set_sizes(in_e, in_g, answers),
        **pii_counts(memorised(in_e, in_g), [c.pii for c in pair.canaries], repeats),
        "by_repeats": sizes_by_repeats(in_e, in_g, repeats, answers),
    }


def controls(pair: Pair, untrained: Said | None, unseen: Said | None) -> dict[str, Any]:
    """Returns what must come to nothing: of no training, and of a model without the canaries."""
    found: dict[str, Any] = {}
    if untrained is not None:
        found["untrained"] = {"E": int(hits(untrained).sum()), "canaries": len(pair.canaries)}
    if unseen is not None:
        one, other = hits(unseen), hits(pair.without)
        differ = memorised_share(one, other, _answers(pair.canaries))
        found["unseen"] = {
            "E": int(one.sum()),
            "G": int(other.sum()),
            "both": int((one & other).sum()),
            "p": differ.p_value,
        }
    return found


def side_channel(
    canaries: Sequence[Canary], inside: Bools, standard: Said, blocked: Said | None
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
    names = tuple(canary.name for canary in canaries)
    channel = {}
    for name, scores in rows.items():
        guesses = np.where(scores > np.median(scores), MEMBER, NON_MEMBER).astype(np.int8)
        judged = Judged(names, inside, scores, guesses)
        found = membership_metrics([judged]).numbers
        low, high = found["interval"]["auc"]
        channel[name] = {
            **{"auc": found["auc"], "low": low, "high": high, "tpr": found["tpr_at_fpr"]},
            "tpr_interval": found["interval"]["tpr"],  # of the first rate
        }
    return channel


def rows_of_canaries(
    canaries: Sequence[Canary],
    in_e: Bools,
    in_g: Bools,
    scores: Mapping[str, Sequence[float]],
    *,
    originals: bool,
) -> list[dict[str, Any]]:
    """Returns a row for each canary; its question and answer only where `originals` allows it."""
    return [
        {
            "name": canary.name,
            "document": canary.page.id,
            "key": canary.question.key,
            "pii": canary.pii,
            "repeats": canary.repeats,
            "planted": canary.planted,
            "E": bool(in_e[place]),
            "G": bool(in_g[place]),
            **{name: float(values[place]) for name, values in scores.items()},
            **({"question": canary.question.text, "answer": canary.answer} if originals else {}),
        }
        for place, canary in enumerate(canaries)
    ]
