"""Runs as a job array of a cluster, through submitit."""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from entrec.paper.runner.cell import Cell, Pool
from entrec.paper.runner.local import trained

# Of each job, unless asked otherwise: cores to decode images for a card, and a day.
_CORES, _MINUTES = 8, 24 * 60


def submit(
    cells: Sequence[Cell], pool: Pool, logs: Path, at_once: int | None = None, wanted: Mapping[str, Any] | None = None
) -> list[str]:
    """Ask for a job for each cell, as one array in the cells' order; returns the jobs' numbers without waiting for them.

    Each cell has its folder from then on, by which the pool is known to be taken while jobs wait.

    Args:
        cells: that are left to be made.
        pool: where, on a disk that the cluster's machines share.
        logs: folder for submitit's own files.
        at_once: jobs that run at a time, at the most; None for as many as the cluster gives.
        wanted: of submitit's `AutoExecutor.update_parameters`: slurm_partition, timeout_min, ...

    Raises:
        ValueError: submitit is not installed.
    """
    if not cells:
        return []
    require_submitit()
    import submitit

    executor: Any = submitit.AutoExecutor(folder=str(logs))
    devices = pool.given.get("devices", 1)
    usual = {"gpus_per_node": devices, "cpus_per_task": _CORES * devices, "timeout_min": _MINUTES}
    limits = {} if at_once is None else {"slurm_array_parallelism": at_once}
    executor.update_parameters(name="entrec", **{**usual, **limits, **(wanted or {})})
    jobs = executor.map_array(trained, cells, [pool] * len(cells))
    for cell in cells:
        (pool.folder / cell.name).mkdir(parents=True, exist_ok=True)
    return [str(job.job_id) for job in jobs]


def require_submitit() -> None:
    """Stop before anything is done where jobs cannot be asked for."""
    if find_spec("submitit") is None:
        raise ValueError("--launcher slurm needs submitit: pip install 'entrec[slurm]'")
