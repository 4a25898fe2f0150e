"""Data sets bound to a model and dealt out to clients: documents, or plain arrays."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import nn

from fedpriv.data import promises, same_page
from fedpriv.data.document import DataErrors, Document, DocumentSet, DocumentSource, providers
from fedpriv.data.examples import PROVIDER, Examples, provider_number
from fedpriv.data.folder.progress import tell
from fedpriv.data.partition import (
    ByClient,
    ByProvider,
    Deal,
    HoldOut,
    Partition,
    by_provider,
    table,
)
from fedpriv.data.random_questions import with_random_questions
from fedpriv.data.reading import shown
from fedpriv.federation.membership_table import TrainingMembership
from fedpriv.federation.showcase import write_showcase
from fedpriv.models.base import DocumentModel, Tagger
from fedpriv.models.encoding_cache import encode_cached
from fedpriv.runtime.cache import cache_folder
from fedpriv.runtime.outside import OutputSetting
from fedpriv.runtime.refusals import Unfit
from fedpriv.runtime.run_folder import RunFolder
from fedpriv.runtime.seeds import generator
from fedpriv.runtime.torch_state import seeded_model

PLANTED = "canary "
"""What the names of planted providers begin with."""


@dataclass(frozen=True)
class FederatedDataset:
    """Data and model brought together.

    Attributes:
        build_model: returns a fresh model that fits the data.
        train: every training example.
        rows: for each client, its positions in `train`.
        test: held-out examples; None where nothing is held out.
        partition: the table of who holds what, for the run folder; None where there is none.
        showcase: writes files about one held-out page into the run folder, given the final model.
        test_groups: positions in `test` by the name of the group, each evaluated by itself too.
        documents: what the column `document` of `train` counts; empty where there are none.
        labels: of the entities, with which the model is built.
        suspects: documents that may be asked about: held out by a rule that does not look at who
            is a member, or of canaries.
        find_parts: returns each provider's part in the training; see `parts`.
        public: documents that are neither trained on nor held out: the adversary's own.
        canary_rate: the probability with which each canary was trained on.
        held_out: what the column `document` of `test` counts; empty where there are none.
        first: the model as it is built for the run's seed, if it was built to read the documents.
    """

    build_model: Callable[[], nn.Module]
    train: Examples
    rows: tuple[NDArray[np.int64], ...]
    test: Examples | None = None
    partition: Mapping[str, Any] | None = None
    showcase: Callable[[nn.Module, RunFolder], None] | None = None
    test_groups: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
    documents: tuple[Document, ...] = ()
    labels: tuple[str, ...] = ()
    suspects: tuple[Document, ...] = ()
    find_parts: Callable[[], Mapping[str, TrainingMembership]] = dict
    public: tuple[Document, ...] = ()
    canary_rate: float = 0.5
    held_out: tuple[Document, ...] = ()
    first: nn.Module | None = field(default=None, repr=False, compare=False)

    @functools.cached_property
    def parts(self) -> Mapping[str, TrainingMembership]:
        """Each provider's part in the training; reads every document that is trained on."""
        return self.find_parts()


class UnfitData(Unfit):
    """The documents cannot be used as the settings say."""

    def __init__(self, error: ValueError | str) -> None:
        several = error if isinstance(error, DataErrors) else None
        self.problems = [str(one) for one in several.errors] if several else [str(error)]
        self.hint = several.hint if several else ""
        super().__init__(str(error))


class Augmentation(Protocol):
    """Makes further training documents, such as `fedpriv.data.augmentation.ExtractionBlocking`."""

    def __call__(self, documents: Sequence[Document]) -> list[Document]:
        """Returns the documents that are trained on beside these, which are one client's.

        Each says in `Document.part_of` which of these it is made of (its `whole`): privacy for a
        document counts all that is made of it.
        """


class Data(Protocol):
    """Knows its examples and whose they are; two kinds are below."""

    def bind(self, build_model: Callable[..., nn.Module], seed: int) -> FederatedDataset:
        """Encodes the data for the model and deals it out."""


