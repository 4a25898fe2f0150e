"""The folder of a bank that wants to know what leaks: scans of receipts in one folder a branch."""

import csv
import itertools

from fedpriv.data.generated.invoices import Invoices

BRANCHES = ("Aachen", "Bonn", "Köln", "Mainz", "Trier", "Ulm")
FIELDS = ("date", "total")


def write_bank(root, *, documents=40, suppliers=13):
    """Writes so many receipts of so many suppliers into six branches, and their labels.csv."""
    each = -(-documents // suppliers)
    pages = Invoices(providers=suppliers, documents_per_provider=each, seed=7).load().documents
    # One of each supplier after the other, so that all have some.
    order = sorted(range(len(pages)), key=lambda at: (at % each, at))[:documents]
    rows = []
    for at, branch in zip(order, itertools.cycle(BRANCHES)):
        page = pages[at]
        values = {e.label: " ".join(page.words[w].text for w in e.words) for e in page.entities}
        file = root / branch / f"receipt {at:03}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        page.image().save(file)
        rows.append([f"{branch}/{file.name}", page.provider, *(values.get(f, "") for f in FIELDS)])
    with (root / "labels.csv").open("w", encoding="utf-8", newline="") as table:
        csv.writer(table).writerows([["file", "company", *FIELDS], *rows])
    return root
