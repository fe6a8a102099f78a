"""The paper's experiments that are grids of runs: one pool of runs, and a table and figures for each name.

    entrec paper resilience --preset quick --out DIR      two minutes on two cores: shows that all is wired
    entrec paper resilience --preset cifar10 --out DIR    ResNet-18, 25 epochs, 3 seeds: for a GPU
    entrec paper resilience --out DIR --render            the table again, from the runs that are there

A run that serves several names is made once: all lie in DIR/runs, each in a folder whose name says what in it differs from the
preset's base.
"""

from entrec.paper.grid.experiment import Experiment, Found
from entrec.paper.grid.names import EXPERIMENTS, names_of
from entrec.paper.grid.presets import PRESETS, Preset
from entrec.paper.grid.study import LostError, begin, preset_of, render

__all__ = ["EXPERIMENTS", "PRESETS", "Experiment", "Found", "LostError", "Preset", "begin", "names_of", "preset_of", "render"]
