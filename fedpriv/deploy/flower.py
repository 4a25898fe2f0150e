"""The same federation on Flower's own engines: `flwr run`, SuperLink + SuperNodes, simulation.

It is slower than our grids (in deployment each message starts a process), but it runs on real
machines. A test proves that the weights are bit-identical. `experiments/flower/` is the Flower app,
whose README has the commands. `simulate` runs it on Flower's simulation engine.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from fedpriv.config import experiment
from fedpriv.federation.client import NUM_PARTITIONS, PARTITION_ID, build_app
from fedpriv.federation.dataset import DocumentData, OfOneParty
from fedpriv.federation.faults import Fault
from fedpriv.federation.grids._flwr import run_simulation
from fedpriv.federation.grids.base import Failure, RoundGrid
from fedpriv.federation.grids.inline import serve
from fedpriv.federation.loop import Federation, Result
from fedpriv.federation.messages import Chunk, round_of
from fedpriv.runtime.progress import for_this_terminal

ROLL_CALL = "query.roll_call"
ANSWER = "answer"
PATIENCE = 300.0
"""Seconds to wait for the nodes."""

EXPERIMENT, OVERRIDES, OWN_DATA = "experiment", "overrides", "own-data"
OWN = "own"
"""In a node's config: overrides that say where its own documents are."""


class FlowerGrid(RoundGrid):
    """Any grid of Flower's, with its nodes in the order of their clients' numbers.

    Flower draws node ids at random and starts the server before the nodes have joined. So this grid
    waits for all of them, asks each for its partition, and sorts the replies.

    Args:
        inner: Flower's grid.
        clients: how many nodes to wait for.
        chunk_size: as in `RoundGrid`.

    Attributes:
        told: by client, the labels of its own documents; None where it has none of its own.

    Raises:
        TimeoutError: if they do not come, or do not tell which client they are.
    """

    def __init__(self, inner: Grid, clients: int, chunk_size: int | None = None) -> None:
        super().__init__(clients, chunk_size)
        self._inner, self._run = inner, inner.run
        self.told: dict[int, list[str] | None] = {}
        deadline = time.monotonic() + PATIENCE
        nodes = list(self._inner.get_node_ids())
        while len(nodes) < self.clients and time.monotonic() < deadline:
            time.sleep(0.1)
            nodes = list(self._inner.get_node_ids())
        calls = [Message(RecordDict(), node, ROLL_CALL) for node in nodes]
        left = max(1.0, deadline - time.monotonic())
        found: dict[int, int] = {}
        for reply in self._inner.send_and_receive(calls, timeout=left):
            if not reply.has_error():
                here = reply.content.config_records[ANSWER]
                client = int(str(here[PARTITION_ID]))
                found[client] = reply.metadata.src_node_id
                self.told[client] = json.loads(str(here[OWN]))
        absent = [client for client in range(self.clients) if client not in found]
        if absent:
            raise TimeoutError(
                f"after {PATIENCE:g} s, {len(nodes)} nodes are there and no node is client "
                f"{absent[:5]}: start {self.clients} nodes with partition-id 0 to "
                f"{self.clients - 1}"
            )
        self._nodes = [found[client] for client in range(self.clients)]

    # Flower's interface

    def get_node_ids(self) -> Iterable[int]:
        """Returns the node ids in the order of the clients' numbers."""
        return self._nodes

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Passes the messages on."""
        return self._inner.push_messages(map(self.prepare, messages))

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Passes the replies on as they are."""
        return self._inner.pull_messages(message_ids)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterator[Message]:
        """Yields the replies in the order of the messages, or the sums of the cohort's chunks."""
        sent = list(map(self.prepare, messages))
        timeout = self.deadline if timeout is None else timeout
        # A node always replies: a client that is to be missing is not asked.
        asked = [m for m in sent if not ((fault := Fault.of(m)) and fault.missing)]
        replies = {
            reply.metadata.src_node_id: reply
            for reply in self._inner.send_and_receive(asked, timeout=timeout)
        }
        for batch in self.chunked(sent):
            chunk = Chunk(batch[0])
            for message in batch:
                node = message.metadata.dst_node_id
                client, reply = self._nodes.index(node), replies.get(node)
                if reply is None:
                    fault = Fault.of(message)
                    reason = fault.reason if fault and fault.missing else "RoundTimeout"
                    self._failures.append(Failure(round_of(message), client, "missing", reason))
                elif reply.has_error():
                    reason = reply.error.reason or f"Flower error {reply.error.code}"
                    self._failures.append(Failure(round_of(message), client, "failed", reason))
                chunk.add(client, replies.pop(node, None))
            yield from chunk.replies()


