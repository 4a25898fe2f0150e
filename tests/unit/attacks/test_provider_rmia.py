"""RMIA for providers, on a model of 64 numbers and on ratios whose order is known."""

from dataclasses import dataclass

import numpy as np
import pytest
from toy_providers import SGD, Pointer, auc, documents_of, trained

from fedpriv.attacks.provider_rmia import (
    ProviderRMIA,
    dominance,
    usual_probabilities,
)
from fedpriv.attacks.reference_models import ReferenceAccess
from fedpriv.data import promises
from fedpriv.data.document import DocumentSet
from fedpriv.threat.access import GreyBox, HeldOutDocuments, PublicModel
from fedpriv.threat.attack import AttackContext, NotApplicable
from fedpriv.threat.claims import MEMBER
from fedpriv.threat.queries import Oracle


@dataclass(frozen=True)
class Strangers:
    """Providers that nobody trained on."""

    seed: int

    def load(self):
        held, _ = documents_of(providers=40, documents=2, seed=self.seed)
        return DocumentSet("strangers", tuple(page for own in held.values() for page in own), ())


def judged(tmp_path, held, model, seed=0, **settings):
    attack = ProviderRMIA(**{"steps": 40, "optimizer": SGD} | settings)
    access = ReferenceAccess(
        GreyBox(Oracle(model, None).replies),
        PublicModel({}, None, None, lambda: Pointer().eval()),
        HeldOutDocuments(held),
    )
    context = AttackContext(np.random.default_rng(seed), lambda line: None, tmp_path)
    return attack.run(access, context), context.remarks.notes


def half_trained_on():
    held, own = documents_of()
    members = set(list(held)[::2])
    return held, members, trained([page for name in members for page in own[name]])


@pytest.mark.parametrize(
    ("references", "more"),
    [
        (1, {}),
        (2, {}),
        (2, {"statistic": "online"}),
        (2, {"signal": "probability", "a": 0.3}),
        (4, {"gamma": 2.0}),
    ],
)
def test_few_references_tell_members_from_others(tmp_path, references, more):
    held, members, model = half_trained_on()
    claim, notes = judged(tmp_path, held, model, references=references, **more)
    assert claim.classifier == "provider_rmia"
    assert claim.providers == tuple(held)
    assert auc(claim, members) > 0.95
    right = [(g == MEMBER) == (p in members) for p, g in zip(held, claim.guesses, strict=True)]
    assert np.mean(right) > 0.85
    assert f"{references} reference models of 40 steps" in notes[0]


def test_a_population_keeps_the_false_alarms_that_were_asked_for(tmp_path, monkeypatch):
    # Its pages are numbers in place of pixels.
    monkeypatch.setattr(promises, "load", lambda source: source.load())
    held, members, model = half_trained_on()
    settings = {"population": Strangers(5), "false_positives": 0.1}
    claim, notes = judged(tmp_path, held, model, **settings)
    assert claim.providers == tuple(held)
    assert auc(claim, members) > 0.95
    taken = {p for p, g in zip(held, claim.guesses, strict=True) if g == MEMBER}
    assert len(taken & members) > 8
    assert len(taken - members) < 5
    assert "90% of 40 suppliers that nobody trained on" in notes[-1]
    nobody, _ = judged(tmp_path, held, Pointer(), **settings)
    assert (nobody.guesses == MEMBER).sum() < 8


def test_an_untrained_model_gives_nothing_away(tmp_path):
    found = []
    for seed in range(6):
        held, _ = documents_of(seed=seed)
        chosen = np.random.default_rng(seed + 100).permutation(sorted(held))[:12]
        claim, _ = judged(tmp_path, held, Pointer(), seed=seed)
        found.append(auc(claim, set(chosen)))
    # One AUC of 12 against 12 varies by 0.12, the mean of six by 0.05.
    assert abs(np.mean(found) - 0.5) < 0.15


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_a_final_model_that_has_diverged_is_not_judged(tmp_path, wrong):
    held, _ = documents_of(providers=4)
    model = Pointer()
    model.weight.data[:] = wrong
    with pytest.raises(NotApplicable, match="the losses of the final model are not finite for 4"):
        judged(tmp_path, held, model, steps=2)


def test_fewer_than_two_providers_to_train_on_are_no_sample(tmp_path):
    held, _ = documents_of(providers=4)
    held = {p: pages[: 2 if p == "p00" else 1] for p, pages in held.items()}
    with pytest.raises(NotApplicable, match="fewer than two suppliers have two documents"):
        judged(tmp_path, held, Pointer())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"references": 0}, "references=0: expected 1, or an even number"),
        ({"references": 3}, "references=3"),
        ({"statistic": "on"}, "statistic='on'"),
        ({"a": 1.5}, r"a=1\.5"),
        ({"signal": "logit"}, "signal='logit'"),
        ({"gamma": 0.0}, r"gamma=0\.0"),
        ({"false_positives": 1.0}, r"false_positives=1\.0"),
        ({"train_share": 1.0}, r"train_share=1\.0"),
        ({"steps": 0}, "steps=0"),
        ({"workers": -1}, "workers=-1"),
    ],
)
def test_settings_are_checked(settings, message):
    with pytest.raises(ValueError, match=message):
        ProviderRMIA(**settings)


def test_what_models_make_of_a_question_by_hand():
    references = np.array([[0.9, 0.6, 0.8], [0.5, 0.8, 0.8]])
    trained_on = np.array([[1, 0, 0], [0, 1, 0]], bool)
    usual = usual_probabilities(references, trained_on, 0.5, offline=False)
    # In and out; in and out; nobody was trained on the third, whose in is .5 · .8 + .5.
    np.testing.assert_allclose(usual, [(0.9 + 0.5) / 2, (0.8 + 0.6) / 2, (0.9 + 0.8) / 2])
    usual = usual_probabilities(references, trained_on, 0.5, offline=True)
    np.testing.assert_allclose(usual, [(0.75 + 0.5) / 2, (0.8 + 0.6) / 2, (0.9 + 0.8) / 2])


def test_with_one_reference_out_is_as_far_below_in_as_it_is_for_others():
    # Odds of 4 where it was trained on the provider, of 2 where it was not: half of them.
    references = np.array([[4 / 5, 2 / 3]])
    usual = usual_probabilities(references, np.array([[True, False]]), 1.0, offline=True)
    np.testing.assert_allclose(usual, [2 / 3, 2 / 3])


def test_dominance_is_the_share_of_the_population_and_then_the_ratio():
    ratios = np.log([2.0, 9.0, 30.0, 1.0, 8.0])
    population = np.array([0, 0, 0, 1, 1], bool)
    scores = dominance(ratios, population, 1.0)
    assert (np.floor(scores * [3, 3, 3, 2, 2])).tolist() == [1, 2, 2, 0, 1]
    assert scores[2] > scores[1]
    assert np.floor(dominance(ratios, population, 3.0) * [3, 3, 3, 2, 2]).tolist() == [
        0,
        1,
        2,
        0,
        1,
    ]
    alone = dominance(ratios, np.ones(5, bool), 1.0)
    assert np.argsort(alone).tolist() == np.argsort(ratios).tolist()
