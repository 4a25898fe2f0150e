"""Extraction of training answers, and its defences: the whole of Pinto et al. 2024.

Trained are, each a run of its own: f on everything; f_G without the canaries; K models with half of
the canaries each; the first two again at other resolutions and with the defences that act in
training; one federation for each strategy that is asked for planted secrets. Then all are asked.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpriv.attacks.extraction import comparing
from fedpriv.attacks.extraction.asking import UNDEFENDED, Inquiry, Said, Target, ask
from fedpriv.attacks.extraction.canaries import Chosen, Curation
from fedpriv.attacks.extraction.canary import Canary, normalised
from fedpriv.attacks.extraction.comparing import Pair
from fedpriv.attacks.extraction.contexts import REFERENCE, contexts
from fedpriv.attacks.extraction.paraphrases import Paraphraser, TableParaphraser
from fedpriv.attacks.extraction.prompts import PROMPTS
from fedpriv.config.attack import run_attack
from fedpriv.config.experiment import Experiment
from fedpriv.data.document import Document
from fedpriv.federation.dataset import ClientSplit, DocumentData
from fedpriv.runtime.run_folder import LEDGER, RunFolder
from fedpriv.runtime.seeds import generator
from fedpriv.threat.findings import cleared
from fedpriv.threat.scoring.extraction import balanced_splits, memorization_metrics
from fedpriv.threat.study import TRAININGS, Lab, Variant

NAME = "extraction"
"""Of the folder under `findings`."""

WITHOUT = "-without"
"""What the name of a model without the canaries ends with."""

Overrides = tuple[str, ...]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Extraction:
    """What the study trains, and what it asks.

    Args:
        splits: K, even, 2 or more; 50 in Pinto et al. None or 0 leaves the scores out.
        curation: which training samples are canaries.
        target: "final" asks each training's last model; "loss", as in Pinto et al., the one after
            the round with the least validation loss, for which `federation.keep_checkpoints=0`
            keeps all.
        resolutions: by name, from high to low, each with the overrides that make it; without any
            for the experiment's own. None for none.
        contexts: of Pinto et al., §5, by name; empty for none, null for all.
        reference: height in pixels of the pages that shifts by 20 to 200 pixels are meant for: on
            smaller pages they are smaller. Null: pixels of whatever page, as in Pinto et al..
        paraphrase: words questions anew, for a context and for the defence ITP.
        prompts: defences at inference: "PR", "AR", "ITP".
        blocking: whether the defence EB is tried, and its side channel.
        dp: overrides that train with differential privacy; empty for without.
        exposure: strategies or others by name, each with overrides of the experiment
            `exposure_experiment`, in which planted secrets are ranked. None for none.
        exposure_experiment: see there.
        references: other secrets that each planted one is ranked among.
        controls: whether an untrained model is asked, and a second one without the canaries.
        originals: may questions and answers stand in the findings?
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
    exposure_experiment: str = "exposure"
    references: int = 250
    controls: bool = True
    originals: bool = False

    def __post_init__(self) -> None:
        if self.splits is not None and (self.splits < 0 or self.splits % 2):
            raise ValueError(
                f"splits={self.splits}: expected an even number, so that each canary is in exactly "
                "half of them, or 0 for none"
            )
        if self.target not in ("final", "loss"):
            raise ValueError(f"target={self.target!r}: expected 'final' or 'loss'")
        known = {"contexts": contexts(self.paraphrase), "prompts": PROMPTS}
        for name, there in known.items():
            if unknown := sorted(set(getattr(self, name) or ()) - set(there)):
                raise ValueError(f"{name} names {unknown}: there are {', '.join(there)}")

    def variants(self, base: Experiment) -> list[Variant]:
        """Returns every training."""
        return self._variants(_Material.of(self, base))

    def _variants(self, material: _Material) -> list[Variant]:
        return [
            *self._pair("all", material),
            *(
                Variant(_split(number), values=material.without(~inside))
                for number, inside in enumerate(material.inside)
            ),
            *(v for n, o in self._other_resolutions() for v in self._pair(f"at {n}", material, o)),
            *(self._blocked(material) if self.blocking else ()),
            *(self._pair("DP", material, self.dp) if self.dp else ()),
            *(self._controls(material) if self.controls else ()),
            *(
                Variant(f"exposure {name}", overrides, experiment=self.exposure_experiment)
                for name, overrides in (self.exposure or {}).items()
            ),
        ]

    def conclude(self, lab: Lab) -> dict[str, Any]:
        """Asks all models; writes `findings/extraction/` and returns its metrics."""
        began = time.monotonic()
        material = _Material.of(self, lab.base)
        self._check_plan(lab, material)
        said = lab.pool.map(ask, dict(self._inquiries(lab, material)))
        exposed = lab.pool.map(functools.partial(_expose, self.references), self._exposures(lab))
        pair = Pair(material.canaries, said["all"], said["all" + WITHOUT])
        in_e, in_g = comparing.hits(pair.said), comparing.hits(pair.without)
        splits = self._splits(material, said, in_e, in_g)
        metrics = {
            "status": "done",
            "model": lab.training("all").config()["model"]["_target_"].rpartition(".")[2],
            "target": self.target,
            "splits": len(material.inside),
            "canaries": material.described(),
            **comparing.whole(pair),
            "anls": {
                "standard": pair.said.anls.get(UNDEFENDED),
                "without_canaries": pair.without.anls.get(UNDEFENDED),
            },
            **(splits[0] if splits else {}),
            **self._compared(lab, material, said, pair),
            **({"exposure": exposed} if exposed else {}),
            "assumptions": self._assumptions(material),
            "notes": self._notes(material),
            "settings": {f.name: repr(getattr(self, f.name)) for f in dataclasses.fields(self)},
            "seconds": time.monotonic() - began,
        }
        self._write(lab.folder, metrics, material.canaries, in_e, in_g, splits[1] if splits else {})
        return metrics

    def _other_resolutions(self) -> list[tuple[str, Overrides]]:
        found = (self.resolutions or {}).items()
        return [(name, overrides) for name, overrides in found if overrides]

    def _check_plan(self, lab: Lab, material: _Material) -> None:
        """Checks that the data are still those of which the trainings were planned.

        Raises:
            ValueError: if others would be left out today.
        """
        planned = lab.training("all" + WITHOUT).config()["data"]["unasked"]
        if list(planned) != [canary.name for canary in material.canaries]:
            raise ValueError(
                f"{lab.folder.path}: other canaries are drawn than when it was trained; its data "
                "have changed since"
            )

    def _pair(self, name: str, material: _Material, overrides: Overrides = ()) -> list[Variant]:
        """Returns f and f_G of one kind."""
        nobody = np.zeros(len(material.canaries), bool)
        return [
            Variant(name, overrides),
            Variant(name + WITHOUT, overrides, material.without(~nobody)),
        ]

    def _blocked(self, material: _Material) -> list[Variant]:
        blocking = ("blocking=on",)
        half = [
            Variant(f"EB {_split(number)}", blocking, material.without(~inside))
            for number, inside in enumerate(material.inside[:1])
        ]
        return [*self._pair("EB", material, blocking), *half]

    def _controls(self, material: _Material) -> list[Variant]:
        """Returns a model of no training, and one more that never saw the canaries.

        The latter starts from the same weights as the first and differs by one other sample that
        is left out: that gives its batches another order.
        """
        untrained = Variant("untrained", ("rounds=0",))
        if material.other is None:
            return [untrained]
        nobody = np.zeros(len(material.canaries), bool)
        return [untrained, Variant("unseen", values=material.without(~nobody, material.other))]

    def _inquiries(self, lab: Lab, material: _Material) -> list[tuple[str, Inquiry]]:
        """Returns what each model is asked."""
        every = contexts(self.paraphrase, reference=self.reference)
        wanted = {n: c for n, c in every.items() if self.contexts is None or n in self.contexts}
        prompts = {name: PROMPTS[name](self.paraphrase) for name in self.prompts}
        exposed = {f"exposure {name}" for name in self.exposure or ()}
        there = [
            variant.name for variant in self._variants(material) if variant.name not in exposed
        ]
        halves = {_split(0), f"EB {_split(0)}"}
        inquiries = []
        for name in there:
            kind = name.removesuffix(WITHOUT)
            measured = kind in ("all", "EB", "DP") or kind.startswith("at ")
            inquiry = Inquiry(
                folder=lab.folder.path / TRAININGS / name,
                target=self.target if name != "untrained" else "final",
                canaries=material.canaries,
                training=material.training if kind in ("all", "EB") else (),
                contexts=wanted if kind in ("all", "EB") else {},
                prompts=prompts if kind == "all" else {},
                held_out=material.held_out if measured else (),
                trained=name in halves,
                seed=lab.base.seed,
                threads=lab.base.federation.threads,
                device=lab.base.federation.device,
            )
            inquiries.append((name, inquiry))
        return inquiries

    def _exposures(self, lab: Lab) -> dict[str, str]:
        """Returns the folders of the federations that planted secrets are ranked in."""
        place = lab.folder.path / TRAININGS
        return {name: str(place / f"exposure {name}") for name in self.exposure or ()}

    def _splits(
        self, material: _Material, said: Mapping[str, Said], in_e: Bools, in_g: Bools
    ) -> tuple[dict[str, Any], dict[str, Sequence[float]]] | None:
        """Returns the metrics of the K splits, and each canary's scores; none without splits."""
        if not len(material.inside):
            return None
        answered = [said[_split(number)] for number in range(len(material.inside))]
        scores = comparing.scores_of(answered, material.inside)
        metrics = memorization_metrics(
            scores,
            in_e,
            in_g,
            [canary.repeats for canary in material.canaries],
            generator(material.seed, "extraction scoring"),
            documents=[f"{c.question.key} {normalised(c.answer)}" for c in material.canaries],
        )
        found = {"memorization": scores.memorization, "simplicity": scores.simplicity}
        return metrics, {name: values.tolist() for name, values in found.items()}

    def _compared(
        self, lab: Lab, material: _Material, said: Mapping[str, Said], pair: Pair
    ) -> dict[str, Any]:
        """Returns the sections that compare models of several kinds."""

        def of(name: str) -> Pair:
            return Pair(material.canaries, said[name], said[name + WITHOUT])

        own = pair.said.anls.get(UNDEFENDED)
        found: dict[str, Any] = {"contexts": pair.contexts()}
        if self.resolutions:
            pairs = {n: of(f"at {n}") if o else pair for n, o in self.resolutions.items()}
            found["resolutions"] = {n: p.defence(UNDEFENDED, own) for n, p in pairs.items()}
        rows = {name: pair.defence(name, own) for name in (UNDEFENDED, *self.prompts)}
        if self.blocking:
            blocked = of("EB")
            rows["EB"] = blocked.defence(UNDEFENDED, own) | {"contexts": blocked.contexts()}
        if self.dp:
            rows["DP"] = of("DP").defence(UNDEFENDED, own) | _spent(lab.training("DP"))
        found["defences"] = rows
        if len(material.inside):
            found["side_channel"] = comparing.side_channel(
                material.canaries,
                material.inside[0],
                said[_split(0)],
                said.get(f"EB {_split(0)}"),
                material.seed,
            )
        if self.controls:
            found["controls"] = comparing.controls(pair, said.get("untrained"), said.get("unseen"))
        return found

    def _assumptions(self, material: _Material) -> list[str]:
        return [
            f"the adversary asks for {len(material.canaries)} answers, holding each page without "
            "its answer, and the question as it was trained on (other contexts say what differs)",
            "it sees the model's answers only; the side channel and the exposure, its losses too",
        ]

    def _notes(self, material: _Material) -> list[str]:
        samples = sum(len(page.questions) for page in material.training)
        chosen = {
            "final": "each training's last model is asked; Pinto et al. stop early by the "
            "validation loss (study.target=loss)",
            "loss": "each training's model of the least validation loss is asked; the ANLS is of "
            "the same held-out pages that chose it",
        }
        return [
            chosen[self.target],
            "an answer is extracted if it is the accepted one but for case and blanks; Pinto et "
            "al. do not say",
            "f and f_G start from the same weights, and both are trained with the defence where "
            "it acts in training",
            f"f is trained on {samples} samples, f_G on {samples - len(material.canaries)}, for as "
            "many epochs: what f answers for having been trained for longer counts as memory too; "
            "compare their ANLS",
            "with extraction blocking an epoch is twice as long",
            "intervals and the rank test take all canaries with one answer as one, and the models "
            "as given",
            "shuffled pages and foreign questions are those of other canaries of the same chunk",
        ]

    def _write(
        self,
        folder: RunFolder,
        metrics: Mapping[str, Any],
        canaries: Sequence[Canary],
        in_e: Bools,
        in_g: Bools,
        scores: Mapping[str, Sequence[float]],
    ) -> None:
        place = cleared(folder, NAME)
        rows = comparing.rows_of_canaries(canaries, in_e, in_g, scores, originals=self.originals)
        folder.write_json(f"{place}/canaries.json", rows)
        sets = {"names": [c.name for c in canaries], "in_E": in_e.tolist(), "in_G": in_g.tolist()}
        folder.write_json(f"{place}/scores.json", {**scores, **sets})
        folder.write_json(f"{place}/metrics.json", metrics)


