"""A run folder, told as one self-contained HTML page."""

from fedpriv.report.build import write_report

__all__ = ["write_report"]
