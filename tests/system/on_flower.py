"""Runs the toy experiment on Flower's own simulation engine; a script, so that it is a process."""

import sys

from flwr.simulation import run_simulation

from fedpriv.grids.flower import ExperimentClient, server_app_of

if __name__ == "__main__":
    experiment, overrides = sys.argv[1], " ".join(sys.argv[2:])
    run_simulation(
        server_app=server_app_of(experiment, overrides),
        client_app=ExperimentClient(experiment, overrides),
        num_supernodes=8,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )
