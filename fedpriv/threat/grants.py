"""When a run grants what an attack asks for: one function for each type of `fedpriv.threat.access`.

A function takes the run and returns the surface, with the assumptions that go with it in words. It
raises `NotGranted` with the reason, and with what would grant it. A type of your own is granted by
a function under `@grants(YourType)`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import types
import typing
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from torch import Tensor, nn

from fedpriv.data.document import Document
from fedpriv.federation.membership_table import TrainingMembership
from fedpriv.models.field_model import as_field_model
from fedpriv.models.readers.subwords import Subwords
from fedpriv.runtime.cache import private_folder
from fedpriv.runtime.run_folder import FINAL, METRICS, START, RunFolder
from fedpriv.runtime.seeds import generator
from fedpriv.runtime.torch_state import seeded_model
from fedpriv.threat import transcript
from fedpriv.threat.access import (
    Architecture,
    BatchKnowledge,
    BlackBox,
    ColludingTranscript,
    FieldCandidates,
    GreyBox,
    HeldOutDocuments,
    Known,
    KnownMembershipSplit,
    MessageKey,
    ModelSeries,
    PlantedCanaries,
    PublicDocuments,
    PublicModel,
    Retrain,
    ScrubbedField,
    ScrubbedFields,
    TrainingDocuments,
    Transcript,
    WhiteBox,
)
from fedpriv.threat.attack import NotApplicable, NotGranted, answering
from fedpriv.threat.keep.held_out import Kept, NoCandidates, load_candidates
from fedpriv.threat.keep.scrubbed import KeptFields, NoFields, load_fields
from fedpriv.threat.knowledge import Assumed, load_known
from fedpriv.threat.queries import Oracle
from fedpriv.threat.retrain import Laboratory
from fedpriv.threat.settings import CRITERIA, AttackSettings
from fedpriv.threat.transcript import loaded
from fedpriv.threat.truth import TruthStore

ANOTHER = 0x5EED_0A2D
"""Seed of an adversary's own models: with a run's they would begin as the run's model did."""

T = TypeVar("T")
InWords = tuple[str, ...]
Documents = Mapping[str, tuple[Document, ...]]


@dataclass(frozen=True)
class Models:
    """Builds models of the run's architecture.

    Attributes:
        build_model: takes `labels` and `task`.
        labels: of the entities, for models that tag.
        device: where all of them lie.
    """

    build_model: Callable[..., nn.Module]
    labels: tuple[str, ...]
    device: str = "cpu"

    def new(self, *, seed: int = 0, **other: Any) -> nn.Module:
        """Returns a model with weights that say nothing, unless a checkpoint is loaded."""
        made = seeded_model(lambda: self.build_model(labels=self.labels, **other), seed)
        return made.to(self.device)

    def with_state(self, state: Mapping[str, Tensor]) -> nn.Module:
        """Returns a model with these weights, in evaluation mode.

        Raises:
            ValueError: if they are another model's.
        """
        model = self.new()
        try:
            model.load_state_dict(state)
        except RuntimeError as error:
            raise ValueError(f"the weights are of another model: {error}") from error
        return model.eval()


