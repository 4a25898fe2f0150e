"""An attack on the providers of a run: who was trained on, and what does the model remember?

In this order: the attack gets its access and the suspects, in memory, and hands back its judgement;
only then is the truth opened for the scoring. What it is told of it beforehand, the membership of
some providers, is an assumption of the attack by name (PFL-DocVQA, §5.2.3), drawn here.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from torch import Tensor

from fedpriv.data.document import Document
from fedpriv.federation.membership_table import TrainingMembership
from fedpriv.models.question_answering import QuestionAnswerer
from fedpriv.runtime.cache import private_folder
from fedpriv.runtime.run_folder import FINAL, LEDGER, START, RunFolder, check_name
from fedpriv.runtime.seeds import entropy, generator
from fedpriv.runtime.torch_state import reproducible_torch, seeded_model
from fedpriv.threat import transcript
from fedpriv.threat.attack import Capability, NotApplicable, Workbench, granted
from fedpriv.threat.findings import settings_of
from fedpriv.threat.keep.held_out import Kept, load_candidates
from fedpriv.threat.membership_game import Access, Judgement, ProviderAttack, Suspects, Trial
from fedpriv.threat.provider_findings import write_judgement
from fedpriv.threat.queries import BlackBox, GreyBox, Oracle
from fedpriv.threat.scoring.audit import audit_metrics
from fedpriv.threat.scoring.providers import scored
from fedpriv.threat.transcript import NoTranscript, Transcript
from fedpriv.threat.truth import TruthStore

Pages = Mapping[str, tuple[Document, ...]]
"""Documents by provider."""


@dataclass(frozen=True)
class ProviderAttackRun:
    """One attack on the providers of a run.

    Args:
        attack: which.
        name: of the folder under `findings`.
        access: "grey_box": the model's answers come with confidence and loss; "black_box": answers.
        public_start: whether the adversary knows the public model that training started from.
        known: r, the share of the providers whose membership is known, half of them members.
        repeats: how often the known ones are drawn.
        least_questions: s of T_s, the smallest first: providers with few questions are left out.
        more_than: T_s takes providers with more than s questions, as the caption of PFL-DocVQA's
            Table 4 says; false: with s at least, as its §7.2 says.
        rounds: of what the server saw; none for all.
        clients: likewise.
        confidence: of an audit's bound.
        resamples: bootstrap samples, and permutations, behind intervals and p-values.
        seed: of everything random in the attack and in its scoring.
        threads: of torch.
    """

    attack: ProviderAttack
    name: str
    access: Literal["grey_box", "black_box"] = "grey_box"
    public_start: bool = True
    known: float = 0.15
    repeats: int = 5
    least_questions: tuple[int, ...] = (0, 5, 10)
    more_than: bool = True
    rounds: tuple[int, ...] | None = None
    clients: tuple[int, ...] | None = None
    confidence: float = 0.95
    resamples: int = 1000
    seed: int = 0
    threads: int = 1

    def __post_init__(self) -> None:
        check_name(self.name)
        if self.access not in ("grey_box", "black_box"):
            raise ValueError(f"access={self.access!r}: expected 'grey_box' or 'black_box'")
        for name in ("known", "confidence"):
            if not 0 < getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}: expected a value between 0 and 1")
        for name, least in {"repeats": 1, "resamples": 100}.items():
            if getattr(self, name) < least:
                raise ValueError(f"{name}={getattr(self, name)}: expected at least {least}")
        few = list(self.least_questions)
        if not few or few != sorted(set(few)) or few[0] < 0:
            raise ValueError(f"least_questions={few}: expected ascending numbers from 0 on")

    def on(
        self,
        run_dir: Path | str,
        build_model: Callable[..., Any],
        tell: Callable[[str], None] = lambda line: None,
    ) -> dict[str, Any]:
        """Attacks a run; writes `findings/<name>/` and returns its metrics.

        Args:
            run_dir: of a run with candidates.
            build_model: the architecture, as the federation was given it.
            tell: shows one line of progress.

        Raises:
            NotARunFolder: if it is none.
            InUse: if an attack of this name is being made on it.
            Damaged: if a file of the run cannot be used; it is named.
            NoCandidates: if it keeps no documents to ask about.
            ValueError: if the run is not finished, or of another model, or tells nobody apart.
        """
        folder = RunFolder.existing(run_dir)
        with folder.writing("attack", settings_of(self), self.name):
            kept, parts = (
                load_candidates(folder, private_folder("pages")),
                TruthStore(folder).parts(),
            )
            pages, left_out = _suspected(kept, canaries=judges_canaries(self.attack))
            require_both_kinds(pages, parts)
            models = _Models(build_model, {name: _state(folder, name) for name in (START, FINAL)})
            suspects = self._suspects(pages, kept, parts, models)
            began = time.process_time()
            try:
                with reproducible_torch(self.threads, "cpu"):
                    judgement = self._judgement(folder, models, suspects, tell)
            except NotApplicable as reason:
                metrics: dict[str, Any] = {"status": "not_applicable", "reason": str(reason)}
                write_judgement(folder, self.name, metrics, Judgement(), {})
                return metrics
            seconds = time.process_time() - began
            metrics = {
                "status": "done",
                **self._scores(folder, judgement, parts),
                "seconds": seconds,
                "providers": len(pages),
                "questions": sum(map(_questions, pages.values())),
                "left_out": {**left_out, "duplicate pages": kept.duplicates_dropped},
                "assumptions": list(suspects.assumptions),
                "settings": {name: repr(getattr(self, name)) for name in _settings()},
            }
            write_judgement(folder, self.name, metrics, judgement, parts)
            return metrics

    def _judgement(
        self,
        folder: RunFolder,
        models: _Models,
        suspects: Suspects,
        tell: Callable[[str], None],
    ) -> Judgement:
        """Lets the attack judge.

        Raises:
            NotApplicable: if the run does not grant what the attack requires.
        """
        view, why = self._view(folder)
        access = self._access(models, view)
        if missing := self.attack.requires - _granted(access):
            wanted = ", ".join(sorted(capability.value for capability in missing))
            how = "; ".join(dict.fromkeys(self._remedy(one, view, why) for one in missing))
            raise NotApplicable(f"the attack requires {wanted}, which is not granted: {how}")
        rng = np.random.default_rng(entropy(self.seed, "attack"))
        return self.attack.judge(access, suspects, Workbench(rng, tell, private_folder("attacks")))

    def _scores(
        self, folder: RunFolder, judgement: Judgement, parts: Mapping[str, TrainingMembership]
    ) -> dict[str, Any]:
        rng = np.random.default_rng(entropy(self.seed, "scoring"))
        scores = scored(judgement, parts, rng, resamples=self.resamples)
        if not judges_canaries(self.attack):
            return scores
        if len(judgement.verdicts) != 1:
            raise ValueError(
                f"an audit hands back one verdict, not {len(judgement.verdicts)}: the best of "
                "several would be worth less than it says"
            )
        (verdict,) = judgement.verdicts
        single = Capability.CLIENT_UPDATE in self.attack.requires
        view = "server_plain" if single else "global"
        ledger = folder.read_json(LEDGER)
        return scores | audit_metrics(verdict, parts, ledger, self.confidence, view)

    def _view(self, folder: RunFolder) -> tuple[Transcript | None, str]:
        """Returns what the server saw; none, with the reason, where nothing was kept."""
        try:
            return transcript.load(folder, rounds=self.rounds, clients=self.clients), ""
        except NoTranscript as reason:
            if self.rounds is not None or self.clients is not None:
                raise
            return None, str(reason)

    def _remedy(self, missing: Capability, view: Transcript | None, why: str) -> str:
        """Returns why a capability is not granted, and what would grant it."""
        if missing is Capability.CONFIDENCE:
            return f"access={self.access}, and grey_box would be needed"
        if missing is Capability.PUBLIC_MODEL:
            return f"public_start={self.public_start}, and true would be needed"
        if view is None:
            return why
        if missing is Capability.MODEL_SERIES:
            return f"{len(view.rounds)} round was observed, and a series takes two or more"
        if view.masked:
            return (
                "updates are masked; what can be attacked is the series of models (target=series)"
            )
        return "the transcript holds none"

    def _access(self, models: _Models, view: Transcript | None) -> Access:
        def asked(state: str) -> BlackBox:
            oracle = Oracle(models.build(state), private_folder("queries"))
            if self.access == "black_box":
                return BlackBox(oracle.replies)
            return GreyBox(oracle.replies, oracle.losses)

        return Access(asked(FINAL), asked(START) if self.public_start else None, view)

    def _suspects(
        self, pages: Pages, kept: Kept, parts: Mapping[str, TrainingMembership], models: _Models
    ) -> Suspects:
        return Suspects(
            documents=pages,
            # Whose membership is known is drawn from the truth: of a coin, nothing may be.
            trials=() if judges_canaries(self.attack) else tuple(self._trials(pages, parts)),
            build_model=lambda: models.build(None),
            start_model=(lambda: models.build(START)) if self.public_start else None,
            canaries=kept.canaries & pages.keys(),
            assumptions=tuple(self._in_words(pages)),
        )

    def _in_words(self, pages: Pages) -> Iterator[str]:
        coins = "which a coin decided to train on or not"
        own = coins if judges_canaries(self.attack) else "none of which was trained on"
        count = sum(map(len, pages.values()))
        yield (
            f"the adversary holds {count} documents of {len(pages)} providers with questions and "
            f"answers, {own}"
        )
        said = "comes with confidence and loss" if self.access == "grey_box" else "is all it says"
        yield f"the model's answer {said}"
        yield "the public model that training started from is " + (
            "known" if self.public_start else "not known"
        )

    def _trials(self, pages: Pages, parts: Mapping[str, TrainingMembership]) -> Iterator[Trial]:
        """Draws the known providers of every trial; none where too few providers are left."""
        for s in self.least_questions:
            there = [p for p, own in pages.items() if _questions(own) >= s + self.more_than]
            members = [p for p in there if parts[p].member]
            others = [p for p in there if not parts[p].member]
            each = max(1, round(self.known * len(there) / 2))
            if min(len(members), len(others)) <= each:
                continue
            for repeat in range(self.repeats):
                rng = generator(self.seed, "known providers", round=repeat, client=s)
                drawn = (rng.choice(group, each, False).tolist() for group in (members, others))
                known = {p: parts[p].member for group in drawn for p in group}
                yield Trial(s, repeat, known, tuple(p for p in there if p not in known))


@dataclass(frozen=True)
class _Models:
    """Builds the run's model, with its first or its last weights; knows no path to the run."""

    build_model: Callable[..., Any]
    states: Mapping[str, Mapping[str, Tensor]]

    def build(self, state: str | None) -> QuestionAnswerer:
        """Returns a model of its own, in evaluation mode; None leaves the weights as they are made.

        Raises:
            NotApplicable: if it answers no questions.
            ValueError: if the weights are of another model.
        """
        model = seeded_model(self.build_model, 0)
        if not isinstance(model, QuestionAnswerer):
            raise NotApplicable(
                f"{type(model).__name__} answers no questions: take model=vt5, model=donut, or "
                "model=layoutlmv3 with model.task=answers"
            )
        try:
            if state is not None:
                model.load_state_dict(self.states[state])
        except RuntimeError as error:
            raise ValueError(f"{state} is of another model: {error}") from error
        return model.eval()


