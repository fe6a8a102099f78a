"""The rate as a pure function of the step, so that a run which resumes cannot shift it."""

import math

from entrec import checks


def epochs_between(epochs: int, images: int, evaluation: int) -> int:
    """Epochs between two evaluations, so that these take about 2 % of training, or ten of them in a run if that is more.

    Args:
        epochs: of the run.
        images: of an epoch, each of which costs as much as six that pass forward: two views, forward and backward.
        evaluation: images that an evaluation passes forward.

    Example:
        >>> epochs_between(100, 50_000, 24_096)  # CIFAR-10
        5
    """
    return max(1, min(math.ceil(evaluation / (0.02 * 6 * images)), epochs // 10))


def warmup_cosine(step: int, warmup_steps: int, total_steps: int, floor: float = 0.0) -> float:
    r"""The rate at a step, as a factor of the peak rate: linear up to 1, then half a cosine down to the floor.

    .. math:: f(s) = \frac{s + 1}{w} \; (s < w), \qquad
        f(s) = \phi + (1 - \phi) \frac{1 + \cos(\pi t)}{2}, \; t = \frac{s - (w - 1)}{T - w} \; (s \ge w)

    The peak, 1, is the last step of the warm-up, or step 0 without one. One cosine, without restarts (Loshchilov and Hutter,
    2017), reaches the floor at the last step, T - 1, and the factor stays there afterwards.

    Args:
        step: s, the number of optimizer steps taken before this one.
        warmup_steps: w, at most `total_steps`.
        total_steps: T, of the whole run.
        floor: phi, the factor at the end, from 0 to 1.

    Example:
        >>> [round(warmup_cosine(step, 2, 6), 3) for step in range(6)]
        [0.5, 1.0, 0.854, 0.5, 0.146, 0.0]
    """
    step = checks.whole("step", step, at_least=0)
    total_steps = checks.whole("total_steps", total_steps, at_least=1)
    warmup_steps = checks.whole("warmup_steps", warmup_steps, at_least=0)
    if warmup_steps > total_steps:
        raise ValueError(f"warmup_steps must be at most total_steps, got {warmup_steps} and {total_steps}")
    if not 0 <= floor <= 1:
        raise ValueError(f"floor must be from 0 to 1, got {floor}")
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    peak, last = max(warmup_steps - 1, 0), total_steps - 1
    t = min((step - peak) / (last - peak), 1.0) if last > peak else float(step > last)
    return floor + (1 - floor) * (1 + math.cos(math.pi * t)) / 2


def scaled_rate(base_rate: float, batch_size: int) -> float:
    """The rate of a batch: `base_rate` is that of 256 data, and it grows in proportion (Goyal et al., 2017).

    Args:
        base_rate: the rate at a batch of 256, at least 0.
        batch_size: data per optimizer step, over all ranks and accumulated batches, each counted once whatever its views.

    Example:
        >>> scaled_rate(0.3, 4096)
        4.8
    """
    if not 0 <= base_rate < math.inf:
        raise ValueError(f"base_rate must be at least 0 and finite, got {base_rate}")
    return base_rate * checks.whole("batch_size", batch_size, at_least=1) / 256
