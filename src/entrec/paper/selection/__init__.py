"""Which number, read without labels, tells which encoder is best? Many runs, good and failed, and their linear probes."""

from entrec.paper.selection.study import Study, render, run

__all__ = ["Study", "render", "run"]
