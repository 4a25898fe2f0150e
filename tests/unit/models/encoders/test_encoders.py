"""LayoutLM, BROS and BERT with their heads: what they read, how they learn, folders."""

import dataclasses
import functools
from typing import get_args

import numpy as np
import pytest
import torch
from model_checks import (
    LABELS,
    batch_of,
    check_alone_or_together_the_answers_are_the_same,
    check_dropout_is_the_seeds_and_each_examples_own,
    check_every_parameter_learns,
    check_every_way_gives_what_the_loop_gives,
    check_gradients_of_gradients,
    learn,
)
from pages import page
from torch import nn
from transformers import AutoModel, BeitConfig, BeitModel

from fedpriv.data.document import DataError, Entity, Question
from fedpriv.models.base import Answer, Tagger
from fedpriv.models.encoders.backbones import bert, bros, layoutlm
from fedpriv.models.encoders.encoder import Encoder
from fedpriv.models.field_model import VISUAL, FieldModel, Task, TokenModel
from fedpriv.models.heads.heads import HEADS
from fedpriv.models.saving import HEAD, SETTINGS
from fedpriv.runtime.torch_state import seeded_model
from fedpriv.training.per_example import PerExample

RATES = {"layoutlm": 8e-3, "bros": 4e-3, "bert": 8e-3}
WIDTHS = {"layoutlm": 32, "bros": 64, "bert": 32}
BUILDERS = {"layoutlm": layoutlm, "bros": bros, "bert": bert}
BACKBONES = pytest.mark.parametrize("name", BUILDERS)
TASKS = pytest.mark.parametrize("task", ["mlm", "tags"])
IMAGES = pytest.mark.parametrize("image", [False, True], ids=["unimodal", "bimodal"])
SOME = pytest.mark.parametrize(
    ("name", "task"), [("layoutlm", "mlm"), ("bros", "mlm"), ("bert", "tags")]
)
# Every two of backbone, task and image meet.
PAIRS = pytest.mark.parametrize(
    ("name", "task", "image"),
    [
        ("layoutlm", "mlm", True), ("bros", "mlm", False), ("bert", "mlm", True),
        ("layoutlm", "tags", False), ("bros", "tags", True), ("bert", "tags", False),
    ],
)  # fmt: skip
HEADED = [(name, task) for name in BUILDERS for task in ("mlm", "tags")]
HEADED += [("bros", task) for task in HEADS if task not in ("mlm", "tags")]


def letter(words, *, provider, total, name):
    entities = [Entity("provider", provider), Entity("total", total)]
    one = page(words, entities=entities, name=name, size=(200, 100), step=9)
    ink = np.random.default_rng(len(name)).integers(0, 255, (100, 200)).astype(np.uint8)
    asked = (Question("total", "How much?", ()), Question("provider", "Who?", ()))
    return dataclasses.replace(one, page=ink, questions=asked, links=((1, 0),))


DOCUMENTS = [
    letter(
        "vega ltd 12 harbour road invoice number 48 of may goods five total 12.50 thank you",
        provider=(0, 1), total=(13,), name="a",
    ),
    letter(
        "receipt from orion tea bread and milk sum due now 7 paid in cash",
        provider=(2,), total=(10,), name="bb",
    ),
    letter("nothing but words", provider=(0,), total=(1,), name="ccc"),
]  # fmt: skip


def tiny(name, task="tags", image=False, **more):
    settings = {
        "max_length": 48, "hidden_size": WIDTHS[name], "task": task,
        "image_size": 16 if image else None, **more,
    }  # fmt: skip
    return seeded_model(functools.partial(BUILDERS[name], LABELS, **settings), 0)


def bytes_of(module):
    return {name: tensor.numpy().tobytes() for name, tensor in module.state_dict().items()}


def moved(document, word):
    words = list(document.words)
    words[word] = dataclasses.replace(words[word], box=(100, 60, 150, 90))
    return dataclasses.replace(document, words=tuple(words))


# What they are


