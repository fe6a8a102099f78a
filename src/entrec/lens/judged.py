"""From what a network gave to readings and a verdict, whatever it gave: in training, rows may be no numbers."""

import torch
from torch import Tensor

from entrec.lens.readings import CodeReadings, Readings, look, look_at_codes
from entrec.lens.verdict import Verdict, diagnose, diverging


def judged(
    views: tuple[Tensor, ...], codes: bool, kappa: float, method: str, er: bool = False
) -> tuple[Readings | CodeReadings | None, Verdict | None]:
    """The readings of the rows that can be used, and the verdict; neither of a single row.

    Args:
        views: of one view or two, (k, d) each.
        codes: they are logits of codes: all zero is an even guess then, and else no direction.
        kappa: of the kernel.
        method: whose remedies are named too.
        er: it trains with the ER objective, which is no remedy then.
    """
    usable = torch.stack([x.isfinite().all(dim=1) & ((x != 0).any(dim=1) | codes) for x in views]).all(dim=0)
    rows, broken = len(usable), int((~usable).sum())
    if rows - broken < 2:
        return None, diverging(broken, rows, method) if broken else None
    kept = [x[usable] for x in views]
    readings = look_at_codes(*(x.double().softmax(dim=1) for x in kept)) if codes else look(*kept, kappa=kappa)
    return readings, diagnose(readings, method, broken, er=er)
