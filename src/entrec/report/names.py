"""What runs are called: by their methods, and by as much of their folders' paths as it takes to tell them apart."""

import os
from collections.abc import Sequence
from pathlib import Path

from entrec.training.run import Run

_PROPER = {"simclr": "SimCLR", "moco": "MoCo", "deepcluster": "DeepCluster", "swav": "SwAV"}


def name_of(run: Run) -> str:
    """The method as the paper would write it.

    Raises:
        ValueError: config.yaml does not say which method it is, or whether with ER.
    """
    config = run.config
    missing = [key for key in ("method", "er") if key not in config]
    if missing:
        path = run.folder / "config.yaml"
        raise ValueError(f"{path} is damaged, or was cut off: it says nothing of {' or '.join(missing)}")
    method = str(config["method"])
    name = _PROPER.get(method, method.upper())
    return f"{name} + ER" if config["er"] else name


def names_of(runs: Sequence[Run]) -> list[str]:
    """A name for each run, no two the same."""
    methods = [name_of(run) for run in runs]
    found = []
    for place, method in enumerate(methods):
        alike = [run.folder for run, other in zip(runs, methods, strict=True) if other == method]
        earlier = sum(_parts(run.folder) == _parts(runs[place].folder) for run in runs[:place])
        again = f", again: {earlier + 1}" if earlier else ""  # the same folder was given twice
        found.append(f"{method} ({_ending(runs[place].folder, alike)}{again})" if len(alike) > 1 else method)
    return found


def _ending(folder: Path, others: Sequence[Path]) -> str:
    """The last parts of a path, as many as it takes to be no other's.

    >>> _ending(Path("/p/run"), [Path("/p/run"), Path("/q/run"), Path("/q/other")])
    'p/run'
    """
    own = _parts(folder)
    rest = {_parts(other) for other in others} - {own}
    count = next((n for n in range(1, len(own)) if own[-n:] not in {other[-n:] for other in rest}), len(own))
    return str(Path(*own[-count:]))


def _parts(folder: Path) -> tuple[str, ...]:
    return Path(os.path.abspath(folder)).parts  # as it was written: links keep their names
