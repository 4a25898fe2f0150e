"""`fedpriv assess`: the plan, the trainings and attacks, and what is refused, on tiny data."""

import csv
import dataclasses
import functools
import json
import shutil
from pathlib import Path

import pytest
from processes import run

from fedpriv.cli.main import main
from fedpriv.runtime import cache
from fedpriv.runtime.refusals import Mistakes
from fedpriv.studies import trials
from fedpriv.studies.assessing import assess, assessment, cost

SMALL = (
    "rounds=1",
    "data.source.providers=6",
    "data.source.documents_per_provider=4",
    "data.partition.clients=2",
    "privacy.providers=2",
    "privacy.entropy=seed",
)


OWN = """
from dataclasses import dataclass

from fedpriv import FedAvg
from fedpriv.threat.access import Architecture
from fedpriv.threat.claims import MembershipScores


class OwnStrategy(FedAvg):
    pass


@dataclass(frozen=True)
class Access:
    model: Architecture


class Broken:
    def run(self, access: Access, context) -> MembershipScores:
        raise NotImplementedError
"""


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


WORDS = ("assess", "quickstart", *SMALL, "seeds=[3]", "workers=0")
# Whom a round draws depends on the machine: with a rate of 1 nobody is left out.
NOISY = "fl_provider_dp strategy.mechanism.client_rate=1"
PRIVATE = (*WORDS, f"defences=[none,'{NOISY}']", "attacks=[server_membership]")


@pytest.fixture(scope="module")
def once(tmp_path_factory):
    """A working directory in which that was assessed, and the folder of the assessment there."""
    place = tmp_path_factory.mktemp("assessed")
    status, out, err = run(*PRIVATE, cwd=place)
    assert status == 0, err
    return place, Path(out.splitlines()[-1])


@pytest.fixture
def folder(once, tmp_path):
    """The folder of the assessment in a copy of that directory, which is the working directory."""
    shutil.copytree(once[0], tmp_path, dirs_exist_ok=True)
    return once[1]


def test_an_assessment_from_nothing_to_page_and_again(folder, capsys):
    content = json.loads((folder / "assessment.json").read_text())
    assert [row["defence"] for row in content["rows"]] == ["none", NOISY]
    private = content["rows"][1]
    assert private["epsilon"]["server_masked"] == pytest.approx(8, abs=0.05)
    assert "server" not in private["epsilon"]
    bound, ledger = private["measured"]["global"]
    assert 0 < bound < ledger
    cell = private["cells"][0]
    assert cell["adversary"] == "server_masked"
    assert "attack.target=series" in cell["commands"][0]
    for trained, finding in zip(cell["runs"], cell["findings"], strict=True):
        assert (folder / trained / "report.html").is_file()
        assert (folder / finding / "result.json").is_file()
    assert (folder / "assessment.html").is_file()
    with (folder / "assessment.csv").open(encoding="utf-8") as file:
        assert len([*csv.DictReader(file)]) == 2

    # Repeated, it is the same folder, and nothing is trained or attacked anew.
    before = {path: path.stat().st_mtime_ns for path in folder.glob("runs/*/checkpoints/*")}
    results = {path: path.stat().st_mtime_ns for path in folder.glob("runs/*/findings/*/*.json")}
    assert main([*PRIVATE]) == 0
    assert Path(capsys.readouterr().out.splitlines()[-1]) == folder
    assert before == {path: path.stat().st_mtime_ns for path in before}
    assert results == {path: path.stat().st_mtime_ns for path in results}

    # The page comes from the run folders alone.
    (folder / "assessment.html").unlink()
    assert main(["assess", str(folder)]) == 0
    assert (folder / "assessment.html").is_file()


