"""A redesign moves no bit: weights of every strategy as they were, and attacks on a device.

On the machine and versions of `frozen.json`, weights are equal to the bit; elsewhere, they are
close. An entry that was added on another machine names that. `test_frozen_texts.py` compares the
numbers of every attack, where their texts are compared.
"""

import frozen
import pytest
from fake_device import DEVICE, FakeDevice

from fedpriv.runtime.run_folder import LEDGER, RunFolder

# Of each kind one; the others take a minute more.
FAST = ("fedavg", "fl_provider_dp, masked", "pages of layoutlmv3: closed_form")


def marked(names):
    slow = pytest.mark.slow
    return [n if n in FAST else pytest.param(n, marks=slow) for n in names]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Returns the folder of a run, made when it is asked for first."""
    made = {}

    def folder(name):
        if name not in made:
            made[name] = frozen.run(name, tmp_path_factory.mktemp("frozen"))
        return made[name]

    return folder


def test_everything_is_frozen():
    assert set(frozen.FROZEN["weights"]) == set(frozen.RUNS) - {"extraction"}
    assert set(frozen.FROZEN["attacks"]) == {*frozen.ATTACKS, "extraction"}
    attacked = {overrides[0].partition("=")[2] for overrides in frozen.ATTACKS.values()}
    assert {*attacked, "extraction"} == {p.stem for p in frozen.EXPERIMENTS.glob("attack/*.yaml")}
    assert set(frozen.ALONE + frozen.TOGETHER) == {
        p.stem for p in frozen.EXPERIMENTS.glob("strategy/*.yaml")
    }


@pytest.mark.parametrize("name", marked(frozen.FROZEN["weights"]))
def test_the_weights_are_what_they_were(name, run):
    found, expected = frozen.weights(run(name)), dict(frozen.FROZEN["weights"][name])
    private = (RunFolder(run(name)).read_json(LEDGER) or {}).get("mechanism")
    if expected.pop("machine", frozen.FROZEN["machine"]) == frozen.machine():
        assert found == expected
    elif private:
        # Which records are drawn, and their noise, depend on the bits of what is trained on: see
        # fedpriv.privacy.message_key.
        assert expected["norm"] / 4 < found["norm"] < expected["norm"] * 4
    else:
        assert found["norm"] == pytest.approx(expected["norm"], rel=1e-3)


ON_A_DEVICE = {
    name: ()
    for name in frozen.ATTACKS
    if name
    not in (
        *frozen.LIKE_GI_DQA,
        "owners: pmia",  # asks the model as memorisation does
        "owners: provider_lira",  # has the reference models of provider_rmia
        "canaries: audit",  # takes the scores of server_membership
        "fields: field_candidates",  # has the losses of field_search
    )
} | {
    "fields: cdmi": (
        "attack.attempts=1",
        "attack.generator.epochs=1",
        "attack.candidates=4",
        "most_fields=8",
    ),
    "tagged fields: field_search": ("attack.reference={epochs: 1}", "most_fields=4"),
}
"""Settings of the attacks that compute differently from one another, which make some shorter."""


@pytest.mark.parametrize("name", marked(ON_A_DEVICE))
def test_an_attack_finds_the_same_on_a_device(name, run):
    folder, shorter = run(name.partition(":")[0]), ON_A_DEVICE[name]
    expected = frozen.attack(name, folder, *shorter) if shorter else frozen.FROZEN["attacks"][name]
    with FakeDevice() as gpu:
        found = frozen.attack(name, folder, f"device={DEVICE}", *shorter)
    assert gpu.from_host > 0
    frozen.compare(found, expected, digits=1e-3)