@PAIRS
def test_they_are_what_an_attack_on_fields_asks_for(name, task, image):
    model = tiny(name, task, image)
    assert isinstance(model, FieldModel)
    assert isinstance(model, TokenModel) == (task == "mlm")
    assert isinstance(model, Tagger) == (task == "tags")
    assert [len(model.blocks()), len(model.head()), len(model.visual())] == [2, 1, image]
    config = model.encoder.network.config
    assert (config.model_type, config.hidden_size) == (name, WIDTHS[name])
    assert model.encoder.word_embeddings.num_embeddings == model.reader.subwords.size
    with torch.no_grad():
        assert model.encoder(batch_of(model, DOCUMENTS)).shape == (3, 48, WIDTHS[name])


def test_the_tiny_sizes_are_as_told():
    counts = {
        name: round(sum(p.numel() for p in build(LABELS).parameters()), -4)
        for name, build in BUILDERS.items()
    }
    assert counts == {"layoutlm": 440_000, "bros": 180_000, "bert": 180_000}


@PAIRS
def test_every_trainable_parameter_gets_a_gradient(name, task, image):
    check_every_parameter_learns(tiny(name, task, image), DOCUMENTS)


@BACKBONES
def test_who_only_tags_answers_and_who_does_not_is_silent(name):
    check_alone_or_together_the_answers_are_the_same(tiny(name), DOCUMENTS)
    assert tiny(name, "mlm").answer(DOCUMENTS[:1]) == [(Answer("", 0.0), Answer("", 0.0))]


# What they read


@BACKBONES
@TASKS
def test_the_place_of_a_word_matters_to_all_but_bert(name, task):
    model = tiny(name, task).eval()
    here, there = (batch_of(model, [d]) for d in (DOCUMENTS[0], moved(DOCUMENTS[0], 3)))
    assert not torch.equal(here["bbox"], there["bbox"])
    with torch.no_grad():
        same = torch.equal(model.encoder(here), model.encoder(there))
    assert same == (name == "bert")


@pytest.mark.parametrize("name", ["layoutlm", "bros"])
def test_words_of_one_segment_have_their_own_boxes(name):
    words = tuple(dataclasses.replace(word, segment=0) for word in DOCUMENTS[0].words)
    (boxes,) = tiny(name).encode([dataclasses.replace(DOCUMENTS[0], words=words)]).column("bbox")
    assert boxes[1].tolist() == [0, 100, 40, 300]  # 0…8 of 200 and 10…30 of 100 pixels
    assert len(np.unique(boxes[:, 0])) > 10


