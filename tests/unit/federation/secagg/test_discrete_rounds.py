"""Rounds with discrete noise behind masks: the same guarantee in half the bits."""

import numpy as np
import pytest
import torch
from host_vectors import to_vectors
from toy_private import Double, Watched, Wide, federation, provider_data, vector_of

from fedpriv.clients.feam_dp import ExampleGradients
from fedpriv.clients.fedavg import LocalTraining
from fedpriv.clients.fl_provider_dp import ProviderUpdates
from fedpriv.federation.audit.mechanism import audit_mechanism
from fedpriv.federation.loop import Unworkable
from fedpriv.federation.messages import UPDATE
from fedpriv.federation.secagg.masking import Masking
from fedpriv.federation.secagg.messages import MASKED
from fedpriv.privacy.discrete import Steps
from fedpriv.privacy.ledger import Ledger
from fedpriv.privacy.mechanism import example_gaussian, provider_gaussian
from fedpriv.privacy.statement import statement
from fedpriv.runtime.run_folder import LEDGER, RunFolder
from fedpriv.strategies.feam_dp import FeAmDP
from fedpriv.strategies.fedavg import FedAvg
from fedpriv.strategies.fl_provider_dp import FLProviderDP
from fedpriv.strategies.provider_bandmf import ProviderBandMF
from fedpriv.training.loops import Optimizer

HALF = ProviderUpdates(steps=1, batch_size=4, optimizer=Optimizer("sgd", lr=0.3))
DISCRETE = Masking(mechanism="discrete")


pytestmark = pytest.mark.usefixtures("in_own_folder", "budget_untold")


def providers(noise=1.0, bands=1, **settings):
    return provider_gaussian(
        clip_norm=0.5, providers=2, noise_multiplier=noise, bands=bands, **settings
    )


def made(strategy=None, half=HALF, clients=4, masking=DISCRETE, **settings):
    strategy = strategy or FLProviderDP(providers(), threshold=settings.pop("threshold", 1.0))
    return federation(strategy, half, provider_data(clients, 4), masking=masking, **settings)


def ledger(result):
    return Ledger.from_json(RunFolder.existing(result.run_dir).read_json(LEDGER))


ALGORITHMS = {
    "providers": lambda: (FLProviderDP(providers(0.1)), HALF),
    "bands": lambda: (ProviderBandMF(providers(0.1, bands=2)), HALF),
    "examples": lambda: (
        FeAmDP(example_gaussian(clip_norm=0.5, examples=60, noise_multiplier=0.2)),
        ExampleGradients(),
    ),
}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_run_is_that_of_continuous_noise_but_for_the_noise(name):
    """With next to no noise; the rest is the rounding of a few sums."""
    strategy, half = ALGORITHMS[name]()
    plain = vector_of(made(strategy, half, masking=Masking()).run(3))
    strategy, half = ALGORITHMS[name]()
    discrete = vector_of(made(strategy, half).run(3))
    assert discrete == pytest.approx(plain, abs=0.05)
    assert np.linalg.norm(discrete - plain) < 0.2 * np.linalg.norm(plain)


def test_messages_have_half_the_bits_and_hide_what_is_in_them():
    sizes = {}
    for mechanism in ("gaussian", "discrete"):
        watched = Watched(run := made(masking=Masking(mechanism=mechanism)))
        run.run(1, grid=watched)
        words = [
            to_vectors(reply.content[UPDATE])[MASKED]
            for reply in watched.replied
            if UPDATE in reply.content
        ]
        sizes[mechanism] = {word.nbytes for word in words}
        # Uniform over the ring: the mean of 4 x 51 words is within five standard deviations.
        share = np.concatenate(words).astype(np.float64) / (2.0 ** (8 * words[0].itemsize))
        assert abs(share.mean() - 0.5) < 5 / np.sqrt(12 * share.size)
    assert {2 * size for size in sizes["discrete"]} == sizes["gaussian"]


def test_noise_in_the_sum_is_what_is_booked():
    """Of a hundred thousand weights, none of which is trained on; four clients' shares."""
    strategy = FLProviderDP(providers(2.0))
    run = federation(strategy, HALF, provider_data(4, 1), model=Wide, masking=DISCRETE)
    noise = vector_of(run.run(1))[4:]
    std = 2.0 * 0.5 / 2 / 4  # σC / M, and the mean over four clients
    assert noise.std() == pytest.approx(std, rel=0.02)
    assert noise.std() > std * 0.99


def test_the_ledger_is_the_continuous_mechanisms():
    booked = {
        kind: ledger(made(masking=Masking(mechanism=kind)).run(3))
        for kind in ("gaussian", "discrete")
    }
    for view in ("global", "server_masked"):
        assert booked["discrete"].history(view) == booked["gaussian"].history(view)
    told = {kind: statement(one)["not_covered"] for kind, one in booked.items()}
    gone = set(told["gaussian"]) - set(told["discrete"])
    assert any("floating-point" in item for item in gone)
    assert any("4 E + 16" in item for item in gone)


