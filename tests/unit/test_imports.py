"""What is imported, and when; which room may import which is in test_layers.py."""

import ast
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILES = [
    path
    for package in ("fedpriv", "strategies", "clients", "attacks")
    for path in sorted((ROOT / package).rglob("*.py"))
]


def imported(path):
    """Yields every dotted name that a file imports, wherever in the file."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_there_are_files_to_look_at():
    packages = {path.relative_to(ROOT).parts[0] for path in FILES}
    assert {"fedpriv", "strategies", "clients"} <= packages
    assert len(FILES) > 30


def test_only_one_file_touches_flower_internals():
    internal = ("flwr.supercore", "flwr.simulation", "flwr.common", "flwr.proto", "flwr.compat")
    touching = {p.name for p in FILES if any(name.startswith(internal) for name in imported(p))}
    assert touching == {"_flwr.py"}


def test_telemetry_is_off_once_fedpriv_is_imported():
    import fedpriv.federation.loop  # noqa: F401

    assert os.environ["FLWR_TELEMETRY_ENABLED"] == "0"
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"


def test_the_package_is_typed():
    assert (ROOT / "fedpriv" / "py.typed").is_file()


OF_HYDRA = (
    "hydra.compose",
    "hydra.initialize_config_dir",
    "hydra.core",
    "hydra.errors",
    "hydra.utils",
)


def test_hydras_own_command_line_is_not_used():
    """Python 3.14's argparse refuses the rest: hydra's help is an object, not text."""
    names = {name for path in FILES for name in imported(path) if name.startswith("hydra.")}
    assert names
    assert not [name for name in names if not name.startswith(OF_HYDRA)]


def test_one_does_not_wait_for_what_a_federation_does_not_use(tmp_path):
    """Every worker imports the federation; each of these takes seconds."""
    script = (
        "import sys; from toy import federation; federation(runs='runs').run(1); "
        "print(sorted({'ray', 'transformers', 'peft', 'matplotlib'} & sys.modules.keys()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        check=True,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])},
    )
    assert done.stdout.splitlines()[-1] == "[]"


SLIPS = {
    "attack /nosuch": "/nosuch is not a run folder: no such folder",
    "compare /nosuch /nor_this": "/nosuch is not a run folder: no such folder",
    "report /nosuch": "/nosuch is not a run folder: no such folder",
    "report .": ". is not a run folder: it has no config.yaml",
    "resume /nosuch": "/nosuch is not a run folder: no such folder",
    "run quikstart": "no experiment of that name; did you mean 'quickstart'?",
    "run nosuch.yaml": "no such file",
    "run quickstart rounds 3": "type rounds=3",
    "run quickstart roundz=3": "there is no setting 'roundz'; did you mean 'rounds'?",
    "run -m quickstart seed=0,1 roundz=3": "did you mean 'rounds'?",
    "run quickstart strategy.weigted=true": "fedavg.FedAvg takes no 'weigted'; did you mean",
    "run quickstart federation.wrokers=2": "settings.Settings takes no 'wrokers'; did you mean",
    "run quickstart strategy=fedag": "did you mean 'fedavg'?",
    "run quickstart strategy=fedpriv.strategies.FedAvgg": "'fedpriv.strategies.fedavg.FedAvg'?",
    "audit quickstart roundz=3": "did you mean 'rounds'?",
    "attack RUN_DIR attack=closedform --settings": "did you mean 'closed_form'?",
    "sweep papers/gi_dqa/tabel_1": "did you mean 'papers/gi_dqa/table_1'?",
    "reproduce cdm": "did you mean 'cdmi'?",
    "reproduce cdmi tabel5": "did you mean 'table5'?",
    "assess quikstart": "did you mean 'quickstart'?",
    "assess quickstart roundz=3": "did you mean 'rounds'?",
    "assess quickstart attacks=[sever]": "did you mean 'server_membership'?",
    "assess quickstart defences=[maskin]": "did you mean 'masking'?",
}


def test_a_slip_is_told_before_torch_is_imported(tmp_path):
    """Torch and what is built on it take seconds, and no name or path needs them."""
    script = (
        "import sys; from fedpriv.cli.main import main\n"
        "for words in sys.stdin.read().splitlines():\n"
        "    print(main(words.split()), 'torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        input="\n".join(SLIPS),
        check=True,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.stdout.splitlines() == ["2 False"] * len(SLIPS)
    told = [line for line in done.stderr.splitlines() if "nothing was started" not in line]
    assert len(told) == len(SLIPS)
    for line, expected in zip(told, SLIPS.values(), strict=True):
        assert expected in line