def test_a_defence_and_an_attack_of_ones_own_and_one_that_fails(capsys, tmp_path, monkeypatch):
    (tmp_path / "own_parts.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    own = "attacks=[own_parts.Broken]"
    assert main([*WORDS, "defences=[none,own_parts.OwnStrategy]", own]) == 0
    folder = Path(capsys.readouterr().out.splitlines()[-1])
    found = assessment.read(folder)
    assert [row.defence for row in found.rows] == ["none", "OwnStrategy"]
    broken = [cell for _, cell in found.cells if cell.attack == "Broken"]
    assert [cell.failed for cell in broken] == [1, 1]
    assert all("failed: NotImplementedError" in cell.why for cell in broken)


def test_a_training_that_fails_is_counted(folder, capsys, monkeypatch):
    (private,) = (
        run for run in folder.glob("runs/*") if (run / "findings/mechanism_audit").is_dir()
    )
    shutil.rmtree(private)

    def train(parts, config, source, run_dir, **_):
        assert run_dir.name == private.name
        raise MemoryError("no room")

    monkeypatch.setattr(trials, "start", train)
    assert main([*PRIVATE]) == 0
    out = capsys.readouterr().out
    assert f"{NOISY}, seed 3: failed: MemoryError: no room" in out
    row = assessment.read(out.splitlines()[-1]).rows[1]
    assert (row.seeds, row.cells[0].verdict, row.cells[0].failed) == ((), "cannot_tell", 1)


def test_the_plan_starts_nothing_and_says_what_is_withheld(capsys, tmp_path):
    words = (*WORDS, "--plan", "defences=[none]", "attacks=[server_membership,pmia]")
    assert main([*words]) == 0
    out = capsys.readouterr().out
    assert "LayoutLMv3Tagger answers no questions" in out
    assert "cannot tell: it takes" in out
    assert "2 trainings with 1 seed" not in out
    assert main([*words, "--time"]) == 0
    assert "2 trainings with 1 seed" in capsys.readouterr().out
    assert not (tmp_path / "runs").exists()


def test_what_is_asked_follows_from_the_data():
    """Six suppliers are too few for membership, unless it is asked for by name."""
    asked = {one.name: one for one in planned(attacks=None, seeds=1).attacks}
    assert not asked["text"].withheld
    assert "cannot tell: it takes" in asked["server_membership"].withheld
    assert "no questions" in asked["pmia_confidence"].withheld
    (named,) = planned(seeds=1).attacks
    assert (named.withheld, named.outlook.hopeless) == ("", True)
    many = ("rounds=1", "data=slips", "data.source.providers=120", "data.test.unseen=0.5")
    asked = {one.name: one for one in planned(words=many, attacks=None, seeds=1).attacks}
    assert not asked["server_membership"].withheld


def planned(*, name="quickstart", words=SMALL, **chosen):
    usual = {"defences": ["none"], "attacks": ["server_membership"], "seeds": 2}
    return assess.read(name, words, **usual | chosen)


@functools.cache
def long():
    """A plan of two attacks, one of which takes hours."""
    return planned(attacks=["server_membership", "gi_dqa"], seeds=5)


def test_a_defence_that_cannot_be_combined_is_a_row_that_says_so():
    plan = planned(defences=["strategy=fedavg strategy.weighted=true masking=on", "none"])
    refused = plan.defences[0]
    assert "set strategy.weighted=false" in refused.refused
    assert not [one for one in plan.trainings if one.defence == refused.name]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("strategy=fedavg training.batch_size=0", "batch_size=0"),
        ("fl_provider_dp privacy.epsilon=nan", "privacy.epsilon: got nan"),
        ("os.system", "strategy.command: is missing"),
        ("strategy=bandmf", "expected one of centralised,"),
        ("strategy=feam_dp strategy.clip_norm=-1", "takes no 'clip_norm'"),
    ],
)
def test_a_misspelt_defence_is_refused_before_anything_is_trained(words, told):
    with pytest.raises(
        Mistakes, match=r"the defences of quickstart: .*nothing was started"
    ) as seen:
        planned(defences=["none", words])
    assert told in str(seen.value)


