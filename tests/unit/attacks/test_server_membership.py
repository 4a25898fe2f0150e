"""A server that looks for providers in what its clients send, on a model of 128 numbers."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from toy_providers import page_of, pages_as_examples

from fedpriv.attacks.inversion.gradients import gradient_of
from fedpriv.attacks.server_membership import (
    ColludingAccess,
    Scale,
    ServerMembership,
    ServerMembershipAccess,
    against_others,
    highest_of_nobody,
    together,
    upper_group,
)
from fedpriv.data.generated.slips import Slips
from fedpriv.models.base import ExampleLosses
from fedpriv.models.layoutlmv3 import layoutlmv3
from fedpriv.models.question_answering import QuestionAnswerer
from fedpriv.models.vt5 import vt5
from fedpriv.runtime.torch_state import seeded_model
from fedpriv.threat.access import Architecture, HeldOutDocuments
from fedpriv.threat.attack import AttackContext, NotApplicable
from fedpriv.threat.claims import MEMBER, NON_MEMBER
from fedpriv.threat.surfaces.server import frozen
from fedpriv.threat.surfaces.transcript import Round, Transcript, Upload

WIDTH = 128


class Toy(QuestionAnswerer):
    """Answers 1 where its weights point along the page; the loss is the squared error."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(WIDTH))
        self.fixed = nn.Parameter(torch.ones(1), requires_grad=False)

    def encode(self, documents):
        return pages_as_examples(documents)

    def losses(self, batch):
        return (self.fixed - batch["page"] @ self.weight).square()

    def answer_batch(self, batch):
        raise NotImplementedError


def page_near(direction, provider, number, rng):
    page = (direction + 0.03 * rng.normal(size=WIDTH)).astype(np.float32)
    return page_of(page, f"{provider}-{number}", provider)


class World:
    """Providers with a direction each; the first `members` are trained on, client by client."""

    def __init__(self, clients=4, members=12, others=12, documents=3, seed=0):
        self.rng = np.random.default_rng(seed)
        self.clients = clients
        names = [f"p{n:02}" for n in self.rng.permutation(members + others)]
        directions = self.rng.normal(size=(len(names), WIDTH)) / np.sqrt(WIDTH)
        self.holder = {name: n % clients if n < members else -1 for n, name in enumerate(names)}
        pages = {
            name: [page_near(direction, name, n, self.rng) for n in range(2 * documents)]
            for name, direction in zip(names, directions, strict=True)
        }
        self.trained = {name: own[:documents] for name, own in pages.items()}
        self.asked = {name: tuple(own[documents:]) for name, own in sorted(pages.items())}

    def local(self, client, weight, steps=4, rate=0.05):
        """Returns what a client adds to the weights."""
        own = [p for name, k in self.holder.items() if k == client for p in self.trained[name]]
        batch = Toy().encode(own).batch(np.arange(len(own)))
        model = Toy()
        model.weight.data.copy_(weight)
        optimizer = torch.optim.SGD([model.weight], lr=rate)
        for _ in range(steps):
            optimizer.zero_grad()
            model.losses(batch).sum().backward()
            optimizer.step()
        return model.weight.detach() - weight

    def rounds(self, count=3, kind="delta", absent=(), noise=None):
        weight = torch.zeros(WIDTH)
        seen = []
        for number in range(1, count + 1):
            change = {
                k: self.local(k, weight) * (1 + k / 4)  # some clients shout
                for k in range(self.clients)
                if (number, k) not in absent
            }
            if noise is not None:
                change = {k: torch.randn(WIDTH, generator=noise) for k in change}
            sign = -1 if kind == "gradient" else 1
            uploads = tuple(Upload(k, kind, {"weight": sign * u}) for k, u in change.items())
            sent = {"weight": weight.clone()}
            seen.append(Round(number, 0, tuple(change), sent, uploads, None, kind))
            weight = weight + torch.stack(list(change.values())).mean(0)
        return tuple(seen)


