"""Settings, data and devices that do not fit each other, refused before a run begins."""

from entrec.training.assemble import Parts
from entrec.training.settings import Settings


def check_fit(parts: Parts, ranks: int) -> None:
    """Refuse a batch that the data set or the devices cannot make, and options that need more of either.

    Raises:
        ValueError: what does not fit, and what would.
    """
    n, settings = len(parts.source.train), parts.settings  # type: ignore[arg-type]
    assert settings.batch_size is not None  # filled in by `assemble`
    if settings.batch_size % ranks:
        raise ValueError(f"batch_size must be a multiple of the {ranks} devices, got {settings.batch_size}")
    if settings.batch_size > n:
        raise ValueError(f"batch_size {settings.batch_size} is larger than the data set, which has {n} images")
    if settings.options.get("clusters", 0) > n:
        raise ValueError(f"clusters must be at most the {n} images of the data set, got {settings.options['clusters']}")
    check_splits(settings, ranks)


def check_splits(settings: Settings, ranks: int) -> None:
    """Refuse BatchNorm over parts of a batch where there are none: over several devices, or without a key branch."""
    splits = settings.options.get("splits", 1)
    if splits == 1:
        return
    if ranks > 1:
        raise ValueError(f"splits={splits} is for one device: BatchNorm over {ranks} would be synchronised, and see no parts")
    if settings.options.get("ema") is None:
        raise ValueError(
            f"splits={splits} needs a key branch of its own, whose parts are others: ema must be a number, got none"
        )
    assert settings.batch_size is not None  # filled in by `assemble`
    if settings.batch_size % splits:
        raise ValueError(f"batch_size must be a multiple of the {splits} splits of BatchNorm, got {settings.batch_size}")