@dataclass(frozen=True)
class AttackedRun:
    """A run as the grants see it.

    Attributes:
        folder: of the run.
        build_model: returns a model of the run's architecture; takes `labels` and `task`.
        settings: of the attack.
        laboratory: rebuilds the run's experiment. None for a run that was started from Python.
        left_out: reason → how many documents, questions or providers are not granted for it.
    """

    folder: RunFolder
    build_model: Callable[..., nn.Module]
    settings: AttackSettings
    laboratory: Laboratory | None = None
    left_out: dict[str, int] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def view(self) -> ColludingTranscript:
        """What the server saw, and what colluding clients told it."""
        if not self.folder.has(transcript.PUBLIC):
            raise NotGranted(
                "the run kept nothing of what its server saw",
                "keep=transcript when the federation is run (it has no effect on the training)",
            )
        return transcript.load(
            self.folder, rounds=self.settings.rounds, clients=self.settings.clients
        )

    @functools.cached_property
    def candidates(self) -> Kept:
        """The documents that may be asked about."""
        try:
            # The pages are copied: no document may lead into the run, where the truth lies.
            return load_candidates(self.folder, private_folder("pages"))
        except NoCandidates as none:
            raise NotGranted(
                "the run keeps no documents to ask about",
                "keep=held_out when the federation is run (it has no effect on the training)",
            ) from none

    @functools.cached_property
    def kept_fields(self) -> KeptFields:
        """The scrubbed fields and the public documents."""
        try:
            return load_fields(self.folder, private_folder("pages"))
        except NoFields as none:
            raise NotGranted(
                "the run keeps no scrubbed fields",
                "keep=scrubbed and data.public=0.5 when the federation is run, with "
                "model=layoutlm, bros or bert",
            ) from none

    @functools.cached_property
    def labels(self) -> tuple[str, ...]:
        """Labels of the entities, which a tagging model is built with."""
        public = self.folder.read_json(transcript.PUBLIC)
        if public is not None:
            return tuple(public.get("labels", ()))
        try:
            return self.kept_fields.labels
        except NotGranted:
            return ()

    @property
    def models(self) -> Models:
        """Builds the run's models; an attack may hold it, since it knows no path."""
        return Models(self.build_model, self.labels, self.settings.on)

    def state(self, name: str) -> dict[str, Tensor]:
        """Returns the weights in one of the run's files.

        Raises:
            NotGranted: if the run has none.
        """
        state = self.folder.read_state(name)
        if state is None:
            raise NotGranted(
                f"{self.folder.path} has no {name}",
                "finishing the run (fedpriv resume RUN_DIR)"
                if name == FINAL
                else "keep=held_out or keep=scrubbed when the federation is run",
            )
        return state

    @functools.cached_property
    def final(self) -> Oracle:
        """The trained model, to be asked questions; the same for all that ask it."""
        return self.oracle(self.state(FINAL))

    def oracle(self, state: Mapping[str, Tensor]) -> Oracle:
        """Returns the run's model with these weights, to be asked questions.

        Raises:
            NotApplicable: if it answers none.
        """
        # Before the weights: of a model that tags, the run may not have kept the labels.
        answering(self.models.new())
        return Oracle(answering(self.models.with_state(state)), private_folder("queries"))


@dataclass(frozen=True)
class Grant:
    """How a type is granted, and the settings that this depends on."""

    make: Callable[[AttackedRun], tuple[Any, InWords]]
    reads: tuple[str, ...]


GRANTS: dict[type, Grant] = {}


def grants(
    kind: type[T], *, reads: tuple[str, ...] = ()
) -> Callable[
    [Callable[[AttackedRun], tuple[T, InWords]]], Callable[[AttackedRun], tuple[T, InWords]]
]:
    """Registers the function that grants a type.

    Args:
        kind: the type.
        reads: the settings of `AttackSettings` that the function reads.
    """

    def register(
        make: Callable[[AttackedRun], tuple[T, InWords]],
    ) -> Callable[[AttackedRun], tuple[T, InWords]]:
        GRANTS[kind] = Grant(make, reads)
        return make

    return register


def wanted(access: type) -> dict[str, tuple[type, bool]]:
    """Returns, for each field of an access dataclass, its type and whether it is optional.

    Raises:
        TypeError: if the access is no dataclass of types that can be granted.
    """
    if not dataclasses.is_dataclass(access):
        raise TypeError(
            f"{access!r} is no access: expected a dataclass whose fields have the types of "
            "fedpriv.threat.access"
        )
    found: dict[str, tuple[type, bool]] = {}
    hints = typing.get_type_hints(access)
    for field in dataclasses.fields(access):
        hint = hints[field.name]
        union = typing.get_origin(hint) in (typing.Union, types.UnionType)
        kinds = [k for k in (typing.get_args(hint) if union else (hint,)) if k is not type(None)]
        if len(kinds) != 1 or kinds[0] not in GRANTS:
            known = ", ".join(sorted(kind.__name__ for kind in GRANTS))
            raise TypeError(f"{access.__name__}.{field.name}: {hint} is none of {known}")
        found[field.name] = kinds[0], union
    return found


# --- What the server saw --------------------------------------------------------------------------


@grants(Architecture)
def architecture(run: AttackedRun) -> tuple[Architecture, InWords]:
    """Architecture and tokenizer are always public."""
    build = functools.partial(run.models.new, seed=ANOTHER)
    return Architecture(build), ("the architecture and the tokenizer are public",)


@grants(Transcript, reads=("rounds", "clients"))
def what_the_server_saw(run: AttackedRun) -> tuple[Transcript, InWords]:
    """The messages and models of the rounds that were kept."""
    return run.view.alone(), ()


