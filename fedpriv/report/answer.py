"""The sentences that a report opens with: what the attacks showed, and which ε is promised."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from fedpriv.privacy.views import face
from fedpriv.report.folder import UNREADABLE, Finding
from fedpriv.report.wording import counted, plain
from fedpriv.threat import access
from fedpriv.threat.results import CANNOT_TELL, LEAK, NONE_SHOWN, Result
from fedpriv.threat.statistics import LEVEL, corrected
from fedpriv.threat.surfaces import base

MOST_LEAKS = 2
"""Leaks that the headline tells; it counts the others."""

LONGEST = 160
"""Characters of the headline of an attack whose scorer has no clause."""

LONGEST_CLAUSE = 240


def observer(result: Result) -> str:
    """Returns who is looking, by what the attack was granted."""
    granted = [name for name, given in result.threat_model.items() if given]
    found = base.observer(access.SURFACES[name] for name in granted if name in access.SURFACES)
    return found.who if found else "an adversary"


def among_all(findings: Sequence[Finding]) -> list[Finding]:
    """Returns findings with p-values as of all attacks of one observer, strongest first.

    Who makes several attacks of a kind finds something by luck: what is no leak among all of them
    (Holm 1979) is none here.
    """
    groups: dict[tuple[str, str], list[Finding]] = {}
    for one in findings:
        groups.setdefault((observer(one.result), one.result.kind), []).append(one)
    found: list[Finding] = []
    for group in groups.values():
        tested = [one for one in group if _p_value(one.result) is not None]
        p_values = corrected([_p_value(one.result) or 0.0 for one in tested])
        if len(tested) < 2:
            found += group
            continue
        found += [one for one in group if _p_value(one.result) is None]
        for p, one in sorted(zip(p_values, tested, strict=True), key=lambda pair: pair[0]):
            found.append(dataclasses.replace(one, result=_among(one.result, p)))
    return found


def _p_value(result: Result) -> float | None:
    primary = result.numbers.get(result.primary)
    return None if primary is None else primary.p_value


def _among(result: Result, p: float) -> Result:
    """Returns a result with the p-value that it has among others."""
    alone = result.numbers[result.primary]
    lucky = result.verdict == LEAK and not result.certain and (alone.p_value or 0.0) <= LEVEL < p
    primary = dataclasses.replace(alone, p_value=p)
    told = CANNOT_TELL if lucky else result.verdict
    return dataclasses.replace(
        result, verdict=told, numbers={**result.numbers, result.primary: primary}
    )


def answer(findings: Sequence[Finding]) -> str:
    """Returns what the attacks showed, in one or two sentences."""
    ran = among_all(
        [one for one in findings if not one.result.refused and one.result.status != UNREADABLE]
    )
    leaks = [one for one in ran if one.result.verdict == LEAK]
    if not findings:
        return "Nothing was attacked, so nothing is known about what this run leaks."
    if not ran:
        return "No attack could be made on this run, so nothing is known about what it leaks."
    if leaks:
        return f"{_leaks(leaks)}{_others(ran)}"
    blind = [one.result for one in ran if one.result.verdict == CANNOT_TELL]
    if not blind:
        return (
            "No attack found a leak, although a large one would have shown."
            if len(ran) > 1
            else f"The attack {plain(ran[0].name)} found no leak, although a large one would have "
            "shown."
        )
    quiet = any(one.result.verdict == NONE_SHOWN for one in ran)
    start = "No attack found a leak, but some cannot" if quiet else "The attacks cannot"
    if len(ran) == 1:
        start = f"The attack {plain(ran[0].name)} cannot"
    of = [one.numbers[one.primary] for one in blind if one.primary in one.numbers]
    few = min(of, key=lambda one: one.n, default=None)
    judged = (
        f": judged on {counted(few.n, face(few.unit))}, it shows nothing either way" if few else ""
    )
    return f"{start} tell whether this run leaks{judged if len(blind) == 1 else ''}."


def _leaks(leaks: Sequence[Finding]) -> str:
    """Returns a clause for each of the first leaks of different kinds, pages before all others."""
    by_kind: dict[str, Finding] = {}
    for one in sorted(leaks, key=lambda one: one.result.kind != "pages"):
        by_kind.setdefault(one.result.kind, one)
    told: dict[str, list[str]] = {}
    sentences = []
    for one in list(by_kind.values())[:MOST_LEAKS]:
        who = observer(one.result)
        others = [o for o in leaks if (observer(o.result), o.result.kind) == (who, one.result.kind)]
        if clause := plain(one.result.clause, LONGEST_CLAUSE):
            p = _p_value(one.result)
            if one.result.kind == "membership" and len(others) > 1 and p is not None:
                clause += f", by {plain(one.name)}, p {p:.2g} over all attacks"
            told.setdefault(who, []).append(clause)
        else:
            said = plain(one.result.headline.partition(";")[0], LONGEST).strip(". ")
            sentences.append(f"The attack {plain(one.name)} found a leak: {said}.")
    sentences = [
        f"{who[0].upper()}{who[1:]} can {', and can '.join(clauses)}."
        for who, clauses in told.items()
    ] + sentences
    if more := len(leaks) - min(len(by_kind), MOST_LEAKS):
        verb = "attack finds a leak" if more == 1 else "attacks find a leak"
        sentences.append(f"{more} more {verb}.")
    return " ".join(sentences)


def _others(ran: Sequence[Finding]) -> str:
    """Returns what the attacks say that found no leak; "" without such attacks."""
    told = []
    for verdict, words in ((NONE_SHOWN, "found no leak"), (CANNOT_TELL, "cannot tell")):
        names = [plain(one.name) for one in ran if one.result.verdict == verdict]
        if names:
            who = names[0] if len(names) == 1 else f"{len(names)} other attacks"
            told.append(f"{who} {words}" if len(names) > 1 else f"the attack {who} {words}")
    said = ", and ".join(told)
    return f" {said[0].upper()}{said[1:]}." if told else ""


def promise(privacy: Mapping[str, Any] | None, plan: Mapping[str, Any] | None = None) -> str:
    """Returns what the ledger promises, or else a plan beside the run, in one or two sentences.

    Args:
        privacy: of `fedpriv.report.privacy.promised`; None where the run has no ε.
        plan: of `fedpriv.report.privacy.planned`.
    """
    if privacy is None:
        none = (
            "There is no ε: the run has no privacy mechanism, so nothing bounds what can be learnt."
        )
        if plan is None or not plan["rows"]:
            return none
        who, epsilon = plan["rows"][0]
        of = (
            f"With {plain(plan['strategy'])}"
            if plan["strategy"]
            else "With the plan beside this run"
        )
        return f"{none} {of}, ε would be {epsilon} for one {plain(plan['unit'])}, against {who}."
    rows = privacy["rows"]
    sure = [row for row in rows if row.guaranteed and row.view != "paper"]
    unit = f"one {privacy['unit']}"
    if not sure:
        return (
            f"No ε of this run is a guarantee for {unit}; the table says why."
            if rows
            else f"No ε is recorded for {unit}."
        )
    worst = max(sure, key=lambda row: row.size)
    if len(sure) == len([row for row in rows if row.view != "paper"]):
        who = "whoever is looking" if len(sure) > 1 else worst.name
        return f"ε is at most {worst.epsilon} for {unit}, against {who}."
    others = [row.name for row in rows if row not in sure and row.view != "paper"]
    return f"ε is {worst.epsilon} for {unit} against {worst.name}; nothing holds against " + (
        f"{' or '.join(others)}."
    )
