"""Experiment files: every one given works, and every mistake is named before anything starts."""

import dataclasses
import itertools
import re
from pathlib import Path

import pytest

from fedpriv.config import attack, catalogue, experiment
from fedpriv.config.experiment import Experiment
from fedpriv.config.reference import reference, settings
from fedpriv.data.partition import ByClient, ByProvider
from fedpriv.federation.dataset import DocumentData
from fedpriv.federation.loop import Federation, Unworkable
from fedpriv.federation.parts import Parts
from fedpriv.federation.settings import Privacy, Settings, Training
from fedpriv.runtime.refusals import Mistakes
from fedpriv.runtime.workers.ray_session import RaySettings
from fedpriv.strategies.fedavg import FedAvg
from fedpriv.threat.surfaces.fields import KeepScrubbed
from fedpriv.threat.surfaces.held_out import KeepHeldOut
from fedpriv.threat.surfaces.server import KeepTranscript
from fedpriv.training.adapters import Full, LoRA, TopLayers
from fedpriv.training.pretraining import Pretraining

ROOT = Path(__file__).parents[3]
YAML = sorted((ROOT / "experiments").rglob("*.yaml"))


@pytest.fixture(autouse=True)
def _data_folder(monkeypatch):
    monkeypatch.setenv("FEDPRIV_DATA", "/somewhere")


def mistakes(name, *overrides):
    with pytest.raises(Mistakes) as caught:
        experiment.build(experiment.load(name, overrides), name)
    return caught.value.problems


def test_there_are_experiments():
    assert {"quickstart", "sroie_kie"} <= set(catalogue.experiments())
    assert len(YAML) >= 8


@pytest.mark.parametrize("name", catalogue.experiments())
def test_every_experiment_loads_and_checks(name):
    built = experiment.build(experiment.load(name), name)
    assert built.name == name


CHOICES = [(group, choice) for group, choices in catalogue.groups().items() for choice in choices]
OF_ATTACKS = ("attack", "publisher")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("group", "choice"), [pair for pair in CHOICES if pair[0] not in OF_ATTACKS]
)
def test_every_choice_of_every_group_loads_and_checks(group, choice):
    # What differs between the models of a study is chosen by the model.
    of_study = group == "extraction_model"
    name, chosen = ("extraction", "model") if of_study else ("quickstart", group)
    # Data of one's own have no default place.
    places = {"folder": ["data.source.root=scans"], "hf": ["data.source.path=scans"]}
    more = places.get(choice, []) if group == "data" else []
    experiment.build(experiment.load(name, [f"{chosen}={choice}", *more]))


@pytest.mark.parametrize(("group", "choice"), [pair for pair in CHOICES if pair[0] in OF_ATTACKS])
def test_every_attack_loads_and_checks(group, choice):
    chosen = choice if group == "attack" else "closed_form"
    more = [] if group == "attack" else [f"{group}={choice}"]
    assert attack.parse([f"attack={chosen}", *more]).name == chosen


def test_mistakes_in_an_attack_are_named():
    with pytest.raises(Mistakes) as caught:
        attack.parse(
            ["attack=gi_dqa", "attack.method.lrr=1", "attack.targt=update", "seeds=1", "ocr=null"]
        )
    assert "attack.targt: fedpriv.attacks.inversion.attack.GradientInversion takes no" in str(
        caught.value
    )
    assert "did you mean 'target'?" in str(caught.value)
    assert "did you mean 'seed'?" in str(caught.value)
    with pytest.raises(Mistakes, match="attack=closed_from: expected one of april"):
        attack.parse(["attack=closed_from", "ocr=null"])
    with pytest.raises(Mistakes, match="attack= is missing: expected one of april, "):
        attack.parse(["ocr=null"])
    with pytest.raises(Mistakes, match="the run was started from Python"):
        experiment.model_of({"name": "mine"}, "runs/mine")
    with pytest.raises(Mistakes, match="nowhere"):
        attack.parse(["attack=nowhere.to.be.Found", "ocr=null"])


