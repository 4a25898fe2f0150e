"""Tables and figures of an extraction, in the shape of Pinto et al.'s."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedpriv.threat.results import Figure, Table
from fedpriv.threat.scoring.exposure import exposure_figures, exposure_tables
from fedpriv.threat.scoring.extraction import histogram, memorised

FEW = 0.05
"""|M| under a defence ÷ |M| without, up to which almost nothing is left."""

COUNTS = ("E", "G", "M", "pii", "unique_pii")
HEADINGS = ("|E|", "|G|", "|M|", "PII in M", "unique PII")

STRATEGIES = {"fedavg": "FedAvg", "feam_dp": "FeAm-DP", "fl_provider_dp": "FL-PROVIDER-DP"}
"""As papers write them."""

CONTEXTS = {
    "baseline": "baseline",
    "no_text": "no text",
    "paraphrase": "paraphrase",
    "shuffle": "shuffled",
    "image_only": "image only",
    "constant_white": "white",
    "constant_black": "black",
    "constant_mean": "mean grey",
    "rotate_5": "rotated 5°",
    "rotate_10": "rotated 10°",
    "translate_20": "moved 20 px",
    "translate_100": "moved 100 px",
    "translate_200": "moved 200 px",
    "brightness_2": "brightness ×2",
    "brightness_1.3": "brightness ×1.3",
    "brightness_0.8": "brightness ×0.8",
    "brightness_0.5": "brightness ×0.5",
}
"""Names as they stand in a table or figure."""

SETS = {"|E|": "E", "|G|": "G", "|M|": "M"}
PERSONAL = {"|M|": "M", "PII in M": "pii", "unique PII": "unique_pii"}

SIZES, RESOLUTIONS, SCORES = "Extracted answers", "By training resolution", "Memorization"
IN_CONTEXTS, DEFENCES, SIDE = "Contexts", "Defences", "Side channel of extraction blocking"
CONTROLS = "Controls"

Numbers = Mapping[str, Any]
Rows = tuple[tuple[str, ...], ...]


def headline(numbers: Numbers) -> str:
    """Returns E, G and M in one sentence."""
    kept = numbers["canaries"]["kept"]
    found = (
        f"the model says {numbers['E']} of {kept} training answers that were taken off their page, "
        f"and one trained without them says {numbers['G']}: {numbers['M']} are memorised, "
        f"{numbers['pii']} of these personal"
    )
    scores = numbers.get("memorization")
    if scores is None or scores["mean"] is None:
        return found
    return f"{found}; M_E {_interval(scores)} over {numbers['splits']} splits"


def tables(numbers: Numbers) -> tuple[Table, ...]:
    """Returns a table for each part that there are numbers for."""
    found = [_sizes(numbers)]
    if numbers.get("resolutions"):
        rows = tuple(
            (str(name), *_counts(row), _digits(row["anls"]))
            for name, row in numbers["resolutions"].items()
        )
        found.append(Table(("pixels", *HEADINGS, "ANLS"), rows, RESOLUTIONS))
    if numbers.get("memorization"):
        found.append(_scores(numbers))
    rows = tuple(
        (_name(name), str(row["asked"]), *_counts(row)) for name, row in numbers["contexts"].items()
    )
    found.append(Table(("context", "asked", *HEADINGS), rows, IN_CONTEXTS))
    found += _defences(numbers)
    if numbers.get("side_channel"):
        found.append(_side_channel(numbers["side_channel"]))
    if numbers.get("controls"):
        found.append(_controls(numbers["controls"]))
    if numbers.get("exposure"):
        found += exposure_tables(_audits(numbers))
    return tuple(found)


def extracted_table(contexts: Mapping[str, Numbers]) -> Table:
    """Returns |E| by context, where there is no other model to compare with."""
    rows = tuple((_name(name), str(row["asked"]), str(row["E"])) for name, row in contexts.items())
    return Table(("context", "asked", "|E|"), rows, IN_CONTEXTS)


def _sizes(numbers: Numbers) -> Table:
    """Returns |E|, |G|, |M| of all canaries and by repeat count (Pinto et al., Figs. 3 and 4)."""
    canaries = numbers["canaries"]
    rows = [("all", f"{canaries['kept']:,}", *_counts(numbers))]
    rows += [
        (f"trained on {_times(count)}", f"{row['canaries']:,}", *_counts(row))
        for count, row in numbers["by_repeats"].items()
    ]
    said = [
        "E: answers said by the model though the page no longer has them; G: by a model that was "
        "trained without the canaries; M = E ∖ G. Unique: no other training sample has the answer."
    ]
    if numbers["pii_classes"]:
        said.append(f"Personal information in M: {_listed(numbers['pii_classes'])}.")
    if canaries["dropped"]:
        said.append(f"Of {canaries['drawn']} drawn were left out: {_listed(canaries['dropped'])}.")
    return Table(("extracted", "canaries", *HEADINGS), tuple(rows), SIZES, " ".join(said))


def _scores(numbers: Numbers) -> Table:
    """Returns M_E of all, of M, of G and by repeat count, what chance gives, and S_E."""
    scores = numbers["memorization"]
    rows = [("M_E, all", _interval(scores), _count(scores["count"]))]
    rows += [
        (f"M_E in {name}", _interval(scores[f"of_{name}"]), _count(scores[f"of_{name}"]["count"]))
        for name in ("M", "G")
    ]
    rows += [
        (f"M_E, trained on {_times(count)}", _interval(row), _count(row["count"]))
        for count, row in scores["by_repeats"].items()
    ]
    if scores["null"]:
        rows.append(("chance: models without it, halved", _interval(scores["null"]), ""))
    rows.append(("S_E, all", _interval(numbers["simplicity"]), ""))
    said = [
        "In brackets 95 % intervals; that of the models which never saw the canary is where their "
        "mean lies by chance."
    ]
    ranks = scores["rank_test"]
    if ranks["p"] is not None:
        said.append(
            f"M_E of a sample of M is above that of one of G in {ranks['auc']:.0%} of the pairs, "
            f"p = {ranks['p']:.2g} ({ranks['M']} against {ranks['G']})."
        )
    else:
        said.append(
            f"Whether M_E is higher in M than in G cannot be tested: {ranks['M']} samples against "
            f"{ranks['G']}."
        )
    if scores["p"] is not None:
        said.append(
            "Had other canaries been drawn into each split, the mean M_E would be as high with "
            f"p = {scores['p']:.2g}."
        )
    return Table(("scores", "mean", "canaries"), tuple(rows), SCORES, " ".join(said))


def _defences(numbers: Numbers) -> list[Table]:
    """Returns the tables of the defences (Pinto et al., Tables 1 and 2) and the check of EB."""
    defences = dict(numbers["defences"])
    plain = defences["none"]
    others = {name: row for name, row in defences.items() if name != "none"}
    changes = Table(
        ("ΔANLS / |M|", "ANLS / |M| without", *others),
        (
            (
                str(numbers["model"]),
                f"{_points(plain['anls'], '')} / {plain['M']}",
                *(f"{_points(row['anls_change'])} / {row['M']}" for row in others.values()),
            ),
        ),
        DEFENCES,
        _blocking_said(defences),
    )
    rows = tuple(
        (
            name,
            *_counts(row),
            _digits(row["anls"]),
            _points(row["anls_change"]),
            f"ε = {row['epsilon']:.3g}, δ = {row['delta']:.2g}" if row.get("epsilon") else "",
        )
        for name, row in defences.items()
    )
    note = (
        "PR, AR: a random number before or after the question; ITP: the question paraphrased; EB: "
        "training samples whose page lacks the answer; DP: differentially private training. Change "
        "of ANLS in points of 100."
    )
    headings = ("defence", *HEADINGS, "ANLS", "change", "privacy")
    found = [changes, Table(headings, rows, DEFENCES, note)]
    if "EB" in defences:
        blocked = tuple(
            (_name(name), *(f"{side['M']} / {side['pii']}" for side in (asked, row)))
            for name, row in defences["EB"]["contexts"].items()
            if (asked := numbers["contexts"].get(name))
        )
        note = (
            "|M| / PII in M. EB is trained on the pages without their answer only, no other "
            "context."
        )
        found.append(Table(("context", "without defence", "EB"), blocked, DEFENCES, note))
    return found


def _blocking_said(defences: Numbers) -> str:
    """Says whether EB brings |M| to about 0 without losing ANLS."""
    before = defences["none"]["M"]
    if "EB" not in defences or not before:
        return ""
    left, change = defences["EB"]["M"], defences["EB"]["anls_change"]
    if left > FEW * before:
        verdict = "Extraction blocking does not stop the extraction"
    elif change is not None and change < 0:
        verdict = "Extraction blocking stops the extraction, at a cost"
    else:
        verdict = "Extraction blocking stops the extraction"
    kept = "" if change is None else f", ANLS changes by {_points(change)} points"
    return f"{verdict}: |M| goes from {before} to {left}{kept}."


def _side_channel(channel: Mapping[str, Numbers]) -> Table:
    """Returns how well membership is told from whether the model says that there is no answer."""
    rates = list(dict.fromkeys(rate for row in channel.values() for rate in row["tpr"]))
    rows = tuple(
        (
            name,
            f"{_digits(row['auc'])} [{_digits(row['low'])}, {_digits(row['high'])}]",
            *(_digits(row["tpr"].get(rate)) for rate in rates),
        )
        for name, row in channel.items()
    )
    note = (
        "Whether a canary was trained on, told by one model's loss. Rows with a refusal: of ANSWER "
        "NOT PRESENT on its page without the answer; the others: of the answer on its page. AUC "
        "0.5: not at all."
    )
    headings = ("training", "AUC", *(f"TPR at {float(rate):.1%}" for rate in rates))
    return Table(headings, rows, SIDE, note)


def _controls(controls: Numbers) -> Table:
    """Returns what models extract that cannot have memorised anything."""
    rows, said = [], []
    if untrained := controls.get("untrained"):
        rows.append(("untrained", f"{untrained['E']} of {untrained['canaries']}"))
        if untrained["E"]:
            said.append("The untrained model says answers, though it can have memorised none.")
    if unseen := controls.get("unseen"):
        rows += [
            ("trained without the canaries", str(unseen["G"])),
            ("another without them", f"{unseen['E']}, {unseen['both']} of them the same"),
        ]
        said.append(
            "The two models that never saw the canaries differ by chance, by McNemar's test, with "
            f"p = {unseen['p']:.2g}."
        )
    return Table(("model", "answers that it says"), tuple(rows), CONTROLS, " ".join(said))


def figures(numbers: Numbers, scores: Mapping[str, Sequence[Any]]) -> tuple[Figure, ...]:
    """Returns Pinto et al.'s Figs. 3 to 6, and exposure by repeat count."""
    sizes = {**SETS, "PII in M": "pii", "unique PII": "unique_pii"}
    bars = {"canaries": {label: numbers[key] for label, key in sizes.items()}}
    found = [Figure("counts", "Canaries in each set", {"bars": bars}, SIZES)]
    repeats = {f"{int(count)}×": row for count, row in numbers["by_repeats"].items()}
    if repeats:
        title = "By how often the answer was trained on"
        found.append(Figure("counts", title, {"bars": _series(SETS, repeats)}, SIZES))
    resolutions = {
        name: row
        for name, row in (numbers.get("resolutions") or {}).items()
        if re.fullmatch(r"[0-9x×]{1,12}", name)
    }
    if resolutions:
        data: dict[str, Any] = {"bars": _series(SETS, resolutions)}
        found.append(Figure("counts", "By training resolution, pixels", data, RESOLUTIONS))
        title = "Personal information by training resolution, pixels"
        # |M| keeps the colour that it has beside |E| and |G|.
        data = {"bars": _series(PERSONAL, resolutions), "first_shade": 2}
        found.append(Figure("counts", title, data, RESOLUTIONS))
    if "memorization" in scores:
        memorization, simplicity = (
            np.array(scores[name], float) for name in ("memorization", "simplicity")
        )
        in_g = np.array(scores["in_G"], bool)
        chosen = {
            "all canaries": np.ones(len(in_g), bool),
            "M = E ∖ G": memorised(scores["in_E"], in_g),
            "G": in_g,
        }
        panels = {
            label: histogram(memorization[here], simplicity[here], numbers["splits"]).tolist()
            for label, here in chosen.items()
        }
        title = "Canaries by memorization and simplicity"
        found.append(Figure("scores", title, {"panels": panels}, SCORES))
    found += _context_figures(numbers)
    if numbers.get("exposure"):
        found += exposure_figures(_audits(numbers))
    return tuple(found)


