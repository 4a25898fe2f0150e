"""What a run keeps of its documents' fields, and what it does not."""

import dataclasses
import functools
import json

import numpy as np
import pytest
import torch
from toy_fields import DIGITS, VOCABULARY, Codes, Follows, federation, follows, page, subwords

from fedpriv.data.document import DocumentSet, Entity
from fedpriv.data.partition import HoldOut, Iid
from fedpriv.federation.dataset import DocumentData
from fedpriv.federation.keep import Prepared
from fedpriv.federation.loop import Unworkable
from fedpriv.models.encoders.backbones import layoutlm
from fedpriv.models.field_model import FieldModel, TokenModel
from fedpriv.models.roberta import roberta
from fedpriv.runtime.run_folder import RunFolder
from fedpriv.threat.attack import NotGranted
from fedpriv.threat.surfaces.fields import KeepScrubbed, load_fields
from fedpriv.threat.truth import TruthStore

KINDS = ({"task": "mlm"}, {"task": "tags", "image": True}, {"task": "spade"})

MASK = VOCABULARY.index("<mask>")


@dataclasses.dataclass(frozen=True)
class These:
    documents: tuple
    labels: tuple = ("code",)

    def load(self):
        return DocumentSet("these", self.documents, self.labels)


def kept(tmp_path, **changes):
    made = federation(tmp_path, **changes)
    folder = RunFolder(made.run(1).run_dir)
    return made, folder, load_fields(folder, tmp_path)


def test_the_toy_is_a_model_of_fields():
    assert isinstance(Follows(), FieldModel)
    assert isinstance(Follows(), TokenModel)


def test_fields_are_masked_and_nothing_else_is(tmp_path):
    made, _, found = kept(tmp_path)
    documents = {document.id: document for document in made.bound.documents}
    assert {field.document for field in found.fields} == set(documents)
    for field in found.fields:
        assert field.places == (3, 4, 5)
        row = found.examples.take([field.number])
        tokens = [VOCABULARY[t] for t in row.column("input_ids")[0][:8]]
        assert tokens == ["<s>", "name", "code", *["<mask>"] * 3, "end", "</s>"]
        assert (row.column("bbox")[0][3:6, 2] > 0).all()


def test_what_stood_there_is_in_the_truth_only(tmp_path):
    made, folder, found = kept(tmp_path)
    truths = TruthStore(folder).fields()
    documents = {document.id: document for document in made.bound.documents}
    for field in found.fields:
        texts = [w.text for w in documents[field.document].words[2:5]]
        assert [VOCABULARY[t] for t in truths[field.number].tokens] == texts
        assert truths[field.number].text == " ".join(texts)
    tokens = found.examples.column("input_ids")
    assert not np.isin(tokens, [VOCABULARY.index(d) for d in DIGITS]).any()
    outside = [p for p in folder.path.rglob("*.json") if "truth" not in p.parts]
    codes = [truth.text for truth in truths.values()]
    public = json.dumps([[w.text for w in d.words] for d in made.bound.public])
    for path in outside:
        for code in codes:
            as_words = json.dumps(code.split())[1:-1]
            assert as_words not in path.read_text() or as_words in public


def test_the_field_is_white_on_the_page_and_only_there(tmp_path):
    def sees(labels=(), task="mlm"):
        return Follows(labels, task, image_size=32)

    made, _, found = kept(tmp_path, model=sees)
    whole = {d.id: made.bound.train.batch(np.array([n]))["pixels"][0] for n, d in
             enumerate(made.bound.documents)}  # fmt: skip
    for field in found.fields:
        seen = found.examples.batch(np.array([field.number]))["pixels"][0]
        changed = (seen != whole[field.document]).any(0)
        # Words 2 to 4 of 6, each 1/6 of 32 pixels wide, two pixels of the page wider on each side.
        assert changed[8:24, 11:26].all()
        assert not changed[:, :8].any()
        assert not changed[:, 29:].any()
        assert (seen[:, 10:22, 12:26] == 255).all()


def test_public_documents_are_neither_trained_on_nor_held_out(tmp_path):
    made, folder, found = kept(tmp_path)
    held = folder.read_json("partition.json")["test"]
    trained = {d.id for d in made.bound.documents}
    public = {d.id for d in found.public}
    assert (len(trained), len(public), len(held)) == (5, 4, 3)
    assert not public & trained
    assert not public & set(held)
    assert folder.read_json("partition.json")["public"] == sorted(
        public, key=lambda name: int(name[1:])
    )
    original = {d.id: d for d in Codes().load().documents}
    for document in found.public:
        assert document.words == original[document.id].words
        assert document.entities == original[document.id].entities


def keep(fields, folder, bound):
    """Keeps the fields of a run; of its halves a keeper of fields knows nothing."""
    fields.before(Prepared(folder, bound, None, None, bound.build_model(), None, {}, print))


