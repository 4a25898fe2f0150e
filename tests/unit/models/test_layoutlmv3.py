"""LayoutLMv3: what it reads off a document, and that the tiny one is sound and learns."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from model_checks import LABELS as SMALL_LABELS
from model_checks import (
    SMALL,
    batch_of,
    check_alone_or_together_the_answers_are_the_same,
    check_dropout_is_the_seeds_and_each_examples_own,
    check_every_parameter_learns,
    check_every_way_gives_what_the_loop_gives,
    check_gradients_of_gradients,
)
from transformers import LayoutLMv3Config, LayoutLMv3ForTokenClassification, PreTrainedTokenizerFast
from transformers.models.layoutlmv3.modeling_layoutlmv3 import LayoutLMv3Encoder

from fedpriv.data.document import Document, DocumentSet, Entity, Word
from fedpriv.data.partition import HoldOut, Iid
from fedpriv.federation.dataset import DocumentData
from fedpriv.models.base import DocumentModel, Tagger
from fedpriv.models.layoutlmv3 import (
    layoutlmv3,
)
from fedpriv.models.layoutlmv3_network import LayoutLMv3Encoder as OurEncoder
from fedpriv.models.readers.reader import IGNORED, Reader
from fedpriv.models.readers.subwords import CLS, PAD, SEP, Subwords
from fedpriv.models.tagging import tags_of
from fedpriv.runtime.torch_state import seeded_model
from fedpriv.training.per_example import PerExample

LABELS = ["date", "total"]
TAGS = ["O", "B-date", "I-date", "B-total", "I-total"]
RED = np.broadcast_to(np.array([255, 0, 0], np.uint8), (50, 100, 3))


def document(*words, entities=(), size=(200, 100), name="d"):
    return Document(name, "provider", RED, size, tuple(words), tuple(entities))


INVOICE = document(
    Word("Date", (20, 10, 50, 20), 0),
    Word("2024-05-01", (60, 12, 120, 22), 0),
    Word("Total", (20, 50, 60, 60), 1),
    Word("99", (150, 50, 199, 75), 2),
    entities=[Entity("date", (1,)), Entity("total", (2, 3))],
)


def long_document(words, name="long"):
    return document(
        *(Word(f"w{k}", (k % 90, 0, k % 90 + 9, 9), k) for k in range(words)),
        entities=[Entity("date", (k,)) for k in range(0, words, 3)],
        name=name,
    )


@pytest.fixture
def tiny():
    return seeded_model(lambda: layoutlmv3(LABELS), 0)


def reader(**more):
    return Reader(Subwords.shipped(), **{"max_length": 24, "image_size": 16, **more})


# Reading


def test_tags_are_outside_then_begin_and_inside_of_each_label():
    assert tags_of(LABELS) == TAGS
    assert tags_of([]) == ["O"]


def test_tokens_stand_between_the_special_ones_and_padding():
    subwords = Subwords.shipped()
    tokens = [t for p in subwords.pieces(["Date", "2024-05-01", "Total", "99"]) for t in p]
    batch = reader().read([INVOICE], TAGS).batch(np.array([0]))
    padding = [subwords.pad] * (24 - 2 - len(tokens))
    assert batch["input_ids"][0].tolist() == [subwords.cls, *tokens, subwords.sep, *padding]
    assert batch["attention_mask"][0].tolist() == [1] * (len(tokens) + 2) + [0] * len(padding)


def test_the_first_token_of_a_word_carries_its_label_and_its_number_and_no_other_does():
    lengths = [len(p) for p in Subwords.shipped().pieces(["Date", "2024-05-01", "Total", "99"])]
    assert lengths[1] > 1
    batch = reader().read([INVOICE], TAGS).batch(np.array([0]))
    labels, word = [IGNORED] * 24, [-1] * 24
    start = 1
    for number, (length, label) in enumerate(zip(lengths, [0, 1, 3, 4], strict=True)):
        labels[start], word[start] = label, number
        start += length
    assert batch["labels"][0].tolist() == labels
    assert batch["word"][0].tolist() == word


def test_boxes_are_those_of_the_segment_in_thousandths_of_the_page():
    examples = reader().read([INVOICE], TAGS)
    batch = examples.batch(np.array([0]))
    boxes = {
        number: batch["bbox"][0][batch["word"][0] == number].tolist()[0] for number in range(4)
    }
    # Words 0 and 1 share a line: 20…120 of 200 wide, 10…22 of 100 high.
    assert boxes == {
        0: [100, 100, 600, 220],
        1: [100, 100, 600, 220],
        2: [100, 500, 300, 600],
        3: [750, 500, 995, 750],
    }


def test_every_token_of_a_word_has_its_box_and_special_ones_have_none():
    batch = reader().read([INVOICE], TAGS).batch(np.array([0]))
    tokens = int(batch["attention_mask"].sum()) - 2
    boxes = batch["bbox"][0].tolist()
    second = len(Subwords.shipped().pieces(["Date"])[0]) + 2
    assert boxes[second] == [100, 100, 600, 220]
    assert boxes[0] == boxes[tokens + 1] == boxes[23] == [0, 0, 0, 0]


def test_a_box_step_rounds_coordinates_down():
    batch = reader(box_step=40).read([INVOICE], TAGS).batch(np.array([0]))
    boxes = batch["bbox"][0][batch["word"][0] >= 0].tolist()
    assert boxes == [
        [80, 80, 600, 200],
        [80, 80, 600, 200],
        [80, 480, 280, 600],
        [720, 480, 960, 720],
    ]


def test_boxes_over_the_edge_end_at_the_edge():
    over = document(Word("x", (-5, -1, 230, 100), 0))
    batch = reader().read([over], TAGS).batch(np.array([0]))
    assert batch["bbox"][0][1].tolist() == [0, 0, 1000, 1000]


@given(st.integers(1, 3000), st.data())
def test_whole_pixels_are_scaled_without_a_rounding_error(width, data):
    x = data.draw(st.integers(0, width))
    one = document(Word("x", (0, 0, x, 1), 0), size=(width, 1))
    batch = reader().read([one], TAGS).batch(np.array([0]))
    assert batch["bbox"][0][1].tolist() == [0, 0, 1000 * x // width, 1000]


def test_the_page_is_shrunk_to_a_square_of_bytes_red_first():
    batch = reader().read([INVOICE], TAGS).batch(np.array([0]))
    assert batch["pixels"].shape == (1, 3, 16, 16)
    assert batch["pixels"].dtype == torch.uint8
    assert batch["pixels"][0].flatten(1).unique(dim=1).tolist() == [[255], [0], [0]]


def test_a_long_document_becomes_windows_that_share_its_page():
    docs = [INVOICE, long_document(30), INVOICE]
    examples = reader(max_length=12).read(docs, TAGS)
    owners = examples.column("document").tolist()
    assert owners == sorted(owners)
    assert owners.count(1) > 3
    assert examples.shared["pixels"][0].shape[0] == 3
    rows = np.flatnonzero(np.array(owners) == 1)
    batch = examples.batch(rows)
    assert batch["input_ids"].shape == (len(rows), 12)
    numbers = batch["word"][batch["word"] >= 0].tolist()
    assert numbers == list(range(30))
    assert (batch["input_ids"][:, 0] == Subwords.shipped().cls).all()


def test_a_blank_page_is_one_window_without_labels():
    batch = reader().read([document()], TAGS).batch(np.array([0]))
    assert batch["attention_mask"][0].tolist() == [1, 1] + [0] * 22
    assert (batch["labels"] == IGNORED).all()
    assert (batch["word"] == -1).all()


def test_a_label_that_the_model_does_not_know_is_refused():
    odd = document(Word("x", (0, 0, 1, 1), 0), entities=[Entity("vat", (0,))], name="page-7")
    with pytest.raises(ValueError, match=r"^document page-7: labels \['vat'\] are not the model's"):
        reader().read([odd], TAGS)


# The tiny model


def test_it_is_a_document_model_of_about_100_000_parameters(tiny):
    assert isinstance(tiny, DocumentModel)
    assert 90_000 < sum(p.numel() for p in tiny.parameters()) < 110_000
    assert tiny.tags == TAGS


def test_there_is_a_score_for_each_tag_of_each_token(tiny):
    batch = tiny.encode([INVOICE, long_document(200)]).batch(np.arange(3))
    assert tiny(batch).shape == (3, 128, 5)


def test_padding_changes_no_score():
    short = seeded_model(lambda: layoutlmv3(LABELS, max_length=128), 0).eval()
    batch = short.encode([INVOICE]).batch(np.array([0]))
    cut = {k: v[:, :40] if v.ndim > 1 and v.shape[1] == 128 else v for k, v in batch.items()}
    used = int(batch["attention_mask"].sum())
    assert used < 40
    with torch.no_grad():
        torch.testing.assert_close(short(batch)[:, :used], short(cut)[:, :used])


def test_the_loss_is_the_mean_cross_entropy_of_first_tokens(tiny):
    batch = tiny.encode([INVOICE, INVOICE]).batch(np.array([0, 1]))
    scores = tiny(batch).detach().double()
    terms = [
        -scores[row, place].log_softmax(-1)[batch["labels"][row, place]].item()
        for row, place in torch.nonzero(batch["labels"] != IGNORED).tolist()
    ]
    assert len(terms) == 8
    assert tiny.loss(batch).item() == pytest.approx(np.mean(terms), rel=1e-5)


def test_a_blank_page_has_loss_zero_and_gradient_zero(tiny):
    loss = tiny.loss(tiny.encode([document()]).batch(np.array([0])))
    loss.backward()
    assert loss.item() == 0
    assert not any(p.grad.any() for p in tiny.parameters() if p.grad is not None)


@pytest.mark.parametrize("seed", range(3))
def test_gradients_are_of_order_one_to_ten_from_the_first_step(seed):
    model = seeded_model(lambda: layoutlmv3(LABELS), seed)
    model.loss(model.encode([INVOICE, long_document(40)]).batch(np.arange(2))).backward()
    norms = {n: p.grad.norm().item() for n, p in model.named_parameters() if p.requires_grad}
    total = math.hypot(*norms.values())
    assert 0.5 < total < 20
    # No single tensor in front of a LayerNorm drowns all others.
    assert max(norms.values()) < 0.9 * total
    assert all(norms.values())


def test_relative_positions_cannot_learn_and_are_frozen(tiny):
    frozen = {name for name, p in tiny.named_parameters() if not p.requires_grad}
    assert {name.rsplit(".", 2)[-2] for name in frozen} == {
        "rel_pos_bias",
        "rel_pos_x_bias",
        "rel_pos_y_bias",
    }


@pytest.mark.parametrize("sizes", [{}, {"size": "base"}], ids=["tiny", "base"])
def test_attention_biases_are_those_of_transformers_to_the_bit(sizes):
    with torch.device("meta"):
        config = layoutlmv3(LABELS, **sizes).network.config
    config.num_hidden_layers = 1  # the biases are those of every layer
    ours, theirs = OurEncoder(config), LayoutLMv3Encoder(config)
    theirs.load_state_dict(ours.state_dict())
    generator = torch.Generator().manual_seed(0)
    # All that can occur: text from its first position on, then more patches than positions.
    positions = torch.cat([torch.arange(2, 514), torch.arange(800)]).expand(2, -1)
    boxes = torch.randint(0, 1001, (2, positions.shape[1], 4), generator=generator)
    boxes[:, :2] = torch.tensor([[0], [1000]])  # the farthest apart
    for name, where in [("_cal_1d_pos_emb", positions), ("_cal_2d_pos_emb", boxes)]:
        biases = getattr(ours, name)(where)
        with torch.no_grad():
            assert torch.equal(biases, getattr(theirs, name)(where))


def test_it_learns_two_documents(tiny):
    other = document(
        Word("Sum", (10, 10, 40, 20), 0),
        Word("12.50", (50, 10, 90, 20), 0),
        Word("May", (10, 80, 40, 90), 1),
        entities=[Entity("total", (1,)), Entity("date", (2,))],
    )
    examples = tiny.encode([INVOICE, other])
    batch = examples.batch(np.arange(2))
    optimizer = torch.optim.AdamW([p for p in tiny.parameters() if p.requires_grad], lr=4e-3)
    losses = []
    for _ in range(25):
        optimizer.zero_grad()
        loss = tiny.loss(batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[0] > 1
    assert losses[-1] < 0.1 * losses[0]
    tiny.eval()
    with torch.no_grad():
        scores = tiny.evaluate(examples)
        assert tiny.tag(INVOICE) == INVOICE.tags()
    assert scores["f1"] == scores["f1/date"] == scores["f1/total"] == 1
    assert scores["loss"] < 0.2


@pytest.mark.parametrize("words", [1, 30, 300])
def test_every_word_of_a_document_is_tagged_once(tiny, words):
    model, page = tiny.eval(), long_document(words)
    with torch.no_grad():
        tags = model.tag(page)
    assert len(tags) == words
    assert set(tags) <= set(TAGS)
    numbers = model.encode([page]).column("word")
    assert sorted(numbers[numbers >= 0].tolist()) == list(range(words))


def test_scores_are_of_whole_documents_in_the_order_of_their_words(tiny, monkeypatch):
    seen = []
    monkeypatch.setattr(
        "fedpriv.models.tagging.entity_scores",
        lambda true, predicted: seen.append((true, predicted)) or {"f1": 0.5},
    )
    docs = [long_document(150, "one"), INVOICE, document(), long_document(70, "two")]
    examples = tiny.encode(docs)
    backwards = examples.take(np.arange(len(examples))[::-1])
    with torch.no_grad():
        scores = tiny.eval().evaluate(backwards)
        ((true, predicted),) = seen
        assert predicted == [tiny.tag(page) for page in docs if page.words]
    assert true == [page.tags() for page in docs if page.words]
    assert scores["f1"] == 0.5


def test_the_loss_of_an_evaluation_weighs_labelled_tokens_not_batches(tiny, monkeypatch):
    monkeypatch.setattr("fedpriv.models.tagging.EVALUATION_BATCH", 1)
    tiny.eval()
    examples = tiny.encode([INVOICE, long_document(40)])
    assert len(examples) == 2
    with torch.no_grad():
        apart = [tiny.loss(examples.batch(np.array([k]))).item() for k in (0, 1)]
        scores = tiny.evaluate(examples)
    assert scores["loss"] == pytest.approx((4 * apart[0] + 40 * apart[1]) / 44, rel=1e-5)


def test_held_out_pages_without_words_can_be_evaluated(tiny):
    with torch.no_grad():
        assert tiny.eval().evaluate(tiny.encode([document()]))["f1"] == 0


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"hidden_size": 40}, r"hidden_size=40 must be a multiple of 16 and image_size=32 a mul"),
        ({"image_size": 30}, r"hidden_size=32 must be a multiple of 16 and image_size=30 a mul"),
    ],
)
def test_sizes_that_do_not_divide_are_refused(sizes, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        layoutlmv3(LABELS, **sizes)


@pytest.mark.parametrize(
    "sizes", [{"hidden_size": 16}, {"hidden_size": 64, "layers": 1}, {"image_size": 64}]
)
def test_other_sizes_build_and_run(sizes):
    model = layoutlmv3(LABELS, max_length=16, **sizes)
    assert model.loss(model.encode([INVOICE]).batch(np.array([0]))).isfinite()


# With and without image, and gradients


def small(**more):
    settings = {"max_length": 24, "image_size": 16, "hidden_size": 16, "layers": 1, **more}
    return seeded_model(lambda: layoutlmv3(SMALL_LABELS, **settings), 0)


IMAGES = pytest.mark.parametrize("image", [True, False])


def test_the_parts_that_fine_tuning_names(tiny):
    network = tiny.network
    assert tiny.blocks() == list(network.layoutlmv3.encoder.layer)
    assert tiny.head() == [network.classifier]
    assert tiny.visual() == [network.layoutlmv3.patch_embed, network.layoutlmv3.norm]


def test_without_image_nothing_of_it_travels_or_is_read():
    model = small(image=False)
    assert isinstance(model, Tagger)
    names = " ".join(name for name, _ in model.named_parameters())
    assert not [part for part in ("patch_embed", "cls_token", "pos_embed") if part in names]
    assert not model.encode(SMALL).shared
    assert model.visual() == []


def test_without_image_the_scores_are_those_of_transformers_without_pixels():
    blind = small(image=False).eval()
    seeing = small().eval()
    seeing.network.load_state_dict(blind.network.state_dict(), strict=False)
    batch = batch_of(seeing, SMALL)
    expected = seeing.network(
        **{name: batch[name] for name in ("input_ids", "attention_mask", "bbox")}
    ).logits
    assert torch.equal(blind(batch_of(blind, SMALL)), expected)
    assert not torch.equal(seeing(batch), expected)


@IMAGES
def test_every_trainable_parameter_gets_a_gradient(image):
    check_every_parameter_learns(small(image=image))


@IMAGES
def test_per_example_gradients_by_vmap_are_those_of_the_loop(image):
    check_every_way_gives_what_the_loop_gives(small(image=image), SMALL[:2])


def test_dropout_is_each_examples_own():
    check_dropout_is_the_seeds_and_each_examples_own(small(dropout=0.2), SMALL[:2])


def test_gradients_have_gradients():
    check_gradients_of_gradients(small())


def test_answers_do_not_depend_on_the_neighbours():
    check_alone_or_together_the_answers_are_the_same(small(initializer_range=0.5))


def test_sizes_are_chosen_by_name():
    assert layoutlmv3(LABELS, image=False, dropout=0.2).network.config.hidden_dropout_prob == 0.2
    with torch.device("meta"):
        assert layoutlmv3(LABELS, size="base").network.config.hidden_size == 768
    with pytest.raises(ValueError, match=r"^size='large': expected 'tiny' or 'base'$"):
        layoutlmv3(LABELS, size="large")
    with pytest.raises(ValueError, match=r"^max_length=600: size='base' has positions for 512"):
        layoutlmv3(LABELS, size="base", max_length=600)


# From a folder


def config(labels=5):
    subwords = Subwords.shipped()
    return LayoutLMv3Config(
        vocab_size=subwords.size,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=34,
        coordinate_size=2,
        shape_size=4,
        input_size=16,
        patch_size=8,
        pad_token_id=subwords.pad,
        bos_token_id=subwords.cls,
        eos_token_id=subwords.sep,
        num_labels=labels,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A pretrained model as transformers saves it."""
    path = tmp_path_factory.mktemp("pretrained")
    torch.manual_seed(0)
    LayoutLMv3ForTokenClassification(config()).save_pretrained(path)
    PreTrainedTokenizerFast(
        tokenizer_object=Subwords.shipped().tokenizer, cls_token=CLS, sep_token=SEP, pad_token=PAD
    ).save_pretrained(path)
    return path