def test_no_yaml_is_left_unvisited():
    named = {f"{name}.yaml" for name in [*catalogue.experiments(), *catalogue.SHARED]}
    grouped = {f"{g}/{c}.yaml" for g, choices in catalogue.groups().items() for c in choices}
    swept = {f"{name}.yaml" for name in catalogue.sweeps()}
    papers = ("cdmi", "extraction", "gi_dqa", "pfl_docvqa", "pried_kie")
    shared = {f"papers/{paper}/_shared.yaml" for paper in papers}
    visited = named | grouped | swept | shared
    assert {str(path.relative_to(ROOT / "experiments")) for path in YAML} == visited


def test_the_settings_of_a_run_are_spelled_out_with_their_defaults():
    config = experiment.load("docvqa_vt5", ["federation.workers=0"])
    # A composed file has lists where Python has tuples.
    assert config["federation"] == {**dataclasses.asdict(Settings()), "trackers": ["tensorboard"]}
    assert config["ray"].keys() == dataclasses.asdict(RaySettings()).keys()
    assert config["privacy"].keys() == dataclasses.asdict(Privacy()).keys()
    assert config["training"].keys() == dataclasses.asdict(Training()).keys()


@dataclasses.dataclass(frozen=True)
class Patient(Settings):
    """Settings with one field more.

    Args:
        patience: rounds without progress
            that end the run.
    """

    patience: int = 3


@dataclasses.dataclass(kw_only=True, eq=False, repr=False)
class Wider(experiment.Experiment):
    federation: Patient = Patient()


def test_a_setting_is_one_field_of_one_dataclass(monkeypatch):
    monkeypatch.setattr(experiment, "Experiment", Wider)
    assert experiment.load("quickstart")["federation"]["patience"] == 3
    chosen = experiment.build(experiment.load("quickstart", ["federation.patience=5"]))
    assert chosen.federation.patience == 5
    assert mistakes("quickstart", "federation.patience=long") == [
        "federation.patience: got 'long'. Input should be a valid integer"
    ]
    assert mistakes("quickstart", "federation.patiance=5")[0].endswith("did you mean 'patience'?")
    (line,) = (x for x in reference(Wider).splitlines() if x.startswith("federation.patience "))
    assert line.split(maxsplit=2)[1:] == ["3", "rounds without progress that end the run."]


def test_a_part_is_declared_once():
    """What Federation and Experiment share comes from Parts, and so reaches the federation."""
    shared, run, file = (
        {field.name for field in dataclasses.fields(kind)}
        for kind in (Parts, Federation, Experiment)
    )
    assert run - shared == {"settings", "computing", "entropy", "config"}
    assert run & file == shared


def test_the_reference_describes_the_parts_that_were_chosen():
    chosen = experiment.load("quickstart", ["strategy=fl_provider_dp", "keep=[transcript]"])
    rows = {row.name: row for row in settings(Experiment, given=chosen)}
    assert rows["strategy"].default == "fedpriv.strategies.fl_provider_dp.FLProviderDP"
    assert rows["strategy.mechanism.providers"].default == "3"
    assert rows["strategy.mechanism.providers"].meaning.startswith("the public constant")
    assert rows["keep.transcript.rounds"].default == "null"
    assert rows["client.batch_size"].default == "8"
    assert rows["rounds"].default == "10"
    assert not [row for row in rows.values() if not row.default], "all of them are given"


def test_every_setting_has_a_meaning():
    of_keepers = (settings(k, "keep") for k in (KeepTranscript, KeepHeldOut, KeepScrubbed))
    every = [*settings(Experiment), *itertools.chain(*of_keepers)]
    assert len(every) > 50
    assert [setting.name for setting in every if not setting.meaning] == []
    defaults = {setting.name: setting.default for setting in every}
    assert defaults["data"] == defaults["rounds"] == ""
    assert defaults["seed"] == "0"
    assert defaults["masking"] == "null"
    assert defaults["federation.report"] == "true"
    assert defaults["ray.client_resources"] == "{}"
    assert defaults["privacy.view"] == "global"


