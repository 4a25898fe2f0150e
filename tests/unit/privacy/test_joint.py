"""ε of several runs: what they have in common is composed, and never less than it was."""

import dataclasses
import json

import pytest

from fedpriv.cli.main import main
from fedpriv.privacy.accounting.accountants import epsilon
from fedpriv.privacy.accounting.event import ClientThenRecord
from fedpriv.privacy.joint import joint_budget
from fedpriv.privacy.ledger import Attempt, Group, Ledger, Release, shared_release
from fedpriv.privacy.mechanism import client_gaussian, example_gaussian, provider_gaussian

MECHANISM = provider_gaussian(clip_norm=1, providers=4, noise_multiplier=2.0, client_rate=0.5)
OF_EXAMPLES = example_gaussian(clip_norm=1, examples=10, noise_multiplier=3.0, record_rate=0.5)
EVENT = ClientThenRecord(0.5, 1.0, 2.0)


def run_folder(
    path, mechanism=MECHANISM, rounds=3, data="", whose="mine", survivors=(0,), sent="", **settings
):
    """A run as it is left when it was killed: without any view.

    Args:
        path: of the folder.
        mechanism: of the run.
        rounds: of it, each with a cohort of clients 0 and 1.
        data: its documents, by letters, each of the provider of that letter: "ab" has two.
        whose: secret, under which traces were made; None leaves them out.
        survivors: who has answered.
        sent: digest of what determines the messages.
        settings: of the ledger, and "clients", what each holds.
    """
    held = settings.pop("clients", [data])
    ledger = Ledger(mechanism, data=data, **settings)
    for number in range(1, rounds + 1):
        attempt = Attempt(number, 0, 4, (0, 1), survivors, released=True, sent=sent)
        plain = Release(attempt, 1.0, 1.0, 0.0, 0.0, 0.0)
        ledger.book(shared_release(mechanism, attempt, 0.5) if mechanism else plain)
    path.mkdir()
    (path / "ledger.json").write_text(json.dumps(ledger.to_json()))
    if whose:
        traces = {kind: [f"{whose} {kind} {one}" for one in data] for kind in ("documents",)}
        clients = [f"{whose} holds {own}" for own in held]
        traces |= {"data": [data], "secret": whose, "clients": clients}
        traces |= {"providers": [f"{whose} of {one}" for one in settings.get("of", data)]}
        (path / "units.json").write_text(json.dumps(traces))
    return path


def groups(*runs):
    return joint_budget(runs)["together"]


def test_runs_on_the_same_data_are_composed(tmp_path, capsys):
    louder = dataclasses.replace(MECHANISM, noise_multiplier=4.0)
    runs = [
        run_folder(tmp_path / "one", data="ab"),
        run_folder(tmp_path / "two", louder, rounds=5, data="ab"),
        run_folder(tmp_path / "other", data="c"),
        run_folder(tmp_path / "unknown", data="", whose=None),
    ]
    answer = joint_budget([*runs, runs[0]])
    first, second = answer["together"]
    assert first["runs"] == [str(run) for run in runs[:2]]
    assert (first["data"], first["unit"], first["delta"]) == ("ab", "provider", 1e-5)
    history = [(EVENT, 3), (ClientThenRecord(0.5, 1.0, 4.0), 5)]
    both = first["views"]["global"]
    assert both["pld"] == epsilon(history, 1e-5)
    assert both["alone"] == [epsilon([entry], 1e-5) for entry in history]
    assert both["guarantee"]
    drawn_together = "not a guarantee: the records of a client are drawn together"
    told = first["views"]["paper"]["doubts"]
    assert told == [f"one: {drawn_together}", f"two: {drawn_together}"]
    assert not first["views"]["paper"]["guarantee"]
    assert second["runs"] == [str(runs[2])]
    assert second["views"]["global"]["pld"] == both["alone"][0]
    (apart,) = answer["apart"]
    assert apart["run"] == str(runs[3])
    assert "does not say on which data" in apart["reason"]

    assert main(["budget", *map(str, runs)]) == 0
    out = capsys.readouterr().out
    assert "2 runs on the data ab, one supplier, delta 1e-05: joint epsilon" in out
    assert f"apart: {runs[3]}: its ledger does not say" in out


