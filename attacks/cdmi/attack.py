"""CDMI: combinatorial document model inversion (CDMI, §4 and Algorithm 2).

A masked language model trained on public documents, PUB-MLM, proposes tokens for the scrubbed
places of a document, from left to right. The target's loss with each of them says which one it was
trained with. Nothing but losses is asked of the target, so it may have any task.

    for t in 1..k
        g   scores of PUB-MLM at place t; its N_c best tokens c_i
        l_i loss of the target on the whole window, with c_i filled in
        p_i the mean of both as likelihoods (`fedpriv.attacks.cdmi.likelihoods`)
        v_t drawn from the nucleus of p

A target that is a masked language model itself proposes and judges in one: its own likelihoods take
the place of p. The baseline goes the same way with ĝ in the place of p, and by the same random
numbers. [MASK] and [PAD] are never proposed [ours].
"""

from __future__ import annotations

import dataclasses
import pathlib
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import numpy as np
import torch
from pydantic import TypeAdapter
from torch import Tensor

from fedpriv.attacks.cdmi.decoding import Baseline, Decoder, Done, Path
from fedpriv.attacks.cdmi.generator import RANDOM, Training, check_baseline, public_mlm, untrained
from fedpriv.attacks.cdmi.likelihoods import Sampling
from fedpriv.attacks.cdmi.membership import Metric, confidences, public_confidence
from fedpriv.attacks.cdmi.public_data import PublicData
from fedpriv.attacks.cdmi.tuning import Tuning, rehearse
from fedpriv.attacks.cdmi.windows import Windows, device_of, gaussian_like, looked_at
from fedpriv.data.examples import Examples
from fedpriv.models.field_model import FieldModel, TokenModel, as_field_model
from fedpriv.runtime.seeds import generator
from fedpriv.threat.access import (
    Architecture,
    ModelSeries,
    PublicDocuments,
    PublicModel,
    ScrubbedField,
    ScrubbedFields,
    WhiteBox,
)
from fedpriv.threat.attack import AttackContext, NotApplicable, Outline
from fedpriv.threat.checks import check_least
from fedpriv.threat.claims import Attempt, FieldGuesses, Reconstruction
from fedpriv.threat.kept import Kept
from fedpriv.threat.surfaces.fields import field_model

FLAT = 1.1
"""Where the target's likelihood raises a token by less than this factor in half of the places, its
losses are as good as alike [ours]."""


@dataclass(frozen=True)
class CDMIAccess:
    """What CDMI uses (CDMI, §3.1); the public model is what PUB-MLM starts from."""

    models: ModelSeries
    fields: ScrubbedFields
    documents: PublicDocuments
    architecture: Architecture
    public: PublicModel | None


