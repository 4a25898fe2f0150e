"""Assessments: effects over seeds, verdicts, and the page, from folders written by hand."""

import dataclasses
import json
import math
import re
from html import unescape
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from private_places import places_that_show
from scipy import stats

from fedpriv.cli.main import main
from fedpriv.runtime.run_folder import RunFolder
from fedpriv.studies.assessing import assessed, assessment
from fedpriv.studies.assessing.advice import RULES, advice
from fedpriv.studies.assessing.assessed import Assessed, Cell, DefenceRow, Made
from fedpriv.studies.assessing.assessment import _redact, judged
from fedpriv.studies.assessing.brief import write_brief
from fedpriv.studies.assessing.effects import (
    CANNOT_TELL,
    LEAKS,
    LEAKS_LESS,
    STOPS,
    verdict_of,
)
from fedpriv.studies.assessing.page import html
from fedpriv.studies.estimate import Over
from fedpriv.threat.results import LEAK, NONE_SHOWN, Number, Result, write_result

HALF = 1.959963984540054


def number(value, half=0.1, n=100, control=0.5):
    return Number(value, (value - half, value + half), n, "provider", control)


def effect(gain, error=0.02, n=100):
    reach = HALF * error
    value = 0.5 + gain
    return Over(value, value - reach, value + reach, 0.5, error, error, n=n, unit="provider")


def p_of(one):
    return float(2 * stats.norm.sf(abs(one.gain) / one.below))


def told(under, without=None):
    held = None
    if without is not None:
        held = without, p_of(without), p_of(without.minus(under))
    return verdict_of(under, p_of(under), held, looks=1)


@pytest.mark.parametrize(
    ("under", "without", "verdict"),
    [
        (effect(0.2), None, LEAKS),
        (effect(0.01), None, CANNOT_TELL),
        (effect(0.0), effect(0.2), STOPS),
        (effect(0.1), effect(0.2), LEAKS_LESS),
        (effect(0.19), effect(0.2), LEAKS),
        (effect(0.2), effect(0.0), LEAKS),  # worse than without
        (effect(0.0), effect(0.01), CANNOT_TELL),  # nothing to stop
        (effect(0.05, 0.1), effect(0.2), CANNOT_TELL),  # too few units
        (effect(0.0, 0.06), effect(0.21), LEAKS_LESS),  # too few to say that it is stopped
        (effect(-0.3), effect(0.2), CANNOT_TELL),  # worse than its control
    ],
)
def test_verdicts(under, without, verdict):
    assert told(under, without)[0] == verdict


def test_what_cannot_tell_says_how_many_units_would():
    _, _, needed = told(effect(0.05, 0.1, n=40), effect(0.2, 0.02))
    assert needed > 40
    # As many shrink the error of the difference so far that the gap of .15 is shown.
    shrunk = math.hypot(0.1, 0.02) * math.sqrt(40 / needed)
    assert 0.15 / shrunk == pytest.approx(1.959964 + 0.841621, rel=0.02)


def cell(gain, half=0.04, seeds=1, **others):
    found = {seed: number(0.5 + gain, half) for seed in range(seeds)}
    return Cell("a", "server", numbers=found, seeds=tuple(found), asked=seeds, **others)


def under(defended, bare, **row):
    rows = judged(
        [DefenceRow("none", "", cells=(bare,)), DefenceRow("d", "", cells=(defended,), **row)]
    )
    return rows[1].cells[0]


@given(st.floats(-0.4, 0.4), st.floats(0.01, 0.4), st.floats(-0.4, 0.4), st.floats(0.01, 0.4))
def test_a_dead_model_never_speaks_for_the_defence(gain, half, bare, bare_half):
    for life in ({"dead": True, "alive": False}, {"alive": False}):  # dead, or not known
        found = under(cell(gain, half), cell(bare, bare_half), **life)
        assert found.verdict in (LEAKS, CANNOT_TELL)