def test_runs_that_overlap_are_composed_and_those_that_do_not_are_apart(tmp_path):
    """ab and bc have b in common, bc and cd have c; nothing is in all three."""
    ab, bc, cd = (run_folder(tmp_path / data, data=data) for data in ("ab", "bc", "cd"))
    found = groups(ab, bc, cd)
    assert [group["runs"] for group in found] == [[str(ab), str(bc)], [str(bc), str(cd)]]
    for group in found:
        assert group["views"]["global"]["pld"] == epsilon([(EVENT, 6)], 1e-5)
        assert group["views"]["global"]["guarantee"]


def test_a_superset_another_delta_and_another_seed_are_composed(tmp_path):
    smaller = dataclasses.replace(MECHANISM, delta=1e-6)
    runs = [
        run_folder(tmp_path / "a", data="ab"),
        run_folder(tmp_path / "b", data="abcd"),
        run_folder(tmp_path / "c", smaller, data="ad"),
    ]
    (found,) = groups(*runs)
    assert found["delta"] == 1e-6
    assert found["views"]["global"]["pld"] == epsilon([(EVENT, 9)], 1e-6)


def test_smaller_units_count_with_all_that_the_largest_has_of_them(tmp_path):
    examples = {"groups": {"provider": Group(3, 1)}}
    runs = [
        run_folder(tmp_path / "providers", data="ab"),
        run_folder(tmp_path / "examples", OF_EXAMPLES, data="bc", **examples),
    ]
    (found,) = groups(*runs)
    grouped = ClientThenRecord(1.0, 0.5, 3.0, group_size=3)
    assert found["unit"] == "provider"
    assert found["views"]["global"]["pld"] == epsilon([(EVENT, 3), (grouped, 3)], 1e-5)
    unknown = run_folder(tmp_path / "unknown", OF_EXAMPLES, data="bc")
    (found,) = groups(runs[0], unknown)
    assert not found["views"]["global"]["guarantee"]
    assert "how much of it is of one supplier is not known" in found["views"]["global"]["doubts"][0]


def test_examples_of_two_documents_of_a_provider_have_nothing_in_common(tmp_path):
    runs = []
    for data in ("a", "b"):
        runs.append(run_folder(tmp_path / data, OF_EXAMPLES, data=data))
        units = json.loads((runs[-1] / "units.json").read_text())
        (runs[-1] / "units.json").write_text(json.dumps(units | {"providers": ["the same"]}))
    assert [group["runs"] for group in groups(*runs)] == [[str(run)] for run in runs]


def test_examples_that_are_other_things_count_as_documents(tmp_path):
    """A question of one run and a window of the other are parts of one page."""
    runs = [
        run_folder(tmp_path / what, OF_EXAMPLES, data="a", example=what, groups=larger)
        for what, larger in {
            "a question": {"document": Group(2, 1)},
            "a window": {"document": Group(3, 1)},
        }.items()
    ]
    (found,) = groups(*runs)
    history = [(ClientThenRecord(1.0, 0.5, 3.0, group_size=size), 3) for size in (2, 3)]
    assert found["unit"] == "document"
    assert found["views"]["global"]["pld"] == epsilon(history, 1e-5)


@pytest.mark.parametrize("whose", ["another", None], ids=["of somebody else", "published"])
def test_where_nobody_knows_runs_may_overlap(whose, tmp_path):
    runs = [
        run_folder(tmp_path / "mine", data="ab"),
        run_folder(tmp_path / "theirs", data="cd", whose=whose),
    ]
    found = groups(*runs)
    assert len(found) == 2
    for group, other in zip(found, ("theirs", "mine"), strict=True):
        told = group["views"]["global"]["doubts"]
        (doubt,) = told
        assert doubt.startswith(f"{other} may be on the same data: ")
        assert ("theirs has no traces" in doubt) is (whose is None)
        assert not group["views"]["global"]["guarantee"]


def test_published_runs_on_the_same_data_are_known_by_its_digest(tmp_path):
    runs = [run_folder(tmp_path / name, data="ab", whose=None) for name in "ab"]
    (found,) = groups(*runs)
    assert found["views"]["global"]["pld"] == epsilon([(EVENT, 6)], 1e-5)
    assert found["views"]["global"]["guarantee"]