def state_of(folder):
    return LayoutLMv3ForTokenClassification.from_pretrained(folder).state_dict()


def test_pretrained_weights_arrive_bit_by_bit(folder):
    model = layoutlmv3(LABELS, pretrained=folder, max_length=32)
    saved = state_of(folder)
    loaded = model.network.state_dict()
    assert list(loaded) == list(saved)
    for name, tensor in saved.items():
        assert loaded[name].numpy().tobytes() == tensor.numpy().tobytes()
    assert model.reader.box_step == 1
    assert (model.reader.max_length, model.reader.image_size) == (32, 16)


def test_a_head_for_other_labels_is_drawn_anew_and_all_else_is_kept(folder):
    model = layoutlmv3(["a", "b", "c"], pretrained=folder, max_length=32)
    saved = state_of(folder)
    for name, tensor in model.network.layoutlmv3.state_dict().items():
        assert torch.equal(tensor, saved[f"layoutlmv3.{name}"])
    page = document(Word("x", (0, 0, 1, 1), 0), entities=[Entity("c", (0,))])
    batch = model.encode([page]).batch(np.array([0]))
    assert model(batch).shape == (1, 32, 7)
    assert model.loss(batch).item() > 0


def test_the_drawn_head_depends_on_the_seed_alone(folder):
    def head(seed):
        model = seeded_model(lambda: layoutlmv3(["a"], pretrained=folder, max_length=32), seed)
        return {name: t for name, t in model.network.state_dict().items() if "classifier" in name}

    one, two, other = head(1), head(1), head(2)
    assert all(torch.equal(tensor, two[name]) for name, tensor in one.items())
    assert not all(torch.equal(tensor, other[name]) for name, tensor in one.items())


