"""Masked language modelling: which tokens are hidden and how, and heads that transformers made."""

import dataclasses
import functools

import numpy as np
import pytest
import torch
from model_checks import LABELS, check_every_way_gives_what_the_loop_gives
from pages import page
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    BertConfig,
    BertForMaskedLM,
    LayoutLMConfig,
    LayoutLMForMaskedLM,
    PreTrainedTokenizerFast,
)

from fedpriv.models.encoders.backbones import bert, layoutlm
from fedpriv.models.heads.masked_lm import CHOSEN, MASK_RATE, Hidden, MaskedWords
from fedpriv.runtime.torch_state import seeded_model

WORDS = "vega ltd harbour road invoice of may goods five total thank you receipt tea bread milk"
DOCUMENTS = [page(WORDS, step=10, name="a"), page("one two three", name="b")]
LONG = page(" ".join(WORDS.split() * 60), step=0, name="long")


def tiny(build=bert, **more):
    settings = {"max_length": 32, "hidden_size": 32, "task": "mlm", **more}
    return seeded_model(functools.partial(build, LABELS, **settings), 0)


def batch_of(model, documents=DOCUMENTS):
    examples = model.encode(documents)
    return examples.batch(np.arange(len(examples)))


def hidden_as_column(batch, hidden):
    """What `hidden` says as (chosen, shown) of whole windows."""
    chosen = torch.zeros_like(batch["input_ids"]).scatter(1, hidden.places, hidden.chosen.long())
    return chosen.bool(), batch["input_ids"].scatter(1, hidden.places, hidden.shown)


def test_15_percent_are_chosen_of_which_80_are_masked_10_replaced_and_10_stay():
    model = tiny(max_length=256)
    batch = batch_of(model, [LONG])
    torch.manual_seed(0)
    counts = np.zeros(5)
    for _ in range(60):
        chosen, shown = hidden_as_column(batch, model._drawn(batch))
        special = (batch["input_ids"] <= 4) | (batch["attention_mask"] == 0)
        assert not (chosen & special).any()
        assert torch.equal(shown[~chosen], batch["input_ids"][~chosen])
        same = chosen & (shown == batch["input_ids"])
        masked = chosen & (shown == model.mask)
        groups = (~special, chosen, masked, chosen & ~same & ~masked, same)
        counts += [int(group.sum()) for group in groups]
    possible, chosen, masked, replaced, same = counts
    assert possible > 50_000
    assert chosen / possible == pytest.approx(0.15, abs=0.006)
    assert masked / chosen == pytest.approx(0.8, abs=0.02)
    assert replaced / chosen == pytest.approx(0.1, abs=0.015)
    assert same / chosen == pytest.approx(0.1, abs=0.015)


def test_replacements_are_any_token():
    model = tiny()
    torch.manual_seed(0)
    true = torch.full((1, 200_000), 9)
    shown = model._disguised(true, torch.ones_like(true, dtype=torch.bool))
    others = shown[(shown != 9) & (shown != model.mask)]
    assert len(others.unique()) > 0.99 * (model.reader.subwords.size - 2)


def test_masks_are_drawn_anew_while_training_and_fixed_otherwise():
    model = tiny()
    batch = batch_of(model)
    torch.manual_seed(0)
    with torch.no_grad():
        assert len({model.train().loss(batch).item() for _ in range(4)}) > 2
        assert len({model.eval().loss(batch).item() for _ in range(4)}) == 1
        assert model.evaluate(model.encode(DOCUMENTS)) == model.evaluate(model.encode(DOCUMENTS))


def test_the_fixed_choice_is_15_percent_and_a_windows_own():
    model = tiny(max_length=256)
    examples = model.encode([LONG, *DOCUMENTS])
    chosen = examples.column(CHOSEN)
    words = examples.column("input_ids") > 4
    assert not (chosen & ~words).any()
    assert chosen.sum() / words.sum() == pytest.approx(MASK_RATE, abs=0.03)
    np.testing.assert_array_equal(model.encode(DOCUMENTS).column(CHOSEN), chosen[-2:])


def test_all_chosen_tokens_become_the_mask_when_it_is_evaluated():
    model = tiny()
    batch = batch_of(model)
    batch[CHOSEN] = (batch["word"] >= 0) & (torch.arange(32) % 3 == 0)
    chosen, shown = hidden_as_column(batch, model._fixed(batch))
    assert torch.equal(chosen, batch[CHOSEN])
    assert torch.equal(shown, batch["input_ids"].masked_fill(batch[CHOSEN], model.mask))


def test_what_is_masked_already_is_no_token_to_guess():
    model = tiny(max_length=256).eval()
    batch = batch_of(model, [LONG])
    scrubbed = {**batch, "input_ids": torch.where(batch["word"] % 2 == 0, 4, batch["input_ids"])}
    assert model.mask == 4
    for hidden in (model._fixed(scrubbed), model._drawn(scrubbed)):
        chosen, _ = hidden_as_column(scrubbed, hidden)
        assert chosen.any()
        assert not (chosen & (scrubbed["input_ids"] == 4)).any()


def test_the_loss_is_the_cross_entropy_of_the_chosen_tokens():
    """By the scores of each place alone, as an attack asks for them."""
    model = tiny().double().eval()
    batch = batch_of(model)
    batch[CHOSEN] = batch["word"] % 4 == 1
    masked = {**batch, "input_ids": batch["input_ids"].masked_fill(batch[CHOSEN], model.mask)}
    with torch.no_grad():
        for row in range(2):
            alone = {name: column[row : row + 1] for name, column in masked.items()}
            true = batch["input_ids"][row]
            wrong = [
                -model.token_scores(alone, torch.tensor([place])).log_softmax(-1)[0, true[place]]
                for place in torch.nonzero(batch[CHOSEN][row])[:, 0].tolist()
            ]
            assert wrong
            torch.testing.assert_close(model.losses(batch)[row], torch.stack(wrong).mean())


