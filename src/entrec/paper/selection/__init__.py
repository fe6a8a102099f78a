"""Which number, read without labels, tells which encoder is best? Many runs, good and failed, and their linear probes."""

from entrec.paper.selection.runner import Where, make
from entrec.paper.selection.study import Study, render

__all__ = ["Study", "Where", "make", "render"]
