"""How tables are written for other programs."""

import pandas as pd

from fedpriv.report.wording import as_csv


def test_no_cell_of_a_csv_is_a_formula():
    table = pd.DataFrame({"=a": ["=1+1", "-2", "plain"], "n": [-1.5, 2.0, 3.0]}, ["@x", "y", "+z"])
    cells = [row.split(",") for row in as_csv(table).decode().splitlines()]
    assert cells == [
        ["", "'=a", "n"],
        ["'@x", "'=1+1", "-1.5"],
        ["y", "'-2", "2.0"],
        ["'+z", "plain", "3.0"],
    ]