def test_the_tiny_layoutlm_rounds_places_down_and_the_published_one_does_not():
    tiny_one = tiny("layoutlm").eval()
    batch = batch_of(tiny_one, DOCUMENTS[:1])
    inside, beyond = ({**batch, "bbox": batch["bbox"] // 40 * 40 + step} for step in (39, 40))
    with torch.no_grad():
        assert torch.equal(tiny_one.encoder(batch), tiny_one.encoder(inside))
        assert not torch.equal(tiny_one.encoder(batch), tiny_one.encoder(beyond))
        tiny_one.encoder.network.config.box_step = 1
        assert not torch.equal(tiny_one.encoder(batch), tiny_one.encoder(inside))


@BACKBONES
def test_the_vectors_are_those_of_transformers(name, tmp_path):
    """As its own network gives them by ids, boxes and with its pooler."""
    more = {"box_scale": 100.0} if name == "bros" else {}
    model = tiny(name, **more).eval()
    model.encoder.network.config.box_step = 1
    model.save_pretrained(tmp_path)
    network = AutoModel.from_pretrained(tmp_path).double().eval()
    batch = batch_of(model.double(), DOCUMENTS)
    places = {
        "layoutlm": {"bbox": batch["bbox"]}, "bros": {"bbox": batch["bbox"].double() / 1000},
        "bert": {},
    }[name]  # fmt: skip
    with torch.no_grad():
        theirs = network(
            input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], **places
        ).last_hidden_state
        torch.testing.assert_close(model.encoder(batch), theirs)


@BACKBONES
@TASKS
def test_a_page_looked_at_before_gives_the_same(name, task):
    model = tiny(name, task, image=True).eval()
    batch = batch_of(model, DOCUMENTS)
    seen = model.seen(batch)
    assert set(batch) - set(seen) == {"pixels"}
    assert seen[VISUAL].shape == (3, 48, WIDTHS[name])
    assert model.seen(seen) is seen
    with torch.no_grad():
        assert torch.equal(model.losses(batch), model.losses(seen))
        assert torch.equal(model.encoder(batch), model.encoder(seen))
        blank = {**batch, "pixels": torch.full_like(batch["pixels"], 255)}
        assert not torch.equal(model.encoder(batch), model.encoder(blank))
    without = tiny(name, task)
    batch = batch_of(without, DOCUMENTS)
    assert without.seen(batch) is batch


def test_visual_features_are_added_to_the_embedding_of_each_token():
    class Constant(nn.Module):
        def forward(self, pixels, bbox):
            assert pixels.dtype == torch.uint8
            return torch.full((*bbox.shape[:2], 32), 0.5) * bbox[..., :1]

    model = tiny("bert").eval()
    batch = {**batch_of(model, DOCUMENTS), "pixels": torch.zeros(3, 3, 16, 16, dtype=torch.uint8)}
    with torch.no_grad():
        whole = Encoder(model.encoder.network, Constant())(batch)
        embedded = model.encoder.word_embeddings(batch["input_ids"])
        by_hand = model.encoder.network(
            inputs_embeds=embedded + 0.5 * batch["bbox"][..., :1],
            attention_mask=batch["attention_mask"],
        ).last_hidden_state
    torch.testing.assert_close(whole, by_hand)


# Losses


@PAIRS
def test_an_examples_loss_is_its_own(name, task, image):
    model = tiny(name, task, image).double().eval()
    examples = model.encode(DOCUMENTS)
    with torch.no_grad():
        together = model.losses(examples.batch(np.arange(3)))
        alone = [examples.batch(np.array([row])) for row in range(3)]
        assert together.shape == (3,)
        torch.testing.assert_close(together, torch.cat([model.losses(one) for one in alone]))
        torch.testing.assert_close(together, torch.stack([model.loss(one) for one in alone]))
    assert len(set(together.round(decimals=6).tolist())) == 3


@BACKBONES
@TASKS
def test_padding_changes_no_loss(name, task):
    model = tiny(name, task).double().eval()
    batch = batch_of(model, DOCUMENTS[:1])
    used = int(batch["attention_mask"].sum())
    assert used < 40
    cut = {k: column[:, :used] if column.ndim > 1 else column for k, column in batch.items()}
    with torch.no_grad():
        torch.testing.assert_close(model.losses(batch), model.losses(cut))


def test_a_taggers_loss_is_the_mean_over_tokens_and_its_losses_over_each_examples():
    model = tiny("bert").double().eval()
    batch = batch_of(model, DOCUMENTS)
    batch["labels"][2] = -100
    counts = (batch["labels"] != -100).sum(1)
    with torch.no_grad():
        losses = model.losses(batch)
        torch.testing.assert_close(model.loss(batch), (losses * counts).sum() / counts.sum())
    assert losses[2] == 0


@pytest.mark.slow
@BACKBONES
@IMAGES
def test_the_tags_of_two_documents_can_be_learnt_by_heart(name, image):
    model = tiny(name, "tags", image)
    first, last = learn(model, DOCUMENTS[:2], 25, RATES[name])
    assert first > 1
    assert last < 0.1 * first
    with torch.no_grad():
        assert model.evaluate(model.encode(DOCUMENTS[:2]))["f1"] == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "image"), [("layoutlm", False), ("bros", False), ("bert", False), ("layoutlm", True)]
)
def test_the_words_of_two_documents_can_be_learnt_by_heart(name, image):
    model = tiny(name, "mlm", image)
    examples = model.encode(DOCUMENTS[:2])
    with torch.no_grad():
        before = model.eval().evaluate(examples)["loss"]
        learnt = torch.enable_grad()(learn)(model, DOCUMENTS[:2], 60, RATES[name])
        after = model.evaluate(examples)["loss"]
    assert before > 6
    assert after < 0.6 * before
    assert learnt[1] < 0.6 * learnt[0]


# Gradients


@BACKBONES
@IMAGES
def test_per_example_gradients_by_vmap_are_those_of_the_loop(name, image):
    # BROS multiplies by a projection's weight itself; the image's network has frozen BatchNorm.
    model, ghost = tiny(name, "tags", image), name != "bros" and not image
    check_every_way_gives_what_the_loop_gives(model, DOCUMENTS, ghost)


