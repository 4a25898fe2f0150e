"""Two runs share no noise and no mask, and a run that goes on has those that it had."""

import copy
import dataclasses
import itertools
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from flwr.app import RecordDict
from host_vectors import to_vectors
from toy_private import Double, Small, Watched, copied, federation, provider_data, vector_of

from fedpriv.clients.feam_dp import ExampleGradients
from fedpriv.clients.fedavg import LocalTraining
from fedpriv.clients.fedavg_dp import DPLocalTraining
from fedpriv.clients.fedsgd import BatchGradient
from fedpriv.clients.fl_provider_dp import ProviderUpdates
from fedpriv.federation.client import build_app
from fedpriv.federation.faults import Dropout
from fedpriv.federation.grids.inline import InlineGrid, serve
from fedpriv.federation.loop import Federation
from fedpriv.federation.messages import UPDATE, Chunk
from fedpriv.federation.secagg.masking import Masking
from fedpriv.federation.secagg.messages import SECAGG, keys_of
from fedpriv.privacy.ledger import LedgerMissing
from fedpriv.privacy.mechanism import example_gaussian, provider_gaussian
from fedpriv.runtime import verify
from fedpriv.runtime.progress import Progress
from fedpriv.runtime.run_folder import LEDGER, SALT, RunFolder
from fedpriv.strategies.feam_dp import FeAmDP
from fedpriv.strategies.fedavg import FedAvg
from fedpriv.strategies.fedavg_dp import FedAvgDP
from fedpriv.strategies.fedsgd import FedSGD
from fedpriv.strategies.fl_provider_dp import FLProviderDP
from fedpriv.strategies.provider_bandmf import ProviderBandMF
from fedpriv.threat.surfaces.server import KeepTranscript
from fedpriv.training.loops import Optimizer

CLIENTS = 4
MASKS = Masking(threshold=0.6, bound=10.0)
SGD = Optimizer("sgd", lr=0.3)

pytestmark = pytest.mark.usefixtures("in_own_folder", "budget_untold")


def plain(entropy="run", lr=0.3, seed=7, data=None, threshold=0.6, faults=None, model=Double):
    """Masked FedAvg: nothing is private, and the server learns sums only."""
    made = federation(
        FedAvg(weighted=False, buffers=False),
        LocalTraining(optimizer=replace(SGD, lr=lr)),
        data or provider_data(CLIENTS, 2),
        model,
        seed=seed,
        masking=replace(MASKS, threshold=threshold),
        one_noise=False,
        entropy=entropy,
    )
    made.faults = faults
    return made


class Told(Progress):
    def __init__(self):
        self.lines = []

    def note(self, line):
        self.lines.append(line)


@pytest.fixture
def grids(monkeypatch):
    """The grids of the runs to come, which keep all messages."""
    made = []

    def grid(self, memory=None, salt=None):
        salt = self.new_salt() if salt is None else salt
        spec, self.spec = self.spec, replace(self.spec, salt=salt)
        made.append(Watched(self, memory=memory))
        self.spec = spec
        return made[-1]

    monkeypatch.setattr(Federation, "grid", grid)
    return made


def public_keys(grid):
    advertised = [
        reply for reply in grid.replied if reply.metadata.message_type == "query.advertise"
    ]
    return {keys_of(reply.content[SECAGG]) for reply in advertised}


def updates(grid):
    """What each client sent in round 1."""
    return {
        grid.client_of(reply.metadata.src_node_id): to_vectors(reply.content[UPDATE])
        for reply in grid.replied
        if reply.metadata.message_type.startswith("train") and reply.metadata.group_id == "1"
    }


OTHER = {
    "nothing": {},
    "the learning rate": {"lr": 1e-9},
    "the seed": {"seed": 8},
    "the data": {"data": provider_data(CLIENTS, 3)},
    "the model": {"model": Small},
    "who answers": {"faults": Dropout(at={1: [3]})},
    "how many must stay": {"threshold": 0.8},
}


def test_no_two_runs_have_a_public_key_in_common(grids):
    for change in OTHER.values():
        plain(**change).run(2)
    keys = [public_keys(grid) for grid in grids]
    assert all(len(own) >= 2 * CLIENTS - 1 for own in keys)
    assert not any(one & other for one, other in itertools.combinations(keys, 2))


@pytest.mark.parametrize("what", sorted(OTHER.keys() - {"nothing", "who answers"}))
def test_drawn_from_the_seed_they_differ_with_whatever_a_message_depends_on(what, grids):
    """Then they are the same where only answers differ, which the joint budget counts."""
    for change in ({}, {}, OTHER["who answers"], OTHER[what]):
        plain(entropy="seed", **change).run(1)
    once, again, fewer, other = map(public_keys, grids)
    assert once == again >= fewer
    assert not once & other