@dataclass(frozen=True)
class ClientSplit:
    """Documents and whose they are; all numbers are positions in `documents`.

    Attributes:
        loaded: what the source holds.
        documents: these and the canaries.
        planted: the canaries' documents.
        whole: who would hold what if nobody were left out.
        deal: who holds what.
        held: held out.
        public: neither trained on nor held out.
    """

    loaded: DocumentSet
    documents: tuple[Document, ...]
    planted: tuple[Document, ...]
    whole: Deal
    deal: Deal
    held: list[int]
    public: list[int]

    @property
    def trained(self) -> list[int]:
        """The documents that are trained on, client by client."""
        return [i for hand in self.deal for i in hand]

    def of(self, places: Iterable[int]) -> tuple[Document, ...]:
        """Returns the documents at these places."""
        return tuple(self.documents[i] for i in places)

    def parts(self) -> dict[str, TrainingMembership]:
        """Returns each provider's part in the training."""
        holders: dict[str, set[int]] = {document.provider: set() for document in self.documents}
        for client, hand in enumerate(self.whole):
            for provider in by_provider(self.documents, hand):
                holders[provider].add(client)
        trained = by_provider(self.documents, self.trained)
        canaries = {page.provider for page in self.planted}
        return {
            provider: TrainingMembership(
                documents=len(trained.get(provider, ())),
                client=next(iter(clients)) if len(clients) == 1 else None,
                canary=provider in canaries,
                answers=_answers(self.of(trained.get(provider, ()))),
            )
            for provider, clients in holders.items()
        }