def test_without_a_seed_of_none_nothing_speaks_for_a_defence():
    """The defence's seed 1 has nothing to be held against: .58 of .7 is no less than .12."""
    bare = dataclasses.replace(cell(0.2), asked=2, failed=1)
    other = Cell("a", "server", numbers={0: number(0.58, 0.04), 1: number(0.42, 0.04)},
                 seeds=(0, 1), asked=2)  # fmt: skip
    found = under(other, bare)
    assert found.verdict == CANNOT_TELL
    assert found.why == "only 1 of 2 seeds gave a number without a defence"
    # The p-value is that of seed 0 alone: .12 apart with an error of .04 · √2 / 1.96.
    alone = float(2 * stats.norm.sf(0.12 / (0.04 * math.sqrt(2) / HALF)))
    assert found.p_less == pytest.approx(alone * 2, rel=0.01)  # the second of three, by Holm


def test_what_takes_a_good_word_for_a_defence_back():
    bare = cell(0.2, seeds=2)
    assert under(cell(0.0, seeds=2), bare).verdict == STOPS
    leak = under(cell(0.0, seeds=2, own_leaks=1), bare)
    assert (leak.verdict, "by itself is a leak" in leak.why) == (LEAKS_LESS, True)
    lost = under(dataclasses.replace(cell(0.0), asked=2, failed=1), bare)
    assert (lost.verdict, lost.why) == (CANNOT_TELL, "only 1 of 2 seeds gave a number")


def test_a_defence_is_held_against_none_on_the_seeds_that_it_has():
    """Without a defence, seed 0 leaks and seed 1 does not; the defence has seed 1 alone."""
    bare = Cell("a", "server", numbers={0: number(0.9, 0.04), 1: number(0.5, 0.04)},
                seeds=(0, 1), asked=2)  # fmt: skip
    late = Cell("a", "server", numbers={1: number(0.5, 0.04)}, seeds=(1,), asked=2, failed=1)
    assert under(late, bare).p_less == pytest.approx(1)


def test_the_p_values_of_a_page_are_corrected_together():
    """.02 alone is shown; beside four other looks it is not."""
    weak = cell(0.0233, 0.01 * HALF)
    assert weak.effect.p_value == pytest.approx(0.02, abs=1e-3)
    alone = judged([DefenceRow("none", "", cells=(weak,))])
    assert alone[0].cells[0].verdict == LEAKS
    five = tuple(dataclasses.replace(weak, attack=name) for name in "abcde")
    assert {c.verdict for c in judged([DefenceRow("none", "", cells=five)])[0].cells} == {
        CANNOT_TELL
    }


# --- From folders ---------------------------------------------------------------------------------


def trained(folder, run, *, f1, results=(), audit=None, masking=None, rounds=2, ledger=None,
            data=None, answered=2):  # fmt: skip
    """Writes a run folder as a training leaves it."""
    place = RunFolder.made(folder / "runs" / run)
    place.write_config({"rounds": rounds, "masking": masking, "data": data or run})
    place.append(
        "metrics.jsonl",
        [
            {"round": at, "f1": f1, "clients": {"answered": answered},
             "seconds": {"train": 2.0, "evaluate": 1.0}, "bytes_up": 10, "bytes_down": 5}
            for at in range(rounds + 1)
        ],
    )  # fmt: skip
    if ledger:
        place.write_json("ledger.json", ledger)
    for name, result in results:
        write_result(place, name, result)
    if audit:
        write_result(place, "mechanism_audit", audit)


def success(value, n=400, half=0.03, **others):
    found = Number(value, (value - half, value + half), n, "provider", 0.5)
    return Result("membership", "found", primary="auc", numbers={"auc": found}, **others)


LEDGER = {
    "unit": "provider",
    "mechanism": {"unit": "provider"},
    "views": {
        "global": {"pld": 7.99, "applies": True, "guarantee": True, "ceiling": {"auc": 0.9123}},
        "server_masked": {"pld": 7.99, "applies": True, "guarantee": True},
        "server_plain": {"pld": 23.0, "applies": False, "guarantee": True},
    },
    "colluders": [{"colluders": 0, "epsilon": 7.99}, {"colluders": 1, "epsilon": 8.7}],
}


def audited(bound, verdict):
    told = f"ledger 7.99; measured at least {bound}"
    lower = Number(bound, (bound, math.inf), 1000, "canary", 7.99)
    return Result("audit", told, verdict=verdict, primary="epsilon_lower_global",
                  numbers={"epsilon_lower_global": lower})  # fmt: skip


