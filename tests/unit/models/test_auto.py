"""Checkpoints of families that fedpriv does not know, and of ours in other sizes."""

import json
import re
from dataclasses import replace

import pytest
import torch
from image_text_families import FAMILIES
from model_checks import (
    LABELS,
    SMALL,
    batch_of,
    check_alone_or_together_the_answers_are_the_same,
    check_every_way_gives_what_the_loop_gives,
    learn,
)
from transformers import (
    BertConfig,
    BertForTokenClassification,
    DistilBertConfig,
    DistilBertForTokenClassification,
    LayoutLMConfig,
    LayoutLMForQuestionAnswering,
    LayoutLMForTokenClassification,
    LayoutLMv3Config,
    LayoutLMv3ForTokenClassification,
    LiltConfig,
    LiltForQuestionAnswering,
    LiltForTokenClassification,
    ViTConfig,
    ViTModel,
)

from fedpriv.models.auto import AutoAnswerer, auto
from fedpriv.models.base import DocumentModel, Tagger
from fedpriv.models.field_model import as_field_model
from fedpriv.models.image_text import ImageText
from fedpriv.models.layoutlmv3 import LayoutLMv3Tagger
from fedpriv.models.pix2struct import Pix2Struct, pix2struct
from fedpriv.models.readers.subwords import Subwords
from fedpriv.models.tagging import tags_of
from fedpriv.training.adapters import TopLayers

SHIPPED = Subwords.shipped()
SIZE = {
    "vocab_size": SHIPPED.size, "hidden_size": 24, "num_hidden_layers": 3,
    "num_attention_heads": 2, "intermediate_size": 32, "pad_token_id": SHIPPED.pad,
    "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
}  # fmt: skip
TAGS = tags_of(LABELS)
ROBERTA_LIKE = {"max_position_embeddings": 41 + SHIPPED.pad}
DISTILBERT = DistilBertConfig(
    vocab_size=SHIPPED.size, dim=24, n_layers=2, n_heads=2, hidden_dim=32, dropout=0.0,
    attention_dropout=0.0, max_position_embeddings=40, pad_token_id=SHIPPED.pad,
)  # fmt: skip


@pytest.fixture(autouse=True)
def same_draws():
    torch.manual_seed(0)


def saved(network, folder):
    network.save_pretrained(folder)
    SHIPPED.save_pretrained(folder)
    return folder


def lilt(**more):
    return LiltConfig(**{**SIZE, **ROBERTA_LIKE, "channel_shrink_ratio": 4, **more})


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    torch.manual_seed(0)
    short = {"max_position_embeddings": 40}
    networks = {
        "lilt": LiltForTokenClassification(lilt()),
        "lilt answers": LiltForQuestionAnswering(lilt()),
        "distilbert": DistilBertForTokenClassification(DISTILBERT),
        "layoutlm": LayoutLMForTokenClassification(LayoutLMConfig(**SIZE, **short)),
        "layoutlm answers": LayoutLMForQuestionAnswering(LayoutLMConfig(**SIZE, **short)),
        "bert": BertForTokenClassification(BertConfig(**SIZE, **short)),
        "vit": ViTModel(
            ViTConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=1,
                      intermediate_size=8, image_size=16, patch_size=8)
        ),
    }  # fmt: skip
    return {
        name: saved(network, tmp_path_factory.mktemp("auto") / name.replace(" ", "_"))
        for name, network in networks.items()
    }


@pytest.mark.parametrize("family", ["lilt", "distilbert"])
def test_a_tagger_of_any_family_reads_and_learns(family, folders):
    model = auto(LABELS, pretrained=folders[family])
    assert isinstance(model, Tagger)
    assert batch_of(model)["input_ids"].shape[1] == 40
    first, last = learn(model, SMALL[:2], 40, 1e-2)
    assert last < 0.3 * first
    with torch.no_grad():
        assert [model.tag(one) for one in SMALL[:2]] == [one.tags() for one in SMALL[:2]]


@pytest.mark.parametrize("family", ["layoutlm answers", "bert"])
def test_an_answerer_of_any_family_reads_and_learns(family, folders):
    model = auto(pretrained=folders[family], task="answers")
    assert isinstance(model, AutoAnswerer)
    assert isinstance(model, DocumentModel)
    first, last = learn(model, SMALL[:2], 40, 1e-2)
    assert last < 0.3 * first
    with torch.no_grad():
        texts = [[answer.text for answer in one] for one in model.answer(SMALL[:2])]
    assert texts == [["vega ltd", "12.50"], ["orion"]]
    check_alone_or_together_the_answers_are_the_same(model)


def test_boxes_reach_those_that_take_them(folders):
    box = (5, 50, 60, 90)
    far = [
        replace(page, words=tuple(replace(word, box=box) for word in page.words)) for page in SMALL
    ]
    for family, reads in {"lilt": True, "distilbert": False}.items():
        model = auto(LABELS, pretrained=folders[family]).eval()
        with torch.no_grad():
            same = torch.equal(model(batch_of(model)), model(batch_of(model, far)))
        assert same is not reads


def test_the_scores_are_those_of_transformers(folders):
    network = LiltForTokenClassification.from_pretrained(
        folders["lilt"], num_labels=5, ignore_mismatched_sizes=True
    ).eval()
    model = auto(LABELS, pretrained=folders["lilt"]).eval()
    network.classifier.load_state_dict(model.network.classifier.state_dict())
    batch = batch_of(model)
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask", "bbox")}
    with torch.no_grad():
        torch.testing.assert_close(model(batch), network(**inputs).logits)