def judged(attack, world, rounds):
    transcript = Transcript(rounds, {}, {"fixed": torch.ones(1)})
    return run(attack, transcript, Toy, world.asked)


def run(attack, transcript, build, documents):
    """Returns the scores, and the notes."""
    access = ServerMembershipAccess(transcript, Architecture(build), HeldOutDocuments(documents))
    context = AttackContext(np.random.default_rng(0), lambda line: None, Path())
    return attack.run(access, context), context.remarks.notes


def auc(found, world):
    member = np.array([world.holder[name] >= 0 for name in found.providers])
    higher = found.scores[member][:, None] > found.scores[~member][None, :]
    return higher.mean()


STATISTICS = ("loss_drop", "cosine", "inner_product")


@pytest.mark.parametrize("statistic", STATISTICS)
def test_the_client_that_holds_a_provider_is_found(statistic):
    world = World()
    found, notes = judged(ServerMembership(statistic=statistic), world, world.rounds())
    assert found.classifier == "server_update"
    assert found.providers == tuple(world.asked)
    assert auc(found, world) > 0.95
    guessed = found.guesses == MEMBER
    truth = np.array([world.holder[name] for name in found.providers])
    assert (truth[guessed] >= 0).mean() > 0.85
    right = found.clients[guessed & (truth >= 0)] == truth[guessed & (truth >= 0)]
    assert right.mean() > 0.9
    assert (found.clients[~guessed] == -1).all()
    assert "of 4 clients" in notes[0]


def test_gradients_point_the_other_way_than_changes():
    world = World()
    attack = ServerMembership(statistic="cosine")
    deltas, _ = judged(attack, world, world.rounds(1))
    gradients, _ = judged(attack, world, world.rounds(1, kind="gradient"))
    np.testing.assert_allclose(gradients.scores, deltas.scores, rtol=1e-6)


def test_the_loss_drop_of_a_gradient_is_not_known():
    world = World()
    with pytest.raises(NotApplicable, match="statistic=cosine"):
        judged(ServerMembership(statistic="loss_drop"), world, world.rounds(1, kind="gradient"))


@pytest.mark.parametrize("statistic", STATISTICS)
def test_updates_of_pure_noise_say_nothing(statistic):
    scores, flagged = [], []
    for seed in range(8):
        world = World(seed=seed)
        noise = torch.Generator().manual_seed(seed)
        found, _ = judged(
            ServerMembership(statistic=statistic), world, world.rounds(2, noise=noise)
        )
        scores.append(auc(found, world))
        flagged.append((found.guesses == MEMBER).mean())
    # The AUC of 12 against 12 has a standard deviation of 0.12 by chance; of eight means, 0.042.
    assert abs(np.mean(scores) - 0.5) < 0.13
    assert np.mean(flagged) < 0.2  # heavier tails than a Gaussian, of 24 providers


def test_a_client_may_be_absent():
    world = World()
    rounds = world.rounds(3, absent={(1, 0), (2, 1), (2, 2), (2, 3)})
    found, _ = judged(ServerMembership(statistic="cosine"), world, rounds)
    assert np.isfinite(found.scores).all()
    assert auc(found, world) > 0.9


def test_two_clients_are_too_few_to_compare():
    world = World(clients=2)
    found, notes = judged(ServerMembership(), world, world.rounds())
    assert "2 clients are too few" in notes[1]
    assert auc(found, world) > 0.9


@pytest.mark.parametrize("statistic", STATISTICS)
def test_the_series_of_models_is_enough(statistic):
    world = World(members=8, others=8)
    attack = ServerMembership(target="series", statistic=statistic)
    masked = tuple(
        Round(r.round, 0, r.answered, r.parameters, (), None, "masked") for r in world.rounds(5)
    )
    found, _ = judged(attack, world, masked)
    assert (found.classifier, found.clients) == ("server_series", None)
    assert auc(found, world) > 0.9
    assert {MEMBER, NON_MEMBER} == set(found.guesses.tolist())


