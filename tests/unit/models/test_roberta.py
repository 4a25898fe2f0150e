"""RoBERTa: the text alone, at any attention, with sound gradients."""

import dataclasses
import functools

import numpy as np
import pytest
import torch
from model_checks import (
    LABELS,
    SMALL,
    batch_of,
    check_alone_or_together_the_answers_are_the_same,
    check_dropout_is_the_seeds_and_each_examples_own,
    check_every_parameter_learns,
    check_every_way_gives_what_the_loop_gives,
    check_gradients_of_gradients,
    learn,
)

from fedpriv.models.base import Tagger
from fedpriv.models.roberta import roberta
from fedpriv.runtime.torch_state import seeded_model

LABELLED = SMALL[:2]


def tiny(**more):
    settings = {"max_length": 24, **more}
    return seeded_model(functools.partial(roberta, LABELS, **settings), 0)


def test_it_reads_text_and_neither_places_nor_image():
    model = tiny().eval()
    moved = [
        dataclasses.replace(
            one,
            page=np.zeros((100, 200), np.uint8),
            words=tuple(dataclasses.replace(w, box=(0, 0, 9, 9), segment=0) for w in one.words),
        )
        for one in SMALL
    ]
    assert not model.encode(SMALL).shared
    with torch.no_grad():
        assert torch.equal(model(batch_of(model)), model(batch_of(model, moved)))
        other = [dataclasses.replace(SMALL[1], words=SMALL[1].words[::-1], entities=())]
        assert not torch.equal(model(batch_of(model, SMALL[1:2])), model(batch_of(model, other)))


def test_it_is_a_tagger_of_about_70_000_parameters():
    model = roberta(LABELS)
    assert isinstance(model, Tagger)
    assert 60_000 < sum(p.numel() for p in model.parameters()) < 80_000
    assert [len(model.blocks()), len(model.head()), model.visual()] == [2, 1, []]
    assert model.head()[0].weight.shape == (5, 32)


def test_both_kinds_of_attention_compute_the_same():
    sdpa, eager = tiny(), tiny(attention="eager")
    assert sdpa.network.config._attn_implementation == "sdpa"
    assert eager.network.config._attn_implementation == "eager"
    batch = batch_of(sdpa)
    torch.testing.assert_close(sdpa(batch), eager(batch), rtol=1e-4, atol=1e-5)


def test_padding_changes_no_score():
    model = tiny().eval()
    batch = batch_of(model, SMALL[:1])
    used = int(batch["attention_mask"].sum())
    assert used < 20
    cut = {name: column[:, :used] if column.ndim > 1 else column for name, column in batch.items()}
    with torch.no_grad():
        torch.testing.assert_close(model(batch)[:, :used], model(cut))


def test_every_trainable_parameter_gets_a_gradient():
    check_every_parameter_learns(tiny())


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_per_example_gradients_by_vmap_are_those_of_the_loop(attention):
    check_every_way_gives_what_the_loop_gives(tiny(attention=attention), LABELLED)


def test_dropout_is_each_examples_own():
    check_dropout_is_the_seeds_and_each_examples_own(tiny(dropout=0.2), LABELLED)


def test_gradients_have_gradients():
    check_gradients_of_gradients(tiny(attention="eager"), wanted="none")


def test_answers_do_not_depend_on_the_neighbours():
    check_alone_or_together_the_answers_are_the_same(tiny())


def test_it_learns_to_tag_and_to_answer():
    model = tiny()
    first, last = learn(model, LABELLED, 30, 4e-3)
    assert first > 1
    assert last < 0.1 * first
    with torch.no_grad():
        assert [model.tag(one) for one in LABELLED] == [one.tags() for one in LABELLED]
        answers = model.answer(LABELLED)
    assert [[a.text for a in one] for one in answers] == [["Vega Ltd", "12.50"], ["Orion"]]
    assert all(a.confidence > 0.5 for one in answers for a in one)


def test_windows_longer_than_its_positions_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"^max_length=513: size='base' has positions for 512"):
        roberta(LABELS, size="base", max_length=513)
    tiny().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"^max_length=25: .* has positions for 24 tokens$"):
        roberta(LABELS, pretrained=tmp_path, max_length=25)


def test_sizes_are_chosen_by_name():
    assert roberta(LABELS, dropout=0.3).network.config.hidden_dropout_prob == 0.3
    assert roberta(LABELS, attention="eager").network.config._attn_implementation == "eager"
    with torch.device("meta"):
        assert roberta(LABELS, size="base").network.config.hidden_size == 768
    with pytest.raises(ValueError, match=r"^size='large': expected 'tiny' or 'base'$"):
        roberta(LABELS, size="large")
    with pytest.raises(ValueError, match=r"^hidden_size=33 must be even"):
        roberta(LABELS, hidden_size=33)
