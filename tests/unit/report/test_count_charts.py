"""Charts of counts, of scores on their lattice, and of exposure by repeats."""

import re

import numpy as np
import pytest

from fedpriv.report.figures import draw
from fedpriv.threat.results import Figure


def test_bars_have_their_counts_and_nothing_is_drawn_for_zero():
    sets = {"a": {"x": 41, "y": 0}, "b": {"x": 1, "y": 1000}}
    chart = draw(Figure("counts", "Sets", {"bars": sets}))
    assert "a: x 41, y 0; b: x 1, y 1000" in chart.svg
    assert [key.label for key in chart.keys] == ["a", "b"]
    drawn = re.findall(r"<text[^>]*>([^<]*)</text>", chart.svg)
    assert {"41", "0", "1", "1000", "x", "y"} <= set(drawn)


def test_the_darker_part_of_a_bar_has_the_colour_of_the_whole():
    chart = draw(Figure("counts", "M", {"bars": {"M": {"x": 10}}, "darker": {"M": {"x": 4}}}))
    fills = re.findall(r"fill: var\(--c0\)(; opacity: 0\.4)?", chart.svg)
    assert sorted(fills) == ["", "; opacity: 0.4"]
    assert chart.keys == ()


def test_a_histogram_has_a_diamond_for_each_taken_place():
    counts = np.zeros((5, 5), int)
    counts[0, 2], counts[2, 4] = 30, 2
    panels = {"all": counts.tolist(), "G": [[0] * 5] * 5}
    chart = draw(Figure("scores", "Scores", {"panels": panels}))
    assert "all: 30 at M_E 0 and S_E 0, 2 at M_E 1 and S_E 1" in chart.svg
    opacities = re.findall(r"fill: var\(--c0\); opacity: ([\d.]+)", chart.svg)
    assert len(opacities) == 2
    # log1p(2) / log1p(30) = 0.32 of 0.6, on 0.25; the fullest has all of it.
    assert sorted(map(float, opacities)) == pytest.approx([0.442, 0.85], abs=1e-3)


def test_exposure_has_a_line_for_each_strategy_and_side():
    line = {
        "mean": {"1": 2.0, "10": 8.0, "100": None},
        "low": {"1": 1.0, "10": 7.0},
        "high": {"1": 3.0, "10": 9.0},
    }
    data = {"lines": {"FedAvg": {"in": line, "out": line}}, "bound": 9.97, "baseline": 1.44}
    chart = draw(Figure("exposure", "Exposure", data))
    assert [(key.label, key.dashes) for key in chart.keys] == [
        ("FedAvg, in training", ""),
        ("FedAvg, out of training", "5 3"),
    ]
    assert "FedAvg in: 1 times 2, 10 times 8" in chart.svg
    assert "the bound, 9.97 bits, and uniform ranks, 1.44 bits" in chart.note
