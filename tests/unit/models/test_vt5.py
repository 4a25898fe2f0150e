"""VT5 against its parts in transformers, its inputs by hand, and what its gradients must be."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import BeitConfig, BeitModel, T5Config, T5ForConditionalGeneration

from fedpriv.data.document import Document, Question, Word
from fedpriv.data.generated.invoices import Invoices
from fedpriv.models.base import Answer, DocumentModel
from fedpriv.models.generation import IGNORED, read_answers, target, token_losses
from fedpriv.models.readers.subwords import Subwords
from fedpriv.models.readers.vt5_reader import VT5Reader
from fedpriv.models.vt5 import vt5
from fedpriv.training.loops import Optimizer, train_epoch
from fedpriv.training.per_example import PerExample

SHIPPED = Subwords.shipped()
PAGE = Document(
    id="page",
    provider="Vega",
    page=np.full((40, 200), 255, np.uint8),
    size=(200, 40),
    words=(Word("TOTAL", (20.0, 4.0, 60.0, 14.0), 0), Word("3,682", (100.0, 4.0, 199.9, 40.0), 0)),
    questions=(
        Question("total", "How much?", ("3,682", "3 682")),
        Question("date", "When?", ("1 May",)),
    ),
)
INVOICES = Invoices(providers=4, documents_per_provider=2, seed=3)


@pytest.fixture
def tiny():
    torch.manual_seed(0)
    return vt5()


def invoices(keys=("provider", "date")):
    return [
        dataclasses.replace(page, questions=tuple(q for q in page.questions if q.key in keys))
        for page in INVOICES.load().documents
    ]


def ids(text):
    return [token for tokens in SHIPPED.pieces(text.split()) for token in tokens]


# What it reads


def test_a_row_is_the_prompt_then_the_words_then_the_end():
    columns = VT5Reader(SHIPPED, max_length=40, answer_length=8).read([PAGE]).columns
    prompt, words = ids("question: how much? context:"), ids("total 3,682")
    length = len(prompt) + len(words)
    row = columns["input_ids"][0]
    assert row[:length].tolist() == prompt + words
    assert row[length] == SHIPPED.sep
    assert (row[length + 1 :] == SHIPPED.pad).all()
    assert columns["attention_mask"][0].tolist() == [1] * (length + 1) + [0] * (39 - length)


def test_prompt_words_and_the_rest_have_the_published_boxes():
    columns = VT5Reader(SHIPPED, max_length=40, answer_length=8).read([PAGE]).columns
    prompt, total = len(ids("question: how much? context:")), len(ids("total"))
    boxes = columns["bbox"][0].tolist()
    assert boxes[:prompt] == [[0, 0, 1000, 1000]] * prompt
    assert boxes[prompt : prompt + total] == [[100, 100, 300, 350]] * total
    assert boxes[prompt + total] == [500, 100, 999, 1000]
    assert boxes[prompt + len(ids("total 3,682")) :] == [[0, 0, 0, 0]] * (
        40 - prompt - len(ids("total 3,682"))
    )


def test_the_published_coordinates_are_nearly_all_zero():
    columns = VT5Reader(SHIPPED, max_length=40, coordinates="published").read([PAGE]).columns
    prompt = len(ids("question: how much? context:"))
    boxes = columns["bbox"][0][prompt:].tolist()
    assert boxes[0] == [0, 0, 0, 0]
    assert boxes[len(ids("total"))] == [0, 0, 0, 1]  # only what is exactly at the edge


def test_labels_are_the_first_accepted_answer_and_its_end():
    columns = VT5Reader(SHIPPED, max_length=40, answer_length=8).read([PAGE]).columns
    answer = [*ids("3,682"), SHIPPED.sep]
    assert columns["labels"][0].tolist() == answer + [IGNORED] * (8 - len(answer))
    assert columns["answers"].tolist() == ["3,682\n3 682", "1 May"]
    assert columns["key"].tolist() == ["total", "date"]


def test_what_is_too_long_is_cut_and_still_ends():
    row = VT5Reader(SHIPPED, max_length=12).read([PAGE]).columns
    assert row["input_ids"][0][-1] == SHIPPED.sep
    assert row["attention_mask"][0].all()
    assert target([5, 6, 7], 3, end=2).tolist() == [5, 6, 7]  # no false ending
    assert target([5, 6], 3, end=2).tolist() == [5, 6, 2]


def test_documents_without_questions_are_refused_and_a_page_among_others_is_not():
    silent = dataclasses.replace(PAGE, questions=())
    reader = VT5Reader(SHIPPED, max_length=40)
    with pytest.raises(ValueError, match="none of the 1 documents has a question"):
        reader.read([silent])
    assert reader.read([silent, PAGE]).column("document").tolist() == [1, 1]


# What it is made of


def test_the_base_model_has_the_names_and_shapes_of_t5_base_and_dit_base():
    # The values of google-t5/t5-base and microsoft/dit-base, as their config.json give them.
    t5 = T5Config(vocab_size=32128, d_model=768, d_kv=64, d_ff=3072, num_layers=12, num_heads=12)
    dit = BeitConfig(
        hidden_size=768, num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072,
        image_size=224, patch_size=16, layer_scale_init_value=0.1,
        use_absolute_position_embeddings=True, use_relative_position_bias=False,
    )  # fmt: skip
    with torch.device("meta"):
        ours = vt5(size="base")
        theirs = {
            **T5ForConditionalGeneration(t5).state_dict(prefix="language_backbone."),
            **BeitModel(dit, add_pooling_layer=False).state_dict(
                prefix="visual_embedding.image_model."
            ),
        }
    own = {
        "spatial_embedding.x_position_embeddings.weight": (1024, 768),
        "spatial_embedding.y_position_embeddings.weight": (1024, 768),
        "spatial_embedding.LayerNorm.weight": (768,),
        "spatial_embedding.LayerNorm.bias": (768,),
        "spatial_embedding.spatial_emb_matcher.layers.0.weight": (768, 768),
        "spatial_embedding.spatial_emb_matcher.layers.0.bias": (768,),
        "visual_embedding.visual_emb_matcher.layers.0.weight": (768, 768),
        "visual_embedding.visual_emb_matcher.layers.0.bias": (768,),
    }
    shapes = {name: tuple(tensor.shape) for name, tensor in ours.state_dict().items()}
    assert shapes == own | {name: tuple(tensor.shape) for name, tensor in theirs.items()}


@pytest.mark.parametrize("train_visual", [False, True])
def test_every_trainable_parameter_learns_and_the_visual_encoder_only_if_asked(train_visual):
    model = vt5(train_visual=train_visual)
    model.loss(model.encode([PAGE]).batch(np.arange(2))).backward()
    for name, parameter in model.named_parameters():
        frozen = "image_model" in name and (not train_visual or "mask_token" in name)
        assert parameter.requires_grad is not frozen, name
        assert (parameter.grad is None) is frozen, name


def test_it_is_a_document_model_of_about_half_a_million_parameters(tiny):
    assert isinstance(tiny, DocumentModel)
    assert 450_000 < sum(p.numel() for p in tiny.parameters()) < 550_000


# What it computes


def test_the_loss_of_one_example_is_t5s_own(tiny):
    batch = tiny.encode(invoices()).batch(np.array([1]))
    theirs = tiny.language_backbone(**tiny.page(batch), labels=batch["labels"]).loss
    assert tiny.loss(batch).item() == pytest.approx(theirs.item(), rel=1e-6)


def test_the_loss_of_a_batch_is_the_mean_of_its_examples_whatever_their_length(tiny):
    examples = tiny.encode(invoices())
    alone = [tiny.loss(examples.batch(np.array([i]))).item() for i in range(4)]
    lengths = (examples.column("labels")[:4] != IGNORED).sum(1)
    assert len(set(lengths.tolist())) > 1
    assert tiny.loss(examples.batch(np.arange(4))).item() == pytest.approx(np.mean(alone), rel=1e-5)


def test_an_example_without_a_target_has_no_loss():
    logits, labels = torch.randn(2, 3, 5), torch.tensor([[1, 2, IGNORED], [IGNORED] * 3])
    by_hand = -logits[0].log_softmax(-1)[[0, 1], [1, 2]].mean()
    assert token_losses(logits, labels).tolist() == pytest.approx([by_hand.item(), 0.0])


def test_it_sees_the_places_the_words_and_the_page(tiny):
    batch = tiny.eval().encode([PAGE]).batch(np.arange(1))
    before = tiny(batch)
    for name, other in (("bbox", 40), ("input_ids", 7), ("pixels", 9)):
        value = batch[name].clone()
        value[..., 1:3] = other
        assert not torch.allclose(before, tiny({**batch, name: value}), atol=1e-6), name


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_per_example_gradients_by_vmap_are_those_of_the_loop(dropout):
    torch.manual_seed(0)
    model = vt5(max_length=64, width=32, dropout=dropout).double().train()
    if dropout:  # the masks would differ: compare in evaluation mode what training mode splits
        model.eval()
    examples = model.encode([PAGE, *invoices()[:1]])
    sums = {
        method: PerExample(method).clipped_sum(model, examples, 0.05) for method in ("vmap", "loop")
    }
    difference = np.linalg.norm(sums["vmap"].total - sums["loop"].total)
    assert difference <= 1e-12 * np.linalg.norm(sums["loop"].total)
    assert sums["vmap"].norms == pytest.approx(sums["loop"].norms, rel=1e-12)


def test_with_dropout_the_loop_is_a_backward_pass_under_the_same_seed():
    torch.manual_seed(0)
    model = vt5(max_length=64, width=32, dropout=0.1).double().train()
    examples = model.encode([PAGE]).take([0])
    torch.manual_seed(7)
    got = PerExample("loop").clipped_sum(model, examples, 1e9).total
    torch.manual_seed(7)
    model.loss(examples.batch(np.arange(1))).backward()
    want = torch.cat([p.grad.flatten() for p in model.parameters() if p.requires_grad])
    assert np.abs(got - want.numpy()).max() <= 1e-12 * want.abs().max().item()


def test_the_tied_embedding_counts_once_in_the_norm():
    model = vt5(max_length=64, width=32).double()
    examples = model.encode([PAGE]).take([0])
    norm = PerExample("vmap").clipped_sum(model, examples, 1.0).norms[0]
    model.loss(examples.batch(np.arange(1))).backward()
    unique = {id(p): p.grad for p in model.parameters() if p.grad is not None}
    by_hand = torch.stack([g.square().sum() for g in unique.values()]).sum().sqrt()
    assert norm == pytest.approx(by_hand.item(), rel=1e-12)


def test_eager_attention_has_gradients_of_gradients():
    model = vt5(max_length=64, width=32, attention="eager")
    batch = model.encode([PAGE]).batch(np.arange(1))
    pixels = batch["pixels"].float().requires_grad_()
    weights = [p for p in model.parameters() if p.requires_grad]
    gradient = torch.autograd.grad(
        model.loss({**batch, "pixels": pixels}), weights, create_graph=True
    )
    torch.stack([g.square().sum() for g in gradient]).sum().backward()
    assert pixels.grad.abs().sum() > 0


# What it answers


def test_confidence_is_the_product_of_the_likeliest_tokens_without_the_end():
    word, end, pad = SHIPPED.pieces(["total"])[0][0], SHIPPED.sep, SHIPPED.pad

    def scores(*tops):
        # Two tokens share what is left, so that the softmax's top is known by hand.
        rows = [[np.log(top), np.log(1 - top)] for top in tops]
        return torch.tensor(rows)

    generated = SimpleNamespace(
        sequences=torch.tensor([[pad, word, word, end], [pad, word, end, pad]]),
        scores=(scores(0.9, 0.5 + 0.3), scores(0.6, 0.7), scores(0.99, 0.51)),
    )
    answers = read_answers(generated, SHIPPED, begin=1)
    assert answers[0] == Answer("total total", pytest.approx(0.9 * 0.6))
    assert answers[1] == Answer("total", pytest.approx(0.8))


@pytest.mark.slow
def test_it_learns_its_pages_by_heart_and_is_then_sure(tiny):
    pages = invoices(("provider",))[::3]
    examples = tiny.encode(pages)
    optimizer = Optimizer(lr=3e-3).build(tiny.train())
    for _ in range(100):
        train_epoch(tiny, examples.batches(4), optimizer)
    tiny.eval()
    with torch.no_grad():
        scores = tiny.evaluate(examples)
        answers = tiny.answer(pages)
    assert scores["accuracy"] == scores["anls"] == scores["accuracy/provider"] == 1.0
    for page, (answer,) in zip(pages, answers, strict=True):
        assert answer.text == page.questions[0].answers[0].lower()
        assert 0.3 < answer.confidence <= 1


def test_a_batch_answers_like_each_question_alone(tiny):
    examples = tiny.eval().encode(invoices())
    together = tiny.answer_batch(examples.batch(np.arange(6)))
    alone = [tiny.answer_batch(examples.batch(np.array([i])))[0] for i in range(6)]
    assert [a.text for a in together] == [a.text for a in alone]
    assert [a.confidence for a in together] == pytest.approx(
        [a.confidence for a in alone], rel=1e-4
    )


def test_a_page_without_questions_gets_no_answers(tiny):
    silent = dataclasses.replace(PAGE, questions=())
    assert tiny.eval().answer([silent]) == [()]
    assert [len(answers) for answers in tiny.answer([silent, PAGE])] == [0, 2]


# Saved and loaded


def test_what_is_saved_and_loaded_gives_the_same_bits(tiny, tmp_path):
    tiny.eval().save_pretrained(tmp_path)
    loaded = vt5(pretrained=tmp_path).eval()
    batch = tiny.encode([PAGE]).batch(np.arange(2))
    again = loaded.encode([PAGE]).batch(np.arange(2))
    assert all(torch.equal(batch[name], again[name]) for name in batch)
    assert torch.equal(tiny(batch), loaded(batch))
    assert tiny.answer([PAGE]) == loaded.answer([PAGE])
    assert tiny.reading() == loaded.reading()


def test_the_parts_are_transformers_own(tiny, tmp_path):
    tiny.save_pretrained(tmp_path)
    t5 = T5ForConditionalGeneration.from_pretrained(tmp_path / "language")
    joined = vt5(pretrained=tmp_path / "language", visual=tmp_path / "visual", max_length=64)
    weight = tiny.language_backbone.shared.weight
    assert torch.equal(t5.shared.weight, weight)
    assert torch.equal(joined.language_backbone.lm_head.weight, weight)
    assert joined.reader.image_size == 64


def test_a_folder_that_is_no_vt5_is_refused_by_name(tiny, tmp_path):
    with pytest.raises(OSError, match=r"fedpriv\.json"):
        vt5(pretrained=tmp_path)
    tiny.save_pretrained(tmp_path)
    vt5(width=32).save_pretrained(tmp_path / "other")
    (tmp_path / "other" / "between.safetensors").rename(tmp_path / "between.safetensors")
    with pytest.raises(ValueError, match=r"between\.safetensors holds"):
        vt5(pretrained=tmp_path)