def summed(rounds, hidden=True, colluders=()):
    """Returns a transcript with each round's mean, the others' updates masked if `hidden`."""
    seen = []
    for one in rounds:
        mean = torch.stack([u.tensors["weight"] for u in one.uploads]).mean(0)
        uploads = [
            replace(u, kind="masked") if hidden and u.client not in colluders else u
            for u in one.uploads
        ]
        seen.append(replace(one, aggregate={"weight": mean}, uploads=tuple(uploads)))
    settings = {"masked": hidden, "colluders": list(colluders)}
    return Transcript(tuple(seen), settings, {"fixed": torch.ones(1)})


@pytest.mark.parametrize("statistic", STATISTICS)
def test_with_all_others_colluding_the_sum_is_one_clients_update(statistic):
    world = World(clients=2, members=12, others=6)
    attack = ServerMembership(target="sum", statistic=statistic)
    held = [name for name in world.asked if world.holder[name] == 1]
    found, notes = run(attack, summed(world.rounds(), colluders=(0,)), Toy, world.asked)
    assert (found.classifier, found.clients) == ("server_sum", None)
    best = np.argsort(-found.scores)[: len(held)]
    assert {found.providers[place] for place in best} == set(held)
    assert notes == ["over the mean updates of 1 client that do not collude, in 3 rounds"]


@pytest.mark.parametrize("kind", ["delta", "gradient"])
def test_masks_change_nothing_that_colluders_tell(kind):
    world = World()
    rounds = world.rounds(3, kind=kind, absent={(2, 0), (3, 1)})
    attack = ServerMembership(target="sum")
    behind, notes = run(attack, summed(rounds, colluders=(0, 3)), Toy, world.asked)
    there, _ = run(attack, summed(rounds, hidden=False, colluders=(0, 3)), Toy, world.asked)
    np.testing.assert_allclose(behind.scores, there.scores, rtol=1e-3, atol=1e-4)
    assert notes == ["over the mean updates of 1 to 2 clients that do not collude, in 3 rounds"]


def test_the_loss_drop_of_sums_is_that_of_the_series_where_the_server_adds_the_mean():
    world = World(members=8, others=8)
    rounds = world.rounds(4)
    view = summed(rounds)
    by_sum, _ = run(ServerMembership(target="sum"), view, Toy, world.asked)
    last = {"weight": rounds[-1].parameters["weight"] + view.rounds[-1].aggregate["weight"]}
    after = Round(5, 0, (), last, (), None, "delta")
    series = replace(view, rounds=(*view.rounds, after))
    by_series, _ = run(ServerMembership(target="series"), series, Toy, world.asked)
    np.testing.assert_allclose(by_sum.scores, by_series.scores, rtol=1e-3, atol=1e-4)
    assert auc(by_sum, world) > 0.9


def test_the_sums_of_gradients_are_compared_by_cosine():
    world = World()
    view = summed(world.rounds(2, kind="gradient"), colluders=(1,))
    found, _ = run(ServerMembership(target="sum"), view, Toy, world.asked)
    # As those of changes, which point the other way.
    changes = summed(world.rounds(2), colluders=(1,))
    chosen = ServerMembership(target="sum", statistic="cosine")
    other, _ = run(chosen, changes, Toy, world.asked)
    np.testing.assert_allclose(found.scores, other.scores, rtol=1e-4, atol=1e-5)
    in_the_sum = np.array([world.holder[name] not in (-1, 1) for name in found.providers])
    assert found.scores[in_the_sum].min() > np.median(found.scores[~in_the_sum])
    with pytest.raises(NotApplicable, match="statistic=cosine"):
        run(ServerMembership(target="sum", statistic="loss_drop"), view, Toy, world.asked)


