"""Fields of a run's documents, masked, for attacks that reconstruct them.

`fields/` in a run folder holds each field's window of tokens with the field masked, in text and
image (SCRUB of CDMI, §3.2), and the public documents in full. The fields are those of the documents
that were trained on, and for control those of the documents held out, which nobody trained on. The
text of the fields is in the truth store.

One field is masked at a time, and the document's other fields stay in its window. So an adversary
with all windows could read a field in another window. The paper defines the game so: an attack must
look only at the field's own window.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from fedpriv.data.document import Document, Entity
from fedpriv.data.documents_on_disk import keep_documents, kept_documents
from fedpriv.data.examples import PROVIDER, Examples
from fedpriv.data.redaction.painting import lines_of_entity, redact, white
from fedpriv.federation.dataset import FederatedDataset
from fedpriv.models.field_model import FieldModel, as_field_model
from fedpriv.models.question_answering import DOCUMENT
from fedpriv.models.readers.reader import Reader, square_pages, words_of_tokens
from fedpriv.runtime.cache import private_folder
from fedpriv.runtime.run_folder import PARTITION, START, RunFolder
from fedpriv.runtime.seeds import generator
from fedpriv.runtime.tensors import read_tensors, save_tensors
from fedpriv.runtime.torch_state import seeded_model
from fedpriv.runtime.vectors import as_tensor
from fedpriv.threat.attack import NotApplicable, NotGranted
from fedpriv.threat.candidates import Candidates
from fedpriv.threat.settings import AttackSettings, at_least
from fedpriv.threat.surfaces.base import WINDOWS, AttackedRun, InWords, Surface, blank
from fedpriv.threat.truth import TrueField, TruthStore, save_fields

if TYPE_CHECKING:  # so that attacks need no Flower
    from fedpriv.federation.keep import Prepared

FIELDS = "fields"
PUBLIC = f"{FIELDS}/public.json"
PAGES = f"{FIELDS}/pages"

CUT = "cut by the end of a window"


@dataclass(frozen=True)
class KeepScrubbed:
    """Keeps the fields of training and held-out documents, scrubbed, and the public documents.

    Args:
        keys: labels of the entities to be attacked; empty for all. CDMI: "answer" of FUNSD;
            "date", "company", "address" and "total" of SROIE.
        min_tokens: tokens of the shortest fields; shorter ones are trivial (CDMI, §5.1: 3).
        max_tokens: tokens of the longest fields; longer ones cost too much (CDMI, §5.1: 15).
    """

    keys: tuple[str, ...] = ()
    min_tokens: int = 3
    max_tokens: int = 15

    def __post_init__(self) -> None:
        if not 1 <= self.min_tokens <= self.max_tokens:
            raise ValueError(
                f"min_tokens={self.min_tokens}, max_tokens={self.max_tokens}: expected 1 or more, "
                "and the second not below the first"
            )

    def problems(self, bound: FederatedDataset, seed: int) -> list[str]:
        """Returns what keeps a run's fields from being attacked."""
        try:
            model = field_model(seeded_model(bound.build_model, seed))
        except NotApplicable as error:
            return [f"model: {error}"]
        found = [] if bound.public else ["data.public: no documents are public; set it, to 0.5"]
        if unknown := sorted(set(self.keys) - set(bound.labels)):
            found.append(
                f"keep.scrubbed.keys: the data has no entities {unknown}, but {list(bound.labels)}"
            )
        elif not any(self._found(bound.documents, bound.train, model.reader, Counter())):
            found.append(
                f"keep.scrubbed: no field of {self.min_tokens} to {self.max_tokens} tokens lies "
                f"whole in a window of {model.reader.max_length}: take a longer model.max_length "
                "or other keys"
            )
        return found

    def before(self, run: Prepared) -> None:
        """Writes the scrubbed windows, the public documents and, as truth, the fields."""
        folder, bound, reader = run.folder, run.bound, as_field_model(run.model).reader
        left_out: Counter[str] = Counter()
        trained = list(self._found(bound.documents, bound.train, reader, left_out))
        held_out = (
            list(self._found(bound.held_out, bound.test, reader, Counter())) if bound.test else []
        )
        found = trained + held_out
        folder.save_state(START, run.model.state_dict())
        windows = _scrubbed(found, reader)
        notes = {
            "fields": [[one.document.id, one.entity.label, one.places] for one in found],
            "trained": len(trained),
            "left_out": dict(left_out),
            "labels": bound.labels,
        }
        save_tensors(folder, WINDOWS, {n: as_tensor(a) for n, a in windows.items()}, notes)
        folder.write_json(PUBLIC, keep_documents(folder, PAGES, bound.public))
        in_training, public = (
            Counter(text for document in documents for text in _texts(document, self.keys))
            for documents in (bound.documents, bound.public)
        )
        save_fields(
            folder,
            [
                one.truth(in_training, public, trained=number < len(trained))
                for number, one in enumerate(found)
            ],
        )

    def after(self, run: Prepared) -> None:
        """Does nothing: all is written before the first round."""

    def _found(
        self,
        documents: Sequence[Document],
        examples: Examples,
        reader: Reader,
        left_out: Counter[str],
    ) -> Iterator[_Found]:
        """Yields the fields that can be attacked; counts the others by the reason."""
        owners = words_of_tokens(examples.column("word"), examples.column("attention_mask"))
        document_of_row = examples.column(DOCUMENT)
        for number, document in enumerate(documents):
            rows = np.flatnonzero(document_of_row == number)
            pieces = reader.subwords.pieces([word.text for word in document.words])
            words = dict(zip(rows.tolist(), owners[rows], strict=True))
            for key in self.keys:
                if not any(entity.label == key for entity in document.entities):
                    left_out[f"no {key} in the document"] += 1
            for entity in document.entities:
                if self.keys and entity.label not in self.keys:
                    continue
                size = sum(len(pieces[word]) for word in entity.words)
                if size < self.min_tokens:
                    left_out[f"fewer than {self.min_tokens} tokens"] += 1
                elif size > self.max_tokens:
                    left_out[f"more than {self.max_tokens} tokens"] += 1
                elif place := _place(words, entity, size):
                    row, tokens = place
                    yield _Found(document, entity, examples.take([row]), tokens)
                else:
                    left_out[CUT] += 1