@SOME
def test_dropout_and_masks_are_each_examples_own(name, task):
    check_dropout_is_the_seeds_and_each_examples_own(tiny(name, task, dropout=0.2), DOCUMENTS)


@BACKBONES
def test_gradients_have_gradients(name):
    more = {} if name == "bros" else {"attention": "eager"}
    check_gradients_of_gradients(tiny(name, **more), wanted="none", documents=DOCUMENTS)


@SOME
def test_examples_of_a_trained_window_have_gradients_by_the_rule(name, task):
    model = tiny(name, task).train()
    found = PerExample().clipped_sum(model, model.encode(DOCUMENTS), 1.0)
    assert found.method == "vmap"
    assert found.nonfinite == 0


# Folders


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Each model by backbone, task and image beside the folder that it was saved in."""
    models = {}
    for name, task in HEADED:
        folder = tmp_path_factory.mktemp(f"{name}-{task}")
        models[name, task] = tiny(name, task, image=task == "mlm"), folder
        models[name, task][0].save_pretrained(folder)
    return models


@pytest.mark.parametrize(("name", "task"), HEADED)
def test_what_is_saved_is_read_back_bit_by_bit(name, task, saved, tmp_path):
    model, folder = saved[name, task]
    loaded = BUILDERS[name](pretrained=folder)
    assert type(loaded) is type(model)
    assert bytes_of(loaded) == bytes_of(model)
    assert loaded.reading() == model.reading()
    assert loaded.training
    mine, theirs = batch_of(model, DOCUMENTS), batch_of(loaded, DOCUMENTS)
    assert all(torch.equal(column, theirs[key]) for key, column in mine.items())
    with torch.no_grad():
        assert torch.equal(model.eval().losses(mine), loaded.eval().losses(theirs))
    loaded.save_pretrained(tmp_path)
    for file in ("config.json", "model.safetensors", HEAD, SETTINGS):
        assert (tmp_path / file).read_bytes() == (folder / file).read_bytes()


@BACKBONES
def test_transformers_reads_the_network(name, saved):
    model, folder = saved[name, "tags"]
    theirs = bytes_of(AutoModel.from_pretrained(folder))
    mine = bytes_of(model.encoder.network)
    assert {key: theirs[key] for key in mine} == mine
    assert {key.split(".")[0] for key in set(theirs) - set(mine)} <= {"pooler"}


@BACKBONES
def test_a_head_for_another_task_or_other_labels_is_drawn_anew(name, saved):
    build = BUILDERS[name]
    model, folder = saved[name, "tags"]
    network = bytes_of(model.encoder.network)
    other = seeded_model(lambda: build(["x", "y"], pretrained=folder), 1)
    assert bytes_of(other.encoder.network) == network
    assert bytes_of(other.classifier)["weight"] != bytes_of(model.classifier)["weight"]
    assert not other.classifier.bias.any()
    masked = build(pretrained=folder, task="mlm")
    assert masked.labels == model.labels
    assert bytes_of(masked.encoder.network) == network
    assert torch.isfinite(masked.loss(batch_of(masked, DOCUMENTS)))


@BACKBONES
def test_the_page_can_be_left_out_or_looked_at_anew(name, saved):
    build = BUILDERS[name]
    model, folder = saved[name, "mlm"]
    assert bytes_of(build(["x"], pretrained=folder, task="tags").encoder.visual) == bytes_of(
        model.encoder.visual
    )
    blind = build(pretrained=folder, image=False)
    assert blind.visual() == []
    assert bytes_of(blind.scores) == bytes_of(model.scores)
    assert not blind.encode(DOCUMENTS).shared
    _, without = saved[name, "tags"]
    assert build(pretrained=without).visual() == []
    assert build(pretrained=without, image=True).reader.image_size == 224
    assert build(pretrained=without, image_size=24).reader.image_size == 24
    assert build(pretrained=folder, image=True).reader.image_size == 16


def tiny_beit(folder, *, width, side):
    sizes = {"hidden_size": width, "intermediate_size": width, "image_size": side, "patch_size": 8}
    config = BeitConfig(**sizes, num_hidden_layers=1, num_attention_heads=2)
    BeitModel(config, add_pooling_layer=False).save_pretrained(folder)
    return folder


@BACKBONES
def test_a_pretrained_beit_reads_the_page_and_comes_back_from_a_folder(name, tmp_path):
    build = BUILDERS[name]
    beit = tiny_beit(tmp_path / "beit", width=16, side=32)
    model = seeded_model(lambda: build(LABELS, visual=beit), 0)
    assert model.reader.image_size == 32
    image_model = model.encoder.visual.network.image_model
    assert bytes_of(image_model) == bytes_of(
        BeitModel.from_pretrained(beit, add_pooling_layer=False)
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.01)
    model.save_pretrained(tmp_path / "model")
    back = build(pretrained=tmp_path / "model")
    assert bytes_of(back) == bytes_of(model)
    batch = batch_of(model, DOCUMENTS)
    assert torch.equal(back.eval().losses(batch), model.eval().losses(batch))
    assert build(pretrained=tmp_path / "model", image=False).visual() == []
    other = tiny_beit(tmp_path / "other", width=8, side=16)
    anew = build(pretrained=tmp_path / "model", visual=other)
    assert anew.reader.image_size == 16
    assert bytes_of(anew.classifier) == bytes_of(model.classifier)
    with pytest.raises(
        ValueError, match=r"image_size=64: .*beit has positions for pages of 32 pix"
    ):
        build(LABELS, visual=beit, image_size=64)
    with pytest.raises(
        ValueError, match=r"^image=False and visual=.*beit: expected one of the two"
    ):
        build(LABELS, visual=beit, image=False)


def test_another_architectures_folder_is_refused(saved):
    _, folder = saved["bros", "tags"]
    with pytest.raises(ValueError, match="holds a model of type 'bros': expected 'layoutlm'"):
        layoutlm(pretrained=folder)


def test_a_broken_head_says_which_file(saved, tmp_path):
    model, _ = saved["bert", "tags"]
    model.save_pretrained(tmp_path)
    (tmp_path / HEAD).write_bytes(b"{")
    with pytest.raises(DataError, match=r"head\.safetensors: not the weights of a head"):
        bert(pretrained=tmp_path)


# Settings


@BACKBONES
def test_sizes_and_tasks_are_chosen_by_name(name, saved):
    build = BUILDERS[name]
    assert build(LABELS, dropout=0.3).encoder.network.config.hidden_dropout_prob == 0.3
    assert build(LABELS, image=True).reader.image_size == 64
    assert build(task="mlm", max_length=32).reader.max_length == 32
    model, folder = saved[name, "tags"]
    assert bytes_of(build(LABELS, size="base", pretrained=str(folder))) == bytes_of(model)
    with torch.device("meta"):
        base = build(LABELS, size="base")
    width = base.encoder.network.config.hidden_size
    assert [width, base.reader.max_length, len(base.blocks())] == [768, 512, 12]
    assert 108e6 < sum(p.numel() for p in base.parameters()) < 113e6
    with pytest.raises(ValueError, match=r"^size='large': expected 'tiny' or 'base'$"):
        build(LABELS, size="large")
    with pytest.raises(ValueError, match=r"^task='answers': expected 'mlm' or 'tags' or "):
        build(LABELS, task="answers")
    with pytest.raises(ValueError, match=r"^image=False and image_size=32: expected one of"):
        build(LABELS, image=False, image_size=32)
    with pytest.raises(ValueError, match=rf"^max_length=513: this {name} has positions for 512"):
        build(LABELS, size="base", max_length=513)


def test_every_task_has_a_head():
    assert [*HEADS] == [head.task for head in HEADS.values()] == [*get_args(Task)]


def test_bros_needs_room_for_its_sines():
    with pytest.raises(ValueError, match=r"^hidden_size=32 must be a multiple of 64"):
        bros(LABELS, hidden_size=32)


@pytest.mark.parametrize("name", ["layoutlm", "bert"])
def test_both_kinds_of_attention_compute_the_same(name):
    sdpa, eager = tiny(name), tiny(name, attention="eager")
    assert sdpa.encoder.network.config._attn_implementation == "sdpa"
    assert eager.encoder.network.config._attn_implementation == "eager"
    batch = batch_of(sdpa, DOCUMENTS)
    torch.testing.assert_close(sdpa(batch), eager(batch), rtol=1e-4, atol=1e-5)