def test_a_family_of_ours_becomes_our_model(folders, tmp_path):
    as_field_model(auto(LABELS, pretrained=folders["layoutlm"]))
    config = LayoutLMv3Config(
        **{**SIZE, "hidden_size": 48}, **ROBERTA_LIKE, num_labels=9, input_size=32, patch_size=16,
        coordinate_size=8, shape_size=8,
    )  # fmt: skip
    saved(LayoutLMv3ForTokenClassification(config), tmp_path)
    model = auto(LABELS, pretrained=tmp_path)
    assert isinstance(model, LayoutLMv3Tagger)
    assert len(model.blocks()) == 3
    assert model.head()[0].out_features == len(TAGS)
    with torch.no_grad():
        assert model.loss(batch_of(model)).isfinite()


def test_those_that_write_their_answers_become_ours(tmp_path):
    FAMILIES["llava"](tmp_path / "llava")
    pix2struct(max_patches=8).save_pretrained(tmp_path / "pix2struct")
    assert isinstance(auto(pretrained=tmp_path / "llava", task="answers"), ImageText)
    assert isinstance(auto(pretrained=tmp_path / "pix2struct", task="answers"), Pix2Struct)
    refused(tmp_path / "llava", "'llava'", "or task='answers'")


@pytest.mark.parametrize("family", ["lilt", "layoutlm answers"])
def test_what_is_saved_is_read_back(family, folders, tmp_path):
    task = "answers" if "answers" in family else "tags"
    model = auto(LABELS, pretrained=folders[family], task=task, max_length=32).eval()
    model.save_pretrained(tmp_path)
    again = auto(pretrained=tmp_path, task=task).eval()
    assert again.reading() == model.reading()
    for name, value in model.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name
    with torch.no_grad():
        assert model.answer(SMALL) == again.answer(SMALL)


def head_of(tmp_path, names):
    config = lilt(num_labels=len(names), id2label=dict(enumerate(names)))
    network = LiltForTokenClassification(config)
    return network.classifier, auto(LABELS, pretrained=saved(network, tmp_path)).head()[0]


def test_a_head_for_the_same_tags_in_another_order_is_kept(tmp_path):
    before, after = head_of(tmp_path, TAGS[::-1])
    assert torch.equal(after.weight, before.weight.flip(0))


def test_a_head_for_other_tags_is_drawn_even_if_it_has_the_same_size(tmp_path):
    before, after = head_of(tmp_path, ["O", "B-a", "I-a", "B-b", "I-b"])
    assert after.weight.shape == before.weight.shape
    assert not set(before.weight.flatten().tolist()) & set(after.weight.flatten().tolist())


@pytest.mark.parametrize("task", ["tags", "answers"])
def test_per_example_gradients_are_those_of_the_examples(task, folders):
    folder = folders["lilt" if task == "tags" else "lilt answers"]
    check_every_way_gives_what_the_loop_gives(auto(LABELS, pretrained=folder, task=task), SMALL[:2])


def test_its_last_layers_are_trained(folders):
    model = auto(LABELS, pretrained=folders["lilt"])
    TopLayers(1).apply(model)
    trained = [name for name, p in model.named_parameters() if p.requires_grad]
    inner = {name.split("layer.")[1][0] for name in trained if "layer." in name}
    assert inner == {"2"}
    assert [name for name in trained if "layer." not in name] == [
        "network.classifier.weight", "network.classifier.bias",
    ]  # fmt: skip


def test_its_fields_can_be_attacked(folders):
    model = as_field_model(auto(LABELS, pretrained=folders["lilt"]))
    batch = batch_of(model)
    assert model.seen(batch) is batch
    assert model.losses(batch).shape == (3,)


def refused(folder, *parts, **more):
    with pytest.raises(ValueError, match="^" + re.escape(str(folder))) as error:
        auto(LABELS, pretrained=folder, **more)
    for part in parts:
        assert part in str(error.value)


def test_what_cannot_work_is_refused_before_training(folders, tmp_path):
    with pytest.raises(ValueError, match=r"^pretrained=None: expected a local folder"):
        auto(LABELS, pretrained=None)
    with pytest.raises(OSError, match="no such folder"):
        auto(LABELS, pretrained=tmp_path / "none")
    with pytest.raises(ValueError, match=r"^task='parse': expected 'tags' or 'answers'$"):
        auto(LABELS, pretrained=folders["lilt"], task="parse")
    refused(folders["vit"], "'vit'", "AutoModelForTokenClassification")
    refused(folders["vit"], "AutoModelForDocumentQuestionAnswering", task="answers")
    with pytest.raises(ValueError, match=r"^max_length=41: .* has positions for 40 tokens$"):
        auto(LABELS, pretrained=folders["lilt"], max_length=41)


def test_boxes_that_a_network_has_no_places_for_are_refused(tmp_path):
    network = LiltForTokenClassification(lilt(max_2d_position_embeddings=500))
    refused(saved(network, tmp_path), "cannot read a page", "boxes of 0 to 1000")


def test_a_pickle_is_not_opened(folders, tmp_path):
    for file in folders["lilt"].iterdir():
        if file.suffix == ".json":
            (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'false'\ntR.")
    refused(tmp_path, "model.safetensors", "never read from a pickle")


def test_code_beside_a_checkpoint_is_not_run(folders, tmp_path):
    for file in folders["lilt"].iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    config = json.loads((tmp_path / "config.json").read_text())
    config |= {"model_type": "theirs", "auto_map": {"AutoConfig": "code.Theirs"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "code.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    with pytest.raises(ValueError, match="trust_remote_code"):
        auto(LABELS, pretrained=tmp_path)
    assert not (tmp_path / "ran").exists()