@dataclass(frozen=True)
class DocumentData:
    """Documents from a reader, some held out, the others dealt out to clients.

    Args:
        source: the reader or generator that provides the documents.
        partition: the rule by which the training documents are dealt out to clients.
        test: the rule by which documents are held out for evaluation.
        cache: the folder in which encoded pages are kept for later runs. None takes the default
            folder (`fedpriv.models.encoding_cache`), and "off" keeps none.
        pooled: whether one client holds all documents that the partition would deal out. This is
            centralised training, the upper bound that federated training is compared with.
        canaries: a source of further providers, which an audit plants beside the others. For each
            of them, a coin drawn from the seed of the run decides whether its documents are trained
            on. None plants nobody.
        leave_out: the names of providers whose documents are not trained on, for a comparison with
            the model that has never seen them.
        public: the share of the documents that an adversary has, in [0, 1). They are drawn at
            random from the documents that are not held out, and nobody trains on them (CDMI, §5.1
            takes half).
        canary_rate: the probability with which a canary is trained on, in (0, 1]; 1 trains on all
            of them.
        unasked: the names of training questions that are not trained on, as
            `Document.question_names` gives them. A document without any question left is not
            trained on.
        random_questions: whether training documents have random questions in the place of their
            own; see `fedpriv.data.random_questions`.
        augmentation: a function that makes further training documents from those of each client.
            None makes no further documents.

    Which client a canary or a provider left out belongs to is decided before: what others hold does
    not depend on it, as the definition of privacy at provider level has it.
    """

    source: DocumentSource
    partition: Partition
    test: HoldOut = HoldOut()  # noqa: RUF009 - frozen
    cache: OutputSetting | Literal["off"] | None = None
    pooled: bool = False
    canaries: DocumentSource | None = None
    leave_out: tuple[str, ...] = ()
    public: float = 0.0
    canary_rate: float = 0.5
    unasked: tuple[str, ...] = ()
    random_questions: bool = False
    augmentation: Augmentation | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.public < 1:
            raise ValueError(f"public={self.public}: expected a share in [0, 1)")
        if not 0 < self.canary_rate <= 1:
            raise ValueError(f"canary_rate={self.canary_rate}: expected a value in (0, 1]")
        client = getattr(self.source, "client", None)
        if client is not None and not (self.pooled or isinstance(self.partition, ByClient)):
            raise ValueError(
                f"source.client={client!r} names the clients, and {self.partition!r} would not "
                "look at it: set data.partition._target_=fedpriv.data.partition.ByClient "
                "data.partition.clients=null, or data.source.client=null"
            )
        providers = getattr(self.source, "providers", None)
        if isinstance(providers, int) and providers > 0:  # generated: known before it is read
            self._check_providers(providers)

    def _check_providers(self, count: int) -> None:
        """Checks that so many providers are enough to hold some out and give each client one.

        Raises:
            ValueError: if they are not.
        """
        left = count - self.test.unseen_of(count)
        if self.test.by == "provider":
            left -= round(self.test.fraction * count)
        if isinstance(self.partition, ByProvider) and not (self.pooled or self.canaries):
            self.partition.check_providers(left)

    def bind(self, build_model: Callable[..., nn.Module], seed: int) -> FederatedDataset:
        """Reads, deals and encodes; the model is built with `labels=` the data set's labels.

        Raises:
            UnfitData: if documents cannot be read, or are too few for the settings.
        """
        try:
            return self._bound(build_model, seed)
        except ValueError as error:
            raise UnfitData(error) from error

    def _bound(self, build_model: Callable[..., nn.Module], seed: int) -> FederatedDataset:
        dealt = self._asked(self.dealt(seed), seed)
        loaded = dealt.loaded
        groups = self.test.groups(dealt.documents, dealt.trained, dealt.held)
        if twice := same_page.warning(dealt.documents, dealt.trained, dealt.held):
            tell(twice)
        documents, deal = self._augmented(dealt)
        build = functools.partial(build_model, labels=loaded.labels)
        model = seeded_model(build, seed)
        if not isinstance(model, DocumentModel):
            raise TypeError(f"{type(model).__name__} cannot encode documents")
        if isinstance(model, Tagger) and not loaded.labels:
            raise ValueError(
                f"{loaded.name} has no entities to tag, only questions: take a model that answers "
                "(model=vt5, model=donut, model.task=answers)"
            )
        rows, examples = self._encode(model, documents, deal)
        if isinstance(model, Tagger):
            _check_tagged(loaded.name, examples)
        test = dealt.of(dealt.held)
        encoded = encode_cached(model, test, self._folder()) if test else None
        test_groups: dict[str, NDArray[np.int64]] = {}
        if encoded:
            places = {document: place for place, document in enumerate(dealt.held)}
            for name, group in groups.items():
                chosen = np.isin(encoded.column("document"), [places[i] for i in group])
                test_groups[name] = np.flatnonzero(chosen)
        method = "pooled: one client holds all" if self.pooled else repr(self.partition)
        named = {name: list(by_provider(documents, group)) for name, group in groups.items()}
        told = {"skipped": [str(error) for error in loaded.skipped], "test_groups": named}
        if dealt.public:
            told["public"] = [page.id for page in dealt.of(dealt.public)]
        return FederatedDataset(
            build_model=build,
            train=examples,
            rows=rows,
            test=encoded,
            partition=table(method, documents, deal, dealt.held) | told,
            showcase=functools.partial(write_showcase, test[0]) if test else None,
            test_groups=test_groups,
            documents=tuple(documents[i] for hand in deal for i in hand),
            labels=loaded.labels,
            suspects=dealt.of(self.test.asked(loaded.documents, seed)) + dealt.planted,
            find_parts=dealt.parts,
            public=dealt.of(dealt.public),
            canary_rate=self.canary_rate,
            held_out=test,
            first=model,
        )

    def dealt(self, seed: int) -> ClientSplit:
        """Reads the documents and deals them out; nothing is encoded.

        Raises:
            ValueError: if there is not enough for everybody, or one to be left out is not there.
        """
        loaded = promises.load(self.source)
        train, held = self.test.split(loaded.documents, seed)
        train, public = self._without_public(train, seed)
        found = promises.load(self.canaries).documents if self.canaries else ()
        planted = tuple(  # under names that nobody else has
            replace(
                page,
                id=f"canary-{page.id}",
                provider=f"{PLANTED}{page.provider}",
                part_of=page.part_of and f"canary-{page.part_of}",
            )
            for page in found
        )
        documents = (*loaded.documents, *planted)
        train += range(len(loaded.documents), len(documents))
        whole: Deal = (tuple(train),)
        if not self.pooled:
            if isinstance(self.partition, ByClient):
                _tell_emptied(loaded.documents, (documents[i] for i in train))
            hands = self.partition.deal([documents[i] for i in train], seed)
            whole = tuple(tuple(train[i] for i in hand) for hand in hands)
        canaries = providers(planted)
        own = {document.provider for document in documents}.difference(canaries)
        if unknown := sorted(set(self.leave_out) - own):
            raise ValueError(f"leave_out: the data has no provider {unknown[0]!r}")
        coins = generator(seed, "canary coins").random(len(canaries)) < self.canary_rate
        tails = {name for name, heads in zip(canaries, coins, strict=True) if not heads}
        out = {*self.leave_out, *tails}
        deal = tuple(tuple(i for i in hand if documents[i].provider not in out) for hand in whole)
        _check_all_hold(deal, "providers")
        return ClientSplit(loaded, documents, planted, whole, deal, held, public)

    def _asked(self, dealt: ClientSplit, seed: int) -> ClientSplit:
        """Returns the same with the questions that are trained on.

        Raises:
            ValueError: if one to be left out is not there, or a client is left without any.
        """
        if not (self.unasked or self.random_questions):
            return dealt
        names = {name for page in dealt.of(dealt.trained) for name in page.question_names()}
        if unknown := sorted(set(self.unasked) - names):
            raise ValueError(f"unasked: no training document has a question {unknown[0]!r}")
        gone = set(self.unasked)
        documents = list(dealt.documents)
        for i in dealt.trained:
            page = documents[i]
            named = zip(page.question_names(), page.questions, strict=True)
            page = replace(page, questions=tuple(one for name, one in named if name not in gone))
            if self.random_questions:
                purpose = f"random questions about {page.id}"
                page = with_random_questions(page, generator(seed, purpose))
            documents[i] = page
        deal = tuple(tuple(i for i in hand if documents[i].questions) for hand in dealt.deal)
        _check_all_hold(deal, "questions")
        return replace(dealt, documents=tuple(documents), deal=deal)

    def _augmented(self, dealt: ClientSplit) -> tuple[tuple[Document, ...], Deal]:
        """Returns the documents with those that the augmentation makes, and the hands."""
        if self.augmentation is None:
            return dealt.documents, dealt.deal
        everything, hands = list(dealt.documents), []
        for hand in dealt.deal:
            own = dealt.of(hand)
            made = self.augmentation(own)
            wholes = {page.whole for page in own}
            if strange := [page.id for page in made if page.whole not in wholes]:
                raise ValueError(
                    f"data.augmentation: {strange[0]!r} does not say of which of the client's "
                    "documents it is made; set its part_of to the `whole` of that document"
                )
            hands.append((*hand, *range(len(everything), len(everything) + len(made))))
            everything += made
        return tuple(everything), tuple(hands)

    def _without_public(self, train: list[int], seed: int) -> tuple[list[int], list[int]]:
        """Splits what is not held out into what is trained on and what is the adversary's.

        Raises:
            ValueError: if either is nothing.
        """
        size = round(self.public * len(train))
        if self.public and size in (0, len(train)):
            raise ValueError(
                f"public={self.public} of {len(train)} documents is {size}: leave at least one "
                "on either side"
            )
        chosen = generator(seed, "public documents").choice(len(train), size, replace=False)
        drawn = {train[i] for i in chosen.tolist()}
        return [i for i in train if i not in drawn], sorted(drawn)

    def _folder(self) -> Path | None:
        if self.cache == "off":
            return None
        return Path(self.cache) if self.cache is not None else cache_folder() / "examples"

    def _encode(
        self, model: DocumentModel, documents: tuple[Document, ...], deal: Deal
    ) -> tuple[tuple[NDArray[np.int64], ...], Examples]:
        """Encodes all training documents once, client by client; returns each one's rows."""
        order = [position for hand in deal for position in hand]
        examples = encode_cached(model, [documents[i] for i in order], self._folder())
        owner_of = np.array([provider_number(documents[i].provider) for i in order])
        examples = examples.with_column(PROVIDER, owner_of[examples.column("document")])
        # A document may give several rows (windows); `document` counts the documents encoded.
        ends = np.cumsum([len(hand) for hand in deal])
        owner = np.searchsorted(ends, examples.column("document"), side="right")
        by_client = np.argsort(owner, kind="stable")
        first_rows = np.searchsorted(owner[by_client], np.arange(1, len(deal)))
        return tuple(np.split(by_client, first_rows)), examples


