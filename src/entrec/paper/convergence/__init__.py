"""The paper's Appendix A as an experiment: how far each estimator is from the truth, against k, d and h.

    entrec paper convergence --quick --out DIR     under a minute on two cores
    entrec paper convergence --out DIR             about twenty minutes on two cores, four on a GPU (--device cuda)

Samples come from distributions whose entropy is known: uniform and von Mises-Fisher on the sphere, Gaussian, categorical,
Dirichlet codes. Every measured bias and variance stands beside the paper's rate and, where it exists, a closed form.
"""

from entrec.paper.convergence.reading import read
from entrec.paper.convergence.study import Study, render, run, write

__all__ = ["Study", "read", "render", "run", "write"]
