"""Accuracy beside a neighbour's: lightly's CIFAR-10 benchmark by its own protocol, and with ER in place of each loss."""

from entrec.paper.neighbours.grid import Where, cells, make
from entrec.paper.neighbours.study import render

__all__ = ["Where", "cells", "make", "render"]