FEW = {"question": "Who?", "units": "suppliers", "inside": 6, "outside": 5, "needed": 37,
       "least": None, "enough": False}  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    """Two seeds; a defence that stops the attack, a dead one, one refused, one that failed."""
    values = {"none": (0.7, 0.95), "good": (0.5, 0.9), "dead": (0.5, 0.1), "failed": (0.5, 0.9)}
    trainings = []
    for seed in (0, 1):
        for name, (auc, f1) in values.items():
            run = f"{name}{seed}"
            private = name == "good"
            if name != "failed" or seed == 0:
                trained(
                    tmp_path, run, f1=f1, results=[("sm", success(auc))],
                    audit=audited(7.9, NONE_SHOWN) if private else None,
                    ledger=LEDGER if private else None, masking={} if private else None,
                )  # fmt: skip
            orders = {"membership": ["attack=server_membership", f"seed={seed}"]}
            trainings.append({"defence": name, "seed": seed, "run": run, "overrides": [],
                              "start": f"start{seed}", "orders": orders,
                              "findings": {"membership": "sm"}})  # fmt: skip
        trained(tmp_path, f"start{seed}", f1=0.2, rounds=0)
        trainings.append({"defence": "start", "seed": seed, "run": f"start{seed}",
                          "overrides": [], "orders": {}, "findings": {}})  # fmt: skip
    views = {"model": "global", "server": "server_plain", "server_masked": "server_masked",
             "colluding": "colluders"}  # fmt: skip
    plan = {
        "experiment": "<b>x</b>", "command": "fedpriv assess x", "seeds": [0, 1], "overrides": [],
        "adversaries": {name: {"who": f"the {name}", "view": at} for name, at in views.items()},
        "defences": [{"name": name, "told": "as it is", "run": []} for name in values]
        + [{"name": "refused", "told": "", "run": [], "refused": "there are <no> buffers"}],
        "attacks": [{"name": "membership", "adversary": "server", "overrides": []},
                    {"name": "pmia", "adversary": "model", "overrides": [],
                     "withheld": "it answers no questions", "outlook": FEW}],
        "trainings": trainings,
        "made": {"commit": "c", "date": "today", "machine": "two cores"},
    }  # fmt: skip
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    (tmp_path / "errors.json").write_text(json.dumps({"failed1": {"": "MemoryError: too little"}}))
    return tmp_path


def row(found, name):
    return next(one for one in found.rows if one.defence == name)


def test_an_assessment_is_read_from_its_folders(folder):
    found = assessment.read(folder)
    verdicts = {one.defence: [cell.verdict for cell in one.cells] for one in found.rows}
    assert verdicts == {
        "none": [LEAKS], "good": [STOPS], "dead": [CANNOT_TELL], "failed": [CANNOT_TELL],
        "refused": [],
    }  # fmt: skip
    good = row(found, "good")
    assert good.epsilon == {"model": 7.99, "server_masked": 7.99, "colluding": 8.7}
    assert good.measured == {"global": (7.9, 7.99)}
    assert good.ceiling == {"model": 0.9123, "server_masked": None, "colluding": None}
    assert "7.990, AUC at most 0.913" in html(found)
    assert good.cells[0].adversary == "server_masked"
    assert (good.seconds, good.traffic, good.start.mean) == (6.0, 30.0, 0.2)
    assert row(found, "none").epsilon == {"model": None, "server": None}
    assert row(found, "dead").dead
    assert not good.dead
    failed = row(found, "failed")
    assert failed.failed == {1: "MemoryError: too little"}
    assert (failed.seeds, failed.cells[0].failed) == ((0,), 1)
    assert found.withheld == {"pmia": "it answers no questions"}


def test_the_sentences_come_from_cells_that_can_tell(folder):
    assert assessment.read(folder).answer() == [
        "Undefended, membership succeeds (0.7, 0.5 without a leak), which good (f1 0.900) "
        "stops, where the undefended model has 0.950.",
        "Not made, since so few documents could not show a leak beside all else that is looked at: "
        "pmia (6 suppliers and 5 others, where it takes "
        "37 of each).",
        "dead leaves a dead model, which says nothing for the defence.",
        "2 of 4 cells cannot tell.",
    ]