def scrub(
    documents: Sequence[Document], examples: Examples, reader: Reader, keep: KeepScrubbed
) -> tuple[tuple[ScrubbedField, ...], Examples, tuple[tuple[int, ...], ...]]:
    """Scrubs documents that somebody holds in full, such as an adversary its own.

    Args:
        documents: what the column `document` of `examples` counts.
        examples: all windows of the documents.
        reader: that made them.
        keep: says which fields.

    Returns:
        F fields, their F masked windows, and the ids of the tokens that stood in each.
    """
    found = list(keep._found(documents, examples, reader, Counter()))
    if not found:
        return (), examples.take([]), ()
    columns = _scrubbed(found, reader)
    pixels = columns.pop("pixels", None)
    fields = tuple(
        ScrubbedField(number, one.document.id, one.entity.label, one.places)
        for number, one in enumerate(found)
    )
    windows = Examples.of(columns, {"pixels": (pixels, "page")} if pixels is not None else None)
    return fields, windows, tuple(one.truth({}, {}, trained=True).tokens for one in found)


@dataclass(frozen=True)
class _Found:
    """A field with its window, one row, and the tokens' places in it."""

    document: Document
    entity: Entity
    window: Examples
    places: tuple[int, ...]

    def truth(
        self, in_training: Mapping[str, int], public: Mapping[str, int], *, trained: bool
    ) -> TrueField:
        tokens = self.window.column("input_ids")[0, list(self.places)]
        text = _text(self.document, self.entity)
        same = text.lower()
        counts = in_training.get(same, 0), public.get(same, 0)
        return TrueField(tuple(tokens.tolist()), text, *counts, trained)


@dataclass(frozen=True)
class KeptFields:
    """What `KeepScrubbed.before` wrote.

    Attributes:
        fields: F of training documents.
        held_out: H of documents that nobody trained on.
        examples: F + H rows, their masked windows.
        public: the public documents, in full.
        labels: of the entities.
        left_out: reason → number of fields.
    """

    fields: tuple[ScrubbedField, ...]
    held_out: tuple[ScrubbedField, ...]
    examples: Examples
    public: tuple[Document, ...]
    labels: tuple[str, ...]
    left_out: Mapping[str, int]


def load_fields(folder: RunFolder, own: Path) -> KeptFields:
    """Reads what was kept.

    Args:
        folder: of the run.
        own: a folder of the adversary's, to which the public pages are copied.

    Raises:
        NotGranted: if nothing was kept.
    """
    require_fields(folder)
    tensors, notes = read_tensors(folder, WINDOWS)
    columns: dict[str, NDArray[Any]] = {name: t.numpy() for name, t in tensors.items()}
    pixels = columns.pop("pixels", None)
    shared = {"pixels": (pixels, "page")} if pixels is not None else None
    with folder.making_sense_of(PUBLIC):
        public = kept_documents(folder.read_json(PUBLIC, list) or [], folder, PAGES, own)
    with folder.making_sense_of(f"{WINDOWS}.safetensors"):
        fields = tuple(
            ScrubbedField(number, document, key, tuple(places))
            for number, (document, key, places) in enumerate(notes["fields"])
        )
        trained = int(notes["trained"])
        return KeptFields(
            fields[:trained],
            fields[trained:],
            Examples.of(columns, shared),
            public,
            tuple(notes["labels"]),
            dict(notes["left_out"]),
        )