@dataclass(frozen=True)
class OfOneParty:
    """What one party of a deployment has: its own documents, and nobody else's.

    Args:
        documents: where they are; all of them are this party's, and nothing is held out.
        clients: how many clients there are.
        client: the number of the client that trains on them; None at the server, which tests the
            model on them.
    """

    documents: DocumentData
    clients: int
    client: int | None = None

    def bind(self, build_model: Callable[..., nn.Module], seed: int) -> FederatedDataset:
        """Encodes the documents; all other parties have none here."""
        alone = replace(self.documents, pooled=True, test=HoldOut(fraction=0.0))
        bound, nothing = alone.bind(build_model, seed), np.empty(0, np.int64)
        if self.client is not None:
            own = (bound.rows[0] if k == self.client else nothing for k in range(self.clients))
            return replace(bound, rows=tuple(own))
        return FederatedDataset(
            build_model=bound.build_model,
            train=bound.train.take(nothing),
            rows=(nothing,) * self.clients,
            test=bound.train,
            showcase=functools.partial(write_showcase, bound.documents[0]),
            labels=bound.labels,
            held_out=bound.documents,
        )


def _tell_emptied(everything: Iterable[Document], left: Iterable[Document]) -> None:
    """Names the clients that have documents, and none of them left.

    Who is held out is drawn from all providers alike. A draw that spared the last provider of a
    client would make it a member for certain, and the others no fair sample to compare it with.
    """
    for name in sorted({page.client for page in everything} - {page.client for page in left}):
        tell(
            f"the client {shown(name)} takes no part: all of its documents are held out or public. "
            "Another seed, or less of data.test.unseen, data.test.fraction or data.public, leaves "
            "it some"
        )