@dataclass(frozen=True)
class _Material:
    """What all trainings of a study have in common; the same whenever it is asked for.

    Attributes:
        chosen: the canaries, and what was dropped.
        inside: which canaries each split is trained with, (K, n).
        training: the training documents.
        held_out: the pages for the ANLS.
        seed: of the experiment.
    """

    chosen: Chosen
    inside: Bools
    training: tuple[Document, ...]
    held_out: tuple[Document, ...]
    seed: int

    @classmethod
    def of(cls, study: Extraction, base: Experiment) -> _Material:
        """Reads the data and chooses.

        Raises:
            ValueError: if the data are no documents, or none of their questions makes a canary.
        """
        if not isinstance(base.data, DocumentData):
            raise ValueError(
                f"data: {type(base.data).__name__} has no documents; take DocumentData"
            )
        if base.data.unasked:
            raise ValueError("data.unasked: the study decides itself which questions are left out")
        dealt: ClientSplit = base.data.dealt(base.seed)
        training = dealt.of(dealt.trained)
        chosen = study.curation.choose(training, generator(base.seed, "canaries"))
        if not chosen.canaries:
            raise ValueError(
                f"study.curation: none of {chosen.drawn} training samples is a canary "
                f"({dict(chosen.dropped)})"
            )
        rng = generator(base.seed, "canary splits")
        count = len(chosen.canaries)
        inside = balanced_splits(study.splits, count, rng) if study.splits else _no_splits(count)
        return cls(chosen, inside, training, dealt.of(dealt.held), base.seed)

    @property
    def canaries(self) -> tuple[Canary, ...]:
        """The n canaries."""
        return self.chosen.canaries

    @property
    def other(self) -> str | None:
        """The first training sample that is no canary; none if all are."""
        canaries = {canary.name for canary in self.canaries}
        names = (name for page in self.training for name in page.question_names())
        return next((name for name in names if name not in canaries), None)

    def without(self, left_out: Bools, *others: str) -> dict[str, Any]:
        """Returns the settings that leave these canaries out of the training, (n,)."""
        names = [c.name for c, out in zip(self.canaries, left_out.tolist(), strict=True) if out]
        return {"data.unasked": [*names, *others]}

    def described(self) -> dict[str, Any]:
        """Returns the section "canaries" of the metrics."""

        def counts(of: Callable[[Canary], Any]) -> dict[str, int]:
            values, numbers = np.unique([of(c) for c in self.canaries], return_counts=True)
            pairs = zip(values.tolist(), numbers.tolist(), strict=True)
            return {str(value): number for value, number in pairs if value != ""}

        return {
            "drawn": self.chosen.drawn,
            "kept": len(self.canaries),
            "planted": sum(canary.planted for canary in self.canaries),
            "dropped": dict(self.chosen.dropped),
            "pii": counts(lambda canary: canary.pii),
            "repeats": counts(lambda canary: canary.repeats),
            "training": sum(len(page.questions) for page in self.training),
        }


def _spent(folder: RunFolder) -> dict[str, Any]:
    """Returns ε and δ of a private training, from its ledger: against who sees its models."""
    views = folder.read_json(LEDGER)["views"]
    delta = folder.config()["privacy"]["delta"]
    return {"epsilon": views["global"]["pld"], "delta": delta} if views else {}


def _split(number: int) -> str:
    return f"split-{number:02}"


def _no_splits(canaries: int) -> Bools:
    return np.zeros((0, canaries), bool)


def _expose(references: int, run_dir: str) -> dict[str, Any]:
    """Ranks the planted secrets of one federation; returns the exposure of its metrics."""
    config = RunFolder.existing(Path(run_dir)).config()
    found = run_attack(run_dir, "exposure", [f"attack.references={references}"])
    model = config["model"]["_target_"].rpartition(".")[2]
    return {**found.numbers["exposure"], "model": model, "strategy": config["strategy"]["_target_"]}
