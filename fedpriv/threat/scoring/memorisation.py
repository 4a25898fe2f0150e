"""What the answers to memorisation tests show (Tito et al. 2023, Tables 2, 7, 8 and D.1.4).

`probes.json` holds the questions that the pages do not answer, and what the model said.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from fedpriv.federation.membership_table import TrainingMembership
from fedpriv.metrics.answers import anls, is_exact
from fedpriv.threat.claims import MemorisationProbe
from fedpriv.threat.results import CANNOT_TELL, Figure, Number, Result, Table
from fedpriv.threat.scoring.power import Power
from fedpriv.threat.scoring.providers import PROVIDER, asked_about
from fedpriv.threat.scoring.registry import Scoring, scorer
from fedpriv.threat.scoring.summaries import NOTHING, digits, mean_interval, mean_of, percent
from fedpriv.threat.scoring.verdicts import exploratory, in_words, number, verdict
from fedpriv.threat.statistics import exchanged, share

CONFIDENT = 0.9
"""From which an answer is highly confident (Table 2)."""

SHOWN = 15
"""Most frequent answers that are listed (Appendix D.1.4)."""

LEAST_PAGES = 2
"""Of a provider that the model is said to know on all its pages."""

MARKS = ("accuracy", "anls")
TITLE = "What the model remembers"

ALL = "all keys"

WORTH = 0.03
"""Share of exact answers above the control whose absence is worth telling.

PFL-DocVQA's Table 2 has 3.55 % of members against 0.17 % of others.
"""

Scores = Mapping[str, Mapping[str, Mapping[str, Mapping[str, Any]]]]
"""Test → model → key → name → value."""


@scorer(
    MemorisationProbe,
    power=Power("Which answers are given after their removal from the page?", "suppliers", WORTH),
)
def score_memorisation(claims: Sequence[MemorisationProbe], scoring: Scoring) -> Result:
    """Returns the scores of both tests, and the pages that tell most."""
    parts = scoring.truth.parts()
    found = memorisation_metrics(claims, parts)
    scoring.files["probes.json"] = [
        asdict(probe)
        | {"member": parts[probe.provider].member}
        | ({"confidence": None} if math.isnan(probe.confidence) else {})
        for probe in claims
    ]
    pages: dict[str, list[list[str]]] = defaultdict(list)
    for name in scoring.remarks.pictures:  # PAGE-PANEL
        page, _, panel = name.rpartition("-")
        pages[page].append([panel, f"{name}.png"])
    final = [probe for probe in claims if (probe.test, probe.model) == ("removed", "final")]
    numbers = answered(final, parts)
    return Result(
        "memorisation",
        headline(numbers),
        {"memorisation": found, **asked_about(scoring)},
        tables(found),
        tuple(Figure("pictures", page, {"panels": own}, TITLE) for page, own in pages.items()),
        verdict=verdict(numbers[ALL], (numbers[ALL].control or 0.0) + WORTH)
        if ALL in numbers
        else CANNOT_TELL,
        primary=ALL,
        numbers=numbers,
        clause=clause(numbers[ALL]) if ALL in numbers else "",
    )


def clause(right: Number) -> str:
    """Returns what somebody can do who gets that share of the answers that were removed."""
    if right.control is None:  # without its control it proves nothing
        return ""
    return (
        f"get answers that were removed from the page: {percent(right.value)} of those that were "
        f"trained on, against {percent(right.control)} of the others"
    )


def answered(
    removed: Sequence[MemorisationProbe], parts: Mapping[str, TrainingMembership]
) -> dict[str, Number]:
    """Returns the share of exact answers taken off members' pages, beside that of others.

    Of one model, by key and of all keys, whose p-value is the one to quote: those of the keys are
    corrected for their number. Pages of one provider hang together. Keys that were asked about on
    one side only are not among them, and neither are pages with a clue left: members' pages are
    read better than others, and what is read is no memory (PFL-DocVQA, D.1.2).
    """
    clean = [probe for probe in removed if not probe.residual]
    groups = {ALL: clean, **_grouped(clean, "key")}
    found: dict[str, Number] = {}
    for key, own in groups.items():
        sides = [[p for p in own if parts[p.provider].member is m] for m in (True, False)]
        if all(sides):
            right = [[is_exact(p.answer, p.accepted) for p in side] for side in sides]
            providers = [[p.provider for p in side] for side in sides]
            members, others = map(share, right, providers)
            inside = np.repeat([True, False], [len(side) for side in sides])
            p_value = exchanged(np.concatenate(right), inside, np.concatenate(providers))
            found[key] = number(members, PROVIDER, others, p_value)
    return exploratory(found, ALL)


def headline(numbers: Mapping[str, Number]) -> str:
    """Returns how much of what was taken off members' pages is answered all the same."""
    if ALL not in numbers:
        return (
            "whether members are remembered cannot be tested: members and others each need a page "
            "on which nothing gives the answer away"
        )
    whole = numbers[ALL]
    low, high = whole.interval or (0.0, 1.0)
    said = f"{whole.value:.1%} [{low:.1%}, {high:.1%}]"
    return in_words(whole, f"answers taken off members' pages are given exactly in {said}")


