"""Whatever becomes of a run's files, a command names the file and raises nothing."""

import json
import os
import random

import pytest
from safetensors.torch import load, save

from fedpriv.cli.main import main

TRIALS = 24
ELSEWHERE = "what the user keeps elsewhere"


def cut(path, rng):
    path.write_bytes(path.read_bytes()[: rng.randrange(path.stat().st_size)])


def flip(path, rng):
    content = bytearray(path.read_bytes())
    content[rng.randrange(len(content))] ^= 1 + rng.randrange(255)
    path.write_bytes(content)


def junk(path, rng):
    path.write_bytes(rng.choice([b"", b"{}", b"[1]", b"null", b'{"x":', b"\xff\x00", b"[" * 9999]))


def link(path, rng):
    path.unlink()
    path.symlink_to(rng.choice([path.parents[1] / "secret", "nowhere"]))


def pipe(path, rng):
    path.unlink()
    os.mkfifo(path)


def value(path, rng):
    """Puts another value into JSON, or other numbers into tensors."""
    if path.suffix == ".safetensors":
        tensors = load(path.read_bytes())
        name = rng.choice(sorted(tensors))
        tensors[name] = rng.choice([tensors[name].double(), tensors[name] * 0 + 1])
        path.write_bytes(save(tensors, {"fedpriv": rng.choice(["null", '{"round": -7}', "{}"])}))
    elif path.suffix in (".json", ".jsonl"):
        first, *rest = (
            path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
        )
        content = json.loads(first)
        content[rng.choice(sorted(content))] = rng.choice([None, -7, "x", [1], {}, 1e308])
        path.write_text("\n".join([json.dumps(content), *rest, ""]))
    else:
        path.write_text("rounds: 99\n")


@pytest.mark.slow
@pytest.mark.parametrize("change", [cut, flip, junk, link, pipe, value])
@pytest.mark.parametrize("seed", range(TRIALS // 6))
def test_report_tells_and_resume_refuses_what_was_changed(copy, change, seed, capsys):
    rng = random.Random(f"{change.__name__} {seed}")
    (copy.parent / "secret").write_text(ELSEWHERE)
    files = ["config.yaml", "ledger.json", "metrics.jsonl", "failures.jsonl", "checkpoints/{}"]
    name = files[(seed + rng.randrange(2)) % len(files)].format("round-000002.safetensors")
    change(copy / name, rng)
    if name == "config.yaml" and change in (link, pipe):
        assert main(["report", str(copy)]) in (0, 2)  # it may not even be a run folder
    else:
        assert main(["report", str(copy)]) == 0
        page = (copy / "report.html").read_text()
        assert name in page
        assert ELSEWHERE not in page
    assert main(["resume", str(copy), "rounds=3"]) == 2
    said = capsys.readouterr().err
    assert name.split("/")[-1] in said or "is not a run folder" in said
    assert ELSEWHERE not in said


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("ledger.json", "{}"),
        ("ledger.json", "[1]"),
        ("ledger.json", '{"x":'),
        ("metrics.jsonl", '{"loss": 1}\n{"loss": 2}\n'),
        ("partition.json", "[]"),
    ],
)
def test_a_report_is_written_of_what_can_be_read(copy, name, content, capsys):
    (copy / name).write_text(content)
    assert main(["report", str(copy)]) == 0
    assert name in (copy / "report.html").read_text()
    assert f"{name}" in capsys.readouterr().err