def test_a_defence_that_does_not_fit_is_told_before_the_first_training(tmp_path, monkeypatch):
    monkeypatch.setattr(trials.Store, "run", lambda *args: {})
    plan = planned(
        defences=["none", "strategy=fedavg strategy.weighted=true masking=on"],
        words=(*SMALL, "runs=runs"),
    )
    said = []
    assess.run(plan, workers=1, tell=said.append)
    (line,) = (one for one in said if one.startswith("not trained: "))
    assert "set strategy.weighted=false" in line
    assert said.index(line) == 0


def test_a_defence_that_would_change_nothing_is_refused():
    blocking, safe = planned(defences=["blocking", "safe_template"]).defences[1:]
    assert blocking.refused.startswith("LayoutLMv3Tagger answers no questions")
    assert safe.refused == "none of the attacks takes publisher"


def test_an_attack_with_settings_stays_that_of_its_name():
    plan = planned(defences=["masking"], attacks=["server_membership 'rounds=[1]'"])
    masked = next(one for one in plan.trainings if one.defence == "masking")
    (order,) = masked.orders.values()
    assert {"rounds=[1]", "attack.target=series"} <= {*order}


def test_settings_of_a_keeper_go_where_it_keeps_something():
    words = (*SMALL, "keep.transcript.rounds=[1]")
    plan = planned(words=words)
    by_defence = {one.defence: one.config for one in plan.trainings}
    assert by_defence["none"]["keep"]["transcript"]["rounds"] == [1]
    assert not by_defence["start"].get("keep")


def test_a_defence_that_changes_the_model_has_a_start_of_its_own():
    other = "strategy=fedavg masking=off model.dropout=0.2"
    plan = planned(defences=["none", "masking", other])
    starts = {one.run: one for one in plan.trainings if one.defence == "start"}
    begun = {(one.defence, one.seed): starts[one.start] for one in plan.trainings if one.start}
    assert len(starts) == 4
    assert begun["none", 0].run == begun["masking", 0].run != begun[other, 0].run
    assert begun[other, 0].config["model"]["dropout"] == 0.2
    assert begun[other, 1].seed == 1


def test_a_name_may_have_settings_behind_it():
    plan = planned(defences=["fl_provider_dp privacy.epsilon=2"])
    private = plan.defences[1]
    assert private.name == private.told.replace(" with", "") == "fl_provider_dp privacy.epsilon=2"
    assert private.warning.startswith("WARNING: the noise will drown the model")
    assert not plan.defences[0].warning
    assert [word for word in private.run if "epsilon" in word] == ["privacy.epsilon=2"]
    config = next(one.config for one in plan.trainings if one.defence == private.name)
    assert config["privacy"]["epsilon"] == 2


def test_settings_of_the_users_own_come_last():
    plan = planned(defences=["masking"], attacks=["server_membership attack.target=sum seed=5"])
    masked = next(one for one in plan.trainings if one.defence == "masking")
    (order,) = masked.orders.values()
    assert order[-2:] == ("attack.target=sum", "seed=5")


def test_the_batches_are_kept_where_an_attack_must_know_them():
    words = (*SMALL, "keep.transcript.batches=false")
    kept = {
        attack: planned(words=words, attacks=[attack]).trainings[0].config["keep"]["transcript"]
        for attack in ("server_membership", "closed_form")
    }
    assert not kept["server_membership"]["batches"]
    assert kept["closed_form"]["batches"]