def _state(folder: RunFolder, name: str) -> Mapping[str, Tensor]:
    state = folder.read_state(name)
    if state is None:
        raise ValueError(
            f"{folder.path} has no {name}: the run has not come to its end (fedpriv resume)"
        )
    return state


def judges_canaries(attack: ProviderAttack) -> bool:
    """Says whether an attack is an audit: of the canaries, and of nobody else."""
    return bool(getattr(attack, "judges_canaries", False))


def require_both_kinds(pages: Pages, parts: Mapping[str, TrainingMembership]) -> None:
    """Checks that there is somebody to tell apart.

    Raises:
        ValueError: if there is one provider only, or there are no members, or no non-members.
    """
    members = sum(parts[provider].member for provider in pages)
    if len(pages) < 2 or members in (0, len(pages)):
        raise ValueError(
            f"of {len(pages)} providers with questions {members} were trained on: to tell members "
            "from non-members takes at least one of each (data.test.unseen holds whole providers "
            "back, data.test.fraction documents of the others)"
        )


def _granted(access: Access) -> frozenset[Capability]:
    found = set(granted(access.view)) if access.view else set()
    found.add(Capability.ANSWERS)
    if isinstance(access.final, GreyBox):
        found.add(Capability.CONFIDENCE)
    if access.start is not None:
        found.add(Capability.PUBLIC_MODEL)
    return frozenset(found)


