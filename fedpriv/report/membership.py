"""Who was trained on, and what the model remembers: tables for terminal and report, and the ROC."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedpriv.report import figures
from fedpriv.report.figures import Chart
from fedpriv.report.folder import Found
from fedpriv.report.wording import aligned
from fedpriv.threat.scoring.membership import roc

HEADINGS = (
    *("s", "n", "prior", "accuracy", "balanced", "p of it", "AUC", "TPR at 1 %", "clients right"),
)
"""Of the table of classifiers, after the classifier's name."""

REMOVED = ("members", "", "", "others", "", "", "p")
"""Of the table of the removed test: pages, accuracy and ANLS of either group."""

MOST_CURVES = 6
"""Classifiers whose ROC is drawn; their order is the attack's."""

Row = Sequence[str]


@dataclass(frozen=True)
class Judged:
    """One attack on providers as the report shows it."""

    name: str
    audit: str
    classifiers: Sequence[Row]
    removed: Sequence[Row]
    absent: Sequence[str]
    chart: Chart | None
    pages: Sequence[tuple[str, str]]
    assumptions: Sequence[str]
    notes: Sequence[str]


def is_of_providers(metrics: Mapping[str, Any]) -> bool:
    """Says whether an attack's metrics are those of an attack on providers."""
    return "classifiers" in metrics


def membership_view(found: Sequence[Found]) -> list[Judged]:
    """Returns each attack on providers for the report; says so where its numbers are not ours."""
    shown: list[Judged] = []
    for one in found:
        try:
            if is_of_providers(one.metrics):
                shown.append(_judged(one))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            why = f"its findings cannot be shown: {error!r:.100}"
            shown.append(Judged(one.name, why, (), (), (), None, (), (), ()))
    return shown


def _judged(found: Found) -> Judged:
    metrics = found.metrics
    memory = metrics.get("memorisation", {})
    return Judged(
        found.name,
        audit_line(metrics),
        classifier_rows(metrics["classifiers"]),
        removed_rows(memory),
        absent_lines(memory),
        _roc(found.verdicts),
        [(name, uri) for name, panels in found.pages.items() for uri in panels.values()],
        [str(line) for line in metrics.get("assumptions", ())],
        [str(line) for line in metrics.get("notes", ())],
    )


def lines(metrics: Mapping[str, Any]) -> Iterator[str]:
    """Yields the tables of an attack on providers as text, for a terminal."""
    if said := audit_line(metrics):
        yield said
    yield from aligned([("", *HEADINGS), *classifier_rows(metrics["classifiers"])])
    memory = metrics.get("memorisation", {})
    heading = ("answer taken off the page", *REMOVED)
    yield from aligned([heading, *removed_rows(memory)])
    yield from absent_lines(memory)


def classifier_rows(classifiers: Mapping[str, Mapping[str, Any]]) -> list[Row]:
    """Returns a row for each classifier and s, as in PFL-DocVQA's Table 4, under `HEADINGS`."""
    return [
        (name, s, *_numbers(numbers))
        for name, all_of_it in classifiers.items()
        for s, numbers in {
            str(all_of_it["least_questions"]): all_of_it,
            **all_of_it["subsets"],
        }.items()
    ]


def removed_rows(memory: Mapping[str, Any]) -> list[Row]:
    """Returns a row for each model and key, as in PFL-DocVQA's Tables 2 and 7."""
    return [
        (
            f"{key}, {model} model",
            *_group(numbers["members"]),
            *_group(numbers["non_members"]),
            _digits(numbers["p_value"], "p {:.2g}"),
        )
        for model, keys in memory.get("removed", {}).items()
        for key, numbers in keys.items()
    ]


def absent_lines(memory: Mapping[str, Any]) -> list[str]:
    """Returns a sentence for each model and key, as PFL-DocVQA's App. D.1.4 tells it."""
    return [
        _absent(key, model, numbers)
        for model, keys in memory.get("absent", {}).items()
        for key, numbers in keys.items()
    ]


def _absent(key: str, model: str, numbers: Mapping[str, Any]) -> str:
    trained = numbers["from_training"]
    most, spread = _digits(numbers["top_share"], "{:.0%}"), _digits(numbers["entropy"], "{:.2f}")
    return (
        f"asked for {key}, which no page says, the {model} model gives {numbers['unique']} "
        f"different answers to {numbers['n']} questions, {most} of them the most frequent one "
        f"(entropy {spread} of 1); {trained['same_key']} were trained on as answers on {key}, "
        f"{trained['other_key']} on other keys"
    )


def audit_line(metrics: Mapping[str, Any]) -> str:
    """Returns what an audit shows of ε; empty for any other attack."""
    if "epsilon_lower" not in metrics:
        return ""
    claimed = metrics["epsilon_claimed_provider"][metrics["view"]]
    says = {"inf": "promises nothing", None: "says nothing of a provider"}
    ledger = says.get(claimed) or f"claims ε ≤ {claimed:.4g} of a provider"
    broken = ": THE CLAIM IS BROKEN" if metrics["violated"] else ""
    if doubts := "; ".join(metrics.get("doubts", ())):
        ledger = f"{ledger} (in doubt: {doubts})"
    return (
        f"ε ≥ {metrics['epsilon_lower']:.3g} of a provider with {metrics['confidence']:.0%} "
        f"confidence (at most {metrics['epsilon_ceiling']:.3g} could be shown: "
        f"{metrics['right']} of {metrics['guesses']} guesses are right, on "
        f"{metrics['canaries']} canaries, at δ = {metrics['delta']:g}); in the view "
        f"{metrics['view']} the ledger {ledger}{broken}"
    )


def _numbers(row: Mapping[str, Any]) -> Row:
    std = f" ± {row['accuracy_std']:.3f}" if row["trials"] > 1 else ""
    return (
        f"{row['n']:g}",
        f"{row['prior']:.3f}",
        f"{row['accuracy']:.3f}{std}",
        _between(row, "balanced_accuracy"),
        f"{row['p_value']:.2g}",
        _between(row, "auc"),
        f"{row['tpr_at_fpr']['0.01']:.3f}",
        _digits(row.get("clients_right"), "{:.0%}"),
    )


def _between(row: Mapping[str, Any], name: str) -> str:
    low, high = row["interval"][name]
    return f"{row[name]:.3f} [{low:.2f}, {high:.2f}]"


def _group(group: Mapping[str, Any]) -> Row:
    return (
        f"{group['n']} pages",
        _digits(group["accuracy"], "{:.1%}"),
        _digits(group["anls"], "ANLS {:.1%}"),
    )


def _digits(value: float | None, pattern: str) -> str:
    return "—" if value is None else pattern.format(value)


def _roc(verdicts: Sequence[Mapping[str, Any]]) -> Chart | None:
    """Returns the ROC of each classifier's first trial of the smallest s."""
    curves: dict[str, tuple[Sequence[float], Sequence[float]]] = {}
    for verdict in verdicts:
        members = np.array(verdict["member"], dtype=np.bool_)
        if verdict["classifier"] not in curves and members.any() and not members.all():
            false, true = roc(members, np.array(verdict["scores"], dtype=np.float64))
            curves[verdict["classifier"]] = false.tolist(), true.tolist()
    if not curves:
        return None
    return figures.roc_chart(dict(list(curves.items())[:MOST_CURVES]))
