"""Whoever follows an update from its client to the strategy opens eight files at most."""

import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from toy import LocalTraining
from toy_private import data_of, federation

from fedpriv.clients.feam_dp import ExampleGradients
from fedpriv.federation.client import ClientWorker
from fedpriv.privacy.mechanism import example_gaussian
from fedpriv.strategies.feam_dp import FeAmDP
from fedpriv.strategies.fedavg import FedAvg

PACKAGE = Path(__file__).parents[3] / "fedpriv"
CLIENTS = 6
MOST_FILES = 8

FEAM_DP = FeAmDP(
    example_gaussian(clip_norm=0.3, examples=30, noise_multiplier=1.5, record_rate=0.4)
)


def entered(run, train, moved):
    """Returns what is called after `train` returns and before `moved` is: file → function → calls.

    While the next client is sent the model and trains, no update is on its way. The ledger's entry
    is another way, from the loop to the run folder.
    """
    calls, on_the_way = defaultdict(Counter), False

    def note(frame, event, _):
        nonlocal on_the_way
        code = frame.f_code
        if event == "return" and code is train.__code__:
            on_the_way = True
        elif event == "call" and code in (ClientWorker.serve.__code__, moved.__code__):
            on_the_way = False
        elif event == "call" and on_the_way:
            path = Path(code.co_filename)
            if path.is_relative_to(PACKAGE) and not booked(frame):
                calls[str(path.relative_to(PACKAGE))][code.co_qualname] += 1

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return calls


def booked(frame):
    """Whether a function was called to book a round."""
    while frame is not None:
        if frame.f_code.co_name == "book":
            return True
        frame = frame.f_back
    return False


@pytest.mark.usefixtures("budget_untold")
@pytest.mark.parametrize(
    ("strategy", "client", "moved"),
    [
        (FedAvg(), LocalTraining(), FedAvg.moved),
        (FEAM_DP, ExampleGradients(), FeAmDP.moved),
    ],
    ids=["FedAvg", "FeAm-DP"],
)
def test_an_update_enters_few_files(tmp_path, monkeypatch, strategy, client, moved):
    monkeypatch.chdir(tmp_path)
    made = federation(strategy, client, data_of(*[5] * CLIENTS))
    calls = entered(lambda: made.run(rounds=1), type(client).train, moved)
    assert calls["federation/messages.py"]["RunningSum.add"] >= CLIENTS
    assert len(calls) <= MOST_FILES, sorted(calls)
