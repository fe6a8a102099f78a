"""`entrec.train`: from a method's name to a run on disk."""

import os
import shutil
import time
from pathlib import Path
from typing import Any

import torch
from lightning.fabric import Fabric
from lightning.fabric.strategies.ddp import DDPStrategy
from rich.console import Console
from torch.utils.data import Dataset

from entrec.data import Source, open_source
from entrec.training import checkpoint
from entrec.training.assemble import Parts, assemble
from entrec.training.finish import finish
from entrec.training.log import Log, in_words
from entrec.training.loop import Loop
from entrec.training.run import Run, open_run, write_config
from entrec.training.settings import Settings, read_config, settings

# What may change when a run goes on: how it is computed and shown, not what.
_MAY_CHANGE = {"device", "devices", "workers", "log_every", "evaluate_every", "checkpoint_every", "wandb", "strict", "compile"}
_WRITTEN = ("config.yaml", "metrics.csv", "summary.json", "encoder.safetensors", "report.html", "checkpoints", "tensorboard")


def train(
    method: str,
    *,
    data: str | Path | Dataset[Any] | Source = "shapes",
    out: str | Path | None = None,
    config: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    console: Console | None = None,
    **given: Any,
) -> Run:
    """Train an encoder by one of the paper's methods, with its own loss or with ER in its place.

    Args:
        method: simclr, cmc, ir, moco, deepcluster, swav, byol or dino.
        data: a name, a folder of images, an archive of one, or a map-style data set whose items are images, or tuples of views.
        out: the run's folder; by default runs/METHOD[-er]-DATA.
        config: a YAML file of settings; what is given here goes before it.
        resume: go on with the run in `out`, whose settings stand in its config.yaml.
        overwrite: replace the run in `out`.
        console: where to show progress; None for silence.
        **given: any of `entrec.training.Settings` and of the method's options: er, epochs, batch_size, ema, kappa, ...

    Returns:
        The run: its folder, settings, metrics and summary.

    Example:
        >>> import entrec
        >>> run = entrec.train("byol", er=True, data="shapes", epochs=20)  # doctest: +SKIP
        >>> run.summary["knn_top1"]  # doctest: +SKIP
    """
    named = data if isinstance(data, str | Path) else f"<{getattr(data, 'name', type(data).__name__)}>"
    from_file = read_config(Path(config)) if config is not None else {}
    if from_file.pop("method", method) != method:
        raise ValueError(f"{config} is for another method than {method}")
    given = {**from_file, **given, **({"data": str(named)} if "data" not in from_file or data != "shapes" else {})}
    folder = Path(out) if out is not None else Path("runs") / _folder_name(method, given)
    run = Run(folder)
    if resume:
        given = _as_before(run, method, given)
    wanted = settings(method, given)
    if not resume:
        _require_free(folder, overwrite)
    return _train(wanted, data if not isinstance(data, str | Path) else wanted.data, run, resume, overwrite, console)


def _train(wanted: Settings, data: Any, run: Run, resume: bool, overwrite: bool, console: Console | None) -> Run:
    fabric = fabric_for(wanted)
    shown = console if fabric.is_global_zero else None
    source = open_source(data, image_size=wanted.image_size, labels=wanted.labels, strict=wanted.strict, seed=wanted.seed)
    parts = assemble(wanted, source)
    _check_fit(parts, fabric.world_size)
    loop = Loop(fabric, parts, run)
    if resume:
        before = checkpoint.load(run.checkpoint)
        _same_run(before.config, parts.settings.flat())
        loop.restore(before.place, before.parts)
    elif fabric.is_global_zero:
        _begin(run, parts, overwrite)
    fabric.barrier()
    for notice in _notices(parts, fabric):
        if shown is not None:
            shown.print(notice, highlight=False)
    begin = time.perf_counter()
    log = Log(run.folder, loop.total, loop.place.step, shown, wanted.wandb) if fabric.is_global_zero else None
    try:
        for epoch in loop.fit(log):
            last = epoch + 1 == wanted.epochs
            if fabric.is_global_zero and log is not None and (last or (epoch + 1) % wanted.evaluate_every == 0):
                _epoch_row(loop, log, epoch)
            fabric.barrier()
    finally:
        if log is not None:
            log.close()
    if fabric.is_global_zero:
        finish(loop, time.perf_counter() - begin, shown)
    fabric.barrier()
    return run