@dataclass(frozen=True)
class CDMI(Sampling):
    """The attack; how a token is chosen is described at `Sampling`.

    Args:
        attempts: n_a, the number of guesses at each field: 8 for the multi-shot attack, 1 for the
            one-shot attack alone (CDMI, App. A). The first guess is the one-shot attack's.
        membership: the metric that chooses one of the guesses at a field and ranks the fields:
            "raw", "ratio", "raw_and_ratio", "gap" or "token_ratio" (CDMI, §4.3). The result has all
            five; CDMI does not say which one its Table 5 uses. "gap" is our choice, because the
            ratios depend on the least likely tokens, and rank last whatever PUB-MLM knows too
            [ours].
        baseline: the reconstruction to compare with: "public" uses the likelihoods of PUB-MLM alone
            (CDMI, §5.2). "silent" runs the attack as if all of the target's losses were the same,
            which also flattens the likelihoods; it is a control [ours].
        visual: what targets that look at pages are shown: the "page", or Gaussian "noise" in place
            of its visual features (CDMI, §6.2). PUB-MLM sees the page in either case [ours].
        generator: how PUB-MLM is trained.
        public: the documents that PUB-MLM is trained on.
        tune: how `likelihood`, `target_temperature` and `weight` are chosen on a model that the
            adversary trains. None takes the values that are given. It has no effect on a target
            that guesses masked tokens, for which these three are not used.
        batch_size: the number of rows that go through a model at once.
        fields_per_chunk: the number of fields that are attacked side by side. Progress is saved
            after each such chunk.
    """

    attempts: int = 8
    membership: Metric = "gap"
    baseline: Baseline = "public"
    visual: Literal["page", "noise"] = "page"
    generator: Training = field(default_factory=Training)
    public: PublicData = field(default_factory=PublicData)
    tune: Tuning | None = None
    batch_size: int = 128
    fields_per_chunk: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(self, 1, "attempts", "batch_size", "fields_per_chunk")

    def suits(self, outline: Outline) -> None:
        """Asks whether the model tells losses, and its tokenizer has a mask."""
        field_model(outline.model)

    def run(self, access: CDMIAccess, context: AttackContext) -> tuple[FieldGuesses, ...]:
        """Makes `attempts` guesses at each field with each model.

        Raises:
            NotApplicable: if no model can be attacked, because its tokenizer has no mask token, or
                is not PUB-MLM's; a model's losses or scores are no numbers; or visual="noise" and
                there is no page.
            ValueError: if no document is public, or PUB-MLM diverges.
        """
        remarks = context.remarks
        # One seed, so that each model is attacked as it would be alone.
        seed = int(context.rng.integers(2**63))
        found = []
        for build in access.models.models:
            box = build()
            context.log(f"attacking the model of {box.name}")
            try:
                found.append(self._guesses(box, access, context, seed))
            except NotApplicable as reason:
                remarks.not_applicable[box.name] = str(reason)
                continue
        if not found:
            raise NotApplicable("; ".join(dict.fromkeys(remarks.not_applicable.values())))
        return tuple(found)

    def _guesses(
        self, box: WhiteBox, access: CDMIAccess, context: AttackContext, seed: int
    ) -> FieldGuesses:
        """Attacks one model."""
        target, examples = as_field_model(box.model), access.fields.examples
        mask = target.reader.subwords.mask
        if mask is None:
            raise NotApplicable(
                "the target's tokenizer has no mask token for CDMI to fill in: attack a run with "
                "model=layoutlm, bros or bert"
            )
        fields, left_out = _attackable(access.fields, mask)
        context.remarks.left_out |= left_out
        self._check_page(target, examples, fields[:1])
        documents = self.public.of(access.documents.documents)
        start, attacked_start = self.generator.start, box.round == 0
        # Whoever had the weights that are attacked would have nothing to find.
        public = None if attacked_start else access.public
        own = untrained(access.architecture, target, public, start)
        if attacked_start:
            check_baseline(own, target)
        helper = public_mlm(own, documents, self.generator, seed, context.scratch, context.log)
        settings, tuned = self, dict[str, float | str]()
        if self.tune and not guesses_itself(target):
            self._check_tuning(attacked_start)
            settings, tuned = self._tuned(
                self.tune, access, fields, public, seed, device_of(target), context
            )
        done = _Run(settings, target, helper.model, examples, seed).all(fields, context)
        say = measure_say(done.values())
        context.remarks.notes = settings._notes(guesses_itself(target), public is not None)
        if tuned:
            context.remarks.notes.append(
                f"likelihood={settings.likelihood}, T_l={settings.target_temperature} and "
                f"w={settings.weight} did best on a model of the adversary's own: "
                f"{tuned['tuned_wrong']:.3f} of the tokens wrong, with the worst choice "
                f"{tuned['tuned_wrong_most']:.3f}"
            )
        return FieldGuesses(
            fields=tuple(done[f.number].found for f in access.fields.fields if f.number in done),
            membership=self.membership,
            model=box.name,
            round=box.round,
            measured=box.measured,
            details={
                "candidates": self.candidates,
                "attempts": self.attempts,
                "candidate_evaluations": sum(one.evaluations for one in done.values()),
                "candidate_evaluations_asked": sum(one.asked for one in done.values()),
                "seconds": sum(one.seconds for one in done.values()),
                "public_documents": len(documents),
                **{f"generator_{name}": value for name, value in helper.metrics.items()},
                **say,
                **tuned,
            },
            mute=settings._mute(say),
        )

    def _tuned(
        self,
        tuning: Tuning,
        access: CDMIAccess,
        fields: Sequence[ScrubbedField],
        public: PublicModel | None,
        seed: int,
        device: torch.device,
        context: AttackContext,
    ) -> tuple[CDMI, dict[str, float | str]]:
        """Returns the attack with the settings that did best on a shadow, and what they did."""
        given = access.documents.documents
        rehearsal = rehearse(
            tuning, self.generator, access.architecture, public, given, fields, seed,
            context.scratch, device, context.log,
        )  # fmt: skip
        tried: list[tuple[float, dict[str, Any]]] = []
        for choice in tuning.choices():
            attack = dataclasses.replace(self, **choice, attempts=1)
            run = _Run(attack, rehearsal.target, rehearsal.helper, rehearsal.examples, seed)
            done = run.all(rehearsal.fields, context).values()
            tried.append((rehearsal.wrong(done), choice))
            context.log(f"tuning: {tried[-1][0]:.3f} of the tokens are wrong with {choice}")
        wrong, best = min(tried, key=lambda one: one[0])
        found = {f"tuned_{name}": value for name, value in best.items()}
        return dataclasses.replace(self, **best), {
            **found,
            "tuned_wrong": wrong,
            "tuned_wrong_most": max(one for one, _ in tried),
        }

    def _mute(self, say: Mapping[str, float]) -> str:
        """Returns why finding nothing tells nothing of the target; empty where it does."""
        if say.get("target_factor", FLAT) >= FLAT:
            return ""
        return (
            "CDMI repeats the public model here: the target's losses with the candidates are "
            f"nearly alike (standard deviation {say['loss_spread']:.2g} of their median), so that "
            f"its likelihood raises a token by {say['target_factor'] - 1:.1%} at most in half of "
            f"the places, and changes the likeliest one in {say['choices_changed']:.1%}. That "
            "nothing is found says nothing of the target: try attack.likelihood=scaled, a lower "
            "attack.target_temperature, or attack=field_candidates"
        )

    def _check_tuning(self, attacked_start: bool) -> None:
        """Raises `NotApplicable` where a shadow would have what this adversary has not."""
        if attacked_start:
            raise NotApplicable(
                "attack.tune: the shadow would start from the weights under attack; take "
                "attack.tune=null"
            )
        if self.public != PublicData():
            raise NotApplicable(
                "attack.tune trains on the federation's public documents with their entities, "
                "which attack.public changes: take attack.tune=null, or attack.public as it is"
            )

    def _check_page(
        self, target: FieldModel, examples: Examples, fields: Sequence[ScrubbedField]
    ) -> None:
        """Raises `NotApplicable` if a page is to be hidden from a target that reads none.

        It would be found out anyway, but after PUB-MLM's training.
        """
        if self.visual == "noise" and fields:
            numbers = np.array([one.number for one in fields])
            with torch.no_grad():
                batch = examples.batch(numbers, device_of(target))
                looked_at(target, batch, lambda features: features)

    def _notes(self, own_head: bool, public_start: bool) -> list[str]:
        notes = [
            "the target is a masked language model: its own likelihoods choose the tokens, without "
            "its losses; ĝ of the membership metrics is PUB-MLM's over the target's candidates"
            if own_head
            else f"w={self.weight:g} is the weight of the target's likelihood, and the loss is of "
            "the whole window; the paper leaves both open",
            f"T_g falls from {self.first_temperature:g} to {self.public_temperature:g} over "
            f"{self.decay_steps} tokens; the paper leaves the law open",
        ]
        if self.likelihood == "scaled" and not own_head:
            notes.append("l̂ is of the losses in units of their own spread, not by eq. 5")
        if self.baseline == "silent" and not own_head:
            notes.append("the baseline is what the attack would make of a target that says nothing")
        if self.visual == "noise":
            notes.append("the target sees Gaussian noise in the place of the page")
        if not public_start or self.generator.start:
            start = self.generator.start or RANDOM
            notes.append(f"PUB-MLM starts from {'random weights' if start == RANDOM else start}")
        return notes


