"""`fedpriv attack RUN_DIR`: which attacks are possible on a run, without making any."""

import itertools
import shutil

import pytest

import fedpriv
from fedpriv.cli.attackable import attackable
from fedpriv.cli.main import main
from fedpriv.config import catalogue
from fedpriv.runtime.run_folder import RunFolder

SMALL = (
    "rounds=1",
    "federation.workers=0",
    "federation.report=false",
    "data.source.providers=8",
    "data.source.documents_per_provider=4",
    "data.partition.clients=3",
)
TAGS = ("kie_layoutlmv3", *SMALL)
ANSWERS = ("docvqa_vt5", *SMALL, "model.pretrained=null")
MASKED = ("masking=on", "strategy.weighted=false", "strategy.buffers=false", "masking.bound=1")
QUICK = {"memorisation": ["attack.pictures=0"]}

OWN = """# Guesses a number
_target_: toy_attacks.Guess
"""


def ran(name, *words):
    return fedpriv.run(name, *words, progress=False).path.absolute()


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Runs by what they are."""
    made = {
        "bare": ANSWERS,
        "tagger": (*TAGS, "keep=[transcript,held_out]"),
        "masked": (*ANSWERS, *MASKED, "keep=[transcript,held_out]"),
        "unread": (*TAGS, "keep=transcript", "keep.transcript.batches=false"),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("attackable"))
        return {name: ran(*words) for name, words in made.items()}


def listed(run_dir):
    return attackable(RunFolder.existing(run_dir), trust=False)


@pytest.mark.parametrize("name", ["bare", "tagger", "masked", "unread"])
def test_each_attack_is_in_one_group(runs, name, tmp_path, monkeypatch):
    (tmp_path / "experiments" / "attack").mkdir(parents=True)
    (tmp_path / "experiments" / "attack" / "mine.yaml").write_text(OWN)
    (tmp_path / "experiments" / "attack" / "broken.yaml").write_text("_target_: nowhere.Attack\n")
    monkeypatch.chdir(tmp_path)
    found = listed(runs[name])
    groups = [*found.now.values(), *found.again.values(), *found.never.values()]
    names = [one.partition(" ")[0] for one in itertools.chain.from_iterable(groups)]
    assert sorted(names) == sorted(catalogue.groups()["attack"])
    assert "mine" in found.now[""]
    assert "  mine                 Guesses a number" in [*found.lines()]
    (why,) = (why for why, names in found.never.items() if "broken" in names)
    assert "nowhere" in why


@pytest.mark.parametrize("name", ["bare", "tagger", "masked", "unread"])
def test_the_truth_is_not_read(runs, name, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(runs[name], copy)
    shutil.rmtree(copy / "truth", ignore_errors=True)
    assert [*listed(copy).lines()] == [*listed(runs[name]).lines()]


def test_what_is_possible_is_granted_and_what_is_not_is_refused(runs):
    for run, some in {
        "tagger": ["text", "template_only", "pmia", "closed_form", "cdmi", "gi_dqa"],
        "masked": ["text", "random", "memorisation", "server_membership", "audit", "exposure"],
        "unread": ["text", "gi_dqa", "server_membership"],
    }.items():
        now = {one: words for words, names in listed(runs[run]).now.items() for one in names}
        for name in some:
            words = [*now.get(name, "").split(), *QUICK.get(name, [])]
            if name == "gi_dqa":
                words += ["attack.method.evaluations=1"]
            result = fedpriv.run_attack(runs[run], name, words)
            assert result.refused is (name not in now), (run, name, result.headline)


def test_settings_of_the_attack_that_grant_it_are_named(runs):
    found = listed(runs["masked"])
    assert "template_only" in found.now["attack.target=aggregate"]
    assert found.now["attack.target=sum"] == ["server_membership"]
    assert "gi_dqa" in found.now["attack.target=aggregate assume.text=given"]
    assert "audit attack.scores.target=sum" in found.again["data.canaries=…"]


@pytest.mark.usefixtures("in_own_folder")
def test_a_run_that_is_made_again_with_what_is_named_grants_it(runs):
    found = listed(runs["bare"])
    assert "text" in found.again["keep=transcript"]
    assert {"memorisation", "pmia"} < {*found.again["keep=held_out"]}
    assert "extraction" in found.now[""]
    assert "keep.transcript.batches=true" in listed(runs["unread"]).again
    again = ran(*ANSWERS, "keep=held_out")
    assert not fedpriv.run_attack(again, "memorisation", QUICK["memorisation"]).refused


@pytest.mark.usefixtures("in_own_folder")
def test_what_else_is_lacking_is_named_with_the_keeper(runs):
    assert "keep=[transcript,held_out]" in listed(runs["unread"]).again
    bare = ran(*TAGS, "model=layoutlm", "data.test.unseen=0")
    found = listed(bare)
    assert "cdmi" in found.again["keep=scrubbed data.public=0.5"]
    needed = "keep=[transcript,held_out] data.test.unseen=0.25"
    assert found.again[needed] == ["server_membership"]
    again = ran(*TAGS, "model=layoutlm", "keep=scrubbed", "data.public=0.5")
    now = {one: words for words, names in listed(again).now.items() for one in names}
    assert now["field_search"] == "candidates.game=open"
    assert now["field_candidates"] == ""
    few = ["candidates.least=1", "most_fields=2"]  # so few pages have few other values
    assert not fedpriv.run_attack(again, "field_candidates", few).refused


def test_the_command_lists_them(runs, capsys):
    assert main(["attack", str(runs["tagger"])]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "Possible now:"
    assert "Never on this run, whatever it keeps:" in out
    assert "    exposure, extraction, memorisation, pmia, provider_lira, provider_rmia" in out


def test_settings_without_an_attack_are_refused(runs, capsys):
    assert main(["attack", str(runs["bare"]), "rounds=[1]"]) == 2
    assert "attack= is missing" in capsys.readouterr().err
    assert main(["attack", str(runs["bare"]), "attack=closed_from"]) == 2
    assert "did you mean 'closed_form'?" in capsys.readouterr().err
