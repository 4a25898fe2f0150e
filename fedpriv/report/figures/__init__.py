"""The pictures of a report: curves and bars, the partition, a page with its entities.

`Chart.svg` alone is markup, and holds numbers only: every name that comes from a run stands in the
HTML around it, where Jinja2 escapes it. The partition and the page's rectangles are plain geometry,
which the template draws.
"""

from fedpriv.report.figures.answers import answer_marks, answer_rows
from fedpriv.report.figures.charts import OFF_SCALE, Chart, line_chart, small_chart, stacked_chart
from fedpriv.report.figures.drawing import draw
from fedpriv.report.figures.entities import entity_rows, page_marks, spans
from fedpriv.report.figures.partition import client_order, partition_bars

__all__ = [
    "OFF_SCALE",
    "Chart",
    "answer_marks",
    "answer_rows",
    "client_order",
    "draw",
    "entity_rows",
    "line_chart",
    "page_marks",
    "partition_bars",
    "small_chart",
    "spans",
    "stacked_chart",
]