def require_fields(folder: RunFolder) -> None:
    """Checks that a run keeps scrubbed fields.

    Raises:
        NotGranted: if it does not.
    """
    if not folder.has(f"{WINDOWS}.safetensors"):
        public = (folder.read_json(PARTITION) or {}).get("public")
        raise NotGranted(
            "the run keeps no scrubbed fields",
            "keep=scrubbed and data.public=0.5 when the federation is run, with "
            "model=layoutlm, bros or bert",
            again=["keep=scrubbed", *([] if public else ["data.public=0.5"])],
        )


def _place(
    words: Mapping[int, NDArray[np.int64]], entity: Entity, size: int
) -> tuple[int, tuple[int, ...]] | None:
    """Returns the row and the places of an entity of that many tokens; none where it is cut."""
    for row, own in words.items():
        places = np.flatnonzero(np.isin(own, entity.words))
        if len(places):
            return (row, tuple(places.tolist())) if len(places) == size else None
    return None


def _scrubbed(found: Sequence[_Found], reader: Reader) -> dict[str, NDArray[Any]]:
    """Returns the windows of F fields, masked: columns of F rows, and the pages, (F, 3, S, S)."""
    from fedpriv.models.heads.masked_lm import CHOSEN  # not at the top: it brings transformers

    names = [n for n, c in found[0].window.columns.items() if c.dtype.kind != "U"] if found else []
    # CHOSEN is drawn from the tokens that are to be hidden: guesses could be checked against it.
    columns = {
        name: np.concatenate([one.window.column(name) for one in found])
        for name in names
        if name not in (DOCUMENT, PROVIDER, CHOSEN)
    }
    for row, one in enumerate(found):
        columns["input_ids"][row, list(one.places)] = reader.subwords.mask
    columns["page"] = np.arange(len(found))
    pages = []
    for one in found:
        page, _ = redact(one.document, lines_of_entity(one.document, one.entity), white)
        pages.append(page)
    pixels = square_pages(pages, reader.image_size)
    if pixels is not None:
        columns["pixels"] = pixels
    return columns


def _texts(document: Document, keys: Sequence[str]) -> set[str]:
    """Returns the texts of a document's fields, each once, lower-cased."""
    own = (e for e in document.entities if not keys or e.label in keys)
    return {_text(document, entity).lower() for entity in own}


def _text(document: Document, entity: Entity) -> str:
    return " ".join(document.words[word].text for word in entity.words)


@dataclass(frozen=True, kw_only=True)
class FieldSettings(AttackSettings):
    """How many scrubbed fields are attacked.

    Args:
        most_fields: the largest number of scrubbed fields that are attacked, drawn at random. None
            attacks all of them.
    """

    most_fields: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(1, most_fields=self.most_fields)


@dataclass(frozen=True, kw_only=True)
class ControlledFieldSettings(FieldSettings):
    """How many fields are attacked for comparison.

    Args:
        controls: the number of fields in documents that nobody trained on which are attacked for
            comparison, drawn at random. None takes as many as there are attacked fields of training
            documents. 0 saves time, but then nothing shows how much of a success is memory.
    """

    controls: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(0, controls=self.controls)


@dataclass(frozen=True, kw_only=True)
class CandidateSettings(FieldSettings):
    """What may stand in a scrubbed field.

    Args:
        candidates: which values a scrubbed field may hold, as far as the adversary knows.
    """

    candidates: Candidates = Candidates()  # noqa: RUF009 - frozen


@dataclass(frozen=True)
class ScrubbedField:
    """A field of k tokens that is to be reconstructed.

    Attributes:
        number: its row in `ScrubbedFields.examples`.
        document: id of its document.
        key: its label, such as "date".
        places: (k,), ascending positions in the row's `input_ids` that hold [MASK].
    """

    number: int
    document: str
    key: str
    places: tuple[int, ...]


