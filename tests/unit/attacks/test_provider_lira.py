"""The likelihood ratio of a provider, on a model of 64 numbers and on drawn signals."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from toy_providers import SGD, Pointer, auc, documents_of, trained

from fedpriv.attacks.provider_lira import (
    ProviderLiRA,
    gaussians,
    likelihood_ratios,
)
from fedpriv.attacks.reference_models import (
    Course,
    ReferenceAccess,
    balanced_halves,
    losses_of,
    split,
)
from fedpriv.data.examples import Examples
from fedpriv.threat.access import GreyBox, HeldOutDocuments, PublicModel
from fedpriv.threat.attack import AttackContext, NotApplicable
from fedpriv.threat.claims import MEMBER, NON_MEMBER
from fedpriv.threat.queries import Oracle
from fedpriv.training.loops import train_steps


def judged(tmp_path, held, model, attack=None, seed=0, start=Pointer):
    attack = attack or ProviderLiRA(references=8, steps=40, optimizer=SGD)
    access = ReferenceAccess(
        GreyBox(Oracle(model, None).replies),
        PublicModel({}, None, None, lambda: start().eval()),
        HeldOutDocuments(held),
    )
    context = AttackContext(np.random.default_rng(seed), lambda line: None, tmp_path)
    return attack.run(access, context), context.remarks.notes


@pytest.mark.parametrize("statistic", ["online", "offline"])
@pytest.mark.parametrize("signal", ["logit", "loss"])
def test_members_are_told_from_others(tmp_path, statistic, signal):
    held, own = documents_of()
    members = set(list(held)[::2])
    model = trained([page for name in members for page in own[name]])
    attack = ProviderLiRA(steps=40, optimizer=SGD, statistic=statistic, signal=signal)
    verdict, notes = judged(tmp_path, held, model, attack)
    assert verdict.classifier == "provider_lira"
    assert verdict.providers == tuple(held)
    assert auc(verdict, members) > 0.95
    right = [(g == MEMBER) == (p in members) for p, g in zip(held, verdict.guesses, strict=True)]
    assert np.mean(right) > 0.85
    assert "8 reference models of 40 steps" in notes[0]


def test_a_final_model_that_has_learnt_far_more_is_borne(tmp_path):
    held, own = documents_of()
    members = set(list(held)[::2])
    model = trained([page for name in members for page in own[name]], steps=600)
    verdict, _ = judged(tmp_path, held, model)
    assert auc(verdict, members) > 0.95
    assert set(verdict.guesses.tolist()) == {MEMBER, NON_MEMBER}


def test_an_untrained_model_gives_nothing_away(tmp_path):
    found = []
    for seed in range(6):
        held, _ = documents_of(seed=seed)
        chosen = np.random.default_rng(seed + 100).permutation(sorted(held))[:12]
        verdict, _ = judged(tmp_path, held, Pointer(), seed=seed)
        found.append(auc(verdict, set(chosen)))
    # One AUC of 12 against 12 varies by 0.12, the mean of six by 0.05.
    assert abs(np.mean(found) - 0.5) < 0.15


def test_the_generator_decides_all(tmp_path):
    held, own = documents_of(providers=6)
    model = trained(own["p00"] + own["p03"])
    torch.manual_seed(1)
    first, _ = judged(tmp_path, held, model)
    torch.manual_seed(2)
    again, _ = judged(tmp_path, held, model)
    other, _ = judged(tmp_path, held, model, seed=1)
    np.testing.assert_array_equal(first.scores, again.scores)
    assert not np.array_equal(first.scores, other.scores)


def test_a_provider_with_one_document_is_asked_about_all_the_same(tmp_path):
    held, own = documents_of()
    members = set(list(held)[::2])
    model = trained([page for name in members for page in own[name]])
    held = {p: pages[:1] if p in ("p00", "p01") else pages for p, pages in held.items()}
    verdict, notes = judged(tmp_path, held, model)
    assert "2 suppliers have one document" in notes[-1]
    scores = dict(zip(verdict.providers, verdict.scores, strict=True))
    assert scores["p00"] > 0 > scores["p01"]


def test_what_is_missing_is_said(tmp_path):
    held, _ = documents_of(providers=4, documents=1)
    with pytest.raises(NotApplicable, match="no supplier has two documents"):
        judged(tmp_path, held, Pointer())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"references": 7}, "references=7: expected an even number, 4 or more"),
        ({"references": 2}, "references=2"),
        ({"steps": 0}, "steps=0"),
        ({"train_share": 1.0}, r"train_share=1\.0"),
        ({"statistic": "on"}, "statistic='on'"),
        ({"signal": "p"}, "signal='p'"),
        ({"workers": -1}, "workers=-1"),
    ],
)
def test_settings_are_checked(settings, message):
    with pytest.raises(ValueError, match=message):
        ProviderLiRA(**settings)


@pytest.mark.parametrize("providers", [6, 7])
def test_every_provider_is_in_half_of_the_references(providers):
    eligible = [True] * providers + [False]
    halves = balanced_halves(8, eligible, np.random.default_rng(0))
    assert halves.sum(axis=0).tolist() == [4] * providers + [0]
    assert set(halves.sum(axis=1)) <= {providers // 2, (providers + 1) // 2}
    assert not np.array_equal(halves[0], halves[2])


def test_documents_are_parted():
    rng = np.random.default_rng(0)
    taught, rest = split({"a": list("wxyz"), "b": ["v"], "c": ["t", "u"]}, 0.9, rng)
    assert (len(taught["a"]), len(rest["a"])) == (3, 1)
    assert sorted(taught["a"] + rest["a"]) == list("wxyz")
    assert (taught["b"], rest["b"]) == ([], ["v"])
    assert (len(taught["c"]), len(rest["c"])) == (1, 1)


def test_the_ratio_by_hand():
    # Two providers, four references; all signals are 1 off their mean: in 3 and 7, out 1 and 5.
    references = np.array([[2.0, 4.0], [4.0, 6.0], [0.0, 6.0], [2.0, 8.0]])
    trained_on = np.array([[1, 0], [1, 0], [0, 1], [0, 1]], bool)
    into, out, spread = gaussians(references, trained_on)
    np.testing.assert_allclose(into, [3, 7])
    np.testing.assert_allclose(out, [1, 5])
    assert spread == pytest.approx(math.sqrt(8 / 4), rel=1e-5)
    scores = likelihood_ratios(
        np.array([3.0, 5.5]), references, trained_on, offline=False, calibrate=False
    )
    # ((s - out)² - (s - in)²) / (2 · 2)
    np.testing.assert_allclose(scores, [4 / 4, (0.25 - 2.25) / 4], rtol=1e-5)
    alone = likelihood_ratios(
        np.array([3.0, 5.5]), references, trained_on, offline=True, calibrate=False
    )
    np.testing.assert_allclose(alone, [2 / math.sqrt(2), 0.5 / math.sqrt(2)], rtol=1e-5)


def test_what_moves_all_providers_alike_does_not_count():
    rng = np.random.default_rng(0)
    references, final = rng.normal(size=(8, 20)), rng.normal(size=20)
    trained_on = balanced_halves(8, [True] * 20, rng)
    plain = likelihood_ratios(final, references, trained_on, offline=False)
    moved = references + 5 * rng.normal(size=(8, 1))
    np.testing.assert_allclose(
        likelihood_ratios(final + 9, moved, trained_on, offline=False), plain, atol=1e-8
    )


def test_losses_of_windows_are_their_questions_mean():
    pages, _ = documents_of(providers=2, documents=2)
    model = trained(pages["p00"]).eval()
    examples = model.encode([*pages["p00"], *pages["p01"]])
    with torch.no_grad():
        single = model.losses(examples.batch(np.arange(4))).double().numpy()
    np.testing.assert_allclose(losses_of(model, examples), single, rtol=1e-6)
    joined = Examples.of({**examples.columns, "question": np.array([0, 0, 1, 2])})
    expected = [single[:2].mean(), single[:2].mean(), single[2], single[3]]
    np.testing.assert_allclose(losses_of(model, joined), expected, rtol=1e-6)


# Eighths, so that nothing is rounded when medians are taken off.
EIGHTHS = st.integers(-80, 80).map(lambda number: number / 8)


@given(
    references=arrays(np.float64, (4, 6), elements=EIGHTHS),
    final=arrays(np.float64, 6, elements=EIGHTHS),
    provider=st.integers(0, 5),
    better=EIGHTHS.map(abs),
    offline=st.booleans(),
    calibrate=st.booleans(),
    seed=st.integers(0, 9),
)
def test_answering_better_never_looks_less_trained_on(
    references, final, provider, better, offline, calibrate, seed
):
    """Also where the references answer worse for those that they were trained on."""
    trained_on = balanced_halves(4, [True] * 5 + [False], np.random.default_rng(seed))
    raised = final.copy()
    raised[provider] += better
    before, after = (
        likelihood_ratios(signals, references, trained_on, offline=offline, calibrate=calibrate)
        for signals in (final, raised)
    )
    assert after[provider] >= before[provider]


def test_where_training_seems_to_do_harm_the_order_is_that_of_the_signals():
    """All references are worse at whom they were trained on, by chance or not."""
    rng = np.random.default_rng(0)
    trained_on = balanced_halves(8, [True] * 10, rng)
    references = rng.normal(size=(8, 10)) * 0.1 - 2.0 * trained_on
    final = np.linspace(0, 9, 10)
    scores = likelihood_ratios(final, references, trained_on, offline=False, calibrate=False)
    assert (np.diff(scores) > 0).all()
    assert np.abs(scores).max() < 1e-3


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
@pytest.mark.parametrize("signal", ["loss", "logit"])
def test_a_final_model_that_has_diverged_is_not_judged(tmp_path, wrong, signal):
    held, _ = documents_of(providers=4)
    model = Pointer()
    model.weight.data[:] = wrong
    attack = ProviderLiRA(references=4, steps=2, optimizer=SGD, signal=signal)
    with pytest.raises(NotApplicable, match="the losses of the final model are not finite for 4"):
        judged(tmp_path, held, model, attack)


def diverging():
    model = Pointer()
    model.weight.data[:] = math.nan
    return model


def test_references_that_diverge_are_said(tmp_path):
    held, _ = documents_of(providers=4)
    attack = ProviderLiRA(references=4, steps=2)
    with pytest.raises(NotApplicable, match="the losses of reference 1 are not finite"):
        judged(tmp_path, held, Pointer(), attack, start=diverging)


@pytest.mark.parametrize(("rows", "steps"), [(5, 1), (5, 7), (16, 2), (16, 5), (0, 3)])
def test_a_reference_leaves_the_generator_as_its_training_does(tmp_path, rows, steps):
    lessons = Pointer().encode([page for own in documents_of(4)[0].values() for page in own])
    course = Course(Pointer().eval(), lessons, lessons, SGD, steps, 8, 1, tmp_path)
    rng = np.random.default_rng(0)
    reference = course.reference(np.arange(rows), rng)
    course.trained(reference)
    model, shuffle = Pointer(), reference.shuffle
    some = lessons.take(reference.rows)
    train_steps(model, some, SGD.build(model), steps=steps, batch_size=8, shuffle=shuffle)
    assert shuffle.bit_generator.state == rng.bit_generator.state


def test_references_are_not_trained_twice(tmp_path, monkeypatch):
    held, own = documents_of(providers=6)
    model = trained(own["p00"] + own["p03"])
    attack = ProviderLiRA(references=4, steps=3, optimizer=SGD)
    first, _ = judged(tmp_path, held, model, attack)
    one, *_ = sorted((tmp_path / "references").glob("*.safetensors"))
    one.unlink()
    calls, train = [], Course.trained
    monkeypatch.setattr(Course, "trained", lambda *of: calls.append(of) or train(*of))
    again, _ = judged(tmp_path, held, model, attack)
    assert len(calls) == 1
    np.testing.assert_array_equal(first.scores, again.scores)
    judged(tmp_path, held, model, attack, seed=1)
    assert len(calls) == 5


@pytest.mark.slow
def test_workers_change_nothing(tmp_path):
    held, own = documents_of(providers=6)
    model = trained(own["p00"] + own["p03"])
    settings = {"references": 4, "steps": 3, "optimizer": SGD}
    here, _ = judged(tmp_path / "here", held, model, ProviderLiRA(**settings))
    there, _ = judged(tmp_path / "there", held, model, ProviderLiRA(**settings, workers=2))
    np.testing.assert_array_equal(here.scores, there.scores)
