"""`entrec.train`: from a method's name to a run on disk."""

import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from lightning.fabric import Fabric
from rich.console import Console
from torch.utils.data import Dataset

from entrec.data import NAMES, Source, open_source
from entrec.data.folder import is_run
from entrec.files import require_writable
from entrec.training.assemble import Parts, assemble
from entrec.training.claim import refuse_taken, training_alone
from entrec.training.devices import fabric_for
from entrec.training.epoch import epoch_row
from entrec.training.finish import finish, finish_diverged
from entrec.training.held_out import views_of
from entrec.training.log import Log
from entrec.training.loop import DivergedError, Loop
from entrec.training.notices import notices, tell
from entrec.training.presets import with_preset
from entrec.training.refusals import check_fit
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
        config: a YAML file of settings; what is given here goes before it, and it before a preset.
        resume: go on with the run in `out`, whose settings stand in its config.yaml.
        overwrite: replace the run in `out`.
        console: where to show progress; None for silence.
        **given: any of `entrec.training.Settings` and of the method's options: er, epochs, batch_size, ema, kappa, ...;
            `preset="lightly"` begins from the settings of lightly's CIFAR-10 benchmark instead of our defaults.

    Returns:
        The run: its folder, settings, metrics and summary.

    Raises:
        BlockingIOError: another process trains in `out`.

    Example:
        >>> import entrec
        >>> run = entrec.train("byol", er=True, data="shapes", epochs=20)  # doctest: +SKIP
        >>> run.summary["knn_top1"]  # doctest: +SKIP
    """
    from_file = read_config(Path(config)) if config is not None else {}
    if from_file.pop("method", method) != method:
        raise ValueError(f"{config} is for another method than {method}")
    given = {**from_file, **given, **({} if data is None else {"data": data})}
    if not resume:  # whose config.yaml says what came of the preset
        given = with_preset(method, given)
    if "data" in given:
        given["data"] = _named(given["data"])
    if resume and overwrite:
        raise ValueError("resume (--resume) goes on with a run and overwrite (--overwrite) replaces it: ask for one of them")
    folder = Path(out) if out is not None else Path("runs") / _folder_name(method, given)
    run = Run(folder)
    if resume:
        given = as_before(run, method, given)
    wanted = settings(method, given)
    if wanted.wandb and find_spec("wandb") is None:
        raise ValueError("wandb=True needs Weights & Biases: pip install wandb")
    if not resume:
        _require_free(folder, overwrite)
    held = data if data is not None and not isinstance(data, str | Path) else wanted.data
    fabric = fabric_for(wanted)
    with training_alone(folder, fabric):
        if not resume:  # once more: until now another process could have begun, and ended, a run there
            _require_free(folder, overwrite)
        return _train(fabric, wanted, held, run, resume, overwrite, console)


def _train(
    fabric: Fabric, wanted: Settings, data: Any, run: Run, resume: bool, overwrite: bool, console: Console | None
) -> Run:
    shown = console if fabric.is_global_zero else None
    source = _opened(wanted, data, fabric)
    parts = assemble(wanted, source)
    check_fit(parts, fabric.world_size)
    loop = Loop(fabric, parts, run)
    if resume:
        restore(loop, source)
    elif fabric.is_global_zero:
        _begin(run, parts, overwrite)
    fabric.barrier()
    for notice in notices(parts, fabric):
        tell(notice, shown, warns=fabric.is_global_zero)
    log = Log(run.folder, loop.total, loop.place.step, shown, wanted.wandb) if fabric.is_global_zero else None
    try:
        _train_on(loop, log, shown)
        if fabric.is_global_zero:
            finish(loop, shown)  # no barrier behind it: scores of a large data set take longer than a collective may
    except KeyboardInterrupt:
        there = f"--resume goes on from {run.checkpoint}" if run.checkpoint.is_file() else "there is no checkpoint yet"
        tell(f"stopped after {loop.place.step} of {loop.total} steps; {there}", shown, warns=False)
        raise
    return run


def _train_on(loop: Loop, log: Log | None, shown: Console | None) -> None:
    """To the last epoch, or to where the run ends before it."""
    try:
        if not _ends_here(loop, shown):  # as an earlier sitting may have seen, and been killed before it had finished
            _epoch_by_epoch(loop, log, shown)
        loop.writer.wait()
        loop.fabric.barrier()  # on all ranks the run's last checkpoint is there when `train` returns
    finally:
        try:
            if log is not None:
                log.close()
        finally:
            loop.writer.wait()  # however the run ends, its last checkpoint is there


def _epoch_by_epoch(loop: Loop, log: Log | None, shown: Console | None) -> None:
    wanted = loop.settings
    every = wanted.evaluate_every or 1
    for epoch in _epochs(loop, log):
        if log is not None and ((epoch + 1) % every == 0 or epoch >= wanted.epochs - wanted.evaluate_last):
            epoch_row(loop, log, epoch)
        # The others must not enter the next step's collectives, which time out, before the first rank has its score.
        loop.fabric.barrier()
        if _ends_here(loop, shown):
            loop.save()
            break


def _epochs(loop: Loop, log: Log | None) -> Iterator[int]:
    """The epochs as they end; a run that diverges says so in its folder too."""
    try:
        yield from loop.fit(log)
    except DivergedError:
        if loop.fabric.is_global_zero:
            finish_diverged(loop)
        raise


def _ends_here(loop: Loop, shown: Console | None) -> bool:
    """Whether the run ends at this epoch's end, before its last; all processes hear it, and the user why."""
    fabric, wanted, place = loop.fabric, loop.settings, loop.place
    if place.batch > 0 or not (wanted.on_collapse == "stop" or wanted.patience):
        return False
    why: str = fabric.broadcast(_reason_to_stop(loop))
    if why:
        tell(f"warning: stopped after {place.epoch} epochs, as {why}", shown, warns=fabric.is_global_zero)
    return bool(why)


