"""Two Ray nodes on one machine: the same bits as in one process, and a node that is killed."""

import threading
import time

import pytest
import ray
from ray.cluster_utils import Cluster
from toy import Faulty, federation, weights

from fedpriv.runtime.workers.ray_session import RaySettings

pytestmark = pytest.mark.slow

SLOW = Faulty(pause=0.1)


@pytest.fixture
def nodes():
    """A cluster of two nodes with a core each."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        cluster.add_node(num_cpus=1)
        cluster.wait_for_nodes()
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()


def _kill_in_the_third_round(nodes, runs):
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        found = [path.read_text() for path in runs.glob("*/*/metrics.jsonl")]
        if found and found[0].count("\n") >= 2:
            nodes.remove_node(nodes.worker_nodes.copy().pop(), False)
            return
        time.sleep(0.02)


def test_two_nodes_give_the_bits_of_one_process_and_a_killed_node_costs_its_clients_a_round(
    nodes, tmp_path
):
    expected = federation(client=SLOW, runs=tmp_path).run(3)
    there = {"workers": 2, "ray": RaySettings(address=nodes.address), "client": SLOW}
    toy = federation(runs=tmp_path, **there)
    grid = toy.grid()
    try:
        assert len(set(grid.worker_pids())) == 2  # of one core each, and no node has more than one
        assert weights(toy.run(3, grid=grid)) == weights(expected)

        runs = tmp_path / "with a killed node"
        killer = threading.Thread(target=_kill_in_the_third_round, args=(nodes, runs), daemon=True)
        killer.start()
        result = federation(runs=runs, **there).run(30, grid=grid)
        killer.join(60)
        assert not killer.is_alive()
    finally:
        grid.close()
    answered = [record["clients"]["answered"] for record in result.metrics]
    lost = [(f["round"], f["client"]) for f in result.failures]
    assert len(answered) == 30
    assert answered[-1] == 8  # one worker goes on; another finds no place
    assert len(lost) <= 1  # the client that was at work on that node
    assert all(2 < round < 30 for round, _ in lost)
    raised = {f"{round}/{client}": "raise" for round, client in lost}
    again = federation(client=Faulty(raised, pause=0.0), runs=tmp_path).run(30)
    assert weights(result) == weights(again)
