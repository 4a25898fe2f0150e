"""Parts of installed packages: their names in `fedpriv list` and on the command line."""

import sys

import pytest

from fedpriv.cli.main import main
from fedpriv.config import attack, catalogue, experiment
from fedpriv.runtime.refusals import Mistakes

MODULE = """
from dataclasses import dataclass
from fedpriv import AttackContext, FedAvg, Transcript
from fedpriv.threat.claims import MembershipScores


@dataclass
class Slow(FedAvg):
    pause: float = 1.0


@dataclass(frozen=True)
class Reader:
    file: str = "tickets.csv"

    def load(self):
        raise NotImplementedError


def build(labels=(), size="tiny"):
    raise NotImplementedError


@dataclass(frozen=True)
class Access:
    transcript: Transcript


@dataclass(frozen=True)
class Look:
    depth: int = 1

    def run(self, access: Access, context: AttackContext) -> MembershipScores:
        raise NotImplementedError
"""
ENTRIES = {
    "fedpriv.attacks": {"look": "deep.parts:Look"},
    "fedpriv.strategies": {"slow": "deep.parts:Slow"},
    "fedpriv.models": {"blank": "deep.parts:build"},
    "fedpriv.data": {"deep_tickets": "deep.parts:Reader"},
}


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Returns a function that installs a package with entry points, as pip lays it out."""
    monkeypatch.chdir(tmp_path)
    site = tmp_path / "site"
    (site / "deep").mkdir(parents=True)
    (site / "deep" / "__init__.py").write_text("")
    (site / "deep" / "parts.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(site))
    for name in ("deep", "deep.parts"):
        monkeypatch.delitem(sys.modules, name, raising=False)

    def installed(name="deep-parts", entries=ENTRIES):
        info = site / f"{name.replace('-', '_')}-1.2.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
        lines = []
        for group, names in entries.items():
            lines += [f"[{group}]", *(f"{k} = {v}" for k, v in names.items())]
        (info / "entry_points.txt").write_text("\n".join(lines))

    return installed


def test_names_of_installed_packages_are_listed(install, capsys):
    install()
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for group, name in [
        ("attack", "look"), ("strategy", "slow"), ("model", "blank"), ("data", "deep_tickets")
    ]:  # fmt: skip
        (line,) = (line for line in lines if line.startswith(f"{group}= "))
        assert line.endswith(f", {name}")
    assert main(["list", "strategy"]) == 0
    assert "  slow                 deep.parts.Slow of deep-parts 1.2" in capsys.readouterr().out


def test_a_strategy_is_chosen_by_its_name(install):
    install()
    parts = experiment.build(experiment.load("quickstart", ["strategy=slow", "strategy.pause=2.5"]))
    assert (type(parts.strategy).__name__, parts.strategy.pause) == ("Slow", 2.5)
    assert type(parts.client).__name__ == "LocalTraining"


@pytest.mark.parametrize("name", ["deep_tickets", "deep.parts.Reader"])
def test_a_reader_takes_the_place_of_the_files_own(install, name):
    install()
    chosen = [f"data={name}", "data.source.file=mine.csv", "data.partition.clients=2"]
    data = experiment.build(experiment.load("quickstart", chosen)).data
    assert (type(data.source).__name__, data.source.file) == ("Reader", "mine.csv")
    assert data.partition.clients == 2


@pytest.mark.parametrize("name", ["blank", "deep.parts.build"])
def test_a_model_is_built_when_the_labels_are_known(install, name):
    install()
    chosen = [f"model={name}", "model.size=base"]
    model = experiment.build(experiment.load("quickstart", chosen)).model
    assert (model.func.__name__, model.keywords) == ("build", {"size": "base"})


def test_an_attack_is_ordered_by_its_name(install):
    install()
    ordered = attack.parse(["attack=look", "attack.depth=3"])
    assert (type(ordered.attack).__name__, ordered.attack.depth) == ("Look", 3)
    assert ordered.name == "look"


def test_an_unknown_name_is_told_with_those_of_packages(install):
    install()
    with pytest.raises(Mistakes, match="did you mean 'look'"):
        attack.parse(["attack=lok"])
    with pytest.raises(Mistakes, match=r"strategy=slw: expected one of .*, slow"):
        experiment.load("quickstart", ["strategy=slw"])


@pytest.mark.parametrize(
    ("second", "says"),
    [
        ({"fedpriv.attacks": {"pmia": "deep.parts:Look"}}, ["pmia.yaml", "deep.parts.Look of two"]),
        (
            {"fedpriv.attacks": {"look": "deep.parts:Slow"}},
            ["deep.parts.Look of deep-parts 1.2", "deep.parts.Slow of two 1.2"],
        ),
    ],
)
def test_a_name_that_is_taken_is_refused_and_both_are_named(install, second, says, capsys):
    install()
    install("two", second)
    with pytest.raises(catalogue.NameClash) as clash:
        catalogue.plugins()
    assert all(one in str(clash.value) for one in says)
    for command in (["list"], ["run", "quickstart", "strategy=fedavg"]):
        assert main(command) == 2
        assert says[0] in capsys.readouterr().err


def test_a_package_that_two_libraries_see_is_one(install):
    pytest.importorskip("importlib_metadata")  # it looks for packages too, once it is imported
    install()
    assert list(catalogue.plugins()["attack"]) == ["look"]


def test_a_package_that_is_seen_twice_is_one(install):
    install()
    install("deep-parts-again", {"fedpriv.attacks": ENTRIES["fedpriv.attacks"]})
    assert list(catalogue.plugins()["attack"]) == ["look"]