@grants(ColludingTranscript, reads=("rounds", "clients"))
def what_the_server_was_told(run: AttackedRun) -> tuple[ColludingTranscript, InWords]:
    """The same, and the updates that colluding clients masked."""
    if not (run.view.masked and run.view.colluders):
        return run.view, ()
    named = ", ".join(map(str, sorted(run.view.colluders)))
    words = f"these clients collude with the server, which knows their updates: {named}"
    return run.view, (words,)


@grants(BatchKnowledge, reads=("rounds", "clients", "assume", "publisher"))
def batch_knowledge(run: AttackedRun) -> tuple[BatchKnowledge, InWords]:
    """What the assumptions grant of each message's batch, and of each round's aggregate."""
    assume = run.settings.assume
    of: dict[MessageKey, Known] = {}
    for seen in run.view.rounds:
        keys: list[MessageKey] = [(seen.round, upload.client) for upload in seen.uploads]
        found = {key: load_known(run.folder, key, assume) for key in keys}
        here = {key: known for key, known in found.items() if known is not None}
        of.update(here)
        # What is known of a sum is known of all that is in it.
        if here and {client for _, client in keys} >= set(seen.answered):
            of[seen.round, None] = _together(list(here.values()))
    words = assume.in_words(templates=any(known.template is not None for known in of.values()))
    if run.settings.publisher is None:
        return BatchKnowledge(of), words
    return BatchKnowledge(_published(run, of)), (
        *words,
        f"templates are published through {run.settings.publisher}, computed with the client's own "
        "text and this round's model, which favours the defence",
    )


def _published(run: AttackedRun, of: dict[MessageKey, Known]) -> dict[MessageKey, Known]:
    """Returns the knowledge with the templates as the publisher gives them out."""
    publisher, made = run.settings.publisher, dict(of)
    if publisher is None:
        return made
    for seen in run.view.rounds:
        model = loaded(run.models.new(), seen.parameters, run.view.frozen)
        for key in [key for key in made if key[0] == seen.round and key[1] is not None]:
            given, known = load_known(run.folder, key, Assumed(text="given")), made[key]
            if known.template is None or given is None or given.text is None:
                continue
            rng = generator(run.settings.seed, "published template", seen.round, key[1] or 0)
            template = publisher.publish(model, given.text, known.template, rng)
            made[key] = dataclasses.replace(known, template=template)
        if (seen.round, None) in made:
            single = [made[key] for key in made if key[0] == seen.round and key[1] is not None]
            made[seen.round, None] = _together(single)
    return made


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


# --- Models ---------------------------------------------------------------------------------------


@grants(BlackBox, reads=("access",))
def black_box(run: AttackedRun) -> tuple[BlackBox, InWords]:
    """The answers of the final model."""
    return BlackBox(run.final.replies), ("the model's answers can be asked for",)


@grants(GreyBox, reads=("access",))
def grey_box(run: AttackedRun) -> tuple[GreyBox, InWords]:
    """The final model's answers with confidence and loss."""
    _check_grey(run)
    return GreyBox(run.final.replies, run.final.losses), (
        "the model's answers come with confidence and loss",
    )


def _check_grey(run: AttackedRun) -> None:
    if run.settings.access != "grey_box":
        raise NotGranted(f"access={run.settings.access} gives answers alone", "access=grey_box")


@grants(PublicModel, reads=("public_start", "access"))
def public_model(run: AttackedRun) -> tuple[PublicModel, InWords]:
    """The model that training started from, if the adversary is taken to know it."""
    if not run.settings.public_start:
        raise NotGranted(
            "public_start=false: the model that training started from is not known",
            "public_start=true",
        )
    state = run.state(START)
    answers: BlackBox | None = None
    confidence: GreyBox | None = None
    with contextlib.suppress(NotApplicable):
        oracle = run.oracle(state)
        answers = BlackBox(oracle.replies)
        if run.settings.access == "grey_box":
            confidence = GreyBox(oracle.replies, oracle.losses)
    build = functools.partial(run.models.with_state, state)
    return PublicModel(state, answers, confidence, build), (
        "the public model that training started from is known",
    )


@grants(WhiteBox)
def final_model(run: AttackedRun) -> tuple[WhiteBox, InWords]:
    """The final model with its weights."""
    records = {record["round"]: record for record in run.folder.records(METRICS)}
    last = max(records, default=0)
    model = run.models.with_state(run.state(FINAL))
    box = WhiteBox("the end of the run", last, model, _measured(records.get(last)))
    return box, ("the adversary holds the model's weights",)


