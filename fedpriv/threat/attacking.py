"""An attack on a run folder: what was seen and may be known goes in, scored findings come out.

In this order: the attack gets the transcript and the knowledge, both in memory, and hands back its
findings; only then is the truth opened, by the scoring. What the federation does not grant is
recorded, not run.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from fedpriv.metrics.ocr import OCR
from fedpriv.models.readers.subwords import Subwords
from fedpriv.runtime.cache import private_folder
from fedpriv.runtime.run_folder import RunFolder, check_name
from fedpriv.runtime.seeds import entropy, generator
from fedpriv.runtime.torch_state import reproducible_torch, seeded_model
from fedpriv.threat import transcript
from fedpriv.threat.access import Known, MessageKey
from fedpriv.threat.attack import (
    Capability,
    Findings,
    Knowledge,
    MessageAttack,
    NotApplicable,
    Workbench,
    granted,
)
from fedpriv.threat.findings import settings_of, write_findings
from fedpriv.threat.knowledge import Assumed, load_known
from fedpriv.threat.scoring.pages import score, summary
from fedpriv.threat.transcript import Transcript, loaded
from fedpriv.threat.truth import Truth, TruthStore


class Publisher(Protocol):
    """Makes the templates that are published, and with them what an adversary knows."""

    def publish(
        self,
        model: torch.nn.Module,
        columns: Mapping[str, NDArray[Any]],
        template: NDArray[np.uint8],
        rng: np.random.Generator,
    ) -> NDArray[np.uint8]:
        """Returns the templates to publish, (B, 3, H, W), in place of the blank pages.

        Args:
            model: with the parameters of the round.
            columns: the model's batch without `pixels`, of the documents behind the message.
            template: blank pages, (B, 3, H, W).
            rng: the only source of randomness.
        """
        ...


@dataclass(frozen=True)
class AttackRun:
    """One attack on the transcript of a run.

    Args:
        attack: which.
        name: of the folder under `findings`.
        rounds: which to attack; none for all that were observed.
        clients: whose messages; none for all that were kept.
        assume: what the adversary knows beside what it saw.
        publisher: a defence of whoever publishes the templates; none publishes them clean.
        ocr: reads what was reconstructed; none leaves the scores of reading out.
        originals: may the original pages be shown in findings and report?
        seed: of everything random in the attack.
        threads: of torch.
    """

    attack: MessageAttack
    name: str
    rounds: tuple[int, ...] | None = None
    clients: tuple[int, ...] | None = None
    assume: Assumed = Assumed()  # noqa: RUF009 - frozen
    publisher: Publisher | None = None
    ocr: OCR | None = None
    originals: bool = False
    seed: int = 0
    threads: int = 1

    def __post_init__(self) -> None:
        check_name(self.name)
        for which in ("rounds", "clients"):
            if getattr(self, which) == ():
                raise ValueError(f"{which}=[]: name at least one; null takes all that were kept")

    def on(
        self,
        run_dir: Path | str,
        build_model: Callable[..., torch.nn.Module],
        tell: Callable[[str], None] = lambda line: None,
    ) -> dict[str, Any]:
        """Attacks a run; writes `findings/<name>/` and returns its metrics.

        Args:
            run_dir: of a run with an observer.
            build_model: the architecture, as the federation was given it.
            tell: shows one line of progress.

        Raises:
            NotARunFolder: if it is none.
            InUse: if an attack of this name is being made on it.
            Damaged: if a file of the run cannot be used; it is named.
            NoTranscript: if nothing, or not this, was observed.
            ValueError: if the transcript is of another model.
        """
        folder = RunFolder.existing(run_dir)
        with folder.writing("attack", settings_of(self), self.name):
            view = transcript.load(folder, rounds=self.rounds, clients=self.clients)
            missing = self.attack.requires - granted(view)
            if missing:
                return self._not_applicable(folder, _refusal(missing, view))
            build = functools.partial(build_model, labels=view.settings.get("labels", ()))
            with reproducible_torch(self.threads, "cpu"):
                knowledge = self._knowledge(folder, view, lambda: seeded_model(build, 0))
                try:
                    findings, seconds = self._run(view, knowledge, tell)
                except NotApplicable as reason:
                    return self._not_applicable(folder, str(reason))
            return self._scored(folder, findings, knowledge, seconds)

    def _run(
        self, view: Transcript, knowledge: Knowledge, tell: Callable[[str], None]
    ) -> tuple[Findings, float]:
        # The same for every attack, so that in a table all start alike; and able to spawn others.
        rng = np.random.default_rng(entropy(self.seed, "attack"))
        # What is in the folder is as private as the pages.
        bench = Workbench(rng, tell, private_folder("attacks"))
        began = time.process_time()
        findings = self.attack.run(view, knowledge, bench)
        return findings, time.process_time() - began

    def _knowledge(
        self, folder: RunFolder, view: Transcript, build: Callable[[], torch.nn.Module]
    ) -> Knowledge:
        """Returns what the assumptions grant, of each message and of each round's aggregate."""
        of: dict[MessageKey, Known] = {}
        for seen in view.rounds:
            keys: list[MessageKey] = [(seen.round, u.client) for u in seen.uploads]
            found = {key: load_known(folder, key, self.assume) for key in keys}
            own = {key: known for key, known in found.items() if known is not None}
            of.update(own)
            # What is known of a sum is known of all that is in it.
            if own and {client for _, client in keys} >= set(seen.answered):
                of[seen.round, None] = _together(list(own.values()))
        there = any(known.template is not None for known in of.values())
        words = self.assume.in_words(templates=there)
        knowledge = Knowledge(build, of, words)
        return self._published(folder, view, knowledge) if self.publisher else knowledge

    def _published(self, folder: RunFolder, view: Transcript, knowledge: Knowledge) -> Knowledge:
        """Returns the knowledge with the templates as the publisher gives them out."""
        publisher, of = self.publisher, dict(knowledge.of)
        if publisher is None:
            return knowledge
        for seen in view.rounds:
            model = loaded(knowledge.build_model(), seen.parameters, view.frozen)
            for key in [key for key in of if key[0] == seen.round and key[1] is not None]:
                own = load_known(folder, key, Assumed(text="given"))
                known = of[key]
                if known.template is None or own is None or own.text is None:
                    continue
                rng = generator(self.seed, "published template", seen.round, key[1] or 0)
                published = publisher.publish(model, own.text, known.template, rng)
                of[key] = dataclasses.replace(known, template=published)
            kept = [of[key] for key in of if key[0] == seen.round and key[1] is not None]
            if (seen.round, None) in of:
                of[seen.round, None] = _together(kept)
        words = (
            f"templates are published through {publisher}, computed with the client's own text and "
            "this round's model, which favours the defence"
        )
        return dataclasses.replace(knowledge, of=of, assumptions=(*knowledge.assumptions, words))

    def _not_applicable(self, folder: RunFolder, reason: str) -> dict[str, Any]:
        metrics = {"status": "not_applicable", "reason": reason}
        write_findings(folder, self.name, metrics, Findings(()), {}, {}, originals=False)
        return metrics

    def _scored(
        self, folder: RunFolder, findings: Findings, knowledge: Knowledge, seconds: float
    ) -> dict[str, Any]:
        """Writes what was found, opens the truth, and scores it."""
        templates = {key: known.template for key, known in knowledge.of.items()}
        unscored = {"status": "not scored"}  # stands where scoring fails
        write_findings(folder, self.name, unscored, findings, templates, {}, originals=False)
        store = TruthStore(folder)
        truths = {r.message: _truth(store, r.message, knowledge) for r in findings.recovered}
        # The tokenizer comes with a model, which may be large: only where there is text to score.
        read = any(r.text is not None for r in findings.recovered)
        subwords = _subwords(knowledge) if read else None
        pieces = subwords.pieces if subwords else None
        scores = {
            r.message: score(r, truth, templates.get(r.message), self.ocr, pieces)
            for r in findings.recovered
            if (truth := truths[r.message]) is not None
        }
        metrics = {
            "status": _status(findings, len(scores)),
            **summary(list(scores.values())),
            "evaluations": sum(r.evaluations for r in findings.recovered),
            # What was taken up from an earlier run counts as if it had been computed now.
            "seconds": sum(r.seconds for r in findings.recovered) or seconds,
            "messages": len(findings.recovered),
            "refused": len(findings.refused),
            "assumptions": list(knowledge.assumptions),
            "notes": list(
                dict.fromkeys(
                    [
                        *findings.notes,
                        *(f"refused: {reason}" for reason in findings.refused),
                        *(note for r in findings.recovered for note in r.notes),
                    ]
                )
            ),
            "settings": {
                name: repr(getattr(self, name))
                for name in ("attack", "assume", "publisher", "rounds", "clients", "seed")
            },
        }
        write_findings(
            folder,
            self.name,
            {**metrics, "by_message": [_of_message(k, s) for k, s in scores.items()]},
            findings,
            templates,
            {key: truth for key, truth in truths.items() if truth is not None},
            originals=self.originals,
        )
        return metrics


