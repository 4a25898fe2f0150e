"""The engine of gradient inversion: what it reads, resumes, refuses and says."""

import copy
import dataclasses

import numpy as np
import pytest
import torch
from pages import page

from fedpriv.attacks.inversion import Inversion, Objective, invert
from fedpriv.attacks.inversion.drift import read
from fedpriv.attacks.inversion.gradients import gradient_of
from fedpriv.attacks.inversion.objective import GradientDistance
from fedpriv.attacks.inversion.presets import PRESETS, april, dlg, gi_dqa, gi_dqa_tuned, idlg
from fedpriv.attacks.local_steps import LocalSteps
from fedpriv.attacks.victim import Victim
from fedpriv.data.document import Question
from fedpriv.models.donut import donut
from fedpriv.models.layoutlmv3 import layoutlmv3
from fedpriv.models.vt5 import vt5
from fedpriv.runtime.torch_state import seeded_model
from fedpriv.threat import kept
from fedpriv.training.loops import Optimizer

SIDE = 32


def layoutlm(labels=()):
    """With as many features as a patch has numbers, drawn with the square root's deviation."""
    return layoutlmv3(
        labels,
        task="answers",
        image_size=SIDE,
        hidden_size=192,
        layers=1,
        max_length=24,
        initializer_range=192**-0.5,
    )