def test_the_first_sentence_is_the_worst_leak_in_the_words_of_its_scorer():
    """Of what could leak, three quarters of the text do, and a third of an AUC."""
    names = {"asked": 1, "seeds": (0,)}
    text = Cell("text", "server", said="read half of the words", numbers={0: Number(
        0.8, (0.7, 0.9), 50, "client", 0.2, p_value=1e-6, most=1.0)}, **names)  # fmt: skip
    auc = Cell("membership", "server", numbers={0: Number(
        0.68, (0.6, 0.75), 200, "provider", 0.5, p_value=1e-6, most=1.0)}, **names)  # fmt: skip
    same = (dataclasses.replace(auc), dataclasses.replace(text))
    rows = judged([DefenceRow("none", "", cells=(auc, text)), DefenceRow("masks", "", cells=same)])
    found = Assessed("x", "", Made("", "", ""), (0,), {"server": "the server, which looks"},
                     {}, {}, rows)  # fmt: skip
    first, second = found.answer()
    can = "Undefended, the server can read half of the words (text)"
    assert first == f"{can}, which masks does not stop."
    assert second.startswith("Undefended, membership succeeds (0.68, 0.5 without a leak)")
    one_sum = Number(0.1, (0.0, 0.97), 1, "client", 0.2, most=1.0)
    none = dataclasses.replace(text, numbers={0: one_sum})
    rows = judged([DefenceRow("none", "", cells=(text,)), DefenceRow("noise", "", cells=(none,))])
    found = dataclasses.replace(found, rows=rows)
    assert found.answer()[0] == f"{can}. Under noise it finds nothing, in too few units to be sure."


def test_what_is_recovered_exactly_leaks_however_few_units_there_are():
    one = Number(1.0, (0.1, 1.0), 1, "client", 0.5, p_value=0.5)
    few = Cell("text", "server", numbers={0: one}, seeds=(0,), asked=1)
    for certain, verdict in ((0, CANNOT_TELL), (1, LEAKS)):
        one = dataclasses.replace(few, certain=certain)
        (row,) = judged([DefenceRow("none", "", cells=(one,))])
        assert row.cells[0].verdict == verdict


def test_an_exact_test_of_few_units_counts_as_it_does_in_a_single_attack():
    """Six clients, with an interval from .54 on and a control of .82, but p = .002."""
    one = Number(1.0, (0.54, 1.0), 6, "client", 0.82, p_value=0.002, most=1.0)
    cell = Cell("text", "server", numbers={0: one}, seeds=(0,), asked=1)
    (row,) = judged([DefenceRow("none", "", cells=(cell,))])
    assert (row.cells[0].verdict, row.cells[0].p_value) == (LEAKS, pytest.approx(0.002))


def test_each_rule_of_advice_is_about_the_table(folder):
    said = [one.say for one in advice(assessment.read(folder))]
    assert [one.partition(":")[0].partition(",")[0] for one in said] == [
        "Train with good",
        "To measure pmia",
    ]
    for page in (page for _, page in RULES):
        assert (DOCS.parent / f"{page}.md").is_file()
    plan = json.loads((folder / "plan.json").read_text())
    plan["defences"] = [one for one in plan["defences"] if one["name"] in ("none", "dead")]
    (folder / "plan.json").write_text(json.dumps(plan))
    said = [one.say for one in advice(assessment.read(folder))]
    assert said[0].startswith("Do not send updates in clear: no defence that was tried")
    for seed in (0, 1):
        trained(folder, f"none{seed}", f1=0.2, results=[("sm", success(0.5))])
    said = [one.say for one in advice(assessment.read(folder))]
    assert said[0].startswith("Train for longer")
    assert said[-1].startswith("Do not take this for safety")


def test_where_nothing_was_learnt_a_sentence_says_so(folder):
    for seed in (0, 1):
        trained(folder, f"none{seed}", f1=0.2, results=[("sm", success(0.5))])
    found = assessment.read(folder)
    assert found.answer()[0].startswith("No attack is shown to succeed undefended")
    assert found.answer()[2] == (
        "The model has learnt nothing: undefended it ends with f1 0.200, and began with 0.200. "
        "Attacks on it cannot be judged, nor defences by them: train for longer."
    )
    # What came further than it might be alive, and nobody knows how far it should have come.
    assert row(found, "good").cells[0].verdict == CANNOT_TELL
    assert row(found, "good").state == row(found, "dead").state == "cannot be judged"
    assert not any("dead model" in said for said in found.answer())
    assert "has learnt nothing" in html(found)


