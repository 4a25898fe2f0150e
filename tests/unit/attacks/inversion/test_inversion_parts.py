"""What gradient inversion is made of: distances, priors, schedules, starts and Safe Template."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from model_checks import LABELS, batch_of
from torch import nn

from fedpriv.attacks.inversion.gradients import gradient_of, soft_loss
from fedpriv.attacks.inversion.objective import FLAT, GradientDistance, Objective, choose
from fedpriv.attacks.inversion.pixels import Canvas, channels, ink_of
from fedpriv.attacks.inversion.prior import (
    ChannelVariation,
    GaussianSmooth,
    LaplacianText,
    SpatialVariation,
)
from fedpriv.attacks.inversion.safe_template import SafeTemplate
from fedpriv.attacks.inversion.schedule import Constant, Exponential, Late, Steps
from fedpriv.attacks.inversion.start import start
from fedpriv.models.donut import donut
from fedpriv.models.layoutlmv3 import layoutlmv3
from fedpriv.models.vt5 import vt5
from fedpriv.runtime.torch_state import seeded_model
from fedpriv.threat.kept import Kept

ANSWERS = partial(layoutlmv3, task="answers")


# Distances

MINE = {"a": torch.tensor([1.0, 0.0]), "pos_embed": torch.tensor([[2.0], [2.0], [1.0]])}
THEIRS = {"a": torch.tensor([0.0, 2.0]), "pos_embed": torch.tensor([[2.0], [0.0], [1.0]])}
COS = 5 / (3 * math.sqrt(5))


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ({"squares": 1}, 5 + 4),
        ({"mse": 1}, 5 / 2 + 4 / 3),
        ({"relative": 1}, 5 / 4 + 4 / 5),
        ({"absolute": 1}, 3 + 2),
        ({"cosine": 1}, 1 + 1 - COS),
        ({"global_cosine": 1}, 1 - 5 / math.sqrt(10 * 9)),
        ({"squares": 2, "absolute": 0.5, "cosine": 3}, 18 + 2.5 + 3 * (2 - COS)),
    ],
)
def test_distances_by_hand(weights, expected):
    assert Objective(**weights).distance(MINE, THEIRS).item() == pytest.approx(expected, rel=1e-6)


def test_the_direction_of_the_table_of_places_counts_alone():
    names = {"x.a": "a", "x.pos_embed": "pos_embed"}
    mine, theirs = ({n: side[old] for n, old in names.items()} for side in (MINE, THEIRS))
    found = Objective(positions=2).distance(mine, theirs)
    assert found.item() == pytest.approx(2 * (1 - COS), rel=1e-6)


def test_wrong_signs_count_by_how_sure_they_are_and_sizes_do_not():
    sent = {"a": torch.tensor([1.0, -0.5, -1.0, 0.0])}
    mine = {"a": torch.tensor([3.0, 1.0, -1.0, -1.0])}  # rms √3, the second is wrong
    expected = 0.5 * 1 / math.sqrt(3) / 4
    for scale in (1.0, 1e-3):
        scaled = {"a": scale * mine["a"]}
        found = Objective(signs=1).distance(scaled, sent)
        assert found.item() == pytest.approx(expected, rel=1e-5)
    assert Objective(signs=1).distance({"a": sent["a"].sign()}, sent).item() == 0


def test_a_gradient_of_zero_has_a_finite_slope():
    objective = Objective(cosine=1, global_cosine=1, signs=1)
    _, slopes = GradientDistance(objective, {"a": torch.ones(3)})({"a": torch.zeros(3)})
    assert torch.isfinite(slopes["a"]).all()


def as_defined(objective, mine, theirs):
    """Every term of an objective as its definition says it, for autograd."""
    names = list(theirs)
    if objective.any_scale:
        norms = {n: theirs[n].square().sum() for n in names}
        along = sum((mine[n] * theirs[n]).sum() / norms[n] for n in names)
        scale = along / sum(mine[n].square().sum() / norms[n] for n in names)
        mine = {n: scale * mine[n] for n in names}
    whole, sent = (torch.cat([side[n].flatten() for n in names]) for side in (mine, theirs))
    far = objective.global_cosine * (1 - torch.cosine_similarity(whole, sent, dim=0))
    for name in names:
        g, given = mine[name].flatten(), theirs[name].flatten()
        squares = (g - given).square()
        far = far + objective.squares * squares.sum() + objective.mse * squares.mean()
        far = far + objective.relative * squares.sum() / given.square().sum()
        turned = 1 - torch.cosine_similarity(g, given, dim=0)
        far = far + (objective.cosine + objective.positions * (name == "x.pos_embed")) * turned
        far = far + objective.absolute * (g - given).abs().sum()
        sure, rms = given / given.abs().max(), g.square().mean().sqrt()
        far = far + objective.signs * (-sure * g / rms).relu().mean()
    return far


WEIGHTS = (
    {"squares": 1},
    {"mse": 2, "cosine": 4},
    {"global_cosine": 1},
    {"mse": 1, "positions": 3},
    {"squares": 1, "absolute": 0.5},
    {"signs": 2},
    {"squares": 1, "mse": 2, "relative": 3, "cosine": 4, "global_cosine": 5, "absolute": 6},
)


@pytest.mark.parametrize("any_scale", [False, True])
@pytest.mark.parametrize("weights", WEIGHTS, ids=lambda weights: "+".join(weights))
def test_distances_and_slopes_are_those_of_their_definition(weights, any_scale):
    rng = torch.Generator().manual_seed(0)
    shapes = {"a": (2, 3, 4), "x.pos_embed": (2, 5)}  # two victims
    mine, theirs = (
        {n: torch.randn(shape, generator=rng, dtype=torch.float64) for n, shape in shapes.items()}
        for _ in range(2)
    )
    objective = Objective(**weights, any_scale=any_scale)
    together = torch.vmap(lambda g, sent: GradientDistance(objective, sent)(g))
    distances, slopes = together(mine, theirs)
    for victim in range(2):
        g, sent = ({n: t[victim] for n, t in side.items()} for side in (mine, theirs))
        expected, far = torch.func.grad_and_value(partial(as_defined, objective))(g, sent)
        for found, by_name in (
            GradientDistance(objective, sent)(g),
            (distances[victim], {n: t[victim] for n, t in slopes.items()}),
        ):
            torch.testing.assert_close(found, far)
            for name, slope in by_name.items():
                torch.testing.assert_close(slope, expected[name])


@pytest.mark.parametrize("weights", [{}, {"mse": -1.0, "cosine": 1}])
def test_an_objective_without_weight_or_with_a_negative_one_is_refused(weights):
    with pytest.raises(ValueError, match="expected weights of 0 or more, one of them positive"):
        Objective(**weights)


def test_an_unknown_set_of_layers_is_refused():
    with pytest.raises(ValueError, match="layers='first': expected one of"):
        Objective(mse=1, layers="first")


# Layers


def tiny(build):
    return seeded_model(lambda: build(LABELS), 0).eval()


@pytest.mark.parametrize("build", [ANSWERS, donut, vt5])
def test_every_parameter_is_before_or_behind_the_fusion(build):
    model = tiny(build)
    gradient = gradient_of(model, batch_of(model))
    objectives = (Objective(mse=1, layers=which) for which in ("all", "pre_fusion", "post_fusion"))
    chosen = [choose(model, gradient, objective) for objective in objectives]
    every, before, behind = ({*one.names, *one.left_out} for one in chosen)
    assert before | behind == every
    assert not before & behind
    assert before
    assert behind
    assert not any("decoder" in name for name in before)


def test_what_a_page_goes_through_before_it_meets_the_text():
    model = tiny(ANSWERS)
    names = choose(model, gradient_of(model, batch_of(model)), Objective(1, layers="pre_fusion"))
    assert {"patch_embed", "pos_embed", "embeddings"} <= {n.split(".")[2] for n in names.names}
    assert "encoder" not in {n.split(".")[2] for n in names.names}
    model = tiny(donut)
    names = choose(model, gradient_of(model, batch_of(model)), Objective(1, layers="pre_fusion"))
    assert {n.split(".")[1] for n in names.names} == {"encoder"}


def test_tensors_that_no_loss_depends_on_are_left_out():
    model = tiny(ANSWERS).double()
    gradient = gradient_of(model, batch_of(model))
    found = choose(model, gradient, Objective(mse=1))
    assert {n for n in found.left_out if n.endswith(FLAT)} == {
        f"network.layoutlmv3.encoder.layer.{k}.attention.self.key.bias" for k in (0, 1)
    } | {"network.qa_outputs.out_proj.bias"}
    largest = max(gradient[name].norm() for name in found.names)
    assert all(gradient[name].norm() < 1e-12 * largest for name in found.left_out)


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2)


def test_a_model_that_does_not_say_what_reads_the_page_is_refused():
    model = Plain()
    gradient = {name: torch.ones_like(p) for name, p in model.named_parameters()}
    assert len(choose(model, gradient, Objective(mse=1)).names) == 2
    with pytest.raises(ValueError, match="a Plain does not say which layers read the page"):
        choose(model, gradient, Objective(mse=1, layers="pre_fusion"))
    zero = {name: g * 0 for name, g in gradient.items()}
    with pytest.raises(ValueError, match="no gradient is left to match"):
        choose(model, zero, Objective(mse=1))


def test_soft_labels_at_a_certainty_are_the_cross_entropy():
    torch.manual_seed(0)
    scores, wanted = torch.randn(4, 5), torch.tensor([0, 3, 3, 1])
    scores[:, 4] = torch.finfo(torch.float32).min
    labels = torch.full((4, 5), -50.0)
    labels[torch.arange(4), wanted] = 50.0
    labels[:, 4] = 90.0  # what is ruled out cannot be a label
    expected = nn.functional.cross_entropy(scores, wanted)
    torch.testing.assert_close(soft_loss([scores], [labels]), expected)
    torch.testing.assert_close(soft_loss([scores] * 2, [labels] * 2), expected)


# Priors


def dot():
    page = torch.zeros(1, 3, 7, 7)
    page[:, :, 3, 3] = 1.0
    return page


def test_priors_of_one_dot_by_hand():
    assert LaplacianText("sum")(dot()).item() == pytest.approx(3 * (4 + 4))
    assert SpatialVariation("sum")(dot()).item() == pytest.approx(3 * 4)
    assert SpatialVariation()(dot()).item() == pytest.approx(3 * 2 * 2 / (3 * 42))
    assert ChannelVariation("sum")(dot()).item() == 0
    weights = np.exp(-(np.arange(-2, 3) ** 2) / 2)
    centre = (weights[2] / weights.sum()) ** 2
    assert GaussianSmooth(reduction="sum")(dot()).item() == pytest.approx(6 * (1 - centre))


def test_the_channel_prior_counts_each_pair_once_and_the_printed_one_does_not():
    page = torch.zeros(2, 3, 1, 1)
    page[:, 0], page[:, 1] = 1.0, 0.25
    assert ChannelVariation("sum")(page).item() == pytest.approx(2 * (0.75 + 0.25 + 1))
    printed = ChannelVariation("sum", as_printed=True)(page).item()
    assert printed == pytest.approx(2 * (0.75 + 0.75 + 1))
    assert ChannelVariation()(page[:, :1]).item() == 0


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_slopes_of_priors_are_their_differences(reduction):
    page = torch.rand(1, 3, 6, 7, dtype=torch.float64, requires_grad=True)
    for prior in (
        LaplacianText(reduction),
        GaussianSmooth(reduction=reduction),
        SpatialVariation(reduction),
        ChannelVariation(reduction),
        ChannelVariation(reduction, as_printed=True),
    ):
        assert torch.autograd.gradcheck(prior, page)


# Schedules and starts


def test_schedules_by_hand():
    assert [Late(0.5).at(done) for done in (0, 0.49, 0.5, 0.99)] == [0, 0, 1, 1]
    assert Constant(3.0).at(0.7) == 3.0
    assert Exponential.to(0.1).at(0) == 1
    assert Exponential.to(0.1).at(0.5) == pytest.approx(math.sqrt(0.1))
    assert Exponential(2.0, 5.0).at(1) == pytest.approx(5 * math.exp(-2))
    steps = [Steps((0.25, 0.5)).at(done) for done in (0.2, 0.25, 0.6)]
    assert steps == pytest.approx([1, 0.1, 0.01])
    with pytest.raises(ValueError, match=r"end=0: expected a value in \(0, 1\]"):
        Exponential.to(0)


def test_starts():
    rng = np.random.default_rng(0)
    template = torch.zeros(1, 3, 40, 40)
    template[:, 0] = 90.0
    assert torch.equal(start("template", template, 3, rng), template)
    assert torch.equal(start("template", template, 1, rng), torch.full((1, 1, 40, 40), 30.0))
    assert (start("white", template, 1, rng) == 255).all()
    noise, normal = (start(kind, template, 3, rng) for kind in ("noise", "normal"))
    assert noise.mean().item() == pytest.approx(127.5, abs=4)
    assert noise.std().item() == pytest.approx(255 / math.sqrt(12), abs=3)
    assert (normal == 0).double().mean().item() == pytest.approx(0.159, abs=0.02)
    assert normal.max() == 255


# State on disk


def test_states_come_back_as_they_were(tmp_path):
    state = {
        "tensors": [torch.arange(3), None, torch.tensor(1.5)],
        "numbers": {0: 1, 7: 0.1, 8: math.inf},
        "texts": {"name": "tensors"},
        "same": torch.zeros(2)[None].expand(2, 2),
    }
    Kept(tmp_path, "state").write(state)
    back = Kept(tmp_path, "state").state()
    assert torch.equal(back["tensors"][0], torch.arange(3))
    assert back["tensors"][1] is None
    assert back["tensors"][2].item() == 1.5
    assert back["numbers"] == {0: 1, 7: 0.1, 8: math.inf}
    assert back["texts"] == {"name": "tensors"}
    assert back["same"].tolist() == [[0, 0], [0, 0]]


# Safe Template


def grounds():
    model = tiny(ANSWERS)
    batch = batch_of(model, rows=[0])
    template = batch.pop("pixels").float()
    template[..., :8] = 255.0
    return model, batch, template


def moved(model, batch, clean, changed):
    """Returns how far the gradient moved, as a share of itself."""
    there, here = (gradient_of(model, {**batch, "pixels": page}) for page in (changed, clean))
    apart = sum(((there[name] - here[name]) ** 2).sum() for name in here)
    return (apart / sum((g**2).sum() for g in here.values())).sqrt().item()


@pytest.mark.slow
def test_safe_templates_stay_near_and_lead_the_gradient_away():
    model, batch, template = grounds()
    share = {}
    for kind in ("pgd", "random", "pgd_as_printed"):
        rng = np.random.default_rng(0)
        made = SafeTemplate(8, kind, steps=24)
        changed = made.changed(model, batch, template, rng)
        assert (changed - template).abs().max() <= 8
        assert changed.min() >= 0
        assert changed.max() <= 255
        share[kind] = moved(model, batch, template, changed)
    assert share["pgd"] > 1.5 * share["random"]
    assert share["pgd_as_printed"] < share["pgd"] / 1.5
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"epsilon": 0}, "epsilon=0, steps=40"),
        ({"epsilon": 256}, "expected positive numbers; epsilon in pixels of 0…255"),
        ({"kind": "fgsm"}, "kind='fgsm': expected one of"),
        ({"steps": 0}, "steps=0"),
    ],
)
def test_safe_templates_that_cannot_be_made_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        SafeTemplate(**wrong)
    model, batch, template = grounds()
    with pytest.raises(ValueError, match="takes no pages of"):
        SafeTemplate().changed(model, batch, template[..., :16], np.random.default_rng(0))


def test_ink_is_the_colour_that_the_template_is_printed_in():
    blank = torch.full((1, 3, 4, 4), 255.0)
    blue = blank.clone()
    blue[0, :, 1, 2] = torch.tensor([15.0, 15.0, 135.0])  # takes away 240, 240 and 120
    blue[0, :, 3, 3] = torch.tensor([135.0, 135.0, 195.0])  # the same, half as dark
    pages = torch.stack([blank, blue])
    ink = ink_of(pages).flatten(1)
    torch.testing.assert_close(ink, torch.tensor([[1.0, 1.0, 1.0], [1.0, 1.0, 0.5]]))
    private = torch.ones(2, 1, 1, 4, 4, dtype=torch.bool)
    shown = Canvas.of(pages, private, "private", "ink").page(torch.full((2, 1, 1, 4, 4), 55.0))
    assert shown[0].unique().tolist() == [55.0]
    assert shown[1, 0, :, 0, 0].tolist() == [55.0, 55.0, 155.0]
    assert channels("ink") == channels("grey") == 1


def test_white_stays_white_in_any_ink():
    page = torch.rand(1, 3, 8, 8) * 255
    free = torch.ones(1, 1, 8, 8, dtype=torch.bool)
    shown = Canvas.of(page, free, "private", "ink").page(torch.full((1, 1, 8, 8), 255.0))
    assert torch.equal(shown, torch.full((1, 3, 8, 8), 255.0))