class ExperimentClient(ClientApp):
    """The client app of an experiment, resident in its process for as long as that lives.

    Args:
        name: of the experiment, or its file; None takes it from Flower's run config.
        overrides: as on the command line, separated by spaces.
    """

    def __init__(self, name: str | None = None, overrides: str = "") -> None:
        super().__init__()
        self._name, self._overrides = name, overrides

    def __call__(self, message: Message, context: Context) -> Message:
        """Answers the roll call, or lets the client half answer."""
        client = int(context.node_config[PARTITION_ID])
        clients = int(context.node_config[NUM_PARTITIONS])
        name, overrides = _named(self._name, self._overrides, context)
        own = str(context.node_config.get(OWN, ""))
        party = {"own": bool(own), "client": client if own else None}
        overrides = f"{overrides} {own}".strip()
        if message.metadata.message_type == ROLL_CALL:
            known = _federation(name, overrides, **party) if own else None
            labels = list(known.bound.labels) if known else None
            here = ConfigRecord({PARTITION_ID: client, OWN: json.dumps(labels)})
            return Message(RecordDict({ANSWER: here}), reply_to=message)
        app = _app(_federation(name, overrides, **party))
        reply, failure = serve(app, message, client, clients, context.state)
        if failure:
            print(failure.traceback, file=sys.stderr)  # stays on the client's machine
        if reply is None:
            raise RuntimeError("this client is to be missing, and was asked all the same")
        return reply


def server_app_of(name: str | None = None, overrides: str = "") -> ServerApp:
    """Returns the server app of an experiment; arguments as of `ExperimentClient`."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        own = str(context.run_config.get(OWN_DATA, False)).lower() == "true"
        run_on(grid, *_named(name, overrides, context), own_data=own)

    return app


def run_on(grid: Grid, name: str, overrides: str, *, own_data: bool = False) -> Result:
    """Runs an experiment on a grid of Flower's.

    Args:
        grid: Flower's.
        name: of the experiment.
        overrides: separated by spaces.
        own_data: each node has documents of its own; those of the server test the model.

    Raises:
        ValueError: if a node has none, or has some and should not, or has other labels.
    """
    federation = _federation(name, overrides, own=own_data)
    settings = federation.settings
    if federation.spec.cohort_batch > 1:
        raise ValueError(
            f"federation.cohort_batch={settings.cohort_batch}: Flower's engines serve each client "
            "by itself; take federation.cohort_batch=1 there"
        )
    rounds = experiment.build(_config(name, overrides)).rounds
    adapted = FlowerGrid(grid, federation.clients, settings.chunk_size)
    wanted = list(federation.bound.labels) if own_data else None
    if strange := [client for client, labels in adapted.told.items() if labels != wanted]:
        raise ValueError(
            f"node of client {strange[0]}: the labels of its own documents are "
            f"{adapted.told[strange[0]]}, expected {wanted}. Either each node is started with "
            f"{OWN} in its --node-config, and the run with {OWN_DATA}=true, or none is; "
            "data.source.fields fixes the labels of a folder"
        )
    result = federation.run(rounds, grid=adapted, progress=for_this_terminal())
    if settings.report:
        # Not at the top: every client's process imports this file, and draws nothing.
        from fedpriv.report.build import write_report

        write_report(result.run_dir)
    return result


def simulate(name: str, overrides: str = "", workers: int = 2) -> None:
    """Runs an experiment on Flower's simulation engine, with one Ray actor per worker.

    Flower uses the Ray that is there and starts one only if there is none, open to every user and
    on every interface. So ours is started first (`fedpriv.runtime.workers.ray_session`).

    Args:
        name: of the experiment, or its file.
        overrides: as on the command line, separated by spaces.
        workers: actors, of one CPU each.
    """
    # Here, as nothing else needs it: nodes of a deployment have no Ray.
    from fedpriv.runtime.workers.ray_session import running_ray

    clients = _federation(name, overrides).clients
    with running_ray(workers, {}, None):
        run_simulation(
            server_app=server_app_of(name, overrides),
            client_app=ExperimentClient(name, overrides),
            num_supernodes=clients,
            backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
        )


@lru_cache(maxsize=1)
def _federation(
    name: str, overrides: str, *, own: bool = False, client: int | None = None
) -> Federation:
    """Returns the federation of an experiment, with all documents or with one party's own."""
    config = _config(name, overrides)
    parts = experiment.build(config, name)
    if own:
        if not isinstance(parts.data, DocumentData):
            raise ValueError(f"{OWN}: only documents can lie apart; data is {parts.data!r:.80}")
        clients = vars(parts.data.partition)["clients"]
        if clients is None:
            raise ValueError(
                f"{OWN}: set data.partition.clients to the number of nodes, as none of them sees "
                "the documents of the others"
            )
        parts.data = OfOneParty(parts.data, int(clients), client)
    return parts.assemble(config)


@lru_cache(maxsize=1)
def _app(federation: Federation) -> ClientApp:
    # Each client draws its own salt, which the server and the other clients do not get to know.
    salt = "" if federation.entropy == "seed" else None
    return build_app(replace(federation.spec, salt=salt))


def _config(name: str, overrides: str) -> dict[str, object]:
    return experiment.load(name, overrides.split())


def _named(name: str | None, overrides: str, context: Context) -> tuple[str, str]:
    if name is not None:
        return name, overrides
    given = context.run_config
    if EXPERIMENT not in given:
        raise ValueError(f"Flower's run config needs {EXPERIMENT!r}; it has {sorted(given)}")
    return str(given[EXPERIMENT]), str(given.get(OVERRIDES, ""))


client_app = ExperimentClient()
server_app = server_app_of()