def test_dropouts_and_redraws():
    run = made(threshold=0.75)
    watched = Watched(run, {(2, 0, 1): "train", (3, 0, 0): "reveal"})
    result = run.run(4, grid=watched)
    assert np.isfinite(vector_of(result)).all()
    assert ledger(result).history("global") == ledger(made(threshold=0.75).run(4)).history("global")


def test_a_run_goes_on_with_the_same_bits():
    straight = made(one_noise=False, checkpoint_every=2).run(5)
    made(one_noise=False, checkpoint_every=2).run(3, run_dir="stopped")
    again = made(one_noise=False, checkpoint_every=2).run(5, run_dir="stopped", resume=True)
    assert (vector_of(again) == vector_of(straight)).all()


@pytest.mark.parametrize("cohort", [0, 1])
def test_a_cohort_that_is_not_masked_is_added_up_all_the_same(cohort):
    """Whoever is alone sends whole numbers too, and where nobody is drawn the server adds noise."""
    strategy = FLProviderDP(providers(0.1, client_rate=0.05 if cohort == 0 else 1.0))
    run = made(strategy, clients=4 if cohort == 0 else 1)
    result = run.run(2)
    moved = vector_of(result) - vector_of(made(strategy, clients=1).run(0))
    assert np.isfinite(moved).all()
    assert np.linalg.norm(moved) < 3.0


def test_an_audit_measures_what_is_booked_and_no_more():
    found = audit_mechanism(made(FLProviderDP(providers(2.0))), 4, axes=1 << 12, confidence=0.9999)
    assert not found.contradicted, found.lines()
    assert not found.blind, found.lines()
    for view in found.views.values():
        assert 0.4 * view.ledger < view.sigma_fit <= view.ledger


def test_an_audit_sees_too_little_noise(monkeypatch):
    share = Steps.share
    monkeypatch.setattr(Steps, "share", lambda self, noise, t: share(self, noise / 2, t))
    found = audit_mechanism(made(FLProviderDP(providers(2.0))), 4, axes=1 << 12)
    assert found.contradicted


def test_a_strategy_may_be_in_two_federations():
    """Behind masks it is a copy, whose steps are its own federation's."""
    strategy = FLProviderDP(providers())
    behind, plain = made(strategy), made(strategy, masking=None)
    gaussian = made(strategy, masking=Masking())
    assert behind.algorithm.mechanism.scale > 0
    assert plain.algorithm.mechanism.scale == gaussian.algorithm.mechanism.scale == 0
    expected = vector_of(made().run(2))
    assert (vector_of(behind.run(2)) == expected).all()
    assert (vector_of(plain.run(2)) == vector_of(made(masking=None).run(2))).all()


def test_models_in_double_precision():
    run = federation(
        FLProviderDP(providers()), HALF, provider_data(4, 4), model=Double, masking=DISCRETE
    )
    assert np.isfinite(vector_of(run.run(1))).all()


def test_sums_of_many_are_as_far_apart_as_one_provider_is():
    """Half an ulp above 2^k, single precision rounds once for each of many, the same way."""
    from fedpriv.clients import fl_provider_dp

    count, size = 2**11, 4
    small = torch.zeros(size)
    small[0] = -(2.0 ** (11 - 24))
    large = torch.zeros(size)
    large[0] = 1.0
    totals = []
    for extra in (0, 1):
        total = torch.zeros(size, dtype=torch.float64)
        for change in [large] * (count + extra) + [small] * count:
            total.add_(fl_provider_dp.clip(change, 1.0).clipped)
        totals.append(total)
    assert np.linalg.norm(totals[1] - totals[0]) == pytest.approx(1, abs=1e-9)


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="mechanism='exact': expected 'gaussian' or 'discrete'"):
        Masking(mechanism="exact")
    with pytest.raises(Unworkable, match=r"masking\.mechanism=discrete has its own; take null"):
        made(masking=Masking(mechanism="discrete", bound=1.0))
    with pytest.raises(Unworkable, match="share no noise; take gaussian"):
        federation(FedAvg(weighted=False), LocalTraining(), provider_data(3, 2), masking=DISCRETE)
    with pytest.raises(Unworkable, match=r"take strategy\.variant=sound"):
        made(FLProviderDP(providers(), variant="paper"))
    with pytest.raises(Unworkable, match="must be 8 or more"):
        made(FLProviderDP(providers(0.01)))
    with pytest.raises(Unworkable, match="times the noise, and may take"):
        federation(
            FLProviderDP(providers(6000.0)), HALF, provider_data(4, 4), model=Wide,
            masking=DISCRETE,
        )  # fmt: skip
