"""Runs side by side on one page."""

from entrec.report.page import write_report
from entrec.report.report import report

__all__ = ["report", "write_report"]