def _truth(store: TruthStore, key: MessageKey, knowledge: Knowledge) -> Truth | None:
    """Returns the truth behind a message; of an aggregate, that of all messages in it."""
    round, client = key
    if client is not None:
        return store.of(key)
    keys = [k for k in knowledge.of if k[0] == round and k[1] is not None]
    parts = [truth for k in keys if (truth := store.of(k)) is not None]
    if len(parts) < len(keys) or not parts:
        return None
    pixels = [p.pixels for p in parts if p.pixels is not None]
    return Truth(
        tuple(d for p in parts for d in p.documents),
        {name: np.concatenate([p.columns[name] for p in parts]) for name in parts[0].columns},
        np.concatenate(pixels) if pixels else None,
        tuple(f for p in parts for f in p.fields),
        tuple(q for p in parts for q in p.questions),
        tuple(a for p in parts for a in p.answers),
    )


def _subwords(knowledge: Knowledge) -> Subwords | None:
    """Returns the tokenizer of the model, where it has one."""
    found = getattr(getattr(knowledge.build_model(), "reader", None), "subwords", None)
    return found if isinstance(found, Subwords) else None


def _together(knowns: Sequence[Known]) -> Known:
    """Returns what is known of several messages whose sum was seen, as of one large batch."""
    template = [k.template for k in knowns if k.template is not None]
    private = [k.private for k in knowns if k.private is not None]
    texts = [k.text for k in knowns if k.text is not None]
    whole = len(template) == len(knowns)
    return Known(
        sum(k.size for k in knowns),
        np.concatenate(template) if whole else None,
        np.concatenate(private) if whole else None,
        {name: np.concatenate([t[name] for t in texts]) for name in texts[0]}
        if len(texts) == len(knowns)
        else None,
    )


def _refusal(missing: frozenset[Capability], view: Transcript) -> str:
    wanted = ", ".join(sorted(capability.value for capability in missing))
    why = "updates are masked" if view.masked else "the transcript holds none"
    return f"the attack requires {wanted}, which this federation does not grant: {why}"


def _status(findings: Findings, scored: int) -> str:
    if not findings.recovered:
        return "nothing was recovered"
    return "done" if scored else "not scored: the simulation kept no truth"


def _of_message(key: MessageKey, scores: Mapping[str, Any]) -> dict[str, Any]:
    return {"round": key[0], "client": key[1], **scores}