def test_only_the_sum_takes_what_colluders_tell():
    assert ServerMembership(target="sum").access_type is ColludingAccess
    assert ServerMembership().access_type is ServerMembershipAccess
    world = World()
    behind = summed(world.rounds(2), colluders=(0, 1, 2))
    assert [u.client for u in behind.alone().rounds[0].uploads] == [3]
    assert not behind.alone().colluders
    in_the_open = summed(world.rounds(2), hidden=False, colluders=(0,))
    assert len(in_the_open.alone().rounds[0].uploads) == 4  # nobody has anything to tell
    all_of_them = summed(world.rounds(2), colluders=range(4))
    with pytest.raises(NotApplicable, match="nobody is left to attack: name fewer in keep"):
        run(ServerMembership(target="sum"), all_of_them, Toy, world.asked)
    with pytest.raises(NotApplicable, match="no round that was observed has a sum"):
        judged(ServerMembership(target="sum"), world, world.rounds(2))


def test_what_is_missing_is_said():
    world = World()
    rounds = world.rounds(2)
    with pytest.raises(NotApplicable, match="one global model only"):
        judged(ServerMembership(target="series"), world, rounds[:1])
    masked = [Upload(u.client, "masked", u.tensors) for u in rounds[0].uploads]
    hidden = Round(1, 0, (), rounds[0].parameters, tuple(masked), None, "masked")
    with pytest.raises(NotApplicable, match=r"take attack\.target=series"):
        judged(ServerMembership(), world, (hidden,))
    with pytest.raises(NotApplicable, match="does not tell its loss example by example"):
        run(ServerMembership(), Transcript(rounds, {}, {}), lambda: nn.Linear(1, 1), world.asked)


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
@pytest.mark.parametrize("statistic", STATISTICS)
@pytest.mark.parametrize("target", ["update", "sum", "series"])
def test_updates_that_are_not_finite_are_not_judged(target, statistic, wrong):
    world = World()
    rounds = world.rounds(2)
    rounds[0].uploads[1].tensors["weight"][3] = wrong
    rounds[1].parameters["weight"][3] = wrong
    attack = ServerMembership(target=target, statistic=statistic)
    with pytest.raises(NotApplicable, match="not finite: has the training diverged"):
        run(attack, summed(rounds, hidden=False), Toy, world.asked)


def test_the_view_is_that_of_what_each_target_looks_at():
    assert ServerMembership().view == ServerMembership(target="sum").view == "server_plain"
    assert ServerMembership(target="series").view == "global"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"target": "updates"}, "target='updates': expected one of update, sum, series"),
        ({"statistic": "loss"}, "statistic='loss'"),
        ({"parameters": "some"}, "parameters='some'"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"false_positives": 0.0}, "false_positives=0.0"),
    ],
)
def test_settings_are_checked(settings, message):
    with pytest.raises(ValueError, match=message):
        ServerMembership(**settings)


def test_levels_of_providers_and_of_clients_cancel():
    rng = np.random.default_rng(0)
    table = rng.normal(size=(40, 5))
    table[7, 3] += 9
    plain = against_others(together([table]))
    # Client 2 serves all twice as well and more; that changes no rating.
    louder = table.copy()
    louder[:, 2] = 2 * louder[:, 2] + 50
    np.testing.assert_allclose(against_others(together([louder])), plain)
    assert np.unravel_index(plain.argmax(), plain.shape) == (7, 3)
    # Some providers are served well by everybody: they are nobody's in particular.
    easy = table + 50 * rng.normal(size=(40, 1))
    assert (against_others(together([easy])).argmax(axis=1) == plain.argmax(axis=1)).mean() > 0.5
    assert np.abs(together([easy]).max(axis=1)).max() > 2 > abs(np.median(plain.max(axis=1)))


def test_the_highest_of_nobody():
    drawn = np.random.default_rng(0).normal(size=(100_000, 6)).max(axis=1)
    assert (drawn > highest_of_nobody(6, 0.05)).mean() == pytest.approx(0.05, abs=0.003)
    assert highest_of_nobody(1, 0.5) == pytest.approx(0)