@dataclass(frozen=True)
class ScrubbedFields(Surface, keeper="scrubbed", takes=ControlledFieldSettings):
    """Documents with one field masked at a time, F fields.

    Some are of documents that were trained on, the others of documents held out, on which the same
    attack shows what is no memory. The adversary does not know which, and an attack must judge each
    field by its own window.

    Attributes:
        fields: F.
        examples: F rows, the window of each field as the model reads it: its tokens masked and,
            where the model reads pages, white in the shared "pixels"; other fields as they are.
            The labels y are those of the unmasked window: they are public (CDMI, §3.2).
        text: turns token ids into text; the tokenizer is public.
        left_out: reason → number of fields that cannot be attacked.
    """

    fields: tuple[ScrubbedField, ...]
    examples: Examples
    text: Callable[[Sequence[int]], str]
    left_out: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def granted(cls, run: AttackedRun) -> tuple[ScrubbedFields, InWords]:
        """Documents trained on, and for control documents held out, with a field masked each."""
        kept, controls = run.once(kept_fields), run.settings.of(ControlledFieldSettings).controls
        trained = _drawn(kept.fields, run, "attacked fields")
        most = len(trained) if controls is None else controls
        fields = (*trained, *_drawn(kept.held_out, run, "attacked fields, held out", most))
        text = field_model(run.once(blank)).reader.subwords.text
        surface = ScrubbedFields(fields, kept.examples, text, kept.left_out)
        which = "trained on or held out (it does not know which),"
        return surface, (_scrubbed_in_words(fields, kept, which),)

    @classmethod
    def check(cls, run: AttackedRun) -> None:
        """Whether scrubbed fields were kept."""
        require_fields(run.folder)


@dataclass(frozen=True)
class FieldCandidates(Surface, keeper="scrubbed", takes=CandidateSettings):
    """Scrubbed fields, each with a list of values that may have stood there, in random order.

    Some fields are of documents that were trained on, the others of documents held out, on which
    the same attack shows what is no memory. As with all scrubbed fields, an attack must judge each
    by its own window and list.

    Attributes:
        scrubbed: the fields of both.
        lists: number of a field → C candidates, each the ids of its k tokens, no two alike. What
            is in them is said at `fedpriv.threat.candidates.Candidates`.
        given: whether the true value was put into each list.
    """

    scrubbed: ScrubbedFields
    lists: Mapping[int, Sequence[tuple[int, ...]]]
    given: bool = True

    @classmethod
    def granted(cls, run: AttackedRun) -> tuple[FieldCandidates, InWords]:
        """Fields of training documents and of documents held out, with lists of possible values."""
        kept, seed = run.once(kept_fields), run.settings.seed
        settings = run.settings.of(CandidateSettings).candidates
        subwords = field_model(run.once(blank)).reader.subwords
        left_out = Counter(kept.left_out)
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

    @classmethod
    def check(cls, run: AttackedRun) -> None:
        """Whether scrubbed fields were kept; how many candidates they have follows from them."""
        require_fields(run.folder)


@dataclass(frozen=True)
class PublicDocuments(Surface, keeper="scrubbed"):
    """The adversary's own documents, in full. None was trained on."""

    documents: tuple[Document, ...]

    @classmethod
    def granted(cls, run: AttackedRun) -> tuple[PublicDocuments, InWords]:
        """Documents of the same kind that were not trained on, in full."""
        documents = run.once(kept_fields).public
        many = f"{len(documents)} other document{'s' * (len(documents) != 1)}"
        words = f"the adversary holds {many} of its own"
        return PublicDocuments(documents), (words,)

    @classmethod
    def check(cls, run: AttackedRun) -> None:
        """Whether they were kept, beside scrubbed fields."""
        require_fields(run.folder)


def kept_fields(run: AttackedRun) -> KeptFields:
    """Returns the scrubbed fields and the public documents."""
    return load_fields(run.folder, private_folder("pages"))


def _drawn(
    fields: tuple[ScrubbedField, ...], run: AttackedRun, purpose: str, most: int | None = None
) -> tuple[ScrubbedField, ...]:
    """Returns as many of the fields as are to be attacked, in their order."""
    most = run.settings.of(FieldSettings).most_fields if most is None else most
    if most is None or most >= len(fields):
        return fields
    chosen = generator(run.settings.seed, purpose).choice(len(fields), most, False)
    return tuple(fields[place] for place in sorted(chosen.tolist()))


def field_model(model: nn.Module) -> FieldModel:
    """Returns a model whose fields can be scrubbed.

    Raises:
        NotApplicable: if it tells no loss example by example, or has no mask token.
    """
    try:
        found = as_field_model(model)
    except TypeError as error:
        raise NotApplicable(str(error)) from error
    if found.reader.subwords.mask is None:
        raise NotApplicable("its tokenizer has no mask token, and scrubbed fields need one")
    return found


def _scrubbed_in_words(fields: Sequence[ScrubbedField], kept: KeptFields, which: str) -> str:
    documents = len({field.document for field in fields})
    what = "text, layout, labels" + (" and page" if kept.examples.shared else "")
    return (
        f"the adversary holds {what} of {documents} document{'s' * (documents != 1)}, {which} with "
        "one field masked at a time; it knows how many tokens that field has"
    )