def _reason_to_stop(loop: Loop) -> str:
    """Why the run should end here; nothing where it should not."""
    if loop.settings.on_collapse == "stop" and loop.looks.failed:
        return "the lens saw a collapse, or no numbers, twice in a row, and no rise of the bound"
    seen = views_of(loop.parts.source)
    return f"the ER bound on {seen} has not risen for {loop.settings.patience} looks" if loop.looks.stale else ""


def _opened(wanted: Settings, data: Any, fabric: Fabric) -> Source:
    """The data, opened by the first rank before the others, since it may have to download them."""
    if not fabric.is_global_zero:
        fabric.barrier()
    try:
        return open_source(
            data, image_size=wanted.image_size, root=wanted.root, labels=wanted.labels, strict=wanted.strict, seed=wanted.seed
        )
    finally:  # also where it fails: the others are to say so too, and not to wait
        if fabric.is_global_zero:
            fabric.barrier()


def _begin(run: Run, parts: Parts, overwrite: bool) -> None:
    if overwrite:
        for name in _WRITTEN:
            path = run.folder / name
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    run.checkpoint.parent.mkdir(parents=True, exist_ok=True)  # by which it is known as a run, also before its first checkpoint
    write_config(run, parts.settings.flat())


def _require_free(folder: Path, overwrite: bool) -> None:
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"{folder} is a file; the run needs a folder")
    require_writable(folder)
    if not folder.exists() or not any(folder.iterdir()):
        return
    if not overwrite:
        refuse_taken(folder)
        raise FileExistsError(
            f"{folder} is not empty; resume=True (--resume) goes on with the run there, overwrite=True (--overwrite) replaces "
            "it, or choose another folder"
        )
    if not is_run(folder):
        raise FileExistsError(
            f"{folder} holds files and is no run of entrec's, so it is not overwritten: choose another folder"
        )


def _named(data: Any) -> str:
    """Data as config.yaml names them: paths in full, and what has no name of its own in angle brackets."""
    if not isinstance(data, str | Path):
        return f"<{getattr(data, 'name', type(data).__name__)}>"
    path = Path(data).expanduser()
    return str(path.resolve()) if str(data) not in ("", *NAMES) and path.exists() else str(data)


def _folder_name(method: str, given: dict[str, Any]) -> str:
    data = Path(str(given.get("data", "shapes"))).name.split(".")[0].strip("<>") or "data"
    return f"{method}{'-er' if given.get('er') else ''}-{data}"
