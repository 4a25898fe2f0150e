"""Extraction of training answers, and its defences (Pinto et al. 2024).

    E    the canaries whose answer the run's model f says though the page no longer has it
    G    those that f_G says, which was trained without the canaries
    M    E ∖ G

E takes the model's answers alone. All else compares models, and takes trainings of variants: f_G; K
models with half of the canaries each; both again at other resolutions and with the defences that
act in training; one federation for each strategy that is asked for planted secrets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpriv.attacks.exposure import Exposure
from fedpriv.attacks.extraction.asking import Inquiry, Target, ask, ask_trained
from fedpriv.attacks.extraction.canaries import Chosen, Curation
from fedpriv.attacks.extraction.canary import Canary
from fedpriv.attacks.extraction.contexts import REFERENCE, contexts
from fedpriv.attacks.extraction.measures import balanced_splits
from fedpriv.attacks.extraction.paraphrases import Paraphraser, TableParaphraser
from fedpriv.attacks.extraction.prompts import PROMPTS
from fedpriv.attacks.extraction.scoring import WITHOUT, ExtractedAnswers, split_name
from fedpriv.data.document import Document
from fedpriv.runtime.outside import PathText
from fedpriv.runtime.seeds import generator
from fedpriv.threat.access import BlackBox, Retrain, TrainingDocuments
from fedpriv.threat.attack import AttackContext, NotApplicable
from fedpriv.threat.checks import check_choices
from fedpriv.threat.runner import run_attack_on
from fedpriv.threat.surfaces.retrain import Laboratory, TrainedRun, Variant

Overrides = tuple[str, ...]
Bools = NDArray[np.bool_]

COMPARED = (
    "what f_G extracts, and with it M, M_E and S_E, resolutions, the defences in training, the "
    "side channel, exposure and controls"
)


@dataclass(frozen=True)
class ExtractionAccess:
    """What extraction uses.

    Attributes:
        model: the run's own, f.
        documents: of which canaries are chosen.
        retrain: trains f_G and the others, where it is granted.
    """

    model: BlackBox
    documents: TrainingDocuments
    retrain: Retrain | None


@dataclass(frozen=True)
class Extraction:
    """What is asked, and what is trained to compare with.

    Args:
        splits: K, the number of models that are trained with half of the canaries each, to compute
            memorization scores: an even number, 2 or more (50 in Pinto et al.). None or 0 trains no
            such models and leaves the scores out.
        curation: which training samples are canaries.
        target: which model of each training is asked: "final", the last; or "loss", the one after
            the round with the least validation loss, as in Pinto et al., for which
            `federation.keep_checkpoints=0` must keep all models.
        resolutions: the resolutions at which models are trained and asked, from high to low: a name
            for each, with the overrides that set it, or with none for the run's own. None trains at
            the run's own alone.
        contexts: the names of the contexts in which the model is asked (Pinto et al., §5), such as
            "no_text" or "shuffle". None takes all of them; an empty list takes none beside the page
            without its answer.
        reference: the page height in pixels for which the contexts "translate_20" to
            "translate_200" give their shifts. Pages of another height are shifted by the same share
            of it. None shifts all pages by that many pixels, as in Pinto et al.
        paraphrase: words questions anew, for a context and for the defence ITP.
        prompts: the defences at inference that are tried: "PR" puts a random number before the
            question, "AR" puts one after it, and "ITP" paraphrases the question.
        blocking: whether extraction blocking (EB), a defence in training, is tried, and with it the
            attack on its side channel.
        dp: the overrides with which a variant is trained with differential privacy. An empty list
            trains none.
        exposure: federations in which planted secrets are ranked: a name for each, such as its
            strategy, with its overrides of the experiment `exposure_experiment`. None trains none.
        exposure_experiment: the name of the experiment that `exposure` runs.
        references: the number of other secrets that each planted secret is ranked among.
        controls: whether an untrained model and a second model without the canaries are asked, as
            controls.
        originals: whether findings may show questions and answers of the canaries.
    """

    splits: int | None = 8
    curation: Curation = Curation()  # noqa: RUF009 - frozen
    target: Target = "final"
    resolutions: Mapping[str, Overrides] | None = None
    contexts: tuple[str, ...] | None = None
    reference: float | None = REFERENCE
    paraphrase: Paraphraser = field(default_factory=TableParaphraser)
    prompts: tuple[str, ...] = tuple(PROMPTS)
    blocking: bool = True
    dp: Overrides = ()
    exposure: Mapping[str, Overrides] | None = None
    exposure_experiment: PathText = "exposure"
    references: int = 250
    controls: bool = True
    originals: bool = False

    def __post_init__(self) -> None:
        if self.splits is not None and (self.splits < 0 or self.splits % 2):
            raise ValueError(
                f"splits={self.splits}: expected an even number, so that each canary is in exactly "
                "half of them, or 0 for none"
            )
        check_choices(self)
        known = {"contexts": contexts(self.paraphrase), "prompts": PROMPTS}
        for name, there in known.items():
            if unknown := sorted(set(getattr(self, name) or ()) - set(there)):
                raise ValueError(f"{name} names {unknown}: expected some of {', '.join(there)}")

    def check(self, laboratory: Laboratory) -> None:
        """Checks everything that is to be trained, before anything is.

        Raises:
            ValueError: with what is wrong.
        """
        training, held_out = laboratory.documents()
        documents = TrainingDocuments(training, held_out, laboratory.seed, 1, "cpu")
        laboratory.check(self.variants(self.choose(documents)))

    def run(self, access: ExtractionAccess, context: AttackContext) -> ExtractedAnswers:
        """Asks for the answers of the canaries.

        Raises:
            NotApplicable: if no training sample is a canary.
        """
        chosen = self.choose(access.documents)
        inquiries = self._inquiries(chosen)
        exposed: dict[str, Any] = {}
        described: dict[str, Mapping[str, Any]] = {}
        if access.retrain is None:
            context.remarks.not_applicable[COMPARED] = context.refused[Retrain]
            said = {"all": ask(access.model, inquiries["all"])}
        else:
            laboratory = access.retrain.laboratory
            trained = {"all": laboratory.original, **laboratory.train(self.variants(chosen))}
            asked = {name: (trained[name], one) for name, one in inquiries.items()}
            said = dict(laboratory.map(ask_trained, asked))
            jobs = {n: (trained[f"exposure {n}"], self.references) for n in self.exposure or ()}
            exposed = dict(laboratory.map(expose, jobs))
            described = {n: run.described() for n, run in trained.items() if n in ("all", "DP")}
        return ExtractedAnswers(
            canaries=chosen.canaries,
            described=chosen.described(),
            inside=chosen.inside,
            said=said,
            exposed=exposed,
            trained=described,
            resolutions=self.resolutions or {},
            prompts=self.prompts,
            target=self.target,
            seed=chosen.documents.seed,
            originals=self.originals,
        )

    def choose(self, documents: TrainingDocuments) -> Material:
        """Returns the canaries and how the splits divide them; the same whenever it is asked for.

        Raises:
            NotApplicable: if no training sample is a canary.
        """
        chosen = self.curation.choose(documents.training, generator(documents.seed, "canaries"))
        if not chosen.canaries:
            why = ", ".join(f"{number} {reason}" for reason, number in chosen.dropped.items())
            raise NotApplicable(
                f"attack.curation: none of {chosen.drawn} training samples is a canary ({why})"
            )
        inside = np.zeros((0, len(chosen.canaries)), bool)
        if self.splits:
            rng = generator(documents.seed, "canary splits")
            inside = balanced_splits(self.splits, len(chosen.canaries), rng)
        return Material(chosen, inside, documents)

    def variants(self, chosen: Material) -> list[Variant]:
        """Returns every training beside the run's own."""
        everybody = np.ones(len(chosen.canaries), bool)
        kinds = {f"at {n}": overrides for n, overrides in (self.resolutions or {}).items()}
        kinds |= {"EB": ("blocking=on",) if self.blocking else (), "DP": self.dp}
        found = [Variant("all" + WITHOUT, values=chosen.without(everybody))]
        found += [
            Variant(split_name(number), values=chosen.without(~inside))
            for number, inside in enumerate(chosen.inside)
        ]
        for name, overrides in kinds.items():
            if overrides:
                without = Variant(name + WITHOUT, overrides, chosen.without(everybody))
                found += [Variant(name, overrides), without]
            if overrides and name == "EB":
                found += [
                    Variant(f"EB {split_name(number)}", overrides, chosen.without(~inside))
                    for number, inside in enumerate(chosen.inside[:1])
                ]
        if self.controls:
            found.append(Variant("untrained", ("rounds=0",)))
            if chosen.other is not None:
                # It starts from the same weights as the first model without the canaries and
                # differs by one other sample that is left out: its batches have another order.
                values = chosen.without(everybody, chosen.other)
                found.append(Variant("unseen", values=values))
        found += [
            Variant(f"exposure {name}", overrides, experiment=self.exposure_experiment)
            for name, overrides in (self.exposure or {}).items()
        ]
        return found

    def _inquiries(self, chosen: Material) -> dict[str, Inquiry]:
        """Returns what each model is asked."""
        every = contexts(self.paraphrase, reference=self.reference)
        wanted = {n: c for n, c in every.items() if self.contexts is None or n in self.contexts}
        prompts = {name: PROMPTS[name](self.paraphrase) for name in self.prompts}
        halves = {split_name(0), f"EB {split_name(0)}"}
        documents = chosen.documents
        inquiries = {}
        for name in ["all", *(v.name for v in self.variants(chosen) if v.experiment is None)]:
            kind = name.removesuffix(WITHOUT)
            measured = kind in ("all", "EB", "DP") or kind.startswith("at ")
            inquiries[name] = Inquiry(
                target=self.target if name != "untrained" else "final",
                canaries=chosen.canaries,
                training=documents.training if kind in ("all", "EB") else (),
                contexts=wanted if kind in ("all", "EB") else {},
                prompts=prompts if kind == "all" else {},
                held_out=documents.held_out if measured else (),
                trained=name in halves,
                seed=documents.seed,
                threads=documents.threads,
                device=documents.device,
            )
        return inquiries