def test_other_code_is_another_assessment(tmp_path, monkeypatch):
    (tmp_path / "own_code.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    before = planned(defences=["own_code.OwnStrategy"]).own
    assert set(before) == {"own_code.OwnStrategy", "documents", "fedpriv"}
    (tmp_path / "own_code.py").write_text(f"{OWN}\n# changed")
    after = planned(defences=["own_code.OwnStrategy"]).own
    assert after["own_code.OwnStrategy"] != before["own_code.OwnStrategy"]
    assert after["documents"] == before["documents"]
    more = (*SMALL[:1], "data.source.providers=8", *SMALL[2:])
    assert planned(words=more).own["documents"] != before["documents"]


def test_what_was_foretold_is_not_foretold_again(tmp_path, monkeypatch):
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "cache"))
    plan, told = planned(seeds=1), list[str]()
    first = cost.foretold(plan, told.append)
    assert first["none"].seconds > 0
    # An attack is made to see how long it takes; of one that is slow, the matrix says it.
    (made,) = [one for one in plan.attacks if not one.withheld]
    assert 0 < first["none"].of(made) < 60 * made.minutes
    slow = dataclasses.replace(made, overrides=("attack=cdmi",), minutes=5.0)
    assert first["none"].of(slow) == 300.0
    assert len(told) == 2  # and the start
    assert cost.foretold(plan, told.append) == first
    assert len(told) == 2


def test_hours_make_attacks_smaller_before_they_are_left_out(tmp_path):
    plan = planned(attacks=["server_membership", "gi_dqa"], seeds=1)
    costs = {"none": cost.Cost(60, 1, 1), "start": cost.Cost(0, 1, 1)}
    fitted, told = cost.within(plan, costs, 0.1, 1)
    assert told == ["gi_dqa with attack.method.evaluations=100"]
    (order,) = [one.orders["gi_dqa"] for one in fitted.trainings if one.orders]
    assert order[-2:] == ("attack.method.evaluations=100", "seed=0")
    folder = tmp_path / "runs" / "assess" / "quickstart" / "2026"
    folder.mkdir(parents=True)
    (folder / "plan.json").write_text(json.dumps(fitted.as_json()))
    assert cost.begun(plan, 0.1).as_json() == fitted.as_json()


def test_what_hours_leave_out_is_told_before_anything_is_trained(capsys, monkeypatch):
    costs = {"none": cost.Cost(60, 1, 1), "start": cost.Cost(0, 1, 1)}
    monkeypatch.setattr(cost, "foretold", lambda plan, tell: costs)
    asked = []

    def run(plan, **_):
        asked.append(plan)
        raise NotImplementedError

    monkeypatch.setattr(assess, "run", run)
    words = ("defences=[none]", "attacks=[server_membership,gi_dqa]", "hours=0.05", "seeds=3")
    with pytest.raises(NotImplementedError):
        main(["assess", "quickstart", *SMALL, *words, "workers=1"])
    assert [line for line in capsys.readouterr().err.splitlines() if "hours" in line] == [
        "hours=0.05: 2 seeds in place of 3",
        "hours=0.05: gi_dqa with attack.method.evaluations=100",
        "hours=0.05: without gi_dqa",
    ]
    (plan,) = asked
    assert (plan.hours, plan.seeds) == (0.05, (0, 1))


def test_a_misspelt_attack_is_one_mistake():
    with pytest.raises(Mistakes) as caught:
        planned(attacks=["closedform"])
    assert len(caught.value.problems) == 1


def test_none_is_always_there_and_comes_first():
    assert [one.name for one in planned(defences=["clipping"]).defences] == ["none", "clipping"]


def test_a_defence_of_attacks_alone_shares_the_training():
    plan = planned(defences=["none", "safe_template"], attacks=["server_membership", "closed_form"])
    by_defence = {(one.defence, one.seed): one for one in plan.trainings}
    plain, safe = by_defence["none", 0], by_defence["safe_template", 0]
    assert plain.run == safe.run
    assert "publisher=safe_pgd" in safe.orders["closed_form"]
    assert safe.orders["server_membership"] == plain.orders["server_membership"]


