"""`entrec.train`: from a method's name to a run on disk."""

import shutil
from pathlib import Path
from typing import Any

from lightning.fabric import Fabric
from rich.console import Console
from torch.utils.data import Dataset

from entrec.data import Source, open_source
from entrec.training.assemble import Parts, assemble
from entrec.training.devices import fabric_for
from entrec.training.finish import finish
from entrec.training.log import Log, in_words
from entrec.training.loop import Loop
from entrec.training.resuming import as_before, restore
from entrec.training.run import Run, write_config
from entrec.training.settings import Settings, read_config, settings

_WRITTEN = ("config.yaml", "metrics.csv", "summary.json", "encoder.safetensors", "report.html", "checkpoints", "tensorboard")


def train(
    method: str,
    *,
    data: str | Path | Dataset[Any] | Source | None = None,
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
        data: a name, a folder of images, an archive of one, or a map-style data set whose items are images, or tuples of views;
            by default the rendered shapes.
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
    from_file = read_config(Path(config)) if config is not None else {}
    if from_file.pop("method", method) != method:
        raise ValueError(f"{config} is for another method than {method}")
    given = {**from_file, **given, **({} if data is None else {"data": _named(data)})}
    folder = Path(out) if out is not None else Path("runs") / _folder_name(method, given)
    run = Run(folder)
    if resume:
        given = as_before(run, method, given)
    wanted = settings(method, given)
    if not resume:
        _require_free(folder, overwrite)
    held = data if data is not None and not isinstance(data, str | Path) else wanted.data
    return _train(wanted, held, run, resume, overwrite, console)


def _train(wanted: Settings, data: Any, run: Run, resume: bool, overwrite: bool, console: Console | None) -> Run:
    fabric = fabric_for(wanted)
    shown = console if fabric.is_global_zero else None
    source = open_source(data, image_size=wanted.image_size, labels=wanted.labels, strict=wanted.strict, seed=wanted.seed)
    parts = assemble(wanted, source)
    _check_fit(parts, fabric.world_size)
    loop = Loop(fabric, parts, run)
    if resume:
        restore(loop, source)
    elif fabric.is_global_zero:
        _begin(run, parts, overwrite)
    fabric.barrier()
    for notice in _notices(parts, fabric):
        if shown is not None:
            shown.print(notice, highlight=False)
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
        finish(loop, shown)
    fabric.barrier()
    return run


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
    found += [f"skipped a corrupt image: {name}" for name in getattr(parts.source.train, "skipped", ())]
    if options.get("queue", 0) > n:
        found.append(
            f"warning: the queue holds {options['queue']} keys but the data set {n} images, so an image can meet itself there "
            f"as a negative; --set queue={n // 2} would not"
        )
    if fabric.world_size > 1 and fabric.device.type == "cpu":
        found.append("BatchNorm's statistics are each process's own: PyTorch synchronises them on GPUs only")
    return found


def _named(data: str | Path | Dataset[Any] | Source) -> str:
    """Data as config.yaml names them: what has no name of its own in angle brackets."""
    return str(data) if isinstance(data, str | Path) else f"<{getattr(data, 'name', type(data).__name__)}>"


def _folder_name(method: str, given: dict[str, Any]) -> str:
    data = Path(str(given.get("data", "shapes"))).name.split(".")[0].strip("<>") or "data"
    return f"{method}{'-er' if given.get('er') else ''}-{data}"
