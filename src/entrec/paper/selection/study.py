"""From runs to rank correlations: how well each number that needs no labels orders encoders as a linear probe does."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scipy.stats import spearmanr

from entrec.files import appearing
from entrec.paper.selection.figure import scatter
from entrec.paper.selection.grid import Cell, cells
from entrec.training.run import Run
from entrec.training.train import train

# Each so that more is better.
NUMBERS: dict[str, str] = {
    "er_bound": "ER bound",
    "entropy": "entropy, from 0 to 1",
    "reconstruction": "reconstruction (minus alignment, or the mean log-probability of codes)",
    "infonce_bound": "InfoNCE bound",
    "nearer": "own other view nearer",
    "rank": "effective rank (RankMe)",
    "alignment_uniformity": "minus (alignment + uniformity)",
}
GROUPS = ("all", "on the sphere", "codes")


@dataclass(frozen=True)
class Reading:
    """A run's numbers without labels, those that it has, its linear probe, and what the lens said."""

    name: str
    linear: float
    codes: bool
    verdict: str
    numbers: dict[str, float]


@dataclass(frozen=True)
class Study:
    """All runs, and for each number and group of methods Spearman's correlation with the probe and how many runs it is of."""

    epochs: int
    data: str
    readings: list[Reading]
    correlations: dict[str, dict[str, tuple[float, int]]]


def run(out: Path, data: str, epochs: int, device: str, progress: Callable[[str], None] = lambda part: None) -> Study:
    """Train what is not trained yet, one folder in `out/runs` each, and correlate."""
    grid = cells()
    for number, cell in enumerate(grid, 1):
        progress(f"{number} of {len(grid)}: {cell.name}")
        _trained(cell, out, data, epochs, device)
    return render(out)


def render(out: Path) -> Study:
    """The study from the runs that are there; writes results.json, table.md and the figure."""
    done = [(cell, Run(out / "runs" / cell.name)) for cell in cells() if (out / "runs" / cell.name / "summary.json").is_file()]
    if len(done) < 3:
        raise ValueError(f"{out / 'runs'} holds {len(done)} runs that have ended; at least 3 are needed")
    readings = [_reading(cell.name, run.summary) for cell, run in done]
    correlations = {key: {group: _correlation(key, group, readings) for group in GROUPS} for key in NUMBERS}
    config = done[0][1].config
    study = Study(config["epochs"], Path(config["data"]).name, readings, correlations)
    for name, text in (("results.json", json.dumps(asdict(study), indent=1) + "\n"), ("table.md", markdown(study))):
        with appearing(out / name) as unfinished:
            unfinished.write_text(text)
    drawn = [x for x in readings if "er_bound" in x.numbers]
    scatter([(x.name, x.numbers["er_bound"], x.linear, x.codes, x.verdict) for x in drawn], out / "er-bound")
    return study


def markdown(study: Study) -> str:
    """The correlations and the runs as tables."""
    lines = [
        "# Which number without labels orders encoders as a linear probe does?",
        "",
        f"    entrec paper selection --data {study.data} --epochs {study.epochs}",
        "",
        f"Spearman's rank correlation over {len(study.readings)} runs, failures included; two held-out views of each image, "
        "projections or codes of the student.",
        "",
        "| number | " + " | ".join(f"{group}" for group in GROUPS) + " |",
        "|---|" + "---:|" * len(GROUPS),
    ]
    for key, name in NUMBERS.items():
        cells_ = (_shown(*study.correlations[key][group]) for group in GROUPS)
        lines.append(f"| {name} | " + " | ".join(cells_) + " |")
    lines += [
        "",
        "| run | linear probe | lens | " + " | ".join(NUMBERS.values()) + " |",
        "|---|---:|---|" + "---:|" * len(NUMBERS),
    ]
    for x in sorted(study.readings, key=lambda x: -x.linear):
        numbers = (f"{x.numbers[key]:.2f}" if key in x.numbers else "-" for key in NUMBERS)
        lines.append(f"| {x.name} | {x.linear:.1%} | {x.verdict} | " + " | ".join(numbers) + " |")
    return "\n".join([*lines, ""])


def _shown(correlation: float, runs: int) -> str:
    return "-" if math.isnan(correlation) else f"{correlation:+.2f} ({runs})"


def _trained(cell: Cell, out: Path, data: str, epochs: int, device: str) -> None:
    folder = out / "runs" / cell.name
    if (folder / "summary.json").is_file():
        return
    begun = (folder / "config.yaml").is_file()
    train(cell.method, data=data, epochs=epochs, device=device, out=folder, resume=begun, evaluate_every=epochs, **cell.given)


def _reading(name: str, summary: Mapping[str, Any]) -> Reading:
    held_out: Mapping[str, Any] = summary["held_out"] or {}
    numbers = _numbers(held_out) if held_out else {}
    return Reading(name, summary["linear_top1"], "codes" in held_out, summary["verdict"], numbers)


def _numbers(held_out: Mapping[str, Any]) -> dict[str, float]:
    pairs = held_out["pairs"]
    shared = {"er_bound": pairs["er_bound"], "nearer": pairs["nearer"]}
    if "codes" in held_out:
        entropy = held_out["marginal"] / math.log(held_out["codes"])
        return {**shared, "entropy": entropy, "reconstruction": pairs["reconstruction"]}
    scale = held_out["ceiling"] - held_out["floor"]
    return {
        **shared,
        "entropy": (held_out["entropy"] - held_out["floor"]) / scale,
        "reconstruction": -pairs["alignment"],
        "infonce_bound": pairs["infonce_bound"],
        "rank": held_out["rank"],
        "alignment_uniformity": -(pairs["alignment"] + held_out["uniformity"]),
    }


def _correlation(key: str, group: str, readings: list[Reading]) -> tuple[float, int]:
    wanted = {"all": (True, False), "on the sphere": (False,), "codes": (True,)}[group]
    pairs = [(x.numbers[key], x.linear) for x in readings if key in x.numbers and x.codes in wanted]
    mixed = group == "all" and key in ("reconstruction",)  # of other units for codes
    columns = list(zip(*pairs, strict=True))
    if len(pairs) < 5 or mixed or any(len(set(column)) == 1 for column in columns):  # what never changes orders nothing
        return math.nan, len(pairs)
    return float(spearmanr(*columns).statistic), len(pairs)
