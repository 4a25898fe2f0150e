"""A curious server on a toy federation: it keeps what the server receives, and changes nothing."""

import numpy as np
import pytest
import torch
from toy import data, federation, norm_net, weights

from fedpriv.clients.fedsgd import BatchGradient
from fedpriv.federation.loop import Unworkable
from fedpriv.federation.secagg.masking import Masking
from fedpriv.privacy.sampling import FixedSize
from fedpriv.runtime.run_folder import RunFolder
from fedpriv.strategies.fedavg import FedAvg
from fedpriv.strategies.fedsgd import FedSGD
from fedpriv.threat.surfaces import transcript
from fedpriv.threat.surfaces.server import KeepTranscript
from fedpriv.threat.truth import TruthStore

pytestmark = pytest.mark.usefixtures("in_own_folder")


def seen_by(result, **what):
    return transcript.load(RunFolder.existing(result.run_dir), **what)


CASES = {
    "fedavg, weighted, buffers": {"model": norm_net, "strategy": FedAvg()},
    "a failing client": {"faults": {"1/2": "raise", "2/0": "raise"}},
    "half of the clients, chunks of 3": {
        "strategy": FedAvg(sampling=FixedSize(fraction=0.5)),
        "chunk_size": 3,
    },
    "fedsgd": {"strategy": FedSGD(), "client": BatchGradient(3)},
    "masked": {
        "strategy": FedAvg(weighted=False, buffers=False),
        "masking": Masking(bound=1.0),
    },
}


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_the_same_bits_with_and_without(case):
    alone = federation(**case).run(3)
    watched = federation(**case, keep=[KeepTranscript()]).run(3)
    some = federation(**case, keep=[KeepTranscript(rounds=(2,), clients=(1, 5))]).run(3)
    assert weights(alone) == weights(watched) == weights(some)
    timeless = [{k: v for k, v in r.items() if k != "seconds"} for r in alone.metrics]
    assert timeless == [{k: v for k, v in r.items() if k != "seconds"} for r in watched.metrics]


def test_it_keeps_what_clients_sent_and_their_weighted_mean():
    result = federation(keep=[KeepTranscript()], strategy=FedAvg(buffers=False)).run(2)
    first, second = seen_by(result).rounds
    assert [u.client for u in first.uploads] == list(range(8)) == list(first.answered)
    assert {u.kind for u in first.uploads} == {"delta"}
    sizes = torch.tensor([float(u.metrics["num-examples"]) for u in first.uploads])
    for name, sent in first.parameters.items():
        updates = torch.stack([u.tensors[name] for u in first.uploads])
        mean = torch.einsum("k,k...->...", sizes / sizes.sum(), updates)
        torch.testing.assert_close(first.aggregate[name], mean)
        # What the server makes of it is what it sends next.
        torch.testing.assert_close(second.parameters[name], sent + mean)


def test_rounds_and_clients_are_chosen():
    result = federation(keep=[KeepTranscript(rounds=(2, 3), clients=(1, 4))]).run(3)
    view = seen_by(result)
    assert [seen.round for seen in view.rounds] == [2, 3]
    assert all([u.client for u in seen.uploads] == [1, 4] for seen in view.rounds)
    # The aggregate is everybody's, whoever's messages are kept.
    assert all(seen.answered == tuple(range(8)) for seen in view.rounds)
    (only,) = seen_by(result, rounds=[3], clients=[4]).rounds
    assert (only.round, [u.client for u in only.uploads]) == (3, [4])


def test_a_client_that_fails_leaves_no_message():
    result = federation({"1/2": "raise"}, keep=[KeepTranscript(rounds=(1,))]).run(1)
    (seen,) = seen_by(result).rounds
    assert [u.client for u in seen.uploads] == [0, 1, 3, 4, 5, 6, 7] == list(seen.answered)


def test_under_masking_it_holds_masked_vectors_and_the_sum():
    plain = FedAvg(weighted=False, buffers=False)
    open_view = seen_by(federation(strategy=plain, keep=[KeepTranscript()]).run(1))
    masked = federation(strategy=plain, masking=Masking(bound=1.0), keep=[KeepTranscript()]).run(1)
    view = seen_by(masked)
    assert view.masked
    assert not open_view.masked
    (there,), (here,) = open_view.rounds, view.rounds
    assert {upload.kind for upload in here.uploads} == {"masked"}
    assert here.aggregate is not None
    for name, mean in there.aggregate.items():
        torch.testing.assert_close(here.aggregate[name], mean, atol=1e-6, rtol=0)
    # A masked vector says nothing: it is spread over the whole ring, and uncorrelated.
    update, words = (
        torch.cat([t.flatten() for upload in seen.uploads for t in upload.tensors.values()])
        for seen in (there, here)
    )
    assert words.std() > 100 * update.std()
    assert abs(np.corrcoef(update, words)[0, 1]) < 6 / len(update) ** 0.5


