"""Many runs, one folder each: made once, in a given order, some at a time, here or as jobs of a cluster."""

from entrec.paper.runner.cell import Cell, Data, Pool, opened
from entrec.paper.runner.local import Made, left, make, named
from entrec.paper.runner.notes import FAILED, MADE, Outcome, outcome

__all__ = ["FAILED", "MADE", "Cell", "Data", "Made", "Outcome", "Pool", "left", "make", "named", "opened", "outcome"]
