"""What a user should know of a run, shown or warned of."""

import warnings

from lightning.fabric import Fabric
from rich.console import Console

from entrec.saying import show_line
from entrec.training.assemble import Parts


def notices(parts: Parts, fabric: Fabric) -> list[str]:
    """What the user should know before it starts; those that begin with `warning` also without a console."""
    source, settings = parts.source, parts.settings
    n = len(source.train)  # type: ignore[arg-type]
    has_one = getattr(parts.method, "queue", None) is not None  # MoCo with ER has none
    queue = settings.options.get("queue", 0) if has_one else 0
    found = [
        f"{source.name}: {source.described}; {settings.method}{' + ER' if settings.er else ''}, {settings.backbone}, "
        f"views of {settings.image_size} pixels, batch {settings.batch_size}"
    ]
    found += [f"warning: {notice}" for notice in source.notices]
    found += [parts.augment.notice] if parts.augment.notice else []
    found += [f"warning: skipped an unreadable image: {name}" for name in getattr(source.train, "skipped", ())]
    takes = settings.options.get("views", settings.entry.views)
    if source.views > takes:
        found.append(f"warning: {settings.method} takes the first {takes} of a sample's {source.views} views; cmc takes all")
    if queue > n:
        found.append(
            f"warning: the queue holds {queue} keys but the data set {n} images, so an image meets itself there "
            f"as a negative; with fewer, as by --set queue={n // 2}, seldom"
        )
    if fabric.world_size > 1 and fabric.device.type == "cpu":
        found.append("BatchNorm's statistics are each process's own: PyTorch synchronises them on GPUs only")
    return found


def tell(notice: str, shown: Console | None, warns: bool) -> None:
    """Show a notice; where there is no console, warn of it if this process is the one that does."""
    if shown is not None:
        show_line(notice, shown)
    elif warns and notice.startswith("warning: "):
        warnings.warn(notice.removeprefix("warning: "), stacklevel=4)