@grants(ModelSeries, reads=("target", "every"))
def model_series(run: AttackedRun) -> tuple[ModelSeries, InWords]:
    """The models that the setting `target` names."""
    models = tuple(functools.partial(_white_box, run, *target) for target in list(_targets(run)))
    return ModelSeries(models), ("the adversary holds the model's weights",)


def _white_box(
    run: AttackedRun, name: str, round: int, measured: Mapping[str, float], kept: bool
) -> WhiteBox:
    if kept:
        # A checkpoint holds what travels; the rest has not changed since the start.
        state = run.state(START) | dict(run.folder.checkpoint(round).model)
    else:
        state = run.state(FINAL if round else START)
    return WhiteBox(name, round, run.models.with_state(state), measured)


def _targets(run: AttackedRun) -> Iterator[tuple[str, int, Mapping[str, float], bool]]:
    """Yields name, round, measurements, and whether it is a checkpoint, of each model.

    Raises:
        NotGranted: if the run has not kept them.
    """
    target, every, folder = run.settings.target, run.settings.every, run.folder
    records = {record["round"]: record for record in folder.records(METRICS)}
    if target in ("final", "start"):
        round = max(records, default=0) if target == "final" else 0
        name = "the end of the run" if target == "final" else "before the training"
        run.state(FINAL if round else START)
        yield name, round, _measured(records.get(round)), False
        return
    kept = folder.rounds()
    if target == "series":
        rounds = [round for round in kept if round % every == 0 or round == max(kept)]
    elif isinstance(target, str):
        rounds = [_best(records, target)]
    else:
        rounds = [target]
    missing = [round for round in rounds if round not in kept]
    if missing or not rounds:
        raise NotGranted(
            f"target={target}: the model of round {missing[0]} was not kept, but those of rounds "
            f"{kept}"
            if missing
            else f"{folder.path} has kept no round's model: the run has not begun",
            "federation.keep_checkpoints=0, which keeps all, with federation.checkpoint_every=1",
        )
    for round in rounds:
        why = f", of the best validation {target}" if target in CRITERIA else ""
        yield f"round {round}{why}", round, _measured(records.get(round)), True


def _best(records: Mapping[int, Mapping[str, Any]], criterion: str) -> int:
    """Returns the round with the best validation score or loss; the first of equals.

    Raises:
        NotGranted: if nothing was measured.
    """
    name, sign = ("loss", -1) if criterion == "loss" else ("score", 1)
    values = {round: _measured(record).get(name, math.nan) for round, record in records.items()}
    there = {round: sign * value for round, value in values.items() if not math.isnan(value)}
    if not there:
        raise NotGranted(
            f"target={criterion}: the run has no validation {name}",
            "documents that are held back (data.test) and federation.evaluate_every=1",
        )
    return max(there, key=lambda round: there[round])


def _measured(record: Mapping[str, Any] | None) -> dict[str, float]:
    """Returns validation loss and score; the score is the F1 where there is one (CDMI, Table 2)."""
    record = record or {}
    found = {"loss": record.get("loss"), "score": record.get("f1", record.get("accuracy"))}
    return {name: float(value) for name, value in found.items() if value is not None}


# --- Documents ------------------------------------------------------------------------------------


@grants(HeldOutDocuments, reads=("known", "repeats", "min_questions", "strict"))
def held_out_documents(run: AttackedRun) -> tuple[HeldOutDocuments, InWords]:
    """Documents of members and non-members, none of which was trained on."""
    parts = TruthStore(run.folder).parts()
    documents = _answerable(run, canaries=False)
    require_both_kinds(documents, parts)
    words = f"{_counted(documents)}, none of which was trained on"
    return HeldOutDocuments(documents, tuple(_splits(run.settings, documents, parts))), (words,)


@grants(PlantedCanaries)
def planted_canaries(run: AttackedRun) -> tuple[PlantedCanaries, InWords]:
    """The documents of planted providers, in or out by a fair coin."""
    documents = _answerable(run, canaries=True)
    if (rate := run.candidates.canary_rate) != 0.5:
        raise NotGranted(
            f"each canary was trained on with probability {rate:g}, and what guesses show of ε is "
            "proven for fair coins only",
            "data.canary_rate=0.5 when the federation is run",
        )
    require_both_kinds(documents, TruthStore(run.folder).parts())
    words = f"{_counted(documents)}, which a coin decided to train on or not"
    return PlantedCanaries(documents), (words,)


