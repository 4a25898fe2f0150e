"""What runs several experiments is killed at any moment, goes on, and ends with the same bits."""

import hashlib
import json
import random
import shutil
import time

import pytest
from processes import TESTS, TOY, Forked, run
from thorough import THOROUGH

TABLE = """
# A toy of a table
experiment: experiments/toy.yaml
seeds: [0, 1]
run: {data.clients: 4, rounds: 2, client.pause: 0.02}
attack: {attack: toy_attacks.Guess, attack.value: 5.0}
rows:
  trained: {attack: {~attack: 0}}
  guessed: {}
  lucky: {attack: {attack.luck: 0.5}}
  longer: {run: {rounds: 3}}
columns: {value: the value, run.accuracy: accuracy}
paper: Nobody 2026, Table 98
claims:
  - "value: lucky > guessed"
"""

ASSESSED = (
    "assess",
    "study",
    "defences=[none,fl_provider_dp]",
    "attacks=[toy_study.Overhears]",
    "seeds=1",
    "privacy.entropy=seed",
    "workers=0",
)
RETRAINED = (
    "attack",
    "runs/attacked",
    "attack=toy_attacks.Seeds",
    "retrain=true",
    'attack.overrides=["rounds=3","client.pause=0.02"]',
    "--trust",
)
COMMANDS = {
    "sweep on workers": ("sweep", "table.yaml", "workers=2"),
    "combinations": ("run", "experiments/toy.yaml", "-m", "seed=0,1", "rounds=2,3"),
    "table of a paper": ("reproduce", "cdmi", "table98", "seeds=2", "workers=0"),
    "assessment": ASSESSED,
    "trained again": RETRAINED,
}
ALWAYS = ("sweep on workers", "table of a paper")

KEPT = ("results.json", "table.json", "assessment.json", "result.json")
VARIES = {"seconds", "memory", "date", "made", "machine", "command", "commit", "commits"}


def measured(content):
    """What a study has found, without times and where they were."""
    if isinstance(content, dict):
        return {key: measured(inner) for key, inner in content.items() if key not in VARIES}
    return [measured(inner) for inner in content] if isinstance(content, list) else content


def found(place):
    """What lies in a working directory in the end, by run folder or kind of file."""
    models = {
        path.parents[1].name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in place.glob("runs/**/final.safetensors")
    }
    files = [path for path in place.glob("runs/**/*.json") if path.name in KEPT]
    numbers = [(path.name, measured(json.loads(path.read_text()))) for path in files]
    plans = len([*place.glob("runs/**/plan.json")])
    return models, plans, sorted(numbers, key=lambda pair: json.dumps(pair, sort_keys=True))


def files(place):
    return [path for path in place.glob("runs/**/*") if path.is_file()]


def ended(*words, cwd):
    """Runs a command to its end in this process, whose workers need no more imports."""
    status, _, err = run(*words, cwd=cwd)
    assert status == 0, err


@pytest.fixture
def places(tmp_path, monkeypatch):
    """Two working directories with the same experiments, and a run to be attacked."""
    monkeypatch.syspath_prepend(TESTS / "golden")
    place = tmp_path / "straight"
    tables = place / "experiments" / "papers" / "cdmi"
    tables.mkdir(parents=True)
    shutil.copy(TOY, place / "experiments")
    for toy in ("system/retraining.yaml", "golden/toys/study.yaml"):
        shutil.copy(TESTS / toy, place / "experiments")
    for file in (place / "table.yaml", tables / "table_98.yaml"):
        file.write_text(TABLE)
    return place, tmp_path / "killed"


@pytest.mark.parametrize(
    "name",
    [one if one in ALWAYS else pytest.param(one, marks=pytest.mark.slow) for one in COMMANDS],
)
def test_what_is_killed_at_any_moment_goes_on(name, places):
    straight, killed = places
    words, draw = COMMANDS[name], random.Random(name)
    if name == "trained again":
        ended("run", "experiments/toy.yaml", cwd=straight)
        (trained,) = straight.glob("runs/toy/*")
        trained.rename(straight / "runs" / "attacked")
    shutil.copytree(straight, killed)
    done: dict = {}
    ended(*words, cwd=straight)
    assert found(straight)[0]

    for _ in range(2 if THOROUGH and name != "assessment" else 1):
        process = Forked(*words, cwd=killed)
        moment = draw.randrange(len(files(killed)), len(files(straight)))
        while process.poll() is None and len(files(killed)) <= moment:
            time.sleep(draw.uniform(0, 0.05))
        assert process.poll() is None, process.said()
        process.kill()
        results = [json.loads(path.read_text()) for path in killed.rglob("results.json")]
        if words[0] in ("run", "sweep") and any(one.get("finished") for one in results):
            break  # once more would be another table
        done = {path: path.stat().st_mtime_ns for path in killed.glob("runs/**/final.safetensors")}
    else:
        ended(*words, cwd=killed)

    (models, plans, numbers), (known, one, expected) = found(killed), found(straight)
    assert (models, plans) == (known, one)
    assert [name for name, _ in numbers] == [name for name, _ in expected]
    for (file, ours), (_, theirs) in zip(numbers, expected, strict=True):
        assert ours == theirs, file
    assert {path: path.stat().st_mtime_ns for path in done} == done  # none is trained again