@dataclass(frozen=True)
class _Run:
    """One attack on one target."""

    settings: CDMI
    target: FieldModel
    generator: TokenModel
    examples: Examples
    seed: int

    def all(self, fields: Sequence[ScrubbedField], context: AttackContext) -> dict[int, Done]:
        """Attacks the fields, or takes up what an earlier run has done of them."""
        kept = self._kept(context.scratch, fields)
        one_of = TypeAdapter(Done).validate_python
        done = {one.found.number: one for one in map(one_of, kept.lines())}
        if done:
            context.log(f"{len(done)} of {len(fields)} fields were attacked before")
        # Windows that are about equally long go together: a chunk is as long as its longest.
        attended = self.examples.column("attention_mask").sum(1)
        order = sorted(fields, key=lambda one: (attended[one.number], one.number))
        size = self.settings.fields_per_chunk
        for start in range(0, len(order), size):
            chunk = order[start : start + size]
            if all(one.number in done for one in chunk):
                continue
            found = self._attacked(chunk)
            kept.add(map(dataclasses.asdict, found))
            done |= {one.found.number: one for one in found}
            speed = sum(one.evaluations for one in found) / sum(one.seconds for one in found)
            fast = f", {speed:.0f} candidates a second" if speed else ""
            context.log(f"{len(done)} of {len(fields)} fields{fast}")
        return done

    def _attacked(self, chunk: Sequence[ScrubbedField]) -> list[Done]:
        began = time.perf_counter()
        # The numbers by which tokens are drawn, (attempts, k): the baseline's too.
        uniforms = [
            [
                generator(self.seed, "cdmi", round=attempt, client=one.number).random(
                    len(one.places)
                )
                for attempt in range(self.settings.attempts)
            ]
            for one in chunk
        ]
        attack, baseline = (
            [Path(place, own) for place, rows in enumerate(uniforms) for own in rows]
            for _ in range(2)
        )
        subwords = self.target.reader.subwords
        with torch.no_grad():
            decoder = Decoder(
                self._windows(self.generator, chunk, "page"),
                self._windows(self.target, chunk, self.settings.visual),
                self.settings,
                guesses_itself(self.target),
                tuple({cast(int, subwords.mask), subwords.pad}),
                self.settings.baseline,
            )
            tally = decoder.decode(attack, baseline)
        seconds = (time.perf_counter() - began) / len(chunk)
        return [
            Done(
                Reconstruction(
                    one.number,
                    tuple(
                        Attempt(tuple(path.tokens), confidences(path.target, path.public))
                        for path in attack
                        if path.place == place
                    ),
                    tuple(
                        Attempt(tuple(path.tokens), public_confidence(path.public))
                        for path in baseline
                        if path.place == place
                    ),
                ),
                tally.evaluated[place],
                tally.asked[place],
                seconds,
                tuple(tally.say[place]),
            )
            for place, one in enumerate(chunk)
        ]

    def _windows(self, model: FieldModel, chunk: Sequence[ScrubbedField], visual: str) -> Windows:
        batch = self.examples.batch(np.array([one.number for one in chunk]), device_of(model))
        rngs = [generator(self.seed, "cdmi noise", client=one.number) for one in chunk]

        def noise(features: Tensor) -> Tensor:
            return gaussian_like(features, batch["attention_mask"], rngs)

        rows = looked_at(model, batch, None if visual == "page" else noise)
        return Windows(model, rows, [one.places for one in chunk], self.settings.batch_size)

    def _kept(self, scratch: pathlib.Path, fields: Sequence[ScrubbedField]) -> Kept:
        settings = dataclasses.asdict(self.settings)
        for name in ("membership", "generator", "public", "tune"):  # PUB-MLM's weights, and w, tell
            del settings[name]
        return Kept.of(
            scratch,
            "cdmi",
            settings=settings,
            target=self.target,
            generator=self.generator,
            fields=sorted((one.number, *one.places) for one in fields),
            rows=self.examples.take(np.array(sorted(one.number for one in fields))),
            seed=self.seed,
            device=device_of(self.target).type,
        )


