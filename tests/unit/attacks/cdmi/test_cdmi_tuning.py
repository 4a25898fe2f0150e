"""Settings chosen on a shadow of the target."""

import numpy as np
import pytest
import torch
from attacked import attacked
from toy_fields import Follows, federation, page

from fedpriv.attacks.cdmi.attack import CDMI
from fedpriv.attacks.cdmi.decoding import Done
from fedpriv.attacks.cdmi.generator import Training
from fedpriv.attacks.cdmi.tuning import Rehearsal, Tuning
from fedpriv.threat.claims import PUBLIC, Attempt, Reconstruction
from fedpriv.threat.surfaces.fields import KeepScrubbed, scrub

QUICK = Training(epochs=3, lr=0.1)


def tagger(labels=(), task="tags"):
    """Tells by its loss which token follows which, and guesses none itself."""
    return Follows(labels, task)


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDPRIV_CACHE", str(tmp_path / "cache"))
    return federation(tmp_path / "runs", model=tagger).run(2).run_dir


def tuned(run, model=tagger, **settings):
    tuning = Tuning(fields=2, temperatures=(0.3, 0.03), shadow=Training(20, lr=0.5, held_out=0.0))
    return attacked(run, CDMI(attempts=1, candidates=8, generator=QUICK, tune=tuning), model)


def test_the_settings_that_do_best_on_a_shadow_are_taken(run):
    found = tuned(run)
    told = found["details"]
    assert {"likelihood": told["tuned_likelihood"], "T": told["tuned_target_temperature"]} in [
        {"likelihood": name, "T": t} for name in ("paper", "scaled") for t in (0.3, 0.03)
    ]
    assert 0 <= told["tuned_wrong"] <= told["tuned_wrong_most"] <= 1
    assert any("did best on a model of the adversary's own" in note for note in found["notes"])
    given = {name: told[f"tuned_{name}"] for name in ("likelihood", "target_temperature", "weight")}
    plain = attacked(run, CDMI(attempts=1, candidates=8, generator=QUICK, **given), tagger)
    assert plain["ipf"] == found["ipf"]


def test_a_masked_language_model_has_nothing_to_tune(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDPRIV_CACHE", str(tmp_path / "cache"))
    masked = federation(tmp_path / "runs", model=Follows).run(1).run_dir
    assert "tuned_wrong" not in tuned(masked, Follows)["details"]


def test_wrong_tokens_are_counted_in_the_first_attempt():
    def done(number, *tokens):
        attempts = (Attempt(tokens, {}), Attempt((1, 2), {}))
        found = Reconstruction(number, attempts, (Attempt(tokens, {PUBLIC: 0.0}),))
        return Done(found, 0, 0, 0.0)

    rehearsal = Rehearsal(None, None, (), None, {0: (1, 2), 1: (3, 4)})
    assert rehearsal.wrong([done(0, 1, 9), done(1, 3, 4)]) == 0.25


def test_documents_that_somebody_holds_are_scrubbed_as_those_of_a_run_are():
    model, documents = tagger(("code",)), [page("a", ["d1", "d2", "d3"]), page("b", ["d4", "d5"])]
    fields, windows, truths = scrub(
        documents, model.encode(documents), model.reader, KeepScrubbed(("code",))
    )
    assert [(one.document, one.key, one.places) for one in fields] == [("a", "code", (3, 4, 5))]
    ids = windows.column("input_ids")
    assert (ids[0, [3, 4, 5]] == model.reader.subwords.mask).all()
    words = model.reader.subwords.pieces(["d1", "d2", "d3"])
    assert truths == (tuple(int(np.ravel(word)[0]) for word in words),)
    assert torch.from_numpy(ids).eq(model.reader.subwords.mask).sum() == 3


def test_documents_without_such_a_field_give_none():
    model, documents = tagger(("code",)), [page("b", ["d4", "d5"])]
    fields, windows, truths = scrub(
        documents, model.encode(documents), model.reader, KeepScrubbed(("code",))
    )
    assert (fields, len(windows), truths) == ((), 0, ())


@pytest.mark.parametrize("name", ["likelihoods", "temperatures", "weights"])
def test_something_must_be_tried(name):
    with pytest.raises(ValueError, match=f"{name}=\\[\\]: name at least one"):
        Tuning(**{name: ()})