def _answerable(run: AttackedRun, *, canaries: bool) -> Documents:
    """Returns the documents of canaries, or of all others, with those questions that have answers.

    Raises:
        NotGranted: if there are no such providers.
    """
    kept = run.candidates
    of_kind = {p: pages for p, pages in kept.documents.items() if (p in kept.canaries) is canaries}
    if not of_kind and canaries:
        raise NotGranted(
            "no canaries were planted, so there are no coins to guess",
            "data.canaries=20, or more, when the federation is run, as experiment pmia_audit has",
        )
    if not of_kind:
        raise NotGranted(
            "the run keeps documents of canaries only", "held-out documents of others (data.test)"
        )
    documents = answerable(of_kind)
    every, asked = (sum(map(questions, of.values())) for of in (of_kind, documents))
    run.left_out.update(
        {
            "questions without an accepted answer": every - asked,
            "providers without an answerable question": len(of_kind) - len(documents),
            "duplicate pages": kept.duplicates_dropped,
        }
    )
    return documents


def answerable(documents: Documents) -> Documents:
    """Returns the documents with those of their questions that have an accepted answer."""
    kept: dict[str, tuple[Document, ...]] = {}
    for provider, pages in documents.items():
        asked = [
            dataclasses.replace(page, questions=questions)
            for page in pages
            if (questions := tuple(q for q in page.questions if any(q.answers)))
        ]
        if asked:
            kept[provider] = tuple(asked)
    return kept


def require_both_kinds(documents: Documents, parts: Mapping[str, TrainingMembership]) -> None:
    """Checks that there is somebody to tell apart.

    Raises:
        NotGranted: if there is one provider only, or there are no members, or no non-members.
    """
    members = sum(parts[provider].member for provider in documents)
    if len(documents) < 2 or members in (0, len(documents)):
        raise NotGranted(
            f"members (trained on) are {members} of {len(documents)} providers with questions, and "
            "the attack needs at least one member and one non-member",
            "data.test.unseen, which holds whole providers back, and data.test.fraction, which "
            "holds back documents of the others",
        )


def _splits(
    settings: AttackSettings, documents: Documents, parts: Mapping[str, TrainingMembership]
) -> Iterator[KnownMembershipSplit]:
    """Draws the known providers of every split; none where too few providers are left."""
    for s in settings.min_questions:
        there = [p for p, pages in documents.items() if questions(pages) >= s + settings.strict]
        members = [p for p in there if parts[p].member]
        others = [p for p in there if not parts[p].member]
        each = max(1, round(settings.known * len(there) / 2))
        if min(len(members), len(others)) <= each:
            continue
        for repeat in range(settings.repeats):
            rng = generator(settings.seed, "known providers", round=repeat, client=s)
            drawn = (rng.choice(group, each, False).tolist() for group in (members, others))
            known = {p: parts[p].member for group in drawn for p in group}
            unknown = tuple(p for p in there if p not in known)
            yield KnownMembershipSplit(s, repeat, known, unknown)


def questions(pages: Sequence[Document]) -> int:
    """Returns how many questions are asked about documents."""
    return sum(len(page.questions) for page in pages)


def _counted(documents: Documents) -> str:
    count = sum(map(len, documents.values()))
    return (
        f"the adversary holds {count} document{'s' * (count != 1)} of {len(documents)} "
        f"provider{'s' * (len(documents) != 1)} with questions and answers"
    )


@grants(ScrubbedFields, reads=("most_fields", "controls"))
def scrubbed_fields(run: AttackedRun) -> tuple[ScrubbedFields, InWords]:
    """Documents of the training, and for control documents held out, with a field masked each."""
    kept, controls = run.kept_fields, run.settings.controls
    trained = _drawn(kept.fields, run, "attacked fields")
    most = len(trained) if controls is None else controls
    fields = (*trained, *_drawn(kept.held_out, run, "attacked fields, held out", most))
    surface = ScrubbedFields(fields, kept.examples, _subwords(run).text, kept.left_out)
    which = "trained on or held out (it does not know which),"
    return surface, (_scrubbed_in_words(fields, kept, which),)