def measure_say(done: Iterable[Done]) -> dict[str, float]:
    """Returns how much of the choices was the target's; nothing where no loss was asked.

    * `loss_spread`: standard deviation of its losses with the candidates, over their median.
    * `target_factor`: by how much its likelihood raises the candidate that it finds likeliest above
      the median one. Both are medians over places.
    * `choices_changed`: share of the places where the likeliest token is another than without it.
    """
    say = [one for field in done for one in field.say]
    if not say:
        return {}
    return {
        "loss_spread": float(np.median([one.spread for one in say])),
        "target_factor": float(np.exp(np.median([one.raised for one in say]))),
        "choices_changed": float(np.mean([one.changed for one in say])),
    }


def guesses_itself(model: object) -> bool:
    """Says whether a model guesses masked tokens itself."""
    return isinstance(model, TokenModel) and getattr(model, "task", "mlm") == "mlm"


def _attackable(
    scrubbed: ScrubbedFields, mask: int
) -> tuple[tuple[ScrubbedField, ...], dict[str, int]]:
    """Returns the fields that have masked places, and why others are left out."""
    kept, left_out = [], Counter[str]()
    ids = scrubbed.examples.column("input_ids")
    for one in scrubbed.fields:
        if not one.places:
            left_out["no token of the field is in its window"] += 1
        elif any(ids[one.number, place] != mask for place in one.places):
            left_out["the window is not masked where the field stands"] += 1
        else:
            kept.append(one)
    return tuple(kept), dict(left_out)