@dataclass(frozen=True)
class Material:
    """What all trainings have in common; the same whenever it is asked for.

    Attributes:
        chosen: the canaries, and what was dropped.
        inside: which canaries each split is trained with, (K, n).
        documents: of the run.
    """

    chosen: Chosen
    inside: Bools
    documents: TrainingDocuments

    @property
    def canaries(self) -> tuple[Canary, ...]:
        """The n canaries."""
        return self.chosen.canaries

    @property
    def other(self) -> str | None:
        """The first training sample that is no canary; None if all are."""
        canaries = {canary.name for canary in self.canaries}
        training: tuple[Document, ...] = self.documents.training
        names = (name for page in training for name in page.question_names())
        return next((name for name in names if name not in canaries), None)

    def without(self, left_out: Bools, *others: str) -> dict[str, Any]:
        """Returns the settings that leave these canaries out of the training, (n,)."""
        names = [c.name for c, out in zip(self.canaries, left_out.tolist(), strict=True) if out]
        return {"data.unasked": [*names, *others]}

    def described(self) -> dict[str, Any]:
        """Returns how many canaries there are, of which kinds, and what was dropped."""

        def counts(values: list[Any]) -> dict[str, int]:
            return {str(value): n for value, n in sorted(Counter(values).items()) if value != ""}

        return {
            "drawn": self.chosen.drawn,
            "kept": len(self.canaries),
            "planted": sum(canary.planted for canary in self.canaries),
            "dropped": dict(self.chosen.dropped),
            "pii": counts([canary.pii for canary in self.canaries]),
            "repeats": counts([canary.repeats for canary in self.canaries]),
            "training": sum(len(page.questions) for page in self.documents.training),
        }


def expose(job: tuple[TrainedRun, int]) -> dict[str, Any]:
    """Ranks the planted secrets of one federation; returns its exposure, model and strategy."""
    run, references = job
    attack = Exposure(references=references)
    result = run_attack_on(run.path, attack, run.build_model(), name="exposure")
    if result.refused:
        raise ValueError(f"{run.path}: {result.headline}")
    about = run.described()
    model = about["model"].rpartition(".")[2]
    return {**result.details["exposure"], "model": model, "strategy": about["strategy"]}