def test_an_experiment_is_objects():
    built = experiment.build(experiment.load("quickstart", ["rounds=3", "strategy.weighted=false"]))
    assert built.rounds == 3
    assert isinstance(built.strategy, FedAvg)
    assert built.strategy.weighted is False
    assert isinstance(built.data, DocumentData)
    assert built.data.source.page_size == (400, 560)


def test_what_is_trained_and_on_what_before_are_sections():
    plain = experiment.build(experiment.load("quickstart"))
    assert plain.finetuning == Full()
    assert plain.pretraining is None
    swapped = ["finetuning=lora", "finetuning.rank=2", "pretraining=invoices", "seed=3"]
    built = experiment.build(experiment.load("quickstart", swapped))
    assert built.finetuning == LoRA(rank=2)
    assert isinstance(built.pretraining, Pretraining)
    # Public documents that were the private ones would void the guarantee.
    assert built.pretraining.data.seed != built.data.source.seed == 3
    for size, layers in (("tiny", 0), ("base", 4)):
        config = experiment.load("quickstart", ["finetuning=top4", f"model.size={size}"])
        assert experiment.build(config).finetuning == TopLayers(layers)


def test_a_part_of_a_model_that_cannot_be_is_named_with_its_place():
    assert mistakes("quickstart", "finetuning=lora", "finetuning.rank=0") == [
        "finetuning: rank=0: expected 1 or more"
    ]
    assert mistakes("quickstart", "pretraining=invoices", "pretraining.epochs=0") == [
        "pretraining: epochs=0: expected at least 1"
    ]
    assert mistakes("quickstart", "rounds=-1") == ["rounds=-1: expected 0 to 1000000"]
    assert experiment.build(experiment.load("quickstart", ["rounds=0"])).rounds == 0


def kept(name, *overrides):
    return experiment.build(experiment.load(name, overrides), name).keep


def test_what_a_run_keeps_is_a_list_and_settings():
    assert not kept("quickstart")
    assert not kept("pmia", "keep=[]")
    assert kept("quickstart", "keep=held_out") == {"held_out": KeepHeldOut()}
    both = kept("quickstart", "keep=[held_out,transcript]", "keep.transcript.rounds=[1]")
    assert both == {"held_out": KeepHeldOut(), "transcript": KeepTranscript(rounds=(1,))}
    assert kept("pmia")["transcript"] == KeepTranscript(batches=False)
    # The file's settings of what the command line leaves out go with it.
    assert kept("pmia", "keep=held_out") == {"held_out": KeepHeldOut()}


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (
            ["keep.transcript.rounds=[1]"],
            "keep.transcript: is set, but 'transcript' is not in keep: choose it with "
            "keep=[transcript]",
        ),
        (
            ["keep=held_out", "keep.transcript.rounds=[1]"],
            "keep.transcript: is set, but 'transcript' is not in keep: choose it with "
            "keep=[held_out,transcript]",
        ),
        (
            ["keep.transkript.rounds=[1]"],
            "keep.transkript: is set, but 'transkript' is not in keep: expected one of held_out, "
            "scrubbed, transcript; did you mean 'transcript'?",
        ),
        (
            ["keep=transcript", "keep.transcript.roundz=[1]"],
            "keep.transcript.roundz: fedpriv.threat.surfaces.server.KeepTranscript takes no "
            "'roundz'; did you mean 'rounds'?",
        ),
    ],
)
def test_settings_of_what_is_not_kept_are_mistakes(overrides, says):
    other = "roundz: there is no setting 'roundz'; did you mean 'rounds'?"
    assert sorted(mistakes("quickstart", *overrides, "roundz=5")) == [says, other]