@grants(FieldCandidates, reads=("most_fields", "candidates"))
def field_candidates(run: AttackedRun) -> tuple[FieldCandidates, InWords]:
    """Fields of training documents and of documents held out, with lists of possible values."""
    kept, settings, seed = run.kept_fields, run.settings.candidates, run.settings.seed
    subwords, left_out = _subwords(run), Counter(kept.left_out)
    texts = settings.texts(kept.public, generator(seed, "values of candidates"))
    pools: dict[tuple[str, int], dict[tuple[int, ...], None]] = defaultdict(dict)
    for key, values in texts.items():
        for value in values:
            tokens = tuple(subwords.tokens(value))
            pools[key, len(tokens)][tokens] = None
    truths, lists = TruthStore(run.folder).fields(), {}
    trained = _drawn(kept.fields, run, "attacked fields")
    for one in (*trained, *_drawn(kept.held_out, run, "attacked fields, held out")):
        pool, rng = (
            tuple(pools[one.key, len(one.places)]),
            generator(seed, "candidates", client=one.number),
        )
        candidates = settings.of(pool, truths[one.number].tokens, rng)
        if candidates is None:
            left_out[f"fewer than {settings.least} candidates of that key and length"] += 1
        else:
            lists[one.number] = candidates
    if not lists:
        raise NotGranted(
            f"no field has {settings.least} other candidates with its key and number of tokens",
            "candidates.documents, candidates.values or candidates.least=1",
        )
    fields = tuple(one for one in (*kept.fields, *kept.held_out) if one.number in lists)
    scrubbed = ScrubbedFields(fields, kept.examples, subwords.text, left_out)
    held = _scrubbed_in_words(fields, kept, "trained on or held out (it does not know which),")
    given = settings.game == "given"
    return FieldCandidates(scrubbed, lists, given), (held, settings.in_words())


def _drawn(
    fields: tuple[ScrubbedField, ...], run: AttackedRun, purpose: str, most: int | None = None
) -> tuple[ScrubbedField, ...]:
    """Returns as many of the fields as are to be attacked, in their order."""
    most = run.settings.most_fields if most is None else most
    if most is None or most >= len(fields):
        return fields
    chosen = generator(run.settings.seed, purpose).choice(len(fields), most, False)
    return tuple(fields[place] for place in sorted(chosen.tolist()))


def _subwords(run: AttackedRun) -> Subwords:
    """Returns the model's tokenizer.

    Raises:
        NotApplicable: if it tells no loss example by example.
    """
    try:
        return as_field_model(run.models.new()).reader.subwords
    except TypeError as error:
        raise NotApplicable(str(error)) from error


def _scrubbed_in_words(fields: Sequence[ScrubbedField], kept: KeptFields, which: str) -> str:
    documents = len({field.document for field in fields})
    what = "text, layout, labels" + (" and page" if kept.examples.shared else "")
    return (
        f"the adversary holds {what} of {documents} document{'s' * (documents != 1)}, {which} with "
        "one field masked at a time; it knows how many tokens that field has"
    )


@grants(PublicDocuments)
def public_documents(run: AttackedRun) -> tuple[PublicDocuments, InWords]:
    """Documents of the same kind that were not trained on, in full."""
    documents = run.kept_fields.public
    many = f"{len(documents)} other document{'s' * (len(documents) != 1)}"
    words = f"the adversary holds {many} of its own"
    return PublicDocuments(documents), (words,)


# --- Training again -------------------------------------------------------------------------------


def _laboratory(run: AttackedRun) -> Laboratory:
    if run.laboratory is None:
        raise NotGranted(
            "the run's experiment cannot be rebuilt: its folder does not say how it was composed",
            "a run that was started by `fedpriv run`",
        )
    return run.laboratory


@grants(TrainingDocuments)
def training_documents(run: AttackedRun) -> tuple[TrainingDocuments, InWords]:
    """The run's own data, read again."""
    laboratory = _laboratory(run)
    training, held_out = laboratory.documents()
    found = TrainingDocuments(
        training, held_out, laboratory.seed, laboratory.threads, run.settings.on
    )
    return found, ("an audit: what is asked for was chosen by the training documents",)


@grants(Retrain, reads=("retrain", "workers"))
def retrain(run: AttackedRun) -> tuple[Retrain, InWords]:
    """Trainings of variants, where they are allowed: they take as long as the run did, each."""
    if not run.settings.retrain:
        raise NotGranted(
            "retrain=false: no variant of the run is trained",
            "retrain=true, which trains several models",
        )
    return Retrain(_laboratory(run)), ("variants of the run's training can be trained",)
