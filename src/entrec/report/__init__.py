"""Runs side by side on one page."""

from entrec.report.page import write_report

__all__ = ["write_report"]
