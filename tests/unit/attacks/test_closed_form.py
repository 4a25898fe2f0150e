"""LayoutLMv3's page out of one gradient, by one solve."""

import dataclasses
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpriv.attacks.closed_form import ClosedForm, patches, solve, unpatched
from fedpriv.attacks.inversion.gradients import gradient_of
from fedpriv.attacks.victim import MessageAccess, Victim, victim_of
from fedpriv.data.generated.slips import Slips
from fedpriv.data.redaction.fields import without_fields
from fedpriv.models.donut import donut
from fedpriv.models.layoutlmv3 import layoutlmv3
from fedpriv.runtime.torch_state import seeded_model
from fedpriv.threat.access import Architecture, BatchKnowledge, Known
from fedpriv.threat.attack import AttackContext, NotApplicable
from fedpriv.threat.surfaces.transcript import Round, Transcript, Upload

SLIPS = Slips(providers=2, documents_per_provider=2, questions=("total",))
SMALL = partial(layoutlmv3, task="answers", image_size=64, hidden_size=96, layers=1)


def page_and_victim(build, count=1, seed=0):
    """Returns the true pages and the victim of the first documents, with their templates."""
    model = seeded_model(build, seed)
    documents = SLIPS.load().documents[:count]
    examples = model.encode(documents)
    batch = examples.batch(np.arange(count))
    blank = [
        model.encode([without_fields(d, ["date", "total"])]).shared["pixels"][0][0]
        for d in documents
    ]
    template = np.stack(blank)
    private = (batch["pixels"].numpy() != template).any(1, keepdims=True)
    known = Known(count, template, private)
    return batch["pixels"], victim_of(model, gradient_of(model, batch), known)


def psnr(page, truth):
    return -10 * np.log10(((page - truth.float()) / 255).square().mean().item() + 1e-30)


def test_the_whole_page_without_a_template():
    truth, victim = page_and_victim(SMALL)
    page = solve(victim, template=False)
    assert psnr(page, truth) > 80
    assert torch.equal(page.round().to(torch.uint8), truth)


def test_the_private_part_where_the_template_is_known():
    truth, victim = page_and_victim(partial(layoutlmv3, task="answers", size="small"))
    page = solve(victim)
    assert torch.equal(page.round().to(torch.uint8), truth)
    assert psnr(victim.template, truth) < 25


def test_a_tagger_gives_its_page_away_as_well():
    build = partial(layoutlmv3, ("date", "total"), image_size=64, hidden_size=96)
    model = seeded_model(build, 0)
    documents = [
        dataclasses.replace(
            d, entities=tuple(e for e in d.entities if e.label in ("date", "total"))
        )
        for d in SLIPS.load().documents[:1]
    ]
    batch = model.encode(documents).batch(np.arange(1))
    victim = victim_of(model, gradient_of(model, batch), Known(1))
    page = solve(victim)
    assert torch.equal(page.round().to(torch.uint8), batch["pixels"])


@pytest.mark.parametrize("factor", [1e-6, 37.0])
def test_scaling_and_clipping_change_nothing(factor):
    truth, victim = page_and_victim(SMALL)
    scaled = {name: tensor * factor for name, tensor in victim.gradient.items()}
    page = solve(dataclasses.replace(victim, gradient=scaled), template=False)
    assert psnr(page, truth) > 80


def test_dropout_and_training_do_not_protect():
    build = partial(SMALL, dropout=0.1)
    model = seeded_model(build, 0).train()
    batch = model.encode(SLIPS.load().documents[:1]).batch(np.arange(1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(30):
        optimizer.zero_grad()
        model.loss(batch).backward()
        optimizer.step()
    victim = victim_of(model, gradient_of(model, batch), Known(1))
    assert psnr(solve(victim), batch["pixels"]) > 60


def test_noise_is_borne_better_with_a_template():
    truth, victim = page_and_victim(partial(layoutlmv3, task="answers", size="small"))
    rng = torch.Generator().manual_seed(0)
    noisy = {n: t + 1e-7 * torch.randn(t.shape, generator=rng) for n, t in victim.gradient.items()}
    victim = dataclasses.replace(victim, gradient=noisy)
    alone, helped = solve(victim, template=False), solve(victim, noise=1e-7)
    assert psnr(helped, truth) > psnr(alone, truth) + 10
    assert psnr(helped, truth) > 40


def test_too_many_patches_are_refused():
    build = partial(layoutlmv3, task="answers", image_size=64, hidden_size=64)
    truth, victim = page_and_victim(build)
    with pytest.raises(NotApplicable, match=r"64 patches are unknown.*width 64 tell at most 63"):
        solve(victim, template=False)
    # Fewer are unknown with a template.
    assert psnr(solve(victim), truth) > 60


def seen(victim, count):
    upload = Upload(0, "gradient", victim.gradient)
    state = {n: p.detach() for n, p in victim.model.named_parameters() if p.requires_grad}
    return Transcript((Round(1, 0, (0,), state, (upload,), None, "gradient"),), {})


def run(attack, victim, build, count, tmp_path):
    known = BatchKnowledge({(1, 0): Known(count)})
    access = MessageAccess(seen(victim, count), known, Architecture(build))
    return attack.run(access, AttackContext(np.random.default_rng(0), print, tmp_path))


def test_batches_are_refused_and_give_a_mixture_where_they_are_not(tmp_path):
    truth, victim = page_and_victim(SMALL, count=2)
    with pytest.raises(NotApplicable, match="2 examples are behind"):
        run(ClosedForm(), victim, SMALL, 2, tmp_path)
    (found,) = run(ClosedForm(most_examples=2), victim, SMALL, 2, tmp_path)
    assert max(psnr(torch.from_numpy(found.pages[:1]), page) for page in truth) < 25


def test_models_without_learned_positions_of_patches_are_refused(tmp_path):
    model = seeded_model(donut, 0)
    batch = model.encode(SLIPS.load().documents[:1]).batch(np.arange(1))
    victim = victim_of(model, gradient_of(model, batch), Known(1))
    with pytest.raises(NotApplicable, match="Donut adds no learned position"):
        solve(victim)
    blind = seeded_model(partial(SMALL, image=False), 0)
    with pytest.raises(NotApplicable, match="reads no page"):
        solve(Victim(blind, {}, {}, torch.zeros(1, 3, 0, 0), torch.zeros(1, 1, 0, 0).bool()))


def test_another_models_transcript_and_broken_gradients_are_refused(tmp_path):
    _, victim = page_and_victim(SMALL)
    with pytest.raises(ValueError, match="the transcript is of another model"):
        run(ClosedForm(), victim, partial(layoutlmv3, task="answers", size="small"), 1, tmp_path)
    name = "network.layoutlmv3.patch_embed.proj.weight"
    for broken, why in (
        ({n: t for n, t in victim.gradient.items() if n != name}, f"for {name} .* there is no"),
        ({**victim.gradient, name: victim.gradient[name] * torch.nan}, f"{name} is not finite"),
    ):
        with pytest.raises(ValueError, match=why):
            run(ClosedForm(), dataclasses.replace(victim, gradient=broken), SMALL, 1, tmp_path)


@settings(max_examples=20)
@given(st.integers(1, 4), st.integers(1, 4), st.sampled_from([2, 4, 8]))
def test_patches_and_back(high, wide, side):
    page = torch.rand(1, 3, high * side, wide * side)
    rows = patches(page, side)
    assert rows.shape == (high * wide, 3 * side * side)
    assert torch.equal(unpatched(rows, side, page.shape[-2:]), page)