def test_a_window_without_chosen_tokens_costs_nothing():
    model = tiny().eval()
    batch = batch_of(model)
    batch[CHOSEN] = torch.zeros_like(batch[CHOSEN])
    assert model.loss(batch) == 0
    assert model.losses(batch).tolist() == [0, 0]
    model.loss(batch).backward()


def test_accuracy_is_the_share_of_chosen_tokens_guessed_right():
    model = tiny().eval()
    examples = model.encode([DOCUMENTS[0]])
    ids = examples.column("input_ids")
    chosen = np.isin(np.arange(32), [1, 2, 3, 4])[None]
    (favourite,) = ids[0, [2]]
    with torch.no_grad():
        model.scores.bias[favourite] = 1e3
        scores = model.evaluate(examples.with_column(CHOSEN, chosen))
    assert scores["accuracy"] == 0.25
    assert scores["loss"] > 100


class Told(MaskedWords):
    """Hides the second and third token, always."""

    def _drawn(self, batch):
        ids = batch["input_ids"]
        places = torch.tensor([[1, 2, 3]]).expand(len(ids), 3)
        chosen = torch.tensor([[True, True, False]]).expand(len(ids), 3)
        return Hidden(places, chosen, ids.gather(1, places).masked_fill(chosen, self.mask))


@pytest.mark.parametrize("build", [bert, layoutlm])
def test_per_example_gradients_by_vmap_are_those_of_the_loop(build):
    drawn = tiny(build)
    told = seeded_model(lambda: Told(drawn.encoder, drawn.reader, LABELS), 1)
    check_every_way_gives_what_the_loop_gives(told.train(), DOCUMENTS, ghost=False)


def test_the_embeddings_are_one_parameter_used_twice():
    model = tiny()
    weight = model.encoder.word_embeddings.weight
    assert sum(p is weight for p in model.parameters()) == 1
    assert not [n for n, p in model.scores.named_parameters() if p.shape == weight.shape]
    model.loss(batch_of(model)).backward()
    unused = torch.ones(len(weight), dtype=torch.bool)
    unused[batch_of(model)["input_ids"].unique()] = False
    assert weight.grad[unused].abs().sum() > 0  # as scores of tokens that no document has


def test_without_a_mask_token_nothing_can_be_masked(tmp_path):
    model = tiny(task="tags")
    unmasked = dataclasses.replace(model.reader.subwords, mask=None)
    reader = dataclasses.replace(model.reader, subwords=unmasked)
    with pytest.raises(ValueError, match=r"^task='mlm': the tokenizer has no mask token"):
        MaskedWords(model.encoder, reader, LABELS)


# What transformers made


WORDPIECES = [
    "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "tea", "milk", "##s", "bread", "road", "total",
    "date", "invoice",
]  # fmt: skip


def wordpieces(folder):
    tokens = {text: number for number, text in enumerate(WORDPIECES)}
    tokenizer = Tokenizer(models.WordPiece(tokens, **{"unk_token": "[UNK]"}))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    names = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
    special = {f"{name}_token": token for name, token in names.items()}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(folder)


SIZES = {
    "vocab_size": len(WORDPIECES), "hidden_size": 16, "num_hidden_layers": 1,
    "num_attention_heads": 2, "intermediate_size": 16, "max_position_embeddings": 12,
    "initializer_range": 0.5,
}  # fmt: skip
HUBS = {
    "layoutlm": (layoutlm, LayoutLMForMaskedLM, LayoutLMConfig, True),
    "bert": (bert, BertForMaskedLM, BertConfig, False),
}


@pytest.mark.parametrize("name", HUBS)
def test_a_masked_lm_of_transformers_keeps_its_head(name, tmp_path):
    build, kind, config, places = HUBS[name]
    torch.manual_seed(0)
    theirs = kind(config(**SIZES)).eval()
    torch.nn.init.normal_(theirs.cls.predictions.bias)
    theirs.save_pretrained(tmp_path)
    wordpieces(tmp_path)
    mine = build(LABELS, pretrained=tmp_path, task="mlm").eval()
    assert isinstance(mine, MaskedWords)
    assert (mine.reader.max_length, mine.mask) == (12, 4)
    batch = batch_of(mine, [page("tea milks bread")])
    assert batch["input_ids"][0, :7].tolist() == [2, 5, 6, 7, 8, 3, 0]
    boxes = {"bbox": batch["bbox"]} if places else {}
    with torch.no_grad():
        logits = theirs(
            input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], **boxes
        ).logits
        for place in range(1, 5):
            scores = mine.token_scores(batch, torch.tensor([place]))
            torch.testing.assert_close(scores, logits[:, place])
    tagger = build(LABELS, pretrained=tmp_path)
    weight = theirs.base_model.embeddings.word_embeddings.weight
    assert torch.equal(tagger.encoder.word_embeddings.weight, weight)


def test_a_plain_encoder_of_transformers_gets_a_new_head(tmp_path):
    BertForMaskedLM(BertConfig(**SIZES)).bert.save_pretrained(tmp_path)
    wordpieces(tmp_path)
    model = bert(LABELS, pretrained=tmp_path, task="mlm")
    assert not model.scores.bias.any()
    assert model.scores.transform.dense.weight.std().item() == pytest.approx(0.5, rel=0.2)
