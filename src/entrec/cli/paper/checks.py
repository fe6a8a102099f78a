"""What is refused before any run is begun: each run would fail by it, or nobody would hear it."""

from entrec.cli.edge import require_device


def require_place(device: str, devices: int = 1) -> None:
    """Stop unless runs can be made on so many of these devices of this machine."""
    import torch

    if device not in ("auto", "cpu", "cuda"):
        raise ValueError(f"--device must be auto, cpu or cuda, got {device}")
    if device != "auto":
        require_device(device)
    there = 0 if device == "cpu" else torch.cuda.device_count()
    if devices > there > 0:
        raise ValueError(f"--devices {devices} needs as many GPUs, and there are {there}")


def require_all_images(devices: int, images: int | None, asked: bool) -> None:
    """Runs over several devices are commands of their own, which cannot be told to take only some images.

    Args:
        devices: of each run.
        images: that runs may take at the most; None for all.
        asked: whether the user said so, and not the preset.
    """
    if devices > 1 and images is not None:
        remedy = "leave out --images" if asked else f"take a preset of all images, as this one takes {images}"
        raise ValueError(f"--devices {devices}: runs over several devices train on all images: {remedy}, or take one device")


def require_heard(why: str, **options: object) -> None:
    """Refuse options that would change nothing.

    Args:
        why: they are not heard.
        **options: None, False or no words where they were not given.
    """
    given = [f"--{name}" for name, x in options.items() if x is not None and x is not False and x != []]
    if given:
        raise ValueError(f"{' and '.join(given)} would change nothing, as {why}: leave out one or the other")
