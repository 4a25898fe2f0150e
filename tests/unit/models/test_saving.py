"""Models in folders, bit for bit; and published sizes, as transformers builds them."""

import copy
import functools
import json
import shutil

import numpy as np
import pytest
import torch
from model_checks import LABELS, SMALL, batch_of
from transformers import (
    AutoConfig,
    DonutSwinConfig,
    DonutSwinModel,
    LayoutLMv3Config,
    LayoutLMv3ForQuestionAnswering,
    LayoutLMv3ForTokenClassification,
    MBartConfig,
    MBartForCausalLM,
    RobertaConfig,
    RobertaForTokenClassification,
    VisionEncoderDecoderModel,
)

from fedpriv.data.document import DataError
from fedpriv.models.donut import donut
from fedpriv.models.layoutlmv3 import layoutlmv3
from fedpriv.models.readers.donut_reader import MARKS
from fedpriv.models.readers.subwords import Subwords
from fedpriv.models.roberta import roberta
from fedpriv.models.saving import SETTINGS, settings_of
from fedpriv.runtime.torch_state import seeded_model

ANSWERS = functools.partial(layoutlmv3, task="answers")
KINDS = {
    "layoutlmv3": (lambda: layoutlmv3(LABELS, max_length=24, image_size=16), layoutlmv3),
    "without image": (lambda: layoutlmv3(LABELS, max_length=24, image=False), layoutlmv3),
    "answers": (lambda: ANSWERS(max_length=32), ANSWERS),
    "roberta": (lambda: roberta(LABELS, max_length=24), roberta),
    "donut": (lambda: donut(max_length=40, answer_length=12, image_size=(64, 80)), donut),
}
EVERY = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Every kind of model beside the folder that it was saved in."""
    models = {}
    for kind, (build, *_) in KINDS.items():
        folder = tmp_path_factory.mktemp("models") / kind / "new"
        models[kind] = seeded_model(build, 3), folder
        models[kind][0].save_pretrained(folder)
    return models


def bytes_of(model):
    return {name: tensor.numpy().tobytes() for name, tensor in model.state_dict().items()}


def load(kind, folder, labels=(), **settings):
    return KINDS[kind][1](labels, pretrained=folder, **settings)


@EVERY
def test_what_is_saved_is_read_back_bit_by_bit_ready_to_be_trained(kind, saved):
    model, folder = saved[kind]
    loaded = load(kind, folder)
    assert all(module.training for module in loaded.modules())
    assert {p.dtype for p in loaded.parameters()} == {torch.float32}
    assert type(loaded) is type(model)
    assert bytes_of(loaded) == bytes_of(model)
    travels = [[n for n, p in m.named_parameters() if p.requires_grad] for m in (model, loaded)]
    assert travels[0] == travels[1]
    assert loaded.reading() == model.reading()
    mine, theirs = batch_of(model), batch_of(loaded)
    assert all(torch.equal(column, theirs[name]) for name, column in mine.items())
    with torch.no_grad():
        model.eval()
        loaded.eval()
        assert torch.equal(model.loss(mine), loaded.loss(theirs))
        assert model.answer(SMALL) == loaded.answer(SMALL)


@EVERY
def test_what_was_read_back_saves_the_same_files(kind, saved, tmp_path):
    _, folder = saved[kind]
    load(kind, folder).save_pretrained(tmp_path)
    names = sorted(path.name for path in folder.iterdir())
    assert {
        "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", SETTINGS
    } <= set(names)  # fmt: skip
    assert names == sorted(path.name for path in tmp_path.iterdir())
    for name in ("model.safetensors", SETTINGS):
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()


@EVERY
def test_by_name_the_folder_wins_over_the_size(kind, saved):
    model, folder = saved[kind]
    loaded = KINDS[kind][1](pretrained=str(folder), size="base")
    assert bytes_of(loaded) == bytes_of(model)
    assert loaded.reading() == model.reading()


@EVERY
def test_shorter_windows_can_be_asked_for_and_count_once_they_are_saved(kind, saved, tmp_path):
    loaded = load(kind, saved[kind][1], max_length=20)
    assert loaded.reading()["max_length"] == 20
    assert batch_of(loaded)["input_ids"].shape[1] == 20
    loaded.save_pretrained(tmp_path)
    assert load(kind, tmp_path).reading()["max_length"] == 20


@EVERY
def test_dropout_can_be_changed_when_loading(kind, saved):
    model, folder = saved[kind]
    loaded = load(kind, folder, dropout=0.5)
    batch = batch_of(loaded)
    assert loaded.train().loss(batch) != loaded.loss(batch)
    assert bytes_of(loaded) == bytes_of(model)


@EVERY
def test_the_tokenizer_of_the_folder_is_that_of_the_model(kind, saved):
    model, folder = saved[kind]
    own, read = model.reader.subwords, Subwords.from_pretrained(folder)
    words = ["Total", "12.50", "€uro", "</s>", "Ängström"]
    assert read.pieces(words) == own.pieces(words)
    assert (read.cls, read.sep, read.pad, read.size) == (own.cls, own.sep, own.pad, own.size)


@EVERY
def test_transformers_knows_the_network_of_the_folder(kind, saved):
    model, folder = saved[kind]
    assert AutoConfig.from_pretrained(folder).model_type == model.network.config.model_type
    alone = type(model.network).from_pretrained(folder)
    assert bytes_of(alone) == bytes_of(model.network)


@EVERY
def test_a_half_precision_checkpoint_becomes_float32(kind, saved, tmp_path):
    model, folder = saved[kind]
    shutil.copytree(folder, tmp_path / "half")
    copy.deepcopy(model.network).half().save_pretrained(tmp_path / "half")
    again = load(kind, tmp_path / "half")
    assert {p.dtype for p in again.parameters()} == {torch.float32}


@EVERY
def test_without_our_settings_a_folder_is_read_as_one_of_a_hub(kind, saved, tmp_path):
    _, folder = saved[kind]
    shutil.copytree(folder, tmp_path / "hub")
    (tmp_path / "hub" / SETTINGS).unlink()
    more = {"answer_length": 8} if kind == "donut" else {}
    loaded = load(kind, tmp_path / "hub", LABELS, **more)
    most = {"answers": 32, "donut": 40}.get(kind, 24)
    assert loaded.reading()["max_length"] == most
    assert loaded.reading().get("box_step", 1) == 1
    assert torch.isfinite(loaded.loss(batch_of(loaded)))


# Heads


TAGGERS = pytest.mark.parametrize("kind", ["layoutlmv3", "roberta"])


def head(model):
    return {n: t for n, t in bytes_of(model.network).items() if n.startswith("classifier")}


def body(model):
    return {n: t for n, t in bytes_of(model.network).items() if not n.startswith("classifier")}


@TAGGERS
def test_the_head_stays_for_the_same_labels_and_is_drawn_for_all_others(kind, saved):
    model, folder = saved[kind]
    loaded_from = functools.partial(load, kind)
    assert loaded_from(folder).tags == loaded_from(folder, list(LABELS)).tags == model.tags
    assert head(loaded_from(folder, list(LABELS))) == head(model)
    for other in (["provider"], ["total", "provider"], ["vat", "date"]):
        loaded = seeded_model(lambda other=other: loaded_from(folder, other), 1)
        assert loaded.tags == ["O", f"B-{other[0]}", f"I-{other[0]}"] + [
            f"{prefix}-{label}" for label in other[1:] for prefix in "BI"
        ]
        assert body(loaded) == body(model)
        assert head(loaded)["classifier.weight"] != head(model)["classifier.weight"]
        assert loaded.network.classifier.weight.shape[0] == len(loaded.tags)
        assert not loaded.network.classifier.bias.any()


@TAGGERS
def test_a_head_drawn_for_other_labels_depends_on_the_seed_alone(kind, saved):
    def drawn(seed):
        return head(seeded_model(lambda: load(kind, saved[kind][1], ["x", "y"]), seed))

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)


def test_a_tagger_can_be_the_beginning_of_an_answerer(saved):
    model, folder = saved["layoutlmv3"]
    loaded = ANSWERS(pretrained=folder)
    assert loaded.network.qa_outputs.out_proj.weight.shape[0] == 2
    trunk = bytes_of(model.network.layoutlmv3)
    assert bytes_of(loaded.network.layoutlmv3) == trunk


def test_an_image_can_be_left_out_of_a_model_that_saw_them_but_not_added(saved):
    _, folder = saved["layoutlmv3"]
    blind = layoutlmv3(pretrained=folder, image=False)
    assert not [n for n, _ in blind.named_parameters() if "patch_embed" in n]
    assert not blind.encode(SMALL).shared
    _, without = saved["without image"]
    with pytest.raises(ValueError, match=r"^image=True: the network in .* reads no image; take"):
        layoutlmv3(pretrained=without, image=True)


def test_prompt_tokens_are_added_to_a_decoder_that_lacks_them(tmp_path):
    """As to naver-clova-ix/donut-base, whose embedding is as large as its vocabulary."""
    model = seeded_model(donut, 0)
    words = Subwords.shipped()
    model.network.decoder.resize_token_embeddings(words.size)
    model.network.save_pretrained(tmp_path)
    words.save_pretrained(tmp_path)
    loaded = donut(pretrained=tmp_path, max_length=48, answer_length=12, image_size=(64, 64))
    rows = loaded.network.decoder.get_input_embeddings().weight
    assert rows.shape[0] == words.size + len(MARKS)
    assert torch.equal(rows[: words.size], model.network.decoder.get_input_embeddings().weight)
    assert loaded.network.decoder.lm_head.weight is rows
    loss = loaded.loss(batch_of(loaded))
    loss.backward()
    assert loss.isfinite()
    assert rows.grad[words.size :].any()


# Settings


def test_settings_are_empty_where_there_are_none_and_an_error_where_they_are_broken(tmp_path):
    assert settings_of(tmp_path) == settings_of("owner/model") == {}
    (tmp_path / SETTINGS).write_text('{"max_length": 7}', "utf-8")
    assert settings_of(tmp_path) == {"max_length": 7}
    for broken in ("{", "[1]", "\x00"):
        (tmp_path / SETTINGS).write_text(broken, "utf-8")
        with pytest.raises(DataError, match=r"fedpriv\.json.*: not the settings of a model"):
            settings_of(tmp_path)


def test_settings_are_json_that_a_person_can_read(saved):
    text = (saved["layoutlmv3"][1] / SETTINGS).read_text("utf-8")
    settings = json.loads(text)
    assert settings["model"] == "layoutlmv3"
    assert settings["labels"] == list(LABELS)
    assert (settings["max_length"], settings["image_size"], settings["box_step"]) == (24, 16, 40)
    assert text.count("\n") > 5


def test_a_window_longer_than_the_saved_positions_is_refused(saved):
    for kind, most in (("layoutlmv3", 24), ("answers", 32), ("roberta", 24), ("donut", 40)):
        with pytest.raises(ValueError, match=rf"^max_length=99: .* has positions for {most} tok"):
            load(kind, saved[kind][1], max_length=99)


# Published sizes, from the published `config.json` of each, on no memory at all

LAYOUTLMV3 = LayoutLMv3Config(
    vocab_size=50265, hidden_size=768, num_hidden_layers=12, num_attention_heads=12,
    intermediate_size=3072, max_position_embeddings=514, type_vocab_size=1, input_size=224,
    patch_size=16, coordinate_size=128, shape_size=128, rel_pos_bins=32, max_rel_pos=128,
    rel_2d_pos_bins=64, max_rel_2d_pos=256, max_2d_position_embeddings=1024, num_labels=5,
)  # fmt: skip
ROBERTA = RobertaConfig(
    vocab_size=50265, hidden_size=768, num_hidden_layers=12, num_attention_heads=12,
    intermediate_size=3072, max_position_embeddings=514, type_vocab_size=1, num_labels=5,
)  # fmt: skip


def published_donut():
    encoder = DonutSwinConfig(
        image_size=[2560, 1920], patch_size=4, embed_dim=128, depths=[2, 2, 14, 2],
        num_heads=[4, 8, 16, 32], window_size=10, mlp_ratio=4.0, qkv_bias=True,
    )  # fmt: skip
    decoder = MBartConfig(
        vocab_size=57525 + 5, d_model=1024, decoder_layers=4, decoder_attention_heads=16,
        decoder_ffn_dim=4096, encoder_layers=12, max_position_embeddings=1536, is_decoder=True,
        add_cross_attention=True, is_encoder_decoder=False,
    )  # fmt: skip
    return VisionEncoderDecoderModel(
        encoder=DonutSwinModel(encoder), decoder=MBartForCausalLM(decoder)
    )


def published_answers():
    config = LayoutLMv3Config.from_dict({**LAYOUTLMV3.to_dict(), "num_labels": 2})
    return LayoutLMv3ForQuestionAnswering(config)


PUBLISHED = {
    "layoutlmv3": (
        lambda: layoutlmv3(LABELS, size="base"),
        lambda: LayoutLMv3ForTokenClassification(LAYOUTLMV3),
        125_330_821,
    ),
    "answers": (
        lambda: layoutlmv3(size="base", task="answers"),
        published_answers,
        125_919_106,
    ),
    "roberta": (
        lambda: roberta(LABELS, size="base"),
        lambda: RobertaForTokenClassification(ROBERTA),
        124_058_885,
    ),
    "donut": (
        lambda: donut(size="base", image_size=(2560, 1920)),
        published_donut,
        201_857_144,
    ),
}


@pytest.mark.parametrize("kind", PUBLISHED)
def test_base_models_have_the_names_and_shapes_of_the_published_ones(kind):
    ours, theirs, count = PUBLISHED[kind]
    with torch.device("meta"):
        model, network = ours(), theirs()
    assert type(model.network) is type(network)
    shapes = [
        {name: tuple(p.shape) for name, p in m.named_parameters()} for m in (model.network, network)
    ]
    assert shapes[0] == shapes[1]
    assert sum(np.prod(shape) for shape in shapes[0].values()) == count
    config = model.network.config
    size = getattr(config, "decoder", config).vocab_size
    assert max(model.reader.subwords.tokenizer.get_vocab().values()) < size
