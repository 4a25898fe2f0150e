"""Tables and figures of an extraction, in the shape of Pinto et al.'s."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedpriv.attacks.extraction.measures import histogram, memorised
from fedpriv.privacy.views import rounded_up
from fedpriv.threat.results import Figure, Number, Table
from fedpriv.threat.scoring.exposure import exposure_figures, exposure_tables
from fedpriv.threat.scoring.summaries import NOTHING, digits, interval, times
from fedpriv.threat.scoring.verdicts import in_words

FEW = 0.05
"""|M| under a defence ÷ |M| without, up to which almost nothing is left."""

COUNTS = ("E", "G", "M", "control", "answers_in_M", "pii", "unique_pii")
HEADINGS = ("|E|", "|G|", "|M|", "|G ∖ E|", "different answers in M", "PII in M", "unique PII")

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
    **{f"rotate_{degrees}": f"rotated {degrees}°" for degrees in (5, 10)},
    **{f"translate_{pixels}": f"moved {pixels} px" for pixels in (20, 100, 200)},
    **{f"brightness_{factor}": f"brightness ×{factor}" for factor in (2, 1.3, 0.8, 0.5)},
}
"""Names as they stand in a table or figure."""

SETS = {"|E|": "E", "|G|": "G", "|M|": "M"}
PERSONAL = {"|M|": "M", "PII in M": "pii", "unique PII": "unique_pii"}

SIZES, RESOLUTIONS, SCORES = "Extracted answers", "By training resolution", "Memorization"
IN_CONTEXTS, DEFENCES, SIDE = "Contexts", "Defences", "Side channel of extraction blocking"
CONTROLS = "Controls"

Numbers = Mapping[str, Any]


def headline(numbers: Numbers, primary: Number) -> str:
    """Returns E, G and M in one sentence, and how sure it is that the model remembers."""
    kept = numbers["canaries"]["kept"]
    found = (
        f"the model says {numbers['E']} of {kept} training answers that were taken off their page, "
        f"and one trained without them says {numbers['G']}: {numbers['M']} are in M, "
        f"{numbers['pii']} of these personal, and {numbers['control']} are the other way round"
    )
    if (scores := numbers.get("memorization")) is None or scores["mean"] is None:
        return f"{found}; {in_words(primary, f'M {primary.value:.1%}')}"
    said = f"M_E {interval(scores)} over {numbers['splits']} splits"
    return f"{found}; {in_words(primary, said)}"


def tables(numbers: Numbers) -> tuple[Table, ...]:
    """Returns a table for each part that there are numbers for."""
    found = [_sizes(numbers)]
    if numbers.get("resolutions"):
        asked = numbers["resolutions"].items()
        rows = tuple((str(name), *_counts(row), digits(row["anls"])) for name, row in asked)
        found.append(Table(("pixels", *HEADINGS, "ANLS"), rows, RESOLUTIONS, public=True))
    if numbers.get("memorization"):
        found.append(_scores(numbers))
    rows = tuple(
        (_name(name), str(row["asked"]), *_counts(row)) for name, row in numbers["contexts"].items()
    )
    found.append(Table(("context", "asked", *HEADINGS), rows, IN_CONTEXTS, public=True))
    found += _defences(numbers)
    if numbers.get("side_channel"):
        found.append(_side_channel(numbers["side_channel"]))
    if numbers.get("controls"):
        found.append(_controls(numbers["controls"]))
    if numbers.get("exposure"):
        found += exposure_tables(_exposures(numbers))
    return tuple(found)


def extracted_table(contexts: Mapping[str, Numbers]) -> Table:
    """Returns |E| by context, where there is no other model to compare with."""
    rows = tuple((_name(name), str(row["asked"]), str(row["E"])) for name, row in contexts.items())
    return Table(("context", "asked", "|E|"), rows, IN_CONTEXTS, public=True)


def _sizes(numbers: Numbers) -> Table:
    """Returns |E|, |G|, |M| of all canaries and by repeat count (Pinto et al., Figs. 3 and 4)."""
    canaries = numbers["canaries"]
    rows = [("all", f"{canaries['kept']:,}", *_counts(numbers))]
    rows += [
        (f"trained on {times(count)}", f"{row['canaries']:,}", *_counts(row))
        for count, row in numbers["by_repeats"].items()
    ]
    said = [
        "E: answers said by the model though the page no longer has them; G: by a model that was "
        "trained without the canaries; M = E ∖ G; G ∖ E: what chance makes of M. In brackets: "
        "between what the number of different answers in M lies, at 95 %. Unique: no other "
        "training sample has the answer."
    ]
    if numbers["pii_classes"]:
        said.append(f"Personal information in M: {_listed(numbers['pii_classes'])}.")
    if canaries["dropped"]:
        said.append(f"Of {canaries['drawn']} drawn were left out: {_listed(canaries['dropped'])}.")
    return Table(
        ("extracted", "canaries", *HEADINGS), tuple(rows), SIZES, " ".join(said), public=True
    )


def _scores(numbers: Numbers) -> Table:
    """Returns M_E of all, of M, of G and by repeat count, what chance gives, and S_E."""
    scores = numbers["memorization"]
    of = {"M_E, all": scores, "M_E in M": scores["of_M"], "M_E in G": scores["of_G"]}
    of |= {f"M_E, trained on {times(n)}": row for n, row in scores["by_repeats"].items()}
    rows = [(name, interval(row), digits(row["count"], ",")) for name, row in of.items()]
    if scores["null"]:
        rows.append(("chance: models without it, halved", interval(scores["null"]), ""))
    rows.append(("S_E, all", interval(numbers["simplicity"]), ""))
    said = [
        "In brackets 95 % intervals; that of the models which never saw the canary is where their "
        "mean lies by chance."
    ]
    ranks = scores["rank_test"]
    said.append(
        f"Whether M_E is higher in M than in G cannot be tested: {ranks['M']} answers against "
        f"{ranks['G']}."
        if ranks["p"] is None
        else f"M_E of an answer in M is above that of one in G in {ranks['auc']:.0%} of the pairs, "
        f"p = {ranks['p']:.2g} ({ranks['M']} against {ranks['G']})."
    )
    if scores["p"] is not None:
        said.append(
            "Had other canaries been drawn into each split, the mean M_E would be as high with "
            f"p = {scores['p']:.2g}."
        )
    return Table(("scores", "mean", "canaries"), tuple(rows), SCORES, " ".join(said), public=True)


def _defences(numbers: Numbers) -> list[Table]:
    """Returns the tables of the defences (Pinto et al., Tables 1 and 2) and the check of EB."""
    defences = numbers["defences"]
    plain = defences["none"]
    others = {name: row for name, row in defences.items() if name != "none"}
    changes = (
        str(numbers["model"]),
        f"{_points(plain['anls'], '')} / {plain['M']}",
        *(f"{_points(row['anls_change'])} / {row['M']}" for row in others.values()),
    )
    rows = tuple(
        (
            name,
            *_counts(row),
            digits(row["anls"]),
            _change(row),
            f"ε = {rounded_up(row['epsilon'])}, δ = {row['delta']:.2g}"
            if row.get("epsilon")
            else "",
        )
        for name, row in defences.items()
    )
    note = (
        "PR, AR: a random number before or after the question; ITP: the question paraphrased; EB: "
        "training samples whose page lacks the answer; DP: differentially private training. Change "
        "of ANLS in points of 100."
    )
    headings = ("ΔANLS / |M|", "ANLS / |M| without", *others)
    found = [
        Table(headings, (changes,), DEFENCES, _blocking_said(defences), public=True),
        Table(
            ("defence", *HEADINGS, "ANLS", "change", "privacy"), rows, DEFENCES, note, public=True
        ),
    ]
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
        found.append(
            Table(("context", "without defence", "EB"), blocked, DEFENCES, note, public=True)
        )
    return found


def _blocking_said(defences: Numbers) -> str:
    """Says whether EB brings |M| to about 0 without a loss of ANLS that is shown."""
    before = defences["none"]["M"]
    if "EB" not in defences or not before:
        return ""
    left, interval = defences["EB"]["M"], defences["EB"]["anls_change_interval"]
    above = max(0, left - defences["EB"].get("control", 0))  # of what chance makes
    # By the interval: the sign of a change by chance is as often below 0 as above.
    cost = ", at a cost" if interval is not None and interval[1] < 0 else ""
    stops = (
        f"stops the extraction{cost}" if above <= FEW * before else "does not stop the extraction"
    )
    kept = "" if interval is None else f", ANLS changes by {_change(defences['EB'])} points"
    return f"Extraction blocking {stops}: |M| goes from {before} to {left}{kept}."


def _side_channel(channel: Mapping[str, Numbers]) -> Table:
    """Returns how well membership is told from whether the model says that there is no answer."""
    first, *rates = dict.fromkeys(rate for row in channel.values() for rate in row["tpr"])
    rows = []
    for name, row in channel.items():
        low, high = row["tpr_interval"]
        found = {"mean": row["tpr"][first], "low": low, "high": high}
        others = (digits(row["tpr"].get(rate)) for rate in rates)
        rows.append((name, interval({**row, "mean": row["auc"]}), interval(found), *others))
    note = (
        "Whether a canary was trained on, told by one model's loss. Rows with a refusal: of ANSWER "
        "NOT PRESENT on its page without the answer; the others: of the answer on its page. AUC "
        "0.5: not at all. With fewer than 100 that were not trained on, the TPR at 1 % is that at "
        "no false alarm."
    )
    headings = ("training", "AUC", *(f"TPR at {float(rate):.1%}" for rate in (first, *rates)))
    return Table(headings, tuple(rows), SIDE, note, public=True)


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
            "The two that never saw the canaries differ in which answers they say with "
            f"p = {unseen['p']:.2g}: a difference between f and f_G that is no clearer than theirs "
            "is no memory."
        )
    return Table(
        ("model", "answers that it says"), tuple(rows), CONTROLS, " ".join(said), public=True
    )


def figures(numbers: Numbers, scores: Mapping[str, Sequence[Any]]) -> tuple[Figure, ...]:
    """Returns Pinto et al.'s Figs. 3 to 6, and exposure by repeat count."""
    sizes = {**SETS, "PII in M": "pii", "unique PII": "unique_pii"}
    bars = {"canaries": {label: numbers[key] for label, key in sizes.items()}}
    found = [Figure("counts", "Canaries in each set", {"bars": bars}, SIZES)]
    if repeats := {f"{int(count)}×": row for count, row in numbers["by_repeats"].items()}:
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
        found += exposure_figures(_exposures(numbers))
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


