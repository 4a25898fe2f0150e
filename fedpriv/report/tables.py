"""The tables of a run folder, as pandas has them, and what a notebook shows of a run."""

from __future__ import annotations

import html as markup
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from fedpriv.runtime import run_folder
from fedpriv.runtime.run_folder import FINDINGS, LEDGER, METRICS, PARTITION, REPORT, RESULT

ACCOUNTANTS = ("pld", "rdp", "prv", "gdp")
NUMBER = ("value", "low", "high", "control", "detectable", "p_value", "n", "unit")

SHOWN = ("f1", "anls", "accuracy", "loss", "train_loss", "accepted")
"""Of each round, in a notebook."""


class RunFolder(run_folder.RunFolder):
    """A run folder whose files can be had as tables.

    Each is empty where the run has no such file, with the columns that it would have.
    """

    @property
    def metrics(self) -> pd.DataFrame:
        """metrics.jsonl: a row for each round, by `round`.

        Nested numbers have names such as `clients.answered` and `seconds.train`; the bytes that
        each client sent are left out, which `bytes_up` has in total.
        """
        rows = [dict(_flat(record)) for record in self.records(METRICS)]
        # A round that was run again after a kill stands there twice, and its later line counts.
        table = pd.DataFrame(rows, columns=None if rows else ["round"])
        return table.drop_duplicates("round", keep="last").set_index("round")

    @property
    def ledger(self) -> pd.DataFrame:
        """ε of ledger.json by observer and accountant; infinity where nothing is promised.

        The index `view` has who is looking; `applies` says whether there is such an observer in
        this run, `guarantee` whether ε is a guarantee.
        """
        with self.making_sense_of(LEDGER):
            views = (self.read_json(LEDGER) or {}).get("views", {})
            rows = [
                {
                    "view": name,
                    **{one: float(view[one]) for one in ACCOUNTANTS if view.get(one) is not None},
                    "guarantee": view.get("guarantee", False),
                    "applies": view.get("applies", True),
                    "note": view.get("note", ""),
                }
                for name, view in views.items()
            ]
        columns = ["view", *ACCOUNTANTS, "guarantee", "applies", "note"]
        return pd.DataFrame(rows, columns=columns).set_index("view")

    @property
    def findings(self) -> pd.DataFrame:
        """The numbers that attacks found, by `attack` and `number`.

        `primary` marks the number that the verdict rests on; `low` and `high` are the ends of its
        interval. An attack without numbers, such as one that was refused, has one row without them.
        """
        rows: list[dict[str, Any]] = []
        for attack in self.names(FINDINGS, "*"):
            place = f"{FINDINGS}/{attack}/{RESULT}"
            result = self.read_json(place)
            if result is None:
                continue
            with self.making_sense_of(place):
                told = {
                    "attack": attack,
                    **{key: result.get(key, "") for key in ("verdict", "status", "headline")},
                }
                numbers = result.get("numbers") or {"": {}}
                for name, number in numbers.items():
                    low, high = number.get("interval") or (None, None)
                    primary = name != "" and name == result.get("primary")
                    ends = {**number, "low": low, "high": high}
                    rows.append(
                        {
                            **told,
                            "number": name,
                            "primary": primary,
                            **{key: ends.get(key) for key in NUMBER},
                        }
                    )
        columns = ["attack", "number", *NUMBER, "primary", "verdict", "status", "headline"]
        return pd.DataFrame(rows, columns=columns).set_index(["attack", "number"])

    @property
    def partition(self) -> pd.DataFrame:
        """partition.json: a row for each document: its `client`, `provider` and `document`.

        Documents that were held out for the evaluation have no client.
        """
        with self.making_sense_of(PARTITION):
            content = self.read_json(PARTITION) or {}
            rows = [
                {"client": client, "provider": provider, "document": document}
                for client, providers in (
                    *((int(number), held) for number, held in content.get("clients", {}).items()),
                    (None, content.get("test", {})),
                )
                for provider, documents in providers.items()
                for document in documents
            ]
        table = pd.DataFrame(rows, columns=["client", "provider", "document"])
        return table.astype({"client": "Int64"})

    def _repr_html_(self) -> str:
        """Returns where the run lies, its last rounds, ε, and the verdicts of attacks."""
        rounds, spent, found = self.metrics, self.ledger, self.findings
        shown = [name for name in SHOWN if name in rounds]
        parts = [f"<p><code>{markup.escape(str(self.path))}</code>: {len(rounds)} rounds</p>"]
        if shown and len(rounds):
            parts.append(rounds[shown].tail(5).to_html(float_format="{:.3f}".format))
        if len(spent):
            here = spent[spent["applies"].astype(bool)]
            parts.append(here[["pld", "guarantee"]].to_html(float_format="{:.3g}".format))
        if len(found):
            one_each = found.reset_index().sort_values("primary", ascending=False)
            one_each = one_each.drop_duplicates("attack").set_index("attack").sort_index()
            columns = ["verdict", "number", "value", "low", "high", "control"]
            parts.append(one_each[columns].to_html(float_format="{:.3g}".format, na_rep="—"))
        if self.has(REPORT):
            parts.append("<p>The whole report is <code>report.html</code> in that folder.</p>")
        return "".join(parts)


def _flat(record: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in record.items():
        if isinstance(value, Mapping):
            if name != "bytes_by_client":
                yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