def test_the_masks_of_two_runs_do_not_cancel(grids):
    """With one set of masks, words of two runs differ by the plain updates' difference."""
    plain().run(1)
    plain(lr=1e-9).run(1)
    one, other = map(updates, grids)
    step = 20 / 2**32 * CLIENTS  # of the ring, about
    for client in one:
        words = one[client]["masked"] - other[client]["masked"]
        apart = words.view(np.int32) * step
        assert np.abs(apart).mean() > 1  # where updates are below .01


def test_one_run_reveals_nothing_of_another(grids):
    """Run A reveals what unmasks client 3 if it survives, run B if it does not: never both."""
    plain().run(1)
    plain(faults=Dropout(at={1: [3]})).run(1)
    assert public_keys(grids[0]).isdisjoint(public_keys(grids[1]))
    with_all, without = (
        [r for r in grid.replied if r.metadata.message_type == "query.reveal"] for grid in grids
    )
    assert len(with_all) == CLIENTS
    assert len(without) == CLIENTS - 1


# A run that goes on


def test_the_salt_lies_in_the_run_folder_for_its_owner_alone():
    result = plain().run(1)
    salt = result.run_dir / SALT
    assert len(RunFolder(result.run_dir).salt()) == 64
    assert os.stat(salt).st_mode & 0o77 == 0
    for entropy in ("seed", "os"):
        assert not (plain(entropy=entropy).run(1).run_dir / SALT).exists()


def test_a_masked_round_that_was_cut_off_is_repeated_with_the_same_answers(grids):
    """A plain run under masks counts its attempts, as a private one does."""
    made = plain()
    first = {"run_dir": "here"}
    made.faults = None
    stop = Watched.send_and_receive

    def cut_off(self, messages, **settings):
        yield from stop(self, messages, **settings)
        if any("reveal" in m.metadata.message_type for m in self.sent[-1:]):
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Watched, "send_and_receive", cut_off)
        with pytest.raises(KeyboardInterrupt):
            made.run(1, **first)
    (event,) = RunFolder(Path("here")).read_ledger()["events"]
    assert (event["round"], event["attempt"], event["finished"]) == (1, 0, True)
    # The same clients: the same words. Client 3 stays away: a new attempt, with other masks.
    copied("here", "there")
    made.run(1, run_dir="here", resume=True)
    assert public_keys(grids[0]) == public_keys(grids[1])
    fewer = plain(faults=Dropout(at={1: [3]}))
    fewer.run(1, run_dir="there", resume=True)
    events = RunFolder(Path("there")).read_ledger()["events"]
    assert [(e["attempt"], len(e["survivors"])) for e in events] == [(0, 4), (1, 3)]
    new = public_keys(grids[2]) - public_keys(grids[0])
    assert len(new) == CLIENTS


def test_resumed_on_other_data_a_masked_run_has_other_masks(grids):
    plain().run(1, run_dir="here")
    shutil.rmtree("here/checkpoints")
    plain(data=provider_data(CLIENTS, 3)).run(1, run_dir="here", resume=True, other_data=True)
    assert public_keys(grids[0]).isdisjoint(public_keys(grids[1]))


def test_two_copies_of_a_run_have_masks_of_their_own(grids):
    """Or whoever has the two sums, of four clients and of three, has the fourth's update."""
    plain().run(1, run_dir="here")
    shutil.copytree("here", "there")
    notes = {}
    for where, faults in {"here": None, "there": Dropout(at={2: [3]})}.items():
        notes[where] = Told()
        run = plain(faults=faults).run
        run(2, run_dir=where, resume=True, progress=notes[where])
    assert notes["here"].lines == []
    assert "there is a copy" in notes["there"].lines[0]
    assert public_keys(grids[1]).isdisjoint(public_keys(grids[2]))
    assert RunFolder(Path("here")).salt() != RunFolder(Path("there")).salt() != ""


def test_one_grid_by_hand_for_two_runs_sends_nothing_twice():
    """The server's salt is in what it sends, so that the clients' noise is new for each run."""
    made = private("FL-PROVIDER-DP")
    grid = Watched(made)
    for faults in (None, Dropout(at={1: [3]})):
        made.faults = faults
        made.strategy.threshold = 0.5
        made.run(1, grid=grid)
    sent = [to_vectors(r.content[UPDATE])["float"] for r in grid.replied]
    assert len({vector.tobytes() for vector in sent}) == len(sent)


def test_noise_of_gradients_is_new_where_a_run_goes_on_with_other_data():
    strategy, client = copy.deepcopy(PRIVATE["FedSGD with noise"])
    settings = {"one_noise": False, "entropy": "run", "checkpoint_every": 9}
    noise = []
    for number in (2, 3):
        parts = strategy, client, provider_data(CLIENTS, number)
        bare = dataclasses.replace(client, gradient_noise=0.0)
        vectors = []
        for half in (client, bare):
            made = federation(parts[0], half, parts[2], **settings)
            made.spec = replace(made.spec, salt="one")
            grid = Watched(made)
            made.run(1, grid=grid)
            vectors.append(to_vectors(grid.replied[0].content[UPDATE])["float"])
        noise.append(vectors[0].astype(np.float64) - vectors[1])
    assert np.abs(noise[0] - noise[1]).max() > 0.05


