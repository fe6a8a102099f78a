"""The paper's tables on identifiability, cell by cell, beside its own numbers."""

from entrec.paper.identifiability.grid import QUICK, Cell, Scale, cells, kept, make
from entrec.paper.identifiability.published import TableName
from entrec.paper.identifiability.render import render

__all__ = ["QUICK", "Cell", "Scale", "TableName", "cells", "kept", "make", "render"]