def _exposures(numbers: Numbers) -> dict[str, Numbers]:
    return {STRATEGIES.get(name, name): audit for name, audit in numbers["exposure"].items()}


def _series(names: Mapping[str, str], groups: Mapping[str, Numbers]) -> dict[str, dict[str, int]]:
    """Returns label → group → count."""
    return {
        label: {group: row[key] for group, row in groups.items() if key in row}
        for label, key in names.items()
    }


def _counts(row: Numbers) -> tuple[str, ...]:
    """Returns a cell for each size, that of the different answers with its interval."""
    beside = {}
    if between := row.get("interval"):
        of = f" of {row['answers']} [{between[0]:.0f}, {between[1]:.0f}]"
        beside["answers_in_M"] = of
    return tuple(f"{digits(row.get(name), ',')}{beside.get(name, '')}" for name in COUNTS)


def _change(row: Numbers) -> str:
    """Returns how much ANLS a defence costs, and where that lies."""
    between = row["anls_change_interval"]
    shown = _points(row["anls_change"])
    return shown if between is None else f"{shown} [{', '.join(map(_points, between))}]"


def _points(value: float | None, sign: str = "+") -> str:
    return NOTHING if value is None else f"{100 * value:{sign}z.1f}"


def _name(context: str) -> str:
    return CONTEXTS.get(context, context.replace("_", " "))


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {what}" for what, number in counts.items())