def tables(found: Scores) -> tuple[Table, Table]:
    """Returns a row for each model and key of the removed and of the absent test.

    The first is as PFL-DocVQA's Tables 2 and 7, the second as its App. D.1.4 tells it.
    """
    removed = tuple(
        (
            f"{key}, {model} model",
            *(
                cell
                for group in (numbers["members"], numbers["non_members"])
                for cell in (str(group["n"]), *(_shown(group["intervals"][n]) for n in MARKS))
            ),
            digits(numbers["p_value"], ".2g"),
        )
        for model, keys in found["removed"].items()
        for key, numbers in keys.items()
    )
    absent = tuple(
        (
            f"{key}, {model} model",
            str(numbers["n"]),
            str(numbers["unique"]),
            digits(numbers["top_share"], ".0%"),
            digits(numbers["entropy"], ".2f"),
            *(str(numbers["from_training"][name]) for name in ("same_key", "other_key")),
        )
        for model, keys in found["absent"].items()
        for key, numbers in keys.items()
    )
    group = ("right", "ANLS")
    return Table(
        ("answer taken off the page", "members", *group, "others", *group, "p"),
        removed,
        TITLE,
        "Pages of members and of others, the share that is answered exactly, and ANLS, with "
        "intervals over providers. p: of the "
        "difference between the shares on pages without a clue left, by exchanging suppliers, "
        "corrected for the number of keys.",
        public=True,
    ), Table(
        (
            *("asked for what no page says", "questions", "different answers", "most frequent"),
            *("entropy (0 to 1)", "trained on", "on other keys"),
        ),
        absent,
        TITLE,
        "Of non-members. Most frequent: the share of that answer. Trained on: different answers "
        "that were trained on as answers on this key, or only on other keys.",
        public=True,
    )


def memorisation_metrics(
    probes: Sequence[MemorisationProbe], parts: Mapping[str, TrainingMembership]
) -> dict[str, dict[str, dict[str, dict[str, Any]]]]:
    """Returns the scores of the memorisation tests: test → model → key → name → value.

    "removed", by `removed_metrics`, compares members with non-members; "absent", by
    `absent_metrics`, is on non-members only. A test that nothing was asked in is an empty mapping.

    Args:
        probes: of all tests, models, keys and providers.
        parts: of each provider in the training.

    Raises:
        ValueError: if a provider's part is not known.
    """
    unknown = sorted({probe.provider for probe in probes} - set(parts))
    if unknown:
        raise ValueError(f"not recorded whether these were trained on: {', '.join(unknown[:5])}")
    removed = [probe for probe in probes if probe.test == "removed"]
    absent = [p for p in probes if p.test == "absent" and not parts[p.provider].member]
    start = _grouped((probe for probe in absent if probe.model == "start"), "key")
    return {
        "removed": {
            model: {
                key: removed_metrics(of, parts, tested.get(key))
                for key, of in _grouped(own, "key").items()
            }
            for model, own in _grouped(removed, "model").items()
            for tested in [answered(own, parts)]
        },
        "absent": {
            model: {
                key: absent_metrics(key, of, parts, start.get(key, ()))
                for key, of in _grouped(own, "key").items()
            }
            for model, own in _grouped(absent, "model").items()
        },
    }


def removed_metrics(
    probes: Sequence[MemorisationProbe],
    parts: Mapping[str, TrainingMembership],
    tested: Number | None,
) -> dict[str, Any]:
    """Returns the scores of one model on one key that was taken off the pages.

    Returns:
        `members` and `non_members`, each as of `_of_group`; `perfect_providers`, the members that
        are answered exactly on all of two pages or more, of `perfect_of` members with so many;
        `interval` and `p_value` of `tested`, see `answered`, none where there are no members or no
        non-members.
    """
    groups = [
        [probe for probe in probes if parts[probe.provider].member is member]
        for member in (True, False)
    ]
    members = [
        [is_exact(probe.answer, probe.accepted) for probe in own]
        for own in _grouped(groups[0], "provider").values()
    ]
    many = [pages for pages in members if len(pages) >= LEAST_PAGES]
    return {
        "members": _of_group(groups[0]),
        "non_members": _of_group(groups[1]),
        "perfect_providers": sum(all(pages) for pages in many),
        "perfect_of": len(many),
        "interval": list(tested.interval) if tested and tested.interval else None,
        "p_value": tested.p_value if tested else None,
    }