def test_a_pretrained_model_is_in_float32_and_its_relative_positions_are_frozen(folder):
    model = layoutlmv3(LABELS, pretrained=folder, max_length=32)
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    frozen = [name for name, p in model.named_parameters() if not p.requires_grad]
    assert frozen
    assert all("rel_pos" in name for name in frozen)


def test_the_longest_window_runs_and_a_longer_one_is_refused(folder):
    # 34 positions, of which RoBERTa's counting leaves out padding's and those before it.
    model = layoutlmv3(LABELS, pretrained=folder, max_length=32)
    with torch.no_grad():
        assert len(model.eval().tag(long_document(60))) == 60
    with pytest.raises(ValueError, match=rf"^max_length=33: {folder} has positions for 32 tokens$"):
        layoutlmv3(LABELS, pretrained=folder, max_length=33)


def test_a_missing_folder_is_an_os_error(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(OSError, match=r"nowhere"):
        layoutlmv3(LABELS, pretrained=tmp_path / "nowhere")


# Documents and clients


class Pages:
    """Six documents, of one to many windows."""

    def load(self):
        sizes = [3, 200, 5, 1, 150, 40]
        docs = tuple(
            replace(long_document(size, f"d{k}"), page=np.full((100, 200, 3), 255, np.uint8))
            for k, size in enumerate(sizes)
        )
        return DocumentSet("pages", docs, ("date", "total"))


def test_every_client_gets_the_windows_of_its_own_documents():
    bound = DocumentData(Pages(), Iid(3), HoldOut(fraction=0.2)).bind(layoutlmv3, seed=1)
    held = [name for names in bound.partition["test"].values() for name in names]
    assert len(held) == 1
    lengths = {f"d{k}": size for k, size in enumerate([3, 200, 5, 1, 150, 40])}
    rows = [row for client in bound.rows for row in client]
    assert sorted(rows) == list(range(len(bound.train)))
    for client, own in enumerate(bound.rows):
        (names,) = bound.partition["clients"][str(client)].values()
        word = bound.train.take(own).column("word")
        assert (word >= 0).sum() == sum(lengths[name] for name in names)
    assert (bound.test.column("word") >= 0).sum() == lengths[held[0]]


def test_nothing_held_out_means_no_test_examples():
    bound = DocumentData(Pages(), Iid(2), HoldOut(fraction=0)).bind(layoutlmv3, seed=1)
    assert bound.test is None
    assert bound.showcase is None


def test_a_model_that_cannot_read_documents_is_refused():
    def linear(labels):
        return torch.nn.Linear(2, len(labels))

    with pytest.raises(TypeError, match=r"^Linear cannot encode documents$"):
        DocumentData(Pages(), Iid(2)).bind(linear, seed=0)


def test_fused_attention_computes_the_same():
    documents = [long_document(60), INVOICE]
    losses, gradients = [], []
    for attention in ("eager", "sdpa"):
        model = seeded_model(lambda kind=attention: layoutlmv3(LABELS, attention=kind), 0).double()
        batch = model.encode(documents).batch(np.arange(2))  # the second is padded
        loss = model.train().loss(batch)
        loss.backward()
        losses.append(loss.item())
        named = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
        gradients.append(torch.cat(named))
    assert losses[1] == pytest.approx(losses[0], rel=1e-12)
    assert (gradients[1] - gradients[0]).norm() < 1e-12 * gradients[0].norm()


def test_fused_attention_drops_out_and_has_gradients_of_examples():
    model = seeded_model(lambda: layoutlmv3(LABELS, attention="sdpa", dropout=0.5), 0)
    examples = model.encode([INVOICE, long_document(9)])
    batch = examples.batch(np.arange(2))
    assert model.train().loss(batch) != model.loss(batch)
    assert model.eval().loss(batch) == model.loss(batch)
    loop, vmap = (
        PerExample(method=way).clipped_sum(model, examples, 0.1).total for way in ("loop", "vmap")
    )
    np.testing.assert_allclose(vmap, loop, atol=1e-6)


def test_another_attention_is_refused():
    with pytest.raises(ValueError, match="attention='flash': expected 'sdpa' or 'eager'"):
        layoutlmv3(LABELS, attention="flash")