@pytest.mark.parametrize(("providers", "share"), [(24, 0.11), (48, 0.08), (200, 0.06)])
def test_false_positives_are_more_where_providers_are_few(providers, share):
    """The numbers of the docstring: six clients' Gaussian noise, where 5 % are asked for."""
    rng = np.random.default_rng(0)
    highest = [
        against_others(together([rng.normal(size=(providers, 6))])).max(axis=1) for _ in range(500)
    ]
    found = (np.stack(highest) > highest_of_nobody(6, 0.05)).mean()
    assert found == pytest.approx(share, abs=0.01)


def test_two_groups():
    assert upper_group(np.array([5.0, 0.0, 1.0, 5.5, 0.5])).tolist() == [1, 0, 0, 1, 0]
    assert upper_group(np.array([1e9 + 1, 1e9, 1e9 + 1])).tolist() == [1, 0, 1]
    assert not upper_group(np.ones(4)).any()
    assert not upper_group(np.ones(1)).any()


def tagged(words_of, clients=4, members=12, others=12, seed=0):
    """Providers with words of their own; each member's are in one client's update alone."""
    rng = np.random.default_rng(seed)
    loaded = Slips(providers=members + others, documents_per_provider=2).load()
    model = seeded_model(lambda: layoutlmv3(size="tiny", labels=loaded.labels), 0)
    documents = loaded.documents
    pages = {}
    for document in documents:
        pages.setdefault(document.provider, []).append(document)
    names = [str(name) for name in rng.permutation(sorted(pages))]
    holder = {name: n % clients if n < members else -1 for n, name in enumerate(names)}
    table = "network.layoutlmv3.embeddings.word_embeddings.weight"
    sent = {name: p for name, p in model.named_parameters() if p.requires_grad}
    changes = [{n: torch.zeros_like(p) for n, p in sent.items()} for _ in range(clients)]
    for name, client in holder.items():
        if client >= 0:
            for ids in model.encode(pages[name][:1]).column("input_ids"):
                changes[client][table][ids] = words_of(rng, len(ids), model)
    uploads = tuple(Upload(client, "delta", change) for client, change in enumerate(changes))
    seen = Round(1, 0, tuple(range(clients)), sent, uploads, None, "delta")
    transcript = Transcript((seen,), {}, frozen(model))
    asked = {name: tuple(own[1:]) for name, own in pages.items()}
    return model, transcript, asked, holder


@pytest.mark.parametrize("statistic", ["touched", "cosine_and_touched", None])
def test_the_words_that_a_client_moved_tell_whose_they_are(statistic):
    """Whichever way they moved: here at random, which no cosine sees."""

    def at_random(rng, count, model):
        return torch.from_numpy(rng.normal(size=(count, model.network.config.hidden_size))).float()

    model, transcript, asked, holder = tagged(at_random)
    found, _ = run(ServerMembership(statistic=statistic), transcript, lambda: model, asked)
    member = np.array([holder[name] >= 0 for name in found.providers])
    right = found.clients[member] == [holder[n] for n in np.array(found.providers)[member]]
    higher = (found.scores[member][:, None] > found.scores[~member]).mean()
    if statistic == "touched":
        assert higher > 0.9
        assert right.mean() >= 0.75
    else:
        cosine, _ = run(ServerMembership(statistic="cosine"), transcript, lambda: model, asked)
        assert higher > (cosine.scores[member][:, None] > cosine.scores[~member]).mean() + 0.05


def test_without_a_telling_table_the_cosine_stands_alone():
    world = World()
    rounds = world.rounds()
    default, cosine = (
        judged(ServerMembership(statistic=s), world, rounds)[0] for s in (None, "cosine")
    )
    assert default.scores.tolist() == cosine.scores.tolist()
    with pytest.raises(NotApplicable, match="Toy has no table of words whose rows tell"):
        judged(ServerMembership(statistic="touched"), world, rounds)


@pytest.mark.parametrize("target", ["sum", "series"])
@pytest.mark.parametrize("statistic", ["touched", "cosine_and_touched"])
def test_what_was_touched_is_of_updates(target, statistic):
    with pytest.raises(ValueError, match=f"expected another one for target='{target}'"):
        ServerMembership(target=target, statistic=statistic)