def test_a_keeper_that_does_not_exist_is_named_with_those_that_do():
    for choice in ("keep=[transkript]", "keep=none", "keep=null"):
        with pytest.raises(Mistakes, match=r"expected one of held_out, scrubbed, transcript"):
            experiment.load("quickstart", [choice])


def test_a_keeper_of_ones_own_is_chosen_by_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "experiments/keep").mkdir(parents=True)
    (tmp_path / "experiments/keep/mine.yaml").write_text(
        "# @package keep.mine\n_target_: fedpriv.threat.surfaces.held_out.KeepHeldOut\n"
    )
    assert kept("quickstart", "keep=[mine,transcript]") == {
        "mine": KeepHeldOut(),
        "transcript": KeepTranscript(),
    }
    (tmp_path / "experiments/keep/mine.yaml").write_text(
        "# @package keep.mine\n_target_: fedpriv.data.partition.HoldOut\n"
    )
    assert mistakes("quickstart", "keep=mine") == [
        "keep.mine: HoldOut is no Keeper: it has no 'problems', 'before', 'after'"
    ]


def test_a_list_of_keepers_in_the_body_of_a_file_is_told_where_it_belongs(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("defaults: [quickstart, _self_]\nkeep: [transcript]\n")
    (problem,) = mistakes(str(file))
    assert "`- override keep: [transcript]`" in problem


def test_a_file_by_path_finds_the_groups_of_fedpriv(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(
        "defaults: [base, data: invoices, model: layoutlmv3, strategy: fedavg, _self_]\n"
        "name: mine\nrounds: 1\n"
    )
    assert experiment.build(experiment.load("mine.yaml", ["seed=7"])).seed == 7


def test_own_experiments_and_groups_are_found_by_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    own = tmp_path / "experiments"
    (own / "strategy").mkdir(parents=True)
    (own / "strategy" / "mine.yaml").write_text(
        "# @package _global_\n"
        "strategy: {_target_: fedpriv.strategies.fedavg.FedAvg, weighted: false}\n"
        "client: {_target_: fedpriv.clients.fedavg.LocalTraining}\n"
    )
    (own / "mine.yaml").write_text(
        "defaults: [base, data: invoices, model: layoutlmv3, strategy: mine, _self_]\n"
        "name: mine\nrounds: 1\n"
    )
    assert not experiment.build(experiment.load("mine")).strategy.weighted
    assert "quickstart" in catalogue.experiments()


def test_all_mistakes_are_reported_together_with_their_place_and_a_near_miss():
    found = mistakes(
        "quickstart",
        "strategy.weigted=true",
        "client.optimizer.lr=-1",
        "client.epochs=two",
        "federation.wrokers=2",
        "data.partition._target_=fedpriv.data.partition.ByProvidr",
        "roundz=5",
        "rounds=0.5",
    )
    assert sorted(found) == sorted(
        [
            "strategy.weigted: fedpriv.strategies.fedavg.FedAvg takes no 'weigted'; "
            "did you mean 'weighted'?",
            "client.optimizer: lr=-1.0: expected a number in (0, 10000]",
            "client.epochs: got 'two'. Input should be a valid integer",
            "federation.wrokers: fedpriv.federation.settings.Settings takes no 'wrokers'; "
            "did you mean 'workers'?",
            "data.partition._target_: fedpriv.data.partition has no callable 'ByProvidr'; "
            "did you mean 'ByProvider'?",
            "roundz: there is no setting 'roundz'; did you mean 'rounds'?",
            "rounds: got 0.5. Input should be a valid integer",
        ]
    )


def test_the_wrong_kind_of_object_is_named_with_what_it_lacks():
    found = mistakes(
        "quickstart",
        "data.partition._target_=fedpriv.data.partition.HoldOut",
        "~data.partition.clients",
    )
    assert found == ["data.partition: HoldOut is no Partition: it has no 'deal'"]


def test_a_value_where_an_object_belongs():
    assert mistakes("quickstart", "strategy.sampling=poisson") == [
        "strategy.sampling: got 'poisson', expected a section with a _target_ that gives "
        "a ClientSampling"
    ]


def test_an_environment_variable_that_is_not_set(monkeypatch):
    monkeypatch.delenv("FEDPRIV_DATA")
    with pytest.raises(Mistakes, match=r"data\.source\.root: .*FEDPRIV_DATA"):
        experiment.load("sroie_kie")


def test_an_unknown_choice_names_those_there_are():
    with pytest.raises(
        Mistakes, match=r"strategy=fedavgg: expected one of centralised, centralised_dp, "
    ):
        experiment.load("quickstart", ["strategy=fedavgg"])


def test_an_unknown_strategy_may_be_one_of_flowers():
    with pytest.raises(Mistakes, match=r"such as flwr\.serverapp\.strategy\.Krum$"):
        experiment.load("quickstart", ["strategy=Krum"])
    with pytest.raises(Mistakes) as of_a_model:
        experiment.load("quickstart", ["model=Krum"])
    assert "flwr" not in str(of_a_model.value)


def test_an_unknown_experiment_names_the_near_miss():
    with pytest.raises(Mistakes, match=r"did you mean 'quickstart'\?"):
        experiment.load("quikstart")


def test_a_module_that_does_not_exist():
    found = mistakes("quickstart", "strategy._target_=strategeis.fedavg.FedAvg")
    assert found == [
        "strategy._target_: no module 'strategeis' (in 'strategeis.fedavg.FedAvg'; "
        "looked for in the current folder and on PYTHONPATH)"
    ]


def test_a_missing_argument():
    assert mistakes("quickstart", "~data.partition.clients") == [
        "data.partition.clients: is missing; fedpriv.data.partition.ByProvider needs it"
    ]


OF_A_FOLDER = ("data=folder", "data.source.root=scans")
BY_CLIENT = "fedpriv.data.partition.ByClient"


@pytest.mark.parametrize(
    ("name", "overrides", "partition"),
    [
        ("quickstart", OF_A_FOLDER, ByProvider(4)),
        ("quickstart", (*OF_A_FOLDER, "data.source.client=folder"), ByClient()),
        ("quickstart", ("data.source.client=my branch", *OF_A_FOLDER), ByClient()),
        ("assessed_folder", (), ByProvider(6)),
        ("assessed_folder", ("data.source.client=folder",), ByClient()),
        ("assessed_folder", ("data.partition.clients=3", *OF_A_FOLDER), ByProvider(3)),
        # What is typed goes before what is implied; documents that name others then refuse it.
        (
            "quickstart",
            ("data.partition.clients=3", *OF_A_FOLDER, "data.source.client=folder"),
            ByClient(3),
        ),
        (
            "quickstart",
            (*OF_A_FOLDER, f"data.partition._target_={BY_CLIENT}", "data.source.client=folder"),
            ByClient(),
        ),
    ],
)
def test_naming_the_clients_implies_that_they_are_dealt_their_own(name, overrides, partition):
    assert experiment.build(experiment.load(name, overrides)).data.partition == partition


def test_another_partition_than_that_of_the_clients_named_is_refused(tmp_path):
    other = ("data.source.client=folder", "data.partition._target_=fedpriv.data.partition.Iid")
    before = mistakes("quickstart", *other, *OF_A_FOLDER)
    assert before == mistakes("quickstart", *OF_A_FOLDER, *other)
    (told,) = before
    assert told.startswith("data: source.client='folder' names the clients, and Iid(clients=4)")
    typed = (f"data.partition._target_={BY_CLIENT}", "data.partition.clients=null")
    assert f"set {' '.join(typed)}, or data.source.client=null" in told
    for way_on in (typed, ["data.source.client=null"]):
        experiment.build(experiment.load("quickstart", (*OF_A_FOLDER, *other, *way_on)))
    # The partition of a file, too; one client that holds everything needs none.
    own = tmp_path / "own.yaml"
    own.write_text(
        "defaults: [quickstart, {override data: folder}, _self_]\n"
        "data: {source: {root: scans, client: folder},\n"
        "       partition: {_target_: fedpriv.data.partition.ByProvider, clients: 2}}\n"
    )
    (told,) = mistakes(str(own))
    assert "ByProvider(clients=2) would not look at it" in told
    for way_on in (typed, ["strategy=centralised"]):
        experiment.build(experiment.load(str(own), way_on))


def test_several_values_without_m():
    with pytest.raises(Mistakes, match=r"'seed=0,1' names several values: sweeps need -m"):
        experiment.load("quickstart", ["seed=0,1"])


def test_an_override_that_is_none():
    with pytest.raises(Mistakes, match=re.escape("'rounds' is not of the form key=value")):
        experiment.load("quickstart", ["rounds"])


def test_a_timeout_without_workers_is_refused():
    found = mistakes("quickstart", "federation.workers=0", "federation.client_timeout=5")
    assert len(found) == 1
    assert found[0].startswith("federation: client_timeout=5.0 needs workers of their own")


@pytest.mark.parametrize(
    ("strategy", "setting", "says"),
    [
        ("fl_provider_dp", "privacy.providers=0", "privacy.providers=0"),
        ("feam_dp", "privacy.examples=-3", "privacy.examples=-3"),
        ("fl_provider_dp", "privacy.epsilon=-1", "privacy.epsilon=-1.0"),
        ("fl_provider_dp", "privacy.delta=2", "privacy.delta=2.0"),
        ("fl_provider_dp", "privacy.entropy=dice", "privacy.entropy: got 'dice'"),
        ("feam_dp", "privacy.record_rate=1.5", "privacy.record_rate"),
        ("fl_provider_dp", "privacy.accountant=guess", "privacy.accountant"),
        ("fl_provider_dp", "privacy.view=mine", "privacy.view"),
        ("fl_provider_dp", "privacy.colluders=-1", "privacy.colluders"),
        ("fl_provider_dp", "training.batch_size=0", "training.batch_size"),
        ("fl_provider_dp", "training.lr=-1", "training.lr"),
    ],
)
def test_a_mistake_is_named_where_the_user_sets_it(strategy, setting, says):
    overrides = [f"strategy={strategy}", setting]
    with pytest.raises(Mistakes) as caught:
        experiment.build(experiment.load("quickstart", overrides), "quickstart", overrides)
    [problem] = caught.value.problems
    assert problem.startswith(says)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (["data.partition.clients=40"], "data: clients=40, but the documents are of"),
        (["data.test.unseen=0.01"], "data: unseen=0.01 of"),
    ],
)
def test_too_few_generated_providers_are_told_before_anything_is_drawn(settings, says):
    with pytest.raises(Mistakes) as caught:
        experiment.build(experiment.load("quickstart", [*settings, "federation.wrkers=1"]))
    assert any(problem.startswith(says) for problem in caught.value.problems)
    assert any(problem.startswith("federation.wrkers") for problem in caught.value.problems)


@pytest.mark.parametrize(
    ("words", "weighted", "buffers", "bound"),
    [
        ((), True, True, None),
        (("masking=on",), False, False, 10.0),
        (("masking=on", "strategy=fedsgd"), None, None, 10.0),
        (("masking=on", "strategy=fl_provider_dp"), None, None, None),
        (("masking=on", "strategy.weighted=true", "masking.bound=3"), True, False, 3),
    ],
)
def test_masks_set_what_the_strategy_needs_behind_them(words, weighted, buffers, bound):
    found = experiment.load("kie_layoutlmv3", ["strategy=fedavg", *words])
    strategy, masking = found["strategy"], found["masking"] or {}
    assert (strategy.get("weighted"), strategy.get("buffers")) == (weighted, buffers)
    assert masking.get("bound") == bound
    if weighted and masking:
        with pytest.raises(Unworkable, match=r"set strategy\.weighted=false"):
            experiment.build(found).assemble(found)
    elif masking:
        experiment.build(found).assemble(found)