def test_hours_leave_out_seeds_and_then_the_longest_attack():
    plan = long()
    costs = {"none": cost.Cost(60, 1, 1), "start": cost.Cost(0, 1, 1)}
    assert cost.duration(plan, costs, 1) == 5 * (60 + 0.4 * 60 + 600)
    fewer, told = cost.within(plan, costs, 0.45, 1)
    assert (len(fewer.seeds), told) == (2, ["2 seeds in place of 5"])
    fewer, told = cost.within(plan, costs, 0.05, 1)
    assert told == [
        "2 seeds in place of 5",
        "gi_dqa with attack.method.evaluations=100",
        "without gi_dqa",
    ]
    assert fewer.attacks[1].withheld == "left out to fit into 0.05 hours"
    assert all("gi_dqa" not in one.orders for one in fewer.trainings)
    with pytest.raises(Mistakes, match=r"hours=0\.001: one seed .* take hours=0\.024, or leave"):
        cost.within(plan, costs, 0.001, 1)
    assert cost.within(plan, costs, 0.024, 1)[0].seeds == (0,)


def test_what_fitted_into_hours_stays_so_after_an_interruption(tmp_path):
    plan = long()
    assert cost.begun(plan, 0.05) is None
    costs = {"none": cost.Cost(60, 1, 1), "start": cost.Cost(0, 1, 1)}
    fitted, _ = cost.within(plan, costs, 0.05, 1)
    folder = tmp_path / "runs" / "assess" / "quickstart" / "2026"
    folder.mkdir(parents=True)
    (folder / "plan.json").write_text(json.dumps(fitted.as_json()))
    assert cost.begun(plan, 0.05).as_json() == fitted.as_json()
    assert cost.begun(plan, 0.2) is None
    (folder / "assessment.json").write_text("{}")  # it is finished
    assert cost.begun(plan, 0.05) is None


@pytest.mark.parametrize(
    ("chosen", "why"),
    [
        ({"defences": ["fl_provider"]}, "there is no 'fl_provider'.*fl_provider_dp"),
        ({"defences": ["none", "none"]}, "the name none is taken"),
        ({"defences": ["my.start"]}, "the name start is taken"),
        (
            {"defences": ["fl_provider_dp"], "words": ("privacy.epsilon=2",)},
            "epsilon=2: fl_provider_dp sets privacy.epsilon: .*'fl_provider_dp privacy.epsilon=2'",
        ),
        ({"words": ("federation.report=true",)}, "an assessment sets federation.report itself"),
        ({"attacks": ["closedform"]}, "there is no 'closedform'.*closed_form"),
        ({"attacks": []}, r"attacks=\[\]: expected some of server_membership"),
        ({"attacks": ["pmia"]}, "answers no questions"),
        ({"seeds": 0}, "seeds=0"),
        ({"seeds": [1, 1]}, r"seeds=\[1, 1\]"),
        ({"seeds": [[1], [2]]}, r"seeds=\[\[1\], \[2\]\]"),
        ({"words": ("seed=3",)}, r"an assessment sets seed itself: write seeds=\[0,1\]"),
        ({"attacks": ["broken_part.X"]}, r"failed in .*broken_part.py, line 2: ZeroDivisionError"),
        ({"words": ("keep=[transcript]",)}, "an assessment sets keep itself"),
        ({"words": ("strategy=feam_dp",)}, "an assessment sets strategy itself"),
        ({"words": ("rounds=x",)}, "rounds"),
        ({"name": "quickstar"}, "no experiment of that name"),
        ({"attacks": ["server_membership attack.targe=x"]}, "targe"),
    ],
)
def test_mistakes_are_told_before_anything_starts(chosen, why, tmp_path, monkeypatch):
    (tmp_path / "broken_part.py").write_text("\n1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(Mistakes, match=f"(?s){why}"):
        planned(**chosen)


def test_a_folder_has_its_settings(capsys, tmp_path):
    assert main(["assess", str(tmp_path), "seeds=2"]) == 2
    assert "seeds=2: an assessment has its settings" in capsys.readouterr().err
    assert main(["assess", str(tmp_path)]) == 1
    assert "is not the folder of an assessment" in capsys.readouterr().err


@pytest.mark.parametrize("word", ["hours=x", "hours=0", "workers=-1", "seeds=no", "defences=[]"])
def test_own_settings_are_checked(capsys, word):
    assert main(["assess", "quickstart", word]) == 2
    assert word in capsys.readouterr().err