def test_what_is_kept_for_attacks_needs_the_clients_salts():
    made = plain()
    made.keep = [KeepTranscript()]
    with pytest.raises(ValueError, match=r"take privacy\.entropy=seed, or keep="):
        made.run(1, grid=made.grid())


def test_without_its_ledger_a_masked_run_does_not_go_on():
    plain().run(1, run_dir="here")
    Path("here", LEDGER).unlink()
    with pytest.raises(LedgerMissing, match="what this run has given away is not known"):
        plain().run(2, run_dir="here", resume=True)


PROVIDERS = {"clip_norm": 0.5, "providers": 2, "noise_multiplier": 0.5}
EXAMPLES = example_gaussian(clip_norm=1, examples=9, noise_multiplier=1)
PRIVATE = {
    "FL-PROVIDER-DP": (FLProviderDP(provider_gaussian(**PROVIDERS)), ProviderUpdates()),
    "BandMF": (
        ProviderBandMF(provider_gaussian(**PROVIDERS, bands=2, provider_rate=0.5)),
        ProviderUpdates(),
    ),
    "individual": (
        FLProviderDP(provider_gaussian(**PROVIDERS, individual_epsilon=9.0)),
        ProviderUpdates(),
    ),
    "FeAm-DP": (FeAmDP(EXAMPLES), ExampleGradients()),
    "FedAvg-DP": (FedAvgDP(EXAMPLES), DPLocalTraining()),
    "FedSGD with noise": (FedSGD(), BatchGradient(gradient_noise=0.1)),
}


def private(name, masking=None, entropy="run"):
    strategy, client = copy.deepcopy(PRIVATE[name])
    data = provider_data(CLIENTS, 2)
    return federation(
        strategy,
        client,
        data,
        masking=masking,
        one_noise=False,
        entropy=entropy,
        checkpoint_every=1,
    )


@pytest.mark.parametrize("name", PRIVATE)
def test_a_run_with_a_salt_goes_on_with_the_same_bits_and_another_has_others(name):
    made = private(name)
    made.run(1, run_dir="begun")
    copied("begun", "copied")
    whole, again = (made.run(3, run_dir=where, resume=True) for where in ("begun", "copied"))
    assert np.array_equal(vector_of(whole), vector_of(again))
    other = made.run(3)
    assert not np.array_equal(vector_of(whole), vector_of(other))
    seeded = [private(name, entropy="seed").run(3) for _ in range(2)]
    assert np.array_equal(*map(vector_of, seeded))


def test_a_published_run_without_its_salt_goes_on_with_new_noise_that_is_booked():
    made = private("FL-PROVIDER-DP")
    made.run(2, run_dir="here")
    for name in (SALT, "units.json"):
        Path("here", name).unlink()
    assert not verify.check(Path("here")).problems()
    shutil.rmtree("here/checkpoints")
    made.run(2, run_dir="here", resume=True)
    events = RunFolder(Path("here")).read_ledger()["events"]
    assert [(e["round"], e["attempt"]) for e in events] == [(1, 0), (2, 0), (1, 1), (2, 1)]
    assert len(RunFolder(Path("here")).salt()) == 64


def test_the_server_gets_a_key_that_draws_no_noise():
    seen = []

    class Curious(FLProviderDP):
        def configure_train(self, server_round, arrays, config, grid):
            seen.append(str(config["key"]))
            return super().configure_train(server_round, arrays, config, grid)

    made = federation(
        Curious(provider_gaussian(**PROVIDERS)),
        ProviderUpdates(),
        provider_data(CLIENTS, 2),
        one_noise=False,
        entropy="run",
    )
    result = made.run(1)
    spec = replace(made.spec, salt=RunFolder(result.run_dir).salt())
    assert seen
    assert spec.noise not in seen
    assert made.spec.key not in seen


def test_clients_of_a_deployment_draw_their_own_salts_and_keep_them():
    """As on Flower's engines, where the server builds no client."""
    made = plain()
    spec = replace(made.spec, salt=None)
    states = {}

    class Nodes(InlineGrid):
        def _deliver(self, messages, timeout):
            for message in messages:
                client = self.client_of(message.metadata.dst_node_id)
                state = states.setdefault(client, RecordDict())
                reply, failure = serve(self._app, message, client, self.clients, state)
                assert failure is None
                chunk = Chunk(message)
                chunk.add(client, reply)
                yield from chunk.replies()

    grid = Nodes(build_app(spec), CLIENTS)
    masked = made.run(2, grid=grid)
    bare = plain(entropy="seed").run(2)
    assert np.allclose(vector_of(masked), vector_of(bare), atol=1e-6)
    salts = {str(state["salt"]["salt"]) for state in states.values()}
    assert len(salts) == CLIENTS
    assert not (masked.run_dir / SALT).exists()
