"""The whole study: run it, and write what it found."""

import json
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from entrec import __version__
from entrec.paper.convergence import calibration, discrete, entropy, reconstruction
from entrec.paper.convergence.discrete import DiscreteCurves
from entrec.paper.convergence.entropy import EntropyCurves
from entrec.paper.convergence.findings import (
    Finding,
    calibration_findings,
    discrete_findings,
    entropy_findings,
    reconstruction_findings,
)
from entrec.paper.convergence.measure import Curve
from entrec.paper.convergence.reconstruction import ReconstructionCurve


@dataclass(frozen=True)
class Study:
    """Everything that was measured, and what follows from it."""

    entropy: EntropyCurves
    reconstruction: list[ReconstructionCurve]
    discrete: DiscreteCurves
    calibration: dict[int, list[Curve]]
    findings: list[Finding]
    seconds: float
    quick: bool
    seed: int
    device: str


def run(quick: bool, seed: int = 0, device: str = "cpu", progress: Callable[[str], None] = lambda part: None) -> Study:
    """Run every experiment; `progress` hears the name of each part as it starts."""
    start = time.perf_counter()
    with _one_thread():
        of_entropy = entropy.run(quick, seed, device, progress)
        progress("the reconstruction's variance")
        of_reconstruction = reconstruction.run(quick, seed, device)
        progress("the discrete plug-in")
        of_discrete = discrete.run(quick, seed, device)
        progress("bounds against a known mutual information")
        of_information = calibration.run(quick, seed, device)
    findings = [
        *entropy_findings(of_entropy),
        *reconstruction_findings(of_reconstruction),
        *discrete_findings(of_discrete),
        *calibration_findings(of_information),
    ]
    seconds = time.perf_counter() - start
    return Study(of_entropy, of_reconstruction, of_discrete, of_information, findings, seconds, quick, seed, device)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Thousands of small operations: more threads gain little, and lose much where the machine has other work."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def write(study: Study, folder: Path) -> list[Path]:
    """Write `results.json`, `table.md` and the figures; returns the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    results = folder / "results.json"
    document = asdict(study) | {
        "versions": {"entrec": __version__, "torch": torch.__version__, "python": platform.python_version()}
    }
    results.write_text(json.dumps(document, indent=1) + "\n")
    return [results, *render(study, folder)]


def render(study: Study, folder: Path) -> list[Path]:
    """Write `table.md` and the figures; returns the paths."""
    from entrec.paper.convergence import figures  # matplotlib is slow to import

    table = folder / "table.md"
    table.write_text(markdown(study))
    return [table, *figures.draw(study, folder)]


def markdown(study: Study) -> str:
    """The findings as a table."""
    command = f"entrec paper convergence{' --quick' if study.quick else ''} --seed {study.seed} --device {study.device}"
    cells = [
        (f.statement, f.measured, f"**{f.verdict}**", f.instead, "yes" if f.as_derived else "**no**") for f in study.findings
    ]
    rows = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in cells]
    return "\n".join(
        [
            "# The estimators of the ER bound against known truths",
            "",
            f"Made by `{command}` in {study.seconds:.0f} s. Natural logarithms; ± is one standard error of the Monte Carlo.",
            "The last column says whether the measurement agrees with the closed form or exponent that we derive.",
            "",
            "| the paper's statement | measured | verdict | what holds | as derived |",
            "|---|---|---|---|---|",
            *rows,
            "",
        ]
    )