def test_a_run_on_two_data_sets_joins_those_on_either(tmp_path):
    both = run_folder(tmp_path / "both", data="d1 and d3", whose=None)
    one, other = (run_folder(tmp_path / d, data=d, whose=None) for d in ("d1", "d3"))
    found = groups(both, one, other)
    assert [group["runs"] for group in found] == [[str(both), str(one)], [str(both), str(other)]]


def test_two_sums_of_other_clients_under_one_noise_count_as_single_messages(tmp_path):
    """Their difference is what the clients sent that are in one of them, under their own shares."""
    same = [run_folder(tmp_path / f"a{i}", data="a", sent="x") for i in (1, 2)]
    other = run_folder(tmp_path / "b", data="a", sent="x", survivors=(0, 1))
    (found,) = groups(*same)
    assert found["views"]["global"]["pld"] == epsilon([(EVENT, 6)], 1e-5)
    (found,) = groups(same[0], other)
    plain = found["views"]["server_plain"]["pld"]
    assert found["views"]["global"]["pld"] == found["views"]["server_masked"]["pld"] == plain
    assert plain > epsilon([(EVENT, 6)], 1e-5)
    assert len(found["notes"]) == 6
    assert "a1: another run has the same noise in round 1" in found["notes"][0]


@pytest.mark.parametrize("same", [True, False])
def test_clients_are_units_of_several_runs_only_if_they_hold_the_same(same, tmp_path):
    of_clients = client_gaussian(clip_norm=1, noise_multiplier=2.0, client_rate=0.5)
    runs = [
        run_folder(tmp_path / "one", of_clients, data="abcd", clients=["ab", "cd"]),
        run_folder(
            tmp_path / "two",
            of_clients,
            data="abcd",
            clients=["ab", "cd"] if same else ["ac", "bd"],
        ),
    ]
    (found,) = groups(*runs)
    assert found["unit"] == "client"
    assert found["views"]["global"]["guarantee"] is same
    assert any("clients hold other" in d for d in found["views"]["global"]["doubts"]) is not same


def test_a_file_is_less_than_a_provider(tmp_path):
    """A run on files that nobody names, beside one that protects companies."""
    named = run_folder(tmp_path / "named", data="ab")
    flat = run_folder(tmp_path / "flat", data="a", providers="none")
    (found,) = groups(named, flat)
    assert found["unit"] == "provider"
    told = "flat: how much of it is of one supplier is not known"
    assert told in found["views"]["global"]["doubts"]
    others = run_folder(tmp_path / "others", data="xy", providers="none")
    for group in groups(named, others):
        assert any(
            "may be on the same data" in doubt for doubt in group["views"]["global"]["doubts"]
        )
    files = groups(flat, others)
    assert [group["unit"] for group in files] == ["file", "file"]
    assert all(group["views"]["global"]["guarantee"] for group in files)


def test_examples_of_another_encoding_count_as_documents(tmp_path):
    runs = []
    for name, size in (("short", 8), ("long", 2)):
        groups_of = {"document": Group(size, 1)}
        runs.append(run_folder(tmp_path / name, OF_EXAMPLES, data="a", groups=groups_of))
        units = json.loads((runs[-1] / "units.json").read_text())
        (runs[-1] / "units.json").write_text(json.dumps(units | {"encoding": [name]}))
    (found,) = groups(*runs)
    assert found["unit"] == "document"


def test_masks_of_two_runs_that_give_updates_away_are_told(tmp_path):
    runs = [
        run_folder(tmp_path / name, None, masked=True, data="a", survivors=who, sent="x")
        for name, who in {"one": (0, 1), "two": (0,)}.items()
    ]
    apart = joint_budget(runs)["apart"]
    assert all("the two together give single updates away" in one["reason"] for one in apart)


def test_runs_without_privacy_are_apart(tmp_path):
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "ledger.json").write_text(json.dumps({**Ledger().to_json(), "data": "d1"}))
    answer = joint_budget([run_folder(tmp_path / "one", data="d1"), bare])
    assert len(answer["together"]) == 1
    assert "no mechanism" in answer["apart"][0]["reason"]