def test_what_an_attack_does_under_a_defence_alone_is_told_too(folder):
    """Without a defence nothing is shown, and under the one called good the attack succeeds."""
    for seed in (0, 1):
        trained(folder, f"none{seed}", f1=0.95, results=[("sm", success(0.5))])
        trained(folder, f"good{seed}", f1=0.9, results=[("sm", success(0.7))])
    assert "membership succeeds under good." in assessment.read(folder).answer()


def test_the_success_is_the_number_that_the_plan_names(folder):
    plan = json.loads((folder / "plan.json").read_text())
    plan["attacks"][0]["measure"] = "exposure"
    (folder / "plan.json").write_text(json.dumps(plan))
    bits = Number(3.0, (2.0, 4.0), 30, "secret", 1.0)
    both = dataclasses.replace(success(0.5), verdict=LEAK)
    both = dataclasses.replace(both, numbers={**both.numbers, "exposure": bits})
    for seed in (0, 1):
        write_result(RunFolder(folder / "runs" / f"none{seed}"), "sm", both)
    cell = row(assessment.read(folder), "none").cells[0]
    assert (cell.measure, cell.value, cell.own_leaks) == ("exposure", 3.0, 0)


def test_who_colludes_is_the_server_where_nothing_is_masked(folder):
    plan = json.loads((folder / "plan.json").read_text())
    plan["attacks"][0]["adversary"] = "colluding"
    (folder / "plan.json").write_text(json.dumps(plan))
    found = assessment.read(folder)
    who = {name: row(found, name).cells[0].adversary for name in ("none", "good")}
    assert who == {"none": "server", "good": "colluding"}


def test_page_json_and_csv_are_written_from_the_folder_alone(folder):
    found = assessment.write(folder)
    page = (folder / "assessment.html").read_text()
    assert "<b>x</b>" not in page
    assert "&lt;b&gt;x" in page
    assert "there are &lt;no&gt; buffers" in page
    assert 'href="runs/good0/report.html"' in page
    assert "dead model" in page
    content = json.loads((folder / "assessment.json").read_text())
    cell = content["rows"][1]["cells"][0]
    assert cell["verdict"] == "stops_it"
    assert cell["runs"] == ["runs/good0", "runs/good1"]
    assert {"value", "interval", "detectable"} <= cell.keys()
    assert len((folder / "assessment.csv").read_text().splitlines()) == 1 + len(found.cells)
    assert not [line for line in assessed.lines(found) if line.startswith("ALARM")]


SECRETS = (
    *("Adlerhorst", "/home/you/plans", "Vega Builders", "Oslo branch", "hush", "invoice 4711"),
    *("GeheimMaschine", "runs/none0", "data.source.root", "--secret"),
)


