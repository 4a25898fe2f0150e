"""A redesign changes no word or number: what attacks find, studies print, and their pages say.

On the machine and versions that made them, the numbers of what was trained are the same but for
rounding, which two processors of one kind do differently. Elsewhere they are not compared, as noise
and the draws of clients and documents depend on the bits of what is trained on, and where these
decide about words, the words are not compared either.
"""

import difflib
import json
import math
import re

import frozen
import frozen_texts
import pytest

from fedpriv.threat import runner
from fedpriv.threat.results import CANNOT_TELL, REFUSED, write_result

MOST_LINES = 80
"""Of the differences that a failure shows."""


NUMBER = re.compile(r"-?\d[\d,]*(?:\.(\d+))?(?:e[+-]?\d+)?|∞")


def words(text):
    return NUMBER.sub("#", text.replace("−", "-"))


def rounds_to(before, now):
    """Says whether two texts differ by a thousandth, or by one in the last digit, of numbers."""

    def numbers(text):
        for found in NUMBER.finditer(text.replace("−", "-")):
            number = float(found[0].replace(",", "").replace("∞", "inf"))
            whole = found[1] is None  # a count
            digits = len(found[1] or "") - int(found[0].partition("e")[2] or 0)
            yield number, 0.0 if whole else max(abs(number) / 1000, 1.01 * 10.0**-digits)

    return words(before) == words(now) and all(
        a == b or abs(a - b) <= error
        for (a, error), (b, _) in zip(numbers(before), numbers(now), strict=True)
    )


def differences(before, now):
    """Yields what is to be read of two folders of texts that differ."""
    for file in sorted({*before, *now}):
        old, new = (texts.get(file, "").splitlines() for texts in (before, now))
        yield from difflib.unified_diff(old, new, f"frozen {file}", f"{file} now", "", "", 1, "")


def says_its_number(result):
    """Whether the headline states the number that the verdict rests on, in one of its ways."""
    if result.primary not in result.numbers:
        return result.verdict in (CANNOT_TELL, REFUSED)
    value = result.numbers[result.primary].value
    down = math.floor(value * 100) / 100  # a lower bound
    ways = {f"{value:.0%}", f"{value:.1%}", f"{value:.2f}", f"{value:z.3f}", f"{down:.2f}"}
    return any(way in result.headline for way in ways)


@pytest.mark.parametrize(
    "name",
    [
        name if name in frozen_texts.FAST else pytest.param(name, marks=pytest.mark.slow)
        for name in frozen_texts.STUDIES
    ],
)
def test_the_texts_of_a_study_are_what_they_were(name, monkeypatch):
    results, numbers = [], {}

    def kept(folder, attack, result, files=None):
        results.append(result)
        write_result(folder, attack, result, files)
        numbers[attack] = frozen.findings(folder.path, attack)

    monkeypatch.setattr(runner, "write_result", kept)
    place = frozen_texts.place_of(name)
    before = {path.name: path.read_text("utf-8") for path in place.iterdir()}
    machine = json.loads(before.pop(frozen_texts.MACHINE))
    now = frozen_texts.made(name)
    run = "pages of layoutlmv3" if name == "stolen" else name.removeprefix("attacked ")
    for attack, expected in frozen.FROZEN["attacks"].items():
        if attack.partition(":")[0] == run and (name != "stolen" or "closed_form" in attack):
            found = numbers[attack.partition(": ")[2] or attack]
            assert found.keys() == expected.keys()
            frozen.compare(found, expected)
    for result in results:
        assert says_its_number(result), result.headline
    if name in frozen_texts.DRAWN and machine != frozen.machine():
        pytest.skip("another processor draws other clients and noise: frozen on " + str(machine))
    if name not in frozen_texts.EXACT:
        same = rounds_to if machine == frozen.machine() else lambda a, b: words(a) == words(b)
        now |= {file: t for file, t in before.items() if same(t, now.get(file, ""))}
    told = list(differences(before, now))
    more = [f"… and {len(told) - MOST_LINES} more lines"] * (len(told) > MOST_LINES)
    if told:
        pytest.fail("\n".join([f"{name}:", *told[:MOST_LINES], *more]), pytrace=False)


def test_the_numbers_of_every_attack_are_compared_by_a_study():
    runs = {attack.partition(":")[0] for attack in frozen.FROZEN["attacks"]}
    assert {f"attacked {run}" for run in runs} <= set(frozen_texts.STUDIES)


def test_no_study_is_frozen_that_is_not_made():
    assert {path.name for path in frozen_texts.TEXTS.iterdir()} == {
        frozen_texts.place_of(name).name for name in frozen_texts.STUDIES
    }
