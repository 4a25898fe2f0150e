"""An attack of a user's own: one file of at most 40 lines, in a folder outside the repository.

It hands back a claim of its own, which takes one dataclass and one scorer.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from processes import environment, finish, run, run_dir, start
from safetensors.numpy import load_file

REPOSITORY = Path(__file__).parents[2]

ATTACK = '''\
"""How dark is the page that a client trained on? As dark as its template, guesses this."""

from collections.abc import Sequence
from dataclasses import dataclass

from fedpriv.threat.access import BatchKnowledge, MessageKey
from fedpriv.threat.attack import AttackContext
from fedpriv.threat.results import Result, Table
from fedpriv.threat.scoring.registry import Scoring, scorer


@dataclass(frozen=True)
class Darkness:
    message: MessageKey
    mean: float


@dataclass(frozen=True)
class TemplateAccess:
    knowledge: BatchKnowledge


@dataclass(frozen=True)
class Guess:
    factor: float = 1.0

    def run(self, access: TemplateAccess, context: AttackContext) -> tuple[Darkness, ...]:
        known = {key: k.template for key, k in access.knowledge.of.items() if key[1] is not None}
        means = {key: float(page.mean()) for key, page in known.items() if page is not None}
        return tuple(Darkness(key, self.factor * mean) for key, mean in means.items())


@scorer(Darkness)
def score(claims: Sequence[Darkness], scoring: Scoring) -> Result:
    truths = [(claim, scoring.truth.of(claim.message)) for claim in claims]
    pages = [(c, t.pixels) for c, t in truths if t is not None and t.pixels is not None]
    off = {f"client {c.message[1]}": abs(c.mean - float(page.mean())) for c, page in pages}
    table = Table(("page of", "off by"), tuple((k, f"{v:.2f}") for k, v in off.items()), "How dark")
    headline = f"the darkness of {len(off)} pages, {max(off.values()):.1f} at most off"
    return Result("darkness", headline, {"off": off}, (table,))
'''

OVERREACHING = {
    # What the access does not have.
    "access.view.messages": '"TemplateAccess" has no attribute "view"',
    # What the type in the access does not give.
    "access.knowledge.truth": '"BatchKnowledge" has no attribute "truth"',
    # The way round, into the run folder.
    "context.folder": '"AttackContext" has no attribute "folder"',
}


@pytest.fixture(scope="module")
def outside(tmp_path_factory):
    """A user's folder with an attack, and a finished run in it."""
    folder = tmp_path_factory.mktemp("outside")
    assert not folder.is_relative_to(REPOSITORY)
    (folder / "darkness.py").write_text(ATTACK)
    small = ["data.source.page_size=[64,64]", "data.source.providers=2", "data.partition.clients=2"]
    nothing = ["data.test.fraction=0", "data.test.unseen=0", "model.image_size=64", "rounds=1"]
    status, out, err = run("run", "gi_dqa", *small, *nothing, cwd=folder)
    assert status == 0, err
    return folder, folder / run_dir(out)


def result_of(place, name):
    return json.loads((place / "findings" / name / "result.json").read_text("utf-8"))


def true_means(place):
    """Mean grey of the pages, from the file in which the simulation keeps them."""
    files = sorted((place / "truth" / "round-000001").glob("client-*.safetensors"))
    return {f"client {n}": load_file(file)["pixels"].mean() for n, file in enumerate(files)}


def test_an_attack_of_40_lines_is_run_by_its_dotted_path(outside):
    folder, place = outside
    assert len(ATTACK.splitlines()) <= 40
    status, out, err = run("attack", str(place), "attack=darkness.Guess", cwd=folder)
    assert status == 0, err
    assert Path(out.splitlines()[-1]) == place / "findings" / "Guess"

    result = result_of(place, "Guess")
    assert (result["kind"], result["status"]) == ("darkness", "done")
    assert result["threat_model"] == {"BatchKnowledge": True}
    off = result["details"]["off"]
    assert sorted(off) == ["client 0", "client 1"]
    assert result["headline"] == f"the darkness of 2 pages, {max(off.values()):.1f} at most off"
    (table,) = result["tables"]
    assert table["rows"] == [[name, f"{value:.2f}"] for name, value in off.items()]

    assert result["headline"] in out
    assert "How dark" in out
    page = (place / "report.html").read_text("utf-8")
    assert result["headline"] in page
    assert "How dark" in page
    assert "page of" in page


