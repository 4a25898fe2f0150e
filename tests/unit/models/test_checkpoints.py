"""Checkpoints of another architecture, and those with weights missing, are loaded by no model."""

import json
import logging
import re
import shutil
from functools import partial

import pytest
import torch
from image_text_families import FAMILIES
from model_checks import LABELS
from safetensors.torch import load_file, save_file
from transformers import (
    BertConfig,
    DeiTConfig,
    DeiTModel,
    LiltConfig,
    LiltModel,
    MBartConfig,
    MBartForCausalLM,
    RobertaConfig,
    RobertaForTokenClassification,
    VisionEncoderDecoderModel,
)

from fedpriv.models.checkpoints import config_of, network_of
from fedpriv.models.donut import donut
from fedpriv.models.encoders.backbones import bert, bros, layoutlm
from fedpriv.models.encoders.roi import beit_visual
from fedpriv.models.image_text import image_text
from fedpriv.models.layoutlmv3 import layoutlmv3
from fedpriv.models.pix2struct import pix2struct
from fedpriv.models.roberta import roberta
from fedpriv.models.vt5 import vt5

TEXT = {
    "vocab_size": 300, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 64, "max_position_embeddings": 64,
}  # fmt: skip
IMAGE = {
    "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32,
    "image_size": 32, "patch_size": 16,
}  # fmt: skip

TAGGERS = {
    "layoutlmv3": (layoutlmv3, {"image_size": 16}),
    "roberta": (roberta, {}),
    "bert": (bert, {}),
    "bros": (bros, {}),
    "layoutlm": (layoutlm, {}),
}


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """Every family → what loads it, and a folder of its own that it can load."""
    torch.manual_seed(0)
    made = {}
    for name, (build, sizes) in TAGGERS.items():
        folder = tmp_path_factory.mktemp(name)
        build(LABELS, max_length=24, **sizes).save_pretrained(folder)
        made[name] = partial(build, LABELS), folder
    answering = partial(layoutlmv3, task="answers")
    made["layoutlmv3 answers"] = answering, tmp_path_factory.mktemp("answers")
    answering(max_length=32, image_size=16).save_pretrained(made["layoutlmv3 answers"][1])
    made["donut"] = donut, tmp_path_factory.mktemp("donut")
    donut(image_size=(64, 64)).save_pretrained(made["donut"][1])
    made["pix2struct"] = pix2struct, tmp_path_factory.mktemp("pix2struct")
    pix2struct(max_patches=8).save_pretrained(made["pix2struct"][1])
    made["image_text"] = image_text, tmp_path_factory.mktemp("llava")
    FAMILIES["llava"](made["image_text"][1])
    folder = tmp_path_factory.mktemp("vt5")
    vt5().save_pretrained(folder)
    made["vt5"] = vt5, folder
    made["vt5 joined"] = partial(vt5, visual=folder / "visual"), folder / "language"
    made["visual"] = (
        lambda pretrained: vt5(pretrained=folder / "language", visual=pretrained),
        folder / "visual",
    )
    made["beit_visual"] = lambda pretrained: beit_visual(pretrained, 32), folder / "visual"
    return made


EVERY = (
    *(*TAGGERS, "layoutlmv3 answers", "donut", "pix2struct", "image_text"),
    *("vt5 joined", "visual", "beit_visual"),
)


@pytest.fixture(scope="module")
def others(tmp_path_factory):
    """Tiny checkpoints that no family takes, by their type."""
    decoder = MBartForCausalLM(MBartConfig(d_model=32, vocab_size=300, decoder_layers=1))
    models = {
        "lilt": LiltModel(LiltConfig(**TEXT)),
        "deit": DeiTModel(DeiTConfig(**IMAGE)),
        "deit with mbart": VisionEncoderDecoderModel(
            encoder=DeiTModel(DeiTConfig(**IMAGE)), decoder=decoder
        ),
    }
    folders = {}
    for kind, model in models.items():
        folders[kind] = tmp_path_factory.mktemp("other") / kind
        model.save_pretrained(folders[kind])
    return folders


@pytest.mark.parametrize("family", EVERY)
def test_no_family_takes_another_architecture(family, own, others):
    load, folder = own[family]
    load(pretrained=folder)
    for kind in ("lilt", "deit"):
        held = f"{others[kind]} holds a model of type '{kind}': expected "
        with pytest.raises(ValueError, match="^" + re.escape(held)):
            load(pretrained=others[kind])


def test_a_local_model_is_loaded_without_a_word(own, capfd):
    load, folder = own["bert"]
    load(pretrained=folder)
    assert capfd.readouterr() == ("", "")


def test_the_error_says_what_is_expected_and_what_takes_what_is_there(own, others):
    folder = own["roberta"][1]
    with pytest.raises(ValueError, match="holds") as error:
        layoutlmv3(pretrained=folder)
    assert str(error.value) == (
        f"{folder} holds a model of type 'roberta': expected 'layoutlmv3', such as "
        "microsoft/layoutlmv3-base; this one is for model=roberta"
    )
    with pytest.raises(ValueError, match="holds") as error:
        donut(pretrained=others["deit with mbart"])
    assert str(error.value) == (
        f"{others['deit with mbart']} holds a model of type 'deit with mbart': expected donut-swin "
        "with mbart, which is a Donut"
    )


