"""The end of a run: the encoder for other people's code, its scores, and the summary."""

import platform
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from statistics import fmean
from typing import Any

from rich.console import Console

from entrec.evaluation.scores import Evaluation, score_features
from entrec.lens.verdict import diverging
from entrec.saying import show_line
from entrec.training import checkpoint
from entrec.training.held_out import Look, views_of
from entrec.training.images import single
from entrec.training.loop import Loop
from entrec.training.run import write_summary
from entrec.training.runs import write_encoder

_MEASURED = (
    "entropy", "reconstruction", "er_bound", "samples_per_second", "held_out_entropy", "held_out_er_bound", "effective_rank",
)  # fmt: skip
_PACKAGES = ("entrec", "torch", "torchvision", "lightning", "timm")


def finish(loop: Loop, console: Console | None) -> None:
    """Write encoder.safetensors and summary.json, and show the scores."""
    run, seconds = loop.run, loop.elapsed()
    look = loop.looks.last(loop.place.epoch)  # before weights of another epoch may take the last one's place
    kept = _take_kept(loop)
    if kept != loop.place.epoch:
        look = loop.looks.again(kept)
    write_encoder(run, overwrite=True)
    found = evaluation(loop) if loop.settings.scores else None
    write_summary(run, _summary(loop, kept, look, found, seconds))
    views = views_of(loop.parts.source)
    if console is not None:
        for x in () if found is None else found.scores:
            console.print(f"{x.name} {x.accuracy:.1%}  ({x.protocol})", highlight=False, markup=False)
        if loop.settings.keep == "best-er":
            console.print(f"kept: {_kept_in_words(loop, kept)}", highlight=False, markup=False)
        if look is not None:
            said = f"lens, on the student's projections of {views}: {look.verdict.title}"
            console.print(said, highlight=False, markup=False)
        if loop.skipped:
            some = "1 unreadable image was" if len(loop.skipped) == 1 else f"{len(loop.skipped)} unreadable images were"
            show_line(f"{some} skipped; summary.json says which and why", console)
        show_line(f"{seconds:.0f} s. The run is in {run.folder}, its encoder in encoder.safetensors", console)


def finish_diverged(loop: Loop) -> None:
    """Write the summary of a run that ended because its numbers were none any more; its last good checkpoint stays."""
    rows = loop.settings.batch_size or 0
    look = Look(None, diverging(rows, rows, loop.settings.method))
    write_summary(loop.run, _summary(loop, loop.place.epoch, look, None, loop.elapsed()))


def _summary(loop: Loop, kept: int, look: Look | None, found: Evaluation | None, seconds: float) -> dict[str, Any]:
    """Of the encoder that was kept: scores, rows of its last epoch, and what the lens said of it."""
    settings = loop.settings
    rows = [row for row in loop.run.metrics if row["epoch"] == kept - 1]
    return {
        "method": settings.method,
        "preset": settings.preset,
        "objective": "er" if settings.er else "own",
        "dataset": loop.parts.source.name,
        "looked_at": "train" if loop.parts.source.test is None else "test",  # the split that `held_out...` is read off
        "epochs": loop.place.epoch,
        "batch_size": settings.batch_size,
        "ema": settings.options.get("ema"),
        "seed": settings.seed,
        "knn_top1": None if found is None else found.knn.accuracy,
        **_best_knn(loop.run.metrics),
        "linear_top1": None if found is None else found.linear.accuracy,
        **{key: _mean(key, rows) for key in _MEASURED},
        "infonce_bound": _mean("held_out_infonce_bound", rows),
        "kept_epochs": kept,
        "held_out": None if look is None or look.readings is None else asdict(look.readings),
        "verdict": None if look is None else look.verdict.name,
        "diagnosis": None if look is None else asdict(look.verdict),
        "verdicts": [{"epochs": epochs, "verdict": name} for epochs, name, _ in loop.looks.noted],
        "protocols": [] if found is None else [f"{x.name}: {x.protocol}" for x in found.scores],
        "few_labels": {} if found is None else {x.name: x.accuracy for x in found.few},
        "skipped": sorted(loop.skipped),
        "wall_seconds": seconds,
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in _PACKAGES}},
    }


def _best_knn(rows: list[dict[str, float]]) -> dict[str, float | None]:
    """The highest kNN score during training, and after how many epochs it was: chosen on the test split, so no estimate."""
    scored = [(row["knn_top1"], -row["epoch"]) for row in rows if "knn_top1" in row]
    best, epoch = max(scored) if scored else (None, 0.0)
    return {"knn_best": best, "knn_best_epochs": None if best is None else int(1 - epoch)}


def _take_kept(loop: Loop) -> int:
    """Make the encoder that was to be kept the one that is scored; returns how many epochs it had."""
    if loop.settings.keep == "last" or not loop.run.best.is_file():
        return loop.place.epoch
    content = checkpoint.load(loop.run.best)
    loop.parts.method.load_state_dict(content.parts["method"])
    return content.place.epoch


def _kept_in_words(loop: Loop, kept: int) -> str:
    """Which encoder; the best one may be gone, where it was to be kept only since the run was resumed."""
    best = loop.looks.best_epochs
    if best is None:
        return f"the encoder after epoch {kept}, as the lens saw no ER bound"
    if best == kept:
        return f"the encoder after epoch {kept}, of the highest ER bound on {views_of(loop.parts.source)}"
    return f"the encoder after epoch {kept}; that of the highest ER bound, after epoch {best}, was not to be kept at the time"


def evaluation(loop: Loop) -> Evaluation | None:
    """KNN and linear probe of the encoder as it is, where there are labels and held-out images."""
    source, encoder = loop.parts.source, loop.parts.backbone.module
    if not source.classes or source.test is None:
        return None
    train, test = (loop.extract(encoder, single(part)) for part in (source.train, source.test))
    if not bool((test.labels >= 0).any()):
        return None
    k, temperature, few = loop.settings.knn_k, loop.settings.knn_temperature, source.name == "digits"
    return score_features(train, test, len(source.classes), few=few, knn_k=k, knn_temperature=temperature)


def _mean(key: str, rows: list[dict[str, float]]) -> float | None:
    values = [row[key] for row in rows if key in row]
    return fmean(values) if values else None


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
