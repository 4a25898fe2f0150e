"""The same apps on Flower's own engines give the same bits."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import TOY, environment, run, run_dir

HERE = Path(__file__).parent
APP = HERE.parents[1] / "experiments" / "flower"
FINAL = "checkpoints/final.safetensors"


BANDED = TOY.replace("toy.yaml", "banded.yaml")
SIX = "strategy.sampling={_target_:fedpriv.privacy.sampling.FixedSize,count:6}"


def ours(cwd, *overrides, experiment=TOY):
    status, out, err = run("run", experiment, *overrides, cwd=cwd)
    assert status == 0, err
    return (cwd / run_dir(out) / FINAL).read_bytes()


def theirs(cwd):
    (folder,) = (cwd / "flower").glob("*/*")
    return (folder / FINAL).read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("experiment", "at", "more"),
    [(TOY, "2/3", [SIX]), (BANDED, "2/0/3", [])],
    ids=["six of eight", "private, masked, remembering"],
)
def test_flowers_simulation_engine(experiment, at, more, tmp_path):
    # Spaces separate overrides there, so what fails is written without.
    overrides = ["rounds=3", f"client.faults={{{at}:raise}}", "faults=dropout", "faults.at={3:[4]}"]
    overrides += more
    command = [sys.executable, str(HERE / "on_flower.py"), experiment, *overrides]
    command += [f"runs={tmp_path / 'flower'}"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert theirs(tmp_path) == ours(tmp_path, *overrides, experiment=experiment)
    assert "ACME" not in done.stdout


@pytest.mark.slow
def test_superlink_and_supernodes_on_loopback(tmp_path):
    port = 18080
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "loop"\n[superlink.loop]\naddress = "127.0.0.1:{port}"\n'
        "insecure = true\n"
    )
    env = environment(
        FLWR_HOME=str(home),
        FLWR_TELEMETRY_ENABLED="0",
        FLWR_DISABLE_UPDATE_CHECK="1",
        FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION="1",
        PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    )
    link = ["flower-superlink", "--insecure", "--host", "127.0.0.1", "--port", str(port)]
    link += ["--database", str(tmp_path / "link.db"), "--disable-runtime-dependency-installation"]
    node = ["flower-supernode", "--insecure", "--superlink", f"127.0.0.1:{port}"]
    started = [_start(link, env, tmp_path / "link.log")]
    try:
        time.sleep(5)
        for client in range(2):
            own = ["--host", "127.0.0.1", "--port", str(19180 + client)]
            own += ["--node-config", f"partition-id={client} num-partitions=2"]
            started.append(_start([*node, *own], env, tmp_path / f"node{client}.log"))
        overrides = f"rounds=2 data.clients=2 runs={tmp_path / 'flower'}"
        config = f'experiment="{TOY}" overrides="{overrides}"'
        command = ["flwr", "run", str(APP), "loop", "--stream", "--run-config", config]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    finally:
        for process in started:
            os.killpg(process.pid, signal.SIGTERM)
    assert done.returncode == 0, done.stdout + done.stderr
    assert theirs(tmp_path) == ours(tmp_path, "rounds=2", "data.clients=2")


def _start(command, env, log):
    with log.open("w") as file:
        return subprocess.Popen(
            command, env=env, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
