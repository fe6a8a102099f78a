"""Does maximising the bound find the latents that data were made of? The paper's Appendix C as a laboratory.

from entrec.identifiability import Setting, identify
identify(Setting(space="sphere", conditional="vmf:10", objective="er", steps=1000)).r2
"""

from entrec.identifiability.content_style import ContentStyle, Isolation, isolate
from entrec.identifiability.experiment import Experiment
from entrec.identifiability.lab import Point, Result, Setting, identify
from entrec.identifiability.latents import Latents
from entrec.identifiability.networks import Encoder, Mixing
from entrec.identifiability.objectives import er_loss, infonce_loss
from entrec.identifiability.scores import mcc, nonlinear_r2, r2
from entrec.identifiability.spaces import Box, Space, Sphere, Unbounded

__all__ = [
    "Box",
    "ContentStyle",
    "Encoder",
    "Experiment",
    "Isolation",
    "Latents",
    "Mixing",
    "Point",
    "Result",
    "Setting",
    "Space",
    "Sphere",
    "Unbounded",
    "er_loss",
    "identify",
    "infonce_loss",
    "isolate",
    "mcc",
    "nonlinear_r2",
    "r2",
]