def test_its_scorer_holds_it_against_the_truth(outside):
    """A guess of black is off by the mean of the page; that of the template is much nearer."""
    folder, place = outside
    for name, factor in (("black", 0.0), ("template", 1.0)):
        settings = ["attack=darkness.Guess", f"attack.factor={factor}", f"name={name}"]
        status, _, err = run("attack", str(place), *settings, cwd=folder)
        assert status == 0, err
    black, template = (result_of(place, n)["details"]["off"] for n in ("black", "template"))
    assert black == pytest.approx(true_means(place))
    assert all(template[client] < 0.2 * black[client] for client in black)
    assert "Guess(factor=0.0)" in result_of(place, "black")["settings"]["attack"]


def test_one_yaml_gives_it_a_name_and_settings(outside):
    folder, place = outside
    choices = folder / "experiments" / "attack"
    choices.mkdir(parents=True, exist_ok=True)
    (choices / "dark.yaml").write_text(
        "# How dark are the pages?\n_target_: darkness.Guess\nfactor: 0.0\n"
    )
    status, _, err = run("attack", str(place), "attack=dark", cwd=folder)
    assert status == 0, err
    assert result_of(place, "dark")["details"]["off"] == pytest.approx(true_means(place))
    assert run("attack", str(place), "attack=dark", "attack.factor=1", cwd=folder)[0] == 0
    assert "Guess(factor=1.0)" in result_of(place, "dark")["settings"]["attack"]
    status, out, _ = run("list", "attack", cwd=folder)
    assert status == 0
    assert "How dark are the pages?" in out


@pytest.mark.slow
def test_it_is_found_from_elsewhere_by_the_path_of_python(outside, tmp_path):
    """In a process of its own: nothing has imported it before."""
    folder, place = outside
    command = ["attack", str(place), "attack=darkness.Guess", "name=elsewhere"]
    path = environment()["PYTHONPATH"]
    status, _, err = finish(start(*command, cwd=tmp_path, PYTHONPATH=f"{folder}:{path}"))
    assert status == 0, err
    assert result_of(place, "elsewhere")["status"] == "done"


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("attack=lightness.Guess", "no module 'lightness' (in 'lightness.Guess'; looked for in"),
        ("attack=darkness.Gess", "darkness has no callable 'Gess'; did you mean 'Guess'?"),
        ("attack.faktor=1", "darkness.Guess takes no 'faktor'; did you mean 'factor'?"),
        ("attack.factor=much", "attack.factor: got 'much'"),
        (
            "min_questions=[3]",
            "min_questions=[3]: nothing that this attack uses depends on it; it takes ",
        ),
    ],
)
def test_mistakes_say_what_would_work(outside, override, says):
    folder, place = outside
    named = [] if override.startswith("attack=") else ["attack=darkness.Guess"]
    status, _, err = run("attack", str(place), *named, override, "name=wrong", cwd=folder)
    assert status == 2
    assert says in err
    assert "Traceback" not in err
    assert not (place / "findings" / "wrong").exists()


@pytest.mark.slow
def test_mypy_rejects_an_attack_that_reads_what_it_was_not_granted(outside):
    folder, _ = outside
    known = "known = {"
    for number, reached in enumerate(OVERREACHING):
        text = ATTACK.replace(known, f"print({reached})\n        {known}")
        (folder / f"overreach_{number}.py").write_text(text)
    files = ["darkness.py", *(f"overreach_{number}.py" for number in range(len(OVERREACHING)))]
    # Not the repository's settings; and without the large packages, whose types do not matter here.
    large = "torch.*,transformers.*,sklearn.*,pandas.*,ray.*,flwr.*,sqlalchemy.*,matplotlib.*"
    (folder / "mypy.ini").write_text(f"[mypy]\n[mypy-{large}]\nfollow_imports = skip\n")
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent"]
    ours = {**environment(), "MYPYPATH": str(REPOSITORY)}
    done = subprocess.run(
        [*command, "--ignore-missing-imports", "--cache-dir", str(folder / "cache"), *files],
        cwd=folder,
        env=ours,
        capture_output=True,
        text=True,
        check=False,
    )
    errors = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert done.returncode == 1, done.stderr
    assert len(errors) == len(OVERREACHING), done.stdout  # and none in the right one
    for number, says in enumerate(OVERREACHING.values()):
        (error,) = (line for line in errors if line.startswith(f"overreach_{number}.py:"))
        assert says in error