def drawn(side, seed):
    """A white page, and the same with strokes in its private middle."""
    rng = np.random.default_rng(seed)
    template = np.full((side, side), 255, np.uint8)
    template[2:4, 2:-2] = 0
    whole = template.copy()
    quarter = slice(side // 4, side - side // 4)
    strokes = rng.random((side // 2, side // 2)) < 0.3
    whole[quarter, quarter] = np.where(strokes, 30, 255)
    private = np.zeros((side, side), bool)
    private[quarter, quarter] = True
    return whole, template, private


def document(side, seed):
    words = ("Total Ann 7", "Total Leo 93", "Total Ida 4", "Total Max 56")[seed % 4]
    asked = [Question("total", "How much?", (words.split()[2],))]
    blank = page(words, questions=asked, size=(side, side), step=side // 4)
    return dataclasses.replace(blank, page=drawn(side, seed)[0])


def victim_of(model, seeds=(0,), side=SIDE):
    """Returns a victim whose batch is these pages, and the pages, (B, 3, H, W)."""
    examples = model.encode([document(side, seed) for seed in seeds])
    batch = examples.batch(np.arange(len(examples)))
    gradient = gradient_of(model, batch)
    truth = batch.pop("pixels").float()
    pages = [drawn(side, seed) for seed in seeds]
    template = torch.tensor(np.stack([blank for _, blank, _ in pages])).float()
    private = torch.tensor(np.stack([where for _, _, where in pages]))[:, None]
    return Victim(model, gradient, batch, template[:, None].repeat(1, 3, 1, 1), private), truth


@pytest.fixture(scope="module")
def model():
    return seeded_model(layoutlm, 0).eval()


@pytest.fixture(scope="module")
def known(model):
    return victim_of(model)


def psnr(pages, truth, private):
    where = private.expand_as(truth)
    return -10 * np.log10((((pages - truth) / 255)[where] ** 2).mean().item())


def one(victim, method, seed=0, **more):
    (found,) = invert([victim], method, np.random.default_rng(seed), **more)
    return found


# What it reads


def test_the_page_is_read_out_of_the_gradient(known):
    victim, truth = known
    found = one(victim, gi_dqa_tuned(45))
    blank = psnr(victim.template, truth, victim.private)
    assert psnr(found.pixels, truth, victim.private) > blank + 10
    outside = ~victim.private.expand_as(truth)
    assert torch.equal(found.pixels[outside], victim.template[outside])
    assert found.evaluations == 45
    assert found.pixels.dtype == torch.float32
    assert found.curve[-1]["objective"] < 1e-2 * found.curve[0]["objective"]


@pytest.mark.slow
def test_layers_behind_the_fusion_alone_do_not_tell_the_page(known):
    victim, truth = known
    before, behind = (
        one(victim, gi_dqa_tuned(80, objective=Objective(relative=1, layers=layers)))
        for layers in ("pre_fusion", "post_fusion")
    )
    nearer = psnr(before.pixels, truth, victim.private)
    assert nearer > psnr(behind.pixels, truth, victim.private) + 10


@pytest.mark.slow
def test_all_pages_of_a_batch_are_read(model):
    victim, truth = victim_of(model, (0, 1))
    found = one(victim, gi_dqa_tuned(110))
    for mine, theirs, where in zip(found.pixels, truth, victim.private, strict=True):
        assert psnr(mine, theirs, where) > 20
    assert not torch.equal(truth[0], truth[1])


def test_donut_gives_its_page_away_and_fused_attention_is_said():
    model = seeded_model(donut, 0).eval()
    assert model.network.decoder.config._attn_implementation == "sdpa"
    victim, truth = victim_of(model, side=64)
    said = []
    found = one(victim, gi_dqa_tuned(20), tell=said.append)
    blank = psnr(victim.template, truth, victim.private)
    assert psnr(found.pixels, truth, victim.private) > blank + 1
    assert "attention='sdpa' has no second derivative: its plain form is taken instead" in said


def test_vt5_can_be_attacked_through_its_fused_attention():
    model = seeded_model(vt5, 0).eval()
    side = model.encode([document(64, 0)]).shared["pixels"][0].shape[-1]
    victim, _ = victim_of(model, side=side)
    found = one(victim, gi_dqa_tuned(3, objective=Objective(relative=1)))
    objectives = [point["objective"] for point in found.curve]
    assert all(0 < value < np.inf for value in objectives)
    assert objectives[-1] != objectives[0]


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_runs_within_its_budget(known, name):
    victim, _ = known
    found = one(victim, PRESETS[name](7))
    assert found.evaluations == (0 if name in ("random", "template_only") else 7)
    assert 0 <= found.pixels.min() <= found.pixels.max() <= 255
    assert torch.equal(found.pixels, victim.template) == (name == "template_only")


@pytest.mark.slow
def test_the_tuned_method_is_nearer_than_the_published_ones(known):
    victim, truth = known
    others = set(PRESETS) - {"gi_dqa_tuned"}
    scores = {
        name: psnr(one(victim, PRESETS[name](30)).pixels, truth, victim.private) for name in others
    }
    tuned = psnr(one(victim, gi_dqa_tuned(30)).pixels, truth, victim.private)
    assert tuned > max(scores.values()) + 3, scores


def test_dlg_seeks_the_labels_where_the_model_scores_one_an_example(known):
    victim, _ = known
    wrong = {**victim.batch, "start": victim.batch["start"] * 0, "end": victim.batch["end"] * 0}
    assert not torch.equal(wrong["start"], victim.batch["start"])
    misled = dataclasses.replace(victim, batch=wrong)
    assert torch.equal(one(misled, dlg(4)).pixels, one(victim, dlg(4)).pixels)
    assert not torch.equal(one(misled, idlg(4)).pixels, one(victim, idlg(4)).pixels)


def test_dlg_takes_the_labels_of_a_model_that_writes_as_known():
    victim, _ = victim_of(seeded_model(donut, 0).eval(), side=64)
    said = []
    free = one(victim, dlg(3), tell=said.append)
    assert "the model does not score one label an example: the labels are taken as known" in said
    assert torch.equal(free.pixels, one(victim, idlg(3)).pixels)


def test_april_says_where_there_is_no_table_of_places(known):
    said = []
    one(known[0], april(1), tell=said.append)
    assert not any("no table" in line for line in said)
    victim, _ = victim_of(seeded_model(donut, 0).eval(), side=64)
    one(victim, april(1), tell=said.append)
    assert "there is no table of the page's places: its direction is not compared" in said


# Updates of several local steps


def updated(known, optimizer, count):
    """Returns the victim of a client that trained on the page, Σ_t u_t as its gradient."""
    victim, truth = known
    trained = copy.deepcopy(victim.model)
    steps = optimizer.build(trained)
    for _ in range(count):
        steps.zero_grad()
        trained.loss({**victim.batch, "pixels": truth}).backward()
        steps.step()
    after = dict(trained.named_parameters())
    scale = 1 if optimizer.name == "sgd" else optimizer.lr
    total = {
        name: scale * (p - after[name]).detach() / optimizer.lr
        for name, p in victim.model.named_parameters()
        if name in victim.gradient
    }
    return dataclasses.replace(victim, gradient=total), LocalSteps(count, optimizer)


def gain(known, victim, method):
    """Returns how far above the blank template an inversion comes, in dB."""
    private, truth = known[0].private, known[1]
    blank = psnr(known[0].template, truth, private)
    return psnr(one(victim, method).pixels, truth, private) - blank


def test_a_short_budget_takes_larger_steps_with_a_shorter_memory(known):
    long = {"lr": 25.0, "betas": (0.9, 0.9)}
    assert gi_dqa_tuned(100) == gi_dqa_tuned(100, **long)
    short, slow = gi_dqa_tuned(20), gi_dqa_tuned(20, **long)
    assert gain(known, known[0], short) > gain(known, known[0], slow) + 0.5


def test_five_steps_of_sgd_are_not_one_gradient(known):
    victim, steps = updated(known, Optimizer("sgd", lr=1e-3), 5)
    straight = read(victim, steps, "auto", "pre_fusion")
    assert straight.steps is None
    as_one = gain(known, victim, gi_dqa_tuned(15))
    assert gain(known, straight, gi_dqa_tuned(15)) > as_one + 2.5


def test_steps_that_turn_on_the_way_are_simulated(known):
    victim, steps = updated(known, Optimizer("sgd", lr=4e-2), 3)
    unrolled = read(victim, steps, "auto", "pre_fusion")
    assert unrolled.steps == steps
    assert one(unrolled, gi_dqa_tuned(2)).evaluations == 6
    assert gain(known, unrolled, gi_dqa_tuned(8)) > 1.8
    for reading in ("scale", "midpoint"):
        taken = read(victim, steps, reading, "pre_fusion")
        assert gain(known, taken, gi_dqa_tuned(8)) < 1


@pytest.mark.parametrize("count", [1, 5])
def test_the_signs_of_adams_update_tell_the_page(known, count):
    victim, steps = updated(known, Optimizer("adamw", lr=1e-4, weight_decay=0.1), count)
    signs = gi_dqa_tuned(15, objective=Objective(signs=1, layers="pre_fusion"))
    assert gain(known, read(victim, steps, "midpoint", "pre_fusion"), signs) > 2
    assert gain(known, victim, gi_dqa_tuned(15)) < 0


def test_adams_path_that_turns_is_simulated(known):
    straight, _ = updated(known, Optimizer("adamw", lr=1e-6), 3)
    assert read(straight, LocalSteps(3, Optimizer("adamw", lr=1e-6)), "auto", "all").steps is None
    victim, steps = updated(known, Optimizer("adamw", lr=2e-3), 2)
    unrolled = read(victim, steps, "auto", "pre_fusion")
    assert unrolled.steps == steps
    signs = gi_dqa_tuned(10, objective=Objective(signs=1, layers="pre_fusion"))
    midpoint = gain(known, read(victim, steps, "midpoint", "pre_fusion"), signs)
    simulated = gain(known, unrolled, gi_dqa_tuned(10))
    assert simulated > midpoint + 1


def test_the_midpoint_lies_between_the_ends_that_the_server_knows(known):
    victim, steps = updated(known, Optimizer("sgd", lr=1e-2, weight_decay=0.1), 5)
    read_at = read(victim, steps, "midpoint", "pre_fusion")
    before, middle = victim.model.get_parameter(WEIGHT), read_at.model.get_parameter(WEIGHT)
    change = -1e-2 * victim.gradient[WEIGHT]
    torch.testing.assert_close(middle, before + 0.4 * change)
    mean = victim.gradient[WEIGHT] / 5 - 0.1 * middle
    torch.testing.assert_close(read_at.gradient[WEIGHT], mean)
    scaled = read(victim, steps, "scale", "pre_fusion")
    assert scaled.model is victim.model
    one_step = LocalSteps(1, Optimizer("sgd", lr=1e-2))
    assert read(victim, one_step, "auto", "pre_fusion").model is victim.model


# Together, again, and from where it stopped


@pytest.mark.slow
@pytest.mark.parametrize(("build", "side"), [(layoutlm, SIDE), (donut, 64)])
def test_victims_together_come_to_what_each_comes_to_alone(build, side):
    model = seeded_model(build, 0).eval().double()
    victims = [victim_of(model, (seed,), side)[0] for seed in range(2)]
    method = gi_dqa(4, lr=20.0)
    rng = np.random.default_rng(5)
    together = invert(victims, method, rng)
    alone = invert(victims, dataclasses.replace(method, together=1), np.random.default_rng(5))
    for mine, theirs in zip(together, alone, strict=True):
        torch.testing.assert_close(mine.pixels, theirs.pixels, atol=1e-3, rtol=0)
        assert mine.evaluations == theirs.evaluations == 4
    assert (together[0].pixels - together[1].pixels).abs().max() > 50


def test_results_are_in_order_whatever_goes_together(model):
    single, _ = victim_of(model, (0,))
    pair, truth = victim_of(model, (1, 2))
    found = invert([pair, single, pair], gi_dqa_tuned(2), np.random.default_rng(0))
    assert [len(one.pixels) for one in found] == [2, 1, 2]
    torch.testing.assert_close(found[0].pixels, found[2].pixels, atol=0.1, rtol=0)
    assert truth.shape == found[0].pixels.shape


def test_of_several_starts_the_nearest_is_kept_and_all_are_counted(known):
    victim, _ = known
    method = gi_dqa_tuned(3, start="noise")
    tries = [one(victim, method, seed) for seed in range(1)]
    several = one(victim, dataclasses.replace(method, restarts=4))
    assert several.evaluations == 12
    least = min(point["objective"] for point in several.curve)
    assert least <= min(point["objective"] for point in tries[0].curve) + 1e-6


def test_the_same_generator_gives_the_same_bits(known):
    first, again = (one(known[0], gi_dqa(3), seed=4) for _ in range(2))
    assert torch.equal(first.pixels, again.pixels)
    assert not torch.equal(first.pixels, one(known[0], gi_dqa(3), seed=5).pixels)


class Stopped(Exception):
    pass


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("gi_dqa", 1),
        pytest.param("gi_dqa", 2, marks=pytest.mark.slow),
        ("inverting_gradients", 1),
        pytest.param("dlg", 1, marks=pytest.mark.slow),
    ],
)
def test_a_resumed_run_has_the_bits_of_one_that_was_not_stopped(
    model, monkeypatch, tmp_path, name, count
):
    victims = [victim_of(model, (seed,))[0] for seed in range(count)]
    budget, halfway = (45, 30) if name == "dlg" else (12, 8)
    method = PRESETS[name](budget)

    def run(folder):
        rng = np.random.default_rng(0)
        return invert(victims, method, rng, checkpoint=folder, every=4)

    whole = run(tmp_path / "whole")
    measure, left = GradientDistance.__call__, [halfway]

    def stopping(*arguments):
        left[0] -= 1
        if left[0] < 0:
            raise Stopped
        return measure(*arguments)

    monkeypatch.setattr(GradientDistance, "__call__", stopping)
    with pytest.raises(Stopped):
        run(tmp_path / "parts")
    left[0] = enough = budget * count
    resumed = run(tmp_path / "parts")
    assert 0 < enough - left[0] < enough - 4, "nothing was taken up"
    for mine, theirs in zip(resumed, whole, strict=True):
        assert torch.equal(mine.pixels, theirs.pixels)
        assert mine.curve == theirs.curve
        assert mine.evaluations == theirs.evaluations
    left[0] = 0
    again = run(tmp_path / "parts")
    assert all(torch.equal(a.pixels, b.pixels) for a, b in zip(again, whole, strict=True))
    assert not list(tmp_path.rglob("*.pkl"))


def test_a_damaged_state_is_named(known, tmp_path):
    one(known[0], gi_dqa_tuned(2), checkpoint=tmp_path)
    (path,) = tmp_path.glob("*.safetensors")
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ValueError, match=r"cannot be read as the state of an attack.*delete it"):
        one(known[0], gi_dqa_tuned(2), checkpoint=tmp_path)


def test_another_method_victim_or_code_does_not_take_up_a_state(
    known, model, tmp_path, monkeypatch
):
    one(known[0], gi_dqa_tuned(2), checkpoint=tmp_path)
    one(known[0], gi_dqa_tuned(2, lr=24.0), checkpoint=tmp_path)
    one(victim_of(model, (1,))[0], gi_dqa_tuned(2), checkpoint=tmp_path)
    assert len(list(tmp_path.glob("*.safetensors"))) == 3
    monkeypatch.setattr(kept, "code", lambda: "other code")
    one(known[0], gi_dqa_tuned(2), checkpoint=tmp_path)
    assert len(list(tmp_path.glob("*.safetensors"))) == 4


def test_it_ends_early_when_nothing_improves_or_time_is_up(known):
    stuck = gi_dqa_tuned(50, lr=1e-30, patience=3)
    assert one(known[0], stuck).evaluations == 4
    assert one(known[0], gi_dqa_tuned(50, seconds=1e-9)).evaluations == 1


def test_the_model_is_left_as_it_was(known):
    victim, _ = known
    before = {name: tensor.clone() for name, tensor in victim.model.state_dict().items()}
    one(victim, gi_dqa_tuned(2))
    assert all(torch.equal(before[n], t) for n, t in victim.model.state_dict().items())
    assert all(parameter.grad is None for parameter in victim.model.parameters())


def test_the_last_pixels_are_handed_back_where_they_are_asked_for(known):
    kept = one(known[0], gi_dqa_tuned(1))
    last = one(known[0], gi_dqa_tuned(1, keep="last"))
    assert torch.equal(kept.pixels, known[0].template)
    assert not torch.equal(last.pixels, known[0].template)


def test_the_whole_page_can_be_sought(known):
    victim, _ = known
    found = one(victim, gi_dqa_tuned(1, keep="last", region="page", start="white"))
    outside = ~victim.private.expand_as(victim.template)
    assert not torch.equal(found.pixels[outside], victim.template[outside])


# What it refuses


def changed(victim, name, change):
    return dataclasses.replace(
        victim, gradient={**victim.gradient, name: change(victim.gradient[name])}
    )


WEIGHT = "network.layoutlmv3.patch_embed.proj.weight"


def test_gradients_that_cannot_be_matched_are_refused_by_name(known):
    victim, _ = known
    cases = {
        "the gradient holds NaN or infinity": changed(victim, WEIGHT, lambda g: g * torch.nan),
        r"a gradient of shape \(192,\) for a parameter": changed(
            victim, WEIGHT, lambda g: g.sum((1, 2, 3))
        ),
    }
    for message, wrong in cases.items():
        with pytest.raises(ValueError, match=rf"^victim 0: {WEIGHT}: {message}"):
            one(wrong, gi_dqa_tuned(1))
    fewer = {n: g for n, g in victim.gradient.items() if n != WEIGHT}
    part = dataclasses.replace(victim, gradient=fewer)
    with pytest.raises(ValueError, match=rf"there is no gradient of {WEIGHT} \(1 missing in all\)"):
        one(part, gi_dqa_tuned(1))
    one(part, gi_dqa_tuned(1, objective=Objective(relative=1, partial=True)))
    more = dataclasses.replace(victim, gradient={**victim.gradient, "nose": torch.zeros(1)})
    with pytest.raises(ValueError, match="victim 0: nose: the model has no parameter of this name"):
        one(more, gi_dqa_tuned(1))


def test_nothing_is_computed_before_every_victim_is_looked_at(known):
    bad = changed(known[0], WEIGHT, lambda g: g * torch.nan)
    said = []
    with pytest.raises(ValueError, match=r"^victim 1: "):
        invert([known[0], bad], gi_dqa_tuned(1), np.random.default_rng(0), tell=said.append)
    assert not said


def test_templates_and_columns_of_other_sizes_are_refused(known):
    victim, _ = known
    small = dataclasses.replace(
        victim, template=victim.template[..., :16, :16], private=victim.private[..., :16, :16]
    )
    with pytest.raises(ValueError, match=r"takes no pages of \(1, 3, 16, 16\) with the columns"):
        one(small, gi_dqa_tuned(1))
    wide = {n: c.repeat(1, 9) if n == "input_ids" else c for n, c in victim.batch.items()}
    with pytest.raises(ValueError, match=r"'input_ids': \(1, 216\)"):
        one(dataclasses.replace(victim, batch=wide), gi_dqa_tuned(1))
    rows = {name: torch.cat([column, column]) for name, column in victim.batch.items()}
    with pytest.raises(ValueError, match="has 2 rows, and there are 1 pages"):
        one(dataclasses.replace(victim, batch=rows), gi_dqa_tuned(1))
    with pytest.raises(ValueError, match=r"private: expected bool, \(1, 1, 32, 32\)"):
        one(dataclasses.replace(victim, private=victim.private.float()), gi_dqa_tuned(1))
    with pytest.raises(ValueError, match=r"template: expected numbers in 0…255"):
        one(dataclasses.replace(victim, template=victim.template * 2), gi_dqa_tuned(1))
    batch = {**victim.batch, "pixels": victim.template}
    with pytest.raises(ValueError, match="batch: has the column pixels"):
        one(dataclasses.replace(victim, batch=batch), gi_dqa_tuned(1))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"lr": 0.0}, "lr=0.0: expected a positive number"),
        ({"evaluations": -1}, "evaluations=-1: expected 0 or more"),
        ({"start": "black"}, "start='black': expected one of"),
        ({"optimizer": "sgd"}, "optimizer='sgd': expected one of"),
        ({"restarts": 0}, "restarts=0: expected 1 or more"),
    ],
)
def test_methods_that_cannot_work_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        Inversion(**{"objective": Objective(mse=1), "evaluations": 1, **wrong})