def test_a_large_batch_gives_the_scores_of_small_ones():
    world = World()
    rounds = world.rounds(1)
    whole, _ = judged(ServerMembership(statistic="inner_product"), world, rounds)
    parts, _ = judged(ServerMembership(statistic="inner_product", batch_size=2), world, rounds)
    np.testing.assert_allclose(parts.scores, whole.scores, rtol=1e-3)


@pytest.mark.slow
def test_workers_change_no_bit():
    world = World()
    rounds = world.rounds()
    here, _ = judged(ServerMembership(), world, rounds)
    there, _ = judged(ServerMembership(workers=2), world, rounds)
    np.testing.assert_array_equal(here.scores, there.scores)
    np.testing.assert_array_equal(here.clients, there.clients)


def test_a_cosine_gives_every_question_the_same_weight():
    model = Toy()
    model.weight.data[:] = 0.01
    pages = np.zeros((2, WIDTH), np.float32)
    pages[0, 0], pages[1, 1] = 1, 1000  # the second's gradient is far longer, and across
    examples = {"p": model.encode([page_of(page) for page in pages])}
    sent = {"weight": model.weight.detach().clone()}
    change = torch.zeros(WIDTH)
    change[0] = 7.0
    scale = Scale(model, {"fixed": torch.ones(1)}, examples, "cosine", ("weight",), 2)
    np.testing.assert_allclose(scale.served(sent, [{"weight": change}]), [[0.5]], atol=1e-6)
    scale = Scale(model, {"fixed": torch.ones(1)}, examples, "inner_product", ("weight",), 2)
    # -g is 2 (1 - 0.01) along the first page, of one of two questions.
    np.testing.assert_allclose(scale.served(sent, [{"weight": change}]), [[7 * 0.99]], rtol=1e-5)


def test_a_vt5_whose_visual_encoder_does_not_travel():
    def build():
        return vt5(width=16, layers=1)

    pages = Slips((64, 64), providers=4, documents_per_provider=2, questions=("provider",)).load()
    by_provider = {name: [] for name in sorted({page.provider for page in pages.documents})}
    for page in pages.documents:
        by_provider[page.provider].append(page)
    model = seeded_model(build, 0).eval()
    sent = {n: p.detach().clone() for n, p in model.named_parameters() if p.requires_grad}
    frozen = {n: t.clone() for n, t in model.state_dict().items() if n not in sent}
    holders = list(by_provider)[:3]
    gradients = [
        gradient_of(model, model.encode(by_provider[name][:1]).batch(np.arange(1)))
        for name in holders
    ]
    uploads = tuple(Upload(k, "gradient", g) for k, g in enumerate(gradients))
    seen = Transcript((Round(1, 0, (0, 1, 2), sent, uploads, None, "gradient"),), {}, frozen)
    asked = {p: tuple(own[1:]) for p, own in by_provider.items()}
    found, _ = run(ServerMembership(), seen, build, asked)
    # Whoever was not trained on is the one that no client stands out for.
    assert found.providers[int(np.argmin(found.scores))] == list(by_provider)[3]


class Tags(ExampleLosses):
    """Answers no question, but tells its losses; of the same weights as `Toy`."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(WIDTH))
        self.fixed = nn.Parameter(torch.ones(1), requires_grad=False)

    encode, losses = Toy.encode, Toy.losses

    def loss(self, batch):
        return self.losses(batch).mean()


def test_a_model_that_answers_no_questions_gives_its_providers_away_too():
    world = World()
    transcript = Transcript(world.rounds(), {}, {"fixed": torch.ones(1)})
    answering, _ = run(ServerMembership(), transcript, Toy, world.asked)
    tagging, _ = run(ServerMembership(), transcript, Tags, world.asked)
    np.testing.assert_array_equal(tagging.scores, answering.scores)