def test_fields_too_short_too_long_cut_or_missing_are_counted(tmp_path):
    sizes = [2, 3, 4, 16, 3, 3]
    pages = [page(f"p{n}", [DIGITS[0]] * size) for n, size in enumerate(sizes)]
    pages[4] = dataclasses.replace(pages[4], entities=())
    pages[5] = dataclasses.replace(pages[5], entities=(Entity("other", (2, 3, 4)),))
    source = These((*pages, page("public", DIGITS[:3])), ("code", "other"))
    bound = DocumentData(source, Iid(1), HoldOut(fraction=0), cache="off").bind(
        lambda labels=(): Follows(labels, max_length=6), 0
    )
    folder = RunFolder.made(tmp_path / "run")
    fields = KeepScrubbed(keys=("code",))
    keep(fields, folder, dataclasses.replace(bound, public=bound.documents[-1:]))
    found = load_fields(folder, tmp_path)
    # Windows of four tokens: `name code d d | d end`, so that no code of three is whole.
    assert not found.fields
    assert found.left_out == {
        "fewer than 3 tokens": 1,
        "cut by the end of a window": 3,
        "more than 15 tokens": 1,
        "no code in the document": 2,
    }


def test_a_text_is_counted_in_every_document_that_has_it(tmp_path):
    same = [page(f"p{n}", DIGITS[:3]) for n in range(3)]
    bound = DocumentData(
        These((*same, page("other", DIGITS[3:6]))), Iid(1), HoldOut(fraction=0), cache="off"
    ).bind(follows, 0)
    folder = RunFolder.made(tmp_path / "run")
    bound = dataclasses.replace(bound, public=(page("a", DIGITS[:3]), page("b", DIGITS[:3])))
    keep(KeepScrubbed(), folder, bound)
    truths = TruthStore(folder).fields()
    assert [truth.occurrences for truth in truths.values()] == [3, 3, 3, 1]
    assert [truth.public for truth in truths.values()] == [2, 2, 2, 0]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"keep": [KeepScrubbed(keys=("total",))]}, r"no entities \['total'\], but \['code'\]"),
        (
            {"keep": [KeepScrubbed(min_tokens=4)]},
            "no field of 4 to 15 tokens lies whole in a window",
        ),
        ({"model": roberta}, "RobertaTagger does not tell its loss example by example"),
    ],
)
def test_a_run_whose_fields_cannot_be_attacked_does_not_start(tmp_path, changes, says):
    with pytest.raises(Unworkable, match=says):
        federation(tmp_path, **changes)


def test_a_tokenizer_without_a_mask_is_refused(tmp_path):
    def maskless(labels=(), task="mlm"):
        model = Follows(labels, task)
        model.reader = dataclasses.replace(
            model.reader, subwords=dataclasses.replace(subwords(), mask=None)
        )
        return model

    with pytest.raises(Unworkable, match="no mask token"):
        federation(tmp_path, model=maskless)


def test_documents_must_be_left_on_either_side():
    with pytest.raises(ValueError, match=r"public=0.1 of 3 documents is 0"):
        DocumentData(Codes(4), Iid(1), HoldOut(fraction=0.25), public=0.1).bind(follows, 0)
    with pytest.raises(ValueError, match=r"public=1.0: expected a share"):
        DocumentData(Codes(4), Iid(1), public=1.0)


@pytest.mark.parametrize(("least", "most"), [(0, 3), (4, 3)])
def test_impossible_lengths_are_refused(least, most):
    with pytest.raises(ValueError, match=f"min_tokens={least}, max_tokens={most}"):
        KeepScrubbed(min_tokens=least, max_tokens=most)


def test_keeping_fields_does_not_change_the_training(tmp_path):
    with_fields, without = (
        federation(tmp_path / str(len(kept)), keep=kept).run(2) for kept in ([KeepScrubbed()], [])
    )
    assert not (without.run_dir / "fields").exists()
    assert with_fields.model.table.equal(without.model.table)
    with pytest.raises(NotGranted, match="keep=scrubbed"):
        load_fields(RunFolder(without.run_dir), tmp_path)


def test_nothing_that_was_made_from_the_hidden_tokens_is_kept(tmp_path):
    """Two documents that differ in the field only have the same windows once it is scrubbed."""
    pages = [page("p", DIGITS[:3]), page("p", DIGITS[3:6])]
    for build in (follows, *(functools.partial(layoutlm, **one) for one in KINDS)):
        kept = []
        for number, one in enumerate(pages):
            bound = DocumentData(These((one,)), Iid(1), HoldOut(fraction=0), cache="off").bind(
                build, 0
            )
            folder = RunFolder.made(tmp_path / str(number))
            keep(KeepScrubbed(min_tokens=1), folder, bound)
            kept.append(load_fields(folder, tmp_path))
        assert kept[0].fields[0].places == kept[1].fields[0].places
        columns = [scrubbed.examples.columns for scrubbed in kept]
        assert columns[0].keys() == columns[1].keys()
        for name in columns[0]:
            assert np.array_equal(columns[0][name], columns[1][name]), name


def test_masks_stand_where_the_model_would_read_them(tmp_path):
    _, _, found = kept(tmp_path)
    batch = found.examples.batch(np.arange(len(found.fields)))
    masked = batch["input_ids"] == MASK
    assert torch.equal(masked.sum(1), torch.full((len(masked),), 3))