def fabric_for(wanted: Settings) -> Fabric:
    """Lightning's Fabric for the device, ranks and precision that are asked for, launched.

    Raises:
        ValueError: the device is not there.
    """
    device = wanted.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device not in ("cpu", "cuda"):
        raise ValueError(f"device must be auto, cpu or cuda, got {wanted.device!r}")
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError("device='cuda' needs a GPU that PyTorch can use, and there is none; device='cpu' works")
    if device == "cuda" and wanted.devices > torch.cuda.device_count():
        raise ValueError(f"devices={wanted.devices} needs as many GPUs, and there are {torch.cuda.device_count()}")
    halves = wanted.precision or ("bf16" if device == "cuda" and torch.cuda.is_bf16_supported() else "32")
    several = wanted.devices > 1 or int(os.environ.get("WORLD_SIZE", "1")) > 1
    # Buffers are not broadcast: SyncBatchNorm keeps statistics equal, and queues and banks are equal by how they are filled.
    strategy: Any = DDPStrategy(broadcast_buffers=False) if several else "auto"
    devices = int(os.environ["LOCAL_WORLD_SIZE"]) if "LOCAL_WORLD_SIZE" in os.environ else wanted.devices
    precision: Any = {"bf16": "bf16-mixed", "32": "32-true"}[halves]
    fabric = Fabric(accelerator=device, devices=devices, strategy=strategy, precision=precision)
    fabric.launch()
    return fabric


def _epoch_row(loop: Loop, log: Log, epoch: int) -> None:
    top1 = loop.knn()
    row: dict[str, float] = {"step": loop.place.step, "epoch": epoch}
    if top1 is not None:
        row["knn_top1"] = top1
        log.row(row, loop.settings.epochs)
    recent = [x for x in loop.run.metrics if x["epoch"] == epoch]
    latest = {key: value for x in recent for key, value in x.items()}
    log.say(f"epoch {epoch + 1:>3}  {in_words(latest)}")


def _begin(run: Run, parts: Parts, overwrite: bool) -> None:
    if overwrite:
        for name in _WRITTEN:
            path = run.folder / name
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    run.folder.mkdir(parents=True, exist_ok=True)
    write_config(run, parts.settings.flat())


def _require_free(folder: Path, overwrite: bool) -> None:
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"{folder} is a file; the run needs a folder")
    if overwrite or not folder.exists() or not any(folder.iterdir()):
        return
    raise FileExistsError(f"{folder} is not empty; resume=True goes on with it, overwrite=True replaces it, or choose another")


def _as_before(run: Run, method: str, given: dict[str, Any]) -> dict[str, Any]:
    """The settings of the run that goes on; those given again must be the same, unless they do not change the result."""
    before = open_run(run.folder).config
    if before.pop("method") != method:
        raise ValueError(f"the run in {run.folder} is of another method than {method}; see its config.yaml")
    for key, value in given.items():
        if key in _MAY_CHANGE or (key == "data" and value == "shapes"):
            continue
        if key in before and before[key] != value:
            raise ValueError(f"the run in {run.folder} has {key} = {before[key]}, and cannot go on with {value}")
        if key not in before:
            raise ValueError(f"the run in {run.folder} has no {key}")
    return {**before, **{key: value for key, value in given.items() if key in _MAY_CHANGE}}


def _same_run(checkpointed: dict[str, Any], wanted: dict[str, Any]) -> None:
    different = [key for key in wanted if key not in _MAY_CHANGE and checkpointed.get(key) != wanted[key]]
    if different:
        raise ValueError(f"the checkpoint is of another run: {', '.join(different)} differ from config.yaml")


def _check_fit(parts: Parts, ranks: int) -> None:
    n, settings = len(parts.source.train), parts.settings  # type: ignore[arg-type]
    if settings.batch_size % ranks:
        raise ValueError(f"batch_size must be a multiple of the {ranks} devices, got {settings.batch_size}")
    if settings.batch_size > n:
        raise ValueError(f"batch_size {settings.batch_size} is larger than the data set, which has {n} images")


def _notices(parts: Parts, fabric: Fabric) -> list[str]:
    """What the user should know before it starts."""
    n, options = len(parts.source.train), parts.settings.options  # type: ignore[arg-type]
    found = [parts.augment.notice] if parts.augment.notice else []
    if options.get("queue", 0) > n:
        found.append(
            f"warning: the queue holds {options['queue']} keys but the data set {n} images, so an image can meet itself there "
            f"as a negative; --set queue={n // 2} would not"
        )
    if fabric.world_size > 1 and fabric.device.type == "cpu":
        found.append("BatchNorm's statistics are each process's own: PyTorch synchronises them on GPUs only")
    return found


def _folder_name(method: str, given: dict[str, Any]) -> str:
    data = Path(str(given["data"])).name.split(".")[0].strip("<>") or "data"
    return f"{method}{'-er' if given.get('er') else ''}-{data}"