def _suspected(kept: Kept, *, canaries: bool) -> tuple[Pages, dict[str, int]]:
    """Returns the documents to ask about, and what is left out, counted by the reason."""
    of_kind = {p: own for p, own in kept.documents.items() if (p in kept.canaries) is canaries}
    if not of_kind:
        raise ValueError(
            "the run has no canaries: an audit takes data.canaries, as experiment pmia_audit has"
            if canaries
            else "the run keeps documents of canaries only: attack=audit judges them"
        )
    usable = {
        p: tuple(page for page in map(_answerable, own) if page) for p, own in of_kind.items()
    }
    every = [q for own in of_kind.values() for page in own for q in page.questions]
    return {provider: own for provider, own in usable.items() if own}, {
        "questions without an accepted answer": sum(not any(q.answers) for q in every),
        "providers without an answerable question": sum(not own for own in usable.values()),
    }


def _answerable(page: Document) -> Document | None:
    """Returns the document with those of its questions that have an answer; none without any."""
    questions = tuple(question for question in page.questions if any(question.answers))
    return dataclasses.replace(page, questions=questions) if questions else None


def _questions(pages: Sequence[Document]) -> int:
    return sum(len(page.questions) for page in pages)


def _settings() -> list[str]:
    here = (field.name for field in dataclasses.fields(ProviderAttackRun))
    return [name for name in here if name not in ("name", "threads")]