def _check_all_hold(deal: Deal, what: str) -> None:
    if not all(deal):
        empty = [client for client, hand in enumerate(deal) if not hand]
        raise ValueError(
            f"clients {empty} hold only {what} that are not trained on: take fewer clients, "
            f"or more {what}"
        )


def _check_tagged(name: str, examples: Examples) -> None:
    """Checks that there is something to tag, in the columns of fedpriv's own taggers.

    Raises:
        ValueError: if no document has a word, or none an entity.
    """
    if "labels" not in examples.columns:
        return
    tags = examples.column("labels")
    for what, least in (("a word", 0), ("an entity", 1)):  # 0 is the tag of what is no entity
        if not any((tags[at : at + 256] >= least).any() for at in range(0, len(tags), 256)):
            raise ValueError(
                f"none of the training documents of {name} has {what}, so that a tagger learns "
                "nothing from them: see `fedpriv data check`"
            )


def _answers(documents: Iterable[Document]) -> dict[str, tuple[str, ...]]:
    """Returns the accepted answers to the documents' questions, by key, each once."""
    found: dict[str, dict[str, None]] = {}
    for document in documents:
        for question in document.questions:
            found.setdefault(question.key, {}).update(dict.fromkeys(question.answers))
    return {key: tuple(answers) for key, answers in found.items()}


@dataclass(frozen=True)
class ArrayData:
    """Arrays already in memory, for models that are not of documents.

    Args:
        train: columns of equal length.
        rows: for each client, its rows of `train`.
        test: held-out columns.
    """

    train: Mapping[str, NDArray[Any]]
    rows: tuple[NDArray[np.int64], ...]
    test: Mapping[str, NDArray[Any]] | None = None

    def bind(self, build_model: Callable[..., nn.Module], seed: int) -> FederatedDataset:
        """Returns the arrays as they are."""
        test = Examples.of(self.test) if self.test is not None else None
        return FederatedDataset(build_model, Examples.of(self.train), self.rows, test)
