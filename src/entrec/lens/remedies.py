"""What usually helps: by the verdict, by the method, and by whether entropy is in the loss already."""

from collections.abc import Mapping
from typing import NamedTuple


class Objective(NamedTuple):
    """What a representation was trained with, as far as that is known.

    Args:
        method: whose own remedies are named too; empty: any.
        er: the ER objective is in the method's loss's place, so that it is no remedy any more.
    """

    method: str = ""
    er: bool = False


_REMEDIES: Mapping[str, Mapping[str, str]] = {
    "collapsed": {
        "": "Train with entropy in the loss (the ER objective; entrec train --er), which keeps data apart; or lower the "
        "learning rate.",
        "byol": "Use a slower teacher (--ema 0.99 or more), a predictor that keeps up (--set predictor_rate=10), or --er.",
        "dino": "Keep centring on, lower teacher_temperature (0.04) or raise the EMA (0.996); or --er.",
        "swav": "Lower epsilon (0.05 to 0.03), use a queue if batches have fewer rows than prototypes, or --er.",
        "deepcluster": "Draw batches evenly over clusters (the default), cluster more often, or --er.",
        "moco": "Use a slower key encoder (--ema 0.99 or more) and a lower learning rate; or --er.",
    },
    "uninformative": {
        "": "Check that both views come from the same datum, row by row. Then: a higher learning rate, weaker augmentations, a "
        "lower temperature (a higher kappa).",
        "dino": "A loss that stays at ln(codes) is this: lower teacher_temperature, so that targets sharpen, warm up longer, "
        "or use fewer codes.",
        "swav": "A loss that stays at ln(prototypes) is this: lower epsilon and temperature, freeze prototypes for the first "
        "steps, or use fewer prototypes.",
        "deepcluster": "A loss that stays at ln(clusters) is this: lower the temperature, or use fewer clusters.",
        "simclr": "A loss that stays at ln(2 x batch - 1) is this: raise the learning rate, or lower the temperature.",
    },
    "weak": {
        "": "At the beginning of training this is usual. Later: more steps (smaller batches, more epochs), a higher learning "
        "rate, or a lower temperature (a higher kappa).",
    },
    "low rank": {
        "": "Judge and use the encoder's output rather than the head's. For more directions: more entropy (--er, or a smaller "
        "weight of the reconstruction), a wider head, BatchNorm in it, or stronger augmentations.",
    },
    "early": {
        "": "Go on: where a batch is nearly all data, an epoch is few steps. More epochs make more of them, and so do smaller "
        "batches (--batch-size).",
    },
    "saturated": {
        "": "Look at more data: InfoNCE cannot pass ln(rows). Where ER is at its ceiling, a higher kappa sees finer detail.",
    },
    "diverging": {
        "": "Train again with a lower learning rate, a longer warm-up, or in float32; from the last good checkpoint only where "
        "the trainer lets these change, which entrec train --resume does not.",
    },
}  # fmt: skip

# In the place of those above where ER is trained with: its loss is minus the bound, and is 0 where the others' is ln K.
_WITH_ER: Mapping[str, Mapping[str, str]] = {
    "collapsed": {
        "": "Entropy is in the loss already: let it count for more by a smaller weight of the reconstruction (--weight 0.5), "
        "estimate it better by a larger batch, or lower the learning rate (--rate).",
        "byol": "Use a slower teacher (--ema 0.99 or more), or a predictor that keeps up (--set predictor_rate=10).",
        "dino": "Raise the EMA (0.996); for codes also keep centring on and lower teacher_temperature (0.04).",
        "swav": "Lower epsilon (0.05 to 0.03), or use a queue if batches have fewer rows than prototypes.",
        "deepcluster": "Draw batches evenly over clusters (the default), or cluster more often.",
        "moco": "Use a slower key encoder (--ema 0.99 or more) and a lower learning rate.",
    },
    "uninformative": {
        "dino": "A bound that stays at 0 is this: lower teacher_temperature, so that targets sharpen, warm up longer, or use "
        "fewer codes.",
        "swav": "A bound that stays at 0 is this: lower epsilon and temperature, freeze prototypes for the first steps, or use "
        "fewer prototypes.",
        "deepcluster": "A bound that stays at 0 is this: lower the temperature, or use fewer clusters.",
        "simclr": "A bound that stays at 0 is this: raise the learning rate, or kappa.",
    },
    "low rank": {
        "": "Judge and use the encoder's output rather than the head's. For more directions: more entropy (a smaller weight of "
        "the reconstruction, as --weight 0.5), a wider head, BatchNorm in it, or stronger augmentations.",
    },
}  # fmt: skip


def remedies(verdict: str, of: Objective) -> tuple[str, ...]:
    """What usually helps against what a verdict names, the method's own first; nothing where nothing is wrong.

    >>> remedies("collapsed", Objective("byol", er=True))[0]
    'Use a slower teacher (--ema 0.99 or more), or a predictor that keeps up (--set predictor_rate=10).'
    """
    known = {**_REMEDIES.get(verdict, {}), **(_WITH_ER.get(verdict, {}) if of.er else {})}
    return tuple(known[key] for key in dict.fromkeys((of.method.lower(), "")) if key in known)