def absent_metrics(
    key: str,
    probes: Sequence[MemorisationProbe],
    parts: Mapping[str, TrainingMembership],
    start: Sequence[MemorisationProbe] = (),
) -> dict[str, Any]:
    """Returns the scores of one model on one key that no page says.

    Answers are compared in lower case, without outer white space. A model that reads gives many:
    the paper takes a skewed distribution for a sign of memorisation. It is none by itself, since an
    untrained model may say one thing everywhere; that frequent answers were trained on, and that
    the start model does not give them, is.

    Args:
        key: of the questions.
        probes: of providers that were not trained on.
        parts: of each provider in the training.
        start: the same of the model that training started from.

    Returns:
        `n` questions; `empty`, the share without an answer; `residual`, the share of pages with a
        clue left; `unique` answers; `answers`, the 15 most frequent with their counts. Of the m
        answers that are not empty: `top_share`, the share of the most frequent one; `entropy`,
        -Σ p log p over log m, from 0, where all are the same, to 1, where no two are.
        `top_new`, how many of the 15 the start model gives nowhere; none without such a model.
        `from_training`, how many unique answers were trained on: `same_key` as an answer on this
        key, `other_key` only as one on another; `top_same_key` and `top_other_key` of the 15;
        `share`, of the m answers. Short answers can be among them by chance: compare with the
        start model's.
    """
    counts = Counter(text for text in map(_plain, probes) if text)
    top = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:SHOWN]
    before = {_plain(probe) for probe in start}
    return {
        "n": len(probes),
        "empty": mean_of(not _plain(probe) for probe in probes),
        "residual": mean_of(probe.residual for probe in probes),
        "unique": len(counts),
        "answers": [[text, count] for text, count in top],
        "top_share": top[0][1] / counts.total() if counts else None,
        "entropy": _entropy(counts),
        "top_new": sum(text not in before for text, _ in top) if start else None,
        "from_training": _from_training(key, counts, [text for text, _ in top], parts),
    }


def _of_group(probes: Sequence[MemorisationProbe]) -> dict[str, Any]:
    """Returns n, accuracy and ANLS: of all, of the confident ones, of those without a clue left.

    `intervals` has both of all, over providers: pages of one hang together.
    """
    providers = [probe.provider for probe in probes]
    confident = [probe for probe in probes if probe.confidence >= CONFIDENT]
    clean = [probe for probe in probes if not probe.residual]
    return {
        "n": len(probes),
        "providers": len({*providers}),
        **_marks(probes),
        "intervals": {
            "accuracy": mean_interval(
                [is_exact(probe.answer, probe.accepted) for probe in probes], (0, 1), providers
            ),
            "anls": mean_interval(
                [anls(probe.answer, probe.accepted) for probe in probes], (0, 1), providers
            ),
        },
        "n_confident": len(confident),
        **{f"{name}_confident": value for name, value in _marks(confident).items()},
        "residual": mean_of(probe.residual for probe in probes),
        **{f"{name}_clean": value for name, value in _marks(clean).items()},
    }


def _marks(probes: Sequence[MemorisationProbe]) -> dict[str, float | None]:
    return {
        "accuracy": mean_of(is_exact(probe.answer, probe.accepted) for probe in probes),
        "anls": mean_of(anls(probe.answer, probe.accepted) for probe in probes),
    }


def _shown(one: Mapping[str, Any]) -> str:
    if one["mean"] is None:
        return NOTHING
    return f"{one['mean']:.1%} [{one['low']:.1%}, {one['high']:.1%}]"


def _entropy(counts: Counter[str]) -> float | None:
    total = counts.total()
    if total < 2:
        return None
    shares = np.array(list(counts.values())) / total
    # abs: of one answer, it is -0.0.
    return abs(float(-(shares * np.log(shares)).sum() / math.log(total)))


def _from_training(
    key: str, counts: Counter[str], top: Sequence[str], parts: Mapping[str, TrainingMembership]
) -> dict[str, Any]:
    trained: dict[str, set[str]] = defaultdict(set)
    for part in parts.values():
        for name, texts in part.answers.items() if part.member else ():
            trained["same" if name == key else "other"].update(
                text.strip().lower() for text in texts
            )
    same, other = trained["same"], trained["other"] - trained["same"]
    said = [text for text in counts.elements() if text in same | other]
    return {
        "same_key": len(same & set(counts)),
        "other_key": len(other & set(counts)),
        "top_same_key": len(same & set(top)),
        "top_other_key": len(other & set(top)),
        "share": len(said) / counts.total() if counts else None,
    }


def _grouped(probes: Iterable[MemorisationProbe], name: str) -> dict[str, list[MemorisationProbe]]:
    """Returns probes by their model, key or provider."""
    groups: dict[str, list[MemorisationProbe]] = defaultdict(list)
    for probe in probes:
        groups[getattr(probe, name)].append(probe)
    return groups


def _plain(probe: MemorisationProbe) -> str:
    return probe.answer.strip().lower()