def _context_figures(numbers: Numbers) -> list[Figure]:
    """Returns |M| by context, with its personal information darker (Pinto et al., Fig. 6)."""
    asked = numbers["contexts"]
    known = [name for name in CONTEXTS if name in asked]
    if not known:
        return []
    rows = {"without defence": asked}
    blocked = numbers["defences"].get("EB", {}).get("contexts", {})
    if all(name in blocked for name in known):
        rows["EB"] = blocked
    bars, darker = (
        {side: {CONTEXTS[name]: row[name][key] for name in known} for side, row in rows.items()}
        for key in ("M", "pii")
    )
    title = "|M| by what the model is asked with; in full colour: personal information"
    data = {"bars": bars, "darker": darker, "wide": True}
    return [Figure("counts", title, data, IN_CONTEXTS)]


def _series(names: Mapping[str, str], groups: Mapping[str, Numbers]) -> dict[str, dict[str, int]]:
    """Returns label → group → count."""
    return {
        label: {group: row[key] for group, row in groups.items() if key in row}
        for label, key in names.items()
    }


def _audits(numbers: Numbers) -> dict[str, Numbers]:
    return {STRATEGIES.get(name, name): audit for name, audit in numbers["exposure"].items()}


def _counts(row: Numbers) -> tuple[str, ...]:
    return tuple(_count(row.get(name)) for name in COUNTS)


def _count(number: int | None) -> str:
    return "—" if number is None else f"{number:,}"


def _digits(value: float | None) -> str:
    return "—" if value is None else f"{value:z.3f}"


def _points(value: float | None, sign: str = "+") -> str:
    return "—" if value is None else f"{100 * value:{sign}z.1f}"


def _interval(row: Numbers) -> str:
    if row["mean"] is None:
        return "—"
    return f"{row['mean']:z.3f} [{row['low']:z.3f}, {row['high']:z.3f}]"


def _times(count: str) -> str:
    return {"1": "once", "2": "twice"}.get(count, f"{count} times")


def _name(context: str) -> str:
    return CONTEXTS.get(context, context.replace("_", " "))


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {what}" for what, number in counts.items())