def test_a_redacted_page_keeps_numbers_and_verdicts_and_no_word_of_others(folder, capsys):
    """Every text that somebody could have written holds a secret."""
    plan = json.loads((folder / "plan.json").read_text())
    plan["experiment"] = "/home/you/plans/Adlerhorst.yaml"
    plan["command"] = "fedpriv assess x data.source.root=/home/you/plans --secret"
    plan["made"]["machine"] = "GeheimMaschine"
    for number, one in enumerate(plan["defences"]):
        one["told"] = "hush Vega Builders"
        if "refused" in one:
            one["refused"] = "hush /home/you/plans"
        if number == 1:
            one["name"] = "Adlerhorst"
    plan["attacks"][0] |= {"name": "hush", "told": "of Vega Builders"}
    plan["attacks"][1] |= {"withheld": "invoice 4711 has no answer"}
    for one in plan["trainings"]:
        one["overrides"] = ["data.source.root=/home/you/plans"]
        one["defence"] = {"good": "Adlerhorst"}.get(one["defence"], one["defence"])
        if one["orders"]:
            one["orders"], one["findings"] = {"hush": ["attack=mine.Hush"]}, {"hush": "sm"}
    plan["adversaries"]["Oslo branch"] = {"who": "the Oslo branch", "view": "global"}
    (folder / "plan.json").write_text(json.dumps(plan))
    told = {"failed1": {"": "MemoryError: invoice 4711 of /home/you/plans"}}
    (folder / "errors.json").write_text(json.dumps(told))
    run = RunFolder(folder / "runs" / "none0")
    run.write_json("partition.json", {"clients": {"0": {"Vega Builders": ["invoice 4711"]}}})
    found = dataclasses.replace(success(0.7), headline="hush: invoice 4711", notes=("hush",))
    write_result(run, "sm", found)
    whole = assessment.write(folder)
    assert all(word in (folder / "assessment.html").read_text() for word in SECRETS[:6])
    assert main(["report", str(folder), "--redacted"]) == 0
    page = folder / "assessment-redacted.html"
    assert capsys.readouterr().out.splitlines()[-1] == str(page)
    text = unescape(page.read_text())
    assert [word for word in SECRETS if word.lower() in text.lower()] == []
    assert "This is a redacted page" in text
    assert "stops" in text
    assert "defence 1" in text
    assert "attack 1" in text
    shown = assessment.read(folder, redacted=True)
    assert [[c.verdict for c in one.cells] for one in shown.rows] == [
        [c.verdict for c in one.cells] for one in whole.rows
    ]
    assert [one.utility for one in shown.rows] == [one.utility for one in whole.rows]


def test_no_place_of_an_assessment_shows_what_somebody_wrote(folder):
    told = {"failed1": {"": "MemoryError"}}
    (folder / "errors.json").write_text(json.dumps(told))
    shown = places_that_show(assessment.read(folder), lambda one: repr(_redact(one, folder)))
    # The views of a ledger, and the unit of utility, which is none.
    ours = re.compile(r"rows \d (measured \.|(utility|start) unit)")
    assert [place for place in shown if not ours.match(place)] == []


@pytest.mark.parametrize("verdict", [LEAK, "cannot_tell"])
def test_a_measurement_that_contradicts_the_ledger_stops_the_page(folder, verdict):
    write_result(RunFolder(folder / "runs" / "good1"), "mechanism_audit", audited(9.5, verdict))
    found = assessment.read(folder)
    assert next(iter(assessed.lines(found))).startswith("ALARM: good: ledger 7.99; measured")
    head = html(found).split("</h1>")[0]
    assert "ALARM: good" in head


def test_an_alarm_is_the_first_line_and_the_exit_status(folder, capsys):
    assert main(["assess", str(folder)]) == 0
    assert "ALARM" not in capsys.readouterr().out
    write_result(RunFolder(folder / "runs" / "good1"), "mechanism_audit", audited(9.5, LEAK))
    assert main(["assess", str(folder)]) == 1
    first, *_, last = capsys.readouterr().out.splitlines()
    assert first.startswith("ALARM: good: ledger 7.99; measured")
    assert last == str(folder)


def test_a_measurement_that_failed_is_an_alarm_too(folder):
    (folder / "runs" / "good0" / "findings" / "mechanism_audit" / "result.json").unlink()
    (folder / "errors.json").write_text(json.dumps({"good0": {"mechanism_audit": "OSError: x"}}))
    alarm = "good: seed 0: the mechanism could not be measured: OSError: x"
    assert assessment.read(folder).alarms == [alarm]


def test_a_promise_that_was_not_measured_is_an_alarm(folder):
    write_result(RunFolder(folder / "runs" / "good1"), "mechanism_audit", audited(7.9, NONE_SHOWN))
    (folder / "runs" / "good1" / "findings" / "mechanism_audit" / "result.json").unlink()
    alarm = "good: seed 1: the mechanism could not be measured: that has not been done"
    assert assessment.read(folder).alarms == [alarm]


def test_a_bound_where_nothing_is_promised_is_no_alarm(folder):
    known = Result("audit", "ε ≥ 2", primary="epsilon_lower", verdict=LEAK,
                   numbers={"epsilon_lower": Number(2.0, None, 100, "canary", 0.0)})  # fmt: skip
    write_result(RunFolder(folder / "runs" / "none1"), "sm", known)
    assert not assessment.read(folder).alarms


