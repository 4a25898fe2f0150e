"""A deployment in which each node reads its own documents, and nobody else's."""

import dataclasses

import numpy as np
import pytest
import toy_answers
from flwr.app import Context, RecordDict
from flwr.supercore.task_identity import TaskIdentity
from toy import weights

from fedpriv.clients.fedavg import LocalTraining
from fedpriv.data.document import DocumentSet
from fedpriv.data.examples import PROVIDER, provider_number
from fedpriv.data.partition import ByProvider, HoldOut
from fedpriv.deploy.flower import ExperimentClient, run_on
from fedpriv.federation.dataset import DocumentData
from fedpriv.federation.loop import Federation
from fedpriv.privacy.joint import joint_budget
from fedpriv.runtime.run_folder import RunFolder
from fedpriv.strategies.fedavg import FedAvg
from fedpriv.training.loops import Optimizer

EXPERIMENT = """
name: apart
rounds: 2
runs: {runs}
data:
  _target_: fedpriv.federation.dataset.DocumentData
  cache: "off"
  source: {{_target_: test_own_documents.Some, names: [], labels: []}}
  partition: {{_target_: fedpriv.data.partition.ByProvider, clients: 2}}
model: {{_target_: toy_answers.chooser, _partial_: true}}
federation: {{report: false}}
"""
FEDAVG = """
strategy: {_target_: fedpriv.strategies.fedavg.FedAvg}
client:
  _target_: fedpriv.clients.fedavg.LocalTraining
  batch_size: 2
  optimizer: {name: sgd, lr: 0.1}
"""
PRIVATE = """
masking: {_target_: fedpriv.federation.secagg.masking.Masking}
strategy:
  _target_: fedpriv.strategies.fl_provider_dp.FLProviderDP
  mechanism:
    _target_: fedpriv.privacy.mechanism.provider_gaussian
    clip_norm: 0.5
    providers: 2
    noise_multiplier: 1.0
client: {_target_: fedpriv.clients.fl_provider_dp.ProviderUpdates}
"""
READ = []
"""The providers of each source that was read."""

pytestmark = pytest.mark.usefixtures("budget_untold")


@dataclasses.dataclass(frozen=True)
class Some:
    """Pages of these providers of five."""

    names: tuple[str, ...]
    labels: tuple[str, ...] = ()

    def load(self):
        READ.append({*self.names})
        pages = toy_answers.Pages(providers=5).load().documents
        kept = tuple(page for page in pages if page.provider in self.names)
        return DocumentSet("some", kept, tuple(self.labels))


class Nodes:
    """What Flower's grid is to a server: nodes under numbers of their own, each with its config."""

    def __init__(self, apps, configs, experiment, overrides):
        self.run = type("Run", (), {"run_id": 1})()
        self.apps, self.configs = apps, configs
        self.settings = {"experiment": experiment, "overrides": overrides}
        self.states = {node: RecordDict() for node in configs}

    def get_node_ids(self):
        return list(self.configs)

    def send_and_receive(self, messages, *, timeout=None):
        for message in messages:
            node = message.metadata.dst_node_id
            config, state = self.configs[node], self.states[node]
            context = Context(1, node, config, state, self.settings)
            yield self.apps[node](message, context)


@pytest.fixture
def deployed(tmp_path, monkeypatch):
    """Runs an experiment on two nodes; `own` are the providers of each, `None` for no own data."""
    monkeypatch.chdir(tmp_path)
    for name in ("_task_id", "_run_id", "_node_id"):  # as in a process of Flower's
        monkeypatch.setattr(TaskIdentity, name, 1)
    READ.clear()

    def run(halves, own, *overrides, own_data=True, labels=("", "")):
        (tmp_path / "apart.yaml").write_text(
            "defaults: [base, _self_]\n" + EXPERIMENT.format(runs=tmp_path) + halves
        )
        served = " ".join(["data.source.names=[p4]", *overrides])
        configs = {}
        for client, names in enumerate(own):
            config = {"partition-id": client, "num-partitions": 2}
            if names is not None:
                config["own"] = f"data.source.names=[{names}] data.source.labels=[{labels[client]}]"
            configs[77 - client] = config
        apps = {node: ExperimentClient() for node in configs}
        experiment = str(tmp_path / "apart.yaml")
        grid = Nodes(apps, configs, experiment, served)
        return run_on(grid, experiment, served, own_data=own_data)

    return run


@dataclasses.dataclass(frozen=True)
class Together:
    """The same documents in one place."""

    def bind(self, build_model, seed):
        data = DocumentData(
            Some(("p0", "p1", "p2", "p3")),
            ByProvider(1),
            HoldOut(fraction=0.0),
            cache="off",
            pooled=True,
        )
        bound = data.bind(build_model, seed)
        owners = bound.train.column(PROVIDER)
        rows = tuple(
            np.flatnonzero(np.isin(owners, [provider_number(name) for name in names]))
            for names in (("p0", "p2"), ("p1", "p3"))
        )
        return dataclasses.replace(bound, rows=rows)


def test_the_weights_are_those_of_documents_in_one_place_and_nobody_reads_the_others(deployed):
    result = deployed(FEDAVG, ("p0,p2", "p1,p3"))
    assert all(names in ({"p4"}, {"p0", "p2"}, {"p1", "p3"}) for names in READ)
    client = LocalTraining(batch_size=2, optimizer=Optimizer("sgd", lr=0.1))
    together = Federation(
        model=toy_answers.chooser, data=Together(), strategy=FedAvg(), client=client
    ).run(2)
    assert weights(result) == weights(together)
    assert result.metrics[-1].keys() >= {"accuracy"} or "loss" in result.metrics[-1]


def test_a_private_masked_round_works_and_the_server_claims_nothing_of_the_data(deployed):
    result = deployed(PRIVATE, ("p0,p2", "p1,p3"))
    assert [record["clients"]["answered"] for record in result.metrics] == [2, 2]
    ledger = RunFolder(result.run_dir).read_json("ledger.json")
    assert (ledger["data"], ledger["groups"], ledger["providers"]) == ("", {}, "some")
    (apart,) = joint_budget([result.run_dir])["apart"]
    assert "does not say on which data" in apart["reason"]


@pytest.mark.parametrize(
    ("own", "settings", "told"),
    [
        (("p0", None), {}, "node of client 1: the labels of its own documents are None"),
        (("p0", "p1"), {"own_data": False}, "node of client 0: the labels of its own documents"),
        (("p0", "p1"), {"labels": ("a", "b")}, "documents are ['a'], expected []"),
    ],
    ids=["one without", "not asked for", "other labels"],
)
def test_nodes_that_do_not_fit_are_refused_before_any_training(deployed, own, settings, told):
    overrides = () if settings.get("own_data", True) else ("data.source.names=[p0,p1,p4]",)
    with pytest.raises(ValueError, match="own-data=true") as raised:
        deployed(FEDAVG, own, *overrides, **settings)
    assert told in str(raised.value)


def test_the_number_of_nodes_is_not_read_off_documents_that_nobody_sees(deployed):
    by_client = "data.partition._target_=fedpriv.data.partition.ByClient"
    with pytest.raises(ValueError, match=r"set data\.partition\.clients to the number of nodes"):
        deployed(FEDAVG, ("p0", "p1"), by_client, "data.partition.clients=null")
