"""One federated round of a model in its published size, in a process of its own; prints its peak.

Run by test_base_models.py: `python base_round.py KIND FOLDER`.
"""

import json
import resource
import sys
from functools import partial

from fedpriv.clients.fedavg import LocalTraining
from fedpriv.data.generated.invoices import Invoices
from fedpriv.data.partition import ByProvider
from fedpriv.federation.dataset import DocumentData
from fedpriv.federation.loop import Federation
from fedpriv.models.donut import donut
from fedpriv.models.layoutlmv3 import layoutlmv3
from fedpriv.models.vt5 import vt5
from fedpriv.strategies.fedavg import FedAvg

MODELS = {
    "layoutlmv3": partial(layoutlmv3, size="base"),
    "vt5": partial(vt5, size="base"),
    "donut": partial(donut, size="base"),
}


def main(kind, folder):
    """Runs the round and prints bytes sent, bytes of memory and the loss as JSON."""
    federation = Federation(
        model=MODELS[kind],
        data=DocumentData(
            Invoices(providers=2, documents_per_provider=1, questions=("provider",)),
            ByProvider(clients=2),
            cache="off",
        ),
        strategy=FedAvg(),
        client=LocalTraining(batch_size=1),
        runs=folder,
    )
    (record,) = federation.run(rounds=1).metrics
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    told = {name: record[name] for name in ("bytes_up", "bytes_down", "train_loss", "clients")}
    print(json.dumps({**told, "peak": peak}))


if __name__ == "__main__":
    main(*sys.argv[1:])