def test_a_training_without_a_client_is_none(folder):
    (folder / "runs" / "good1" / "metrics.jsonl").unlink()
    trained(folder, "good1", f1=0.9, results=[("sm", success(0.5))], answered=0)
    good = row(assessment.read(folder), "good")
    assert (good.seeds, good.cells[0].verdict) == ((0,), CANNOT_TELL)
    assert good.failed[1].startswith("no client took part in any round")


def test_different_numbers_have_no_mean(folder):
    other = Number(0.5, (0.4, 0.6), 400, "provider", 0.5)
    second = Result("membership", "found", primary="azk", numbers={"azk": other})
    write_result(RunFolder(folder / "runs" / "none1"), "sm", second)
    cell = row(assessment.read(folder), "none").cells[0]
    assert (cell.verdict, cell.value) == (CANNOT_TELL, None)
    assert cell.why == "its seeds gave different numbers, auc, azk"


def test_seeds_of_one_folder_of_documents_are_told_apart_from_generated_ones(folder):
    for seed in (0, 1):
        trained(folder, f"none{seed}", f1=0.95, results=[("sm", success(0.7))], data="one folder")
    shared = row(assessment.read(folder), "none").cells[0]
    assert (shared.shared, shared.n) == (True, 400)
    assert not row(assessment.read(folder), "good").cells[0].shared


def test_an_alarm_is_heard_of_a_training_that_failed_later(folder):
    write_result(RunFolder(folder / "runs" / "good1"), "mechanism_audit", audited(50.0, LEAK))
    (folder / "errors.json").write_text(json.dumps({"good1": {"": "OSError: disk full"}}))
    found = assessment.read(folder)
    assert len(found.alarms) == 1
    assert row(found, "good").cells[0].verdict == CANNOT_TELL


def test_an_attack_that_measures_more_than_the_ledger_is_an_alarm(folder):
    broken = Result("audit", "the claim is broken", primary="epsilon_lower", verdict=LEAK,
                    numbers={"epsilon_lower": Number(9.0, None, 100, "canary", 8.0)})  # fmt: skip
    write_result(RunFolder(folder / "runs" / "good1"), "sm", broken)
    assert assessment.read(folder).alarms == ["good: membership: the claim is broken"]


def test_no_epsilon_is_told_against_colluders_where_none_holds_against_the_server(folder):
    for seed in (0, 1):
        views = {name: {**view, "guarantee": False} for name, view in LEDGER["views"].items()}
        place = RunFolder(folder / "runs" / f"good{seed}")
        place.write_json("ledger.json", {**LEDGER, "views": views})
    assert set(row(assessment.read(folder), "good").epsilon.values()) == {None}


def test_an_infinite_epsilon_is_drawn(folder):
    for seed in (0, 1):
        colluders = [{"colluders": 1, "epsilon": math.inf}]
        place = RunFolder(folder / "runs" / f"good{seed}")
        place.write_json("ledger.json", {**LEDGER, "colluders": colluders})
    assert "∞" in html(assessment.read(folder))


def test_without_the_start_it_is_not_known_whether_a_model_is_dead(folder):
    (folder / "errors.json").write_text(json.dumps({"start1": {"": "OSError: x"}}))
    good = row(assessment.read(folder), "good")
    assert (good.dead, good.alive) == (False, False)
    assert good.cells[0].why.startswith("it is not known whether the model is dead")


# The start has .2 and `none` .95, so that a model is dead up to .275.
@pytest.mark.parametrize(("f1", "dead"), [(0.2, True), (0.27, True), (0.28, False)])
def test_a_seed_with_a_model_hardly_better_than_the_start_makes_the_row_dead(folder, f1, dead):
    trained(folder, "good1x", f1=f1)
    plan = json.loads((folder / "plan.json").read_text())
    for one in plan["trainings"]:
        if one["run"] == "good1":
            one["run"] = "good1x"
    (folder / "plan.json").write_text(json.dumps(plan))
    assert row(assessment.read(folder), "good").dead == dead


