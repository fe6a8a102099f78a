"""Run folders made by hand, whose numbers are known."""

from pathlib import Path
from typing import Any

from entrec.paper.grid.presets import Preset
from entrec.paper.grid.setting import Setting
from entrec.paper.runner.notes import note_failure
from entrec.training.run import Metrics, Run, write_config, write_summary

TINY = Preset(
    name="quick", data="shapes", backbone="tiny", epochs=1, batch=32, rate=6e-3, fractions=(8,), emas=(0.8, None),
    weights=(0.1, 1.0, 100.0), seeds=1, images=64, log_every=1,
    options={"moco": {"queue": 32}, "deepcluster": {"clusters": 16}},
)  # fmt: skip


def ended(
    pool: Path,
    setting: Setting,
    linear: float | None = 0.5,
    seed: int = 0,
    preset: Preset = TINY,
    entropy: tuple[float, float] = (-5.0, -4.0),
    bounds: tuple[float, float] = (1.0, 2.0),
    **more: Any,
) -> Path:
    """A run that has ended: its probe, its entropy untrained and in the last epoch, its bounds at both looks."""
    cell = setting.cell(preset, seed)
    run = Run(pool / cell.name)
    run.folder.mkdir(parents=True)
    codes = {"dino": {"codes": 1024}, "swav": {"prototypes": 64}, "deepcluster": {"clusters": 100}}.get(setting.method, {})
    dims = {"kappa": 10.0, "dim": 64, "bottleneck": 64, **codes}
    write_config(run, {"method": setting.method, "device": "cpu", **dims, **cell.given})
    rows = Metrics(run.folder / "metrics.csv")
    rows.write({"step": 1, "epoch": 0, "entropy": entropy[0], "reconstruction": 3.0, "er_bound": entropy[0] + 3})
    for epoch in (0, 1):
        step = 10 * (epoch + 1)
        rows.write({"step": step, "epoch": epoch, "entropy": entropy[1], "reconstruction": 4.0, "er_bound": entropy[1] + 4})
        look = {"held_out_er_bound": bounds[epoch], "held_out_er_ceiling": 9.0, "knn_top1": 0.3}
        look |= {} if codes else {"held_out_infonce_bound": bounds[epoch] / 2}
        rows.write({"step": step, "epoch": epoch, **look})
    summary = {
        "epochs": 2,
        "linear_top1": linear,
        "knn_top1": 0.3,
        "held_out_entropy": 0.8,
        "verdict": "healthy",
        "wall_seconds": 60.0,
    }
    write_summary(run, {**summary, "versions": {"torch": "2.9"}, **more})
    return run.folder


def failed(pool: Path, setting: Setting, error: Exception, seed: int = 0, preset: Preset = TINY) -> Path:
    """A run that failed."""
    folder = pool / setting.cell(preset, seed).name
    note_failure(folder, error)
    return folder