def test_gradients_are_those_of_the_batch_in_the_truth_store():
    result = federation(
        strategy=FedSGD(), client=BatchGradient(3), keep=[KeepTranscript()], clients=4
    ).run(2)
    folder = RunFolder.existing(result.run_dir)
    seen = seen_by(result, rounds=[2]).rounds[0]
    model = transcript.loaded(result.model, seen.parameters, {})
    model.layers[3].p = 0.0
    for upload in seen.uploads:
        truth = TruthStore(folder).of((2, upload.client))
        batch = {name: torch.from_numpy(a) for name, a in truth.columns.items()}
        assert len(batch["x"]) == 3
        loss = model.loss(batch)
        # Dropout is drawn by the client alone: the gradient of the last bias hardly depends on it.
        gradient = torch.autograd.grad(loss, model.layers[4].bias)[0]
        angle = torch.cosine_similarity(gradient, upload.tensors["layers.4.bias"], dim=0)
        assert upload.kind == "gradient"
        assert angle > 0.9


def test_what_cannot_be_observed_is_said_first():
    with pytest.raises(
        Unworkable, match=r"keep.transcript.clients=\[8\]: there are clients 0 to 7"
    ):
        federation(keep=[KeepTranscript(clients=(8,))])
    with pytest.raises(ValueError, match=r"rounds=\(0,\): expected numbers from 1 on"):
        KeepTranscript(rounds=(0,))


def test_what_is_not_there_is_named(tmp_path):
    unseen = federation().run(1)
    with pytest.raises(transcript.NotGranted, match="keep=transcript"):
        seen_by(unseen)
    result = federation(keep=[KeepTranscript(rounds=(1,), clients=(0,))]).run(2)
    with pytest.raises(transcript.NoTranscript, match=r"rounds=\[2\]: expected .* kept, \[1\]"):
        seen_by(result, rounds=[2])
    with pytest.raises(transcript.NoTranscript, match=r"clients=\[3\]: expected .* kept, \[0\]"):
        seen_by(result, clients=[3])
    file = next((result.run_dir / "transcript").glob("round-*/client-*"))
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(ValueError, match=f"{file.name} is not whole"):
        seen_by(result)


def test_a_resumed_run_leaves_the_same_transcript():
    def files(result):
        root = result.run_dir / "transcript"
        return {p.relative_to(root): p.read_bytes() for p in root.rglob("*.safetensors")}

    whole = federation(keep=[KeepTranscript()]).run(3)
    half = federation(keep=[KeepTranscript()]).run(2)
    resumed = federation(keep=[KeepTranscript()]).run(3, run_dir=half.run_dir, resume=True)
    assert files(whole) == files(resumed)


def test_another_model_is_refused():
    result = federation(keep=[KeepTranscript(rounds=(1,))]).run(1)
    (seen,) = seen_by(result).rounds
    with pytest.raises(ValueError, match=r"of another model: for 0.weight of \(2, 4\) it has noth"):
        transcript.loaded(torch.nn.Sequential(torch.nn.Linear(4, 2)), seen.parameters, {})
    with pytest.raises(ValueError, match=r"this one has no layers\.0\.bias"):
        transcript.loaded(torch.nn.Sequential(), seen.parameters, {})


def test_frozen_parts_are_public_and_loaded():
    def frozen_net():
        net = norm_net()
        net.layers[0].weight.requires_grad_(False)
        return net

    result = federation(model=frozen_net, keep=[KeepTranscript()], seed=3).run(1)
    view = seen_by(result)
    assert "layers.0.weight" in view.frozen
    other = transcript.loaded(frozen_net(), view.rounds[0].parameters, view.frozen)
    assert torch.equal(other.layers[0].weight, result.model.layers[0].weight)


def test_data_without_documents_has_a_truth_too():
    result = federation(data=data(2), clients=2, keep=[KeepTranscript()]).run(1)
    truth = TruthStore(RunFolder.existing(result.run_dir)).of((1, 1))
    assert truth.columns["x"].shape == (13, 4)  # local training uses all of a client's examples
    assert truth.pixels is None


def test_without_batches_it_keeps_the_messages_alone():
    result = federation(keep=[KeepTranscript(batches=False)]).run(1)
    folder = RunFolder.existing(result.run_dir)
    assert transcript.load(folder).rounds[0].uploads
    assert not (folder.path / "knowledge").exists()
    assert not (folder.path / "truth").exists()