def test_a_refused_attack_tells_nothing_and_why(folder):
    why = Result(
        "pages", "not granted, because sums", status="not granted", verdict="not_applicable"
    )
    for seed in (0, 1):
        write_result(RunFolder(folder / "runs" / f"good{seed}"), "sm", why)
    cell = row(assessment.read(folder), "good").cells[0]
    assert (cell.verdict, cell.value) == (CANNOT_TELL, None)
    assert "not made: not granted, because sums" in cell.why


@pytest.mark.parametrize("content", ["{}", "[]", '{"experiment": 3}'])
def test_another_folder_is_refused(tmp_path, content):
    (tmp_path / "plan.json").write_text(content)
    with pytest.raises(ValueError, match=r"plan\.json|not the folder of an assessment"):
        assessment.read(tmp_path)
    with pytest.raises(ValueError, match="not the folder of an assessment"):
        assessment.read(tmp_path / "nowhere")


def test_json_is_read_back_for_the_docs(folder):
    found = assessment.write(folder)
    content = json.loads((folder / "assessment.json").read_text())
    again = assessed.from_json(content)
    assert again.answer() == found.answer()
    assert assessed.as_json(again) == content
    text = assessed.markdown(again)
    assert (
        "| `good` | 0.900 | model 7.99; server masked 7.99; colluding 8.70 for one supplier, "
        "any attack's AUC at most 0.913 |" in text
    )
    assert "| stops it<br>0.5 [0.479, 0.521] against 0.5 |" in text
    assert (
        "| `dead` | 0.100, dead model | ∞ | cannot tell<br>0.5 [0.479, 0.521] against 0.5 |" in text
    )


def test_the_table_has_a_row_for_each_cell(folder):
    table = assessment.read(folder).table
    assert list(table.verdict) == ["leaks", "stops_it", "cannot_tell", "cannot_tell"]
    assert table.epsilon.isna().sum() == 3
    assert dataclasses.is_dataclass(DefenceRow)


DOCS = Path(__file__).parents[3] / "docs" / "explanations"


@pytest.mark.parametrize("name", ["quick", "kie", "docvqa", "receipts"])
def test_the_docs_show_what_the_ready_assessments_found(name):
    content = json.loads((DOCS / "assessments" / f"{name}.json").read_text("utf-8"))
    told = assessed.markdown(assessed.from_json(content))
    assert told in (DOCS / "assessed.md").read_text("utf-8")


def test_the_brief_is_one_page_of_counts_without_a_name(folder):
    """What a data-protection officer gets: no document, supplier, path or word of the user's."""
    hands = {"clients": {"0": {"Vega Builders": ["invoice 4711", "b"]}, "1": {"Adler": ["c"]}},
             "test": {"Vega Builders": ["d"]}, "method": "ByProvider(clients=2)"}  # fmt: skip
    run = RunFolder(folder / "runs" / "none0")
    run.write_json("partition.json", hands)
    run.write_config({**run.config(), "model": {"_target_": "fedpriv.models.vt5.vt5"}})
    page = write_brief(folder)
    bare = re.sub(r"<style.*?</style>|<[^>]*>", " ", page.read_text(), flags=re.S)
    text = " ".join(unescape(bare).split())
    assert "2 organisations train one model (vt5)" in text
    assert "3 documents of 2 suppliers are trained on, and 1 are held out" in text
    assert "which good (f1 0.900) stops" in text
    assert "8.70 for one supplier 0.913" in text
    assert "Train with good" in text
    assert not [word for word in ("Vega", "4711", "Adler", str(folder)) if word in text]


@pytest.mark.parametrize("ours", [True, False])
def test_a_brief_says_what_leaks_in_the_plain_words_of_our_own_scorers(ours, folder):
    found = dataclasses.replace(success(0.7), clause="tell who was there", public=ours)
    for seed in (0, 1):
        write_result(RunFolder(folder / "runs" / f"none{seed}"), "sm", found)
    assert ("can tell who was there" in assessment.read(folder).answer()[0]) is True
    shown = assessment.read(folder, redacted=True).answer()[0]
    assert ("can tell who was there" in shown) is ours


def test_a_brief_needs_a_training_without_a_defence(folder):
    with pytest.raises(ValueError, match="nothing was trained without a defence"):
        write_brief(folder)