def test_a_part_of_a_vt5_is_named_by_its_folder(tmp_path):
    vt5().save_pretrained(tmp_path)
    DeiTModel(DeiTConfig(**IMAGE)).save_pretrained(tmp_path / "visual")
    held = f"{tmp_path / 'visual'} holds a model of type 'deit': expected 'beit'"
    with pytest.raises(ValueError, match="^" + re.escape(held)):
        vt5(pretrained=tmp_path)


@pytest.mark.parametrize("family", EVERY)
def test_the_weights_must_be_there_too_whatever_the_config_says(family, own, tmp_path):
    """One weight of a layer is taken out of a folder that could be loaded."""
    load, folder = own[family]
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    weights = load_file(folder / "model.safetensors")
    gone = next(n for n in weights if re.search(r"(layers?|blocks?)\.\d+\..*weight$", n))
    del weights[gone]
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(
        ValueError, match=r"but 1 of the \d+ weights of a .* are not there"
    ) as error:
        load(pretrained=tmp_path)
    assert str(error.value).startswith(str(tmp_path))
    assert re.search(r"shape: \S+\.0\.\S+weight; expected all of them", str(error.value))


@pytest.mark.parametrize("family", TAGGERS)
def test_lilt_under_the_name_of_another_type_is_refused(family, own, others, tmp_path):
    load, folder = own[family]
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    (tmp_path / "model.safetensors").write_bytes(
        (others["lilt"] / "model.safetensors").read_bytes()
    )
    with pytest.raises(ValueError, match=r"weights of a \w+ are not there or have another shape"):
        load(pretrained=tmp_path)


def test_a_weight_of_another_shape_is_missing_too(own, tmp_path):
    folder = own["roberta"][1]
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    config = json.loads((folder / "config.json").read_text())
    config["intermediate_size"] += 8
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(
        ValueError, match=r"but 6 of the \d+ weights.* 3 more; expected all of them"
    ):
        roberta(LABELS, pretrained=tmp_path)


def test_only_a_head_may_be_new(own):
    """A head of another size is drawn, of a network that has one."""
    folder = own["layoutlmv3"][1]
    model = layoutlmv3([*LABELS, "more"], pretrained=folder)
    assert model.network.classifier.out_features == 2 * 3 + 1
    answerer = layoutlmv3(pretrained=folder, task="answers")
    kept = layoutlmv3(pretrained=folder).network.layoutlmv3.state_dict()
    for name, weight in answerer.network.layoutlmv3.state_dict().items():
        assert torch.equal(weight, kept[name]), name


def test_a_network_without_a_head_of_ours_is_loaded_whole(own, tmp_path):
    load, folder = own["roberta"]
    load(pretrained=folder).network.roberta.save_pretrained(tmp_path)
    network, drawn = network_of(RobertaForTokenClassification, tmp_path, new_head=True)
    assert drawn == {"classifier.weight", "classifier.bias"}
    assert network.dtype == torch.float32
    with pytest.raises(ValueError, match=r"2 of the \d+ weights.*: classifier\.weight"):
        network_of(RobertaForTokenClassification, tmp_path)


def test_a_config_without_a_type_passes(tmp_path):
    BertConfig(**TEXT).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    del config["model_type"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert config_of(BertConfig, tmp_path).hidden_size == 32


def test_a_head_for_other_labels_is_drawn_without_a_word_of_transformers(own, tmp_path):
    folder = own["roberta"][1]
    said = []

    class Heard(logging.Handler):
        def emit(self, record):
            said.append(record.getMessage())

    logger, heard = logging.getLogger("transformers"), Heard()
    logger.addHandler(heard)
    try:
        roberta([*LABELS, "another"], pretrained=folder)
        assert said == []
        config = {"num_labels": 11, "ignore_mismatched_sizes": True}
        RobertaForTokenClassification.from_pretrained(folder, **config)
    finally:
        logger.removeHandler(heard)
    assert "LOAD REPORT" in "".join(said)  # without us it speaks


@pytest.mark.parametrize(
    ("named", "told"),
    [
        ("pytorch_model.bin", "names 'pytorch_model.bin': expected .safetensors files beside it"),
        ("../other/model.safetensors", "expected .safetensors files beside it"),
        ("/other/model.safetensors", "expected .safetensors files beside it"),
        (7, "expected .safetensors files beside it"),
        (None, "is no index of weights"),
    ],
)
def test_an_index_names_safetensors_beside_it_only(tmp_path, named, told, monkeypatch):
    model = RobertaForTokenClassification(RobertaConfig(**TEXT))
    model.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "other").mkdir()
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    index = {"weight_map": dict.fromkeys(model.state_dict(), named)} if named else {"weight_map": 3}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    monkeypatch.setattr(torch, "load", None)
    with pytest.raises(ValueError, match=re.escape(told)):
        network_of(RobertaForTokenClassification, tmp_path)


def test_a_checkpoint_in_several_files_is_loaded_and_a_pickle_never(tmp_path, monkeypatch):
    model = RobertaForTokenClassification(RobertaConfig(**TEXT))
    model.save_pretrained(tmp_path / "parts", max_shard_size="40KB")
    assert (tmp_path / "parts/model.safetensors.index.json").is_file()
    loaded, _ = network_of(RobertaForTokenClassification, tmp_path / "parts")
    for name, value in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value)
    model.config.save_pretrained(tmp_path / "pickle")
    torch.save(model.state_dict(), tmp_path / "pickle/pytorch_model.bin")
    monkeypatch.setattr(torch, "load", None)
    with pytest.raises(ValueError, match="weights are never read from a pickle"):
        network_of(RobertaForTokenClassification, tmp_path / "pickle")
